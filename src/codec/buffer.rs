//! Where decoders put events.
//!
//! Decoders write records they may not keep, which is what makes branch-free loops possible, and write them
//! where the caller wants them, into memory nobody has touched before. So this file is allowed `unsafe`.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::{Record, Trigger};

/// Where decoders put events, and triggers if they are asked for. Meant to be cleared and used again.
#[derive(Default)]
pub struct EventBuffer {
    rows: Vec<Record>,
    /// Rows that were written at some time, from the start. Never below the number of events.
    written: usize,
    /// Triggers, in order, of a decoder that was made to collect them.
    pub triggers: Vec<Trigger>,
}

impl EventBuffer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer that goes on behind the events of `batch`, in the same memory.
    pub fn behind(batch: Vec<Record>) -> Self {
        Self { written: batch.len(), rows: batch, triggers: Vec::new() }
    }

    /// The memory with the events.
    pub fn into_batch(self) -> Vec<Record> {
        self.rows
    }

    /// Forgets the events and keeps the room.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.triggers.clear();
    }

    /// Forgets the events behind the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.rows.truncate(len);
    }

    /// The events, in order.
    pub fn records(&self) -> &[Record] {
        &self.rows
    }

    /// The events as packed bytes, 13 per event.
    pub fn as_bytes(&self) -> &[u8] {
        self.records().as_flattened()
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many events there is room for.
    pub fn capacity(&self) -> usize {
        self.rows.capacity()
    }

    /// Appends events.
    pub fn append(&mut self, events: &[Record]) {
        self.grow(events.len());
        self.rows.extend_from_slice(events);
        self.written = self.written.max(self.rows.len());
    }

    /// `n` rows behind the last event, to be written and then kept with [`keep`](Self::keep).
    pub fn room(&mut self, n: usize) -> &mut [Record] {
        self.grow(n);
        let (len, end, written) = (self.rows.len(), self.rows.len() + n, self.written);
        let room = &mut self.rows.spare_capacity_mut()[..n];
        if written < end {
            for row in &mut room[written - len..] {
                row.write([0; 13]);
            }
        }
        let first = room.as_mut_ptr().cast::<Record>();
        self.written = self.written.max(end);
        // SAFETY: the `n` rows behind the events are inside the capacity; those below the old `written` were
        // written before, those above it just now. They are borrowed from `self`.
        unsafe { std::slice::from_raw_parts_mut(first, n) }
    }

    /// Makes the first `n` rows of the last [`room`](Self::room) events.
    pub fn keep(&mut self, n: usize) {
        assert!(n <= self.written - self.rows.len());
        // SAFETY: they were written, by the line above.
        unsafe { self.keep_written(n) }
    }

    /// As [`room`](Self::room), without a value.
    pub fn uninit_room(&mut self, n: usize) -> &mut [MaybeUninit<Record>] {
        self.grow(n);
        // Whoever gets them may take their values away.
        self.written = self.rows.len();
        &mut self.rows.spare_capacity_mut()[..n]
    }

    fn grow(&mut self, n: usize) {
        if self.rows.capacity() - self.rows.len() < n {
            self.written = self.rows.len();
            self.rows.reserve(n);
        }
    }

    /// Makes the first `n` rows of the last [`uninit_room`](Self::uninit_room) events.
    ///
    /// # Safety
    ///
    /// - The last call of `uninit_room` was for at least `n`.
    /// - The first `n` rows that it returned were written since.
    pub unsafe fn keep_written(&mut self, n: usize) {
        let len = self.rows.len() + n;
        debug_assert!(len <= self.rows.capacity());
        // SAFETY: the capacity suffices and the rows were written, both by the caller's promise.
        unsafe { self.rows.set_len(len) };
        self.written = self.written.max(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Event;

    fn event(t: u64) -> Record {
        Event { t, x: 1, y: 2, p: 3 }.to_record()
    }

    fn times(buffer: &EventBuffer) -> Vec<u64> {
        buffer.records().iter().map(|r| Event::from_record(r).t).collect()
    }

    #[test]
    fn a_buffer_appends_until_it_is_cleared() {
        let mut buffer = EventBuffer::new();
        for t in 0..3 {
            buffer.room(5)[0] = event(t);
            buffer.room(2)[1] = event(99);
            buffer.keep(1);
        }
        assert_eq!(times(&buffer), [0, 1, 2]);
        assert_eq!(buffer.as_bytes().len(), 39);
        buffer.clear();
        assert!(buffer.is_empty());
    }

    #[test]
    fn rows_without_a_value_are_events_once_written_and_kept() {
        let mut buffer = EventBuffer::behind(vec![event(7)]);
        for t in 0..100 {
            let rows = buffer.uninit_room(3);
            rows[0].write(event(t));
            rows[1].write(event(t));
            // SAFETY: two of three rows were written.
            unsafe { buffer.keep_written(2) };
            buffer.room(40)[0] = event(t + 1000);
            buffer.keep(1);
        }
        buffer.append(&[event(5)]);
        let expected = (0..100).flat_map(|t| [t, t, t + 1000]);
        assert_eq!(times(&buffer), std::iter::once(7).chain(expected).chain([5]).collect::<Vec<_>>());
        assert_eq!(buffer.into_batch().len(), 302);
    }
}
