"""``frames2py.events`` against Python's own integers, a row at a time."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import frames2py
from frames2py import EVENT_DTYPE

ROWS = [(t * 1000, t % 640, t % 480, t % 2) for t in range(2500)]
EXPECTED = np.array(ROWS, EVENT_DTYPE)


def columns(t="i8", x="i8", y="i8", p="i8"):
    return dict(
        zip("txyp", (EXPECTED[n].astype(d) for n, d in zip("txyp", (t, x, y, p), strict=True)), strict=True)
    )


def structured(*fields, align=False):
    array = np.zeros(len(ROWS), np.dtype(list(fields), align=align))
    for name, _ in fields:
        if name.lower()[0] in "txyp" or name == "on":
            array[name] = EXPECTED["p" if name == "on" else name.lower()[0]]
    return array


def check(found, expected=EXPECTED):
    assert found.dtype == EVENT_DTYPE and found.flags.c_contiguous and found.flags.writeable
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", ["i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
def test_columns_of_every_type(kind, order):
    small = {"f4": "f8"}.get(kind, kind if kind[1] != "2" else "u4")
    parts = columns(order + small, order + kind, order + kind, order + kind)
    unit = "us" if small[0] == "f" else None
    check(frames2py.events(**parts, time_unit=unit))


@pytest.mark.parametrize("kind", ["?", "i1", "u1"])
def test_polarities_of_one_byte(kind):
    check(frames2py.events(**columns(p=kind)))


@pytest.mark.parametrize(
    "array",
    [
        structured(("x", "<u2"), ("y", "<u2"), ("p", "<i2"), ("t", "<i8")),
        structured(("x", "<i2"), ("y", "<i2"), ("t", "<i8"), ("p", "?")),
        structured(("timestamp", "<i8"), ("x", "<i2"), ("y", "<i2"), ("polarity", "i1")),
        structured(("t", "<i8"), ("x", "<i2"), ("y", "<i2"), ("p", "u1")),
        structured(("t", "<u8"), ("x", "<u2"), ("y", "<u2"), ("on", "?"), align=True),
        structured(("t", "<u8"), ("x", "<u2"), ("y", "<u2"), ("p", "u1"), align=True),
        structured(("id", "S3"), ("Pol", ">i4"), ("ts", ">u8"), ("X", ">i8"), ("z", "f4"), ("Y", "<u4")),
        EXPECTED,
        np.repeat(EXPECTED, 3)[::3],
        EXPECTED[::-1].copy()[::-1],
    ],
)
def test_structured_arrays(array):
    check(frames2py.events(array))


@pytest.mark.parametrize("order", ["C", "F"])
def test_tables(order):
    table = np.array(ROWS, order=order)
    check(frames2py.events(table, columns="txyp"))
    check(frames2py.events(ROWS, columns="txyp"))
    wide = np.concatenate([table[:, [3, 1]], np.full((len(ROWS), 1), -5), table[:, [0, 2]]], axis=1)
    check(frames2py.events(wide, columns="px-ty"))
    check(frames2py.events(table.astype("f8"), columns="txyp", time_unit="us"))


def test_no_events():
    for found in (
        frames2py.events(t=[], x=[], y=[], p=[]),
        frames2py.events(EXPECTED[:0]),
        frames2py.events(np.zeros((0, 4), int), columns="txyp"),
    ):
        check(found, EXPECTED[:0])


def test_minus_one_is_off():
    check(frames2py.events(**columns() | {"p": EXPECTED["p"].astype("i2") * 2 - 1}))


@pytest.mark.parametrize("kind", ["f8", "f4"])
@pytest.mark.parametrize(("unit", "factor"), [("s", 10**6), ("ms", 10**3)])
def test_floats_stand_for_the_nearest_microsecond(kind, unit, factor):
    # As far as the type tells microseconds apart.
    limit = 2**51 if kind == "f8" else 2**20
    us = np.unique(np.geomspace(1, limit - 1, 5000).astype("i8"))
    zeros = np.zeros(len(us), "u1")
    for times in (us / factor, us * (1 / factor)):
        found = frames2py.events(t=times.astype(kind), x=zeros, y=zeros, p=zeros, time_unit=unit)
        np.testing.assert_array_equal(found["t"], us)


@pytest.mark.parametrize(
    ("t", "unit", "round_times", "expected"),
    [
        (np.array([3]), "s", False, 3_000_000),
        (np.array([3]), "ms", False, 3000),
        (np.array([3000]), "ns", False, 3),
        (np.array([3499]), "ns", True, 3),
        (np.array([3500]), "ns", True, 4),
        (np.array([3000.0]), "ns", False, 3),
        (np.array([3500.0]), "ns", True, 4),
        (np.array([0.5]), "us", True, 1),
        (np.array([1.2345678]), "s", True, 1_234_568),
        (np.array([2.0**53 - 1]), "us", False, 2**53 - 1),
        (np.array([1_700_000_000.123457]), "s", False, 1_700_000_000_123_457),
        (np.array([2**63 - 1]), "us", False, 2**63 - 1),
    ],
)
def test_units(t, unit, round_times, expected):
    found = frames2py.events(t=t, x=[0], y=[0], p=[1], time_unit=unit, round_times=round_times)
    assert found["t"].tolist() == [expected]


@pytest.mark.parametrize(
    ("field", "values", "unit", "message"),
    [
        ("t", [-1], None, "t is -1; a time is"),
        ("t", np.array([2**63], "u8"), None, "t is 9223372036854775808; a time is"),
        ("t", [2**62], "ms", "t is 4611686018427387904"),
        ("t", [1001], "ns", "t is 1001; .*round_times=True"),
        ("t", [-0.5], "us", "t is -0.5; a time is"),
        ("t", [0.5], "us", "t is 0.5; it is no whole number"),
        ("t", [1.0000005], "s", "t is 1.0000005; it is no whole"),
        ("t", [float("nan")], "s", "t is NaN"),
        ("t", [float("inf")], "s", "t is inf; so far from 0"),
        ("t", [2.0**53 + 2], "us", "t is 9007199254740994.0; so far"),
        ("t", np.array([5], "f4"), "s", "t is 5.0; so far"),
        ("x", [65536], None, "x is 65536; a coordinate is"),
        ("x", [-1], None, "x is -1"),
        ("y", np.array([2**64 - 1], "u8"), None, "y is 18446744073709551615"),
        ("y", [1.5], None, "y is 1.5"),
        ("y", [float("nan")], None, "y is NaN"),
        ("x", np.array([1e300]), None, r"x is 1e300"),
        ("p", [2], None, "p is 2; a polarity is 0 or 1, or -1 or 1"),
        ("p", [-2], None, "p is -2"),
        ("p", np.array([255], "u1"), None, "p is 255"),
        ("p", np.array([2**64 - 1], "u8"), None, "p is 18446744073709551615"),
        ("p", [0.5], None, "p is 0.5"),
        ("p", [-1], None, "p is -1; rows before it have 0"),
    ],
)
@pytest.mark.parametrize("row", [1, 1023, 1024, 2400])
def test_what_does_not_fit_is_refused_with_its_row(field, values, unit, message, row):
    parts = columns(p="i8") | {"t": np.zeros(len(ROWS), "i8")}
    bad = np.asarray(values)
    part = parts[field].astype(bad.dtype)
    part[row] = bad[0]
    with pytest.raises(ValueError, match=f"^row {row}: {message}"):
        frames2py.events(**parts | {field: part}, time_unit=unit)


def test_the_first_bad_row_is_named():
    parts = columns()
    parts["p"][7], parts["x"][5], parts["t"][6] = 9, -3, -1
    with pytest.raises(ValueError, match=r"^row 5: x is -3"):
        frames2py.events(**parts)
    parts = columns()
    parts["p"][:5] = [1, -1, 1, 0, 7]
    with pytest.raises(ValueError, match=r"^row 3: p is 0; rows before it have -1"):
        frames2py.events(**parts)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        ((), {}, TypeError, "t, x, y, p is missing"),
        ((), {"t": [1], "x": [1], "y": [1]}, TypeError, "p is missing"),
        ((EXPECTED,), {"t": [1]}, TypeError, "not both: t"),
        ((EXPECTED,), {"columns": "txyp"}, TypeError, "a structured array has names"),
        ((EXPECTED.reshape(50, 50),), {}, ValueError, "1-D"),
        ((np.zeros((3, 4), int),), {}, TypeError, "order of its columns"),
        ((np.zeros((3, 4), int),), {"columns": "txy"}, ValueError, "columns must be"),
        ((np.zeros((3, 4), int),), {"columns": "txyz"}, ValueError, "columns must be"),
        ((np.zeros((3, 4), int),), {"columns": "txyp-"}, ValueError, "but the table has 4"),
        ((np.zeros((3, 4), int),), {"columns": 4}, TypeError, "columns must be a str"),
        ((np.zeros(4),), {}, ValueError, "1-D structured array or a 2-D table"),
        ((np.zeros(4, "i4,i4"),), {}, ValueError, "there is no t"),
        (
            (np.zeros(4, [(n, "i4") for n in ("t", "time", "x", "y", "p")]),),
            {},
            ValueError,
            "t and time could both",
        ),
        ((), {"t": [1], "x": [1], "y": [1], "p": [1, 0]}, ValueError, "got 1 values of t and 2 of p"),
        ((), {"t": [[1]], "x": [1], "y": [1], "p": [1]}, ValueError, "t must be 1-D"),
        ((), {"t": [0.5], "x": [1], "y": [1], "p": [1]}, TypeError, "time_unit="),
        ((), {"t": [1], "x": ["a"], "y": [1], "p": [1]}, TypeError, "x must hold integers"),
        ((), {"t": [1], "x": [1], "y": [None], "p": [1]}, TypeError, "y must hold integers"),
        ((), {"t": [1], "x": [1], "y": [1], "p": np.array([1], "f2")}, TypeError, "p must hold integers"),
        ((EXPECTED,), {"time_unit": "h"}, ValueError, "time_unit must be"),
        ((EXPECTED,), {"time_unit": 1}, TypeError, "time_unit must be"),
        ((EXPECTED,), {"round_times": 1}, TypeError, "round_times must be"),
    ],
)
def test_arguments_that_are_refused(args, kwargs, error, message):
    with pytest.raises(error, match=message):
        frames2py.events(*args, **kwargs)


@given(
    st.lists(
        st.tuples(
            st.integers(-2, 2**63 - 1) | st.integers(0, 10**4),
            st.integers(-1, 65536),
            st.integers(0, 65535),
            st.sampled_from([-1, 0, 1, 1, 1, 0, 2]),
        ),
        max_size=12,
    ),
    st.sampled_from(["s", "ms", "us", "ns"]),
)
@example([(1, 0, 0, 1), (-1, 0, 0, 1)], "ns")
def test_rows_are_converted_or_the_first_bad_one_is_named(rows, unit):
    factor = {"s": 10**6, "ms": 1000, "us": 1, "ns": 1}[unit]
    divisor = 1000 if unit == "ns" else 1
    expected, bad, off = [], None, None
    for i, (t, x, y, p) in enumerate(rows):
        fits = t >= 0 and t % divisor == 0 and t * factor // divisor < 2**63 and 0 <= x < 65536
        if p != 1:
            fits = fits and p != 2 and off in (None, p)
            off = p if off is None else off
        if not fits:
            bad = i
            break
        expected.append((t * factor // divisor, x, y, int(p == 1)))
    table = np.array(rows, "i8").reshape(-1, 4)
    if bad is None:
        assert frames2py.events(table, columns="txyp", time_unit=unit).tolist() == expected
    else:
        with pytest.raises(ValueError, match=f"^row {bad}: "):
            frames2py.events(table, columns="txyp", time_unit=unit)


def test_input_that_another_thread_writes_is_converted_or_refused():
    parts = {name: np.zeros(50_000, "i8") for name in "txyp"}
    done = threading.Event()

    def write():
        while not done.is_set():
            parts["x"][:] = 70_000
            parts["x"][:] = 7

    writer = threading.Thread(target=write)
    writer.start()
    try:
        refused = []
        for _ in range(200):
            try:
                found = frames2py.events(**parts)
                assert set(found["x"].tolist()) <= {0, 7}
            except ValueError as error:
                refused.append(str(error))
        # What was refused is what is shown.
        assert all("x is 70000;" in message for message in refused)
    finally:
        done.set()
        writer.join()
