"""What was measured, and the CSV it is kept in. Standard library only."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .cells import Cell, Sensor
from .spreads import Spread, ratios, spread


@dataclass
class Measured:
    """Rates of two subjects, round by round, in events a second. `problem`: why they do not count."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    problem: str | None = None
    problem_theirs: str | None = None

    @property
    def counts(self) -> bool:
        return bool(self.ours and self.theirs) and self.problem is None and self.problem_theirs is None

    @property
    def ratio(self) -> Spread:
        return ratios(self.ours, self.theirs)


@dataclass
class Results:
    """All of a run."""

    cells: dict[Cell, Measured] = field(default_factory=dict)
    # Other comparisons by id: `play/...` and `peer/...`, these against the peer.
    others: dict[str, Measured] = field(default_factory=dict)
    # Bytes a second by id: `read/10k`, `memcpy/<bytes>`, `memset/<bytes>`.
    physical: dict[str, list[float]] = field(default_factory=dict)
    # Seconds of (publishing what changed, copying the frame).
    tiles: list[tuple[float, float]] = field(default_factory=list)
    # Bytes by `memory/<level>/<kernel>`: ours, theirs.
    memory: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)

    def find(self, **wanted: object) -> Iterator[tuple[Cell, Measured]]:
        """The cells with these fields."""
        for cell, measured in self.cells.items():
            if all(getattr(cell, name) == value for name, value in wanted.items()):
                yield cell, measured


COLUMNS = [
    "id",
    *("level", "kernel", "width", "height", "events_per_call", "events", "cadence", "reading"),
    *("ours_low", "ours", "ours_high", "theirs_low", "theirs", "theirs_high"),
    *("ratio_low", "ratio", "ratio_high", "problem"),
]


def _number(value: float) -> str:
    return f"{value:.5g}" if value < 1e5 else f"{value:.0f}"


def _rates(measured: Measured) -> list[str]:
    row = []
    for values in (measured.ours, measured.theirs):
        found = spread(values) if values else None
        row += [_number(v) for v in (found.low, found.middle, found.high)] if found else [""] * 3
    if measured.ours and measured.theirs:
        found = measured.ratio
        row += [_number(v) for v in (found.low, found.middle, found.high)]
    else:
        row += [""] * 3
    problems = [measured.problem and f"ours: {measured.problem}"]
    problems += [measured.problem_theirs and f"theirs: {measured.problem_theirs}"]
    return [*row, "; ".join(p for p in problems if p)]


def rows(results: Results) -> Iterator[list[str]]:
    """The rows of the CSV. Rates are in events a second, physical rivals in bytes a second."""
    for cell, measured in results.cells.items():
        place = [cell.level, cell.label, *map(str, cell.sensor), str(cell.events)]
        yield [cell.id, *place, cell.kind, cell.cadence, cell.reading, *_rates(measured)]
    for name, measured in results.others.items():
        yield [name, name.split("/")[0], *[""] * 7, *_rates(measured)]
    for name, values in results.physical.items():
        yield [f"physical/{name}", "physical", *[""] * 7, *_rates(Measured(values))]


def write(path: Path, results: Results) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows(results))


@dataclass(frozen=True)
class Row:
    """A cell as the CSV has it: medians."""

    level: str
    kernel: str
    sensor: Sensor
    events: int
    kind: str
    cadence: str
    reading: str
    ours: float
    theirs: float
    ratio: float


def read(path: Path) -> list[Row]:
    """The cells of a CSV that count."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(_rows(csv.DictReader(file)))


def _rows(table: Iterable[dict[str, str]]) -> Iterator[Row]:
    for row in table:
        if row["width"] and row["ratio"] and not row["problem"]:
            yield Row(
                row["level"],
                row["kernel"],
                (int(row["width"]), int(row["height"])),
                int(row["events_per_call"]),
                row["events"],
                row["cadence"],
                row["reading"],
                float(row["ours"]),
                float(row["theirs"]),
                float(row["ratio"]),
            )
