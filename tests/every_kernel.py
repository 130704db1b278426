"""The seven kernels, for tests that hold for each of them."""

from __future__ import annotations

import pytest

from frames2py import (
    EventCount,
    ExpDecay,
    Polarity,
    StackedHistogram,
    TimestampDecay,
    TimeSurface,
    VoxelGrid,
)

KERNELS = [
    EventCount(),
    Polarity(),
    TimeSurface(),
    ExpDecay(0.5),
    TimestampDecay(10.0),
    StackedHistogram(bins=3, bin_us=10),
    VoxelGrid(bins=3, bin_us=10),
]
EVERY_KERNEL = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
