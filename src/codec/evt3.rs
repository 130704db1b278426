//! EVT 3.0: little-endian words of 16 bits,
//! <https://docs.prophesee.ai/stable/data/encoding_formats/evt3.html>.
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
//! | 0xa | EXT_TRIGGER | input 11..8, edge 0 |
//! | 0x7, 0xe, 0xf | CONTINUED_4, OTHERS, CONTINUED_12: the vendor's | skipped |
//! | others | unknown; 0x9999 fills transfers up | skipped |
//!
//! The 24 bits of time overflow every 16.8 s, so overflows must be told from clocks that step back. A
//! TIME_HIGH that falls by more than 3840 of its 4096 values is an overflow, as in the validator of the
//! format's makers; every smaller fall is kept.
//!
//! # How it is decoded
//!
//! A recording is mostly rows, columns, times and repeated times, in an order that no branch predictor can
//! guess, so words are not looked at one after the other but 62 at a time. A bit mask per type says where in
//! the block it is, which takes no branches. Then only the words that emit are visited, and each finds its
//! row and its time as the last bit of their masks before its own; the row and TIME_LOW from before the block
//! are put in front of it, so that there is one. A block ends early at a word that changes more than that, as
//! a new TIME_HIGH does: [`Evt3Decoder::careful`], which knows all words, takes that one. One word at a time
//! without branches, each writing a record that only ADDR_X keeps, took half again as long.
//!
//! This file is allowed `unsafe`: it keeps rows that it wrote to memory without a value, and calls functions
//! compiled for instructions that were looked for when the decoder was made.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::evt2::{TimeError, check_overflows, holdable};
use super::simd::Backend;
use super::{
    Decoder, Encoder, Error, EventBuffer, Options, Partial, Record, Report, Saved, Trigger, Version, record,
};

pub(super) const ADDR_Y: u16 = 0x0;
pub(super) const RESERVED_Y: u16 = 0x1;
pub(super) const ADDR_X: u16 = 0x2;
pub(super) const BASE_X: u16 = 0x3;
pub(super) const VECT_12: u16 = 0x4;
pub(super) const VECT_8: u16 = 0x5;
pub(super) const TIME_LOW: u16 = 0x6;
pub(super) const CONTINUED_4: u16 = 0x7;
pub(super) const TIME_HIGH: u16 = 0x8;
pub(super) const EXT_TRIGGER: u16 = 0xa;
pub(super) const OTHERS: u16 = 0xe;
pub(super) const CONTINUED_12: u16 = 0xf;

/// What fills a transfer up.
const PADDING: u16 = 0x9999;

const FARTHEST_BASE: u32 = 1 << 31;

/// A word that is skipped, to fill a block up.
const SKIPPED: u16 = CONTINUED_12 << 12;

/// Decodes EVT 3.0.
#[derive(Clone)]
pub struct Evt3Decoder {
    partial: Partial<2>,
    state: State,
    tally: Tally,
    triggers: bool,
    backend: Backend,
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
    /// The last ADDR_Y or RESERVED_Y, as a word; one of another type before the first.
    row: u16,
    /// Where the next vector starts and its polarity; none yet: vectors are dropped.
    vector: Option<(u32, u8)>,
    /// The time of the last event.
    last: u64,
}

impl Default for State {
    fn default() -> Self {
        State { high: None, base_time: 0, low: TIME_LOW << 12, row: SKIPPED, vector: None, last: 0 }
    }
}

impl State {
    /// Takes a TIME_HIGH; true when it overflows.
    fn set_high(&mut self, high: u16) -> bool {
        let mut overflow = false;
        match self.high.replace(high) {
            Some(before) if before == high => return false,
            Some(before) => {
                overflow = before > high && before - high > 3840;
                self.base_time = (self.base_time >> 24).wrapping_add(u64::from(overflow)) << 24;
            }
            None => {}
        }
        self.base_time |= u64::from(high) << 12;
        self.low = TIME_LOW << 12;
        overflow
    }

    fn time(&self, low: u16) -> u64 {
        self.base_time | u64::from(low & 0x0fff)
    }

    /// Whether the words that have no part in it can be decoded in blocks.
    fn is_settled(&self) -> bool {
        self.high.is_some() && in_row(self.row)
    }

