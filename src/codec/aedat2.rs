//! AEDAT 2.0, the recordings of jAER: <https://docs.inivation.com/software/software-advanced-usage/file-formats/aedat-2.0.html>.
//!
//! Lines that start with `#`, then pairs of big-endian numbers of 32 bits, an address and a time in µs. What an address means is
//! up to the chip, whose class in jAER the header names:
//!
//! | chip | bits |
//! |---|---|
//! | DVS128 | 0: OFF, 1..7: x, 8..14: y, 15 or 31: an external event |
//! | DAVIS | 10: an external event, 11: ON, 12..21: x, 22..30: y, 31: no event: a sample of the frame or of the IMU |
//!
//! As jAER draws them, x counts from the right, and y from the bottom; a record counts them from the left and the top.

use super::{
    Decoder, Error, EventBuffer, Head, MAX_HEAD, Options, Partial, Report, Saved, Trigger, prefix, record,
};

/// How a file begins.
pub const MAGIC: &[u8] = b"#!AER-DAT2.0";

/// The bits of an address.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    Dvs128,
    Davis,
}

/// The least fall of the 32 bits of time that is an overflow: 15/16 of the range. Others are steps back.
const OVERFLOW: u32 = 15 << 28;

/// Decodes the pairs of an AEDAT 2.0 file.
#[derive(Clone)]
pub struct Aedat2Decoder {
    layout: Layout,
    sensor: (u32, u32),
    triggers: bool,
    partial: Partial<8>,
    /// The last time, and what the overflows so far add up to.
    clock: Option<u32>,
    epoch: u64,
    /// The time of the event before.
    last: u64,
    counts: [u64; WORDS.len()],
    outside: u64,
    backward_steps: u64,
    finished: bool,
}

const WORDS: [&str; 4] = ["DVS", "EXTERNAL", "APS", "IMU"];
const DVS: usize = 0;
const EXTERNAL: usize = 1;

impl Aedat2Decoder {
    fn decode(&mut self, pairs: &[[u8; 8]], out: &mut EventBuffer) {
        let mut kept = 0;
        let (width, height) = self.sensor;
        let mut triggers = std::mem::take(&mut out.triggers);
        let rows = out.room(pairs.len());
        for pair in pairs {
            let pair = u64::from_be_bytes(*pair);
            let (address, time) = ((pair >> 32) as u32, pair as u32);
            if self.clock.is_some_and(|before| before.saturating_sub(time) >= OVERFLOW) {
                self.epoch += 1 << 32;
            }
            self.clock = Some(time);
            let t = self.epoch + u64::from(time);
            let (kind, x, y, p) = match self.layout {
                Layout::Dvs128 => {
                    let kind = if address & 0x8000_8000 == 0 { DVS } else { EXTERNAL };
                    (kind, address >> 1 & 0x7f, address >> 8 & 0x7f, !address & 1)
                }
                Layout::Davis => {
                    let kind = match (address >> 31, address >> 10 & 3) {
                        (0, 0 | 2) => DVS,
                        (0, _) => EXTERNAL,
                        (_, 3) => 3,
                        _ => 2,
                    };
                    (kind, address >> 12 & 0x3ff, address >> 22 & 0x1ff, address >> 11 & 1)
                }
            };
            self.counts[kind] += 1;
            if kind == EXTERNAL && self.triggers {
                triggers.push(Trigger { t, id: 0, p: 1 });
            }
            if kind != DVS {
                continue;
            }
            if x >= width || y >= height {
                self.outside += 1;
                continue;
            }
            self.backward_steps += u64::from(t < self.last);
            self.last = t;
            rows[kept] = record(t, (width - 1 - x) | (height - 1 - y) << 16, p as u8);
            kept += 1;
        }
        out.keep(kept);
        out.triggers = triggers;
    }
}

impl Decoder for Aedat2Decoder {
    fn feed(&mut self, mut bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        if let Some(pair) = self.partial.complete(&mut bytes) {
            self.decode(&[pair], out);
        }
        let pairs = self.partial.split(bytes);
        self.decode(pairs, out);
        Ok(())
    }

    fn finish(&mut self, _out: &mut EventBuffer) -> Result<(), Error> {
        self.finished = true;
        Ok(())
    }

    fn report(&self) -> Report {
        let mut report = Report {
            time_wraps: self.epoch >> 32,
            backward_steps: self.backward_steps,
            truncated_tail: if self.finished { self.partial.len as u64 } else { 0 },
            ..Report::default()
        };
        for (name, count) in WORDS.into_iter().zip(self.counts) {
            report.note_words(name, count, 8 * count);
        }
        report.note_dropped("outside of the chip", self.outside);
        report
    }

    fn faults(&self) -> u64 {
        self.outside + self.backward_steps
    }

