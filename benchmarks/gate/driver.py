"""Runs the gate in the harness's own environment: checks, rounds, report.

    python -m benchmarks.gate.driver SETTINGS

SETTINGS is what ``gate.run`` makes, as JSON."""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..setup import ROOT
from . import goals, memory, report, streams
from .cells import KERNELS, RECORDED, RECORDINGS, UNIFORM, Cell, everything, quick, select, short
from .processes import Worker, check, judged, workers
from .results import Measured, Results

# Seconds measured of a cell, per subject and round.
BUDGET, QUICK_BUDGET = 0.06, 0.03
PLAY_BATCH = 65_536
PEER_ROWS = {
    "dv-processing": ["EdgeMapAccumulator"],
    "eventcv": ["count", "voxel"],
    "tonic": ["ToFrame", "ToVoxelGrid"],
    "evlib": ["create_stacked_histogram", "create_voxel_grid"],
}


class Gate:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.ours, self.rival = settings["ours"], settings["rival"]
        self.folder = Path(settings["work"])
        self.quick: bool = settings["quick"]
        self.rounds: int = settings["rounds"]
        self.budget = QUICK_BUDGET if self.quick else BUDGET
        self.results = Results()
        self.sensors_recorded: list[tuple[int, int]] = []
        self.bar: Any = None

    def wanted(self, name: str) -> bool:
        pattern = self.settings["cells"]
        return not pattern or fnmatch.fnmatchcase(name, f"*{pattern}*")

    def say(self, text: str) -> None:
        if self.bar is None:
            print(f"==> {text}", file=sys.stderr, flush=True)
        else:
            self.bar.write(text, file=sys.stderr)

    def run(self) -> int:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        cells = self.prepare_cells()
        grouped = itertools.groupby(cells, lambda cell: (cell.label, cell.sensor))
        groups = [kinds_together(group) for _, group in grouped]
        versions = {}
        with workers(
            (self.ours, "worker", str(self.folder)), (self.rival, "worker", str(self.folder))
        ) as pair:
            for name, worker in zip(("ours", "theirs"), pair, strict=True):
                versions[name] = worker.ask(do="versions")
        plays, peers, probes = self.plays(), self.peers(), self.memory_probes()
        play_rounds = min(self.rounds, 1 if self.quick else 3)
        steps = len(cells) * (1 + self.rounds) + len(plays) * play_rounds
        steps += len(peers) * self.rounds + len(probes)
        # Says nothing where standard error is not a terminal.
        with tqdm(total=steps, disable=None, dynamic_ncols=True, smoothing=0.02) as self.bar:
            self.say(f"{len(cells)} cells, {self.rounds} rounds")
            for group in groups:
                self.check(group)
            for number in range(self.rounds):
                for group in groups:
                    self.time(group, number)
                for name in peers:
                    self.time_peer(name, number)
                if number < play_rounds:
                    self.time_plays(plays, number)
            for probe in probes:
                self.probe_memory(*probe)
        self.bar = None
        found = goals.outcomes(self.results)
        report.publish(self.results, found, versions, self.settings)
        if self.settings["no_fail"] or goals.all_met(found, self.results):
            return 0
        return 1

    def prepare_cells(self) -> list[Cell]:
        """The cells that can be measured; their streams are made."""
        self.say("streams of events")
        recordings = os.environ.get("FRAMES2PY_RECORDINGS") or str(ROOT.parent / "shared" / "recordings")
        self.recordings = Path(recordings)
        decode = [self.rival, "-m", "benchmarks.gate.recordings", recordings, str(self.folder)]
        done = subprocess.run(decode, check=False, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            self.say(f"skipped: recordings cannot be decoded (exit status {done.returncode})")
        else:
            for line in done.stdout.splitlines():
                width, height = map(int, line.split())
                self.sensors_recorded.append((width, height))
        chosen = select(quick() if self.quick else everything(), self.settings["cells"])
        cells = [c for c in chosen if c.kind != RECORDED or c.sensor in self.sensors_recorded]
        if len(cells) < len(chosen):
            self.say(f"skipped: {len(chosen) - len(cells)} cells with recorded events")
        for kind, sensor in sorted({(c.kind, c.sensor) for c in cells} | {("uniform", (346, 260))}):
            if kind != RECORDED:
                streams.write(self.folder, kind, sensor)
        self.results.cells = {cell: Measured() for cell in cells}
        return cells

    # --- is it right? ---------------------------------------------------------------------------

    def check(self, group: list[Cell]) -> None:
        with self.frames_folder() as out, ExitStack() as stack:
            [oracle] = stack.enter_context(workers((sys.executable, "oracle", str(self.folder))))
            pair = stack.enter_context(
                workers((self.ours, "worker", str(self.folder)), (self.rival, "worker", str(self.folder)))
            )
            for cell in group:
                measured = self.results.cells[cell]
                problems = [check(worker, oracle, cell, f"{out}/frame") for worker in pair]
                measured.problem, measured.problem_theirs = problems
                for who, problem in zip(("this", "frames2py 1.1.0"), problems, strict=True):
                    if problem:
                        self.say(f"refused: {cell.id}: {who}: {problem}")
                self.bar.update()

    @contextmanager
    def frames_folder(self) -> Iterator[str]:
        """Where frames are handed to the oracle: in memory, where the system has such a place."""
        place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(self.folder)
        with tempfile.TemporaryDirectory(prefix="frames2py-gate-", dir=place) as folder:
            yield folder

    # --- how fast is it? ------------------------------------------------------------------------

    def time(self, group: list[Cell], number: int) -> None:
        """One round of a group: new processes, and each cell for one right after the other."""
        with workers(
            (self.ours, "worker", str(self.folder)), (self.rival, "worker", str(self.folder))
        ) as pair:
            for i, cell in enumerate(group):
                self.bar.set_postfix_str(cell.id, refresh=False)
                measured = self.results.cells[cell]
                if measured.problem is None:
                    order = [0, 1] if (i + number) % 2 else [1, 0]
                    found: dict[int, float] = {}
                    for which in order:
                        answer = pair[which].ask(do="time", cell=cell.to_json(), budget=self.budget)
                        if "error" in answer:
                            self.fail(cell, which, answer["error"])
                        else:
                            found[which] = answer["rate"]
                    if len(found) == 2:
                        measured.ours.append(found[0])
                        measured.theirs.append(found[1])
                self.bar.update()
            self.physical(group, pair[0])

    def fail(self, cell: Cell, which: int, error: str) -> None:
        measured = self.results.cells[cell]
        if which == 0:
            measured.problem = error
        else:
            measured.problem_theirs = error
        self.say(f"refused: {cell.id}: {'frames2py 1.1.0' if which else 'this'}: {error}")

    def physical(self, group: list[Cell], worker: Worker) -> None:
        """What the machine itself takes, in the same process as our cells."""
        wanted: dict[str, tuple[str, int]] = {}
        first = group[0]
        if first.label == "event_count" and first.sensor == (346, 260):
            for events in sorted({c.events for c in group if c.kind == "uniform"}):
                wanted[f"read/{short(events)}"] = ("read", events)
        size = first.kernel.frame_bytes(first.sensor)
        for what in ("memcpy", "memset", "look"):
            wanted[f"{what}/{size}"] = (what, size)
        for name, (what, size) in wanted.items():
            answer = worker.ask(do="physical", what=what, size=size, budget=self.budget)
            if "error" in answer:
                self.say(f"not measured: {name}: {answer['error']}")
            else:
                self.results.physical.setdefault(name, []).append(answer["rate"])
        if (first.label, first.sensor) == ("time_surface", (1280, 720)):
            answer = worker.ask(do="tiles", sensor=first.sensor, budget=4 * self.budget)
            if "error" in answer:
                self.say(f"not measured: tiles: {answer['error']}")
            else:
                self.results.tiles.append((answer["publication"], answer["memcpy"]))

    # --- from a file to frames --------------------------------------------------------------------

    def plays(self) -> list[tuple[str, tuple[int, int], str]]:
        sensors = self.sensors_recorded[:1] if self.quick else self.sensors_recorded
        made = [(k.label, s, how) for s in sensors for k in KERNELS for how in ("native", "ingest")]
        return [play for play in made if self.wanted(play_id(*play))]

    def time_plays(self, plays: list[tuple[str, tuple[int, int], str]], number: int) -> None:
        with self.frames_folder() as out, ExitStack() as stack:
            [oracle] = stack.enter_context(workers((sys.executable, "oracle", str(self.folder))))
            ours, theirs = stack.enter_context(
                workers((self.ours, "worker", str(self.folder)), (self.rival, "worker", str(self.folder)))
            )
            rival: dict[object, dict[str, Any]] = {}
            for label, sensor, how in plays:
                name, has_geometry = RECORDINGS[sensor]
                request = {
                    "do": "play",
                    "path": str(self.recordings / name),
                    "has_geometry": has_geometry,
                    "label": label,
                    "sensor": sensor,
                    "batch": PLAY_BATCH,
                    "out": f"{out}/played.npy",
                }
                measured = self.results.others.setdefault(play_id(label, sensor, how), Measured())
                if (label, sensor) not in rival:
                    rival[label, sensor] = judged(theirs, oracle, request | {"how": "ingest"}, number)
                found = judged(ours, oracle, request | {"how": how}, number), rival[label, sensor]
                measured.problem = measured.problem or found[0].get("error")
                measured.problem_theirs = measured.problem_theirs or found[1].get("error")
                if "error" not in found[0] and "error" not in found[1]:
                    measured.ours.append(found[0]["rate"])
                    measured.theirs.append(found[1]["rate"])
                self.bar.update()

    # --- peers ------------------------------------------------------------------------------------

    def peers(self) -> list[str]:
        names = []
        for package, rows in PEER_ROWS.items():
            if self.settings["peers"].get(package) and not (self.quick and package != "dv-processing"):
                names += [f"peer/{package}/{row}" for row in rows]
        return [name for name in names if self.wanted(name)]

    def time_peer(self, name: str, number: int) -> None:
        _, package, row = name.split("/")
        measured = self.results.others.setdefault(name, Measured())
        found = {}
        for who in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
            interpreter = self.ours if who == "ours" else self.settings["peers"][package]
            with workers((interpreter, "peers", "ours" if who == "ours" else package)) as [worker]:
                found[who] = worker.ask(row=f"{package}/{row}", budget=4 * self.budget)
        for who, attribute in (("ours", "problem"), ("theirs", "problem_theirs")):
            error = found[who].get("error")
            if error and getattr(measured, attribute) is None:
                setattr(measured, attribute, error)
                self.say(f"refused: {name}: {who}: {error}")
        if "error" not in found["ours"] and "error" not in found["theirs"]:
            measured.ours.append(found["ours"]["rate"])
            measured.theirs.append(found["theirs"]["rate"])
        self.bar.update()

    # --- memory -------------------------------------------------------------------------------------

    def memory_probes(self) -> list[tuple[str, str]]:
        if not sys.platform.startswith("linux"):
            return []
        levels = memory.LEVELS[:1] if self.quick else memory.LEVELS
        made = [(level, kernel.label) for level in levels for kernel in KERNELS]
        return [probe for probe in made if self.wanted("/".join(("memory", *probe)))]

    def probe_memory(self, level: str, label: str) -> None:
        found: list[int | None] = []
        for interpreter in (self.ours, self.rival):
            command = [interpreter, "-m", "benchmarks.gate.memory", label, level]
            done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                self.say(f"not measured: memory/{level}/{label}: {done.stderr.strip().splitlines()[-1:]}")
            found.append(int(done.stdout) if done.returncode == 0 else None)
        self.results.memory[f"memory/{level}/{label}"] = (found[0], found[1])
        self.bar.update()


def kinds_together(cells: Iterable[Cell]) -> list[Cell]:
    """Cells that differ only in the kind of their events, which are compared, one right after the other."""
    alike: dict[Cell, list[Cell]] = {}
    for cell in cells:
        alike.setdefault(dataclasses.replace(cell, kind=UNIFORM), []).append(cell)
    return [cell for together in alike.values() for cell in together]


def play_id(label: str, sensor: tuple[int, int], how: str) -> str:
    return f"play/{label}/{sensor[0]}x{sensor[1]}/{how}"


def main() -> int:
    gate = Gate(json.loads(sys.argv[1]))
    try:
        return gate.run()
    finally:
        shutil.rmtree(gate.folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
