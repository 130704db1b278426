"""docs/pytorch.md, "Back to events and arrays" and "Gradients"."""

import numpy as np
import pytest
from torch_frames import KERNELS, RECORDS, make_events, publish
from torch_page import page_functions

import frames2py

torch = pytest.importorskip("torch")


def test_a_structured_array_is_no_tensor():
    with pytest.raises(TypeError):
        torch.from_numpy(make_events(RECORDS))


@pytest.mark.parametrize("field", ["t", "x", "y"])
def test_fields_of_packed_records_are_not_aligned_for_pytorch(field):
    with pytest.raises(ValueError, match="strides"):
        torch.from_numpy(make_events(RECORDS)[field])


def test_fields_come_out_as_int64_copies():
    events = make_events([*RECORDS, (2**63 - 1, 65_535, 65_535, 255)])
    tensors = page_functions().tensors_from_events(events)
    for name in ("t", "x", "y", "p"):
        assert tensors[name].dtype == torch.int64
        assert tensors[name].tolist() == events[name].tolist()
        tensors[name].zero_()
    assert events["t"][-1] == 2**63 - 1


@pytest.mark.parametrize("count", [0, 1, 500])
def test_events_survive_the_round_trip_to_the_byte(count):
    rng = np.random.default_rng(count)
    events = np.empty(count, dtype=frames2py.EVENT_DTYPE)
    for name, top in (("t", 2**63), ("x", 2**16), ("y", 2**16), ("p", 2**8)):
        events[name] = rng.integers(0, top, count, dtype=np.uint64)
    page = page_functions()
    again = page.events_from_tensors(**page.tensors_from_events(events))
    assert again.dtype == frames2py.EVENT_DTYPE
    assert again.tobytes() == events.tobytes()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.uint16, torch.uint64])
def test_any_integer_tensors_become_events_an_engine_takes(dtype):
    fields = {
        name: torch.tensor([record[i] for record in RECORDS]).to(dtype) for i, name in enumerate("txyp")
    }
    events = page_functions().events_from_tensors(**fields)
    assert events.tolist() == RECORDS
    engine = frames2py.Engine((4, 3), snapshot_interval_ms=0)
    engine.ingest(events)
    assert engine.stats.events_ingested == len(RECORDS)


def test_a_mask_becomes_polarity():
    t = torch.arange(3)
    events = page_functions().events_from_tensors(t, t, t, torch.tensor([True, False, True]))
    assert events["p"].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("field", "value"),
    [("t", -1), ("x", -1), ("x", 65_536), ("y", 65_536), ("y", -3), ("p", 256), ("p", -1)],
)
def test_values_that_numpy_would_wrap_are_refused(field, value):
    fields = {name: torch.zeros(2, dtype=torch.int64) for name in "txyp"}
    fields[field][1] = value
    with pytest.raises(ValueError, match=rf"^{field}: expected values from 0 to .*{value}"):
        page_functions().events_from_tensors(**fields)
    wrapped = np.zeros(2, dtype=frames2py.EVENT_DTYPE)
    wrapped[field] = fields[field].numpy()
    assert wrapped[field][1] != value, "the silent wrapping the page warns of"


@pytest.mark.parametrize(
    ("field", "tensor"),
    [
        ("x", torch.zeros(3, dtype=torch.int64)),
        ("x", torch.zeros(1, dtype=torch.int64)),
        ("p", torch.zeros((2, 1), dtype=torch.int64)),
        ("t", torch.zeros(2)),
        ("y", torch.zeros(2, dtype=torch.complex64)),
    ],
    ids=["longer", "one", "two axes", "float", "complex"],
)
def test_tensors_that_are_no_event_field_are_refused(field, tensor):
    fields = {name: torch.zeros(2, dtype=torch.int64) for name in "txyp"} | {field: tensor}
    with pytest.raises(ValueError, match=f"^{field}: expected 2 integers"):
        page_functions().events_from_tensors(**fields)


@pytest.mark.parametrize("name", KERNELS)
def test_numpy_of_a_cpu_tensor_shares_its_memory(name):
    _, snapshot = publish(KERNELS[name]())
    tensor = torch.from_numpy(snapshot.copy())
    array = tensor.numpy()
    assert array.ctypes.data == tensor.data_ptr()
    assert array.dtype == snapshot.frame.dtype
    assert array.tobytes() == snapshot.frame.tobytes()
    assert torch.from_dlpack(np.from_dlpack(tensor)).data_ptr() == tensor.data_ptr()


def test_gradients_need_floating_point():
    _, snapshot = publish("event_count")
    counts = torch.from_numpy(snapshot.copy())
    for refused in (counts, counts.to(torch.int64)):
        with pytest.raises(RuntimeError, match="floating point"):
            refused.requires_grad_()


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_flow_through_a_converted_frame_and_leave_it_alone(name):
    _, snapshot = publish(KERNELS[name]())
    before = snapshot.frame.tobytes()
    values = torch.from_numpy(snapshot.copy()).to(torch.float32).requires_grad_()
    assert values.is_leaf
    (values**2).sum().backward()
    gradient = values.grad.numpy()
    assert gradient.ctypes.data == values.grad.data_ptr()
    assert (gradient == 2 * snapshot.frame.astype(np.float32)).all()
    assert snapshot.frame.tobytes() == before


def test_gradients_reach_a_model_through_the_recipe():
    _, snapshot = publish(KERNELS["VoxelGrid"]())
    layer = torch.nn.Conv2d(3, 1, kernel_size=1, bias=False)
    layer(torch.from_numpy(snapshot.copy()).unsqueeze(0)).sum().backward()
    # The derivative of the summed 1x1 convolution by a channel's weight is that channel's sum.
    sums = snapshot.frame.sum(axis=(1, 2)).tolist()
    assert layer.weight.grad.flatten().tolist() == pytest.approx(sums, abs=1e-6)


def test_an_array_of_a_tensor_with_gradient_needs_detach_or_force():
    _, snapshot = publish("event_count")
    counts = torch.from_numpy(snapshot.copy()).to(torch.float32).requires_grad_()
    with pytest.raises(RuntimeError, match="requires grad"):
        counts.numpy()
    assert counts.detach().numpy().ctypes.data == counts.data_ptr()
    assert counts.numpy(force=True).tolist() == snapshot.frame.tolist()
