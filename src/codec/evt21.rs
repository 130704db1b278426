//! EVT 2.1: words of 64 bits, <https://docs.prophesee.ai/stable/data/encoding_formats/evt21.html>.
//!
//! | bits 63..60 | meaning | bits 59..0 |
//! |---|---|---|
//! | 0x0, 0x1 | CD events, OFF or ON, one per set bit | time 59..54 (its 6 low bits), x 53..43, y 42..32, bits 31..0 |
//! | 0x8 | TIME_HIGH | the time's next 28 bits, 59..32 |
//! | 0xa | EXT_TRIGGER | time 59..54, input 44..40, edge 32 |
//! | 0xe, 0xf | OTHERS, CONTINUED: the vendor's | skipped |
//! | others | unknown | skipped |
//!
//! The upper half of a word is an EVT 2.0 word, and time works as there. Bytes come in one of two
//! [orders](Order).

use std::cmp::Ordering;

use super::evt2::{CONTINUED, EXT_TRIGGER, OTHERS, TIME_HIGH, Tally, Time, WrittenTime, holdable};
use super::{
    Decoder, Encoder, Error, EventBuffer, Options, Partial, Record, Report, Saved, Trigger, Version, record,
};

/// In which order a word's bytes are in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Lowest byte first, as GenX320 sensors send them.
    Little,
    /// The upper 32 bits first, each half with its lowest byte first, as IMX636 sensors and those before them
    /// send them. OpenEB calls it `legacy`.
    Halves,
}

impl Order {
    /// A word's upper and lower half.
    #[inline(always)]
    pub(super) fn halves(self, word: [u8; 8]) -> (u32, u32) {
        let [first, second] =
            [&word[..4], &word[4..]].map(|half| u32::from_le_bytes([half[0], half[1], half[2], half[3]]));
        match self {
            Self::Little => (second, first),
            Self::Halves => (first, second),
        }
    }

    /// The order that `words`, from the start of a recording, are in: the one in which fewer of them make no
    /// sense, if that is so of one.
    pub(super) fn guess(words: &[[u8; 8]]) -> Option<Self> {
        let odd = |order: Self| {
            let (mut odd, mut high) = (0, None);
            for &word in words {
                let (upper, _) = order.halves(word);
                odd += match upper >> 28 {
                    TIME_HIGH => {
                        // Up by less than a second.
                        let now = upper & 0x0fff_ffff;
                        let step = high.replace(now).map_or(0, |before| now.wrapping_sub(before));
                        u32::from(step > 1_000_000 / 64)
                    }
                    0 | 1 | EXT_TRIGGER | OTHERS | CONTINUED => 0,
                    _ => 1,
                };
            }
            (high.is_none(), odd)
        };
        match odd(Self::Halves).cmp(&odd(Self::Little)) {
            Ordering::Less => Some(Self::Halves),
            Ordering::Equal => None,
            Ordering::Greater => Some(Self::Little),
        }
    }
}

/// Decodes EVT 2.1.
#[derive(Clone)]
pub struct Evt21Decoder {
    partial: Partial<8>,
    order: Order,
    time: Time,
    tally: Tally,
    triggers: bool,
}

impl Evt21Decoder {
    /// A decoder at the start of a recording.
    pub fn new(order: Order, options: Options) -> Self {
        Self {
            partial: Partial::default(),
            order,
            time: Time::default(),
            tally: Tally::default(),
            triggers: options.triggers,
        }
    }

