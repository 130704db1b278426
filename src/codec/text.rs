//! Tables in text: an event per line, in columns whose order and unit of time are told or stand in a header line.
//!
//! Rows that are written as most are take a fast path, which gives up at whatever is unusual; the slow path then reads
//! the line again, and says what is wrong with it. Numbers never pass through floating point: a decimal is its digits
//! and a power of ten, so 0.000001 s is 1 µs.

use super::{Decoder, Encoder, Error, Event, EventBuffer, Head, Record, Report, Saved, unencodable};
use crate::event::TIMESTAMP_LIMIT;

/// A line that is longer than this is refused, so that its memory is bounded.
const MAX_LINE: usize = 64 << 10;

/// The most columns a row may have.
pub const MAX_COLUMNS: usize = 32;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    T,
    X,
    Y,
    P,
    /// Anything else.
    Skip,
}

/// The columns of a table, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    fields: [Field; MAX_COLUMNS],
    len: usize,
}

impl Columns {
    fn new(fields: impl IntoIterator<Item = Field>) -> Result<Self, String> {
        let mut columns = Columns { fields: [Field::Skip; MAX_COLUMNS], len: 0 };
        for field in fields {
            if columns.len == MAX_COLUMNS {
                return Err(format!("there are more than {MAX_COLUMNS}"));
            }
            columns.fields[columns.len] = field;
            columns.len += 1;
        }
        for (field, name) in [(Field::T, 't'), (Field::X, 'x'), (Field::Y, 'y'), (Field::P, 'p')] {
            match columns.fields().iter().filter(|&&found| found == field).count() {
                1 => {}
                n => return Err(format!("there are {n} columns for {name}")),
            }
        }
        Ok(columns)
    }

    /// From a letter for each, `txyp` in any order; `-` is a column of something else.
    ///
    /// # Errors
    /// [`Error::Header`]: another letter, or one that is missing or there twice.
    pub fn parse(letters: &str) -> Result<Self, Error> {
        let field = |letter| match letter {
            't' => Ok(Field::T),
            'x' => Ok(Field::X),
            'y' => Ok(Field::Y),
            'p' => Ok(Field::P),
            '-' => Ok(Field::Skip),
            _ => Err(format!("{letter:?} is none of t, x, y, p and -")),
        };
        let columns = letters.chars().map(field).collect::<Result<Vec<_>, _>>().and_then(Columns::new);
        columns.map_err(|what| {
            Error::Header(format!(
                "columns must be a letter for each column, as \"txyp\", with - for others; got {letters:?}: {what}"
            ))
        })
    }

    fn fields(&self) -> &[Field] {
        &self.fields[..self.len]
    }
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

impl TimeUnit {
    /// From the name that options have for it.
    ///
    /// # Errors
    /// [`Error::Header`]: another name.
    pub fn parse(name: &str) -> Result<Self, Error> {
        Self::named(name).filter(|_| ["s", "ms", "us", "ns"].contains(&name)).ok_or_else(|| {
            Error::Header(format!("time_unit must be \"s\", \"ms\", \"us\" or \"ns\", got {name:?}"))
        })
    }

    /// From what a header calls it, in lower case.
    fn named(name: &str) -> Option<Self> {
        match name {
            "s" | "sec" | "secs" | "second" | "seconds" => Some(TimeUnit::S),
            "ms" | "msec" | "millisecond" | "milliseconds" => Some(TimeUnit::Ms),
            "us" | "usec" | "\u{b5}s" | "\u{3bc}s" | "microsecond" | "microseconds" => Some(TimeUnit::Us),
            "ns" | "nsec" | "nanosecond" | "nanoseconds" => Some(TimeUnit::Ns),
            _ => None,
        }
    }

    /// The power of ten that makes microseconds of it.
    fn exponent(self) -> i32 {
        match self {
            TimeUnit::S => 6,
            TimeUnit::Ms => 3,
            TimeUnit::Us => 0,
            TimeUnit::Ns => -3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            TimeUnit::S => "s",
            TimeUnit::Ms => "ms",
            TimeUnit::Us => "us",
            TimeUnit::Ns => "ns",
        }
    }
}

/// What a text file does not say of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextOptions {
    /// The columns; none: as a header line has them.
    pub columns: Option<Columns>,
    /// The unit of time; none: as a header line has it.
    pub time_unit: Option<TimeUnit>,
    /// Take the nearest microsecond, and do not refuse a time that is none.
    pub round_times: bool,
}

/// A line without its end, and what it is.
enum Line<'a> {
    Blank,
    Comment(&'a [u8]),
    Text(&'a [u8]),
}

fn classify(line: &[u8]) -> Line<'_> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    match line {
        [] => Line::Blank,
        [b'#' | b'%', rest @ ..] => Line::Comment(rest),
        _ => Line::Text(line),
    }
}

/// Whether a byte is not of a text.
fn control(byte: u8) -> bool {
    (byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c)) || byte == 0x7f
}

/// The first line that is no comment, with its place and that of the line behind it.
enum First<'a> {
    /// It may be in bytes to come.
    More,
    /// There is none.
    None,
    /// It is too long, or not text.
    Bad(String),
    Line {
        text: &'a [u8],
        start: usize,
        end: usize,
    },
}

struct Opening<'a> {
    first: First<'a>,
    /// What the comments before it name, as of a header.
    names: Option<Names>,
    /// Lines before it.
    lines: u64,
}

