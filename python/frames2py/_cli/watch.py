"""`frames2py watch`: play a recording through an Engine."""

from __future__ import annotations

import argparse
from pathlib import PurePath
from typing import Any

from . import options
from .errors import CommandError, UsageError, describe
from .picture import check_output, write_picture
from .recording import open_recording
from .session import Outcome, play

__all__ = ["add_parser", "finish"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "watch",
        help="play a recording at its own pace and show what consumers see",
        description="Play a recording at its own pace through an Engine while three "
        "consumers of different speed look at its snapshots; then write a picture of the last frame. "
        "Ctrl-C ends it early, with summary and picture, and exit status 130.",
        allow_abbrev=False,
    )
    parser.add_argument("recording", metavar="RECORDING")
    options.add_sensor(parser)
    parser.add_argument(
        "--speed",
        type=options.positive,
        default=1.0,
        metavar="F",
        help="times as fast as recorded (default: 1)",
    )
    options.add_kernel(parser, default="polarity")
    options.add_interval(parser)
    parser.add_argument(
        "--output", metavar="PATH", help="the picture, as PNG (default: frames2py-NAME.png here)"
    )
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    kernel = options.kernel_from(arguments)
    output = arguments.output or f"frames2py-{PurePath(arguments.recording).stem}.png"
    with open_recording(arguments.recording, arguments.sensor) as recording:
        if recording.sensor_size is None:
            raise UsageError(
                f"{recording.path} has no geometry in its header: pass --sensor WIDTHxHEIGHT "
                "(frames2py info shows the smallest that fits)"
            )
        check_output(output)
        outcome = play(
            recording.reader,
            recording.sensor_size,
            kernel,
            title=f"{recording.path} ({recording.reader.format})",
            interval_ms=arguments.interval_ms,
            speed=arguments.speed,
        )
    return finish(outcome, output, source=recording.path)


def finish(outcome: Outcome, output: str, *, source: str) -> int:
    """Write the picture of a playback, tell its failure, and return the exit status."""
    if outcome.snapshot is not None:
        write_picture(output, outcome.snapshot)
        print(f"picture: {output}", flush=True)
    if isinstance(outcome.failure, (ValueError, OSError)):
        raise CommandError(f"{source}: {describe(outcome.failure)}")
    if outcome.failure is not None:
        raise outcome.failure
    return 130 if outcome.interrupted else 0
