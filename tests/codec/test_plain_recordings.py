"""Real recordings in DAT and Event Stream against what independent decoders found in them."""

from __future__ import annotations

import numpy as np
import pytest
from evt_words import RECORDINGS
from manifest import check, needs_recordings, rows

import frames2py
from frames2py import _core
from frames2py.adapters import dat, es, npy, text

pytestmark = needs_recordings
OPEN = {".dat": dat.open, ".es": es.open}


def suffix(row):
    return "." + row["file"].rsplit(".", 1)[1]


@pytest.mark.parametrize("batch_size", [None, 4096])
@pytest.mark.parametrize("row", rows(".dat", ".es"), ids=lambda row: row["file"])
def test_a_recording_decodes_to_the_manifests_events(row, batch_size):
    with OPEN[suffix(row)](RECORDINGS / row["file"], batch_size=batch_size, strict=True) as reader:
        assert "{}x{}".format(*reader.sensor_size) in row["sensor"]
        check(row, reader)
        assert reader.report.events == int(row["events"])
        assert sum(reader.report.word_bytes.values()) == reader.report.bytes


@pytest.mark.parametrize("row", rows(".dat", ".es"), ids=lambda row: row["file"])
def test_it_is_known_by_its_content(row):
    reader = _core.FileReader(str(RECORDINGS / row["file"]))
    assert reader.format.split()[0].lower() in row["format"].lower()


@pytest.mark.parametrize("name", ["dat", "es", "csv", "npz"])
@pytest.mark.parametrize("row", rows(".dat", ".es")[:2], ids=lambda row: row["file"])
def test_what_is_written_decodes_to_the_manifests_events(row, name, tmp_path):
    path = tmp_path / f"again.{name}"
    with OPEN[suffix(row)](RECORDINGS / row["file"]) as reader:
        if name == "npz":
            assert npy.save_npz(path, reader, reader.sensor_size) == int(row["events"])
        else:
            encoder = _core.FileEncoder(name, reader.sensor_size)
            with path.open("wb") as file:
                for batch in reader:
                    file.write(encoder.encode(batch))
                tail, patches = encoder.finish()
                file.write(tail)
                assert patches == []
        size = reader.sensor_size
    with {"dat": dat, "es": es, "csv": text, "npz": npy}[name].open(path) as reader:
        assert reader.sensor_size == (None if name == "csv" else size)
        check(row, reader)


def test_a_recording_without_a_size_plays_on_the_engines_sensor(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("t,x,y,p\n1,2,0,1\n2,5,0,1\n")
    engine = frames2py.Engine((3, 1), snapshot_interval_ms=0)
    with text.open(path) as reader:
        assert engine.play(reader, speed=None).join(60)
    assert engine.snapshot().frame.tolist() == np.array([[0, 0, 1]]).tolist()
    assert engine.stats.events_out_of_bounds == 1
