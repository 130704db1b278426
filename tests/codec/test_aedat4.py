"""AEDAT 4.0: hand-made files, with every compression, whole, cut, broken and hostile."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from functools import partial

import aedat_bytes as a
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import frames2py
from frames2py.adapters import aedat4

several = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
COMPRESSIONS = [a.NONE, a.LZ4, a.LZ4_HIGH, a.ZSTD, a.ZSTD_HIGH]
EVENTS = [(1589163147368868 + 7 * i, i % 346, i % 260, i % 2) for i in range(1000)]


read = partial(a.read, aedat4)
opening = partial(a.opening, aedat4)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.aedat4"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_events_are_what_the_packets_hold(path, compression):
    packets = [
        a.packet(0, a.events_buffer(EVENTS[:700]), compression),
        a.packet(0, a.events_buffer([]), compression),
        a.packet(0, a.events_buffer(EVENTS[700:]), compression),
    ]
    assert read(path, a.aedat4(*packets, compression=compression)) == (EVENTS, None)
    with aedat4.open(path) as reader:
        assert (reader.format, reader.sensor_size) == ("AEDAT 4.0", (346, 260))
        list(reader)
        report = reader.report
    assert report.words == {"EVTS": 3}
    assert report.word_bytes == {"EVTS": sum(map(len, packets))} == {"EVTS": report.bytes}


def test_times_and_places_reach_the_ends_of_their_ranges(path):
    events = [(2**63 - 1, 32767, 32767, 1), (0, 0, 0, 0), (5, 345, 259, 1)]
    assert read(path, a.aedat4(a.packet(0, a.events_buffer(events)))) == (events, None)


def test_any_nonzero_polarity_is_on(path):
    events = [(1, 2, 3, p) for p in (0, 1, 2, 255)]
    found, _ = read(path, a.aedat4(a.packet(0, a.events_buffer(events))))
    assert [event[3] for event in found] == [0, 1, 1, 1]


def test_lz4_blocks_that_reach_back_into_those_before(path):
    same = [(9, 8, 7, 1)] * 40
    plain = a.events_buffer(same)
    cut = 32 + 16 * 20
    # A match of 16 * 20 - 12 bytes, 16 back, and then 12 literals, as the format's end rules have it.
    length = 16 * 20 - 12 - 4 - 15
    more, last = divmod(length, 255)
    second = b"\x0f" + struct.pack("<H", 16) + b"\xff" * more + bytes([last]) + a.lz4_literals(plain[-12:])
    frame = a.lz4_frame(a.lz4_literals(plain[:cut]), second)
    data = a.header(a.xml(a.stream(0)), a.LZ4) + struct.pack("<ii", 0, len(frame)) + frame
    assert read(path, data) == (same, None)
    # Blocks that say they are independent may not.
    frame = a.lz4_frame(a.lz4_literals(plain[:cut]), second, linked=False)
    data = a.header(a.xml(a.stream(0)), a.LZ4) + struct.pack("<ii", 0, len(frame)) + frame
    events, error = read(path, data)
    assert (events, "valid LZ4 frame" in error) == ([], True)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("at", ["right", "-1", "0", "in the middle", "behind the end"])
def test_the_table_is_passed_over_wherever_the_header_says_it_is(path, compression, at):
    body = a.packet(0, a.events_buffer(EVENTS[:9]), compression) + a.packet(
        0, a.events_buffer(EVENTS[9:12]), compression
    )
    table = a.packed(a.table_buffer(), compression)
    start = len(a.aedat4(compression=compression))
    place = {"right": start + len(body), "-1": -1, "0": 0, "in the middle": start, "behind the end": 10**9}[
        at
    ]
    data = a.aedat4(body, table, compression=compression, table=place)
    assert read(path, data, strict=True) == (EVENTS[:12], None)
    with aedat4.open(path) as reader:
        list(reader)
        assert reader.report.words == {"EVTS": 2, "FTAB": 1}
        assert reader.report.word_bytes["FTAB"] == len(table)


def test_packets_of_other_streams_are_passed_over_and_counted(path):
    info = a.xml(
        a.stream(4),
        a.stream(1, "FRME", "frames"),
        a.stream(2, "IMUS", "imu"),
        a.stream(0, "EVTS", "noise"),
        a.stream(7, "BBOX", "boxes"),
        a.stream(3, "TRIG", "triggers"),
    )
    packets = [
        a.packet(3, b"no buffer at all"),
        a.packet(4, a.events_buffer(EVENTS[:2])),
        a.packet(1, b"f" * 100_000),
        a.packet(2, b""),
        a.packet(0, a.events_buffer(EVENTS[5:9])),
        a.packet(7, b"box"),
        a.packet(4, a.events_buffer(EVENTS[2:5])),
    ]
    assert read(path, a.aedat4(*packets, info=info), strict=True) == (EVENTS[:5], None)
    with aedat4.open(path) as reader:
        list(reader)
        report = reader.report
    assert report.words == {
        "EVTS": 2,
        "TRIG": 1,
        "FRME": 1,
        "IMUS": 1,
        "EVTS of other streams": 1,
        "other types": 1,
    }
    assert report.word_bytes["FRME"] == 100_008
    assert sum(report.word_bytes.values()) == report.bytes == sum(map(len, packets))
    assert report.unknown == 0


def test_packets_of_unknown_streams_are_counted(path):
    data = a.aedat4(
        a.packet(0, a.events_buffer(EVENTS[:2])),
        a.packet(9, b"what is this"),
        a.packet(9, b"four"),
        a.packet(0, a.events_buffer(EVENTS[2:4])),
    )
    assert read(path, data) == (EVENTS[:4], None)
    with aedat4.open(path) as reader:
        list(reader)
        assert reader.report.unknown == 2
    events, error = read(path, data, strict=True)
    at = len(a.aedat4(a.packet(0, a.events_buffer(EVENTS[:2]))))
    assert (events, error) == (EVENTS[:2], f"a packet of the unknown stream 9, at byte {at} of the file")


@pytest.mark.parametrize("field", ["t", "x", "y"])
def test_a_negative_number_is_an_error_when_it_is_reached(path, field):
    bad = {"t": (-5, 1, 1, 1), "x": (1, -5, 1, 1), "y": (1, 1, -5, 1)}[field]
    first = a.packet(0, a.events_buffer(EVENTS[:3]))
    data = a.aedat4(first, a.packet(0, a.events_buffer([*EVENTS[3:15], bad, EVENTS[15]])))
    events, error = read(path, data)
    assert events == EVENTS[:15]
    assert error == f"an event's {field} is -5, in the packet at byte {len(a.aedat4(first))} of the file"


def test_times_that_step_back_are_kept_and_counted(path):
    events = [(9, 0, 0, 0), (7, 1, 0, 0), (8, 2, 0, 0), (8, 3, 0, 0), (3, 4, 0, 0)]
    packets = [a.packet(0, a.events_buffer(events[3:])), a.packet(0, a.events_buffer(events[:3]))]
    first = len(a.aedat4(packets[0]))
    assert read(path, a.aedat4(*packets)) == ([*events[3:], *events[:3]], None)
    with aedat4.open(path) as reader:
        list(reader)
        assert reader.report.backward_steps == 2
    events_, error = read(path, a.aedat4(packets[1], packets[0]), strict=True)
    assert events_ == events[:1]
    assert "below that of the event before it" in error and str(len(a.aedat4())) in error
    events_, error = read(
        path, a.aedat4(packets[0], a.packet(0, a.events_buffer(events[:1])), packets[1]), strict=True
    )
    assert events_ == events[3:4] and str(first) not in error


def test_triggers_are_the_edges_of_inputs(path):
    info = a.xml(
        a.stream(0), a.stream(1, "TRIG", "triggers", None), a.stream(2, "TRIG", "triggers", None, "other")
    )
    kinds = [(10 + kind, kind) for kind in range(10)]
    packets = [
        a.packet(1, a.triggers_buffer(kinds), a.LZ4),
        a.packet(0, a.events_buffer(EVENTS[:3]), a.LZ4),
        a.packet(2, a.triggers_buffer([(1, 1)]), a.LZ4),
        a.packet(1, a.triggers_buffer([(50, 2)]), a.LZ4),
    ]
    path.write_bytes(a.aedat4(*packets, info=info, compression=a.LZ4))
    with aedat4.open(path, triggers=True) as reader:
        events = [event for batch in reader for event in batch.tolist()]
        triggers = reader.take_triggers()
    assert events == EVENTS[:3]
    assert triggers.dtype == frames2py.TRIGGER_DTYPE
    assert triggers.tolist() == [(11, 0, 1), (12, 0, 0), (13, 0, 1), (14, 1, 1), (15, 1, 0), (50, 0, 0)]


def test_which_stream_is_read(path):
    def chosen(*streams):
        data = a.aedat4(
            *(a.packet(i, a.events_buffer([(i, 0, 0, 0)])) for i in range(5)), info=a.xml(*streams)
        )
        (event,), _ = read(path, data)
        return event[0]

    assert chosen(a.stream(3, name="anything")) == 3
    assert chosen(a.stream(1, name="noise"), a.stream(2)) == 2
    # By number, not by place in the text; the first camera that has events.
    assert chosen(a.stream(4, camera="b"), a.stream(3, camera="a"), a.stream(0, "FRME", camera="b")) == 3
    assert (
        chosen(a.stream(2, name="n", camera="b"), a.stream(1, name="m", camera="a"), a.stream(4, camera="b"))
        == 1
    )
    message = opening(path, a.aedat4(info=a.xml(a.stream(0, name="a"), a.stream(1, name="b"))))
    assert "2 streams of type EVTS" in message and "a, b" in message
    assert "no stream of events" in opening(path, a.aedat4(info=a.xml(a.stream(0, "FRME"))))
    assert "no stream of events" in opening(path, a.aedat4(info=a.xml()))
    assert "two streams 1" in opening(path, a.aedat4(info=a.xml(a.stream(1), a.stream(1))))


def test_the_geometry_is_the_streams(path):
    no_size = a.aedat4(info=a.xml(a.stream(0, size=None)))
    assert "states no geometry" in opening(path, no_size)
    with aedat4.open(path, sensor_size=(7, 8)) as reader:
        assert reader.sensor_size == (7, 8)
    assert "(346, 260)" in opening(path, a.aedat4(), sensor_size=(7, 8))
    for size in [(0, 4), (4, "x"), (-4, 4), (2**40, 4), (" ", 4)]:
        assert "sizeX and sizeY" in opening(path, a.aedat4(info=a.xml(a.stream(0, size=size))))
    half = a.xml(a.node("0", a.attr("typeIdentifier", "EVTS"), a.node("info", a.attr("sizeX", 5))))
    assert "got 5 and nothing" in opening(path, a.aedat4(info=half))


def test_odd_but_valid_descriptions(path):
    events = a.packet(0, a.events_buffer(EVENTS[:3]))
    inside = a.node("info", a.attr("sizeY", 9), a.attr("sizeX", " 8 "))
    odd = (
        "<?xml version='1.0' encoding='utf-8'?>\n<!-- <node> --><dv>"
        "<node name='mainloop'><attr key='x'/><node path='/a' name='out&#73;nfo' >"
        "<node name='not a number'/><attr key='typeIdentifier'>FRME</attr>"
        f"{inside}<node name=' 0 ' x='&lt;&amp;&gt;'>{inside}"
        "<attr type='string' key='typeIdentifier'>EV<![CDATA[TS]]></attr>"
        "<!-- no name, no camera --></node></node></node></dv>\0\0"
    )
    assert read(path, a.aedat4(events, info=odd)) == (EVENTS[:3], None)
    with aedat4.open(path) as reader:
        assert reader.sensor_size == (8, 9)


@pytest.mark.parametrize(
    "info",
    [
        "",
        "no xml",
        "<dv>",
        "<dv></vd>",
        "<dv/>",
        "<dv><node name='outInfo'></dv>",
        "<!DOCTYPE dv [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><dv>&b;</dv>",
        "<dv>&bomb;</dv>",
        "<a>" * 100_000,
        "<dv><!--",
        b"\xff\xfe\x00<",
    ],
    ids=str,
)
def test_descriptions_that_cannot_be_used(path, info):
    assert "AEDAT 4.0 header" in opening(path, a.aedat4(info=info))


def test_headers_that_cannot_be_used(path):
    whole = a.header(a.xml(a.stream(0)))
    for n in range(len(whole)):
        opening(path, whole[:n])
    assert "begin with #!AER-DAT4.0" in opening(path, b"% evt 3.0\n% end\n".replace(b"%", b"x"))
    assert "Prophesee RAW file, not AEDAT 4.0" in opening(path, b"% evt 3.0\n% end\n")
    assert "at most" in opening(path, whole[:14] + b"\xff\xff\xff\x7f" + whole[18:])
    assert "IOHE" in opening(path, whole.replace(b"IOHE", b"EVTS"))
    assert "compression 5" in opening(path, a.header(a.xml(a.stream(0)), 5))
    for at in range(18, 18 + 48):
        # Every number of the header, out of all bounds: an error or another meaning, no more.
        path.write_bytes(whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :])
        with contextlib.suppress(ValueError):
            aedat4.open(path, sensor_size=(346, 260)).close()


@pytest.mark.parametrize("compression", [a.NONE, a.LZ4, a.ZSTD])
def test_a_truncated_file_yields_a_prefix(path, compression):
    packets = [a.packet(0, a.events_buffer(EVENTS[i : i + 3]), compression) for i in range(0, 9, 3)]
    start = len(a.aedat4(compression=compression))
    data = a.aedat4(*packets, compression=compression)
    ends = np.cumsum([start, *map(len, packets)])
    for n in range(start, len(data) + 1):
        complete = int((ends <= n).sum()) - 1
        assert read(path, data[:n]) == (EVENTS[: 3 * complete], None)
        with aedat4.open(path) as reader:
            list(reader)
            assert reader.report.truncated_tail == n - ends[complete]
    events, error = read(path, data[:-1], strict=True)
    assert events == EVENTS[:6]
    assert error.endswith(f"{len(packets[2]) - 1} bytes into a packet, at byte {ends[2]} of the file")


@pytest.mark.parametrize("compression", [a.NONE, a.LZ4, a.ZSTD])
@pytest.mark.parametrize(
    "broken",
    [b"", b"\0", bytes(40), b"\xff" * 40, a.table_buffer(), a.events_buffer([(1, 1, 1, 1)], b"TRIG")],
    ids=["empty", "zero", "zeros", "ones", "a table", "triggers"],
)
def test_a_broken_packet_is_an_error_behind_the_events_before_it(path, compression, broken):
    good = a.packet(0, a.events_buffer(EVENTS[:3]), compression)
    data = a.aedat4(good, a.packet(0, broken, compression), good, compression=compression)
    events, error = read(path, data)
    assert events == EVENTS[:3]
    assert f"the packet at byte {len(a.aedat4(good, compression=compression))} of the file" in error
    # Not compressed at all where it should be.
    if compression != a.NONE:
        events, error = read(path, a.aedat4(good, a.packet(0, broken), compression=compression))
        assert events == EVENTS[:3]
        assert "frame" in error


@pytest.mark.parametrize("compression", [a.NONE, a.LZ4, a.ZSTD])
@pytest.mark.parametrize("fault", [None, "broken", "negative", "stepping back", "cut"])
@pytest.mark.parametrize("batch_size", [None, 1000])
def test_packets_that_are_decoded_together(path, compression, fault, batch_size):
    """Megabytes of packets, with large ones between that need not be read, and a fault in the middle."""
    info = a.xml(a.stream(0), a.stream(1, "TRIG", "triggers"), a.stream(2, "FRME", "frames"))
    table = np.zeros(130_000, [("t", "<i8"), ("x", "<i2"), ("y", "<i2"), ("p", "<i4")])
    table["t"] = np.arange(len(table)) * 3 + 2**40
    table["x"] = np.arange(len(table)) * 7 % 346
    table["y"] = np.arange(len(table)) * 5 % 260
    table["p"] = np.arange(len(table)) % 3 == 0
    all_events = table.tolist()
    if fault == "stepping back":
        all_events[90_000] = (5, 6, 7, 1)
    data = a.aedat4(info=info, compression=compression)
    # By the packet: where it starts, and the events and triggers before it.
    starts, triggers, n, i = [], [], 0, 0
    while n < len(all_events):
        starts.append((len(data), n, len(triggers)))
        count = [2000, 1, 0, 500, 9000][i % 5]
        events = all_events[n : n + count]
        if fault == "negative" and n <= 90_000 < n + count:
            events = [(t, -3 if n + j == 90_000 else x, y, p) for j, (t, x, y, p) in enumerate(events)]
        content = a.events_buffer(events)
        if fault == "broken" and n <= 90_000 < n + count:
            content = b"broken"
        data += a.packet(0, content, compression)
        n += len(events)
        if i % 3 == 1:
            data += a.packet(1, a.triggers_buffer([(i, 1), (i, 2)]), compression)
            triggers += [(i, 0, 1), (i, 0, 0)]
        if i % 4 == 3:
            data += struct.pack("<ii", 2, 90_000) + bytes(90_000)
        i += 1
    if fault == "cut":
        # In the last packet to be passed over.
        place = data.rindex(struct.pack("<ii", 2, 90_000))
        data = data[: place + 8 + 50_000]
        whole = sum(start[0] < place for start in starts)
        n, met = starts[whole][1:] if whole < len(starts) else (len(all_events), len(triggers))
    elif fault in ("broken", "negative"):
        at, n, met = next(starts[k - 1] for k in range(len(starts)) if starts[k][1] > 90_000)
        n = 90_000 if fault == "negative" else n
    else:
        n, met = len(all_events), len(triggers)
    path.write_bytes(data)
    reader = aedat4.open(path, triggers=True, batch_size=batch_size)
    found, error = [], None
    try:
        for batch in reader:
            assert batch_size is None or len(batch) == batch_size or len(found) + len(batch) == n
            found += batch.tolist()
    except ValueError as raised:
        error = str(raised)
    assert found == all_events[:n]
    assert reader.take_triggers().tolist() == triggers[:met]
    if fault in ("broken", "negative"):
        assert f"the packet at byte {at} of the file" in error
        assert reader.report.words["EVTS"] == 1 + [start[0] for start in starts].index(at)
    else:
        assert error is None
        tail = 50_000 + 8 if fault == "cut" else 0
        body = len(data) - len(a.aedat4(info=info, compression=compression))
        assert (reader.report.bytes, reader.report.truncated_tail) == (body, tail)
        assert sum(reader.report.word_bytes.values()) == body - tail
    assert reader.report.backward_steps == (fault == "stepping back")
    reader.close()


@pytest.mark.parametrize("size", [-1, -(2**31)])
def test_negative_sizes(path, size):
    good = a.packet(0, a.events_buffer(EVENTS[:3]))
    for number in (0, 5):
        events, error = read(path, a.aedat4(good, struct.pack("<ii", number, size), bytes(100)))
        assert events == EVENTS[:3]
        assert str(size) in error


def test_a_length_that_is_a_lie_takes_no_memory(path):
    """Sizes near 2 GiB where there are a few bytes: of a packet, of a vector, of a frame's contents."""
    good = a.packet(0, a.events_buffer(EVENTS[:3]))
    assert read(path, a.aedat4(good, struct.pack("<ii", 0, 2**31 - 1), bytes(100))) == (EVENTS[:3], None)
    vector = bytearray(a.events_buffer(EVENTS[:3]))
    vector[28:32] = struct.pack("<I", 2**28)
    events, error = read(path, a.aedat4(good, a.packet(0, bytes(vector))))
    assert events == EVENTS[:3] and "reaches beyond its end" in error


