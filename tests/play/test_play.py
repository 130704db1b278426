"""``Engine.play()``: what it hands over, from what sources, and what it refuses."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from records import at, empty

import frames2py
from frames2py import Engine, Playback
from frames2py.adapters import evt

FORMATS = ["evt2", "evt2.1", "evt3", "dat", "aedat4", "es", "csv", "npz", "hdf5", "dsec"]
EVENTS = [(10 * i, i % 4, i // 4 % 3, i % 2) for i in range(1000)]


def counts(events: Any) -> np.ndarray:
    """How many of these events are at each pixel of a 4 x 3 sensor."""
    expected = np.zeros((3, 4), np.uint32)
    for _, x, y, _ in events:
        if x < 4 and y < 3:
            expected[y, x] += 1
    return expected


class Calls:
    """A kernel that keeps what it is called with."""

    name = "calls"

    def __init__(self) -> None:
        self.calls: list[list[tuple[int, int, int, int]]] = []
        self.rounds = 0

    def output_spec(self, sensor_size: tuple[int, int]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        return (1,), np.dtype(np.int64)

    def init_state(self, sensor_size: tuple[int, int]) -> None:
        return None

    def begin_call(self, state: None) -> None:
        self.calls.append([])

    def accumulate(self, events: Any, state: None, watermark: int | None) -> None:
        assert events.dtype == frames2py.EVENT_DTYPE and events.flags.c_contiguous
        self.calls[-1] = events.tolist()

    def read(self, state: None, out: Any, watermark: int | None) -> None:
        out[0] = len(self.calls)

    def close_window(self, state: None) -> None:
        pass

    def reset(self, state: None) -> None:
        self.rounds += 1


def test_a_recording_is_accumulated_published_and_counted(write):
    outside = [(10_001, 4, 0, 1), (10_002, 0, 3, 1)]
    engine = Engine((4, 3), snapshot_interval_ms=0)
    playback = engine.play(write([*EVENTS, *outside]))
    assert isinstance(playback, Playback)
    assert playback.join() is True
    assert playback.finished and not playback.paused
    assert (playback.events, playback.position_us) == (1002, 10_002)
    assert engine.stats.events_ingested == 1002
    assert engine.stats.events_out_of_bounds == 2
    snapshot = engine.snapshot()
    assert snapshot is not None and snapshot.meta.watermark == 9990
    np.testing.assert_array_equal(snapshot.frame, counts(EVENTS))
    assert playback.join(0) is True  # as often as one likes


def test_nothing_is_published_that_is_not_due(write):
    engine = Engine((4, 3), snapshot_interval_ms=1e9)
    assert engine.play(evt.open(write(EVENTS), batch_size=100)).join()
    snapshot = engine.snapshot()
    assert snapshot is not None and snapshot.meta.sequence == 1
    np.testing.assert_array_equal(snapshot.frame, counts(EVENTS[:100]))
    engine.stop()
    snapshot = engine.snapshot()
    assert snapshot is not None and snapshot.meta.sequence == 2
    np.testing.assert_array_equal(snapshot.frame, counts(EVENTS[100:]))


@pytest.mark.parametrize("kind", [str, os.fsencode, Path])
def test_a_path_may_be_of_any_kind(write, kind):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    assert engine.play(kind(write(EVENTS))).join()
    assert engine.stats.events_ingested == 1000


@pytest.mark.parametrize("speed", [None, 1e9])
def test_a_batch_size_is_the_size_of_calls(write, speed):
    kernel = Calls()
    engine = Engine((4, 3), kernel)
    with evt.open(write(EVENTS), batch_size=300) as reader:
        engine.play(reader, speed=speed).join()
    assert kernel.calls == [EVENTS[:300], EVENTS[300:600], EVENTS[600:900], EVENTS[900:]]


@pytest.mark.parametrize("size", [1, 7, 7000, 16_384, 50_000, 10**9])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_batch_size_is_kept_whatever_is_read_at_once(write, size, threads):
    lengths: list[int] = []

    class Lengths(Calls):
        def accumulate(self, events: Any, state: None, watermark: int | None) -> None:
            lengths.append(len(events))

    engine = Engine((4, 3), Lengths(), snapshot_interval_ms=1e9)
    total = 40_000 if size > 7 else 1000
    path = write((i, i % 4, i % 3, 1) for i in range(total))
    playback = engine.play(evt.open(path, batch_size=size), threads=threads)
    assert playback.join()
    assert sum(lengths) == playback.events == total
    assert set(lengths[:-1]) <= {size} and 0 < lengths[-1] <= size


def test_a_paced_recording_is_cut_into_5_ms(write):
    """At 10 µs per event, 5 ms of a recording played at its own speed are 500 events."""
    kernel = Calls()
    engine = Engine((4, 3), kernel)
    assert engine.play(write(EVENTS), speed=1).join()
    assert kernel.calls == [EVENTS[:500], EVENTS[500:]]
    kernel.calls.clear()
    assert engine.play(write(EVENTS), speed=0.5).join()
    assert [len(call) for call in kernel.calls] == [250] * 4
    kernel.calls.clear()
    assert engine.play(write(EVENTS)).join()
    assert kernel.calls == [EVENTS]


def test_recordings_of_real_cameras_give_what_their_events_give(recordings):
    sizes = {"imx636.evt3.raw": None, "sparklers.evt2.raw": (640, 480), "trigger.evt3.raw": None}
    for name, size in sizes.items():
        with evt.open(recordings / name, sensor_size=size) as reader:
            width, height = reader.sensor_size
            expected = np.zeros((height, width), np.uint64)
            total = 0
            for batch in reader:
                inside = batch[(batch["x"] < width) & (batch["y"] < height)]
                np.maximum.at(expected, (inside["y"], inside["x"]), inside["t"])
                total += len(batch)
        engine = Engine((width, height), "time_surface")
        playback = engine.play(recordings / name)
        assert playback.join()
        engine.stop()
        snapshot = engine.snapshot()
        assert snapshot is not None
        np.testing.assert_array_equal(snapshot.frame, expected)
        assert snapshot.meta.watermark == expected.max()
        assert engine.stats.events_ingested == playback.events == total


def test_a_recording_without_events_makes_no_call(write):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    for loop in (False, True):
        playback = engine.play(write([]), loop=loop)
        assert playback.join() and playback.finished
        assert (playback.events, playback.position_us) == (0, None)
    assert engine.snapshot() is None


# Readers


def test_a_reader_is_used_up_and_closing_it_ends_nothing(write):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    with evt.open(write(EVENTS)) as reader:
        playback = engine.play(reader)
        with pytest.raises(RuntimeError, match="once"):
            iter(reader)
        with pytest.raises(RuntimeError, match="once"):
            Engine((4, 3)).play(reader)
    assert reader.closed
    assert playback.join()
    assert playback.events == 1000


def test_a_reader_that_is_used_up_or_closed_or_of_another_sensor_is_refused(write):
    engine = Engine((4, 3))
    reader = evt.open(write(EVENTS))
    iter(reader)
    with pytest.raises(RuntimeError, match="once"):
        engine.play(reader)
    reader = evt.open(write(EVENTS))
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        engine.play(reader)
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(3, 4\)"):
        engine.play(evt.open(write([], geometry=None), sensor_size=(3, 4)))
    engine.ingest(at(1))  # nothing of it made a producer


def test_a_refused_reader_is_as_before(write):
    reader = evt.open(write(EVENTS))
    with pytest.raises(ValueError, match="sensor_size"):
        Engine((9, 9)).play(reader)
    with pytest.raises(ValueError, match="speed"):
        Engine((4, 3)).play(reader, speed=0)
    produced = Engine((4, 3))
    produced.ingest(empty())
    with pytest.raises(RuntimeError, match="producer"):
        produced.play(reader)
    assert sum(map(len, reader)) == 1000


# Refusals


def test_a_file_of_another_sensor_is_refused_and_one_that_states_none_is_the_engines(write):
    with pytest.raises(ValueError, match=r"\(3, 4\).*\(4, 3\)"):
        Engine((3, 4)).play(write(EVENTS))
    engine = Engine((4, 3))
    assert engine.play(write(EVENTS, geometry=None)).join()
    assert engine.stats.events_ingested == 1000


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_format_is_played(tmp_path, name, loop, threads):
    """What is played is what was saved: 150,000 events, more than a batch of any."""
    if name in ("hdf5", "dsec"):
        pytest.importorskip("hdf5plugin")
    rng = np.random.default_rng(5)
    events = np.zeros(150_000, frames2py.EVENT_DTYPE)
    events["t"] = np.sort(rng.integers(0, 1_000_000, len(events)))
    for field, high in (("x", 40), ("y", 30), ("p", 2)):
        events[field] = rng.integers(0, high, len(events))
    expected = np.zeros((30, 40), np.uint64)
    np.maximum.at(expected, (events["y"], events["x"]), events["t"])
    path = tmp_path / "recording"
    frames2py.save(path, events, sensor_size=(40, 30), format=name)

    engine = Engine((40, 30), "time_surface", snapshot_interval_ms=0)
    if loop:
        with engine.play(path, loop=True, threads=threads) as playback:
            last = 0
            while playback.events < 2 * len(events):
                snapshot = engine.wait_for_newer(last, timeout=60)
                assert snapshot is not None
                last = snapshot.meta.sequence
                assert (snapshot.frame <= expected).all()
    else:
        playback = engine.play(path, threads=threads)
        assert playback.join()
        snapshot = engine.snapshot()
        assert snapshot is not None
        np.testing.assert_array_equal(snapshot.frame, expected)
        assert playback.events == engine.stats.events_ingested == len(events)
        assert playback.position_us == events["t"].max()


@pytest.mark.parametrize("name", ["evt2", "evt2.1", "evt3", "aedat4", "es"])
def test_a_file_of_any_format_that_states_another_sensor_is_refused(tmp_path, name):
    path = tmp_path / "recording"
    frames2py.save(path, at(1), sensor_size=(40, 30), format=name)
    engine = Engine((4, 3))
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(40, 30\)"):
        engine.play(path)
    engine.ingest(at(1))


def test_what_is_no_recording_is_refused(tmp_path):
    engine = Engine((4, 3))
    with pytest.raises(FileNotFoundError):
        engine.play(tmp_path / "missing.raw")
    with pytest.raises(IsADirectoryError):
        engine.play(tmp_path)
    (tmp_path / "text").write_text("not a recording")
    with pytest.raises(ValueError, match="not a recording"):
        engine.play(tmp_path / "text")
    for source in (None, 3, [at(1)], at(1)):
        with pytest.raises(TypeError, match="reader_or_path"):
            engine.play(source)
    engine.ingest(at(1))


@pytest.mark.parametrize("speed", [0, -1, -0.0, float("nan"), float("inf"), np.float64("-inf"), 10**400])
def test_a_speed_that_is_none_is_a_value_error(write, speed):
    with pytest.raises(ValueError, match="speed"):
        Engine((4, 3)).play(write(EVENTS), speed=speed)


@pytest.mark.parametrize("speed", [True, False, np.True_, "1", 1j, b"1", [1]])
def test_a_speed_that_is_no_number_is_a_type_error(write, speed):
    with pytest.raises(TypeError, match="speed"):
        Engine((4, 3)).play(write(EVENTS), speed=speed)


@pytest.mark.parametrize("speed", [1_000_000, 1e6, np.float32(1e6), np.int64(10**6), np.uint8(255)])
def test_a_speed_may_be_of_any_real_type(write, speed):
    engine = Engine((4, 3))
    assert engine.play(write(EVENTS), speed=speed).join()
    assert engine.stats.events_ingested == 1000


@pytest.mark.parametrize("loop", [None, 0, 1, "yes", 1.0])
def test_a_loop_that_is_no_bool_is_a_type_error(write, loop):
    with pytest.raises(TypeError, match="loop"):
        Engine((4, 3)).play(write(EVENTS), loop=loop)


@pytest.mark.parametrize("threads", [0, 3, -1, 10**30, np.int64(4)])
def test_a_number_of_threads_that_is_neither_1_nor_2_is_a_value_error(write, threads):
    engine = Engine((4, 3))
    with pytest.raises(ValueError, match=r"threads must be 1 or 2, got -?\d+"):
        engine.play(write(EVENTS), threads=threads)
    engine.ingest(at(1))


@pytest.mark.parametrize("threads", [None, True, np.True_, 1.0, "2", b"1", [1]])
def test_a_number_of_threads_that_is_no_integer_is_a_type_error(write, threads):
    engine = Engine((4, 3))
    with pytest.raises(TypeError, match="threads must be an integer, 1 or 2, got"):
        engine.play(write(EVENTS), threads=threads)
    engine.ingest(at(1))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("threads", [1, 2, np.uint8(1), np.int64(2)])
def test_there_are_as_many_threads_as_asked_for(write, threads):
    def names() -> list[str]:
        tasks = Path("/proc/self/task").glob("*/comm")
        return sorted(name for name in (task.read_text().strip() for task in tasks) if "frames2py" in name)

    while names():  # of playbacks before this one, which end
        time.sleep(0.01)
    engine = Engine((4, 3))
    with engine.play(write(EVENTS), speed=1e-9, loop=True, threads=threads):
        assert engine.wait_for_newer(None, timeout=60) is not None  # each of them has begun
        assert names() == ["frames2py play", "frames2py read"][:threads]


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_wrong_with_a_file_comes_after_the_events_before_it(write_broken, threads):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    playback = engine.play(write_broken(), threads=threads)
    with pytest.raises(ValueError, match="vector"):
        playback.join()
    assert playback.events == engine.stats.events_ingested == 2


def test_arguments_are_by_keyword(write):
    with pytest.raises(TypeError):
        Engine((4, 3)).play(write(EVENTS), 1.0)


def test_a_playback_is_not_made_by_hand():
    with pytest.raises(TypeError):
        Playback()


# The producer


def test_a_playback_is_the_producer_for_good(write, elsewhere):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    assert engine.play(write(EVENTS)).join()
    for call in (lambda: engine.ingest(at(1)), lambda: elsewhere(engine.ingest, at(1))):
        with pytest.raises(RuntimeError, match=r"play\(\)"):
            call()
    engine.reset()
    with pytest.raises(RuntimeError, match=r"play\(\)"):
        engine.ingest(at(1))
    assert engine.stats.events_ingested == 0
    assert engine.play(write(EVENTS)).join()
    assert engine.stats.events_ingested == 1000


def test_a_thread_that_has_ingested_stays_the_producer(write, elsewhere):
    for call in (lambda engine: engine.ingest(empty()), lambda engine: elsewhere(engine.ingest, at(1))):
        engine = Engine((4, 3))
        call(engine)
        with pytest.raises(RuntimeError, match=r"ingest\(\)"):
            engine.play(write(EVENTS))
    engine.stop()
    engine.reset()
    with pytest.raises(RuntimeError, match=r"ingest\(\)"):
        engine.play(write(EVENTS))
    elsewhere(engine.ingest, at(1))


def test_a_rejected_ingest_does_not_keep_a_playback_away(write):
    engine = Engine((4, 3))
    with pytest.raises(ValueError):
        engine.ingest(at(2**63))
    assert engine.play(write(EVENTS)).join()


def test_one_playback_at_a_time(write):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    with engine.play(write(EVENTS), loop=True) as first:
        with pytest.raises(RuntimeError, match="playing"):
            engine.play(write(EVENTS))
        with pytest.raises(RuntimeError, match=r"play\(\)"):
            engine.ingest(at(1))
    assert first.finished
    assert engine.play(write(EVENTS)).join()


def test_of_many_threads_one_gets_to_play(write):
    path = write(EVENTS)
    engine = Engine((4, 3))
    barrier = threading.Barrier(8)
    playing: list[Playback] = []
    refused: list[RuntimeError] = []

    def play() -> None:
        barrier.wait()
        try:
            playing.append(engine.play(path, loop=True))
        except RuntimeError as error:
            refused.append(error)

    threads = [threading.Thread(target=play) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(playing), len(refused)) == (1, 7)
    playing[0].stop()
    assert playing[0].join()


def test_every_thread_may_wait(write):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    with engine.play(write(EVENTS), loop=True):
        last = 0
        for _ in range(5):
            snapshot = engine.wait_for_newer(last, timeout=60)
            assert snapshot is not None and snapshot.meta.sequence > last
            last = snapshot.meta.sequence
            assert engine.snapshot() is not None
    # nothing more comes
    newest = engine.snapshot()
    assert newest is not None
    assert engine.wait_for_newer(newest.meta.sequence, timeout=0.01) is None


def test_every_reader_of_a_publication_gets_the_same_object(write):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    engine.play(write(EVENTS)).join()
    assert engine.snapshot() is engine.snapshot()


# Errors on the way


def test_what_is_wrong_with_the_file_comes_from_join_each_time_after_the_events_before_it(write_broken):
    engine = Engine((4, 3), snapshot_interval_ms=0)
    playback = engine.play(write_broken())
    for _ in range(2):
        with pytest.raises(ValueError, match="65535"):
            playback.join()
    assert playback.finished
    assert playback.events == engine.stats.events_ingested == 2


def test_leaving_the_block_raises_what_went_wrong(write_broken):
    engine = Engine((4, 3))
    playback = engine.play(write_broken())
    while not playback.finished:
        engine.wait_for_newer(10**9, timeout=0.001)
    with pytest.raises(ValueError, match="65535"), playback as same:
        assert same is playback


def test_the_blocks_own_error_is_the_one_raised(write):
    with pytest.raises(KeyError):
        with Engine((4, 3)).play(write(EVENTS), loop=True) as playback:
            raise KeyError("mine")
    assert playback.finished
