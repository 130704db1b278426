"""docs/pytorch.md, "Do not wrap snapshot.frame": what goes wrong, and what copies instead."""

import ctypes
import gc

import numpy as np
import pytest
from torch_frames import KERNELS, RECORDS, make_events, publish, run_python

torch = pytest.importorskip("torch")

# The warning these conversions give, once, is the subject of tests of its own below.
pytestmark = pytest.mark.filterwarnings("ignore:The given (NumPy array|buffer) is not writable:UserWarning")

SHARING = {
    "from_numpy": torch.from_numpy,
    "as_tensor": torch.as_tensor,
    "asarray": torch.asarray,
    "frombuffer": lambda frame: torch.frombuffer(frame, dtype=torch.uint32).reshape(frame.shape),
    "from_dlpack": torch.from_dlpack,
}

COPYING = {
    "tensor": torch.tensor,
    "asarray(copy=True)": lambda frame: torch.asarray(frame, copy=True),
    "from_dlpack(copy=True)": lambda frame: torch.from_dlpack(frame, copy=True),
    "as_tensor(dtype=int64)": lambda frame: torch.as_tensor(frame, dtype=torch.int64),
    "asarray(dtype=int64)": lambda frame: torch.asarray(frame, dtype=torch.int64),
}

SNAPSHOT = """
import warnings
import numpy as np, torch, frames2py
engine = frames2py.Engine((4, 3), snapshot_interval_ms=0)
engine.ingest(np.zeros(2, frames2py.EVENT_DTYPE))
frame = engine.snapshot().frame
"""


@pytest.mark.parametrize("name", SHARING)
def test_a_tensor_over_the_published_frame_writes_through_to_every_reader(name):
    engine, snapshot = publish("event_count")
    tensor = SHARING[name](snapshot.frame)
    assert tensor.data_ptr() == snapshot.frame.ctypes.data
    assert int(engine.snapshot().frame.sum()) == len(RECORDS)
    tensor.zero_()
    assert int(engine.snapshot().frame.sum()) == 0
    assert not snapshot.frame.flags.writeable


@pytest.mark.parametrize("name", COPYING)
def test_letting_pytorch_copy_leaves_the_frame_alone(name):
    _, snapshot = publish("event_count")
    before = snapshot.frame.tobytes()
    tensor = COPYING[name](snapshot.frame)
    assert tensor.tolist() == snapshot.frame.tolist()
    tensor.zero_()
    assert snapshot.frame.tobytes() == before


def test_the_read_only_warning_comes_once_per_process():
    code = (
        SNAPSHOT
        + """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.from_numpy(frame)
    print(len(caught))
    torch.from_numpy(frame)
    torch.as_tensor(frame)
    torch.asarray(frame)
    engine.ingest(np.zeros(2, frames2py.EVENT_DTYPE))
    torch.from_numpy(engine.snapshot().frame)
print(len(caught))
print(caught[0].category.__name__, "|", str(caught[0].message)[:37])
"""
    )
    assert run_python(code).splitlines() == ["1", "1", "UserWarning | The given NumPy array is not writable"]


@pytest.mark.parametrize("call", ["torch.as_tensor(frame)", "torch.asarray(frame)"])
def test_the_other_sharing_conversions_give_the_same_warning(call):
    code = (
        SNAPSHOT
        + f"""
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    {call}
print([(w.category.__name__, str(w.message)[:37]) for w in caught])
"""
    )
    assert run_python(code) == "[('UserWarning', 'The given NumPy array is not writable')]\n"


def test_frombuffer_has_a_warning_of_its_own():
    code = (
        SNAPSHOT
        + """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.from_numpy(frame)
    torch.frombuffer(frame, dtype=torch.uint32)
print([str(w.message)[:30] for w in caught])
"""
    )
    assert run_python(code) == "['The given NumPy array is not w', 'The given buffer is not writab']\n"


@pytest.mark.parametrize(
    "call",
    [
        "torch.from_dlpack(frame)",
        "torch.tensor(frame)",
        "torch.asarray(frame, copy=True)",
        "torch.from_dlpack(frame, copy=True)",
        "torch.from_numpy(engine.snapshot().copy())",
        "torch.from_dlpack(engine.snapshot().copy())",
    ],
)
def test_these_conversions_never_warn(call):
    assert run_python(SNAPSHOT + f"print(tuple({call}.shape))", "-W", "error") == "(3, 4)\n"


