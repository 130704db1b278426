"""Recording events to HDF5, live. Needs the extra ``frames2py[recorder]``."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._events import EventArray
from ._files import Draft
from ._hdf5 import backend
from ._hdf5_write import (
    EventsGroup,
    MillisecondIndex,
    check_compression,
    create,
    set_geometry,
    write_dsec,
)
from .adapters._reader import PathArg, check_sensor_size

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Recorder", "open", "write_hdf5"]

# The longest recording that write_hdf5 makes an index for: its index has 86,400,000 elements.
_INDEXED_MS = 24 * 60 * 60 * 1000


def open(  # noqa: A001 - as adapters' are called
    path: PathArg,
    *,
    sensor_size: tuple[int, int],
    group: str = "events",
    compression: str | None = "blosc",
    overwrite: bool = False,
) -> Recorder:
    """Start a recording.

    The file holds, in ``group``, the 1-D datasets ``t`` (uint64, µs), ``x`` and ``y`` (uint16) and ``p``
    (uint8), in chunks of 65,536, and the group has the int64 attributes ``sensor_width``, ``sensor_height``
    and ``frames2py_format_version`` (1). Its bytes depend on the events and these arguments only, not on how
    the events were cut into calls. ``frames2py.adapters.hdf5.open(path, group=group)`` reads it, and so does
    h5py by itself (with ``import hdf5plugin`` for Blosc).

    Events are written to a hidden file beside ``path``, which is moved there when the recorder is closed.

    Args:
        path: the file.
        sensor_size: ``(width, height)`` in pixels. Events beyond it are recorded as they are.
        group: the group's path in the file; ``"/"`` is the file's root.
        compression: ``"blosc"`` (LZ4, level 5, shuffle), ``"gzip"`` (level 4, shuffle) or ``None``.
        overwrite: whether a file at ``path`` may be replaced.

    Raises:
        ImportError: h5py or hdf5plugin is not installed.
        FileExistsError: a file is there, and ``overwrite`` is false.
        FileNotFoundError: the folder does not exist.
        IsADirectoryError: ``path`` is a directory.
        OSError: the file cannot be made.
        TypeError: an argument of a wrong type.
        ValueError: a ``sensor_size`` that is no size, a ``group`` that is no path, an unknown
            ``compression``.
    """
    return Recorder(
        os.fsdecode(path),
        sensor_size=_check_size(sensor_size),
        group=_check_group(group),
        compression=check_compression(compression),
        overwrite=_check_flag(overwrite),
    )


class Recorder:
    """A recording under way; made by :func:`open`. Threads may share it: each call is recorded whole.

    As a context manager it is closed when the block ends, also by an exception: the file then holds what was
    written up to there.
    """

    __slots__ = ("__weakref__", "_closed", "_draft", "_events", "_file", "_lock", "_splitter")

    def __init__(
        self,
        path: str,
        *,
        sensor_size: tuple[int, int],
        group: str,
        compression: str | None,
        overwrite: bool,
    ) -> None:
        h5py = backend("frames2py.recorder", "recorder")
        self._splitter = _core.EventSplitter()
        self._lock = threading.RLock()
        self._closed = False
        self._draft = Draft(path, overwrite=overwrite)
        self._file = create(h5py, self._draft)
        try:
            self._events = _recorders_group(h5py, self._file, group, sensor_size, compression)[1]
        except BaseException as error:
            self._abandon()
            if isinstance(error, ValueError):
                raise ValueError(f"group {group!r} cannot be made: {error}") from error
            raise

    def write(self, events: EventArray) -> None:
        """Record events: all of them, or none if the call raises for what they are.

        Args:
            events: an array as ``Engine.ingest()`` takes it: 1-D, C-contiguous, with the fields of
                :data:`frames2py.EVENT_DTYPE`. It is copied.

        Raises:
            TypeError: no such array.
            ValueError: a time of 2**63 or more; the recorder is closed.
            OSError: the file cannot be written. The events are kept, and closing tries again.
        """
        if self._closed:
            raise ValueError("the recorder is closed")
        columns = self._splitter.split(events)
        with self._lock:
            if self._closed:
                raise ValueError("the recorder is closed")
            self._events.append(columns)
            self._events.write_chunks()

    def close(self) -> None:
        """Finish the file and move it to its place. Closing again does nothing.

        Raises:
            FileExistsError: a file has appeared there, and ``overwrite`` is false. It stays as it is, and the
                recording stays under its hidden name, which the message tells.
            OSError: the file cannot be finished. The hidden file is removed, and what was at its place stays.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._events.finish()
                self._file.close()
                self._draft.publish(kept=True)
            except FileExistsError:
                raise
            except BaseException:
                self._abandon()
                raise

    def _abandon(self) -> None:
        with contextlib.suppress(Exception):  # it is given up, and what is wrong with it was said
            self._file.close()
        self._draft.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<{state} recorder of {self._draft.target!r}, {self._events.events} events>"


