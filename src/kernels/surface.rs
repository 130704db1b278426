//! The surface of latest times (the time surface before any decay; Lagorce et al., HOTS, TPAMI 2017).
//!
//! Times take 64 bits, and what is in memory is what counting and publishing wait for. So the surface is kept in 32 bits a pixel,
//! relative to a base that is chosen at the first event, which is enough for 71 minutes. Where a time comes that is before the
//! base or too long after it, the base is moved (one pass). Where that does not help, as what is shown is too far apart, or where
//! it was moved not long ago, the surface goes over to 64 bits, and stays so until it is reset.

use super::log::{self, Log, Shown};
use super::{Kernel, PublishesRecipes, STATE, hot};
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

/// The times from `base` on, counted from 1; 0 is none.
#[derive(Clone, Copy)]
pub struct Narrow {
    base: u64,
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
    const NOWHERE: Self = Self { base: TIMESTAMP_LIMIT };

    /// For a surface of these times; `None` if they are too far apart.
    fn around(times: &RangeInclusive<u64>) -> Option<Self> {
        let base = times.start().saturating_sub(EARLIER);
        (times.end() - base <= FARTHEST - LATER).then_some(Self { base })
    }

    /// Whether all of the times have cells. It may say no where one is near the end.
    #[inline(always)]
    fn seems_to_have(self, times: &[u64]) -> bool {
        times.iter().fold(0, |any, t| any | t.wrapping_sub(self.base)) <= FARTHEST
    }

    fn has(self, times: &RangeInclusive<u64>) -> bool {
        *times.start() >= self.base && times.end() - self.base <= FARTHEST
    }

    /// The cell of a time that has one.
    #[inline(always)]
    fn cell(self, t: u64) -> u32 {
        t.wrapping_sub(self.base).wrapping_add(1) as u32
    }

    #[inline(always)]
    fn time(self, cell: u32) -> u64 {
        if cell == 0 { 0 } else { self.base.wrapping_add(u64::from(cell)).wrapping_sub(1) }
    }

    /// The earliest and the latest time of a surface.
    fn range(self, cells: &[u32]) -> Option<RangeInclusive<u64>> {
        let latest = cells.iter().fold(0, |latest, &cell| cell.max(latest));
        // Those of no time become the largest.
        let earliest = cells.iter().fold(u32::MAX, |earliest, cell| cell.wrapping_sub(1).min(earliest));
        (latest > 0).then(|| self.base + u64::from(earliest)..=self.time(latest))
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
        let old = (self.narrow.base != TIMESTAMP_LIMIT).then(|| self.narrow.range(cells)).flatten();
        let is_new = old.is_none();
        let all = old.map_or(new.clone(), |old| *old.start().min(new.start())..=*old.end().max(new.end()));
        match Narrow::around(&all) {
            Some(narrow) if is_new => self.narrow = narrow,
            Some(narrow) if self.events >= self.pixels / PIXELS_PER_EVENT => {
                let step = self.narrow.base.wrapping_sub(narrow.base) as u32;
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
        } else if self.narrow.base != TIMESTAMP_LIMIT {
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
        for (out, &cell) in bytemuck::cast_slice_mut(out).iter_mut().zip(cells) {
            *out = self.time(cell);
        }
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
        out.copy_from_slice(bytemuck::cast_slice(latest));
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
        let recipe = log::recipe_of::<Either>(recipe);
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
