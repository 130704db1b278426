"""``frames2py.open`` and ``frames2py.save``: every format there and back, and what is refused."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import threading

import numpy as np
import pytest
from evt_words import RECORDINGS
from hypothesis import given
from hypothesis import strategies as st

import frames2py
from frames2py import EVENT_DTYPE
from frames2py._recordings import COMPRESSIONS, FORMATS

SIZE = (640, 480)
HDF5 = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is not installed"),
    )
    for name in ("hdf5", "dsec")
]
NOT_HDF5 = [name for name in FORMATS if name not in ("hdf5", "dsec")]
ALL = [*NOT_HDF5, *HDF5]


def some_events(n=5_000, seed=1):
    """Events in order of time, as every format holds them."""
    rng = np.random.default_rng(seed)
    events = np.empty(n, EVENT_DTYPE)
    events["t"] = np.cumsum(rng.integers(0, 40, n))
    events["x"] = rng.integers(0, SIZE[0], n)
    events["y"] = rng.integers(0, SIZE[1], n)
    events["p"] = rng.integers(0, 2, n)
    return events


def read(path, **options):
    with frames2py.open(path, **options) as reader:
        return np.concatenate([np.empty(0, EVENT_DTYPE), *reader])


def options_for(name):
    """Text states no sensor size."""
    return {"sensor_size": SIZE} if name == "csv" else {}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("n", [0, 1, 5_000, 70_000])
def test_what_is_saved_is_opened_again(tmp_path, name, n):
    events = some_events(n)
    path = tmp_path / "file-without-a-suffix"
    assert frames2py.save(path, events, sensor_size=SIZE, format=name) == n
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    with frames2py.open(path, **options_for(name)) as reader:
        assert reader.sensor_size == SIZE
        got = np.concatenate([events[:0], *reader])
        assert reader.report.events == n
    assert got.tobytes() == events.tobytes()


@pytest.mark.parametrize("name", ALL)
def test_how_events_are_cut_into_batches_changes_nothing_that_is_read(tmp_path, name):
    events = some_events()
    batches = [events[:0], events[:1], events[1:1800], events[1800:], events[:0]]
    frames2py.save(tmp_path / "a", iter(batches), sensor_size=SIZE, format=name)
    frames2py.save(tmp_path / "b", events, sensor_size=SIZE, format=name)
    assert read(tmp_path / "a", **options_for(name)).tobytes() == events.tobytes()
    if name not in ("aedat4",):  # packets are as large as the batches
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("name", NOT_HDF5)
def test_other_layouts_of_records_are_saved_too(tmp_path, name):
    events = some_events(100)
    wide = np.zeros(
        100,
        np.dtype(
            {"names": ["p", "weight", "y", "x", "t"], "formats": ["u1", "f4", "<u2", "<u2", "<u8"]},
            align=True,
        ),
    )
    for field in EVENT_DTYPE.names:
        wide[field] = events[field]
    frames2py.save(tmp_path / "a", wide, sensor_size=SIZE, format=name)
    assert read(tmp_path / "a", **options_for(name)).tobytes() == events.tobytes()


@pytest.mark.parametrize(
    ("suffix", "found"),
    [
        (".raw", "EVT 3.0"),
        (".dat", "DAT"),
        (".aedat4", "AEDAT 4.0"),
        (".es", "Event Stream"),
        (".npz", "NPZ"),
        (".csv", "text"),
        (".TXT", "text"),
    ],
)
def test_a_suffix_names_the_format_for_saving_and_none_for_opening(tmp_path, suffix, found):
    events = some_events(10)
    frames2py.save(tmp_path / f"some{suffix}", events, sensor_size=SIZE)
    (tmp_path / f"some{suffix}").rename(tmp_path / "some.jpeg")
    with frames2py.open(tmp_path / "some.jpeg", sensor_size=SIZE) as reader:
        assert found.lower() in reader.format.lower()
        assert np.concatenate(list(reader)).tobytes() == events.tobytes()


@pytest.mark.parametrize("name", ["evt3", "dat", "es", "csv"])
def test_a_reader_is_saved_with_its_own_sensor_size(tmp_path, name):
    events = some_events()
    frames2py.save(tmp_path / "a.raw", events, sensor_size=SIZE, format="evt2")
    with frames2py.open(tmp_path / "a.raw") as reader:
        assert frames2py.save(tmp_path / "b", reader, format=name) == len(events)
    with frames2py.open(tmp_path / "b", **options_for(name)) as reader:
        assert reader.sensor_size == SIZE
        assert np.concatenate(list(reader)).tobytes() == events.tobytes()


REFUSED = {
    "evt2": [(5, 2048, 0, 1), (5, 0, 2048, 1), (5, 1, 1, 2)],
    "evt2.1": [(5, 2048, 0, 1), (5, 0, 2048, 1), (5, 1, 1, 2)],
    "evt3": [(5, 2048, 0, 1), (5, 0, 2048, 1), (5, 1, 1, 2)],
    "dat": [(5, 16384, 0, 1), (5, 0, 16384, 1)],
    "aedat4": [(5, 32768, 0, 1), (5, 0, 32768, 1)],
}


@pytest.mark.parametrize(("name", "event"), [(name, e) for name, events in REFUSED.items() for e in events])
@pytest.mark.parametrize("there", [False, True])
def test_an_event_that_the_format_cannot_hold_leaves_nothing_behind(tmp_path, name, event, there):
    events = some_events(1_000)
    events[700] = event
    events["t"] = np.arange(1_000)
    path = tmp_path / "out"
    if there:
        path.write_bytes(b"what was there")
    with pytest.raises(ValueError, match=r"event 700: [xyp] is"):
        frames2py.save(path, [events[:300], events[300:]], sensor_size=SIZE, format=name, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == (["out"] if there else [])
    if there:
        assert path.read_bytes() == b"what was there"


@pytest.mark.parametrize("name", [name for name in NOT_HDF5 if name != "npz"])
def test_a_time_that_is_no_events_is_refused(tmp_path, name):
    events = some_events(3)
    events["t"][2] = 2**63
    with pytest.raises(ValueError, match="event 2: t is 9223372036854775808"):
        frames2py.save(tmp_path / "out", events, sensor_size=SIZE, format=name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ALL)
def test_an_exception_while_saving_leaves_nothing_behind(tmp_path, name):
    def batches():
        yield some_events(10)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        frames2py.save(tmp_path / "out", batches(), sensor_size=SIZE, format=name)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_kept_unless_told_otherwise(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        frames2py.save(path, some_events(3), sensor_size=SIZE)
    assert path.read_text() == "mine"
    frames2py.save(path, some_events(3), sensor_size=SIZE, overwrite=True)
    assert len(read(path, sensor_size=SIZE)) == 3


def test_a_file_that_appears_while_saving_is_kept(tmp_path):
    path = tmp_path / "some.csv"

    def batches():
        yield some_events(3)
        path.write_text("mine")

    with pytest.raises(FileExistsError):
        frames2py.save(path, batches(), sensor_size=SIZE)
    assert [p.name for p in tmp_path.iterdir()] == ["some.csv"] and path.read_text() == "mine"


def test_arguments_are_checked_before_anything_is_made(tmp_path):
    events = some_events(3)
    path = tmp_path / "some.csv"
    for arguments, error, message in [
        ({}, ValueError, "sensor_size"),
        ({"sensor_size": (0, 1)}, ValueError, "sensor_size"),
        ({"sensor_size": (1.0, 1)}, TypeError, "sensor_size"),
        ({"sensor_size": SIZE, "format": "mp4"}, ValueError, "evt2.*'mp4'"),
        ({"sensor_size": SIZE, "overwrite": "no"}, TypeError, "overwrite"),
        ({"sensor_size": SIZE, "format": "aedat4", "compression": "gzip"}, ValueError, "lz4, zstd, none"),
    ]:
        with pytest.raises(error, match=message):
            frames2py.save(path, events, **arguments)
    with pytest.raises(ValueError, match=r"'\.mp4'"):
        frames2py.save(tmp_path / "some.mp4", events, sensor_size=SIZE)
    with pytest.raises(IsADirectoryError):
        frames2py.save(tmp_path, events, sensor_size=SIZE, format="csv", overwrite=True)
    with pytest.raises(FileNotFoundError):
        frames2py.save(tmp_path / "no" / "some.csv", events, sensor_size=SIZE)
    for wrong in (np.zeros(3), np.zeros(3, [("t", "<i8")]), events.reshape(3, 1), events[::2], [[1, 2]]):
        with pytest.raises(TypeError):
            frames2py.save(path, wrong, sensor_size=SIZE)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_recording_is_refused(tmp_path):
    for name, content in {
        "png": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "zeros": bytes(5000),
        "random": bytes(range(256)),
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ValueError):
            frames2py.open(path, sensor_size=SIZE)
    with pytest.raises(FileNotFoundError):
        frames2py.open(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        frames2py.open(tmp_path)
    with pytest.raises(TypeError):
        frames2py.open(3.5)


def test_an_adapter_refuses_another_formats_file(tmp_path):
    from frames2py.adapters import dat, evt

    frames2py.save(tmp_path / "a.dat", some_events(3), sensor_size=SIZE)
    frames2py.save(tmp_path / "a.raw", some_events(3), sensor_size=SIZE)
    with pytest.raises(ValueError, match="DAT"):
        evt.open(tmp_path / "a.dat")
    with pytest.raises(ValueError):
        dat.open(tmp_path / "a.raw")


@pytest.mark.parametrize("name", ["evt2", "evt3", "dat", "es", "csv"])
def test_every_prefix_of_a_file_gives_a_prefix_of_its_events(tmp_path, name):
    events = some_events(60)
    frames2py.save(tmp_path / "whole", events, sensor_size=SIZE, format=name)
    whole = (tmp_path / "whole").read_bytes()
    first = len(whole) - 60
    for length in range(max(first, 1), len(whole)):
        (tmp_path / "cut").write_bytes(whole[:length])
        got = read(tmp_path / "cut", **options_for(name))
        if name == "csv":  # its last line may be cut in the middle of a number
            got = got[:-1]
        assert got.tobytes() == events[: len(got)].tobytes()
        assert len(events) - len(got) <= 31


@pytest.mark.parametrize(
    ("name", "compression"),
    [
        *((name, compression) for name, all_ in COMPRESSIONS.items() for compression in all_),
        ("csv", "none"),
    ],
)
def test_a_compression_changes_the_file_and_no_event(tmp_path, name, compression):
    events = some_events(100_000)
    if name in ("hdf5", "dsec"):
        pytest.importorskip("h5py")
    arguments = {"sensor_size": SIZE, "format": name}
    if name == "csv":
        with pytest.raises(ValueError, match="compression must be None, as csv has none, got 'none'"):
            frames2py.save(tmp_path / "a", events, compression=compression, **arguments)
        return
    frames2py.save(tmp_path / "a", events, compression=compression, **arguments)
    assert read(tmp_path / "a").tobytes() == events.tobytes()
    frames2py.save(tmp_path / "plain", events, compression="none", **arguments)
    smaller = (tmp_path / "a").stat().st_size < (tmp_path / "plain").stat().st_size
    assert smaller == (compression != "none")
    frames2py.save(tmp_path / "default", events, **arguments)
    same = (tmp_path / "a").stat().st_size == (tmp_path / "default").stat().st_size
    assert same == (compression == COMPRESSIONS[name][0])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("time_share", [0.0, 0.5, 1.0])
def test_every_format_is_sought_in(tmp_path, name, time_share):
    events = some_events(40_000)
    frames2py.save(tmp_path / "a", events, sensor_size=SIZE, format=name)
    t = events["t"]
    start = int(t[0] + (t[-1] - t[0]) * time_share)
    with frames2py.open(tmp_path / "a", **options_for(name)) as reader:
        assert reader.build_index().events == len(events)
        reader.seek(start)
        assert np.concatenate(list(reader)).tobytes() == events[t >= start].tobytes()
        expected = events[(t >= start) & (t < start + 10_000)]
        assert reader.slice(start, start + 10_000).tobytes() == expected.tobytes()


times = st.lists(st.integers(0, 2**20), min_size=1, max_size=40)


@given(
    name=st.sampled_from(["evt2", "evt2.1", "evt3", "dat", "es", "aedat4", "csv", "npz"]),
    rows=st.lists(
        st.tuples(
            st.integers(0, 2**18), st.integers(0, SIZE[0] - 1), st.integers(0, SIZE[1] - 1), st.integers(0, 1)
        ),
        max_size=60,
    ),
    cuts=st.lists(st.integers(0, 60), max_size=3),
)
def test_sequences_in_time_order_come_back_the_same(tmp_path_factory, name, rows, cuts):
    events = np.array(sorted(rows, key=lambda row: row[0]), dtype=EVENT_DTYPE)
    path = tmp_path_factory.mktemp("round") / "trip"
    frames2py.save(path, np.split(events, sorted(cuts)), sensor_size=SIZE, format=name)
    assert read(path, **options_for(name)).tobytes() == events.tobytes()


def manifest():
    if not (RECORDINGS / "MANIFEST.tsv").exists():
        return []
    with (RECORDINGS / "MANIFEST.tsv").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.mark.skipif(not manifest(), reason=f"no recordings in {RECORDINGS}; set FRAMES2PY_RECORDINGS")
@pytest.mark.parametrize("row", manifest(), ids=lambda row: row["file"])
def test_every_recording_is_opened_by_its_content(row):
    options = {"sensor_size": SIZE} if "without geometry" in row["format"] else {}
    if row["file"].endswith(".h5"):
        pytest.importorskip("h5py")
        pytest.importorskip("hdf5plugin")
    digest = hashlib.sha256()
    with frames2py.open(RECORDINGS / row["file"], **options) as reader:
        assert reader.format
        for batch in reader:
            digest.update(batch)
        assert reader.report.events == int(row["events"])
    assert digest.hexdigest() == row["packed_sha256"]


def test_readers_in_threads_share_nothing(tmp_path):
    events = some_events(20_000)
    names = ["evt2", "evt3", "dat", "es", "aedat4", "csv"]
    for name in names:
        frames2py.save(tmp_path / name, events, sensor_size=SIZE, format=name)
    results = {}

    def work(name, i):
        results[name, i] = read(tmp_path / name, **options_for(name)).tobytes() == events.tobytes()

    threads = [threading.Thread(target=work, args=(name, i)) for name in names for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == len(threads) and all(results.values())
