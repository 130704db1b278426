//! Playback: a recording into an engine, decoded, accumulated and published on a thread of its own, or decoded on another,
//! [`Ahead`].
//!
//! The thread asks a [`Source`] for events, cuts them into *pieces*, and hands each piece over as one call of the engine's
//! `ingest`. Between pieces it can be paused and stopped. Nothing here knows of Python: what a piece is handed over
//! with is the caller's.
//!
//! # Pace
//!
//! Without a speed a piece is a batch of the source, and goes at once. With one, a piece spans about 5 ms of the time it is
//! played in, and goes when `(M - t0) / speed` has been played: M is the largest timestamp so far, t0 the smallest of the
//! first piece. So a time that steps back goes at once, and nothing drifts. Time does not count while paused.
//!
//! # States
//!
//! ```text
//!            admit                   done
//!   waiting ───────► busy (a piece) ──────► waiting ─ … ─► finished
//! ```
//!
//! `pause` and `stop` only set what `admit` looks at, under the same lock, so a piece that was not admitted when they
//! return is not handed over; [`Playback::wait_idle`] waits for the one that was. The lock is never held while anything
//! else happens.

mod ahead;

pub use ahead::{Ahead, Later};

use crate::codec::{self, More, NATURAL_BATCH, Record, Recording};
use crate::engine::{Engine, Session};
use crate::error::{Error, panic_text};
use crate::event::Events;
use crate::exclusive::{adopt_token, thread_token};
use crate::publish::View;
use std::io::{Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What a piece spans when a recording is paced: short enough for motion to look smooth.
const PIECE: Duration = Duration::from_millis(5);

/// As much as threads usually have: a kernel may be anybody's.
const STACK: usize = 8 << 20;

/// The longest wait, 31 years: a speed near 0 must not overflow.
const FOR_EVER: f64 = 1e18;

/// Where events come from. It is asked by one thread: the playback's, or [`Ahead`]'s.
pub trait Source: Send {
    /// Adds the next events to `batch`, which is empty or was left incomplete by the call before.
    ///
    /// A call that takes long returns [`More::NotYet`] now and then, so that the playback can be stopped.
    ///
    /// # Errors
    /// What is wrong with the recording, once all events before it are in batches.
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<More, codec::Error>;

    /// Starts again from the first event. Only asked of what the playback is told to repeat.
    ///
    /// # Errors
    /// It cannot be read from there.
    fn restart(&mut self) -> Result<(), codec::Error>;
}

/// A file, in batches of some size.
pub struct Batches<R> {
    /// The file.
    pub recording: Recording<R>,
    /// Events in a batch; `None` for as many as suit.
    pub size: Option<usize>,
}

impl<R> Batches<R> {
    /// Asked for several small batches at once, so that a hand-over costs little. Those of some size are cut apart by
    /// [`Options::size`].
    pub fn gathered(mut self) -> Self {
        self.size = Some(gathered(self.size.unwrap_or(NATURAL_BATCH), HANDED_OVER));
        self
    }
}

/// About so many events go from the thread that reads to the one that plays at a time. To wake the other costs as much as
/// accumulating some thousand.
const HANDED_OVER: usize = 64 * 1024;

/// The most events up to `most` that are several batches of `size`; one batch, where that is larger.
pub fn gathered(size: usize, most: usize) -> usize {
    size * (most / size).max(1)
}

impl<R: Read + Seek + Send> Source for Batches<R> {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<More, codec::Error> {
        self.recording.next(batch, self.size)
    }

    fn restart(&mut self) -> Result<(), codec::Error> {
        self.recording.restart()
    }
}

/// How to play.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Times as fast as recorded, finite and above 0; `None` is as fast as possible.
    pub speed: Option<f64>,
    /// Whether to start again at the end.
    pub repeat: bool,
    /// Events in a piece, whatever they span: all but the last of a batch.
    pub size: Option<usize>,
}

