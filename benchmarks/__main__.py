"""``python -m benchmarks {publication,detach,codecs} [--rounds N] [--record]``: see each module."""

from __future__ import annotations

import argparse

from . import codecs, detach, publication

BENCHMARKS = {"codecs": codecs.run, "detach": detach.run, "publication": publication.run}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=BENCHMARKS)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--record", action="store_true", help="write the table to benchmarks/results/")
    arguments = parser.parse_args()
    BENCHMARKS[arguments.name](arguments.rounds, record=arguments.record)


if __name__ == "__main__":
    main()
