"""One playback: a producer, an Engine, three consumers and the table."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import EVENT_DTYPE, Engine
from .._events import EventArray
from ..kernels import EventCount, Kernel, Polarity
from ..publish import Snapshot
from .consumers import Consumer, Publications, Sampling, Slow, Waiting
from .errors import UsageError
from .pacing import paced, sliced
from .table import LiveTable

__all__ = ["Outcome", "play"]

SLICE_US = 5_000  # of wall time: playback moves at least 200 times a second


class _Stopped(Exception):
    """Raised inside the producer's pacing when the playback is over."""


@dataclass(frozen=True)
class Outcome:
    """How a playback ended."""

    snapshot: Snapshot | None  # the one to draw; None only after a failure
    interrupted: bool
    failure: BaseException | None


def play(
    source: Iterable[EventArray],
    sensor_size: tuple[int, int],
    kernel: Kernel,
    *,
    title: str,
    interval_ms: float,
    speed: float = 1.0,
) -> Outcome:
    """Play `source` at its own pace through an Engine, with three consumers, and show it.

    Returns when the source is exhausted or fails, or on Ctrl-C, after printing the summary.
    """
    try:
        engine = Engine(sensor_size, kernel, snapshot_interval_ms=interval_ms)
    except ValueError as error:
        raise UsageError(str(error)) from None
    producer = _Producer(engine, source, speed, windowed=isinstance(kernel, (EventCount, Polarity)))
    consumers = [kind(engine, producer.publications, producer.ended) for kind in (Waiting, Sampling, Slow)]
    report = _Report(f"{title}, {kernel.name}, {sensor_size[0]}x{sensor_size[1]}", engine, consumers)
    table = LiveTable(report.rows, report.line)
    threads = (producer, *consumers)
    interrupted = False
    for thread in threads:
        thread.start()
    try:
        while not producer.ended.wait(table.interval):
            table.update()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        producer.stop.set()
        for thread in threads:
            thread.join()
    table.clear()
    print("\n".join(report.summary(producer.ended_at)), flush=True)
    failure = next((thread.failure for thread in threads if thread.failure is not None), None)
    return Outcome(producer.picture, interrupted, failure)


class _Producer(threading.Thread):
    """Feeds the Engine; the only thread that does."""

    def __init__(self, engine: Engine, source: Iterable[EventArray], speed: float, *, windowed: bool):
        super().__init__(name="frames2py producer", daemon=True)
        self.stop = threading.Event()
        self.ended = threading.Event()
        self.ended_at = 0.0
        self.publications = Publications()
        self.picture: Snapshot | None = None
        self.failure: BaseException | None = None
        self._engine = engine
        self._source = source
        self._speed = speed
        self._windowed = windowed

    def run(self) -> None:
        """Play until the source is exhausted, fails, or `stop` is set."""
        try:
            self._play()
        except BaseException as error:  # the main thread tells it
            self.failure = error
        finally:
            self.ended_at = time.perf_counter()
            self.ended.set()

    def _play(self) -> None:
        try:
            pieces = sliced(self._source, round(min(max(SLICE_US * self._speed, 1.0), 1e18)))
            for piece in paced(pieces, speed=self._speed, sleep=self._sleep):
                if self.stop.is_set():
                    break
                self._ingest(piece)
        except _Stopped:
            pass
        finally:
            self._finish()

    def _sleep(self, seconds: float) -> None:
        if self.stop.wait(seconds):
            raise _Stopped

    def _ingest(self, events: EventArray) -> None:
        began_ns = time.perf_counter_ns()
        self._engine.ingest(events)
        self._record(began_ns)

    def _record(self, began_ns: int) -> None:
        latest = self._engine.snapshot()
        if latest is not None and latest.meta.sequence != self.publications.newest:
            self.publications.record(latest.meta.sequence, began_ns)

    def _finish(self) -> None:
        if self._engine.snapshot() is None:  # there was no event at all: publish that
            self._ingest(np.empty(0, EVENT_DTYPE))
        whole = self._engine.stats.snapshots_published > 1
        last = self._engine.snapshot()
        began_ns = time.perf_counter_ns()
        self._engine.stop()
        self._record(began_ns)
        # stop() publishes what is pending. For a windowed kernel that is a fragment of a window, and
        # the window before it makes the better picture.
        self.picture = last if self._windowed and whole else self._engine.snapshot()


class _Report:
    """What the table and the summary say."""

    def __init__(self, title: str, engine: Engine, consumers: Sequence[Consumer]) -> None:
        self._title = title
        self._engine = engine
        self._consumers = consumers
        self._began = time.perf_counter()
        # Counts a second ago, for rates: (time, [events, snapshots, seen per consumer]).
        self._marks: deque[tuple[float, list[int]]] = deque([self._mark()])

    def rows(self) -> list[str]:
        """The table, for a terminal."""
        elapsed, (events, snapshots, *seen) = self._rates()
        return [
            self._title,
            f"{elapsed:6.1f} s  {events:10.0f} events/s  {snapshots:6.1f} snapshots/s",
            *self._consumer_rows(seen),
        ]

    def line(self) -> str:
        """The same in one line."""
        elapsed, (events, snapshots, *_) = self._rates()
        parts = [f"{elapsed:.1f} s: {events:.0f} events/s, {snapshots:.1f} snapshots/s"]
        parts += [f"{c.label}: {c.seen} seen, age {_ms(c.mean_age_ms)}" for c in self._consumers]
        return " | ".join(parts)

    def summary(self, ended_at: float) -> list[str]:
        """The whole playback, which ended at `ended_at`."""
        stats = self._engine.stats
        events, snapshots = stats.events_ingested, stats.snapshots_published
        elapsed = max(ended_at - self._began, 1e-9)
        return [
            f"{self._title}, {elapsed:.2f} s",
            f"events ingested: {events} ({events / elapsed:.0f} per s)",
            f"out of bounds: {stats.events_out_of_bounds}",
            f"snapshots published: {snapshots} ({snapshots / elapsed:.1f} per s)",
            *self._consumer_rows([consumer.seen / elapsed for consumer in self._consumers]),
            "age: from the start of the call that published a snapshot until the consumer had it",
        ]

    def _consumer_rows(self, rates: Sequence[float]) -> list[str]:
        return [f"{'consumer':<16}{'seen':>8}{'per s':>8}{'mean age':>12}{'longest':>12}"] + [
            f"{c.label:<16}{c.seen:>8}{rate:>8.1f}{_ms(c.mean_age_ms):>12}{_ms(c.longest_age_ms):>12}"
            for c, rate in zip(self._consumers, rates, strict=True)
        ]

    def _mark(self) -> tuple[float, list[int]]:
        stats = self._engine.stats
        counts = [stats.events_ingested, stats.snapshots_published, *(c.seen for c in self._consumers)]
        return time.perf_counter(), counts

    def _rates(self) -> tuple[float, list[float]]:
        """Seconds since the start, and counts per second over about the last second."""
        now, counts = self._mark()
        self._marks.append((now, counts))
        while len(self._marks) > 2 and self._marks[1][0] <= now - 1.0:
            self._marks.popleft()
        then, earlier = self._marks[0]
        seconds = max(now - then, 1e-9)
        return now - self._began, [(a - b) / seconds for a, b in zip(counts, earlier, strict=True)]


def _ms(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.2f} ms"
