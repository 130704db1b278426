//! EVT 2.0, 2.1 and 3.0 read off their tables, one word at a time, and the decoders and encoders held against
//! it.

use std::collections::BTreeMap;
use std::io::Cursor;

use proptest::prelude::*;

use super::simd::Backend;
use super::*;

/// All there is to find in a recording.
#[derive(Clone, Debug, Default, PartialEq)]
struct Found {
    events: Vec<Event>,
    triggers: Vec<Trigger>,
    words: BTreeMap<&'static str, u64>,
    dropped: BTreeMap<&'static str, u64>,
    wraps: u64,
    steps_back: u64,
    unknown: u64,
    padding: u64,
    tail: u64,
    error: Option<String>,
}

impl Found {
    fn event(&mut self, t: u64, x: u32, y: u32, p: u32) {
        self.steps_back += u64::from(self.events.last().is_some_and(|before| t < before.t));
        self.events.push(Event { t, x: x as u16, y: y as u16, p: p as u8 });
    }

    fn note_word(&mut self, name: &'static str) {
        *self.words.entry(name).or_default() += 1;
    }

    fn drop(&mut self, reason: &'static str, events: u64) {
        if events > 0 {
            *self.dropped.entry(reason).or_default() += events;
        }
    }

    fn is_faulty(&self) -> bool {
        let dropped: u64 = self.dropped.values().sum();
        dropped + self.steps_back + self.unknown + self.tail > 0 || self.error.is_some()
    }
}

/// One word after the other.
trait Oracle: Clone + Default {
    const SIZE: usize;

    fn word(&mut self, bytes: &[u8], found: &mut Found);

    fn read(bytes: &[u8]) -> Found {
        let (mut oracle, mut found) = (Self::default(), Found::default());
        let words = bytes.chunks_exact(Self::SIZE);
        found.tail = words.remainder().len() as u64;
        for word in words {
            oracle.word(word, &mut found);
            if found.error.is_some() {
                found.tail = 0;
                break;
            }
        }
        found
    }

    /// What there is before the first fault, and at which byte that is.
    fn read_strictly(bytes: &[u8]) -> (Vec<Event>, Option<usize>) {
        let (mut oracle, mut found) = (Self::default(), Found::default());
        let words = bytes.chunks_exact(Self::SIZE);
        let tail = (!words.remainder().is_empty()).then_some(bytes.len() - words.remainder().len());
        for (index, word) in words.enumerate() {
            let events = found.events.clone();
            oracle.word(word, &mut found);
            if found.is_faulty() {
                return (events, Some(index * Self::SIZE));
            }
        }
        (found.events, tail)
    }
}

#[derive(Clone, Default)]
struct Evt3 {
    high: Option<u64>,
    low: u64,
    epoch: u64,
    row: Option<Option<u32>>,
    base: Option<(u32, u32)>,
}

impl Oracle for Evt3 {
    const SIZE: usize = 2;

