//! NumPy arrays over memory of ours. The only file that calls NumPy's C API.
//!
//! A published frame is an ndarray made without the writeable flag whose base is an object that exports no
//! buffer, so NumPy refuses to set the flag on it or on any view of it. The base owns a share of the memory:
//! the array outlives whatever it came from.
#![allow(unsafe_code)]

use super::view::SnapshotView;
use crate::publish::{Element, Lease, Memory, Publication, Spec};
use numpy::npyffi::{
    NPY_ARRAY_CARRAY, NPY_ARRAY_CARRAY_RO, NpyTypes, PyArrayObject, flags, get_type_object, npy_intp,
};
use numpy::{PY_ARRAY_API, PyArrayDescr, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyUntypedArray};
use numpy::{PyUntypedArrayMethods, dtype};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};

/// A frame type as NumPy sees it.
pub struct FrameType {
    /// Shape and element.
    pub spec: Spec,
    /// The dtype of one element: no objects, no sub-array, itemsize as in `spec`.
    descr: Py<PyArrayDescr>,
}

impl FrameType {
    /// The frame type of a kernel of ours.
    pub fn native(py: Python<'_>, spec: Spec) -> Self {
        let descr = match spec.element {
            Element::U32 => dtype::<u32>(py),
            Element::U64 => dtype::<u64>(py),
            Element::F32 => dtype::<f32>(py),
            Element::Opaque(_) => unreachable!("kernels of ours have NumPy's own types"),
        };
        Self { spec, descr: descr.unbind() }
    }

    /// Any other frame type.
    pub fn other(shape: Vec<usize>, descr: Bound<'_, PyArrayDescr>) -> PyResult<Self> {
        if descr.has_object() {
            return Err(PyTypeError::new_err(format!(
                "a frame's dtype must not hold Python objects, got {descr}"
            )));
        }
        if descr.has_subarray() {
            return Err(PyTypeError::new_err(format!(
                "a frame's dtype must not be a sub-array, got {descr}"
            )));
        }
        let spec = Spec { shape, element: Element::Opaque(descr.itemsize()) };
        Ok(Self { spec, descr: descr.unbind() })
    }

    /// The dtype.
    pub fn descr<'py>(&self, py: Python<'py>) -> &Bound<'py, PyArrayDescr> {
        self.descr.bind(py)
    }

    fn dims(&self) -> PyResult<Vec<npy_intp>> {
        if self.spec.shape.len() > 64 {
            return Err(PyValueError::new_err(format!(
                "a frame has at most 64 axes, got {}",
                self.spec.shape.len()
            )));
        }
        self.spec
            .shape
            .iter()
            .map(|&side| {
                npy_intp::try_from(side).map_err(|_| PyValueError::new_err("a frame's axis is too long"))
            })
            .collect()
    }

    /// An array of this type. `data` null: new memory of NumPy's, content undefined.
    ///
    /// # Safety
    ///
    /// - `data` must be null, or valid for reads (and writes, if `flags` says writeable) of one frame, page-aligned, for
    ///   as long as `base` lives.
    /// - `base` must be given if `data` is.
    unsafe fn make<'py>(
        &self,
        py: Python<'py>,
        data: *mut c_void,
        flags: c_int,
        base: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyUntypedArray>> {
        debug_assert_eq!(data.is_null(), base.is_none());
        let mut dims = self.dims()?;
        let descr = self.descr.clone_ref(py).into_ptr().cast();
        // SAFETY: `descr` is a new reference, which the call takes over; `dims` has as many entries as said;
        // null strides mean C order; `data` is the caller's promise. The result is a new reference or null
        // with an exception set.
        let array = unsafe {
            let array = PY_ARRAY_API.PyArray_NewFromDescr(
                py,
                get_type_object(py, NpyTypes::PyArray_Type),
                descr,
                dims.len() as c_int,
                dims.as_mut_ptr(),
                std::ptr::null_mut(),
                data,
                flags,
                std::ptr::null_mut(),
            );
            Bound::from_owned_ptr_or_err(py, array)?
        };
        if let Some(base) = base {
            // SAFETY: `array` is an ndarray that was just made and has no base; the call takes `base` over,
            // also when it fails.
            let status = unsafe {
                PY_ARRAY_API.PyArray_SetBaseObject(
                    py,
                    array.as_ptr().cast::<PyArrayObject>(),
                    base.into_ptr(),
                )
            };
            if status < 0 {
                return Err(PyErr::fetch(py));
            }
        }
        Ok(array.cast_into::<PyUntypedArray>()?)
    }

    /// A read-only array over a published frame.
    pub fn published<'py>(
        &self,
        py: Python<'py>,
        lease: Lease<Publication, SnapshotView>,
    ) -> PyResult<Bound<'py, PyUntypedArray>> {
        let data = lease.frame.memory()?.bytes().as_ptr().cast_mut().cast();
        let owner = Bound::new(py, FrameOwner { _lease: lease })?.into_any();
        // SAFETY: the lease in `owner` keeps the memory, which holds one frame of this spec, is page-aligned and is
        // not written while it is leased.
        unsafe { self.make(py, data, NPY_ARRAY_CARRAY_RO, Some(owner)) }
    }

    /// A new array that `fill` writes whole. It is given one frame's bytes, content undefined but
    /// initialised.
    pub fn filled<'py>(
        &self,
        py: Python<'py>,
        fill: impl FnOnce(&mut [u8]) -> crate::error::Result<()>,
    ) -> PyResult<Bound<'py, PyUntypedArray>> {
        // SAFETY: no data, no base: NumPy allocates.
        let array = unsafe { self.make(py, std::ptr::null_mut(), 0, None)? };
        let bytes = self.spec.bytes().unwrap_or(0);
        if bytes > 0 {
            let data = data_pointer(&array).cast_mut();
            // SAFETY: the array was just made with this many bytes and nobody else knows it. They are written
            // before the slice is formed, as a slice of uninitialised memory may not exist. NumPy aligns to
            // 16 bytes at least.
            let bytes = unsafe {
                std::ptr::write_bytes(data, 0, bytes);
                std::slice::from_raw_parts_mut(data, bytes)
            };
            fill(bytes)?;
        }
        Ok(array)
    }
}

