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
use std::marker::PhantomData;
use std::ops::Range;

/// Timestamps at and above this value reject the whole call.
pub const TIMESTAMP_LIMIT: u64 = 1 << 63;

/// Events in one private block. Its columns (13 bytes an event) and its raw copy stay in the L1 and L2
/// caches.
pub const BLOCK: usize = 2048;

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

/// The in-bounds events of a stretch of a call, as columns of equal length in private memory.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    /// Timestamps, µs, below 2^63.
    pub t: &'a [u64],
    /// Row-major pixel indices, each below the sensor's number of pixels.
    pub pixel: &'a [u32],
    /// Polarities as given: 0 is OFF, all else ON.
    pub p: &'a [u8],
}

/// The private memory events are copied to: made once, used for every call.
pub struct Block {
    raw: Box<[u8; RAW]>,
    t: Box<[u64; BLOCK]>,
    pixel: Box<[u32; BLOCK]>,
    p: Box<[u8; BLOCK]>,
    len: usize,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            raw: Box::new([0; RAW]),
            t: Box::new([0; BLOCK]),
            pixel: Box::new([0; BLOCK]),
            p: Box::new([0; BLOCK]),
            len: 0,
        }
    }
}

impl Block {
    /// Copies the records of `range` (at most [`BLOCK`]) and keeps those inside `sensor`. Also returns the largest `t` of
    /// all of them.
    fn load(&mut self, events: &Events<'_>, range: Range<usize>, sensor: SensorSize) -> (Found, u64) {
        let count = range.len();
        assert!(count <= BLOCK);
        let Self { raw, t: ts, pixel: pixels, p: ps, len } = self;
        let (mut n, mut largest) = (0, 0);
        events.for_each(range, raw, |t, x, y, p| {
            let index = sensor.index(x, y);
            // Written in any case, kept only if inside: no branch to mispredict. `n % BLOCK` is `n`, as the range is no
            // longer than the block.
            ts[n % BLOCK] = t;
            pixels[n % BLOCK] = index.unwrap_or(0);
            ps[n % BLOCK] = p;
            n += usize::from(index.is_some());
            largest = t.max(largest);
        });
        *len = n;
        let latest = if n == count { largest } else { ts[..n].iter().copied().max().unwrap_or(0) };
        let out_of_bounds = (count - n) as u64;
        (Found { events: count as u64, out_of_bounds, latest: (n > 0).then_some(latest) }, largest)
    }

    fn columns(&self) -> Columns<'_> {
        let n = self.len;
        Columns { t: &self.t[..n], pixel: &self.pixel[..n], p: &self.p[..n] }
    }

    /// Where another thread changed the records after they were checked, times may be too large by now.
    #[cold]
    fn drop_invalid(&mut self) {
        let mut n = 0;
        for i in 0..self.len {
            if self.t[i] < TIMESTAMP_LIMIT {
                (self.t[n], self.pixel[n], self.p[n]) = (self.t[i], self.pixel[i], self.p[i]);
                n += 1;
            }
        }
        self.len = n;
    }
}

/// The events of one call whose timestamps were checked, and nothing else yet.
pub struct Call<'a> {
    events: Events<'a>,
    sensor: SensorSize,
    block: &'a mut Block,
    /// What `block` holds, if that is the whole call.
    loaded: Option<Found>,
}

