"""The kernel protocol."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .._events import EventArray

__all__ = ["Kernel"]


@runtime_checkable
class Kernel(Protocol):
    """What an Engine or an Accumulator needs of a kernel. Any object with these members is one.

    A kernel object holds parameters; what it accumulates is in the state that it makes. Its methods are
    called on the thread that ingests (``reset`` and the publication of ``stop()``: on the thread that asks
    for those), one at a time for one state. What a method raises comes out of the call that led to it. A
    kernel must not call back into the Engine that runs it, except to read from it."""

    @property
    def name(self) -> str:
        """What to call it."""
        ...

    def output_spec(self, sensor_size: tuple[int, int]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of its frames for a sensor of ``(width, height)``. The dtype must not hold Python
        objects."""
        ...

    def init_state(self, sensor_size: tuple[int, int]) -> Any:
        """A new state for a sensor of ``(width, height)``."""
        ...

    def begin_call(self, state: Any) -> None:
        """Runs once per accepted call, also for one without in-bounds events."""
        ...

    def accumulate(self, events: EventArray, state: Any, watermark: int | None) -> None:
        """Takes in the in-bounds events of a call; not called when there are none.

        ``events`` is the caller's own array if all of it is in bounds (treat it as read-only and do not keep
        it), else a new one of the same dtype. ``watermark``, in µs, already includes this call."""
        ...

    def read(self, state: Any, out: NDArray[Any], watermark: int | None) -> None:
        """Writes the whole frame at ``watermark`` to ``out``, whose content is not defined, and leaves the
        state as it is.

        ``watermark`` may be later than the one of the events; it is None before the first in-bounds event.
        """
        ...

    def close_window(self, state: Any) -> None:
        """Runs after the ``read`` of each publication. Starts a new window, if the kernel has windows."""
        ...

    def reset(self, state: Any) -> None:
        """Back to what ``init_state`` returned."""
        ...
