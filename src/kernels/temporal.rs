//! Kernels with a time axis: bins of absolute event time, of which the last completed ones are shown.
//!
//! Bin `q` is `[q * bin_us, (q + 1) * bin_us)`. Both kernels keep the bin in progress and as many before it
//! as can still be shown, each in the slot `q % slots` of a ring. A stretch of events first moves the ring to
//! its own latest time, then adds its events: what is too late for the ring could not be shown any more, in
//! whatever order events had come. So order and batching cannot change anything.
//!
//! # What a bin is
//!
//! A bin is a list of what its events add (4 bytes an event for the histogram, 8 for the voxel grid), written from front
//! to back. Planes of counters would be written to at random, and would have to be brought in, cleared and written back
//! for every bin: on a large sensor that costs some ten times as much as the list, since a bin has fewer events than the
//! sensor has pixels, and on a small one three times. Only when a list gets longer than four times the number of pixels, or
//! cannot grow, is it added up into planes, and goes on empty.
//!
//! # Calls that are rejected
//!
//! Whether a call has a time out of range is known at its end. Until then its events are added to lists, which can be cut
//! back to what they were. The ring has [`MORE`] more slots than it holds bins, so that as many bins can come in, each in the
//! place of one that was held no more, and the ring can go back. Before it moves on farther, or a list is full, the rest of
//! the call is looked at.
//!
//! # What is published
//!
//! A completed bin is shared with what was published, by counted references: a publication is a list of bins, and its
//! first reader adds them up (`publish/frame.rs`). Nobody changes what is shared. Late events go to a list of their own,
//! which the next publication that shows them joins to the shared one if the earlier publications are gone, else to a second
//! one, or a copy of that. Lists and planes that come back are kept for use again.
//!
//! A bin is shown by as many frames as there are bins. The second reader who adds up lists keeps what they come to for those who
//! come after ([`Sums`]): the counts of a bin, in bytes, or the values of a knot.

use super::kept::{Kept, with_shared};
use super::knot::Knots;
use super::stores::Stores;
use super::{Kernel, PublishesRecipes, Retracts, STATE, new_list, out_of_memory, recipe_of};
use crate::error::{Error, Result};
use crate::event::{Block, Columns, Events, Found, Isa, Needs, RollsBack, in_one_pass_or_back};
use crate::geometry::SensorSize;
use crate::publish::{Lazy, Memory, Recipe, Spec};
use bytemuck::{Pod, Zeroable};
use std::any::Any;
use std::hint::select_unpredictable;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A list grows up to so many entries for each pixel, then it is added up.
const ENTRIES_PER_PIXEL: usize = 4;

/// It has room for so many entries, or for this fraction of the sensor, from the start: bins of 12 ms at 20 million events a
/// second do not make it grow.
const ROOM: usize = 5 << 16;
const PIXELS_PER_ROOM: usize = 2;

/// From this fraction of the sensor on, lists are not added up time and again.
const PIXELS_PER_SUMMED: usize = 32;

/// Bins that a call may bring in before all of it was looked at.
const MORE: u64 = 2;

/// Which bins a ring of slots holds.
struct Ring {
    slots: u64,
    bin_us: u64,
    /// The bin in progress: the latest that can hold anything.
    newest: Option<u64>,
}

impl Ring {
    /// The slot of bin `q`, if it has one and can be shown.
    fn slot(&self, q: u64) -> Option<usize> {
        let held = self.newest.is_some_and(|newest| q <= newest && newest - q < self.slots - MORE);
        held.then(|| (q % self.slots) as usize)
    }

    /// Moves on to the bin of `watermark`; `clear` is called with the slots of the bins that come in.
    fn advance(&mut self, watermark: u64, mut clear: impl FnMut(usize)) {
        let newest = watermark / self.bin_us;
        // Before the first event all slots are clear.
        let before = self.newest.unwrap_or(newest);
        let coming = newest.saturating_sub(before).min(self.slots);
        for back in 0..coming {
            clear(((newest - back) % self.slots) as usize);
        }
        self.newest = Some(newest.max(before));
    }
}

/// What distinguishes the two kernels.
pub trait Kind: Copy + Send + Sync + 'static {
    /// What an event adds.
    type Entry: Copy + Send + Sync;
    /// An element of planes.
    type Cell: Pod + Send + Sync;
    /// What is kept of a bin that is read more than once.
    type Kept: Send + Sync;

    /// Whether that depends on the bin before as well.
    const KEPT_OF_TWO: bool;

    /// Memory to add up in what is not kept.
    type Scratch: Default + Send;

    /// The entry of an event that is `into` µs into its bin.
    fn entry(self, pixel: u32, into: u64, on: bool) -> Self::Entry;

    /// Adds entries up into the planes of their bin.
    fn add(self, planes: &mut [Self::Cell], entries: impl Iterator<Item = Self::Entry>);

    /// Whether it pays to keep what this bin comes to.
    fn is_worth_keeping(self, before: &Content<'_, Self>, bin: &Content<'_, Self>) -> bool;

    /// Adds up what a bin holds, in the memory of something that was kept before.
    fn keep(
        self,
        before: &Content<'_, Self>,
        bin: &Content<'_, Self>,
        spare: Option<Self::Kept>,
    ) -> Result<Self::Kept>;

    /// Writes a frame.
    fn make<'a>(
        self,
        out: &mut [u8],
        bins: &'a impl Bins<'a, Self>,
        scratch: &mut Self::Scratch,
    ) -> Result<()>;
}

/// The completed bins that a frame shows, from the first.
pub trait Bins<'a, K: Kind> {
    fn content(&'a self, j: usize) -> Content<'a, K>;

    /// What is kept of bin `j`, if anything is.
    fn kept(&'a self, j: usize) -> Option<&'a K::Kept>;
}

/// What a bin holds: the sum of planes (if there are any) and lists. What is kept of it, if that is there already.
pub struct Content<'a, K: Kind> {
    planes: Option<&'a [K::Cell]>,
    lists: [&'a [K::Entry]; 3],
    kept: Option<&'a K::Kept>,
}

impl<K: Kind> Content<'_, K> {
    const EMPTY: Self = Self { planes: None, lists: [&[]; 3], kept: None };

    /// Calls `f` with the entries of its lists, in loops that know no more than one list.
    #[inline(always)]
    fn for_each(&self, mut f: impl FnMut(K::Entry)) {
        for list in self.lists {
            list.iter().for_each(|&entry| f(entry));
        }
    }

    fn len(&self) -> usize {
        self.lists.iter().map(|list| list.len()).sum()
    }
}

