"""The public names: typed for strict checking, documented, and complete."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import frames2py

PROGRAM = Path(__file__).with_name("user_program.py")
MODULES = [
    "frames2py",
    "frames2py.kernels",
    "frames2py.publish",
    "frames2py.adapters.aedat",
    "frames2py.adapters.aedat4",
    "frames2py.adapters.dat",
    "frames2py.adapters.es",
    "frames2py.adapters.evt",
    "frames2py.adapters.hdf5",
    "frames2py.adapters.npy",
    "frames2py.adapters.text",
    "frames2py.recorder",
    "frames2py.viewer",
]


def test_a_program_with_every_public_name_passes_mypy_strict(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(PROGRAM)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=110)
    assert result.returncode == 0, result.stdout + result.stderr
    source = PROGRAM.read_text(encoding="utf-8")
    for name in [*frames2py.__all__, *frames2py.kernels.__all__, *frames2py.publish.__all__]:
        assert name in source, f"{name} is not used in the program"


def test_the_program_runs() -> None:
    result = subprocess.run(
        [sys.executable, PROGRAM], capture_output=True, text=True, check=False, timeout=110
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == frames2py.__version__ == importlib.metadata.version("frames2py")


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_documented(module: str) -> None:
    loaded = importlib.import_module(module)
    assert loaded.__doc__
    for name in loaded.__all__:
        value = getattr(loaded, name)
        if isinstance(value, ModuleType) or inspect.isroutine(value):
            assert value.__doc__, name
        elif inspect.isclass(value):
            assert value.__doc__, name
            for member, attribute in vars(value).items():
                if not member.startswith("_") and (
                    callable(attribute) or inspect.isdatadescriptor(attribute)
                ):
                    if inspect.ismemberdescriptor(attribute):
                        continue  # a dataclass field, described in the class's docstring
                    assert inspect.getdoc(getattr(value, member)), f"{name}.{member}"


@pytest.mark.parametrize("module", MODULES)
def test_all_is_what_is_there(module: str) -> None:
    loaded = importlib.import_module(module)
    assert sorted(loaded.__all__) == sorted(set(loaded.__all__))
    assert all(hasattr(loaded, name) for name in loaded.__all__)
