//! `frames2py.Playback`, and what `Engine.play()` does.
//!
//! The playback's thread attaches to the interpreter for a Python kernel, and to report a failure nobody asks for.
//!
//! It may do so while it holds the engine's lock, as nobody who is attached waits for that lock: whoever has to wait lets
//! go of the interpreter first.
//!
//! It does so only between `admit` and `done`. So at exit it is enough to stop playbacks and to wait until they are idle:
//! no thread is left that could want an interpreter which is going away. For files that Python reads, see [`fed`].

use super::codec::{self as files, FileReader};
use super::engine::{self, Engine, Inner, SIGNAL_CHECK, flag, is_main_thread};
use super::fed::{self, Fed, Gate};
use super::input::{integer, real};
use super::owned::{Owned, drop_left};
use super::view::SnapshotView;
use crate::codec;
use crate::error::Error;
use crate::event::Events;
use crate::play::{self, Ahead, Batches, Failure, Ingest, Later, Options, Source};
use numpy::PyArray1;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::{MutexExt, OnceLockExt};
use pyo3::types::{PyBytes, PyDict, PyString};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A recording being played into an Engine, as `Engine.play()` returns it.
///
/// All of it may be used from any thread. As a context manager it stops and joins when the block ends. Without that, and
/// without this object, playing goes on while the Engine is referred to; this object refers to it. An error that
/// nobody can `join()` for any more goes to `sys.unraisablehook`.
///
/// In a process that was forked off, nothing plays: there it is finished.
#[pyclass(frozen, weakref, module = "frames2py")]
pub struct Playback {
    inner: play::Playback,
    engine: Py<Engine>,
    /// What it failed with; set when the first asks after its end.
    failure: OnceLock<Option<Py<PyAny>>>,
}

#[pymethods]
impl Playback {
    /// Stops handing events over, and the playback's clock, until `resume()`.
    ///
    /// Waits for the call under way, if there is one: after that, nothing comes. Pausing again, or at the end, does
    /// nothing.
    fn pause(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.pause();
        self.settle(py)
    }

    /// Goes on where `pause()` stopped. Nothing is made up for or left out.
    fn resume(&self) {
        self.inner.resume();
    }

    /// Ends it early, paused or not. Stopping again does nothing.
    ///
    /// Waits for the call under way, as `pause()` does, and not for the end: `join()` does that. The Engine is not stopped.
    /// While the playback waits for the next bytes of a pipe it ends within about 20 ms; on Windows when they come.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.stop();
        self.settle(py)
    }

    /// Waits for the end, of the recording or by `stop()`.
    ///
    /// Parameters
    /// ----------
    /// timeout : float or None, default None
    ///     Seconds; None and infinity wait for ever, 0 looks once.
    ///
    /// Returns
    /// -------
    /// bool
    ///     Whether it has ended. It has then let go of the recording, and the Engine can play another.
    ///
    /// Raises
    /// ------
    /// ValueError, OSError, ...
    ///     What ended the playback, each time: where the recording breaks its format or cannot be read (events before that place
    ///     were handed over), or what a custom kernel raised.
    /// RuntimeError
    ///     The playback failed inside frames2py; or this is its own thread, which would wait for itself.
    /// TypeError
    ///     `timeout` is not a real number (a bool is not).
    /// ValueError
    ///     `timeout` is negative or NaN.
    /// KeyboardInterrupt
    ///     Ctrl-C during a wait on the main thread. The playback goes on.
    #[pyo3(signature = (timeout = None))]
    fn join(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let timeout = timeout.map_or(Ok(None), engine::wait_timeout)?;
        if self.inner.is_own_thread() {
            return Err(PyRuntimeError::new_err(
                "join() was called on the playback's own thread, which would wait for itself",
            ));
        }
        // A time too far away to be expressed is never reached.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if !wait(py, deadline, |until| self.inner.wait_finished(until))? {
            return Ok(false);
        }
        drop_left(py);
        let failure = self.failure.get_or_init_py_attached(py, || {
            let failure = self.inner.take_failure()?;
            Some(to_python(failure).into_value(py).into_any())
        });
        match failure {
            Some(failure) => Err(PyErr::from_value(failure.bind(py).clone())),
            None => Ok(true),
        }
    }

    /// Whether it has ended, for whatever reason.
    #[getter]
    fn finished(&self) -> bool {
        self.inner.is_finished()
    }

    /// Whether it is paused. False once it has ended.
    #[getter]
    fn paused(&self) -> bool {
        self.inner.is_paused()
    }

    /// The largest timestamp handed over so far, in µs, or None; with `loop`, of this round.
    #[getter]
    fn position_us(&self) -> Option<u64> {
        self.inner.position()
    }

    /// How many events were handed over so far, out-of-bounds ones and all rounds included.
    #[getter]
    fn events(&self) -> u64 {
        self.inner.events()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.inner.stop();
        if kind.is_none() {
            self.join(py, None).map(drop)
        } else {
            // The block's own error is the one to raise.
            wait(py, None, |until| self.inner.wait_finished(until)).map(drop)
        }
    }

    fn __repr__(&self) -> String {
        let state = match (self.inner.is_finished(), self.inner.is_paused()) {
            (true, _) => "finished",
            (_, true) => "paused",
            _ => "running",
        };
        format!("<{state} playback, {} events>", self.inner.events())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.engine)?;
        self.failure.get().map_or(Ok(()), |failure| visit.call(failure))
    }
}

