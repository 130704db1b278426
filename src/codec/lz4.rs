//! LZ4 frames: <https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md> and, for the blocks, `lz4_Block_format.md` beside it.
//!
//! Decompressing is most of the work of reading AEDAT 4.0, and event data is unusual: sequences are short, two for
//! each event of 16 bytes, with one or two literals and a match of seven. The decoder here copies without
//! looking at lengths where a sequence is that short. Where the next sequence is, is known once a byte of this one was
//! read, and a processor waits for that more than it works. So two frames are decompressed at once, a sequence
//! of the one and a sequence of the other in turn: that takes a quarter less time.

use std::ops::Range;

/// Blocks of a frame reach back so far.
const WINDOW: usize = 64 * 1024;

/// Bytes behind the output that short copies may write to.
const SLACK: usize = 40;

pub const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

/// The frame header that is written: version 1, independent blocks of at most 256 KiB, no checksums but its own.
const HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x50, 0xfb];
const BLOCK: usize = 256 * 1024;

/// Decompresses a frame to the start of `out` and returns its length. `out` only grows, and its contents behind that are
/// anything. `None` if the frame is broken, incomplete, or longer than `limit`.
pub fn decompress(frame: &[u8], out: &mut Vec<u8>, limit: usize) -> Option<usize> {
    Frame::open(frame, out, limit)?.finish()
}

/// As [`decompress`], two frames at once, each with its own limit. A broken one does the other no harm.
pub fn decompress_two(
    frames: [&[u8]; 2],
    [out_a, out_b]: [&mut Vec<u8>; 2],
    limits: [usize; 2],
) -> [Option<usize>; 2] {
    let (a, b) = (Frame::open(frames[0], out_a, limits[0]), Frame::open(frames[1], out_b, limits[1]));
    let (mut a, mut b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (a, b) => return [a.and_then(Frame::finish), b.and_then(Frame::finish)],
    };
    loop {
        match (a.enter(), b.enter()) {
            (Some(true), Some(true)) => {}
            // One is at its end or broken: the other goes on alone.
            (a_enters, b_enters) => {
                return [a_enters.and_then(|_| a.finish()), b_enters.and_then(|_| b.finish())];
            }
        }
        let (mut lane_a, mut lane_b) = (a.lane(), b.lane());
        let (is_a, ended) = loop {
            let is_a = lane_a.short_in_turn(&mut lane_b);
            let ended = if is_a { lane_a.long() } else { lane_b.long() };
            if ended != Some(false) {
                break (is_a, ended);
            }
        };
        let (at_a, at_b) = (lane_a.at, lane_b.at);
        (a.at, b.at) = (at_a, at_b);
        if is_a { a.leave(ended) } else { b.leave(ended) }
    }
}

/// A frame that is being decompressed.
struct Frame<'a> {
    linked: bool,
    block_sum: bool,
    sum: bool,
    stated: Option<u64>,
    block_limit: usize,
    limit: usize,
    /// What is behind the current block.
    rest: &'a [u8],
    out: &'a mut Vec<u8>,
    /// Bytes of the blocks before.
    len: usize,
    /// The block that is being decompressed, which may grow to so much, to what may be repeated and itself in `out`.
    block: Option<(&'a [u8], usize, Range<usize>)>,
    at: Place,
    broken: bool,
    ended: bool,
}

/// How far a block is decompressed.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Of the block.
    read: usize,
    /// Of the output.
    written: usize,
}

