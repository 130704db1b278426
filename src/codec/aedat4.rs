//! AEDAT 4.0, the recordings of iniVation's DV: <https://docs.inivation.com/software/software-advanced-usage/file-formats/aedat-4.0.html>.
//!
//! `#!AER-DAT4.0`, a header that names the streams in XML, then packets of 8 bytes (stream, size) and as many as they
//! say: a buffer of one type, compressed for itself. At the end there may be a table of the packets. It is missing or stale
//! in a file whose recording was interrupted, so packets are found one behind the other and it is passed over.

use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use super::share::{Line, Work, processors};
use super::simd::{self, Backend, Elements};
use super::{
    Decoder, Encoder, Error, Event, EventBuffer, Family, Head, MAX_HEAD, Options, Patch, Record, Report,
    Saved, Trigger, flatbuffer, lz4, prefix, unencodable, xml,
};

/// How a file begins. The size of the header follows, then the header.
pub const MAGIC: &[u8] = b"#!AER-DAT4.0\r\n";

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The most a packet may grow to when it is decompressed, unless it has [`RATIO`] times fewer bytes. Recorders make a packet
/// every 10 ms; this is 400 million events a second.
const PACKET_LIMIT: usize = 64 << 20;

/// LZ4 cannot do better.
const RATIO: usize = 256;

/// The types of packets that are counted by name, and what is counted besides.
const TYPES: [&str; 7] = ["EVTS", "TRIG", "FRME", "IMUS", "EVTS of other streams", "other types", "FTAB"];
/// Bytes of packets that are decoded together: a few thousand events, a hundred times what it costs to hand them over.
const CHUNK: usize = 32 << 10;
/// So many packets are enough, however small.
const CHUNK_PACKETS: usize = 512;
/// Bytes of packets that wait: they are decoded by threads that help, while those before them are given out and more is read.
const HOLD: usize = 512 << 10;
/// So many chunks are enough, however small.
const HOLD_CHUNKS: usize = 8;
/// A thread helps where so many chunks wait for it: what they take is more than what starting a thread does.
const EACH: usize = 3;
/// A packet that grows more than this is decoded when its turn comes, so that what is decoded ahead is at most 8 times
/// [`HOLD`], 4 MiB. So is one of more bytes than all that is to wait.
const SHARED_RATIO: usize = 8;
/// What was decoded ahead is kept for its memory up to so many events.
const KEEP: usize = 64 << 10;

const OTHER_EVENTS: usize = 4;
const OTHER: usize = 5;
const TABLE: usize = 6;

/// How packets are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// They are not.
    None,
    /// LZ4 frames.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

impl Compression {
    /// As the header's number has it, where 2 and 4 are LZ4 and Zstandard with more effort.
    fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            0 => Compression::None,
            1 | 2 => Compression::Lz4,
            3 | 4 => Compression::Zstd,
            _ => return None,
        })
    }

    /// All of them, the one first that is written unless another is asked for.
    pub const ALL: [Compression; 3] = [Compression::Lz4, Compression::Zstd, Compression::None];

    /// The compression of that name, as `frames2py.save` knows it.
    ///
    /// # Errors
    /// [`Error::Header`]: there is none.
    pub fn parse(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(name));
        found
            .ok_or_else(|| Error::Header(format!("AEDAT 4.0 is compressed by lz4, zstd or none, not {name}")))
    }

    fn number(self) -> i32 {
        match self {
            Compression::None => 0,
            Compression::Lz4 => 1,
            Compression::Zstd => 3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Compression::None => "NONE",
            Compression::Lz4 => "LZ4",
            Compression::Zstd => "ZSTD",
        }
    }
}

/// What is done with a stream's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Use {
    Events,
    Triggers,
    #[default]
    Skip,
}

/// Decodes the packets of an AEDAT 4.0 file.
#[derive(Clone)]
pub struct Aedat4Decoder {
    compression: Compression,
    /// The streams' ids, what they are for, and their place in [`TYPES`].
    streams: Vec<(i32, Use, usize)>,
    /// Where the header says that the table is: asked only about bytes that are no packet.
    table: Option<u64>,
    options: Options,
    /// The place in the file of the byte that is fed next.
    offset: u64,
    state: State,
    held: Held,
    scratch: Scratch,
    /// The time of the event before.
    last: i64,
    /// What was met up to the byte that is fed next, and up to the events given out.
    met: Counts,
    told: Counts,
    backward_steps: u64,
    tail: u64,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    types: [(u64, u64); TYPES.len()],
    unknown: u64,
}

impl Counts {
    fn count(&mut self, kind: usize, bytes: u64) {
        self.types[kind].0 += 1;
        self.types[kind].1 += bytes;
    }
}

/// Packets that are still to be given out.
#[derive(Clone)]
struct Held {
    /// What is gathered: whole packets and the bytes of one that is not complete.
    gathered: Chunk,
    /// What was gathered before, some of it decoded ahead by other threads, and how much that is.
    line: Line<Chunk>,
    bytes: usize,
    /// What is being given out.
    turn: Option<Turn>,
    /// Memory to be used again.
    spare: Vec<(Chunk, Rows)>,
    /// What is wrong behind the packets.
    fault: Option<String>,
    /// How many threads may help, the chunks that are worth one, and the bytes of a chunk.
    helpers: usize,
    each: usize,
    chunk: usize,
}

impl Held {
    fn new(compression: Compression) -> Self {
        Held {
            gathered: Chunk { compression, ..Chunk::default() },
            line: Line::default(),
            bytes: 0,
            turn: None,
            spare: Vec::new(),
            fault: None,
            helpers: processors().min(4) - 1,
            each: EACH,
            chunk: CHUNK,
        }
    }

    /// Whether no more is to be held.
    fn enough(&self) -> bool {
        // What nobody helps with is decoded while it is in the nearest cache.
        let chunks = if self.helpers > 0 { HOLD_CHUNKS } else { 1 };
        self.bytes >= HOLD || self.line.len() >= chunks || self.fault.is_some()
    }

    /// Takes note of a packet whose bytes were gathered. Two are decoded in less time than one after the other.
    fn complete(&mut self, packet: Packed) {
        let Chunk { bytes, packets, .. } = &mut self.gathered;
        packets.push(packet);
        let even = packets.len().is_multiple_of(2) || bytes.len() >= 4 * self.chunk;
        if (bytes.len() >= self.chunk && even) || packets.len() >= CHUNK_PACKETS {
            self.put();
        }
    }

    /// Puts the whole packets in line.
    fn put(&mut self) {
        let (chunk, rows) = self.split();
        self.bytes += chunk.bytes.len();
        self.line.put(chunk, rows);
    }

    /// Splits off the whole packets. With them comes memory for what will be found.
    fn split(&mut self) -> (Chunk, Rows) {
        let whole = self.gathered.packets.last().map_or(0, |packet| packet.place.end);
        let (mut next, rows) = self.spare.pop().unwrap_or_default();
        next.compression = self.gathered.compression;
        next.bytes.extend_from_slice(&self.gathered.bytes[whole..]);
        self.gathered.bytes.truncate(whole);
        (std::mem::replace(&mut self.gathered, next), rows)
    }

