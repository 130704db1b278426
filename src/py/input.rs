//! Arguments: sensor sizes, numbers, and arrays of events.
#![allow(unsafe_code)]

use super::array::data_pointer;
use crate::event::{Events, Layout, Strided};
use crate::geometry::SensorSize;
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyMemoryError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple};
use std::sync::{Mutex, PoisonError};

fn type_name(ob: &Bound<'_, PyAny>) -> String {
    ob.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

/// An integer that is not a bool: a Python int, a NumPy one, anything with `__index__`. What that raises comes out.
pub fn integer<'py>(ob: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyInt>>> {
    if ob.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    if let Ok(int) = ob.cast::<PyInt>() {
        return Ok(Some(int.clone()));
    }
    let py = ob.py();
    if !ob.get_type().hasattr(intern!(py, "__index__"))? {
        return Ok(None);
    }
    match py.import(intern!(py, "operator"))?.call_method1(intern!(py, "index"), (ob,)) {
        Ok(index) => Ok(index.cast_into::<PyInt>().ok()),
        // An array of more than one element has the method, too.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A real number that is not a bool, as float64 (±inf if it is too large), and whether it is below zero
/// exactly.
pub fn real(ob: &Bound<'_, PyAny>) -> PyResult<Option<(f64, bool)>> {
    if let Ok(float) = ob.cast::<PyFloat>() {
        let value = float.value();
        return Ok(Some((value, value < 0.0)));
    }
    if ob.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    if !ob.is_instance_of::<PyInt>() {
        let real = ob.py().import("numbers")?.getattr("Real")?;
        if !ob.is_instance(&real)? {
            return Ok(None);
        }
    }
    let negative = ob.lt(0)?;
    let value = match ob.extract::<f64>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(ob.py()) => {
            if negative {
                f64::NEG_INFINITY
            } else {
                f64::INFINITY
            }
        }
        value => value?,
    };
    Ok(Some((value, negative)))
}

/// `sensor_size`: a pair of positive integers `(width, height)`.
pub fn sensor_size(ob: &Bound<'_, PyAny>) -> PyResult<SensorSize> {
    let expected = "sensor_size must be a pair of integers (width, height), each at least 1";
    let wrong = |found: String| format!("{expected}: {found}, got {}", shown(ob));
    let is_sequence = ob.hasattr("__getitem__")? && !ob.hasattr("keys")? && ob.len().is_ok();
    if !is_sequence || ob.is_instance_of::<PyString>() || ob.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err(wrong(format!("{} is no pair", type_name(ob)))));
    }
    let sides = ob.try_iter()?.collect::<PyResult<Vec<_>>>()?;
    let [width, height] = sides.as_slice() else {
        return Err(PyValueError::new_err(wrong(format!("there are {} values", sides.len()))));
    };
    let side = |name: &str, value: &Bound<'_, PyAny>| -> PyResult<usize> {
        let Some(int) = integer(value)? else {
            return Err(PyTypeError::new_err(wrong(format!("{name} is a {}", type_name(value)))));
        };
        if int.lt(1)? {
            return Err(PyValueError::new_err(wrong(format!("{name} is {int}"))));
        }
        int.extract().map_err(|_| {
            PyMemoryError::new_err(format!("sensor_size: a frame of {} cannot be allocated", shown(ob)))
        })
    };
    Ok(SensorSize::new(side("width", width)?, side("height", height)?)?)
}

/// An argument as it is shown in a message.
fn shown(ob: &Bound<'_, PyAny>) -> String {
    ob.repr().map_or_else(|_| type_name(ob), |repr| repr.to_string())
}

/// What dtypes were found to be, so that a stream of like arrays is looked into once.
///
/// A dtype is known by its identity and that of its tuple of names, which can be exchanged in place.
pub struct Layouts {
    packed: KnownDtype,
    last: Mutex<Option<(KnownDtype, Layout)>>,
}

struct KnownDtype {
    descr: Py<PyArrayDescr>,
    names: Py<PyAny>,
}

impl KnownDtype {
    fn new(descr: &Bound<'_, PyArrayDescr>) -> PyResult<Self> {
        Ok(Self {
            names: descr.getattr(intern!(descr.py(), "names"))?.unbind(),
            descr: descr.clone().unbind(),
        })
    }

    fn is(&self, descr: &Bound<'_, PyArrayDescr>) -> PyResult<bool> {
        Ok(self.descr.is(descr) && self.names.is(&descr.getattr(intern!(descr.py(), "names"))?))
    }
}

