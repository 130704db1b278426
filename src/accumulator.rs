//! Events into one kernel, synchronously: what `Accumulator` is, and the heart of `Engine`.

use crate::error::{Error, Result};
use crate::event::{Block, Call, Events, Found};
use crate::geometry::SensorSize;
use crate::kernels::Kernel;

/// A kernel, the watermark and the counts that go with it.
pub struct Accumulator {
    sensor: SensorSize,
    kernel: Box<dyn Kernel>,
    block: Block,
    watermark: Option<u64>,
    out_of_bounds: u64,
}

impl Accumulator {
    /// Wraps a kernel made for `sensor`.
    pub fn new(sensor: SensorSize, kernel: Box<dyn Kernel>) -> Self {
        Self { sensor, kernel, block: Block::default(), watermark: None, out_of_bounds: 0 }
    }

    /// Takes a call in, or rejects it whole: where a timestamp is out of range, nothing changes.
    pub fn accumulate(&mut self, events: Events<'_>) -> Result<Found> {
        let Self { kernel, block, watermark, sensor, .. } = self;
        let needs = kernel.needs();
        let found = if let Some(kernel) = kernel.retracts() {
            kernel.in_one_pass(events, *sensor, block)?
        } else {
            let out_of_range = |t| Error::Timestamp { t };
            let mut call = Call::check(events, *sensor, block, needs).map_err(out_of_range)?;
            kernel.begin_call()?;
            if let Some(whole) = kernel.whole_calls() {
                let found = call.count();
                if let Some(latest) = found.latest {
                    whole.accumulate(call.events(), found, watermark.map_or(latest, |w| w.max(latest)))?;
                }
                found
            } else {
                call.for_each_block(|columns, latest| kernel.accumulate(columns, latest))?
            }
        };
        self.watermark = (*watermark).max(found.latest);
        self.out_of_bounds += found.out_of_bounds;
        Ok(found)
    }

    /// The kernel.
    pub fn kernel(&self) -> &dyn Kernel {
        &*self.kernel
    }

    /// The kernel, to publish from.
    pub fn kernel_mut(&mut self) -> &mut dyn Kernel {
        &mut *self.kernel
    }

    /// The largest in-bounds timestamp so far.
    pub fn watermark(&self) -> Option<u64> {
        self.watermark
    }

    /// Out-of-bounds events so far.
    pub fn out_of_bounds(&self) -> u64 {
        self.out_of_bounds
    }

    /// Back to the state of a new accumulator.
    pub fn reset(&mut self) -> Result<()> {
        self.kernel.reset()?;
        self.watermark = None;
        self.out_of_bounds = 0;
        Ok(())
    }
}
