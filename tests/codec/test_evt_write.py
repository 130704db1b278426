"""What is written as EVT is read back the same, here and by a decoder of one word at a time."""

from __future__ import annotations

import evt_words as w
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frames2py import EVENT_DTYPE
from frames2py._core import FileEncoder
from frames2py.adapters import evt

FORMATS = {"evt2": ("EVT 2.0", 34), "evt2.1": ("EVT 2.1", 34), "evt3": ("EVT 3.0", 24)}
MOST_OVERFLOWS = 2**17


def encode(name: str, *parts, sensor_size=(640, 480)) -> bytes:
    encoder = FileEncoder(name, sensor_size)
    written = [encoder.encode(np.array(part, EVENT_DTYPE)) for part in parts]
    end, patches = encoder.finish()
    assert patches == []
    return b"".join([*written, end])


def body_of(file: bytes) -> bytes:
    return file.partition(b"% end\n")[2]


def read(path, file: bytes):
    path.write_bytes(file)
    reader = evt.open(path, strict=False)
    return w.as_tuples(reader), reader


def holds(bits: int, events) -> bool:
    overflows = 0
    for t, x, y, p in events:
        if x > 2047 or y > 2047 or p > 1 or not 0 <= (t >> bits) - overflows <= MOST_OVERFLOWS:
            return False
        overflows = t >> bits
    return True


STEP = st.one_of(st.integers(0, 100), st.integers(0, 2**13), st.integers(0, 2**26), st.integers(0, 2**35))
BACK = st.one_of(st.just(0), st.just(0), st.integers(0, 300), st.integers(0, 2**24))
PLACE = st.tuples(st.integers(0, 2048), st.integers(0, 20), st.sampled_from([0, 1, 1, 0, 0, 2]))
RUN = st.tuples(st.integers(0, 2000), st.lists(st.integers(1, 4), max_size=40), st.integers(0, 1))


@st.composite
def recordings(draw):
    t = draw(st.one_of(st.just(0), st.integers(0, 2**25), st.integers(0, 2**36)))
    events = []
    for _ in range(draw(st.integers(0, 12))):
        t = max(0, t + draw(STEP) - draw(BACK))
        x, steps, p = draw(RUN)
        y = draw(st.integers(0, 2047))
        for step in steps:
            x += step
            if x < 2048:
                events.append((t, x, y, p))
    if draw(st.integers(0, 9)) == 0:
        events.append((t, *draw(PLACE)))
    return events


several = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@several
@pytest.mark.parametrize("name", FORMATS)
@given(events=recordings(), cut=st.integers(0, 200))
def test_what_the_format_holds_comes_back_and_the_rest_is_refused(tmp_path, name, events, cut):
    format_name, bits = FORMATS[name]
    if not holds(bits, events):
        with pytest.raises(ValueError, match=r"^event \d+: [txyp] is \d+; EVT"):
            encode(name, events[:cut], events[cut:])
        return
    file = encode(name, events[:cut], events[cut:])
    back, reader = read(tmp_path / "x", file)
    assert back == events
    assert (reader.format, reader.sensor_size) == (format_name, (640, 480))
    report = reader.report
    assert (report.dropped, report.unknown, report.truncated_tail) == ({}, 0, 0)
    if name == "evt2":
        assert w.naive_evt2(body_of(file)) == events
    elif name == "evt3":
        assert w.naive_evt3(body_of(file)) == (events, False)


@pytest.mark.parametrize("name", FORMATS)
def test_a_header_has_what_tools_need_and_a_file_may_be_empty(tmp_path, name):
    file = encode(name)
    lines = file.decode().splitlines()
    version = FORMATS[name][0][4:]
    assert f"% evt {version}" in lines
    format_lines = [line for line in lines if line.startswith("% format ")]
    short = "EVT" + version.replace(".0", "").replace(".", "")
    assert len(format_lines) == 1
    assert format_lines[0].split(";")[0] == f"% format {short}"
    assert {"height=480", "width=640"} <= set(format_lines[0].split(";"))
    assert "% geometry 640x480" in lines
    assert lines[-1] == "% end"
    assert read(tmp_path / "x", file)[0] == []


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("event", "message"),
    [
        ((0, 2048, 0, 0), "event 1: x is 2048; EVT .* holds 0 to 2047"),
        ((0, 0, 65535, 0), "event 1: y is 65535; EVT .* holds 0 to 2047"),
        ((0, 0, 0, 2), "event 1: p is 2; EVT .* holds 0 and 1"),
        ((2**63, 0, 0, 0), r"event 1: t is 9223372036854775808; .*below 2\*\*63"),
        ((2**62, 0, 0, 0), "event 1: t is 4611686018427387904; EVT .* subtract an offset"),
    ],
)
def test_what_is_refused_changes_nothing(tmp_path, name, event, message):
    encoder = FileEncoder(name, (640, 480))
    with pytest.raises(ValueError, match=message):
        encoder.encode(w.as_array([(5, 1, 2, 1), event]))
    file = encoder.encode(w.as_array([(3, 1, 2, 1)])) + encoder.finish()[0]
    assert read(tmp_path / "x", file)[0] == [(3, 1, 2, 1)]


def test_times_since_1970_fit_evt2_and_are_refused_by_evt3(tmp_path):
    now = [(1_764_400_000_000_000 + 7 * i, 1, 2, 1) for i in range(5)]
    file = encode("evt2", now)
    assert read(tmp_path / "x", file)[0] == now
    assert len(file) < 1 << 20
    with pytest.raises(
        ValueError, match=f"t is {now[0][0]}; EVT 3.0 holds times up to .* subtract an offset"
    ):
        encode("evt3", now)


def test_steps_back_are_written_and_read_where_no_overflow_lies_between(tmp_path):
    top = 2**24 - 1
    for events in (
        [(top, 0, 0, 0), (0, 1, 0, 0), (top, 2, 0, 1)],
        [(2**24 + top, 0, 0, 0), (2**24, 0, 0, 0)],
    ):
        assert read(tmp_path / "x", encode("evt3", events))[0] == events
    with pytest.raises(ValueError, match=r"event 1: t is 16777215; .*cannot step back before"):
        encode("evt3", [(2**24, 0, 0, 0), (top, 0, 0, 0)])


@pytest.mark.skipif(
    not (w.RECORDINGS / "MANIFEST.tsv").exists(),
    reason=f"no recordings in {w.RECORDINGS}; set FRAMES2PY_RECORDINGS",
)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("recording", ["imx636.evt3.raw", "trigger.evt3.raw", "sparklers.evt2.raw"])
def test_recordings_of_cameras_come_back(tmp_path, name, recording):
    size = (640, 480) if "sparklers" in recording else (1280, 720)
    events = np.concatenate(list(evt.open(w.RECORDINGS / recording, sensor_size=size)))
    (tmp_path / "x").write_bytes(encode(name, events[:100], events[100:], sensor_size=size))
    with evt.open(tmp_path / "x", strict=True) as reader:
        back = np.concatenate(list(reader))
    np.testing.assert_array_equal(back.view(np.uint8), events.view(np.uint8))
