//! The slot pool: where publications live, and who may touch what.
//!
//! # States
//!
//! A slot is a place for one publication. All that decides who may touch it is in one 64-bit word, `state`:
//!
//! | part | meaning |
//! | --- | --- |
//! | leases (32 bits) | holders that may stay: the board (the publication is the latest), frames in readers' hands |
//! | visitors (30 bits) | readers on their way in, who look at the slot for a moment |
//! | `RETIRED` | the publication was the latest and is not any more |
//! | `CLOSED` | one thread has the slot for itself |
//!
//! ```text
//!            acquire                publish                 retire              last lease or visitor gone
//!   free ──────────────► closed ──────────────► latest ──────────────► retired ──────────────► free
//!   0, or RETIRED        CLOSED                 1 + leases             RETIRED + leases        RETIRED
//! ```
//!
//! # Paths
//!
//! - **Writer** (one at a time): closes a free slot by compare-and-swap, fills it, opens it with a lease for the board,
//!   puts its number and sequence up in `latest`, and retires the slot that was there: gives its lease back
//!   and marks it.
//! - **Reader**: loads `latest`, adds itself as a visitor of that slot, and stays if the slot is neither closed
//!   nor retired and still holds the sequence that it read; otherwise it leaves and starts again. It starts
//!   again only if the writer published something newer meanwhile, so some thread always gets on; and it never
//!   waits for anybody.
//! - **Lease**: a visitor that wants to keep the publication adds a lease, then leaves. Leases are given back by
//!   subtracting one, on any thread.
//! - **Reap**: a slot also keeps what readers made of its publication (`view`), which may itself hold a lease. It is
//!   taken out when the publication is no longer the latest: by whoever finds the slot retired and without
//!   visitors, and closes it for that. A visitor may thus use the view without a count of its own. Nobody stays
//!   in a retired slot who was not there before, so a publication has one view in its life.
//!
//! Slots are freed with the pool only, so a late visitor of a slot that was used again touches valid memory,
//! sees another sequence, and leaves. While it is there the slot cannot be closed, but it does not look at
//! the content.
//!
//! # Orderings
//!
//! Everything rests on `state`. Closing acquires, and giving back (a lease, a visit, an open) releases, so
//! the thread that closes a slot has seen all that others did there. Opening releases and visiting acquires,
//! so a visitor sees the content, `generation` included. `state` is only ever changed by read-modify-write
//! operations: a plain store would undo the visitors that came meanwhile. Retiring and `latest` release as well, so
//! that who is turned away finds another `latest`. The store of `latest` is `SeqCst` for the sake of waiters,
//! see `wait.rs`. `docs/protocol.md` has each of these with what shows that it is needed.
//!
//! This file is allowed `unsafe`: it shares cells.
#![allow(unsafe_code)]

use super::sync::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, FIRST_CHUNK, OnceLock, Ordering, UnsafeCell, fence,
};
use std::mem::ManuallyDrop;

const LEASE: u64 = 1;
const VISITOR: u64 = 1 << 32;
const VISITORS: u64 = ((1 << 30) - 1) << 32;
const RETIRED: u64 = 1 << 62;
const CLOSED: u64 = 1 << 63;

/// Bits of `latest` that say which slot.
const INDEX_BITS: u32 = 20;
/// Slots there can be; that many publications can be held at a time.
pub const MOST_HELD: usize = 1 << INDEX_BITS;
/// The largest sequence number: at a million publications a second it takes half a year.
const LAST_SEQUENCE: u64 = (1 << (64 - INDEX_BITS)) - 1;

/// Each chunk has twice as many slots as the one before.
const CHUNKS: usize = (INDEX_BITS - FIRST_CHUNK.trailing_zeros()) as usize;

/// What readers keep with a publication.
pub trait View: Default + Send + Sync {
    /// What is left of it.
    type Taken;
    /// Empties it. Only called by a thread that has the slot for itself.
    fn take(&self) -> Option<Self::Taken>;
}

impl View for () {
    type Taken = ();
    fn take(&self) -> Option<()> {
        None
    }
}

