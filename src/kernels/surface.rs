//! The surface of latest times (the time surface before any decay; Lagorce et al., HOTS, TPAMI 2017).

use super::recent::Recent;
use super::{Kernel, STATE, hot};
use crate::error::Result;
use crate::event::{Columns, Needs};
use crate::publish::{Memory, Spec};

/// `(H, W)` uint64: the largest `t` seen at each pixel; 0 where there was none.
pub struct TimeSurface {
    spec: Spec,
    latest: Memory,
    recent: Recent,
}

impl TimeSurface {
    pub fn new(spec: Spec) -> Result<Self> {
        Ok(Self { latest: Memory::zeroed(STATE, spec.bytes())?, spec, recent: Recent::default() })
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
        let mut one = |pixel: u32, t: u64| {
            let latest = &mut latest[pixel as usize];
            *latest = t.max(*latest);
        };
        if let Some(hot) = hot::pixel(pixels) {
            let mut latest = 0;
            hot::apart(
                hot,
                pixels,
                times,
                |t, is_hot| latest = latest.max(if is_hot { t } else { 0 }),
                &mut one,
            );
            one(hot, latest);
        } else {
            pixels.iter().zip(times).for_each(|(&pixel, &t)| one(pixel, t));
        }
        Ok(())
    }

    fn read(&self, out: &mut [u8], _watermark: Option<u64>) -> Result<()> {
        out.copy_from_slice(self.latest.bytes());
        Ok(())
    }

    fn publish(&mut self, mut spare: Memory, _watermark: Option<u64>) -> Result<Memory> {
        self.recent.publish(self.latest.as_slice::<u64>(), &mut spare);
        Ok(spare)
    }

    fn reset(&mut self) -> Result<()> {
        self.latest.clear();
        self.recent.forget();
        Ok(())
    }
}
