"""What all readers of recordings have in common."""

from __future__ import annotations

import contextlib
import operator
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias

import numpy as np

from .._events import EVENT_DTYPE, EventArray
from .._types import DecodeReport, RecordingTotals

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

PathArg: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]


_NUMBERS = ("events", "bytes", "time_wraps", "backward_steps", "unknown", "padding", "truncated_tail")
_TABLES = ("words", "word_bytes", "dropped")


class Source(Protocol):
    """What a format gives :class:`Reader` to read from. All of it may be called from any thread."""

    def read(self, limit: int | None) -> EventArray | None:
        """The next events in an array of their own: ``limit`` of them, fewer only at the end or before an
        error; without a limit, as many as suit but at least one. ``None`` at the end."""

    def close(self) -> None:
        """Lets go of the file. May be called again, and during a ``read``."""

    def report(self) -> dict[str, Any]:
        """What was met so far: the fields of a ``DecodeReport`` but its format. Also once closed."""

    def take_triggers(self) -> EventArray:
        """The triggers met since the last call, as ``TRIGGER_DTYPE``; RuntimeError if not collected."""

    def build_index(self, beside: bool) -> None:
        """See :meth:`Reader.build_index`. What follows needs an index, and makes one in memory."""

    def totals(self) -> tuple[int, int | None, int | None] | None:
        """The number of events, the earliest and the latest time; ``None`` without an index."""

    def seek(self, t: int) -> None:
        """See :meth:`Reader.seek`."""

    def slice(self, t0: int, t1: int) -> EventArray:
        """See :meth:`Reader.slice`."""

    def lend(self) -> object:
        """What a playback reads: a ``_core.FileReader``, or an object with ``read``, ``restart`` and
        ``close``. Once the playback has it, this source is closed to all others."""

    def give_back(self) -> None:
        """It was lent in vain."""


