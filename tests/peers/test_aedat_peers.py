"""AEDAT 4.0 as it is written, opened by independent readers: all must find the same events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import frames2py
from frames2py import EVENT_DTYPE
from frames2py.adapters import aedat4


def events(n: int) -> np.ndarray:
    """Events of a moving edge, with noise, as a camera would record them in 2026."""
    rng = np.random.default_rng(n)
    found = np.zeros(n, EVENT_DTYPE)
    found["t"] = 1_790_000_000_000_000 + np.cumsum(rng.integers(0, 30, n))
    found["x"] = (np.arange(n) // 50 + rng.integers(0, 9, n)) % 346
    found["y"] = rng.integers(0, 260, n)
    found["p"] = rng.integers(0, 2, n)
    return found


@pytest.fixture(params=[1, 8191, 8192, 8193, 100_000])
def array(request) -> np.ndarray:
    return events(request.param)


@pytest.fixture(params=["lz4", "zstd", "none"])
def written(request, array, tmp_path: Path) -> tuple[Path, np.ndarray]:
    path = tmp_path / "written.aedat4"
    frames2py.save(path, array, sensor_size=(346, 260), compression=request.param)
    return path, array


def equal(columns, array) -> None:
    for name, column in zip("txyp", columns, strict=True):
        np.testing.assert_array_equal(column.astype("i8"), array[name].astype("i8"), name)


def dv_batches(dv, path):
    recording = dv.io.MonoCameraRecording(path)
    while (batch := recording.getNextEventBatch()) is not None:
        yield batch.numpy()


def test_dv_processing_opens_it(written):
    dv = pytest.importorskip("dv_processing")
    path, array = written
    recording = dv.io.MonoCameraRecording(str(path))
    assert tuple(recording.getEventResolution()) == (346, 260)
    # What the table says.
    assert recording.getTimeRange() == (int(array["t"][0]), int(array["t"][-1]))
    found = np.concatenate(list(dv_batches(dv, str(path))))
    equal([found[name] for name in ("timestamp", "x", "y", "polarity")], array)
    # By time: through the table to the packet.
    middle = int(array["t"][len(array) // 2])
    part = recording.getEventsTimeRange(middle, middle + 1000)
    expected = array[(array["t"] >= middle) & (array["t"] < middle + 1000)]
    equal([part.numpy()[name] for name in ("timestamp", "x", "y", "polarity")], expected)


def test_aedat_opens_it(written):
    aedat = pytest.importorskip("aedat")
    path, array = written
    found = np.concatenate([packet["events"] for packet in aedat.Decoder(path) if "events" in packet])
    equal([found[name] for name in ("t", "x", "y", "on")], array)


@pytest.mark.parametrize("compression", ["NONE", "LZ4", "LZ4_HIGH", "ZSTD", "ZSTD_HIGH"])
def test_what_dv_processing_writes_is_read(tmp_path, compression):
    dv = pytest.importorskip("dv_processing")
    path = tmp_path / "theirs.aedat4"
    array = events(50_000)
    kind = getattr(dv.CompressionType, compression)
    config = dv.io.MonoCameraWriter.EventOnlyConfig("camera", (346, 260), kind)
    writer = dv.io.MonoCameraWriter(str(path), config)
    store = dv.EventStore()
    for t, x, y, p in array.tolist():
        store.push_back(t, x, y, bool(p))
    writer.writeEvents(store)
    del writer
    with aedat4.open(path, strict=True) as reader:
        assert reader.sensor_size == (346, 260)
        assert np.concatenate([*reader]).tobytes() == array.tobytes()
