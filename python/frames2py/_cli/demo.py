"""`frames2py demo`: everything at once, from nothing."""

from __future__ import annotations

import argparse
from typing import Any

from . import options
from .picture import check_output
from .scene import Scene
from .session import play
from .watch import finish

__all__ = ["add_parser"]

EVENTS_PER_SECOND = 2_000_000


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="a synthetic scene, three consumers, a few seconds; needs nothing",
        description="Make events of a synthetic scene, two million a second, and play them through an "
        "Engine while three consumers of different speed look at its snapshots; then write a picture of "
        "the last frame. Ctrl-C ends it early, with summary and picture, and exit status 130.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--seconds", type=options.positive, default=4.0, metavar="S", help="how long (default: 4)"
    )
    parser.add_argument(
        "--sensor",
        type=options.sensor_size,
        default=(640, 480),
        metavar="WxH",
        help="sensor size (default: 640x480)",
    )
    options.add_kernel(parser, default="polarity")
    options.add_interval(parser)
    parser.add_argument(
        "--output",
        default="frames2py-demo.png",
        metavar="PATH",
        help="the picture, as PNG (default: frames2py-demo.png)",
    )
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    kernel = options.kernel_from(arguments)
    check_output(arguments.output)
    scene = Scene(arguments.sensor, EVENTS_PER_SECOND)
    outcome = play(
        scene.events(arguments.seconds),
        arguments.sensor,
        kernel,
        title="synthetic scene",
        interval_ms=arguments.interval_ms,
    )
    return finish(outcome, arguments.output, source="synthetic scene")
