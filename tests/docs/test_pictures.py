"""The picture of the docs shows what its script draws."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
from pngs import decode_png

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_picture_of_the_kernels_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    assert spec is not None and spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    drawn, shown = pictures.picture(), decode_png((DOCS / "kernels.png").read_bytes())
    assert drawn.shape == shown.shape
    for top in range(0, shown.shape[0], pictures.HEIGHT + pictures.GAP):
        for left in range(0, shown.shape[1], pictures.WIDTH + pictures.GAP):
            part = np.s_[top : top + pictures.HEIGHT, left : left + pictures.WIDTH]
            # The scene is made with sines, which another C library may round in another way: then a few
            # events are a pixel apart.
            assert np.mean(drawn[part] != shown[part]) < 0.01, (top, left)
            # Were there nothing on it, little would differ from anything.
            assert np.mean(shown[part].any(axis=-1)) > 0.04, (top, left)
