//! The sensor's size and the one place where coordinates become a pixel index.

use crate::error::{Error, Result};
use std::fmt;

/// Width and height of a sensor in pixels, both at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SensorSize {
    width: usize,
    height: usize,
}

impl SensorSize {
    /// Checks the sides. The pixel index of an event is kept in 32 bits, so a sensor of more than
    /// 2^32 pixels (a 16 GiB frame of the smallest kind) is refused as memory that cannot be had.
    pub fn new(width: usize, height: usize) -> Result<Self> {
        let size = Self { width, height };
        if width == 0 || height == 0 {
            return Err(Error::EmptySensor(size));
        }
        match width.checked_mul(height) {
            Some(pixels) if pixels as u64 <= 1 << 32 => Ok(size),
            pixels => Err(Error::OutOfMemory {
                what: "a frame of this sensor size",
                bytes: pixels.and_then(|n| n.checked_mul(4)),
            }),
        }
    }

    /// Columns.
    pub fn width(self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(self) -> usize {
        self.height
    }

    /// Columns times rows.
    pub fn pixels(self) -> usize {
        self.width * self.height
    }

    /// The row-major index of a pixel, or `None` outside the sensor.
    #[inline(always)]
    pub fn index(self, x: u16, y: u16) -> Option<u32> {
        let (x, y) = (usize::from(x), usize::from(y));
        // The product cannot overflow: it is below `pixels`, which was checked.
        (x < self.width && y < self.height).then(|| (y * self.width + x) as u32)
    }
}

impl fmt::Display for SensorSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.width, self.height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_row_major_and_bounded() {
        let size = SensorSize::new(4, 3).unwrap();
        assert_eq!(size.index(0, 0), Some(0));
        assert_eq!(size.index(3, 2), Some(11));
        assert_eq!(size.index(4, 0), None);
        assert_eq!(size.index(0, 3), None);
        assert_eq!(size.index(u16::MAX, u16::MAX), None);
    }

    #[test]
    fn the_largest_index_fits() {
        let size = SensorSize::new(1 << 16, 1 << 16).unwrap();
        assert_eq!(size.index(u16::MAX, u16::MAX), Some(u32::MAX));
    }

    #[test]
    fn sides_that_cannot_work_are_refused() {
        assert!(matches!(SensorSize::new(0, 3), Err(Error::EmptySensor(_))));
        assert!(matches!(SensorSize::new(3, 0), Err(Error::EmptySensor(_))));
        assert!(matches!(SensorSize::new((1 << 32) + 1, 1), Err(Error::OutOfMemory { .. })));
        assert!(matches!(SensorSize::new(usize::MAX, usize::MAX), Err(Error::OutOfMemory { .. })));
    }
}
