"""Tables in text by hand, with Python's Fraction as the judge of decimals."""

from __future__ import annotations

from fractions import Fraction

import pytest
from evt_words import as_array, as_tuples
from hypothesis import example, given
from hypothesis import strategies as st

import frames2py
from frames2py import _core
from frames2py.adapters import dat, evt, text

SCALE = {"s": 10**6, "ms": 1000, "us": 1, "ns": Fraction(1, 1000)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.txt"


def read(path, data, **options):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with text.open(path, **options) as reader:
        return as_tuples(reader), reader


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", [" ", "  ", "\t", ",", ", ", " ,\t", ";", " ; "])
@pytest.mark.parametrize("last", [True, False])
def test_separators_and_ends_of_lines(path, end, separator, last):
    rows = [("10", "1", "2", "1"), ("11", "65535", "0", "0"), ("11", "3", "4", "1")]
    lines = [separator.join(row) for row in rows]
    lines[1:1] = ["", "# a comment", "  ", "%,another"]
    data = end.join(lines) + (end if last else "")
    events, reader = read(path, data, columns="txyp", time_unit="us")
    assert events == [tuple(map(int, row)) for row in rows]
    assert (reader.format, reader.sensor_size) == ("text", None)
    assert "sensor" not in repr(reader)
    assert reader.report.words == {"row": 3, "comment": 2, "blank line": 2}
    assert sum(reader.report.word_bytes.values()) == len(data)


@pytest.mark.parametrize(
    ("off", "on"),
    [("0", "1"), ("-1", "1"), ("-1", "+1"), ("OFF", "ON"), ("off", "On"), ("False", "True"), ("0.0", "1e0")],
)
def test_polarities(path, off, on):
    rows = [on, on, off, on, off]
    events, _ = read(path, "".join(f"0 0 0 {p}\n" for p in rows), columns="txyp", time_unit="s")
    assert [p for *_, p in events] == [p == on for p in rows]


@pytest.mark.parametrize(
    ("one", "other"), [("0", "-1"), ("-1", "0"), ("ON", "1"), ("False", "OFF"), ("0", "true")]
)
def test_one_way_to_write_polarities_per_file(path, one, other):
    data = "".join(f"0 0 0 {p}\n" for p in (one, one, other, one))
    with pytest.raises(ValueError, match=r"line 3, at byte .*: p is .* a file has one way to write them"):
        read(path, data, columns="txyp", time_unit="s")


@given(
    st.from_regex(r"\+?([0-9]{1,22}(\.[0-9]{0,12})?|\.[0-9]{1,9})([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.sampled_from(sorted(SCALE)),
    st.booleans(),
)
@example("0.000001", "s", False)
@example("0.29", "s", False)
@example("1000000.000001000", "s", False)
@example("999.5", "ns", True)
@example("9223372036854775.807", "ms", False)
@example("9223372036854775.808", "ms", False)
def test_decimals_are_exact(tmp_path_factory, digits, unit, round_times):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    exact = Fraction(digits) * SCALE[unit]
    expected = int(exact + Fraction(1, 2)) if round_times else exact
    data = f"{digits},1,2,1\n"
    options = {"columns": "txyp", "time_unit": unit, "round_times": round_times}
    if expected == int(expected) and expected < 2**63:
        assert read(path, data, **options)[0] == [(int(expected), 1, 2, 1)]
    else:
        with pytest.raises(ValueError, match="line 1, at byte 0 of the file: t is"):
            read(path, data, **options)


@pytest.mark.parametrize(
    ("header", "unit"),
    [
        ("t_us,x,y,p", "us"),
        ("t[s],x,y,p", "s"),
        ("Timestamp (ns), X, Y, Polarity", "ns"),
        ("# timestamp/ms x y pol", "ms"),
        ('"time [us]";"x";"y";"on"', "us"),
        ("\ufefftime_ms\tx\ty\tp", "ms"),
        ("timestamp[µs],x,y,p", "us"),
    ],
)
def test_headers(path, header, unit):
    events, reader = read(path, f"{header}\n4000,1,2,1\n")
    assert events == [(int(4000 * SCALE[unit]), 1, 2, 1)]
    assert reader.report.events == 1


def test_a_column_called_t_is_in_microseconds_if_it_holds_whole_numbers(path):
    assert read(path, "y,x,p,t\n2,1,0,7\n")[0] == [(7, 1, 2, 0)]
    with pytest.raises(ValueError, match="pass time_unit="):
        read(path, "t,x,y,p\n7.5,1,2,0\n")
    assert read(path, "t,x,y,p\n7.5,1,2,0\n", time_unit="ms")[0] == [(7500, 1, 2, 0)]
    assert read(path, "t,x,y,p\n")[0] == []


def test_a_first_line_of_two_numbers_is_the_sensors_size(path):
    data = "240 180\n0.5 1 2 1\n"
    events, reader = read(path, data, columns="txyp", time_unit="s")
    assert (events, reader.sensor_size) == ([(500_000, 1, 2, 1)], (240, 180))
    with pytest.raises(ValueError, match="first line states the geometry"):
        read(path, data, columns="txyp", time_unit="s", sensor_size=(1, 1))


def test_other_columns_are_left_out(path):
    assert read(path, "a 7 b 1 2 0 c\n", columns="-t-xyp-", time_unit="us")[0] == [(7, 1, 2, 0)]
    assert read(path, "id,t_us,x,y,z,p\nq,7,1,2,,0\n".replace(",,", ",3,"))[0] == [(7, 1, 2, 0)]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("1 2 3 0\n", {}, "pass columns="),
        ("1 2 3 0\n", {"columns": "txyp"}, "pass time_unit="),
        ("x,y,p\n", {}, "0 columns for t"),
        ("", {}, "pass columns="),
        (b"\x00\x01\x02", {"columns": "txyp", "time_unit": "us"}, "no text"),
        ("", {"columns": "txy"}, "0 columns for p"),
        ("", {"columns": "txypp"}, "2 columns for p"),
        ("", {"columns": "txyz"}, "'z' is none of"),
        ("", {"columns": "txyp" + "-" * 40}, "more than 32"),
        ("", {"time_unit": "h"}, "time_unit must be"),
        ("", {"time_unit": "sec"}, "time_unit must be"),
        ("x" * 70_000, {}, "line 1 is longer"),
    ],
)
def test_what_cannot_be_opened(path, data, options, message):
    with pytest.raises(ValueError, match=message):
        read(path, data, **options)


