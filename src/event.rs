//! Event records in caller memory, and the private blocks that are made of them.
//!
//! A caller's array may be written by another thread while it is read here. So nothing outside this
//! file ever looks at caller memory: a block of records is copied out first, each value once, and all
//! checks and all uses look at the private copy. What a racing writer can cause is a torn value in a
//! frame, never an index that was not checked.
//!
//! This file is allowed `unsafe`: it reads through raw pointers. No slice over caller memory is formed.
#![allow(unsafe_code)]

use crate::geometry::SensorSize;
use std::any::Any;
use std::ffi::OsStr;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

/// Timestamps at and above this value reject the whole call.
pub const TIMESTAMP_LIMIT: u64 = 1 << 63;

/// Events in one private block: so few that its columns (13 bytes an event) and its raw copy take a small part of the L1
/// cache, and that decoding a block and waiting for the pixels of the one before overlap.
pub const BLOCK: usize = 256;

/// Where the four fields of a record are: offsets from its start, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    stride: usize,
    t: usize,
    x: usize,
    y: usize,
    p: usize,
}

impl Layout {
    /// The packed 13-byte record of `EVENT_DTYPE`.
    pub const PACKED: Self = Self { stride: 13, t: 0, x: 8, y: 10, p: 12 };

    /// A record of `stride` bytes with `t` (u64), `x`, `y` (u16) and `p` (u8) at these offsets,
    /// little-endian, in any order, overlapping or not. `None` if a field would reach beyond the record.
    pub fn new(stride: usize, t: usize, x: usize, y: usize, p: usize) -> Option<Self> {
        let fits = |offset: usize, size: usize| offset.checked_add(size).is_some_and(|end| end <= stride);
        (fits(t, 8) && fits(x, 2) && fits(y, 2) && fits(p, 1)).then_some(Self { stride, t, x, y, p })
    }

    /// Bytes from one record to the next.
    pub fn stride(self) -> usize {
        self.stride
    }
}

/// A borrowed run of event records that some other thread may be writing to.
#[derive(Clone, Copy)]
pub struct Events<'a> {
    data: *const u8,
    len: usize,
    layout: Layout,
    origin: Option<&'a (dyn Any + Send + Sync)>,
    _memory: PhantomData<&'a [u8]>,
}

// SAFETY: by `from_raw`'s promise the memory stays for `'a`, whichever thread reads it, and may change at any
// time, so nothing depends on who else has it. `origin` can be shared between threads.
unsafe impl Send for Events<'_> {}

impl<'a> Events<'a> {
    /// Records that stay where they are for `'a`.
    ///
    /// # Safety
    ///
    /// - `data` must be valid for reads of `len * layout.stride()` bytes for all of `'a`, or `len` must be 0.
    /// - The bytes may change meanwhile; they must not be unmapped.
    pub unsafe fn from_raw(data: *const u8, len: usize, layout: Layout) -> Self {
        debug_assert!(len == 0 || !data.is_null());
        Self { data, len, layout, origin: None, _memory: PhantomData }
    }

    /// Packed 13-byte records. Bytes after the last whole record are ignored.
    pub fn packed(bytes: &'a [u8]) -> Self {
        let layout = Layout::PACKED;
        // SAFETY: the slice is valid for reads of its own length for `'a`.
        unsafe { Self::from_raw(bytes.as_ptr(), bytes.len() / layout.stride, layout) }
    }

    /// Remembers the object these records came from, for kernels that want that and not the records.
    pub fn with_origin(mut self, origin: &'a (dyn Any + Send + Sync)) -> Self {
        self.origin = Some(origin);
        self
    }

