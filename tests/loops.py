"""Event loops for tests, and what a process holds."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONG = 60.0  # guards against a hang; no test waits that long when all is well
FILES = Path("/proc/self/fd")


class ReceivingLoop(asyncio.SelectorEventLoop):
    """A loop that can receive from sockets and not watch them, as the default one of Windows."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        raise NotImplementedError


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "default": asyncio.new_event_loop,
    "receiving": ReceivingLoop,
}


def run(
    main: Callable[[], Coroutine[Any, Any, Any]],
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    debug: bool | None = None,
) -> Any:
    with asyncio.Runner(loop_factory=new_loop, debug=debug) as runner:
        return runner.run(main())


async def rounds(count: int = 12) -> None:
    """Lets the loop go round: whatever can happen without waiting has happened."""
    for _ in range(count):
        await asyncio.sleep(0)


def open_files() -> int:
    """How many files are open; always 0 where that cannot be seen."""
    return len(os.listdir(FILES)) if FILES.is_dir() else 0


def pending_timers() -> int:
    """Timers of any loop that are still to go off."""
    return sum(isinstance(each, asyncio.TimerHandle) and not each.cancelled() for each in gc.get_objects())


@dataclass(frozen=True)
class Held:
    """What waiting must leave as it was."""

    files: int
    threads: frozenset[threading.Thread]
    tasks: frozenset[asyncio.Task[Any]]
    timers: int

    @classmethod
    def now(cls) -> Held:
        try:
            tasks = asyncio.all_tasks()
        except RuntimeError:
            tasks = set()
        return cls(open_files(), frozenset(threading.enumerate()), frozenset(tasks), pending_timers())
