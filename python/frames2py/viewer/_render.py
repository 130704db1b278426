"""From a published frame to an RGB image, in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..publish import Snapshot

__all__ = ["render"]


def render(snapshot: Snapshot, *, scale: float | None = None, window_us: float = 50_000) -> NDArray[np.uint8]:
    """Draw a snapshot's frame as an RGB image.

    What is drawn depends on the frame's dtype and shape only, so a custom kernel's frame is drawn
    like the built-in one of the same kind:

    - ``(H, W)`` uint32 or float32 (counts, decayed counts): grey, ``floor(255 * min(v, s) / s)``.
    - ``(H, W, 2)`` uint32 (polarity): the same level per channel; OFF is drawn in blue, ON in yellow
      (red and green), both together in white.
    - ``(H, W)`` uint64 (time surface): grey, ``floor(255 * max(0, 1 - (T - v) / window_us))``, where ``T``
      is the snapshot's watermark. 0 ("no event") is black.

    ``s`` is ``scale`` when given. Otherwise it comes from the frame's nonzero values: their maximum when
    there are fewer than 100, else their 99th percentile (linearly interpolated), so that a few hot
    pixels do not darken the rest. A frame without nonzero values is black. Negative values and NaN
    are black, and infinite values do not count for ``s``.

    Parameters
    ----------
    snapshot : Snapshot
        What to draw. It is not changed.
    scale : float, optional
        The value drawn at full brightness, in the frame's own unit; by default chosen per frame.
    window_us : float
        Microseconds until an entry of a time surface has faded to black.

    Returns
    -------
    numpy.ndarray
        A new writable ``(H, W, 3)`` uint8 array, C-contiguous.

    Raises
    ------
    TypeError
        ``snapshot`` is not a ``Snapshot``, or its frame is none of the kinds above (the frames of the
        temporal kernels are not images: reduce or slice them first).
    ValueError
        ``scale`` or ``window_us`` is not a finite positive number.
    """
    if not isinstance(snapshot, Snapshot):
        raise TypeError(f"snapshot must be a frames2py.publish.Snapshot, got {type(snapshot).__name__}")
    if scale is not None:
        scale = _positive("scale", scale)
    window_us = _positive("window_us", window_us)

    frame: NDArray[Any] = snapshot.frame
    if not isinstance(frame, np.ndarray):
        raise TypeError(f"snapshot.frame must be a numpy.ndarray, got {type(frame).__name__}")
    if frame.ndim == 2 and frame.dtype in (np.uint32, np.float32):
        levels = _levels(frame, scale)
        return _rgb(levels, levels)
    if frame.ndim == 3 and frame.shape[2] == 2 and frame.dtype == np.uint32:
        levels = _levels(frame, scale)
        return _rgb(levels[..., 1], levels[..., 0])
    if frame.ndim == 2 and frame.dtype == np.uint64:
        levels = _recency(frame, snapshot.meta.watermark, window_us)
        return _rgb(levels, levels)
    raise TypeError(
        "snapshot.frame must be (H, W) uint32, float32 or uint64, or (H, W, 2) uint32 to be drawn, "
        f"got shape {frame.shape} and dtype {frame.dtype}"
    )


def _positive(name: str, value: object) -> float:
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number) and number > 0:
            return number
    raise ValueError(f"{name} must be a finite number above 0, got {value!r}")


def _levels(values: NDArray[Any], scale: float | None) -> NDArray[np.uint8]:
    if scale is None:
        scale = _own_scale(values)
    if scale <= 0:
        return np.zeros(values.shape, np.uint8)
    # float64 holds every uint32 and float32, and 255 times it, exactly: one rounding, in the division.
    value = values.astype(np.float64)
    level = 255.0 * np.fmax(value, 0.0)  # fmax, unlike maximum, takes the 0 when the other is NaN
    with np.errstate(over="ignore"):
        level /= scale
    level[value >= scale] = 255.0
    return level.astype(np.uint8)


def _own_scale(values: NDArray[Any]) -> float:
    counted = values[values != 0]
    if counted.dtype == np.float32:
        counted = counted[np.isfinite(counted)]
    if counted.size == 0:
        return 0.0
    if counted.size < 100:
        return float(counted.max())
    return float(np.percentile(counted, 99))


def _recency(times: NDArray[np.uint64], watermark: int | None, window_us: float) -> NDArray[np.uint8]:
    if watermark is None:
        return np.zeros(times.shape, np.uint8)
    newest = np.uint64(watermark)
    # Subtracted as integers: microseconds since 1970 are more than a float can tell apart finely.
    age = newest - np.minimum(times, newest)
    left: NDArray[np.float64] = np.maximum(window_us - age, 0.0)
    with np.errstate(over="ignore"):
        level: NDArray[np.float64] = np.minimum(255.0 * left / window_us, 255.0)
    level[times == 0] = 0.0
    return level.astype(np.uint8)


def _rgb(yellow: NDArray[np.uint8], blue: NDArray[np.uint8]) -> NDArray[np.uint8]:
    rgb = np.empty((*yellow.shape, 3), np.uint8)
    rgb[..., 0] = yellow
    rgb[..., 1] = yellow
    rgb[..., 2] = blue
    return rgb