/// Why a playback ended early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The recording cannot be read further.
    #[error(transparent)]
    Source(#[from] codec::Error),
    /// The engine refused events, or its kernel failed.
    #[error(transparent)]
    Engine(#[from] Error),
    /// The thread could not be started.
    #[error("a thread to play on cannot be started: {0}")]
    Thread(std::io::Error),
    /// Code of this crate panicked.
    #[error("internal error: {0}; this is a bug in frames2py. The playback has ended")]
    Panicked(String),
}

type Result<T, E = Failure> = std::result::Result<T, E>;

/// What hands a piece over to the engine: [`ingest`], or something that does more. Returns the largest time of the piece, if that
/// came to light.
pub type Ingest<V> = Box<dyn FnMut(&Engine<V>, &[Record]) -> Result<Option<u64>, Error> + Send>;

/// Hands a piece over, without leaving the thread's own world.
pub fn ingest<V: View>(engine: &Engine<V>, piece: &[Record]) -> Result<Option<u64>, Error> {
    let mut session = engine.session("play", Mutex::lock)?;
    let retired = session.ingest(Events::packed(piece.as_flattened()))?;
    let largest = session.largest();
    drop(session);
    if let Some(retired) = retired {
        // What readers made of it is theirs to take down.
        retired.leave(engine.publisher().pool());
    }
    Ok(largest)
}

/// What the lock protects.
struct State {
    stop: bool,
    /// A piece is being handed over, or a failure reported.
    busy: bool,
    finished: bool,
    /// Nobody will ask how it ended.
    abandoned: bool,
    /// Threads that wait for `busy` to end.
    waiting_for_idle: usize,
    paused_at: Option<Instant>,
    /// For how long it was paused before.
    paused_for: Duration,
    failure: Option<Failure>,
}

impl State {
    /// For how long it has been played at `now`.
    fn played(&self, origin: Instant, now: Instant) -> Duration {
        self.paused_at.unwrap_or(now).saturating_duration_since(origin).saturating_sub(self.paused_for)
    }
}

struct Shared {
    state: Mutex<State>,
    /// Rung for the playback's thread.
    control: Condvar,
    idle: Condvar,
    ended: Condvar,
    /// What it did, for those who look without waiting. `NO_POSITION` before the first event.
    position: AtomicU64,
    events: AtomicU64,
    /// Copies of what is in `state`.
    paused: AtomicBool,
    finished: AtomicBool,
    origin: Instant,
    token: u64,
    process: u32,
}

/// No timestamp that an engine takes.
const NO_POSITION: u64 = u64::MAX;

/// A playback as others see it. Cheap to clone.
///
/// A process that was forked off while it played has no such thread: there the playback is finished.
#[derive(Clone)]
pub struct Playback(Arc<Shared>);

/// Starts to play `source` into `engine`, whose lock `session` is.
///
/// `ingest` hands pieces over. `report` is given a failure that nobody is there to ask for any more (see
/// [`Playback::abandon`]).
///
/// # Errors
/// The engine has another producer, or the thread cannot be started. Then `source` was not asked for.
pub fn start<V: View + 'static>(
    engine: &Arc<Engine<V>>,
    session: &mut Session<'_, V>,
    source: impl FnOnce() -> Result<Box<dyn Source>>,
    options: Options,
    mut ingest: Ingest<V>,
    report: impl FnOnce(Failure) + Send + 'static,
) -> Result<Playback> {
    session.begin_playback(|token| {
        let playback = Playback::new(token);
        let (engine, shared) = (Arc::clone(engine), playback.clone());
        let mut source = source()?;
        let work = move || {
            adopt_token(token);
            let played = catch_unwind(AssertUnwindSafe(|| {
                let played =
                    Player { engine: &engine, options, playback: &shared }.run(&mut *source, &mut ingest);
                drop((source, ingest));
                played
            }));
            let played = played.unwrap_or_else(|payload| Err(Failure::Panicked(panic_text(&*payload))));
            // Whoever sees it finished may play again, and finds the file closed and the engine free.
            engine.end_playback();
            drop(engine);
            shared.finish(played, report);
        };
        let thread = thread::Builder::new().name("frames2py play".into()).stack_size(STACK);
        thread.spawn(work).map_err(Failure::Thread)?;
        Ok(playback)
    })
}

