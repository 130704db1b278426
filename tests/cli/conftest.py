"""What the command-line tests share: running the commands, recordings made word by word, a PNG decoder."""

from __future__ import annotations

import csv
import os
import signal
import struct
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

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


def decode_png(data: bytes) -> np.ndarray:
    """An 8-bit RGB PNG, decoded by the book."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: list[tuple[bytes, bytes]] = []
    at = 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length)[0] == zlib.crc32(kind + body)
        chunks.append((kind, body))
        at += 12 + length
    assert (chunks[0][0], chunks[-1][0]) == (b"IHDR", b"IEND")
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert rest == [8, 2, 0, 0, 0], "8 bits, RGB, deflate, five filters, not interlaced"
    raw = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    stride = 1 + 3 * width
    assert len(raw) == height * stride
    rows = np.zeros((height, 3 * width), np.uint8)
    above = np.zeros(3 * width, np.uint8)
    for number in range(height):
        line = raw[number * stride : (number + 1) * stride]
        above = rows[number] = _unfiltered(line[0], np.frombuffer(line, np.uint8, offset=1), above)
    return rows.reshape(height, width, 3)


def _unfiltered(kind: int, line: np.ndarray, above: np.ndarray) -> np.ndarray:
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line.reshape(-1, 3), axis=0, dtype=np.uint8).reshape(-1)
    if kind == 2:
        return line + above
    out, up = [0, 0, 0, *line.tolist()], [0, 0, 0, *above.tolist()]
    for i in range(3, len(out)):
        a, b, c = out[i - 3], up[i], up[i - 3]
        if kind == 3:
            guess = (a + b) // 2
        else:
            assert kind == 4
            guess = min((a, b, c), key=lambda v: abs(a + b - c - v))
        out[i] = (out[i] + guess) % 256
    return np.array(out[3:], np.uint8)


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
