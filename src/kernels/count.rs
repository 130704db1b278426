//! Windowed counts.
//!
//! Counted is in bytes. A plane of them fits into the L2 cache where counters of 32 bits do not, and clearing it takes a
//! quarter of the time. What a byte has no room for is carried to a second plane, which most windows never touch.
//!
//! What is published is the window that was counted into, handed over: its first reader makes the frame of it
//! (`publish/frame.rs`). Counting goes on in one that came back, cleared where it was touched.

use super::kept::Kept;
use super::{Kernel, PublishesRecipes, Retracts, STATE, hot, new_list};
use crate::error::{Error, Result};
use crate::event::{Columns, Needs};
use crate::publish::{Memory, Recipe, Spec};
use std::any::Any;
use std::sync::Arc;

/// From this fraction of the sensor on, clearing all counts is faster than clearing those that were touched.
const PIXELS_PER_TOUCHED: usize = 64;

/// Windows that are kept for use again, and as many that publications still refer to.
const KEPT: usize = 8;

/// The counts of a window. A pixel has one, or two by polarity.
struct Window {
    /// Modulo 256.
    low: Memory,
    /// How often each went around, modulo 2^24; all 0 unless `has_carried`.
    high: Memory,
    has_carried: bool,
    /// The pixels that were counted at, repeats included, while there is room.
    touched: Vec<u32>,
    is_touched_all_over: bool,
}

impl Window {
    fn new(pixels: usize, counts: usize) -> Result<Self> {
        Ok(Self {
            low: Memory::zeroed_for::<u8>(STATE, Some(counts))?,
            high: Memory::zeroed_for::<u32>(STATE, Some(counts))?,
            has_carried: false,
            touched: new_list(pixels / PIXELS_PER_TOUCHED)?,
            is_touched_all_over: false,
        })
    }

    /// Takes note of where will be counted.
    fn touch(&mut self, pixels: &[u32]) {
        if self.is_touched_all_over {
        } else if pixels.len() <= self.touched.capacity() - self.touched.len() {
            self.touched.extend_from_slice(pixels);
        } else {
            self.is_touched_all_over = true;
        }
    }

    fn clear(&mut self, counts_per_pixel: usize) {
        let low = self.low.as_mut_slice::<u8>();
        if self.is_touched_all_over {
            low.fill(0);
        } else if counts_per_pixel == 1 {
            self.touched.iter().for_each(|&pixel| low[pixel as usize] = 0);
        } else {
            let low = low.as_chunks_mut::<2>().0;
            self.touched.iter().for_each(|&pixel| low[pixel as usize] = [0; 2]);
        }
        if self.has_carried {
            self.high.as_mut_slice::<u32>().fill(0);
        }
        self.touched.clear();
        (self.has_carried, self.is_touched_all_over) = (false, false);
    }

    /// Writes the counts, modulo 2^32.
    fn show(&self, out: &mut [u8]) {
        let out = bytemuck::cast_slice_mut::<_, u32>(out);
        let low = self.low.as_slice::<u8>();
        if self.has_carried {
            for ((out, &low), &high) in out.iter_mut().zip(low).zip(self.high.as_slice::<u32>()) {
                *out = high << 8 | u32::from(low);
            }
        } else {
            for (out, &low) in out.iter_mut().zip(low) {
                *out = u32::from(low);
            }
        }
    }
}

/// Counting up (`UP`) or down in a window.
struct Counter<'a, const UP: bool> {
    low: &'a mut [u8],
    high: &'a mut [u32],
    has_carried: &'a mut bool,
}

impl<const UP: bool> Counter<'_, UP> {
    #[inline(always)]
    fn one(&mut self, place: usize) {
        let low = &mut self.low[place];
        let (count, carries) = if UP { low.overflowing_add(1) } else { low.overflowing_sub(1) };
        *low = count;
        if carries {
            self.carry(place, if UP { 1 } else { -1 });
        }
    }

    fn many(&mut self, place: usize, events: usize) {
        let events = events as i64;
        let sum = i64::from(self.low[place]) + if UP { events } else { -events };
        self.low[place] = sum as u8;
        if sum >> 8 != 0 {
            self.carry(place, sum >> 8);
        }
    }

    #[cold]
    fn carry(&mut self, place: usize, times: i64) {
        self.high[place] = self.high[place].wrapping_add(times as u32);
        *self.has_carried = true;
    }
}

