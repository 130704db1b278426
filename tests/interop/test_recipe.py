"""The hand-off program runs unchanged and prints exactly its six lines."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorch_handoff.py"

SIX_LINES = """\
counts: (3, 4) torch.uint32
published frame unchanged: True
voxels: (3, 3, 4) torch.float32 -> features: (1, 8, 3, 4)
histogram: (2, 3, 3, 4) torch.uint32 -> channels: (1, 6, 3, 4) torch.float32
window total: 2
window total: 4
"""


def test_the_program_prints_exactly_its_six_lines():
    # Warnings are errors: the recipe must not meet the read-only warning, nor any other.
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == SIX_LINES
