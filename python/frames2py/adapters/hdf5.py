"""Events in HDF5 files, in the layouts that are in use. Needs the extra ``frames2py[hdf5]``."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
import operator
import os
import re
import struct
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._events import EVENT_DTYPE, TRIGGER_DTYPE, EventArray
from .._hdf5 import BLOSC, ECF, MAX_CHUNK, Closed, File, backend, filters_missing
from ._reader import PathArg, Reader, check_batch_size, check_sensor_size
from ._rows import Cursor, Index, RowSource, Stale

__all__ = ["open", "open_any"]

_Size = tuple[int, int]
# Events, and what is wrong with the row after them.
_Read = tuple[EventArray, str | None]
# Packed events, how often time steps back and where first, and the column, the row and the value of a fault.
_Packed = tuple[NDArray[np.uint8], int, int | None, tuple[int, int, int] | None]
_NAMES = ("t", "x", "y", "p")
_RANGES = {"t": "[0, 2**63)", "x": "[0, 65535]", "y": "[0, 65535]", "p": "[0, 255]"}
# Rows read at a time: enough that calls cost nothing, few enough to stay in the caches.
_ROWS = 1 << 17
# A chunk of this size is cached by HDF5 as it comes.
_CACHED = 1 << 20
# What a cursor goes on from: the time of the event before.
_STATE = struct.Struct("<Q")
# How much of a file is looked at for groups of events.
_MAX_DEPTH, _MAX_OBJECTS = 8, 10_000


def open(  # noqa: A001 - every adapter's function has this name
    path: PathArg,
    *,
    group: str,
    t_offset: int | str | None = None,
    sensor_size: _Size | None = None,
    batch_size: int | None = None,
) -> Reader:
    """Open the four datasets ``t``, ``x``, ``y`` and ``p`` of one group of an HDF5 file.

    Args:
        path: the file.
        group: the group that holds the datasets, as ``"events"``. They are 1-D, of one length, and of any
            integer type; ``p`` may also be bool. Values are copied exactly or refused.
        t_offset: what is added to every time, in µs: an int, or the path of a scalar integer dataset in the
            file, as ``"/t_offset"`` in DSEC's. Nothing is added unless this is passed.
        sensor_size: ``(width, height)`` in pixels. Where the group states a geometry (its attributes
            ``sensor_width`` and ``sensor_height``, as :mod:`frames2py.recorder` writes them), it must be the
            same. Else it only becomes the reader's ``sensor_size``.
        batch_size: events per yielded array, all but the last; ``None`` leaves it to the reader.

    Returns:
        A :class:`~frames2py.adapters.Reader`. Its ``sensor_size`` is ``None`` where nobody states one.

    Raises:
        ImportError: h5py or hdf5plugin is not installed.
        FileNotFoundError, IsADirectoryError, OSError: the file cannot be opened.
        TypeError: an argument of a wrong type.
        ValueError: no HDF5 file; no such group or no such datasets in it; a format version that is not 1;
            another ``sensor_size`` than the group's; ``batch_size`` below 1. Also by iteration: a value
            outside its range (``t + t_offset`` in ``[0, 2**63)``, ``x`` and ``y`` in ``[0, 65535]``, ``p`` in
            ``[0, 255]``), by its row; a filter that is missing; data that is corrupt. The events before have
            been yielded by then.
    """
    limit = check_batch_size(batch_size)
    given = None if sensor_size is None else check_sensor_size(sensor_size)
    if not isinstance(group, str):
        raise TypeError(f"group must be a str, got {type(group).__name__}")
    offset = _check_offset(t_offset)
    file = _open_file(path)
    try:
        found = _columns_at(file, group)
        return _reader(file, dataclasses.replace(found, t_offset=offset), given, limit)
    except BaseException:
        file.close()
        raise


def open_any(
    path: PathArg,
    *,
    group: str | None = None,
    t_offset: int | str | None = None,
    sensor_size: _Size | None = None,
    batch_size: int | None = None,
    strict: bool = False,
    triggers: bool = False,
) -> Reader:
    """Open the events of an HDF5 file whose layout is recognised. ``frames2py.open`` calls this.

    Recognised are:

    - Prophesee's files: the table ``/CD/events``, in the codec ECF, which is decoded here, without a plugin
      for it. The geometry is in the file's attribute ``geometry``; triggers are in ``/EXT_TRIGGER/events``.
    - groups of four datasets ``t``, ``x``, ``y`` and ``p``, wherever in the file, if there is one only or if
      ``group`` names it: DSEC's ``events`` (the scalar ``/t_offset`` beside it is added), M3ED's
      ``prophesee/left`` (the geometry is in ``calib/resolution``), a recorder's, anybody's.
    - one table of events: a 1-D dataset with fields ``t``, ``x``, ``y``, ``p``, or a 2-D one with these four
      columns, of integers or of floats that are all whole.

    Args:
        path: the file.
        group: the group, or the table, that holds the events; needed where there are several.
        t_offset: as for :func:`open`, and instead of what the layout says: 0 leaves times as they are stored.
        sensor_size: ``(width, height)`` in pixels; must be the same as in the file where that states one.
        batch_size: events per yielded array, all but the last; ``None`` leaves it to the reader.
        strict: also stop with an error at the first event whose time is below that of the event before it.
        triggers: collect external triggers, for ``take_triggers()``. They are stored apart from events, so
            the first call returns them all.

    Returns:
        A :class:`~frames2py.adapters.Reader`, whose ``format`` says which layout was found.

    Raises:
        As :func:`open`; ValueError also where no layout is recognised, or where several groups hold events.
    """
    limit = check_batch_size(batch_size)
    given = None if sensor_size is None else check_sensor_size(sensor_size)
    if group is not None and not isinstance(group, str):
        raise TypeError(f"group must be a str or None, got {type(group).__name__}")
    for name, flag in (("strict", strict), ("triggers", triggers)):
        if not isinstance(flag, (bool, np.bool_)):
            raise TypeError(f"{name} must be a bool, got {flag!r} of type {type(flag).__name__}")
    offset = _check_offset(t_offset)
    file = _open_file(path)
    try:
        found = _layout(file, group)
        if offset is not None:
            found = dataclasses.replace(found, t_offset=offset)
        return _reader(file, found, given, limit, strict=bool(strict), triggers=bool(triggers))
    except BaseException:
        file.close()
        raise


def _open_file(path: PathArg) -> File:
    return File(os.fsdecode(path), backend("frames2py.adapters.hdf5", "hdf5"))


def _check_offset(t_offset: object) -> int | str | None:
    if t_offset is None or isinstance(t_offset, str):
        return t_offset
    if isinstance(t_offset, (bool, np.bool_)) or not isinstance(t_offset, SupportsIndex):
        raise TypeError(
            f"t_offset must be an int, the path of a dataset, or None, got {t_offset!r} of type "
            f"{type(t_offset).__name__}"
        )
    return operator.index(t_offset)


# What is in a file


class _Data:
    """A dataset, and what is asked of it again and again."""

    __slots__ = ("chunk", "dtype", "filters", "id", "row_bytes", "rows")

    def __init__(self, file: File, found: Any, path: str) -> None:
        self.id = found
        shape = found.shape
        kind = found.get_type()
        self.rows = int(shape[0])
        self.dtype: np.dtype[Any] = kind.dtype
        width = int(shape[1]) if len(shape) == 2 else 1
        size = int(kind.get_size())
        self.row_bytes = width * size
        pipeline = found.get_create_plist()
        self.filters = [pipeline.get_filter(i)[0] for i in range(pipeline.get_nfilters())]
        #: Rows of a chunk; 1 where there are none.
        self.chunk = 1
        if pipeline.get_layout() == file.h5py.h5d.CHUNKED:
            chunk = pipeline.get_chunk()
            self.chunk = int(chunk[0])
            chunk_bytes = math.prod(int(side) for side in chunk) * size
            if chunk_bytes > MAX_CHUNK:
                raise ValueError(
                    f"dataset {path!r} has chunks of {chunk_bytes} bytes; at most {MAX_CHUNK} are read"
                )
            if chunk_bytes > _CACHED:
                # Room for a chunk, so that it is decompressed once, and not for every read that it spans.
                access = file.h5py.h5p.create(file.h5py.h5p.DATASET_ACCESS)
                access.set_chunk_cache(521, chunk_bytes, 1.0)
                self.id = file.h5py.h5d.open(file.id, _encoded(path), access)

    def read(self, file: File, start: int, out: NDArray[Any]) -> None:
        """Fill ``out`` with the rows from ``start`` on."""
        h5s = file.h5py.h5s
        if start == 0 and len(out) == self.rows:
            self.id.read(h5s.ALL, h5s.ALL, out)
            return
        space = self.id.get_space()
        space.select_hyperslab((start, *(0 for _ in out.shape[1:])), out.shape)
        self.id.read(h5s.create_simple(out.shape), space, out)


@dataclasses.dataclass(frozen=True)
class _Found:
    """Events in a file, and how they lie there."""

    format: str
    where: str
    #: One dataset, or the four of the columns.
    datasets: tuple[_Data, ...]
    #: (file, start, rows) to the four columns.
    columns: Callable[[File, int, int], list[NDArray[Any]]]
    t_offset: int | str | None = None
    geometry: _Size | None = None
    #: Whether a geometry is part of the layout.
    has_geometry: bool = False
    triggers: Any = None
    ecf: bool = False
    #: An index by milliseconds of stored times.
    ms_to_idx: Any = None

    @functools.cached_property
    def is_blosc(self) -> bool:
        """Whether these are columns that Blosc compressed, chunk by chunk alike."""
        first = self.datasets[0]
        return len(self.datasets) == 4 and all(
            dataset.filters == [BLOSC]
            and dataset.chunk == first.chunk
            and dataset.dtype.isnative
            and not dataset.dtype.metadata
            for dataset in self.datasets
        )


def _object(file: File, path: str) -> Any:
    """What is at a path of the file, or None."""
    if not path or "\0" in path:
        return None
    try:
        return file.h5py.h5o.open(file.id, _encoded(path))
    except (KeyError, OSError, RuntimeError, ValueError):
        return None


def _encoded(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _is_dataset(file: File, found: Any) -> bool:
    return isinstance(found, file.h5py.h5d.DatasetID)


def _member(file: File, group: str, name: str) -> Any:
    return _object(file, f"{group.rstrip('/')}/{name}")


def _shown(group: str, name: str) -> str:
    return f"/{group.strip('/')}/{name}" if group.strip("/") else f"/{name}"


def _columns_at(file: File, group: str) -> _Found:
    """The four datasets of a group, checked."""
    with file.use(f"opening group {group!r}"):
        found = _object(file, group)
        if not isinstance(found, file.h5py.h5g.GroupID):
            raise ValueError(f"{group!r} is not a group in the file")
        attributes = _attributes(file, found)
        is_recorders = _check_version(group, attributes)
        datasets = []
        for name in _NAMES:
            dataset = _member(file, group, name)
            if not _is_dataset(file, dataset):
                raise ValueError(f"group {group!r} has no dataset {name!r}")
            datasets.append(_column(file, dataset, _shown(group, name), may_be_bool=name == "p"))
        lengths = {name: dataset.rows for name, dataset in zip(_NAMES, datasets, strict=True)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the datasets of group {group!r} have different lengths: {lengths}")
        geometry = _geometry_of_group(group, attributes, is_recorders)
        return _Found(
            "HDF5 of the recorder" if is_recorders else "HDF5",
            f"group {group!r}",
            tuple(datasets),
            functools.partial(_read_columns, datasets),
            geometry=geometry,
            ms_to_idx=_member(file, group, "ms_to_idx") if is_recorders else None,
        )


def _column(file: File, dataset: Any, name: str, *, may_be_bool: bool) -> _Data:
    shape = dataset.shape
    if shape is None or len(shape) != 1:
        raise ValueError(f"dataset {name!r} must be 1-D, got shape {shape}")
    data = _Data(file, dataset, name)
    if data.dtype.kind not in "iu" and not (may_be_bool and data.dtype.kind == "b"):
        expected = "integers or bool" if may_be_bool else "integers"
        raise ValueError(f"dataset {name!r} must hold {expected}, got {data.dtype}")
    return data


def _attributes(file: File, found: Any) -> Any:
    h5py: ModuleType = file.h5py
    # Most groups have none; to look each up takes longer than to count them.
    return h5py.Group(found).attrs if h5py.h5a.get_num_attrs(found) else {}


def _integer_attribute(value: object) -> int | None:
    """The value of a scalar attribute of integers that are no bools."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        return None
    return int(value)


