"""Contract section 5, "EVT3", sentence by sentence."""

from __future__ import annotations

import pytest
from evt_words import (
    ADDR_X,
    ADDR_Y,
    BASE_X,
    CONTINUED_4,
    CONTINUED_12,
    EXT_TRIGGER,
    ON,
    OTHERS,
    RESERVED_Y,
    TIME_HIGH,
    TIME_LOW,
    VECT_8,
    VECT_12,
    as_tuples,
    evt3,
    header,
)

from frames2py.adapters import evt


@pytest.fixture
def read(tmp_path):
    def read(*words: tuple[int, int], tail: bytes = b"", geometry: str = "1280x720"):
        path = tmp_path / "x.raw"
        path.write_bytes(header("3.0", geometry) + evt3(*words) + tail)
        return as_tuples(evt.open(path))

    return read


@pytest.fixture
def times(read):
    """The times of the ADDR_X words among `words`, which follow a row."""

    def times(*words):
        return [t for t, *_ in read(words[0], (ADDR_Y, 0), *words[1:])]

    return times


EVENT = (ADDR_X, 0)


def test_time_is_time_high_joined_to_time_low(times):
    assert times((TIME_HIGH, 3), (TIME_LOW, 7), EVENT, (TIME_LOW, 4095), EVENT) == [
        3 * 4096 + 7,
        3 * 4096 + 4095,
    ]


def test_a_time_low_that_steps_back_is_kept(times):
    assert times((TIME_HIGH, 0), (TIME_LOW, 7), EVENT, (TIME_LOW, 3), EVENT) == [7, 3]


def test_4095_to_0_is_a_wrap(times):
    words = [(TIME_HIGH, 4095), (TIME_LOW, 9), EVENT, (TIME_HIGH, 0), EVENT, (TIME_LOW, 1), EVENT]
    assert times(*words) == [4095 * 4096 + 9, 2**24, 2**24 + 1]


@pytest.mark.parametrize(("before", "after"), [(4095, 1), (4095, 254), (3841, 0), (4001, 160)])
def test_a_step_back_of_more_than_3840_is_a_wrap(times, before, after):
    assert after - before < -3840
    assert times((TIME_HIGH, before), EVENT, (TIME_HIGH, after), EVENT) == [
        before * 4096,
        2**24 + after * 4096,
    ]


@pytest.mark.parametrize(
    ("before", "after"), [(4095, 255), (3840, 0), (2048, 0), (4095, 2000), (1, 0), (4000, 3999)]
)
def test_every_other_step_back_is_kept(times, before, after):
    assert times((TIME_HIGH, before), EVENT, (TIME_HIGH, after), EVENT) == [before * 4096, after * 4096]


def test_wraps_add_up_and_forward_steps_are_never_one(times):
    words = [(TIME_HIGH, 0), EVENT, (TIME_HIGH, 4095), EVENT] * 3
    assert times(*words) == [k * 2**24 + t for k in range(3) for t in (0, 4095 * 4096)]


def test_a_time_high_that_changes_the_value_sets_time_low_to_0(times):
    words = [
        (TIME_HIGH, 1),
        (TIME_LOW, 5),
        (TIME_HIGH, 2),
        EVENT,
        (TIME_LOW, 6),
        EVENT,
        (TIME_HIGH, 1),
        EVENT,
    ]
    assert times(*words) == [2 * 4096, 2 * 4096 + 6, 4096]


def test_a_time_high_of_the_same_value_keeps_time_low(times):
    assert times((TIME_HIGH, 1), (TIME_LOW, 5), (TIME_HIGH, 1), EVENT) == [4096 + 5]
    assert times((TIME_HIGH, 0), (TIME_LOW, 5), (TIME_HIGH, 0), EVENT) == [5]


def test_decoding_starts_at_the_first_time_high(read):
    """Nothing of what comes before is remembered: no row, no base, no time."""
    start = [(TIME_LOW, 9), (ADDR_Y, 5), (BASE_X, 3), (ADDR_X, 1), (VECT_8, 255)]
    assert read(*start) == []
    assert read(*start, (TIME_HIGH, 0), (ADDR_X, 1)) == []
    assert read(*start, (TIME_HIGH, 0), (ADDR_Y, 6), (VECT_8, 255)) == []
    assert read(*start, (TIME_HIGH, 0), (ADDR_Y, 6), (ADDR_X, 2)) == [(0, 2, 6, 0)]


