"""wait_for_newer_async: what it returns and raises, whatever the loop."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from loops import LONG, LOOPS, open_files, rounds, run
from records import at, empty

from frames2py import Engine

NEVER = 3_600_000.0

Main = Callable[[], Any]


@pytest.fixture(params=LOOPS)
def go(request: pytest.FixtureRequest) -> Callable[[Main], Any]:
    """Runs a coroutine function in a new loop of each kind."""
    return lambda main: run(main, LOOPS[request.param])


@pytest.fixture
def engine() -> Engine:
    return Engine((2, 1), snapshot_interval_ms=0)


@pytest.fixture
def produce(engine: Engine, elsewhere: Callable[..., Any]) -> Callable[[Any], None]:
    """``produce(events)`` ingests in another thread and returns when that has published."""
    return lambda events: elsewhere(engine.ingest, events)


def wait(engine: Engine, sequence: Any, **kwargs: Any) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(engine.wait_for_newer_async(sequence, **kwargs))


# --- what it returns ----------------------------------------------------------------------------


def test_already_newer(go: Any, engine: Engine, produce: Any) -> None:
    async def main() -> None:
        produce(at(1))
        produce(at(2))
        assert await engine.wait_for_newer_async(1) is engine.snapshot()
        assert await engine.wait_for_newer_async(0) is engine.snapshot()
        assert await engine.wait_for_newer_async(None) is engine.snapshot()
        assert await engine.wait_for_newer_async(1, timeout=0) is engine.snapshot()
        assert await engine.wait_for_newer_async(1, timeout=5) is engine.snapshot()

    go(main)


def test_only_a_greater_sequence_is_newer(go: Any, engine: Engine, produce: Any) -> None:
    async def main() -> None:
        produce(at(1))
        for sequence in (1, 2, 3, 2**63, 2**64, 2**200):
            assert await engine.wait_for_newer_async(sequence, timeout=0) is None

    go(main)


@pytest.mark.parametrize(
    "timeout", [None, LONG, math.inf, 10**400, 1e300, 2**63, 10**15, Fraction(60), np.float32(60)]
)
def test_it_waits_until_a_newer_snapshot_is_published(
    go: Any, engine: Engine, produce: Any, timeout: Any
) -> None:
    async def main() -> None:
        produce(at(1))
        task = wait(engine, 1, timeout=timeout)
        await rounds()
        assert not task.done()
        produce(at(2))
        assert await task is engine.snapshot()

    go(main)


@pytest.mark.parametrize("sequence", [None, 0])
def test_it_may_wait_before_anything_was_published(
    go: Any, engine: Engine, produce: Any, sequence: Any
) -> None:
    async def main() -> None:
        task = wait(engine, sequence)
        await rounds()
        assert not task.done()
        produce(empty())
        assert await task is engine.snapshot()

    go(main)


def test_it_returns_the_latest_of_what_came_before_the_loop_got_round(
    go: Any, engine: Engine, produce: Any
) -> None:
    async def main() -> None:
        task = wait(engine, None)
        await rounds()
        for i in range(5):
            produce(at(i))
        assert (await task).meta.sequence == 5

    go(main)


def test_each_waits_for_its_own_sequence(go: Any, engine: Engine, produce: Any) -> None:
    async def main() -> None:
        tasks = [wait(engine, sequence) for sequence in (5, 0, 3, 1, 4, 2)]
        for published in range(1, 7):
            await rounds()
            produce(at(published))
            await rounds()
            # What was published satisfies those who wait for more than a smaller sequence, and no others.
            assert sum(task.done() for task in tasks) == published
        assert [task.result().meta.sequence for task in tasks] == [6, 1, 4, 2, 5, 3]

    go(main)


def test_a_thousand_waiters_wake_and_take_no_more_than_one_pair_of_sockets(
    go: Any, engine: Engine, produce: Any
) -> None:
    async def main() -> None:
        produce(at(1))
        files, threads = open_files(), threading.active_count()
        tasks = [wait(engine, 1, timeout=LONG) for _ in range(1000)]
        await rounds()
        assert not any(task.done() for task in tasks)
        assert open_files() <= files + 2
        assert threading.active_count() == threads
        produce(at(2))
        snapshot = engine.snapshot()
        assert all([await task is snapshot for task in tasks])

    go(main)


def test_a_wait_that_ends_leaves_the_others_waiting(go: Any, engine: Engine, produce: Any) -> None:
    async def main() -> None:
        ends = [wait(engine, None, timeout=0.001) for _ in range(3)]
        stay = [wait(engine, None) for _ in range(3)]
        assert await asyncio.gather(*ends) == [None] * 3
        stay.pop().cancel()
        await rounds()
        assert not any(task.done() for task in stay)
        produce(at(1))
        assert all([await task is engine.snapshot() for task in stay])

    go(main)


def test_an_ingest_that_publishes_nothing_wakes_nobody(go: Any, elsewhere: Any) -> None:
    async def main() -> None:
        engine = Engine((2, 1), snapshot_interval_ms=NEVER)
        elsewhere(engine.ingest, at(1))
        task = wait(engine, 1)
        for i in range(10):
            await rounds(3)
            elsewhere(engine.ingest, at(i))
        await rounds()
        assert not task.done()
        engine.stop()
        assert (await task).meta.sequence == 2

    go(main)


# --- timeouts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, 0.0, -0.0, np.int64(0), Fraction(0), 5e-324, Fraction(1, 10**400)])
def test_timeout_0_looks_once(go: Any, engine: Engine, produce: Any, timeout: Any) -> None:
    async def main() -> None:
        assert await engine.wait_for_newer_async(None, timeout=timeout) is None
        produce(at(1))
        assert await engine.wait_for_newer_async(1, timeout=timeout) is None
        assert await engine.wait_for_newer_async(0, timeout=timeout) is engine.snapshot()

    go(main)


@pytest.mark.parametrize("timeout", [0.1, np.float32(0.1), Fraction(1, 10)])
def test_the_timeout_is_in_seconds_on_the_monotonic_clock(go: Any, engine: Engine, timeout: Any) -> None:
    async def main() -> None:
        start = time.monotonic()
        assert await engine.wait_for_newer_async(None, timeout=timeout) is None
        assert time.monotonic() - start >= 0.1 - 0.02  # the resolution of coarse clocks

    go(main)


def test_none_is_returned_only_if_nothing_newer_is_there_after_the_timeout(go: Any, engine: Engine) -> None:
    stop, published = threading.Event(), threading.Event()

    def produce() -> None:
        while not stop.is_set():
            engine.ingest(at(1))
            published.set()

    async def main() -> None:
        for _ in range(200):
            before = engine.snapshot()
            assert before is not None
            snapshot = await engine.wait_for_newer_async(before.meta.sequence - 1, timeout=1e-6)
            assert snapshot is not None
            assert snapshot.meta.sequence >= before.meta.sequence

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        assert published.wait(LONG)
        go(main)
    finally:
        stop.set()
        thread.join()


def test_what_is_published_while_the_loop_is_busy_past_the_deadline_is_returned(
    go: Any, engine: Engine, produce: Any
) -> None:
    async def main() -> None:
        task = wait(engine, None, timeout=0.001)
        await asyncio.sleep(0)
        time.sleep(0.05)
        produce(at(1))
        assert await task is engine.snapshot()

    go(main)


# --- lifecycle ----------------------------------------------------------------------------------


def test_stop_and_reset_wake_nobody(go: Any, engine: Engine, produce: Any) -> None:
    async def main() -> None:
        produce(at(1))
        task = wait(engine, 1)
        for change in (engine.stop, engine.start, engine.reset, engine.stop, engine.reset, engine.start):
            await rounds(3)
            change()
        await rounds()
        assert not task.done()
        produce(at(2))
        assert (await task).meta.sequence == 2

    go(main)


def test_a_reset_that_takes_down_what_woke_a_task_lets_it_wait_on(
    go: Any, engine: Engine, produce: Any
) -> None:
    async def main() -> None:
        for late in (False, True):
            last = engine.stats.snapshots_published
            engine.reset()
            task = wait(engine, None, timeout=0.1 if late else LONG)
            await rounds()
            # The loop does not come round between these.
            produce(at(1))
            engine.reset()
            await rounds()
            if late:
                assert await task is None
            else:
                assert not task.done()
                produce(at(2))
                assert (await task).meta.sequence == last + 2

    go(main)


def test_after_a_reset_the_next_publication_wakes(go: Any, engine: Engine, produce: Any) -> None:
    async def main() -> None:
        for i in range(3):
            produce(at(i))
        engine.reset()
        assert await engine.wait_for_newer_async(None, timeout=0) is None
        tasks = [wait(engine, sequence) for sequence in (None, 0, 2, 3)]
        await rounds()
        assert not any(task.done() for task in tasks)
        produce(empty())
        assert [(await task).meta.sequence for task in tasks] == [4] * 4

    go(main)


def test_a_publication_by_stop_wakes(go: Any, elsewhere: Any) -> None:
    async def main() -> None:
        engine = Engine((2, 1), snapshot_interval_ms=NEVER)
        elsewhere(engine.ingest, at(1))
        elsewhere(engine.ingest, at(2))
        task = wait(engine, 1)
        await rounds()
        engine.stop()
        assert await task is engine.snapshot()

    go(main)


# --- others on the loop -------------------------------------------------------------------------


def test_others_run_though_there_is_always_something_newer(go: Any, engine: Engine, produce: Any) -> None:
    """A task that never has to wait cannot keep the loop to itself."""
    produce(at(1))

    async def greedy() -> None:
        while True:
            assert await engine.wait_for_newer_async(0) is not None

    async def poll() -> None:
        while True:
            assert await engine.wait_for_newer_async(1, timeout=0) is None

    async def main() -> None:
        tasks = [asyncio.create_task(greedy()), asyncio.create_task(poll())]
        await rounds(100)
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError)
            for end in await asyncio.gather(*tasks, return_exceptions=True)
        )

    go(main)


def test_a_wait_in_turns_with_the_producer_loses_no_wake_up(go: Any, engine: Engine) -> None:
    """The producer publishes only after the task has seen the last one: a lost wake-up hangs."""
    turn, turns = threading.Semaphore(1), 1000

    def produce() -> None:
        for _ in range(turns):
            assert turn.acquire(timeout=LONG)
            engine.ingest(at(1))

    async def main() -> None:
        for sequence in range(turns):
            snapshot = await engine.wait_for_newer_async(sequence or None, timeout=LONG)
            assert snapshot is not None, "a wake-up was lost"
            assert snapshot.meta.sequence == sequence + 1
            turn.release()

    with ThreadPoolExecutor(1) as pool:
        produced = pool.submit(produce)
        go(main)
        produced.result()


# --- the producer's thread ----------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [None, 0, 1])
@pytest.mark.parametrize("sequence", [None, 0, 1, 5])
def test_on_the_producers_thread_it_is_a_runtime_error(
    go: Any, engine: Engine, sequence: Any, timeout: Any
) -> None:
    engine.ingest(at(1))
    with pytest.raises(RuntimeError) as waiting:
        engine.wait_for_newer(sequence, timeout=timeout)

    async def main() -> None:
        with pytest.raises(RuntimeError) as awaiting:
            await engine.wait_for_newer_async(sequence, timeout=timeout)
        assert str(awaiting.value) == str(waiting.value)

    go(main)


def test_what_counts_is_where_it_is_awaited(engine: Engine) -> None:
    """The producer may hand a wait to a loop in another thread."""
    engine.ingest(at(1))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        future = asyncio.run_coroutine_threadsafe(engine.wait_for_newer_async(1), loop)
        assert not future.done()
        engine.ingest(at(2))
        assert future.result(LONG) is engine.snapshot()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_task_that_waits_when_its_thread_becomes_the_producer_is_served(go: Any, engine: Engine) -> None:
    async def main() -> None:
        task = wait(engine, None)
        await rounds()
        engine.ingest(at(1))
        assert await task is engine.snapshot()
        with pytest.raises(RuntimeError):
            await engine.wait_for_newer_async(1)

    go(main)


# --- arguments ----------------------------------------------------------------------------------

BAD_SEQUENCES = [True, np.True_, 0.0, np.float64(1), "0", b"0", [0], Fraction(0), 0j, object]
BAD_SEQUENCES += [-1, np.int64(-1), -(2**63), -(2**200)]
BAD_TIMEOUTS = [True, np.False_, "1", b"1", [1], 1j, object, np.array(1.0)]
BAD_TIMEOUTS += [-1, -0.5, -math.inf, -5e-324, -(10**400), math.nan, np.float32("nan")]


@pytest.mark.parametrize(
    ("sequence", "timeout"),
    [*((sequence, 0) for sequence in BAD_SEQUENCES), *((0, timeout) for timeout in BAD_TIMEOUTS)],
    ids=lambda value: repr(value)[:16],
)
def test_bad_arguments_raise_as_in_wait_for_newer(
    engine: Engine, produce: Any, sequence: Any, timeout: Any
) -> None:
    produce(at(1))
    with pytest.raises((TypeError, ValueError)) as waiting:
        engine.wait_for_newer(sequence, timeout=timeout)

    async def main() -> None:
        awaitable = engine.wait_for_newer_async(sequence, timeout=timeout)
        with pytest.raises(waiting.type) as awaiting:
            await awaitable
        assert str(awaiting.value) == str(waiting.value)

    run(main)


class Index:
    def __index__(self) -> int:
        return 0


@pytest.mark.parametrize("sequence", [0, np.int64(0), np.uint8(0), np.uint64(0), Index()])
def test_the_sequence_may_be_any_integer(engine: Engine, produce: Any, sequence: Any) -> None:
    async def main() -> None:
        produce(at(1))
        assert await engine.wait_for_newer_async(sequence) is engine.snapshot()
        assert await engine.wait_for_newer_async(sequence=sequence, timeout=5) is engine.snapshot()

    run(main)


def test_the_timeout_is_keyword_only(engine: Engine) -> None:
    with pytest.raises(TypeError):
        engine.wait_for_newer_async(None, 0)  # type: ignore[misc]
    with pytest.raises(TypeError):
        engine.wait_for_newer_async()  # type: ignore[call-arg]


def test_it_has_the_signature_of_wait_for_newer() -> None:
    assert inspect.signature(Engine.wait_for_newer_async) == inspect.signature(Engine.wait_for_newer)


def test_it_needs_a_loop(engine: Engine) -> None:
    coroutine = engine.wait_for_newer_async(None)
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)


@pytest.fixture
def no_more_files() -> Iterator[None]:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("no_more_files")
def test_without_a_socket_to_be_had_it_is_an_os_error_and_changes_nothing(
    go: Any, engine: Engine, produce: Any
) -> None:
    import resource

    async def main() -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        with pytest.raises(OSError):
            await engine.wait_for_newer_async(None, timeout=LONG)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        task = wait(engine, None)
        await rounds()
        produce(at(1))
        assert await task is engine.snapshot()

    produce(empty())
    engine.reset()
    go(main)
