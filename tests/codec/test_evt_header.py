"""Contract section 5, "EVT header"."""

from __future__ import annotations

import evt_words as w
import pytest

from frames2py.adapters import evt

BODY3 = w.evt3((w.TIME_HIGH, 1), (w.ADDR_Y, 5), (w.ADDR_X, 7))
EVENT3 = [(4096, 7, 5, 0)]
BODY2 = w.evt2(w.high(1), w.cd(1, 2, 3, 4))
EVENT2 = [(66, 3, 4, 1)]


@pytest.fixture
def read(tmp_path):
    def read(data: bytes, **options):
        path = tmp_path / "x.raw"
        path.write_bytes(data)
        with evt.open(path, **options) as reader:
            return reader.format, reader.sensor_size, w.as_tuples(reader)

    return read


@pytest.mark.parametrize("end", [b"% end\n", b"%end\n", b"% end\r\n", b""])
def test_end_line_or_the_first_line_without_percent_ends_the_header(read, end):
    assert read(b"% evt 3.0\n% geometry 9x8\n" + end + BODY3) == ("EVT 3.0", (9, 8), EVENT3)


def test_what_looks_like_a_header_line_after_end_is_body(read):
    data = w.header("3.0", "9x8") + b"% evt 2.0\n" + BODY3
    assert read(data) == ("EVT 3.0", (9, 8), EVENT3)


def test_a_body_word_of_percent_signs_is_header_without_an_end_line(read):
    assert read(b"% evt 3.0\n% geometry 9x8\n" + b"%\n" + BODY3) == ("EVT 3.0", (9, 8), EVENT3)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"% evt 3.0", "EVT 3.0"),
        (b"% evt 2.0", "EVT 2.0"),
        (b"% format EVT3", "EVT 3.0"),
        (b"% format EVT2", "EVT 2.0"),
        (b"% format EVT3;height=8;width=9", "EVT 3.0"),
        (b"% format EVT2;endianness=little;foo", "EVT 2.0"),
        (b"% evt 3.0\n% format EVT3;width=9;height=8", "EVT 3.0"),
        (b"% evt 3.0\n% evt 3.0", "EVT 3.0"),
        (b"%evt 2.0", "EVT 2.0"),
        (b"%  evt   2.0  \r", "EVT 2.0"),
        (b"%\n% odd \xff\x00 bytes\n% evt 2.0", "EVT 2.0"),
    ],
)
def test_version_from_the_evt_line_or_the_format_line(read, line, expected):
    body, events = (BODY3, EVENT3) if expected == "EVT 3.0" else (BODY2, EVENT2)
    data = line + b"\n% geometry 9x8\n% end\n" + body
    assert read(data) == (expected, (9, 8), events)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"%",
        b"% end\n",
        b"% geometry 9x8\n",
        b"evt 3.0\n",
        b" % evt 3.0\n",
        b"% end\n% evt 3.0\n",
        b"% EVT 3.0\n",
        b"% evt\n",
        b"% evt 3\n",
        b"% evt 3.00\n",
        b"% evt 3.0 beta\n",
        b"% evt 4.0\n",
        b"% format EVT4\n",
        b"% format evt3\n",
        b"% format\n",
        b"% evt 3.0\n% format EVT4\n",
    ],
)
def test_missing_or_unknown_version(read, head):
    with pytest.raises(ValueError, match="EVT"):
        read(head + BODY3, sensor_size=(9, 8))


@pytest.mark.parametrize(
    "head",
    [
        b"% evt 2.0\n% evt 3.0\n",
        b"% evt 2.0\n% format EVT3\n",
        b"% format EVT2\n% evt 2.1\n",
        b"% format EVT2;width=9;height=8\n% format EVT21;width=9;height=8\n",
    ],
)
def test_contradicting_versions(read, head):
    with pytest.raises(ValueError, match="two versions"):
        read(head, sensor_size=(9, 8))


@pytest.mark.parametrize(
    "hint", [b"% system_ID 49\n", b"% sensor_generation 4.2\n", b"% plugin_name hal_plugin_imx636_evk4\n"]
)
def test_a_geometry_that_only_the_camera_implies_is_to_be_passed(read, hint):
    with pytest.raises(ValueError, match=r"no geometry; pass sensor_size=\(width, height\)"):
        read(b"% evt 3.0\n" + hint + b"% end\n" + BODY3)
    assert read(b"% evt 3.0\n" + hint + b"% end\n" + BODY3, sensor_size=(1280, 720))[1] == (1280, 720)


