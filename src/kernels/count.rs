//! Windowed counts. The memory they count into is the frame that is published; counting goes on in a cleared spare.

use super::hot;
use super::{Kernel, Retracts, STATE};
use crate::error::Result;
use crate::event::{Columns, Needs};
use crate::publish::{Memory, Spec, Touched};

/// Counts of events, modulo 2^32: `(H, W)` uint32, or `(H, W, 2)` uint32 by polarity, 0 OFF and 1 ON.
pub struct Counts<const BY_POLARITY: bool> {
    spec: Spec,
    counts: Memory,
    /// The pixels of this window, once something was published.
    touched: Option<Touched>,
}

impl<const BY_POLARITY: bool> Counts<BY_POLARITY> {
    pub fn new(spec: Spec) -> Result<Self> {
        Ok(Self { counts: Memory::zeroed(STATE, spec.bytes())?, spec, touched: None })
    }
}

impl<const BY_POLARITY: bool> Kernel for Counts<BY_POLARITY> {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn needs(&self) -> Needs {
        Needs { t: false, p: BY_POLARITY }
    }

    fn retracts(&mut self) -> Option<&mut dyn Retracts> {
        Some(self)
    }

    fn accumulate(&mut self, events: Columns<'_>, _latest: u64) -> Result<()> {
        self.add(events);
        Ok(())
    }

    fn read(&self, out: &mut [u8], _watermark: Option<u64>) -> Result<()> {
        out.copy_from_slice(self.counts.bytes());
        Ok(())
    }

    fn close_window(&mut self) -> Result<()> {
        self.counts.clear();
        if let Some(touched) = &mut self.touched {
            touched.clear();
        }
        Ok(())
    }

    fn publish(&mut self, mut spare: Memory, _watermark: Option<u64>) -> Result<Memory> {
        spare.clear();
        let next = spare.take_touched().or_else(|| Touched::new(self.pixels()).ok());
        let mut frame = std::mem::replace(&mut self.counts, spare);
        if let Some(touched) = std::mem::replace(&mut self.touched, next) {
            frame.set_touched(touched, if BY_POLARITY { 8 } else { 4 });
        }
        Ok(frame)
    }

    fn reset(&mut self) -> Result<()> {
        self.close_window()
    }
}

impl<const BY_POLARITY: bool> Counts<BY_POLARITY> {
    fn pixels(&self) -> usize {
        self.counts.bytes().len() / if BY_POLARITY { 8 } else { 4 }
    }

    /// Adds `by` per event, modulo 2^32.
    #[inline(always)]
    fn count(&mut self, Columns { pixel: pixels, p: ps, .. }: Columns<'_>, by: u32) {
        let hot = hot::pixel(pixels);
        if BY_POLARITY {
            let counts = self.counts.as_mut_slice::<[u32; 2]>();
            let mut one = |pixel: u32, p: u8| {
                let count = &mut counts[pixel as usize][usize::from(p != 0)];
                *count = count.wrapping_add(by);
            };
            if let Some(hot) = hot {
                let at_hot = hot::elsewhere(hot, pixels, ps, one) as u32;
                let on: u32 =
                    pixels.iter().zip(ps).map(|(&pixel, &p)| u32::from((pixel == hot) & (p != 0))).sum();
                let [off_count, on_count] = &mut counts[hot as usize];
                *off_count = off_count.wrapping_add((at_hot - on).wrapping_mul(by));
                *on_count = on_count.wrapping_add(on.wrapping_mul(by));
            } else {
                pixels.iter().zip(ps).for_each(|(&pixel, &p)| one(pixel, p));
            }
        } else {
            let counts = self.counts.as_mut_slice::<u32>();
            let mut one = |pixel: u32| {
                let count = &mut counts[pixel as usize];
                *count = count.wrapping_add(by);
            };
            if let Some(hot) = hot {
                let at_hot = hot::elsewhere(hot, pixels, hot::nothing(pixels), |pixel, ()| one(pixel)) as u32;
                let count = &mut counts[hot as usize];
                *count = count.wrapping_add(at_hot.wrapping_mul(by));
            } else {
                pixels.iter().for_each(|&pixel| one(pixel));
            }
        }
    }
}

impl<const BY_POLARITY: bool> Retracts for Counts<BY_POLARITY> {
    fn add(&mut self, events: Columns<'_>) {
        if let Some(touched) = &mut self.touched {
            touched.add(events.pixel);
        }
        self.count(events, 1);
    }

    fn remove(&mut self, events: Columns<'_>) {
        self.count(events, 1_u32.wrapping_neg());
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use crate::geometry::SensorSize;

    #[test]
    fn counts_wrap() {
        let sensor = SensorSize::new(2, 1).unwrap();
        let mut by_pixel = Counts::<false>::new(Config::EventCount.spec(sensor)).unwrap();
        let mut by_polarity = Counts::<true>::new(Config::Polarity.spec(sensor)).unwrap();
        by_pixel.counts.as_mut_slice::<u32>().fill(u32::MAX - 1);
        by_polarity.counts.as_mut_slice::<u32>().fill(u32::MAX - 1);
        let events = Columns { t: &[1; 4], pixel: &[1, 1, 1, 0], p: &[1, 0, 7, 0] };
        by_pixel.accumulate(events, 1).unwrap();
        by_polarity.accumulate(events, 1).unwrap();
        assert_eq!(by_pixel.counts.as_slice::<u32>(), [u32::MAX, 1]);
        assert_eq!(by_polarity.counts.as_slice::<u32>(), [u32::MAX, u32::MAX - 1, u32::MAX, 0]);
    }
}