fn opening(bytes: &[u8], at_end: bool) -> Opening<'_> {
    let mut found = Opening { first: First::None, names: None, lines: 0 };
    let mut start = 0;
    while start < bytes.len() {
        let newline = bytes[start..].iter().position(|&byte| byte == b'\n');
        let end = newline.map_or(bytes.len(), |newline| start + newline + 1);
        let line = &bytes[start..end];
        if line.iter().any(|&byte| control(byte)) {
            found.first = First::Bad("it holds bytes that are no text".into());
            return found;
        }
        if line.len() > MAX_LINE {
            found.first = First::Bad(format!("line {} is longer than {MAX_LINE} bytes", found.lines + 1));
            return found;
        }
        if newline.is_none() && !at_end {
            found.first = First::More;
            return found;
        }
        match classify(line) {
            Line::Blank => {}
            Line::Comment(text) => found.names = Names::read(text).filter(Names::complete).or(found.names),
            Line::Text(text) => {
                found.first = First::Line { text, start, end };
                return found;
            }
        }
        found.lines += 1;
        start = end;
    }
    if !at_end {
        found.first = First::More;
    }
    found
}

/// Whether a file that starts with `bytes` is a table of events in text; `None` when more of it is needed.
pub fn starts(bytes: &[u8], at_end: bool) -> Option<bool> {
    let opening = opening(bytes, at_end);
    match opening.first {
        First::More => None,
        First::None => Some(opening.names.is_some()),
        First::Bad(_) => Some(false),
        First::Line { text, .. } => {
            let is_row = || {
                let number = |field| Decimal::read(field).is_some() || word(field).is_some();
                let mut numbers = 0;
                Fields(Some(text)).all(|field| {
                    field.is_ok_and(number) && {
                        numbers += 1;
                        true
                    }
                }) && numbers >= 4
            };
            Some(Names::read(text).is_some_and(|names| names.complete()) || size(text).is_some() || is_row())
        }
    }
}

/// Reads the head off `bytes`, the start of a file; `None` when more of it is needed.
///
/// # Errors
/// [`Error::Header`]: it is not text, or its columns or its unit of time are not known.
pub fn head(bytes: &[u8], at_end: bool, options: super::Options) -> Result<Option<Head>, Error> {
    let super::Options { strict, text: TextOptions { columns, time_unit, round_times }, .. } = options;
    let opening = opening(bytes, at_end);
    let mut geometry = None;
    let behind = |end: usize| first_row(&bytes[end..], at_end);
    let (names, length, lines, first) = match opening.first {
        First::More => return Ok(None),
        First::Bad(what) => return Err(Error::Header(format!("not a text file of events: {what}"))),
        First::None => (opening.names, bytes.len(), opening.lines, None),
        First::Line { text, start, end } => {
            geometry = size(text);
            match Names::read(text) {
                Some(names) => {
                    geometry = names.sides.0.zip(names.sides.1);
                    (Some(names), end, opening.lines + 1, behind(end))
                }
                None if geometry.is_some() => (opening.names, end, opening.lines + 1, behind(end)),
                None => (opening.names, start, opening.lines, Some(text)),
            }
        }
    };
    let columns = match (columns, &names) {
        (Some(columns), _) => columns,
        (None, Some(names)) => Columns::new(names.fields.iter().copied()).map_err(|what| {
            Error::Header(format!(
                "the text file's header must name t, x, y and p once each, but {what}: {}; pass columns=",
                shown(names.text.as_bytes())
            ))
        })?,
        (None, None) => {
            return Err(Error::Header(
                "the text file has no header that names its columns; pass columns=, as \"txyp\"".into(),
            ));
        }
    };
    let unit = match (time_unit, &names) {
        (Some(unit), _) => unit,
        (None, Some(Names { unit: Some(unit), .. })) => *unit,
        (None, Some(Names { bare_t: true, .. })) if first.is_some_and(|row| whole_time(row, &columns)) => {
            TimeUnit::Us
        }
        (None, Some(Names { bare_t: true, .. })) if first.is_none() && at_end => TimeUnit::Us,
        // The row that would tell has not come yet.
        (None, Some(Names { bare_t: true, .. })) if first.is_none() && bytes.len() - length < MAX_LINE => {
            return Ok(None);
        }
        _ => {
            return Err(Error::Header(
                "the text file does not say its unit of time; pass time_unit=, \"s\", \"ms\", \"us\" or \"ns\"".into(),
            ));
        }
    };
    let decoder = TextDecoder { offset: length as u64, line: lines + 1, ..TextDecoder::new(columns, unit) };
    let decoder = Box::new(TextDecoder { round_times, strict, ..decoder });
    Ok(Some(Head { format: "text", geometry, length, decoder }))
}

/// The first row, if its line is there to its end.
fn first_row(mut bytes: &[u8], at_end: bool) -> Option<&[u8]> {
    loop {
        let newline = bytes.iter().position(|&byte| byte == b'\n');
        if bytes.is_empty() || (newline.is_none() && !at_end) {
            return None;
        }
        let (line, rest) = bytes.split_at(newline.map_or(bytes.len(), |newline| newline + 1));
        if let Line::Text(text) = classify(line) {
            return Some(text);
        }
        bytes = rest;
    }
}

/// The sensor's size, if a line has two numbers and nothing else: some tables begin with it.
fn size(line: &[u8]) -> Option<(u32, u32)> {
    let mut fields = Fields(Some(line));
    let mut side = || {
        let field = fields.next()?.ok()?;
        let value =
            field.iter().all(u8::is_ascii_digit).then(|| Decimal::read(field)?.value(0, false).ok())??;
        u32::try_from(value).ok().filter(|&side| side > 0)
    };
    let size = (side()?, side()?);
    fields.0.is_none().then_some(size)
}

