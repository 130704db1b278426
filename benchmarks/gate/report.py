"""The gate's output: tables as text, a CSV and a picture."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..setup import RIVAL
from . import machine
from .cells import ACCUMULATE, BY_LABEL, EACH_CALL, ENGINE, KERNELS, SENSORS, UNIFORM
from .goals import Outcome
from .results import Results, Row, read, write
from .spreads import figures, geometric_mean, spread

RESULTS = Path(__file__).parents[1] / "results"
READINGS = {"nobody": "nobody reads", "consumer": "one 16 ms consumer", "every": "every one is read"}


def table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def goal_table(outcomes: list[Outcome]) -> list[str]:
    words = {True: "yes", False: "**no**", None: "-"}
    rows = ([o.what, o.goal, o.measured, words[o.met]] for o in outcomes)
    return table(["what", "goal", "measured", "met"], rows)


# --- from the CSV -------------------------------------------------------------------------------


def rate_tables(rows: list[Row]) -> list[str]:
    """Rates in M events/s with uniform events, the stock package first, for docs/performance.md."""
    lines: list[str] = []
    rows = [row for row in rows if row.kind == UNIFORM]
    for title, wanted in _places():
        found = {(r.kernel, r.sensor): r for r in rows if wanted(r)}
        if not found:
            continue
        sensors = [s for s in SENSORS if any(sensor == s for _, sensor in found)]
        body = []
        for kernel in KERNELS:
            if not any((kernel.label, s) in found for s in sensors):
                continue
            for who in ("theirs", "ours", "ratio"):
                named = {"theirs": RIVAL, "ours": "this", "ratio": "ratio"}[who]
                row = [kernel.label if who == "theirs" else "", named]
                for s in sensors:
                    cell = found.get((kernel.label, s))
                    value = getattr(cell, who) if cell else None
                    shown = figures(value / 1e6 if who != "ratio" else value) if value is not None else "-"
                    row.append(f"{shown}x" if who == "ratio" and value is not None else shown)
                body.append(row)
        head = ["kernel", "M events/s", *(f"{w}x{h}" for w, h in sensors)]
        lines += ["", f"**{title}**", "", *table(head, body)]
    return lines[1:]


def _places() -> Iterator[tuple[str, Any]]:
    yield "accumulate, 100k events per call", lambda r: r.level == ACCUMULATE and r.events == 100_000
    for reading, words in READINGS.items():
        yield (
            f"Engine, a publication on every call of 10k events, {words}",
            lambda r, reading=reading: (
                (r.level, r.events, r.cadence, r.reading) == (ENGINE, 10_000, EACH_CALL, reading)
            ),
        )


def ratio_table(rows: list[Row]) -> list[str]:
    """Geometric mean, lowest and highest ratio for each kernel, over all sensors, sizes and events."""
    groups = {"accumulate": "", **{f"Engine, {words}": reading for reading, words in READINGS.items()}}
    body = []
    for kernel in KERNELS:
        row = [kernel.label]
        for reading in groups.values():
            found = [r.ratio for r in rows if r.kernel == kernel.label and r.reading == reading]
            row.append(
                f"{figures(geometric_mean(found))} ({figures(min(found))} to {figures(max(found))})"
                if found
                else "-"
            )
        body.append(row)
    return table(["kernel", *groups], body)


BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"


def tables_of(path: Path) -> str:
    """What docs/performance.md shows of a recorded CSV."""
    rows, name = read(path), f"../benchmarks/results/{path.stem}"
    intro = [
        f"`{path.stem}`: [the whole report]({name}.md), [all cells]({name}.csv). Geometric mean of",
        "the ratios (lowest to highest) over all cells of a kernel:",
        "",
    ]
    pictured = f"![a dot for each cell: its ratio, by kernel and by who reads]({name}.png)"
    return "\n".join([*intro, *ratio_table(rows), "", pictured, "", *rate_tables(rows), ""])


def put_tables(path: Path, page: Path) -> None:
    """Puts the tables where the page has them."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{page} has no place for tables: {BEGIN.strip()} and {END.strip()}")
    page.write_text(f"{before}{BEGIN}{tables_of(path)}{END}{after}", encoding="utf-8")


# --- a run --------------------------------------------------------------------------------------