type List<K> = Arc<Vec<<K as Kind>::Entry>>;
type Planes<K> = Arc<Box<[<K as Kind>::Cell]>>;

fn entries<E>(list: &Option<Arc<Vec<E>>>) -> &[E] {
    list.as_ref().map_or(&[], |list| list)
}

fn are_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// A bin as a publication has it.
struct Part<K: Kind> {
    list: Option<List<K>>,
    late: Option<List<K>>,
    planes: Option<Planes<K>>,
    sums: Option<Arc<Sums<K>>>,
}

impl<K: Kind> Part<K> {
    const EMPTY: Self = Self { list: None, late: None, planes: None, sums: None };

    fn content(&self) -> Content<'_, K> {
        let [list, late] = [&self.list, &self.late].map(entries);
        let planes = self.planes.as_ref().map(|planes| &planes[..]);
        let kept = self.sums.as_ref().and_then(|sums| sums.made.get());
        Content { planes, lists: [list, late, &[]], kept }
    }

    /// Whether it is all that `bin` holds. While it refers to a list or planes, nobody changes them, nor can others be in their
    /// place in memory.
    fn is_all_of(&self, bin: &Bin<K>) -> bool {
        let planes = bin.is_used.then_some(&bin.planes);
        bin.own.is_empty()
            && are_same(self.list.as_ref(), bin.shared.as_ref())
            && are_same(self.late.as_ref(), bin.late.as_ref())
            && are_same(self.planes.as_ref(), planes)
    }

    fn is_empty(&self) -> bool {
        self.list.is_none() && self.late.is_none() && self.planes.is_none()
    }
}

/// What a bin comes to, where it is read more than once. Belongs to one state of the bin, and of the one before if that matters.
struct Sums<K: Kind> {
    /// How often it was asked for.
    reads: AtomicU32,
    /// Whether the state before was read more than once: then this one will be, too.
    at_once: bool,
    made: Lazy<K::Kept>,
}

impl<K: Kind> Default for Sums<K> {
    fn default() -> Self {
        Self { reads: AtomicU32::new(0), at_once: false, made: Lazy::default() }
    }
}

impl<K: Kind> Sums<K> {
    /// `None` for the first who asks if that may be the only one, and where there is no memory. Those who come when it is
    /// being made wait.
    fn of(&self, kind: K, before: &Content<'_, K>, bin: &Content<'_, K>) -> Option<&K::Kept> {
        // Relaxed: only costs or saves time.
        if self.reads.fetch_add(1, Ordering::Relaxed) == 0 && !self.at_once {
            return None;
        }
        self.made.get_or_make(|spare| kind.keep(before, bin, spare)).ok()
    }

    /// Those of another state, in the same memory.
    fn renew(&mut self) {
        self.at_once = *self.reads.get_mut() > 1;
        *self.reads.get_mut() = 0;
        self.made.unmake();
    }
}

/// A frame to be made: the bins it shows.
struct Shown<K: Kind> {
    kind: K,
    /// The bin in progress, or `None` before the first event.
    now: Option<u64>,
    parts: Vec<Part<K>>,
    scratch: Arc<Mutex<K::Scratch>>,
}

impl<K: Kind> Recipe for Shown<K> {
    fn make(&self, out: &mut [u8]) -> Result<()> {
        with_shared(&self.scratch, |scratch| self.kind.make(out, self, scratch))
    }

    fn empty(&mut self) {
        self.parts.fill_with(|| Part::EMPTY);
    }
}

