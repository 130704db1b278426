//! Arrays of other layouts into event records.

use super::input::strided;
use crate::convert::{Column, Converter, Kind, Scale, Seen};
use numpy::{PyArray1, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

fn column<'a>(name: &str, array: &'a Bound<'_, PyUntypedArray>) -> PyResult<Column<'a>> {
    let dtype = array.dtype();
    let size = dtype.itemsize();
    let kind = match (dtype.kind(), size) {
        (b'b', 1) => Kind::Bool,
        (b'i', 1 | 2 | 4 | 8) => Kind::Int,
        (b'u', 1 | 2 | 4 | 8) => Kind::Uint,
        (b'f', 4 | 8) => Kind::Float,
        _ => {
            return Err(PyTypeError::new_err(format!(
                "{name} must hold integers, bools or floats of 4 or 8 bytes, got dtype {dtype}"
            )));
        }
    };
    let swapped = dtype.is_native_byteorder() == Some(false);
    Ok(Column { values: strided(array)?, kind, size, big_endian: swapped != cfg!(target_endian = "big") })
}

/// The packed bytes of events made of four columns of one length: 1-D arrays that nobody else has. Also whether polarities
/// were written with 0 and with -1, in these rows or, as `zero` and `minus` say, in those before. `first_row` is the
/// number of the first row in messages.
#[pyfunction]
#[pyo3(signature = (t, x, y, p, *, time_unit, round_times=false, first_row=0, zero=false, minus=false))]
#[allow(clippy::too_many_arguments)]
pub fn convert_events<'py>(
    py: Python<'py>,
    t: Bound<'py, PyUntypedArray>,
    x: Bound<'py, PyUntypedArray>,
    y: Bound<'py, PyUntypedArray>,
    p: Bound<'py, PyUntypedArray>,
    time_unit: &str,
    round_times: bool,
    first_row: usize,
    zero: bool,
    minus: bool,
) -> PyResult<(Bound<'py, PyArray1<u8>>, bool, bool)> {
    let scale = match time_unit {
        "s" => Scale::Times(1_000_000),
        "ms" => Scale::Times(1000),
        "us" => Scale::Times(1),
        "ns" => Scale::Over(1000),
        _ => {
            return Err(PyValueError::new_err(format!(
                "time_unit must be \"s\", \"ms\", \"us\" or \"ns\", got {time_unit:?}"
            )));
        }
    };
    let columns = [column("t", &t)?, column("x", &x)?, column("y", &y)?, column("p", &p)?];
    let length = columns[0].values.len();
    for (name, column) in ["x", "y", "p"].into_iter().zip(&columns[1..]) {
        if column.values.len() != length {
            return Err(PyValueError::new_err(format!(
                "t, x, y and p must have one length, got {length} values of t and {} of {name}",
                column.values.len()
            )));
        }
    }
    let mut converter = Converter { columns, scale, round_times, seen: Seen { zero, minus } };
    let converted = py.detach(|| converter.convert().map(|events| (events, converter.seen)));
    let (events, seen) = converted.map_err(|refused| {
        PyValueError::new_err(format!("row {}: {}", first_row.saturating_add(refused.row), refused.what))
    })?;
    Ok((PyArray1::from_vec(py, events.into_flattened()), seen.zero, seen.minus))
}
