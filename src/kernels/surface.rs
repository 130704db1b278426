//! The surface of latest times (the time surface before any decay; Lagorce et al., HOTS, TPAMI 2017).

use super::log::{self, Log, Logged};
use super::{Kernel, PublishesRecipes, STATE, hot};
use crate::error::Result;
use crate::event::{Columns, Needs};
use crate::geometry::SensorSize;
use crate::publish::{Memory, Spec};

/// `(H, W)` uint64: the largest `t` seen at each pixel; 0 where there was none.
pub struct TimeSurface {
    spec: Spec,
    pixels: usize,
    /// One for each pixel, and the slots for a hot one, which are 0 between calls.
    latest: Memory,
    log: Log<Shown>,
}

impl TimeSurface {
    pub fn new(spec: Spec, sensor: SensorSize) -> Result<Self> {
        let pixels = sensor.pixels();
        let latest = Memory::zeroed_for::<u64>(STATE, pixels.checked_add(hot::SLOTS))?;
        Ok(Self { spec, pixels, latest, log: Log::new(pixels) })
    }

    /// The surface, without the slots.
    fn shown(&self) -> &[u64] {
        &self.latest.as_slice()[..self.pixels]
    }
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
        let latest = self.latest.as_mut_slice::<u64>();
        let Some(hot) = hot::pixel(pixels) else {
            for (&pixel, &t) in pixels.iter().zip(times) {
                let latest = &mut latest[pixel as usize];
                *latest = t.max(*latest);
            }
            self.log.add(pixels, |i| times[i], None);
            return Ok(());
        };
        hot::prefetch(latest, pixels);
        for (i, (&pixel, &t)) in pixels.iter().zip(times).enumerate() {
            let latest = &mut latest[hot::place(hot, self.pixels, i, pixel)];
            *latest = t.max(*latest);
        }
        let (latest, slots) = latest.split_at_mut(self.pixels);
        let at_hot = slots.iter_mut().map(std::mem::take).fold(0, u64::max);
        latest[hot as usize] = at_hot.max(latest[hot as usize]);
        self.log.add(pixels, |i| times[i], Some((hot, at_hot)));
        Ok(())
    }

    fn read(&self, out: &mut [u8], _watermark: Option<u64>) -> Result<()> {
        out.copy_from_slice(bytemuck::cast_slice(self.shown()));
        Ok(())
    }

    fn publishes_recipes(&mut self) -> Option<&mut dyn PublishesRecipes> {
        Some(self)
    }

    fn reset(&mut self) -> Result<()> {
        self.latest.clear();
        self.log.forget();
        Ok(())
    }
}

/// The latest times as they are.
#[derive(Clone, Copy)]
pub struct Shown;

impl log::Kind for Shown {
    const PAYS: usize = 4;

    #[inline(always)]
    fn apply(latest: u64, t: u64) -> u64 {
        t.max(latest)
    }

    fn show(self, latest: &[u64], out: &mut [u8]) {
        out.copy_from_slice(bytemuck::cast_slice(latest));
    }
}

impl Logged for TimeSurface {
    type Kind = Shown;

    fn log(&self) -> &Log<Shown> {
        &self.log
    }

    fn parts(&mut self, _watermark: Option<u64>) -> (&mut Log<Shown>, Shown, &[u64]) {
        (&mut self.log, Shown, &self.latest.as_slice()[..self.pixels])
    }
}
