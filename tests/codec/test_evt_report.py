"""What a reader says about an EVT file besides its events."""

from __future__ import annotations

import evt_words as w
import numpy as np
import pytest

from frames2py import TRIGGER_DTYPE
from frames2py.adapters import evt


def write(path, version: str, body: bytes):
    path.write_bytes(w.header(version) + body)
    return path


EVT3_BODY = w.evt3(
    (w.ADDR_X, 1),  # no time yet
    (w.VECT_8, 0b111),
    (w.TIME_HIGH, 4095),
    (w.ADDR_X, 2),  # no row yet
    (w.ADDR_Y, 4),
    (w.VECT_12, 0b11),  # no base yet
    (w.RESERVED_Y, 5),
    (w.ADDR_X, 3),  # in a row of a reserved type
    (w.ADDR_Y, 6),
    (w.TIME_LOW, 9),
    (w.EXT_TRIGGER, 0x701),
    (w.ADDR_X, 7),
    (w.TIME_LOW, 8),
    (w.ADDR_X, 8),  # a step back
    (w.OTHERS, 1),
    (w.CONTINUED_4, 2),
    (w.CONTINUED_12, 3),
    (9, 0x999),  # padding
    (9, 0x998),
    (11, 0),
    (w.TIME_HIGH, 0),  # an overflow
    (w.EXT_TRIGGER, 0x700),
    (w.BASE_X, 100),
    (w.VECT_12, 1),
)


def test_an_evt3_report_by_hand(tmp_path):
    reader = evt.open(write(tmp_path / "x", "3.0", EVT3_BODY + b"\x00"), triggers=True)
    events = w.as_tuples(reader)
    t = 4095 * 4096
    assert events == [(t + 9, 7, 6, 0), (t + 8, 8, 6, 0), (2**24, 100, 6, 0)]
    report = reader.report
    assert report.format == "EVT 3.0"
    assert (report.events, report.bytes) == (3, len(EVT3_BODY) + 1)
    counts = {
        "ADDR_Y": 2, "RESERVED_Y": 1, "ADDR_X": 5, "BASE_X": 1, "VECT_12": 2, "VECT_8": 1, "TIME_LOW": 2,
        "CONTINUED_4": 1, "TIME_HIGH": 2, "EXT_TRIGGER": 2, "OTHERS": 1, "CONTINUED_12": 1,
    }  # fmt: skip
    assert report.words == counts
    assert list(report.words) == list(counts)
    assert report.word_bytes == {name: 2 * count for name, count in counts.items()}
    assert report.dropped == {
        "before the first TIME_HIGH": 4,
        "before the first ADDR_Y": 1,
        "before the first BASE_X": 2,
        "in a row of a reserved type": 1,
    }
    assert (report.time_wraps, report.backward_steps) == (1, 1)
    assert (report.unknown, report.padding, report.truncated_tail) == (2, 2, 1)
    triggers = reader.take_triggers()
    assert triggers.dtype == TRIGGER_DTYPE
    assert triggers.tolist() == [(t + 9, 7, 1), (2**24, 7, 0)]
    assert len(reader.take_triggers()) == 0


EVT2_WORDS = [
    w.cd(1, 0, 0, 0),  # no time yet
    0xA << 28 | 1,
    w.high(2**28 - 1),
    w.cd(1, 9, 1, 2),
    w.cd(0, 8, 3, 4),  # a step back
    0xA << 28 | 5 << 22 | 3 << 8 | 1,
    w.high(0),  # an overflow
    0xE << 28,
    0xF << 28,
    0x2 << 28,
]


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_evt2_reports_by_hand(tmp_path, version):
    wide = version == "2.1"
    body = w.evt21(*((word, 1) for word in EVT2_WORDS)) if wide else w.evt2(*EVT2_WORDS)
    size = 8 if wide else 4
    reader = evt.open(write(tmp_path / "x", version, body + b"\x01\x02\x03"), triggers=True)
    t = 2**34 - 64
    assert w.as_tuples(reader) == [(t + 9, 1, 2, 1), (t + 8, 3, 4, 0)]
    report = reader.report
    off, on, time = ("EVT_NEG", "EVT_POS", "EVT_TIME_HIGH") if wide else ("CD_OFF", "CD_ON", "TIME_HIGH")
    assert report.words == {off: 1, on: 2, time: 2, "EXT_TRIGGER": 2, "OTHERS": 1, "CONTINUED": 1}
    assert report.word_bytes == {name: size * count for name, count in report.words.items()}
    assert report.dropped == {"before the first TIME_HIGH": 1}
    assert (report.time_wraps, report.backward_steps) == (1, 1)
    assert (report.unknown, report.padding, report.truncated_tail) == (1, 0, 3)
    assert reader.take_triggers().tolist() == [(t + 5, 3, 1)]


