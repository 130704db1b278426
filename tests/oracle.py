"""Naive models of the kernels, the Accumulator and the Engine: one event at a time, plain Python.

Every number here is an exact ``int`` or ``Fraction`` (``exp`` is a decimal with 60 digits), and
nothing is kept but the events themselves, so there is no shortcut to get wrong. Slow on purpose.

An event is a tuple ``(t, x, y, p)``.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

Event = tuple[int, int, int, int]
Index = tuple[int, ...]

DECIMAL = Context(prec=60)


# --- float32 ------------------------------------------------------------------------------------


def to_float32(value: float) -> float:
    """The float32 nearest to a float64, ties to even, as a Python float."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def ulp32(value: Fraction) -> Fraction:
    """The distance between neighbouring float32 numbers around `value`."""
    exponent = -126  # below 2**-126 all steps are the same
    if value:
        magnitude = abs(value)
        floor_log2 = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        if Fraction(2) ** floor_log2 > magnitude:
            floor_log2 -= 1
        exponent = max(exponent, floor_log2)
    return Fraction(2) ** (exponent - 23)


# --- kernels ------------------------------------------------------------------------------------


class Model:
    """What one kernel shows. Subclasses say how one pixel is computed."""

    windowed = False
    rounded = False  # True: equal within 1 float32 ULP; False: equal to the last bit
    dtype: type[np.generic] = np.uint32

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self.reset()

    @property
    def shape(self) -> Index:
        return (self.height, self.width)

    def reset(self) -> None:
        self.calls: list[list[Event]] = []

    def begin_call(self) -> None:
        self.calls.append([])

    def event(self, event: Event) -> None:
        self.calls[-1].append(event)

    def close_window(self) -> None:
        if self.windowed:
            self.reset()

    def at(self, x: int, y: int) -> list[Event]:
        return [e for call in self.calls for e in call if (e[1], e[2]) == (x, y)]

    def value(self, index: Index, watermark: int | None) -> Any:
        raise NotImplementedError

    def values(self, watermark: int | None) -> dict[Index, Any]:
        indices = itertools.product(*(range(n) for n in self.shape))
        return {index: self.value(index, watermark) for index in indices}


class EventCount(Model):
    windowed = True

    def value(self, index: Index, watermark: int | None) -> int:
        y, x = index
        return len(self.at(x, y)) % 2**32


class Polarity(Model):
    windowed = True

    @property
    def shape(self) -> Index:
        return (self.height, self.width, 2)

    def value(self, index: Index, watermark: int | None) -> int:
        y, x, channel = index
        return sum(1 for e in self.at(x, y) if (e[3] != 0) == (channel == 1)) % 2**32


class TimeSurface(Model):
    dtype = np.uint64

    def value(self, index: Index, watermark: int | None) -> int:
        y, x = index
        return max((e[0] for e in self.at(x, y)), default=0)


class ExpDecay(Model):
    dtype = np.float32
    rounded = True

    def __init__(self, width: int, height: int, decay: float) -> None:
        self.decay = Fraction(decay)
        super().__init__(width, height)

    def value(self, index: Index, watermark: int | None) -> Fraction:
        y, x = index
        surface = Fraction(0)
        for call in self.calls:
            surface *= self.decay
            surface += sum(1 for e in call if (e[1], e[2]) == (x, y))
        return surface


class TimestampDecay(Model):
    dtype = np.float32
    rounded = True

    def __init__(self, width: int, height: int, tau_us: float) -> None:
        self.tau_us = Decimal(tau_us)  # exact
        super().__init__(width, height)

    def value(self, index: Index, watermark: int | None) -> Fraction:
        y, x = index
        total = Fraction(0)
        if watermark is None:
            return total
        for t, *_ in self.at(x, y):
            exponent = DECIMAL.divide(Decimal(watermark - t), self.tau_us)
            if exponent < 1000:  # exp(-1000) is hundreds of decades below the smallest float32
                total += Fraction(DECIMAL.exp(-exponent))
        return total