def _check_version(group: str, attributes: Any) -> bool:
    """Whether the group says that it is a recorder's."""
    if "frames2py_format_version" not in attributes:
        return False
    version = attributes["frames2py_format_version"]
    if _integer_attribute(version) != 1:
        raise ValueError(
            f"group {group!r} has frames2py_format_version {version!r}; the integer 1 is the only one known"
        )
    return True


def _geometry_of_group(group: str, attributes: Any, is_recorders: bool) -> _Size | None:
    names = ("sensor_width", "sensor_height")
    if not all(name in attributes for name in names):
        return None
    width, height = (_integer_attribute(attributes[name]) for name in names)
    if width is not None and height is not None and min(width, height) > 0:
        return width, height
    if is_recorders:
        stated = tuple(attributes[name] for name in names)
        raise ValueError(f"group {group!r} states sensor_width and sensor_height that are no size: {stated}")
    return None


def _layout(file: File, group: str | None) -> _Found:
    """What ``open_any`` finds."""
    with file.use("looking for events"):
        if group is None:
            if (found := _prophesee(file)) is not None:
                return found
            groups, tables = _search(file)
            places = groups or tables
            if not places:
                raise ValueError(
                    "no events found in the HDF5 file: neither a group with the datasets t, x, y and p, "
                    "nor a table of them"
                )
            if len(places) > 1:
                raise ValueError(
                    f"the HDF5 file holds events in several places; pass group=, one of {', '.join(places)}"
                )
            group = places[0]
        elif group.strip("/") in ("CD", "CD/events") and (found := _prophesee(file)) is not None:
            return found
        at = _object(file, group)
        if _is_dataset(file, at):
            return _table_at(file, group, at)
    return _dressed(file, group)


