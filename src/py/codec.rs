//! Recordings for Python: files to read, and encoders of what is to be written.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Instant;

use numpy::PyArray1;
use pyo3::exceptions::{PyIsADirectoryError, PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict};

use super::engine::SIGNAL_CHECK;
use super::index;
use super::input::Layouts;
use super::owned::Owned;
use crate::codec::{
    self, Columns, Encoder, Error, Event, Family, HeadReader, Index, More, Options, Record, Recording,
    SharedReport, SharedTriggers, TextOptions, TimeUnit,
};
use crate::event::TIMESTAMP_LIMIT;

/// A file being read. Threads that read at the same time take turns.
#[pyclass(frozen, module = "frames2py._core")]
pub struct FileReader {
    format: &'static str,
    geometry: Option<(u32, u32)>,
    regular: bool,
    closed: AtomicBool,
    report: SharedReport,
    triggers: Option<SharedTriggers>,
    path: PathBuf,
    /// The format, and what else decides which events the file is read as.
    options: Vec<u8>,
    index: Mutex<Option<Arc<Index>>>,
    /// `None` once closed or taken.
    open: Mutex<Option<Open>>,
}

/// What a recording is read from.
pub struct Input {
    file: File,
    /// Whether its bytes may be long in coming, as a pipe's.
    waited_for: bool,
}

impl Read for Input {
    /// `Interrupted` if nothing comes for a while, so that whoever reads can look whether it is still wanted.
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.waited_for && !comes_soon(&self.file)? {
            return Err(ErrorKind::Interrupted.into());
        }
        self.file.read(out)
    }
}

impl Seek for Input {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Whether a read returns at once, or will in a moment.
#[cfg(unix)]
fn comes_soon(file: &File) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    // The end and errors are there to be read too.
    Ok(poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&MOMENT))? > 0)
}

/// There is no telling: a read waits.
#[cfg(not(unix))]
fn comes_soon(_file: &File) -> io::Result<bool> {
    Ok(true)
}

struct Open {
    recording: Recording<Input>,
    /// The batch being filled; it outlives a call that a signal ended.
    batch: Vec<Record>,
}

/// The family that a Python module asks for by name.
fn family(name: &str) -> PyResult<Family> {
    let found = Family::ALL.into_iter().find(|family| format!("{family:?}").eq_ignore_ascii_case(name));
    found.ok_or_else(|| PyValueError::new_err(format!("no such family of formats: {name}")))
}

