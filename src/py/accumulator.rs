//! `frames2py.Accumulator`.

use super::array::FrameType;
use super::custom::PythonKernel;
use super::engine::DETACH_FROM;
use super::input::Layouts;
use super::kernel;
use crate::accumulator::Accumulator as Core;
use crate::error::Result;
use crate::exclusive::Exclusive;
use numpy::PyUntypedArray;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use std::sync::{Arc, Mutex};

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
pub struct Accumulator {
    core: Exclusive<Core>,
    frame_type: FrameType,
    python: Option<Arc<PythonKernel>>,
    layouts: Layouts,
}

impl Accumulator {
    /// Runs `work` alone and attached.
    fn with<T>(
        &self,
        py: Python<'_>,
        call: &'static str,
        work: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Result<T> {
        self.core.hold(call, |m| m.lock_py_attached(py))?.guarded(work)
    }
}

#[pymethods]
impl Accumulator {
    #[new]
    #[pyo3(signature = (sensor_size, kernel))]
    fn new(py: Python<'_>, sensor_size: &Bound<'_, PyAny>, kernel: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (core, frame_type, python) = kernel::accumulator(sensor_size, kernel)?;
        Ok(Self { core: Exclusive::new(core), frame_type, python, layouts: Layouts::new(py)? })
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
        let array = self.layouts.check(events)?;
        if self.python.is_some() {
            kernel::with_events(&array, |events| {
                self.with(py, "accumulate", |core| core.accumulate(events))
            })?;
        } else if array.len() < DETACH_FROM {
            let events = array.events();
            self.with(py, "accumulate", |core| core.accumulate(events))?;
        } else {
            let events = array.events();
            py.detach(move || {
                self.core.hold("accumulate", Mutex::lock)?.guarded(|core| core.accumulate(events))
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
        if let Some(python) = &self.python {
            let dtype = self.frame_type.descr(py).as_unbound();
            return Ok(self.with(py, "read", |core| {
                Ok(python.read(py, &self.frame_type.spec, dtype, core.watermark())?)
            })?);
        }
        self.frame_type
            .filled(py, |bytes| self.with(py, "read", |core| core.kernel().read(bytes, core.watermark())))
    }

    /// The largest timestamp of the in-bounds events so far, in µs; None before the first.
    #[getter]
    fn watermark(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.with(py, "watermark", |core| Ok(core.watermark()))?)
    }

    /// Events of accepted calls that were outside the sensor.
    #[getter]
    fn events_out_of_bounds(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.with(py, "events_out_of_bounds", |core| Ok(core.out_of_bounds()))?)
    }

    /// Back to the state of a new Accumulator.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.with(py, "reset", Core::reset)?)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        self.python.as_ref().map_or(Ok(()), |python| python.traverse(&visit))
    }
}
