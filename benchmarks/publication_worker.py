"""Measures one thing in one process and prints a number. Runs with either package: it uses what both have.

    python publication_worker.py MEASURE

All times are in nanoseconds, all rates in events a second.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import frames2py

SECONDS = 0.6
SIZE = (346, 260)


def events(count: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    batch = np.zeros(count, frames2py.EVENT_DTYPE)
    batch["x"], batch["y"] = rng.integers(0, SIZE[0], count), rng.integers(0, SIZE[1], count)
    batch["p"], batch["t"] = rng.integers(0, 2, count), np.arange(count)
    return batch


def engine(interval_ms: float = 0) -> frames2py.Engine:
    return frames2py.Engine(SIZE, "event_count", snapshot_interval_ms=interval_ms)


def together(threads: int, count: int, prepare: Callable[[], Callable[[], object]]) -> float:
    """Time per operation, over all threads together. Each thread prepares, and then does `count` of them."""
    start = threading.Barrier(threads + 1)

    def run() -> None:
        work = prepare()
        start.wait()
        work()

    workers = [threading.Thread(target=run) for _ in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter_ns()
    for worker in workers:
        worker.join()
    return (time.perf_counter_ns() - began) / (count * threads)


CALLS = 300_000


def published() -> frames2py.Engine:
    target = engine()
    one = events(1)
    for _ in range(1000):  # beyond the sequence numbers that CPython has for good, and does not count
        target.ingest(one)
    target.snapshot()
    return target


def snapshot_again(threads: int = 1) -> float:
    """``snapshot()`` when nothing is new."""
    target = published()

    def read() -> None:
        snapshot = target.snapshot
        for _ in range(CALLS):
            snapshot()

    return together(threads, CALLS, lambda: read)


def poll(threads: int = 1) -> float:
    """``wait_for_newer()`` when nothing is newer."""
    target = published()

    def prepare() -> Callable[[], object]:
        wait, sequence = target.wait_for_newer, target.snapshot().meta.sequence

        def look() -> None:
            # Local, as what threads share has a reference count that they share.
            newer, seen = wait, sequence
            for _ in range(CALLS):
                newer(seen, timeout=0)

        return look

    return together(threads, CALLS, prepare)


def gain(measured: Callable[[int], float]) -> float:
    """How much faster four threads are together than one."""
    return measured(1) / measured(4)


def count_shared(shared: object, threads: int = 1) -> float:
    """What CPython alone takes to hand one object to a thread and to drop it again: time per object, over all
    threads together."""
    count = 1_000_000

    def read() -> None:
        for _ in itertools.repeat(shared, count):
            pass

    return together(threads, count, lambda: read)


def wake_up(quantile: float) -> float:
    """From just before the ``ingest()`` that publishes until the waiter has the snapshot."""
    target = engine()
    one = events(1)
    sent = [0] * 3001
    delays = []

    def wait() -> None:
        sequence = None
        while sequence != 3000:
            snapshot = target.wait_for_newer(sequence)
            now = time.perf_counter_ns()
            sequence = snapshot.meta.sequence
            delays.append(now - sent[sequence])

    waiter = threading.Thread(target=wait)
    waiter.start()
    for i in range(1, 3001):
        time.sleep(0.0002)
        sent[i] = time.perf_counter_ns()
        target.ingest(one)
    waiter.join()
    delays.sort()
    return delays[int(len(delays) * quantile)]


def ingest_one() -> float:
    """``ingest()`` of one event with a publication, nobody waiting: median."""
    target = engine()
    one = events(1)
    times = []
    for _ in range(20_000):
        began = time.perf_counter_ns()
        target.ingest(one)
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times)


Consumer = Callable[[frames2py.Engine, threading.Event], None]


def rate(consumers: list[Consumer], clock: Callable[[], float] = time.perf_counter) -> float:
    """Events a second of one producer with 10,000 events a call, publishing every 16 ms.

    With `time.thread_time` as the clock, the seconds are those that the producer's thread spent on a core."""
    target = engine(16.0)
    batch = events(10_000)
    target.ingest(batch)
    done = threading.Event()
    threads = [threading.Thread(target=consumer, args=(target, done)) for consumer in consumers]
    for thread in threads:
        thread.start()
    count = 0
    began, end = clock(), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        target.ingest(batch)
        count += len(batch)
    elapsed = clock() - began
    done.set()
    for thread in threads:
        thread.join()
    return count / elapsed


