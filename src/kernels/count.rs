//! Windowed counts.
//!
//! Counted is in bytes. A plane of them fits into the L2 cache where counters of 32 bits do not, and clearing it takes a
//! quarter of the time. What a byte has no room for is carried to a second plane, which most windows touch nowhere or in few
//! places. These are listed, so that nobody has to go through all of it.
//!
//! What is published is the window that was counted into, handed over: its first reader makes the frame of it
//! (`publish/frame.rs`). Counting goes on in one that came back, cleared where it was touched.

use super::kept::Kept;
use super::stores::Stores;
use super::{Kernel, PublishesRecipes, Retracts, STATE, hot, new_list, recipe_of};
use crate::error::{Error, Result};
use crate::event::{Block, Columns, Events, Found, GROUP, Isa, Needs, TakesBack, in_one_pass};
use crate::geometry::SensorSize;
use crate::publish::{Memory, Recipe, Spec};
use std::sync::Arc;

/// From this fraction of the sensor on, clearing all counts is faster than clearing those that were touched.
const PIXELS_PER_TOUCHED: usize = 64;

/// The same for carries, of which a few places are many: one pixel with most of the events.
const COUNTS_PER_CARRIED: usize = 64;

/// Windows that are kept for use again, and as many that publications still refer to.
const KEPT: usize = 8;

/// The counts of a window. A pixel has one, or two by polarity.
struct Window {
    /// Modulo 256.
    low: Memory,
    /// How often each went around, modulo 2^24; 0 but at the places that are `carried`, and maybe at some of these.
    high: Memory,
    carried: Places<usize>,
    /// The pixels that were counted at.
    touched: Places<u32>,
    stores: Stores,
}

impl Window {
    fn new(pixels: usize, counts: usize) -> Result<Self> {
        Ok(Self {
            low: Memory::zeroed_for::<u8>(STATE, Some(counts))?,
            high: Memory::zeroed_for::<u32>(STATE, Some(counts))?,
            carried: Places::new(counts / COUNTS_PER_CARRIED)?,
            touched: Places::new(pixels / PIXELS_PER_TOUCHED)?,
            stores: Stores::new(counts.checked_mul(size_of::<u32>()), Isa::chosen_or_scalar()),
        })
    }

    fn clear(&mut self, counts_per_pixel: usize) {
        let low = self.low.as_mut_slice::<u8>();
        if self.touched.is_all_over {
            low.fill(0);
        } else if counts_per_pixel == 1 {
            self.touched.list.iter().for_each(|&pixel| low[pixel as usize] = 0);
        } else {
            let low = low.as_chunks_mut::<2>().0;
            self.touched.list.iter().for_each(|&pixel| low[pixel as usize] = [0; 2]);
        }
        let high = self.high.as_mut_slice::<u32>();
        if self.carried.is_all_over {
            high.fill(0);
        } else {
            self.carried.list.iter().for_each(|&place| high[place] = 0);
        }
        self.carried.forget();
        self.touched.forget();
    }

    /// Writes the counts, modulo 2^32.
    fn show(&self, out: &mut [u8]) {
        let out = bytemuck::cast_slice_mut::<_, u32>(out);
        let (low, high) = (self.low.as_slice::<u8>(), self.high.as_slice::<u32>());
        let whole = |low: u8, high: u32| high << 8 | u32::from(low);
        if self.carried.is_all_over {
            for ((out, &low), &high) in out.iter_mut().zip(low).zip(high) {
                *out = whole(low, high);
            }
        } else {
            self.stores.widen(out, low);
            self.carried.list.iter().for_each(|&place| out[place] = whole(low[place], high[place]));
        }
    }
}

/// Places in a window, repeats included, while there is room for them.
struct Places<T> {
    list: Vec<T>,
    is_all_over: bool,
}

impl<T: Copy> Places<T> {
    fn new(room: usize) -> Result<Self> {
        Ok(Self { list: new_list(room)?, is_all_over: false })
    }

    /// Takes note of some.
    fn note(&mut self, places: &[T]) {
        if self.is_all_over {
        } else if places.len() <= self.list.capacity() - self.list.len() {
            self.list.extend_from_slice(places);
        } else {
            self.is_all_over = true;
        }
    }

    fn forget(&mut self) {
        self.list.clear();
        self.is_all_over = false;
    }
}

