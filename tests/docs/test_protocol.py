"""The table of docs/protocol.md has the mutations that `ci/mutate.sh` makes."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def mutations() -> list[tuple[str, str]]:
    """The name of each, and the model that is expected to notice it."""
    _, *parts = re.split(r"^## ", (ROOT / "ci/mutations.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    models = [re.search(r"^model: (.*)$", part, re.MULTILINE) for part in parts]
    return [
        (part.splitlines()[0], found[1] if found else "none")
        for part, found in zip(parts, models, strict=True)
    ]


def table() -> list[tuple[str, str]]:
    page = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    _, rows = page.split("| mutation | noticed by | as |\n| --- | --- | --- |\n")
    # No cell has a bar.
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines()]
    return [(name, model.strip("`")) for name, model, _ in cells]


def test_the_table_has_each_mutation_and_what_notices_it() -> None:
    assert table() == mutations()
