//! `exp` for a block of times at once.
//!
//! `e^x = 2^k e^r` with `k` the integer next to `x / ln 2`, so `|r| <= ln 2 / 2`, where the series up to `r^11 / 11!` is off by
//! less than 1e-14 of the value. A sum of such values that is rounded to float32 (6e-8) does not show it. There are no
//! branches and no tables, so that a compiler that may use AVX-512 makes vectors of eight of it: 0.8 ns a value,
//! against 2 ns with AVX2 and 4.6 ns with the instructions that every machine has. There, neighbours that share a
//! timestamp, as they mostly do, share the value.
#![allow(unsafe_code)]

use crate::event::{BLOCK, Isa};

/// Below this, `e^x` is no normal float64; a float32 shows 0 for all there is.
const SMALLEST: f64 = -708.0;
const LARGEST: f64 = 709.0;

/// Adding and subtracting this rounds to an integer, which is then found in the lowest bits of the sum.
const ROUND: f64 = (3_u64 << 51) as f64;

/// `ln 2` in two parts, the first with so few bits that `k` times it is exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEE0_0000);
const LN_2_LOW: f64 = f64::from_bits(0x3DEA_39EF_3579_3C76);

/// `1 / n!`
const fn inverse_factorials() -> [f64; 12] {
    let mut inverse = [1.0; 12];
    let mut factorial = 1_u64;
    let mut n = 1;
    while n < 12 {
        factorial *= n as u64;
        inverse[n] = 1.0 / factorial as f64;
        n += 1;
    }
    inverse
}

static TERMS: [f64; 12] = inverse_factorials();

/// `e^x`, for `x` brought into `[SMALLEST, LARGEST]`.
#[inline(always)]
fn exp(x: f64, multiply_add: impl Fn(f64, f64, f64) -> f64) -> f64 {
    let x = if x > SMALLEST { x } else { SMALLEST };
    let x = if x < LARGEST { x } else { LARGEST };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    let mut sum = TERMS[11];
    for &term in TERMS[..11].iter().rev() {
        sum = multiply_add(sum, r, term);
    }
    f64::from_bits(sum.to_bits().wrapping_add(shifted.to_bits() << 52))
}

/// `t - reference`, both below 2^63, so that it fits.
#[inline(always)]
fn distance(t: u64, reference: u64) -> f64 {
    t.wrapping_sub(reference) as i64 as f64
}

/// How far a block's times may be from its first, in time constants, for a series of six terms to do.
const NEAR: f64 = 1.0 / 128.0;

/// Fills in the weights by what they are relative to the first one, if the times are that near to it, and says so: the
/// first term left out is below `NEAR^6 / 6!`, which is 3e-16.
#[inline(always)]
fn fill_near(
    weights: &mut [f64; BLOCK],
    times: &[u64],
    reference: u64,
    per_us: f64,
    multiply_add: impl Fn(f64, f64, f64) -> f64 + Copy,
) -> bool {
    let Some(&first) = times.first() else { return true };
    let weight_of_first = exp(distance(first, reference) * per_us, multiply_add);
    // No less than the largest distance, and less than twice that: bits are faster to collect than a maximum.
    let mut bits = 0;
    for (weight, &t) in weights.iter_mut().zip(times) {
        let step = t.wrapping_sub(first) as i64;
        bits |= step ^ (step >> 63);
        // Of a distance that is too long this is nonsense, which `bits` tells.
        let x = f64::from(step as i32) * per_us;
        let mut sum = TERMS[5];
        for &term in TERMS[..5].iter().rev() {
            sum = multiply_add(sum, x, term);
        }
        *weight = weight_of_first * sum;
    }
    bits <= i64::from(i32::MAX) && (bits + 1) as f64 * per_us <= NEAR
}

/// For functions that may use the fused instruction: with others it is a slow call.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fill_fused(weights: &mut [f64; BLOCK], times: &[u64], reference: u64, per_us: f64) {
    if fill_near(weights, times, reference, per_us, f64::mul_add) {
        return;
    }
    for (weight, &t) in weights.iter_mut().zip(times) {
        *weight = exp(distance(t, reference) * per_us, f64::mul_add);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,fma")]
fn fill_avx512(weights: &mut [f64; BLOCK], times: &[u64], reference: u64, per_us: f64) {
    fill_fused(weights, times, reference, per_us);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fill_avx2(weights: &mut [f64; BLOCK], times: &[u64], reference: u64, per_us: f64) {
    fill_fused(weights, times, reference, per_us);
}

/// How weights are computed.
#[derive(Clone, Copy)]
pub struct Weights(Isa);

impl Weights {
    /// With the instructions of `isa`, which the machine must have.
    pub fn new(isa: Isa) -> Self {
        assert!(Isa::available().contains(&isa));
        Self(isa)
    }

    /// Fills in `exp((t - reference) * per_us)` for each of `times`, all of them and `reference` below 2^63.
    pub fn fill(self, weights: &mut [f64; BLOCK], times: &[u64], reference: u64, per_us: f64) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` saw that the machine has AVX-512 in the extent that `Isa` asks for, which includes this.
            Isa::Avx512 => unsafe { fill_avx512(weights, times, reference, per_us) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise, with AVX2.
            Isa::Avx2 => unsafe { fill_avx2(weights, times, reference, per_us) },
            Isa::Scalar if fill_near(weights, times, reference, per_us, |a, b, c| a * b + c) => {}
            Isa::Scalar => {
                let (mut last_t, mut last) = (reference, 1.0);
                for (weight, &t) in weights.iter_mut().zip(times) {
                    if t != last_t {
                        (last_t, last) = (t, exp(distance(t, reference) * per_us, |a, b, c| a * b + c));
                    }
                    *weight = last;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_close_to_the_library() {
        let reference = 1 << 62;
        for isa in Isa::available() {
            for per_us in [1e-300, 1e-9, 1.0 / 30_000.0, 0.1, 1.0, 7.3] {
                // Near the first of them, and around how far that reaches.
                let edge = ((NEAR / per_us / 99.0).min(1e9) as u64).max(1);
                for spread in [0, 1, 3, 1000, 1 << 40, edge / 2, edge, edge + 1] {
                    let times: Vec<u64> = (0..100).map(|i| reference - 50 * spread + i * spread).collect();
                    let mut weights = [f64::NAN; BLOCK];
                    Weights::new(isa).fill(&mut weights, &times, reference, per_us);
                    for (&t, &got) in times.iter().zip(&weights) {
                        let x = (i128::from(t) - i128::from(reference)) as f64 * per_us;
                        let expected = x.clamp(SMALLEST, LARGEST).exp();
                        assert!((got / expected - 1.0).abs() < 2e-14, "{isa:?} e^{x}: {got} {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_farthest_times_and_constants_stay_finite() {
        let times = [0, 1, (1 << 63) - 1];
        for isa in Isa::available() {
            for per_us in [0.0, f64::MIN_POSITIVE, 1.0, f64::MAX] {
                for reference in times {
                    let mut weights = [f64::NAN; BLOCK];
                    Weights::new(isa).fill(&mut weights, &times, reference, per_us);
                    for (&t, &weight) in times.iter().zip(&weights) {
                        assert!(weight.is_finite() && weight > 0.0, "{weight}");
                        assert!(t != reference || weight == 1.0, "{weight}");
                    }
                }
            }
        }
    }
}