def _search(file: File) -> tuple[list[str], list[str]]:
    """The groups of t, x, y and p, and the tables of events, by name. Links are not followed."""
    h5py: ModuleType = file.h5py
    groups, tables = [], []
    seen, left = 0, [("/", 0)]
    while left:
        path, depth = left.pop()
        members = {}
        group = h5py.h5g.open(file.id, path.encode("utf-8", "surrogateescape"))
        for raw in group:
            seen += 1
            if seen > _MAX_OBJECTS:
                raise ValueError(
                    f"the HDF5 file holds more than {_MAX_OBJECTS} objects; pass group= for the events"
                )
            if group.links.get_info(raw).type != h5py.h5l.TYPE_HARD:
                continue
            name = raw.decode("utf-8", "surrogateescape")
            members[name] = h5py.h5o.open(group, raw)
        prefix = path.rstrip("/")
        if all(_is_dataset(file, members.get(name)) for name in _NAMES):
            groups.append(path)
        else:
            tables += [f"{prefix}/{name}" for name, found in members.items() if _is_table(file, found)]
        if depth < _MAX_DEPTH:
            inner = [name for name, found in members.items() if isinstance(found, h5py.h5g.GroupID)]
            left += [(f"{prefix}/{name}", depth + 1) for name in inner]
    return sorted(groups), sorted(tables)


