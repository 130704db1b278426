//! Publication of kernels whose frame is their state, element by element: what came since a copy of the state, and not the
//! state itself.
//!
//! A copy of a state costs a pass over the sensor, and a call usually has far fewer events than the sensor has pixels. So at
//! some publication the state is copied, and from then on events are also written to a list, from front to back. The
//! publications that follow refer to the copy and to so much of the list; their first reader puts the two together
//! (`publish/frame.rs`), in the order in which the kernel did, so that it gets the same to the last bit. Where the list gets as
//! long as a fraction of the sensor, or the state changes everywhere, the next publication starts with a copy again.
//!
//! A frame that is wanted is cheaper to make from the state. So where the last ones were, the next is made at once, and no
//! list is kept.

use super::kept::Kept;
use super::{PublishesRecipes, STATE};
use crate::error::{Error, Result};
use crate::publish::Recipe;
use bytemuck::Zeroable;
use std::any::Any;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A list is at most this fraction of the sensor.
const PIXELS_PER_ENTRY: usize = 2;

/// Stages that are kept for use again, and as many that publications still refer to.
const KEPT: usize = 4;

/// How a state becomes a frame.
pub trait Kind: Copy + Send + Sync + 'static {
    /// A copy of the state pays where its list lasts for so many publications.
    const PAYS: usize;

    /// Brings the state of a pixel, as bits, up to date with an entry of the list.
    fn apply(state: u64, entry: u64) -> u64;

    /// Writes the frame of a state.
    fn show(self, state: &[u64], out: &mut [u8]);
}

/// A copy of the state, and what came since. Entries are written once, by the kernel, before the publication that counts
/// them; that orders them for readers.
struct Stage {
    /// No other copy had this number.
    number: u64,
    copy: Box<[u64]>,
    pixels: Box<[AtomicU32]>,
    values: Box<[AtomicU64]>,
}

impl Stage {
    fn new(pixels: usize, most: usize) -> Result<Self> {
        Ok(Self { number: 0, copy: zeros(pixels)?, pixels: zeros(most)?, values: zeros(most)? })
    }
}

/// Zeros as the system has them: what is never written to takes no memory.
fn zeros<T: Zeroable>(count: usize) -> Result<Box<[T]>> {
    let bytes = count.checked_mul(size_of::<T>());
    bytemuck::allocation::try_zeroed_slice_box(count).map_err(|()| Error::OutOfMemory { what: STATE, bytes })
}

/// The state that a reader put together last; the next one often goes on from there.
#[derive(Default)]
struct Together {
    /// Of which stage, and how much of its list; `None` while it is worked on.
    of: Option<(u64, usize)>,
    state: Box<[u64]>,
}

impl Together {
    fn bring<K: Kind>(&mut self, stage: &Stage, len: usize) -> Result<&[u64]> {
        let from = match self.of.take() {
            Some((number, from)) if number == stage.number && from <= len => from,
            _ => {
                if self.state.len() != stage.copy.len() {
                    self.state = zeros(stage.copy.len())?;
                }
                self.state.copy_from_slice(&stage.copy);
                0
            }
        };
        for (pixel, value) in stage.pixels[from..len].iter().zip(&stage.values[from..len]) {
            let state = &mut self.state[pixel.load(Ordering::Relaxed) as usize];
            *state = K::apply(*state, value.load(Ordering::Relaxed));
        }
        self.of = Some((stage.number, len));
        Ok(&self.state)
    }
}

/// A frame to be made.
struct Shown<K> {
    /// The stage, how much of its list, and how that is shown.
    of: Option<(Arc<Stage>, usize, K)>,
    together: Arc<Mutex<Together>>,
}

impl<K: Kind> Recipe for Shown<K> {
    fn make(&self, out: &mut [u8]) -> Result<()> {
        let Some((stage, len, kind)) = &self.of else {
            out.fill(0);
            return Ok(());
        };
        // Held by a reader of another publication, for whom this one does not wait, or by one that was not forked along.
        let (mut shared, mut own);
        let together = if let Ok(free) = self.together.try_lock() {
            shared = free;
            &mut *shared
        } else {
            own = Together::default();
            &mut own
        };
        kind.show(together.bring::<K>(stage, *len)?, out);
        Ok(())
    }

    fn empty(&mut self) {
        self.of = None;
    }
}

/// What a kernel keeps to publish so.
pub struct Log<K> {
    stage: Option<Arc<Stage>>,
    /// Entries of its list.
    len: usize,
    most: usize,
    /// Events since the last publication.
    events: usize,
    number: u64,
    kept: Kept<Stage>,
    /// The next one, had before a call changes anything.
    next: Option<Arc<Stage>>,
    together: Arc<Mutex<Together>>,
    kind: PhantomData<K>,
}