/// Whether a row's time is written without a point.
fn whole_time(row: &[u8], columns: &Columns) -> bool {
    let mut fields = Fields(Some(row));
    let at = columns.fields().iter().position(|&column| column == Field::T);
    // What is no row at all is told so when it is decoded.
    at.and_then(|at| fields.nth(at)).is_none_or(|field| field.is_ok_and(|t| t.iter().all(u8::is_ascii_digit)))
}

/// What a header line names.
struct Names {
    text: String,
    fields: Vec<Field>,
    unit: Option<TimeUnit>,
    /// The time is called `t`, and nothing says its unit.
    bare_t: bool,
    /// Width and height, as `x@640` and `y@480` say them.
    sides: (Option<u32>, Option<u32>),
}

impl Names {
    /// The names of a line that is made of names, not numbers.
    fn read(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?.trim();
        let separator = [',', ';', '\t'].into_iter().find(|&separator| text.contains(separator));
        let parts: Vec<_> = match separator {
            Some(separator) => text.split(separator).map(str::trim).collect(),
            None => text.split_ascii_whitespace().collect(),
        };
        let named = |part: &str| {
            part.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '"' || c == '\'')
                && word(part.as_bytes()).is_none()
        };
        let number = |part: &&str| Decimal::read(part.as_bytes()).is_some();
        if !named(parts.first()?) || parts.len() > MAX_COLUMNS || parts.iter().any(number) {
            return None;
        }
        let mut names =
            Names { text: text.into(), fields: Vec::new(), unit: None, bare_t: false, sides: (None, None) };
        for part in parts {
            let name = part.replace(['"', '\''], "").to_lowercase();
            let (name, side) = match name.split_once('@') {
                Some((name, side)) => (name, side.parse().ok().filter(|&side| side > 0)),
                None => (name.as_str(), None),
            };
            let mut field = Self::field(name);
            let mut unit = None;
            if field == Field::Skip {
                // As t_us, t[us], t (us), t/us.
                let end = name.rfind(['[', '(', '_', '/', ' ']);
                if let Some((base, rest)) = end.map(|end| name.split_at(end)) {
                    let trim = |c: char| c.is_whitespace() || "[]()_/".contains(c);
                    unit = TimeUnit::named(rest.trim_matches(trim));
                    if unit.is_some() && Self::field(base.trim_matches(trim)) == Field::T {
                        field = Field::T;
                    }
                }
            }
            match field {
                Field::T => (names.unit, names.bare_t) = (unit, name == "t"),
                Field::X => names.sides.0 = side,
                Field::Y => names.sides.1 = side,
                _ => {}
            }
            names.fields.push(field);
        }
        Some(names)
    }

    fn field(name: &str) -> Field {
        match name {
            "t" | "ts" | "time" | "times" | "timestamp" | "timestamps" | "time_stamp" => Field::T,
            "x" | "xs" | "col" | "column" => Field::X,
            "y" | "ys" | "row" => Field::Y,
            "p" | "ps" | "pol" | "polarity" | "polarities" | "on" => Field::P,
            _ => Field::Skip,
        }
    }

    fn complete(&self) -> bool {
        Columns::new(self.fields.iter().copied()).is_ok()
    }
}

/// A row's fields: blanks, or a comma or semicolon among blanks, are between them. An error is a field that is empty.
struct Fields<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<&'a [u8], ()>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.0?;
        let separates = |&byte: &u8| matches!(byte, b' ' | b'\t' | b',' | b';');
        let end = row.iter().position(separates).unwrap_or(row.len());
        let (field, rest) = row.split_at(end);
        self.0 = match rest.trim_ascii_start() {
            [] => None,
            // There is a field behind a separator, though it may be empty.
            [b',' | b';', rest @ ..] => Some(rest.trim_ascii_start()),
            rest => Some(rest),
        };
        Some(if field.is_empty() { Err(()) } else { Ok(field) })
    }
}

/// An exact decimal number: an optional sign, digits with an optional point, an optional exponent.
struct Decimal<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Decimal<'a> {
    fn read(field: &'a [u8]) -> Option<Self> {
        let (negative, rest) = match field {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, field),
        };
        let (mantissa, exponent) = match rest.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(e) => {
                let (sign, digits) = match &rest[e + 1..] {
                    [b'-', digits @ ..] => (-1, digits),
                    [b'+', digits @ ..] => (1, digits),
                    digits => (1, digits),
                };
                if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                    return None;
                }
                // Further than any number that fits, either way; no line is longer than 10^5 digits.
                let size =
                    digits.iter().fold(0i64, |n, digit| (n * 10 + i64::from(digit - b'0')).min(1 << 40));
                (&rest[..e], sign * size)
            }
            None => (rest, 0),
        };
        let (whole, fraction) = match mantissa.iter().position(|&byte| byte == b'.') {
            Some(point) => (&mantissa[..point], &mantissa[point + 1..]),
            None => (mantissa, &[][..]),
        };
        let digits = whole.iter().chain(fraction).all(u8::is_ascii_digit);
        (digits && whole.len() + fraction.len() > 0).then_some(Decimal {
            negative,
            whole,
            fraction,
            exponent,
        })
    }

    /// The number times ten to the `shift`.
    fn value(&self, shift: i32, round: bool) -> Result<u64, Unfit> {
        let digits: Vec<u8> = self.whole.iter().chain(self.fraction).copied().collect();
        let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
        let point = self.whole.len() as i64 + self.exponent + i64::from(shift) - zeros as i64;
        let digits = &digits[zeros..];
        if digits.is_empty() {
            return Ok(0);
        }
        if self.negative {
            return Err(Unfit::Negative);
        }
        if point > 20 {
            return Err(Unfit::Large);
        }
        let (whole, rest) = digits.split_at(digits.len().min(point.max(0) as usize));
        let mut value = 0u64;
        for place in 0..point.max(0) as usize {
            let digit = whole.get(place).map_or(0, |digit| digit - b'0');
            value = value.checked_mul(10).and_then(|v| v.checked_add(digit.into())).ok_or(Unfit::Large)?;
        }
        if rest.iter().any(|&digit| digit != b'0') {
            if !round {
                return Err(Unfit::Fraction);
            }
            // Below the point by more than a place, the next digit is a 0.
            let up = point >= 0 && rest[0] >= b'5';
            value = value.checked_add(up.into()).ok_or(Unfit::Large)?;
        }
        Ok(value)
    }
}

