"""One producer, many readers: no torn frame, no frame that changes, no lost wake-up."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from records import uniform

from frames2py import Accumulator, Engine, EventCount, Polarity, StackedHistogram, TimeSurface, VoxelGrid

WIDTH, HEIGHT = 61, 37
LONG = 60.0

READERS = pytest.mark.parametrize("readers", [1, 2, 4, 8, 16])


class Group:
    """Threads whose exceptions are not lost."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []
        self.stop = threading.Event()

    def start(self, target: Any, *args: Any) -> None:
        def run() -> None:
            try:
                target(*args)
            except BaseException as error:
                self.errors.append(error)
                self.stop.set()

        thread = threading.Thread(target=run, daemon=True)
        self.threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self.threads:
            thread.join(LONG)
            assert not thread.is_alive(), "a thread hangs"
        if self.errors:
            raise self.errors[0]


def times_of(sequence: int) -> int:
    """How often publication `sequence` has an event on every pixel."""
    return sequence % 5 + 1


BATCHES = [uniform(WIDTH, HEIGHT, times, 0) for times in range(6)]


def ingest_uniform(engine: Engine, sequence: int) -> None:
    batch = BATCHES[times_of(sequence)]
    batch["t"] = sequence
    engine.ingest(batch)


def check_count(snapshot: Any) -> None:
    sequence = snapshot.meta.sequence
    assert snapshot.meta.watermark == sequence
    assert snapshot.frame.min() == snapshot.frame.max() == times_of(sequence)


def check_polarity(snapshot: Any) -> None:
    sequence = snapshot.meta.sequence
    assert snapshot.meta.watermark == sequence
    assert not snapshot.frame[..., 0].any()
    assert snapshot.frame[..., 1].min() == snapshot.frame[..., 1].max() == times_of(sequence)


def check_surface(snapshot: Any) -> None:
    assert snapshot.meta.watermark == snapshot.meta.sequence
    assert snapshot.frame.min() == snapshot.frame.max() == snapshot.meta.sequence


def check_histogram(snapshot: Any) -> None:
    sequence = snapshot.meta.sequence
    assert snapshot.meta.watermark == sequence
    expected = [times_of(k) if k > 0 else 0 for k in range(sequence - 3, sequence)]
    assert not snapshot.frame[0].any()
    for j, times in enumerate(expected):
        assert snapshot.frame[1, j].min() == snapshot.frame[1, j].max() == times


def check_voxels(snapshot: Any) -> None:
    sequence = snapshot.meta.sequence
    assert snapshot.meta.watermark == sequence
    expected = [times_of(k) if k > 0 else 0 for k in range(sequence - 2, sequence)] + [0]
    for j, times in enumerate(expected):
        assert snapshot.frame[j].min() == snapshot.frame[j].max() == times


class Custom(EventCount):
    """A kernel that takes the way of kernels written in Python."""

    def read(self, state: Any, out: Any, watermark: Any) -> None:
        super().read(state, out, watermark)


KERNELS = pytest.mark.parametrize(
    ("kernel", "check"),
    [
        (EventCount(), check_count),
        (Polarity(), check_polarity),
        (TimeSurface(), check_surface),
        (StackedHistogram(bins=3, bin_us=1), check_histogram),
        (VoxelGrid(bins=3, bin_us=1), check_voxels),
        (Custom(), check_count),
    ],
    ids=["event_count", "polarity", "time_surface", "stacked_histogram", "voxel_grid", "custom"],
)


@READERS
@KERNELS
def test_no_reader_ever_sees_a_torn_frame(kernel: Any, check: Any, readers: int) -> None:
    """Every pixel of a frame must tell of the publication its meta tells of."""
    publications = 120
    engine = Engine((WIDTH, HEIGHT), kernel, snapshot_interval_ms=0)
    group = Group()

    def read() -> None:
        last = 0
        while last < publications and not group.stop.is_set():
            snapshot = engine.snapshot()
            if snapshot is None:
                continue
            assert snapshot.meta.sequence >= last
            last = snapshot.meta.sequence
            check(snapshot)

    def produce() -> None:
        for sequence in range(1, publications + 1):
            ingest_uniform(engine, sequence)

    for _ in range(readers):
        group.start(read)
    group.start(produce)
    group.join()
    assert engine.stats.snapshots_published == publications


