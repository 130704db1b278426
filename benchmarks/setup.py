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


def kept_environment(name: str, *packages: str) -> Path | None:
    """Like `environment`, but what is there from before, made of the same packages, is used as it is. `None`,
    after saying why, if they do not install. Remove target/benchmarks to get the newest versions."""
    folder = VENVS / name
    note = folder / "packages.txt"
    interpreter = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wanted = " ".join(packages)
    if note.exists() and note.read_text(encoding="utf-8") == wanted:
        return interpreter
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    install = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    done = subprocess.run(install, check=False, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip() or "pip failed").splitlines()[-1]
        print(f"skipped: {wanted} does not install: {reason}", file=sys.stderr)
        return None
    note.write_text(wanted, encoding="utf-8")
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
