//! The frame of a publication: made already, or left to its first reader.
//!
//! A frame that is a function of things that change no more need not be made by the writer. It publishes the
//! *recipe*, and the first reader makes the frame, on its own thread. Other readers of the same publication who come
//! meanwhile wait for that one, and for nobody else; a publication that nobody reads costs no more than its recipe. The
//! writer never waits: it touches a frame only when its slot is closed, so when no reader is there, and then without
//! the lock.
//!
//! The memory of such a frame stays with its slot, like that of others, and is written whole each time: nothing is
//! known of what it held.

use super::memory::Memory;
use super::sync::{Mutex, MutexGuard, OnceLock};
use crate::error;
use std::any::Any;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, TryLockError};

/// What a frame is made of.
pub trait Recipe: Any + Send + Sync {
    /// Writes the frame over whatever `out` holds: the bytes of one frame, aligned for its elements.
    fn make(&self, out: &mut [u8]) -> error::Result<()>;
}

/// A frame: made, or to be made by the first who wants it.
pub struct Frame(Inner);

enum Inner {
    Made {
        memory: Memory,
        /// Somebody was shown the memory who might write to it, whatever he was told.
        exposed: AtomicBool,
    },
    Later(Box<Later>),
}

struct Later {
    recipe: Box<dyn Recipe>,
    made: Lazy<Memory>,
    /// Somebody asked for it.
    wanted: AtomicBool,
    bytes: Option<usize>,
    /// Whether it is to be guarded once it is made.
    guard: bool,
    /// Frames made and not given back, of all publications.
    count: Arc<AtomicUsize>,
}

impl From<Memory> for Frame {
    fn from(memory: Memory) -> Self {
        Self(Inner::Made { memory, exposed: AtomicBool::new(false) })
    }
}

impl Frame {
    /// A frame of so many bytes to be made by `recipe`, once that was filled in. While it has memory it is counted in
    /// `count`.
    pub fn later(recipe: Box<dyn Recipe>, bytes: Option<usize>, count: &Arc<AtomicUsize>) -> Self {
        let (made, wanted, count) = (Lazy::default(), AtomicBool::new(false), Arc::clone(count));
        Self(Inner::Later(Box::new(Later { recipe, made, wanted, bytes, guard: false, count })))
    }

    /// Whether `memory` has nothing to do.
    pub fn is_made(&self) -> bool {
        match &self.0 {
            Inner::Made { .. } => true,
            Inner::Later(later) => later.made.get().is_some(),
        }
    }

    /// The frame. Makes it if nobody has; waits if somebody is about to. Fails where memory for it cannot be had, or
    /// cannot be guarded; it may then be tried again.
    pub fn memory(&self) -> error::Result<&Memory> {
        match &self.0 {
            Inner::Made { memory, .. } => Ok(memory),
            Inner::Later(later) => {
                // Relaxed: as in `expose`.
                later.wanted.store(true, Ordering::Relaxed);
                later.memory(|recipe, memory| {
                    recipe.make(memory.bytes_mut())?;
                    if later.guard { memory.guard() } else { Ok(()) }
                })
            }
        }
    }

    /// Makes a frame that was to be made later, by who has it for himself: `make` writes it over whatever it is given.
    pub fn make_now(&mut self, make: impl FnOnce(&mut [u8]) -> error::Result<()>) -> error::Result<()> {
        match &mut self.0 {
            Inner::Made { memory, .. } => make(memory.bytes_mut()),
            Inner::Later(later) => later.memory(|_, memory| make(memory.bytes_mut())).map(drop),
        }
    }

    /// Whether somebody asked for it, if it was to be made later.
    pub fn was_wanted(&mut self) -> Option<bool> {
        match &mut self.0 {
            Inner::Made { .. } => None,
            Inner::Later(later) => Some(*later.wanted.get_mut()),
        }
    }

    /// Says that the memory is shown to code that might write to it: from then on nothing is known of its content when it
    /// comes back. To be called before, by who holds the publication.
    pub fn expose(&self) {
        if let Inner::Made { exposed, .. } = &self.0 {
            // Relaxed: letting go of the publication releases this, and the writer acquires it with the slot.
            exposed.store(true, Ordering::Relaxed);
        }
    }

    /// Maps it so that every write to it faults: now, or when it is made.
    pub fn guard(&mut self) -> error::Result<()> {
        match &mut self.0 {
            Inner::Made { memory, .. } => memory.guard(),
            Inner::Later(later) => {
                later.guard = true;
                later.made.get_mut().map_or(Ok(()), Memory::guard)
            }
        }
    }

    /// The frame for use again, with what is known of its content; that of a recipe is old.
    pub fn recycled(self) -> error::Result<Self> {
        match self.0 {
            Inner::Made { memory, exposed } => Ok(memory.recycled(exposed.into_inner())?.into()),
            Inner::Later(mut later) => {
                later.made.unmake();
                *later.wanted.get_mut() = false;
                Ok(Self(Inner::Later(later)))
            }
        }
    }

    /// The memory of a frame that is not to be made later.
    pub fn into_made(self) -> Option<Memory> {
        match self.0 {
            Inner::Made { memory, .. } => Some(memory),
            Inner::Later(_) => None,
        }
    }