    /// Takes a vector word in a row; writes its events to the front of `rows` and returns their number.
    /// `None`, with nothing changed, where there is no base or an event would be beyond the last column a
    /// record holds.
    #[inline(always)]
    fn take_vector(
        &mut self,
        word: u16,
        row: u16,
        time: u64,
        rows: &mut [MaybeUninit<Record>],
    ) -> Option<usize> {
        let (base, polarity) = self.vector?;
        let (mut bits, width) = if word >> 12 == VECT_12 { (word & 0xfff, 12) } else { (word & 0xff, 8) };
        if bits != 0 && base + bits.ilog2() > 0xffff {
            return None;
        }
        // Vectors without events may move the base on and on; it stops far beyond the last column.
        self.vector = Some(((base + width).min(FARTHEST_BASE), polarity));
        let y = row_bits(row);
        // Four at a time, whether or not there are so many: how many there are cannot be predicted.
        let count = bits.count_ones() as usize;
        for rows in rows[..count.next_multiple_of(4)].as_chunks_mut::<4>().0 {
            for to in rows {
                to.write(record(time, y | (base + bits.trailing_zeros()), polarity));
                bits &= bits.wrapping_sub(1);
            }
        }
        Some(count)
    }
}

/// Why events are dropped, in the order of [`Tally::dropped`].
const REASONS: [&str; 4] = [
    "before the first TIME_HIGH",
    "before the first ADDR_Y",
    "before the first BASE_X",
    "in a row of a reserved type",
];

/// What was met so far.
#[derive(Clone, Copy, Default)]
struct Tally {
    /// Words by their type.
    words: [u64; 16],
    /// Those of type 0x9 that fill up.
    padding: u64,
    wraps: u64,
    steps_back: u64,
    dropped: [u64; 4],
    /// Whether the recording ended in half a word.
    tail: bool,
}

