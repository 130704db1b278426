//! What all fuzz targets check of a decoder: it neither panics nor hangs, however a file is cut into reads the events are the
//! same, decoding goes on from a saved state as if it had never stopped, and what an index finds is what a full decode has.

use std::io::{Cursor, Read};

use frames2py::codec::{
    Decoder, Event, EventBuffer, Family, HeadReader, More, Options, Recording, Report, Saved, Trigger,
};

/// More events than this are not looked at: a small file may well hold very many (EVT 3.0: six per byte).
const MOST: usize = 1 << 20;

/// Hands out a file in pieces of `step` bytes.
struct Pieces<'a> {
    file: &'a [u8],
    step: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.step.min(out.len()).min(self.file.len());
        let (piece, rest) = self.file.split_at(count);
        out[..count].copy_from_slice(piece);
        self.file = rest;
        Ok(count)
    }
}

/// A file's events, its triggers, and how it ended.
type Decoded = (Vec<Event>, Vec<Trigger>, Result<Report, String>);

/// What a file holds, or what is wrong with its head.
fn decode(file: &[u8], step: usize, family: Family, options: Options) -> Result<Decoded, String> {
    let mut input = Pieces { file, step };
    let (head, ahead) =
        HeadReader::new().read(&mut input, Some(family), options).map_err(|error| error.to_string())?;
    let mut recording = Recording::new(head, ahead, input, true, options.strict);
    let (mut events, mut batch) = (Vec::new(), Vec::new());
    loop {
        match recording.next(&mut batch, Some(4096)) {
            Ok(More::NotYet) => {}
            Ok(More::Batch) => events.extend(batch.drain(..).map(|record| Event::from_record(&record))),
            Ok(More::End) => {
                let report = recording.report().get();
                assert_eq!(report.events, events.len() as u64);
                return Ok((events, recording.triggers().take(), Ok(report)));
            }
            Err(error) => return Ok((events, recording.triggers().take(), Err(error.to_string()))),
        }
        if events.len() > MOST {
            // How far triggers are ahead of events is up to the reads.
            return Ok((events, Vec::new(), Err("too many".into())));
        }
    }
}

/// The faults that a strict reader stops at: a file may well mark events as invalid.
fn faults(report: &Report) -> u64 {
    let mut report = report.clone();
    report.dropped.retain(|(reason, _)| !reason.starts_with("marked as invalid"));
    report.faults()
}

/// Decodes the file behind the first byte of `data`, which says how it is cut.
pub fn check(data: &[u8], family: Family) {
    let Some((&how, file)) = data.split_first() else { return };
    let options = Options { triggers: how & 0x80 != 0, ..Options::default() };
    let whole = decode(file, usize::MAX, family, options);
    let cut = decode(file, 1 + usize::from(how & 0x7f), family, options);
    match (&whole, &cut) {
        // What is wrong with a head may quote as much of it as was read.
        (Err(_), Err(_)) => return,
        _ => assert_eq!(whole, cut),
    }
    let strict = decode(file, usize::MAX, family, Options { strict: true, ..options });
    match (&whole, &strict) {
        // A file without a fault is the same to a strict reader, which ends at a fault.
        (Ok((.., Ok(report))), Ok((.., end))) if faults(report) == 0 => match end {
            // Between two events of a packet: no byte is left over.
            Err(end) if family == Family::Aedat && end.contains("breaks off in a packet") => {
                assert_eq!(whole.as_ref().unwrap().0, strict.as_ref().unwrap().0);
            }
            _ => assert_eq!(whole, strict),
        },
        (Ok((whole, ..)), Ok((strict, .., end))) => {
            assert!(end.is_err());
            assert!(whole.len() > MOST || whole.starts_with(strict));
        }
        _ => assert!(strict.is_err()),
    }
    if let Ok((whole, ..)) = &whole
        && whole.len() <= MOST
    {
        resume(how, file, family, options);
        seek(file, family, options, whole);
    }
}

/// The events of what a decoder is fed and of the end, and whether it found all to be right.
fn events(decoder: &mut dyn Decoder, body: &[u8], end: bool) -> (Vec<Event>, bool) {
    let mut out = EventBuffer::new();
    let mut fine = body.chunks(4096).all(|block| decoder.feed(block, &mut out).is_ok());
    fine &= fine && (!end || decoder.finish(&mut out).is_ok());
    (out.records().iter().map(Event::from_record).collect(), fine)
}

/// Saves the state at some place, takes it up in another decoder, and compares; then takes up what may be no state.
fn resume(how: u8, file: &[u8], family: Family, options: Options) {
    let mut input = Cursor::new(file);
    let Ok((head, _)) = HeadReader::new().read(&mut input, Some(family), options) else { return };
    let body = &file[head.length..];
    let (whole, fine) = events(&mut *head.decoder.fork(), body, true);
    let cut = body.len() * usize::from(how & 0x7f) / 0x7f;
    let mut first = head.decoder.fork();
    let (mut both, first_fine) = events(&mut *first, &body[..cut], false);
    let Some(Saved { state, again }) = first.save().filter(|_| first_fine) else { return };
    let rest = &body[cut - usize::try_from(again).unwrap()..];
    let mut second = head.decoder.fork();
    assert!(second.load(&state), "its own state: {state:?}");
    let (more, second_fine) = events(&mut *second, rest, true);
    both.extend(more);
    assert_eq!((whole, fine), (both, second_fine));
    // A bit flipped, or something else altogether: the file's end says which, and what.
    let mut hostile = state;
    match *file {
        [.., place, flip] if place < 0x80 && !hostile.is_empty() => {
            let place = usize::from(place) % hostile.len();
            hostile[place] ^= flip;
        }
        _ => {
            let count = hostile.len().min(file.len());
            hostile[..count].copy_from_slice(&file[file.len() - count..]);
        }
    }
    let mut third = head.decoder.fork();
    if third.load(&hostile) {
        events(&mut *third, rest, true);
        let _ = (third.report(), third.save());
    }
}

/// Compares seeks and slices with the events of the whole file.
fn seek(file: &[u8], family: Family, options: Options, whole: &[Event]) {
    let mut input = Cursor::new(file);
    let Ok((head, ahead)) = HeadReader::new().read(&mut input, Some(family), options) else { return };
    let mut recording = Recording::new(head, ahead, input, true, false);
    let Ok(index) = recording.index(Cursor::new(file), || Ok(())) else { return };
    assert_eq!(index.totals().events, whole.len() as u64);
    let Some(middle) = whole.get(whole.len() / 2) else { return };
    recording.seek(&index, middle.t).unwrap();
    let mut batch = Vec::new();
    let expected = whole.iter().find(|event| event.t >= middle.t);
    while let Ok(More::NotYet) = recording.next(&mut batch, Some(1)) {}
    assert_eq!(batch.first().map(Event::from_record).as_ref(), expected);
    let end = middle.t.saturating_add(1000);
    if let Ok(slice) = recording.slice(&index, Cursor::new(file), middle.t, end, || Ok(())) {
        let within = whole.iter().filter(|event| (middle.t..end).contains(&event.t));
        assert!(slice.iter().map(Event::from_record).eq(within.copied()));
    }
}
