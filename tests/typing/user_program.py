"""What a user's program looks like to a type checker: it uses every public name, and it runs."""

from __future__ import annotations

import asyncio
import importlib.util
import struct
import tempfile
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import frames2py
from frames2py import (
    EVENT_DTYPE,
    TRIGGER_DTYPE,
    Accumulator,
    DecodeReport,
    Engine,
    EngineMemory,
    EngineStats,
    EventCount,
    ExpDecay,
    Playback,
    Polarity,
    RecordingTotals,
    SnapshotMeta,
    StackedHistogram,
    TimestampDecay,
    TimeSurface,
    VoxelGrid,
    kernels,
    publish,
    recorder,
)
from frames2py.adapters import dat, es, evt, hdf5, npy, text
from frames2py.kernels import Kernel
from frames2py.publish import ImmutablePublisher, Snapshot, SnapshotPublisher


class Latest:
    """A kernel of the user's own: the number of events of the last call."""

    name = "latest"

    def output_spec(self, sensor_size: tuple[int, int]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        return (1,), np.dtype(np.int64)

    def init_state(self, sensor_size: tuple[int, int]) -> NDArray[np.int64]:
        return np.zeros(1, np.int64)

    def begin_call(self, state: NDArray[np.int64]) -> None:
        state[0] = 0

    def accumulate(self, events: NDArray[np.void], state: NDArray[np.int64], watermark: int | None) -> None:
        state[0] = len(events)

    def read(self, state: NDArray[np.int64], out: NDArray[Any], watermark: int | None) -> None:
        out[:] = state

    def close_window(self, state: NDArray[np.int64]) -> None:
        pass

    def reset(self, state: NDArray[np.int64]) -> None:
        state[0] = 0


def all_kernels() -> list[Kernel]:
    return [
        EventCount(),
        Polarity(),
        TimeSurface(),
        ExpDecay(0.9),
        TimestampDecay(tau_us=1e4),
        StackedHistogram(bins=3, bin_us=1000),
        VoxelGrid(bins=3, bin_us=1000),
        Latest(),
    ]


def by_hand(kernel: Kernel, events: NDArray[np.void]) -> NDArray[Any]:
    size = (4, 3)
    shape, dtype = kernel.output_spec(size)
    state = kernel.init_state(size)
    kernel.begin_call(state)
    kernel.accumulate(events, state, 0)
    out = np.empty(shape, dtype)
    kernel.read(state, out, 0)
    kernel.close_window(state)
    kernel.reset(state)
    return out


def publish_something() -> Snapshot | None:
    publisher: SnapshotPublisher = ImmutablePublisher((2, 2), np.float32)
    frame = publisher.begin_write()
    frame[:] = 1
    publisher.end_write(SnapshotMeta(watermark=None, sequence=1))
    latest = publisher.read()
    publisher.reset()
    return latest


async def watch(engine: Engine) -> Snapshot | None:
    snapshots: AsyncIterator[Snapshot] = engine.snapshots()
    async for snapshot in snapshots:
        newer: Snapshot | None = await engine.wait_for_newer_async(snapshot.meta.sequence, timeout=0.0)
        assert newer is None
        return await engine.wait_for_newer_async(None)
    return None


def play_something() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.raw"
        path.write_bytes(b"% evt 2.0\n% geometry 4x3\n% end\n" + struct.pack("<2I", 8 << 28, 1 << 28))
        engine = Engine((4, 3), snapshot_interval_ms=0)
        with engine.play(path, speed=2.0, loop=True) as playback:
            playback.pause()
            assert playback.paused and not playback.finished
            playback.resume()
        reader = evt.open(str(path), batch_size=1, strict=True, triggers=True)
        again: Playback = engine.play(reader, speed=None, threads=1)
        ended: bool = again.join(timeout=60.0)
        position: int | None = again.position_us
        events: int = again.events
        assert (ended, position, events) == (True, 0, 1)
        again.stop()
        report: DecodeReport = reader.report
        made: NDArray[np.void] = frames2py.events(t=[1], x=[2], y=[0], p=[-1], time_unit="us")
        saved = Path(folder) / "saved.npz"
        assert npy.save_npz(saved, [made], (4, 3)) == 1
        table = Path(folder) / "table.csv"
        table.write_text("t,x,y,p\n1,2,0,1\n")
        with npy.open(saved) as stored, text.open(table, columns="txyp", time_unit="us") as rows:
            assert stored.sensor_size == (4, 3) and rows.sensor_size is None
            assert sum(map(len, stored)) == sum(map(len, rows)) == 1
        for module in (dat, es):
            try:
                module.open(table)
            except ValueError:
                continue
            raise AssertionError("a table in text was read as something else")
        counts: dict[str, int] = report.words
        triggers: NDArray[np.void] = reader.take_triggers()
        assert (report.events, triggers.dtype, len(triggers)) == (1, TRIGGER_DTYPE, 0)
        written: int = frames2py.save(Path(folder) / "again.raw", made, sensor_size=(4, 3), format="evt3")
        with frames2py.open(Path(folder) / "again.raw", batch_size=1, strict=True) as found:
            totals: RecordingTotals = found.build_index(beside=True)
            assert totals == found.totals and totals.events == written == 1 and totals.duration_us == 0
            found.seek(1)
            part: NDArray[np.void] = found.slice(0, 2)
            assert len(part) == len(list(found)) == 1
        packed = Path(folder) / "again.aedat4"
        frames2py.save(packed, made, sensor_size=(4, 3), compression="zstd", overwrite=True)
        assert set(counts) == set(report.word_bytes)


def record_something(events: NDArray[np.void]) -> None:
    if importlib.util.find_spec("h5py") is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "live.h5"
        with recorder.open(
            path, sensor_size=(4, 3), group="a", compression=None, overwrite=True
        ) as recording:
            recording.write(events)
        kept: recorder.Recorder = recording
        kept.close()
        with hdf5.open(path, group="a", t_offset=5) as reader, hdf5.open_any(path, strict=True) as other:
            size: tuple[int, int] | None = reader.sensor_size
            assert size == other.sensor_size == (4, 3)
            assert sum(len(batch) for batch in reader) == len(events)
        recorder.write_hdf5(path, [events], sensor_size=(4, 3), layout="dsec", overwrite=True)


def main() -> None:
    events: NDArray[np.void] = np.zeros(5, dtype=EVENT_DTYPE)
    record_something(events)
    for kernel in all_kernels():
        engine = Engine((4, 3), kernel, snapshot_interval_ms=0, pool_frames=4, guard=False)
        seen: list[Snapshot | None] = []
        waiter = threading.Thread(
            target=lambda engine=engine, seen=seen: seen.append(engine.wait_for_newer(None, timeout=60.0))
        )
        waiter.start()
        engine.ingest(events)
        waiter.join()
        snapshot = engine.snapshot()
        assert snapshot is not None and seen == [snapshot]
        meta: SnapshotMeta = snapshot.meta
        watermark: int | None = meta.watermark
        sequence: int = meta.sequence
        copied: NDArray[Any] = snapshot.copy(out=snapshot.copy())
        stats: EngineStats = engine.stats
        memory: EngineMemory = engine.memory
        assert memory.leased == 1
        assert memory.slots * memory.bytes > memory.one_off == 0
        assert (watermark, sequence, stats.events_ingested) == (0, 1, 5)
        assert stats.snapshots_published == 1 and stats.events_out_of_bounds == 0 and stats.uptime_ns > 0
        assert copied.shape == snapshot.frame.shape
        assert by_hand(kernel, events).shape == copied.shape
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(asyncio.run, watch(engine)).result() is snapshot
        engine.stop()
        engine.reset()
        engine.start()
    accumulator = Accumulator((4, 3), "polarity")
    accumulator.accumulate(events)
    counts: NDArray[Any] = accumulator.read()
    assert counts.sum() == 5 and accumulator.watermark == 0 and accumulator.events_out_of_bounds == 0
    accumulator.reset()
    assert publish_something() is not None
    play_something()
    assert kernels.VoxelGrid is VoxelGrid and publish.Snapshot is Snapshot
    print(frames2py.__version__)


if __name__ == "__main__":
    main()
