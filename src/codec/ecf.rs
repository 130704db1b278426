//! ECF, the codec of Prophesee's HDF5 files: one chunk of a dataset in, events out, and back.
//!
//! A chunk holds at most 65,535 events, column by column, little-endian
//! (<https://github.com/prophesee-ai/hdf5_ecf>, HDF5 filter 0x8ECF):
//!
//! - a header of 32 bits: the number of events shifted left by 2; bit 1 set if y, x and p are packed together, bit 0 if
//!   (else) x and p are;
//! - times: the first one in 64 bits, then runs. A byte with a high nibble below 15 is a run: time goes on by the high
//!   nibble, and the low nibble counts the events there; 15 says that the count is in the next 16 bits. Bytes with a
//!   high nibble of 15 hold 4 bits each, lowest first, of a step by which time goes on before the next run;
//! - y, unless packed: 11 bits and a count of 5; a count of 31 says that it is in the next 16 bits;
//! - x, unless packed: 11 bits and a mask of 5: whether events follow at x + 1 (bit 4) to x + 5 (bit 0). Bits that go
//!   beyond the last event mean nothing;
//! - p, unless packed: one bit and a count of 7; a count of 127 says that it is in the next 16 bits;
//! - x and p packed: `x << 1 | p` in 12 bits, four events in three 16-bit words;
//! - y, x and p packed: `y << 12 | x << 1 | p` in 24 bits (bit 23 unused by sensors of up to 2048 rows), four events in
//!   three 32-bit words.
//!
//! Time is added up modulo 2^64, which is how a step back is written here: exactly, and as Prophesee's decoder reads it
//! (its encoder would flatten it).

use super::{Error, Event, Record, unencodable};

/// The most events that a chunk holds.
pub const MAX_EVENTS: usize = 65_535;

/// Columns and rows are written in 11 bits.
const LIMIT: u16 = 1 << 11;

/// What is left of a chunk.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    #[inline]
    fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Error> {
        let Some((bytes, rest)) = self.0.split_first_chunk::<N>() else {
            return Err(malformed(format!("it ends in its {what}")));
        };
        self.0 = rest;
        Ok(*bytes)
    }

    #[inline]
    fn u8(&mut self, what: &str) -> Result<u8, Error> {
        Ok(self.take::<1>(what)?[0])
    }

    #[inline]
    fn u16(&mut self, what: &str) -> Result<u16, Error> {
        Ok(u16::from_le_bytes(self.take(what)?))
    }

    /// A group of four packed events: three words of `N / 3` bytes.
    fn groups<const N: usize>(&mut self, events: usize, what: &str) -> Result<&[[u8; N]], Error> {
        let groups = events.div_ceil(4);
        let (all, _) = self.0.as_chunks::<N>();
        let Some(found) = all.get(..groups) else {
            return Err(malformed(format!("it ends in its {what}")));
        };
        self.0 = &self.0[groups * N..];
        Ok(found)
    }
}

#[cold]
fn malformed(reason: impl std::fmt::Display) -> Error {
    Error::Malformed(format!("an ECF chunk is malformed: {reason}"))
}