impl<'a> Frame<'a> {
    fn open(frame: &'a [u8], out: &'a mut Vec<u8>, limit: usize) -> Option<Self> {
        let (&[flags, sizes], rest) = frame.strip_prefix(&MAGIC)?.split_first_chunk()?;
        let [independent, block_sum, sized, sum, dictionary] =
            [0x20, 0x10, 0x08, 0x04, 0x01].map(|bit| flags & bit != 0);
        // The version is 1; a dictionary would have to come from elsewhere.
        if flags >> 6 != 1 || dictionary {
            return None;
        }
        let block_limit = match sizes >> 4 & 7 {
            size @ 4..=7 => 1_usize << (8 + 2 * size),
            _ => return None,
        };
        let descriptor = 2 + if sized { 8 } else { 0 };
        let stated = if sized { Some(u64::from_le_bytes(*rest.first_chunk()?)) } else { None };
        let (descriptor, rest) = frame[4..].split_at_checked(descriptor)?;
        let (check, rest) = rest.split_first()?;
        if *check != (xxh32(descriptor) >> 8) as u8 {
            return None;
        }
        Some(Frame {
            linked: !independent,
            block_sum,
            sum,
            stated,
            block_limit,
            limit,
            rest,
            out,
            len: 0,
            block: None,
            at: Place::default(),
            broken: false,
            ended: false,
        })
    }

    /// Goes to the next block, if it is not in one, copying those that are not compressed. False at the frame's end,
    /// `None` if it is broken.
    fn enter(&mut self) -> Option<bool> {
        while self.block.is_none() && !self.ended {
            let entered = if self.broken { None } else { self.next() };
            self.broken = entered.is_none();
            entered?;
        }
        Some(!self.ended)
    }

    fn next(&mut self) -> Option<()> {
        let size = u32::from_le_bytes(*take(&mut self.rest)?);
        if size == 0 {
            self.ended = true;
            let checked =
                !self.sum || xxh32(&self.out[..self.len]) == u32::from_le_bytes(*take(&mut self.rest)?);
            let whole = self.stated.is_none_or(|stated| stated == self.len as u64);
            return (checked && whole).then_some(());
        }
        let (block, behind) = self.rest.split_at_checked((size & 0x7fff_ffff) as usize)?;
        self.rest = behind;
        if self.block_sum && xxh32(block) != u32::from_le_bytes(*take(&mut self.rest)?) {
            return None;
        }
        // A block of n bytes holds at most 255 n; what is claimed is not believed.
        let most =
            self.block_limit.min(block.len().saturating_mul(255)).min(self.limit.checked_sub(self.len)?);
        let room = self.len + most + SLACK;
        if self.out.len() < room {
            self.out.resize(room, 0);
        }
        if size >> 31 == 1 {
            self.out[self.len..self.len + most].get_mut(..block.len())?.copy_from_slice(block);
            self.len += block.len();
        } else {
            let start = if self.linked { self.len - self.len.min(WINDOW) } else { self.len };
            self.at = Place { read: 0, written: self.len - start };
            self.block = Some((block, most, start..room));
        }
        Some(())
    }

    /// The block that it is in.
    fn lane(&mut self) -> Lane<'_> {
        match &self.block {
            Some((block, _, place)) => Lane { block, out: &mut self.out[place.clone()], at: self.at },
            None => Lane { block: &[], out: &mut [], at: self.at },
        }
    }

    /// Takes what [`Lane::long`] says of the end of the block that it is in.
    fn leave(&mut self, ended: Option<bool>) {
        if let (Some((_, most, place)), Some(_)) = (self.block.take(), ended) {
            let end = place.start + self.at.written;
            self.broken = end - self.len > most;
            self.len = end;
        } else {
            self.broken = true;
        }
    }

    /// What is left of the frame. Returns its length.
    fn finish(mut self) -> Option<usize> {
        while self.enter()? {
            let mut lane = self.lane();
            let ended = loop {
                lane.short_alone();
                let ended = lane.long();
                if ended != Some(false) {
                    break ended;
                }
            };
            self.at = lane.at;
            self.leave(ended);
        }
        Some(self.len)
    }
}

fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8; 4]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

/// A block on its way to `out`, where it may repeat what is there already. It may write anything behind what is
/// decompressed.
struct Lane<'a> {
    block: &'a [u8],
    out: &'a mut [u8],
    at: Place,
}

