//! The surface of latest times (the time surface before any decay; Lagorce et al., HOTS, TPAMI 2017).

use super::recent::Recent;
use super::{Kernel, STATE, hot};
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
    recent: Recent,
}

impl TimeSurface {
    pub fn new(spec: Spec, sensor: SensorSize) -> Result<Self> {
        let pixels = sensor.pixels();
        let latest = Memory::zeroed_for::<u64>(STATE, pixels.checked_add(hot::SLOTS))?;
        Ok(Self { spec, pixels, latest, recent: Recent::default() })
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
        self.recent.add(events.pixel);
        let latest = self.latest.as_mut_slice::<u64>();
        let Some(hot) = hot::pixel(pixels) else {
            for (&pixel, &t) in pixels.iter().zip(times) {
                let latest = &mut latest[pixel as usize];
                *latest = t.max(*latest);
            }
            return Ok(());
        };
        hot::prefetch(latest, pixels);
        for (i, (&pixel, &t)) in pixels.iter().zip(times).enumerate() {
            let latest = &mut latest[hot::place(hot, self.pixels, i, pixel)];
            *latest = t.max(*latest);
        }
        let (latest, slots) = latest.split_at_mut(self.pixels);
        let latest = &mut latest[hot as usize];
        slots.iter_mut().for_each(|slot| *latest = std::mem::take(slot).max(*latest));
        Ok(())
    }

    fn read(&self, out: &mut [u8], _watermark: Option<u64>) -> Result<()> {
        out.copy_from_slice(bytemuck::cast_slice(self.shown()));
        Ok(())
    }

    fn publish(&mut self, mut spare: Memory, _watermark: Option<u64>) -> Result<Memory> {
        let state = &self.latest.as_slice()[..self.pixels];
        self.recent.publish::<u64>(state, &mut spare);
        Ok(spare)
    }

    fn reset(&mut self) -> Result<()> {
        self.latest.clear();
        self.recent.forget();
        Ok(())
    }
}
