//! Waiting for a publication, at the cost of one load for a publisher whom nobody waits for.
//!
//! A waiter first counts itself, then looks, then sleeps. The publisher first publishes, then looks for
//! waiters. Both use `SeqCst` for these, so at least one of them sees the other: either the publisher rings,
//! or the waiter finds the publication. Looking and falling asleep are one step under the mutex that the
//! ringing thread takes as well, so it cannot ring in between.
//!
//! Who cannot sleep here (an event loop, a task) leaves a [`Waker`] instead: it arms it, then looks, then
//! goes about its business. An armed waker is counted like a waiter, so the same holds: either the publisher
//! rings, or the look after arming finds the publication. The count is raised under the mutex, after the
//! waker was put on the list; a publisher that sees the count and takes the mutex therefore finds the waker
//! there. Ringing takes all wakers off the list and out of the count and wakes each once. A publisher that
//! goes on publishing pays no more than the load until somebody, having looked at what there is, arms again.

use super::sync::{AtomicUsize, Condvar, Mutex, Ordering};
use std::sync::PoisonError;
use std::task::Waker;
use std::time::Instant;

/// Where waiters sleep, and where wakers are left.
pub struct Bell {
    /// Threads in `wait`, and armed wakers.
    waiters: AtomicUsize,
    /// The armed wakers. The mutex is also what sleepers sleep on.
    asleep: Mutex<Vec<Waker>>,
    rung: Condvar,
}

impl Default for Bell {
    fn default() -> Self {
        Self { waiters: AtomicUsize::new(0), asleep: Mutex::new(Vec::new()), rung: Condvar::new() }
    }
}

impl Bell {
    /// Wakes all waiters. Called after what they wait for was stored with `SeqCst`.
    #[inline]
    pub fn ring(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.ring_for_somebody();
        }
    }

    /// Threads in `wait` and armed wakers; while there are none, ringing is one load.
    pub fn waiters(&self) -> usize {
        self.waiters.load(Ordering::Relaxed)
    }

    #[cold]
    fn ring_for_somebody(&self) {
        // Waits for those who have looked and are not asleep yet. Nothing under this mutex can panic.
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if asleep.is_empty() {
            drop(asleep);
            self.rung.notify_all();
            return;
        }
        let mut armed = std::mem::take(&mut *asleep);
        let sleepers = self.waiters.fetch_sub(armed.len(), Ordering::Relaxed) - armed.len();
        drop(asleep);
        // A sleeper that counts itself only after this does so after the load in `ring` too, and finds what
        // was published.
        if sleepers > 0 {
            self.rung.notify_all();
        }
        // Not under the mutex, as a waker may do anything, such as arm again.
        armed.drain(..).for_each(Waker::wake);
        // Gives the list its memory back, so that arming and ringing in turns does not allocate.
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if asleep.capacity() == 0 {
            *asleep = armed;
        }
    }

    /// Has `waker` woken by the next ring, once. What it waits for may have come before this: look
    /// afterwards. Does nothing if it is armed already; wakers are told apart by their data.
    pub fn arm(&self, waker: &Waker) {
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if !asleep.iter().any(|armed| armed.data() == waker.data()) {
            asleep.push(waker.clone());
            self.waiters.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Takes `waker` back. It may still be woken by a ring under way.
    pub fn disarm(&self, waker: &Waker) {
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = asleep.iter().position(|armed| armed.data() == waker.data()) {
            let taken = asleep.swap_remove(place);
            self.waiters.fetch_sub(1, Ordering::Relaxed);
            drop(asleep);
            drop(taken);
        }
    }

    /// Sleeps until `look`, which loads with `SeqCst`, finds something, or until the deadline has passed; it
    /// then looks once more.
    pub fn wait<R>(&self, deadline: Option<Instant>, mut look: impl FnMut() -> Option<R>) -> Option<R> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        let found = loop {
            if let Some(found) = look() {
                break Some(found);
            }
            asleep = match deadline {
                None => self.rung.wait(asleep).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let Some(left) =
                        deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
                    else {
                        break None;
                    };
                    self.rung.wait_timeout(asleep, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        drop(asleep);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        found
    }
}
