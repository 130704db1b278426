"""From a ``kernel`` argument to what drives it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .. import _core
from ._builtin import BUILTIN, EventCount, Polarity, TimeSurface
from ._protocol import Kernel

_NAMED = {kernel.name: kernel for kernel in (EventCount, Polarity, TimeSurface)}
_METHODS = frozenset(name for name in vars(Kernel) if not name.startswith("_") and name != "name")


def resolve(kernel: object) -> _core.NativeKernel | Kernel:
    """The compiled kernel if the argument is one of the seven as they are, else the object itself.

    A subclass, and an instance with a method of its own, is driven through its methods like any other Python
    kernel."""
    if isinstance(kernel, str):
        if kernel not in _NAMED:
            names = ", ".join(repr(name) for name in _NAMED)
            raise ValueError(
                f"kernel: no kernel is named {kernel!r}; the names are {names}."
                " Kernels with parameters are passed as instances, such as ExpDecay(0.9)"
            )
        return _NAMED[kernel]()._native
    if isinstance(kernel, type):
        raise TypeError(
            f"kernel must be an instance, got the class {kernel.__name__}:"
            f" instantiate it, as in {kernel.__name__}(...)"
        )
    if type(kernel) in BUILTIN and _METHODS.isdisjoint(vars(kernel)):
        return kernel._native  # type: ignore[attr-defined, no-any-return]
    missing = sorted(name for name in _METHODS if not callable(getattr(kernel, name, None)))
    if missing:
        raise TypeError(
            "kernel must be a name or have the methods of frames2py.kernels.Kernel,"
            f" got {type(kernel).__name__} without {', '.join(missing)}"
        )
    return kernel  # type: ignore[return-value]


def output_spec(kernel: Kernel, sensor_size: tuple[int, int]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """What a Python kernel says its frames are, in NumPy's normal form."""
    spec: Any = kernel.output_spec(sensor_size)
    try:
        shape, dtype = spec
        return frame_spec(shape, dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"kernel: output_spec() must return (shape, dtype), got {spec!r}: {error}"
        ) from error


def frame_spec(shape: int | Iterable[int], dtype: DTypeLike) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype as an array has them: the axes of a sub-array dtype are axes of the array."""
    normal = np.dtype(dtype)
    # A view of one element knows what NumPy makes of the shape, without memory for it.
    outer = np.broadcast_to(np.empty((), np.uint8), shape).shape
    return outer + normal.shape, normal.base
