//! One producer, published snapshots: accumulation, cadence, ownership and lifecycle.
//!
//! `ingest`, `start`, `stop` and `reset` run whole, one at a time, under one lock: a [`Session`] is that lock
//! held. Readers (`publisher()`, `stats()`, `is_producer()`) never take it.

use crate::accumulator::Accumulator;
use crate::error::{Error, Result};
use crate::event::Events;
use crate::exclusive::{Cell, Exclusive, Held, NOBODY, new_token, thread_token};
use crate::geometry::SensorSize;
use crate::kernels::Kernel;
use crate::publish::{
    Claim, Count, Frame, MOST_HELD, Memory, Occupancy, Publication, Publisher, Retired, Shelf, Spec, View,
    Writer,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{LockResult, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What an engine counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events of accepted calls, out-of-bounds ones included.
    pub events_ingested: u64,
    /// Those of them that were out of bounds.
    pub events_out_of_bounds: u64,
    /// Publications.
    pub snapshots_published: u64,
    /// Nanoseconds since the engine was made.
    pub uptime_ns: u64,
}

/// Three counters that one writer stores together and any reader loads together, without a lock.
///
/// There are two copies. The writer fills the one not in use, then makes it the one in use by raising
/// `version`, so a reader always finds a finished copy; it tries again only if the writer came round to that
/// very copy meanwhile.
#[derive(Default)]
struct Counters {
    version: AtomicU64,
    copies: [[AtomicU64; 3]; 2],
}

impl Counters {
    /// Only while holding the engine's lock.
    fn store(&self, values: [u64; 3]) {
        let version = self.version.load(Ordering::Relaxed);
        // Orders the last `version` store before the stores below: a reader that meets one of them in the
        // copy it took for finished is sure to see that the version moved on.
        fence(Ordering::Release);
        let copy = &self.copies[(version.wrapping_add(1) % 2) as usize];
        for (cell, value) in copy.iter().zip(values) {
            cell.store(value, Ordering::Relaxed);
        }
        // Release: whoever sees the new version sees the copy.
        self.version.store(version.wrapping_add(1), Ordering::Release);
    }

    fn load(&self) -> [u64; 3] {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let values = self.copies[(version % 2) as usize].each_ref().map(|c| c.load(Ordering::Relaxed));
            // Pairs with the writer's fence.
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return values;
            }
        }
    }
}

/// The bit of the tokens that threads of playbacks have.
const PLAYBACK: u64 = 1 << 63;

/// So many wanted frames in a row let expect that the next one is wanted. Of a consumer that comes now and then,
/// one publication in many is.
const WANTED: u32 = 2;

/// What the lock protects.
pub struct State<V: View> {
    accumulator: Accumulator,
    writer: Writer<Publication, V>,
    last_publication: Option<Instant>,
    pending: bool,
    /// Had before a call changes anything, so that a call cannot fail for memory half-way.
    spare: Option<(Claim, Frame)>,
    /// Frames of recipes.
    shelf: Shelf,
    /// The largest time of the last call, if all of its events were in bounds.
    largest: Option<u64>,
    /// How many publications in a row, of those that came back last, somebody had wanted the frame of.
    wanted: u32,
    counts: [u64; 3],
}

/// How an engine publishes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The least time between publications; zero publishes on every call.
    pub interval: Duration,
    /// Publications whose memory is kept for use again.
    pub keep: usize,
    /// Whether published frames are mapped so that every write to them faults.
    pub guard: bool,
}

impl Default for Options {
    /// Every 16 ms. Eight frames cover the latest, one being filled, and readers that come and go; what a
    /// burst of readers holds beyond that goes back to the system when they let go.
    fn default() -> Self {
        Self { interval: Duration::from_millis(16), keep: 8, guard: false }
    }
}

/// See the module's description. `V` is what readers keep with a publication.
pub struct Engine<V: View> {
    state: Exclusive<State<V>>,
    /// The token of the producer's thread, with `PLAYBACK` if that is a playback's.
    producer: AtomicU64,
    playing: AtomicBool,
    running: AtomicBool,
    publisher: Publisher<V>,
    counters: Counters,
    interval: Duration,
    /// Nanoseconds since `born` at which the next publication is due. A hint for those without the lock.
    due_ns: AtomicU64,
    guard: bool,
    sensor: SensorSize,
    spec: Spec,
    /// Frames of recipes that were made and not given back; `None` where there are no recipes.
    made: Option<Count>,
    makes_frames: bool,
    born: Instant,
}

