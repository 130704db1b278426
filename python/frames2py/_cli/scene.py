"""A synthetic scene as an event camera would see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from .. import EVENT_DTYPE
from .._events import EventArray

__all__ = ["Scene"]

STEP_US = 4_000
Points = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]


class Scene:
    """A bright fan that turns about the centre, discs that circle it, and noise.

    Events come from moving edges only, as often as the edge sweeps over pixels there (in
    proportion to its speed along its normal), ON where a pixel gets brighter, OFF where it gets
    darker. Half the discs are darker than the background: their polarity is the other way round.

    Args:
        sensor_size: (width, height) in pixels.
        rate: Events per second.
        seed: For the noise and the jitter; the same seed gives the same events.
    """

    FAN_SHARE = 0.6
    NOISE_SHARE = 0.02
    BLADES = 3
    TURNS = 0.9  # of the fan, per second
    INNER, OUTER, HALF_WIDTH = 0.16, 0.72, 0.08  # of a blade, in half shorter sides of the sensor
    # Disc: size of its orbit and its radius (in half sides of the sensor), turns per second, phase, bright.
    DISCS = (
        (0.84, 0.13, 0.45, 0.05, True),
        (0.84, 0.09, 0.45, 0.36, False),
        (0.84, 0.11, 0.45, 0.70, True),
        (0.68, 0.08, -0.65, 0.25, False),
        (0.68, 0.06, -0.65, 0.62, True),
    )

    def __init__(self, sensor_size: tuple[int, int], rate: int, seed: int = 1) -> None:
        self._width, self._height = sensor_size
        self._unit = min(sensor_size) / 2
        self._rate = rate
        self._rng = np.random.default_rng(seed)

    def events(self, seconds: float) -> Iterator[EventArray]:
        """The scene's events from time 0 on, in order of time, in steps of 4 ms."""
        end_us = max(1, round(seconds * 1e6))
        for start_us in range(0, end_us, STEP_US):
            yield self._step(start_us, min(STEP_US, end_us - start_us))

    def _step(self, start_us: int, length_us: int) -> EventArray:
        count = max(1, self._rate * length_us // 1_000_000)
        t = np.sort(self._rng.integers(start_us, start_us + length_us, count))
        # Which object an event belongs to is independent of its time: deal them out by a shuffle.
        order = self._rng.permutation(count)
        noise = int(count * self.NOISE_SHARE)
        fan = noise + int(count * self.FAN_SHARE)
        x = np.empty(count)
        y = np.empty(count)
        on = np.empty(count, np.bool_)
        groups: list[tuple[NDArray[np.int64], Callable[[NDArray[np.float64]], Points]]]
        groups = [(order[:noise], self._noise), (order[noise:fan], self._fan)]
        groups += [
            (indices, partial(self._disc, disc))
            for indices, disc in zip(np.array_split(order[fan:], len(self.DISCS)), self.DISCS, strict=True)
        ]
        for indices, points in groups:
            x[indices], y[indices], on[indices] = points(t[indices] / 1e6)
        events = np.empty(count, EVENT_DTYPE)
        events["t"] = t
        events["x"] = np.clip(np.rint(x), 0, self._width - 1)
        events["y"] = np.clip(np.rint(y), 0, self._height - 1)
        events["p"] = on
        return events

    def _noise(self, at: NDArray[np.float64]) -> Points:
        return (
            self._rng.uniform(-0.5, self._width - 0.5, at.size),
            self._rng.uniform(-0.5, self._height - 0.5, at.size),
            self._rng.random(at.size) < 0.5,
        )

    def _fan(self, at: NDArray[np.float64]) -> Points:
        blade = self._rng.integers(0, self.BLADES, at.size)
        angle = 2 * math.pi * (self.TURNS * at + blade / self.BLADES)
        # The farther from the centre, the faster the edge: distances follow a rising density.
        along = np.sqrt(self._rng.uniform(self.INNER**2, self.OUTER**2, at.size)) * self._unit
        leading = self._rng.random(at.size) < 0.5
        across = np.where(leading, 1.0, -1.0) * self.HALF_WIDTH * self._unit + self._jitter(at.size)
        x = along * np.cos(angle) - across * np.sin(angle)
        y = along * np.sin(angle) + across * np.cos(angle)
        return (*self._centred(x, y), leading)

    def _disc(self, disc: tuple[float, float, float, float, bool], at: NDArray[np.float64]) -> Points:
        orbit, radius, turns, phase, bright = disc
        angle = 2 * math.pi * (turns * at + phase)
        across, down = orbit * self._width / 2, orbit * self._height / 2  # an ellipse that fits the sensor
        heading = np.arctan2(down * np.cos(angle) * turns, -across * np.sin(angle) * turns)
        # An edge element at angle a from the heading moves along its normal with cos(a): drawing
        # sin(a) evenly gives just that density.
        around = np.arcsin(self._rng.uniform(-1.0, 1.0, at.size))
        leading = self._rng.random(at.size) < 0.5
        around = np.where(leading, around, math.pi - around)
        rim = radius * self._unit + self._jitter(at.size)
        x = across * np.cos(angle) + rim * np.cos(heading + around)
        y = down * np.sin(angle) + rim * np.sin(heading + around)
        return (*self._centred(x, y), leading == bright)

    def _jitter(self, count: int) -> NDArray[np.float64]:
        return self._rng.normal(0.0, 0.5, count)

    def _centred(
        self, x: NDArray[np.float64], y: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return x + (self._width - 1) / 2, y + (self._height - 1) / 2
