//! Writing the planes of a frame.
//!
//! Who reads a frame begins at its beginning. So that is written last: it is in the L2 cache then, if not all of the frame is.
//!
//! A frame that is larger than the caches is not there any more when somebody comes to read it. So its planes are written past
//! the caches: a store that goes through them first reads what it is about to overwrite.
#![allow(unsafe_code)]

use crate::event::Isa;

/// Frames from this size on are written past the caches.
#[cfg(target_arch = "x86_64")]
const LARGE: usize = 32 << 20;

/// How the planes of a frame are written.
#[derive(Clone, Copy)]
pub struct Stores(Way);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Through,
    #[cfg(target_arch = "x86_64")]
    ThroughWithAvx512,
    #[cfg(target_arch = "x86_64")]
    Past,
}

impl Stores {
    /// For frames of so many bytes (`None` where that overflows), on a machine that must have `isa`.
    pub fn new(bytes: Option<usize>, isa: Isa) -> Self {
        assert!(Isa::available().contains(&isa));
        Self(match isa {
            #[cfg(target_arch = "x86_64")]
            _ if bytes.is_none_or(|bytes| bytes >= LARGE) => Way::Past,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Way::ThroughWithAvx512,
            _ => Way::Through,
        })
    }

    /// Writes what is in `from`, of the same length.
    pub fn copy(self, out: &mut [u32], from: &[u32]) {
        assert_eq!(out.len(), from.len());
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Way::Past => {
                let (out, from) = write_ends(out, from, |&value| value);
                past::copy(out, from);
            }
            _ => from_the_end(out, from, |out, from| out.copy_from_slice(from)),
        }
    }

    /// Writes the bytes in `from`, of the same length, as 32 bits each.
    pub fn widen(self, out: &mut [u32], from: &[u8]) {
        assert_eq!(out.len(), from.len());
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Way::ThroughWithAvx512 => {
                from_the_end(out, from, |out, from| {
                    // Whole lines at a time, where the first group is aligned, as it is in most frames.
                    let (groups, last) = out.as_chunks_mut::<GROUP>();
                    let (groups_from, last_from) = from.as_chunks::<GROUP>();
                    // SAFETY: `new` saw that the machine has AVX-512.
                    unsafe { widen_avx512(groups, groups_from) };
                    widen(last, last_from);
                });
            }
            Way::Through => from_the_end(out, from, widen),
            #[cfg(target_arch = "x86_64")]
            Way::Past => {
                let (out, from) = write_ends(out, from, |&low| u32::from(low));
                past::widen(out, from);
            }
        }
    }
}

/// Calls `write` with stretches of `out` and of `from`, which are of the same length, from the last to the first.
#[inline(always)]
pub fn from_the_end<T, U>(out: &mut [T], from: &[U], mut write: impl FnMut(&mut [T], &[U])) {
    assert_eq!(out.len(), from.len());
    for (out, from) in out.chunks_mut(STRETCH).zip(from.chunks(STRETCH)).rev() {
        write(out, from);
    }
}

/// Some pages, so that whatever looks ahead in the machine has something to look at.
const STRETCH: usize = 1 << 13;

fn widen(out: &mut [u32], from: &[u8]) {
    out.iter_mut().zip(from).for_each(|(out, &low)| *out = u32::from(low));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn widen_avx512(out: &mut [Group], from: &[[u8; GROUP]]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm512_cvtepu8_epi32, _mm512_storeu_si512};
    for (out, from) in out.iter_mut().zip(from) {
        // SAFETY: the load is of the 16 bytes of a group, the store to its 64 bytes.
        unsafe {
            let bytes = _mm_loadu_si128(from.as_ptr().cast());
            _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_cvtepu8_epi32(bytes));
        }
    }
}

/// Values that are written past the caches at a time, and the alignment of that: a cache line.
#[cfg(target_arch = "x86_64")]
const GROUP: usize = 16;
#[cfg(target_arch = "x86_64")]
type Group = [u32; GROUP];

