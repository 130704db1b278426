//! EVT 3.0: little-endian words of 16 bits, <https://docs.prophesee.ai/stable/data/encoding_formats/evt3.html>.
//!
//! | bits 15..12 | word | bits 11..0 |
//! |---|---|---|
//! | 0x0 | ADDR_Y: the row of what follows | y 10..0 |
//! | 0x1 | a row of a reserved type | |
//! | 0x2 | ADDR_X: one event | polarity 11, x 10..0 |
//! | 0x3 | BASE_X: where vectors start | polarity 11, x 10..0 |
//! | 0x4 | VECT_12: an event per set bit | 12 bits |
//! | 0x5 | VECT_8: an event per set bit | 8 bits, 7..0 |
//! | 0x6 | TIME_LOW | the time's 12 low bits |
//! | 0x8 | TIME_HIGH | the time's next 12 bits |
//! | others | triggers, vendor words | skipped |
//!
//! The 24 bits of time overflow every 16.8 s, so overflows must be told from clocks that step back. A
//! TIME_HIGH that falls by more than 3840 of its 4096 values is an overflow, as in the validator of the
//! format's makers; every smaller fall is kept.

use super::{Decoder, Error, EventBuffer, Partial, Record, Report, record};

const ADDR_Y: u16 = 0x0;
const RESERVED_Y: u16 = 0x1;
const ADDR_X: u16 = 0x2;
const BASE_X: u16 = 0x3;
const VECT_12: u16 = 0x4;
const VECT_8: u16 = 0x5;
const TIME_LOW: u16 = 0x6;
const TIME_HIGH: u16 = 0x8;

const FARTHEST_BASE: u32 = 1 << 31;

/// A word that is skipped, to fill a block up.
const SKIPPED: u16 = 0xf << 12;

/// Decodes EVT 3.0.
#[derive(Clone, Default)]
pub struct Evt3Decoder {
    partial: Partial<2>,
    state: State,
}

/// What the words so far say about the next event.
#[derive(Clone, Copy)]
struct State {
    /// The last TIME_HIGH; before the first, everything is dropped.
    high: Option<u16>,
    /// The time without its low bits: overflows and TIME_HIGH.
    base_time: u64,
    /// The last TIME_LOW, as a word; of value 0 when TIME_HIGH changed since.
    low: u16,
    /// The last ADDR_Y or RESERVED_Y, as a word. There are no events inside a reserved row, so it also
    /// stands for no row yet.
    row: u16,
    /// Where the next vector starts and its polarity; none yet: vectors are dropped.
    vector: Option<(u32, u8)>,
}

impl Default for State {
    fn default() -> Self {
        State { high: None, base_time: 0, low: TIME_LOW << 12, row: RESERVED_Y << 12, vector: None }
    }
}

impl State {
    /// Takes a TIME_HIGH; true when it changes the value.
    fn set_high(&mut self, high: u16) -> bool {
        match self.high.replace(high) {
            Some(before) if before == high => return false,
            Some(before) => {
                let overflow = before > high && before - high > 3840;
                self.base_time = (self.base_time >> 24).wrapping_add(u64::from(overflow)) << 24;
            }
            None => {}
        }
        self.base_time |= u64::from(high) << 12;
        self.low = TIME_LOW << 12;
        true
    }

    fn time(&self, low: u16) -> u64 {
        self.base_time | u64::from(low & 0x0fff)
    }

    /// Takes a vector word; writes its events to the front of `rows` and returns their number.
    #[inline]
    fn take_vector(&mut self, word: u16, row: u16, time: u64, rows: &mut [Record]) -> Result<usize, Error> {
        let (true, Some((base, polarity))) = (in_row(row), self.vector) else {
            return Ok(0);
        };
        let (mut bits, width) = if word >> 12 == VECT_12 { (word & 0xfff, 12) } else { (word & 0xff, 8) };
        // Vectors without events may move the base on and on; it stops far beyond the last column.
        self.vector = Some(((base + width).min(FARTHEST_BASE), polarity));
        let last = base + bits.checked_ilog2().unwrap_or(0);
        if bits != 0 && last > 0xffff {
            return Err(Error::Malformed(format!(
                "malformed EVT 3.0 stream: a vector reaches x = {last}; x must be at most 65535"
            )));
        }
        let y = row_bits(row);
        // Four at a time, whether or not there are so many: how many there are cannot be predicted.
        let count = bits.count_ones() as usize;
        for rows in rows[..count.next_multiple_of(4)].as_chunks_mut::<4>().0 {
            for to in rows {
                *to = record(time, y | (base + bits.trailing_zeros()), polarity);
                bits &= bits.wrapping_sub(1);
            }
        }
        Ok(count)
    }
}

