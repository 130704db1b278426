//! Chunks compressed by Blosc (version 1), the usual filter of event datasets in HDF5.
//!
//! A chunk is a header of 16 bytes, the places of its blocks, and the blocks
//! (<https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst>). A block is compressed whole, or in
//! as many streams as an element has bytes, each behind its length; its bytes are shuffled: first all first
//! bytes of elements, then all second ones, and so on. LZ4 and Zstd are read here, with byte shuffle or none.
//! What is anything else, or not quite as it should be, is left to Blosc itself.

const HEADER: usize = 16;
/// A block is compressed in streams only if these have this many bytes, and there are no more than 16.
const MIN_STREAM: usize = 128;
const MAX_STREAMS: usize = 16;

/// What one thread decompresses with.
pub struct Scratch {
    block: Vec<u8>,
    zstd: Option<zstd_safe::DCtx<'static>>,
}

impl Scratch {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { block: Vec::new(), zstd: None }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Copy)]
enum Codec {
    Lz4,
    Zstd,
}

fn u32_at(bytes: &[u8], place: usize) -> Option<usize> {
    let bytes = bytes.get(place..)?.first_chunk::<4>()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}

/// Decompresses a chunk that fills `out` exactly. `None` if it does not, or if it is one for Blosc itself;
/// `out` is then not to be used.
pub fn decompress(chunk: &[u8], out: &mut [u8], scratch: &mut Scratch) -> Option<()> {
    let [version, _, flags, size, ..] = *chunk.first_chunk::<HEADER>()?;
    let (bytes, block, all) = (u32_at(chunk, 4)?, u32_at(chunk, 8)?, u32_at(chunk, 12)?);
    let size = usize::from(size);
    if version != 2 || bytes != out.len() || all != chunk.len() || block == 0 || size == 0 {
        return None;
    }
    if flags & 2 != 0 {
        // Stored as it is.
        out.copy_from_slice(chunk.get(HEADER..HEADER + bytes)?);
        return Some(());
    }
    let codec = match flags >> 5 {
        1 => Codec::Lz4,
        4 => Codec::Zstd,
        _ => return None,
    };
    let (shuffled, bit_shuffled) = (flags & 1 != 0 && size > 1, flags & 4 != 0);
    if bit_shuffled {
        return None;
    }
    for (i, out) in out.chunks_mut(block).enumerate() {
        let mut place = u32_at(chunk, HEADER + 4 * i)?;
        let whole = out.len() == block;
        let split = flags & 16 == 0
            && size <= MAX_STREAMS
            && block / size >= MIN_STREAM
            && whole
            && block % size == 0;
        let streams = if split { size } else { 1 };
        scratch.block.resize(out.len(), 0);
        let target: &mut [u8] = if shuffled { &mut scratch.block } else { out };
        for stream in target.chunks_mut(target.len() / streams) {
            let length = u32_at(chunk, place)?;
            let compressed = chunk.get(place + 4..)?.get(..length)?;
            place += 4 + length;
            if length == stream.len() {
                stream.copy_from_slice(compressed);
                continue;
            }
            let written = match codec {
                Codec::Lz4 => lz4_flex::block::decompress_into(compressed, stream).ok()?,
                Codec::Zstd => {
                    let context = match &mut scratch.zstd {
                        Some(context) => context,
                        none => none.insert(zstd_safe::DCtx::try_create()?),
                    };
                    context.decompress(stream, compressed).ok()?
                }
            };
            if written != stream.len() {
                return None;
            }
        }
        if shuffled {
            unshuffle(&scratch.block, size, out);
        }
    }
    Some(())
}

/// Puts the bytes of elements together. Bytes that are no whole element are at the end, as they are.
fn unshuffle(from: &[u8], size: usize, to: &mut [u8]) {
    match size {
        2 => unshuffle_by::<2>(from, to),
        4 => unshuffle_by::<4>(from, to),
        8 => unshuffle_by::<8>(from, to),
        _ => {
            let count = to.len() / size;
            for (i, element) in to.chunks_exact_mut(size).enumerate() {
                for (j, byte) in element.iter_mut().enumerate() {
                    *byte = from[j * count + i];
                }
            }
            let whole = count * size;
            to[whole..].copy_from_slice(&from[whole..]);
        }
    }
}

