"""What needs a process of its own: signals, interpreter exit, crashes, the GIL."""

from __future__ import annotations

import os
import pickle
import sys
import sysconfig
import textwrap
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import programs
import pytest
from programs import Program

STRESS = int(os.environ.get("FRAMES2PY_STRESS", "1"))
TESTS = str(Path(__file__).resolve().parent.parent)
PRELUDE = f"import sys; sys.path.insert(0, {TESTS!r})\n"


def start(program: str) -> Program:
    return Program(PRELUDE + textwrap.dedent(program))


def run(program: str, *options: str) -> list[str]:
    return programs.run(PRELUDE + textwrap.dedent(program), options=options)


CTRL_C = """
    import signal, threading
    from frames2py import Engine
    from records import at

    signal.signal(signal.SIGINT, signal.default_int_handler)
    engine = Engine((2, 1), snapshot_interval_ms=0)
    print("waiting", flush=True)
    try:
        engine.wait_for_newer(None, timeout=LIMIT)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    # the Engine is usable: another thread waits, this one produces, both finish
    results = []
    waiter = threading.Thread(target=lambda: results.append(engine.wait_for_newer(None, timeout=60)))
    waiter.start()
    engine.ingest(at(1))
    waiter.join()
    print("sequence", results[0].meta.sequence, flush=True)
    engine.stop()
"""


