//! Where in a file which time is, so that decoding can start there.
//!
//! An index holds a *point* about every 128 KiB of the file: the state of the decoder there, and the earliest and latest
//! time of the events up to the next point. Times may step back anywhere, so a time is looked for in all points: the first
//! one with an event of that time or later is where a seek starts, and a slice reads every point that has some of it. What
//! is decoded from a point is what a decoder that started at the file's beginning makes of it.

use std::io::{ErrorKind, Read, Seek, SeekFrom};

use super::{Decoder, Error, Event, EventBuffer, Record, Saved};

/// Bytes of the file between points: decoded in about a millisecond.
const SPACING: u64 = 128 << 10;

/// Bytes decoded in one go.
const FEED: usize = 16 << 10;

const MAGIC: &[u8; 8] = b"F2PYIDX1";

/// What all of a recording holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of events.
    pub events: u64,
    /// The earliest and the latest time; `None` without events.
    pub times: Option<(u64, u64)>,
}

/// The points of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    points: Vec<Point>,
    /// The states of all points, one after the other.
    states: Vec<u8>,
    totals: Totals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    /// The place in the file of the byte that is fed first.
    offset: u64,
    /// Events before.
    events: u64,
    /// The earliest and the latest time up to the next point; `MAX`, 0 without events.
    earliest: u64,
    latest: u64,
    /// Where its state begins.
    state: u64,
}

/// Consecutive points to be read in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first point.
    pub point: usize,
    /// The events in all of them.
    pub events: u64,
}

/// Makes an index of what is being decoded.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    index: Index,
    next: u64,
}

impl Builder {
    /// A builder at the start of a recording.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that `decoder` will be fed the byte at `offset` next. To be called between any two feeds. False if the format
    /// has no index.
    pub fn before(&mut self, decoder: &dyn Decoder, offset: u64) -> bool {
        if offset < self.next {
            return true;
        }
        let Some(Saved { state, again }) = decoder.save() else { return false };
        let start = offset - again;
        self.next = offset + SPACING;
        if self.index.points.last().is_none_or(|last| last.offset < start) {
            self.point(start, &state);
        }
        true
    }

    /// Notes that the event after those noted so far is the first of a point, which is read from `offset` in this state.
    /// For what is not read by a [`Decoder`].
    pub fn point(&mut self, offset: u64, state: &[u8]) {
        let Index { points, states, totals } = &mut self.index;
        points.push(Point {
            offset,
            events: totals.events,
            earliest: u64::MAX,
            latest: 0,
            state: states.len() as u64,
        });
        states.extend(state);
    }

    /// Notes what was decoded since.
    pub fn after(&mut self, events: &[Record]) {
        let (Some(point), false) = (self.index.points.last_mut(), events.is_empty()) else { return };
        let (mut earliest, mut latest) = (u64::MAX, 0);
        for record in events {
            let t = Event::from_record(record).t;
            earliest = t.min(earliest);
            latest = t.max(latest);
        }
        point.earliest = point.earliest.min(earliest);
        point.latest = point.latest.max(latest);
        let Totals { events: count, times } = &mut self.index.totals;
        *count += events.len() as u64;
        let (first, last) = times.unwrap_or((earliest, latest));
        *times = Some((first.min(earliest), last.max(latest)));
    }

    /// The index of what was decoded, once that is all there is.
    pub fn finish(self) -> Index {
        self.index
    }
}

