//! Playback: a recording into an engine, decoded, accumulated and published on a thread of its own.
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

use crate::codec::{self, More, Record, Recording};
use crate::engine::{Engine, Session};
use crate::error::{Error, panic_text};
use crate::event::Events;
use crate::exclusive::{adopt_token, thread_token};
use crate::publish::View;
use std::fs::File;
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

/// Where events come from. One per recording format; everything happens on the playback's thread.
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
pub struct Batches {
    /// The file.
    pub recording: Recording<File>,
    /// Events in a batch; `None` for as many as suit.
    pub size: Option<usize>,
}

impl Source for Batches {
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
    /// Whether every batch of the source is one piece, whatever it spans.
    pub whole_batches: bool,
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

/// What hands a piece over to the engine: [`ingest`], or something that does more.
pub type Ingest<V> = Box<dyn FnMut(&Engine<V>, &[Record]) -> Result<(), Error> + Send>;

/// Hands a piece over, without leaving the thread's own world.
pub fn ingest<V: View>(engine: &Engine<V>, piece: &[Record]) -> Result<(), Error> {
    let retired = engine.session("play", Mutex::lock)?.ingest(Events::packed(piece.as_flattened()))?;
    if let Some(retired) = retired {
        // What readers made of it is theirs to take down.
        retired.leave(engine.publisher().pool());
    }
    Ok(())
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
                if taken.is_ok() {
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

/// Where a playback is in its recording, and when what is due.
struct Pace {
    speed: Option<f64>,
    /// The recorded time that a piece may span; `None` if batches are not cut.
    span: Option<u64>,
    /// The smallest timestamp of the first piece, and for how long it had been played when that was reached.
    began: Option<(u64, Duration)>,
    /// The largest and, of the first piece, the smallest timestamp so far.
    newest: u64,
    oldest: u64,
}

impl Pace {
    fn new(Options { speed, whole_batches, .. }: Options) -> Self {
        let span = speed.filter(|_| !whole_batches).map(|speed| {
            // A cast saturates.
            ((PIECE.as_micros() as f64 * speed) as u64).max(1)
        });
        Self { speed, span, began: None, newest: 0, oldest: u64::MAX }
    }

    /// How many of the records, at least one, are the next piece.
    fn next_piece(&mut self, records: &[Record]) -> usize {
        let time = |record: &Record| u64::from_le_bytes(*record.first_chunk().expect("a record is longer"));
        let Some(span) = self.span else {
            self.newest = records.iter().map(time).fold(self.newest, u64::max);
            if self.began.is_none() && self.speed.is_some() {
                self.oldest = records.iter().map(time).fold(self.oldest, u64::min);
            }
            return records.len();
        };
        let first = self.newest.max(time(&records[0]));
        let end = first.saturating_add(span);
        // Playing begins to count at the oldest of the first piece. What is much older than the first event belongs to
        // another time: with it in, all stood still until it is made up for.
        let start = if self.began.is_none() { first.saturating_sub(span - 1) } else { 0 };
        let len = 1 + records[1..].iter().take_while(|r| (start..end).contains(&time(r))).count();
        let piece = records[..len].iter().map(time);
        self.newest = piece.clone().fold(first, u64::max);
        if self.began.is_none() {
            self.oldest = piece.fold(self.oldest, u64::min);
        }
        len
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
