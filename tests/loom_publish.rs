//! The publication protocol under loom: each model is run in all interleavings of its threads, with all values that a
//! load may return by the memory model. Bounded: threads, operations, and (where a model says so) preemptions.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release --test loom_publish
#![cfg(loom)]

mod model;

use frames2py::publish::Bell;
use loom::model::Builder;
use model::recipes::{Recipes, Sharing};
use model::{Arc, World, thread};
use std::time::Instant;

fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 10_000;
    let begin = Instant::now();
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = runs.clone();
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        model();
    });
    println!(
        "{}: {} executions, {:.1} s, preemptions: {}",
        std::thread::current().name().unwrap_or("?"),
        runs.load(std::sync::atomic::Ordering::Relaxed),
        begin.elapsed().as_secs_f64(),
        preemptions.map_or("all".into(), |bound| bound.to_string()),
    );
}

/// A slot is filled again while a reader is on its way to it.
#[test]
fn recycled() {
    check(Some(4), || {
        let (world, pool, mut writer) = World::new(2);
        world.publish(&mut writer, 1).reap(&pool);
        let reader = {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || {
                let first = world.visit(&pool);
                assert!(first >= 1);
                assert!(world.visit(&pool) >= first, "publications in order");
            })
        };
        for sequence in 2..=3 {
            world.publish(&mut writer, sequence).reap(&pool);
        }
        reader.join().unwrap();
        world.end(pool, writer);
    });
}

/// Two readers and a writer that goes round two slots.
#[test]
fn two_readers() {
    check(Some(3), || {
        let (world, pool, mut writer) = World::new(2);
        world.publish(&mut writer, 1).reap(&pool);
        let readers = [(), ()].map(|()| {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || world.visit(&pool))
        });
        for sequence in 2..=3 {
            world.publish(&mut writer, sequence).reap(&pool);
        }
        for reader in readers {
            assert!(reader.join().unwrap() >= 1);
        }
        world.end(pool, writer);
    });
}

/// A lease outlasts later publications, is given back by another thread, and makes the pool grow to a second chunk.
#[test]
fn leases() {
    check(Some(2), || {
        let (world, pool, mut writer) = World::new(4);
        world.publish(&mut writer, 1).reap(&pool);
        let reader = {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || {
                let (sequence, lease) = world.lease(&pool).unwrap();
                thread::spawn(move || lease.check(sequence)).join().unwrap();
                world.visit(&pool);
            })
        };
        for sequence in 2..=4 {
            world.publish(&mut writer, sequence).reap(&pool);
        }
        reader.join().unwrap();
        // On the board, leased, visited, and being filled.
        assert!(pool.occupancy().slots <= 4);
        world.end(pool, writer);
    });
}

/// No memory is kept: the last one out of a slot frees its frame.
#[test]
fn one_off() {
    check(Some(4), || {
        let (world, pool, mut writer) = World::new(0);
        world.publish(&mut writer, 1).reap(&pool);
        let reader = {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || {
                let held = world.lease(&pool);
                world.visit(&pool);
                if let Some((sequence, lease)) = held {
                    lease.check(sequence);
                }
            })
        };
        for sequence in 2..=3 {
            world.publish(&mut writer, sequence).reap(&pool);
        }
        reader.join().unwrap();
        assert_eq!(world.frames(), 1);
        world.end(pool, writer);
    });
}

/// The frame goes with its last holder, even if nobody looks for the view.
#[test]
fn one_off_left() {
    check(None, || {
        let (world, pool, mut writer) = World::new(0);
        world.publish(&mut writer, 1).leave(&pool);
        let reader = {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || world.visit(&pool))
        };
        world.publish(&mut writer, 2).leave(&pool);
        reader.join().unwrap();
        assert_eq!(world.frames(), 1);
        world.end(pool, writer);
    });
}

/// Two readers, one of which makes an object that holds a lease.
#[test]
fn one_off_objects() {
    check(Some(4), || {
        let (world, pool, mut writer) = World::new(0);
        world.publish(&mut writer, 1).reap(&pool);
        let readers = [true, false].map(|with_object| {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || {
                if with_object {
                    world.object(&pool, true);
                } else {
                    world.visit(&pool);
                }
            })
        });
        world.publish(&mut writer, 2).reap(&pool);
        for reader in readers {
            reader.join().unwrap();
        }
        if pool.has_unreaped() {
            pool.reap_rest(drop);
        }
        assert_eq!(world.frames(), 1);
        world.end(pool, writer);
    });
}

