"""Times calls of `ingest()`, alone and beside a thread that is busy in Python, and prints them as JSON.

    python detach_worker.py events COUNT       calls of so many events, published every 16 ms
    python detach_worker.py frames HEIGHT      calls of one event, each publishing a frame 1024 pixels wide

Microseconds: the median call alone, the mean call alone and beside the busy thread.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time

import numpy as np

import frames2py

SECONDS = 0.4


def setting(what: str, size: int) -> tuple[frames2py.Engine, np.ndarray]:
    if what == "frames":
        return frames2py.Engine((1024, size), snapshot_interval_ms=0), np.zeros(1, frames2py.EVENT_DTYPE)
    rng = np.random.default_rng(1)
    batch = np.zeros(size, frames2py.EVENT_DTYPE)
    batch["x"], batch["y"] = rng.integers(0, 346, size), rng.integers(0, 260, size)
    batch["p"], batch["t"] = rng.integers(0, 2, size), np.arange(size)
    return frames2py.Engine((346, 260), snapshot_interval_ms=16.0), batch


def calls(engine: frames2py.Engine, batch: np.ndarray) -> list[int]:
    """The time of each call, in ns."""
    for _ in range(3):
        engine.ingest(batch)
    times = []
    end = time.perf_counter_ns() + int(SECONDS * 1e9)
    while (began := time.perf_counter_ns()) < end:
        engine.ingest(batch)
        times.append(time.perf_counter_ns() - began)
    return times


def spin(done: threading.Event) -> None:
    total = 0
    while not done.is_set():
        for i in range(1000):
            total += i


def main() -> None:
    engine, batch = setting(sys.argv[1], int(sys.argv[2]))
    alone = calls(engine, batch)
    done = threading.Event()
    busy = threading.Thread(target=spin, args=(done,))
    busy.start()
    beside = calls(engine, batch)
    done.set()
    busy.join()
    times = {
        "alone_p50": statistics.median(alone),
        "alone": statistics.fmean(alone),
        "beside": statistics.fmean(beside),
    }
    print(json.dumps({name: value / 1e3 for name, value in times.items()}))


if __name__ == "__main__":
    main()
