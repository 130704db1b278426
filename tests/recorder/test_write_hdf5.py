"""HDF5 files with an index by milliseconds, as ``frames2py.save`` writes them, against h5py and a naive
loop."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hdf5_files import h5py, rows_of, some_events
from hypothesis import given
from hypothesis import strategies as st
from records import at, empty

import frames2py
from frames2py import EVENT_DTYPE
from frames2py.adapters import hdf5
from frames2py.recorder import write_hdf5

SIZE = {"sensor_size": (640, 480)}


def some(count: int) -> np.ndarray:
    array = np.zeros(count, EVENT_DTYPE)
    for name, values in some_events(count).items():
        array[name] = values
    array["t"] += np.uint64(10**15)
    return array


def naive_index(times: list[int], start: int) -> list[int]:
    """For each millisecond up to the one of the largest time, the first event that is not before it."""
    if not times:
        return []
    last = max(max(times) - start, 0) // 1000
    return [next(i for i, t in enumerate(times) if t >= start + 1000 * k) for k in range(last + 1)]


@pytest.mark.parametrize("layout", ["recorder", "dsec"])
@pytest.mark.parametrize("compression", ["blosc", "gzip", None])
@pytest.mark.parametrize("split", [1000, 70_000, 200_000])
def test_what_is_written_is_read(tmp_path, layout, compression, split):
    array = some(150_000)
    parts = (array[i : i + split] for i in range(0, len(array), split))
    path = tmp_path / "f.h5"
    write_hdf5(path, parts, layout=layout, compression=compression, **SIZE)
    assert os.listdir(tmp_path) == ["f.h5"]
    with frames2py.open(path) as reader:
        assert reader.sensor_size == (640, 480)
        np.testing.assert_array_equal(np.concatenate(list(reader)), array)
    with h5py.File(path) as file:
        group = file["events"]
        if layout == "dsec":
            assert sorted(file) == ["events", "ms_to_idx", "t_offset"] and sorted(group) == [
                "p",
                "t",
                "x",
                "y",
            ]
            assert file["t_offset"].dtype == np.int64 and file["t_offset"][()] == array["t"][0]
            assert group["t"].dtype == np.uint32
            index, start = file["ms_to_idx"], int(file["t_offset"][()])
            times = group["t"][:].astype("u8") + np.uint64(start)
        else:
            assert group["t"].dtype == np.uint64
            index, start = group["ms_to_idx"], int(group["ms_to_idx"].attrs["t_offset"])
            times = group["t"][:]
        np.testing.assert_array_equal(times, array["t"])
        marks = np.arange(len(index), dtype="u8") * 1000 + start
        # These times are in order.
        np.testing.assert_array_equal(index[:], np.searchsorted(array["t"], marks))
        assert len(index) == (int(array["t"][-1]) - start) // 1000 + 1


TIMES = st.lists(st.integers(0, 5_000) | st.integers(0, 50_000), max_size=40)


@given(times=TIMES, layout=st.sampled_from(["recorder", "dsec"]), split=st.integers(1, 41))
def test_the_index_of_times_in_any_order(tmp_path_factory, times, layout, split):
    path = tmp_path_factory.mktemp("index") / "f.h5"
    if layout == "dsec" and times:
        times[0] = 0  # or some would be before the first
    parts = [at(*times[i : i + split]) for i in range(0, len(times), split)]
    write_hdf5(path, [empty(), *parts], layout=layout, **SIZE)
    with h5py.File(path) as file:
        index = file["ms_to_idx" if layout == "dsec" else "events/ms_to_idx"][:].tolist()
    assert index == naive_index(times, times[0] if times else 0)
    assert [row[0] for row in rows_of(hdf5.open_any(path))] == times


def test_an_index_longer_than_a_chunk(tmp_path):
    """Three minutes between events."""
    array = at(7, 7 + 180_000_000, 7 + 180_000_001, 7 + 360_000_000)
    write_hdf5(tmp_path / "f.h5", [array[:1], array[1:]], layout="dsec", **SIZE)
    with h5py.File(tmp_path / "f.h5") as file:
        index = file["ms_to_idx"][:]
    assert index.tolist() == [0] + [1] * 180_000 + [3] * 180_000


@pytest.mark.parametrize("offset", [None, 100])
def test_times_that_dsecs_layout_does_not_hold(tmp_path, offset):
    start = 500 if offset is None else offset
    for bad in (start - 1, start + 2**32, 2**63 - 1):
        with pytest.raises(ValueError, match=f"event 3: t is {bad};"):
            write_hdf5(
                tmp_path / "f.h5", [at(500, 600), at(700, bad)], layout="dsec", t_offset=offset, **SIZE
            )
        assert os.listdir(tmp_path) == []
    write_hdf5(tmp_path / "f.h5", [at(start + 500, start + 2**32 - 1)], layout="dsec", t_offset=start, **SIZE)
    assert [t for t, *_ in rows_of(hdf5.open_any(tmp_path / "f.h5"))] == [start + 500, start + 2**32 - 1]


def test_a_recording_of_more_than_a_day_has_no_index(tmp_path):
    array = at(5, 6, 5 + 86_400_000_000, 2**63 - 1)
    write_hdf5(tmp_path / "f.h5", [array[:2], array[2:]], **SIZE)
    with h5py.File(tmp_path / "f.h5") as file:
        assert sorted(file["events"]) == ["p", "t", "x", "y"]
    assert rows_of(hdf5.open_any(tmp_path / "f.h5")) == array.tolist()


def test_whatever_goes_wrong_leaves_nothing_behind(tmp_path):
    path = tmp_path / "f.h5"

    def batches(last):
        yield at(1, 2)
        if isinstance(last, BaseException):
            raise last
        yield last

    for last, kind in [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (at(2**63), ValueError),
        ([3], TypeError),
    ]:
        with pytest.raises(kind):
            write_hdf5(path, batches(last), **SIZE)
        assert os.listdir(tmp_path) == []
    for bad, word in [({"layout": "x"}, "layout"), ({"compression": 1}, "compression")]:
        with pytest.raises(ValueError, match=word):
            write_hdf5(path, [], **(SIZE | bad))
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        write_hdf5(path, [at(1)], **SIZE)
    with pytest.raises(KeyboardInterrupt):
        write_hdf5(path, batches(KeyboardInterrupt()), overwrite=True, **SIZE)
    assert os.listdir(tmp_path) == ["f.h5"] and path.read_text() == "mine"
    write_hdf5(path, [at(1)], overwrite=True, **SIZE)
    assert rows_of(hdf5.open(path, group="events")) == [(1, 0, 0, 1)]


def test_a_file_that_appears_meanwhile_is_kept(tmp_path):
    path = tmp_path / "f.h5"

    def batches():
        yield at(1)
        path.write_text("mine")

    with pytest.raises(FileExistsError):
        write_hdf5(path, batches(), **SIZE)
    assert os.listdir(tmp_path) == ["f.h5"] and path.read_text() == "mine"


@pytest.mark.parametrize("kind", ["hdf5", "dsec"])
def test_save(tmp_path, kind):
    array = some(1000)
    assert frames2py.save(tmp_path / "f.h5", array, format=kind, **SIZE) == 1000
    with frames2py.open(tmp_path / "f.h5") as reader:
        assert reader.format == {"hdf5": "HDF5 of the recorder", "dsec": "HDF5 of DSEC"}[kind]
        np.testing.assert_array_equal(np.concatenate(list(reader)), array)