/// Why a number is not what its column holds.
enum Unfit {
    Negative,
    Fraction,
    Large,
}

/// A polarity that is a word.
fn word(field: &[u8]) -> Option<(Convention, u8)> {
    [
        ("on", Convention::OnOff, 1),
        ("off", Convention::OnOff, 0),
        ("true", Convention::Bool, 1),
        ("false", Convention::Bool, 0),
    ]
    .into_iter()
    .find(|(word, ..)| field.eq_ignore_ascii_case(word.as_bytes()))
    .map(|(_, convention, p)| (convention, p))
}

/// How a file writes polarities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Convention {
    /// 0 and 1.
    Zero,
    /// -1 and 1.
    Minus,
    /// Seen only 1 so far.
    One,
    OnOff,
    Bool,
}

impl Convention {
    const ALL: [Self; 5] = [Self::Zero, Self::Minus, Self::One, Self::OnOff, Self::Bool];

    fn name(self) -> &'static str {
        match self {
            Convention::Zero => "0",
            Convention::Minus => "-1",
            Convention::One => "1",
            Convention::OnOff => "ON or OFF",
            Convention::Bool => "True or False",
        }
    }

    /// What both show; none if a file has only one of them.
    fn with(self, other: Convention) -> Option<Convention> {
        match (self, other) {
            (a, b) if a == b => Some(a),
            (Convention::One, b @ (Convention::Zero | Convention::Minus)) => Some(b),
            (a @ (Convention::Zero | Convention::Minus), Convention::One) => Some(a),
            _ => None,
        }
    }
}

/// Decodes text.
#[derive(Clone)]
pub struct TextDecoder {
    columns: Columns,
    unit: TimeUnit,
    round_times: bool,
    strict: bool,
    /// The start of a line that a feed ended in.
    partial: Vec<u8>,
    /// The number of the next line, and its place in the file.
    line: u64,
    offset: u64,
    convention: Option<Convention>,
    last: u64,
    rows: u64,
    row_bytes: u64,
    comments: u64,
    comment_bytes: u64,
    blanks: u64,
    blank_bytes: u64,
    backward_steps: u64,
    truncated_tail: u64,
}

impl TextDecoder {
    /// A decoder at the start of a file that has no header.
    pub fn new(columns: Columns, unit: TimeUnit) -> Self {
        TextDecoder {
            columns,
            unit,
            round_times: false,
            strict: false,
            partial: Vec::new(),
            line: 1,
            offset: 0,
            convention: None,
            last: 0,
            rows: 0,
            row_bytes: 0,
            comments: 0,
            comment_bytes: 0,
            blanks: 0,
            blank_bytes: 0,
            backward_steps: 0,
            truncated_tail: 0,
        }
    }