def write_hdf5(
    path: PathArg,
    batches: Iterable[EventArray],
    *,
    sensor_size: tuple[int, int],
    layout: str = "recorder",
    compression: str | None = "blosc",
    overwrite: bool = False,
    t_offset: int | None = None,
) -> None:
    """Write events to an HDF5 file, with an index by milliseconds. ``frames2py.save`` calls this.

    The file appears when it is complete; whatever goes wrong before leaves nothing behind.

    Args:
        path: the file.
        batches: arrays of events, written in order.
        sensor_size: ``(width, height)`` in pixels, stated in attributes.
        layout: ``"recorder"``: as :func:`open` makes it, and beside the columns ``ms_to_idx``, whose
            attribute ``t_offset`` is the time of the first event: element k is the number of the first event,
            in file order, whose time is ``t_offset + 1000 * k`` µs or later. Its attributes ``events`` and
            ``backward_steps`` count the events, and those whose time is below that of the event before.
            Recordings that span more than a day go without. ``"dsec"``: as the DSEC dataset has it
            (https://dsec.ifi.uzh.ch/data-format/): ``events/{t,x,y,p}`` with times as uint32 from
            ``/t_offset`` on, and ``/ms_to_idx`` in the same sense as above, with the same two attributes.
        compression: as for :func:`open`.
        overwrite: whether a file at ``path`` may be replaced.
        t_offset: in DSEC's layout, what times are counted from; ``None`` is the first event's time.

    Raises:
        ImportError: h5py or hdf5plugin is not installed.
        FileExistsError: a file is there, and ``overwrite`` is false; looked at before and after writing.
        TypeError: an array that is no array of events; an argument of a wrong type.
        ValueError: a time of 2**63 or more, or one that DSEC's layout does not hold: below ``t_offset``, or
            2**32 µs (71 minutes) or more after it; an unknown ``layout`` or ``compression``.
        OSError: the file cannot be written.
    """
    size, flag, chosen = _check_size(sensor_size), _check_flag(overwrite), check_compression(compression)
    if layout not in ("recorder", "dsec"):
        raise ValueError(f"layout must be 'recorder' or 'dsec', got {layout!r}")
    h5py = backend("frames2py.recorder", "recorder")
    draft = Draft(os.fsdecode(path), overwrite=flag)
    file = create(h5py, draft)
    try:
        with file:
            if layout == "dsec":
                write_dsec(h5py, file, batches, sensor_size=size, compression=chosen, t_offset=t_offset)
            else:
                _write_recorders(h5py, file, batches, size, chosen)
        draft.publish()
    except BaseException:
        draft.discard()
        raise


def _write_recorders(
    h5py: ModuleType, file: Any, batches: Iterable[EventArray], size: tuple[int, int], compression: str | None
) -> None:
    group, events = _recorders_group(h5py, file, "events", size, compression)
    splitter = _core.EventSplitter()
    index: MillisecondIndex | None = MillisecondIndex(group, compression)
    start: int | None = None
    for batch in batches:
        columns = splitter.split(batch)
        times = columns[0].view(np.int64)
        if not len(times):
            continue
        if start is None:
            start = int(times[0])
        events.append(columns)
        if index is not None:
            since = times - np.int64(start)
            if int(since.max()) // 1000 < _INDEXED_MS:
                index.append(since)
            else:
                index = None
                del group["ms_to_idx"]
        events.write_chunks()
    events.finish()
    if index is not None:
        index.finish()
        group["ms_to_idx"].attrs["t_offset"] = np.int64(start or 0)


def _recorders_group(
    h5py: ModuleType, file: Any, group: str, size: tuple[int, int], compression: str | None
) -> tuple[Any, EventsGroup]:
    made = file.require_group(group)
    set_geometry(made, size)
    made.attrs["frames2py_format_version"] = np.int64(1)
    return made, EventsGroup(h5py, made, compression)


def _check_size(sensor_size: object) -> tuple[int, int]:
    size = check_sensor_size(sensor_size)
    if max(size) >= 2**63:
        raise ValueError(f"sensor_size must be below 2**63, got {size}")
    return size


def _check_group(group: object) -> str:
    if not isinstance(group, str):
        raise TypeError(f"group must be a str, got {type(group).__name__}")
    if not group or "\0" in group:
        raise ValueError(f"group must be the path of a group, '/' for the root, got {group!r}")
    if any(part == "." for part in group.split("/")):
        raise ValueError(f"group must not have '.' in its path, got {group!r}")
    return group


def _check_flag(overwrite: object) -> bool:
    if not isinstance(overwrite, (bool, np.bool_)):
        raise TypeError(f"overwrite must be a bool, got {overwrite!r} of type {type(overwrite).__name__}")
    return bool(overwrite)
