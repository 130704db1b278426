//! Frame memory: page-aligned, and zeroed when new.

use crate::error::{Error, Result};
use bytemuck::Pod;
use memmap2::MmapMut;

/// What a kernel's frame looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Axis lengths, row-major.
    pub shape: Vec<usize>,
    /// What one element is.
    pub element: Element,
}

/// The element types of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// `uint32`: counts.
    U32,
    /// `uint64`: times in µs.
    U64,
    /// `float32`: decayed sums and voxel values.
    F32,
    /// Whatever a foreign kernel says, of this many bytes.
    Opaque(usize),
}

impl Element {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::U32 | Self::F32 => 4,
            Self::U64 => 8,
            Self::Opaque(size) => size,
        }
    }
}

impl Spec {
    /// Bytes of one frame, or `None` where that overflows.
    pub fn bytes(&self) -> Option<usize> {
        self.shape
            .iter()
            .try_fold(self.element.size(), |n, &side| n.checked_mul(side))
            .filter(|&n| isize::try_from(n).is_ok())
    }
}

/// Memory of a fixed size that only its owner can see: pages of their own, zeroed by the system when first touched.
pub struct Memory {
    map: MmapMut,
    len: usize,
    /// Known to be zeros.
    is_clear: bool,
    /// Every write faults, whoever does it.
    guarded: bool,
}

impl Memory {
    /// Asks the system for `len` zeroed bytes. `len` is `None` where computing it overflowed.
    pub fn zeroed(what: &'static str, len: Option<usize>) -> Result<Self> {
        let out_of_memory = || Error::OutOfMemory { what, bytes: len };
        let len = len.ok_or_else(out_of_memory)?;
        // An empty mapping does not exist; one byte costs the same page.
        let map = MmapMut::map_anon(len.max(1)).map_err(|_| out_of_memory())?;
        Ok(Self { map, len, is_clear: true, guarded: false })
    }

    /// Memory for `count` zeroed elements.
    pub fn zeroed_for<T: Pod>(what: &'static str, count: Option<usize>) -> Result<Self> {
        Self::zeroed(what, count.and_then(|n| n.checked_mul(size_of::<T>())))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map[..self.len]
    }

    /// The bytes, to write to. Not for guarded memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(!self.guarded, "guarded memory is not written to");
        self.is_clear = false;
        &mut self.map[..self.len]
    }

    /// The content as elements. Pages are aligned for any of them.
    pub fn as_slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    /// The content as elements, to write to.
    pub fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }

    /// Maps the memory so that every write to it faults.
    pub fn guard(&mut self) -> Result<()> {
        self.protect(region::Protection::READ)?;
        self.guarded = true;
        Ok(())
    }

    /// The same memory for use again, guarded no more. Nothing is known of its content, as readers may have had it: some
    /// libraries write to what they were told is read-only.
    pub fn recycled(mut self) -> Result<Self> {
        if self.guarded {
            self.protect(region::Protection::READ_WRITE)?;
            self.guarded = false;
        }
        self.is_clear = false;
        Ok(self)
    }

    #[allow(unsafe_code)]
    fn protect(&mut self, protection: region::Protection) -> Result<()> {
        // SAFETY: the pages are this mapping's own, all of them and no others. They stay readable, and no reference that
        // could be written through exists while `self` is borrowed.
        unsafe { region::protect(self.map.as_ptr(), self.map.len(), protection) }
            .map_err(|error| Error::Guard(std::io::Error::other(error)))
    }

    /// Makes all bytes 0, if they are not known to be.
    pub fn clear(&mut self) {
        if !self.is_clear {
            self.bytes_mut().fill(0);
            self.is_clear = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_page_aligned_and_zero() {
        for len in [0, 1, 4097, 1 << 20] {
            let memory = Memory::zeroed("a test", Some(len)).unwrap();
            assert_eq!(memory.bytes().len(), len);
            assert_eq!(memory.bytes().as_ptr() as usize % 4096, 0);
            assert!(memory.bytes().iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        for len in [None, Some(isize::MAX as usize)] {
            assert!(matches!(Memory::zeroed("a test", len), Err(Error::OutOfMemory { .. })));
        }
    }

    #[test]
    fn guarded_memory_keeps_its_place_and_content_and_can_be_written_again() {
        let mut memory = Memory::zeroed("a test", Some(5000)).unwrap();
        memory.bytes_mut().fill(3);
        let address = memory.bytes().as_ptr();
        memory.guard().unwrap();
        memory.guard().unwrap();
        assert_eq!((memory.bytes().as_ptr(), memory.bytes()), (address, &[3; 5000][..]));
        let mut memory = memory.recycled().unwrap();
        memory.clear();
        assert_eq!((memory.bytes().as_ptr(), memory.bytes()), (address, &[0; 5000][..]));
    }

    #[test]
    fn a_spec_knows_its_size() {
        let spec = |shape: &[usize], element| Spec { shape: shape.to_vec(), element }.bytes();
        assert_eq!(spec(&[2, 3], Element::U32), Some(24));
        assert_eq!(spec(&[2, 3], Element::U64), Some(48));
        assert_eq!(spec(&[], Element::Opaque(5)), Some(5));
        assert_eq!(spec(&[0, 9], Element::F32), Some(0));
        assert_eq!(spec(&[usize::MAX, 2], Element::F32), None);
        assert_eq!(spec(&[usize::MAX / 4], Element::U32), None);
    }
}