    /// The object these records came from, if it was given.
    pub fn origin(&self) -> Option<&'a (dyn Any + Send + Sync)> {
        self.origin
    }

    /// How many records.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Calls `f(t, x, y, p)` for the records of `range`, each read once.
    #[inline(always)]
    fn for_each(&self, range: Range<usize>, raw: &mut [u8; RAW], mut f: impl FnMut(u64, u16, u16, u8)) {
        assert!(range.start <= range.end && range.end <= self.len);
        if self.layout == Layout::PACKED {
            const STRIDE: usize = Layout::PACKED.stride;
            for start in range.clone().step_by(BLOCK) {
                let n = BLOCK.min(range.end - start);
                // SAFETY: `start + n <= len`, so the source range is readable by the invariant of `from_raw`;
                // `n <= BLOCK`, so the copy fits `raw`; `raw` is ours, so the two do not overlap.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        self.data.add(start * STRIDE),
                        raw.as_mut_ptr(),
                        n * STRIDE,
                    );
                }
                for r in raw[..n * STRIDE].as_chunks::<STRIDE>().0 {
                    let t = u64::from_le_bytes([r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]]);
                    f(t, u16::from_le_bytes([r[8], r[9]]), u16::from_le_bytes([r[10], r[11]]), r[12]);
                }
            }
        } else {
            let Layout { stride, t, x, y, p } = self.layout;
            for i in range {
                // SAFETY: `i < len` and `Layout::new` saw to it that each field ends inside the record, so
                // each read is inside the memory that `from_raw` was promised. `read_unaligned` asks for no
                // alignment.
                let (t, x, y, p) = unsafe {
                    let record = self.data.add(i * stride);
                    (
                        record.add(t).cast::<u64>().read_unaligned(),
                        record.add(x).cast::<u16>().read_unaligned(),
                        record.add(y).cast::<u16>().read_unaligned(),
                        record.add(p).read(),
                    )
                };
                f(u64::from_le(t), u16::from_le(x), u16::from_le(y), p);
            }
        }
    }

    /// A private copy, packed, each record read once.
    pub fn to_packed(&self) -> Vec<[u8; 13]> {
        let mut packed = Vec::with_capacity(self.len);
        self.for_each(0..self.len, &mut [0; RAW], |t, x, y, p| {
            packed.push(crate::codec::Event { t, x, y, p }.to_record());
        });
        packed
    }

    /// Whether any timestamp of these records is out of range: a pass over one byte of each.
    fn any_out_of_range(&self, range: Range<usize>) -> bool {
        assert!(range.start <= range.end && range.end <= self.len);
        let Layout { stride, t, .. } = self.layout;
        // Four at a time, so that they do not wait for each other.
        let mut tops = [0_u8; 4];
        let read = |i: usize| {
            // SAFETY: `i < len` in both loops, and the byte is inside the record. Volatile, as it may be changing.
            unsafe { self.data.add(i * stride + t + 7).read_volatile() }
        };
        let in_fours = range.start + range.len() / 4 * 4;
        for i in (range.start..in_fours).step_by(4) {
            for (j, top) in tops.iter_mut().enumerate() {
                *top |= read(i + j);
            }
        }
        for i in in_fours..range.end {
            tops[0] |= read(i);
        }
        tops.iter().any(|&top| u64::from(top) >= TIMESTAMP_LIMIT >> 56)
    }

    /// The largest timestamp of a call that was found to have one out of range.
    #[cold]
    fn largest_out_of_range(&self) -> u64 {
        let mut largest = TIMESTAMP_LIMIT;
        self.for_each(0..self.len, &mut [0; RAW], |t, _, _, _| largest = t.max(largest));
        largest
    }

    /// Calls `f` with whether each record is inside `sensor`, in order: the mask of a custom kernel's events.
    pub fn for_each_in_bounds(&self, sensor: SensorSize, mut f: impl FnMut(bool)) {
        let mut raw = [0; RAW];
        self.for_each(0..self.len, &mut raw, |_, x, y, _| f(sensor.index(x, y).is_some()));
    }
}

const RAW: usize = BLOCK * Layout::PACKED.stride;

/// A borrowed column of values of `N` bytes each that some other thread may be writing to.
#[derive(Clone, Copy)]
pub struct Strided<'a> {
    data: *const u8,
    len: usize,
    stride: isize,
    size: usize,
    _memory: PhantomData<&'a [u8]>,
}

// SAFETY: as for `Events`.
unsafe impl Send for Strided<'_> {}

impl<'a> Strided<'a> {
    /// `len` values of `size` bytes, `stride` bytes apart, that stay where they are for `'a`.
    ///
    /// # Safety
    ///
    /// - For each `i < len`, `size` bytes at `data + i * stride` must be valid for reads for all of `'a`.
    /// - The bytes may change meanwhile; they must not be unmapped.
    pub unsafe fn from_raw(data: *const u8, len: usize, stride: isize, size: usize) -> Self {
        Self { data, len, stride, size, _memory: PhantomData }
    }