impl Index {
    /// Makes an index of `input`, whose body is at `start` and is decoded by what `pristine` is a copy of. Calls `on` now
    /// and then, which may end it.
    ///
    /// Where the file breaks its format the index ends: what is behind cannot be decoded.
    ///
    /// # Errors
    /// The file cannot be read, the format cannot be decoded from the middle, or what `on` returns.
    pub fn build(
        input: &mut (impl Read + Seek),
        start: u64,
        pristine: &dyn Decoder,
        mut on: impl FnMut() -> Result<(), Error>,
    ) -> Result<Self, Error> {
        input.seek(SeekFrom::Start(start))?;
        let mut decoder = pristine.fork();
        let (mut builder, mut events) = (Builder::new(), EventBuffer::new());
        let mut bytes = vec![0; 256 << 10];
        let mut offset = start;
        // An empty body has a point, too.
        let mut indexed = builder.before(&*decoder, offset);
        loop {
            on()?;
            let got = match input.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                got => got?,
            };
            if got == 0 {
                events.clear();
                // A fault at the very end is the reader's to tell.
                let _ = decoder.finish(&mut events);
                builder.after(events.records());
                return Ok(builder.finish());
            }
            for block in bytes[..got].chunks(FEED) {
                indexed &= builder.before(&*decoder, offset);
                if !indexed {
                    return Err(Error::Malformed("recordings of this format have no index".into()));
                }
                events.clear();
                let fed = decoder.feed(block, &mut events);
                builder.after(events.records());
                if fed.is_err() {
                    return Ok(builder.finish());
                }
                offset += block.len() as u64;
            }
        }
    }

    /// What the recording holds.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether there is no point.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The point that holds the first event of time `t` or later; the last one if there is none.
    pub fn point_for(&self, t: u64) -> usize {
        let found = self.points.iter().position(|point| point.latest >= t && point.earliest <= point.latest);
        found.unwrap_or(self.points.len().saturating_sub(1))
    }

    /// The points that hold events with `t0 <= t < t1`, neighbours joined.
    pub fn runs(&self, t0: u64, t1: u64) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut last = None;
        for (at, point) in self.points.iter().enumerate() {
            if point.latest < t0 || point.earliest >= t1 || t0 >= t1 {
                continue;
            }
            let end = self.points.get(at + 1).map_or(self.totals.events, |next| next.events);
            let events = end - point.events;
            match runs.last_mut() {
                Some(run) if last == at.checked_sub(1) => run.events += events,
                _ => runs.push(Run { point: at, events }),
            }
            last = Some(at);
        }
        runs
    }

    /// A decoder in the state of a point, a copy of `pristine` otherwise, and the place of what it is fed first.
    pub(super) fn decoder_at(
        &self,
        point: usize,
        pristine: &dyn Decoder,
    ) -> Result<(Box<dyn Decoder>, u64), Error> {
        let mut decoder = pristine.fork();
        match self.point(point) {
            Some((offset, state)) if decoder.load(state) => Ok((decoder, offset)),
            _ => Err(Self::stale()),
        }
    }

    /// Where a point is read from, and its state.
    pub fn point(&self, point: usize) -> Option<(u64, &[u8])> {
        let &Point { offset, state, .. } = self.points.get(point)?;
        let end = self.points.get(point + 1).map_or(self.states.len() as u64, |next| next.state);
        Some((offset, self.states.get(state as usize..end as usize)?))
    }

    pub(super) fn stale() -> Error {
        Error::Malformed("the index does not belong to this file; it was changed, or its index was".into())
    }

    /// The index as bytes. `of` says which file it is of.
    pub fn to_bytes(&self, of: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let mut put = |value: u64| bytes.extend(value.to_le_bytes());
        put(of.len() as u64);
        put(self.points.len() as u64);
        put(self.states.len() as u64);
        put(self.totals.events);
        let (earliest, latest) = self.totals.times.unwrap_or((u64::MAX, 0));
        put(earliest);
        put(latest);
        for point in &self.points {
            [point.offset, point.events, point.earliest, point.latest, point.state]
                .into_iter()
                .for_each(&mut put);
        }
        bytes.extend(of);
        bytes.extend(&self.states);
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// The index that [`to_bytes`](Self::to_bytes) made these bytes of, if it did and `of` is the same.
    pub fn from_bytes(bytes: &[u8], of: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<8>()?;
        if u64::from_le_bytes(*sum) != checksum(body) {
            return None;
        }
        let mut rest = body.strip_prefix(MAGIC)?;
        let mut take = || {
            let (value, behind) = rest.split_first_chunk::<8>()?;
            rest = behind;
            Some(u64::from_le_bytes(*value))
        };
        let [name, count, states, events, earliest, latest] = [(); 6].map(|()| take());
        let count = usize::try_from(count?).ok()?;
        if count > bytes.len() / 40 {
            return None;
        }
        let mut points = Vec::with_capacity(count);
        for _ in 0..count {
            let [offset, events, earliest, latest, state] = [(); 5].map(|()| take());
            points.push(Point {
                offset: offset?,
                events: events?,
                earliest: earliest?,
                latest: latest?,
                state: state?,
            });
        }
        let states_length = usize::try_from(states?).ok()?;
        if name? != of.len() as u64
            || rest.len() != of.len().checked_add(states_length)?
            || !rest.starts_with(of)
        {
            return None;
        }
        let (events, earliest, latest) = (events?, earliest?, latest?);
        let in_order = points.windows(2).all(|two| {
            two[0].offset < two[1].offset && two[0].events <= two[1].events && two[0].state <= two[1].state
        });
        let within =
            points.last().is_none_or(|last| last.events <= events && last.state <= states_length as u64);
        let times = (events > 0).then_some((earliest, latest));
        (in_order && within).then(|| Self {
            points,
            states: rest[of.len()..].to_vec(),
            totals: Totals { events, times },
        })
    }
}