impl Tally {
    fn unknown(&self) -> u64 {
        let unknown: u64 = [0x9, 0xb, 0xc, 0xd].map(|kind| self.words[kind]).iter().sum();
        unknown - self.padding
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

/// The events that a vector word stands for.
fn vector_bits(word: u16) -> u16 {
    if word >> 12 == VECT_12 { word & 0xfff } else { word & 0xff }
}

/// Words of a block, of which the first two are carried over from before it.
const BLOCK: usize = 64;
const CARRIED: usize = 2;

/// Rows that a block may write to: every word a full vector, and what vector stores write beyond them.
const ROOM: usize = 12 * (BLOCK - CARRIED) + 8;

/// How much of a block was decoded.
struct Took {
    words: usize,
    events: usize,
}

/// The positions in a block below `end`, as bits.
#[inline(always)]
fn below(end: usize) -> u64 {
    if end >= 64 { u64::MAX } else { (1 << end) - 1 }
}

/// Where the words of each type are in a block.
#[derive(Clone, Copy)]
struct Masks {
    rows: u64,
    x: u64,
    bases: u64,
    vect_12: u64,
    vect_8: u64,
    lows: u64,
    continued_4: u64,
    highs: u64,
    triggers: u64,
    others: u64,
    continued_12: u64,
    /// The words that only the careful decoder takes.
    special: u64,
}

impl Masks {
    #[inline(always)]
    fn of(words: &[u16; BLOCK], high: u16, triggers: bool) -> Self {
        let mut types = [0_u8; BLOCK];
        let mut special = [0_u8; BLOCK];
        let same_high = TIME_HIGH << 12 | high;
        for ((kind, special), &word) in types.iter_mut().zip(&mut special).zip(words) {
            *kind = (word >> 12) as u8;
            *special = u8::from((word >> 12 == TIME_HIGH) & (word != same_high));
        }
        for (special, &kind) in special.iter_mut().zip(&types) {
            let unknown = matches!(kind, 1 | 9 | 11..=13);
            *special |= u8::from(unknown | (triggers & (kind == EXT_TRIGGER as u8)));
        }
        let mask = |wanted: u16| {
            let mut flags = [0_u8; BLOCK];
            for (flag, &kind) in flags.iter_mut().zip(&types) {
                *flag = u8::from(kind == wanted as u8);
            }
            bits(&flags)
        };
        Self {
            rows: mask(ADDR_Y),
            x: mask(ADDR_X),
            bases: mask(BASE_X),
            vect_12: mask(VECT_12),
            vect_8: mask(VECT_8),
            lows: mask(TIME_LOW),
            continued_4: mask(CONTINUED_4),
            highs: mask(TIME_HIGH),
            triggers: mask(EXT_TRIGGER),
            others: mask(OTHERS),
            continued_12: mask(CONTINUED_12),
            special: bits(&special),
        }
    }

    /// Counts the words below `end`.
    #[inline(always)]
    fn count(&self, end: usize, words: &mut [u64; 16]) {
        let taken = below(end) & !below(CARRIED);
        for (kind, mask) in [
            (ADDR_Y, self.rows),
            (ADDR_X, self.x),
            (BASE_X, self.bases),
            (VECT_12, self.vect_12),
            (VECT_8, self.vect_8),
            (TIME_LOW, self.lows),
            (CONTINUED_4, self.continued_4),
            (TIME_HIGH, self.highs),
            (EXT_TRIGGER, self.triggers),
            (OTHERS, self.others),
            (CONTINUED_12, self.continued_12),
        ] {
            words[usize::from(kind)] += u64::from((mask & taken).count_ones());
        }
    }

    /// The words that make events, where the block ends before `end`.
    #[inline(always)]
    fn vectors(&self, end: usize) -> u64 {
        (self.bases | self.vect_12 | self.vect_8) & below(end)
    }
}

/// Bytes of 0 or 1 as bits.
#[inline(always)]
fn bits(flags: &[u8; BLOCK]) -> u64 {
    let mut mask = 0;
    for (i, flags) in flags.as_chunks::<8>().0.iter().enumerate() {
        // Eight bytes of 0 or 1 to eight bits: the product's top byte has each of them in its place.
        let bits = u64::from_le_bytes(*flags).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= bits << (8 * i);
    }
    mask
}

/// The last word in `mask`, which has one.
#[inline(always)]
fn last(words: &[u16; BLOCK], mask: u64) -> u16 {
    words[(mask | 1).ilog2() as usize]
}

/// Decodes up to 62 words in a settled state, in plain code. Writes the events to the front of `rows`, which
/// are [`ROOM`].
#[inline(always)]
fn block_plain(
    state: &mut State,
    tally: &mut Tally,
    words: &[[u8; 2]],
    triggers: bool,
    rows: &mut [MaybeUninit<Record>],
) -> Took {
    let mut block = [SKIPPED; BLOCK];
    block[0] = state.row;
    block[1] = state.low;
    for (to, from) in block[CARRIED..].iter_mut().zip(words) {
        *to = u16::from_le_bytes(*from);
    }
    let masks = Masks::of(&block, state.high.unwrap_or(0), triggers);
    let end = (words.len().min(BLOCK - CARRIED) + CARRIED).min(masks.special.trailing_zeros() as usize);
    visit(state, tally, &block, &masks, end, rows)
}

/// Decodes a block up to `end` by visiting its words that emit, in plain code.
#[inline(always)]
fn visit(
    state: &mut State,
    tally: &mut Tally,
    block: &[u16; BLOCK],
    masks: &Masks,
    mut end: usize,
    rows: &mut [MaybeUninit<Record>],
) -> Took {
    let mut now = *state;
    let mut visited = masks.x & below(end) | masks.vectors(end);
    let (mut count, mut steps_back) = (0, 0);
    while visited != 0 {
        let at = visited.trailing_zeros();
        visited &= visited - 1;
        let before = (1 << at) - 1;
        let word = block[at as usize];
        let row = last(block, masks.rows & before);
        let time = now.time(last(block, masks.lows & before));
        match word >> 12 {
            ADDR_X => {
                let x = u32::from(word & 0x7ff);
                rows[count].write(record(time, row_bits(row) | x, (word >> 11 & 1) as u8));
                count += 1;
                steps_back += u64::from(time < now.last);
                now.last = time;
            }
            BASE_X => now.vector = Some((u32::from(word & 0x7ff), (word >> 11 & 1) as u8)),
            _ => match now.take_vector(word, row, time, &mut rows[count..]) {
                Some(0) => {}
                Some(events) => {
                    count += events;
                    steps_back += u64::from(time < now.last);
                    now.last = time;
                }
                None => {
                    end = at as usize;
                    break;
                }
            },
        }
    }
    now.row = last(block, masks.rows & below(end));
    now.low = last(block, masks.lows & below(end));
    *state = now;
    tally.steps_back += steps_back;
    masks.count(end, &mut tally.words);
    Took { words: end - CARRIED, events: count }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::*;
    use crate::codec::simd::x86::{SLACK, load_behind, steps_back, store_eight, to_bytes, to_words};

    /// As [`block_plain`].
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub fn block_avx2(
        state: &mut State,
        tally: &mut Tally,
        words: &[[u8; 2]],
        triggers: bool,
        rows: &mut [MaybeUninit<Record>],
    ) -> Took {
        block_plain(state, tally, words, triggers, rows)
    }

    /// The types that only the careful decoder takes have the top bit set.
    const SPECIAL: [u8; 16] = [0, 128, 0, 0, 0, 0, 0, 0, 0, 128, 0, 128, 128, 128, 0, 0];

    /// As [`block_plain`]. Without vectors in the block, eight events at a time.
    #[target_feature(
        enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt"
    )]
    pub fn block_avx512(
        state: &mut State,
        tally: &mut Tally,
        words: &[[u8; 2]],
        triggers: bool,
        rows: &mut [MaybeUninit<Record>],
    ) -> Took {
        let carried = u32::from(state.row) | u32::from(state.low) << 16;
        let (low, high) = load_behind(carried, words, SKIPPED);
        let types = _mm512_inserti64x4::<1>(
            _mm512_castsi256_si512(_mm512_cvtepi16_epi8(_mm512_srli_epi16::<12>(low))),
            _mm512_cvtepi16_epi8(_mm512_srli_epi16::<12>(high)),
        );
        let mask = |kind: u16| _mm512_cmpeq_epi8_mask(types, _mm512_set1_epi8(kind as i8));
        let same = _mm512_set1_epi16((TIME_HIGH << 12 | state.high.unwrap_or(0)) as i16);
        let same = u64::from(_mm512_cmpeq_epi16_mask(low, same))
            | u64::from(_mm512_cmpeq_epi16_mask(high, same)) << 32;
        let [s0, s1] = [0, 8].map(|i| i64::from_le_bytes(SPECIAL[i..i + 8].try_into().unwrap()));
        let special = _mm512_broadcast_i32x4(_mm_set_epi64x(s1, s0));
        let special = _mm512_movepi8_mask(_mm512_shuffle_epi8(special, types));
        let mut masks = Masks {
            rows: mask(ADDR_Y),
            x: mask(ADDR_X),
            bases: mask(BASE_X),
            vect_12: mask(VECT_12),
            vect_8: mask(VECT_8),
            lows: mask(TIME_LOW),
            continued_4: mask(CONTINUED_4),
            highs: mask(TIME_HIGH),
            triggers: mask(EXT_TRIGGER),
            others: mask(OTHERS),
            continued_12: mask(CONTINUED_12),
            special,
        };
        masks.special |= masks.highs & !same;
        if triggers {
            masks.special |= masks.triggers;
        }
        let end = (words.len().min(BLOCK - CARRIED) + CARRIED).min(masks.special.trailing_zeros() as usize);
        let block = to_words(low, high);
        if masks.vectors(end) != 0 {
            return visit(state, tally, &block, &masks, end, rows);
        }

        let x = masks.x & below(end);
        let count = x.count_ones() as usize;
        assert!(count.next_multiple_of(8) + SLACK <= rows.len());
        let iota: [u8; 64] = std::array::from_fn(|i| i as u8);
        // SAFETY: 64 bytes are there; the load asks for no alignment.
        let iota = unsafe { _mm512_loadu_si512(iota.as_ptr().cast()) };
        let places = to_bytes(_mm512_maskz_compress_epi8(x, iota));
        let one = _mm512_set1_epi64(1);
        let row_mask = _mm512_set1_epi64(masks.rows as i64);
        let low_mask = _mm512_set1_epi64(masks.lows as i64);
        let base = _mm512_set1_epi64(state.base_time as i64);
        let top = _mm512_set1_epi64(63);
        let eleven = _mm512_set1_epi64(0x7ff);
        let mut before = _mm512_set1_epi64(state.last as i64);
        let mut backward = 0;
        for at in (0..count).step_by(8) {
            let eight = i64::from_le_bytes(places[at..at + 8].try_into().unwrap());
            let place = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(eight));
            let earlier = _mm512_sub_epi64(_mm512_sllv_epi64(one, place), one);
            // The index of the last word of a kind before each event, and the word, in the lowest of four
            // lanes.
            let row = _mm512_sub_epi64(top, _mm512_lzcnt_epi64(_mm512_and_si512(row_mask, earlier)));
            let time = _mm512_sub_epi64(top, _mm512_lzcnt_epi64(_mm512_and_si512(low_mask, earlier)));
            let word = _mm512_permutex2var_epi16(low, place, high);
            let row = _mm512_permutex2var_epi16(low, row, high);
            let time = _mm512_permutex2var_epi16(low, time, high);
            let time = _mm512_or_si512(base, _mm512_and_si512(time, _mm512_set1_epi64(0xfff)));
            let y = _mm512_slli_epi64::<16>(_mm512_and_si512(row, eleven));
            let p = _mm512_slli_epi64::<21>(_mm512_and_si512(word, _mm512_set1_epi64(0x800)));
            let rest = _mm512_or_si512(_mm512_or_si512(_mm512_and_si512(word, eleven), y), p);
            store_eight(rows, at, time, rest);
            backward += steps_back(time, before, count - at);
            before = time;
        }
        if x != 0 {
            state.last = state.time(last(&block, masks.lows & below(x.ilog2() as usize)));
        }
        state.row = last(&block, masks.rows & below(end));
        state.low = last(&block, masks.lows & below(end));
        tally.steps_back += backward;
        masks.count(end, &mut tally.words);
        Took { words: end - CARRIED, events: count }
    }
}

