"""What readers are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DecodeReport", "EngineMemory", "EngineStats", "RecordingTotals", "Snapshot", "SnapshotMeta"]


@dataclass(frozen=True, slots=True)
class SnapshotMeta:
    """What was true when a snapshot was published.

    Attributes
    ----------
    watermark : int or None
        The largest timestamp, in µs, of the in-bounds events accumulated so far; None before the first.
    sequence : int
        The publication's number. It rises with every publication of an Engine and does not restart at
        ``reset()``.
    """

    watermark: int | None
    sequence: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One publication: a frame, and what was true when it was published. Both are always of the same
    publication.

    Attributes
    ----------
    frame : numpy.ndarray
        The frame, with the kernel's shape and dtype, C-contiguous. An Engine's is read-only, cannot be made
        writable, is never written again, and is the same object for every reader. It outlives the Engine.
        Libraries that ignore NumPy's read-only flag can still write through it, to every reader's harm: give
        those a ``copy()``.
    meta : SnapshotMeta
        Watermark and sequence.
    """

    frame: NDArray[Any]
    meta: SnapshotMeta

    def __eq__(self, other: object) -> bool:
        # What a dataclass makes of an array differs between Python versions, and mostly raises.
        if not isinstance(other, Snapshot):
            return NotImplemented
        same_frame = self.frame is other.frame or np.array_equal(self.frame, other.frame)
        return same_frame and self.meta == other.meta

    def copy(self, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """The frame in memory that is yours.

        Parameters
        ----------
        out : numpy.ndarray, optional
            Where to copy to: of exactly the frame's dtype and shape, C-contiguous and writable.

        Returns
        -------
        numpy.ndarray
            A new writable C-contiguous array that nothing else references, or ``out``.

        Raises
        ------
        TypeError
            ``out`` is not an ndarray, or its dtype is not the frame's.
        ValueError
            The shape of ``out`` is not the frame's, or it is not C-contiguous, or it is read-only.

        Nothing is written when one of these is raised. Other threads run during the copy of all but tiny
        frames: NumPy lets go of the interpreter for it."""
        frame = self.frame
        if out is None:
            return np.array(frame, order="C", copy=True, subok=True)
        if not isinstance(out, np.ndarray):
            raise TypeError(f"out must be a numpy.ndarray, got {type(out).__name__}")
        if out.dtype != frame.dtype:
            raise TypeError(f"out must have dtype {frame.dtype}, got {out.dtype}")
        if out.shape != frame.shape:
            raise ValueError(f"out must have shape {frame.shape}, got {out.shape}")
        if not out.flags.c_contiguous:
            raise ValueError("out must be C-contiguous")
        if not out.flags.writeable:
            raise ValueError("out must be writable, got a read-only array")
        np.copyto(out, frame)
        return out


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters of an Engine, all of one moment.

    Attributes
    ----------
    events_ingested : int
        Events of accepted calls, out-of-bounds ones included, since construction or ``reset()``.
    events_out_of_bounds : int
        Those of them that were outside the sensor.
    snapshots_published : int
        Publications since construction or ``reset()``.
    uptime_ns : int
        Nanoseconds since construction, stopped or not.
    """

    events_ingested: int
    events_out_of_bounds: int
    snapshots_published: int
    uptime_ns: int


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """What an Engine's frames occupy. Counted while readers go on, so only as exact as that allows.

    Attributes
    ----------
    slots : int
        Places for frames that were ever needed at the same time: one for each frame held, and one to fill.
    leased : int
        Frames that somebody holds: the latest publication, and those in readers' hands.
    one_off : int
        Those of them beyond ``pool_frames``: their memory is freed with their last holder.
    bytes : int
        Bytes of frame memory that the Engine has now, for frames held, kept and being filled; frames that
        readers make count once they are made, and once for all publications that share one. The kernel's own
        state comes on top.
    """

    slots: int
    leased: int
    one_off: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DecodeReport:
    """What a reader met in its file so far. Its numbers may be ahead of the events yielded by some kilobytes
    of the file, and are exact at the end.

    Attributes
    ----------
    format : str
        The file's format and version.
    events : int
        Events decoded.
    bytes : int
        Bytes decoded, from the end of the file's head.
    words, word_bytes : dict
        How many words, records or packets of each type there are, and their bytes, by the names that the
        format's page gives them.
    dropped : dict
        Events that are in the file and could not be yielded, by reason.
    time_wraps : int
        Overflows of the file's clock that were undone.
    backward_steps : int
        Events whose time is below that of the event before them. They are yielded as they are.
    unknown : int
        Words, records or packets of no type that the format has.
    padding : int
        Bytes that only fill up.
    truncated_tail : int
        Bytes at the end that are no whole word, record or packet.
    """

    format: str
    events: int
    bytes: int
    words: dict[str, int]
    word_bytes: dict[str, int]
    dropped: dict[str, int]
    time_wraps: int
    backward_steps: int
    unknown: int
    padding: int
    truncated_tail: int


@dataclass(frozen=True, slots=True)
class RecordingTotals:
    """What a recording holds in all, by its index.

    Attributes
    ----------
    events : int
        The number of events.
    t_min, t_max : int or None
        The earliest and the latest time, in µs; None without events.
    """

    events: int
    t_min: int | None
    t_max: int | None

    @property
    def duration_us(self) -> int:
        """From the earliest to the latest event, in µs; 0 without events."""
        return 0 if self.t_min is None or self.t_max is None else self.t_max - self.t_min