impl Playback {
    /// Waits for the call under way.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        if !self.inner.is_own_thread() {
            wait(py, None, |until| self.inner.wait_idle(until))?;
        }
        Ok(())
    }
}

impl Drop for Playback {
    fn drop(&mut self) {
        if let Some(failure) = self.inner.abandon() {
            report(failure);
        }
    }
}

/// Tells a failure that nobody asked for.
fn report(failure: Failure) {
    Python::try_attach(|py| {
        // An object may go while an exception is on its way.
        let current = PyErr::take(py);
        to_python(failure).write_unraisable(py, Some(PyString::new(py, "frames2py playback").as_any()));
        if let Some(current) = current {
            current.restore(py);
        }
    });
}

fn to_python(failure: Failure) -> PyErr {
    match failure {
        Failure::Source(error) => files::to_python(error),
        Failure::Engine(error) => error.into(),
        Failure::Thread(_) | Failure::Panicked(_) => PyRuntimeError::new_err(failure.to_string()),
    }
}

/// Waits until `look`, which waits until an instant at most, is true, or until the deadline has passed. On the main thread
/// it looks for signals meanwhile.
fn wait(
    py: Python<'_>,
    deadline: Option<Instant>,
    look: impl Fn(Option<Instant>) -> bool + Sync,
) -> PyResult<bool> {
    if look(Some(Instant::now())) {
        return Ok(true);
    }
    let signals = is_main_thread(py)?;
    loop {
        let check = signals.then(|| Instant::now() + SIGNAL_CHECK);
        let until = [deadline, check].into_iter().flatten().min();
        if py.detach(|| look(until)) {
            return Ok(true);
        }
        if signals {
            py.check_signals()?;
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(false);
        }
    }
}

/// Events in a batch, 13 MB, of which there are not to be several just to decode ahead.
const LARGE: usize = 1 << 20;

