"""Contract section 2: the seven kernels, exact."""

from __future__ import annotations

import itertools
import os
from fractions import Fraction
from typing import Any

import numpy as np
import oracle
import pytest
from records import at, empty, events, parse_calls

import frames2py
import frames2py.kernels
from frames2py import (
    Accumulator,
    Engine,
    EventCount,
    ExpDecay,
    Polarity,
    StackedHistogram,
    TimestampDecay,
    TimeSurface,
    VoxelGrid,
)

NAMES = ["event_count", "polarity", "time_surface"]

# name -> (kernel, shape for a 4x3 sensor, dtype, windowed)
KERNELS: dict[str, tuple[Any, tuple[int, ...], Any, bool]] = {
    "event_count": (EventCount(), (3, 4), np.uint32, True),
    "polarity": (Polarity(), (3, 4, 2), np.uint32, True),
    "time_surface": (TimeSurface(), (3, 4), np.uint64, False),
    "exp_decay": (ExpDecay(0.5), (3, 4), np.float32, False),
    "timestamp_decay": (TimestampDecay(10.0), (3, 4), np.float32, False),
    "stacked_histogram": (StackedHistogram(bins=5, bin_us=10), (2, 5, 3, 4), np.uint32, False),
    "voxel_grid": (VoxelGrid(bins=5, bin_us=10), (5, 3, 4), np.float32, False),
}


def run(kernel: Any, *calls: Any, size: tuple[int, int] = (2, 1)) -> Any:
    accumulator = Accumulator(size, kernel)
    for call in calls:
        accumulator.accumulate(call)
    return accumulator.read()


def published(engine: Engine) -> Any:
    snapshot = engine.snapshot()
    assert snapshot is not None
    return snapshot.frame


# --- all kernels --------------------------------------------------------------------------------


def test_kernels_are_importable_from_the_package_and_from_kernels() -> None:
    for name in (
        "EventCount",
        "Polarity",
        "TimeSurface",
        "ExpDecay",
        "TimestampDecay",
        "StackedHistogram",
        "VoxelGrid",
    ):
        assert getattr(frames2py, name) is getattr(frames2py.kernels, name)


@pytest.mark.parametrize("name", KERNELS)
def test_output_shape_and_dtype(name: str) -> None:
    kernel, shape, dtype, _ = KERNELS[name]
    frame = Accumulator((4, 3), kernel).read()
    assert frame.shape == shape
    assert frame.dtype == np.dtype(dtype)
    engine = Engine((4, 3), kernel)
    engine.ingest(empty())
    assert published(engine).shape == shape
    assert published(engine).dtype == np.dtype(dtype)
    assert published(engine).flags.c_contiguous


@pytest.mark.parametrize("name", KERNELS)
def test_every_pixel_reads_zero_before_the_first_event(name: str) -> None:
    kernel = KERNELS[name][0]
    assert not Accumulator((4, 3), kernel).read().any()
    assert not run(kernel, empty(), events([(1000, 9, 9, 1)]), size=(4, 3)).any()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_means_the_kernel_of_that_name(name: str) -> None:
    call = events([(5, 0, 0, 1), (7, 1, 0, 0), (9, 0, 0, 0)])
    by_instance = run(KERNELS[name][0], call)
    for any_str in (name, np.str_(name)):
        by_name = run(any_str, call)
        assert by_name.dtype == by_instance.dtype
        np.testing.assert_array_equal(by_name, by_instance)


def test_the_engines_default_kernel_is_event_count() -> None:
    engine = Engine((2, 1))
    engine.ingest(at(1, 2, 3))
    assert published(engine).dtype == np.uint32
    assert published(engine).tolist() == [[3, 0]]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "EVENT_COUNT",
        "event-count",
        "count",
        "exp_decay",
        "timestamp_decay",
        "stacked_histogram",
        "voxel_grid",
    ],
)
@pytest.mark.parametrize("make", [Accumulator, Engine])
def test_any_other_name_is_a_value_error_that_lists_the_names(make: Any, name: str) -> None:
    with pytest.raises(ValueError) as caught:
        make((4, 3), name)
    for listed in NAMES:
        assert listed in str(caught.value)


@pytest.mark.parametrize("name", KERNELS)
def test_publication_starts_a_new_window_only_for_windowed_kernels(name: str) -> None:
    kernel, _, _, windowed = KERNELS[name]
    engine = Engine((1, 1), kernel, snapshot_interval_ms=0)
    engine.ingest(at(5, 15, 16))
    engine.ingest(at(31, p=0))
    engine.ingest(at(32))
    only_last = run(kernel, at(32), size=(1, 1))
    if windowed:
        np.testing.assert_array_equal(published(engine), only_last)
    else:
        everything = run(kernel, at(5, 15, 16), at(31, p=0), at(32), size=(1, 1))
        np.testing.assert_array_equal(published(engine), everything)
        assert (published(engine) != only_last).any() or name == "time_surface"


