"""HDF5 files for tests, written and read by h5py alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frames2py import EVENT_DTYPE, _core

h5py = pytest.importorskip("h5py")
hdf5plugin = pytest.importorskip("hdf5plugin")

NAMES = ("t", "x", "y", "p")
COLUMNS: dict[str, Any] = {
    "t": np.array([5, 7, 6, 2**40], "u8"),
    "x": np.array([0, 3, 65535, 2], "u2"),
    "y": np.array([9, 0, 1, 65535], "u2"),
    "p": np.array([0, 1, 255, 1], "u1"),
}
ROWS = [(5, 0, 9, 0), (7, 3, 0, 1), (6, 65535, 1, 255), (2**40, 2, 65535, 1)]


def write(path: Path, columns: dict[str, Any], group: str = "events", **options: Any) -> Path:
    """A file with these datasets in a group."""
    with h5py.File(path, "w") as file:
        fill(file.require_group(group), columns, **options)
    return path


def fill(group: Any, columns: dict[str, Any], **options: Any) -> None:
    for name, values in columns.items():
        group.create_dataset(name, data=values, **options)


def rows_of(batches: Any) -> list[tuple[int, int, int, int]]:
    return [row for batch in batches for row in batch.tolist()]


def assert_holds(batches: Any, columns: dict[str, Any], t_offset: int = 0, repeat: int = 1) -> None:
    """That the batches together have these columns, compared by NumPy."""
    events = np.concatenate([np.zeros(0, EVENT_DTYPE), *batches])
    for name in NAMES:
        expected = columns[name].astype("u8") + np.uint64(t_offset if name == "t" else 0)
        np.testing.assert_array_equal(events[name], np.tile(expected, repeat), err_msg=name)


def head(columns: dict[str, Any], rows: int) -> dict[str, Any]:
    return {name: values[:rows] for name, values in columns.items()}


def until_it_fails(batches: Any, kind: type[Exception] = ValueError) -> tuple[list[Any], str]:
    """The arrays yielded before an error, and its message."""
    seen: list[Any] = []
    with pytest.raises(kind) as info:
        seen.extend(batches)
    batches.close()  # the error's traceback keeps it from being dropped
    return seen, str(info.value)


def some_events(count: int, seed: int = 1) -> dict[str, Any]:
    """Columns that compress as recordings do."""
    rng = np.random.default_rng(seed)
    return {
        "t": np.cumsum(rng.integers(0, 20, count)).astype("u8"),
        "x": rng.integers(0, 640, count).astype("u2"),
        "y": rng.integers(0, 480, count).astype("u2"),
        "p": rng.integers(0, 2, count).astype("u1"),
    }


def zipped(columns: dict[str, Any], t_offset: int = 0) -> list[tuple[int, int, int, int]]:
    """Rows of columns, as Python integers."""
    t, x, y, p = (columns[name].tolist() for name in NAMES)
    return [(a + t_offset, b, c, int(d)) for a, b, c, d in zip(t, x, y, p, strict=True)]


# Prophesee's

CD = np.dtype(
    {
        "names": ["x", "y", "p", "t"],
        "formats": ["<u2", "<u2", "<i2", "<i8"],
        "offsets": [0, 2, 4, 8],
        "itemsize": 16,
    }
)
TRIGGER = np.dtype(
    {"names": ["p", "t", "id"], "formats": ["<i2", "<i8", "<i2"], "offsets": [0, 8, 16], "itemsize": 24}
)
SPLITTER = _core.EventSplitter()


def events_of(columns: dict[str, Any]) -> np.ndarray:
    events = np.zeros(len(columns["t"]), EVENT_DTYPE)
    for name in NAMES:
        events[name] = columns[name]
    return events


def table_of(columns: dict[str, Any]) -> np.ndarray:
    table = np.zeros(len(columns["t"]), CD)
    for name in NAMES:
        table[name] = columns[name]
    return table


def prophesee(path, chunks, *, rows=16_384, total=None, geometry="1280x720", masks=None, extra=()):
    """A file as Prophesee's writer makes it, with these chunks as they are."""
    with h5py.File(path, "w") as file:
        pipeline = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        pipeline.set_chunk((rows,))
        pipeline.set_filter(0x8ECF, h5py.h5z.FLAG_OPTIONAL, ())
        for number in extra:
            pipeline.set_filter(number, h5py.h5z.FLAG_OPTIONAL, ())
        total = rows * len(chunks) if total is None else total
        space = h5py.h5s.create_simple((total,), (h5py.h5s.UNLIMITED,))
        group = file.create_group("CD")
        kind = h5py.h5t.py_create(CD)
        data = h5py.h5d.create(group.id, b"events", kind, space, pipeline)
        for i, chunk in enumerate(chunks):
            if chunk is not None:
                data.write_direct_chunk((i * rows,), chunk, masks[i] if masks else 0)
        group["indexes"] = np.zeros(1, [("id", "u8"), ("ts", "i8")])
        file["EXT_TRIGGER/events"] = np.array([(1, 5, 0), (0, 9, 6)], TRIGGER)
        file.attrs["version"] = "1.0"
        if geometry is not None:
            file.attrs["geometry"] = geometry
    return path


def encoded(columns, rows=16_384):
    events = events_of(columns)
    return [SPLITTER.ecf(events[start : start + rows]) for start in range(0, len(events), rows)]
