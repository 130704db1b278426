"""Contract section 3: the Accumulator."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from every_kernel import EVERY_KERNEL
from records import at, empty, events

from frames2py import (
    Accumulator,
)


def test_an_accumulator_has_no_default_kernel() -> None:
    with pytest.raises(TypeError):
        Accumulator((4, 3))  # type: ignore[call-arg]


def test_arguments_may_be_given_by_name() -> None:
    accumulator = Accumulator(sensor_size=(2, 1), kernel="event_count")
    accumulator.accumulate(events=at(1))
    assert accumulator.read().tolist() == [[1, 0]]


def test_sensor_size_is_width_then_height() -> None:
    assert Accumulator((5, 2), "event_count").read().shape == (2, 5)


@pytest.mark.parametrize(
    "size", [[5, 2], (np.int64(5), np.uint16(2)), np.array([5, 2])], ids=["list", "scalars", "array"]
)
def test_sensor_size_may_be_any_pair_of_integers(size: Any) -> None:
    assert Accumulator(size, "event_count").read().shape == (2, 5)


@EVERY_KERNEL
def test_read_returns_a_new_writable_array(kernel: Any) -> None:
    accumulator = Accumulator((2, 1), kernel)
    accumulator.accumulate(at(5, 25, 31))
    first = accumulator.read()
    assert isinstance(first, np.ndarray)
    assert first.flags.writeable
    assert first.flags.c_contiguous
    kept = first.copy()
    second = accumulator.read()
    assert second is not first
    assert not np.shares_memory(first, second)
    first[...] = 99
    np.testing.assert_array_equal(second, kept)
    np.testing.assert_array_equal(accumulator.read(), kept)


@EVERY_KERNEL
def test_a_read_array_never_changes_afterwards(kernel: Any) -> None:
    accumulator = Accumulator((2, 1), kernel)
    accumulator.accumulate(at(5, 25, 31))
    frame = accumulator.read()
    kept = frame.copy()
    accumulator.accumulate(at(27, 45))
    accumulator.reset()
    accumulator.accumulate(at(1, 2, 3))
    np.testing.assert_array_equal(frame, kept)


@EVERY_KERNEL
def test_read_changes_nothing(kernel: Any) -> None:
    read_often, read_once = Accumulator((2, 1), kernel), Accumulator((2, 1), kernel)
    for call in (at(5, 25), events([(31, 1, 0, 0), (31, 7, 0, 0)]), empty(), at(44, 12)):
        for accumulator in (read_often, read_once):
            accumulator.accumulate(call)
        before = read_often.read()
        np.testing.assert_array_equal(read_often.read(), before)
    np.testing.assert_array_equal(read_often.read(), read_once.read())
    assert read_often.watermark == read_once.watermark
    assert read_often.events_out_of_bounds == read_once.events_out_of_bounds


def test_events_out_of_bounds_counts_until_reset() -> None:
    accumulator = Accumulator((2, 1), "event_count")
    assert accumulator.events_out_of_bounds == 0
    accumulator.accumulate(events([(1, 2, 0, 1), (1, 0, 0, 1), (1, 0, 1, 1)]))
    assert accumulator.events_out_of_bounds == 2
    accumulator.accumulate(events([(1, 65535, 65535, 1)]))
    assert accumulator.events_out_of_bounds == 3
    assert type(accumulator.events_out_of_bounds) is int
    accumulator.reset()
    assert accumulator.events_out_of_bounds == 0


def test_accumulate_and_reset_return_none() -> None:
    accumulator = Accumulator((2, 1), "event_count")
    assert accumulator.accumulate(at(1)) is None  # type: ignore[func-returns-value]
    assert accumulator.reset() is None  # type: ignore[func-returns-value]


def test_watermark_and_events_out_of_bounds_are_read_only() -> None:
    accumulator = Accumulator((2, 1), "event_count")
    with pytest.raises(AttributeError):
        accumulator.watermark = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        accumulator.events_out_of_bounds = 5  # type: ignore[misc]


@EVERY_KERNEL
def test_reset_makes_an_accumulator_as_new(kernel: Any) -> None:
    used, new = Accumulator((2, 1), kernel), Accumulator((2, 1), kernel)
    used.accumulate(events([(10**9, 0, 0, 1), (5, 1, 0, 0), (7, 9, 9, 1)]))
    used.reset()
    assert used.watermark is None
    np.testing.assert_array_equal(used.read(), new.read())
    for call in (at(5, 25), at(31, x=1, p=0)):
        used.accumulate(call)
        new.accumulate(call)
        np.testing.assert_array_equal(used.read(), new.read())
    assert used.watermark == new.watermark == 31
    assert used.events_out_of_bounds == 0


def test_an_accumulator_is_synchronous_and_starts_no_thread() -> None:
    before = threading.active_count()
    accumulator = Accumulator((2, 1), "event_count")
    for i in range(100):
        accumulator.accumulate(at(i))
        assert accumulator.read()[0, 0] == i + 1
    assert threading.active_count() == before


def test_any_thread_may_accumulate(elsewhere: Any) -> None:
    accumulator = Accumulator((2, 1), "event_count")
    accumulator.accumulate(at(1))
    elsewhere(accumulator.accumulate, at(2))
    accumulator.accumulate(at(3))
    assert elsewhere(accumulator.read)[0, 0] == 3
