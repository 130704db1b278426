"""Decodes the recordings into streams, with the package it runs with (frames2py 1.1.0).

    python -m benchmarks.gate.recordings RECORDINGS FOLDER

Prints one line for each that is there and right: its sensor."""

from __future__ import annotations

import csv
import hashlib
import sys
from pathlib import Path

import numpy as np

from frames2py.adapters import evt

from .cells import RECORDED, RECORDINGS
from .streams import DTYPE, path


def main(recordings: Path, folder: Path) -> None:
    expected = {}
    if (recordings / "MANIFEST.tsv").exists():
        with (recordings / "MANIFEST.tsv").open(newline="", encoding="utf-8") as file:
            expected = {row["file"]: row["packed_sha256"] for row in csv.DictReader(file, delimiter="\t")}
    for sensor, (name, has_geometry) in RECORDINGS.items():
        if not (recordings / name).exists():
            print(f"skipped: {name} is not in {recordings} (FRAMES2PY_RECORDINGS)", file=sys.stderr)
            continue
        with evt.open(recordings / name, sensor_size=None if has_geometry else sensor) as reader:
            events = np.concatenate(list(reader))
        assert events.dtype == DTYPE
        digest = hashlib.sha256(events.tobytes()).hexdigest()
        if digest != expected.get(name, digest):
            print(f"skipped: {name} decodes to other events than its manifest says", file=sys.stderr)
            continue
        events.tofile(path(folder, RECORDED, sensor))
        print(*sensor)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
