"""Seeking, slices and totals of files that Python reads, against reading all and then cutting."""

from __future__ import annotations

import itertools
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evt_words import as_array
from hdf5_files import NAMES, encoded, fill, h5py, prophesee, write
from hypothesis import given, settings
from hypothesis import strategies as st
from kept_index import beside, check_that_one_in_memory_is_kept_when_asked_for

import frames2py
from frames2py import EVENT_DTYPE, RecordingTotals
from frames2py.adapters import hdf5, npy

NUMBERS = itertools.count()


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    """What is read together is little, so that small files have many points."""
    before = hdf5._ROWS, npy._ROWS
    hdf5._ROWS = npy._ROWS = 16
    yield
    hdf5._ROWS, npy._ROWS = before


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("seek")


def ecf(path, columns):
    return prophesee(path, encoded(columns, 32), rows=32, total=len(columns["t"]))


def dsec(path, columns):
    write(
        path, columns | {"t": columns["t"].astype("u8")}, maxshape=(None,), chunks=(16,), compression="gzip"
    )
    with h5py.File(path, "a") as file:
        file["t_offset"] = np.int64(500)
    return path


def m3ed(path, columns):
    write(path, columns, group="prophesee/left", maxshape=(None,), chunks=(5,))
    with h5py.File(path, "a") as file:
        file["prophesee/left/calib/resolution"] = [1280, 720]
    return path


def blosc(path, columns):
    import hdf5plugin

    return write(path, columns, maxshape=(None,), chunks=(8,), **hdf5plugin.Blosc())


def events_of(columns):
    return as_array(list(zip(*(columns[name].tolist() for name in NAMES), strict=True)))


def structured(path, columns):
    with h5py.File(path, "w") as file:
        file["a"] = events_of(columns)
    return path


def rows(path, columns):
    with h5py.File(path, "w") as file:
        file["a"] = np.stack([columns[name].astype("f8") for name in NAMES], axis=1)
    return path


def npy_events(path, columns):
    with open(path, "wb") as file:
        np.save(file, events_of(columns))
    return path


def npz(path, columns, save):
    with open(path, "wb") as file:
        save(file, **columns)
    return path


def table(path, columns, order):
    stacked = np.stack([columns[name].astype("i8") for name in "xytp"], axis=1)
    with open(path, "wb") as file:
        np.save(file, np.array(stacked, order=order))
    return path


TABLE = {"columns": "xytp"}
LAYOUTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ecf": (ecf, {}),
    "dsec": (dsec, {}),
    "m3ed": (m3ed, {}),
    "group": (write, {}),
    "blosc": (blosc, {}),
    "structured": (structured, {}),
    "rows": (rows, {}),
    "npy": (npy_events, {}),
    "npy table": (lambda path, columns: table(path, columns, "C"), TABLE),
    "npy columns": (lambda path, columns: table(path, columns, "F"), TABLE),
    "npz": (lambda path, columns: npz(path, columns, np.savez), {}),
    "npz deflated": (lambda path, columns: npz(path, columns, np.savez_compressed), {}),
}


def rest(reader) -> tuple[np.ndarray, str | None]:
    """What comes, and the error that ends it."""
    batches, error = [np.empty(0, EVENT_DTYPE)], None
    try:
        for batch in reader:
            assert len(batch) and batch.flags.c_contiguous
            batches.append(batch)
    except ValueError as failure:
        error = str(failure)
    return np.concatenate(batches), error


def assert_sought(path, times, options, batch_sizes=(None, 1, 7, 1000)) -> RecordingTotals:
    """That all is found as it is in what is read from the start, by NumPy."""
    with frames2py.open(path, **options) as reader:
        events, error = rest(reader)
        report = reader.report
    t = events["t"]
    with frames2py.open(path, **options) as reader:
        assert reader.totals is None
        totals = reader.build_index()
        bounds = (int(t.min()), int(t.max())) if len(t) else (None, None)
        assert totals == reader.totals == RecordingTotals(len(events), *bounds)
    for batch_size in batch_sizes:
        with frames2py.open(path, batch_size=batch_size, **options) as reader:
            batches = iter(reader)
            for time in times:
                later = np.flatnonzero(t >= time)
                expected = events[later[0] :] if len(later) else events[:0]
                reader.seek(time)
                before = reader.report.events
                assert before == 0
                found, ended = rest(batches)
                assert (found.tobytes(), ended) == (expected.tobytes(), error), (time, batch_size)
                assert len(found) <= reader.report.events <= report.events
                if not len(later) or later[0] == 0:
                    assert reader.report.backward_steps <= report.backward_steps
                for end in times:
                    sliced = reader.slice(time, end)
                    assert sliced.tobytes() == events[(t >= time) & (t < end)].tobytes(), (time, end)
    return totals


