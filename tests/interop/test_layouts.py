"""docs/pytorch.md, "Every kernel, ready for a convolution" and "Unusual layouts"."""

import numpy as np
import pytest
from torch_frames import BINS, KERNELS, RECORDS, publish, worked_channels
from torch_page import page_functions

import frames2py

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", [name for name in KERNELS if name not in ("TimeSurface", "TimestampDecay")])
def test_the_page_lays_every_kernel_out_as_it_says(name):
    _, snapshot = publish(KERNELS[name]())
    batch = page_functions().to_batch(snapshot)
    worked = worked_channels(name)
    expected = [[[float(np.float32(float(v))) for v in row] for row in plane] for plane in worked]
    assert batch.dtype == torch.float32
    assert batch.is_contiguous()
    assert batch.tolist() == [expected]
    assert any(v for plane in expected for row in plane for v in row)


def test_the_page_turns_a_time_surface_into_ages():
    _, snapshot = publish("time_surface")
    batch = page_functions().to_batch(snapshot, horizon_us=100)
    latest = max(t for t, *_ in RECORDS)
    for y, row in enumerate(worked_channels("TimeSurface")[0]):
        for x, t in enumerate(row):
            expected = float(1 - (latest - t) / 100) if t else 0.0
            assert batch[0, 0, y, x].item() == pytest.approx(expected, abs=1e-6)
    assert page_functions().to_batch(snapshot, horizon_us=1).count_nonzero() == 1, "older than the horizon: 0"


def test_the_page_passes_a_decayed_surface_on_as_it_is():
    _, snapshot = publish(KERNELS["TimestampDecay"]())
    batch = page_functions().to_batch(snapshot)
    assert batch.numpy().tobytes() == snapshot.frame.tobytes()
    assert tuple(batch.shape) == (1, 1, 3, 4)


@pytest.mark.parametrize("name", KERNELS)
def test_the_page_converts_a_frame_without_a_single_event(name):
    engine = frames2py.Engine((4, 3), KERNELS[name](), snapshot_interval_ms=0)
    engine.ingest(np.empty(0, dtype=frames2py.EVENT_DTYPE))
    assert engine.snapshot().meta.watermark is None
    batch = page_functions().to_batch(engine.snapshot())
    assert batch.ndim == 4
    assert not batch.any()


@pytest.mark.parametrize("name", KERNELS)
def test_a_convolution_takes_the_batch(name):
    _, snapshot = publish(KERNELS[name]())
    batch = page_functions().to_batch(snapshot)
    layer = torch.nn.Conv2d(batch.shape[1], 8, kernel_size=3, padding=1)
    with torch.no_grad():
        assert tuple(layer(batch).shape) == (1, 8, 3, 4)


def test_a_voxel_grid_is_channels_first_without_a_copy():
    _, snapshot = publish(KERNELS["VoxelGrid"]())
    copy = snapshot.copy()
    batch = torch.from_numpy(copy).unsqueeze(0)
    assert tuple(batch.shape) == (1, BINS, 3, 4)
    assert batch.data_ptr() == copy.ctypes.data
    assert batch.is_contiguous()


def test_a_histogram_merges_polarity_major_without_a_copy():
    _, snapshot = publish(KERNELS["StackedHistogram"]())
    copy = snapshot.copy()
    channels = torch.from_numpy(copy).reshape(1, 2 * BINS, 3, 4)
    assert channels.data_ptr() == copy.ctypes.data
    for p in range(2):
        for b in range(BINS):
            assert channels[0, p * BINS + b].tolist() == snapshot.frame[p, b].tolist()
    assert channels[0, 0].tolist() != channels[0, BINS].tolist(), "the events tell OFF from ON"


def test_polarity_is_channels_last_and_permute_is_a_view():
    _, snapshot = publish("polarity")
    copy = snapshot.copy()
    planes = torch.from_numpy(copy).permute(2, 0, 1)
    assert tuple(planes.shape) == (2, 3, 4)
    assert planes.data_ptr() == copy.ctypes.data
    assert not planes.is_contiguous()
    assert planes.tolist() == worked_channels("Polarity")
    contiguous = planes.contiguous()
    assert contiguous.is_contiguous()
    assert contiguous.data_ptr() != planes.data_ptr()
    assert contiguous.tolist() == planes.tolist()
    assert contiguous.contiguous() is contiguous


