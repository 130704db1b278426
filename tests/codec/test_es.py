"""Event Stream files by hand, against a decoder that goes one byte at a time."""

from __future__ import annotations

import struct

import pytest
from evt_words import as_array, as_tuples
from hypothesis import given
from hypothesis import strategies as st

from frames2py import _core
from frames2py.adapters import es

DVS, ATIS = 1, 2


def head(kind=DVS, width=320, height=240, version=(2, 0, 0)):
    return b"Event Stream" + bytes([*version, kind]) + struct.pack("<HH", width, height)


def naive(data, kind, height):
    """The events of a file's body, after the tables of the format's page."""
    events, t, at = [], 0, 0
    while at < len(data):
        byte = data[at]
        if kind == DVS and byte == 0xFF:
            t += 127
        elif kind == ATIS and byte in (0xFD, 0xFE, 0xFF):
            t += 63 * (byte % 4)
        elif (kind == DVS and byte == 0xFE) or (kind == ATIS and byte == 0xFC):
            pass
        elif at + 5 > len(data):
            break
        else:
            x, y = struct.unpack_from("<HH", data, at + 1)
            t += byte >> (1 if kind == DVS else 2)
            if kind == DVS or byte & 1 == 0:
                events.append((t, x, (height - 1 - y) % 65536, byte >> (kind - 1) & 1))
            at += 4
        at += 1
    return events, len(data) - at if at < len(data) else 0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.es"


def read(path, data, **options):
    path.write_bytes(data)
    with es.open(path, **options) as reader:
        return as_tuples(reader), reader


def test_dvs_by_hand(path):
    # 3 us, ON at (1, 0 from the bottom); 127 + 2 us later, OFF at (258, 239 from the bottom).
    data = head() + bytes([7, 1, 0, 0, 0, 0xFE, 0xFF, 4, 2, 1, 239, 0])
    events, reader = read(path, data)
    assert events == [(3, 1, 239, 1), (132, 258, 0, 0)]
    assert (reader.format, reader.sensor_size) == ("Event Stream 2.0 DVS", (320, 240))
    assert reader.report.words == {"DVS": 2, "overflow": 1, "reset": 1}


def test_threshold_crossings_are_counted_and_move_time(path):
    data = head(ATIS) + bytes([2 << 2 | 2, 0, 0, 0, 0, 1 << 2 | 1, 0, 0, 0, 0, 0xFF, 1 << 2, 5, 0, 0, 0])
    events, reader = read(path, data)
    assert events == [(2, 0, 239, 1), (2 + 1 + 189 + 1, 5, 239, 0)]
    assert reader.format == "Event Stream 2.0 ATIS"
    assert reader.report.words == {"ATIS change detection": 2, "ATIS threshold crossing": 1, "overflow": 1}
    assert reader.report.dropped == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an Event Stream file"),
        (b"Event Strea", "not an Event Stream file"),
        (b"Event Stream", "ends in its head"),
        (head()[:-1], "ends in its head"),
        (head(version=(1, 0, 0)), "version 1.0.0; 2.0 is read"),
        (head(version=(3, 0, 0)), "version 3.0.0"),
        (head(0), "generic events"),
        (head(3), "display events"),
        (head(4), "color events"),
        (head(5), "unknown events"),
        (head(0)[:16], "generic events"),
        (head(width=0), "0x240"),
    ],
)
def test_files_that_are_refused(path, data, message):
    with pytest.raises(ValueError, match=message):
        read(path, data)


def test_another_size_is_refused(path):
    with pytest.raises(ValueError, match=r"sensor_size is \(9, 9\), but the Event Stream head states"):
        read(path, head(), sensor_size=(9, 9))


BYTES = st.lists(
    st.sampled_from([0, 1, 2, 3, 250, 251, 252, 253, 254, 255]) | st.integers(0, 255), max_size=300
).map(bytes)


@given(BYTES, st.sampled_from([DVS, ATIS]), st.integers(1, 65535), st.none() | st.integers(1, 40))
def test_decodes_as_one_byte_at_a_time(tmp_path_factory, data, kind, height, batch_size):
    path = tmp_path_factory.mktemp("es") / "a.es"
    events, reader = read(path, head(kind, 320, height) + data, batch_size=batch_size)
    expected, tail = naive(data, kind, height)
    assert events == expected
    assert reader.report.truncated_tail == tail
    assert sum(reader.report.word_bytes.values()) + tail == len(data)


def test_strict_names_the_byte_of_a_tail(path):
    path.write_bytes(head() + bytes([2, 0, 0, 0, 0, 0xFF, 2, 0, 0]))
    with es.open(path, strict=True) as reader:
        batches = iter(reader)
        assert as_tuples([next(batches)]) == [(1, 0, 239, 0)]
        with pytest.raises(ValueError, match=r"breaks off, 3 bytes .* at byte 26 of the file"):
            next(batches)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 200) | st.integers(0, 10**5),
            st.integers(0, 8),
            st.integers(0, 6),
            st.integers(0, 1),
        ),
        max_size=50,
    ),
    st.integers(0, 50),
)
def test_what_is_written_comes_back(tmp_path_factory, rows, cut):
    path = tmp_path_factory.mktemp("es") / "a.es"
    events, t = [], 0
    for step, x, y, p in rows:
        t += step
        events.append((t, x, y, p))
    encoder = _core.FileEncoder("es", (9, 7))
    data = encoder.encode(as_array(events[:cut])) + encoder.encode(as_array(events[cut:]))
    found, reader = read(path, data + encoder.finish()[0])
    assert found == events
    assert reader.sensor_size == (9, 7)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ((5, 9, 0, 0), "event 1: x is 9; Event Stream holds events of its sensor, 9x7"),
        ((5, 0, 7, 0), "event 1: y is 7"),
        ((5, 0, 0, 2), "event 1: p is 2"),
        ((4, 0, 0, 0), "event 1: t is 4; Event Stream holds no step back"),
        ((1_700_000_000_000_000, 0, 0, 0), "subtract an offset"),
    ],
)
def test_events_that_it_cannot_hold_are_refused(event, message):
    encoder = _core.FileEncoder("es", (9, 7))
    with pytest.raises(ValueError, match=message):
        encoder.encode(as_array([(5, 0, 0, 0), event]))
    assert encoder.finish()[0] == head(DVS, 9, 7)


def test_a_sensor_that_it_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="65536x2"):
        _core.FileEncoder("es", (65536, 2))
