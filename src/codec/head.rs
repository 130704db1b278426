//! What a file says of itself before its events: its format is found by content, never by name.

use std::io::Read;

use super::{Decoder, Error, TextOptions, aedat2, aedat3, aedat4, dat, es, header, text};

/// A head that is longer than this is refused, so that its memory is bounded.
pub const MAX_HEAD: usize = 16 << 20;

/// Kinds of files, each with a way to begin that no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Event Stream.
    Es,
    /// Prophesee DAT. Looked at before RAW, which starts with a percent sign, too.
    Dat,
    /// Prophesee RAW: EVT 2.0, 2.1 and 3.0.
    Evt,
    /// A table in text. Looked at last, as it has no mark of its own; only one behind comments that start with a percent
    /// sign is told from DAT and RAW before.
    Text,
    /// AEDAT 4.0.
    Aedat4,
    /// AEDAT 3.1 and 2.0; older and other ones are told apart and refused.
    Aedat,
}

impl Family {
    /// Every family, in the order they are tried.
    pub const ALL: [Family; 6] =
        [Family::Aedat4, Family::Aedat, Family::Es, Family::Dat, Family::Evt, Family::Text];

    /// How people call its files.
    pub fn name(self) -> &'static str {
        match self {
            Family::Es => "Event Stream",
            Family::Dat => "Prophesee DAT",
            Family::Evt => "Prophesee RAW",
            Family::Text => "text",
            Family::Aedat4 => "AEDAT 4.0",
            Family::Aedat => "AEDAT 3.1 or 2.0",
        }
    }

    /// Whether a file that starts with `bytes` is of this family; `None` when more of it is needed.
    fn starts(self, bytes: &[u8], at_end: bool) -> Option<bool> {
        match self {
            Family::Es => prefix(es::MAGIC, bytes, at_end),
            Family::Dat => match dat::starts(bytes, at_end) {
                Some(true) => commented(bytes, at_end).map(|table| !table),
                other => other,
            },
            // DAT, which starts with a percent sign, too, is looked at before.
            Family::Evt => match prefix(b"%", bytes, at_end) {
                Some(true) => commented(bytes, at_end).map(|table| !table),
                other => other,
            },
            Family::Text => text::starts(bytes, at_end),
            Family::Aedat4 => prefix(aedat4::MAGIC, bytes, at_end),
            // AEDAT 4.0 is looked at before.
            Family::Aedat => prefix(AEDAT, bytes, at_end),
        }
    }

    /// Reads the head off `bytes`, the start of a file of this family.
    fn head(self, bytes: &[u8], at_end: bool, options: Options) -> Result<Option<Head>, Error> {
        match self {
            Family::Es => es::head(bytes, at_end),
            Family::Dat => dat::head(bytes, at_end),
            Family::Evt => header::head(bytes, at_end, options),
            Family::Text => text::head(bytes, at_end, options),
            Family::Aedat4 => aedat4::head(bytes, at_end, options),
            Family::Aedat => aedat(bytes, at_end, options),
        }
    }
}

/// Whether a file that starts with `bytes`, a percent sign first, is a table in text behind comments; `None` when more of
/// it is needed.
///
/// A RAW header has a line that no table has, and behind a DAT header comes a byte that is no text.
fn commented(bytes: &[u8], at_end: bool) -> Option<bool> {
    if header::names_encoding(bytes) { Some(false) } else { text::starts(bytes, at_end) }
}

/// How AEDAT files of all versions but the first begin.
const AEDAT: &[u8] = b"#!AER-DAT";

/// Reads the head of an AEDAT file before 4.0.
fn aedat(bytes: &[u8], at_end: bool, options: Options) -> Result<Option<Head>, Error> {
    match (prefix(aedat2::MAGIC, bytes, at_end), prefix(aedat3::MAGIC, bytes, at_end)) {
        (Some(true), _) => aedat2::head(bytes, at_end, options),
        (_, Some(true)) => aedat3::head(bytes, at_end, options),
        (None, _) | (_, None) => Ok(None),
        _ => {
            let line: String =
                String::from_utf8_lossy(bytes).chars().take_while(|c| !c.is_control()).take(20).collect();
            Err(Error::Header(format!(
                "an AEDAT file begins with #!AER-DAT2.0 or #!AER-DAT3.1, not {line:?}"
            )))
        }
    }
}