    /// What is to be given out next; of what is gathered only if it is to be `all`.
    fn next_turn(&mut self, all: bool) -> Option<Turn> {
        if all && !self.gathered.packets.is_empty() {
            if self.line.is_empty() && self.gathered.packets.len() == 1 {
                // Straight to where it belongs.
                let (chunk, rows) = self.split();
                return Some(Turn::new(Arc::new(chunk), rows));
            }
            self.put();
        }
        let (chunk, rows) = self.line.take()?;
        self.bytes -= chunk.bytes.len();
        // What panicked does so again when its turn comes, where it is seen.
        Some(Turn::new(chunk, rows.unwrap_or_default()))
    }

    /// Keeps the memory of what was given out.
    fn keep(&mut self, turn: Turn) {
        let Turn { chunk, mut rows, .. } = turn;
        let Some(mut chunk) = Arc::into_inner(chunk) else { return };
        if chunk.bytes.capacity() <= 8 * CHUNK && rows.events.capacity() <= KEEP {
            chunk.bytes.clear();
            chunk.packets.clear();
            rows.clear();
            self.spare.push((chunk, rows));
        }
    }
}

/// Packets that are decoded together.
#[derive(Clone)]
struct Chunk {
    compression: Compression,
    bytes: Vec<u8>,
    packets: Vec<Packed>,
}

impl Default for Chunk {
    fn default() -> Self {
        Chunk { compression: Compression::None, bytes: Vec::new(), packets: Vec::new() }
    }
}

/// A packet that waits.
#[derive(Clone)]
struct Packed {
    what: Use,
    /// The byte of the file where it starts.
    at: u64,
    /// Its bytes in those of its chunk.
    place: Range<usize>,
    /// What was met up to its end.
    met: Counts,
}

/// What is found in a chunk.
#[derive(Default)]
struct Rows {
    events: EventBuffer,
    /// Of each packet its events, if it was decoded ahead, and what was found in them.
    packets: Vec<Option<(Range<usize>, Found)>>,
}

impl Clone for Rows {
    fn clone(&self) -> Self {
        let mut events = EventBuffer::new();
        events.append(self.events.records());
        Rows { events, packets: self.packets.clone() }
    }
}

impl Rows {
    fn clear(&mut self) {
        self.events.clear();
        self.packets.clear();
    }

    fn add(&mut self, at: u64, content: Option<&[u8]>) {
        let before = self.events.len();
        let elements = content.and_then(|content| elements(content, at).ok());
        let found = elements.and_then(|elements| ordinary(elements, &mut self.events));
        self.packets.push(found.map(|found| (before..self.events.len(), found)));
    }
}

impl Work for Chunk {
    type Found = Rows;
    type Scratch = Scratch;

    /// Decodes the packets that can be decoded in little memory, with nothing of those before.
    fn work(&self, rows: &mut Rows, scratch: &mut Scratch) {
        rows.clear();
        let ready = |packet: &Packed| {
            let bytes = &self.bytes[packet.place.clone()];
            (packet.what == Use::Events && bytes.len() <= HOLD).then_some(bytes)
        };
        for two in self.packets.chunks(2) {
            if let [a, b] = two
                && let (Some(one), Some(two)) = (ready(a), ready(b))
            {
                let limits = [one, two].map(|bytes| bytes.len() * SHARED_RATIO);
                if let Some([one, two]) = scratch.decompress_two(self.compression, [one, two], limits) {
                    rows.add(a.at, one);
                    rows.add(b.at, two);
                    continue;
                }
            }
            for packet in two {
                let content = ready(packet).and_then(|bytes| {
                    scratch.decompress(self.compression, bytes, bytes.len() * SHARED_RATIO)
                });
                rows.add(packet.at, content);
            }
        }
    }
}

/// A chunk that is being given out.
#[derive(Clone)]
struct Turn {
    chunk: Arc<Chunk>,
    rows: Rows,
    /// The packet whose turn comes next, and the events of the one before that are left.
    next: usize,
    left: Range<usize>,
}

impl Turn {
    fn new(chunk: Arc<Chunk>, rows: Rows) -> Self {
        Turn { chunk, rows, next: 0, left: 0..0 }
    }

    fn is_over(&self) -> bool {
        self.left.is_empty() && self.next == self.chunk.packets.len()
    }
}

/// What is to be known of a packet's events besides them.
#[derive(Clone)]
struct Found {
    /// The first and the last time.
    times: Option<(i64, i64)>,
    /// How often time steps back between them.
    steps: u64,
}

/// What a thread needs to decompress.
#[derive(Default)]
struct Scratch {
    plain: [Vec<u8>; 2],
    zstd: Zstd,
}

impl Clone for Scratch {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Scratch {
    fn decompress<'a>(
        &'a mut self,
        compression: Compression,
        bytes: &'a [u8],
        limit: usize,
    ) -> Option<&'a [u8]> {
        self.tidy();
        let plain = &mut self.plain[0];
        let len = match compression {
            Compression::None => return Some(bytes),
            Compression::Lz4 => lz4::decompress(bytes, plain, limit)?,
            Compression::Zstd => self.zstd.decompress(bytes, plain, limit)?,
        };
        Some(&plain[..len])
    }

    /// Two at once, where that is faster than one after the other.
    fn decompress_two(
        &mut self,
        compression: Compression,
        bytes: [&[u8]; 2],
        limits: [usize; 2],
    ) -> Option<[Option<&[u8]>; 2]> {
        if compression != Compression::Lz4 {
            return None;
        }
        self.tidy();
        let [one, two] = &mut self.plain;
        let lens = lz4::decompress_two(bytes, [one, two], limits);
        let [one, two] = &self.plain;
        Some([lens[0].map(|len| &one[..len]), lens[1].map(|len| &two[..len])])
    }

    /// A large one is not kept for the small ones that follow.
    fn tidy(&mut self) {
        for plain in &mut self.plain {
            if plain.len() > 4 << 20 {
                *plain = Vec::new();
            }
        }
    }
}

#[derive(Clone, Copy)]
enum State {
    /// In the header of a packet, of which there are so many bytes.
    Header { bytes: [u8; 12], len: usize },
    /// In a packet of that stream which has `left` more bytes.
    Packet { stream: (i32, Use, usize), size: u64, left: u64 },
    /// Behind the packets.
    Table,
}

impl State {
    const START: State = State::Header { bytes: [0; 12], len: 0 };
}

impl Decoder for Aedat4Decoder {
    fn feed(&mut self, bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        self.gather(bytes);
        while self.release(out, usize::MAX, true)? {}
        Ok(())
    }

    fn holds(&self) -> bool {
        true
    }

    fn hold(&mut self, bytes: &[u8]) -> bool {
        self.gather(bytes);
        if self.held.helpers > 0 {
            self.held.line.help(self.held.helpers, self.held.each);
        }
        self.held.enough()
    }

    fn stay_on_one_thread(&mut self) {
        self.held.helpers = 0;
    }

