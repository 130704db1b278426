//! EVT 2.0: little-endian words of 32 bits,
//! <https://docs.prophesee.ai/stable/data/encoding_formats/evt2.html>.
//!
//! | bits 31..28 | meaning | bits 27..0 |
//! |---|---|---|
//! | 0x0, 0x1 | CD event, OFF or ON | time 27..22 (its 6 low bits), x 21..11, y 10..0 |
//! | 0x8 | TIME_HIGH | the time's next 28 bits |
//! | 0xa | EXT_TRIGGER | time 27..22, input 12..8, edge 0 |
//! | 0xe, 0xf | OTHERS, CONTINUED: the vendor's | skipped |
//! | others | unknown | skipped |
//!
//! The 34 bits of time overflow after 4 h 46 min. A TIME_HIGH that falls by nearly the whole range is
//! taken for that; any other backward step is the recording's own and kept.
//!
//! This file is allowed `unsafe`: it keeps rows that it wrote to memory without a value, and calls functions
//! compiled for instructions that were looked for when the decoder was made.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::simd::Backend;
use super::{
    Decoder, Encoder, Error, Event, EventBuffer, Options, Partial, Record, Report, Saved, Trigger, Version,
    record, unencodable,
};

pub(super) const TIME_HIGH: u32 = 0x8;
pub(super) const EXT_TRIGGER: u32 = 0xa;
pub(super) const OTHERS: u32 = 0xe;
pub(super) const CONTINUED: u32 = 0xf;

/// Why events are dropped.
pub(super) const NO_TIME: &str = "before the first TIME_HIGH";

/// Decodes EVT 2.0.
#[derive(Clone)]
pub struct Evt2Decoder {
    partial: Partial<4>,
    time: Time,
    tally: Tally,
    triggers: bool,
    backend: Backend,
}

/// The clock as the last TIME_HIGH left it.
#[derive(Clone, Copy, Default)]
pub(super) struct Time {
    /// The last TIME_HIGH; none yet: events have no time and are dropped.
    pub(super) high: Option<u32>,
    /// What the overflows so far add up to, in µs.
    epoch: u64,
}

/// The least fall of TIME_HIGH, in its units of 64 µs, that is an overflow: the whole range less
/// 10 ms, as the clock words around an overflow may be lost.
pub(super) const OVERFLOW: u32 = (((1 << 28) - 1) * 64 - 10_000_u64).div_ceil(64) as u32;

impl Time {
    /// The clock as bytes, for [`Decoder::save`].
    pub(super) fn save(&self) -> Vec<u8> {
        let high = self.high.unwrap_or(u32::MAX);
        [&self.epoch.to_le_bytes()[..], &high.to_le_bytes()].concat()
    }

    /// The clock from such bytes, if they are some.
    pub(super) fn load(&mut self, state: &[u8]) -> bool {
        let Some((epoch, high)) = state.split_first_chunk() else { return false };
        let Ok(high) = high.try_into().map(u32::from_le_bytes) else { return false };
        *self = Self { high: (high < 1 << 28).then_some(high), epoch: u64::from_le_bytes(*epoch) };
        true
    }

    /// Takes a TIME_HIGH; true when it overflows.
    pub(super) fn set_high(&mut self, high: u32) -> bool {
        let overflow = self.high.is_some_and(|before| before >= high + OVERFLOW);
        if overflow {
            self.epoch = self.epoch.wrapping_add(1 << 34);
        }
        self.high = Some(high);
        overflow
    }

    /// The time that events now start from.
    pub(super) fn base(&self) -> u64 {
        self.epoch.wrapping_add(u64::from(self.high.unwrap_or(0)) << 6)
    }
}

/// What was met so far, of EVT 2.0 or EVT 2.1.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    /// Words by their type.
    pub(super) words: [u64; 16],
    pub(super) wraps: u64,
    pub(super) steps_back: u64,
    /// Events before the first TIME_HIGH.
    pub(super) dropped: u64,
    /// Bytes of the word that the recording broke off in.
    pub(super) tail: u64,
    /// The time of the last event.
    pub(super) last: u64,
}