    fn word(&mut self, bytes: &[u8], found: &mut Found) {
        let word = u32::from(bytes[0]) + 256 * u32::from(bytes[1]);
        let (kind, value) = (word / 4096, word % 4096);
        let (x, p) = (value % 2048, value / 2048);
        let timed = self.high.is_some();
        let t = self.epoch + self.high.unwrap_or(0) * 4096 + self.low;
        match kind {
            0 | 1 => {
                found.note_word(["ADDR_Y", "RESERVED_Y"][kind as usize]);
                if timed {
                    self.row = Some((kind == 0).then_some(x));
                }
            }
            2 => {
                found.note_word("ADDR_X");
                match (timed, self.row) {
                    (false, _) => found.drop("before the first TIME_HIGH", 1),
                    (_, None) => found.drop("before the first ADDR_Y", 1),
                    (_, Some(None)) => found.drop("in a row of a reserved type", 1),
                    (_, Some(Some(y))) => found.event(t, x, y, p),
                }
            }
            3 => {
                found.note_word("BASE_X");
                if timed {
                    self.base = Some((x, p));
                }
            }
            4 | 5 => {
                let width = if kind == 4 { 12 } else { 8 };
                let columns: Vec<u32> = (0..width).filter(|&bit| value >> bit & 1 == 1).collect();
                let count = columns.len() as u64;
                match (timed, self.row, self.base) {
                    (false, ..) => found.drop("before the first TIME_HIGH", count),
                    (_, None, _) => found.drop("before the first ADDR_Y", count),
                    (_, Some(None), _) => found.drop("in a row of a reserved type", count),
                    (_, _, None) => found.drop("before the first BASE_X", count),
                    (_, Some(Some(y)), Some((base, p))) => {
                        if let Some(last) = columns.last().filter(|&last| base + last > 65535) {
                            found.error = Some(format!("x = {};", base + last));
                            return;
                        }
                        columns.iter().for_each(|bit| found.event(t, base + bit, y, p));
                        self.base = Some((base + width, p));
                    }
                }
                found.note_word(if kind == 4 { "VECT_12" } else { "VECT_8" });
            }
            6 => {
                found.note_word("TIME_LOW");
                if timed {
                    self.low = value.into();
                }
            }
            8 => {
                found.note_word("TIME_HIGH");
                let value = u64::from(value);
                if let Some(high) = self.high {
                    if high > value + 3840 {
                        self.epoch += 1 << 24;
                        found.wraps += 1;
                    }
                    self.low = if high == value { self.low } else { 0 };
                }
                self.high = Some(value);
            }
            10 => {
                found.note_word("EXT_TRIGGER");
                if timed {
                    let (id, p) = ((value / 256) as u16, (value % 2) as u8);
                    found.triggers.push(Trigger { t, id, p });
                }
            }
            7 => found.note_word("CONTINUED_4"),
            14 => found.note_word("OTHERS"),
            15 => found.note_word("CONTINUED_12"),
            _ if word == 0x9999 => found.padding += 2,
            _ => found.unknown += 1,
        }
    }
}

/// The clock of EVT 2.0 and 2.1.
#[derive(Clone, Default)]
struct Clock {
    high: Option<u64>,
    epoch: u64,
}

impl Clock {
    fn set(&mut self, high: u64, found: &mut Found) {
        if self.high.is_some_and(|before| before * 64 >= high * 64 + ((1 << 28) - 1) * 64 - 10_000) {
            self.epoch += 1 << 34;
            found.wraps += 1;
        }
        self.high = Some(high);
    }

    fn time(&self, low: u64) -> Option<u64> {
        self.high.map(|high| self.epoch + high * 64 + low)
    }
}

#[derive(Clone, Default)]
struct Evt2(Clock);

impl Oracle for Evt2 {
    const SIZE: usize = 4;

    fn word(&mut self, bytes: &[u8], found: &mut Found) {
        let word = bytes.iter().rev().fold(0_u32, |word, &byte| word * 256 + u32::from(byte));
        let (kind, low) = (word >> 28, word >> 22 & 63);
        let t = self.0.time(low.into());
        match kind {
            0 | 1 => {
                found.note_word(["CD_OFF", "CD_ON"][kind as usize]);
                match t {
                    Some(t) => found.event(t, word >> 11 & 2047, word & 2047, kind),
                    None => found.drop("before the first TIME_HIGH", 1),
                }
            }
            8 => {
                found.note_word("TIME_HIGH");
                self.0.set(u64::from(word % (1 << 28)), found);
            }
            10 => {
                found.note_word("EXT_TRIGGER");
                let (id, p) = ((word >> 8 & 31) as u16, (word & 1) as u8);
                found.triggers.extend(t.map(|t| Trigger { t, id, p }));
            }
            14 => found.note_word("OTHERS"),
            15 => found.note_word("CONTINUED"),
            _ => found.unknown += 1,
        }
    }
}

/// Lowest byte first.
#[derive(Clone, Default)]
struct Evt21(Clock);

impl Oracle for Evt21 {
    const SIZE: usize = 8;