def test_bombs_are_stopped(path):
    """10 GiB of zeros in 300 kB; a packet may be 64 MiB, or 256 times its size."""
    bomb = a.zstd_repeated(b"\0", 10 << 30)
    data = a.header(a.xml(a.stream(0)), a.ZSTD) + a.packet(0, a.events_buffer(EVENTS[:3]), a.ZSTD)
    data += struct.pack("<ii", 0, len(bomb)) + bomb
    events, error = read(path, data)
    assert events == EVENTS[:3]
    assert "at most" in error


def corrupted(data, start, changes):
    data = bytearray(data)
    for at, value in changes:
        data[start + int(at * (len(data) - start - 1))] = value
    return bytes(data)


@several
@given(
    compression=st.sampled_from(COMPRESSIONS),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4),
    whole=st.booleans(),
    batch_size=st.one_of(st.none(), st.integers(1, 50)),
)
def test_no_damage_does_more_than_end_the_events(tmp_path, compression, changes, whole, batch_size):
    packets = [
        a.packet(1, a.triggers_buffer([(3, 1), (4, 2)]), compression),
        a.packet(0, a.events_buffer(EVENTS[:30]), compression),
        a.packet(0, a.events_buffer(EVENTS[30:50]), compression),
    ]
    info = a.xml(a.stream(0), a.stream(1, "TRIG", "triggers"))
    start = 0 if whole else len(a.aedat4(info=info, compression=compression))
    data = corrupted(a.aedat4(*packets, info=info, compression=compression), start, changes)
    read(tmp_path / "x", data, triggers=True, sensor_size=(346, 260), batch_size=batch_size)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@several
