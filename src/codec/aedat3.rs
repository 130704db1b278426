//! AEDAT 3.1, the recordings of cAER and early DV: <https://docs.inivation.com/software/software-advanced-usage/file-formats/aedat-3.1.html>.
//!
//! Lines that start with `#` up to `#!END-HEADER`, then packets, all little-endian: 28 bytes that say what follows, and
//! that many events of one type. Of interest are those of two types, both of 8 bytes, 4 of data and 4 of time in µs, to which
//! the packet's header adds what is above 31 bits:
//!
//! | type | bit 0 | bits 1.. |
//! |---|---|---|
//! | 1, polarity | valid | 1: ON, 2..16: y from the top, 17..31: x from the left |
//! | 0, special | valid | 1..7: what happened |

use super::{
    Decoder, Error, EventBuffer, Head, MAX_HEAD, Options, Partial, Report, Saved, Trigger, aedat2, prefix,
    record,
};

/// How a file begins.
pub const MAGIC: &[u8] = b"#!AER-DAT3.1\r\n";

const END: &[u8] = b"#!END-HEADER\r\n";

/// The types of packets by their numbers, and what is counted besides.
const TYPES: [&str; 11] = [
    "SPECIAL",
    "POLARITY",
    "FRAME",
    "IMU6",
    "IMU9",
    "SAMPLE",
    "EAR",
    "CONFIG",
    "other types",
    "SPECIAL of other sources",
    "POLARITY of other sources",
];
const OTHER: usize = 8;
const OTHER_SOURCE: usize = 9;

/// The numbers that the format gives to types, below those that are free to be used by anybody.
const KNOWN: std::ops::Range<i16> = 0..16;
const FREE: i16 = 100;

/// Decodes the packets of an AEDAT 3.1 file.
#[derive(Clone)]
pub struct Aedat3Decoder {
    /// The source whose events are decoded; all, if the header does not name several.
    source: Option<i16>,
    options: Options,
    /// The place in the file of the byte that is fed next.
    offset: u64,
    header: Partial<28>,
    packet: Option<Packet>,
    event: Partial<8>,
    /// The time of the event before.
    last: u64,
    overflow: Option<u64>,
    counts: [(u64, u64); TYPES.len()],
    invalid: u64,
    time_wraps: u64,
    backward_steps: u64,
    unknown: u64,
    tail: u64,
}

