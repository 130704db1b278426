"""docs/pytorch.md carries the examples as they are. Its code is run, with its output, in tests/docs."""

from torch_page import ROOT, blocks


def python_blocks():
    return [block.text for block in blocks() if block.language == "python"]


def test_the_page_carries_the_program_unchanged():
    assert (ROOT / "examples" / "pytorch_handoff.py").read_text(encoding="utf-8") in python_blocks()


def test_the_page_carries_the_data_set_unchanged():
    example = (ROOT / "examples" / "pytorch_dataset.py").read_text(encoding="utf-8")
    (shown,) = [text for text in python_blocks() if "class RecordingFrames" in text]
    assert shown[shown.index("class RecordingFrames") :] in example
    assert "def polarity_image" in shown
