"""snapshots(): the latest, again and again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from loops import LONG, LOOPS, rounds, run
from records import at, uniform

from frames2py import Engine


@pytest.fixture(params=LOOPS)
def go(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return lambda main: run(main, LOOPS[request.param])


@pytest.fixture
def engine() -> Engine:
    return Engine((2, 1), snapshot_interval_ms=0)


@pytest.fixture
def produce(engine: Engine, elsewhere: Callable[..., Any]) -> Callable[[Any], None]:
    return lambda events: elsewhere(engine.ingest, events)


def step(iterator: AsyncIterator[Any]) -> asyncio.Task[Any]:
    async def one() -> Any:
        return await anext(iterator)

    return asyncio.get_running_loop().create_task(one())


def test_it_starts_with_the_current_snapshot_and_skips_what_was_missed(
    go: Any, engine: Engine, produce: Any
) -> None:
    async def main() -> None:
        seen = []
        for i in range(3):
            produce(at(i))
        async for snapshot in engine.snapshots():
            assert snapshot is engine.snapshot()
            seen.append(snapshot.meta.sequence)
            if len(seen) == 3:
                break
            for i in range(len(seen) + 1):
                produce(at(i))
        assert seen == [3, 5, 8]

    go(main)


def test_it_waits_for_the_first_and_for_each_newer_one(go: Any, engine: Engine, produce: Any) -> None:
    async def main() -> None:
        snapshots = engine.snapshots()
        for sequence in range(1, 5):
            task = step(snapshots)
            await rounds()
            assert not task.done()
            produce(at(1))
            assert await task is engine.snapshot()
            assert task.result().meta.sequence == sequence

    go(main)


def test_it_goes_on_after_a_reset_and_a_stop(go: Any, engine: Engine, produce: Any) -> None:
    async def main() -> None:
        snapshots = engine.snapshots()
        for i in range(3):
            produce(at(i))
        assert (await anext(snapshots)).meta.sequence == 3
        engine.reset()
        task = step(snapshots)
        await rounds()
        engine.stop()
        engine.start()
        await rounds()
        assert not task.done()
        produce(at(1))
        assert (await task).meta.sequence == 4
        engine.reset()
        fresh = step(engine.snapshots())
        await rounds()
        assert not fresh.done()
        produce(at(2))
        assert (await fresh).meta.sequence == (await anext(snapshots)).meta.sequence == 5

    go(main)


def test_iterators_have_places_of_their_own(go: Any, engine: Engine, produce: Any) -> None:
    async def main() -> None:
        first, second = engine.snapshots(), engine.snapshots()
        assert isinstance(first, AsyncIterator)
        assert aiter(first) is first
        produce(at(1))
        assert await anext(first) is engine.snapshot()
        produce(at(2))
        assert await anext(first) is await anext(second) is engine.snapshot()

    go(main)


def test_tasks_may_share_an_iterator(go: Any, engine: Engine, produce: Any) -> None:
    async def main() -> None:
        snapshots = engine.snapshots()
        tasks = [step(snapshots) for _ in range(3)]
        await rounds()
        produce(at(1))
        assert [(await task).meta.sequence for task in tasks] == [1, 1, 1]
        task = step(snapshots)
        await rounds()
        assert not task.done()
        task.cancel()

    go(main)


def test_an_iterator_may_move_on_to_another_loop(engine: Engine, produce: Any) -> None:
    snapshots = engine.snapshots()

    async def main() -> int:
        task = step(snapshots)
        await rounds()
        produce(at(1))
        return (await task).meta.sequence  # type: ignore[no-any-return]

    assert [run(main) for _ in range(3)] == [1, 2, 3]


def test_it_is_cancelled_at_once_though_there_is_always_something_newer(go: Any, engine: Engine) -> None:
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            engine.ingest(at(1))

    async def watch() -> None:
        async for _ in engine.snapshots():
            pass

    async def main() -> None:
        task = asyncio.create_task(watch())
        assert await engine.wait_for_newer_async(100, timeout=LONG)
        task.cancel()
        await rounds(3)
        assert task.cancelled()

    with ThreadPoolExecutor(1) as pool:
        produced = pool.submit(produce)
        try:
            go(main)
        finally:
            stop.set()
        produced.result()


def test_on_the_producers_thread_it_is_a_runtime_error(go: Any, engine: Engine) -> None:
    engine.ingest(at(1))

    async def main() -> None:
        snapshots = engine.snapshots()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="producer"):
                await anext(snapshots)

    go(main)


def test_every_frame_is_whole_and_the_last_one_is_not_missed(go: Any) -> None:
    """Every pixel of a frame tells of the publication its meta tells of."""
    publications = 400
    engine = Engine((31, 17), "time_surface", snapshot_interval_ms=0)

    def produce() -> None:
        for sequence in range(1, publications + 1):
            engine.ingest(uniform(31, 17, 1, sequence))

    async def watch(hold: int) -> None:
        held: list[Any] = []
        last = 0
        async for snapshot in engine.snapshots():
            assert snapshot.meta.sequence > last
            last = snapshot.meta.sequence
            held = [*held[-hold:], snapshot]
            for each in held:
                assert each.frame.min() == each.frame.max() == each.meta.sequence == each.meta.watermark
            if last == publications:
                break
            await rounds(hold)

    async def main() -> None:
        async with asyncio.timeout(LONG):
            await asyncio.gather(*(watch(hold) for hold in range(5)))

    with ThreadPoolExecutor(1) as pool:
        produced = pool.submit(produce)
        go(main)
        produced.result()
