"""Pausing, stopping, joining and repeating a playback, and the Engine's lifecycle meanwhile."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import frames2py
from frames2py import Engine, Playback
from frames2py.adapters import evt

EVENTS = [(1000 * i, i % 4, i // 4 % 3, 1) for i in range(100)]
NEVER = [(0, 0, 0, 1), (10**9, 1, 0, 1)]  # the second event is a thousand seconds away


@pytest.fixture
def write(write_any):
    return write_any


def until(condition: Callable[[], bool]) -> None:
    """Waits for what is sure to happen."""
    while not condition():
        time.sleep(0.001)


def test_a_paced_playback_takes_its_time_and_loses_nothing(write):
    engine = Engine((4, 3), snapshot_interval_ms=1e9)
    began = time.monotonic()
    playback = engine.play(write(EVENTS), speed=2)
    assert playback.join()
    assert time.monotonic() - began >= 99_000 / 2 / 1e6
    engine.stop()
    assert engine.stats.events_ingested == playback.events == 100


def test_it_waits_where_the_recording_waits(write):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    playback = engine.play(write(NEVER), speed=1)
    until(lambda: playback.events == 1)
    assert playback.position_us == 0
    assert playback.join(0) is False and playback.join(timeout=0.02) is False
    assert not playback.finished
    assert repr(playback) == "<running playback, 1 events>"
    playback.stop()
    assert playback.join() is True
    assert playback.events == 1
    assert repr(playback) == "<finished playback, 1 events>"


def test_after_pause_nothing_comes_until_resume(write):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    playback = engine.play(write(EVENTS), loop=True)
    for _ in range(20):
        playback.pause()
        assert playback.paused
        before = playback.events, playback.position_us, engine.stats.events_ingested
        time.sleep(0.002)
        assert (playback.events, playback.position_us, engine.stats.events_ingested) == before
        assert playback.join(0) is False
        playback.resume()
        assert not playback.paused
        until(lambda: playback.events > before[0])  # noqa: B023
    playback.pause()
    playback.pause()
    assert repr(playback).startswith("<paused")
    playback.stop()
    assert playback.join()
    assert not playback.paused
    for call in (playback.pause, playback.resume, playback.stop):
        call()
        assert not playback.paused and playback.finished


def test_the_clock_stands_still_while_paused(write):
    """The recording takes 99 ms, and as long again as it was paused."""
    began = time.monotonic()
    playback = Engine((4, 3)).play(write(EVENTS), speed=1)
    playback.pause()
    time.sleep(0.15)
    assert playback.events < 100
    playback.resume()
    assert playback.join()
    assert time.monotonic() - began >= 0.099 + 0.15


def test_engine_stop_lets_events_pass_by(write):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    engine.stop()
    playback = engine.play(write(EVENTS))
    assert playback.join()
    assert playback.events == 100
    assert engine.stats.events_ingested == 0 and engine.snapshot() is None
    engine.start()
    assert engine.play(write(EVENTS)).join()
    assert engine.stats.events_ingested == 100


def test_the_lifecycle_may_be_changed_from_other_threads_meanwhile(write):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    done = threading.Event()

    def fuzz(calls: Any) -> None:
        for call in itertools.cycle(calls):
            if done.is_set():
                return
            call()

    with engine.play(write(EVENTS), loop=True) as playback:
        groups = [
            (engine.stop, engine.start),
            (engine.reset, engine.snapshot),
            (playback.pause, playback.resume),
        ]
        threads = [threading.Thread(target=fuzz, args=(group,)) for group in groups]
        for thread in threads:
            thread.start()
        until(lambda: playback.events > 20_000)
        done.set()
        for thread in threads:
            thread.join()
    engine.start()
    engine.reset()
    assert engine.play(write(EVENTS)).join()
    assert engine.stats.events_ingested == 100


def test_a_loop_starts_the_kernel_over_and_keeps_counting(write):
    """A time surface shows the larger times of the round before unless it starts over."""
    path = write([(5, 0, 0, 1), (9, 1, 0, 1)])
    engine = Engine((4, 3), "time_surface", snapshot_interval_ms=0)
    reader = frames2py.open(path, batch_size=1)
    seen = set()
    with engine.play(reader, loop=True) as playback:
        last = 0
        while len(seen) < 2 or playback.events < 100:
            snapshot = engine.wait_for_newer(last, timeout=60)
            assert snapshot is not None
            last = snapshot.meta.sequence
            seen.add((snapshot.meta.watermark, tuple(snapshot.frame[0, :2].tolist())))
            assert playback.position_us in (None, 5, 9)
            assert engine.snapshot() is not None  # what is published stays up between rounds
    assert seen == {(5, (5, 0)), (9, (5, 9))}
    stats = engine.stats
    assert stats.events_ingested == playback.events == stats.snapshots_published


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_played_as_it_comes_and_cannot_be_repeated(write_raw, tmp_path):
    content = write_raw(EVENTS).read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    goes_on = threading.Event()

    def feed() -> None:
        with open(pipe, "wb") as file:
            file.write(content[:-8])
            file.flush()
            goes_on.wait()
            file.write(content[-8:])

    engine = Engine((4, 3), snapshot_interval_ms=0)
    feeder = threading.Thread(target=feed)
    feeder.start()
    playback = engine.play(pipe)
    until(lambda: playback.events == 99)
    assert not playback.finished
    goes_on.set()
    feeder.join()
    assert playback.join() and playback.events == 100

    feeder = threading.Thread(target=feed)
    feeder.start()
    reader = evt.open(pipe)
    with pytest.raises(ValueError, match="pipe"):
        engine.play(reader, loop=True)
    assert sum(map(len, reader)) == 100  # given back
    feeder.join()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("batch_size", [None, 1000])
@pytest.mark.parametrize("wait", ["play", "read"])
def test_a_pipe_that_has_nothing_keeps_nobody(write_raw, tmp_path, batch_size, wait):
    """Stopping a playback, or closing a reader, does not wait for bytes."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ends = threading.Event()

    def feed() -> None:
        with open(pipe, "wb") as file:
            file.write(write_raw(EVENTS).read_bytes())
            file.flush()
            ends.wait()

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        reader = frames2py.open(pipe, batch_size=batch_size)
        if wait == "play":
            with Engine((4, 3), snapshot_interval_ms=0).play(reader) as playback:
                until(lambda: playback.events == (100 if batch_size is None else 0))
                assert playback.join(0.05) is False
            assert playback.finished
        else:
            batches = iter(reader)
            if batch_size is None:
                assert len(next(batches)) == 100
            with ThreadPoolExecutor(1) as pool:
                nothing = pool.submit(next, batches)
                time.sleep(0.05)  # so that it is waiting; earlier it would find the reader closed
                reader.close()
                with pytest.raises(ValueError, match="closed"):
                    nothing.result(timeout=60)
    finally:
        ends.set()
        feeder.join()


