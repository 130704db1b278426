//! Publication: one writer puts a frame up, any number of readers take the latest one.
//!
//! # Protocol
//!
//! - A *publication* is a sealed frame, its watermark and its sequence number, in one allocation that is never
//!   changed once it can be seen. So a reader has all of one publication or none of it.
//! - `latest` holds the current one behind a mutex that is held for the copy or the exchange of one pointer, and for
//!   nothing else: no accumulation, no allocation, no freeing, no Python. The writer fills frames outside of
//!   it, so what a reader can meet there is another reader or a writer exchanging a pointer, never a writer
//!   at work.
//! - Sequence numbers start at 1, rise by one, and do not restart when `latest` is taken down.
//! - Waiters sleep on a condition variable of that mutex. The writer counts them and wakes only when there are any;
//!   it exchanges the pointer under the mutex first, so a waiter that looked before goes to sleep before the
//!   wake-up.
//! - What readers make of a publication (the binding's Python object) is kept in the publication's `view`, so that
//!   all its readers get the same one. It must not hold the publication itself, only its frame: there is no
//!   cycle.

mod frame;

pub use frame::{Element, Frame, Memory, Pool, Spec};

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// One published frame with what was true when it was made.
pub struct Publication<V> {
    /// The frame.
    pub frame: Arc<Frame>,
    /// The largest in-bounds timestamp accumulated before; `None` before the first.
    pub watermark: Option<u64>,
    /// Its number: 1 for the first, rising by one.
    pub sequence: u64,
    /// What readers made of it, shared by all of them.
    pub view: V,
}

struct Board<V> {
    latest: Option<Arc<Publication<V>>>,
    sequence: u64,
    waiters: usize,
}

/// Where publications are put up and read.
pub struct Publisher<V> {
    board: Mutex<Board<V>>,
    newer: Condvar,
}

impl<V: Default> Default for Publisher<V> {
    fn default() -> Self {
        Self { board: Mutex::new(Board { latest: None, sequence: 0, waiters: 0 }), newer: Condvar::new() }
    }
}

impl<V: Default> Publisher<V> {
    fn board(&self) -> MutexGuard<'_, Board<V>> {
        // Nothing that runs under this mutex can panic, so a poisoned one is as good as any.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a frame up and returns what was there before, so that the caller chooses where it is dropped.
    pub fn publish(&self, frame: Arc<Frame>, watermark: Option<u64>) -> Option<Arc<Publication<V>>> {
        let mut publication = Publication { frame, watermark, sequence: 0, view: V::default() };
        // The one writer is serialised by its caller, so the number read here is still the last one below.
        publication.sequence = self.board().sequence + 1;
        let sequence = publication.sequence;
        let publication = Arc::new(publication);
        let mut board = self.board();
        let before = board.latest.replace(publication);
        board.sequence = sequence;
        let wake = board.waiters > 0;
        drop(board);
        if wake {
            self.newer.notify_all();
        }
        before
    }

    /// The latest publication, if one is up.
    pub fn read(&self) -> Option<Arc<Publication<V>>> {
        self.board().latest.clone()
    }

    /// Takes the latest publication down and returns it. Waiters sleep on.
    pub fn reset(&self) -> Option<Arc<Publication<V>>> {
        self.board().latest.take()
    }

    /// Waits until a publication newer than `sequence` is up (`None`: any) and returns the latest, or `None`
    /// if there is none when `deadline` has passed. Without a deadline it waits for ever.
    pub fn wait_newer(
        &self,
        sequence: Option<u64>,
        deadline: Option<Instant>,
    ) -> Option<Arc<Publication<V>>> {
        let mut board = self.board();
        loop {
            if let Some(latest) = &board.latest
                && sequence.is_none_or(|s| latest.sequence > s)
            {
                return Some(Arc::clone(latest));
            }
            let left = match deadline {
                None => None,
                Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => Some(left),
                    _ => return None,
                },
            };
            board.waiters += 1;
            board = match left {
                None => self.newer.wait(board).unwrap_or_else(PoisonError::into_inner),
                Some(left) => self.newer.wait_timeout(board, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            board.waiters -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    fn publish(publisher: &Publisher<()>, pool: &Arc<Pool>, value: u8) {
        let mut memory = pool.take().unwrap();
        memory.bytes_mut().fill(value);
        publisher.publish(pool.seal(memory), Some(u64::from(value)));
    }

    #[test]
    fn numbers_rise_across_a_reset() {
        let (publisher, pool) = (Publisher::<()>::default(), Pool::new(Some(8)));
        assert!(publisher.read().is_none());
        publish(&publisher, &pool, 1);
        publish(&publisher, &pool, 2);
        assert_eq!(publisher.read().unwrap().sequence, 2);
        publisher.reset();
        assert!(publisher.read().is_none());
        publish(&publisher, &pool, 3);
        assert_eq!(publisher.read().unwrap().sequence, 3);
    }

    #[test]
    fn what_is_newer_already_is_returned_at_once() {
        let (publisher, pool) = (Publisher::<()>::default(), Pool::new(Some(8)));
        assert!(publisher.wait_newer(None, Some(Instant::now())).is_none());
        publish(&publisher, &pool, 1);
        assert_eq!(publisher.wait_newer(None, None).unwrap().sequence, 1);
        assert_eq!(publisher.wait_newer(Some(0), None).unwrap().sequence, 1);
        assert!(publisher.wait_newer(Some(1), Some(Instant::now())).is_none());
    }

    #[test]
    fn waiters_get_the_latest_and_no_torn_frame() {
        let (publisher, pool) = (Arc::new(Publisher::<()>::default()), Pool::new(Some(4096)));
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let publisher = Arc::clone(&publisher);
                thread::spawn(move || {
                    let mut last = 0;
                    while last < 200 {
                        let p = publisher.wait_newer(Some(last), None).unwrap();
                        assert!(p.sequence > last);
                        last = p.sequence;
                        assert!(p.frame.bytes().iter().all(|&b| u64::from(b) == p.watermark.unwrap()));
                    }
                })
            })
            .collect();
        for i in 1..=200 {
            publish(&publisher, &pool, i);
            if i % 16 == 0 {
                thread::sleep(Duration::from_micros(200));
            }
        }
        for reader in readers {
            reader.join().unwrap();
        }
    }
}