@READERS
def test_waiting_readers_see_only_newer_snapshots_and_miss_no_last_one(readers: int) -> None:
    publications = 300
    engine = Engine((WIDTH, HEIGHT), snapshot_interval_ms=0)
    group = Group()

    def read() -> None:
        last = 0
        while last < publications:
            snapshot = engine.wait_for_newer(last, timeout=LONG)
            assert snapshot is not None, "a wake-up was lost"
            assert snapshot.meta.sequence > last
            last = snapshot.meta.sequence
            check_count(snapshot)

    def produce() -> None:
        for sequence in range(1, publications + 1):
            ingest_uniform(engine, sequence)

    for _ in range(readers):
        group.start(read)
    group.start(produce)
    group.join()


def test_lock_step_of_a_producer_and_a_waiting_reader_loses_no_wake_up() -> None:
    """The producer publishes only after the reader has seen the last one: a lost wake-up hangs."""
    engine = Engine((2, 2), snapshot_interval_ms=0)
    turn = threading.Semaphore(1)
    group = Group()

    def read() -> None:
        for sequence in range(1500):
            snapshot = engine.wait_for_newer(sequence or None, timeout=LONG)
            assert snapshot is not None
            assert snapshot.meta.sequence == sequence + 1
            turn.release()

    def produce() -> None:
        call = uniform(2, 2, 1, 5)
        for _ in range(1500):
            assert turn.acquire(timeout=LONG)
            engine.ingest(call)

    group.start(read)
    group.start(produce)
    group.join()


@READERS
def test_held_frames_and_copies_never_change(readers: int) -> None:
    publications = 150
    engine = Engine((WIDTH, HEIGHT), snapshot_interval_ms=0)
    group = Group()

    def read(number: int) -> None:
        held: list[Any] = []
        buffer = np.zeros((HEIGHT, WIDTH), np.uint32)
        last = 0
        while last < publications and not group.stop.is_set():
            snapshot = engine.wait_for_newer(last, timeout=LONG)
            assert snapshot is not None
            last = snapshot.meta.sequence
            held.append(snapshot if number % 2 else (snapshot.meta.sequence, snapshot.frame[1:, 1:]))
            copied = snapshot.copy()
            assert (copied == times_of(last)).all()
            copied[...] = 99
            snapshot.copy(out=buffer)
            assert (buffer == times_of(last)).all()
            if len(held) > 5 + number * 3:
                del held[:: 2 + number % 3]
            for each in held:
                if isinstance(each, tuple):
                    assert each[1].min() == each[1].max() == times_of(each[0])
                else:
                    check_count(each)

    def produce() -> None:
        for sequence in range(1, publications + 1):
            ingest_uniform(engine, sequence)

    for number in range(readers):
        group.start(read, number)
    group.start(produce)
    group.join()


def test_all_readers_of_a_publication_get_the_same_objects() -> None:
    engine = Engine((2, 2), snapshot_interval_ms=0)
    call = uniform(2, 2, 1, 5)
    readers = 8
    publications = 200
    seen: list[dict[int, Any]] = [{} for _ in range(readers)]
    group = Group()

    def read(number: int) -> None:
        mine = seen[number]
        last = 0
        while last < publications:
            snapshot = engine.wait_for_newer(last, timeout=LONG)
            assert snapshot is not None
            last = snapshot.meta.sequence
            mine[last] = (snapshot, snapshot.frame, snapshot.meta)

    def produce() -> None:
        for _ in range(publications):
            engine.ingest(call)

    for number in range(readers):
        group.start(read, number)
    group.start(produce)
    group.join()
    first_seen: dict[int, Any] = {}
    for mine in seen:
        for sequence, objects in mine.items():
            others = first_seen.setdefault(sequence, objects)
            assert all(a is b for a, b in zip(objects, others, strict=True))


