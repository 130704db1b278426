//! The frame of a publication: made already, or left to its first reader.
//!
//! A frame that is a function of things that change no more need not be made by the writer. It publishes the
//! *recipe*, and the first reader makes the frame, on its own thread. Other readers of the same frame who come
//! meanwhile wait for that one, and for nobody else; a publication that nobody reads costs no more than its recipe. The
//! writer never waits: it changes a frame only when it has that for itself, so when no reader is there, and then without
//! the lock.
//!
//! Publications that show the same have the same frame: their slots refer to it by a counted reference, and whoever reads one
//! of them first makes it for all ([`Shelf`]). The writer has a frame for itself when its own reference is the only one; it
//! comes by that of a slot only where the slot is closed, so no reader is left then who came by another.
//!
//! The memory of such a frame stays with it for use again, and is written whole each time: nothing is known of what it held.

use super::memory::Memory;
use super::sync::{Arc, Mutex, MutexGuard, OnceLock};
use crate::error;
use std::any::Any;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{PoisonError, TryLockError};

/// What a frame is made of.
pub trait Recipe: Any + Send + Sync {
    /// Writes the frame over whatever `out` holds: the bytes of one frame, aligned for its elements.
    fn make(&self, out: &mut [u8]) -> error::Result<()>;

    /// Lets go of all that it refers to. It is filled in again before anything is made by it.
    fn empty(&mut self);
}

/// Frames with memory, of all that are made later. Nothing rests on when it is seen.
pub type Count = std::sync::Arc<AtomicUsize>;

/// A frame: made, or to be made by the first who wants it.
pub struct Frame(Inner);

enum Inner {
    Made(Memory),
    Later(Arc<Later>),
}

/// A frame to be made later, which several publications may refer to.
struct Later {
    recipe: Box<dyn Recipe>,
    made: Lazy<Memory>,
    /// Somebody asked for it.
    wanted: AtomicBool,
    bytes: Option<usize>,
    /// Whether it is to be guarded once it is made.
    guard: bool,
    count: Count,
}

impl From<Memory> for Frame {
    fn from(memory: Memory) -> Self {
        Self(Inner::Made(memory))
    }
}

impl Frame {
    /// Whether `memory` has nothing to do.
    pub fn is_made(&self) -> bool {
        match &self.0 {
            Inner::Made(_) => true,
            Inner::Later(later) => later.made.get().is_some(),
        }
    }

    /// The frame. Makes it if nobody has; waits if somebody is about to. Fails where memory for it cannot be had, or
    /// cannot be guarded; it may then be tried again.
    pub fn memory(&self) -> error::Result<&Memory> {
        match &self.0 {
            Inner::Made(memory) => Ok(memory),
            Inner::Later(later) => {
                // Relaxed: letting go of the publication releases this, and the writer acquires it with the slot.
                later.wanted.store(true, Ordering::Relaxed);
                later.memory(|recipe, memory| {
                    recipe.make(memory.bytes_mut())?;
                    if later.guard { memory.guard() } else { Ok(()) }
                })
            }
        }
    }

    /// Makes a frame that was to be made later, by who has it for itself: `make` writes it over whatever it is given.
    pub fn make_now(&mut self, make: impl FnOnce(&mut [u8]) -> error::Result<()>) -> error::Result<()> {
        match &mut self.0 {
            Inner::Made(memory) => make(memory.bytes_mut()),
            Inner::Later(later) => later.memory(|_, memory| make(memory.bytes_mut())).map(drop),
        }
    }

    /// Whether somebody asked for it, if it was to be made later.
    pub fn was_wanted(&self) -> Option<bool> {
        match &self.0 {
            Inner::Made(_) => None,
            Inner::Later(later) => Some(later.wanted.load(Ordering::Relaxed)),
        }
    }

    /// Maps it so that every write to it faults, if it is made. One to be made later was told so at the start.
    pub fn guard(&mut self) -> error::Result<()> {
        match &mut self.0 {
            Inner::Made(memory) => memory.guard(),
            Inner::Later(later) => {
                Arc::get_mut(later).and_then(|later| later.made.get_mut()).map_or(Ok(()), Memory::guard)
            }
        }
    }

