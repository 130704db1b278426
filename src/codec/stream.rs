//! A file's events, in batches, with bounded memory.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;

use super::{Decoder, Error, EventBuffer, Record, Report, SharedReport, SharedTriggers};

/// Bytes asked for in one read: enough that the calls cost little, and few enough to stay in the second cache.
const READ: usize = 64 * 1024;

/// Bytes decoded in one go. The events they usually hold stay in the nearest cache until they are moved
/// to their batch; at worst (EVT 3.0 vectors with every bit set) they are 0.3 MB.
const FEED: usize = 4096;

/// So many bytes that need not be read are worth a seek.
const SKIP: u64 = 16 * 1024;

/// Bytes asked for behind bytes that were passed over: the next may come soon.
const READ_BEHIND_SKIP: usize = 16 * 1024;

/// Batches of at least so many events are decoded in place. Of smaller ones a block makes several.
const DIRECT: usize = 1024;

/// Room for events beyond those asked for, so that a batch seldom has to grow for its last block.
pub(super) const BEYOND: usize = 4096;

/// How a call of [`Stream::fill`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The batch has what was asked for.
    Full,
    /// The reads allowed were made; there may be more.
    Paused,
    /// No event follows those in the batch before the end of the file or an error, which the next call
    /// returns.
    End,
}

/// Decodes the body of a file, a batch at a time.
pub struct Stream<R> {
    input: R,
    decoder: Box<dyn Decoder>,
    /// What was read, of which `fed..filled` is still to be decoded.
    bytes: Vec<u8>,
    fed: usize,
    filled: usize,
    /// What was decoded, of which the first `moved` events are in batches already.
    events: EventBuffer,
    moved: usize,
    error: Option<Error>,
    finished: bool,
    /// Whether decoders may hold events back: what is read has an end, and waiting for more of it costs nothing.
    ahead: bool,
    /// Whether the decoder may hold some, whether they are being released, and whether that is to the last.
    holding: bool,
    releasing: bool,
    to_the_last: bool,
    /// What is told once they are.
    failed: Option<Error>,
    /// How bytes are passed over that need not be read, and whether that was just done.
    pass: Option<Pass<R>>,
    passed: bool,
    /// An end of the input, in its own bytes.
    end: u64,
    /// The place in the file of the byte that is fed next.
    offset: u64,
    strict: bool,
    /// What was decoded so far.
    decoded: Counts,
    report: SharedReport,
    triggers: SharedTriggers,
}

/// Passes over so many bytes, or those that there are, and returns their number. The last argument is an end that is
/// known; there may be more by now.
type Pass<R> = fn(&mut R, u64, &mut u64) -> io::Result<u64>;

#[derive(Clone, Copy, Default, PartialEq)]
struct Counts {
    events: u64,
    bytes: u64,
}

impl<R: Read> Stream<R> {
    /// A stream of what `decoder` makes of `ahead`, bytes that were read already, and then of `input`. `offset` is the
    /// place of `ahead` in the file. A strict stream ends at the first fault.
    pub fn new(decoder: Box<dyn Decoder>, mut ahead: Vec<u8>, input: R, offset: u64, strict: bool) -> Self {
        let filled = ahead.len();
        ahead.resize(filled.max(READ), 0);
        Stream {
            input,
            decoder,
            bytes: ahead,
            fed: 0,
            filled,
            events: EventBuffer::new(),
            moved: 0,
            error: None,
            finished: false,
            ahead: false,
            holding: false,
            releasing: false,
            to_the_last: false,
            failed: None,
            pass: None,
            passed: false,
            end: 0,
            offset,
            strict,
            decoded: Counts::default(),
            report: SharedReport::default(),
            triggers: SharedTriggers::default(),
        }
    }

    /// Says that the input is a file with an end: more of it may be decoded at once than was asked for.
    pub fn decode_ahead(&mut self) {
        self.ahead = true;
    }

