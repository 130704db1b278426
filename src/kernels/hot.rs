//! Pixels that most events of a stretch are at: a broken pixel, a flickering lamp.
//!
//! Adding to one place in memory again and again takes five to ten cycles each time, as each addition waits for the store of
//! the one before. So the events at such a pixel are put apart and totalled in registers. A few samples tell whether there
//! is one, so that a stretch without pays next to nothing.

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
    let samples: [u32; SAMPLES] = std::array::from_fn(|i| pixels[i * step]);
    // One that has half of the samples is among any five.
    samples[..=SAMPLES - ENOUGH]
        .iter()
        .copied()
        .find(|sample| samples.iter().filter(|&other| other == sample).count() >= ENOUGH)
}

/// Calls `at(value, whether)` for every event of a stretch with whether it is at `hot`, and then `elsewhere(pixel, value)`
/// for those that are not. Returns how many are.
#[inline(always)]
pub fn apart<V: Copy + Default>(
    hot: u32,
    pixels: &[u32],
    values: &[V],
    mut at: impl FnMut(V, bool),
    mut elsewhere: impl FnMut(u32, V),
) -> usize {
    debug_assert!(pixels.len() <= BLOCK && pixels.len() == values.len());
    let (mut rest, mut rest_values) = ([0; BLOCK], [V::default(); BLOCK]);
    let mut n = 0;
    for (&pixel, &value) in pixels.iter().zip(values).take(BLOCK) {
        // `n % BLOCK` is `n`: no branch, and no bound to check.
        rest[n % BLOCK] = pixel;
        rest_values[n % BLOCK] = value;
        n += usize::from(pixel != hot);
        at(value, pixel == hot);
    }
    for (&pixel, &value) in rest[..n].iter().zip(&rest_values) {
        elsewhere(pixel, value);
    }
    pixels.len() - n
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
        let (mut at_hot, mut rest) = (vec![], vec![]);
        let count = apart(
            7,
            &pixels,
            &values,
            |value, hot| {
                if hot {
                    at_hot.push(value);
                }
            },
            |pixel, value| rest.push((pixel, value)),
        );
        assert_eq!((count, at_hot, rest), (3, vec![2, 3, 5], vec![(3, 1), (1, 4), (3, 6)]));
    }
}
