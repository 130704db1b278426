//! Vector instructions that decoders use where the machine has them.
//!
//! Whatever is done here is done in plain code too, which says what is right; tests compare the two. This
//! file is allowed
//! `unsafe`: it loads from and stores to memory by pointer.
#![allow(unsafe_code)]

use super::Record;

/// The instructions a decoder uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// What every machine of its kind has.
    Plain,
    /// x86-64 with AVX2 and its bit instructions: plain code, compiled for them.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// x86-64 with AVX-512 as of Ice Lake and Zen 4.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Backend {
    /// All that this machine has, the best one first.
    pub fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let found = [x86::has_avx512().then_some(Self::Avx512), x86::has_avx2().then_some(Self::Avx2)];
        #[cfg(not(target_arch = "x86_64"))]
        let found: [Option<Self>; 0] = [];
        found.into_iter().flatten().chain([Self::Plain])
    }

    /// The best one that this machine has.
    pub fn best() -> Self {
        Self::all().next().unwrap_or(Self::Plain)
    }
}

/// What is found in elements of 16 bytes whose first 8 are a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elements {
    /// The bits that any of them has.
    pub all: u128,
    /// How often a time is below that of the element before. Times are below 2^63 where this matters.
    pub steps_back: u64,
}

/// Writes the first 13 bytes of each element to `rows`, of which there is one more, to be written to as well.
pub fn narrow(backend: Backend, elements: &[[u8; 16]], rows: &mut [Record]) -> Elements {
    match backend {
        Backend::Plain => narrow_plain(elements, 0, rows),
        // SAFETY: `Backend` is only made where the machine has the instructions.
        #[cfg(target_arch = "x86_64")]
        Backend::Avx2 => unsafe { x86::narrow_avx2(elements, rows) },
        // SAFETY: the same.
        #[cfg(target_arch = "x86_64")]
        Backend::Avx512 => unsafe { x86::narrow_avx512(elements, rows) },
    }
}

/// The elements from `start` on, in plain code.
#[inline(always)]
fn narrow_plain(elements: &[[u8; 16]], start: usize, rows: &mut [Record]) -> Elements {
    let time = |element: &[u8; 16]| u128::from_le_bytes(*element) as i64;
    let mut last = elements.get(start.saturating_sub(1)).map_or(0, time);
    let mut found = Elements::default();
    let mut note = |element: &[u8; 16]| {
        found.all |= u128::from_le_bytes(*element);
        let t = time(element);
        found.steps_back += u64::from(t < last);
        last = t;
    };
    // Each is copied whole; the bytes too much are written over by the next one, of the last by nothing.
    let flat = rows[start..].as_flattened_mut();
    let (eights, rest) = elements[start..].as_chunks::<8>();
    for (i, eight) in eights.iter().enumerate() {
        let to: &mut [u8; 107] = flat[i * 104..].first_chunk_mut().expect("a row more");
        for (j, element) in eight.iter().enumerate() {
            to[13 * j..13 * j + 16].copy_from_slice(element);
            note(element);
        }
    }
    for (i, element) in rest.iter().enumerate() {
        flat[eights.len() * 104 + i * 13..][..16].copy_from_slice(element);
        note(element);
    }
    found
}

#[cfg(target_arch = "x86_64")]
pub mod x86 {
    //! What is particular to x86-64.

    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

    use super::{Elements, narrow_plain};
    use crate::codec::Record;

