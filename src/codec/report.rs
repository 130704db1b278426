//! What a decoder met on its way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The contents of a recording as far as it was decoded: everything that became events, and everything that did not.
///
/// Nothing in it changes what is decoded. A file without faults has all its bytes in [`words`](Self::words).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events decoded. Counted by the [`Stream`](super::Stream), as are the bytes.
    pub events: u64,
    /// Bytes of the body, which is everything behind the head, that were decoded.
    pub bytes: u64,
    /// What the body is made of, by type and in the order of the format's page; types not met are left out.
    pub words: Vec<Words>,
    /// Events that were in the file and could not be decoded, and why; reasons not met are left out.
    pub dropped: Vec<(&'static str, u64)>,
    /// Overflows of the file's clock that were undone.
    pub time_wraps: u64,
    /// Events whose time is below that of the event before them. They are yielded as they are.
    pub backward_steps: u64,
    /// Words, records or packets of no type that the format knows.
    pub unknown: u64,
    /// Bytes that only fill up.
    pub padding: u64,
    /// Bytes at the end that are no whole word, record or packet.
    pub truncated_tail: u64,
}

/// A report that one thread writes and others read.
#[derive(Clone, Debug, Default)]
pub struct SharedReport(Arc<Mutex<Report>>);

impl SharedReport {
    /// The report as it was last set.
    pub fn get(&self) -> Report {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets it for all who share it.
    pub fn set(&self, report: Report) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

/// The words, records or packets of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// The type, as the format's page names it: `ADDR_X`.
    pub name: &'static str,
    /// How many there are.
    pub count: u64,
    /// The bytes they take in the file.
    pub bytes: u64,
}

impl Report {
    /// Adds a type of word, if there is any.
    pub fn note_words(&mut self, name: &'static str, count: u64, bytes: u64) {
        if count > 0 {
            self.words.push(Words { name, count, bytes });
        }
    }

    /// Adds a reason for events to be dropped, if there are any.
    pub fn note_dropped(&mut self, reason: &'static str, events: u64) {
        if events > 0 {
            self.dropped.push((reason, events));
        }
    }

    /// What a strict reader stops at: events dropped, steps back in time, unknown words and a truncated tail.
    pub fn faults(&self) -> u64 {
        let dropped: u64 = self.dropped.iter().map(|&(_, events)| events).sum();
        dropped + self.backward_steps + self.unknown + u64::from(self.truncated_tail > 0)
    }
}

impl Report {
    /// What `after` counts that this report, of an earlier moment, does not: the first fault since, in words.
    pub(super) fn fault_since(&self, after: &Report) -> String {
        let dropped_before: HashMap<_, _> = self.dropped.iter().copied().collect();
        let dropped = after.dropped.iter().find(|(reason, n)| *n > *dropped_before.get(reason).unwrap_or(&0));
        if let Some((reason, _)) = dropped {
            format!("an event is dropped: {reason}")
        } else if after.unknown > self.unknown {
            "a word of unknown type".into()
        } else if after.backward_steps > self.backward_steps {
            "an event's time is below that of the event before it".into()
        } else {
            format!("the file breaks off, {} bytes into a word or packet", after.truncated_tail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_what_was_lost_or_not_understood() {
        let mut report = Report { time_wraps: 3, padding: 4, ..Report::default() };
        report.note_words("ADDR_X", 5, 10);
        report.note_words("ADDR_Y", 0, 0);
        report.note_dropped("before the first TIME_HIGH", 0);
        assert_eq!(report.words, [Words { name: "ADDR_X", count: 5, bytes: 10 }]);
        assert_eq!(report.faults(), 0);
        report.note_dropped("before the first TIME_HIGH", 7);
        let report = Report { backward_steps: 10, unknown: 100, truncated_tail: 3, ..report };
        assert_eq!(report.faults(), 118);
    }
}
