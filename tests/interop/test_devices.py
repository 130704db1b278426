"""docs/pytorch.md, "What copies" and "Devices". Device tests skip where PyTorch reports none."""

import numpy as np
import pytest
from torch_frames import KERNELS, publish

torch = pytest.importorskip("torch")

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch reports no CUDA device")
needs_mps = pytest.mark.skipif(not torch.backends.mps.is_available(), reason="PyTorch reports no MPS device")
DEVICES = [pytest.param("cuda", marks=needs_cuda), pytest.param("mps", marks=needs_mps)]


def tensor_of(name):
    _, snapshot = publish(KERNELS[name]())
    return snapshot, torch.from_numpy(snapshot.copy())


@pytest.mark.parametrize("name", KERNELS)
def test_to_the_same_device_and_dtype_is_the_same_tensor(name):
    _, tensor = tensor_of(name)
    assert tensor.device == torch.device("cpu")
    assert tensor.to("cpu") is tensor
    assert tensor.cpu() is tensor
    assert tensor.to(tensor.dtype) is tensor
    assert tensor.contiguous() is tensor


@pytest.mark.parametrize("name", KERNELS)
def test_another_dtype_and_clone_are_copies(name):
    _, tensor = tensor_of(name)
    for copy in (tensor.to(torch.float64), tensor.to(torch.int64), tensor.clone()):
        assert copy.data_ptr() != tensor.data_ptr()
        before = tensor.tolist()
        copy.fill_(3)
        assert tensor.tolist() == before


def test_snapshot_and_frame_are_handed_out_without_a_copy():
    engine, snapshot = publish("event_count")
    assert engine.snapshot() is snapshot
    assert engine.snapshot().frame is snapshot.frame


def test_the_model_without_a_device_still_gets_shapes():
    _, tensor = tensor_of("VoxelGrid")
    meta = tensor.unsqueeze(0).to("meta")  # a device every PyTorch has: shapes and no data
    assert tuple(torch.nn.Conv2d(3, 8, 3, padding=1, device="meta")(meta).shape) == (1, 8, 3, 4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", KERNELS)
def test_a_transfer_copies(name, device):
    snapshot, tensor = tensor_of(name)
    tensor = tensor.to(torch.int64 if tensor.dtype in (torch.uint32, torch.uint64) else torch.float32)
    there = tensor.to(device)
    assert there.device.type == device
    assert there.to(device) is there
    there += 1
    assert tensor.tolist() == snapshot.frame.tolist()
    with pytest.raises(TypeError):
        there.numpy()
    assert (there.cpu() - 1).double().numpy() == pytest.approx(snapshot.frame.astype(np.float64), abs=1e-5)
    assert there.numpy(force=True).shape == snapshot.frame.shape


@pytest.mark.parametrize("device", DEVICES)
def test_the_transfer_does_not_follow_later_writes(device):
    buffer = np.zeros((3, 4), dtype=np.float32)
    there = torch.from_numpy(buffer).to(device)
    buffer[:] = 5
    assert float(there.cpu().sum()) == 0.0


@needs_mps
def test_mps_has_no_float64():
    _, tensor = tensor_of("VoxelGrid")
    with pytest.raises(TypeError):
        tensor.to(torch.float64).to("mps")
    assert tensor.to("mps").dtype == torch.float32


@needs_cuda
def test_a_snapshot_fills_pinned_memory():
    snapshot, _ = tensor_of("VoxelGrid")
    batch = torch.empty((2, *snapshot.frame.shape), pin_memory=True)
    snapshot.copy(out=batch[1].numpy())
    assert batch.is_pinned()
    assert batch[1].to("cuda", non_blocking=True).cpu().tolist() == snapshot.frame.tolist()
