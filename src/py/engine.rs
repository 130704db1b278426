//! `frames2py.Engine`.

use super::aio;
use super::array::FrameType;
use super::call::{call, call_method};
use super::custom::SharedKernel;
use super::input::{self, Layouts, integer, real};
use super::kernel::{self, Driven};
use super::owned::drop_left;
use super::play::{self, Playback};
use super::view::{SnapshotView, object_of};
use crate::engine::{Engine as Core, Options};
use crate::error::Error;
use crate::publish::Retired;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::{MutexExt, PyOnceLock};
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyTuple};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// From this many events on, a call lets go of the interpreter while it accumulates.
///
/// Coming back costs the switch interval, 5 ms by default, where a thread that is busy in Python took the interpreter
/// meanwhile. So a call holds on for what takes half a millisecond or so, a tenth of what Python itself has threads wait for
/// each other. `python -m benchmarks detach` measures both sides of this.
pub const DETACH_FROM: usize = 131_072;

/// From this frame size on, so does a call that publishes: making or clearing such a frame takes about as long.
const DETACH_FROM_BYTES: usize = 8 << 20;

/// How long a wait on the main thread sleeps before it looks for a signal to handle.
pub const SIGNAL_CHECK: Duration = Duration::from_millis(20);

/// Accumulates events on one thread and publishes snapshots that any thread reads.
///
/// The first thread whose `ingest()` does not raise is the producer, for the Engine's lifetime. Reading
/// (`snapshot()`, `stats`, `wait_for_newer()`) works on any thread and never waits for a producer at work.
/// The Engine runs from the start.
///
/// Parameters
/// ----------
/// sensor_size : tuple[int, int]
///     `(width, height)` in pixels, each at least 1.
/// kernel : str or Kernel, default "event_count"
///     `"event_count"`, `"polarity"`, `"time_surface"`, or an instance of a kernel, of this package or your
///     own.
/// snapshot_interval_ms : float, default 16.0
///     Publish at most once in so many milliseconds, on the first call after they have passed; 0 publishes on
///     every call. Nothing is published between calls.
///
/// Raises
/// ------
/// TypeError
///     `sensor_size` is not a pair of integers, `kernel` is not a kernel (a class instead of an instance,
///     say), or the interval is not a real number.
/// ValueError
///     A side is below 1, there are not two, no kernel has this name, or the interval is negative, NaN or
///     infinite.
/// MemoryError
///     A frame or the kernel's state cannot be allocated.
#[pyclass(frozen, subclass, weakref, dict, module = "frames2py")]
pub struct Engine(OnceLock<Inner>);

/// What `__init__` makes.
pub struct Inner {
    /// Shared with the thread of a playback.
    pub(super) core: Arc<Core<SnapshotView>>,
    frame_type: FrameType,
    pub(super) python: Option<SharedKernel>,
    layouts: Layouts,
    types: Types,
    has_large_frames: bool,
    /// See `aio.rs`. Refers to nothing that could refer back.
    listeners: PyOnceLock<Py<PyAny>>,
    /// The last one, to be stopped with the Engine.
    pub(super) playback: Mutex<Option<crate::play::Playback>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(playback) = self.playback.get_mut().unwrap_or_else(PoisonError::into_inner) {
            playback.stop();
        }
    }
}

/// The dataclasses that readers are given.
struct Types {
    snapshot: Py<PyAny>,
    meta: Py<PyAny>,
    stats: Py<PyAny>,
    memory: Py<PyAny>,
}

impl Engine {
    /// What `__init__` made. A subclass may have left that out.
    #[inline]
    pub fn ready(&self) -> PyResult<&Inner> {
        self.0.get().ok_or_else(|| PyRuntimeError::new_err("Engine.__init__() was not called"))
    }
}

impl Inner {
    pub fn core(&self) -> &Core<SnapshotView> {
        &self.core
    }

