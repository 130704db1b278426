//! Kernels: how events become a frame.
//!
//! A kernel is a single-writer state machine. It sees the in-bounds events of accepted calls only, as private
//! columns ([`Columns`]) whose pixel indices are below the sensor's number of pixels and whose times are below
//! 2^63. It never sees caller memory.
//!
//! A call comes as stretches of at most [`BLOCK`](crate::event::BLOCK) events. [`Columns::pixel`] is also the list of
//! what a stretch touches: one entry per in-bounds event, in the order of the call, repeats included, no entry for
//! events outside the sensor. A kernel that keeps books of what changed since its last publication needs nothing else.

mod count;
mod decay;
mod exp;
mod hot;
mod kept;
mod knot;
mod log;
mod stores;
mod surface;
mod temporal;

use crate::error::{Error, Result};
use crate::event::{Block, Columns, Events, Found, Needs};
use crate::geometry::SensorSize;
use crate::publish::{Element, Memory, Recipe, Spec};

/// What the engine and the accumulator drive.
pub trait Kernel: Send {
    /// Shape and element type of the frame.
    fn spec(&self) -> &Spec;

    /// Runs once per accepted call, also for one without in-bounds events.
    fn begin_call(&mut self) -> Result<()> {
        Ok(())
    }

    /// The columns it is to be given besides the pixels.
    fn needs(&self) -> Needs {
        Needs::ALL
    }

    /// A kernel that can take back exactly what it took in says so here. Its calls are then checked while they are taken
    /// in, which saves a pass over the caller's memory, and `begin_call` is not called.
    fn retracts(&mut self) -> Option<&mut dyn Retracts> {
        None
    }

    /// Takes in in-bounds events, at least one: a stretch of a call. `latest` is the largest of their times.
    fn accumulate(&mut self, events: Columns<'_>, latest: u64) -> Result<()>;

    /// A kernel that must see calls as they came says so here; its `accumulate` is then not called.
    fn whole_calls(&mut self) -> Option<&mut dyn WholeCalls> {
        None
    }

    /// Writes the frame at `watermark`, which may be later than any event, over whatever `out` holds: the
    /// bytes of one frame, aligned for its elements.
    fn read(&self, out: &mut [u8], watermark: Option<u64>) -> Result<()>;

    /// Starts a new window, for kernels that have windows.
    fn close_window(&mut self) -> Result<()> {
        Ok(())
    }

    /// Reads the frame into `spare` and closes the window: what a publication does.
    fn publish(&mut self, mut spare: Memory, watermark: Option<u64>) -> Result<Memory> {
        self.read(spare.bytes_mut(), watermark)?;
        self.close_window()?;
        Ok(spare)
    }

    /// A kernel that publishes how its frame is made, and not the frame, says so here; its `publish` is then not called.
    fn publishes_recipes(&mut self) -> Option<&mut dyn PublishesRecipes> {
        None
    }

    /// Back to the state of a new kernel.
    fn reset(&mut self) -> Result<()>;
}

/// How a kernel publishes frames that their first reader makes.
pub trait PublishesRecipes {
    /// A recipe to be filled in.
    fn recipe(&self) -> Result<Box<dyn Recipe>>;

    /// Gets the memory that the next `prescribe` may need, before a call changes anything.
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    /// Fills in a recipe of this kernel's, new or used before, with what is shown at `watermark`. What happens to the
    /// kernel later does not change what it makes. A failure leaves the recipe undefined and the kernel as it was.
    fn prescribe(&mut self, recipe: &mut dyn Recipe, watermark: Option<u64>) -> Result<()>;

    /// Whether `recipe`, which was published last, makes what is shown at `watermark`, too: its frame is then published again,
    /// and the two publications share it.
    fn still_makes(&self, recipe: &dyn Recipe, watermark: Option<u64>) -> bool {
        let _ = (recipe, watermark);
        false
    }

    /// Whether the next frame is better made at once, by `read`: as publishing its recipe would not be cheaper, or, where that
    /// is so, as somebody wants it anyway (`is_wanted`).
    fn makes_at_once(&mut self, is_wanted: bool) -> bool {
        let _ = is_wanted;
        false
    }

