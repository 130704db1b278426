"""docs/pytorch.md, "A live consumer" and "Threads and free-threaded Python"."""

import sysconfig
import threading

import pytest
from torch_frames import KERNELS, make_events, publish, run_python

import frames2py

torch = pytest.importorskip("torch")

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


@pytest.mark.skipif(not FREE_THREADED, reason="this CPython has no free-threaded build's GIL switch")
@pytest.mark.parametrize("imports", ["frames2py, torch", "torch, frames2py"])
def test_neither_import_turns_the_gil_back_on(imports):
    code = f"""
import sys
assert not sys._is_gil_enabled()
import {imports}
import numpy as np
engine = frames2py.Engine((4, 3), "polarity", snapshot_interval_ms=0)
engine.ingest(np.zeros(2, frames2py.EVENT_DTYPE))
torch.from_numpy(engine.snapshot().copy()).to(torch.float32).sum()
print(sys._is_gil_enabled())
"""
    # -W error: turning the GIL on for a module is announced by a RuntimeWarning.
    assert run_python(code, "-W", "error") == "False\n"


@pytest.mark.parametrize("name", KERNELS)
def test_many_threads_convert_one_snapshot_and_each_owns_its_tensor(name):
    _, snapshot = publish(KERNELS[name]())
    expected = snapshot.frame.tobytes()
    start, wrong = threading.Barrier(4), []

    def convert(mark):
        start.wait()
        for _ in range(50):
            tensor = torch.from_numpy(snapshot.copy())
            if tensor.numpy().tobytes() != expected:
                wrong.append("another thread's values")
            tensor.fill_(mark)
            if not bool((tensor.to(torch.float64) == mark).all()):
                wrong.append("another thread's writes")

    threads = [threading.Thread(target=convert, args=(mark,)) for mark in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert snapshot.frame.tobytes() == expected


def test_consumers_see_rising_sequences_and_whole_publications():
    # Every call adds one event to every pixel, so a whole publication has one value everywhere.
    engine = frames2py.Engine((4, 3), frames2py.StackedHistogram(bins=1, bin_us=10), snapshot_interval_ms=0)
    calls = 300
    seen, wrong = {"fast": [], "slow": []}, []
    producing = threading.Event()

    def consume(name):
        sequence = None
        while (snapshot := engine.wait_for_newer(sequence, timeout=30.0)) is not None:
            sequence = snapshot.meta.sequence
            seen[name].append(sequence)
            frame = torch.from_numpy(snapshot.copy()).to(torch.int64)
            if frame[1].unique().numel() != 1 or bool(frame[0].any()):
                wrong.append((name, sequence))
            if name == "slow":
                producing.wait(timeout=30.0)  # holds its snapshot until the producer is through
            if snapshot.meta.watermark == 10 * calls:
                return

    consumers = [threading.Thread(target=consume, args=(name,)) for name in seen]
    for consumer in consumers:
        consumer.start()
    for call in range(1, calls + 1):
        engine.ingest(make_events([(10 * call, x, y, 1) for y in range(3) for x in range(4)]))
    producing.set()  # reached although one consumer waits for this very line: nobody holds the producer up
    for consumer in consumers:
        consumer.join()
    assert wrong == []
    for sequences in seen.values():
        assert sequences == sorted(set(sequences))
    assert len(seen["slow"]) < calls, "it missed publications, and that was all right"


def test_conversion_works_after_the_producer_is_gone():
    made = []
    producer = threading.Thread(target=lambda: made.append(publish("event_count")))
    producer.start()
    producer.join()
    engine, snapshot = made[0]
    with pytest.raises(RuntimeError):
        engine.ingest(make_events([]))  # this thread is not the producer
    assert torch.from_numpy(engine.snapshot().copy()).tolist() == snapshot.frame.tolist()
