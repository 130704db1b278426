"""Readers of the formats that are decoded natively."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _core
from .._events import EVENT_DTYPE, TRIGGER_DTYPE, EventArray
from ._reader import PathArg, Reader, check_batch_size, check_sensor_size, resolve_sensor_size

__all__ = ["open_native", "open_with"]

_Size = tuple[int, int]


def open_native(
    path: PathArg,
    *,
    family: str | None,
    where: str,
    sensor_size: object,
    batch_size: object = None,
    strict: bool = False,
    triggers: bool = False,
    **options: Any,
) -> Reader:
    """Open a file of a natively decoded family, or of any if that is None.

    ``where`` names the place in the file that states the geometry; ``options`` go to ``_core.FileReader``.
    """
    given = None if sensor_size is None else check_sensor_size(sensor_size)

    def choose(stated: _Size | None) -> _Size:
        return resolve_sensor_size(given, stated, where)

    return open_with(
        path, choose, family=family, batch_size=batch_size, strict=strict, triggers=triggers, **options
    )


def open_with(
    path: PathArg,
    choose: Callable[[_Size | None], _Size | None],
    *,
    family: str | None,
    batch_size: object = None,
    strict: bool = False,
    triggers: bool = False,
    **options: Any,
) -> Reader:
    """Open a file once; ``choose`` makes a sensor size of what its head states, or raises."""
    limit = check_batch_size(batch_size)
    for name, flag in (("strict", strict), ("triggers", triggers)):
        if not isinstance(flag, (bool, np.bool_)):
            raise TypeError(f"{name} must be a bool, got {flag!r} of type {type(flag).__name__}")
    native = _core.FileReader(
        os.fsdecode(path), family=family, strict=bool(strict), triggers=bool(triggers), **options
    )
    try:
        size = choose(native.geometry)
    except BaseException:
        native.close()
        raise
    return Reader(NativeSource(native), format=native.format, sensor_size=size, batch_size=limit)


class NativeSource:
    """The native reader, its bytes seen as events. A playback takes its file natively."""

    __slots__ = ("build_index", "close", "native", "report", "seek", "totals")

    def __init__(self, native: _core.FileReader) -> None:
        self.native = native
        self.build_index = native.build_index
        self.close = native.close
        self.report = native.report
        self.seek = native.seek
        self.totals = native.totals

    def read(self, limit: int | None) -> EventArray | None:
        packed = self.native.read(limit)
        return None if packed is None else packed.view(EVENT_DTYPE)

    def take_triggers(self) -> EventArray:
        return self.native.take_triggers().view(TRIGGER_DTYPE)

    def slice(self, t0: int, t1: int) -> EventArray:
        return self.native.slice(t0, t1).view(EVENT_DTYPE)

    def lend(self) -> _core.FileReader:
        return self.native

    def give_back(self) -> None:
        pass