    /// How many values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets `out[i]` to `f` of the value at `start + i`, which are read once each.
    ///
    /// # Panics
    /// `N` is not the values' size, or there are fewer.
    #[inline(always)]
    pub fn map<const N: usize, T>(&self, start: usize, out: &mut [T], f: impl Fn([u8; N]) -> T) {
        assert!(N == self.size && start <= self.len && out.len() <= self.len - start);
        let next_to_each_other = self.stride == N as isize;
        for (i, slot) in out.iter_mut().enumerate() {
            let i = (start + i) as isize;
            let offset = if next_to_each_other { i * N as isize } else { i * self.stride };
            // SAFETY: the value's index is below `len`, as was asserted, so its bytes are readable by the promise made to
            // `from_raw`; byte arrays need no alignment.
            *slot = f(unsafe { self.data.offset(offset).cast::<[u8; N]>().read() });
        }
    }
}

/// What is found of a call's events, or of a stretch of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Events, out-of-bounds ones included.
    pub events: u64,
    /// Events outside the sensor.
    pub out_of_bounds: u64,
    /// The largest `t` of the events inside the sensor.
    pub latest: Option<u64>,
}

impl Found {
    /// Events inside the sensor.
    pub fn in_bounds(&self) -> u64 {
        self.events - self.out_of_bounds
    }

    fn add(&mut self, other: Self) {
        self.events += other.events;
        self.out_of_bounds += other.out_of_bounds;
        self.latest = self.latest.max(other.latest);
    }
}

/// The in-bounds events of a stretch of a call, as columns of equal length in private memory. A column that the kernel
/// does not need is empty.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    /// Timestamps, µs, below 2^63.
    pub t: &'a [u64],
    /// Row-major pixel indices, each below the sensor's number of pixels.
    pub pixel: &'a [u32],
    /// Polarities as given: 0 is OFF, all else ON.
    pub p: &'a [u8],
}

/// Which columns a kernel looks at besides the pixels; the others it is given are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Timestamps.
    pub t: bool,
    /// Polarities.
    pub p: bool,
}

impl Needs {
    /// All columns.
    pub const ALL: Self = Self { t: true, p: true };
    /// Pixels alone.
    pub const PIXELS: Self = Self { t: false, p: false };
}

/// How blocks are decoded. All ways give the same columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// One event at a time: every machine, every layout, and what the others are tested against.
    Scalar,
    /// Eight packed events at a time, with AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Sixteen packed events at a time, with AVX-512 and its byte permutations.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The ways this machine has, the best last.
    pub fn available() -> Vec<Self> {
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut ways = vec![Self::Scalar];
        #[cfg(target_arch = "x86_64")]
        if avx2::is_available() {
            ways.push(Self::Avx2);
        }
        #[cfg(target_arch = "x86_64")]
        if avx512::is_available() {
            ways.push(Self::Avx512);
        }
        ways
    }

    fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
        }
    }

    /// The best way this machine has, or the one that the environment variable `FRAMES2PY_ISA` names. Looked up once.
    pub fn chosen() -> std::result::Result<Self, String> {
        static CHOSEN: OnceLock<std::result::Result<Isa, String>> = OnceLock::new();
        CHOSEN.get_or_init(|| Self::named(std::env::var_os("FRAMES2PY_ISA").as_deref())).clone()
    }

    /// The same, for where it is too late to say that the variable names none.
    pub fn chosen_or_scalar() -> Self {
        Self::chosen().unwrap_or(Self::Scalar)
    }

    fn named(name: Option<&OsStr>) -> std::result::Result<Self, String> {
        let ways = Self::available();
        match name.filter(|name| !name.is_empty()) {
            None => Ok(ways[ways.len() - 1]),
            Some(name) => ways.iter().copied().find(|way| OsStr::new(way.name()) == name).ok_or_else(|| {
                let names: Vec<_> = ways.iter().map(|way| way.name()).collect();
                format!("FRAMES2PY_ISA must be one of {} on this machine, got {name:?}", names.join(", "))
            }),
        }
    }
}

