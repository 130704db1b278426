//! The extension module `frames2py._core`: thin PyO3 types over the core.
//!
//! Checking of arguments that belong to one call is done here, where the call arrives; whatever is naturally
//! Python (dataclasses, the kernel protocol, readers, the command line) is in `python/frames2py`.

mod accumulator;
mod aio;
mod array;
mod call;
mod codec;
mod convert;
mod custom;
mod engine;
mod fed;
mod hdf;
mod image;
mod index;
mod input;
mod kernel;
mod owned;
mod play;
mod view;

use crate::error::Error;
use owned::Owned;
use pyo3::exceptions::{PyImportError, PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match error {
            Error::Timestamp { .. } | Error::EmptySensor(_) => PyValueError::new_err(error.to_string()),
            Error::OutOfMemory { .. } => PyMemoryError::new_err(error.to_string()),
            Error::Guard(_) => PyOSError::new_err(error.to_string()),
            Error::TooManyHeld(_) => PyMemoryError::new_err(error.to_string()),
            Error::NotProducer
            | Error::PlaybackProduces
            | Error::ThreadProduces
            | Error::Playing
            | Error::ProducerWaits
            | Error::Reentered(_)
            | Error::Panicked(_)
            | Error::Poisoned => PyRuntimeError::new_err(error.to_string()),
            // What a Python kernel raised comes out as it went in.
            Error::Foreign(error) => match error.downcast::<Owned<PyErr>>() {
                Ok(error) => error.into_inner(),
                Err(error) => PyRuntimeError::new_err(error.to_string()),
            },
        }
    }
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Self::Foreign(Box::new(Owned::new(error)))
    }
}

/// The compiled half of frames2py. Not public: use the names in `frames2py`.
#[pymodule(gil_used = false)]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::accumulator::Accumulator;
    #[pymodule_export]
    use super::aio::{Alarm, listeners, newer, wait_arguments};
    #[pymodule_export]
    use super::array::{WritableFrame, new_frame};
    #[pymodule_export]
    use super::codec::{FileEncoder, FileReader};
    #[pymodule_export]
    use super::convert::convert_events;
    #[pymodule_export]
    use super::engine::Engine;
    #[pymodule_export]
    use super::hdf::{EventSplitter, decode_ecf, pack_columns, read_blosc};
    #[pymodule_export]
    use super::image::encode_png;
    #[pymodule_export]
    use super::index::RowIndex;
    #[pymodule_export]
    use super::kernel::{KernelState, NativeKernel};
    #[pymodule_export]
    use super::play::Playback;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Looked up once, and now: a child forked while another thread does so would wait for that thread for ever.
        crate::event::Isa::chosen().map_err(PyImportError::new_err)?;
        crate::codec::share::processors();
        // As Python spells it: 2.0.0-dev.0 is 2.0.0.dev0.
        module.add("__version__", env!("CARGO_PKG_VERSION").replace("-dev.", ".dev"))?;
        module.add("debug_build", cfg!(debug_assertions))
    }
}
