//! What asyncio readers need of an Engine. How they use it is in `_asyncio.py`, which is loaded when first
//! needed: not everybody wants asyncio.

use super::engine::Engine;
use super::view::SnapshotView;
use crate::publish::{Bell, Pool, Publication};
use crate::signal::{Receiver, signal};
use pyo3::intern;
use pyo3::prelude::*;
use std::sync::Arc;
use std::task::Waker;

/// The Python side.
pub fn python(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import(intern!(py, "frames2py._asyncio"))
}

/// Makes a socket readable at an Engine's next publication. Does not keep the Engine. Dropping it disarms it
/// and closes its end of the connection.
#[pyclass(frozen, module = "frames2py._core")]
pub struct Alarm {
    pool: Arc<Pool<Publication, SnapshotView>>,
    bell: Arc<Bell>,
    waker: Waker,
}

#[pymethods]
impl Alarm {
    /// An alarm, and the socket: a non-blocking stream socket's handle, which from now on is the caller's.
    #[staticmethod]
    fn open(py: Python<'_>, engine: &Bound<'_, Engine>) -> PyResult<(Py<Self>, RawReceiver)> {
        let publisher = engine.get().ready()?.core().publisher();
        let (waker, receiver) = signal()?;
        let (pool, bell) = (Arc::clone(publisher.pool()), Arc::clone(publisher.bell()));
        Ok((Py::new(py, Self { pool, bell, waker })?, into_raw(receiver)))
    }

    /// Sets it off at the next publication, once. Whoever does not want to miss one looks for it after this.
    fn arm(&self) {
        self.bell.arm(&self.waker);
    }

    /// The latest publication's sequence; 0 if none is up.
    #[getter]
    fn latest(&self) -> u64 {
        self.pool.latest_sequence()
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.bell.disarm(&self.waker);
    }
}

#[cfg(unix)]
type RawReceiver = std::os::fd::RawFd;
#[cfg(windows)]
type RawReceiver = std::os::windows::io::RawSocket;

#[cfg(unix)]
fn into_raw(receiver: Receiver) -> RawReceiver {
    std::os::fd::IntoRawFd::into_raw_fd(receiver)
}

#[cfg(windows)]
fn into_raw(receiver: Receiver) -> RawReceiver {
    std::os::windows::io::IntoRawSocket::into_raw_socket(receiver)
}

/// The arguments of a wait, checked on the thread that waits: the sequence (0 for None) and the seconds (None
/// for ever).
#[pyfunction]
pub fn wait_arguments(
    engine: &Bound<'_, Engine>,
    sequence: &Bound<'_, PyAny>,
    timeout: Option<&Bound<'_, PyAny>>,
) -> PyResult<(u64, Option<f64>)> {
    let (sequence, timeout) = engine.get().ready()?.wait_arguments(sequence, timeout)?;
    Ok((sequence.unwrap_or(0), timeout.map(|timeout| timeout.as_secs_f64())))
}

/// The latest snapshot, if its sequence is greater.
#[pyfunction]
pub fn newer<'py>(engine: &Bound<'py, Engine>, sequence: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
    engine.get().ready()?.newer(engine.py(), Some(sequence))
}

/// What `_asyncio.py` keeps with an Engine; `make` makes it the first time.
#[pyfunction]
pub fn listeners<'py>(engine: &Bound<'py, Engine>, make: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = engine.py();
    let listeners =
        engine.get().ready()?.listeners().get_or_try_init(py, || make.call0().map(Bound::unbind))?;
    Ok(listeners.bind(py).clone())
}
