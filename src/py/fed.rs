//! A recording that Python reads, fed to a playback: HDF5 and NumPy files.
//!
//! The thread that reads ahead attaches to the interpreter for each batch, and for closing the file. Nobody who is
//! attached waits for that thread. It may be attached at any time, not only while a piece is handed over, so exit waits
//! for it at a [`Gate`].

use super::owned::Owned;
use crate::codec::{self, More, Record, reserve};
use crate::play::Source;
use numpy::{PyArray1, PyArrayMethods};
use pyo3::intern;
use pyo3::prelude::*;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Events that are read in one go, where batches are to have a size. Attaching costs little beside them.
pub const BATCH: usize = 64 * 1024;

/// What a thread passes to attach to the interpreter, until that exits.
#[derive(Default)]
pub struct Gate {
    inside: AtomicUsize,
    shut: AtomicBool,
}

impl Gate {
    /// Attaches, unless it is shut.
    fn pass<T>(&self, work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
        /// Also when the work panics.
        struct Inside<'a>(&'a AtomicUsize);
        impl Drop for Inside<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.inside.fetch_add(1, Ordering::SeqCst);
        let _inside = Inside(&self.inside);
        // Who shuts it looks at the number after that, in the same order.
        if self.shut.load(Ordering::SeqCst) { None } else { Python::try_attach(work) }
    }

    /// Lets nobody in any more.
    pub fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }

    /// Waits until nobody is inside, and says whether that is so.
    pub fn wait_empty(&self, deadline: Instant) -> bool {
        while self.inside.load(Ordering::SeqCst) > 0 {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

/// What Python reads: an object with `read(limit)`, `restart()` and `close()`. It is closed when this is dropped.
pub struct Fed {
    /// `None` only in the end.
    file: Option<Py<PyAny>>,
    size: Option<usize>,
    gate: Arc<Gate>,
}

impl Fed {
    /// Batches of `size` events; `None` for as many as suit.
    pub fn new(file: Py<PyAny>, size: Option<usize>, gate: Arc<Gate>) -> Self {
        Self { file: Some(file), size, gate }
    }

    /// `None` once the interpreter is going away.
    fn ask<T>(&self, ask: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Option<Result<T, codec::Error>> {
        let file = self.file.as_ref()?;
        // What Python raised comes out of the `io::Error` as it went in.
        self.gate.pass(|py| {
            ask(file.bind(py)).map_err(|error| codec::Error::Io(io::Error::other(Owned::new(error))))
        })
    }
}

impl Source for Fed {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<More, codec::Error> {
        let size = self.size;
        let read = self.ask(|file| {
            let read = file.call_method1(intern!(file.py(), "read"), (size,))?;
            if read.is_none() {
                return Ok(More::End);
            }
            let packed = read.cast::<PyArray1<u8>>()?.readonly();
            let (records, _) = packed.as_slice()?.as_chunks();
            reserve(batch, records.len()).map_err(super::codec::to_python)?;
            batch.extend_from_slice(records);
            Ok(More::Batch)
        });
        // It was told to stop before.
        read.unwrap_or(Ok(More::NotYet))
    }

    fn restart(&mut self) -> Result<(), codec::Error> {
        let restarted = self.ask(|file| file.call_method0(intern!(file.py(), "restart")).map(drop));
        restarted.unwrap_or(Ok(()))
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        let mut file = Some(file);
        self.gate.pass(|py| {
            let file = file.take()?.into_bound(py);
            if let Err(error) = file.call_method0(intern!(py, "close")) {
                error.write_unraisable(py, Some(&file));
            }
            Some(())
        });
        // The interpreter has gone, and with it what this was.
        std::mem::forget(file);
    }
}
