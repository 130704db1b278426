"""HDF5 files whose layout is found: DSEC's, M3ED's, tables, anybody's groups, and Prophesee's with ECF."""

from __future__ import annotations

import contextlib
import os

import numpy as np
import pytest
from hdf5_files import (
    COLUMNS,
    NAMES,
    ROWS,
    SPLITTER,
    assert_holds,
    encoded,
    events_of,
    fill,
    h5py,
    head,
    prophesee,
    rows_of,
    some_events,
    table_of,
    until_it_fails,
    write,
    zipped,
)
from hypothesis import given
from hypothesis import strategies as st

import frames2py
from frames2py import EVENT_DTYPE, TRIGGER_DTYPE, _core
from frames2py.adapters import hdf5

# Groups


def test_dsec(tmp_path):
    path = write(tmp_path / "f.h5", COLUMNS)
    with h5py.File(path, "a") as file:
        file["t_offset"] = np.int64(1000)
        file["ms_to_idx"] = np.array([0], "u8")
    with frames2py.open(path) as reader:
        assert reader.format == "HDF5 of DSEC" and reader.sensor_size is None
        assert rows_of(reader) == zipped(COLUMNS, 1000)
    assert rows_of(hdf5.open_any(path, t_offset=0)) == ROWS
    assert rows_of(hdf5.open_any(path, t_offset=7, group="events")) == zipped(COLUMNS, 7)


def test_m3ed(tmp_path):
    path = write(tmp_path / "f.h5", COLUMNS, group="prophesee/left")
    with h5py.File(path, "a") as file:
        file["prophesee/left/calib/resolution"] = [1280, 720]
        file["prophesee/left/ms_map_idx"] = [0]
        file["ovc/rgb/data"] = np.zeros((2, 3, 4), "u1")
        file["t_offset"] = np.int64(1000)  # not beside a group called events
    with hdf5.open_any(path) as reader:
        assert reader.format == "HDF5 of M3ED" and reader.sensor_size == (1280, 720)
        assert rows_of(reader) == ROWS
    with pytest.raises(ValueError, match=r"\(1, 2\)"):
        hdf5.open_any(path, sensor_size=(1, 2))
    other = COLUMNS | {"p": np.zeros(4, "u1")}
    with h5py.File(path, "a") as file:
        fill(file.create_group("prophesee/right"), other)
    with pytest.raises(ValueError, match="/prophesee/left, /prophesee/right"):
        hdf5.open_any(path)
    assert rows_of(hdf5.open_any(path, group="/prophesee/right")) == zipped(other)


def test_anybodys_group(tmp_path):
    for group in ("/", "a", "a/b c/ü"):
        path = write(tmp_path / "f.h5", COLUMNS, group=group)
        with hdf5.open_any(path, sensor_size=(5, 6)) as reader:
            assert reader.format == "HDF5" and reader.sensor_size == (5, 6)
            assert rows_of(reader) == ROWS


def test_links_are_not_followed_and_cycles_end(tmp_path):
    path = write(tmp_path / "f.h5", COLUMNS, group="a")
    with h5py.File(path, "a") as file:
        file["a/up"] = file["/"]
        file["b"] = h5py.SoftLink("/a")
        file["c"] = h5py.ExternalLink("nowhere.h5", "/")
        file["d"] = h5py.SoftLink("/nowhere")
    # the cycle makes the same group appear again and again, down to a depth
    with pytest.raises(ValueError, match=r"several places.*/a, /a/up/a"):
        hdf5.open_any(path)
    assert rows_of(hdf5.open_any(path, group="b")) == ROWS


def test_a_file_without_events(tmp_path):
    path = write(tmp_path / "f.h5", {"t": np.zeros(3), "image": np.zeros((4, 5))})
    with pytest.raises(ValueError, match="no events"):
        hdf5.open_any(path)
    with h5py.File(path, "w") as file:
        for i in range(10_001):
            file.create_group(str(i))
    with pytest.raises(ValueError, match="10000 objects"):
        hdf5.open_any(path)


