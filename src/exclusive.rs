//! A lock for state that calls change one at a time, which tells re-entry from contention and survives a
//! panic.

use crate::error::{Error, Result, panic_text};
use std::cell::Cell as ThreadCell;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};

thread_local! {
    static TOKEN: ThreadCell<u64> = ThreadCell::new(new_token());
}

/// A number that this thread has and no other thread of the process ever had. (The system reuses its own
/// thread ids.)
pub fn thread_token() -> u64 {
    TOKEN.with(ThreadCell::get)
}

/// A number that no thread has.
pub fn new_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(NOBODY + 1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Gives this thread, a new one, a token that was made for it.
pub fn adopt_token(token: u64) {
    TOKEN.set(token);
}

/// The token no thread has.
pub const NOBODY: u64 = 0;

/// State behind a lock.
pub struct Exclusive<T> {
    cell: Mutex<Cell<T>>,
    holder: AtomicU64,
}

/// What the lock protects.
pub struct Cell<T> {
    value: T,
    unusable: bool,
}

impl<T> Exclusive<T> {
    /// Puts `value` behind a lock.
    pub fn new(value: T) -> Self {
        Self { cell: Mutex::new(Cell { value, unusable: false }), holder: AtomicU64::new(NOBODY) }
    }

    /// Takes the lock with `lock`, which may first let go of something that its holder needs. `call` says
    /// what for.
    ///
    /// Fails at once where the thread holds it already, which would otherwise wait for itself.
    pub fn hold<'a>(
        &'a self,
        call: &'static str,
        lock: impl FnOnce(&'a Mutex<Cell<T>>) -> LockResult<MutexGuard<'a, Cell<T>>>,
    ) -> Result<Held<'a, T>> {
        let me = thread_token();
        // Only this thread stores this value, so it reads it if and only if it holds the lock.
        if self.holder.load(Ordering::Relaxed) == me {
            return Err(Error::Reentered(call));
        }
        let cell = lock(&self.cell).unwrap_or_else(PoisonError::into_inner);
        if cell.unusable {
            return Err(Error::Poisoned);
        }
        self.holder.store(me, Ordering::Relaxed);
        Ok(Held { cell, holder: &self.holder })
    }
}

/// The lock, held.
pub struct Held<'a, T> {
    cell: MutexGuard<'a, Cell<T>>,
    holder: &'a AtomicU64,
}

impl<T> Held<'_, T> {
    /// Turns a panic of `work` into an error, after which the state can no longer be had.
    pub fn guarded<R>(&mut self, work: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        catch_unwind(AssertUnwindSafe(|| work(&mut self.cell.value))).unwrap_or_else(|payload| {
            self.cell.unusable = true;
            Err(Error::Panicked(panic_text(&*payload)))
        })
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.cell.value
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.cell.value
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // Before the guard, a field, is dropped: the next holder stores its own token after this.
        self.holder.store(NOBODY, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn tokens_are_never_reused() {
        let tokens: Vec<_> = (0..64).map(|_| thread::spawn(thread_token).join().unwrap()).collect();
        let mut unique = tokens.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), tokens.len());
    }

    #[test]
    fn a_thread_that_holds_it_is_refused_and_others_wait() {
        let state = Exclusive::new(0);
        let held = state.hold("outer", Mutex::lock).unwrap();
        assert!(matches!(state.hold("inner", Mutex::lock), Err(Error::Reentered("inner"))));
        drop(held);
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..1000).for_each(|_| *state.hold("add", Mutex::lock).unwrap() += 1));
            }
        });
        assert_eq!(*state.hold("read", Mutex::lock).unwrap(), 4000);
    }

    #[test]
    fn a_panic_is_an_error_and_the_state_is_gone() {
        let state = Exclusive::new(0);
        let error = state.hold("x", Mutex::lock).unwrap().guarded::<()>(|_| panic!("no {}", 1)).unwrap_err();
        assert!(matches!(&error, Error::Panicked(text) if text == "no 1"), "{error}");
        assert!(matches!(state.hold("x", Mutex::lock), Err(Error::Poisoned)));
    }
}