    /// The arguments of a wait, on a thread that may wait. No timeout is for ever.
    pub fn wait_arguments(
        &self,
        sequence: &Bound<'_, PyAny>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(Option<u64>, Option<Duration>)> {
        let sequence = last_sequence(sequence)?;
        let timeout = timeout.map_or(Ok(None), wait_timeout)?;
        if self.core.is_producer() { Err(Error::ProducerWaits.into()) } else { Ok((sequence, timeout)) }
    }

    pub fn listeners(&self) -> &PyOnceLock<Py<PyAny>> {
        &self.listeners
    }

    /// The one Python object of the latest publication, if that is newer than `sequence`.
    pub fn newer<'py>(&self, py: Python<'py>, sequence: Option<u64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let pool = self.core.publisher().pool();
        if pool.has_unreaped() {
            pool.reap_rest(drop);
        }
        drop_left(py);
        let Some(visit) = pool.read().filter(|visit| visit.sequence() > sequence.unwrap_or(0)) else {
            return Ok(None);
        };
        let object = object_of(py, &visit, || {
            let publication = visit.content();
            if !publication.frame.is_made() {
                // Makes it, or waits for another reader who does.
                py.detach(|| publication.frame.memory().map(drop))?;
            }
            let meta = call(self.types.meta.bind(py), (publication.watermark, visit.sequence()))?;
            let frame = self.frame_type.published(py, visit.lease(pool))?;
            Ok(call(self.types.snapshot.bind(py), (frame, meta))?.unbind())
        });
        drop(visit.leave());
        object.map(Some)
    }

    /// Whether a look at what is newer than `sequence` finds nothing and has nothing else to do. Writes to nothing that threads
    /// share, so that those who poll do not slow each other.
    fn finds_nothing(&self, sequence: u64) -> bool {
        let publisher = self.core.publisher();
        !publisher.has_newer(Some(sequence)) && !publisher.pool().has_unreaped() && !self.core.is_producer()
    }

    /// Frees the object of a publication that is not the latest any more. The frame is free with its last
    /// holder.
    fn let_go(&self, retired: Option<Retired>) {
        let pool = self.core.publisher().pool();
        if let Some(retired) = retired {
            drop(retired.reap(pool));
        }
        if pool.has_unreaped() {
            pool.reap_rest(drop);
        }
    }
}

