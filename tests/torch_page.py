"""The code of docs/pytorch.md, for the tests that use its functions."""

import ast
import functools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

import frames2py

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "pytorch.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    text: str
    line: int  # of the page, where the text starts


def blocks() -> list[Block]:
    """Every fenced block of the page, in order."""
    page = PAGE.read_text(encoding="utf-8")
    return [Block(m[1], m[2], page.count("\n", 0, m.start()) + 2) for m in FENCE.finditer(page)]


@functools.cache
def page_functions() -> SimpleNamespace:
    """The functions the page defines, as it defines them, without running the rest. Needs PyTorch."""
    import torch

    namespace: dict = {"np": np, "torch": torch, "frames2py": frames2py}
    for block in blocks():
        if block.language == "python":
            tree = ast.parse(block.text)
            tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
            exec(compile(ast.increment_lineno(tree, block.line - 1), str(PAGE), "exec"), namespace)
    return SimpleNamespace(**namespace)