def test_arguments(tmp_path):
    path = write(tmp_path / "f.h5", COLUMNS)
    for bad in ({"group": 3}, {"strict": 1}, {"triggers": None}, {"t_offset": 1.5}, {"batch_size": True}):
        with pytest.raises(TypeError, match=next(iter(bad))):
            hdf5.open_any(path, **bad)
    with pytest.raises(ValueError, match="nope"):
        hdf5.open_any(path, group="nope")
    with pytest.raises(RuntimeError, match="triggers"):
        hdf5.open_any(path).take_triggers()
    assert len(hdf5.open_any(path, triggers=True).take_triggers()) == 0


@pytest.mark.parametrize("size", [None, 1, 3])
def test_strict_stops_at_a_step_back(tmp_path, size):
    path = write(tmp_path / "f.h5", COLUMNS)
    seen, message = until_it_fails(hdf5.open_any(path, strict=True, batch_size=size))
    assert rows_of(seen) == ROWS[:2]
    assert "event 2" in message and "7" in message
    # the step is between two reads
    columns = some_events(300_000)
    columns["t"][131_072:] -= np.uint64(300)
    path = write(tmp_path / "g.h5", columns)
    reader = hdf5.open_any(path, strict=True)
    seen, message = until_it_fails(reader)
    assert_holds(seen, head(columns, 131_072))
    assert "event 131072" in message
    assert reader.report.backward_steps == 0
    reader = hdf5.open_any(path)
    assert_holds(reader, columns)
    assert reader.report.backward_steps == 1


# Tables


@pytest.mark.parametrize("order", ["txyp", "xypt", "ptyx"])
@pytest.mark.parametrize("align", [True, False])
def test_a_table_with_fields(tmp_path, order, align):
    dtype = {"t": ">i8", "x": "<i4", "y": "<u2", "p": "?"}
    table = np.zeros(4, np.dtype([(name, dtype[name]) for name in order] + [("more", "f4")], align=align))
    for name in NAMES:
        table[name] = COLUMNS[name].astype("u8") % 3000
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["some/table"] = table
    with hdf5.open_any(tmp_path / "f.h5") as reader:
        assert reader.format == "HDF5 table"
        assert rows_of(reader) == zipped({name: table[name] for name in NAMES})


@pytest.mark.parametrize("dtype", ["<i8", ">u4", "<f8"])
@pytest.mark.parametrize("options", [{}, {"chunks": (1000, 4), "compression": "gzip"}, {"chunks": (999, 1)}])
def test_a_table_with_four_columns(tmp_path, dtype, options):
    columns = some_events(200_000)
    with h5py.File(tmp_path / "f.h5", "w") as file:
        table = np.stack([columns[name].astype(dtype) for name in NAMES], axis=1)
        file.create_dataset("events", data=table, **options)
        file["other"] = np.zeros((5, 3))
    assert_holds(hdf5.open_any(tmp_path / "f.h5", t_offset=2), columns, 2)
    assert_holds(hdf5.open_any(tmp_path / "f.h5", group="/events"), columns)
    with pytest.raises(ValueError, match="no table"):
        hdf5.open_any(tmp_path / "f.h5", group="other")


@pytest.mark.parametrize("bad", [1.5, np.nan, np.inf, -1.0, 2.0**63, 1e300])
@pytest.mark.parametrize("place", [0, 1, 5000, 9999])
def test_floats_must_be_whole_and_in_range(tmp_path, bad, place):
    columns = some_events(10_000)
    table = np.stack([columns[name].astype("f8") for name in NAMES], axis=1)
    table[place, 0] = bad
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["events"] = table
    seen, message = until_it_fails(hdf5.open_any(tmp_path / "f.h5"))
    assert_holds(seen, head(columns, place))
    assert f"event {place}: t is " in message