@pytest.mark.parametrize("name", ["EventCount", "TimeSurface", "ExpDecay", "TimestampDecay"])
def test_two_dimensional_frames_take_two_axes_without_a_copy(name):
    _, snapshot = publish(KERNELS[name]())
    copy = snapshot.copy()
    batch = torch.from_numpy(copy)[None, None]
    assert tuple(batch.shape) == (1, 1, 3, 4)
    assert batch.data_ptr() == copy.ctypes.data


@pytest.mark.parametrize("size", [(1, 1), (5, 1), (1, 5)], ids=["pixel", "row", "column"])
@pytest.mark.parametrize("name", KERNELS)
def test_thin_sensors_keep_their_axes(name, size):
    width, height = size
    records = [(t, x % width, y % height, p) for t, x, y, p in RECORDS]
    _, snapshot = publish(KERNELS[name](), records, size)
    tensor = torch.from_numpy(snapshot.copy())
    assert tuple(tensor.shape) == snapshot.frame.shape
    assert {"Polarity": tensor.shape[:2]}.get(name, tensor.shape[-2:]) == (height, width)
    assert tensor.numpy().tobytes() == snapshot.frame.tobytes()
    batch = page_functions().to_batch(snapshot)
    assert tuple(batch.shape[2:]) == (height, width)
    if name not in ("TimeSurface", "TimestampDecay"):
        worked = worked_channels(name, records, size)
        assert batch[0].tolist() == [
            [[pytest.approx(float(v), abs=1e-6) for v in row] for row in plane] for plane in worked
        ]


def test_a_histogram_of_one_bin_keeps_its_axis():
    _, snapshot = publish(frames2py.StackedHistogram(bins=1, bin_us=10))
    assert tuple(torch.from_numpy(snapshot.copy()).shape) == (2, 1, 3, 4)
    assert tuple(page_functions().to_batch(snapshot).shape) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    "view",
    [lambda a: a[1:, ::2], lambda a: a.T, lambda a: a[:, 1:2], lambda a: a[2, 3:4]],
    ids=["strided slice", "transpose", "column", "one element"],
)
def test_slices_and_transposes_of_the_copy_share_it_and_keep_their_strides(view):
    _, snapshot = publish("event_count")
    array = view(snapshot.copy())
    tensor = torch.from_numpy(array)
    assert tensor.data_ptr() == array.ctypes.data
    assert tuple(tensor.shape) == array.shape
    assert [s * array.itemsize for s in tensor.stride()] == list(array.strides)
    assert tensor.tolist() == array.tolist()
    tensor.fill_(6)
    assert (array == 6).all()


def test_an_empty_slice_is_an_empty_tensor():
    _, snapshot = publish("event_count")
    tensor = torch.from_numpy(snapshot.copy()[0:0])
    assert tuple(tensor.shape) == (0, 4)
    assert tensor.dtype == torch.uint32


def test_negative_strides_are_refused_and_two_remedies_work():
    _, snapshot = publish("event_count")
    copy = snapshot.copy()
    with pytest.raises(ValueError, match="negative"):
        torch.from_numpy(copy[::-1])
    assert torch.from_numpy(copy[::-1].copy()).tolist() == copy[::-1].tolist()
    assert torch.flip(torch.from_numpy(copy), (0,)).tolist() == copy[::-1].tolist()


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")
def test_a_broadcast_view_repeats_the_same_memory():
    _, snapshot = publish("event_count")
    copy = snapshot.copy()
    wide = np.broadcast_to(copy, (2, 3, 4))
    assert not wide.flags.writeable
    alias = torch.from_numpy(wide)
    assert alias.data_ptr() == copy.ctypes.data
    assert alias.stride()[0] == 0
    owned = torch.from_numpy(wide.copy())
    owned.zero_()
    assert copy.any()
    expanded = torch.from_numpy(copy).expand(2, 3, 4)
    assert expanded.data_ptr() == copy.ctypes.data
    assert expanded.tolist() == wide.tolist()
