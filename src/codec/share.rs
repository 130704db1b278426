//! Work that threads help with, and that is had in order.
//!
//! Whoever has work puts it in a [`Line`] and takes it out done, first come, first served. Helpers are threads that do what
//! waits in the line and end when nothing does; they never wait themselves, so none is left behind. Whoever takes works
//! too, at what comes first and waits, or at something behind it while a helper is at that. It waits for what is being worked at,
//! and not for a thread that has not begun: on a busy machine that may take longer than the work.
//!
//! A process that was forked off has no helpers, and one may have held the lock: there the line is made anew, of the work that
//! was not taken.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// The processors, asked for once: that takes longer than decoding a packet.
pub fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// What a thread can do.
pub trait Work: Send + Sync + 'static {
    /// What comes of it.
    type Found: Default + Send + 'static;
    /// What whoever does it needs meanwhile, and keeps for the next.
    type Scratch: Default + Send + 'static;

    /// Does it. `found` is anything that a `Found` may be, for its memory.
    fn work(&self, found: &mut Self::Found, scratch: &mut Self::Scratch);
}

/// Work in order. A copy has the same work, still to be done.
pub struct Line<W: Work> {
    shared: Arc<Shared<W>>,
    /// What was put in and not taken out.
    held: VecDeque<Arc<W>>,
    process: u32,
}

struct Shared<W: Work> {
    state: Mutex<State<W>>,
    /// Told when something is done that is waited for.
    done: Condvar,
}

struct State<W: Work> {
    /// What was begun, and behind it what waits.
    places: VecDeque<Place<W>>,
    begun: usize,
    /// How much was taken out before.
    taken: u64,
    helpers: usize,
    waited_for: bool,
    /// Those that nobody uses.
    scratch: Vec<W::Scratch>,
}

enum Place<W: Work> {
    Waiting(Arc<W>, W::Found),
    Begun,
    /// `None` if it panicked.
    Done(Option<W::Found>),
}

impl<W: Work> Default for Line<W> {
    fn default() -> Self {
        Self { shared: Arc::default(), held: VecDeque::new(), process: std::process::id() }
    }
}

impl<W: Work> Default for Shared<W> {
    fn default() -> Self {
        let state = State {
            places: VecDeque::new(),
            begun: 0,
            taken: 0,
            helpers: 0,
            waited_for: false,
            scratch: Vec::new(),
        };
        Self { state: Mutex::new(state), done: Condvar::new() }
    }
}

impl<W: Work> Clone for Line<W> {
    fn clone(&self) -> Self {
        let mut copy = Self::default();
        copy.put_again(self.held.iter().cloned());
        copy
    }
}

impl<W: Work> Drop for Line<W> {
    /// Whoever helps ends with what it is at.
    fn drop(&mut self) {
        if self.is_of_this_process() {
            let mut state = self.shared.lock();
            let places = take(&mut state.places);
            state.begun = 0;
            drop(state);
            drop(places);
        }
    }
}

impl<W: Work> Line<W> {
    /// Whether there is no work in it.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How much work is in it.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// How much of it was begun.
    #[cfg(test)]
    pub fn begun(&self) -> usize {
        self.shared.lock().begun
    }

    /// Puts work at the end. `found` is to be had back, with what was found.
    pub fn put(&mut self, work: W, found: W::Found) {
        self.be_of_this_process();
        let work = Arc::new(work);
        self.held.push_back(Arc::clone(&work));
        self.shared.lock().places.push_back(Place::Waiting(work, found));
    }

    /// Has one more thread help, up to `most`, if so much waits for each of them.
    pub fn help(&mut self, most: usize, each: usize) {
        self.be_of_this_process();
        let mut state = self.shared.lock();
        let waiting = state.places.len() - state.begun;
        if state.helpers >= most || waiting < each * (state.helpers + 1) {
            return;
        }
        state.helpers += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        // Without a thread, the work is done by whoever takes it.
        if std::thread::Builder::new().name("frames2py help".into()).spawn(move || shared.help()).is_err() {
            self.shared.lock().helpers -= 1;
        }
    }