    /// The recipe of a frame that is to be made later.
    pub fn recipe_mut(&mut self) -> Option<&mut dyn Recipe> {
        match &mut self.0 {
            Inner::Made { .. } => None,
            Inner::Later(later) => Some(&mut *later.recipe),
        }
    }
}

impl Later {
    /// The frame. If nobody has, `make` makes it, in memory of any content.
    fn memory(
        &self,
        make: impl FnOnce(&dyn Recipe, &mut Memory) -> error::Result<()>,
    ) -> error::Result<&Memory> {
        self.made.get_or_make(|spare| {
            let mut memory = match spare {
                Some(memory) => memory.recycled(true)?,
                None => {
                    let memory = Memory::zeroed("a frame", self.bytes)?;
                    self.count.fetch_add(1, Ordering::Relaxed);
                    memory
                }
            };
            make(&*self.recipe, &mut memory).map(|()| memory).inspect_err(|_| self.forget())
        })
    }

    /// One frame less.
    fn forget(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        if self.made.unmake() {
            self.forget();
        }
    }
}

/// A value that the first who wants it makes, while others who want it wait.
pub struct Lazy<T> {
    made: OnceLock<T>,
    /// Locked by who makes it. Holds a value of before, to make the new one of.
    making: Mutex<Option<T>>,
    /// The process of the one who makes it: in a child that was forked meanwhile nobody goes on with it.
    maker: AtomicU32,
}

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Self { made: OnceLock::new(), making: Mutex::new(None), maker: AtomicU32::new(0) }
    }
}

impl<T> Lazy<T> {
    /// The value, if it was made.
    pub fn get(&self) -> Option<&T> {
        self.made.get()
    }

    /// The value, if it was made, for who has it for itself.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.made.get_mut()
    }

    /// The value. `make` is called if there is none, by one thread at a time, with the value of before; where it fails
    /// the next one tries.
    pub fn get_or_make<E>(&self, make: impl FnOnce(Option<T>) -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.made.get() {
            return Ok(value);
        }
        let mut making = self.lock();
        if let Some(value) = self.made.get() {
            return Ok(value);
        }
        self.maker.store(process::id(), Ordering::Relaxed);
        let value = make(making.as_mut().and_then(|spare| spare.take()))?;
        // Only where the lock was lost by a fork can somebody else have been first.
        Ok(self.made.get_or_init(|| value))
    }

    /// `None`: held for ever, as its holder was not forked along.
    fn lock(&self) -> Option<MutexGuard<'_, Option<T>>> {
        match self.making.try_lock() {
            Ok(making) => Some(making),
            Err(TryLockError::Poisoned(making)) => Some(making.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let maker = self.maker.load(Ordering::Relaxed);
                (maker == 0 || maker == process::id())
                    .then(|| self.making.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Back to not made, by who has it for itself. Whether there is a value to make the next one of.
    pub fn unmake(&mut self) -> bool {
        self.maker.store(0, Ordering::Relaxed);
        let spare = self.making.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = self.made.take() {
            *spare = Some(value);
        }
        spare.is_some()
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn it_is_made_once_for_all() {
        for _ in 0..50 {
            let (lazy, made, start) = (Lazy::default(), AtomicUsize::new(0), Barrier::new(4));
            let places = thread::scope(|scope| {
                let get = || {
                    start.wait();
                    let make = |_| Ok::<_, ()>(made.fetch_add(1, Ordering::Relaxed));
                    std::ptr::from_ref(lazy.get_or_make(make).unwrap()) as usize
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(get)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            assert!(places.iter().all(|&place| place == places[0]));
            assert_eq!(made.into_inner(), 1);
        }
    }

    #[test]
    fn where_it_failed_it_is_tried_again_and_the_old_value_is_used() {
        let mut lazy = Lazy::default();
        assert_eq!(lazy.get_or_make(|spare| if spare.is_none() { Err("no") } else { Ok(1) }), Err("no"));
        assert_eq!(lazy.get_or_make(|_| Ok::<_, ()>(2)), Ok(&2));
        assert!(lazy.unmake());
        assert!(lazy.get().is_none());
        assert_eq!(lazy.get_or_make(|spare| Ok::<_, ()>(spare.unwrap() + 1)), Ok(&3));
    }

    #[test]
    fn nobody_waits_for_a_maker_who_was_not_forked_along() {
        let lazy = Lazy::default();
        // As a child finds it: locked, by a thread of its parent's.
        let lost = lazy.making.lock().unwrap();
        lazy.maker.store(process::id() ^ 1, Ordering::Relaxed);
        assert_eq!(lazy.get_or_make(|_| Ok::<_, ()>(5)), Ok(&5));
        drop(lost);
    }

    struct Never;

    impl Recipe for Never {
        fn make(&self, _out: &mut [u8]) -> error::Result<()> {
            Err(Error::Poisoned)
        }
    }

    #[test]
    fn frames_are_counted_while_they_have_memory() {
        let count = Arc::default();
        let frame = Frame::later(Box::new(Never), Some(100), &count);
        assert!(frame.memory().is_err());
        assert!(!frame.is_made());
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