impl Playback {
    fn new(token: u64) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State {
                stop: false,
                busy: false,
                finished: false,
                abandoned: false,
                waiting_for_idle: 0,
                paused_at: None,
                paused_for: Duration::ZERO,
                failure: None,
            }),
            control: Condvar::new(),
            idle: Condvar::new(),
            ended: Condvar::new(),
            position: AtomicU64::new(NO_POSITION),
            events: AtomicU64::new(0),
            paused: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            origin: Instant::now(),
            token,
            process: std::process::id(),
        }))
    }

    /// Nothing panics under this lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what `admit` looks at. Nothing to change where it is over or was left behind by a fork.
    fn control(&self, change: impl FnOnce(&mut State)) {
        if !self.is_finished() {
            let mut state = self.state();
            if !state.finished {
                change(&mut state);
                self.0.paused.store(state.paused_at.is_some(), Ordering::Relaxed);
                self.0.control.notify_all();
            }
        }
    }

    /// Hands nothing over any more until `resume`, and stops the clock.
    pub fn pause(&self) {
        self.control(|state| {
            state.paused_at.get_or_insert_with(Instant::now);
        });
    }

    /// Goes on where `pause` stopped.
    pub fn resume(&self) {
        self.control(|state| {
            if let Some(since) = state.paused_at.take() {
                state.paused_for += since.elapsed();
            }
        });
    }

    /// Ends it before the next piece.
    pub fn stop(&self) {
        self.control(|state| state.stop = true);
    }

    /// Whether it has ended. It then holds on to nothing any more.
    pub fn is_finished(&self) -> bool {
        // First, as a lock may have been held when the process was forked.
        self.0.process != std::process::id() || self.0.finished.load(Ordering::Acquire)
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.0.paused.load(Ordering::Relaxed) && !self.is_finished()
    }

    /// The largest timestamp that was handed over since the recording was started, or started again.
    pub fn position(&self) -> Option<u64> {
        Some(self.0.position.load(Ordering::Relaxed)).filter(|&position| position != NO_POSITION)
    }

    /// Events that were handed over.
    pub fn events(&self) -> u64 {
        self.0.events.load(Ordering::Relaxed)
    }

    /// Whether the calling thread is the playback's own, which must not wait for itself.
    pub fn is_own_thread(&self) -> bool {
        thread_token() == self.0.token
    }

    /// Waits until no piece is being handed over, and says whether that is so. Without a deadline it waits for ever.
    pub fn wait_idle(&self, deadline: Option<Instant>) -> bool {
        if self.is_finished() {
            return true;
        }
        let mut state = self.state();
        state.waiting_for_idle += 1;
        let (mut state, idle) = wait_until(&self.0.idle, state, deadline, |state| !state.busy);
        state.waiting_for_idle -= 1;
        idle
    }

    /// Waits until it has ended, and says whether it has. Without a deadline it waits for ever.
    pub fn wait_finished(&self, deadline: Option<Instant>) -> bool {
        self.is_finished() || wait_until(&self.0.ended, self.state(), deadline, |state| state.finished).1
    }

    /// What it failed with, for the one that asks first. `None` before the end.
    pub fn take_failure(&self) -> Option<Failure> {
        if self.0.process != std::process::id() { None } else { self.state().failure.take() }
    }

    /// Says that nobody will ask what it failed with. Returns that, if it is known already.
    pub fn abandon(&self) -> Option<Failure> {
        if self.0.process != std::process::id() {
            return None;
        }
        let mut state = self.state();
        state.abandoned = true;
        state.failure.take()
    }

    /// Says that a failure nobody asks for is not to be reported either.
    pub fn silence(&self) {
        self.control(|state| state.abandoned = false);
    }

    /// Waits until a piece may be handed over that is due when `due` has been played. False if it is to end.
    fn admit(&self, due: Duration) -> bool {
        let mut state = self.state();
        loop {
            if state.stop {
                return false;
            }
            let left = due.saturating_sub(state.played(self.0.origin, Instant::now()));
            state = if state.paused_at.is_some() {
                self.0.control.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else if !left.is_zero() {
                self.0.control.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
            } else {
                state.busy = true;
                return true;
            };
        }
    }

    /// What was admitted is done.
    fn done(&self) {
        let mut state = self.state();
        state.busy = false;
        if state.waiting_for_idle > 0 {
            self.0.idle.notify_all();
        }
    }

    fn finish(&self, played: Result<()>, report: impl FnOnce(Failure)) {
        let mut state = self.state();
        let mut failure = played.err();
        if state.abandoned
            && let Some(failure) = failure.take()
        {
            state.busy = true;
            drop(state);
            // A panic here is of no interest to anybody.
            let _ = catch_unwind(AssertUnwindSafe(|| report(failure)));
            state = self.state();
        }
        state.failure = failure;
        state.busy = false;
        state.finished = true;
        state.paused_at = None;
        self.0.paused.store(false, Ordering::Relaxed);
        self.0.finished.store(true, Ordering::Release);
        self.0.idle.notify_all();
        self.0.ended.notify_all();
    }
}

/// Waits for `found`, until the deadline has passed at most.
fn wait_until<'a>(
    bell: &Condvar,
    mut state: MutexGuard<'a, State>,
    deadline: Option<Instant>,
    found: impl Fn(&State) -> bool,
) -> (MutexGuard<'a, State>, bool) {
    while !found(&state) {
        state = match deadline {
            None => bell.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return (state, false);
                }
                bell.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
    (state, true)
}

/// What the thread does.
struct Player<'a, V: View> {
    engine: &'a Engine<V>,
    options: Options,
    playback: &'a Playback,
}

