"""EVT files that are written here, opened by other packages: those that `ci/peers.sh` installs."""

from __future__ import annotations

import numpy as np
import pytest
from evt_words import RECORDINGS

from frames2py import EVENT_DTYPE
from frames2py._core import FileEncoder
from frames2py.adapters import evt

SIZE = (1280, 720)


def from_expelliarmus(path, name):
    expelliarmus = pytest.importorskip("expelliarmus")
    found = expelliarmus.Wizard(encoding=name).read(path)
    return found["t"], found["x"], found["y"], found["p"]


def from_faery(path, name):
    faery = pytest.importorskip("faery")
    found = np.concatenate(list(faery.events_stream_from_file(path)))
    return found["t"], found["x"], found["y"], found["on"]


def from_evt3(path, name):
    evt3 = pytest.importorskip("evt3")
    found = evt3.decode_file(str(path))
    return found.timestamp, found.x, found.y, found.polarity


def from_evutils_swapped(path, name):
    """It reads EVT 2.1 with the upper half first only, so the halves are swapped for it."""
    io = pytest.importorskip("evutils.io")
    head, end, body = path.read_bytes().partition(b"% end\n")
    body = np.frombuffer(body, "<u4").reshape(-1, 2)[:, ::-1].tobytes()
    path.write_bytes(head.replace(b"little", b"legacy") + end + body)
    reader = io.EventReader(path, index=False, max_events=2**40, max_time=2**62)
    found = reader.read_all()
    reader.close()
    return found.t, found.x, found.y, found.p


# faery does not read EVT 2.1 yet. expelliarmus adds 4096 us whenever EVT 3.0's TIME_LOW decreases, so it is
# given EVT 2.0 only.
READERS = [
    ("evt2", from_expelliarmus),
    ("evt2", from_faery),
    ("evt2.1", from_evutils_swapped),
    ("evt3", from_faery),
    ("evt3", from_evt3),
]


def some_events(seed: int) -> np.ndarray:
    """Single events and runs in a row, some of them vectors, with gaps and overflows of EVT 3.0."""
    rng = np.random.default_rng(seed)
    parts = []
    t = 1000
    for _ in range(4000):
        t += int(rng.choice([0, 1, 7, 300, 5000, 100_000], p=[0.2, 0.3, 0.3, 0.1, 0.05, 0.05]))
        x = np.unique(rng.integers(0, SIZE[0], rng.choice([1, 2, 5])))
        if rng.random() < 0.3:
            x = x[0] // 2 + np.flatnonzero(rng.random(100) < 0.6)
        part = np.zeros(len(x), EVENT_DTYPE)
        part["t"], part["x"], part["y"], part["p"] = t, x, rng.integers(0, SIZE[1]), rng.integers(0, 2)
        parts.append(part)
    return np.concatenate(parts)


def recorded() -> np.ndarray:
    path = RECORDINGS / "imx636.evt3.raw"
    if not path.exists():
        pytest.skip(f"no recordings in {RECORDINGS}; set FRAMES2PY_RECORDINGS")
    return np.concatenate(list(evt.open(path)))


@pytest.mark.parametrize("events", [lambda: some_events(0), lambda: some_events(1), recorded])
@pytest.mark.parametrize(("name", "read"), READERS)
def test_others_find_the_events_that_were_written(tmp_path, name, read, events):
    expected = events()
    encoder = FileEncoder(name, SIZE)
    path = tmp_path / "written.raw"
    path.write_bytes(encoder.encode(expected) + encoder.finish()[0])
    found = read(path, name)
    for field, column in zip("txyp", found, strict=True):
        np.testing.assert_array_equal(np.asarray(column).astype("i8"), expected[field].astype("i8"))
