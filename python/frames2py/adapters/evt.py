"""Prophesee RAW files in the encodings EVT 2.0, EVT 2.1 and EVT 3.0."""

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
    """Open a Prophesee RAW file (EVT 2.0, EVT 2.1 or EVT 3.0) and read its header.

    The reader yields the file's CD (change detection) events; vendor words are skipped.
    Times are the file's own, in microseconds, with the counter's overflows undone; nothing is sorted or
    clamped, and an event beyond the sensor is yielded. A file that breaks off in a word ends before it.
    The encodings are those of https://docs.prophesee.ai/stable/data/encoding_formats/index.html.

    Args:
        path: the file. A pipe works too; what has arrived is yielded at once.
        sensor_size: ``(width, height)`` in pixels. Needed when the header states no geometry; otherwise
            it must be the same.
        batch_size: events per yielded array, all but the last; ``None`` leaves it to the reader (16,384
            for files).
        strict: stop with an error at the first fault, which are the things that the reader's ``report``
            counts as dropped, stepping back, unknown or truncated; the message names its byte. Otherwise
            they are counted.
        triggers: collect external triggers, for ``take_triggers()``.

    Returns:
        A :class:`~frames2py.adapters.Reader` whose ``format`` is ``"EVT 2.0"``, ``"EVT 2.1"`` or
        ``"EVT 3.0"``.

    Raises:
        FileNotFoundError, IsADirectoryError, OSError: the file cannot be opened.
        TypeError: ``path`` is no path; ``batch_size`` or a part of ``sensor_size`` is no int.
        ValueError: no EVT header, or one with a missing, unknown or contradictory version or geometry, or
            an unknown order of EVT 2.1 words; no sensor size, or another than the header's;
            ``batch_size`` below 1. Also by iteration, at an EVT 3.0 vector that reaches beyond
            x = 65535, and at the first fault with ``strict``.
    """
    return open_native(
        path,
        family="evt",
        where="the EVT header",
        sensor_size=sensor_size,
        batch_size=batch_size,
        strict=strict,
        triggers=triggers,
    )
