"""Contract section 1: events, and the steps a call goes through."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import oracle
import pytest
from records import LAYOUTS, at, empty, events, rows_of

import frames2py
from frames2py import Accumulator, Engine, ExpDecay

ROWS = [(7, 0, 0, 1), (3, 3, 2, 0), (9, 1, 2, 255), (9, 4, 0, 1), (2, 0, 3, 1), (5, 3, 0, 2)]


# --- the dtype ----------------------------------------------------------------------------------


def test_event_dtype_is_packed_little_endian_13_bytes() -> None:
    dtype = frames2py.EVENT_DTYPE
    assert isinstance(dtype, np.dtype)
    assert dtype.itemsize == 13
    assert dtype.names == ("t", "x", "y", "p")
    assert dtype.fields is not None
    assert {name: dtype.fields[name][1] for name in dtype.names} == {"t": 0, "x": 8, "y": 10, "p": 12}
    assert dtype["t"] == np.dtype("<u8")
    assert dtype["x"] == np.dtype("<u2")
    assert dtype["y"] == np.dtype("<u2")
    assert dtype["p"] == np.dtype("u1")


def test_p_0_is_off_and_every_other_value_is_on() -> None:
    accumulator = Accumulator((1, 1), "polarity")
    accumulator.accumulate(events((0, 0, 0, p) for p in range(256)))
    assert accumulator.read()[0, 0].tolist() == [1, 255]


def test_an_event_lands_in_frame_y_x() -> None:
    accumulator = Accumulator((5, 3), "event_count")
    accumulator.accumulate(events([(0, 4, 1, 1)]))
    expected = np.zeros((3, 5))
    expected[1, 4] = 1
    np.testing.assert_array_equal(accumulator.read(), expected)


@pytest.mark.parametrize("size", [(65536, 2), (2, 65536), (70000, 1), (1, 70000)])
def test_the_whole_range_of_x_and_y_can_be_in_bounds(size: tuple[int, int]) -> None:
    width, height = size
    x, y = min(width, 65536) - 1, min(height, 65536) - 1
    accumulator = Accumulator(size, "event_count")
    accumulator.accumulate(events([(0, x, y, 1), (0, 0, 0, 1)]))
    frame = accumulator.read()
    assert frame[y, x] == frame[0, 0] == 1
    assert frame.sum() == 2
    assert accumulator.events_out_of_bounds == 0


def test_timestamps_may_be_out_of_order_inside_a_call_and_across_calls() -> None:
    accumulator = Accumulator((2, 1), "time_surface")
    accumulator.accumulate(events([(50, 0, 0, 1), (10, 1, 0, 1), (30, 0, 0, 1)]))
    accumulator.accumulate(events([(20, 1, 0, 1), (5, 0, 0, 1)]))
    assert accumulator.read().tolist() == [[50, 20]]
    assert accumulator.watermark == 50


def test_nothing_is_sorted_shifted_or_clamped_in_the_callers_array() -> None:
    array = events(ROWS)
    before = array.tobytes()
    engine = Engine((4, 3), snapshot_interval_ms=0)
    engine.ingest(array)
    accumulator = Accumulator((4, 3), "time_surface")
    accumulator.accumulate(array)
    assert array.tobytes() == before


# --- accepted arrays ----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", ["event_count", "polarity", "time_surface"])
def test_field_order_offsets_and_extra_fields_are_free(layout: str, kernel: str) -> None:
    array = events(ROWS, layout)
    model = {
        "event_count": oracle.EventCount,
        "polarity": oracle.Polarity,
        "time_surface": oracle.TimeSurface,
    }[kernel]
    expected = oracle.AccumulatorModel(model(4, 3))
    expected.accumulate(rows_of(array))
    accumulator = Accumulator((4, 3), kernel)
    accumulator.accumulate(array)
    oracle.check_frame(accumulator.read(), expected.model, expected.watermark)
    assert accumulator.watermark == expected.watermark
    assert accumulator.events_out_of_bounds == expected.events_out_of_bounds

    engine = Engine((4, 3), kernel, snapshot_interval_ms=0)
    engine.ingest(array)
    snapshot = engine.snapshot()
    assert snapshot is not None
    oracle.check_frame(snapshot.frame, expected.model, expected.watermark)


def test_a_17_byte_record_with_an_extra_confidence_works() -> None:
    array = events([(4, 1, 0, 1)], "confidence")
    assert array.itemsize == 17
    accumulator = Accumulator((2, 1), "time_surface")
    accumulator.accumulate(array)
    assert accumulator.read().tolist() == [[0, 4]]


def test_an_aligned_16_byte_record_works() -> None:
    array = events([(4, 1, 0, 1)], "aligned")
    assert array.itemsize == 16
    accumulator = Accumulator((2, 1), "time_surface")
    accumulator.accumulate(array)
    assert accumulator.read().tolist() == [[0, 4]]


class Subclass(np.ndarray):  # type: ignore[type-arg]
    pass


def unaligned() -> Any:
    plain = events(ROWS)
    memory = np.zeros(plain.nbytes + 1, np.uint8)
    memory[1:] = plain.view(np.uint8)
    return memory[1:].view(frames2py.EVENT_DTYPE)


def read_only() -> Any:
    array = events(ROWS)
    array.flags.writeable = False
    return array


def from_bytes() -> Any:
    return np.frombuffer(events(ROWS).tobytes(), frames2py.EVENT_DTYPE)


def memory_mapped() -> Any:
    data = events(ROWS).tobytes()
    pages = mmap.mmap(-1, len(data))
    pages.write(data)
    return np.frombuffer(pages, frames2py.EVENT_DTYPE)


def with_field_metadata() -> Any:
    t = np.dtype("<u8", metadata={"unit": "us"})
    return events(ROWS).astype(np.dtype([("t", t), ("x", "<u2"), ("y", "<u2"), ("p", "u1")]))


def selected_fields() -> Any:
    return events(ROWS, "extra first")[["t", "x", "y", "p"]]


def with_an_object_field() -> Any:
    array = np.zeros(len(ROWS), np.dtype([*LAYOUTS["packed"].descr, ("tag", "O")]))
    for name in ("t", "x", "y", "p"):
        array[name] = events(ROWS)[name]
    return array


ACCEPTED = {
    "unaligned": unaligned,
    "read-only": read_only,
    "over bytes": from_bytes,
    "over an mmap": memory_mapped,
    "field metadata": with_field_metadata,
    "selected fields": selected_fields,
    "an object among the extra fields": with_an_object_field,
    "subclass": lambda: events(ROWS).view(Subclass),
    "recarray": lambda: events(ROWS).view(np.recarray),
    "record dtype": lambda: events(ROWS).view(np.dtype((np.record, LAYOUTS["packed"]))),
    "masked": lambda: np.ma.array(events(ROWS)),
    "a slice": lambda: events([(99, 0, 0, 1), *ROWS, (99, 0, 0, 1)])[1:-1],
}


@pytest.mark.parametrize("make", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_any_contiguous_1d_structured_ndarray_with_the_fields_is_accepted(make: Any) -> None:
    expected = oracle.AccumulatorModel(oracle.TimeSurface(4, 3))
    expected.accumulate(ROWS)
    accumulator = Accumulator((4, 3), "time_surface")
    accumulator.accumulate(make())
    oracle.check_frame(accumulator.read(), expected.model, expected.watermark)
    assert accumulator.events_out_of_bounds == expected.events_out_of_bounds
    engine = Engine((4, 3), "time_surface", snapshot_interval_ms=0)
    engine.ingest(make())
    assert engine.stats.events_ingested == len(ROWS)


def test_a_memmap_is_accepted(tmp_path: Any) -> None:
    path = tmp_path / "events.bin"
    path.write_bytes(events(ROWS).tobytes())
    array = np.memmap(path, dtype=frames2py.EVENT_DTYPE, mode="r")
    accumulator = Accumulator((4, 3), "event_count")
    accumulator.accumulate(array)
    assert accumulator.read().sum() == 4
    assert accumulator.events_out_of_bounds == 2


@pytest.mark.parametrize("slicing", [slice(None, None, 8), slice(3, None, 8), slice(4, 4, 2)])
def test_slices_that_numpy_calls_contiguous_are_accepted(slicing: slice) -> None:
    array = events((t, 0, 0, 1) for t in range(8))[slicing]
    assert array.flags.c_contiguous
    accumulator = Accumulator((1, 1), "event_count")
    accumulator.accumulate(array)
    assert accumulator.read()[0, 0] == len(array)


# --- step 1: structure --------------------------------------------------------------------------


def dtype_with(**changes: str) -> Any:
    fields = {"t": "<u8", "x": "<u2", "y": "<u2", "p": "u1", **changes}
    return np.dtype(list(fields.items()))


LATE = events([(2**63, 0, 0, 1)] * 4)

STRUCTURE = {
    "a list": [(0, 0, 0, 1)],
    "None": None,
    "bytes": LATE.tobytes(),
    "a memoryview": memoryview(LATE),
    "a scalar": LATE[0],
    "not structured": np.zeros(4),
    "13 plain bytes": np.zeros(4, "V13"),
    "2-D": LATE.reshape(2, 2),
    "2-D, empty": np.zeros((2, 0), frames2py.EVENT_DTYPE),
    "0-D": np.zeros((), frames2py.EVENT_DTYPE),
    "strided": LATE[::2],
    "reversed": LATE[::-1],
    "broadcast": np.broadcast_to(LATE[:1], (4,)),
    "no t": np.zeros(4, [("x", "<u2"), ("y", "<u2"), ("p", "u1")]),
    "no x": np.zeros(4, [("t", "<u8"), ("y", "<u2"), ("p", "u1")]),
    "no y": np.zeros(4, [("t", "<u8"), ("x", "<u2"), ("p", "u1")]),
    "no p": np.zeros(4, [("t", "<u8"), ("x", "<u2"), ("y", "<u2")]),
    "other case": np.zeros(4, [("T", "<u8"), ("X", "<u2"), ("Y", "<u2"), ("P", "u1")]),
    "big-endian t": np.zeros(4, dtype_with(t=">u8")),
    "big-endian x": np.zeros(4, dtype_with(x=">u2")),
    "big-endian y": np.zeros(4, dtype_with(y=">u2")),
    "signed t": np.zeros(4, dtype_with(t="<i8")),
    "float t": np.zeros(4, dtype_with(t="<f8")),
    "short t": np.zeros(4, dtype_with(t="<u4")),
    "datetime t": np.zeros(4, dtype_with(t="<M8[us]")),
    "signed x": np.zeros(4, dtype_with(x="<i2")),
    "half y": np.zeros(4, dtype_with(y="<f2")),
    "wide y": np.zeros(4, dtype_with(y="<u4")),
    "bool p": np.zeros(4, dtype_with(p="?")),
    "signed p": np.zeros(4, dtype_with(p="i1")),
    "wide p": np.zeros(4, dtype_with(p="<u2")),
    "one-byte string p": np.zeros(4, dtype_with(p="S1")),
    "sub-array x": np.zeros(4, [("t", "<u8"), ("x", "<u2", (1,)), ("y", "<u2"), ("p", "u1")]),
    "nested x": np.zeros(4, [("t", "<u8"), ("x", [("x", "<u2")]), ("y", "<u2"), ("p", "u1")]),
}


@pytest.mark.parametrize("bad", STRUCTURE.values(), ids=STRUCTURE.keys())
def test_a_wrong_structure_is_a_type_error_that_changes_nothing(bad: Any) -> None:
    accumulator = Accumulator((1, 1), ExpDecay(0.5))
    accumulator.accumulate(at(5))
    with pytest.raises(TypeError):
        accumulator.accumulate(bad)
    assert accumulator.read().tolist() == [[1.0]]
    assert accumulator.watermark == 5
    assert accumulator.events_out_of_bounds == 0

    engine = Engine((1, 1), ExpDecay(0.5), snapshot_interval_ms=0)
    engine.ingest(at(5))
    snapshot, stats = engine.snapshot(), engine.stats
    with pytest.raises(TypeError):
        engine.ingest(bad)
    assert engine.snapshot() is snapshot
    after = engine.stats
    assert (after.events_ingested, after.events_out_of_bounds, after.snapshots_published) == (
        stats.events_ingested,
        stats.events_out_of_bounds,
        stats.snapshots_published,
    )
    engine.ingest(empty())
    later = engine.snapshot()
    assert later is not None
    assert later.frame.tolist() == [[0.5]]


@pytest.mark.parametrize(
    ("name", "expected", "actual"),
    [
        ("t", ("<u8", "uint64"), ("<i8", "int64")),
        ("t", ("<u8", "uint64"), (">u8",)),
        ("t", ("<u8", "uint64"), ("<M8[us]", "datetime64[us]")),
        ("x", ("<u2", "uint16"), ("<i2", "int16")),
        ("x", ("<u2", "uint16"), (">u2",)),
        ("y", ("<u2", "uint16"), ("<f4", "float32")),
        ("p", ("u1", "uint8"), ("b1", "?", "bool")),
        ("p", ("u1", "uint8"), ("i1", "int8")),
    ],
)
def test_the_message_names_the_field_what_it_must_be_and_what_it_is(
    name: str, expected: tuple[str, ...], actual: tuple[str, ...]
) -> None:
    bad = np.zeros(1, dtype_with(**{name: actual[0]}))
    for call in (Accumulator((1, 1), "event_count").accumulate, Engine((1, 1)).ingest):
        with pytest.raises(TypeError) as caught:
            call(bad)
        message = str(caught.value)
        assert f"'{name}'" in message or f"`{name}`" in message
        assert any(text in message for text in expected)
        assert any(text in message for text in actual)


@pytest.mark.parametrize("name", ["t", "x", "y", "p"])
def test_the_message_names_a_missing_field(name: str) -> None:
    bad = np.zeros(1, [field for field in LAYOUTS["packed"].descr if field[0] != name])
    with pytest.raises(TypeError, match=rf"['`]{name}['`]"):
        Accumulator((1, 1), "event_count").accumulate(bad)


@pytest.mark.parametrize(
    "bad", [LATE[::2], LATE.reshape(2, 2), LATE.astype(dtype_with(x="<u4"))], ids=["strided", "2-D", "wide x"]
)
def test_structure_comes_before_the_timestamp_range(bad: Any) -> None:
    with pytest.raises(TypeError):
        Accumulator((1, 1), "event_count").accumulate(bad)


# --- step 2: timestamp range --------------------------------------------------------------------


@pytest.mark.parametrize("t", [2**63, 2**63 + 1, 2**64 - 1])
@pytest.mark.parametrize("where", [0, 1, 5000, 99_999], ids=lambda i: f"event {i}")
@pytest.mark.parametrize("x", [0, 9], ids=["in bounds", "out of bounds"])
def test_any_event_at_2_63_or_later_rejects_the_whole_call_and_changes_nothing(
    t: int, where: int, x: int
) -> None:
    bad = np.zeros(100_000, frames2py.EVENT_DTYPE)
    bad["t"] = 50
    bad["t"][where] = t
    bad["x"][where] = x
    bad["x"][7] = 3  # one more event that would be counted as out of bounds

    accumulator = Accumulator((1, 1), ExpDecay(0.5))
    accumulator.accumulate(at(5))
    with pytest.raises(ValueError):
        accumulator.accumulate(bad)
    assert accumulator.read().tolist() == [[1.0]]
    assert accumulator.watermark == 5
    assert accumulator.events_out_of_bounds == 0

    engine = Engine((1, 1), "event_count", snapshot_interval_ms=0)
    engine.ingest(at(5))
    snapshot = engine.snapshot()
    with pytest.raises(ValueError):
        engine.ingest(bad)
    assert engine.snapshot() is snapshot
    assert engine.stats.events_ingested == 1
    assert engine.stats.events_out_of_bounds == 0
    assert engine.stats.snapshots_published == 1
    engine.ingest(empty())
    later = engine.snapshot()
    assert later is not None
    assert later.frame.tolist() == [[0]]
    assert later.meta.watermark == 5


@pytest.mark.parametrize("kernel", ["event_count", "polarity", "time_surface"])
def test_2_63_minus_1_is_in_range(kernel: str) -> None:
    accumulator = Accumulator((1, 1), kernel)
    accumulator.accumulate(at(2**63 - 1))
    assert accumulator.watermark == 2**63 - 1
    assert accumulator.read().max() == (2**63 - 1 if kernel == "time_surface" else 1)


@pytest.mark.parametrize("bad", [np.zeros(1), events([(2**63, 0, 0, 1)])], ids=["structure", "range"])
def test_a_rejected_call_does_not_make_a_producer(bad: Any, elsewhere: Any) -> None:
    engine = Engine((1, 1), snapshot_interval_ms=0)
    with pytest.raises((TypeError, ValueError)):
        engine.ingest(bad)
    elsewhere(engine.ingest, at(1))
    with pytest.raises(RuntimeError):
        engine.ingest(at(1))
    assert engine.stats.events_ingested == 1


# --- step 3: bounds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y", "outside"),
    [
        (3, 2, False),
        (4, 2, True),
        (3, 3, True),
        (4, 3, True),
        (65535, 0, True),
        (0, 65535, True),
        (65535, 65535, True),
    ],
)
def test_x_at_or_beyond_width_and_y_at_or_beyond_height_is_out_of_bounds(
    x: int, y: int, outside: bool
) -> None:
    accumulator = Accumulator((4, 3), "event_count")
    accumulator.accumulate(events([(1, x, y, 1)]))
    assert accumulator.events_out_of_bounds == int(outside)
    assert accumulator.read().sum() == int(not outside)


@pytest.mark.parametrize(
    "kernel",
    [
        "event_count",
        "polarity",
        "time_surface",
        frames2py.TimestampDecay(1e3),
        frames2py.StackedHistogram(bins=2, bin_us=10),
        frames2py.VoxelGrid(bins=2, bin_us=10),
    ],
    ids=lambda k: k if isinstance(k, str) else k.name,
)
def test_out_of_bounds_events_are_counted_and_otherwise_ignored(kernel: Any) -> None:
    inside = [(11, 0, 0, 1), (13, 1, 0, 0), (25, 0, 0, 1)]
    outside = [(999, 2, 0, 1), (1, 0, 1, 0), (998, 5, 5, 1)]
    with_outside = Accumulator((2, 1), kernel)
    with_outside.accumulate(events([outside[0], *inside[:2], outside[1], inside[2], outside[2]]))
    without = Accumulator((2, 1), kernel)
    without.accumulate(events(inside))
    assert with_outside.read().tobytes() == without.read().tobytes()
    assert with_outside.watermark == without.watermark == 25
    assert with_outside.events_out_of_bounds == 3
    assert without.events_out_of_bounds == 0


# --- watermark ----------------------------------------------------------------------------------


def test_the_watermark_is_none_before_the_first_in_bounds_event() -> None:
    accumulator = Accumulator((1, 1), "event_count")
    assert accumulator.watermark is None
    accumulator.accumulate(empty())
    assert accumulator.watermark is None
    accumulator.accumulate(events([(5, 1, 0, 1)]))
    assert accumulator.watermark is None
    accumulator.accumulate(at(0))
    assert accumulator.watermark == 0


def test_the_watermark_is_the_largest_in_bounds_t_and_never_moves_back() -> None:
    accumulator = Accumulator((1, 1), "event_count")
    seen = []
    for call in ([5, 9, 7], [3], [], [9], [10], [2**63 - 1], [0]):
        accumulator.accumulate(at(*call))
        seen.append(accumulator.watermark)
    assert seen == [9, 9, 9, 9, 10, 2**63 - 1, 2**63 - 1]
    assert type(accumulator.watermark) is int


def test_out_of_bounds_events_do_not_move_the_watermark() -> None:
    accumulator = Accumulator((1, 1), "event_count")
    accumulator.accumulate(events([(5, 0, 0, 1), (100, 1, 0, 1)]))
    assert accumulator.watermark == 5


def test_reset_sets_the_watermark_to_none() -> None:
    accumulator = Accumulator((1, 1), "event_count")
    accumulator.accumulate(at(5))
    accumulator.reset()
    assert accumulator.watermark is None
    accumulator.accumulate(at(2))
    assert accumulator.watermark == 2


# --- discontinuities ----------------------------------------------------------------------------


def test_a_clock_restart_is_neither_detected_nor_repaired() -> None:
    engine = Engine((1, 1), frames2py.StackedHistogram(bins=2, bin_us=10), snapshot_interval_ms=0)
    engine.ingest(at(10**12))
    engine.ingest(at(5, 15, 25))
    snapshot = engine.snapshot()
    assert snapshot is not None
    assert snapshot.meta.watermark == 10**12
    assert snapshot.frame.sum() == 0  # 5, 15 and 25 are long before the bins shown


@pytest.mark.parametrize("kernel", ["event_count", "polarity", "time_surface"])
def test_after_reset_everything_but_the_sequence_behaves_as_new(kernel: str) -> None:
    engine = Engine((2, 1), kernel, snapshot_interval_ms=0)
    engine.ingest(events([(10**12, 0, 0, 1), (5, 9, 9, 1)]))
    engine.reset()
    fresh = Engine((2, 1), kernel, snapshot_interval_ms=0)
    for each in (engine, fresh):
        each.ingest(events([(5, 1, 0, 0)]))
    after, new = engine.snapshot(), fresh.snapshot()
    assert after is not None
    assert new is not None
    assert after.frame.tobytes() == new.frame.tobytes()
    assert after.meta.watermark == new.meta.watermark == 5
    assert (after.meta.sequence, new.meta.sequence) == (2, 1)
    assert engine.stats.events_ingested == fresh.stats.events_ingested
    assert engine.stats.events_out_of_bounds == fresh.stats.events_out_of_bounds
    assert engine.stats.snapshots_published == fresh.stats.snapshots_published
