//! What all fuzz targets check of a decoder: it neither panics nor hangs, however a file is cut into reads the events are the
//! same, and what an index finds is what a full decode has.

use std::io::{Cursor, Read};

use frames2py::codec::{Event, Family, HeadReader, More, Options, Recording};

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

/// The events of a file and how it ended, or what is wrong with its head.
fn decode(
    file: &[u8],
    step: usize,
    family: Family,
    options: Options,
) -> Result<(Vec<Event>, String), String> {
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
                return Ok((events, format!("{report:?}")));
            }
            Err(error) => return Ok((events, error.to_string())),
        }
        if events.len() > MOST {
            return Ok((events, "too many".into()));
        }
    }
}

/// Decodes the file behind the first byte of `data`, which says how it is cut.
pub fn check(data: &[u8], family: Family) {
    let Some((&how, file)) = data.split_first() else { return };
    let options = Options { triggers: how & 0x80 != 0, ..Options::default() };
    let whole = decode(file, usize::MAX, family, options.clone());
    let cut = decode(file, 1 + usize::from(how & 0x7f), family, options.clone());
    assert_eq!(whole, cut);
    let strict = decode(file, usize::MAX, family, Options { strict: true, ..options.clone() });
    if let (Ok((whole, _)), Ok((strict, _))) = (&whole, &strict) {
        assert!(whole.len() > MOST || whole.starts_with(strict));
    }
    if let Ok((whole, _)) = &whole
        && whole.len() <= MOST
    {
        seek(file, family, options, whole);
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