    fn release(&mut self, out: &mut EventBuffer, most: usize, all: bool) -> Result<bool, Error> {
        let all = all || self.held.fault.is_some();
        let Some(mut turn) = self.held.turn.take().or_else(|| self.held.next_turn(all)) else {
            if all {
                self.told = self.met;
            }
            return self.held.fault.take().map_or(Ok(false), |what| Err(Error::Malformed(what)));
        };
        let given = self.give(&mut turn, out, most);
        if !turn.is_over() {
            self.held.turn = Some(turn);
            return given.map(|()| true);
        }
        self.held.keep(turn);
        given.map(|()| all || self.held.enough())
    }

    fn skippable(&self) -> u64 {
        match self.state {
            State::Packet { stream: (_, Use::Skip, _), left, .. } => left - 1,
            _ => 0,
        }
    }

    fn skip(&mut self, n: u64) {
        let n = n.min(self.skippable());
        if let State::Packet { left, .. } = &mut self.state {
            *left -= n;
            self.offset += n;
        }
    }

    fn finish(&mut self, _out: &mut EventBuffer) -> Result<(), Error> {
        self.tail = match self.state {
            State::Header { len, .. } => len as u64,
            State::Packet { size, left, .. } => 8 + size - left,
            State::Table => 0,
        };
        if self.tail > 0 && self.options.strict {
            let at = self.offset - self.tail;
            let what =
                format!("the file breaks off, {} bytes into a packet, at byte {at} of the file", self.tail);
            return Err(Error::Malformed(what));
        }
        Ok(())
    }

    fn report(&self) -> Report {
        let mut report = Report {
            backward_steps: self.backward_steps,
            unknown: self.told.unknown,
            truncated_tail: self.tail,
            ..Report::default()
        };
        for (name, (count, bytes)) in TYPES.into_iter().zip(self.told.types) {
            report.note_words(name, count, bytes);
        }
        report
    }

    fn word(&self) -> usize {
        0
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn save(&self) -> Option<Saved> {
        // A packet that is not complete is begun again.
        let again = match self.state {
            State::Header { len, .. } => len as u64,
            State::Packet { size, left, .. } => 8 + size - left,
            State::Table => 0,
        };
        let numbers = [self.offset - again, self.last as u64, matches!(self.state, State::Table).into()];
        Some(Saved { state: numbers.map(u64::to_le_bytes).as_flattened().to_vec(), again })
    }

    fn load(&mut self, state: &[u8]) -> bool {
        let (&[offset, last, table], []) = state.as_chunks() else { return false };
        (self.offset, self.last) = (u64::from_le_bytes(offset), i64::from_le_bytes(last));
        let table = u64::from_le_bytes(table);
        self.state = if table == 1 { State::Table } else { State::START };
        self.offset < 1 << 62 && table <= 1
    }
}

impl Aedat4Decoder {
    /// Takes the packets apart, up to a fault between them.
    fn gather(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.held.fault.is_none() {
            match self.state {
                State::Header { bytes: mut header, mut len } => {
                    let need = if len < 8 { 8 } else { 12 };
                    let (front, rest) = bytes.split_at(bytes.len().min(need - len));
                    header[len..len + front.len()].copy_from_slice(front);
                    len += front.len();
                    bytes = rest;
                    self.offset += front.len() as u64;
                    self.state = State::Header { bytes: header, len };
                    if len == need {
                        self.held.fault = self.header(header, len).err();
                    }
                }
                State::Packet { stream, size, left } => {
                    let n = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                    let (front, rest) = bytes.split_at(n);
                    bytes = rest;
                    self.offset += n as u64;
                    let left = left - n as u64;
                    self.state = State::Packet { stream, size, left };
                    if stream.1 != Use::Skip {
                        self.held.gathered.bytes.extend_from_slice(front);
                    }
                    if left == 0 {
                        self.complete(stream, size);
                    }
                }
                State::Table => {
                    self.met.types[TABLE].1 += bytes.len() as u64;
                    self.offset += bytes.len() as u64;
                    return;
                }
            }
        }
    }

    /// Eight bytes of what should be a packet's header, or twelve, when eight were none.
    fn header(&mut self, bytes: [u8; 12], len: usize) -> Result<(), String> {
        let at = self.offset - len as u64;
        let [id, size, _] =
            [0, 4, 8].map(|i| i32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]));
        if let Some(&stream) = self.streams.iter().find(|stream| stream.0 == id) {
            let Ok(size) = u64::try_from(size) else {
                return Err(format!("the packet at byte {at} of the file has the size {size}"));
            };
            self.state = State::Packet { stream, size, left: size };
            if size == 0 {
                self.complete(stream, size);
            }
            return Ok(());
        }
        // No stream has that id, so it may be the table, which is a buffer or a frame without a header.
        let buffer = len == 12 && &bytes[8..] == b"FTAB";
        if buffer
            || [lz4::MAGIC, ZSTD_MAGIC].contains(&[bytes[0], bytes[1], bytes[2], bytes[3]])
            || self.table == Some(at)
        {
            self.met.count(TABLE, len as u64);
            self.state = State::Table;
            return Ok(());
        }
        if len < 12 {
            return Ok(());
        }
        if size < 4 {
            return Err(format!(
                "at byte {at} of the file is no packet: there is no stream {id}, and the size would be {size}"
            ));
        }
        if self.options.strict {
            return Err(format!("a packet of the unknown stream {id}, at byte {at} of the file"));
        }
        self.met.unknown += 1;
        let size = size as u64;
        let stream = (id, Use::Skip, OTHER);
        self.state = State::Packet { stream, size, left: size - 4 };
        if size == 4 {
            self.complete(stream, size);
        }
        Ok(())
    }

    /// The end of a packet.
    fn complete(&mut self, (_, what, kind): (i32, Use, usize), size: u64) {
        self.state = State::START;
        self.met.count(kind, 8 + size);
        if what == Use::Skip {
            return;
        }
        let end = self.held.gathered.bytes.len();
        let (at, place) = (self.offset - size - 8, end - size as usize..end);
        self.held.complete(Packed { what, at, place, met: self.met });
    }

    /// Appends events of a chunk: as many as there are of those decoded ahead, up to `most`, or else those of a packet.
    fn give(&mut self, turn: &mut Turn, out: &mut EventBuffer, mut most: usize) -> Result<(), Error> {
        let Turn { chunk, rows, next, left } = turn;
        while most > 0 {
            if Range::is_empty(left) {
                let Some(packet) = chunk.packets.get(*next) else { break };
                let found = rows.packets.get_mut(*next).and_then(Option::take);
                *next += 1;
                self.told = packet.met;
                match found {
                    Some((place, found)) if self.accept(&found) => *left = place,
                    _ => {
                        let bytes = &chunk.bytes[packet.place.clone()];
                        return self.packet(packet.what, packet.at, bytes, out);
                    }
                }
            }
            let n = left.len().min(most);
            out.append(&rows.events.records()[left.start..left.start + n]);
            left.start += n;
            most -= n;
        }
        Ok(())
    }

    /// Takes note of events, unless they break a rule that matters.
    fn accept(&mut self, &Found { times, steps }: &Found) -> bool {
        let (first, last) = times.unwrap_or((self.last, self.last));
        let steps = steps + u64::from(first < self.last);
        if steps > 0 && self.options.strict {
            return false;
        }
        self.last = last;
        self.backward_steps += steps;
        true
    }

    /// Decodes a packet.
    fn packet(&mut self, what: Use, at: u64, bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        let mut scratch = take(&mut self.scratch);
        let limit = PACKET_LIMIT.max(bytes.len().saturating_mul(RATIO));
        let decoded = match scratch.decompress(self.compression, bytes, limit) {
            None => Err(Error::Malformed(format!(
                "the packet at byte {at} of the file is not a valid {} frame of at most {limit} bytes",
                self.compression.name()
            ))),
            Some(content) if what == Use::Events => self.events(content, at, out),
            Some(content) => triggers(content, at, out),
        };
        self.scratch = scratch;
        decoded
    }

    /// The events of an `EVTS` buffer.
    fn events(&mut self, content: &[u8], at: u64, out: &mut EventBuffer) -> Result<(), Error> {
        let elements = elements(content, at)?;
        let before = out.len();
        if ordinary(elements, out).is_some_and(|found| self.accept(&found)) {
            return Ok(());
        }
        out.truncate(before);
        self.odd_events(elements, at, out)
    }

    /// Events of which some are not as they should be, one by one.
    fn odd_events(&mut self, elements: &[[u8; 16]], at: u64, out: &mut EventBuffer) -> Result<(), Error> {
        for element in elements {
            let record: &Record = element.first_chunk().unwrap_or(&[0; 13]);
            let event = Event::from_record(record);
            let fields =
                [("t", event.t as i64), ("x", (event.x as i16).into()), ("y", (event.y as i16).into())];
            if let Some((field, value)) = fields.into_iter().find(|&(_, value)| value < 0) {
                let what = format!("an event's {field} is {value}, in the packet at byte {at} of the file");
                return Err(Error::Malformed(what));
            }
            let t = event.t as i64;
            if t < self.last {
                if self.options.strict {
                    return Err(Error::Malformed(format!(
                        "an event's time is below that of the event before it, in the packet at byte {at} of the file"
                    )));
                }
                self.backward_steps += 1;
            }
            self.last = t;
            out.room(1)[0] = Event { p: u8::from(event.p != 0), ..event }.to_record();
            out.keep(1);
        }
        Ok(())
    }
}

