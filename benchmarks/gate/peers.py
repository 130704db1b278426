"""Other packages' nearest equivalents, one row each: the peer's side, and ours. A process of its own.

    python -m benchmarks.gate.peers ours|PACKAGE

Reads requests ``{"row": "PACKAGE/ROW", "budget": SECONDS}``, one a line, and answers with ``{"rate": ...}``,
in events a second, or ``{"error": ...}``. All take calls of 100,000 uniform events, 5 ms, at 640x480, in the
form the package likes best, made beforehand, and give a frame for each call. What a peer gives is looked at,
too: against its own definition, reckoned with NumPy here."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .streams import Events, synthetic

SENSOR = WIDTH, HEIGHT = 640, 480
PIXELS = WIDTH * HEIGHT
CALL = 100_000
BINS = 5
Array = npt.NDArray[Any]
# Takes call number i and returns what comes of it.
Work = Callable[[int], Any]


def calls(count: int) -> list[Events]:
    events = synthetic("uniform", SENSOR, count * CALL)
    return [events[i : i + CALL] for i in range(0, len(events), CALL)]


def pixels(call: Events) -> Array:
    return call["y"].astype(np.int64) * WIDTH + call["x"]


def counts(call: Events) -> Array:
    return np.bincount(pixels(call), minlength=PIXELS).reshape(HEIGHT, WIDTH)


def expect(right: Any, what: str) -> None:
    if not right:
        raise AssertionError(what)


# --- ours ---------------------------------------------------------------------------------------


def ours_engine() -> Work:
    """A publication for each call, and its frame."""
    import frames2py

    batches = calls(16)
    engine = frames2py.Engine(SENSOR, "event_count", snapshot_interval_ms=0)

    def work(i: int) -> Any:
        engine.ingest(batches[i % 16])
        return engine.snapshot().frame

    expect((work(3) == counts(batches[3])).all(), "event_count is wrong")
    return work


def ours_accumulator(kernel: Any) -> Work:
    """A frame of each call by itself, which its last event completes the bins of."""
    import frames2py

    batches = calls(16)
    for batch in batches:
        batch["t"] += np.uint64(-int(batch["t"][0]) % 5_000)  # from the beginning of a bin
        batch["t"][-1] += np.uint64(1_000)
    accumulator = frames2py.Accumulator(SENSOR, kernel)

    def work(i: int) -> Any:
        accumulator.accumulate(batches[i % 16])
        frame = accumulator.read()
        accumulator.reset()
        return frame

    frame = work(3)
    if frame.dtype == np.uint32 and frame.ndim == 4:
        expect(frame.sum() == CALL - 1, "the histogram does not hold the events of the bins")
    return work


def ours(row: str) -> Work:
    import frames2py

    if row == "dv-processing/EdgeMapAccumulator":
        return ours_engine()
    if row == "eventcv/count":
        return ours_accumulator("event_count")
    if "oxel" in row:
        return ours_accumulator(frames2py.VoxelGrid(bins=BINS, bin_us=1_250))
    return ours_accumulator(frames2py.StackedHistogram(bins=BINS, bin_us=1_000))


# --- peers --------------------------------------------------------------------------------------


def edge_map() -> Work:
    """Increments of a whole step, so a pixel with an event is 255, and decay to nothing after each frame."""
    import dv_processing as dv

    batches = calls(8)
    stores = []
    for batch in batches:
        store = dv.EventStore()
        for t, x, y, p in batch.tolist():
            store.push_back(t, x, y, bool(p))
        stores.append(store)
    accumulator = dv.EdgeMapAccumulator(SENSOR, contribution=1.0)

    def work(i: int) -> Any:
        accumulator.accept(stores[i % 8])
        return accumulator.generateFrame().image

    expect(
        ((work(3) > 0) == (counts(batches[3]) > 0)).all(),
        "pixels are set that have no event, or not all that do",
    )
    return work


def eventcv_stream() -> list[tuple[Events, Any]]:
    import eventcv

    made = []
    for batch in calls(8):
        columns = np.stack([batch[name].astype(np.int64) for name in "xytp"], 1)
        made.append((batch, eventcv.from_numpy(columns, time_unit="us", sensor_size=SENSOR)))
    return made


def eventcv_count() -> Work:
    made = eventcv_stream()

    def work(i: int) -> Any:
        return made[i % 8][1].count().numpy()

    expect((work(3).reshape(HEIGHT, WIDTH) == counts(made[3][0])).all(), "the counts are wrong")
    return work


def eventcv_voxel() -> Work:
    made = eventcv_stream()

    def work(i: int) -> Any:
        return made[i % 8][1].voxel(bins=BINS).numpy()

    expect(work(3).shape == (BINS, HEIGHT, WIDTH), "not a grid of five bins")
    return work


def tonic_events() -> list[Events]:
    layout = np.dtype([("x", "<i2"), ("y", "<i2"), ("t", "<i8"), ("p", "<i2")])
    return [batch[["x", "y", "t", "p"]].astype(layout) for batch in calls(8)]


def tonic_histogram() -> Work:
    from tonic.transforms import ToFrame

    batches = tonic_events()
    transform = ToFrame(sensor_size=(WIDTH, HEIGHT, 2), n_time_bins=BINS)

    def work(i: int) -> Any:
        return transform(batches[i % 8])

    batch = batches[3]
    bin_ = (batch["t"] - batch["t"][0]) // ((batch["t"][-1] - batch["t"][0]) // BINS)
    kept = bin_ < BINS
    index = (bin_[kept] * 2 + batch["p"][kept]) * PIXELS + pixels(batch[kept])
    expected = np.bincount(index, minlength=BINS * 2 * PIXELS).reshape(BINS, 2, HEIGHT, WIDTH)
    expect((work(3) == expected).all(), "the counts are wrong")
    return work


def tonic_voxel() -> Work:
    from tonic.transforms import ToVoxelGrid

    batches = tonic_events()
    transform = ToVoxelGrid(sensor_size=(WIDTH, HEIGHT, 2), n_time_bins=BINS)

    def work(i: int) -> Any:
        return transform(batches[i % 8].copy())  # it may change what it is given

    batch = batches[3]
    t = BINS * (batch["t"] - batch["t"][0]) / (batch["t"][-1] - batch["t"][0])
    knot = t.astype(int)
    sign = np.where(batch["p"] != 0, 1.0, -1.0)
    expected = np.zeros((BINS + 2) * PIXELS)
    np.add.at(expected, knot * PIXELS + pixels(batch), sign * (1 - (t - knot)))
    np.add.at(expected, (knot + 1) * PIXELS + pixels(batch), sign * (t - knot))
    got = work(3).reshape(BINS, HEIGHT, WIDTH)
    right = np.allclose(got, expected[: BINS * PIXELS].reshape(got.shape), atol=1e-4)
    expect(right, "the voxel grid is wrong")
    return work


def evlib_frames() -> list[tuple[Events, Any]]:
    import polars

    made = []
    for batch in calls(8):
        t = polars.Series(batch["t"].astype("i8")).cast(polars.Duration("us"))
        p = np.where(batch["p"] != 0, 1, -1).astype("i1")
        columns = {"t": t, "x": batch["x"].astype("i2"), "y": batch["y"].astype("i2"), "polarity": p}
        made.append((batch, polars.DataFrame(columns)))
    return made


def evlib_histogram() -> Work:
    from evlib import representations

    made = evlib_frames()

    def work(i: int) -> Any:
        return representations.create_stacked_histogram(
            made[i % 8][1], HEIGHT, WIDTH, bins=BINS, window_duration_ms=5.0
        )

    expect(work(3)["count"].sum() == CALL, "it does not count every event once")
    return work


def evlib_voxel() -> Work:
    from evlib import representations

    made = evlib_frames()

    def work(i: int) -> Any:
        return representations.create_voxel_grid(made[i % 8][1], HEIGHT, WIDTH, BINS)

    total = np.where(made[3][0]["p"] != 0, 1, -1).sum()
    expect(abs(work(3)["contribution"].sum() - total) < CALL / BINS, "the grid does not hold the events")
    return work


PEERS: dict[str, Callable[[], Work]] = {
    "dv-processing/EdgeMapAccumulator": edge_map,
    "eventcv/count": eventcv_count,
    "eventcv/voxel": eventcv_voxel,
    "tonic/ToFrame": tonic_histogram,
    "tonic/ToVoxelGrid": tonic_voxel,
    "evlib/create_stacked_histogram": evlib_histogram,
    "evlib/create_voxel_grid": evlib_voxel,
}


# The time of one processor, but where a peer uses several.
CLOCKS = {row: time.perf_counter for row in PEERS if row.startswith("evlib/")}


def rate(work: Work, budget: float, clock: Callable[[], float]) -> float:
    for i in range(4):
        work(i)
    number, spent = 0, 0.0
    while spent < budget:
        began = clock()
        for _ in range(4):
            work(number)
            number += 1
        spent += clock() - began
    return number * CALL / spent


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            row = request["row"]
            work = ours(row) if sys.argv[1] == "ours" else PEERS[row]()
            answer: dict[str, Any] = {
                "rate": rate(work, request["budget"], CLOCKS.get(row, time.process_time))
            }
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
