"""Contract section 4: frames2py.publish."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from frames2py import SnapshotMeta
from frames2py.publish import ImmutablePublisher, Snapshot, SnapshotPublisher


def publisher() -> Any:
    return ImmutablePublisher((3, 4), np.dtype(np.uint32))


def write(target: Any, value: int, sequence: int) -> Any:
    frame = target.begin_write()
    frame[...] = value
    target.end_write(SnapshotMeta(None, sequence))
    return target.read()


def test_immutable_publisher_follows_the_protocol() -> None:
    assert isinstance(publisher(), SnapshotPublisher)


def test_a_publisher_of_ones_own_follows_the_protocol() -> None:
    class Mine:
        def begin_write(self) -> Any: ...
        def end_write(self, meta: SnapshotMeta) -> None: ...
        def read(self) -> Snapshot | None: ...
        def reset(self) -> None: ...

    class NoReset:
        def begin_write(self) -> Any: ...
        def end_write(self, meta: SnapshotMeta) -> None: ...
        def read(self) -> Snapshot | None: ...

    assert isinstance(Mine(), SnapshotPublisher)
    assert not isinstance(NoReset(), SnapshotPublisher)


def test_read_is_none_before_the_first_write() -> None:
    target = publisher()
    assert target.read() is None
    target.begin_write()
    assert target.read() is None


def test_begin_write_gives_a_writable_c_contiguous_array_of_shape_and_dtype() -> None:
    for shape, dtype in (((3, 4), np.uint32), ((2, 3, 4, 5), np.float32), ((), np.int64), ((0, 2), np.uint8)):
        target = ImmutablePublisher(shape, np.dtype(dtype))
        frame = target.begin_write()
        assert isinstance(frame, np.ndarray)
        assert frame.shape == shape
        assert frame.dtype == np.dtype(dtype)
        assert frame.flags.writeable
        assert frame.flags.c_contiguous
        frame[...] = 3
        target.end_write(SnapshotMeta(1, 1))
        snapshot = target.read()
        assert snapshot is not None
        np.testing.assert_array_equal(snapshot.frame, np.full(shape, 3, dtype))


def test_shape_and_dtype_may_be_given_by_name() -> None:
    target = ImmutablePublisher(shape=(3, 4), dtype=np.dtype(np.uint32))
    assert target.begin_write().shape == (3, 4)


def test_end_write_publishes_what_was_written_with_its_meta() -> None:
    target = publisher()
    frame = target.begin_write()
    frame[...] = np.arange(12).reshape(3, 4)
    meta = SnapshotMeta(watermark=7, sequence=1)
    assert target.end_write(meta) is None
    snapshot = target.read()
    assert isinstance(snapshot, Snapshot)
    assert snapshot.meta is meta
    assert snapshot.frame.tolist() == np.arange(12).reshape(3, 4).tolist()


def test_every_reader_gets_the_same_object() -> None:
    target = publisher()
    first = write(target, 1, 1)
    assert target.read() is first
    assert target.read().frame is first.frame
    second = write(target, 2, 2)
    assert target.read() is second
    assert second is not first


def test_readers_see_the_previous_publication_until_end_write() -> None:
    target = publisher()
    first = write(target, 1, 1)
    frame = target.begin_write()
    frame[...] = 99
    assert target.read() is first
    assert (first.frame == 1).all()
    target.end_write(SnapshotMeta(None, 2))
    assert target.read() is not first


def test_a_published_frame_is_read_only_and_never_written_again() -> None:
    target = publisher()
    written = target.begin_write()
    written[...] = 1
    target.end_write(SnapshotMeta(None, 1))
    snapshot = target.read()
    assert not snapshot.frame.flags.writeable
    with pytest.raises(ValueError):
        snapshot.frame[...] = 2
    with pytest.raises(ValueError):
        snapshot.frame.setflags(write=True)
    with pytest.raises(ValueError):
        written[...] = 2  # the array of begin_write() is no way in either
    held = [snapshot] + [write(target, value, value) for value in range(2, 40)]
    for value, each in enumerate(held, start=1):
        assert (each.frame == value).all()


def test_end_write_without_begin_write_is_a_runtime_error() -> None:
    target = publisher()
    with pytest.raises(RuntimeError):
        target.end_write(SnapshotMeta(None, 1))
    assert target.read() is None
    first = write(target, 1, 1)
    with pytest.raises(RuntimeError):
        target.end_write(SnapshotMeta(None, 2))
    assert target.read() is first


def test_a_second_begin_write_starts_over() -> None:
    target = publisher()
    target.begin_write()[...] = 1
    again = target.begin_write()
    again[...] = 2
    target.end_write(SnapshotMeta(None, 1))
    assert (target.read().frame == 2).all()
    with pytest.raises(RuntimeError):
        target.end_write(SnapshotMeta(None, 2))


def test_reset_takes_the_publication_back_but_not_what_readers_hold() -> None:
    target = publisher()
    first = write(target, 1, 1)
    assert target.reset() is None
    assert target.read() is None
    assert (first.frame == 1).all()
    target.reset()
    assert target.read() is None
    second = write(target, 2, 2)
    assert (second.frame == 2).all()
    assert (first.frame == 1).all()


def test_readers_in_other_threads_never_see_a_frame_being_written() -> None:
    target = ImmutablePublisher((64, 64), np.dtype(np.uint32))
    done = threading.Event()
    errors: list[str] = []

    def read() -> None:
        while not done.is_set():
            snapshot = target.read()
            if snapshot is not None and not (snapshot.frame == snapshot.meta.sequence).all():
                errors.append(f"frame of {snapshot.meta} is torn")
                return

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for sequence in range(1, 500):
        frame = target.begin_write()
        frame[...] = sequence
        target.end_write(SnapshotMeta(None, sequence))
    done.set()
    for reader in readers:
        reader.join()
    assert errors == []


@pytest.mark.parametrize("shape", [(-1, 2), (2.0, 3), "ab", (None,)], ids=repr)
def test_a_bad_shape_is_an_error(shape: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        ImmutablePublisher(shape, np.dtype(np.uint8)).begin_write()


def test_a_bad_dtype_is_a_type_error() -> None:
    bad: Any = "no such dtype"
    with pytest.raises(TypeError):
        ImmutablePublisher((2, 2), bad).begin_write()


def test_a_publisher_without_enough_memory_is_an_error() -> None:
    with pytest.raises((MemoryError, ValueError)):
        ImmutablePublisher((2**46,), np.dtype(np.uint8)).begin_write()
