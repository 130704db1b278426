//! The surface of latest times (the time surface before any decay; Lagorce et al., HOTS, TPAMI 2017).
//!
//! Times take 64 bits, and what is in memory is what counting and publishing wait for. So the surface is kept in 32 bits a pixel,
//! relative to a base that is chosen at the first event, which is enough for 71 minutes. Where a time comes that is before the
//! base or too long after it, the base is moved (one pass). Where that does not help, as what is shown is too far apart, or where
//! it was moved not long ago, the surface goes over to 64 bits, and stays so until it is reset.

use super::log::{self, Log, Shown};
use super::stores::from_the_end;
use super::{Kernel, PublishesRecipes, STATE, hot, recipe_of};
use crate::error::Result;
use crate::event::{BLOCK, Columns, Needs, TIMESTAMP_LIMIT};
use crate::geometry::SensorSize;
use crate::publish::{Memory, Recipe, Spec};
use std::ops::RangeInclusive;

/// `(H, W)` uint64: the largest `t` seen at each pixel; 0 where there was none.
pub struct TimeSurface {
    spec: Spec,
    pixels: usize,
    /// A cell for each pixel, and the slots for a hot one, which are 0 between calls. There is room for 64 bits each; of what is
    /// never written to the system has no memory.
    latest: Memory,
    narrow: Narrow,
    is_wide: bool,
    /// Events since the base was moved.
    events: usize,
    log: Log<Narrow>,
    wide_log: Log<Wide>,
}

/// The times from a base on, counted from 1; 0 is none.
#[derive(Clone, Copy)]
pub struct Narrow {
    /// One less than the base, modulo 2^64.
    before: u64,
}

/// Times as they are.
#[derive(Clone, Copy)]
pub struct Wide;

/// The longest time after the base.
const FARTHEST: u64 = u32::MAX as u64 - 1;

/// How much earlier than all that came events may come before the base is moved: 4.5 minutes.
const EARLIER: u64 = 1 << 28;

/// How much later, at least; 13 minutes. Where there is less room it is not worth a pass.
const LATER: u64 = 3 << 28;

/// The base is moved again only after events for such a part of the sensor, so that all passes together take no longer than
/// counting does.
const PIXELS_PER_EVENT: usize = 8;

impl Narrow {
    /// No time is after it, nor before.
    const NOWHERE: Self = Self::from(TIMESTAMP_LIMIT);

    const fn from(base: u64) -> Self {
        Self { before: base.wrapping_sub(1) }
    }

    #[inline(always)]
    fn base(self) -> u64 {
        self.before.wrapping_add(1)
    }

    /// For a surface of these times; `None` if they are too far apart.
    fn around(times: &RangeInclusive<u64>) -> Option<Self> {
        let base = times.start().saturating_sub(EARLIER);
        (times.end() - base <= FARTHEST - LATER).then(|| Self::from(base))
    }

    /// Whether all of the times have cells. It may say no where one is near the end.
    #[inline(always)]
    fn seems_to_have(self, times: &[u64]) -> bool {
        let (eights, rest) = times.as_chunks::<8>();
        let mut any = [0; 8];
        for eight in eights {
            for (any, t) in any.iter_mut().zip(eight) {
                *any |= t.wrapping_sub(self.base());
            }
        }
        rest.iter().map(|t| t.wrapping_sub(self.base())).chain(any).fold(0, |any, after| any | after)
            <= FARTHEST
    }

    fn has(self, times: &RangeInclusive<u64>) -> bool {
        *times.start() >= self.base() && times.end() - self.base() <= FARTHEST
    }

    /// The cell of a time that has one.
    #[inline(always)]
    fn cell(self, t: u64) -> u32 {
        t.wrapping_sub(self.before) as u32
    }

    #[inline(always)]
    fn time(self, cell: u32) -> u64 {
        if cell == 0 { 0 } else { self.before.wrapping_add(u64::from(cell)) }
    }

    /// The earliest and the latest time of a surface.
    fn range(self, cells: &[u32]) -> Option<RangeInclusive<u64>> {
        let latest = cells.iter().fold(0, |latest, &cell| cell.max(latest));
        // Those of no time become the largest.
        let earliest = cells.iter().fold(u32::MAX, |earliest, cell| cell.wrapping_sub(1).min(earliest));
        (latest > 0).then(|| self.base() + u64::from(earliest)..=self.time(latest))
    }
}

