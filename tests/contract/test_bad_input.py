"""Bad arguments: a clear error that names the argument and what came, before anything is built."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from records import at, events

import frames2py
from frames2py import Accumulator, Engine, EventCount, ExpDecay, StackedHistogram, TimestampDecay, VoxelGrid

MAKERS = pytest.mark.parametrize(
    "make",
    [lambda size: Engine(size), lambda size: Accumulator(size, "event_count")],
    ids=["Engine", "Accumulator"],
)

# --- sensor sizes -------------------------------------------------------------------------------


@MAKERS
@pytest.mark.parametrize("size", [(0, 3), (4, 0), (0, 0), (-1, 3), (4, -3), (np.int64(-1), 3)], ids=repr)
def test_a_zero_or_negative_sensor_size_is_a_value_error(make: Any, size: Any) -> None:
    with pytest.raises(ValueError, match="sensor_size"):
        make(size)


@MAKERS
@pytest.mark.parametrize(
    "size",
    [
        *((True, 3), (4, False), (True, True), (np.True_, 3)),
        *((4.0, 3), (4, 3.0), (4.5, 3), (float("nan"), 3), (4, float("inf")), (np.float64(4), 3)),
        *((4, None), ("4", "3"), (4, "3"), (Fraction(4), 3), (4 + 0j, 3), (4, [3]), (b"4", 3)),
    ],
    ids=repr,
)
def test_a_sensor_size_of_bools_floats_or_anything_but_integers_is_an_error(make: Any, size: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="sensor_size"):
        make(size)


@MAKERS
@pytest.mark.parametrize(
    "size", [(), (4,), (4, 3, 2), None, 5, 4.0, "43", b"43", {4: 1, 3: 1}, {3, 4}, object], ids=repr
)
def test_a_sensor_size_that_is_no_pair_is_an_error(make: Any, size: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="sensor_size"):
        make(size)


@MAKERS
def test_the_message_shows_the_sensor_size_that_came(make: Any) -> None:
    for size in ((0, 37), (4, -91), (True, 53), (4.25, 3), (4, 3, 777)):
        with pytest.raises((TypeError, ValueError)) as caught:
            make(size)
        distinctive = max(map(str, size), key=len)
        assert distinctive in str(caught.value) or repr(size) in str(caught.value)


def in_a_process_of_its_own(program: str) -> str:
    """Runs `program`; an abort or a crash is a failure of this test only."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stderr}"
    return result.stdout


def test_an_allocation_that_cannot_succeed_is_a_memory_error_never_an_abort() -> None:
    output = in_a_process_of_its_own(
        """
        import numpy as np
        from frames2py import *
        TOO_MUCH = [
            ((10**9, 10**9), "event_count"),
            ((10**9, 10**9), "polarity"),
            ((2**31 - 1, 2**31 - 1), "time_surface"),
            ((2**40, 2**20), ExpDecay(0.5)),
            ((10**9, 10**8), TimestampDecay(5.0)),
            ((640, 480), StackedHistogram(bins=2**45, bin_us=10)),
            ((640, 480), VoxelGrid(bins=2**45, bin_us=10)),
            ((640, 480), StackedHistogram(bins=2**64, bin_us=10)),
            ((640, 480), VoxelGrid(bins=2**200, bin_us=10)),
            ((2**62, 2**62), "event_count"),
            ((2**63, 1), "event_count"),
            ((2**64, 1), "event_count"),
            ((1, 2**200), "event_count"),
        ]
        for size, kernel in TOO_MUCH:
            for make in (Engine, Accumulator):
                try:
                    make(size, kernel)
                except Exception as error:
                    print(type(error).__name__)
                else:
                    print("no error for", size, kernel)
        # and the process is as good as before
        engine = Engine((4, 3), snapshot_interval_ms=0)
        engine.ingest(np.zeros(5, EVENT_DTYPE))
        print(engine.snapshot().frame.sum())
        """
    ).split()
    assert output[-1] == "5"
    fits_in_an_address_space, beyond = output[: 2 * 7], output[2 * 7 : -1]
    assert fits_in_an_address_space == ["MemoryError"] * 14
    # Beyond 2**63 elements there is no such size; both errors say so.
    assert set(beyond) <= {"MemoryError", "ValueError"}
    assert len(beyond) == 12


# --- snapshot_interval_ms -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "interval",
    [-1, -0.001, -(10**400), float("nan"), float("inf"), -float("inf"), np.float32("nan"), Fraction(-1, 2)],
    ids=lambda i: str(i)[:8],
)
def test_an_interval_that_is_negative_or_not_finite_is_a_value_error(interval: Any) -> None:
    with pytest.raises(ValueError, match="snapshot_interval_ms"):
        Engine((4, 3), snapshot_interval_ms=interval)


@pytest.mark.parametrize(
    "interval", [True, False, np.True_, "16", b"16", None, 1j, [16], np.array([16.0]), object], ids=repr
)
def test_an_interval_that_is_no_real_number_is_an_error(interval: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="snapshot_interval_ms"):
        Engine((4, 3), snapshot_interval_ms=interval)


@pytest.mark.parametrize(
    "interval",
    [0, 1, 16.0, 1e-9, 5e-324, 1e300, np.float32(2.5), np.int64(3), Fraction(1, 3), 2**70],
    ids=lambda i: str(i)[:8],
)
def test_any_finite_interval_from_0_on_is_accepted(interval: Any) -> None:
    engine = Engine((4, 3), snapshot_interval_ms=interval)
    engine.ingest(at(1))
    engine.ingest(at(2))
    assert 1 <= engine.stats.snapshots_published <= 2
    if interval > 1e9:
        assert engine.stats.snapshots_published == 1


