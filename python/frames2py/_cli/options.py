"""Command-line values: how they are read, and what they are by default."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable

from ..kernels import (
    EventCount,
    ExpDecay,
    Kernel,
    Polarity,
    StackedHistogram,
    TimestampDecay,
    TimeSurface,
    VoxelGrid,
)
from .errors import UsageError

__all__ = [
    "add_interval",
    "add_kernel",
    "add_sensor",
    "kernel_from",
    "nonnegative",
    "positive",
    "sensor_size",
]

MAX_SIDE = 65_536  # an event's x and y are 16 bits wide

# Per kernel, the options it takes and how it is made from them.
KERNELS: dict[str, tuple[tuple[str, ...], Callable[..., Kernel]]] = {
    "event_count": ((), EventCount),
    "polarity": ((), Polarity),
    "time_surface": ((), TimeSurface),
    "exp_decay": (("decay",), ExpDecay),
    "timestamp_decay": (("tau_us",), TimestampDecay),
    "stacked_histogram": (("bins", "bin_us"), StackedHistogram),
    "voxel_grid": (("bins", "bin_us"), VoxelGrid),
}
DEFAULTS: dict[str, float | int] = {"decay": 0.9, "tau_us": 50_000.0, "bins": 5, "bin_us": 10_000}


def sensor_size(text: str) -> tuple[int, int]:
    """`WxH` as (width, height)."""
    match = re.fullmatch(r"([0-9]{1,6})[xX]([0-9]{1,6})", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected WIDTHxHEIGHT, such as 640x480, got {text!r}")
    width, height = int(match[1]), int(match[2])
    if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE):
        raise argparse.ArgumentTypeError(f"width and height must be from 1 to {MAX_SIDE}, got {text!r}")
    return width, height


def positive(text: str) -> float:
    """A finite number above 0."""
    number = _number(text)
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"must be a finite number above 0, got {text!r}")
    return number


def nonnegative(text: str) -> float:
    """A finite number, 0 or above."""
    number = _number(text)
    if not (math.isfinite(number) and number >= 0):
        raise argparse.ArgumentTypeError(f"must be a finite number, 0 or above, got {text!r}")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None


def _integer(text: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text) is None:
        raise argparse.ArgumentTypeError(f"must be an integer, got {text!r}")
    return int(text)


def add_sensor(parser: argparse.ArgumentParser) -> None:
    """Add `--sensor`, for a recording that does not say how large its sensor is."""
    parser.add_argument(
        "--sensor",
        type=sensor_size,
        metavar="WxH",
        help="sensor size, for a recording that does not have it",
    )


def add_kernel(parser: argparse.ArgumentParser, default: str) -> None:
    """Add `--kernel` and the options that belong to a kernel."""
    group = parser.add_argument_group("kernel")
    group.add_argument(
        "--kernel",
        choices=list(KERNELS),
        default=default,
        metavar="NAME",
        help=f"{', '.join(KERNELS)} (default: {default})",
    )
    group.add_argument(
        "--decay",
        type=_number,
        metavar="F",
        help=f"exp_decay: factor per batch of up to 5 ms, between 0 and 1 (default: {DEFAULTS['decay']})",
    )
    group.add_argument(
        "--tau-us",
        type=_number,
        metavar="US",
        help=f"timestamp_decay: time constant (default: {DEFAULTS['tau_us']:.0f})",
    )
    group.add_argument(
        "--bins",
        type=_integer,
        metavar="N",
        help=f"stacked_histogram, voxel_grid: time bins (default: {DEFAULTS['bins']})",
    )
    group.add_argument(
        "--bin-us",
        type=_integer,
        metavar="US",
        help=f"stacked_histogram, voxel_grid: length of a bin (default: {DEFAULTS['bin_us']})",
    )


def add_interval(parser: argparse.ArgumentParser) -> None:
    """Add `--interval-ms`."""
    parser.add_argument(
        "--interval-ms",
        type=nonnegative,
        default=16.0,
        metavar="MS",
        help="least time between snapshots; 0 publishes every batch (default: 16)",
    )


def kernel_from(arguments: argparse.Namespace) -> Kernel:
    """The kernel that the parsed options describe."""
    takes, make = KERNELS[arguments.kernel]
    for option in DEFAULTS:
        if getattr(arguments, option) is not None and option not in takes:
            owners = [name for name, (options, _) in KERNELS.items() if option in options]
            raise UsageError(
                f"argument --{option.replace('_', '-')}: goes with --kernel {' or '.join(owners)}, "
                f"not with {arguments.kernel}"
            )
    given = {
        option: DEFAULTS[option] if getattr(arguments, option) is None else getattr(arguments, option)
        for option in takes
    }
    try:
        return make(**given)
    except ValueError as error:
        raise UsageError(f"argument --kernel: {error}") from None