/// Where an array's first element is. The memory may be written by anybody at any time.
pub fn data_pointer(array: &Bound<'_, PyUntypedArray>) -> *const u8 {
    // SAFETY: only the pointer is taken, and that does not depend on the element type.
    unsafe { array.cast_unchecked::<PyArrayDyn<u8>>() }.data()
}

/// Copies the bytes of a C-contiguous array that code of others has filled, if it has just as many.
pub fn copy_bytes(array: &Bound<'_, PyUntypedArray>, out: &mut [u8]) -> PyResult<()> {
    let bytes = array.len() * array.dtype().itemsize();
    if !array.is_c_contiguous() || bytes != out.len() {
        return Err(PyValueError::new_err("a kernel's frame changed its size while it was read"));
    }
    if bytes > 0 {
        // SAFETY: a C-contiguous array is readable for its number of bytes, which is the slice's length; the
        // two are different allocations.
        unsafe { std::ptr::copy_nonoverlapping(data_pointer(array), out.as_mut_ptr(), bytes) };
    }
    Ok(())
}

/// The base of a published frame's array: a share of its memory, and nothing that could be written through.
#[pyclass(frozen, module = "frames2py._core")]
struct FrameOwner {
    _lease: Lease<Publication, SnapshotView>,
}

/// Memory for one frame that a publisher of the user's own fills and then seals.
#[pyclass(frozen, module = "frames2py._core")]
pub struct WritableFrame {
    /// Only through arrays: nothing in Rust looks at it again.
    _memory: Memory,
    data: Data,
    frame_type: FrameType,
}

/// Where a frame's memory is.
struct Data(*mut c_void);

// SAFETY: the pointer is only handed to NumPy, together with what keeps the memory.
unsafe impl Send for Data {}
// SAFETY: as above.
unsafe impl Sync for Data {}

#[pymethods]
impl WritableFrame {
    /// A new array over the memory, writable or not. The base of both is this object.
    fn array<'py>(slf: &Bound<'py, Self>, writeable: bool) -> PyResult<Bound<'py, PyUntypedArray>> {
        let this = slf.get();
        let flags: c_int = if writeable { NPY_ARRAY_CARRAY } else { NPY_ARRAY_CARRAY_RO };
        debug_assert_eq!(flags & flags::NPY_ARRAY_WRITEABLE != 0, writeable);
        // SAFETY: the base is this object, which owns the memory: one frame, page-aligned, in pages that were
        // mapped writable. No reference to its content exists in Rust beyond this expression.
        unsafe { this.frame_type.make(slf.py(), this.data.0, flags, Some(slf.clone().into_any())) }
    }
}

/// Memory for one frame of any dtype without Python objects.
#[pyfunction]
pub fn new_frame(shape: Vec<usize>, dtype: Bound<'_, PyArrayDescr>) -> PyResult<WritableFrame> {
    let frame_type = FrameType::other(shape, dtype)?;
    frame_type.dims()?;
    let mut memory = Memory::zeroed("a frame", frame_type.spec.bytes())?;
    let data = Data(memory.bytes_mut().as_mut_ptr().cast());
    Ok(WritableFrame { _memory: memory, data, frame_type })
}
