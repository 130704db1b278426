"""Seeking in AEDAT files, against what reading from the start gives."""

from __future__ import annotations

import aedat_bytes as a
import numpy as np
import pytest

from frames2py.adapters import aedat, aedat4


def times(n: int) -> list[int]:
    """Times that run on, with a step back in the middle."""
    return [7 * i if i < n // 2 else 7 * i - 20_000 for i in range(n)]


def make(name: str) -> bytes:
    t = [time + 50_000 for time in times(60_000)]
    if name == "AEDAT 2.0":
        return a.aedat2(*((i % 2**15, time) for i, time in enumerate(t)))
    chunks = [range(i, min(i + n, len(t))) for n in (999,) for i in range(0, len(t), n)]
    if name == "AEDAT 3.1":
        return a.aedat31(
            *(a.packet31(1, [(a.polarity(i % 240, i % 180, 1), t[i]) for i in chunk]) for chunk in chunks)
        )
    compression = {"NONE": a.NONE, "LZ4": a.LZ4, "ZSTD": a.ZSTD}[name]
    packets = []
    for chunk in chunks:
        buffer = a.events_buffer((t[i], i % 346, i % 260, i % 2) for i in chunk)
        packets += [a.packet(0, buffer, compression), a.packet(1, b"f" * 5000)]
    info = a.xml(a.stream(0), a.stream(1, "FRME", "frames"))
    return a.aedat4(
        *packets, a.packed(a.table_buffer(), compression), info=info, compression=compression, table=10**7
    )


@pytest.mark.parametrize("name", ["NONE", "LZ4", "ZSTD", "AEDAT 3.1", "AEDAT 2.0"])
def test_a_seek_and_a_slice_find_what_a_full_read_has(tmp_path, name):
    path = tmp_path / "x"
    path.write_bytes(make(name))
    module = aedat if name.startswith("AEDAT") else aedat4
    with module.open(path) as reader:
        events = np.concatenate([*reader])
    assert len(events) == 60_000
    t = events["t"]
    with module.open(path) as reader:
        for time in (0, 50_000, 123_457, 260_000, int(t[30_000]), int(t.max()), int(t.max()) + 1):
            later = np.flatnonzero(t >= time)
            reader.seek(time)
            found = np.concatenate([events[:0], *reader])
            assert found.tobytes() == (events[later[0] :] if len(later) else events[:0]).tobytes()
            part = reader.slice(time, time + 5000)
            assert part.tobytes() == events[(t >= time) & (t < time + 5000)].tobytes()