impl Tally {
    fn unknown(&self) -> u64 {
        [2, 3, 4, 5, 6, 7, 9, 0xb, 0xc, 0xd].map(|kind| self.words[kind]).iter().sum()
    }

    pub(super) fn faults(&self) -> u64 {
        self.dropped + self.steps_back + self.unknown() + u64::from(self.tail > 0)
    }

    /// The report, `types` being what to call the types of `size` bytes.
    pub(super) fn report(&self, size: u64, types: &[(u32, &'static str)]) -> Report {
        let mut report = Report {
            time_wraps: self.wraps,
            backward_steps: self.steps_back,
            unknown: self.unknown(),
            truncated_tail: self.tail,
            ..Report::default()
        };
        for &(kind, name) in types {
            let count = self.words[kind as usize];
            report.note_words(name, count, size * count);
        }
        report.note_dropped(NO_TIME, self.dropped);
        report
    }
}

/// How much of some words was decoded, all of them events.
struct Took {
    events: usize,
    /// Those of type 1.
    on: u64,
    steps_back: u64,
}

/// Decodes events up to the first word that is none, in plain code. Writes them to the front of `rows`, of
/// which there are at least as many.
#[inline(always)]
fn events_plain(words: &[[u8; 4]], base: u64, mut last: u64, rows: &mut [MaybeUninit<Record>]) -> Took {
    let (mut on, mut steps_back, mut events) = (0, 0, 0);
    let rows = &mut rows[..words.len()];
    // Events come in runs, so eight words are usually eight events: they share one test.
    let mut eights = words.as_chunks::<8>().0.iter();
    for (eight, rows) in eights.by_ref().zip(rows.as_chunks_mut::<8>().0) {
        let eight = eight.map(u32::from_le_bytes);
        if eight.iter().fold(0, |all, word| all | word) >> 28 > 1 {
            break;
        }
        for (row, word) in rows.iter_mut().zip(eight) {
            let t = base | u64::from(word >> 22 & 0x3f);
            row.write(event(word, t));
            steps_back += u64::from(t < last);
            on += u64::from(word >> 28);
            last = t;
        }
        events += 8;
    }
    for (row, word) in rows.iter_mut().zip(words).skip(events) {
        let word = u32::from_le_bytes(*word);
        if word >> 28 > 1 {
            break;
        }
        let t = base | u64::from(word >> 22 & 0x3f);
        row.write(event(word, t));
        steps_back += u64::from(t < last);
        on += u64::from(word >> 28);
        last = t;
        events += 1;
    }
    Took { events, on, steps_back }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::*;
    use crate::codec::simd::x86::{SLACK, load_words, steps_back, store_eight};

    /// As [`events_plain`].
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub fn events_avx2(words: &[[u8; 4]], base: u64, last: u64, rows: &mut [MaybeUninit<Record>]) -> Took {
        events_plain(words, base, last, rows)
    }

    /// As [`events_plain`], sixteen at a time.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub fn events_avx512(words: &[[u8; 4]], base: u64, last: u64, rows: &mut [MaybeUninit<Record>]) -> Took {
        let (mut on, mut back, mut events) = (0, 0, 0);
        let base_time = base;
        let base = _mm512_set1_epi64(base as i64);
        let low_bits = _mm512_set1_epi64(0x3f);
        let eleven = _mm512_set1_epi64(0x7ff);
        let mut before = _mm512_set1_epi64(last as i64);
        for sixteen in words.as_chunks::<16>().0 {
            if events + 16 + SLACK > rows.len() {
                break;
            }
            let words = load_words(sixteen);
            let kinds = _mm512_srli_epi32::<28>(words);
            let is_event = _mm512_cmple_epu32_mask(kinds, _mm512_set1_epi32(1));
            let count = is_event.trailing_ones() as usize;
            let is_on = _mm512_cmpeq_epi32_mask(kinds, _mm512_set1_epi32(1));
            on += u64::from((u32::from(is_on) & !(u32::MAX << count)).count_ones());
            let halves = [
                _mm512_cvtepu32_epi64(_mm512_castsi512_si256(words)),
                _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(words)),
            ];
            for (half, word) in halves.into_iter().enumerate() {
                let time = _mm512_and_si512(_mm512_srli_epi64::<22>(word), low_bits);
                let time = _mm512_or_si512(base, time);
                let x = _mm512_and_si512(_mm512_srli_epi64::<11>(word), eleven);
                let y = _mm512_slli_epi64::<16>(_mm512_and_si512(word, eleven));
                let p = _mm512_slli_epi64::<32>(_mm512_srli_epi64::<28>(word));
                let rest = _mm512_or_si512(_mm512_or_si512(x, y), p);
                store_eight(rows, events + 8 * half, time, rest);
                back += steps_back(time, before, count.saturating_sub(8 * half));
                before = time;
            }
            events += count;
            if count < 16 {
                return Took { events, on, steps_back: back };
            }
        }
        let last = match events {
            0 => last,
            _ => base_time | u64::from(u32::from_le_bytes(words[events - 1]) >> 22 & 0x3f),
        };
        let rest = events_plain(&words[events..], base_time, last, &mut rows[events..]);
        Took { events: events + rest.events, on: on + rest.on, steps_back: back + rest.steps_back }
    }
}