fn range(times: &[u64]) -> RangeInclusive<u64> {
    times.iter().fold(u64::MAX, |earliest, &t| t.min(earliest))
        ..=times.iter().fold(0, |latest, &t| t.max(latest))
}

impl TimeSurface {
    pub fn new(spec: Spec, sensor: SensorSize) -> Result<Self> {
        let pixels = sensor.pixels();
        let latest = Memory::zeroed_for::<u64>(STATE, pixels.checked_add(hot::SLOTS))?;
        Ok(Self {
            spec,
            pixels,
            latest,
            narrow: Narrow::NOWHERE,
            is_wide: false,
            events: usize::MAX,
            log: Log::new(pixels),
            wide_log: Log::new(pixels),
        })
    }

    /// Sees to it that there are cells for these times.
    #[cold]
    fn make_room(&mut self, times: &[u64]) {
        let new = range(times);
        if self.narrow.has(&new) {
            return;
        }
        // What is listed is relative to the base.
        self.log.forget();
        let cells = &mut self.latest.as_mut_slice::<u32>()[..self.pixels];
        let old = (self.narrow.base() != TIMESTAMP_LIMIT).then(|| self.narrow.range(cells)).flatten();
        let is_new = old.is_none();
        let all = old.map_or(new.clone(), |old| *old.start().min(new.start())..=*old.end().max(new.end()));
        match Narrow::around(&all) {
            Some(narrow) if is_new => self.narrow = narrow,
            Some(narrow) if self.events >= self.pixels / PIXELS_PER_EVENT => {
                let step = self.narrow.base().wrapping_sub(narrow.base()) as u32;
                for cell in cells {
                    *cell = if *cell == 0 { 0 } else { cell.wrapping_add(step) };
                }
                self.narrow = narrow;
                self.events = 0;
            }
            _ => self.widen(),
        }
    }

    /// Goes over to 64 bits, in place.
    fn widen(&mut self) {
        let halves = self.latest.as_mut_slice::<u32>();
        // From the last on: what is written over was read.
        for i in (0..self.pixels).rev() {
            let time: [u32; 2] = bytemuck::cast(self.narrow.time(halves[i]));
            halves[2 * i..][..2].copy_from_slice(&time);
        }
        self.is_wide = true;
    }
}

/// Takes in events. `cell` is what a time is in the surface.
#[inline(always)]
fn take_in<K: log::Kind<Cell: Ord>>(
    latest: &mut [K::Cell],
    log: &mut Log<K>,
    pixels: &[u32],
    times: &[u64],
    cell: impl Fn(u64) -> K::Cell,
) {
    let Some(hot) = hot::pixel(pixels) else {
        for (&pixel, &t) in pixels.iter().zip(times) {
            let latest = &mut latest[pixel as usize];
            *latest = cell(t).max(*latest);
        }
        log.add(pixels, |i| cell(times[i]), None);
        return;
    };
    hot::prefetch(latest, pixels);
    let slots = latest.len() - hot::SLOTS;
    for (i, (&pixel, &t)) in pixels.iter().zip(times).enumerate() {
        let latest = &mut latest[hot::place(hot, slots, i, pixel)];
        *latest = cell(t).max(*latest);
    }
    let (latest, slots) = latest.split_at_mut(slots);
    let at_hot = slots.iter_mut().map(std::mem::take).max().expect("there are slots");
    latest[hot as usize] = at_hot.max(latest[hot as usize]);
    log.add(pixels, |i| cell(times[i]), Some((hot, at_hot)));
}

impl Kernel for TimeSurface {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn needs(&self) -> Needs {
        Needs { t: true, p: false }
    }

