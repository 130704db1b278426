"""Event arrays from arrays of other layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _core
from ._events import EVENT_DTYPE, EventArray

__all__ = ["Converter", "events", "name_columns"]

#: What the fields of events are called where they come from.
ALIASES = {
    "t": ("t", "ts", "timestamp", "timestamps", "time", "times"),
    "x": ("x", "xs"),
    "y": ("y", "ys"),
    "p": ("p", "ps", "pol", "polarity", "polarities", "on"),
}


def events(
    source: ArrayLike | None = None,
    /,
    *,
    t: ArrayLike | None = None,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    p: ArrayLike | None = None,
    columns: str | None = None,
    time_unit: str | None = None,
    round_times: bool = False,
) -> EventArray:
    """Make an array of :data:`EVENT_DTYPE` of events in another layout, in one pass.

    Give one of:

    - ``t``, ``x``, ``y``, ``p``: four 1-D arrays or sequences of one length;
    - a 1-D structured array with fields of these names, or called ``timestamp``, ``timestamps``, ``ts``,
      ``time``, ``polarity``, ``pol``, ``on``, in any order and of any of the types below; further fields are
      left out;
    - a 2-D table with a row for each event, and ``columns``, a letter for each of its columns: ``"txyp"``,
      with ``-`` for a column of something else.

    Values may be integers of any size and byte order, signed or not; bools; or floats of 4 or 8 bytes. Every
    value is taken exactly, or refused.

    Args:
        columns: the order of a table's columns.
        time_unit: the unit of the times: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``. Integers are microseconds
            without it; floats need it. A float of seconds or milliseconds stands for the microsecond whose
            nearest float it is, up to rounding in the last places; it is refused where floats of its type
            cannot tell microseconds apart (float64: from 71 years on, float32: from 4 s on).
        round_times: take the nearest microsecond (halves up) of times that lie between two, which otherwise
            are refused.

    Returns:
        A new 1-D array of ``EVENT_DTYPE`` in the order given, ``p`` 0 or 1.

    Raises:
        TypeError: what was given is none of the above; a column is not of numbers; floats for times without
            a unit.
        ValueError: columns of different lengths; a field or ``columns`` that is missing or there twice; a
            value that does not fit: a time that is negative, fractional or at 2**63 or more, x or y outside 0
            to 65535, NaN, a polarity other than 0 and 1 or -1 and 1 (both ways in one array are refused,
            too). The message says which row, counted from 0, and what it held.
    """
    converter = Converter(time_unit, round_times)
    given = [name for name, value in (("t", t), ("x", x), ("y", y), ("p", p)) if value is not None]
    if source is None:
        missing = [name for name in ALIASES if name not in given]
        if missing:
            raise TypeError(
                f"events() needs t, x, y and p, or an array that has them: {', '.join(missing)} is missing"
            )
        if columns is not None:
            raise TypeError("columns is the order of a table's columns; there is no table")
        parts = [_column(name, value) for name, value in (("t", t), ("x", x), ("y", y), ("p", p))]
    else:
        if given:
            raise TypeError(f"events() takes an array or columns, not both: {', '.join(given)} is given, too")
        parts = split(np.asarray(source), columns)
    return converter.convert(parts)


class Converter:
    """Converts an array of events part by part, as if it were done at once."""

    def __init__(self, time_unit: str | None, round_times: bool) -> None:
        if time_unit is not None and not isinstance(time_unit, str):
            raise TypeError(
                f"time_unit must be a str or None, got {time_unit!r} of type {type(time_unit).__name__}"
            )
        if time_unit not in (None, "s", "ms", "us", "ns"):
            raise ValueError(f'time_unit must be "s", "ms", "us" or "ns", got {time_unit!r}')
        if not isinstance(round_times, (bool, np.bool_)):
            raise TypeError(
                f"round_times must be a bool, got {round_times!r} of type {type(round_times).__name__}"
            )
        self._time_unit = time_unit
        self._round_times = bool(round_times)
        self._row = 0
        self._zero = self._minus = False

    def state(self) -> bytes:
        """What another converter can :meth:`go_on` from."""
        return bytes([self._zero, self._minus])

    def go_on(self, row: int, state: bytes) -> bool:
        """Go on at a row where a converter had that state. False if it is none."""
        if len(state) != 2 or max(state) > 1:
            return False
        self._row, self._zero, self._minus = row, state[0] == 1, state[1] == 1
        return True

    def check(self, dtypes: Sequence[np.dtype[Any]]) -> None:
        """Refuses columns t, x, y, p of dtypes that are not converted."""
        for name, dtype in zip("txyp", dtypes, strict=True):
            sizes = (4, 8) if dtype.kind == "f" else (1, 2, 4, 8)
            if dtype.kind not in "biuf" or dtype.itemsize not in sizes:
                raise TypeError(
                    f"{name} must hold integers, bools or floats of 4 or 8 bytes, got dtype {dtype}"
                )
        if self._time_unit is None and dtypes[0].kind == "f":
            raise TypeError(
                f't holds floats ({dtypes[0]}): say in which unit, time_unit="s", "ms", "us" or "ns"'
            )

    def convert(self, parts: Sequence[NDArray[Any]]) -> EventArray:
        """The events of the columns t, x, y, p, which follow those of the call before."""
        t = parts[0]
        self.check([part.dtype for part in parts])
        # Views that nobody else has: others may reshape an array of theirs at any time.
        packed, self._zero, self._minus = _core.convert_events(
            *(part[:] for part in parts),
            time_unit=self._time_unit or "us",
            round_times=self._round_times,
            first_row=self._row,
            zero=self._zero,
            minus=self._minus,
        )
        self._row += len(t)
        return packed.view(EVENT_DTYPE)


def split(array: NDArray[Any], columns: str | None) -> list[NDArray[Any]]:
    """The columns t, x, y, p of a structured array or a table."""
    if array.dtype.names is not None:
        if columns is not None:
            raise TypeError("columns is the order of a table's columns; a structured array has names")
        if array.ndim != 1:
            raise ValueError(f"a structured array of events must be 1-D, got shape {array.shape}")
        return [_column(name, array[found]) for name, found in name_columns(array.dtype.names).items()]
    if array.ndim != 2:
        raise ValueError(
            "events must be a 1-D structured array or a 2-D table with a row for each event, "
            f"got shape {array.shape} of dtype {array.dtype}"
        )
    return [_column(name, array[:, at]) for name, at in table_columns(columns, array.shape[1]).items()]


def table_columns(columns: str | None, width: int) -> dict[str, int]:
    """Where a table's columns are."""
    if columns is None:
        raise TypeError('a table of events needs the order of its columns, as columns="txyp"')
    if not isinstance(columns, str):
        raise TypeError(f"columns must be a str, got {columns!r} of type {type(columns).__name__}")
    if set(columns) - set("txyp-") or any(columns.count(name) != 1 for name in "txyp"):
        raise ValueError(
            f'columns must be a letter for each column, as "txyp", with - for others, got {columns!r}'
        )
    if len(columns) != width:
        raise ValueError(f"columns names {len(columns)} columns, {columns!r}, but the table has {width}")
    return {name: columns.index(name) for name in "txyp"}


def name_columns(names: Sequence[str]) -> dict[str, str]:
    """Which of some names are t, x, y and p."""
    found = {}
    for name, aliases in ALIASES.items():
        known = [alias for alias in names if alias.lower() in aliases]
        if len(known) != 1:
            what = f"{' and '.join(known)} could both be {name}" if known else f"there is no {name}"
            raise ValueError(f"events need fields for t, x, y and p, but {what}: {', '.join(names)}")
        found[name] = known[0]
    return found


def _column(name: str, values: ArrayLike | None) -> NDArray[Any]:
    array = np.asarray(values)
    if array.size == 0 and not isinstance(values, np.ndarray):
        # An empty list says nothing of its type.
        array = array.astype("u1")
    if array.ndim != 1:
        raise ValueError(f"{name} must be 1-D, got shape {array.shape}")
    return array
