"""Contract section 5, "A reader", for EVT files."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import evt_words as w
import numpy as np
import pytest

from frames2py import EVENT_DTYPE
from frames2py.adapters import Reader, evt

EVENTS = [(4096 + i // 7, i % 1280, i // 1280, i % 2) for i in range(150_000)]


def words_of(events) -> bytes:
    """EVT 2.0 words that say these events, all with a time below 2**34."""
    high = None
    words = []
    for t, x, y, p in events:
        if t // 64 != high:
            high = t // 64
            words.append(w.high(high))
        words.append(w.cd(p, t % 64, x, y))
    return w.evt2(*words)


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("evt") / "some.raw"
    path.write_bytes(w.header("2.0") + words_of(EVENTS))
    return path


def test_arrays_are_nonempty_contiguous_events_in_memory_of_their_own(path):
    batches = list(evt.open(path))
    assert len(batches) > 1
    for batch in batches:
        assert type(batch) is np.ndarray
        assert batch.dtype == EVENT_DTYPE
        assert batch.ndim == 1
        assert batch.flags.c_contiguous
        assert len(batch) > 0
    assert not any(np.shares_memory(a, b) for a, b in itertools.pairwise(batches))
    # Of their own: writing one changes no other, and they outlive the reader.
    expected = w.as_array(EVENTS)
    batches[0][:] = 0
    gc.collect()
    np.testing.assert_array_equal(np.concatenate(batches[1:]), expected[len(batches[0]) :])


@pytest.mark.parametrize("size", [1, 2, 777, 65_536, 149_999, 150_000, 150_001, 2**31, 2**70, np.int64(1000)])
def test_batch_size_changes_only_boundaries(path, size):
    batches = list(evt.open(path, batch_size=size))
    size = int(size)
    assert [len(b) for b in batches[:-1]] == [size] * (len(batches) - 1)
    assert 1 <= len(batches[-1]) <= size
    np.testing.assert_array_equal(np.concatenate(batches), w.as_array(EVENTS))


@pytest.mark.parametrize("bad", [True, False, 1.0, "1", np.True_, np.float64(2), (1,)])
def test_batch_size_must_be_an_int(path, bad):
    with pytest.raises(TypeError, match="batch_size"):
        evt.open(path, batch_size=bad)


@pytest.mark.parametrize("bad", [0, -1, -(2**70)])
def test_batch_size_must_be_positive(path, bad):
    with pytest.raises(ValueError, match="batch_size"):
        evt.open(path, batch_size=bad)


def test_iterates_once(path):
    reader = evt.open(path)
    iterator = iter(reader)
    with pytest.raises(RuntimeError, match="once"):
        iter(reader)
    assert iter(iterator) is iterator
    assert sum(len(b) for b in iterator) == len(EVENTS)
    with pytest.raises(StopIteration):
        next(iterator)
    with pytest.raises(RuntimeError, match="once"):
        list(reader)


def test_close_is_idempotent_and_ends_iteration(path):
    reader = evt.open(path)
    assert reader.closed is False
    iterator = iter(reader)
    first = next(iterator)
    reader.close()
    reader.close()
    assert reader.closed is True
    for _ in range(2):
        with pytest.raises(ValueError, match="closed"):
            next(iterator)
    with pytest.raises(ValueError, match="closed"):
        iter(reader)
    np.testing.assert_array_equal(first, w.as_array(EVENTS[: len(first)]))


def test_is_a_context_manager(path):
    with evt.open(path) as reader:
        assert isinstance(reader, Reader)
        assert not reader.closed
        assert "open" in repr(reader)
    assert reader.closed
    assert "closed" in repr(reader)
    with pytest.raises(ZeroDivisionError), evt.open(path) as reader:
        1 / 0  # noqa: B018
    assert reader.closed


def test_properties(path):
    with evt.open(path) as reader:
        assert (reader.sensor_size, reader.format) == ((1280, 720), "EVT 2.0")
        for name in ("sensor_size", "format", "closed"):
            with pytest.raises(AttributeError):
                setattr(reader, name, None)
    assert (reader.sensor_size, reader.format) == ((1280, 720), "EVT 2.0")


@pytest.mark.parametrize("kind", [str, os.fsencode, Path])
def test_path_types(path, kind):
    assert sum(len(b) for b in evt.open(kind(path))) == len(EVENTS)


@pytest.mark.parametrize("bad", [None, 3, 1.5, [b"x"]])
def test_path_must_be_a_path(bad):
    with pytest.raises(TypeError):
        evt.open(bad)


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names are Unicode here")
def test_file_name_that_is_no_text(path, tmp_path):
    odd = os.fsencode(tmp_path) + b"/\xff\xfe.raw"
    os.symlink(path, odd)
    assert sum(len(b) for b in evt.open(odd)) == len(EVENTS)


def test_missing_file(tmp_path):
    missing = str(tmp_path / "missing.raw")
    with pytest.raises(FileNotFoundError) as info:
        evt.open(missing)
    assert info.value.filename == missing
    assert str(info.value) == f"[Errno 2] No such file or directory: {missing!r}" or sys.platform == "win32"


def test_directory(tmp_path):
    with pytest.raises(IsADirectoryError) as info:
        evt.open(tmp_path)
    assert info.value.filename == str(tmp_path)


def test_path_with_nul():
    with pytest.raises(ValueError):
        evt.open("a\0b")


@pytest.mark.parametrize("bad", [(10,), (1, 2, 3), 10, (0, 1), (1, -1)])
def test_sensor_size_must_be_two_positive_numbers(path, bad):
    with pytest.raises(ValueError, match="sensor_size"):
        evt.open(path, sensor_size=bad)


@pytest.mark.parametrize("bad", [(True, 720), (1280.0, 720), "ab", (None, 2)])
def test_sensor_size_must_hold_ints(path, bad):
    with pytest.raises(TypeError, match="sensor_size"):
        evt.open(path, sensor_size=bad)


def test_sensor_size_may_be_any_pair_of_integers(path):
    assert evt.open(path, sensor_size=[np.int64(1280), np.int16(720)]).sensor_size == (1280, 720)
    assert type(evt.open(path, sensor_size=np.array([1280, 720])).sensor_size[0]) is int


def test_options_are_keywords(path):
    with pytest.raises(TypeError):
        evt.open(path, (1280, 720))


@pytest.mark.parametrize("batch_size", [None, 1, 4, 100_000])
def test_errors_in_the_body_surface_after_the_events_before_them(tmp_path, batch_size):
    """The vector that runs off the range is the 6,000th word; two events lie before it, one behind."""
    runaway = [(w.BASE_X, 2047), *[(w.VECT_12, 0)] * 5_300, (w.VECT_12, 1)]
    path = tmp_path / "x.raw"
    start = [(w.TIME_HIGH, 0), (w.ADDR_Y, 1), (w.ADDR_X, 1), (w.ADDR_X, 2)]
    path.write_bytes(w.header("3.0") + w.evt3(*start, *runaway, (w.ADDR_X, 3)))
    reader = evt.open(path, batch_size=batch_size)
    iterator = iter(reader)
    seen = []
    with pytest.raises(ValueError, match="65535"):
        seen.extend(event for batch in iterator for event in batch.tolist())
    assert seen == [(0, 1, 1, 0), (0, 2, 1, 0)]
    with pytest.raises(StopIteration):
        next(iterator)


MEASURE = """
import resource, sys
from frames2py.adapters import evt

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