@pytest.mark.parametrize("name", ["event_count", "polarity"])
def test_an_accumulators_window_runs_from_construction_or_reset(name: str) -> None:
    accumulator = Accumulator((1, 1), name)
    accumulator.accumulate(at(1, 2))
    accumulator.read()
    accumulator.accumulate(at(3))
    assert accumulator.read().sum() == 3
    accumulator.reset()
    accumulator.accumulate(at(4))
    assert accumulator.read().sum() == 1


@pytest.mark.parametrize("name", KERNELS)
def test_reset_clears_all(name: str) -> None:
    kernel, *_ = KERNELS[name]
    accumulator = Accumulator((4, 3), kernel)
    accumulator.accumulate(events([(t, t % 4, t % 3, t % 2) for t in range(100)]))
    assert accumulator.read().any()
    accumulator.reset()
    assert not accumulator.read().any()
    accumulator.accumulate(events([(45, 1, 1, 1)]))
    np.testing.assert_array_equal(accumulator.read(), run(kernel, events([(45, 1, 1, 1)]), size=(4, 3)))


@pytest.mark.parametrize("name", KERNELS)
def test_one_kernel_instance_serves_several_owners_independently(name: str) -> None:
    kernel = KERNELS[name][0]
    first, second = Accumulator((1, 1), kernel), Accumulator((2, 2), kernel)
    first.accumulate(at(5, 25, 45))
    assert not second.read().any()
    second.accumulate(at(5))
    np.testing.assert_array_equal(first.read(), run(kernel, at(5, 25, 45), size=(1, 1)))


# --- counting kernels ---------------------------------------------------------------------------


def test_event_count_adds_one_at_the_events_pixel() -> None:
    frame = run(EventCount(), events([(1, 0, 0, 1), (2, 1, 0, 0), (3, 1, 0, 1)]), events([(0, 1, 0, 0)]))
    assert frame.tolist() == [[1, 3]]


def test_polarity_adds_one_in_channel_0_off_or_1_on() -> None:
    frame = run(Polarity(), events([(1, 0, 0, 1), (2, 1, 0, 0), (3, 1, 0, 7)]), events([(0, 1, 0, 0)]))
    assert frame.tolist() == [[[0, 1], [2, 1]]]


def test_time_surface_keeps_the_largest_t_and_0_means_none() -> None:
    frame = run(TimeSurface(), events([(9, 0, 0, 1), (4, 0, 0, 0)]), events([(8, 0, 0, 0)]))
    assert frame.tolist() == [[9, 0]]
    assert run(TimeSurface(), at(0)).tolist() == [[0, 0]]


def test_time_surface_holds_every_timestamp_exactly() -> None:
    for t in (1, 2**24 + 1, 2**32 - 1, 2**32, 2**53 + 1, 1_790_000_000_000_001, 2**63 - 1):
        assert run(TimeSurface(), at(t))[0, 0] == t


SLOW = pytest.mark.skipif(
    os.environ.get("FRAMES2PY_SLOW") != "1", reason="counts past 2^32, one by one; set FRAMES2PY_SLOW=1"
)


@SLOW
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kernel", "index"),
    [(EventCount(), (0, 0)), (Polarity(), (0, 0, 1)), (StackedHistogram(bins=1, bin_us=10), (1, 0, 0, 0))],
    ids=["event_count", "polarity", "stacked_histogram"],
)
def test_counts_are_modulo_2_32(kernel: Any, index: tuple[int, ...]) -> None:
    accumulator = Accumulator((1, 1), kernel)
    million = np.zeros(2**20, frames2py.EVENT_DTYPE)
    million["p"] = 1
    for _ in range(2**12):
        accumulator.accumulate(million)
    accumulator.accumulate(at(0, 1, 2))
    accumulator.accumulate(at(10, p=0))
    expected = 4 if isinstance(kernel, EventCount) else 3
    assert accumulator.read()[index] == expected


# --- ExpDecay -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "decay",
    [
        0,
        1,
        0.0,
        1.0,
        -0.5,
        1.5,
        1 + 2**-52,
        float("nan"),
        float("inf"),
        -float("inf"),
        True,
        False,
        "0.5",
        None,
    ],
)
def test_exp_decay_outside_0_to_1_is_a_value_error(decay: Any) -> None:
    with pytest.raises(ValueError, match="decay"):
        ExpDecay(decay)


