//! Columns of other people's types into event records, in one pass, or a refusal that names the row.
//!
//! Columns may be written by other threads meanwhile, so a block of each is copied first, every value once; what is
//! checked, shown in a message and used is the copy.

use crate::codec::{Event, Record};
use crate::event::{Strided, TIMESTAMP_LIMIT};

/// Rows converted together: their copies stay in the nearest caches.
const BLOCK: usize = 1024;

/// The type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A byte that is 0 or not.
    Bool,
    /// A signed integer.
    Int,
    /// An unsigned integer.
    Uint,
    /// A float of 4 or 8 bytes.
    Float,
}

/// A column.
#[derive(Clone, Copy)]
pub struct Column<'a> {
    /// Its values.
    pub values: Strided<'a>,
    /// Their type.
    pub kind: Kind,
    /// Their size in bytes: 1, 2, 4 or 8.
    pub size: usize,
    /// Whether their first byte is the highest one.
    pub big_endian: bool,
}

/// What makes microseconds of a unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// So many microseconds each.
    Times(u32),
    /// So many to the microsecond.
    Over(u32),
}

/// How polarities were written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// OFF as 0.
    pub zero: bool,
    /// OFF as -1.
    pub minus: bool,
}

/// The first value that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its row.
    pub row: usize,
    /// Its field, its value, and what it may be.
    pub what: String,
}

/// A block of a column.
struct Buffer {
    ints: Box<[i64; BLOCK]>,
    floats: Box<[f64; BLOCK]>,
}

impl Buffer {
    fn new() -> Self {
        Buffer { ints: Box::new([0; BLOCK]), floats: Box::new([0.0; BLOCK]) }
    }

    /// Copies a block, widened: integers as they are (unsigned ones of 64 bits by their bits).
    fn load(&mut self, column: &Column<'_>, start: usize, n: usize) {
        let Column { values, kind, size, big_endian } = *column;
        let (ints, floats) = (&mut self.ints[..n], &mut self.floats[..n]);
        macro_rules! widen {
            ($out:ident, $type:ty, $wide:ty) => {
                if big_endian {
                    values.map(start, $out, |bytes| <$type>::from_be_bytes(bytes) as $wide)
                } else {
                    values.map(start, $out, |bytes| <$type>::from_le_bytes(bytes) as $wide)
                }
            };
        }
        match (kind, size) {
            (Kind::Bool, _) => values.map(start, ints, |[byte]: [u8; 1]| i64::from(byte != 0)),
            (Kind::Int, 1) => widen!(ints, i8, i64),
            (Kind::Int, 2) => widen!(ints, i16, i64),
            (Kind::Int, 4) => widen!(ints, i32, i64),
            (Kind::Int, _) => widen!(ints, i64, i64),
            (Kind::Uint, 1) => widen!(ints, u8, i64),
            (Kind::Uint, 2) => widen!(ints, u16, i64),
            (Kind::Uint, 4) => widen!(ints, u32, i64),
            (Kind::Uint, _) => widen!(ints, u64, i64),
            (Kind::Float, 4) => widen!(floats, f32, f64),
            (Kind::Float, _) => widen!(floats, f64, f64),
        }
    }

    /// A value as it was in the column.
    fn shown(&self, column: &Column<'_>, i: usize) -> String {
        match column.kind {
            Kind::Float if column.size == 4 => format!("{:?}", self.floats[i] as f32),
            Kind::Float => format!("{:?}", self.floats[i]),
            Kind::Uint => (self.ints[i] as u64).to_string(),
            Kind::Int | Kind::Bool => self.ints[i].to_string(),
        }
    }

    /// Makes integers of floats that are whole; returns the first that is not. For columns whose values are small.
    fn whole(&mut self, column: &Column<'_>, n: usize) -> Option<usize> {
        if column.kind != Kind::Float {
            return None;
        }
        for (int, float) in self.ints[..n].iter_mut().zip(&self.floats[..n]) {
            *int = *float as i64;
        }
        (0..n).find(|&i| self.ints[i] as f64 != self.floats[i])
    }
}