small, large = sys.argv[1:]
assert sum(len(b) for b in evt.open(small)) == 1
before = peak()
assert sum(len(b) for b in evt.open(large)) == 64
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_file(tmp_path):
    """In a process of its own, whose peak nothing else has raised: 64 MB of clock words, few events."""
    pytest.importorskip("resource")
    for name, parts in (("small", 1), ("large", 64)):
        with (tmp_path / name).open("wb") as file:
            file.write(w.header("3.0"))
            for i in range(parts):
                file.write(w.evt3((w.TIME_HIGH, i), (w.ADDR_Y, 1), (w.ADDR_X, 1)))
                file.write(w.evt3((w.TIME_HIGH, i)) * (500_000 if parts > 1 else 1))
    command = [sys.executable, "-c", MEASURE, tmp_path / "small", tmp_path / "large"]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    grown = int(run.stdout) * (1 if sys.platform == "darwin" else 1024)
    assert grown < 16e6


def test_a_file_that_grows_is_read_up_to_where_it_is(tmp_path):
    path = tmp_path / "x.raw"
    path.write_bytes(w.header("2.0") + words_of(EVENTS[:10]))
    reader = evt.open(path)
    with path.open("ab") as file:
        file.write(words_of(EVENTS[10:20]))
    assert w.as_tuples(reader) == EVENTS[:20]


