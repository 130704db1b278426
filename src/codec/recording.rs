//! A recording that is read batch by batch, and perhaps again.

use std::io::{ErrorKind, Read, Seek};

use super::stream::BEYOND;
use super::{
    Decoder, Error, Event, Fill, Head, Index, Record, SharedReport, SharedTriggers, Stream, reserve,
};

/// Events in a batch when the caller asks for no number: large enough that the cost of a batch does not show, small enough
/// for two batches to stay in the second cache, the one in use and the next.
pub const NATURAL_BATCH: usize = 16 * 1024;

/// Reads after which a call returns, though it has found no events.
const READS_PER_CALL: usize = 64;

/// What came of reading for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// The batch is complete.
    Batch,
    /// The batch is not complete, nor is this the end: call again with it as it is.
    NotYet,
    /// No more events; the batch is empty.
    End,
}

/// A file of events with what it takes to read it in batches, and to start again.
pub struct Recording<R> {
    stream: Stream<R>,
    /// What has seen nothing yet, to start again with.
    decoder: Box<dyn Decoder>,
    /// Where the events begin, in a file that has an end to read up to. Of a pipe, what has come is passed on at once.
    start: Option<u64>,
    /// Events are left out up to the first one of this time or later, which a seek went for.
    skip: Option<u64>,
    strict: bool,
}

impl<R: Read> Recording<R> {
    /// The events that `head.decoder` makes of `ahead`, bytes that were read behind the head, and then of `input`.
    /// `regular` is whether that is a file with an end to read up to, which can be read again; `strict` as
    /// [`Stream::new`] has it.
    pub fn new(head: Head, ahead: Vec<u8>, input: R, regular: bool, strict: bool) -> Self {
        let start = head.length as u64;
        let mut stream = Stream::new(head.decoder.fork(), ahead, input, start, strict);
        if regular {
            stream.decode_ahead();
        }
        Self { stream, decoder: head.decoder, start: regular.then_some(start), skip: None, strict }
    }

    /// Decodes on the thread that asks for events, without the help of others.
    pub fn stay_on_one_thread(&mut self) {
        self.decoder.stay_on_one_thread();
        self.stream.stay_on_one_thread();
    }

    /// What was met so far.
    pub fn report(&self) -> &SharedReport {
        self.stream.report()
    }

    /// The triggers met so far, where they are collected.
    pub fn triggers(&self) -> &SharedTriggers {
        self.stream.triggers()
    }

    /// Adds the next events to `batch`, which is empty or was left incomplete by the call before: `limit` events, fewer
    /// only at the end of the file or before an error, or as many as suit without a limit.
    ///
    /// # Errors
    /// What is wrong with the file, once all events before it are in batches.
    pub fn next(&mut self, batch: &mut Vec<Record>, limit: Option<usize>) -> Result<More, Error> {
        let target = limit.unwrap_or(NATURAL_BATCH);
        let at_once = limit.is_none() && self.start.is_none();
        if batch.capacity() == 0 {
            reserve(batch, target.min(NATURAL_BATCH) + if target < BEYOND { 0 } else { BEYOND })?;
        }
        // What was read already must not wait for the pipe's next bytes.
        let mut fill = self.stream.fill(batch, target, if at_once { 0 } else { READS_PER_CALL });
        if at_once && batch.is_empty() && matches!(fill, Ok(Fill::Paused)) {
            fill = self.stream.fill(batch, target, 1);
        }
        if let Some(t) = self.skip {
            let (first, count) =
                (batch.iter().position(|record| Event::from_record(record).t >= t), batch.len());
            batch.drain(..first.unwrap_or(batch.len()));
            self.skip = self.skip.filter(|_| first.is_none());
            match fill {
                Ok(Fill::Full) if first.is_none() || limit.is_some() => return Ok(More::NotYet),
                // The end, or the error before it, is told to whoever asks with an empty batch.
                Ok(Fill::End) if first.is_none() && count > 0 => return Ok(More::NotYet),
                _ => {}
            }
        }
        match fill {
            // A signal.
            Err(Error::Io(error)) if error.kind() == ErrorKind::Interrupted => Ok(More::NotYet),
            Err(error) => Err(error),
            Ok(Fill::Paused) if !at_once || batch.is_empty() => Ok(More::NotYet),
            Ok(Fill::End) if batch.is_empty() => Ok(More::End),
            Ok(_) => Ok(More::Batch),
        }
    }
}

impl<R: Read + Seek> Recording<R> {
    /// Seeks over what need not be read; for files with an end.
    pub fn skip_by_seeking(&mut self) {
        if self.start.is_some() {
            self.stream.skip_by_seeking();
        }
    }

