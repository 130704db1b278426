#![allow(unsafe_code)]

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread;

fn fill(writer: &mut Writer<Publication, ()>, value: u8) -> u64 {
    let (claim, left) = writer.claim().unwrap();
    let mut frame = left.map_or_else(
        || Memory::zeroed("a test", Some(4096)).unwrap(),
        |left| left.frame.into_made().unwrap(),
    );
    frame.bytes_mut().fill(value);
    let published =
        writer.publish(claim, Publication { frame: frame.into(), watermark: Some(u64::from(value)) });
    assert_eq!(published.retired.reap(writer.pool()), None);
    published.sequence
}

fn address(lease: &Lease<Publication, ()>) -> *const u8 {
    lease.frame.memory().unwrap().bytes().as_ptr()
}

fn latest(publisher: &Publisher<()>) -> Lease<Publication, ()> {
    publisher.pool().read().unwrap().lease(publisher.pool())
}

#[test]
fn numbers_rise_across_a_reset() {
    let (publisher, mut writer) = Publisher::<()>::new(4);
    assert!(publisher.pool().read().is_none());
    assert_eq!([fill(&mut writer, 1), fill(&mut writer, 2)], [1, 2]);
    assert_eq!(publisher.pool().read().unwrap().sequence(), 2);
    let _ = writer.reset();
    assert!(publisher.pool().read().is_none());
    assert_eq!(publisher.pool().latest_sequence(), 0);
    assert_eq!(fill(&mut writer, 3), 3);
    assert_eq!(publisher.pool().read().unwrap().sequence(), 3);
}

#[test]
fn a_held_publication_stays_and_its_memory_comes_back() {
    let (publisher, mut writer) = Publisher::<()>::new(4);
    fill(&mut writer, 1);
    let held = latest(&publisher);
    let place = address(&held);
    for value in 2..20 {
        fill(&mut writer, value);
        assert_eq!(held.frame.memory().unwrap().bytes(), [1; 4096]);
    }
    assert_eq!(publisher.pool().occupancy(), Occupancy { slots: 3, leased: 2, one_off: 0, contents: 3 });
    drop(held);
    assert_eq!(publisher.pool().occupancy(), Occupancy { slots: 3, leased: 1, one_off: 0, contents: 3 });
    fill(&mut writer, 20);
    assert_eq!(address(&latest(&publisher)), place);
}

#[test]
fn memory_that_was_out_of_sight_is_cleared() {
    let mut memory = Memory::zeroed("a test", Some(64)).unwrap();
    memory.clear();
    let address = memory.bytes().as_ptr().cast_mut();
    // SAFETY: the memory is mapped for writing, and no reference to it exists.
    unsafe { address.write(9) };
    let mut memory = memory.recycled().unwrap();
    memory.clear();
    assert_eq!(memory.bytes(), [0; 64]);
}

#[test]
fn slots_beyond_those_kept_give_their_memory_away() {
    let (publisher, mut writer) = Publisher::<()>::new(2);
    let mut held = Vec::new();
    for value in 0..200 {
        fill(&mut writer, value);
        held.push(latest(&publisher));
    }
    for (value, lease) in held.iter().enumerate() {
        assert!(lease.frame.memory().unwrap().bytes().iter().all(|&b| usize::from(b) == value));
    }
    assert_eq!(
        publisher.pool().occupancy(),
        Occupancy { slots: 200, leased: 200, one_off: 198, contents: 200 }
    );
    held.clear();
    assert_eq!(publisher.pool().occupancy(), Occupancy { slots: 200, leased: 1, one_off: 1, contents: 3 });
    let mut left = Vec::new();
    for _ in 0..199 {
        let (claim, content) = writer.claim().unwrap();
        left.push((claim, content.is_some()));
    }
    assert_eq!(left.iter().filter(|(_, kept)| *kept).count(), 2);
}

#[test]
fn leases_outlive_the_publisher() {
    let (publisher, mut writer) = Publisher::<()>::new(2);
    fill(&mut writer, 7);
    let lease = latest(&publisher);
    drop((publisher, writer));
    assert_eq!(lease.frame.memory().unwrap().bytes(), [7; 4096]);
}

#[test]
fn without_a_writer_nothing_is_kept_but_what_is_held() {
    let (publisher, mut writer) = Publisher::<()>::new(8);
    let mut held = Vec::new();
    for value in 0..12 {
        fill(&mut writer, value);
        held.push(latest(&publisher));
    }
    held.drain(1..11);
    assert_eq!(publisher.pool().occupancy().contents, 8 + 1);
    drop(writer);
    assert_eq!(publisher.pool().occupancy().contents, 2);
    held.pop();
    assert_eq!(publisher.pool().occupancy().contents, 1);
    assert_eq!(held[0].frame.memory().unwrap().bytes(), [0; 4096]);
}

#[test]
fn what_is_newer_already_is_found_at_once() {
    let (publisher, mut writer) = Publisher::<()>::new(2);
    assert!(!publisher.wait_newer(None, Some(Instant::now())));
    fill(&mut writer, 1);
    assert!(publisher.wait_newer(None, None));
    assert!(publisher.wait_newer(Some(0), None));
    assert!(!publisher.wait_newer(Some(1), Some(Instant::now())));
}

