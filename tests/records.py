"""Event arrays for tests: the plain dtype, every other accepted layout, and the worked-case notation."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

import frames2py

Event = tuple[int, int, int, int]
Array = npt.NDArray[np.void]

LAYOUTS: dict[str, np.dtype[np.void]] = {
    "packed": np.dtype([("t", "<u8"), ("x", "<u2"), ("y", "<u2"), ("p", "u1")]),
    "aligned": np.dtype([("t", "<u8"), ("x", "<u2"), ("y", "<u2"), ("p", "u1")], align=True),
    "confidence": np.dtype([("t", "<u8"), ("x", "<u2"), ("y", "<u2"), ("p", "u1"), ("confidence", "<f4")]),
    "reversed": np.dtype([("p", "u1"), ("y", "<u2"), ("x", "<u2"), ("t", "<u8")]),
    "extra first": np.dtype(
        [("id", "S3"), ("y", "<u2"), ("p", "u1"), ("t", "<u8"), ("x", "<u2"), ("z", ">f8")]
    ),
    "padded": np.dtype(
        {
            "names": ["t", "x", "y", "p"],
            "formats": ["<u8", "<u2", "<u2", "u1"],
            "offsets": [5, 19, 30, 0],
            "itemsize": 37,
        }
    ),
    "titles": np.dtype(
        [(("time", "t"), "<u8"), (("column", "x"), "<u2"), (("row", "y"), "<u2"), (("sign", "p"), "u1")]
    ),
    # x, y and p are bytes of t: reading them back gives what any reader must see.
    "overlapping": np.dtype(
        {
            "names": ["t", "x", "y", "p"],
            "formats": ["<u8", "<u2", "<u2", "u1"],
            "offsets": [0, 0, 1, 0],
            "itemsize": 8,
        }
    ),
    # a record longer than 255 bytes
    "wide": np.dtype(
        {
            "names": ["t", "x", "y", "p"],
            "formats": ["<u8", "<u2", "<u2", "u1"],
            "offsets": [300, 3, 291, 257],
            "itemsize": 400,
        }
    ),
}


def events(rows: Iterable[Event], layout: str = "packed") -> Array:
    """The rows ``(t, x, y, p)`` as an array of a named layout."""
    rows = list(rows)
    array = np.zeros(len(rows), LAYOUTS[layout])
    for i, (t, x, y, p) in enumerate(rows):
        array["x"][i] = x
        array["y"][i] = y
        array["p"][i] = p
        array["t"][i] = t
    return array


def rows_of(array: Array) -> list[Event]:
    """The rows an array holds, read one element at a time."""
    return [tuple(int(array[name][i]) for name in ("t", "x", "y", "p")) for i in range(len(array))]  # type: ignore[misc]


def at(*times: int, x: int = 0, y: int = 0, p: int = 1) -> Array:
    """Events of one pixel and polarity at these times."""
    return events((t, x, y, p) for t in times)


def empty() -> Array:
    return np.zeros(0, frames2py.EVENT_DTYPE)


def uniform(width: int, height: int, times: int, t: int) -> Array:
    """`times` ON events on every pixel, all at `t`."""
    array = np.zeros(width * height * times, frames2py.EVENT_DTYPE)
    array["t"] = t
    array["x"] = np.tile(np.tile(np.arange(width), height), times)
    array["y"] = np.tile(np.repeat(np.arange(height), width), times)
    array["p"] = 1
    return array


TOKEN = re.compile(r"([+-])(\d+)(?:\(p=(\d+)\))?(?:@(\d+))?")


def parse_calls(text: str) -> list[list[Event]]:
    """The notation of the worked cases: ``+12`` ON at t = 12 on x = 0, ``-`` OFF, ``@1`` on x = 1,
    ``(p=2)`` another polarity value, ``|`` between calls."""
    calls = []
    for part in text.split("|"):
        call = []
        for token in part.split():
            match = TOKEN.fullmatch(token)
            assert match, token
            sign, t, p, x = match.groups()
            call.append((int(t), int(x or 0), 0, int(p) if p else int(sign == "+")))
        calls.append(call)
    return calls
