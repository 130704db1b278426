"""The harness's oracle against the naive one, and that a subject that is wrong does not get past it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import oracle as naive
import pytest

from benchmarks.gate import cells, oracle, streams
from benchmarks.gate.cells import BASE, Cell, Kernel
from benchmarks.gate.processes import Worker, check, workers

SENSOR = (7, 5)


def model(kernel: Kernel) -> naive.Model:
    width, height = SENSOR
    if kernel.name == "exp_decay":
        return naive.ExpDecay(width, height, kernel.decay)
    if kernel.name == "timestamp_decay":
        return naive.TimestampDecay(width, height, kernel.tau_us)
    if kernel.name == "stacked_histogram":
        return naive.StackedHistogram(width, height, kernel.bins, kernel.bin_us)
    if kernel.name == "voxel_grid":
        return naive.VoxelGrid(width, height, kernel.bins, kernel.bin_us)
    names = {"event_count": naive.EventCount, "polarity": naive.Polarity, "time_surface": naive.TimeSurface}
    return names[kernel.name](width, height)


def some_calls() -> list[streams.Events]:
    rng = np.random.default_rng(3)
    events = np.zeros(300, streams.DTYPE)
    events["x"], events["y"] = rng.integers(0, 9, 300), rng.integers(0, 6, 300)  # some are outside
    events["p"] = rng.integers(0, 4, 300)
    events["t"] = BASE + rng.integers(0, 90_000, 300)  # in no order
    return [events[:120], events[120:121], events[121:]]


@pytest.mark.parametrize("kernel", cells.KERNELS, ids=lambda kernel: kernel.label)
@pytest.mark.parametrize("window", [0, 2])
def test_the_two_oracles_agree(kernel, window):
    calls = some_calls()
    expected = naive.AccumulatorModel(model(kernel))
    for i, call in enumerate(calls):
        if i == window:
            expected.model.close_window()
        expected.accumulate(tuple(int(v) for v in event.tolist()) for event in call)
    found = oracle.frame(kernel, SENSOR, calls, window)
    naive.check_frame(found.astype(kernel.dtype), expected.model, expected.watermark)
    assert oracle.difference(kernel, SENSOR, found, found.astype(kernel.dtype)) is None


@pytest.mark.parametrize("kernel", cells.KERNELS, ids=lambda kernel: kernel.label)
def test_one_wrong_value_is_a_difference(kernel):
    expected = oracle.frame(kernel, SENSOR, some_calls(), 0)
    got = expected.astype(kernel.dtype)
    where = tuple(int(n) // 2 for n in got.shape)
    for step in [2] if kernel.name.endswith("decay") else [1, 2]:
        wrong = got.copy()
        for _ in range(step):
            wrong[where] = (
                np.nextafter(wrong[where], np.float32(1e9)) if got.dtype.kind == "f" else wrong[where] + 1
            )
        problem = oracle.difference(kernel, SENSOR, expected, wrong)
        assert problem is not None and problem.startswith(f"1 of {got.size} values differ; at {where} ")
    assert oracle.difference(kernel, SENSOR, expected, got[..., :-1]) is not None
    assert oracle.difference(kernel, SENSOR, expected, got.astype(">" + kernel.dtype)) is not None
    if kernel.name.endswith("decay"):
        assert oracle.difference(kernel, SENSOR, expected, np.full_like(got, np.nan)) is not None


# A package of that API in a few lines of NumPy, for event_count, with a choice of faults.
SUBJECT = """
import os
import numpy as np
from types import SimpleNamespace as Names

fault = os.environ["FAULT"]

class Accumulator:
    def __init__(self, sensor_size, kernel):
        self.size, self.watermark, self.events_out_of_bounds = sensor_size, None, 0
        self.clear()

    def clear(self):
        self.frame = np.zeros(self.size[::-1], np.uint32)

    def accumulate(self, events):
        inside = events[(events["x"] < self.size[0]) & (events["y"] < self.size[1])]
        if fault == "loses an event":
            inside = inside[1:]
        if fault == "raises":
            raise OverflowError("too many")
        if fault == "ends":
            os._exit(7)
        np.add.at(self.frame, (inside["y"], inside["x"]), 1)
        self.events_out_of_bounds += len(events) - len(inside)
        if fault == "miscounts":
            self.events_out_of_bounds += 1
        self.watermark = int(events["t"].max())

    def read(self):
        return self.frame.astype("i4") if fault == "another type" else self.frame.copy()

