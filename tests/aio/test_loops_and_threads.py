"""Any number of loops in any threads, with producers and other readers beside them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from loops import LONG, LOOPS, Held, rounds, run
from records import at, uniform

from frames2py import Engine

WIDTH, HEIGHT = 13, 7


def surface() -> Engine:
    """An engine whose publication `n` has `n` on every pixel, as `produce` uses it."""
    return Engine((WIDTH, HEIGHT), "time_surface", snapshot_interval_ms=0)


def produce(engine: Engine, publications: int) -> None:
    batch = uniform(WIDTH, HEIGHT, 1, 0)
    for sequence in range(1, publications + 1):
        batch["t"] = sequence
        engine.ingest(batch)


def check(snapshot: Any, last: int) -> int:
    """Checks that it is whole and newer, and returns its number."""
    sequence = snapshot.meta.sequence
    assert isinstance(sequence, int)
    assert sequence > last
    assert snapshot.meta.watermark == snapshot.frame.min() == snapshot.frame.max() == sequence
    return sequence


async def by_iteration(engine: Engine, publications: int) -> None:
    last = 0
    async for snapshot in engine.snapshots():
        last = check(snapshot, last)
        if last == publications:
            return


async def by_waiting(engine: Engine, publications: int) -> None:
    last = 0
    while last < publications:
        snapshot = await engine.wait_for_newer_async(last or None, timeout=LONG)
        assert snapshot is not None, "a wake-up was lost"
        last = check(snapshot, last)


async def by_short_waits(engine: Engine, publications: int) -> None:
    last = 0
    while last < publications:
        snapshot = await engine.wait_for_newer_async(last, timeout=1e-4)
        if snapshot is not None:
            last = check(snapshot, last)


async def with_cancelled_waits(engine: Engine, publications: int) -> None:
    last = 0
    while last < publications:
        task = asyncio.ensure_future(engine.wait_for_newer_async(last))
        await rounds(last % 4)
        task.cancel()
        for snapshot in await asyncio.gather(task, return_exceptions=True):
            if not isinstance(snapshot, asyncio.CancelledError):
                last = check(snapshot, last)
        if task.cancelled():
            # Gets on whatever became of that.
            latest = engine.snapshot()
            last = last if latest is None else latest.meta.sequence


READERS = [by_iteration, by_waiting, by_short_waits, with_cancelled_waits]


def in_thread(engine: Engine, publications: int) -> None:
    last = 0
    while last < publications:
        snapshot = engine.wait_for_newer(last, timeout=LONG)
        assert snapshot is not None, "a wake-up was lost"
        last = check(snapshot, last)


@pytest.mark.parametrize("loops", [1, 2, 5])
@pytest.mark.parametrize("kind", LOOPS)
def test_several_loops_in_several_threads(kind: str, loops: int) -> None:
    publications = 1500
    engine = surface()
    before = Held.now()

    async def main() -> None:
        async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
            for reader in READERS:
                group.create_task(reader(engine, publications))
                group.create_task(reader(engine, publications))

    with ThreadPoolExecutor(loops + 2) as pool:
        jobs = [pool.submit(run, main, LOOPS[kind]) for _ in range(loops)]
        jobs.append(pool.submit(in_thread, engine, publications))
        jobs.append(pool.submit(produce, engine, publications))
        for job in jobs:
            job.result()
    assert Held.now() == before


@pytest.mark.parametrize("kind", LOOPS)
def test_several_engines_on_several_loops(kind: str) -> None:
    publications, engines = 600, [surface() for _ in range(4)]
    before = Held.now()

    async def main() -> None:
        async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
            for engine in engines:
                for reader in READERS:
                    group.create_task(reader(engine, publications))

    with ThreadPoolExecutor(3 + len(engines)) as pool:
        jobs = [pool.submit(run, main, LOOPS[kind]) for _ in range(3)]
        jobs += [pool.submit(produce, engine, publications) for engine in engines]
        for job in jobs:
            job.result()
    assert Held.now() == before


def test_all_loops_and_threads_get_the_same_objects() -> None:
    publications, readers = 200, 3
    engine = surface()
    seen: list[dict[int, Any]] = [{} for _ in range(2 * readers)]

    async def watch(mine: dict[int, Any]) -> None:
        async for snapshot in engine.snapshots():
            mine[snapshot.meta.sequence] = (snapshot, snapshot.frame, snapshot.meta)
            if snapshot.meta.sequence == publications:
                return

    def run_two(number: int) -> None:
        async def main() -> None:
            await asyncio.gather(watch(seen[2 * number]), watch(seen[2 * number + 1]))

        run(main)

    with ThreadPoolExecutor(readers + 1) as pool:
        jobs = [pool.submit(run_two, number) for number in range(readers)]
        jobs.append(pool.submit(produce, engine, publications))
        for job in jobs:
            job.result()
    first: dict[int, Any] = {}
    for mine in seen:
        for sequence, objects in mine.items():
            assert all(a is b for a, b in zip(objects, first.setdefault(sequence, objects), strict=True))


def test_loops_that_come_and_go_while_an_engine_publishes() -> None:
    """Subscribing, being served, giving up and closing, in many threads at any moment of a publication."""
    engine, stop = surface(), threading.Event()
    before = Held.now()

    def publish() -> int:
        count = 0
        batch = uniform(WIDTH, HEIGHT, 1, 0)
        while not stop.is_set():
            count += 1
            batch["t"] = count
            engine.ingest(batch)
        return count

    def live(number: int) -> None:
        async def main() -> None:
            last = 0
            for turn in range(number % 3 + 1):
                snapshot = await engine.wait_for_newer_async(last, timeout=LONG)
                last = check(snapshot, last)
                task = asyncio.ensure_future(engine.wait_for_newer_async(last + 10**9))
                await rounds(turn)
                task.cancel()
                await asyncio.wait([task])

        for _ in range(25):
            run(main, list(LOOPS.values())[number % 2])

    with ThreadPoolExecutor(5) as pool:
        producer = pool.submit(publish)
        try:
            for job in [pool.submit(live, number) for number in range(4)]:
                job.result()
        finally:
            stop.set()
        assert producer.result() > 0
    assert Held.now() == before


def test_a_loop_that_is_run_by_one_thread_after_another(elsewhere: Callable[..., Any]) -> None:
    engine = surface()
    loop = asyncio.new_event_loop()
    task = loop.create_task(by_waiting(engine, 4))
    for publication in range(1, 5):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(loop.run_until_complete, rounds()).result()
        assert not task.done()
        batch = uniform(WIDTH, HEIGHT, 1, publication)
        elsewhere(engine.ingest, batch)
    loop.run_until_complete(task)
    loop.run_until_complete(rounds())
    loop.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_publication_in_a_forked_child_wakes_nobody_in_the_parent() -> None:
    """The child has the same sockets. A byte it sends is no publication, and the next one is not missed."""
    program = """
