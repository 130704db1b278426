"""Contract section 6: the recorder. What it wrote is read by h5py."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hdf5_files import h5py, rows_of, some_events
from hypothesis import given
from hypothesis import strategies as st
from records import LAYOUTS, at, empty, events

from frames2py import EVENT_DTYPE, recorder
from frames2py.adapters import hdf5

DTYPES = {"t": "<u8", "x": "<u2", "y": "<u2", "p": "u1"}
SIZE = {"sensor_size": (640, 480)}


def some(count: int, seed: int = 1) -> np.ndarray:
    array = np.zeros(count, EVENT_DTYPE)
    for name, values in some_events(count, seed).items():
        array[name] = values
    return array


def stored(path: Path, group: str = "events") -> np.ndarray:
    """The events of a file, by h5py."""
    with h5py.File(path) as file:
        columns = {name: file[group][name][:] for name in DTYPES}
    array = np.zeros(len(columns["t"]), EVENT_DTYPE)
    for name, values in columns.items():
        array[name] = values
    return array


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def record(path: Path, *batches: np.ndarray, **options) -> Path:
    with recorder.open(path, **(SIZE | options)) as to:
        for batch in batches:
            assert to.write(batch) is None
    return path


@pytest.mark.parametrize("count", [0, 1, 65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("compression", ["blosc", "gzip", None])
def test_what_is_in_the_file(tmp_path, count, compression):
    array = some(count)
    path = record(tmp_path / "f.h5", array, compression=compression)
    np.testing.assert_array_equal(stored(path), array)
    filters = {
        "blosc": lambda size: {"32001": (2, 2, size, size * 65_536, 5, 1, 1)},
        "gzip": lambda size: {"shuffle": (size,), "gzip": 4},
        None: lambda size: {},
    }[compression]
    with h5py.File(path) as file:
        assert list(file) == ["events"] and sorted(file["events"]) == ["p", "t", "x", "y"]
        attributes = dict(file["events"].attrs)
        assert attributes == {"sensor_width": 640, "sensor_height": 480, "frames2py_format_version": 1}
        assert {type(value) for value in attributes.values()} == {np.int64}
        for name, dtype in DTYPES.items():
            data = file["events"][name]
            assert data.dtype == np.dtype(dtype)
            assert data.shape == (count,) and data.chunks == (65_536,)
            assert data._filters == filters(data.dtype.itemsize)
    with hdf5.open(path, group="events") as reader:
        assert reader.sensor_size == (640, 480)
        np.testing.assert_array_equal(np.concatenate([empty(), *reader]), array)


@pytest.mark.parametrize("compression", ["blosc", "gzip", None])
def test_the_bytes_do_not_depend_on_the_splits(tmp_path, compression):
    array = some(150_000)
    found = set()
    for i, size in enumerate([150_000, 65_536, 777, 65_537, 100_000]):
        parts = [array[start : start + size] for start in range(0, len(array), size)]
        parts.insert(i, empty())
        found.add(digest(record(tmp_path / f"{i}.h5", *parts, compression=compression)))
    assert len(found) == 1
    array[99_999]["x"] += 1
    assert digest(record(tmp_path / "other.h5", array, compression=compression)) not in found


@given(sizes=st.lists(st.integers(0, 70_000), max_size=6))
def test_any_splits(tmp_path_factory, sizes):
    folder = tmp_path_factory.mktemp("splits")
    array = some(sum(sizes))
    parts = np.split(array, np.cumsum(sizes)[:-1]) if sizes else []
    whole = record(folder / "whole.h5", array, compression=None)
    assert digest(record(folder / "parts.h5", *parts, compression=None)) == digest(whole)
    np.testing.assert_array_equal(stored(whole), array)


@pytest.mark.parametrize("group", ["/", "a", "/a/", "a/b/c"])
def test_groups(tmp_path, group):
    array = some(10)
    path = record(tmp_path / "f.h5", array, group=group)
    np.testing.assert_array_equal(stored(path, group), array)
    assert rows_of(hdf5.open(path, group=group)) == array.tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_accepted_layout(tmp_path, layout):
    rows = [(1, 2, 3, 4), (2**63 - 1, 65535, 65535, 255)]
    if layout == "overlapping":
        rows = [(0x0201, 0x0201, 0x02, 0x01)]
    array = events(rows, layout)
    path = record(tmp_path / "f.h5", array)
    expected = [tuple(int(array[name][i]) for name in DTYPES) for i in range(len(array))]
    assert stored(path).tolist() == expected


def test_a_call_is_recorded_whole_or_not_at_all(tmp_path):
    with recorder.open(tmp_path / "f.h5", **SIZE) as to:
        to.write(at(1, 2))
        for bad, kind in [
            (at(3, 2**63), ValueError),
            ([(1, 2, 3, 4)], TypeError),
            (at(3, 4)[::2][:1].repeat(2).reshape(1, 2), TypeError),
            (at(3, 4, 5)[::2], TypeError),
            (np.zeros(3, [("t", "<i8"), ("x", "<u2"), ("y", "<u2"), ("p", "u1")]), TypeError),
            (None, TypeError),
        ]:
            with pytest.raises(kind):
                to.write(bad)
        to.write(at(9, x=5000))  # beyond the sensor
    assert stored(tmp_path / "f.h5")["t"].tolist() == [1, 2, 9]


def test_the_array_may_be_used_again(tmp_path):
    array = at(1, 2, 3)
    with recorder.open(tmp_path / "f.h5", **SIZE) as to:
        to.write(array)
        array["t"] = 7
        to.write(array)
    assert stored(tmp_path / "f.h5")["t"].tolist() == [1, 2, 3, 7, 7, 7]


# The file appears at the end


def test_written_hidden_and_moved(tmp_path):
    to = recorder.open(tmp_path / "f.h5", **SIZE)
    to.write(some(100_000))
    (hidden,) = os.listdir(tmp_path)
    assert hidden.startswith(".") and hidden != "f.h5"
    assert "open" in repr(to)
    to.close()
    to.close()
    assert os.listdir(tmp_path) == ["f.h5"]
    assert "closed" in repr(to)
    for anything in (at(1), None):
        with pytest.raises(ValueError, match="closed"):
            to.write(anything)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_what_was_written(tmp_path, error):
    with pytest.raises(error), recorder.open(tmp_path / "f.h5", **SIZE) as to:
        to.write(some(70_000))
        raise error
    assert os.listdir(tmp_path) == ["f.h5"]
    np.testing.assert_array_equal(stored(tmp_path / "f.h5"), some(70_000))


def test_an_existing_file_is_kept(tmp_path):
    path = tmp_path / "f.h5"
    path.write_text("mine")
    with pytest.raises(FileExistsError) as info:
        recorder.open(path, **SIZE)
    assert info.value.filename == str(path)
    assert os.listdir(tmp_path) == ["f.h5"]
    to = recorder.open(path, overwrite=True, **SIZE)
    to.write(at(5))
    assert path.read_text() == "mine"
    to.close()
    assert stored(path)["t"].tolist() == [5]


def test_a_file_that_appears_meanwhile_is_kept_and_so_is_the_recording(tmp_path):
    path = tmp_path / "f.h5"
    to = recorder.open(path, **SIZE)
    to.write(at(5))
    path.write_text("mine")
    with pytest.raises(FileExistsError) as info:
        to.close()
    assert path.read_text() == "mine"
    (hidden,) = (tmp_path / name for name in os.listdir(tmp_path) if name != "f.h5")
    assert str(hidden) in str(info.value)
    assert stored(hidden)["t"].tolist() == [5]
    to.close()


@pytest.mark.skipif(not hasattr(os, "symlink") or os.name == "nt", reason="no symbolic links")
def test_a_link_to_nowhere_is_a_file_that_exists(tmp_path):
    os.symlink(tmp_path / "nowhere", tmp_path / "f.h5")
    with pytest.raises(FileExistsError):
        recorder.open(tmp_path / "f.h5", **SIZE)


def test_if_it_cannot_be_moved_nothing_is_left(tmp_path):
    path = tmp_path / "f.h5"
    to = recorder.open(path, overwrite=True, **SIZE)
    to.write(at(5))
    path.mkdir()
    with pytest.raises(OSError):
        to.close()
    assert os.listdir(tmp_path) == ["f.h5"] and path.is_dir()
    to.close()


def test_if_it_cannot_be_finished_nothing_is_left(tmp_path, monkeypatch):
    path = tmp_path / "f.h5"
    path.write_text("mine")
    to = recorder.open(path, overwrite=True, **SIZE)
    to.write(at(5))

    def fails(*_):
        raise OSError(28, "no space")

    monkeypatch.setattr(h5py.Dataset, "__setitem__", fails)
    with pytest.raises(OSError, match="no space"):
        to.close()
    assert os.listdir(tmp_path) == ["f.h5"] and path.read_text() == "mine"


def test_what_could_not_be_written_is_written_later(tmp_path, monkeypatch):
    """An interruption between the parts of a chunk."""
    array = some(200_000)
    path = record(tmp_path / "straight.h5", array, compression=None)
    for fail_at in range(8):
        real = h5py.Dataset.__setitem__
        calls = itertools.count()

        def sometimes(self, place, value, calls=calls, real=real, fail_at=fail_at):
            if next(calls) == fail_at:
                raise KeyboardInterrupt
            return real(self, place, value)

        other = tmp_path / "interrupted.h5"
        with recorder.open(other, compression=None, overwrite=True, **SIZE) as to:
            with monkeypatch.context() as patch:
                patch.setattr(h5py.Dataset, "__setitem__", sometimes)
                with pytest.raises(KeyboardInterrupt):
                    to.write(array)
        np.testing.assert_array_equal(stored(other), array)
    np.testing.assert_array_equal(stored(path), array)


PROGRAM = """
import sys
import numpy as np
from frames2py import EVENT_DTYPE, recorder