    /// As [`Decoder::stay_on_one_thread`].
    pub fn stay_on_one_thread(&mut self) {
        self.decoder.stay_on_one_thread();
    }

    /// What was met so far; set anew by each [`fill`](Self::fill).
    pub fn report(&self) -> &SharedReport {
        &self.report
    }

    /// The triggers met so far, where the decoder collects them.
    pub fn triggers(&self) -> &SharedTriggers {
        &self.triggers
    }

    /// Adds events to `batch` until it has `limit` of them, making at most `reads` reads.
    ///
    /// # Errors
    /// What is wrong with the file, once all events before it are in batches; from then on the stream is
    /// at its end. `ErrorKind::Interrupted` (a signal) comes at once and loses nothing: call again.
    pub fn fill(&mut self, batch: &mut Vec<Record>, limit: usize, reads: usize) -> Result<Fill, Error> {
        let before = self.decoded;
        let filled = self.fill_up(batch, limit, reads);
        if self.decoded != before || self.finished {
            let Counts { events, bytes } = self.decoded;
            self.report.set(Report { events, bytes, ..self.decoder.report() });
        }
        filled
    }

    fn fill_up(&mut self, batch: &mut Vec<Record>, limit: usize, mut reads: usize) -> Result<Fill, Error> {
        loop {
            let events = &self.events.records()[self.moved..];
            let some = &events[..events.len().min(limit.saturating_sub(batch.len()))];
            reserve(batch, some.len())?;
            batch.extend_from_slice(some);
            self.moved += some.len();
            if batch.len() >= limit {
                return Ok(Fill::Full);
            }
            if self.releasing {
                if limit >= DIRECT {
                    self.release_into(batch, limit)?;
                } else {
                    self.release();
                }
                continue;
            }
            if self.error.is_none() {
                self.error = self.failed.take();
            }
            if self.error.is_some() && batch.is_empty() {
                self.finished = true;
                return Err(self.error.take().unwrap());
            }
            if self.error.is_some() || (self.finished && self.moved == self.events.len()) {
                return Ok(Fill::End);
            }
            if self.fed < self.filled {
                // The events of a packet come all at once, more than a batch has room for: its memory would be moved.
                if limit >= DIRECT && !self.strict && self.decoder.word() > 0 {
                    self.decode_into(batch, limit)?;
                } else if self.ahead && self.decoder.holds() {
                    self.hold();
                } else {
                    self.decode();
                }
                continue;
            }
            if reads == 0 {
                return Ok(Fill::Paused);
            }
            reads -= 1;
            let most = if std::mem::take(&mut self.passed) { READ_BEHIND_SKIP } else { self.bytes.len() };
            match self.input.read(&mut self.bytes[..most]) {
                // The end is met again behind what is held.
                Ok(0) if self.holding => self.release_all(),
                Ok(0) => self.finish(),
                Ok(count) => (self.fed, self.filled) = (0, count),
                Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error.into()),
                Err(error) => {
                    self.failed = Some(error.into());
                    if self.holding {
                        self.release_all();
                    }
                }
            }
        }
    }
}

impl<R> Stream<R> {
    /// Decodes the next block.
    fn decode(&mut self) {
        let block = self.fed..self.filled.min(self.fed + FEED);
        self.fed = block.end;
        self.events.clear();
        self.moved = 0;
        self.error = if self.strict && self.decoder.word() > 0 {
            self.decode_strictly(block.clone()).err()
        } else {
            self.decoder.feed(&self.bytes[block.clone()], &mut self.events).err()
        };
        self.offset += block.len() as u64;
        self.decoded.bytes += block.len() as u64;
        self.decoded.events += self.events.len() as u64;
        self.triggers.append(&mut self.events.triggers);
    }