/// The elements of an `EVTS` buffer: 16 bytes each, of which the first 13 are a record.
fn elements(content: &[u8], at: u64) -> Result<&[[u8; 16]], Error> {
    let elements = table(content, *b"EVTS", at)?.vector(0, 16).ok_or_else(|| broken(at))?;
    Ok(elements.as_chunks().0)
}

/// Events that are as they should be. `None`, and no events, if some are not.
fn ordinary(elements: &[[u8; 16]], out: &mut EventBuffer) -> Option<Found> {
    /// The signs of t, x and y, and all of p but whether it is ON, in the 16 bytes as one number.
    const ODD: u128 = 0xfe_8000_8000_8000_0000_0000_0000;
    let n = elements.len();
    let Elements { all, steps_back: steps } = simd::narrow(Backend::best(), elements, out.room(n + 1));
    if all & ODD != 0 {
        return None;
    }
    out.keep(n);
    let time = |element: &[u8; 16]| u128::from_le_bytes(*element) as i64;
    let times = elements.first().map(time).zip(elements.last().map(time));
    Some(Found { times, steps })
}

/// The triggers of a `TRIG` buffer that have to do with the camera's input or output pins: input 0 is the external input,
/// 1 the signal generator. What marks frames and resets is passed over.
fn triggers(content: &[u8], at: u64, out: &mut EventBuffer) -> Result<(), Error> {
    let tables = table(content, *b"TRIG", at)?.tables(0).ok_or_else(|| broken(at))?;
    for trigger in tables {
        let (t, kind) = trigger
            .and_then(|trigger| trigger.scalar(0, [0; 8]).zip(trigger.scalar(1, [0])))
            .ok_or_else(|| broken(at))?;
        let t = u64::try_from(i64::from_le_bytes(t)).map_err(|_| {
            let t = i64::from_le_bytes(t);
            Error::Malformed(format!("a trigger's t is {t}, in the packet at byte {at} of the file"))
        })?;
        let (id, p) = match kind[0] {
            1 | 3 => (0, 1),
            2 => (0, 0),
            4 => (1, 1),
            5 => (1, 0),
            _ => continue,
        };
        out.triggers.push(Trigger { t, id, p });
    }
    Ok(())
}

fn table(content: &[u8], kind: [u8; 4], at: u64) -> Result<flatbuffer::Table<'_>, Error> {
    let buffer = flatbuffer::sized(content).ok_or_else(|| broken(at))?;
    if flatbuffer::identifier(buffer) != Some(kind) {
        let kind = String::from_utf8_lossy(&kind).into_owned();
        return Err(Error::Malformed(format!(
            "the packet at byte {at} of the file is not {kind}, as its stream is"
        )));
    }
    flatbuffer::root(buffer).ok_or_else(|| broken(at))
}

fn broken(at: u64) -> Error {
    Error::Malformed(format!(
        "the packet at byte {at} of the file is broken: something in it reaches beyond its end"
    ))
}

/// A context that is made when it is needed, and not copied.
#[derive(Default)]
struct Zstd(Option<zstd_safe::DCtx<'static>>);

impl Clone for Zstd {
    fn clone(&self) -> Self {
        Zstd(None)
    }
}

impl Zstd {
    /// Frames that want to reach back farther than 2^26 bytes, which is [`PACKET_LIMIT`], are refused.
    const WINDOW_LOG: u32 = 26;

    /// As [`lz4::decompress`].
    fn decompress(&mut self, frame: &[u8], out: &mut Vec<u8>, limit: usize) -> Option<usize> {
        use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};
        if self.0.is_none() {
            let mut context = DCtx::try_create()?;
            context.set_parameter(DParameter::WindowLogMax(Self::WINDOW_LOG)).ok()?;
            self.0 = Some(context);
        }
        let context = self.0.as_mut()?;
        context.reset(ResetDirective::SessionOnly).ok()?;
        let mut input = InBuffer::around(frame);
        let mut len = 0;
        loop {
            if len == out.len() {
                if len >= limit {
                    return None;
                }
                out.resize((2 * len).max(64 * 1024).min(limit), 0);
            }
            let before = (len, input.pos());
            let mut output = OutBuffer::around_pos(&mut out[..], len);
            let left = context.decompress_stream(&mut output, &mut input).ok()?;
            len = output.pos();
            if left == 0 {
                return Some(len);
            }
            if (len, input.pos()) == before {
                return None;
            }
        }
    }
}

/// Reads the header of a file that starts with `bytes`; `None` when more of it is needed.
///
/// # Errors
/// [`Error::Header`] for a header that cannot be used.
pub fn head(bytes: &[u8], at_end: bool, options: Options) -> Result<Option<Head>, Error> {
    Ok(read_head(bytes, at_end, options)?.map(|(decoder, geometry, length)| Head {
        format: "AEDAT 4.0",
        geometry,
        length,
        decoder: Box::new(decoder),
    }))
}

