"""The goals, and whether a run reached them. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .cells import (
    ACCUMULATE,
    CONSUMER,
    EACH_CALL,
    ENGINE,
    EVENTS_PER_US,
    EVERY,
    HOT_PIXEL,
    NOBODY,
    OUTSIDE_10,
    UNIFORM,
    Cell,
    short,
)
from .results import Measured, Results
from .spreads import figures, geometric_mean, ratio, spread

RECORD_BYTES = 13
# Events a second.
FAST = 40e6
WINDOWED = ("event_count", "polarity")


@dataclass(frozen=True)
class Outcome:
    """A goal, what was measured, and whether that meets it: `None` if it was not measured."""

    what: str
    goal: str
    measured: str
    met: bool | None


def _outcome(what: str, goal: str, measured: str, met: bool, refused: list[str]) -> Outcome:
    if refused:
        measured += f"; {len(refused)} refused, such as {refused[0]}"
    return Outcome(what, goal, measured, met and not refused)


def _cells(found: Iterable[tuple[Cell, Measured]]) -> tuple[list[tuple[Cell, Measured]], list[str]]:
    """Those that count, and the ids of those that do not because we are wrong."""
    found = list(found)
    refused = [cell.id for cell, measured in found if measured.problem is not None]
    return [(cell, measured) for cell, measured in found if measured.counts], refused


def _not_measured(what: str, goal: str) -> Outcome:
    return Outcome(what, goal, "not measured", None)


def _mean_and_lowest(what: str, results: Results, labels: list[str], mean: float, lowest: float) -> Outcome:
    goal = f"geometric mean >= {mean:g}x, no cell below {lowest:g}x"
    chosen = [pair for label in labels for pair in results.find(level=ACCUMULATE, label=label)]
    good, refused = _cells(chosen)
    if not chosen or not (good or refused):
        return _not_measured(what, goal)
    if not good:
        return _outcome(what, goal, "nothing that counts", False, refused)
    values = {cell.id: measured.ratio.middle for cell, measured in good}
    average, worst = geometric_mean(list(values.values())), min(values, key=values.__getitem__)
    measured = f"{figures(average)}x; lowest {figures(values[worst])}x, {worst}; {len(values)} cells"
    return _outcome(what, goal, measured, average >= mean and values[worst] >= lowest, refused)


def _lowest(
    what: str,
    goal: str,
    found: Iterable[tuple[Cell, Measured]],
    value: Callable[[Measured], float],
    least: float,
    unit: str = "x",
    most: Callable[[Cell, Measured], float] = lambda _cell, _measured: float("inf"),
) -> Outcome:
    """The lowest value of the cells, but for those that could not get there if a kernel took no time at all:
    `most` is what they could."""
    good, refused = _cells(found)
    beyond = sorted(cell.id for cell, measured in good if most(cell, measured) < least)
    good = [(cell, measured) for cell, measured in good if cell.id not in beyond]
    if beyond:
        what += f" ({len(beyond)} of {len(good) + len(beyond)} left out: memory alone takes longer)"
    if not good:
        if refused:
            return _outcome(what, goal, "nothing that counts", False, refused)
        return _not_measured(what, goal)
    values = {cell.id: value(measured) for cell, measured in good}
    worst = min(values, key=values.__getitem__)
    below = sum(v < least for v in values.values())
    measured = f"lowest {figures(values[worst])}{unit}, {worst}; {below} of {len(values)} cells below"
    if beyond:
        measured += f"; left out: {', '.join(beyond)}"
    return _outcome(what, goal, measured, below == 0, refused)


def _ratio(measured: Measured) -> float:
    return measured.ratio.middle


def _accumulate(results: Results) -> Iterator[Outcome]:
    for label in ("event_count", "polarity", "time_surface", "exp_decay"):
        yield _mean_and_lowest(f"accumulate: {label}", results, [label], 3, 1.5)
    yield _mean_and_lowest("accumulate: timestamp_decay", results, ["timestamp_decay"], 4, 2)
    histograms = ["histogram-5", "histogram-10", "histogram-15"]
    yield _mean_and_lowest("accumulate: histogram", results, histograms, 8, 4)
    yield _mean_and_lowest("accumulate: voxel", results, ["voxel-5", "voxel-15"], 8, 4)


def _engine(results: Results) -> Iterator[Outcome]:
    def found(label: str, *readings: str) -> list[tuple[Cell, Measured]]:
        where = {"level": ENGINE, "label": label, "sensor": (1280, 720), "events": 10_000, "kind": UNIFORM}
        chosen = results.find(**where, cadence=EACH_CALL)
        return [pair for pair in chosen if pair[0].reading in readings]

    def most_rate(cell: Cell, _measured: Measured) -> float:
        return _most(results, cell) / 1e6

    def most_ratio(cell: Cell, measured: Measured) -> float:
        return _most(results, cell) / spread(measured.theirs).middle

    place = "Engine, publication on every call, 10k events, 1280x720"
    for label in ("event_count", "polarity", "time_surface"):
        chosen = found(label, NOBODY, CONSUMER, EVERY)
        yield _lowest(f"{place}: {label}", ">= 6x, however read", chosen, _ratio, 6, most=most_ratio)
    for label in ("histogram-10", "voxel-5", "voxel-15"):
        chosen = found(label, NOBODY, CONSUMER)
        yield _lowest(f"the same: {label}, nobody or one 16 ms consumer reads", ">= 60x", chosen, _ratio, 60)
        yield _lowest(
            f"the same: {label}, every publication is read", ">= 2x", found(label, EVERY), _ratio, 2
        )
    every_cell = results.find(level=ENGINE)
    yield _lowest("every Engine cell", ">= 1.5x", every_cell, _ratio, 1.5, most=most_ratio)
    for reading, words in ((NOBODY, "nobody reads"), (CONSUMER, "one 16 ms consumer"), (EVERY, "all read")):
        chosen = [pair for pair in results.find(level=ENGINE, reading=reading) if pair[0].events >= 10_000]
        yield _lowest(
            f"every Engine cell with 10k or more events per call, {words}",
            f">= {FAST / 1e6:g} M events/s",
            chosen,
            lambda measured: spread(measured.ours).middle / 1e6,
            FAST / 1e6,
            " M/s",
            most_rate,
        )


def _most(results: Results, cell: Cell) -> float:
    """Events a second if nothing took any time but what memory takes where every publication is read.

    That is looking at the frame, and before that writing it: memory that a reader was shown is written whole,
    with surfaces as a copy, of twice as many bytes with decays. A frame of time bins is the same for all
    publications within a bin."""
    if cell.reading != EVERY:
        return float("inf")
    size = cell.kernel.frame_bytes(cell.sensor)
    works = {"look": 1.0}
    if cell.label in WINDOWED:
        works["memset"] = 1.0
    elif cell.kernel.window_us:
        works["memset"] = min(1.0, cell.unit / EVENTS_PER_US / cell.kernel.bin_us)
    else:
        works["memcpy"] = 1.5 if "decay" in cell.label else 1.0
    rates = {work: results.physical.get(f"{work}/{size}") for work in works}
    seconds = sum(works[work] * size / spread(rate).middle for work, rate in rates.items() if rate)
    return cell.unit / seconds if seconds else float("inf")


def _peer(results: Results) -> Outcome:
    what, goal = "event_count, 640x480, 100k calls, frames included, against EdgeMapAccumulator", ">= 1.3x"
    measured = results.others.get("peer/dv-processing/EdgeMapAccumulator")
    if measured is None:
        return _not_measured(what, goal)
    if not measured.counts:
        if measured.problem is None:
            return _not_measured(what, goal)
        return Outcome(what, goal, measured.problem, False)
    return Outcome(what, goal, f"{measured.ratio}x", measured.ratio.middle >= 1.3)


def _compared(results: Results, kind: str, what: str, least: float) -> Outcome:
    """Our own rate with events of a kind against that with uniform ones."""
    goal = f">= {least:g} of uniform"
    values, refused = {}, []
    for cell, measured in results.find(kind=kind):
        fields = cell.to_json() | {"kind": UNIFORM}
        uniform = results.cells.get(Cell.from_json(fields))
        if measured.problem is not None:
            refused.append(cell.id)
        elif uniform is not None and uniform.problem is None and measured.ours and uniform.ours:
            values[cell.id] = ratio(measured.ours, uniform.ours)
    if not values and not refused:
        return _not_measured(what, goal)
    if not values:
        return _outcome(what, goal, "nothing that counts", False, refused)
    worst = min(values, key=values.__getitem__)
    below = sum(v < least for v in values.values())
    measured_text = f"lowest {figures(values[worst])}, {worst}; {below} of {len(values)} cells below"
    return _outcome(what, goal, measured_text, below == 0, refused)


def _read_pass(results: Results) -> Outcome:
    what, goal = "event_count accumulate at 346x260, against a bare read pass", ">= 0.35"
    values, refused = {}, []
    where = {"level": ACCUMULATE, "label": "event_count", "sensor": (346, 260), "kind": UNIFORM}
    for cell, measured in results.find(**where):
        read = results.physical.get(f"read/{short(cell.events)}")
        if measured.problem is not None:
            refused.append(cell.id)
        elif read and measured.ours:
            values[cell.id] = ratio([rate * RECORD_BYTES for rate in measured.ours], read)
    if not values:
        return (
            _outcome(what, goal, "nothing that counts", False, refused)
            if refused
            else _not_measured(what, goal)
        )
    worst = min(values, key=values.__getitem__)
    listed = ", ".join(f"{name.split('/')[3]} {figures(value)}" for name, value in values.items())
    return _outcome(what, goal, listed, values[worst] >= 0.35, refused)


def _memory(results: Results) -> Outcome:
    what, goal = "peak temporary memory of a call of 1M events", "<= 256 KiB"
    found = {name: ours for name, (ours, _) in results.memory.items() if ours is not None}
    if not found:
        return _not_measured(what, goal)
    worst = max(found, key=found.__getitem__)
    above = sum(size > 256 * 1024 for size in found.values())
    measured = f"largest {found[worst] / 1024:.0f} KiB, {worst}; {above} of {len(found)} above"
    return Outcome(what, goal, measured, above == 0)


def _tiles(results: Results) -> Outcome:
    what = "publication of a time surface, 1/16 of its rows changed, 1280x720, against memcpy of the frame"
    goal = "<= 0.25"
    if not results.tiles:
        return _not_measured(what, goal)
    found = spread([publication / copy for publication, copy in results.tiles])
    return Outcome(what, goal, str(found), found.middle <= 0.25)


def outcomes(results: Results) -> list[Outcome]:
    """Every goal."""
    return [
        *_accumulate(results),
        *_engine(results),
        _peer(results),
        _compared(results, OUTSIDE_10, "10 % of the events out of bounds", 0.85),
        _compared(results, HOT_PIXEL, "90 % of the events on one pixel", 0.7),
        _read_pass(results),
        _memory(results),
        _tiles(results),
    ]


def all_met(found: list[Outcome], results: Results) -> bool:
    """Whether all goals that could be measured are met, and nothing of ours was refused."""
    measured = [*results.cells.values(), *results.others.values()]
    return all(o.met is not False for o in found) and all(m.problem is None for m in measured)
