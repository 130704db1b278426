"""Recordings, as the commands open them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .._recordings import opener_of
from ..adapters import Reader
from ..adapters._native import open_with
from .errors import CommandError, UsageError, describe
from .options import MAX_SIDE

__all__ = ["Recording", "open_recording", "reading"]

ANY_SIZE = (MAX_SIDE, MAX_SIDE)  # holds every event that 16-bit coordinates can express


@dataclass(frozen=True)
class Recording:
    """An open recording; `sensor_size` is None where neither the header nor the user says it."""

    path: str
    sensor_size: tuple[int, int] | None
    reader: Reader


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Name the file in whatever goes wrong with it."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or describe(error)}") from error
    except (ValueError, ImportError) as error:
        raise CommandError(f"{path}: {describe(error)}") from error


@contextmanager
def open_recording(path: str, sensor: tuple[int, int] | None) -> Iterator[Recording]:
    """Open a recording, whether or not its header says how large the sensor is.

    Args:
        path: A recording of any format.
        sensor: `--sensor`, or None. Needed only where the header has no geometry.

    Raises:
        CommandError: The file is missing, unreadable or not a recording.
        UsageError: `--sensor` contradicts the header.
    """
    known: list[tuple[int, int]] = []

    def choose(stated: tuple[int, int] | None) -> tuple[int, int]:
        if stated is not None and sensor is not None and stated != sensor:
            raise UsageError(_contradiction(stated, sensor))
        known.extend(size for size in (stated, sensor) if size is not None)
        return known[0] if known else ANY_SIZE

    with reading(path):
        opener = opener_of(path)
        if opener is None:
            reader = open_with(path, choose, family=None)
        else:
            reader = opener(path, sensor_size=sensor)
            known.extend([] if reader.sensor_size is None else [reader.sensor_size])
    with reader:
        yield Recording(path, known[0] if known else None, reader)


def _contradiction(stated: tuple[int, int], given: tuple[int, int]) -> str:
    return f"argument --sensor: the header says {stated[0]}x{stated[1]}, got {given[0]}x{given[1]}"
