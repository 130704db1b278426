//! Counts that fade: per call, or in event time.
//!
//! Both keep what they hold relative to a moving scale, so that fading everything is one multiplication and
//! not a pass over the sensor. Both bring the scale back (one pass) long before a float64 could run out of
//! exponent. A float64 result that is rounded to float32 once has room for about 2^29 float64 roundings
//! before it can be off by more than one unit in the last place.

use super::exp::Weights;
use super::hot;
use super::log::{self, Log, Logged};
use super::stores::from_the_end;
use super::{Kernel, PublishesRecipes, STATE};
use crate::error::Result;
use crate::event::{BLOCK, Columns, Isa, Needs};
use crate::geometry::SensorSize;
use crate::publish::{Memory, Spec};

/// A value for each pixel, and the slots for a hot one, which are 0 between calls.
fn state(sensor: SensorSize) -> Result<Memory> {
    Memory::zeroed_for::<f64>(STATE, sensor.pixels().checked_add(hot::SLOTS))
}

/// The pixels' values as bits, without the slots.
fn shown(stored: &Memory) -> &[u64] {
    let stored = stored.as_slice();
    &stored[..stored.len() - hot::SLOTS]
}

/// Adds `weight(i)` at the pixel of each event `i`.
#[inline(always)]
fn add(stored: &mut Memory, log: &mut Log<Scaled>, pixels: &[u32], weight: impl Fn(usize) -> f64) {
    let sums = stored.as_mut_slice::<f64>();
    let Some(hot) = hot::pixel(pixels) else {
        for (i, &pixel) in pixels.iter().enumerate() {
            sums[pixel as usize] += weight(i);
        }
        log.add(pixels, |i| weight(i).to_bits(), None);
        return;
    };
    hot::prefetch(sums, pixels);
    let slots = sums.len() - hot::SLOTS;
    for (i, &pixel) in pixels.iter().enumerate() {
        sums[hot::place(hot, slots, i, pixel)] += weight(i);
    }
    let (sums, slots) = sums.split_at_mut(slots);
    let at_hot = slots.iter_mut().map(std::mem::take).sum::<f64>();
    sums[hot as usize] += at_hot;
    log.add(pixels, |i| weight(i).to_bits(), Some((hot, at_hot.to_bits())));
}

fn rescale(stored: &mut Memory, log: &mut Log<Scaled>, factor: f64) {
    log.forget();
    for value in stored.as_mut_slice::<f64>() {
        *value *= factor;
    }
}

fn read_scaled(stored: &[f64], out: &mut [u8], factor: f64) {
    let out = bytemuck::cast_slice_mut::<_, f32>(out);
    from_the_end(out, &stored[..out.len()], |out, stored| {
        out.iter_mut().zip(stored).for_each(|(out, &value)| *out = (value * factor) as f32);
    });
}

/// What is stored, times this.
#[derive(Clone, Copy)]
pub struct Scaled(f64);

impl log::Kind for Scaled {
    type Cell = u64;

    /// The frame has half the bytes of the state.
    const PAYS: usize = 8;

    #[inline(always)]
    fn apply(sum: u64, weight: u64) -> u64 {
        (f64::from_bits(sum) + f64::from_bits(weight)).to_bits()
    }

    fn show(self, stored: &[u64], out: &mut [u8]) {
        read_scaled(bytemuck::cast_slice(stored), out, self.0);
    }
}

/// `(H, W)` float32: +1 per event; everything is multiplied by `decay` at the start of each call.
///
/// The surface is `stored * scale`. A call multiplies `scale` by `decay`, and its events add `1 / scale`.
pub struct ExpDecay {
    spec: Spec,
    decay: f64,
    stored: Memory,
    log: Log<Scaled>,
    scale: f64,
}

/// Below this the scale is brought back to 1. Stored values then reach 1e100 times a count, far from
/// overflow.
const SMALLEST_SCALE: f64 = 1e-100;

impl ExpDecay {
    pub fn new(spec: Spec, sensor: SensorSize, decay: f64) -> Result<Self> {
        Ok(Self { spec, decay, stored: state(sensor)?, log: Log::new(sensor.pixels()), scale: 1.0 })
    }
}

impl Kernel for ExpDecay {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn begin_call(&mut self) -> Result<()> {
        self.scale *= self.decay;
        if self.scale < SMALLEST_SCALE {
            rescale(&mut self.stored, &mut self.log, self.scale);
            self.scale = 1.0;
        }
        Ok(())
    }

    fn needs(&self) -> Needs {
        Needs::PIXELS
    }

    fn accumulate(&mut self, Columns { pixel: pixels, .. }: Columns<'_>, _latest: u64) -> Result<()> {
        let one = 1.0 / self.scale;
        add(&mut self.stored, &mut self.log, pixels, |_| one);
        Ok(())
    }