@st.composite
def some_columns(draw):
    """Times that mostly rise, or not at all, and what else an event has."""
    steps = draw(st.lists(st.sampled_from([0, 0, 1, 3, 20, -5, -300]), max_size=150))
    start = draw(st.sampled_from([0, 7, 10**12]))
    t = np.maximum(start + np.cumsum([0, *steps])[1:], 0).astype("i8")
    if draw(st.booleans()):
        t = np.sort(t)
    count = len(t)
    return {
        "t": t.astype("u8"),
        "x": (np.arange(count) % 640).astype("u2"),
        "y": (np.arange(count) % 480).astype("u2"),
        "p": (np.arange(count) % 3 % 2).astype("u1"),
    }


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=30)
@given(columns=some_columns(), data=st.data())
def test_what_is_found_is_what_reading_from_the_start_has(folder, layout, columns, data):
    make, options = LAYOUTS[layout]
    path = make(folder / f"{next(NUMBERS)}", columns)
    known = st.sampled_from([0, 2**63 - 1, *columns["t"].tolist()])
    times = data.draw(
        st.lists(st.builds(lambda t, by: max(t + by, 0), known, st.integers(-3, 600)), max_size=3)
    )
    assert_sought(
        path, times, options if layout != "ecf" else {}, data.draw(st.sampled_from([(None,), (1, 7)]))
    )
    path.unlink()


@given(data=st.data())
def test_what_is_behind_a_fault_is_not_found_and_the_fault_is_told(folder, data):
    count = data.draw(st.integers(1, 100))
    at = data.draw(st.integers(0, count - 1))
    columns = {
        "t": np.arange(count, dtype="i8") * 2 % 70,
        "x": np.arange(count, dtype="i4"),
        "y": np.zeros(count, "u2"),
        "p": np.ones(count, "u1"),
    }
    columns[data.draw(st.sampled_from("tx"))][at] = -1
    chunk = data.draw(st.sampled_from([3, 16]))
    path = write(folder / f"{next(NUMBERS)}", columns, maxshape=(None,), chunks=(chunk,))
    totals = assert_sought(path, data.draw(st.lists(st.integers(0, 80), max_size=3)), {})
    assert totals.events == at
    path.unlink()


@given(data=st.data())
def test_polarities_of_two_kinds_are_refused_behind_a_seek_as_from_the_start(folder, data):
    signs = data.draw(st.lists(st.sampled_from([1, 1, 1, -1]), min_size=1, max_size=80))
    p = np.array(signs, "i1")
    p[data.draw(st.integers(0, len(p) - 1))] = 0
    columns = {"t": np.arange(len(p)), "x": np.zeros(len(p), "u2"), "y": np.zeros(len(p), "u2"), "p": p}
    path = npz(
        folder / f"{next(NUMBERS)}", columns, data.draw(st.sampled_from([np.savez, np.savez_compressed]))
    )
    assert_sought(path, [0, 20, 40, 70], {})
    path.unlink()


