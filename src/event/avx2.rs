//! Packed records eight at a time.
//!
//! Each record is loaded into half a vector of its own; two unpacks and a few shuffles make columns of eight such halves. What
//! lies outside the sensor is squeezed out with permutations from a table, which is skipped where all eight are inside and mostly were.
//! As in the version for AVX-512, a load into a register is the private copy, and is assembly for that reason.

use super::{BLOCK, Decoded, Events, Layout, Needs, Room, TIMESTAMP_LIMIT};
use crate::geometry::SensorSize;
use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m256i, _MM_HINT_T0, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_prefetch, _mm_shuffle_epi8,
    _mm_unpacklo_epi32, _mm256_add_epi32, _mm256_and_si256, _mm256_blendv_epi8, _mm256_castps_si256,
    _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cmpgt_epi32, _mm256_cmpgt_epi64,
    _mm256_cvtepu8_epi32, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_movemask_ps,
    _mm256_mullo_epi32, _mm256_or_si256, _mm256_permute2x128_si256, _mm256_permutevar8x32_epi32,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_shuffle_ps,
    _mm256_srli_epi32, _mm256_storeu_si256, _mm256_unpackhi_epi64, _mm256_unpacklo_epi64, _mm256_xor_si256,
};
use std::ops::Range;

const STRIDE: usize = Layout::PACKED.stride;
/// Bytes that are loaded of each record, the first three of the next included.
const LOADED: usize = 16;
/// Records that are decoded at once.
const LANES: usize = 8;
/// How far ahead memory is asked for.
const AHEAD: usize = 4096;

const _: () = assert!(
    Layout::PACKED.t == 0 && Layout::PACKED.x == 8 && Layout::PACKED.y == 10 && Layout::PACKED.p == 12
);

/// For each set of lanes, where its members are: byte `i` is the number of the `i`-th of them.
static MEMBERS: [u64; 256] = {
    let mut table = [0; 256];
    let mut set = 0;
    while set < 256 {
        let (mut lane, mut n) = (0, 0);
        while lane < 8 {
            if set >> lane & 1 == 1 {
                table[set] |= (lane as u64) << (8 * n);
                n += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    table
};

/// The same for four lanes of 64 bits, each of which is two of 32.
static PAIRS: [u64; 16] = {
    let mut table = [0; 16];
    let mut set = 0;
    while set < 16 {
        let mut n = 0;
        while n < 4 {
            let lane = MEMBERS[set] >> (8 * n) & 0xFF;
            table[set] |= ((2 * lane) | ((2 * lane + 1) << 8)) << (16 * n);
            n += 1;
        }
        set += 1;
    }
    table
};

/// Whether the machine has what [`decode`] needs, and what other code for such machines may use besides.
pub fn is_available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("popcnt")
}

/// The 16 bytes at `lower` and the 16 at `upper`.
///
/// # Safety
///
/// - They must be readable. They may be changing.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(lower: *const u8, upper: *const u8) -> __m256i {
    let bytes;
    // SAFETY: reads what the caller promised is readable, and nothing else.
    unsafe {
        asm!(
            "vmovdqu {bytes:x}, [{lower}]",
            "vinserti128 {bytes}, {bytes}, [{upper}], 1",
            bytes = out(ymm_reg) bytes,
            lower = in(reg) lower,
            upper = in(reg) upper,
            options(nostack, readonly, preserves_flags),
        );
    }
    bytes
}

/// Stores eight 32-bit lanes, those of `set` first.
///
/// # Safety
///
/// - 32 bytes at `to` must be writable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_members(to: *mut u8, lanes: __m256i, members: __m128i) {
    let lanes = _mm256_permutevar8x32_epi32(lanes, _mm256_cvtepu8_epi32(members));
    // SAFETY: as the caller promised.
    unsafe { _mm256_storeu_si256(to.cast(), lanes) };
}