impl<K: Kind> Log<K> {
    /// For a sensor of so many pixels.
    pub fn new(pixels: usize) -> Self {
        Self {
            stage: None,
            len: 0,
            most: pixels / PIXELS_PER_ENTRY,
            events: 0,
            number: 0,
            kept: Kept::new(KEPT),
            next: None,
            together: Arc::default(),
            kind: PhantomData,
        }
    }

    /// Takes note of a stretch of events that the kernel took in. `entry(i)` is what event `i` did to its pixel; of those at a
    /// `hot` pixel, all that they did together.
    #[inline(always)]
    pub fn add(&mut self, pixels: &[u32], entry: impl Fn(usize) -> u64, hot: Option<(u32, u64)>) {
        self.events = self.events.saturating_add(pixels.len());
        let Some(stage) = &self.stage else { return };
        let free = self.len..self.len + pixels.len();
        let (Some(places), Some(values)) = (stage.pixels.get(free.clone()), stage.values.get(free)) else {
            return self.forget();
        };
        let Some((hot, total)) = hot else {
            for (i, ((&pixel, place), value)) in pixels.iter().zip(places).zip(values).enumerate() {
                place.store(pixel, Ordering::Relaxed);
                value.store(entry(i), Ordering::Relaxed);
            }
            self.len += pixels.len();
            return;
        };
        let mut n = 0;
        for (i, &pixel) in pixels.iter().enumerate() {
            if pixel != hot {
                places[n].store(pixel, Ordering::Relaxed);
                values[n].store(entry(i), Ordering::Relaxed);
                n += 1;
            }
        }
        // The stretch has one event at `hot` at least.
        places[n].store(hot, Ordering::Relaxed);
        values[n].store(total, Ordering::Relaxed);
        self.len += n + 1;
    }

    /// Says that the state changed everywhere.
    pub fn forget(&mut self) {
        if let Some(stage) = self.stage.take() {
            self.kept.keep(stage);
        }
    }

    fn makes_at_once(&mut self, is_wanted: bool) -> bool {
        let are_many = self.events > self.most / K::PAYS;
        let at_once = are_many || is_wanted;
        if at_once {
            self.events = 0;
            self.forget();
        }
        at_once
    }

    fn prepare(&mut self, pixels: usize) -> Result<()> {
        if self.next.is_none() {
            self.next = Some(match self.kept.take() {
                Some(stage) => stage,
                None => Arc::new(Stage::new(pixels, self.most)?),
            });
        }
        Ok(())
    }

    fn prescribe(&mut self, recipe: &mut dyn Recipe, kind: K, state: &[u64]) -> Result<()> {
        let recipe = shown::<K>(recipe);
        recipe.of = None;
        let stage = if let Some(stage) = &self.stage {
            stage
        } else {
            self.prepare(state.len())?;
            let mut new = self.next.take().expect("just prepared");
            let stage = Arc::get_mut(&mut new).expect("referred to by nobody else");
            self.number += 1;
            stage.number = self.number;
            stage.copy.copy_from_slice(state);
            self.len = 0;
            self.stage.insert(new)
        };
        recipe.of = Some((Arc::clone(stage), self.len, kind));
        self.events = 0;
        Ok(())
    }
}

fn shown<K: Kind>(recipe: &mut dyn Recipe) -> &mut Shown<K> {
    let recipe: &mut dyn Any = recipe;
    recipe.downcast_mut().expect("a recipe of this kernel's")
}

/// A kernel that publishes so.
pub trait Logged {
    /// How its state is shown.
    type Kind: Kind;

    fn log(&self) -> &Log<Self::Kind>;

    /// Its log, how it is shown at `watermark`, and its state.
    fn parts(&mut self, watermark: Option<u64>) -> (&mut Log<Self::Kind>, Self::Kind, &[u64]);
}

impl<L: Logged> PublishesRecipes for L {
    fn recipe(&self) -> Result<Box<dyn Recipe>> {
        let together = Arc::clone(&self.log().together);
        Ok(Box::new(Shown::<L::Kind> { of: None, together }))
    }

    fn prepare(&mut self) -> Result<()> {
        let (log, _, state) = self.parts(None);
        log.prepare(state.len())
    }

    fn prescribe(&mut self, recipe: &mut dyn Recipe, watermark: Option<u64>) -> Result<()> {
        let (log, kind, state) = self.parts(watermark);
        log.prescribe(recipe, kind, state)
    }

    fn makes_at_once(&mut self, is_wanted: bool) -> bool {
        self.parts(None).0.makes_at_once(is_wanted)
    }

    fn may_make_at_once(&self) -> bool {
        true
    }
}
