"""Another thread writes to the array while it is taken in: torn values at worst, each event counted once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from every_kernel import EVERY_KERNEL
from records import LAYOUTS

from frames2py import Accumulator

WIDTH, HEIGHT = 61, 37
# Calls of this size let go of the interpreter, and are of many blocks.
COUNT = 40_000


def stream(layout: str) -> Any:
    rng = np.random.default_rng(8)
    array = np.zeros(COUNT, LAYOUTS[layout])
    array["t"] = np.arange(COUNT)
    array["x"] = rng.integers(0, WIDTH, COUNT)
    array["y"] = rng.integers(0, HEIGHT, COUNT)
    array["p"] = rng.integers(0, 2, COUNT)
    return array


@contextmanager
def writing(write: Callable[[], object]) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            write()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@EVERY_KERNEL
@pytest.mark.parametrize("layout", ["packed", "aligned"])
def test_coordinates_that_change_are_counted_inside_or_outside(kernel: Any, layout: str) -> None:
    array = stream(layout)
    inside, outside = array["x"].copy(), np.full(COUNT, 65_535, "<u2")

    def write() -> None:
        array["x"] = outside
        array["x"] = inside

    accumulator = Accumulator((WIDTH, HEIGHT), kernel)
    calls = 60
    with writing(write):
        for _ in range(calls):
            accumulator.accumulate(array)
    frame = accumulator.read()
    assert 0 <= accumulator.events_out_of_bounds <= calls * COUNT
    assert accumulator.watermark is None or accumulator.watermark < COUNT
    if kernel.name in ("event_count", "polarity"):
        assert frame.sum() + accumulator.events_out_of_bounds == calls * COUNT


@EVERY_KERNEL
@pytest.mark.parametrize("layout", ["packed", "aligned"])
def test_times_that_leave_the_range_reject_the_call_whole_or_drop_their_events(
    kernel: Any, layout: str
) -> None:
    array = stream(layout)
    t = array["t"].copy()
    late = COUNT - 5

    def write() -> None:
        array["t"][late] = 2**63 + 1
        array["t"][late] = t[late]

    accumulator = Accumulator((WIDTH, HEIGHT), kernel)
    accepted, rejections = 0, []
    with writing(write):
        for _ in range(60):
            try:
                accumulator.accumulate(array)
            except ValueError as error:
                rejections.append(str(error))
            else:
                accepted += 1
    assert all("2**63" in rejection for rejection in rejections)
    frame = accumulator.read()
    assert accumulator.events_out_of_bounds == 0
    assert accumulator.watermark is None if accepted == 0 else accumulator.watermark == COUNT - 1
    if kernel.name in ("event_count", "polarity"):
        # The coordinates stayed, so what was taken back is what was taken in.
        assert frame.sum() == accepted * COUNT
    if kernel.name == "time_surface":
        assert frame.max() < COUNT
