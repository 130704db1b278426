"""Prophesee RAW files in the encodings EVT 2.0 and EVT 3.0."""

from __future__ import annotations

import os
from collections.abc import Callable

from .. import _core
from .._events import EVENT_DTYPE, EventArray
from ._reader import PathArg, Reader, check_batch_size, check_sensor_size, resolve_sensor_size

__all__ = ["open"]


def open(  # noqa: A001 - every adapter's function has this name
    path: PathArg, *, sensor_size: tuple[int, int] | None = None, batch_size: int | None = None
) -> Reader:
    """Open a Prophesee RAW file (EVT 2.0 or EVT 3.0) and read its header.

    The reader yields the file's CD (change detection) events; triggers and vendor words are skipped.
    Times are the file's own, in microseconds, with the counter's overflows undone; nothing is sorted or
    clamped, and an event beyond the sensor is yielded. A file that breaks off in a word ends before it.
    The encodings are those of https://docs.prophesee.ai/stable/data/encoding_formats/index.html.

    Args:
        path: the file. A pipe works too; what has arrived is yielded at once.
        sensor_size: ``(width, height)`` in pixels. Needed when the header states no geometry; otherwise
            it must be the same.
        batch_size: events per yielded array, all but the last; ``None`` leaves it to the reader (65,536
            for files).

    Returns:
        A :class:`~frames2py.adapters.Reader` whose ``format`` is ``"EVT 2.0"`` or ``"EVT 3.0"``.

    Raises:
        FileNotFoundError, IsADirectoryError, OSError: the file cannot be opened.
        TypeError: ``path`` is no path; ``batch_size`` or a part of ``sensor_size`` is no int.
        ValueError: no EVT header, or one with a missing, unknown or contradictory version or geometry;
            EVT 2.1, which is not supported yet; no sensor size, or another than the header's;
            ``batch_size`` below 1. Also by iteration, at an EVT 3.0 vector that reaches beyond
            x = 65535.
    """
    given = None if sensor_size is None else check_sensor_size(sensor_size)
    return open_with(path, lambda stated: resolve_sensor_size(given, stated, "the EVT header"), batch_size)


def open_with(
    path: PathArg,
    choose: Callable[[tuple[int, int] | None], tuple[int, int]],
    batch_size: int | None = None,
) -> Reader:
    """Opens a file once; ``choose`` makes a sensor size of what the header states, or raises."""
    limit = check_batch_size(batch_size)
    native = _core.EvtReader(os.fsdecode(path))
    try:
        size = choose(native.geometry)
    except BaseException:
        native.close()
        raise
    return Reader(_Source(native), format=native.format, sensor_size=size, batch_size=limit)


class _Source:
    """The native reader, its bytes seen as events. A playback reads it natively."""

    __slots__ = ("close", "native")

    def __init__(self, native: _core.EvtReader) -> None:
        self.native = native
        self.close = native.close

    def read(self, limit: int | None) -> EventArray | None:
        packed = self.native.read(limit)
        return None if packed is None else packed.view(EVENT_DTYPE)