def spin(target: frames2py.Engine, done: threading.Event) -> None:
    """A consumer in pure Python that never rests."""
    total = 0
    while not done.is_set():
        snapshot = target.snapshot()
        for i in range(1000):
            total += i
        total += snapshot.meta.sequence


def wait_and_copy(target: frames2py.Engine, done: threading.Event) -> None:
    """A consumer that waits for each publication and copies it."""
    sequence = None
    while not done.is_set():
        snapshot = target.wait_for_newer(sequence, timeout=0.1)
        if snapshot is not None:
            sequence = snapshot.meta.sequence
            snapshot.copy()


def playback_time() -> float:
    """Seconds that the playback's thread spent on a core. Linux only."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text() == "frames2py play\n":
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise RuntimeError("no playback")


def play_rate(
    consumers: list[Consumer], clock: Callable[[], float] = time.perf_counter, **options: int
) -> float:
    """Events a second of a native producer: an EVT 2.0 recording of four million events, played in a loop."""
    words = 4_000_000
    rng = np.random.default_rng(1)
    evt = np.full(words, 1 << 28, "<u4") | np.uint32(63) << 22
    evt |= rng.integers(0, SIZE[0], words, "<u4") << 11 | rng.integers(0, SIZE[1], words, "<u4")
    evt[::1000] = 0x80000000 + np.arange(words // 1000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "synthetic.raw")
        path.write_bytes(b"% evt 2.0\n% geometry 346x260\n% end\n" + evt.tobytes())
        target = engine(16.0)
        done = threading.Event()
        threads = [threading.Thread(target=consumer, args=(target, done)) for consumer in consumers]
        with target.play(path, loop=True, **options) as playback:
            target.wait_for_newer(None)
            for thread in threads:
                thread.start()
            time.sleep(0.05)
            began, count = clock(), playback.events
            time.sleep(SECONDS)
            result = (playback.events - count) / (clock() - began)
            done.set()
            for thread in threads:
                thread.join()
            playback.stop()
    return result


MEASURES: dict[str, Callable[[], float]] = {
    "snapshot": snapshot_again,
    "snapshot_4_threads": lambda: snapshot_again(4),
    "snapshot_gain": lambda: gain(snapshot_again),
    "poll": poll,
    "poll_4_threads": lambda: poll(4),
    "poll_gain": lambda: gain(poll),
    "wake_p50": lambda: wake_up(0.5),
    "wake_p99": lambda: wake_up(0.99),
    "ingest_one": ingest_one,
    "rate_alone": lambda: rate([]),
    "rate_2_spinning": lambda: rate([spin, spin]),
    "rate_8_copying": lambda: rate([wait_and_copy] * 8),
    "core_rate_alone": lambda: rate([], time.thread_time),
    "core_rate_8_copying": lambda: rate([wait_and_copy] * 8, time.thread_time),
    "play_alone": lambda: play_rate([]),
    "play_1_spinning": lambda: play_rate([spin]),
    "play_1_thread_alone": lambda: play_rate([], threads=1),
    "play_1_thread_1_spinning": lambda: play_rate([spin], threads=1),
    "core_play_alone": lambda: play_rate([], playback_time),
    "core_play_1_spinning": lambda: play_rate([spin], playback_time),
    "core_play_8_copying": lambda: play_rate([wait_and_copy] * 8, playback_time),
    "shared_object": lambda: count_shared(object()),
    "shared_object_4_threads": lambda: count_shared(object(), 4),
    "shared_none_4_threads": lambda: count_shared(None, 4),
}

if __name__ == "__main__":
    print(MEASURES[sys.argv[1]]())
