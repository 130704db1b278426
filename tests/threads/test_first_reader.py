"""Frames that their first reader makes, and memory that is cleared or updated only where it must be."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from every_kernel import EVERY_KERNEL, KERNELS

from frames2py import (
    EVENT_DTYPE,
    Accumulator,
    Engine,
    ExpDecay,
    StackedHistogram,
    TimestampDecay,
    TimeSurface,
    VoxelGrid,
)

SENSOR = (70, 50)
LONG = 60.0
BINNED = pytest.mark.parametrize(
    "kernel",
    [StackedHistogram(bins=3, bin_us=10), VoxelGrid(bins=4, bin_us=10)],
    ids=lambda kernel: kernel.name,
)
# Kernels whose publications have a frame each. For the others see `test_same_frame.py`.
EACH_ITS_OWN = [kernel for kernel in KERNELS if not isinstance(kernel, (StackedHistogram, VoxelGrid))]
# Kernels that publish how a frame is made.
LATER = pytest.mark.parametrize(
    "kernel",
    [
        StackedHistogram(bins=3, bin_us=10),
        VoxelGrid(bins=4, bin_us=10),
        TimeSurface(),
        ExpDecay(decay=0.9),
        TimestampDecay(tau_us=30.0),
    ],
    ids=lambda kernel: kernel.name,
)


def some(rng: np.random.Generator, count: int, t: int) -> Any:
    """Events of the 40 µs before `t`: some are late, in whatever bin."""
    events = np.zeros(count, EVENT_DTYPE)
    events["t"] = np.maximum(t - rng.integers(0, 40, count), 0)
    events["x"], events["y"] = rng.integers(0, SENSOR[0] + 2, count), rng.integers(0, SENSOR[1], count)
    events["p"] = rng.integers(0, 2, count)
    return events


class Sparse:
    """Writes only those elements of a frame that had events since the last one."""

    name = "sparse"

    def output_spec(self, sensor_size: tuple[int, int]) -> Any:
        return sensor_size[::-1], np.dtype("u2")

    def init_state(self, sensor_size: tuple[int, int]) -> list[Any]:
        return []

    def begin_call(self, state: list[Any]) -> None:
        pass

    def accumulate(self, events: Any, state: list[Any], watermark: int) -> None:
        state.append(events.copy())

    def read(self, state: list[Any], out: Any, watermark: int | None) -> None:
        for events in state:
            out[events["y"], events["x"]] = events["t"] % 1000 + 1

    def close_window(self, state: list[Any]) -> None:
        state.clear()

    def reset(self, state: list[Any]) -> None:
        state.clear()


@pytest.mark.parametrize("kernel", [*EACH_ITS_OWN, Sparse()], ids=lambda kernel: kernel.name)
def test_a_write_to_a_frame_shows_in_no_other(kernel: Any) -> None:
    # Some publications are spoiled, some held, most are not looked at; calls are small and large.
    rng = np.random.default_rng(3)
    spoiled, plain = (Engine(SENSOR, kernel, snapshot_interval_ms=0) for _ in range(2))
    held = []
    for i in range(300):
        events = some(rng, int(rng.choice([0, 1, 40, 200, 4000])), 5 * i)
        for engine in (spoiled, plain):
            engine.ingest(events)
        look = rng.integers(0, 6)
        if look < 2:
            expected = plain.snapshot().frame
            frame = spoiled.snapshot().frame
            assert np.array_equal(frame, expected)
            if look == 0:
                ctypes.memset(frame.ctypes.data, int(rng.integers(1, 255)), frame.nbytes)
            else:
                held.append((frame, expected))
        if rng.integers(0, 20) == 0:
            for engine in (spoiled, plain):
                engine.reset()
        if len(held) > 3:
            for frame, expected in held:
                assert np.array_equal(frame, expected)
            held.clear()


@EVERY_KERNEL
def test_frames_that_are_held_stay_what_was_published(kernel: Any) -> None:
    # Late events go to bins that held frames show.
    rng = np.random.default_rng(4)
    engine = Engine(SENSOR, kernel, snapshot_interval_ms=0)
    windowed = kernel.name in ("event_count", "polarity")
    accumulator = Accumulator(SENSOR, kernel)
    held = []
    for i in range(120):
        events = some(rng, int(rng.integers(0, 3000)), 3 * i)
        engine.ingest(events)
        accumulator.accumulate(events)
        held.append((engine.snapshot().frame, accumulator.read()))
        if windowed:
            accumulator.reset()
        if len(held) == 7:
            for frame, expected in held:
                assert np.array_equal(frame, expected)
            held.clear()


@LATER
def test_first_readers_that_race_get_one_object(kernel: Any) -> None:
    engine = Engine((640, 480), kernel, snapshot_interval_ms=0)
    count, rounds = 6, 12
    expected: list[Any] = [None] * rounds
    got: list[list[Any]] = [[] for _ in range(rounds)]
    begin, end = threading.Barrier(count + 1), threading.Barrier(count + 1)
    errors = []

    def read() -> None:
        try:
            for i in range(rounds):
                begin.wait(LONG)
                snapshot = engine.snapshot()
                assert np.array_equal(snapshot.frame, expected[i])
                got[i].append(snapshot)
                end.wait(LONG)
        except BaseException as error:
            errors.append(error)
            begin.abort()
            end.abort()

    readers = [threading.Thread(target=read) for _ in range(count)]
    for reader in readers:
        reader.start()
    accumulator = Accumulator((640, 480), kernel)
    try:
        for i in range(rounds):
            events = some(np.random.default_rng(i), 3000, 10 * i)
            accumulator.accumulate(events)
            expected[i] = accumulator.read()
            engine.ingest(events)
            begin.wait(LONG)
            end.wait(LONG)
    except threading.BrokenBarrierError:
        pass
    for reader in readers:
        reader.join(LONG)
    assert not errors, errors
    for snapshots in got:
        assert len(snapshots) == count
        assert all(snapshot is snapshots[0] for snapshot in snapshots)


@BINNED
def test_the_producer_goes_on_while_readers_make_frames(kernel: Any) -> None:
    # Each bin has its number of events on every pixel of a column, so a frame of two publications would show.
    engine = Engine(SENSOR, kernel, snapshot_interval_ms=0)
    calls = 1500
    done = threading.Event()
    errors: list[BaseException] = []

    def consume() -> None:
        sequence = 0
        try:
            while not done.is_set():
                snapshot = engine.wait_for_newer(sequence, timeout=1)
                if snapshot is None:
                    continue
                sequence = snapshot.meta.sequence
                first = snapshot.frame[..., :1]
                assert (snapshot.frame[..., :] == first).all()
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=consume) for _ in range(3)]
    for reader in readers:
        reader.start()
    events = np.zeros(SENSOR[0] * SENSOR[1], EVENT_DTYPE)
    events["x"] = np.arange(len(events)) % SENSOR[0]
    events["y"] = np.arange(len(events)) // SENSOR[0]
    for i in range(calls):
        events["t"], events["p"] = 3 * i, i % 2
        engine.ingest(events)
    done.set()
    for reader in readers:
        reader.join(LONG)
    assert not errors, errors
    del readers
    engine.ingest(events)
    assert engine.memory.leased == 1


@LATER
def test_frames_that_nobody_looks_at_take_no_memory(kernel: Any) -> None:
    engine = Engine(SENSOR, kernel, snapshot_interval_ms=0, pool_frames=2)
    rng = np.random.default_rng(5)
    for i in range(100):
        engine.ingest(some(rng, 100, 5 * i))
    assert engine.memory.bytes == 0
    held = []
    for i in range(100, 120):
        engine.ingest(some(rng, 100, 5 * i))
        held.append(engine.snapshot())
    nbytes = held[0].frame.nbytes
    assert engine.memory.bytes == 20 * nbytes
    held.clear()
    for i in range(120, 160):
        engine.ingest(some(rng, 100, 5 * i))
    assert engine.memory.bytes <= 2 * nbytes


GUARDED = """
import ctypes
import numpy as np
from frames2py import EVENT_DTYPE, Engine, ExpDecay, StackedHistogram, TimeSurface, TimestampDecay
engine = Engine((64, 48), {kernel}, snapshot_interval_ms=0, guard=True)
events = np.zeros(10, EVENT_DTYPE)
for i in range(200):  # memory that was guarded is written to again
    events["t"] = i
    engine.ingest(events)
    if i % 50 < 25 or i % 3 == 0:  # all of them are read, then some
        frame = engine.snapshot().frame
        assert np.isclose(frame.sum(), {total}), i
