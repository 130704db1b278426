//! Blocks against the definition, in every way a machine has.

use super::*;
use proptest::prelude::*;

/// Records in a layout, from `(t, x, y, p)` tuples.
fn records(events: &[(u64, u16, u16, u8)], layout: Layout) -> Vec<u8> {
    let mut bytes = vec![0xAA; events.len() * layout.stride];
    for (record, &(t, x, y, p)) in bytes.chunks_exact_mut(layout.stride).zip(events) {
        record[layout.t..layout.t + 8].copy_from_slice(&t.to_le_bytes());
        record[layout.x..layout.x + 2].copy_from_slice(&x.to_le_bytes());
        record[layout.y..layout.y + 2].copy_from_slice(&y.to_le_bytes());
        record[layout.p] = p;
    }
    bytes
}

/// Records as recordings and `EVENT_DTYPE` have them.
pub(crate) fn packed(events: &[(u64, u16, u16, u8)]) -> Vec<u8> {
    records(events, Layout::PACKED)
}

fn check(isa: Isa, count: usize, layout: Layout) {
    let sensor = SensorSize::new(7, 5).unwrap();
    let events: Vec<_> = (0..count as u64)
        .map(|i| (i * 37 % 1009, (i * 11 % 9) as u16, (i * 5 % 6) as u16, (i % 3) as u8))
        .collect();
    let bytes = records(&events, layout);
    // SAFETY: `bytes` holds `count` records and outlives the call.
    let raw = unsafe { Events::from_raw(bytes.as_ptr(), count, layout) };
    let mut block = Block::new(isa);
    let mut call = Call::check(raw, sensor, &mut block, Needs::ALL).unwrap();
    let mut seen = Vec::new();
    let found = call
        .for_each_block(|c, latest| {
            assert_eq!(c.t.iter().max(), Some(&latest));
            for i in 0..c.t.len() {
                seen.push((c.t[i], c.pixel[i], c.p[i]));
            }
            Ok::<_, ()>(())
        })
        .unwrap();
    assert_eq!(call.count(), found);

    let inside: Vec<_> = events.iter().filter(|e| e.1 < 7 && e.2 < 5).collect();
    assert_eq!(found.events, count as u64);
    assert_eq!(found.in_bounds(), inside.len() as u64);
    assert_eq!(found.latest, inside.iter().map(|e| e.0).max());
    let expected: Vec<_> =
        inside.iter().map(|&&(t, x, y, p)| (t, u32::from(y) * 7 + u32::from(x), p)).collect();
    assert_eq!(seen, expected);
}

#[test]
fn every_layout_and_length_gives_the_same_columns() {
    let layouts = [
        Layout::PACKED,
        Layout::new(16, 0, 8, 10, 12).unwrap(),
        Layout::new(17, 9, 1, 5, 0).unwrap(),
        Layout::new(4096, 4000, 7, 11, 4095).unwrap(),
    ];
    for layout in layouts {
        let longest = if layout == Layout::PACKED { 4 } else { 0 };
        let held = most_held(Needs::ALL);
        let long = [held, held + 700, 2 * held, 2 * held + 1].into_iter().take(longest);
        for count in [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17].into_iter().chain(long) {
            Isa::available().into_iter().for_each(|isa| check(isa, count, layout));
        }
    }
}

#[test]
fn fields_may_overlap_but_not_leave_the_record() {
    assert!(Layout::new(8, 0, 0, 2, 4).is_some());
    assert!(Layout::new(8, 1, 0, 2, 4).is_none());
    assert!(Layout::new(13, 0, 12, 10, 8).is_none());
    assert!(Layout::new(13, usize::MAX, 8, 10, 12).is_none());
}

#[test]
fn one_time_out_of_range_anywhere_rejects_the_call() {
    let sensor = SensorSize::new(4, 1).unwrap();
    let held = most_held(Needs::ALL);
    for count in [1, BLOCK, BLOCK + 1, 3 * BLOCK, held, held + 1, held + 7, 2 * held + 1] {
        for bad in [0, count / 2, count - 1, count.saturating_sub(7)] {
            let mut events = vec![(5, 9, 9, 1); count];
            events[bad].0 = TIMESTAMP_LIMIT + 3;
            let bytes = records(&events, Layout::PACKED);
            let mut block = Block::default();
            let checked = Call::check(Events::packed(&bytes), sensor, &mut block, Needs::ALL);
            assert_eq!(checked.err(), Some(TIMESTAMP_LIMIT + 3));
        }
    }
}

