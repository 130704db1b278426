"""Contract section 5, "EVT2", sentence by sentence."""

from __future__ import annotations

import evt_words as w
import pytest

from frames2py.adapters import evt

TOP = 2**28 - 1


@pytest.fixture
def read(tmp_path):
    def read(*words: int, tail: bytes = b""):
        path = tmp_path / "x.raw"
        path.write_bytes(w.header("2.0") + w.evt2(*words) + tail)
        return w.as_tuples(evt.open(path))

    return read


def test_time_is_the_last_time_high_joined_to_the_events_low_bits(read):
    events = read(w.high(5), w.cd(1, 63, 3, 4), w.cd(0, 0, 5, 6), w.high(7), w.cd(1, 1, 7, 8))
    assert events == [(5 * 64 + 63, 3, 4, 1), (5 * 64, 5, 6, 0), (7 * 64 + 1, 7, 8, 1)]


def test_fields_at_their_extremes(read):
    events = read(w.high(TOP), w.cd(1, 63, 2047, 0), w.cd(0, 63, 0, 2047))
    assert events == [(2**34 - 1, 2047, 0, 1), (2**34 - 1, 0, 2047, 0)]


def test_times_out_of_order_inside_a_time_high_are_kept(read):
    assert [t for t, *_ in read(w.high(0), w.cd(1, 9, 0, 0), w.cd(1, 3, 0, 0))] == [9, 3]


@pytest.mark.parametrize("fall", [TOP, TOP - 1, TOP - 156])
def test_a_fall_of_the_whole_range_less_10_ms_is_a_wrap(read, fall):
    """156 * 64 us = 9,984 us, the last whole TIME_HIGH within 10,000 us."""
    events = read(w.high(fall + 1 - 1), w.cd(1, 0, 0, 0), w.high(0), w.cd(1, 5, 0, 0))
    assert [t for t, *_ in events] == [fall * 64, 2**34 + 5]
    events = read(w.high(TOP), w.high(TOP - fall), w.cd(1, 5, 0, 0))
    assert [t for t, *_ in events] == [2**34 + (TOP - fall) * 64 + 5]


@pytest.mark.parametrize("fall", [1, 2**27, TOP - 158, TOP - 157])
def test_any_other_backward_step_is_kept(read, fall):
    events = read(w.high(TOP), w.cd(1, 0, 0, 0), w.high(TOP - fall), w.cd(1, 5, 0, 0))
    assert [t for t, *_ in events] == [TOP * 64, (TOP - fall) * 64 + 5]


def test_wraps_add_up_and_forward_steps_are_never_one(read):
    words = []
    for _ in range(3):
        words += [w.high(0), w.cd(1, 1, 0, 0), w.high(TOP), w.cd(1, 2, 0, 0)]
    times = [t for t, *_ in read(*words)]
    assert times == [k * 2**34 + t for k in range(3) for t in (1, TOP * 64 + 2)]


def test_events_before_the_first_time_high_are_dropped(read):
    assert read(w.cd(1, 1, 1, 1), w.cd(0, 2, 2, 2), w.high(0), w.cd(1, 3, 3, 3)) == [(3, 3, 3, 1)]
    assert read(w.cd(1, 1, 1, 1)) == []


@pytest.mark.parametrize("kind", [2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15])
def test_only_cd_events_are_decoded(read, kind):
    assert read(w.high(1), kind << 28 | 0x0ABCDEF, w.cd(1, 1, 2, 3)) == [(65, 2, 3, 1)]


@pytest.mark.parametrize("tail", [b"\x01", b"\x01\x02", b"\x01\x02\x10"])
def test_a_partial_word_at_the_end_is_ignored(read, tail):
    assert read(w.high(1), w.cd(1, 1, 2, 3), tail=tail) == [(65, 2, 3, 1)]


def test_an_event_beyond_the_sensor_is_yielded(tmp_path):
    path = tmp_path / "x.raw"
    path.write_bytes(w.header("2.0", "4x3") + w.evt2(w.high(0), w.cd(1, 0, 4, 3)))
    assert w.as_tuples(evt.open(path)) == [(0, 4, 3, 1)]
