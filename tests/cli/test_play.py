"""frames2py demo and frames2py watch."""

from __future__ import annotations

import math
import os
import re
import signal
from fractions import Fraction

import numpy as np
import pytest

# (t, x, y, p), on a sensor of 64x48: two repeated pixels, both polarities, 120 ms.
EVENTS = [
    (1_000, 1, 2, 1),
    (1_500, 1, 2, 1),
    (2_000, 5, 7, 0),
    (61_000, 63, 47, 1),
    (95_000, 5, 7, 0),
    (96_000, 5, 7, 1),
    (109_000, 1, 2, 0),
    (121_000, 9, 9, 1),
]
# So fast that the whole file is one piece: one publication, known to the last bit.
AT_ONCE = ("--speed", "1e9", "--interval-ms", "1e6")
ESCAPE = "\x1b"


def expected(kernel: str) -> np.ndarray:
    """The picture of EVENTS, worked out per event."""
    last = EVENTS[-1][0]
    off, on, grey = np.zeros((48, 64)), np.zeros((48, 64)), np.zeros((48, 64))
    values: dict[tuple[int, int], Fraction | float] = {}
    if kernel in ("polarity", "stacked_histogram"):
        counts: dict[tuple[int, int, int], int] = {}
        for t, x, y, p in EVENTS:
            # Five bins of 10 ms before the bin of the last event, which is not shown.
            if kernel == "polarity" or last // 10_000 - 5 <= t // 10_000 < last // 10_000:
                counts[y, x, p] = counts.get((y, x, p), 0) + 1
        for (y, x, p), count in counts.items():
            (on if p else off)[y, x] = 255 * count // max(counts.values())
        return np.stack([on, on, off], axis=2).astype(np.uint8)
    if kernel == "time_surface":
        for t, x, y, _ in EVENTS:
            grey[y, x] = math.floor(255 * max(Fraction(0), 1 - Fraction(last - t, 50_000)))
    elif kernel == "voxel_grid":
        knots: dict[tuple[int, int, int], Fraction] = {}
        shown = range(last // 10_000 - 4, last // 10_000 + 1)
        for t, x, y, p in EVENTS:
            q, r = divmod(t, 10_000)
            for knot, part in ((q, 10_000 - r), (q + 1, r)):
                # An event counts between the first knot and the last.
                if shown[0] <= q < shown[-1]:
                    share = Fraction(part if p else -part, 10_000)
                    knots[knot, y, x] = knots.get((knot, y, x), Fraction(0)) + share
        for (_, y, x), value in knots.items():
            values[y, x] = values.get((y, x), Fraction(0)) + abs(value)
    else:
        for t, x, y, _ in EVENTS:
            weight = math.exp(-(last - t) / 50_000) if kernel == "timestamp_decay" else 1
            values[y, x] = values.get((y, x), 0) + weight
    for (y, x), value in values.items():
        grey[y, x] = math.floor(255 * value / max(values.values()))
    return np.stack([grey] * 3, axis=2).astype(np.uint8)


@pytest.mark.parametrize(
    "kernel",
    [
        "event_count",
        "polarity",
        "time_surface",
        "exp_decay",
        "timestamp_decay",
        "stacked_histogram",
        "voxel_grid",
    ],
)
def test_watch_pictures_every_kernel(cli, evt2, png, numbers, kernel: str) -> None:
    evt2(EVENTS)
    done = cli.run("watch", "made.raw", "--kernel", kernel, *AT_ONCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "picture: frames2py-made.png"
    summary = numbers(done.stdout)
    assert summary["events ingested"] == len(EVENTS)
    assert summary["out of bounds"] == 0
    assert summary["snapshots published"] == 1
    difference = png(cli.folder / "frames2py-made.png").astype(int) - expected(kernel)
    # Floating-point kernels may round to either side of a level.
    assert abs(difference).max() <= (kernel in ("timestamp_decay", "voxel_grid"))
    assert sorted(p.name for p in cli.folder.iterdir()) == ["frames2py-made.png", "made.raw"]


@pytest.mark.parametrize(
    ("name", "sensor"),
    [("imx636.evt3.raw", None), ("sparklers.evt2.raw", "640x480"), ("trigger.evt3.raw", None)],
)
def test_watch_plays_every_event_of_a_real_recording(cli, real, png, numbers, name, sensor) -> None:
    path, row = real(name)
    done = cli.run(
        "watch", path, *(("--sensor", sensor) if sensor else ()), "--speed", "100", "--output", "a.png"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ESCAPE not in done.stdout
    summary = numbers(done.stdout)
    assert summary["events ingested"] == int(row["events"])
    assert summary["out of bounds"] == 0
    assert 1 <= summary["every snapshot seen"] <= summary["snapshots published"]
    width, height = map(int, (sensor or "1280x720").split("x"))
    picture = png(cli.folder / "a.png")
    assert picture.shape == (height, width, 3)
    assert picture.any()


def test_watch_counts_out_of_bounds_events(cli, evt2, numbers) -> None:
    evt2([*EVENTS, (121_001, 64, 0, 1), (121_002, 0, 48, 0), (121_003, 2047, 2047, 0)])
    summary = numbers(cli.run("watch", "made.raw", *AT_ONCE).stdout)
    assert summary["events ingested"] == len(EVENTS) + 3
    assert summary["out of bounds"] == 3


def test_watch_without_events_publishes_black(cli, evt2, png, numbers) -> None:
    evt2([])
    done = cli.run("watch", "made.raw")
    assert (done.returncode, done.stderr) == (0, "")
    assert numbers(done.stdout)["events ingested"] == 0
    assert numbers(done.stdout)["every snapshot seen"] == 1
    picture = png(cli.folder / "frames2py-made.png")
    assert picture.shape == (48, 64, 3)
    assert not picture.any()


def test_watch_goes_on_when_time_steps_back(cli, evt2, numbers) -> None:
    events = [(3_000_000_000, 1, 1, 1), (5, 2, 2, 1), (3_000_000_100, 1, 1, 0), (0, 2, 2, 0), (50, 1, 1, 1)]
    evt2(events)
    done = cli.run("watch", "made.raw")
    assert done.returncode == 0
    assert numbers(done.stdout)["events ingested"] == len(events)


@pytest.mark.parametrize("speed", ["5e-324", "1e308"])
def test_watch_at_extreme_speeds(cli, evt2, numbers, speed: str) -> None:
    evt2([(7, 1, 1, 1)] * 3)
    done = cli.run("watch", "made.raw", "--speed", speed)
    assert (done.returncode, done.stderr) == (0, "")
    assert numbers(done.stdout)["events ingested"] == 3


def test_watch_of_a_damaged_recording_shows_what_comes_before(cli, evt3_damaged, png, numbers) -> None:
    done = cli.run("watch", "damaged.raw")
    assert done.returncode == 1
    assert done.stderr.startswith("frames2py: error: damaged.raw: ")
    assert done.stderr.count("\n") == 1
    assert numbers(done.stdout)["events ingested"] == 3
    assert png(cli.folder / "frames2py-damaged.png").shape == (8, 8, 3)


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT to one process here")
@pytest.mark.parametrize("command", ["demo", "watch"])
def test_ctrl_c_ends_with_summary_and_picture(cli, evt2, png, numbers, command: str) -> None:
    if command == "watch":  # an hour of it
        evt2([(n * 100_000, n % 64, 5, 1) for n in range(36_000)])
        running = cli.start("watch", "made.raw", "--output", "a.png")
    else:
        running = cli.start("demo", "--seconds", "3600", "--sensor", "64x48", "--output", "a.png")
    first = running.stdout.readline()
    assert " events/s, " in first
    running.send_signal(signal.SIGINT)
    rest, errors = running.communicate(timeout=60)
    assert errors == ""
    assert running.returncode == 130
    assert numbers(rest)["events ingested"] > 0
    assert png(cli.folder / "a.png").shape == (48, 64, 3)


def test_demo_in_a_pipe_is_plain(cli, script, png, numbers) -> None:
    done = cli.run("demo", "--seconds", "1.2", program=script)
    assert (done.returncode, done.stderr) == (0, "")
    assert ESCAPE not in done.stdout
    assert "\r" not in done.stdout
    lines = done.stdout.splitlines()
    assert re.fullmatch(
        r"\d+\.\d s: \d+ events/s, \d+\.\d snapshots/s"
        r" \| every snapshot: \d+ seen, age (\d+\.\d\d ms|-)"
        r" \| 10 Hz sampling: \d+ seen, age (\d+\.\d\d ms|-)"
        r" \| slow computing: \d+ seen, age (\d+\.\d\d ms|-)",
        lines[0],
    )
    summary = numbers(done.stdout)
    assert summary["events ingested"] == 2_400_000
    assert summary["out of bounds"] == 0
    published = summary["snapshots published"]
    assert published >= 1
    for consumer in ("every snapshot", "10 Hz sampling", "slow computing"):
        assert 0 <= summary[f"{consumer} seen"] <= published
    assert summary["every snapshot seen"] >= 1
    assert lines[-1] == "picture: frames2py-demo.png"
    picture = png(cli.folder / "frames2py-demo.png")
    assert picture.shape == (480, 640, 3)
    assert picture[..., 0].any()
    assert picture[..., 2].any()


@pytest.mark.parametrize("kernel", ["exp_decay", "stacked_histogram", "voxel_grid"])
def test_demo_with_other_kernels_and_sizes(cli, png, kernel: str) -> None:
    done = cli.run(
        "demo",
        "--seconds",
        "0.2",
        "--kernel",
        kernel,
        "--sensor",
        "33x70",
        "--interval-ms",
        "0",
        "--output",
        "b.png",
    )
    assert (done.returncode, done.stderr) == (0, "")
    picture = png(cli.folder / "b.png")
    assert picture.shape == (70, 33, 3)
    assert picture.any()


def test_demo_replaces_an_older_picture(cli, png) -> None:
    (cli.folder / "a.png").write_bytes(b"old")
    assert cli.run("demo", "--seconds", "0.1", "--sensor", "9x9", "--output", "a.png").returncode == 0
    assert png(cli.folder / "a.png").shape == (9, 9, 3)


@pytest.mark.parametrize("output", ["none/a.png", "."])
@pytest.mark.parametrize("command", [["demo"], ["watch", "made.raw"]])
def test_output_that_cannot_be_written_is_told_first(cli, evt2, command: list[str], output: str) -> None:
    evt2(EVENTS)
    done = cli.run(*command, "--output", output)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"frames2py: error: cannot write {output}: ")
    assert done.stderr.count("\n") == 1
    assert [p.name for p in cli.folder.iterdir()] == ["made.raw"]


def test_sensor_too_large_for_memory(cli) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = 3 << 30
    if hard != resource.RLIM_INFINITY and hard < limit:
        pytest.skip("less memory than the test allows itself")
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        done = cli.run("demo", "--sensor", "65536x65536", "--seconds", "0.1")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert done.returncode == 1
    assert done.stderr.startswith("frames2py: error: not enough memory")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals here")
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_terminal_shows_a_table_redrawn_in_place(cli, term: str) -> None:
    output = in_terminal(cli, ["demo", "--seconds", "0.6", "--sensor", "64x48"], term, columns=50)
    summary = output[output.rindex("synthetic scene") :]
    assert "events ingested: 1200000" in summary
    assert "picture: frames2py-demo.png" in summary
    assert ESCAPE not in summary
    if term == "dumb":
        assert ESCAPE not in output
        return
    up = f"{ESCAPE}[6F"  # six lines: title, rates, heading, three consumers
    assert output.count(up) >= 2
    first, *frames, _ = output.split(up)
    for frame in (first, *frames):
        rows = frame.split(f"{ESCAPE}[K\r\n")
        assert rows.pop() == ""
        assert len(rows) == 6
        assert all(len(row) < 50 and ESCAPE not in row for row in rows)
        assert "events/s" in rows[1]
        assert [row[:16].strip() for row in rows[3:]] == [
            "every snapshot",
            "10 Hz sampling",
            "slow computing",
        ]


def in_terminal(cli, arguments: list[str], term: str, columns: int) -> str:
    """What a command writes to a terminal of its own."""
    import fcntl
    import pty
    import struct
    import subprocess
    import sys
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in cli.environment.items() if k not in ("COLUMNS", "LINES")}
    running = subprocess.Popen(
        [sys.executable, "-m", "frames2py", *arguments],
        cwd=cli.folder,
        env={**environment, "TERM": term},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            some = os.read(ours, 65_536)
        except OSError:  # Linux's way of saying that the other end is closed
            break
        if not some:
            break
        output += some
    os.close(ours)
    assert running.wait(timeout=60) == 0
    return output.decode()
