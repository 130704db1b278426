"""Publication for publishers of your own: the types an Engine publishes, and a publisher without an
Engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _core
from ._types import Snapshot, SnapshotMeta
from .kernels._resolve import frame_spec

__all__ = ["ImmutablePublisher", "Snapshot", "SnapshotMeta", "SnapshotPublisher"]


@runtime_checkable
class SnapshotPublisher(Protocol):
    """One writer fills frames, any number of readers take the latest one."""

    def begin_write(self) -> NDArray[Any]:
        """A writable frame for the writer to fill whole. Its content is not defined."""
        ...

    def end_write(self, meta: SnapshotMeta) -> None:
        """Publishes the frame of the last ``begin_write()``; ``RuntimeError`` without one."""
        ...

    def read(self) -> Snapshot | None:
        """The latest publication, the same object for every reader, or None. Any thread; never waits."""
        ...

    def reset(self) -> None:
        """Takes the latest publication down."""
        ...


class ImmutablePublisher:
    """A publisher that gives every publication memory of its own, which is never written again.

    One writer, any number of readers. The array of ``begin_write()`` turns read-only for good with
    ``end_write()``; a view that the writer took of it before does not, and must not be written to after.

    Parameters
    ----------
    shape : int or iterable of int
        Shape of the frames.
    dtype : dtype-like
        Their dtype. One that holds Python objects works too, but NumPy lets such frames be made writable
        again.

    Raises
    ------
    TypeError, ValueError
        The shape or the dtype is not one.
    MemoryError
        From ``begin_write()``, when a frame cannot be allocated.
    """

    def __init__(self, shape: int | Iterable[int], dtype: DTypeLike) -> None:
        self._shape, self._dtype = frame_spec(shape, dtype)
        self._written: tuple[NDArray[Any], _core.WritableFrame | None] | None = None
        self._latest: Snapshot | None = None

    def begin_write(self) -> NDArray[Any]:
        """A new frame to fill: writable, C-contiguous, content not defined.

        A frame that was begun before and not ended is given up.
        """
        if self._dtype.hasobject:
            array: NDArray[Any] = np.empty(self._shape, self._dtype)
            self._written = array, None
        else:
            memory = _core.new_frame(self._shape, self._dtype)
            array = memory.array(writeable=True)
            self._written = array, memory
        return array

    def end_write(self, meta: SnapshotMeta) -> None:
        """Publishes the frame of the last ``begin_write()`` with ``meta``.

        Raises
        ------
        RuntimeError
            Nothing was begun since the last publication.
        """
        if self._written is None:
            raise RuntimeError("end_write() without begin_write(): there is no frame to publish")
        array, memory = self._written
        self._written = None
        array.flags.writeable = False
        frame = array.view() if memory is None else memory.array(writeable=False)
        self._latest = Snapshot(frame, meta)

    def read(self) -> Snapshot | None:
        """The latest publication, the same object for every reader; None if there is none."""
        return self._latest

    def reset(self) -> None:
        """Takes the latest publication down. A frame being written is not affected."""
        self._latest = None