impl Evt2Decoder {
    /// A decoder at the start of a recording.
    pub fn new(options: Options) -> Self {
        Self::with_backend(options, Backend::best())
    }

    /// A decoder that uses these instructions, which this machine has.
    pub(super) fn with_backend(options: Options, backend: Backend) -> Self {
        Self {
            partial: Partial::default(),
            time: Time::default(),
            tally: Tally::default(),
            triggers: options.triggers,
            backend,
        }
    }

    fn decode(&mut self, mut words: &[[u8; 4]], out: &mut EventBuffer) {
        while !words.is_empty() {
            if self.time.high.is_some() {
                words = &words[self.events(words, out)..];
            }
            // What ended the events, with what is of its like.
            while let [word, rest @ ..] = words {
                let word = u32::from_le_bytes(*word);
                if word >> 28 <= 1 && self.time.high.is_some() {
                    break;
                }
                self.careful(word, out);
                words = rest;
            }
        }
    }

    /// Decodes the events at the front of `words`; returns how many those are.
    fn events(&mut self, words: &[[u8; 4]], out: &mut EventBuffer) -> usize {
        let rows = out.uninit_room(words.len() + 1);
        let (base, last) = (self.time.base(), self.tally.last);
        let took = match self.backend {
            Backend::Plain => events_plain(words, base, last, rows),
            // SAFETY: `Backend` is only made where the machine has the instructions.
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => unsafe { x86::events_avx2(words, base, last, rows) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 => unsafe { x86::events_avx512(words, base, last, rows) },
        };
        // SAFETY: there is room for more than that, and each event was written to the row behind the one
        // before it.
        unsafe { out.keep_written(took.events) };
        if let Some(last) = took.events.checked_sub(1) {
            self.tally.last = base | u64::from(u32::from_le_bytes(words[last]) >> 22 & 0x3f);
        }
        self.tally.words[1] += took.on;
        self.tally.words[0] += took.events as u64 - took.on;
        self.tally.steps_back += took.steps_back;
        took.events
    }

    /// Decodes one word, whatever it is.
    fn careful(&mut self, word: u32, out: &mut EventBuffer) {
        let kind = word >> 28;
        let t = self.time.base() | u64::from(word >> 22 & 0x3f);
        match kind {
            TIME_HIGH => self.tally.wraps += u64::from(self.time.set_high(word & 0x0fff_ffff)),
            0 | 1 if self.time.high.is_none() => self.tally.dropped += 1,
            0 | 1 => {
                self.tally.steps_back += u64::from(t < self.tally.last);
                self.tally.last = t;
                out.append(&[event(word, t)]);
            }
            EXT_TRIGGER if self.triggers && self.time.high.is_some() => {
                out.triggers.push(Trigger { t, id: (word >> 8 & 0x1f) as u16, p: (word & 1) as u8 });
            }
            _ => {}
        }
        self.tally.words[kind as usize] += 1;
    }
}

/// The event of a CD word, whose type is its polarity.
#[inline(always)]
fn event(word: u32, t: u64) -> Record {
    record(t, word >> 11 & 0x7ff | (word & 0x7ff) << 16, (word >> 28) as u8)
}

impl Decoder for Evt2Decoder {
    fn feed(&mut self, mut bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        if let Some(word) = self.partial.complete(&mut bytes) {
            self.careful(u32::from_le_bytes(word), out);
        }
        let words = self.partial.split(bytes);
        self.decode(words, out);
        Ok(())
    }

