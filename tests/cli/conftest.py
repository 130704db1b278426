"""What the command-line tests share: running the commands, recordings made word by word."""

from __future__ import annotations

import csv
import os
import signal
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from pngs import decode_png

# (t, x, y, p)
Event = tuple[int, int, int, int]
ROOT = Path(__file__).parents[2]
RECORDINGS = Path(os.environ.get("FRAMES2PY_RECORDINGS", ROOT.parent / "shared" / "recordings"))


class Cli:
    """Runs commands in a directory of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONWARNINGS": "error", "COLUMNS": "80"}

    def run(self, *arguments: object, program: list[str] | None = None) -> subprocess.CompletedProcess[str]:
        command = program or [sys.executable, "-m", "frames2py"]
        return subprocess.run(
            [*command, *map(str, arguments)],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        # A parent that ignores SIGINT would pass that on.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "frames2py", *map(str, arguments)],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        finally:
            signal.signal(signal.SIGINT, before)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def script() -> list[str]:
    """The installed console script."""
    path = Path(sysconfig.get_path("scripts")) / ("frames2py.exe" if os.name == "nt" else "frames2py")
    if not path.exists():
        pytest.skip(f"no console script at {path}: the package is not installed")
    return [str(path)]


def recording_named(name: str) -> tuple[Path, dict[str, str]]:
    """A real recording and its row of the manifest."""
    manifest = RECORDINGS / "MANIFEST.tsv"
    if not manifest.exists():
        pytest.skip(f"no recordings at {RECORDINGS}")
    with manifest.open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["file"] == name:
                return RECORDINGS / name, row
    pytest.skip(f"{name} is not in {manifest}")


@pytest.fixture
def real() -> Callable[[str], tuple[Path, dict[str, str]]]:
    return recording_named


def evt2_words(events: Iterable[Event]) -> Iterator[int]:
    high = None
    for t, x, y, p in events:
        if t >> 6 != high:
            high = t >> 6
            yield 0x8 << 28 | high
        yield p << 28 | (t & 63) << 22 | x << 11 | y


@pytest.fixture
def evt2(tmp_path: Path) -> Callable[..., Path]:
    """Writes an EVT 2.0 file of given events, with a geometry in its header or none."""

    def write(events: Iterable[Event], geometry: str | None = "64x48", name: str = "made.raw") -> Path:
        header = "% evt 2.0\n" + (f"% geometry {geometry}\n" if geometry else "") + "% end\n"
        words = list(evt2_words(events))
        path = tmp_path / name
        path.write_bytes(header.encode() + struct.pack(f"<{len(words)}I", *words))
        return path

    return write


@pytest.fixture
def png() -> Callable[[Path], np.ndarray]:
    """Reads a PNG file as an (H, W, 3) array."""
    return lambda path: decode_png(Path(path).read_bytes())


@pytest.fixture
def numbers() -> Callable[[str], dict[str, float]]:
    """The numbers of a summary, by what stands before them."""

    def parse(output: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for line in output.splitlines():
            name, colon, value = line.partition(": ")
            if colon and value.split()[0].isdigit():
                found[name] = int(value.split()[0])
            elif line.endswith((" ms", " -")) and "|" not in line:
                found[f"{line[:16].strip()} seen"] = int(line[16:24])
        return found

    return parse


@pytest.fixture
def evt3_damaged(tmp_path: Path) -> Path:
    """An EVT 3.0 file of three good events, after which vectors run beyond x = 65535."""
    good = [0x8000, 0x6001, 0x0002, 0x2803, 0x6002, 0x2004, 0x6003, 0x2805]
    bad = [0x3000, *([0x4000] * 5461), 0x4FFF, 0x4FFF]
    path = tmp_path / "damaged.raw"
    words = struct.pack(f"<{len(good) + len(bad)}H", *good, *bad)
    path.write_bytes(b"% evt 3.0\n% geometry 8x8\n% end\n" + words)
    return path