/// A content together with its sequence number.
struct Slot<T, V> {
    state: AtomicU64,
    /// The sequence number of the content. Written by the one that closed the slot.
    generation: AtomicU64,
    /// Written by the one that closed the slot, read by visitors and leases.
    content: UnsafeCell<Option<T>>,
    view: V,
}

/// Slots in different cache lines (of two, as they are fetched in pairs), as different threads use them.
#[repr(align(128))]
struct Padded<T>(T);

type Slots<T, V> = Box<[Padded<Slot<T, V>>]>;

fn make_slots<T, V: View>(count: usize) -> Slots<T, V> {
    (0..count)
        .map(|_| {
            Padded(Slot {
                state: AtomicU64::new(0),
                generation: AtomicU64::new(0),
                content: UnsafeCell::new(None),
                view: V::default(),
            })
        })
        .collect()
}

/// Slots, and which of them holds the latest publication.
pub struct Pool<T, V> {
    /// `sequence << INDEX_BITS | slot`; 0 is none.
    latest: AtomicU64,
    first: Slots<T, V>,
    more: [OnceLock<Slots<T, V>>; CHUNKS],
    /// Slots in use so far.
    count: AtomicUsize,
    /// Slots from this one on give their content away when they are free. All do once the writer is gone.
    keep: AtomicUsize,
    /// No slot before this one is free, but for those being given back right now.
    first_free: AtomicUsize,
    /// Some slot was retired whose view could not be taken out at once.
    unreaped: AtomicBool,
    /// Slots that have a content, and claims. Only for information.
    contents: AtomicUsize,
}

// SAFETY: the content is shared by `&T` (so `T: Sync`) and made and dropped by any thread (so `T: Send`). The
// protocol above sees to it that nobody else looks while it is written.
unsafe impl<T: Send + Sync, V: Send + Sync> Sync for Pool<T, V> {}

/// What a pool holds at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Slots that were ever needed at a time.
    pub slots: usize,
    /// Slots whose content somebody holds, the board included.
    pub leased: usize,
    /// Those of them whose content goes with its last holder.
    pub one_off: usize,
    /// Slots that have a content, held or not, or are claimed to be given one.
    pub contents: usize,
}

impl<T, V: View> Pool<T, V> {
    /// A pool and its one writer. Up to `keep` contents are kept for use again.
    pub fn new(keep: usize) -> (Arc<Self>, Writer<T, V>) {
        let pool = Arc::new(Self {
            latest: AtomicU64::new(0),
            first: make_slots(FIRST_CHUNK),
            more: std::array::from_fn(|_| OnceLock::new()),
            count: AtomicUsize::new(0),
            keep: AtomicUsize::new(keep),
            first_free: AtomicUsize::new(0),
            unreaped: AtomicBool::new(false),
            contents: AtomicUsize::new(0),
        });
        let writer = Writer { pool: Arc::clone(&pool), board: None, sequence: 0 };
        (pool, writer)
    }

    #[inline]
    fn slot(&self, index: usize) -> &Slot<T, V> {
        if index < FIRST_CHUNK { &self.first[index].0 } else { self.slot_in_later_chunk(index) }
    }

    fn slot_in_later_chunk(&self, index: usize) -> &Slot<T, V> {
        let chunk = (index / FIRST_CHUNK + 1).ilog2();
        let start = FIRST_CHUNK * ((1 << chunk) - 1);
        let slots = self.more[chunk as usize - 1].get_or_init(|| make_slots(FIRST_CHUNK << chunk));
        &slots[index - start].0
    }

    /// The sequence number of the latest publication; 0 if none is up.
    #[inline]
    pub fn latest_sequence(&self) -> u64 {
        self.latest.load(Ordering::SeqCst) >> INDEX_BITS
    }

