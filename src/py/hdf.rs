//! HDF5 for Python, of which h5py reads and writes the files: columns to events, events to columns, and the
//! codec ECF.

use std::ops::Range;
use std::sync::Arc;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::codec::to_python;
use super::input::Layouts;
use crate::codec::share::{processors, shared};
use crate::codec::{Event, Record, blosc, ecf};
use crate::error::Error;
use crate::event::{BLOCK, TIMESTAMP_LIMIT};

macro_rules! columns {
    ($($name:ident $kind:ty),*) => {
        /// A contiguous column of integers.
        enum Held<'py> {
            $($name(PyReadonlyArray1<'py, $kind>)),*
        }

        #[derive(Clone, Copy)]
        enum Column<'a> {
            $($name(&'a [$kind])),*
        }

        /// The type of a column's values.
        #[derive(Clone, Copy)]
        enum Kind {
            $($name),*
        }

        impl Kind {
            fn named(name: &str) -> Option<Self> {
                match name {
                    $(stringify!($kind) => Some(Self::$name),)*
                    _ => None,
                }
            }

            fn size(self) -> usize {
                match self {
                    $(Self::$name => size_of::<$kind>()),*
                }
            }

            /// The column in `bytes`, which are aligned.
            fn column(self, bytes: &[u8]) -> Column<'_> {
                match self {
                    $(Self::$name => Column::$name(bytemuck::cast_slice(bytes))),*
                }
            }
        }

        impl<'py> Held<'py> {
            fn new(ob: &Bound<'py, PyAny>) -> PyResult<Self> {
                $(if let Ok(array) = ob.extract::<PyReadonlyArray1<'py, $kind>>() {
                    return Ok(Self::$name(array));
                })*
                Err(PyTypeError::new_err("a column must be a 1-D array of native integers"))
            }

            fn column(&self) -> PyResult<Column<'_>> {
                match self {
                    $(Self::$name(array) => Ok(Column::$name(array.as_slice()?))),*
                }
            }
        }

        impl Column<'_> {
            fn len(self) -> usize {
                match self {
                    $(Self::$name(values) => values.len()),*
                }
            }

            fn get(self, row: usize) -> i128 {
                match self {
                    $(Self::$name(values) => values[row].into()),*
                }
            }

            /// Copies `range` to the front of `to`. `cast` narrows a value and says whether that changed it.
            /// Returns the first row where it did.
            #[inline(always)]
            fn copy<T>(
                self,
                range: Range<usize>,
                to: &mut [T],
                cast: impl Fn(i128) -> (T, bool),
            ) -> Option<usize> {
                match self {
                    $(Self::$name(values) => {
                        let mut bad = false;
                        for (value, to) in values[range.clone()].iter().zip(to) {
                            let (cast, changed) = cast((*value).into());
                            *to = cast;
                            bad |= changed;
                        }
                        if !bad {
                            return None;
                        }
                        range.into_iter().find(|&row| cast(values[row].into()).1)
                    }),*
                }
            }
        }
    };
}

columns!(U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64, I64 i64);

/// The number of a column, a row of it, and what it holds there.
type Fault = (usize, usize, i128);

/// Packs four columns of one length into events, 13 bytes each: `t + t_offset` in `[0, 2**63)`, `x` and `y`
/// in `[0, 65535]`, `p` in `[0, 255]`.
///
/// Returns the events before the first row that holds something else; of them, how many have a time below
/// that of the one before (of the first, `previous`), and the row of the first such; and where there is a
/// fault, the number of its (first) column, its row, and the value without the offset.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn pack_columns<'py>(
    py: Python<'py>,
    t: &Bound<'py, PyAny>,
    x: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    p: &Bound<'py, PyAny>,
    t_offset: i128,
    previous: u64,
) -> PyResult<(Bound<'py, PyArray1<u8>>, u64, Option<usize>, Option<Fault>)> {
    let held = [Held::new(t)?, Held::new(x)?, Held::new(y)?, Held::new(p)?];
    let [t, x, y, p] = &held;
    let columns = [t.column()?, x.column()?, y.column()?, p.column()?];
    let len = columns[0].len();
    if columns.iter().any(|column| column.len() != len) {
        return Err(PyValueError::new_err("columns must have one length"));
    }
    let mut events = Vec::new();
    if events.try_reserve_exact(len).is_err() {
        return Err(PyMemoryError::new_err(format!("a batch of {len} events cannot be allocated")));
    }
    let mut steps = Steps { previous, count: 0, first: None };
    let fault = py.detach(|| pack(columns, t_offset, &mut steps, &mut events));
    Ok((PyArray1::from_vec(py, events.into_flattened()), steps.count, steps.first, fault))
}

/// Steps back in time.
struct Steps {
    previous: u64,
    count: u64,
    first: Option<usize>,
}