/// Makes events of columns of one length.
pub struct Converter<'a> {
    /// Times, columns, rows and polarities.
    pub columns: [Column<'a>; 4],
    /// The unit of the times.
    pub scale: Scale,
    /// Take the nearest microsecond, and do not refuse a time that is none.
    pub round_times: bool,
    /// How polarities were written in rows before, and in these.
    pub seen: Seen,
}

impl Converter<'_> {
    /// The events of all rows.
    ///
    /// # Errors
    /// A value that does not fit.
    ///
    /// # Panics
    /// The columns are not of one length.
    pub fn convert(&mut self) -> Result<Vec<Record>, Refused> {
        let [t, x, y, p] = self.columns;
        let rows = t.values.len();
        assert!([x, y, p].iter().all(|column| column.values.len() == rows));
        let mut events = Vec::with_capacity(rows);
        let (mut ts, mut xs, mut ys, mut ps) = (Buffer::new(), Buffer::new(), Buffer::new(), Buffer::new());
        for start in (0..rows).step_by(BLOCK) {
            let n = BLOCK.min(rows - start);
            for (buffer, column) in [(&mut ts, &t), (&mut xs, &x), (&mut ys, &y), (&mut ps, &p)] {
                buffer.load(column, start, n);
            }
            let faults = [
                self.times(&mut ts, n).map(|(i, expected)| (i, &ts, "t", expected)),
                coordinates(&x, &mut xs, n).map(|i| (i, &xs, "x", COORDINATE.into())),
                coordinates(&y, &mut ys, n).map(|i| (i, &ys, "y", COORDINATE.into())),
                self.polarities(&mut ps, n).map(|(i, expected)| (i, &ps, "p", expected)),
            ];
            let first =
                faults.into_iter().zip(&self.columns).filter_map(|(fault, column)| Some((fault?, column)));
            if let Some(((i, buffer, field, expected), column)) = first.min_by_key(|((i, ..), _)| *i) {
                let what = format!("{field} is {}; {expected}", buffer.shown(column, i));
                return Err(Refused { row: start + i, what });
            }
            let columns = ts.ints[..n].iter().zip(&xs.ints[..n]).zip(&ys.ints[..n]).zip(&ps.ints[..n]);
            events.extend(columns.map(|(((&t, &x), &y), &p)| {
                Event { t: t as u64, x: x as u16, y: y as u16, p: u8::from(p > 0) }.to_record()
            }));
        }
        Ok(events)
    }

    /// Makes microseconds of a block of times; returns the first that is none.
    fn times(&self, buffer: &mut Buffer, n: usize) -> Option<(usize, String)> {
        let Converter { columns: [column, ..], scale, round_times, .. } = *self;
        if column.kind == Kind::Float {
            return float_times(buffer, n, scale, round_times, column.size == 4);
        }
        let expected = |rule: &str| format!("a time is a whole number of microseconds{rule}");
        let range = || expected(" from 0 to below 2**63");
        let ints = &mut buffer.ints[..n];
        // No time is larger than all bits of all times together, which are fewer instructions than the largest.
        let largest = ints.iter().fold(0, |all, &t| all | t as u64);
        match scale {
            Scale::Times(factor) => {
                let limit = (TIMESTAMP_LIMIT - 1) / u64::from(factor);
                if largest > limit
                    && let Some(i) = ints.iter().position(|&t| t as u64 > limit)
                {
                    return Some((i, range()));
                }
                if factor > 1 {
                    ints.iter_mut().for_each(|t| *t *= i64::from(factor));
                }
            }
            Scale::Over(divisor) => {
                let divisor = u64::from(divisor);
                let odd = |t: u64| !round_times && !t.is_multiple_of(divisor);
                let bad = ints.iter().position(|&t| t as u64 >= TIMESTAMP_LIMIT || odd(t as u64));
                if let Some(i) = bad {
                    let out = ints[i] as u64 >= TIMESTAMP_LIMIT;
                    let rule = if out { range() } else { expected("; round_times=True takes the nearest") };
                    return Some((i, rule));
                }
                ints.iter_mut().for_each(|t| *t = ((*t as u64 + divisor / 2) / divisor) as i64);
            }
        }
        None
    }

    /// Checks a block of polarities; returns the first that is none.
    fn polarities(&mut self, buffer: &mut Buffer, n: usize) -> Option<(usize, String)> {
        let expected = || "a polarity is 0 or 1, or -1 or 1".to_owned();
        let fraction = buffer.whole(&self.columns[3], n);
        let ints = &buffer.ints[..fraction.unwrap_or(n)];
        let before = self.seen;
        // Mostly there are just 0 and 1, which two folds tell.
        let (any, all) = ints.iter().fold((0, !0), |(any, all), &p| (any | p, all & p));
        if fraction.is_none() && any & !1 == 0 && !before.minus {
            self.seen.zero |= all & 1 == 0;
            return None;
        }
        let (mut zero, mut minus, mut other) = (before.zero, before.minus, false);
        for &p in ints {
            zero |= p == 0;
            minus |= p == -1;
            other |= p.wrapping_add(1) as u64 > 2;
        }
        if self.columns[3].kind == Kind::Uint {
            // All bits set is no -1 there.
            other |= minus;
        }
        if other || (zero && minus) {
            let mut seen = before;
            for (i, &p) in ints.iter().enumerate() {
                match p {
                    1 => {}
                    0 if !seen.minus => seen.zero = true,
                    -1 if !seen.zero && self.columns[3].kind != Kind::Uint => seen.minus = true,
                    0 => return Some((i, "rows before it have -1 for OFF".into())),
                    -1 if self.columns[3].kind != Kind::Uint => {
                        return Some((i, "rows before it have 0 for OFF".into()));
                    }
                    _ => return Some((i, expected())),
                }
            }
        }
        self.seen = Seen { zero, minus };
        fraction.map(|i| (i, expected()))
    }
}

