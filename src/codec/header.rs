//! The text header of a Prophesee RAW file.
//!
//! Lines that start with `%`, of the form `% key value`; `% end` ends them, else the first line
//! without a `%`. See <https://docs.prophesee.ai/stable/data/file_formats/raw.html>.

use super::{Decoder, Error, Evt2Decoder, Evt3Decoder, Evt21Decoder, Head, MAX_HEAD, Options, Order};

/// Bytes behind the header that an EVT 2.1 recording's order is told by, where the header does not state it.
const SAMPLE: usize = 8192;

/// The first `system_ID` of a camera that sends EVT 2.1 words lowest byte first. Those before it swap the
/// halves (OpenEB, `psee_raw_file_header.cpp`).
const FIRST_LITTLE: u32 = 0x37;

/// The encodings a header may state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// EVT 2.0, words of 32 bits.
    Evt2,
    /// EVT 2.1, words of 64 bits.
    Evt21,
    /// EVT 3.0, words of 16 bits.
    Evt3,
}

impl Version {
    const ALL: [Version; 3] = [Version::Evt2, Version::Evt21, Version::Evt3];

    /// How people write it: `EVT 3.0`.
    pub fn name(self) -> &'static str {
        match self {
            Version::Evt2 => "EVT 2.0",
            Version::Evt21 => "EVT 2.1",
            Version::Evt3 => "EVT 3.0",
        }
    }

    /// How an `evt` line writes it: `3.0`.
    fn in_evt_line(self) -> &'static str {
        &self.name()[4..]
    }

    /// How a `format` line writes it: `EVT3`.
    fn in_format_line(self) -> &'static str {
        match self {
            Version::Evt2 => "EVT2",
            Version::Evt21 => "EVT21",
            Version::Evt3 => "EVT3",
        }
    }
}

impl Version {
    /// Whether its words have room for the addresses of such a sensor.
    ///
    /// # Errors
    /// [`Error::Header`]: they have not.
    pub(super) fn check_sensor(self, (width, height): (u32, u32)) -> Result<(), Error> {
        if (1..=2048).contains(&width) && (1..=2048).contains(&height) {
            return Ok(());
        }
        Err(Error::Header(format!(
            "sensor_size is ({width}, {height}); {} holds sensors of up to 2048x2048",
            self.name()
        )))
    }

    /// Appends a header. It has all that decoding needs, for programs that look at `format` and for older
    /// ones, and nothing that is not known, as when and by what camera the events were recorded.
    pub(super) fn write_header(self, (width, height): (u32, u32), out: &mut Vec<u8>) {
        let (evt, format) = (self.in_evt_line(), self.in_format_line());
        let (line, order) = match self {
            Version::Evt21 => ("% endianness little\n", ";endianness=little"),
            _ => ("", ""),
        };
        let header = format!(
            "{line}% evt {evt}\n% format {format}{order};height={height};width={width}\n\
             % geometry {width}x{height}\n% end\n"
        );
        out.extend(header.as_bytes());
    }
}

/// Reads the header off `bytes`, the start of a file; `None` when more of it is needed.
///
/// # Errors
/// [`Error::Header`] for a header that cannot be used.
pub fn head(bytes: &[u8], at_end: bool, options: Options) -> Result<Option<Head>, Error> {
    let mut facts = Facts::default();
    let mut length = 0;
    loop {
        let rest = &bytes[length..];
        match rest.first() {
            None if !at_end => return Ok(None),
            None => break,
            Some(b'%') => {}
            Some(_) => break,
        }
        let line = match rest.iter().position(|&b| b == b'\n') {
            Some(newline) => newline + 1,
            None if at_end => rest.len(),
            None if bytes.len() < MAX_HEAD => return Ok(None),
            None => MAX_HEAD,
        };
        if length + line > MAX_HEAD {
            return Err(Error::Header(format!("the EVT header does not end within {MAX_HEAD} bytes")));
        }
        let more = facts.note(&rest[1..line])?;
        length += line;
        if !more {
            break;
        }
    }
    let version = facts.version()?;
    let decoder: Box<dyn Decoder> = match version {
        Version::Evt2 => Box::new(Evt2Decoder::new(options)),
        Version::Evt3 => Box::new(Evt3Decoder::new(options)),
        Version::Evt21 => {
            let body = &bytes[length..];
            let sampled = at_end || body.len() >= SAMPLE || bytes.len() >= MAX_HEAD;
            let Some(order) = facts.order(body, sampled)? else { return Ok(None) };
            Box::new(Evt21Decoder::new(order, options))
        }
    };
    Ok(Some(Head { format: version.name(), geometry: facts.geometry, length, decoder }))
}

