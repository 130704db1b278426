//! Event Stream 2.0, <https://github.com/neuromorphic-paris/event_stream>: an event is 5 bytes, its time the distance
//! from the event before.
//!
//! | where | what |
//! |---|---|
//! | 15 bytes | `Event Stream` and the version's three numbers |
//! | 1 byte | the type: 0 generic, 1 DVS, 2 ATIS, 3 display, 4 color |
//! | 2 and 2 bytes | width and height |
//! | 0xFF (DVS), 0xFD to 0xFF (ATIS) | 127 µs pass (DVS), or 1 to 3 times 63 µs |
//! | 0xFE (DVS), 0xFC (ATIS) | reset: nothing, five of which bring a reader that lost its place back |
//! | 5 bytes | 7 bits of time and the polarity (DVS), or 6, the polarity and what it is (ATIS); x and y, 16 bits each |
//!
//! In an ATIS file, an event is a change detection or a threshold crossing: half an exposure measurement, which is not
//! ours to yield. Rows are counted from the bottom.

use super::{
    Decoder, Encoder, Error, Event, EventBuffer, Head, Partial, Record, Report, Saved, record, unencodable,
};

/// What a file begins with.
pub const MAGIC: &[u8] = b"Event Stream";

const TYPES: [&str; 5] = ["generic", "DVS", "ATIS", "display", "color"];

/// The bytes of a head with a geometry.
const HEAD: usize = 20;

/// Reads the head off `bytes`, the start of a file; `None` when more of it is needed.
///
/// # Errors
/// [`Error::Header`] for a head that cannot be used.
pub fn head(bytes: &[u8], at_end: bool) -> Result<Option<Head>, Error> {
    let refuse = |what: String| Err(Error::Header(what));
    let seen = MAGIC.len().min(bytes.len());
    if bytes[..seen] != MAGIC[..seen] || (at_end && seen < MAGIC.len()) {
        return refuse("not an Event Stream file: it does not start with 'Event Stream'".into());
    }
    if let Some(&[major, minor, patch]) = bytes.get(12..15).and_then(|bytes| bytes.first_chunk())
        && (major, minor) != (2, 0)
    {
        return refuse(format!("the Event Stream file states version {major}.{minor}.{patch}; 2.0 is read"));
    }
    match bytes.get(15) {
        None | Some(1 | 2) => {}
        Some(&kind) => {
            let name = TYPES.get(usize::from(kind)).copied().unwrap_or("unknown");
            return refuse(format!(
                "the Event Stream file holds {name} events (type {kind}); DVS and ATIS events are read"
            ));
        }
    }
    let Some(head) = bytes.first_chunk::<HEAD>() else {
        return if at_end { refuse("the Event Stream file ends in its head".into()) } else { Ok(None) };
    };
    let side = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let (width, height) = (side(16), side(18));
    if width == 0 || height == 0 {
        return refuse(format!("the Event Stream file states a sensor of {width}x{height}"));
    }
    let atis = head[15] == 2;
    Ok(Some(Head {
        format: if atis { "Event Stream 2.0 ATIS" } else { "Event Stream 2.0 DVS" },
        geometry: Some((width.into(), height.into())),
        length: HEAD,
        decoder: if atis {
            Box::new(EsDecoder::<true>::new(height))
        } else {
            Box::new(EsDecoder::<false>::new(height))
        },
    }))
}

/// Decodes Event Stream: `ATIS` or DVS.
#[derive(Clone)]
pub struct EsDecoder<const ATIS: bool> {
    height: u16,
    partial: Partial<5>,
    t: u64,
    events: u64,
    crossings: u64,
    overflows: u64,
    resets: u64,
    truncated_tail: u64,
}

/// Events that are looked at together.
const GROUP: usize = 8;

impl<const ATIS: bool> EsDecoder<ATIS> {
    /// First bytes from here on are no event.
    const CONTROL: u8 = if ATIS { 0xfc } else { 0xfe };

    /// A decoder at the first event.
    pub fn new(height: u16) -> Self {
        EsDecoder {
            height,
            partial: Partial::default(),
            t: 0,
            events: 0,
            crossings: 0,
            overflows: 0,
            resets: 0,
            truncated_tail: 0,
        }
    }

