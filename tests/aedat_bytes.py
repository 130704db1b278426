"""AEDAT files by hand: FlatBuffers, frames of LZ4 and Zstandard, packets and headers from fields.

Everything is put together from the formats' pages with ``struct``, and shares nothing with the package.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest

NONE, LZ4, LZ4_HIGH, ZSTD, ZSTD_HIGH = range(5)
Event = tuple[int, int, int, int]


def xxh32(data: bytes) -> int:
    """XXH32 of less than 16 bytes."""
    assert len(data) < 16
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    rotate = lambda value, n: (value << n | value >> (32 - n)) & 0xFFFFFFFF  # noqa: E731
    value = p5 + len(data)
    while len(data) >= 4:
        value = rotate((value + int.from_bytes(data[:4], "little") * p3) & 0xFFFFFFFF, 17) * p4 & 0xFFFFFFFF
        data = data[4:]
    for byte in data:
        value = rotate((value + byte * p5) & 0xFFFFFFFF, 11) * p1 & 0xFFFFFFFF
    for shift, factor in ((15, p2), (13, p3)):
        value = (value ^ value >> shift) * factor & 0xFFFFFFFF
    return value ^ value >> 16


def lz4_frame(*blocks: bytes, linked: bool = True) -> bytes:
    """A frame of compressed blocks."""
    descriptor = bytes([0x40 if linked else 0x60, 0x40])
    frame = struct.pack("<I", 0x184D2204) + descriptor + bytes([xxh32(descriptor) >> 8 & 0xFF])
    for block in blocks:
        frame += struct.pack("<I", len(block)) + block
    return frame + bytes(4)


def lz4_literals(data: bytes) -> bytes:
    """A block of nothing but literals."""
    if len(data) < 15:
        return bytes([len(data) << 4]) + data
    more, last = divmod(len(data) - 15, 255)
    return b"\xf0" + b"\xff" * more + bytes([last]) + data


def lz4_stored(data: bytes) -> bytes:
    """A frame that stores its bytes, in blocks of up to 64 KiB."""
    return lz4_frame(*(lz4_literals(data[i : i + 65536]) for i in range(0, len(data), 65536)))


def zstd_stored(data: bytes) -> bytes:
    """A Zstandard frame that stores its bytes, and states no size but a window of 1 MiB."""
    frame = struct.pack("<IBB", 0xFD2FB528, 0, 10 << 3)
    blocks = [data[i : i + 100_000] for i in range(0, len(data), 100_000)] or [b""]
    for i, block in enumerate(blocks):
        frame += struct.pack("<I", (i == len(blocks) - 1) | len(block) << 3)[:3] + block
    return frame


def zstd_repeated(byte: bytes, n: int) -> bytes:
    """A Zstandard frame of n times a byte: a bomb."""
    frame = struct.pack("<IBB", 0xFD2FB528, 0, 10 << 3)
    while n > 0:
        size = min(n, 128 * 1024)
        n -= size
        frame += struct.pack("<I", (n == 0) | 1 << 1 | size << 3)[:3] + byte
    return frame


def packed(data: bytes, compression: int) -> bytes:
    if compression == NONE:
        return data
    return lz4_stored(data) if compression in (LZ4, LZ4_HIGH) else zstd_stored(data)


def sized(buffer: bytes) -> bytes:
    return struct.pack("<I", len(buffer)) + buffer


def events_buffer(events: Iterable[Event], kind: bytes = b"EVTS") -> bytes:
    """An EVTS buffer; t, x, y are signed here."""
    elements = [struct.pack("<qhhB3x", *event) for event in events]
    # The root table is at 16, its vtable at 10; the vector at 24.
    head = struct.pack("<I4s2xHHHiI", 16, kind, 6, 8, 4, 6, 4)
    return sized(head + struct.pack("<I", len(elements)) + b"".join(elements))


def triggers_buffer(triggers: Iterable[tuple[int, int]]) -> bytes:
    """A TRIG buffer of (t, type). A type of 0 is left out, as its default."""
    triggers = list(triggers)
    head = struct.pack("<I4s2xHHHiI", 16, b"TRIG", 6, 8, 4, 6, 4) + struct.pack("<I", len(triggers))
    start = 28 + 4 * len(triggers)
    places, tables = b"", b""
    for i, (t, kind) in enumerate(triggers):
        # A vtable of 8 bytes before each table of 16: its offset, t, the type.
        table = start + len(tables) + 8
        places += struct.pack("<I", table - (28 + 4 * i))
        tables += struct.pack("<HHHH", 8, 16, 4, 12 if kind else 0) + struct.pack("<iqb3x", 8, t, kind)
    return sized(head + places + tables)


def node(name: str, *inside: str) -> str:
    return f'<node name="{name}">{"".join(inside)}</node>'


def attr(key: str, value: object) -> str:
    return f'<attr key="{key}" type="string">{value}</attr>'


def stream(
    number: int,
    kind: str = "EVTS",
    name: str = "events",
    size: tuple[object, object] | None = (346, 260),
    camera: str = "camera",
) -> str:
    sizes = () if size is None else (attr("sizeX", size[0]), attr("sizeY", size[1]))
    info = node("info", *sizes, attr("source", camera))
    return node(str(number), attr("typeIdentifier", kind), attr("originalOutputName", name), info)


def xml(*streams: str) -> str:
    return f'<dv version="2.0">{node("outInfo", *streams)}</dv>'


def header(info: str | bytes, compression: int = NONE, table: int = -1) -> bytes:
    text = info.encode() if isinstance(info, str) else info
    root = struct.pack("<I4s6xHHHHH", 24, b"IOHE", 10, 24, 4, 12, 8)
    root += struct.pack("<iiIq4x", 10, compression, 16, table)
    return b"#!AER-DAT4.0\r\n" + sized(root + struct.pack("<I", len(text)) + text + b"\0")


def packet(number: int, content: bytes, compression: int = NONE) -> bytes:
    body = packed(content, compression)
    return struct.pack("<ii", number, len(body)) + body


def table_buffer() -> bytes:
    """An FTAB buffer with an empty table."""
    return sized(struct.pack("<I4s2xHHHiII", 16, b"FTAB", 6, 8, 4, 6, 4, 0))


def aedat4(*packets: bytes, info: str | None = None, compression: int = NONE, table: int = -1) -> bytes:
    return header(xml(stream(0)) if info is None else info, compression, table) + b"".join(packets)


def aedat31(*packets: bytes, lines: Iterable[str] = ("#Format: RAW", "#Source 1: DAVIS240C")) -> bytes:
    text = "".join(line + "\r\n" for line in ["#!AER-DAT3.1", *lines, "#!END-HEADER"])
    return text.encode() + b"".join(packets)


def packet31(
    kind: int,
    events: Iterable[tuple[int, int]],
    *,
    source: int = 1,
    overflow: int = 0,
    size: int = 8,
    place: int = 4,
    number: int | None = None,
) -> bytes:
    """A packet of (data, t) pairs."""
    body = b"".join(struct.pack("<Ii", *event) for event in events)
    n = len(body) // 8 if number is None else number
    return struct.pack("<hhiiiiii", kind, source, size, place, overflow, n, n, n) + body


def polarity(x: int, y: int, p: int, valid: int = 1) -> int:
    return x << 17 | y << 2 | p << 1 | valid


def aedat2(
    *pairs: tuple[int, int], lines: Iterable[str] = ("# AEChip: ch.unizh.ini.jaer.chip.retina.DVS128",)
) -> bytes:
    text = "".join(line + "\r\n" for line in ["#!AER-DAT2.0", *lines])
    return text.encode() + b"".join(struct.pack(">II", *pair) for pair in pairs)


def read(adapter, path, data: bytes, **options):
    """The events that an adapter finds, and the message of the ValueError that ended them."""
    path.write_bytes(data)
    events = []
    try:
        for batch in adapter.open(path, **options):
            assert len(batch) > 0
            events += batch.tolist()
    except ValueError as error:
        return events, str(error)
    return events, None


def opening(adapter, path, data: bytes, **options) -> str:
    """The message of the ValueError that an adapter opens a file with."""
    path.write_bytes(data)
    with pytest.raises(ValueError) as error:
        adapter.open(path, **options)
    return str(error.value)