/// Whether one of the `%` lines that a file starts with is of a RAW header: that of the encoding or the camera, or the
/// header's end. A RAW file without any of these is not read.
pub fn names_encoding(bytes: &[u8]) -> bool {
    let lines = bytes.split(|&byte| byte == b'\n').map_while(|line| line.strip_prefix(b"%"));
    lines.map(|line| line.trim_ascii()).any(|line| {
        let key = line.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
        matches!(key, b"evt" | b"format" | b"system_ID") || line == b"end"
    })
}

/// What the lines so far have said.
#[derive(Default)]
struct Facts {
    version: Option<Version>,
    geometry: Option<(u32, u32)>,
    /// What the words of EVT 2.1 have which byte first.
    endianness: Option<String>,
    system_id: Option<u32>,
}

impl Facts {
    /// Notes a line, without its `%`; false when it is the one that ends the header.
    fn note(&mut self, line: &[u8]) -> Result<bool, Error> {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_ascii();
        let (key, value) = line.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((line, ""));
        let value = value.trim_ascii();
        match key {
            "end" if value.is_empty() => return Ok(false),
            "evt" => self.note_version(key, value, Version::in_evt_line)?,
            "format" => {
                let mut parts = value.split(';').map(str::trim_ascii);
                self.note_version(key, parts.next().unwrap_or(""), Version::in_format_line)?;
                let (mut width, mut height) = (None, None);
                for part in parts {
                    match part.split_once('=').map(|(name, number)| (name.trim_ascii(), number.trim_ascii()))
                    {
                        Some(("width", number)) => width = Some(number),
                        Some(("height", number)) => height = Some(number),
                        Some(("endianness", order)) => self.endianness = Some(order.into()),
                        _ => {}
                    }
                }
                match (width, height) {
                    (None, None) => {}
                    (Some(width), Some(height)) => {
                        self.note_geometry(value, number(width).zip(number(height)))?
                    }
                    _ => {
                        return Err(Error::Header(format!(
                            "the EVT header's format line needs both width= and height=, or neither: {}",
                            quote(value)
                        )));
                    }
                }
            }
            "geometry" => {
                let size = value.split_once('x').and_then(|(w, h)| number(w).zip(number(h)));
                self.note_geometry(value, size)?;
            }
            "endianness" if self.endianness.is_none() => self.endianness = Some(value.into()),
            "system_ID" => self.system_id = number(value),
            _ => {}
        }
        Ok(true)
    }

    /// The order of EVT 2.1 words: as stated, else by the start of the `body`, else by the camera. `None`
    /// when more of the body is needed, which is never so once it is `sampled`.
    fn order(&self, body: &[u8], sampled: bool) -> Result<Option<Order>, Error> {
        match self.endianness.as_deref() {
            Some("legacy") => Ok(Some(Order::Halves)),
            Some("little") => Ok(Some(Order::Little)),
            Some(other) => Err(Error::Header(format!(
                "the EVT header states the endianness {}; of EVT 2.1, little and legacy are read",
                quote(other)
            ))),
            None if !sampled => Ok(None),
            None => Ok(Some(Order::guess(body.as_chunks().0).unwrap_or(match self.system_id {
                Some(1..FIRST_LITTLE) => Order::Halves,
                _ => Order::Little,
            }))),
        }
    }

    fn note_version(
        &mut self,
        key: &str,
        value: &str,
        spelling: fn(Version) -> &'static str,
    ) -> Result<(), Error> {
        let Some(version) = Version::ALL.into_iter().find(|&v| spelling(v) == value) else {
            return Err(Error::Header(format!(
                "the EVT header's {key} line states the version {}; known are {}",
                quote(value),
                Version::ALL.map(spelling).join(", ")
            )));
        };
        match self.version.replace(version) {
            Some(before) if before != version => Err(Error::Header(format!(
                "the EVT header states two versions: {} and {}",
                before.name(),
                version.name()
            ))),
            _ => Ok(()),
        }
    }

