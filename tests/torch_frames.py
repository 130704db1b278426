"""Events and snapshots for the PyTorch tests, with the frames worked out by plain Python."""

import subprocess
import sys
from fractions import Fraction

import numpy as np

import frames2py

SIZE = (4, 3)  # width, height
BINS, BIN_US = 3, 10

# t, x, y, p: two on one pixel, both polarities, in completed bins and in the one in progress.
RECORDS = [
    (3, 0, 0, 1),
    (8, 1, 0, 0),
    (14, 2, 1, 1),
    (21, 3, 2, 1),
    (27, 1, 1, 0),
    (28, 1, 1, 0),
    (33, 2, 2, 1),
]

KERNELS = {
    "EventCount": frames2py.EventCount,
    "Polarity": frames2py.Polarity,
    "TimeSurface": frames2py.TimeSurface,
    "ExpDecay": lambda: frames2py.ExpDecay(0.5),
    "TimestampDecay": lambda: frames2py.TimestampDecay(10.0),
    "StackedHistogram": lambda: frames2py.StackedHistogram(bins=BINS, bin_us=BIN_US),
    "VoxelGrid": lambda: frames2py.VoxelGrid(bins=BINS, bin_us=BIN_US),
}

SHAPES = {
    "EventCount": (3, 4),
    "Polarity": (3, 4, 2),
    "TimeSurface": (3, 4),
    "ExpDecay": (3, 4),
    "TimestampDecay": (3, 4),
    "StackedHistogram": (2, BINS, 3, 4),
    "VoxelGrid": (BINS, 3, 4),
}

DTYPES = {
    "EventCount": "uint32",
    "Polarity": "uint32",
    "TimeSurface": "uint64",
    "ExpDecay": "float32",
    "TimestampDecay": "float32",
    "StackedHistogram": "uint32",
    "VoxelGrid": "float32",
}


def make_events(records):
    return np.array(list(records), dtype=frames2py.EVENT_DTYPE)


def publish(kernel, records=RECORDS, size=SIZE):
    """An Engine that has published `records`, given as (t, x, y, p), and its snapshot."""
    engine = frames2py.Engine(size, kernel, snapshot_interval_ms=0)
    engine.ingest(make_events(records))
    return engine, engine.snapshot()


def worked_channels(name, records=RECORDS, size=SIZE):
    """The frame of `publish` as nested lists [channel][y][x], channels as the page orders them."""
    width, height = size
    watermark = max(t for t, *_ in records)
    channels = {"Polarity": 2, "StackedHistogram": 2 * BINS, "VoxelGrid": BINS}.get(name, 1)
    frame = [[[Fraction(0) for _ in range(width)] for _ in range(height)] for _ in range(channels)]
    done = watermark // BIN_US  # the bin in progress
    for t, x, y, p in records:
        on = p != 0
        q, r = divmod(t, BIN_US)
        if name in ("EventCount", "ExpDecay"):  # one call: the decay met an empty surface
            frame[0][y][x] += 1
        elif name == "Polarity":
            frame[int(on)][y][x] += 1
        elif name == "TimeSurface":
            frame[0][y][x] = max(frame[0][y][x], Fraction(t))
        elif name == "StackedHistogram":
            b = q - (done - BINS)
            if 0 <= b < BINS:
                frame[BINS * int(on) + b][y][x] += 1
        elif name == "VoxelGrid":
            knot = q - (done - BINS + 1)
            if 0 <= knot < BINS - 1:
                sign = 1 if on else -1
                frame[knot][y][x] += Fraction(sign * (BIN_US - r), BIN_US)
                frame[knot + 1][y][x] += Fraction(sign * r, BIN_US)
        else:
            raise ValueError(name)
    return frame


def run_python(code, *options, timeout=100):
    """Run `code` in a new interpreter; what it printed. It must end well and leave stderr empty."""
    done = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=timeout
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