@pytest.mark.parametrize(
    "decay", [5e-324, 1e-10, 0.5, 1 - 2**-53, np.float64(0.25), np.float32(0.9), Fraction(1, 3)]
)
def test_exp_decay_inside_0_to_1_is_accepted(decay: Any) -> None:
    model = oracle.AccumulatorModel(oracle.ExpDecay(2, 1, float(decay)))
    calls = [[(1, 0, 0, 1)], [(2, 0, 0, 1), (2, 1, 0, 1)], []]
    for call in calls:
        model.accumulate(call)
    oracle.check_frame(run(ExpDecay(decay), *map(events, calls)), model.model, model.watermark)


def test_exp_decay_multiplies_once_per_call_then_adds_one_per_event() -> None:
    accumulator = Accumulator((2, 1), ExpDecay(0.5))
    seen = []
    for call in (at(1), at(2, 3), at(4, x=1), at(5)):
        accumulator.accumulate(call)
        seen.append(accumulator.read().tolist())
    assert seen == [[[1, 0]], [[2.5, 0]], [[1.25, 1]], [[1.625, 0.5]]]


def test_empty_and_all_out_of_bounds_calls_are_decay_steps() -> None:
    assert run(ExpDecay(0.5), at(1), empty()).tolist() == [[0.5, 0]]
    assert run(ExpDecay(0.5), at(1), events([(2, 9, 9, 1)])).tolist() == [[0.5, 0]]
    assert run(ExpDecay(0.5), at(1), empty(), events([(2, 9, 9, 1)]), empty()).tolist() == [[0.125, 0]]


def test_rejected_calls_are_no_decay_steps() -> None:
    accumulator = Accumulator((1, 1), ExpDecay(0.5))
    accumulator.accumulate(at(1))
    with pytest.raises(ValueError):
        accumulator.accumulate(at(1, 2**63))
    with pytest.raises(TypeError):
        accumulator.accumulate(at(1, 2, 3, 4)[::2])
    assert accumulator.read()[0, 0] == 1


def test_a_large_call_is_one_decay_step_never_one_per_chunk() -> None:
    large = np.zeros(300_000, frames2py.EVENT_DTYPE)
    large["x"] = 1
    frame = run(ExpDecay(0.5), at(1), large)
    assert frame.tolist() == [[0.5, 300_000.0]]


def test_ingest_on_a_stopped_engine_is_no_decay_step() -> None:
    engine = Engine((1, 1), ExpDecay(0.5), snapshot_interval_ms=0)
    engine.ingest(at(1))
    engine.stop()
    for _ in range(3):
        engine.ingest(at(2))
        engine.ingest(empty())
    engine.start()
    engine.ingest(at(3))
    assert published(engine).tolist() == [[1.5]]


def test_publication_and_reading_are_no_decay_steps() -> None:
    accumulator = Accumulator((1, 1), ExpDecay(0.5))
    accumulator.accumulate(at(1))
    for _ in range(3):
        assert accumulator.read()[0, 0] == 1


def test_exp_decay_depends_on_batching() -> None:
    assert run(ExpDecay(0.5), at(1, 2))[0, 0] == 2
    assert run(ExpDecay(0.5), at(1), at(2))[0, 0] == 1.5


def test_exp_decay_state_is_as_precise_as_float64() -> None:
    # In float32 the sum would stop at 2**24 and the decayed value would lose its last bits.
    ones = np.zeros(2**20, frames2py.EVENT_DTYPE)
    model = Fraction(0)
    accumulator = Accumulator((1, 1), ExpDecay(0.999))
    for step in range(64):
        call = ones[: 2**20 - step]
        accumulator.accumulate(call)
        model = model * Fraction(0.999) + len(call)
    got = Fraction(float(accumulator.read()[0, 0]))
    assert abs(got - model) <= oracle.ulp32(model) / 2 * Fraction(1000001, 1000000)

    accumulator = Accumulator((1, 1), ExpDecay(1 - 2**-40))
    model = Fraction(0)
    accumulator.accumulate(at(0))
    model += 1
    for _ in range(3000):
        accumulator.accumulate(empty())
        model *= Fraction(1 - 2**-40)
    accumulator.accumulate(at(0))
    model = model * Fraction(1 - 2**-40) + 1
    # One, decayed by 3e-9, plus one: subtracting the exact sum leaves less than float32 could hold.
    assert abs(Fraction(float(accumulator.read()[0, 0])) - model) <= oracle.ulp32(model)