impl<V: View> Engine<V> {
    /// An engine that runs, has published nothing and has no producer yet.
    pub fn new(sensor: SensorSize, kernel: Box<dyn Kernel>, options: Options) -> Result<Self> {
        let Options { interval, keep, guard } = options;
        let spec = kernel.spec().clone();
        let (publisher, writer) = Publisher::new(keep);
        let shelf = Shelf::new(keep, spec.bytes(), guard);
        let made = Count::clone(shelf.count());
        let mut state = State {
            accumulator: Accumulator::new(sensor, kernel),
            writer,
            last_publication: None,
            pending: false,
            spare: None,
            shelf,
            largest: None,
            wanted: 0,
            counts: [0; 3],
        };
        state.spare = Some(state.claim()?);
        let recipes = state.accumulator.kernel_mut().publishes_recipes();
        let (later, makes_frames) =
            recipes.map_or((false, true), |recipes| (true, recipes.may_make_at_once()));
        Ok(Self {
            state: Exclusive::new(state),
            producer: AtomicU64::new(NOBODY),
            playing: AtomicBool::new(false),
            running: AtomicBool::new(true),
            publisher,
            counters: Counters::default(),
            interval,
            due_ns: AtomicU64::new(0),
            guard,
            sensor,
            spec,
            made: later.then_some(made),
            makes_frames,
            born: Instant::now(),
        })
    }

    /// Where its publications are read.
    pub fn publisher(&self) -> &Publisher<V> {
        &self.publisher
    }

    /// The sensor.
    pub fn sensor(&self) -> SensorSize {
        self.sensor
    }

    /// Shape and element type of its frames.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Frames in memory: those published and held or kept, and the one that may be ready for the next publication.
    pub fn occupancy(&self) -> Occupancy {
        self.publisher.pool().occupancy()
    }

    /// Bytes of the frames in memory: those held, kept and being filled, or made by readers.
    pub fn frame_bytes(&self) -> usize {
        let frames = match &self.made {
            Some(made) => made.load(Ordering::Relaxed),
            None => self.occupancy().contents,
        };
        frames * self.spec.bytes().unwrap_or(0)
    }

    /// Whether publishing may take as long as making a frame. Else it costs the same whatever a frame's size.
    pub fn makes_frames(&self) -> bool {
        self.makes_frames
    }

    /// The counters, all of one moment. Takes no lock.
    pub fn stats(&self) -> Stats {
        let [events_ingested, events_out_of_bounds, snapshots_published] = self.counters.load();
        let uptime_ns = self.nanoseconds(Instant::now());
        Stats { events_ingested, events_out_of_bounds, snapshots_published, uptime_ns }
    }

    /// Whether the calling thread is the producer.
    pub fn is_producer(&self) -> bool {
        self.producer.load(Ordering::Relaxed) == thread_token()
    }

    /// Whether the engine runs. Only a [`Session`] can rely on the answer.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// Whether a call of `ingest` now would probably publish.
    pub fn publishes_next(&self) -> bool {
        self.nanoseconds(Instant::now()) >= self.due_ns.load(Ordering::Relaxed)
    }

    fn nanoseconds(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.born).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Refuses every thread but the producer. Says nothing before there is one.
    pub fn check_producer(&self) -> Result<()> {
        // A thread always sees its own store, so the producer cannot be refused by mistake.
        match self.producer.load(Ordering::Relaxed) {
            NOBODY => Ok(()),
            producer if producer == thread_token() => Ok(()),
            producer if producer & PLAYBACK != 0 => Err(Error::PlaybackProduces),
            _ => Err(Error::NotProducer),
        }
    }

    /// Refuses a playback while there is one, and where a thread is the producer.
    pub fn check_playable(&self) -> Result<()> {
        let producer = self.producer.load(Ordering::Relaxed);
        if producer != NOBODY && producer & PLAYBACK == 0 {
            Err(Error::ThreadProduces)
        } else if self.playing.load(Ordering::Acquire) {
            Err(Error::Playing)
        } else {
            Ok(())
        }
    }