    fn word(&mut self, bytes: &[u8], found: &mut Found) {
        let word = u64::from_le_bytes(bytes.try_into().unwrap());
        let field = |from: u32, to: u32| word >> to & ((1 << (from - to + 1)) - 1);
        let kind = field(63, 60);
        let t = self.0.time(field(59, 54));
        match kind {
            0 | 1 => {
                found.note_word(["EVT_NEG", "EVT_POS"][kind as usize]);
                let columns: Vec<u32> = (0..32).filter(|&bit| field(bit, bit) == 1).collect();
                match t {
                    None => found.drop("before the first TIME_HIGH", columns.len() as u64),
                    Some(t) => {
                        let (x, y) = (field(53, 43) as u32, field(42, 32) as u32);
                        columns.iter().for_each(|bit| found.event(t, x + bit, y, kind as u32));
                    }
                }
            }
            8 => {
                found.note_word("EVT_TIME_HIGH");
                self.0.set(field(59, 32), found);
            }
            10 => {
                found.note_word("EXT_TRIGGER");
                let (id, p) = (field(44, 40) as u16, field(32, 32) as u8);
                found.triggers.extend(t.map(|t| Trigger { t, id, p }));
            }
            14 => found.note_word("OTHERS"),
            15 => found.note_word("CONTINUED"),
            _ => found.unknown += 1,
        }
    }
}

/// What a decoder finds in `bytes`, fed in pieces of these sizes, over and over.
fn decode(mut decoder: Box<dyn Decoder>, size: u64, mut bytes: &[u8], sizes: &[usize]) -> Found {
    let (mut out, mut found) = (EventBuffer::new(), Found::default());
    let mut sizes = sizes.iter().cycle();
    let mut ended = Ok(());
    while !bytes.is_empty() && ended.is_ok() {
        let (piece, rest) = bytes.split_at((*sizes.next().unwrap()).min(bytes.len()));
        bytes = rest;
        out.clear();
        ended = decoder.feed(piece, &mut out);
        found.events.extend(out.records().iter().map(Event::from_record));
        found.triggers.append(&mut out.triggers);
        assert_eq!(decoder.faults(), decoder.report().faults());
    }
    if ended.is_ok() {
        ended = decoder.finish(&mut out);
    }
    let report = decoder.report();
    assert_eq!(decoder.faults(), report.faults());
    for words in report.words {
        assert_eq!(words.bytes, size * words.count);
        found.words.insert(words.name, words.count);
    }
    found.dropped = report.dropped.into_iter().collect();
    found.wraps = report.time_wraps;
    found.steps_back = report.backward_steps;
    found.unknown = report.unknown;
    found.padding = report.padding;
    found.tail = report.truncated_tail;
    found.error = ended.err().map(|error| error.to_string());
    found
}

/// The events of a strict reader and the byte it names, `bytes` being behind 100 bytes of header.
fn decode_strictly(decoder: Box<dyn Decoder>, bytes: &[u8], limit: usize) -> (Vec<Event>, Option<usize>) {
    let mut stream = Stream::new(decoder, Vec::new(), Cursor::new(bytes), 100, true);
    let mut events = Vec::new();
    loop {
        let mut batch = Vec::new();
        match stream.fill(&mut batch, limit, 1) {
            Ok(fill) => {
                events.extend(batch.iter().map(Event::from_record));
                if fill == Fill::End && batch.is_empty() {
                    return (events, None);
                }
            }
            Err(error) => {
                let message = error.to_string();
                let place = message.strip_suffix(" of the file").and_then(|m| m.rsplit(' ').next());
                return (events, Some(place.unwrap().parse::<usize>().unwrap() - 100));
            }
        }
    }
}

fn check<O: Oracle>(
    decoders: impl Fn(Options) -> Vec<Box<dyn Decoder>>,
    bytes: &[u8],
    sizes: &[usize],
    limit: usize,
) {
    let expected = O::read(bytes);
    for decoder in decoders(Options { triggers: true, strict: false, ..Options::default() }) {
        let mut found = decode(decoder, O::SIZE as u64, bytes, sizes);
        if let (Some(message), Some(expected)) = (&found.error, &expected.error) {
            assert!(message.contains(expected), "{message}, not {expected}");
            found.error = Some(expected.clone());
        }
        assert_eq!(found, expected);
    }
    for decoder in decoders(Options::default()) {
        let found = decode(decoder, O::SIZE as u64, bytes, sizes);
        assert!(found.triggers.is_empty());
        assert_eq!((found.events, found.words), (expected.events.clone(), expected.words.clone()));
    }
    let expected = O::read_strictly(bytes);
    for decoder in decoders(Options { triggers: true, strict: true, ..Options::default() }) {
        assert_eq!(decode_strictly(decoder, bytes, limit), expected);
    }
}