    /// Writes an event and moves the time on. Returns whether it is a change detection, as 1 or 0.
    #[inline(always)]
    fn event(t: &mut u64, last_row: u16, bytes: &[u8; 5], row: &mut Record) -> usize {
        let &[first, x0, x1, y0, y1] = bytes;
        *t = t.wrapping_add(u64::from(first >> if ATIS { 2 } else { 1 }));
        // What is beyond the sensor stays beyond it, at either end.
        let y = last_row.wrapping_sub(u16::from_le_bytes([y0, y1]));
        let xy = u32::from(u16::from_le_bytes([x0, x1])) | u32::from(y) << 16;
        *row = record(*t, xy, if ATIS { first >> 1 & 1 } else { first & 1 });
        usize::from(!ATIS || first & 1 == 0)
    }

    fn control(&mut self, byte: u8) {
        let units = if ATIS { byte & 3 } else { byte & 1 };
        self.t = self.t.wrapping_add(u64::from(units) * if ATIS { 63 } else { 127 });
        self.overflows += u64::from(units > 0);
        self.resets += u64::from(units == 0);
    }

    /// Decodes the bytes behind a whole event; returns those that are part of one.
    fn decode<'a>(&mut self, mut bytes: &'a [u8], out: &mut EventBuffer) -> &'a [u8] {
        // A group is written whole before it is known what is kept of it.
        let rows = out.room(bytes.len() / 5);
        let last_row = self.height - 1;
        let (mut kept, mut events) = (0, 0);
        let left = loop {
            let mut t = self.t;
            while let Some(group) = bytes.first_chunk::<{ 5 * GROUP }>() {
                let (group, _) = group.as_chunks::<5>();
                let mut all = true;
                for event in group {
                    all &= event[0] < Self::CONTROL;
                }
                if !all {
                    break;
                }
                if ATIS {
                    for event in group {
                        kept += Self::event(&mut t, last_row, event, &mut rows[kept]);
                    }
                } else {
                    for (event, row) in group.iter().zip(&mut rows[kept..kept + GROUP]) {
                        Self::event(&mut t, last_row, event, row);
                    }
                    kept += GROUP;
                }
                events += GROUP;
                bytes = &bytes[5 * GROUP..];
            }
            self.t = t;
            match bytes {
                [byte, rest @ ..] if *byte >= Self::CONTROL => {
                    self.control(*byte);
                    bytes = rest;
                }
                _ => {
                    let Some((event, rest)) = bytes.split_first_chunk::<5>() else {
                        break bytes;
                    };
                    kept += Self::event(&mut self.t, last_row, event, &mut rows[kept]);
                    events += 1;
                    bytes = rest;
                }
            }
        };
        out.keep(kept);
        self.events += kept as u64;
        self.crossings += (events - kept) as u64;
        left
    }
}

impl<const ATIS: bool> Decoder for EsDecoder<ATIS> {
    fn feed(&mut self, mut bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        if let Some(event) = self.partial.complete(&mut bytes) {
            self.decode(&event, out);
        }
        if !bytes.is_empty() {
            let left = self.decode(bytes, out);
            self.partial.split(left);
        }
        Ok(())
    }

    fn finish(&mut self, _out: &mut EventBuffer) -> Result<(), Error> {
        self.truncated_tail = self.partial.len as u64;
        Ok(())
    }

    fn report(&self) -> Report {
        let mut report = Report { truncated_tail: self.truncated_tail, ..Report::default() };
        report.note_words(if ATIS { "ATIS change detection" } else { "DVS" }, self.events, self.events * 5);
        report.note_words("ATIS threshold crossing", self.crossings, self.crossings * 5);
        report.note_words("overflow", self.overflows, self.overflows);
        report.note_words("reset", self.resets, self.resets);
        report
    }

    fn faults(&self) -> u64 {
        u64::from(self.truncated_tail > 0)
    }

    fn word(&self) -> usize {
        1
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn save(&self) -> Option<Saved> {
        Some(Saved { state: self.t.to_le_bytes().to_vec(), again: self.partial.len as u64 })
    }

    fn load(&mut self, state: &[u8]) -> bool {
        state.try_into().map(|t| self.t = u64::from_le_bytes(t)).is_ok()
    }
}

/// The most time without an event that is written, as it takes a byte for every 127 µs: 68 MB.
const MAX_GAP: u64 = 1 << 33;

/// Encodes Event Stream, as DVS.
pub struct EsEncoder {
    width: u16,
    height: u16,
    t: u64,
}

impl EsEncoder {
    /// An encoder for a sensor of that size.
    ///
    /// # Errors
    /// [`Error::Header`]: the format cannot hold such a sensor.
    pub fn new((width, height): (u32, u32)) -> Result<Self, Error> {
        let side = |side: u32| u16::try_from(side).ok().filter(|&side| side > 0);
        match (side(width), side(height)) {
            (Some(width), Some(height)) => Ok(EsEncoder { width, height, t: 0 }),
            _ => Err(Error::Header(format!(
                "sensor_size is {width}x{height}; Event Stream holds sensors up to 65535x65535"
            ))),
        }
    }

