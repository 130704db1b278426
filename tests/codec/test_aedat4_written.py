"""AEDAT 4.0 as it is written: the same events come back, from what the format's page says a file is."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frames2py import EVENT_DTYPE
from frames2py._core import FileEncoder
from frames2py.adapters import aedat4

EVENT = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 32767), st.integers(0, 32767), st.integers(0, 1))


COMPRESSIONS = ["lz4", "zstd", "none"]


def written(path, batches, compression=None) -> bytes:
    encoder = FileEncoder("aedat4", (346, 260), compression)
    data = bytearray(b"".join(encoder.encode(batch) for batch in batches))
    end, patches = encoder.finish()
    data += end
    for at, patch in patches:
        data[at : at + len(patch)] = patch
    path.write_bytes(data)
    return bytes(data)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(EVENT, max_size=60),
    repeat=st.integers(1, 400),
    cut=st.floats(0, 1),
    compression=st.sampled_from(COMPRESSIONS),
)
def test_every_event_comes_back(tmp_path, events, repeat, cut, compression):
    array = np.tile(np.array(events, dtype=EVENT_DTYPE), repeat)
    n = int(cut * len(array))
    one = written(tmp_path / "x", [array], compression)
    assert written(tmp_path / "x", [array[:n], array[n:n], array[n:]], compression) == one
    with aedat4.open(tmp_path / "x") as reader:
        assert reader.sensor_size == (346, 260)
        found = [*reader]
        report = reader.report
    assert b"".join(map(bytes, found)) == array.tobytes()
    assert report.words.get("EVTS", 0) == -(-len(array) // 8192)
    assert report.words["FTAB"] == 1
    assert report.truncated_tail == report.unknown == 0


@pytest.mark.parametrize(
    ("compression", "number", "name", "magic"),
    [("lz4", 1, "LZ4", 0x184D2204), ("zstd", 3, "ZSTD", 0xFD2FB528), ("none", 0, "NONE", None)],
)
def test_what_a_file_says_of_its_compression_is_so(tmp_path, compression, number, name, magic):
    data = written(tmp_path / "x", [np.zeros(30_000, EVENT_DTYPE)], compression)
    size, table = struct.unpack_from("<I", data, 14)[0], struct.unpack_from("<q", data, 18 + 36)[0]
    # By the format's page: the header's root holds the compression's number, its text the name.
    assert struct.unpack_from("<i", data, 18 + 28) == (number,)
    assert f'key="compression" type="string">{name}<'.encode() in data
    for place in (18 + size + 8, table):
        if magic is None:
            assert data[place + 8 : place + 12] in (b"EVTS", b"FTAB")
        else:
            assert struct.unpack_from("<I", data, place) == (magic,)
    assert (len(data) < 30_000) == (magic is not None)


def test_a_compression_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="lz4, zstd or none, not brotli"):
        FileEncoder("aedat4", (346, 260), "brotli")
    with pytest.raises(ValueError, match="evt3"):
        FileEncoder("evt3", (346, 260), "zstd")


def test_a_file_begins_and_ends_as_the_format_has_it(tmp_path):
    data = written(tmp_path / "x", [np.zeros(3, EVENT_DTYPE)])
    assert data.startswith(b"#!AER-DAT4.0\r\n")
    (size,) = struct.unpack_from("<I", data, 14)
    start = 18 + size
    stream, length = struct.unpack_from("<ii", data, start)
    assert stream == 0
    # The header says where the table is: behind the packet, an LZ4 frame up to the end of the file.
    (table,) = struct.unpack_from("<q", data, 18 + 36)
    assert table == start + 8 + length
    assert data[table : table + 4] == data[start + 8 : start + 12] == b"\x04\x22\x4d\x18"
    assert data[-4:] == bytes(4)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ((2**63, 0, 0, 0), "event 2: t is 9223372036854775808"),
        ((0, 32768, 0, 0), "event 2: x is 32768"),
        ((0, 0, 65535, 0), "event 2: y is 65535"),
        ((0, 0, 0, 2), "event 2: p is 2"),
    ],
)
def test_what_cannot_be_held_is_refused(tmp_path, event, message):
    good = np.ones(1, EVENT_DTYPE)
    encoder = FileEncoder("aedat4", (346, 260))
    data = encoder.encode(good)
    with pytest.raises(ValueError, match=message):
        encoder.encode(np.array([(1, 1, 1, 1), event], EVENT_DTYPE))
    data += encoder.encode(good) + encoder.finish()[0]
    path = tmp_path / "x"
    path.write_bytes(data)
    assert np.concatenate([*aedat4.open(path)]).tolist() == [(1, 1, 1, 1)] * 2


@pytest.mark.parametrize("size", [(0, 1), (1, 0), (32769, 1)])
def test_sensors_that_cannot_be_held(size):
    with pytest.raises(ValueError, match="sensors of up to 32768"):
        FileEncoder("aedat4", size)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_bytes_are_the_same_every_time(tmp_path, compression):
    rng = np.random.default_rng(3)
    events = np.zeros(30_000, EVENT_DTYPE)
    events["t"] = 10**15 + np.cumsum(rng.integers(0, 3, len(events)))
    events["x"], events["y"] = rng.integers(0, 346, len(events)), rng.integers(0, 260, len(events))
    digests = {
        hashlib.sha256(written(tmp_path / "x", np.array_split(events, n), compression)).hexdigest()
        for n in (1, 2, 7)
    }
    assert len(digests) == 1