#[pymethods]
impl FileReader {
    #[new]
    #[pyo3(signature = (
        path, *, family=None, strict=false, triggers=false, columns=None, time_unit=None, round_times=false
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        family: Option<&str>,
        strict: bool,
        triggers: bool,
        columns: Option<&str>,
        time_unit: Option<&str>,
        round_times: bool,
    ) -> PyResult<Self> {
        let only = family.map(self::family).transpose()?;
        let text = TextOptions {
            columns: columns.map(Columns::parse).transpose().map_err(to_python)?,
            time_unit: time_unit.map(TimeUnit::parse).transpose().map_err(to_python)?,
            round_times,
        };
        let options = Options { triggers, strict, text };
        let (file, regular) = loop {
            match py.detach(|| open(&path)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => py.check_signals()?,
                opened => break opened.map_err(|error| os_error(error, &path))?,
            }
        };
        let mut input = Input { file, waited_for: !regular };
        let mut reader = HeadReader::new();
        let (head, ahead) = loop {
            match py.detach(|| reader.read(&mut input, only, options)) {
                Err(Error::Io(error)) if error.kind() == ErrorKind::Interrupted => py.check_signals()?,
                Err(Error::Io(error)) => return Err(os_error(error, &path)),
                Err(error) => return Err(to_python(error)),
                Ok(found) => break found,
            }
        };
        let (format, geometry) = (head.format, head.geometry);
        let given = [columns, time_unit, round_times.then_some("rounded")];
        let options =
            [Some(format)].into_iter().chain(given).flatten().collect::<Vec<_>>().join(" ").into_bytes();
        let mut recording = Recording::new(head, ahead, input, regular, strict);
        recording.skip_by_seeking();
        Ok(FileReader {
            format,
            geometry,
            regular,
            closed: AtomicBool::new(false),
            report: recording.report().clone(),
            triggers: triggers.then(|| recording.triggers().clone()),
            path,
            options,
            index: Mutex::new(None),
            open: Mutex::new(Some(Open { recording, batch: Vec::new() })),
        })
    }

    /// The format and its version, as `"EVT 3.0"`.
    #[getter]
    fn format(&self) -> &'static str {
        self.format
    }

    /// `(width, height)` as the file states it, or `None`.
    #[getter]
    fn geometry(&self) -> Option<(u32, u32)> {
        self.geometry
    }

    /// What was met so far, as the arguments of a `DecodeReport` but its first.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = self.report.get();
        let (words, word_bytes, dropped) = (PyDict::new(py), PyDict::new(py), PyDict::new(py));
        for word in report.words {
            words.set_item(word.name, word.count)?;
            word_bytes.set_item(word.name, word.bytes)?;
        }
        for (reason, events) in report.dropped {
            dropped.set_item(reason, events)?;
        }
        let all = PyDict::new(py);
        all.set_item("events", report.events)?;
        all.set_item("bytes", report.bytes)?;
        all.set_item("words", words)?;
        all.set_item("word_bytes", word_bytes)?;
        all.set_item("dropped", dropped)?;
        all.set_item("time_wraps", report.time_wraps)?;
        all.set_item("backward_steps", report.backward_steps)?;
        all.set_item("unknown", report.unknown)?;
        all.set_item("padding", report.padding)?;
        all.set_item("truncated_tail", report.truncated_tail)?;
        Ok(all)
    }

    /// The triggers met since the last call as packed bytes, 11 for each: `t` (8), `id` (2), `p` (1).
    fn take_triggers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u8>>> {
        let Some(triggers) = &self.triggers else {
            return Err(PyRuntimeError::new_err(
                "triggers are collected only when open() is told so: triggers=True",
            ));
        };
        let mut bytes = Vec::new();
        for trigger in triggers.take() {
            bytes.extend(trigger.t.to_le_bytes());
            bytes.extend(trigger.id.to_le_bytes());
            bytes.push(trigger.p);
        }
        Ok(PyArray1::from_vec(py, bytes))
    }

    /// Whether `close()` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// The next events as packed bytes in an array of their own: `limit` events, fewer only at the end
    /// of the file or before an error, or as many as suit without a limit; `None` at the end.
    #[pyo3(signature = (limit=None))]
    fn read<'py>(&self, py: Python<'py>, limit: Option<usize>) -> PyResult<Option<Bound<'py, PyArray1<u8>>>> {
        loop {
            let read = py.detach(|| self.read_some(limit));
            self.release_if_closed();
            match read {
                Ok(Some((More::Batch, batch))) => {
                    return Ok(Some(PyArray1::from_vec(py, batch.into_flattened())));
                }
                Ok(Some((More::NotYet, _))) => py.check_signals()?,
                Ok(Some((More::End, _))) => return Ok(None),
                Ok(None) => return Err(PyValueError::new_err("the reader is closed")),
                Err(error) => return Err(to_python(error)),
            }
        }
    }

    /// Sees to it that there is an index: the one kept beside the file if there is one that belongs to it, else one made
    /// in a pass over the file and, if `beside`, kept there where that is possible.
    #[pyo3(signature = (beside=false))]
    fn build_index(&self, py: Python<'_>, beside: bool) -> PyResult<()> {
        self.need_index(py, beside).map(drop)
    }

    /// Takes an index that is kept beside the file, if there is one that belongs to it.
    fn load_index(&self, py: Python<'_>) {
        if let Some(index) = py.detach(|| self.kept_index()) {
            *self.index.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(index));
        }
    }

    /// `(events, earliest, latest)` of the whole file, times in µs; `None` while there is no index.
    fn totals(&self, py: Python<'_>) -> Option<(u64, Option<u64>, Option<u64>)> {
        let index = self.index.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        index.as_ref().map(|index| {
            let totals = index.totals();
            (totals.events, totals.times.map(|times| times.0), totals.times.map(|times| times.1))
        })
    }

    /// Goes on at the first event in file order whose time is `t` or later.
    fn seek(&self, py: Python<'_>, t: u64) -> PyResult<()> {
        let index = self.need_index(py, false)?;
        let sought = py.detach(|| {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let open = open.as_mut().filter(|_| !self.closed());
            open.map(|Open { recording, batch }| {
                batch.clear();
                recording.seek(&index, t)
            })
        });
        self.release_if_closed();
        sought.ok_or_else(|| PyValueError::new_err("the reader is closed"))?.map_err(to_python)
    }

    /// The events with `t0 <= t < t1`, in file order, as packed bytes.
    fn slice<'py>(&self, py: Python<'py>, t0: u64, t1: u64) -> PyResult<Bound<'py, PyArray1<u8>>> {
        let index = self.need_index(py, false)?;
        let events =
            self.with_file_again(py, |recording, file, on| recording.slice(&index, file, t0, t1, on))?;
        Ok(PyArray1::from_vec(py, events.into_flattened()))
    }

    /// Closes the file. A read under way in another thread ends first, and closes it then.
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.release_if_closed();
    }
}

