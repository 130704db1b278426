"""Which cells there are, and the events they are fed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from benchmarks.gate import cells, streams
from benchmarks.gate.cells import Cell


def test_the_main_product_has_every_kernel_sensor_and_size_at_every_level():
    everything = cells.everything()
    assert len({cell.id for cell in everything}) == len(everything)
    found = {
        (c.level, c.label, c.sensor, c.events, c.cadence, c.reading)
        for c in everything
        if c.kind == "uniform"
    }
    for kernel in cells.KERNELS:
        for sensor in [(346, 260), (640, 480), (1280, 720)]:
            for events in [1_000, 10_000, 100_000, 1_000_000]:
                assert ("accumulate", kernel.label, sensor, events, "", "") in found
                for reading in ["nobody", "consumer", "every"]:
                    assert ("engine", kernel.label, sensor, events, "each-call", reading) in found
                    expected = events < 320_000  # a million events take longer than 16 ms
                    assert (("engine", kernel.label, sensor, events, "16ms", reading) in found) == expected


def test_every_kernel_meets_every_kind_of_events_at_both_levels():
    found = {(c.label, c.kind, c.level) for c in cells.everything()}
    levels = [cells.ACCUMULATE, cells.ENGINE]
    assert found == {
        (k.label, kind, level) for k in cells.KERNELS for kind in cells.KINDS for level in levels
    }


def test_cells_of_a_group_and_of_a_state_are_together():
    everything = cells.everything()
    for key in (lambda c: (c.label, c.sensor), lambda c: c.state):
        changes = sum(key(a) != key(b) for a, b in itertools.pairwise(everything))
        assert changes + 1 == len({key(c) for c in everything})


@pytest.mark.parametrize(("events", "calls"), [(1_000, 320), (10_000, 32), (100_000, 4)])
def test_publication_comes_with_the_first_call_after_16_ms_of_the_clock(events, calls):
    cell = Cell("engine", "polarity", (346, 260), events, "uniform", "16ms", "nobody")
    assert cell.calls_per_publication == calls
    assert calls * events / 20 >= 16_000 > (calls - 1) * events / 20


def test_a_pattern_selects_by_id():
    everything = cells.everything()
    assert cells.select(everything, None) == everything
    chosen = cells.select(everything, "voxel-5/1280*10k/uniform/each")
    assert [c.reading for c in chosen] == ["nobody", "consumer", "every"]
    assert set(cells.quick()) < set(everything)


def test_a_cell_survives_json():
    for cell in cells.quick():
        assert Cell.from_json(cell.to_json()) == cell


@pytest.mark.parametrize("kind", [kind for kind in cells.KINDS if kind != "recorded"])
def test_streams_are_what_their_names_say(kind):
    width, height = 64, 48
    events = streams.synthetic(kind, (width, height), 50_000)
    assert (np.diff(events["t"].astype("i8")) >= 0).all()
    assert int(events["t"][-1] - events["t"][0]) == 49_999 // 20
    assert abs(events["p"].mean() - 0.5) < 0.02
    outside = ((events["x"] >= width) | (events["y"] >= height)).mean()
    assert outside == pytest.approx({"outside-1%": 0.01, "outside-10%": 0.1}.get(kind, 0), abs=0.005)
    pixels = np.bincount(events["y"].astype(int) * 128 + events["x"])
    if kind == "hot-pixel-90%":
        assert pixels.max() / len(events) == pytest.approx(0.9, abs=0.01)
    elif kind == "clustered":
        busiest = np.sort(pixels)[::-1]
        assert busiest[: width * height // 4].sum() > 0.7 * len(events)
    else:
        assert pixels.max() < 60


def test_a_feed_never_ends_and_never_steps_back():
    feed = streams.Feed(streams.synthetic("uniform", (64, 48), 10_000))
    last = 0
    for size, per_unit, units in [(1_000, 1, 7), (100, 3, 50), (1_000, 4, 1), (5_000, 2, 9), (7, 1, 1)]:
        for _ in range(5):
            batches = feed.batches(size, per_unit, units)
            assert 1 <= len(batches) / per_unit <= units and len(batches) % per_unit == 0
            for batch in batches:
                assert len(batch) == size
                assert int(batch["t"][0]) >= last
                last = int(batch["t"][-1])
    window = feed.window(100)
    assert int(window["t"][-1] - window["t"][0]) == 99 and int(window["t"][0]) > last


@pytest.mark.parametrize("kernel", cells.KERNELS, ids=lambda kernel: kernel.label)
def test_bins_complete_in_a_check(kernel):
    events = streams.synthetic("uniform", (346, 260), 40_000)
    cell = Cell("accumulate", kernel.label, (346, 260), 1_000)
    checked, units = streams.for_check(events, cell)
    assert units == 4 and len(checked) == 4_000
    if kernel.bins:
        first, last = int(checked["t"][0]) // kernel.bin_us, int(checked["t"][-1]) // kernel.bin_us
        assert last - first >= min(kernel.bins, 5)
    assert math.prod(kernel.frame_shape((346, 260))) * int(kernel.dtype[1]) == kernel.frame_bytes((346, 260))