/// The private memory events are decoded into: made once, used for every call.
pub struct Block {
    isa: Isa,
    raw: Box<[u8; RAW]>,
    columns: Box<Room>,
    len: usize,
    needs: Needs,
    /// Whether more than few events of the block before were outside the sensor.
    squeezes: bool,
    /// Columns that are being counted while the next are decoded.
    before: Box<Room>,
    held: Held,
}

/// Private memory of so many bytes is there to decode events to while their timestamps are looked at. They are taken in from there:
/// a second look at the caller's memory would cost more than one at memory in the L2 cache.
const HELD_BYTES: usize = 256 * 1024;

/// How many events of a call are held so, of which the kernel needs these columns. Of a call of up to twice as many it is the
/// first, of a longer one none.
const fn most_held(needs: Needs) -> usize {
    let bytes = size_of::<u32>() + if needs.t { 8 } else { 0 } + if needs.p { 1 } else { 0 };
    HELD_BYTES / bytes / BLOCK * BLOCK
}

/// The in-bounds events of a call, a stretch after the other. Has no memory before it is needed.
#[derive(Default)]
struct Held {
    t: Vec<u64>,
    pixel: Vec<u32>,
    p: Vec<u8>,
    /// The length of each stretch, and its largest time.
    stretches: Vec<(usize, u64)>,
}

impl Held {
    fn clear(&mut self) {
        self.t.clear();
        self.pixel.clear();
        self.p.clear();
        self.stretches.clear();
    }

    /// Whether there is memory for the most events that are held with these columns. It is empty.
    fn has_room(&mut self, needs: Needs) -> bool {
        let most = most_held(needs);
        self.t.try_reserve_exact(if needs.t { most } else { 0 }).is_ok()
            && self.pixel.try_reserve_exact(most).is_ok()
            && self.p.try_reserve_exact(if needs.p { most } else { 0 }).is_ok()
            && self.stretches.try_reserve_exact(most / BLOCK).is_ok()
    }

    fn push(&mut self, columns: Columns<'_>, latest: u64) {
        self.t.extend_from_slice(columns.t);
        self.pixel.extend_from_slice(columns.pixel);
        self.p.extend_from_slice(columns.p);
        self.stretches.push((columns.pixel.len(), latest));
    }

    fn for_each<E>(&self, mut f: impl FnMut(Columns<'_>, u64) -> Result<(), E>) -> Result<(), E> {
        let Columns { mut t, mut pixel, mut p } = Columns { t: &self.t, pixel: &self.pixel, p: &self.p };
        for &(len, latest) in &self.stretches {
            // A column that is not needed is empty.
            let (now_t, now_p) = (len.min(t.len()), len.min(p.len()));
            f(Columns { t: &t[..now_t], pixel: &pixel[..len], p: &p[..now_p] }, latest)?;
            (t, pixel, p) = (&t[now_t..], &pixel[len..], &p[now_p..]);
        }
        Ok(())
    }
}

/// Room for the columns of a block, and for what a vector store writes beyond the last event.
#[repr(C, align(64))]
struct Room {
    t: [u64; BLOCK + LANES],
    pixel: [u32; BLOCK + LANES],
    p: [u8; BLOCK + LANES],
}

impl Room {
    const fn new() -> Self {
        Self { t: [0; BLOCK + LANES], pixel: [0; BLOCK + LANES], p: [0; BLOCK + LANES] }
    }

    /// The columns of the first `n` events, those that are needed.
    fn first(&self, n: usize, needs: Needs) -> Columns<'_> {
        self.some(0..n, needs)
    }

    #[inline(always)]
    fn some(&self, events: Range<usize>, needs: Needs) -> Columns<'_> {
        Columns {
            t: if needs.t { &self.t[events.clone()] } else { &[] },
            pixel: &self.pixel[events.clone()],
            p: if needs.p { &self.p[events] } else { &[] },
        }
    }
}

/// Events that a vector store may write at once.
const LANES: usize = 16;

/// Up to one in so many events outside are few.
const FEW_OUTSIDE: usize = 32;

/// So many events of a block are decoded, then as many of the one before are counted.
pub const GROUP: usize = 16;