impl<'a, K: Kind> Bins<'a, K> for Shown<K> {
    fn content(&'a self, j: usize) -> Content<'a, K> {
        self.parts[j].content()
    }

    fn kept(&'a self, j: usize) -> Option<&'a K::Kept> {
        let part = &self.parts[j];
        let before = j.checked_sub(1).map_or(Content::EMPTY, |before| self.parts[before].content());
        let bin = part.content();
        let sums = part.sums.as_ref().filter(|_| self.kind.is_worth_keeping(&before, &bin));
        sums.and_then(|sums| sums.of(self.kind, &before, &bin))
    }
}

/// A bin as the kernel has it.
struct Bin<K: Kind> {
    /// What no publication refers to.
    own: Vec<K::Entry>,
    /// What some may refer to.
    shared: Option<List<K>>,
    /// The same: what came when they did.
    late: Option<List<K>>,
    /// What no list had room for, if `is_used`. Publications may refer to it.
    planes: Planes<K>,
    is_used: bool,
    /// They are not zeros, though not used.
    is_stale: bool,
    /// Those of its last publication, if nothing `has_changed` since.
    sums: Arc<Sums<K>>,
    has_changed: bool,
    /// What is to become of it if the call of this number is rejected: what `own` had, and whether it `has_changed`.
    before: Before,
}

#[derive(Clone, Copy, Default)]
struct Before {
    call: u64,
    len: usize,
    has_changed: bool,
}

/// What is kept of each.
struct Spare<K: Kind> {
    /// Entries that a list has room for from the start, and at most.
    room: usize,
    most: usize,
    lists: Kept<Vec<K::Entry>>,
    planes: Kept<Box<[K::Cell]>>,
    sums: Kept<Sums<K>>,
}

/// What memory for [`Kind::Kept`] is for.
const KEPT: &str = "sums of a time bin";

/// Beyond as many as there are bins, lists and planes that are kept for use again. Publications that nobody holds still
/// refer to theirs until their slot is used again.
const SPARE: usize = 16;

impl<K: Kind> Spare<K> {
    /// An empty list that nobody else refers to.
    fn list(&mut self) -> Result<List<K>> {
        let Some(mut list) = self.lists.take() else { return Ok(Arc::new(new_list(self.room)?)) };
        Arc::get_mut(&mut list).expect("referred to by nobody else").clear();
        Ok(list)
    }

    /// Planes that nobody else refers to, of `cells` zeros or like `planes`.
    fn planes(&mut self, cells: usize, like: Option<&[K::Cell]>) -> Result<Planes<K>> {
        let (mut planes, is_clear) = match self.planes.take() {
            Some(planes) => (planes, false),
            None => (new_planes::<K>(cells)?, true),
        };
        let content = Arc::get_mut(&mut planes).expect("referred to by nobody else");
        match like {
            Some(like) => content.copy_from_slice(like),
            None if is_clear => {}
            None => content.fill(K::Cell::zeroed()),
        }
        Ok(planes)
    }
}

fn new_planes<K: Kind>(cells: usize) -> Result<Planes<K>> {
    // Zeros as the system has them: what is never written to takes no memory.
    bytemuck::allocation::try_zeroed_slice_box(cells)
        .map(Arc::new)
        .map_err(|()| out_of_memory::<K::Cell>(cells))
}

/// Whether a list has room for so many more entries, or got it.
fn has_room<T>(list: &mut Vec<T>, more: usize, most: usize) -> bool {
    let needed = list.len() + more;
    needed <= list.capacity()
        || needed <= most
            && list.try_reserve_exact(most.min(needed.max(2 * list.capacity())) - list.len()).is_ok()
}

/// Moves what is in `own` to a list that is shared: to a copy of it where somebody refers to it. Whether there was room.
fn join<K: Kind>(to: &mut Option<List<K>>, own: &mut Vec<K::Entry>, spare: &mut Spare<K>) -> Result<bool> {
    let Some(shared) = to else {
        let mut list = spare.list()?;
        std::mem::swap(Arc::get_mut(&mut list).expect("referred to by nobody else"), own);
        *to = Some(list);
        return Ok(true);
    };
    if let Some(shared) = Arc::get_mut(shared) {
        let has_room = has_room(shared, own.len(), spare.most);
        if has_room {
            shared.append(own);
        }
        return Ok(has_room);
    }
    let mut copy = spare.list()?;
    let entries = Arc::get_mut(&mut copy).expect("referred to by nobody else");
    let has_room = has_room(entries, shared.len() + own.len(), spare.most);
    if has_room {
        entries.extend_from_slice(shared);
        entries.append(own);
        std::mem::swap(shared, &mut copy);
    }
    spare.lists.keep(copy);
    Ok(has_room)
}

impl<K: Kind> Bin<K> {
    /// Takes in events of this bin, which starts at `start`. Fails only where a list is full, a publication refers to the planes,
    /// and there is no memory for others.
    fn add(&mut self, kind: K, start: u64, events: Columns<'_>, spare: &mut Spare<K>) -> Result<()> {
        let count = events.t.len();
        let entries = events.t.iter().zip(events.pixel).zip(events.p);
        let entries = entries.map(|((&t, &pixel), &p)| kind.entry(pixel, t - start, p != 0));
        self.has_changed = true;
        if !has_room(&mut self.own, count, spare.most) {
            self.add_up(kind, spare)?;
        }
        if count > self.own.capacity() {
            kind.add(self.planes_mut(spare)?, entries);
        } else {
            self.own.extend(entries);
        }
        Ok(())
    }

    /// Adds its own list up into its planes.
    fn add_up(&mut self, kind: K, spare: &mut Spare<K>) -> Result<()> {
        if !self.own.is_empty() {
            let own = std::mem::take(&mut self.own);
            let planes = self.planes_mut(spare);
            let added = planes.map(|planes| kind.add(planes, own.iter().copied()));
            self.own = own;
            added?;
            self.own.clear();
        }
        Ok(())
    }

    /// Its planes, to write to: a copy if a publication refers to them.
    fn planes_mut(&mut self, spare: &mut Spare<K>) -> Result<&mut [K::Cell]> {
        match Arc::get_mut(&mut self.planes) {
            Some(planes) if self.is_stale => planes.fill(K::Cell::zeroed()),
            Some(_) => {}
            None => {
                let copy = spare.planes(self.planes.len(), self.is_used.then_some(&self.planes))?;
                spare.planes.keep(std::mem::replace(&mut self.planes, copy));
            }
        }
        (self.is_used, self.is_stale) = (true, false);
        Ok(Arc::get_mut(&mut self.planes).expect("referred to by nobody else"))
    }

    /// Itself for a publication. All of it can be referred to from here on.
    fn show(&mut self, kind: K, spare: &mut Spare<K>) -> Result<()> {
        if self.has_changed {
            if Arc::get_mut(&mut self.sums).is_none() {
                let other = spare.sums.take().unwrap_or_default();
                spare.sums.keep(std::mem::replace(&mut self.sums, other));
            }
            Arc::get_mut(&mut self.sums).expect("referred to by nobody else").renew();
            self.has_changed = false;
        }
        if self.own.is_empty() {
            return Ok(());
        }
        let is_referred_to = self.shared.as_mut().is_some_and(|shared| Arc::get_mut(shared).is_none());
        let to = if is_referred_to { &mut self.late } else { &mut self.shared };
        if join(to, &mut self.own, spare)? { Ok(()) } else { self.add_up(kind, spare) }
    }

    fn content(&self) -> Content<'_, K> {
        let planes = self.is_used.then(|| &self.planes[..]);
        Content { planes, lists: [entries(&self.shared), entries(&self.late), &self.own], kept: None }
    }

    fn clear(&mut self, spare: &mut Spare<K>) {
        self.own.clear();
        self.has_changed = true;
        for list in [self.shared.take(), self.late.take()].into_iter().flatten() {
            spare.lists.keep(list);
        }
        if self.is_used {
            match Arc::get_mut(&mut self.planes) {
                Some(planes) => planes.fill(K::Cell::zeroed()),
                None => self.is_stale = true,
            }
            self.is_used = false;
        }
    }

    /// Takes note of what it has before `call` changes it.
    fn note(&mut self, call: u64, slot: usize, noted: &mut Vec<usize>) {
        if self.before.call != call {
            self.before = Before { call, len: self.own.len(), has_changed: self.has_changed };
            noted.push(slot);
        }
    }
}

/// A kernel with a time axis.
pub struct Temporal<K: Kind> {
    spec: Spec,
    kind: K,
    /// Completed bins that are shown.
    shown: usize,
    ring: Ring,
    /// The number of the call in progress, the newest bin when it began, and the slots of the bins that it changed since, as
    /// long as it may be rejected.
    call: u64,
    newest_before: Option<u64>,
    noted: Vec<usize>,
    bins: Vec<Bin<K>>,
    spare: Spare<K>,
    scratch: Arc<Mutex<K::Scratch>>,
}

impl<K: Kind> Temporal<K> {
    /// The bin in progress at `watermark`.
    fn now(&self, watermark: Option<u64>) -> Option<u64> {
        watermark.map(|watermark| watermark / self.ring.bin_us)
    }

