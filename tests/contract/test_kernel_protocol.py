"""Contract section 2: the public Kernel protocol, and kernels written in Python."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import oracle
import pytest
from records import at, empty, events, rows_of

import frames2py
from frames2py import (
    Accumulator,
    Engine,
    EventCount,
    ExpDecay,
    Polarity,
    StackedHistogram,
    TimestampDecay,
    TimeSurface,
    VoxelGrid,
)
from frames2py.kernels import Kernel

BUILT_IN = [
    EventCount(),
    Polarity(),
    TimeSurface(),
    ExpDecay(0.5),
    TimestampDecay(10.0),
    StackedHistogram(bins=3, bin_us=10),
    VoxelGrid(bins=3, bin_us=10),
]
ALL_BUILT_IN = pytest.mark.parametrize("kernel", BUILT_IN, ids=lambda kernel: kernel.name)

METHODS = ["output_spec", "init_state", "begin_call", "accumulate", "read", "close_window", "reset"]


class Logging:
    """Counts events per pixel and writes down every call of its methods."""

    name = "logging"

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.seen: list[Any] = []

    def output_spec(self, sensor_size: tuple[int, int]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        self.log.append(("output_spec", sensor_size))
        width, height = sensor_size
        return (height, width), np.dtype(np.int16)

    def init_state(self, sensor_size: tuple[int, int]) -> Any:
        self.log.append(("init_state", sensor_size))
        width, height = sensor_size
        return {"counts": np.zeros((height, width), np.int16)}

    def begin_call(self, state: Any) -> None:
        self.log.append("begin_call")

    def accumulate(self, events: Any, state: Any, watermark: Any) -> None:
        self.log.append(("accumulate", rows_of(events), watermark))
        self.seen.append(events)
        np.add.at(state["counts"], (events["y"], events["x"]), 1)

    def read(self, state: Any, out: Any, watermark: Any) -> None:
        self.log.append(("read", watermark))
        out[...] = state["counts"]

    def close_window(self, state: Any) -> None:
        self.log.append("close_window")
        state["counts"][...] = 0

    def reset(self, state: Any) -> None:
        self.log.append("reset")
        state["counts"][...] = 0

    def take(self) -> list[Any]:
        log, self.log = self.log, []
        return log


def frame_of(engine: Engine) -> Any:
    snapshot = engine.snapshot()
    assert snapshot is not None
    return snapshot.frame


# --- the protocol -------------------------------------------------------------------------------


@ALL_BUILT_IN
def test_the_built_in_kernels_are_kernels(kernel: Any) -> None:
    assert isinstance(kernel, Kernel)


def test_any_object_with_the_members_is_a_kernel() -> None:
    assert isinstance(Logging(), Kernel)


@pytest.mark.parametrize("missing", ["name", *METHODS])
def test_an_object_without_one_of_the_members_is_no_kernel(missing: str) -> None:
    members = {k: v for k, v in vars(Logging).items() if k in ("name", *METHODS) and k != missing}
    partial = type("Partial", (), members)()
    assert not isinstance(partial, Kernel)


def test_names_of_the_built_in_kernels() -> None:
    assert [kernel.name for kernel in BUILT_IN] == [
        "event_count",
        "polarity",
        "time_surface",
        "exp_decay",
        "timestamp_decay",
        "stacked_histogram",
        "voxel_grid",
    ]


# --- who calls what, when -----------------------------------------------------------------------


@pytest.mark.parametrize("make", [Accumulator, Engine])
def test_construction_asks_for_the_spec_and_the_state_with_the_sensor_size(make: Any) -> None:
    kernel = Logging()
    make((4, 3), kernel)
    assert ("output_spec", (4, 3)) in kernel.log
    assert kernel.log.count(("init_state", (4, 3))) == 1
    assert all(entry[0] in ("output_spec", "init_state") for entry in kernel.log)


def test_accumulator_calls_begin_call_once_per_accepted_call_and_accumulate_only_with_in_bounds_events() -> (
    None
):
    kernel = Logging()
    accumulator = Accumulator((4, 3), kernel)
    kernel.take()
    accumulator.accumulate(events([(5, 1, 2, 1), (3, 0, 0, 0)]))
    assert kernel.take() == ["begin_call", ("accumulate", [(5, 1, 2, 1), (3, 0, 0, 0)], 5)]
    accumulator.accumulate(empty())
    assert kernel.take() == ["begin_call"]
    accumulator.accumulate(events([(99, 4, 0, 1), (99, 0, 3, 1)]))
    assert kernel.take() == ["begin_call"]
    accumulator.accumulate(events([(99, 4, 0, 1), (4, 3, 2, 9), (98, 0, 3, 1), (1, 0, 1, 0)]))
    assert kernel.take() == ["begin_call", ("accumulate", [(4, 3, 2, 9), (1, 0, 1, 0)], 5)]
    accumulator.read()
    assert kernel.take() == [("read", 5)]
    accumulator.reset()
    assert kernel.take() == ["reset"]
    accumulator.read()
    assert kernel.take() == [("read", None)]


def test_rejected_calls_never_reach_the_kernel() -> None:
    kernel = Logging()
    accumulator, engine = Accumulator((4, 3), kernel), Engine((4, 3), kernel, snapshot_interval_ms=0)
    kernel.take()
    for call in (accumulator.accumulate, engine.ingest):
        with pytest.raises(ValueError):
            call(events([(1, 0, 0, 1), (2**63, 9, 9, 1)]))
        with pytest.raises(TypeError):
            call(np.zeros(3))
    assert kernel.take() == []


def test_engine_publication_is_read_then_close_window() -> None:
    kernel = Logging()
    engine = Engine((4, 3), kernel, snapshot_interval_ms=0)
    kernel.take()
    engine.ingest(at(7))
    assert kernel.take() == ["begin_call", ("accumulate", [(7, 0, 0, 1)], 7), ("read", 7), "close_window"]
    engine.ingest(empty())
    assert kernel.take() == ["begin_call", ("read", 7), "close_window"]
    engine.snapshot()
    assert engine.stats.events_ingested == 1
    assert kernel.take() == []
    engine.reset()
    assert kernel.take() == ["reset"]
    engine.ingest(empty())
    assert kernel.take() == ["begin_call", ("read", None), "close_window"]


def test_an_ingest_that_is_not_due_does_not_read() -> None:
    kernel = Logging()
    engine = Engine((4, 3), kernel, snapshot_interval_ms=3_600_000)
    engine.ingest(at(1))
    kernel.take()
    engine.ingest(at(2))
    assert kernel.take() == ["begin_call", ("accumulate", [(2, 0, 0, 1)], 2)]
    engine.stop()
    assert kernel.take() == [("read", 2), "close_window"]
    engine.ingest(at(3))
    engine.stop()
    engine.start()
    assert kernel.take() == []


def test_accumulate_runs_once_per_call_whatever_its_size() -> None:
    kernel = Logging()
    many = np.zeros(100_000, frames2py.EVENT_DTYPE)
    many["x"] = np.arange(100_000) % 3  # one in three is out of bounds
    Accumulator((2, 1), kernel).accumulate(many)
    assert [len(seen) for seen in kernel.seen] == [66_667]


# --- what a custom kernel is given --------------------------------------------------------------


def test_accumulate_gets_the_same_array_when_all_events_are_in_bounds() -> None:
    kernel = Logging()
    array = events([(5, 1, 2, 1), (3, 0, 0, 0)], "confidence")
    Accumulator((4, 3), kernel).accumulate(array)
    assert kernel.seen[0] is array


@pytest.mark.parametrize("layout", ["packed", "aligned", "confidence", "extra first", "padded"])
def test_accumulate_gets_the_in_bounds_events_with_all_their_fields(layout: str) -> None:
    kernel = Logging()
    array = events([(9, 7, 0, 1), (5, 1, 2, 1), (8, 0, 3, 1), (3, 0, 0, 0)], layout)
    for name in array.dtype.names or ():
        if name not in ("t", "x", "y", "p"):
            array[name] = [1, 2, 3, 4]
    Accumulator((4, 3), kernel).accumulate(array)
    (seen,) = kernel.seen
    assert seen.dtype.fields == array.dtype.fields
    assert seen.ndim == 1
    assert seen.flags.c_contiguous
    for name in array.dtype.names or ():
        assert seen[name].tolist() == array[name][[1, 3]].tolist()


def test_the_watermark_a_kernel_gets_already_includes_the_call() -> None:
    kernel = Logging()
    accumulator = Accumulator((4, 3), kernel)
    for call in ([10, 20], [15], [21, 5]):
        accumulator.accumulate(at(*call))
    watermarks = [entry[2] for entry in kernel.log if entry[0] == "accumulate"]
    assert watermarks == [20, 20, 21]
    assert all(type(watermark) is int for watermark in watermarks)


def test_read_gets_a_writable_c_contiguous_array_of_the_spec() -> None:
    given = []

    class Kernel(Logging):
        def read(self, state: Any, out: Any, watermark: Any) -> None:
            given.append((type(out), out.shape, out.dtype, out.flags.writeable, out.flags.c_contiguous))
            out[...] = 7

    engine = Engine((4, 3), Kernel(), snapshot_interval_ms=0)
    engine.ingest(empty())
    accumulator = Accumulator((4, 3), Kernel())
    assert accumulator.read().tolist() == frame_of(engine).tolist() == [[7] * 4] * 3
    assert given == [(np.ndarray, (3, 4), np.dtype(np.int16), True, True)] * 2


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((3, 4), np.uint8),
        ((2, 3, 4, 5), np.float64),
        ((7,), np.complex64),
        ((), np.int64),
        ((0, 4), np.uint32),
    ],
)
def test_output_spec_may_be_any_shape_and_dtype(shape: tuple[int, ...], dtype: Any) -> None:
    class Kernel(Logging):
        def output_spec(self, sensor_size: tuple[int, int]) -> Any:
            return shape, np.dtype(dtype)

        def read(self, state: Any, out: Any, watermark: Any) -> None:
            out[...] = 3

    frame = Accumulator((4, 3), Kernel()).read()
    engine = Engine((4, 3), Kernel(), snapshot_interval_ms=0)
    engine.ingest(at(1))
    for each in (frame, frame_of(engine)):
        assert each.shape == shape
        assert each.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(each, np.full(shape, 3, dtype))
    assert not frame_of(engine).flags.writeable


def test_a_published_frame_is_read_only_even_for_a_kernel_that_kept_out() -> None:
    kept = []

    class Kernel(Logging):
        def read(self, state: Any, out: Any, watermark: Any) -> None:
            super().read(state, out, watermark)
            kept.append(out)

    engine = Engine((2, 1), Kernel(), snapshot_interval_ms=0)
    engine.ingest(at(1))
    frame = frame_of(engine)
    before = frame.copy()
    for out in kept:
        with contextlib.suppress(ValueError):
            out[...] = 99
    np.testing.assert_array_equal(frame, before)


def test_the_state_is_whatever_init_state_returned() -> None:
    states = []

    class Kernel(Logging):
        def init_state(self, sensor_size: tuple[int, int]) -> Any:
            return None

        def begin_call(self, state: Any) -> None:
            states.append(state)

        def accumulate(self, events: Any, state: Any, watermark: Any) -> None:
            states.append(state)

        def read(self, state: Any, out: Any, watermark: Any) -> None:
            states.append(state)
            out[...] = 0

        def close_window(self, state: Any) -> None:
            states.append(state)

        def reset(self, state: Any) -> None:
            states.append(state)

    engine = Engine((2, 1), Kernel(), snapshot_interval_ms=0)
    engine.ingest(at(1))
    engine.reset()
    assert states == [None] * 5


def test_a_custom_kernel_gives_the_frames_its_methods_say() -> None:
    accumulator = Accumulator((2, 1), Logging())
    accumulator.accumulate(events([(1, 0, 0, 1), (2, 1, 0, 1), (3, 1, 0, 0), (4, 2, 0, 0)]))
    frame = accumulator.read()
    assert frame.dtype == np.int16
    assert frame.tolist() == [[1, 2]]
    engine = Engine((2, 1), Logging(), snapshot_interval_ms=0)
    frames = []
    for call in (at(1, 2), empty(), at(3, x=1)):
        engine.ingest(call)
        frames.append(frame_of(engine).tolist())
    assert frames == [[[2, 0]], [[0, 0]], [[0, 1]]]


def test_snapshot_and_stats_work_inside_a_kernel_method() -> None:
    seen = []

    class Kernel(Logging):
        def accumulate(self, events: Any, state: Any, watermark: Any) -> None:
            super().accumulate(events, state, watermark)
            seen.append((engine.snapshot(), engine.stats.events_ingested))

    engine = Engine((2, 1), Kernel(), snapshot_interval_ms=0)
    engine.ingest(at(1, 2))
    first = engine.snapshot()
    engine.ingest(at(3))
    assert seen == [(None, 0), (first, 2)]


# --- subclasses of the built-in kernels ---------------------------------------------------------


def test_a_subclass_of_a_built_in_kernel_may_override_accumulate() -> None:
    class Double(EventCount):
        def accumulate(self, events: Any, state: Any, watermark: Any) -> None:
            super().accumulate(events, state, watermark)
            super().accumulate(events, state, watermark)

    accumulator = Accumulator((2, 1), Double())
    accumulator.accumulate(events([(1, 0, 0, 1), (2, 1, 0, 1), (3, 1, 0, 0), (4, 2, 0, 0)]))
    assert accumulator.read().tolist() == [[2, 4]]
    engine = Engine((2, 1), Double(), snapshot_interval_ms=0)
    engine.ingest(at(1))
    engine.ingest(at(1))
    assert frame_of(engine).tolist() == [[2, 0]]


@ALL_BUILT_IN
def test_a_subclass_of_any_built_in_kernel_may_override_read(kernel: Any) -> None:
    parent = type(kernel)
    arguments = {
        "exp_decay": {"decay": 0.5},
        "timestamp_decay": {"tau_us": 10.0},
        "stacked_histogram": {"bins": 3, "bin_us": 10},
        "voxel_grid": {"bins": 3, "bin_us": 10},
    }.get(kernel.name, {})

    def read(self: Any, state: Any, out: Any, watermark: Any) -> None:
        parent.read(self, state, out, watermark)
        out.reshape(-1)[0] = 77

    child = type("Child", (parent,), {"read": read})(**arguments)
    assert isinstance(child, Kernel)
    call = events([(5, 0, 0, 1), (17, 1, 0, 0), (31, 1, 0, 1)])
    plain, overridden = Accumulator((2, 1), kernel), Accumulator((2, 1), child)
    plain.accumulate(call)
    overridden.accumulate(call)
    expected = plain.read()
    expected.reshape(-1)[0] = 77
    np.testing.assert_array_equal(overridden.read(), expected)
    engine = Engine((2, 1), child, snapshot_interval_ms=0)
    engine.ingest(call)
    np.testing.assert_array_equal(frame_of(engine), expected)


def test_a_subclass_that_overrides_nothing_works() -> None:
    class Plain(TimeSurface):
        pass

    accumulator = Accumulator((2, 1), Plain())
    accumulator.accumulate(at(5, 9))
    assert accumulator.read().tolist() == [[9, 0]]


def test_a_subclass_may_override_close_window_to_keep_its_window() -> None:
    class Endless(EventCount):
        def close_window(self, state: Any) -> None:
            pass

    engine = Engine((2, 1), Endless(), snapshot_interval_ms=0)
    engine.ingest(at(1))
    engine.ingest(at(2))
    assert frame_of(engine).tolist() == [[2, 0]]


def test_a_method_set_on_the_instance_counts() -> None:
    kernel = EventCount()
    kernel.read = lambda state, out, watermark: out.fill(42)  # type: ignore[method-assign]
    engine = Engine((2, 1), kernel, snapshot_interval_ms=0)
    engine.ingest(at(1))
    assert frame_of(engine).tolist() == [[42, 42]]


# --- the built-in kernels by hand ---------------------------------------------------------------


@ALL_BUILT_IN
def test_the_built_in_kernels_offer_the_methods(kernel: Any) -> None:
    """Driving a kernel by hand gives what an Accumulator gives."""
    shape, dtype = kernel.output_spec((2, 1))
    assert isinstance(shape, tuple)
    assert isinstance(dtype, np.dtype)
    state = kernel.init_state((2, 1))
    out = np.full(shape, 9, dtype)
    kernel.read(state, out, None)
    assert not out.any()

    accumulator = Accumulator((2, 1), kernel)
    watermark = 0
    for call in ([(5, 0, 0, 1), (7, 1, 0, 0)], [(36, 0, 0, 1)], [(14, 0, 0, 0), (41, 1, 0, 3)]):
        watermark = max(watermark, *(t for t, *_ in call))
        assert kernel.begin_call(state) is None
        assert kernel.accumulate(events(call), state, watermark) is None
        accumulator.accumulate(events(call))
        assert kernel.read(state, out, watermark) is None
        np.testing.assert_array_equal(out, accumulator.read())

    kernel.close_window(state)
    kernel.read(state, out, watermark)
    if kernel.name in ("event_count", "polarity"):
        assert not out.any()
    else:
        np.testing.assert_array_equal(out, accumulator.read())
    kernel.reset(state)
    kernel.read(state, out, None)
    assert not out.any()


@ALL_BUILT_IN
def test_the_methods_take_their_arguments_by_name(kernel: Any) -> None:
    shape, dtype = kernel.output_spec(sensor_size=(2, 1))
    state = kernel.init_state(sensor_size=(2, 1))
    out = np.zeros(shape, dtype)
    kernel.begin_call(state=state)
    kernel.accumulate(events=at(5, 25, 31), state=state, watermark=31)
    kernel.read(state=state, out=out, watermark=31)
    accumulator = Accumulator((2, 1), kernel)
    accumulator.accumulate(at(5, 25, 31))
    np.testing.assert_array_equal(out, accumulator.read())
    kernel.close_window(state=state)
    kernel.reset(state=state)


@ALL_BUILT_IN
def test_begin_call_without_accumulate_is_a_whole_call(kernel: Any) -> None:
    shape, dtype = kernel.output_spec((2, 1))
    state = kernel.init_state((2, 1))
    accumulator = Accumulator((2, 1), kernel)
    kernel.begin_call(state)
    kernel.accumulate(at(5, 25, 31), state, 31)
    accumulator.accumulate(at(5, 25, 31))
    kernel.begin_call(state)
    accumulator.accumulate(empty())
    out = np.zeros(shape, dtype)
    kernel.read(state, out, 31)
    np.testing.assert_array_equal(out, accumulator.read())


@ALL_BUILT_IN
def test_states_are_independent_of_each_other(kernel: Any) -> None:
    shape, dtype = kernel.output_spec((2, 1))
    first, second = kernel.init_state((2, 1)), kernel.init_state((2, 1))
    kernel.begin_call(first)
    kernel.accumulate(at(5, 25, 31), first, 31)
    out = np.full(shape, 9, dtype)
    kernel.read(second, out, 31)
    assert not out.any()


MODELS: dict[str, Any] = {
    "event_count": lambda: oracle.EventCount(2, 1),
    "polarity": lambda: oracle.Polarity(2, 1),
    "time_surface": lambda: oracle.TimeSurface(2, 1),
    "exp_decay": lambda: oracle.ExpDecay(2, 1, 0.5),
    "timestamp_decay": lambda: oracle.TimestampDecay(2, 1, 10.0),
    "stacked_histogram": lambda: oracle.StackedHistogram(2, 1, 3, 10),
    "voxel_grid": lambda: oracle.VoxelGrid(2, 1, 3, 10),
}


@ALL_BUILT_IN
def test_read_may_get_a_time_later_than_the_watermark_and_changes_no_state(kernel: Any) -> None:
    model = oracle.AccumulatorModel(MODELS[kernel.name]())
    rows = [(5, 0, 0, 1), (7, 1, 0, 0), (36, 0, 0, 1), (38, 1, 0, 1)]
    shape, dtype = kernel.output_spec((2, 1))
    state = kernel.init_state((2, 1))
    kernel.begin_call(state)
    kernel.accumulate(events(rows), state, 38)
    model.accumulate(rows)
    for time in (38, 39, 40, 50, 59, 75, 38, 2**63 - 1, 10**6, 40, 38):
        out = np.full(shape, 9, dtype)
        kernel.read(state, out, time)
        oracle.check_frame(out, model.model, time)
    # events after such reads still count where they belong
    kernel.begin_call(state)
    kernel.accumulate(at(33, 41), state, 41)
    model.accumulate([(33, 0, 0, 1), (41, 0, 0, 1)])
    out = np.full(shape, 9, dtype)
    kernel.read(state, out, 41)
    oracle.check_frame(out, model.model, 41)


# --- a kernel that raises -----------------------------------------------------------------------


class Boom(Exception):
    pass


def failing(method: str) -> Any:
    """A Logging kernel whose `method` raises while its `fail` is set."""

    def raising(self: Any, *args: Any) -> Any:
        if self.fail:
            self.raised = Boom(method)
            raise self.raised
        return getattr(Logging, method)(self, *args)

    kernel = type("Failing", (Logging,), {method: raising, "fail": False})()
    assert isinstance(kernel, Kernel)
    return kernel


@pytest.mark.parametrize("method", ["output_spec", "init_state"])
@pytest.mark.parametrize("make", [Accumulator, Engine])
def test_what_a_kernel_raises_at_construction_comes_out(make: Any, method: str) -> None:
    kernel = failing(method)
    kernel.fail = True
    with pytest.raises(Boom) as caught:
        make((4, 3), kernel)
    assert caught.value is kernel.raised


@pytest.mark.parametrize("method", ["begin_call", "accumulate", "read", "close_window"])
def test_what_a_kernel_raises_in_ingest_comes_out_and_the_engine_goes_on(method: str) -> None:
    kernel = failing(method)
    engine = Engine((2, 1), kernel, snapshot_interval_ms=0)
    engine.ingest(at(1))
    first = engine.snapshot()
    kernel.fail = True
    with pytest.raises(Boom) as caught:
        engine.ingest(at(2))
    assert caught.value is kernel.raised
    kernel.fail = False
    engine.ingest(at(3))
    last = engine.snapshot()
    assert first is not None
    assert last is not None
    assert last.meta.watermark == 3
    assert last.meta.sequence > first.meta.sequence
    assert last.frame[0, 0] >= 1
    engine.reset()
    engine.ingest(at(4))
    assert frame_of(engine).tolist() == [[1, 0]]
    engine.stop()
    assert engine.stats.events_ingested == 1


def test_a_call_that_fails_in_begin_call_changes_nothing() -> None:
    kernel = failing("begin_call")
    engine = Engine((2, 1), kernel, snapshot_interval_ms=0)
    engine.ingest(at(1))
    snapshot = engine.snapshot()
    kernel.fail = True
    with pytest.raises(Boom):
        engine.ingest(events([(9, 0, 0, 1), (9, 5, 5, 1)]))
    assert engine.snapshot() is snapshot
    assert (engine.stats.events_ingested, engine.stats.events_out_of_bounds) == (1, 0)
    kernel.fail = False
    engine.ingest(empty())
    assert frame_of(engine).tolist() == [[0, 0]]


@pytest.mark.parametrize("method", ["begin_call", "accumulate", "read", "close_window"])
def test_an_ingest_that_raises_in_the_kernel_makes_no_producer(method: str, elsewhere: Any) -> None:
    kernel = failing(method)
    kernel.fail = True
    engine = Engine((2, 1), kernel, snapshot_interval_ms=0)
    with pytest.raises(Boom):
        engine.ingest(at(1))
    kernel.fail = False
    elsewhere(engine.ingest, at(2))
    with pytest.raises(RuntimeError):
        engine.ingest(at(3))


def test_a_read_that_raises_publishes_nothing() -> None:
    kernel = failing("read")
    engine = Engine((2, 1), kernel, snapshot_interval_ms=3_600_000)
    engine.ingest(at(1))
    snapshot = engine.snapshot()
    engine.ingest(at(2))
    kernel.fail = True
    with pytest.raises(Boom):
        engine.stop()
    assert engine.snapshot() is snapshot
    assert engine.stats.snapshots_published == 1
    kernel.fail = False
    engine.stop()
    assert frame_of(engine).tolist() == [[1, 0]]
    assert engine.stats.snapshots_published == 2


def test_a_reset_that_raises_leaves_a_working_engine() -> None:
    kernel = failing("reset")
    engine = Engine((2, 1), kernel, snapshot_interval_ms=0)
    engine.ingest(at(1))
    kernel.fail = True
    with pytest.raises(Boom):
        engine.reset()
    kernel.fail = False
    engine.reset()
    assert engine.snapshot() is None
    engine.ingest(at(2, 3))
    assert frame_of(engine).tolist() == [[2, 0]]


@pytest.mark.parametrize("method", ["begin_call", "accumulate", "read", "reset"])
def test_what_a_kernel_raises_in_an_accumulator_comes_out(method: str) -> None:
    kernel = failing(method)
    accumulator = Accumulator((2, 1), kernel)
    accumulator.accumulate(at(1))
    kernel.fail = True
    action = {
        "begin_call": lambda: accumulator.accumulate(at(2)),
        "accumulate": lambda: accumulator.accumulate(at(2)),
        "read": accumulator.read,
        "reset": accumulator.reset,
    }[method]
    with pytest.raises(Boom) as caught:
        action()
    assert caught.value is kernel.raised
    kernel.fail = False
    accumulator.reset()
    accumulator.accumulate(at(5))
    assert accumulator.read().tolist() == [[1, 0]]
    assert accumulator.watermark == 5


def test_reading_at_a_time_that_is_past_shows_the_bins_that_are_still_held() -> None:
    kernel = frames2py.StackedHistogram(bins=3, bin_us=10)
    state = kernel.init_state((1, 1))
    kernel.begin_call(state)
    times = (0, 5, 12, 25, 31, 44, 45, 57)
    kernel.accumulate(events([(t, 0, 0, 1) for t in times]), state, 57)
    out = np.full((2, 3, 1, 1), 9, np.uint32)
    # At 57 the bins from 20 on are held. At 44 those from 10 to 40 are shown, the first of which is held
    # no more.
    for at_us, on in ((57, [1, 1, 2]), (44, [0, 1, 1]), (39, [0, 0, 1]), (12, [0, 0, 0])):
        kernel.read(state, out, at_us)
        assert out[1, :, 0, 0].tolist() == on, at_us
        assert not out[0].any()