    fn accumulate(&mut self, events: Columns<'_>, _latest: u64) -> Result<()> {
        let Columns { t: times, pixel: pixels, .. } = events;
        debug_assert!(pixels.len() <= BLOCK && pixels.len() == times.len());
        if !self.is_wide && !self.narrow.seems_to_have(times) {
            self.make_room(times);
        }
        self.events = self.events.saturating_add(pixels.len());
        if self.is_wide {
            take_in(self.latest.as_mut_slice(), &mut self.wide_log, pixels, times, |t| t);
        } else {
            let narrow = self.narrow;
            let latest = &mut self.latest.as_mut_slice()[..self.pixels + hot::SLOTS];
            take_in(latest, &mut self.log, pixels, times, |t| narrow.cell(t));
        }
        Ok(())
    }

    fn read(&self, out: &mut [u8], _watermark: Option<u64>) -> Result<()> {
        if self.is_wide {
            log::Kind::show(Wide, &self.latest.as_slice()[..self.pixels], out);
        } else {
            log::Kind::show(self.narrow, &self.latest.as_slice()[..self.pixels], out);
        }
        Ok(())
    }

    fn publishes_recipes(&mut self) -> Option<&mut dyn PublishesRecipes> {
        Some(self)
    }

    fn reset(&mut self) -> Result<()> {
        if self.is_wide {
            self.latest.clear();
        } else if self.narrow.base() != TIMESTAMP_LIMIT {
            self.latest.as_mut_slice::<u32>()[..self.pixels].fill(0);
        }
        self.narrow = Narrow::NOWHERE;
        self.is_wide = false;
        self.events = usize::MAX;
        self.log.forget();
        self.wide_log.forget();
        Ok(())
    }
}

impl log::Kind for Narrow {
    type Cell = u32;

    const PAYS: usize = 4;

    #[inline(always)]
    fn apply(latest: u32, cell: u32) -> u32 {
        cell.max(latest)
    }

    fn show(self, cells: &[u32], out: &mut [u8]) {
        from_the_end(bytemuck::cast_slice_mut::<_, u64>(out), cells, |out, cells| {
            out.iter_mut().zip(cells).for_each(|(out, &cell)| *out = self.time(cell));
        });
    }
}

impl log::Kind for Wide {
    type Cell = u64;

    const PAYS: usize = 4;

    #[inline(always)]
    fn apply(latest: u64, t: u64) -> u64 {
        t.max(latest)
    }

    fn show(self, latest: &[u64], out: &mut [u8]) {
        from_the_end(bytemuck::cast_slice_mut(out), latest, |out, latest| out.copy_from_slice(latest));
    }
}

/// A frame to be made, of a surface of whichever width: that of its publication. One is filled in, the other empty.
struct Either {
    narrow: Shown<Narrow>,
    wide: Shown<Wide>,
}

impl Recipe for Either {
    fn make(&self, out: &mut [u8]) -> Result<()> {
        if self.wide.is_filled_in() { self.wide.make(out) } else { self.narrow.make(out) }
    }

    fn empty(&mut self) {
        self.narrow.empty();
        self.wide.empty();
    }
}

impl PublishesRecipes for TimeSurface {
    fn recipe(&self) -> Result<Box<dyn Recipe>> {
        Ok(Box::new(Either { narrow: self.log.recipe(), wide: self.wide_log.recipe() }))
    }

    fn prepare(&mut self) -> Result<()> {
        if !self.is_wide {
            self.log.prepare(self.pixels)?;
        }
        // The call may be the one that leads to it.
        self.wide_log.prepare(self.pixels)
    }

    fn prescribe(&mut self, recipe: &mut dyn Recipe, _watermark: Option<u64>) -> Result<()> {
        let recipe = recipe_of::<Either>(recipe);
        recipe.empty();
        if self.is_wide {
            self.wide_log.prescribe(&mut recipe.wide, Wide, &self.latest.as_slice()[..self.pixels])
        } else {
            self.log.prescribe(&mut recipe.narrow, self.narrow, &self.latest.as_slice()[..self.pixels])
        }
    }

    fn makes_at_once(&mut self, is_wanted: bool) -> bool {
        if self.is_wide { self.wide_log.makes_at_once(is_wanted) } else { self.log.makes_at_once(is_wanted) }
    }