/// A decoder, the geometry and the header's length.
type ReadHead = (Aedat4Decoder, Option<(u32, u32)>, usize);

fn read_head(bytes: &[u8], at_end: bool, options: Options) -> Result<Option<ReadHead>, Error> {
    match prefix(MAGIC, bytes, at_end) {
        None => return Ok(None),
        Some(false) => {
            return Err(Error::Header(format!(
                "not an {} file: it does not begin with #!AER-DAT4.0",
                Family::Aedat4.name()
            )));
        }
        Some(true) => {}
    }
    let invalid = |what: &str| Error::Header(format!("the AEDAT 4.0 header {what}"));
    let Some(size) = bytes[MAGIC.len()..].first_chunk() else {
        return if at_end { Err(invalid("is not complete")) } else { Ok(None) };
    };
    let size = u32::from_le_bytes(*size) as usize;
    let start = MAGIC.len() + 4;
    if size > MAX_HEAD - start {
        return Err(Error::Header(format!(
            "the AEDAT 4.0 header has {size} bytes; at most {} are read",
            MAX_HEAD - start
        )));
    }
    let Some(header) = bytes.get(start..start + size) else {
        return if at_end { Err(invalid("is not complete")) } else { Ok(None) };
    };
    if flatbuffer::identifier(header) != Some(*b"IOHE") {
        return Err(invalid("has not the type IOHE"));
    }
    let fields = flatbuffer::root(header)
        .and_then(|table| Some((table.scalar(0, [0; 4])?, table.scalar(1, [255; 8])?, table.vector(2, 1)?)));
    let (compression, table, info) = fields.ok_or_else(|| invalid("reaches beyond its end"))?;
    let number = i32::from_le_bytes(compression);
    let compression = Compression::from_number(number).ok_or_else(|| {
        invalid(&format!("states the compression {number}; known are 0 (none), 1, 2 (LZ4), 3, 4 (Zstd)"))
    })?;
    let info = String::from_utf8_lossy(info);
    let info = xml::parse(info.trim_end_matches('\0'))
        .map_err(|what| invalid(&format!("describes its streams in XML where {what}")))?;
    let (streams, geometry) = streams(&info, options)?;
    let decoder = Aedat4Decoder {
        compression,
        streams,
        table: u64::try_from(i64::from_le_bytes(table)).ok(),
        options,
        offset: (start + size) as u64,
        state: State::START,
        held: Held::new(compression),
        scratch: Scratch::default(),
        last: 0,
        met: Counts::default(),
        told: Counts::default(),
        backward_steps: 0,
        tail: 0,
    };
    Ok(Some((decoder, geometry, start + size)))
}

/// A stream as the header describes it.
struct Description<'a> {
    id: i32,
    kind: &'a str,
    name: &'a str,
    camera: &'a str,
    info: Option<&'a xml::Element>,
}

type Streams = (Vec<(i32, Use, usize)>, Option<(u32, u32)>);

/// The streams of a header, what is done with each, and the geometry of that of the events.
fn streams(info: &xml::Element, options: Options) -> Result<Streams, Error> {
    let Some(outputs) = info.find("node", "outInfo") else {
        return Err(Error::Header(
            "the AEDAT 4.0 header has no node outInfo, which names the streams".into(),
        ));
    };
    let mut all = Vec::new();
    for node in outputs.children.iter().filter(|child| child.tag == "node") {
        let Some(id) = node.get("name").and_then(|name| name.trim_ascii().parse().ok()) else { continue };
        let info =
            node.children.iter().find(|child| child.tag == "node" && child.get("name") == Some("info"));
        all.push(Description {
            id,
            kind: attribute(node, "typeIdentifier").unwrap_or(""),
            name: attribute(node, "originalOutputName").unwrap_or(""),
            camera: info.and_then(|info| attribute(info, "source")).unwrap_or(""),
            info,
        });
    }
    all.sort_by_key(|stream| stream.id);
    if let Some(pair) = all.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(Error::Header(format!("the AEDAT 4.0 header has two streams {}", pair[0].id)));
    }
    let chosen = choose(&all, "EVTS", "events", None)?
        .ok_or_else(|| Error::Header("the AEDAT 4.0 header names no stream of events (EVTS)".into()))?;
    let triggers = choose(&all, "TRIG", "triggers", Some(chosen.camera)).ok().flatten();
    let size = |key| chosen.info.and_then(|info| attribute(info, key));
    let geometry = match (size("sizeX"), size("sizeY")) {
        (None, None) => None,
        (x, y) => {
            let number =
                |text: Option<&str>| text?.trim_ascii().parse().ok().filter(|&n: &u32| n > 0 && n <= 1 << 15);
            let size = number(x).zip(number(y));
            let said = || format!("{} and {}", x.unwrap_or("nothing"), y.unwrap_or("nothing"));
            Some(size.ok_or_else(|| {
                let id = chosen.id;
                Error::Header(format!(
                    "sizeX and sizeY of the AEDAT 4.0 stream {id} must be positive integers, got {}",
                    said()
                ))
            })?)
        }
    };
    let uses = all.iter().map(|stream| {
        let kind = TYPES.iter().position(|&kind| kind == stream.kind).unwrap_or(OTHER);
        if stream.id == chosen.id {
            (stream.id, Use::Events, kind)
        } else if options.triggers && triggers.is_some_and(|triggers| stream.id == triggers.id) {
            (stream.id, Use::Triggers, kind)
        } else {
            (stream.id, Use::Skip, if kind == 0 { OTHER_EVENTS } else { kind })
        }
    });
    Ok((uses.collect(), geometry))
}

/// The stream of a type: of the camera, or of the first that has one, the one of that name, or else the only one.
fn choose<'a, 'b>(
    all: &'b [Description<'a>],
    kind: &str,
    name: &str,
    camera: Option<&str>,
) -> Result<Option<&'b Description<'a>>, Error> {
    let of_kind = || all.iter().filter(|stream| stream.kind == kind);
    let Some(camera) = camera.or_else(|| of_kind().next().map(|stream| stream.camera)) else {
        return Ok(None);
    };
    let here: Vec<_> = of_kind().filter(|stream| stream.camera == camera).collect();
    match (here.iter().find(|stream| stream.name == name), &here[..]) {
        (Some(stream), _) | (None, [stream]) => Ok(Some(stream)),
        (None, []) => Ok(None),
        (None, several) => {
            let names: Vec<_> = several
                .iter()
                .take(10)
                .map(|stream| stream.name.chars().take(40).collect::<String>())
                .collect();
            Err(Error::Header(format!(
                "the AEDAT 4.0 header has {} streams of type {kind} and none is named {name}: {}",
                several.len(),
                names.join(", ")
            )))
        }
    }
}

/// The text of an element's `<attr key="...">`.
fn attribute<'a>(node: &'a xml::Element, key: &str) -> Option<&'a str> {
    let mut attributes = node.children.iter().filter(|child| child.tag == "attr");
    attributes.find(|attr| attr.get("key") == Some(key)).map(|attr| attr.text.as_str())
}

