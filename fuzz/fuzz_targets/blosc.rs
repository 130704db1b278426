#![no_main]

use frames2py::codec::blosc::{Scratch, decompress};

libfuzzer_sys::fuzz_target!(|chunk: &[u8]| {
    // A chunk says how much it holds; the caller knows it beforehand.
    let Some(size) = chunk.get(4..8).and_then(|size| size.first_chunk()) else { return };
    let size = u32::from_le_bytes(*size).min(1 << 20) as usize;
    let (mut out, mut again) = (vec![0; size], vec![0xff; size]);
    let mut scratch = Scratch::new();
    if decompress(chunk, &mut out, &mut scratch).is_some() {
        // Every byte is written, and what was decompressed before plays no part.
        decompress(chunk, &mut again, &mut scratch).unwrap();
        assert_eq!(out, again);
    }
});
