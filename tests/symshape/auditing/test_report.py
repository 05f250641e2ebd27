"""The path from the padding to an output, drawn."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import torch

import symshape
from symshape.auditing.report import OutputAudit, Step
from tests.symshape.auditing.programs import LEAKS, MASK, PROVEN, X

NAME = "{http://www.w3.org/2000/svg}"


def _boxes(svg: str) -> list[tuple[str, str, str]]:
    """For each box its text, its colour, and its filling."""
    found = []
    for group in ElementTree.fromstring(svg).iter(f"{NAME}g"):
        box, text = group.find(f"{NAME}rect"), group.find(f"{NAME}text")
        assert box is not None
        assert text is not None
        found.append((text.text or "", box.attrib["stroke"], box.attrib["fill"]))
    return found


def test_the_op_at_which_padding_spreads_is_filled() -> None:
    found = symshape.audit_padding(
        LEAKS["mean"][0], {"x": X, "mask": MASK}, {"x": {1: "length"}}, "mask"
    )["result"]
    boxes = _boxes(found.picture())
    assert [text.partition(":")[0] for text, _, _ in boxes] == [
        "padding",
        "aten.mean.dim",
        "result",
    ]
    assert [filling != "none" for _, _, filling in boxes] == [False, True, False]
    assert boxes[0][1] != boxes[1][1] == boxes[2][1], "another colour from there on"


def test_a_page_draws_what_leaks_and_nothing_else() -> None:
    def both(x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return LEAKS["mean"][0](x, mask), PROVEN["masked mean"](x, mask)

    page = symshape.audit_padding(
        both, {"x": X, "mask": MASK}, {"x": {1: "length"}}, "mask"
    )._repr_html_()
    assert page.count("<svg") == 1
    assert "path from the padding to [0]" in page


def test_a_long_path_is_shortened_around_the_leak() -> None:
    steps = [Step(f"op{number}", f"file.py:{number}") for number in range(40)]
    found = OutputAudit("result", "leaks", step=steps[20], reason="<it> spreads", path=tuple(steps))
    svg = found.picture()
    texts = [text for text, _, _ in _boxes(svg)]
    assert texts[:4] == ["padding", "op0", "op1", "op2"]
    assert "op20: <it> spreads" in texts
    assert texts[-2:] == ["op39", "result"]
    hidden = [int(match[1]) for text in texts if (match := re.fullmatch(r"… (\d+) more", text))]
    shown = sum(text.startswith("op") for text in texts)
    assert shown + sum(hidden) == 40
    assert len(texts) <= 16
    assert "<it>" not in svg


def test_outputs_without_a_path_draw_nothing() -> None:
    assert OutputAudit("result", "proven").picture() == ""
    assert OutputAudit("result", "unknown", step=Step("op", "line")).picture() == ""