    fn may_make_at_once(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accumulator::Accumulator;
    use crate::engine::{Engine, Options};
    use crate::event::Events;
    use crate::event::tests::packed;
    use crate::kernels::Config;
    use proptest::prelude::*;
    use std::sync::Mutex;
    use std::time::Duration;

    type Event = (u64, u16, u16, u8);

    /// A surface, and what it is to show.
    struct Tried {
        surface: TimeSurface,
        oracle: Vec<u64>,
    }

    impl Tried {
        fn new(width: usize, height: usize) -> Self {
            let sensor = SensorSize::new(width, height).unwrap();
            let surface = TimeSurface::new(Config::TimeSurface.spec(sensor), sensor).unwrap();
            Self { surface, oracle: vec![0; width * height] }
        }

        fn add(&mut self, events: &[(u32, u64)]) {
            for events in events.chunks(BLOCK) {
                let (pixels, times): (Vec<u32>, Vec<u64>) = events.iter().copied().unzip();
                let columns = Columns { t: &times, pixel: &pixels, p: &[] };
                self.surface.accumulate(columns, *range(&times).end()).unwrap();
                for &(pixel, t) in events {
                    self.oracle[pixel as usize] = t.max(self.oracle[pixel as usize]);
                }
            }
            let mut frame = vec![1; self.oracle.len()];
            self.surface.read(bytemuck::cast_slice_mut(&mut frame), None).unwrap();
            assert_eq!(frame, self.oracle);
        }

        fn base(&self) -> Option<u64> {
            (!self.surface.is_wide).then_some(self.surface.narrow.base())
        }
    }

    const START: u64 = 1 << 40;
    const BASE: u64 = START - EARLIER;

    #[test]
    fn times_from_the_base_to_the_farthest_have_cells_and_no_other() {
        for (t, moves) in
            [(BASE, false), (BASE - 1, true), (BASE + FARTHEST, false), (BASE + FARTHEST + 1, true)]
        {
            let mut tried = Tried::new(3, 2);
            tried.add(&[(0, START)]);
            assert_eq!(tried.base(), Some(BASE));
            tried.add(&[(1, t), (0, START + 1)]);
            assert_eq!(tried.base() != Some(BASE), moves, "{t}");
        }
        // All times of a stretch together look as if one was too late, and none is.
        let mut tried = Tried::new(3, 2);
        tried.add(&[(0, START)]);
        tried.add(&[(1, BASE + (1 << 31)), (2, BASE + (1 << 31) - 1)]);
        assert_eq!(tried.base(), Some(BASE));
    }

    #[test]
    fn what_is_within_53_minutes_moves_the_base_and_what_is_not_takes_64_bits() {
        let farthest = FARTHEST - LATER - EARLIER;
        for (t, base) in [
            (BASE - 1, Some(BASE - 1 - EARLIER)),
            (START - farthest, Some(START - farthest - EARLIER)),
            (START - farthest - 1, None),
            (5, None),
            (0, None),
            (START + FARTHEST, None),
            (TIMESTAMP_LIMIT - 1, None),
        ] {
            let mut tried = Tried::new(30, 20);
            tried.add(&[(0, START)]);
            tried.add(&[(599, t)]);
            assert_eq!(tried.base(), base, "{t}");
            tried.add(&[(0, START + 1), (7, 3), (7, 2), (8, 0), (9, TIMESTAMP_LIMIT - 1)]);
            assert_eq!(tried.base(), None);
            tried.surface.reset().unwrap();
            tried.oracle.fill(0);
            tried.add(&[(3, 17)]);
            assert_eq!(tried.base(), Some(0));
        }
        // What counts is what is shown: all of the old was written over.
        let mut tried = Tried::new(3, 2);
        let sweep = |t: u64| (0..6).map(|pixel| (pixel, t + u64::from(pixel))).collect::<Vec<_>>();
        for i in 0..20 {
            let t = START + (i << 30);
            tried.add(&sweep(t));
            assert!(tried.base().is_some_and(|base| (t - FARTHEST..=t).contains(&base)));
        }
    }

    #[test]
    fn a_stream_that_goes_on_moves_the_base_every_13_minutes_at_most() {
        // An event a second at each pixel, for a day; one in a hundred two minutes late, some at a boundary again and again.
        let mut tried = Tried::new(16, 8);
        let (mut moves, mut base) = (0, None);
        for second in 0..86_400u64 {
            let t = START + second * 1_000_000;
            let late = if second % 100 == 7 { 120_000_000 } else { 0 };
            let events: Vec<_> = (0..128).map(|pixel| (pixel, t - late + u64::from(pixel))).collect();
            tried.add(&events);
            if second % 10 == 0 {
                let edge = tried.base().unwrap() + FARTHEST;
                if t + 60_000_000 > edge {
                    tried.add(&[(3, edge - 1), (4, edge), (5, edge - 2)]);
                }
            }
            moves += usize::from(tried.base() != base);
            base = tried.base();
            assert!(base.is_some());
        }
        assert!((20..=24 * 60 / 13).contains(&moves), "{moves}");
    }

    #[test]
    fn passes_over_the_surface_take_no_longer_than_counting() {
        // One pixel that leaps ahead with each event, so that all that is shown always fits.
        let mut tried = Tried::new(64, 40);
        let mut bases = std::collections::BTreeSet::new();
        for i in 0..200 {
            tried.add(&[(7, START + (i << 31))]);
            bases.extend(tried.base());
        }
        // Chosen, and moved once.
        assert_eq!((bases.len(), tried.base()), (2, None));

        // With events between the leaps it pays.
        let mut tried = Tried::new(64, 40);
        for i in 0..20 {
            let sweep: Vec<_> = (0..2560).map(|pixel| (pixel, START + (i << 30))).collect();
            tried.add(&sweep);
            assert!(tried.base().is_some());
        }
    }

    #[test]
    fn what_a_surface_of_64_bits_published_before_a_reset_is_not_shown_after_it() {
        let sensor = SensorSize::new(40, 25).unwrap();
        let options = Options { interval: Duration::ZERO, ..Options::default() };
        let engine: Engine<()> =
            Engine::new(sensor, Config::TimeSurface.build(sensor).unwrap(), options).unwrap();
        let ingest = |call: &[Event]| {
            let _ =
                engine.session("a test", Mutex::lock).unwrap().ingest(Events::packed(&packed(call))).unwrap();
        };
        let publication = || engine.publisher().pool().read().unwrap().lease(engine.publisher().pool());
        ingest(&[(5, 1, 0, 1), (1 << 62, 2, 0, 1)]);
        ingest(&[(9, 3, 0, 1)]);
        let before = publication();
        let _ = engine.session("a test", Mutex::lock).unwrap().reset().unwrap();
        ingest(&[(7, 4, 0, 1)]);
        ingest(&[((1 << 62) + 1, 6, 0, 1)]);
        ingest(&[(8, 1, 1, 1)]);
        let times = |of: &[(usize, u64)]| {
            let mut times = vec![0; 1000];
            of.iter().for_each(|&(pixel, t)| times[pixel] = t);
            times
        };
        for (lease, expected) in [
            (publication(), times(&[(4, 7), (6, (1 << 62) + 1), (41, 8)])),
            (before, times(&[(1, 5), (2, 1 << 62), (3, 9)])),
        ] {
            assert_eq!(lease.frame.memory().unwrap().as_slice::<u64>(), expected);
        }
    }

    proptest! {
        #[test]
        fn cells_are_what_arithmetic_without_bounds_says(
            base in prop::sample::select(vec![0, 1, START, (1 << 62) + 3, TIMESTAMP_LIMIT - 1, TIMESTAMP_LIMIT]),
            steps in prop::collection::vec((prop::sample::select(vec![0, 1 << 31, FARTHEST, -(FARTHEST as i64) as u64]), -3..4i64), 1..20),
        ) {
            let narrow = Narrow::from(base);
            let times: Vec<u64> = steps
                .into_iter()
                .map(|(step, more)| base.wrapping_add(step).wrapping_add_signed(more) % TIMESTAMP_LIMIT)
                .collect();
            let fit = |&t: &u64| (0..(1 << 32) - 1).contains(&(i128::from(t) - i128::from(base)));
            let all = times.iter().all(fit);
            prop_assert!(all || !narrow.seems_to_have(&times));
            prop_assert_eq!(narrow.has(&range(&times)), all);
            for t in times.iter().filter(|t| fit(t)) {
                prop_assert!(narrow.cell(*t) != 0);
                prop_assert_eq!(narrow.time(narrow.cell(*t)), *t);
                prop_assert!(narrow.seems_to_have(&[*t]));
            }
        }
    }

    /// Where a call starts.
    fn starts() -> impl Strategy<Value = u64> {
        let epochs = prop_oneof![
            12 => (0..24u64).prop_map(|i| START + (i << 28)),
            6 => prop::sample::select(vec![
                BASE, BASE + FARTHEST, START - (FARTHEST - LATER - EARLIER), START + (1 << 31), START + (1 << 32),
            ]),
            1 => prop::sample::select(vec![0, 1 << 31, 1 << 32, 1 << 62, TIMESTAMP_LIMIT - 1]),
        ];
        (epochs, -20..20i64).prop_map(|(t, more)| t.saturating_add_signed(more))
    }

    /// A call from `start` on.
    fn call(start: u64, kind: u8, width: usize, height: usize, few: &[(u8, u8)]) -> Vec<Event> {
        let at = |pixel: usize, t: u64| {
            (t.min(TIMESTAMP_LIMIT - 1), (pixel % width) as u16, (pixel / width % height) as u16, 1)
        };
        match kind {
            // All pixels.
            0..3 => (0..width * height).map(|pixel| at(pixel, start + pixel as u64 % 7)).collect(),
            // Most at one pixel.
            3 => (0..200).map(|i| at(if i % 5 == 0 { i } else { 5 }, start + 31 * i as u64 % 60)).collect(),
            _ => few
                .iter()
                .map(|&(pixel, more)| at(usize::from(pixel) * 11, start + u64::from(more)))
                .collect(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Whatever the times, what is read and what was published is the latest time of each pixel, whenever it is looked at.
        #[test]
        fn the_latest_time_of_each_pixel_is_shown(
            large in any::<bool>(),
            calls in prop::collection::vec(
                (starts(), 0..12u8, prop::collection::vec((0..250u8, 0..40u8), 0..12), 0..25u8, any::<bool>(), 0..4usize),
                1..30,
            ),
        ) {
            let (width, height) = if large { (40, 25) } else { (3, 2) };
            let sensor = SensorSize::new(width, height).unwrap();
            let options = Options { interval: Duration::ZERO, keep: 2, guard: false };
            let build = || Config::TimeSurface.build(sensor).unwrap();
            let engine: Engine<()> = Engine::new(sensor, build(), options).unwrap();
            let mut accumulator = Accumulator::new(sensor, build());
            let mut oracle = vec![0u64; width * height];
            let mut held = Vec::new();
            for (start, kind, few, reset, looks, keep) in calls {
                let events = call(start, kind, width, height, &few);
                let bytes = packed(&events);
                let mut session = engine.session("a test", Mutex::lock).unwrap();
                if reset == 0 {
                    let _ = session.reset().unwrap();
                    accumulator.reset().unwrap();
                    oracle.fill(0);
                }
                let _ = session.ingest(Events::packed(&bytes)).unwrap();
                drop(session);
                accumulator.accumulate(Events::packed(&bytes)).unwrap();
                for &(t, x, y, _) in &events {
                    let latest = &mut oracle[usize::from(y) * width + usize::from(x)];
                    *latest = t.max(*latest);
                }
                let mut frame = vec![1u64; oracle.len()];
                accumulator.kernel().read(bytemuck::cast_slice_mut(&mut frame), None).unwrap();
                prop_assert_eq!(&frame, &oracle);
                let lease = engine.publisher().pool().read().unwrap().lease(engine.publisher().pool());
                if looks {
                    prop_assert_eq!(lease.frame.memory().unwrap().as_slice::<u64>(), &oracle[..]);
                }
                held.push((lease, oracle.clone()));
                while held.len() > keep {
                    let (lease, times) = held.remove(0);
                    prop_assert_eq!(lease.frame.memory().unwrap().as_slice::<u64>(), &times[..]);
                }
            }
            for (lease, times) in held {
                prop_assert_eq!(lease.frame.memory().unwrap().as_slice::<u64>(), &times[..]);
            }
        }
    }
}
