//! Python objects that may be let go of by any thread, attached to the interpreter or not.
//!
//! PyO3 keeps references that go on a detached thread behind a lock until somebody attaches. A process that is forked
//! while another thread has that lock would find it locked for ever, and a publication is not to wait for a lock. Here
//! such references are put on a list without one.
#![allow(unsafe_code)]

use pyo3::prelude::*;
use std::fmt::{self, Debug, Display, Formatter};
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The list's last entry. Null, or from `Box::into_raw`.
static LEFT: AtomicPtr<Left> = AtomicPtr::new(ptr::null_mut());

struct Left {
    /// Only to be dropped.
    _what: Box<dyn Send>,
    before: *mut Left,
}

/// What holds references to Python objects. They go at once on a thread that Python knows, and else with the next
/// [`drop_left`].
pub struct Owned<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Owned<T> {
    pub const fn new(what: T) -> Self {
        Self(Some(what))
    }

    pub fn into_inner(mut self) -> T {
        self.0.take().expect("taken once, here")
    }
}

impl<T: Send + 'static> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("taken only with all of it")
    }
}

impl<T: Send + 'static> Drop for Owned<T> {
    fn drop(&mut self) {
        let Some(what) = self.0.take() else { return };
        if is_known() {
            drop(what);
        } else {
            leave(Box::new(what));
        }
    }
}

impl<T: Send + Debug> Debug for Owned<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Send + Display> Display for Owned<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Send + std::error::Error> std::error::Error for Owned<T> {}

/// Whether this is one of Python's threads, or a thread of ours that is attached. Python's threads let nothing go while
/// they are detached.
fn is_known() -> bool {
    // SAFETY: callable from any thread, at any time.
    !unsafe { pyo3::ffi::PyGILState_GetThisThreadState() }.is_null()
}

fn leave(what: Box<dyn Send>) {
    let left = Box::into_raw(Box::new(Left { _what: what, before: LEFT.load(Ordering::Relaxed) }));
    loop {
        // SAFETY: from `Box::into_raw` above, and seen by nobody yet.
        let before = unsafe { (*left).before };
        // Release: whoever takes the list sees what is in it.
        match LEFT.compare_exchange_weak(before, left, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            // SAFETY: as above.
            Err(last) => unsafe { (*left).before = last },
        }
    }
}

/// Drops what detached threads left.
pub fn drop_left(_py: Python<'_>) {
    if LEFT.load(Ordering::Relaxed).is_null() {
        return;
    }
    let mut left = LEFT.swap(ptr::null_mut(), Ordering::Acquire);
    while !left.is_null() {
        // SAFETY: from `Box::into_raw`; whoever swaps the list out is the only one to own its entries.
        let entry = unsafe { Box::from_raw(left) };
        left = entry.before;
    }
}
