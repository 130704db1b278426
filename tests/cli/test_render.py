"""viewer.render against hand-worked values and the written formulas in exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from frames2py import SnapshotMeta
from frames2py.publish import Snapshot
from frames2py.viewer import render


def snapshot(values, dtype, watermark: int | None = 0) -> Snapshot:
    return Snapshot(np.array(values, dtype), SnapshotMeta(watermark, 1))


def grey(image: np.ndarray) -> list[list[int]]:
    assert (image[..., 0] == image[..., 1]).all()
    assert (image[..., 0] == image[..., 2]).all()
    return image[..., 0].tolist()


@pytest.mark.parametrize("dtype", [np.uint32, np.float32])
def test_counts_are_grey_up_to_the_maximum(dtype) -> None:
    # s = 4: 255/4 = 63.75, 127.5, 191.25
    assert grey(render(snapshot([[0, 1, 2], [3, 4, 0]], dtype))) == [[0, 63, 127], [191, 255, 0]]


def test_scale_is_where_white_begins() -> None:
    assert grey(render(snapshot([[0, 1, 2, 3, 4]], np.uint32), scale=3)) == [[0, 85, 170, 255, 255]]
    assert grey(render(snapshot([[0, 1, 2, 3]], np.uint32), scale=2.5)) == [[0, 102, 204, 255]]
    assert grey(render(snapshot([[0.5, 1]], np.float32), scale=np.float32(2))) == [[63, 127]]


def test_polarity_is_blue_and_yellow() -> None:
    image = render(snapshot([[[0, 1], [1, 0], [2, 2], [4, 1]]], np.uint32))
    assert image.tolist() == [[[63, 63, 0], [0, 0, 63], [127, 127, 127], [63, 63, 255]]]


def test_time_surface_fades_with_age() -> None:
    # T = 100: ages 99, 50, 0; 255 * 0.01 = 2.55; 0 is "no event".
    image = render(snapshot([[0, 1, 50, 100]], np.uint64, 100), window_us=100)
    assert grey(image) == [[0, 2, 127, 255]]
    # The default window is 50 ms, and times of any size are told apart.
    late = 2**63 - 1
    image = render(snapshot([[late, late - 25_000, late - 50_000, late - 60_000]], np.uint64, late))
    assert grey(image) == [[255, 127, 0, 0]]
    # A time later than the watermark is not brighter than white; without a watermark all is black.
    assert grey(render(snapshot([[101, 200]], np.uint64, 100), window_us=100)) == [[255, 255]]
    assert grey(render(snapshot([[0, 0]], np.uint64, None))) == [[0, 0]]


@pytest.mark.parametrize("scale", [1, 2, 3, 7, 49, 255, 256, 1000, 99_991])
def test_levels_are_the_exact_floor(scale: int) -> None:
    values = list(range(0, scale + 1, max(1, scale // 3000)))
    want = [[math.floor(Fraction(255 * min(v, scale), scale)) for v in values]]
    assert grey(render(snapshot([values], np.uint32), scale=scale)) == want
    times = [v + 1 for v in values]
    last = scale + 1
    want = [[math.floor(255 * max(Fraction(0), 1 - Fraction(last - t, scale))) for t in times]]
    assert grey(render(snapshot([times], np.uint64, last), window_us=scale)) == want


@pytest.mark.parametrize("count", [99, 100, 101, 250])
@pytest.mark.parametrize("channels", [1, 2])
def test_own_scale_is_maximum_or_99th_percentile_of_nonzero(count: int, channels: int) -> None:
    rng = np.random.default_rng(count)
    nonzero = sorted(rng.integers(1, 1000, count).tolist())
    if count < 100:
        s = Fraction(nonzero[-1])
    else:
        place = Fraction(99, 100) * (count - 1)
        below = math.floor(place)
        above = min(below + 1, count - 1)
        s = nonzero[below] + (place - below) * (nonzero[above] - nonzero[below])
    values = np.zeros(600, np.uint32)
    values[rng.permutation(600)[:count]] = nonzero
    level = [math.floor(255 * min(Fraction(v), s) / s) for v in values.tolist()]
    if channels == 1:
        assert (
            grey(render(snapshot(values.reshape(20, 30), np.uint32))) == np.reshape(level, (20, 30)).tolist()
        )
    else:
        image = render(snapshot(values.reshape(20, 15, 2), np.uint32))
        off, on = np.moveaxis(np.reshape(level, (20, 15, 2)), 2, 0)
        np.testing.assert_array_equal(image, np.stack([on, on, off], axis=2))


@pytest.mark.parametrize("dtype", [np.uint32, np.float32])
def test_frame_without_events_is_black(dtype) -> None:
    image = render(snapshot(np.zeros((2, 3)), dtype))
    assert image.shape == (2, 3, 3)
    assert not image.any()


def test_odd_floats_do_not_warn_or_wrap() -> None:
    values = [[math.nan, math.inf, -math.inf, -3, 0, 2]]
    assert grey(render(snapshot(values, np.float32))) == [[0, 255, 0, 0, 0, 255]]
    assert grey(render(snapshot(values, np.float32), scale=4)) == [[0, 255, 0, 0, 0, 127]]
    assert grey(render(snapshot([[math.nan, -1]], np.float32))) == [[0, 0]]
    assert grey(render(snapshot(values, np.float32), scale=1e308)) == [[0, 255, 0, 0, 0, 0]]
    assert grey(render(snapshot([[1, 5]], np.uint64, 5), window_us=1e308)) == [[255, 255]]
    assert grey(render(snapshot([[1, 5]], np.uint64, 5), window_us=5e-324)) == [[0, 255]]


def test_result_is_new_and_writable() -> None:
    frame = np.array([[1, 2]], np.uint32)
    frame.flags.writeable = False
    source = Snapshot(frame, SnapshotMeta(0, 1))
    image, again = render(source), render(source)
    assert image.dtype == np.uint8
    assert image.flags.writeable
    assert image.flags.c_contiguous
    assert image.flags.owndata
    assert not np.shares_memory(image, again)
    assert frame.tolist() == [[1, 2]]


@pytest.mark.parametrize("name", ["scale", "window_us"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, -math.inf, True, "1", [1], 1j, 10**400])
def test_scale_and_window_must_be_finite_and_positive(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        render(snapshot([[1]], np.uint32), **{name: value})


def test_window_must_be_given() -> None:
    with pytest.raises(ValueError, match=r"^window_us must be"):
        render(snapshot([[1]], np.uint32), window_us=None)


@pytest.mark.parametrize(
    "frame",
    [
        np.zeros((2, 3, 4), np.float32),
        np.zeros((2, 2, 3, 4), np.uint32),
        np.zeros((3, 4, 3), np.uint32),
        np.zeros((3, 4, 2), np.float32),
        np.zeros((3, 4, 2), np.uint64),
        np.zeros((3, 4), np.int32),
        np.zeros((3, 4), np.float64),
        np.zeros((3, 4), np.dtype(np.uint32).newbyteorder()),
        np.zeros(3, np.uint32),
        [[1]],
    ],
    ids=lambda frame: f"{getattr(frame, 'shape', 'list')}-{getattr(frame, 'dtype', '')}",
)
def test_other_frames_are_not_drawable(frame) -> None:
    with pytest.raises(TypeError, match=r"^snapshot\.frame must be"):
        render(Snapshot(frame, SnapshotMeta(0, 1)))


@pytest.mark.parametrize("thing", [None, 5, np.zeros((2, 2), np.uint32)], ids=str)
def test_only_snapshots_are_drawable(thing) -> None:
    with pytest.raises(TypeError, match=r"^snapshot must be"):
        render(thing)


def test_options_are_keywords() -> None:
    with pytest.raises(TypeError):
        render(snapshot([[1]], np.uint32), 3)