fn evt3_decoders(options: Options) -> Vec<Box<dyn Decoder>> {
    let one = |backend| Box::new(Evt3Decoder::with_backend(options, backend)) as Box<dyn Decoder>;
    Backend::all().map(one).collect()
}

fn evt2_decoders(options: Options) -> Vec<Box<dyn Decoder>> {
    let one = |backend| Box::new(Evt2Decoder::with_backend(options, backend)) as Box<dyn Decoder>;
    Backend::all().map(one).collect()
}

fn evt21_decoders(options: Options) -> Vec<Box<dyn Decoder>> {
    vec![Box::new(Evt21Decoder::new(Order::Little, options))]
}

fn evt3_word(odd: u32) -> impl Strategy<Value = u16> {
    let usual = prop::sample::select(vec![0_u16, 2, 2, 6, 3, 4, 5, 7, 0xe, 0xf]);
    prop_oneof![
        12 => (usual, 0_u16..0x1000).prop_map(|(kind, value)| kind << 12 | value),
        4 => (0_u16..3).prop_map(|high| 8 << 12 | high),
        1 => (0xffd_u16..0x1000).prop_map(|high| 8 << 12 | high),
        odd => any::<u16>(),
        odd => Just(0x9999),
    ]
}

/// A camera's words in the order a camera has them, with times that go up.
fn evt3_like_a_camera() -> impl Strategy<Value = Vec<u16>> {
    let packet = (0_u16..40, 0_u16..0x7ff, prop::collection::vec((0_u16..0x1000, 0_u8..8), 0..6));
    prop::collection::vec(packet, 1..120).prop_map(|packets| {
        let (mut t, mut words) = (0_u32, vec![0x8000]);
        for (dt, y, events) in packets {
            let before = t >> 12;
            t += u32::from(dt) * 16;
            if t >> 12 != before || dt % 3 == 0 {
                words.push(0x8000 | (t >> 12) as u16 & 0xfff);
            }
            words.extend([0x6000 | t as u16 & 0xfff, y]);
            for (value, kind) in events {
                match kind {
                    0 => words.extend([0x3000 | value, 0x4000 | value, 0x4fff, 0x5000 | value]),
                    1 => words.extend([0xe000 | value, 0x7000 | value, 0xf000 | value]),
                    2 => words.push(0xa000 | value),
                    _ => words.push(0x2000 | value),
                }
            }
        }
        words
    })
}

fn evt2_word(odd: u32) -> impl Strategy<Value = u32> {
    const HIGH: u32 = 8 << 28;
    const TOP: u32 = (1 << 28) - 1;
    prop_oneof![
        40 => 0_u32..2 << 28,
        2 => (0_u32..3).prop_map(|high| HIGH | high),
        1 => HIGH..HIGH | 300,
        1 => HIGH | (TOP - 300)..=HIGH | TOP,
        1 => (10_u32..16, any::<u32>()).prop_map(|(kind, value)| kind << 28 | value >> 4),
        odd => any::<u32>(),
    ]
}