    /// The memory for use again of a frame that is not to be made later. It is to be written whole.
    pub fn recycled(self) -> Option<error::Result<Self>> {
        match self.0 {
            Inner::Made(memory) => Some(memory.recycled().map(Self::from)),
            Inner::Later(_) => None,
        }
    }

    /// The memory of a frame that is not to be made later.
    pub fn into_made(self) -> Option<Memory> {
        match self.0 {
            Inner::Made(memory) => Some(memory),
            Inner::Later(_) => None,
        }
    }

    /// The recipe of a frame that is to be made later, for who has it for itself.
    pub fn recipe_mut(&mut self) -> Option<&mut dyn Recipe> {
        match &mut self.0 {
            Inner::Made(_) => None,
            Inner::Later(later) => {
                let later = Arc::get_mut(later).expect("no publication refers to a frame that is filled in");
                Some(&mut *later.recipe)
            }
        }
    }

    /// A frame to be made later for use again, if nobody else refers to it. Its memory stays, with a content that is old.
    fn into_free(self) -> Option<Arc<Later>> {
        let Inner::Later(mut later) = self.0 else { return None };
        Arc::get_mut(&mut later)?.clear();
        Some(later)
    }
}

/// What a writer has of frames to be made later: the one that is up, which the next publication may show again, and those that
/// are free. Frames in slots are free once the slot is claimed and no other slot refers to them.
pub struct Shelf {
    /// The frame of the latest publication.
    last: Option<Arc<Later>>,
    free: Vec<Arc<Later>>,
    /// Frames that are kept with their memory, those in slots included.
    keep: usize,
    bytes: Option<usize>,
    guard: bool,
    count: Count,
}

impl Shelf {
    /// For frames of so many bytes, to be guarded or not.
    pub fn new(keep: usize, bytes: Option<usize>, guard: bool) -> Self {
        Self { last: None, free: Vec::new(), keep, bytes, guard, count: Count::default() }
    }

    /// How many frames have memory, now and later.
    pub fn count(&self) -> &Count {
        &self.count
    }

    /// A frame to be filled in: the one that a slot was `left` with, if that is free, else another. `new` makes a recipe where
    /// there is none.
    pub fn frame(
        &mut self,
        left: Option<Frame>,
        new: impl FnOnce() -> error::Result<Box<dyn Recipe>>,
    ) -> error::Result<Frame> {
        let later = match left.and_then(Frame::into_free).or_else(|| self.free.pop()) {
            Some(later) => later,
            None => Arc::new(Later {
                recipe: new()?,
                made: Lazy::default(),
                wanted: AtomicBool::new(false),
                bytes: self.bytes,
                guard: self.guard,
                count: Count::clone(&self.count),
            }),
        };
        Ok(Frame(Inner::Later(later)))
    }

    /// The recipe of the latest publication.
    pub fn last_recipe(&self) -> Option<&dyn Recipe> {
        self.last.as_ref().map(|last| &*last.recipe)
    }

    /// The frame of the latest publication for one more; `unused` is what that would have had otherwise.
    pub fn again(&mut self, unused: Frame) -> Frame {
        if let Some(free) = unused.into_free()
            && self.free.len() < self.keep
            && self.count.load(Ordering::Relaxed) <= self.keep
        {
            self.free.push(free);
        }
        let last = self.last.as_ref().expect("something was published");
        Frame(Inner::Later(Arc::clone(last)))
    }

    /// Takes note of what is published. To be told of every publication.
    pub fn publishes(&mut self, frame: &Frame) {
        if let Inner::Later(later) = &frame.0 {
            self.last = Some(Arc::clone(later));
        }
    }

