"""EVT 2.1: fields, and which half of a word comes first."""

from __future__ import annotations

import evt_words as w
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frames2py._core import FileEncoder
from frames2py.adapters import evt

WORDS = [(w.high(5), 0), (w.cd(1, 3, 64, 7), 0b101), (w.cd(0, 63, 2047, 2047), 1 << 31), (w.high(6), 0)]
EVENTS = [(5 * 64 + 3, 64, 7, 1), (5 * 64 + 3, 66, 7, 1), (5 * 64 + 63, 2047 + 31, 2047, 0)]
# Enough for the order to be told by: a recording of 40 ms with an event every 64 us.
LONG = [
    word for i in range(600) for word in ((w.high(1000 + i), 0), (w.cd(i % 2, i % 64, 32, 9), 1 << i % 32))
]
LONG_EVENTS = [((1000 + i) * 64 + i % 64, 32 + i % 32, 9, i % 2) for i in range(600)]


@pytest.fixture
def read(tmp_path):
    def read(lines: str, body: bytes, **options):
        path = tmp_path / "x.raw"
        path.write_bytes(lines.encode() + b"% geometry 640x480\n% end\n" + body)
        with evt.open(path, **options) as reader:
            assert reader.format == "EVT 2.1"
            return w.as_tuples(reader)

    return read


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("line", ["% evt 2.1\n% endianness {}\n", "% format EVT21;endianness={}\n"])
def test_a_stated_order_is_followed(read, line, halves):
    order = "legacy" if halves else "little"
    assert read(line.format(order), w.evt21(*WORDS, halves=halves)) == EVENTS


@pytest.mark.parametrize("line", ["% evt 2.1\n% endianness big\n", "% format EVT21;endianness=big\n"])
def test_other_orders_are_refused(read, line):
    with pytest.raises(ValueError, match=r"endianness.*big.*little and legacy"):
        read(line, w.evt21(*WORDS))


@pytest.mark.parametrize("system", ["", "% system_ID 49\n", "% system_ID 55\n"])
@pytest.mark.parametrize("halves", [False, True])
def test_an_order_that_is_not_stated_is_told_by_the_words(read, halves, system):
    assert read("% evt 2.1\n" + system, w.evt21(*LONG, halves=halves)) == LONG_EVENTS


@pytest.mark.parametrize(
    ("system", "halves"), [(None, False), (0, False), (49, True), (54, True), (55, False)]
)
def test_words_that_do_not_tell_are_in_the_cameras_order(read, system, halves):
    """Two halves that both could be a TIME_HIGH, then an event."""
    line = "% evt 2.1\n" + ("" if system is None else f"% system_ID {system}\n")
    words = [(w.high(3), w.high(3)), (w.cd(1, 0, 1, 2), w.cd(1, 0, 1, 2))]
    upper = w.cd(1, 0, 1, 2)
    expected = [(3 * 64, 1 + bit, 2, 1) for bit in range(32) if upper >> bit & 1]
    assert read(line, w.evt21(*words, halves=halves)) == expected


def test_events_before_the_first_time_high_are_dropped(tmp_path):
    path = tmp_path / "x.raw"
    path.write_bytes(w.header("2.1") + w.evt21((w.cd(1, 0, 0, 0), 0xFF), *WORDS))
    reader = evt.open(path)
    assert w.as_tuples(reader) == EVENTS
    assert reader.report.dropped == {"before the first TIME_HIGH": 8}


@pytest.mark.skipif(
    not (w.RECORDINGS / "MANIFEST.tsv").exists(),
    reason=f"no recordings in {w.RECORDINGS}; set FRAMES2PY_RECORDINGS",
)
@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("name", ["imx636.evt3.raw", "trigger.evt3.raw", "sparklers.evt2.raw"])
def test_the_order_of_a_cameras_events_is_told_by_the_words(tmp_path, name, halves):
    """Their events written as EVT 2.1, from several places on, and the order not stated."""
    size = (640, 480) if "sparklers" in name else (1280, 720)
    events = np.concatenate(list(evt.open(w.RECORDINGS / name, sensor_size=size)))
    for start in range(0, len(events), len(events) // 7):
        some = events[start : start + 3000]
        encoder = FileEncoder("evt2.1", size)
        body = (encoder.encode(some) + encoder.finish()[0]).partition(b"% end\n")[2]
        if halves:
            body = np.frombuffer(body, "<u4").reshape(-1, 2)[:, ::-1].tobytes()
        (tmp_path / "x").write_bytes(w.header("2.1") + body)
        found = np.concatenate(list(evt.open(tmp_path / "x")))
        np.testing.assert_array_equal(found, some)


several = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TOP = 2**28 - 1
UPPER = st.one_of(
    st.builds(w.cd, st.integers(0, 1), st.integers(0, 63), st.integers(0, 2047), st.integers(0, 2047)),
    st.builds(w.high, st.one_of(st.integers(0, 200), st.integers(TOP - 200, TOP))),
    st.integers(0, 2**32 - 1),
)


@several
@given(
    words=st.lists(st.tuples(UPPER, st.integers(0, 2**32 - 1)), max_size=40),
    tail=st.binary(max_size=7),
    halves=st.booleans(),
    batch_size=st.one_of(st.none(), st.integers(1, 70)),
)
def test_a_word_is_an_evt2_word_per_set_bit(read, words, tail, halves, batch_size):
    """The upper half is an EVT 2.0 word: so the EVT 2.0 decoder, given one for each bit, is the oracle."""
    expected = []
    copies = [[upper] * (lower.bit_count() if upper >> 28 < 2 else 1) for upper, lower in words]
    events = iter(w.naive_evt2(w.evt2(*(upper for many in copies for upper in many))))
    timed = False
    for upper, lower in words:
        timed |= upper >> 28 == 8
        if upper >> 28 < 2 and timed:
            for bit in range(32):
                if lower >> bit & 1:
                    t, x, y, p = next(events)
                    expected.append((t, x + bit, y, p))
    assert next(events, None) is None
    line = "% format EVT21;endianness=" + ("legacy\n" if halves else "little\n")
    assert read(line, w.evt21(*words, halves=halves) + tail, batch_size=batch_size) == expected
