//! Images out: encoding an RGB array as PNG.

use numpy::{PyReadonlyArray3, PyUntypedArrayMethods};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Encode an `(H, W, 3)` uint8 array, C-contiguous, as an 8-bit RGB PNG.
///
/// The interpreter is released while encoding.
#[pyfunction]
pub fn encode_png<'py>(py: Python<'py>, rgb: PyReadonlyArray3<'py, u8>) -> PyResult<Bound<'py, PyBytes>> {
    let &[height, width, channels] = rgb.shape() else {
        return Err(PyValueError::new_err("rgb must be 3-D"));
    };
    let (Ok(rows), Ok(columns), 3) = (u32::try_from(height), u32::try_from(width), channels) else {
        return Err(PyValueError::new_err(format!(
            "rgb must have shape (H, W, 3), got ({height}, {width}, {channels})"
        )));
    };
    if rows == 0 || columns == 0 {
        return Err(PyValueError::new_err(format!(
            "rgb must have at least one row and one column, got ({height}, {width}, 3)"
        )));
    }
    if !rgb.is_c_contiguous() {
        return Err(PyValueError::new_err("rgb must be C-contiguous"));
    }
    // A private copy, so that the array may change while the interpreter is released.
    let pixels = rgb.as_slice()?.to_vec();
    drop(rgb);
    let encoded = py
        .detach(|| encode(columns, rows, &pixels))
        .map_err(|error| PyRuntimeError::new_err(format!("PNG encoding failed: {error}")))?;
    Ok(PyBytes::new(py, &encoded))
}

fn encode(width: u32, height: u32, pixels: &[u8]) -> Result<Vec<u8>, png::EncodingError> {
    let mut encoded = Vec::new();
    let mut encoder = png::Encoder::new(&mut encoded, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(encoded)
}
