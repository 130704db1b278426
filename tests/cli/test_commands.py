"""The command line as a whole: help, errors, exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import frames2py

KERNELS = (
    "event_count",
    "polarity",
    "time_surface",
    "exp_decay",
    "timestamp_decay",
    "stacked_histogram",
    "voxel_grid",
)


def test_version_and_help_by_script_and_by_module(cli, script) -> None:
    for program in (script, [sys.executable, "-m", "frames2py"]):
        done = cli.run("--version", program=program)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"frames2py {frames2py.__version__}\n", "")
        done = cli.run("--help", program=program)
        assert (done.returncode, done.stderr) == (0, "")
        assert all(command in done.stdout for command in ("demo", "watch", "info"))


@pytest.mark.parametrize("command", ["demo", "watch", "info"])
def test_every_command_has_help(cli, command: str) -> None:
    done = cli.run(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--sensor" in done.stdout
    if command != "info":
        assert all(kernel in done.stdout for kernel in KERNELS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "COMMAND"),
        ("play", "'play'"),
        ("info", "RECORDING"),
        ("watch", "RECORDING"),
        ("demo --frobnicate", "--frobnicate"),
        ("demo --sec 1", "--sec"),
        ("watch made.raw --kernel blur", "--kernel: invalid choice: 'blur'"),
        ("watch made.raw --sensor 64", "--sensor: expected WIDTHxHEIGHT, such as 640x480, got '64'"),
        ("watch made.raw --sensor 64x-1", "--sensor: expected"),
        ("watch made.raw --sensor 0x48", "--sensor: width and height must be from 1 to 65536, got '0x48'"),
        ("info made.raw --sensor 65537x1", "--sensor: width and height"),
        ("watch made.raw --sensor 65x48", "--sensor: the header says 64x48, got 65x48"),
        ("info made.raw --sensor 65x48", "--sensor: the header says 64x48, got 65x48"),
        ("watch bare.raw", "--sensor WIDTHxHEIGHT"),
        ("watch made.raw --speed 0", "--speed: must be a finite number above 0, got '0'"),
        ("watch made.raw --speed nan", "--speed: must be a finite number above 0, got 'nan'"),
        ("watch made.raw --speed fast", "--speed: must be a number, got 'fast'"),
        ("demo --seconds inf", "--seconds: must be"),
        ("demo --interval-ms=-1", "--interval-ms: must be a finite number, 0 or above, got '-1'"),
        ("demo --bins 3", "--bins: goes with --kernel stacked_histogram or voxel_grid, not with polarity"),
        (
            "demo --kernel voxel_grid --decay 0.5",
            "--decay: goes with --kernel exp_decay, not with voxel_grid",
        ),
        ("demo --kernel voxel_grid --bins 1", "bins must"),
        ("demo --kernel stacked_histogram --bin-us 1.5", "--bin-us: must be an integer, got '1.5'"),
        ("demo --kernel exp_decay --decay 1", "decay must"),
        ("demo --kernel timestamp_decay --tau-us nan", "tau_us must"),
    ],
)
def test_bad_command_line_is_usage_one_line_and_status_2(cli, evt2, arguments: str, says: str) -> None:
    evt2([(1, 2, 3, 1)])
    evt2([(1, 2, 3, 1)], geometry=None, name="bare.raw")
    done = cli.run(*arguments.split())
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("usage: frames2py")
    last = done.stderr.splitlines()[-1]
    assert "error: " in last
    assert says in last
    assert "Traceback" not in done.stderr
    assert not list(cli.folder.glob("*.png"))


@pytest.mark.parametrize("command", ["info", "watch"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing.raw", None),
        ("empty.raw", b""),
        ("noise.raw", bytes(range(256))),
        ("evt4.raw", b"% evt 4.0\n% geometry 4x4\n% end\n"),
        ("torn.raw", b"% evt 2.0\n% geometry 4by4\n% end\n"),
        (".", None),
    ],
)
def test_bad_file_is_one_line_and_status_1(cli, command: str, name: str, content: bytes | None) -> None:
    if content is not None:
        (cli.folder / name).write_bytes(content)
    done = cli.run(command, name)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"frames2py: error: {name}: ")
    assert done.stderr.count("\n") == 1
    assert not list(cli.folder.glob("*.png"))


@pytest.mark.skipif(os.name == "nt", reason="files keep no read permission bit here")
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root reads every file")
def test_unreadable_file_is_one_line_and_status_1(cli, evt2) -> None:
    evt2([(1, 2, 3, 1)]).chmod(0)
    done = cli.run("info", "made.raw")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "frames2py: error: made.raw: Permission denied\n"


@pytest.mark.skipif(os.name == "nt", reason="file names are text here")
def test_file_name_that_is_not_text(cli, evt2) -> None:
    path = os.fsencode(evt2([(1, 2, 3, 1)]))
    odd = path.replace(b"made", b"m\xffde")
    try:
        os.rename(path, odd)
    except OSError:
        pytest.skip("this file system takes only text as file names")
    done = cli.run("info", os.fsdecode(odd))
    assert (done.returncode, done.stderr) == (0, "")
    done = cli.run("info", os.fsdecode(odd) + "x")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="a reader that goes away is an OSError of another kind here")
@pytest.mark.parametrize(
    "arguments", [["info", "made.raw"], ["demo", "--seconds", "30", "--sensor", "64x48"]]
)
def test_reader_that_goes_away_ends_the_command_quietly(cli, evt2, arguments: list[str]) -> None:
    evt2([(1, 2, 3, 1)])
    running = cli.start(*arguments)
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait(timeout=60) == 141
    running.stderr.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_full_output_is_one_line_and_status_1(cli, evt2) -> None:
    evt2([(1, 2, 3, 1)])
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "frames2py", "info", "made.raw"],
            cwd=cli.folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr == "frames2py: error: No space left on device\n"


@pytest.mark.skipif(os.name == "nt", reason="no named pipes in the file system here")
@pytest.mark.parametrize("geometry", ["64x48", None])
def test_a_pipe_is_read_once(cli, evt2, geometry: str | None) -> None:
    content = evt2([(1, 2, 3, 1), (5, 9, 4, 0)], geometry=geometry).read_bytes()
    os.mkfifo(cli.folder / "pipe.raw")
    running = cli.start("info", "pipe.raw", "--json")
    with open(cli.folder / "pipe.raw", "wb") as pipe:
        pipe.write(content)
    output, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (0, "")
    assert json.loads(output)["events"] == 2


@pytest.mark.skipif(os.name == "nt", reason="no named pipes in the file system here")
def test_a_sensor_that_contradicts_a_pipe_is_status_2(cli, evt2) -> None:
    content = evt2([(1, 2, 3, 1)]).read_bytes()
    os.mkfifo(cli.folder / "pipe.raw")
    running = cli.start("info", "pipe.raw", "--sensor", "5x5")
    with open(cli.folder / "pipe.raw", "wb") as pipe:
        pipe.write(content)
    output, errors = running.communicate(timeout=60)
    assert (running.returncode, output) == (2, "")
    assert "64x48" in errors