    /// Decodes whole lines.
    fn lines(&mut self, mut bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        const ROOM: usize = 256;
        while !bytes.is_empty() {
            let rows = out.room(ROOM);
            let mut kept = 0;
            let (mut last, mut back) = (self.last, 0);
            let start = bytes.len();
            while kept < ROOM {
                let Some((event, convention, length)) = self.fast(bytes) else {
                    break;
                };
                if self.convention != Some(convention) {
                    match self.convention.map_or(Some(convention), |before| before.with(convention)) {
                        Some(both) => self.convention = Some(both),
                        None => break,
                    }
                }
                if event.t < last {
                    if self.strict {
                        break;
                    }
                    back += 1;
                }
                last = event.t;
                rows[kept] = event.to_record();
                kept += 1;
                bytes = &bytes[length..];
            }
            out.keep(kept);
            let length = (start - bytes.len()) as u64;
            self.last = last;
            self.backward_steps += back;
            self.rows += kept as u64;
            self.row_bytes += length;
            self.line += kept as u64;
            self.offset += length;
            if kept < ROOM && !bytes.is_empty() {
                let end =
                    bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |newline| newline + 1);
                self.slow(&bytes[..end], out)?;
                bytes = &bytes[end..];
            }
        }
        Ok(())
    }

    /// The row at the start of `bytes` with its length, if it is written without anything unusual.
    #[inline(always)]
    fn fast(&self, bytes: &[u8]) -> Option<(Event, Convention, usize)> {
        let mut event = Event { t: 0, x: 0, y: 0, p: 0 };
        let mut convention = Convention::One;
        let mut at = bytes.iter().take_while(|&&byte| byte == b' ').count();
        let number = |at: &mut usize| {
            let start = *at;
            let mut value = 0u64;
            while let Some(digit) =
                bytes.get(*at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10)
            {
                value = value.wrapping_mul(10).wrapping_add(digit.into());
                *at += 1;
            }
            // So many digits have not overflowed.
            (1..=19).contains(&(*at - start)).then_some(value)
        };
        for (column, field) in self.columns.fields().iter().enumerate() {
            if column > 0 {
                if !matches!(bytes.get(at), Some(b' ' | b',' | b'\t' | b';')) {
                    return None;
                }
                at += 1;
                while bytes.get(at) == Some(&b' ') {
                    at += 1;
                }
            }
            match field {
                Field::T => {
                    let start = at;
                    let mut value = number(&mut at)?;
                    let mut shift = self.unit.exponent();
                    if bytes.get(at) == Some(&b'.') {
                        at += 1;
                        let point = at;
                        let fraction = number(&mut at)?;
                        if at - start > 19 {
                            return None;
                        }
                        shift -= (at - point) as i32;
                        value = value * 10u64.pow((at - point) as u32) + fraction;
                    }
                    let power = 10u64.checked_pow(shift.unsigned_abs())?;
                    event.t = if shift >= 0 {
                        value.checked_mul(power)?
                    } else if value.is_multiple_of(power) {
                        value / power
                    } else {
                        return None;
                    };
                    if event.t >= TIMESTAMP_LIMIT {
                        return None;
                    }
                }
                Field::X => event.x = u16::try_from(number(&mut at)?).ok()?,
                Field::Y => event.y = u16::try_from(number(&mut at)?).ok()?,
                Field::P => {
                    let minus = bytes.get(at) == Some(&b'-');
                    at += usize::from(minus);
                    (event.p, convention) = match (number(&mut at)?, minus) {
                        (0, false) => (0, Convention::Zero),
                        (1, false) => (1, Convention::One),
                        (1, true) => (0, Convention::Minus),
                        _ => return None,
                    };
                }
                Field::Skip => {
                    let start = at;
                    while bytes.get(at).is_some_and(|byte| byte.is_ascii_graphic() && !b",;".contains(byte)) {
                        at += 1;
                    }
                    if at == start {
                        return None;
                    }
                }
            }
        }
        at += usize::from(bytes.get(at) == Some(&b'\r'));
        (bytes.get(at) == Some(&b'\n')).then_some((event, convention, at + 1))
    }

    /// Decodes one line, whatever it is.
    fn slow(&mut self, line: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        let length = line.len() as u64;
        match classify(line) {
            Line::Blank => {
                self.blanks += 1;
                self.blank_bytes += length;
            }
            Line::Comment(_) => {
                self.comments += 1;
                self.comment_bytes += length;
            }
            Line::Text(text) => {
                let event = self.row(text).map_err(|what| self.malformed(&what))?;
                if event.t < self.last {
                    if self.strict {
                        return Err(self.malformed(&format!(
                            "t is {}, below {}, that of the event before it",
                            event.t, self.last
                        )));
                    }
                    self.backward_steps += 1;
                }
                self.last = event.t;
                out.room(1)[0] = event.to_record();
                out.keep(1);
                self.rows += 1;
                self.row_bytes += length;
            }
        }
        self.line += 1;
        self.offset += length;
        Ok(())
    }

    fn malformed(&self, what: &str) -> Error {
        Error::Malformed(format!("line {}, at byte {} of the file: {what}", self.line, self.offset))
    }

    fn row(&mut self, text: &[u8]) -> Result<Event, String> {
        let mut event = Event { t: 0, x: 0, y: 0, p: 0 };
        let mut fields = Fields(Some(text));
        let mut found = 0;
        let TextDecoder { columns, unit, round_times, .. } = *self;
        for &column in columns.fields() {
            let Some(field) = fields.next() else { break };
            found += 1;
            let field = field.map_err(|()| format!("column {found} is empty: {}", shown(text)))?;
            let number = |name: &str, kind: &str, shift: i32, round: bool, below: u64| {
                let value =
                    Decimal::read(field).ok_or(None).and_then(|n| n.value(shift, round).map_err(Some));
                match value {
                    Ok(value) if value < below => Ok(value),
                    Ok(_) | Err(Some(Unfit::Large)) => {
                        Err(format!("{name} is {}, too large; {kind}", shown(field)))
                    }
                    Err(Some(Unfit::Negative)) => {
                        Err(format!("{name} is {}, below zero; {kind}", shown(field)))
                    }
                    Err(_) => Err(format!("{name} is {}; {kind}", shown(field))),
                }
            };
            match column {
                Field::T => {
                    let kind =
                        format!("a time in {} is a whole number of microseconds below 2**63", unit.name());
                    event.t = number("t", &kind, unit.exponent(), round_times, TIMESTAMP_LIMIT)?;
                }
                Field::X => {
                    event.x = number("x", "a column is a whole number below 65536", 0, false, 65536)? as u16
                }
                Field::Y => {
                    event.y = number("y", "a row is a whole number below 65536", 0, false, 65536)? as u16
                }
                Field::P => event.p = self.polarity(field)?,
                Field::Skip => {}
            }
        }
        found += fields.count();
        if found != columns.fields().len() {
            return Err(format!("it has {found} columns, not {}: {}", columns.fields().len(), shown(text)));
        }
        Ok(event)
    }

    fn polarity(&mut self, field: &[u8]) -> Result<u8, String> {
        let number = || {
            let number = Decimal::read(field)?;
            let size = Decimal { negative: false, ..number }.value(0, false).ok()?;
            match (size, number.negative) {
                (0, false) => Some((Convention::Zero, 0)),
                (1, false) => Some((Convention::One, 1)),
                (1, true) => Some((Convention::Minus, 0)),
                _ => None,
            }
        };
        let Some((convention, p)) = word(field).or_else(number) else {
            return Err(format!(
                "p is {}; a polarity is 0 or 1, -1 or 1, OFF or ON, False or True",
                shown(field)
            ));
        };
        let before = self.convention.unwrap_or(convention);
        self.convention = Some(before.with(convention).ok_or_else(|| {
            format!(
                "p is {}, but {} stood for a polarity before: a file has one way to write them",
                shown(field),
                before.name()
            )
        })?);
        Ok(p)
    }
}