fn unshuffle_by<const N: usize>(from: &[u8], to: &mut [u8]) {
    let count = to.len() / N;
    let (elements, rest) = to.as_chunks_mut::<N>();
    let planes: [&[u8]; N] = std::array::from_fn(|j| &from[j * count..][..count]);
    for (i, element) in elements.iter_mut().enumerate() {
        *element = std::array::from_fn(|j| planes[j][i]);
    }
    rest.copy_from_slice(&from[count * N..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A chunk as Blosc lays it out: split streams for whole blocks, one stream for what is left over.
    fn chunk(data: &[u8], size: usize, block: usize, codec: u8, shuffle: bool, split: bool) -> Vec<u8> {
        let flags = codec << 5 | u8::from(shuffle) | u8::from(!split) << 4;
        let mut places = Vec::new();
        let mut body = Vec::new();
        let start = HEADER + 4 * data.len().div_ceil(block);
        for part in data.chunks(block) {
            places.extend(((start + body.len()) as u32).to_le_bytes());
            let mut bytes = part.to_vec();
            if shuffle && size > 1 {
                let count = part.len() / size;
                for i in 0..count * size {
                    bytes[i] = part[i % count * size + i / count];
                }
            }
            let streams = if split && part.len() == block && block / size >= 128 { size } else { 1 };
            for stream in bytes.chunks(part.len() / streams) {
                let packed = match codec {
                    1 => lz4_flex::block::compress(stream),
                    _ => {
                        let mut out = vec![0; zstd_safe::compress_bound(stream.len())];
                        let written = zstd_safe::compress(&mut out[..], stream, 3).unwrap();
                        out.truncate(written);
                        out
                    }
                };
                let packed = if packed.len() < stream.len() { packed } else { stream.to_vec() };
                body.extend((packed.len() as u32).to_le_bytes());
                body.extend(packed);
            }
        }
        let mut all = vec![2, 1, flags, size as u8];
        all.extend((data.len() as u32).to_le_bytes());
        all.extend((block as u32).to_le_bytes());
        all.extend(((start + body.len()) as u32).to_le_bytes());
        all.extend(places);
        all.extend(body);
        all
    }

    #[test]
    fn what_is_stored_as_it_is_comes_back() {
        let mut bytes = vec![2, 1, 2, 4];
        for number in [5u32, 5, 21] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(b"hello");
        let mut out = [0; 5];
        decompress(&bytes, &mut out, &mut Scratch::new()).unwrap();
        assert_eq!(&out, b"hello");
        // Another length, another version, another codec: not for us.
        assert!(decompress(&bytes, &mut [0; 6], &mut Scratch::new()).is_none());
        for (place, value) in [(0, 1), (2, 0), (2, 0x20), (3, 0), (8, 0), (12, 20)] {
            let mut other = bytes.clone();
            other[place] = value;
            assert!(decompress(&other, &mut out, &mut Scratch::new()).is_none(), "{place}");
        }
    }

    proptest! {
        #[test]
        fn what_is_compressed_comes_back(
            words in prop::collection::vec(0u32..70_000, 1..3_000),
            size in prop::sample::select(vec![1usize, 2, 3, 4, 8]),
            block in prop::sample::select(vec![96usize, 1_200, 4_800]),
            codec in prop::sample::select(vec![1u8, 4]),
            shuffle in any::<bool>(),
            split in any::<bool>(),
            cut in 0usize..8,
        ) {
            let mut data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            data.truncate(data.len() - cut % data.len());
            let packed = chunk(&data, size, block, codec, shuffle, split);
            let mut out = vec![0; data.len()];
            prop_assert!(decompress(&packed, &mut out, &mut Scratch::new()).is_some());
            prop_assert_eq!(&out, &data);
            // Cut short it is refused.
            prop_assert!(decompress(&packed[..packed.len() - 1], &mut out, &mut Scratch::new()).is_none());
        }

        #[test]
        fn no_bytes_do_harm(
            mut bytes in prop::collection::vec(any::<u8>(), 16..400),
            flags in prop::sample::select(vec![0x20u8, 0x21, 0x31, 0x80, 0x81, 0x91]),
            size in 1u8..9,
            block in 1u32..600,
            length in 1usize..600,
        ) {
            bytes[0] = 2;
            bytes[2] = flags;
            bytes[3] = size;
            bytes[4..8].copy_from_slice(&(length as u32).to_le_bytes());
            bytes[8..12].copy_from_slice(&block.to_le_bytes());
            let all = bytes.len() as u32;
            bytes[12..16].copy_from_slice(&all.to_le_bytes());
            if bytes.len() >= 24 {
                bytes[16..20].copy_from_slice(&20u32.to_le_bytes());
            }
            let _ = decompress(&bytes, &mut vec![0; length], &mut Scratch::new());
        }
    }
}
