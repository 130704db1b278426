//! Events in, bytes out.

use super::{
    Aedat4Encoder, Compression, CsvEncoder, DatEncoder, Error, EsEncoder, Evt2Encoder, Evt3Encoder,
    Evt21Encoder, Record,
};

/// A format's encoder. What it returns, in order, is a file; the caller writes it.
pub trait Encoder: Send {
    /// Appends the bytes that a file begins with. Called once, first.
    fn start(&mut self, out: &mut Vec<u8>);

    /// Appends the bytes of `events`, which follow those of the call before. How the events are cut into calls does not
    /// change what they decode to.
    ///
    /// # Errors
    /// [`Error::Unencodable`] for the first event that the format cannot hold; nothing is then appended or
    /// remembered.
    fn encode(&mut self, events: &[Record], out: &mut Vec<u8>) -> Result<(), Error>;

    /// Appends the bytes that a file ends with, and returns what is then to be overwritten. Called once, last.
    ///
    /// # Errors
    /// The file cannot be completed.
    fn finish(&mut self, _out: &mut Vec<u8>) -> Result<Vec<Patch>, Error> {
        Ok(Vec::new())
    }
}

/// Bytes that are known only once everything is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Their place, from the start of the file.
    pub at: u64,
    /// What is to be there.
    pub bytes: Vec<u8>,
}

/// The formats that are written, by the names that `frames2py.save` knows them by.
pub const WRITTEN: &[&str] = &["evt2", "evt2.1", "evt3", "dat", "aedat4", "es", "csv"];

/// An encoder of the format of that name, one of [`WRITTEN`], for a sensor of that size. `compression` is of the formats
/// that have one: of AEDAT 4.0, by [`Compression::parse`].
///
/// # Errors
/// [`Error::Header`]: the format is not written, cannot hold such a sensor, or is not compressed so.
pub fn encoder(
    format: &str,
    sensor: (u32, u32),
    compression: Option<&str>,
) -> Result<Box<dyn Encoder>, Error> {
    if let (true, Some(name)) = (format != "aedat4", compression) {
        return Err(Error::Header(format!(
            "the format {format:?} is not compressed, by {name} or otherwise"
        )));
    }
    Ok(match format {
        "evt2" => Box::new(Evt2Encoder::new(sensor)?),
        "evt2.1" => Box::new(Evt21Encoder::new(sensor)?),
        "evt3" => Box::new(Evt3Encoder::new(sensor)?),
        "dat" => Box::new(DatEncoder::new(sensor)),
        "aedat4" => {
            let compression = compression.map_or(Ok(Compression::Lz4), Compression::parse)?;
            Box::new(Aedat4Encoder::new(sensor, compression)?)
        }
        "es" => Box::new(EsEncoder::new(sensor)?),
        "csv" => Box::new(CsvEncoder),
        _ => {
            let known = WRITTEN.join(", ");
            return Err(Error::Header(format!("the format {format:?} is not written; known are {known}")));
        }
    })
}

/// The error for the event at `index` of a call, whose `field` is `value`, where `format` holds only what `expected`
/// says.
pub fn unencodable(
    index: usize,
    field: &'static str,
    value: impl std::fmt::Display,
    format: &str,
    expected: &str,
) -> Error {
    let reason = format!("{field} is {value}; {format} holds {expected}");
    Error::Unencodable { index, reason }
}