    /// Hands all that was read to the decoder, which decodes it when it has enough.
    fn hold(&mut self) {
        let block = std::mem::replace(&mut self.fed, self.filled)..self.filled;
        self.holding = true;
        self.releasing = self.decoder.hold(&self.bytes[block.clone()]);
        self.offset += block.len() as u64;
        self.decoded.bytes += block.len() as u64;
        let more = self.decoder.skippable();
        if let (Some(pass), SKIP..) = (self.pass, more) {
            match pass(&mut self.input, more, &mut self.end) {
                Ok(passed) => {
                    self.decoder.skip(passed);
                    self.offset += passed;
                    self.decoded.bytes += passed;
                    self.passed = true;
                }
                Err(error) => {
                    self.failed = Some(error.into());
                    self.release_all();
                }
            }
        }
    }

    /// Nothing follows for now: what the decoder holds is to come out, to the last.
    fn release_all(&mut self) {
        (self.releasing, self.to_the_last) = (true, true);
    }

    /// Takes more of what the decoder holds.
    fn release(&mut self) {
        self.events.clear();
        self.moved = 0;
        let released = self.decoder.release(&mut self.events, BEYOND, self.to_the_last);
        self.decoded.events += self.events.len() as u64;
        self.triggers.append(&mut self.events.triggers);
        self.released(released);
    }

    /// Takes more of what the decoder holds straight into `batch`, which has fewer than `limit`.
    fn release_into(&mut self, batch: &mut Vec<Record>, limit: usize) -> Result<(), Error> {
        let before = batch.len();
        let most = (limit - before).min(BEYOND);
        reserve(batch, most)?;
        let mut out = EventBuffer::behind(std::mem::take(batch));
        let released = self.decoder.release(&mut out, most, self.to_the_last);
        self.take_out(out, before, batch, limit);
        self.released(released);
        Ok(())
    }

    fn released(&mut self, released: Result<bool, Error>) {
        self.releasing = matches!(released, Ok(true));
        if !self.releasing && std::mem::take(&mut self.to_the_last) {
            self.holding = false;
        }
        if let Err(error) = released {
            // What comes first in the file is told.
            (self.error, self.failed) = (Some(error), None);
        }
    }

    /// Decodes the next block straight into `batch`. What is more than `limit` is moved to the events that wait.
    fn decode_into(&mut self, batch: &mut Vec<Record>, limit: usize) -> Result<(), Error> {
        reserve(batch, BEYOND)?;
        let block = self.fed..self.filled.min(self.fed + FEED);
        self.fed = block.end;
        let before = batch.len();
        let mut out = EventBuffer::behind(std::mem::take(batch));
        self.error = self.decoder.feed(&self.bytes[block.clone()], &mut out).err();
        self.offset += block.len() as u64;
        self.decoded.bytes += block.len() as u64;
        self.take_out(out, before, batch, limit);
        Ok(())
    }

    /// Takes `batch` out of the buffer that was made behind it when it had `before` events. What is more than `limit` is moved to
    /// the events that wait.
    fn take_out(&mut self, mut out: EventBuffer, before: usize, batch: &mut Vec<Record>, limit: usize) {
        self.decoded.events += (out.len() - before) as u64;
        self.triggers.append(&mut out.triggers);
        *batch = out.into_batch();
        self.events.clear();
        self.moved = 0;
        if batch.len() > limit {
            self.events.append(&batch[limit..]);
            batch.truncate(limit);
        }
    }