def markdown(
    results: Results, outcomes: list[Outcome], versions: dict[str, Any], settings: dict[str, Any], csv: Path
) -> str:
    rows = read(csv)
    ours, theirs = versions["ours"], versions["theirs"]
    refused = [
        f"- {name}: {who}: {problem}"
        for name, measured in [
            *((cell.id, m) for cell, m in results.cells.items()),
            *results.others.items(),
        ]
        for who, problem in (("this", measured.problem), (RIVAL, measured.problem_theirs))
        if problem
    ]
    others = [
        [name, str(_millions(m.theirs)), str(_millions(m.ours)), f"{m.ratio}x"]
        for name, m in results.others.items()
        if m.counts
    ]
    taken = [[name, _kib(other), _kib(this)] for name, (this, other) in results.memory.items()]
    met = [o.met for o in outcomes]
    what = "quick selection" if settings["quick"] else "whole gate"
    if settings["cells"]:
        what += f", cells with {settings['cells']!r}"
    return "\n".join(
        [
            f"# Gate, {datetime.date.today()}",
            "",
            f"This ({ours['frames2py']}) against {RIVAL}, {what}: {len(results.cells)} cells, medians of"
            f" {settings['rounds']} interleaved rounds (smallest to largest). `python -m benchmarks gate`"
            " measures it again; docs/performance.md says what is measured and how.",
            "",
            *table(
                ["machine", ""],
                [
                    *([name, value] for name, value in machine.facts().items()),
                    ["Python", ours["python"]],
                    [
                        "NumPy",
                        ours["numpy"]
                        + ("" if ours["numpy"] == theirs["numpy"] else f" and {theirs['numpy']}"),
                    ],
                ],
            ),
            "",
            "## Ratios",
            "",
            "Geometric mean (lowest to highest) over all sensors, sizes and kinds of events.",
            "",
            *ratio_table(rows),
            "",
            "## Rates",
            "",
            *rate_tables(rows),
            "",
            "## Files and other packages",
            "",
            "M events/s. `play`: bytes of a RAW file to published frames, a publication for each 65,536",
            f"events, against reading batches and ingesting them with {RIVAL}. `peer`: the nearest a package",
            "has, in its own definition.",
            "",
            *table(["what", "the other", "this", "ratio"], others),
            "",
            "## The machine itself",
            "",
            *table(["what", "GB/s"], _physical(results)),
            "",
            "## Memory",
            "",
            "The most a call of 1M events takes beyond what is there after calls of 1,000 and 100,000.",
            "",
            *table(["what", RIVAL, "this"], taken),
            "",
            "## Refused",
            "",
            *(refused or ["Nothing."]),
            "",
            "## Goals",
            "",
            *goal_table(outcomes),
            "",
            f"{met.count(True)} met, {met.count(False)} missed, {met.count(None)} not measured.",
            "",
        ]
    )


def _millions(rates: list[float]) -> Any:
    return spread([rate / 1e6 for rate in rates])


def _kib(size: int | None) -> str:
    return "-" if size is None else f"{size / 1024:.0f} KiB"


def _physical(results: Results) -> Iterator[list[str]]:
    for name, rates in results.physical.items():
        what, of = name.split("/")
        words = {
            "read": f"read pass over a batch of {of} events",
            "memcpy": f"memcpy of a frame of {of} bytes",
            "memset": f"memset of a frame of {of} bytes",
            "look": f"looking at a frame of {of} bytes, as readers here do",
        }
        yield [words[what], str(spread([rate / 1e9 for rate in rates]))]


def picture(path: Path, rows: list[Row]) -> None:
    """Every cell's ratio, a row for each kernel."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter

    groups = {"accumulate": "", **{f"Engine, {words}": reading for reading, words in READINGS.items()}}
    colours = ["#4c4c4c", "#0072b2", "#009e73", "#d55e00"]
    figure, axes = plt.subplots(figsize=(10, 6.5), layout="constrained")
    labels = [label for label in BY_LABEL if any(r.kernel == label for r in rows)]
    for g, ((name, reading), colour) in enumerate(zip(groups.items(), colours, strict=True)):
        chosen = [r for r in rows if r.reading == reading]
        y = [labels.index(r.kernel) + (g - 1.5) * 0.2 for r in chosen]
        axes.scatter([r.ratio for r in chosen], y, s=14, alpha=0.55, color=colour, label=name, linewidths=0)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.axvline(1.5, color="black", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    for set_formatter in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        set_formatter(FuncFormatter(lambda x, _: f"{x:g}x" if str(x)[0] in "125" or x < 1 else ""))
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel(f"events a second, as a multiple of {RIVAL} (a dot is a cell; dotted: 1.5x)")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def publish(
    results: Results, outcomes: list[Outcome], versions: dict[str, Any], settings: dict[str, Any]
) -> None:
    """Prints the report; with `record`, also keeps it, with CSV and picture, under benchmarks/results/."""
    folder = RESULTS if settings["record"] else Path(settings["work"]).parent
    name = f"gate-{datetime.date.today()}-{machine.slug()}" + ("-quick" if settings["quick"] else "")
    csv = folder / f"{name}.csv"
    write(csv, results)
    text = markdown(results, outcomes, versions, settings, csv)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    picture(folder / f"{name}.png", read(csv))
    print(text)
    print(f"{folder / name}: .md, .csv and .png")
