"""The manifest of real recordings: what independent decoders found in each."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from evt_words import RECORDINGS

MANIFEST = RECORDINGS / "MANIFEST.tsv"

needs_recordings = pytest.mark.skipif(
    not MANIFEST.exists(), reason=f"no recordings in {RECORDINGS}; set FRAMES2PY_RECORDINGS"
)


def rows(*suffixes: str) -> list[dict[str, str]]:
    """The manifest's rows of files with these suffixes; none without recordings."""
    if not MANIFEST.exists():
        return []
    with MANIFEST.open(newline="") as file:
        return [row for row in csv.DictReader(file, delimiter="\t") if row["file"].endswith(suffixes)]


def check(row: dict[str, str], batches: Iterable[np.ndarray[Any, Any]]) -> None:
    """Compares events with a row's counts, sums and digest."""
    digest = hashlib.sha256()
    events = np.concatenate(list(batches))
    digest.update(events)
    times = events["t"].astype("i8")
    found = {
        "events": len(events),
        "on": int((events["p"] != 0).sum()),
        "t_first": int(times[0]),
        "t_last": int(times[-1]),
        "t_min": int(times.min()),
        "t_max": int(times.max()),
        "x_max": int(events["x"].max()),
        "y_max": int(events["y"].max()),
        "sum_t": int(events["t"].sum()) % 2**64,
        "sum_x": int(events["x"].sum(dtype="u8")),
        "sum_y": int(events["y"].sum(dtype="u8")),
        "backward_steps": int((times[1:] < times[:-1]).sum()),
    }
    assert found == {name: int(row[name]) for name in found}
    assert digest.hexdigest() == row["packed_sha256"]
