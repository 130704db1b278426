"""start, stop and reset from any thread; the producer is a thread, not its ident."""

from __future__ import annotations

import _thread
import threading
from typing import Any

import pytest
from records import at, uniform

from frames2py import Engine

LONG = 60.0


def in_a_new_thread(function: Any) -> tuple[int, Any]:
    """Runs `function` in a thread of its own: (the thread's ident, what it returned or raised)."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            result = function()
        except BaseException as error:
            result = error
        outcome.append((threading.get_ident(), result))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(LONG)
    return outcome[0]  # type: ignore[no-any-return]


def in_a_bare_thread(function: Any) -> tuple[int, Any]:
    """The same, with a thread that the threading module did not start."""
    outcome: list[Any] = []
    done = threading.Lock()
    done.acquire()

    def run() -> None:
        try:
            result = function()
        except BaseException as error:
            result = error
        outcome.append((_thread.get_ident(), result))
        done.release()

    _thread.start_new_thread(run, ())
    assert done.acquire(timeout=LONG)
    return outcome[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("start", [in_a_new_thread, in_a_bare_thread])
def test_the_producer_is_the_thread_not_its_reusable_ident(start: Any) -> None:
    engine = Engine((2, 1), snapshot_interval_ms=0)
    ident, result = start(lambda: engine.ingest(at(1)))
    assert result is None
    snapshot = engine.snapshot()
    idents = set()
    for _ in range(300):
        other, result = start(lambda: engine.ingest(at(2)))
        idents.add(other)
        assert isinstance(result, RuntimeError)
        other, result = start(lambda: engine.wait_for_newer(None, timeout=0))
        idents.add(other)
        assert result is snapshot  # not the producer: it may wait
    assert engine.snapshot() is snapshot
    if ident not in idents:
        pytest.skip("the platform did not give the ident to another thread")


def test_after_the_producers_end_nobody_else_may_ingest() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=0)
    in_a_new_thread(lambda: engine.ingest(at(1)))
    engine.reset()
    engine.stop()
    engine.start()
    with pytest.raises(RuntimeError):
        engine.ingest(at(2))
    assert engine.wait_for_newer(None, timeout=0) is None


def test_many_threads_racing_to_be_the_producer_leave_one() -> None:
    for _ in range(30):
        engine = Engine((2, 1), snapshot_interval_ms=0)
        barrier = threading.Barrier(8)
        results: list[Any] = []

        def race(engine: Engine = engine, barrier: Any = barrier, results: list[Any] = results) -> None:
            barrier.wait(LONG)
            try:
                engine.ingest(at(1))
            except RuntimeError:
                results.append("refused")
            else:
                results.append("producer")

        threads = [threading.Thread(target=race) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert sorted(results) == ["producer"] + ["refused"] * 7
        assert engine.stats.events_ingested == 1


@pytest.mark.parametrize(("times", "calls"), [(1, 2000), (300, 50)], ids=["short calls", "long calls"])
@pytest.mark.parametrize("interval", [0, 0.01, 3_600_000])
def test_lifecycle_calls_from_other_threads_never_interleave_with_ingest(
    interval: float, times: int, calls: int
) -> None:
    """Whole calls only: a frame is uniform and the counters fit together, whatever the mix."""
    width, height = 31, 17
    engine = Engine((width, height), snapshot_interval_ms=interval)
    call = uniform(width, height, times, 5)
    done = threading.Event()
    errors: list[BaseException] = []

    def guard(function: Any) -> Any:
        def run() -> None:
            try:
                while not done.is_set():
                    function()
            except BaseException as error:
                errors.append(error)
                done.set()

        return threading.Thread(target=run)

    last_sequence = [0]

    def read() -> None:
        snapshot = engine.snapshot()
        if snapshot is not None:
            assert snapshot.frame.min() == snapshot.frame.max()
            assert snapshot.frame.max() % times == 0
            last_sequence[0] = max(last_sequence[0], snapshot.meta.sequence)
        stats = engine.stats
        assert stats.events_ingested % len(call) == 0
        assert stats.events_out_of_bounds == 0

    def cycle() -> None:
        engine.stop()
        engine.start()

    threads = [guard(read), guard(cycle), guard(engine.reset), guard(cycle)]
    for thread in threads:
        thread.start()
    for _ in range(calls):
        engine.ingest(call)
        if done.is_set():
            break
    done.set()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
    engine.start()
    engine.reset()
    engine.ingest(call)
    snapshot = engine.snapshot()
    assert snapshot is not None
    assert snapshot.meta.sequence > last_sequence[0]
    assert (snapshot.frame == times).all()
    assert engine.stats.events_ingested == len(call)


def test_resets_from_many_threads() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=0)
    threads = [threading.Thread(target=lambda: [engine.reset() for _ in range(300)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    sequences = []
    for i in range(1000):
        engine.ingest(at(i))
        snapshot = engine.snapshot()
        if snapshot is not None:
            sequences.append(snapshot.meta.sequence)
    for thread in threads:
        thread.join(LONG)
    assert sequences == sorted(set(sequences))
    engine.ingest(at(5))
    snapshot = engine.snapshot()
    assert snapshot is not None
    assert snapshot.meta.sequence == 1001


def test_waiters_survive_any_lifecycle_and_get_the_last_publication() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=0)
    results: list[Any] = []
    waiters = [
        threading.Thread(target=lambda: results.append(engine.wait_for_newer(500, timeout=LONG)))
        for _ in range(6)
    ]
    for waiter in waiters:
        waiter.start()

    def churn() -> None:
        for _ in range(200):
            engine.stop()
            engine.start()
            engine.reset()

    other = threading.Thread(target=churn)
    other.start()
    i = 0
    while other.is_alive() or i < 600:
        engine.ingest(at(i))
        i += 1
    other.join(LONG)
    while (snapshot := engine.snapshot()) is None or snapshot.meta.sequence <= 500:
        engine.ingest(at(i))
    for waiter in waiters:
        waiter.join(LONG)
    assert len(results) == 6
    assert all(snapshot.meta.sequence > 500 for snapshot in results)
