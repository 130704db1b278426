"""frames2py convert."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

import frames2py


@pytest.fixture
def scene(tmp_path, monkeypatch):
    events = np.zeros(50_000, frames2py.EVENT_DTYPE)
    events["t"] = np.arange(50_000) * 3
    events["x"] = np.arange(50_000) % 320
    events["p"] = np.arange(50_000) % 2
    return events


def test_a_recording_is_written_in_another_format(cli, scene):
    frames2py.save(cli.folder / "in.raw", scene, sensor_size=(320, 240))
    for suffix in ("csv", "dat", "es", "npz", "aedat4", "raw"):
        done = cli.run("convert", "in.raw", f"out.{suffix}")
        assert (done.returncode, done.stderr) == (0, "")
        size = (cli.folder / f"out.{suffix}").stat().st_size
        assert done.stdout == f"out.{suffix}: 50000 events, {size} bytes\n"
        with frames2py.open(cli.folder / f"out.{suffix}", sensor_size=(320, 240)) as reader:
            assert np.concatenate(list(reader)).tobytes() == scene.tobytes()


def test_a_format_may_be_named(cli, scene):
    frames2py.save(cli.folder / "in.raw", scene, sensor_size=(320, 240))
    done = cli.run("convert", "in.raw", "out.data", "--format", "evt2")
    assert done.returncode == 0
    with frames2py.open(cli.folder / "out.data") as reader:
        assert reader.format == "EVT 2.0"


def test_a_compression_may_be_named(cli, scene):
    frames2py.save(cli.folder / "in.raw", scene, sensor_size=(320, 240))
    for name, magic in (("zstd", b"\x28\xb5\x2f\xfd"), ("lz4", b"\x04\x22\x4d\x18")):
        assert cli.run("convert", "in.raw", f"{name}.aedat4", "--compression", name).returncode == 0
        assert magic in (cli.folder / f"{name}.aedat4").read_bytes()


def test_what_goes_wrong_is_one_line_and_leaves_nothing(cli, scene):
    frames2py.save(cli.folder / "in.raw", scene, sensor_size=(320, 240))
    (cli.folder / "there.csv").write_text("mine")
    scene["x"][7] = 3000
    frames2py.save(cli.folder / "wide.csv", scene, sensor_size=(2048, 240))
    (cli.folder / "bad.raw").write_bytes(b"no recording")
    before = sorted(p.name for p in cli.folder.iterdir())
    for status, words, arguments in [
        (1, "there already; --overwrite", ("in.raw", "there.csv")),
        (1, "event 7: x is 3000", ("wide.csv", "out.raw", "--sensor", "2048x240")),
        (2, "--sensor WIDTHxHEIGHT", ("wide.csv", "out.raw")),
        (1, "nothing.raw", ("nothing.raw", "out.csv")),
        (1, "bad.raw", ("bad.raw", "out.csv")),
        (1, "suffix '.mp4'", ("in.raw", "out.mp4")),
        (2, "--format", ("in.raw", "out.csv", "--format", "mp4")),
        (2, "--compression", ("in.raw", "out.aedat4", "--compression", "rar")),
        (1, "as csv has none", ("in.raw", "out.csv", "--compression", "zstd")),
    ]:
        done = cli.run("convert", *arguments)
        assert done.returncode == status, done.stderr
        assert words in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr and done.stdout == ""
        assert sorted(p.name for p in cli.folder.iterdir()) == before
    assert (cli.folder / "there.csv").read_text() == "mine"
    assert cli.run("convert", "in.raw", "there.csv", "--overwrite").returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_bar_is_shown_on_a_terminal_only(cli, scene):
    import fcntl
    import pty
    import struct
    import subprocess
    import termios
    import time

    pytest.importorskip("tqdm")
    frames2py.save(cli.folder / "in.raw", scene[:1], sensor_size=(320, 240))
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    # The bar comes after a while; a pipe that is slow to end makes it one.
    os.mkfifo(cli.folder / "pipe")
    process = subprocess.Popen(
        [sys.executable, "-m", "frames2py", "convert", "pipe", "out.csv"],
        cwd=cli.folder,
        env={**cli.environment, "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
    )
    os.close(slave)
    recording = (cli.folder / "in.raw").read_bytes()
    with (cli.folder / "pipe").open("wb") as pipe:
        pipe.write(recording)
        for _ in range(8):
            time.sleep(0.1)
            pipe.write(recording[-2:])
            pipe.flush()
    shown = b""
    while True:
        try:
            got = os.read(master, 4096)
        except OSError:
            break
        if not got:
            break
        shown += got
    os.close(master)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and b"events" in output and b"\r" not in output
    assert b"pipe" in shown and b"\r" in shown
