"""Reading recordings, against other packages that read them: events per second from a file to arrays.

Each package runs in a process of its own that stays, and they read the same file in turn, round
after round. A package counts only where it finds all events: their number and the sums of their
fields must be those of the recordings' manifest. The table shows medians, in brackets the smallest
and the largest, and the ratio to the fastest of the others, or to the one a goal names, round by round.

The recordings being short, longer files are made of them, in a temporary folder. A second table shows
what streaming needs in memory, and what an index of a file of a gigabyte takes.

Recordings are in the folder that FRAMES2PY_RECORDINGS names, by default ../shared/recordings."""

from __future__ import annotations

import csv
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .setup import RIVAL, ROOT, environment, machine

WORKER = Path(__file__).with_name("codecs_worker.py")
CHILD = Path(__file__).with_name("codecs_child.py")
RECORDINGS = Path(os.environ.get("FRAMES2PY_RECORDINGS", ROOT.parent / "shared" / "recordings"))
# For a steady figure, small files are read several times a round.
SECONDS_A_TURN = 0.05


@dataclass(frozen=True)
class Subject:
    kind: str
    file: str
    size: tuple[int, int]
    peers: tuple[str, ...]
    goal: float
    #: What the goal is against; the fastest of the others if it is not said.
    rival: str | None = None
    #: The recording that the file is made of, and how `codecs_child` calls that.
    made_of: tuple[str, str] | None = None


EVT3 = ("evt3", "evt3-batches", "faery", "expelliarmus", "evutils", "frames2py-1.1.0")
SUBJECTS = [
    Subject("EVT 3.0", "imx636.evt3.raw", (1280, 720), EVT3, 2.5),
    Subject("EVT 3.0", "trigger.evt3.raw", (1280, 720), EVT3, 2.5),
    Subject(
        "EVT 2.0",
        "sparklers.evt2.raw",
        (640, 480),
        ("expelliarmus", "faery", "evutils", "frames2py-1.1.0"),
        1.5,
    ),
    Subject("DAT", "gen4.dat", (1280, 720), ("faery", "expelliarmus", "evutils", "aestream"), 1.5),
    Subject(
        "AEDAT 4",
        "davis346.aedat4",
        (346, 260),
        ("dv-processing", "faery", "aestream", "frames2py-1.1.0"),
        2,
        "dv-processing",
    ),
    Subject(
        "AEDAT 4",
        "imx636, three times, LZ4",
        (1280, 720),
        ("dv-processing", "faery", "aestream", "frames2py-1.1.0"),
        2,
        "dv-processing",
        ("imx636.evt3.raw", "aedat4"),
    ),
    Subject("ES", "dvs.es", (320, 240), ("faery",), 1),
    Subject(
        "DSEC", "sparklers_100k.dsec.h5", (640, 480), ("frames2py-1.1.0", "evutils"), 1.2, "frames2py-1.1.0"
    ),
    Subject(
        "DSEC",
        "sparklers, ten times, Zstd",
        (640, 480),
        ("frames2py-1.1.0", "evutils"),
        1.2,
        "frames2py-1.1.0",
        ("sparklers.evt2.raw", "h5"),
    ),
]
# Of these it is measured how much memory it takes to stream them: MiB above the batch.
STREAMED = ["imx636.evt3.raw", "gen4.dat", "imx636, three times, LZ4", "sparklers, ten times, Zstd"]
MOST_MEMORY = 16
# The file of a gigabyte is made of this one. An index in decodes of the file, and a seek in ms.
LONG, LONG_BYTES, MOST_INDEX, MOST_SEEK = "imx636.evt3.raw", 10**9, 1.2, 5
# These are made longer and played, which is to go at this fraction of decoding.
PLAYED: list[tuple[str, tuple[int, int]]] = [
    ("imx636.evt3.raw", (1280, 720)),
    ("sparklers.evt2.raw", (640, 480)),
]
PLAYED_BYTES, LEAST_PLAYED = 10**8, 0.7
# What a reader is installed from.
PACKAGES = {
    "frames2py": (".[hdf5]",),
    "frames2py-1.1.0": (RIVAL.replace("==", "[hdf5,aedat4]=="),),
    "evt3": ("evt3",),
    "evt3-batches": ("evt3",),
    "faery": ("faery",),
    "expelliarmus": ("expelliarmus",),
    "evutils": ("evutils[hdf5,aedat]", "numba"),
    "dv-processing": ("dv-processing",),
    "aestream": ("aestream",),
}