const COORDINATE: &str = "a coordinate is a whole number from 0 to 65535";

/// Checks a block of coordinates; returns the first that is none.
fn coordinates(column: &Column<'_>, buffer: &mut Buffer, n: usize) -> Option<usize> {
    let fraction = buffer.whole(column, n);
    let ints = &buffer.ints[..fraction.unwrap_or(n)];
    let any = ints.iter().fold(0, |all, &value| all | value as u64);
    if any > 0xffff {
        return ints.iter().position(|&value| value as u64 > 0xffff);
    }
    fraction
}

/// Makes microseconds of floats.
///
/// A float of seconds is seldom a whole number of microseconds, only next to one; it is taken for it if it is as near as
/// the rounding of `n / 1e6` or `n * 1e-6` makes it. Where the type cannot tell one microsecond from the next, it is
/// refused.
fn float_times(
    buffer: &mut Buffer,
    n: usize,
    scale: Scale,
    round_times: bool,
    single: bool,
) -> Option<(usize, String)> {
    let factor = match scale {
        Scale::Times(factor) => f64::from(factor),
        Scale::Over(_) => 1.0,
    };
    let divisor = match scale {
        Scale::Times(_) => 1.0,
        Scale::Over(divisor) => f64::from(divisor),
    };
    // Two units in the last place, and the times up to which those are below half a microsecond.
    let (precision, limit) =
        if single { (2f64.powi(-22), 2f64.powi(22)) } else { (2f64.powi(-51), 2f64.powi(51)) };
    let exact = factor == 1.0;
    let limit = if exact { limit * 4.0 * divisor } else { limit };
    for i in 0..n {
        let t = buffer.floats[i];
        let product = t * factor;
        if !(0.0..=limit).contains(&product) {
            let expected = if product >= 0.0 {
                "so far from 0, this type of float does not tell microseconds apart"
            } else {
                "a time is a whole number of microseconds from 0 on"
            };
            return Some((i, expected.into()));
        }
        let us = product / divisor;
        // From 2^52 on, a float is whole, and half of one more would round.
        let us = if us < 2f64.powi(52) { (us + 0.5) as i64 } else { us as i64 };
        let tolerance = if exact { 0.0 } else { (product * precision).min(0.49) };
        if !round_times && (us as f64 * divisor - product).abs() > tolerance {
            return Some((
                i,
                "it is no whole number of microseconds; round_times=True takes the nearest".into(),
            ));
        }
        buffer.ints[i] = us;
    }
    None
}
