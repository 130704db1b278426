"""AEDAT 3.1 files, as cAER writes them, and AEDAT 2.0 files, as jAER writes them."""

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
    """Open an AEDAT 3.1 or AEDAT 2.0 file and read its header.

    The reader yields the file's polarity events; frames, IMU samples and all else are skipped, and so are
    events that an AEDAT 3.1 file marks as invalid. Of an AEDAT 3.1 file with several sources, those of the
    first are yielded. Times are the file's own, in microseconds, with the clock's overflows undone; nothing
    is sorted. AEDAT 2.0 is read for DVS128 and DAVIS chips, with x and y as jAER shows them: from the left
    and, here, from the top. The formats are those of
    https://docs.inivation.com/software/software-advanced-usage/file-formats/index.html.

    Args:
        path: the file. A pipe works too; what has arrived is yielded at once.
        sensor_size: ``(width, height)`` in pixels. Needed when the header names no chip whose size is known;
            otherwise it must be the same. An AEDAT 2.0 file without a chip can only be a DVS128's, ``(128,
            128)``.
        batch_size: events per yielded array, all but the last; ``None`` leaves it to the reader (16,384
            for files).
        strict: stop with an error at the first fault, which are the things that the reader's ``report``
            counts as stepping back, unknown or truncated, or dropped as outside of the chip; the message
            names its byte. Otherwise they are counted.
        triggers: collect external triggers, for ``take_triggers()``. In AEDAT 3.1, ``id`` 0, 1 and 2 are the
            external inputs, 3 is the signal generator, and ``p`` is 1 for rising edges and pulses; in AEDAT
            2.0 all are ``id`` 0 and ``p`` 1.

    Returns:
        A :class:`~frames2py.adapters.Reader` whose ``format`` is ``"AEDAT 3.1"`` or ``"AEDAT 2.0"``.

    Raises:
        FileNotFoundError, IsADirectoryError, OSError: the file cannot be opened.
        TypeError: ``path`` is no path; ``batch_size`` or a part of ``sensor_size`` is no int.
        ValueError: no AEDAT 3.1 or 2.0 file, a broken header or a chip whose addresses are not known; no
            sensor size, or another than the chip's; ``batch_size`` below 1. Also by iteration, at a packet or
            an event of AEDAT 3.1 with numbers that are negative.
    """
    reader = open_native(
        path,
        family="aedat",
        where="the AEDAT header",
        sensor_size=sensor_size,
        batch_size=batch_size,
        strict=strict,
        triggers=triggers,
    )
    if reader.format == "AEDAT 2.0" and sensor_size is not None and reader.sensor_size != (128, 128):
        # Of a named chip the size was compared; without one, only the addresses of a DVS128 are understood.
        native = reader._source.native  # type: ignore[attr-defined]
        if native.geometry is None:
            size = reader.sensor_size
            reader.close()
            raise ValueError(
                f"sensor_size is {size}, but an AEDAT 2.0 file that names no chip is a DVS128's: (128, 128)"
            )
    return reader