    /// Lets another playback begin. The one that ended stays the producer until then.
    pub fn end_playback(&self) {
        self.playing.store(false, Ordering::Release);
    }

    /// Takes the engine's lock (see [`Exclusive::hold`]).
    pub fn session<'a>(
        &'a self,
        call: &'static str,
        lock: impl FnOnce(&'a Mutex<Cell<State<V>>>) -> LockResult<MutexGuard<'a, Cell<State<V>>>>,
    ) -> Result<Session<'a, V>> {
        Ok(Session { engine: self, state: self.state.hold(call, lock)? })
    }
}

/// The engine's lock, held.
pub struct Session<'a, V: View> {
    engine: &'a Engine<V>,
    state: Held<'a, State<V>>,
}

impl<V: View> Session<'_, V> {
    /// Takes a call in and publishes if that is due. While stopped it does nothing but make the thread the
    /// producer.
    pub fn ingest(&mut self, events: Events<'_>) -> Result<Option<Retired>> {
        self.state.largest = None;
        if self.pass_while_stopped()? {
            return Ok(None);
        }
        let engine = self.engine;
        let retired = self.state.guarded(|state| engine.take_in(state, events))?;
        engine.producer.store(thread_token(), Ordering::Relaxed);
        Ok(retired)
    }

    /// The largest time of the call that was ingested, if it was looked for in all of its events: none was out of bounds.
    pub fn largest(&self) -> Option<u64> {
        self.state.largest
    }

    /// All that `ingest` does while the engine is stopped, whatever the events are. Whether it is.
    pub fn pass_while_stopped(&mut self) -> Result<bool> {
        self.engine.check_producer()?;
        let stopped = !self.engine.is_running();
        if stopped {
            self.engine.producer.store(thread_token(), Ordering::Relaxed);
        }
        Ok(stopped)
    }

    /// Makes a playback the producer. `start` is given the token that its thread is to adopt; if it fails nothing has
    /// changed.
    pub fn begin_playback<R, E: From<Error>>(
        &mut self,
        start: impl FnOnce(u64) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let engine = self.engine;
        engine.check_playable()?;
        let token = new_token() | PLAYBACK;
        let before = engine.producer.swap(token, Ordering::Relaxed);
        engine.playing.store(true, Ordering::Relaxed);
        start(token).inspect_err(|_| {
            engine.playing.store(false, Ordering::Relaxed);
            engine.producer.store(before, Ordering::Relaxed);
        })
    }

    /// Kernel and watermark back to those of a new engine; what was counted and published stays. For a source that
    /// starts again.
    pub fn rewind(&mut self) -> Result<()> {
        self.state.guarded(|state| {
            state.accumulator.reset()?;
            state.shelf.forget();
            state.pending = false;
            Ok(())
        })
    }

    /// Makes `ingest` work again.
    pub fn start(&mut self) {
        self.engine.running.store(true, Ordering::Release);
    }

    /// Publishes what is pending, then makes `ingest` do nothing.
    pub fn stop(&mut self) -> Result<Option<Retired>> {
        let engine = self.engine;
        let retired = if self.state.pending {
            self.state.guarded(|state| engine.publish(state, Instant::now()))?
        } else {
            None
        };
        engine.running.store(false, Ordering::Release);
        Ok(retired)
    }

    /// Back to the state of a new engine, but for the sequence, the uptime, the producer and whether it runs.
    pub fn reset(&mut self) -> Result<Option<Retired>> {
        self.state.guarded(|state| {
            state.accumulator.reset()?;
            state.shelf.forget();
            state.last_publication = None;
            state.pending = false;
            state.counts = [0; 3];
            Ok(())
        })?;
        self.engine.counters.store([0; 3]);
        self.engine.due_ns.store(0, Ordering::Relaxed);
        Ok(Some(self.state.writer.reset()))
    }
}

