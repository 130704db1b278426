//! The little of FlatBuffers that AEDAT 4.0 is made of: <https://flatbuffers.dev/internals/>.
//!
//! Every place in a buffer is computed from what the buffer says, so every read is checked, and `None` means that it would
//! reach outside. Nothing is followed more than once, whatever offsets point at: there is no way to go round in circles.

/// A table in a buffer: fields of a schema, by their numbers, each of which may be missing.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    buffer: &'a [u8],
    at: usize,
    /// The offsets of the fields from `at`, two bytes each.
    fields: &'a [u8],
}

/// The buffer behind a size prefix of four bytes. What follows it is left out.
pub fn sized(bytes: &[u8]) -> Option<&[u8]> {
    let (size, rest) = bytes.split_first_chunk()?;
    rest.get(..u32::from_le_bytes(*size) as usize)
}

/// The identifier of a buffer: four letters that name its type.
pub fn identifier(buffer: &[u8]) -> Option<[u8; 4]> {
    array(buffer, 4)
}

/// The table that a buffer is about.
pub fn root(buffer: &[u8]) -> Option<Table<'_>> {
    Table::at(buffer, reference(buffer, 0)?)
}

impl<'a> Table<'a> {
    fn at(buffer: &'a [u8], at: usize) -> Option<Self> {
        let back = i64::from(i32::from_le_bytes(array(buffer, at)?));
        let vtable = usize::try_from(i64::try_from(at).ok()? - back).ok()?;
        let size = usize::from(u16::from_le_bytes(array(buffer, vtable)?));
        let fields = buffer.get(vtable.checked_add(4)?..vtable.checked_add(size)?)?;
        Some(Table { buffer, at, fields })
    }

    /// Where a field is; `None` if it is not there.
    fn field(&self, number: usize) -> Option<usize> {
        match u16::from_le_bytes(array(self.fields, number * 2)?) {
            0 => None,
            offset => self.at.checked_add(usize::from(offset)),
        }
    }

    /// The bytes of a number: `default` if the field is missing, `None` if it is broken.
    pub fn scalar<const N: usize>(&self, number: usize, default: [u8; N]) -> Option<[u8; N]> {
        self.field(number).map_or(Some(default), |at| array(self.buffer, at))
    }

    /// A vector of elements of `size` bytes: as one slice. A missing one is empty, a broken one `None`.
    pub fn vector(&self, number: usize, size: usize) -> Option<&'a [u8]> {
        self.vector_at(number, size).map(|(_, bytes)| bytes)
    }

    fn vector_at(&self, number: usize, size: usize) -> Option<(usize, &'a [u8])> {
        let Some(field) = self.field(number) else {
            return Some((0, &[]));
        };
        let at = reference(self.buffer, field)?;
        let count = u32::from_le_bytes(array(self.buffer, at)?) as usize;
        let start = at.checked_add(4)?;
        let end = start.checked_add(count.checked_mul(size)?)?;
        Some((start, self.buffer.get(start..end)?))
    }

    /// The tables of a vector of tables, each of which may turn out to be broken.
    pub fn tables(&self, number: usize) -> Option<impl Iterator<Item = Option<Table<'a>>> + use<'a>> {
        let (start, bytes) = self.vector_at(number, 4)?;
        let buffer = self.buffer;
        Some((0..bytes.len() / 4).map(move |i| Table::at(buffer, reference(buffer, start + 4 * i)?)))
    }
}

/// The place that the four bytes at `at` point to.
fn reference(buffer: &[u8], at: usize) -> Option<usize> {
    at.checked_add(u32::from_le_bytes(array(buffer, at)?) as usize)
}

fn array<const N: usize>(buffer: &[u8], at: usize) -> Option<[u8; N]> {
    buffer.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A table with a number of four bytes (7), a missing field and a vector of three pairs of bytes.
    #[rustfmt::skip]
    const BUFFER: &[u8] = &[
        18, 0, 0, 0, b'T', b'E', b'S', b'T',
        10, 0, 12, 0, 4, 0, 0, 0, 8, 0,
        10, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0,
    ];

    fn buffer() -> Vec<u8> {
        let mut bytes = BUFFER.to_vec();
        // The table is at 18, its vtable ten bytes before.
        bytes.extend([3, 0, 0, 0, 1, 2, 3, 4, 5, 6]);
        bytes
    }

    #[test]
    fn fields_are_found_by_their_numbers() {
        let buffer = buffer();
        assert_eq!(identifier(&buffer), Some(*b"TEST"));
        let table = root(&buffer).unwrap();
        assert_eq!(table.scalar(0, [0; 4]), Some([7, 0, 0, 0]));
        assert_eq!(table.scalar(1, [9; 2]), Some([9; 2]));
        assert_eq!(table.scalar(99, [9; 8]), Some([9; 8]));
        assert_eq!(table.vector(2, 2), Some(&[1, 2, 3, 4, 5, 6][..]));
        assert_eq!(table.vector(1, 2), Some(&[][..]));
    }

    #[test]
    fn a_vector_ends_in_its_buffer() {
        let mut buffer = buffer();
        buffer[30] = 4;
        assert_eq!(root(&buffer).unwrap().vector(2, 2), None);
        buffer[30..34].fill(255);
        assert_eq!(root(&buffer).unwrap().vector(2, 16), None);
    }

    #[test]
    fn a_size_prefix_is_believed_only_as_far_as_there_are_bytes() {
        assert_eq!(sized(&[2, 0, 0, 0, 1, 2, 3]), Some(&[1, 2][..]));
        assert_eq!(sized(&[2, 0, 0, 0, 1]), None);
        assert_eq!(sized(&[255; 6]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_read_outside(
            mut bytes in prop::collection::vec(prop_oneof![0u8..24, any::<u8>()], 0..64), good in any::<bool>(),
            changes in prop::collection::vec((0usize..40, any::<u8>()), 0..4),
        ) {
            if good {
                bytes = buffer();
            }
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            if let Some(table) = root(&bytes) {
                for number in 0..5 {
                    let _ = table.scalar(number, [0; 8]);
                    let _ = table.vector(number, 16);
                    for inner in table.tables(number).into_iter().flatten().flatten() {
                        let _ = inner.scalar(0, [0; 8]);
                    }
                }
            }
        }
    }
}
