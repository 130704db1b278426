"""How playback cuts and times batches, on a clock of the test's own."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from frames2py import EVENT_DTYPE
from frames2py._cli.pacing import paced, sliced


def events(times: list[int]) -> np.ndarray:
    batch = np.zeros(len(times), EVENT_DTYPE)
    batch["t"] = times
    return batch


class Clock:
    """Stands still but for sleeping and what `work` adds."""

    def __init__(self) -> None:
        self.now = 123

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= 3600
        self.now += max(1, round(seconds * 1e9))


@pytest.mark.parametrize("speed", [1.0, 0.25, 3.0, 1e6])
def test_batch_is_due_when_its_stream_time_has_passed(speed: float) -> None:
    clock = Clock()
    batches = [events(t) for t in ([50, 40, 60], [], [55, 10], [1000], [900, 2000], [2000])]
    arrived = []
    for batch, original in zip(
        paced(batches, speed=speed, sleep=clock.sleep, clock=clock), batches, strict=True
    ):
        assert batch is original
        arrived.append(clock.now - 123)
    due = [
        math.ceil(Fraction(newest - 40) * 1000 / Fraction(speed)) for newest in (60, 60, 60, 1000, 2000, 2000)
    ]
    assert all(0 <= a - d <= 1000 for a, d in zip(arrived, due, strict=True)), (arrived, due)


def test_lateness_does_not_add_up() -> None:
    clock = Clock()
    arrived = []
    for _ in paced(
        [events([0]), events([100]), events([200]), events([1000])], speed=1, sleep=clock.sleep, clock=clock
    ):
        arrived.append(clock.now - 123)
        clock.now += 150_000  # work that takes longer than the next step of 100 us
    assert arrived == [0, 150_000, 300_000, 1_000_000]


def test_huge_waits_do_not_overflow() -> None:
    waits = []

    class Enough(Exception):
        pass

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        raise Enough

    for speed in (5e-324, 1.0):
        with pytest.raises(Enough):
            list(paced([events([0]), events([2**63 - 1])], speed=speed, sleep=sleep, clock=lambda: 0))
    assert waits == [3600.0, 3600.0]


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_short_and_whole_and_in_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches = []
    now = int(rng.integers(0, 2**62))
    for _ in range(int(rng.integers(1, 6))):
        steps = rng.integers(-3000, 9000, int(rng.integers(0, 40)))
        times = []
        for step in steps.tolist():
            now = max(0, now + step)
            times.append(now)
        batches.append(events(times))
    pieces = list(sliced(batches, 5000))
    assert [t for piece in pieces for t in piece["t"].tolist()] == [
        t for b in batches for t in b["t"].tolist()
    ]
    newest = 0
    for piece in pieces:
        assert len(piece) > 0
        times = piece["t"].tolist()
        first = max(newest, times[0])
        newest = max(newest, *times)
        assert newest - first < 5000
        assert piece.flags.c_contiguous
        assert any(np.shares_memory(piece, batch) for batch in batches)


def test_quiet_batch_is_cut_where_it_is_quiet() -> None:
    pieces = list(sliced([events([0, 10, 4999, 5000, 20_000, 3, 20_001])], 5000))
    assert [piece["t"].tolist() for piece in pieces] == [[0, 10, 4999], [5000], [20_000, 3, 20_001]]


def test_playback_does_not_begin_before_its_first_event() -> None:
    pieces = list(sliced([events([9000, 8000, 9100, 10, 9200, 11]), events([7, 9300])], 5000))
    assert [piece["t"].tolist() for piece in pieces] == [[9000, 8000, 9100], [10, 9200, 11], [7, 9300]]