impl<'a> Call<'a> {
    /// Looks at all timestamps and changes nothing but `block`. Fails with the largest one if that is out of range.
    pub fn check(events: Events<'a>, sensor: SensorSize, block: &'a mut Block) -> Result<Self, u64> {
        let len = events.len();
        let (loaded, largest) = if len <= BLOCK {
            let (found, largest) = block.load(&events, 0..len, sensor);
            (Some(found), largest)
        } else {
            let mut largest = 0;
            events.for_each(0..len, &mut block.raw, |t, _, _, _| largest = t.max(largest));
            (None, largest)
        };
        if largest >= TIMESTAMP_LIMIT {
            return Err(largest);
        }
        Ok(Self { events, sensor, block, loaded })
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
        if let Some(found) = self.loaded {
            if let Some(latest) = found.latest {
                f(self.block.columns(), latest)?;
            }
            return Ok(found);
        }
        let len = self.events.len();
        let mut total = Found::default();
        for start in (0..len).step_by(BLOCK) {
            let (mut found, largest) =
                self.block.load(&self.events, start..len.min(start + BLOCK), self.sensor);
            if largest >= TIMESTAMP_LIMIT {
                self.block.drop_invalid();
                found.latest = self.block.columns().t.iter().copied().max();
            }
            if let Some(latest) = found.latest {
                f(self.block.columns(), latest)?;
            }
            total.add(found);
        }
        Ok(total)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Records in a layout, from `(t, x, y, p)` tuples.
    fn records(events: &[(u64, u16, u16, u8)], layout: Layout) -> Vec<u8> {
        let mut bytes = vec![0xAA; events.len() * layout.stride];
        for (record, &(t, x, y, p)) in bytes.chunks_exact_mut(layout.stride).zip(events) {
            record[layout.t..layout.t + 8].copy_from_slice(&t.to_le_bytes());
            record[layout.x..layout.x + 2].copy_from_slice(&x.to_le_bytes());
            record[layout.y..layout.y + 2].copy_from_slice(&y.to_le_bytes());
            record[layout.p] = p;
        }
        bytes
    }

    /// Records as recordings and `EVENT_DTYPE` have them.
    pub(crate) fn packed(events: &[(u64, u16, u16, u8)]) -> Vec<u8> {
        records(events, Layout::PACKED)
    }

    fn check(count: usize, layout: Layout) {
        let sensor = SensorSize::new(7, 5).unwrap();
        let events: Vec<_> = (0..count as u64)
            .map(|i| (i * 37 % 1009, (i * 11 % 9) as u16, (i * 5 % 6) as u16, (i % 3) as u8))
            .collect();
        let bytes = records(&events, layout);
        // SAFETY: `bytes` holds `count` records and outlives the call.
        let raw = unsafe { Events::from_raw(bytes.as_ptr(), count, layout) };
        let mut block = Block::default();
        let mut call = Call::check(raw, sensor, &mut block).unwrap();
        let mut seen = Vec::new();
        let found = call
            .for_each_block(|c, latest| {
                assert_eq!(c.t.iter().max(), Some(&latest));
                for i in 0..c.t.len() {
                    seen.push((c.t[i], c.pixel[i], c.p[i]));
                }
                Ok::<_, ()>(())
            })
            .unwrap();
        assert_eq!(call.count(), found);

        let inside: Vec<_> = events.iter().filter(|e| e.1 < 7 && e.2 < 5).collect();
        assert_eq!(found.events, count as u64);
        assert_eq!(found.in_bounds(), inside.len() as u64);
        assert_eq!(found.latest, inside.iter().map(|e| e.0).max());
        let expected: Vec<_> =
            inside.iter().map(|&&(t, x, y, p)| (t, u32::from(y) * 7 + u32::from(x), p)).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn every_layout_and_length_gives_the_same_columns() {
        let layouts = [
            Layout::PACKED,
            Layout::new(16, 0, 8, 10, 12).unwrap(),
            Layout::new(17, 9, 1, 5, 0).unwrap(),
            Layout::new(4096, 4000, 7, 11, 4095).unwrap(),
        ];
        for layout in layouts {
            for count in [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17] {
                check(count, layout);
            }
        }
    }

    #[test]
    fn fields_may_overlap_but_not_leave_the_record() {
        assert!(Layout::new(8, 0, 0, 2, 4).is_some());
        assert!(Layout::new(8, 1, 0, 2, 4).is_none());
        assert!(Layout::new(13, 0, 12, 10, 8).is_none());
        assert!(Layout::new(13, usize::MAX, 8, 10, 12).is_none());
    }

    #[test]
    fn one_time_out_of_range_anywhere_rejects_the_call() {
        let sensor = SensorSize::new(4, 1).unwrap();
        for count in [1, BLOCK, BLOCK + 1, 3 * BLOCK] {
            for bad in [0, count / 2, count - 1] {
                let mut events = vec![(5, 9, 9, 1); count];
                events[bad].0 = TIMESTAMP_LIMIT + 3;
                let bytes = records(&events, Layout::PACKED);
                let mut block = Block::default();
                let checked = Call::check(Events::packed(&bytes), sensor, &mut block);
                assert_eq!(checked.err(), Some(TIMESTAMP_LIMIT + 3));
            }
        }
    }

    #[test]
    fn events_that_changed_after_the_check_are_dropped() {
        let mut block = Block::default();
        let bytes = records(&[(5, 0, 0, 1), (TIMESTAMP_LIMIT, 1, 0, 1), (6, 2, 0, 0)], Layout::PACKED);
        block.load(&Events::packed(&bytes), 0..3, SensorSize::new(4, 1).unwrap());
        block.drop_invalid();
        assert_eq!(block.columns().t, &[5, 6]);
        assert_eq!(block.columns().pixel, &[0, 2]);
        assert_eq!(block.columns().p, &[1, 0]);
    }
}