    /// Decodes a block up to its first fault. Where that is, is found by decoding ever fewer bytes from a copy of the
    /// decoder, so that decoders need not know of it.
    fn decode_strictly(&mut self, block: Range<usize>) -> Result<(), Error> {
        let block = &self.bytes[block];
        let before = self.decoder.faults();
        let fork = self.decoder.fork();
        let fed = self.decoder.feed(block, &mut self.events);
        if fed.is_ok() && self.decoder.faults() == before {
            return Ok(());
        }
        let try_bytes = |n: usize| {
            let (mut decoder, mut events) = (fork.fork(), EventBuffer::new());
            let fed = decoder.feed(&block[..n], &mut events);
            (fed, decoder, events)
        };
        let (mut good, mut bad) = (0, block.len());
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            match try_bytes(middle) {
                (Ok(()), decoder, _) if decoder.faults() == before => good = middle,
                _ => bad = middle,
            }
        }
        let (fed, after, _) = try_bytes(bad);
        let what = match fed {
            Ok(()) => fork.report().fault_since(&after.report()),
            Err(error) => error.to_string(),
        };
        // All bytes but the last one of the word at fault: it is not decoded.
        (_, self.decoder, self.events) = try_bytes(bad - 1);
        let word = (self.offset + bad as u64).saturating_sub(self.decoder.word() as u64);
        Err(Error::Malformed(format!("{what}, at byte {word} of the file")))
    }

    /// The input has ended.
    fn finish(&mut self) {
        self.finished = true;
        self.events.clear();
        self.moved = 0;
        self.error = self.decoder.finish(&mut self.events).err();
        self.decoded.events += self.events.len() as u64;
        self.triggers.append(&mut self.events.triggers);
        if self.strict && self.error.is_none() && self.decoder.word() > 0 {
            let report = self.decoder.report();
            if report.truncated_tail > 0 {
                let at = self.offset - report.truncated_tail;
                let what = Report { truncated_tail: 0, ..report.clone() }.fault_since(&report);
                self.error = Some(Error::Malformed(format!("{what}, at byte {at} of the file")));
            }
        }
    }
}

impl<R: Read + Seek> Stream<R> {
    /// Seeks over what need not be read, in a file with an end.
    pub fn skip_by_seeking(&mut self) {
        self.pass = Some(|input, n, end| {
            let after = input.seek(SeekFrom::Current(n.min(i64::MAX as u64) as i64))?;
            if after <= *end {
                return Ok(n);
            }
            *end = input.seek(SeekFrom::End(0))?;
            if after <= *end {
                return input.seek(SeekFrom::Start(after)).map(|_| n);
            }
            // It was at `after - n`, and is at the end now.
            Ok(end.saturating_sub(after - n))
        });
    }

    /// Starts again at the byte `start` of the input, with a decoder that has seen nothing.
    ///
    /// # Errors
    /// The input cannot be read from there.
    pub fn restart(&mut self, decoder: Box<dyn Decoder>, start: u64) -> Result<(), Error> {
        self.input.seek(SeekFrom::Start(start))?;
        self.decoder = decoder;
        self.offset = start;
        self.decoded = Counts::default();
        (self.fed, self.filled, self.moved) = (0, 0, 0);
        self.events.clear();
        (self.error, self.failed) = (None, None);
        (self.holding, self.releasing, self.to_the_last, self.passed) = (false, false, false, false);
        self.finished = false;
        Ok(())
    }
}

