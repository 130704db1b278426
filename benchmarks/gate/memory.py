"""How much memory calls take beyond what they keep, in a process of its own; Linux only.

    python -m benchmarks.gate.memory KERNEL LEVEL

Prints the largest growth of the address space during a call of a million events, in bytes, after calls of
a thousand and of a hundred thousand: frames and copies of the state that an engine takes turns in are there
then. glibc is told to map every allocation of 64 KiB or more by itself and to give memory back at once, so
that the growth is that of what is allocated, to the page; smaller allocations may fit in holes of the heap
and are then not seen. What the call keeps for later calls counts, too."""

from __future__ import annotations

import mmap
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

LEVELS = ("accumulate", "engine")
ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "0",
    "MALLOC_TOP_PAD_": "0",
    "MALLOC_ARENA_MAX": "1",
}
SENSOR = (640, 480)


def size_and_peak() -> tuple[int, int]:
    """Of the address space, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = [re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE) for name in ("VmSize", "VmPeak")]
    assert found[0] and found[1]
    return int(found[0][1]) * 1024, int(found[1][1]) * 1024


def growth(call: Callable[[Any], object], argument: Any) -> int:
    """By how much the address space grows at most while `call(argument)` runs."""
    size, peak = size_and_peak()
    # The peak of before must not hide that of the call: so be at the peak.
    filler = mmap.mmap(-1, peak - size) if peak > size else None
    size, _ = size_and_peak()
    call(argument)
    _, peak = size_and_peak()
    del filler
    return peak - size


def main(label: str, level: str) -> int:
    import frames2py

    from .cells import BY_LABEL
    from .streams import synthetic

    kernel = BY_LABEL[label].make(frames2py)
    # What comes later is later.
    sizes = [1_000] * 20 + [100_000] * 10
    events = synthetic("uniform", SENSOR, sum(sizes) + 1_000_000)
    if level == "engine":
        call = frames2py.Engine(SENSOR, kernel, snapshot_interval_ms=0).ingest
    else:
        call = frames2py.Accumulator(SENSOR, kernel).accumulate
    first = 0
    for size in sizes:
        call(events[first : first + size])
        first += size
    return growth(call, events[first:])


if __name__ == "__main__":
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") != "0":  # read when the process starts
        os.execve(
            sys.executable,
            [sys.executable, "-m", "benchmarks.gate.memory", *sys.argv[1:]],
            os.environ | ENVIRONMENT,
        )
    print(main(*sys.argv[1:]))