    fn check(&self, index: usize, t: u64, event: &Event) -> Result<(), Error> {
        let refuse = |field, value: u64, expected: &str| {
            Err(unencodable(index, field, value, "Event Stream", expected))
        };
        let Event { x, y, p, .. } = *event;
        if x >= self.width || y >= self.height {
            let (field, value) = if x >= self.width { ("x", x) } else { ("y", y) };
            refuse(field, value.into(), &format!("events of its sensor, {}x{}", self.width, self.height))
        } else if p > 1 {
            refuse("p", p.into(), "0 and 1")
        } else if event.t < t {
            refuse("t", event.t, &format!("no step back in time, and the event before is at {t}"))
        } else if event.t - t > MAX_GAP {
            let expected = format!(
                "a byte for every 127 us, and the event before is at {t} (the first counts from 0): subtract an offset"
            );
            refuse("t", event.t, &expected)
        } else {
            Ok(())
        }
    }
}

impl Encoder for EsEncoder {
    fn start(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[2, 0, 0, 1]);
        out.extend_from_slice(&self.width.to_le_bytes());
        out.extend_from_slice(&self.height.to_le_bytes());
    }

    fn encode(&mut self, events: &[Record], out: &mut Vec<u8>) -> Result<(), Error> {
        let (mut t, mut bytes) = (self.t, 0usize);
        for (index, event) in events.iter().enumerate() {
            let event = Event::from_record(event);
            self.check(index, t, &event)?;
            bytes = bytes.saturating_add(5 + ((event.t - t) / 127) as usize);
            t = event.t;
        }
        out.try_reserve(bytes).map_err(|_| Error::OutOfMemory { events: events.len() })?;
        for event in events {
            let event = Event::from_record(event);
            let gap = event.t - self.t;
            out.resize(out.len() + (gap / 127) as usize, 0xff);
            out.push(((gap % 127) as u8) << 1 | event.p);
            out.extend_from_slice(&event.x.to_le_bytes());
            out.extend_from_slice(&(self.height - 1 - event.y).to_le_bytes());
            self.t = event.t;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::testing;

    /// One byte at a time, after the format's page.
    fn naive(file: &[u8], atis: bool, height: i64) -> Vec<Event> {
        let (mut t, mut events, mut at) = (0u64, Vec::new(), 0);
        while at < file.len() {
            let byte = u64::from(file[at]);
            if !atis && byte >= 254 {
                t += if byte == 255 { 127 } else { 0 };
                at += 1;
            } else if atis && byte >= 252 {
                t += 63 * (byte - 252);
                at += 1;
            } else if at + 5 <= file.len() {
                t += if atis { byte / 4 } else { byte / 2 };
                let word = |i: usize| i64::from(file[at + i]) + 256 * i64::from(file[at + i + 1]);
                let event = Event {
                    t,
                    x: word(1) as u16,
                    y: (height - 1 - word(3)).rem_euclid(65536) as u16,
                    p: (if atis { byte / 2 % 2 } else { byte % 2 }) as u8,
                };
                if !atis || byte % 2 == 0 {
                    events.push(event);
                }
                at += 5;
            } else {
                break;
            }
        }
        events
    }

    #[test]
    fn a_row_beyond_the_sensor_stays_beyond_it() {
        for height in [1u16, 240, 65535] {
            for stored in [0, 1, 239, 240, 241, 65534, 65535] {
                let [y0, y1] = u16::to_le_bytes(stored);
                let file = [0, 0, 0, y0, y1];
                let (events, _) = testing::decode(EsDecoder::<false>::new(height), &file, &[9]);
                assert_eq!(events[0].y < height, stored < height);
            }
        }
    }

    #[test]
    fn the_report_counts_every_byte() {
        let mut decoder = EsDecoder::<true>::new(9);
        let file = [0xfc, 0xfd, 0xff, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0xfe, 4, 0];
        let mut out = EventBuffer::new();
        decoder.feed(&file, &mut out).unwrap();
        assert_eq!(decoder.faults(), 0);
        decoder.finish(&mut out).unwrap();
        let report = decoder.report();
        let words: Vec<_> = report.words.iter().map(|words| (words.name, words.count, words.bytes)).collect();
        let expected = [
            ("ATIS change detection", 1, 5),
            ("ATIS threshold crossing", 1, 5),
            ("overflow", 3, 3),
            ("reset", 1, 1),
        ];
        assert_eq!(words, expected);
        assert_eq!((report.truncated_tail, decoder.faults(), report.faults()), (2, 1, 1));
        assert_eq!(Event::from_record(&out.records()[0]), Event { t: 4 * 63, x: 0, y: 8, p: 1 });
    }

    #[test]
    fn heads_cut_anywhere_and_heads_that_cannot_be_used() {
        let good = b"Event Stream\x02\x00\x01\x01\x40\x01\xf0\x00".as_slice();
        for n in 0..good.len() {
            assert!(matches!(head(&good[..n], false), Ok(None)), "{n}");
            assert!(matches!(head(&good[..n], true), Err(Error::Header(_))), "{n}");
        }
        let found = head(good, false).unwrap().unwrap();
        assert_eq!((found.format, found.geometry), ("Event Stream 2.0 DVS", Some((320, 240))));
        for (at, byte, message) in [
            (0, b'e', "does not start"),
            (12, 1, "version 1.0.1"),
            (13, 1, "version 2.1.1"),
            (15, 0, "generic"),
            (15, 4, "color"),
            (15, 9, "unknown events (type 9)"),
            (18, 0, "320x0"),
        ] {
            let mut bad = good.to_vec();
            bad[at] = byte;
            let error = head(&bad, false).err().unwrap().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    proptest! {
        #[test]
        fn decodes_as_one_byte_at_a_time(
            file in prop::collection::vec(
                prop_oneof![3 => Just(0u8), 3 => 0u8..10, 1 => any::<u8>(), 1 => 250u8..=255], 0..400
            ),
            sizes in prop::collection::vec(1usize..90, 1..20),
            height in 1u16..=u16::MAX,
        ) {
            let dvs = testing::decode(EsDecoder::<false>::new(height), &file, &sizes);
            prop_assert_eq!(dvs, (naive(&file, false, height.into()), Ok(())));
            let atis = testing::decode(EsDecoder::<true>::new(height), &file, &sizes);
            prop_assert_eq!(atis, (naive(&file, true, height.into()), Ok(())));
        }

        #[test]
        fn what_is_encoded_comes_back(
            rows in prop::collection::vec(
                (prop_oneof![0u64..3, 0u64..400, Just(127u64), Just(100_000u64)], 0u16..640, 0u16..480, 0u8..2), 0..60
            ),
            cut in 0usize..60,
        ) {
            let mut t = 0;
            let events: Vec<_> = rows.iter().map(|&(step, x, y, p)| { t += step; Event { t, x, y, p } }).collect();
            let records: Vec<_> = events.iter().map(|event| event.to_record()).collect();
            let (front, back) = records.split_at(cut.min(records.len()));
            let (mut encoder, mut file) = (EsEncoder::new((640, 480)).unwrap(), Vec::new());
            encoder.start(&mut file);
            encoder.encode(front, &mut file).unwrap();
            encoder.encode(back, &mut file).unwrap();
            let head = head(&file, true).unwrap().unwrap();
            prop_assert_eq!(head.geometry, Some((640, 480)));
            let decoded = testing::decode(EsDecoder::<false>::new(480), &file[HEAD..], &[usize::MAX]);
            prop_assert_eq!(decoded, (events, Ok(())));
        }
    }

    #[test]
    fn what_cannot_be_held_is_refused_and_leaves_no_trace() {
        let good = Event { t: 5, x: 3, y: 4, p: 1 };
        for (bad, message) in [
            (Event { x: 10, ..good }, "x is 10"),
            (Event { y: 20, ..good }, "y is 20"),
            (Event { p: 2, ..good }, "p is 2"),
            (Event { t: 4, ..good }, "t is 4"),
            (Event { t: 6 + MAX_GAP, ..good }, "subtract an offset"),
            (Event { t: u64::MAX, ..good }, "subtract an offset"),
        ] {
            let (mut encoder, mut out) = (EsEncoder::new((10, 20)).unwrap(), Vec::new());
            let error =
                encoder.encode(&[good.to_record(), bad.to_record()], &mut out).unwrap_err().to_string();
            assert!(error.starts_with("event 1: ") && error.contains(message), "{error}");
            assert!(out.is_empty());
            encoder.encode(&[Event { t: 0, ..good }.to_record()], &mut out).unwrap();
        }
        assert!(EsEncoder::new((65536, 1)).is_err() && EsEncoder::new((1, 0)).is_err());
    }
}