@pytest.mark.parametrize("end", [b"% end\r\n", b""])
@pytest.mark.parametrize("geometry", [b"% geometry 9x8\r\n", b""])
def test_lines_may_end_in_cr_lf(read, end, geometry):
    data = b"% date 2020-01-01\r\n% format EVT3;height=8;width=9\r\n" + geometry + end + BODY3
    assert read(data) == ("EVT 3.0", (9, 8), EVENT3)


@pytest.mark.parametrize("version", ["2.0", "2.1", "3.0"])
def test_a_header_alone_is_a_recording_without_events(read, version):
    assert read(w.header(version, "9x8")) == (f"EVT {version}", (9, 8), [])


def test_an_empty_file_is_no_recording(read):
    with pytest.raises(ValueError, match="not an EVT file"):
        read(b"", sensor_size=(9, 8))


@pytest.mark.parametrize(
    "lines",
    [
        b"% evt 3.0\n% geometry 9x8\n",
        b"% format EVT3;height=8;width=9\n",
        b"% evt 3.0\n% format EVT3;width=9;height=8\n% geometry 9x8\n",
        b"% evt 3.0\n% geometry 009x08\r\n",
    ],
)
def test_geometry_from_the_geometry_line_or_the_format_line(read, lines):
    assert read(lines + BODY3) == ("EVT 3.0", (9, 8), EVENT3)
    assert read(lines + BODY3, sensor_size=(9, 8)) == ("EVT 3.0", (9, 8), EVENT3)


@pytest.mark.parametrize(
    "geometry",
    [
        b"0x8",
        b"9x0",
        b"9",
        b"",
        b"x",
        b"9X8",
        b"9 x 8",
        b"-9x8",
        b"+9x8",
        b"9x8x7",
        b"9x8 px",
        b"9_0x8",
        b"9.0x8",
    ],
)
def test_malformed_geometry(read, geometry):
    with pytest.raises(ValueError, match="geometry"):
        read(b"% evt 3.0\n% geometry " + geometry + b"\n" + BODY3, sensor_size=(9, 8))


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        (b"% geometry 9x8\n% geometry 9x7\n", "two geometries"),
        (b"% format EVT3;width=9;height=7\n% geometry 9x8\n", "two geometries"),
        (b"% format EVT3;width=9\n% geometry 9x8\n", "width= and height="),
        (b"% format EVT3;height=8\n", "width= and height="),
        (b"% format EVT3;height=8;width=nine\n", "geometry"),
        (b"% format EVT3;height=8;width=0\n", "geometry"),
    ],
)
def test_contradicting_or_partial_geometry(read, lines, match):
    with pytest.raises(ValueError, match=match):
        read(b"% evt 3.0\n" + lines + BODY3, sensor_size=(9, 8))


def test_geometry_in_the_file_and_a_different_sensor_size(read):
    with pytest.raises(ValueError, match=r"sensor_size is \(8, 9\).*\(9, 8\)"):
        read(w.header("3.0", "9x8") + BODY3, sensor_size=(8, 9))


def test_no_geometry_at_all(read):
    with pytest.raises(ValueError, match="sensor_size"):
        read(w.header("3.0", None) + BODY3)
    assert read(w.header("3.0", None) + BODY3, sensor_size=(9, 8)) == ("EVT 3.0", (9, 8), EVENT3)


@pytest.mark.parametrize("data", [b"% evt 3.0\n% geometry 9x8", b"% evt 3.0\n% geometry 9x8\n% end"])
def test_a_file_that_ends_in_its_header_has_no_events(read, data):
    assert read(data) == ("EVT 3.0", (9, 8), [])


def test_a_long_header_is_read(read):
    data = (
        b"% evt 3.0\n"
        + b"% note\n" * 50_000
        + b"% "
        + b"n" * 300_000
        + b"\n"
        + w.header("3.0", "9x8")
        + BODY3
    )
    assert read(data) == ("EVT 3.0", (9, 8), EVENT3)
