"""Medians, goals, tables, the CSV, and the guard's comparison."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path

import pytest

from benchmarks.gate import goals, memory, report, results, spreads
from benchmarks.gate.cells import Cell
from benchmarks.gate.results import Measured, Results

ROOT = Path(__file__).resolve().parents[2]


def test_medians_and_spreads():
    assert spreads.spread([5.0, 1.0, 9.0, 3.0]) == spreads.Spread(1.0, 4.0, 9.0)
    # The second round was slow for both.
    assert spreads.ratios([30, 3, 36], [10, 1, 9]) == spreads.Spread(3, 3, 4)
    assert spreads.ratio([30, 3, 36], [10, 1, 9]) == 3
    assert spreads.ratio([8, 4, 6], [2, 2]) == 3
    with pytest.raises(ValueError, match="3 rounds against 2"):
        spreads.ratios([1, 2, 3], [1, 2])
    assert spreads.geometric_mean([1, 10, 100]) == pytest.approx(10)
    shown = [spreads.figures(v) for v in (0, 0.01234, 1.239, 12.39, 123.9, 4567.8)]
    assert shown == ["0", "0.0123", "1.24", "12.4", "124", "4568"]


def made(ratio: float, rate: float = 100e6) -> Measured:
    return Measured([rate * 0.9, rate, rate * 1.1], [rate * 0.9 / ratio, rate / ratio, rate * 1.1 / ratio])


def outcome(found: Results, what: str) -> goals.Outcome:
    [one] = [o for o in goals.outcomes(found) if o.what == what]
    return one


def accumulate(label: str, events: int, kind: str = "uniform", sensor=(640, 480)) -> Cell:
    return Cell("accumulate", label, sensor, events, kind)


def engine(label: str, events: int, reading: str, cadence: str = "each-call", sensor=(1280, 720)) -> Cell:
    return Cell("engine", label, sensor, events, "uniform", cadence, reading)


def test_nothing_measured_meets_and_misses_nothing():
    found = goals.outcomes(Results())
    assert len(found) >= 20 and {o.met for o in found} == {None}
    assert goals.all_met(found, Results())


@pytest.mark.parametrize(
    ("ratios", "met"), [([2, 8], True), ([1.4, 50], False), ([2.5, 2.5], False), ([3, 3], True)]
)
def test_a_mean_and_a_lowest(ratios, met):
    found = Results({accumulate("polarity", 1000 * (i + 1)): made(r) for i, r in enumerate(ratios)})
    assert outcome(found, "accumulate: polarity").met is met
    assert goals.all_met(goals.outcomes(found), found) is met


def test_kernels_of_a_family_count_together():
    found = Results({accumulate("voxel-5", 1000): made(30), accumulate("voxel-15", 1000): made(3)})
    assert outcome(found, "accumulate: voxel").met is False
    assert outcome(found, "accumulate: histogram").met is None


def test_a_refused_cell_of_ours_misses_a_goal_and_one_of_theirs_does_not_count():
    good, other = accumulate("polarity", 1000), accumulate("polarity", 10_000)
    found = Results({good: made(5), other: Measured(problem="wrong")})
    assert outcome(found, "accumulate: polarity").met is False
    assert "1 refused" in outcome(found, "accumulate: polarity").measured
    assert not goals.all_met(goals.outcomes(found), found)
    found = Results({other: Measured(problem="wrong")})
    assert outcome(found, "accumulate: polarity").met is False
    slow = made(0.1)
    slow.problem_theirs = "wrong"
    found = Results({good: made(5), other: slow})
    assert outcome(found, "accumulate: polarity").met is True


def test_goals_of_engines_look_at_their_cells_only():
    place = "Engine, publication on every call, 10k events, 1280x720"
    cells = {
        engine("time_surface", 10_000, "nobody"): made(20),
        engine("time_surface", 10_000, "every"): made(5),
        engine("time_surface", 100_000, "nobody"): made(1.6),
        engine("voxel-5", 10_000, "nobody"): made(70),
        engine("voxel-5", 10_000, "consumer"): made(61),
        engine("voxel-5", 10_000, "every"): made(1.9),
        engine("voxel-5", 10_000, "nobody", sensor=(346, 260)): made(2),
        engine("voxel-5", 1_000, "nobody", "16ms"): made(1.5, rate=10e6),
    }
    found = Results(cells)
    assert outcome(found, f"{place}: time_surface").met is False  # 5x where all is read
    assert outcome(found, "the same: voxel-5, nobody or one 16 ms consumer reads").met is True
    assert outcome(found, "the same: voxel-5, every publication is read").met is False
    assert outcome(found, "every Engine cell").met is True
    fast = "every Engine cell with 10k or more events per call, nobody reads"
    assert outcome(found, fast).met is True  # 1k events a call may be slower
    cells[engine("voxel-5", 100_000, "nobody", "16ms")] = made(9, rate=39e6)
    assert outcome(found, fast).met is False


def test_what_the_machine_cannot_do_is_left_out():
    slow = {reading: engine("histogram-15", 10_000, reading) for reading in ("nobody", "every")}
    found = Results({cell: made(3, rate=1e6) for cell in slow.values()})
    [nobody, every] = [o for o in goals.outcomes(found) if "10k or more" in o.what and o.met is not None]
    assert nobody.met is False and every.met is False and "left out" not in every.what
    # 110 MB at 10 GB/s: 11 ms for 10k events
    found.physical[f"look/{2 * 15 * 1280 * 720 * 4}"] = [10e9]
    outcomes = [o for o in goals.outcomes(found) if "10k or more" in o.what]
    assert [o.met for o in outcomes] == [False, None, None] and "1 of 1 left out" in outcomes[2].what


def test_ratios_that_memory_does_not_allow_are_left_out():
    cells = {engine(label, 10_000, "every"): made(2, rate=20e6) for label in ("event_count", "time_surface")}
    cells[engine("event_count", 10_000, "nobody")] = made(7)
    found = Results(cells)
    place = "Engine, publication on every call, 10k events, 1280x720: event_count"
    assert outcome(found, place).met is False
    # They take 1 ms for 10k events. Looking at a frame and clearing it: 0.1 ms each; copying one: 0.7 ms.
    for size in (4, 8):
        found.physical |= {f"look/{size * 1280 * 720}": [size * 9.216e9]}
    found.physical |= {f"memset/{4 * 1280 * 720}": [36.864e9], f"memcpy/{8 * 1280 * 720}": [10.533e9]}
    left_out = [o for o in goals.outcomes(found) if o.what.startswith(place)]
    assert [o.met for o in left_out] == [True] and "1 of 2 left out" in left_out[0].what
    every = [o for o in goals.outcomes(found) if o.what.startswith("every Engine cell (")]
    assert every[0].met is True and "time_surface/1280x720/10k/uniform/each-call/every" in every[0].measured


def test_a_frame_of_time_bins_is_written_once_for_each_bin():
    # Looking at 1 MB a ms, writing the same: 111 ms each for a frame of 110.6 MB, whose bins are of 3,333 µs.
    size = 2 * 15 * 1280 * 720 * 4
    physical = {f"look/{size}": [1e9], f"memset/{size}": [1e9]}

    def left_out(events: int, most: float) -> bool:
        """Whether a cell that is faster is left out, and one that is slower is not."""
        met = []
        for factor in (0.99, 1.01):
            cell = engine("histogram-15", events, "every")
            found = Results({cell: made(1, rate=most / factor)}, physical=physical)
            every = next(o for o in goals.outcomes(found) if o.what.startswith("every Engine cell"))
            met.append(every.met)
        return met == [None, False]

    seconds = size / 1e9
    # The ratio of `made` is 1, and could be 1.5 in so many seconds.
    assert left_out(100_000, 100_000 / (2 * seconds) / 1.5)  # 5 ms: each has a frame of its own
    assert left_out(10_000, 10_000 / ((1 + 500 / 3_333) * seconds) / 1.5)  # 0.5 ms


def test_our_own_rates_are_compared_with_uniform_events():
    found = Results(
        {
            accumulate("polarity", 10_000): made(3, 100e6),
            accumulate("polarity", 10_000, "outside-10%"): made(9, 84e6),
            accumulate("polarity", 10_000, "hot-pixel-90%"): made(9, 71e6),
            accumulate("exp_decay", 10_000, "hot-pixel-90%"): made(9, 1e6),  # nothing to compare with
        }
    )
    assert outcome(found, "10 % of the events out of bounds").met is False
    assert outcome(found, "90 % of the events on one pixel").met is True


def test_physical_goals():
    cell = accumulate("event_count", 10_000, sensor=(346, 260))
    found = Results({cell: made(3, 100e6)}, physical={"read/10k": [3.6e9, 4e9, 4.4e9]})
    what = "event_count accumulate at 346x260, against a bare read pass"
    assert outcome(found, what).met is False  # 1.3 GB/s of 4
    found.physical["read/10k"] = [2.7e9, 3e9, 3.3e9]
    assert outcome(found, what).met is True
    found.tiles = [(3e-4, 1e-3), (2e-4, 1e-3), (2.4e-4, 1e-3)]
    what = "publication of a time surface, 1/16 of its rows changed, 1280x720, against memcpy of the frame"
    assert outcome(found, what).met is True
    found.tiles.append((9e-4, 1e-3))
    assert outcome(found, what).met is False
    found.memory = {"memory/engine/polarity": (256 * 1024, 10**9), "memory/engine/voxel-5": (None, None)}
    assert outcome(found, "peak temporary memory of a call of 1M events").met is True
    found.memory["memory/accumulate/voxel-5"] = (256 * 1024 + 4096, 0)
    assert outcome(found, "peak temporary memory of a call of 1M events").met is False


def test_a_peer_counts_if_it_is_right():
    name = "peer/dv-processing/EdgeMapAccumulator"
    what = "event_count, 640x480, 100k calls, frames included, against EdgeMapAccumulator"
    assert outcome(Results(others={name: made(1.2)}), what).met is False
    assert outcome(Results(others={name: made(1.3)}), what).met is True
    assert outcome(Results(others={name: Measured(problem_theirs="wrong")}), what).met is None
    assert outcome(Results(others={name: Measured(problem="wrong")}), what).met is False


def test_the_csv_gives_the_tables(tmp_path):
    good, bad = accumulate("polarity", 100_000), accumulate("exp_decay", 100_000)
    wrong = made(50)
    wrong.problem = "values differ"
    found = Results({good: made(4), bad: wrong}, others={"play/x": made(2)}, physical={"read/1k": [1e9]})
    path = tmp_path / "gate.csv"
    results.write(path, found)
    [row] = results.read(path)
    assert (row.kernel, row.sensor, row.events, row.kind) == ("polarity", (640, 480), 100_000, "uniform")
    assert (row.ours, row.theirs, row.ratio) == (100e6, 25e6, 4)
    assert "ours: values differ" in path.read_text(encoding="utf-8")
    lines = report.tables_of(path).splitlines()
    assert "| polarity | 4.00 (4.00 to 4.00) | - | - | - |" in lines
    stock = lines.index("| polarity | frames2py==1.1.0 | 25.0 |")
    assert lines[stock + 1 : stock + 3] == ["|  | this | 100 |", "|  | ratio | 4.00x |"]
    assert not any("exp_decay | frames2py" in line for line in lines)


def test_the_page_shows_what_is_recorded(tmp_path):
    page = ROOT / "docs" / "performance.md"
    text = page.read_text(encoding="utf-8")
    shown = text.partition(report.BEGIN)[2].partition(report.END)[0]
    if not shown:
        pytest.skip("no run is recorded in docs/performance.md yet")
    name = shown.split("`")[1]
    recorded = ROOT / "benchmarks" / "results" / f"{name}.csv"
    assert shown == report.tables_of(recorded)
    copy = tmp_path / "page.md"
    copy.write_text("a\n" + report.BEGIN + "old\n" + report.END + "b\n", encoding="utf-8")
    report.put_tables(recorded, copy)
    assert copy.read_text(encoding="utf-8") == "a\n" + report.BEGIN + shown + report.END + "b\n"
    copy.write_text("nothing", encoding="utf-8")
    with pytest.raises(SystemExit, match="no place for tables"):
        report.put_tables(recorded, copy)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="takes from address space reserved before"
)
def test_memory_that_a_call_takes_for_a_while_is_seen():
    taken = memory.growth(lambda size: len(bytearray(size)), 64 * 2**20)
    assert 64 * 2**20 <= taken < 66 * 2**20


@pytest.fixture
def guard():
    spec = importlib.util.spec_from_file_location("instructions", ROOT / "ci" / "instructions.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_instructions_that_rose_are_wrong(guard):
    recorded = {"same": 1000, "faster": 1000, "a little": 1000, "slower": 1000, "gone": 1}
    counts = {"same": 1000, "faster": 500, "a little": 1050, "slower": 1051, "new": 5}
    lines, wrong = guard.compare(recorded, counts)
    assert [line.split(":")[0] for line in wrong] == ["slower", "gone", "new"]
    assert any(line.startswith("faster") and line.endswith("-50.0%") for line in lines)


def test_recorded_instructions_are_read_as_they_were_written(guard, tmp_path):
    made_with, counts = {"rustc": "rustc 1.2.3", "C library": ""}, {"a/b, 10 %": 5, "c": 7}
    guard.write(tmp_path / "counts.tsv", made_with, counts)
    assert guard.read(tmp_path / "counts.tsv") == (made_with, counts)
    assert len(guard.read(guard.RECORDED)[1]) >= 12