    fn note_geometry(&mut self, value: &str, size: Option<(u32, u32)>) -> Result<(), Error> {
        let Some((width, height)) = size.filter(|&(width, height)| width > 0 && height > 0) else {
            return Err(Error::Header(format!(
                "the EVT header's geometry must be two positive integers, got {}",
                quote(value)
            )));
        };
        match self.geometry.replace((width, height)) {
            Some((w, h)) if (w, h) != (width, height) => Err(Error::Header(format!(
                "the EVT header states two geometries: {w}x{h} and {width}x{height}"
            ))),
            _ => Ok(()),
        }
    }

    fn version(&self) -> Result<Version, Error> {
        self.version.ok_or_else(|| {
            Error::Header("not an EVT file: it has no '% evt' and no '% format' line at its start".into())
        })
    }
}

/// A number of plain digits.
fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// A value for a message: quoted, escaped and not longer than a message should be.
fn quote(value: &str) -> String {
    let short: String = value.chars().take(60).collect();
    if short.len() < value.len() { format!("{short:?}...") } else { format!("{short:?}") }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::codec::{Family, HeadReader};

    /// A file that hands out at most `step` bytes per read, with a signal before each.
    struct Slow<'a> {
        bytes: &'a [u8],
        step: usize,
        signal: bool,
    }

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            self.signal = !self.signal;
            if self.signal {
                return Err(std::io::ErrorKind::Interrupted.into());
            }
            let n = self.step.min(out.len());
            (&mut self.bytes).take(n as u64).read(out)
        }
    }

    type Said = (&'static str, Option<(u32, u32)>);

    fn read(bytes: &[u8], step: usize) -> Result<(Said, Vec<u8>), Error> {
        let mut reader = HeadReader::new();
        let mut file = Slow { bytes, step, signal: false };
        loop {
            match reader.read(&mut file, Some(Family::Evt), Options::default()) {
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok((head, mut behind)) => {
                    behind.extend_from_slice(file.bytes);
                    return Ok(((head.format, head.geometry), behind));
                }
                Err(error) => return Err(error),
            }
        }
    }

    #[test]
    fn reads_cut_anywhere_give_the_same_header_and_body() {
        let file = b"% date now\n% evt 3.0\r\n%geometry 640x480\n% end\n% body";
        for step in 1..=file.len() {
            let (header, body) = read(file, step).unwrap();
            assert_eq!(header, ("EVT 3.0", Some((640, 480))));
            assert_eq!(body, b"% body");
        }
    }

    #[test]
    fn a_line_without_percent_ends_the_header() {
        let (header, body) = read(b"% evt 2.0\nabc\n% evt 3.0\n", 7).unwrap();
        assert_eq!(header, ("EVT 2.0", None));
        assert_eq!(body, b"abc\n% evt 3.0\n");
    }

    #[test]
    fn the_end_of_the_file_ends_the_header() {
        let (header, body) = read(b"% format EVT3;height=7;width=9", 4096).unwrap();
        assert_eq!(header, ("EVT 3.0", Some((9, 7))));
        assert_eq!(body, b"");
    }

    #[test]
    fn a_header_without_end_is_refused_after_bounded_memory() {
        let mut taken = std::io::repeat(b'%').take(1 << 30);
        let read = HeadReader::new().read(&mut taken, Some(Family::Evt), Options::default());
        let error = read.err().unwrap();
        assert!(error.to_string().contains("does not end"), "{error}");
        assert!((1 << 30) - taken.limit() <= 2 * MAX_HEAD as u64);
    }

    #[test]
    fn headers_that_cannot_be_used() {
        for bad in [
            "",
            "%",
            "abc",
            "% evt 3\n",
            "% evt\n",
            "% EVT 3.0\n",
            "% format EVT4\n",
            "% format evt3\n",
            "% evt 3.0\n% format EVT2\n",
            "% evt 2.0\n% evt 2.1\n",
            "% evt 3.0\n% geometry 0x4\n",
            "% evt 3.0\n% geometry 4\n",
            "% evt 3.0\n% geometry 4x4x4\n",
            "% evt 3.0\n% geometry +4x4\n",
            "% evt 3.0\n% geometry x\n",
            "% evt 3.0\n% geometry 4294967296x4\n",
            "% format EVT3;width=4\n",
            "% format EVT3;width=4;height=q\n",
            "% format EVT3;width=4;height=5\n% geometry 4x4\n",
            "% end\n% evt 3.0\n",
            "\n% evt 3.0\n",
        ] {
            assert!(matches!(read(bad.as_bytes(), 5), Err(Error::Header(_))), "{bad:?}");
        }
    }
}