STRICT = [
    ("3.0", w.evt3((w.ADDR_X, 1)), 0, "before the first TIME_HIGH"),
    (
        "3.0",
        w.evt3((w.TIME_HIGH, 1), (w.ADDR_Y, 1), (w.ADDR_X, 1), (w.VECT_8, 1)),
        6,
        "before the first BASE_X",
    ),
    ("3.0", w.evt3((w.TIME_HIGH, 1), (w.OTHERS, 1), (9, 0x999), (9, 1)), 6, "unknown"),
    ("3.0", w.evt3((w.TIME_HIGH, 1), (w.OTHERS, 1)) + b"\x00", 4, "breaks off"),
    ("2.0", w.evt2(w.high(1), w.cd(0, 5, 1, 1), w.cd(0, 4, 1, 1)), 8, "below that of the event before"),
    ("2.0", w.evt2(w.high(1), 0x7 << 28), 4, "unknown"),
    ("2.0", w.evt2(w.high(1)) + b"\x00\x01\x02", 4, "breaks off"),
    ("2.1", w.evt21((w.high(1), 0), (w.high(0), 0), (w.cd(0, 0, 1, 1), 3), (0x3 << 28, 0)), 24, "unknown"),
]


@pytest.mark.parametrize(("version", "body", "offset", "reason"), STRICT)
@pytest.mark.parametrize("times", [0, 5000])
def test_a_strict_reader_stops_at_the_first_fault_and_names_its_byte(
    tmp_path, version, body, offset, reason, times
):
    """Also behind many words without fault, where the fault is in the middle of what is read at once."""
    filler = {"2.0": w.evt2(0xF << 28), "2.1": w.evt21((0xF << 28, 0)), "3.0": w.evt3((w.CONTINUED_12, 1))}
    body = filler[version] * times + body
    path = write(tmp_path / "x", version, body)
    at = len(w.header(version)) + len(filler[version]) * times + offset
    before = w.as_tuples(evt.open(write(tmp_path / "y", version, body[: at - len(w.header(version))])))
    seen = []
    with pytest.raises(ValueError, match=rf"{reason}.*, at byte {at} of the file"):
        seen.extend(event for batch in evt.open(path, strict=True) for event in batch.tolist())
    assert seen == before
    assert len(w.as_tuples(evt.open(path))) >= len(before)


@pytest.mark.parametrize("options", [{"strict": 1}, {"strict": None}, {"triggers": "yes"}])
def test_flags_must_be_bools(tmp_path, options):
    with pytest.raises(TypeError, match=next(iter(options))):
        evt.open(write(tmp_path / "x", "3.0", b""), **options)


def test_triggers_are_collected_only_on_request(tmp_path):
    with pytest.raises(RuntimeError, match="triggers=True"):
        evt.open(write(tmp_path / "x", "3.0", EVT3_BODY)).take_triggers()


recordings = pytest.mark.skipif(
    not (w.RECORDINGS / "MANIFEST.tsv").exists(),
    reason=f"no recordings in {w.RECORDINGS}; set FRAMES2PY_RECORDINGS",
)
NAMES = {
    0: "ADDR_Y", 1: "RESERVED_Y", 2: "ADDR_X", 3: "BASE_X", 4: "VECT_12", 5: "VECT_8", 6: "TIME_LOW",
    7: "CONTINUED_4", 8: "TIME_HIGH", 10: "EXT_TRIGGER", 14: "OTHERS", 15: "CONTINUED_12",
}  # fmt: skip


@recordings
@pytest.mark.parametrize("name", ["imx636.evt3.raw", "trigger.evt3.raw"])
def test_the_words_of_a_camera_are_counted(name):
    data = (w.RECORDINGS / name).read_bytes()
    reader = evt.open(w.RECORDINGS / name, strict=True, triggers=True)
    events = sum(len(batch) for batch in reader)
    report = reader.report
    body = data[len(data) - report.bytes :]
    assert data[: -report.bytes].endswith(b"\n")
    kinds = np.bincount(np.frombuffer(body, "<u2") >> 12, minlength=16).tolist()
    assert report.words == {NAMES[kind]: count for kind, count in enumerate(kinds) if count}
    assert sum(report.word_bytes.values()) == report.bytes
    assert report.events == events
    assert (report.dropped, report.unknown, report.backward_steps) == ({}, 0, 0)
    assert len(reader.take_triggers()) == kinds[10]


@recordings
def test_the_triggers_of_a_camera():
    reader = evt.open(w.RECORDINGS / "trigger.evt3.raw", triggers=True)
    events = np.concatenate(list(reader))
    triggers = reader.take_triggers()
    assert len(triggers) == 2
    assert (events["t"].min() <= triggers["t"]).all()
    assert (triggers["t"] <= events["t"].max()).all()
