#![no_main]

use frames2py::codec::ecf;

libfuzzer_sys::fuzz_target!(|chunk: &[u8]| {
    let mut events = Vec::new();
    if ecf::decode(chunk, &mut events).is_ok() {
        // Its own encoder says the same again, where it can.
        let (mut again, mut twice) = (Vec::new(), Vec::new());
        if ecf::encode(&events, &mut again).is_ok() {
            ecf::decode(&again, &mut twice).unwrap();
            assert_eq!(events, twice);
        }
    }
});
