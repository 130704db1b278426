//! Prophesee DAT: text lines, then records of 8 bytes, <https://docs.prophesee.ai/stable/data/file_formats/dat.html>.
//!
//! | where | what |
//! |---|---|
//! | lines that start with `%` | `% key value`: `Version 2`, `Width`, `Height` |
//! | 1 byte | the type of event: 0x00 (Event2d) and 0x0C (EventCD) are laid out alike |
//! | 1 byte | the size of an event, 8 |
//! | 8 bytes each | time (32 bits, µs), then x (14 bits, lowest), y (14), polarity (4) |
//!
//! The 32 bits of time overflow after 71 min 35 s. See [`Clock`] for how that is undone.
//!
//! This file is allowed `unsafe`: it keeps rows that it wrote to memory without a value, and calls functions
//! compiled for instructions that were looked for when the decoder was made.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::simd::Backend;
use super::{
    Decoder, Encoder, Error, Event, EventBuffer, Head, MAX_HEAD, Partial, Record, Report, Saved, record,
    unencodable,
};

/// The types of events that are CD events, and what they are called.
const TYPES: [(u8, &str); 2] = [(0x00, "Event2d"), (0x0c, "EventCD")];
const SIZE: u8 = 8;

/// Whether a file that starts with `bytes` is a DAT file; `None` when more of it is needed. A RAW file starts alike but
/// says its encoding.
pub fn starts(bytes: &[u8], at_end: bool) -> Option<bool> {
    let mut facts = Facts::default();
    match facts.read(bytes, at_end) {
        _ if facts.raw || bytes.first().is_some_and(|&byte| byte != b'%') => Some(false),
        Some(length) => Some(length > 0 && facts.dat),
        None => None,
    }
}

/// Reads the head off `bytes`, the start of a file; `None` when more of it is needed.
///
/// # Errors
/// [`Error::Header`] for a head that cannot be used.
pub fn head(bytes: &[u8], at_end: bool) -> Result<Option<Head>, Error> {
    let refuse = |what: String| Err(Error::Header(what));
    let mut facts = Facts::default();
    let Some(lines) = facts.read(bytes, at_end) else {
        return Ok(None);
    };
    if lines == 0 || facts.raw {
        return refuse("not a DAT file: it does not start with a DAT header's '%' lines".into());
    }
    match facts.version.as_deref() {
        Some("2") => {}
        Some(other) => return refuse(format!("the DAT header states the Version {other:?}; 2 is read")),
        None => return refuse("the DAT header states no Version; 2 is read".into()),
    }
    let geometry = match (&facts.width, &facts.height) {
        (None, None) => None,
        (Some(width), Some(height)) => match (side(width), side(height)) {
            (Some(width), Some(height)) => Some((width, height)),
            _ => {
                return refuse(format!(
                    "the DAT header's Width and Height must be positive integers, got {width:?} and {height:?}"
                ));
            }
        },
        _ => return refuse("the DAT header needs both Width and Height, or neither".into()),
    };
    let &[kind, size, ..] = &bytes[lines..] else {
        return if at_end {
            refuse("the DAT file ends before its event type and size".into())
        } else {
            Ok(None)
        };
    };
    let Some((_, name)) = TYPES.into_iter().find(|&(known, _)| known == kind) else {
        return refuse(format!(
            "the DAT file holds events of the type {kind:#04x}; CD events, 0x00 and 0x0c, are read"
        ));
    };
    if size != SIZE {
        return refuse(format!("the DAT file states events of {size} bytes; CD events have {SIZE}"));
    }
    let decoder = Box::new(DatDecoder::new(name));
    Ok(Some(Head { format: "DAT 2", geometry, length: lines + 2, decoder }))
}

fn side(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
        .filter(|&side| side > 0)
}

/// What the lines of a header say.
#[derive(Default)]
struct Facts {
    /// There is a line that only DAT has.
    dat: bool,
    /// There is a line that only RAW has.
    raw: bool,
    version: Option<String>,
    width: Option<String>,
    height: Option<String>,
}