    fn new(
        spec: Spec,
        kind: K,
        pixels: usize,
        shown: usize,
        bin_us: u64,
        cells: Option<usize>,
    ) -> Result<Self> {
        let slots = shown.checked_add(1 + MORE as usize);
        let bytes = |n: usize| n.checked_mul(size_of::<K::Cell>()).filter(|&n| isize::try_from(n).is_ok());
        let all = slots.zip(cells).and_then(|(slots, cells)| slots.checked_mul(cells)).and_then(bytes);
        let (Some(slots), Some(cells), Some(_)) = (slots, cells, all) else {
            return Err(Error::OutOfMemory { what: STATE, bytes: None });
        };
        let most = pixels.saturating_mul(ENTRIES_PER_PIXEL);
        let room = most.min(ROOM.max(pixels / PIXELS_PER_ROOM));
        let mut bins = new_list(slots)?;
        let keep = slots + SPARE;
        let (lists, planes, sums) = (Kept::new(keep + slots), Kept::new(keep), Kept::new(keep));
        let mut spare = Spare { room, most, lists, planes, sums };
        for _ in 0..slots {
            bins.push(Bin {
                own: new_list(room)?,
                shared: None,
                late: None,
                planes: new_planes::<K>(cells)?,
                is_used: false,
                is_stale: false,
                sums: Arc::default(),
                has_changed: false,
                before: Before::default(),
            });
            // One for itself, one to be shared, and one that the publication before refers to: a call has all that it can need.
            spare.lists.keep(Arc::new(new_list(room)?));
            spare.lists.keep(Arc::new(new_list(room)?));
        }
        let ring = Ring { slots: slots as u64, bin_us, newest: None };
        let (call, newest_before, noted) = (0, None, new_list(slots)?);
        Ok(Self { spec, kind, shown, ring, call, newest_before, noted, bins, spare, scratch: Arc::default() })
    }

    /// The slots of the bins that are shown at `watermark`: `None` for those of before the first event, and of before time 0.
    fn slots_at(&self, watermark: Option<u64>) -> impl Fn(usize) -> Option<usize> {
        let (ring, shown) = (&self.ring, self.shown as u64);
        let now = self.now(watermark);
        move |j| now?.checked_sub(shown - j as u64).and_then(|q| ring.slot(q))
    }
}

impl<K: Kind> Kernel for Temporal<K> {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn accumulate(&mut self, events: Columns<'_>, latest: u64) -> Result<()> {
        self.add(events, latest, true).map(drop)
    }

    fn read(&self, out: &mut [u8], watermark: Option<u64>) -> Result<()> {
        let bins = Current { bins: &self.bins, slot: self.slots_at(watermark) };
        with_shared(&self.scratch, |scratch| self.kind.make(out, &bins, scratch))
    }

    fn retracts(&mut self) -> Option<&mut dyn Retracts> {
        Some(self)
    }

    fn publishes_recipes(&mut self) -> Option<&mut dyn PublishesRecipes> {
        Some(self)
    }

    fn reset(&mut self) -> Result<()> {
        for bin in &mut self.bins {
            bin.clear(&mut self.spare);
        }
        self.ring.newest = None;
        Ok(())
    }
}

impl<K: Kind> Retracts for Temporal<K> {
    fn in_one_pass(&mut self, events: Events<'_>, sensor: SensorSize, block: &mut Block) -> Result<Found> {
        in_one_pass_or_back(events, sensor, block, Needs::ALL, self)?.map_err(|t| Error::Timestamp { t })
    }
}

impl<K: Kind> RollsBack for Temporal<K> {
    type Error = Error;

    fn begin(&mut self) {
        self.call += 1;
        self.newest_before = self.ring.newest;
        self.noted.clear();
    }

    fn add(&mut self, events: Columns<'_>, latest: u64, for_good: bool) -> Result<usize> {
        let Self { kind, ring, call, newest_before, noted, bins, spare, .. } = self;
        let goes_back = newest_before.is_some_and(|before| latest / ring.bin_us <= before + MORE);
        if !for_good && !goes_back {
            return Ok(0);
        }
        ring.advance(latest, |slot| {
            bins[slot].clear(spare);
            if !for_good {
                bins[slot].note(*call, slot, noted);
            }
        });
        let mut rest = events;
        while let Some(&first) = rest.t.first() {
            let q = first / ring.bin_us;
            let start = q * ring.bin_us;
            let n = run_length(rest.t, start, ring.bin_us);
            if let Some(slot) = ring.slot(q) {
                let bin = &mut bins[slot];
                if !for_good {
                    if bin.own.capacity() - bin.own.len() < n {
                        break;
                    }
                    bin.note(*call, slot, noted);
                }
                let run = Columns { t: &rest.t[..n], pixel: &rest.pixel[..n], p: &rest.p[..n] };
                bin.add(*kind, start, run, spare)?;
            }
            rest = Columns { t: &rest.t[n..], pixel: &rest.pixel[n..], p: &rest.p[n..] };
        }
        Ok(events.t.len() - rest.t.len())
    }

