"""Contract section 4: the Engine's ownership, cadence, lifecycle and stats."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from every_kernel import EVERY_KERNEL
from records import at, empty, events

from frames2py import (
    Engine,
    EngineStats,
    EventCount,
    ExpDecay,
    StackedHistogram,
    TimeSurface,
)

NEVER = 3_600_000.0  # an interval that does not pass during a test


def latest(engine: Engine) -> Any:
    snapshot = engine.snapshot()
    assert snapshot is not None
    return snapshot


def counts(engine: Engine) -> tuple[int, int, int]:
    stats = engine.stats
    return stats.events_ingested, stats.events_out_of_bounds, stats.snapshots_published


def sleep_past(milliseconds: float) -> None:
    end = time.monotonic() + milliseconds / 1000
    while (left := end - time.monotonic()) >= 0:
        time.sleep(left + 0.001)


# --- construction -------------------------------------------------------------------------------


def test_defaults_and_names_of_the_arguments() -> None:
    Engine((4, 3))
    Engine(sensor_size=(4, 3), kernel="polarity", snapshot_interval_ms=5)
    with pytest.raises(TypeError):
        Engine((4, 3), "polarity", 5)  # type: ignore[misc]
    with pytest.raises(TypeError):
        Engine()  # type: ignore[call-arg]


def test_an_engine_runs_from_construction() -> None:
    engine = Engine((2, 1))
    engine.ingest(events=at(1))
    assert counts(engine) == (1, 0, 1)


def test_methods_return_none() -> None:
    engine: Any = Engine((2, 1))
    assert engine.ingest(at(1)) is None
    assert engine.stop() is None
    assert engine.ingest(at(1)) is None
    assert engine.start() is None
    assert engine.reset() is None


# --- producer -----------------------------------------------------------------------------------


def test_the_first_ingest_that_does_not_raise_makes_its_thread_the_producer(elsewhere: Any) -> None:
    engine = Engine((2, 1), snapshot_interval_ms=0)
    elsewhere(engine.ingest, at(1))
    with pytest.raises(RuntimeError):
        engine.ingest(at(2))
    elsewhere(engine.ingest, at(3))
    assert latest(engine).meta.watermark == 3


def test_an_empty_first_call_makes_a_producer(elsewhere: Any) -> None:
    engine = Engine((2, 1))
    engine.ingest(empty())
    with pytest.raises(RuntimeError):
        elsewhere(engine.ingest, at(1))


def test_any_other_thread_gets_runtime_error_and_changes_nothing(elsewhere: Any) -> None:
    engine = Engine((2, 1), ExpDecay(0.5), snapshot_interval_ms=0)
    engine.ingest(at(5))
    snapshot = engine.snapshot()
    for call in (at(99), empty(), events([(1, 9, 9, 1)])):
        with pytest.raises(RuntimeError):
            elsewhere(engine.ingest, call)
    assert engine.snapshot() is snapshot
    assert counts(engine) == (1, 0, 1)
    engine.ingest(empty())
    assert latest(engine).frame.tolist() == [[0.5, 0]]
    assert latest(engine).meta.watermark == 5


@pytest.mark.parametrize(
    "bad", [None, np.zeros(3), events([(2**63, 0, 0, 1)])], ids=["None", "structure", "range"]
)
def test_another_thread_gets_runtime_error_whatever_it_passes(bad: Any, elsewhere: Any) -> None:
    engine = Engine((2, 1))
    engine.ingest(at(5))
    with pytest.raises(RuntimeError):
        elsewhere(engine.ingest, bad)
    engine.stop()
    with pytest.raises(RuntimeError):
        elsewhere(engine.ingest, bad)


def test_a_no_op_while_stopped_makes_a_producer(elsewhere: Any) -> None:
    engine = Engine((2, 1))
    engine.stop()
    elsewhere(engine.ingest, at(1))
    engine.start()
    with pytest.raises(RuntimeError):
        engine.ingest(at(2))
    elsewhere(engine.ingest, at(3))
    assert counts(engine) == (1, 0, 1)


def test_another_thread_gets_runtime_error_also_while_stopped(elsewhere: Any) -> None:
    engine = Engine((2, 1))
    engine.ingest(at(1))
    engine.stop()
    with pytest.raises(RuntimeError):
        elsewhere(engine.ingest, at(2))


def test_reset_does_not_release_the_producer(elsewhere: Any) -> None:
    engine = Engine((2, 1))
    engine.ingest(at(1))
    for release in (engine.reset, engine.stop, engine.start, lambda: elsewhere(engine.reset)):
        release()
        with pytest.raises(RuntimeError):
            elsewhere(engine.ingest, at(2))
    engine.ingest(at(3))


def test_each_engine_has_its_own_producer(elsewhere: Any) -> None:
    first, second = Engine((2, 1)), Engine((2, 1))
    first.ingest(at(1))
    elsewhere(second.ingest, at(1))
    with pytest.raises(RuntimeError):
        second.ingest(at(1))
    first.ingest(at(2))


def test_reading_does_not_make_a_producer(elsewhere: Any) -> None:
    engine = Engine((2, 1))
    assert engine.snapshot() is None
    assert engine.stats.events_ingested == 0
    assert engine.wait_for_newer(None, timeout=0) is None
    engine.reset()
    engine.start()
    elsewhere(engine.ingest, at(1))


# --- cadence ------------------------------------------------------------------------------------


def test_interval_0_publishes_on_every_call() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=0)
    seen = []
    for call in (at(1), empty(), events([(9, 9, 9, 1)]), at(2, 3)):
        engine.ingest(call)
        seen.append(
            (latest(engine).meta.sequence, latest(engine).meta.watermark, int(latest(engine).frame.sum()))
        )
    assert seen == [(1, 1, 1), (2, 1, 0), (3, 1, 0), (4, 3, 2)]


@pytest.mark.parametrize("interval", [0, 0.0, -0.0, np.float64(0), np.int64(0)])
def test_interval_0_of_any_kind(interval: Any) -> None:
    engine = Engine((2, 1), snapshot_interval_ms=interval)
    for i in range(5):
        engine.ingest(at(i))
    assert latest(engine).meta.sequence == 5


@pytest.mark.parametrize("first", [empty(), events([(9, 9, 9, 1)])], ids=["empty", "all out of bounds"])
def test_the_first_call_always_publishes_even_without_an_in_bounds_event(first: Any) -> None:
    for interval in (0, NEVER):
        engine = Engine((2, 1), snapshot_interval_ms=interval)
        engine.ingest(first)
        assert latest(engine).meta.watermark is None
        assert latest(engine).meta.sequence == 1
        assert not latest(engine).frame.any()


@pytest.mark.parametrize(
    "first", [at(7), empty(), events([(9, 9, 9, 1)])], ids=["an event", "empty", "all out of bounds"]
)
def test_the_first_call_after_reset_always_publishes(first: Any) -> None:
    engine = Engine((2, 1), snapshot_interval_ms=NEVER)
    engine.ingest(at(5))
    engine.ingest(at(6))
    engine.reset()
    engine.ingest(first)
    assert latest(engine).meta.sequence == 2
    assert latest(engine).meta.watermark == (7 if len(first) and first["x"][0] == 0 else None)
    engine.ingest(at(8))
    assert latest(engine).meta.sequence == 2


def test_a_positive_interval_publishes_at_most_once_per_interval() -> None:
    interval_ms = 40.0
    engine = Engine((2, 1), snapshot_interval_ms=interval_ms)
    start = time.monotonic()
    while time.monotonic() - start < 0.3:
        engine.ingest(at(1))
    elapsed_ms = (time.monotonic() - start) * 1000
    published = latest(engine).meta.sequence
    assert published == engine.stats.snapshots_published
    assert (published - 1) * interval_ms <= elapsed_ms


def test_the_first_call_after_the_interval_has_passed_publishes() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=20)
    engine.ingest(at(1))
    for expected in (2, 3, 4):
        sleep_past(20)
        engine.ingest(at(expected))
        assert latest(engine).meta.sequence == expected
        assert latest(engine).meta.watermark == expected


def test_the_call_that_is_due_may_be_empty() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=20)
    engine.ingest(at(1))
    sleep_past(20)
    engine.ingest(empty())
    assert latest(engine).meta.sequence == 2
    assert not latest(engine).frame.any()


def test_nothing_else_publishes_before_the_interval_has_passed() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=NEVER)
    engine.ingest(at(1))
    first = engine.snapshot()
    for i in range(1000):
        engine.ingest(at(i))
    assert engine.snapshot() is first
    assert engine.stats.snapshots_published == 1


def test_the_default_interval_is_16_ms() -> None:
    engine = Engine((2, 1))
    start = time.monotonic()
    while time.monotonic() - start < 0.1:
        engine.ingest(at(1))
    elapsed_ms = (time.monotonic() - start) * 1000
    assert (latest(engine).meta.sequence - 1) * 16 <= elapsed_ms
    sequence = latest(engine).meta.sequence
    sleep_past(16)
    engine.ingest(at(1))
    assert latest(engine).meta.sequence == sequence + 1


def test_start_does_not_make_the_next_call_due() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=NEVER)
    engine.ingest(at(1))
    engine.stop()
    engine.start()
    engine.ingest(at(2))
    assert latest(engine).meta.sequence == 1


def test_there_is_no_timer_thread() -> None:
    before = threading.active_count()
    task_folder = "/proc/self/task"
    native = len(os.listdir(task_folder)) if os.path.isdir(task_folder) else None
    engine = Engine((2, 1), snapshot_interval_ms=1)
    engine.ingest(at(1))
    engine.stop()
    engine.start()
    first = engine.snapshot()
    engine.ingest(at(2))
    seen = engine.snapshot()
    sleep_past(30)
    # The second event is pending or published; nobody publishes behind the producer's back.
    assert engine.snapshot() is seen
    assert first is not None
    assert threading.active_count() == before
    if native is not None:
        assert len(os.listdir(task_folder)) <= native


def test_a_window_holds_everything_since_the_previous_publication() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=20)
    engine.ingest(at(1))
    # However the machine is scheduled, no event is lost or shown twice.
    total = int(latest(engine).frame.sum())
    sequence = latest(engine).meta.sequence
    for i in range(200):
        engine.ingest(at(i, i))
        if i % 50 == 0:
            sleep_past(20)
        if latest(engine).meta.sequence != sequence:
            assert latest(engine).meta.sequence == sequence + 1
            sequence += 1
            total += int(latest(engine).frame.sum())
    engine.stop()
    if latest(engine).meta.sequence != sequence:
        total += int(latest(engine).frame.sum())
    assert total == 401


# --- snapshot -----------------------------------------------------------------------------------


def test_snapshot_is_none_before_the_first_publication_and_after_reset() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=NEVER)
    assert engine.snapshot() is None
    engine.ingest(at(1))
    assert engine.snapshot() is not None
    engine.reset()
    assert engine.snapshot() is None
    engine.reset()
    assert engine.snapshot() is None
    engine.ingest(at(1))
    assert engine.snapshot() is not None


@EVERY_KERNEL
def test_the_same_publication_is_the_same_object(kernel: Any, elsewhere: Any) -> None:
    engine = Engine((2, 1), kernel, snapshot_interval_ms=0)
    engine.ingest(at(1))
    snapshot = latest(engine)
    assert engine.snapshot() is engine.snapshot()
    assert elsewhere(engine.snapshot) is snapshot
    assert elsewhere(engine.wait_for_newer, None) is snapshot
    assert snapshot.frame is latest(engine).frame
    assert snapshot.meta is latest(engine).meta
    engine.ingest(empty())
    assert engine.snapshot() is not snapshot


def test_every_publication_is_another_object_also_when_nothing_changed() -> None:
    engine = Engine((2, 1), StackedHistogram(bins=2, bin_us=10), snapshot_interval_ms=0)
    snapshots = []
    for _ in range(4):
        engine.ingest(empty())
        snapshots.append(latest(engine))
    assert [s.meta.sequence for s in snapshots] == [1, 2, 3, 4]
    assert len({id(s) for s in snapshots}) == 4


# --- stats --------------------------------------------------------------------------------------


def test_a_new_engines_stats_are_zero() -> None:
    assert counts(Engine((2, 1))) == (0, 0, 0)


def test_stats_count_events_out_of_bounds_ones_included() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=NEVER)
    seen = []
    for call in (
        at(1, 2, 3),
        empty(),
        events([(1, 2, 0, 1), (1, 0, 0, 1), (1, 0, 1, 1)]),
        events([(1, 9, 9, 1)]),
    ):
        engine.ingest(call)
        seen.append(counts(engine))
    assert seen == [(3, 0, 1), (3, 0, 1), (6, 2, 1), (7, 3, 1)]
    assert isinstance(engine.stats, EngineStats)


def test_stats_are_ints_and_frozen() -> None:
    stats: Any = Engine((2, 1)).stats
    for field in ("events_ingested", "events_out_of_bounds", "snapshots_published", "uptime_ns"):
        assert type(getattr(stats, field)) is int
        with pytest.raises(FrozenInstanceError):
            setattr(stats, field, 5)


def test_stats_of_a_moment_do_not_change_later() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=0)
    stats = engine.stats
    engine.ingest(at(1))
    assert (stats.events_ingested, stats.snapshots_published) == (0, 0)


def test_stats_cannot_be_assigned() -> None:
    engine: Any = Engine((2, 1))
    with pytest.raises(AttributeError):
        engine.stats = None


def test_every_publication_counts_the_one_of_stop_included() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=NEVER)
    engine.ingest(at(1))
    engine.ingest(at(2))
    assert engine.stats.snapshots_published == 1
    engine.stop()
    assert engine.stats.snapshots_published == 2


def test_reset_zeroes_the_counters_but_not_the_uptime() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=0)
    engine.ingest(events([(1, 0, 0, 1), (1, 9, 9, 1)]))
    before = engine.stats.uptime_ns
    engine.reset()
    assert counts(engine) == (0, 0, 0)
    assert engine.stats.uptime_ns >= before


def test_uptime_runs_from_construction_on_the_monotonic_clock() -> None:
    slack = 100_000_000  # clocks of coarse resolution
    before = time.monotonic_ns()
    engine = Engine((2, 1))
    built = time.monotonic_ns()
    for action in (
        lambda: time.sleep(0.15),
        engine.stop,
        lambda: time.sleep(0.15),
        engine.reset,
        engine.start,
    ):
        action()
        earliest = time.monotonic_ns() - built
        uptime = engine.stats.uptime_ns
        assert earliest - slack <= uptime <= time.monotonic_ns() - before + slack


def test_uptime_never_moves_back() -> None:
    engine = Engine((2, 1))
    readings = []
    for action in (engine.stop, engine.start, engine.reset, lambda: engine.ingest(at(1)), engine.reset):
        readings.append(engine.stats.uptime_ns)
        action()
    readings.append(engine.stats.uptime_ns)
    assert readings == sorted(readings)


# --- stop and start -----------------------------------------------------------------------------


def test_ingest_is_a_no_op_while_stopped() -> None:
    engine = Engine((2, 1), ExpDecay(0.5), snapshot_interval_ms=0)
    engine.ingest(at(1))
    engine.stop()
    snapshot = engine.snapshot()
    for call in (at(99), empty(), events([(1, 9, 9, 1)])):
        engine.ingest(call)
    assert engine.snapshot() is snapshot
    assert counts(engine) == (1, 0, 1)
    engine.start()
    engine.ingest(empty())
    assert latest(engine).meta.watermark == 1
    assert latest(engine).frame.tolist() == [[0.5, 0]]


def test_a_stopped_engine_looks_at_no_array() -> None:
    engine: Any = Engine((2, 1))
    engine.ingest(at(1))
    engine.stop()
    engine.ingest(np.zeros(3))
    engine.ingest(events([(2**63, 0, 0, 1)]))
    assert counts(engine) == (1, 0, 1)


def test_stop_publishes_a_pending_window() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=NEVER)
    engine.ingest(at(1))
    engine.ingest(at(2, 3))
    engine.ingest(events([(9, 9, 9, 1)]))
    engine.stop()
    assert latest(engine).meta.sequence == 2
    assert latest(engine).meta.watermark == 3
    assert latest(engine).frame.tolist() == [[2, 0]]


@EVERY_KERNEL
def test_stop_publishes_a_pending_window_of_every_kernel(kernel: Any) -> None:
    engine = Engine((2, 1), kernel, snapshot_interval_ms=NEVER)
    reference = Engine((2, 1), kernel, snapshot_interval_ms=0)
    engine.ingest(at(5))
    engine.ingest(at(25))
    engine.stop()
    reference.ingest(at(5))
    reference.ingest(at(25))
    np.testing.assert_array_equal(latest(engine).frame, latest(reference).frame)
    assert latest(engine).meta == latest(reference).meta


def test_without_in_bounds_events_since_the_last_publication_stop_publishes_nothing() -> None:
    engine = Engine((2, 1), ExpDecay(0.5), snapshot_interval_ms=NEVER)
    engine.stop()
    assert engine.snapshot() is None
    engine.start()
    engine.ingest(at(1))
    engine.ingest(empty())
    engine.ingest(events([(9, 9, 9, 1)]))
    snapshot = engine.snapshot()
    engine.stop()
    assert engine.snapshot() is snapshot
    assert engine.stats.snapshots_published == 1


def test_stopping_twice_publishes_once_and_starting_twice_is_harmless() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=NEVER)
    engine.ingest(at(1))
    engine.ingest(at(2))
    engine.stop()
    engine.stop()
    assert latest(engine).meta.sequence == 2
    engine.start()
    engine.start()
    engine.ingest(at(3))
    assert counts(engine) == (3, 0, 2)


def test_a_window_continues_across_stop_and_start() -> None:
    engine = Engine((2, 1), TimeSurface(), snapshot_interval_ms=0)
    engine.ingest(at(5))
    engine.stop()
    engine.ingest(at(50, x=1))
    engine.start()
    engine.ingest(at(4, x=1))
    assert latest(engine).frame.tolist() == [[5, 4]]
    assert latest(engine).meta.watermark == 5


# --- reset --------------------------------------------------------------------------------------


@EVERY_KERNEL
def test_reset_clears_kernel_state_counters_watermark_and_snapshot(kernel: Any) -> None:
    engine, new = (
        Engine((2, 1), kernel, snapshot_interval_ms=0),
        Engine((2, 1), kernel, snapshot_interval_ms=0),
    )
    engine.ingest(events([(10**9, 0, 0, 1), (7, 1, 0, 0), (7, 9, 9, 1)]))
    engine.ingest(at(10**9 + 25))
    engine.reset()
    assert engine.snapshot() is None
    assert counts(engine) == (0, 0, 0)
    for number, call in enumerate(
        (empty(), at(5), at(25, 3), events([(31, 1, 0, 0), (1, 9, 9, 0)])), start=1
    ):
        engine.ingest(call)
        new.ingest(call)
        np.testing.assert_array_equal(latest(engine).frame, latest(new).frame)
        assert latest(engine).meta.watermark == latest(new).meta.watermark
        assert latest(new).meta.sequence == number
        assert latest(engine).meta.sequence == number + 2
        assert counts(engine) == counts(new)


def test_reset_keeps_the_running_state() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=0)
    engine.ingest(at(1))
    engine.stop()
    engine.reset()
    engine.ingest(at(2))
    assert engine.snapshot() is None
    engine.start()
    engine.reset()
    engine.ingest(at(3))
    assert latest(engine).meta.watermark == 3


def test_reset_drops_a_pending_window() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=NEVER)
    engine.ingest(at(1))
    engine.ingest(at(2))
    engine.reset()
    engine.stop()
    assert engine.snapshot() is None
    engine.start()
    engine.ingest(empty())
    assert latest(engine).frame.tolist() == [[0, 0]]


def test_reset_keeps_snapshots_that_are_held() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=0)
    engine.ingest(at(1, 2))
    snapshot = latest(engine)
    engine.reset()
    engine.ingest(at(1))
    assert snapshot.frame.tolist() == [[2, 0]]
    assert snapshot.meta.sequence == 1


def test_the_sequence_is_strictly_increasing_for_the_engines_lifetime() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=NEVER)
    seen = []
    for _ in range(3):
        engine.ingest(at(1))
        seen.append(latest(engine).meta.sequence)
        engine.ingest(at(1))
        engine.stop()
        seen.append(latest(engine).meta.sequence)
        engine.start()
        engine.reset()
    assert seen == [1, 2, 3, 4, 5, 6]


# --- whole calls, never interleaved; readers take no lock ---------------------------------------


class Gate(EventCount):
    """An event count whose accumulate() waits until it is let through."""

    name = "gate"

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()
        self.log: list[str] = []

    def accumulate(self, events: Any, state: Any, watermark: Any) -> None:
        self.log.append("accumulate")
        self.entered.set()
        assert self.release.wait(60)
        super().accumulate(events, state, watermark)
        self.log.append("accumulated")

    def read(self, state: Any, out: Any, watermark: Any) -> None:
        super().read(state, out, watermark)
        self.log.append("read")

    def close_window(self, state: Any) -> None:
        super().close_window(state)
        self.log.append("close_window")

    def reset(self, state: Any) -> None:
        super().reset(state)
        self.log.append("reset")


def test_lifecycle_calls_wait_for_an_ingest_and_ingest_runs_whole() -> None:
    kernel = Gate()
    engine = Engine((2, 1), kernel, snapshot_interval_ms=0)
    producer = threading.Thread(target=engine.ingest, args=(at(5),))
    producer.start()
    assert kernel.entered.wait(60)
    resetting = threading.Thread(target=lambda: (engine.reset(), kernel.log.append("reset returned")))
    resetting.start()
    time.sleep(0.05)  # gives a wrong reset() the time to get in
    kernel.release.set()
    producer.join()
    resetting.join()
    assert kernel.log == ["accumulate", "accumulated", "read", "close_window", "reset", "reset returned"]
    assert engine.snapshot() is None
    assert counts(engine) == (0, 0, 0)


def test_snapshot_stats_and_wait_never_wait_for_an_ingest() -> None:
    kernel = Gate()
    engine = Engine((2, 1), kernel, snapshot_interval_ms=0)
    kernel.release.set()
    producer_calls: list[Any] = [at(1), at(2)]
    go = threading.Event()

    def produce() -> None:
        engine.ingest(producer_calls[0])
        kernel.release.clear()
        kernel.entered.clear()
        go.set()
        engine.ingest(producer_calls[1])

    producer = threading.Thread(target=produce)
    producer.start()
    assert go.wait(60)
    assert kernel.entered.wait(60)
    # The producer is now inside ingest(), and stays there until it is released below.
    snapshot = latest(engine)
    assert snapshot.meta.sequence == 1
    assert counts(engine) == (1, 0, 1)
    assert engine.wait_for_newer(0) is snapshot
    assert engine.wait_for_newer(None, timeout=5) is snapshot
    assert engine.wait_for_newer(1, timeout=0) is None
    assert engine.wait_for_newer(1, timeout=0.01) is None
    assert snapshot.copy().tolist() == [[1, 0]]
    assert producer.is_alive()
    kernel.release.set()
    producer.join()
    assert latest(engine).meta.sequence == 2
