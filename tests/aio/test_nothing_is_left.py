"""Waits that end, however they do, leave no file, task, thread, timer or Engine behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from loops import FILES, LONG, LOOPS, Held, open_files, rounds, run
from records import at

from frames2py import Engine

DEBUG = pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])


@pytest.fixture(params=LOOPS)
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return LOOPS[request.param]


@pytest.fixture
def engine() -> Engine:
    return Engine((2, 1), snapshot_interval_ms=0)


@pytest.fixture(autouse=True)
def nothing_to_complain_of(caplog: pytest.LogCaptureFixture) -> Any:
    """asyncio logs what it cannot raise."""
    yield
    gc.collect()
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


async def watch(engine: Engine) -> None:
    async for _ in engine.snapshots():
        pass


def waiters(engine: Engine) -> list[asyncio.Task[Any]]:
    create = asyncio.get_running_loop().create_task
    return [
        create(engine.wait_for_newer_async(None)),
        create(engine.wait_for_newer_async(10**6, timeout=LONG)),
        create(watch(engine)),
    ]


@DEBUG
def test_tasks_that_are_cancelled(new_loop: Any, engine: Engine, debug: bool) -> None:
    async def main() -> None:
        before = Held.now()
        for _ in range(3):
            tasks = waiters(engine)
            await rounds()
            if FILES.is_dir():
                assert open_files() > before.files, "nothing waits, so this tests nothing"
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in tasks)
            del tasks, task
            await rounds()
            assert Held.now() == before

    run(main, new_loop, debug)


@DEBUG
def test_tasks_that_are_cancelled_before_they_start_or_as_they_are_served(
    new_loop: Any, engine: Engine, elsewhere: Any, debug: bool
) -> None:
    async def main() -> None:
        before = Held.now()
        for turns in range(8):
            engine.reset()
            tasks = waiters(engine)
            await rounds()
            elsewhere(engine.ingest, at(1))
            tasks += waiters(engine)
            await rounds(turns)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            del tasks, task
            await rounds()
            assert Held.now().files == before.files
            assert Held.now().timers == before.timers
            assert asyncio.all_tasks() == before.tasks

    elsewhere(engine.ingest, at(1))
    run(main, new_loop, debug)


@DEBUG
def test_a_timeout_of_asyncio(new_loop: Any, engine: Engine, debug: bool) -> None:
    async def main() -> None:
        before = Held.now()
        for delay in (0, 0.001):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(delay):
                    await engine.wait_for_newer_async(None)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(delay):
                    await watch(engine)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(engine.wait_for_newer_async(None, timeout=LONG), delay)
        await rounds()
        assert Held.now() == before

    run(main, new_loop, debug)


def test_where_a_loop_watches_sockets_nothing_is_left_at_once(engine: Engine) -> None:
    async def main() -> None:
        before = Held.now()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await engine.wait_for_newer_async(None)
        assert Held.now() == before
        assert await engine.wait_for_newer_async(None, timeout=0.001) is None
        assert Held.now() == before

    run(main)


@DEBUG
def test_waits_that_time_out(new_loop: Any, engine: Engine, debug: bool) -> None:
    async def main() -> None:
        before = Held.now()
        waits = (engine.wait_for_newer_async(None, timeout=i / 1000) for i in range(10))
        assert await asyncio.gather(*waits) == [None] * 10
        await rounds()
        assert Held.now() == before

    run(main, new_loop, debug)


@DEBUG
def test_waits_that_are_served(new_loop: Any, engine: Engine, elsewhere: Any, debug: bool) -> None:
    async def main() -> None:
        elsewhere(engine.ingest, at(1))
        before = Held.now()
        for sequence in range(1, 5):
            tasks = [
                asyncio.create_task(engine.wait_for_newer_async(sequence, timeout=LONG)) for _ in range(3)
            ]
            await rounds()
            elsewhere(engine.ingest, at(1))
            assert all([await task is engine.snapshot() for task in tasks])
        del tasks
        await rounds()
        assert Held.now() == before

    run(main, new_loop, debug)


@DEBUG
def test_iterations_that_are_broken_off(new_loop: Any, engine: Engine, elsewhere: Any, debug: bool) -> None:
    async def main() -> None:
        elsewhere(engine.ingest, at(1))
        before = Held.now()
        async for snapshot in engine.snapshots():
            elsewhere(engine.ingest, at(1))
            if snapshot.meta.sequence == 5:
                break
        with contextlib.suppress(ZeroDivisionError):
            async for _ in engine.snapshots():
                raise ZeroDivisionError
        await rounds()
        assert Held.now() == before

    run(main, new_loop, debug)


@DEBUG
def test_a_run_that_ends_with_tasks_waiting(new_loop: Any, engine: Engine, debug: bool) -> None:
    async def main() -> None:
        tasks.extend(waiters(engine))
        await rounds()

    tasks: list[Any] = []
    before = Held.now()
    run(main, new_loop, debug)
    assert all(task.cancelled() for task in tasks)
    assert Held.now() == before


def test_somebody_who_cancels_all_tasks_and_one_that_goes_on(
    new_loop: Any, engine: Engine, elsewhere: Any
) -> None:
    """What waits for the socket may be a task itself, and whoever cancels it cannot know what it is for."""

    async def stubborn() -> Any:
        with contextlib.suppress(asyncio.CancelledError):
            await engine.wait_for_newer_async(None)
        return await engine.wait_for_newer_async(None, timeout=LONG)

    async def main() -> None:
        before = Held.now()
        steady = asyncio.create_task(engine.wait_for_newer_async(None, timeout=LONG))
        task = asyncio.create_task(stubborn())
        await rounds()
        for each in asyncio.all_tasks() - {asyncio.current_task(), steady}:
            each.cancel()
        await rounds()
        assert not task.done()
        elsewhere(engine.ingest, at(1))
        assert await task is await steady is engine.snapshot()
        del task, steady, each
        await rounds()
        assert Held.now().files == before.files
        assert asyncio.all_tasks() == before.tasks

    run(main, new_loop)


def test_a_loop_that_is_closed_with_tasks_waiting(engine: Engine, elsewhere: Any) -> None:
    before = open_files()
    loop = asyncio.new_event_loop()
    coroutines = [engine.wait_for_newer_async(None), watch(engine)]
    tasks = [loop.create_task(coroutine) for coroutine in coroutines]
    loop.run_until_complete(rounds())
    loop.close()
    # Although the tasks are still here.
    assert open_files() == before
    elsewhere(engine.ingest, at(1))
    for task, coroutine in zip(tasks, coroutines, strict=True):
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it would be right to complain
        coroutine.close()
    del tasks, task, loop
    gc.collect()
    # Another loop, perhaps in the same place, works.
    engine.reset()

    async def main() -> None:
        task = asyncio.create_task(engine.wait_for_newer_async(None, timeout=LONG))
        await rounds()
        elsewhere(engine.ingest, at(1))
        assert await task is engine.snapshot()

    run(main)
    assert open_files() == before


def test_loops_come_and_go(new_loop: Any, engine: Engine, elsewhere: Any) -> None:
    async def main() -> None:
        task = asyncio.create_task(engine.wait_for_newer_async(engine.stats.snapshots_published))
        await rounds()
        elsewhere(engine.ingest, at(1))
        assert await task is engine.snapshot()

    elsewhere(engine.ingest, at(1))
    before = Held.now()
    for _ in range(50):
        run(main, new_loop)
    assert Held.now() == before


def test_an_engine_is_free_when_its_waiters_are_gone(new_loop: Any, elsewhere: Any) -> None:
    async def main() -> None:
        engine = Engine((2, 1), snapshot_interval_ms=0)
        free = weakref.ref(engine)
        snapshots = engine.snapshots()
        tasks = waiters(engine)
        served = asyncio.create_task(engine.wait_for_newer_async(None))
        await rounds()
        elsewhere(engine.ingest, at(1))
        frame = (await served).frame
        assert await anext(snapshots) is not None
        del engine, snapshots, served
        await rounds()
        gc.collect()
        assert free() is not None, "somebody waits for it"
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        del tasks, task
        await rounds()
        gc.collect()
        assert free() is None
        assert frame.sum() == 1

    before = Held.now()
    run(main, new_loop)
    assert Held.now().files == before.files


def test_an_engine_is_free_with_an_idle_loop_that_waited_for_it(engine: Engine, elsewhere: Any) -> None:
    loop = asyncio.new_event_loop()
    coming = loop.create_task(engine.wait_for_newer_async(None))
    loop.run_until_complete(rounds())
    elsewhere(engine.ingest, at(1))
    assert loop.run_until_complete(coming) is engine.snapshot()
    mine = Engine((2, 1))
    assert loop.run_until_complete(mine.wait_for_newer_async(None, timeout=0.001)) is None
    free = weakref.ref(mine)
    del mine
    gc.collect()
    assert free() is None
    loop.close()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are not raised like that there")
@pytest.mark.parametrize("iterate", [False, True])
def test_ctrl_c_ends_a_run(new_loop: Any, engine: Engine, elsewhere: Any, iterate: bool) -> None:
    async def main() -> None:
        # Sent to a main thread that sleeps in the loop.
        main_thread = threading.get_ident()
        timer = threading.Timer(0.05, signal.pthread_kill, [main_thread, signal.SIGINT])
        timer.start()
        await (watch(engine) if iterate else engine.wait_for_newer_async(None))

    before = Held.now()
    with pytest.raises(KeyboardInterrupt):
        run(main, new_loop)
    gc.collect()
    assert open_files() == before.files
    elsewhere(engine.ingest, at(1))
    assert engine.stats.snapshots_published == 1


def test_a_process_that_ends_with_a_loop_waiting_ends() -> None:
    program = """
import asyncio, threading, frames2py
engine = frames2py.Engine((2, 1), snapshot_interval_ms=0)
ready = threading.Event()
async def main():
    task = asyncio.create_task(engine.wait_for_newer_async(None))
    await asyncio.sleep(0)
    ready.set()
    await task
threading.Thread(target=asyncio.run, args=[main()], daemon=True).start()
ready.wait()
print("end")
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=LONG
    )
    assert (result.returncode, result.stdout) == (0, "end\n"), result.stderr


def test_asyncio_is_loaded_only_for_those_who_use_it() -> None:
    program = "import sys, frames2py; frames2py.Engine((2, 1)); print('asyncio' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=LONG
    )
    assert result.stdout == "False\n"
