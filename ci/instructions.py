"""Counts the instructions of the workloads in benches/instructions.rs with callgrind.

    python ci/instructions.py              compares with ci/instructions.tsv; fails on a rise of more than 5 %
    python ci/instructions.py --record     writes ci/instructions.tsv anew

Counts are the same on every run, whatever else the machine does. They do depend on the compiler, on valgrind
(which processor it imitates decides which code is chosen at run time: valgrind 3.19 knows AVX2 and not
AVX-512) and on the C library's memory functions. All of that is recorded with the counts. Where it differs
from what is recorded, the counts are shown and decide nothing."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "ci" / "instructions.tsv"
RECORD = "ci/instructions.sh --record"
# In percent.
TOLERANCE = 5
# The function that does the counted work.
COUNTED = "instructions::measured"


def output(*command: str | Path, env: dict[str, str] | None = None) -> str:
    words = list(map(str, command))
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT).stdout


def build() -> Path:
    """The benchmark's executable."""
    command = "cargo bench --no-run --locked --bench instructions --message-format json-render-diagnostics"
    for line in output(*command.split()).splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "instructions":
            return Path(message["executable"])
    raise SystemExit("cargo built no benchmark called instructions")


def valgrind(binary: Path, workload: str | None, counts: str) -> str:
    """What the program prints under callgrind, which writes its counts to a file."""
    command = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={counts}"]
    command += [f"--toggle-collect={COUNTED}*", str(binary), *([workload] if workload else [])]
    # The size of the environment moves the stack, and alignment moves counts.
    return output(*command, env={"PATH": os.environ["PATH"]})


def count(binary: Path, workload: str, folder: str) -> int:
    path = f"{folder}/counts"
    valgrind(binary, workload, path)
    match = re.search(r"^(?:summary|totals): (\d+)$", Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    if not match or not int(match[1]):
        raise SystemExit(f"callgrind counted nothing in {workload!r}: is there still a function {COUNTED}?")
    return int(match[1])


def read(path: Path) -> tuple[dict[str, str], dict[str, int]]:
    """What the recorded counts depend on, and the counts."""
    circumstances, counts = {}, {}
    for line in path.read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition("\t")
        if left.startswith("# "):
            circumstances[left[2:]] = right
        elif line:
            counts[left] = int(right)
    return circumstances, counts


def write(path: Path, circumstances: dict[str, str], counts: dict[str, int]) -> None:
    lines = [f"# {name}\t{value}" for name, value in circumstances.items()]
    lines += [f"{name}\t{value}" for name, value in counts.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def compare(recorded: dict[str, int], counts: dict[str, int]) -> tuple[list[str], list[str]]:
    """Lines that show all counts, and what is wrong."""
    lines, wrong = [], []
    for name in [*recorded, *(name for name in counts if name not in recorded)]:
        if name not in counts:
            wrong.append(f"{name}: recorded, but there is no such workload any more")
        elif name not in recorded:
            wrong.append(f"{name}: not recorded")
            lines.append(f"{name:45} {'-':>13} {counts[name]:13,}")
        else:
            change = counts[name] / recorded[name] - 1
            lines.append(f"{name:45} {recorded[name]:13,} {counts[name]:13,} {change:+8.1%}")
            if counts[name] * 100 > recorded[name] * (100 + TOLERANCE):
                wrong.append(f"{name}: {change:+.1%} instructions")
    return lines, wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="write the counts to ci/instructions.tsv")
    arguments = parser.parse_args()
    binary = build()
    with tempfile.TemporaryDirectory() as folder:
        features, *workloads = valgrind(binary, None, f"{folder}/none").splitlines()
        counts = {}
        for workload in workloads:
            counts[workload] = count(binary, workload, folder)
            print(f"{workload:45} {counts[workload]:13,}", flush=True)
    circumstances = {
        "rustc": output("rustc", "--version").strip(),
        "valgrind": output("valgrind", "--version").strip(),
        "processor as valgrind shows it": features,
        "C library": " ".join(platform.libc_ver()),
    }
    if arguments.record:
        write(RECORDED, circumstances, counts)
        print(f"\nwritten: {RECORDED.relative_to(ROOT)}")
        return 0
    if not RECORDED.exists():
        print(f"\nnothing is recorded; {RECORD} does that")
        return 1
    recorded_with, recorded = read(RECORDED)
    lines, wrong = compare(recorded, counts)
    print(f"\n{'instructions':45} {'recorded':>13} {'now':>13}   change", *lines, sep="\n")
    differs = [
        f"{name}: recorded with {recorded_with.get(name)!r}, here {value!r}"
        for name, value in circumstances.items()
        if recorded_with.get(name) != value
    ]
    if differs:
        print("\nnot judged, as the counts were recorded elsewhere:", *differs, sep="\n  ")
        return 0
    if wrong:
        print("\nwrong:", *wrong, sep="\n  ")
        print(f"if that is meant, {RECORD} writes the counts anew")
        return 1
    print(f"\nno count rose by more than {TOLERANCE} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