def test_exp_decay_over_thousands_of_calls_stays_within_one_ulp() -> None:
    accumulator = Accumulator((1, 1), ExpDecay(0.9))
    model = Fraction(0)
    decay = Fraction(0.9)
    scale = 2**300  # keep the exact number short: an error of 2**-300 per step is nothing here
    for step in range(3000):
        count = step % 4
        accumulator.accumulate(at(*range(count)))
        model = Fraction(int((model * decay + count) * scale), scale)
    got = Fraction(float(accumulator.read()[0, 0]))
    assert abs(got - model) <= oracle.ulp32(model)


def test_exp_decay_fades_to_zero_quietly() -> None:
    accumulator = Accumulator((1, 1), ExpDecay(0.5))
    accumulator.accumulate(at(1))
    for step in range(1, 1400):
        accumulator.accumulate(empty())
        got = Fraction(float(accumulator.read()[0, 0]))
        assert abs(got - Fraction(1, 2**step)) <= oracle.ulp32(Fraction(1, 2**step))
    accumulator.accumulate(at(2))
    assert accumulator.read()[0, 0] == 1


# --- TimestampDecay -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tau_us", [0, 0.0, -1, -1e-9, float("nan"), float("inf"), -float("inf"), "5", None, 1j, 10**400]
)
def test_timestamp_decay_with_tau_not_finite_and_positive_is_a_value_error(tau_us: Any) -> None:
    with pytest.raises(ValueError, match="tau_us"):
        TimestampDecay(tau_us)


def test_timestamp_decay_has_no_default_tau() -> None:
    with pytest.raises(TypeError):
        TimestampDecay()  # type: ignore[call-arg]


def check_decay(tau_us: Any, *calls: list[tuple[int, int, int, int]], size: tuple[int, int] = (2, 1)) -> None:
    model = oracle.AccumulatorModel(oracle.TimestampDecay(*size, float(tau_us)))
    for call in calls:
        model.accumulate(call)
    oracle.check_frame(
        run(TimestampDecay(tau_us), *map(events, calls), size=size), model.model, model.watermark
    )


@pytest.mark.parametrize(
    "tau_us", [1, 5.0, np.float32(2.5), np.int64(7), Fraction(3, 2), 1e308, 5e-324, 10**300]
)
def test_timestamp_decay_takes_any_positive_real_tau(tau_us: Any) -> None:
    check_decay(tau_us, [(3, 0, 0, 1), (5, 1, 0, 0)], [(9, 0, 0, 1)])


def test_timestamp_decay_is_evaluated_at_the_watermark() -> None:
    accumulator = Accumulator((2, 1), TimestampDecay(10.0))
    accumulator.accumulate(at(100))
    assert accumulator.read().tolist() == [[1, 0]]
    accumulator.accumulate(at(110, x=1))  # another pixel's event moves the watermark
    frame = accumulator.read()
    assert frame[0, 1] == 1
    assert frame[0, 0] == pytest.approx(0.36787944117144233, rel=1e-7)
    accumulator.accumulate(events([(200, 9, 9, 1)]))  # an out-of-bounds event does not
    np.testing.assert_array_equal(accumulator.read(), frame)


def test_timestamp_decay_counts_both_polarities_alike() -> None:
    frame = run(TimestampDecay(10.0), events([(5, 0, 0, 0), (5, 1, 0, 1)]))
    assert frame.tolist() == [[1, 1]]


ANCHORS = {
    "0": 0,
    "2^24": 2**24,
    "2^32": 2**32,
    "2^53": 2**53,
    "Unix microseconds": 1_790_000_000_000_000,
    "near 2^63": 2**63 - 100_000,
}


@pytest.mark.parametrize("anchor", ANCHORS.values(), ids=ANCHORS.keys())
@pytest.mark.parametrize("tau_us", [1.0, 3.7, 1000.0, 1e6])
def test_timestamp_decay_works_on_absolute_timestamps_of_any_size(anchor: int, tau_us: float) -> None:
    rows = [(anchor + (i * 7919) % 5000, i % 2, 0, i % 3) for i in range(60)]
    check_decay(tau_us, rows[:20], [], rows[20:21], rows[21:])


def test_timestamp_decay_takes_differences_in_integers() -> None:
    # In float64 these three timestamps are one and the same.
    base = 2**62
    check_decay(1.0, [(base, 0, 0, 1), (base + 1, 0, 0, 1), (base + 2, 1, 0, 1)])
    check_decay(2.0**61, [(0, 0, 0, 1), (2**63 - 1, 1, 0, 1)])
    check_decay(1.0, [(0, 0, 0, 1), (2**63 - 1, 1, 0, 1)])


