"""`frames2py convert`: a recording in another format."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any

from .. import _recordings
from .._events import EventArray
from . import options
from .errors import CommandError, UsageError
from .recording import open_recording, reading
from .table import is_live

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "convert",
        help="write a recording in another format",
        description="Read a recording of any format and write its events in another, with their times as "
        "they are. The output appears when it is complete.",
        allow_abbrev=False,
    )
    parser.add_argument("recording", metavar="IN")
    parser.add_argument("output", metavar="OUT")
    parser.add_argument(
        "--format",
        choices=list(_recordings.FORMATS),
        metavar="NAME",
        help=f"the output's format: {', '.join(_recordings.FORMATS)} (default: what its suffix says)",
    )
    compressions = dict.fromkeys(name for names in _recordings.COMPRESSIONS.values() for name in names)
    parser.add_argument(
        "--compression",
        choices=list(compressions),
        metavar="NAME",
        help="how the output is compressed, of the formats that can be: "
        + "; ".join(f"{name}: {', '.join(names)}" for name, names in _recordings.COMPRESSIONS.items()),
    )
    options.add_sensor(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace an output that is there")
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    path, output = arguments.recording, arguments.output
    with open_recording(path, arguments.sensor) as recording:
        if recording.sensor_size is None:
            raise UsageError(
                f"{path} does not say how large its sensor is: pass --sensor WIDTHxHEIGHT "
                "(frames2py info shows the smallest that fits)"
            )
        try:
            events = _recordings.save(
                output,
                _shown(recording.reader, path),
                sensor_size=recording.sensor_size,
                format=arguments.format,
                compression=arguments.compression,
                overwrite=arguments.overwrite,
            )
        except FileExistsError as error:
            raise CommandError(f"{output}: is there already; --overwrite replaces it") from error
        except ValueError as error:
            raise CommandError(f"{path} to {output}: {error}") from error
    print(f"{output}: {events} events, {os.path.getsize(output)} bytes")
    return 0


def _shown(reader: Any, path: str) -> Iterator[EventArray]:
    """The batches, with a bar on standard error where that is a terminal and `tqdm` is installed."""
    bar = None
    if is_live(sys.stderr):
        try:
            from tqdm import tqdm
        except ImportError:
            pass
        else:
            total = os.path.getsize(path) if os.path.isfile(path) else None
            bar = tqdm(
                total=total, unit="B", unit_scale=True, desc=os.path.basename(path), leave=False, delay=0.3
            )
    try:
        with reading(path):
            for batch in reader:
                yield batch
                if bar is not None:
                    bar.update(reader.report.bytes - bar.n)
    finally:
        if bar is not None:
            bar.close()
