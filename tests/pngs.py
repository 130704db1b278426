"""A PNG decoder, to look at pictures with."""

from __future__ import annotations

import struct
import zlib

import numpy as np


def decode_png(data: bytes) -> np.ndarray:
    """An 8-bit RGB PNG, decoded by the book."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: list[tuple[bytes, bytes]] = []
    at = 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length)[0] == zlib.crc32(kind + body)
        chunks.append((kind, body))
        at += 12 + length
    assert (chunks[0][0], chunks[-1][0]) == (b"IHDR", b"IEND")
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert rest == [8, 2, 0, 0, 0], "8 bits, RGB, deflate, five filters, not interlaced"
    raw = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    stride = 1 + 3 * width
    assert len(raw) == height * stride
    rows = np.zeros((height, 3 * width), np.uint8)
    above = np.zeros(3 * width, np.uint8)
    for number in range(height):
        line = raw[number * stride : (number + 1) * stride]
        above = rows[number] = _unfiltered(line[0], np.frombuffer(line, np.uint8, offset=1), above)
    return rows.reshape(height, width, 3)


def _unfiltered(kind: int, line: np.ndarray, above: np.ndarray) -> np.ndarray:
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line.reshape(-1, 3), axis=0, dtype=np.uint8).reshape(-1)
    if kind == 2:
        return line + above
    out, up = [0, 0, 0, *line.tolist()], [0, 0, 0, *above.tolist()]
    for i in range(3, len(out)):
        a, b, c = out[i - 3], up[i], up[i - 3]
        if kind == 3:
            guess = (a + b) // 2
        else:
            assert kind == 4
            guess = min((a, b, c), key=lambda v: abs(a + b - c - v))
        out[i] = (out[i] + guess) % 256
    return np.array(out[3:], np.uint8)