    /// Visits the latest publication.
    #[inline]
    pub fn read(&self) -> Option<Visit<'_, T, V>> {
        let mut missed = 0;
        loop {
            let latest = self.latest.load(Ordering::Acquire);
            if latest == 0 {
                return None;
            }
            debug_assert_ne!(latest, missed, "a reader starts again only for something newer");
            missed = latest;
            let (sequence, index) = (latest >> INDEX_BITS, latest as usize % MOST_HELD);
            let slot = self.slot(index);
            let before = slot.state.fetch_add(VISITOR, Ordering::Acquire);
            if before & (CLOSED | RETIRED) == 0 && slot.generation.load(Ordering::Relaxed) == sequence {
                return Some(Visit { pool: self, slot, index, sequence });
            }
            self.give_back(slot, index, VISITOR);
        }
    }

    /// Gives a visit or a lease back.
    #[inline]
    fn give_back(&self, slot: &Slot<T, V>, index: usize, what: u64) -> u64 {
        let before = slot.state.fetch_sub(what, Ordering::Release);
        if before & !RETIRED == what {
            self.freed(slot, index);
        }
        before
    }

    /// After a slot was left by all.
    fn freed(&self, slot: &Slot<T, V>, index: usize) {
        // Against the fence in `Writer::drop`: either this finds that nothing is kept, or that finds the slot free.
        fence(Ordering::SeqCst);
        if index >= self.keep.load(Ordering::Relaxed) {
            self.discard(slot);
        }
        self.first_free.fetch_min(index, Ordering::Release);
    }

    #[cold]
    fn discard(&self, slot: &Slot<T, V>) {
        // Acquire: what others did with the content is over before it is dropped.
        if slot.state.compare_exchange(RETIRED, CLOSED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            // SAFETY: the slot is closed, by this thread: no lease, no visitor inside, no writer.
            let content = slot.content.with_mut(|content| unsafe { (*content).take() });
            // Who read this slot's number in `latest` long ago would otherwise find the sequence and no content.
            slot.generation.store(0, Ordering::Relaxed);
            slot.state.fetch_and(!CLOSED, Ordering::Release);
            self.contents.fetch_sub(usize::from(content.is_some()), Ordering::Relaxed);
            drop(content);
        }
    }

    /// Takes the view out of a retired slot. `None` if it is not to be had now: it will be found by
    /// `reap_rest`.
    fn reap(&self, index: usize) -> Option<V::Taken> {
        let slot = self.slot(index);
        let mut state = slot.state.load(Ordering::Relaxed);
        loop {
            if state & RETIRED == 0 || state & CLOSED != 0 {
                // Not retired: somebody reaped it and it is in use again. Closed: somebody is at it.
                return None;
            }
            if state & VISITORS != 0 {
                self.leave_unreaped();
                return None;
            }
            match slot.state.compare_exchange_weak(
                state,
                state | CLOSED,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        let taken = slot.view.take();
        if slot.state.fetch_and(!CLOSED, Ordering::Release) == CLOSED | RETIRED {
            // The last lease was given back before or meanwhile, and whoever did that may have found the slot closed.
            self.freed(slot, index);
        }
        taken
    }

    /// Says that a retired slot still has its view.
    fn leave_unreaped(&self) {
        // Whoever clears this sees the slot as retired. A swap, as a store would cut off what others released
        // here before.
        self.unreaped.swap(true, Ordering::Release);
    }

    /// Whether views are left to be taken out.
    #[inline]
    pub fn has_unreaped(&self) -> bool {
        self.unreaped.load(Ordering::Relaxed)
    }

    /// Takes out all views that retired slots still have, and hands them to `f`.
    #[cold]
    pub fn reap_rest(&self, mut f: impl FnMut(V::Taken)) {
        if self.unreaped.swap(false, Ordering::Acquire) {
            for index in 0..self.count.load(Ordering::Relaxed) {
                if let Some(taken) = self.reap(index) {
                    f(taken);
                }
            }
        }
    }

    /// What is held now. Counted while others go on, so only as exact as that allows.
    pub fn occupancy(&self) -> Occupancy {
        let slots = self.count.load(Ordering::Relaxed);
        let is_leased = |&index: &usize| self.slot(index).state.load(Ordering::Relaxed) & (VISITOR - 1) != 0;
        Occupancy {
            slots,
            leased: (0..slots).filter(is_leased).count(),
            one_off: (self.keep.load(Ordering::Relaxed)..slots).filter(is_leased).count(),
            contents: self.contents.load(Ordering::Relaxed),
        }
    }
}

/// A look at a publication. The slot cannot be used again while it lasts; it should be short, or no longer than it takes
/// to make a frame.
pub struct Visit<'a, T, V: View> {
    pool: &'a Pool<T, V>,
    slot: &'a Slot<T, V>,
    index: usize,
    sequence: u64,
}