impl Facts {
    /// Reads the lines at the start of a file; returns their length, or `None` when there may be more of them.
    fn read(&mut self, bytes: &[u8], at_end: bool) -> Option<usize> {
        let mut length = 0;
        while let Some(b'%') = bytes.get(length) {
            let line = match bytes[length..].iter().position(|&byte| byte == b'\n') {
                Some(newline) => newline + 1,
                None if at_end || bytes.len() >= MAX_HEAD => bytes.len() - length,
                None => return None,
            };
            self.note(&bytes[length + 1..length + line]);
            length += line;
        }
        (length < bytes.len() || at_end).then_some(length)
    }

    fn note(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_ascii();
        let (key, value) = line.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((line, ""));
        let value: String = value.trim_ascii().chars().take(60).collect();
        match key.to_ascii_lowercase().as_str() {
            "evt" | "format" => self.raw = true,
            "end" if value.is_empty() => self.raw = true,
            "data" if value.starts_with("file containing") => self.dat = true,
            "version" => (self.dat, self.version) = (true, Some(value)),
            "width" => (self.dat, self.width) = (true, Some(value)),
            "height" => (self.dat, self.height) = (true, Some(value)),
            _ => {}
        }
    }
}

/// Makes 64 bits of the file's 32 bits of time.
///
/// A time that falls by more than 15/16 of the range, which are 67 minutes, has overflowed: recorded clocks do step
/// back, but hardly so far, and it misses an overflow only in 4 min 28 s without an event. A time that then rises by as
/// much is a late event from before the overflow, not the end of the next 71 minutes.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// The time of the last event as it is in the file.
    last: u32,
    /// Overflows between the first event and the last.
    epoch: u32,
    /// The most there were.
    epochs: u32,
}

/// The step from which on it is an overflow's.
const OVERFLOW: u32 = 15 << 28;

impl Clock {
    #[inline(always)]
    fn time(&mut self, t: u32) -> u64 {
        if self.last > t && self.last - t > OVERFLOW {
            self.epoch = self.epoch.wrapping_add(1);
            self.epochs = self.epochs.max(self.epoch);
        } else if t > self.last && t - self.last > OVERFLOW && self.epoch > 0 {
            self.epoch -= 1;
        }
        self.last = t;
        self.base() | u64::from(t)
    }

    fn base(&self) -> u64 {
        u64::from(self.epoch) << 32
    }
}

/// Decodes DAT.
#[derive(Clone)]
pub struct DatDecoder {
    name: &'static str,
    partial: Partial<8>,
    clock: Clock,
    events: u64,
    backward_steps: u64,
    truncated_tail: u64,
    backend: Backend,
}

/// How many records were decoded.
struct Took {
    events: usize,
    steps_back: u64,
}

