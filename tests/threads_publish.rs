//! The publication protocol on the threads of the machine, with as much weak memory as it has. For Miri and the thread
//! sanitizer, which watch every access; what the models look at systematically is in `loom_publish.rs`.
#![cfg(not(any(loom, shuttle)))]

mod model;

use model::scenarios::{everybody, sharing, waiters};

fn times(native: usize) -> usize {
    if cfg!(miri) { 1 } else { native }
}

#[test]
fn memory_is_kept() {
    (0..times(20)).for_each(|_| everybody(3, if cfg!(miri) { 10 } else { 1000 }));
}

#[test]
fn memory_is_given_away() {
    (0..times(20)).for_each(|_| everybody(0, if cfg!(miri) { 10 } else { 1000 }));
}

#[test]
fn nobody_sleeps_through() {
    (0..times(100)).for_each(|_| waiters());
}

#[test]
#[cfg_attr(miri, ignore = "frames are mapped memory")]
fn frames_are_shared_and_kept() {
    (0..times(20)).for_each(|_| sharing(3, 1000));
}

#[test]
#[cfg_attr(miri, ignore = "frames are mapped memory")]
fn frames_are_shared_and_given_away() {
    (0..times(20)).for_each(|_| sharing(0, 1000));
}