fn bytes16(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn bytes32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

proptest! {
    #[test]
    fn evt3_is_what_its_table_says(
        start in prop::sample::select(vec![vec![], vec![0x8000, 0x0001, 0x37ff], vec![0x8fff, 0x0001]]),
        empty in prop_oneof![8 => Just(0), 1 => 5280_usize..5300],
        words in prop_oneof![
            prop::collection::vec(evt3_word(1), 0..300),
            prop::collection::vec(evt3_word(0), 0..300),
            evt3_like_a_camera(),
        ],
        tail in 0_usize..2,
        sizes in prop::collection::vec(1_usize..700, 1..20),
        limit in 1_usize..2000,
    ) {
        let words = [start, vec![0x4000; empty], words].concat();
        let bytes = [&bytes16(&words), &[0x02][..tail]].concat();
        check::<Evt3>(evt3_decoders, &bytes, &sizes, limit);
    }

    #[test]
    fn evt2_is_what_its_table_says(
        start in prop::sample::select(vec![vec![], vec![8 << 28]]),
        words in prop_oneof![
            prop::collection::vec(evt2_word(1), 0..300),
            prop::collection::vec(evt2_word(0), 0..300),
        ],
        tail in 0_usize..4,
        sizes in prop::collection::vec(1_usize..700, 1..20),
        limit in 1_usize..2000,
    ) {
        let bytes = [&bytes32(&[start, words].concat()), &[0x10; 3][..tail]].concat();
        check::<Evt2>(evt2_decoders, &bytes, &sizes, limit);
    }

    #[test]
    fn evt21_is_what_its_table_says_in_both_orders(
        start in prop::sample::select(vec![vec![], vec![(8 << 28, 0)]]),
        words in prop::collection::vec((evt2_word(1), prop_oneof![Just(0), Just(1), any::<u32>()]), 0..200),
        tail in 0_usize..8,
        sizes in prop::collection::vec(1_usize..700, 1..20),
        limit in 1_usize..2000,
    ) {
        let words = [start, words].concat();
        let little: Vec<u32> = words.iter().flat_map(|&(upper, lower)| [lower, upper]).collect();
        let halves: Vec<u32> = words.iter().flat_map(|&(upper, lower)| [upper, lower]).collect();
        let little = [&bytes32(&little), &[0x10; 7][..tail]].concat();
        check::<Evt21>(evt21_decoders, &little, &sizes, limit);
        let halves = [&bytes32(&halves), &[0x10; 7][..tail]].concat();
        let options = Options { triggers: true, strict: false, ..Options::default() };
        let swapped = Box::new(Evt21Decoder::new(Order::Halves, options));
        prop_assert_eq!(decode(swapped, 8, &halves, &sizes), Evt21::read(&little));
    }
}

/// The formats that are written, with the bits of their clocks.
const FORMATS: [(&str, u32); 3] = [("evt2", 34), ("evt2.1", 34), ("evt3", 24)];

/// The first event that a format with a clock of so many bits does not hold.
fn first_unholdable(bits: u32, events: &[Event]) -> Option<usize> {
    let mut overflows = 0;
    events.iter().position(|event| {
        let before = std::mem::replace(&mut overflows, event.t >> bits);
        event.x > 2047 || event.y > 2047 || event.p > 1 || overflows < before || overflows - before > 131_072
    })
}

/// What was written, read by whatever its header says.
fn read_back(file: &[u8]) -> Found {
    let head = head(file, true, None, Options::default()).unwrap().unwrap();
    assert_eq!(head.geometry, Some((640, 480)));
    let size = head.decoder.word() as u64;
    decode(head.decoder, size, &file[head.length..], &[4096])
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let forward = prop_oneof![
        20 => Just(0_u64),
        20 => 0_u64..200,
        3 => 0_u64..1 << 20,
        2 => 0_u64..1 << 26,
        1 => 0_u64..1 << 36,
    ];
    let step = (forward, prop_oneof![9 => Just(0_u64), 1 => 0_u64..300, 1 => 0_u64..1 << 24]);
    let place = (0_u16..2048, 0_u16..2048, 0_u8..2, any::<bool>(), 1_u16..40);
    let start = prop_oneof![Just(0_u64), 0_u64..1 << 25, Just((1 << 24) - 1), 0_u64..1 << 36];
    (start, prop::collection::vec((step, place), 0..60)).prop_map(|(mut t, steps)| {
        let mut events: Vec<Event> = Vec::new();
        for ((forward, backward), (x, y, p, run, length)) in steps {
            t = (t + forward).saturating_sub(backward);
            let x = if run { x.min(2047 - length) } else { x };
            let columns = if run { x..x + length } else { x..x + 1 };
            let columns = columns.step_by(1 + usize::from(y) % 3);
            events.extend(columns.map(|x| Event { t, x, y, p }));
        }
        events
    })
}

fn records(events: &[Event]) -> Vec<Record> {
    events.iter().map(|event| event.to_record()).collect()
}

proptest! {
    #[test]
    fn what_a_format_holds_comes_back_and_the_rest_is_refused(
        events in events(),
        odd in prop::option::weighted(0.2, (any::<prop::sample::Index>(), 0_u8..4)),
        sizes in prop::collection::vec(1_usize..50, 1..5),
    ) {
        let mut events = events;
        if let (Some((index, field)), false) = (odd, events.is_empty()) {
            let index = index.index(events.len());
            let event = &mut events[index];
            match field {
                0 => event.x = 2048,
                1 => event.y = 2048,
                2 => event.p = 2,
                _ => event.t = 1 << 62,
            }
        }
        for (format, bits) in FORMATS {
            let mut encoder = encoder(format, (640, 480), None).unwrap();
            let mut file = Vec::new();
            encoder.start(&mut file);
            let holdable = first_unholdable(bits, &events);
            let (mut rest, mut written) = (&events[..], 0);
            let mut sizes = sizes.iter().cycle();
            while !rest.is_empty() {
                let (part, later) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
                let length = file.len();
                match encoder.encode(&records(part), &mut file) {
                    Ok(()) => (rest, written) = (later, written + part.len()),
                    Err(Error::Unencodable { index, .. }) => {
                        prop_assert_eq!(Some(written + index), holdable);
                        prop_assert_eq!(file.len(), length);
                        // As if it had not been tried: what comes before it can still be written.
                        encoder.encode(&records(&part[..index]), &mut file).unwrap();
                        written += index;
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            prop_assert_eq!(written, holdable.unwrap_or(events.len()));
            prop_assert!(encoder.finish(&mut file).unwrap().is_empty());
            let found = read_back(&file);
            prop_assert_eq!(&found.events, &events[..written]);
            prop_assert_eq!((found.unknown, found.padding, found.tail), (0, 0, 0));
            prop_assert!(found.dropped.is_empty());
        }
    }
}

#[test]
fn the_most_and_least_times_are_held() {
    for (format, bits) in FORMATS {
        let times = |times: &[u64]| {
            let events: Vec<Event> = times.iter().map(|&t| Event { t, x: 0, y: 0, p: 0 }).collect();
            let mut encoder = encoder(format, (640, 480), None).unwrap();
            let mut file = Vec::new();
            encoder.start(&mut file);
            encoder.encode(&records(&events), &mut file).map(|()| {
                assert_eq!(read_back(&file).events, events);
            })
        };
        let most = ((131_072 + 1) << bits) - 1;
        times(&[most, most, most + 1]).unwrap();
        let message = times(&[most + 1]).unwrap_err().to_string();
        assert!(message.contains(&format!("up to {most} here")), "{message}");
        assert!(message.starts_with(&format!("event 0: t is {};", most + 1)), "{message}");
        // Back to the start of the clock's range and to its end, but not beyond.
        let (first, last) = (5 << bits, (6 << bits) - 1);
        times(&[last, first, last, first]).unwrap();
        let message = times(&[first, first - 1]).unwrap_err().to_string();
        assert!(message.contains(&format!("event 1: t is {}", first - 1)), "{message}");
        assert!(message.contains(&format!("from {first} on")), "{message}");
    }
}

#[test]
fn five_columns_at_once_are_a_vector_in_the_form_cameras_send() {
    let events: Vec<Event> = (30..40).map(|x| Event { t: 4097, x, y: 3, p: 1 }).collect();
    let mut encoder = Evt3Encoder::new((640, 480)).unwrap();
    let mut out = Vec::new();
    encoder.encode(&records(&events), &mut out).unwrap();
    let words = [0x8001, 0x6001, 0x0003, 0x281e, 0x281f, 0x3820, 0x40ff, 0x4000, 0x5000];
    assert_eq!(out, bytes16(&words));
}

#[test]
fn gaps_are_stepped_through_as_cameras_do() {
    let events = [4095 << 12 | 7, (1 << 24) + (2 << 12)].map(|t| Event { t, x: 1, y: 0, p: 0 });
    let mut encoder = Evt3Encoder::new((640, 480)).unwrap();
    let mut out = Vec::new();
    encoder.encode(&records(&events), &mut out).unwrap();
    let words = [0x8fff, 0x6007, 0x0000, 0x2001, 0x8000, 0x8001, 0x8002, 0x6000, 0x2001];
    assert_eq!(out, bytes16(&words));
}

#[test]
fn sensors_larger_than_addresses_are_refused() {
    for (format, _) in FORMATS {
        for sensor in [(2049, 1), (1, 2049), (0, 1)] {
            assert!(encoder(format, sensor, None).err().unwrap().to_string().contains("2048x2048"));
        }
        encoder(format, (2048, 2048), None).unwrap();
    }
}