class Worker:
    """A process that reads with one package."""

    def __init__(self, name: str, interpreter: Path) -> None:
        self.name = name
        self.interpreter = interpreter
        self.process = subprocess.Popen(
            [str(interpreter), str(WORKER), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT / "target",
        )

    def ask(self, subject: Subject, path: Path, *, check: bool = False) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        width, height = subject.size
        line = "\t".join([subject.kind, str(width), str(height), str(path)])
        try:
            self.process.stdin.write(("check " if check else "") + line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"error": "it does not start or has crashed"}
        answer = self.process.stdout.readline()
        return json.loads(answer) if answer else {"error": "it does not start or has crashed"}

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def said(message: str) -> None:
    print(message, file=sys.stderr)


def child(interpreter: Path, *arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [str(interpreter), str(CHILD), *map(str, arguments)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT / "target",
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def workers(names: list[str]) -> dict[str, Worker]:
    made: dict[tuple[str, ...], Path] = {}
    found = {}
    for name in names:
        packages = PACKAGES[name]
        try:
            if packages not in made:
                made[packages] = environment(f"codecs-{name}", *packages)
        except subprocess.CalledProcessError:
            said(f"{name}: skipped, it cannot be installed")
            continue
        found[name] = Worker(name, made[packages])
    return found


def exact(subject: Subject, path: Path, worker: Worker, expected: dict[str, int]) -> bool:
    """Whether it reads all of the file, which is said if not."""
    answer = worker.ask(subject, path, check=True)
    if answer == expected:
        return True
    reason = answer.get("error") or f"it finds {answer}, not {expected}"
    said(f"{subject.file}: {worker.name} skipped: {reason}")
    return False


def measure(subject: Subject, path: Path, readers: list[Worker], rounds: int) -> dict[str, list[float]]:
    """Seconds a read, by reader and round."""
    found: dict[str, list[float]] = {reader.name: [] for reader in readers}
    repeats = {r.name: max(1, round(SECONDS_A_TURN / r.ask(subject, path)["seconds"])) for r in readers}
    for number in range(rounds):
        turn = number % len(readers)
        for reader in readers[turn:] + readers[:turn]:
            times = [reader.ask(subject, path)["seconds"] for _ in range(repeats[reader.name])]
            found[reader.name].append(statistics.median(times))
    return found


def row(subject: Subject, events: int, found: dict[str, list[float]]) -> list[str]:
    rates = {name: [events / seconds / 1e6 for seconds in times] for name, times in found.items()}
    ours = rates.pop("frames2py")
    fastest = max(rates, key=lambda name: statistics.median(rates[name]), default=None)
    if subject.rival in rates:
        fastest = subject.rival
    ratio, goal = "", ""
    if fastest is not None:
        ratios = [mine / other for mine, other in zip(ours, rates[fastest], strict=True)]
        middle = statistics.median(ratios)
        ratio = f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) x {fastest}"
        goal = f">= {subject.goal:g}: {'met' if middle >= subject.goal else 'missed'}"
    rest = sorted(rates, key=lambda name: -statistics.median(rates[name]))
    others = ", ".join(f"{name} {shown(rates[name])}" for name in rest)
    return [f"| {subject.kind}, {subject.file} | {shown(ours)} | {ratio} | {goal} | {others} |"]


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def judged(what: str, found: str, value: float, most: float, unit: str) -> str:
    return f"| {what} | {found} | <= {most:g}{unit}: {'met' if value <= most else 'missed'} |"


def memory_rows(interpreter: Path, files: dict[str, Path]) -> list[str]:
    if not sys.platform.startswith("linux"):
        said("memory is measured on Linux only")
        return []
    rows = []
    sizes = {subject.file: subject.size for subject in SUBJECTS}
    for name in STREAMED:
        if name not in files:
            continue
        answer = child(interpreter, "memory", files[name], *sizes[name])
        above, batch = answer["above"] / 2**20, answer["batch"] / 2**20
        found = f"{above - batch:.3g} MiB above a batch of {batch:.2g} MiB"
        rows.append(judged(f"memory while streaming {name}", found, above - batch, MOST_MEMORY, " MiB"))
    return rows


def index_rows(interpreter: Path, folder: Path, rounds: int) -> list[str]:
    path = folder / "long.raw"
    try:
        times = child(interpreter, "raw", RECORDINGS / LONG, path, LONG_BYTES)["times"]
        answer = child(interpreter, "index", path, rounds)
    finally:
        path.unlink(missing_ok=True)
    what = f"1 GB of EVT 3.0, {LONG} {times} times"
    index = f"{answer['ratio']:.2f} x a plain decode, which takes {answer['decode']:.2f} s"
    seek, slowest = answer["seek"] * 1e3, answer["slowest_seek"] * 1e3
    found = f"{seek:.2g} ms, at most {slowest:.2g} ms"
    return [
        judged(f"the index of {what}", index, answer["ratio"], MOST_INDEX, " x"),
        judged("a seek in it, and the first batch there", found, seek, MOST_SEEK, " ms"),
    ]


def play_rows(interpreter: Path, folder: Path, rounds: int) -> list[str]:
    rows = []
    for name, (width, height) in PLAYED:
        path = folder / f"long-{name}"
        try:
            child(interpreter, "raw", RECORDINGS / name, path, PLAYED_BYTES)
            answer = child(interpreter, "play", path, width, height, rounds)
        finally:
            path.unlink(missing_ok=True)
        rate = answer["events"] / answer["decode"] / 1e6
        found = f"{answer['ratio']:.2f} ({answer['lowest']:.2f} to {answer['highest']:.2f}) of"
        met = "met" if answer["ratio"] >= LEAST_PLAYED else "missed"
        what = f"`Engine.play()` of 100 MB of {name}, event_count"
        rows.append(f"| {what} | {found} decoding it, {rate:.3g} M events/s | >= {LEAST_PLAYED:g}: {met} |")
    return rows


def run(rounds: int, *, record: bool, quick: bool = False) -> None:
    """Measures and prints the tables; without the file of a gigabyte if `quick`."""
    with tempfile.TemporaryDirectory(prefix="frames2py-") as folder:
        measure_all(rounds, Path(folder), record=record, quick=quick)


def measure_all(rounds: int, folder: Path, *, record: bool, quick: bool) -> None:
    manifest = RECORDINGS / "MANIFEST.tsv"
    if not manifest.exists():
        sys.exit(f"no recordings in {RECORDINGS}; set FRAMES2PY_RECORDINGS")
    with manifest.open(newline="") as file:
        known = {line["file"]: line for line in csv.DictReader(file, delimiter="\t")}
    (ROOT / "target").mkdir(exist_ok=True)
    readers = workers(["frames2py", *dict.fromkeys(peer for subject in SUBJECTS for peer in subject.peers)])
    rows = []
    files = {}
    for number, subject in enumerate(SUBJECTS):
        if subject.made_of is None:
            path = RECORDINGS / subject.file
            names = ("events", "on", "sum_t", "sum_x", "sum_y")
            expected = {name: int(known[subject.file][name]) for name in names}
        elif "frames2py" in readers:
            recording, how = subject.made_of
            path = folder / f"{number}.{how}"
            expected = child(readers["frames2py"].interpreter, how, RECORDINGS / recording, path)
        else:
            continue
        files[subject.file] = path
        taking_part = [
            readers[name]
            for name in ("frames2py", *subject.peers)
            if name in readers and exact(subject, path, readers[name], expected)
        ]
        if not taking_part or taking_part[0].name != "frames2py":
            said(f"{subject.file}: not measured, as frames2py does not read it")
            continue
        rows += row(subject, expected["events"], measure(subject, path, taking_part, rounds))
    for reader in readers.values():
        reader.close()
    others = []
    if "frames2py" in readers:
        ours = readers["frames2py"].interpreter
        others += memory_rows(ours, files)
        others += play_rows(ours, folder, rounds)
        others += [] if quick else index_rows(ours, folder, rounds)
    table = [
        f"# Reading recordings, {datetime.date.today()}",
        "",
        f"{machine()}; Python {sys.version.split()[0]}. From opening a file to all of its events in",
        f"arrays, in millions of events per second. Medians of {rounds} interleaved rounds, with the",
        "smallest and the largest.",
        "`python -m benchmarks codecs` measures it again.",
        "",
        "| recording | this | ratio | goal | others |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
        "| what | found | goal |",
        "| --- | --- | --- |",
        *others,
    ]
    text = "\n".join(table) + "\n"
    print(text)
    if record:
        path = Path(__file__).with_name("results") / f"codecs-{datetime.date.today()}.md"
        path.write_text(text, encoding="utf-8")
