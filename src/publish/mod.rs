//! Publication: one writer puts frames up, any number of readers take the latest one.
//!
//! - A *publication* is a frame with its watermark and its sequence number, in a slot of a pool (`pool.rs`, where the
//!   protocol is written down). It is not changed while anybody can see it, so a reader has all of one
//!   publication or none of it. Readers are lock-free and never blocked by the writer; the writer is never
//!   blocked by readers, nor by one that died holding a publication.
//! - The memory of a publication goes back to its slot for use again, from whatever thread lets go of it last. In the
//!   steady state publishing allocates nothing.
//! - Sequence numbers start at 1, rise by one, and do not restart when the latest publication is taken down.
//! - Waiters sleep on a condition variable or leave a waker, and cost the writer one load while there are none
//!   (`wait.rs`).
//! - A frame is made by the writer, or, where the writer only publishes how it is made, by the first reader (`frame.rs`).
//!   Publications that show the same may share a frame. Readers of one frame may wait for each other for that, never for the
//!   writer, nor the writer for them.
//! - What readers make of a publication (the binding's Python object) is kept beside it, so that all its readers get the
//!   same one, and is given up when the publication is not the latest any more.

mod frame;
mod memory;
mod pool;
mod sync;
mod wait;

pub use frame::{Count, Frame, Lazy, Recipe, Shelf};
pub use memory::{Element, Memory, Spec};
pub use pool::{Claim, Lease, MOST_HELD, Occupancy, Pool, Published, Retired, View, Visit, Writer};
pub use wait::Bell;

use self::sync::Arc;
use std::time::Instant;

/// One published frame with what was true when it was made.
pub struct Publication {
    /// The frame.
    pub frame: Frame,
    /// The largest in-bounds timestamp accumulated before; `None` before the first.
    pub watermark: Option<u64>,
}

/// Where publications are read and waited for.
pub struct Publisher<V> {
    pool: Arc<Pool<Publication, V>>,
    bell: Arc<Bell>,
}

impl<V: View> Publisher<V> {
    /// A publisher and its one writer. The memory of up to `keep` publications is kept for use again.
    pub fn new(keep: usize) -> (Self, Writer<Publication, V>) {
        let (pool, writer) = Pool::new(keep);
        (Self { pool, bell: Arc::new(Bell::default()) }, writer)
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool<Publication, V>> {
        &self.pool
    }

    /// Where to leave a waker that is woken by the next publication.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Wakes those who wait; to be called after each publication.
    #[inline]
    pub fn announce(&self) {
        self.bell.ring();
    }

    /// Waits until a publication newer than `sequence` is up (`None`: any) and says whether one is. It is
    /// false only if none is there when `deadline` has passed. Without a deadline it waits for ever.
    pub fn wait_newer(&self, sequence: Option<u64>, deadline: Option<Instant>) -> bool {
        self.has_newer(sequence)
            || self.bell.wait(deadline, || self.has_newer(sequence).then_some(())).is_some()
    }

    /// Whether a publication newer than `sequence` is up (`None`: any).
    #[inline]
    pub fn has_newer(&self, sequence: Option<u64>) -> bool {
        self.pool.latest_sequence() > sequence.unwrap_or(0)
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests;
