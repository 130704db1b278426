"""Publication against frames2py 1.1.0, in pure Python: reading, waking, publishing, and what readers cost a
producer.

Each measure runs in a process of its own, ours and theirs in turn, for some rounds; the table shows medians
and, in brackets, the smallest and the largest."""

from __future__ import annotations

import datetime
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .setup import RIVAL, ROOT, environment, free_threaded, machine

WORKER = Path(__file__).with_name("publication_worker.py")


@dataclass(frozen=True)
class Measure:
    name: str
    label: str
    unit: str
    factor: float


POLLING = "`wait_for_newer(sequence, timeout=0)`, nothing newer"
MEASURES = [
    Measure("snapshot", "`snapshot()`, nothing new", "ns", 1),
    Measure("poll", POLLING, "ns", 1),
    Measure("wake_p50", "publish to wake-up, one waiter, p50", "µs", 1e-3),
    Measure("wake_p99", "publish to wake-up, one waiter, p99", "µs", 1e-3),
    Measure("ingest_one", "`ingest()` of one event with publication, 346x260, p50", "µs", 1e-3),
    Measure("rate_alone", "producer, 10,000 events a call, nobody reads", "M events/s", 1e-6),
    Measure("rate_2_spinning", "the same, two consumers spinning in pure Python", "M events/s", 1e-6),
    Measure("rate_8_copying", "the same, eight consumers that wait and copy", "M events/s", 1e-6),
]
CORES = [
    Measure("core_rate_alone", "producer, per second on a core, nobody reads", "M events", 1e-6),
    Measure("core_rate_8_copying", "the same, eight consumers that wait and copy", "M events", 1e-6),
]
NATIVE = [
    Measure("play_alone", "`play()` of an EVT 2.0 recording, nobody reads", "M events/s", 1e-6),
    Measure("play_1_spinning", "the same, a consumer spinning in pure Python", "M events/s", 1e-6),
    Measure("play_1_thread_alone", "`play(threads=1)`, nobody reads", "M events/s", 1e-6),
    Measure("play_1_thread_1_spinning", "the same, a consumer spinning in pure Python", "M events/s", 1e-6),
    Measure("core_play_alone", "`play()`, per second on a core, nobody reads", "M events", 1e-6),
    Measure("core_play_1_spinning", "the same, a consumer spinning in pure Python", "M events", 1e-6),
    Measure("core_play_8_copying", "the same, eight consumers that wait and copy", "M events", 1e-6),
]
BOUND = [
    Measure("shared_object", "free-threaded CPython alone: an object passed and dropped, 1 thread", "ns", 1),
    Measure("shared_object_4_threads", "the same object in 4 threads together", "ns", 1),
    Measure("shared_none_4_threads", "None, which is not counted, in 4 threads together", "ns", 1),
]
FREE_THREADED = [
    Measure("snapshot", "free-threaded: `snapshot()`, nothing new, 1 thread", "ns a call", 1),
    Measure("snapshot_4_threads", "free-threaded: the same, 4 threads together", "ns a call", 1),
    Measure("snapshot_gain", "free-threaded: the same, rate of 4 threads over that of 1", "times", 1),
    Measure("poll", f"free-threaded: {POLLING}, 1 thread", "ns a call", 1),
    Measure("poll_4_threads", "free-threaded: the same, 4 threads together", "ns a call", 1),
    Measure("poll_gain", "free-threaded: the same, rate of 4 threads over that of 1", "times", 1),
]


def measure(interpreter: Path, name: str) -> float:
    command = [str(interpreter), str(WORKER), name]
    return float(
        subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT / "target").stdout
    )


def shown(values: list[float], factor: float) -> str:
    low, middle, high = min(values) * factor, statistics.median(values) * factor, max(values) * factor
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"


def rows(measures: list[Measure], ours: Path, theirs: Path | None, rounds: int) -> list[str]:
    """A row for each measure; without `theirs`, of what only this package has."""
    found: dict[tuple[str, Path], list[float]] = {}
    for number in range(rounds):
        for each in measures:
            for interpreter in (ours, theirs) if number % 2 else (theirs, ours):
                if interpreter is None:
                    continue
                found.setdefault((each.name, interpreter), []).append(measure(interpreter, each.name))
        if sys.stderr.isatty():
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    table = []
    for each in measures:
        mine = found[each.name, ours]
        if theirs is None:
            table.append(f"| {each.label}, {each.unit} | {shown(mine, each.factor)} | | |")
            continue
        other = found[each.name, theirs]
        ratio = statistics.median(mine) / statistics.median(other)
        mine_shown, other_shown = shown(mine, each.factor), shown(other, each.factor)
        table.append(f"| {each.label}, {each.unit} | {mine_shown} | {other_shown} | {ratio:.2f} |")
    return table


def run(rounds: int, *, record: bool) -> None:
    """Measures and prints the table."""
    ours, theirs = environment("ours", "."), environment("rival", RIVAL)
    versions = "import sys, numpy; print('Python', sys.version.split()[0] + ', NumPy', numpy.__version__)"
    python = subprocess.run([ours, "-c", versions], check=True, capture_output=True, text=True).stdout.strip()
    table = [
        f"# Publication, {datetime.date.today()}",
        "",
        f"{machine()}; {python}. Medians of {rounds} interleaved rounds (smallest to largest).",
        "`python -m benchmarks publication` measures it again.",
        "",
        f"| measure | this | {RIVAL} | ratio |",
        "| --- | --- | --- | --- |",
        *rows(MEASURES + CORES, ours, theirs, rounds),
        *rows(NATIVE, ours, None, rounds),
    ]
    interpreter = free_threaded()
    if interpreter is None:
        print("no free-threaded CPython found: not measured with one", file=sys.stderr)
    else:
        ours = environment("ours-ft", ".", python=interpreter)
        theirs = environment("rival-ft", RIVAL, python=interpreter)
        table += rows(FREE_THREADED, ours, theirs, rounds)
        table += rows(BOUND, ours, None, rounds)
    text = "\n".join(table) + "\n"
    print(text)
    if record:
        path = Path(__file__).with_name("results") / f"publication-{datetime.date.today()}.md"
        path.write_text(text, encoding="utf-8")