def test_timestamp_decay_works_on_streams_that_run_for_days() -> None:
    hour = 3_600_000_000
    calls = [
        [(1_790_000_000_000_000 + i * hour + j * 137, j % 2, 0, 1) for j in range(5)] for i in range(24 * 12)
    ]
    check_decay(1000.0, *calls)
    check_decay(24.0 * hour, *calls)


def test_timestamp_decay_is_independent_of_order_and_batching() -> None:
    rows = [(1_790_000_000_000_000 + (i * 6151) % 4001, i % 2, 0, 1) for i in range(90)]
    check_decay(500.0, rows)
    check_decay(500.0, rows[::-1])
    check_decay(500.0, *([row] for row in rows))
    check_decay(500.0, sorted(rows))
    check_decay(500.0, sorted(rows, reverse=True)[:30], sorted(rows)[:60])


def test_timestamp_decay_late_events_are_added_already_decayed() -> None:
    check_decay(50.0, [(1000, 0, 0, 1)], [(900, 0, 0, 1), (0, 1, 0, 1)], [(2000, 1, 0, 1)], [(1999, 0, 0, 1)])


def test_timestamp_decay_long_ordered_stream_stays_within_one_ulp() -> None:
    rows = [(10**15 + 13 * i, 0, 0, 1) for i in range(4000)]
    check_decay(800.0, *(rows[i : i + 50] for i in range(0, 4000, 50)), size=(1, 1))


# --- temporal kernels ---------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "least"), [(StackedHistogram, 1), (VoxelGrid, 2)])
def test_bins_and_bin_us_limits(kernel: Any, least: int) -> None:
    kernel(bins=least, bin_us=1)
    kernel(bins=least, bin_us=2**28 - 1)
    for bins in (least - 1, 0, -1, -(2**70)):
        with pytest.raises(ValueError, match="bins"):
            kernel(bins=bins, bin_us=10)
    for bin_us in (0, -1, 2**28, 2**64, -(2**70)):
        with pytest.raises(ValueError, match="bin_us"):
            kernel(bins=3, bin_us=bin_us)


@pytest.mark.parametrize("kernel", [StackedHistogram, VoxelGrid])
@pytest.mark.parametrize("bad", [True, False, np.True_, 3.0, np.float64(3), "3", None, Fraction(3), 3 + 0j])
def test_bins_and_bin_us_of_another_type_are_a_value_error(kernel: Any, bad: Any) -> None:
    with pytest.raises(ValueError, match="bins"):
        kernel(bins=bad, bin_us=10)
    with pytest.raises(ValueError, match="bin_us"):
        kernel(bins=3, bin_us=bad)


class Index:
    def __index__(self) -> int:
        return 3


@pytest.mark.parametrize("kernel", [StackedHistogram, VoxelGrid])
@pytest.mark.parametrize("three", [3, np.int8(3), np.uint64(3), Index()])
def test_bins_and_bin_us_are_integers_of_any_type(kernel: Any, three: Any) -> None:
    frame = run(kernel(bins=three, bin_us=three), at(0, 1, 2, 3, 4, 9))
    np.testing.assert_array_equal(frame, run(kernel(bins=3, bin_us=3), at(0, 1, 2, 3, 4, 9)))


@pytest.mark.parametrize("kernel", [StackedHistogram, VoxelGrid])
def test_bins_and_bin_us_are_keyword_only_and_required(kernel: Any) -> None:
    for args, kwargs in [
        ((3, 10), {}),
        ((3,), {"bin_us": 10}),
        ((), {"bins": 3}),
        ((), {"bin_us": 10}),
        ((), {}),
    ]:
        with pytest.raises(TypeError):
            kernel(*args, **kwargs)


def on_off(histogram: Any) -> Any:
    return histogram[1, :, 0, :].T.tolist(), histogram[0, :, 0, :].T.tolist()


# kernel, bins, bin_us | calls | T | {(polarity, x): bins} or {x: knots}; everything else is 0
WORKED_HISTOGRAMS = [
    (3, 10, "+0 +5 +12 +25 +31", 31, {("ON", 0): [2, 1, 1]}),
    (3, 10, "+9 +10 +19 +20 +29 +30", 30, {("ON", 0): [1, 2, 2]}),
    (3, 10, "-5 +5 +5(p=2) +5(p=255) +30@1", 30, {("OFF", 0): [1, 0, 0], ("ON", 0): [3, 0, 0]}),
    (3, 10, "+35 +3", 35, {("ON", 0): [1, 0, 0]}),
    (1, 10, "+3 +14", 14, {("ON", 0): [1]}),
]
WORKED_VOXELS = [
    (3, 10, "+0 +5 +12 +25 +31", 31, {0: [0.8, 0.7, 0.5]}),
    (3, 10, "+10 +20 +30", 30, {0: [1, 1, 0]}),
    (3, 10, "+35 +12", 35, {0: [0.8, 0.2, 0]}),
    (2, 3, "+4 +6", 6, {0: [2 / 3, 1 / 3]}),
]