impl<V: View> Engine<V> {
    fn take_in(&self, state: &mut State<V>, events: Events<'_>) -> Result<Option<Retired>> {
        if state.spare.is_none() {
            state.spare = Some(state.claim()?);
        }
        let found = state.accumulator.accumulate(events)?;
        state.pending |= found.in_bounds() > 0;
        state.largest = found.latest.filter(|_| found.out_of_bounds == 0);
        state.counts[0] += found.events;
        state.counts[1] += found.out_of_bounds;
        let now = Instant::now();
        if state.last_publication.is_none_or(|last| now.duration_since(last) >= self.interval) {
            self.publish(state, now)
        } else {
            self.counters.store(state.counts);
            Ok(None)
        }
    }

    fn publish(&self, state: &mut State<V>, now: Instant) -> Result<Option<Retired>> {
        let watermark = state.accumulator.watermark();
        let (claim, spare) = state.spare.take().map_or_else(|| state.claim(), Ok)?;
        let mut frame = match state.fill(spare, watermark) {
            Ok(frame) => frame,
            Err(error) => {
                // The events stay counted and pending.
                self.counters.store(state.counts);
                state.writer.abandon(claim);
                return Err(error);
            }
        };
        // A guard that fails is told, after the frame was published without: it must not be lost.
        let guarded = if self.guard { frame.guard() } else { Ok(()) };
        state.shelf.publishes(&frame);
        // Whoever sees the publication sees it counted.
        state.counts[2] += 1;
        self.counters.store(state.counts);
        state.pending = false;
        state.last_publication = Some(now);
        let due = now.checked_add(self.interval).map_or(u64::MAX, |due| self.nanoseconds(due));
        self.due_ns.store(due, Ordering::Relaxed);
        let published = state.writer.publish(claim, Publication { frame, watermark });
        self.publisher.announce();
        match guarded {
            Ok(()) => Ok(Some(published.retired)),
            Err(error) => {
                published.retired.leave(self.publisher.pool());
                Err(error)
            }
        }
    }
}

impl<V: View> State<V> {
    /// A place for the next publication, and memory for its frame.
    fn claim(&mut self) -> Result<(Claim, Frame)> {
        let (claim, left) = self.writer.claim().ok_or(Error::TooManyHeld(MOST_HELD))?;
        let left = left.map(|left| left.frame);
        if let Some(was_wanted) = left.as_ref().and_then(Frame::was_wanted) {
            self.wanted = if was_wanted { self.wanted.saturating_add(1) } else { 0 };
        }
        let frame = self.frame(left);
        match frame {
            Ok(frame) => Ok((claim, frame)),
            Err(error) => {
                self.writer.abandon(claim);
                Err(error)
            }
        }
    }

    /// A frame to be filled in: the one that a slot was `left` with, or another.
    fn frame(&mut self, left: Option<Frame>) -> Result<Frame> {
        let kernel = self.accumulator.kernel_mut();
        let bytes = kernel.spec().bytes();
        if let Some(kernel) = kernel.publishes_recipes() {
            // First that one lets go of what it refers to, which the kernel may then use again.
            let frame = self.shelf.frame(left, || kernel.recipe())?;
            kernel.prepare()?;
            return Ok(frame);
        }
        left.and_then(Frame::recycled).unwrap_or_else(|| Ok(Memory::zeroed("a frame", bytes)?.into()))
    }