def test_events_before_the_first_row_are_dropped(read):
    assert read((TIME_HIGH, 0), (ADDR_X, 1), (BASE_X, 7), (VECT_8, 1), (ADDR_Y, 2), (ADDR_X, 3)) == [
        (0, 3, 2, 0)
    ]


def test_vectors_before_the_first_base_are_dropped(read):
    words = [(TIME_HIGH, 0), (ADDR_Y, 2), (VECT_8, 255), (VECT_12, 4095), (BASE_X, 9), (VECT_8, 1)]
    assert read(*words) == [(0, 9, 2, 0)]


def test_an_event_has_its_own_column_and_polarity_and_the_last_row(read):
    words = [(TIME_HIGH, 0), (ADDR_Y, 2047), (ADDR_X, ON | 2047), (ADDR_X, 0), (ADDR_Y, 0), (ADDR_X, ON | 1)]
    assert read(*words) == [(0, 2047, 2047, 1), (0, 0, 2047, 0), (0, 1, 0, 1)]


def test_bit_11_of_a_row_is_not_part_of_it(read):
    assert read((TIME_HIGH, 0), (ADDR_Y, 0x800 | 5), (ADDR_X, 1)) == [(0, 1, 5, 0)]


def test_vectors_emit_their_set_bits_at_the_base_and_move_it(read):
    words = [
        (TIME_HIGH, 0),
        (ADDR_Y, 1),
        (BASE_X, ON | 100),
        (VECT_12, 0b1000_0000_0101),
        (VECT_8, 0b1000_0010),
    ]
    assert [x for _, x, _, _ in read(*words)] == [100, 102, 111, 113, 119]
    assert [p for *_, p in read(*words)] == [1] * 5


@pytest.mark.parametrize("order", [(12, 8, 8, 12), (8,), (8, 12, 12, 12, 8), (12, 12, 8, 12, 12, 8)])
def test_no_grouping_of_vectors_is_assumed(read, order):
    words = [(VECT_12 if size == 12 else VECT_8, 1) for size in order]
    columns = [x for _, x, _, _ in read((TIME_HIGH, 0), (ADDR_Y, 1), (BASE_X, 10), *words)]
    assert columns == [10 + sum(order[:i]) for i in range(len(order))]


def test_a_group_of_vectors_that_breaks_off_at_a_time(read):
    """VECT_12, VECT_12, no VECT_8: time goes on, and what comes next counts from where the vectors ended."""
    words = [(BASE_X, ON | 32), (VECT_12, 1), (VECT_12, 1), (TIME_HIGH, 1), (TIME_LOW, 3), (VECT_8, 1)]
    expected = [(0, 32, 1, 1), (0, 44, 1, 1), (4099, 56, 1, 1)]
    assert read((TIME_HIGH, 0), (ADDR_Y, 1), *words) == expected
    again = [(BASE_X, 64), (VECT_12, 2), (ADDR_Y, 5), (ADDR_X, 7)]
    assert read((TIME_HIGH, 0), (ADDR_Y, 1), *words, *again) == [*expected, (4099, 65, 1, 0), (4099, 7, 5, 0)]


@pytest.mark.parametrize("bit", range(4, 12))
def test_a_bit_flipped_in_one_time_high_adds_no_overflow(times, bit):
    noisy = [100, 101, 101 ^ 1 << bit, 102, 103]
    words = [word for high in noisy for word in ((TIME_HIGH, high), EVENT)]
    assert times(*words) == [high * 4096 for high in noisy]


def test_bits_above_the_8_of_vect_8_are_not_part_of_it(read):
    assert read((TIME_HIGH, 0), (ADDR_Y, 1), (BASE_X, 0), (VECT_8, 0xF01), (VECT_8, 1)) == [
        (0, 0, 1, 0),
        (0, 8, 1, 0),
    ]


def test_an_empty_vector_moves_the_base(read):
    assert read((TIME_HIGH, 0), (ADDR_Y, 1), (BASE_X, 0), (VECT_12, 0), (VECT_8, 0), (VECT_8, 1)) == [
        (0, 20, 1, 0)
    ]