    fn roll_back(&mut self) {
        self.ring.newest = self.newest_before;
        for &slot in &self.noted {
            let bin = &mut self.bins[slot];
            bin.own.truncate(bin.before.len);
            bin.has_changed = bin.before.has_changed;
        }
    }
}

/// The bins as they are now.
struct Current<'k, K: Kind, S> {
    bins: &'k [Bin<K>],
    slot: S,
}

impl<'a, K: Kind, S: Fn(usize) -> Option<usize>> Bins<'a, K> for Current<'_, K, S> {
    fn content(&'a self, j: usize) -> Content<'a, K> {
        (self.slot)(j).map_or(Content::EMPTY, |slot| self.bins[slot].content())
    }

    fn kept(&'a self, _j: usize) -> Option<&'a K::Kept> {
        None
    }
}

/// How many of these times, from the first on, are in the bin that starts at `start`.
#[inline]
fn run_length(t: &[u64], start: u64, bin_us: u64) -> usize {
    let is_in = |t: &u64| t.wrapping_sub(start) < bin_us;
    // Without a way out of the inner loop several can be compared at a time.
    let whole =
        t.chunks_exact(64).take_while(|chunk| chunk.iter().fold(true, |all, t| all & is_in(t))).count();
    let n = 64 * whole;
    // The end of most stretches, which have fewer than whole ones where some events were outside.
    if t[n..].iter().fold(true, |all, t| all & is_in(t)) {
        return t.len();
    }
    n + t[n..].iter().take_while(|t| is_in(t)).count()
}

impl<K: Kind> PublishesRecipes for Temporal<K> {
    fn recipe(&self) -> Result<Box<dyn Recipe>> {
        let mut parts = new_list(self.shown)?;
        parts.resize_with(self.shown, || Part::EMPTY);
        Ok(Box::new(Shown { kind: self.kind, now: None, parts, scratch: Arc::clone(&self.scratch) }))
    }

    fn prescribe(&mut self, recipe: &mut dyn Recipe, watermark: Option<u64>) -> Result<()> {
        let Shown { parts, now, .. } = recipe_of::<Shown<K>>(recipe);
        *now = self.now(watermark);
        // From the last on, and before anything can fail: who tries again must not find a knot of what one bin was before.
        for j in (1..if K::KEPT_OF_TWO { parts.len() } else { 0 }).rev() {
            let [before, slot] = [j - 1, j].map(self.slots_at(watermark));
            if let (Some(before), Some(slot)) = (before, slot) {
                let before_has_changed = self.bins[before].has_changed;
                self.bins[slot].has_changed |= before_has_changed;
            }
        }
        for (j, part) in parts.iter_mut().enumerate() {
            let slot = self.slots_at(watermark)(j);
            let Some(slot) = slot else {
                *part = Part::EMPTY;
                continue;
            };
            let bin = &mut self.bins[slot];
            bin.show(self.kind, &mut self.spare)?;
            part.list.clone_from(&bin.shared);
            part.late.clone_from(&bin.late);
            part.planes = bin.is_used.then(|| Arc::clone(&bin.planes));
            part.sums = Some(Arc::clone(&bin.sums));
        }
        Ok(())
    }

    /// As long as the window does not move and no late event falls into a bin that is shown.
    fn still_makes(&self, recipe: &dyn Recipe, watermark: Option<u64>) -> bool {
        let recipe: &dyn Any = recipe;
        let Shown { parts, now, .. } = recipe.downcast_ref::<Shown<K>>().expect("a recipe of this kernel's");
        let slot = self.slots_at(watermark);
        *now == self.now(watermark)
            && parts.iter().enumerate().all(|(j, part)| match slot(j) {
                Some(slot) => part.is_all_of(&self.bins[slot]),
                None => part.is_empty(),
            })
    }
}

/// `(2, bins, H, W)` uint32: +1 per event in its polarity and time bin, modulo 2^32.
#[derive(Clone, Copy)]
pub struct Histogram {
    pixels: usize,
    bins: usize,
    stores: Stores,
}

impl Temporal<Histogram> {
    /// A stacked histogram.
    pub fn histogram(spec: Spec, sensor: SensorSize, bins: usize, bin_us: u64) -> Result<Self> {
        let pixels = sensor.pixels();
        let cells = pixels.checked_mul(2).filter(|&cells| u32::try_from(cells).is_ok());
        let stores = Stores::new(spec.bytes(), Isa::chosen_or_scalar());
        Self::new(spec, Histogram { pixels, bins, stores }, pixels, bins, bin_us, cells)
    }
}

impl Kind for Histogram {
    /// The place in the bin's planes, OFF and ON.
    type Entry = u32;
    type Cell = u32;
    type Kept = Counted;
    type Scratch = Option<Counted>;

    const KEPT_OF_TWO: bool = false;

    #[inline(always)]
    fn entry(self, pixel: u32, _into: u64, on: bool) -> u32 {
        // Both planes have fewer than 2^32 pixels.
        pixel + if on { self.pixels as u32 } else { 0 }
    }

    fn add(self, planes: &mut [u32], entries: impl Iterator<Item = u32>) {
        for entry in entries {
            let count = &mut planes[entry as usize];
            *count = count.wrapping_add(1);
        }
    }

    /// Planes alone can be copied as they are.
    fn is_worth_keeping(self, _before: &Content<'_, Self>, bin: &Content<'_, Self>) -> bool {
        bin.len() >= self.pixels / PIXELS_PER_SUMMED
    }

    fn keep(
        self,
        _before: &Content<'_, Self>,
        bin: &Content<'_, Self>,
        spare: Option<Counted>,
    ) -> Result<Counted> {
        let Some(planes) = bin.planes else { return self.keep_in_bytes(bin, spare) };
        let spare = spare.and_then(Counted::words);
        let mut words =
            spare.map_or_else(|| Memory::zeroed_for::<u32>(KEPT, self.pixels.checked_mul(2)), Ok)?;
        words.as_mut_slice().copy_from_slice(planes);
        for list in bin.lists {
            self.add(words.as_mut_slice(), list.iter().copied());
        }
        Ok(Counted::Words(words))
    }

    fn make<'a>(
        self,
        out: &mut [u8],
        all: &'a impl Bins<'a, Self>,
        scratch: &mut Option<Counted>,
    ) -> Result<()> {
        let Self { pixels, bins, .. } = self;
        let out = bytemuck::cast_slice_mut::<_, u32>(out);
        // The beginning last, as who reads begins there (`stores.rs`).
        for j in (0..bins).rev() {
            // From the OFF plane of the bin to the end of its ON plane; the other bins' planes lie between.
            let out = &mut out[j * pixels..][..(bins + 1) * pixels];
            let mut counted = all.kept(j);
            if counted.is_none() {
                let bin = all.content(j);
                if self.is_worth_keeping(&Content::EMPTY, &bin) && bin.planes.is_none() {
                    // Without memory for it there is the other way.
                    *scratch = self.keep_in_bytes(&bin, scratch.take()).ok();
                    counted = scratch.as_ref();
                }
            }
            match counted {
                Some(counted) => self.show(out, counted),
                None => self.add_up(out, &all.content(j)),
            }
        }
        Ok(())
    }
}

