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

use super::kept::{Kept, with_shared};
use super::{PublishesRecipes, STATE, recipe_of};
use crate::error::{Error, Result};
use crate::publish::Recipe;
use bytemuck::{Pod, Zeroable};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A list is at most this fraction of the sensor.
const PIXELS_PER_ENTRY: usize = 2;

/// Stages that are kept for use again, and as many that publications still refer to.
const KEPT: usize = 4;

/// What a state holds for a pixel, as bits.
pub trait Cell: Pod + Default + Send + Sync {
    /// As it is in a list, which the kernel adds to while readers read.
    type Listed: Zeroable + Send + Sync;

    /// Writes it down. What publishes the list orders that for readers.
    fn list(self, place: &Self::Listed);

    /// Reads what was written down.
    fn listed(place: &Self::Listed) -> Self;
}

macro_rules! cell {
    ($bits:ty, $atomic:ty) => {
        impl Cell for $bits {
            type Listed = $atomic;

            #[inline(always)]
            fn list(self, place: &$atomic) {
                place.store(self, Ordering::Relaxed);
            }

            #[inline(always)]
            fn listed(place: &$atomic) -> Self {
                place.load(Ordering::Relaxed)
            }
        }
    };
}

cell!(u32, AtomicU32);
cell!(u64, AtomicU64);

/// How a state becomes a frame.
pub trait Kind: Copy + Send + Sync + 'static {
    /// What the state holds for a pixel.
    type Cell: Cell;

    /// A copy of the state pays where its list lasts for so many publications.
    const PAYS: usize;

    /// Brings the state of a pixel up to date with an entry of the list.
    fn apply(state: Self::Cell, entry: Self::Cell) -> Self::Cell;

    /// Writes the frame of a state.
    fn show(self, state: &[Self::Cell], out: &mut [u8]);
}

/// A copy of the state, and what came since. Entries are written once, by the kernel, before the publication that counts
/// them; that orders them for readers.
struct Stage<C: Cell> {
    /// No other copy had this number.
    number: u64,
    copy: Box<[C]>,
    pixels: Box<[AtomicU32]>,
    values: Box<[C::Listed]>,
}

type StageOf<K> = Arc<Stage<<K as Kind>::Cell>>;

impl<C: Cell> Stage<C> {
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
struct Together<C> {
    /// Of which stage, and how much of its list; `None` while it is worked on.
    of: Option<(u64, usize)>,
    state: Box<[C]>,
}

impl<C: Cell> Together<C> {
    fn bring<K: Kind<Cell = C>>(&mut self, stage: &Stage<C>, len: usize) -> Result<&[C]> {
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
            *state = K::apply(*state, C::listed(value));
        }
        self.of = Some((stage.number, len));
        Ok(&self.state)
    }
}

/// A frame to be made.
pub struct Shown<K: Kind> {
    /// The stage, how much of its list, and how that is shown.
    of: Option<(StageOf<K>, usize, K)>,
    together: Arc<Mutex<Together<K::Cell>>>,
}

impl<K: Kind> Shown<K> {
    /// Whether it was filled in since it was emptied.
    pub fn is_filled_in(&self) -> bool {
        self.of.is_some()
    }
}

impl<K: Kind> Recipe for Shown<K> {
    fn make(&self, out: &mut [u8]) -> Result<()> {
        let Some((stage, len, kind)) = &self.of else {
            out.fill(0);
            return Ok(());
        };
        with_shared(&self.together, |together| {
            kind.show(together.bring::<K>(stage, *len)?, out);
            Ok(())
        })
    }

    fn empty(&mut self) {
        self.of = None;
    }
}

