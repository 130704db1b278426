"""AEDAT 3.1 and 2.0: hand-made files, whole, cut and broken."""

from __future__ import annotations

import struct
from functools import partial

import aedat_bytes as a
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frames2py.adapters import aedat

several = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
DAVIS = "# AEChip: eu.seebetter.ini.chips.davis.DAVIS240C"


read = partial(a.read, aedat)
opening = partial(a.opening, aedat)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.aedat"


class TestAedat31:
    def test_events_are_what_the_packets_hold(self, path):
        packets = [
            a.packet31(1, [(a.polarity(3, 4, 1), 5), (a.polarity(32767, 32767, 0), 2**31 - 1)]),
            a.packet31(1, []),
            a.packet31(1, [(a.polarity(0, 0, 1), 6)], overflow=2),
        ]
        expected = [(5, 3, 4, 1), (2**31 - 1, 32767, 32767, 0), (2 * 2**31 + 6, 0, 0, 1)]
        assert read(path, a.aedat31(*packets)) == (expected, None)
        with aedat.open(path) as reader:
            assert (reader.format, reader.sensor_size) == ("AEDAT 3.1", (240, 180))
            list(reader)
            report = reader.report
        assert report.words == {"POLARITY": 3}
        assert report.word_bytes["POLARITY"] == report.bytes == sum(map(len, packets))
        assert report.time_wraps == 2

    def test_invalid_events_are_left_out_and_counted(self, path):
        events = [(a.polarity(1, 2, 1), 1), (a.polarity(3, 4, 1, valid=0), 2), (a.polarity(5, 6, 0), 3)]
        assert read(path, a.aedat31(a.packet31(1, events)), strict=True) == (
            [(1, 1, 2, 1), (3, 5, 6, 0)],
            None,
        )
        with aedat.open(path) as reader:
            list(reader)
            assert reader.report.dropped == {"marked as invalid in the file": 1}

    def test_other_packets_are_passed_over_and_counted(self, path):
        packets = [
            a.packet31(2, [(1, 1)] * 9, size=36, place=12, number=2),
            a.packet31(3, [(0, 0)] * 9, size=36, number=2),
            a.packet31(1, [(a.polarity(1, 2, 1), 1)]),
            a.packet31(7, [(0, 0)]),
            a.packet31(200, [(0, 0)]),
            a.packet31(0, [(1, 1)]),
        ]
        assert read(path, a.aedat31(*packets), strict=True) == ([(1, 1, 2, 1)], None)
        with aedat.open(path) as reader:
            list(reader)
            report = reader.report
        assert report.words == {
            "SPECIAL": 1,
            "POLARITY": 1,
            "FRAME": 1,
            "IMU6": 1,
            "CONFIG": 1,
            "other types": 1,
        }
        assert sum(report.word_bytes.values()) == report.bytes
        assert report.unknown == 0
        unknown = a.aedat31(a.packet31(50, [(0, 0)]), packets[2])
        assert read(path, unknown) == ([(1, 1, 2, 1)], None)
        with aedat.open(path) as reader:
            list(reader)
            assert reader.report.unknown == 1
        assert "unknown type 50" in read(path, unknown, strict=True)[1]

    def test_triggers_are_the_edges_of_inputs(self, path):
        special = [(kind << 1 | 1, 100 + kind) for kind in range(20)] + [(2 << 1, 99)]
        packets = [a.packet31(0, special, overflow=1), a.packet31(1, [(a.polarity(1, 2, 1), 1)])]
        path.write_bytes(a.aedat31(*packets))
        with aedat.open(path, triggers=True) as reader:
            list(reader)
            triggers = reader.take_triggers().tolist()
        edges = {2: (0, 1), 3: (0, 0), 4: (0, 1), 6: (1, 1), 7: (1, 0), 8: (1, 1)}
        edges |= {9: (2, 1), 10: (2, 0), 11: (2, 1), 12: (3, 1), 13: (3, 0)}
        assert triggers == [(2**31 + 100 + kind, *edge) for kind, edge in edges.items()]

    def test_of_several_sources_the_first_is_read(self, path):
        lines = ["#Format: RAW", "#Source 1: DAVIS346", "#-Source 0: DVS128", "#Source 2: DVS128"]
        packets = [
            a.packet31(1, [(a.polarity(1, 1, 1), 2)], source=2),
            a.packet31(1, [(a.polarity(1, 1, 1), 1)], source=1),
        ]
        assert read(path, a.aedat31(*packets, lines=lines)) == ([(1, 1, 1, 1)], None)
        with aedat.open(path) as reader:
            assert reader.sensor_size == (346, 260)
            list(reader)
            assert reader.report.words == {"POLARITY": 1, "POLARITY of other sources": 1}

    @pytest.mark.parametrize(
        ("name", "size"),
        [
            ("DVS128", (128, 128)),
            ("DAVIS240C", (240, 180)),
            ("DAVIS346bMono", (346, 260)),
            ("Davis 640", (640, 480)),
            ("DVXplorer Lite", (320, 240)),
            ("something else", None),
        ],
    )
    def test_the_source_implies_the_geometry(self, path, name, size):
        data = a.aedat31(lines=[f"#Source 1: {name}"])
        if size is None:
            assert "pass sensor_size" in opening(path, data)
            size = (5, 6)
        else:
            assert str(size) in opening(path, data, sensor_size=(5, 6))
        with aedat.open(path, sensor_size=size) as reader:
            assert reader.sensor_size == size

    def test_a_truncated_file_yields_a_prefix(self, path):
        events = [(a.polarity(i, i, 1), i) for i in range(4)]
        whole = a.aedat31(a.packet31(1, events[:2]), a.packet31(1, events[2:]), a.packet31(3, [(0, 0)] * 5))
        start = len(a.aedat31())
        expected = [(i, i, i, 1) for i in range(4)]
        # The places where an event is complete.
        ends = [start + 36, start + 44, start + 80, start + 88]
        for n in range(start, len(whole)):
            assert read(path, whole[:n]) == (expected[: sum(end <= n for end in ends)], None)
            with aedat.open(path) as reader:
                list(reader)
                tail = reader.report.truncated_tail
            done = max(end for end in [start, start + 28, start + 72, *ends] if end <= n)
            assert tail == n - done
        events_, error = read(path, whole[: start + 37], strict=True)
        assert events_ == expected[:1] and f"at byte {start + 36} of the file" in error

    def test_times_that_step_back_are_kept_and_counted(self, path):
        data = a.aedat31(a.packet31(1, [(a.polarity(0, 0, 1), t) for t in (9, 7, 8, 8)]))
        assert [event[0] for event in read(path, data)[0]] == [9, 7, 8, 8]
        with aedat.open(path) as reader:
            list(reader)
            assert reader.report.backward_steps == 1
        events, error = read(path, data, strict=True)
        at = len(a.aedat31()) + 28 + 8
        assert len(events) == 1 and error.endswith(f"the event before it, at byte {at} of the file")

    def test_numbers_that_cannot_be(self, path):
        good = a.packet31(1, [(a.polarity(1, 2, 1), 1)])
        at = len(a.aedat31(good))
        for bad in [
            a.packet31(-1, []),
            a.packet31(1, [], number=-1),
            a.packet31(1, [], size=0),
            a.packet31(3, [], size=-8),
            a.packet31(1, [], overflow=-1),
            a.packet31(1, [], size=12),
            a.packet31(1, [], place=0),
        ]:
            events, error = read(path, a.aedat31(good, bad, good))
            assert events == [(1, 1, 2, 1)]
            assert f"the packet at byte {at} of the file" in error
        events, error = read(path, a.aedat31(good, a.packet31(1, [(a.polarity(1, 2, 1), -7)])))
        assert events == [(1, 1, 2, 1)]
        assert error == f"an event's t is -7, at byte {at + 28} of the file"

    def test_headers_that_cannot_be_used(self, path):
        whole = a.aedat31()
        for n in range(len(whole)):
            opening(path, whole[:n], sensor_size=(1, 1))
        assert "does not start with #" in opening(path, a.aedat31(lines=["x"]))
        assert "Serial" in opening(path, a.aedat31(lines=["#Format: Serial"]))
        for version in ["1.0", "3.0", "4.1", "x"]:
            assert f"#!AER-DAT{version}" in opening(path, f"#!AER-DAT{version}\r\n".encode())
        assert "AEDAT 4.0 file" in opening(path, a.aedat4())

    @several
    @given(
        kinds=st.lists(st.tuples(st.sampled_from([0, 1, 1, 3]), st.integers(0, 6)), max_size=8),
        noise=st.binary(max_size=40),
        batch_size=st.one_of(st.none(), st.integers(1, 9)),
    )
    def test_nothing_behind_the_header_makes_it_fail_otherwise(self, tmp_path, kinds, noise, batch_size):
        packets = [a.packet31(kind, [(a.polarity(1, 2, 1), 5)] * n) for kind, n in kinds]
        expected = sum(n for kind, n in kinds if kind == 1)
        events, _ = read(tmp_path / "x", a.aedat31(*packets, noise), batch_size=batch_size, triggers=True)
        assert events[:expected] == [(5, 1, 2, 1)] * expected


