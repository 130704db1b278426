"""docs/pytorch.md, "Numbers": dtypes, exactness, and what unsigned tensors cannot do."""

import numpy as np
import pytest
from torch_frames import DTYPES, KERNELS, SHAPES, make_events, publish
from torch_page import page_functions

import frames2py
from frames2py.publish import Snapshot, SnapshotMeta

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", KERNELS)
def test_from_numpy_keeps_shape_dtype_layout_and_every_bit(name):
    _, snapshot = publish(KERNELS[name]())
    tensor = torch.from_numpy(snapshot.copy())
    assert tuple(tensor.shape) == SHAPES[name]
    assert tensor.dtype == getattr(torch, DTYPES[name])
    assert tensor.is_contiguous()
    assert tensor.device.type == "cpu"
    assert tensor.numpy().tobytes() == snapshot.frame.tobytes()


@pytest.mark.parametrize("name", [name for name, dtype in DTYPES.items() if dtype == "float32"])
def test_float_frames_need_no_conversion(name):
    _, snapshot = publish(KERNELS[name]())
    tensor = torch.from_numpy(snapshot.copy())
    assert tensor.to(torch.float32) is tensor
    assert torch.nn.functional.relu(tensor).dtype == torch.float32


UNSIGNED = {"uint32": torch.uint32, "uint64": torch.uint64}

MISSING = {
    "add": lambda a: a + 1,
    "add in place": lambda a: a.add_(1),
    "add tensors": lambda a: a + a,
    "subtract": lambda a: a - a,
    "greater": lambda a: a > 0,
    "max": lambda a: a.max(),
    "min": lambda a: a.min(),
    "clamp": lambda a: a.clamp(max=2),
    "argmax": lambda a: a.argmax(),
    "nonzero": lambda a: a.nonzero(),
}


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("operation", MISSING)
def test_most_arithmetic_is_missing_for_unsigned_tensors(operation, dtype):
    tensor = torch.tensor([1, 2, 3]).to(UNSIGNED[dtype])
    with pytest.raises(NotImplementedError):
        MISSING[operation](tensor)
    MISSING[operation](tensor.to(torch.int64))


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_some_operations_work_on_unsigned_tensors(dtype):
    tensor = torch.tensor([1, 2, 3]).to(UNSIGNED[dtype])
    assert int(tensor.sum()) == 6
    assert (tensor == tensor).tolist() == [True, True, True]
    assert torch.stack([tensor, tensor]).tolist() == [[1, 2, 3], [1, 2, 3]]
    assert torch.cat([tensor, tensor]).dtype == UNSIGNED[dtype]
    assert tensor.zero_().tolist() == [0, 0, 0]


def test_unsigned_counts_do_not_enter_a_float_layer():
    _, snapshot = publish("event_count")
    layer = torch.nn.Conv2d(1, 1, 1)
    counts = torch.from_numpy(snapshot.copy())[None, None]
    with pytest.raises(RuntimeError):
        layer(counts)
    assert tuple(layer(counts.to(torch.float32)).shape) == (1, 1, 3, 4)


def test_dividing_uint32_goes_through_float32():
    quotient = torch.from_numpy(np.array([6, 2**24 + 1], dtype=np.uint32)) / 1
    assert quotient.dtype == torch.float32
    assert quotient.tolist() == [6.0, 2.0**24]


def some_uint32():
    edges = [0, 1, 2**16, 2**24 - 1, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1]
    return np.concatenate(
        [
            np.array(edges, dtype=np.uint32),
            np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32),
        ]
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_every_uint32_is_exact_in_int64_and_float64(dtype):
    counts = some_uint32()
    converted = torch.from_numpy(counts.copy()).to(dtype)
    assert [int(value) for value in converted.tolist()] == counts.tolist()


@pytest.mark.parametrize(
    ("dtype", "bits"), [(torch.float32, 24), (torch.float16, 11), (torch.bfloat16, 8)], ids=str
)
def test_counts_are_exact_up_to_a_power_of_two_and_not_beyond(dtype, bits):
    counts = np.arange(2**bits + 2, dtype=np.uint32)
    back = torch.from_numpy(counts).to(dtype).to(torch.int64)
    wrong = (back != torch.arange(2**bits + 2)).nonzero().flatten().tolist()
    assert wrong == [2**bits + 1]


def test_the_two_examples_beyond_float32():
    counts = torch.from_numpy(np.array([16_777_217, 4_294_967_295], dtype=np.uint32))
    assert counts.to(torch.float32).to(torch.float64).tolist() == [16_777_216.0, 4_294_967_296.0]


