//! Fixed workloads whose instructions are counted under callgrind by `ci/instructions.sh`.
//!
//! `instructions` prints the names of the workloads and what the counts depend on; `instructions NAME` runs one. Only what
//! runs inside [`measured`] is counted. Nothing here depends on the clock, on chance or on the environment.

use frames2py::accumulator::Accumulator;
use frames2py::codec::{self, Decoder, EventBuffer, Evt2Decoder, Evt3Decoder};
use frames2py::engine::{Engine, Options};
use frames2py::event::Events;
use frames2py::geometry::SensorSize;
use frames2py::kernels::Config;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::Duration;

const KERNELS: [Config; 7] = [
    Config::EventCount,
    Config::Polarity,
    Config::TimeSurface,
    Config::ExpDecay { decay: 0.9 },
    Config::TimestampDecay { tau_us: 30_000.0 },
    Config::StackedHistogram { bins: 5, bin_us: 1_000 },
    Config::VoxelGrid { bins: 5, bin_us: 1_250 },
];
/// Events of a call.
const CALL: usize = 20_000;
/// Calls that are counted, after one that is not.
const CALLS: usize = 4;

/// The counter is on while this runs. It must be neither inlined nor merged with anything.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
    black_box(());
}

/// A generator of numbers that look random (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) * limit) >> 32
    }
}

fn sensor() -> SensorSize {
    SensorSize::new(346, 260).expect("a sensor")
}

/// Packed records at 20 a microsecond, `outside` in a thousand of them beyond the right edge.
fn records(calls: usize, outside: u64) -> Vec<u8> {
    let mut numbers = Numbers(7);
    let mut bytes = Vec::new();
    for i in 0..(calls * CALL) as u64 {
        let beyond = if numbers.below(1000) < outside { 346 } else { 0 };
        let (x, y) = (numbers.below(346) + beyond, numbers.below(260));
        bytes.extend((1_000_000_000 + i / 20).to_le_bytes());
        bytes.extend((x as u16).to_le_bytes());
        bytes.extend((y as u16).to_le_bytes());
        bytes.push(numbers.below(2) as u8);
    }
    bytes
}

fn calls(bytes: &[u8], size: usize) -> impl Iterator<Item = Events<'_>> {
    bytes.chunks(size * 13).map(Events::packed)
}

fn accumulate(config: Config, outside: u64, size: usize) {
    let bytes = records(CALLS + 1, outside);
    let mut accumulator = Accumulator::new(sensor(), config.build(sensor()).expect("a kernel"));
    let (first, rest) = bytes.split_at(CALL * 13);
    let mut take = |call| {
        black_box(accumulator.accumulate(call).expect("a call"));
    };
    calls(first, size).for_each(&mut take);
    measured(&mut || calls(rest, size).for_each(&mut take));
}

/// Calls of 1,000 events, a publication each. Nobody reads.
fn publish(config: Config) {
    let bytes = records(2, 0);
    let options = Options { interval: Duration::ZERO, ..Options::default() };
    let engine: Engine<()> =
        Engine::new(sensor(), config.build(sensor()).expect("a kernel"), options).expect("an engine");
    let ingest = |call| {
        let mut session = engine.session("ingest", Mutex::lock).expect("the lock");
        let retired = session.ingest(call).expect("a call");
        drop(session);
        if let Some(retired) = retired {
            retired.reap(engine.publisher().pool());
        }
    };
    let (first, rest) = bytes.split_at(CALL * 13);
    calls(first, 1_000).for_each(ingest);
    measured(&mut || calls(rest, 1_000).for_each(ingest));
}

