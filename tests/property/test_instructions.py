"""The code for a kind of processor does what the code for all of them does."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from every_kernel import KERNELS
from records import LAYOUTS

from frames2py import Accumulator

SENSORS = [(346, 260), (3, 2), (70_000, 2)]


def stream(width: int, height: int, layout: str) -> Any:
    rng = np.random.default_rng(width)
    array = np.zeros(20_000, LAYOUTS[layout])
    array["t"] = 1_700_000_000_000_000 + rng.integers(0, 300, 20_000)
    array["x"] = rng.integers(0, min(width + width // 8 + 1, 2**16), 20_000)
    array["y"] = rng.integers(0, height + height // 8 + 1, 20_000)
    array["p"] = rng.integers(0, 4, 20_000)
    hot = rng.random(20_000) < np.arange(20_000) / 20_000  # ever more at one pixel
    array["x"][hot], array["y"][hot] = 2, 1
    return array


def frames() -> list[Any]:
    result = []
    for width, height in SENSORS:
        for layout in ("packed", "aligned"):
            array = stream(width, height, layout)
            for kernel in KERNELS:
                accumulator = Accumulator((width, height), kernel)
                for batch in np.split(array, [1, 17, 290, 9_000]):
                    accumulator.accumulate(batch)
                result.append(accumulator.read())
                result.append(np.array([accumulator.events_out_of_bounds, accumulator.watermark]))
    return result


def run(instructions: str, program: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "FRAMES2PY_ISA": instructions}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)


@pytest.mark.parametrize("instructions", ["scalar", "avx2", "avx512"])
def test_other_instructions_give_the_same_frames(instructions: str) -> None:
    if instructions != "scalar" and run(instructions, "import frames2py").returncode != 0:
        pytest.skip(f"this processor does not have {instructions}")
    folders = [os.path.dirname(os.path.dirname(__file__)), os.path.dirname(__file__)]
    program = f"""
import sys
sys.path[:0] = {folders!r}
import numpy as np
import test_instructions
np.savez(sys.stdout.buffer, *test_instructions.frames())
"""
    result = run(instructions, program)
    assert result.returncode == 0, result.stderr.decode()
    others = np.load(io.BytesIO(result.stdout))
    for i, frame in enumerate(frames()):
        other = others[f"arr_{i}"]
        assert frame.dtype == other.dtype
        if i % 2 == 0 and KERNELS[i // 2 % len(KERNELS)].name == "timestamp_decay":
            # Sums of exponentials that may be rounded in another place.
            np.testing.assert_array_max_ulp(frame, other, 1)
        else:
            np.testing.assert_array_equal(frame, other)


def test_instructions_that_do_not_exist_are_refused_by_name() -> None:
    result = run("mmx", "import frames2py")
    assert result.returncode != 0
    error = result.stderr.decode().splitlines()[-1]
    assert error.startswith("ImportError: FRAMES2PY_ISA must be one of scalar"), error
    assert '"mmx"' in error


@pytest.mark.parametrize("instructions", ["", "scalar"])
def test_an_empty_name_is_none(instructions: str) -> None:
    assert run(instructions, "import frames2py").returncode == 0