/// Encodes AEDAT 4.0: one stream of events.
pub struct Aedat4Encoder {
    sensor: (u32, u32),
    compression: Compression,
    zstd: Option<zstd_safe::CCtx<'static>>,
    /// Events that are not a packet yet.
    waiting: Vec<Record>,
    /// The bytes before the packets, and those of the packets so far.
    header: u64,
    offset: u64,
    packets: Vec<Packet>,
}

/// A line of the table.
struct Packet {
    offset: u64,
    size: u32,
    events: u64,
    first: u64,
    last: u64,
}

/// Events in a packet: 128 KiB before they are compressed.
const PACKET: usize = 8192;

const NO_MEMORY: Error = Error::OutOfMemory { events: PACKET };

/// Zstandard's own default, and dv-processing's.
const ZSTD_LEVEL: i32 = 3;

/// The place of the table's position in the file.
const TABLE_POSITION: u64 = 18 + 36;

impl Aedat4Encoder {
    /// An encoder for a sensor of that size.
    ///
    /// # Errors
    /// [`Error::Header`]: the format cannot hold such a sensor. [`Error::OutOfMemory`]: there is none for Zstandard.
    pub fn new(sensor: (u32, u32), compression: Compression) -> Result<Self, Error> {
        if [sensor.0, sensor.1].iter().any(|&size| size == 0 || size > 1 << 15) {
            let (width, height) = sensor;
            return Err(Error::Header(format!(
                "AEDAT 4.0 holds sensors of up to 32768 x 32768, got {width} x {height}"
            )));
        }
        let zstd = match compression {
            Compression::Zstd => Some(zstd_safe::CCtx::try_create().ok_or(NO_MEMORY)?),
            Compression::None | Compression::Lz4 => None,
        };
        let waiting = Vec::new();
        Ok(Self { sensor, compression, zstd, waiting, header: 0, offset: 0, packets: Vec::new() })
    }

    fn compressed(&mut self, buffer: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        match (self.compression, &mut self.zstd) {
            (Compression::Lz4, _) => lz4::compress(buffer, out),
            (Compression::Zstd, Some(context)) => {
                let start = out.len();
                out.resize(start + zstd_safe::compress_bound(buffer.len()), 0);
                let compressed = context.compress(&mut out[start..], buffer, ZSTD_LEVEL);
                // There is room, so it is memory that was lacking.
                out.truncate(start + compressed.map_err(|_| NO_MEMORY)?);
            }
            (Compression::None | Compression::Zstd, _) => out.extend(buffer),
        }
        Ok(())
    }

    fn packet(&mut self, events: &[Record], out: &mut Vec<u8>) -> Result<(), Error> {
        let mut buffer = Vec::with_capacity(32 + 16 * events.len());
        // The root is at 16; its only field is at 20 and points to 24.
        buffer.extend([16, 0, 0, 0]);
        buffer.extend(b"EVTS");
        buffer.extend([0, 0, 6, 0, 8, 0, 4, 0, 6, 0, 0, 0, 4, 0, 0, 0]);
        buffer.extend((events.len() as u32).to_le_bytes());
        for event in events {
            buffer.extend(event);
            buffer.extend([0; 3]);
        }
        let start = out.len();
        out.extend([0; 8]);
        self.compressed(&prefixed(buffer), out)?;
        let size = (out.len() - start - 8) as u32;
        out[start + 4..start + 8].copy_from_slice(&size.to_le_bytes());
        let times = || events.iter().map(|event| Event::from_record(event).t);
        self.packets.push(Packet {
            offset: self.offset + 8,
            size,
            events: events.len() as u64,
            first: times().min().unwrap_or(0),
            last: times().max().unwrap_or(0),
        });
        self.offset += 8 + u64::from(size);
        Ok(())
    }

    /// The table, as a buffer: for each packet its place behind its header, that header, and what times it has.
    fn table(&self) -> Vec<u8> {
        let n = self.packets.len() as u32;
        let mut buffer = Vec::new();
        buffer.extend([16, 0, 0, 0]);
        buffer.extend(b"FTAB");
        buffer.extend([0, 0, 6, 0, 8, 0, 4, 0, 6, 0, 0, 0, 4, 0, 0, 0]);
        buffer.extend(n.to_le_bytes());
        // The lines' common description comes behind their places, then the lines, 48 bytes each. Eight-byte fields are
        // aligned counting from the size prefix.
        let vtable = (28 + 4 * n).next_multiple_of(8) + 4;
        let lines = vtable + 16;
        for i in 0..n {
            let place = 28 + 4 * i;
            buffer.extend((lines + 48 * i - place).to_le_bytes());
        }
        buffer.resize(vtable as usize, 0);
        for field in [14_u16, 48, 16, 4, 24, 32, 40, 0] {
            buffer.extend(field.to_le_bytes());
        }
        for (i, packet) in (0..n).zip(&self.packets) {
            let line = lines + 48 * i;
            buffer.extend((line - vtable).to_le_bytes());
            buffer.extend(0_i32.to_le_bytes());
            buffer.extend(packet.size.to_le_bytes());
            buffer.extend([0; 4]);
            for number in [self.header + packet.offset, packet.events, packet.first, packet.last] {
                buffer.extend(number.to_le_bytes());
            }
        }
        prefixed(buffer)
    }

    fn info(&self) -> String {
        let ((width, height), compression) = (self.sensor, self.compression.name());
        format!(
            r#"<dv version="2.0">
    <node name="outInfo" path="/outInfo/">
        <node name="0" path="/outInfo/0/">
            <attr key="compression" type="string">{compression}</attr>
            <attr key="originalModuleName" type="string">frames2py</attr>
            <attr key="originalOutputName" type="string">events</attr>
            <attr key="typeDescription" type="string">Array of events (polarity ON/OFF).</attr>
            <attr key="typeIdentifier" type="string">EVTS</attr>
            <node name="info" path="/outInfo/0/info/">
                <attr key="sizeX" type="int">{width}</attr>
                <attr key="sizeY" type="int">{height}</attr>
                <attr key="source" type="string">frames2py</attr>
            </node>
        </node>
    </node>
</dv>
"#
        )
    }
}

impl Encoder for Aedat4Encoder {
    fn start(&mut self, out: &mut Vec<u8>) {
        let info = self.info();
        let mut header = Vec::new();
        // The root is at 24, behind its description; the text is at 48.
        header.extend([24, 0, 0, 0]);
        header.extend(b"IOHE");
        header.extend([0, 0, 0, 0, 0, 0, 10, 0, 24, 0, 4, 0, 12, 0, 8, 0, 10, 0, 0, 0]);
        header.extend(self.compression.number().to_le_bytes());
        header.extend([16, 0, 0, 0]);
        header.extend((-1_i64).to_le_bytes());
        header.extend([0; 4]);
        header.extend((info.len() as u32).to_le_bytes());
        header.extend(info.as_bytes());
        header.push(0);
        header.resize(header.len().next_multiple_of(4), 0);
        let start = out.len();
        out.extend(MAGIC);
        out.extend(prefixed(header));
        self.header = (out.len() - start) as u64;
    }

