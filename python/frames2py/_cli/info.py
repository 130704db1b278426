"""`frames2py info`: what a recording holds."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._events import EventArray
from . import options
from .recording import Recording, open_recording, reading
from .table import is_live

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "info",
        help="count a recording's events and say when and where they are",
        description="Read a recording once, in bounded memory, and say what it holds.",
        allow_abbrev=False,
    )
    parser.add_argument("recording", metavar="RECORDING")
    options.add_sensor(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    with open_recording(arguments.recording, arguments.sensor) as recording, reading(recording.path):
        found = _count(_shown(recording.reader), recording.sensor_size)
    fields = _fields(recording, found)
    if arguments.json:
        print(json.dumps(fields))
    else:
        print("\n".join(_lines(fields)))
    return 0


@dataclass
class _Found:
    events: int = 0
    on: int = 0
    t_first: int | None = None
    t_last: int | None = None
    t_min: int | None = None
    t_max: int | None = None
    x_max: int = -1
    y_max: int = -1
    backward_steps: int = 0
    out_of_bounds: int = 0


def _count(batches: Iterable[EventArray], size: tuple[int, int] | None) -> _Found:
    found = _Found()
    for events in batches:
        t, x, y = events["t"], events["x"], events["y"]
        first, last, low, high = int(t[0]), int(t[-1]), int(t.min()), int(t.max())
        found.backward_steps += int(np.count_nonzero(t[1:] < t[:-1]))
        if found.t_first is None or found.t_last is None or found.t_min is None or found.t_max is None:
            found.t_first, found.t_min, found.t_max = first, low, high
        else:
            found.backward_steps += first < found.t_last
            found.t_min, found.t_max = min(found.t_min, low), max(found.t_max, high)
        found.t_last = last
        found.events += len(events)
        found.on += int(np.count_nonzero(events["p"]))
        found.x_max = max(found.x_max, int(x.max()))
        found.y_max = max(found.y_max, int(y.max()))
        if size is not None:
            found.out_of_bounds += int(np.count_nonzero((x >= size[0]) | (y >= size[1])))
    return found


def _shown(batches: Iterable[EventArray]) -> Iterable[EventArray]:
    """Pass batches on, counting them on standard error where that is a terminal."""
    live = is_live(sys.stderr)
    events, due = 0, time.monotonic() + 0.3  # a short recording shows nothing
    try:
        for batch in batches:
            yield batch
            events += len(batch)
            if live and time.monotonic() >= due:
                sys.stderr.write(f"\r{events} events read\x1b[K")
                sys.stderr.flush()
                due = time.monotonic() + 0.1
    finally:
        if live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _fields(recording: Recording, found: _Found) -> dict[str, Any]:
    """The `--json` object."""
    duration = None if found.t_min is None or found.t_max is None else found.t_max - found.t_min
    size = recording.sensor_size
    return {
        "file": recording.path,
        "format": recording.reader.format,
        "sensor": None if size is None else list(size),
        "smallest_sensor": [found.x_max + 1, found.y_max + 1] if found.events else None,
        "events": found.events,
        "on": found.on,
        "off": found.events - found.on,
        "out_of_bounds": None if size is None else found.out_of_bounds,
        "t_first_us": found.t_first,
        "t_last_us": found.t_last,
        "t_min_us": found.t_min,
        "t_max_us": found.t_max,
        "backward_steps": found.backward_steps,
        "duration_us": duration,
        "events_per_s": found.events / duration * 1e6 if duration else None,
    }


def _lines(fields: dict[str, Any]) -> list[str]:
    size, smallest = fields["sensor"], fields["smallest_sensor"]
    if size is not None:
        sensor = f"{size[0]}x{size[1]}"
    elif smallest is not None:
        sensor = f"unknown, not in the header (the smallest that fits: {smallest[0]}x{smallest[1]})"
    else:
        sensor = "unknown, not in the header"
    duration, rate = fields["duration_us"], fields["events_per_s"]
    rows = {
        "file": fields["file"],
        "format": fields["format"],
        "sensor": sensor,
        "events": fields["events"],
        "on": fields["on"],
        "off": fields["off"],
        "out of bounds": fields["out_of_bounds"],
        "first time": _us(fields["t_first_us"]),
        "last time": _us(fields["t_last_us"]),
        "backward steps": fields["backward_steps"] or None,
        "earliest time": _us(fields["t_min_us"]) if fields["backward_steps"] else None,
        "latest time": _us(fields["t_max_us"]) if fields["backward_steps"] else None,
        "duration": "none" if duration is None else f"{duration / 1e6:.6f} s",
        "rate": "none" if rate is None else f"{rate:.0f} events/s",
    }
    return [f"{name + ':':<16}{value}" for name, value in rows.items() if value is not None]


def _us(time_us: int | None) -> str:
    return "none" if time_us is None else f"{time_us} us"