#[test]
fn readers_see_whole_publications_in_order_and_all_comes_back() {
    let (publisher, mut writer) = Publisher::<()>::new(3);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for hold in 0..4 {
            let (publisher, done) = (&publisher, &done);
            scope.spawn(move || {
                let (mut last, mut held) = (0, Vec::new());
                while !done.load(Ordering::Relaxed) {
                    let Some(visit) = publisher.pool().read() else { continue };
                    assert!(visit.sequence() >= last);
                    last = visit.sequence();
                    let lease = visit.lease(publisher.pool());
                    drop(visit);
                    let value = lease.watermark.unwrap();
                    assert!(lease.frame.memory().unwrap().bytes().iter().all(|&b| u64::from(b) == value));
                    held.push(lease);
                    if held.len() > hold * 5 {
                        held.clear();
                    }
                }
            });
        }
        for waiter in 0..2 {
            let publisher = &publisher;
            scope.spawn(move || {
                let mut last = 0;
                while last < 5_000 {
                    assert!(publisher.wait_newer(Some(last), None));
                    let now = publisher.pool().latest_sequence();
                    assert!(now > last, "{waiter}");
                    last = now;
                }
            });
        }
        for i in 0..5_000u64 {
            fill(&mut writer, i as u8);
            publisher.announce();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(publisher.pool().occupancy().leased, 1);
}

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn woken(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn an_armed_waker_is_woken_once() {
    let (bell, one, other) = (Bell::default(), Arc::new(Count::default()), Arc::new(Count::default()));
    let (first, second) = (Waker::from(one.clone()), Waker::from(other.clone()));
    bell.ring();
    bell.arm(&first);
    bell.arm(&first);
    bell.arm(&second);
    assert_eq!((one.woken(), other.woken(), bell.waiters()), (0, 0, 2));
    bell.ring();
    assert_eq!(bell.waiters(), 0);
    assert_eq!((one.woken(), other.woken()), (1, 1));
    bell.ring();
    assert_eq!((one.woken(), other.woken()), (1, 1));
    bell.arm(&second);
    bell.ring();
    assert_eq!((one.woken(), other.woken()), (1, 2));
}

#[test]
fn a_waker_taken_back_is_not_woken_and_not_kept() {
    let (bell, count) = (Bell::default(), Arc::new(Count::default()));
    let waker = Waker::from(count.clone());
    let same = waker.clone();
    bell.disarm(&waker);
    bell.arm(&waker);
    bell.disarm(&same);
    assert_eq!(bell.waiters(), 0);
    bell.ring();
    assert_eq!(count.woken(), 0);
    drop((waker, same));
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn a_bell_lets_go_of_wakers_it_woke() {
    let (bell, count) = (Bell::default(), Arc::new(Count::default()));
    bell.arm(&Waker::from(count.clone()));
    assert_eq!(Arc::strong_count(&count), 2);
    bell.ring();
    assert_eq!((count.woken(), Arc::strong_count(&count)), (1, 1));
}

#[test]
fn a_waker_may_use_the_bell_that_wakes_it() {
    struct Again(Arc<Bell>, AtomicUsize);
    impl Wake for Again {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.arm(&Waker::from(Arc::clone(&self)));
        }
    }
    let again = Arc::new(Again(Arc::default(), AtomicUsize::new(0)));
    let waker = Waker::from(again.clone());
    again.0.arm(&waker);
    (0..3).for_each(|_| again.0.ring());
    assert_eq!(again.1.load(Ordering::SeqCst), 3);
    again.0.disarm(&waker);
}

/// Wakes a thread that is parked.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn no_publication_is_lost_on_those_who_arm_and_look_and_none_on_those_who_sleep_beside_them() {
    const LAST: u64 = 20_000;
    let (publisher, mut writer) = Publisher::<()>::new(3);
    let seen = [const { std::sync::atomic::AtomicU64::new(0) }; 3];
    thread::scope(|scope| {
        for seen in &seen[..2] {
            let publisher = &publisher;
            scope.spawn(move || {
                let waker = Waker::from(Arc::new(Unpark(thread::current())));
                let mut last = 0;
                while last < LAST {
                    while !publisher.has_newer(Some(last)) {
                        publisher.bell().arm(&waker);
                        if !publisher.has_newer(Some(last)) {
                            thread::park();
                        }
                    }
                    last = publisher.pool().latest_sequence();
                    seen.store(last, Ordering::SeqCst);
                }
            });
        }
        let (asleep, sleeper) = (&publisher, &seen[2]);
        scope.spawn(move || {
            let mut last = 0;
            while last < LAST {
                assert!(asleep.wait_newer(Some(last), None));
                last = asleep.pool().latest_sequence();
                sleeper.store(last, Ordering::SeqCst);
            }
        });
        for i in 0..LAST {
            fill(&mut writer, i as u8);
            publisher.announce();
            // In lock step with all of them now and then: whoever missed this one would sleep for ever.
            while i % 4 == 0 && seen.iter().any(|seen| seen.load(Ordering::SeqCst) <= i) {
                thread::yield_now();
            }
        }
    });
    publisher.announce();
    assert_eq!(publisher.bell().waiters(), 0);
}