impl Lane<'_> {
    /// Goes on as long as sequences are short.
    fn short_alone(&mut self) {
        let mut short = Short::new(self);
        while short.next() {}
        let left = short.left();
        self.go_to(left);
    }

    /// Goes on in turn with another one, as long as sequences are short. Says whether the one at which it ends is here.
    fn short_in_turn(&mut self, other: &mut Lane<'_>) -> bool {
        let (mut a, mut b) = (Short::new(self), Short::new(other));
        let here = loop {
            if !a.next() {
                break true;
            }
            if !b.next() {
                break false;
            }
        };
        let (left_a, left_b) = (a.left(), b.left());
        self.go_to(left_a);
        other.go_to(left_b);
        here
    }

    fn go_to(&mut self, (left, written): (usize, usize)) {
        self.at = Place { read: self.block.len() - left, written };
    }

    /// Decompresses a sequence. True if it was the block's last, `None` if the block is broken.
    fn long(&mut self) -> Option<bool> {
        let (block, out) = (self.block, &mut *self.out);
        let Place { read: mut ip, written: mut op } = self.at;
        let token = usize::from(*block.get(ip)?);
        ip += 1;
        let literals = length(token >> 4, block, &mut ip)?;
        let (from, to) = (ip, op);
        ip = ip.checked_add(literals)?;
        op = op.checked_add(literals)?;
        out.get_mut(to..op)?.copy_from_slice(block.get(from..ip)?);
        if ip == block.len() {
            self.at = Place { read: ip, written: op };
            return Some(true);
        }
        let offset = usize::from(u16::from_le_bytes(*block.get(ip..)?.first_chunk()?));
        ip += 2;
        let length = length(token & 15, block, &mut ip)?.checked_add(4)?;
        if offset == 0 || offset > op || length > out.len() - op {
            return None;
        }
        if offset >= length {
            out.copy_within(op - offset..op - offset + length, op);
        } else {
            // The match runs into what it makes: a pattern. Each round doubles what there is of it.
            let (start, end) = (op - offset, op + length);
            let mut done = op;
            while done < end {
                let n = (done - start).min(end - done);
                out.copy_within(start..start + n, done);
                done += n;
            }
        }
        self.at = Place { read: ip, written: op + length };
        Some(false)
    }
}

/// Short sequences of a block, in values that stay in registers.
struct Short<'a> {
    rest: &'a [u8],
    out: &'a mut [u8],
    written: usize,
}

impl<'a> Short<'a> {
    fn new(lane: &'a mut Lane<'_>) -> Self {
        Short { rest: &lane.block[lane.at.read..], out: lane.out, written: lane.at.written }
    }

    /// The bytes that are left of the block, and those written.
    fn left(&self) -> (usize, usize) {
        (self.rest.len(), self.written)
    }

    /// Decompresses a sequence, if it is a short one, and not close to an end.
    #[inline(always)]
    fn next(&mut self) -> bool {
        let Some(bytes) = self.rest.first_chunk::<17>() else { return false };
        let token = usize::from(bytes[0]);
        let (literals, more) = (token >> 4, token & 15);
        if literals == 15 || more == 15 {
            return false;
        }
        let offset = usize::from(u16::from_le_bytes([bytes[1 + literals], bytes[2 + literals]]));
        let to = self.written + literals;
        // A pattern of less than 8 bytes is repeated byte by byte.
        if offset < 8 || offset > to {
            return false;
        }
        let Some(out) = self.out.get_mut(self.written..).and_then(|out| out.first_chunk_mut::<38>()) else {
            return false;
        };
        out[..16].copy_from_slice(&bytes[1..]);
        let Some(out) = self.out.get_mut(to - offset..).filter(|out| out.len() >= offset + 24) else {
            return false;
        };
        move_8(out, 0, offset);
        if more > 4 {
            move_8(out, 8, offset + 8);
            if more > 12 {
                move_8(out, 16, offset + 16);
            }
        }
        self.rest = &self.rest[literals + 3..];
        self.written = to + more + 4;
        true
    }
}

#[inline(always)]
fn move_8(out: &mut [u8], from: usize, to: usize) {
    let mut eight = [0; 8];
    eight.copy_from_slice(&out[from..from + 8]);
    out[to..to + 8].copy_from_slice(&eight);
}