def test_the_base_and_its_polarity_outlast_rows_and_single_events(read):
    words = [(BASE_X, ON | 5), (ADDR_X, 1), (VECT_8, 1), (ADDR_Y, 2), (VECT_8, 1)]
    assert read((TIME_HIGH, 0), (ADDR_Y, 1), *words) == [(0, 1, 1, 0), (0, 5, 1, 1), (0, 13, 2, 1)]


def test_rows_of_the_reserved_type_emit_nothing(read):
    words = [
        (ADDR_Y, 1),
        (BASE_X, 0),
        (RESERVED_Y, 7),
        (ADDR_X, 1),
        (VECT_12, 4095),
        (ADDR_Y, 2),
        (ADDR_X, 2),
    ]
    assert read((TIME_HIGH, 0), *words) == [(0, 2, 2, 0)]
    assert read((TIME_HIGH, 0), (RESERVED_Y, 7), (ADDR_X, 1)) == []


def test_vectors_inside_reserved_rows_or_before_the_first_row_do_not_move_the_base(read):
    words = [(ADDR_Y, 1), (BASE_X, 3), (RESERVED_Y, 7), (VECT_12, 1), (VECT_8, 1), (ADDR_Y, 2), (VECT_8, 1)]
    assert read((TIME_HIGH, 0), *words) == [(0, 3, 2, 0)]
    assert read((TIME_HIGH, 0), (BASE_X, 3), (VECT_12, 1), (ADDR_Y, 1), (VECT_8, 1)) == [(0, 3, 1, 0)]


def test_a_base_inside_a_reserved_row_is_the_base(read):
    assert read((TIME_HIGH, 0), (RESERVED_Y, 7), (BASE_X, 9), (ADDR_Y, 1), (VECT_8, 1)) == [(0, 9, 1, 0)]


def test_a_row_beyond_the_sensor_is_yielded(read):
    assert read((TIME_HIGH, 0), (ADDR_Y, 3), (ADDR_X, 4), geometry="4x3") == [(0, 4, 3, 0)]


# 2047 + 12 * 5290 = 65527
NEAR_THE_END = [(TIME_HIGH, 0), (ADDR_Y, 1), (BASE_X, 2047), *[(VECT_12, 0)] * 5290]


def test_a_vector_may_reach_x_65535(read):
    assert read(*NEAR_THE_END, (VECT_12, 0x101)) == [(0, 65527, 1, 0), (0, 65535, 1, 0)]


@pytest.mark.parametrize("word", [(VECT_12, 0x200), (VECT_12, 0x801), (VECT_12, 0xFFF)])
def test_a_vector_beyond_x_65535(read, word):
    with pytest.raises(ValueError, match=r"x = 655\d\d.*65535"):
        read(*NEAR_THE_END, word)


def test_only_events_count_beyond_x_65535(read):
    """Vectors without events may go anywhere, also far enough for a 32-bit base to overflow."""
    empty = [(VECT_12, 0)] * 10
    assert read(*NEAR_THE_END, *empty, (ADDR_X, 3)) == [(0, 3, 1, 0)]
    assert read(*NEAR_THE_END, *empty, (BASE_X, 4), (VECT_8, 1)) == [(0, 4, 1, 0)]
    with pytest.raises(ValueError, match="65535"):
        read(*NEAR_THE_END, *empty, (VECT_8, 1))


@pytest.mark.parametrize("kind", [CONTINUED_4, 9, EXT_TRIGGER, 11, 12, 13, OTHERS, CONTINUED_12])
def test_unknown_types_and_triggers_are_skipped(read, kind):
    words = [(TIME_HIGH, 1), (TIME_LOW, 2), (ADDR_Y, 3), (BASE_X, 4), (kind, 0x8FF), (VECT_8, 1), (ADDR_X, 5)]
    assert read(*words) == [(4098, 4, 3, 0), (4098, 5, 3, 0)]


def test_a_partial_word_at_the_end_is_ignored(read):
    assert read((TIME_HIGH, 0), (ADDR_Y, 1), (ADDR_X, 1), tail=b"\x02") == [(0, 1, 1, 0)]