/// Decodes the records of `range` into `room`. `squeezes`: what lies outside is squeezed out without looking
/// whether anything does. `after` is called after each 16 records.
///
/// # Safety
///
/// - The machine must have what [`is_available`] asks for.
/// - The records must be packed ones.
/// - `range` must be inside theirs and not longer than [`BLOCK`].
#[target_feature(enable = "avx2,popcnt")]
pub unsafe fn decode(
    events: &Events<'_>,
    range: Range<usize>,
    sensor: SensorSize,
    needs: Needs,
    room: &mut Room,
    squeezes: bool,
    mut after: impl FnMut(),
) -> Decoded {
    let Events { data, len, .. } = *events;
    debug_assert!(range.start <= range.end && range.end <= len && range.len() <= BLOCK);
    // A side beyond 2^16 holds every coordinate. Pixel indices inside the sensor are below 2^32, so that they are right
    // modulo 2^32 is enough.
    let width = _mm256_set1_epi32(sensor.width().min(1 << 16) as i32);
    let height = _mm256_set1_epi32(sensor.height().min(1 << 16) as i32);
    let row = _mm256_set1_epi32(sensor.width() as u32 as i32);
    let low = _mm256_set1_epi32(0xFFFF);
    // The first byte of each 32-bit lane of a half.
    let first_bytes = _mm256_set1_epi32(0x0C08_0400);
    // Flips what the comparison takes for a sign.
    let sign = _mm256_set1_epi64x(i64::MIN);

    // The largest `t` inside, its sign flipped: at first that of 0.
    let (mut n, mut latest, mut all) = (0, sign, _mm256_setzero_si256());
    let mut last = [0_u8; LANES * STRIDE + LOADED];
    let mut is_second = true;
    for start in range.clone().step_by(LANES) {
        let count = LANES.min(range.end - start);
        let mut at = data.wrapping_add(start * STRIDE);
        if start + LANES < len {
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD).cast());
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD + 64).cast());
        } else {
            // The last records of the array, after which nothing may be read.
            // SAFETY: `start + count <= len`, and `count <= LANES` records fit.
            unsafe { std::ptr::copy_nonoverlapping(at, last.as_mut_ptr(), count * STRIDE) };
            at = last.as_ptr();
        }
        let valid = ((1_u32 << count) - 1) as u8;
        // SAFETY: nine records are readable at `at`, or it is `last`: each load ends before the ninth does.
        let pair = |i: usize| unsafe { load(at.add(i * STRIDE), at.add((i + LANES / 2) * STRIDE)) };
        let (r04, r15, r26, r37) = (pair(0), pair(1), pair(2), pair(3));
        let (t0145, t2367) = (_mm256_unpacklo_epi64(r04, r15), _mm256_unpacklo_epi64(r26, r37));
        let t0 = _mm256_permute2x128_si256::<0x20>(t0145, t2367);
        let t1 = _mm256_permute2x128_si256::<0x31>(t0145, t2367);
        // Each quarter: x, y, p and what follows.
        let rest0145 = _mm256_castsi256_ps(_mm256_unpackhi_epi64(r04, r15));
        let rest2367 = _mm256_castsi256_ps(_mm256_unpackhi_epi64(r26, r37));
        let xy = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(rest0145, rest2367));

        let (x, y) = (_mm256_and_si256(xy, low), _mm256_srli_epi32::<16>(xy));
        let pixel = _mm256_add_epi32(_mm256_mullo_epi32(y, row), x);
        let is_inside = _mm256_and_si256(_mm256_cmpgt_epi32(width, x), _mm256_cmpgt_epi32(height, y));
        let inside = _mm256_movemask_ps(_mm256_castsi256_ps(is_inside)) as u8 & valid;

        // One bit of `inside` for each 64-bit lane, spread over it.
        let spread = |set: u8| {
            let bits = _mm256_set1_epi64x(i64::from(set));
            // SAFETY: the array is 32 bytes.
            let each = unsafe { _mm256_loadu_si256([1_i64, 2, 4, 8].as_ptr().cast()) };
            _mm256_cmpgt_epi64(_mm256_and_si256(bits, each), _mm256_setzero_si256())
        };
        let larger = |latest, t: __m256i, set: u8| {
            let t = _mm256_xor_si256(t, sign);
            let take = _mm256_and_si256(_mm256_cmpgt_epi64(t, latest), spread(set));
            _mm256_blendv_epi8(latest, t, take)
        };
        // With many outside, a branch that cannot be foreseen costs more than squeezing where nothing is.
        let is_whole = !squeezes && inside == u8::MAX;
        if is_whole {
            let flipped = (_mm256_xor_si256(t0, sign), _mm256_xor_si256(t1, sign));
            latest = _mm256_blendv_epi8(latest, flipped.0, _mm256_cmpgt_epi64(flipped.0, latest));
            latest = _mm256_blendv_epi8(latest, flipped.1, _mm256_cmpgt_epi64(flipped.1, latest));
        } else {
            latest = larger(larger(latest, t0, inside & 0xF), t1, inside >> 4);
        }
        // Records after the last are zeros.
        all = _mm256_or_si256(
            all,
            if valid == u8::MAX || start + LANES >= len {
                _mm256_or_si256(t0, t1)
            } else {
                _mm256_or_si256(
                    _mm256_and_si256(t0, spread(valid & 0xF)),
                    _mm256_and_si256(t1, spread(valid >> 4)),
                )
            },
        );

        debug_assert!(n < BLOCK);
        let (to_t, to_pixel, to_p) = (&raw mut room.t[n], &raw mut room.pixel[n], &raw mut room.p[n]);
        let members = _mm_cvtsi64_si128(MEMBERS[usize::from(inside)] as i64);
        // SAFETY: each column has more than `LANES` elements from `n < BLOCK` on, and four after that.
        unsafe {
            if is_whole {
                _mm256_storeu_si256(to_pixel.cast(), pixel);
                if needs.t {
                    _mm256_storeu_si256(to_t.cast(), t0);
                    _mm256_storeu_si256(to_t.add(LANES / 2).cast(), t1);
                }
            } else {
                store_members(to_pixel.cast(), pixel, members);
                if needs.t {
                    let (lower, upper) = (inside & 0xF, inside >> 4);
                    store_members(to_t.cast(), t0, _mm_cvtsi64_si128(PAIRS[usize::from(lower)] as i64));
                    let to_t = to_t.add(lower.count_ones() as usize);
                    store_members(to_t.cast(), t1, _mm_cvtsi64_si128(PAIRS[usize::from(upper)] as i64));
                }
            }
            if needs.p {
                let p = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(rest0145, rest2367));
                let p = _mm256_shuffle_epi8(p, first_bytes);
                let bytes = _mm_unpacklo_epi32(_mm256_castsi256_si128(p), _mm256_extracti128_si256::<1>(p));
                let bytes = _mm_shuffle_epi8(bytes, members);
                to_p.cast::<[u8; 8]>().write((_mm_cvtsi128_si64(bytes) as u64).to_le_bytes());
            }
        }
        n += inside.count_ones() as usize;
        is_second = !is_second;
        if is_second {
            after();
        }
    }
    let lanes = |v: __m256i| {
        let mut lanes = [0_u64; 4];
        // SAFETY: the array is 32 bytes.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), v) };
        lanes
    };
    Decoded {
        inside: n,
        latest: lanes(_mm256_xor_si256(latest, sign)).into_iter().max().unwrap_or(0),
        bad: lanes(all).into_iter().any(|t| t >= TIMESTAMP_LIMIT),
    }
}
