"""What hypothesis draws: kernels, sensors, timestamps, calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import oracle
from hypothesis import strategies as st
from records import LAYOUTS, Event

import frames2py


class Choice(NamedTuple):
    """A kernel, and how to make the model of it."""

    kernel: Any
    model: Callable[[int, int], oracle.Model]

    def __repr__(self) -> str:
        arguments = {
            k: v for k, v in vars(self.model(1, 1)).items() if k in ("decay", "tau_us", "bins", "bin_us")
        }
        return f"{self.kernel.name}({arguments})"


BIN_US = st.one_of(
    st.integers(1, 20), st.sampled_from([1, 1000, 33_333, 2**20, 2**28 - 1]), st.integers(1, 2**28 - 1)
)
TAU_US = st.one_of(st.floats(1.0, 1e5), st.sampled_from([1.0, 0.5, 1e6, 1e9, 1e15, 2.0**63, 1e-3]))
DECAY = st.one_of(st.sampled_from([0.5, 0.9, 1 - 2**-53, 1e-3, 5e-324]), st.floats(0.001, 0.999))


def histogram(bins: int, bin_us: int) -> Choice:
    return Choice(
        frames2py.StackedHistogram(bins=bins, bin_us=bin_us),
        lambda width, height: oracle.StackedHistogram(width, height, bins, bin_us),
    )


def voxels(bins: int, bin_us: int) -> Choice:
    return Choice(
        frames2py.VoxelGrid(bins=bins, bin_us=bin_us),
        lambda width, height: oracle.VoxelGrid(width, height, bins, bin_us),
    )


def exp_decay(decay: float) -> Choice:
    return Choice(frames2py.ExpDecay(decay), lambda width, height: oracle.ExpDecay(width, height, decay))


def timestamp_decay(tau_us: float) -> Choice:
    return Choice(
        frames2py.TimestampDecay(tau_us), lambda width, height: oracle.TimestampDecay(width, height, tau_us)
    )


EVENT_COUNT = st.just(Choice(frames2py.EventCount(), oracle.EventCount))
POLARITY = st.just(Choice(frames2py.Polarity(), oracle.Polarity))
TIME_SURFACE = st.just(Choice(frames2py.TimeSurface(), oracle.TimeSurface))
EXP_DECAY = st.builds(exp_decay, DECAY)
TIMESTAMP_DECAY = st.builds(timestamp_decay, TAU_US)
HISTOGRAM = st.builds(histogram, st.integers(1, 5), BIN_US)
VOXELS = st.builds(voxels, st.integers(2, 6), BIN_US)

TEMPORAL = st.one_of(HISTOGRAM, VOXELS)
# What does not depend on the order of events or the cuts between calls, to the last bit.
EXACT = st.one_of(EVENT_COUNT, POLARITY, TIME_SURFACE, HISTOGRAM, VOXELS)
ANY_KERNEL = st.one_of(EVENT_COUNT, POLARITY, TIME_SURFACE, EXP_DECAY, TIMESTAMP_DECAY, HISTOGRAM, VOXELS)

SENSOR = st.tuples(st.integers(1, 5), st.integers(1, 4))

ANCHORS = [0, 2**24, 2**31, 2**32, 2**53, 1_790_000_000_000_000, 2**62, 2**63 - 1]


def around(anchor: int, spread: int) -> st.SearchStrategy[int]:
    return st.integers(max(0, anchor - spread), min(2**63 - 1, anchor + spread))


@st.composite
def timestamps(draw: st.DrawFn) -> st.SearchStrategy[int]:
    """A strategy for the timestamps of one example: mostly one neighbourhood, now and then anywhere."""
    anchor = draw(st.sampled_from(ANCHORS))
    spread = draw(st.sampled_from([3, 60, 5000, 10**6, 10**9]))
    near = around(anchor, spread)
    if draw(st.booleans()):
        return near
    return st.one_of(near, near, near, st.sampled_from(ANCHORS), st.integers(0, 2**63 - 1))


@st.composite
def event_rows(
    draw: st.DrawFn, sensor: tuple[int, int], times: st.SearchStrategy[int], max_size: int
) -> list[Event]:
    width, height = sensor
    x = st.one_of(st.integers(0, width - 1), st.integers(0, width - 1), st.integers(0, width), st.just(65535))
    y = st.one_of(
        st.integers(0, height - 1), st.integers(0, height - 1), st.integers(0, height), st.just(65535)
    )
    p = st.sampled_from([0, 1, 0, 1, 2, 255])
    return draw(st.lists(st.tuples(times, x, y, p), max_size=max_size))


@st.composite
def calls(
    draw: st.DrawFn, sensor: tuple[int, int], max_calls: int = 6, max_size: int = 12
) -> list[list[Event]]:
    times = draw(timestamps())
    return draw(st.lists(event_rows(sensor, times, max_size), max_size=max_calls))


LAYOUT = st.sampled_from(sorted(LAYOUTS))


@st.composite
def cut(draw: st.DrawFn, rows: list[Event]) -> list[list[Event]]:
    """The rows as some number of calls, empty ones included, in the same order."""
    ends = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    return [rows[a:b] for a, b in zip([0, *ends], [*ends, len(rows)], strict=True)]
