"""The gate: every kernel against frames2py 1.1.0 and against the machine, cell by cell, with goals.

Sets up the environments, then runs ``driver`` in the harness's own, which has NumPy for the oracle and
matplotlib for the picture."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from ..setup import RIVAL, ROOT, VENVS, environment, kept_environment

# NumPy is the same everywhere, or readers would be compared as well.
NUMPY = "numpy"
HARNESS = ["matplotlib>=3.9", "tqdm>=4.66", NUMPY]
PEERS = ["dv-processing", "tonic", "eventcv", "evlib"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, help="interleaved rounds (default: 5)")
    parser.add_argument(
        "--cells", metavar="PATTERN", help="only cells with this in their id; * stands for anything"
    )
    parser.add_argument("--quick", action="store_true", help="a selection of cells, in a few minutes")
    parser.add_argument("--record", action="store_true", help="write the results to benchmarks/results/")
    parser.add_argument("--list", action="store_true", help="print the ids of the cells and stop")
    parser.add_argument("--no-fail", action="store_true", help="exit with 0 also when goals are missed")


def run(arguments: argparse.Namespace) -> int:
    """Runs the gate; the exit status says whether all goals that could be measured are met."""
    from .cells import everything, quick, select

    chosen = select(quick() if arguments.quick else everything(), arguments.cells)
    if arguments.list:
        print("\n".join(cell.id for cell in chosen))
        return 0
    if not chosen:
        print(f"no cell has {arguments.cells!r} in its id; --list shows them", file=sys.stderr)
        return 2
    say("environments (kept in target/benchmarks)")
    harness, rival = kept_environment("harness", *HARNESS), kept_environment("gate-rival", RIVAL, NUMPY)
    if harness is None or rival is None:
        return 2
    peers = {name: kept_environment(f"gate-{name}", name, NUMPY) for name in PEERS}
    say("this package, built for release")
    ours = environment("gate-ours", ".", NUMPY)
    settings = {
        "ours": str(ours),
        "rival": str(rival),
        "peers": {name: path and str(path) for name, path in peers.items()},
        "rounds": arguments.rounds or 5,
        "quick": arguments.quick,
        "cells": arguments.cells,
        "record": arguments.record,
        "no_fail": arguments.no_fail,
        "work": str(VENVS / "gate-work"),
    }
    # Without the settings of whoever runs this: a subject must find its own package.
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    command = [str(harness), "-m", "benchmarks.gate.driver", json.dumps(settings)]
    return subprocess.run(command, check=False, cwd=ROOT, env=clean).returncode


def say(text: str) -> None:
    print(f"==> {text}", file=sys.stderr, flush=True)
