"""Contract section 5, HDF5: the four datasets of a group."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import os
import subprocess
import sys
import threading
from csv import DictReader
from pathlib import Path

import numpy as np
import pytest
from hdf5_files import (
    COLUMNS,
    NAMES,
    ROWS,
    assert_holds,
    fill,
    h5py,
    hdf5plugin,
    head,
    rows_of,
    some_events,
    until_it_fails,
    write,
    zipped,
)
from hypothesis import given
from hypothesis import strategies as st

from frames2py import EVENT_DTYPE
from frames2py.adapters import Reader, hdf5


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "some.h5", COLUMNS)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """300,000 events, in chunks of different sizes."""
    path = tmp_path_factory.mktemp("hdf5") / "large.h5"
    columns = some_events(300_000)
    with h5py.File(path, "w") as file:
        group = file.create_group("a/b")
        for name, chunk in zip(NAMES, (1000, 65_536, 70_000, 300_000), strict=True):
            group.create_dataset(name, data=columns[name], chunks=(chunk,), compression="gzip")
    return path, columns


def test_yields_the_events_in_arrays_of_their_own(large):
    path, columns = large
    batches = list(hdf5.open(path, group="a/b")) + list(hdf5.open(path, group="a/b", batch_size=99_999))
    for batch in batches:
        assert type(batch) is np.ndarray and batch.dtype == EVENT_DTYPE
        assert batch.ndim == 1 and batch.flags.c_contiguous and len(batch)
    assert not any(np.shares_memory(a, b) for a, b in itertools.pairwise(batches))
    assert_holds(batches, columns, repeat=2)


@pytest.mark.parametrize("size", [1000, 65_536, 100_001, 300_000, 2**70])
def test_batch_size_changes_only_boundaries(large, size):
    path, columns = large
    batches = list(hdf5.open(path, group="a/b", batch_size=size))
    assert {len(b) for b in batches[:-1]} <= {size}
    assert_holds(batches, columns)


@pytest.mark.parametrize("bad", [True, 1.5, "3"])
def test_batch_size_must_be_an_int(path, bad):
    with pytest.raises(TypeError, match="batch_size"):
        hdf5.open(path, group="events", batch_size=bad)
    with pytest.raises(ValueError, match="batch_size"):
        hdf5.open(path, group="events", batch_size=0)


def test_a_reader_is_iterated_over_once_and_closed_for_good(path):
    with hdf5.open(path, group="events") as reader:
        assert isinstance(reader, Reader)
        assert reader.closed is False and reader.sensor_size is None and reader.format == "HDF5"
        iterator = iter(reader)
        with pytest.raises(RuntimeError, match="once"):
            iter(reader)
        assert rows_of(iterator) == ROWS
        assert reader.report.events == 4
        assert reader.report.bytes == 4 * 13
        assert reader.report.backward_steps == 1
    assert reader.closed
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        iter(reader)
    with pytest.raises(ValueError, match="closed"):
        next(iterator)
    assert "None" not in repr(reader)


def test_a_reader_that_is_dropped_lets_go_of_its_file(path):
    reader = hdf5.open(path, group="events")
    iterator = iter(reader)
    next(iterator)
    gc.disable()
    try:
        del reader, iterator
        write(path, COLUMNS)  # HDF5 refuses while the file is open
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", [str, os.fsencode, Path])
def test_path_types(path, kind):
    assert rows_of(hdf5.open(kind(path), group="events")) == ROWS


def test_files_that_cannot_be_opened(tmp_path, path):
    with pytest.raises(FileNotFoundError) as info:
        hdf5.open(tmp_path / "none.h5", group="events")
    assert info.value.filename == str(tmp_path / "none.h5")
    with pytest.raises(IsADirectoryError):
        hdf5.open(tmp_path, group="events")
    with pytest.raises(TypeError):
        hdf5.open(None, group="events")
    other = tmp_path / "other.h5"
    whole = path.read_bytes()
    for content in (b"", b"no HDF5", whole[:700], whole[: len(whole) // 2], whole[:8] + b"\xff" * 500):
        other.write_bytes(content)
        with pytest.raises(ValueError, match=r"other\.h5"):
            hdf5.open(other, group="events")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="regular"):
        hdf5.open(tmp_path / "pipe", group="events")


# What may be in the datasets


TYPES = {name: ["u1", "i1", "<u2", ">u2", "<i2", ">i4", "<u4", "<i8", ">u8", "<u8"] for name in NAMES}
TYPES["p"] = [*TYPES["p"], "?"]


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name in NAMES for dtype in TYPES[name]])
def test_integers_of_every_type(tmp_path, name, dtype):
    columns = COLUMNS | {name: np.array([0, 1, 1, 0], dtype)}
    rows = rows_of(hdf5.open(write(tmp_path / "f.h5", columns), group="events"))
    assert rows == zipped(columns)
    # in chunks that are compressed, which may be another way in
    options = {"chunks": (3,), **hdf5plugin.Blosc("lz4")}
    assert rows_of(hdf5.open(write(tmp_path / "g.h5", columns, **options), group="events")) == rows


def test_an_enumeration_is_its_integers(tmp_path):
    dtype = h5py.enum_dtype({"OFF": 0, "ON": 1}, ">i2")
    path = write(tmp_path / "f.h5", {k: v for k, v in COLUMNS.items() if k != "p"})
    with h5py.File(path, "a") as file:
        file["events"].create_dataset("p", data=[1, 0, 1, 1], dtype=dtype)
    assert [row[3] for row in rows_of(hdf5.open(path, group="events"))] == [1, 0, 1, 1]


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "S2", [("a", "<u2")], "<c8"])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_integer_is_refused(tmp_path, name, dtype):
    columns = COLUMNS | {name: np.zeros(4, dtype)}
    with pytest.raises(ValueError, match=f"/events/{name}.*integer"):
        hdf5.open(write(tmp_path / "f.h5", columns), group="events")


@pytest.mark.parametrize("name", ["t", "x", "y"])
def test_only_p_may_be_bool(tmp_path, name):
    with pytest.raises(ValueError, match=f"/events/{name}"):
        hdf5.open(write(tmp_path / "f.h5", COLUMNS | {name: np.ones(4, bool)}), group="events")


LIMITS = {"t": (0, 2**63 - 1), "x": (0, 65535), "y": (0, 65535), "p": (0, 255)}


@pytest.mark.parametrize("blosc", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("place", [0, 1, 2049, 299_999])
def test_a_value_out_of_range_is_named_and_the_events_before_it_are_yielded(
    tmp_path, name, end, place, blosc
):
    columns = some_events(300_000)
    good = LIMITS[name][end]
    bad = good + (1 if end else -1)
    dtype = "u8" if name == "t" and end else "i8"
    columns[name] = columns[name].astype(dtype)
    columns[name][max(place - 1, 0)] = good
    columns[name][place] = bad
    # A later fault in a column that is looked at first.
    if place < 200_000:
        columns["t"] = columns["t"].astype("i8" if name != "t" else columns["t"].dtype)
        if name != "t":
            columns["t"][place + 1] = -1
    options = {"chunks": (65_536,), **hdf5plugin.Blosc("lz4")} if blosc else {}
    reader = hdf5.open(write(tmp_path / "f.h5", columns, **options), group="events")
    seen, message = until_it_fails(reader)
    assert_holds(seen, head(columns, place))
    assert f"event {place}: {name} is {bad}," in message


@pytest.mark.parametrize("size", [None, 1, 7, 10_000])
def test_events_before_a_fault_are_yielded_whatever_the_batches(tmp_path, size):
    columns = some_events(10_000) | {"p": np.zeros(10_000, "i2")}
    columns["p"][6000] = 256
    reader = hdf5.open(write(tmp_path / "f.h5", columns), group="events", batch_size=size)
    seen, message = until_it_fails(reader)
    assert_holds(seen, head(columns, 6000))
    assert "event 6000:" in message


# t_offset


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u4", "i4", "u8", "i8"])
@given(data=st.data())
def test_sums_are_exact(tmp_path_factory, dtype, data):
    info = np.iinfo(dtype)
    times = data.draw(st.lists(st.integers(int(info.min), int(info.max)), min_size=1, max_size=20))
    near = st.integers(-(2**70), 2**70) | st.sampled_from([0, -1, 2**63, 2**63 - 1, -(2**63), 2**64])
    near |= st.builds(
        lambda a, b, c: b - a + c, st.sampled_from(times), st.sampled_from([0, 2**63]), st.integers(-2, 2)
    )
    offset = data.draw(near)
    count = len(times)
    columns = {"t": np.array(times, dtype)} | {n: np.zeros(count, "u1") for n in "xyp"}
    path = write(tmp_path_factory.mktemp("sums") / "f.h5", columns)
    good = list(itertools.takewhile(lambda t: 0 <= t + offset < 2**63, times))
    reader = hdf5.open(path, group="events", t_offset=offset)
    if len(good) == count:
        seen = list(reader)
        assert reader.report.backward_steps == sum(b < a for a, b in itertools.pairwise(times))
    else:
        seen, message = until_it_fails(reader)
        assert str(times[len(good)] + offset) in message and f"event {len(good)}:" in message
    assert [row[0] for row in rows_of(seen)] == [t + offset for t in good]


def test_the_offset_may_be_a_dataset_and_is_added_only_when_passed(path):
    with h5py.File(path, "a") as file:
        file["t_offset"] = np.int64(100)
        file["deep/offset"] = np.uint8(3)
        file["events/own"] = np.int64(-5)
    assert rows_of(hdf5.open(path, group="events")) == ROWS
    for given_as, offset in [("/t_offset", 100), ("t_offset", 100), ("deep/offset", 3), ("events/own", -5)]:
        rows = rows_of(hdf5.open(path, group="events", t_offset=given_as))
        assert rows == [(t + offset, *rest) for t, *rest in ROWS]
    assert rows_of(hdf5.open(path, group="events", t_offset=np.int16(2)))[0][0] == 7


@pytest.mark.parametrize("value", [1.0, [1], True, b"1", "group"])
def test_an_offset_that_is_no_scalar_integer_dataset_is_refused(path, value):
    with h5py.File(path, "a") as file:
        if value == "group":
            file.create_group("o")
        else:
            file["o"] = value
    for name in ("o", "missing", ""):
        with pytest.raises(ValueError, match="t_offset"):
            hdf5.open(path, group="events", t_offset=name)


@pytest.mark.parametrize("bad", [True, 1.0, b"/t_offset", [1]])
def test_an_offset_of_another_type_is_a_type_error(path, bad):
    with pytest.raises(TypeError, match="t_offset"):
        hdf5.open(path, group="events", t_offset=bad)


# Groups, lengths, geometry


def test_group_is_required(path):
    with pytest.raises(TypeError, match="group"):
        hdf5.open(path)
    for bad in (None, b"events", 3):
        with pytest.raises(TypeError, match="group"):
            hdf5.open(path, group=bad)
    for bad in ("", "nope", "events/t", "a\0b"):
        with pytest.raises(ValueError, match="group"):
            hdf5.open(path, group=bad)
    for good in ("events", "/events", "/events/"):
        assert rows_of(hdf5.open(path, group=good)) == ROWS
    with pytest.raises(ValueError, match="'t'"):
        hdf5.open(path, group="/")


def test_the_root_may_be_the_group(tmp_path):
    assert rows_of(hdf5.open(write(tmp_path / "f.h5", COLUMNS, group="/"), group="/")) == ROWS


@pytest.mark.parametrize("name", NAMES)
def test_each_dataset_must_be_there_be_1d_and_as_long_as_the_others(tmp_path, name):
    for bad, word in [
        (None, name),
        (np.zeros((4, 1), "u1"), "1-D"),
        (np.uint8(1), "1-D"),
        (np.zeros(3, "u1"), "length"),
    ]:
        columns = {k: v for k, v in (COLUMNS | {name: bad}).items() if v is not None}
        with pytest.raises(ValueError, match=word):
            hdf5.open(write(tmp_path / "f.h5", columns), group="events")
    path = write(tmp_path / "f.h5", {k: v for k, v in COLUMNS.items() if k != name})
    for make in (
        lambda g: g.create_group(name),
        lambda g: g.__setitem__(name, h5py.SoftLink("/nowhere")),
        lambda g: g.__setitem__(name, h5py.ExternalLink("nowhere.h5", "/x")),
        lambda g: g.create_dataset(name, data=h5py.Empty("u1")),
    ):
        with h5py.File(path, "a") as file:
            with contextlib.suppress(KeyError):
                del file["events"][name]
            make(file["events"])
        with pytest.raises(ValueError, match=name):
            hdf5.open(path, group="events")


def test_no_events(tmp_path):
    columns = {name: values[:0] for name, values in COLUMNS.items()}
    assert list(hdf5.open(write(tmp_path / "f.h5", columns), group="events")) == []


def test_sensor_size(path):
    assert hdf5.open(path, group="events", sensor_size=[4, 5]).sensor_size == (4, 5)
    for bad, kind in [((1,), ValueError), ((0, 1), ValueError), ((1.0, 2), TypeError)]:
        with pytest.raises(kind, match="sensor_size"):
            hdf5.open(path, group="events", sensor_size=bad)
    with h5py.File(path, "a") as file:
        file["events"].attrs["sensor_width"], file["events"].attrs["sensor_height"] = 640, np.int16(480)
    assert hdf5.open(path, group="events").sensor_size == (640, 480)
    assert hdf5.open(path, group="events", sensor_size=(640, 480)).sensor_size == (640, 480)
    with pytest.raises(ValueError, match=r"\(640, 481\).*\(640, 480\)"):
        hdf5.open(path, group="events", sensor_size=(640, 481))


@pytest.mark.parametrize("version", [1, np.uint8(1), 2, 1.0, "1", True, [1]])
def test_the_format_version_must_be_the_integer_1(path, version):
    with h5py.File(path, "a") as file:
        file["events"].attrs["frames2py_format_version"] = version
    if type(version) in (int, np.uint8) and version == 1:
        assert rows_of(hdf5.open(path, group="events")) == ROWS
    else:
        with pytest.raises(ValueError, match="frames2py_format_version"):
            hdf5.open(path, group="events")


# Compression, and what can be wrong with it

FILTERS = {
    "gzip": {"compression": "gzip", "shuffle": True},
    "lzf": {"compression": "lzf"},
    "fletcher32": {"fletcher32": True},
    "lz4": dict(hdf5plugin.LZ4()),
    "zstd": dict(hdf5plugin.Zstd()),
    "bitshuffle": dict(hdf5plugin.Bitshuffle()),
} | {
    f"blosc {codec} {shuffle}": dict(hdf5plugin.Blosc(codec, level, shuffle))
    for codec, level in (("lz4", 5), ("lz4hc", 9), ("zstd", 3), ("blosclz", 5), ("zlib", 1), ("lz4", 0))
    for shuffle in (0, 1, 2)
}


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("chunk", [7_777, 16_384, 50_000])
def test_filters(tmp_path, filters, chunk):
    columns = some_events(50_000) | {"t": np.cumsum(np.ones(50_000)).astype("u4")}
    path = write(tmp_path / "f.h5", columns, chunks=(chunk,), **FILTERS[filters])
    assert_holds(hdf5.open(path, group="events", t_offset=10**15), columns, 10**15)


@pytest.mark.parametrize("chunk", [1_000, 5_000, 16_384, 70_000])
def test_steps_back_and_faults_are_found_wherever_blosc_chunks_are_cut(tmp_path, chunk):
    rng = np.random.default_rng(chunk)
    columns = some_events(300_000)
    # At the first rows of chunks among others.
    back = np.unique(
        np.concatenate([chunk * rng.integers(1, 300_000 // chunk, 5), rng.integers(1, 300_000, 5)])
    )
    for row in back:
        columns["t"][row:] -= np.uint64(25)
    steps = int((np.diff(columns["t"].astype("i8")) < 0).sum())
    assert steps == len(back)
    path = write(tmp_path / "f.h5", columns, chunks=(chunk,), **hdf5plugin.Blosc("zstd", 1))
    reader = hdf5.open(path, group="events")
    assert_holds(reader, columns)
    assert reader.report.backward_steps == steps and reader.report.bytes == 13 * 300_000
    events, message = until_it_fails(hdf5.open_any(path, strict=True))
    assert f"event {back[0]}: its time" in message
    assert_holds(events, head(columns, int(back[0])))
    for row in (chunk - 1, chunk, 280_001):
        x = columns["x"].astype("i4")
        x[row] = -1
        faulty = columns | {"x": x}
        path = write(tmp_path / f"{row}.h5", faulty, chunks=(chunk,), **hdf5plugin.Blosc("lz4"))
        reader = hdf5.open(path, group="events")
        events, message = until_it_fails(reader)
        assert f"event {row}: x is -1" in message
        assert_holds(events, head(columns, row))
        assert reader.report.backward_steps == int((back < row).sum())


def test_chunks_that_were_never_written_hold_the_fill_value(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        for name in NAMES:
            data = file.create_dataset(
                f"events/{name}", (1000,), "u2", chunks=(100,), fillvalue=3, **hdf5plugin.Blosc("lz4")
            )
            data[250:310] = 9
    rows = rows_of(hdf5.open(tmp_path / "f.h5", group="events"))
    assert rows == [(9,) * 4 if 250 <= i < 310 else (3,) * 4 for i in range(1000)]


@pytest.mark.parametrize("filters", ["gzip", "fletcher32", "zstd", "blosc lz4 1", "blosc zstd 1"])
def test_events_before_a_corrupt_chunk_are_yielded(tmp_path, filters):
    columns = some_events(300_000)
    path = write(tmp_path / "f.h5", columns, chunks=(1000,), **FILTERS[filters])
    with h5py.File(path) as file:
        place = file["events/t"].id.get_chunk_info(217).byte_offset
    raw = bytearray(path.read_bytes())
    # the whole head of a compressed chunk, and some of its body
    raw[place : place + 300] = b"\xff" * 300
    path.write_bytes(raw)
    seen, message = until_it_fails(hdf5.open(path, group="events"))
    assert_holds(seen, head(columns, 217_000))
    assert "217000" in message


def unknown_filter(path: Path) -> None:
    """A chunk that says it went through filter 36559, which nobody has."""
    with h5py.File(path, "a") as file:
        pipeline = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        pipeline.set_chunk((4,))
        pipeline.set_filter(0x8ECF, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((4,))
        kind = h5py.h5t.py_create(np.dtype("u2"))
        data = h5py.h5d.create(file["events"].id, b"x", kind, space, pipeline)
        data.write_direct_chunk((0,), b"\1\0" * 4)


def test_a_missing_filter_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "f.h5", {k: v for k, v in COLUMNS.items() if k != "x"})
    unknown_filter(path)
    if h5py.h5z.filter_avail(0x8ECF):
        pytest.skip("there is a plugin for the filter")
    reader = hdf5.open(path, group="events")
    with pytest.raises(ValueError, match=r"filter.*36559"):
        next(iter(reader))


@pytest.mark.parametrize("missing", ["h5py", "hdf5plugin"])
def test_without_its_packages_it_says_what_to_install(path, missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from frames2py.adapters import hdf5\n"
        f"hdf5.open({str(path)!r}, group='events')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stderr.splitlines()[-1].startswith("ImportError: ")
    assert missing in run.stderr and "frames2py[hdf5]" in run.stderr


def test_frames2py_does_not_import_h5py():
    code = "import sys, frames2py, frames2py.adapters; print('h5py' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


# Threads


def test_threads_share_an_iterator(large):
    path, _ = large
    iterator = iter(hdf5.open(path, group="a/b", batch_size=10_000))
    found: list[list[np.ndarray]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda mine=mine: mine.extend(iterator)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batches = [batch for mine in found for batch in mine]
    assert len(batches) == 30
    together = np.sort(np.concatenate(batches))
    np.testing.assert_array_equal(together, np.sort(np.concatenate(list(hdf5.open(path, group="a/b")))))


def test_close_while_other_threads_read(large):
    path, _ = large
    for _ in range(10):
        reader = hdf5.open(path, group="a/b", batch_size=1000)
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


MEASURE = """
import resource, sys
from frames2py.adapters import hdf5

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

