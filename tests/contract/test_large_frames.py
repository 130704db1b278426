"""Frames that are written in other ways than small ones, against sums of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import frames2py
from frames2py import Engine
from frames2py.kernels import ExpDecay, StackedHistogram, TimestampDecay, VoxelGrid

WIDTH, HEIGHT = 1280, 720
PIXELS = WIDTH * HEIGHT
BIN_US = 1_000
Array = npt.NDArray[Any]


def call(number: int) -> Array:
    """Three quarters of a bin: one pixel gets more than a byte can hold, and some events are late."""
    rng = np.random.default_rng(number)
    events = np.zeros(45_000, frames2py.EVENT_DTYPE)
    start = 10**9 + number * BIN_US * 3 // 4
    events["t"] = start + np.sort(rng.integers(0, BIN_US * 3 // 4, len(events)))
    events["x"], events["y"] = rng.integers(0, WIDTH, len(events)), rng.integers(0, HEIGHT, len(events))
    events["p"] = rng.integers(0, 2, len(events))
    hot = rng.random(len(events)) < 0.02
    events["x"][hot], events["y"][hot], events["p"][hot] = WIDTH - 1, HEIGHT - 1, number % 2
    if number % 3 == 2:
        events["t"][:1000] -= 2 * BIN_US
    return events


def pixels(events: Array, width: int = WIDTH) -> Array:
    return events["y"].astype(np.int64) * width + events["x"]


def histogram(events: Array, bins: int) -> Array:
    first = int(events["t"].max()) // BIN_US - bins
    shown = events["t"].astype(np.int64) // BIN_US - first
    of = events[(shown >= 0) & (shown < bins)]
    place = ((of["p"] != 0) * bins + of["t"].astype(np.int64) // BIN_US - first) * PIXELS + pixels(of)
    return np.bincount(place, minlength=2 * bins * PIXELS).reshape(2, bins, HEIGHT, WIDTH)


def voxel(events: Array, bins: int) -> Array:
    first = int(events["t"].max()) // BIN_US - bins + 1
    knot = events["t"].astype(np.int64) // BIN_US - first
    keep = (knot >= 0) & (knot < bins - 1)
    of, knot = events[keep], knot[keep]
    into = of["t"].astype(np.int64) % BIN_US
    sign = np.where(of["p"] != 0, 1, -1)
    sums = np.zeros(bins * PIXELS)
    for place, share in ((knot, BIN_US - into), (knot + 1, into)):
        sums += np.bincount(place * PIXELS + pixels(of), sign * share, bins * PIXELS)
    return (sums / BIN_US).astype(np.float32).reshape(bins, HEIGHT, WIDTH)


@pytest.mark.parametrize("kind", ["histogram", "voxel"])
def test_frames_that_are_read_time_and_again_are_right(kind: str) -> None:
    bins = 5 if kind == "histogram" else 10
    kernel = (StackedHistogram if kind == "histogram" else VoxelGrid)(bins=bins, bin_us=BIN_US)
    engine = Engine((WIDTH, HEIGHT), kernel, snapshot_interval_ms=0)
    calls = [call(number) for number in range(14)]
    held = []
    for number, events in enumerate(calls):
        engine.ingest(events)
        snapshot = engine.snapshot()
        assert snapshot is not None
        if number in (3, 8):
            held.append((number, snapshot))  # looked at later, when its bins have long changed
        if number > 4:
            so_far = np.concatenate(calls[: number + 1])
            expected = (histogram if kind == "histogram" else voxel)(so_far, bins)
            assert snapshot.frame.nbytes > 32 << 20
            assert np.array_equal(snapshot.frame, expected), number
    for number, snapshot in held:
        so_far = np.concatenate(calls[: number + 1])
        assert np.array_equal(snapshot.frame, (histogram if kind == "histogram" else voxel)(so_far, bins)), (
            number
        )


def test_frames_of_more_than_a_few_pages_are_right() -> None:
    width, height = 333, 257  # no power of two, and no whole number of anything
    shape = (height, width)
    tau_us = 2_000.0
    kernels = ["event_count", "polarity", "time_surface", ExpDecay(0.75), TimestampDecay(tau_us)]
    engines = [Engine((width, height), kernel, snapshot_interval_ms=0) for kernel in kernels]
    seen: list[Array] = []
    for number in range(6):
        rng = np.random.default_rng(number)
        events = np.zeros(20_000, frames2py.EVENT_DTYPE)
        events["t"] = 10**9 + number * 500 + np.sort(rng.integers(0, 500, len(events)))
        events["x"], events["y"] = rng.integers(0, width, len(events)), rng.integers(0, height, len(events))
        events["p"] = rng.integers(0, 2, len(events))
        at = pixels(events, width)
        seen.append(events)
        for engine in engines:
            engine.ingest(events)
        if number == 2:
            continue  # nobody reads this one
        snapshots = [engine.snapshot() for engine in engines]
        frames = [snapshot.frame for snapshot in snapshots if snapshot is not None]
        assert len(frames) == 5
        count = np.bincount(at, minlength=width * height).reshape(shape)
        on = np.bincount(at[events["p"] == 1], minlength=width * height).reshape(shape)
        assert np.array_equal(frames[0], count)
        assert np.array_equal(frames[1], np.stack([count - on, on], -1))
        so_far = np.concatenate(seen)
        places = pixels(so_far, width)
        faded, surface = np.zeros(width * height), np.zeros(width * height, np.uint64)
        np.maximum.at(surface, places, so_far["t"])
        assert np.array_equal(frames[2], surface.reshape(shape))
        for call in seen:
            faded *= 0.75
            np.add.at(faded, pixels(call, width), 1.0)
        close_to(frames[3], faded.reshape(shape))
        ages = (so_far["t"].max() - so_far["t"]).astype(np.float64)
        close_to(frames[4], np.bincount(places, np.exp(-ages / tau_us), width * height).reshape(shape))


def close_to(frame: Array, exact: Array) -> None:
    """Within 1 unit in the last place."""
    expected = exact.astype(np.float32)
    assert (np.abs(frame - expected) <= np.spacing(expected)).all()
