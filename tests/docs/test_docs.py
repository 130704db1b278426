"""Every code block of the README and the docs runs, and the output shown after it is what it prints."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
# Pages whose blocks need more than the package. A suite of its own runs PyTorch's.
NEEDS = {"pytorch.md": "torch", "hdf5.md": "h5py", "recorder.md": "h5py"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    line: int
    language: str
    text: str
    output: str | None = None


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page; a text block right after another one is its output."""
    source = page.read_text(encoding="utf-8")
    found: list[Block] = []
    end = None
    for match in FENCE.finditer(source):
        block = Block(source.count("\n", 0, match.start()) + 2, match[1], match[2])
        directly_after = end is not None and not source[end : match.start()].strip()
        if block.language == "text" and directly_after and found[-1].language == "python":
            found[-1].output = block.text
        else:
            found.append(block)
        end = match.end()
    return found


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_empty_folder")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run_and_print_what_is_shown(page: Path) -> None:
    need = NEEDS.get(page.name)
    if need is not None and importlib.util.find_spec(need) is None:
        pytest.skip(f"{page.name} needs {need}")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.language == "python":
            printed = io.StringIO()
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, namespace)
            assert printed.getvalue() == (block.output or ""), where
        elif block.language == "console":
            run_console(block, where)
        elif block.language == "bash":
            assert page.name == "README.md", f"{where}: only the README's commands are run by a script of CI"
        else:
            assert block.language == "text", f"{where}: a block of language {block.language!r} is not run"


def run_console(block: Block, where: str) -> None:
    """Runs the lines that start with ``$``; other lines are the output of the command before them."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        words = shlex.split(command, comments=True)
        assert words[0] == "frames2py", f"{where}: {words[0]} is not run"
        result = subprocess.run(
            [sys.executable, "-m", *words], capture_output=True, text=True, timeout=100, check=False
        )
        assert result.returncode == 0, f"{where}: {result.stderr}"
        if output:
            assert result.stdout == output, where


def test_there_are_blocks_to_run() -> None:
    assert sum(block.language == "python" for page in PAGES for block in blocks(page)) >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
