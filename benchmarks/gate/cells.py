"""What the gate measures: cells, and what is the same for all who look at one. Standard library only.

The full product of all that can vary has tens of thousands of cells. Measured are

- the *main product*: every kernel, sensor and number of events per call, with uniform events, at every level;
- *variations* of it, one thing at a time: other distributions of events, and events out of bounds, on one
  sensor (recordings on the sensor they were made with) with 10,000 and 100,000 events per call, for every
  kernel."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Sensor = tuple[int, int]

SENSORS: list[Sensor] = [(346, 260), (640, 480), (1280, 720)]
SIZES = [1_000, 10_000, 100_000, 1_000_000]
# Events of the streams are sent at this rate by their own clock.
EVENTS_PER_US = 20
INTERVAL_US = 16_000
# Events of a synthetic stream. Calls take them in turn, so they come from memory that was not just looked at.
STREAM = 4_000_000
# The streams begin at this time, in µs.
BASE = 10**12


@dataclass(frozen=True)
class Kernel:
    """A kernel with its parameters, under a short name."""

    label: str
    name: str
    dtype: str
    shape: tuple[str | int, ...]
    bins: int = 0
    bin_us: int = 0
    decay: float = 0.0
    tau_us: float = 0.0

    @property
    def window_us(self) -> int:
        """The time its frame shows; 0 if that has no limit."""
        return self.bins * self.bin_us

    def frame_shape(self, sensor: Sensor) -> tuple[int, ...]:
        named = {"W": sensor[0], "H": sensor[1]}
        return tuple(named[n] if isinstance(n, str) else n for n in self.shape)

    def frame_bytes(self, sensor: Sensor) -> int:
        size = int(self.dtype[-1])
        for n in self.frame_shape(sensor):
            size *= n
        return size

    def make(self, package: Any) -> Any:
        """The kernel of a package that offers the API of Frames2Py."""
        if self.name == "exp_decay":
            return package.ExpDecay(self.decay)
        if self.name == "timestamp_decay":
            return package.TimestampDecay(self.tau_us)
        if self.name == "stacked_histogram":
            return package.StackedHistogram(bins=self.bins, bin_us=self.bin_us)
        if self.name == "voxel_grid":
            return package.VoxelGrid(bins=self.bins, bin_us=self.bin_us)
        return self.name


def _histogram(bins: int, bin_us: int) -> Kernel:
    return Kernel(f"histogram-{bins}", "stacked_histogram", "u4", (2, bins, "H", "W"), bins, bin_us)


def _voxel(bins: int, bin_us: int) -> Kernel:
    return Kernel(f"voxel-{bins}", "voxel_grid", "f4", (bins, "H", "W"), bins, bin_us)


KERNELS = [
    Kernel("event_count", "event_count", "u4", ("H", "W")),
    Kernel("polarity", "polarity", "u4", ("H", "W", 2)),
    Kernel("time_surface", "time_surface", "u8", ("H", "W")),
    Kernel("exp_decay", "exp_decay", "f4", ("H", "W"), decay=0.9),
    Kernel("timestamp_decay", "timestamp_decay", "f4", ("H", "W"), tau_us=30_000.0),
    _histogram(5, 10_000),
    _histogram(10, 5_000),
    _histogram(15, 3_333),
    _voxel(5, 12_500),
    _voxel(15, 3_571),
]
BY_LABEL = {kernel.label: kernel for kernel in KERNELS}

# Where the events fall.
UNIFORM, CLUSTERED, RECORDED = "uniform", "clustered", "recorded"
HOT_PIXEL, OUTSIDE_1, OUTSIDE_10 = "hot-pixel-90%", "outside-1%", "outside-10%"
KINDS = [UNIFORM, CLUSTERED, RECORDED, HOT_PIXEL, OUTSIDE_1, OUTSIDE_10]
# The recordings by the sensor they were made with: file, and whether its header says which sensor that is.
RECORDINGS: dict[Sensor, tuple[str, bool]] = {
    (640, 480): ("sparklers.evt2.raw", False),
    (1280, 720): ("imx636.evt3.raw", True),
}

ACCUMULATE, ENGINE = "accumulate", "engine"
EACH_CALL, EACH_16_MS = "each-call", "16ms"
NOBODY, CONSUMER, EVERY = "nobody", "consumer", "every"


@dataclass(frozen=True)
class Cell:
    """One thing that is measured for both subjects."""

    level: str
    label: str
    sensor: Sensor
    events: int
    kind: str = UNIFORM
    cadence: str = ""
    reading: str = ""

    @property
    def kernel(self) -> Kernel:
        return BY_LABEL[self.label]

    @cached_property
    def id(self) -> str:
        width, height = self.sensor
        parts = [self.level, self.label, f"{width}x{height}", short(self.events), self.kind]
        return "/".join([*parts, *filter(None, (self.cadence, self.reading))])

    @property
    def calls_per_publication(self) -> int:
        """Calls between publications: one, or as many as the clock of the stream takes to pass 16 ms."""
        if self.cadence != EACH_16_MS:
            return 1
        return -(-INTERVAL_US * EVENTS_PER_US // self.events)

    @property
    def unit(self) -> int:
        """Events of the shortest stretch that can be measured."""
        return self.events * self.calls_per_publication

    @property
    def state(self) -> tuple[object, ...]:
        """Cells of one state can be measured one after the other on the same Engine or Accumulator."""
        return self.level, self.label, self.sensor, self.kind, self.cadence

    def to_json(self) -> dict[str, Any]:
        return dict(vars_of(self))

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Cell:
        return cls(**{**fields, "sensor": tuple(fields["sensor"])})


def vars_of(cell: Cell) -> Iterator[tuple[str, Any]]:
    for name in Cell.__dataclass_fields__:
        yield name, getattr(cell, name)


def short(number: int) -> str:
    """1000 as 1k, 1000000 as 1M."""
    if number % 1_000_000 == 0:
        return f"{number // 1_000_000}M"
    return f"{number // 1000}k" if number % 1000 == 0 else str(number)


def main_product() -> Iterator[Cell]:
    for kernel in KERNELS:
        for sensor in SENSORS:
            for events in SIZES:
                yield Cell(ACCUMULATE, kernel.label, sensor, events)
            for cadence in (EACH_CALL, EACH_16_MS):
                for events in SIZES:
                    # A million events take longer than 16 ms: that is publication on every call.
                    if cadence == EACH_16_MS and events >= INTERVAL_US * EVENTS_PER_US:
                        continue
                    for reading in (NOBODY, CONSUMER, EVERY):
                        yield Cell(ENGINE, kernel.label, sensor, events, UNIFORM, cadence, reading)


def variations() -> Iterator[Cell]:
    for kernel in KERNELS:
        for kind in KINDS[1:]:
            sensors = list(RECORDINGS) if kind == RECORDED else [(640, 480)]
            for sensor in sensors:
                for events in (10_000, 100_000):
                    yield Cell(ACCUMULATE, kernel.label, sensor, events, kind)
                for events in (10_000, 100_000):
                    yield Cell(ENGINE, kernel.label, sensor, events, kind, EACH_CALL, NOBODY)


def everything() -> list[Cell]:
    """All cells, those of one kernel and sensor together, and in these those of one state."""
    order = {kernel.label: i for i, kernel in enumerate(KERNELS)}
    cells = [*main_product(), *variations()]
    cells.sort(key=lambda cell: (order[cell.label], cell.sensor))  # stable
    return cells


def quick() -> list[Cell]:
    """A selection that takes minutes, with something for every goal but the largest batches."""
    chosen = []
    for cell in everything():
        main = cell.kind == UNIFORM and (cell.sensor, cell.events) in {
            ((1280, 720), 10_000),
            ((346, 260), 100_000),
        }
        reading = cell.reading in ("", NOBODY) or cell.cadence == EACH_CALL
        goal = (
            cell.level == ACCUMULATE
            and (cell.sensor, cell.events) == ((640, 480), 100_000)
            and cell.kind in (UNIFORM, HOT_PIXEL, OUTSIDE_10)
        )
        if (main and reading) or goal:
            chosen.append(cell)
    return chosen


def select(cells: list[Cell], pattern: str | None) -> list[Cell]:
    """The cells whose id has the pattern in it; `*` and `?` stand for anything."""
    if not pattern:
        return cells
    return [cell for cell in cells if fnmatch.fnmatchcase(cell.id, f"*{pattern}*")]