class Engine(Accumulator):
    count, latest = 0, None

    def __init__(self, sensor_size, kernel, *, snapshot_interval_ms):
        super().__init__(sensor_size, kernel)
        self.interval = snapshot_interval_ms

    def ingest(self, events):
        self.accumulate(events)
        if self.interval == 0 or self.count == 0:
            self.publish()

    def publish(self):
        self.count += 1
        fresh = Names(frame=self.read(), meta=Names(watermark=self.watermark, sequence=self.count))
        if not (fault == "shows an old frame" and self.latest):
            self.latest = fresh
        self.latest.meta.watermark = self.watermark
        if fault != "keeps the window":
            self.clear()

    def stop(self):
        self.publish()

    def start(self): pass

    def snapshot(self):
        return self.latest

    @property
    def stats(self):
        return Names(events_out_of_bounds=self.events_out_of_bounds, snapshots_published=self.count)
"""
ACCUMULATE = Cell("accumulate", "event_count", (346, 260), 1_000, "outside-10%")
ENGINE = Cell("engine", "event_count", (346, 260), 1_000, "outside-10%", "each-call", "every")
RARELY = Cell("engine", "event_count", (346, 260), 100_000, "outside-10%", "16ms", "every")
FAULTS = {
    "none": None,
    "loses an event": "out_of_bounds should be",
    "raises": "OverflowError: too many",
    "ends": "the process ended with 7",
    "miscounts": "out_of_bounds should be",
    "another type": "a frame is (260, 346) uint32, got (260, 346) int32",
    "shows an old frame": "values differ",
    "keeps the window": "values differ",
}
ENGINES_ONLY = ("shows an old frame", "keeps the window")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    for kind, count in [("uniform", 20_000), ("outside-10%", 850_000)]:
        streams.synthetic(kind, (346, 260), count).tofile(streams.path(folder, kind, (346, 260)))
    (folder / "frames2py").mkdir()
    (folder / "frames2py" / "__init__.py").write_text(SUBJECT, encoding="utf-8")
    return folder


@pytest.mark.parametrize("cell", [ACCUMULATE, ENGINE, RARELY], ids=lambda cell: cell.id)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_subject_is_refused(folder: Path, tmp_path: Path, fault: str, cell: Cell):
    environment = os.environ | {"PYTHONPATH": str(folder), "FAULT": fault}
    subject = Worker(sys.executable, "worker", str(folder), environment=environment)
    try:
        with workers((sys.executable, "oracle", str(folder))) as [judge]:
            problem = check(subject, judge, cell, str(tmp_path / "frame"))
    finally:
        subject.close()
    expected = FAULTS[fault]
    if expected is None or (cell.level == "accumulate" and fault in ENGINES_ONLY):
        assert problem is None
    else:
        assert problem is not None and expected in problem


def test_this_package_is_accepted_and_timed(folder: Path, tmp_path: Path):
    with workers((sys.executable, "worker", str(folder)), (sys.executable, "oracle", str(folder))) as [
        ours,
        judge,
    ]:
        for kernel in cells.KERNELS:
            for reading in ["", "nobody", "consumer", "every"]:
                level, cadence = ("engine", "each-call") if reading else ("accumulate", "")
                cell = Cell(level, kernel.label, (346, 260), 1_000, "uniform", cadence, reading)
                assert check(ours, judge, cell, str(tmp_path / "frame")) is None
                timed = ours.ask(do="time", cell=cell.to_json(), budget=1e-6)
                assert timed["rate"] > 0 and timed["calls"] >= 1
        assert ours.ask(do="physical", what="read", size=1_000, budget=1e-6)["rate"] > 0
        assert "error" in ours.ask(do="time", cell=cell.to_json() | {"label": "histogram-1000"}, budget=1e-6)