def splits(text: str) -> list[str]:
    """The same events as one call, one call per event, and every split in two."""
    tokens = text.split()
    cuts = [" ".join(tokens[:i]) + " | " + " ".join(tokens[i:]) for i in range(1, len(tokens))]
    return [text, " | ".join(tokens), *cuts]


@pytest.mark.parametrize(("bins", "bin_us", "calls", "watermark", "expected"), WORKED_HISTOGRAMS)
def test_worked_histograms(bins: int, bin_us: int, calls: str, watermark: int, expected: Any) -> None:
    frame = np.zeros((2, bins, 1, 2), np.uint32)
    for (polarity, x), values in expected.items():
        frame[int(polarity == "ON"), :, 0, x] = values
    for split in splits(calls):
        accumulator = Accumulator((2, 1), StackedHistogram(bins=bins, bin_us=bin_us))
        engine = Engine((2, 1), StackedHistogram(bins=bins, bin_us=bin_us), snapshot_interval_ms=0)
        for call in parse_calls(split):
            accumulator.accumulate(events(call))
            engine.ingest(events(call))
        assert accumulator.watermark == watermark
        np.testing.assert_array_equal(accumulator.read(), frame)
        np.testing.assert_array_equal(published(engine), frame)


@pytest.mark.parametrize(("bins", "bin_us", "calls", "watermark", "expected"), WORKED_VOXELS)
def test_worked_voxels(bins: int, bin_us: int, calls: str, watermark: int, expected: Any) -> None:
    frame = np.zeros((bins, 1, 2), np.float32)
    for x, values in expected.items():
        frame[:, 0, x] = np.array(values, np.float64).astype(np.float32)
    for split in splits(calls):
        accumulator = Accumulator((2, 1), VoxelGrid(bins=bins, bin_us=bin_us))
        engine = Engine((2, 1), VoxelGrid(bins=bins, bin_us=bin_us), snapshot_interval_ms=0)
        for call in parse_calls(split):
            accumulator.accumulate(events(call))
            engine.ingest(events(call))
        assert accumulator.watermark == watermark
        np.testing.assert_array_equal(accumulator.read(), frame)
        np.testing.assert_array_equal(published(engine), frame)


def test_the_oracle_agrees_with_the_worked_cases() -> None:
    for bins, bin_us, calls, watermark, expected in WORKED_HISTOGRAMS:
        histogram = oracle.StackedHistogram(2, 1, bins, bin_us)
        histogram.begin_call()
        for event in itertools.chain(*parse_calls(calls)):
            histogram.event(event)
        for (polarity, j, _, x), value in histogram.values(watermark).items():
            assert value == expected.get((("OFF", "ON")[polarity], x), [0] * bins)[j]
    for bins, bin_us, calls, watermark, expected in WORKED_VOXELS:
        voxels = oracle.VoxelGrid(2, 1, bins, bin_us)
        voxels.begin_call()
        for event in itertools.chain(*parse_calls(calls)):
            voxels.event(event)
        for (j, _, x), value in voxels.values(watermark).items():
            assert value == oracle.to_float32(expected.get(x, [0] * bins)[j])


def test_bin_k_is_half_open_in_absolute_event_time() -> None:
    frame = run(StackedHistogram(bins=4, bin_us=10), at(0, 9, 10, 19, 20, 39, 40))
    assert frame[1, :, 0, 0].tolist() == [2, 2, 1, 1]
    frame = run(StackedHistogram(bins=4, bin_us=10), at(1000, 1009, 1010, 1039, 1041))
    assert frame[1, :, 0, 0].tolist() == [2, 1, 0, 1]


@pytest.mark.parametrize("kernel", [StackedHistogram(bins=2, bin_us=10), VoxelGrid(bins=2, bin_us=10)])
def test_the_bin_in_progress_is_never_shown(kernel: Any) -> None:
    accumulator = Accumulator((1, 1), kernel)
    for t in (40, 45, 49, 42):
        accumulator.accumulate(at(t))
        assert not accumulator.read().any()
    accumulator.accumulate(at(50))
    assert accumulator.read().any()


