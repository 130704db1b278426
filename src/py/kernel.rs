//! The seven kernels as Python sees them: a configuration, and its state for whoever drives a kernel by hand.

use super::array::FrameType;
use super::custom::{PythonKernel, SharedKernel};
use super::input::{EventArray, Layouts, integer, sensor_size};
use crate::accumulator::Accumulator;
use crate::error::Error;
use crate::event::{Block, Call, TIMESTAMP_LIMIT};
use crate::geometry::SensorSize;
use crate::kernels::{Config, Kernel};
use numpy::{PyArrayDescr, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyTuple;
use std::sync::{Mutex, PoisonError};

/// One of the seven kernels with its parameters.
#[pyclass(frozen, module = "frames2py._core")]
pub struct NativeKernel(pub Config);

/// The state of one of the seven kernels.
#[pyclass(frozen, module = "frames2py._core")]
pub struct KernelState {
    config: Config,
    sensor: SensorSize,
    layouts: Layouts,
    inner: Mutex<(Box<dyn Kernel>, Block)>,
}

#[pymethods]
impl NativeKernel {
    #[staticmethod]
    fn event_count() -> Self {
        Self(Config::EventCount)
    }

    #[staticmethod]
    fn polarity() -> Self {
        Self(Config::Polarity)
    }

    #[staticmethod]
    fn time_surface() -> Self {
        Self(Config::TimeSurface)
    }

    #[staticmethod]
    fn exp_decay(decay: f64) -> Self {
        Self(Config::ExpDecay { decay })
    }

    #[staticmethod]
    fn timestamp_decay(tau_us: f64) -> Self {
        Self(Config::TimestampDecay { tau_us })
    }

    #[staticmethod]
    fn stacked_histogram(bins: usize, bin_us: u64) -> Self {
        Self(Config::StackedHistogram { bins, bin_us })
    }

    #[staticmethod]
    fn voxel_grid(bins: usize, bin_us: u64) -> Self {
        Self(Config::VoxelGrid { bins, bin_us })
    }

    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    #[pyo3(name = "output_spec")]
    fn py_output_spec<'py>(
        &self,
        py: Python<'py>,
        sensor_size: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyArrayDescr>)> {
        let frame_type = FrameType::native(py, self.0.spec(super::input::sensor_size(sensor_size)?));
        Ok((PyTuple::new(py, &frame_type.spec.shape)?, frame_type.descr(py).clone()))
    }

    fn init_state(&self, py: Python<'_>, sensor_size: &Bound<'_, PyAny>) -> PyResult<KernelState> {
        let sensor = super::input::sensor_size(sensor_size)?;
        let inner = Mutex::new((self.0.build(sensor)?, Block::default()));
        Ok(KernelState { config: self.0, sensor, layouts: Layouts::new(py)?, inner })
    }

    fn begin_call(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.with(py, state, |kernel| kernel.begin_call())
    }

    fn accumulate(
        &self,
        py: Python<'_>,
        events: &Bound<'_, PyAny>,
        state: &Bound<'_, PyAny>,
        watermark: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let watermark = time("watermark", watermark)?;
        let this = self.state(state)?;
        let array = this.layouts.check(events)?;
        let mut inner = this.inner.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let (kernel, block) = &mut *inner;
        let needs = kernel.needs();
        let mut call =
            Call::check(array.events(), this.sensor, block, needs).map_err(|t| Error::Timestamp { t })?;
        let found = call.count();
        if found.out_of_bounds > 0 {
            return Err(PyValueError::new_err(format!(
                "events: a kernel takes in-bounds events only, got {} outside the sensor {}",
                found.out_of_bounds, this.sensor
            )));
        }
        call.for_each_block(|columns, latest| {
            kernel.accumulate(columns, latest.max(watermark.unwrap_or(0)))
        })?;
        Ok(())
    }

    fn read(
        &self,
        py: Python<'_>,
        state: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        watermark: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let watermark = time("watermark", watermark)?;
        let this = self.state(state)?;
        let frame_type = FrameType::native(py, this.config.spec(this.sensor));
        let Ok(array) = out.cast::<PyUntypedArray>() else {
            return Err(PyTypeError::new_err(format!(
                "out must be a numpy.ndarray, got {}",
                out.get_type().name()?
            )));
        };
        if array.shape() != frame_type.spec.shape {
            return Err(PyValueError::new_err(format!(
                "out must have shape {}, got {}",
                PyTuple::new(py, &frame_type.spec.shape)?,
                PyTuple::new(py, array.shape())?
            )));
        }
        let frame = frame_type.filled(py, |bytes| {
            this.inner.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).0.read(bytes, watermark)
        })?;
        // NumPy's own assignment: converts, follows strides, refuses what is read-only.
        out.set_item(py.Ellipsis(), frame)
    }

    fn close_window(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.with(py, state, |kernel| kernel.close_window())
    }

    fn reset(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.with(py, state, |kernel| kernel.reset())
    }
}