/// Counts of events, modulo 2^32: `(H, W)` uint32, or `(H, W, 2)` uint32 by polarity, 0 OFF and 1 ON.
pub struct Counts<const BY_POLARITY: bool> {
    spec: Spec,
    pixels: usize,
    /// The one in progress. Nobody else refers to it.
    window: Arc<Window>,
    /// A clear one, had before a call changes anything.
    next: Option<Arc<Window>>,
    kept: Kept<Window>,
}

impl<const BY_POLARITY: bool> Counts<BY_POLARITY> {
    const PER_PIXEL: usize = if BY_POLARITY { 2 } else { 1 };

    pub fn new(spec: Spec) -> Result<Self> {
        let bytes = spec.bytes().ok_or(Error::OutOfMemory { what: STATE, bytes: None })?;
        let counts = bytes / size_of::<u32>();
        let pixels = counts / Self::PER_PIXEL;
        let window = Arc::new(Window::new(pixels, counts)?);
        Ok(Self { spec, pixels, window, next: None, kept: Kept::new(KEPT) })
    }

    fn window(&mut self) -> &mut Window {
        Arc::get_mut(&mut self.window).expect("referred to by nobody else")
    }

    #[inline(always)]
    fn count<const UP: bool>(&mut self, Columns { pixel: pixels, p: ps, .. }: Columns<'_>) {
        let Window { low, high, has_carried, .. } = self.window();
        let mut counter = Counter::<UP> { low: low.as_mut_slice(), high: high.as_mut_slice(), has_carried };
        let hot = hot::pixel(pixels);
        if BY_POLARITY {
            let place = |pixel: u32, p: u8| 2 * pixel as usize + usize::from(p != 0);
            if let Some(hot) = hot {
                // Of the few elsewhere it is counted how many are ON, and of all, several at a time.
                let mut on_elsewhere = 0;
                let at_hot = hot::elsewhere(hot, pixels, ps, |pixel, p| {
                    on_elsewhere += usize::from(p != 0);
                    counter.one(place(pixel, p));
                });
                let on = ps.iter().map(|&p| u32::from(p != 0)).sum::<u32>() as usize - on_elsewhere;
                counter.many(place(hot, 0), at_hot - on);
                counter.many(place(hot, 1), on);
            } else {
                pixels.iter().zip(ps).for_each(|(&pixel, &p)| counter.one(place(pixel, p)));
            }
        } else if let Some(hot) = hot {
            let rest = |pixel, ()| counter.one(pixel as usize);
            let at_hot = hot::elsewhere(hot, pixels, hot::nothing(pixels), rest);
            counter.many(hot as usize, at_hot);
        } else {
            pixels.iter().for_each(|&pixel| counter.one(pixel as usize));
        }
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
        self.window.show(out);
        Ok(())
    }

    fn close_window(&mut self) -> Result<()> {
        self.window().clear(Self::PER_PIXEL);
        Ok(())
    }

    fn publishes_recipes(&mut self) -> Option<&mut dyn PublishesRecipes> {
        Some(self)
    }

    fn reset(&mut self) -> Result<()> {
        self.close_window()
    }
}

impl<const BY_POLARITY: bool> Retracts for Counts<BY_POLARITY> {
    fn add(&mut self, events: Columns<'_>) {
        self.window().touch(events.pixel);
        self.count::<true>(events);
    }

    fn remove(&mut self, events: Columns<'_>) {
        // Other pixels than were added, where another thread writes to the array: they are to be cleared, too.
        self.window().touch(events.pixel);
        self.count::<false>(events);
    }
}

/// A frame to be made: the window it shows, once there is one.
struct Shown(Option<Arc<Window>>);

impl Recipe for Shown {
    fn make(&self, out: &mut [u8]) -> Result<()> {
        match &self.0 {
            Some(window) => window.show(out),
            None => out.fill(0),
        }
        Ok(())
    }

    fn empty(&mut self) {
        self.0 = None;
    }
}

impl<const BY_POLARITY: bool> PublishesRecipes for Counts<BY_POLARITY> {
    fn recipe(&self) -> Result<Box<dyn Recipe>> {
        Ok(Box::new(Shown(None)))
    }

    fn prepare(&mut self) -> Result<()> {
        if self.next.is_none() {
            self.next = Some(match self.kept.take() {
                Some(mut window) => {
                    let came_back = Arc::get_mut(&mut window).expect("referred to by nobody else");
                    came_back.clear(Self::PER_PIXEL);
                    window
                }
                None => Arc::new(Window::new(self.pixels, self.pixels * Self::PER_PIXEL)?),
            });
        }
        Ok(())
    }

