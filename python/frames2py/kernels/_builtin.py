"""The seven kernels: parameters, checked, and the protocol's methods; the work is done in Rust."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._events import EventArray

__all__ = [
    "BUILTIN",
    "EventCount",
    "ExpDecay",
    "Polarity",
    "StackedHistogram",
    "TimeSurface",
    "TimestampDecay",
    "VoxelGrid",
]

# The widest bin: its width times a sign still leaves the sums of any possible recording far from wrapping.
_BIN_US_LIMIT = 2**28


class _Builtin:
    """What the seven share: the kernel protocol, carried out by the compiled kernel."""

    name: str
    _native: _core.NativeKernel
    # The parameters, for repr and pickling. Not public: subclasses may use the names for attributes of their
    # own.
    _given: Mapping[str, Any] = MappingProxyType({})

    def output_spec(self, sensor_size: tuple[int, int]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of the frames for a sensor of ``(width, height)``."""
        return self._native.output_spec(sensor_size)

    def init_state(self, sensor_size: tuple[int, int]) -> _core.KernelState:
        """A new state for a sensor of ``(width, height)``; ``MemoryError`` if it cannot be allocated."""
        return self._native.init_state(sensor_size)

    def begin_call(self, state: _core.KernelState) -> None:
        """Runs once per accepted call."""
        self._native.begin_call(state)

    def accumulate(self, events: EventArray, state: _core.KernelState, watermark: int | None) -> None:
        """Takes in events, all of which must be in bounds (``ValueError``); ``watermark`` in µs or None."""
        self._native.accumulate(events, state, watermark)

    def read(self, state: _core.KernelState, out: NDArray[Any], watermark: int | None) -> None:
        """Writes the frame at ``watermark`` (µs or None) to ``out``, which must have the frame's shape
        (``ValueError``)."""
        self._native.read(state, out, watermark)

    def close_window(self, state: _core.KernelState) -> None:
        """Starts a new window if the kernel is windowed; otherwise does nothing."""
        self._native.close_window(state)

    def reset(self, state: _core.KernelState) -> None:
        """Clears the state."""
        self._native.reset(state)

    def __reduce__(self) -> tuple[Any, ...]:
        # The compiled kernel is made again from the parameters.
        attributes = {name: value for name, value in vars(self).items() if name not in ("_native", "_given")}
        return _rebuild, (type(self), dict(self._given)), attributes

    def __repr__(self) -> str:
        parameters = ", ".join(f"{name}={value!r}" for name, value in self._given.items())
        return f"{type(self).__name__}({parameters})"


_B = TypeVar("_B", bound=_Builtin)


def _rebuild(cls: type[_B], parameters: dict[str, Any]) -> _B:
    kernel = cls.__new__(cls)
    next(base for base in cls.__mro__ if base in BUILTIN).__init__(kernel, **parameters)
    return kernel


def _number(name: str, value: SupportsFloat | SupportsIndex, expected: str) -> float:
    """A real number as float64; NaN, and so out of every range, if it is not one."""
    if not isinstance(value, (bool, np.bool_, str, bytes, np.ndarray)) and isinstance(
        value, (SupportsFloat, SupportsIndex)
    ):
        try:
            return float(value)
        except OverflowError:
            return math.inf
        except (TypeError, ValueError):
            pass
    raise ValueError(f"{name} must be {expected}, got {value!r} ({type(value).__name__})")


