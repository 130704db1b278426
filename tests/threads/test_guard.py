"""What ``guard`` and ``memory`` say, checked with the operating system."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

from frames2py import EVENT_DTYPE, Engine

WRITE = """
import ctypes, faulthandler, sys
import numpy as np
from frames2py import EVENT_DTYPE, Engine

engine = Engine((64, 48), {kernel!r}, snapshot_interval_ms=0, guard={guard})
events = np.zeros(10, EVENT_DTYPE)
for _ in range(20):
    engine.ingest(events)
frame = engine.snapshot().frame
assert frame.sum() == {total}
print("before", flush=True)
ctypes.memset(frame.ctypes.data, 1, 4)
print("after", flush=True)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize(("kernel", "total"), [("event_count", 10), ("time_surface", 0)])
@pytest.mark.parametrize("guard", [False, True])
def test_a_write_through_an_alias_faults_if_guarded(kernel: str, total: int, guard: bool) -> None:
    result = run(WRITE.format(kernel=kernel, guard=guard, total=total))
    assert result.stdout.splitlines()[0] == "before", result.stderr
    if guard:
        assert result.stdout.splitlines() == ["before"]
        assert result.returncode != 0
    else:
        assert result.stdout.splitlines() == ["before", "after"]
        assert result.returncode == 0


def test_guarded_frames_hold_what_others_hold() -> None:
    rng = np.random.default_rng(5)
    plain, guarded = (Engine((16, 12), snapshot_interval_ms=0, guard=guard) for guard in (False, True))
    held = []
    for i in range(50):
        events = np.zeros(100, EVENT_DTYPE)
        events["x"], events["y"], events["t"] = rng.integers(0, 16, 100), rng.integers(0, 12, 100), i
        frames = []
        for engine in (plain, guarded):
            engine.ingest(events)
            snapshot = engine.snapshot()
            assert snapshot is not None
            frames.append(snapshot.frame)
        np.testing.assert_array_equal(*frames)
        held.append((frames[1], frames[1].copy()))
    for frame, copy in held:
        np.testing.assert_array_equal(frame, copy)


@pytest.mark.parametrize("guard", [1, None, "yes", np.True_])
def test_guard_must_be_a_bool(guard: Any) -> None:
    with pytest.raises(TypeError, match="guard"):
        Engine((4, 3), guard=guard)


@pytest.mark.parametrize(
    ("frames", "error"), [(-1, ValueError), (True, TypeError), (2.0, TypeError), (None, TypeError)]
)
def test_pool_frames_must_be_a_whole_number(frames: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="pool_frames"):
        Engine((4, 3), pool_frames=frames)


@pytest.mark.parametrize("pool_frames", [0, 1, 5, 10**30])
def test_memory_counts_what_is_held(pool_frames: int) -> None:
    engine = Engine((4, 3), snapshot_interval_ms=0, pool_frames=pool_frames)
    held = []
    for i in range(1, 12):
        engine.ingest(np.zeros(1, EVENT_DTYPE))
        snapshot = engine.snapshot()
        assert snapshot is not None
        held.append(snapshot)
        memory = engine.memory
        assert memory.leased == i
        assert memory.one_off == max(0, i - pool_frames)
        assert memory.bytes == i * 48
    del held[:-1]
    assert engine.memory.leased == 1
    del held, snapshot
    for _ in range(20):
        engine.ingest(np.zeros(1, EVENT_DTYPE))
    assert engine.memory.slots == 11
    assert engine.memory.bytes <= (max(pool_frames, 1) + 1) * 48 or pool_frames > 11


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc for the memory of the process")
def test_what_readers_held_goes_back_to_the_system() -> None:
    def resident_kib() -> int:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

    engine = Engine((640, 480), "time_surface", snapshot_interval_ms=0)  # 2.4 MB a frame
    event = np.ones(1, EVENT_DTYPE)
    engine.ingest(event)
    held = []
    start = resident_kib()
    for _ in range(40):
        engine.ingest(event)
        held.append(engine.snapshot())
    assert resident_kib() - start > 80_000
    held.clear()
    engine.ingest(event)
    assert resident_kib() - start < 40_000
    assert engine.memory.leased == 1