/// What a kernel keeps to publish so.
pub struct Log<K: Kind> {
    stage: Option<StageOf<K>>,
    /// Entries of its list.
    len: usize,
    most: usize,
    /// Events since the last publication.
    events: usize,
    number: u64,
    kept: Kept<Stage<K::Cell>>,
    /// The next one, had before a call changes anything.
    next: Option<StageOf<K>>,
    together: Arc<Mutex<Together<K::Cell>>>,
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
        }
    }

    /// Takes note of a stretch of events that the kernel took in. `entry(i)` is what event `i` did to its pixel; of those at a
    /// `hot` pixel, all that they did together.
    #[inline(always)]
    pub fn add(&mut self, pixels: &[u32], entry: impl Fn(usize) -> K::Cell, hot: Option<(u32, K::Cell)>) {
        self.events = self.events.saturating_add(pixels.len());
        let Some(stage) = &self.stage else { return };
        let free = self.len..self.len + pixels.len();
        let (Some(places), Some(values)) = (stage.pixels.get(free.clone()), stage.values.get(free)) else {
            return self.forget();
        };
        let Some((hot, total)) = hot else {
            for (i, ((&pixel, place), value)) in pixels.iter().zip(places).zip(values).enumerate() {
                place.store(pixel, Ordering::Relaxed);
                entry(i).list(value);
            }
            self.len += pixels.len();
            return;
        };
        let mut n = 0;
        for (i, &pixel) in pixels.iter().enumerate() {
            if pixel != hot {
                places[n].store(pixel, Ordering::Relaxed);
                entry(i).list(&values[n]);
                n += 1;
            }
        }
        // The stretch has one event at `hot` at least.
        places[n].store(hot, Ordering::Relaxed);
        total.list(&values[n]);
        self.len += n + 1;
    }

    /// Says that the state changed everywhere.
    pub fn forget(&mut self) {
        if let Some(stage) = self.stage.take() {
            self.kept.keep(stage);
        }
    }

    /// A recipe to be filled in.
    pub fn recipe(&self) -> Shown<K> {
        Shown { of: None, together: Arc::clone(&self.together) }
    }

    /// See [`PublishesRecipes::makes_at_once`].
    pub fn makes_at_once(&mut self, is_wanted: bool) -> bool {
        let are_many = self.events > self.most / K::PAYS;
        let at_once = are_many || is_wanted;
        if at_once {
            self.events = 0;
            self.forget();
        }
        at_once
    }

    /// Gets memory for a copy of a state of so many pixels.
    pub fn prepare(&mut self, pixels: usize) -> Result<()> {
        if self.next.is_none() {
            self.next = Some(match self.kept.take() {
                Some(stage) => stage,
                None => Arc::new(Stage::new(pixels, self.most)?),
            });
        }
        Ok(())
    }

    /// Fills in a recipe of this log's.
    pub fn prescribe(&mut self, recipe: &mut Shown<K>, kind: K, state: &[K::Cell]) -> Result<()> {
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

/// A kernel that publishes so.
pub trait Logged {
    /// How its state is shown.
    type Kind: Kind;

    fn log(&self) -> &Log<Self::Kind>;

    /// Its log, how it is shown at `watermark`, and its state.
    fn parts(&mut self, watermark: Option<u64>) -> (&mut Log<Self::Kind>, Self::Kind, &[CellOf<Self>]);
}

type CellOf<L> = <<L as Logged>::Kind as Kind>::Cell;

impl<L: Logged> PublishesRecipes for L {
    fn recipe(&self) -> Result<Box<dyn Recipe>> {
        Ok(Box::new(self.log().recipe()))
    }

    fn prepare(&mut self) -> Result<()> {
        let (log, _, state) = self.parts(None);
        log.prepare(state.len())
    }

    fn prescribe(&mut self, recipe: &mut dyn Recipe, watermark: Option<u64>) -> Result<()> {
        let (log, kind, state) = self.parts(watermark);
        log.prescribe(recipe_of(recipe), kind, state)
    }

    fn makes_at_once(&mut self, is_wanted: bool) -> bool {
        self.parts(None).0.makes_at_once(is_wanted)
    }

    fn may_make_at_once(&self) -> bool {
        true
    }
}