/// Decodes the records behind the first one, which was decoded already, up to one that the [`Clock`] has to see, as its
/// time is far from that of the record before it. Writes them to the front of `rows`, of which there are at least as many.
/// In plain code.
#[inline(always)]
fn near_plain(records: &[[u8; 8]], base: u64, rows: &mut [MaybeUninit<Record>]) -> Took {
    /// Records that are looked at together.
    const GROUP: usize = 64;
    let (mut events, mut steps_back) = (0, 0);
    for start in (0..records.len() - 1).step_by(GROUP) {
        let group = &records[start..(start + GROUP + 1).min(records.len())];
        let pairs = group.windows(2).map(|pair| (time(&pair[0]), time(&pair[1])));
        let far = |&(before, t): &(u32, u32)| t.abs_diff(before) > OVERFLOW;
        // Without a loop that ends early, several pairs are compared at once.
        let some_far = pairs.clone().fold(false, |some, pair| some | far(&pair));
        let near = if some_far { pairs.clone().position(|pair| far(&pair)) } else { None };
        let count = near.unwrap_or(group.len() - 1);
        steps_back += pairs.take(count).fold(0, |steps, (before, t)| steps + u32::from(t < before));
        for (record, row) in group[1..][..count].iter().zip(&mut rows[start..]) {
            row.write(event(record, base | u64::from(time(record))));
        }
        events += count;
        if near.is_some() {
            break;
        }
    }
    Took { events, steps_back: steps_back.into() }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::*;
    use crate::codec::simd::x86::{SLACK, load_four, load_longs, store_eight, store_four};

    /// As [`near_plain`], four at a time.
    #[target_feature(enable = "avx2,popcnt")]
    pub fn near_avx2(records: &[[u8; 8]], base: u64, rows: &mut [MaybeUninit<Record>]) -> Took {
        let (mut events, mut steps_back) = (0, 0);
        let base_time = _mm256_set1_epi64x(base as i64);
        let low = _mm256_set1_epi64x(0xffff_ffff);
        let overflow = _mm256_set1_epi64x(OVERFLOW.into());
        while let Some([front @ .., _]) = records[events..].first_chunk::<5>()
            && events + 4 + SLACK <= rows.len()
        {
            let Some(four) = records[events + 1..].first_chunk::<4>() else { break };
            let word = load_four(four);
            let (time, before) = (_mm256_and_si256(word, low), _mm256_and_si256(load_four(front), low));
            let back = _mm256_cmpgt_epi64(before, time);
            let step = _mm256_sub_epi64(time, before);
            let size = _mm256_sub_epi64(_mm256_xor_si256(step, back), back);
            let far = _mm256_cmpgt_epi64(size, overflow);
            if _mm256_testz_si256(far, far) == 0 {
                break;
            }
            let x = _mm256_and_si256(_mm256_srli_epi64::<32>(word), _mm256_set1_epi64x(0x3fff));
            let y = _mm256_and_si256(_mm256_srli_epi64::<30>(word), _mm256_set1_epi64x(0x3fff_0000));
            let p = _mm256_slli_epi64::<32>(_mm256_srli_epi64::<60>(word));
            let rest = _mm256_or_si256(_mm256_or_si256(x, y), p);
            store_four(rows, events, _mm256_or_si256(base_time, time), rest);
            steps_back += u64::from(_mm256_movemask_pd(_mm256_castsi256_pd(back)).count_ones());
            events += 4;
        }
        let rest = near_plain(&records[events..], base, &mut rows[events..]);
        Took { events: events + rest.events, steps_back: steps_back + rest.steps_back }
    }

    /// As [`near_plain`], eight at a time.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,popcnt")]
    pub fn near_avx512(records: &[[u8; 8]], base: u64, rows: &mut [MaybeUninit<Record>]) -> Took {
        let (mut events, mut steps_back) = (0, 0);
        let base_time = _mm512_set1_epi64(base as i64);
        let low = _mm512_set1_epi64(0xffff_ffff);
        let overflow = _mm512_set1_epi64(OVERFLOW.into());
        let mut before = _mm512_set1_epi64(time(&records[0]).into());
        for eight in records[1..].as_chunks::<8>().0 {
            if events + 8 + SLACK > rows.len() {
                break;
            }
            let word = load_longs(eight);
            let time = _mm512_and_si512(word, low);
            let previous = _mm512_alignr_epi64::<7>(time, before);
            before = time;
            let far = _mm512_cmpgt_epi64_mask(_mm512_abs_epi64(_mm512_sub_epi64(time, previous)), overflow);
            if far != 0 {
                break;
            }
            let x = _mm512_and_si512(_mm512_srli_epi64::<32>(word), _mm512_set1_epi64(0x3fff));
            let y = _mm512_and_si512(_mm512_srli_epi64::<30>(word), _mm512_set1_epi64(0x3fff_0000));
            let p = _mm512_slli_epi64::<32>(_mm512_srli_epi64::<60>(word));
            let rest = _mm512_or_si512(_mm512_or_si512(x, y), p);
            store_eight(rows, events, _mm512_or_si512(base_time, time), rest);
            steps_back += u64::from(_mm512_cmplt_epu64_mask(time, previous).count_ones());
            events += 8;
        }
        let rest = near_plain(&records[events..], base, &mut rows[events..]);
        Took { events: events + rest.events, steps_back: steps_back + rest.steps_back }
    }
}

impl DatDecoder {
    /// A decoder at the first record; `name` is that of the type of event.
    pub fn new(name: &'static str) -> Self {
        Self::with_backend(name, Backend::best())
    }

    /// A decoder that uses these instructions, which this machine has.
    fn with_backend(name: &'static str, backend: Backend) -> Self {
        DatDecoder {
            name,
            partial: Partial::default(),
            clock: Clock::default(),
            events: 0,
            backward_steps: 0,
            truncated_tail: 0,
            backend,
        }
    }

