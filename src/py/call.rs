//! Calls of Python code from threads that may be ended in the middle of it.
//!
//! When an interpreter goes away it ends the daemon threads that run Python code. Before CPython 3.14 it did so by
//! `pthread_exit`, from deep inside the call: glibc then unwinds the thread's stack, which the frames of Rust in between do
//! not allow, and the process aborts at exit. From 3.14 on CPython has the thread sleep for ever instead. So do these
//! calls, as PyO3 does where a thread comes back to the interpreter.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

/// Stops the thread for good where its stack is unwound.
struct Sleep;

impl Drop for Sleep {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Calls `callable`, which may be Python code, or a class whose constructor is.
pub fn call<'py, A>(callable: &Bound<'py, PyAny>, args: A) -> PyResult<Bound<'py, PyAny>>
where
    A: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error: Into<PyErr>>,
{
    type Object = *mut ffi::PyObject;
    type Call = unsafe extern "C" fn(Object, Object, Object) -> Object;
    type UnwindingCall = unsafe extern "C-unwind" fn(Object, Object, Object) -> Object;

    let py = callable.py();
    let args = args.into_pyobject(py).map_err(Into::into)?;
    // SAFETY: the two types say the same of how the function is called, and the second more of how it may end.
    let call = unsafe { std::mem::transmute::<Call, UnwindingCall>(ffi::PyObject_Call) };
    // Without this the compiler sees which function it is, and that it was declared not to unwind.
    let call = std::hint::black_box(call);
    let sleep = Sleep;
    // SAFETY: attached to the interpreter, an object, a tuple, and no keywords. The result is a new reference, or null with
    // an exception set.
    let result = unsafe { call(callable.as_ptr(), args.as_ptr(), std::ptr::null_mut()) };
    std::mem::forget(sleep);
    // SAFETY: as just said.
    unsafe { Bound::from_owned_ptr_or_err(py, result) }
}

/// Calls a method.
pub fn call_method<'py, A>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    args: A,
) -> PyResult<Bound<'py, PyAny>>
where
    A: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error: Into<PyErr>>,
{
    call(&object.getattr(name)?, args)
}
