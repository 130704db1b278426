//! Decoding ahead: a source is asked on a thread of its own, so that events are decoded while those before them are
//! accumulated.
//!
//! Full batches go one way and played ones back, to be filled again. The one channel is short, so the reading thread
//! waits there while the playback is paused or slower, and ends when the other side is gone.

use super::Source;
use crate::codec::{self, More, Record};
use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

/// Full batches on the way. One more is being filled or waits to go, and one is being played.
const ON_THE_WAY: usize = 2;

/// What comes of asking the source.
enum Told {
    Batch(Vec<Record>),
    NotYet,
    End,
    /// It was started again after the end.
    Restarted,
    Failed(codec::Error),
}

/// A source that is asked ahead of the playback.
pub struct Ahead {
    /// `None` once nothing more is wanted.
    told: Option<Receiver<Told>>,
    played: Sender<Vec<Record>>,
    /// `None` once joined.
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Asks `source` from now on, and again after its end if `repeat`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn of(source: impl Source + 'static, repeat: bool) -> std::io::Result<Self> {
        let (tell, told) = sync_channel(ON_THE_WAY);
        let (played, emptied) = channel();
        let thread = thread::Builder::new().name("frames2py read".into());
        let thread = thread.spawn(move || read(source, repeat, &tell, &emptied))?;
        Ok(Self { told: Some(told), played, thread: Some(thread) })
    }

    /// What the thread says next; `None` once it has ended. If it panicked, this thread panics with it.
    fn hear(&mut self) -> Option<Told> {
        if let Some(Ok(told)) = self.told.as_ref().map(Receiver::recv) {
            return Some(told);
        }
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            resume_unwind(panic);
        }
        None
    }
}

impl Source for Ahead {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<More, codec::Error> {
        // Nothing is ever left incomplete here: what is in it was played.
        if batch.capacity() > 0 {
            let mut emptied = mem::take(batch);
            emptied.clear();
            // Not wanted any more at the end.
            let _ = self.played.send(emptied);
        }
        match self.hear() {
            Some(Told::Batch(full)) => {
                *batch = full;
                Ok(More::Batch)
            }
            Some(Told::NotYet | Told::Restarted) => Ok(More::NotYet),
            Some(Told::Failed(error)) => Err(error),
            Some(Told::End) | None => Ok(More::End),
        }
    }

    /// Takes up the new round, which the thread has begun already.
    fn restart(&mut self) -> Result<(), codec::Error> {
        loop {
            match self.hear() {
                Some(Told::Failed(error)) => return Err(error),
                Some(Told::Restarted) | None => return Ok(()),
                Some(Told::Batch(..) | Told::NotYet | Told::End) => {}
            }
        }
    }
}

/// A source that is asked ahead from when it is first asked on: what is dropped before has no thread to wait for.
pub struct Later<S> {
    source: Option<S>,
    repeat: bool,
    ahead: Option<Ahead>,
}

impl<S> Later<S> {
    /// `source` and `repeat` as for [`Ahead::of`].
    pub fn new(source: S, repeat: bool) -> Self {
        Self { source: Some(source), repeat, ahead: None }
    }
}

impl<S: Source + 'static> Source for Later<S> {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<More, codec::Error> {
        if let Some(source) = self.source.take() {
            self.ahead = Some(Ahead::of(source, self.repeat)?);
        }
        self.ahead.as_mut().map_or(Ok(More::End), |ahead| ahead.next(batch))
    }

    fn restart(&mut self) -> Result<(), codec::Error> {
        self.ahead.as_mut().map_or(Ok(()), Source::restart)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.told = None;
        if let Some(thread) = self.thread.take() {
            // A panic that nobody asked for any more.
            let _ = thread.join();
        }
    }
}

