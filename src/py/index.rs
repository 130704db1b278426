//! Indexes for Python: where they are kept, and that of a file whose rows are events.

use std::ffi::OsString;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;

use super::codec::open_file;
use crate::codec::{Builder, Index, Run};

/// An index of events that lie in rows, made while they are read once from the first to the last. Its points are rows.
#[pyclass(frozen, module = "frames2py._core")]
pub struct RowIndex {
    state: Mutex<State>,
}

enum State {
    Growing(Builder),
    Done(Index),
}

#[pymethods]
impl RowIndex {
    #[new]
    fn new() -> Self {
        Self { state: Mutex::new(State::Growing(Builder::new())) }
    }

    /// Goes on with a point: the events, as packed bytes, from `row` on, where a cursor has that state.
    fn point(&self, py: Python<'_>, row: u64, state: &[u8]) {
        if let State::Growing(builder) = &mut *self.lock(py) {
            builder.point(row, state);
        }
    }

    /// Goes on with more events of the last point, packed, 13 bytes each.
    fn add(&self, py: Python<'_>, events: PyReadonlyArray1<'_, u8>) -> PyResult<()> {
        let (records, rest) = events.as_slice()?.as_chunks();
        if !rest.is_empty() {
            return Err(PyTypeError::new_err("events must be packed, 13 bytes each"));
        }
        if let State::Growing(builder) = &mut *self.lock(py) {
            builder.after(records);
        }
        Ok(())
    }

    /// Says that these were all.
    fn finish(&self, py: Python<'_>) {
        let state = &mut *self.lock(py);
        if let State::Growing(builder) = state {
            *state = State::Done(std::mem::take(builder).finish());
        }
    }

    /// `(events, earliest, latest)`, times in µs.
    fn totals(&self, py: Python<'_>) -> (u64, Option<u64>, Option<u64>) {
        self.look(py, |index| {
            let totals = index.totals();
            (totals.events, totals.times.map(|times| times.0), totals.times.map(|times| times.1))
        })
    }

    /// The row and the state of the point that holds the first event of time `t` or later, of the last point if there is
    /// none; `None` where there are no points.
    fn find<'py>(&self, py: Python<'py>, t: u64) -> Option<(u64, Bound<'py, PyBytes>)> {
        self.look(py, |index| {
            let (row, state) = index.point(index.point_for(t))?;
            Some((row, PyBytes::new(py, state)))
        })
    }

    /// Consecutive rows that have all events with `t0 <= t < t1`: the first one, its state, and how many.
    fn runs<'py>(&self, py: Python<'py>, t0: u64, t1: u64) -> Vec<(u64, Bound<'py, PyBytes>, u64)> {
        self.look(py, |index| {
            let runs = index.runs(t0, t1).into_iter();
            let found = runs.filter_map(|Run { point, events }| {
                let (row, state) = index.point(point)?;
                Some((row, PyBytes::new(py, state), events))
            });
            found.collect()
        })
    }

    /// Keeps it beside the file, where that can be written. `of` tells what in the file was read, and how.
    fn keep(&self, py: Python<'_>, path: PathBuf, of: &[u8]) {
        let state = &*self.lock(py);
        if let State::Done(index) = state {
            py.detach(|| keep(index, &path, of));
        }
    }

    /// The one kept beside the file, if it is of that file as it is now, and of the same `of`.
    #[staticmethod]
    fn kept(py: Python<'_>, path: PathBuf, of: &[u8]) -> Option<Self> {
        let index = py.detach(|| kept(&path, of))?;
        Some(Self { state: Mutex::new(State::Done(index)) })
    }
}

impl RowIndex {
    fn lock(&self, py: Python<'_>) -> std::sync::MutexGuard<'_, State> {
        self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks an index that is complete; one that is not is empty.
    fn look<T>(&self, py: Python<'_>, ask: impl FnOnce(&Index) -> T) -> T {
        match &*self.lock(py) {
            State::Done(index) => ask(index),
            State::Growing(_) => ask(&Index::default()),
        }
    }
}

/// Where an index is kept: a hidden file beside the recording.
fn place(path: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(".frames2py-index");
    Some(path.with_file_name(name))
}

/// The index kept beside a recording, if it is of that recording as it is now, read as `of` says.
pub fn kept(path: &Path, of: &[u8]) -> Option<Index> {
    let bytes = std::fs::read(place(path)?).ok()?;
    Index::from_bytes(&bytes, &identity(path, of).ok()?)
}

/// Keeps an index beside a recording, where that can be written.
pub fn keep(index: &Index, path: &Path, of: &[u8]) -> Option<()> {
    let place = place(path)?;
    let temporary = place.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&temporary, index.to_bytes(&identity(path, of).ok()?))
        .and_then(|()| std::fs::rename(&temporary, &place))
        .or_else(|_| std::fs::remove_file(&temporary))
        .ok()
}

/// What tells this file from another one, or from what it is after a change, and from itself read otherwise: `of`, size,
/// time of change, and its first and last bytes.
fn identity(path: &Path, of: &[u8]) -> io::Result<Vec<u8>> {
    const ENDS: u64 = 4096;
    let mut file = open_file(path)?;
    let meta = file.metadata()?;
    let changed = meta.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let mut identity = of.to_vec();
    identity.extend(meta.len().to_le_bytes());
    identity.extend(changed.to_le_bytes());
    (&mut file).take(ENDS).read_to_end(&mut identity)?;
    file.seek(SeekFrom::Start(meta.len().saturating_sub(ENDS)))?;
    file.take(ENDS).read_to_end(&mut identity)?;
    Ok(identity)
}