/// What a stretch of events was decoded to.
struct Decoded {
    /// How many are inside the sensor.
    inside: usize,
    /// The largest `t` of those, 0 if there are none.
    latest: u64,
    /// Whether any `t`, inside or outside, is out of range.
    bad: bool,
}

impl Default for Block {
    fn default() -> Self {
        Self::new(Isa::chosen_or_scalar())
    }
}

impl Block {
    /// A block that is filled in this way, which the machine must have.
    pub fn new(isa: Isa) -> Self {
        assert!(Isa::available().contains(&isa));
        Self {
            isa,
            raw: Box::new([0; RAW]),
            columns: Box::new(Room::new()),
            len: 0,
            needs: Needs::ALL,
            squeezes: false,
            before: Box::new(Room::new()),
            held: Held::default(),
        }
    }

    /// Decodes the records of `range` (at most [`BLOCK`]) and keeps those inside `sensor`. Also says whether any of all
    /// of them has its `t` out of range.
    fn load(
        &mut self,
        events: &Events<'_>,
        range: Range<usize>,
        sensor: SensorSize,
        needs: Needs,
    ) -> (Found, bool) {
        self.load_and(events, range, sensor, needs, |_| ())
    }

    /// [`load`](Self::load), which calls `after` with the room of the block before whenever about a [`GROUP`] of events was
    /// decoded. Where events are decoded one at a time it is not called.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables, unused_mut))]
    fn load_and(
        &mut self,
        events: &Events<'_>,
        range: Range<usize>,
        sensor: SensorSize,
        needs: Needs,
        mut after: impl FnMut(&Room),
    ) -> (Found, bool) {
        let count = range.len();
        assert!(count <= BLOCK && range.end <= events.len);
        let Self { columns, before, squeezes, .. } = self;
        let after = || after(before);
        let Decoded { inside, latest, bad } = match self.isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 if events.layout == Layout::PACKED => {
                // SAFETY: as below.
                unsafe { avx2::decode(events, range, sensor, needs, columns, *squeezes, after) }
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if events.layout == Layout::PACKED => {
                // SAFETY: `new` saw that the machine has what the function needs. `range` is inside the records, which are
                // packed.
                unsafe { avx512::decode(events, range, sensor, needs, columns, *squeezes, after) }
            }
            _ => self.decode(events, range, sensor),
        };
        (self.len, self.needs, self.squeezes) = (inside, needs, (count - inside) * FEW_OUTSIDE > count);
        let out_of_bounds = (count - inside) as u64;
        (Found { events: count as u64, out_of_bounds, latest: (inside > 0).then_some(latest) }, bad)
    }

    fn decode(&mut self, events: &Events<'_>, range: Range<usize>, sensor: SensorSize) -> Decoded {
        let count = range.len();
        let Room { t: ts, pixel: pixels, p: ps } = &mut *self.columns;
        let (mut n, mut all) = (0, 0);
        events.for_each(range, &mut self.raw, |t, x, y, p| {
            let index = sensor.index(x, y);
            // Written in any case, kept only if inside: no branch to mispredict. `n % BLOCK` is `n`, as the range is no
            // longer than the block.
            ts[n % BLOCK] = t;
            pixels[n % BLOCK] = index.unwrap_or(0);
            ps[n % BLOCK] = p;
            n += usize::from(index.is_some());
            all |= t;
        });
        debug_assert!(n <= count);
        let latest = ts[..n].iter().copied().max().unwrap_or(0);
        Decoded { inside: n, latest, bad: all >= TIMESTAMP_LIMIT }
    }

    /// Whether these records are decoded in groups.
    fn has_groups(&self, events: &Events<'_>) -> bool {
        self.isa != Isa::Scalar && events.layout == Layout::PACKED
    }