import asyncio, os, threading
import numpy as np, frames2py
engine = frames2py.Engine((2, 1), snapshot_interval_ms=0)
none = np.zeros(0, frames2py.EVENT_DTYPE)
loop = asyncio.new_event_loop()
async def rounds():
    for _ in range(12):
        await asyncio.sleep(0)
task = loop.create_task(engine.wait_for_newer_async(None))
loop.run_until_complete(rounds())
for _ in range(3):
    child = os.fork()
    if not child:
        engine.ingest(none)
        os._exit(engine.stats.snapshots_published)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    loop.run_until_complete(rounds())
    assert not task.done()
producer = threading.Thread(target=engine.ingest, args=[none])
producer.start()
print(loop.run_until_complete(task).meta.sequence)
producer.join()
loop.run_until_complete(rounds())
loop.close()
"""
    result = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "1\n", "")


def test_a_producer_at_work_is_not_held_up_by_a_loop_that_does_not_come_round() -> None:
    engine = surface()

    async def main() -> None:
        task = asyncio.ensure_future(engine.wait_for_newer_async(None))
        await rounds()
        # The loop is blocked here until all is published.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(produce, engine, 5000).result(LONG)
        assert check(await task, 0) == 5000

    run(main)


def test_the_loops_own_tools_work_with_it(elsewhere: Callable[..., Any]) -> None:
    """gather, as_completed, shield, TaskGroup: it is a coroutine like any other."""
    engine = Engine((2, 1), snapshot_interval_ms=0)

    async def main() -> None:
        inner = asyncio.ensure_future(engine.wait_for_newer_async(None))
        outer = asyncio.ensure_future(asyncio.wait_for(asyncio.shield(inner), 1e-3))
        with pytest.raises(TimeoutError):
            await outer
        assert not inner.done()
        elsewhere(engine.ingest, at(1))
        assert await inner is engine.snapshot()
        for first in asyncio.as_completed([engine.wait_for_newer_async(i) for i in (0, 9)], timeout=LONG):
            assert (await first).meta.sequence == 1  # type: ignore[union-attr]
            break
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await rounds()

    run(main)