def test_numpy_marks_the_dlpack_export_read_only():
    if np.lib.NumpyVersion(np.__version__) < "2.1.0":
        pytest.skip("NumPy exports versioned DLPack from 2.1 on")
    _, snapshot = publish("event_count")

    def read_only(array):
        capsule = array.__dlpack__(max_version=(1, 0))
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        address = pointer(capsule, b"dltensor_versioned")
        # DLManagedTensorVersioned: two uint32 of version, two pointers, then the uint64 of flags; bit 0 is
        # DLPACK_FLAG_BITMASK_READ_ONLY (dlpack.h, version 1.0).
        return bool(ctypes.c_uint64.from_address(address + 8 + 2 * ctypes.sizeof(ctypes.c_void_p)).value & 1)

    assert read_only(snapshot.frame)
    assert not read_only(snapshot.copy())


def test_a_consumer_that_asks_for_the_old_dlpack_is_refused():
    _, snapshot = publish("event_count")
    with pytest.raises(BufferError):
        snapshot.frame.__dlpack__()


def test_dlpack_of_the_copy_equals_from_numpy():
    _, snapshot = publish("event_count")
    copy = snapshot.copy()
    tensor = torch.from_dlpack(copy)
    assert tensor.data_ptr() == copy.ctypes.data
    assert tensor.dtype == torch.uint32
    back = np.from_dlpack(tensor)
    back[0, 0] = 41
    assert copy[0, 0] == 41
    assert torch.equal(tensor, torch.from_numpy(copy))


def test_an_alias_keeps_the_frame_alive():
    engine, snapshot = publish("event_count")
    expected = snapshot.frame.tolist()
    alias = torch.from_numpy(snapshot.frame)
    del engine, snapshot
    for _ in range(8):  # later publications must not reuse what the alias reads
        publish("event_count", RECORDS[:1])
    assert alias.tolist() == expected


BINNED = ("StackedHistogram", "VoxelGrid")


@pytest.mark.parametrize("name", [name for name in KERNELS if name not in BINNED])
def test_a_write_through_an_alias_ends_with_its_publication(name):
    # Frame memory may be used again. What somebody wrote into it must not show up in a later frame.
    engine, _ = publish(KERNELS[name](), [])
    undisturbed, _ = publish(KERNELS[name](), [])
    for call in range(12):
        spoil(engine)
        records = [(40 + call, call % 4, call % 3, call % 2)] if call % 3 else []  # some windows are empty
        for each in (engine, undisturbed):
            each.ingest(make_events(records))
        assert engine.snapshot().frame.tolist() == undisturbed.snapshot().frame.tolist()


@pytest.mark.parametrize("name", BINNED)
def test_with_time_bins_it_ends_when_the_bins_shown_change(name):
    engine, _ = publish(KERNELS[name]())
    undisturbed, _ = publish(KERNELS[name]())
    changes = [
        ([], False),
        ([(34, 0, 0, 1)], False),  # in the bin in progress, as is the next, which is outside the sensor, too
        ([(39, 9, 9, 1)], False),
        ([(25, 0, 0, 1)], True),  # late, for a bin that is shown
        ([], False),
        ([(40, 0, 0, 1)], True),  # the next bin
        ([(49, 1, 1, 0), (9, 1, 1, 0)], False),  # one is too late to be shown
        ([(1000, 1, 1, 0)], True),  # none of what was shown before
        ([(1001, 1, 1, 0)], False),
        ([(1010, 1, 1, 0)], True),
    ]
    for records, changed in changes:
        spoil(engine)
        for each in (engine, undisturbed):
            each.ingest(make_events(records))
        frame, expected = engine.snapshot().frame.tolist(), undisturbed.snapshot().frame.tolist()
        assert (frame == expected) == changed


def spoil(engine):
    alias = torch.from_dlpack(engine.snapshot().frame)
    alias.fill_(99)
    del alias
    gc.collect()
