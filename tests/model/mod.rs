//! What the models of the publication protocol publish and look at: frames whose torn read shows, and objects kept
//! beside them (as Python's snapshots are) that must be given up exactly once, when nobody uses them.
//!
//! Run by loom, by shuttle, and by the threads of the machine, for the sanitizers and Miri to watch.
#![allow(unsafe_code)]
#![allow(dead_code)] // each test uses a part

pub mod recipes;
#[cfg(not(loom))]
pub mod scenarios;

use frames2py::publish::{Lease, Pool, View, Visit, Writer};
use std::collections::HashMap;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicUsize as Count, Ordering as StdOrdering};

#[cfg(loom)]
pub use loom::{
    sync::{Arc, atomic::AtomicPtr, atomic::Ordering},
    thread,
};
#[cfg(shuttle)]
pub use shuttle::{
    sync::{Arc, atomic::AtomicPtr, atomic::Ordering},
    thread,
};
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    sync::{Arc, atomic::AtomicPtr, atomic::Ordering},
    thread,
};

/// A number in plain memory: loom, Miri and the thread sanitizer report accesses that nothing orders.
#[cfg(not(shuttle))]
struct Word(Cell);

#[cfg(loom)]
type Cell = loom::cell::UnsafeCell<u64>;
#[cfg(not(any(loom, shuttle)))]
type Cell = std::cell::UnsafeCell<u64>;

// SAFETY: it is what the model is to show, and the checkers stop at the first access that races with another. Without
// one, a torn frame is a number that was not expected.
#[cfg(not(shuttle))]
unsafe impl Sync for Word {}

#[cfg(not(shuttle))]
impl Word {
    fn new() -> Self {
        Self(Cell::new(0))
    }

    #[cfg(loom)]
    fn get(&self) -> u64 {
        // SAFETY: see `Sync`.
        self.0.with(|word| unsafe { word.read_volatile() })
    }

    #[cfg(loom)]
    fn set(&self, value: u64) {
        // SAFETY: see `Sync`.
        self.0.with_mut(|word| unsafe { word.write_volatile(value) });
    }

    #[cfg(not(loom))]
    fn get(&self) -> u64 {
        // SAFETY: see `Sync`.
        unsafe { self.0.get().read_volatile() }
    }

    #[cfg(not(loom))]
    fn set(&self, value: u64) {
        // SAFETY: see `Sync`.
        unsafe { self.0.get().write_volatile(value) }
    }
}

/// A number. Between any two accesses shuttle may run other threads.
#[cfg(shuttle)]
struct Word(shuttle::sync::atomic::AtomicU64);

#[cfg(shuttle)]
impl Word {
    fn new() -> Self {
        Self(shuttle::sync::atomic::AtomicU64::new(0))
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn set(&self, value: u64) {
        self.0.store(value, Ordering::SeqCst);
    }
}

const GONE: u64 = u64::MAX;

/// A publication: both words are its sequence number.
pub struct Frame {
    words: [Word; 2],
    live: std::sync::Arc<Count>,
}

impl Frame {
    fn fill(&self, sequence: u64) {
        self.words.iter().for_each(|word| word.set(sequence));
    }

    pub fn check(&self, sequence: u64) {
        for word in &self.words {
            assert_eq!(word.get(), sequence, "a torn frame, or another one");
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.fill(GONE);
            self.live.fetch_sub(1, StdOrdering::Relaxed);
        }
    }
}

/// What readers make of a publication. Like a Python snapshot, it may hold a lease of it.
pub struct Object {
    sequence: u64,
    /// 1 while it may be used.
    life: Word,
    taken: Count,
    lease: StdMutex<Option<Lease<Frame, Kept>>>,
}

/// Where the object is kept: null, or from `Arc::into_raw`.
pub struct Kept {
    object: AtomicPtr<Object>,
    /// Written by who has the slot for itself, read by visitors.
    alone: Word,
}

impl Default for Kept {
    fn default() -> Self {
        Self { object: AtomicPtr::new(std::ptr::null_mut()), alone: Word::new() }
    }
}

impl View for Kept {
    type Taken = Taken;

    fn take(&self) -> Option<Taken> {
        self.alone.set(0);
        let object = self.object.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: from `Arc::into_raw`, and swapped out by this thread only.
        (!object.is_null()).then(|| Taken(unsafe { std::sync::Arc::from_raw(object) }))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            drop(self.take());
        }
    }
}

/// An object that was taken out, and ends.
pub struct Taken(std::sync::Arc<Object>);

impl Drop for Taken {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        assert_eq!(self.0.taken.fetch_add(1, StdOrdering::Relaxed), 0, "taken twice");
        self.0.life.set(GONE);
        // Dropped outside of the lock: it may run other threads.
        let lease = self.0.lease.lock().unwrap().take();
        drop(lease);
    }
}

pub type Frames = Pool<Frame, Kept>;
pub type Publishing = Writer<Frame, Kept>;

