"""AEDAT recordings of real cameras against what independent decoders found in them."""

from __future__ import annotations

import csv
import hashlib

import pytest
from evt_words import RECORDINGS

from frames2py.adapters import aedat, aedat4

pytestmark = pytest.mark.skipif(
    not (RECORDINGS / "MANIFEST.tsv").exists(),
    reason=f"no recordings in {RECORDINGS}; set FRAMES2PY_RECORDINGS",
)


def manifest():
    if not (RECORDINGS / "MANIFEST.tsv").exists():
        return []
    with (RECORDINGS / "MANIFEST.tsv").open(newline="") as file:
        return [row for row in csv.DictReader(file, delimiter="\t") if ".aedat" in row["file"]]


def open_row(row, **options):
    module = aedat4 if row["file"].endswith(".aedat4") else aedat
    return module.open(RECORDINGS / row["file"], **options)


@pytest.mark.parametrize("batch_size", [None, 4096])
@pytest.mark.parametrize("row", manifest(), ids=lambda row: row["file"])
def test_a_recording_decodes_to_the_manifests_events(row, batch_size):
    digest = hashlib.sha256()
    found = dict.fromkeys(["events", "on", "sum_t", "sum_x", "sum_y", "backward_steps"], 0)
    times, last = [], None
    x_max, y_max = -1, -1
    with open_row(row, batch_size=batch_size, strict=True) as reader:
        assert reader.format.replace(" ", "") == row["format"].replace(" ", "")[:8]
        assert f"{reader.sensor_size[0]}x{reader.sensor_size[1]}" in row["sensor"]
        for batch in reader:
            digest.update(batch)
            t = batch["t"].astype("i8")
            found["events"] += len(batch)
            found["on"] += int((batch["p"] != 0).sum())
            found["sum_t"] += int(batch["t"].sum())
            found["sum_x"] += int(batch["x"].sum(dtype="u8"))
            found["sum_y"] += int(batch["y"].sum(dtype="u8"))
            found["backward_steps"] += int((t[1:] < t[:-1]).sum()) + (last is not None and last > t[0])
            last = int(t[-1])
            times += [int(t[0]), last, int(t.min()), int(t.max())]
            x_max, y_max = max(x_max, int(batch["x"].max())), max(y_max, int(batch["y"].max()))
        report = reader.report
    found |= {"t_first": times[0], "t_last": last, "t_min": min(times), "t_max": max(times)}
    found |= {"x_max": x_max, "y_max": y_max}
    found["sum_t"] %= 2**64
    assert found == {name: int(row[name]) for name in found}
    assert digest.hexdigest() == row["packed_sha256"]
    assert report.events == found["events"]
    # Every byte of the body is accounted for.
    assert sum(report.word_bytes.values()) == report.bytes


@pytest.mark.parametrize("row", manifest(), ids=lambda row: row["file"])
def test_an_interrupted_recording_is_read_up_to_its_end(row, tmp_path):
    """Cut in the middle, so that the table is missing while the header of some still states its place."""
    whole = (RECORDINGS / row["file"]).read_bytes()
    path = tmp_path / row["file"]
    path.write_bytes(whole[: len(whole) // 2])
    module = aedat4 if row["file"].endswith(".aedat4") else aedat
    with open_row(row) as reader:
        expected = b"".join(batch.tobytes() for batch in reader)
    with module.open(path) as reader:
        found = b"".join(batch.tobytes() for batch in reader)
    assert 0.1 < len(found) / len(expected) < 1
    assert expected.startswith(found)