impl Steps {
    /// Goes on with times, the first of which is that of row `start`.
    fn add(&mut self, start: usize, times: &[u64]) {
        let Some((&first, &last)) = times.first().zip(times.last()) else { return };
        let back = |a: u64, b: u64| u64::from(b < a);
        let inside: u64 = times.windows(2).map(|pair| back(pair[0], pair[1])).sum();
        let found = back(self.previous, first) + inside;
        if found > 0 && self.first.is_none() {
            let previous = std::iter::once(&self.previous).chain(times);
            self.first = times.iter().zip(previous).position(|(t, before)| t < before).map(|row| start + row);
        }
        self.count += found;
        self.previous = last;
    }
}

fn pack(
    [t, x, y, p]: [Column<'_>; 4],
    t_offset: i128,
    steps: &mut Steps,
    out: &mut Vec<Record>,
) -> Option<Fault> {
    let (mut ts, mut xs, mut ys, mut ps) = ([0u64; BLOCK], [0u16; BLOCK], [0u16; BLOCK], [0u8; BLOCK]);
    let short = i64::try_from(t_offset);
    let len = t.len();
    for start in (0..len).step_by(BLOCK) {
        let range = start..len.min(start + BLOCK);
        let late = match (t, short) {
            // No sum is beyond 64 bits where times are unsigned, or where there is nothing to add.
            (Column::U8(_) | Column::U16(_) | Column::U32(_), Ok(offset)) => {
                t.copy(range.clone(), &mut ts, |t| {
                    let sum = (t as i64).wrapping_add(offset) as u64;
                    (sum, sum >= TIMESTAMP_LIMIT)
                })
            }
            (_, Ok(0)) => t.copy(range.clone(), &mut ts, |t| {
                // Values below 2^63 and above 2^64 - 2^63 are themselves as 64 bits; the latter are negative.
                (t as u64, t as u64 >= TIMESTAMP_LIMIT)
            }),
            _ => t.copy(range.clone(), &mut ts, |t| {
                let sum = t.saturating_add(t_offset);
                (sum as u64, !(0..i128::from(TIMESTAMP_LIMIT)).contains(&sum))
            }),
        };
        let narrow = |value: i128| (value as u16, i128::from(value as u16) != value);
        let faults = [
            late,
            x.copy(range.clone(), &mut xs, narrow),
            y.copy(range.clone(), &mut ys, narrow),
            p.copy(range.clone(), &mut ps, |value| (value as u8, i128::from(value as u8) != value)),
        ];
        // The first row, and of that the first column.
        let fault = faults.iter().enumerate().filter_map(|(i, row)| row.map(|row| (row, i))).min();
        let good = fault.map_or(range.end, |(row, _)| row) - start;
        steps.add(start, &ts[..good]);
        let rows = ts[..good].iter().zip(&xs[..good]).zip(&ys[..good]).zip(&ps[..good]);
        out.extend(rows.map(|(((&t, &x), &y), &p)| Event { t, x, y, p }.to_record()));
        if let Some((row, i)) = fault {
            return Some((i, row, [t, x, y, p][i].get(row)));
        }
    }
    None
}

/// Takes arrays of events apart. Threads may share one.
#[pyclass(frozen, module = "frames2py._core")]
pub struct EventSplitter {
    layouts: Layouts,
}

type Columns<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u16>>,
    Bound<'py, PyArray1<u16>>,
    Bound<'py, PyArray1<u8>>,
);

#[pymethods]
impl EventSplitter {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self { layouts: Layouts::new(py)? })
    }

    /// The columns t, x, y and p of events, checked as `Engine.ingest()` checks them, in arrays of their own.
    fn split<'py>(&self, py: Python<'py>, events: &Bound<'py, PyAny>) -> PyResult<Columns<'py>> {
        let array = self.layouts.check(events)?;
        let events = array.events();
        let (t, x, y, p) = py.detach(move || {
            let records = events.to_packed();
            let events = || records.iter().map(Event::from_record);
            let latest = events().map(|event| event.t).max().unwrap_or(0);
            if latest >= TIMESTAMP_LIMIT {
                return Err(Error::Timestamp { t: latest });
            }
            Ok((
                events().map(|event| event.t).collect::<Vec<_>>(),
                events().map(|event| event.x).collect::<Vec<_>>(),
                events().map(|event| event.y).collect::<Vec<_>>(),
                events().map(|event| event.p).collect::<Vec<_>>(),
            ))
        })?;
        Ok((
            PyArray1::from_vec(py, t),
            PyArray1::from_vec(py, x),
            PyArray1::from_vec(py, y),
            PyArray1::from_vec(py, p),
        ))
    }

    /// Events as one chunk of the codec ECF: 65,535 of them at most.
    fn ecf<'py>(&self, py: Python<'py>, events: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let array = self.layouts.check(events)?;
        let events = array.events();
        let chunk = py.detach(move || {
            let mut chunk = Vec::new();
            ecf::encode(&events.to_packed(), &mut chunk).map(|()| chunk)
        });
        Ok(PyBytes::new(py, &chunk.map_err(to_python)?))
    }
}