    fn encode(&mut self, events: &[Record], out: &mut Vec<u8>) -> Result<(), Error> {
        for (index, event) in events.iter().map(Event::from_record).enumerate() {
            let fail =
                |field, value: u64, expected| Err(unencodable(index, field, value, "AEDAT 4.0", expected));
            if event.t >= 1 << 63 {
                return fail("t", event.t, "times below 2**63");
            }
            if event.x >= 1 << 15 {
                return fail("x", event.x.into(), "columns up to 32767");
            }
            if event.y >= 1 << 15 {
                return fail("y", event.y.into(), "rows up to 32767");
            }
            if event.p > 1 {
                return fail("p", event.p.into(), "the polarities 0 and 1");
            }
        }
        let mut rest = events;
        while self.waiting.len() + rest.len() >= PACKET {
            let (front, behind) = rest.split_at(PACKET - self.waiting.len());
            rest = behind;
            self.waiting.extend_from_slice(front);
            let mut packet = take(&mut self.waiting);
            self.packet(&packet, out)?;
            packet.clear();
            self.waiting = packet;
        }
        self.waiting.extend_from_slice(rest);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<Vec<Patch>, Error> {
        let waiting = take(&mut self.waiting);
        if !waiting.is_empty() {
            self.packet(&waiting, out)?;
        }
        let at = self.header + self.offset;
        self.compressed(&self.table(), out)?;
        Ok(vec![Patch { at: TABLE_POSITION, bytes: at.to_le_bytes().to_vec() }])
    }
}

/// A buffer with its size before it.
fn prefixed(buffer: Vec<u8>) -> Vec<u8> {
    let mut bytes = (buffer.len() as u32).to_le_bytes().to_vec();
    bytes.extend(buffer);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::testing::{Decoded, decode_file};

    fn encoded(events: &[Event], cuts: &[usize], compression: Compression) -> Vec<u8> {
        let mut encoder = Aedat4Encoder::new((346, 260), compression).unwrap();
        let mut file = Vec::new();
        encoder.start(&mut file);
        let records: Vec<_> = events.iter().map(|event| event.to_record()).collect();
        let mut rest = &records[..];
        for &cut in cuts.iter().chain([&usize::MAX]) {
            let (front, behind) = rest.split_at(cut.min(rest.len()));
            encoder.encode(front, &mut file).unwrap();
            rest = behind;
        }
        for Patch { at, bytes } in encoder.finish(&mut file).unwrap() {
            file[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        file
    }

    fn decoded(file: &[u8], sizes: &[usize]) -> Decoded {
        let options = Options { strict: true, triggers: true, ..Options::default() };
        decode_file(head(file, true, options).unwrap().unwrap(), file, sizes)
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = (0_u64..5, 0_u16..1 << 15, 0_u16..1 << 15, 0_u8..2);
        (0_u64..(1 << 63) - 1_000_000, prop::collection::vec(event, 0..200), 1_usize..60).prop_map(
            |(start, some, times)| {
                let mut t = start;
                let repeated = (0..times).flat_map(|_| some.iter());
                repeated
                    .map(|&(dt, x, y, p)| {
                        t += dt;
                        Event { t, x, y, p }
                    })
                    .collect()
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn what_is_written_reads_the_same_however_it_is_cut(
            events in events(), cuts in prop::collection::vec(0_usize..9000, 0..4),
            sizes in prop::collection::vec(1_usize..5000, 1..6),
            compression in prop::sample::select(Compression::ALL.to_vec()),
        ) {
            let file = encoded(&events, &cuts, compression);
            prop_assert_eq!(&file, &encoded(&events, &[], compression));
            let Decoded { events: found, report, end, .. } = decoded(&file, &sizes);
            prop_assert_eq!(end, Ok(()));
            prop_assert_eq!(&found, &events);
            let packets = events.len().div_ceil(PACKET) as u64;
            prop_assert_eq!(report.words.iter().map(|words| words.count).collect::<Vec<_>>(),
                if packets == 0 { vec![1] } else { vec![packets, 1] });
            prop_assert_eq!(report, decoded(&file, &[usize::MAX]).report);
        }

        #[test]
        fn damage_is_found_at_the_same_place_however_it_is_cut(
            events in events(), sizes in prop::collection::vec(1_usize..5000, 1..6),
            compression in prop::sample::select(Compression::ALL.to_vec()),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut file = encoded(&events, &[], compression);
            let start = encoded(&[], &[], compression).len() - 60;
            for (at, value) in changes {
                let at = start + at.index(file.len() - start);
                file[at] = value;
            }
            let (found, whole) = (decoded(&file, &sizes), decoded(&file, &[usize::MAX]));
            prop_assert_eq!((found.events, found.end), (whole.events, whole.end));
        }
    }

    /// A file of packets of these sizes, some of a stream that is unknown behind the fifth and every third packet.
    fn packets(events: &[Event], sizes: &[usize], unknown: bool, compression: Compression) -> Vec<u8> {
        let mut encoder = Aedat4Encoder::new((346, 260), compression).unwrap();
        let mut file = Vec::new();
        encoder.start(&mut file);
        let records: Vec<_> = events.iter().map(|event| event.to_record()).collect();
        let mut rest = &records[..];
        for (i, &size) in sizes.iter().enumerate() {
            let (front, behind) = rest.split_at(size.min(rest.len()));
            rest = behind;
            encoder.packet(front, &mut file).unwrap();
            if unknown && i > 4 && i % 3 == 0 {
                file.extend([7, 0, 0, 0, 4 + size as u8 % 9, 0, 0, 0]);
                file.extend(vec![1; 4 + size % 256 % 9]);
            }
        }
        file
    }

    /// What comes of it when it is held, in chunks of so many bytes that are shared among so many threads, and released as often
    /// as it is enough, so many events at a time.
    fn released(
        file: &[u8],
        options: Options,
        threads: usize,
        [chunk, most]: [usize; 2],
    ) -> (Vec<Event>, Report, Result<(), String>) {
        let (mut decoder, _, start) = read_head(file, true, options).unwrap().unwrap();
        (decoder.held.helpers, decoder.held.each, decoder.held.chunk) = (threads - 1, 1, chunk);
        let mut events = Vec::new();
        let mut release = |decoder: &mut Aedat4Decoder, all: bool| {
            let mut out = EventBuffer::new();
            loop {
                out.clear();
                let more = decoder.release(&mut out, most, all);
                events.extend(out.records().iter().map(Event::from_record));
                if !matches!(more, Ok(true)) {
                    break more.map(drop);
                }
            }
        };
        let mut pieces = file[start..].chunks(700);
        let end = pieces
            .try_for_each(|piece| if decoder.hold(piece) { release(&mut decoder, false) } else { Ok(()) });
        let end = end.and_then(|()| release(&mut decoder, true));
        let end = end.and_then(|()| decoder.finish(&mut EventBuffer::new()));
        (events, decoder.report(), end.map_err(|error| error.to_string()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn threads_find_what_one_packet_after_the_other_has(
            events in events(), sizes in prop::collection::vec(0_usize..300, 2..60), strict in any::<bool>(),
            unknown in any::<bool>(), threads in 1_usize..4,
            compression in prop::sample::select(Compression::ALL.to_vec()),
            back in prop::collection::vec((any::<prop::sample::Index>(), 0_u64..3_000), 0..3),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in 0_usize..100, chunk in 1_usize..4000, most in 1_usize..400,
        ) {
            let mut events = events;
            for (at, by) in back {
                if !events.is_empty() {
                    let at = at.index(events.len());
                    events[at].t = events[at].t.saturating_sub(by);
                }
            }
            let mut file = packets(&events, &sizes, unknown, compression);
            let start = packets(&[], &[], false, compression).len();
            for (at, value) in changes {
                let at = start + at.index(file.len() - start);
                file[at] = value;
            }
            file.truncate(start.max(file.len() - cut));
            let options = Options { strict, ..Options::default() };
            // A byte at a time there is never more than a packet to decode.
            let (mut one, _, _) = read_head(&file, true, options).unwrap().unwrap();
            one.stay_on_one_thread();
            let (mut out, mut end) = (EventBuffer::new(), Ok(()));
            for byte in &file[start..] {
                end = one.feed(&[*byte], &mut out);
                if end.is_err() {
                    break;
                }
            }
            let end = end.and_then(|()| one.finish(&mut out)).map_err(|error| error.to_string());
            let expected: Vec<_> = out.records().iter().map(Event::from_record).collect();
            let (found, report, ended) = released(&file, options, threads, [chunk, most]);
            prop_assert_eq!((found, report, ended), (expected, one.report(), end));
        }
    }

    #[test]
    fn others_help_unless_it_is_to_stay_on_one_thread() {
        let events: Vec<_> = (0..20_000).map(|i| Event { t: i, x: 1, y: 2, p: 0 }).collect();
        let file = packets(&events, &[1000; 20], false, Compression::Lz4);
        for alone in [true, false] {
            let (mut decoder, _, start) = read_head(&file, true, Options::default()).unwrap().unwrap();
            (decoder.held.helpers, decoder.held.each, decoder.held.chunk) = (1, 1, 1);
            if alone {
                decoder.stay_on_one_thread();
            }
            let copy = decoder.clone();
            for mut decoder in [copy, decoder] {
                decoder.hold(&file[start..]);
                assert_eq!(decoder.held.line.len(), 20);
                if alone {
                    assert_eq!(decoder.held.line.begun(), 0);
                } else {
                    while decoder.held.line.begun() < 20 {
                        std::thread::yield_now();
                    }
                }
            }
        }
    }

    #[test]
    fn a_copy_goes_on_where_it_was_copied() {
        let events: Vec<_> = (0..2_000).map(|i| Event { t: i, x: 1, y: 2, p: 0 }).collect();
        let file = packets(&events, &[7; 290], false, Compression::Lz4);
        let (mut decoder, _, start) = read_head(&file, true, Options::default()).unwrap().unwrap();
        decoder.held.chunk = 500;
        decoder.hold(&file[start..]);
        let mut out = EventBuffer::new();
        let times = |out: &EventBuffer| {
            out.records().iter().map(|record| Event::from_record(record).t).collect::<Vec<_>>()
        };
        for most in [1, 3, 50, 11, 100, 1, 400] {
            let before = out.len() as u64;
            let (mut copy, mut copied) = (decoder.clone(), EventBuffer::new());
            while copy.release(&mut copied, 5, true).unwrap() {}
            assert_eq!(times(&copied), (before..2_000).collect::<Vec<_>>());
            decoder.release(&mut out, most, true).unwrap();
        }
        while decoder.release(&mut out, usize::MAX, true).unwrap() {}
        assert_eq!(times(&out), (0..2_000).collect::<Vec<_>>());
    }

    #[test]
    fn packets_that_grow_much_wait_for_their_turn() {
        let same = vec![Event { t: 5, x: 6, y: 7, p: 1 }; 50_000];
        let file = packets(&same, &[20_000, 10, 20_000, 9_990], false, Compression::Lz4);
        let (mut decoder, _, start) = read_head(&file, true, Options::default()).unwrap().unwrap();
        decoder.hold(&file[start..]);
        let turn = decoder.held.next_turn(true).unwrap();
        let ahead: Vec<_> =
            turn.rows.packets.iter().map(|found| found.as_ref().map(|(place, _)| place.len())).collect();
        assert_eq!(ahead, [None, Some(10), None, None]);
        assert_eq!(released(&file, Options::default(), 2, [1, 1000]).0, same);
    }

    #[test]
    fn what_it_cannot_hold_is_refused_and_leaves_no_trace() {
        let good = Event { t: 5, x: 1, y: 2, p: 1 };
        let bad = [
            ("t", Event { t: 1 << 63, ..good }),
            ("x", Event { x: 1 << 15, ..good }),
            ("y", Event { y: 1 << 15, ..good }),
            ("p", Event { p: 2, ..good }),
        ];
        for (field, event) in bad {
            let mut encoder = Aedat4Encoder::new((346, 260), Compression::Lz4).unwrap();
            let mut file = Vec::new();
            encoder.start(&mut file);
            encoder.encode(&[good.to_record()], &mut file).unwrap();
            let error = encoder.encode(&[good.to_record(), event.to_record()], &mut file).unwrap_err();
            assert!(error.to_string().starts_with(&format!("event 1: {field} is ")), "{error}");
            encoder.finish(&mut file).unwrap();
            assert_eq!(decoded(&file, &[usize::MAX]).events, [good]);
        }
        for sensor in [(0, 5), (5, 0), (32769, 5)] {
            assert!(Aedat4Encoder::new(sensor, Compression::Lz4).is_err());
        }
        assert!(Compression::parse("brotli").is_err());
    }

    #[test]
    fn the_table_says_where_packets_are() {
        let events: Vec<_> = (0..20_000).map(|i| Event { t: 100 + i, x: 1, y: 2, p: 0 }).collect();
        let file = encoded(&events, &[], Compression::None);
        let position = u64::from_le_bytes(*file[TABLE_POSITION as usize..].first_chunk().unwrap()) as usize;
        let buffer = flatbuffer::sized(&file[position..]).unwrap();
        assert_eq!(buffer.len() + 4, file.len() - position);
        assert_eq!(flatbuffer::identifier(buffer), Some(*b"FTAB"));
        let mut events_before = 0;
        for line in flatbuffer::root(buffer).unwrap().tables(0).unwrap() {
            let line = line.unwrap();
            let number = |i| u64::from_le_bytes(line.scalar(i, [9; 8]).unwrap()) as usize;
            let at = number(0);
            // The packet's header is the line's, and stands before it in the file.
            assert_eq!(line.scalar(1, [9; 8]), file[at - 8..].first_chunk().copied());
            assert_eq!((number(3), number(4)), (100 + events_before, 100 + events_before + number(2) - 1));
            events_before += number(2);
        }
        assert_eq!(events_before, 20_000);
    }
}
