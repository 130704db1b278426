"""Playing in processes of their own: signals, exit, forks."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import programs
import pytest

EVENTS = [(1000 * i, i % 4, i // 4 % 3, 1) for i in range(100)]

PRELUDE = """
import gc, os, signal, sys, threading, time
import numpy as np
from frames2py import Engine
path = sys.argv[1]
inside = threading.Event()
class Slow:
    name = "slow"
    def output_spec(self, size): return (1,), np.dtype("i8")
    def init_state(self, size): return None
    def begin_call(self, state): pass
    def accumulate(self, events, state, watermark):
        inside.set()
        time.sleep(0.05)
        sum(range(1000))
    def read(self, state, out, watermark): out[0] = 1
    def close_window(self, state): pass
    def reset(self, state): pass
"""


@pytest.fixture
def write(write_any):
    return write_any


def start(program: str, *arguments: object) -> programs.Program:
    return programs.Program(PRELUDE + textwrap.dedent(program), *arguments)


def run(program: str, *arguments: object, status: int = 0) -> list[str]:
    return programs.run(PRELUDE + textwrap.dedent(program), *arguments, status=status)


@pytest.mark.parametrize("kernel", ["'event_count'", "Slow()"])
@pytest.mark.parametrize("kept", ["engine, playback", "engine", "None"])
@pytest.mark.parametrize("speed", ["None", "1.0"])
def test_exit_ends_what_plays(write, kernel, kept, speed):
    program = f"""
    engine = Engine((4, 3), {kernel}, snapshot_interval_ms=0)
    playback = engine.play(path, loop=True, speed={speed})
    engine.wait_for_newer(None)
    threading.kept = {kept}
    print("done")
    """
    assert run(program, write(EVENTS)) == ["done"]


@pytest.mark.parametrize("kernel", ["'event_count'", "Slow()"])
@pytest.mark.parametrize("way", ["sys.exit(3)", "os._exit(3)", "playback.__enter__(); sys.exit(3)"])
def test_other_ways_out(write, kernel, way):
    program = f"""
    engine = Engine((4, 3), {kernel}, snapshot_interval_ms=0)
    playback = engine.play(path, loop=True)
    engine.wait_for_newer(None)
    {way}
    """
    assert run(program, write(EVENTS), status=3) == []


def test_sys_exit_inside_the_block(write):
    program = """
    engine = Engine((4, 3), Slow(), snapshot_interval_ms=0)
    with engine.play(path, loop=True):
        engine.wait_for_newer(None)
        sys.exit(3)
    """
    assert run(program, write(EVENTS), status=3) == []


def test_exit_while_daemon_threads_do_all_kinds_of_things(write):
    program = """
    engine = Engine((4, 3), Slow(), snapshot_interval_ms=0)
    playback = engine.play(path, loop=True)
    def forever(call):
        while True:
            call()
    for call in (
        playback.join,
        lambda: playback.join(0.001),
        lambda: (playback.pause(), playback.resume()),
        lambda: engine.wait_for_newer(None),
    ):
        threading.Thread(target=forever, args=(call,), daemon=True).start()
    inside.wait()
    time.sleep(0.2)
    print("done")
    """
    assert run(program, write(EVENTS)) == ["done"]


def test_exit_waits_for_no_kernel_that_does_not_return(write):
    program = """
    class Stuck(Slow):
        def accumulate(self, events, state, watermark):
            inside.set()
            threading.Event().wait()
    engine = Engine((4, 3), Stuck())
    engine.play(path)
    inside.wait()
    print("done")
    """
    assert run(program, write(EVENTS)) == ["done"]


def test_an_error_that_comes_at_exit_does_no_harm(write_broken):
    program = """
    engine = Engine((4, 3))
    engine.play(path)
    print("done")
    """
    with start(program, write_broken()) as running:
        out, err = running.finish()
    assert out.split() == [b"done"]
    assert err == "" or "65535" in err  # it may be found before exit, and is told then


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_exit_while_a_pipe_has_nothing(write_raw, tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program = """
    def feed():
        file = open(sys.argv[2], "wb")
        file.write(open(path, "rb").read())
        file.flush()
        threading.kept = file
    threading.Thread(target=feed).start()
    engine = Engine((4, 3), KERNEL, snapshot_interval_ms=0)
    playback = engine.play(sys.argv[2])
    while playback.events < 100:
        time.sleep(0.001)
    print(playback.join(0.01))
    """
    for kernel in ("'event_count'", "Slow()"):
        assert run(program.replace("KERNEL", kernel), write_raw(EVENTS), pipe) == ["False"]


def interrupt_when_waiting(program: str, *arguments: object) -> list[str]:
    return programs.interrupt_when_waiting(PRELUDE + textwrap.dedent(program), *arguments)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process on Windows")
@pytest.mark.parametrize("wait", ["playback.join()", "playback.join(1e9)", "playback.join(float('inf'))"])
@pytest.mark.parametrize("kernel", ["'event_count'", "Slow()"])
def test_ctrl_c_ends_a_join_and_not_the_playback(write, wait, kernel):
    program = f"""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    engine = Engine((4, 3), {kernel}, snapshot_interval_ms=0)
    playback = engine.play(path, loop=True)
    print("waiting", flush=True)
    try:
        {wait}
    except KeyboardInterrupt:
        print("interrupted", playback.finished)
    before = engine.wait_for_newer(None).meta.sequence
    print(engine.wait_for_newer(before).meta.sequence > before)
    playback.stop()
    print(playback.join())
    """
    assert interrupt_when_waiting(program, write(EVENTS)) == ["interrupted", "False", "True", "True"]


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process on Windows")
def test_ctrl_c_ends_the_block(write):
    program = """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    engine = Engine((4, 3))
    try:
        with engine.play(path, loop=True) as playback:
            print("waiting", flush=True)
            playback.join()
    except KeyboardInterrupt:
        print("interrupted", playback.finished)
    """
    assert interrupt_when_waiting(program, write(EVENTS)) == ["interrupted", "True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kernel", ["'event_count'", "Slow()"])
def test_a_forked_child_sees_a_finished_playback_and_exits(write, kernel):
    program = f"""
    import warnings
    warnings.simplefilter("ignore")  # newer Pythons warn of any fork with threads
    engine = Engine((4, 3), {kernel}, snapshot_interval_ms=0)
    with engine.play(path, loop=True) as playback:
        engine.wait_for_newer(None)
        for round in range(10):
            pid = os.fork()
            if pid == 0:
                ok = playback.finished and playback.join() and not playback.paused
                ok = ok and playback.events > 0 and engine.snapshot().meta.sequence > 0
                playback.pause(), playback.resume(), playback.stop()
                try:
                    engine.play(path)
                    ok = False
                except RuntimeError:
                    pass
                other = Engine((4, 3), snapshot_interval_ms=0)
                ok = ok and other.play(path).join() and other.stats.events_ingested == 100
                other.play(path, loop=True)
                sys.exit(5 if ok else 1)  # through the block's end and atexit
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
        assert not playback.finished
        last = engine.wait_for_newer(None).meta.sequence
        print(engine.wait_for_newer(last).meta.sequence > last)
    """
    assert run(program, write(EVENTS)) == ["True"]


def test_playing_needs_no_interpreter(write_raw):
    """A kernel of the package plays on while another thread never lets go of the GIL."""
    program = """
    sys.setswitchinterval(1e6)
    engine = Engine((4, 3), snapshot_interval_ms=0)
    playback = engine.play(path)
    while not playback.finished:
        pass
    print(engine.snapshot().meta.watermark, playback.join())
    """
    assert run(program, write_raw(EVENTS)) == ["99000", "True"]