/// Whether a row's word begins a row that has events.
#[inline(always)]
fn in_row(row: u16) -> bool {
    row >> 12 == ADDR_Y
}

/// A row's word moved to where a record has the row, beside x.
#[inline(always)]
fn row_bits(row: u16) -> u32 {
    u32::from(row & 0x7ff) << 16
}

/// Words of a [`Block`], of which the first two are carried over from the block before.
const BLOCK: usize = 64;
const CARRIED: usize = 2;

/// The words being decoded: a row and a TIME_LOW from before them, and up to 62 words.
///
/// A recording is mostly rows, columns, times and repeated times, in an order that no branch predictor
/// can guess, so the words are not looked at one after the other. A bit mask per type says where in the block
/// it is, which takes no branches. Then only the words that emit are visited, and each finds its row and its
/// time as the last bit of their masks before its own. The carried words make sure there is one. One word
/// at a time without branches, each writing a record that only ADDR_X keeps, took half again as long.
struct Block {
    words: [u16; BLOCK],
}

impl Block {
    fn new(state: &State, words: &[[u8; 2]]) -> Self {
        let mut block = [SKIPPED; BLOCK];
        block[0] = state.row;
        block[1] = state.low;
        for (to, from) in block[CARRIED..].iter_mut().zip(words) {
            *to = u16::from_le_bytes(*from);
        }
        Block { words: block }
    }

    /// The positions of the words that are `wanted`, as bits.
    #[inline(always)]
    fn mask(&self, wanted: impl Fn(u16) -> bool) -> u64 {
        let mut flags = [0_u8; BLOCK];
        for (flag, &word) in flags.iter_mut().zip(&self.words) {
            *flag = u8::from(wanted(word));
        }
        let mut mask = 0;
        for (i, flags) in flags.as_chunks::<8>().0.iter().enumerate() {
            // Eight bytes of 0 or 1 to eight bits: the product's top byte has each of them in its place.
            let bits = u64::from_le_bytes(*flags).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            mask |= bits << (8 * i);
        }
        mask
    }

    /// The last word in `mask`, which is not 0.
    #[inline(always)]
    fn last(&self, mask: u64) -> u16 {
        self.words[(mask | 1).ilog2() as usize]
    }
}

impl Evt3Decoder {
    /// A decoder at the start of a recording.
    pub fn new() -> Self {
        Self::default()
    }

    fn decode(&mut self, mut words: &[[u8; 2]], out: &mut EventBuffer) -> Result<(), Error> {
        if self.state.high.is_none() {
            let first = words.iter().position(|&word| u16::from_le_bytes(word) >> 12 == TIME_HIGH);
            words = &words[first.unwrap_or(words.len())..];
        }
        for words in words.chunks(BLOCK - CARRIED) {
            let rows = out.room(12 * words.len() + 1);
            let mut kept = 0;
            let end = self.decode_block(words, rows, &mut kept);
            out.keep(kept);
            end?;
        }
        Ok(())
    }