    fn decode(&mut self, mut records: &[[u8; 8]], out: &mut EventBuffer) {
        self.events += records.len() as u64;
        while let [first, behind @ ..] = records {
            let before = self.clock.base() | u64::from(self.clock.last);
            let t = self.clock.time(time(first));
            self.backward_steps += u64::from(t < before);
            let base = self.clock.base();
            out.append(&[event(first, t)]);
            let rows = out.uninit_room(behind.len() + 1);
            let took = match self.backend {
                Backend::Plain => near_plain(records, base, rows),
                // SAFETY: `Backend` is only made where the machine has the instructions.
                #[cfg(target_arch = "x86_64")]
                Backend::Avx2 => unsafe { x86::near_avx2(records, base, rows) },
                // SAFETY: the same.
                #[cfg(target_arch = "x86_64")]
                Backend::Avx512 => unsafe { x86::near_avx512(records, base, rows) },
            };
            // SAFETY: there is room for more than that, and each event was written to the row behind the one
            // before it.
            unsafe { out.keep_written(took.events) };
            self.clock.last = time(&records[took.events]);
            self.backward_steps += took.steps_back;
            records = &behind[took.events..];
        }
    }
}

#[inline(always)]
fn time(record: &[u8; 8]) -> u32 {
    u64::from_le_bytes(*record) as u32
}

#[inline(always)]
fn event(bytes: &[u8; 8], t: u64) -> Record {
    let word = (u64::from_le_bytes(*bytes) >> 32) as u32;
    record(t, word & 0x3fff | (word << 2 & 0x3fff_0000), (word >> 28) as u8)
}

impl Decoder for DatDecoder {
    fn feed(&mut self, mut bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        if let Some(record) = self.partial.complete(&mut bytes) {
            self.decode(&[record], out);
        }
        let records = self.partial.split(bytes);
        self.decode(records, out);
        Ok(())
    }

    fn finish(&mut self, _out: &mut EventBuffer) -> Result<(), Error> {
        self.truncated_tail = self.partial.len as u64;
        Ok(())
    }

    fn report(&self) -> Report {
        let mut report = Report {
            time_wraps: self.clock.epochs.into(),
            backward_steps: self.backward_steps,
            truncated_tail: self.truncated_tail,
            ..Report::default()
        };
        report.note_words(self.name, self.events, self.events * u64::from(SIZE));
        report
    }

    fn faults(&self) -> u64 {
        self.backward_steps + u64::from(self.truncated_tail > 0)
    }

    fn word(&self) -> usize {
        SIZE.into()
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn save(&self) -> Option<Saved> {
        let Clock { last, epoch, epochs } = self.clock;
        let state = [last, epoch, epochs].map(u32::to_le_bytes).concat();
        Some(Saved { state, again: self.partial.len as u64 })
    }

    fn load(&mut self, state: &[u8]) -> bool {
        let ([last, epoch, epochs], []) = state.as_chunks::<4>() else { return false };
        let [last, epoch, epochs] = [last, epoch, epochs].map(|bytes| u32::from_le_bytes(*bytes));
        self.clock = Clock { last, epoch, epochs };
        true
    }
}

/// Encodes DAT, as EventCD.
pub struct DatEncoder {
    sensor: (u32, u32),
    clock: Clock,
}

impl DatEncoder {
    /// An encoder for a sensor of that size.
    pub fn new(sensor: (u32, u32)) -> Self {
        DatEncoder { sensor, clock: Clock::default() }
    }
}

impl Encoder for DatEncoder {
    fn start(&mut self, out: &mut Vec<u8>) {
        let (width, height) = self.sensor;
        let header = format!(
            "% Data file containing CD events\n% Version 2\n% Width {width}\n% Height {height}\n\x0c\x08"
        );
        out.extend_from_slice(header.as_bytes());
    }