impl<V: View> Player<'_, V> {
    fn run(&self, source: &mut dyn Source, ingest: &mut Ingest<V>) -> Result<()> {
        let mut batch = Vec::new();
        while self.play_once(source, ingest, &mut batch)? && self.options.repeat {
            source.restart()?;
            if !self.playback.admit(Duration::ZERO) {
                break;
            }
            let rewound = self.engine.session("play", Mutex::lock).and_then(|mut session| session.rewind());
            self.playback.0.position.store(NO_POSITION, Ordering::Relaxed);
            self.playback.done();
            rewound?;
        }
        Ok(())
    }

    /// Plays from where the source is to its end. Whether there were events and it may go on.
    fn play_once(
        &self,
        source: &mut dyn Source,
        ingest: &mut Ingest<V>,
        batch: &mut Vec<Record>,
    ) -> Result<bool> {
        let mut pace = Pace::new(self.options);
        let mut any = false;
        loop {
            batch.clear();
            loop {
                match source.next(batch)? {
                    More::Batch => break,
                    More::NotYet if self.playback.state().stop => return Ok(false),
                    More::NotYet => {}
                    More::End => return Ok(any),
                }
            }
            any |= !batch.is_empty();
            let mut rest = &batch[..];
            while !rest.is_empty() {
                let piece;
                (piece, rest) = rest.split_at(pace.next_piece(rest));
                let due = pace.due(|| self.playback.state().played(self.playback.0.origin, Instant::now()));
                if !self.playback.admit(due) {
                    return Ok(false);
                }
                let taken = ingest(self.engine, piece);
                if let Ok(found) = taken {
                    // Of a paced one that was known before.
                    if self.options.speed.is_none() {
                        pace.went(piece, found);
                    }
                    let Shared { position, events, .. } = &*self.playback.0;
                    position.store(pace.newest, Ordering::Relaxed);
                    events.fetch_add(piece.len() as u64, Ordering::Relaxed);
                }
                self.playback.done();
                taken?;
            }
        }
    }
}

fn time(record: &Record) -> u64 {
    u64::from_le_bytes(*record.first_chunk().expect("a record is longer than its time"))
}

/// The largest time. Several at once, as each would otherwise wait for the one before.
fn largest(records: &[Record]) -> u64 {
    let (eights, rest) = records.as_chunks::<8>();
    let mut lanes = [0; 8];
    for eight in eights {
        for (lane, record) in lanes.iter_mut().zip(eight) {
            *lane = time(record).max(*lane);
        }
    }
    rest.iter().map(time).chain(lanes).fold(0, u64::max)
}

/// Where a playback is in its recording, and when what is due.
struct Pace {
    speed: Option<f64>,
    /// Events in a piece, if that is given.
    size: Option<usize>,
    /// The recorded time that a piece may span; `None` if that does not matter.
    span: Option<u64>,
    /// The smallest timestamp of the first piece, and for how long it had been played when that was reached.
    began: Option<(u64, Duration)>,
    /// The largest and, of the first piece, the smallest timestamp so far.
    newest: u64,
    oldest: u64,
}

impl Pace {
    fn new(Options { speed, size, .. }: Options) -> Self {
        let span = speed.filter(|_| size.is_none()).map(|speed| {
            // A cast saturates.
            ((PIECE.as_micros() as f64 * speed) as u64).max(1)
        });
        Self { speed, size, span, began: None, newest: 0, oldest: u64::MAX }
    }

    /// How many of the records, at least one, are the next piece.
    fn next_piece(&mut self, records: &[Record]) -> usize {
        let len = self.span.map_or(self.size.unwrap_or(usize::MAX).min(records.len()), |span| {
            let first = self.newest.max(time(&records[0]));
            let end = first.saturating_add(span);
            // Playing begins to count at the oldest of the first piece. What is much older than the first event belongs
            // to another time: with it in, all stood still until it is made up for.
            let start = if self.began.is_none() { first.saturating_sub(span - 1) } else { 0 };
            1 + records[1..].iter().take_while(|record| (start..end).contains(&time(record))).count()
        });
        if self.speed.is_some() {
            self.went(&records[..len], None);
            if self.began.is_none() {
                self.oldest = records[..len].iter().map(time).fold(self.oldest, u64::min);
            }
        }
        len
    }

    /// Takes note of a piece that is played, and of its largest time, if that is known.
    fn went(&mut self, piece: &[Record], found: Option<u64>) {
        self.newest = found.unwrap_or_else(|| largest(piece)).max(self.newest);
    }