    /// Decodes up to 62 words; counts the rows it keeps of those it writes.
    fn decode_block(
        &mut self,
        words: &[[u8; 2]],
        rows: &mut [Record],
        kept: &mut usize,
    ) -> Result<(), Error> {
        let mut state = self.state;
        let block = Block::new(&state, words);
        let same_high = state.high.map_or(SKIPPED, |high| TIME_HIGH << 12 | high);
        let mut lows = block.mask(|word| word >> 12 == TIME_LOW);
        let row_words = block.mask(|word| word >> 12 <= RESERVED_Y);
        let mut visited = block.mask(|word| (ADDR_X..=VECT_8).contains(&(word >> 12)));
        if block.mask(|word| word >> 12 == TIME_HIGH && word != same_high) != 0 {
            visited |= block.mask(|word| word >> 12 == TIME_HIGH);
        }
        let mut count = 0;
        let mut end = Ok(());
        while visited != 0 {
            let at = visited.trailing_zeros();
            visited &= visited - 1;
            let before = (1 << at) - 1;
            let word = block.words[at as usize];
            let row = block.last(row_words & before);
            let low = match lows & before {
                0 => TIME_LOW << 12,
                lows => block.last(lows),
            };
            match word >> 12 {
                ADDR_X => {
                    let x = u32::from(word & 0x7ff);
                    rows[count] = record(state.time(low), row_bits(row) | x, (word >> 11 & 1) as u8);
                    count += usize::from(in_row(row));
                }
                BASE_X => state.vector = Some((u32::from(word & 0x7ff), (word >> 11 & 1) as u8)),
                TIME_HIGH => {
                    if state.set_high(word & 0x0fff) {
                        lows &= !before;
                    }
                }
                _ => match state.take_vector(word, row, state.time(low), &mut rows[count..]) {
                    Ok(events) => count += events,
                    Err(error) => {
                        end = Err(error);
                        break;
                    }
                },
            }
        }
        state.row = block.last(row_words);
        state.low = match lows {
            0 => TIME_LOW << 12,
            lows => block.last(lows),
        };
        self.state = state;
        *kept = count;
        end
    }
}

impl Decoder for Evt3Decoder {
    fn feed(&mut self, mut bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        if let Some(word) = self.partial.complete(&mut bytes) {
            self.decode(&[word], out)?;
        }
        let words = self.partial.split(bytes);
        self.decode(words, out)
    }

    fn report(&self) -> Report {
        Report::default()
    }

