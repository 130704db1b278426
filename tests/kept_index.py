"""The file that an index is kept in, beside the recording."""

from __future__ import annotations

from pathlib import Path

import frames2py


def beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.frames2py-index")


def check_that_one_in_memory_is_kept_when_asked_for(path: Path) -> None:
    with frames2py.open(path) as reader:
        expected = reader.build_index()
        assert not beside(path).exists()
        assert reader.build_index(beside=True) == expected
    kept = beside(path).read_bytes()
    with frames2py.open(path) as reader:
        assert reader.build_index(beside=True) == expected
    assert beside(path).read_bytes() == kept
    with frames2py.open(path) as reader:
        reader.build_index()
        beside(path).write_bytes(b"")
        assert reader.build_index(beside=True) == expected
    assert beside(path).read_bytes() == kept
