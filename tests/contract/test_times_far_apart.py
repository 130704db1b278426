"""Contract section 2, the time surface: times hours apart, and whatever was published before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from records import events

from frames2py import Accumulator, Engine

WIDTH, HEIGHT = 64, 48
MINUTE = 60_000_000
START = 1_700_000_000_000_000
LAST = 2**63 - 1

STREAMS = {
    # Each gives the time at which a call starts.
    "a day, half an hour a call": [START + i * 30 * MINUTE for i in range(48)],
    "a leap of five hours": [START, START + 1, START + 300 * MINUTE, START + 300 * MINUTE + 1],
    "from 0 to the end and back": [0, LAST, 1, LAST, 2, LAST - 1, 0],
    "late by an hour": [START, START - 60 * MINUTE, START + 1, START - 59 * MINUTE, START + 2],
    "from the clock's start to Unix time": [0, 1, 2, START, START + 5],
}


def calls(starts: list[int], seed: int) -> Iterator[Any]:
    """Calls on some of the pixels, with times around where they start; in every third call on all."""
    rng = np.random.default_rng(seed)
    for i, start in enumerate(starts):
        pixels = np.arange(WIDTH * HEIGHT) if i % 3 == 2 else rng.integers(0, WIDTH * HEIGHT, 60)
        steps = rng.integers(0, 1000, len(pixels)).tolist()
        times = [min(start + step, LAST) for step in steps]
        yield events((t, p % WIDTH, p // WIDTH, 1) for t, p in zip(times, pixels.tolist(), strict=True))


def take_in(surface: dict[tuple[int, int], int], call: Any) -> None:
    for t, x, y, _ in call.tolist():
        surface[y, x] = max(t, surface.get((y, x), 0))


def shows(frame: Any, surface: dict[tuple[int, int], int]) -> bool:
    expected = np.zeros((HEIGHT, WIDTH), np.uint64)
    for pixel, t in surface.items():
        expected[pixel] = t
    return frame.dtype == np.uint64 and np.array_equal(frame, expected)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("reads", [0, 1, 3])
def test_what_is_held_stays_what_it_was(stream: str, reads: int) -> None:
    # `reads`: one publication in so many is looked at before the next; 0: all at the end.
    engine = Engine((WIDTH, HEIGHT), "time_surface", snapshot_interval_ms=0)
    accumulator = Accumulator((WIDTH, HEIGHT), "time_surface")
    surface: dict[tuple[int, int], int] = {}
    held = []
    for i, call in enumerate(calls(STREAMS[stream], 1)):
        engine.ingest(call)
        accumulator.accumulate(call)
        take_in(surface, call)
        assert shows(accumulator.read(), surface)
        snapshot = engine.snapshot()
        assert snapshot is not None
        if reads and i % reads == 0:
            assert shows(snapshot.frame, surface)
        held.append((snapshot, dict(surface)))
    for snapshot, before in held:
        assert shows(snapshot.frame, before)


def test_a_reset_begins_anew_after_times_far_apart() -> None:
    engine = Engine((WIDTH, HEIGHT), "time_surface", snapshot_interval_ms=0)
    held = []
    for seed, stream in enumerate(STREAMS.values()):
        surface: dict[tuple[int, int], int] = {}
        for call in calls(stream, seed):
            engine.ingest(call)
            take_in(surface, call)
            held.append((engine.snapshot(), dict(surface)))
        engine.reset()
        assert engine.snapshot() is None
    for snapshot, before in held:
        assert snapshot is not None
        assert shows(snapshot.frame, before)
