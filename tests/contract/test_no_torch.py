"""The package neither needs nor imports PyTorch, in any of its modules, whatever it is asked to do."""

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import frames2py

PACKAGE = Path(frames2py.__file__).parent

# Runs in a new interpreter, before anything else: every attempt to import torch is written down and refused,
# also one that is made inside a try block.
GUARD = """
import importlib, importlib.abc, json, pkgutil, sys

attempts = []

class NoTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torch" or name.startswith(("torch.", "torchvision", "torchaudio")):
            attempts.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, NoTorch())

def import_everything(package):
    names = [package]
    module = importlib.import_module(package)
    for found in pkgutil.walk_packages(module.__path__, package + "."):
        importlib.import_module(found.name)
        names.append(found.name)
    return names
"""

USE = """
import numpy as np
import frames2py

names = import_everything("frames2py")
events = np.zeros(50, frames2py.EVENT_DTYPE)
events["t"] = np.arange(50)
events["p"] = np.arange(50) % 2
kernels = [
    frames2py.EventCount(), frames2py.Polarity(), frames2py.TimeSurface(), frames2py.ExpDecay(0.5),
    frames2py.TimestampDecay(10.0), frames2py.StackedHistogram(bins=2, bin_us=10),
    frames2py.VoxelGrid(bins=2, bin_us=10),
]
for kernel in kernels:
    engine = frames2py.Engine((4, 3), kernel, snapshot_interval_ms=0)
    engine.ingest(events)
    snapshot = engine.snapshot()
    snapshot.copy(), snapshot.copy(out=np.empty_like(snapshot.frame)), repr(snapshot), engine.stats
    accumulator = frames2py.Accumulator((4, 3), kernel)
    accumulator.accumulate(events)
    accumulator.read()
    if snapshot.frame.ndim == 2 or snapshot.frame.shape[-1] == 2:
        from frames2py import viewer
        viewer.render(snapshot)
    engine.reset(), engine.stop()
print(json.dumps({"names": names, "attempts": attempts, "loaded": [n for n in sys.modules if n == "torch"]}))
"""


def run(code, cwd=None):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nothing_the_package_does_tries_to_import_torch():
    report = run(GUARD + USE)
    assert report["attempts"] == []
    assert report["loaded"] == []
    # The walk really went through the package, subpackages included.
    modules = {"frames2py", "frames2py.kernels", "frames2py.publish", "frames2py.adapters.evt"}
    assert modules <= set(report["names"])


@pytest.mark.parametrize(
    "statement",
    [
        "import torch",
        "import torch.nn",
        "from torch import nn",
        "import importlib; importlib.import_module('torch')",
        "__import__('torch')",
    ],
)
def test_the_guard_notices_an_import_hidden_in_a_try_block(tmp_path, statement):
    package = tmp_path / "guilty"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text(f"try:\n    {statement}\nexcept ImportError:\n    pass\n")
    code = GUARD + 'import_everything("guilty")\nprint(json.dumps(attempts))\n'
    assert run(code, cwd=tmp_path) == ["torch"]
    assert torch_imports((package / "inner.py").read_text()) == [2]


def torch_imports(source):
    """Lines of `source` that import torch, or name it as a module to import."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
        if any(re.fullmatch(r"torch(\.\w+)*", name) for name in names):
            lines.append(node.lineno)
    return lines


def sources():
    return sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".pyi"))


def test_no_source_file_imports_torch():
    assert PACKAGE / "__init__.py" in sources()
    guilty = {str(path): torch_imports(path.read_text(encoding="utf-8")) for path in sources()}
    assert {name: lines for name, lines in guilty.items() if lines} == {}


def test_an_innocent_mention_is_not_an_import():
    assert (
        torch_imports(
            textwrap.dedent('''
        """Arrays that torch.from_numpy takes."""
        from .torch import nothing
        torchlight = "the torch"
    ''')
        )
        == []
    )


def test_no_compiled_module_names_it():
    for path in PACKAGE.rglob("*"):
        if path.suffix in (".so", ".pyd", ".dylib"):
            assert re.search(rb"\btorch\b", path.read_bytes()) is None, path.name


def test_no_requirement_and_no_extra_names_torch():
    metadata = importlib.metadata.metadata("frames2py")
    requirements = metadata.get_all("Requires-Dist") or []
    assert any(requirement.startswith("numpy") for requirement in requirements)
    extras = metadata.get_all("Provides-Extra") or []
    assert [line for line in requirements + extras if "torch" in line.lower()] == []


def test_no_module_and_no_public_name_speaks_of_torch_or_tensors():
    names = [path.stem for path in sources()] + [name for name in dir(frames2py) if not name.startswith("_")]
    for owner in (frames2py.Engine, frames2py.Accumulator, type(publish_one())):
        names += [name for name in dir(owner) if not name.startswith("_")]
    assert "copy" in names
    assert [name for name in names if re.search("torch|tensor", name.lower())] == []


def publish_one():
    import numpy as np

    engine = frames2py.Engine((1, 1), snapshot_interval_ms=0)
    engine.ingest(np.zeros(1, dtype=frames2py.EVENT_DTYPE))
    return engine.snapshot()
