//! In the steady state, ingesting and publishing allocate nothing, whoever reads.

use frames2py::engine::{Engine, Options};
use frames2py::event::Events;
use frames2py::geometry::SensorSize;
use frames2py::kernels::Config;
use frames2py::publish::{Lease, Publication};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CONFIGS: [Config; 7] = [
    Config::EventCount,
    Config::Polarity,
    Config::TimeSurface,
    Config::ExpDecay { decay: 0.9 },
    Config::TimestampDecay { tau_us: 100.0 },
    Config::StackedHistogram { bins: 3, bin_us: 100 },
    Config::VoxelGrid { bins: 3, bin_us: 100 },
];

/// Events of which each comes `step` µs after the one before.
fn events(count: u64, step: u64) -> Vec<u8> {
    (0..count)
        .flat_map(|i| {
            let mut record = [0; 13];
            record[..8].copy_from_slice(&(i * step).to_le_bytes());
            record[8] = (i % 70) as u8;
            record[10] = (i % 50) as u8;
            record[12] = (i % 2) as u8;
            record
        })
        .collect()
}

/// Moves all of them on.
fn advance(events: &mut [u8], by: u64) {
    for record in events.chunks_exact_mut(13) {
        let t = u64::from_le_bytes(record[..8].try_into().unwrap());
        record[..8].copy_from_slice(&(t + by).to_le_bytes());
    }
}

/// Publication number `i`. Of every one in `wanted` the frame is made; of none, if that is 0.
fn publish(engine: &Engine<()>, events: &[u8], i: usize, wanted: usize) -> Lease<Publication, ()> {
    let pool = engine.publisher().pool();
    let mut session = engine.session("ingest", Mutex::lock).unwrap();
    let retired = session.ingest(Events::packed(events)).unwrap();
    drop(session);
    assert!(retired.unwrap().reap(pool).is_none());
    let lease = pool.read().unwrap().lease(pool);
    if wanted > 0 && i.is_multiple_of(wanted) {
        lease.frame.memory().unwrap();
    }
    lease
}

/// One test, as another one's thread, and what starts it, would be counted.
#[test]
fn publishing_allocates_nothing_in_the_steady_state() {
    each_publication_has_a_frame_or_a_list();
    publications_share_frames();
}

fn each_publication_has_a_frame_or_a_list() {
    let sensor = SensorSize::new(64, 48).unwrap();
    let events = events(5000, 7);
    // Many events, and so few that a publication of a surface is a list of them; frames wanted never, at times and always.
    for (count, wanted) in [(5000, 0), (150, 0), (150, 3), (150, 1)] {
        let events = &events[..13 * count];
        for config in CONFIGS {
            let options = Options { interval: Duration::ZERO, ..Options::default() };
            let engine: Engine<()> = Engine::new(sensor, config.build(sensor).unwrap(), options).unwrap();
            let mut held: [_; 3] = std::array::from_fn(|_| None);
            let mut round = |i: usize| held[i % 3] = Some(publish(&engine, events, i, wanted));
            // Until lists of late events have been as long as they get, and all has been scaled anew once.
            (0..3000).for_each(&mut round);
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            (0..500).for_each(&mut round);
            let made = ALLOCATIONS.load(Ordering::Relaxed) - before;
            assert_eq!(made, 0, "{}: {count} events, {wanted}", config.name());
            assert!(engine.occupancy().slots <= 6);
        }
    }
}

fn publications_share_frames() {
    let sensor = SensorSize::new(64, 48).unwrap();
    for config in &CONFIGS[5..] {
        // Windows that move with every tenth publication, every second or third, and with each.
        for (wanted, by) in [(0, 10), (1, 10), (3, 10), (7, 10), (1, 40), (2, 40), (1, 150)] {
            let mut events = events(150, 1);
            let options = Options { interval: Duration::ZERO, ..Options::default() };
            let engine: Engine<()> = Engine::new(sensor, config.build(sensor).unwrap(), options).unwrap();
            let mut held: [_; 3] = std::array::from_fn(|_| None);
            let mut round = |i: usize| {
                held[i % 3] = Some(publish(&engine, &events, i, wanted));
                advance(&mut events, by);
            };
            (0..300).for_each(&mut round);
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            let frames = engine.frame_bytes();
            (0..500).for_each(&mut round);
            let made = ALLOCATIONS.load(Ordering::Relaxed) - before;
            assert_eq!(made, 0, "{}: {wanted}, {by} µs", config.name());
            assert_eq!(engine.frame_bytes(), frames, "{}: {wanted}, {by} µs", config.name());
            assert!(engine.occupancy().slots <= 6);
        }
    }
}