#[pymethods]
impl Engine {
    /// Makes an Engine that `__init__` fills in, so that a subclass may have a constructor of its own.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    #[pyo3(
        text_signature = "(sensor_size, kernel='event_count', *, snapshot_interval_ms=16.0, pool_frames=8, guard=False)"
    )]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self(OnceLock::new())
    }

    #[pyo3(signature = (
        sensor_size,
        kernel = Argument::Default,
        *,
        snapshot_interval_ms = Argument::Default,
        pool_frames = Argument::Default,
        guard = Argument::Default,
    ))]
    fn __init__(
        &self,
        py: Python<'_>,
        sensor_size: &Bound<'_, PyAny>,
        kernel: Argument<'_>,
        snapshot_interval_ms: Argument<'_>,
        pool_frames: Argument<'_>,
        guard: Argument<'_>,
    ) -> PyResult<()> {
        let sensor = input::sensor_size(sensor_size)?;
        let mut options = Options::default();
        if let Argument::Given(interval) = snapshot_interval_ms {
            options.interval = snapshot_interval(&interval)?;
        }
        if let Argument::Given(frames) = pool_frames {
            options.keep = frames_to_keep(&frames)?;
        }
        if let Argument::Given(guard) = guard {
            options.guard = flag("guard", &guard)?;
        }
        let kernel = match kernel {
            Argument::Default => intern!(py, "event_count").clone().into_any(),
            Argument::Given(kernel) => kernel,
        };
        drop_left(py);
        let Driven { kernel, frame_type, python } = Driven::new(&kernel, sensor)?;
        let types = py.import("frames2py._types")?;
        let class = |name: &str| -> PyResult<Py<PyAny>> { Ok(types.getattr(name)?.unbind()) };
        let core = Arc::new(Core::new(sensor, kernel, options)?);
        let has_large_frames =
            core.makes_frames() && frame_type.spec.bytes().is_some_and(|bytes| bytes >= DETACH_FROM_BYTES);
        let inner = Inner {
            core,
            frame_type,
            python,
            layouts: Layouts::new(py)?,
            types: Types {
                snapshot: class("Snapshot")?,
                meta: class("SnapshotMeta")?,
                stats: class("EngineStats")?,
                memory: class("EngineMemory")?,
            },
            has_large_frames,
            listeners: PyOnceLock::new(),
            playback: Mutex::new(None),
        };
        self.0.set(inner).map_err(|_| PyRuntimeError::new_err("Engine.__init__() was called twice"))
    }

    /// Takes a call's events in, then publishes if that is due. Does nothing while the Engine is stopped.
    ///
    /// Parameters
    /// ----------
    /// events : numpy.ndarray
    ///     1-D, C-contiguous, structured, with the fields of `EVENT_DTYPE` (more fields and any order are
    ///     fine). Times are in µs. Events outside the sensor are counted and otherwise ignored. It is read
    ///     before the call returns and not kept.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     Another thread is the producer.
    /// TypeError
    ///     The array's structure is not that. The message names the field.
    /// ValueError
    ///     An event has `t >= 2**63`: the whole call is rejected.
    ///
    /// A call that raises one of these changes nothing.
    fn ingest(&self, py: Python<'_>, events: &Bound<'_, PyAny>) -> PyResult<()> {
        let this = self.ready()?;
        this.core.check_producer()?;
        if !this.core.is_running() {
            // Not looked at, as by contract nothing happens; the session decides, under the lock.
            let mut session = this.core.session("ingest", |m| m.lock_py_attached(py))?;
            if session.pass_while_stopped()? {
                return Ok(());
            }
        }
        let array = this.layouts.check(events)?;
        let retired = if this.python.is_some() {
            kernel::with_events(&array, |events| {
                this.core.session("ingest", |m| m.lock_py_attached(py))?.ingest(events)
            })
        } else if array.len() < DETACH_FROM && !(this.has_large_frames && this.core.publishes_next()) {
            this.core.session("ingest", |m| m.lock_py_attached(py))?.ingest(array.events())
        } else {
            let events = array.events();
            py.detach(move || this.core.session("ingest", Mutex::lock)?.ingest(events))
        };
        // Here, attached and outside the lock, Python objects may be freed.
        this.let_go(retired?);
        Ok(())
    }

    /// Plays a recording: decodes, accumulates and publishes on native threads that do not need the interpreter.
    ///
    /// Playing is calling `ingest()` with the recording's events, batch by batch: the same frames at the same cadence,
    /// counted in `stats`, passed by unseen while the Engine is stopped, nothing published at the end that is not
    /// due (`stop()` does that). It makes the playback the producer: `ingest()` is then refused on every thread, for the
    /// Engine's lifetime, and `wait_for_newer()` is allowed on every one. When a playback has ended, another can
    /// begin. A custom kernel's methods are called on the playback's thread, attached to the interpreter. HDF5 and NumPy files
    /// are read by Python code, on another native thread that is attached to the interpreter for each batch.
    ///
    /// Parameters
    /// ----------
    /// reader_or_path : str, path-like or Reader
    ///     A file of any format, or what `frames2py.open()` returned for one. A reader is used
    ///     up, as by iterating over it, and its file is the playback's: closing the reader does not end it. A reader's
    ///     `batch_size` is the number of events in each call; otherwise the sizes of calls are not defined.
    /// speed : float or None, default None
    ///     None plays as fast as possible. A number plays so many times as fast as recorded: each call is made when
    ///     `(M - t0) / speed` µs have passed since the first, M being the largest timestamp so far and t0 the smallest
    ///     of the first call. Calls span about 5 ms of the time they are played in, unless there is a `batch_size`.
    /// loop : bool, default False
    ///     Start again at the end, until `Playback.stop()`. Kernel state and watermark then start over, as by
    ///     `reset()`, so that times may; counters and the published snapshot stay. Recorded times are not changed. A
    ///     recording without events ends all the same.
    /// threads : int, default 2
    ///     2 decodes a few batches ahead on a thread of its own, which is faster where a core is free for it. 1 does everything
    ///     on one thread: slower alone, but at a rate that does not depend on whether another core is busy. Nothing else
    ///     depends on it.
    ///
    /// Returns
    /// -------
    /// Playback
    ///     Pauses, resumes, stops and joins it. It goes on without that object; it ends when neither it nor the Engine is
    ///     referred to any more, and with the interpreter.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     A thread is the producer, this Engine is playing already, or the reader was iterated over.
    /// TypeError
    ///     The source is none of these, or a NumPy table, of which `frames2py.open()` must be told the columns; `speed` is not
    ///     a real number, `loop` is not a bool, or `threads` is not an integer (bools are not numbers).
    /// ImportError
    ///     The file is HDF5, and h5py or hdf5plugin is not installed.
    /// ValueError
    ///     The file or reader is of another sensor size, is no recording, or is closed; `speed` is not finite and above 0; `loop`
    ///     is asked of a pipe; `threads` is neither 1 nor 2.
    /// OSError
    ///     The file cannot be opened.
    ///
    /// What is found wrong later is raised by `Playback.join()`. A call that raises changes nothing.
    #[pyo3(signature = (reader_or_path, *, speed = None, r#loop = Argument::Default, threads = Argument::Default))]
    #[pyo3(text_signature = "($self, reader_or_path, *, speed=None, loop=False, threads=2)")]
    fn play(
        slf: &Bound<'_, Self>,
        reader_or_path: &Bound<'_, PyAny>,
        speed: Option<&Bound<'_, PyAny>>,
        r#loop: Argument<'_>,
        threads: Argument<'_>,
    ) -> PyResult<Playback> {
        play::play(slf, reader_or_path, speed, r#loop.given(), threads.given())
    }

    /// The latest publication, or None before the first and after `reset()` until the next.
    ///
    /// Every reader of a publication gets the same `Snapshot` object.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let this = self.ready()?;
        Ok(this.newer(py, None)?.unwrap_or_else(|| py.None().into_bound(py)))
    }

    /// Waits for a publication with `meta.sequence > sequence` and returns the latest.
    ///
    /// Parameters
    /// ----------
    /// sequence : int or None
    ///     What was seen last; None waits for any.
    /// timeout : float or None, default None
    ///     Seconds; None and infinity wait for ever, 0 looks once, and is the cheapest way to ask again and again
    ///     whether there is something newer.
    ///
    /// Returns
    /// -------
    /// Snapshot or None
    ///     None only if nothing newer was there when the time was up. `stop()` and `reset()` do not end a
    ///     wait.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     Called on the producer's thread, which would wait for itself.
    /// TypeError
    ///     `sequence` is not an integer, or `timeout` is not a real number (bools are neither).
    /// ValueError
    ///     `sequence` is negative, or `timeout` is negative or NaN.
    /// KeyboardInterrupt
    ///     Ctrl-C during a wait on the main thread.
    #[pyo3(signature = (sequence, *, timeout = None))]
    fn wait_for_newer<'py>(
        &self,
        py: Python<'py>,
        sequence: &Bound<'py, PyAny>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let this = self.ready()?;
        if let Some(sequence) = plain_sequence(sequence)
            && timeout.is_some_and(is_plain_zero)
            && this.finds_nothing(sequence)
        {
            return Ok(py.None().into_bound(py));
        }
        let (sequence, timeout) = this.wait_arguments(sequence, timeout)?;
        if let Some(snapshot) = this.newer(py, sequence)? {
            return Ok(snapshot);
        }
        // A time too far away to be expressed is never reached.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let signals = is_main_thread(py)?;
        loop {
            let check = signals.then(|| Instant::now() + SIGNAL_CHECK);
            let until = [deadline, check].into_iter().flatten().min();
            py.detach(|| this.core.publisher().wait_newer(sequence, until));
            // A reset may have taken down what woke this thread: then it waits on.
            if let Some(snapshot) = this.newer(py, sequence)? {
                return Ok(snapshot);
            }
            if signals {
                py.check_signals()?;
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(this.newer(py, sequence)?.unwrap_or_else(|| py.None().into_bound(py)));
            }
        }
    }

    /// As `wait_for_newer()`, for the event loop of asyncio: `await engine.wait_for_newer_async(sequence)`.
    ///
    /// Nothing but the awaiting task waits, whatever the number of tasks, loops and threads, and no thread is
    /// started for it. Other tasks run at least once, also if there is something newer already. Cancelling the
    /// task ends the wait at once.
    ///
    /// Parameters
    /// ----------
    /// sequence : int or None
    ///     What was seen last; None waits for any.
    /// timeout : float or None, default None
    ///     Seconds; None and infinity wait for ever, 0 looks once.
    ///
    /// Returns
    /// -------
    /// Snapshot or None
    ///     None only if nothing newer was there when the time was up. `stop()` and `reset()` do not end a
    ///     wait.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     Awaited on the producer's thread, or by something else than a task of asyncio.
    /// TypeError
    ///     `sequence` is not an integer, or `timeout` is not a real number (bools are neither).
    /// ValueError
    ///     `sequence` is negative, or `timeout` is negative or NaN.
    /// OSError
    ///     The loop's first waiter could not have the two sockets it needs.
    ///
    /// All of them are raised by the `await`, not by the call.
    #[pyo3(signature = (sequence, *, timeout = None))]
    fn wait_for_newer_async<'py>(
        slf: &Bound<'py, Self>,
        sequence: &Bound<'py, PyAny>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let aio = aio::python(py)?;
        call_method(&aio, intern!(py, "wait_for_newer_async"), (slf, sequence, timeout))
    }

    /// The latest snapshot, again and again: `async for snapshot in engine.snapshots()`.
    ///
    /// Starts with the latest there is, if any, then waits for newer ones. Whoever is slower than the producer
    /// skips what was published meanwhile. It does not end by itself, nor by `stop()` or `reset()`; `break` or
    /// cancelling the task ends it, and leaves nothing to be closed.
    ///
    /// Returns
    /// -------
    /// AsyncIterator[Snapshot]
    ///     Each has a greater `meta.sequence` than the one before. Its steps raise as
    ///     `wait_for_newer_async()` does.
    fn snapshots<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let aio = aio::python(py)?;
        call_method(&aio, intern!(py, "Snapshots"), (slf,))
    }

    /// Lets `ingest()` work again after `stop()`. Nothing is published or cleared.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let this = self.ready()?;
        this.core.session("start", |m| m.lock_py_attached(py))?.start();
        Ok(())
    }

    /// Publishes what was accumulated since the last publication, if anything, and makes `ingest()` do
    /// nothing.
    ///
    /// Waits for an `ingest()` under way. Wakes waiters only by what it publishes.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let this = self.ready()?;
        let retired = if this.python.is_some() {
            this.core.session("stop", |m| m.lock_py_attached(py))?.stop()
        } else {
            py.detach(|| this.core.session("stop", Mutex::lock)?.stop())
        };
        this.let_go(retired?);
        Ok(())
    }

    /// Clears kernel state, counters, watermark and the published snapshot.
    ///
    /// The sequence, the uptime, the producer and whether the Engine runs stay. The next call publishes.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        let this = self.ready()?;
        let retired = if this.python.is_some() {
            this.core.session("reset", |m| m.lock_py_attached(py))?.reset()
        } else {
            py.detach(|| this.core.session("reset", Mutex::lock)?.reset())
        };
        this.let_go(retired?);
        Ok(())
    }

    /// Counters of one moment, as an `EngineStats`. Takes no lock.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let this = self.ready()?;
        let stats = this.core.stats();
        call(
            this.types.stats.bind(py),
            (stats.events_ingested, stats.events_out_of_bounds, stats.snapshots_published, stats.uptime_ns),
        )
    }

    /// What the Engine's frames occupy now, as an `EngineMemory`. Takes no lock.
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let this = self.ready()?;
        let held = this.core.occupancy();
        call(this.types.memory.bind(py), (held.slots, held.leased, held.one_off, this.core.frame_bytes()))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.get().and_then(|this| this.python.as_ref()).map_or(Ok(()), |python| python.traverse(&visit))
    }
}

