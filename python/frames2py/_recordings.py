"""Recordings of any format: opened by what is in them, saved by what is asked for."""

from __future__ import annotations

import builtins
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

from . import _core
from ._events import EventArray
from ._files import replacing
from .adapters._native import open_native
from .adapters._reader import PathArg, Reader, check_sensor_size

__all__ = ["FORMATS", "open", "opener_of", "save"]

#: What :func:`save` writes, and the suffixes that stand for it.
FORMATS: dict[str, tuple[str, ...]] = {
    "evt2": (),
    "evt2.1": (),
    "evt3": (".raw",),
    "dat": (".dat",),
    "aedat4": (".aedat4",),
    "es": (".es",),
    "hdf5": (".h5", ".hdf5"),
    "dsec": (),
    "npz": (".npz",),
    "csv": (".csv", ".txt"),
}

#: How files of a format are compressed; the first is what they are without a wish.
COMPRESSIONS: dict[str, tuple[str, ...]] = {
    "aedat4": ("lz4", "zstd", "none"),
    "hdf5": ("blosc", "gzip", "none"),
    "dsec": ("blosc", "gzip", "none"),
    "npz": ("none", "deflate"),
}

Batches: TypeAlias = EventArray | Iterable[EventArray]

_Opener: TypeAlias = Callable[..., Reader]

# How long a head is looked at to tell the formats that are not decoded natively.
_HEAD = 16
_CHUNK = 65_536  # events of one large array that are encoded at a time


def open(  # noqa: A001 - what it does to a recording
    path: PathArg,
    *,
    sensor_size: tuple[int, int] | None = None,
    batch_size: int | None = None,
    **options: Any,
) -> Reader:
    """Open a recording of any format that is read. The format is found by content; the file's name is not
    looked at.

    Args:
        path: the file. A pipe works for the formats that are decoded natively: all but HDF5 and NumPy files.
        sensor_size: ``(width, height)`` in pixels. Needed when the file should state a geometry and does not;
            where it states one, it must be the same.
        batch_size: events per yielded array, all but the last; ``None`` leaves it to the reader.
        **options: those of the format's own ``open()``, as ``strict``, ``triggers``, or an HDF5 file's
            ``group``.

    Returns:
        A :class:`~frames2py.adapters.Reader`, whose ``format`` says what was found.

    Raises:
        FileNotFoundError, IsADirectoryError, OSError: the file cannot be opened.
        ImportError: the format needs a package that is not installed; the message names the extra that brings
            it.
        TypeError: an argument of a wrong type, or an option that the file's format does not have.
        ValueError: no known format; else as the format's own ``open()`` says.
    """
    opener = opener_of(path)
    if opener is not None:
        return opener(path, sensor_size=sensor_size, batch_size=batch_size, **options)
    return _open_native(path, sensor_size=sensor_size, batch_size=batch_size, **options)


def _open_native(path: PathArg, **options: Any) -> Reader:
    """Open a recording of whichever natively decoded format."""
    return open_native(path, family=None, where="the file's head", **options)


def open_to_play(path: PathArg, *, sensor_size: tuple[int, int]) -> Reader:
    """Open a recording for ``Engine.play()``, which is of that sensor."""
    return open(path, sensor_size=sensor_size)