/// Decodes one chunk and appends its events to `out`. Bytes after the last event mean nothing.
///
/// # Errors
/// [`Error::Malformed`]: the chunk is no ECF, or states more than it holds, or a time is 2^63 or more. `out` is then as
/// it was.
pub fn decode(chunk: &[u8], out: &mut Vec<Record>) -> Result<(), Error> {
    let mut bytes = Bytes(chunk);
    let head = u32::from_le_bytes(bytes.take("header")?);
    let events = (head >> 2) as usize;
    if events > MAX_EVENTS {
        return Err(malformed(format!("it states {events} events, and a chunk holds {MAX_EVENTS}")));
    }
    let mut columns = Columns::default();
    columns.times(&mut bytes, events)?;
    if head & 2 != 0 {
        for group in bytes.groups::<12>(events, "packed y, x and p")? {
            let word = |i: usize| u32::from_le_bytes([group[i], group[i + 1], group[i + 2], group[i + 3]]);
            let (a, b, c) = (word(0), word(4), word(8));
            let packed = [a >> 8, a & 0xff | (b >> 16) << 8, b & 0xffff | (c >> 24) << 16, c & 0xff_ffff];
            for v in packed {
                columns.y.push((v >> 12) as u16 % LIMIT);
                columns.x.push((v >> 1) as u16 % LIMIT);
                columns.p.push((v & 1) as u8);
            }
        }
    } else {
        columns.rows(&mut bytes, events)?;
        if head & 1 != 0 {
            for group in bytes.groups::<6>(events, "packed x and p")? {
                let word = |i: usize| u16::from_le_bytes([group[i], group[i + 1]]);
                let (a, b, c) = (word(0), word(2), word(4));
                let packed = [a >> 4, a & 0xf | (b >> 8) << 4, b & 0xff | (c >> 12) << 8, c & 0xfff];
                for v in packed {
                    columns.x.push(v >> 1);
                    columns.p.push((v & 1) as u8);
                }
            }
        } else {
            columns.masked(&mut bytes, events)?;
            columns.polarities(&mut bytes, events)?;
        }
    }
    let late = columns.t.iter().find(|&&t| t >= crate::event::TIMESTAMP_LIMIT);
    if let Some(&t) = late {
        let t = t.cast_signed();
        return Err(Error::Malformed(format!("an ECF chunk holds a time outside [0, 2**63): {t}")));
    }
    let Columns { t, y, x, p } = &columns;
    let rows = t.iter().zip(x).zip(y).zip(p).take(events);
    out.extend(rows.map(|(((&t, &x), &y), &p)| Event { t, x, y, p }.to_record()));
    Ok(())
}

#[derive(Default)]
struct Columns {
    t: Vec<u64>,
    y: Vec<u16>,
    x: Vec<u16>,
    p: Vec<u8>,
}

impl Columns {
    fn times(&mut self, bytes: &mut Bytes<'_>, events: usize) -> Result<(), Error> {
        let mut t = u64::from_le_bytes(bytes.take("times")?);
        // Bits of a step that were met, and where the next ones go.
        let (mut step, mut shift) = (0u64, 0);
        while self.t.len() < events {
            let byte = bytes.u8("times")?;
            let (high, low) = (byte >> 4, byte & 15);
            if high == 15 {
                if shift > 60 {
                    return Err(malformed("a step in time has more than 64 bits"));
                }
                step |= u64::from(low) << shift;
                shift += 4;
                continue;
            }
            t = t.wrapping_add(step).wrapping_add(u64::from(high));
            (step, shift) = (0, 0);
            let count = if low == 15 { bytes.u16("times")?.into() } else { usize::from(low) };
            run(&mut self.t, t, count, events, "times")?;
        }
        Ok(())
    }

    fn rows(&mut self, bytes: &mut Bytes<'_>, events: usize) -> Result<(), Error> {
        while self.y.len() < events {
            let word = bytes.u16("y")?;
            let count = if word & 31 == 31 { bytes.u16("y")? } else { word & 31 };
            run(&mut self.y, word >> 5, count.into(), events, "y")?;
        }
        Ok(())
    }

    fn masked(&mut self, bytes: &mut Bytes<'_>, events: usize) -> Result<(), Error> {
        while self.x.len() < events {
            let word = bytes.u16("x")?;
            let x = word >> 5;
            self.x.push(x);
            for j in 0..5 {
                if word & 16 >> j != 0 {
                    self.x.push(x + j + 1);
                }
            }
        }
        Ok(())
    }

    fn polarities(&mut self, bytes: &mut Bytes<'_>, events: usize) -> Result<(), Error> {
        while self.p.len() < events {
            let byte = bytes.u8("p")?;
            let count = if byte & 127 == 127 { bytes.u16("p")? } else { (byte & 127).into() };
            run(&mut self.p, byte >> 7, count.into(), events, "p")?;
        }
        Ok(())
    }
}

