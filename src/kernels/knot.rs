//! Knots of the voxel grid, from sums to values.
#![allow(unsafe_code)]

use crate::event::Isa;

/// Sums that are finished at a time, in the first cache.
const TOGETHER: usize = 1024;

/// Turns sums into the bits of the float32 next to `sum / bin_us`.
#[derive(Clone, Copy)]
pub struct Knots {
    isa: Isa,
    bin_us: u64,
}

impl Knots {
    /// With the instructions of `isa`, which the machine must have.
    pub fn new(isa: Isa, bin_us: u64) -> Self {
        assert!(Isa::available().contains(&isa));
        Self { isa, bin_us }
    }

    /// In place.
    pub fn finish(self, knot: &mut [i32]) {
        match self.isa {
            Isa::Scalar => finish(knot, self.bin_us),
            // SAFETY: `new` saw that the machine has AVX2, which `Isa::Avx512` includes.
            #[cfg(target_arch = "x86_64")]
            _ => unsafe { finish_avx2(knot, self.bin_us) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn finish_avx2(knot: &mut [i32], bin_us: u64) {
    finish(knot, bin_us);
}

#[inline(always)]
fn finish(knot: &mut [i32], bin_us: u64) {
    for sums in knot.chunks_mut(TOGETHER) {
        let bits = sums.iter().fold(0, |bits, &sum| bits | size(sum));
        finish_some(sums, bits, bin_us);
    }
}

/// The sum, or where it is negative, what is between it and -1.
#[inline(always)]
fn size(sum: i32) -> i32 {
    sum ^ (sum >> 31)
}

/// `bits` are those of all sizes.
#[inline(always)]
fn finish_some(sums: &mut [i32], bits: i32, bin_us: u64) {
    // With neither above 2^24 in size, a quotient is farther from the middle of two float32 than 2^-49 of its size: were it
    // a middle k / 2^s (k odd, of 25 bits), k would divide the sum; so it is off by 1 / (bin_us * 2^s) at least.
    // The product is off by less than 2^-51. So both round to the same float32.
    if bits < 1 << 24 && bin_us < 1 << 24 {
        let inverse = 1.0 / bin_us as f64;
        for sum in sums {
            *sum = ((f64::from(*sum) * inverse) as f32).to_bits() as i32;
        }
    } else {
        for sum in sums {
            *sum = ((f64::from(*sum) / bin_us as f64) as f32).to_bits() as i32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(sum: i64, bin_us: u64) -> i32 {
        ((sum as f64 / bin_us as f64) as f32).to_bits() as i32
    }

    proptest! {
        #[test]
        fn every_way_divides(
            bin_us in prop_oneof![1_u64..100, 1_u64..(1 << 28), (1_u64 << 24) - 2..(1 << 24) + 2],
            sums in prop::collection::vec((any::<i32>(), 0_u32..32), 1..3000),
        ) {
            // Small ones most of the time.
            let mut sums: Vec<i32> = sums.iter().map(|&(sum, shift)| sum >> shift).collect();
            // Around where the ways part.
            sums[0] = 1 << 24;
            let expected: Vec<_> = sums.iter().map(|&sum| value(sum.into(), bin_us)).collect();
            for isa in Isa::available() {
                let mut knot = sums.clone();
                Knots::new(isa, bin_us).finish(&mut knot);
                prop_assert_eq!(&knot, &expected);
            }
        }
    }

    #[test]
    fn small_sums_round_as_quotients_do() {
        // Both signs, up to the largest for which a product is taken.
        for bin_us in [1, 3, 49, 3571, 12_500, (1 << 24) - 1] {
            let sums: Vec<i32> =
                (0..1 << 24).step_by(977).chain([1 << 24]).flat_map(|sum| [sum, -sum]).collect();
            for isa in Isa::available() {
                for sums in sums.chunks(TOGETHER) {
                    let mut knot = sums.to_vec();
                    Knots::new(isa, bin_us).finish(&mut knot);
                    let expected: Vec<_> = sums.iter().map(|&sum| value(sum.into(), bin_us)).collect();
                    assert_eq!(knot, expected);
                }
            }
        }
    }
}
