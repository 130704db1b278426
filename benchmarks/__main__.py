"""``python -m benchmarks NAME``: see each module, and docs/performance.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import codecs, detach, gate, publication
from .gate import report

SIMPLE = {
    "codecs": (codecs, "reading recordings, against the packages people use"),
    "detach": (detach, "when letting go of the interpreter pays"),
    "publication": (publication, "reading, waking and publishing, against frames2py 1.1.0"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = parser.add_subparsers(dest="name", required=True)
    for name, (_, what) in SIMPLE.items():
        arguments = names.add_parser(name, help=what)
        arguments.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
        arguments.add_argument("--record", action="store_true", help="write the table to benchmarks/results/")
        if name == "codecs":
            arguments.add_argument("--quick", action="store_true", help="without the file of a gigabyte")
    gate.add_arguments(names.add_parser("gate", help="every kernel, cell by cell, with goals"))
    arguments = names.add_parser("tables", help="the tables of docs/performance.md, from a CSV of the gate")
    arguments.add_argument("csv", type=Path)
    arguments.add_argument("page", type=Path, nargs="?", help="put them there and print nothing")
    chosen = parser.parse_args()
    if chosen.name == "gate":
        return gate.run(chosen)
    if chosen.name == "tables":
        if chosen.page:
            report.put_tables(chosen.csv, chosen.page)
        else:
            print(report.tables_of(chosen.csv))
        return 0
    if chosen.name == "codecs":
        codecs.run(chosen.rounds, record=chosen.record, quick=chosen.quick)
        return 0
    SIMPLE[chosen.name][0].run(chosen.rounds, record=chosen.record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