/// The counts of a bin, OFF and ON.
pub enum Counted {
    /// Modulo 256, and the places where they went around, as often as they did.
    Bytes { low: Memory, carried: Vec<u32> },
    /// Those of bins that planes were made for.
    Words(Memory),
}

impl Counted {
    fn words(self) -> Option<Memory> {
        match self {
            Self::Words(memory) => Some(memory),
            Self::Bytes { .. } => None,
        }
    }

    fn bytes(self) -> Option<(Memory, Vec<u32>)> {
        match self {
            Self::Bytes { low, carried } => Some((low, carried)),
            Self::Words(_) => None,
        }
    }
}

impl Histogram {
    /// The two planes of a bin, and the place of an entry, in a part of a frame that starts and ends with them.
    fn planes(self, out: &mut [u32]) -> [&mut [u32]; 2] {
        let (off, on) = out.split_at_mut(self.bins * self.pixels);
        [&mut off[..self.pixels], on]
    }

    #[inline(always)]
    fn place(self, entry: u32) -> usize {
        let place = entry as usize;
        // Which polarity comes next cannot be told.
        select_unpredictable(place >= self.pixels, place + (self.bins - 1) * self.pixels, place)
    }

    fn show(self, out: &mut [u32], counted: &Counted) {
        match counted {
            Counted::Bytes { low, carried } => {
                let [off, on] = self.planes(out);
                let (low_off, low_on) = low.as_slice::<u8>().split_at(self.pixels);
                self.stores.widen(on, low_on);
                self.stores.widen(off, low_off);
                for &entry in carried {
                    out[self.place(entry)] += 1 << 8;
                }
            }
            Counted::Words(words) => self.copy(out, words.as_slice()),
        }
    }

    fn copy(self, out: &mut [u32], planes: &[u32]) {
        let ([off, on], (planes_off, planes_on)) = (self.planes(out), planes.split_at(self.pixels));
        self.stores.copy(on, planes_on);
        self.stores.copy(off, planes_off);
    }

    fn add_up(self, out: &mut [u32], bin: &Content<'_, Self>) {
        match bin.planes {
            Some(planes) => self.copy(out, planes),
            None => self.planes(out).into_iter().for_each(|plane| plane.fill(0)),
        }
        bin.for_each(|entry| {
            let count = &mut out[self.place(entry)];
            *count = count.wrapping_add(1);
        });
    }

    fn keep_in_bytes(self, bin: &Content<'_, Self>, spare: Option<Counted>) -> Result<Counted> {
        let (mut low, mut carried) = match spare.and_then(Counted::bytes) {
            Some(spare) => spare,
            None => (Memory::zeroed_for::<u8>(KEPT, self.pixels.checked_mul(2))?, Vec::new()),
        };
        low.clear();
        carried.clear();
        let most = bin.len() >> 8;
        carried.try_reserve(most).map_err(|_| out_of_memory::<u32>(most))?;
        let counts = low.as_mut_slice::<u8>();
        bin.for_each(|entry| {
            let count = &mut counts[entry as usize];
            let (sum, goes_around) = count.overflowing_add(1);
            *count = sum;
            if goes_around {
                carried.push(entry);
            }
        });
        Ok(Counted::Bytes { low, carried })
    }
}

/// `(bins, H, W)` float32: ±1 per event, split linearly between the two knots around its time (the event
/// volume of Zhu et al., CVPR 2019, on a fixed time grid).
///
/// Knot `k` is at `k * bin_us`. An event at `q * bin_us + r` adds `s * (bin_us - r)` to knot `q` and `s * r`
/// to knot `q + 1`. The two are kept apart, per bin: the first knot shown counts only what bins on its right
/// gave it, the last only what bins on its left did.
#[derive(Clone, Copy)]
pub struct Voxel {
    pixels: usize,
    /// Pixels of a part of the sensor, where bins are sorted by parts.
    part_shift: u32,
    bin_us: u64,
    stores: Stores,
    knots: Knots,
}

/// An event in a list of the voxel grid: the pixel, then `into << 1 | on`, which is below 2^29.
pub type VoxelEntry = (u32, u32);

/// Share of the knot at the bin's start, share of the knot at its end, times `bin_us`.
pub type Shares = [i64; 2];

impl Temporal<Voxel> {
    /// A voxel grid of `bins` knots.
    pub fn voxel(spec: Spec, sensor: SensorSize, bins: usize, bin_us: u64) -> Result<Self> {
        let pixels = sensor.pixels();
        let isa = Isa::chosen_or_scalar();
        let (stores, knots) = (Stores::new(spec.bytes(), isa), Knots::new(isa, bin_us));
        let voxel = Voxel { pixels, part_shift: part_shift(pixels), bin_us, stores, knots };
        Self::new(spec, voxel, pixels, bins - 1, bin_us, Some(pixels))
    }
}

