"""A long call with one bad timestamp, wherever that is, changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from every_kernel import EVERY_KERNEL
from records import LAYOUTS

from frames2py import Accumulator, Engine

COUNT = 1_000_000


def long_call(layout: str, count: int = COUNT) -> Any:
    rng = np.random.default_rng(3)
    array = np.zeros(count, LAYOUTS[layout])
    array["t"] = 1_000 + np.arange(count) // 10
    array["x"] = rng.integers(0, 66, count)
    array["y"] = rng.integers(0, 48, count)
    array["p"] = rng.integers(0, 2, count)
    return array


@EVERY_KERNEL
@pytest.mark.parametrize("layout", ["packed", "aligned"])
def test_one_bad_time_in_a_million_events_changes_nothing(kernel: Any, layout: str) -> None:
    array = long_call(layout)
    used, other = Accumulator((64, 48), kernel), Accumulator((64, 48), kernel)
    for accumulator in (used, other):
        accumulator.accumulate(array[:1_000])
    before = used.read(), used.watermark, used.events_out_of_bounds
    for position in (0, 1, 4_321, COUNT // 2, COUNT - 300, COUNT - 1):
        good = array["t"][position]
        for x in (5, 64):  # inside, outside
            keep = array["x"][position]
            array["x"][position], array["t"][position] = x, 2**63
            with pytest.raises(ValueError, match=r"2\*\*63"):
                used.accumulate(array)
            array["x"][position], array["t"][position] = keep, good
        after = used.read(), used.watermark, used.events_out_of_bounds
        np.testing.assert_array_equal(after[0], before[0])
        assert after[1:] == before[1:]
    for accumulator in (used, other):
        accumulator.accumulate(array)
    np.testing.assert_array_equal(used.read(), other.read())
    assert used.watermark == other.watermark == array["t"][-1]
    assert used.events_out_of_bounds == other.events_out_of_bounds > 0


@EVERY_KERNEL
def test_an_engine_publishes_nothing_of_a_rejected_call(kernel: Any) -> None:
    array = long_call("packed", 20_000)
    engine = Engine((64, 48), kernel, snapshot_interval_ms=0)
    engine.ingest(array)
    before, counted = engine.snapshot(), engine.stats.events_ingested
    array["t"][-1] = 2**64 - 1
    with pytest.raises(ValueError, match=r"2\*\*63"):
        engine.ingest(array)
    assert engine.snapshot() is before
    assert engine.stats.events_ingested == counted == 20_000
