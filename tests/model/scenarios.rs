//! Models with many threads, for what cannot look at all interleavings.

use super::recipes::Sharing;
use super::{Arc, World, thread};
use frames2py::publish::Bell;

/// Readers that look, hold and make objects; one publication in five is taken down, and one claim in six given up.
pub fn everybody(keep: usize, rounds: u64) {
    let (world, pool, mut writer) = World::new(keep);
    let bell = Arc::new(Bell::default());
    let mut threads = Vec::new();
    for reader in 0..3_u64 {
        let (world, pool) = (world.clone(), pool.clone());
        threads.push(thread::spawn(move || {
            let mut last = 0;
            let mut held = Vec::new();
            for round in 0..rounds {
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
    for wanted in [1, rounds] {
        let (pool, bell) = (pool.clone(), bell.clone());
        threads.push(thread::spawn(move || {
            bell.wait(None, || (pool.latest_sequence() >= wanted).then_some(())).unwrap();
        }));
    }
    for sequence in 1..=rounds {
        if sequence % 5 == 3 {
            world.abandon(&mut writer);
        }
        let retired = world.publish(&mut writer, sequence);
        bell.ring();
        if sequence % 2 == 0 {
            drop(retired.reap(&pool));
        } else {
            retired.leave(&pool);
        }
        if sequence % 5 == 4 {
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

/// Readers that look, hold and hand on, while the writer publishes each frame three times.
pub fn sharing(keep: usize, rounds: u64) {
    let shows: Vec<u64> = (0..rounds).map(|round| round / 3).collect();
    let (world, pool, mut writer) = Sharing::new(keep, &shows);
    world.publish(&mut writer);
    let readers: Vec<_> = (0..3_u64)
        .map(|reader| {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || {
                let mut last = 0;
                let mut held = Vec::new();
                for round in 0..rounds {
                    if (reader + round) % 3 == 0 {
                        held.extend(world.lease(&pool));
                    } else {
                        let now = world.visit(&pool);
                        assert!(now >= last, "publications in order");
                        last = now;
                    }
                    if held.len() > 2 {
                        world.look(held.remove(0));
                    }
                }
                thread::spawn(move || held.into_iter().for_each(|held| world.look(held))).join().unwrap();
            })
        })
        .collect();
    for _ in 1..rounds {
        world.publish(&mut writer);
    }
    for reader in readers {
        reader.join().unwrap();
    }
    assert_eq!(world.visit(&pool), rounds);
    world.end(pool, writer, keep + 2);
}

/// Many waiters, woken by few publications.
pub fn waiters() {
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
}