    /// When the piece is due, in time played. `played` is asked for the time when the first one was reached.
    fn due(&mut self, played: impl FnOnce() -> Duration) -> Duration {
        let Some(speed) = self.speed else {
            return Duration::ZERO;
        };
        let (t0, began) = *self.began.get_or_insert_with(|| (self.oldest, played()));
        let nanos = ((self.newest - t0) as f64 * 1e3 / speed).ceil().min(FOR_EVER);
        began + Duration::from_nanos(nanos as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Event;
    use crate::geometry::SensorSize;
    use crate::kernels::Config;
    use std::sync::mpsc;

    /// What a source does when it is asked, step by step; then the end.
    enum Step {
        Batch(Vec<u64>),
        NotYet,
        NeverAnything,
        Fail(&'static str),
        Panic,
        /// Waits for the other side to send something.
        Wait(mpsc::Receiver<()>),
    }

    struct Script {
        steps: Vec<Step>,
        at: usize,
    }

    /// How a source is asked: by the playback's thread, or ahead of it.
    type Way = fn(Script, bool) -> Box<dyn Source>;

    macro_rules! both_ways {
        ($($test:ident,)*) => {
            mod at_once {
                $(#[test]
                fn $test() {
                    super::$test(|source, _| Box::new(source));
                })*
            }
            mod ahead {
                $(#[test]
                fn $test() {
                    super::$test(|source, repeat| Box::new(super::Ahead::of(source, repeat).unwrap()));
                })*
            }
        };
    }

    both_ways! {
        a_batch_is_a_call_and_all_of_them_are_made,
        it_is_the_producer_from_its_start_and_for_ever,
        it_is_refused_where_a_thread_produces_and_what_fails_to_start_changes_nothing,
        a_failure_comes_after_the_events_before_it_and_leaves_the_engine_free,
        a_failure_is_told_once_to_whoever_is_left,
        nothing_is_handed_over_while_paused_and_all_of_it_after,
        it_stops_wherever_it_waits,
        a_repeated_recording_starts_over_each_time_and_ends_if_it_is_empty,
        it_is_never_early,
    }

    fn records(times: &[u64]) -> Vec<Record> {
        times.iter().map(|&t| Event { t, x: (t % 4) as u16, y: 0, p: 1 }.to_record()).collect()
    }

    impl Source for Script {
        fn next(&mut self, batch: &mut Vec<Record>) -> Result<More, codec::Error> {
            let Some(step) = self.steps.get(self.at) else {
                return Ok(More::End);
            };
            self.at += usize::from(!matches!(step, Step::NeverAnything));
            match step {
                Step::Batch(times) => batch.extend(records(times)),
                Step::NotYet | Step::NeverAnything => return Ok(More::NotYet),
                Step::Fail(text) => return Err(codec::Error::Malformed((*text).into())),
                Step::Panic => panic!("out of {}", "luck"),
                Step::Wait(other) => {
                    let _ = other.recv();
                    return Ok(More::NotYet);
                }
            }
            Ok(More::Batch)
        }

        fn restart(&mut self) -> Result<(), codec::Error> {
            self.at = 0;
            Ok(())
        }
    }

    fn engine(kernel: Config) -> Arc<Engine<()>> {
        let sensor = SensorSize::new(4, 1).unwrap();
        let options = crate::engine::Options { interval: Duration::ZERO, ..Default::default() };
        Arc::new(Engine::new(sensor, kernel.build(sensor).unwrap(), options).unwrap())
    }

    fn play_with(
        way: Way,
        engine: &Arc<Engine<()>>,
        steps: Vec<Step>,
        options: Options,
        ingest: Ingest<()>,
        report: impl FnOnce(Failure) + Send + 'static,
    ) -> Result<Playback> {
        let mut session = engine.session("play", Mutex::lock).unwrap();
        start(
            engine,
            &mut session,
            || Ok(way(Script { steps, at: 0 }, options.repeat)),
            options,
            ingest,
            report,
        )
    }

    fn play(way: Way, engine: &Arc<Engine<()>>, steps: Vec<Step>, options: Options) -> Result<Playback> {
        play_with(way, engine, steps, options, Box::new(ingest), |failure| {
            panic!("nobody asked for {failure}")
        })
    }

    /// An `ingest` that sends the times of each piece.
    fn told() -> (Ingest<()>, mpsc::Receiver<Vec<u64>>) {
        let (tell, told) = mpsc::channel();
        let ingest: Ingest<()> = Box::new(move |engine, piece| {
            tell.send(piece.iter().map(|record| Event::from_record(record).t).collect()).unwrap();
            ingest(engine, piece)
        });
        (ingest, told)
    }

    fn counts(engine: &Engine<()>) -> Vec<u32> {
        engine.publisher().pool().read().unwrap().content().frame.memory().unwrap().as_slice().to_vec()
    }

    fn from_here(engine: &Engine<()>) -> Result<(), Error> {
        engine.session("ingest", Mutex::lock)?.ingest(Events::packed(&[])).map(drop)
    }

    fn a_batch_is_a_call_and_all_of_them_are_made(way: Way) {
        let engine = engine(Config::EventCount);
        let (ingest, pieces) = told();
        let steps = vec![Step::NotYet, Step::Batch(vec![1, 2, 5]), Step::NotYet, Step::Batch(vec![3])];
        let playback = play_with(way, &engine, steps, Options::default(), ingest, drop).unwrap();
        assert!(playback.wait_finished(None) && playback.wait_idle(None));
        assert!(playback.take_failure().is_none());
        assert_eq!(pieces.into_iter().collect::<Vec<_>>(), [vec![1, 2, 5], vec![3]]);
        assert_eq!((playback.events(), playback.position()), (4, Some(5)));
        assert_eq!(counts(&engine), [0, 0, 0, 1]);
        let stats = engine.stats();
        assert_eq!((stats.events_ingested, stats.snapshots_published), (4, 2));
    }

    fn it_is_the_producer_from_its_start_and_for_ever(way: Way) {
        let engine = engine(Config::EventCount);
        let (go, wait) = mpsc::channel();
        let (asked, answer) = mpsc::channel();
        let on_its_thread: Ingest<()> = Box::new(move |engine, piece| {
            asked.send((engine.is_producer(), engine.check_producer().is_ok())).unwrap();
            ingest(engine, piece)
        });
        let steps = vec![Step::Wait(wait), Step::Batch(vec![1])];
        let first = play_with(way, &engine, steps, Options::default(), on_its_thread, drop).unwrap();
        assert!(matches!(from_here(&engine), Err(Error::PlaybackProduces)));
        assert!(!engine.is_producer() && !first.is_own_thread());
        let second = play(way, &engine, vec![Step::Panic], Options::default());
        assert!(matches!(second, Err(Failure::Engine(Error::Playing))));
        assert!(!first.wait_finished(Some(Instant::now())));
        go.send(()).unwrap();
        assert!(first.wait_finished(None));
        assert_eq!(answer.recv(), Ok((true, true)));
        assert!(matches!(from_here(&engine), Err(Error::PlaybackProduces)));
        let third = play(way, &engine, vec![Step::Batch(vec![2])], Options::default()).unwrap();
        assert!(third.wait_finished(None));
        assert_eq!(engine.stats().events_ingested, 2);
    }

    fn it_is_refused_where_a_thread_produces_and_what_fails_to_start_changes_nothing(way: Way) {
        let engine = engine(Config::EventCount);
        let source = || Err(Failure::Source(codec::Error::Malformed("gone".into())));
        let mut session = engine.session("play", Mutex::lock).unwrap();
        let failed = start(&engine, &mut session, source, Options::default(), Box::new(ingest), drop);
        assert_eq!(failed.err().unwrap().to_string(), "gone");
        drop(session);
        from_here(&engine).unwrap();
        let refused = play(way, &engine, vec![Step::Panic], Options::default());
        assert!(matches!(refused, Err(Failure::Engine(Error::ThreadProduces))));
        from_here(&engine).unwrap();
    }

    fn a_failure_comes_after_the_events_before_it_and_leaves_the_engine_free(way: Way) {
        let engine = engine(Config::EventCount);
        let failing = [
            (vec![Step::Batch(vec![1]), Step::Fail("torn"), Step::Batch(vec![2])], "torn"),
            (vec![Step::Batch(vec![1]), Step::Panic, Step::Batch(vec![2])], "out of luck"),
            (vec![Step::Batch(vec![1]), Step::Batch(vec![3, 1 << 63])], "2**63"),
        ];
        for (round, (steps, text)) in (1..).zip(failing) {
            let playback = play(way, &engine, steps, Options::default()).unwrap();
            assert!(playback.wait_finished(None));
            let failure = playback.take_failure().unwrap();
            assert!(failure.to_string().contains(text), "{failure}");
            assert!(playback.take_failure().is_none());
            assert_eq!((playback.events(), playback.position()), (1, Some(1)));
            assert_eq!(engine.stats().events_ingested, round);
        }
    }

    fn a_failure_is_told_once_to_whoever_is_left(way: Way) {
        let engine = engine(Config::EventCount);
        let (go, wait) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let report = move |failure: Failure| tell.send(failure.to_string()).unwrap();
        let steps = vec![Step::Wait(wait), Step::Fail("torn")];
        let playback = play_with(way, &engine, steps, Options::default(), Box::new(ingest), report).unwrap();
        assert!(playback.abandon().is_none());
        go.send(()).unwrap();
        assert_eq!(told.recv().unwrap(), "torn");
        assert!(playback.wait_finished(None) && playback.take_failure().is_none());

        let playback = play(way, &engine, vec![Step::Fail("torn")], Options::default()).unwrap();
        assert!(playback.wait_finished(None));
        assert_eq!(playback.abandon().unwrap().to_string(), "torn");

        let (go, wait) = mpsc::channel();
        let playback =
            play(way, &engine, vec![Step::Wait(wait), Step::Fail("torn")], Options::default()).unwrap();
        playback.abandon();
        playback.silence();
        go.send(()).unwrap();
        assert!(playback.wait_finished(None));
    }

    fn nothing_is_handed_over_while_paused_and_all_of_it_after(way: Way) {
        let engine = engine(Config::EventCount);
        let (go, wait) = mpsc::channel();
        let (ingest, pieces) = told();
        let steps = vec![Step::Wait(wait), Step::Batch(vec![1]), Step::Batch(vec![2])];
        let playback = play_with(way, &engine, steps, Options::default(), ingest, drop).unwrap();
        playback.pause();
        playback.pause();
        assert!(playback.is_paused() && playback.wait_idle(None));
        go.send(()).unwrap();
        assert!(pieces.recv_timeout(Duration::from_millis(50)).is_err());
        assert!(!playback.wait_finished(Some(Instant::now())));
        playback.resume();
        assert!(!playback.is_paused());
        assert_eq!(pieces.into_iter().collect::<Vec<_>>(), [[1], [2]]);
        assert!(playback.wait_finished(None));
        playback.pause();
        assert!(!playback.is_paused());
    }

    fn it_stops_wherever_it_waits(way: Way) {
        let paced = Options { speed: Some(1e-3), ..Options::default() };
        for (pause, options) in [(true, Options::default()), (false, paced)] {
            let engine = engine(Config::EventCount);
            let (ingest, pieces) = told();
            let (go, wait) = mpsc::channel();
            let steps = vec![Step::Batch(vec![0]), Step::Wait(wait), Step::Batch(vec![1 << 40])];
            let playback = play_with(way, &engine, steps, options, ingest, drop).unwrap();
            assert_eq!(pieces.recv().unwrap(), [0]);
            if pause {
                playback.pause();
            }
            go.send(()).unwrap();
            playback.stop();
            assert!(playback.wait_finished(None) && playback.take_failure().is_none());
            assert!(pieces.recv().is_err());
            assert!(!playback.is_paused());
        }
        let engine = engine(Config::EventCount);
        let playback = play(way, &engine, vec![Step::NeverAnything], Options::default()).unwrap();
        playback.stop();
        assert!(playback.wait_finished(None) && playback.take_failure().is_none());
    }

    fn a_repeated_recording_starts_over_each_time_and_ends_if_it_is_empty(way: Way) {
        let engine = engine(Config::TimeSurface);
        let (tell, told) = mpsc::channel();
        let seen: Ingest<()> = Box::new(move |engine, piece| {
            let largest = ingest(engine, piece)?;
            let visit = engine.publisher().pool().read().unwrap();
            tell.send((
                visit.content().frame.memory().unwrap().as_slice::<u64>().to_vec(),
                visit.content().watermark,
            ))
            .unwrap();
            Ok(largest)
        });
        let repeat = Options { repeat: true, ..Options::default() };
        let steps = vec![Step::Batch(vec![5, 9]), Step::Batch(vec![8])];
        let playback = play_with(way, &engine, steps, repeat, seen, drop).unwrap();
        for _ in 0..3 {
            assert_eq!(told.recv().unwrap(), (vec![0, 9, 0, 0], Some(9)));
            assert_eq!(told.recv().unwrap(), (vec![8, 9, 0, 0], Some(9)));
        }
        playback.stop();
        assert!(playback.wait_finished(None));
        assert_eq!(engine.stats().events_ingested, playback.events());
        let publications = engine.publisher().pool().latest_sequence();
        assert_eq!(engine.stats().snapshots_published, publications);

        let playback = play(way, &engine, vec![Step::NotYet], repeat).unwrap();
        assert!(playback.wait_finished(None));
        assert_eq!((playback.events(), playback.position()), (0, None));
    }

    #[test]
    fn the_clock_stands_still_while_paused() {
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        let mut state = State {
            stop: false,
            busy: false,
            finished: false,
            abandoned: false,
            waiting_for_idle: 0,
            paused_at: None,
            paused_for: Duration::ZERO,
            failure: None,
        };
        assert_eq!(state.played(origin, at(7)), Duration::from_millis(7));
        state.paused_at = Some(at(10));
        assert_eq!(state.played(origin, at(25)), Duration::from_millis(10));
        (state.paused_at, state.paused_for) = (None, Duration::from_millis(20));
        assert_eq!(state.played(origin, at(31)), Duration::from_millis(11));
        state.paused_at = Some(at(40));
        assert_eq!(state.played(origin, at(90)), Duration::from_millis(20));
    }

    fn it_is_never_early(way: Way) {
        let engine = engine(Config::EventCount);
        let options = Options { speed: Some(2.0), ..Options::default() };
        let began = Instant::now();
        let steps = vec![Step::Batch(vec![1000, 31_000]), Step::Batch(vec![500, 41_000])];
        let playback = play(way, &engine, steps, options).unwrap();
        assert!(playback.wait_finished(None));
        assert!(began.elapsed() >= Duration::from_millis(20));
        assert_eq!(engine.stats().events_ingested, 4);
    }

    /// The pieces of some batches with the time each is due, in ns after the first was reached.
    fn pieces(options: Options, batches: &[&[u64]]) -> Vec<(Vec<u64>, u128)> {
        let mut pace = Pace::new(options);
        let mut found = Vec::new();
        for times in batches {
            let (mut times, records) = (*times, records(times));
            let mut rest = &records[..];
            while !rest.is_empty() {
                let n = pace.next_piece(rest);
                let due = pace.due(|| Duration::from_secs(100));
                rest = &rest[n..];
                let piece;
                (piece, times) = times.split_at(n);
                found.push((piece.to_vec(), due.saturating_sub(Duration::from_secs(100)).as_nanos()));
            }
        }
        found
    }

    fn at_speed(speed: f64) -> Options {
        Options { speed: Some(speed), ..Options::default() }
    }

    #[test]
    fn a_batch_is_cut_where_5_ms_are_full() {
        let batch = [1000, 3000, 5999, 6000, 6001, 10_999, 11_000, 99_000];
        assert_eq!(
            pieces(at_speed(1.0), &[&batch]),
            [
                (vec![1000, 3000, 5999], 4_999_000),
                (vec![6000, 6001, 10_999], 9_999_000),
                (vec![11_000], 10_000_000),
                (vec![99_000], 98_000_000),
            ]
        );
        // Twice as fast: 10 ms of the recording are 5 ms of playing.
        assert_eq!(
            pieces(at_speed(2.0), &[&batch[..6], &batch[6..]]),
            [(batch[..6].to_vec(), 4_999_500), (vec![11_000], 5_000_000), (vec![99_000], 49_000_000),]
        );
        let sized = |size| Options { size: Some(size), ..at_speed(1.0) };
        assert_eq!(pieces(sized(8), &[&batch]), [(batch.to_vec(), 98_000_000)]);
        let (first, rest) = batch.split_at(5);
        let expected = [(first.to_vec(), 5_001_000), (rest.to_vec(), 98_000_000)];
        assert_eq!(pieces(sized(5), &[&batch]), expected);
        let unpaced = Options { speed: None, ..sized(5) };
        assert_eq!(
            pieces(unpaced, &[&batch]).into_iter().map(|piece| piece.0.len()).collect::<Vec<_>>(),
            [5, 3]
        );
        assert_eq!(pieces(Options::default(), &[&batch[..2]])[0].0, batch[..2]);
    }

    #[test]
    fn times_that_step_back_stay_with_their_neighbours_and_are_due_at_once() {
        let batches: [&[u64]; 3] = [&[1000, 900, 2000], &[10, 20, 30], &[1999, 7000, 15, 12_500]];
        assert_eq!(
            pieces(at_speed(1.0), &batches),
            [
                (vec![1000, 900, 2000], 1_100_000),
                (vec![10, 20, 30], 1_100_000),
                (vec![1999], 1_100_000),
                (vec![7000, 15], 6_100_000),
                (vec![12_500], 11_600_000),
            ]
        );
        // The clock starts anew right after the start: the playback does not wait for it to catch up.
        assert_eq!(
            pieces(at_speed(1.0), &[&[900_000, 1, 2, 900_100]]),
            [(vec![900_000], 0), (vec![1, 2, 900_100], 100_000)]
        );
    }

    #[test]
    fn a_speed_that_no_recording_has_does_no_harm() {
        let batch: [u64; 3] = [0, 1, (1 << 63) - 1];
        let slow = pieces(at_speed(f64::MIN_POSITIVE), &[&batch]);
        assert_eq!(
            slow.iter().map(|(_, due)| *due).collect::<Vec<_>>(),
            [0, 10_u128.pow(18), 10_u128.pow(18)]
        );
        let fast = pieces(at_speed(f64::MAX), &[&batch]);
        assert_eq!(fast, [(batch.to_vec(), 1)]);
    }
}
