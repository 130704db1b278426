"""Contract section 4: Snapshot, SnapshotMeta and EngineStats; what may be done with a frame."""

from __future__ import annotations

import copy
import dataclasses
import gc
import mmap
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from every_kernel import EVERY_KERNEL, KERNELS
from records import at, events, uniform

import frames2py
import frames2py.publish
from frames2py import (
    Engine,
    EngineStats,
    EventCount,
    SnapshotMeta,
)
from frames2py.publish import Snapshot


class CustomCount(EventCount):
    name = "custom"

    def read(self, state: Any, out: Any, watermark: Any) -> None:
        super().read(state, out, watermark)


AND_CUSTOM = pytest.mark.parametrize("kernel", [*KERNELS, CustomCount()], ids=lambda kernel: kernel.name)


def take(kernel: Any = "event_count", size: tuple[int, int] = (4, 3)) -> Any:
    engine = Engine(size, kernel, snapshot_interval_ms=0)
    engine.ingest(events([(5, 0, 0, 1), (17, 1, 0, 0), (25, 3, 2, 1), (36, 1, 1, 1)]))
    snapshot = engine.snapshot()
    assert snapshot is not None
    return snapshot


# --- the frame ----------------------------------------------------------------------------------


@AND_CUSTOM
def test_a_frame_is_a_c_contiguous_ndarray_of_the_kernels_spec(kernel: Any) -> None:
    frame = take(kernel).frame
    shape, dtype = kernel.output_spec((4, 3))
    assert type(frame) is np.ndarray
    assert frame.shape == shape
    assert frame.dtype == dtype
    assert frame.flags.c_contiguous
    assert frame.flags.aligned


@AND_CUSTOM
def test_a_frame_is_read_only(kernel: Any) -> None:
    frame = take(kernel).frame
    before = frame.copy()
    assert not frame.flags.writeable
    for write in (
        lambda: frame.__setitem__(..., 1),
        lambda: frame.__iadd__(1),
        lambda: frame.fill(1),
        lambda: frame.sort(),
        lambda: np.add(frame, 1, out=frame),
        lambda: np.copyto(frame, 1),
        lambda: frame.put(0, 1),
    ):
        with pytest.raises(ValueError):
            write()
    np.testing.assert_array_equal(frame, before)


@AND_CUSTOM
def test_a_frame_cannot_be_made_writable(kernel: Any) -> None:
    frame = take(kernel).frame
    for view in (
        frame,
        frame[...],
        frame[0],
        frame.view(),
        frame.T,
        frame.reshape(-1),
        frame.view(np.uint8),
        np.asarray(frame),
        np.asarray(memoryview(frame)),
        np.frombuffer(frame, np.uint8),
        np.lib.stride_tricks.as_strided(frame),
        np.ndarray(frame.shape, frame.dtype, buffer=frame),
    ):
        assert not view.flags.writeable
        with pytest.raises(ValueError):
            view.setflags(write=True)
        with pytest.raises(ValueError):
            view.flags.writeable = True
        assert not view.flags.writeable


@AND_CUSTOM
def test_a_frame_starts_on_a_page(kernel: Any) -> None:
    assert take(kernel).frame.ctypes.data % mmap.PAGESIZE == 0


@AND_CUSTOM
def test_a_frames_base_exports_no_writable_buffer(kernel: Any) -> None:
    base = take(kernel).frame
    while base is not None:
        try:
            view = memoryview(base)
        except TypeError:
            pass  # exports none at all
        else:
            assert view.readonly
        if isinstance(base, np.ndarray):
            with pytest.raises(ValueError):
                base.setflags(write=True)
        if hasattr(base, "__array_interface__"):
            assert base.__array_interface__["data"][1], "not marked read-only"
        base = getattr(base, "base", None)


@AND_CUSTOM
def test_a_frame_is_never_written_again(kernel: Any) -> None:
    engine = Engine((4, 3), kernel, snapshot_interval_ms=0)
    held = []
    for i in range(60):
        engine.ingest(events([(i * 7, i % 4, i % 3, i % 2), (i * 5, 0, 0, 1)]))
        snapshot = engine.snapshot()
        assert snapshot is not None
        held.append((snapshot, snapshot.frame.tobytes(), snapshot.meta.sequence))
        if i == 30:
            engine.reset()
    for snapshot, data, sequence in held:
        assert snapshot.frame.tobytes() == data
        assert snapshot.meta.sequence == sequence


