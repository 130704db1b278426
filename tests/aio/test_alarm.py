"""What the producer does for a loop that waits: one byte, once."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from records import at

from frames2py import Engine
from frames2py._core import Alarm


@pytest.fixture
def engine() -> Engine:
    return Engine((2, 1), snapshot_interval_ms=0)


@pytest.fixture
def pair(engine: Engine) -> Iterator[tuple[Alarm, socket.socket]]:
    alarm, handle = Alarm.open(engine)
    with socket.socket(fileno=handle) as receiver:
        receiver.setblocking(False)
        yield alarm, receiver


def received(receiver: socket.socket) -> int | None:
    try:
        return len(receiver.recv(10**6))
    except BlockingIOError:
        return None


def test_it_goes_off_once_however_much_is_published(engine: Engine, pair: Any) -> None:
    alarm, receiver = pair
    engine.ingest(at(1))
    assert received(receiver) is None
    for _ in range(3):
        alarm.arm()
        alarm.arm()
        assert received(receiver) is None
        for i in range(1000):
            engine.ingest(at(i))
        assert received(receiver) == 1
    assert alarm.latest == 3001


def test_it_does_not_block_the_producer_when_nobody_receives(engine: Engine, pair: Any) -> None:
    alarm, receiver = pair
    for i in range(10_000):
        alarm.arm()
        engine.ingest(at(i))
    assert received(receiver) is not None
    receiver.close()
    alarm.arm()
    engine.ingest(at(1))
    assert engine.stats.snapshots_published == 10_001


def test_it_is_disarmed_and_closed_with_its_last_reference(engine: Engine) -> None:
    alarm, handle = Alarm.open(engine)
    with socket.socket(fileno=handle) as receiver:
        receiver.setblocking(False)
        alarm.arm()
        del alarm
        engine.ingest(at(1))
        assert received(receiver) == 0, "a byte was sent, or the other end is open"


def test_it_does_not_keep_the_engine() -> None:
    engine = Engine((2, 1), snapshot_interval_ms=0)
    free = weakref.ref(engine)
    engine.ingest(at(1))
    alarm, handle = Alarm.open(engine)
    with socket.socket(fileno=handle) as receiver:
        receiver.setblocking(False)
        alarm.arm()
        assert alarm.latest == 1
        del engine
        gc.collect()
        assert free() is None
        assert alarm.latest == 0
        assert received(receiver) is None
