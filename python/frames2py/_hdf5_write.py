"""HDF5 files of events, written under a hidden name and moved into place when they are complete."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._events import EventArray
from ._files import Draft
from ._hdf5 import BLOSC

__all__ = [
    "CHUNK",
    "Columns",
    "EventsGroup",
    "MillisecondIndex",
    "check_compression",
    "create",
    "set_geometry",
    "write_dsec",
]

#: Rows of a chunk.
CHUNK = 65_536

#: The columns t, x, y, p.
Columns: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]

_NAMES = ("t", "x", "y", "p")


def check_compression(compression: object) -> str | None:
    if compression is None or (isinstance(compression, str) and compression in ("blosc", "gzip")):
        return compression
    raise ValueError(f"compression must be 'blosc', 'gzip' or None, got {compression!r}")


def _filters(compression: str | None) -> dict[str, Any]:
    if compression == "blosc":
        # The first four are filled in by the filter; then level 5, byte shuffle, LZ4.
        return {"compression": BLOSC, "compression_opts": (0, 0, 0, 0, 5, 1, 1)}
    if compression == "gzip":
        return {"compression": "gzip", "compression_opts": 4, "shuffle": True}
    return {}


class _Column:
    """A dataset that is written a chunk at a time.

    In h5py's lowest layer, and without an object of h5py's made per call: a Ctrl-C that Python handles just
    when such an object dies is lost.
    """

    def __init__(self, h5py: ModuleType, dataset: Any) -> None:
        self._id = dataset.id
        self._type = h5py.h5t.py_create(dataset.dtype)
        self._chunk = h5py.h5s.create_simple((CHUNK,))
        self._rest = h5py.h5s.create_simple((CHUNK,))
        self._file = h5py.h5s.create_simple((0,), (h5py.h5s.UNLIMITED,))
        self._unlimited = (h5py.h5s.UNLIMITED,)

    def write(self, start: int, values: NDArray[Any]) -> None:
        """Make the dataset end with these values, from row ``start`` on."""
        end = (start + len(values),)
        self._id.set_extent(end)
        self._file.set_extent_simple(end, self._unlimited)
        self._file.select_hyperslab((start,), values.shape)
        memory = self._chunk
        if len(values) != CHUNK:
            memory = self._rest
            memory.set_extent_simple(values.shape)
        self._id.write(memory, self._file, values, self._type)

    def cut(self, rows: int) -> None:
        self._id.set_extent((rows,))


class EventsGroup:
    """The datasets t, x, y and p of a group, filled in whole chunks: how events came in leaves no trace.

    What was appended stays, whatever interrupts: a chunk is forgotten when all of its four parts are written,
    and else written again.
    """

    def __init__(self, h5py: ModuleType, group: Any, compression: str | None, *, times: str = "<u8") -> None:
        self._columns = [
            _Column(
                h5py,
                group.create_dataset(
                    name, shape=(0,), maxshape=(None,), chunks=(CHUNK,), dtype=dtype, **_filters(compression)
                ),
            )
            for name, dtype in zip(_NAMES, (times, "<u2", "<u2", "u1"), strict=True)
        ]
        self._parts: list[Columns] = []
        # Rows of the first part that are written, and rows that are written in all.
        self._skip = 0
        self._written = 0
        #: Events appended.
        self.events = 0

    def append(self, columns: Columns) -> None:
        if len(columns[0]):
            # From here on they belong to the file.
            self._parts.append(columns)
            self.events += len(columns[0])

    def write_chunks(self) -> None:
        """Write what fills whole chunks."""
        while self.events - self._written >= CHUNK:
            self._write(CHUNK)

    def finish(self) -> None:
        """Write the rest."""
        self.events = self._written - self._skip + sum(len(part[0]) for part in self._parts)
        self.write_chunks()
        if self.events > self._written:
            self._write(self.events - self._written)
        for column in self._columns:
            column.cut(self._written)

    def _write(self, rows: int) -> None:
        taken, missing, skip = 0, rows, self._skip
        pieces: list[Columns] = []
        for part in self._parts:
            here = min(len(part[0]) - skip, missing)
            t, x, y, p = (column[skip : skip + here] for column in part)
            pieces.append((t, x, y, p))
            missing -= here
            skip += here
            if skip < len(part[0]):
                break
            taken, skip = taken + 1, 0
            if not missing:
                break
        for i, column in enumerate(self._columns):
            values = pieces[0][i] if len(pieces) == 1 else np.concatenate([piece[i] for piece in pieces])
            column.write(self._written, values)
        # Together, and last.
        self._parts, self._skip, self._written = self._parts[taken:], skip, self._written + rows


class MillisecondIndex:
    """Element k is the number of the first event, in file order, at ``start + 1000 * k`` µs or later.

    This is DSEC's ``ms_to_idx``, for times in any order: each element is as small as it can be. It ends with
    the millisecond of the largest time. Its attributes ``events`` and ``backward_steps`` are how many events
    it is of, and how many of them have a time below that of the event before: where there are none, times can
    be looked for in the column itself.
    """

    def __init__(self, group: Any, compression: str | None) -> None:
        self._dataset = group.create_dataset(
            "ms_to_idx", shape=(0,), maxshape=(None,), chunks=(CHUNK,), dtype="<u8", **_filters(compression)
        )
        self._full: list[NDArray[np.uint64]] = []
        self._waiting = 0
        #: Elements so far, and events so far.
        self.entries = 0
        self._events = 0
        self._steps, self._last = 0, -(1 << 63)

    def append(self, times: NDArray[np.int64]) -> None:
        """Go on with events at these times, counted from the start. Negative ones are before it."""
        if not len(times):
            return
        self._steps += int(times[0] < self._last) + int(np.count_nonzero(times[1:] < times[:-1]))
        self._last = int(times[-1])
        # What is before the start is just as early as it.
        times = np.maximum(times, 0)
        latest = np.maximum.accumulate(times)
        end = max(int(latest[-1]) // 1000 + 1, self.entries)
        for first in range(self.entries, end, CHUNK):
            marks = np.arange(first, min(first + CHUNK, end), dtype=np.int64) * 1000
            found = np.searchsorted(latest, marks) + self._events
            self._add(found.astype(np.uint64))
        self.entries = end
        self._events += len(times)

    def _add(self, found: NDArray[np.uint64]) -> None:
        self._full.append(found)
        self._waiting += len(found)
        if self._waiting >= CHUNK:
            joined = np.concatenate(self._full)
            whole = len(joined) // CHUNK * CHUNK
            self._extend(joined[:whole])
            self._full, self._waiting = [joined[whole:]], len(joined) - whole

    def _extend(self, found: NDArray[np.uint64]) -> None:
        start = self._dataset.shape[0]
        self._dataset.resize((start + len(found),))
        self._dataset[start:] = found

    def finish(self) -> None:
        if self._waiting:
            self._extend(np.concatenate(self._full))
            self._full, self._waiting = [], 0
        self._dataset.attrs["events"] = np.int64(self._events)
        self._dataset.attrs["backward_steps"] = np.int64(self._steps)


def write_dsec(
    h5py: ModuleType,
    file: Any,
    batches: Iterable[EventArray],
    *,
    sensor_size: tuple[int, int],
    compression: str | None,
    t_offset: int | None,
) -> None:
    """Fill an open h5py file as DSEC's are: ``events/{t,x,y,p}``, ``t_offset``, ``ms_to_idx``."""
    group = file.create_group("events")
    set_geometry(group, sensor_size)
    events = EventsGroup(h5py, group, compression, times="<u4")
    index = MillisecondIndex(file, compression)
    splitter = _core.EventSplitter()
    for batch in batches:
        t, x, y, p = splitter.split(batch)
        if not len(t):
            continue
        if t_offset is None:
            t_offset = int(t[0])
        since = t.view(np.int64) - np.int64(t_offset)
        outside = (since < 0) | (since >= 1 << 32)
        if outside.any():
            row = int(np.argmax(outside))
            raise ValueError(
                f"event {events.events + row}: t is {int(t[row])}; with t_offset={t_offset} "
                f"DSEC's layout holds times from {t_offset} to {t_offset + (1 << 32) - 1}"
            )
        events.append((since.astype(np.uint32), x, y, p))
        index.append(since)
        events.write_chunks()
    events.finish()
    index.finish()
    file.create_dataset("t_offset", data=np.int64(t_offset or 0))


def set_geometry(group: Any, sensor_size: tuple[int, int]) -> None:
    group.attrs["sensor_width"], group.attrs["sensor_height"] = (np.int64(side) for side in sensor_size)


def create(h5py: ModuleType, draft: Draft) -> Any:
    """A new h5py file in place of a draft's empty one."""
    try:
        return h5py.File(draft.path, "w", libver=("earliest", "v110"))
    except BaseException:
        draft.discard()
        raise