def fill(program: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        program = program.replace(name, value)
    return program


def interrupt_when_waiting(program: str) -> list[str]:
    return programs.interrupt_when_waiting(PRELUDE + textwrap.dedent(program))


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process on Windows")
@pytest.mark.parametrize("limit", ["None", "float('inf')", "86400", "1e300"])
def test_ctrl_c_in_a_main_thread_wait_raises_and_leaves_the_engine_usable(limit: str) -> None:
    output = interrupt_when_waiting(fill(CTRL_C, {"LIMIT": limit}))
    assert output == ["interrupted", "sequence", "1"]


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process on Windows")
def test_ctrl_c_while_another_thread_produces() -> None:
    output = interrupt_when_waiting(
        """
        import signal, threading
        from frames2py import Engine
        from records import at
        signal.signal(signal.SIGINT, signal.default_int_handler)
        engine = Engine((2, 1), snapshot_interval_ms=0)
        stop = threading.Event()
        def produce():
            while not stop.is_set():
                engine.ingest(at(1))
        producer = threading.Thread(target=produce)
        producer.start()
        print("waiting", flush=True)
        try:
            last = None
            while True:
                last = engine.wait_for_newer(last).meta.sequence
        except KeyboardInterrupt:
            print("interrupted")
        print("newer" if engine.wait_for_newer(last).meta.sequence > last else "older")
        stop.set()
        producer.join()
        """
    )
    assert output == ["interrupted", "newer"]


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process on Windows")
def test_a_handler_that_does_not_raise_lets_the_wait_go_on() -> None:
    output = interrupt_when_waiting(
        """
        import signal, threading
        from frames2py import Engine
        from records import at
        engine = Engine((2, 1), snapshot_interval_ms=0)
        def handler(*_):
            print("handled", flush=True)
            threading.Thread(target=engine.ingest, args=(at(1),)).start()
        signal.signal(signal.SIGINT, handler)
        print("waiting", flush=True)
        print(engine.wait_for_newer(None).meta.sequence)
        """
    )
    assert output == ["handled", "1"]


def test_daemon_threads_may_wait_at_interpreter_exit() -> None:
    output = run(
        """
        import threading, time
        from frames2py import Engine
        from records import at
        engine = Engine((2, 1), snapshot_interval_ms=0)
        def wait(timeout):
            while True:
                engine.wait_for_newer(10**9, timeout=timeout)
        for timeout in (None, None, 1e-4, 0, float("inf"), 3600):
            threading.Thread(target=wait, args=(timeout,), daemon=True).start()
        time.sleep(0.1)
        engine.ingest(at(1))
        print("done")
        """
    )
    assert output == ["done"]


def test_daemon_threads_may_ingest_and_read_at_interpreter_exit() -> None:
    output = run(
        """
        import threading, time
        from frames2py import Engine
        from records import uniform
        engine = Engine((64, 64), snapshot_interval_ms=0)
        call = uniform(64, 64, 20, 5)
        def produce():
            while True:
                engine.ingest(call)
        def read():
            last = None
            while True:
                snapshot = engine.wait_for_newer(last)
                last = snapshot.meta.sequence
                snapshot.copy()
        for target in (produce, read, read):
            threading.Thread(target=target, daemon=True).start()
        time.sleep(0.3)
        print("done")
        """
    )
    assert output == ["done"]


AT_EXIT = """
    import threading, time
    from frames2py import Accumulator, Engine, EventCount
    from records import at

    class Busy(EventCount):
        # In Python code, where the interpreter ends daemon threads, most of the time.
        def spend(self):
            for _ in range(300):
                pass
        def accumulate(self, events, state, watermark):
            self.spend()
            super().accumulate(events, state, watermark)
        def read(self, state, out, watermark):
            self.spend()
            super().read(state, out, watermark)
        def reset(self, state):
            self.spend()
            super().reset(state)

    def engine(kernel):
        engine = Engine((2, 1), kernel, snapshot_interval_ms=0)
        while True:
            engine.ingest(at(1))
            engine.snapshot(), engine.stats, engine.memory
            if isinstance(kernel, Busy):
                engine.reset()

    def accumulator():
        accumulator = Accumulator((2, 1), Busy())
        while True:
            accumulator.accumulate(at(1))
            accumulator.read()

    for _ in range(3):
        threading.Thread(target=TARGET, args=ARGUMENTS, daemon=True).start()
    time.sleep(0.05)
    print("done")
"""


@pytest.mark.parametrize(
    ("target", "arguments"),
    [("engine", "('event_count',)"), ("engine", "(Busy(),)"), ("accumulator", "()")],
    ids=["snapshots", "a kernel's methods", "an accumulator's kernel"],
)
def test_daemon_threads_may_be_in_python_code_called_by_ours_at_exit(target: str, arguments: str) -> None:
    program = fill(AT_EXIT, {"TARGET": target, "ARGUMENTS": arguments})
    for _ in range(5):
        assert run(program) == ["done"]


def test_frames_alive_at_interpreter_exit() -> None:
    output = run(
        """
        import frames2py, threading
        from records import at
        engine = frames2py.Engine((64, 64), snapshot_interval_ms=0)
        kept = []
        for i in range(20):
            engine.ingest(at(i))
            kept.append(engine.snapshot())
        frame = kept[3].frame
        view = memoryview(kept[4].frame)
        frames2py.kept = kept            # held by a module until it is torn down
        threading.kept = [frame, view, engine]
        print("done")
        """
    )
    assert output == ["done"]


SCRIBBLE = """
    import threading
    import numpy as np
    import frames2py
    from frames2py import Engine

    # Enough that the interpreter is let go of meanwhile.
    width, height, count = 37, 23, 150_000
    array = np.zeros(count, LAYOUT)
    rounds = ROUNDS
    done = threading.Event()

    def scribble():
        random = np.random.default_rng(7)
        raw = array.view(np.uint8)
        noise = random.integers(0, 256, raw.size, dtype=np.uint8)
        calm = np.zeros(count, array.dtype)
        while not done.is_set():
            array["x"] = 65535
            array["y"] = 65535
            array["t"] = 2**64 - 1
            raw[:] = noise
            array[...] = calm
            array["x"] = 5

    writers = [threading.Thread(target=scribble) for _ in range(2)]
    for writer in writers:
        writer.start()
    kernel = KERNEL
    engine = Engine((width, height), kernel, snapshot_interval_ms=0)
    try:
        for _ in range(rounds):
            before = engine.stats
            try:
                engine.ingest(array)
            except ValueError:
                assert engine.stats.events_ingested == before.events_ingested
                # The array was another one when its events were taken back: counts may be off.
                engine.reset()
                continue
            after = engine.stats
            assert after.events_ingested - before.events_ingested == count
            assert after.events_out_of_bounds - before.events_out_of_bounds <= count
            snapshot = engine.snapshot()
            if kernel in ("event_count", "polarity"):
                # torn events may land on any pixel or nowhere, but each at most once
                assert int(snapshot.frame.sum()) <= count
            if snapshot.meta.watermark is not None:
                assert snapshot.meta.watermark < 2**63
    finally:
        done.set()
        for writer in writers:
            writer.join()
    # the memory around is as good as before
    array[...] = np.zeros((), array.dtype)
    engine.reset()
    engine.ingest(array)
    assert engine.stats.events_ingested == count
    print("done")
"""


@pytest.mark.parametrize(
    "kernel",
    [
        '"event_count"',
        '"polarity"',
        '"time_surface"',
        "frames2py.ExpDecay(0.5)",
        "frames2py.TimestampDecay(1e6)",
        "frames2py.StackedHistogram(bins=4, bin_us=1000)",
        "frames2py.VoxelGrid(bins=4, bin_us=1000)",
    ],
)
@pytest.mark.parametrize("layout", ["packed", "aligned"])
def test_a_thread_that_writes_the_array_during_ingest_never_makes_it_crash(kernel: str, layout: str) -> None:
    dtype = f"np.dtype(frames2py.EVENT_DTYPE.descr, align={layout == 'aligned'})"
    values = {"KERNEL": kernel, "LAYOUT": dtype, "ROUNDS": str(20 * STRESS)}
    assert run(fill(SCRIBBLE, values)) == ["done"]


def test_engines_in_processes_of_their_own_give_the_same_frames() -> None:
    """The same program in several processes at once: snapshots pickled there are equal here."""
    program = """
    import pickle, sys
    from frames2py import Engine, VoxelGrid
    from records import events
    engine = Engine((3, 2), VoxelGrid(bins=3, bin_us=10), snapshot_interval_ms=0)
    for k in range(5):
        engine.ingest(events((k * 11 + i, i % 3, i % 2, i % 2) for i in range(20)))
    sys.stdout.buffer.write(pickle.dumps(engine.snapshot()))
    """
    with ExitStack() as stack:
        processes = [stack.enter_context(start(program)) for _ in range(3)]
        results = [process.finish() for process in processes]
    assert [err for _, err in results] == [""] * 3
    snapshots: list[Any] = [pickle.loads(out) for out, _ in results]
    import oracle

    from frames2py import SnapshotMeta

    model = oracle.AccumulatorModel(oracle.VoxelGrid(3, 2, 3, 10))
    for k in range(5):
        model.accumulate([(k * 11 + i, i % 3, i % 2, i % 2) for i in range(20)])
    for snapshot in snapshots:
        assert snapshot.meta == SnapshotMeta(63, 5)
        oracle.check_frame(np.array(snapshot.frame), model.model, 63)


def test_importing_the_package_imports_nothing_optional() -> None:
    output = run(
        """
        import sys
        import frames2py, frames2py.kernels, frames2py.publish
        optional = ("torch", "h5py", "tkinter", "matplotlib", "PIL", "cv2")
        print([name for name in optional if name in sys.modules])
        """
    )
    assert output == ["[]"]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="needs a free-threaded build")
def test_importing_the_package_leaves_the_gil_disabled() -> None:
    output = run(
        """
        import sys
        import numpy
        assert not sys._is_gil_enabled()
        import frames2py
        engine = frames2py.Engine((2, 2), snapshot_interval_ms=0)
        engine.ingest(numpy.zeros(5, frames2py.EVENT_DTYPE))
        print(engine.snapshot().frame.sum(), sys._is_gil_enabled())
        """,
        "-W",
        "error",
    )
    assert output == ["5", "False"]
