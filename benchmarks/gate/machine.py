"""What machine this is. Standard library only."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

FEATURES = re.compile(r"avx|sse4_2|bmi2|neon|asimd|sve|erms|fsrm")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _cpuinfo(*names: str) -> str:
    info = _read("/proc/cpuinfo")
    for name in names:
        match = re.search(rf"^{name}\s*:\s*(.*)$", info, re.MULTILINE)
        if match:
            return match[1]
    return ""


def _caches() -> str:
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_read(f"{index}/{name}") for name in ("level", "type", "size"))
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found)


def cpu() -> str:
    return _cpuinfo("model name", "Model") or platform.processor() or platform.machine()


def slug() -> str:
    """The machine in a file's name."""
    name = re.sub(r"\((r|tm)\)|processor|cpu", "", cpu().lower())
    return "-".join(re.findall(r"[a-z0-9.]+", f"{name} {os.cpu_count()} cores"))


def facts() -> dict[str, str]:
    """What is worth knowing about the machine, where it can be known."""
    features = [f for f in _cpuinfo("flags", "Features").split() if FEATURES.match(f)]
    load = " ".join(f"{n:.1f}" for n in os.getloadavg()) if hasattr(os, "getloadavg") else ""
    memory = re.search(r"MemTotal:\s*(\d+)", _read("/proc/meminfo"))
    found = {
        "CPU": f"{cpu()}, {os.cpu_count()} cores",
        "caches of a core": _caches(),
        "features": " ".join(features),
        "memory": f"{int(memory[1]) / 2**20:.0f} GiB" if memory else "",
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        "huge pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load at the start": load,
    }
    return {name: value for name, value in found.items() if value.strip()}