    fn decode(&mut self, words: &[[u8; 8]], out: &mut EventBuffer) {
        const WORDS: usize = 16;
        for words in words.chunks(WORDS) {
            // Collected aside, as `rows` are the buffer's.
            let mut found = Vec::new();
            let rows = out.room(32 * WORDS);
            let mut count = 0;
            let (mut time, mut tally) = (self.time, self.tally);
            let mut base = time.base();
            for &word in words {
                let (upper, mut bits) = self.order.halves(word);
                let kind = upper >> 28;
                tally.words[kind as usize] += 1;
                let t = base | u64::from(upper >> 22 & 0x3f);
                match kind {
                    0 | 1 if bits == 0 => {}
                    0 | 1 if time.high.is_none() => tally.dropped += u64::from(bits.count_ones()),
                    0 | 1 => {
                        tally.steps_back += u64::from(t < tally.last);
                        tally.last = t;
                        let xy = (upper >> 11 & 0x7ff) | (upper & 0x7ff) << 16;
                        // Four at a time, whether or not there are so many: how many there are cannot be
                        // predicted.
                        let events = bits.count_ones() as usize;
                        for rows in rows[count..count + events.next_multiple_of(4)].as_chunks_mut::<4>().0 {
                            for to in rows {
                                *to = record(t, xy + (bits.trailing_zeros() & 31), kind as u8);
                                bits &= bits.wrapping_sub(1);
                            }
                        }
                        count += events;
                    }
                    TIME_HIGH => {
                        tally.wraps += u64::from(time.set_high(upper & 0x0fff_ffff));
                        base = time.base();
                    }
                    EXT_TRIGGER if self.triggers && time.high.is_some() => {
                        let (id, p) = ((upper >> 8 & 0x1f) as u16, (upper & 1) as u8);
                        found.push(Trigger { t, id, p });
                    }
                    _ => {}
                }
            }
            (self.time, self.tally) = (time, tally);
            out.keep(count);
            out.triggers.append(&mut found);
        }
    }
}

impl Decoder for Evt21Decoder {
    fn feed(&mut self, mut bytes: &[u8], out: &mut EventBuffer) -> Result<(), Error> {
        if let Some(word) = self.partial.complete(&mut bytes) {
            self.decode(&[word], out);
        }
        let words = self.partial.split(bytes);
        self.decode(words, out);
        Ok(())
    }

    fn finish(&mut self, _out: &mut EventBuffer) -> Result<(), Error> {
        self.tally.tail = self.partial.len as u64;
        Ok(())
    }

    fn report(&self) -> Report {
        let types = [
            (0, "EVT_NEG"),
            (1, "EVT_POS"),
            (TIME_HIGH, "EVT_TIME_HIGH"),
            (EXT_TRIGGER, "EXT_TRIGGER"),
            (OTHERS, "OTHERS"),
            (CONTINUED, "CONTINUED"),
        ];
        self.tally.report(8, &types)
    }

    fn faults(&self) -> u64 {
        self.tally.faults()
    }

    fn word(&self) -> usize {
        8
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn save(&self) -> Option<Saved> {
        Some(Saved { state: self.time.save(), again: self.partial.len as u64 })
    }

    fn load(&mut self, state: &[u8]) -> bool {
        self.time.load(state)
    }
}

/// Encodes EVT 2.1, lowest byte first. TIME_HIGH is written when it changes; events that follow each other in
/// a row, in one group of 32 columns, at one time and with one polarity share a word.
pub struct Evt21Encoder {
    sensor: (u32, u32),
    time: WrittenTime,
}

impl Evt21Encoder {
    /// An encoder for a sensor of that size.
    ///
    /// # Errors
    /// [`Error::Header`]: the format holds no such sensor.
    pub fn new(sensor: (u32, u32)) -> Result<Self, Error> {
        Version::Evt21.check_sensor(sensor)?;
        Ok(Self { sensor, time: WrittenTime::default() })
    }
}

impl Encoder for Evt21Encoder {
    fn start(&mut self, out: &mut Vec<u8>) {
        Version::Evt21.write_header(self.sensor, out);
    }

    fn encode(&mut self, records: &[Record], out: &mut Vec<u8>) -> Result<(), Error> {
        let format = Version::Evt21.name();
        let (events, mut error) = holdable(format, records);
        let (length, mut time) = (out.len(), self.time);
        let mut index = 0;
        while index < events.len() {
            let first = events[index];
            let mut put = |upper: u32, lower: u32| {
                out.extend(lower.to_le_bytes());
                out.extend(upper.to_le_bytes());
            };
            let stepped = time.step(format, first.t, |high| put(TIME_HIGH << 28 | high, 0));
            if let Err(refused) = stepped {
                error = Some(refused.of_event(index, first.t));
                break;
            }
            let group = first.group(&events[index..]);
            let bits = group.iter().fold(0, |bits, event| bits | 1_u32 << (event.x % 32));
            let low = (first.t & 0x3f) as u32;
            let base = u32::from(first.x & !31);
            put(u32::from(first.p) << 28 | low << 22 | base << 11 | u32::from(first.y), bits);
            index += group.len();
        }
        if let Some(error) = error {
            out.truncate(length);
            return Err(error);
        }
        self.time = time;
        Ok(())
    }
}
