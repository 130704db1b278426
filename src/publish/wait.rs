//! Waiting for a publication, at the cost of one load for a publisher whom nobody waits for.
//!
//! A waiter first counts itself, then looks, then sleeps. The publisher first publishes, then looks for
//! waiters. Both use `SeqCst` for these, so at least one of them sees the other: either the publisher rings,
//! or the waiter finds the publication. Looking and falling asleep are one step under the mutex that the
//! ringing thread takes as well, so it cannot ring in between.

use super::sync::{AtomicUsize, Condvar, Mutex, Ordering};
use std::sync::PoisonError;
use std::time::Instant;

/// Where waiters sleep.
pub struct Bell {
    waiters: AtomicUsize,
    asleep: Mutex<()>,
    rung: Condvar,
}

impl Default for Bell {
    fn default() -> Self {
        Self { waiters: AtomicUsize::new(0), asleep: Mutex::new(()), rung: Condvar::new() }
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

    #[cold]
    fn ring_for_somebody(&self) {
        // Waits for those who have looked and are not asleep yet. Nothing under this mutex can panic.
        drop(self.asleep.lock().unwrap_or_else(PoisonError::into_inner));
        self.rung.notify_all();
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