/// `Engine.play()`.
pub fn play(
    engine: &Bound<'_, Engine>,
    reader_or_path: &Bound<'_, PyAny>,
    speed: Option<&Bound<'_, PyAny>>,
    repeat: Option<&Bound<'_, PyAny>>,
    threads: Option<&Bound<'_, PyAny>>,
) -> PyResult<Playback> {
    let py = engine.py();
    let this = engine.get().ready()?;
    let speed = speed.map(times_as_fast).transpose()?;
    let repeat = repeat.map_or(Ok(false), |repeat| flag("loop", repeat))?;
    let reads_ahead = threads.map_or(Ok(true), |threads| is_two(threads))?;
    this.core.check_playable()?;
    let reader = reader(this, reader_or_path)?;
    let ingest = ingest_for(py, this)?;
    end_at_exit(py)?;
    drop_left(py);
    let used = reader.call_method0(intern!(py, "_lend"))?;
    let gate = Arc::new(Gate::default());
    let started = used.extract().and_then(|(file, size): (Bound<'_, PyAny>, Option<usize>)| {
        let native = file.cast::<FileReader>().ok().map(Bound::get);
        if repeat && native.is_some_and(|file| !file.can_restart()) {
            return Err(PyValueError::new_err("loop=True needs a file that can be read again, got a pipe"));
        }
        let source = || match native {
            Some(file) => natively_read(file, size, repeat, reads_ahead),
            None => Ok(read_by_python(file.clone().unbind(), size, repeat, reads_ahead, &gate)),
        };
        let options = Options { speed, repeat, size };
        let mut session = this.core.session("play", |m| m.lock_py_attached(py))?;
        play::start(&this.core, &mut session, source, options, ingest, report).map_err(to_python)
    });
    let inner = match started {
        Ok(inner) => inner,
        Err(error) => {
            reader.call_method0(intern!(py, "_give_back"))?;
            return Err(error);
        }
    };
    *this.playback.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner) = Some(inner.clone());
    let mut running = RUNNING.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
    running.retain(|(playback, _)| !playback.is_finished());
    running.push((inner.clone(), gate));
    drop(running);
    Ok(Playback { inner, engine: engine.clone().unbind(), failure: OnceLock::new() })
}

/// What a file that is decoded natively is read from.
fn natively_read(
    file: &FileReader,
    size: Option<usize>,
    repeat: bool,
    reads_ahead: bool,
) -> Result<Box<dyn Source>, Failure> {
    let mut recording = file.take().ok_or_else(|| codec::Error::Malformed("the reader is closed".into()))?;
    if !reads_ahead {
        recording.stay_on_one_thread();
    }
    let batches = Batches { recording, size };
    // What has come of a pipe is passed on at once, and of very large batches there is to be one.
    if !reads_ahead || !file.can_restart() || size.is_some_and(|size| size > LARGE) {
        return Ok(Box::new(batches));
    }
    Ok(Box::new(Ahead::of(batches.gathered(), repeat).map_err(Failure::Thread)?))
}

/// What a file that Python reads is read from. Its threads begin with the playback's: this one is attached, and must not
/// wait for them.
fn read_by_python(
    file: Py<PyAny>,
    size: Option<usize>,
    repeat: bool,
    reads_ahead: bool,
    gate: &Arc<Gate>,
) -> Box<dyn Source> {
    let large = size.is_some_and(|size| size > LARGE);
    let size = size.map(|size| play::gathered(size, fed::BATCH));
    let fed = Fed::new(file, size, Arc::clone(gate));
    if large || !reads_ahead { Box::new(fed) } else { Box::new(Later::new(fed, repeat)) }
}

/// `speed`.
fn times_as_fast(ob: &Bound<'_, PyAny>) -> PyResult<f64> {
    let Some((speed, _)) = real(ob)? else {
        return Err(PyTypeError::new_err(format!(
            "speed must be a real number or None, got {} ({})",
            ob.repr()?,
            ob.get_type().name()?
        )));
    };
    if !(speed.is_finite() && speed > 0.0) {
        return Err(PyValueError::new_err(format!("speed must be finite and above 0, got {}", ob.repr()?)));
    }
    Ok(speed)
}

/// `threads`: whether it is 2, and not 1.
fn is_two(ob: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(threads) = integer(ob)? else {
        return Err(PyTypeError::new_err(format!(
            "threads must be an integer, 1 or 2, got {}",
            ob.get_type().name()?
        )));
    };
    match threads.extract::<u64>() {
        Ok(1) => Ok(false),
        Ok(2) => Ok(true),
        _ => Err(PyValueError::new_err(format!("threads must be 1 or 2, got {threads}"))),
    }
}