/// Writes what is before the first and behind the last aligned group. Returns the groups, and what is to be written there.
#[cfg(target_arch = "x86_64")]
fn write_ends<'a, 'b, T>(
    out: &'a mut [u32],
    from: &'b [T],
    value: impl Fn(&T) -> u32,
) -> (&'a mut [Group], &'b [[T; GROUP]]) {
    let start = out.as_ptr().align_offset(size_of::<Group>()).min(out.len());
    let (first, out) = out.split_at_mut(start);
    let (first_from, from) = from.split_at(start);
    let (groups, last) = out.as_chunks_mut::<GROUP>();
    let (groups_from, last_from) = from.as_chunks::<GROUP>();
    for (out, from) in first.iter_mut().zip(first_from).chain(last.iter_mut().zip(last_from)) {
        *out = value(from);
    }
    (groups, groups_from)
}

#[cfg(target_arch = "x86_64")]
mod past {
    use super::{GROUP, Group};
    use std::arch::x86_64::{
        __m128i, _mm_loadu_si128, _mm_setzero_si128, _mm_sfence, _mm_stream_si128, _mm_unpackhi_epi8,
        _mm_unpackhi_epi16, _mm_unpacklo_epi8, _mm_unpacklo_epi16,
    };

    pub fn copy(out: &mut [Group], from: &[Group]) {
        write(out, from, |from| {
            // SAFETY: the four loads are of the 64 bytes of a group.
            std::array::from_fn(|i| unsafe { _mm_loadu_si128(from.as_ptr().cast::<__m128i>().add(i)) })
        });
    }

    pub fn widen(out: &mut [Group], from: &[[u8; GROUP]]) {
        write(out, from, |from| {
            // SAFETY: the load is of the 16 bytes of a group.
            let bytes = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
            // SAFETY: SSE2 is part of every x86-64.
            unsafe {
                let zero = _mm_setzero_si128();
                let (low, high) = (_mm_unpacklo_epi8(bytes, zero), _mm_unpackhi_epi8(bytes, zero));
                [
                    _mm_unpacklo_epi16(low, zero),
                    _mm_unpackhi_epi16(low, zero),
                    _mm_unpacklo_epi16(high, zero),
                    _mm_unpackhi_epi16(high, zero),
                ]
            }
        });
    }

    #[inline(always)]
    fn write<T>(out: &mut [Group], from: &[T], group: impl Fn(&T) -> [__m128i; 4]) {
        for (out, from) in out.iter_mut().zip(from) {
            let out = out.as_mut_ptr().cast::<__m128i>();
            assert!(out.is_aligned());
            for (i, part) in group(from).into_iter().enumerate() {
                // SAFETY: the four stores are to the 64 bytes of a group, which is aligned.
                unsafe { _mm_stream_si128(out.add(i), part) };
            }
        }
        // Such stores are not ordered with others. The next one may be that which tells other threads that the frame is made.
        // SAFETY: SSE is part of every x86-64.
        unsafe { _mm_sfence() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_writes_the_same_wherever_it_starts() {
        let bytes: Vec<u8> = (0..600_u32).map(|i| (i * 37 % 251) as u8).collect();
        let words: Vec<u32> = (0..600_u32).map(|i| i.wrapping_mul(0x9E37_79B9)).collect();
        let through = Isa::available().into_iter().map(|isa| Stores::new(Some(0), isa));
        for stores in through.chain([Stores::new(None, Isa::Scalar)]) {
            for start in 0..40 {
                for len in [0, 1, 3, 15, 16, 17, 63, 64, 65, 500] {
                    let mut out = vec![7; 600];
                    stores.copy(&mut out[start..start + len], &words[..len]);
                    assert!(out[..start].iter().chain(&out[start + len..]).all(|&value| value == 7));
                    assert_eq!(out[start..start + len], words[..len]);
                    stores.widen(&mut out[start..start + len], &bytes[..len]);
                    assert!(out[..start].iter().chain(&out[start + len..]).all(|&value| value == 7));
                    assert!(
                        out[start..start + len].iter().zip(&bytes).all(|(&out, &low)| out == u32::from(low))
                    );
                }
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn large_frames_are_written_past_the_caches() {
        let way = |bytes| Stores::new(Some(bytes), Isa::Scalar).0;
        assert_eq!((way(LARGE - 1), way(LARGE)), (Way::Through, Way::Past));
    }
}
