"""What `codecs` lets its child processes do, besides reading: they have frames2py and NumPy.

    python codecs_child.py aedat4 RECORDING OUT        writes a long recording
    python codecs_child.py h5 RECORDING OUT
    python codecs_child.py raw RECORDING OUT BYTES
    python codecs_child.py memory FILE WIDTH HEIGHT    reads a file once
    python codecs_child.py index FILE ROUNDS           decodes and indexes a file in turn, and seeks in it
    python codecs_child.py play FILE WIDTH HEIGHT ROUNDS    decodes and plays a file in turn

Each answers with a line of JSON."""

from __future__ import annotations

import ctypes
import gc
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import frames2py

SEEKS = 200


def longer(recording: str, times: int) -> tuple[Any, int]:
    """The events of a recording so many times in a row, from time 0 on, and their first time."""
    events = np.concatenate(
        list(frames2py.open(recording, sensor_size=(640, 480) if ".evt2" in recording else None))
    )
    first = int(events["t"].min())
    span = int(events["t"].max()) - first + 1
    all_of_them = np.tile(events, times)
    all_of_them["t"] += np.repeat(np.arange(times, dtype="u8") * np.uint64(span), len(events)) - np.uint64(
        first
    )
    return all_of_them, first


def sums(events: Any, offset: int = 0) -> dict[str, int]:
    t = int(events["t"].sum(dtype="u8")) + offset * len(events)
    counts = {"events": len(events), "on": int((events["p"] != 0).sum()), "sum_t": t % 2**64}
    return counts | {f"sum_{name}": int(events[name].sum(dtype="u8")) for name in "xy"}


def aedat4(recording: str, out: str) -> dict[str, int]:
    events, _ = longer(recording, 3)
    # Packets of 10,000, which at this rate are some 30 ms.
    parts = (events[i : i + 10_000] for i in range(0, len(events), 10_000))
    frames2py.save(out, parts, sensor_size=(1280, 720), format="aedat4")
    return sums(events)


def dsec(recording: str, out: str) -> dict[str, int]:
    import h5py
    import hdf5plugin

    events, first = longer(recording, 10)
    packed = hdf5plugin.Blosc(cname="zstd", clevel=1, shuffle=hdf5plugin.Blosc.SHUFFLE)
    with h5py.File(out, "w") as file:
        for name, dtype in (("t", "u4"), ("x", "u2"), ("y", "u2"), ("p", "u1")):
            file.create_dataset(f"events/{name}", data=events[name].astype(dtype), chunks=(16384,), **packed)
        file["t_offset"] = np.int64(first)
    return sums(events, first)


def raw(recording: str, out: str, size: str) -> dict[str, int]:
    """Its clock overflows every 16.8 s; the body again is a later time of it."""
    content = Path(recording).read_bytes()
    head = re.match(rb"(%[^\n]*\n)*", content)
    assert head is not None
    body = content[head.end() :]
    times = -(-int(size) // len(body))
    with open(out, "wb") as file:
        file.write(head[0])
        for _ in range(times):
            file.write(body)
    return {"times": times}


def resident(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def memory(path: str, width: str, height: str) -> dict[str, int]:
    """The most memory in use while a file is read, above that before, and the size of a batch."""

    def read() -> int:
        largest = 0
        for batch in frames2py.open(path, sensor_size=(int(width), int(height))):
            largest = max(largest, batch.nbytes)
        return largest

    # What opening imports is not of the reading.
    frames2py.open(path, sensor_size=(int(width), int(height))).close()
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = resident("VmRSS")
    batch = read()
    return {"above": resident("VmHWM") - before, "batch": batch}


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def play(path: str, width: str, height: str, rounds: str) -> dict[str, float]:
    """How fast a file is played: from opening it to the last of its frames, at 16 ms, beside decoding it."""
    size = (int(width), int(height))

    def decode() -> None:
        for _ in frames2py.open(path, sensor_size=size):
            pass

    ratios, decoding = [], []
    for _ in range(int(rounds)):
        decoding.append(seconds(decode))
        engine = frames2py.Engine(size, "event_count")
        playing = seconds(lambda engine=engine: engine.play(frames2py.open(path, sensor_size=size)).join())  # type: ignore[misc]
        ratios.append(decoding[-1] / playing)
    return {
        "events": engine.stats.events_ingested,
        "decode": statistics.median(decoding),
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
    }


def index(path: str, rounds: str) -> dict[str, float]:
    def decode() -> None:
        for _ in frames2py.open(path):
            pass

    ratios, decoding = [], []
    for _ in range(int(rounds)):
        decoding.append(seconds(decode))
        reader = frames2py.open(path)
        ratios.append(seconds(reader.build_index) / decoding[-1])
    totals = reader.totals
    draw = random.Random(1)
    seeks = []
    for t in (draw.randint(totals.t_min, totals.t_max) for _ in range(SEEKS)):
        start = time.perf_counter()
        reader.seek(t)
        batch = next(iter(reader))
        seeks.append(time.perf_counter() - start)
        assert (batch["t"] >= t).any(), "a seek that leads elsewhere"
    return {
        "decode": statistics.median(decoding),
        "ratio": statistics.median(ratios),
        "seek": statistics.median(seeks),
        "slowest_seek": max(seeks),
    }


DOES: dict[str, Callable[..., dict[str, Any]]] = {
    "aedat4": aedat4,
    "h5": dsec,
    "raw": raw,
    "memory": memory,
    "index": index,
    "play": play,
}

if __name__ == "__main__":
    print(json.dumps(DOES[sys.argv[1]](*sys.argv[2:])))
