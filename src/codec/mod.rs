//! Recording formats: bytes in, events out.
//!
//! One file per format. A [`Decoder`] holds everything it must remember between two feeds, so a
//! recording may be cut anywhere, in the middle of a word included, and decodes to the same events.
//! [`Stream`] drives one over any [`std::io::Read`] with bounded memory. Nothing here knows of Python.

mod aedat2;
mod aedat3;
mod aedat4;
pub mod blosc;
mod buffer;
mod dat;
pub mod ecf;
mod encode;
mod es;
mod evt2;
mod evt21;
mod evt3;
#[cfg(test)]
mod evt_oracle;
mod flatbuffer;
mod head;
mod header;
mod index;
mod lz4;
mod recording;
mod report;
pub mod share;
mod simd;
mod stream;
mod text;
mod xml;

pub use aedat2::Aedat2Decoder;
pub use aedat3::Aedat3Decoder;
pub use aedat4::{Aedat4Decoder, Aedat4Encoder, Compression};
pub use buffer::EventBuffer;
pub use dat::{DatDecoder, DatEncoder};
pub use encode::{Encoder, Patch, WRITTEN, encoder, unencodable};
pub use es::{EsDecoder, EsEncoder};
pub use evt2::{Evt2Decoder, Evt2Encoder};
pub use evt3::{Evt3Decoder, Evt3Encoder};
pub use evt21::{Evt21Decoder, Evt21Encoder, Order};
pub use head::{Family, Head, HeadReader, MAX_HEAD, Options, head, prefix};
pub use header::Version;
pub use index::{Builder, Index, Run, Totals};
pub use recording::{More, NATURAL_BATCH, Recording};
pub use report::{Report, SharedReport, Words};
pub use stream::{Fill, Stream, reserve};
pub use text::{Columns, CsvEncoder, TextDecoder, TextOptions, TimeUnit};

use std::sync::{Arc, Mutex, PoisonError};

/// An event as it lies in memory: little-endian `t` (8 bytes), `x` (2), `y` (2), `p` (1), no padding.
pub type Record = [u8; 13];

/// One event, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time in microseconds.
    pub t: u64,
    /// Column, 0 left.
    pub x: u16,
    /// Row, 0 top.
    pub y: u16,
    /// Polarity: 0 is OFF, every other value ON.
    pub p: u8,
}

impl Event {
    /// The event as a record.
    #[inline]
    pub fn to_record(self) -> Record {
        record(self.t, u32::from(self.x) | u32::from(self.y) << 16, self.p)
    }

    /// The event a record holds.
    #[inline]
    pub fn from_record(r: &Record) -> Self {
        Event {
            t: u64::from_le_bytes([r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]]),
            x: u16::from_le_bytes([r[8], r[9]]),
            y: u16::from_le_bytes([r[10], r[11]]),
            p: r[12],
        }
    }
}

/// A record from its parts, `xy` being `x | y << 16`.
#[inline(always)]
fn record(t: u64, xy: u32, p: u8) -> Record {
    let mut r = [0; 13];
    r[..8].copy_from_slice(&t.to_le_bytes());
    r[8..12].copy_from_slice(&xy.to_le_bytes());
    r[12] = p;
    r
}

/// An edge that the camera saw on one of its trigger inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Time in microseconds.
    pub t: u64,
    /// The input.
    pub id: u16,
    /// The edge: 1 rising, 0 falling.
    pub p: u8,
}

/// Triggers that one thread collects and others take.
#[derive(Clone, Debug, Default)]
pub struct SharedTriggers(Arc<Mutex<Vec<Trigger>>>);

impl SharedTriggers {
    /// The triggers since the last call.
    pub fn take(&self) -> Vec<Trigger> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn append(&self, triggers: &mut Vec<Trigger>) {
        if !triggers.is_empty() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).append(triggers);
        }
    }
}

