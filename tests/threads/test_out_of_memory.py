"""Memory that cannot be had is a MemoryError, wherever it was wanted; nothing ends the process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the address space")

# Leaves room for so many MiB on top of what is mapped once all is imported.
LIMIT = """
import resource
import numpy as np
from frames2py import EVENT_DTYPE, Accumulator, Engine
from frames2py.adapters import evt
from frames2py.kernels import EventCount

def leave(mib):
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[0])
    limit = pages * resource.getpagesize() + mib * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

def expect(call):
    try:
        call()
    except MemoryError as error:
        print("MemoryError", error)
    else:
        raise SystemExit("no MemoryError")
"""


def run(code: str) -> str:
    source = LIMIT + textwrap.dedent(code)
    command = [sys.executable, "-c", source]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_mask_of_a_python_kernel() -> None:
    printed = run(
        """
        class Sub(EventCount):
            pass

        events = np.zeros(60_000_000, np.dtype([("t", "<u8"), ("x", "<u2"), ("y", "<u2"), ("p", "u1")]))
        events["x"][0] = 99
        accumulator = Accumulator((4, 3), Sub())
        leave(40)
        expect(lambda: accumulator.accumulate(events))
        print(accumulator.watermark, accumulator.events_out_of_bounds)
        """
    )
    assert printed.splitlines()[0].startswith("MemoryError")
    assert printed.splitlines()[1] == "None 0"


def test_a_batch_of_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "large.raw"
    words = (0x8000_0000).to_bytes(4, "little") + (0x1000_0000).to_bytes(4, "little") * 6_000_000
    path.write_bytes(b"% evt 2.0\n% geometry 4x3\n% end\n" + words)
    printed = run(
        f"""
        reader = evt.open({str(path)!r}, batch_size=10**18)
        leave(60)
        expect(lambda: next(iter(reader)))
        """
    )
    assert printed.startswith("MemoryError")


def test_frames_that_readers_hold() -> None:
    printed = run(
        """
        engine = Engine((1000, 1000), "polarity", snapshot_interval_ms=0)
        event = np.ones(1, EVENT_DTYPE)
        held = []
        leave(100)

        def hold():
            while True:
                engine.ingest(event)
                held.append(engine.snapshot())

        expect(hold)
        count, before = len(held), engine.stats
        expect(lambda: engine.ingest(event))
        assert engine.stats.events_ingested == before.events_ingested == count
        held.clear()
        engine.ingest(event)
        print(engine.snapshot().meta.sequence == count + 1)
        """
    )
    assert printed.splitlines()[-1] == "True"


def test_frames_that_readers_make_and_hold() -> None:
    # Each publication needs a copy of the surface, which those that are held refer to.
    printed = run(
        """
        engine = Engine((1000, 1000), "time_surface", snapshot_interval_ms=0)
        event = np.ones(1, EVENT_DTYPE)
        held = []
        leave(200)

        def hold():
            while True:
                engine.reset()
                assert engine.stats.events_ingested == 0
                engine.ingest(event)
                held.append(engine.snapshot())

        expect(hold)
        assert len(held) > 2
        before = engine.stats.events_ingested
        held.clear()
        event["t"] = 5
        engine.ingest(event)
        print(engine.stats.events_ingested == before + 1, engine.snapshot().frame.sum() == 5)
        """
    )
    assert printed.splitlines()[-1] == "True True"


def test_frames_of_large_calls_that_readers_hold() -> None:
    # What a call counted before is there for the next, whoever lacked the memory for a frame.
    printed = run(
        """
        engine = Engine((1000, 1000), "time_surface", snapshot_interval_ms=0)
        events = np.ones(200_000, EVENT_DTYPE)
        held = []
        leave(200)

        def hold():
            while True:
                before = engine.stats.events_ingested
                try:
                    engine.ingest(events)
                except MemoryError:
                    assert engine.stats.events_ingested == before
                    raise
                held.append(engine.snapshot())

        expect(hold)
        assert len(held) > 2
        held.clear()
        events["t"] = 5
        engine.ingest(events)
        print(engine.snapshot().frame.sum() == 5)
        """
    )
    assert printed.splitlines()[-1] == "True"