# join


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan"), float("-inf"), -(10**400)])
def test_a_timeout_below_zero_is_a_value_error(write, timeout):
    playback = Engine((4, 3)).play(write(EVENTS))
    with pytest.raises(ValueError, match="timeout"):
        playback.join(timeout)


@pytest.mark.parametrize("timeout", ["1", True, np.False_, 1j, [1]])
def test_a_timeout_that_is_no_number_is_a_type_error(write, timeout):
    playback = Engine((4, 3)).play(write(EVENTS))
    with pytest.raises(TypeError, match="timeout"):
        playback.join(timeout)


@pytest.mark.parametrize("timeout", [None, float("inf"), 1e300, 10**400, 60, np.float32(60)])
def test_a_timeout_may_be_of_any_real_type_and_size(write, timeout):
    assert Engine((4, 3)).play(write(EVENTS)).join(timeout) is True


def test_many_threads_may_join(write, write_broken):
    engine = Engine((4, 3))

    def join(playback: Playback) -> object:
        try:
            return playback.join()
        except ValueError as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        playback = engine.play(write(EVENTS), speed=1)
        assert list(pool.map(join, [playback] * 8)) == [True] * 8
        playback = engine.play(write_broken(), speed=1)
        first, *others = pool.map(join, [playback] * 8)
        assert isinstance(first, ValueError) and all(error is first for error in others)


# Who keeps whom


