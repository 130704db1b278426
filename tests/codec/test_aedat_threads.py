"""The threads that help to read AEDAT 4.0: which there are, and what a fork leaves of them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import frames2py
from frames2py import EVENT_DTYPE, Engine

EVENTS = 300_000


@pytest.fixture(params=["lz4", "zstd"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file of some forty packets whose columns count on."""
    array = np.zeros(EVENTS, EVENT_DTYPE)
    rng = np.random.default_rng(1)
    array["t"] = np.cumsum(rng.integers(0, 3, EVENTS))
    array["x"] = np.arange(EVENTS) % 346
    array["y"] = rng.integers(0, 260, EVENTS)
    path = tmp_path / "events.aedat4"
    frames2py.save(path, array, sensor_size=(346, 260), format="aedat4", compression=request.param)
    return path


def threads() -> list[str]:
    names = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as file:
            names.append(file.read().strip())
    return names


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs to see threads")
def test_a_playback_of_one_thread_has_no_help(path):
    def helped(engine: Engine, threads_asked: int, seconds: float) -> bool:
        """Whether a thread is seen to help before so much time has passed."""
        end = time.monotonic() + seconds
        with engine.play(path, loop=True, threads=threads_asked):
            while time.monotonic() < end:
                if "frames2py help" in threads():
                    return True
        return False

    engine = Engine((346, 260), snapshot_interval_ms=1e9)
    assert not helped(engine, 1, 0.5)
    if (os.cpu_count() or 1) > 1 and len(os.sched_getaffinity(0)) > 1:
        assert helped(engine, 2, 30)
    end = time.monotonic() + 30
    while "frames2py help" in threads():
        assert time.monotonic() < end, "a thread is left behind"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_reads_on_where_others_were_helping(path):
    """The child has none of its parent's threads, and must not wait for what they had begun."""
    program = """
    import os, signal, sys, time, warnings
    import numpy as np
    import frames2py
    warnings.simplefilter("ignore")  # newer Pythons warn of any fork with threads
    for round in range(20):
        reader = frames2py.open(sys.argv[1], batch_size=1000)
        batches = iter(reader)
        read = 0
        for _ in range(1 + 7 * round):
            read += len(next(batches))
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            rest = np.concatenate(list(batches))
            right = (rest["x"] == np.arange(read, int(sys.argv[2])) % 346).all()
            os._exit(5 if right and reader.report.events == int(sys.argv[2]) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(path), str(EVENTS)],
        stderr=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
