//! Work that is shared with threads which may come late.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// The processors, asked for once: that takes longer than decoding a packet.
pub fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Whoever asked waits for what is being worked at, and not for a thread that has not begun: on a busy machine that may
/// take longer than the work. It finds nothing to do, later, and ends.
struct Shared<W, R> {
    state: Mutex<State<W, R>>,
    /// Told when nobody is at work.
    idle: Condvar,
}

struct State<W, R> {
    /// Gone once it is done.
    work: Option<Arc<W>>,
    next: usize,
    busy: usize,
    found: Vec<Option<R>>,
}

/// What `work` makes of each number below `count`, found by up to `threads` threads, this one among them. Each has a
/// scratch of its own. `None` where it panics.
pub fn shared<S, R, W>(count: usize, threads: usize, work: W) -> Vec<Option<R>>
where
    S: Default,
    R: Send + 'static,
    W: Fn(usize, &mut S) -> R + Send + Sync + 'static,
{
    let mut found = Vec::new();
    found.resize_with(count, || None);
    let state = State { work: Some(Arc::new(work)), next: 0, busy: 0, found };
    let shared = Arc::new(Shared { state: Mutex::new(state), idle: Condvar::new() });
    for _ in 1..threads.min(count) {
        let shared = Arc::clone(&shared);
        // Without a thread, the work is done here.
        if std::thread::Builder::new().spawn(move || shared.take_part::<S>()).is_err() {
            break;
        }
    }
    shared.take_part::<S>();
    let state = shared.idle.wait_while(shared.lock(), |state| state.busy > 0);
    let mut state = state.unwrap_or_else(PoisonError::into_inner);
    let (found, work) = (std::mem::take(&mut state.found), state.work.take());
    drop(state);
    drop(work);
    found
}

impl<W, R> Shared<W, R> {
    fn lock(&self) -> MutexGuard<'_, State<W, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_part<S: Default>(&self)
    where
        W: Fn(usize, &mut S) -> R,
    {
        let mut state = self.lock();
        let Some(work) = state.work.clone() else { return };
        state.busy += 1;
        let mut scratch = S::default();
        while state.next < state.found.len() {
            let number = state.next;
            state.next += 1;
            drop(state);
            let found = catch_unwind(AssertUnwindSafe(|| work(number, &mut scratch))).ok();
            state = self.lock();
            state.found[number] = found;
        }
        // Before it is said: the last one is dropped by whoever asked.
        drop(work);
        state.busy -= 1;
        if state.busy == 0 {
            self.idle.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_done_once_and_the_work_is_let_go() {
        for threads in 1..5 {
            for count in [0, 1, 2, 100] {
                let held = Arc::new(7);
                let work = {
                    let held = Arc::clone(&held);
                    move |number: usize, calls: &mut usize| {
                        *calls += 1;
                        number * *held + usize::from(*calls == 0)
                    }
                };
                let found = shared(count, threads, work);
                assert_eq!(found, (0..count).map(|number| Some(7 * number)).collect::<Vec<_>>());
                assert_eq!(Arc::strong_count(&held), 1);
            }
        }
    }

    #[test]
    fn what_panics_is_none() {
        let found = shared(3, 2, |number: usize, _: &mut ()| {
            assert_ne!(number, 1, "meant to panic");
            number
        });
        assert_eq!(found, [Some(0), None, Some(2)]);
    }
}