def views_of(snapshot: Any) -> list[Any]:
    frame = snapshot.frame
    return [
        frame,
        frame[1:],
        frame.T,
        frame.reshape(-1),
        memoryview(frame),
        np.frombuffer(frame, frame.dtype),
        np.asarray(frame),
        frame.view(np.uint8),
        frame.flat,
        np.from_dlpack(frame),
    ]


@pytest.mark.parametrize("which", range(10))
def test_arrays_made_from_a_frame_outlive_snapshot_and_engine(which: int) -> None:
    """A buffer that is still seen through anything must not be used again."""
    engine: Any = Engine((4, 3), "event_count", snapshot_interval_ms=0)
    kept = []
    for i in range(40):
        engine.ingest(uniform(4, 3, i % 7 + 1, i))
        kept.append((views_of(engine.snapshot())[which], i % 7 + 1))
    del engine
    gc.collect()
    other = Engine((4, 3), "event_count", snapshot_interval_ms=0)
    for i in range(40):
        other.ingest(uniform(4, 3, 99, i))
    for view, value in kept:
        array = np.array(view) if not isinstance(view, np.ndarray) else view
        if array.dtype == np.uint8:
            array = np.frombuffer(array.tobytes(), np.uint32)
        assert (array == value).all()


def test_a_frame_outlives_the_thread_that_made_it() -> None:
    kept: list[Any] = []

    def produce() -> None:
        engine = Engine((64, 64), "event_count", snapshot_interval_ms=0)
        for i in range(1, 20):
            engine.ingest(uniform(64, 64, i, i))
            snapshot = engine.snapshot()
            assert snapshot is not None
            kept.append((i, snapshot.frame))

    thread = threading.Thread(target=produce)
    thread.start()
    thread.join()
    gc.collect()
    assert len(kept) == 19
    for value, frame in kept:
        assert (frame == value).all()


# --- copy() -------------------------------------------------------------------------------------


@AND_CUSTOM
def test_copy_is_a_new_writable_c_contiguous_array_nothing_else_references(kernel: Any) -> None:
    snapshot = take(kernel)
    copied, again = snapshot.copy(), snapshot.copy()
    assert type(copied) is np.ndarray
    assert copied.dtype == snapshot.frame.dtype
    assert copied.flags.writeable
    assert copied.flags.c_contiguous
    assert copied.flags.owndata
    assert copied.base is None
    np.testing.assert_array_equal(copied, snapshot.frame)
    assert not np.shares_memory(copied, snapshot.frame)
    assert not np.shares_memory(copied, again)
    before = snapshot.frame.copy()
    copied[...] = 99
    np.testing.assert_array_equal(snapshot.frame, before)
    np.testing.assert_array_equal(again, before)


@AND_CUSTOM
def test_copy_out_fills_and_returns_out(kernel: Any) -> None:
    snapshot = take(kernel)
    out = np.full(snapshot.frame.shape, 9, snapshot.frame.dtype)
    assert snapshot.copy(out=out) is out
    np.testing.assert_array_equal(out, snapshot.frame)
    out[...] = 9
    assert snapshot.copy(out) is out
    np.testing.assert_array_equal(out, snapshot.frame)


def test_copy_out_none_is_copy() -> None:
    snapshot = take()
    copied = snapshot.copy(out=None)
    assert copied.flags.owndata
    np.testing.assert_array_equal(copied, snapshot.frame)


def test_copy_of_a_large_frame() -> None:
    engine = Engine((1280, 720), "event_count", snapshot_interval_ms=0)
    engine.ingest(uniform(1280, 720, 1, 5))
    snapshot = engine.snapshot()
    assert snapshot is not None
    assert (snapshot.copy() == 1).all()
    out = np.zeros((720, 1280), np.uint32)
    snapshot.copy(out=out)
    assert (out == 1).all()


class Subclass(np.ndarray):  # type: ignore[type-arg]
    pass


def test_out_may_be_a_subclass_unaligned_or_part_of_a_larger_array() -> None:
    snapshot = take()
    subclass = np.zeros((3, 4), np.uint32).view(Subclass)
    memory = np.zeros(3 * 4 * 4 + 1, np.uint8)
    unaligned = memory[1:].view(np.uint32).reshape(3, 4)
    part = np.full((5, 4), 9, np.uint32)
    for out in (subclass, unaligned, part[1:4]):
        assert snapshot.copy(out=out) is out
        np.testing.assert_array_equal(np.asarray(out), snapshot.frame)
    assert (part[[0, 4]] == 9).all()


