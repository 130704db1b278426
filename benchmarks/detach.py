"""When a call should let go of the interpreter: what that costs a producer beside a thread that is busy in
Python, and for how long a call that holds on holds that thread up.

Two builds are measured, one that always lets go and one that never does, each point in a process of its own,
the two in turn, for some rounds; the table shows medians."""

from __future__ import annotations

import datetime
import json
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from .setup import ROOT, VENVS, environment, machine

WORKER = Path(__file__).with_name("detach_worker.py")
EVENTS = [4_000, 16_000, 64_000, 128_000, 256_000, 1_000_000]
ROWS = [256, 1024, 2048, 4096]
THRESHOLDS = ("DETACH_FROM: usize = ", "DETACH_FROM_BYTES: usize = ")


def build(name: str, threshold: str) -> Path:
    """The interpreter of an environment with the package, both thresholds replaced."""
    copy = VENVS / f"{name}-source"
    shutil.rmtree(copy, ignore_errors=True)
    skip = shutil.ignore_patterns("target", ".*", "*.so", "*.pyd", "__pycache__")
    shutil.copytree(ROOT, copy, ignore=skip)
    path = copy / "src/py/engine.rs"
    text = path.read_text(encoding="utf-8")
    for before in THRESHOLDS:
        text, count = re.subn(f"{before}[^;]+", before + threshold, text)
        if count != 1:
            raise SystemExit(f"{path}: {before!r} occurs {count} times")
    path.write_text(text, encoding="utf-8")
    return environment(name, str(copy))


def measure(interpreter: Path, what: str, size: int) -> dict[str, float]:
    command = [str(interpreter), str(WORKER), what, str(size)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=VENVS).stdout
    return json.loads(output)  # type: ignore[no-any-return]


def rows(what: str, sizes: list[int], builds: dict[str, Path], rounds: int) -> list[str]:
    table = []
    for size in sizes:
        found: dict[str, list[dict[str, float]]] = {name: [] for name in builds}
        for _ in range(rounds):
            for name, interpreter in builds.items():
                found[name].append(measure(interpreter, what, size))

        def median(build: str, value: str, found: dict[str, list[dict[str, float]]] = found) -> str:
            microseconds = statistics.median(each[value] for each in found[build])
            return f"{microseconds:,.0f}"

        label = f"{size:,} events" if what == "events" else f"{size * 4 / 1024:g} MiB"
        cells = [
            median("holds", "alone_p50"),
            median("lets-go", "alone_p50"),
            median("holds", "beside"),
            median("lets-go", "beside"),
        ]
        table.append(f"| {label} | " + " | ".join(cells) + " |")
    return table


def run(rounds: int, *, record: bool) -> None:
    """Measures and prints the table."""
    builds = {"holds": build("holds", "usize::MAX"), "lets-go": build("lets-go", "0")}
    version = sys.version.split()[0]
    head = (
        "| alone, holding on | alone, letting go | beside a busy thread, holding on | beside it, letting go |"
    )
    text = "\n".join(
        [
            f"# Letting go of the interpreter, {datetime.date.today()}",
            "",
            f"{machine()}; Python {version}. µs a call, medians of {rounds} rounds.",
            "`python -m benchmarks detach` measures it again.",
            "",
            f"| a call of {head}",
            "| --- | --- | --- | --- | --- |",
            *rows("events", EVENTS, builds, rounds),
            "",
            f"| a publication of {head}",
            "| --- | --- | --- | --- | --- |",
            *rows("frames", ROWS, builds, rounds),
            "",
        ]
    )
    print(text)
    if record:
        path = Path(__file__).with_name("results") / f"detach-{datetime.date.today()}.md"
        path.write_text(text, encoding="utf-8")