@pytest.mark.parametrize("options", [{"columns": 3}, {"time_unit": b"s"}, {"round_times": 1}, {"strict": 1}])
def test_options_of_another_type(path, options):
    with pytest.raises(TypeError, match=next(iter(options))):
        read(path, "", **options)


def test_events_before_a_bad_line_are_yielded(path):
    path.write_text("1 2 3 0\n" * 1000 + "1 2 3\n" + "1 2 3 0\n")
    with text.open(path, columns="txyp", time_unit="us", batch_size=600) as reader:
        batches = iter(reader)
        assert [len(next(batches)), len(next(batches))] == [600, 400]
        with pytest.raises(ValueError, match="line 1001, at byte 8000 of the file: it has 3 columns, not 4"):
            next(batches)


def test_a_truncated_file_yields_a_prefix(path):
    data = "t,x,y,p\n" + "".join(f"{100 + t},{t},7,{t % 2}\r\n" for t in range(30))
    events, _ = read(path, data)
    for cut in range(8, len(data)):
        some, reader = read(path, data[:cut])
        assert some == events[: len(some)]
        assert reader.report.truncated_tail == (
            0 if data[cut - 1] in "\r\n" else reader.report.truncated_tail
        )


def test_strict_stops_at_a_step_back_and_at_a_tail(path):
    for data, message in [
        ("t,x,y,p\n5,0,0,1\n4,0,0,1\n", "line 3, at byte 16 of the file: t is 4, below 5"),
        ("t,x,y,p\n5,0,0,1\n6,0", "line 3, at byte 16 of the file: it has 2 columns"),
    ]:
        path.write_text(data)
        with text.open(path, strict=True) as reader:
            batches = iter(reader)
            assert as_tuples([next(batches)]) == [(5, 0, 0, 1)]
            with pytest.raises(ValueError, match=message):
                next(batches)
        _, reader = read(path, data)
        assert reader.report.backward_steps + (reader.report.truncated_tail > 0) == 1