impl Voxel {
    /// What an entry adds to the knot at its bin's start and to the one at its end. Both are below 2^28 in size.
    #[inline(always)]
    fn shares(self, (_, when): VoxelEntry) -> [i32; 2] {
        let into = (when >> 1) as i32;
        let sign = select_unpredictable(when & 1 != 0, 1, -1);
        [sign * (self.bin_us as i32 - into), sign * into]
    }

    /// The sum of a knot, where 32 bits are not enough.
    #[cold]
    fn knot_in_full(
        self,
        out: &mut [i32],
        before: &Content<'_, Self>,
        after: &Content<'_, Self>,
    ) -> Result<()> {
        let mut sums: Vec<i64> = new_list(self.pixels)?;
        sums.resize(self.pixels, 0);
        for (bin, share) in [(before, 1), (after, 0)] {
            for (sum, shares) in sums.iter_mut().zip(bin.planes.unwrap_or(&[])) {
                *sum = sum.wrapping_add(shares[share]);
            }
            bin.for_each(|entry| {
                let sum = &mut sums[entry.0 as usize];
                *sum = sum.wrapping_add(i64::from(self.shares(entry)[share]));
            });
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = ((sum as f64 / self.bin_us as f64) as f32).to_bits() as i32;
        }
        Ok(())
    }
}

impl Kind for Voxel {
    type Entry = VoxelEntry;
    type Cell = Shares;
    type Kept = Knot;
    /// Of the bins on both sides of a knot.
    type Scratch = [Sorted; 2];

    const KEPT_OF_TWO: bool = true;

    #[inline(always)]
    fn entry(self, pixel: u32, into: u64, on: bool) -> VoxelEntry {
        (pixel, (into as u32) << 1 | u32::from(on))
    }

    fn add(self, planes: &mut [Shares], entries: impl Iterator<Item = VoxelEntry>) {
        for entry in entries {
            let [start, end] = self.shares(entry);
            let sums = &mut planes[entry.0 as usize];
            *sums = [sums[0].wrapping_add(start.into()), sums[1].wrapping_add(end.into())];
        }
    }

    fn is_worth_keeping(self, before: &Content<'_, Self>, bin: &Content<'_, Self>) -> bool {
        let has_planes = before.planes.or(bin.planes).is_some();
        has_planes || before.len() + bin.len() >= self.pixels / PIXELS_PER_SUMMED
    }

    fn keep(self, before: &Content<'_, Self>, bin: &Content<'_, Self>, spare: Option<Knot>) -> Result<Knot> {
        let (mut values, mut sorted) = match spare {
            Some(Knot { values, sorted }) => (values, sorted),
            None => (Memory::zeroed_for::<i32>(KEPT, Some(self.pixels))?, Sorted::default()),
        };
        sorted.sort(self, bin)?;
        self.knot(values.as_mut_slice(), [(before, sorted_of(before)), (bin, sorted.if_parted())])?;
        Ok(Knot { values, sorted })
    }

    fn make<'a>(
        self,
        out: &mut [u8],
        bins: &'a impl Bins<'a, Self>,
        [scratch_before, scratch_after]: &mut [Sorted; 2],
    ) -> Result<()> {
        let mut knots = bytemuck::cast_slice_mut::<_, i32>(out).chunks_exact_mut(self.pixels);
        let mut before = Content::EMPTY;
        // Whether the scratch of the bin after a knot, which is the one before the next, has its entries.
        let mut is_sorted = false;
        // Knot `j` is between the bins `j - 1` and `j`; the outermost have one. What is kept is of two.
        for j in 0.. {
            let Some(knot) = knots.next() else { break };
            let is_last = knots.len() == 0;
            let kept = if j > 0 && !is_last { bins.kept(j) } else { None };
            let after = if is_last { Content::EMPTY } else { bins.content(j) };
            std::mem::swap(scratch_before, scratch_after);
            let mut was_sorted = std::mem::replace(&mut is_sorted, false);
            if let Some(kept) = kept {
                self.stores.copy(bytemuck::cast_slice_mut(knot), kept.values.as_slice());
            } else {
                let sorted_before = self.sorted(&before, scratch_before, &mut was_sorted);
                let sorted_after = self.sorted(&after, scratch_after, &mut is_sorted);
                self.knot(knot, [(&before, sorted_before), (&after, sorted_after)])?;
            }
            before = after;
        }
        Ok(())
    }
}

/// What is kept of a bin of the voxel grid.
pub struct Knot {
    /// The values of the knot between the bin before and this one.
    values: Memory,
    sorted: Sorted,
}

/// The entries of a bin, those of one part of the sensor after those of another: adding them up finds the sums in the cache.
/// For sensors that are large enough; for others there are no parts.
#[derive(Default)]
pub struct Sorted {
    entries: Vec<VoxelEntry>,
    /// Where those of each part end.
    ends: Vec<usize>,
}

/// Pixels of a part of the sensor, at least: their sums are about as large as the first cache. Tests have small sensors.
const PART: usize = if cfg!(test) { 1 << 5 } else { 1 << 14 };
/// The most parts: sorting writes to all of them at a time.
const PARTS: usize = if cfg!(test) { 16 } else { 64 };
/// Up to so many pixels, the sums of all are within the L2 cache.
const UNPARTED: usize = if cfg!(test) { 4 * PART } else { 1 << 19 };

/// Pixels of a part of a sensor of so many, as a power of two.
fn part_shift(pixels: usize) -> u32 {
    pixels.div_ceil(PARTS).max(PART).next_power_of_two().trailing_zeros()
}

