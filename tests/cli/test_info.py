"""frames2py info."""

from __future__ import annotations

import json
import random
import re
from itertools import pairwise

import pytest


def lines(output: str) -> dict[str, str]:
    pairs = [line.split(":", 1) for line in output.splitlines()]
    assert all(len(pair) == 2 for pair in pairs), output
    return {name: value.strip() for name, value in pairs}


@pytest.mark.parametrize("name", ["imx636.evt3.raw", "sparklers.evt2.raw", "trigger.evt3.raw"])
def test_real_recording_matches_its_manifest(cli, real, name: str) -> None:
    path, row = real(name)
    done = cli.run("info", path)
    assert (done.returncode, done.stderr) == (0, "")
    found = lines(done.stdout)
    assert row["format"].startswith(found["format"].replace(" ", ""))
    assert int(found["events"]) == int(row["events"])
    assert int(found["on"]) == int(row["on"])
    assert int(found["off"]) == int(row["events"]) - int(row["on"])
    assert found["first time"] == f"{row['t_first']} us"
    assert found["last time"] == f"{row['t_last']} us"
    size = f"{int(row['x_max']) + 1}x{int(row['y_max']) + 1}"
    assert re.search(r"\d+x\d+", found["sensor"])[0] == size
    assert found["sensor"].startswith("unknown") == ("without geometry" in row["format"])
    duration = int(row["t_max"]) - int(row["t_min"])
    assert found["duration"] == f"{duration // 10**6}.{duration % 10**6:06d} s"
    assert int(found["rate"].split()[0]) == pytest.approx(int(row["events"]) / duration * 1e6, abs=1)


@pytest.mark.parametrize("geometry", ["64x48", None])
@pytest.mark.parametrize("seed", range(3))
def test_made_recording_is_counted_right(cli, evt2, geometry: str | None, seed: int) -> None:
    rng = random.Random(seed)
    now, events = 10**6, []
    for _ in range(rng.randrange(1, 3000)):
        now = max(0, now + rng.choice([0, 1, 50, 3000, -700]))
        events.append((now, rng.randrange(70), rng.randrange(50), rng.randrange(2)))
    evt2(events, geometry=geometry)
    done = cli.run("info", "made.raw", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    times = [t for t, _, _, _ in events]
    on = sum(p for _, _, _, p in events)
    outside = sum(x >= 64 or y >= 48 for _, x, y, _ in events)
    duration = max(times) - min(times)
    assert json.loads(done.stdout) == {
        "file": "made.raw",
        "format": "EVT 2.0",
        "sensor": [64, 48] if geometry else None,
        "smallest_sensor": [max(x for _, x, _, _ in events) + 1, max(y for _, _, y, _ in events) + 1],
        "events": len(events),
        "on": on,
        "off": len(events) - on,
        "out_of_bounds": outside if geometry else None,
        "t_first_us": times[0],
        "t_last_us": times[-1],
        "t_min_us": min(times),
        "t_max_us": max(times),
        "backward_steps": sum(b < a for a, b in pairwise(times)),
        "duration_us": duration,
        "events_per_s": pytest.approx(len(events) / duration * 1e6) if duration else None,
    }


def test_lines_say_what_is_not_in_the_header(cli, evt2) -> None:
    evt2([(10, 5, 2, 1), (30, 6, 1, 0)], geometry=None)
    found = lines(cli.run("info", "made.raw").stdout)
    assert found["sensor"] == "unknown, not in the header (the smallest that fits: 7x3)"
    assert "out of bounds" not in found
    found = lines(cli.run("info", "made.raw", "--sensor", "6x3").stdout)
    assert found["sensor"] == "6x3"
    assert found["out of bounds"] == "1"


def test_steps_back_are_told(cli, evt2) -> None:
    evt2([(100, 1, 1, 1), (40, 1, 1, 1), (90, 1, 1, 0)])
    found = lines(cli.run("info", "made.raw").stdout)
    assert found["backward steps"] == "1"
    assert (found["first time"], found["last time"]) == ("100 us", "90 us")
    assert (found["earliest time"], found["latest time"]) == ("40 us", "100 us")
    assert found["duration"] == "0.000060 s"


@pytest.mark.parametrize("geometry", ["64x48", None])
def test_recording_without_events(cli, evt2, geometry: str | None) -> None:
    evt2([], geometry=geometry)
    done = cli.run("info", "made.raw")
    assert (done.returncode, done.stderr) == (0, "")
    found = lines(done.stdout)
    assert found["events"] == "0"
    assert found["first time"] == found["last time"] == found["duration"] == found["rate"] == "none"
    assert json.loads(cli.run("info", "--json", "made.raw").stdout)["events_per_s"] is None


def test_torn_end_is_no_error(cli, evt2) -> None:
    path = evt2([(1, 2, 3, 1), (2, 2, 3, 1)])
    path.write_bytes(path.read_bytes()[:-1])
    assert lines(cli.run("info", "made.raw").stdout)["events"] == "1"


def test_damage_in_the_middle_is_one_line_and_status_1(cli, evt3_damaged) -> None:
    done = cli.run("info", evt3_damaged.name)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("frames2py: error: damaged.raw: ")
    assert done.stderr.count("\n") == 1
