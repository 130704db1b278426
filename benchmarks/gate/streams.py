"""The events that subjects are fed and that the oracle reckons with: files of packed records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from . import cells
from .cells import BASE, EVENTS_PER_US, STREAM, Cell, Sensor

Events = npt.NDArray[np.void]

DTYPE = np.dtype([("t", "<u8"), ("x", "<u2"), ("y", "<u2"), ("p", "u1")])


def path(folder: Path, kind: str, sensor: Sensor) -> Path:
    return folder / f"{kind.rstrip('%')}-{sensor[0]}x{sensor[1]}.events"


def load(folder: Path, kind: str, sensor: Sensor) -> Events:
    """A stream of its own, writable."""
    return np.fromfile(path(folder, kind, sensor), DTYPE)


def synthetic(kind: str, sensor: Sensor, count: int = STREAM, seed: int = 1) -> Events:
    """Events at 20 a microsecond, in order, ON and OFF at random.

    Clustered: nine in ten fall around eight centres that move, the rest anywhere. On one pixel: nine in ten.
    Out of bounds: the given part, anywhere in the stream, half to the right and half below."""
    width, height = sensor
    rng = np.random.default_rng(seed)
    events = np.zeros(count, DTYPE)
    events["t"] = BASE + np.arange(count) // EVENTS_PER_US
    events["p"] = rng.integers(0, 2, count)
    x, y = rng.integers(0, width, count), rng.integers(0, height, count)
    if kind == cells.CLUSTERED:
        near = rng.random(count) < 0.9
        which = rng.integers(0, 8, count)
        angle = 2 * np.pi * (which / 8 + np.arange(count) / count)
        near_x = width * (0.5 + 0.35 * np.cos(angle)) + width / 64 * rng.standard_normal(count)
        near_y = height * (0.5 + 0.35 * np.sin(angle)) + height / 64 * rng.standard_normal(count)
        x = np.where(near, np.clip(near_x, 0, width - 1).astype(int), x)
        y = np.where(near, np.clip(near_y, 0, height - 1).astype(int), y)
    elif kind == cells.HOT_PIXEL:
        hot = rng.random(count) < 0.9
        x, y = np.where(hot, width // 2, x), np.where(hot, height // 2, y)
    elif kind in (cells.OUTSIDE_1, cells.OUTSIDE_10):
        part = 0.01 if kind == cells.OUTSIDE_1 else 0.1
        outside, below = rng.random(count) < part, rng.random(count) < 0.5
        x, y = np.where(outside & ~below, x + width, x), np.where(outside & below, y + height, y)
    elif kind != cells.UNIFORM:
        raise ValueError(f"no synthetic stream is called {kind!r}")
    events["x"], events["y"] = x, y
    return events


def write(folder: Path, kind: str, sensor: Sensor) -> None:
    synthetic(kind, sensor).tofile(path(folder, kind, sensor))


def for_check(events: Events, cell: Cell) -> tuple[Events, int]:
    """The head of a stream on another clock, and how many publications it is for: few calls in which bins
    complete and pass out of sight, so that there is something to be wrong about."""
    units = max(1, min(4, len(events) // cell.unit))
    head = events[: units * cell.unit].copy()
    kernel = cell.kernel
    us_per_unit = 1.7 * kernel.bin_us if kernel.bins else cell.unit / EVENTS_PER_US
    head["t"] = BASE + (np.arange(len(head)) * (us_per_unit / cell.unit)).astype("u8")
    return head, units


class Feed:
    """A stream that never ends: the same events again and again, later each time."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.span = int(events["t"].max() - events["t"].min()) + 1
        self.position = 0

    def _again(self) -> None:
        self.events["t"] += np.uint64(self.span)
        self.position = 0

    def batches(self, size: int, per_unit: int, units: int) -> list[Events]:
        """Up to `units` units of `per_unit` calls of `size` events each, at least one unit. Time never goes
        back; it may jump where the stream starts again."""
        unit = size * per_unit
        assert unit <= len(self.events)
        start = -(-self.position // unit) * unit
        if start + unit > len(self.events):
            self._again()
            start = 0
        units = min(units, (len(self.events) - start) // unit)
        end = start + units * unit
        self.position = end
        return [self.events[i : i + size] for i in range(start, end, size)]

    def window(self, us: int) -> Events:
        """One call that spans `us` of time or, where the stream is shorter, all of it."""
        self._again()
        times = self.events["t"]
        count = int(np.searchsorted(times, times[0] + np.uint64(us)))
        self.position = count
        return self.events[:count]
