//! Every kernel against a per-event oracle, whatever the split into calls.

use super::*;
use crate::accumulator::Accumulator;
use crate::engine::{Engine, Options};
use crate::event::Events;
use crate::event::tests::packed;
use proptest::prelude::*;
use std::sync::Mutex;
use std::time::Duration;

type Event = (u64, u16, u16, u8);

const W: usize = 3;
const H: usize = 2;

fn run(config: Config, calls: &[Vec<Event>]) -> (Accumulator, Option<u64>) {
    let sensor = SensorSize::new(W, H).unwrap();
    let mut accumulator = Accumulator::new(sensor, config.build(sensor).unwrap());
    for call in calls {
        accumulator.accumulate(Events::packed(&packed(call))).unwrap();
    }
    let watermark = accumulator.watermark();
    (accumulator, watermark)
}

fn read<T: bytemuck::Pod>(accumulator: &Accumulator, at: Option<u64>) -> Vec<T> {
    let mut out = Memory::zeroed("a test", accumulator.kernel().spec().bytes()).unwrap();
    out.bytes_mut().fill(0x5A);
    accumulator.kernel().read(out.bytes_mut(), at).unwrap();
    out.as_slice::<T>().to_vec()
}

fn inside(calls: &[Vec<Event>]) -> Vec<Event> {
    calls.iter().flatten().copied().filter(|&(_, x, y, _)| usize::from(x) < W && usize::from(y) < H).collect()
}

fn calls(base: u64) -> impl Strategy<Value = Vec<Vec<Event>>> {
    let event = (0..200u64, 0..W as u16 + 1, 0..H as u16 + 1, 0..3u8)
        .prop_map(move |(t, x, y, p)| (base + t, x, y, p));
    let hot = (0..200u64, 0..3u8).prop_map(move |(t, p)| (base + t, 1, 1, p));
    let few = prop::collection::vec(event.clone(), 0..12);
    // More than a block, most of them at one pixel.
    let many = prop::collection::vec(prop_oneof![1 => event, 4 => hot], 0..300);
    prop::collection::vec(prop_oneof![9 => few, 1 => many], 0..8)
}

/// The histogram of events that are all inside the sensor, one by one.
fn histogram_of(
    events: &[Event],
    (width, height): (usize, usize),
    bins: usize,
    bin_us: u64,
    at: Option<u64>,
) -> Vec<u32> {
    let mut counts = vec![0; 2 * bins * width * height];
    let Some(now) = at.map(|t| i128::from(t / bin_us)) else { return counts };
    for &(t, x, y, p) in events {
        let j = i128::from(t / bin_us) - (now - bins as i128);
        if (0..bins as i128).contains(&j) {
            let plane = usize::from(p != 0) * bins + j as usize;
            counts[(plane * height + usize::from(y)) * width + usize::from(x)] += 1;
        }
    }
    counts
}

/// The voxel grid of events that are all inside the sensor, one by one.
fn voxel_of(
    events: &[Event],
    (width, height): (usize, usize),
    bins: usize,
    bin_us: u64,
    at: Option<u64>,
) -> Vec<f32> {
    let mut numerators = vec![0i64; bins * width * height];
    if let Some(now) = at.map(|t| i128::from(t / bin_us)) {
        let first = now - bins as i128 + 1;
        for &(t, x, y, p) in events {
            let (q, r) = (i128::from(t / bin_us), (t % bin_us) as i64);
            if (first..now).contains(&q) {
                let sign = if p != 0 { 1 } else { -1 };
                let mut add = |j: i128, n: i64| {
                    numerators[(j as usize * height + usize::from(y)) * width + usize::from(x)] += sign * n;
                };
                add(q - first, bin_us as i64 - r);
                add(q - first + 1, r);
            }
        }
    }
    numerators.iter().map(|&n| (n as f64 / bin_us as f64) as f32).collect()
}

fn bases() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0, 1 << 32, (1 << 53) - 100, 1_700_000_000_000_000, (1 << 63) - 200])
}