    /// Starts again from the first event. Does nothing for what can be read only once.
    ///
    /// # Errors
    /// The file cannot be read there.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.skip = None;
        self.start.map_or(Ok(()), |start| self.stream.restart(self.decoder.fork(), start))
    }

    /// Goes on at the first event, in file order, whose time is `t` or later; at the end if there is none.
    ///
    /// # Errors
    /// The file cannot be read there, or the index is not one of it.
    pub fn seek(&mut self, index: &Index, t: u64) -> Result<(), Error> {
        let (decoder, offset) = index.decoder_at(index.point_for(t), &*self.decoder)?;
        self.stream.restart(decoder, offset)?;
        self.skip = Some(t);
        Ok(())
    }
}

impl<R> Recording<R> {
    /// An index of the whole of `input`, which is this recording, opened again.
    ///
    /// # Errors
    /// The file cannot be read, or its format cannot be decoded from the middle.
    pub fn index<S: Read + Seek>(
        &self,
        mut input: S,
        on: impl FnMut() -> Result<(), Error>,
    ) -> Result<Index, Error> {
        let start = self.start.ok_or_else(|| Error::Malformed("a pipe has no index".into()))?;
        Index::build(&mut input, start, &*self.decoder, on)
    }

    /// The events with `t0 <= t < t1`, in file order, from `input`, which is this recording, opened again.
    ///
    /// # Errors
    /// The file cannot be read, or the index is not one of it; what is wrong with it in between.
    pub fn slice<S: Read + Seek>(
        &self,
        index: &Index,
        input: S,
        t0: u64,
        t1: u64,
        mut on: impl FnMut() -> Result<(), Error>,
    ) -> Result<Vec<Record>, Error> {
        let mut events = Vec::new();
        let mut stream = Stream::new(self.decoder.fork(), Vec::new(), input, 0, self.strict);
        let mut batch = Vec::new();
        for run in index.runs(t0, t1) {
            let (decoder, offset) = index.decoder_at(run.point, &*self.decoder)?;
            stream.restart(decoder, offset)?;
            let mut left = run.events;
            while left > 0 {
                on()?;
                batch.clear();
                let limit = left.min(NATURAL_BATCH as u64) as usize;
                match stream.fill(&mut batch, limit, usize::MAX) {
                    Err(Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                    Ok(fill) if fill == Fill::End && batch.is_empty() => return Err(Index::stale()),
                    Ok(_) => {}
                }
                left -= batch.len() as u64;
                reserve(&mut events, batch.len())?;
                events.extend(batch.iter().filter(|r| (t0..t1).contains(&Event::from_record(r).t)));
            }
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Event, Evt2Decoder, Options};
    use std::io::Cursor;

    const HEADER: &[u8] = b"% evt 2.0\n";

    /// The header, a TIME_HIGH of `high` and `n` EVT 2.0 events whose x counts from 0.
    fn file(high: u32, n: u32) -> Vec<u8> {
        let words = std::iter::once(0x8000_0000 | high).chain((0..n).map(|i| i << 11));
        HEADER.iter().copied().chain(words.flat_map(u32::to_le_bytes)).collect()
    }

    fn recording(bytes: Vec<u8>, ahead: usize, regular: bool) -> Recording<Cursor<Vec<u8>>> {
        let front = bytes[HEADER.len()..][..ahead].to_vec();
        let mut input = Cursor::new(bytes);
        input.set_position((HEADER.len() + ahead) as u64);
        let decoder = Box::new(Evt2Decoder::new(Options::default()));
        let head = Head { format: "EVT 2.0", geometry: None, length: HEADER.len(), decoder };
        Recording::new(head, front, input, regular, false)
    }

    fn rest(recording: &mut Recording<Cursor<Vec<u8>>>, limit: Option<usize>) -> Vec<Vec<(u64, u16)>> {
        let (mut batches, mut batch) = (Vec::new(), Vec::new());
        loop {
            match recording.next(&mut batch, limit).unwrap() {
                More::End => return batches,
                More::NotYet => {}
                More::Batch => {
                    let events = batch.drain(..).map(|r| Event::from_record(&r));
                    batches.push(events.map(|event| (event.t, event.x)).collect());
                }
            }
        }
    }

    #[test]
    fn it_starts_again_as_often_as_one_likes_and_from_anywhere() {
        let expected: Vec<_> = (0..7).map(|x| (3 << 6, x)).collect();
        for ahead in [0, 2, 4, 9, 32] {
            let mut recording = recording(file(3, 7), ahead, true);
            for round in 0..3 {
                if round == 1 {
                    let mut batch = Vec::new();
                    recording.next(&mut batch, Some(2)).unwrap();
                    recording.restart().unwrap();
                }
                assert_eq!(rest(&mut recording, Some(5)), [&expected[..5], &expected[5..]]);
                recording.restart().unwrap();
            }
        }
    }

    #[test]
    fn what_can_be_read_once_ends_once() {
        let mut recording = recording(file(0, 3), 5, false);
        // What was read ahead comes by itself: nothing to wait for.
        assert_eq!(rest(&mut recording, None), [vec![(0, 0), (0, 1), (0, 2)]]);
        recording.restart().unwrap();
        assert_eq!(rest(&mut recording, None), Vec::<Vec<_>>::new());
    }
}
