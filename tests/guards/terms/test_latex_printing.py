"""LaTeX: what a person sees, and that what is written means what the term means."""

from __future__ import annotations

import pytest

from guards.asking.reading import parse
from guards.terms.latex_printing import latex


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s0 + 2*s1 - 3", r"s_{0} + 2 s_{1} - 3"),
        ("s0 * s1 == 4", r"s_{0} \cdot s_{1} = 4"),
        ("s0 % 8 == 0", r"s_{0} \bmod 8 = 0"),
        ("s0 != 1 or s1 > 2", r"s_{0} \neq 1 \lor s_{1} \geq 3"),
        ("batch <= 3", r"\mathrm{batch} \leq 3"),
        ("True", r"\mathrm{true}"),
    ],
)
def test_latex(text: str, wanted: str) -> None:
    assert latex(parse(text)) == wanted


def test_latex_writes_every_kind() -> None:
    shown = latex(parse("(x // 2 + max(x, y) if x < y else y % 3)*x - 1 <= min(x, 4) and x != y"))
    for piece in (r"\lfloor", r"\max", r"\min", r"\begin{cases}", r"\bmod", r"\land", r"\neq"):
        assert piece in shown
    assert shown.count("{") == shown.count("}")