    fn columns(&self) -> Columns<'_> {
        self.columns.first(self.len, self.needs)
    }

    /// Decodes the first `len` events of a call to `held`, which was emptied. Also says whether any of them has its `t` out of range.
    fn hold(&mut self, events: &Events<'_>, len: usize, sensor: SensorSize, needs: Needs) -> (Found, bool) {
        let (mut total, mut any_bad) = (Found::default(), false);
        for range in blocks(0..len) {
            let (found, bad) = self.load(events, range, sensor, needs);
            any_bad |= bad;
            total.add(found);
            if let Some(latest) = found.latest {
                self.held.push(self.columns.first(self.len, needs), latest);
            }
        }
        (total, any_bad)
    }

    /// [`load`](Self::load) for records whose times were found to be in range. Where another thread changed some since then,
    /// those are left out.
    fn load_checked(
        &mut self,
        events: &Events<'_>,
        range: Range<usize>,
        sensor: SensorSize,
        needs: Needs,
    ) -> Found {
        let (found, bad) = self.load(events, range.clone(), sensor, needs);
        if bad { self.load_changed(events, range, sensor) } else { found }
    }

    #[cold]
    fn load_changed(&mut self, events: &Events<'_>, range: Range<usize>, sensor: SensorSize) -> Found {
        let (mut found, _) = self.load(events, range, sensor, Needs::ALL);
        let Room { t, pixel, p } = &mut *self.columns;
        let mut n = 0;
        for i in 0..self.len {
            if t[i] < TIMESTAMP_LIMIT {
                (t[n], pixel[n], p[n]) = (t[i], pixel[i], p[i]);
                n += 1;
            }
        }
        self.len = n;
        found.latest = t[..n].iter().copied().max();
        found
    }
}

/// Where the blocks of these events of a call start and end.
fn blocks(events: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = events.end;
    events.step_by(BLOCK).map(move |start| start..end.min(start + BLOCK))
}

/// The events of one call whose timestamps were checked, and nothing else yet.
pub struct Call<'a> {
    events: Events<'a>,
    sensor: SensorSize,
    block: &'a mut Block,
    needs: Needs,
    /// What was found of those of its events that are in private memory, and how many these are: those of one block, or those held.
    loaded: (Found, usize),
}

impl<'a> Call<'a> {
    /// Looks at all timestamps and changes nothing but `block`. Fails with the largest one if that is out of range. Blocks
    /// will have the columns of `needs`.
    pub fn check(
        events: Events<'a>,
        sensor: SensorSize,
        block: &'a mut Block,
        needs: Needs,
    ) -> Result<Self, u64> {
        let len = events.len();
        let ((found, bad), loaded) = if len <= BLOCK {
            (block.load(&events, 0..len, sensor, needs), len)
        } else {
            // Of a small part of a call it does not pay.
            let most = most_held(needs);
            block.held.clear();
            let held = if len <= 2 * most && block.held.has_room(needs) { len.min(most) } else { 0 };
            if events.any_out_of_range(held..len) {
                return Err(events.largest_out_of_range());
            }
            (block.hold(&events, held, sensor, needs), held)
        };
        if bad {
            return Err(events.largest_out_of_range());
        }
        Ok(Self { events, sensor, block, needs, loaded: (found, loaded) })
    }

    /// The records themselves.
    pub fn events(&self) -> Events<'a> {
        self.events
    }

    /// Counts the events without handing them to anybody.
    pub fn count(&mut self) -> Found {
        self.for_each_block(|_, _| Ok::<_, std::convert::Infallible>(())).unwrap_or_default()
    }

    /// Hands the in-bounds events to `f`, a block at a time, in order; blocks without any are left out. `f` is also given
    /// the largest time of its block.
    pub fn for_each_block<E>(
        &mut self,
        mut f: impl FnMut(Columns<'_>, u64) -> Result<(), E>,
    ) -> Result<Found, E> {
        let (mut total, loaded) = self.loaded;
        if self.events.len() > BLOCK {
            self.block.held.for_each(&mut f)?;
        } else if let Some(latest) = total.latest {
            f(self.block.columns(), latest)?;
        }
        for range in blocks(loaded..self.events.len()) {
            let found = self.block.load_checked(&self.events, range, self.sensor, self.needs);
            if let Some(latest) = found.latest {
                f(self.block.columns(), latest)?;
            }
            total.add(found);
        }
        Ok(total)
    }
}

