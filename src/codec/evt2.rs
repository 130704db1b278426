//! EVT 2.0: little-endian words of 32 bits, <https://docs.prophesee.ai/stable/data/encoding_formats/evt2.html>.
//!
//! | bits 31..28 | meaning | bits 27..0 |
//! |---|---|---|
//! | 0x0, 0x1 | CD event, OFF or ON | time 27..22 (its 6 low bits), x 21..11, y 10..0 |
//! | 0x8 | TIME_HIGH | the time's next 28 bits |
//! | others | triggers, vendor words | skipped |
//!
//! The 34 bits of time overflow after 4 h 46 min. A TIME_HIGH that falls by nearly the whole range is
//! taken for that; any other backward step is the recording's own and kept.

use super::{Decoder, Error, EventBuffer, Partial, Record, Report, Saved, record};

const TIME_HIGH: u32 = 0x8;

/// Decodes EVT 2.0.
#[derive(Clone, Default)]
pub struct Evt2Decoder {
    partial: Partial<4>,
    time: Time,
}

/// The clock as the last TIME_HIGH left it.
#[derive(Clone, Copy, Default)]
struct Time {
    /// The last TIME_HIGH; none yet: events have no time and are dropped.
    high: Option<u32>,
    /// What the overflows so far add up to, in µs.
    epoch: u64,
}

impl Time {
    /// The least fall of TIME_HIGH, in its units of 64 µs, that is an overflow: the whole range less
    /// 10 ms, as the clock words around an overflow may be lost.
    const OVERFLOW: u32 = (((1 << 28) - 1) * 64 - 10_000_u64).div_ceil(64) as u32;

    /// Takes a TIME_HIGH; returns the time its events start from.
    fn set_high(&mut self, high: u32) -> u64 {
        if self.high.is_some_and(|before| before >= high + Self::OVERFLOW) {
            self.epoch = self.epoch.wrapping_add(1 << 34);
        }
        self.high = Some(high);
        self.base()
    }

    fn base(&self) -> u64 {
        self.epoch.wrapping_add(u64::from(self.high.unwrap_or(0)) << 6)
    }
}

impl Evt2Decoder {
    /// A decoder at the start of a recording.
    pub fn new() -> Self {
        Self::default()
    }

    fn decode(&mut self, mut words: &[[u8; 4]], out: &mut EventBuffer) {
        if self.time.high.is_none() {
            let first = words.iter().position(|&word| u32::from_le_bytes(word) >> 28 == TIME_HIGH);
            words = &words[first.unwrap_or(words.len())..];
        }
        let rows = out.room(words.len());
        let mut kept = 0;
        let mut time = self.time;
        let mut base = time.base();
        let mut one = |word: u32, rows: &mut [Record], base: &mut u64| {
            match word >> 28 {
                0 | 1 => {
                    rows[0] = event(word, *base);
                    return 1;
                }
                TIME_HIGH => *base = time.set_high(word & 0x0fff_ffff),
                _ => {}
            }
            0
        };
        // Events come in runs, so eight words are usually eight events: they share one test.
        let (eights, rest) = words.as_chunks::<8>();
        for eight in eights {
            let eight = eight.map(u32::from_le_bytes);
            if eight.iter().fold(0, |all, word| all | word) >> 28 <= 1 {
                for (row, word) in rows[kept..kept + 8].iter_mut().zip(eight) {
                    *row = event(word, base);
                }
                kept += 8;
            } else {
                for word in eight {
                    kept += one(word, &mut rows[kept..], &mut base);
                }
            }
        }
        for &word in rest {
            kept += one(u32::from_le_bytes(word), &mut rows[kept..], &mut base);
        }
        self.time = time;
        out.keep(kept);
    }
}

/// The event of a CD word, whose type is its polarity.
#[inline(always)]
fn event(word: u32, base: u64) -> Record {
    let t = base | u64::from(word >> 22 & 0x3f);
    record(t, word >> 11 & 0x7ff | (word & 0x7ff) << 16, (word >> 28) as u8)
}

impl Decoder for Evt2Decoder {
    fn feed(&mut self, mut bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        if let Some(word) = self.partial.complete(&mut bytes) {
            self.decode(&[word], out);
        }
        let words = self.partial.split(bytes);
        self.decode(words, out);
        Ok(())
    }

    fn report(&self) -> Report {
        Report::default()
    }

    fn word(&self) -> usize {
        4
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn save(&self) -> Option<Saved> {
        let again = self.partial.len as u64;
        let mut state = self.time.epoch.to_le_bytes().to_vec();
        state.extend(self.time.high.map_or(u32::MAX, |high| high).to_le_bytes());
        Some(Saved { state, again })
    }

    fn load(&mut self, state: &[u8]) -> bool {
        let Some((epoch, high)) = state.split_first_chunk::<8>() else { return false };
        let Ok(high) = high.try_into().map(u32::from_le_bytes) else { return false };
        self.time = Time { epoch: u64::from_le_bytes(*epoch), high: (high < 1 << 28).then_some(high) };
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::{Event, testing};

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn times(words: &[u32]) -> Vec<u64> {
        let (events, end) = testing::decode(Evt2Decoder::new(), &bytes(words), &[usize::MAX]);
        assert_eq!(end, Ok(()));
        events.iter().map(|event| event.t).collect()
    }

    const TOP: u32 = (1 << 28) - 1;
    const HIGH: u32 = TIME_HIGH << 28;

    #[test]
    fn fields_are_where_the_format_has_them() {
        let words = bytes(&[HIGH | 3, 0x1fff_ffff, 0x0000_0801]);
        let (events, _) = testing::decode(Evt2Decoder::new(), &words, &[usize::MAX]);
        let first = Event { t: 3 * 64 + 63, x: 2047, y: 2047, p: 1 };
        let second = Event { t: 3 * 64, x: 1, y: 1, p: 0 };
        assert_eq!(events, [first, second]);
    }

    #[test]
    fn an_overflow_is_told_from_a_step_back() {
        // 156 units are 9,984 us, 157 are 10,048 us.
        assert_eq!(times(&[HIGH | TOP, HIGH | 156, 0]), [(1 << 34) + 156 * 64]);
        assert_eq!(times(&[HIGH | TOP, HIGH | 157, 0]), [157 * 64]);
    }

    #[test]
    fn nothing_is_decoded_before_the_first_time_high() {
        assert_eq!(times(&[0, 1, HIGH, 0x0040_0000]), [1]);
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            words in prop::collection::vec(prop_oneof![
                any::<u32>(), 0u32..2 << 28, HIGH..HIGH | 300, HIGH | (TOP - 300)..=HIGH | TOP,
            ], 0..200),
            tail in 0usize..4,
            sizes in prop::collection::vec(1usize..40, 1..20),
        ) {
            let mut bytes = bytes(&words);
            let whole = testing::decode(Evt2Decoder::new(), &bytes, &[usize::MAX]);
            bytes.extend_from_slice(&[0x10; 3][..tail]);
            prop_assert_eq!(testing::decode(Evt2Decoder::new(), &bytes, &sizes), whole);
        }
    }
}
