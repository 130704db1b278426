//! Windowed counts. The memory they count into is the frame that is published; counting goes on in a cleared
//! spare.

use super::{Kernel, STATE};
use crate::error::Result;
use crate::event::Columns;
use crate::publish::{Memory, Spec};

/// `(H, W)` uint32: +1 per event, modulo 2^32.
pub struct EventCount {
    spec: Spec,
    counts: Memory,
}

impl EventCount {
    pub fn new(spec: Spec) -> Result<Self> {
        Ok(Self { counts: Memory::zeroed(STATE, spec.bytes())?, spec })
    }
}

/// `(H, W, 2)` uint32: +1 per event in channel 0 (OFF) or 1 (ON), modulo 2^32.
pub struct Polarity {
    spec: Spec,
    counts: Memory,
}

impl Polarity {
    pub fn new(spec: Spec) -> Result<Self> {
        Ok(Self { counts: Memory::zeroed(STATE, spec.bytes())?, spec })
    }
}

fn hand_over(counts: &mut Memory, mut spare: Memory) -> Memory {
    spare.clear();
    std::mem::replace(counts, spare)
}

impl Kernel for EventCount {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn accumulate(&mut self, events: Columns<'_>, _latest: u64) -> Result<()> {
        let counts = self.counts.as_mut_slice::<u32>();
        for &pixel in events.pixel {
            let count = &mut counts[pixel as usize];
            *count = count.wrapping_add(1);
        }
        Ok(())
    }

    fn read(&self, out: &mut [u8], _watermark: Option<u64>) -> Result<()> {
        out.copy_from_slice(self.counts.bytes());
        Ok(())
    }

    fn close_window(&mut self) -> Result<()> {
        self.counts.clear();
        Ok(())
    }

    fn publish(&mut self, spare: Memory, _watermark: Option<u64>) -> Result<Memory> {
        Ok(hand_over(&mut self.counts, spare))
    }

    fn reset(&mut self) -> Result<()> {
        self.close_window()
    }
}

impl Kernel for Polarity {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn accumulate(&mut self, events: Columns<'_>, _latest: u64) -> Result<()> {
        let counts = self.counts.as_mut_slice::<[u32; 2]>();
        for (&pixel, &p) in events.pixel.iter().zip(events.p) {
            let count = &mut counts[pixel as usize][usize::from(p != 0)];
            *count = count.wrapping_add(1);
        }
        Ok(())
    }

    fn read(&self, out: &mut [u8], _watermark: Option<u64>) -> Result<()> {
        out.copy_from_slice(self.counts.bytes());
        Ok(())
    }

    fn close_window(&mut self) -> Result<()> {
        self.counts.clear();
        Ok(())
    }

    fn publish(&mut self, spare: Memory, _watermark: Option<u64>) -> Result<Memory> {
        Ok(hand_over(&mut self.counts, spare))
    }

    fn reset(&mut self) -> Result<()> {
        self.close_window()
    }
}
