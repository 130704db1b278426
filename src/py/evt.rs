//! EVT files for Python.

use std::fs::File;
use std::io::{self, ErrorKind, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use numpy::PyArray1;
use pyo3::exceptions::{PyIsADirectoryError, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::codec::{Error, Header, HeaderReader, More, Record, Recording, Version};

/// An EVT file being read. Threads that read at the same time take turns.
#[pyclass(frozen, module = "frames2py._core")]
pub struct EvtReader {
    header: Header,
    regular: bool,
    closed: AtomicBool,
    /// `None` once closed or taken.
    open: Mutex<Option<Open>>,
}

struct Open {
    recording: Recording<File>,
    /// The batch being filled; it outlives a call that a signal ended.
    batch: Vec<Record>,
}

#[pymethods]
impl EvtReader {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let (mut file, regular) = loop {
            match py.detach(|| open(&path)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => py.check_signals()?,
                opened => break opened.map_err(|error| os_error(error, &path))?,
            }
        };
        let mut header = HeaderReader::new();
        let (header, ahead) = loop {
            match py.detach(|| header.read(&mut file)) {
                Err(Error::Io(error)) if error.kind() == ErrorKind::Interrupted => py.check_signals()?,
                Err(Error::Io(error)) => return Err(os_error(error, &path)),
                Err(error) => return Err(to_python(error)),
                Ok(found) => break found,
            }
        };
        let decoder = match header.version {
            Version::Evt2 => || Version::Evt2.decoder(),
            Version::Evt21 => || Version::Evt21.decoder(),
            Version::Evt3 => || Version::Evt3.decoder(),
        };
        let start = if regular { Some(file.stream_position()? - ahead.len() as u64) } else { None };
        let recording = Recording::new(decoder, ahead, file, start).map_err(to_python)?;
        Ok(EvtReader {
            header,
            regular,
            closed: AtomicBool::new(false),
            open: Mutex::new(Some(Open { recording, batch: Vec::new() })),
        })
    }

    /// The encoding, as `"EVT 3.0"`.
    #[getter]
    fn format(&self) -> &'static str {
        self.header.version.name()
    }

    /// `(width, height)` as the header states it, or `None`.
    #[getter]
    fn geometry(&self) -> Option<(u32, u32)> {
        self.header.geometry
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

    /// Closes the file. A read under way in another thread ends first, and closes it then.
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.release_if_closed();
    }
}

impl EvtReader {
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
    pub fn take(&self) -> Option<Recording<File>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take().map(|open| open.recording)
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
fn open_file(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    Ok(File::from(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
}

#[cfg(not(unix))]
fn open_file(path: &Path) -> io::Result<File> {
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
        Error::Io(error) => error.into(),
        Error::OutOfMemory { .. } => PyMemoryError::new_err(error.to_string()),
        Error::Header(message) | Error::Malformed(message) => PyValueError::new_err(message),
    }
}
