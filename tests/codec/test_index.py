"""Seeking, slices and totals, against what reading from the start gives."""

from __future__ import annotations

import os

import numpy as np
import pytest
from evt_words import RECORDINGS, cd, evt2, header, high
from kept_index import beside, check_that_one_in_memory_is_kept_when_asked_for

import frames2py
from frames2py import Engine, RecordingTotals
from frames2py.adapters import evt, text


def recording(steps, each=500):
    """An EVT 2.0 file whose clock takes these steps of 64 us, with some events after each."""
    words = []
    for i, step in enumerate(steps):
        words.append(high(step))
        words += [cd(j % 2, j % 64, i % 1280, j % 720) for j in range(each)]
    return header("2.0") + evt2(*words)


@pytest.fixture
def path(tmp_path):
    # Three hundred steps forward, back to the start, and forward again.
    path = tmp_path / "some.raw"
    path.write_bytes(recording([*range(0, 600, 2), *range(50, 350)]))
    return path


def everything(path):
    with evt.open(path) as reader:
        return np.concatenate(list(reader))


def rest(reader):
    return np.concatenate([np.empty(0, frames2py.EVENT_DTYPE), *reader])


@pytest.mark.parametrize("batch_size", [None, 1, 999, 100_000])
def test_a_seek_goes_to_the_first_event_of_that_time_or_later(path, batch_size):
    events = everything(path)
    t = events["t"]
    with evt.open(path, batch_size=batch_size) as reader:
        for time in (0, 1, 12_345, 38_300, int(t.max()), int(t.max()) + 1, 2**64, 7):
            later = np.flatnonzero(t >= min(time, 2**64 - 1))
            expected = events[later[0] :] if len(later) else events[:0]
            reader.seek(time)
            if batch_size == 1:
                expected = expected[:3]
                got = np.concatenate([events[:0], *[b for b, _ in zip(reader, range(3), strict=False)]])
            else:
                got = rest(reader)
            assert got.tobytes() == expected.tobytes(), time


def test_a_slice_holds_what_is_in_that_time_in_file_order(path):
    events = everything(path)
    t = events["t"]
    with evt.open(path) as reader:
        first = next(iter(reader))
        for start, end in [(0, 64), (5_000, 9_000), (38_000, 10**9), (0, 2**70), (9_000, 5_000), (77, 77)]:
            expected = events[(t >= start) & (t < min(end, 2**64 - 1))]
            assert reader.slice(start, end).tobytes() == expected.tobytes()
    # What was being read goes on behind the slices.
    assert first.tobytes() == events[: len(first)].tobytes()


def test_an_iterator_goes_on_where_a_seek_went_and_slices_leave_it_alone(path):
    events = everything(path)
    with evt.open(path, batch_size=1000) as reader:
        batches = iter(reader)
        next(batches)
        reader.slice(0, 500)
        assert next(batches).tobytes() == events[1000:2000].tobytes()
        reader.seek(0)
        assert next(batches).tobytes() == events[:1000].tobytes()
        assert sum(len(batch) for batch in batches) == len(events) - 1000
        assert next(batches, None) is None
        reader.seek(10**6)
        assert list(reader) == []
        with pytest.raises(RuntimeError, match="once"):
            iter(reader)


def test_totals_are_there_once_there_is_an_index(path):
    events = everything(path)
    expected = RecordingTotals(len(events), int(events["t"].min()), int(events["t"].max()))
    with evt.open(path) as reader:
        assert reader.totals is None
        assert reader.build_index() == expected
        assert reader.totals == expected
        assert expected.duration_us == expected.t_max - expected.t_min


def test_a_file_without_events_has_an_index_too(tmp_path):
    path = tmp_path / "empty.raw"
    path.write_bytes(header("2.0"))
    with evt.open(path) as reader:
        assert reader.build_index() == RecordingTotals(0, None, None)
        assert reader.totals.duration_us == 0
        assert len(reader.slice(0, 10)) == 0
        reader.seek(0)
        assert list(reader) == []


def test_an_index_in_memory_is_kept_beside_the_file_when_that_is_asked_for(path):
    check_that_one_in_memory_is_kept_when_asked_for(path)


def test_an_index_beside_the_file_is_used_while_it_is_of_that_file(path):
    events = everything(path)
    with evt.open(path) as reader:
        expected = reader.build_index(beside=True)
    kept = beside(path).read_bytes()
    # Clocks of file systems tick slowly: written again within a tick, it would have the same time.
    os.utime(beside(path), ns=(10**18, 10**18))
    before = beside(path).stat().st_mtime_ns
    with evt.open(path) as reader:
        assert reader.build_index(beside=True) == expected
        reader.seek(30_000)
        assert rest(reader).tobytes() == events[np.flatnonzero(events["t"] >= 30_000)[0] :].tobytes()
    assert beside(path).stat().st_mtime_ns == before
    # Another file in its place, of the same size: the index is made anew.
    path.write_bytes(recording([*range(1, 601, 2), *range(50, 350)]))
    events = everything(path)
    with evt.open(path) as reader:
        assert reader.build_index(beside=True).t_min == 64
        assert reader.slice(0, 10**9).tobytes() == events.tobytes()
    assert beside(path).read_bytes() != kept