    /// Takes out what was put in first, and what was found: `None` if it panicked.
    pub fn take(&mut self) -> Option<(Arc<W>, Option<W::Found>)> {
        self.be_of_this_process();
        let work = self.held.pop_front()?;
        let mut state = self.shared.lock();
        loop {
            if let Some(Place::Done(found)) = state.places.front_mut() {
                let found = found.take();
                state.places.pop_front();
                state.begun -= 1;
                state.taken += 1;
                return Some((work, found));
            }
            state = if state.begun < state.places.len() {
                let mut scratch = state.scratch.pop().unwrap_or_default();
                state = self.shared.do_next(state, &mut scratch);
                state.scratch.push(scratch);
                state
            } else {
                state.waited_for = true;
                self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    fn be_of_this_process(&mut self) {
        if !self.is_of_this_process() {
            // Never let go of: it may be half changed, for ever.
            std::mem::forget(Arc::clone(&self.shared));
            self.shared = Arc::default();
            self.process = std::process::id();
            let held = take(&mut self.held);
            self.put_again(held.into_iter());
        }
    }

    fn put_again(&mut self, held: impl Iterator<Item = Arc<W>>) {
        self.held.extend(held);
        let places = self.held.iter().map(|work| Place::Waiting(Arc::clone(work), W::Found::default()));
        self.shared.lock().places.extend(places);
    }
}

impl<W: Work> Shared<W> {
    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what waits first, if anything does.
    fn do_next<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<W>>,
        scratch: &mut W::Scratch,
    ) -> MutexGuard<'a, State<W>> {
        let begun = state.begun;
        let Some(place) = state.places.get_mut(begun) else { return state };
        let Place::Waiting(work, mut found) = std::mem::replace(place, Place::Begun) else { return state };
        let number = state.taken + begun as u64;
        state.begun += 1;
        drop(state);
        let done = catch_unwind(AssertUnwindSafe(|| work.work(&mut found, scratch)));
        let found = done.is_ok().then_some(found);
        // Before it is said: the last one is dropped by whoever put it in.
        drop(work);
        let mut state = self.lock();
        let place = (number - state.taken) as usize;
        // It is gone if the line is.
        if let Some(place) = state.places.get_mut(place) {
            *place = Place::Done(found);
        }
        if take(&mut state.waited_for) {
            self.done.notify_all();
        }
        state
    }

    /// Does what waits.
    fn help(&self) {
        let mut state = self.lock();
        let mut scratch = state.scratch.pop().unwrap_or_default();
        while state.begun < state.places.len() {
            state = self.do_next(state, &mut scratch);
        }
        state.helpers -= 1;
        state.scratch.push(scratch);
    }
}

/// What `work` makes of each number below `count`, found by up to `threads` threads, this one among them. Each has a
/// scratch of its own. `None` where it panics.
pub fn shared<S, R, W>(count: usize, threads: usize, work: W) -> Vec<Option<R>>
where
    S: Default + Send + 'static,
    R: Send + 'static,
    W: Fn(usize, &mut S) -> R + Send + Sync + 'static,
{
    let (work, mut line) = (Arc::new(work), Line::default());
    for number in 0..count {
        line.put(Numbered { work: Arc::clone(&work), number, types: PhantomData }, None);
    }
    for _ in 1..threads.min(count) {
        line.help(threads - 1, 1);
    }
    // The last one is dropped here.
    std::iter::from_fn(|| line.take()).map(|(_, found)| found.flatten()).collect()
}

struct Numbered<W, S, R> {
    work: Arc<W>,
    number: usize,
    types: PhantomData<fn() -> (S, R)>,
}

impl<S, R, W> Work for Numbered<W, S, R>
where
    S: Default + Send + 'static,
    R: Send + 'static,
    W: Fn(usize, &mut S) -> R + Send + Sync + 'static,
{
    type Found = Option<R>;
    type Scratch = S;

    fn work(&self, found: &mut Option<R>, scratch: &mut S) {
        *found = Some((self.work)(self.number, scratch));
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

    /// Finds its number, and how often its scratch was used before.
    struct Count {
        number: usize,
        _held: Arc<()>,
    }

    impl Work for Count {
        type Found = (usize, usize);
        type Scratch = usize;

        fn work(&self, found: &mut (usize, usize), scratch: &mut usize) {
            assert_ne!(self.number, 13, "meant to panic");
            *found = (self.number, *scratch);
            *scratch += 1;
        }
    }

    fn numbers(line: &mut Line<Count>, count: usize) -> Vec<Option<usize>> {
        let taken = std::iter::from_fn(|| line.take()).take(count);
        taken.map(|(work, found)| (work.number, found).1.map(|found| found.0)).collect()
    }

    fn expected(range: std::ops::Range<usize>) -> Vec<Option<usize>> {
        range.map(|number| Some(number).filter(|&number| number != 13)).collect()
    }

    #[test]
    fn a_line_gives_in_order_what_was_put_in() {
        for helpers in 0..4 {
            let held = Arc::new(());
            let mut line = Line::default();
            for number in 0..40 {
                line.put(Count { number, _held: Arc::clone(&held) }, (0, 0));
                if helpers > 0 {
                    line.help(helpers, 2);
                }
                if number % 4 == 3 {
                    assert_eq!(numbers(&mut line, 2), expected(number / 4 * 2..number / 4 * 2 + 2));
                }
            }
            assert_eq!(line.len(), 20);
            let mut copy = line.clone();
            assert_eq!(numbers(&mut line, 99), expected(20..40));
            assert_eq!(numbers(&mut copy, 99), expected(20..40));
            assert!(line.is_empty() && line.take().is_none());
            // Whoever helped has let go of it.
            drop((line, copy));
            assert_eq!(Arc::strong_count(&held), 1);
        }
    }

    #[test]
    fn a_scratch_is_used_again() {
        let mut line = Line::default();
        let used: Vec<_> = (20..30)
            .map(|number| {
                line.put(Count { number, _held: Arc::default() }, (0, 0));
                line.take().unwrap().1.unwrap().1
            })
            .collect();
        assert_eq!(used, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn threads_help_where_enough_waits_and_end() {
        let mut line = Line::default();
        for number in 0..3 {
            line.help(5, 3);
            assert_eq!(line.shared.lock().helpers, 0);
            line.put(Count { number, _held: Arc::default() }, (0, 0));
        }
        line.help(0, 3);
        assert_eq!(line.shared.lock().helpers, 0);
        line.help(5, 3);
        while line.begun() < 3 || line.shared.lock().helpers > 0 {
            std::thread::yield_now();
        }
        assert_eq!(numbers(&mut line, 99), expected(0..3));
    }

    #[test]
    fn a_line_that_is_dropped_has_its_work_let_go() {
        let held = Arc::new(());
        let mut line = Line::default();
        for number in 0..1000 {
            line.put(Count { number, _held: Arc::clone(&held) }, (0, 0));
        }
        line.help(1, 1);
        let shared = Arc::clone(&line.shared);
        drop(line);
        while shared.lock().helpers > 0 {
            std::thread::yield_now();
        }
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn a_line_of_another_process_is_made_anew() {
        let mut line = Line::default();
        for number in 0..8 {
            line.put(Count { number, _held: Arc::default() }, (0, 0));
        }
        assert_eq!(numbers(&mut line, 3), expected(0..3));
        // As a fork leaves it: somebody who is not there has begun with some of it and holds the lock.
        let shared = Arc::clone(&line.shared);
        let mut state = shared.lock();
        state.places[0] = Place::Begun;
        state.begun = 1;
        line.process = 0;
        assert_eq!(numbers(&mut line, 2), expected(3..5));
        assert_eq!(numbers(&mut line.clone(), 99), expected(5..8));
        line.process = 0;
        drop(line);
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