impl Evt3Decoder {
    /// A decoder at the start of a recording.
    pub fn new(options: Options) -> Self {
        Self::with_backend(options, Backend::best())
    }

    /// A decoder that uses these instructions, which this machine has.
    pub(super) fn with_backend(options: Options, backend: Backend) -> Self {
        Self {
            partial: Partial::default(),
            state: State::default(),
            tally: Tally::default(),
            triggers: options.triggers,
            backend,
        }
    }

    fn decode(&mut self, mut words: &[[u8; 2]], out: &mut EventBuffer) -> Result<(), Error> {
        while let [word, rest @ ..] = words {
            if self.state.is_settled() {
                let took = self.block(words, out);
                words = &words[took..];
                // All of them, up to one that is not for blocks.
                if took == BLOCK - CARRIED || words.is_empty() {
                    continue;
                }
                self.careful(u16::from_le_bytes(words[0]), out)?;
                words = &words[1..];
            } else {
                self.careful(u16::from_le_bytes(*word), out)?;
                words = rest;
            }
        }
        Ok(())
    }

    /// Decodes what it can of the next 62 words; returns how many those were.
    fn block(&mut self, words: &[[u8; 2]], out: &mut EventBuffer) -> usize {
        let rows = out.uninit_room(ROOM);
        let Self { state, tally, triggers, .. } = self;
        let took = match self.backend {
            Backend::Plain => block_plain(state, tally, words, *triggers, rows),
            // SAFETY: `Backend` is only made where the machine has the instructions.
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => unsafe { x86::block_avx2(state, tally, words, *triggers, rows) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 => unsafe { x86::block_avx512(state, tally, words, *triggers, rows) },
        };
        // SAFETY: there is room for `ROOM`, and each kept event was written to the row behind the one before
        // it.
        unsafe { out.keep_written(took.events) };
        took.words
    }

    /// Decodes one word, whatever it is.
    fn careful(&mut self, word: u16, out: &mut EventBuffer) -> Result<(), Error> {
        let kind = word >> 12;
        let Self { state, tally, .. } = self;
        let events = match kind {
            ADDR_X => 1,
            VECT_12 | VECT_8 => u64::from(vector_bits(word).count_ones()),
            _ => 0,
        };
        if state.high.is_none() && kind != TIME_HIGH {
            tally.dropped[0] += events;
        } else {
            match kind {
                ADDR_Y | RESERVED_Y => state.row = word,
                BASE_X => state.vector = Some((u32::from(word & 0x7ff), (word >> 11 & 1) as u8)),
                TIME_LOW => state.low = word,
                TIME_HIGH => tally.wraps += u64::from(state.set_high(word & 0x0fff)),
                EXT_TRIGGER if self.triggers => out.triggers.push(Trigger {
                    t: state.time(state.low),
                    id: word >> 8 & 0xf,
                    p: (word & 1) as u8,
                }),
                ADDR_X | VECT_12 | VECT_8 if !in_row(state.row) => {
                    tally.dropped[if state.row >> 12 == RESERVED_Y { 3 } else { 1 }] += events;
                }
                VECT_12 | VECT_8 if state.vector.is_none() => tally.dropped[2] += events,
                ADDR_X | VECT_12 | VECT_8 => {
                    let time = state.time(state.low);
                    let mut rows = [const { MaybeUninit::<Record>::uninit() }; 12];
                    let count = if kind == ADDR_X {
                        let xy = row_bits(state.row) | u32::from(word & 0x7ff);
                        rows[0].write(record(time, xy, (word >> 11 & 1) as u8));
                        1
                    } else if let Some(count) = state.take_vector(word, state.row, time, &mut rows) {
                        count
                    } else {
                        let base = state.vector.map_or(0, |(base, _)| base);
                        let last = base + vector_bits(word).ilog2();
                        return Err(Error::Malformed(format!(
                            "malformed EVT 3.0 stream: a vector reaches x = {last}; x must be at most 65535"
                        )));
                    };
                    for row in &rows[..count] {
                        // SAFETY: the first `count` were written, above or by `take_vector`.
                        out.append(&[unsafe { row.assume_init() }]);
                    }
                    if count > 0 {
                        tally.steps_back += u64::from(time < state.last);
                        state.last = time;
                    }
                }
                _ => {}
            }
        }
        self.tally.words[usize::from(kind)] += 1;
        self.tally.padding += u64::from(word == PADDING);
        Ok(())
    }
}

impl Decoder for Evt3Decoder {
    fn feed(&mut self, mut bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        if let Some(word) = self.partial.complete(&mut bytes) {
            self.careful(u16::from_le_bytes(word), out)?;
        }
        let words = self.partial.split(bytes);
        self.decode(words, out)
    }