class StackedHistogram(Model):
    def __init__(self, width: int, height: int, bins: int, bin_us: int) -> None:
        self.bins = bins
        self.bin_us = bin_us
        super().__init__(width, height)

    @property
    def shape(self) -> Index:
        return (2, self.bins, self.height, self.width)

    def value(self, index: Index, watermark: int | None) -> int:
        polarity, j, y, x = index
        if watermark is None:
            return 0
        shown = watermark // self.bin_us - self.bins + j
        events = self.at(x, y)
        return (
            sum(1 for t, _, _, p in events if t // self.bin_us == shown and (p != 0) == (polarity == 1))
            % 2**32
        )


class VoxelGrid(Model):
    dtype = np.float32

    def __init__(self, width: int, height: int, bins: int, bin_us: int) -> None:
        self.bins = bins
        self.bin_us = bin_us
        super().__init__(width, height)

    @property
    def shape(self) -> Index:
        return (self.bins, self.height, self.width)

    def value(self, index: Index, watermark: int | None) -> float:
        j, y, x = index
        if watermark is None:
            return 0.0
        last_knot = watermark // self.bin_us
        first_knot = last_knot - self.bins + 1
        numerator = 0
        for t, _, _, p in self.at(x, y):
            q, r = divmod(t, self.bin_us)
            if not first_knot <= q < last_knot:
                continue
            sign = 1 if p else -1
            if first_knot + j == q:
                numerator += sign * (self.bin_us - r)
            if first_knot + j == q + 1:
                numerator += sign * r
        numerator = (numerator + 2**63) % 2**64 - 2**63
        return to_float32(float(numerator) / float(self.bin_us))


# --- comparing ----------------------------------------------------------------------------------


def check_frame(frame: Any, model: Model, watermark: int | None) -> None:
    """Assert that `frame` is what `model` shows at `watermark`."""
    check_values(frame, model, model.values(watermark))


def check_values(frame: Any, model: Model, expected: dict[Index, Any]) -> None:
    assert isinstance(frame, np.ndarray)
    assert frame.shape == model.shape
    assert frame.dtype == np.dtype(model.dtype)
    assert frame.dtype.isnative
    assert frame.flags.c_contiguous
    for index, value in expected.items():
        got = frame[index].item()
        if model.rounded:
            assert math.isfinite(got), f"{index}: {got}"
            error = abs(Fraction(got) - value)
            assert error <= ulp32(value), f"{index}: expected {float(value)!r} within 1 ULP, got {got!r}"
        else:
            assert got == value, f"{index}: expected {value!r}, got {got!r}"


# --- accumulator and engine ---------------------------------------------------------------------


class AccumulatorModel:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.clear()

    def clear(self) -> None:
        self.model.reset()
        self.watermark: int | None = None
        self.events = 0
        self.events_out_of_bounds = 0
        self.pending = 0

    def accumulate(self, events: Iterable[Event]) -> None:
        self.model.begin_call()
        for event in events:
            t, x, y, _ = event
            assert t < 2**63
            self.events += 1
            if x >= self.model.width or y >= self.model.height:
                self.events_out_of_bounds += 1
                continue
            self.model.event(event)
            self.pending += 1
            if self.watermark is None or t > self.watermark:
                self.watermark = t


class EngineModel(AccumulatorModel):
    """An Engine that publishes on every call (`every_call`) or whose interval never passes."""

    def __init__(self, model: Model, every_call: bool) -> None:
        self.every_call = every_call
        self.running = True
        self.sequence = 0
        super().__init__(model)

    def clear(self) -> None:
        super().clear()
        self.published = 0
        self.due = True  # the first call always publishes
        self.values: dict[Index, Any] | None = None
        self.meta: tuple[int | None, int] | None = None

    def ingest(self, events: Iterable[Event]) -> None:
        if not self.running:
            return
        self.accumulate(events)
        if self.due or self.every_call:
            self.publish()

    def publish(self) -> None:
        self.sequence += 1
        self.published += 1
        self.values = self.model.values(self.watermark)
        self.meta = (self.watermark, self.sequence)
        self.model.close_window()
        self.pending = 0
        self.due = False

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        if self.running and self.pending:
            self.publish()
        self.running = False

    def reset(self) -> None:
        self.clear()
