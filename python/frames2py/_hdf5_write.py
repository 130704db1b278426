"""HDF5 files of events, written chunk by chunk under a hidden name and moved into place when they are complete."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._events import EventArray
from ._hdf5 import BLOSC

__all__ = [
    "CHUNK",
    "Columns",
    "Draft",
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


class Draft:
    """A file in the making: hidden beside its target, and moved onto it at the end."""

    def __init__(self, path: str, *, overwrite: bool) -> None:
        self.target = os.path.abspath(path)
        if os.path.isdir(self.target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.target)
        folder, name = os.path.split(self.target)
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, "the folder does not exist", folder)
        self._overwrite = overwrite
        self._refuse_existing("pass overwrite=True to replace the file that is there")
        self.path = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.partial")
        # The rights of a new file are as the process wants them; h5py goes on with it.
        os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))

    def _refuse_existing(self, advice: str) -> None:
        if not self._overwrite and os.path.lexists(self.target):
            raise FileExistsError(errno.EEXIST, advice, self.target)

    def publish(self) -> None:
        """Move the file onto its target.

        Raises:
            FileExistsError: a file has appeared there that must not be replaced. The draft is then left where it is, and
                the message says where.
        """
        advice = f"a file appeared here meanwhile; what was written is in {self.path}"
        self._refuse_existing(advice)
        if self._overwrite:
            os.replace(self.path, self.target)
            return
        try:
            os.link(self.path, self.target)  # unlike a rename, never onto what appears in this very moment
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, advice, self.target) from None
        except (OSError, NotImplementedError):  # a file system without hard links
            os.replace(self.path, self.target)
        else:
            os.unlink(self.path)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path)


class EventsGroup:
    """The datasets t, x, y and p of a group, filled in whole chunks, so that how events came in leaves no trace.

    What was appended stays, whatever interrupts: a chunk is forgotten when all of its four parts are written, and else
    written again.
    """

    def __init__(self, group: Any, compression: str | None, *, times: str = "<u8") -> None:
        self._datasets = [
            group.create_dataset(
                name, shape=(0,), maxshape=(None,), chunks=(CHUNK,), dtype=dtype, **_filters(compression)
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
        for dataset in self._datasets:
            if dataset.shape[0] != self._written:
                dataset.resize((self._written,))

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
        end = self._written + rows
        for i, dataset in enumerate(self._datasets):
            column = pieces[0][i] if len(pieces) == 1 else np.concatenate([piece[i] for piece in pieces])
            dataset.resize((end,))
            dataset[end - rows : end] = column
        self._parts, self._skip, self._written = self._parts[taken:], skip, end


class MillisecondIndex:
    """A dataset whose element k is the number of the first event, in file order, at ``start + 1000 * k`` µs or later.

    This is DSEC's ``ms_to_idx``, for times in any order: each element is as small as it can be. It ends with the
    millisecond of the largest time.
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

    def append(self, times: NDArray[np.int64]) -> None:
        """Go on with events at these times, counted from the start. Negative ones are before it."""
        if not len(times):
            return
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


def write_dsec(
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
    events = EventsGroup(group, compression, times="<u4")
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
                f"event {events.events + row}: t is {int(t[row])}; with t_offset={t_offset} DSEC's layout holds "
                f"times from {t_offset} to {t_offset + (1 << 32) - 1}"
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