/// Adds to how often a count went around.
#[cold]
fn carry(high: &mut [u32], carried: &mut Places<usize>, place: usize, times: i64) {
    let high = &mut high[place];
    // Where it is not 0, the place is listed.
    if *high == 0 {
        carried.note(&[place]);
    }
    *high = high.wrapping_add(times as u32);
}

/// Counting in a window, up (`UP`) or down.
struct Counting<'a, const BY_POLARITY: bool> {
    low: &'a mut [u8],
    high: &'a mut [u32],
    carried: &'a mut Places<usize>,
    touched: &'a mut Places<u32>,
}

impl<const BY_POLARITY: bool> Counting<'_, BY_POLARITY> {
    fn many<const UP: bool>(&mut self, place: usize, events: usize) {
        let events = events as i64;
        let sum = i64::from(self.low[place]) + if UP { events } else { -events };
        self.low[place] = sum as u8;
        if sum >> 8 != 0 {
            carry(self.high, self.carried, place, sum >> 8);
        }
    }

    #[inline(always)]
    fn place(pixel: u32, p: u8) -> usize {
        if BY_POLARITY { 2 * pixel as usize + usize::from(p != 0) } else { pixel as usize }
    }

    /// Counts one event at a place. What is counted in is looked up once, not again after each store of a byte.
    #[inline(always)]
    fn one<const UP: bool>(&mut self) -> impl FnMut(usize) {
        let Self { low, high, carried, .. } = self;
        let (low, high): (&mut [u8], &mut [u32]) = (low, high);
        |place| {
            let low = &mut low[place];
            let (count, carries) = if UP { low.overflowing_add(1) } else { low.overflowing_sub(1) };
            *low = count;
            if carries {
                carry(high, carried, place, if UP { 1 } else { -1 });
            }
        }
    }

    /// Each by itself.
    #[inline(always)]
    fn each<const UP: bool>(&mut self, Columns { pixel: pixels, p: ps, .. }: Columns<'_>) {
        let mut one = self.one::<UP>();
        if BY_POLARITY {
            pixels.iter().zip(ps).for_each(|(&pixel, &p)| one(Self::place(pixel, p)));
        } else {
            pixels.iter().for_each(|&pixel| one(Self::place(pixel, 0)));
        }
    }

    /// Those at the pixel where most are together, the others each by itself.
    fn around<const UP: bool>(&mut self, hot: u32, Columns { pixel: pixels, p: ps, .. }: Columns<'_>) {
        if BY_POLARITY {
            // Of the few elsewhere it is counted how many are ON, and of all, several at a time.
            let mut on_elsewhere = 0;
            let mut one = self.one::<UP>();
            let at_hot = hot::elsewhere(hot, pixels, ps, |pixel, p| {
                on_elsewhere += usize::from(p != 0);
                one(Self::place(pixel, p));
            });
            drop(one);
            let on = ps.iter().map(|&p| u32::from(p != 0)).sum::<u32>() as usize - on_elsewhere;
            self.many::<UP>(Self::place(hot, 0), at_hot - on);
            self.many::<UP>(Self::place(hot, 1), on);
        } else {
            let mut one = self.one::<UP>();
            let rest = |pixel, ()| one(Self::place(pixel, 0));
            let at_hot = hot::elsewhere(hot, pixels, hot::nothing(pixels), rest);
            drop(one);
            self.many::<UP>(Self::place(hot, 0), at_hot);
        }
    }

    #[inline(always)]
    fn count<const UP: bool>(&mut self, events: Columns<'_>) {
        self.touched.note(events.pixel);
        match hot::pixel(events.pixel) {
            Some(hot) => self.around::<UP>(hot, events),
            None => self.each::<UP>(events),
        }
    }
}