#[derive(Clone, Copy)]
struct Packet {
    what: Use,
    size: u64,
    left: u64,
    /// The time that the packet's events add theirs to.
    base: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Use {
    Polarity,
    Special,
    Skip,
}

impl Decoder for Aedat3Decoder {
    fn feed(&mut self, mut bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        while !bytes.is_empty() {
            let Some(packet) = &mut self.packet else {
                let before = bytes.len();
                let header = if self.header.len > 0 {
                    self.header.complete(&mut bytes)
                } else if let Some((header, rest)) = bytes.split_first_chunk() {
                    bytes = rest;
                    Some(*header)
                } else {
                    self.header.split(std::mem::take(&mut bytes));
                    None
                };
                self.offset += (before - bytes.len()) as u64;
                if let Some(header) = header {
                    self.start(header)?;
                }
                continue;
            };
            let n = usize::try_from(packet.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (mut body, rest) = bytes.split_at(n);
            bytes = rest;
            packet.left -= n as u64;
            let packet = *packet;
            if packet.left == 0 {
                self.packet = None;
            }
            let mut at = self.offset;
            self.offset += n as u64;
            if packet.what == Use::Skip {
                continue;
            }
            // The first event may have begun in the call before.
            at -= self.event.len as u64;
            if let Some(event) = self.event.complete(&mut body) {
                self.decode(packet, at, &[event], out)?;
                at += 8;
            }
            let events = self.event.split(body);
            self.decode(packet, at, events, out)?;
        }
        Ok(())
    }

    fn finish(&mut self, _out: &mut EventBuffer) -> Result<(), Error> {
        self.tail = match self.packet {
            None => self.header.len as u64,
            // Events that are whole were decoded.
            Some(packet) if packet.what != Use::Skip => self.event.len as u64,
            Some(packet) => 28 + packet.size - packet.left,
        };
        if self.options.strict && (self.tail > 0 || self.packet.is_some()) {
            let at = self.offset - self.tail;
            let what = format!("the file breaks off in a packet, at byte {at} of the file");
            return Err(Error::Malformed(what));
        }
        Ok(())
    }

    fn report(&self) -> Report {
        let mut report = Report {
            time_wraps: self.time_wraps,
            backward_steps: self.backward_steps,
            unknown: self.unknown,
            truncated_tail: self.tail,
            ..Report::default()
        };
        for (name, (count, bytes)) in TYPES.into_iter().zip(self.counts) {
            report.note_words(name, count, bytes);
        }
        report.note_dropped("marked as invalid in the file", self.invalid);
        report
    }

    fn word(&self) -> usize {
        0
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn save(&self) -> Option<Saved> {
        let again = (self.header.len + self.event.len) as u64;
        let (what, size, left, base) = match self.packet {
            None => (3, 0, 0, 0),
            Some(packet) => {
                (packet.what as u64, packet.size, packet.left + self.event.len as u64, packet.base)
            }
        };
        let numbers = [self.offset - again, self.last, what, size, left, base];
        Some(Saved { state: numbers.map(u64::to_le_bytes).as_flattened().to_vec(), again })
    }

    fn load(&mut self, state: &[u8]) -> bool {
        let (&[offset, last, what, size, left, base], []) = state.as_chunks() else { return false };
        let [offset, last, what, size, left, base] =
            [offset, last, what, size, left, base].map(u64::from_le_bytes);
        if [offset, size, base].iter().any(|&number| number >= 1 << 62) || left > size {
            return false;
        }
        (self.offset, self.last) = (offset, last);
        let what = match what {
            0 if left % 8 == 0 => Use::Polarity,
            1 if left % 8 == 0 => Use::Special,
            2 => Use::Skip,
            3 => return true,
            _ => return false,
        };
        self.packet = Some(Packet { what, size, left, base });
        left > 0
    }
}

impl Aedat3Decoder {
    /// Takes a packet's header.
    fn start(&mut self, header: [u8; 28]) -> Result<(), Error> {
        let at = self.offset - 28;
        let short = |i: usize| i16::from_le_bytes([header[i], header[i + 1]]);
        let long = |i: usize| i32::from_le_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]);
        let (kind, source, size, place, overflow, number) =
            (short(0), short(2), long(4), long(8), long(12), long(20));
        let fail =
            |what: String| Err(Error::Malformed(format!("the packet at byte {at} of the file has {what}")));
        let (Ok(kind_index), Ok(event_size @ 1..), Ok(overflow), Ok(number)) =
            (usize::try_from(kind), u64::try_from(size), u64::try_from(overflow), u64::try_from(number))
        else {
            return fail(format!(
                "the type {kind}, {number} events of {size} bytes, the overflow {overflow}, of which none can be negative"
            ));
        };
        let mut what = match kind {
            0 => Use::Special,
            1 => Use::Polarity,
            _ => Use::Skip,
        };
        if what != Use::Skip && (size, place) != (8, 4) {
            let name = TYPES[kind_index];
            return fail(format!(
                "{name} events of {size} bytes with the time at {place}, where it should be 8 and 4"
            ));
        }
        let mut index = kind_index.min(OTHER);
        if what != Use::Skip && self.source.is_some_and(|wanted| wanted != source) {
            index += OTHER_SOURCE;
            what = Use::Skip;
        }
        if !KNOWN.contains(&kind) && kind < FREE {
            if self.options.strict {
                return fail(format!("the unknown type {kind}"));
            }
            self.unknown += 1;
        }
        if what == Use::Polarity {
            self.time_wraps += overflow.saturating_sub(self.overflow.unwrap_or(overflow));
            self.overflow = Some(overflow);
        }
        if what == Use::Special && !self.options.triggers {
            what = Use::Skip;
        }
        let size = event_size * number;
        self.counts[index].0 += 1;
        self.counts[index].1 += 28 + size;
        if size > 0 {
            self.packet = Some(Packet { what, size, left: size, base: overflow << 31 });
        }
        Ok(())
    }