impl Decoder for TextDecoder {
    fn feed(&mut self, mut bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        let end =
            |bytes: &[u8]| bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        if !self.partial.is_empty() {
            let first = bytes.iter().position(|&byte| byte == b'\n').map(|newline| newline + 1);
            let (front, rest) = bytes.split_at(first.unwrap_or(bytes.len()));
            self.partial.extend_from_slice(front);
            bytes = rest;
            if first.is_some() {
                let mut line = std::mem::take(&mut self.partial);
                let decoded = self.check(&line).and_then(|()| self.lines(&line, out));
                line.clear();
                self.partial = line;
                decoded?;
            }
        }
        let (lines, rest) = bytes.split_at(end(bytes));
        self.lines(lines, out)?;
        self.partial.extend_from_slice(rest);
        self.check(&self.partial)
    }

    fn finish(&mut self, out: &mut EventBuffer) -> Result<(), Error> {
        let line = std::mem::take(&mut self.partial);
        if line.is_empty() {
            return Ok(());
        }
        // A last line without an end is a row if it can be one, or else one that broke off.
        let mut whole = self.clone();
        match whole.slow(&line, out) {
            Err(error) if self.strict => return Err(error),
            Err(_) => self.truncated_tail = line.len() as u64,
            Ok(()) => *self = whole,
        }
        Ok(())
    }

    fn report(&self) -> Report {
        let mut report = Report {
            backward_steps: self.backward_steps,
            truncated_tail: self.truncated_tail,
            ..Report::default()
        };
        report.note_words("row", self.rows, self.row_bytes);
        report.note_words("comment", self.comments, self.comment_bytes);
        report.note_words("blank line", self.blanks, self.blank_bytes);
        report
    }

    fn word(&self) -> usize {
        // A strict one names the line itself.
        0
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn save(&self) -> Option<Saved> {
        let convention = self.convention.and_then(|seen| Convention::ALL.iter().position(|&all| all == seen));
        let mut state = vec![convention.map_or(u8::MAX, |at| at as u8)];
        state.extend(self.line.to_le_bytes());
        state.extend(self.offset.to_le_bytes());
        Some(Saved { state, again: self.partial.len() as u64 })
    }

    fn load(&mut self, state: &[u8]) -> bool {
        let Some((&convention, rest)) = state.split_first() else { return false };
        let ([line, offset], []) = rest.as_chunks::<8>() else { return false };
        self.convention = Convention::ALL.get(usize::from(convention)).copied();
        self.line = u64::from_le_bytes(*line);
        self.offset = u64::from_le_bytes(*offset);
        // Far from where they would overflow.
        [self.line, self.offset].iter().all(|&number| number < 1 << 62)
    }
}

impl TextDecoder {
    fn check(&self, line: &[u8]) -> Result<(), Error> {
        if line.len() > MAX_LINE {
            return Err(self.malformed(&format!("the line is longer than {MAX_LINE} bytes")));
        }
        Ok(())
    }
}

/// A piece of the file for a message: quoted, escaped and short.
fn shown(text: &[u8]) -> String {
    let short = &text[..text.len().min(60)];
    let dots = if short.len() < text.len() { "..." } else { "" };
    format!("{:?}{dots}", String::from_utf8_lossy(short))
}

/// Encodes text: a header line `t,x,y,p`, then a row for each event, times in microseconds.
pub struct CsvEncoder;

impl Encoder for CsvEncoder {
    fn start(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"t,x,y,p\n");
    }

    fn encode(&mut self, events: &[Record], out: &mut Vec<u8>) -> Result<(), Error> {
        for (index, event) in events.iter().enumerate() {
            let Event { t, p, .. } = Event::from_record(event);
            if p > 1 {
                return Err(unencodable(index, "p", p, "csv", "0 and 1"));
            }
            if t >= TIMESTAMP_LIMIT {
                return Err(unencodable(index, "t", t, "csv", "times below 2**63"));
            }
        }
        out.reserve(events.len() * 24);
        for event in events {
            let Event { t, x, y, p } = Event::from_record(event);
            for (value, end) in [(t, b','), (x.into(), b','), (y.into(), b','), (p.into(), b'\n')] {
                digits(value, out);
                out.push(end);
            }
        }
        Ok(())
    }
}

