//! Writes files to start fuzzing from to the folder `FRAMES2PY_SEEDS`, a folder per target: small recordings of every format
//! that is written, and by hand of those that are only read.
//!
//! A target itself, which does nothing else: what all code here is compiled to calls can only be linked in one.
#![no_main]

use std::path::Path;

use frames2py::codec::{Event, Record, WRITTEN, ecf, encoder};

/// Events in order of time: runs in a row, repeated times and gaps.
fn events(n: u64, seed: u64) -> Vec<Record> {
    let (mut t, mut state) = (0, seed);
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut events = Vec::new();
    while (events.len() as u64) < n {
        t += [0, 0, 1, 60, 5000][next(5) as usize];
        let (x, y, p) = (next(600), next(480), next(2));
        for i in 0..1 + next(14) {
            events.push(Event { t, x: (x + i) as u16, y: y as u16, p: p as u8 }.to_record());
        }
    }
    events
}

/// An AEDAT 3.1 file with a packet of polarity events.
fn aedat3() -> Vec<u8> {
    let mut file = b"#!AER-DAT3.1\r\n#Format: RAW\r\n#Source 1: DVXplorer\r\n#!END-HEADER\r\n".to_vec();
    for value in [1_i16, 1] {
        file.extend(value.to_le_bytes());
    }
    for value in [8_i32, 4, 1, 3, 3, 3] {
        file.extend(value.to_le_bytes());
    }
    for i in 0..3_u32 {
        file.extend((1 | (i % 2) << 1 | i << 2 | (100 + i) << 17).to_le_bytes());
        file.extend((1000 * i).to_le_bytes());
    }
    file
}

/// An AEDAT 2.0 file of a DAVIS.
fn aedat2() -> Vec<u8> {
    let mut file = b"#!AER-DAT2.0\r\n# AEChip: eu.seebetter.ini.chips.davis.DAVIS240C\r\n".to_vec();
    for i in 0..5_u32 {
        file.extend((i << 12 | i << 22 | (i % 2) << 11).to_be_bytes());
        file.extend((100 * i).to_be_bytes());
    }
    file
}

/// A chunk of Blosc with three blocks of literals or of one repeated byte, in one stream each or in four.
fn blosc(name: &str, codec: u8, size: u8) -> Vec<u8> {
    const BLOCK: usize = 600;
    let split = name.ends_with("split");
    let flags = codec << 5 | u8::from(size > 1) | u8::from(!split) << 4 | u8::from(name == "none") << 1;
    let data: Vec<u8> = (0..BLOCK * 2 + 90).map(|i| (i / 7) as u8).collect();
    let blocks = data.len().div_ceil(BLOCK);
    let (mut places, mut body) = (Vec::new(), Vec::new());
    for block in data.chunks(BLOCK) {
        places.extend(((16 + 4 * blocks + body.len()) as u32).to_le_bytes());
        let streams = if split && block.len() == BLOCK { usize::from(size) } else { 1 };
        for stream in block.chunks(block.len() / streams) {
            let packed = match codec {
                // LZ4: literals to the end, their number in the token and bytes of 255.
                1 => {
                    let more = stream.len() - 15;
                    let mut packed = vec![0xf0];
                    packed.extend(vec![255; more / 255]);
                    packed.push((more % 255) as u8);
                    packed.extend(stream);
                    packed
                }
                // Zstandard: a frame in one segment, its size in two bytes less 256, of one repeated byte.
                _ => {
                    let mut packed = vec![0x28, 0xb5, 0x2f, 0xfd, 0x60];
                    let size = stream.len() as u32;
                    if size < 256 {
                        packed[4] = 0x20;
                        packed.push(size as u8);
                    } else {
                        packed.extend((size as u16 - 256).to_le_bytes());
                    }
                    packed.extend(&(1 | 1 << 1 | size << 3).to_le_bytes()[..3]);
                    packed.push(stream[0]);
                    packed
                }
            };
            body.extend((packed.len() as u32).to_le_bytes());
            body.extend(packed);
        }
    }
    if name == "none" {
        (places, body) = (Vec::new(), data.clone());
    }
    let mut chunk = vec![2, 1, flags, size];
    for number in [data.len(), BLOCK, 16 + places.len() + body.len()] {
        chunk.extend((number as u32).to_le_bytes());
    }
    [chunk, places, body].concat()
}

/// A buffer of FlatBuffers behind its size: of the type `kind`, a table with a vector of `count` elements, which `bytes` are
/// or refer to.
fn buffer(kind: &[u8; 4], count: u32, bytes: &[u8]) -> Vec<u8> {
    let mut buffer = (28 + bytes.len() as u32).to_le_bytes().to_vec();
    buffer.extend([16, 0, 0, 0]);
    buffer.extend(kind);
    buffer.extend([0, 0, 6, 0, 8, 0, 4, 0, 6, 0, 0, 0, 4, 0, 0, 0]);
    buffer.extend(count.to_le_bytes());
    buffer.extend(bytes);
    buffer
}

/// A frame of Zstandard, which may reach back 2 to the `window` bytes: `bytes` as they are, then as many zeros.
fn zstd(window: u8, bytes: &[u8], mut zeros: usize) -> Vec<u8> {
    const BLOCK: usize = 128 << 10;
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (window - 10) << 3];
    // Blocks say in their low bits whether they are the last, then whether they are one byte that is repeated.
    let mut block = |repeated: bool, size: usize, bytes: &[u8], last: bool| {
        let head = u32::from(last) | u32::from(repeated) << 1 | (size as u32) << 3;
        frame.extend(&head.to_le_bytes()[..3]);
        frame.extend(bytes);
    };
    block(false, bytes.len(), bytes, zeros == 0);
    while zeros > 0 {
        let size = zeros.min(BLOCK);
        zeros -= size;
        block(true, size, &[0], zeros == 0);
    }
    frame
}