class Reader:
    """The events of one recording, to be iterated over, or played by an Engine, once; and again after a
    ``seek()``.

    Iteration yields 1-D, C-contiguous arrays of :data:`frames2py.EVENT_DTYPE`, never empty, in file
    order, each in memory of its own. Their sizes are the reader's choice, or ``batch_size`` events each
    but the last. Memory use depends on the size of a batch, not of the file.

    As a context manager, the reader closes when the block ends. Threads may share one iterator: each
    batch goes to one of them.

    Raises:
        RuntimeError: by ``iter()``, the second time or after ``Engine.play()``.
        ValueError: by ``iter()`` and by iteration once the reader is closed; by iteration, where the
            file breaks its format. All events before that place have been yielded by then.
        OSError: by iteration, where the file cannot be read.
    """

    __slots__ = (
        "__weakref__",
        "_batch_size",
        "_closed",
        "_ended",
        "_format",
        "_iterated",
        "_sensor_size",
        "_source",
    )

    def __init__(
        self,
        source: Source,
        *,
        format: str,  # noqa: A002 - named as the property it becomes
        sensor_size: tuple[int, int] | None,
        batch_size: int | None,
    ) -> None:
        self._source = source
        self._format = format
        self._sensor_size = sensor_size
        self._batch_size = batch_size
        self._closed = False
        self._ended = False
        # Taken by the first iter(), and given back by seek() only.
        self._iterated = threading.Lock()

    @property
    def format(self) -> str:
        """The file's format and version, as ``"EVT 3.0"``."""
        return self._format

    @property
    def sensor_size(self) -> tuple[int, int] | None:
        """``(width, height)`` in pixels, from the file or as it was given to ``open()``.

        None if neither says it, of the formats that have no fixed place for it: text and NumPy's files."""
        return self._sensor_size

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @property
    def report(self) -> DecodeReport:
        """What was met in the file so far; also after the reader is closed, and while it is played."""
        return DecodeReport(format=self._format, **self._source.report())

    def take_triggers(self) -> EventArray:
        """The external triggers met since the last call, in file order.

        They are collected when the file was opened with ``triggers=True``, up to where its events are
        decoded, and kept until they are taken.

        Returns:
            A 1-D array of :data:`frames2py.TRIGGER_DTYPE`: ``t`` in µs, the input ``id``, the edge ``p`` (1
            rising).

        Raises:
            RuntimeError: triggers are not collected.
        """
        return self._source.take_triggers()

    def build_index(self, *, beside: bool = False) -> RecordingTotals:
        """Make an index of the file, which ``seek()`` and ``slice()`` go by, in one pass; once made it is
        kept.

        An index tells what the file is like at every 128 KiB of it. ``seek()`` and ``slice()`` make one in
        memory where there is none.

        Args:
            beside: keep the index in a file as well, ``.NAME.frames2py-index`` in the recording's folder, and
                take it from there if it is of this very file: size, time of change, first and last bytes are
                compared. Where the folder cannot be written, the index is kept in memory alone.

        Returns:
            What the file holds in all: of a file that breaks its format, up to there.

        Raises:
            TypeError: ``beside`` is no bool.
            ValueError: the reader is closed, or reads from a pipe.
            OSError: the file cannot be read.
        """
        self._check_open()
        if not isinstance(beside, (bool, np.bool_)):
            raise TypeError(f"beside must be a bool, got {beside!r} of type {type(beside).__name__}")
        self._source.build_index(bool(beside))
        totals = self.totals
        assert totals is not None
        return totals

    @property
    def totals(self) -> RecordingTotals | None:
        """What the file holds in all, where there is an index; else ``None``."""
        totals = self._source.totals()
        return None if totals is None else RecordingTotals(*totals)

    def seek(self, t_us: int) -> None:
        """Go on at the first event, in file order, whose time is ``t_us`` or later; at the end if there is
        none.

        An iterator that there is goes on from there, and the reader may be iterated over, or played, once
        more. What comes is exactly what comes from there when the file is read from its start. The ``report``
        and triggers start again at the point of the index that the seek goes to.

        Args:
            t_us: a time of the recording, in µs.

        Raises:
            TypeError: ``t_us`` is no int.
            ValueError: ``t_us`` is negative; the reader is closed, was played, or reads from a pipe; the file
                was changed.
            OSError: the file cannot be read.
        """
        time = _time(t_us, "t_us")
        self._check_open()
        self._source.seek(time)
        self._ended = False
        with contextlib.suppress(RuntimeError):  # not iterated over yet
            self._iterated.release()

    def slice(self, t0_us: int, t1_us: int) -> EventArray:
        """The events with ``t0_us <= t < t1_us``, in file order. What an iterator yields is not changed.

        Args:
            t0_us, t1_us: times of the recording, in µs.

        Returns:
            One array of :data:`frames2py.EVENT_DTYPE`, of your own.

        Raises:
            As :meth:`seek`; also what is wrong with the file in between.
        """
        start, end = _time(t0_us, "t0_us"), _time(t1_us, "t1_us")
        self._check_open()
        return self._source.slice(start, end)

    def close(self) -> None:
        """Close the file. Closing again does nothing; arrays already yielded stay valid."""
        self._closed = True
        self._source.close()

    def __iter__(self) -> Iterator[EventArray]:
        self._use_up()
        return _Batches(self)

    def _use_up(self) -> None:
        self._check_open()
        if not self._iterated.acquire(blocking=False):
            raise RuntimeError("a reader can be iterated over, or played, once; open the recording again")

    def _lend(self) -> tuple[object, int | None]:
        """Use the reader up for a playback, which reads what is returned in batches of that size."""
        self._use_up()
        try:
            return self._source.lend(), self._batch_size
        except BaseException:
            self._iterated.release()
            raise

    def _give_back(self) -> None:
        """Undo `_lend`."""
        self._source.give_back()
        self._iterated.release()

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
        sensor = "" if self._sensor_size is None else ", sensor {}x{}".format(*self._sensor_size)
        state = "closed" if self._closed else "open"
        return f"<{state} reader of {self._format}{sensor}>"

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the reader is closed")


class _Batches(Iterator[EventArray]):
    """The one iteration over a reader."""

    __slots__ = ("_reader",)

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __next__(self) -> EventArray:
        reader = self._reader
        reader._check_open()
        if reader._ended:
            raise StopIteration
        batch = reader._source.read(reader._batch_size)
        if batch is None:
            reader._ended = True
            raise StopIteration
        return batch


