"""Kernels: how events become a frame."""

from ._builtin import (
    EventCount,
    ExpDecay,
    Polarity,
    StackedHistogram,
    TimestampDecay,
    TimeSurface,
    VoxelGrid,
)
from ._protocol import Kernel

__all__ = [
    "EventCount",
    "ExpDecay",
    "Kernel",
    "Polarity",
    "StackedHistogram",
    "TimeSurface",
    "TimestampDecay",
    "VoxelGrid",
]