class TestAedat2:
    def test_dvs128(self, path):
        pairs = [
            (0x0000, 1),
            (0x7FFF, 2),
            (5 << 8 | 3 << 1, 3),
            (0x8000, 4),
            (0x80000001, 5),
            (5 << 8 | 3 << 1 | 1, 2**32 - 1),
        ]
        # x from the right and y from the bottom, bit 0 being OFF.
        expected = [(1, 127, 127, 1), (2, 0, 0, 0), (3, 124, 122, 1), (2**32 - 1, 124, 122, 0)]
        assert read(path, a.aedat2(*pairs), strict=True) == (expected, None)
        with aedat.open(path, triggers=True) as reader:
            assert (reader.format, reader.sensor_size) == ("AEDAT 2.0", (128, 128))
            list(reader)
            assert reader.take_triggers().tolist() == [(4, 0, 1), (5, 0, 1)]
            assert reader.report.words == {"DVS": 4, "EXTERNAL": 2}

    def test_davis(self, path):
        dvs = lambda x, y, p: y << 22 | x << 12 | p << 11  # noqa: E731
        pairs = [
            (dvs(0, 0, 1), 1),
            (dvs(239, 179, 0), 2),
            (1 << 31 | dvs(7, 8, 0) | 0x155, 3),
            (1 << 31 | 0xC00, 4),
            (dvs(3, 4, 0) | 1 << 10, 5),
            (dvs(1, 2, 1), 6),
            (dvs(240, 2, 1), 7),
        ]
        expected = [(1, 239, 179, 1), (2, 0, 0, 0), (6, 238, 177, 1)]
        assert read(path, a.aedat2(*pairs, lines=[DAVIS])) == (expected, None)
        with aedat.open(path, triggers=True) as reader:
            assert reader.sensor_size == (240, 180)
            list(reader)
            assert reader.take_triggers().tolist() == [(5, 0, 1)]
            report = reader.report
        assert report.words == {"DVS": 4, "EXTERNAL": 1, "APS": 1, "IMU": 1}
        assert report.dropped == {"outside of the chip": 1}
        at = len(a.aedat2(*pairs[:6], lines=[DAVIS]))
        assert (
            f"outside of the chip, at byte {at} of the file" in read(path, path.read_bytes(), strict=True)[1]
        )

    @pytest.mark.parametrize(
        ("lines", "size"),
        [
            (["# AEChip: eu.seebetter.ini.chips.davis.Davis346blue"], (346, 260)),
            (["# AEChip: eu.seebetter.ini.chips.davis.Davis640"], (640, 480)),
            (["# AEChip: eu.seebetter.ini.chips.sbret10.SBret10"], (240, 180)),
            (["# AEChip: ch.unizh.ini.tobi.rccar.DVS128"], (128, 128)),
            (
                ["# created today", "# HardwareInterface: DAVIS240C", "#<entry/>", "#End Of ASCII Header"],
                (240, 180),
            ),
            ([], None),
            (["# HardwareInterface: some FX2 board"], None),
        ],
    )
    def test_the_chip_implies_the_geometry(self, path, lines, size):
        data = a.aedat2((2 << 1, 7), lines=lines)
        if size is None:
            assert "pass sensor_size" in opening(path, data)
            assert "DVS128" in opening(path, data, sensor_size=(240, 180))
            assert read(path, data, sensor_size=(128, 128)) == ([(7, 125, 127, 1)], None)
        else:
            path.write_bytes(data)
            with aedat.open(path) as reader:
                assert reader.sensor_size == size

    def test_chips_that_are_not_known(self, path):
        assert "Cochlea" in opening(
            path, a.aedat2(lines=["# AEChip: ch.unizh.ini.jaer.chip.cochlea.CochleaAMS1c"])
        )
        assert "CDAVIS" in opening(
            path, a.aedat2(lines=["# AEChip: eu.seebetter.ini.chips.davis.CDAVIS"]), sensor_size=(4, 4)
        )

    def test_pairs_may_look_like_the_start_of_a_line(self, path):
        # y = 0x8c in a DAVIS begins with a #.
        pair = (0x23 << 24 | 5 << 12, 0x0D0A0D0A)
        (event,), _ = read(path, a.aedat2(pair, lines=[DAVIS]))
        assert event == (0x0D0A0D0A, 234, 179 - 0x8C, 0)

    def test_the_clock_overflows_and_steps_back(self, path):
        times = [2**32 - 5, 3, 2, 2**31, 5]
        events, _ = read(path, a.aedat2(*((0, t) for t in times)))
        assert [event[0] for event in events] == [2**32 - 5, 2**32 + 3, 2**32 + 2, 2**32 + 2**31, 2**32 + 5]
        with aedat.open(path) as reader:
            list(reader)
            assert (reader.report.time_wraps, reader.report.backward_steps) == (1, 2)

    def test_a_truncated_file_yields_a_prefix(self, path):
        whole = a.aedat2(*((0, t) for t in range(5)))
        for n in range(40):
            data = whole[: len(whole) - n]
            events, _ = read(path, data)
            assert [event[0] for event in events] == list(range(5))[: 5 - (n + 7) // 8]
            with aedat.open(path) as reader:
                list(reader)
                assert reader.report.truncated_tail == -n % 8

    @several
    @given(
        body=st.binary(max_size=200), batch_size=st.one_of(st.none(), st.integers(1, 9)), chip=st.booleans()
    )
    def test_any_pairs_are_read(self, tmp_path, body, batch_size, chip):
        data = a.aedat2(
            lines=[DAVIS, "#End Of ASCII Header"] if chip else ["# AEChip: DVS128", "#End Of ASCII Header"]
        )
        events, error = read(tmp_path / "x", data + body, batch_size=batch_size)
        assert error is None
        expected = []
        before, high = 0, 0
        for i in range(len(body) // 8):
            address, t = struct.unpack(">II", body[8 * i : 8 * i + 8])
            if before - t >= 15 * 2**28:
                high += 1
            before = t
            t += high * 2**32
            if chip:
                x, y = 239 - address // 2**12 % 2**10, 179 - address // 2**22 % 2**9
                if address // 2**31 == 0 and address // 2**10 % 2 == 0 and x >= 0 and y >= 0:
                    expected.append((t, x, y, address // 2**11 % 2))
            elif address // 2**31 == 0 and address // 2**15 % 2 == 0:
                expected.append((t, 127 - address // 2 % 128, 127 - address // 2**8 % 128, 1 - address % 2))
        assert events == expected