def test_threads_share_an_iterator(path):
    iterator = iter(evt.open(path, batch_size=100))
    found: list[list[np.ndarray]] = [[] for _ in range(4)]
    start = threading.Barrier(len(found))

    def take(mine):
        start.wait()
        mine.extend(iterator)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batches = sorted((b for mine in found for b in mine), key=lambda b: (int(b["y"][0]), int(b["x"][0])))
    np.testing.assert_array_equal(np.concatenate(batches), w.as_array(EVENTS))


def test_close_while_other_threads_read(path):
    for _ in range(20):
        reader = evt.open(path, batch_size=10)
        iterator = iter(reader)
        outcomes = []

        def drain(iterator=iterator, outcomes=outcomes):
            try:
                for _ in iterator:
                    pass
                outcomes.append("end")
            except ValueError as error:
                outcomes.append(str(error))

        threads = [threading.Thread(target=drain) for _ in range(2)]
        for thread in threads:
            thread.start()
        reader.close()
        for thread in threads:
            thread.join()
        assert set(outcomes) <= {"end", "the reader is closed"}


posix_only = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")


@posix_only
def test_a_pipe_yields_what_has_arrived(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    go_on = threading.Event()

    def write():
        with path.open("wb", buffering=0) as pipe:
            pipe.write(w.header("2.0")[:20])
            pipe.write(w.header("2.0")[20:] + words_of(EVENTS[:5])[:-1])
            assert go_on.wait(60)
            pipe.write(words_of(EVENTS[:5])[-1:] + words_of(EVENTS[5:9]))

    writer = threading.Thread(target=write)
    writer.start()
    with evt.open(path) as reader:
        iterator = iter(reader)
        first = next(iterator).tolist()
        go_on.set()
        rest = w.as_tuples(iterator)
    writer.join()
    assert 1 <= len(first) <= 4
    assert first + rest == EVENTS[:9]


@posix_only
def test_a_signal_ends_a_read_that_waits_and_loses_nothing(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    go_on = threading.Event()

    def write():
        with path.open("wb", buffering=0) as pipe:
            pipe.write(w.header("2.0") + words_of(EVENTS[:5]))
            time.sleep(0.2)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            assert go_on.wait(60)
            pipe.write(words_of(EVENTS[5:9]))

    writer = threading.Thread(target=write)
    writer.start()
    with evt.open(path, batch_size=9) as reader:
        iterator = iter(reader)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        go_on.set()
        assert w.as_tuples(iterator) == EVENTS[:9]
    writer.join()


@pytest.mark.skipif(os.name == "nt", reason="no named pipes in the file system here")
def test_ctrl_c_ends_the_wait_for_a_pipes_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.raw")
    code = "from frames2py.adapters import evt; print('opening', flush=True); evt.open('pipe.raw')"
    running = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "opening\n"
    # The signal may come before the wait has begun, and is then handled before it.
    while running.poll() is None:
        running.send_signal(signal.SIGINT)
        time.sleep(0.05)
    _, errors = running.communicate(timeout=60)
    assert errors.rstrip().endswith("KeyboardInterrupt")