/// A format's decoder, resumable at any byte.
pub trait Decoder: Send + Sync {
    /// Decodes `bytes`, which follow those of the call before, and appends their events to `out`.
    ///
    /// How a recording is cut into calls never changes its events. A word the recording ends in is
    /// never completed and so never decoded. `out` may grow to the format's worst case (EVT 3.0: six events
    /// per byte), so feed blocks of some kilobytes.
    ///
    /// # Errors
    /// [`Error::Malformed`]: `out` holds the events before the word at fault, and the decoder is not to
    /// be fed again.
    fn feed(&mut self, bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error>;

    /// Whether [`hold`](Self::hold) is there for it.
    fn holds(&self) -> bool {
        false
    }

    /// Takes `bytes` as [`feed`](Self::feed) does, but keeps back what they hold until it is
    /// [released](Self::release), so that more can be decoded together. True once it is enough: it is to be released then.
    fn hold(&mut self, _bytes: &[u8]) -> bool {
        false
    }

    /// Appends some of what is held to `out`: about `most` events, though at once there may be more. False if there is no more,
    /// or, unless `all` is to be released, if there is room to hold more again.
    ///
    /// # Errors
    /// As for [`feed`](Self::feed).
    fn release(&mut self, _out: &mut EventBuffer, _most: usize, _all: bool) -> Result<bool, Error> {
        Ok(false)
    }

    /// Has no other thread help with what is held.
    fn stay_on_one_thread(&mut self) {}

    /// How many bytes follow of which nothing but their number matters; they need not be read.
    fn skippable(&self) -> u64 {
        0
    }

    /// Takes the next `n` bytes as fed, at most [`skippable`](Self::skippable).
    fn skip(&mut self, _n: u64) {}

    /// Says that the recording ends here: a word that it breaks off in is noted in the report, and events that
    /// were held back are appended to `out`. Called once, last.
    ///
    /// # Errors
    /// As for [`feed`](Self::feed).
    fn finish(&mut self, _out: &mut EventBuffer) -> Result<(), Error> {
        Ok(())
    }

    /// What the bytes fed so far held.
    fn report(&self) -> Report;

    /// The faults in the [`report`](Self::report). Asked for after every feed of a strict reader, so it is to be cheap.
    fn faults(&self) -> u64 {
        self.report().faults()
    }

    /// The bytes of a word, whose first one a strict reader names at a fault. 1 where words differ in size, and 0 in
    /// formats made of packets, which then say themselves where a fault is, and return an error for it when they are
    /// made strict.
    fn word(&self) -> usize;

    /// A decoder in the same state.
    fn fork(&self) -> Box<dyn Decoder>;

    /// What decoding goes on from, as bytes: all but the report. `None` where it cannot go on in the middle of a
    /// recording.
    fn save(&self) -> Option<Saved> {
        None
    }

    /// Takes on a saved state, as a decoder made in the same way that has seen nothing. False if `state` is none that
    /// [`save`](Self::save) gives: the decoder is then not to be used. Any bytes may come; none make it panic later.
    fn load(&mut self, _state: &[u8]) -> bool {
        false
    }
}

/// A decoder's state, see [`Decoder::save`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The state.
    pub state: Vec<u8>,
    /// How many of the bytes fed last are to be fed again, those of a packet that is not complete for example.
    pub again: u64,
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The header lacks something, contradicts itself, or states what is not supported.
    #[error("{0}")]
    Header(String),
    /// A batch is too large for memory.
    #[error("a batch of {events} events cannot be allocated")]
    OutOfMemory {
        /// How many events it was to hold.
        events: usize,
    },
    /// The events' words break a rule of their format.
    #[error("{0}")]
    Malformed(String),
    /// A format cannot hold an event that is to be written.
    #[error("event {index}: {reason}")]
    Unencodable {
        /// Its place among the events given.
        index: usize,
        /// The field, its value and what the format holds.
        reason: String,
    },
}

/// The bytes of a word that a feed ended in.
#[derive(Clone, Copy, Debug)]
struct Partial<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Partial<N> {
    fn default() -> Self {
        Partial { bytes: [0; N], len: 0 }
    }
}

impl<const N: usize> Partial<N> {
    /// Takes the bytes that complete the kept word off the front of `bytes`. Returns the word if it is
    /// complete now.
    fn complete(&mut self, bytes: &mut &[u8]) -> Option<[u8; N]> {
        if self.len == 0 {
            return None;
        }
        let (front, rest) = bytes.split_at(bytes.len().min(N - self.len));
        self.bytes[self.len..self.len + front.len()].copy_from_slice(front);
        self.len += front.len();
        *bytes = rest;
        if self.len < N {
            return None;
        }
        self.len = 0;
        Some(self.bytes)
    }

    /// Splits `bytes` into whole words and keeps what is left over. Nothing may be kept already,
    /// unless `bytes` is empty.
    fn split<'a>(&mut self, bytes: &'a [u8]) -> &'a [[u8; N]] {
        let (words, rest) = bytes.as_chunks();
        if !rest.is_empty() {
            self.bytes[..rest.len()].copy_from_slice(rest);
            self.len = rest.len();
        }
        words
    }
}

#[cfg(test)]
mod testing {
    use super::*;

    /// What a decoder makes of bytes up to their end.
    #[derive(Debug, PartialEq, Eq)]
    pub struct Decoded {
        pub events: Vec<Event>,
        pub triggers: Vec<Trigger>,
        pub report: Report,
        /// How that ended.
        pub end: Result<(), String>,
    }

    /// Decodes `bytes`, fed in pieces of the given sizes, over and over.
    fn decode_all(decoder: &mut dyn Decoder, mut bytes: &[u8], sizes: &[usize]) -> Decoded {
        let mut out = EventBuffer::new();
        let (mut events, mut triggers) = (Vec::new(), Vec::new());
        let mut sizes = sizes.iter().cycle();
        let end = loop {
            out.clear();
            let at_end = bytes.is_empty();
            let (piece, rest) = bytes.split_at(bytes.len().min(*sizes.next().unwrap()));
            bytes = rest;
            let fed = if at_end { decoder.finish(&mut out) } else { decoder.feed(piece, &mut out) };
            events.extend(out.records().iter().map(Event::from_record));
            triggers.append(&mut out.triggers);
            if at_end || fed.is_err() {
                break fed.map_err(|error| error.to_string());
            }
        };
        Decoded { events, triggers, report: decoder.report(), end }
    }

    /// The events of `bytes`, fed in pieces of the given sizes, over and over, and how that ended.
    pub fn decode(
        mut decoder: impl Decoder,
        bytes: &[u8],
        sizes: &[usize],
    ) -> (Vec<Event>, Result<(), String>) {
        let Decoded { events, end, .. } = decode_all(&mut decoder, bytes, sizes);
        (events, end)
    }

    /// All of a file that begins with `head`, its body fed in pieces of the given sizes, over and over.
    pub fn decode_file(head: Head, file: &[u8], sizes: &[usize]) -> Decoded {
        let Head { mut decoder, length, .. } = head;
        decode_all(&mut *decoder, &file[length..], sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_its_fields_in_little_endian() {
        let event = Event { t: 0x0807_0605_0403_0201, x: 0x0a09, y: 0x0c0b, p: 0x0d };
        assert_eq!(event.to_record(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(Event::from_record(&event.to_record()), event);
    }
}