impl FileReader {
    /// What came of reading for a while, with the batch if that is complete; `None` once closed.
    fn read_some(&self, limit: Option<usize>) -> Result<Option<(More, Vec<Record>)>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Open { recording, batch }) = open.as_mut().filter(|_| !self.closed()) else {
            return Ok(None);
        };
        let more = recording.next(batch, limit)?;
        let mut batch = if more == More::Batch { std::mem::take(batch) } else { Vec::new() };
        if batch.len() < batch.capacity() / 2 {
            batch.shrink_to_fit();
        }
        Ok(Some((more, batch)))
    }

    /// Takes the recording, which nobody has read from: it is then no longer this reader's to close. `None` if it is
    /// closed or was taken.
    pub fn take(&self) -> Option<Recording<Input>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take().map(|open| open.recording)
    }

    /// The index, made if there is none.
    fn need_index(&self, py: Python<'_>, beside: bool) -> PyResult<Arc<Index>> {
        let known = self.index.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(index) = known {
            if beside {
                py.detach(|| self.kept_index().map_or_else(|| self.keep_index(&index), |_| None));
            }
            return Ok(index);
        }
        if !self.regular {
            return Err(PyValueError::new_err("a pipe cannot be sought in; its events come once"));
        }
        let kept = if beside { py.detach(|| self.kept_index()) } else { None };
        let index = match kept {
            Some(index) => Arc::new(index),
            None => {
                let made = self.with_file_again(py, |recording, file, on| recording.index(file, on))?;
                if beside {
                    py.detach(|| self.keep_index(&made));
                }
                Arc::new(made)
            }
        };
        *self.index.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&index));
        Ok(index)
    }

    /// Does what takes long with the file opened once more, looking for signals meanwhile.
    fn with_file_again<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Fn(&Recording<Input>, File, &mut dyn FnMut() -> Result<(), Error>) -> Result<T, Error> + Sync,
    ) -> PyResult<T> {
        let mut raised = None;
        let done = py.detach(|| {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let recording = match open.as_ref().filter(|_| !self.closed()) {
                Some(open) => &open.recording,
                None => return Err(Error::Malformed("the reader is closed".into())),
            };
            let mut looked = Instant::now();
            let mut on = || {
                if looked.elapsed() > SIGNAL_CHECK {
                    looked = Instant::now();
                    if let Err(error) = Python::attach(|py| py.check_signals()) {
                        raised = Some(error);
                        return Err(Error::Io(ErrorKind::Other.into()));
                    }
                }
                Ok(())
            };
            work(recording, open_file(&self.path)?, &mut on)
        });
        self.release_if_closed();
        match raised {
            Some(error) => Err(error),
            None => done.map_err(to_python),
        }
    }

    fn kept_index(&self) -> Option<Index> {
        index::kept(&self.path, &self.options)
    }

    /// Keeps the index beside the file, where that can be written.
    fn keep_index(&self, index: &Index) -> Option<()> {
        index::keep(index, &self.path, &self.options)
    }

    /// Whether the recording can be read more than once.
    pub fn can_restart(&self) -> bool {
        self.regular
    }

    /// Drops the file if the reader is closed and nobody reads. `close()` sets the flag before it tries,
    /// and whoever it finds reading tries after: one of them gets it.
    fn release_if_closed(&self) {
        if !self.closed.load(Ordering::SeqCst) {
            return;
        }
        match self.open.try_lock() {
            Ok(mut open) => *open = None,
            Err(TryLockError::Poisoned(open)) => *open.into_inner() = None,
            Err(TryLockError::WouldBlock) => {}
        }
    }
}

/// An encoder of one file, whose bytes the caller writes. Threads that use it at the same time take turns.
#[pyclass(frozen, module = "frames2py._core")]
pub struct FileEncoder {
    layouts: Layouts,
    state: Mutex<Encoding>,
}

struct Encoding {
    encoder: Box<dyn Encoder>,
    started: bool,
    /// Events encoded so far.
    events: usize,
}