#[test]
fn events_that_changed_after_the_check_are_dropped() {
    let mut block = Block::default();
    let bytes = records(&[(5, 0, 0, 1), (TIMESTAMP_LIMIT, 1, 0, 1), (6, 2, 0, 0)], Layout::PACKED);
    let found =
        block.load_checked(&Events::packed(&bytes), 0..3, SensorSize::new(4, 1).unwrap(), Needs::PIXELS);
    assert_eq!(found.latest, Some(6));
    assert_eq!(block.columns().t, &[5, 6]);
    assert_eq!(block.columns().pixel, &[0, 2]);
    assert_eq!(block.columns().p, &[1, 0]);
}

/// A mapping whose last page cannot be touched, with `bytes` right before that page.
struct AtTheEdge {
    _pages: region::Allocation,
    start: *const u8,
}

impl AtTheEdge {
    fn new(bytes: &[u8]) -> Self {
        let page = region::page::size();
        let room = bytes.len().next_multiple_of(page).max(page);
        let mut pages = region::alloc(room + page, region::Protection::READ_WRITE).unwrap();
        let start = pages.as_mut_ptr::<u8>().wrapping_add(room - bytes.len());
        // SAFETY: `bytes.len() <= room` bytes from `start` on are ours; the page after them is a page of ours, too.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len());
            region::protect(start.wrapping_add(bytes.len()), page, region::Protection::NONE).unwrap();
        }
        Self { _pages: pages, start }
    }

    fn events(&self, count: usize, layout: Layout) -> Events<'_> {
        // SAFETY: made from `count` records, and kept by `self`.
        unsafe { Events::from_raw(self.start, count, layout) }
    }
}

type Event = (u64, u16, u16, u8);
type Column = (Vec<u64>, Vec<u32>, Vec<u8>);

/// What a block has to hold, from the definition.
fn oracle(events: &[Event], sensor: SensorSize) -> (Column, Found, bool) {
    let inside: Vec<_> = events
        .iter()
        .filter(|e| usize::from(e.1) < sensor.width() && usize::from(e.2) < sensor.height())
        .collect();
    let pixel = |e: &&Event| (u64::from(e.2) * sensor.width() as u64 + u64::from(e.1)) as u32;
    let columns = (
        inside.iter().map(|e| e.0).collect(),
        inside.iter().map(pixel).collect(),
        inside.iter().map(|e| e.3).collect(),
    );
    let found = Found {
        events: events.len() as u64,
        out_of_bounds: (events.len() - inside.len()) as u64,
        latest: inside.iter().map(|e| e.0).max(),
    };
    (columns, found, events.iter().any(|e| e.0 >= 1 << 63))
}

fn sensors() -> impl Strategy<Value = SensorSize> {
    let sides = [
        (1, 1),
        (3, 2),
        (346, 260),
        (1 << 15, 40_000),
        (1 << 16, 1 << 16),
        (1 << 32, 1),
        (1, 1 << 32),
        (70_000, 3),
    ];
    prop::sample::select(sides.to_vec()).prop_map(|(w, h)| SensorSize::new(w, h).unwrap())
}

/// Events for a sensor: mostly inside, sometimes with a time out of range.
fn events_for(sensor: SensorSize, most: usize) -> impl Strategy<Value = Vec<Event>> {
    let side = |side: usize| {
        let last = (side - 1).min(usize::from(u16::MAX)) as u16;
        prop_oneof![6 => 0..=last, 1 => Just(last.saturating_add(1)), 1 => Just(last), 1 => any::<u16>()]
    };
    let t = prop_oneof![
        60 => 0..1_u64 << 63, 60 => Just((1 << 63) - 1), 1 => Just(1 << 63), 1 => Just(u64::MAX),
    ];
    prop::collection::vec((t, side(sensor.width()), side(sensor.height()), any::<u8>()), 0..=most)
}

fn layouts() -> impl Strategy<Value = Layout> {
    prop::sample::select(vec![
        Layout::PACKED,
        Layout::PACKED,
        Layout::PACKED,
        Layout::new(13, 5, 3, 1, 0).unwrap(),
        Layout::new(14, 0, 8, 10, 12).unwrap(),
        Layout::new(16, 0, 8, 10, 12).unwrap(),
        Layout::new(17, 9, 1, 5, 0).unwrap(),
    ])
}

