"""NumPy's files of events, as numpy.save and numpy.savez write them."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest
from evt_words import as_array, as_tuples

from frames2py import EVENT_DTYPE
from frames2py.adapters import npy

EVENTS = [(t * 3, t % 640, t % 480, t % 2) for t in range(70_000)]
METAVISION = np.dtype([("x", "<u2"), ("y", "<u2"), ("p", "<i2"), ("t", "<i8")])


def columns():
    return dict(zip("txyp", (np.array(column) for column in zip(*EVENTS, strict=True)), strict=True))


def metavision():
    array = np.zeros(len(EVENTS), METAVISION)
    for name, column in columns().items():
        array[name] = column
    return array


def table(order="C"):
    return np.array(EVENTS, order=order)


def npy_bytes(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


@pytest.fixture(params=[np.savez, np.savez_compressed], ids=["stored", "deflated"])
def savez(request):
    return request.param


def read(path, **options):
    with npy.open(path, **options) as reader:
        return as_tuples(reader), reader


@pytest.mark.parametrize("batch_size", [None, 1000, 69_999])
@pytest.mark.parametrize(
    ("array", "options"),
    [
        (as_array(EVENTS), {}),
        (metavision(), {}),
        (table(), {"columns": "txyp"}),
        (table("F"), {"columns": "txyp"}),
        (table().astype(">i4"), {"columns": "txyp"}),
        (table("F").astype("f4"), {"columns": "txyp", "time_unit": "us"}),
    ],
    ids=["events", "metavision", "table", "columns first", "big endian", "floats"],
)
def test_npy(tmp_path, array, options, batch_size):
    np.save(tmp_path / "a.npy", array)
    events, reader = read(tmp_path / "a.npy", batch_size=batch_size, **options)
    assert events == EVENTS
    assert (reader.format, reader.sensor_size, reader.report.events) == ("npy", None, len(EVENTS))


def test_npz(tmp_path, savez):
    path = tmp_path / "a.npz"
    for arrays, options in [
        (columns(), {}),
        (
            {"timestamps": columns()["t"], "xs": columns()["x"], "Y": columns()["y"], "pol": columns()["p"]},
            {},
        ),
        ({"anything": metavision()}, {}),
        ({"events": as_array(EVENTS), "other": np.zeros(3)}, {}),
        ({"events": table("F")}, {"columns": "txyp"}),
    ]:
        savez(path, **arrays)
        events, reader = read(path, **options)
        assert events == EVENTS
        assert (reader.format, reader.sensor_size) == ("npz", None)
    savez(path, **columns(), sensor_size=np.array([640, 480]))
    assert read(path)[1].sensor_size == (640, 480)
    with pytest.raises(ValueError, match=r"sensor_size is \(1, 2\), but the file's sensor_size states"):
        npy.open(path, sensor_size=(1, 2))


@pytest.mark.parametrize("compress", [False, True])
def test_save_npz(tmp_path, compress):
    path = tmp_path / "a.npz"
    events = as_array([*EVENTS, (2**63 - 1, 65535, 65535, 255)])
    padded = np.zeros(5, np.dtype([("p", "u1"), ("y", "<u2"), ("t", "<u8"), ("z", "f4"), ("x", "<u2")]))
    assert (
        npy.save_npz(path, [events[:7], events[7:], padded, events[:0]], (640, 480), compress=compress)
        == 70_006
    )
    with np.load(path, allow_pickle=False) as stored:
        assert stored["events"].dtype == EVENT_DTYPE
        np.testing.assert_array_equal(stored["events"][:-5], events)
        assert stored["sensor_size"].tolist() == [640, 480]
    found, reader = read(path)
    assert found == events.tolist() + [(0, 0, 0, 0)] * 5
    assert reader.sensor_size == (640, 480)
    file = io.BytesIO()
    assert npy.save_npz(file, []) == 0
    file.seek(0)
    with np.load(file) as stored:
        assert stored.files == ["events"] and len(stored["events"]) == 0


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        ([1], TypeError, "got list"),
        (metavision(), TypeError, "fields of EVENT_DTYPE"),
        (as_array([[(0, 0, 0, 0)]]), TypeError, r"shape \(1, 1\)"),
        (
            as_array([(1, 0, 0, 0), (2**63, 0, 0, 0)]),
            ValueError,
            "event 1 of a batch: t is 9223372036854775808",
        ),
    ],
)
def test_save_npz_refuses_what_are_no_events(tmp_path, batch, error, message):
    with pytest.raises(error, match=message):
        npy.save_npz(tmp_path / "a.npz", [batch])
    assert not (tmp_path / "a.npz").exists()


def test_rows_are_counted_through_the_file(tmp_path):
    array = metavision()
    array["p"][66_000] = 2
    np.save(tmp_path / "a.npy", array)
    with npy.open(tmp_path / "a.npy") as reader:
        batches = iter(reader)
        assert as_tuples([next(batches)]) == EVENTS[:65_536]
        with pytest.raises(ValueError, match="row 66000: p is 2; a polarity is"):
            next(batches)
    array["p"][66_000] = -1
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ValueError, match="row 66000: p is -1; rows before it have 0"):
        read(tmp_path / "a.npy")


def zipped(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name + ".npy", data)
    return file.getvalue()


HEADER = b"\x93NUMPY\x01\x00"


def stating(descr, shape, fortran=False):
    text = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape!r}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return HEADER + struct.pack("<H", len(text)) + text


EVENT_DESCR = [("t", "<u8"), ("x", "<u2"), ("y", "<u2"), ("p", "|u1")]


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        (b"", {}, ValueError, "not a NumPy file"),
        (b"t,x,y,p\n", {}, ValueError, "not a NumPy file"),
        (HEADER, {}, ValueError, "damaged"),
        (b"\x93NUMPY\x09\x00" + bytes(20), {}, ValueError, "damaged"),
        (HEADER + b"\x04\x00(((\n", {}, ValueError, "damaged"),
        (
            stating(EVENT_DESCR, (10**18,)),
            {},
            ValueError,
            "damaged: its header states 13000000000000000000 bytes",
        ),
        (stating(EVENT_DESCR, (-1,)), {}, ValueError, "damaged"),
        (npy_bytes(as_array(EVENTS))[:-1], {}, ValueError, "damaged"),
        (npy_bytes(as_array(EVENTS)) + b"1", {}, ValueError, "damaged"),
        (npy_bytes(np.array([{}, None]), allow_pickle=True), {}, ValueError, "objects"),
        (npy_bytes(np.zeros(3)), {}, ValueError, "1-D structured array or a 2-D table"),
        (npy_bytes(np.zeros((3, 4), int)), {}, TypeError, "order of its columns"),
        (npy_bytes(np.zeros((3, 5), int)), {"columns": "txyp"}, ValueError, "the table has 5"),
        (npy_bytes(np.zeros((3, 4))), {"columns": "txyp"}, TypeError, "time_unit="),
        (npy_bytes(np.zeros((3, 4), complex)), {"columns": "txyp"}, TypeError, "got dtype complex128"),
        (npy_bytes(np.zeros(3, "i4,i4")), {}, ValueError, "there is no t"),
        (npy_bytes(metavision()), {"columns": "txyp"}, TypeError, "has names"),
        (b"PK\x03\x04 and no more", {}, ValueError, "damaged"),
        (zipped(), {}, ValueError, "got none"),
        (zipped(a=npy_bytes(np.zeros(2)), b=npy_bytes(np.zeros(2))), {}, ValueError, "got a, b"),
        (zipped(t=npy_bytes(np.zeros(2, int))), {}, ValueError, "there is no x"),
        (
            zipped(**{name: npy_bytes(np.zeros(2 + (name == "p"), int)) for name in "txyp"}),
            {},
            ValueError,
            "of one length",
        ),
        (zipped(events=stating(EVENT_DESCR, (10**18,))), {}, ValueError, "damaged"),
        (zipped(events=npy_bytes(np.array([None]), allow_pickle=True)), {}, ValueError, "objects"),
        (
            zipped(events=stating([*EVENT_DESCR, ("z", "|V1000000")], (1,))),
            {},
            ValueError,
            "1000013 bytes each",
        ),
        (
            zipped(events=npy_bytes(as_array([])), sensor_size=npy_bytes(np.zeros(3, int))),
            {},
            ValueError,
            "two int",
        ),
    ],
)
def test_what_is_refused(tmp_path, data, options, error, message):
    path = tmp_path / "a"
    path.write_bytes(data)
    with pytest.raises(error, match=message):
        npy.open(path, **options)


def test_damage_in_an_archive_is_told_when_it_is_reached(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, events=as_array(EVENTS))
    data = bytearray(path.read_bytes())
    data[data.index(as_array(EVENTS[100:]).tobytes()[:40]) + 8] ^= 1
    path.write_bytes(data)
    with npy.open(path) as reader:
        batches = iter(reader)
        assert len(next(batches)) == 65_536
        with pytest.raises(ValueError, match="the array 'events' is damaged: Bad CRC"):
            next(batches)


def test_a_bomb_is_read_in_pieces(tmp_path):
    path = tmp_path / "a.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("events.npy", "w") as member,
    ):
        member.write(stating(EVENT_DESCR, (100 << 20,)))
        for _ in range(1300):
            member.write(bytes(1 << 20))
    assert path.stat().st_size < 2 << 20
    with npy.open(path) as reader:
        assert len(next(iter(reader))) == 65_536


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(FileNotFoundError):
        npy.open(tmp_path / "none.npy")
    with pytest.raises(IsADirectoryError):
        npy.open(tmp_path)
