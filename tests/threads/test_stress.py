"""One producer, up to 64 readers that do all a reader can, and a thread that starts, stops and resets.

`FRAMES2PY_STRESS` says how many times as long as usual it goes on."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from records import uniform

from frames2py import Engine, EventCount, TimeSurface

WIDTH, HEIGHT = 61, 37
FACTOR = int(os.environ.get("FRAMES2PY_STRESS", "1"))
PUBLICATIONS = 60 * FACTOR
LONG = 60.0 * FACTOR

pytestmark = pytest.mark.timeout(120 * FACTOR)

BATCHES = [uniform(WIDTH, HEIGHT, times, 0) for times in range(6)]


def batch(t: int) -> Any:
    """An event or a few on every pixel, as many as `t` says: frames that are mixed up show."""
    events = BATCHES[t % 5 + 1]
    events["t"] = t
    return events


def check_count(frame: Any, t: int) -> None:
    assert frame.min() == frame.max() == t % 5 + 1


def check_surface(frame: Any, t: int) -> None:
    assert frame.min() == frame.max() == t


class Custom(EventCount):
    """A kernel that takes the way of kernels written in Python."""

    def read(self, state: Any, out: Any, watermark: Any) -> None:
        super().read(state, out, watermark)


Check = Callable[[Any, int], None]


class Readers:
    """What readers do, one step at a time. `check` tells whether a frame is the one of a time."""

    def __init__(self, engine: Engine, check: Check) -> None:
        self.engine = engine
        self.check = check
        self.passed: deque[tuple[Any, int]] = deque()
        self.done = threading.Event()
        self.errors: list[BaseException] = []

    def look(self, snapshot: Any) -> int:
        """Checks a snapshot. Its number."""
        self.check(snapshot.frame, snapshot.meta.watermark)
        return int(snapshot.meta.sequence)

    def newer(self) -> Iterator[Any]:
        """One snapshot after another, each newer than the one before; None where none came for a while."""
        last = 0
        while True:
            snapshot = self.engine.wait_for_newer(last, timeout=0.01)
            if snapshot is not None:
                assert snapshot.meta.sequence > last
                last = self.look(snapshot)
            yield snapshot

    def spin(self) -> Iterator[None]:
        last = 0
        while True:
            snapshot, again = self.engine.snapshot(), self.engine.snapshot()
            if snapshot is not None:
                number = self.look(snapshot)
                assert number >= last
                last = number
                if again is not None and again.meta.sequence == number:
                    assert again is snapshot
            yield

    def hold(self) -> Iterator[None]:
        held: list[Any] = []
        chance = random.Random(1)
        for snapshot in self.newer():
            if snapshot is not None:
                held.append(snapshot)
            if len(held) > 12:
                self.look(held.pop(chance.randrange(len(held))))
            yield

    def copy(self) -> Iterator[None]:
        out = None
        for snapshot in self.newer():
            if snapshot is not None:
                out = snapshot.copy() if out is None else snapshot.copy(out=out)
                self.check(out, snapshot.meta.watermark)
                out[...] = 99
                self.look(snapshot)
            yield

    def give(self) -> Iterator[None]:
        """Passes parts of frames on, and lets go of all else."""
        for snapshot in self.newer():
            if snapshot is not None and len(self.passed) < 64:
                self.passed.append((snapshot.frame[1:, ::2], snapshot.meta.watermark))
            yield

    def take(self) -> Iterator[None]:
        """Is the last to let go of what others passed on."""
        while True:
            try:
                part, t = self.passed.popleft()
            except IndexError:
                time.sleep(1e-3)
            else:
                self.check(part, t)
                assert not part.flags.writeable
                del part
            yield

    def lifecycle(self) -> Iterator[None]:
        chance = random.Random(2)
        while True:
            chance.choice([self.engine.stop, self.engine.reset, self.engine.start, self.engine.start])()
            memory = self.engine.memory
            assert 0 <= memory.one_off <= memory.leased <= memory.slots
            stats = self.engine.stats
            assert stats.events_out_of_bounds == 0
            assert stats.events_ingested % (WIDTH * HEIGHT) == 0
            yield

    def start(self, steps: Iterator[None]) -> threading.Thread:
        def run() -> None:
            try:
                for _ in steps:
                    if self.done.is_set():
                        break
            except BaseException as error:
                self.errors.append(error)
                self.done.set()
            finally:
                # What a generator holds goes with it.
                steps.close()  # type: ignore[attr-defined]

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """With the GIL, threads take turns every 5 ms; that would be hundreds of publications."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("readers", [1, 8, 64])
@pytest.mark.parametrize(
    ("kernel", "check", "pool_frames"),
    [(EventCount(), check_count, 8), (TimeSurface(), check_surface, 0), (Custom(), check_count, 2)],
    ids=["event_count", "time_surface", "custom"],
)
def test_readers_of_all_kinds(kernel: Any, check: Check, pool_frames: int, readers: int) -> None:
    engine = Engine((WIDTH, HEIGHT), kernel, snapshot_interval_ms=0, pool_frames=pool_frames)
    group = Readers(engine, check)
    kinds = [group.hold, group.give, group.take, group.copy, group.newer, group.spin]
    threads = [group.start(kinds[number % len(kinds)]()) for number in range(readers)]
    threads.append(group.start(group.lifecycle()))
    t = published = 0
    while published < PUBLICATIONS and not group.errors:
        t += 1
        engine.ingest(batch(t))
        snapshot = engine.snapshot()
        # Stopped, or reset, now and then.
        published = published if snapshot is None else snapshot.meta.sequence
    snapshot = None
    group.done.set()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive(), "a thread hangs"
    if group.errors:
        raise group.errors[0]
    del threads
    group.passed.clear()

    frame_bytes = WIDTH * HEIGHT * np.dtype(kernel.output_spec((WIDTH, HEIGHT))[1]).itemsize
    memory = engine.memory
    # Only the latest is held, and not even that after a reset; of the others no more are kept than were asked
    # for, and one is ready for the next publication.
    assert memory.leased <= 1
    engine.reset()
    memory = engine.memory
    assert memory.leased == memory.one_off == 0
    assert memory.bytes <= (pool_frames + 1) * frame_bytes
    # All of it still works.
    engine.start()
    engine.ingest(batch(t + 1))
    snapshot = engine.snapshot()
    assert snapshot is not None
    check(snapshot.frame, t + 1)
    assert engine.memory.leased == 1