with recorder.open(sys.argv[1], sensor_size=(640, 480)) as to:
    batch = np.zeros(10_000, EVENT_DTYPE)
    n = 0
    while True:
        batch["t"] = np.arange(n, n + 10_000)
        batch["x"] = batch["y"] = batch["t"] % 60_000
        batch["p"] = batch["t"] % 7
        to.write(batch)
        n += 10_000
        if n == 500_000:
            print("going", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is not sent to one process")
def test_ctrl_c_leaves_a_prefix(tmp_path):
    path = tmp_path / "f.h5"
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "going\n"
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=100)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert os.listdir(tmp_path) == ["f.h5"]
    found = stored(path)
    number = np.arange(len(found), dtype="u8")
    assert len(found) >= 500_000
    np.testing.assert_array_equal(found["t"], number)
    np.testing.assert_array_equal(found["x"], number % 60_000)
    np.testing.assert_array_equal(found["y"], number % 60_000)
    np.testing.assert_array_equal(found["p"], number % 7)


def test_threads_record_calls_whole(tmp_path):
    path = tmp_path / "f.h5"
    with recorder.open(path, **SIZE) as to:

        def write(number):
            batch = np.zeros(5_000, EVENT_DTYPE)
            batch["y"] = number
            for i in range(20):
                batch["t"], batch["x"] = i, np.arange(5_000)
                to.write(batch)

        threads = [threading.Thread(target=write, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = stored(path).reshape(60, 5_000)
    for call in found:
        assert call["x"].tolist() == list(range(5_000))
        assert len(np.unique(call[["t", "y"]])) == 1
    for number in range(3):
        assert found[found["y"][:, 0] == number]["t"][:, 0].tolist() == list(range(20))


# Arguments


@pytest.mark.parametrize(
    ("options", "kind", "word"),
    [
        ({"sensor_size": (0, 1)}, ValueError, "sensor_size"),
        ({"sensor_size": (1, 2, 3)}, ValueError, "sensor_size"),
        ({"sensor_size": None}, ValueError, "sensor_size"),
        ({"sensor_size": (1.5, 2)}, TypeError, "sensor_size"),
        ({"sensor_size": (True, 2)}, TypeError, "sensor_size"),
        ({"sensor_size": (2**63, 2)}, ValueError, "sensor_size"),
        ({"compression": "lzf"}, ValueError, "compression"),
        ({"compression": ""}, ValueError, "compression"),
        ({"compression": 4}, ValueError, "compression"),
        ({"group": ""}, ValueError, "group"),
        ({"group": "a\0b"}, ValueError, "group"),
        ({"group": "."}, ValueError, "group"),
        ({"group": 3}, TypeError, "group"),
        ({"group": b"a"}, TypeError, "group"),
        ({"overwrite": 1}, TypeError, "overwrite"),
        ({"overwrite": "yes"}, TypeError, "overwrite"),
    ],
)
def test_bad_arguments_make_no_file(tmp_path, options, kind, word):
    with pytest.raises(kind, match=word):
        recorder.open(tmp_path / "f.h5", **(SIZE | options))
    assert os.listdir(tmp_path) == []


def test_places_where_no_file_can_be(tmp_path):
    with pytest.raises(FileNotFoundError) as info:
        recorder.open(tmp_path / "none" / "f.h5", **SIZE)
    assert info.value.filename == str(tmp_path / "none")
    for overwrite in (False, True):
        with pytest.raises(IsADirectoryError):
            recorder.open(tmp_path, overwrite=overwrite, **SIZE)
    with pytest.raises(TypeError):
        recorder.open(3, **SIZE)
    with pytest.raises(TypeError):
        recorder.open(tmp_path / "f.h5")
    assert os.listdir(tmp_path) == []


def test_the_working_directory_may_change(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    with recorder.open("f.h5", **SIZE) as to:
        monkeypatch.chdir(tmp_path / "b")
        to.write(at(1))
    assert os.listdir(tmp_path / "a") == ["f.h5"] and os.listdir(tmp_path / "b") == []


@pytest.mark.parametrize("missing", ["h5py", "hdf5plugin"])
def test_without_its_packages_it_says_what_to_install(tmp_path, missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from frames2py import recorder\n"
        "recorder.open('f.h5', sensor_size=(1, 2))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.stderr.splitlines()[-1].startswith("ImportError: ")
    assert missing in run.stderr and "frames2py[recorder]" in run.stderr
    assert os.listdir(tmp_path) == []
