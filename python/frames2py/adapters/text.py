"""Tables of events in text: CSV and its kin."""

from __future__ import annotations

from ._native import open_with
from ._reader import PathArg, Reader, check_sensor_size, resolve_sensor_size

__all__ = ["open"]


def open(  # noqa: A001 - every adapter's function has this name
    path: PathArg,
    *,
    sensor_size: tuple[int, int] | None = None,
    batch_size: int | None = None,
    columns: str | None = None,
    time_unit: str | None = None,
    round_times: bool = False,
    strict: bool = False,
) -> Reader:
    """Open a table of events in text: an event per line, with a comma, a semicolon, a tab or blanks between
    columns.

    Blank lines and lines that start with ``#`` or ``%`` are passed over. The order of the columns and the
    unit of time are given, or read from a header, the first other line (or a comment before it): names such
    as ``t``, ``timestamp``, ``x``, ``y``, ``p``, ``polarity``, and units as in ``t_us``, ``timestamp[ns]``,
    ``time (s)``. A column that is called just ``t`` and begins with a number without a point is in
    microseconds. A first line of two numbers is the sensor's width and height, and so are
    ``x@640`` and ``y@480`` in a header.

    Numbers are read exactly, as decimals: 0.000001 s is 1 µs. Polarities are 0 and 1, -1 and 1, OFF and ON
    or False and True, in one of these ways per file.

    Args:
        path: the file, or a pipe.
        sensor_size: ``(width, height)`` in pixels. Without it, the reader's ``sensor_size`` is what the
            file states, or None.
        batch_size: events per yielded array, all but the last; ``None`` leaves it to the reader.
        columns: a letter for each column, as ``"txyp"``, ``-`` for a column of something else. Goes before a
            header.
        time_unit: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``. Goes before a header.
        round_times: take the nearest microsecond (halves up) of times that lie between two, which otherwise
            are refused.
        strict: stop with an error at the first step back in time, and at a last line that breaks off.
            Otherwise they are counted in the reader's ``report``.

    Returns:
        A :class:`~frames2py.adapters.Reader` whose ``format`` is ``"text"``.

    Raises:
        FileNotFoundError, IsADirectoryError, OSError: the file cannot be opened.
        TypeError: ``path`` is no path; an option is of another type than here.
        ValueError: columns or unit are neither given nor in the file, or are none; another sensor size than
            the file's; ``batch_size`` below 1. By iteration, at a line that is no event: the message has its
            number and says what is wrong. Times must be whole microseconds from 0 to below 2**63, x and y
            from 0 to 65535.
    """
    for name, text in (("columns", columns), ("time_unit", time_unit)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name} must be a str or None, got {text!r} of type {type(text).__name__}")
    if not isinstance(round_times, bool):
        raise TypeError(
            f"round_times must be a bool, got {round_times!r} of type {type(round_times).__name__}"
        )
    given = None if sensor_size is None else check_sensor_size(sensor_size)

    def choose(stated: tuple[int, int] | None) -> tuple[int, int] | None:
        return given if stated is None else resolve_sensor_size(given, stated, "the text file's first line")

    return open_with(
        path,
        choose,
        family="text",
        batch_size=batch_size,
        strict=strict,
        columns=columns,
        time_unit=time_unit,
        round_times=round_times,
    )