/// A length of which the token has `start`; 15 is continued in bytes of its own.
fn length(start: usize, block: &[u8], ip: &mut usize) -> Option<usize> {
    let mut length = start;
    if start == 15 {
        loop {
            let byte = *block.get(*ip)?;
            *ip += 1;
            length = length.checked_add(usize::from(byte))?;
            if byte != 255 {
                break;
            }
        }
    }
    Some(length)
}

/// Appends a frame that holds `bytes`. The same bytes always make the same frame.
pub fn compress(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(HEADER);
    for block in bytes.chunks(BLOCK) {
        let start = out.len();
        out.resize(start + 4 + lz4_flex::block::get_maximum_output_size(block.len()), 0);
        let packed = lz4_flex::block::compress_into(block, &mut out[start + 4..]).unwrap_or(usize::MAX);
        let size = if packed < block.len() {
            packed as u32
        } else {
            out[start + 4..][..block.len()].copy_from_slice(block);
            block.len() as u32 | 1 << 31
        };
        out[start..start + 4].copy_from_slice(&size.to_le_bytes());
        out.truncate(start + 4 + (size & 0x7fff_ffff) as usize);
    }
    out.extend([0; 4]);
}

/// The checksum of LZ4 frames: XXH32 with the seed 0, <https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>.
fn xxh32(bytes: &[u8]) -> u32 {
    const P: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];
    let (stripes, rest) = bytes.as_chunks::<16>();
    let mut hash = P[4];
    if !stripes.is_empty() {
        let mut lanes = [P[0].wrapping_add(P[1]), P[1], 0, 0_u32.wrapping_sub(P[0])];
        for stripe in stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks().0) {
                let mixed = lane.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(P[1]));
                *lane = mixed.rotate_left(13).wrapping_mul(P[0]);
            }
        }
        let [a, b, c, d] = lanes;
        hash = a.rotate_left(1).wrapping_add(b.rotate_left(7));
        hash = hash.wrapping_add(c.rotate_left(12)).wrapping_add(d.rotate_left(18));
    }
    hash = hash.wrapping_add(bytes.len() as u32);
    let (words, rest) = rest.as_chunks();
    for word in words {
        hash = hash.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(P[2]));
        hash = hash.rotate_left(17).wrapping_mul(P[3]);
    }
    for &byte in rest {
        hash = hash.wrapping_add(u32::from(byte).wrapping_mul(P[4])).rotate_left(11).wrapping_mul(P[0]);
    }
    hash = (hash ^ hash >> 15).wrapping_mul(P[1]);
    hash = (hash ^ hash >> 13).wrapping_mul(P[2]);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
    use proptest::prelude::*;

    use super::*;

    fn decompressed(frame: &[u8], limit: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let len = decompress(frame, &mut out, limit)?;
        out.truncate(len);
        Some(out)
    }

    fn framed(bytes: &[u8], info: FrameInfo) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Bytes with repetitions near and far, some of them patterns that run into themselves.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| (bytes, 0, 0)),
            (1_usize..400, 0_usize..300).prop_map(|(back, n)| (Vec::new(), back, n)),
            (1_usize..20, 0_usize..40).prop_map(|(back, n)| (Vec::new(), back, n)),
            Just((Vec::new(), 16, 7)),
            (60_000_usize..70_000, 20_000_usize..70_000).prop_map(|(back, n)| (Vec::new(), back, n)),
        ];
        prop::collection::vec(piece, 0..60).prop_map(|pieces| {
            let mut all = Vec::new();
            for (bytes, back, n) in pieces {
                all.extend(bytes);
                if back > 0 && all.len() >= back {
                    let start = all.len() - back;
                    for i in 0..n {
                        all.push(all[start + i]);
                    }
                }
            }
            all
        })
    }

    proptest! {
        #[test]
        fn frames_of_another_encoder_are_read(
            bytes in bytes(), linked in any::<bool>(), size in 0..3, sums in any::<[bool; 2]>(), sized in any::<bool>(),
        ) {
            let mode = if linked { BlockMode::Linked } else { BlockMode::Independent };
            let size = [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB][size as usize];
            let info = FrameInfo::new().block_mode(mode).block_size(size).block_checksums(sums[0])
                .content_checksum(sums[1]).content_size(sized.then_some(bytes.len() as u64));
            let frame = framed(&bytes, info);
            prop_assert_eq!(decompressed(&frame, bytes.len()), Some(bytes.clone()));
            if let Some(less) = bytes.len().checked_sub(1) {
                prop_assert_eq!(decompressed(&frame, less), None);
            }
        }

        #[test]
        fn two_frames_at_once_are_as_one_and_one(
            contents in prop::array::uniform2(bytes()), linked in any::<[bool; 2]>(), less in any::<[bool; 2]>(),
            change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())), cut in any::<prop::sample::Index>(),
        ) {
            let mut frames = [0, 1].map(|i| {
                let mode = if linked[i] { BlockMode::Linked } else { BlockMode::Independent };
                framed(&contents[i], FrameInfo::new().block_mode(mode).block_size(BlockSize::Max64KB))
            });
            if let Some((at, value)) = change {
                let at = at.index(frames[0].len());
                frames[0][at] = value;
                let whole = frames[1].len();
                frames[1].truncate(cut.index(2 * whole));
            }
            let limits = [0, 1].map(|i| contents[i].len().saturating_sub(less[i].into()));
            let (mut a, mut b) = (Vec::new(), Vec::new());
            let lens = decompress_two([&frames[0], &frames[1]], [&mut a, &mut b], limits);
            for (i, mut out) in [a, b].into_iter().enumerate() {
                let two = lens[i].map(|len| { out.truncate(len); out });
                prop_assert_eq!(two, decompressed(&frames[i], limits[i]));
            }
        }

        #[test]
        fn frames_are_read_by_another_decoder(bytes in bytes()) {
            let mut frame = Vec::new();
            compress(&bytes, &mut frame);
            let mut read = Vec::new();
            FrameDecoder::new(&frame[..]).read_to_end(&mut read).unwrap();
            prop_assert_eq!(&read, &bytes);
            prop_assert_eq!(decompressed(&frame, bytes.len()), Some(bytes));
        }

        #[test]
        fn broken_frames_end_at_their_limit(
            bytes in bytes(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut frame = framed(&bytes, FrameInfo::new().block_mode(BlockMode::Linked));
            let whole = frame.len();
            prop_assert_eq!(decompressed(&frame[..cut.index(whole)], usize::MAX), None);
            for (at, value) in changes {
                let at = 7 + at.index(whole - 7);
                frame[at] = value;
            }
            let mut out = Vec::new();
            if let Some(len) = decompress(&frame, &mut out, 1000) {
                prop_assert!(len <= 1000);
            }
            prop_assert!(out.len() <= 1000 + SLACK);
        }
    }

    #[test]
    fn what_it_writes_has_a_valid_header() {
        assert_eq!((xxh32(&HEADER[4..6]) >> 8) as u8, HEADER[6]);
    }

    #[test]
    fn checksums_are_checked() {
        let info = FrameInfo::new().block_checksums(true).content_checksum(true);
        let frame = framed(b"some bytes, some bytes, some bytes", info);
        for at in 4..frame.len() {
            let mut frame = frame.clone();
            frame[at] ^= 0x40;
            assert_eq!(decompressed(&frame, 1 << 20), None, "{at}");
        }
    }

    #[test]
    fn memory_is_taken_for_what_a_block_can_hold() {
        // A block of 4 MiB by its header, of two bytes in truth.
        let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x70];
        frame.push((xxh32(&frame[4..]) >> 8) as u8);
        frame.extend([2, 0, 0, 0, 0x10, 7, 0, 0, 0, 0]);
        let mut out = Vec::new();
        assert_eq!(decompress(&frame, &mut out, usize::MAX - 100), Some(1));
        assert!(out.len() < 1000);
    }
}