def _is_table(file: File, found: Any) -> bool:
    if not _is_dataset(file, found):
        return False
    try:
        shape, dtype = found.shape, found.dtype
    except TypeError:  # no NumPy equivalent
        return False
    if shape is None:
        return False
    if dtype.names is not None:
        return len(shape) == 1 and set(_NAMES) <= set(dtype.names)
    return len(shape) == 2 and shape[1] == 4 and dtype.kind in "iuf"


def _dressed(file: File, group: str) -> _Found:
    """The columns of a group, with what its surroundings tell about them."""
    found = _columns_at(file, group)
    with file.use(f"looking around group {group!r}"):
        offset = _object(file, "/t_offset")
        resolution = _member(file, group, "calib/resolution")
        if group.strip("/") == "events" and _is_dataset(file, offset) and offset.shape == ():
            index = _object(file, "/ms_to_idx")
            found = dataclasses.replace(found, format="HDF5 of DSEC", t_offset="/t_offset", ms_to_idx=index)
        elif _is_dataset(file, resolution) and found.geometry is None:
            shape, dtype = resolution.shape, resolution.dtype
            if shape == (2,) and dtype.kind in "iu":
                size = np.empty(2, dtype)
                resolution.read(file.h5py.h5s.ALL, file.h5py.h5s.ALL, size)
                width, height = (int(side) for side in size)
                if min(width, height) > 0:
                    found = dataclasses.replace(found, format="HDF5 of M3ED", geometry=(width, height))
    return found


