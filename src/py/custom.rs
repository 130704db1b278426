//! Kernels written in Python, driven by the same engine.
//!
//! Their methods are called on the thread that drives the kernel, attached to the interpreter.

use super::array::{FrameType, copy_bytes};
use super::call::{call, call_method};
use super::owned::Owned;
use crate::error::{Error, Result};
use crate::event::{Columns, Events, Found};
use crate::geometry::SensorSize;
use crate::kernels::{Kernel, WholeCalls};
use crate::publish::Spec;
use numpy::{PyArray1, PyArrayDescr, PyUntypedArray};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::sync::Arc;

/// The Python objects of a kernel and its state.
pub struct PythonKernel {
    kernel: Py<PyAny>,
    state: Py<PyAny>,
}

impl PythonKernel {
    /// Asks the kernel for its frames and for a state.
    pub fn new(kernel: &Bound<'_, PyAny>, sensor: SensorSize) -> PyResult<(SharedKernel, FrameType, Driver)> {
        let py = kernel.py();
        let size = PyTuple::new(py, [sensor.width(), sensor.height()])?;
        let resolve = py.import(intern!(py, "frames2py.kernels._resolve"))?;
        let (shape, dtype): (Vec<usize>, Bound<'_, PyArrayDescr>) =
            call_method(&resolve, intern!(py, "output_spec"), (kernel, &size))?.extract()?;
        let frame_type = FrameType::other(shape, dtype)?;
        let state = call_method(kernel, intern!(py, "init_state"), (size,))?.unbind();
        let python = Arc::new(Owned::new(Self { kernel: kernel.clone().unbind(), state }));
        let (spec, dtype) = (frame_type.spec.clone(), Owned::new(frame_type.descr(py).clone().unbind()));
        let driver = Driver { python: Arc::clone(&python), spec, dtype, sensor };
        Ok((python, frame_type, driver))
    }

    /// Shows the objects to the garbage collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        visit.call(&self.kernel)?;
        visit.call(&self.state)
    }

    /// Lets the kernel write a frame into a new array of zeros.
    pub fn read<'py>(
        &self,
        py: Python<'py>,
        spec: &Spec,
        dtype: &Py<PyArrayDescr>,
        watermark: Option<u64>,
    ) -> PyResult<Bound<'py, PyUntypedArray>> {
        let shape = PyTuple::new(py, &spec.shape)?;
        let zeros = py.import(intern!(py, "numpy"))?.getattr(intern!(py, "zeros"))?;
        let out = call(&zeros, (shape, dtype))?;
        call_method(self.kernel.bind(py), intern!(py, "read"), (&self.state, &out, watermark))?;
        Ok(out.cast_into::<PyUntypedArray>()?)
    }
}

/// These objects, for all who use them. Their last user may be a thread that is not attached.
pub type SharedKernel = Arc<Owned<PythonKernel>>;

/// Drives a Python kernel.
pub struct Driver {
    python: SharedKernel,
    spec: Spec,
    dtype: Owned<Py<PyArrayDescr>>,
    sensor: SensorSize,
}

impl Driver {
    fn call_with_state(&self, method: fn(Python<'_>) -> &Bound<'_, PyString>) -> Result<()> {
        let PythonKernel { kernel, state } = &**self.python;
        Ok(Python::attach(|py| call_method(kernel.bind(py), method(py), (state,)).map(drop))?)
    }
}

impl Kernel for Driver {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn begin_call(&mut self) -> Result<()> {
        self.call_with_state(|py| intern!(py, "begin_call"))
    }

    fn accumulate(&mut self, _events: Columns<'_>, _latest: u64) -> Result<()> {
        unreachable!("a Python kernel takes whole calls")
    }

    fn whole_calls(&mut self) -> Option<&mut dyn WholeCalls> {
        Some(self)
    }

    fn read(&self, out: &mut [u8], watermark: Option<u64>) -> Result<()> {
        Ok(Python::attach(|py| {
            // The kernel fills an array of its own, so one that keeps it cannot write to what is published.
            copy_bytes(&self.python.read(py, &self.spec, &self.dtype, watermark)?, out)
        })?)
    }

    fn close_window(&mut self) -> Result<()> {
        self.call_with_state(|py| intern!(py, "close_window"))
    }

    fn reset(&mut self) -> Result<()> {
        self.call_with_state(|py| intern!(py, "reset"))
    }
}

impl WholeCalls for Driver {
    fn accumulate(&mut self, events: Events<'_>, found: Found, watermark: u64) -> Result<()> {
        let origin = events
            .origin()
            .and_then(|origin| origin.downcast_ref::<Py<PyAny>>())
            .expect("events for a Python kernel come with their array");
        Python::attach(|py| -> PyResult<()> {
            let mut array = origin.bind(py).clone();
            if found.out_of_bounds > 0 {
                let mut inside = Vec::new();
                inside.try_reserve_exact(events.len()).map_err(|_| Error::OutOfMemory {
                    what: "the mask of in-bounds events",
                    bytes: Some(events.len()),
                })?;
                events.for_each_in_bounds(self.sensor, |is_inside| inside.push(is_inside));
                // NumPy's own selection keeps dtype, extra fields and subclass.
                array = array.get_item(PyArray1::from_vec(py, inside))?;
            }
            let PythonKernel { kernel, state } = &**self.python;
            call_method(kernel.bind(py), intern!(py, "accumulate"), (array, state, watermark))?;
            Ok(())
        })?;
        Ok(())
    }
}