BAD_OUT: dict[str, tuple[Any, type[Exception]]] = {
    "a list": ([[0] * 4] * 3, TypeError),
    "bytes": (bytearray(48), TypeError),
    "a memoryview": (memoryview(bytearray(48)), TypeError),
    "float32": (np.full((3, 4), 9, np.float32), TypeError),
    "int32": (np.full((3, 4), 9, np.int32), TypeError),
    "uint64": (np.full((3, 4), 9, np.uint64), TypeError),
    "big-endian": (np.full((3, 4), 9, ">u4"), TypeError),
    "bytes of the size": (np.full(48, 9, np.uint8), TypeError),
    "transposed shape": (np.full((4, 3), 9, np.uint32), ValueError),
    "flat": (np.full(12, 9, np.uint32), ValueError),
    "one axis more": (np.full((1, 3, 4), 9, np.uint32), ValueError),
    "larger": (np.full((3, 5), 9, np.uint32), ValueError),
    "Fortran order": (np.full((3, 4), 9, np.uint32, order="F"), ValueError),
    "strided": (np.full((3, 8), 9, np.uint32)[:, ::2], ValueError),
    "reversed": (np.full((3, 4), 9, np.uint32)[::-1], ValueError),
}


@pytest.mark.parametrize(("out", "error"), BAD_OUT.values(), ids=BAD_OUT.keys())
def test_out_is_checked_before_anything_is_written(out: Any, error: type[Exception]) -> None:
    before = (
        bytes(memoryview(out).tobytes()) if not isinstance(out, list | np.ndarray) else copy.deepcopy(out)
    )
    for snapshot in (take(), Snapshot(take().copy(), SnapshotMeta(1, 1))):
        with pytest.raises(error, match="out"):
            snapshot.copy(out=out)
    after = bytes(memoryview(out).tobytes()) if not isinstance(out, list | np.ndarray) else out
    assert np.array_equal(after, before) if isinstance(out, np.ndarray) else after == before


def test_a_read_only_out_is_a_value_error() -> None:
    snapshot = take()
    out = np.full((3, 4), 9, np.uint32)
    out.flags.writeable = False
    for read_only in (out, snapshot.frame, take("event_count").frame):
        before = read_only.copy()
        with pytest.raises(ValueError, match="out"):
            snapshot.copy(out=read_only)
        np.testing.assert_array_equal(read_only, before)


# --- the dataclasses ----------------------------------------------------------------------------

META = SnapshotMeta(watermark=5, sequence=3)
STATS = EngineStats(events_ingested=1, events_out_of_bounds=2, snapshots_published=3, uptime_ns=4)
FIELDS: list[tuple[Any, list[str]]] = [
    (SnapshotMeta, ["watermark", "sequence"]),
    (Snapshot, ["frame", "meta"]),
    (EngineStats, ["events_ingested", "events_out_of_bounds", "snapshots_published", "uptime_ns"]),
]


@pytest.mark.parametrize(("cls", "names"), FIELDS)
def test_they_are_frozen_dataclasses_with_these_fields(cls: Any, names: list[str]) -> None:
    assert dataclasses.is_dataclass(cls)
    assert [field.name for field in dataclasses.fields(cls)] == names
    assert cls.__match_args__ == tuple(names)
    by_position = cls(*range(len(names)))
    by_name = cls(**{name: i for i, name in enumerate(names)})
    for instance in (by_position, by_name):
        for i, name in enumerate(names):
            assert getattr(instance, name) == i
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(instance, name, 99)
            with pytest.raises(dataclasses.FrozenInstanceError):
                delattr(instance, name)
    assert by_position == by_name
    for arguments in ((), range(len(names) - 1), range(len(names) + 1)):
        with pytest.raises(TypeError):
            cls(*arguments)