impl Layouts {
    /// Knows `EVENT_DTYPE`.
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        let dtype = py.import("frames2py._events")?.getattr("EVENT_DTYPE")?.cast_into::<PyArrayDescr>()?;
        Ok(Self { packed: KnownDtype::new(&dtype)?, last: Mutex::new(None) })
    }

    /// Checks an argument's structure, without looking at any value.
    pub fn check<'py>(&self, ob: &Bound<'py, PyAny>) -> PyResult<EventArray<'py>> {
        let py = ob.py();
        let Ok(array) = ob.cast::<PyUntypedArray>() else {
            return Err(PyTypeError::new_err(format!(
                "events must be a structured numpy.ndarray with the fields t, x, y, p, got {}",
                type_name(ob)
            )));
        };
        let descr = array.dtype();
        let layout = if self.packed.is(&descr)? {
            Layout::PACKED
        } else {
            let mut last = self.last.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
            match &*last {
                Some((known, layout)) if known.is(&descr)? => *layout,
                _ => {
                    let layout = layout_of(&descr)?;
                    *last = Some((KnownDtype::new(&descr)?, layout));
                    layout
                }
            }
        };
        if array.ndim() != 1 {
            let shape = PyTuple::new(py, array.shape())?;
            return Err(PyTypeError::new_err(format!("events must be 1-D, got shape {shape}")));
        }
        if !array.is_c_contiguous() {
            return Err(PyTypeError::new_err(
                "events must be C-contiguous, got a strided view: pass numpy.ascontiguousarray(events)",
            ));
        }
        // Taken once: another thread may give the array another dtype or shape at any time.
        let (data, len) = (data_pointer(array), array.len());
        if array.dtype().itemsize() != layout.stride() {
            return Err(PyTypeError::new_err("events: the array's dtype was changed while it was looked at"));
        }
        Ok(EventArray { array: array.clone(), data, len, layout })
    }
}

fn layout_of(descr: &Bound<'_, PyArrayDescr>) -> PyResult<Layout> {
    let py = descr.py();
    if !descr.has_fields() {
        return Err(PyTypeError::new_err(format!(
            "events must be a structured array with the fields t, x, y, p, got dtype {descr}"
        )));
    }
    let field = |name: &str, expected: Bound<'_, PyArrayDescr>| -> PyResult<usize> {
        let Ok((found, offset)) = descr.get_field(name) else {
            let names = descr.getattr("names")?;
            return Err(PyTypeError::new_err(format!(
                "events: field '{name}' is missing, got the fields {names}"
            )));
        };
        if found.is_equiv_to(&expected) && !found.has_subarray() {
            return Ok(offset);
        }
        let text = |d: &Bound<'_, PyArrayDescr>| -> PyResult<String> { d.getattr("str")?.extract() };
        let got = if found.has_subarray() || found.has_fields() { found.to_string() } else { text(&found)? };
        Err(PyTypeError::new_err(format!("events: field '{name}' must be {}, got {got}", text(&expected)?)))
    };
    let dtype = |code: &str| PyArrayDescr::new(py, code);
    let t = field("t", dtype("<u8")?)?;
    let x = field("x", dtype("<u2")?)?;
    let y = field("y", dtype("<u2")?)?;
    let p = field("p", dtype("u1")?)?;
    Layout::new(descr.itemsize(), t, x, y, p)
        .ok_or_else(|| PyTypeError::new_err(format!("events: a field reaches beyond the record of {descr}")))
}

/// The values of a 1-D array that nobody else has, though its memory may be another's. It is to be held as long.
pub fn strided<'a>(array: &'a Bound<'_, PyUntypedArray>) -> PyResult<Strided<'a>> {
    let (&[len], &[stride]) = (array.shape(), array.strides()) else {
        return Err(PyTypeError::new_err("a column must be 1-D"));
    };
    // SAFETY: NumPy's arrays are readable at every index, `stride` bytes apart, for their itemsize, and the reference
    // keeps the memory. Other threads may write to it, which `Strided` allows for.
    Ok(unsafe { Strided::from_raw(data_pointer(array), len, stride, array.dtype().itemsize()) })
}

/// An array of events with a structure that was checked.
pub struct EventArray<'py> {
    array: Bound<'py, PyUntypedArray>,
    data: *const u8,
    len: usize,
    layout: Layout,
}

impl<'py> EventArray<'py> {
    /// How many events.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The records. They belong to the array, which is held as long as `self` is.
    pub fn events(&self) -> Events<'_> {
        // SAFETY: the array is 1-D and C-contiguous and has the layout's itemsize, so it is readable for
        // `len` records; the reference held by `self` keeps its memory. Other threads may write to it, which
        // `Events` allows for.
        unsafe { Events::from_raw(self.data, self.len, self.layout) }
    }

    /// The array itself.
    pub fn array(&self) -> &Bound<'py, PyUntypedArray> {
        &self.array
    }
}