class BatchSource:
    """Cuts event arrays of any sizes, each in memory of its own, into batches, for what Python reads. What is
    natively read cuts its batches itself.

    Empty arrays are left out.
    """

    def __init__(self, batches: Iterable[EventArray]) -> None:
        self._lock = threading.Lock()
        self._restart(batches)

    def _restart(self, batches: Iterable[EventArray]) -> None:
        """Forget what was read, and go on with other arrays. Nobody reads meanwhile."""
        self._batches = iter(batches)
        # Read but not returned yet, all nonempty, and the events in them. They stay here when a signal
        # ends a read.
        self._parts: list[EventArray] = []
        self._count = 0
        self._error: Exception | None = None

    def read(self, limit: int | None) -> EventArray | None:
        with self._lock:
            while self._count < (limit or 1) and self._error is None:
                try:
                    batch = next(self._batches, None)
                except Exception as error:
                    self._error = error
                    break
                if batch is None:
                    break
                if len(batch):
                    self._parts.append(batch)
                    self._count += len(batch)
            if not self._parts:
                failure, self._error = self._error, None
                if failure is None:
                    return None
                try:
                    raise failure
                finally:
                    del failure  # else it holds this frame, and this frame it
            if limit is None:
                part = self._parts.pop(0)
                self._count -= len(part)
                return part
            return self._cut(limit)

    def report(self) -> dict[str, Any]:
        """A report of nothing."""
        return dict.fromkeys(_NUMBERS, 0) | {name: {} for name in _TABLES}

    def take_triggers(self) -> EventArray:
        raise RuntimeError("triggers are collected only when open() is told so, of formats that have them")

    def _cut(self, limit: int) -> EventArray:
        """Up to ``limit`` events off the front, copied."""
        taken: list[EventArray] = []
        missing = min(limit, self._count)
        self._count -= missing
        while missing:
            part = self._parts[0]
            if len(part) > missing:
                self._parts[0] = part[missing:]
                part = part[:missing]
            else:
                del self._parts[0]
            taken.append(part)
            missing -= len(part)
        return joined(taken)


def joined(parts: list[EventArray]) -> EventArray:
    """Arrays of events as one."""
    # As bytes: joining records copies them field by field.
    return np.concatenate([part.view(np.uint8) for part in parts]).view(EVENT_DTYPE)


def check_batch_size(batch_size: object) -> int | None:
    """``batch_size`` as an int that the native side can hold, or ``None``."""
    if batch_size is None:
        return None
    size = _integer(batch_size, "batch_size must be an int or None")
    if size < 1:
        raise ValueError(f"batch_size must be at least 1, got {size}")
    return min(size, sys.maxsize)


def resolve_sensor_size(given: object, stated: tuple[int, int] | None, where: str) -> tuple[int, int]:
    """The sensor size from the caller's ``sensor_size`` and what the file states.

    ``where`` names the place in the file for messages, as ``"the EVT header"``.
    """
    if given is None:
        if stated is None:
            raise ValueError(f"{where} states no geometry; pass sensor_size=(width, height)")
        return stated
    size = check_sensor_size(given)
    if stated is not None and size != stated:
        raise ValueError(f"sensor_size is {size}, but {where} states the geometry {stated}")
    return size


def _time(given: object, name: str) -> int:
    """A time as the native side can hold it."""
    time = _integer(given, f"{name} must be an int, in µs")
    if time < 0:
        raise ValueError(f"{name} must not be negative, got {time}")
    return min(time, 2**64 - 1)


def check_sensor_size(given: object) -> tuple[int, int]:
    """``given`` as two positive ints."""
    parts = list(given) if isinstance(given, Iterable) else []
    if len(parts) != 2:
        raise ValueError(f"sensor_size must be (width, height), got {given!r}")
    width, height = (_integer(part, "sensor_size must hold two ints") for part in parts)
    size = (width, height)
    if min(size) < 1:
        raise ValueError(f"sensor_size must be positive, got {size}")
    return size


def _integer(value: object, rule: str) -> int:
    # An int is one anyway; to find that out takes a protocol much longer.
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, SupportsIndex)):
        raise TypeError(f"{rule}, got {value!r} of type {type(value).__name__}")
    return operator.index(value)
