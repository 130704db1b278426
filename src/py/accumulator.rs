//! `frames2py.Accumulator`.

use super::array::FrameType;
use super::custom::SharedKernel;
use super::engine::DETACH_FROM;
use super::input::Layouts;
use super::kernel;
use crate::accumulator::Accumulator as Core;
use crate::error::Result;
use crate::exclusive::{Exclusive, Held};
use numpy::PyUntypedArray;
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyDict, PyTuple};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Turns events into one frame, synchronously: no threads, no publication.
///
/// Calls from several threads run one at a time.
///
/// Parameters
/// ----------
/// sensor_size : tuple[int, int]
///     `(width, height)` in pixels, each at least 1.
/// kernel : str or Kernel
///     `"event_count"`, `"polarity"`, `"time_surface"`, or an instance of a kernel, of this package or your
///     own.
///
/// Raises
/// ------
/// TypeError
///     `sensor_size` is not a pair of integers, or `kernel` is not a kernel (a class instead of an instance,
///     say).
/// ValueError
///     A side is below 1, there are not two, or no kernel has this name.
/// MemoryError
///     The kernel's state cannot be allocated.
#[pyclass(frozen, subclass, weakref, dict, module = "frames2py")]
pub struct Accumulator(OnceLock<Inner>);

/// What `__init__` makes.
struct Inner {
    core: Exclusive<Core>,
    /// What the two properties say: stored under the lock, read without. No watermark is `NONE`.
    watermark: AtomicU64,
    out_of_bounds: AtomicU64,
    frame_type: FrameType,
    python: Option<SharedKernel>,
    layouts: Layouts,
}

/// Larger than any watermark.
const NONE: u64 = u64::MAX;

impl Accumulator {
    /// What `__init__` made. A subclass may have left that out.
    fn ready(&self) -> PyResult<&Inner> {
        self.0.get().ok_or_else(|| PyRuntimeError::new_err("Accumulator.__init__() was not called"))
    }
}

impl Inner {
    /// Runs `work` alone and attached.
    fn with<T>(
        &self,
        py: Python<'_>,
        call: &'static str,
        work: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Result<T> {
        self.work(self.core.hold(call, |m| m.lock_py_attached(py))?, work)
    }

    fn work<T>(&self, mut core: Held<'_, Core>, work: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        let result = core.guarded(work);
        self.watermark.store(core.watermark().unwrap_or(NONE), Ordering::Relaxed);
        self.out_of_bounds.store(core.out_of_bounds(), Ordering::Relaxed);
        result
    }
}

#[pymethods]
impl Accumulator {
    /// Makes an Accumulator that `__init__` fills in, so that a subclass may have a constructor of its own.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(sensor_size, kernel)")]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self(OnceLock::new())
    }

    #[pyo3(signature = (sensor_size, kernel))]
    fn __init__(
        &self,
        py: Python<'_>,
        sensor_size: &Bound<'_, PyAny>,
        kernel: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (core, frame_type, python) = kernel::accumulator(sensor_size, kernel)?;
        let inner = Inner {
            core: Exclusive::new(core),
            watermark: AtomicU64::new(NONE),
            out_of_bounds: AtomicU64::new(0),
            frame_type,
            python,
            layouts: Layouts::new(py)?,
        };
        self.0.set(inner).map_err(|_| PyRuntimeError::new_err("Accumulator.__init__() was called twice"))
    }

    /// Takes a call's events in, or rejects the call whole.
    ///
    /// Parameters
    /// ----------
    /// events : numpy.ndarray
    ///     1-D, C-contiguous, structured, with the fields of `EVENT_DTYPE` (more fields and any order are
    ///     fine). Times are in µs. Events outside the sensor are counted and otherwise ignored.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     The array's structure is not that. The message names the field.
    /// ValueError
    ///     An event has `t >= 2**63`.
    fn accumulate(&self, py: Python<'_>, events: &Bound<'_, PyAny>) -> PyResult<()> {
        let this = self.ready()?;
        let array = this.layouts.check(events)?;
        if this.python.is_some() {
            kernel::with_events(&array, |events| {
                this.with(py, "accumulate", |core| core.accumulate(events))
            })?;
        } else if array.len() < DETACH_FROM {
            let events = array.events();
            this.with(py, "accumulate", |core| core.accumulate(events))?;
        } else {
            let events = array.events();
            py.detach(move || {
                this.work(this.core.hold("accumulate", Mutex::lock)?, |core| core.accumulate(events))
            })?;
        }
        Ok(())
    }

    /// The frame at the watermark. Changes nothing.
    ///
    /// Returns
    /// -------
    /// numpy.ndarray
    ///     A new writable C-contiguous array of the kernel's shape and dtype.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyUntypedArray>> {
        let this = self.ready()?;
        if let Some(python) = &this.python {
            let dtype = this.frame_type.descr(py).as_unbound();
            return Ok(this.with(py, "read", |core| {
                Ok(python.read(py, &this.frame_type.spec, dtype, core.watermark())?)
            })?);
        }
        this.frame_type
            .filled(py, |bytes| this.with(py, "read", |core| core.kernel().read(bytes, core.watermark())))
    }

    /// The largest timestamp of the in-bounds events so far, in µs; None before the first.
    #[getter]
    fn watermark(&self) -> PyResult<Option<u64>> {
        let watermark = self.ready()?.watermark.load(Ordering::Relaxed);
        Ok((watermark != NONE).then_some(watermark))
    }

    /// Events of accepted calls that were outside the sensor.
    #[getter]
    fn events_out_of_bounds(&self) -> PyResult<u64> {
        Ok(self.ready()?.out_of_bounds.load(Ordering::Relaxed))
    }

    /// Back to the state of a new Accumulator.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        let this = self.ready()?;
        Ok(this.with(py, "reset", Core::reset)?)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        self.0.get().and_then(|this| this.python.as_ref()).map_or(Ok(()), |python| python.traverse(&visit))
    }
}