/// One run of a model.
#[derive(Default)]
pub struct World {
    frames: std::sync::Arc<Count>,
    /// The object that was kept for each publication.
    objects: StdMutex<HashMap<u64, std::sync::Arc<Object>>>,
}

impl World {
    pub fn new(keep: usize) -> (std::sync::Arc<Self>, Arc<Frames>, Publishing) {
        let (pool, writer) = Pool::new(keep);
        (std::sync::Arc::default(), pool, writer)
    }

    /// Publishes frame `sequence`, in the memory that the slot was left with.
    pub fn publish(&self, writer: &mut Publishing, sequence: u64) -> frames2py::publish::Retired {
        let (claim, left) = writer.claim().unwrap();
        let frame = left.unwrap_or_else(|| {
            self.frames.fetch_add(1, StdOrdering::Relaxed);
            Frame { words: [Word::new(), Word::new()], live: self.frames.clone() }
        });
        frame.fill(sequence);
        let published = writer.publish(claim, frame);
        assert_eq!(published.sequence, sequence);
        published.retired
    }

    /// Claims a slot, gives its memory away, and gives it back.
    pub fn abandon(&self, writer: &mut Publishing) {
        let (claim, left) = writer.claim().unwrap();
        drop(left);
        writer.abandon(claim);
    }

    /// Looks at the latest publication and says which it was.
    pub fn visit(&self, pool: &Arc<Frames>) -> u64 {
        pool.read().map_or(0, |visit| {
            visit.content().check(visit.sequence());
            visit.sequence()
        })
    }

    pub fn lease(&self, pool: &Arc<Frames>) -> Option<(u64, Lease<Frame, Kept>)> {
        pool.read().map(|visit| (visit.sequence(), visit.lease(pool)))
    }

    /// Uses the object of the latest publication, after making it if there is none.
    pub fn object(&self, pool: &Arc<Frames>, with_lease: bool) {
        let Some(visit) = pool.read() else { return };
        self.use_object(&visit, pool, with_lease);
        visit.content().check(visit.sequence());
        drop(visit.leave());
    }

    fn use_object(&self, visit: &Visit<'_, Frame, Kept>, pool: &Arc<Frames>, with_lease: bool) {
        let kept = visit.view();
        kept.alone.get();
        let mut found = kept.object.load(Ordering::Acquire);
        if found.is_null() {
            let made = std::sync::Arc::new(Object {
                sequence: visit.sequence(),
                life: Word::new(),
                taken: Count::new(0),
                lease: StdMutex::new(with_lease.then(|| visit.lease(pool))),
            });
            made.life.set(1);
            let raw = std::sync::Arc::into_raw(made.clone()).cast_mut();
            let null = std::ptr::null_mut();
            match kept.object.compare_exchange(null, raw, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    found = raw;
                    let before = self.objects.lock().unwrap().insert(visit.sequence(), made);
                    assert!(before.is_none(), "two objects of one publication");
                }
                Err(first) => {
                    found = first;
                    // SAFETY: from `into_raw` just above.
                    let unused = Taken(unsafe { std::sync::Arc::from_raw(raw) });
                    drop((unused, made));
                }
            }
        }
        // SAFETY: kept for the visit, which is what the model is to show; were it not so, `objects` still has it.
        let object = unsafe { &*found };
        assert_eq!(object.sequence, visit.sequence(), "the object of another publication");
        assert_eq!(object.life.get(), 1, "used after it was taken");
    }

    /// To be called when all other threads are gone. All that was held must have come back.
    pub fn end(&self, pool: Arc<Frames>, mut writer: Publishing) {
        // As the next reader would.
        if pool.has_unreaped() {
            pool.reap_rest(drop);
        }
        let latest = pool.latest_sequence();
        for (&sequence, object) in &*self.objects.lock().unwrap() {
            let taken = object.taken.load(StdOrdering::Relaxed);
            assert_eq!(
                taken,
                usize::from(sequence != latest),
                "the object of publication {sequence} was kept"
            );
        }
        let occupancy = pool.occupancy();
        assert_eq!(occupancy.leased, usize::from(latest != 0), "a lease was lost");
        assert_eq!(occupancy.contents, self.frames.load(StdOrdering::Relaxed), "frames are miscounted");
        // No slot is lost: all that are not held can be claimed.
        let claims: Vec<_> = (occupancy.leased..occupancy.slots)
            .map(|_| writer.claim().unwrap())
            .map(|(claim, _)| claim)
            .collect();
        assert_eq!(pool.occupancy().slots, occupancy.slots, "a slot cannot be used again");
        claims.into_iter().for_each(|claim| writer.abandon(claim));

        drop(writer);
        for object in self.objects.lock().unwrap().values() {
            assert_eq!(object.taken.load(StdOrdering::Relaxed), 1, "an object was never given up");
        }
        drop(pool);
        assert_eq!(self.frames.load(StdOrdering::Relaxed), 0, "a frame was never given up");
    }

    /// Frames there are.
    pub fn frames(&self) -> usize {
        self.frames.load(StdOrdering::Relaxed)
    }
}
