//! Kernels with a time axis: bins of absolute event time, of which the last completed ones are shown.
//!
//! Bin `q` is `[q * bin_us, (q + 1) * bin_us)`. Both kernels keep the bin in progress and as many before it
//! as can still be shown, each in the slot `q % slots` of a ring. A stretch of events first moves the ring to
//! its own latest time, then adds its events: what is too late for the ring could not be shown any more, in
//! whatever order events had come. So order and batching cannot change anything.

use super::{Kernel, STATE};
use crate::error::Result;
use crate::event::Columns;
use crate::geometry::SensorSize;
use crate::publish::{Memory, Spec};

/// Which bins a ring of planes holds.
struct Ring {
    slots: u64,
    bin_us: u64,
    /// The bin in progress: the latest that can hold anything.
    newest: Option<u64>,
}

impl Ring {
    fn new(slots: usize, bin_us: u64) -> Self {
        Self { slots: slots as u64, bin_us, newest: None }
    }

    /// Whether bin `q` has a slot.
    fn holds(&self, q: u64) -> bool {
        self.newest.is_some_and(|newest| q <= newest && newest - q < self.slots)
    }

    fn slot(&self, q: u64) -> usize {
        (q % self.slots) as usize
    }

    /// Moves on to the bin of `watermark`; `clear` is called with the slots of the bins that come in.
    fn advance(&mut self, watermark: u64, mut clear: impl FnMut(usize)) {
        let newest = watermark / self.bin_us;
        if let Some(before) = self.newest {
            let coming = newest.saturating_sub(before).min(self.slots);
            for back in 0..coming {
                clear(self.slot(newest - back));
            }
            self.newest = Some(newest.max(before));
        } else {
            // Nothing was ever written: all slots are clear.
            self.newest = Some(newest);
        }
    }

    /// A lookup that remembers the last bin, as neighbours in a stream are mostly in the same one.
    fn cursor(&self) -> Cursor<'_> {
        Cursor { ring: self, start: 0, width: 0, slot: None }
    }
}

struct Cursor<'a> {
    ring: &'a Ring,
    start: u64,
    width: u64,
    slot: Option<usize>,
}

impl Cursor<'_> {
    /// The slot of the bin of `t`, if the ring holds it, and how far into the bin `t` is.
    #[inline(always)]
    fn find(&mut self, t: u64) -> (Option<usize>, u64) {
        let into = t.wrapping_sub(self.start);
        if into < self.width { (self.slot, into) } else { self.seek(t) }
    }

    #[inline(never)]
    fn seek(&mut self, t: u64) -> (Option<usize>, u64) {
        let q = t / self.ring.bin_us;
        self.start = q * self.ring.bin_us;
        self.width = self.ring.bin_us;
        self.slot = self.ring.holds(q).then(|| self.ring.slot(q));
        (self.slot, t - self.start)
    }
}

/// `(2, bins, H, W)` uint32: +1 per event in its polarity and time bin, modulo 2^32.
pub struct StackedHistogram {
    spec: Spec,
    pixels: usize,
    bins: usize,
    ring: Ring,
    /// `[slot][polarity][pixel]`, one slot more than bins are shown: the bin in progress.
    counts: Memory,
}

impl StackedHistogram {
    pub fn new(spec: Spec, sensor: SensorSize, bins: usize, bin_us: u64) -> Result<Self> {
        let pixels = sensor.pixels();
        let slots = bins.checked_add(1);
        let count = slots.and_then(|slots| slots.checked_mul(2)).and_then(|n| n.checked_mul(pixels));
        let counts = Memory::zeroed_for::<u32>(STATE, count)?;
        Ok(Self { spec, pixels, bins, ring: Ring::new(bins + 1, bin_us), counts })
    }
}

impl Kernel for StackedHistogram {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn accumulate(&mut self, events: Columns<'_>, latest: u64) -> Result<()> {
        let pixels = self.pixels;
        let counts = self.counts.as_mut_slice::<u32>();
        self.ring.advance(latest, |slot| counts[slot * 2 * pixels..][..2 * pixels].fill(0));
        let mut cursor = self.ring.cursor();
        for ((&pixel, &t), &p) in events.pixel.iter().zip(events.t).zip(events.p) {
            if let (Some(slot), _) = cursor.find(t) {
                let plane = 2 * slot + usize::from(p != 0);
                let count = &mut counts[plane * pixels + pixel as usize];
                *count = count.wrapping_add(1);
            }
        }
        Ok(())
    }

    fn read(&self, out: &mut [u8], watermark: Option<u64>) -> Result<()> {
        let Some(watermark) = watermark else {
            out.fill(0);
            return Ok(());
        };
        let (pixels, bins) = (self.pixels, self.bins);
        let now = watermark / self.ring.bin_us;
        let counts = self.counts.as_slice::<u32>();
        let out = bytemuck::cast_slice_mut::<_, u32>(out);
        for j in 0..bins {
            let bin = now.checked_sub((bins - j) as u64).filter(|&q| self.ring.holds(q));
            for polarity in 0..2 {
                let out = &mut out[(polarity * bins + j) * pixels..][..pixels];
                match bin {
                    Some(q) => {
                        let plane = 2 * self.ring.slot(q) + polarity;
                        out.copy_from_slice(&counts[plane * pixels..][..pixels]);
                    }
                    None => out.fill(0),
                }
            }
        }
        Ok(())
    }

    fn reset(&mut self) -> Result<()> {
        self.ring.newest = None;
        self.counts.clear();
        Ok(())
    }
}