impl<T, V: View> Visit<'_, T, V> {
    /// The publication's number.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The publication.
    pub fn content(&self) -> &T {
        // SAFETY: not closed when this visitor came in, and not to be closed for writing before it leaves:
        // nobody writes.
        self.slot
            .content
            .with(|content| unsafe { (*content).as_ref() })
            .expect("a published slot has a content")
    }

    /// What readers keep with it.
    pub fn view(&self) -> &V {
        &self.slot.view
    }

    /// Holds on to the publication. `pool` is the one that is visited.
    pub fn lease(&self, pool: &Arc<Pool<T, V>>) -> Lease<T, V> {
        assert!(std::ptr::eq(&**pool, self.pool), "a lease is of the pool that is visited");
        // Relaxed: the visit keeps the slot open meanwhile.
        self.slot.state.fetch_add(LEASE, Ordering::Relaxed);
        Lease { pool: Arc::clone(pool), index: self.index }
    }

    /// Ends the visit. Takes the view out if the publication was retired meanwhile.
    pub fn leave(self) -> Option<V::Taken> {
        let visit = ManuallyDrop::new(self);
        let before = visit.pool.give_back(visit.slot, visit.index, VISITOR);
        if before & RETIRED != 0 { visit.pool.reap(visit.index) } else { None }
    }
}

impl<T, V: View> Drop for Visit<'_, T, V> {
    fn drop(&mut self) {
        self.pool.give_back(self.slot, self.index, VISITOR);
    }
}

/// A share of a publication, for as long as one likes, on any thread.
pub struct Lease<T, V: View> {
    pool: Arc<Pool<T, V>>,
    index: usize,
}

impl<T, V: View> std::ops::Deref for Lease<T, V> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a leased slot is closed for the view only, never for its content.
        let content = self.pool.slot(self.index).content.with(|content| unsafe { (*content).as_ref() });
        content.expect("a leased slot has a content")
    }
}

impl<T, V: View> Drop for Lease<T, V> {
    fn drop(&mut self) {
        self.pool.give_back(self.pool.slot(self.index), self.index, LEASE);
    }
}

/// The one thread that publishes, or the lock that makes it one.
pub struct Writer<T, V: View> {
    pool: Arc<Pool<T, V>>,
    /// The slot of the latest publication.
    board: Option<usize>,
    sequence: u64,
}

impl<T, V: View> Drop for Writer<T, V> {
    fn drop(&mut self) {
        // A view may hold a lease, and a lease holds the pool: without this both would stay for ever.
        self.reset().leave(&self.pool);
        self.pool.reap_rest(drop);
        // Nothing will be used again. What is held is freed with its last holder, all else now.
        self.pool.keep.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for index in 0..self.pool.count.load(Ordering::Acquire) {
            self.pool.discard(self.pool.slot(index));
        }
    }
}

/// A slot that its writer has for itself.
#[must_use]
pub struct Claim {
    index: usize,
}

