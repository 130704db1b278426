"""Playing events at their own pace."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from .._events import EventArray

__all__ = ["paced", "sliced"]

FOR_EVER_NS = 1e18  # 31 years: a speed near 0 must not overflow


def sliced(batches: Iterable[EventArray], slice_us: int) -> Iterator[EventArray]:
    """Cut batches, in file order, so that each piece spans at most `slice_us` of stream time.

    A reader's batch may span a second of a quiet recording; played whole, the picture would stand
    still for that second. Stream time is the largest timestamp so far, so an event that is late
    stays with its neighbours. Only the first piece ends before an event that is much earlier than
    its own: the piece's smallest timestamp is where playback begins to count. Pieces are views.
    """
    newest = 0
    first = True
    for batch in batches:
        if len(batch) == 0:
            continue
        reached = np.maximum(np.maximum.accumulate(batch["t"]), np.uint64(newest))
        newest = int(reached[-1])
        cell = (reached - reached[0]) // np.uint64(slice_us)
        cuts = (np.flatnonzero(cell[1:] != cell[:-1]) + 1).tolist()
        if first:
            earlier = reached[0] - np.minimum(batch["t"], reached[0])
            cuts = sorted({*cuts, *np.flatnonzero(earlier >= slice_us)[:1].tolist()})
            first = False
        start = 0
        for stop in (*cuts, len(batch)):
            yield batch[start:stop]
            start = stop


def paced(
    batches: Iterable[EventArray],
    *,
    speed: float,
    sleep: Callable[[float], Any],
    clock: Callable[[], int] = time.monotonic_ns,
) -> Iterator[EventArray]:
    """Yield each batch when its stream time has passed, `speed` times as fast as recorded.

    A batch is due when `(M - t0) / speed` microseconds have passed since the first one was
    reached: M is the largest timestamp up to and with this batch, t0 the smallest of the first.
    Times that step back are due at once; nothing drifts.
    """
    began: int | None = None
    first = newest = 0
    for batch in batches:
        if len(batch):
            if began is None:
                began, first = clock(), int(batch["t"].min())
            newest = max(newest, int(batch["t"].max()))
            due = began + math.ceil(min((newest - first) * 1000 / speed, FOR_EVER_NS))
            while (left := due - clock()) > 0:
                sleep(min(left / 1e9, 3600.0))
        yield batch