def test_repr_and_equality_are_a_dataclasss() -> None:
    assert repr(META) == "SnapshotMeta(watermark=5, sequence=3)"
    assert repr(SnapshotMeta(None, 1)) == "SnapshotMeta(watermark=None, sequence=1)"
    expected = "EngineStats(events_ingested=1, events_out_of_bounds=2, snapshots_published=3, uptime_ns=4)"
    assert repr(STATS) == expected
    frame = np.zeros((1, 2), np.uint32)
    assert repr(Snapshot(frame, META)) == f"Snapshot(frame={frame!r}, meta={META!r})"

    assert SnapshotMeta(5, 3) == META
    assert SnapshotMeta(5, 4) != META
    assert SnapshotMeta(None, 3) != META
    assert META != (5, 3)
    assert hash(SnapshotMeta(5, 3)) == hash(META)
    assert EngineStats(1, 2, 3, 4) == STATS
    assert EngineStats(1, 2, 3, 5) != STATS
    assert hash(EngineStats(1, 2, 3, 4)) == hash(STATS)
    assert Snapshot(frame, META) == Snapshot(frame, SnapshotMeta(5, 3))
    assert Snapshot(frame, META) != Snapshot(frame, SnapshotMeta(5, 4))
    assert Snapshot(frame, META) != 5
    with pytest.raises(TypeError):
        SnapshotMeta(6, 4) > META  # type: ignore[operator]  # noqa: B015


def test_the_engine_makes_instances_of_these_classes() -> None:
    engine = Engine((4, 3), snapshot_interval_ms=0)
    engine.ingest(at(5))
    snapshot = engine.snapshot()
    assert type(snapshot) is Snapshot
    assert snapshot.meta == SnapshotMeta(watermark=5, sequence=1)
    assert type(snapshot.meta) is SnapshotMeta
    assert type(snapshot.meta.watermark) is type(snapshot.meta.sequence) is int
    assert type(engine.stats) is EngineStats
    assert frames2py.publish.SnapshotMeta is SnapshotMeta
    snapshot_any: Any = snapshot
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot_any.frame = None
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot_any.meta = None
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot_any.meta.sequence = 9
    assert snapshot == snapshot
    assert repr(snapshot) == f"Snapshot(frame={snapshot.frame!r}, meta={snapshot.meta!r})"
    assert [field.name for field in dataclasses.fields(snapshot)] == ["frame", "meta"]
    assert dataclasses.replace(snapshot.meta, sequence=9) == SnapshotMeta(5, 9)


def test_a_snapshot_of_ones_own_holds_what_it_was_given() -> None:
    frame = np.arange(12, dtype=np.float64).reshape(3, 4)
    snapshot = Snapshot(frame, META)
    assert snapshot.frame is frame
    assert snapshot.meta is META
    assert frame.flags.writeable
    copied = snapshot.copy()
    assert not np.shares_memory(copied, frame)
    np.testing.assert_array_equal(copied, frame)
    out = np.zeros((3, 4))
    assert snapshot.copy(out=out) is out
    np.testing.assert_array_equal(out, frame)
    assert Snapshot(frame=frame, meta=META).frame is frame


@pytest.mark.parametrize("order", ["F", "strided", "reversed"])
def test_the_copy_of_any_frame_is_c_contiguous(order: str) -> None:
    values = np.arange(12, dtype=np.uint32).reshape(3, 4)
    frame = {
        "F": np.asfortranarray(values),
        "strided": np.repeat(values, 2, axis=1)[:, ::2],
        "reversed": values[::-1, ::-1].copy()[::-1, ::-1],
    }[order]
    assert not frame.flags.c_contiguous
    snapshot = Snapshot(frame, META)
    out = np.zeros((3, 4), np.uint32)
    snapshot.copy(out=out)
    for copied in (snapshot.copy(), out):
        assert copied.flags.c_contiguous
        np.testing.assert_array_equal(copied, values)


def test_copy_into_memory_that_overlaps_the_frame_is_right() -> None:
    memory = np.arange(15, dtype=np.uint32)
    frame, out = memory[:12].reshape(3, 4), memory[3:].reshape(3, 4)
    expected = frame.copy()
    Snapshot(frame, META).copy(out=out)
    np.testing.assert_array_equal(out, expected)


@EVERY_KERNEL
def test_they_can_be_pickled_and_copied(kernel: Any) -> None:
    snapshot = take(kernel)
    for duplicate in (pickle.loads(pickle.dumps(snapshot)), copy.deepcopy(snapshot)):
        assert type(duplicate) is Snapshot
        assert duplicate.meta == snapshot.meta
        np.testing.assert_array_equal(duplicate.frame, snapshot.frame)
    assert copy.copy(snapshot).frame is snapshot.frame
    assert pickle.loads(pickle.dumps(META)) == META
    assert pickle.loads(pickle.dumps(STATS)) == STATS