    fn encode(&mut self, events: &[Record], out: &mut Vec<u8>) -> Result<(), Error> {
        let mut clock = self.clock;
        let start = out.len();
        out.reserve(events.len() * usize::from(SIZE));
        for (index, bytes) in events.iter().enumerate() {
            let Event { t, x, y, p } = Event::from_record(bytes);
            let before = clock.base() | u64::from(clock.last);
            let refuse = if x > 0x3fff {
                unencodable(index, "x", x, "DAT", "at most 16383")
            } else if y > 0x3fff {
                unencodable(index, "y", y, "DAT", "at most 16383")
            } else if p > 1 {
                unencodable(index, "p", p, "DAT", "0 and 1")
            } else if clock.time(t as u32) != t {
                let expected = format!(
                    "32 bits of time, which after {before} do not say this one: subtract an offset from all times"
                );
                unencodable(index, "t", t, "DAT", &expected)
            } else {
                let word = u64::from(x) | u64::from(y) << 14 | u64::from(p) << 28;
                out.extend_from_slice(&(word << 32 | u64::from(t as u32)).to_le_bytes());
                continue;
            };
            out.truncate(start);
            return Err(refuse);
        }
        self.clock = clock;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::testing;

    fn bytes(records: &[(u32, u32)]) -> Vec<u8> {
        records.iter().flat_map(|&(t, word)| [t.to_le_bytes(), word.to_le_bytes()].concat()).collect()
    }

    /// What each of the variants makes of the times; all make the same.
    fn times(file: &[u32]) -> Vec<u64> {
        let records: Vec<_> = file.iter().map(|&t| (t, 0)).collect();
        let mut all = Backend::all().map(|backend| {
            let decoder = DatDecoder::with_backend("", backend);
            let (events, end) = testing::decode(decoder, &bytes(&records), &[usize::MAX]);
            assert_eq!(end, Ok(()));
            events.iter().map(|event| event.t).collect()
        });
        let first = all.next().unwrap();
        all.for_each(|times: Vec<_>| assert_eq!(times, first));
        first
    }

    #[test]
    fn fields_are_where_the_format_has_them() {
        let file = bytes(&[(0xffff_fff0, 0xffff_ffff), (0xffff_fff1, 0x1000_4002)]);
        let (events, _) = testing::decode(DatDecoder::new(""), &file, &[usize::MAX]);
        let first = Event { t: 0xffff_fff0, x: 16383, y: 16383, p: 15 };
        let second = Event { t: 0xffff_fff1, x: 2, y: 1, p: 1 };
        assert_eq!(events, [first, second]);
    }

    #[test]
    fn an_overflow_is_told_from_a_step_back() {
        const TOP: u64 = u32::MAX as u64;
        const FALL: u64 = OVERFLOW as u64;
        const EPOCH: u64 = 1 << 32;
        let of = |file: &[u64]| times(&file.iter().map(|&t| t as u32).collect::<Vec<_>>());
        assert_eq!(of(&[TOP, TOP - FALL - 1]), [TOP, EPOCH + TOP - FALL - 1]);
        assert_eq!(of(&[TOP, TOP - FALL]), [TOP, TOP - FALL]);
        // An event from before the overflow comes late, and the overflow is counted once.
        assert_eq!(of(&[TOP - 1, 1, TOP, 2]), [TOP - 1, EPOCH + 1, TOP, EPOCH + 2]);
        // Nothing is before the start.
        assert_eq!(of(&[1, TOP, 2]), [1, TOP, EPOCH + 2]);
    }

    #[test]
    fn the_report_counts_wraps_and_steps_and_the_tail() {
        let mut decoder = DatDecoder::new("EventCD");
        let mut file = bytes(&[(u32::MAX, 0), (1, 0), (u32::MAX, 0), (2, 0), (1, 0)]);
        file.extend([0; 5]);
        decoder.feed(&file, &mut EventBuffer::new()).unwrap();
        assert_eq!(decoder.faults(), 2);
        decoder.finish(&mut EventBuffer::new()).unwrap();
        let report = decoder.report();
        assert_eq!((report.time_wraps, report.backward_steps, report.truncated_tail), (1, 2, 5));
        assert_eq!((report.words[0].count, report.words[0].bytes), (5, 40));
        assert_eq!(decoder.faults(), report.faults());
    }

    #[test]
    fn raw_and_dat_are_told_apart_however_little_is_seen() {
        let dat = b"% Date 2020\n% Version 2\n\x0c\x08".as_slice();
        let raw = b"% Date 2020\n% evt 3.0\n% Width 4\nabc".as_slice();
        for (file, expected) in [(dat, true), (raw, false), (b"% Date 2020\nabc".as_slice(), false)] {
            for n in 0..=file.len() {
                assert!(starts(&file[..n], false).is_none_or(|found| found == expected), "{n}");
            }
            assert_eq!(starts(file, false), Some(expected));
        }
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            file in prop::collection::vec(any::<u8>(), 0..900),
            sizes in prop::collection::vec(1usize..40, 1..20),
        ) {
            let whole = testing::decode(DatDecoder::new(""), &file, &[usize::MAX]);
            prop_assert_eq!(testing::decode(DatDecoder::new(""), &file, &sizes), whole);
        }

        #[test]
        fn every_variant_decodes_as_one_record_after_the_other(
            steps in prop::collection::vec((prop_oneof![
                20 => 0u32..100,
                2 => (-100i32..0).prop_map(|step| step as u32),
                1 => prop_oneof![
                    any::<u32>(), Just(u32::MAX), OVERFLOW - 2..OVERFLOW + 3, 1u32 << 28..(1 << 28) + 2,
                ],
            ], any::<u32>()), 0..300),
            sizes in prop::collection::vec(1usize..900, 1..5),
        ) {
            let mut t = 0u32;
            let file: Vec<_> = steps.iter().map(|&(step, word)| { t = t.wrapping_add(step); (t, word) }).collect();
            let mut clock = Clock::default();
            let mut expected: Vec<Event> = Vec::new();
            for &(t, word) in &file {
                let (x, y, p) = (word & 0x3fff, word >> 14 & 0x3fff, word >> 28);
                expected.push(Event { t: clock.time(t), x: x as u16, y: y as u16, p: p as u8 });
            }
            let steps_back = expected.windows(2).filter(|pair| pair[1].t < pair[0].t).count();
            for backend in Backend::all() {
                let mut decoder = DatDecoder::with_backend("", backend);
                let mut out = EventBuffer::new();
                let bytes = bytes(&file);
                let mut rest = &bytes[..];
                for &size in sizes.iter().cycle() {
                    let (piece, behind) = rest.split_at(size.min(rest.len()));
                    decoder.feed(piece, &mut out).unwrap();
                    rest = behind;
                    if rest.is_empty() {
                        break;
                    }
                }
                let events: Vec<_> = out.records().iter().map(Event::from_record).collect();
                prop_assert_eq!(&events, &expected, "{:?}", backend);
                let report = decoder.report();
                let counts = (report.backward_steps, report.time_wraps, decoder.events);
                let wanted = (steps_back as u64, clock.epochs.into(), file.len() as u64);
                prop_assert_eq!(counts, wanted, "{:?}", backend);
            }
        }

        #[test]
        fn what_is_encoded_comes_back(
            first in any::<u32>(),
            rest in prop::collection::vec((1 - (1i64 << 28)..1 << 28, 0u16..=0x3fff, 0u16..=0x3fff, 0u8..2), 0..100),
            cut in 0usize..100,
        ) {
            let mut t = i64::from(first);
            let events: Vec<_> = rest.iter().map(|&(step, x, y, p)| {
                let event = Event { t: t as u64, x, y, p };
                t = (t + step).max(0);
                event
            }).collect();
            let records: Vec<_> = events.iter().map(|event| event.to_record()).collect();
            let (front, back) = records.split_at(cut.min(records.len()));
            let mut encoder = DatEncoder::new((4, 5));
            let mut file = Vec::new();
            encoder.start(&mut file);
            let start = file.len();
            encoder.encode(front, &mut file).unwrap();
            encoder.encode(back, &mut file).unwrap();
            let head = head(&file, true).unwrap().unwrap();
            prop_assert_eq!((head.geometry, head.length), (Some((4, 5)), start));
            let decoded = testing::decode(DatDecoder::new(""), &file[start..], &[usize::MAX]);
            prop_assert_eq!(decoded, (events, Ok(())));
        }

        #[test]
        fn what_cannot_be_held_is_refused_and_leaves_no_trace(
            t in prop_oneof![any::<u64>(), 0u64..1 << 33],
            x in any::<u16>(), y in any::<u16>(), p in 0u8..3,
        ) {
            let mut encoder = DatEncoder::new((4, 5));
            let mut file = Vec::new();
            let event = Event { t, x, y, p };
            let encoded = encoder.encode(&[Event { t: 7, x: 0, y: 0, p: 0 }.to_record(), event.to_record()], &mut file);
            if encoded.is_ok() {
                let (events, _) = testing::decode(DatDecoder::new(""), &file, &[usize::MAX]);
                prop_assert_eq!(events[1], event);
            } else {
                prop_assert!(file.is_empty());
                prop_assert!(t > u64::from(u32::MAX) || x > 16383 || y > 16383 || p > 1);
            }
        }
    }
}