/// Appends a value `count` times, to `events` in all at most.
#[inline]
fn run<T: Copy>(column: &mut Vec<T>, value: T, count: usize, events: usize, what: &str) -> Result<(), Error> {
    if count > events - column.len() {
        return Err(malformed(format!("its {what} are more than the {events} events it states")));
    }
    column.extend(std::iter::repeat_n(value, count));
    Ok(())
}

/// How a chunk holds what is not time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// y, x and p each by itself.
    Apart,
    /// y by itself, x and p packed.
    XAndP,
    /// y, x and p packed.
    All,
}

/// Encodes up to [`MAX_EVENTS`] events as one chunk, appended to `out`, in the packing that is smallest.
///
/// # Errors
/// [`Error::Unencodable`] for the first event with x or y above 2047 or p above 1, or for one too many; `out` is then as
/// it was.
pub fn encode(events: &[Record], out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    let mut best: Option<Vec<u8>> = None;
    for packing in [Packing::All, Packing::XAndP, Packing::Apart] {
        let mut chunk = Vec::new();
        encode_as(packing, events, &mut chunk)?;
        if best.as_ref().is_none_or(|best| chunk.len() < best.len()) {
            best = Some(chunk);
        }
    }
    debug_assert_eq!(out.len(), start);
    out.append(&mut best.unwrap_or_default());
    Ok(())
}

