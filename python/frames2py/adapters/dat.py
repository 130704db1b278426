"""Prophesee DAT files."""

from __future__ import annotations

from ._native import open_native
from ._reader import PathArg, Reader

__all__ = ["open"]


def open(  # noqa: A001 - every adapter's function has this name
    path: PathArg,
    *,
    sensor_size: tuple[int, int] | None = None,
    batch_size: int | None = None,
    strict: bool = False,
) -> Reader:
    """Open a Prophesee DAT file (version 2) of CD events and read its header.

    Both types of event that stand for CD events are read, Event2d (0x00) and EventCD (0x0C). Polarities are
    the file's 4 bits. The file has 32 bits of time, which overflow every 71 min 35 s: a fall by more than
    15/16 of the range adds 2**32 µs; times that then rise by as much are late events from before. Every
    other step back is kept. The format is that of
    https://docs.prophesee.ai/stable/data/file_formats/dat.html.

    Args:
        path: the file, or a pipe.
        sensor_size: ``(width, height)`` in pixels. Needed when the header states no Width and Height;
            otherwise it must be the same.
        batch_size: events per yielded array, all but the last; ``None`` leaves it to the reader.
        strict: stop with an error at the first step back in time and at an end inside an event; the message
            names its byte. Otherwise they are counted in the reader's ``report``.

    Returns:
        A :class:`~frames2py.adapters.Reader` whose ``format`` is ``"DAT 2"``.

    Raises:
        FileNotFoundError, IsADirectoryError, OSError: the file cannot be opened.
        TypeError: ``path`` is no path; an option is of another type than here.
        ValueError: another kind of file, another version, events of another type or size; a Width or Height
            that is no size; no sensor size, or another than the header's; ``batch_size`` below 1.
    """
    return open_native(
        path,
        family="dat",
        where="the DAT header",
        sensor_size=sensor_size,
        batch_size=batch_size,
        strict=strict,
    )
