"""Writing PNG files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from frames2py._image import write_png


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 7), (5, 1), (3, 4), (61, 97)])
def test_pixels_come_back(tmp_path: Path, png, height: int, width: int) -> None:
    rng = np.random.default_rng(height * width)
    noise = rng.integers(0, 256, (height, width, 3), np.uint8)
    smooth = (np.add.outer(np.arange(height), np.arange(width))[..., None] * [1, 2, 3]).astype(np.uint8)
    for image in (noise, smooth, np.zeros_like(noise)):
        write_png(tmp_path / "a.png", image)
        np.testing.assert_array_equal(png(tmp_path / "a.png"), image)
    assert os.listdir(tmp_path) == ["a.png"]


def test_read_only_array_is_written(tmp_path: Path, png) -> None:
    image = np.full((2, 2, 3), 9, np.uint8)
    image.flags.writeable = False
    write_png(tmp_path / "a.png", image)
    np.testing.assert_array_equal(png(tmp_path / "a.png"), image)


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (np.zeros((4, 4, 4), np.uint8), ValueError),
        (np.zeros((0, 4, 3), np.uint8), ValueError),
        (np.zeros((4, 0, 3), np.uint8), ValueError),
        (np.zeros((4, 8, 3), np.uint8)[:, ::2], ValueError),
        (np.zeros((4, 4), np.uint8), TypeError),
        (np.zeros((4, 4, 3), np.uint16), TypeError),
        ([[[0, 0, 0]]], TypeError),
    ],
)
def test_other_arrays_are_refused_and_an_old_file_stays(tmp_path: Path, image, error) -> None:
    target = tmp_path / "a.png"
    target.write_bytes(b"old")
    with pytest.raises(error):
        write_png(target, image)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.png"]


def test_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "moving failed")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="moving failed"):
        write_png(tmp_path / "a.png", np.zeros((1, 1, 3), np.uint8))
    assert os.listdir(tmp_path) == []


def test_directory_and_missing_directory(tmp_path: Path) -> None:
    image = np.zeros((1, 1, 3), np.uint8)
    with pytest.raises((IsADirectoryError, PermissionError)):
        write_png(tmp_path, image)
    with pytest.raises(FileNotFoundError):
        write_png(tmp_path / "none" / "a.png", image)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipe_is_written_into_not_replaced(tmp_path: Path, png) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    image = np.full((2, 3, 3), 7, np.uint8)
    writer = threading.Thread(target=write_png, args=(pipe, image))
    writer.start()
    (tmp_path / "copy.png").write_bytes(pipe.read_bytes())
    writer.join()
    assert pipe.is_fifo()
    np.testing.assert_array_equal(png(tmp_path / "copy.png"), image)


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need a privilege here")
def test_link_stays_a_link(tmp_path: Path, png) -> None:
    (tmp_path / "there.png").write_bytes(b"old")
    (tmp_path / "link.png").symlink_to("there.png")
    write_png(tmp_path / "link.png", np.full((1, 1, 3), 3, np.uint8))
    assert (tmp_path / "link.png").is_symlink()
    assert png(tmp_path / "there.png").tolist() == [[[3, 3, 3]]]