proptest! {
    #[test]
    fn counts_and_surface(calls in bases().prop_flat_map(calls)) {
        let events = inside(&calls);
        let at = |x: usize, y: usize| events.iter().filter(move |e| (usize::from(e.1), usize::from(e.2)) == (x, y));
        let (mut count, mut polarity, mut surface) = (vec![], vec![], vec![]);
        for y in 0..H {
            for x in 0..W {
                count.push(at(x, y).count() as u32);
                polarity.push(at(x, y).filter(|e| e.3 == 0).count() as u32);
                polarity.push(at(x, y).filter(|e| e.3 != 0).count() as u32);
                surface.push(at(x, y).map(|e| e.0).max().unwrap_or(0));
            }
        }
        let (a, t) = run(Config::EventCount, &calls);
        prop_assert_eq!(t, events.iter().map(|e| e.0).max());
        prop_assert_eq!(a.out_of_bounds() as usize + events.len(), calls.iter().map(Vec::len).sum::<usize>());
        prop_assert_eq!(read::<u32>(&a, t), count);
        let (a, t) = run(Config::Polarity, &calls);
        prop_assert_eq!(read::<u32>(&a, t), polarity);
        let (a, t) = run(Config::TimeSurface, &calls);
        prop_assert_eq!(read::<u64>(&a, t), surface);
    }

    #[test]
    fn histogram(calls in bases().prop_flat_map(calls), bins in 1..5usize, bin_us in 1..60u64, ahead in 0..200u64) {
        let (a, t) = run(Config::StackedHistogram { bins, bin_us }, &calls);
        let at = t.map(|t| t + ahead);
        let expected = histogram_of(&inside(&calls), (W, H), bins, bin_us, at);
        prop_assert_eq!(read::<u32>(&a, at), expected);
    }

    #[test]
    fn voxel(calls in bases().prop_flat_map(calls), bins in 2..5usize, bin_us in 1..60u64, ahead in 0..200u64) {
        let (a, t) = run(Config::VoxelGrid { bins, bin_us }, &calls);
        let at = t.map(|t| t + ahead);
        let expected = voxel_of(&inside(&calls), (W, H), bins, bin_us, at);
        prop_assert_eq!(read::<f32>(&a, at), expected);
    }

    #[test]
    fn exp_decay(calls in calls(0), decay in prop::sample::select(vec![0.5, 0.9, 1e-60, 0.999_999])) {
        let mut expected = vec![0f64; W * H];
        for call in &calls {
            expected.iter_mut().for_each(|v| *v *= decay);
            for (_, x, y, _) in inside(std::slice::from_ref(call)) {
                expected[usize::from(y) * W + usize::from(x)] += 1.0;
            }
        }
        let (a, t) = run(Config::ExpDecay { decay }, &calls);
        for (got, want) in read::<f32>(&a, t).into_iter().zip(expected) {
            prop_assert!(ulps(got, want as f32) <= 1, "{} {}", got, want);
        }
    }

    #[test]
    fn timestamp_decay(
        calls in bases().prop_flat_map(calls),
        tau_us in prop::sample::select(vec![0.1, 1.0, 7.5, 100.0, 1e6, 1e300]),
        ahead in 0..50u64,
    ) {
        let (a, t) = run(Config::TimestampDecay { tau_us }, &calls);
        let at = t.map(|t| t + ahead);
        let mut expected = vec![0f64; W * H];
        for (t, x, y, _) in inside(&calls) {
            let age = (at.unwrap() - t) as f64;
            expected[usize::from(y) * W + usize::from(x)] += (-age / tau_us).exp();
        }
        for (got, want) in read::<f32>(&a, at).into_iter().zip(expected) {
            prop_assert!(ulps(got, want as f32) <= 1, "{} {}", got, want);
        }
    }

    #[test]
    fn reset_and_publish_start_anew(calls in calls(77)) {
        let sensor = SensorSize::new(W, H).unwrap();
        for config in configs() {
            let (mut used, at) = run(config, &calls);
            let frame = read::<u8>(&used, at);
            let mut spare = Memory::zeroed("a test", used.kernel().spec().bytes()).unwrap();
            spare.bytes_mut().fill(0x5A);
            let published = used.kernel_mut().publish(spare, at).unwrap();
            prop_assert_eq!(published.bytes(), &frame[..]);
            let windowed = matches!(config, Config::EventCount | Config::Polarity);
            let after = if windowed { vec![0; frame.len()] } else { frame };
            prop_assert_eq!(read::<u8>(&used, at), after);

            used.reset().unwrap();
            let mut new = Accumulator::new(sensor, config.build(sensor).unwrap());
            for call in calls.iter().rev() {
                used.accumulate(Events::packed(&packed(call))).unwrap();
                new.accumulate(Events::packed(&packed(call))).unwrap();
            }
            prop_assert_eq!(used.watermark(), new.watermark());
            prop_assert_eq!(read::<u8>(&used, used.watermark()), read::<u8>(&new, new.watermark()));
        }
    }
}

