"""What every cell must show, reckoned with plain NumPy from all events at once; a process of its own.

``frame()`` is the oracle. Run as a program it reads requests, one JSON object a line: a cell with what a
subject made of the cell's check, and answers whether that is right. See ``worker.Subject.check``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import streams
from .cells import ACCUMULATE, BY_LABEL, EVERY, RECORDED, Cell, Kernel, Sensor
from .streams import Events

Frame = npt.NDArray[Any]


def inside(events: Events, sensor: Sensor) -> npt.NDArray[np.bool_]:
    return (events["x"] < sensor[0]) & (events["y"] < sensor[1])


def frame(kernel: Kernel, sensor: Sensor, calls: list[Events], window: int) -> Frame:
    """What `kernel` shows after `calls` from the first; a windowed kernel's window begins with call number
    `window`. Float kernels: float64, to be rounded by whoever compares."""
    width, height = sensor
    pixels = width * height
    if kernel.name in ("event_count", "polarity"):
        calls = calls[window:]
    if kernel.name == "exp_decay":
        surface = np.zeros(pixels)
        for call in calls:
            kept = call[inside(call, sensor)]
            surface = surface * kernel.decay + np.bincount(
                kept["y"].astype(np.int64) * width + kept["x"], minlength=pixels
            )
        return surface.reshape(height, width)

    events = np.concatenate(calls) if len(calls) != 1 else calls[0]
    events = events[inside(events, sensor)]
    t = events["t"].astype(np.int64)
    at = events["y"].astype(np.int64) * width + events["x"]
    on = (events["p"] != 0).astype(np.int64)
    watermark = int(t.max()) if len(t) else 0
    shape = kernel.frame_shape(sensor)
    match kernel.name:
        case "event_count":
            return np.bincount(at, minlength=pixels).astype(np.uint32).reshape(shape)
        case "polarity":
            return np.bincount(at * 2 + on, minlength=pixels * 2).astype(np.uint32).reshape(shape)
        case "time_surface":
            latest = np.zeros(pixels, np.uint64)
            np.maximum.at(latest, at, events["t"])
            return latest.reshape(shape)
        case "timestamp_decay":
            weights = np.exp((t - watermark) / kernel.tau_us)
            return np.bincount(at, weights, minlength=pixels).reshape(shape)
        case "stacked_histogram":
            bin_ = t // kernel.bin_us - (watermark // kernel.bin_us - kernel.bins)
            shown = (bin_ >= 0) & (bin_ < kernel.bins)
            index = (on[shown] * kernel.bins + bin_[shown]) * pixels + at[shown]
            counts = np.bincount(index, minlength=2 * kernel.bins * pixels)
            return counts.astype(np.uint32).reshape(shape)
        case "voxel_grid":
            knot, rest = (
                t // kernel.bin_us - (watermark // kernel.bin_us - kernel.bins + 1),
                t % kernel.bin_us,
            )
            shown = (knot >= 0) & (knot < kernel.bins - 1)
            knot, rest, at, sign = knot[shown], rest[shown], at[shown], 2 * on[shown] - 1
            numerators = np.zeros(kernel.bins * pixels, np.int64)
            np.add.at(numerators, knot * pixels + at, sign * (kernel.bin_us - rest))
            np.add.at(numerators, (knot + 1) * pixels + at, sign * rest)
            return (numerators / float(kernel.bin_us)).astype(np.float32).reshape(shape)
    raise ValueError(f"no oracle for {kernel.name}")


def difference(kernel: Kernel, sensor: Sensor, expected: Frame, got: Frame) -> str | None:
    """What is wrong with a frame, if anything is. Decays may be off by one unit in the last place of float32,
    all else is equal to the last bit."""
    shape, dtype = kernel.frame_shape(sensor), np.dtype(kernel.dtype)
    if got.shape != shape or got.dtype != dtype:
        return f"a frame is {shape} {dtype}, got {got.shape} {got.dtype}"
    if kernel.name in ("exp_decay", "timestamp_decay"):
        near = expected.astype(np.float32)
        # The sums here are rounded, too, some orders below.
        slack = np.spacing(np.abs(near)).astype(float) * 1.001 + np.abs(expected) * 1e-11
        wrong = ~(np.abs(got.astype(float) - expected) <= slack)
    else:
        wrong = got != expected
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    where = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), shape))
    return (
        f"{count} of {wrong.size} values differ; at {where} {expected[where]} is expected, got {got[where]}"
    )


class Oracle:
    """Judges checks. Remembers the stream and the expected frames of the last cell: the next may need
    them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stream: tuple[object, Events] | None = None
        self.expected: dict[tuple[object, int], Frame] = {}

    def events(self, cell: Cell) -> tuple[Events, int]:
        key = (cell.kind, cell.sensor)
        if self.stream is None or self.stream[0] != key:
            self.stream = (key, streams.load(self.folder, cell.kind, cell.sensor))
        return streams.for_check(self.stream[1], cell)

    def verdict(self, cell: Cell, report: dict[str, Any]) -> str | None:
        """What is wrong with what a subject reported, if anything is."""
        events, units = self.events(cell)
        good = inside(events, cell.sensor)
        facts = {
            "watermark": int(events["t"][good].max()) if good.any() else None,
            "out_of_bounds": int(np.count_nonzero(~good)),
            # The first call publishes, and then each unit.
            "published": None if cell.level == ACCUMULATE else units + (cell.calls_per_publication > 1),
        }
        for name, value in facts.items():
            if report[name] != value:
                return f"{name} should be {value}, is {report[name]}"
        if {unit for unit, _ in report["frames"]} != checked_units(cell, units):
            return f"frames of publications {report['frames']}"
        for unit, path in report["frames"]:
            expected = self.frame_after(cell, events, unit)
            problem = difference(cell.kernel, cell.sensor, expected, np.load(path, mmap_mode="r"))
            if problem:
                return f"after publication {unit}: {problem}"
        return None

    def verdict_of_play(self, request: dict[str, Any]) -> str | None:
        """What is wrong with the last frame of a recording played with a publication on every call."""
        kernel, sensor = BY_LABEL[request["label"]], tuple(request["sensor"])
        events, size = streams.load(self.folder, RECORDED, sensor), request["batch"]
        calls = [events[i : i + size] for i in range(0, len(events), size)]
        expected = frame(kernel, sensor, calls, len(calls) - 1)
        return difference(kernel, sensor, expected, np.load(request["out"], mmap_mode="r"))

    def frame_after(self, cell: Cell, events: Events, unit: int) -> Frame:
        key = (*cell.state, cell.events)
        if (key, unit) not in self.expected:
            # Of this cell only: frames are large.
            self.expected = {k: v for k, v in self.expected.items() if k[0] == key}
        found = self.expected.get((key, unit))
        if found is None:
            per_unit = cell.calls_per_publication
            calls = [events[i : i + cell.events] for i in range(0, unit * cell.unit, cell.events)]
            window = 0
            if cell.level != ACCUMULATE:
                # The first call publishes by itself, which begins a window, too.
                window = (unit - 1) * per_unit if unit > 1 or per_unit == 1 else 1
            found = frame(cell.kernel, cell.sensor, calls, window)
            self.expected[key, unit] = found
        return found


def checked_units(cell: Cell, units: int) -> set[int]:
    """The publications whose frames are compared: the last, and where every one is read one before."""
    return {units, max(1, units // 2)} if cell.reading == EVERY else {units}


def serve(requests: Iterable[str], folder: Path) -> Iterable[str]:
    oracle = Oracle(folder)
    for line in requests:
        request = json.loads(line)
        try:
            if "play" in request:
                problem = oracle.verdict_of_play(request["play"])
            else:
                problem = oracle.verdict(Cell.from_json(request["cell"]), request["report"])
        except Exception as error:
            problem = f"the oracle failed: {type(error).__name__}: {error}"
        yield json.dumps({"problem": problem})


if __name__ == "__main__":
    for answer in serve(sys.stdin, Path(sys.argv[1])):
        print(answer, flush=True)
