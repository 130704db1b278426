"""Environments for us and for rivals, and what machine this is."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENVS = ROOT / "target" / "benchmarks"
RIVAL = "frames2py==1.1.0"


def environment(name: str, *packages: str, python: str = sys.executable) -> Path:
    """The interpreter of a fresh virtual environment with these packages."""
    folder = VENVS / name
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    interpreter = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    install = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    # One folder for all, so that dependencies are compiled once.
    environ = {**os.environ, "CARGO_TARGET_DIR": str(VENVS / "cargo")}
    subprocess.run(install, check=True, cwd=ROOT, env=environ)
    return interpreter


def free_threaded() -> str | None:
    """A free-threaded interpreter, if there is one."""
    return os.environ.get("FRAMES2PY_PYTHON_FT") or shutil.which("python3.14t")


def machine() -> str:
    """CPU, cores and system in a line."""
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            models = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
        cpu = models[0] if models else cpu
    except OSError:
        pass
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}"