/// Puts the time of one event out of range, and no other: with more, hardly a block would come before the first.
fn put_out_of_range(events: &mut [Event], bad: Option<prop::sample::Index>) {
    events.iter_mut().for_each(|event| event.0 &= (1 << 63) - 1);
    if let Some(bad) = bad.filter(|_| !events.is_empty()) {
        events[bad.index(events.len())].0 |= 1 << 63;
    }
}

/// Remembers what it took in and back.
#[derive(Default)]
struct Taker {
    added: Column,
    removed: Column,
    /// A bit for each of the next blocks: whether that is taken in in groups.
    in_groups: u8,
    /// How many events of such a block are still to come.
    left: usize,
}

fn append(to: &mut Column, from: Columns<'_>) {
    to.0.extend(from.t);
    to.1.extend(from.pixel);
    to.2.extend(from.p);
}

impl TakesBack for Taker {
    fn add(&mut self, events: Columns<'_>) {
        assert_eq!(self.left, 0);
        append(&mut self.added, events);
    }

    fn may_be_in_groups(&mut self, events: Columns<'_>) -> bool {
        assert_eq!(self.left, 0);
        let may_be = self.in_groups & 1 != 0;
        self.in_groups >>= 1;
        self.left = if may_be { events.pixel.len() } else { 0 };
        may_be
    }

    fn add_group(&mut self, events: Columns<'_>) {
        self.left -= events.pixel.len();
        append(&mut self.added, events);
    }

    fn remove(&mut self, events: Columns<'_>) {
        assert_eq!(self.left, 0);
        append(&mut self.removed, events);
    }
}

/// Takes in so many events, others only for good.
struct Careful {
    events: usize,
    taken: Column,
    is_for_good: bool,
    rolled_back: usize,
    begun: usize,
}

impl RollsBack for Careful {
    type Error = ();

    fn begin(&mut self) {
        self.begun += 1;
    }

    fn add(&mut self, events: Columns<'_>, latest: u64, for_good: bool) -> Result<usize, ()> {
        assert!(for_good || !self.is_for_good);
        assert!(events.t.iter().all(|&t| t <= latest));
        self.is_for_good = for_good;
        let taken =
            if for_good { events.t.len() } else { events.t.len().min(self.events - self.taken.0.len()) };
        append(
            &mut self.taken,
            Columns { t: &events.t[..taken], pixel: &events.pixel[..taken], p: &events.p[..taken] },
        );
        Ok(taken)
    }

