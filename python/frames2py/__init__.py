"""Frames2Py: live frames from event cameras.

One thread ingests events, a kernel accumulates them, the engine publishes immutable snapshots, and any number
of threads read the latest one without waiting and without making the producer wait."""

from . import _core, kernels, publish
from ._convert import events
from ._core import Accumulator, Engine, Playback, __version__
from ._events import EVENT_DTYPE, TRIGGER_DTYPE
from ._recordings import open, save  # noqa: A004 - what it does to a recording
from ._types import DecodeReport, EngineMemory, EngineStats, RecordingTotals, SnapshotMeta
from .kernels import (
    EventCount,
    ExpDecay,
    Polarity,
    StackedHistogram,
    TimestampDecay,
    TimeSurface,
    VoxelGrid,
)

__all__ = [
    "EVENT_DTYPE",
    "TRIGGER_DTYPE",
    "Accumulator",
    "DecodeReport",
    "Engine",
    "EngineMemory",
    "EngineStats",
    "EventCount",
    "ExpDecay",
    "Playback",
    "Polarity",
    "RecordingTotals",
    "SnapshotMeta",
    "StackedHistogram",
    "TimeSurface",
    "TimestampDecay",
    "VoxelGrid",
    "__version__",
    "events",
    "kernels",
    "open",
    "publish",
    "save",
]

if _core.debug_build:
    import warnings

    warnings.warn("frames2py is a debug build: correct, and slow", RuntimeWarning, stacklevel=2)