/// FNV-1a, over words: an index is not protected, only told from one that was cut off or overwritten.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().chain([&last]).fold(0xcbf2_9ce4_8422_2325, |sum, word| {
        (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x0100_0000_01b3).rotate_left(29)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;
    use crate::codec::{Evt2Decoder, Head, More, Recording};

    const HEAD: usize = 10;

    /// Bytes of a head, and EVT 2.0 words: a clock that mostly rises, and events.
    fn file(highs: &[u32], events_each: usize, tail: usize) -> Vec<u8> {
        let mut bytes = vec![b'%'; HEAD];
        for (i, high) in highs.iter().enumerate() {
            bytes.extend((0x8 << 28 | high).to_le_bytes());
            for j in 0..events_each {
                bytes.extend(((j as u32 % 64) << 22 | (i as u32 & 0x7ff) << 11).to_le_bytes());
            }
        }
        bytes.extend(&[1; 3][..tail]);
        bytes
    }

    fn recording(bytes: &[u8]) -> Recording<Cursor<Vec<u8>>> {
        let head = Head {
            format: "EVT 2.0",
            geometry: None,
            length: HEAD,
            decoder: Box::new(Evt2Decoder::new(Default::default())),
        };
        let mut input = Cursor::new(bytes.to_vec());
        input.set_position(HEAD as u64);
        Recording::new(head, Vec::new(), input, true, false)
    }

    fn rest(recording: &mut Recording<Cursor<Vec<u8>>>, limit: Option<usize>) -> Vec<Event> {
        let (mut events, mut batch) = (Vec::new(), Vec::new());
        loop {
            match recording.next(&mut batch, limit).unwrap() {
                More::End => return events,
                More::NotYet => {}
                More::Batch => {
                    assert!(!batch.is_empty());
                    assert!(limit.is_none_or(|limit| batch.len() <= limit));
                    events.extend(batch.drain(..).map(|record| Event::from_record(&record)));
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn what_is_found_is_what_a_full_decode_has(
            highs in prop::collection::vec(0u32..40, 1..60),
            events_each in prop::sample::select(vec![0usize, 1, 700, 3000]),
            tail in 0usize..4,
            times in prop::collection::vec(0u64..3000, 1..8),
            limit in prop::sample::select(vec![None, Some(1000), Some(70_000)]),
        ) {
            let bytes = file(&highs, events_each, tail);
            let all = rest(&mut recording(&bytes), None);
            let mut recording = recording(&bytes);
            let index = recording.index(Cursor::new(&bytes), || Ok(())).unwrap();
            let bounds = all.iter().map(|e| e.t).min().zip(all.iter().map(|e| e.t).max());
            prop_assert_eq!(index.totals(), Totals { events: all.len() as u64, times: bounds });
            prop_assert!(index.len() >= (bytes.len() - HEAD) / (SPACING + 2 * FEED as u64) as usize);
            let again = Index::from_bytes(&index.to_bytes(b"name"), b"name").unwrap();
            prop_assert_eq!(&again, &index);
            for t in times {
                let from = all.iter().position(|event| event.t >= t).unwrap_or(all.len());
                recording.seek(&again, t).unwrap();
                prop_assert_eq!(&rest(&mut recording, limit), &all[from..]);
                let end = t + 100;
                let slice = recording.slice(&index, Cursor::new(&bytes), t, end, || Ok(())).unwrap();
                let slice: Vec<_> = slice.iter().map(Event::from_record).collect();
                let expected: Vec<_> = all.iter().copied().filter(|e| (t..end).contains(&e.t)).collect();
                prop_assert_eq!(slice, expected);
            }
        }

        #[test]
        fn an_index_that_was_damaged_is_none(at in any::<prop::sample::Index>(), flip in 1u8..) {
            let bytes = file(&[1, 2, 3, 5], 20_000, 0);
            let index = recording(&bytes).index(Cursor::new(&bytes), || Ok(())).unwrap();
            let mut saved = index.to_bytes(b"name");
            prop_assert!(Index::from_bytes(&saved, b"game").is_none());
            let at = at.index(saved.len());
            prop_assert!(Index::from_bytes(&saved[..at], b"name").is_none());
            saved[at] ^= flip;
            prop_assert!(Index::from_bytes(&saved, b"name").is_none());
        }
    }
}
