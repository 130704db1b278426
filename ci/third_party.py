"""Writes THIRD-PARTY-NOTICES: the licences of the crates that are compiled into the wheels.

python ci/third_party.py            writes the file
python ci/third_party.py --check    fails if it is not up to date
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTICES = ROOT / "THIRD-PARTY-NOTICES"
MODELS = ("cfg(loom)", "cfg(shuttle)")
HEAD = "The wheels of frames2py contain compiled code of these crates, under the licences given.\n"


def compiled_in() -> list[dict[str, str]]:
    """Name, version, licence and folder of every crate that is linked, on any platform."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--features=python"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    # Macros run in the compiler and leave nothing of their own behind, nor does what they need.
    macros = {p["id"] for p in metadata["packages"] if any("proc-macro" in t["kind"] for t in p["targets"])}
    wanted, seen = [metadata["resolve"]["root"]], set()
    while wanted:
        crate = wanted.pop()
        if crate in seen or crate in macros:
            continue
        seen.add(crate)
        for dependency in nodes[crate]["deps"]:
            kinds = dependency["dep_kinds"]
            # Not those that only build or test, nor the model checkers.
            if any(kind["kind"] is None and kind["target"] not in MODELS for kind in kinds):
                wanted.append(dependency["pkg"])
    linked = [package for package in metadata["packages"] if package["id"] in seen and package["source"]]
    return sorted(linked, key=lambda package: (package["name"], package["version"]))


def notices() -> str:
    parts = [HEAD]
    for package in compiled_in():
        folder = Path(package["manifest_path"]).parent
        texts = sorted(
            path
            for path in folder.iterdir()
            if path.is_file() and path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE"))
        )
        # Of a choice of licences, the shortest text says all that must be said.
        text = min((path.read_text(encoding="utf-8") for path in texts), key=len, default="")
        title = f"{package['name']} {package['version']} ({package['license']})"
        parts.append(f"{title}\n{'=' * len(title)}\n\n{text.strip()}\n")
    return "\n\n".join(parts)


def main() -> None:
    text = notices()
    if "--check" in sys.argv[1:]:
        if not NOTICES.exists() or NOTICES.read_text(encoding="utf-8") != text:
            sys.exit("THIRD-PARTY-NOTICES is out of date: run python ci/third_party.py")
    else:
        NOTICES.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