    /// The next publication has a frame of its own.
    pub fn forget(&mut self) {
        self.last = None;
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
                Some(memory) => memory.recycled()?,
                None => {
                    let memory = Memory::zeroed("a frame", self.bytes)?;
                    self.count.fetch_add(1, Ordering::Relaxed);
                    memory
                }
            };
            make(&*self.recipe, &mut memory).map(|()| memory).inspect_err(|_| self.forget())
        })
    }

    /// Back to a frame to be filled in.
    fn clear(&mut self) {
        self.recipe.empty();
        self.made.unmake();
        *self.wanted.get_mut() = false;
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
        fn empty(&mut self) {}
    }

    #[test]
    fn frames_are_counted_while_they_have_memory() {
        let mut shelf = Shelf::new(8, Some(100), false);
        let frame = shelf.frame(None, || Ok(Box::new(Never))).unwrap();
        assert!(frame.memory().is_err());
        assert!(!frame.is_made());
        assert_eq!(shelf.count().load(Ordering::Relaxed), 0);
    }

    /// Makes frames of ones, and counts them.
    #[derive(Default)]
    struct Ones {
        made: Count,
        emptied: Count,
    }

    impl Recipe for Ones {
        fn make(&self, out: &mut [u8]) -> error::Result<()> {
            out.fill(1);
            self.made.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        fn empty(&mut self) {
            self.emptied.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn ones(shelf: &mut Shelf, left: Option<Frame>) -> Frame {
        shelf.frame(left, || Ok(Box::<Ones>::default())).unwrap()
    }

    /// Two publications with one frame.
    fn shown_twice(shelf: &mut Shelf) -> (Frame, Frame) {
        let first = ones(shelf, None);
        shelf.publishes(&first);
        let unused = ones(shelf, None);
        (first, shelf.again(unused))
    }

    fn place(frame: &Frame) -> *const u8 {
        frame.memory().unwrap().bytes().as_ptr()
    }

    #[test]
    fn a_frame_is_made_once_for_all_publications_and_used_again_when_they_are_gone() {
        let (recipe, mut shelf) = (Ones::default(), Shelf::new(8, Some(5000), false));
        let (made, emptied) = (recipe.made.clone(), recipe.emptied.clone());
        let first = shelf.frame(None, || Ok(Box::new(recipe))).unwrap();
        shelf.publishes(&first);
        let unused = ones(&mut shelf, None);
        let second = shelf.again(unused);
        shelf.publishes(&second);
        let at = place(&second);
        assert_eq!(place(&first), at);
        assert_eq!(made.load(Ordering::Relaxed), 1);
        assert_eq!(shelf.count().load(Ordering::Relaxed), 1);
        // The second still refers to it, then the shelf does.
        let mut third = ones(&mut shelf, Some(first));
        assert!(third.recipe_mut().is_some());
        assert!(!third.is_made());
        let fourth = ones(&mut shelf, Some(second));
        assert_ne!(place(&fourth), at);
        shelf.publishes(&fourth);
        assert_eq!(shelf.count().load(Ordering::Relaxed), 1);
        assert_eq!(emptied.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_last_to_let_go_of_a_frame_leaves_its_memory_to_the_next() {
        let mut shelf = Shelf::new(8, Some(5000), false);
        let (first, second) = shown_twice(&mut shelf);
        let at = place(&first);
        drop(first);
        shelf.forget();
        let third = ones(&mut shelf, Some(second));
        assert!(!third.is_made());
        assert_eq!(place(&third), at);
        assert_eq!(shelf.count().load(Ordering::Relaxed), 1);
        drop(third);
        assert_eq!(shelf.count().load(Ordering::Relaxed), 0);
    }

    #[test]
    fn no_more_memory_is_kept_than_asked_for() {
        for keep in 0..4 {
            let mut shelf = Shelf::new(keep, Some(5000), false);
            let frames: Vec<_> = (0..6).map(|_| ones(&mut shelf, None)).collect();
            assert!(frames.iter().all(|frame| frame.memory().is_ok()));
            shelf.publishes(&frames[0]);
            let mut frames = frames.into_iter();
            let mut up = frames.next().unwrap();
            for unused in frames {
                up = shelf.again(unused);
            }
            assert_eq!(shelf.count().load(Ordering::Relaxed), keep.max(1), "{keep}");
            drop(up);
            shelf.forget();
            assert_eq!(shelf.count().load(Ordering::Relaxed), keep.saturating_sub(1), "{keep}");
        }
    }

    #[test]
    fn a_shared_frame_is_guarded_once_and_can_be_written_again() {
        let mut shelf = Shelf::new(8, Some(5000), true);
        let (first, mut second) = shown_twice(&mut shelf);
        second.guard().unwrap();
        place(&first);
        second.guard().unwrap();
        drop(first);
        shelf.forget();
        let third = ones(&mut shelf, Some(second));
        assert!(third.memory().unwrap().bytes().iter().all(|&byte| byte == 1));
    }
}