/// An argument that tells `None` from not given.
enum Argument<'py> {
    Default,
    Given(Bound<'py, PyAny>),
}

impl<'py> Argument<'py> {
    fn given(&self) -> Option<&Bound<'py, PyAny>> {
        match self {
            Self::Default => None,
            Self::Given(given) => Some(given),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Argument<'py> {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self::Given(ob.to_owned()))
    }
}

fn snapshot_interval(ob: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let Some((ms, negative)) = real(ob)? else {
        return Err(PyTypeError::new_err(format!(
            "snapshot_interval_ms must be a real number of milliseconds, got {} ({})",
            ob.repr()?,
            ob.get_type().name()?
        )));
    };
    if negative || !ms.is_finite() {
        return Err(PyValueError::new_err(format!(
            "snapshot_interval_ms must be finite and at least 0, got {}",
            ob.repr()?
        )));
    }
    // An interval of more than 5e11 years never passes.
    Ok(Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX))
}

/// `pool_frames`. More than there can be is as good as that.
fn frames_to_keep(ob: &Bound<'_, PyAny>) -> PyResult<usize> {
    let Some(int) = integer(ob)? else {
        return Err(PyTypeError::new_err(format!(
            "pool_frames must be an integer, got {}",
            ob.get_type().name()?
        )));
    };
    if int.lt(0)? {
        return Err(PyValueError::new_err(format!("pool_frames must be at least 0, got {int}")));
    }
    Ok(int.extract().unwrap_or(usize::MAX))
}