@pytest.mark.parametrize("damage", [b"", b"F2PYIDX1", b"F2PYIDX1" + bytes(200)])
def test_a_damaged_index_beside_the_file_is_made_anew(path, damage):
    with evt.open(path) as reader:
        expected = reader.build_index(beside=True)
    kept = beside(path).read_bytes()
    beside(path).write_bytes(damage)
    with evt.open(path) as reader:
        assert reader.build_index(beside=True) == expected
    assert beside(path).read_bytes() == kept


def test_an_index_beside_the_file_is_of_the_options_it_was_read_with(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("".join(f"{t} 1 2 0\n" for t in range(1, 100)))
    for unit, factor in (("us", 1), ("ms", 1000), ("us", 1)):
        with text.open(path, columns="txyp", time_unit=unit) as reader:
            assert reader.build_index(beside=True).t_max == 99 * factor
            reader.seek(50 * factor)
            assert next(iter(reader))["t"][0] == 50 * factor
    with text.open(path, columns="tyxp", time_unit="us") as reader:
        assert reader.build_index(beside=True).t_max == 99
        assert reader.slice(3, 4).tolist() == [(3, 2, 1, 0)]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes everywhere")
def test_where_nothing_can_be_written_the_index_is_in_memory(path):
    path.parent.chmod(0o500)
    try:
        with evt.open(path) as reader:
            assert reader.build_index(beside=True).events == len(everything(path))
        assert not beside(path).exists()
    finally:
        path.parent.chmod(0o700)


def test_a_playback_starts_where_the_reader_is(path):
    events = everything(path)
    with evt.open(path) as reader:
        reader.seek(30_000)
        playback = Engine((1280, 720)).play(reader)
        assert playback.join(60)
        assert playback.events == len(events) - np.flatnonzero(events["t"] >= 30_000)[0]
        with pytest.raises(ValueError):
            reader.seek(0)


def test_a_report_and_strictness_begin_at_the_seek(path):
    path.write_bytes(recording([*range(20_000), *range(19_000, 30_000)], each=20))
    with evt.open(path, strict=True) as reader:
        reader.seek(0)
        with pytest.raises(ValueError, match="below that of the event before it, at byte"):
            list(reader)
        # Behind the step back there is no fault.
        reader.seek(25_000 * 64)
        assert len(rest(reader)) == 5_000 * 20
        assert reader.report.backward_steps == 0
        assert 5_000 * 20 <= reader.report.events < 31_000 * 20 - 20_000 * 20


def test_what_cannot_be_sought(path, tmp_path):
    with evt.open(path) as reader:
        for wrong in (1.0, "1", None, True):
            with pytest.raises(TypeError, match="t_us must be an int"):
                reader.seek(wrong)
            with pytest.raises(TypeError, match="t1_us must be an int"):
                reader.slice(0, wrong)
        with pytest.raises(ValueError, match="negative"):
            reader.seek(-1)
        with pytest.raises(TypeError, match="beside"):
            reader.build_index(beside=1)
        assert len(list(reader)) > 0  # nothing was used up
    for use in (lambda r: r.seek(0), lambda r: r.slice(0, 1), lambda r: r.build_index()):
        with pytest.raises(ValueError, match="closed"):
            use(reader)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_has_no_index(path, tmp_path):
    import threading

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    with evt.open(pipe) as reader:
        with pytest.raises(ValueError, match="pipe"):
            reader.seek(0)
        assert rest(reader).tobytes() == everything(path).tobytes()
    writer.join()


@pytest.mark.skipif(not (RECORDINGS / "MANIFEST.tsv").exists(), reason=f"no recordings in {RECORDINGS}")
@pytest.mark.parametrize("name", ["sparklers.evt2.raw"])
def test_recordings_are_sought_as_they_are_read(name):
    with frames2py.open(RECORDINGS / name, sensor_size=(640, 480)) as reader:
        events = np.concatenate(list(reader))
        t = events["t"]
        assert reader.build_index() == RecordingTotals(len(events), int(t.min()), int(t.max()))
        for time in np.linspace(int(t.min()), int(t.max()), 7).astype(np.uint64):
            reader.seek(int(time))
            assert rest(reader).tobytes() == events[np.flatnonzero(t >= time)[0] :].tobytes()
            expected = events[(t >= time) & (t < time + np.uint64(5000))]
            assert reader.slice(int(time), int(time) + 5000).tobytes() == expected.tobytes()