def test_a_wrapped_count_stays_wrapped():
    # 2**32 + 2 events on one pixel and 2**32 - 1 on the other, as a publisher of uint32 counts shows them.
    frame = np.array([[(2**32 + 2) % 2**32, 2**32 - 1]], dtype=np.uint32)
    snapshot = Snapshot(frame, SnapshotMeta(watermark=1, sequence=1))
    tensor = torch.from_numpy(snapshot.copy())
    for dtype in (torch.int64, torch.float64):
        assert tensor.to(dtype).tolist() == [[2, 4_294_967_295]]


LARGEST = 2**63 - 1


@pytest.mark.parametrize("t", [1, 2**24 + 1, 2**53 + 1, LARGEST - 1, LARGEST])
def test_every_time_surface_value_is_exact_in_int64(t):
    _, snapshot = publish("time_surface", [(t, 1, 2, 1)])
    surface = torch.from_numpy(snapshot.copy()).to(torch.int64)
    assert surface[2, 1].item() == t
    assert int((surface != 0).sum()) == 1


def test_larger_timestamps_never_reach_a_frame():
    engine = frames2py.Engine((4, 3), "time_surface", snapshot_interval_ms=0)
    with pytest.raises(ValueError):
        engine.ingest(make_events([(2**63, 0, 0, 1)]))
    assert engine.snapshot() is None


@pytest.mark.parametrize(
    ("dtype", "bits", "unit_us", "length"),
    [(torch.float64, 53, 1e6 * 86_400 * 365.25, 285), (torch.float32, 24, 1e6, 16.8)],
    ids=["float64 years", "float32 seconds"],
)
def test_a_time_surface_in_floating_point_is_exact_up_to_a_power_of_two(dtype, bits, unit_us, length):
    edge = 2**bits
    records = [(edge - 1, 0, 0, 1), (edge, 1, 0, 1), (edge + 1, 2, 0, 1)]
    _, snapshot = publish("time_surface", records)
    surface = torch.from_numpy(snapshot.copy()).to(dtype)
    assert [int(value) for value in surface[0, :3].tolist()] == [edge - 1, edge, edge]
    assert edge / unit_us == pytest.approx(length, rel=0.002)


UNIX_US = 1_789_000_000_000_000 // 2**27 * 2**27  # the year 2026, on a float32 grid point


def test_unix_time_fits_float64_and_not_float32():
    records = [(UNIX_US, 0, 0, 1), (UNIX_US + 1, 1, 0, 1), (UNIX_US + 30_000_000, 2, 0, 1)]
    _, snapshot = publish("time_surface", records)
    surface = torch.from_numpy(snapshot.copy())
    assert [int(value) for value in surface.to(torch.float64)[0, :3].tolist()] == [t for t, *_ in records]
    merged = surface.to(torch.float32)[0, :3].tolist()
    assert merged == [float(UNIX_US)] * 3, "half a minute apart, and one value"


def test_subtracting_first_keeps_what_float32_would_lose():
    records = [(UNIX_US, 0, 0, 1), (UNIX_US + 1, 1, 0, 1), (UNIX_US + 1000, 2, 0, 1)]
    _, snapshot = publish("time_surface", records)
    surface = torch.from_numpy(snapshot.copy()).to(torch.int64)
    age = (snapshot.meta.watermark - surface).to(torch.float32)
    assert age[0, :3].tolist() == [1000.0, 999.0, 0.0]

    batch = page_functions().to_batch(snapshot, horizon_us=2000)
    assert batch[0, 0, 0].tolist() == pytest.approx([0.5, 1 - 999 / 2000, 1.0, 0.0], abs=1e-7)


def test_an_image_becomes_channels_first_floats_from_0_to_1():
    image = np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    image[0, 0] = [0, 255, 128]
    before = image.copy()
    tensor = page_functions().image_to_chw(image)
    assert tuple(tensor.shape) == (3, 5, 7)
    assert tensor.dtype == torch.float32
    assert (image == before).all()
    assert (tensor.min().item(), tensor.max().item()) == (0.0, 1.0)
    for c, y, x in [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 4, 6), (2, 3, 1)]:
        assert tensor[c, y, x].item() == float(np.float32(image[y, x, c]) / np.float32(255))


def test_a_rendered_snapshot_becomes_a_chw_tensor():
    viewer = pytest.importorskip("frames2py.viewer")
    _, snapshot = publish("polarity")
    picture = viewer.render(snapshot)
    tensor = page_functions().image_to_chw(picture)
    assert tuple(tensor.shape) == (3, 3, 4)
    assert (tensor * 255).round().to(torch.uint8).permute(1, 2, 0).tolist() == picture.tolist()