pub fn flag(name: &str, ob: &Bound<'_, PyAny>) -> PyResult<bool> {
    match ob.cast::<PyBool>() {
        Ok(flag) => Ok(flag.is_true()),
        Err(_) => Err(PyTypeError::new_err(format!("{name} must be a bool, got {}", ob.get_type().name()?))),
    }
}

/// `sequence` of a wait where it is what it mostly is, as a number; `None` is 0. Counts no reference and raises nothing.
fn plain_sequence(ob: &Bound<'_, PyAny>) -> Option<u64> {
    if ob.is_none() {
        return Some(0);
    }
    let sequence: i64 = ob.cast_exact::<PyInt>().ok()?.extract().ok()?;
    u64::try_from(sequence).ok()
}

/// Whether a timeout is the int or float 0.
fn is_plain_zero(ob: &Bound<'_, PyAny>) -> bool {
    if let Ok(int) = ob.cast_exact::<PyInt>() {
        int.extract::<i64>().is_ok_and(|seconds| seconds == 0)
    } else {
        ob.cast_exact::<PyFloat>().is_ok_and(|seconds| seconds.value() == 0.0)
    }
}

/// `sequence` of a wait. One that is larger than any there can be is as good as the largest.
fn last_sequence(ob: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if ob.is_none() {
        return Ok(None);
    }
    let Some(int) = integer(ob)? else {
        return Err(PyTypeError::new_err(format!(
            "sequence must be an integer or None, got {}",
            ob.get_type().name()?
        )));
    };
    if int.lt(0)? {
        return Err(PyValueError::new_err(format!("sequence must be at least 0, got {int}")));
    }
    Ok(Some(int.extract().unwrap_or(u64::MAX)))
}

/// `timeout` of a wait; `None` is for ever.
pub fn wait_timeout(ob: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    let Some((seconds, negative)) = real(ob)? else {
        return Err(PyTypeError::new_err(format!(
            "timeout must be a real number of seconds or None, got {}",
            ob.get_type().name()?
        )));
    };
    if negative || seconds.is_nan() {
        return Err(PyValueError::new_err(format!("timeout must be at least 0 seconds, got {}", ob.repr()?)));
    }
    Ok(Duration::try_from_secs_f64(seconds).ok())
}

/// Signals are handled on the main thread only, so only there a wait must look for them.
pub fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import(intern!(py, "threading"))?;
    let main = call_method(&threading, intern!(py, "main_thread"), ())?.getattr(intern!(py, "ident"))?;
    threading.call_method0(intern!(py, "get_ident"))?.eq(main)
}