/// How a file is to be decoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Collect external triggers besides events.
    pub triggers: bool,
    /// Stop at the first fault, as [`Decoder::word`] has it.
    pub strict: bool,
    /// What a text file does not say of itself.
    pub text: TextOptions,
}

/// What a head says.
pub struct Head {
    /// The format and its version, as `EVT 3.0`.
    pub format: &'static str,
    /// `(width, height)` of the sensor, when it is stated.
    pub geometry: Option<(u32, u32)>,
    /// The bytes of the head; the body is behind them.
    pub length: usize,
    /// A decoder of the body, which has seen nothing of it.
    pub decoder: Box<dyn Decoder>,
}

/// Whether a file that starts with `bytes` starts with `magic`; `None` when more of it is needed.
pub fn prefix(magic: &[u8], bytes: &[u8], at_end: bool) -> Option<bool> {
    let common = magic.len().min(bytes.len());
    if magic[..common] != bytes[..common] {
        return Some(false);
    }
    (common == magic.len()).then_some(true).or(at_end.then_some(false))
}

/// Reads the head of `bytes`, the start of a file, which is of the family `only` if that is given; `None` when more of
/// it is needed, which is never so `at_end`.
///
/// # Errors
/// [`Error::Header`]: no known format, another family's, or a head that cannot be used.
pub fn head(
    bytes: &[u8],
    at_end: bool,
    only: Option<Family>,
    options: Options,
) -> Result<Option<Head>, Error> {
    if only == Some(Family::Text) {
        // It may begin as others do: with a comment, say.
        return Family::Text.head(bytes, at_end, options);
    }
    for family in Family::ALL {
        match family.starts(bytes, at_end) {
            None => return Ok(None),
            Some(false) => {}
            Some(true) if only.is_none_or(|only| only == family) => {
                return family.head(bytes, at_end, options);
            }
            Some(true) => {
                return Err(Error::Header(format!(
                    "this is a {} file, not {}",
                    family.name(),
                    only.unwrap_or(family).name()
                )));
            }
        }
    }
    // An unknown start is told in the words of the family that was asked for.
    match only {
        Some(only) => only.head(bytes, at_end, options),
        None => Err(Error::Header("not a recording: it begins as no known format does".into())),
    }
}

/// Reads a head off the front of a file and keeps what it read too much.
#[derive(Default)]
pub struct HeadReader {
    bytes: Vec<u8>,
}

impl HeadReader {
    /// A reader at the start of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads up to the head's end. Returns the head and the bytes that were read behind it.
    ///
    /// # Errors
    /// [`Error::Header`] as [`head`] has it. [`Error::Io`], after which the call may be repeated (a signal:
    /// `ErrorKind::Interrupted`).
    pub fn read(
        &mut self,
        input: &mut impl Read,
        only: Option<Family>,
        options: Options,
    ) -> Result<(Head, Vec<u8>), Error> {
        let mut at_end = false;
        loop {
            if let Some(head) = head(&self.bytes, at_end, only, options)? {
                let ahead = self.bytes.split_off(head.length);
                return Ok((head, ahead));
            }
            if at_end || self.bytes.len() >= MAX_HEAD {
                return Err(Error::Header(format!(
                    "the head of the file does not end within {MAX_HEAD} bytes"
                )));
            }
            // Twice as much each time: what is looked at again and again stays linear.
            let old = self.bytes.len();
            self.bytes.resize(old + old.max(4096), 0);
            let got = input.read(&mut self.bytes[old..]);
            self.bytes.truncate(old + *got.as_ref().unwrap_or(&0));
            at_end = got? == 0;
        }
    }
}
