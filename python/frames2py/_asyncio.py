"""Waiting for snapshots in asyncio.

A producer may publish without an interpreter, so what wakes an event loop is a byte in a socket. For an
Engine and an event loop there is one pair of sockets, however many tasks wait, with a `Listener`. It is there
while tasks wait, and is used on the loop's thread only:

1. A task that finds nothing newer joins. The first to join arms the alarm, which is then to go off once.
2. It looks again, as something may have been published before the alarm was armed, and sleeps.
3. The next publication sets off the alarm: the socket becomes readable, the loop calls the listener, and that
   wakes the tasks for which there is something newer. If others are left it arms the alarm again and looks
   again, as in 2.

So the producer sends at most one byte each time the loop has come round to look."""

from __future__ import annotations

import asyncio
import socket
from weakref import WeakValueDictionary

from ._core import Alarm, Engine, listeners, newer, wait_arguments
from ._types import Snapshot

__all__ = ["Snapshots", "wait_for_newer_async"]


async def wait_for_newer_async(
    engine: Engine, sequence: int | None, timeout: float | None
) -> Snapshot | None:
    """``Engine.wait_for_newer_async``."""
    last, seconds = wait_arguments(engine, sequence, timeout)
    return await wait(engine, last, seconds)


class Snapshots:
    """``Engine.snapshots``. It holds nothing but its place, so there is nothing to close."""

    __slots__ = ("_engine", "_sequence")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sequence = 0

    def __aiter__(self) -> Snapshots:
        return self

    async def __anext__(self) -> Snapshot:
        last, _ = wait_arguments(self._engine, self._sequence, None)
        snapshot = await wait(self._engine, last, None)
        assert snapshot is not None, "a wait without a timeout ends with a snapshot"
        self._sequence = snapshot.meta.sequence
        return snapshot


async def wait(engine: Engine, last: int, seconds: float | None) -> Snapshot | None:
    loop = asyncio.get_running_loop()
    snapshot = newer(engine, last)
    if snapshot is not None or seconds == 0:
        # A task that never has to wait must let others run all the same, and hear when it is cancelled.
        await asyncio.sleep(0)
        latest = newer(engine, last)
        return snapshot if latest is None else latest
    deadline = None if seconds is None else loop.time() + seconds
    late = False
    while snapshot is None and not late:
        late = await sleep(engine, loop, last, deadline)
        # None also if a reset took down what woke this task: then it waits on.
        snapshot = newer(engine, last)
    return snapshot


async def sleep(engine: Engine, loop: asyncio.AbstractEventLoop, last: int, deadline: float | None) -> bool:
    """Sleeps until something newer than `last` was published or the deadline has passed; whether it has."""
    waiter: asyncio.Future[bool] = loop.create_future()
    timer = None if deadline is None else loop.call_at(deadline, settle, waiter, True)
    late = True
    try:
        # Never in a variable of this frame, which may last as long as the task or a traceback.
        listener_of(engine, loop).join(waiter, last)
        late = await waiter
    finally:
        if timer is not None:
            timer.cancel()
        leave(engine, loop, waiter, for_good=late)
    return late


def settle(waiter: asyncio.Future[bool], late: bool) -> None:
    if not waiter.done():
        waiter.set_result(late)


def listener_of(engine: Engine, loop: asyncio.AbstractEventLoop) -> Listener:
    known = listeners(engine, Listeners)
    listener = known.get(id(loop))
    if listener is None or listener.closed:
        listener = known[id(loop)] = Listener(engine, loop)
    return listener


def leave(
    engine: Engine, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[bool], *, for_good: bool
) -> None:
    listener = listeners(engine, Listeners).get(id(loop))
    if listener is not None:
        listener.leave(waiter, for_good=for_good)


class Receiver(socket.socket):
    """A socket that closes without a warning when its loop was closed before it."""

    def __del__(self) -> None:
        self.close()


class Listener:
    """The tasks of one event loop that wait for one Engine. Only the loop refers to it, so that closing the
    loop frees it."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.alarm, handle = Alarm.open(engine)
        self.receiver = Receiver(fileno=handle)
        self.receiver.setblocking(False)
        self.waiters: dict[asyncio.Future[bool], int] = {}
        # Whether the alarm is armed, or went off and `wake` will be called for it. True if anybody waits.
        self.armed = False
        self.task: asyncio.Task[bytes] | None = None
        self.lingers = False
        self.closed = False
        try:
            loop.add_reader(self.receiver, self.on_readable)
        except NotImplementedError:
            self.receive()

    def join(self, waiter: asyncio.Future[bool], last: int) -> None:
        """Wakes `waiter` as soon as there is something newer than `last`."""
        self.arm()
        if last < self.alarm.latest:
            settle(waiter, False)
        else:
            self.waiters[waiter] = last

    def leave(self, waiter: asyncio.Future[bool], *, for_good: bool) -> None:
        """`waiter` waits no more. With the last one the listener closes; but one that was served is likely to
        be back at once, and new sockets cost more than to wait for that."""
        self.waiters.pop(waiter, None)
        if for_good:
            self.close_if_unused()
        elif not self.waiters and not self.lingers:
            self.lingers = True
            self.loop.call_soon(self.linger)

    def linger(self) -> None:
        self.lingers = False
        self.close_if_unused()

    def close_if_unused(self) -> None:
        if self.waiters or self.closed:
            return
        self.closed = True
        del self.alarm  # which disarms it and closes its end
        if self.task is not None:
            self.task.cancel()  # and `on_received` closes the socket
            return
        if not self.loop.is_closed():
            self.loop.remove_reader(self.receiver)
        self.receiver.close()

    def arm(self) -> None:
        if not self.armed:
            self.armed = True
            self.alarm.arm()

    def wake(self) -> None:
        """Wakes those for whom there is something newer. The alarm went off, perhaps for them."""
        self.armed = False
        self.wake_served()
        if self.waiters:
            self.arm()
            self.wake_served()

    def wake_served(self) -> None:
        latest = self.alarm.latest
        for waiter in [waiter for waiter, last in self.waiters.items() if last < latest]:
            del self.waiters[waiter]
            settle(waiter, False)

    def on_readable(self) -> None:
        try:
            self.receiver.recv(64)
        except (BlockingIOError, InterruptedError):
            return
        self.wake()

    # Windows' default loop cannot watch sockets, only receive from them, which takes a task.

    def receive(self) -> None:
        self.task = self.loop.create_task(self.loop.sock_recv(self.receiver, 64))
        self.task.add_done_callback(self.on_received)

    def on_received(self, task: asyncio.Task[bytes]) -> None:
        if not task.cancelled():
            task.result()
        # At the end of a loop this task is cancelled along with the waiters, but it may also have been alone.
        if not self.closed and all(waiter.done() for waiter in self.waiters):
            self.waiters.clear()
            self.close_if_unused()
        if self.closed:
            self.receiver.close()
        else:
            self.receive()
            self.wake()


# An Engine's listeners by the ids of their loops. A listener keeps its loop, so no other loop has its id.
Listeners = WeakValueDictionary[int, Listener]