    pub(super) fn has_avx2() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
    }

    pub(super) fn has_avx512() -> bool {
        has_avx2()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512cd")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
    }

    /// Rows that [`store_eight`] may write beyond the eight: its last store is of 64 bytes, of which 52
    /// count.
    pub const SLACK: usize = 1;

    /// Where the byte `i` of four packed records is in four of 16 bytes each.
    const PACK: [u8; 64] = {
        let mut from = [0; 64];
        let mut i = 0;
        while i < 52 {
            from[i] = (i / 13 * 16 + i % 13) as u8;
            i += 1;
        }
        from
    };

    /// Writes eight records to `rows[at..]`, and what is not defined to the row behind them. `rest` is x, y
    /// and p of each, as they lie in a record.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub fn store_eight(rows: &mut [MaybeUninit<Record>], at: usize, t: __m512i, rest: __m512i) {
        assert!(at + 8 + SLACK <= rows.len());
        let first = _mm512_permutex2var_epi64(t, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), rest);
        let second = _mm512_permutex2var_epi64(t, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), rest);
        // SAFETY: PACK is 64 bytes; the load asks for no alignment.
        let pack = unsafe { _mm512_loadu_si512(PACK.as_ptr().cast()) };
        let (first, second) = (_mm512_permutexvar_epi8(pack, first), _mm512_permutexvar_epi8(pack, second));
        let to = rows[at..].as_mut_ptr().cast::<u8>();
        // SAFETY: the stores reach 52 + 64 = 116 bytes from `to`, and 9 rows of 13 bytes are there.
        unsafe {
            _mm512_storeu_si512(to.cast(), first);
            _mm512_storeu_si512(to.add(52).cast(), second);
        }
    }

    /// As [`narrow_plain`].
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn narrow_avx2(elements: &[[u8; 16]], rows: &mut [Record]) -> Elements {
        narrow_plain(elements, 0, rows)
    }

    /// As [`narrow_plain`], eight at a time.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,popcnt")]
    pub(super) fn narrow_avx512(elements: &[[u8; 16]], rows: &mut [Record]) -> Elements {
        let (eights, _) = elements.as_chunks::<8>();
        let (mut all, mut steps) = (_mm512_setzero_si512(), 0);
        let mut before = _mm512_setzero_si512();
        // SAFETY: PACK is 64 bytes; the load asks for no alignment.
        let pack = unsafe { _mm512_loadu_si512(PACK.as_ptr().cast()) };
        let mut done = 0;
        for eight in eights {
            if done + 8 + SLACK > rows.len() {
                break;
            }
            let from = eight.as_ptr();
            // SAFETY: 128 bytes are there; the loads ask for no alignment.
            let (first, second) =
                unsafe { (_mm512_loadu_si512(from.cast()), _mm512_loadu_si512(from.add(4).cast())) };
            all = _mm512_or_si512(all, _mm512_or_si512(first, second));
            let t = _mm512_permutex2var_epi64(first, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), second);
            steps += steps_back(t, before, 8);
            before = t;
            let to = rows[done..].as_mut_ptr().cast::<u8>();
            // SAFETY: the stores reach 52 + 64 = 116 bytes from `to`, and 9 rows of 13 bytes are there.
            unsafe {
                _mm512_storeu_si512(to.cast(), _mm512_permutexvar_epi8(pack, first));
                _mm512_storeu_si512(to.add(52).cast(), _mm512_permutexvar_epi8(pack, second));
            }
            done += 8;
        }
        let rest = narrow_plain(elements, done, rows);
        let lanes = to_bytes(all);
        let all =
            lanes.as_chunks::<16>().0.iter().fold(rest.all, |all, lane| all | u128::from_le_bytes(*lane));
        Elements { all, steps_back: steps + rest.steps_back }
    }

    /// Writes four records to `rows[at..]`, as [`store_eight`] does eight.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn store_four(rows: &mut [MaybeUninit<Record>], at: usize, t: __m256i, rest: __m256i) {
        assert!(at + 4 + SLACK <= rows.len());
        let (even, odd) = (_mm256_unpacklo_epi64(t, rest), _mm256_unpackhi_epi64(t, rest));
        let to = rows[at..].as_mut_ptr().cast::<u8>();
        // SAFETY: the stores reach 39 + 16 = 55 bytes from `to`, and 5 rows of 13 bytes are there.
        unsafe {
            _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(even));
            _mm_storeu_si128(to.add(13).cast(), _mm256_castsi256_si128(odd));
            _mm_storeu_si128(to.add(26).cast(), _mm256_extracti128_si256::<1>(even));
            _mm_storeu_si128(to.add(39).cast(), _mm256_extracti128_si256::<1>(odd));
        }
    }

    /// Four words of 64 bits.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn load_four(words: &[[u8; 8]; 4]) -> __m256i {
        // SAFETY: 32 bytes are there; the load asks for no alignment.
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    }

    /// Eight words of 64 bits.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn load_longs(words: &[[u8; 8]; 8]) -> __m512i {
        // SAFETY: 64 bytes are there; the load asks for no alignment.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    /// How many of the first `count` times are below the one before them; before the first that is
    /// `before[7]`.
    #[inline]
    #[target_feature(enable = "avx512f,popcnt")]
    pub fn steps_back(t: __m512i, before: __m512i, count: usize) -> u64 {
        let before = _mm512_alignr_epi64::<7>(t, before);
        let lower = u32::from(_mm512_cmplt_epu64_mask(t, before));
        u64::from((lower & !(u32::MAX << count.min(8))).count_ones())
    }

    /// Sixteen words of 32 bits.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn load_words(words: &[[u8; 4]; 16]) -> __m512i {
        // SAFETY: 64 bytes are there; the load asks for no alignment.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    /// Up to 62 words of 16 bits behind the two in `carried`, as two vectors of 32. What is behind them is 0
    /// or `fill`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub fn load_behind(carried: u32, words: &[[u8; 2]], fill: u16) -> (__m512i, __m512i) {
        let count = words.len().min(62) as u32;
        let present = if count == 62 { !3 } else { ((1_u64 << (count + 2)) - 1) & !3 };
        let carried = _mm512_zextsi128_si512(_mm_cvtsi32_si128(carried as i32));
        let fill = _mm512_set1_epi16(fill as i16);
        let first = words.as_ptr();
        // SAFETY: a masked load reads only the lanes of its mask. Lane `i` of the first is word `i - 2`, lane
        // `i` of the second word `i + 30`, and the mask has those below `count` only.
        unsafe {
            (
                _mm512_mask_loadu_epi16(carried, present as u32, first.wrapping_sub(2).cast()),
                _mm512_mask_loadu_epi16(fill, (present >> 32) as u32, first.wrapping_add(30).cast()),
            )
        }
    }

    /// The 64 words of two vectors.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub fn to_words(low: __m512i, high: __m512i) -> [u16; 64] {
        let mut words = [0_u16; 64];
        // SAFETY: two times 64 bytes fit; the stores ask for no alignment.
        unsafe {
            _mm512_storeu_si512(words.as_mut_ptr().cast(), low);
            _mm512_storeu_si512(words[32..].as_mut_ptr().cast(), high);
        }
        words
    }

    /// The bytes of a vector.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub fn to_bytes(vector: __m512i) -> [u8; 64] {
        let mut bytes = [0_u8; 64];
        // SAFETY: 64 bytes fit; the store asks for no alignment.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) };
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::Event;

    proptest! {
        #[test]
        fn elements_become_records(
            steps in prop::collection::vec((prop_oneof![4 => 0i64..100, 1 => -100i64..0], any::<u64>()), 0..100),
        ) {
            let mut t = 1i64 << 40;
            let elements: Vec<[u8; 16]> = steps
                .iter()
                .map(|&(step, rest)| {
                    t += step;
                    (u128::from(t as u64) | u128::from(rest) << 64).to_le_bytes()
                })
                .collect();
            let all = elements.iter().fold(0, |all, element| all | u128::from_le_bytes(*element));
            let backs = steps.iter().skip(1).filter(|(step, _)| *step < 0).count() as u64;
            for backend in Backend::all() {
                let mut rows = vec![[7; 13]; elements.len() + 1];
                let found = narrow(backend, &elements, &mut rows);
                prop_assert_eq!(found, Elements { all, steps_back: backs }, "{:?}", backend);
                for (row, element) in rows.iter().zip(&elements) {
                    let word = u128::from_le_bytes(*element);
                    let (t, x, y, p) = (word as u64, (word >> 64) as u16, (word >> 80) as u16, (word >> 96) as u8);
                    prop_assert_eq!(Event::from_record(row), Event { t, x, y, p }, "{:?}", backend);
                }
            }
        }
    }
}
