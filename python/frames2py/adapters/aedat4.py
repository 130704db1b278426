"""AEDAT 4.0 files, as iniVation's DV and dv-processing write them."""

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
    triggers: bool = False,
) -> Reader:
    """Open an AEDAT 4.0 file and read its header.

    The reader yields the events of one stream: of the first camera that has any, the stream named ``events``,
    or else its only one. Frames, IMU samples and other streams are skipped. Times are the file's own, in
    microseconds; nothing is sorted, and an event beyond the sensor is yielded. The table at the end of the
    file is not used, so a recording that was interrupted is read up to where it breaks off. The format is
    that of https://docs.inivation.com/software/software-advanced-usage/file-formats/aedat-4.0.html.

    Args:
        path: the file. A pipe works too; what has arrived is yielded at once.
        sensor_size: ``(width, height)`` in pixels. Needed when the stream states no resolution; otherwise
            it must be the same.
        batch_size: events per yielded array, all but the last; ``None`` leaves it to the reader (16,384
            for files).
        strict: stop with an error at the first fault, which are the things that the reader's ``report``
            counts as stepping back, unknown or truncated; the message names the byte where the packet starts.
            Otherwise they are counted.
        triggers: collect external triggers, for ``take_triggers()``, from the camera's stream of triggers:
            ``id`` 0 is the external input, 1 the signal generator; ``p`` is 1 for rising edges and pulses.

    Returns:
        A :class:`~frames2py.adapters.Reader` whose ``format`` is ``"AEDAT 4.0"``.

    Raises:
        FileNotFoundError, IsADirectoryError, OSError: the file cannot be opened.
        TypeError: ``path`` is no path; ``batch_size`` or a part of ``sensor_size`` is no int.
        ValueError: no AEDAT 4.0 file, or a broken header; no stream of events, or several of which none is
            named ``events``; no sensor size, or another than the stream's; ``batch_size`` below 1. Also by
            iteration, at a packet that cannot be decompressed or is broken, and at an event with a negative
            t, x or y.
    """
    return open_native(
        path,
        family="aedat4",
        where="the stream's description in the AEDAT 4.0 header",
        sensor_size=sensor_size,
        batch_size=batch_size,
        strict=strict,
        triggers=triggers,
    )
