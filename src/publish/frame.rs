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
        let (made, count) = (Lazy::default(), Arc::clone(count));
        Self(Inner::Later(Box::new(Later { recipe, made, bytes, guard: false, count })))
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
            Inner::Later(later) => later.memory(),
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
                Ok(())
            }
        }
    }

    /// The frame for use again, with what is known of its content; that of a recipe is old.
    pub fn recycled(self) -> error::Result<Self> {
        match self.0 {
            Inner::Made { memory, exposed } => Ok(memory.recycled(exposed.into_inner())?.into()),
            Inner::Later(mut later) => {
                later.made.unmake();
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
    fn memory(&self) -> error::Result<&Memory> {
        self.made.get_or_make(|spare| {
            let mut memory = match spare {
                Some(memory) => memory.recycled(true)?,
                None => {
                    let memory = Memory::zeroed("a frame", self.bytes)?;
                    self.count.fetch_add(1, Ordering::Relaxed);
                    memory
                }
            };
            let made = self.recipe.make(memory.bytes_mut());
            let made = made.and_then(|()| if self.guard { memory.guard() } else { Ok(()) });
            made.map(|()| memory).inspect_err(|_| self.forget())
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