/// Readers make and use the object of a publication while the writer takes it out.
#[test]
fn objects() {
    check(Some(3), || {
        let (world, pool, mut writer) = World::new(2);
        world.publish(&mut writer, 1).reap(&pool);
        let readers = [(), ()].map(|()| {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || world.object(&pool, true))
        });
        drop(world.publish(&mut writer, 2).reap(&pool));
        for reader in readers {
            reader.join().unwrap();
        }
        world.end(pool, writer);
    });
}

/// Objects without a lease, in slots that are used again: taken out by the writer's claim at the latest.
#[test]
fn objects_in_recycled_slots() {
    check(Some(5), || {
        let (world, pool, mut writer) = World::new(3);
        world.publish(&mut writer, 1).leave(&pool);
        let reader = {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || {
                world.object(&pool, false);
                world.object(&pool, false);
            })
        };
        for sequence in 2..=3 {
            world.publish(&mut writer, sequence).leave(&pool);
        }
        reader.join().unwrap();
        world.end(pool, writer);
    });
}

/// What the writer leaves is taken out by readers.
#[test]
fn objects_left_to_readers() {
    check(Some(3), || {
        let (world, pool, mut writer) = World::new(2);
        world.publish(&mut writer, 1).leave(&pool);
        world.object(&pool, true);
        let readers = [(), ()].map(|()| {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || {
                if pool.has_unreaped() {
                    pool.reap_rest(drop);
                }
                world.object(&pool, true);
            })
        });
        world.publish(&mut writer, 2).leave(&pool);
        for reader in readers {
            reader.join().unwrap();
        }
        world.end(pool, writer);
    });
}

/// A reader that finds an object still in use does not hide from another reader what the writer left.
#[test]
fn objects_left_by_two() {
    check(Some(3), || {
        let (world, pool, mut writer) = World::new(4);
        world.publish(&mut writer, 1).leave(&pool);
        let visitor = {
            let pool = pool.clone();
            thread::spawn(move || {
                let (first, second) = (pool.read(), pool.read());
                drop(first.map(|visit| visit.leave()));
                drop(second.map(|visit| visit.leave()));
            })
        };
        let reaper = {
            let pool = pool.clone();
            thread::spawn(move || pool.reap_rest(drop))
        };
        let _ = world.publish(&mut writer, 2).reap(&pool);
        world.object(&pool, true);
        world.publish(&mut writer, 3).leave(&pool);
        visitor.join().unwrap();
        reaper.join().unwrap();
        world.end(pool, writer);
    });
}

/// A claimed slot is given back, without the frame that was in it.
#[test]
fn abandoned() {
    check(None, || {
        let (world, pool, mut writer) = World::new(2);
        world.publish(&mut writer, 1).reap(&pool);
        let reader = {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || world.visit(&pool))
        };
        world.publish(&mut writer, 2).reap(&pool);
        world.abandon(&mut writer);
        assert!(reader.join().unwrap() >= 1);
        world.end(pool, writer);
    });
}

/// Two readers want a frame that the first of them makes, in memory of before; the writer takes the slots again. Whoever
/// showed the memory to others has said so when it comes back.
#[test]
fn made_by_readers() {
    check(Some(3), || {
        let (world, pool, mut writer) = Recipes::new();
        world.publish(&mut writer, 1);
        let readers = [(), ()].map(|()| {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || world.visit(&pool))
        });
        for sequence in 2..=3 {
            world.publish(&mut writer, sequence);
        }
        for reader in readers {
            assert!(reader.join().unwrap() >= 1);
        }
        assert_eq!(world.visit(&pool), 3);
        world.publish(&mut writer, 4);
        world.publish(&mut writer, 5);
        assert_eq!(world.visit(&pool), 5);
    });
}

