"""Event Stream files (``.es``)."""

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
    """Open an Event Stream 2.0 file of DVS or ATIS events and read its head.

    Of an ATIS file, the change detections are yielded; its threshold crossings, which measure exposure, are
    counted in the reader's ``report``. The format counts rows from the bottom, events are yielded with 0 at
    the top. Events beyond the sensor are yielded beyond it.
    The format is that of https://github.com/neuromorphic-paris/event_stream.

    Args:
        path: the file, or a pipe.
        sensor_size: ``(width, height)`` in pixels; it must be the file's.
        batch_size: events per yielded array, all but the last; ``None`` leaves it to the reader.
        strict: stop with an error at an end inside an event; the message names its byte. Otherwise it is
            counted in the reader's ``report``.

    Returns:
        A :class:`~frames2py.adapters.Reader` whose ``format`` is ``"Event Stream 2.0 DVS"`` or ``"Event
        Stream 2.0 ATIS"``.

    Raises:
        FileNotFoundError, IsADirectoryError, OSError: the file cannot be opened.
        TypeError: ``path`` is no path; an option is of another type than here.
        ValueError: another kind of file or another version; generic, display or color events, which are no
            change detections; another sensor size than the file's; ``batch_size`` below 1.
    """
    return open_native(
        path,
        family="es",
        where="the Event Stream head",
        sensor_size=sensor_size,
        batch_size=batch_size,
        strict=strict,
    )