/// The reader given, or one of the file at the path given. Its sensor is the engine's, or not known.
fn reader<'py>(engine: &Inner, source: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = source.py();
    let size = (engine.core.sensor().width(), engine.core.sensor().height());
    if source.is_instance(&py.import(intern!(py, "frames2py.adapters"))?.getattr(intern!(py, "Reader"))?)? {
        let other = source.getattr(intern!(py, "sensor_size"))?;
        if !other.is_none() && !other.eq(size)? {
            return Err(PyValueError::new_err(format!(
                "the Engine's sensor_size is {size:?}, but the reader's is {other}"
            )));
        }
        return Ok(source.clone());
    }
    let is_path = source.is_instance_of::<PyString>()
        || source.is_instance_of::<PyBytes>()
        || source.hasattr(intern!(py, "__fspath__"))?;
    if !is_path {
        return Err(PyTypeError::new_err(format!(
            "reader_or_path must be a path or a Reader of frames2py.adapters, got {}",
            source.get_type().name()?
        )));
    }
    let kwargs = PyDict::new(py);
    kwargs.set_item(intern!(py, "sensor_size"), size)?;
    py.import(intern!(py, "frames2py._recordings"))?.call_method(
        intern!(py, "open_to_play"),
        (source,),
        Some(&kwargs),
    )
}

/// How the thread hands events over: natively, or as an array to a Python kernel.
fn ingest_for(py: Python<'_>, engine: &Inner) -> PyResult<Ingest<SnapshotView>> {
    if engine.python.is_none() {
        return Ok(Box::new(play::ingest));
    }
    let dtype = py.import(intern!(py, "frames2py._events"))?.getattr(intern!(py, "EVENT_DTYPE"))?;
    let dtype = Owned::new(dtype.unbind());
    Ok(Box::new(move |core, piece| {
        let ingested = Python::try_attach(|py| -> Result<Option<u64>, Error> {
            let bytes = PyArray1::from_slice(py, piece.as_flattened());
            let array = bytes.call_method1(intern!(py, "view"), (&*dtype,))?.unbind();
            let events = Events::packed(piece.as_flattened()).with_origin(&array);
            let mut session = core.session("play", |m| m.lock_py_attached(py))?;
            let retired = session.ingest(events)?;
            let largest = session.largest();
            drop(session);
            // Attached and outside the lock, as in `Engine.ingest()`.
            drop(retired.and_then(|retired| retired.reap(core.publisher().pool())));
            Ok(largest)
        });
        ingested.unwrap_or_else(|| Err(Error::Foreign("the interpreter has gone".into())))
    }))
}

/// Playbacks to end with the interpreter. Each is put in once and looked at when the next one is.
static RUNNING: Mutex<Vec<(play::Playback, Arc<Gate>)>> = Mutex::new(Vec::new());
static EXITING: AtomicBool = AtomicBool::new(false);

/// How long exit waits for a kernel's method, or the read of a batch, to return. One that takes longer is left behind, as daemon threads are.
const EXIT_PATIENCE: Duration = Duration::from_secs(5);

/// Sees to it that playbacks end with the interpreter.
fn end_at_exit(py: Python<'_>) -> PyResult<()> {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if EXITING.load(Ordering::Acquire) {
        return Err(PyRuntimeError::new_err("play() was called while the interpreter exits"));
    }
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        let end = wrap_pyfunction!(end_playbacks, py)?;
        py.import(intern!(py, "atexit"))?.call_method1(intern!(py, "register"), (end,))?;
    }
    Ok(())
}

#[pyfunction]
fn end_playbacks(py: Python<'_>) {
    EXITING.store(true, Ordering::Release);
    let running = std::mem::take(&mut *RUNNING.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner));
    for (playback, gate) in &running {
        playback.silence();
        playback.stop();
        gate.shut();
    }
    let deadline = Instant::now() + EXIT_PATIENCE;
    py.detach(|| {
        running.iter().all(|(playback, gate)| {
            // A finished one has no thread: in a forked child, the gate is as it was left.
            playback.wait_idle(Some(deadline)) && (playback.is_finished() || gate.wait_empty(deadline))
        })
    });
    drop_left(py);
}
