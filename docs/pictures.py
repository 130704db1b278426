"""Draws `kernels.png`: what each kernel shows of the same 60 ms of a synthetic scene.

python docs/pictures.py [PATH]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import frames2py
from frames2py._cli.scene import Scene
from frames2py._image import write_png
from frames2py.publish import Snapshot
from frames2py.viewer import render

SENSOR = WIDTH, HEIGHT = 192, 144
EVENTS_PER_SECOND = 600_000
SECONDS = 0.06
WINDOW_US = 12_000
BINS = 5
GAP = 4
Image = NDArray[np.uint8]


def frame_of(kernel: Any, events: NDArray[Any]) -> Snapshot:
    """The kernel's frame when all of these events are in, 1 ms a call."""
    accumulator = frames2py.Accumulator(SENSOR, kernel)
    ends = np.searchsorted(events["t"], np.arange(1_000, int(events["t"][-1]) + 1, 1_000))
    for call in np.split(events, ends):
        accumulator.accumulate(call)
    return Snapshot(accumulator.read(), frames2py.SnapshotMeta(accumulator.watermark, 1))


def signed(planes: NDArray[Any]) -> list[Image]:
    """Planes of OFF and ON, `(n, H, W, 2)`, all drawn to one scale."""
    scaled = np.rint(planes * 1_000).astype(np.uint32)
    scale = float(np.percentile(scaled[scaled > 0], 98))
    return [render(Snapshot(plane, frames2py.SnapshotMeta(1, 1)), scale=scale) for plane in scaled]


def picture() -> Image:
    """Three rows of five, `(3 * H + 2 * GAP, 5 * W + 4 * GAP, 3)` uint8."""
    events = np.concatenate(list(Scene(SENSOR, EVENTS_PER_SECOND).events(SECONDS)))
    recent = events[events["t"] >= SECONDS * 1e6 - WINDOW_US]
    rows = [
        [
            render(frame_of("event_count", recent)),
            render(frame_of("polarity", recent)),
            render(frame_of("time_surface", events)),
            render(frame_of(frames2py.ExpDecay(0.9), events)),
            render(frame_of(frames2py.TimestampDecay(20_000.0), events)),
        ]
    ]
    histogram = frame_of(frames2py.StackedHistogram(bins=BINS, bin_us=10_000), events).frame
    rows.append(signed(np.moveaxis(histogram, 0, -1)))
    voxels = frame_of(frames2py.VoxelGrid(bins=BINS, bin_us=10_000), events).frame
    rows.append(signed(np.stack([np.maximum(-voxels, 0), np.maximum(voxels, 0)], axis=-1)))

    all_rows = np.full((len(rows) * (HEIGHT + GAP) - GAP, BINS * (WIDTH + GAP) - GAP, 3), 255, np.uint8)
    for i, row in enumerate(rows):
        for j, image in enumerate(row):
            top, left = i * (HEIGHT + GAP), j * (WIDTH + GAP)
            all_rows[top : top + HEIGHT, left : left + WIDTH] = image
    return all_rows


if __name__ == "__main__":
    write_png(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("kernels.png"), picture())