print("before", flush=True)
frame = engine.snapshot().frame
ctypes.memset(frame.ctypes.data, 1, 4)
print("after", flush=True)
"""


@pytest.mark.parametrize(
    ("kernel", "total"),
    [
        ("StackedHistogram(bins=2, bin_us=10)", "10 * (10 * min(i // 10, 2))"),
        ("TimeSurface()", "i"),
        ("ExpDecay(decay=0.5)", "20 - 10 * 0.5**i"),
        ("TimestampDecay(tau_us=1.0)", "10 * sum(np.exp(-j) for j in range(i + 1))"),
    ],
)
def test_a_frame_that_a_reader_made_is_guarded(kernel: str, total: str) -> None:
    command = [sys.executable, "-c", GUARDED.format(kernel=kernel, total=total)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.stdout.splitlines() == ["before"], result.stderr
    assert result.returncode != 0


FORKED = """
import os, sys, threading, warnings
import numpy as np
from frames2py import EVENT_DTYPE, Engine, ExpDecay, StackedHistogram, TimeSurface

warnings.simplefilter("ignore")
kernel = {kernel}
engine = Engine((640, 480), kernel, snapshot_interval_ms=0)
events = np.zeros(1000, EVENT_DTYPE)
stop = threading.Event()

def read():
    while not stop.is_set():
        engine.snapshot()