/// As [`encode`], in a packing of the caller's choice.
///
/// # Errors
/// As for [`encode`].
pub fn encode_as(packing: Packing, records: &[Record], out: &mut Vec<u8>) -> Result<(), Error> {
    let events: Vec<Event> = records.iter().map(Event::from_record).collect();
    for (index, event) in events.iter().enumerate() {
        let refuse = |field, value: u64, expected| unencodable(index, field, value, "ECF", expected);
        if index == MAX_EVENTS {
            return Err(refuse("place in the chunk", index as u64, "65,535 events a chunk"));
        }
        if event.x >= LIMIT {
            return Err(refuse("x", event.x.into(), "columns below 2048"));
        }
        if event.y >= LIMIT {
            return Err(refuse("y", event.y.into(), "rows below 2048"));
        }
        if event.p > 1 {
            return Err(refuse("p", event.p.into(), "polarities 0 and 1"));
        }
    }
    let flags = match packing {
        Packing::Apart => 0,
        Packing::XAndP => 1,
        Packing::All => 2,
    };
    out.extend(((events.len() as u32) << 2 | flags).to_le_bytes());
    let mut t = events.first().map_or(0, |event| event.t);
    out.extend(t.to_le_bytes());
    for run in events.chunk_by(|a, b| a.t == b.t) {
        let mut step = run[0].t.wrapping_sub(t);
        t = run[0].t;
        if step >= 15 {
            while step > 0 {
                out.push(0xf0 | (step & 15) as u8);
                step >>= 4;
            }
        }
        let high = (step as u8) << 4;
        match run.len() {
            count @ 0..15 => out.push(high | count as u8),
            count => {
                out.push(high | 15);
                out.extend((count as u16).to_le_bytes());
            }
        }
    }
    if packing == Packing::All {
        for group in events.chunks(4) {
            let v = |i: usize| {
                group.get(i).map_or(0, |e| u32::from(e.y) << 12 | u32::from(e.x) << 1 | u32::from(e.p))
            };
            for word in [v(0) << 8 | v(1) & 0xff, v(1) >> 8 << 16 | v(2) & 0xffff, v(2) >> 16 << 24 | v(3)] {
                out.extend(word.to_le_bytes());
            }
        }
        return Ok(());
    }
    for run in events.chunk_by(|a, b| a.y == b.y) {
        let y = run[0].y << 5;
        match run.len() {
            count @ 0..31 => out.extend((y | count as u16).to_le_bytes()),
            count => {
                out.extend((y | 31).to_le_bytes());
                out.extend((count as u16).to_le_bytes());
            }
        }
    }
    if packing == Packing::XAndP {
        for group in events.chunks(4) {
            let v = |i: usize| group.get(i).map_or(0, |e| e.x << 1 | u16::from(e.p));
            for word in [v(0) << 4 | v(1) & 0xf, v(1) >> 4 << 8 | v(2) & 0xff, v(2) >> 8 << 12 | v(3)] {
                out.extend(word.to_le_bytes());
            }
        }
        return Ok(());
    }
    let mut rest = events.as_slice();
    while let Some((first, mut after)) = rest.split_first() {
        let mut word = first.x << 5;
        for j in 0..5 {
            if let Some((next, others)) = after.split_first()
                && next.x == first.x + j + 1
            {
                word |= 16 >> j;
                after = others;
            }
        }
        out.extend(word.to_le_bytes());
        rest = after;
    }
    for run in events.chunk_by(|a, b| a.p == b.p) {
        let p = run[0].p << 7;
        match run.len() {
            count @ 0..127 => out.push(p | count as u8),
            count => {
                out.push(p | 127);
                out.extend((count as u16).to_le_bytes());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(chunk: &[u8]) -> Result<Vec<(u64, u16, u16, u8)>, String> {
        let mut out = Vec::new();
        decode(chunk, &mut out).map_err(|error| error.to_string())?;
        Ok(out.iter().map(Event::from_record).map(|e| (e.t, e.x, e.y, e.p)).collect())
    }

    fn records(events: &[(u64, u16, u16, u8)]) -> Vec<Record> {
        events.iter().map(|&(t, x, y, p)| Event { t, x, y, p }.to_record()).collect()
    }

    /// The columns apart: 3 events at 1000, one at 1002; rows 5, 5, 5, 6; columns 10, 11, 15, 3; p 1, 0, 0, 0.
    const APART: [u8; 24] = [
        4 << 2,
        0,
        0,
        0, // four events
        0xe8,
        3,
        0,
        0,
        0,
        0,
        0,
        0, // from 1000 on
        0x03,
        0x21, // three at once, one 2 later
        0xa3,
        0,
        0xc1,
        0, // row 5 three times, row 6 once
        0x51,
        0x01,
        0x60,
        0, // 10, with 10 + 1 and 10 + 5: 10 << 5 | 0b10001; then 3
        0x81,
        0x03, // ON once, OFF three times
    ];

    #[test]
    fn columns_apart_are_runs_and_masks() {
        let events = [(1000, 10, 5, 1), (1000, 11, 5, 0), (1000, 15, 5, 0), (1002, 3, 6, 0)];
        assert_eq!(decoded(&APART).unwrap(), events);
        let mut out = Vec::new();
        encode_as(Packing::Apart, &records(&events), &mut out).unwrap();
        assert_eq!(out, APART);
    }

    #[test]
    fn packed_columns_are_groups_of_four() {
        // x << 1 | p: 0x123, 0x456, 0x789, 0xabc, and then 0xdef.
        let mut chunk = vec![5 << 2 | 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0x05];
        chunk.extend([0x25, 0]); // row 1, five times
        for word in [0x1236u16, 0x4589, 0x7abc, 0xdef0, 0, 0] {
            chunk.extend(word.to_le_bytes());
        }
        let x = [0x123, 0x456, 0x789, 0xabc, 0xdef].map(|v: u16| (v >> 1, (v & 1) as u8));
        assert_eq!(decoded(&chunk).unwrap(), x.map(|(x, p)| (7, x, 1, p)));
        // y << 12 | x << 1 | p: 0x123456, 0x789abc, and two of nothing.
        let mut chunk = vec![2 << 2 | 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0x02];
        for word in [0x1234_56bcu32, 0x789a_0000, 0] {
            chunk.extend(word.to_le_bytes());
        }
        assert_eq!(decoded(&chunk).unwrap(), [(7, 0x456 >> 1, 0x123, 0), (7, 0xabc >> 1, 0x789, 0)]);
    }

    #[test]
    fn long_runs_and_steps_have_words_of_their_own() {
        // A step of 0x120 (the zero nibble first), then 300 events; row 2, column masks of six.
        let mut chunk = (300u32 << 2).to_le_bytes().to_vec();
        chunk.extend(5u64.to_le_bytes());
        chunk.extend([0xf0, 0xf2, 0xf1, 0x3f, 0x2c, 0x01]);
        chunk.extend([0x5f, 0, 0x2c, 0x01]);
        chunk.extend([31u8, 0].repeat(50));
        chunk.extend([0xff, 0x2c, 0x01]);
        let expected: Vec<_> = (0..300).map(|i| (5 + 0x120 + 3, i % 6, 2, 1)).collect();
        assert_eq!(decoded(&chunk).unwrap(), expected);
    }

    #[test]
    fn mask_bits_beyond_the_last_event_mean_nothing() {
        let mut chunk = APART;
        chunk[20] |= 0x1f; // the last x, which says that five more follow
        assert_eq!(decoded(&chunk), decoded(&APART));
    }

    #[test]
    fn a_chunk_that_ends_early_or_says_too_much_is_refused() {
        for end in 0..APART.len() {
            assert!(decoded(&APART[..end]).unwrap_err().contains("it ends in its"), "{end}");
        }
        let change = |place: usize, value: u8| {
            let mut chunk = APART;
            chunk[place] = value;
            decoded(&chunk).unwrap_err()
        };
        assert!(change(2, 4).contains("65540 events"));
        assert!(change(12, 0x0e).contains("its times are more"));
        assert!(change(14, 0xa5).contains("its y are more"));
        assert!(change(23, 0x04).contains("its p are more"));
        assert!(change(11, 0x80).contains("outside [0, 2**63)"));
        let mut long = (1u32 << 2).to_le_bytes().to_vec();
        long.extend([0; 8]);
        long.extend([0xf1; 17]);
        assert!(decoded(&long).unwrap_err().contains("64 bits"));
    }

    #[test]
    fn what_eleven_bits_cannot_hold_is_refused() {
        for (event, field) in
            [((1, 2048, 0, 0), "x is 2048"), ((1, 0, 4000, 0), "y is 4000"), ((1, 0, 0, 2), "p is 2")]
        {
            let mut out = vec![9];
            let error = encode(&records(&[(0, 0, 0, 0), event]), &mut out).unwrap_err().to_string();
            assert!(error.contains("event 1") && error.contains(field), "{error}");
            assert_eq!(out, [9]);
        }
        let full = vec![records(&[(1, 2, 3, 1)])[0]; MAX_EVENTS];
        let mut out = Vec::new();
        encode(&full, &mut out).unwrap();
        let mut back = Vec::new();
        decode(&out, &mut back).unwrap();
        assert_eq!(back, full);
        assert!(encode(&[full.as_slice(), &full[..1]].concat(), &mut out).is_err());
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_in_every_packing(
            steps in prop::collection::vec((0u64..40, 0u16..2048, 0u16..4, 0u8..2, any::<bool>()), 0..200),
            start in 0u64..1 << 63,
            jump in any::<u64>(),
        ) {
            let (mut t, mut x) = (start, 0);
            let events: Vec<_> = steps.into_iter().map(|(step, column, y, p, near)| {
                t = if step == 39 { jump >> 1 } else { t.saturating_sub(20).saturating_add(step) >> 1 << 1 };
                t = t.min((1 << 63) - 1);
                x = if near { (x + column % 3).min(2047) } else { column };
                (t, x, y * 600, p)
            }).collect();
            for packing in [Packing::Apart, Packing::XAndP, Packing::All] {
                let mut chunk = Vec::new();
                encode_as(packing, &records(&events), &mut chunk).unwrap();
                prop_assert_eq!(decoded(&chunk).unwrap(), events.clone());
            }
        }

        #[test]
        fn no_bytes_do_harm(mut chunk in prop::collection::vec(any::<u8>(), 0..300), events in 0u32..300, flags in 0u32..4) {
            let mut out = Vec::new();
            let _ = decode(&chunk, &mut out);
            prop_assert!(out.len() <= MAX_EVENTS);
            if chunk.len() >= 4 {
                chunk[..4].copy_from_slice(&(events << 2 | flags).to_le_bytes());
                out.clear();
                if decode(&chunk, &mut out).is_ok() {
                    prop_assert_eq!(out.len(), events as usize);
                }
            }
        }
    }
}