impl<T, V: View> Writer<T, V> {
    /// Closes a free slot and hands out what content it was left with. `None` when there can be no more
    /// slots.
    ///
    /// Costs a load per slot in use. It looks from the front, so that few slots are used again and again, and
    /// those behind `keep` can rest.
    pub fn claim(&mut self) -> Option<(Claim, Option<T>)> {
        let count = self.pool.count.load(Ordering::Relaxed);
        // What is given back from here on lowers the mark again. A slot that is being given back may be missed this time.
        let first_free = self.pool.first_free.swap(usize::MAX, Ordering::Acquire);
        for index in first_free..count {
            let slot = self.pool.slot(index);
            let state = slot.state.load(Ordering::Relaxed);
            // Acquire: what others did with the content is over.
            if state & !RETIRED == 0
                && slot.state.compare_exchange(state, CLOSED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                // A view that nobody came to take out.
                drop(slot.view.take());
                // A late visitor must not find the old sequence if the claim is given up.
                slot.generation.store(0, Ordering::Relaxed);
                // SAFETY: the slot is closed, by this thread: no lease, no visitor inside, no other writer.
                let content = slot.content.with_mut(|content| unsafe { (*content).take() });
                self.pool.contents.fetch_add(usize::from(content.is_none()), Ordering::Relaxed);
                self.pool.first_free.fetch_min(index + 1, Ordering::Relaxed);
                return Some((Claim { index }, content));
            }
        }
        if count == MOST_HELD {
            return None;
        }
        let slot = self.pool.slot(count);
        let closed = slot.state.compare_exchange(0, CLOSED, Ordering::Relaxed, Ordering::Relaxed);
        assert!(closed.is_ok(), "a slot that was never published has no visitors");
        self.pool.count.store(count + 1, Ordering::Relaxed);
        self.pool.contents.fetch_add(1, Ordering::Relaxed);
        Some((Claim { index: count }, None))
    }

    /// Puts `content` up as the latest publication and returns its number. What was the latest is retired:
    /// the caller chooses between `reap_last` and leaving that to readers.
    pub fn publish(&mut self, claim: Claim, content: T) -> Published {
        let index = claim.index;
        let sequence = self.sequence + 1;
        assert!(sequence <= LAST_SEQUENCE, "out of sequence numbers");
        self.sequence = sequence;
        let slot = self.pool.slot(index);
        // SAFETY: a claim is a slot that is closed by this writer.
        slot.content.with_mut(|cell| unsafe { *cell = Some(content) });
        slot.generation.store(sequence, Ordering::Relaxed);
        // Opens the slot with a lease for the board, in one step; visitors that came and will leave are not
        // lost.
        slot.state.fetch_sub(CLOSED - LEASE, Ordering::Release);
        self.pool.latest.store(sequence << INDEX_BITS | index as u64, Ordering::SeqCst);
        Published { sequence, retired: self.retire(Some(index)) }
    }

    /// Takes the latest publication down.
    pub fn reset(&mut self) -> Retired {
        // Relaxed: there is nothing to be seen behind it, and nobody waits for it.
        self.pool.latest.store(0, Ordering::Relaxed);
        self.retire(None)
    }

    fn retire(&mut self, board: Option<usize>) -> Retired {
        let before = std::mem::replace(&mut self.board, board);
        if let Some(index) = before {
            let slot = self.pool.slot(index);
            // Marks it first, so that whoever comes in or gives back after this knows. Release: who comes in after
            // this finds another `latest`.
            slot.state.fetch_or(RETIRED, Ordering::Release);
            self.pool.give_back(slot, index, LEASE);
        }
        Retired(before)
    }

    /// Gives a claimed slot back unused.
    pub fn abandon(&mut self, claim: Claim) {
        let slot = self.pool.slot(claim.index);
        self.pool.contents.fetch_sub(1, Ordering::Relaxed);
        slot.state.fetch_and(!CLOSED, Ordering::Release);
        self.pool.first_free.fetch_min(claim.index, Ordering::Relaxed);
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool<T, V>> {
        &self.pool
    }
}

/// A publication that was made.
#[must_use]
pub struct Published {
    /// Its number.
    pub sequence: u64,
    /// The one before it.
    pub retired: Retired,
}

/// A slot that was retired.
#[must_use]
#[derive(Clone, Copy)]
pub struct Retired(Option<usize>);

impl Retired {
    /// Takes its view out, as `Pool::reap_rest` would.
    pub fn reap<T, V: View>(self, pool: &Pool<T, V>) -> Option<V::Taken> {
        self.0.and_then(|index| pool.reap(index))
    }

    /// Leaves its view to the next that calls `Pool::reap_rest`.
    pub fn leave<T, V: View>(self, pool: &Pool<T, V>) {
        if self.0.is_some() {
            pool.leave_unreaped();
        }
    }
}