    fn read(&self, out: &mut [u8], _watermark: Option<u64>) -> Result<()> {
        read_scaled(self.stored.as_slice(), out, self.scale);
        Ok(())
    }

    fn publishes_recipes(&mut self) -> Option<&mut dyn PublishesRecipes> {
        Some(self)
    }

    fn reset(&mut self) -> Result<()> {
        self.stored.clear();
        self.log.forget();
        self.scale = 1.0;
        Ok(())
    }
}

impl Logged for ExpDecay {
    type Kind = Scaled;

    fn log(&self) -> &Log<Scaled> {
        &self.log
    }

    fn parts(&mut self, _watermark: Option<u64>) -> (&mut Log<Scaled>, Scaled, &[u64]) {
        (&mut self.log, Scaled(self.scale), shown(&self.stored))
    }
}

/// `(H, W)` float32: `D(T) = sum exp(-(T - t_i) / tau_us)` at the watermark `T`.
///
/// Stored is the sum at a reference time `r` instead: an event adds `exp((t_i - r) / tau_us)`, and the frame
/// is the stored sum times `exp(-(T - r) / tau_us)`. Times are subtracted as integers, so their size does not
/// matter.
pub struct TimestampDecay {
    spec: Spec,
    tau_us: f64,
    weights: Weights,
    stored: Memory,
    log: Log<Scaled>,
    reference: Option<u64>,
}

/// How many time constants the watermark may be ahead of the reference. At 300, `exp` stays below 1e131 and
/// the smallest contribution that a float32 can show (1e-45) is still 1e-45 in the sum: nothing over- or
/// underflows.
const FARTHEST: f64 = 300.0;

impl TimestampDecay {
    pub fn new(spec: Spec, sensor: SensorSize, tau_us: f64) -> Result<Self> {
        let weights = Weights::new(Isa::chosen_or_scalar());
        let (stored, log) = (state(sensor)?, Log::new(sensor.pixels()));
        Ok(Self { spec, tau_us, weights, stored, log, reference: None })
    }
}

/// `exp((to - from) / tau_us)`, with the difference taken exactly.
#[inline]
fn exp_between(from: u64, to: u64, tau_us: f64) -> f64 {
    let distance = to.abs_diff(from) as f64 / tau_us;
    (if to < from { -distance } else { distance }).exp()
}

impl TimestampDecay {
    /// What the stored sums are multiplied by at `watermark`.
    fn factor(&self, watermark: Option<u64>) -> f64 {
        self.reference.zip(watermark).map_or(0.0, |(reference, watermark)| {
            // Nothing is asked of a time before the events; this keeps it from running out of exponent.
            exp_between(watermark.max(reference), reference, self.tau_us)
        })
    }
}

impl Kernel for TimestampDecay {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn needs(&self) -> Needs {
        Needs { t: true, p: false }
    }

    fn accumulate(&mut self, events: Columns<'_>, latest: u64) -> Result<()> {
        let reference = match self.reference {
            Some(r) if (latest.saturating_sub(r) as f64) <= FARTHEST * self.tau_us => r,
            Some(r) => {
                let factor = exp_between(latest, r, self.tau_us);
                rescale(&mut self.stored, &mut self.log, factor);
                latest
            }
            None => latest,
        };
        self.reference = Some(reference);

        let Columns { t: times, pixel: pixels, .. } = events;
        debug_assert!(pixels.len() <= BLOCK && pixels.len() == times.len());
        let mut weights = [0.0; BLOCK];
        // The inverse of the smallest time constants is infinite, which times 0 would be no number.
        let per_us = self.tau_us.recip().min(f64::MAX);
        self.weights.fill(&mut weights, times, reference, per_us);
        add(&mut self.stored, &mut self.log, pixels, |i| weights[i % BLOCK]);
        Ok(())
    }

    fn read(&self, out: &mut [u8], watermark: Option<u64>) -> Result<()> {
        read_scaled(self.stored.as_slice(), out, self.factor(watermark));
        Ok(())
    }

    fn publishes_recipes(&mut self) -> Option<&mut dyn PublishesRecipes> {
        Some(self)
    }

    fn reset(&mut self) -> Result<()> {
        self.stored.clear();
        self.log.forget();
        self.reference = None;
        Ok(())
    }
}

impl Logged for TimestampDecay {
    type Kind = Scaled;

    fn log(&self) -> &Log<Scaled> {
        &self.log
    }

    fn parts(&mut self, watermark: Option<u64>) -> (&mut Log<Scaled>, Scaled, &[u64]) {
        let factor = self.factor(watermark);
        (&mut self.log, Scaled(factor), shown(&self.stored))
    }
}