    fn finish(&mut self, _out: &mut EventBuffer) -> Result<(), Error> {
        self.tally.tail = self.partial.len as u64;
        Ok(())
    }

    fn report(&self) -> Report {
        let types = [
            (0, "CD_OFF"),
            (1, "CD_ON"),
            (TIME_HIGH, "TIME_HIGH"),
            (EXT_TRIGGER, "EXT_TRIGGER"),
            (OTHERS, "OTHERS"),
            (CONTINUED, "CONTINUED"),
        ];
        self.tally.report(4, &types)
    }

    fn faults(&self) -> u64 {
        self.tally.faults()
    }

    fn word(&self) -> usize {
        4
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn save(&self) -> Option<Saved> {
        Some(Saved { state: self.time.save(), again: self.partial.len as u64 })
    }

    fn load(&mut self, state: &[u8]) -> bool {
        self.time.load(state)
    }
}

/// The most overflows of the clock that are written between two events, or before the first: two words each.
/// In EVT 2.0 that is 71 years, so that times since 1970 can be written; in EVT 3.0 it is 25 days.
pub(super) const MOST_OVERFLOWS: u64 = 1 << 17;

/// How an encoder's clock stands.
#[derive(Clone, Copy, Default)]
pub(super) struct WrittenTime {
    /// The last TIME_HIGH written, if any.
    high: Option<u32>,
    overflows: u64,
}

impl WrittenTime {
    const TOP: u32 = (1 << 28) - 1;

    /// Calls `write` with each TIME_HIGH that is needed for events at the time `t`. Fails, before any, where
    /// there are none.
    pub(super) fn step(&mut self, format: &str, t: u64, mut write: impl FnMut(u32)) -> Result<(), TimeError> {
        let (overflows, high) = (t >> 34, (t >> 6) as u32 & Self::TOP);
        check_overflows(format, t, self.overflows, 34)?;
        while self.overflows < overflows {
            if self.high != Some(Self::TOP) {
                write(Self::TOP);
            }
            write(0);
            self.high = Some(0);
            self.overflows += 1;
        }
        match self.high {
            Some(before) if before == high => return Ok(()),
            // In two steps, neither of which is taken for an overflow.
            Some(before) if before >= high.saturating_add(OVERFLOW) => write(before / 2),
            _ => {}
        }
        write(high);
        self.high = Some(high);
        Ok(())
    }
}

/// Why a time cannot be written, as the field's value and what would be right.
pub(super) struct TimeError {
    format: String,
    expected: String,
}

impl TimeError {
    pub(super) fn of_event(self, index: usize, t: u64) -> Error {
        unencodable(index, "t", t, &self.format, &self.expected)
    }
}

/// Whether a clock of `bits` bits that has overflowed so often can go on to `t`.
pub(super) fn check_overflows(format: &str, t: u64, overflows: u64, bits: u32) -> Result<(), TimeError> {
    let (least, most) = (overflows, overflows + MOST_OVERFLOWS);
    let expected = if t >> bits < least {
        format!(
            "times from {} on here: its clock of {bits} bits has overflowed and cannot step back before that",
            least << bits
        )
    } else if t >> bits > most {
        format!(
            "times up to {} here: gaps of up to {MOST_OVERFLOWS} overflows of its clock of {bits} bits are written; \
             subtract an offset from all times",
            ((u128::from(most) + 1) << bits) - 1
        )
    } else {
        return Ok(());
    };
    Err(TimeError { format: format.into(), expected })
}

/// The events of `records` up to the first whose x, y or p no EVT format holds, and the error for that.
pub(super) fn holdable(format: &str, records: &[Record]) -> (Vec<Event>, Option<Error>) {
    let mut events = Vec::with_capacity(records.len());
    for (index, record) in records.iter().enumerate() {
        let event = Event::from_record(record);
        for (field, value) in [("x", event.x), ("y", event.y)] {
            if value > MOST {
                let error = unencodable(index, field, value, format, "0 to 2047");
                return (events, Some(error));
            }
        }
        if event.p > 1 {
            return (events, Some(unencodable(index, "p", event.p, format, "0 and 1")));
        }
        events.push(event);
    }
    (events, None)
}

impl Event {
    /// The events at the front of `events`, of which this is the first, that a vector can hold: in one row,
    /// in one group of 32 columns, at one time, of one polarity, and in the order of their columns.
    pub(super) fn group<'a>(&self, events: &'a [Event]) -> &'a [Event] {
        let same = |event: &Event| {
            (event.t, event.y, event.p, event.x / 32) == (self.t, self.y, self.p, self.x / 32)
        };
        let pairs = events.windows(2).take_while(|pair| same(&pair[1]) && pair[0].x < pair[1].x);
        &events[..1 + pairs.count()]
    }
}