def test_playing_goes_on_without_the_playback(write):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    playback = engine.play(write(EVENTS), loop=True)
    gone = weakref.ref(playback)
    del playback
    gc.collect()
    assert gone() is None
    now = engine.stats.events_ingested
    until(lambda: engine.stats.events_ingested > now)


def test_a_playback_keeps_its_engine(write):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    playback = engine.play(write(EVENTS))
    kept = weakref.ref(engine)
    del engine
    gc.collect()
    assert kept() is not None
    assert playback.join() and playback.events == 100
    del playback
    gc.collect()
    assert kept() is None


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs to see open files")
def test_it_ends_with_the_last_reference_and_lets_go_of_its_file(write):
    path = write(EVENTS)

    def is_open() -> bool:
        found = []
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"/proc/self/fd/{number}"))
        return str(path) in found

    engine = Engine((4, 3), snapshot_interval_ms=0)
    playback = engine.play(path, loop=True)
    snapshot = engine.wait_for_newer(None, timeout=60)
    assert is_open()
    del engine, playback
    gc.collect()
    until(lambda: not is_open())
    assert snapshot is not None and snapshot.frame.shape == (3, 4)
    # and at its end, before join() returns
    engine = Engine((4, 3))
    assert engine.play(path).join()
    assert not is_open()


class Counting:
    """A kernel in Python whose life can be watched."""

    name = "counting"

    def output_spec(self, size):
        return (1,), np.dtype("i8")

    def init_state(self, size):
        return [0]

    def begin_call(self, state):
        pass

    def accumulate(self, events, state, watermark):
        state[0] += len(events)

    def read(self, state, out, watermark):
        out[0] = state[0]

    def close_window(self, state):
        pass

    def reset(self, state):
        state[0] = 0


def test_what_the_last_steps_of_a_playback_leave_goes_with_the_next_call(write):
    kernel = Counting()
    kept = weakref.ref(kernel)
    engine = Engine((4, 3), kernel, snapshot_interval_ms=0)
    playback = engine.play(write(EVENTS), loop=True)
    assert engine.wait_for_newer(None, timeout=60) is not None
    del engine, playback, kernel

    def is_gone() -> bool:
        gc.collect()
        Engine((1, 1))
        return kept() is None

    until(is_gone)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs to see threads")
def test_no_thread_is_left_behind(write, write_broken):
    many = write((i, i % 4, i % 3, 1) for i in range(30_000))

    def threads() -> int:
        """Those of playbacks. The one that plays may still be on its last steps when it is seen finished."""
        names = []
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):
                with open(f"/proc/self/task/{task}/comm") as file:
                    names.append(file.read().strip())
        return sum(name in ("frames2py play", "frames2py read") for name in names)

    until(lambda: threads() == 0)  # of tests before
    engine = Engine((4, 3), snapshot_interval_ms=0)
    assert engine.play(many).join()
    until(lambda: threads() == 0)
    with engine.play(many, loop=True) as playback:
        until(lambda: playback.events > 0)
        playback.pause()
        time.sleep(0.02)  # so that all that may be decoded ahead is
        assert threads() == 2
    until(lambda: threads() == 0)
    with pytest.raises(ValueError):
        engine.play(write_broken()).join()
    until(lambda: threads() == 0)
    other = Engine((4, 3))
    other.play(many, speed=1e-6, loop=True)  # or else all may have been read already
    until(lambda: threads() == 2)
    del other
    gc.collect()
    until(lambda: threads() == 0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("drop_first", [True, False])
def test_an_error_that_nobody_can_ask_for_is_not_lost(write_broken, monkeypatch, drop_first):
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append((args.exc_type, str(args.exc_value))))
    engine = Engine((4, 3))
    playback = engine.play(write_broken(), speed=1)
    while not drop_first and not playback.finished:
        time.sleep(0.001)
    del playback
    gc.collect()
    until(lambda: bool(told))
    assert len(told) == 1
    assert told[0][0] is ValueError and "65535" in told[0][1]


def test_an_error_that_was_raised_is_told_once(write_broken, monkeypatch):
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    playback = Engine((4, 3)).play(write_broken())
    with pytest.raises(ValueError):
        playback.join()
    del playback
    gc.collect()
    assert told == []
