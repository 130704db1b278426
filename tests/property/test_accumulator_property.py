"""The Accumulator against the naive models: any kernel, calls, layouts, timestamps."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
from hypothesis import given
from hypothesis import strategies as st
from records import LAYOUTS, events, rows_of
from strategies import (
    ANY_KERNEL,
    EXACT,
    LAYOUT,
    SENSOR,
    TEMPORAL,
    TIMESTAMP_DECAY,
    Choice,
    calls,
    cut,
    event_rows,
    timestamps,
)

from frames2py import Accumulator


def feed(sensor: tuple[int, int], kernel: Any, batches: list[Any]) -> Accumulator:
    accumulator = Accumulator(sensor, kernel)
    for batch in batches:
        accumulator.accumulate(batch)
    return accumulator


@given(st.data(), SENSOR, ANY_KERNEL)
def test_every_read_is_what_the_model_shows(
    data: st.DataObject, sensor: tuple[int, int], choice: Choice
) -> None:
    model = oracle.AccumulatorModel(choice.model(*sensor))
    accumulator = Accumulator(sensor, choice.kernel)
    for rows in data.draw(calls(sensor)):
        layout = data.draw(LAYOUT)
        array = events(rows, layout)
        accumulator.accumulate(array)
        model.accumulate(rows_of(array))
        assert accumulator.watermark == model.watermark
        assert accumulator.events_out_of_bounds == model.events_out_of_bounds
        oracle.check_frame(accumulator.read(), model.model, model.watermark)
        if data.draw(st.integers(0, 9)) == 0:
            accumulator.reset()
            model.clear()
            oracle.check_frame(accumulator.read(), model.model, None)


@given(st.data(), SENSOR, EXACT)
def test_order_and_cuts_never_change_a_bit(
    data: st.DataObject, sensor: tuple[int, int], choice: Choice
) -> None:
    times = data.draw(timestamps())
    rows = data.draw(event_rows(sensor, times, 40))
    shuffled = data.draw(st.permutations(rows))
    plain = feed(sensor, choice.kernel, [events(rows)])
    other = feed(sensor, choice.kernel, [events(call) for call in data.draw(cut(shuffled))])
    assert plain.read().tobytes() == other.read().tobytes()
    assert plain.watermark == other.watermark
    assert plain.events_out_of_bounds == other.events_out_of_bounds


@given(st.data(), SENSOR, TIMESTAMP_DECAY)
def test_timestamp_decay_in_any_order_and_cuts_is_within_one_ulp(
    data: st.DataObject, sensor: tuple[int, int], choice: Choice
) -> None:
    times = data.draw(timestamps())
    rows = data.draw(event_rows(sensor, times, 40))
    model = oracle.AccumulatorModel(choice.model(*sensor))
    model.accumulate(rows)
    shuffled = data.draw(st.permutations(rows))
    for batches in ([rows], data.draw(cut(shuffled)), [[row] for row in shuffled]):
        accumulator = feed(sensor, choice.kernel, [events(call) for call in batches])
        oracle.check_frame(accumulator.read(), model.model, model.watermark)


@given(st.data(), SENSOR, ANY_KERNEL, LAYOUT)
def test_the_layout_of_the_records_never_matters(
    data: st.DataObject, sensor: tuple[int, int], choice: Choice, layout: str
) -> None:
    arrays = [events(rows, layout) for rows in data.draw(calls(sensor))]
    packed = [events(rows_of(array)) for array in arrays]
    assert (
        feed(sensor, choice.kernel, arrays).read().tobytes()
        == feed(sensor, choice.kernel, packed).read().tobytes()
    )


@st.composite
def any_layout(draw: st.DrawFn) -> Any:
    """A record with the four fields anywhere, overlapping or not, among extra ones, in any order."""
    itemsize = draw(st.integers(8, 60))
    formats = {"t": "<u8", "x": "<u2", "y": "<u2", "p": "u1"}
    for i in range(draw(st.integers(0, 2))):
        formats[f"extra{i}"] = draw(st.sampled_from(["<f4", ">u2", "S3", "?", "<i8"]))
    names = draw(st.permutations(sorted(formats)))
    offsets = [draw(st.integers(0, itemsize - np.dtype(formats[name]).itemsize)) for name in names]
    return np.dtype(
        {
            "names": names,
            "formats": [formats[name] for name in names],
            "offsets": offsets,
            "itemsize": itemsize,
        }
    )


@given(st.data(), ANY_KERNEL)
def test_any_record_is_read_as_numpy_reads_it(data: st.DataObject, choice: Choice) -> None:
    sensor = (200, 150)
    dtype = data.draw(any_layout())
    count = data.draw(st.integers(0, 5))
    raw = data.draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    array = np.frombuffer(raw, dtype)
    rows = rows_of(array)
    model = oracle.AccumulatorModel(choice.model(1, 1))
    accumulator = Accumulator(sensor, choice.kernel)
    if any(t >= 2**63 for t, *_ in rows):
        try:
            accumulator.accumulate(array)
        except ValueError:
            assert accumulator.watermark is None
            return
        raise AssertionError("an event at 2**63 or later was accepted")
    accumulator.accumulate(array)
    inside = [row for row in rows if row[1] < 200 and row[2] < 150]
    assert accumulator.events_out_of_bounds == len(rows) - len(inside)
    assert accumulator.watermark == max((t for t, *_ in inside), default=None)
    frame = accumulator.read()
    # Only pixels with events are worth the oracle's time; each is a sensor of one pixel.
    pixels = {(x, y) for _, x, y, _ in inside}
    for x, y in pixels:
        model.clear()
        model.accumulate([(t, 0, 0, p) for t, ex, ey, p in inside if (ex, ey) == (x, y)])
        pixel = (
            frame[y : y + 1, x : x + 1]
            if frame.ndim == 2 or frame.shape[-1] == 2
            else frame[..., y : y + 1, x : x + 1]
        )
        oracle.check_frame(np.ascontiguousarray(pixel), model.model, accumulator.watermark)
    if choice.kernel.name in ("event_count", "polarity"):
        assert frame.sum() == len(inside)


@given(st.data(), SENSOR, ANY_KERNEL)
def test_a_rejected_call_changes_nothing(
    data: st.DataObject, sensor: tuple[int, int], choice: Choice
) -> None:
    batches = data.draw(calls(sensor))
    accumulator = feed(sensor, choice.kernel, [events(rows) for rows in batches])
    before = (accumulator.read().tobytes(), accumulator.watermark, accumulator.events_out_of_bounds)
    times = data.draw(timestamps())
    rows = data.draw(event_rows(sensor, times, 10))
    late = (data.draw(st.integers(2**63, 2**64 - 1)), data.draw(st.integers(0, 6)), 0, 1)
    rows.insert(data.draw(st.integers(0, len(rows))), late)
    layout = data.draw(st.sampled_from(sorted(set(LAYOUTS) - {"overlapping"})))
    try:
        accumulator.accumulate(events(rows, layout))
    except ValueError:
        pass
    else:
        raise AssertionError("accepted")
    assert (accumulator.read().tobytes(), accumulator.watermark, accumulator.events_out_of_bounds) == before
    # and what follows is as if it had never been
    more = data.draw(calls(sensor, max_calls=2))
    for batch in more:
        accumulator.accumulate(events(batch))
    clean = feed(sensor, choice.kernel, [events(rows) for rows in batches + more])
    assert accumulator.read().tobytes() == clean.read().tobytes()


@given(st.data(), SENSOR, TEMPORAL)
def test_reading_by_hand_at_any_later_time(
    data: st.DataObject, sensor: tuple[int, int], choice: Choice
) -> None:
    kernel = choice.kernel
    model = oracle.AccumulatorModel(choice.model(*sensor))
    state = kernel.init_state(sensor)
    shape, dtype = kernel.output_spec(sensor)
    for rows in data.draw(calls(sensor)):
        inside = [row for row in rows if row[1] < sensor[0] and row[2] < sensor[1]]
        model.accumulate(inside)
        kernel.begin_call(state)
        if inside:
            kernel.accumulate(events(inside), state, model.watermark)
        if model.watermark is not None:
            bin_us = choice.model(1, 1).bin_us  # type: ignore[attr-defined]
            later = data.draw(st.one_of(st.integers(0, 8 * bin_us), st.integers(0, 2**63)))
            time = min(model.watermark + later, 2**63 - 1)
            out = np.full(shape, 9, dtype)
            kernel.read(state, out, time)
            oracle.check_frame(out, model.model, time)
            kernel.read(state, out, model.watermark)
            oracle.check_frame(out, model.model, model.watermark)


@given(st.data(), st.sampled_from([4095, 4096, 4097, 8192, 20_000]), ANY_KERNEL)
def test_a_large_call_is_its_events_one_by_one(data: st.DataObject, count: int, choice: Choice) -> None:
    """Sizes around what an implementation may take as a block. A few pixels only are checked by the model."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    anchor = data.draw(st.sampled_from([0, 2**32 - 500, 2**53, 2**63 - 1001]))
    dtype = LAYOUTS[data.draw(st.sampled_from(["packed", "aligned", "confidence", "padded"]))]
    array = np.zeros(count, dtype)
    array["t"] = anchor + random.integers(0, 1000, count)
    array["x"] = random.integers(0, 70, count)
    array["y"] = random.integers(0, 50, count)
    array["p"] = random.integers(0, 2, count)
    accumulator = Accumulator((64, 48), choice.kernel)
    accumulator.accumulate(array)
    inside = array[(array["x"] < 64) & (array["y"] < 48)]
    assert accumulator.events_out_of_bounds == count - len(inside)
    assert accumulator.watermark == inside["t"].max()
    frame = accumulator.read()
    for x, y in ((0, 0), (63, 47), (31, 0), (int(array["x"][-1]) % 64, int(array["y"][-1]) % 48)):
        here = inside[(inside["x"] == x) & (inside["y"] == y)]
        model = oracle.AccumulatorModel(choice.model(1, 1))
        model.accumulate([(t, 0, 0, p) for t, _, _, p in rows_of(here)])
        last = choice.kernel.name == "polarity" or frame.ndim == 2
        pixel = frame[y : y + 1, x : x + 1] if last else frame[..., y : y + 1, x : x + 1]
        oracle.check_frame(np.ascontiguousarray(pixel), model.model, accumulator.watermark)