/// Makes room in a batch for so many more events, growing it in large steps.
pub fn reserve(batch: &mut Vec<Record>, more: usize) -> Result<(), Error> {
    batch.try_reserve(more).map_err(|_| Error::OutOfMemory { events: batch.len().saturating_add(more) })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;

    use super::*;
    use crate::codec::{Event, Evt2Decoder, Evt3Decoder, Options};

    /// What reads return, one after the other; then the end.
    struct Script(VecDeque<io::Result<Vec<u8>>>);

    impl Read for Script {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let Some(next) = self.0.pop_front() else {
                return Ok(0);
            };
            let bytes = next?;
            out[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        }
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A TIME_HIGH of 0 and `n` EVT 2.0 events whose x counts from 0.
    fn counting(n: u32) -> Vec<u8> {
        words(&std::iter::once(0x8000_0000).chain((0..n).map(|i| i << 11)).collect::<Vec<_>>())
    }

    fn columns(batch: &[Record]) -> Vec<u32> {
        batch.iter().map(|record| Event::from_record(record).x.into()).collect()
    }

    #[test]
    fn batches_have_their_size_whatever_the_reads() {
        let bytes = counting(2000);
        for (limit, step) in [(1, 999), (7, 1), (700, 13), (2000, 5000), (5000, 4096)] {
            let reads = bytes[5..].chunks(step).map(|piece| Ok(piece.to_vec())).collect();
            let mut stream = Stream::new(
                Box::new(Evt2Decoder::new(Options::default())),
                bytes[..5].to_vec(),
                Script(reads),
                0,
                false,
            );
            let mut all = Vec::new();
            loop {
                let mut batch = Vec::new();
                let fill = stream.fill(&mut batch, limit, usize::MAX).unwrap();
                all.extend(columns(&batch));
                match fill {
                    Fill::Full => assert_eq!(batch.len(), limit),
                    Fill::End => break assert!(batch.len() < limit),
                    Fill::Paused => unreachable!(),
                }
            }
            assert_eq!(all, (0..2000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_more_reads_are_made_than_allowed() {
        let bytes = counting(3);
        let reads = bytes.chunks(4).map(|piece| Ok(piece.to_vec())).collect();
        let mut stream =
            Stream::new(Box::new(Evt2Decoder::new(Options::default())), Vec::new(), Script(reads), 0, false);
        let mut batch = Vec::new();
        assert_eq!(stream.fill(&mut batch, 10, 0).unwrap(), Fill::Paused);
        assert_eq!(stream.fill(&mut batch, 10, 2).unwrap(), Fill::Paused);
        assert_eq!(columns(&batch), [0]);
        assert_eq!(stream.fill(&mut batch, 10, 2).unwrap(), Fill::Paused);
        assert_eq!(stream.fill(&mut batch, 10, 1).unwrap(), Fill::End);
        assert_eq!(columns(&batch), [0, 1, 2]);
    }

    #[test]
    fn a_signal_comes_at_once_and_loses_nothing() {
        let bytes = counting(3);
        let signal = Err(ErrorKind::Interrupted.into());
        let reads = [Ok(bytes[..10].to_vec()), signal, Ok(bytes[10..].to_vec())].into();
        let mut stream =
            Stream::new(Box::new(Evt2Decoder::new(Options::default())), Vec::new(), Script(reads), 0, false);
        let mut batch = Vec::new();
        assert!(matches!(stream.fill(&mut batch, 10, 9), Err(Error::Io(_))));
        assert_eq!(stream.fill(&mut batch, 10, 9).unwrap(), Fill::End);
        assert_eq!(columns(&batch), [0, 1, 2]);
    }

    #[test]
    fn errors_come_after_the_events_before_them_and_end_the_stream() {
        let refused = [Ok(counting(3)), Err(io::Error::other("refused")), Ok(counting(3))];
        let runaway = [0x8000_u16, 0x0001, 0x2000, 0x2001, 0x2002, 0x37ff].into_iter();
        let runaway = runaway.chain([0x4000; 5300]).chain([0x4001, 0x2003]);
        let malformed = [Ok(runaway.flat_map(u16::to_le_bytes).collect())];
        let streams: [(Box<dyn Decoder>, VecDeque<_>, &str); 2] = [
            (Box::new(Evt2Decoder::new(Options::default())), refused.into(), "refused"),
            (Box::new(Evt3Decoder::new(Options::default())), malformed.into(), "65535"),
        ];
        for (decoder, reads, message) in streams {
            let mut stream = Stream::new(decoder, Vec::new(), Script(reads), 0, false);
            let mut batch = Vec::new();
            assert_eq!(stream.fill(&mut batch, 2, 99).unwrap(), Fill::Full);
            assert_eq!(columns(&batch), [0, 1]);
            batch.clear();
            assert_eq!(stream.fill(&mut batch, 2, 99).unwrap(), Fill::End);
            assert_eq!(columns(&batch), [2]);
            batch.clear();
            let error = stream.fill(&mut batch, 2, 99).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
            assert_eq!(stream.fill(&mut batch, 2, 99).unwrap(), Fill::End);
            assert!(batch.is_empty());
        }
    }
}