def opener_of(path: PathArg) -> _Opener | None:
    """The ``open()`` of the format that the file is in, if Python reads it."""
    try:
        # What is not a regular file is opened once, natively.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with builtins.open(path, "rb") as file:
            head = file.read(_HEAD)
    except (OSError, ValueError):
        return None  # the native reader says what is wrong
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        from .adapters import hdf5

        return hdf5.open_any
    if head.startswith((b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")):
        from .adapters import npy

        return npy.open
    return None


def save(
    path: PathArg,
    events: Batches,
    *,
    sensor_size: tuple[int, int] | None = None,
    format: str | None = None,  # noqa: A002 - what it is
    compression: str | None = None,
    overwrite: bool = False,
) -> int:
    """Write events to a recording.

    The file appears when it is complete. Whatever goes wrong before, an event that the format cannot hold
    included, leaves nothing behind and what was at ``path`` as it was.

    Args:
        path: the file.
        events: one array with the fields of :data:`frames2py.EVENT_DTYPE`, or any iterable of them, a
            :class:`~frames2py.adapters.Reader` among others. They are written in order, with their times as
            they are.
        sensor_size: ``(width, height)`` in pixels, for the file to state; a reader's own is used if it has
            one. An event beyond it is written all the same.
        format: one of ``"evt2"``, ``"evt2.1"``, ``"evt3"`` (Prophesee RAW), ``"dat"``, ``"aedat4"``,
            ``"es"``, ``"hdf5"`` (as :mod:`frames2py.recorder` writes it, with ``ms_to_idx``), ``"dsec"``,
            ``"npz"``, ``"csv"``. ``None`` takes it from the suffix: ``.raw`` is ``"evt3"``, ``.dat``,
            ``.aedat4``, ``.es``, ``.h5`` and ``.hdf5``, ``.npz``, ``.csv`` and ``.txt`` are what they say.
        compression: of ``"aedat4"``: ``"lz4"``, ``"zstd"`` or ``"none"``; of ``"hdf5"`` and ``"dsec"``:
            ``"blosc"``, ``"gzip"`` or ``"none"``; of ``"npz"``: ``"none"`` or ``"deflate"``. ``None`` is the
            first of these, and all that the other formats have.
        overwrite: whether a file that is there may be replaced.

    Returns:
        How many events were written.

    Raises:
        FileExistsError: a file is there, and ``overwrite`` is false; looked at before and after writing.
        ImportError: the format needs a package that is not installed.
        TypeError: an array that is no array of events.
        ValueError: an event that the format cannot hold, by its number; no sensor size; an unknown format, or
            a compression that it does not have.
        OSError: the file cannot be written.
    """
    target = os.fsdecode(path)
    chosen = _format_of(target, format)
    compressed = _compression_of(chosen, compression)
    if sensor_size is None and isinstance(events, Reader):
        sensor_size = events.sensor_size
    if sensor_size is None:
        raise ValueError("save() needs sensor_size=(width, height)")
    size = check_sensor_size(sensor_size)
    if not isinstance(overwrite, (bool, np.bool_)):
        raise TypeError(f"overwrite must be a bool, got {overwrite!r} of type {type(overwrite).__name__}")
    counted = _Counted(events)
    if chosen in ("hdf5", "dsec"):
        from .recorder import write_hdf5

        layout = "recorder" if chosen == "hdf5" else chosen
        filters = None if compressed == "none" else compressed
        write_hdf5(
            target, counted, sensor_size=size, layout=layout, compression=filters, overwrite=bool(overwrite)
        )
        return counted.events
    with replacing(target, overwrite=bool(overwrite)) as file:
        if chosen == "npz":
            from .adapters.npy import save_npz

            save_npz(file, counted, sensor_size=size, compress=compressed == "deflate")
        else:
            encoder = _core.FileEncoder(chosen, size, compressed)
            for batch in counted:
                file.write(encoder.encode(batch))
            tail, patches = encoder.finish()
            file.write(tail)
            for place, patch in patches:
                file.seek(place)
                file.write(patch)
    return counted.events


def _format_of(path: str, given: str | None) -> str:
    if given is not None:
        if given not in FORMATS:
            raise ValueError(f"format must be one of {', '.join(FORMATS)}, or None, got {given!r}")
        return given
    suffix = os.path.splitext(path)[1].lower()
    for name, suffixes in FORMATS.items():
        if suffix in suffixes:
            return name
    known = ", ".join(suffix for suffixes in FORMATS.values() for suffix in suffixes)
    raise ValueError(f"no format goes with the suffix {suffix!r} (known are {known}); pass format=")


def _compression_of(chosen: str, given: str | None) -> str | None:
    known = COMPRESSIONS.get(chosen, ())
    if given is None:
        return known[0] if known else None
    if given not in known:
        those = f"one of {', '.join(known)}, or None" if known else f"None, as {chosen} has none"
        raise ValueError(f"compression must be {those}, got {given!r}")
    return given


class _Counted:
    """The batches, large arrays in pieces, and how many events were taken."""

    def __init__(self, events: Batches) -> None:
        self._batches: Iterable[EventArray] = [events] if isinstance(events, np.ndarray) else events
        self.events = 0

    def __iter__(self) -> Iterator[EventArray]:
        for batch in self._batches:
            if not isinstance(batch, np.ndarray) or batch.ndim != 1 or len(batch) <= _CHUNK:
                yield batch
            else:
                for start in range(0, len(batch), _CHUNK):
                    yield batch[start : start + _CHUNK]
            self.events += len(batch)
