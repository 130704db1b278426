"""EVT recordings of real cameras against what independent decoders found in them."""

from __future__ import annotations

import csv
import hashlib

import pytest
from evt_words import RECORDINGS

from frames2py.adapters import evt

pytestmark = pytest.mark.skipif(
    not (RECORDINGS / "MANIFEST.tsv").exists(),
    reason=f"no recordings in {RECORDINGS}; set FRAMES2PY_RECORDINGS",
)


def manifest():
    if not (RECORDINGS / "MANIFEST.tsv").exists():
        return []
    with (RECORDINGS / "MANIFEST.tsv").open(newline="") as file:
        return [row for row in csv.DictReader(file, delimiter="\t") if row["file"].endswith(".raw")]


@pytest.mark.parametrize("batch_size", [None, 4096])
@pytest.mark.parametrize("row", manifest(), ids=lambda row: row["file"])
def test_a_recording_decodes_to_the_manifests_events(row, batch_size):
    sensor_size = (640, 480) if "without geometry" in row["format"] else None
    digest = hashlib.sha256()
    found = dict.fromkeys(["events", "on", "sum_t", "sum_x", "sum_y", "backward_steps"], 0)
    first = last = None
    t_min, t_max, x_max, y_max = 2**64, -1, -1, -1
    with evt.open(RECORDINGS / row["file"], sensor_size=sensor_size, batch_size=batch_size) as reader:
        assert reader.format == row["format"][:3] + " " + row["format"][3:6]
        assert f"{reader.sensor_size[0]}x{reader.sensor_size[1]}" in row["sensor"] + row["format"]
        for batch in reader:
            digest.update(batch)
            times = batch["t"].astype("i8")
            found["events"] += len(batch)
            found["on"] += int((batch["p"] != 0).sum())
            found["sum_t"] += int(batch["t"].sum())
            found["sum_x"] += int(batch["x"].sum(dtype="u8"))
            found["sum_y"] += int(batch["y"].sum(dtype="u8"))
            found["backward_steps"] += int((times[1:] < times[:-1]).sum()) + (
                last is not None and last > times[0]
            )
            first = int(times[0]) if first is None else first
            last = int(times[-1])
            t_min, t_max = min(t_min, int(times.min())), max(t_max, int(times.max()))
            x_max, y_max = max(x_max, int(batch["x"].max())), max(y_max, int(batch["y"].max()))
    found |= {
        "t_first": first,
        "t_last": last,
        "t_min": t_min,
        "t_max": t_max,
        "x_max": x_max,
        "y_max": y_max,
    }
    found["sum_t"] %= 2**64
    assert found == {name: int(row[name]) for name in found}
    assert digest.hexdigest() == row["packed_sha256"]