    fn finish(&mut self, _out: &mut EventBuffer) -> Result<(), Error> {
        self.tally.tail = self.partial.len > 0;
        Ok(())
    }

    fn report(&self) -> Report {
        let tally = &self.tally;
        let mut report = Report {
            time_wraps: tally.wraps,
            backward_steps: tally.steps_back,
            unknown: tally.unknown(),
            padding: 2 * tally.padding,
            truncated_tail: u64::from(tally.tail),
            ..Report::default()
        };
        for (kind, name) in [
            (ADDR_Y, "ADDR_Y"),
            (RESERVED_Y, "RESERVED_Y"),
            (ADDR_X, "ADDR_X"),
            (BASE_X, "BASE_X"),
            (VECT_12, "VECT_12"),
            (VECT_8, "VECT_8"),
            (TIME_LOW, "TIME_LOW"),
            (CONTINUED_4, "CONTINUED_4"),
            (TIME_HIGH, "TIME_HIGH"),
            (EXT_TRIGGER, "EXT_TRIGGER"),
            (OTHERS, "OTHERS"),
            (CONTINUED_12, "CONTINUED_12"),
        ] {
            let count = tally.words[usize::from(kind)];
            report.note_words(name, count, 2 * count);
        }
        for (reason, events) in REASONS.into_iter().zip(tally.dropped) {
            report.note_dropped(reason, events);
        }
        report
    }