def test_a_table_of_other_fields_is_refused(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["e"] = np.zeros(3, [("t", "f8"), ("x", "u2"), ("y", "u2"), ("p", "u1")])
    with pytest.raises(ValueError, match="field 't'"):
        hdf5.open_any(tmp_path / "f.h5")


# Prophesee


def test_prophesees_file(tmp_path):
    columns = some_events(40_000)
    path = prophesee(tmp_path / "f.hdf5", encoded(columns), total=40_000)
    for batch_size in (None, 1000):
        with frames2py.open(path, triggers=True, batch_size=batch_size) as reader:
            assert reader.format == "HDF5 of Prophesee" and reader.sensor_size == (1280, 720)
            assert_holds(reader, columns)
            triggers = reader.take_triggers()
            assert triggers.dtype == TRIGGER_DTYPE
            assert triggers.tolist() == [(5, 0, 1), (9, 6, 0)]
            assert len(reader.take_triggers()) == 0
            assert reader.report.events == 40_000
    assert_holds(hdf5.open_any(path, t_offset=10**9), columns, 10**9)
    with pytest.raises(ValueError, match=r"\(640, 480\)"):
        hdf5.open_any(path, sensor_size=(640, 480))


def test_the_geometry(tmp_path):
    chunk = encoded(some_events(100))
    for text in (b"640x480", "640x480", " 640 x 480 "):
        path = prophesee(tmp_path / "f.hdf5", chunk, total=100, geometry=text)
        assert hdf5.open_any(path).sensor_size == (640, 480)
    for text in ("640", "0x480", "axb", 640):
        path = prophesee(tmp_path / "f.hdf5", chunk, total=100, geometry=text)
        with pytest.raises(ValueError, match="geometry"):
            hdf5.open_any(path)
    path = prophesee(tmp_path / "f.hdf5", chunk, total=100, geometry=None)
    with pytest.raises(ValueError, match="pass sensor_size"):
        hdf5.open_any(path)
    assert hdf5.open_any(path, sensor_size=(640, 480)).sensor_size == (640, 480)


def test_chunks_by_hand(tmp_path):
    """Times 1000, 1000, 1000, 1002; rows 5, 5, 5, 6; columns 10, 11, 15, 3; ON is the first only."""
    head, start = bytes([4 << 2, 0, 0, 0]), (1000).to_bytes(8, "little")
    steps, y = b"\x03\x21", b"\xa3\x00\xc1\x00"
    x, p = b"\x51\x01\x60\x00", b"\x81\x03"
    chunk = head + start + steps + y + x + p
    rows = [(1000, 10, 5, 1), (1000, 11, 5, 0), (1000, 15, 5, 0), (1002, 3, 6, 0)]
    path = prophesee(tmp_path / "f.hdf5", [chunk] * 3, rows=4)
    assert rows_of(hdf5.open_any(path)) == rows * 3
    # the last chunk is not full, and then the next one is cut short
    path = prophesee(tmp_path / "f.hdf5", [chunk, chunk], rows=4, total=7)
    assert rows_of(hdf5.open_any(path)) == (rows * 2)[:7]
    for end in range(len(chunk)):
        path = prophesee(tmp_path / "f.hdf5", [chunk, chunk[:end] or b"\0", chunk], rows=4)
        seen, message = until_it_fails(hdf5.open_any(path))
        assert rows_of(seen) == rows
        assert "chunk of event 4" in message
    late = bytearray(chunk)
    late[11] = 0x80
    seen, message = until_it_fails(
        hdf5.open_any(prophesee(tmp_path / "f.hdf5", [chunk, bytes(late)], rows=4))
    )
    assert rows_of(seen) == rows and "2**63" in message
    # fewer events than belong into the chunk
    seen, message = until_it_fails(hdf5.open_any(prophesee(tmp_path / "f.hdf5", [chunk, chunk], rows=5)))
    assert seen == [] and "4 events" in message


def test_chunks_that_the_filter_was_left_out_for_and_that_were_never_written(tmp_path):
    columns = some_events(300)
    events = events_of(columns)
    chunks = [SPLITTER.ecf(events[:100]), table_of(columns)[100:200].tobytes(), None]
    path = prophesee(tmp_path / "f.hdf5", chunks, rows=100, masks=[0, 1, 0])
    expected = {name: values.copy() for name, values in columns.items()}
    for values in expected.values():
        values[200:] = 0
    assert_holds(hdf5.open_any(path), expected)
    chunks[1] = chunks[1][:-1]
    seen, message = until_it_fails(
        hdf5.open_any(prophesee(tmp_path / "g.hdf5", chunks, rows=100, masks=[0, 1, 0]))
    )
    assert_holds(seen, head(columns, 100))
    assert "1599 bytes" in message


def test_the_same_layout_without_the_codec(tmp_path):
    columns = some_events(40_000)
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("CD/events", data=table_of(columns), chunks=(16_384,), compression="gzip")
        file.attrs["geometry"] = "640x480"
    with hdf5.open_any(tmp_path / "f.h5", triggers=True) as reader:
        assert reader.sensor_size == (640, 480)
        assert_holds(reader, columns)
        assert len(reader.take_triggers()) == 0


def test_the_codec_below_another_filter_is_left_to_hdf5(tmp_path):
    if h5py.h5z.filter_avail(0x8ECF):
        pytest.skip("there is a plugin for the filter")
    path = prophesee(
        tmp_path / "f.hdf5", encoded(some_events(100)), total=100, extra=(h5py.h5z.FILTER_DEFLATE,)
    )
    seen, message = until_it_fails(hdf5.open_any(path))
    assert seen == [] and "36559" in message


def test_triggers_out_of_range_are_refused(tmp_path):
    path = prophesee(tmp_path / "f.hdf5", encoded(some_events(10)), total=10)
    for values, word in [((-1, 0, 1), "t is -1"), ((1, -2, 1), "id is -2"), ((1, 0, 300), "p is 300")]:
        with h5py.File(path, "a") as file:
            t, number, p = values
            file["EXT_TRIGGER/events"][1] = (p, t, number)
        with pytest.raises(ValueError, match=f"trigger 1: {word}"):
            hdf5.open_any(path, triggers=True).take_triggers()


# The codec itself: Rust tests have more

EVENT = st.tuples(
    st.integers(0, 2**63 - 1) | st.integers(0, 30),
    st.integers(0, 2047),
    st.integers(0, 2047),
    st.integers(0, 1),
)


@given(st.lists(EVENT, max_size=200))
def test_what_is_encoded_is_decoded(rows):
    events = np.array(rows, EVENT_DTYPE)
    np.testing.assert_array_equal(_core.decode_ecf(SPLITTER.ecf(events)).view(EVENT_DTYPE), events)


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(chunk):
    with contextlib.suppress(ValueError):
        assert len(_core.decode_ecf(chunk)) <= 65_535 * 13


@pytest.mark.parametrize(("field", "value"), [("x", 2048), ("y", 65535), ("p", 2)])
def test_what_the_codec_cannot_hold_is_refused(field, value):
    events = np.zeros(3, EVENT_DTYPE)
    events[field][1] = value
    with pytest.raises(ValueError, match=f"event 1: {field} is {value}"):
        SPLITTER.ecf(events)


@pytest.mark.skipif("HDF5_PLUGIN_PATH" not in os.environ, reason="HDF5_PLUGIN_PATH is not set")
def test_prophesees_plugin_agrees(tmp_path):
    """What Prophesee's plugin compresses is read here, and the other way round."""
    if not h5py.h5z.filter_avail(0x8ECF):
        pytest.skip("HDF5_PLUGIN_PATH has no plugin for filter 36559")
    columns = some_events(100_000)
    with h5py.File(tmp_path / "theirs.hdf5", "w") as file:
        file.create_dataset("CD/events", data=table_of(columns), chunks=(16_384,), compression=0x8ECF)
        file.attrs["geometry"] = "640x480"
    assert_holds(hdf5.open_any(tmp_path / "theirs.hdf5"), columns)
    path = prophesee(tmp_path / "ours.hdf5", encoded(columns), total=100_000)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["CD/events"][:], table_of(columns))