@pytest.mark.parametrize("kernel", [StackedHistogram(bins=4, bin_us=10), VoxelGrid(bins=4, bin_us=10)])
def test_bins_before_0_and_empty_bins_read_0(kernel: Any) -> None:
    assert not run(kernel, at(0)).any()
    assert not run(kernel, at(9)).any()
    frame = run(kernel, at(5, 15))
    time_axis = 1 if isinstance(kernel, StackedHistogram) else 0
    first_bins = np.moveaxis(frame, time_axis, 0)[:2]
    assert not first_bins.any()
    assert frame.any()
    assert not run(kernel, at(5, 1005)).any()


def test_late_events_count_while_their_bin_is_still_shown() -> None:
    accumulator = Accumulator((1, 1), StackedHistogram(bins=3, bin_us=10))
    accumulator.accumulate(at(50))  # shows bins 2, 3, 4
    accumulator.accumulate(at(19))  # bin 1: no longer
    accumulator.accumulate(at(20))  # bin 2: still
    accumulator.accumulate(at(49))
    assert accumulator.read()[1, :, 0, 0].tolist() == [1, 0, 1]

    accumulator = Accumulator((1, 1), VoxelGrid(bins=3, bin_us=10))
    accumulator.accumulate(at(50))  # knots at 30, 40, 50
    accumulator.accumulate(at(29, 20))
    accumulator.accumulate(at(30))
    accumulator.accumulate(at(49, p=0))
    expected = np.array([1, -0.1, -0.9], np.float64).astype(np.float32)
    np.testing.assert_array_equal(accumulator.read()[:, 0, 0], expected)


def test_an_event_too_late_once_never_comes_back() -> None:
    accumulator = Accumulator((1, 1), StackedHistogram(bins=2, bin_us=10))
    accumulator.accumulate(at(100))
    accumulator.accumulate(at(5))
    accumulator.accumulate(at(100))
    assert not accumulator.read().any()
    accumulator.accumulate(at(110))
    assert accumulator.read()[1, :, 0, 0].tolist() == [0, 2]


def test_a_watermark_jump_clears_what_is_no_longer_shown() -> None:
    for kernel, shown in ((StackedHistogram(bins=3, bin_us=10), 3), (VoxelGrid(bins=3, bin_us=10), 2)):
        for jump in (1, 2, 3, 4, 5, 6, 7, 8, 1000, 2**40):
            accumulator = Accumulator((1, 1), kernel)
            accumulator.accumulate(at(2, 12, 22))
            accumulator.accumulate(at(22 + 10 * jump))
            model_type = oracle.StackedHistogram if isinstance(kernel, StackedHistogram) else oracle.VoxelGrid
            model = oracle.AccumulatorModel(model_type(1, 1, 3, 10))
            model.accumulate([(t, 0, 0, 1) for t in (2, 12, 22, 22 + 10 * jump)])
            oracle.check_frame(accumulator.read(), model.model, model.watermark)
            if jump > shown:
                assert not accumulator.read().any()


@pytest.mark.parametrize("kernel", [StackedHistogram(bins=3, bin_us=10), VoxelGrid(bins=3, bin_us=7)])
def test_order_and_batching_never_change_a_single_bit(kernel: Any) -> None:
    rows = [(5, 0, 0, 1), (12, 0, 0, 0), (25, 1, 0, 1), (31, 0, 0, 1), (18, 1, 0, 0)]
    frames = set()
    for order in itertools.permutations(rows):
        for cut in range(len(rows)):
            frames.add(run(kernel, events(order[:cut]), events(order[cut:])).tobytes())
    assert len(frames) == 1


def test_histogram_axis_0_is_polarity_and_index_j_is_bin_kt_minus_bins_plus_j() -> None:
    frame = run(
        StackedHistogram(bins=3, bin_us=10),
        events([(15, 1, 0, 0), (25, 0, 0, 1), (35, 1, 0, 9), (47, 0, 0, 0)]),
    )
    expected = np.zeros((2, 3, 1, 2))  # T = 47: bins 1, 2, 3
    expected[0, 0, 0, 1] = 1
    expected[1, 1, 0, 0] = 1
    expected[1, 2, 0, 1] = 1
    np.testing.assert_array_equal(frame, expected)


def test_voxel_events_add_plus_one_on_and_minus_one_off_split_between_two_knots() -> None:
    frame = run(VoxelGrid(bins=4, bin_us=8), events([(17, 0, 0, 1), (18, 1, 0, 0), (36, 1, 0, 1)]))
    # T = 36: knots at 8, 16, 24, 32
    assert frame[:, 0, 0].tolist() == [0, 0.875, 0.125, 0]
    assert frame[:, 0, 1].tolist() == [0, -0.75, -0.25, 0]