    fn faults(&self) -> u64 {
        let dropped: u64 = self.tally.dropped.iter().sum();
        dropped + self.tally.steps_back + self.tally.unknown() + u64::from(self.tally.tail)
    }

    fn word(&self) -> usize {
        2
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn save(&self) -> Option<Saved> {
        let State { high, base_time, low, row, vector, last: _ } = self.state;
        let mut state = base_time.to_le_bytes().to_vec();
        for value in [high.unwrap_or(u16::MAX), low, row] {
            state.extend(value.to_le_bytes());
        }
        if let Some((base, polarity)) = vector {
            state.extend(base.to_le_bytes());
            state.push(polarity);
        }
        Some(Saved { state, again: self.partial.len as u64 })
    }

    fn load(&mut self, state: &[u8]) -> bool {
        let Some((base_time, rest)) = state.split_first_chunk() else { return false };
        let Some((words, rest)) = rest.split_first_chunk::<6>() else { return false };
        let [high, low, row] = [0, 2, 4].map(|at| u16::from_le_bytes([words[at], words[at + 1]]));
        let vector = match rest {
            [] => None,
            &[a, b, c, d, polarity @ 0..=1] => Some((u32::from_le_bytes([a, b, c, d]), polarity)),
            _ => return false,
        };
        let high = (high < 1 << 12).then_some(high);
        let base_time = u64::from_le_bytes(*base_time);
        self.state = State { high, base_time, low, row, vector, last: 0 };
        low >> 12 == TIME_LOW && vector.is_none_or(|(base, _)| base <= FARTHEST_BASE)
    }
}

/// How an encoder stands: what a decoder knows that has read what was written.
#[derive(Clone, Copy, Default)]
struct Written {
    /// The last TIME_HIGH, if any.
    high: Option<u16>,
    overflows: u64,
    low: Option<u16>,
    row: Option<u16>,
}

/// Gaps of up to so many steps of TIME_HIGH, 4.5 min, are written with each step of them, as cameras do.
const EACH_STEP: u64 = 1 << 16;

/// The largest step back of TIME_HIGH that no decoder takes for an overflow.
const STEP_BACK: u16 = 2047;

impl Written {
    /// Appends the words that are needed for events at the time `t`. Fails, before any, where there are none.
    fn step(&mut self, format: &str, t: u64, out: &mut Vec<u8>) -> Result<(), TimeError> {
        let (overflows, high, low) = (t >> 24, (t >> 12) as u16 & 0xfff, t as u16 & 0xfff);
        check_overflows(format, t, self.overflows, 24)?;
        let mut put = |kind: u16, value: u16| out.extend((kind << 12 | value).to_le_bytes());
        if (self.high, self.overflows) != (Some(high), overflows) {
            let now = self.overflows << 12 | u64::from(self.high.unwrap_or(0));
            let then = overflows << 12 | u64::from(high);
            if self.high.is_some() && now < then && then - now <= EACH_STEP {
                (now + 1..=then).for_each(|step| put(TIME_HIGH, step as u16 & 0xfff));
            } else {
                for _ in self.overflows..overflows {
                    put(TIME_HIGH, 0xfff);
                    put(TIME_HIGH, 0);
                    self.high = Some(0);
                }
                while let Some(before) = self.high.filter(|&before| before > high + STEP_BACK) {
                    put(TIME_HIGH, before - STEP_BACK);
                    self.high = Some(before - STEP_BACK);
                }
                put(TIME_HIGH, high);
            }
            (self.high, self.overflows, self.low) = (Some(high), overflows, None);
        }
        if self.low.replace(low) != Some(low) {
            put(TIME_LOW, low);
        }
        Ok(())
    }
}

/// Encodes EVT 3.0. Times and rows are written when they change; five and more events that follow each other
/// in a row, in one group of 32 columns, at one time and with one polarity become vectors, in the form that
/// cameras write them in: a base, two words of 12 and one of 8.
pub struct Evt3Encoder {
    sensor: (u32, u32),
    written: Written,
}

impl Evt3Encoder {
    /// An encoder for a sensor of that size.
    ///
    /// # Errors
    /// [`Error::Header`]: the format holds no such sensor.
    pub fn new(sensor: (u32, u32)) -> Result<Self, Error> {
        Version::Evt3.check_sensor(sensor)?;
        Ok(Self { sensor, written: Written::default() })
    }
}

impl Encoder for Evt3Encoder {
    fn start(&mut self, out: &mut Vec<u8>) {
        Version::Evt3.write_header(self.sensor, out);
    }