/// Publications that show the same share a frame: made once for all by whoever comes first, used again when none refers to it.
#[test]
fn shared_by_publications() {
    check(Some(3), || {
        let (world, pool, mut writer) = Sharing::new(4, &[1, 1, 2, 2, 3]);
        world.publish(&mut writer);
        let readers = [(), ()].map(|()| {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || world.visit(&pool))
        });
        for _ in 2..=3 {
            world.publish(&mut writer);
        }
        for reader in readers {
            assert!(reader.join().unwrap() >= 1);
        }
        assert_eq!(world.visit(&pool), 3);
        for _ in 4..=5 {
            world.publish(&mut writer);
        }
        assert_eq!(world.visit(&pool), 5);
        world.end(pool, writer, 3);
    });
}

/// The same where a frame is held while other publications that share it come and go.
#[test]
fn shared_and_held() {
    check(Some(2), || {
        let (world, pool, mut writer) = Sharing::new(4, &[1, 1, 1, 2, 2, 3]);
        world.publish(&mut writer);
        let holder = {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || {
                let held = world.lease(&pool).unwrap();
                world.visit(&pool);
                world.look(held);
            })
        };
        for _ in 2..=6 {
            world.publish(&mut writer);
        }
        holder.join().unwrap();
        assert_eq!(world.visit(&pool), 6);
        world.end(pool, writer, 3);
    });
}

/// No memory is kept: the last publication of those that share a frame frees it.
#[test]
fn shared_and_given_away() {
    check(Some(2), || {
        let (world, pool, mut writer) = Sharing::new(0, &[1, 1, 2]);
        world.publish(&mut writer);
        let readers = [true, false].map(|holds| {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || {
                if holds {
                    world.look(world.lease(&pool).unwrap());
                } else {
                    world.visit(&pool);
                }
            })
        });
        for _ in 2..=3 {
            world.publish(&mut writer);
        }
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(world.visit(&pool), 3);
        world.end(pool, writer, 1);
    });
}

/// The publication is taken down and the next one put up, while it is read.
#[test]
fn reset() {
    check(None, || {
        let (world, pool, mut writer) = World::new(1);
        world.publish(&mut writer, 1).reap(&pool);
        let reader = {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || {
                let first = world.visit(&pool);
                world.object(&pool, true);
                first
            })
        };
        drop(writer.reset().reap(&pool));
        assert_eq!(world.visit(&pool), 0);
        world.publish(&mut writer, 2).reap(&pool);
        reader.join().unwrap();
        world.end(pool, writer);
    });
}

/// The writer ends while a lease is given back. Nothing is kept from then on: whichever of the two is last frees the frame.
#[test]
fn writer_ends() {
    check(None, || {
        let (world, pool, mut writer) = World::new(2);
        world.publish(&mut writer, 1).reap(&pool);
        let (sequence, lease) = world.lease(&pool).unwrap();
        let reader = thread::spawn(move || lease.check(sequence));
        drop(writer);
        reader.join().unwrap();
        assert_eq!(world.frames(), 0, "a frame is left");
        assert_eq!(pool.occupancy().contents, 0, "frames are miscounted");
    });
}

/// Nobody sleeps through a publication.
#[test]
fn waiting() {
    check(None, || {
        let (world, pool, mut writer) = World::new(2);
        let bell = Arc::new(Bell::default());
        let waiter = {
            let (world, pool, bell) = (world.clone(), pool.clone(), bell.clone());
            thread::spawn(move || {
                bell.wait(None, || (pool.latest_sequence() > 0).then_some(())).unwrap();
                assert_eq!(world.visit(&pool), 1);
            })
        };
        let _ = world.publish(&mut writer, 1);
        bell.ring();
        waiter.join().unwrap();
        world.end(pool, writer);
    });
}

/// Two waiters, for different publications.
#[test]
fn two_waiters() {
    check(Some(4), || {
        let (world, pool, mut writer) = World::new(2);
        let bell = Arc::new(Bell::default());
        let waiters = [1, 2].map(|wanted| {
            let (pool, bell) = (pool.clone(), bell.clone());
            thread::spawn(move || {
                bell.wait(None, || (pool.latest_sequence() >= wanted).then_some(())).unwrap();
            })
        });
        for sequence in 1..=2 {
            world.publish(&mut writer, sequence).reap(&pool);
            bell.ring();
        }
        for waiter in waiters {
            waiter.join().unwrap();
        }
        world.end(pool, writer);
    });
}