    /// Whether publishing may take as long as making a frame.
    fn may_make_at_once(&self) -> bool {
        false
    }
}

/// The recipe as what it is, where its kernel made it.
fn recipe_of<R: Recipe>(recipe: &mut dyn Recipe) -> &mut R {
    let recipe: &mut dyn std::any::Any = recipe;
    recipe.downcast_mut().expect("a recipe of this kernel's")
}

/// How a kernel takes in calls that may be rejected after all.
pub trait Retracts {
    /// Takes in a call while its timestamps are looked at ([`in_one_pass`](crate::event::in_one_pass) or
    /// [`in_one_pass_or_back`](crate::event::in_one_pass_or_back)). Where one is out of range, fails with the largest, and nothing has
    /// changed.
    fn in_one_pass(&mut self, events: Events<'_>, sensor: SensorSize, block: &mut Block) -> Result<Found>;
}

/// How a kernel that must see calls as they came takes them in.
pub trait WholeCalls {
    /// Takes in a call with at least one in-bounds event. `watermark` includes it.
    fn accumulate(&mut self, events: Events<'_>, found: Found, watermark: u64) -> Result<()>;
}

/// The seven kernels and their parameters, checked by whoever makes one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Config {
    /// Events per pixel and window.
    EventCount,
    /// Events per pixel, polarity and window.
    Polarity,
    /// Latest time per pixel.
    TimeSurface,
    /// Counts that fade by a factor per call.
    ExpDecay {
        /// The factor, in (0, 1).
        decay: f64,
    },
    /// Counts that fade exponentially in event time.
    TimestampDecay {
        /// Time constant in µs, finite and above 0.
        tau_us: f64,
    },
    /// Counts per polarity, time bin and pixel.
    StackedHistogram {
        /// Bins shown, at least 1.
        bins: usize,
        /// Bin width in µs, in `[1, 2^28)`.
        bin_us: u64,
    },
    /// Signed counts split between neighbouring time knots.
    VoxelGrid {
        /// Knots shown, at least 2.
        bins: usize,
        /// Distance between knots in µs, in `[1, 2^28)`.
        bin_us: u64,
    },
}

impl Config {
    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::EventCount => "event_count",
            Self::Polarity => "polarity",
            Self::TimeSurface => "time_surface",
            Self::ExpDecay { .. } => "exp_decay",
            Self::TimestampDecay { .. } => "timestamp_decay",
            Self::StackedHistogram { .. } => "stacked_histogram",
            Self::VoxelGrid { .. } => "voxel_grid",
        }
    }

    /// Shape and element type of its frame.
    pub fn spec(self, sensor: SensorSize) -> Spec {
        let (w, h) = (sensor.width(), sensor.height());
        let (shape, element) = match self {
            Self::EventCount => (vec![h, w], Element::U32),
            Self::Polarity => (vec![h, w, 2], Element::U32),
            Self::TimeSurface => (vec![h, w], Element::U64),
            Self::ExpDecay { .. } | Self::TimestampDecay { .. } => (vec![h, w], Element::F32),
            Self::StackedHistogram { bins, .. } => (vec![2, bins, h, w], Element::U32),
            Self::VoxelGrid { bins, .. } => (vec![bins, h, w], Element::F32),
        };
        Spec { shape, element }
    }

    /// A kernel in its initial state.
    pub fn build(self, sensor: SensorSize) -> Result<Box<dyn Kernel>> {
        let spec = self.spec(sensor);
        Ok(match self {
            Self::EventCount => Box::new(count::Counts::<false>::new(spec)?),
            Self::Polarity => Box::new(count::Counts::<true>::new(spec)?),
            Self::TimeSurface => Box::new(surface::TimeSurface::new(spec, sensor)?),
            Self::ExpDecay { decay } => Box::new(decay::ExpDecay::new(spec, sensor, decay)?),
            Self::TimestampDecay { tau_us } => Box::new(decay::TimestampDecay::new(spec, sensor, tau_us)?),
            Self::StackedHistogram { bins, bin_us } => {
                Box::new(temporal::Temporal::histogram(spec, sensor, bins, bin_us)?)
            }
            Self::VoxelGrid { bins, bin_us } => {
                Box::new(temporal::Temporal::voxel(spec, sensor, bins, bin_us)?)
            }
        })
    }
}

/// What state memory is called in an error.
const STATE: &str = "kernel state";

fn out_of_memory<T>(elements: usize) -> Error {
    Error::OutOfMemory { what: STATE, bytes: elements.checked_mul(size_of::<T>()) }
}

/// A list with room for so many. What is never written to takes no memory.
fn new_list<T>(most: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(most).map_err(|_| out_of_memory::<T>(most))?;
    Ok(list)
}

#[cfg(test)]
mod tests;
