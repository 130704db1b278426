"""The picture a command leaves behind."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._image import write_png
from ..publish import Snapshot
from ..viewer import render
from .errors import CommandError, describe

__all__ = ["check_output", "drawable", "write_picture"]


def drawable(frame: NDArray[Any]) -> NDArray[Any]:
    """A frame as something `viewer.render` draws.

    The frames of the temporal kernels lose their time axis: the histogram's bins are added up per
    polarity, the voxel grid's knots by absolute value. Other frames are returned as they are.
    """
    if frame.ndim == 4 and frame.dtype == np.uint32:  # (2, bins, H, W) -> (H, W, 2)
        return np.ascontiguousarray(np.moveaxis(frame.sum(axis=1, dtype=np.uint32), 0, -1))
    if frame.ndim == 3 and frame.dtype == np.float32:  # (bins, H, W) -> (H, W)
        return np.asarray(np.abs(frame).sum(axis=0, dtype=np.float32))
    return frame


def check_output(path: str) -> None:
    """Refuse, before the work, an output that cannot be written after it."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise CommandError(f"cannot write {path}: it is a directory")
    if not os.path.isdir(folder):
        raise CommandError(f"cannot write {path}: there is no directory {folder}")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise CommandError(f"cannot write {path}: permission denied")


def write_picture(path: str, snapshot: Snapshot) -> None:
    """Draw a snapshot and write it as PNG."""
    image = render(Snapshot(drawable(snapshot.frame), snapshot.meta))
    try:
        write_png(path, image)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or describe(error)}") from error