/// Takes in-bounds events in, and back if their call is rejected after all.
pub trait TakesBack {
    /// Takes a block in.
    fn add(&mut self, events: Columns<'_>);

    /// Whether this block may be taken in by [`add_group`](Self::add_group). If so, nothing else will be asked for before all of
    /// it was.
    fn may_be_in_groups(&mut self, events: Columns<'_>) -> bool;

    /// Takes the next few events of such a block in.
    fn add_group(&mut self, events: Columns<'_>);

    /// Takes back events that were taken in, in whatever order.
    fn remove(&mut self, events: Columns<'_>);
}

/// Hands over the in-bounds events of a call while their timestamps are looked at: one pass over the caller's memory, for
/// whoever can take events back. Fails with the largest timestamp, after all that was added was removed, if that is out of
/// range.
///
/// While a block is decoded, a group after the other, the one before is handed over, a group after the other: one waits for
/// the caller's memory, the other for the kernel's.
///
/// The events are read again to remove them. If another thread changes their coordinates meanwhile, others are removed than
/// were added.
pub fn in_one_pass(
    events: Events<'_>,
    sensor: SensorSize,
    block: &mut Block,
    needs: Needs,
    to: &mut impl TakesBack,
) -> Result<Found, u64> {
    let mut total = Found::default();
    let has_groups = block.has_groups(&events);
    // How many events of the block before are still to be handed over.
    let mut waiting = 0;
    for range in blocks(0..events.len()) {
        let (start, is_last) = (range.start, range.end == events.len());
        let (found, bad) = if waiting == 0 {
            block.load(&events, range, sensor, needs)
        } else {
            let mut done = 0;
            let result = block.load_and(&events, range, sensor, needs, |before| {
                let end = waiting.min(done + GROUP);
                to.add_group(before.some(done..end, needs));
                done = end;
            });
            to.add_group(block.before.some(done..waiting, needs));
            waiting = 0;
            result
        };
        if bad {
            for range in blocks(0..start) {
                block.load(&events, range, sensor, needs);
                to.remove(block.columns());
            }
            return Err(events.largest_out_of_range());
        }
        if found.in_bounds() > 0 {
            if has_groups && !is_last && to.may_be_in_groups(block.columns()) {
                waiting = block.len;
                std::mem::swap(&mut block.columns, &mut block.before);
            } else {
                to.add(block.columns());
            }
        }
        total.add(found);
    }
    Ok(total)
}

/// Takes in-bounds events in, as long as it can take all of a call back if that is rejected after all.
pub trait RollsBack {
    /// Why events cannot be taken in.
    type Error;

    /// A call begins.
    fn begin(&mut self);

    /// Takes in the events of a block, whose largest time is `latest`, or only so many, before one that could not be taken back.
    /// For those that are left it is asked again `for_good`, once all of the call was looked at, and so for all blocks that
    /// follow: then it takes all, or fails.
    fn add(&mut self, events: Columns<'_>, latest: u64, for_good: bool) -> Result<usize, Self::Error>;

    /// Takes back what was taken in since the call began.
    fn roll_back(&mut self);
}

/// Hands over the in-bounds events of a call while their timestamps are looked at: one pass over the caller's memory, until
/// what is done cannot be taken back. Before that the rest of the timestamps are looked at.
///
/// Fails with the largest timestamp, and all rolled back, if that is out of range, and as `add` does.
pub fn in_one_pass_or_back<T: RollsBack>(
    events: Events<'_>,
    sensor: SensorSize,
    block: &mut Block,
    needs: Needs,
    to: &mut T,
) -> Result<Result<Found, u64>, T::Error> {
    let (mut total, mut for_good) = (Found::default(), false);
    to.begin();
    for range in blocks(0..events.len()) {
        let end = range.end;
        let (found, mut is_bad) = if for_good {
            (block.load_checked(&events, range, sensor, needs), false)
        } else {
            block.load(&events, range, sensor, needs)
        };
        if let Some(latest) = found.latest
            && !is_bad
        {
            let taken = to.add(block.columns(), latest, for_good)?;
            if taken < block.len {
                is_bad = events.any_out_of_range(end..events.len());
                for_good = !is_bad;
                if for_good {
                    to.add(block.columns.some(taken..block.len, needs), latest, for_good)?;
                }
            }
        }
        if is_bad {
            to.roll_back();
            return Ok(Err(events.largest_out_of_range()));
        }
        total.add(found);
    }
    Ok(Ok(total))
}

#[cfg(test)]
pub(crate) mod tests;