    fn encode(&mut self, records: &[Record], out: &mut Vec<u8>) -> Result<(), Error> {
        let format = Version::Evt3.name();
        let (events, mut error) = holdable(format, records);
        let (length, mut written) = (out.len(), self.written);
        let mut index = 0;
        while index < events.len() {
            let first = events[index];
            if let Err(refused) = written.step(format, first.t, out) {
                error = Some(refused.of_event(index, first.t));
                break;
            }
            let mut put = |kind: u16, value: u16| out.extend((kind << 12 | value).to_le_bytes());
            if written.row.replace(first.y) != Some(first.y) {
                put(ADDR_Y, first.y);
            }
            let group = first.group(&events[index..]);
            let polarity = u16::from(first.p) << 11;
            if group.len() > 4 {
                let bits = group.iter().fold(0, |bits, event| bits | 1_u32 << (event.x % 32));
                put(BASE_X, polarity | first.x & !31);
                put(VECT_12, bits as u16 & 0xfff);
                put(VECT_12, (bits >> 12) as u16 & 0xfff);
                put(VECT_8, (bits >> 24) as u16);
            } else {
                group.iter().for_each(|event| put(ADDR_X, polarity | event.x));
            }
            index += group.len();
        }
        if let Some(error) = error {
            out.truncate(length);
            return Err(error);
        }
        self.written = written;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Event, testing};

