#![no_main]

use frames2py::codec::Family;

libfuzzer_sys::fuzz_target!(|data: &[u8]| frames2py_fuzz::check(data, Family::Dat));