/// The largest x and y.
pub(super) const MOST: u16 = 2047;

/// Encodes EVT 2.0. TIME_HIGH is written when it changes.
pub struct Evt2Encoder {
    sensor: (u32, u32),
    time: WrittenTime,
}

impl Evt2Encoder {
    /// An encoder for a sensor of that size.
    ///
    /// # Errors
    /// [`Error::Header`]: the format holds no such sensor.
    pub fn new(sensor: (u32, u32)) -> Result<Self, Error> {
        Version::Evt2.check_sensor(sensor)?;
        Ok(Self { sensor, time: WrittenTime::default() })
    }
}

impl Encoder for Evt2Encoder {
    fn start(&mut self, out: &mut Vec<u8>) {
        Version::Evt2.write_header(self.sensor, out);
    }

    fn encode(&mut self, records: &[Record], out: &mut Vec<u8>) -> Result<(), Error> {
        let format = Version::Evt2.name();
        let (events, mut error) = holdable(format, records);
        let (length, mut time) = (out.len(), self.time);
        for (index, event) in events.iter().enumerate() {
            let mut put = |word: u32| out.extend(word.to_le_bytes());
            let stepped = time.step(format, event.t, |high| put(TIME_HIGH << 28 | high));
            if let Err(refused) = stepped {
                error = Some(refused.of_event(index, event.t));
                break;
            }
            let low = (event.t & 0x3f) as u32;
            put(u32::from(event.p) << 28 | low << 22 | u32::from(event.x) << 11 | u32::from(event.y));
        }
        if let Some(error) = error {
            out.truncate(length);
            return Err(error);
        }
        self.time = time;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Event, testing};

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn times(words: &[u32]) -> Vec<u64> {
        let (events, end) =
            testing::decode(Evt2Decoder::new(Options::default()), &bytes(words), &[usize::MAX]);
        assert_eq!(end, Ok(()));
        events.iter().map(|event| event.t).collect()
    }

    const TOP: u32 = (1 << 28) - 1;
    const HIGH: u32 = TIME_HIGH << 28;

    #[test]
    fn fields_are_where_the_format_has_them() {
        let words = bytes(&[HIGH | 3, 0x1fff_ffff, 0x0000_0801]);
        let (events, _) = testing::decode(Evt2Decoder::new(Options::default()), &words, &[usize::MAX]);
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
}