#[pymethods]
impl FileEncoder {
    #[new]
    #[pyo3(signature = (format, sensor_size, compression=None))]
    fn new(
        py: Python<'_>,
        format: &str,
        sensor_size: (u32, u32),
        compression: Option<&str>,
    ) -> PyResult<Self> {
        let encoder = codec::encoder(format, sensor_size, compression).map_err(to_python)?;
        let state = Mutex::new(Encoding { encoder, started: false, events: 0 });
        Ok(Self { layouts: Layouts::new(py)?, state })
    }

    /// The names of the formats that are written.
    #[staticmethod]
    fn formats() -> Vec<&'static str> {
        codec::WRITTEN.to_vec()
    }

    /// The bytes of these events, which follow those of the call before, and of what comes before the first. Events that
    /// the format cannot hold are a ValueError, and change nothing.
    fn encode<'py>(&self, py: Python<'py>, events: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let array = self.layouts.check(events)?;
        let events = array.events();
        let state = &self.state;
        let encoded = py.detach(move || {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let mut out = Vec::new();
            let encoded = state.encode(&events.to_packed(), &mut out);
            encoded.map(|()| out).map_err(|error| state.counted_on(error))
        });
        let out = encoded.map_err(to_python)?;
        Ok(PyBytes::new(py, &out))
    }

    /// The bytes a file ends with, and what is then to be overwritten, as pairs of a place and bytes.
    #[allow(clippy::type_complexity)]
    fn finish<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyBytes>, Vec<(u64, Bound<'py, PyBytes>)>)> {
        let mut out = Vec::new();
        let patches = py
            .detach(|| {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.start(&mut out);
                state.encoder.finish(&mut out)
            })
            .map_err(to_python)?;
        let patches = patches.into_iter().map(|patch| (patch.at, PyBytes::new(py, &patch.bytes))).collect();
        Ok((PyBytes::new(py, &out), patches))
    }
}

impl Encoding {
    fn start(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.started, true) {
            self.encoder.start(out);
        }
    }

    fn encode(&mut self, records: &[Record], out: &mut Vec<u8>) -> Result<(), Error> {
        let late = records.iter().position(|record| Event::from_record(record).t >= TIMESTAMP_LIMIT);
        if let Some(index) = late {
            let t = Event::from_record(&records[index]).t;
            return Err(codec::unencodable(index, "t", t, "an event", "times below 2**63"));
        }
        // Into memory of its own: what is at the front must not be lost with an event that is refused.
        let mut body = Vec::new();
        self.encoder.encode(records, &mut body)?;
        self.start(out);
        out.append(&mut body);
        self.events += records.len();
        Ok(())
    }

    /// Counts the event at fault from the start of the file.
    fn counted_on(&self, error: Error) -> Error {
        match error {
            Error::Unencodable { index, reason } => Error::Unencodable { index: index + self.events, reason },
            other => other,
        }
    }
}

/// Opens a file for reading; also whether it is a regular one.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let meta = std::fs::metadata(path)?;
    if meta.is_dir() {
        // Said here, as systems differ in what they say and when.
        return Err(ErrorKind::IsADirectory.into());
    }
    Ok((open_file(path)?, meta.is_file()))
}

/// Opens without trying again when a signal comes: opening a pipe may wait for ever.
#[cfg(unix)]
pub fn open_file(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    Ok(File::from(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
}

#[cfg(not(unix))]
pub fn open_file(path: &Path) -> io::Result<File> {
    File::open(path)
}

fn os_error(error: io::Error, path: &Path) -> PyErr {
    const EISDIR: i32 = 21;
    let path = path.as_os_str().to_owned();
    match error.raw_os_error() {
        // OSError makes itself the subclass of the number, the fourth argument being Windows' own.
        Some(number) => {
            let message = error.to_string();
            let message =
                message.strip_suffix(&format!(" (os error {number})")).unwrap_or(&message).to_owned();
            PyOSError::new_err((number, message, path, number))
        }
        None if error.kind() == ErrorKind::IsADirectory => {
            PyIsADirectoryError::new_err((EISDIR, "Is a directory", path))
        }
        // A path with a NUL in it.
        None => PyValueError::new_err(format!("cannot open {path:?}: {error}")),
    }
}

/// The exception for what is wrong with a recording.
pub fn to_python(error: Error) -> PyErr {
    match error {
        // What Python raised comes out as it went in.
        Error::Io(error) => error.downcast::<Owned<PyErr>>().map_or_else(PyErr::from, Owned::into_inner),
        Error::OutOfMemory { .. } => PyMemoryError::new_err(error.to_string()),
        Error::Header(_) | Error::Malformed(_) | Error::Unencodable { .. } => {
            PyValueError::new_err(error.to_string())
        }
    }
}
