"""Recordings that are rows of a file, read in Python: from the start, from a time, or for a playback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._events import EVENT_DTYPE, EventArray
from ._reader import BatchSource, joined

__all__ = ["Cursor", "Index", "RowSource", "Stale", "Table"]


class Stale(ValueError):
    """An index or a cursor that does not fit the file."""

    def __init__(self) -> None:
        super().__init__("the index does not belong to this file; it was changed, or its index was")


class Cursor(Protocol):
    """Reads rows one after the other. One thread uses it at a time."""

    #: Events that came of it. Counted by whoever reads.
    events: int

    def read(self, rows: int) -> Iterator[EventArray]:
        """The events of the next rows, which are there; a ValueError behind those before a fault."""

    def state(self) -> bytes:
        """What reading goes on from, besides the row."""

    def report(self) -> dict[str, Any]:
        """The fields of a report that are not 0 or empty, but for the number of events."""

    def close(self) -> None:
        """Lets go of what is this cursor's own. May be called again, and during a ``read``."""


class Index(Protocol):
    """Where which time is: as ``_core.RowIndex`` has it."""

    def totals(self) -> tuple[int, int | None, int | None]: ...
    def find(self, t: int) -> tuple[int, bytes] | None: ...
    def runs(self, t0: int, t1: int) -> list[tuple[int, bytes, int]]: ...


class Table(Protocol):
    """Rows of a file, one for each event."""

    #: The file, and what in it is read and how, for an index that is kept.
    path: str
    of: str
    #: How many there are, and how many are read together: cursors start at multiples of that.
    rows: int
    step: int

    def cursor(
        self, row: int = 0, state: bytes = b"", *, lenient: bool = False, sound: bool = False
    ) -> Cursor:
        """A cursor at a row, where one before it had that state. A ``lenient`` one is not strict, and
        ``sound`` says that all rows were read without a fault.

        Raises:
            ValueError: the state is none of this file, or the file was changed.
            OSError: the file cannot be opened."""

    def known_index(self) -> Index | None:
        """An index that needs no pass over the file, if there can be one."""

    def close(self) -> None:
        """Lets go of the file."""


class RowSource(BatchSource):
    """A :class:`~frames2py.adapters._reader.Source` over a table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._cursor = table.cursor()
        self._closed = self._lent = False
        self._index: Index | None = None
        self._indexing = threading.Lock()
        # What is iterated over knows nothing of this source: a dropped reader closes its file at once.
        super().__init__(_events(table, self._cursor, 0, table.rows))

    def read(self, limit: int | None) -> EventArray | None:
        if self._lent:
            raise _closed()
        return super().read(limit)

    def report(self) -> dict[str, Any]:
        cursor = self._cursor
        return super().report() | {"events": cursor.events} | cursor.report()

    def close(self) -> None:
        if not self._lent:
            self._closed = True
            self._cursor.close()
            self._table.close()

    def build_index(self, beside: bool) -> None:
        index = self._need_index(beside)
        # One that was in memory before has yet to be kept.
        if beside and isinstance(index, _core.RowIndex) and _core.RowIndex.kept(*self._place()) is None:
            index.keep(*self._place())

    def _place(self) -> tuple[str, bytes]:
        """Where an index is kept: beside which file, and of what in it."""
        return self._table.path, self._table.of.encode("utf-8", "surrogateescape")

    def totals(self) -> tuple[int, int | None, int | None] | None:
        index = self._index
        return None if index is None else index.totals()

    def seek(self, t: int) -> None:
        index = self._need_index(False)
        row, state = index.find(t) or (0, b"")
        with self._lock:
            self._check_open()
            self._go_to(self._cursor_at(index, row, state), row, t)

    def slice(self, t0: int, t1: int) -> EventArray:
        index = self._need_index(False)
        parts = [np.empty(0, EVENT_DTYPE)]
        for row, state, count in index.runs(t0, t1):
            self._check_open()
            cursor = self._cursor_at(index, row, state)
            try:
                for events in _events(self._table, cursor, row, row + count):
                    self._check_open()
                    times = events["t"]
                    parts.append(events[(times >= np.uint64(t0)) & (times < np.uint64(t1))])
            finally:
                cursor.close()
        return joined(parts)

    def lend(self) -> Lent:
        with self._lock:
            self._check_open()
            self._lent = True
            return Lent(self)

    def give_back(self) -> None:
        self._lent = False

    def _check_open(self) -> None:
        if self._closed or self._lent:
            raise _closed()

    def _go_to(self, cursor: Cursor, row: int, skip: int | None) -> None:
        """Go on with another cursor, whose row that is. The lock is held."""
        self._cursor.close()
        self._cursor = cursor
        self._restart(_events(self._table, cursor, row, self._table.rows, skip))
        if self._closed:  # meanwhile, by another thread
            cursor.close()
            raise _closed()

    def _cursor_at(self, index: Index, row: int, state: bytes) -> Cursor:
        rows = self._table.rows
        if row > rows or row % self._table.step:
            raise Stale
        return self._table.cursor(row, state, sound=index.totals()[0] == rows)

    def _need_index(self, beside: bool) -> Index:
        if (index := self._index) is not None:
            return index
        with self._indexing:
            self._check_open()
            if self._index is None:
                self._index = self._table.known_index() or self._made_index(beside)
            return self._index

    def _made_index(self, beside: bool) -> _core.RowIndex:
        table = self._table
        if beside and (kept := _core.RowIndex.kept(*self._place())) is not None:
            return kept
        index, cursor = _core.RowIndex(), table.cursor(lenient=True)
        try:
            for row in range(0, table.rows, table.step):
                index.point(row, cursor.state())
                for events in cursor.read(min(table.step, table.rows - row)):
                    index.add(events.view(np.uint8))
                self._check_open()
        except ValueError:
            # What is behind a fault cannot be read. What else may have ended it is that the file was closed.
            self._check_open()
        finally:
            cursor.close()
        index.finish()
        return index


class Lent:
    """A source in the hands of a playback, which is then the only one that reads from it, and closes it."""

    def __init__(self, source: RowSource) -> None:
        self._source = source

    def read(self, limit: int | None) -> NDArray[np.uint8] | None:
        events = BatchSource.read(self._source, limit)
        return None if events is None else events.view(np.uint8)

    def restart(self) -> None:
        with self._source._lock:
            self._source._go_to(self._source._table.cursor(), 0, None)

    def close(self) -> None:
        self._source.give_back()
        self._source.close()


def _events(
    table: Table, cursor: Cursor, row: int, end: int, skip: int | None = None
) -> Iterator[EventArray]:
    """The events from ``row``, where the cursor is, up to ``end``; with ``skip``, from the first one of that
    time or later on."""
    for start in range(row, end, table.step):
        for events in cursor.read(min(table.step, end - start)):
            cursor.events += len(events)
            if skip is None:
                yield events
                continue
            late = np.flatnonzero(events["t"] >= np.uint64(skip))
            if len(late):
                skip = None
                yield events[late[0] :]


def _closed() -> ValueError:
    return ValueError("the reader is closed")