def test_long_files_are_read_in_pieces(path):
    rows = [(i, i % 640, i % 480, i % 2) for i in range(20_000)]
    events, _ = read(
        path, "".join("{} {} {} {}\n".format(*row) for row in rows), columns="txyp", time_unit="us"
    )
    assert events == rows


@given(
    st.lists(
        st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 1)),
        max_size=50,
    )
)
def test_what_is_written_comes_back(tmp_path_factory, events):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    encoder = _core.FileEncoder("csv", (1, 1))
    data = encoder.encode(as_array(events)) + encoder.finish()[0]
    assert data.decode() == "t,x,y,p\n" + "".join("{},{},{},{}\n".format(*event) for event in events)
    assert read(path, data)[0] == events
    path.write_bytes(data)
    assert _core.FileReader(str(path)).format == "text"


def test_a_polarity_that_has_no_text_is_refused():
    with pytest.raises(ValueError, match="event 0: p is 2; csv holds 0 and 1"):
        _core.FileEncoder("csv", (1, 1)).encode(as_array([(0, 0, 0, 2)]))


@pytest.mark.parametrize(
    ("head", "options"),
    [
        ("% made by hand\n", {"columns": "txyp", "time_unit": "us"}),
        ("% t x y p\n", {}),
        (
            "%\n%% Width 640\n\n# Version 3\n%\tgeometry 4x3\n% end of comments\n",
            {"columns": "txyp", "time_unit": "us"},
        ),
        (
            "% Data file containing events\n% Version 2\n% Width 640\n% Height 480\n",
            {"columns": "txyp", "time_unit": "us"},
        ),
        ("% from a camera\nt,x,y,p\n", {}),
    ],
)
def test_a_table_behind_percent_signs_is_found_by_its_content(tmp_path, head, options):
    path = tmp_path / "a"
    blank = "," if "," in head else " "
    path.write_text(head + "".join(blank.join(f"{t} 5 6 1".split()) + "\n" for t in range(3000)))
    with frames2py.open(path, sensor_size=(640, 480), **options) as reader:
        assert reader.format == "text"
        assert as_tuples(reader) == [(t, 5, 6, 1) for t in range(3000)]
    for module in (evt, dat):
        with pytest.raises(ValueError, match="this is a text file, not Prophesee"):
            module.open(path)


@pytest.mark.parametrize(
    "line", ["% evt 3.0", "%  format EVT2;width=640;height=480", "% system_ID 49", "% end"]
)
def test_a_raw_header_is_no_comment_of_a_table(tmp_path, line):
    """Words that happen to be text, behind a header that is RAW's."""
    path = tmp_path / "a"
    path.write_text(f"% Date 2026-01-01\n{line}\n1 2 3 0\n")
    try:
        with frames2py.open(path, sensor_size=(640, 480)) as reader:
            found = reader.format
    except ValueError as error:
        found = str(error)
    assert "EVT" in found and "text" not in found


def test_a_dat_file_is_none_of_a_table(tmp_path):
    """Its body begins with a byte that is no text, whatever follows."""
    path = tmp_path / "a.dat"
    path.write_bytes(b"% Version 2\n% Width 640\n% Height 480\n\x0c\x08" + b"1 2 3 0\n" * 4)
    with frames2py.open(path) as reader:
        assert reader.format == "DAT 2"
        assert len(as_tuples(reader)) == 4
