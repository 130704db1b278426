//! Vector instructions that decoders use where the machine has them.
//!
//! Whatever is done here is done in plain code too, which says what is right; tests compare the two. This
//! file is allowed
//! `unsafe`: it loads from and stores to memory by pointer.
#![allow(unsafe_code)]

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

#[cfg(target_arch = "x86_64")]
pub mod x86 {
    //! What is particular to x86-64.

    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

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
