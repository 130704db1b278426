"""docs/pytorch.md, "Who owns what" and "Reading without allocating"."""

import gc
import threading
import weakref

import numpy as np
import pytest
from torch_frames import DTYPES, KERNELS, RECORDS, SHAPES, SIZE, make_events, publish

import frames2py

torch = pytest.importorskip("torch")


@pytest.fixture(params=KERNELS)
def kernel(request):
    return request.param


def test_every_reader_of_a_publication_gets_the_same_read_only_frame():
    engine, snapshot = publish("event_count")
    seen = []
    readers = [threading.Thread(target=lambda: seen.append(engine.snapshot().frame)) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert len(seen) == 4
    assert all(frame is snapshot.frame for frame in seen)
    assert not snapshot.frame.flags.writeable
    with pytest.raises(ValueError):
        snapshot.frame[0, 0] = 1


def test_a_published_frame_is_never_written_again(kernel):
    engine, snapshot = publish(KERNELS[kernel]())
    before = snapshot.frame.tobytes()
    for call in range(8):
        engine.ingest(make_events([(100 + 10 * call, 0, 0, 1)]))
    engine.reset()
    engine.ingest(make_events(RECORDS[:2]))
    assert snapshot.frame.tobytes() == before


def test_copy_is_writable_contiguous_and_shared_with_nobody(kernel):
    _, snapshot = publish(KERNELS[kernel]())
    copy, other = snapshot.copy(), snapshot.copy()
    assert type(copy) is np.ndarray
    assert copy.flags.writeable
    assert copy.flags.c_contiguous
    assert copy.tobytes() == snapshot.frame.tobytes()
    assert not np.shares_memory(copy, snapshot.frame)
    assert not np.shares_memory(copy, other)


def test_from_numpy_shares_the_copy_both_ways(kernel):
    _, snapshot = publish(KERNELS[kernel]())
    copy = snapshot.copy()
    tensor = torch.from_numpy(copy)
    assert tensor.data_ptr() == copy.ctypes.data
    index = (0,) * copy.ndim
    tensor[index] = 77
    assert copy[index] == 77
    copy[index] = 78
    assert tensor[index].item() == 78


def test_writing_the_tensor_reaches_no_other_reader_and_no_later_publication(kernel):
    engine, snapshot = publish(KERNELS[kernel]())
    untouched, untouched_snapshot = publish(KERNELS[kernel]())
    tensor = torch.from_numpy(snapshot.copy())
    tensor.fill_(9)
    assert snapshot.frame.tobytes() == untouched_snapshot.frame.tobytes()
    assert snapshot.copy().tobytes() == untouched_snapshot.frame.tobytes()
    for each in (engine, untouched):
        each.ingest(make_events([(45, 0, 0, 1)]))
    assert engine.snapshot().frame.tobytes() == untouched.snapshot().frame.tobytes()


def test_the_tensor_keeps_the_copy_alive_and_frames2py_does_not():
    engine, snapshot = publish("event_count")
    copy = snapshot.copy()
    alive = weakref.ref(copy)
    tensor = torch.from_numpy(copy)
    del copy
    gc.collect()
    assert alive() is not None
    assert int(tensor.sum()) == len(RECORDS)
    del tensor
    gc.collect()
    assert alive() is None
    assert engine.snapshot() is snapshot  # both still here, and neither held on to the copy


def test_the_tensor_outlives_snapshot_engine_and_thread(kernel):
    _, reference = publish(KERNELS[kernel]())
    made = []

    def make():
        engine, snapshot = publish(KERNELS[kernel]())
        made.append(torch.from_numpy(snapshot.copy()))
        engine.stop()

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    gc.collect()
    publish(KERNELS[kernel](), RECORDS[:1])  # would reuse memory that was freed too early
    assert made[0].numpy().tobytes() == reference.frame.tobytes()


def test_neither_side_can_be_resized_while_they_share():
    _, snapshot = publish("event_count")
    copy = snapshot.copy()
    tensor = torch.from_numpy(copy)
    with pytest.raises(RuntimeError, match="not resizable"):
        tensor.resize_(100)
    with pytest.raises(ValueError, match="cannot resize"):
        copy.resize((100,))
    assert copy.shape == (3, 4)


def test_accumulator_read_is_already_a_copy(kernel):
    accumulator = frames2py.Accumulator(SIZE, KERNELS[kernel]())
    accumulator.accumulate(make_events(RECORDS))
    expected = accumulator.read()
    tensor = torch.from_numpy(accumulator.read())
    assert tuple(tensor.shape) == SHAPES[kernel]
    assert tensor.dtype == getattr(torch, DTYPES[kernel])
    tensor.fill_(9)
    assert accumulator.read().tobytes() == expected.tobytes()


def test_a_refill_changes_the_tensor_and_not_its_clone():
    engine = frames2py.Engine(SIZE, "event_count", snapshot_interval_ms=0)
    buffer = np.zeros((3, 4), dtype=np.uint32)
    tensor = torch.from_numpy(buffer)
    engine.ingest(make_events(RECORDS[:2]))
    assert engine.snapshot().copy(out=buffer) is buffer
    kept = tensor.clone()
    assert int(tensor.sum()) == 2
    engine.ingest(make_events(RECORDS[2:]))
    engine.snapshot().copy(out=buffer)
    assert int(tensor.sum()) == len(RECORDS) - 2
    assert tensor.data_ptr() == buffer.ctypes.data
    assert int(kept.sum()) == 2


def test_copy_fills_memory_that_belongs_to_pytorch(kernel):
    _, snapshot = publish(KERNELS[kernel]())
    batch = torch.zeros((3, *SHAPES[kernel]), dtype=getattr(torch, DTYPES[kernel]))
    address = batch.data_ptr()
    snapshot.copy(out=batch[1].numpy())
    assert batch.data_ptr() == address
    assert batch[1].numpy().tobytes() == snapshot.frame.tobytes()
    assert not batch[0].numpy().any()
    assert not batch[2].numpy().any()


@pytest.mark.parametrize(
    ("tensor", "error"),
    [
        (torch.full((3, 4), 5, dtype=torch.int64), TypeError),
        (torch.full((3, 4), 5, dtype=torch.float32), TypeError),
        (torch.full((4, 3), 5, dtype=torch.int32).view(torch.uint32), ValueError),
        (torch.full((1, 3, 4), 5, dtype=torch.int32).view(torch.uint32), ValueError),
        (torch.full((4, 3), 5, dtype=torch.int32).view(torch.uint32).T, ValueError),
    ],
    ids=["int64", "float32", "transposed shape", "batch axis", "not contiguous"],
)
def test_out_must_have_the_exact_dtype_shape_and_layout(tensor, error):
    _, snapshot = publish("event_count")
    with pytest.raises(error):
        snapshot.copy(out=tensor.numpy())
    assert bool((tensor.to(torch.int64) == 5).all()), "a refused buffer is left as it was"


def test_out_must_be_an_array_not_a_tensor():
    _, snapshot = publish("event_count")
    tensor = torch.zeros((3, 4), dtype=torch.uint32)
    with pytest.raises(TypeError):
        snapshot.copy(out=tensor)
    assert int(tensor.sum()) == 0