# --- kernels ------------------------------------------------------------------------------------

KERNEL_MAKERS = pytest.mark.parametrize("make", [Engine, Accumulator])


@KERNEL_MAKERS
@pytest.mark.parametrize(
    "cls",
    [
        EventCount,
        frames2py.Polarity,
        frames2py.TimeSurface,
        ExpDecay,
        TimestampDecay,
        StackedHistogram,
        VoxelGrid,
    ],
)
def test_a_kernel_class_instead_of_an_instance_gets_an_error_that_says_to_instantiate_it(
    make: Any, cls: Any
) -> None:
    with pytest.raises(TypeError, match=r"(?i)instan") as caught:
        make((4, 3), cls)
    assert cls.__name__ in str(caught.value)


@KERNEL_MAKERS
def test_a_kernel_class_of_the_users_own_too(make: Any) -> None:
    class Mine(EventCount):
        pass

    with pytest.raises(TypeError, match=r"(?i)instan"):
        make((4, 3), Mine)


@KERNEL_MAKERS
@pytest.mark.parametrize(
    "kernel", [None, 5, object, b"polarity", ["polarity"], {}, ("event_count",)], ids=repr
)
def test_something_that_is_no_kernel_is_a_type_error(make: Any, kernel: Any) -> None:
    with pytest.raises(TypeError, match="kernel"):
        make((4, 3), kernel)


@KERNEL_MAKERS
def test_a_failed_construction_does_not_call_the_kernel(make: Any) -> None:
    called = []

    class Kernel(EventCount):
        def init_state(self, sensor_size: tuple[int, int]) -> Any:
            called.append(sensor_size)
            return super().init_state(sensor_size)

    with pytest.raises((TypeError, ValueError)):
        make((4.5, 3), Kernel())
    assert called == []


class BadSpec(EventCount):
    spec: Any = None

    def output_spec(self, sensor_size: tuple[int, int]) -> Any:
        return self.spec


@KERNEL_MAKERS
@pytest.mark.parametrize(
    "spec",
    [
        None,
        (3, 4),
        ((3, 4),),
        ((3, 4), np.dtype(np.uint8), 1),
        ((-3, 4), np.dtype(np.uint8)),
        ((3, 4.0), np.dtype(np.uint8)),
        ((3, 4), "no such dtype"),
        (("3", 4), np.dtype(np.uint8)),
    ],
    ids=repr,
)
def test_a_kernel_with_a_bad_output_spec_is_an_error(make: Any, spec: Any) -> None:
    kernel = BadSpec()
    kernel.spec = spec
    with pytest.raises((TypeError, ValueError)):
        make((4, 3), kernel)


# --- the built-in kernels by hand ---------------------------------------------------------------

BUILT_IN = pytest.mark.parametrize(
    "kernel",
    [
        EventCount(),
        frames2py.Polarity(),
        frames2py.TimeSurface(),
        ExpDecay(0.5),
        TimestampDecay(10.0),
        StackedHistogram(bins=3, bin_us=10),
        VoxelGrid(bins=3, bin_us=10),
    ],
    ids=lambda kernel: kernel.name,
)


@BUILT_IN
def test_read_into_an_array_of_another_shape_is_an_error(kernel: Any) -> None:
    state = kernel.init_state((2, 2))
    _, dtype = kernel.output_spec((2, 2))
    for shape in ((7,), (2, 7), (0,), (2, 2, 2, 2, 2)):
        with pytest.raises((TypeError, ValueError, IndexError)):
            kernel.read(state, np.zeros(shape, dtype), 5)


@BUILT_IN
def test_read_into_a_read_only_array_is_an_error(kernel: Any) -> None:
    state = kernel.init_state((2, 2))
    shape, dtype = kernel.output_spec((2, 2))
    out = np.full(shape, 9, dtype)
    out.flags.writeable = False
    with pytest.raises(ValueError):
        kernel.read(state, out, 5)
    assert (out == 9).all()


@BUILT_IN
def test_by_hand_nothing_is_written_outside_the_state(kernel: Any) -> None:
    """accumulate() is meant for in-bounds events only: any others are an error or ignored, never a crash."""
    state = kernel.init_state((2, 2))
    shape, dtype = kernel.output_spec((2, 2))
    outside = [(25, 65535, 65535, 1), (25, 2, 0, 1), (25, 0, 2, 1)]
    for row in outside:
        kernel.begin_call(state)
        with contextlib.suppress(IndexError, ValueError):
            kernel.accumulate(events([row]), state, 25)
    out = np.zeros(shape, dtype)
    kernel.read(state, out, 25)
    assert np.isfinite(out.astype(np.float64)).all()


@BUILT_IN
@pytest.mark.parametrize("foreign", [None, {}, 5, object], ids=repr)
def test_a_foreign_state_is_an_error(kernel: Any, foreign: Any) -> None:
    shape, dtype = kernel.output_spec((2, 2))
    with pytest.raises((TypeError, AttributeError, ValueError)):
        kernel.accumulate(at(1), foreign, 1)
    with pytest.raises((TypeError, AttributeError, ValueError)):
        kernel.read(foreign, np.zeros(shape, dtype), 1)