/// An AEDAT 4.0 file with events in stream 0, triggers in stream 1 and something else in stream 2.
fn aedat4(compression: i32, packets: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let stream = |id, kind| format!("<node name='{id}'><attr key='typeIdentifier'>{kind}</attr></node>");
    let streams = stream(0, "EVTS") + &stream(1, "TRIG") + &stream(2, "IMUS");
    let info = format!("<dv version='2.0'><node name='outInfo'>{streams}</node></dv>");
    let mut header = vec![24, 0, 0, 0];
    header.extend(b"IOHE");
    header.extend([0, 0, 0, 0, 0, 0, 10, 0, 24, 0, 4, 0, 12, 0, 8, 0, 10, 0, 0, 0]);
    header.extend(compression.to_le_bytes());
    header.extend([16, 0, 0, 0]);
    header.extend((-1_i64).to_le_bytes());
    header.extend([0; 4]);
    header.extend((info.len() as u32).to_le_bytes());
    header.extend(info.as_bytes());
    let mut file = b"#!AER-DAT4.0\r\n".to_vec();
    file.extend((header.len() as u32).to_le_bytes());
    file.extend(header);
    for (stream, bytes) in packets {
        file.extend(stream.to_le_bytes());
        file.extend((bytes.len() as u32).to_le_bytes());
        file.extend(bytes);
    }
    file
}

/// Packets for such a file: events, two triggers, something, and events again.
fn packets() -> Vec<(u32, Vec<u8>)> {
    let events: Vec<u8> =
        events(20, 7).into_iter().flat_map(|event| [&event[..], &[0; 3]].concat()).collect();
    let n = (events.len() / 16) as u32;
    // Places of the triggers, what their fields are, and for each where that is, the kind and the time.
    let mut triggers = Vec::new();
    triggers.extend(20_u32.to_le_bytes());
    triggers.extend(32_u32.to_le_bytes());
    triggers.extend([8, 0, 16, 0, 8, 0, 4, 0, 0, 0, 0, 0]);
    for (back, kind, t) in [(12_i32, 2, 500_u64), (28, 3, 900)] {
        triggers.extend(back.to_le_bytes());
        triggers.extend([kind, 0, 0, 0]);
        triggers.extend(t.to_le_bytes());
    }
    let events = buffer(b"EVTS", n, &events);
    vec![(0, events.clone()), (1, buffer(b"TRIG", 2, &triggers)), (2, vec![1; 9]), (0, events)]
}

/// An AEDAT 4.0 file of 3 KiB whose only packet grows to as much as is allowed, all of it events.
fn bomb(window: u8) -> Vec<u8> {
    let zeros = (64 << 20) - 32;
    let mut table = buffer(b"EVTS", zeros / 16, &[]);
    table[..4].copy_from_slice(&(zeros + 28).to_le_bytes());
    aedat4(3, &[(0, zstd(window, &table, zeros as usize))])
}

libfuzzer_sys::fuzz_target!(init: write().expect("a folder to write to"), |_data: &[u8]| {});

fn write() -> std::io::Result<()> {
    let folder = std::env::var_os("FRAMES2PY_SEEDS").expect("the folder to write to");
    let folder = Path::new(&folder);
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let folder = folder.join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)
    };
    for (round, n) in [0, 1, 40, 300].into_iter().enumerate() {
        let events = events(n, round as u64);
        for &format in WRITTEN {
            let target = match format {
                "csv" => "text",
                name if name.starts_with("evt") => "evt",
                name => name,
            };
            // The first byte says how the file is cut.
            let mut bytes = vec![[0x80, 1, 7, 0x85][round]];
            let mut encoder = encoder(format, (640, 480), None).expect("a format that is written");
            encoder.start(&mut bytes);
            encoder.encode(&events, &mut bytes).expect("events that it holds");
            for patch in encoder.finish(&mut bytes).expect("its end") {
                let at = 1 + patch.at as usize;
                bytes[at..at + patch.bytes.len()].copy_from_slice(&patch.bytes);
            }
            write(target, &format!("{format}-{n}"), &bytes)?;
        }
        let mut chunk = Vec::new();
        ecf::encode(&events, &mut chunk).expect("events that it holds");
        write("ecf", &n.to_string(), &chunk)?;
    }
    write("aedat", "3.1", &[&[5], &aedat3()[..]].concat())?;
    write("aedat", "2.0", &[&[5], &aedat2()[..]].concat())?;
    write("aedat4", "streams", &[&[0x85], &aedat4(0, &packets())[..]].concat())?;
    let packed: Vec<_> = packets().into_iter().map(|(stream, bytes)| (stream, zstd(20, &bytes, 0))).collect();
    write("aedat4", "zstd", &[&[0x85], &aedat4(3, &packed)[..]].concat())?;
    for (name, codec, size) in [("lz4", 1, 1), ("lz4-split", 1, 4), ("zstd", 4, 4), ("none", 1, 2)] {
        write("blosc", name, &blosc(name, codec, size))?;
    }
    // Files that want as much memory as they can get. They are run for themselves, as they take a while.
    write("bombs", "aedat4-zstd", &[&[5], &bomb(26)[..]].concat())?;
    write("bombs", "aedat4-window", &[&[5], &bomb(31)[..]].concat())
}
