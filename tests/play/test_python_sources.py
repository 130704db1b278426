"""Playing files that Python reads: what is particular to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hdf5_files import h5py
from records import at

import frames2py
from frames2py import Engine
from frames2py.adapters import hdf5

COUNT = 400_000


@pytest.fixture(scope="module", params=["npz", "hdf5"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than a few batches."""
    path: Path = tmp_path_factory.mktemp("recording") / "recording"
    frames2py.save(path, events(), sensor_size=(40, 30), format=request.param)
    return path


def events() -> np.ndarray:
    found = np.zeros(COUNT, frames2py.EVENT_DTYPE)
    found["t"] = np.arange(COUNT) * 5
    found["x"] = np.arange(COUNT) % 40
    found["y"] = np.arange(COUNT) // 7 % 30
    return found


class Sizes:
    """A kernel that keeps how many events each call had, and when they were."""

    name = "sizes"

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def output_spec(self, size: tuple[int, int]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        return (1,), np.dtype(np.int64)

    def init_state(self, size: tuple[int, int]) -> None:
        return None

    def begin_call(self, state: None) -> None:
        pass

    def accumulate(self, events: np.ndarray, state: None, watermark: int | None) -> None:
        self.calls.append((len(events), int(events["t"][0])))

    def read(self, state: None, out: np.ndarray, watermark: int | None) -> None:
        out[0] = 1

    def close_window(self, state: None) -> None:
        pass

    def reset(self, state: None) -> None:
        pass


@pytest.mark.parametrize("size", [1000, 100_000, 2_000_000])
def test_a_batch_size_is_that_of_each_call(path, size):
    kernel = Sizes()
    reader = frames2py.open(path, batch_size=size)
    playback = Engine((40, 30), kernel).play(reader)
    assert playback.join()
    expected = [(min(size, COUNT - start), start * 5) for start in range(0, COUNT, size)]
    assert kernel.calls == expected
    assert reader.report.events == COUNT


def test_a_reader_is_the_playbacks_and_closing_it_does_not_end_that(path):
    with frames2py.open(path) as reader:
        playback = Engine((40, 30)).play(reader)
        with pytest.raises(RuntimeError, match="once"):
            iter(reader)
        for use in (lambda: reader.seek(0), lambda: reader.slice(0, 1), reader.build_index):
            with pytest.raises(ValueError, match="closed"):
                use()
    assert playback.join()
    assert playback.events == reader.report.events == COUNT


def test_an_iterator_there_was_reads_nothing_of_a_playback(path):
    reader = frames2py.open(path)
    batches = iter(reader)
    next(batches)
    reader.seek(0)
    playback = Engine((40, 30)).play(reader)
    with pytest.raises(ValueError, match="closed"):
        next(batches)
    assert playback.join() and playback.events == COUNT


def test_it_starts_where_the_reader_was_sought_to_and_again_at_the_start(path):
    kernel = Sizes()
    reader = frames2py.open(path, batch_size=100_000)
    reader.seek(300_001 * 5)
    with Engine((40, 30), kernel).play(reader, loop=True) as playback:
        while playback.events < 99_999 + COUNT:
            pass
    assert kernel.calls[:3] == [(99_999, 300_001 * 5), (100_000, 0), (100_000, 500_000)]


def test_a_refused_reader_is_as_before(path):
    reader = frames2py.open(path)
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(40, 30\)"):
        Engine((4, 3)).play(reader)
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(40, 30\)"):
        Engine((4, 3)).play(path)
    produced = Engine((40, 30))
    produced.ingest(at(1))
    with pytest.raises(RuntimeError, match="producer"):
        produced.play(reader)
    assert sum(map(len, reader)) == COUNT
    with pytest.raises(RuntimeError, match="once"):
        Engine((40, 30)).play(reader)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        Engine((40, 30)).play(reader)


def test_what_is_wrong_comes_from_join_as_it_was_raised_behind_the_events_before_it(tmp_path):
    path = tmp_path / "broken.h5"
    with h5py.File(path, "w") as file:
        times = np.arange(COUNT)
        times[300_000] = -1
        file["events/t"] = times
        for name in "xyp":
            file[f"events/{name}"] = np.zeros(COUNT, "u1")
    with hdf5.open_any(path) as reader:
        batches = iter(reader)
        with pytest.raises(ValueError) as iterated:
            for _ in batches:
                pass
    playback = Engine((40, 30)).play(path)
    with pytest.raises(ValueError) as first:
        playback.join()
    with pytest.raises(ValueError) as second:
        playback.join()
    assert first.value is second.value
    assert str(first.value) == str(iterated.value)
    assert playback.events == 300_000


def test_what_is_no_recording_is_refused_at_once(tmp_path):
    path = tmp_path / "events.h5"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    engine = Engine((4, 3))
    with pytest.raises(ValueError, match="HDF5"):
        engine.play(path)
    np.save(tmp_path / "a.npy", np.zeros((3, 4)))
    with pytest.raises(TypeError, match="columns"):
        engine.play(tmp_path / "a.npy")
    engine.ingest(at(1))
