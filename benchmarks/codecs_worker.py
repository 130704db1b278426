"""Reads recordings with one package, again and again: started by `codecs`, which tells it what to
read.

    python codecs_worker.py READER

A line of a format, a width, a height and a path, with tabs between, is answered by a line of JSON:
the seconds that opening the file and getting all of its events as arrays took. With `check` before
it, the answer is the number of events and the sums of their fields. Batches are let go as they
come, as by somebody who looks at each of them once."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# Made of a format, a size and a path: the arrays, and how to get t, x, y and p from one.
Read = Callable[[str, tuple[int, int], str], Iterable[Any]]
Columns = Callable[[Any], tuple[Any, Any, Any, Any]]


def records(*names: str) -> Columns:
    return lambda array: tuple(array[name] for name in names)  # type: ignore[return-value]


def frames2py() -> tuple[Read, Columns]:
    import importlib

    modules = {
        "EVT 2.0": "evt",
        "EVT 3.0": "evt",
        "DAT": "dat",
        "ES": "es",
        "AEDAT 4": "aedat4",
        "DSEC": "hdf5",
    }

    def read(kind: str, size: tuple[int, int], path: str) -> Iterable[Any]:
        adapter = importlib.import_module(f"frames2py.adapters.{modules[kind]}")
        if kind == "DSEC":
            return adapter.open(path, group="events", t_offset="/t_offset", sensor_size=size)
        return adapter.open(path, sensor_size=size)

    return read, records("t", "x", "y", "p")


def evt3() -> tuple[Read, Columns]:
    import evt3

    def read(kind: str, size: tuple[int, int], path: str) -> Iterable[Any]:
        return [evt3.decode_file(path)]

    return read, lambda events: (events.timestamp, events.x, events.y, events.polarity)


def evt3_batches() -> tuple[Read, Columns]:
    import evt3

    def read(kind: str, size: tuple[int, int], path: str) -> Iterable[Any]:
        return evt3.decode_file_batches(path)

    return read, lambda events: (events.timestamp, events.x, events.y, events.polarity)


def faery() -> tuple[Read, Columns]:
    import faery

    def read(kind: str, size: tuple[int, int], path: str) -> Iterable[Any]:
        return faery.events_stream_from_file(path, dimensions_fallback=size)

    return read, records("t", "x", "y", "on")


def expelliarmus() -> tuple[Read, Columns]:
    import expelliarmus

    names = {"EVT 2.0": "evt2", "EVT 3.0": "evt3", "DAT": "dat"}

    def read(kind: str, size: tuple[int, int], path: str) -> Iterable[Any]:
        return [expelliarmus.Wizard(encoding=names[kind]).read(path)]

    return read, records("t", "x", "y", "p")


def evutils() -> tuple[Read, Columns]:
    from evutils.io import EventReader

    def read(kind: str, size: tuple[int, int], path: str) -> Iterable[Any]:
        reader = EventReader(
            path, width=size[0], height=size[1], index=False, max_events=2**40, max_time=2**62
        )
        return [reader.read_all()]

    return read, lambda events: (events.t, events.x, events.y, events.p)


def dv_processing() -> tuple[Read, Columns]:
    import dv_processing

    def read(kind: str, size: tuple[int, int], path: str) -> Iterator[Any]:
        recording = dv_processing.io.MonoCameraRecording(path)
        while (events := recording.getNextEventBatch()) is not None:
            yield events.numpy()

    return read, records("timestamp", "x", "y", "polarity")


def aestream() -> tuple[Read, Columns]:
    import aestream

    def read(kind: str, size: tuple[int, int], path: str) -> Iterable[Any]:
        return [aestream.FileInput(path, size).load()]

    return read, records("timestamp", "x", "y", "polarity")


READERS = {
    "frames2py": frames2py,
    "frames2py-1.1.0": frames2py,
    "evt3": evt3,
    "evt3-batches": evt3_batches,
    "faery": faery,
    "expelliarmus": expelliarmus,
    "evutils": evutils,
    "dv-processing": dv_processing,
    "aestream": aestream,
}


def sums(arrays: Iterable[Any], columns: Columns) -> dict[str, int]:
    found = {"events": 0, "on": 0, "sum_t": 0, "sum_x": 0, "sum_y": 0}
    for array in arrays:
        t, x, y, p = columns(array)
        found["events"] += len(t)
        found["on"] += int((p != 0).sum())
        found["sum_t"] = (found["sum_t"] + int(t.astype("u8").sum(dtype="u8"))) % 2**64
        found["sum_x"] += int(x.sum(dtype="u8"))
        found["sum_y"] += int(y.sum(dtype="u8"))
    return found


def main() -> None:
    read, columns = READERS[sys.argv[1]]()
    for line in sys.stdin:
        check = line.startswith("check ")
        kind, width, height, path = line.removeprefix("check ").rstrip("\n").split("\t")
        size = (int(width), int(height))
        try:
            answer: dict[str, Any]
            if check:
                answer = sums(read(kind, size, path), columns)
            else:
                start = time.perf_counter()
                for _ in read(kind, size, path):
                    pass
                answer = {"seconds": time.perf_counter() - start}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