def _integer(name: str, value: SupportsIndex, low: int, high: int | None) -> int:
    expected = f"an integer of at least {low}" if high is None else f"an integer in [{low}, {high})"
    if isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be {expected}, got the bool {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be {expected}, got {value!r} ({type(value).__name__})") from None
    if number < low or (high is not None and number >= high):
        raise ValueError(f"{name} must be {expected}, got {number}")
    return number


def _native_bins(bins: int) -> int:
    # More bins than memory has bytes cannot be allocated, however many more.
    return min(bins, sys.maxsize)


class EventCount(_Builtin):
    """Counts events per pixel.

    Frame: ``(H, W)`` uint32, windowed. Each in-bounds event adds 1 at its pixel, modulo 2**32. A window runs
    from one publication of an Engine to the next; an Accumulator's runs from construction or ``reset()``."""

    name = "event_count"
    _native = _core.NativeKernel.event_count()


class Polarity(_Builtin):
    """Counts events per pixel and polarity.

    Frame: ``(H, W, 2)`` uint32, windowed. Each in-bounds event adds 1 in channel 0 (OFF, ``p == 0``) or 1
    (ON, any other ``p``), modulo 2**32. A window runs from one publication of an Engine to the next; an
    Accumulator's runs from construction or ``reset()``."""

    name = "polarity"
    _native = _core.NativeKernel.polarity()


class TimeSurface(_Builtin):
    """Keeps the latest time per pixel: the surface of active events.

    Frame: ``(H, W)`` uint64, running. The largest ``t`` of the pixel's events, in µs; 0 means that there was
    none (or only events at time 0). See Lagorce et al., "HOTS: A Hierarchy of Event-Based Time-Surfaces for
    Pattern Recognition", TPAMI 2017, for what is made of it."""

    name = "time_surface"
    _native = _core.NativeKernel.time_surface()


class ExpDecay(_Builtin):
    """Counts events on a surface that fades by a factor per call.

    Frame: ``(H, W)`` float32, running, kept as float64. Each accepted call, an empty one included, multiplies
    the surface by ``decay`` once, then adds 1 per in-bounds event. So the frame depends on how events are
    split into calls; for fading in event time use :class:`TimestampDecay`.

    Parameters
    ----------
    decay : float
        The factor, above 0 and below 1.

    Raises
    ------
    ValueError
        ``decay`` is not a number, or not in that range.
    """

    name = "exp_decay"

    def __init__(self, decay: SupportsFloat | SupportsIndex) -> None:
        value = _number("decay", decay, "a number above 0 and below 1")
        if not 0 < value < 1:
            raise ValueError(f"decay must be a number above 0 and below 1, got {decay!r}")
        self._given = {"decay": value}
        self._native = _core.NativeKernel.exp_decay(value)


class TimestampDecay(_Builtin):
    """Counts events on a surface that fades exponentially in event time.

    Frame: ``(H, W)`` float32, running: ``D(T) = sum(exp(-(T - t_i) / tau_us))`` over the pixel's events, at
    the watermark ``T``. Independent of the events' order and of how they are split into calls, up to
    rounding: within 1 unit in the last place of the exact sum on ordinary workloads. Time differences are
    taken in integers, so absolute times of any size are fine, and so are streams that run for days.

    Parameters
    ----------
    tau_us : float
        Time constant in µs, finite and above 0.

    Raises
    ------
    ValueError
        ``tau_us`` is not a number, or not in that range.
    """

    name = "timestamp_decay"

    def __init__(self, tau_us: SupportsFloat | SupportsIndex) -> None:
        value = _number("tau_us", tau_us, "a finite number above 0")
        if not 0 < value < math.inf:
            raise ValueError(f"tau_us must be a finite number above 0, got {tau_us!r}")
        self._given = {"tau_us": value}
        self._native = _core.NativeKernel.timestamp_decay(value)


class StackedHistogram(_Builtin):
    """Counts events per polarity and time bin.

    Frame: ``(2, bins, H, W)`` uint32, running; axis 0 is polarity (0 OFF, 1 ON). Bin ``k`` is ``[k * bin_us,
    (k + 1) * bin_us)`` of absolute event time. At watermark ``T``, with ``kT = T // bin_us``, index ``j``
    shows bin ``kT - bins + j``: the last ``bins`` completed bins, oldest first; the one in progress is never
    shown, and bins before time 0 are 0. Each in-bounds event adds 1, modulo 2**32; late ones as long as their
    bin is shown. Order and batching never change a bit.

    See Gehrig and Scaramuzza, "Recurrent Vision Transformers for Object Detection with Event Cameras", CVPR
    2023, for its use.

    Parameters
    ----------
    bins : int
        Bins shown, at least 1.
    bin_us : int
        Bin width in µs, at least 1 and below 2**28.

    Raises
    ------
    ValueError
        One of them is not an integer (bools are none), or is out of range.
    """

    name = "stacked_histogram"

    def __init__(self, *, bins: SupportsIndex, bin_us: SupportsIndex) -> None:
        count, width = _integer("bins", bins, 1, None), _integer("bin_us", bin_us, 1, _BIN_US_LIMIT)
        self._given = {"bins": count, "bin_us": width}
        self._native = _core.NativeKernel.stacked_histogram(_native_bins(count), width)


class VoxelGrid(_Builtin):
    """Adds up polarity, split linearly between the two time knots around each event.

    Frame: ``(bins, H, W)`` float32, running. Knot ``k`` is at ``k * bin_us`` of absolute event time. At
    watermark ``T``, with ``kT = T // bin_us``, index ``j`` shows knot ``kT - bins + 1 + j``. An event in one
    of the ``bins - 1`` completed bins between the first and the last knot shown, at ``t = q * bin_us + r``,
    adds ``s * (bin_us - r)`` to the numerator of knot ``q`` and ``s * r`` to that of knot ``q + 1``, with
    ``s`` +1 for ON and -1 for OFF. Numerators are exact integers, modulo 2**64; the frame is
    ``float32(float64(numerator) / float64(bin_us))``. The first and the last knot get their inner side only.
    Late events count as long as their bin is shown. Order and batching never change a bit.

    After Zhu et al., "Unsupervised Event-Based Learning of Optical Flow, Depth, and Egomotion", CVPR 2019,
    with knots on a fixed grid of event time instead of one stretched to each batch.

    Parameters
    ----------
    bins : int
        Knots shown, at least 2.
    bin_us : int
        Distance between knots in µs, at least 1 and below 2**28.

    Raises
    ------
    ValueError
        One of them is not an integer (bools are none), or is out of range.
    """

    name = "voxel_grid"

    def __init__(self, *, bins: SupportsIndex, bin_us: SupportsIndex) -> None:
        count, width = _integer("bins", bins, 2, None), _integer("bin_us", bin_us, 1, _BIN_US_LIMIT)
        self._given = {"bins": count, "bin_us": width}
        self._native = _core.NativeKernel.voxel_grid(_native_bins(count), width)


BUILTIN: frozenset[type[_Builtin]] = frozenset(
    {EventCount, Polarity, TimeSurface, ExpDecay, TimestampDecay, StackedHistogram, VoxelGrid}
)
