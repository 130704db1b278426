//! The publication protocol under shuttle: more threads and longer runs than loom can do, in random schedules. All
//! accesses are sequentially consistent here; what weaker orderings allow is loom's part.
//!
//!     RUSTFLAGS="--cfg shuttle" cargo test --release --test shuttle_publish
//!
//! A failure prints the schedule, which `shuttle::replay` runs again.
#![cfg(shuttle)]

mod model;

use frames2py::publish::Bell;
use model::{Arc, World, thread};

/// Runs a model in `times` random schedules, and as many with few changes of thread at the worst places.
fn check(times: usize, model: impl Fn() + Send + Sync + 'static) {
    let model = std::sync::Arc::new(model);
    let again = model.clone();
    shuttle::check_random(move || model(), times);
    shuttle::check_pct(move || again(), times, 4);
}

/// Readers that look, hold and make objects; one publication in four is taken down, one in five claims is given up.
fn everybody(keep: usize) {
    let (world, pool, mut writer) = World::new(keep);
    let bell = Arc::new(Bell::default());
    let mut threads = Vec::new();
    for reader in 0..3 {
        let (world, pool) = (world.clone(), pool.clone());
        threads.push(thread::spawn(move || {
            let mut last = 0;
            let mut held = Vec::new();
            for round in 0..4 {
                if pool.has_unreaped() {
                    pool.reap_rest(drop);
                }
                match (reader + round) % 4 {
                    0 => {
                        let now = world.visit(&pool);
                        assert!(now == 0 || now >= last, "publications in order");
                        last = last.max(now);
                    }
                    1 => held.extend(world.lease(&pool)),
                    _ => world.object(&pool, true),
                }
                if held.len() > 1 {
                    let (sequence, lease) = held.remove(0);
                    lease.check(sequence);
                }
            }
            for (sequence, lease) in held {
                thread::spawn(move || lease.check(sequence)).join().unwrap();
            }
        }));
    }
    for wanted in [1, 5] {
        let (pool, bell) = (pool.clone(), bell.clone());
        threads.push(thread::spawn(move || {
            bell.wait(None, || (pool.latest_sequence() >= wanted).then_some(())).unwrap();
        }));
    }
    for sequence in 1..=5 {
        if sequence == 3 {
            world.abandon(&mut writer);
        }
        let retired = world.publish(&mut writer, sequence);
        bell.ring();
        if sequence % 2 == 0 {
            drop(retired.reap(&pool));
        } else {
            retired.leave(&pool);
        }
        if sequence == 4 {
            drop(writer.reset().reap(&pool));
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
    if pool.has_unreaped() {
        pool.reap_rest(drop);
    }
    if keep == 0 {
        assert_eq!(world.frames(), 1, "only the latest frame is left");
    }
    world.end(pool, writer);
}

#[test]
fn memory_is_kept() {
    check(3_000, || everybody(3));
}

#[test]
fn memory_is_given_away() {
    check(3_000, || everybody(0));
}

/// Many waiters, woken by few publications.
#[test]
fn waiters() {
    check(3_000, || {
        let (world, pool, mut writer) = World::new(2);
        let bell = Arc::new(Bell::default());
        let waiters: Vec<_> = (0..8)
            .map(|waiter| {
                let (world, pool, bell) = (world.clone(), pool.clone(), bell.clone());
                thread::spawn(move || {
                    let wanted = 1 + waiter % 3;
                    bell.wait(None, || (pool.latest_sequence() >= wanted).then_some(())).unwrap();
                    assert!(world.visit(&pool) >= wanted);
                })
            })
            .collect();
        for sequence in 1..=3 {
            drop(world.publish(&mut writer, sequence).reap(&pool));
            bell.ring();
        }
        for waiter in waiters {
            waiter.join().unwrap();
        }
        world.end(pool, writer);
    });
}
