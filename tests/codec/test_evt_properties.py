"""EVT against decoders that take one word at a time, on random words cut at random places."""

from __future__ import annotations

import os
import threading

import evt_words as w
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frames2py.adapters import evt

TWELVE_BITS = st.integers(0, 4095)
# Times that often repeat, step by one, and lie around the edges that wraps are told by.
TIMES_12 = st.one_of(
    st.integers(0, 3), st.integers(4092, 4095), st.integers(250, 260), st.integers(3836, 3846), TWELVE_BITS
)
EVT3_WORD = st.one_of(
    st.tuples(st.sampled_from([0, 1, 2, 2, 2, 3, 4, 4, 5, 6]), TWELVE_BITS),
    st.tuples(st.just(w.TIME_HIGH), TIMES_12),
    st.tuples(st.integers(0, 15), TWELVE_BITS),
)
EVT3_RUNAWAY = st.builds(lambda n, last: [(w.VECT_12, 0)] * n + [last], st.integers(5270, 5470), EVT3_WORD)
EVT3_BODY = st.builds(
    lambda start, words, runaway, more, tail: w.evt3(*start, *words, *runaway, *more) + tail,
    st.sampled_from([[], [(w.TIME_HIGH, 4094), (w.ADDR_Y, 3), (w.BASE_X, 2000)]]),
    st.lists(EVT3_WORD, max_size=60),
    st.one_of(st.just([]), st.just([]), st.just([]), EVT3_RUNAWAY),
    st.lists(EVT3_WORD, max_size=20),
    st.binary(max_size=1),
)
TOP = 2**28 - 1
TIMES_28 = st.one_of(st.integers(0, 200), st.integers(TOP - 200, TOP), st.integers(0, TOP))
EVT2_WORD = st.one_of(
    st.builds(w.cd, st.integers(0, 1), st.integers(0, 63), st.integers(0, 2047), st.integers(0, 2047)),
    st.builds(w.high, TIMES_28),
    st.integers(0, 2**32 - 1),
)
EVT2_BODY = st.builds(
    lambda words, tail: w.evt2(*words) + tail, st.lists(EVT2_WORD, max_size=60), st.binary(max_size=3)
)

several = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(path, data: bytes, **options):
    """The events, and whether a ValueError ended them."""
    path.write_bytes(data)
    return drain(evt.open(path, **options))


def drain(reader):
    events = []
    try:
        for batch in reader:
            assert len(batch) > 0
            events += batch.tolist()
    except ValueError:
        return events, True
    return events, False


@several
@given(body=EVT2_BODY, batch_size=st.one_of(st.none(), st.integers(1, 70)))
def test_evt2_equals_a_decoder_of_one_word_at_a_time(tmp_path, body, batch_size):
    assert read(tmp_path / "x", w.header("2.0") + body, batch_size=batch_size) == (w.naive_evt2(body), False)


@several
@given(body=EVT3_BODY, batch_size=st.one_of(st.none(), st.integers(1, 70)))
def test_evt3_equals_a_decoder_of_one_word_at_a_time(tmp_path, body, batch_size):
    assert read(tmp_path / "x", w.header("3.0") + body, batch_size=batch_size) == w.naive_evt3(body)


@pytest.mark.parametrize("seed", range(4))
def test_long_evt3_streams_equal_a_decoder_of_one_word_at_a_time(tmp_path, seed):
    """Longer than any buffer, with the mixtures of word types that sensors send and some they do not."""
    rng = np.random.default_rng(seed)
    usual = [[0, 2, 6, 8], [0, 2, 2, 6, 3, 4, 4, 5, 8], [8, 6, 0, 2, 7, 10, 14, 15], range(16)][seed]
    n = 250_000
    kinds = rng.choice(np.array(usual), n)
    values = rng.integers(0, 4096, n)
    # Clocks that mostly run, base columns that keep vectors within range.
    clock = np.cumsum(rng.choice([0, 0, 0, 1, 1, 40, -1], n)) % 4096
    values = np.where((kinds == 8) & (rng.random(n) < 0.999), clock, values)
    kinds[::500] = 3
    body = (kinds << 12 | values).astype("<u2").tobytes()
    events, failed = w.naive_evt3(body)
    assert not failed
    assert len(events) > 10_000
    path = tmp_path / "x"
    path.write_bytes(w.header("3.0") + body)
    for batch_size in (None, 997):
        batches = list(evt.open(path, batch_size=batch_size))
        np.testing.assert_array_equal(np.concatenate(batches), w.as_array(events))


@pytest.mark.parametrize("seed", range(2))
def test_long_evt2_streams_equal_a_decoder_of_one_word_at_a_time(tmp_path, seed):
    rng = np.random.default_rng(seed)
    n = 250_000
    kinds = rng.choice(np.array([0, 1, 1, 8] if seed == 0 else [*range(16), 8, 8, 0, 1]), n).astype(np.uint64)
    clock = np.cumsum(rng.choice([0, 1, 2**20, -1], n)) % 2**28
    values = np.where(kinds == 8, clock, rng.integers(0, 2**28, n)).astype(np.uint64)
    body = (kinds << np.uint64(28) | values).astype("<u4").tobytes()
    events = w.naive_evt2(body)
    path = tmp_path / "x"
    path.write_bytes(w.header("2.0") + body)
    for batch_size in (None, 997):
        batches = list(evt.open(path, batch_size=batch_size))
        np.testing.assert_array_equal(np.concatenate(batches), w.as_array(events))


@several
@given(version=st.sampled_from(["2.0", "3.0"]), bodies=st.tuples(EVT2_BODY, EVT3_BODY), cut=st.floats(0, 1))
def test_a_truncated_file_yields_a_prefix(tmp_path, version, bodies, cut):
    body = bodies[version == "3.0"]
    whole, failed = read(tmp_path / "x", w.header(version) + body)
    part, part_failed = read(tmp_path / "x", w.header(version) + body[: int(cut * len(body))])
    assert part == whole[: len(part)]
    assert failed or not part_failed


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@settings(several, max_examples=30)
@given(
    version=st.sampled_from(["2.0", "3.0"]),
    bodies=st.tuples(EVT2_BODY, EVT3_BODY),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=20),
)
def test_the_result_does_not_depend_on_how_the_file_was_cut_into_reads(tmp_path, version, bodies, sizes):
    """Through a pipe, written in pieces: the reader gets some of them one by one."""
    body = bodies[version == "3.0"]
    data = w.header(version) + body
    pipe = tmp_path / "pipe"
    if not pipe.exists():
        os.mkfifo(pipe)

    def write():
        with pipe.open("wb", buffering=0) as file:
            at = 0
            try:
                for size in sizes:
                    at += file.write(data[at : at + size])
                file.write(data[at:])
            except BrokenPipeError:  # the reader met a malformed word and closed
                pass

    writer = threading.Thread(target=write)
    writer.start()
    with evt.open(pipe) as reader:
        result = drain(reader)
    writer.join()
    assert result == (w.naive_evt3(body) if version == "3.0" else (w.naive_evt2(body), False))
