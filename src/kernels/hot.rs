//! Pixels that most events of a stretch are at: a broken pixel, a flickering lamp.
//!
//! Adding to one place in memory again and again takes five to ten cycles each time, as each addition waits for the store of
//! the one before. Where the state can have some places behind its pixels, the events at such a pixel take turns in those, which
//! are then brought together ([`place`]). The counts are handed over as frames and cannot: there such events are put
//! apart and totalled ([`elsewhere`]). A few samples tell whether there is such a pixel, so that a stretch without
//! pays next to nothing.

#![allow(unsafe_code)]

use crate::event::BLOCK;

/// Below this many events it is not worth looking.
const FEWEST: usize = 64;

/// How many events are looked at, and how many of them have to be at one pixel.
const SAMPLES: usize = 8;
const ENOUGH: usize = 4;

/// The pixel of a stretch that most events seem to be at, if there is one.
#[inline]
pub fn pixel(pixels: &[u32]) -> Option<u32> {
    if pixels.len() < FEWEST {
        return None;
    }
    let step = pixels.len() / SAMPLES;
    // Where it has most of the samples, two neighbours among them are alike.
    let alike = |i: usize| pixels[i * step] == pixels[(i + 1) * step];
    if alike(0) | alike(2) | alike(4) | alike(6) { most(pixels, step) } else { None }
}

#[cold]
fn most(pixels: &[u32], step: usize) -> Option<u32> {
    let samples: [u32; SAMPLES] = std::array::from_fn(|i| pixels[i * step]);
    samples.iter().copied().find(|sample| samples.iter().filter(|&other| other == sample).count() >= ENOUGH)
}

/// Asks for the memory of a stretch's pixels ahead of its use. With a hot pixel the others are few and far between, so that the
/// processor does not see the next while it waits for one.
#[inline]
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub fn prefetch<T>(state: &[T], pixels: &[u32]) {
    #[cfg(target_arch = "x86_64")]
    for &pixel in pixels {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(state.as_ptr().wrapping_add(pixel as usize).cast()) };
    }
}

/// How many events are put apart at a time.
const GROUP: usize = 64;

/// Calls `f(pixel, value)` for the events of a stretch that are not at `hot`. Returns how many are.
#[inline(always)]
pub fn elsewhere<V: Copy + Default>(
    hot: u32,
    pixels: &[u32],
    values: &[V],
    mut f: impl FnMut(u32, V),
) -> usize {
    debug_assert_eq!(pixels.len(), values.len());
    let (mut rest, mut rest_values) = ([0; GROUP], [V::default(); GROUP]);
    let mut at_hot = 0;
    for (pixels, values) in pixels.chunks(GROUP).zip(values.chunks(GROUP)) {
        let mut n = 0;
        for (&pixel, &value) in pixels.iter().zip(values) {
            // `n % GROUP` is `n`: no branch to mispredict, and no bound to check.
            rest[n % GROUP] = pixel;
            rest_values[n % GROUP] = value;
            n += usize::from(pixel != hot);
        }
        for (&pixel, &value) in rest[..n].iter().zip(&rest_values) {
            f(pixel, value);
        }
        at_hot += pixels.len() - n;
    }
    at_hot
}

/// How many places a state has behind its pixels to take turns for the one that is hot.
pub const SLOTS: usize = 16;

/// Where event `i` of a stretch goes, at `pixel`, in a state of `pixels` values and [`SLOTS`] behind them. So many that the
/// store of one has long arrived when its turn comes again.
#[inline(always)]
pub fn place(hot: u32, pixels: usize, i: usize, pixel: u32) -> usize {
    if pixel == hot { pixels + i % SLOTS } else { pixel as usize }
}

static NOTHINGS: [(); BLOCK] = [(); BLOCK];

/// As many values of nothing as a stretch has events, for kernels that only look at pixels.
pub fn nothing(pixels: &[u32]) -> &'static [()] {
    &NOTHINGS[..pixels.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pixel_with_most_events_is_found_and_no_other() {
        let mut pixels: Vec<u32> = (0..256).map(|i| if i % 10 == 0 { i } else { 7 }).collect();
        assert_eq!(pixel(&pixels), Some(7));
        assert_eq!(pixel(&pixels[..FEWEST - 1]), None);
        pixels = (0..256).map(|i| i / 8).collect();
        assert_eq!(pixel(&pixels), None);
        assert_eq!(pixel(&[]), None);
    }

    #[test]
    fn every_event_goes_to_one_side() {
        let pixels = [3, 7, 7, 1, 7, 3];
        let values = [1_u64, 2, 3, 4, 5, 6];
        let mut rest = vec![];
        let count = elsewhere(7, &pixels, &values, |pixel, value| rest.push((pixel, value)));
        assert_eq!((count, rest), (3, vec![(3, 1), (1, 4), (3, 6)]));

        let pixels: Vec<u32> = (0..150).map(|i| i % 5).collect();
        let values: Vec<u32> = (0..150).collect();
        let mut others = 0;
        assert_eq!(elsewhere(3, &pixels, &values, |_, value| others += value), 30);
        assert_eq!(others, values.iter().filter(|&value| value % 5 != 3).sum::<u32>());
    }
}
