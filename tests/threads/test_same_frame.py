"""Publications of the kernels with time bins that show the same: one frame for all of them, made once."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

from frames2py import EVENT_DTYPE, Accumulator, Engine, StackedHistogram, TimeSurface, VoxelGrid

SENSOR = (70, 50)
BIN_US = 100
LONG = 60.0
# With how many completed bins each shows.
BINNED = pytest.mark.parametrize(
    ("kernel", "shown"),
    [
        (StackedHistogram(bins=3, bin_us=BIN_US), 3),
        (StackedHistogram(bins=1, bin_us=BIN_US), 1),
        (VoxelGrid(bins=4, bin_us=BIN_US), 3),
    ],
    ids=["histogram", "one_bin", "voxel"],
)


def call(rng: np.random.Generator, count: int, t: int, late: float) -> Any:
    """Events of the 20 µs before `t`, some outside the sensor, a share of them up to five bins late."""
    events = np.zeros(count, EVENT_DTYPE)
    back = rng.integers(0, 20, count) + (rng.random(count) < late) * rng.integers(0, 5 * BIN_US, count)
    events["t"] = np.maximum(t - back, 0)
    events["x"], events["y"] = rng.integers(0, SENSOR[0] + 2, count), rng.integers(0, SENSOR[1], count)
    events["p"] = rng.integers(0, 2, count)
    return events


class Window:
    """How often what is shown has changed in a stream of calls, worked out from their times."""

    def __init__(self, shown: int) -> None:
        self.shown, self.now, self.changes = shown, -1, 0

    def take(self, events: Any) -> int:
        bins = events["t"][events["x"] < SENSOR[0]].astype(np.int64) // BIN_US
        now = max(self.now, int(bins.max(initial=-1)))
        if now != self.now or ((now - self.shown <= bins) & (bins < now)).any():
            self.changes += 1
        self.now = now
        return self.changes

    def reset(self) -> None:
        self.now = -1
        self.changes += 1


def address(snapshot: Any) -> int:
    return int(snapshot.frame.ctypes.data)


@BINNED
@pytest.mark.parametrize("late", [0.0, 0.002, 0.5])
@pytest.mark.parametrize("guard", [False, True])
def test_each_publication_shows_what_an_accumulator_does(
    kernel: Any, shown: int, late: float, guard: bool
) -> None:
    rng = np.random.default_rng(1)
    engine = Engine(SENSOR, kernel, snapshot_interval_ms=0, guard=guard)
    accumulator, window = Accumulator(SENSOR, kernel), Window(shown)
    held: list[Any] = []
    for i in range(400):
        events = call(rng, int(rng.choice([0, 1, 30, 300, 4000])), 15 * i, late)
        engine.ingest(events)
        accumulator.accumulate(events)
        changes = window.take(events)
        if rng.integers(0, 3) == 0:
            continue  # nobody reads this one
        snapshot = engine.snapshot()
        expected = accumulator.read()
        assert np.array_equal(snapshot.frame, expected)
        assert snapshot.meta.watermark == accumulator.watermark
        for other, _, when in held:
            assert (address(other) == address(snapshot)) == (when == changes)
            assert other is not snapshot
            assert other.frame is not snapshot.frame
        held.append((snapshot, expected, changes))
        if len(held) > 12:
            for other, before, _ in held:
                assert np.array_equal(other.frame, before)
            del held[: int(rng.integers(1, 13))]
        if rng.integers(0, 60) == 0:
            engine.reset()
            accumulator.reset()
            window.reset()
    assert window.changes < 400


@BINNED
def test_threads_that_read_get_what_was_published(kernel: Any, shown: int) -> None:
    rng = np.random.default_rng(2)
    engine = Engine(SENSOR, kernel, snapshot_interval_ms=0, pool_frames=4)
    accumulator, window = Accumulator(SENSOR, kernel), Window(shown)
    calls, expected, changes = [], [], []
    for i in range(600):
        calls.append(call(rng, int(rng.choice([0, 20, 400])), 15 * i, 0.001))
        accumulator.accumulate(calls[-1])
        expected.append(accumulator.read())
        changes.append(window.take(calls[-1]))
    done = threading.Event()
    errors: list[BaseException] = []

    def read(seed: int) -> None:
        choose = np.random.default_rng(seed)
        held: dict[int, Any] = {}
        try:
            while not done.is_set():
                snapshot = engine.snapshot()
                if snapshot is None:
                    continue
                number = snapshot.meta.sequence
                assert np.array_equal(snapshot.frame, expected[number - 1])
                for other, before in held.items():
                    same = changes[other - 1] == changes[number - 1]
                    assert (address(before) == address(snapshot)) == same
                held[number] = snapshot
                for other in list(held):
                    assert np.array_equal(held[other].frame, expected[other - 1])
                    if choose.integers(0, 3) == 0:
                        del held[other]
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for reader in readers:
        reader.start()
    for each in calls:
        engine.ingest(each)
        if errors:
            break
    done.set()
    for reader in readers:
        reader.join(LONG)
    assert not errors, errors
    engine.ingest(calls[-1])
    assert engine.memory.leased == 1
    assert engine.memory.bytes <= 5 * expected[0].nbytes


@BINNED
def test_a_write_to_a_frame_shows_in_those_that_share_it_and_no_other(kernel: Any, shown: int) -> None:
    rng = np.random.default_rng(3)
    spoiled, plain = (Engine(SENSOR, kernel, snapshot_interval_ms=0) for _ in range(2))
    window, spoiled_at, seen = Window(shown), -1, 0
    for i in range(600):
        events = call(rng, int(rng.choice([0, 1, 40, 400])), 15 * i, 0.002)
        for engine in (spoiled, plain):
            engine.ingest(events)
        changes = window.take(events)
        frame, expected = spoiled.snapshot().frame, plain.snapshot().frame
        if changes == spoiled_at:
            seen += not np.array_equal(frame, expected)
            continue
        assert np.array_equal(frame, expected)
        if rng.integers(0, 3) == 0:
            ctypes.memset(frame.ctypes.data, 77, frame.nbytes)
            spoiled_at = changes
    assert seen > 0


@BINNED
def test_frames_that_are_shared_count_once(kernel: Any, shown: int) -> None:
    engine = Engine(SENSOR, kernel, snapshot_interval_ms=0, pool_frames=2)
    events = np.zeros(10, EVENT_DTYPE)
    held = []
    for i in range(20):  # all in one bin
        events["t"] = 5 * BIN_US + i
        engine.ingest(events)
        held.append(engine.snapshot())
    nbytes = held[0].frame.nbytes
    assert len({address(snapshot) for snapshot in held}) == 1
    assert [snapshot.meta.sequence for snapshot in held] == list(range(1, 21))
    memory = engine.memory
    assert (memory.bytes, memory.leased, memory.one_off) == (nbytes, 20, 18)
    events["t"] = 6 * BIN_US
    engine.ingest(events)
    later = engine.snapshot()
    assert address(later) != address(held[0])
    assert engine.memory.bytes == 2 * nbytes
    last = held.pop()
    held.clear()
    assert engine.memory.bytes == 2 * nbytes  # one of those who share it is left
    del last
    engine.ingest(events)
    assert engine.memory.leased == 2
    assert engine.memory.bytes <= 3 * nbytes
    frame = later.frame
    before = frame.copy()
    del engine, later
    assert np.array_equal(frame, before)


@BINNED
def test_after_reset_nothing_is_shared_with_what_was_before(kernel: Any, shown: int) -> None:
    engine = Engine(SENSOR, kernel, snapshot_interval_ms=0)
    events = np.zeros(1, EVENT_DTYPE)
    engine.ingest(events)
    before = engine.snapshot()
    ctypes.memset(before.frame.ctypes.data, 1, before.frame.nbytes)
    engine.reset()
    engine.ingest(events)
    after = engine.snapshot()
    assert address(after) != address(before)
    assert not after.frame.any()


def test_other_kernels_have_a_frame_for_each_publication() -> None:
    for kernel in ("event_count", "polarity", TimeSurface()):
        engine = Engine(SENSOR, kernel, snapshot_interval_ms=0)
        held = []
        for _ in range(5):
            engine.ingest(np.zeros(0, EVENT_DTYPE))
            held.append(engine.snapshot())
        assert len({address(snapshot) for snapshot in held}) == 5
