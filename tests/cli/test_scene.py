"""The demo's events."""

from __future__ import annotations

import numpy as np
import pytest

from frames2py import EVENT_DTYPE
from frames2py._cli.scene import Scene


@pytest.mark.parametrize("size", [(640, 480), (64, 300), (1, 1), (65_536, 3)])
def test_events_are_in_order_in_bounds_and_as_many_as_said(size: tuple[int, int]) -> None:
    batches = list(Scene(size, 250_000).events(0.1))
    whole = np.concatenate(batches)
    assert whole.dtype == EVENT_DTYPE
    assert len(whole) == 25_000
    assert (np.diff(whole["t"].astype(np.int64)) >= 0).all()
    assert whole["t"][-1] < 100_000
    assert int(whole["x"].max()) < size[0]
    assert int(whole["y"].max()) < size[1]
    assert set(np.unique(whole["p"]).tolist()) == {0, 1}


def test_same_seed_same_events() -> None:
    one, same, other = (np.concatenate(list(Scene((64, 48), 10**5, seed).events(0.02))) for seed in (1, 1, 2))
    assert one.tobytes() == same.tobytes()
    assert one.tobytes() != other.tobytes()


def test_blade_brightens_where_it_comes_and_darkens_where_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scene, "NOISE_SHARE", 0.0)
    monkeypatch.setattr(Scene, "FAN_SHARE", 1.0)
    whole = np.concatenate(list(Scene((200, 200), 2_000_000).events(1 / Scene.TURNS)))
    # The blades point at 0, 120 and 240 degrees at first and turn from x to y: one is at 90 degrees,
    # straight down, after a quarter of a turn.
    x, y = whole["x"].astype(int) - 100, whole["y"].astype(int) - 100
    turn = whole["t"] / 1e6 * Scene.TURNS
    passing = whole[(abs(x) <= 1) & (abs(y - 50) <= 1) & (abs(turn - 0.25) < 1 / 6)]
    on, off = passing["t"][passing["p"] == 1], passing["t"][passing["p"] == 0]
    assert on.size > 10
    assert off.size > 10
    assert on.max() < off.min()
    assert on.min() < 0.25e6 / Scene.TURNS < off.max()
