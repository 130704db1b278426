"""EVT by hand: words from fields, files from words, and decoders written one word at a time.

The decoders follow the format's tables literally, with plain ints, and share nothing with the package.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np

from frames2py import EVENT_DTYPE

RECORDINGS = Path(
    os.environ.get("FRAMES2PY_RECORDINGS", Path(__file__).resolve().parents[2] / "shared" / "recordings")
)

ADDR_Y, RESERVED_Y, ADDR_X, BASE_X, VECT_12, VECT_8, TIME_LOW, TIME_HIGH = 0, 1, 2, 3, 4, 5, 6, 8
CONTINUED_4, EXT_TRIGGER, OTHERS, CONTINUED_12 = 7, 10, 14, 15
ON = 1 << 11


def evt3(*words: tuple[int, int]) -> bytes:
    """EVT 3.0 words from (type, 12 bits)."""
    return struct.pack(f"<{len(words)}H", *(kind << 12 | value for kind, value in words))


def cd(p: int, low: int, x: int, y: int) -> int:
    """An EVT 2.0 event with the 6 low bits of its time."""
    return p << 28 | low << 22 | x << 11 | y


def high(value: int) -> int:
    """An EVT 2.0 TIME_HIGH."""
    return 0x8 << 28 | value


def evt2(*words: int) -> bytes:
    """EVT 2.0 words."""
    return struct.pack(f"<{len(words)}I", *words)


def evt21(*words: tuple[int, int], halves: bool = False) -> bytes:
    """EVT 2.1 words from (upper half, lower half): lowest byte first, or the upper half first."""
    order = [half for upper, lower in words for half in ((upper, lower) if halves else (lower, upper))]
    return struct.pack(f"<{len(order)}I", *order)


def header(version: str, geometry: str | None = "1280x720") -> bytes:
    """A header as cameras write it."""
    lines = [f"% evt {version}"]
    if geometry is not None:
        lines.append(f"% geometry {geometry}")
    return "".join(line + "\n" for line in [*lines, "% end"]).encode()


def as_tuples(batches) -> list[tuple[int, int, int, int]]:
    """The events of some arrays as (t, x, y, p)."""
    return [event for batch in batches for event in batch.tolist()]


def as_array(events) -> np.ndarray:
    """(t, x, y, p) tuples as an event array."""
    return np.array(events, dtype=EVENT_DTYPE)


def naive_evt2(body: bytes) -> list[tuple[int, int, int, int]]:
    events = []
    wraps, previous = 0, None
    for i in range(len(body) // 4):
        word = int.from_bytes(body[4 * i : 4 * i + 4], "little")
        kind = word // 2**28
        if kind == 8:
            now = word % 2**28
            if previous is not None and previous * 64 - now * 64 >= (2**28 - 1) * 64 - 10_000:
                wraps += 1
            previous = now
        elif kind in (0, 1) and previous is not None:
            t = wraps * 2**34 + previous * 64 + (word // 2**22) % 64
            events.append((t, (word // 2**11) % 2**11, word % 2**11, kind))
    return events


def naive_evt3(body: bytes) -> tuple[list[tuple[int, int, int, int]], bool]:
    """The events, and whether a vector ran off the range of x behind them."""
    events = []
    time_high = time_low = None  # time_low: None for "not given since time_high changed", which counts as 0
    wraps = 0
    row = None  # None before the first, "reserved", or a number
    base = base_polarity = None
    for i in range(len(body) // 2):
        word = body[2 * i] + 256 * body[2 * i + 1]
        kind, value = word // 4096, word % 4096
        if kind == 8:
            if time_high is not None:
                if (time_high == 4095 and value == 0) or time_high - value > 3840:
                    wraps += 1
                if time_high != value:
                    time_low = None
            time_high = value
            continue
        if time_high is None:
            continue
        t = wraps * 2**24 + time_high * 4096 + (time_low or 0)
        if kind == 0:
            row = value % 2048
        elif kind == 1:
            row = "reserved"
        elif kind == 2:
            if isinstance(row, int):
                events.append((t, value % 2048, row, value // 2048))
        elif kind == 3:
            base, base_polarity = value % 2048, value // 2048
        elif kind in (4, 5):
            size = 12 if kind == 4 else 8
            if not isinstance(row, int) or base is None:
                continue
            columns = [base + bit for bit in range(size) if value >> bit & 1]
            if any(x > 65535 for x in columns):
                return events, True
            events.extend((t, x, row, base_polarity) for x in columns)
            base += size
        elif kind == 6:
            time_low = value
    return events, False
