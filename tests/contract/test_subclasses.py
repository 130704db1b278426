"""Engine and Accumulator can be subclassed freely, with constructors of the subclass's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frames2py import EVENT_DTYPE, Accumulator, Engine, StackedHistogram


class Camera(Engine):
    def __init__(self, config: dict[str, int], **more: Any) -> None:
        super().__init__((config["w"], config["h"]), "polarity", snapshot_interval_ms=0)
        self.more = more


class Counting(Accumulator):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.calls = 0

    def accumulate(self, events: Any) -> None:
        self.calls += 1
        super().accumulate(events)


class Histogram(StackedHistogram):
    def __init__(self, n: int) -> None:
        super().__init__(bins=n, bin_us=10)
        self.bins = n  # the subclass's own attribute


def test_a_subclass_has_a_constructor_of_its_own() -> None:
    camera = Camera({"w": 3, "h": 2}, name="left")
    camera.ingest(np.zeros(4, EVENT_DTYPE))
    snapshot = camera.snapshot()
    assert snapshot is not None
    assert snapshot.frame.tolist() == [[[4, 0], [0, 0], [0, 0]], [[0, 0]] * 3]
    assert camera.more == {"name": "left"}


def test_a_subclass_overrides_methods() -> None:
    counting = Counting((2, 1), "event_count")
    counting.accumulate(np.zeros(3, EVENT_DTYPE))
    assert (counting.calls, counting.read().tolist(), counting.watermark) == (1, [[3, 0]], 0)


def test_a_kernel_subclass_has_attributes_of_its_own() -> None:
    kernel = Histogram(3)
    assert kernel.bins == 3
    assert Accumulator((2, 1), kernel).read().shape == (2, 3, 1, 2)


@pytest.mark.parametrize("method", ["snapshot", "start", "stop", "reset"])
def test_without_init_an_engine_says_so(method: str) -> None:
    engine = Engine.__new__(Engine)
    with pytest.raises(RuntimeError, match="__init__"):
        getattr(engine, method)()


def test_without_init_an_accumulator_says_so() -> None:
    accumulator = Accumulator.__new__(Accumulator)
    for read in (lambda: accumulator.watermark, accumulator.read, accumulator.reset):
        with pytest.raises(RuntimeError, match="__init__"):
            read()


def test_init_runs_once() -> None:
    engine = Engine((2, 1))
    with pytest.raises(RuntimeError, match="twice"):
        engine.__init__((5, 5))  # type: ignore[misc]


class Watching:
    """A kernel that reads the Accumulator that runs it."""

    name = "watching"
    seen: Any = None
    accumulator: Accumulator

    def output_spec(self, sensor_size: tuple[int, int]) -> tuple[tuple[int, ...], Any]:
        return (1,), np.uint8

    def init_state(self, sensor_size: tuple[int, int]) -> None:
        return None

    def begin_call(self, state: None) -> None:
        pass

    def accumulate(self, events: Any, state: None, watermark: int | None) -> None:
        self.seen = (self.accumulator.watermark, self.accumulator.events_out_of_bounds)

    def read(self, state: None, out: Any, watermark: int | None) -> None:
        out[:] = 0

    def close_window(self, state: None) -> None:
        pass

    def reset(self, state: None) -> None:
        pass


def test_an_accumulator_can_be_asked_from_inside_its_kernel() -> None:
    kernel = Watching()
    kernel.accumulator = Accumulator((2, 1), kernel)
    events = np.array([(7, 0, 0, 1), (9, 5, 0, 1)], EVENT_DTYPE)
    kernel.accumulator.accumulate(events)
    assert kernel.seen == (None, 0)
    kernel.accumulator.accumulate(events)
    assert kernel.seen == (7, 1)


@pytest.mark.parametrize(
    ("shape", "dtype", "frame"), [((2,), ("u4", (3,)), (2, 3)), (4, ("u1", (4,)), (4, 4))]
)
def test_a_sub_array_dtype_gives_the_frame_more_axes(shape: Any, dtype: Any, frame: tuple[int, ...]) -> None:
    kernel = Watching()
    kernel.output_spec = lambda sensor_size: (shape, dtype)  # type: ignore[method-assign]
    read = Accumulator((2, 1), kernel).read()
    assert (read.shape, read.dtype) == (frame, np.dtype(dtype).base)


@pytest.mark.parametrize("spec", [None, 5, ((2,),), ((2,), "nonsense"), ((-1,), "u1"), ("ab", "u1")])
def test_a_bad_output_spec_is_named(spec: Any) -> None:
    kernel = Watching()
    kernel.output_spec = lambda sensor_size: spec  # type: ignore[method-assign]
    with pytest.raises((TypeError, ValueError), match="output_spec"):
        Accumulator((2, 1), kernel)


class Index:
    def __index__(self) -> int:
        raise ZeroDivisionError("mine")


def test_what_an_argument_raises_comes_out() -> None:
    with pytest.raises(ZeroDivisionError, match="mine"):
        Engine((Index(), 2))  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError, match="mine"):
        Engine((2, 2)).wait_for_newer(Index(), timeout=0)  # type: ignore[arg-type]