/// What the thread does, until its source has ended or nobody hears.
fn read(mut source: impl Source, repeat: bool, tell: &SyncSender<Told>, emptied: &Receiver<Vec<Record>>) {
    let mut batch = Vec::new();
    loop {
        if batch.capacity() == 0 {
            batch = emptied.try_recv().unwrap_or_default();
        }
        let told = match source.next(&mut batch) {
            Ok(More::Batch) => Told::Batch(mem::take(&mut batch)),
            Ok(More::NotYet) => Told::NotYet,
            Ok(More::End) if repeat => {
                if tell.send(Told::End).is_err() {
                    return;
                }
                source.restart().map_or_else(Told::Failed, |()| Told::Restarted)
            }
            Ok(More::End) => Told::End,
            Err(error) => Told::Failed(error),
        };
        let last = matches!(told, Told::Failed(_)) || (matches!(told, Told::End) && !repeat);
        if tell.send(told).is_err() || last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Event;
    use std::any::Any;
    use std::collections::HashSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::mpsc::RecvTimeoutError;
    use std::time::Duration;

    /// Batches of one event, at 0, 1, ... and every third time none yet. Then what `last` says, and the end.
    struct Counting {
        t: u64,
        batches: u64,
        last: fn() -> Result<More, codec::Error>,
        /// Told of each batch, and that nobody is left when the source is gone.
        asked: Sender<u64>,
    }

    impl Source for Counting {
        fn next(&mut self, batch: &mut Vec<Record>) -> Result<More, codec::Error> {
            assert!(batch.is_empty());
            self.t += 1;
            let _ = self.asked.send(self.t - 1);
            match self.t - 1 {
                t if t >= self.batches => (self.last)(),
                t if t % 3 == 2 => Ok(More::NotYet),
                t => {
                    batch.push(Event { t, x: 0, y: 0, p: 1 }.to_record());
                    Ok(More::Batch)
                }
            }
        }

        fn restart(&mut self) -> Result<(), codec::Error> {
            self.t = 0;
            if self.batches == 1 { Err(codec::Error::Malformed("gone".into())) } else { Ok(()) }
        }
    }

    fn counting(batches: u64, last: fn() -> Result<More, codec::Error>) -> (Counting, Receiver<u64>) {
        let (asked, heard) = channel();
        (Counting { t: 0, batches, last, asked }, heard)
    }

    fn times(batch: &[Record]) -> Vec<u64> {
        batch.iter().map(|record| Event::from_record(record).t).collect()
    }

    /// What a source says up to its end or error, in order.
    fn all(source: &mut dyn Source) -> (Vec<Option<u64>>, Result<(), String>) {
        let (mut said, mut batch) = (Vec::new(), Vec::new());
        loop {
            batch.clear();
            match source.next(&mut batch) {
                Ok(More::Batch) => said.push(Some(times(&batch)[0])),
                Ok(More::NotYet) => said.push(None),
                Ok(More::End) => return (said, Ok(())),
                Err(error) => return (said, Err(error.to_string())),
            }
        }
    }

    #[test]
    fn it_says_what_its_source_says() {
        let failing = || Err(codec::Error::Malformed("torn".into()));
        for batches in [0, 1, 2, 3, 50] {
            for last in [|| Ok(More::End), failing] {
                let expected = all(&mut counting(batches, last).0);
                let mut ahead = Ahead::of(counting(batches, last).0, false).unwrap();
                assert_eq!(all(&mut ahead), expected);
                // Then it is at its end.
                assert_eq!(all(&mut ahead), (vec![], Ok(())));
            }
        }
    }

    #[test]
    fn what_begins_later_says_the_same_and_is_not_asked_before() {
        let (source, heard) = counting(50, || Ok(More::End));
        let mut later = Later::new(source, true);
        assert_eq!(heard.recv_timeout(Duration::from_millis(20)), Err(RecvTimeoutError::Timeout));
        for _ in 0..3 {
            assert_eq!(all(&mut later), all(&mut counting(50, || Ok(More::End)).0));
            later.restart().unwrap();
        }
        drop(later);
        while heard.try_recv().is_ok() {}
        assert_eq!(heard.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
        drop(Later::new(counting(5, || panic!("asked")).0, false));
    }

    #[test]
    fn it_starts_again_as_often_as_asked() {
        let expected = all(&mut counting(20, || Ok(More::End)).0);
        let mut ahead = Ahead::of(counting(20, || Ok(More::End)).0, true).unwrap();
        for _ in 0..4 {
            assert_eq!(all(&mut ahead), expected);
            ahead.restart().unwrap();
        }
        // In the middle too.
        ahead.next(&mut Vec::new()).unwrap();
        ahead.restart().unwrap();
        assert_eq!(all(&mut ahead), expected);

        let mut ahead = Ahead::of(counting(1, || Ok(More::End)).0, true).unwrap();
        assert_eq!(all(&mut ahead).0, [Some(0)]);
        assert_eq!(ahead.restart().unwrap_err().to_string(), "gone");
    }

    #[test]
    fn a_panic_comes_after_the_batches_before_it_and_once() {
        let mut ahead = Ahead::of(counting(5, || panic!("out of luck")).0, false).unwrap();
        let mut batch = Vec::new();
        for t in 0..5 {
            batch.clear();
            let more = ahead.next(&mut batch).unwrap();
            assert_eq!(more == More::Batch, t != 2);
        }
        let panic: Box<dyn Any + Send> =
            catch_unwind(AssertUnwindSafe(|| ahead.next(&mut batch))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"out of luck"));
        assert_eq!(ahead.next(&mut batch).unwrap(), More::End);
    }

    #[test]
    fn it_runs_so_far_ahead_and_ends_wherever_it_waits() {
        for taken in [0, 1, 4] {
            let (source, heard) = counting(u64::MAX, || unreachable!());
            let mut ahead = Ahead::of(source, true).unwrap();
            for _ in 0..taken {
                ahead.next(&mut Vec::new()).unwrap();
            }
            // One waits to go on its way.
            for t in 0..taken + ON_THE_WAY as u64 + 1 {
                assert_eq!(heard.recv(), Ok(t));
            }
            assert_eq!(heard.recv_timeout(Duration::from_millis(20)), Err(RecvTimeoutError::Timeout));
            drop(ahead);
            // The thread was joined: its source has gone.
            assert_eq!(heard.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
        }
    }

    #[test]
    fn batches_are_filled_again() {
        let mut ahead = Ahead::of(counting(1000, || Ok(More::End)).0, false).unwrap();
        let (mut batch, mut places) = (Vec::new(), HashSet::new());
        while ahead.next(&mut batch).unwrap() != More::End {
            if !batch.is_empty() {
                places.insert(batch.as_ptr());
            }
        }
        assert!(places.len() <= ON_THE_WAY + 3, "{}", places.len());
    }

    #[test]
    fn a_playback_that_is_stopped_leaves_nothing_behind() {
        use crate::engine::Engine;
        use crate::geometry::SensorSize;
        use crate::kernels::Config;
        use crate::play::{Options, ingest, start};
        use std::sync::Mutex;

        let sensor = SensorSize::new(4, 1).unwrap();
        let kernel = Config::EventCount.build(sensor).unwrap();
        let engine = Arc::new(Engine::<()>::new(sensor, kernel, Default::default()).unwrap());
        let (source, heard) = counting(u64::MAX, || unreachable!());
        let mut session = engine.session("play", Mutex::lock).unwrap();
        let source = || Ok(Box::new(Ahead::of(source, false).unwrap()) as _);
        let playback =
            start(&engine, &mut session, source, Options::default(), Box::new(ingest), drop).unwrap();
        playback.pause();
        drop(session);
        // The playback's thread waits with a batch, the reading one with the next behind those on their way.
        for _ in 0..ON_THE_WAY + 1 {
            heard.recv().unwrap();
        }
        while heard.recv_timeout(Duration::from_millis(20)).is_ok() {}
        assert!(!playback.is_finished());
        playback.stop();
        assert!(playback.wait_finished(None) && playback.take_failure().is_none());
        assert_eq!(heard.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
    }
}