impl<const BY_POLARITY: bool> TakesBack for Counting<'_, BY_POLARITY> {
    fn add(&mut self, events: Columns<'_>) {
        self.count::<true>(events);
    }

    fn may_be_in_groups(&mut self, events: Columns<'_>) -> bool {
        // By polarity it was found to be slower.
        let may_be = !BY_POLARITY && hot::pixel(events.pixel).is_none();
        if may_be {
            self.touched.note(events.pixel);
        }
        may_be
    }

    #[inline(always)]
    fn add_group(&mut self, events: Columns<'_>) {
        match <&[u32; GROUP]>::try_from(events.pixel) {
            // A loop of known length is unrolled.
            Ok(pixel) => self.each::<true>(Columns { pixel, ..events }),
            Err(_) => self.each::<true>(events),
        }
    }

    fn remove(&mut self, events: Columns<'_>) {
        // Other pixels than were added, where another thread writes to the array: they are to be cleared, too.
        self.count::<false>(events);
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

    fn counting(&mut self) -> Counting<'_, BY_POLARITY> {
        let Window { low, high, carried, touched, .. } = self.window();
        Counting { low: low.as_mut_slice(), high: high.as_mut_slice(), carried, touched }
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
        self.counting().add(events);
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
    fn in_one_pass(&mut self, events: Events<'_>, sensor: SensorSize, block: &mut Block) -> Result<Found> {
        let needs = self.needs();
        in_one_pass(events, sensor, block, needs, &mut self.counting()).map_err(|t| Error::Timestamp { t })
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
        let Shown(shown) = recipe_of(recipe);
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
    use crate::event::tests::packed;
    use std::ops::Range;

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
            window.carried.is_all_over = true;
        }
        let events = Columns { t: &[1; 4], pixel: &[1, 1, 1, 0], p: &[1, 0, 7, 0] };
        by_pixel.accumulate(events, 1).unwrap();
        by_polarity.accumulate(events, 1).unwrap();
        assert_eq!(counts(&by_pixel), [u32::MAX, 1]);
        assert_eq!(counts(&by_polarity), [u32::MAX, u32::MAX - 1, u32::MAX, 0]);
        by_pixel.counting().remove(events);
        by_polarity.counting().remove(events);
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
                by_pixel.counting().add(events);
                by_polarity.counting().add(events);
                if call % 4 == 1 {
                    by_pixel.counting().remove(events);
                    by_polarity.counting().remove(events);
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

    /// Adds calls to a window of both kernels, takes some back, and compares with a naive count. `calls`: the pixels of
    /// each, and whether it stays. Returns whether either was carried all over.
    fn check_window(
        by_pixel: &mut Counts<false>,
        by_polarity: &mut Counts<true>,
        calls: &[(Vec<u32>, bool)],
    ) -> [bool; 2] {
        let mut expected = vec![[0_u32; 2]; by_pixel.pixels];
        for (call, (among, stays)) in calls.iter().enumerate() {
            let p: Vec<u8> = (0..among.len()).map(|i| u8::from((i + call) % 4 != 0) * 3).collect();
            for (pixel, p) in among.chunks(256).zip(p.chunks(256)) {
                let events = Columns { t: &[], pixel, p };
                by_pixel.counting().add(events);
                by_polarity.counting().add(events);
            }
            for (pixel, p) in among.chunks(256).zip(p.chunks(256)).filter(|_| !stays) {
                let events = Columns { t: &[], pixel, p };
                by_pixel.counting().remove(events);
                by_polarity.counting().remove(events);
            }
            if *stays {
                among.iter().zip(&p).for_each(|(&at, &p)| expected[at as usize][usize::from(p != 0)] += 1);
            }
        }
        assert_eq!(counts(by_pixel), expected.iter().map(|[off, on]| off + on).collect::<Vec<_>>());
        assert_eq!(counts(by_polarity), expected.concat());
        let carried =
            [&by_pixel.window().carried, &by_polarity.window().carried].map(|carried| carried.is_all_over);
        let mut recipes = [by_pixel.recipe().unwrap(), by_polarity.recipe().unwrap()];
        by_pixel.prescribe(&mut *recipes[0], None).unwrap();
        by_polarity.prescribe(&mut *recipes[1], None).unwrap();
        let mut out = vec![7_u32; expected.len() * 2];
        recipes[1].make(bytemuck::cast_slice_mut(&mut out)).unwrap();
        assert_eq!(out, expected.concat());
        assert!(counts(by_pixel).iter().chain(&counts(by_polarity)).all(|&count| count == 0));
        carried
    }

    #[test]
    fn carries_are_right_in_few_places_in_many_and_taken_back() {
        let sensor = SensorSize::new(80, 16).unwrap();
        let mut by_pixel = Counts::<false>::new(Config::EventCount.spec(sensor)).unwrap();
        let mut by_polarity = Counts::<true>::new(Config::Polarity.spec(sensor)).unwrap();
        assert_eq!(by_pixel.window().carried.list.capacity(), 20);
        let mut check = |calls: &[_]| check_window(&mut by_pixel, &mut by_polarity, calls);

        // All pixels of a range so often, each in turn.
        let each = |pixels: Range<u32>, times| (0..times).flat_map(|_| pixels.clone()).collect::<Vec<u32>>();
        let hot: Vec<u32> = (0..9000).map(|i| if i % 9 == 0 { i % 1280 } else { 77 }).collect();
        let few = (each(300..310, 1100), true);
        let many = (each(0..1280, 1100), true);
        for _ in 0..3 {
            assert_eq!(check(&[few.clone(), (hot.clone(), true)]), [false; 2]);
            assert_eq!(check(&[(hot.clone(), true), many.clone(), few.clone()]), [true; 2]);
            assert_eq!(check(&[(hot.clone(), true)]), [false; 2]);
            // Places are listed again when they carry after all was taken back, which fills the list.
            let back = (each(40..43, 2000), false);
            assert_eq!(check(&[back.clone(), few.clone(), back.clone()]), [false; 2]);
            assert!(check(&vec![back; 30])[0]);
            assert_eq!(check(&[(each(0..1280, 1100), false), few.clone()]), [true; 2]);
            // Exactly the room there is, and one more.
            assert_eq!(check(&[(each(5..25, 256), true)]), [false; 2]);
            assert_eq!(check(&[(each(5..26, 256), true)]), [true, false]);
        }
    }

    #[test]
    fn what_goes_below_zero_comes_back() {
        // Another thread may change what is taken back.
        let sensor = SensorSize::new(64, 2).unwrap();
        let mut kernel = Counts::<false>::new(Config::EventCount.spec(sensor)).unwrap();
        let events = |pixel| Columns { t: &[], pixel, p: &[] };
        kernel.counting().remove(events(&[1, 1, 100]));
        assert_eq!((counts(&kernel)[1], counts(&kernel)[100]), (u32::MAX - 1, u32::MAX));
        kernel.counting().add(events(&[1; 3]));
        assert_eq!((counts(&kernel)[1], counts(&kernel)[100]), (1, u32::MAX));
        kernel.close_window().unwrap();
        assert!(counts(&kernel).iter().all(|&count| count == 0));
    }

    #[test]
    fn calls_of_several_blocks_are_counted_rejected_and_cleared() {
        // Few of many pixels, so that those that were touched are cleared; some blocks have a hot pixel, some do not.
        let sensor = SensorSize::new(256, 512).unwrap();
        for isa in Isa::available() {
            let mut block = Block::new(isa);
            let mut kernel = Counts::<false>::new(Config::EventCount.spec(sensor)).unwrap();
            for length in [1, 255, 256, 257, 512, 700, 1024, 1300, 2000] {
                let events: Vec<_> = (0..length)
                    .map(|i| match i / 256 {
                        2 | 5 if i % 16 != 0 => (5, 7, 7, 1),
                        _ => (5, (i * 31 % 259) as u16, (i * 17 % 512) as u16, 1),
                    })
                    .collect();
                let mut expected = vec![0_u32; 256 * 512];
                for &(_, x, y, _) in events.iter().filter(|event| event.1 < 256) {
                    expected[256 * usize::from(y) + usize::from(x)] += 1;
                }
                let mut take = |events: &[_], kernel: &mut Counts<false>| {
                    kernel
                        .in_one_pass(Events::packed(&packed(events)), sensor, &mut block)
                        .map(|found| found.in_bounds())
                };
                for bad in [0, length / 2, length - 1] {
                    let mut rejected = events.clone();
                    rejected[bad].0 = 1 << 63;
                    assert!(
                        matches!(take(&rejected, &mut kernel), Err(Error::Timestamp { t }) if t == 1 << 63)
                    );
                    assert!(counts(&kernel).iter().all(|&count| count == 0));
                    kernel.close_window().unwrap();
                }
                assert_eq!(take(&events, &mut kernel).unwrap(), u64::from(expected.iter().sum::<u32>()));
                assert_eq!(counts(&kernel), expected);
                assert!(!kernel.window().touched.is_all_over);
                kernel.close_window().unwrap();
                assert!(counts(&kernel).iter().all(|&count| count == 0));
            }
        }
    }
}
