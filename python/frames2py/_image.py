"""Writing an image file."""

from __future__ import annotations

import contextlib
import os
import secrets

import numpy as np
from numpy.typing import NDArray

from ._core import encode_png

__all__ = ["write_png"]


def write_png(path: str | os.PathLike[str], rgb: NDArray[np.uint8]) -> None:
    """Write an image as a PNG file, whole or not at all.

    The bytes go to a temporary file beside `path`, which then takes its place, so that no reader
    ever finds half a picture and a failure leaves an older file as it was.

    Args:
        path: The file to write. An existing file is replaced.
        rgb: `(H, W, 3)` uint8, C-contiguous, H and W at least 1.

    Raises:
        TypeError: `rgb` is not a 3-D uint8 array.
        ValueError: Another shape, or not C-contiguous.
        OSError: The file cannot be written.
    """
    data = encode_png(rgb)
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        # A device or a pipe is written into, never replaced. A directory refuses.
        with open(target, "wb") as file:
            file.write(data)
        return
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
