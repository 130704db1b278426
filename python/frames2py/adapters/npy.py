"""NumPy's files: ``.npy`` and ``.npz``."""

from __future__ import annotations

import builtins
import contextlib
import copy
import dataclasses
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from .._convert import ALIASES, Converter, name_columns, table_columns
from .._events import EVENT_DTYPE, EventArray
from ._reader import PathArg, Reader, check_batch_size, check_sensor_size, resolve_sensor_size
from ._rows import Cursor, Index, RowSource, Stale

if TYPE_CHECKING:
    from typing import Self

__all__ = ["open", "save_npz"]

# Rows that are converted together.
_ROWS = 65_536
# The bytes they may take together, and one of them.
_BYTES = 32 << 20
_WIDEST = 64 << 10
_FIELDS = ("t", "x", "y", "p")


def open(  # noqa: A001 - every adapter's function has this name
    path: PathArg,
    *,
    sensor_size: tuple[int, int] | None = None,
    batch_size: int | None = None,
    columns: str | None = None,
    time_unit: str | None = None,
    round_times: bool = False,
) -> Reader:
    """Open an ``.npy`` or ``.npz`` file of events.

    An ``.npy`` file holds a structured array or a table, an ``.npz`` file one of these, or 1-D arrays called
    ``t``, ``x``, ``y`` and ``p`` (or another name that :func:`frames2py.events` knows). What it takes is
    read, and refused with the same messages; arrays with the very fields of ``EVENT_DTYPE`` are read as they
    are, whatever their polarities. An array ``sensor_size`` of two integers in an ``.npz`` file is the
    sensor's width and height.

    Files are read piece by piece: memory depends on the size of a batch, not of the file. Nothing is
    unpickled.

    Args:
        path: the file. Its content says what it is, not its name.
        sensor_size: ``(width, height)`` in pixels. Without it, the reader's ``sensor_size`` is what the file
            says, or None.
        batch_size: events per yielded array, all but the last; ``None`` leaves it to the reader (65,536).
        columns: the order of a table's columns, as ``"txyp"``, ``-`` for a column of something else.
        time_unit: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``; needed for times that are floats, microseconds
            otherwise.
        round_times: take the nearest microsecond of times that lie between two, which otherwise are refused.

    Returns:
        A :class:`~frames2py.adapters.Reader` whose ``format`` is ``"npy"`` or ``"npz"``.

    Raises:
        FileNotFoundError, IsADirectoryError, OSError: the file cannot be opened.
        TypeError: an option is of another type than here, or is missing.
        ValueError: another kind of file, or a damaged one; arrays of objects; arrays that hold no events;
            lengths that differ; another sensor size than the file's; ``batch_size`` below 1. By iteration,
            at a value that does not fit, or where the file is damaged.
    """
    limit = check_batch_size(batch_size)
    options = _Options(columns, time_unit, round_times)
    options.converter()  # refuses what is none
    given = None if sensor_size is None else check_sensor_size(sensor_size)
    # Opened here first: of what cannot be opened, the system's error is told.
    name = os.fsdecode(path)
    with builtins.open(name, "rb") as file:
        magic = file.read(6)
    if magic == npy_format.MAGIC_PREFIX:
        kind, stated = "npy", None
        table = _open_npy(name, options)
    elif magic[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        kind = "npz"
        table, stated = _open_npz(name, options)
    else:
        raise ValueError("not a NumPy file: it starts as neither .npy nor .npz files do")
    try:
        size = given if stated is None else resolve_sensor_size(given, stated, "the file's sensor_size")
        source = RowSource(table)
    except BaseException:
        table.close()
        raise
    return Reader(source, format=kind, sensor_size=size, batch_size=limit)


def save_npz(
    path_or_file: PathArg | IO[bytes],
    batches: Iterable[EventArray],
    sensor_size: tuple[int, int] | None = None,
    *,
    compress: bool = False,
) -> int:
    """Write events to an ``.npz`` file: an array ``events`` of ``EVENT_DTYPE``, and ``sensor_size`` if it is
    given.

    Memory depends on the size of a batch; a temporary file holds the events until their number is known.

    Args:
        path_or_file: where to; a file must be open for writing bytes. A path's content is replaced.
        batches: arrays of events, as an Engine accepts them.
        sensor_size: ``(width, height)`` in pixels.
        compress: deflate the arrays, which takes longer and makes them smaller.

    Returns:
        The number of events.

    Raises:
        TypeError, ValueError: a batch is no array of events, or has a time at 2**63 or later. Nothing is
            written.
        OSError: the file cannot be written.
    """
    size = None if sensor_size is None else check_sensor_size(sensor_size)
    with tempfile.TemporaryFile() as spool:
        count = 0
        for batch in batches:
            packed = _checked(batch)
            spool.write(packed.data.cast("B") if len(packed) else b"")
            count += len(packed)
        spool.seek(0)
        target = path_or_file if hasattr(path_or_file, "write") else os.fsdecode(path_or_file)
        method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
        with zipfile.ZipFile(cast("IO[bytes]", target), "w", method) as archive:
            with archive.open("events.npy", "w", force_zip64=True) as member:
                descr = npy_format.dtype_to_descr(EVENT_DTYPE)
                header = {"descr": descr, "fortran_order": False, "shape": (count,)}
                npy_format.write_array_header_1_0(member, header)
                while piece := spool.read(1 << 20):
                    member.write(piece)
            if size is not None:
                with archive.open("sensor_size.npy", "w") as member:
                    npy_format.write_array(member, np.array(size, "<i8"), allow_pickle=False)
    return count


def _checked(batch: EventArray) -> EventArray:
    """The events of a batch, packed."""
    if not isinstance(batch, np.ndarray) or not _is_events(batch.dtype) or batch.ndim != 1:
        kind = type(batch).__name__
        shown = f"{batch.dtype}, shape {batch.shape}" if isinstance(batch, np.ndarray) else kind
        raise TypeError(f"a batch must be a 1-D array with the fields of EVENT_DTYPE, got {shown}")
    packed = _packed(batch)
    late = packed["t"] >= 2**63
    if late.any():
        at = int(late.argmax())
        raise ValueError(f"event {at} of a batch: t is {packed['t'][at]}; times are below 2**63")
    return packed


def _is_events(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype has the fields of events, perhaps among others."""
    fields: Any = dtype.fields or {}
    return all(name in fields and fields[name][0] == EVENT_DTYPE[name] for name in _FIELDS)


def _packed(array: NDArray[Any]) -> EventArray:
    packed = np.empty(len(array), EVENT_DTYPE)
    if array.dtype == EVENT_DTYPE:
        packed[:] = array
    else:
        for name in _FIELDS:
            packed[name] = array[name]
    return packed


class _Place(Protocol):
    """Where in the file system an array is."""

    def open(self) -> IO[bytes]:
        """The bytes of the array with its header, from the start."""

    def close(self, file: IO[bytes]) -> None:
        """Closes what was opened."""

    def direct(self) -> tuple[str, int] | None:
        """The file, and where in it these bytes are, if they are stored as they are."""


class _File:
    """A file that is the array."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self) -> IO[bytes]:
        return builtins.open(self._path, "rb")

    def close(self, file: IO[bytes]) -> None:
        file.close()

    def direct(self) -> tuple[str, int] | None:
        return self._path, 0


class _Member:
    """A member of an archive."""

    def __init__(self, path: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
        self._path, self._archive, self._info = path, archive, info
        # The archive's own, under which members are read. Opening one takes a step from where the file is,
        # which the read of another would change; and the open ones are counted.
        self._lock: contextlib.AbstractContextManager[Any] = archive._lock  # type: ignore[attr-defined]

    def open(self) -> IO[bytes]:
        with self._lock:
            return self._archive.open(self._info)

    def close(self, file: IO[bytes]) -> None:
        with self._lock:
            file.close()

    def direct(self) -> tuple[str, int] | None:
        if self._info.compress_type != zipfile.ZIP_STORED or self._info.flag_bits & 1:
            return None
        # Behind the local header, whose name and extra field may be other than the directory's.
        with builtins.open(self._path, "rb") as file:
            file.seek(self._info.header_offset)
            header = file.read(30)
        if len(header) < 30:
            return None
        return self._path, self._info.header_offset + 30 + sum(struct.unpack("<HH", header[26:]))


class _Npy:
    """An array in a file, to be read as columns of rows from any row on."""

    def __init__(self, place: _Place, name: str, size: int | None = None) -> None:
        self._place, self.name = place, name
        with _damage(name), place.open() as file:
            version = npy_format.read_magic(file)
            read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            if version not in ((1, 0), (2, 0), (3, 0)):
                raise ValueError(f"version {version[0]}.{version[1]}")
            self.shape, self.fortran, self.dtype = read(file)
            # Of a file, its size; a member's is given.
            self._start = file.tell()
            if size is None:
                size = os.fstat(file.fileno()).st_size
        if self.dtype.hasobject:
            raise ValueError(f"{name} is an array of objects ({self.dtype}); only numbers are read")
        self._size = size
        if self.dtype.itemsize > _WIDEST:
            raise ValueError(f"{name} has values of {self.dtype.itemsize} bytes each; {_WIDEST} are read")
        stated = self.dtype.itemsize
        for side in self.shape:
            stated *= side
        if stated != size - self._start:
            raise ValueError(
                f"{name} is damaged: its header states {stated} bytes of values, and there are "
                f"{size - self._start}"
            )
        self._before = 0

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 0

    @property
    def row_bytes(self) -> int:
        size: int = self.dtype.itemsize
        for side in self.shape[1:]:
            size *= side
        return max(size, 1)

    def column(self, at: int) -> Self:
        """The column of a table in column order, as an array of its own."""
        other = copy.copy(self)
        other.shape = self.shape[:1]
        other._before = at * self.rows * self.dtype.itemsize
        return other

    def stream(self, row: int = 0, step: int = 1, *, sound: bool = False) -> _Stream:
        """What reads ``step`` rows at a time, from a multiple of them on. ``sound`` says that all was read
        without a fault before: then no checksum needs to be looked at."""
        direct = self._place.direct() if sound or isinstance(self._place, _File) else None
        before = self._start + self._before
        with contextlib.ExitStack() as stack, _damage(self.name):
            if direct is not None:
                file: IO[bytes] = stack.enter_context(builtins.open(direct[0], "rb"))
                if os.fstat(file.fileno()).st_size < direct[1] + self._size:
                    raise Stale
                file.seek(direct[1] + before + row * self.row_bytes)
            else:
                file = self._place.open()
                stack.callback(self._place.close, file)
                self._pass(file, before, 1 << 20)
                # In the steps of a reader: where a wrong checksum shows depends on them.
                self._pass(file, row * self.row_bytes, step * self.row_bytes)
            return _Stream(file, self, stack.pop_all().close)

    def _pass(self, file: IO[bytes], count: int, step: int) -> None:
        while count:
            got = len(file.read(min(count, step)))
            if not got:
                raise ValueError("it ends before its last value")
            count -= got


class _Stream:
    """The rows of an array, one after the other."""

    def __init__(self, file: IO[bytes], array: _Npy, close: Callable[[], None]) -> None:
        self._file, self._array, self.close = file, array, close

    def read(self, rows: int) -> NDArray[Any]:
        """The next rows, in memory of their own."""
        array = self._array
        with _damage(array.name):
            data = self._file.read(rows * array.row_bytes)
        if len(data) != rows * array.row_bytes:
            raise ValueError(f"{array.name} is damaged: it ends before its last value")
        return np.frombuffer(data, array.dtype).reshape(rows, *array.shape[1:])


@contextlib.contextmanager
def _damage(name: str) -> Iterator[None]:
    """Says of whatever goes wrong in reading that it is the file."""
    try:
        yield
    except (OSError, MemoryError, Stale):
        raise
    except Exception as error:
        raise ValueError(f"{name} is damaged: {error}") from error


def _open_npy(path: str, options: _Options) -> _Table:
    return _Table(path, "npy", _columns(_Npy(_File(path), "the .npy file"), options), options)


def _open_npz(path: str, options: _Options) -> tuple[_Table, tuple[int, int] | None]:
    with contextlib.ExitStack() as stack:
        with _damage("the .npz file"):
            archive = stack.enter_context(zipfile.ZipFile(path))
        members = {
            info.filename.removesuffix(".npy"): info
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        }

        def array(name: str) -> _Npy:
            info = members[name]
            return _Npy(_Member(path, archive, info), f"the array {name!r}", info.file_size)

        stated = None
        if "sensor_size" in members:
            size = array("sensor_size")
            del members["sensor_size"]
            if size.shape != (2,) or size.dtype.kind not in "iu":
                raise ValueError(f"sensor_size must be two integers, got {size.dtype}, shape {size.shape}")
            with contextlib.closing(size.stream()) as stream:
                stated = check_sensor_size(stream.read(2).tolist())
        if any(name.lower() in aliases for name in members for aliases in ALIASES.values()):
            names = name_columns(list(members))
            arrays = [array(names[field]) for field in _FIELDS]
            if any(len(part.shape) != 1 for part in arrays) or len({part.shape for part in arrays}) != 1:
                shapes = ", ".join(f"{part.shape}" for part in arrays)
                raise ValueError(
                    f"the arrays t, x, y, p of an .npz file must be 1-D and of one length, got {shapes}"
                )
            options.converter().check([part.dtype for part in arrays])
            parts = _Parts(arrays)
        elif len(members) == 1 or "events" in members:
            # Of several arrays, the one that is called so.
            name = "events" if "events" in members else next(iter(members))
            parts = _columns(array(name), options)
        else:
            found = ", ".join(members) or "none"
            raise ValueError(
                f"an .npz file of events has arrays t, x, y, p, or one called events, got {found}"
            )
        return _Table(path, "npz", parts, options, stack.pop_all()), stated


@dataclasses.dataclass(frozen=True)
class _Options:
    """What the caller says of the arrays."""

    columns: str | None
    time_unit: str | None
    round_times: bool

    def converter(self) -> Converter:
        return Converter(self.time_unit, self.round_times)


@dataclasses.dataclass(frozen=True)
class _Parts:
    """Where the columns t, x, y, p are, or whole events."""

    arrays: list[_Npy]
    pick: Callable[[NDArray[Any]], list[NDArray[Any]]] | None = None

    @property
    def are_events(self) -> bool:
        return self.pick is None and len(self.arrays) == 1


def _columns(array: _Npy, options: _Options) -> _Parts:
    """What is in one array."""
    columns, converter = options.columns, options.converter()
    names = array.dtype.names
    if names is not None:
        if columns is not None:
            raise TypeError("columns is the order of a table's columns; a structured array has names")
        if len(array.shape) != 1:
            raise ValueError(f"a structured array of events must be 1-D, got shape {array.shape}")
        if _is_events(array.dtype):
            return _Parts([array])
        fields = name_columns(names)
        converter.check([array.dtype[fields[name]] for name in _FIELDS])
        return _Parts([array], lambda part: [part[fields[name]] for name in _FIELDS])
    if len(array.shape) != 2:
        raise ValueError(
            "events must be a 1-D structured array or a 2-D table with a row for each event, "
            f"got shape {array.shape} of dtype {array.dtype}"
        )
    places = table_columns(columns, array.shape[1])
    converter.check([array.dtype] * 4)
    if array.fortran:
        return _Parts([array.column(places[name]) for name in _FIELDS])
    return _Parts([array], lambda part: [part[:, places[name]] for name in _FIELDS])


class _Table:
    """The rows of a file that hold events."""

    def __init__(
        self,
        path: str,
        kind: str,
        parts: _Parts,
        options: _Options,
        stack: contextlib.ExitStack | None = None,
    ) -> None:
        self.path, self.of = path, f"{kind} {options}"
        self._parts, self._options, self._stack = parts, options, stack or contextlib.ExitStack()
        self.rows = parts.arrays[0].rows
        row_bytes = sum(array.row_bytes for array in parts.arrays)
        self.step = max(1, min(_ROWS, _BYTES // row_bytes))

    def cursor(
        self, row: int = 0, state: bytes = b"", *, lenient: bool = False, sound: bool = False
    ) -> Cursor:
        converter = self._options.converter()
        if state and not converter.go_on(row, state):
            raise Stale
        with contextlib.ExitStack() as stack:
            streams = []
            for array in self._parts.arrays:
                stream = array.stream(row, self.step, sound=sound)
                stack.callback(stream.close)
                streams.append(stream)
            return _Cursor(self._parts, converter, streams, stack.pop_all())

    def known_index(self) -> Index | None:
        return None

    def close(self) -> None:
        self._stack.close()


class _Cursor:
    """Reads the rows of a file in order."""

    def __init__(
        self, parts: _Parts, converter: Converter, streams: list[_Stream], stack: contextlib.ExitStack
    ) -> None:
        self._parts, self._converter, self._streams = parts, converter, streams
        self.close = stack.close
        self.events = 0

    def read(self, rows: int) -> Iterator[EventArray]:
        read = [stream.read(rows) for stream in self._streams]
        if self._parts.are_events:
            yield _checked(read[0])
        else:
            yield self._converter.convert(read if self._parts.pick is None else self._parts.pick(read[0]))

    def state(self) -> bytes:
        return self._converter.state()

    def report(self) -> dict[str, Any]:
        return {}
