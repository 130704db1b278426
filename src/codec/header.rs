//! The text header of a Prophesee RAW file.
//!
//! Lines that start with `%`, of the form `% key value`; `% end` ends them, else the first line
//! without a `%`. See <https://docs.prophesee.ai/stable/data/file_formats/raw.html>.

use std::io::Read;

use super::{Decoder, Error, Evt2Decoder, Evt3Decoder};

/// A file whose header is longer than this is refused, so that its memory is bounded.
const MAX_HEADER: usize = 16 << 20;

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

    /// A decoder for it.
    ///
    /// # Errors
    /// [`Error::Header`] for a version that cannot be decoded.
    pub fn decoder(self) -> Result<Box<dyn Decoder>, Error> {
        match self {
            Version::Evt2 => Ok(Box::new(Evt2Decoder::new())),
            Version::Evt3 => Ok(Box::new(Evt3Decoder::new())),
            Version::Evt21 => {
                Err(Error::Header("EVT 2.1 is not supported yet; EVT 2.0 and EVT 3.0 are read".into()))
            }
        }
    }
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The encoding of the words behind it.
    pub version: Version,
    /// `(width, height)` of the sensor, when it is stated.
    pub geometry: Option<(u32, u32)>,
}

/// Reads a header off the front of a file and keeps what it read too much.
#[derive(Default)]
pub struct HeaderReader {
    bytes: Vec<u8>,
    /// Start of the first line that was not taken yet.
    line: usize,
    facts: Facts,
}

impl HeaderReader {
    /// A reader at the start of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads up to the header's end. Returns the header and the bytes that were read behind it.
    ///
    /// # Errors
    /// [`Error::Header`] for a header that cannot be used. [`Error::Io`], after which the call may be
    /// repeated (a signal: `ErrorKind::Interrupted`).
    pub fn read(&mut self, input: &mut impl Read) -> Result<(Header, Vec<u8>), Error> {
        let mut at_end = false;
        while !self.take_lines(at_end)? {
            // Twice as much each time: a long line is then searched for its end in linear time.
            let old = self.bytes.len();
            self.bytes.resize(old + old.max(4096), 0);
            let got = input.read(&mut self.bytes[old..]);
            self.bytes.truncate(old + *got.as_ref().unwrap_or(&0));
            at_end = got? == 0;
        }
        let header = self.facts.header()?;
        Ok((header, self.bytes.split_off(self.line)))
    }

    /// Takes the lines that are complete; true when the header's end was among them.
    fn take_lines(&mut self, at_end: bool) -> Result<bool, Error> {
        loop {
            let rest = &self.bytes[self.line..];
            match rest.first() {
                None => return Ok(at_end),
                Some(b'%') => {}
                Some(_) => return Ok(true),
            }
            let length = match rest.iter().position(|&b| b == b'\n') {
                Some(newline) => newline + 1,
                None if at_end => rest.len(),
                None if self.bytes.len() < MAX_HEADER => return Ok(false),
                None => usize::MAX - self.line,
            };
            if self.line + length > MAX_HEADER {
                return Err(Error::Header(format!("the EVT header does not end within {MAX_HEADER} bytes")));
            }
            let more = self.facts.note(&rest[1..length])?;
            self.line += length;
            if !more {
                return Ok(true);
            }
        }
    }
}

/// What the lines so far have said.
#[derive(Default)]
struct Facts {
    version: Option<Version>,
    geometry: Option<(u32, u32)>,
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
            _ => {}
        }
        Ok(true)
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

    fn header(&self) -> Result<Header, Error> {
        match self.version {
            Some(version) => Ok(Header { version, geometry: self.geometry }),
            None => Err(Error::Header(
                "not an EVT file: it has no '% evt' and no '% format' line at its start".into(),
            )),
        }
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
    use super::*;

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

    fn read(bytes: &[u8], step: usize) -> Result<(Header, Vec<u8>), Error> {
        let mut reader = HeaderReader::new();
        let mut file = Slow { bytes, step, signal: false };
        loop {
            match reader.read(&mut file) {
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok((header, mut behind)) => {
                    behind.extend_from_slice(file.bytes);
                    return Ok((header, behind));
                }
                other => return other,
            }
        }
    }

    #[test]
    fn reads_cut_anywhere_give_the_same_header_and_body() {
        let file = b"% date now\n% evt 3.0\r\n%geometry 640x480\n% end\n% body";
        for step in 1..=file.len() {
            let (header, body) = read(file, step).unwrap();
            assert_eq!(header, Header { version: Version::Evt3, geometry: Some((640, 480)) });
            assert_eq!(body, b"% body");
        }
    }

    #[test]
    fn a_line_without_percent_ends_the_header() {
        let (header, body) = read(b"% evt 2.0\nabc\n% evt 3.0\n", 7).unwrap();
        assert_eq!(header, Header { version: Version::Evt2, geometry: None });
        assert_eq!(body, b"abc\n% evt 3.0\n");
    }

    #[test]
    fn the_end_of_the_file_ends_the_header() {
        let (header, body) = read(b"% format EVT21;height=7;width=9", 4096).unwrap();
        assert_eq!(header, Header { version: Version::Evt21, geometry: Some((9, 7)) });
        assert_eq!(body, b"");
    }

    #[test]
    fn a_header_without_end_is_refused_after_bounded_memory() {
        let mut reader = HeaderReader::new();
        let error = reader.read(&mut std::io::repeat(b'%')).unwrap_err();
        assert!(error.to_string().contains("does not end"), "{error}");
        assert!(reader.bytes.len() <= 2 * MAX_HEADER);
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