/// `(bins, H, W)` float32: ±1 per event, split linearly between the two knots around its time (the event
/// volume of Zhu et al., CVPR 2019, on a fixed time grid).
///
/// Knot `k` is at `k * bin_us`. An event at `q * bin_us + r` adds `s * (bin_us - r)` to knot `q` and `s * r`
/// to knot `q + 1`. The two are kept apart, per bin: the first knot shown counts only what bins on its right
/// gave it, the last only what bins on its left did.
pub struct VoxelGrid {
    spec: Spec,
    pixels: usize,
    bins: usize,
    ring: Ring,
    /// `[slot][pixel]`: what the bin's events add to the knot at its start and to the one at its end, times
    /// `bin_us`. `bins` slots: the `bins - 1` completed bins between the knots shown, and the one in
    /// progress.
    shares: Memory,
}

/// Share of the knot at the bin's start, share of the knot at its end.
type Shares = [i64; 2];

impl VoxelGrid {
    pub fn new(spec: Spec, sensor: SensorSize, bins: usize, bin_us: u64) -> Result<Self> {
        let pixels = sensor.pixels();
        let shares = Memory::zeroed_for::<Shares>(STATE, bins.checked_mul(pixels))?;
        Ok(Self { spec, pixels, bins, ring: Ring::new(bins, bin_us), shares })
    }
}

impl Kernel for VoxelGrid {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn accumulate(&mut self, events: Columns<'_>, latest: u64) -> Result<()> {
        let (pixels, bin_us) = (self.pixels, self.ring.bin_us as i64);
        let shares = self.shares.as_mut_slice::<Shares>();
        self.ring.advance(latest, |slot| shares[slot * pixels..][..pixels].fill([0; 2]));
        let mut cursor = self.ring.cursor();
        for ((&pixel, &t), &p) in events.pixel.iter().zip(events.t).zip(events.p) {
            if let (Some(slot), into) = cursor.find(t) {
                // Below 2^28 in size, so only the sums can wrap.
                let (sign, into) = (if p != 0 { 1 } else { -1 }, into as i64);
                let [start, end] = &mut shares[slot * pixels + pixel as usize];
                *start = start.wrapping_add(sign * (bin_us - into));
                *end = end.wrapping_add(sign * into);
            }
        }
        Ok(())
    }

    fn read(&self, out: &mut [u8], watermark: Option<u64>) -> Result<()> {
        let Some(watermark) = watermark else {
            out.fill(0);
            return Ok(());
        };
        let (pixels, bins) = (self.pixels, self.bins);
        let now = watermark / self.ring.bin_us;
        let bin_us = self.ring.bin_us as f64;
        let shares = self.shares.as_slice::<Shares>();
        let held = |q: Option<u64>| {
            q.filter(|&q| self.ring.holds(q)).map(|q| &shares[self.ring.slot(q) * pixels..][..pixels])
        };
        let out = bytemuck::cast_slice_mut::<_, f32>(out);
        for (j, out) in out.chunks_exact_mut(pixels).enumerate() {
            // Knot `now - (bins - 1 - j)` is the end of the bin before it and the start of the bin of its own
            // number.
            let ahead = (bins - 1 - j) as u64;
            let after = held(if ahead > 0 { now.checked_sub(ahead) } else { None });
            let before = held(if j > 0 { now.checked_sub(ahead + 1) } else { None });
            let value = |numerator: i64| (numerator as f64 / bin_us) as f32;
            match (before, after) {
                (Some(before), Some(after)) => {
                    for ((out, before), after) in out.iter_mut().zip(before).zip(after) {
                        *out = value(before[1].wrapping_add(after[0]));
                    }
                }
                (Some(before), None) => {
                    out.iter_mut().zip(before).for_each(|(out, before)| *out = value(before[1]));
                }
                (None, Some(after)) => {
                    out.iter_mut().zip(after).for_each(|(out, after)| *out = value(after[0]));
                }
                (None, None) => out.fill(0.0),
            }
        }
        Ok(())
    }

    fn reset(&mut self) -> Result<()> {
        self.ring.newest = None;
        self.shares.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn histogram_counts_wrap() {
        let sensor = SensorSize::new(1, 1).unwrap();
        let config = Config::StackedHistogram { bins: 1, bin_us: 10 };
        let mut kernel = StackedHistogram::new(config.spec(sensor), sensor, 1, 10).unwrap();
        kernel.ring.newest = Some(0);
        kernel.counts.as_mut_slice::<u32>().fill(u32::MAX);
        kernel.accumulate(Columns { t: &[3, 4], pixel: &[0, 0], p: &[0, 0] }, 4).unwrap();
        let mut out = [0u32; 2];
        kernel.read(bytemuck::cast_slice_mut(&mut out), Some(10)).unwrap();
        assert_eq!(out, [1, u32::MAX]);
    }

    #[test]
    fn voxel_numerators_wrap_and_are_read_as_signed() {
        let sensor = SensorSize::new(1, 1).unwrap();
        let config = Config::VoxelGrid { bins: 3, bin_us: 10 };
        let mut kernel = VoxelGrid::new(config.spec(sensor), sensor, 3, 10).unwrap();
        kernel.ring.newest = Some(1);
        kernel.shares.as_mut_slice::<Shares>().fill([i64::MAX - 1, i64::MAX - 1]);
        // Bin 0 gets 7 and 3, bin 1 gets 10 and 0.
        kernel.accumulate(Columns { t: &[3, 10], pixel: &[0, 0], p: &[1, 1] }, 10).unwrap();
        let mut out = [0f32; 3];
        kernel.read(bytemuck::cast_slice_mut(&mut out), Some(20)).unwrap();
        let value = |numerator: i128| (((numerator as i64) as f64) / 10.0) as f32;
        let max = i128::from(i64::MAX) - 1;
        assert_eq!(out, [value(max + 7), value(2 * max + 3 + 10), value(max)]);
    }
}