def columns_of(count):
    t = np.arange(count) * 3
    t[count // 2 :] -= count
    return {
        "t": t.astype("u8"),
        "x": np.zeros(count, "u2"),
        "y": np.zeros(count, "u2"),
        "p": np.zeros(count, "u1"),
    }


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_checksum_that_is_wrong_is_found_behind_a_seek_too(tmp_path, save):
    path = npz(tmp_path / "a.npz", columns_of(3000), save)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        crc = archive.getinfo("t.npy").CRC.to_bytes(4, "little")
    at = data.rindex(crc)  # the directory's
    data[at] ^= 1
    path.write_bytes(data)
    with frames2py.open(path) as reader:
        assert "CRC" in (rest(reader)[1] or "")
    totals = assert_sought(path, [0, 40, 3000], {}, (None, 1000))
    assert 0 < totals.events < 3000


def test_strictness_goes_on_behind_a_seek(tmp_path):
    path = write(tmp_path / "a.h5", columns_of(200), chunks=(16,))
    with hdf5.open_any(path, strict=True) as reader:
        # Not a fault of the format: the index has all of it.
        assert reader.build_index().events == 200
        reader.seek(250)
        events, error = rest(reader)
        assert len(events) == 100 - 84 and "event 100" in (error or "")
        reader.seek(150)
        assert "event 100" in (rest(reader)[1] or "")
        with pytest.raises(ValueError, match="event 100"):
            reader.slice(0, 400)
        # Behind the step back there is none.
        reader.seek(350)
        events, error = rest(reader)
        assert events["t"].tolist() == list(range(352, 400, 3)) and error is None


@pytest.fixture(params=["group", "npy", "npz deflated"])
def path(request, tmp_path):
    return LAYOUTS[request.param][0](tmp_path / "some.file", columns_of(200))


def test_an_iterator_goes_on_where_a_seek_went_and_slices_leave_it_alone(path):
    with frames2py.open(path) as reader:
        events = np.concatenate([*reader])
    with frames2py.open(path, batch_size=10) as reader:
        batches = iter(reader)
        next(batches)
        reader.slice(0, 500)
        assert next(batches).tobytes() == events[10:20].tobytes()
        reader.seek(0)
        assert next(batches).tobytes() == events[:10].tobytes()
        assert sum(len(batch) for batch in batches) == 190
        assert next(batches, None) is None
        reader.seek(10**6)
        assert list(reader) == []
        with pytest.raises(RuntimeError, match="once"):
            iter(reader)


def test_an_index_in_memory_is_kept_beside_the_file_when_that_is_asked_for(path):
    check_that_one_in_memory_is_kept_when_asked_for(path)


def test_an_index_beside_the_file_is_used_while_it_is_of_that_file_read_that_way(path):
    with frames2py.open(path) as reader:
        expected = reader.build_index(beside=True)
    # Clocks of file systems tick slowly: written again within a tick, it would have the same time.
    os.utime(beside(path), ns=(10**18, 10**18))
    kept, before = beside(path).read_bytes(), beside(path).stat().st_mtime_ns
    with frames2py.open(path) as reader:
        assert reader.build_index(beside=True) == expected
        reader.seek(200)
        assert next(iter(reader))["t"][0] == 201
    assert beside(path).stat().st_mtime_ns == before
    beside(path).write_bytes(kept[:-9])
    with frames2py.open(path) as reader:
        assert reader.build_index(beside=True) == expected
    assert beside(path).read_bytes() == kept
    # Another file in its place.
    columns = columns_of(200)
    columns["t"] += 7
    if kept.find(b"HDF5") > 0:
        write(path, columns)
        with frames2py.open(path, t_offset=100) as reader:
            assert reader.build_index(beside=True).t_min == 107
        with frames2py.open(path) as reader:
            assert reader.build_index(beside=True).t_min == 7
    else:
        npz(path, columns, np.savez)
        with frames2py.open(path, time_unit="ms") as reader:
            assert reader.build_index(beside=True).t_min == 7000
        with frames2py.open(path) as reader:
            assert reader.build_index(beside=True).t_min == 7


def test_an_index_of_one_group_is_not_anothers(tmp_path):
    path = write(tmp_path / "a.h5", columns_of(200), group="a")
    with h5py.File(path, "a") as file:
        fill(file.create_group("b"), columns_of(50))
    for group, count in (("a", 200), ("b", 50), ("a", 200)):
        with frames2py.open(path, group=group) as reader:
            assert reader.build_index(beside=True).events == count


def test_what_cannot_be_sought(path):
    reader = frames2py.open(path)
    with reader:
        for wrong in (1.0, "1", None, True):
            with pytest.raises(TypeError, match="t_us must be an int"):
                reader.seek(wrong)
        with pytest.raises(ValueError, match="negative"):
            reader.slice(0, -1)
        with pytest.raises(TypeError, match="beside"):
            reader.build_index(beside=1)
        assert sum(map(len, reader)) == 200  # nothing was used up
    for use in (lambda r: r.seek(0), lambda r: r.slice(0, 1), lambda r: r.build_index()):
        with pytest.raises(ValueError, match="closed"):
            use(reader)


def test_a_file_that_was_changed_meanwhile_is_told(tmp_path):
    path = npy_events(tmp_path / "a.npy", columns_of(200))
    with frames2py.open(path) as reader:
        reader.build_index()
        other = tmp_path / "other.npy"
        npy_events(other, columns_of(90))
        os.replace(other, path)
        for use in (lambda: reader.seek(500), lambda: reader.slice(0, 1000)):
            with pytest.raises(ValueError, match="changed"):
                use()


def test_threads_seek_and_slice_at_the_same_time(path):
    from concurrent.futures import ThreadPoolExecutor

    with frames2py.open(path) as reader:
        events = np.concatenate([*reader])
    t = events["t"]
    with frames2py.open(path) as reader, ThreadPoolExecutor(8) as pool:

        def work(time):
            reader.seek(time)
            return reader.slice(time, time + 50).tobytes()

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for time, found in zip(range(0, 300, 3), pool.map(work, range(0, 300, 3)), strict=True):
                assert found == events[(t >= time) & (t < time + 50)].tobytes()
        finally:
            sys.setswitchinterval(before)


# Files that say that times are in order


@pytest.mark.parametrize("name", ["hdf5", "dsec"])
@given(columns=some_columns(), data=st.data())
@settings(max_examples=40)
def test_what_is_saved_is_found(folder, name, columns, data):
    events = events_of(columns)
    if name == "dsec":
        events["t"] += np.uint64(10**5)
        events["t"] = np.maximum(events["t"], events["t"][:1].sum())  # it holds none before the first
        events["t"] = np.minimum(events["t"], events["t"][:1].sum() + np.uint64(2**32 - 1))
    path = folder / f"{next(NUMBERS)}"
    frames2py.save(path, events, sensor_size=(640, 480), format=name)
    with frames2py.open(path) as reader:
        assert np.concatenate([events[:0], *reader]).tobytes() == events.tobytes()
    known = st.sampled_from([0, 2**63 - 1, *events["t"].tolist()])
    times = data.draw(
        st.lists(st.builds(lambda t, by: max(t + by, 0), known, st.integers(-3, 600)), max_size=3)
    )
    assert_sought(path, times, {}, data.draw(st.sampled_from([(None,), (1, 7)])))
    steps = int(np.count_nonzero(events["t"][1:] < events["t"][:-1]))
    with h5py.File(path) as file:
        index = file["events/ms_to_idx" if name == "hdf5" else "ms_to_idx"]
        assert (index.attrs["events"], index.attrs["backward_steps"]) == (len(events), steps)
    path.unlink()


def count_reads(monkeypatch):
    reads = []
    before = hdf5._Cursor.read
    monkeypatch.setattr(hdf5._Cursor, "read", lambda self, rows: (reads.append(rows), before(self, rows))[1])
    return reads


@pytest.mark.parametrize("name", ["hdf5", "dsec"])
@pytest.mark.parametrize("change", ["nothing", "a step back", "one more", "no word of it", "another's word"])
def test_a_pass_is_made_unless_the_file_says_that_times_are_in_order(tmp_path, monkeypatch, name, change):
    monkeypatch.setattr(hdf5, "_ROWS", 65_536)  # a chunk; two are read at a time
    columns = columns_of(200_000)
    columns["t"].sort()
    if change == "a step back":
        columns["t"][150_000] -= 1_000
    path = tmp_path / "a.h5"
    frames2py.save(path, events_of(columns), sensor_size=(640, 480), format=name)
    with h5py.File(path, "a") as file:
        index = file["events/ms_to_idx" if name == "hdf5" else "ms_to_idx"]
        if change == "one more":
            for column in NAMES:
                file["events"][column].resize((200_001,))
                file["events"][column][200_000] = file["events"][column][
                    199_999 if column != "t" else 199_990
                ]
        elif change == "no word of it":
            del index.attrs["backward_steps"]
        elif change == "another's word":
            index.attrs["backward_steps"] = "none"
    reads = count_reads(monkeypatch)
    with frames2py.open(path) as reader:
        totals = reader.build_index()
        assert bool(reads) == (change != "nothing")
        assert totals.events == 200_000 + (change == "one more")
        reads.clear()
        assert len(reader.slice(300_000, 300_030)) == np.count_nonzero(columns["t"] // 30 == 10_000)
        assert sum(reads) <= 2 * 65_536
    assert_sought(path, [0, 300_001], {}, (None,))


def test_what_is_behind_a_damaged_chunk_is_found_where_times_are_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5, "_ROWS", 65_536)
    columns = columns_of(200_000)
    columns["t"].sort()
    path = tmp_path / "a.h5"
    frames2py.save(path, events_of(columns), sensor_size=(640, 480))
    with h5py.File(path, "a") as file:
        file["events/x"].id.write_direct_chunk((65_536,), b"no chunk of Blosc")
    with frames2py.open(path) as reader:
        assert len(rest(reader)[0]) == 65_536
        reader.seek(int(columns["t"][140_000]))
        events, error = rest(reader)
        assert error is None and events["t"][-1] == columns["t"][-1]
        assert len(events) == np.count_nonzero(columns["t"] >= columns["t"][140_000])
