"""NumPy's files: ``.npy`` and ``.npz``."""

from __future__ import annotations

import builtins
import contextlib
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from .._convert import ALIASES, Converter, name_columns, table_columns
from .._events import EVENT_DTYPE, EventArray
from ._reader import BatchSource, PathArg, Reader, check_batch_size, check_sensor_size, resolve_sensor_size

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
    converter = Converter(time_unit, round_times)
    given = None if sensor_size is None else check_sensor_size(sensor_size)
    # Opened here first: of what cannot be opened, the system's error is told.
    name = os.fsdecode(path)
    with builtins.open(name, "rb") as file:
        magic = file.read(6)
    if magic == npy_format.MAGIC_PREFIX:
        kind, stated = "npy", None
        source = _open_npy(name, columns, converter)
    elif magic[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        kind = "npz"
        source, stated = _open_npz(name, columns, converter)
    else:
        raise ValueError("not a NumPy file: it starts as neither .npy nor .npz files do")
    try:
        size = given if stated is None else resolve_sensor_size(given, stated, "the file's sensor_size")
    except BaseException:
        source.close()
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


class _Npy:
    """An array in a file, read from its start to its end, as columns of rows."""

    def __init__(self, file: IO[bytes], name: str, size: int | None, reopen: Callable[[], IO[bytes]]) -> None:
        self._file, self._name, self._reopen = file, name, reopen
        with _damage(name):
            version = npy_format.read_magic(file)
            read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            if version not in ((1, 0), (2, 0), (3, 0)):
                raise ValueError(f"version {version[0]}.{version[1]}")
            self.shape, self.fortran, self.dtype = read(file)
        if self.dtype.hasobject:
            raise ValueError(f"{name} is an array of objects ({self.dtype}); only numbers are read")
        self._start = file.tell()
        self.bytes = self.dtype.itemsize
        for side in self.shape:
            self.bytes *= side
        if self.dtype.itemsize > _WIDEST:
            raise ValueError(f"{name} has values of {self.dtype.itemsize} bytes each; {_WIDEST} are read")
        if size is not None and self.bytes != size - self._start:
            raise ValueError(
                f"{name} is damaged: its header states {self.bytes} bytes of values, and there are "
                f"{size - self._start}"
            )

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 0

    @property
    def row_bytes(self) -> int:
        size: int = self.dtype.itemsize
        for side in self.shape[1:]:
            size *= side
        return max(size, 1)

    def read(self, rows: int) -> NDArray[Any]:
        """The next rows, in memory of their own."""
        with _damage(self._name):
            data = self._file.read(rows * self.row_bytes)
        if len(data) != rows * self.row_bytes:
            raise ValueError(f"{self._name} is damaged: it ends before its last value")
        return np.frombuffer(data, self.dtype).reshape(rows, *self.shape[1:])

    def column(self, at: int) -> Self:
        """The column of a table in column order, as an array of its own."""
        with _damage(self._name):
            other = type(self)(self._reopen(), self._name, None, self._reopen)
            skip = at * self.rows * self.dtype.itemsize
            while skip:
                got = len(other._file.read(min(skip, 1 << 20)))
                if not got:
                    raise ValueError("it ends before its last value")
                skip -= got
        other.shape = self.shape[:1]
        return other

    def close(self) -> None:
        self._file.close()


@contextlib.contextmanager
def _damage(name: str) -> Iterator[None]:
    """Says of whatever goes wrong in reading that it is the file."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(f"{name} is damaged: {error}") from error


def _open_npy(path: str, columns: str | None, converter: Converter) -> BatchSource:
    def reopen() -> IO[bytes]:
        return builtins.open(path, "rb")

    with contextlib.ExitStack() as stack:
        file = stack.enter_context(reopen())
        array = _Npy(file, "the .npy file", os.fstat(file.fileno()).st_size, reopen)
        return _source(_columns(array, columns, converter, stack), converter, stack.pop_all())


def _open_npz(
    path: str, columns: str | None, converter: Converter
) -> tuple[BatchSource, tuple[int, int] | None]:
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

            def reopen() -> IO[bytes]:
                return stack.enter_context(archive.open(info))

            with _damage(f"the array {name!r}"):
                file = reopen()
            return _Npy(file, f"the array {name!r}", info.file_size, reopen)

        stated = None
        if "sensor_size" in members:
            size = array("sensor_size")
            del members["sensor_size"]
            if size.shape != (2,) or size.dtype.kind not in "iu":
                raise ValueError(f"sensor_size must be two integers, got {size.dtype}, shape {size.shape}")
            stated = check_sensor_size(size.read(2).tolist())
        if any(name.lower() in aliases for name in members for aliases in ALIASES.values()):
            names = name_columns(list(members))
            arrays = [array(names[field]) for field in _FIELDS]
            if any(len(part.shape) != 1 for part in arrays) or len({part.shape for part in arrays}) != 1:
                shapes = ", ".join(f"{part.shape}" for part in arrays)
                raise ValueError(
                    f"the arrays t, x, y, p of an .npz file must be 1-D and of one length, got {shapes}"
                )
            converter.check([part.dtype for part in arrays])
            parts = _Parts(arrays)
        elif len(members) == 1 or "events" in members:
            # Of several arrays, the one that is called so.
            name = "events" if "events" in members else next(iter(members))
            parts = _columns(array(name), columns, converter, stack)
        else:
            found = ", ".join(members) or "none"
            raise ValueError(
                f"an .npz file of events has arrays t, x, y, p, or one called events, got {found}"
            )
        return _source(parts, converter, stack.pop_all()), stated


class _Parts:
    """Reads the columns t, x, y, p, or whole events, some rows at a time."""

    def __init__(
        self, arrays: list[_Npy], pick: Callable[[NDArray[Any]], list[NDArray[Any]]] | None = None
    ) -> None:
        self._arrays, self._pick = arrays, pick
        self.rows = arrays[0].rows
        self.row_bytes = sum(array.row_bytes for array in arrays)
        self.are_events = pick is None and len(arrays) == 1

    def read(self, rows: int) -> list[NDArray[Any]]:
        parts = [array.read(rows) for array in self._arrays]
        return parts if self._pick is None else self._pick(parts[0])


def _columns(array: _Npy, columns: str | None, converter: Converter, stack: contextlib.ExitStack) -> _Parts:
    """What is in one array."""
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
        parts = []
        for name in _FIELDS:
            part = array.column(places[name])
            stack.callback(part.close)
            parts.append(part)
        return _Parts(parts)
    return _Parts([array], lambda part: [part[:, places[name]] for name in _FIELDS])


def _source(parts: _Parts, converter: Converter, stack: contextlib.ExitStack) -> BatchSource:
    def batches() -> Iterator[EventArray]:
        left = parts.rows
        most = max(1, min(_ROWS, _BYTES // parts.row_bytes))
        while left:
            rows = min(left, most)
            columns = parts.read(rows)
            left -= rows
            if parts.are_events:
                yield _checked(columns[0])
            else:
                yield converter.convert(columns)

    return BatchSource(batches(), stack.close)