/// EVT 2.0 words: an event each, and now and then a TIME_HIGH.
fn evt2_words() -> Vec<u8> {
    let mut numbers = Numbers(11);
    let mut words: Vec<u32> = Vec::new();
    for i in 0..CALL as u32 {
        if i % 1_280 == 0 {
            words.push(0x8000_0000 | (i / 1_280));
        }
        let (x, y) = (numbers.below(346) as u32, numbers.below(260) as u32);
        words.push((numbers.below(2) as u32) << 28 | (i / 20 % 64) << 22 | x << 11 | y);
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// EVT 3.0 words: rows of single events and of vectors.
fn evt3_words() -> Vec<u8> {
    let mut numbers = Numbers(13);
    let mut words: Vec<u16> = vec![0x8000];
    for i in 0..CALL as u16 / 8 {
        words.push(0x6000 | (i % 4096));
        words.push(numbers.below(260) as u16);
        for _ in 0..4 {
            words.push(0x2000 | (numbers.below(2) as u16) << 11 | numbers.below(346) as u16);
        }
        words.push(0x3000 | numbers.below(300) as u16);
        words.push(0x4000 | numbers.below(4096) as u16);
        words.push(0x4000 | numbers.below(4096) as u16);
        words.push(0x5000 | numbers.below(256) as u16);
    }
    words.into_iter().flat_map(u16::to_le_bytes).collect()
}

fn decode(mut decoder: impl Decoder, bytes: &[u8]) {
    let mut out = EventBuffer::new();
    decoder.feed(bytes, &mut out).expect("good words");
    measured(&mut || {
        for piece in bytes.chunks(16 * 1024) {
            out.clear();
            decoder.feed(piece, &mut out).expect("good words");
            black_box(out.len());
        }
    });
}

/// A file of our own encoder's: its second half is counted.
fn read(format: &str, compression: Option<&str>) {
    let records = records(2, 0);
    let mut file = Vec::new();
    let mut encoder = codec::encoder(format, (346, 260), compression).expect("a format that is written");
    encoder.start(&mut file);
    encoder.encode(records.as_chunks().0, &mut file).expect("events that it holds");
    for codec::Patch { at, bytes } in encoder.finish(&mut file).expect("a whole file") {
        file[at as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    let head = codec::head(&file, true, None, Default::default()).expect("a good head").expect("a head");
    let (mut decoder, mut out, mut events) = (head.decoder, EventBuffer::new(), 0);
    let (first, rest) = file.split_at(file.len() / 2);
    let mut feed = |bytes: &[u8]| {
        for piece in bytes.chunks(16 * 1024) {
            out.clear();
            decoder.feed(piece, &mut out).expect("good bytes");
            events += black_box(out.len());
        }
    };
    feed(&first[head.length..]);
    measured(&mut || feed(rest));
    assert_eq!(events, 2 * CALL);
}

fn workloads() -> Vec<(String, Box<dyn Fn()>)> {
    let mut all: Vec<(String, Box<dyn Fn()>)> = Vec::new();
    for config in KERNELS {
        all.push((format!("accumulate/{}", config.name()), Box::new(move || accumulate(config, 0, CALL))));
    }
    let count = Config::EventCount;
    all.push(("accumulate/event_count, 10 % outside".into(), Box::new(move || accumulate(count, 100, CALL))));
    all.push(("accumulate/event_count, calls of 100".into(), Box::new(move || accumulate(count, 0, 100))));
    for i in [0, 2, 4, 5, 6] {
        let config = KERNELS[i];
        all.push((format!("publish/{}", config.name()), Box::new(move || publish(config))));
    }
    all.push((
        "decode/evt2".into(),
        Box::new(|| decode(Evt2Decoder::new(Default::default()), &evt2_words())),
    ));
    all.push((
        "decode/evt3".into(),
        Box::new(|| decode(Evt3Decoder::new(Default::default()), &evt3_words())),
    ));
    all.push(("decode/dat".into(), Box::new(|| read("dat", None))));
    for compression in ["none", "lz4"] {
        let name = format!("decode/aedat4, {compression}");
        all.push((name, Box::new(move || read("aedat4", Some(compression)))));
    }
    all
}

/// What the processor offers to code that asks, where code asks.
fn features() -> String {
    #[cfg(target_arch = "x86_64")]
    let found =
        [("avx2", is_x86_feature_detected!("avx2")), ("avx512f", is_x86_feature_detected!("avx512f"))];
    #[cfg(not(target_arch = "x86_64"))]
    let found: [(&str, bool); 0] = [];
    let names = found.iter().filter(|(_, has)| *has).map(|(name, _)| *name);
    [std::env::consts::ARCH].into_iter().chain(names).collect::<Vec<_>>().join(" ")
}

fn main() {
    // `cargo bench` adds `--bench`; that counts nothing.
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let all = workloads();
    match wanted {
        None => {
            println!("{}", features());
            all.iter().for_each(|(name, _)| println!("{name}"));
        }
        Some(wanted) => match all.iter().find(|(name, _)| *name == wanted) {
            Some((_, run)) => run(),
            None => {
                eprintln!("no workload is called {wanted:?}");
                std::process::exit(2);
            }
        },
    }
}
