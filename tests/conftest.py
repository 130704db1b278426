"""Fixtures and checks shared by the whole suite."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import programs
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# Time decides no test: no deadline per example, and slow input generation is no failure.
settings.register_profile(
    "frames2py",
    deadline=None,
    max_examples=int(os.environ.get("FRAMES2PY_EXAMPLES", "100")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("frames2py")

TORCH = importlib.util.find_spec("torch") is not None
collect_ignore = [] if TORCH else ["interop"]

FREE_THREADED_BUILD = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
GIL_WANTED = os.environ.get("PYTHON_GIL") == "1" or getattr(sys, "_xoptions", {}).get("gil") == "1"


def gil_came_back() -> bool:
    """Whether a free-threaded interpreter runs with the GIL although nobody asked for it."""
    return FREE_THREADED_BUILD and not GIL_WANTED and sys._is_gil_enabled()  # type: ignore[attr-defined]


def pytest_configure(config: pytest.Config) -> None:
    # A program that hangs is to end before the test is, which otherwise could not say where it was.
    seconds = config.getoption("timeout") or os.environ.get("PYTEST_TIMEOUT") or config.getini("timeout")
    programs.limit = 0.75 * float(seconds) or programs.limit


def pytest_sessionfinish(session: pytest.Session) -> None:
    if gil_came_back():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not TORCH and (ROOT / "tests" / "interop").exists():
        terminalreporter.write_line("SKIPPED tests/interop: torch is not importable here")
    if gil_came_back():
        terminalreporter.write_line("FAILED: the GIL is enabled at the end of the session", red=True)
    elif FREE_THREADED_BUILD and not GIL_WANTED:
        terminalreporter.write_line("The GIL is still disabled at the end of the session.")


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder with the recordings; a test that needs it is skipped where it is missing."""
    folder = Path(os.environ.get("FRAMES2PY_RECORDINGS", ROOT / ".." / "shared" / "recordings"))
    if not folder.is_dir():
        pytest.skip(f"no recordings in {folder}; set FRAMES2PY_RECORDINGS")
    return folder


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Any]]:
    """``elsewhere(f, *args)`` runs `f` in one other thread, always the same, and does as it does."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield lambda function, *args, **kwargs: pool.submit(function, *args, **kwargs).result()


# A shell starts background jobs with Ctrl-C ignored, and Python then leaves it so, here and in every child.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