impl NativeKernel {
    fn state<'a>(&self, state: &'a Bound<'_, PyAny>) -> PyResult<&'a KernelState> {
        let Ok(state) = state.cast::<KernelState>() else {
            return Err(PyTypeError::new_err(format!(
                "state must be what init_state() of this kernel returned, got {}",
                state.get_type().name()?
            )));
        };
        let state = state.get();
        if state.config != self.0 {
            return Err(PyTypeError::new_err(format!(
                "state must be of this kernel ({:?}), got one of {:?}",
                self.0, state.config
            )));
        }
        Ok(state)
    }

    fn with(
        &self,
        py: Python<'_>,
        state: &Bound<'_, PyAny>,
        work: impl FnOnce(&mut dyn Kernel) -> crate::error::Result<()>,
    ) -> PyResult<()> {
        let this = self.state(state)?;
        let mut inner = this.inner.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        Ok(work(&mut *inner.0)?)
    }
}

/// A time in µs, or `None`.
fn time(name: &str, ob: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if ob.is_none() {
        return Ok(None);
    }
    let Some(int) = integer(ob)? else {
        return Err(PyTypeError::new_err(format!(
            "{name} must be an integer or None, got {}",
            ob.get_type().name()?
        )));
    };
    match int.extract::<u64>() {
        Ok(t) if t < TIMESTAMP_LIMIT => Ok(Some(t)),
        _ => Err(PyValueError::new_err(format!("{name} must be in [0, 2**63), got {int}"))),
    }
}

/// The `kernel` argument of whoever drives one: native if it is one of the seven as they are, else by the
/// protocol.
pub struct Driven {
    /// What drives it.
    pub kernel: Box<dyn Kernel>,
    /// Its frames.
    pub frame_type: FrameType,
    /// The Python objects of a kernel that is not native.
    pub python: Option<SharedKernel>,
}

impl Driven {
    /// Checks the argument and makes the initial state.
    pub fn new(kernel: &Bound<'_, PyAny>, sensor: SensorSize) -> PyResult<Self> {
        let py = kernel.py();
        let kernel = py.import("frames2py.kernels._resolve")?.getattr("resolve")?.call1((kernel,))?;
        if let Ok(native) = kernel.cast::<NativeKernel>() {
            let config = native.get().0;
            let frame_type = FrameType::native(py, config.spec(sensor));
            return Ok(Self { kernel: config.build(sensor)?, frame_type, python: None });
        }
        let (python, frame_type, driver) = PythonKernel::new(&kernel, sensor)?;
        Ok(Self { kernel: Box::new(driver), frame_type, python: Some(python) })
    }
}

/// Events of a call with what a Python kernel needs to see them as they came.
pub fn with_events<R>(array: &EventArray<'_>, work: impl FnOnce(crate::event::Events<'_>) -> R) -> R {
    let origin: Py<PyAny> = array.array().clone().into_any().unbind();
    work(array.events().with_origin(&origin))
}

/// The sensor argument and an accumulator for it.
pub fn accumulator(
    sensor: &Bound<'_, PyAny>,
    kernel: &Bound<'_, PyAny>,
) -> PyResult<(Accumulator, FrameType, Option<SharedKernel>)> {
    let sensor = sensor_size(sensor)?;
    let Driven { kernel, frame_type, python } = Driven::new(kernel, sensor)?;
    Ok((Accumulator::new(sensor, kernel), frame_type, python))
}
