"""docs/pytorch.md, "Recordings through a DataLoader", and its example file."""

import functools
import importlib.util
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from torch_frames import make_events

import frames2py

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "pytorch_dataset.py"


def load_example():
    spec = importlib.util.spec_from_file_location("pytorch_dataset", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_evt2(path, records, geometry="4x3"):
    """(t, x, y, p) records with t rising, as EVT 2.0 words: TIME_HIGH 0x8, CD 0x0 (OFF) and 0x1 (ON)."""
    words, high = [], None
    for t, x, y, p in records:
        if t >> 6 != high:
            high = t >> 6
            words.append(0x8 << 28 | high)
        words.append(p << 28 | (t & 63) << 22 | x << 11 | y)
    header = b"% evt 2.0\n" + (f"% geometry {geometry}\n".encode() if geometry else b"") + b"% end\n"
    path.write_bytes(header + np.array(words, dtype="<u4").tobytes())
    return path


def scattered(count, seed):
    rng = np.random.default_rng(seed)
    t = np.cumsum(rng.integers(0, 40, count)).tolist()
    return [(t[i], int(rng.integers(4)), int(rng.integers(3)), int(rng.integers(2))) for i in range(count)]


def naive_polarity(records):
    """(H, W, 2) counts as nested lists."""
    frame = [[[0, 0] for _ in range(4)] for _ in range(3)]
    for _, x, y, p in records:
        frame[y][x][p] += 1
    return frame


@pytest.fixture
def synthetic(tmp_path):
    contents = [scattered(23, 1), scattered(10, 2), scattered(7, 3)]
    paths = [write_evt2(tmp_path / f"{i}.raw", records) for i, records in enumerate(contents)]
    return paths, contents


def test_every_frame_holds_its_events_and_the_last_the_rest(synthetic):
    paths, contents = synthetic
    dataset = load_example().RecordingFrames(paths, frames2py.Polarity, events_per_frame=5)
    items = list(dataset)
    expected = []
    for recording, records in enumerate(contents):
        for start in range(0, len(records), 5):
            part = records[start : start + 5]
            expected.append((recording, max(t for t, *_ in part), naive_polarity(part)))
    got = [(item["recording"], item["t_us"], item["frame"].tolist()) for item in items]
    assert got == expected
    assert [int(item["frame"].sum()) for item in items] == [5, 5, 5, 5, 3, 5, 5, 5, 2]


def test_items_are_tensors_of_their_own(synthetic):
    paths, _ = synthetic
    items = list(load_example().RecordingFrames(paths[:1], frames2py.Polarity, events_per_frame=5))
    for item in items[1:]:
        item["frame"].zero_()
    assert int(items[0]["frame"].sum()) == 5


def test_any_kernel_through_a_partial(synthetic):
    paths, contents = synthetic
    make_kernel = functools.partial(frames2py.VoxelGrid, bins=2, bin_us=50)
    items = list(load_example().RecordingFrames(paths, make_kernel, events_per_frame=1000))
    assert len(items) == 3
    for item, records in zip(items, contents, strict=True):
        accumulator = frames2py.Accumulator((4, 3), frames2py.VoxelGrid(bins=2, bin_us=50))
        accumulator.accumulate(make_events(records))
        assert item["frame"].tolist() == accumulator.read().tolist()


def test_a_frame_without_an_event_on_the_sensor_is_left_out(tmp_path):
    records = [(1, 0, 0, 1), (2, 1, 0, 1), (3, 9, 0, 1), (4, 0, 9, 1), (5, 2, 0, 1), (6, 9, 9, 0)]
    path = write_evt2(tmp_path / "beyond.raw", records)
    items = list(load_example().RecordingFrames([path], frames2py.EventCount, events_per_frame=2))
    assert [(item["t_us"], int(item["frame"].sum())) for item in items] == [(2, 2), (5, 1)]


def test_a_recording_without_geometry_takes_the_sensor_size(tmp_path):
    path = write_evt2(tmp_path / "bare.raw", [(1, 0, 0, 1)], geometry=None)
    make = functools.partial(load_example().RecordingFrames, [path], frames2py.EventCount, events_per_frame=2)
    with pytest.raises(ValueError, match="geometry"):
        list(make())
    (item,) = make(sensor_size=(6, 5))
    assert tuple(item["frame"].shape) == (5, 6)


def test_polarity_image_is_chw_from_0_to_1(synthetic):
    example = load_example()
    counts = torch.tensor([[[2, 0], [1, 4]]]).to(torch.uint32)
    image = example.polarity_image(counts)
    assert image.dtype == torch.float32
    assert image.tolist() == [[[0.5, 0.25]], [[0.0, 1.0]]]
    assert example.polarity_image(torch.zeros((1, 2, 2), dtype=torch.uint32)).tolist() == [[[0, 0]], [[0, 0]]]


def test_the_loader_batches_frames_indices_and_times(synthetic):
    paths, contents = synthetic
    example = load_example()
    dataset = example.RecordingFrames(
        paths, frames2py.Polarity, events_per_frame=5, transform=example.polarity_image
    )
    batches = list(torch.utils.data.DataLoader(dataset, batch_size=4))
    assert [tuple(batch["frame"].shape) for batch in batches] == [(4, 2, 3, 4), (4, 2, 3, 4), (1, 2, 3, 4)]
    assert {batch["frame"].dtype for batch in batches} == {torch.float32}
    assert {batch["t_us"].dtype for batch in batches} == {torch.int64}
    assert [r for batch in batches for r in batch["recording"].tolist()] == [0] * 5 + [1] * 2 + [2] * 2
    assert batches[-1]["t_us"].tolist() == [contents[2][-1][0]]


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_the_example_reports_the_same_whatever_the_workers(synthetic, workers):
    paths, contents = synthetic
    # PyTorch advises against more workers than cores; a small machine may have fewer than this test asks for.
    options = ["-W", "error", "-W", "ignore:This DataLoader will create:UserWarning"]
    done = subprocess.run(
        [sys.executable, *options, EXAMPLE, *paths, "--workers", str(workers), "--events", "5"],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{path}: {-(-len(records) // 5)} frames, the last at {records[-1][0]} us"
        for path, records in zip(paths, contents, strict=True)
    ]


def test_a_real_recording_loses_no_event(recordings):
    name = "sparklers.evt2.raw"
    lines = (recordings / "MANIFEST.tsv").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith(name)]
    row = dict(zip(lines[0].split("\t"), line.split("\t"), strict=True))
    dataset = load_example().RecordingFrames(
        [recordings / name], frames2py.Polarity, events_per_frame=50_000, sensor_size=(640, 480)
    )
    counts, latest = torch.zeros(2, dtype=torch.int64), 0
    for item in dataset:
        counts += item["frame"].to(torch.int64).sum(dim=(0, 1))
        latest = max(latest, item["t_us"])
    assert int(counts.sum()) == int(row["events"])
    assert int(counts[1]) == int(row["on"])
    assert latest == int(row["t_max"])


class LiveFrames(torch.utils.data.IterableDataset):
    """The page's consumer loop as a data set, until the event at `last_us` was seen."""

    def __init__(self, engine, last_us):
        super().__init__()
        self.engine, self.last_us = engine, last_us

    def __iter__(self):
        sequence = None
        while (snapshot := self.engine.wait_for_newer(sequence, timeout=30.0)) is not None:
            sequence = snapshot.meta.sequence
            yield torch.from_numpy(snapshot.copy()).to(torch.int64), sequence
            if snapshot.meta.watermark == self.last_us:
                return


def test_a_live_engine_feeds_a_loader_without_workers():
    engine = frames2py.Engine((4, 3), frames2py.TimeSurface(), snapshot_interval_ms=0)

    def produce():
        for t in range(1, 51):
            engine.ingest(make_events([(t, t % 4, t % 3, 1)]))

    producer = threading.Thread(target=produce)
    producer.start()
    batches = list(torch.utils.data.DataLoader(LiveFrames(engine, 50), batch_size=3, num_workers=0))
    producer.join()
    sequences = [s for _, sequence in batches for s in sequence.tolist()]
    assert sequences == sorted(set(sequences)), "never one twice"
    frames = torch.cat([frame for frame, _ in batches])
    assert int(frames[-1].max()) == 50
    assert bool((frames.amax(dim=(1, 2)).diff() > 0).all())
