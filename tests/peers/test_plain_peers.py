"""Files written here are opened by other people's readers, which find the same events."""

from __future__ import annotations

import numpy as np
import pytest

from frames2py import EVENT_DTYPE, _core
from frames2py.adapters import dat, es, text

SIZE = (640, 480)


def make_events(count=5000, seed=1):
    random = np.random.default_rng(seed)
    events = np.zeros(count, EVENT_DTYPE)
    events["t"] = np.cumsum(random.choice([0, 0, 1, 2, 126, 127, 128, 1000, 10_000], count))
    events["x"] = random.integers(0, SIZE[0], count)
    events["y"] = random.integers(0, SIZE[1], count)
    events["p"] = random.integers(0, 2, count)
    return events


def write(path, name, events):
    encoder = _core.FileEncoder(name, SIZE)
    path.write_bytes(encoder.encode(events[:1234]) + encoder.encode(events[1234:]) + encoder.finish()[0])
    return str(path)


def same(theirs, ours, names=("t", "x", "y", "p"), flip=False):
    assert len(theirs) == len(ours)
    for name, field in zip(names, ("t", "x", "y", "p"), strict=True):
        expected = ours[field].astype("i8")
        if flip and field == "y":
            expected = SIZE[1] - 1 - expected
        np.testing.assert_array_equal(theirs[name].astype("i8"), expected)


def test_expelliarmus_opens_dat(tmp_path):
    expelliarmus = pytest.importorskip("expelliarmus")
    events = make_events()
    path = write(tmp_path / "a.dat", "dat", events)
    same(expelliarmus.Wizard(encoding="dat").read(path), events)


def test_we_open_expelliarmus_dat(tmp_path):
    expelliarmus = pytest.importorskip("expelliarmus")
    events = make_events()
    theirs = np.zeros(len(events), [("t", "<i8"), ("x", "<i2"), ("y", "<i2"), ("p", "u1")])
    for name in "txyp":
        theirs[name] = events[name]
    path = tmp_path / "a.dat"
    expelliarmus.Wizard(encoding="dat").save(str(path), theirs)
    with dat.open(path, sensor_size=None if b"Width" in path.read_bytes()[:200] else SIZE) as reader:
        same(np.concatenate(list(reader)), events)


def test_event_stream_opens_es(tmp_path):
    event_stream = pytest.importorskip("event_stream")
    events = make_events()
    decoder = event_stream.Decoder(write(tmp_path / "a.es", "es", events))
    assert (decoder.type, decoder.width, decoder.height) == ("dvs", *SIZE)
    same(np.concatenate(list(decoder)), events, ("t", "x", "y", "on"), flip=True)


def test_we_open_event_streams_es(tmp_path):
    event_stream = pytest.importorskip("event_stream")
    events = make_events()
    theirs = np.zeros(len(events), event_stream.dvs_dtype)
    for ours, name in zip("txyp", theirs.dtype.names, strict=True):
        theirs[name] = events[ours]
    path = tmp_path / "a.es"
    with event_stream.Encoder(str(path), "dvs", *SIZE) as encoder:
        encoder.write(theirs)
    with es.open(path) as reader:
        found = np.concatenate(list(reader))
        assert reader.sensor_size == SIZE
    events["y"] = SIZE[1] - 1 - events["y"]
    same(found, events)


@pytest.mark.parametrize("name", ["dat", "es", "csv"])
def test_faery_opens_what_is_written(tmp_path, name):
    faery = pytest.importorskip("faery")
    events = make_events()
    path = write(tmp_path / f"a.{name}", name, events)
    options = {"csv_properties": faery.CsvProperties.default()} if name == "csv" else {}
    stream = faery.events_stream_from_file(path, dimensions_fallback=SIZE, **options)
    packets = [packet for packet in stream if len(packet)]
    same(np.concatenate(packets), events, ("t", "x", "y", "on"))


@pytest.mark.parametrize("name", ["dat", "es", "csv"])
def test_we_open_what_faery_writes(tmp_path, name):
    faery = pytest.importorskip("faery")
    events = make_events()
    source = write(tmp_path / "source.es", "es", events)
    path = tmp_path / f"a.{name}"
    faery.events_stream_from_file(source).to_file(str(path))
    module = {"dat": dat, "es": es, "csv": text}[name]
    with module.open(path) as reader:
        assert reader.sensor_size == SIZE
        found = np.concatenate(list(reader))
    # It may count times from the first event.
    assert int(found["t"][0]) in (0, int(events["t"][0]))
    for array in (found, events):
        array["t"] -= array["t"][0]
    same(found, events)