    fn roll_back(&mut self) {
        self.rolled_back += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_way_decodes_by_the_definition_and_reads_no_byte_too_many(
        (sensor, events) in sensors().prop_flat_map(|s| (Just(s), events_for(s, BLOCK))),
        layout in layouts(),
        (t, p) in any::<(bool, bool)>(),
        from in any::<prop::sample::Index>(),
        squeezes in any::<bool>(),
    ) {
        let memory = AtTheEdge::new(&records(&events, layout));
        let start = from.index(events.len() + 1);
        let ((ts, pixels, ps), found, bad) = oracle(&events[start..], sensor);
        for isa in Isa::available() {
            let mut block = Block::new(isa);
            block.squeezes = squeezes;
            let records = memory.events(events.len(), layout);
            let got = block.load(&records, start..events.len(), sensor, Needs { t, p });
            prop_assert_eq!(got, (found, bad), "{:?}", isa);
            let columns = block.columns();
            prop_assert_eq!(columns.pixel, &pixels[..]);
            prop_assert_eq!(columns.t, if t { &ts[..] } else { &[] });
            prop_assert_eq!(columns.p, if p { &ps[..] } else { &[] });
        }
    }

    #[test]
    fn calls_that_are_held_are_handed_over_whole(
        calls in sensors().prop_flat_map(|s| (Just(s), prop::collection::vec(events_for(s, 4 * BLOCK), 3))),
        needs in any::<(bool, bool)>().prop_map(|(t, p)| Needs { t, p }),
    ) {
        let (sensor, calls) = calls;
        for isa in Isa::available() {
            let mut block = Block::new(isa);
            for events in &calls {
                let bytes = packed(events);
                let ((ts, pixels, ps), found, bad) = oracle(events, sensor);
                let call = Call::check(Events::packed(&bytes), sensor, &mut block, needs);
                prop_assert_eq!(call.is_err(), bad);
                let Ok(mut call) = call else { continue };
                let mut seen = Column::default();
                let handed_over = call.for_each_block(|c, latest| {
                    let at = seen.1.len();
                    seen.0.extend(c.t);
                    seen.1.extend(c.pixel);
                    seen.2.extend(c.p);
                    assert!(!c.pixel.is_empty() && c.pixel.len() <= BLOCK);
                    assert_eq!(ts[at..seen.1.len()].iter().max(), Some(&latest));
                    Ok::<_, ()>(())
                });
                prop_assert_eq!(handed_over, Ok(found));
                prop_assert_eq!(seen.1, pixels);
                prop_assert_eq!(seen.0, if needs.t { ts } else { vec![] });
                prop_assert_eq!(seen.2, if needs.p { ps } else { vec![] });
            }
        }
    }

    #[test]
    fn one_pass_takes_back_what_it_handed_over(
        (sensor, mut events) in sensors().prop_flat_map(|s| (Just(s), events_for(s, 6 * BLOCK))),
        bad in prop::option::of(any::<prop::sample::Index>()),
        layout in layouts(),
        needs in any::<(bool, bool)>().prop_map(|(t, p)| Needs { t, p }),
        in_groups in any::<u8>(),
    ) {
        put_out_of_range(&mut events, bad);
        let memory = AtTheEdge::new(&records(&events, layout));
        let (all, found, bad) = oracle(&events, sensor);
        for isa in Isa::available() {
            let mut taker = Taker { in_groups, ..Taker::default() };
            let records = memory.events(events.len(), layout);
            let result = in_one_pass(records, sensor, &mut Block::new(isa), needs, &mut taker);
            let Taker { added, removed, left, .. } = taker;
            prop_assert_eq!(left, 0);
            if bad {
                prop_assert_eq!(result, Err(events.iter().map(|e| e.0).max().unwrap()));
                prop_assert_eq!(added, removed);
            } else {
                prop_assert_eq!(result, Ok(found));
                prop_assert_eq!(&added.1, &all.1);
                prop_assert_eq!(added.0, if needs.t { all.0.clone() } else { vec![] });
                prop_assert_eq!(added.2, if needs.p { all.2.clone() } else { vec![] });
                prop_assert_eq!(removed, Column::default());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_call_is_looked_at_before_what_cannot_be_taken_back(
        (sensor, mut events) in sensors().prop_flat_map(|s| (Just(s), events_for(s, 6 * BLOCK))),
        bad in prop::option::of(any::<prop::sample::Index>()),
        layout in layouts(),
        at_most in 0_usize..8 * BLOCK,
    ) {
        put_out_of_range(&mut events, bad);
        let memory = AtTheEdge::new(&records(&events, layout));
        let (all, found, bad) = oracle(&events, sensor);
        for isa in Isa::available() {
            let mut to = Careful { events: at_most, taken: Column::default(), is_for_good: false, rolled_back: 0, begun: 0 };
            let records = memory.events(events.len(), layout);
            let result = in_one_pass_or_back(records, sensor, &mut Block::new(isa), Needs::ALL, &mut to);
            prop_assert_eq!((to.begun, to.rolled_back), (1, usize::from(bad)));
            if bad {
                prop_assert_eq!(result, Ok(Err(events.iter().map(|e| e.0).max().unwrap())));
                prop_assert!(!to.is_for_good);
            } else {
                prop_assert_eq!(result, Ok(Ok(found)));
                prop_assert_eq!(&to.taken, &all);
            }
        }
    }
}

#[test]
fn ways_are_named_and_others_refused() {
    let ways = Isa::available();
    assert_eq!(Isa::named(None), Ok(ways[ways.len() - 1]));
    assert_eq!(Isa::named(Some(OsStr::new(""))), Ok(ways[ways.len() - 1]));
    for way in ways {
        assert_eq!(Isa::named(Some(OsStr::new(way.name()))), Ok(way));
    }
    let error = Isa::named(Some(OsStr::new("mmx"))).unwrap_err();
    assert!(error.contains("scalar") && error.contains("\"mmx\""), "{error}");
}
