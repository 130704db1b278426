//! Writes files to start fuzzing from, a folder per target: small recordings of every format that is written, and by hand of
//! those that are only read.

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
        file.extend((1 | i % 2 << 1 | i << 2 | (100 + i) << 17).to_le_bytes());
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

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).expect("the folder to write to");
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
            let mut encoder = encoder(format, (640, 480)).expect("a format that is written");
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
    write("aedat", "2.0", &[&[5], &aedat2()[..]].concat())
}
