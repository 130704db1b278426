"""docs/pytorch.md: its code runs as shown, and carries the examples as they are."""

import re

import pytest
from torch_page import PAGE, ROOT, blocks, run_block

pytest.importorskip("torch")


def test_every_block_runs_and_prints_what_the_page_shows():
    namespace = {"__name__": "page"}
    fenced = blocks()
    shown = 0
    for i, block in enumerate(fenced):
        if block.language != "python":
            continue
        expected = ""
        if i + 1 < len(fenced) and fenced[i + 1].language == "text":
            expected = fenced[i + 1].text
            shown += 1
        assert run_block(block, namespace) == expected, f"the block at line {block.line}"
    assert shown >= 8, "the page lost its outputs, or this test its fences"


def test_the_page_carries_the_program_unchanged():
    program = (ROOT / "examples" / "pytorch_handoff.py").read_text(encoding="utf-8")
    assert program in [block.text for block in blocks() if block.language == "python"]


def test_the_page_carries_the_data_set_unchanged():
    example = (ROOT / "examples" / "pytorch_dataset.py").read_text(encoding="utf-8")
    (shown,) = [block.text for block in blocks() if "class RecordingFrames" in block.text]
    assert shown[shown.index("class RecordingFrames") :] in example
    assert "def polarity_image" in shown


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)#]+)\)", PAGE.read_text(encoding="utf-8")))
def test_links_lead_somewhere(target):
    assert (PAGE.parent / target).exists()