    /// The events of a packet, the first of which is at the byte `at` of the file.
    fn decode(
        &mut self,
        packet: Packet,
        at: u64,
        events: &[[u8; 8]],
        out: &mut EventBuffer,
    ) -> Result<(), Error> {
        let mut triggers = std::mem::take(&mut out.triggers);
        let rows = if packet.what == Use::Polarity { out.room(events.len()) } else { &mut [] };
        let mut kept = 0;
        let mut fault = None;
        for (i, event) in events.iter().enumerate() {
            let event = u64::from_le_bytes(*event);
            let (data, time) = (event as u32, (event >> 32) as u32);
            if time >> 31 == 1 {
                fault = Some((i, format!("an event's t is {}", time as i32)));
                break;
            }
            if data & 1 == 0 {
                self.invalid += u64::from(packet.what == Use::Polarity);
                continue;
            }
            let t = packet.base + u64::from(time);
            if packet.what == Use::Special {
                if let Some((id, p)) = edge(data >> 1 & 0x7f) {
                    triggers.push(Trigger { t, id, p });
                }
                continue;
            }
            if t < self.last {
                if self.options.strict {
                    fault = Some((i, "an event's time is below that of the event before it".into()));
                    break;
                }
                self.backward_steps += 1;
            }
            self.last = t;
            rows[kept] = record(t, data >> 17 | (data >> 2 & 0x7fff) << 16, (data >> 1 & 1) as u8);
            kept += 1;
        }
        if packet.what == Use::Polarity {
            out.keep(kept);
        }
        out.triggers = triggers;
        match fault {
            None => Ok(()),
            Some((i, what)) => {
                Err(Error::Malformed(format!("{what}, at byte {} of the file", at + 8 * i as u64)))
            }
        }
    }
}

/// The input and the edge that a special event of that type is about: the inputs are 0, 1, 2, the signal generator is 3.
fn edge(kind: u32) -> Option<(u16, u8)> {
    Some(match kind {
        2 | 4 => (0, 1),
        3 => (0, 0),
        6 | 8 => (1, 1),
        7 => (1, 0),
        9 | 11 => (2, 1),
        10 => (2, 0),
        12 => (3, 1),
        13 => (3, 0),
        _ => return None,
    })
}

/// Reads the header of a file that starts with `bytes`; `None` when more of it is needed.
///
/// # Errors
/// [`Error::Header`] for a header that cannot be used.
pub fn head(bytes: &[u8], at_end: bool, options: Options) -> Result<Option<Head>, Error> {
    match prefix(MAGIC, bytes, at_end) {
        None => return Ok(None),
        Some(false) => {
            return Err(Error::Header("not an AEDAT 3.1 file: it does not begin with #!AER-DAT3.1".into()));
        }
        Some(true) => {}
    }
    let mut length = MAGIC.len();
    let mut sources = Vec::new();
    loop {
        let Some(newline) = bytes[length..].iter().position(|&b| b == b'\n') else {
            if at_end || bytes.len() >= MAX_HEAD {
                return Err(Error::Header(
                    "the AEDAT 3.1 header does not end: there is no line #!END-HEADER".into(),
                ));
            }
            return Ok(None);
        };
        let line = &bytes[length..=length + newline];
        length += line.len();
        if line == END {
            break;
        }
        let line = String::from_utf8_lossy(line);
        let line = line.trim_ascii();
        let Some(line) = line.strip_prefix('#') else {
            let line: String = line.chars().take(40).collect();
            return Err(Error::Header(format!(
                "the AEDAT 3.1 header has a line that does not start with #: {line:?}"
            )));
        };
        if let Some(format) = line.strip_prefix("Format:").map(str::trim_ascii)
            && format != "RAW"
        {
            let format: String = format.chars().take(40).collect();
            return Err(Error::Header(format!("the AEDAT 3.1 format {format:?} is not supported; RAW is")));
        }
        if let Some((id, name)) = line.strip_prefix("Source ").and_then(|line| line.split_once(':'))
            && let Ok(id) = id.trim_ascii().parse::<i16>()
        {
            sources.push((id, aedat2::sensor(name.trim_ascii())));
        }
    }
    let decoder = Aedat3Decoder {
        source: if sources.len() > 1 { Some(sources[0].0) } else { None },
        options,
        offset: length as u64,
        header: Partial::default(),
        packet: None,
        event: Partial::default(),
        last: 0,
        overflow: None,
        counts: Default::default(),
        invalid: 0,
        time_wraps: 0,
        backward_steps: 0,
        unknown: 0,
        tail: 0,
    };
    let geometry = sources.first().and_then(|source| source.1);
    Ok(Some(Head { format: "AEDAT 3.1", geometry, length, decoder: Box::new(decoder) }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::testing::{Decoded, decode_file};

    fn decoded(file: &[u8], sizes: &[usize], strict: bool) -> Decoded {
        let options = Options { strict, triggers: true, ..Options::default() };
        decode_file(head(file, true, options).unwrap().unwrap(), file, sizes)
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            packets in prop::collection::vec((
                prop_oneof![Just(0_i16), Just(1), Just(1), Just(3), Just(40)], 0_i16..3, 0_i32..3,
                prop::collection::vec(any::<(u32, u16)>(), 0..9),
            ), 0..9),
            tail in prop::collection::vec(any::<u8>(), 0..40), sizes in prop::collection::vec(1_usize..40, 1..20),
            strict in any::<bool>(), two in any::<bool>(),
        ) {
            let mut file = MAGIC.to_vec();
            file.extend(b"#Source 1: DVS128\r\n");
            if two {
                file.extend(b"#Source 2: DVS128\r\n");
            }
            file.extend(END);
            for (kind, source, overflow, events) in packets {
                let n = events.len() as i32;
                file.extend([kind, source].map(i16::to_le_bytes).as_flattened());
                file.extend([8, 4, overflow, n, n, n].map(i32::to_le_bytes).as_flattened());
                for (data, t) in events {
                    file.extend([data, t.into()].map(u32::to_le_bytes).as_flattened());
                }
            }
            file.extend(tail);
            prop_assert_eq!(decoded(&file, &sizes, strict), decoded(&file, &[usize::MAX], strict));
        }
    }
}