    fn bytes(words: &[u16]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn what_is_before_the_first_time_high_leaves_no_trace() {
        let words = [0x0005, 0x3003, 0x2001, 0x5001, 0x6007, 0x8001, 0x2001, 0x0006, 0x5001, 0x2802];
        let expected = Event { t: 4096, x: 2, y: 6, p: 1 };
        let decoded = testing::decode(Evt3Decoder::new(Options::default()), &bytes(&words), &[usize::MAX]);
        assert_eq!(decoded, (vec![expected], Ok(())));
    }

    #[test]
    fn an_overflow_is_told_from_a_step_back() {
        for (before, after, t) in
            [(4095, 0, 1 << 24), (3841, 0, 1 << 24), (3840, 0, 0), (4095, 255, 255 << 12)]
        {
            let words = [TIME_HIGH << 12 | before, 0x0000, TIME_HIGH << 12 | after, 0x2000];
            let (events, _) =
                testing::decode(Evt3Decoder::new(Options::default()), &bytes(&words), &[usize::MAX]);
            assert_eq!(events, [Event { t, x: 0, y: 0, p: 0 }]);
        }
    }

    #[test]
    fn the_word_at_fault_emits_nothing_and_those_before_it_all() {
        let mut words = vec![0x8000, 0x0001, 0x2005, 0x37ff];
        words.resize(words.len() + 5290, 0x4000);
        words.extend([0x41ff, 0x4003]); // at 65527 and at 65539
        let (events, end) =
            testing::decode(Evt3Decoder::new(Options::default()), &bytes(&words), &[usize::MAX]);
        let columns: Vec<u16> = events.iter().map(|event| event.x).collect();
        assert_eq!(columns, [vec![5], (65527..=65535).collect()].concat());
        assert!(end.unwrap_err().contains("x = 65540"));
    }

    #[test]
    fn vectors_without_events_never_overflow_the_base() {
        let mut decoder = Evt3Decoder::new(Options::default());
        let mut out = EventBuffer::new();
        decoder.feed(&bytes(&[0x8000, 0x0001, 0x3000]), &mut out).unwrap();
        decoder.state.vector = Some((FARTHEST_BASE - 30, 0));
        decoder.feed(&bytes(&[0x4000; 1024]), &mut out).unwrap();
        assert_eq!(decoder.state.vector, Some((FARTHEST_BASE, 0)));
        assert!(decoder.feed(&bytes(&[0x4001]), &mut out).is_err());
        assert!(out.is_empty());
    }
}