@given(cuts=st.lists(st.floats(0, 1), max_size=6), compression=st.sampled_from(COMPRESSIONS))
def test_reads_cut_anywhere_change_nothing(tmp_path, cuts, compression):
    data = a.aedat4(
        a.packet(0, a.events_buffer(EVENTS[:30]), compression),
        a.packet(0, a.events_buffer(EVENTS[30:32]), compression),
        a.packed(a.table_buffer(), compression),
        compression=compression,
    )
    path = tmp_path / "pipe"
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    places = [0, *sorted(int(cut * len(data)) for cut in cuts), len(data)]

    def write():
        with open(path, "wb", buffering=0) as pipe:
            for i in range(len(places) - 1):
                pipe.write(data[places[i] : places[i + 1]])

    writer = threading.Thread(target=write)
    writer.start()
    with aedat4.open(path) as reader:
        events = [event for batch in reader for event in batch.tolist()]
    writer.join()
    assert events == EVENTS[:32]


@pytest.mark.parametrize("compression", [a.LZ4, a.NONE])
def test_an_engine_plays_a_file(path, compression):
    packets = (a.packet(0, a.events_buffer(EVENTS[i : i + 100]), compression) for i in range(0, 1000, 100))
    path.write_bytes(a.aedat4(*packets, compression=compression))
    expected = frames2py.Accumulator((346, 260), "time_surface")
    expected.accumulate(np.array(EVENTS, dtype=frames2py.EVENT_DTYPE))
    engine = frames2py.Engine((346, 260), "time_surface", snapshot_interval_ms=0)
    reader = aedat4.open(path)
    with engine.play(reader) as playback:
        playback.join()
    assert (playback.events, reader.report.events, engine.stats.events_ingested) == (1000, 1000, 1000)
    np.testing.assert_array_equal(engine.snapshot().frame, expected.read())
