//! The one error type of the core. The bindings map each variant to a Python exception.

use crate::geometry::SensorSize;

/// What a foreign kernel (one that lives outside this crate) failed with.
pub type ForeignError = Box<dyn std::error::Error + Send + Sync>;

/// Everything that can go wrong between a batch of events and a published frame.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An event's timestamp does not fit the contract. Nothing of the call was accumulated.
    #[error("events: field 't' must be below 2**63, got {t}; the whole call is rejected")]
    Timestamp {
        /// The largest offending timestamp seen.
        t: u64,
    },
    /// Memory for a frame or for kernel state could not be had.
    #[error("{what} needs {} bytes, which cannot be allocated", describe(*bytes))]
    OutOfMemory {
        /// What the memory is for.
        what: &'static str,
        /// How much was asked for; `None` when the size itself overflows.
        bytes: Option<usize>,
    },
    /// The system refused to change what may be done with a frame's pages.
    #[error("guard: the protection of a frame's memory could not be changed: {0}")]
    Guard(std::io::Error),
    /// Readers hold as many frames as there can be places for.
    #[error("readers hold {0} frames of this Engine, and there can be no more")]
    TooManyHeld(usize),
    /// A sensor side is zero.
    #[error("sensor_size: width and height must be at least 1, got {0}")]
    EmptySensor(SensorSize),
    /// A thread other than the producer called `ingest`.
    #[error(
        "ingest() was called from a thread that is not the producer: the first thread to ingest \
         stays the only one for the Engine's lifetime"
    )]
    NotProducer,
    /// A thread called `ingest` on an engine that a playback produces for.
    #[error(
        "ingest() was called on an Engine that play() was called on: its playbacks stay its producer \
         for the Engine's lifetime"
    )]
    PlaybackProduces,
    /// A playback was asked of an engine that has a thread for a producer.
    #[error(
        "play() needs an Engine without another producer: a thread has called ingest() on this one and stays \
         its producer for the Engine's lifetime"
    )]
    ThreadProduces,
    /// A second playback was asked for.
    #[error("play() was called while this Engine is playing: stop() and join() that playback first")]
    Playing,
    /// The producer asked to wait for itself.
    #[error(
        "the producer's thread cannot wait for a newer snapshot: only it publishes, so it would wait for itself"
    )]
    ProducerWaits,
    /// A kernel callback called back into what is running it.
    #[error(
        "{0}() was called by the kernel that is being run: an Engine or Accumulator cannot be re-entered"
    )]
    Reentered(&'static str),
    /// Code inside the core panicked during this call.
    #[error("internal error: {0}; this is a bug in frames2py. what it left behind is not used any more")]
    Panicked(String),
    /// A previous call panicked half-way, so the accumulated state cannot be trusted.
    #[error("a previous call failed inside frames2py and left this object unusable; make a new one")]
    Poisoned,
    /// A kernel outside the core raised.
    #[error(transparent)]
    Foreign(ForeignError),
}

fn describe(bytes: Option<usize>) -> String {
    bytes.map_or_else(|| "more than an address can hold".to_owned(), |n| n.to_string())
}

/// The core's result type.
pub type Result<T> = std::result::Result<T, Error>;

/// The readable part of a panic payload.
pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic".to_owned())
}
