//! The publication protocol under shuttle: more threads and longer runs than loom can do, in random schedules. All
//! accesses are sequentially consistent here; what weaker orderings allow is loom's part.
//!
//!     RUSTFLAGS="--cfg shuttle" cargo test --release --test shuttle_publish
//!
//! A failure prints the schedule, which `shuttle::replay` runs again.
#![cfg(shuttle)]

mod model;

use model::scenarios::{everybody, sharing, waiters};

/// Runs a model in `times` random schedules, and as many with few changes of thread at the worst places.
fn check(times: usize, model: impl Fn() + Send + Sync + 'static) {
    let model = std::sync::Arc::new(model);
    let again = model.clone();
    shuttle::check_random(move || model(), times);
    shuttle::check_pct(move || again(), times, 4);
}

#[test]
fn memory_is_kept() {
    check(10_000, || everybody(3, 5));
}

#[test]
fn memory_is_given_away() {
    check(10_000, || everybody(0, 5));
}

#[test]
fn nobody_sleeps_through() {
    check(10_000, waiters);
}

#[test]
fn frames_are_shared_and_kept() {
    check(10_000, || sharing(3, 7));
}

#[test]
fn frames_are_shared_and_given_away() {
    check(10_000, || sharing(0, 7));
}
