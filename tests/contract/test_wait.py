"""Contract section 4: wait_for_newer."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from records import at, empty

from frames2py import Engine

NEVER = 3_600_000.0
LONG = 60.0  # guards against a hang; no test waits that long when all is well


class Waiter:
    """A thread in wait_for_newer; `result()` is what it returned."""

    def __init__(self, engine: Engine, sequence: Any, **kwargs: Any) -> None:
        self.outcome: list[Any] = []
        self.thread = threading.Thread(target=self.run, args=(engine, sequence, kwargs), daemon=True)
        self.thread.start()

    def run(self, engine: Engine, sequence: Any, kwargs: Any) -> None:
        self.outcome.append(engine.wait_for_newer(sequence, **kwargs))

    def result(self) -> Any:
        self.thread.join(LONG)
        assert not self.thread.is_alive(), "still waiting"
        (outcome,) = self.outcome
        return outcome

    def still_waits(self) -> bool:
        self.thread.join(0.05)
        return self.thread.is_alive()


@pytest.fixture
def producer(elsewhere: Callable[..., Any]) -> Callable[[Engine, Any], None]:
    """``producer(engine, events)`` ingests in another thread, so that this one may wait."""

    def ingest(engine: Engine, call: Any) -> None:
        elsewhere(engine.ingest, call)

    return ingest


@pytest.fixture
def engine() -> Engine:
    return Engine((2, 1), snapshot_interval_ms=0)


# --- what it returns ----------------------------------------------------------------------------


def test_already_newer_returns_at_once(engine: Engine, producer: Any) -> None:
    producer(engine, at(1))
    producer(engine, at(2))
    assert engine.wait_for_newer(1) is engine.snapshot()
    assert engine.wait_for_newer(0) is engine.snapshot()
    assert engine.wait_for_newer(1, timeout=0) is engine.snapshot()


def test_none_as_sequence_means_any(engine: Engine, producer: Any) -> None:
    assert engine.wait_for_newer(None, timeout=0) is None
    producer(engine, at(1))
    assert engine.wait_for_newer(None) is engine.snapshot()


def test_only_a_greater_sequence_is_newer(engine: Engine, producer: Any) -> None:
    producer(engine, at(1))
    for sequence in (1, 2, 3, 2**63, 2**64, 2**200):
        assert engine.wait_for_newer(sequence, timeout=0) is None


def test_it_returns_the_latest_not_the_next(engine: Engine, producer: Any) -> None:
    for i in range(5):
        producer(engine, at(i))
    snapshot = engine.wait_for_newer(1)
    assert snapshot is not None
    assert snapshot.meta.sequence == 5


@pytest.mark.parametrize(
    "timeout", [None, LONG, math.inf, 10**400, 1e300, 2**63, Fraction(60), np.float32(60)]
)
def test_it_blocks_until_a_newer_snapshot_is_published(engine: Engine, producer: Any, timeout: Any) -> None:
    producer(engine, at(1))
    waiter = Waiter(engine, 1, timeout=timeout)
    assert waiter.still_waits()
    producer(engine, at(2))
    assert waiter.result() is engine.snapshot()


@pytest.mark.parametrize("sequence", [None, 0])
def test_it_may_wait_before_anything_was_published(engine: Engine, producer: Any, sequence: Any) -> None:
    waiter = Waiter(engine, sequence)
    assert waiter.still_waits()
    producer(engine, empty())
    assert waiter.result() is engine.snapshot()


def test_a_sequence_far_ahead_waits_for_that_one(engine: Engine, producer: Any) -> None:
    waiter = Waiter(engine, 3)
    for i in range(3):
        producer(engine, at(i))
        assert waiter.still_waits()
    producer(engine, at(9))
    snapshot = waiter.result()
    assert snapshot.meta.sequence == 4


def test_every_waiter_wakes(engine: Engine, producer: Any) -> None:
    waiters = [Waiter(engine, None) for _ in range(20)]
    assert all(waiter.thread.is_alive() for waiter in waiters)
    producer(engine, at(1))
    snapshot = engine.snapshot()
    assert all(waiter.result() is snapshot for waiter in waiters)


def test_an_ingest_that_publishes_nothing_wakes_nobody(producer: Any) -> None:
    engine = Engine((2, 1), snapshot_interval_ms=NEVER)
    producer(engine, at(1))
    waiter = Waiter(engine, 1)
    for i in range(10):
        producer(engine, at(i))
    assert waiter.still_waits()
    engine.stop()
    assert waiter.result().meta.sequence == 2


# --- timeouts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "timeout", [0, 0.0, -0.0, np.float64(0), np.int64(0), Fraction(0), 5e-324, 1e-9, Fraction(1, 10**400)]
)
def test_timeout_0_checks_once(engine: Engine, producer: Any, timeout: Any) -> None:
    assert engine.wait_for_newer(None, timeout=timeout) is None
    producer(engine, at(1))
    assert engine.wait_for_newer(1, timeout=timeout) is None
    assert engine.wait_for_newer(0, timeout=timeout) is engine.snapshot()


@pytest.mark.parametrize("timeout", [0.1, np.float32(0.1), Fraction(1, 10)])
def test_the_timeout_is_in_seconds_on_the_monotonic_clock(engine: Engine, timeout: Any) -> None:
    start = time.monotonic()
    assert engine.wait_for_newer(None, timeout=timeout) is None
    assert time.monotonic() - start >= 0.1 - 0.02  # the resolution of coarse clocks


def test_none_is_returned_only_if_nothing_newer_is_there_after_the_timeout(engine: Engine) -> None:
    """Whatever the race between the timeout and the publication, a None means there was none."""
    stop = threading.Event()
    published = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            engine.ingest(at(1))
            published.set()

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    assert published.wait(LONG)
    try:
        for _ in range(300):
            before = engine.snapshot()
            assert before is not None
            snapshot = engine.wait_for_newer(before.meta.sequence - 1, timeout=1e-6)
            assert snapshot is not None
            assert snapshot.meta.sequence >= before.meta.sequence
    finally:
        stop.set()
        thread.join()


# --- lifecycle ----------------------------------------------------------------------------------


def test_stop_and_reset_wake_nobody(engine: Engine, producer: Any) -> None:
    producer(engine, at(1))
    waiter = Waiter(engine, 1)
    engine.stop()
    assert waiter.still_waits()
    engine.start()
    engine.reset()
    assert waiter.still_waits()
    engine.stop()
    engine.reset()
    engine.start()
    assert waiter.still_waits()
    producer(engine, at(2))
    assert waiter.result().meta.sequence == 2


def test_after_a_reset_the_next_publication_wakes(engine: Engine, producer: Any) -> None:
    for i in range(3):
        producer(engine, at(i))
    engine.reset()
    assert engine.wait_for_newer(None, timeout=0) is None
    assert engine.wait_for_newer(0, timeout=0) is None
    assert engine.wait_for_newer(2, timeout=0) is None
    waiters = [Waiter(engine, sequence) for sequence in (None, 0, 2, 3)]
    assert all(waiter.still_waits() for waiter in waiters)
    producer(engine, empty())
    assert [waiter.result().meta.sequence for waiter in waiters] == [4] * 4


def test_a_publication_by_stop_wakes(producer: Any) -> None:
    engine = Engine((2, 1), snapshot_interval_ms=NEVER)
    producer(engine, at(1))
    producer(engine, at(2))
    waiter = Waiter(engine, 1)
    engine.stop()
    assert waiter.result() is engine.snapshot()


def test_waiting_on_a_stopped_engine_times_out(engine: Engine) -> None:
    engine.stop()
    assert engine.wait_for_newer(None, timeout=0.01) is None


# --- the producer's thread ----------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [None, 0, 1])
@pytest.mark.parametrize("sequence", [None, 0, 1, 5])
def test_on_the_producers_thread_it_is_a_runtime_error(engine: Engine, sequence: Any, timeout: Any) -> None:
    engine.ingest(at(1))
    with pytest.raises(RuntimeError):
        engine.wait_for_newer(sequence, timeout=timeout)
    engine.ingest(at(2))
    assert engine.stats.snapshots_published == 2


def test_on_a_stopped_or_reset_engines_producer_thread_too(engine: Engine) -> None:
    engine.ingest(at(1))
    engine.stop()
    engine.reset()
    with pytest.raises(RuntimeError):
        engine.wait_for_newer(None, timeout=0)


def test_the_thread_that_will_be_the_producer_may_wait_before(engine: Engine) -> None:
    assert engine.wait_for_newer(None, timeout=0) is None
    with pytest.raises(TypeError):
        engine.ingest(np.zeros(3))
    assert engine.wait_for_newer(None, timeout=0) is None
    engine.ingest(at(1))
    with pytest.raises(RuntimeError):
        engine.wait_for_newer(None, timeout=0)


# --- arguments ----------------------------------------------------------------------------------


class Index:
    def __index__(self) -> int:
        return 0


@pytest.mark.parametrize("sequence", [0, np.int64(0), np.uint8(0), np.uint64(0), Index()])
def test_the_sequence_may_be_any_integer(engine: Engine, producer: Any, sequence: Any) -> None:
    producer(engine, at(1))
    assert engine.wait_for_newer(sequence) is engine.snapshot()
    assert engine.wait_for_newer(sequence=sequence, timeout=5) is engine.snapshot()


BAD_SEQUENCES = [True, False, np.True_, 0.0, np.float64(1), "0", b"0", [0], Fraction(0), 0j, object]


@pytest.mark.parametrize("sequence", BAD_SEQUENCES, ids=repr)
def test_a_sequence_that_is_no_integer_is_a_type_error(engine: Engine, producer: Any, sequence: Any) -> None:
    producer(engine, at(1))
    with pytest.raises(TypeError, match="sequence"):
        engine.wait_for_newer(sequence, timeout=0)


@pytest.mark.parametrize("sequence", [-1, np.int64(-1), -(2**63), -(2**200)])
def test_a_negative_sequence_is_a_value_error(engine: Engine, producer: Any, sequence: Any) -> None:
    producer(engine, at(1))
    with pytest.raises(ValueError, match="sequence"):
        engine.wait_for_newer(sequence, timeout=0)


BAD_TIMEOUTS = [True, False, np.False_, "1", b"1", [1], 1j, 0j, object, np.array(1.0)]


@pytest.mark.parametrize("timeout", BAD_TIMEOUTS, ids=repr)
def test_a_timeout_that_is_no_real_number_is_a_type_error(
    engine: Engine, producer: Any, timeout: Any
) -> None:
    producer(engine, at(1))
    with pytest.raises(TypeError, match="timeout"):
        engine.wait_for_newer(0, timeout=timeout)


@pytest.mark.parametrize(
    "timeout",
    [
        *(-1, -0.5, -math.inf, -5e-324, -(10**400), np.float32(-1), Fraction(-1, 10**400)),
        *(math.nan, np.float32("nan")),
    ],
    ids=lambda timeout: str(timeout)[:12],
)
def test_a_negative_or_nan_timeout_is_a_value_error(engine: Engine, producer: Any, timeout: Any) -> None:
    producer(engine, at(1))
    with pytest.raises(ValueError, match="timeout"):
        engine.wait_for_newer(0, timeout=timeout)


def test_the_timeout_is_keyword_only(engine: Engine) -> None:
    with pytest.raises(TypeError):
        engine.wait_for_newer(None, 0)  # type: ignore[misc]


def test_arguments_are_checked_on_the_producers_thread_too(engine: Engine) -> None:
    engine.ingest(at(1))
    for arguments, error in (
        (("0", None), TypeError),
        ((-1, None), ValueError),
        ((0, "1"), TypeError),
        ((0, -1), ValueError),
    ):
        with pytest.raises(error):
            engine.wait_for_newer(arguments[0], timeout=arguments[1])  # type: ignore[arg-type]