    fn word(&self) -> usize {
        8
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn save(&self) -> Option<Saved> {
        let clock = self.clock.map_or(u64::MAX, u64::from);
        let numbers = [clock, self.epoch, self.last];
        let state = numbers.map(u64::to_le_bytes).as_flattened().to_vec();
        Some(Saved { state, again: self.partial.len as u64 })
    }

    fn load(&mut self, state: &[u8]) -> bool {
        let (&[clock, epoch, last], []) = state.as_chunks() else { return false };
        let [clock, epoch, last] = [clock, epoch, last].map(u64::from_le_bytes);
        (self.clock, self.epoch, self.last) = (u32::try_from(clock).ok(), epoch, last);
        self.epoch < 1 << 62 && (self.clock.is_some() || clock == u64::MAX)
    }
}

/// The size of a chip's sensor, by a name that starts with one of these, whatever the case and what is between letters.
pub fn sensor(name: &str) -> Option<(u32, u32)> {
    const SIZES: [(&str, (u32, u32)); 14] = [
        ("DVS128", (128, 128)),
        ("TMPDIFF128", (128, 128)),
        ("EDVS", (128, 128)),
        ("DAVIS128", (128, 128)),
        ("DAVIS208", (208, 192)),
        ("DAVIS240", (240, 180)),
        ("SBRET10", (240, 180)),
        ("SBRET20", (240, 180)),
        ("DAVIS346", (346, 260)),
        ("DAVIS640", (640, 480)),
        ("DVS132S", (132, 104)),
        ("DVXPLORERLITE", (320, 240)),
        ("DVXPLORERMINI", (640, 480)),
        ("DVXPLORER", (640, 480)),
    ];
    let name: String =
        name.chars().filter(char::is_ascii_alphanumeric).take(40).map(|c| c.to_ascii_uppercase()).collect();
    SIZES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|&(_, size)| size)
}

/// Reads the header of a file that starts with `bytes`; `None` when more of it is needed.
///
/// A file that names no chip is taken for a DVS128's, and has no geometry then, for its user to confirm.
///
/// # Errors
/// [`Error::Header`] for a header that cannot be used.
pub fn head(bytes: &[u8], at_end: bool, options: Options) -> Result<Option<Head>, Error> {
    match prefix(MAGIC, bytes, at_end) {
        None => return Ok(None),
        Some(false) => {
            return Err(Error::Header("not an AEDAT 2.0 file: it does not begin with #!AER-DAT2.0".into()));
        }
        Some(true) => {}
    }
    let mut length = 0;
    let (mut chip, mut interface) = (None, None);
    loop {
        let rest = &bytes[length..];
        // Pairs may begin with a # as well, but they are not text.
        let end = rest.iter().position(|&b| b != b'\t' && b != b'\r' && (b < b' ' || b == 127));
        match (rest.first(), end) {
            (None, _) if !at_end => return Ok(None),
            (Some(b'#'), None) if !at_end && bytes.len() < MAX_HEAD => return Ok(None),
            (Some(b'#'), Some(end)) if rest[end] == b'\n' => {
                let line = String::from_utf8_lossy(&rest[1..end]);
                let line = line.trim_ascii();
                length += end + 1;
                let value = |key: &str| line.strip_prefix(key).map(|value| value.trim_ascii().to_owned());
                chip = chip.or_else(|| value("AEChip:"));
                interface = interface.or_else(|| value("HardwareInterface:"));
                if line == "End Of ASCII Header" {
                    break;
                }
            }
            _ => break,
        }
    }
    // A class has its package before it; an interface is named as its device.
    let class = chip.as_deref().map(|chip| chip.rsplit('.').next().unwrap_or(chip));
    let name = class.or(interface.as_deref());
    let (layout, sensor, geometry) = match name {
        None => (Layout::Dvs128, (128, 128), None),
        Some(name) => {
            let size = sensor(name);
            let upper = name.to_ascii_uppercase();
            let layout = if ["DAVIS", "SBRET"].iter().any(|start| upper.starts_with(start)) {
                Layout::Davis
            } else {
                Layout::Dvs128
            };
            match size {
                Some(size) if layout == Layout::Davis || size == (128, 128) => (layout, size, Some(size)),
                // An interface says little; a class that is not known has addresses that are not known.
                _ if class.is_none() => (Layout::Dvs128, (128, 128), None),
                _ => {
                    let name: String = name.chars().take(60).collect();
                    return Err(Error::Header(format!(
                        "the AEDAT 2.0 chip {name:?} is not supported; supported are DVS128 and DAVIS 128, 208, 240, 346 and 640"
                    )));
                }
            }
        }
    };
    let decoder = Aedat2Decoder {
        layout,
        sensor,
        triggers: options.triggers,
        partial: Partial::default(),
        clock: None,
        epoch: 0,
        last: 0,
        counts: Default::default(),
        outside: 0,
        backward_steps: 0,
        finished: false,
    };
    Ok(Some(Head { format: "AEDAT 2.0", geometry, length, decoder: Box::new(decoder) }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::testing::{Decoded, decode_file};

    fn decoded(file: &[u8], sizes: &[usize]) -> Decoded {
        let options = Options { triggers: true, ..Options::default() };
        decode_file(head(file, true, options).unwrap().unwrap(), file, sizes)
    }

    #[test]
    fn the_clock_goes_on_beyond_32_bits() {
        let mut file = b"#!AER-DAT2.0\r\n# AEChip: DVS128\r\n".to_vec();
        for t in [u32::MAX, 4, 3] {
            file.extend([0, t].map(u32::to_be_bytes).as_flattened());
        }
        let times: Vec<_> = decoded(&file, &[9]).events.iter().map(|event| event.t).collect();
        assert_eq!(times, [(1 << 32) - 1, (1 << 32) + 4, (1 << 32) + 3]);
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            davis in any::<bool>(), body in prop::collection::vec(any::<u8>(), 0..300),
            sizes in prop::collection::vec(1_usize..40, 1..20),
        ) {
            let mut file = b"#!AER-DAT2.0\r\n".to_vec();
            file.extend(if davis { &b"# AEChip: a.DAVIS240C\r\n"[..] } else { b"# AEChip: DVS128\r\n" });
            file.extend(b"#End Of ASCII Header\r\n");
            file.extend(body);
            let whole = decoded(&file, &[usize::MAX]);
            prop_assert_eq!(&whole.end, &Ok(()));
            prop_assert_eq!(decoded(&file, &sizes), whole);
        }
    }
}