/// Rows that are an array together, if chunks are smaller: the memory of columns and events stays in the second cache.
const TOGETHER: usize = 16 * 1024;
/// Fewer bytes than this are not worth a thread.
const SHARE: usize = 256 * 1024;

/// Chunks of columns.
struct Chunks {
    /// Of each column, the type of a value and the chunks in order, `chunk` values each.
    columns: [(Kind, Vec<PyBackedBytes>); 4],
    chunk: usize,
    rows: usize,
    t_offset: i128,
}

/// What one thread decompresses with.
#[derive(Default)]
struct Scratch {
    blosc: blosc::Scratch,
    columns: [Vec<u64>; 4],
}

/// Some events, the steps back between them, and what is wrong with the row behind them.
type Part = (Vec<Record>, Steps, Option<Fault>);

impl Chunks {
    /// Chunks that become one array.
    fn together(&self) -> usize {
        (TOGETHER / self.chunk).max(1)
    }

    /// The events of the `number`th part. `None` if they are to be read in another way.
    fn part(&self, number: usize, scratch: &mut Scratch) -> Option<Part> {
        let first = number * self.together();
        let start = first * self.chunk;
        let rows = self.rows.checked_sub(start)?.min(self.together() * self.chunk);
        let count = rows.div_ceil(self.chunk);
        for ((kind, chunks), column) in self.columns.iter().zip(&mut scratch.columns) {
            let bytes = kind.size() * self.chunk;
            let words = (bytes * count).div_ceil(8);
            column.try_reserve(words.saturating_sub(column.len())).ok()?;
            column.resize(words, 0);
            let pieces = bytemuck::cast_slice_mut::<u64, u8>(column).chunks_mut(bytes);
            for (chunk, piece) in chunks.get(first..first + count)?.iter().zip(pieces) {
                blosc::decompress(chunk, piece.get_mut(..bytes)?, &mut scratch.blosc)?;
            }
        }
        let columns = std::array::from_fn(|i| {
            let (kind, column) = (self.columns[i].0, bytemuck::cast_slice(&scratch.columns[i]));
            kind.column(&column[..kind.size() * rows])
        });
        let mut events = Vec::new();
        events.try_reserve_exact(rows).ok()?;
        let mut steps = Steps { previous: 0, count: 0, first: None };
        let fault = pack(columns, self.t_offset, &mut steps, &mut events);
        Some((events, steps, fault))
    }
}

/// The events of chunks that Blosc compressed: of each column, the type of its values as `"u16"`, and its chunks in
/// order, `chunk` values each, of which `rows` count.
///
/// Returns a list of what `pack_columns` returns: arrays of events in order, up to the first with a fault. `None` if they
/// are to be read in another way.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn read_blosc<'py>(
    py: Python<'py>,
    columns: Vec<(String, Vec<PyBackedBytes>)>,
    chunk: usize,
    rows: usize,
    t_offset: i128,
    mut previous: u64,
) -> PyResult<Option<Vec<(Bound<'py, PyArray1<u8>>, u64, Option<usize>, Option<Fault>)>>> {
    let columns: Option<Vec<_>> =
        columns.into_iter().map(|(kind, chunks)| Some((Kind::named(&kind)?, chunks))).collect();
    let Some(Ok(columns)) = columns.map(<[_; 4]>::try_from) else { return Ok(None) };
    if chunk == 0 {
        return Ok(None);
    }
    let chunks = Arc::new(Chunks { columns, chunk, rows, t_offset });
    // The last one goes here, attached. References that go while detached wait for their turn behind a lock, which a
    // forked child may find locked for ever.
    let held = Arc::clone(&chunks);
    let parts = py.detach(move || {
        let bytes: usize = chunks.columns.iter().map(|(kind, _)| kind.size() * rows).sum();
        let count = rows.div_ceil(chunks.together() * chunk);
        let threads = (bytes / SHARE).min(processors()).min(4);
        shared(count, threads, move |number, scratch: &mut Scratch| chunks.part(number, scratch))
    });
    drop(held);
    let mut found = Vec::new();
    for part in parts {
        let Some((events, Steps { previous: last, mut count, mut first }, fault)) = part.flatten() else {
            return Ok(None);
        };
        if let Some(event) = events.first().map(Event::from_record) {
            if event.t < previous {
                (count, first) = (count + 1, Some(0));
            }
            previous = last;
        }
        let faulty = fault.is_some();
        found.push((PyArray1::from_vec(py, events.into_flattened()), count, first, fault));
        if faulty {
            break;
        }
    }
    Ok(Some(found))
}

/// The events of one chunk of the codec ECF as packed bytes, 13 for each.
#[pyfunction]
pub fn decode_ecf<'py>(py: Python<'py>, chunk: &[u8]) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let events = py.detach(|| {
        let mut events = Vec::new();
        ecf::decode(chunk, &mut events).map(|()| events)
    });
    Ok(PyArray1::from_vec(py, events.map_err(to_python)?.into_flattened()))
}
