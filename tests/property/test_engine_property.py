"""The Engine against the naive model: any kernel, any sequence of calls and lifecycle calls."""

from __future__ import annotations

from typing import Any

import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import events, rows_of
from strategies import ANY_KERNEL, LAYOUT, SENSOR, Choice, event_rows, timestamps

from frames2py import Engine


def check_engine(engine: Engine, model: oracle.EngineModel) -> None:
    stats = engine.stats
    assert stats.events_ingested == model.events
    assert stats.events_out_of_bounds == model.events_out_of_bounds
    assert stats.snapshots_published == model.published
    snapshot = engine.snapshot()
    if model.values is None:
        assert snapshot is None
        return
    assert snapshot is not None
    assert snapshot is engine.snapshot()
    assert (snapshot.meta.watermark, snapshot.meta.sequence) == model.meta
    oracle.check_values(snapshot.frame, model.model, model.values)
    assert not snapshot.frame.flags.writeable


ACTION = st.sampled_from(["ingest"] * 8 + ["late", "malformed", "stop", "start", "start", "reset"])


@given(st.data(), SENSOR, ANY_KERNEL, st.booleans(), st.lists(ACTION, max_size=14))
def test_an_engine_does_what_the_model_does(
    data: st.DataObject, sensor: tuple[int, int], choice: Choice, every_call: bool, actions: list[str]
) -> None:
    engine = Engine(sensor, choice.kernel, snapshot_interval_ms=0 if every_call else 3_600_000)
    model = oracle.EngineModel(choice.model(*sensor), every_call)
    times = data.draw(timestamps())
    held: list[tuple[Any, bytes, Any]] = []
    for action in actions:
        if action == "ingest":
            array = events(data.draw(event_rows(sensor, times, 10)), data.draw(LAYOUT))
            engine.ingest(array)
            model.ingest(rows_of(array))
        elif action in ("late", "malformed"):
            bad = events([(2**63, 0, 0, 1)]) if action == "late" else events([(0, 0, 0, 1)] * 4)[::2]
            if model.running:
                with pytest.raises(ValueError if action == "late" else TypeError):
                    engine.ingest(bad)
            else:
                engine.ingest(bad)
        else:
            getattr(engine, action)()
            getattr(model, action)()
        check_engine(engine, model)
        snapshot = engine.snapshot()
        if snapshot is not None:
            held.append((snapshot, snapshot.frame.tobytes(), snapshot.meta))
    # whatever came later, what readers hold is as it was
    for snapshot, data_before, meta in held:
        assert snapshot.frame.tobytes() == data_before
        assert snapshot.meta == meta


@given(st.data(), SENSOR, ANY_KERNEL, st.lists(st.integers(0, 3), min_size=1, max_size=25))
def test_frames_that_are_let_go_at_any_moment_never_spoil_the_next(
    data: st.DataObject, sensor: tuple[int, int], choice: Choice, keeps: list[int]
) -> None:
    """Buffers may be used again when nobody holds them: what is published must not show what was before."""
    engine = Engine(sensor, choice.kernel, snapshot_interval_ms=0)
    model = oracle.EngineModel(choice.model(*sensor), every_call=True)
    times = data.draw(timestamps())
    held: list[tuple[Any, bytes]] = []
    for keep in keeps:
        rows = data.draw(event_rows(sensor, times, 4))
        engine.ingest(events(rows))
        model.ingest(rows)
        snapshot = engine.snapshot()
        assert snapshot is not None
        assert model.values is not None
        oracle.check_values(snapshot.frame, model.model, model.values)
        if keep == 0:
            held.clear()
        elif keep == 1:
            held.append((snapshot.frame, snapshot.frame.tobytes()))
        elif keep == 2:
            view = snapshot.frame[:1]
            held.append((view, view.tobytes()))
        del snapshot
        if keep == 3 and held:
            frame, before = held.pop(0)
            assert frame.tobytes() == before
    for frame, before in held:
        assert frame.tobytes() == before