impl Sorted {
    /// Those of a bin, in the place of others.
    fn sort(&mut self, Voxel { pixels, part_shift, .. }: Voxel, bin: &Content<'_, Voxel>) -> Result<()> {
        let Self { entries, ends } = self;
        let (parts, count) = (pixels.div_ceil(1 << part_shift), bin.len());
        ends.clear();
        if pixels <= UNPARTED {
            return Ok(());
        }
        // All of what is there is overwritten.
        let more = count.saturating_sub(entries.len());
        entries.try_reserve_exact(more).map_err(|_| out_of_memory::<VoxelEntry>(count))?;
        ends.try_reserve_exact(parts).map_err(|_| out_of_memory::<usize>(parts))?;
        entries.resize(count, (0, 0));
        ends.resize(parts, 0);
        bin.for_each(|(pixel, _)| ends[pixel as usize >> part_shift] += 1);
        let mut sum = 0;
        // Where each starts, which moves on to where it ends.
        for end in &mut *ends {
            sum += std::mem::replace(end, sum);
        }
        bin.for_each(|entry| {
            let end = &mut ends[entry.0 as usize >> part_shift];
            entries[*end] = entry;
            *end += 1;
        });
        Ok(())
    }

    /// Itself, if there are parts.
    fn if_parted(&self) -> Option<&Self> {
        (!self.ends.is_empty()).then_some(self)
    }

    /// Those of part `i`; none where there are none at all.
    fn part(sorted: Option<&Self>, i: usize) -> &[VoxelEntry] {
        let Some(Self { entries, ends }) = sorted else { return &[] };
        &entries[i.checked_sub(1).map_or(0, |before| ends[before])..ends[i]]
    }
}

/// The entries of a bin, if they are sorted.
fn sorted_of<'a>(bin: &Content<'a, Voxel>) -> Option<&'a Sorted> {
    bin.kept.and_then(|kept| kept.sorted.if_parted())
}

impl Voxel {
    /// Writes the values of the knot between two bins, of which some are sorted. Adds up in place, in 32 bits, and notices if
    /// these were not enough.
    fn knot(self, out: &mut [i32], bins: [(&Content<'_, Self>, Option<&Sorted>); 2]) -> Result<()> {
        let [(before, sorted_before), (after, sorted_after)] = bins;
        let is_sorted = |(bin, sorted): (&Content<'_, Self>, Option<&Sorted>)| {
            bin.planes.is_none() && (bin.len() == 0 || sorted.is_some())
        };
        let mut fits = true;
        if bins.into_iter().all(is_sorted) {
            for (i, out) in out.chunks_mut(1 << self.part_shift).enumerate() {
                out.fill(0);
                let first = i << self.part_shift;
                fits &= self.add_shares::<1>(out, first, Sorted::part(sorted_before, i));
                fits &= self.add_shares::<0>(out, first, Sorted::part(sorted_after, i));
                self.knots.finish(out);
            }
        } else {
            out.fill(0);
            for (bin, share) in [(before, 1), (after, 0)] {
                for (sum, cell) in out.iter_mut().zip(bin.planes.unwrap_or(&[])) {
                    let full = i64::from(*sum).wrapping_add(cell[share]);
                    *sum = full as i32;
                    fits &= i64::from(*sum) == full;
                }
            }
            for i in 0..before.lists.len() {
                fits &= self.add_shares::<1>(out, 0, before.lists[i]);
                fits &= self.add_shares::<0>(out, 0, after.lists[i]);
            }
            self.knots.finish(out);
        }
        if fits { Ok(()) } else { self.knot_in_full(out, before, after) }
    }

    /// The entries of a bin, sorted: those that are kept, or in the scratch. None where that is no gain, or there is no memory.
    fn sorted<'a>(
        self,
        bin: &Content<'a, Self>,
        scratch: &'a mut Sorted,
        is_there: &mut bool,
    ) -> Option<&'a Sorted> {
        let kept = sorted_of(bin);
        if kept.is_some() {
            return kept;
        }
        if !*is_there {
            *is_there = bin.planes.is_none() && bin.len() > 0 && scratch.sort(self, bin).is_ok();
        }
        if *is_there { scratch.if_parted() } else { None }
    }

    /// Adds one share of each entry to the sums of the pixels from `first` on. Whether they fit in 32 bits.
    fn add_shares<const SHARE: usize>(self, sums: &mut [i32], first: usize, entries: &[VoxelEntry]) -> bool {
        let mut fits = true;
        for &entry in entries {
            let sum = &mut sums[entry.0 as usize - first];
            let (new, lost) = sum.overflowing_add(self.shares(entry)[SHARE]);
            (*sum, fits) = (new, fits & !lost);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn histogram_counts_wrap() {
        let sensor = SensorSize::new(1, 1).unwrap();
        let config = Config::StackedHistogram { bins: 1, bin_us: 10 };
        let mut kernel = Temporal::histogram(config.spec(sensor), sensor, 1, 10).unwrap();
        kernel.ring.newest = Some(0);
        kernel.bins[0].planes_mut(&mut kernel.spare).unwrap().fill(u32::MAX);
        kernel.accumulate(Columns { t: &[3, 4], pixel: &[0, 0], p: &[0, 0] }, 4).unwrap();
        let mut out = [0u32; 2];
        kernel.read(bytemuck::cast_slice_mut(&mut out), Some(10)).unwrap();
        assert_eq!(out, [1, u32::MAX]);
    }

    #[test]
    fn voxel_numerators_wrap_and_are_read_as_signed() {
        let sensor = SensorSize::new(1, 1).unwrap();
        let config = Config::VoxelGrid { bins: 3, bin_us: 10 };
        let mut kernel = Temporal::voxel(config.spec(sensor), sensor, 3, 10).unwrap();
        kernel.ring.newest = Some(1);
        for bin in &mut kernel.bins {
            bin.planes_mut(&mut kernel.spare).unwrap().fill([i64::MAX - 1, i64::MAX - 1]);
        }
        // Bin 0 gets 7 and 3, bin 1 gets 10 and 0.
        kernel.accumulate(Columns { t: &[3, 10], pixel: &[0, 0], p: &[1, 1] }, 10).unwrap();
        let mut out = [0f32; 3];
        kernel.read(bytemuck::cast_slice_mut(&mut out), Some(20)).unwrap();
        let value = |numerator: i128| (((numerator as i64) as f64) / 10.0) as f32;
        let max = i128::from(i64::MAX) - 1;
        assert_eq!(out, [value(max + 7), value(2 * max + 3 + 10), value(max)]);
    }
}
