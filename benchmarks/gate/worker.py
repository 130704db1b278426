"""A subject: one package in one process, told what to do line by line. Runs with any package of that API.

    python -m benchmarks.gate.worker FOLDER

Reads JSON objects, one a line, and answers each with one: ``{"do": "check", ...}``, ``{"do": "time", ...}``,
``{"do": "physical", ...}``, ``{"do": "tiles", ...}``, ``{"do": "play", ...}``. Rates are in events a second,
or bytes a second."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import frames2py

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from . import streams
from .cells import ACCUMULATE, BASE, BY_LABEL, CONSUMER, EACH_16_MS, EVERY, Cell, Sensor
from .oracle import checked_units
from .streams import DTYPE, Events, Feed

# Never passes: publications are made by `stop()`, which publishes what is pending, after so many events. So
# how often is published depends on the clock of the events and not on how fast a subject is.
NEVER_MS = 1e9
CONSUMER_S = 0.016

clock = time.perf_counter
# Where one thread does all the work its time is the processor's: all that the process took, the system's part
# included, and nothing that other programs took meanwhile. Two of the systems count it too coarsely.
cpu_clock = time.process_time if time.get_clock_info("process_time").resolution < 1e-6 else time.perf_counter


def touch(frame: Any) -> None:
    """Reads every byte: the largest of its 8-byte words, which NumPy finds as fast as memory delivers."""
    words = frame.reshape(-1).view(np.uint64 if frame.nbytes % 8 == 0 else np.uint32)
    words.max()


class Consumer:
    """A thread that waits for publications and touches every pixel of those it gets, every `rest` s at
    most."""

    def __init__(self, engine: Any, rest: float) -> None:
        self.engine, self.rest, self.read = engine, rest, 0
        self.error: BaseException | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            sequence = None
            due = clock()
            while not self._done.is_set():
                snapshot = self.engine.wait_for_newer(sequence, timeout=0.02)
                if snapshot is None:
                    continue
                sequence = snapshot.meta.sequence
                touch(snapshot.frame)
                self.read += 1
                del snapshot
                due = max(due + self.rest, clock())
                self._done.wait(due - clock())
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Consumer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


def make(cell: Cell) -> Any:
    kernel = cell.kernel.make(frames2py)
    if cell.level == ACCUMULATE:
        return frames2py.Accumulator(cell.sensor, kernel)
    interval = NEVER_MS if cell.cadence == EACH_16_MS else 0
    return frames2py.Engine(cell.sensor, kernel, snapshot_interval_ms=interval)


def stretch(cell: Cell, target: Any) -> Callable[[list[Events]], None]:
    """What is timed: takes whole units of calls."""
    per_unit = cell.calls_per_publication
    if cell.level == ACCUMULATE:
        take = target.accumulate
    else:
        take, snapshot, stop, start = target.ingest, target.snapshot, target.stop, target.start

    def only(batches: list[Events]) -> None:
        for batch in batches:
            take(batch)

    def only_and_read(batches: list[Events]) -> None:
        for batch in batches:
            take(batch)
            touch(snapshot().frame)

    def with_publication(batches: list[Events], read: bool = False) -> None:
        for i in range(0, len(batches), per_unit):
            for batch in batches[i : i + per_unit]:
                take(batch)
            stop()
            start()
            if read:
                touch(snapshot().frame)

    every = cell.reading == EVERY
    if cell.cadence == EACH_16_MS:
        return (lambda batches: with_publication(batches, True)) if every else with_publication
    return only_and_read if every else only


class Subject:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.feeds: dict[object, Feed] = {}
        self.state: tuple[object, ...] | None = None
        self.target: Any = None

    def feed(self, kind: str, sensor: Sensor) -> Feed:
        key = (kind, sensor)
        if key not in self.feeds:
            self.feeds[key] = Feed(streams.load(self.folder, kind, sensor))
        return self.feeds[key]

    def prepare(self, cell: Cell, feed: Feed) -> None:
        """An Engine or Accumulator in mid-stream: one that shows time bins has seen all of them."""
        if self.state == cell.state:
            return
        self.state = self.target = None  # the old frames' memory first
        self.target = make(cell)
        if cell.kernel.window_us:
            call = feed.window(cell.kernel.window_us + cell.kernel.bin_us)
            (self.target.accumulate if cell.level == ACCUMULATE else self.target.ingest)(call)
        elif cell.cadence == EACH_16_MS:
            self.target.ingest(feed.batches(cell.events, 1, 1)[0])  # the first call always publishes
        self.state = cell.state

    def check(self, cell: Cell, out: str) -> dict[str, Any]:
        """Feeds the cell's check and writes what is shown to files, for the oracle to judge."""
        self.state = self.target = None
        events, units = streams.for_check(self.feed(cell.kind, cell.sensor).events, cell)
        target = make(cell)
        if cell.level == ACCUMULATE:
            run = stretch(cell, target)
            run([events[i : i + cell.events] for i in range(0, len(events), cell.events)])
            path = f"{out}-{units}.npy"
            np.save(path, target.read())
            frames = [(units, path)]
            return {
                "frames": frames,
                "watermark": target.watermark,
                "out_of_bounds": target.events_out_of_bounds,
                "published": None,
            }
        run = stretch(cell, target)
        wanted = checked_units(cell, units)
        frames = []

        def feed_all() -> None:
            for unit in range(units):
                first = unit * cell.unit
                run([events[i : i + cell.events] for i in range(first, first + cell.unit, cell.events)])
                if unit + 1 in wanted:
                    path = f"{out}-{unit + 1}.npy"
                    np.save(path, target.snapshot().frame)
                    frames.append((unit + 1, path))

        if cell.reading == CONSUMER:
            with Consumer(target, 0):
                feed_all()
        else:
            feed_all()
        stats = target.stats
        return {
            "frames": frames,
            "watermark": target.snapshot().meta.watermark,
            "out_of_bounds": stats.events_out_of_bounds,
            "published": stats.snapshots_published,
        }

    def time(self, cell: Cell, budget: float) -> dict[str, Any]:
        feed = self.feed(cell.kind, cell.sensor)
        self.prepare(cell, feed)
        run = stretch(cell, self.target)
        per_unit = cell.calls_per_publication
        if cell.reading == CONSUMER:
            with Consumer(self.target, CONSUMER_S) as consumer:
                result = timed(run, feed, cell.events, per_unit, budget, clock)
            return {**result, "read": consumer.read}
        return timed(run, feed, cell.events, per_unit, budget)

    def physical(self, what: str, size: int, budget: float) -> dict[str, Any]:
        """Bytes a second: of a pass that only reads a batch, of copying, clearing and looking at a frame."""
        if what == "read":
            feed = self.feed("uniform", (346, 260))
            result = timed(read_pass, feed, size, 1, budget)
            return {"rate": result["rate"] * DTYPE.itemsize}
        source, target = np.ones(size // 8, np.uint64), np.ones(size // 8, np.uint64)
        works: dict[str, Callable[[], object]] = {
            "memcpy": lambda: np.copyto(target, source),
            # The C library's, which NumPy does not use to fill.
            "memset": lambda: ctypes.memset(target.ctypes.data, 0, target.nbytes),
            "look": lambda: touch(source),
        }
        work = works[what]
        return {"rate": size / seconds_per_call(work, budget)}

    def tiles(self, sensor: Sensor, budget: float) -> dict[str, Any]:
        """Seconds of publishing a time surface of which a sixteenth of the rows changed, and of copying it.

        Publishing: what a call costs that publishes, less what the same call costs that does not."""
        width, height = sensor
        rng = np.random.default_rng(2)
        calls = []
        for i in range(64):
            call = np.zeros(1_000, DTYPE)
            call["t"] = BASE + i
            call["x"] = rng.integers(0, width, len(call))
            call["y"] = height // 2 + rng.integers(0, height // 16, len(call))
            calls.append(call)
        seconds = []
        for interval in (0, NEVER_MS):
            engine = frames2py.Engine(sensor, "time_surface", snapshot_interval_ms=interval)
            whole = np.zeros(width * height, DTYPE)
            whole["t"], whole["x"] = BASE, np.arange(len(whole)) % width
            whole["y"] = np.arange(len(whole)) // width
            engine.ingest(whole)
            for call in calls:
                engine.ingest(call)

            def work(ingest: Any = engine.ingest) -> None:
                for call in calls:
                    call["t"] += np.uint64(1)
                    ingest(call)

            seconds.append(seconds_per_call(work, budget) / len(calls))
        frame = np.ones(width * height, np.uint64)
        copy = np.ones_like(frame)
        return {
            "publication": seconds[0] - seconds[1],
            "memcpy": seconds_per_call(lambda: np.copyto(copy, frame), budget),
        }

    def play(
        self, path: str, has_geometry: bool, label: str, sensor: Sensor, batch: int, how: str, out: str
    ) -> dict[str, Any]:
        """Events a second from opening a RAW file to the last of its frames, a publication on every call."""
        from frames2py.adapters import evt

        self.state = self.target = None
        sensor = (sensor[0], sensor[1])
        kernel = BY_LABEL[label].make(frames2py)
        engine = frames2py.Engine(sensor, kernel, snapshot_interval_ms=0)
        began = clock()
        reader = evt.open(path, sensor_size=None if has_geometry else sensor, batch_size=batch)
        if how == "native":
            engine.play(reader).join()
        else:
            with reader:
                for events in reader:
                    engine.ingest(events)
        took = clock() - began
        np.save(out, engine.snapshot().frame)
        return {"rate": engine.stats.events_ingested / took}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        do = request.pop("do")
        if "cell" in request:
            request["cell"] = Cell.from_json(request["cell"])
        if do == "versions":
            return {
                "frames2py": getattr(frames2py, "__version__", "?"),
                "numpy": np.__version__,
                "python": sys.version.split()[0],
            }
        work: dict[str, Callable[..., dict[str, Any]]]
        work = {"check": self.check, "time": self.time, "physical": self.physical, "tiles": self.tiles}
        work["play"] = self.play
        return work[do](**request)


def read_pass(batches: list[Events]) -> None:
    """Looks at every byte of each batch but its last few: the largest of its 8-byte words."""
    for batch in batches:
        batch.view(np.uint8)[: batch.nbytes // 8 * 8].view(np.uint64).max()


# Units in a row that took no more pages than Python does.
CALM, FEW_FAULTS = 12, 8


def page_faults() -> int:
    """Pages that this process took from the system so far; 0 where nobody counts."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt if resource else 0


def timed(
    run: Callable[[list[Events]], None],
    feed: Feed,
    size: int,
    per_unit: int,
    budget: float,
    clock: Callable[[], float] = cpu_clock,
) -> dict[str, Any]:
    """Runs units for about `budget` seconds. Only the runs count, not making batches.

    Before, units run until a dozen took no new memory from the system, or for as long: asked for is the rate
    of a long stream, not the time in which memory is had."""
    warming, calm = 0.0, 0
    while calm < CALM and warming < budget:
        batches = feed.batches(size, per_unit, 1)
        faults = page_faults()
        began = clock()
        run(batches)
        estimate = clock() - began
        warming += estimate
        calm = 0 if page_faults() - faults > FEW_FAULTS else calm + 1
    spent, events = 0.0, 0
    gc.collect()
    while spent < budget:
        units = max(1, int(min(budget - spent, budget / 2) / max(estimate, 1e-9)))
        batches = feed.batches(size, per_unit, units)
        began = clock()
        run(batches)
        took = clock() - began
        spent += took
        events += len(batches) * size
        estimate = took / (len(batches) / per_unit)
    return {"rate": events / spent, "calls": events // size}


def seconds_per_call(work: Callable[[], object], budget: float) -> float:
    work()
    spent, calls = 0.0, 0
    while spent < budget:
        began = cpu_clock()
        for _ in range(4):
            work()
        spent += cpu_clock() - began
        calls += 4
    return spent / calls


def main() -> None:
    # Answers go where standard output went; whatever a package prints does not mix with them.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    subject = Subject(Path(sys.argv[1]))
    for line in sys.stdin:
        try:
            answer = subject.answer(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
