"""Breaks what publishes in one place at a time and asks the loom models, or the crate's own tests, to notice.

    python ci/mutate_publish.py [WORD ...]      only mutations whose name has one of the words

Each mutation of ``mutations.txt`` is made in a copy of the crate under ``target/mutate``. The models, or the
tests of what no model runs, are run one by one, the one that is expected to fail first, until one fails.
Prints a Markdown table. Fails if a mutation is not noticed and is not listed as harmless, or is noticed and
listed as harmless.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "target/mutate"
TIMEOUT = 600
TESTS = ("loom_publish", "loom_wakers")


@dataclass(frozen=True)
class Suite:
    """Executables that are asked to notice."""

    folder: str
    arguments: tuple[str, ...]
    executables: tuple[str, ...]
    """How their names begin."""

    filter: str
    flags: str


LOOM = Suite(
    "target", ("--release", *(word for test in TESTS for word in ("--test", test))), TESTS, "", "--cfg loom"
)
# As it is built for `cargo test`: with debug assertions.
UNIT = Suite("target-unit", ("--lib",), ("frames2py",), "kernels::", "")


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    function: str
    """How the function begins in which the change is made."""

    model: str
    harmless: str
    old: str
    new: str

    @property
    def suite(self) -> Suite:
        return LOOM if self.file.startswith("src/publish/") else UNIT

    @classmethod
    def parse(cls, text: str) -> Mutation:
        name, *lines = text.splitlines()
        said = dict(line.split(": ", 1) for line in lines if re.match(r"(in|model|harmless): ", line))
        file, function = said["in"].split(" ", 1)
        old, new = ("\n".join(line[1:] for line in lines if line.startswith(sign)) for sign in "-+")
        return cls(name, file, function, said.get("model", ""), said.get("harmless", ""), old, new)

    def apply(self, source: str) -> str:
        start = source.index(self.function)
        end = source.find("\n    }\n", start)
        found = source[start:end].count(self.old)
        if found != 1:
            raise SystemExit(f"{self.name}: {self.old!r} occurs {found} times in {self.function}")
        return source[:start] + source[start:end].replace(self.old, self.new) + source[end:]


def read_mutations() -> list[Mutation]:
    _, *parts = re.split(r"^## ", (ROOT / "ci/mutations.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [Mutation.parse(part) for part in parts]


def run(command: Sequence[str | Path], **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=COPY, text=True, capture_output=True, check=False, **more)  # type: ignore[call-overload, no-any-return]


def build(suite: Suite) -> list[Path]:
    environment = {
        **os.environ,
        "RUSTFLAGS": suite.flags,
        "RUST_BACKTRACE": "0",
        "CARGO_TARGET_DIR": str(COPY / suite.folder),
        "CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS": "true",
        "CARGO_PROFILE_RELEASE_DEBUG": "false",
    }
    result = run(["cargo", "test", "--locked", "--no-run", *suite.arguments], env=environment)
    executables = [re.search(rf"\((.*deps.{name}-[^)]*)\)", result.stderr) for name in suite.executables]
    if result.returncode or None in executables:
        raise SystemExit(f"does not build:\n{result.stderr}")
    return [COPY / found[1] for found in executables if found]


def models_of(executable: Path, words: str) -> list[str]:
    listed = re.findall(r"^([\w:]+): test$", run([executable, "--list"]).stdout, re.MULTILINE)
    return [model for model in listed if model.startswith(words)]


def built(suite: Suite) -> dict[str, Path]:
    """The models, or tests, and the executable that each is in."""
    return {model: executable for executable in build(suite) for model in models_of(executable, suite.filter)}


def fails(executables: dict[str, Path], model: str) -> str:
    """What the model says of it, or nothing if it holds."""
    try:
        result = run([executables[model], "--exact", model, "--nocapture"], timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return ""
    if result.returncode == 0:
        return ""
    said = re.search(r"panicked at [^\n]*\n([^\n]+)", result.stderr + result.stdout)
    return said[1].strip() if said else "the process ended"


def main() -> int:
    words = sys.argv[1:]
    for name in ("src", "tests", "benches"):
        shutil.rmtree(COPY / name, ignore_errors=True)
    COPY.mkdir(parents=True, exist_ok=True)
    for name in ("Cargo.toml", "Cargo.lock", "README.md"):
        shutil.copy(ROOT / name, COPY)
    # With new times, or cargo may take what it built of the last mutation for built of these.
    shutil.copytree(ROOT / "src", COPY / "src", copy_function=shutil.copyfile)
    shutil.copytree(ROOT / "benches", COPY / "benches")
    shutil.copytree(ROOT / "tests/model", COPY / "tests/model", copy_function=shutil.copyfile)
    for test in TESTS:
        shutil.copyfile(ROOT / f"tests/{test}.rs", COPY / f"tests/{test}.rs")
    mutations = [m for m in read_mutations() if not words or any(word in m.name for word in words)]
    mutated = [m.apply((ROOT / m.file).read_text(encoding="utf-8")) for m in mutations]
    for suite in dict.fromkeys(mutation.suite for mutation in mutations):
        models = built(suite)
        for model in models:
            if said := fails(models, model):
                raise SystemExit(f"{model} fails without any mutation: {said}")

    wrong = 0
    print("| mutation | noticed by | as |", "| --- | --- | --- |", sep="\n", flush=True)
    for mutation, changed_source in zip(mutations, mutated, strict=True):
        begin = time.monotonic()
        source = (ROOT / mutation.file).read_text(encoding="utf-8")
        (COPY / mutation.file).write_text(changed_source, encoding="utf-8")
        try:
            models = built(mutation.suite)
            first = [mutation.model] if mutation.model else []
            for model in first + [model for model in models if model not in first]:
                if said := fails(models, model):
                    break
            else:
                model, said = "", mutation.harmless or "**nothing**"
        finally:
            (COPY / mutation.file).write_text(source, encoding="utf-8")
        wrong += bool(model) == bool(mutation.harmless)
        noticed = f"`{model}`" if model else "none"
        print(f"| {mutation.name} | {noticed} | {said} |", flush=True)
        print(f"{mutation.name}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    if wrong:
        print(f"{wrong} mutations are not as expected", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