def test_the_first_read_of_a_publication_may_come_from_many_threads_at_once() -> None:
    engine = Engine((3, 3), snapshot_interval_ms=0)
    call = uniform(3, 3, 1, 5)
    readers = 8
    barrier = threading.Barrier(readers + 1)
    results: list[Any] = []
    group = Group()

    def read() -> None:
        for _ in range(200):
            barrier.wait(LONG)
            snapshot = engine.snapshot()
            assert snapshot is not None
            results.append((snapshot, snapshot.frame, snapshot.meta))
            barrier.wait(LONG)

    for _ in range(readers):
        group.start(read)
    for _ in range(200):
        engine.ingest(call)
        results.clear()
        barrier.wait(LONG)
        barrier.wait(LONG)
        assert len(results) == readers
        assert len({tuple(map(id, objects)) for objects in results}) == 1
    group.join()


def test_frames_outlive_the_engine_and_all_threads() -> None:
    kept: list[Any] = []
    group = Group()

    def live() -> None:
        engine = Engine((WIDTH, HEIGHT), snapshot_interval_ms=0)
        inner = Group()

        def read() -> None:
            last = 0
            while last < 40:
                snapshot = engine.wait_for_newer(last, timeout=LONG)
                assert snapshot is not None
                last = snapshot.meta.sequence
                kept.append((last, snapshot.frame))

        def produce() -> None:
            for sequence in range(1, 41):
                ingest_uniform(engine, sequence)

        for _ in range(3):
            inner.start(read)
        inner.start(produce)
        inner.join()

    for _ in range(3):
        live()
    group.join()
    assert len(kept) >= 9
    for sequence, frame in kept:
        assert frame.min() == frame.max() == times_of(sequence)


def test_frames_let_go_by_other_threads_while_the_engine_publishes() -> None:
    """The last reference to a frame may drop on any thread, at any moment, also after the engine."""
    group = Group()
    handed: list[Any] = []
    done = threading.Event()

    def drop() -> None:
        while not done.is_set() or handed:
            try:
                sequence, frame = handed.pop()
            except IndexError:
                continue
            assert frame.min() == frame.max() == times_of(sequence)
            del frame

    for _ in range(4):
        group.start(drop)
    for _ in range(5):
        engine = Engine((WIDTH, HEIGHT), snapshot_interval_ms=0)
        for sequence in range(1, 80):
            ingest_uniform(engine, sequence)
            snapshot = engine.snapshot()
            assert snapshot is not None
            handed.append((sequence, snapshot.frame))
            del snapshot
        del engine
    done.set()
    group.join()


def test_several_engines_at_once_do_not_mix() -> None:
    group = Group()

    def run(number: int) -> None:
        engine = Engine((WIDTH, HEIGHT), "time_surface", snapshot_interval_ms=0)
        for i in range(1, 60):
            call = uniform(WIDTH, HEIGHT, 1, number * 1000 + i)
            engine.ingest(call)
            snapshot = engine.snapshot()
            assert snapshot is not None
            assert snapshot.frame.min() == snapshot.frame.max() == number * 1000 + i

    for number in range(1, 7):
        group.start(run, number)
    group.join()


def test_several_accumulators_at_once_do_not_mix() -> None:
    group = Group()

    def run(number: int) -> None:
        accumulator = Accumulator((WIDTH, HEIGHT), "event_count")
        call = uniform(WIDTH, HEIGHT, number, 5)
        for i in range(1, 60):
            accumulator.accumulate(call)
            frame = accumulator.read()
            assert frame.min() == frame.max() == number * i

    for number in range(1, 7):
        group.start(run, number)
    group.join()


def test_no_counter_of_the_stats_ever_moves_back() -> None:
    engine = Engine((1, 1), snapshot_interval_ms=0)
    call = uniform(2, 1, 1, 5)  # one event in bounds, one out of bounds
    group = Group()
    calls = 4000

    def watch() -> None:
        last = engine.stats
        while last.events_ingested < 2 * calls and not group.stop.is_set():
            stats = engine.stats
            assert stats.events_ingested >= last.events_ingested
            assert stats.events_out_of_bounds >= last.events_out_of_bounds
            assert stats.snapshots_published >= last.snapshots_published
            assert stats.uptime_ns >= last.uptime_ns
            last = stats

    def produce() -> None:
        for _ in range(calls):
            engine.ingest(call)

    for _ in range(3):
        group.start(watch)
    group.start(produce)
    group.join()
    stats = engine.stats
    assert (stats.events_ingested, stats.events_out_of_bounds, stats.snapshots_published) == (
        2 * calls,
        calls,
        calls,
    )