    fn word(&self) -> usize {
        2
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::{Event, testing};

    fn bytes(words: &[u16]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The oracle: the format's table, one word at a time.
    fn careful(words: &[u16]) -> (Vec<Event>, Result<(), String>) {
        let mut events = Vec::new();
        let (mut high, mut low, mut epoch) = (None, 0, 0);
        let (mut row, mut base) = (None, None);
        for &word in words {
            let value = word & 0x0fff;
            let x = u32::from(value & 0x7ff);
            let polarity = (value >> 11) as u8;
            if word >> 12 == TIME_HIGH {
                if high.is_some_and(|high| i32::from(high) - i32::from(value) > 3840) {
                    epoch += 1 << 24;
                }
                if high.replace(value) != Some(value) {
                    low = 0;
                }
            }
            let Some(high) = high else { continue };
            let t = epoch + u64::from(high) * 4096 + u64::from(low);
            match (word >> 12, row, base) {
                (ADDR_Y, ..) => row = Some(value & 0x7ff),
                (RESERVED_Y, ..) => row = None,
                (TIME_LOW, ..) => low = value,
                (BASE_X, ..) => base = Some((x, polarity)),
                (ADDR_X, Some(y), _) => events.push(Event { t, x: x as u16, y, p: polarity }),
                (kind @ (VECT_12 | VECT_8), Some(y), Some((start, p))) => {
                    let width = if kind == VECT_12 { 12 } else { 8 };
                    let columns: Vec<u32> = (0..width).filter(|bit| value >> bit & 1 != 0).collect();
                    if let Some(last) = columns.last().filter(|&last| start + last > 65535) {
                        return (events, Err(start + last).map_err(|last| last.to_string()));
                    }
                    events.extend(columns.iter().map(|bit| Event { t, x: (start + bit) as u16, y, p }));
                    base = Some((start + width, p));
                }
                _ => {}
            }
        }
        (events, Ok(()))
    }

    /// Decodes, and compares with the oracle.
    fn check(words: &[u16], tail: &[u8], sizes: &[usize]) {
        let (events, end) = testing::decode(Evt3Decoder::new(), &[&bytes(words), tail].concat(), sizes);
        let (expected, expected_end) = careful(words);
        assert_eq!(events, expected);
        match (end, expected_end) {
            (Ok(()), Ok(())) => {}
            (Err(message), Err(x)) => {
                assert!(message.contains(&format!("x = {x};")), "{message} {x}")
            }
            (end, expected) => panic!("{end:?}, not {expected:?}"),
        }
    }

    fn word() -> impl Strategy<Value = u16> {
        let usual = prop::sample::select(vec![ADDR_Y, ADDR_X, TIME_LOW, BASE_X, VECT_12, VECT_8]);
        prop_oneof![
            4 => (usual, 0u16..0x1000).prop_map(|(kind, value)| kind << 12 | value),
            2 => (0u16..3).prop_map(|high| TIME_HIGH << 12 | high),
            1 => (0xffdu16..0x1000).prop_map(|high| TIME_HIGH << 12 | high),
            1 => any::<u16>(),
        ]
    }

    #[test]
    fn what_is_before_the_first_time_high_leaves_no_trace() {
        let words = [0x0005, 0x3003, 0x2001, 0x5001, 0x6007, 0x8001, 0x2001, 0x0006, 0x5001, 0x2802];
        let expected = Event { t: 4096, x: 2, y: 6, p: 1 };
        let decoded = testing::decode(Evt3Decoder::new(), &bytes(&words), &[usize::MAX]);
        assert_eq!(decoded, (vec![expected], Ok(())));
    }

    #[test]
    fn an_overflow_is_told_from_a_step_back() {
        for (before, after, t) in
            [(4095, 0, 1 << 24), (3841, 0, 1 << 24), (3840, 0, 0), (4095, 255, 255 << 12)]
        {
            let words = [TIME_HIGH << 12 | before, 0x0000, TIME_HIGH << 12 | after, 0x2000];
            let (events, _) = testing::decode(Evt3Decoder::new(), &bytes(&words), &[usize::MAX]);
            assert_eq!(events, [Event { t, x: 0, y: 0, p: 0 }]);
        }
    }

    #[test]
    fn the_word_at_fault_emits_nothing_and_those_before_it_all() {
        let mut words = vec![0x8000, 0x0001, 0x2005, 0x37ff];
        words.resize(words.len() + 5290, 0x4000);
        words.extend([0x41ff, 0x4003]); // at 65527 and at 65539
        let (events, end) = testing::decode(Evt3Decoder::new(), &bytes(&words), &[usize::MAX]);
        let columns: Vec<u16> = events.iter().map(|event| event.x).collect();
        assert_eq!(columns, [vec![5], (65527..=65535).collect()].concat());
        assert!(end.unwrap_err().contains("x = 65540"));
    }

    #[test]
    fn vectors_without_events_never_overflow_the_base() {
        let mut decoder = Evt3Decoder::new();
        let mut out = EventBuffer::new();
        decoder.feed(&bytes(&[0x8000, 0x0001, 0x3000]), &mut out).unwrap();
        decoder.state.vector = Some((FARTHEST_BASE - 30, 0));
        decoder.feed(&bytes(&[0x4000; 1024]), &mut out).unwrap();
        assert_eq!(decoder.state.vector, Some((FARTHEST_BASE, 0)));
        assert!(decoder.feed(&bytes(&[0x4001]), &mut out).is_err());
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn blocks_equal_one_word_at_a_time(words in prop::collection::vec(word(), 0..300)) {
            check(&words, &[], &[usize::MAX]);
        }

        #[test]
        fn cuts_change_nothing(
            start in prop::sample::select(vec![vec![], vec![0x8000, 0x0001, 0x37ff]]),
            empty in prop_oneof![2 => Just(0), 1 => 5280usize..5300],
            words in prop::collection::vec(word(), 0..200),
            tail in 0usize..2,
            sizes in prop::collection::vec(1usize..300, 1..20),
        ) {
            let words = [start, vec![0x4000; empty], words].concat();
            check(&words, &[0x02][..tail], &sizes);
        }
    }
}