def _table_at(file: File, path: str, dataset: Any) -> _Found:
    """A table of events, checked."""
    if not _is_table(file, dataset):
        raise ValueError(
            f"dataset {path!r} is no table of events: those are 1-D with fields t, x, y and p, or 2-D "
            f"with four columns; got shape {dataset.shape} of {dataset.dtype}"
        )
    table = _Data(file, dataset, path)
    dtype = table.dtype
    if dtype.names is not None:
        for name in _NAMES:
            field = dtype[name]
            if field.kind not in ("iub" if name == "p" else "iu"):
                raise ValueError(f"field {name!r} of dataset {path!r} must hold integers, got {field}")
    return _Found("HDF5 table", f"dataset {path!r}", (table,), functools.partial(_read_table, table))


def _prophesee(file: File) -> _Found | None:
    """Prophesee's layout, if it is that."""
    dataset = _object(file, "/CD/events")
    if not _is_table(file, dataset) or dataset.dtype.names is None:
        return None
    found = _table_at(file, "/CD/events", dataset)
    attributes = _attributes(file, file.h5py.h5g.open(file.id, b"/"))
    geometry = None
    if "geometry" in attributes:
        text = attributes["geometry"]
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        match = re.fullmatch(r"\s*(\d{1,9})\s*x\s*(\d{1,9})\s*", text, re.ASCII)
        if match is None or min(int(match[1]), int(match[2])) < 1:
            raise ValueError(f"the file's attribute geometry must be WIDTHxHEIGHT, got {text!r}")
        geometry = int(match[1]), int(match[2])
    triggers = _object(file, "/EXT_TRIGGER/events")
    return dataclasses.replace(
        found,
        format="HDF5 of Prophesee",
        geometry=geometry,
        has_geometry=True,
        triggers=triggers if _is_dataset(file, triggers) else None,
        ecf=found.datasets[0].filters == [ECF],
    )


# Reading


def _reader(
    file: File,
    found: _Found,
    given: _Size | None,
    limit: int | None,
    *,
    strict: bool = False,
    triggers: bool = False,
) -> Reader:
    size = found.geometry
    if size is None:
        if given is None and found.has_geometry:
            raise ValueError(f"the {found.format} file states no geometry; pass sensor_size=(width, height)")
        size = given
    elif given is not None and given != size:
        raise ValueError(f"sensor_size is {given}, but {found.where} states the geometry {size}")
    offset = _offset_of(file, found.t_offset)
    source = _Source(_Table(file, found, offset, strict), triggers)
    return Reader(source, format=found.format, sensor_size=size, batch_size=limit)


def _offset_of(file: File, t_offset: int | str | None) -> int:
    if not isinstance(t_offset, str):
        return t_offset or 0
    with file.use(f"reading {t_offset!r}"):
        dataset = _object(file, t_offset)
        if not _is_dataset(file, dataset) or dataset.shape != () or dataset.dtype.kind not in "iu":
            raise ValueError(f"t_offset {t_offset!r} is not a scalar integer dataset in the file")
        value = np.empty((), _plain(dataset.dtype))
        dataset.read(file.h5py.h5s.ALL, file.h5py.h5s.ALL, value)
        return int(value)


class _CannotRead(Exception):
    """Some rows cannot be read together."""


class _Source(RowSource):
    """Events in an open file."""

    def __init__(self, table: _Table, triggers: bool) -> None:
        super().__init__(table)
        self._file = table.file
        self._triggers = [table.found.triggers] if triggers else None

    def take_triggers(self) -> EventArray:
        if self._triggers is None:
            return super().take_triggers()
        table = self._triggers.pop() if self._triggers else None
        return np.empty(0, TRIGGER_DTYPE) if table is None else _read_triggers(self._file, table)


