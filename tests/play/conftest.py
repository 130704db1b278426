"""Recordings of a few events, written by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import evt_words as w
import numpy as np
import pytest

import frames2py

Event = tuple[int, int, int, int]
Write = Callable[..., Path]


@pytest.fixture
def write(write_raw: Write) -> Write:
    """As ``write_raw``, where a module has no other."""
    return write_raw


@pytest.fixture
def write_raw(tmp_path: Path) -> Write:
    """``write(events, geometry="4x3", tail=b"")`` is an EVT 2.0 file of these ``(t, x, y, p)``."""
    numbers = itertools.count()

    def write(events: Iterable[Event], geometry: str | None = "4x3", tail: bytes = b"") -> Path:
        path = tmp_path / f"{next(numbers)}.raw"
        words = (word for t, x, y, p in events for word in (w.high(t // 64), w.cd(p, t % 64, x, y)))
        path.write_bytes(w.header("2.0", geometry) + w.evt2(*words) + tail)
        return path

    return write


@pytest.fixture(params=["evt2", "npz", "hdf5"])
def write_any(request: pytest.FixtureRequest, tmp_path: Path) -> Write:
    """``write(events)`` is a file of these ``(t, x, y, p)``: decoded natively, or read by Python."""
    if request.param == "hdf5":
        pytest.importorskip("hdf5plugin")
    numbers = itertools.count()

    def write(events: Iterable[Event]) -> Path:
        path = tmp_path / f"any{next(numbers)}"
        array = np.array(list(events), frames2py.EVENT_DTYPE)
        frames2py.save(path, array, sensor_size=(4, 3), format=request.param)
        return path

    return write


@pytest.fixture
def write_broken(tmp_path: Path) -> Callable[[], Path]:
    """The path of an EVT 3.0 file whose body breaks the format behind two events."""

    def write_broken() -> Path:
        path = tmp_path / "broken.raw"
        good = w.evt3((w.TIME_HIGH, 0), (w.ADDR_Y, 1), (w.ADDR_X, 2 | w.ON), (w.ADDR_X, 3))
        # vectors move their base on until it leaves the range of x; the last one has an event there
        runaway = [(w.BASE_X, 0), *[(w.VECT_12, 0)] * 5461, (w.VECT_12, 1 << 11)]
        path.write_bytes(w.header("3.0", "4x3") + good + w.evt3(*runaway))
        return path

    return write_broken
