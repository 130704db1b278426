//! The Python object of a publication: made by its first reader, the same for all of them.
#![allow(unsafe_code)]

use super::owned::Owned;
use crate::publish::{View, Visit};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Holds the object while the publication is the latest. Null, or from `Box::into_raw`.
#[derive(Default)]
pub struct SnapshotView(AtomicPtr<Py<PyAny>>);

impl View for SnapshotView {
    type Taken = Owned<Box<Py<PyAny>>>;

    fn take(&self) -> Option<Self::Taken> {
        let object = self.0.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: what is not null is from `Box::into_raw`, and whoever swaps it out is the only one to own it.
        (!object.is_null()).then(|| Owned::new(unsafe { Box::from_raw(object) }))
    }
}

impl Drop for SnapshotView {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// The object of the visited publication; `make` is called if it has none yet. Where two readers make one at the same
/// time, both get the one that was there first.
pub fn object_of<'py, T>(
    py: Python<'py>,
    visit: &Visit<'_, T, SnapshotView>,
    make: impl FnOnce() -> PyResult<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let view = &visit.view().0;
    let mut object = view.load(Ordering::Acquire);
    if object.is_null() {
        let made = Box::into_raw(Box::new(make()?));
        // Release: whoever sees the pointer sees what it points to.
        match view.compare_exchange(std::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => object = made,
            Err(first) => {
                // SAFETY: from `Box::into_raw` just above, and seen by nobody.
                drop(unsafe { Box::from_raw(made) });
                object = first;
            }
        }
    }
    // SAFETY: the object is taken out only by a thread that has the slot for itself, which cannot be while it is visited.
    Ok(unsafe { &*object }.bind(py).clone())
}