    fn prescribe(&mut self, recipe: &mut dyn Recipe, _watermark: Option<u64>) -> Result<()> {
        let recipe: &mut dyn Any = recipe;
        let Shown(shown) = recipe.downcast_mut().expect("a recipe of this kernel's");
        *shown = None;
        self.prepare()?;
        let next = self.next.take().expect("just prepared");
        let done = std::mem::replace(&mut self.window, next);
        *shown = Some(Arc::clone(&done));
        self.kept.keep(done);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use crate::geometry::SensorSize;

    fn counts<const BY_POLARITY: bool>(kernel: &Counts<BY_POLARITY>) -> Vec<u32> {
        let mut out = vec![7; kernel.pixels * Counts::<BY_POLARITY>::PER_PIXEL];
        kernel.read(bytemuck::cast_slice_mut(&mut out), None).unwrap();
        out
    }

    #[test]
    fn counts_wrap() {
        let sensor = SensorSize::new(2, 1).unwrap();
        let mut by_pixel = Counts::<false>::new(Config::EventCount.spec(sensor)).unwrap();
        let mut by_polarity = Counts::<true>::new(Config::Polarity.spec(sensor)).unwrap();
        for window in [by_pixel.window(), by_polarity.window()] {
            window.low.as_mut_slice::<u8>().fill(254);
            window.high.as_mut_slice::<u32>().fill((1 << 24) - 1);
            window.has_carried = true;
        }
        let events = Columns { t: &[1; 4], pixel: &[1, 1, 1, 0], p: &[1, 0, 7, 0] };
        by_pixel.accumulate(events, 1).unwrap();
        by_polarity.accumulate(events, 1).unwrap();
        assert_eq!(counts(&by_pixel), [u32::MAX, 1]);
        assert_eq!(counts(&by_polarity), [u32::MAX, u32::MAX - 1, u32::MAX, 0]);
        by_pixel.remove(events);
        by_polarity.remove(events);
        assert_eq!(counts(&by_pixel), [u32::MAX - 1; 2]);
        assert_eq!(counts(&by_polarity), [u32::MAX - 1; 4]);
    }

    #[test]
    fn counts_of_more_than_a_byte_are_exact() {
        // Calls with many events at a pixel (which are put apart), some that are taken back, windows after windows.
        let sensor = SensorSize::new(20, 10).unwrap();
        let mut by_pixel = Counts::<false>::new(Config::EventCount.spec(sensor)).unwrap();
        let mut by_polarity = Counts::<true>::new(Config::Polarity.spec(sensor)).unwrap();
        let mut recipes = [by_pixel.recipe().unwrap(), by_polarity.recipe().unwrap()];
        for window in 0..4_u32 {
            let mut expected = vec![[0_u32; 2]; 200];
            for call in 0..60_u32 {
                let among: Vec<u32> = (0..256)
                    .map(|i| if i % 3 < window { 9 } else { (i * 7 + call) % (20 << window) })
                    .collect();
                let among: Vec<u32> = among.into_iter().map(|pixel| pixel % 200).collect();
                let p: Vec<u8> = (0..256).map(|i| u8::from((i + call) % 3 != 0)).collect();
                let events = Columns { t: &[], pixel: &among, p: &p };
                by_pixel.add(events);
                by_polarity.add(events);
                if call % 4 == 1 {
                    by_pixel.remove(events);
                    by_polarity.remove(events);
                    continue;
                }
                for (&pixel, &p) in among.iter().zip(&p) {
                    expected[pixel as usize][usize::from(p != 0)] += 1;
                }
            }
            let both: Vec<u32> = expected.iter().map(|[off, on]| off + on).collect();
            assert!(both.iter().any(|&count| count > 256));
            assert_eq!(counts(&by_pixel), both);
            assert_eq!(counts(&by_polarity), expected.concat());
            by_pixel.prescribe(&mut *recipes[0], None).unwrap();
            by_polarity.prescribe(&mut *recipes[1], None).unwrap();
            let (mut by_one, mut by_two) = (vec![7_u32; 200], vec![7_u32; 400]);
            recipes[0].make(bytemuck::cast_slice_mut(&mut by_one)).unwrap();
            recipes[1].make(bytemuck::cast_slice_mut(&mut by_two)).unwrap();
            assert_eq!((by_one, by_two), (both, expected.concat()));
            assert!(counts(&by_pixel).iter().chain(&counts(&by_polarity)).all(|&count| count == 0));
        }
    }
}
