"""What is not meant to be shared, shared: an error or a right result, never a crash, never a deadlock."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from every_kernel import EVERY_KERNEL
from records import at, uniform

from frames2py import (
    Accumulator,
    Engine,
    EventCount,
)

LONG = 60.0


def at_once(*functions: Callable[[], Any]) -> list[Any]:
    """Runs each function in a thread of its own, all at once; what each returned or raised."""
    barrier = threading.Barrier(len(functions))
    outcomes: list[Any] = [None] * len(functions)

    def run(i: int) -> None:
        barrier.wait(LONG)
        try:
            outcomes[i] = functions[i]()
        except Exception as error:
            outcomes[i] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive(), "a thread hangs"
    return outcomes


@pytest.mark.parametrize("times", [1, 40])
def test_one_accumulator_fed_by_many_threads_counts_every_accepted_call(times: int) -> None:
    accumulator = Accumulator((31, 17), "event_count")
    call = uniform(31, 17, times, 5)

    def feed() -> int:
        accepted = 0
        for _ in range(50):
            try:
                accumulator.accumulate(call)
            except RuntimeError:
                continue  # refused: somebody else was in it
            accepted += 1
        return accepted

    accepted = sum(at_once(*[feed] * 4))
    assert accepted >= 1
    frame = accumulator.read()
    assert frame.min() == frame.max() == accepted * times


@EVERY_KERNEL
def test_one_accumulator_read_and_reset_while_it_is_fed(kernel: Any) -> None:
    accumulator = Accumulator((31, 17), kernel)
    calls = [uniform(31, 17, 20, t) for t in range(0, 400, 7)]

    def feed() -> None:
        for call in calls:
            accumulator.accumulate(call)

    def read() -> None:
        for _ in range(60):
            frame = accumulator.read()
            # every pixel was given the same
            per_pixel = (
                frame.reshape(-1, 31 * 17)
                if frame.ndim != 3 or frame.shape[-1] != 2
                else frame.reshape(-1, 2).T
            )
            assert (per_pixel == per_pixel[:, :1]).all()

    def reset() -> None:
        for _ in range(30):
            accumulator.reset()

    for outcome in at_once(feed, read, reset, read):
        assert outcome is None or isinstance(outcome, RuntimeError), outcome


@EVERY_KERNEL
def test_one_state_used_by_hand_from_many_threads(kernel: Any) -> None:
    state = kernel.init_state((31, 17))
    shape, dtype = kernel.output_spec((31, 17))
    call = uniform(31, 17, 20, 35)

    def use() -> None:
        out = np.zeros(shape, dtype)
        for _ in range(30):
            kernel.begin_call(state)
            kernel.accumulate(call, state, 35)
            kernel.read(state, out, 50)
            kernel.close_window(state)
            kernel.reset(state)

    for outcome in at_once(*[use] * 4):
        assert outcome is None or isinstance(outcome, RuntimeError), outcome
    kernel.reset(state)
    out = np.full(shape, 9, dtype)
    kernel.read(state, out, None)
    assert not out.any()


@EVERY_KERNEL
def test_one_kernel_instance_in_many_threads(kernel: Any) -> None:
    def use() -> bytes:
        accumulator = Accumulator((31, 17), kernel)
        for t in range(0, 200, 7):
            accumulator.accumulate(uniform(31, 17, 2, t))
        return accumulator.read().tobytes()

    outcomes = at_once(*[use] * 4)
    assert set(outcomes) == {use()}


# --- calls back into the Engine from a kernel's own methods -------------------------------------


class Calling(EventCount):
    """A kernel that calls something from inside one of its methods."""

    name = "calling"

    def __init__(self, method: str) -> None:
        self.method = method
        self.action: Callable[[], Any] | None = None
        self.outcome: Any = "not called"

    def call(self, method: str) -> None:
        if method == self.method and self.action is not None:
            action, self.action = self.action, None
            try:
                self.outcome = action()
            except Exception as error:
                self.outcome = error

    def begin_call(self, state: Any) -> None:
        self.call("begin_call")
        super().begin_call(state)

    def accumulate(self, events: Any, state: Any, watermark: Any) -> None:
        self.call("accumulate")
        super().accumulate(events, state, watermark)

    def read(self, state: Any, out: Any, watermark: Any) -> None:
        self.call("read")
        super().read(state, out, watermark)

    def close_window(self, state: Any) -> None:
        self.call("close_window")
        super().close_window(state)


def guarded(function: Callable[[], Any]) -> Any:
    (outcome,) = at_once(function)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@pytest.mark.parametrize("action", ["ingest", "reset", "stop", "start"])
@pytest.mark.parametrize("method", ["begin_call", "accumulate", "read", "close_window"])
def test_a_kernel_that_calls_its_engine_gets_an_error_not_a_deadlock(method: str, action: str) -> None:
    kernel = Calling(method)
    engine = Engine((2, 1), kernel, snapshot_interval_ms=0)
    arguments = (at(2),) if action == "ingest" else ()
    kernel.action = lambda: getattr(engine, action)(*arguments)

    def run() -> None:
        engine.ingest(at(1))
        assert isinstance(kernel.outcome, RuntimeError)
        engine.ingest(at(3, 4))

    guarded(run)
    snapshot = engine.snapshot()
    assert snapshot is not None
    assert snapshot.frame.tolist() == [[2, 0]]
    assert engine.stats.events_ingested == 3


@pytest.mark.parametrize("action", ["accumulate", "reset", "read"])
@pytest.mark.parametrize("method", ["begin_call", "accumulate"])
def test_a_kernel_that_calls_its_accumulator_gets_an_error_not_a_deadlock(method: str, action: str) -> None:
    kernel = Calling(method)
    accumulator = Accumulator((2, 1), kernel)
    arguments = (at(2),) if action == "accumulate" else ()
    kernel.action = lambda: getattr(accumulator, action)(*arguments)
    guarded(lambda: accumulator.accumulate(at(1)))
    assert isinstance(kernel.outcome, RuntimeError)
    accumulator.accumulate(at(3, 4))
    assert accumulator.read().tolist() == [[3, 0]]


# --- nothing is kept alive ----------------------------------------------------------------------


def test_an_engine_and_a_kernel_that_know_each_other_are_collected() -> None:
    class Kernel(EventCount):
        engine: Any

    for make in (Engine, Accumulator):
        kernel = Kernel()
        owner: Any = make((2, 1), kernel)
        kernel.engine = owner
        gone = weakref.ref(kernel)
        if make is Engine:
            owner.ingest(at(1))
            assert owner.snapshot() is not None
        del kernel, owner
        gc.collect()
        assert gone() is None


def test_an_engine_keeps_no_array_it_was_given() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=0)
    array = at(1).view(type("Array", (np.ndarray,), {}))
    gone = weakref.ref(array)
    engine.ingest(array)
    del array
    gc.collect()
    assert gone() is None


@EVERY_KERNEL
def test_a_snapshot_goes_when_nobody_holds_it(kernel: Any) -> None:
    engine = Engine((2, 1), kernel, snapshot_interval_ms=0)
    engine.ingest(at(1))
    snapshot = engine.snapshot()
    assert snapshot is not None
    gone = weakref.ref(snapshot.frame)
    engine.ingest(at(2))
    del snapshot
    gc.collect()
    assert gone() is None
