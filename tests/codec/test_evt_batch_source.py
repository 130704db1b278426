"""The cutting of batches for readers whose formats are read in Python."""

from __future__ import annotations

import numpy as np
import pytest
from evt_words import as_array
from hypothesis import given
from hypothesis import strategies as st

from frames2py.adapters._reader import BatchSource, Reader


def arrays(sizes):
    """Arrays of these sizes whose t counts on from one to the next."""
    start = 0
    for size in sizes:
        yield as_array([(t, 1, 2, 3) for t in range(start, start + size)])
        start += size


def reader(batches, batch_size, close=lambda: None) -> Reader:
    source = BatchSource(batches)
    source.close = close
    return Reader(source, format="test", sensor_size=(4, 3), batch_size=batch_size)


@given(sizes=st.lists(st.integers(0, 20), max_size=20), batch_size=st.integers(1, 50))
def test_batches_have_their_size_and_memory_of_their_own(sizes, batch_size):
    given_arrays = list(arrays(sizes))
    batches = list(reader(iter(given_arrays), batch_size))
    total = sum(sizes)
    assert [len(b) for b in batches] == [batch_size] * (total // batch_size) + [total % batch_size] * (
        total % batch_size > 0
    )
    assert [t for b in batches for t in b["t"].tolist()] == list(range(total))
    assert all(b.flags.c_contiguous and b.dtype == as_array([]).dtype for b in batches)
    assert not any(np.shares_memory(a, b) for b in batches for a in given_arrays)


def test_without_a_size_nonempty_arrays_are_yielded_as_they_are():
    given_arrays = list(arrays([0, 3, 0, 0, 2, 0]))
    batches = list(reader(given_arrays, None))
    assert [b is a for b, a in zip(batches, [given_arrays[1], given_arrays[4]], strict=True)] == [True, True]


@pytest.mark.parametrize(("batch_size", "sizes"), [(None, [3, 2]), (2, [2, 2, 1]), (4, [4, 1]), (9, [5])])
def test_an_error_comes_after_all_events_before_it_and_once(batch_size, sizes):
    def broken():
        yield from arrays([3, 2])
        raise ValueError("broken")

    iterator = iter(reader(broken(), batch_size))
    assert [len(next(iterator)) for _ in sizes] == sizes
    with pytest.raises(ValueError, match="broken"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_an_interrupt_loses_nothing():
    class Interrupted:
        """Arrays of 2 events, with a KeyboardInterrupt before the third."""

        def __init__(self):
            self.steps = iter([*arrays([2, 2]), KeyboardInterrupt(), *list(arrays([2, 2, 2]))[2:]])

        def __iter__(self):
            return self

        def __next__(self):
            step = next(self.steps)
            if isinstance(step, BaseException):
                raise step
            return step

    iterator = iter(reader(Interrupted(), 5))
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert [b["t"].tolist() for b in iterator] == [[0, 1, 2, 3, 4], [5]]


def test_closing_the_reader_closes_the_source():
    closed = []
    with reader([], None, close=lambda: closed.append(True)):
        assert closed == []
    assert closed == [True]