/// Every kernel, some with lists that never fill up and some with such that soon do.
fn configs() -> Vec<Config> {
    vec![
        Config::EventCount,
        Config::Polarity,
        Config::TimeSurface,
        Config::ExpDecay { decay: 0.5 },
        Config::ExpDecay { decay: 1e-60 },
        Config::TimestampDecay { tau_us: 10.0 },
        Config::TimestampDecay { tau_us: 0.1 },
        Config::StackedHistogram { bins: 1, bin_us: 20 },
        Config::StackedHistogram { bins: 3, bin_us: 9 },
        Config::VoxelGrid { bins: 2, bin_us: 20 },
        Config::VoxelGrid { bins: 4, bin_us: 9 },
    ]
}

proptest! {
    /// Publications are what an accumulator reads at their time, whenever they are first looked at, and whatever came since:
    /// late events, later publications in the same memory, a reset.
    #[test]
    fn what_was_published_stays(
        calls in bases().prop_flat_map(calls),
        large in any::<bool>(),
        looks in prop::collection::vec((any::<bool>(), 0..4usize), 8),
        reset in 0..8usize,
    ) {
        let sensor = if large { SensorSize::new(64, 40) } else { SensorSize::new(W, H) }.unwrap();
        for config in configs() {
            let options = Options { interval: Duration::ZERO, keep: 2, guard: false };
            let engine: Engine<()> = Engine::new(sensor, config.build(sensor).unwrap(), options).unwrap();
            let mut reference = Accumulator::new(sensor, config.build(sensor).unwrap());
            let mut held = Vec::new();
            // Twice: the second time late, as a whole.
            for (i, call) in calls.iter().chain(&calls).enumerate() {
                let bytes = packed(call);
                let mut session = engine.session("a test", Mutex::lock).unwrap();
                if i == reset {
                    let _ = session.reset().unwrap();
                    reference.reset().unwrap();
                }
                let _ = session.ingest(Events::packed(&bytes)).unwrap();
                drop(session);
                reference.accumulate(Events::packed(&bytes)).unwrap();
                let expected = read::<u8>(&reference, reference.watermark());
                reference.kernel_mut().close_window().unwrap();
                let lease = engine.publisher().pool().read().unwrap().lease(engine.publisher().pool());
                let (at_once, keep) = looks[i % looks.len()];
                if at_once {
                    prop_assert_eq!(lease.frame.memory().unwrap().bytes(), &expected[..]);
                }
                held.push((lease, expected));
                if held.len() > keep {
                    let (lease, expected) = held.remove(0);
                    prop_assert_eq!(lease.frame.memory().unwrap().bytes(), &expected[..]);
                }
            }
            for (lease, expected) in held {
                prop_assert_eq!(lease.frame.memory().unwrap().bytes(), &expected[..]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_rejected_call_changes_nothing(
        before in calls(77),
        mut bad in prop::collection::vec((0..1_000u64, 0..W as u16 + 1, 0..H as u16 + 1, 0..3u8), 1..1_000),
        at in any::<prop::sample::Index>(),
        t in prop::sample::select(vec![1 << 63, (1 << 63) + 12, u64::MAX]),
        after in calls(300),
    ) {
        let at = at.index(bad.len());
        bad[at].0 = t;
        for config in configs() {
            let (mut used, watermark) = run(config, &before);
            let (mut never, _) = run(config, &before);
            let (out_of_bounds, frame) = (used.out_of_bounds(), read::<u8>(&used, watermark));
            let error = used.accumulate(Events::packed(&packed(&bad))).unwrap_err();
            prop_assert!(matches!(error, crate::error::Error::Timestamp { t: told } if told == t), "{:?}", error);
            prop_assert_eq!((used.watermark(), used.out_of_bounds()), (watermark, out_of_bounds));
            prop_assert_eq!(read::<u8>(&used, watermark), frame);
            for call in &after {
                used.accumulate(Events::packed(&packed(call))).unwrap();
                never.accumulate(Events::packed(&packed(call))).unwrap();
            }
            prop_assert_eq!(used.watermark(), never.watermark());
            prop_assert_eq!(read::<u8>(&used, used.watermark()), read::<u8>(&never, never.watermark()));
        }
    }
}

#[test]
fn sums_beyond_32_bits_are_exact() {
    // 20 events of almost 2^28 each on a pixel; on the other, as many of both signs.
    let (bin_us, sensor) = ((1 << 28) - 1, SensorSize::new(128, 2).unwrap());
    let mut accumulator =
        Accumulator::new(sensor, Config::VoxelGrid { bins: 3, bin_us }.build(sensor).unwrap());
    let call: Vec<Event> = (0..40).map(|i| (bin_us + 3, (i % 2) as u16, 0, u8::from(i % 4 != 3))).collect();
    accumulator.accumulate(Events::packed(&packed(&call))).unwrap();
    accumulator.accumulate(Events::packed(&packed(&[(3 * bin_us, 5, 1, 1)]))).unwrap();
    let frame = read::<f32>(&accumulator, Some(3 * bin_us));
    let value = |n: u64| (n as f64 / bin_us as f64) as f32;
    assert_eq!(&frame[..2], [value(20 * (bin_us - 3)), 0.0]);
    assert_eq!(&frame[256..258], [value(60), 0.0]);
    assert!(frame[2..256].iter().chain(&frame[258..]).all(|&value| value == 0.0));
}

#[test]
fn kept_sums_that_fit_into_32_bits_make_knots_that_do_not() {
    // 7 events of almost 2^28 at the end of a bin, 7 at the start of the next.
    let (bin_us, sensor) = ((1 << 28) - 1, SensorSize::new(2, 2).unwrap());
    let config = Config::VoxelGrid { bins: 3, bin_us };
    for p in [0, 1] {
        let options = Options { interval: Duration::ZERO, ..Options::default() };
        let engine: Engine<()> = Engine::new(sensor, config.build(sensor).unwrap(), options).unwrap();
        let ingest = |call: &[Event]| {
            let _ = engine.session("a test", Mutex::lock).unwrap().ingest(Events::packed(&packed(call)));
        };
        ingest(&[[(bin_us - 1, 1, 0, p); 7], [(bin_us, 1, 0, p); 7]].concat());
        for i in 0..5 {
            ingest(&[(2 * bin_us + i, 0, 0, 1)]);
            let visit = engine.publisher().pool().read().unwrap();
            let frame: &[f32] = bytemuck::cast_slice(visit.content().frame.memory().unwrap().bytes());
            let sign = if p == 1 { 1.0 } else { -1.0 };
            let value = |n: u64| sign * (n as f64 / bin_us as f64) as f32;
            let knots: Vec<f32> = frame.chunks(4).map(|knot| knot[1]).collect();
            assert_eq!(knots, [value(7), value(14 * bin_us - 7), 0.0]);
        }
    }
}

#[test]
fn bins_that_are_read_again_and_again_stay_what_they_are() {
    // So many events in a bin that its sums are kept, some in more than a byte; late ones change them; more than a list is for
    // go to planes; at last sums of more than 32 bits.
    let sensor = SensorSize::new(16, 8).unwrap();
    let bin_us = (1 << 28) - 1;
    for (config, bin_us) in [
        (Config::StackedHistogram { bins: 4, bin_us: 100 }, 100),
        (Config::VoxelGrid { bins: 5, bin_us: 100 }, 100),
        (Config::VoxelGrid { bins: 5, bin_us }, bin_us),
    ] {
        let options = Options { interval: Duration::ZERO, ..Options::default() };
        let engine: Engine<()> = Engine::new(sensor, config.build(sensor).unwrap(), options).unwrap();
        let mut all: Vec<Event> = Vec::new();
        let mut held = std::collections::VecDeque::new();
        for i in 0..170_u64 {
            let size = [20, 120, 40, 300, 5, 700, 0][(i / 8 % 7) as usize];
            let event = |j: u64| {
                let late = if j % 7 == 3 && i % 3 == 0 { 3 * bin_us / 2 } else { 0 };
                let t = (i * bin_us / 4 + j * bin_us / 3000 + 2 * bin_us).saturating_sub(late);
                // One pixel gets most of a sign.
                let (x, y) = if !j.is_multiple_of(4) { (3, 3) } else { (j % 16, j / 16 % 8) };
                (t, x as u16, y as u16, u8::from(!j.is_multiple_of(5)))
            };
            let call: Vec<Event> = (0..size).map(event).collect();
            let ingest = |call: &[Event]| {
                engine.session("a test", Mutex::lock).unwrap().ingest(Events::packed(&packed(call))).map(drop)
            };
            // One that is rejected when some of it was taken in, also to bins that are yet to come.
            let mut rejected: Vec<Event> = (0..size + 300).map(event).collect();
            rejected.iter_mut().for_each(|event| event.0 += i % 5 * bin_us);
            rejected.push((1 << 63, 0, 0, 0));
            if i % 3 != 1 {
                assert!(matches!(ingest(&rejected), Err(Error::Timestamp { t }) if t == 1 << 63));
            }
            ingest(&call).unwrap();
            all.extend(call);
            let at = all.iter().map(|event| event.0).max();
            // What is shown no more.
            all.retain(|event| event.0 + 10 * bin_us > at.unwrap());
            let expected: Vec<u8> = match config {
                Config::StackedHistogram { bins, .. } => {
                    bytemuck::cast_slice(&histogram_of(&all, (16, 8), bins, bin_us, at)).to_vec()
                }
                Config::VoxelGrid { bins, .. } => {
                    bytemuck::cast_slice(&voxel_of(&all, (16, 8), bins, bin_us, at)).to_vec()
                }
                _ => unreachable!(),
            };
            let lease = engine.publisher().pool().read().unwrap().lease(engine.publisher().pool());
            if i % 5 != 4 {
                assert_eq!(lease.frame.memory().unwrap().bytes(), expected, "{config:?} {i}");
            }
            // Some are read when their bins have long changed.
            held.push_back((lease, expected));
            if held.len() > (i % 6) as usize {
                let (lease, expected) = held.pop_front().unwrap();
                assert_eq!(lease.frame.memory().unwrap().bytes(), expected, "{config:?} {i}, late");
            }
        }
    }
}

#[test]
fn a_frame_that_nobody_looks_at_has_no_memory() {
    let sensor = SensorSize::new(64, 40).unwrap();
    for config in configs() {
        let options = Options { interval: Duration::ZERO, ..Options::default() };
        let engine: Engine<()> = Engine::new(sensor, config.build(sensor).unwrap(), options).unwrap();
        let mut reference = Accumulator::new(sensor, config.build(sensor).unwrap());
        let mut ingest = |t: u64| {
            let bytes = packed(&[(t, 1, 1, 1)]);
            let _ = engine.session("a test", Mutex::lock).unwrap().ingest(Events::packed(&bytes));
            reference.accumulate(Events::packed(&bytes)).unwrap();
            let frame = read::<u8>(&reference, reference.watermark());
            reference.kernel_mut().close_window().unwrap();
            frame
        };
        (0..100).for_each(|t| drop(ingest(t)));
        assert_eq!(engine.frame_bytes(), 0);
        let pool = engine.publisher().pool();
        for t in 100..200 {
            let expected = ingest(t);
            assert_eq!(pool.read().unwrap().content().frame.memory().unwrap().bytes(), expected);
        }
        assert!((1..=3).contains(&(engine.frame_bytes() / config.spec(sensor).bytes().unwrap())));
    }
}

#[test]
fn more_events_than_a_list_is_for_are_published_whole() {
    // Calls around the sizes from which on no list is kept, and from which on it overflows; some at one pixel.
    let sensor = SensorSize::new(64, 40).unwrap();
    for config in configs() {
        let options = Options { interval: Duration::ZERO, ..Options::default() };
        let engine: Engine<()> = Engine::new(sensor, config.build(sensor).unwrap(), options).unwrap();
        let mut reference = Accumulator::new(sensor, config.build(sensor).unwrap());
        let sizes = [
            159, 160, 161, 160, 1, 300, 319, 320, 321, 0, 10, 640, 641, 5, 5, 2560, 100, 320, 320, 320, 1, 1,
        ];
        for (i, size) in (0..60u64).zip(sizes.into_iter().cycle()) {
            let event = |j: u64| {
                let pixel =
                    if i.is_multiple_of(3) && !j.is_multiple_of(4) { 7 } else { (j * 37 + i * 11) % 2560 };
                (i * 3 + j % 5, (pixel % 64) as u16, (pixel / 64) as u16, (j % 2) as u8)
            };
            let bytes = packed(&(0..size).map(event).collect::<Vec<_>>());
            let _ = engine.session("a test", Mutex::lock).unwrap().ingest(Events::packed(&bytes)).unwrap();
            reference.accumulate(Events::packed(&bytes)).unwrap();
            if i % 5 < 2 {
                let expected = read::<u8>(&reference, reference.watermark());
                let visit = engine.publisher().pool().read().unwrap();
                assert_eq!(visit.content().frame.memory().unwrap().bytes(), expected, "{config:?} {i}");
            }
            reference.kernel_mut().close_window().unwrap();
        }
    }
}

/// Event `j` of call `i`: in every other call most are at one pixel.
fn one_of_a_call(i: u64, j: u64) -> Event {
    let pixel = if i % 2 == 1 && j % 5 > 1 { 7 } else { (j * 37 + i * 11) % 2560 };
    (i * 30 + j * 7 % 60, (pixel % 64) as u16, (pixel / 64) as u16, 1)
}

#[test]
fn lists_that_fill_up_lose_nothing() {
    // Nobody looks before the last publication, so all that came is put together then.
    let sensor = SensorSize::new(64, 40).unwrap();
    let place = |event: &Event| usize::from(event.2) * 64 + usize::from(event.1);
    for publications in 1..50 {
        let calls: Vec<Vec<Event>> =
            (0..publications).map(|i| (0..100).map(|j| one_of_a_call(i, j)).collect()).collect();
        let last = |config: Config| {
            let options = Options { interval: Duration::ZERO, ..Options::default() };
            let engine: Engine<()> = Engine::new(sensor, config.build(sensor).unwrap(), options).unwrap();
            for call in &calls {
                let bytes = packed(call);
                let _ =
                    engine.session("a test", Mutex::lock).unwrap().ingest(Events::packed(&bytes)).unwrap();
            }
            let visit = engine.publisher().pool().read().unwrap();
            assert_eq!(visit.sequence(), publications);
            visit.content().frame.memory().unwrap().bytes().to_vec()
        };
        let mut surface = vec![0; 2560];
        for event in calls.iter().flatten() {
            surface[place(event)] = event.0.max(surface[place(event)]);
        }
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, u64>(&last(Config::TimeSurface)), surface);

        let mut decayed = vec![0f64; 2560];
        for call in &calls {
            decayed.iter_mut().for_each(|value| *value *= 0.75);
            call.iter().for_each(|event| decayed[place(event)] += 1.0);
        }
        let now = calls.iter().flatten().map(|event| event.0).max().unwrap();
        let mut faded = vec![0f64; 2560];
        for event in calls.iter().flatten() {
            faded[place(event)] += (-((now - event.0) as f64) / 500.0).exp();
        }
        for (config, expected) in
            [(Config::ExpDecay { decay: 0.75 }, decayed), (Config::TimestampDecay { tau_us: 500.0 }, faded)]
        {
            let frame = bytemuck::pod_collect_to_vec::<u8, f32>(&last(config));
            for (pixel, (&got, want)) in frame.iter().zip(expected).enumerate() {
                assert!(ulps(got, want as f32) <= 1, "{config:?}, pixel {pixel}: {got} {want}");
            }
        }
    }
}

fn ulps(a: f32, b: f32) -> u32 {
    a.to_bits().abs_diff(b.to_bits())
}

#[test]
fn a_stream_of_days_keeps_its_precision() {
    // A day at 1 Hz on one pixel with a time constant of an hour, starting at a Unix time.
    let tau_us = 3_600e6;
    let start = 1_700_000_000_000_000u64;
    let times: Vec<u64> = (0..86_400).map(|i| start + i * 1_000_000).collect();
    let calls: Vec<Vec<Event>> =
        times.chunks(1000).map(|c| c.iter().map(|&t| (t, 0, 0, 1)).collect()).collect();
    let (a, t) = run(Config::TimestampDecay { tau_us }, &calls);
    let exact: f64 = times.iter().rev().map(|&x| (-((t.unwrap() - x) as f64) / tau_us).exp()).sum();
    assert!(ulps(read::<f32>(&a, t)[0], exact as f32) <= 1);
}

#[test]
fn sizes_that_overflow_are_out_of_memory() {
    let sensor = SensorSize::new(1 << 16, 1 << 16).unwrap();
    for bins in [1 << 20, usize::MAX] {
        assert!(Config::StackedHistogram { bins, bin_us: 1 }.build(sensor).is_err());
        assert!(Config::VoxelGrid { bins, bin_us: 1 }.build(sensor).is_err());
    }
}