class _Table:
    """The rows of a file that hold events."""

    def __init__(self, file: File, found: _Found, offset: int, strict: bool) -> None:
        self.file, self.found = file, found
        self.offset, self._strict = offset, strict
        self.path = file.path
        self.of = f"{found.format} {found.where} {offset}"
        self.rows = found.datasets[0].rows
        chunk = max(dataset.chunk for dataset in found.datasets)
        if found.ecf:
            self.step = chunk
        else:
            # Whole chunks, so that none is decompressed twice. Of Blosc's so many that two threads have
            # something to do, also where a chunk is all of the rows.
            rows = 2 * _ROWS if found.is_blosc else _ROWS
            step = max(rows // chunk, 1) * chunk if chunk > 1 else rows
            self.step = min(step, max(rows, 1 << 20))

    def cursor(
        self, row: int = 0, state: bytes = b"", *, lenient: bool = False, sound: bool = False
    ) -> Cursor:
        if len(state) not in (0, _STATE.size):
            raise Stale
        last = _STATE.unpack(state)[0] if state else 0
        return _Cursor(self.file, self.found, self.offset, self._strict and not lenient, row, last)

    def known_index(self) -> Index | None:
        """Where the file says that times never step back, and nothing else can be wrong with a row."""
        datasets = self.found.datasets
        if not self.rows or len(datasets) != 4 or not self._says_sorted():
            return None
        if any(dataset.dtype.name not in ("bool", "uint8", "uint16") for dataset in datasets[1:3]):
            return None
        if datasets[3].dtype.name not in ("bool", "uint8"):
            return None
        index = _InOrder(self)
        _, earliest, latest = index.totals()
        return index if 0 <= earliest <= latest < 1 << 63 else None

    def _says_sorted(self) -> bool:
        """Whether there is an index by milliseconds that says so of that many events."""
        found, file = self.found.ms_to_idx, self.file
        if not _is_dataset(file, found):
            return False
        with file.use("looking at ms_to_idx"):
            attributes = file.h5py.Dataset(found).attrs
            steps, events = (
                _integer_attribute(attributes.get(name)) for name in ("backward_steps", "events")
            )
        return (steps, events) == (0, self.rows)

    def time(self, row: int) -> int:
        """The time of one event."""
        found = self.found
        with self.file.use(f"reading the time of event {row} of {found.where}"):
            dtype = found.datasets[0].dtype
            out = np.empty(1, dtype if dtype.metadata else dtype.newbyteorder("="))
            found.datasets[0].read(self.file, row, out)
        return int(out[0]) + self.offset

    def close(self) -> None:
        self.file.close()


class _InOrder:
    """An index of times in order: the column of times itself."""

    def __init__(self, table: _Table) -> None:
        self._table = table
        self._totals = (table.rows, table.time(0), table.time(table.rows - 1))

    def totals(self) -> tuple[int, int, int]:
        return self._totals

    def _first(self, t: int) -> int:
        """The row of the first event of that time or later."""
        return bisect.bisect_left(range(self._table.rows), t, key=self._table.time)

    def find(self, t: int) -> tuple[int, bytes]:
        row = min(self._first(t), self._table.rows - 1)
        return row - row % self._table.step, b""

    def runs(self, t0: int, t1: int) -> list[tuple[int, bytes, int]]:
        first, end = self._first(t0), self._first(t1)
        start = first - first % self._table.step
        return [(start, b"", end - start)] if first < end else []


class _Cursor:
    """The rows of a file, read in order."""

    def __init__(self, file: File, found: _Found, offset: int, strict: bool, row: int, last: int) -> None:
        self._file = file
        self._found = found
        self._offset = offset
        self._strict = strict
        self._row = row
        self._bytes = self.events = 0
        # Steps back in time, and the time before the row.
        self._steps, self._last = 0, last

    def state(self) -> bytes:
        return _STATE.pack(self._last)

    def report(self) -> dict[str, Any]:
        return {"bytes": self._bytes, "backward_steps": self._steps}

    def close(self) -> None:
        """The file is the table's."""

    def read(self, rows: int) -> Iterator[EventArray]:
        start = self._row
        self._row += rows
        return self._rows(start, rows)

    def _rows(self, start: int, rows: int) -> Iterator[EventArray]:
        """The events of some rows; where they cannot be read, those before the first that cannot."""
        decompressed = self._decompressed(start, rows)
        if decompressed is not None:
            for packed in decompressed:
                read = self._checked(start, *packed)
                start += len(read[0])
                yield from self._told(read)
            return
        try:
            read = self._read_ecf(start, rows) if self._found.ecf else self._read_columns(start, rows)
        except Closed:
            raise
        except _CannotRead as error:
            if rows > 1 and not self._found.ecf:
                half = rows // 2
                yield from self._rows(start, half)
                yield from self._rows(start + half, rows - half)
                return
            raise ValueError(str(error)) from error
        yield from self._told(read)

    def _told(self, read: _Read) -> Iterator[EventArray]:
        events, fault = read
        self._bytes += len(events) * sum(dataset.row_bytes for dataset in self._found.datasets)
        yield events
        if fault is not None:
            raise ValueError(fault)

    def _read_columns(self, start: int, rows: int) -> _Read:
        file, found = self._file, self._found
        with file.use(f"reading events {start} to {start + rows} of {found.where}"):
            try:
                columns = found.columns(file, start, rows)
            except (OSError, RuntimeError) as error:
                missing = [
                    name for dataset in found.datasets for name in filters_missing(file.h5py, dataset.id)
                ]
                if missing:
                    names = ", ".join(dict.fromkeys(missing))
                    raise ValueError(
                        f"{found.where} was written with an HDF5 filter that is not available: {names}"
                    ) from error
                if file.closed:
                    raise
                raise _CannotRead(
                    f"HDF5 failed at reading event {start} of {found.where}: {error}"
                ) from error
        return self._pack(start, columns)

    def _decompressed(self, start: int, rows: int) -> list[_Packed] | None:
        """Events in columns that Blosc compressed, decompressed here; None: HDF5 is to do it."""
        datasets = self._found.datasets
        chunk = datasets[0].chunk
        if not self._found.is_blosc or start % chunk:
            return None
        columns = []
        with self._file.use(f"reading events {start} to {start + rows} of {self._found.where}"):
            for dataset in datasets:
                parts = []
                for place in range(start, start + rows, chunk):
                    try:
                        left_out, part = dataset.id.read_direct_chunk((place,))
                    except (OSError, RuntimeError, ValueError):  # such as a chunk that was never written
                        return None
                    if left_out:
                        return None
                    parts.append(part)
                kind = "u" if dataset.dtype.kind == "b" else dataset.dtype.kind
                columns.append((f"{kind}{8 * dataset.row_bytes}", parts))
        return _core.read_blosc(columns, chunk, rows, self._near(), self._last)

    def _read_ecf(self, start: int, rows: int) -> _Read:
        file, found = self._file, self._found
        (dataset,) = found.datasets
        where = f"{found.where}, chunk of event {start}"
        columns = None
        with file.use(f"reading {where}"):
            if dataset.id.get_chunk_info_by_coord((start,)).byte_offset is None:
                # Never written: all of it is the fill value, for which HDF5 needs no filter.
                columns = found.columns(file, start, rows)
            else:
                left_out, chunk = dataset.id.read_direct_chunk((start,))
        if columns is None and left_out & 1:  # the filter was left out for this chunk
            size = rows * dataset.dtype.itemsize
            if len(chunk) < size:
                raise ValueError(f"{where}: it has {len(chunk)} bytes, and {rows} events need {size}")
            table = np.frombuffer(chunk[:size], dataset.dtype)
            columns = [np.ascontiguousarray(_plain_view(table[name])) for name in _NAMES]
        if columns is None:
            try:
                events = _core.decode_ecf(chunk).view(EVENT_DTYPE)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
            if len(events) < rows:
                raise ValueError(f"{where}: it holds {len(events)} events, and {rows} belong there")
            columns = [np.ascontiguousarray(events[name][:rows]) for name in _NAMES]
        return self._pack(start, columns)

    def _near(self) -> int:
        # Beyond these, all sums are out of range anyway.
        return max(min(self._offset, 1 << 66), -(1 << 66))

    def _pack(self, start: int, columns: list[NDArray[Any]]) -> _Read:
        t, x, y, p = columns
        return self._checked(start, *_core.pack_columns(t, x, y, p, self._near(), self._last))

    def _checked(
        self,
        start: int,
        packed: NDArray[np.uint8],
        steps: int,
        first: int | None,
        bad: tuple[int, int, int] | None,
    ) -> _Read:
        events = packed.view(EVENT_DTYPE)
        fault = None if bad is None else self._fault(start, *bad)
        if self._strict and first is not None:
            before = int(events["t"][first - 1]) if first else self._last
            fault = (
                f"{self._found.where}, event {start + first}: its time is {int(events['t'][first])}, below "
                f"{before} of the event before it"
            )
            steps, events = 0, events[:first]
        self._steps += steps
        if len(events):
            self._last = int(events["t"][-1])
        return events, fault

    def _fault(self, start: int, column: int, row: int, value: int) -> str:
        name = _NAMES[column]
        what = f"{name} is {value}"
        if name == "t" and self._offset:
            what = f"t + t_offset is {value} + {self._offset} = {value + self._offset}"
        return f"{self._found.where}, event {start + row}: {what}, outside {_RANGES[name]}"


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """An integer dtype without what h5py notes on it, in the machine's byte order. Bools stay."""
    return np.dtype(dtype.newbyteorder("=").str)


def _plain_view(column: NDArray[Any]) -> NDArray[Any]:
    """A column in one of the dtypes that are packed: native integers, bools being bytes."""
    if column.dtype.kind == "b":
        return column.view(np.uint8)
    return column.astype(_plain(column.dtype), copy=False)


def _read_columns(datasets: list[_Data], file: File, start: int, rows: int) -> list[NDArray[Any]]:
    columns = []
    for dataset in datasets:
        dtype = dataset.dtype
        # An enumeration's dtype is what HDF5 needs to tell what it reads.
        out = np.empty(rows, dtype if dtype.metadata else dtype.newbyteorder("="))
        dataset.read(file, start, out)
        columns.append(_plain_view(out))
    return columns


def _read_table(dataset: _Data, file: File, start: int, rows: int) -> list[NDArray[Any]]:
    dtype = dataset.dtype
    if dtype.names is not None:
        table = np.empty(rows, dtype)
        dataset.read(file, start, table)
        return [np.ascontiguousarray(_plain_view(table[name])) for name in _NAMES]
    table = np.empty((rows, 4), dtype.newbyteorder("="))
    dataset.read(file, start, table)
    columns = [np.ascontiguousarray(table[:, i]) for i in range(4)]
    if dtype.kind == "f":
        return [_whole(column, start, name) for column, name in zip(columns, _NAMES, strict=True)]
    return columns


def _whole(column: NDArray[Any], start: int, name: str) -> NDArray[Any]:
    """Floats as the integers they are."""
    whole = (np.floor(column) == column) & (np.abs(column) < 2.0**63)
    if not whole.all():
        row = int(np.argmin(whole))
        raise _CannotRead(f"event {start + row}: {name} is {column[row]!s}, and only integers are read")
    return column.astype(np.int64)


def _read_triggers(file: File, dataset: Any) -> EventArray:
    where = "/EXT_TRIGGER/events"
    with file.use(f"reading the triggers of {where!r}"):
        dtype, shape = dataset.dtype, dataset.shape
        if dtype.names is None or not {"t", "id", "p"} <= set(dtype.names) or len(shape) != 1:
            raise ValueError(f"{where!r} must be 1-D with fields t, id and p, got {dtype} of shape {shape}")
        table = np.empty(shape, dtype)
        _Data(file, dataset, where).read(file, 0, table)
    triggers = np.empty(len(table), TRIGGER_DTYPE)
    for name in ("t", "id", "p"):
        values = table[name]
        with np.errstate(invalid="ignore"):
            triggers[name] = values
        changed = (triggers[name] != values) | (values < 0)
        if changed.any():
            row = int(np.argmax(changed))
            raise ValueError(f"{where!r}, trigger {row}: {name} is {values[row]}")
    return triggers