fn digits(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::Options;

    fn decoder(columns: &str, unit: TimeUnit) -> TextDecoder {
        TextDecoder::new(Columns::parse(columns).unwrap(), unit)
    }

    #[test]
    fn a_state_with_numbers_that_would_overflow_is_none() {
        let saved = decoder("txyp", TimeUnit::Us).save().unwrap().state;
        assert!(decoder("txyp", TimeUnit::Us).load(&saved));
        // The last bytes of the number of the line and of its place.
        for at in [8, 16] {
            let mut state = saved.clone();
            state[at] = 0xff;
            assert!(!decoder("txyp", TimeUnit::Us).load(&state));
        }
    }

    /// All events, or the error, of a text fed in pieces and then finished.
    fn read(mut decoder: TextDecoder, text: &[u8], sizes: &[usize]) -> (Vec<Event>, Result<u64, String>) {
        let (mut out, mut rest) = (EventBuffer::new(), text);
        let mut fed = Ok(());
        for &size in sizes.iter().cycle() {
            if rest.is_empty() || fed.is_err() {
                break;
            }
            let (piece, behind) = rest.split_at(size.min(rest.len()));
            (fed, rest) = (decoder.feed(piece, &mut out), behind);
        }
        let end = fed.and_then(|()| decoder.finish(&mut out)).map(|()| decoder.report().truncated_tail);
        (out.records().iter().map(Event::from_record).collect(), end.map_err(|error| error.to_string()))
    }

    type Opened = (Vec<Event>, Option<(u32, u32)>);

    fn opened(text: &str, text_options: TextOptions) -> Result<Opened, String> {
        let options = Options { text: text_options, ..Options::default() };
        let mut n = 0;
        let found = loop {
            match head(&text.as_bytes()[..n], n == text.len(), options) {
                Ok(None) => n += 1,
                Ok(Some(head)) => break head,
                Err(error) => return Err(error.to_string()),
            }
        };
        let (mut out, mut decoder) = (EventBuffer::new(), found.decoder);
        decoder.feed(&text.as_bytes()[found.length..], &mut out).map_err(|error| error.to_string())?;
        decoder.finish(&mut out).map_err(|error| error.to_string())?;
        Ok((out.records().iter().map(Event::from_record).collect(), found.geometry))
    }

    #[test]
    fn headers_say_columns_and_units() {
        let (second, first) = (Event { t: 2_000_000, x: 3, y: 4, p: 1 }, Event { t: 2, x: 3, y: 4, p: 1 });
        for (text, expected) in [
            ("t,x,y,p\n2,3,4,1\n", first),
            ("\u{feff}t,x,y,p\n2,3,4,1\n", first),
            ("p y x t\n1 4 3 2", first),
            ("# t x y p\n# and more\n2 3 4 1\n", first),
            ("\"timestamp\" [us];x;polarity;y\r\n2;3;1;4\r\n", first),
            ("id\tX\tY\tPol\ttimestamp_ns\n9\t3\t4\tON\t2000\n", first),
            ("time (s), x, y, on\n2.000000, 3, 4, True\n", second),
            ("timestamp/ms,col,row,p,extra\n2e3,3.0,+4,1,?\n", second),
        ] {
            assert_eq!(opened(text, TextOptions::default()), Ok((vec![expected], None)), "{text}");
        }
        for (text, message) in [
            ("2 3 4 1\n", "pass columns="),
            ("t,x,y\n2,3,4\n", "0 columns for p"),
            ("t,ts,x,y,p\n2,2,3,4,1\n", "2 columns for t"),
            ("timestamp,x,y,p\n2,3,4,1\n", "pass time_unit="),
            ("t,x,y,p\n2.0,3,4,1\n", "pass time_unit="),
            ("\u{1}\n", "no text"),
            ("", "pass columns="),
        ] {
            let error = opened(text, TextOptions::default()).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
        let told = TextOptions {
            columns: Some(Columns::parse("txyp").unwrap()),
            time_unit: Some(TimeUnit::S),
            round_times: false,
        };
        for text in ["2 3 4 1\n", "a,b,c,d\n2,3,4,1\n", "# x\n\n2\t3\t4\t1"] {
            assert_eq!(opened(text, told), Ok((vec![second], None)), "{text}");
        }
        assert_eq!(
            opened("t,x@640,y@480,on\n2,3,4,1\n", TextOptions::default()),
            Ok((vec![first], Some((640, 480))))
        );
        assert_eq!(opened("240 180\n2 3 4 1\n", told), Ok((vec![second], Some((240, 180)))));
    }

    #[test]
    fn a_text_is_known_by_its_first_line() {
        for (text, expected) in [
            ("1 2 3 0\n", Some(true)),
            ("1 2 3 0", None),
            ("# by hand\n1.5e3,2,3,-1\n", Some(true)),
            ("t,x,y,p\n", Some(true)),
            ("once upon a time\n", Some(false)),
            ("1 2 3\n", Some(false)),
            ("1,2,,3,4\n", Some(false)),
            ("PK\u{3}\u{4}", Some(false)),
        ] {
            assert_eq!(starts(text.as_bytes(), false), expected, "{text}");
        }
        assert_eq!(starts(b"1 2 3 0", true), Some(true));
        assert_eq!(starts(b"", true), Some(false));
    }

    #[test]
    fn lines_that_cannot_be_rows_are_refused_with_their_number() {
        for (line, message) in [
            ("1,2,3", "it has 3 columns, not 4"),
            ("1,2,3,1,", "it has 5 columns, not 4"),
            ("1,,3,1", "column 2 is empty"),
            ("-1,2,3,1", "t is \"-1\", below zero"),
            ("1.5,2,3,1", "t is \"1.5\"; a time in us is a whole number"),
            ("9223372036854775808,2,3,1", "too large"),
            ("1e30,2,3,1", "too large"),
            ("1,65536,3,1", "x is \"65536\", too large"),
            ("1,2,3.5,1", "y is \"3.5\""),
            ("nan,2,3,1", "t is \"nan\""),
            ("1,2,3,2", "p is \"2\"; a polarity is"),
            ("1,2,3,-1", "p is \"-1\", but 0 stood for a polarity before"),
            ("1,2,3,on", "p is \"on\", but 0 stood"),
        ] {
            let text = format!("# comment\n\n5,6,7,0\n{line}\n8,9,10,1\n");
            let (events, end) = read(decoder("txyp", TimeUnit::Us), text.as_bytes(), &[7]);
            assert_eq!(events, [Event { t: 5, x: 6, y: 7, p: 0 }]);
            let error = end.unwrap_err();
            assert!(
                error.starts_with("line 4, at byte 19 of the file: ") && error.contains(message),
                "{error}"
            );
        }
        let long = [b"1,2,3,1\n".as_slice(), &[b'1'; MAX_LINE + 1]].concat();
        for sizes in [[10], [usize::MAX]] {
            let (events, end) = read(decoder("txyp", TimeUnit::Us), &long, &sizes);
            assert_eq!(events.len(), 1);
            assert!(end.unwrap_err().contains("line 2, at byte 8 of the file: the line is longer"));
        }
    }

    #[test]
    fn the_report_counts_every_byte() {
        let text = b"# a\n1,2,3,1\n\n0,2,3,0\n  \n1,2";
        let mut decoder = decoder("txyp", TimeUnit::Us);
        let mut out = EventBuffer::new();
        decoder.feed(text, &mut out).unwrap();
        decoder.finish(&mut out).unwrap();
        let report = decoder.report();
        let words: Vec<_> = report.words.iter().map(|words| (words.name, words.count, words.bytes)).collect();
        assert_eq!(words, [("row", 2, 16), ("comment", 1, 4), ("blank line", 2, 4)]);
        assert_eq!((report.backward_steps, report.truncated_tail), (1, 3));
    }

    #[test]
    fn a_strict_decoder_stops_at_a_step_back_and_at_a_tail() {
        for (text, message) in [
            ("5,0,0,1\n4,0,0,1\n", "line 2, at byte 8 of the file: t is 4, below 5"),
            ("5,0,0,1\n6,0,", "line 2, at byte 8 of the file: column 3 is empty"),
        ] {
            for size in [1, 100] {
                let strict = TextDecoder { strict: true, ..decoder("txyp", TimeUnit::Us) };
                let (events, end) = read(strict, text.as_bytes(), &[size]);
                assert_eq!(events.len(), 1);
                let error = end.unwrap_err();
                assert!(error.starts_with(message), "{error}");
            }
        }
    }

    #[test]
    fn times_are_rounded_only_when_told_to() {
        for (text, t) in
            [("1.4999", 1), ("1.5", 2), ("0.04", 0), ("0.5", 1), ("9.9e-1", 1), ("4e-5", 0), ("7", 7)]
        {
            let rounding = TextDecoder { round_times: true, ..decoder("txyp", TimeUnit::Us) };
            let (events, end) = read(rounding, format!("{text} 0 0 1").as_bytes(), &[99]);
            assert_eq!((events[0].t, end), (t, Ok(0)), "{text}");
        }
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            rows in prop::collection::vec(prop_oneof![
                6 => "[0-9]{1,6}(\\.[0-9]{1,7}0{0,3})?,[0-9]{1,5} ,[0-9]{1,3};[01]\r?\n",
                1 => "[ \t]*\n", 1 => "[#%][a-z ,]*\n", 1 => "[0-9,.e+-]{0,20}\n",
            ], 0..40),
            tail in "[0-9, ]{0,12}",
            sizes in prop::collection::vec(1usize..60, 1..20),
        ) {
            let text = rows.concat() + &tail;
            let whole = read(decoder("txyp", TimeUnit::Ms), text.as_bytes(), &[usize::MAX]);
            prop_assert_eq!(read(decoder("txyp", TimeUnit::Ms), text.as_bytes(), &sizes), whole);
        }

        #[test]
        fn the_fast_path_reads_what_the_slow_one_does(
            t in "[0-9]{1,20}(\\.[0-9]{0,20})?", x in "[0-9]{1,6}", y in "[0-9]{1,6}", p in "-?[0-9]",
            unit in prop_oneof![Just(TimeUnit::S), Just(TimeUnit::Ms), Just(TimeUnit::Us), Just(TimeUnit::Ns)],
        ) {
            let mut slow = decoder("p-xyt", unit);
            let line = format!("{p} ? {x} {y} {t}\n");
            if let Some((event, _, length)) = slow.fast(line.as_bytes()) {
                prop_assert_eq!(length, line.len());
                prop_assert_eq!(slow.row(line.trim().as_bytes()), Ok(event));
            }
        }

        #[test]
        fn what_is_encoded_comes_back(
            rows in prop::collection::vec((0..TIMESTAMP_LIMIT, any::<u16>(), any::<u16>(), 0u8..2), 0..40),
        ) {
            let events: Vec<_> = rows.iter().map(|&(t, x, y, p)| Event { t, x, y, p }).collect();
            let records: Vec<_> = events.iter().map(|event| event.to_record()).collect();
            let mut file = Vec::new();
            CsvEncoder.start(&mut file);
            CsvEncoder.encode(&records, &mut file).unwrap();
            let text = String::from_utf8(file).unwrap();
            prop_assert_eq!(opened(&text, TextOptions::default()), Ok((events, None)));
        }
    }
}
