//! Which pixels of a frame were written to, at a cost that is small beside writing to them.

use crate::error::{Error, Result};
use std::ops::Range;

/// Pixels of a tile.
const TILE: usize = 256;

/// The list of pixels is at most this fraction of the sensor. Up to about here, going through the list is faster than
/// going through the frame.
const PIXELS_PER_ENTRY: usize = 16;

/// Some pixels of a frame: a list of them, repeats included, or where that gets long, the tiles that they are in. A tile is
/// 256 pixels that follow each other.
pub struct Touched {
    pixels: usize,
    list: Vec<u32>,
    tiles: Vec<bool>,
    is_in_tiles: bool,
}

impl Touched {
    /// None of a frame of so many pixels. Has all the memory that it will ever need.
    pub fn new(pixels: usize) -> Result<Self> {
        let (most, count) = (pixels / PIXELS_PER_ENTRY, pixels.div_ceil(TILE));
        let (mut list, mut tiles) = (Vec::new(), Vec::new());
        let bytes = most.checked_mul(4).and_then(|bytes| bytes.checked_add(count));
        let out_of_memory = |_| Error::OutOfMemory { what: "a list of pixels", bytes };
        list.try_reserve_exact(most).map_err(out_of_memory)?;
        tiles.try_reserve_exact(count).map_err(out_of_memory)?;
        tiles.resize(count, false);
        Ok(Self { pixels, list, tiles, is_in_tiles: false })
    }

    /// Adds pixels.
    pub fn add(&mut self, pixels: &[u32]) {
        if !self.is_in_tiles && pixels.len() <= self.list.capacity() - self.list.len() {
            self.list.extend_from_slice(pixels);
        } else {
            self.add_tiles(pixels);
        }
    }

    fn add_tiles(&mut self, pixels: &[u32]) {
        let tiles = &mut self.tiles;
        let listed = if self.is_in_tiles { &[][..] } else { &self.list };
        listed.iter().chain(pixels).for_each(|&pixel| tiles[pixel as usize / TILE] = true);
        self.is_in_tiles = true;
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.list.clear();
        if self.is_in_tiles {
            self.tiles.fill(false);
            self.is_in_tiles = false;
        }
    }

    /// At most how many pixels `for_each` goes to.
    #[cfg(test)]
    fn count(&self) -> usize {
        if self.is_in_tiles {
            self.tiles.iter().filter(|&&tile| tile).count() * TILE
        } else {
            self.list.len()
        }
    }

    /// Goes to all of them, and, for those in tiles, to the others of the tile as well: single ones by `one`, as often as they
    /// were added, and stretches by `stretch`.
    #[inline]
    pub fn for_each(&self, one: impl FnMut(usize), mut stretch: impl FnMut(Range<usize>)) {
        if self.is_in_tiles {
            for (tile, _) in self.tiles.iter().enumerate().filter(|(_, touched)| **touched) {
                stretch(tile * TILE..self.pixels.min((tile + 1) * TILE));
            }
        } else {
            self.list.iter().map(|&pixel| pixel as usize).for_each(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn visited(touched: &Touched, pixels: usize) -> Vec<bool> {
        let seen = std::cell::RefCell::new(vec![false; pixels]);
        touched.for_each(
            |pixel| seen.borrow_mut()[pixel] = true,
            |stretch| seen.borrow_mut()[stretch].iter_mut().for_each(|seen| *seen = true),
        );
        seen.into_inner()
    }

    proptest! {
        #[test]
        fn what_was_added_is_gone_to_and_little_else(
            pixels in 1..5000usize,
            added in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..60), 0..12),
        ) {
            let mut touched = Touched::new(pixels).unwrap();
            for _ in 0..2 {
                let mut expected = vec![false; pixels];
                let mut count = 0;
                for stretch in &added {
                    let stretch: Vec<u32> = stretch.iter().map(|index| index.index(pixels) as u32).collect();
                    touched.add(&stretch);
                    stretch.iter().for_each(|&pixel| expected[pixel as usize] = true);
                    count += stretch.len();
                }
                let seen = visited(&touched, pixels);
                if count <= pixels / PIXELS_PER_ENTRY {
                    prop_assert_eq!(&seen, &expected);
                }
                for (tile, expected) in seen.chunks(TILE).zip(expected.chunks(TILE)) {
                    let any = expected.contains(&true);
                    prop_assert!(tile.iter().zip(expected).all(|(seen, expected)| !expected || *seen));
                    prop_assert!(any || !tile.contains(&true));
                }
                prop_assert!(touched.count() >= expected.iter().filter(|&&pixel| pixel).count());
                touched.clear();
                prop_assert_eq!(touched.count(), 0);
                prop_assert!(!visited(&touched, pixels).contains(&true));
            }
        }
    }
}
