"""HDF5 files that are written here, opened by other packages: h5py, and those that `ci/peers.sh` installs."""

from __future__ import annotations

import numpy as np
import pytest
from hdf5_files import h5py, some_events

from frames2py import EVENT_DTYPE, recorder
from frames2py.adapters import hdf5

START = 10**9


@pytest.fixture(scope="module")
def events():
    array = np.zeros(100_000, EVENT_DTYPE)
    for name, values in some_events(100_000).items():
        array[name] = values
    array["t"] += np.uint64(START)
    return array


def from_h5py(path, layout):
    with h5py.File(path) as file:
        t, x, y, p = (file["events"][name][:] for name in "txyp")
        return t + (np.uint64(file["t_offset"][()]) if layout == "dsec" else np.uint64(0)), x, y, p


def from_evutils(path, layout):
    """It knows DSEC's layout."""
    io = pytest.importorskip("evutils.io")
    reader = io.EventReader(path, index=False, max_events=2**40, max_time=2**62)
    found = reader.read_all()
    reader.close()
    return found.t, found.x, found.y, found.p


@pytest.mark.parametrize(
    ("read", "layout"), [(from_h5py, "recorder"), (from_h5py, "dsec"), (from_evutils, "dsec")]
)
@pytest.mark.parametrize("compression", ["blosc", "gzip", None])
def test_others_read_what_is_written(tmp_path, events, read, layout, compression):
    path = tmp_path / "f.h5"
    recorder.write_hdf5(path, [events], sensor_size=(640, 480), layout=layout, compression=compression)
    for name, column in zip("txyp", read(path, layout), strict=True):
        np.testing.assert_array_equal(np.asarray(column).astype("u8"), events[name], err_msg=name)


@pytest.mark.parametrize("compression", ["gzip", None])
def test_eventcv_reads_dsecs_layout(tmp_path, events, compression):
    """It has no Blosc."""
    eventcv = pytest.importorskip("eventcv")
    path = tmp_path / "f.h5"
    recorder.write_hdf5(path, [events], sensor_size=(640, 480), layout="dsec", compression=compression)
    found = eventcv.load(str(path))
    assert len(found) == len(events)


def test_the_recording_is_read_as_evutils_reads_it(recordings):
    path = recordings / "sparklers_100k.dsec.h5"
    ours = np.concatenate(list(hdf5.open(path, group="events", t_offset="/t_offset")))
    for name, column in zip("txyp", from_evutils(path, "dsec"), strict=True):
        np.testing.assert_array_equal(np.asarray(column).astype("u8"), ours[name], err_msg=name)