small, large = sys.argv[1:]
assert sum(len(b) for b in hdf5.open(small, group="events", batch_size=4096)) == 100_000
before = peak()
assert sum(len(b) for b in hdf5.open(large, group="events", batch_size=4096)) == 4_000_000
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_file(tmp_path):
    pytest.importorskip("resource")
    for name, count in (("small.h5", 100_000), ("large.h5", 4_000_000)):
        columns = some_events(count)
        write(tmp_path / name, columns, chunks=(65_536,), **hdf5plugin.Blosc("lz4"))
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "small.h5"), str(tmp_path / "large.h5")]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    grown = int(run.stdout) * (1 if sys.platform == "darwin" else 1024)
    assert grown < 16 << 20


def test_the_dsec_recording_is_what_the_manifest_says(recordings):
    with (recordings / "MANIFEST.tsv").open(newline="") as file:
        (row,) = [row for row in DictReader(file, delimiter="\t") if row["file"].endswith(".dsec.h5")]
    path = recordings / row["file"]
    for reader in (
        hdf5.open(path, group="events", t_offset="/t_offset", sensor_size=(640, 480)),
        hdf5.open_any(path, sensor_size=(640, 480)),
    ):
        digest = hashlib.sha256()
        count = 0
        with reader:
            for batch in reader:
                digest.update(batch)
                count += len(batch)
        assert count == reader.report.events == int(row["events"])
        assert digest.hexdigest() == row["packed_sha256"]
        assert reader.report.backward_steps == int(row["backward_steps"])


def test_fill_writes_what_rows_says(tmp_path):
    """The helper of these tests, read by h5py."""
    with h5py.File(tmp_path / "f.h5", "w") as file:
        fill(file, COLUMNS)
        assert list(zip(*(file[name][:].tolist() for name in NAMES), strict=True)) == ROWS
