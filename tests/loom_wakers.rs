//! Wakers left at the bell, in all interleavings of small models.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release --test loom_wakers
#![cfg(loom)]

use frames2py::publish::{Bell, Pool, Writer};
use loom::sync::Arc;
use loom::thread::{self, Thread};
use std::task::{Wake, Waker};

type Pages = Pool<u64, ()>;

/// Wakes a thread that is parked, as an event loop that waits for sockets is.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

fn check(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

fn publish(writer: &mut Writer<u64, ()>, bell: &Bell) {
    let (claim, _) = writer.claim().unwrap();
    writer.publish(claim, 0).retired.leave(&writer.pool().clone());
    bell.ring();
}

/// What an event loop does until `wanted` is published.
fn sleep_until(wanted: u64, pool: &Pages, bell: &Bell) {
    let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
    while pool.latest_sequence() < wanted {
        bell.arm(&waker);
        if pool.latest_sequence() >= wanted {
            break;
        }
        thread::park();
    }
    bell.disarm(&waker);
}

#[test]
fn arming() {
    check(None, || {
        let (pool, mut writer) = Pool::new(2);
        let bell = Arc::new(Bell::default());
        let task = {
            let (pool, bell) = (pool.clone(), bell.clone());
            thread::spawn(move || sleep_until(1, &pool, &bell))
        };
        publish(&mut writer, &bell);
        task.join().unwrap();
        assert_eq!(bell.waiters(), 0);
    });
}

#[test]
fn arming_again() {
    check(Some(5), || {
        let (pool, mut writer) = Pool::new(2);
        let bell = Arc::new(Bell::default());
        let task = {
            let (pool, bell) = (pool.clone(), bell.clone());
            thread::spawn(move || sleep_until(2, &pool, &bell))
        };
        (0..2).for_each(|_| publish(&mut writer, &bell));
        task.join().unwrap();
        assert_eq!(bell.waiters(), 0);
    });
}

#[test]
fn two_wakers() {
    check(Some(3), || {
        let (pool, mut writer) = Pool::new(2);
        let bell = Arc::new(Bell::default());
        let tasks = [1, 2].map(|wanted| {
            let (pool, bell) = (pool.clone(), bell.clone());
            thread::spawn(move || sleep_until(wanted, &pool, &bell))
        });
        (0..2).for_each(|_| publish(&mut writer, &bell));
        for task in tasks {
            task.join().unwrap();
        }
        assert_eq!(bell.waiters(), 0);
    });
}

/// A sleeper beside a waker: ringing for the one must not be all there is.
#[test]
fn a_waker_and_a_sleeper() {
    check(Some(4), || {
        let (pool, mut writer) = Pool::new(2);
        let bell = Arc::new(Bell::default());
        let task = {
            let (pool, bell) = (pool.clone(), bell.clone());
            thread::spawn(move || sleep_until(1, &pool, &bell))
        };
        let sleeper = {
            let (pool, bell) = (pool.clone(), bell.clone());
            thread::spawn(move || {
                bell.wait(None, || (pool.latest_sequence() > 0).then_some(())).unwrap();
            })
        };
        publish(&mut writer, &bell);
        task.join().unwrap();
        sleeper.join().unwrap();
        assert_eq!(bell.waiters(), 0);
    });
}

/// Nothing stays at the bell of one that takes its waker back while it rings.
#[test]
fn giving_up() {
    struct Nothing;
    impl Wake for Nothing {
        fn wake(self: std::sync::Arc<Self>) {}
    }
    check(None, || {
        let bell = Arc::new(Bell::default());
        let task = {
            let bell = bell.clone();
            thread::spawn(move || {
                let nothing = std::sync::Arc::new(Nothing);
                let waker = Waker::from(nothing.clone());
                bell.arm(&waker);
                bell.disarm(&waker);
                drop(waker);
                nothing
            })
        };
        bell.ring();
        let nothing = task.join().unwrap();
        assert_eq!(std::sync::Arc::strong_count(&nothing), 1);
        assert_eq!(bell.waiters(), 0);
    });
}
