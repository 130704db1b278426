"""DAT files by hand, against a decoder that goes one record at a time."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from evt_words import as_array, as_tuples
from hypothesis import given
from hypothesis import strategies as st

from frames2py import _core
from frames2py.adapters import dat, es, evt

HEADER = (
    b"% Data file containing CD events\n% Date 2020-09-14 14:18:29\n% Version 2\n% Width 640\n% Height 480\n"
)


def body(*records, kind=12, size=8):
    """Records (t, x, y, p) behind the type and the size of events."""
    words = b"".join(struct.pack("<II", t, x | y << 14 | p << 28) for t, x, y, p in records)
    return bytes([kind, size]) + words


def naive(data):
    """The events of the records of a file, by the rule of the docs."""
    events, epoch, last = [], 0, 0
    for at in range(0, len(data) - 7, 8):
        t, word = struct.unpack_from("<II", data, at)
        if last - t > 15 * 2**28:
            epoch += 1
        elif t - last > 15 * 2**28 and epoch:
            epoch -= 1
        last = t
        events.append((epoch * 2**32 + t, word % 2**14, word // 2**14 % 2**14, word // 2**28))
    return events


def read(path, data, **options):
    path.write_bytes(data)
    with dat.open(path, **options) as reader:
        return as_tuples(reader), reader


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.dat"


@pytest.mark.parametrize("kind", [0, 12])
def test_both_types_of_cd_events_are_read(path, kind):
    records = [(1, 2, 3, 1), (1, 639, 479, 0)]
    events, reader = read(path, HEADER + body(*records, kind=kind))
    assert events == records
    assert (reader.format, reader.sensor_size) == ("DAT 2", (640, 480))
    assert reader.report.words == {"EventCD" if kind else "Event2d": 2}


@pytest.mark.parametrize(
    "header",
    [
        b"% Version 2\r\n% Width 640\r\n% Height 480\r\n",
        b"%height 480\n%WIDTH   640\n%\n% version 2\n",
        HEADER + b"% firmware 1.2\n%%%\n",
    ],
)
def test_headers_as_they_are_found(path, header):
    assert read(path, header + body((7, 1, 2, 0)))[0] == [(7, 1, 2, 0)]


def test_without_a_size_it_is_to_be_given(path):
    data = b"% Version 2\n" + body((7, 1, 2, 0))
    with pytest.raises(ValueError, match="states no geometry; pass sensor_size"):
        read(path, data)
    assert read(path, data, sensor_size=(5, 6))[1].sensor_size == (5, 6)
    with pytest.raises(ValueError, match=r"sensor_size is \(5, 6\), but the DAT header states"):
        read(path, HEADER + body(), sensor_size=(5, 6))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a DAT file"),
        (b"\x0c\x08", "not a DAT file"),
        (HEADER, "ends before its event type"),
        (HEADER + b"\x0c", "ends before its event type"),
        (HEADER + body(kind=14), "type 0x0e"),
        (HEADER + body(size=16), "16 bytes"),
        (HEADER.replace(b"2\n", b"1\n") + body(), 'Version "1"; 2 is read'),
        (HEADER.replace(b"% Version 2\n", b"") + body(), "states no Version"),
        (HEADER.replace(b"640", b"0") + body(), "Width and Height"),
        (HEADER.replace(b"640", b"-1") + body(), "Width and Height"),
        (HEADER.replace(b"640", b"99999999999") + body(), "Width and Height"),
        (HEADER.replace(b"% Width 640\n", b"") + body(), "both Width and Height"),
        (b"% evt 3.0\n% geometry 640x480\n% end\n", "Prophesee RAW file, not Prophesee DAT"),
        (b"Event Stream\x02\x00\x00\x01\x01\x00\x01\x00", "Event Stream file, not Prophesee DAT"),
    ],
)
def test_files_that_are_refused(path, data, message):
    with pytest.raises(ValueError, match=message):
        read(path, data)


def test_other_adapters_say_what_it_is(path):
    path.write_bytes(HEADER + body())
    for adapter in (evt, es):
        with pytest.raises(ValueError, match="this is a Prophesee DAT file"):
            adapter.open(path)


def test_time_overflows_and_late_events_do_not_overflow_again(path):
    top = 2**32 - 1
    events, reader = read(path, HEADER + body(*[(t, 0, 0, 1) for t in (top - 5, 3, top, 4, 2)]))
    assert [t for t, *_ in events] == [top - 5, 2**32 + 3, top, 2**32 + 4, 2**32 + 2]
    assert (reader.report.time_wraps, reader.report.backward_steps) == (1, 2)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 100) | st.integers(2**32 - 100, 2**32 - 1) | st.integers(0, 2**32 - 1),
            st.integers(0, 2**14 - 1),
            st.integers(0, 2**14 - 1),
            st.integers(0, 15),
        ),
        max_size=150,
    ),
    st.integers(0, 7),
    st.none() | st.integers(1, 40),
)
def test_decodes_as_one_record_at_a_time(tmp_path_factory, records, tail, batch_size):
    path = tmp_path_factory.mktemp("dat") / "a.dat"
    data = body(*records) + b"\x01" * tail
    events, reader = read(path, HEADER + data, batch_size=batch_size)
    assert events == naive(data[2:])
    times = [t for t, *_ in events]
    steps = sum(b < a for a, b in itertools.pairwise(times))
    assert (reader.report.backward_steps, reader.report.truncated_tail) == (steps, tail)


def test_strict_stops_at_the_record_at_fault(path):
    records = [(t, 0, 0, 0) for t in (1, 2, 3, 2, 4)]
    data = HEADER + body(*records)
    path.write_bytes(data)
    with dat.open(path, strict=True) as reader:
        batches = iter(reader)
        assert as_tuples([next(batches)]) == records[:3]
        with pytest.raises(
            ValueError, match=f"below that of the event before it, at byte {len(HEADER) + 26} "
        ):
            next(batches)
    path.write_bytes(HEADER + body(*records[:3])[:-3])
    with dat.open(path, strict=True) as reader:
        batches = iter(reader)
        assert as_tuples([next(batches)]) == records[:2]
        with pytest.raises(ValueError, match=f"breaks off, 5 bytes .* at byte {len(HEADER) + 18} "):
            next(batches)


def test_a_truncated_file_yields_a_prefix(path):
    records = [(t, t, t, 1) for t in range(40)]
    data = HEADER + body(*records)
    for cut in range(len(HEADER) + 2, len(data), 7):
        events, _ = read(path, data[:cut])
        assert events == records[: len(events)] and len(events) == (cut - len(HEADER) - 2) // 8


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ((0, 16384, 0, 0), "event 2: x is 16384; DAT holds at most 16383"),
        ((0, 0, 16384, 0), "event 2: y is 16384"),
        ((0, 0, 0, 2), "event 2: p is 2; DAT holds 0 and 1"),
        ((2**32 + 10**9, 0, 0, 0), "event 2: t is 5294967296; DAT holds 32 bits of time"),
    ],
)
def test_events_that_dat_cannot_hold_are_refused(path, event, message):
    encoder = _core.FileEncoder("dat", (9, 9))
    data = encoder.encode(as_array([(1, 1, 1, 1)]))
    with pytest.raises(ValueError, match=message):
        encoder.encode(as_array([(2, 2, 2, 0), event]))
    data += encoder.encode(as_array([(3, 3, 3, 0)])) + encoder.finish()[0]
    assert read(path, data)[0] == [(1, 1, 1, 1), (3, 3, 3, 0)]


def test_times_are_written_beyond_the_overflow(path):
    times = np.arange(0, 2**34, 2**27)
    events = np.zeros(len(times), "u8,u2,u2,u1")
    events.dtype.names = ("t", "x", "y", "p")
    events["t"] = times
    encoder = _core.FileEncoder("dat", (1, 1))
    data = encoder.encode(events) + encoder.finish()[0]
    found, reader = read(path, data)
    assert [t for t, *_ in found] == times.tolist()
    assert reader.report.time_wraps == 3