readers = [threading.Thread(target=read) for _ in range(2)]
for reader in readers:
    reader.start()
codes = []
for i in range(40):
    events["t"] = {step} * i
    engine.ingest(events)
    child = os.fork()
    if child == 0:
        frame = engine.snapshot().frame  # a reader may be half-way through it
        right = np.isclose(frame.sum(), {total})
        if isinstance(kernel, StackedHistogram):
            engine.ingest(events)  # for the bin in progress: this shows the same frame
            again = engine.snapshot().frame
            right = right and again.ctypes.data == frame.ctypes.data
            events["t"] += 1000  # the bins before are shown no more
            engine.ingest(events)
            right = right and engine.snapshot().frame.sum() == 0
            for k in range(1, 4):
                events["t"] += 10
                engine.ingest(events)
                right = right and engine.snapshot().frame.sum() == 1000 * k
        os._exit(0 if right else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.set()
print(codes == [0] * 40)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
@pytest.mark.parametrize(
    ("kernel", "step", "total"),
    [
        ("StackedHistogram(bins=8, bin_us=10)", 10, "1000 * min(i, 8)"),
        (
            "StackedHistogram(bins=8, bin_us=10)",
            3,
            "1000 * sum(-8 <= 3 * j // 10 - 3 * i // 10 < 0 for j in range(i))",
        ),
        ("TimeSurface()", 10, "10 * i"),
        ("ExpDecay(decay=0.5)", 10, "2000 - 1000 * 0.5**i"),
    ],
)
def test_a_child_can_read_what_a_thread_of_its_parent_was_making(kernel: str, step: int, total: str) -> None:
    command = [sys.executable, "-c", FORKED.format(kernel=kernel, step=step, total=total)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (result.returncode, result.stdout.strip()) == (0, "True"), result.stderr