def test_voxel_edge_knots_are_one_sided() -> None:
    # T = 40: knots at 20, 30, 40. The part of 19 that falls on 20, and of 41 on 40, is not shown.
    frame = run(VoxelGrid(bins=3, bin_us=10), at(19, 40))
    assert not frame.any()
    frame = run(VoxelGrid(bins=3, bin_us=10), at(20, 39, 41))
    np.testing.assert_array_equal(frame[:, 0, 0], np.array([1, 0.1, 0.9], np.float64).astype(np.float32))


def test_voxel_numerators_are_exact() -> None:
    # A float32 sum of 100,000 tenths is far off; on and off cancel to nothing at all.
    tenths = np.zeros(100_000, frames2py.EVENT_DTYPE)
    tenths["t"] = 19
    tenths["p"] = 1
    assert run(VoxelGrid(bins=2, bin_us=10), tenths, at(20))[:, 0, 0].tolist() == [10_000, 90_000]
    off = tenths.copy()
    off["p"] = 0
    off["x"] = tenths["x"]
    frame = run(VoxelGrid(bins=2, bin_us=10), tenths, off, at(20))
    assert frame.tobytes() == bytes(frame.nbytes)  # +0.0, every one


def test_voxel_numerators_beyond_2_53() -> None:
    bin_us = 2**28 - 1
    count = 2**20
    many = np.zeros(count, frames2py.EVENT_DTYPE)
    many["t"] = bin_us + 1
    accumulator = Accumulator((1, 1), VoxelGrid(bins=2, bin_us=bin_us))
    for _ in range(40):
        accumulator.accumulate(many)
    accumulator.accumulate(at(2 * bin_us))
    numerators = [-40 * count * (bin_us - 1), -40 * count]
    assert abs(numerators[0]) > 2**53
    expected = [oracle.to_float32(float(n) / float(bin_us)) for n in numerators]
    assert accumulator.read()[:, 0, 0].tolist() == expected


@pytest.mark.parametrize("bin_us", [1, 7, 10, 1000, 2**28 - 1])
@pytest.mark.parametrize("anchor", [0, 2**32, 2**53, 1_790_000_000_000_000, 2**63])
def test_temporal_kernels_have_no_special_case_near_2_63(anchor: int, bin_us: int) -> None:
    start = anchor - 6 * bin_us if anchor == 2**63 else anchor
    rows = [(start + i * bin_us // 2 + i % 3, i % 2, 0, i % 2) for i in range(11)]
    rows = [row for row in rows if row[0] < 2**63]
    for cut in (0, 3, len(rows)):
        for order in (rows, rows[::-1]):
            calls = [order[:cut], order[cut:]]
            for kernel, model_type in (
                (StackedHistogram(bins=3, bin_us=bin_us), oracle.StackedHistogram),
                (VoxelGrid(bins=3, bin_us=bin_us), oracle.VoxelGrid),
            ):
                model = oracle.AccumulatorModel(model_type(2, 1, 3, bin_us))
                for call in calls:
                    model.accumulate(call)
                oracle.check_frame(run(kernel, *map(events, calls)), model.model, model.watermark)


def test_temporal_kernels_span_all_of_time() -> None:
    for kernel, model_type in (
        (StackedHistogram(bins=2, bin_us=1), oracle.StackedHistogram),
        (VoxelGrid(bins=2, bin_us=1), oracle.VoxelGrid),
    ):
        calls = [
            [(0, 0, 0, 1), (2**63 - 2, 0, 0, 1)],
            [(2**63 - 1, 0, 0, 1), (1, 0, 0, 1)],
            [(2**63 - 3, 0, 0, 0)],
        ]
        model = oracle.AccumulatorModel(model_type(2, 1, 2, 1))
        for call in calls:
            model.accumulate(call)
        oracle.check_frame(run(kernel, *map(events, calls)), model.model, model.watermark)


def test_many_bins() -> None:
    rows = [(i * 3, 0, 0, i % 2) for i in range(700)]
    for kernel, model_type in (
        (StackedHistogram(bins=300, bin_us=5), oracle.StackedHistogram),
        (VoxelGrid(bins=300, bin_us=5), oracle.VoxelGrid),
    ):
        model = oracle.AccumulatorModel(model_type(1, 1, 300, 5))
        model.accumulate(rows)
        oracle.check_frame(run(kernel, events(rows), size=(1, 1)), model.model, model.watermark)