    /// What the kernel publishes, in a frame that `claim` returned.
    fn fill(&mut self, mut frame: Frame, watermark: Option<u64>) -> Result<Frame> {
        let kernel = self.accumulator.kernel_mut();
        if frame.recipe_mut().is_some() {
            let prescribes = kernel.publishes_recipes().expect("the kernel made the recipe");
            if self.shelf.last_recipe().is_some_and(|last| prescribes.still_makes(last, watermark)) {
                kernel.close_window()?;
                return Ok(self.shelf.again(frame));
            }
            // Without memory for the frame, its reader is to be told.
            let is_made = prescribes.makes_at_once(self.wanted >= WANTED)
                && match frame.make_now(|out| kernel.read(out, watermark)) {
                    Err(Error::OutOfMemory { .. }) => false,
                    made => made.map(|()| true)?,
                };
            if let (false, Some(recipe)) = (is_made, frame.recipe_mut()) {
                let prescribes = kernel.publishes_recipes().expect("the kernel made the recipe");
                prescribes.prescribe(recipe, watermark)?;
            }
            kernel.close_window()?;
            return Ok(frame);
        }
        let spare = frame.into_made().expect("a frame has memory or a recipe");
        Ok(kernel.publish(spare, watermark)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Columns;
    use crate::event::tests::packed;
    use crate::kernels::Config;
    use std::thread;

    fn engine(interval: Duration) -> Engine<()> {
        let sensor = SensorSize::new(4, 3).unwrap();
        Engine::new(
            sensor,
            Config::EventCount.build(sensor).unwrap(),
            Options { interval, ..Options::default() },
        )
        .unwrap()
    }

    fn ingest(engine: &Engine<()>, events: &[(u64, u16, u16, u8)]) -> Result<()> {
        let bytes = packed(events);
        engine.session("ingest", |m| m.lock())?.ingest(Events::packed(&bytes)).map(drop)
    }

    fn counts(engine: &Engine<()>) -> Vec<u32> {
        engine.publisher().pool().read().unwrap().content().frame.memory().unwrap().as_slice().to_vec()
    }

    #[test]
    fn every_call_publishes_its_own_window_at_interval_zero() {
        let engine = engine(Duration::ZERO);
        ingest(&engine, &[(1, 0, 0, 1), (2, 0, 0, 0), (3, 9, 0, 1)]).unwrap();
        assert_eq!(counts(&engine), [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        ingest(&engine, &[(4, 3, 2, 1)]).unwrap();
        assert_eq!(counts(&engine), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let stats = engine.stats();
        assert_eq!((stats.events_ingested, stats.events_out_of_bounds, stats.snapshots_published), (4, 1, 2));
    }

    #[test]
    fn stop_publishes_what_is_pending_and_only_that() {
        let engine = engine(Duration::MAX);
        ingest(&engine, &[(1, 0, 0, 1)]).unwrap();
        ingest(&engine, &[(2, 1, 0, 1)]).unwrap();
        assert_eq!(engine.publisher().pool().read().unwrap().sequence(), 1);
        engine.session("stop", |m| m.lock()).unwrap().stop().unwrap();
        let last = engine.publisher().pool().read().unwrap();
        assert_eq!((last.sequence(), last.content().watermark), (2, Some(2)));
        engine.session("stop", |m| m.lock()).unwrap().stop().unwrap();
        ingest(&engine, &[(3, 1, 0, 1)]).unwrap();
        assert_eq!(engine.publisher().pool().read().unwrap().sequence(), 2);
        assert_eq!(engine.stats().events_ingested, 2);
    }

    #[test]
    fn another_thread_is_refused_even_after_the_first_is_gone() {
        let engine = engine(Duration::ZERO);
        thread::scope(|s| s.spawn(|| ingest(&engine, &[]).unwrap()).join().unwrap());
        assert!(matches!(ingest(&engine, &[]), Err(Error::NotProducer)));
        assert!(!engine.is_producer());
    }

    #[test]
    fn a_rejected_call_changes_nothing_and_claims_nothing() {
        let engine = engine(Duration::ZERO);
        thread::scope(|s| {
            let rejected = s.spawn(|| ingest(&engine, &[(5, 0, 0, 1), (1 << 63, 99, 99, 1)]));
            assert!(matches!(rejected.join().unwrap(), Err(Error::Timestamp { t }) if t == 1 << 63));
        });
        assert!(engine.publisher().pool().read().is_none());
        assert_eq!(engine.stats().events_ingested, 0);
        ingest(&engine, &[(1, 0, 0, 1)]).unwrap();
        assert_eq!(counts(&engine)[0], 1);
    }

    /// The frame of the latest publication, and where it is.
    fn shown(engine: &Engine<()>) -> (*const u8, Vec<u32>) {
        let visit = engine.publisher().pool().read().unwrap();
        let memory = visit.content().frame.memory().unwrap();
        (memory.bytes().as_ptr(), memory.as_slice().to_vec())
    }

    #[test]
    fn publications_share_a_frame_while_nothing_shown_changes() {
        let sensor = SensorSize::new(4, 3).unwrap();
        let config = Config::StackedHistogram { bins: 2, bin_us: 10 };
        let options = Options { interval: Duration::ZERO, keep: 2, ..Options::default() };
        let engine: Engine<()> = Engine::new(sensor, config.build(sensor).unwrap(), options).unwrap();
        let total = |frame: &[u32]| frame.iter().sum::<u32>();
        ingest(&engine, &[(1, 0, 0, 1), (12, 0, 0, 1)]).unwrap();
        let first = engine.publisher().pool().read().unwrap().lease(engine.publisher().pool());
        // Nobody has made it yet; the next two publications show the same.
        ingest(&engine, &[(19, 1, 0, 1)]).unwrap();
        ingest(&engine, &[]).unwrap();
        let (place, frame) = shown(&engine);
        assert_eq!(total(&frame), 1);
        assert_eq!(first.frame.memory().unwrap().bytes().as_ptr(), place);
        assert_eq!((first.watermark, engine.publisher().pool().latest_sequence()), (Some(12), 3));
        assert_eq!(engine.frame_bytes(), 4 * frame.len());
        // Nor does an event out of bounds change what is shown.
        ingest(&engine, &[(2, 99, 0, 1)]).unwrap();
        assert_eq!(shown(&engine).0, place);
        // A late event of a bin that is shown does.
        ingest(&engine, &[(3, 2, 0, 1)]).unwrap();
        let (late_place, late) = shown(&engine);
        assert_ne!(late_place, place);
        assert_eq!(total(&late), 2);
        // So does the next bin, with the same content or not.
        ingest(&engine, &[(20, 2, 0, 1)]).unwrap();
        assert_eq!(total(&shown(&engine).1), 4);
        assert_eq!(total(first.frame.memory().unwrap().as_slice()), 1);
        // Two kept frames, and the one that is held.
        assert!(engine.frame_bytes() <= 3 * 4 * frame.len());
        let session = engine.session("reset", |m| m.lock());
        session.unwrap().reset().unwrap();
        ingest(&engine, &[(20, 2, 0, 1)]).unwrap();
        assert_eq!(total(&shown(&engine).1), 0);
        assert_eq!(total(first.frame.memory().unwrap().as_slice()), 1);
        drop(engine);
        assert_eq!(total(first.frame.memory().unwrap().as_slice()), 1);
    }

    /// Panics on the second call.
    struct Faulty(Spec, u32);

    impl Kernel for Faulty {
        fn spec(&self) -> &Spec {
            &self.0
        }
        fn accumulate(&mut self, _events: Columns<'_>, _latest: u64) -> Result<()> {
            self.1 += 1;
            assert!(self.1 < 2, "out of order");
            Ok(())
        }
        fn read(&self, out: &mut [u8], _watermark: Option<u64>) -> Result<()> {
            out.fill(1);
            Ok(())
        }
        fn reset(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_is_an_error_and_leaves_an_engine_that_can_only_be_read() {
        let sensor = SensorSize::new(4, 3).unwrap();
        let kernel = Faulty(Config::EventCount.spec(sensor), 0);
        let engine: Engine<()> =
            Engine::new(sensor, Box::new(kernel), Options { interval: Duration::ZERO, ..Options::default() })
                .unwrap();
        ingest(&engine, &[(1, 0, 0, 1)]).unwrap();
        let error = ingest(&engine, &[(2, 0, 0, 1)]).unwrap_err();
        assert!(matches!(&error, Error::Panicked(text) if text == "out of order"), "{error}");
        assert!(matches!(ingest(&engine, &[(3, 0, 0, 1)]), Err(Error::Poisoned)));
        assert!(matches!(engine.session("reset", |m| m.lock()), Err(Error::Poisoned)));
        assert_eq!(engine.publisher().pool().read().unwrap().sequence(), 1);
        assert_eq!(engine.stats().events_ingested, 1);
    }

    #[test]
    fn counters_are_never_of_two_moments() {
        let counters = Counters::default();
        thread::scope(|s| {
            s.spawn(|| (1..50_000).for_each(|i| counters.store([i, 2 * i, 3 * i])));
            for _ in 0..2 {
                s.spawn(|| {
                    let mut last = 0;
                    for _ in 0..20_000 {
                        let [a, b, c] = counters.load();
                        assert_eq!((b, c), (2 * a, 3 * a));
                        assert!(a >= last);
                        last = a;
                    }
                });
            }
        });
    }
}
