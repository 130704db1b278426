"""Playing into a kernel written in Python, which needs the interpreter on the playback's thread."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from records import at

from frames2py import Engine, Playback
from frames2py.adapters import evt

EVENTS = [(1000 * i, i % 5, i // 4 % 3, 1) for i in range(100)]  # every fifth is beyond the sensor


class Total:
    """The number of events so far; ``hook`` is called in every method that changes something."""

    name = "total"

    def __init__(self, hook: Callable[[str], None] = lambda name: None) -> None:
        self.hook = hook

    def output_spec(self, sensor_size: tuple[int, int]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        return (1,), np.dtype(np.int64)

    def init_state(self, sensor_size: tuple[int, int]) -> dict[str, int]:
        return {"total": 0}

    def begin_call(self, state: dict[str, int]) -> None:
        self.hook("begin_call")

    def accumulate(self, events: Any, state: dict[str, int], watermark: int | None) -> None:
        self.hook("accumulate")
        assert watermark is not None and events["x"].max() < 4
        state["total"] += len(events)

    def read(self, state: dict[str, int], out: Any, watermark: int | None) -> None:
        self.hook("read")
        out[0] = state["total"]

    def close_window(self, state: dict[str, int]) -> None:
        self.hook("close_window")

    def reset(self, state: dict[str, int]) -> None:
        self.hook("reset")
        state["total"] = 0


def test_it_sees_the_events_inside_on_one_thread_that_is_not_this(write):
    threads = set()
    engine = Engine((4, 3), Total(lambda name: threads.add(threading.get_ident())), snapshot_interval_ms=0)
    playback = engine.play(evt.open(write(EVENTS), batch_size=7))
    assert playback.join()
    snapshot = engine.snapshot()
    assert snapshot is not None and snapshot.frame[0] == 80
    assert snapshot.meta.sequence == 15 and snapshot.meta.watermark == 98_000
    assert engine.stats.events_out_of_bounds == 20
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_a_loop_resets_it_between_rounds(write):
    names: list[str] = []
    enough = threading.Event()

    def hook(name: str) -> None:
        names.append(name)
        if names.count("reset") == 3:
            enough.set()

    engine = Engine((4, 3), Total(hook), snapshot_interval_ms=0)
    with engine.play(write(EVENTS), loop=True):
        assert enough.wait(60)
    rounds = [list(group) for kind, group in itertools.groupby(names, lambda n: n == "reset") if not kind]
    assert rounds[:3] == [["begin_call", "accumulate", "read", "close_window"]] * 3


def test_what_it_raises_comes_from_join(write):
    error = LookupError("mine")

    def hook(name: str) -> None:
        if name == "accumulate":
            raise error

    engine = Engine((4, 3), Total(hook))
    playback = engine.play(write(EVENTS))
    with pytest.raises(LookupError) as caught:
        playback.join()
    assert caught.value is error
    assert playback.finished and playback.events == 0
    engine.reset()  # usable


def test_calls_back_that_would_wait_for_themselves_are_refused(write):
    told: dict[str, BaseException | None] = {}
    known = threading.Event()
    done = threading.Event()
    playing: list[Playback] = []

    def hook(name: str) -> None:
        if name != "accumulate" or told:
            return
        assert known.wait(60)
        engine, playback = engines[0], playing[0]
        calls: dict[str, Callable[[], object]] = {
            "wait": lambda: engine.wait_for_newer(None),
            "ingest": lambda: engine.ingest(at(1)),
            "stop": engine.stop,
            "reset": engine.reset,
            "play": lambda: engine.play(write(EVENTS)),
            "join": playback.join,
            "snapshot": engine.snapshot,
            "stats": lambda: engine.stats,
            "pause": playback.pause,
            "resume": playback.resume,
            "playback.stop": playback.stop,
        }
        for call, function in calls.items():
            try:
                function()
                told[call] = None
            except BaseException as raised:
                told[call] = raised
        done.set()

    engines = [Engine((4, 3), Total(hook), snapshot_interval_ms=0)]
    playing.append(engines[0].play(write(EVENTS), loop=True))
    known.set()
    assert done.wait(60)
    assert playing[0].join()  # it stopped itself
    refused = {name for name, error in told.items() if error is not None}
    assert refused == {"wait", "ingest", "stop", "reset", "play", "join"}
    assert all(type(told[name]) is RuntimeError for name in refused)


def test_contention_with_every_other_call_ends_in_no_deadlock(write):
    """The kernel gives the interpreter away inside its methods, while it holds the Engine's lock."""
    lock = threading.Lock()

    def hook(name: str) -> None:
        with lock:
            sum(range(500))

    engine = Engine((4, 3), Total(hook), snapshot_interval_ms=0)
    path = write(EVENTS)
    rounds = 150
    failed: list[BaseException] = []

    def repeat(*calls: Callable[[], object]) -> None:
        try:
            for _ in range(rounds):
                for call in calls:
                    call()
        except BaseException as error:
            failed.append(error)

    def contend() -> None:
        with lock:
            engine.snapshot()

    for _ in range(2):
        with engine.play(evt.open(path, batch_size=3), loop=True) as playback:
            groups: list[tuple[Callable[[], object], ...]] = [
                (engine.stop, engine.start),
                (engine.reset,),
                (playback.pause, playback.resume),
                (contend, lambda: engine.stats),
                (lambda: engine.wait_for_newer(10**9, timeout=0.001),),
                (lambda: playback.join(0.001),),
                (lambda: gc.collect(1),),  # of all generations, it would look at what other tests left
            ]
            threads = [threading.Thread(target=repeat, args=group) for group in groups]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        engine.start()
    assert failed == []
    engine.reset()
    assert engine.play(path).join()
    snapshot = engine.snapshot()
    assert snapshot is not None and snapshot.frame[0] == 80


def test_pause_waits_for_the_call_under_way(write):
    inside = threading.Event()
    goes_on = threading.Event()
    left: list[str] = []

    def hook(name: str) -> None:
        if name == "accumulate":
            inside.set()
            assert goes_on.wait(60)
            left.append(name)

    engine = Engine((4, 3), Total(hook), snapshot_interval_ms=0)
    playback = engine.play(evt.open(write(EVENTS), batch_size=50))
    assert inside.wait(60)
    threading.Timer(0.05, goes_on.set).start()
    playback.pause()
    assert left == ["accumulate"] and playback.events == 50
    playback.resume()
    assert playback.join()


def test_an_engine_in_a_cycle_with_its_kernel_is_collected_while_it_plays(write):
    kernel = Total()
    engine = Engine((4, 3), kernel, snapshot_interval_ms=0)
    kernel.engine = engine  # type: ignore[attr-defined]
    playback = engine.play(write(EVENTS), loop=True)
    kernel.playback = playback  # type: ignore[attr-defined]
    assert engine.wait_for_newer(None, timeout=60) is not None
    gone = weakref.ref(engine)
    del kernel, engine
    playback.pause()  # so that no call of its holds on to the kernel
    del playback
    gc.collect()
    assert gone() is None
