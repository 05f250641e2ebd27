"""Torch's expressions of sizes as terms: checked by evaluating both on integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from guards.terms import arithmetic, fold
from symshape.errors import UnsupportedError
from symshape.tracing.from_graph.fx_sizes import term_of

EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: 2 * a + b - 3,
    "product": lambda a, b: a * b * a,
    "power": lambda a, b: a**3 + b,
    "quotient": lambda a, b: (a * 7 + b) // 4,
    "by a size": lambda a, b: (a * 7) // b,
    "remainder": lambda a, b: (a + 3 * b) % 5,
    "largest": lambda a, b: torch.sym_max(a, torch.sym_max(b, 4)),
    "smallest": lambda a, b: torch.sym_min(a * 2, b),
    "equal": lambda a, b: a == b + 1,
    "different": lambda a, b: a != b,
    "less": lambda a, b: a < b * 2,
    "at most": lambda a, b: a <= b,
    "more": lambda a, b: a > b,
    "at least": lambda a, b: a >= 2 * b,
    "not": lambda a, b: torch.sym_not(a == b),
    "both": lambda a, b: (a < b) & (b < 9),
    "either": lambda a, b: (a < b) | (a % 3 == 0),
    "rounded up": lambda a, b: math.ceil((a + b) / 8) * 8 + b,
    "rounded down": lambda a, b: math.floor(a * b / 3) + a,
    "chosen": lambda a, b: torch.sym_ite(a < b, a, b * 2),
}


def symbols() -> tuple[Any, Any]:
    """Two symbolic sizes of torch's."""
    env = ShapeEnv()
    made = []
    for name, hint in (("a", 11), ("b", 7)):
        source = ConstantSource(name)
        symbol = env.create_symbol(hint, source, DimDynamic.DYNAMIC)
        made.append(env.create_symintnode(symbol, hint=hint, source=source))
    return made[0], made[1]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_means_the_same(name: str) -> None:
    a, b = symbols()
    known = {a.node.expr: arithmetic.symbol("a"), b.node.expr: arithmetic.symbol("b")}
    term = term_of(EXPRESSIONS[name](a, b).node.expr, known)
    assert {symbol.name for symbol in term.symbols} <= {"a", "b"}
    assert term.symbols
    for x, y in itertools.product((2, 3, 4, 5, 9, 14), repeat=2):
        assert fold.evaluate(term, {"a": x, "b": y}) == EXPRESSIONS[name](x, y), (x, y)


def test_a_symbol_that_nothing_tells_is_refused() -> None:
    a, b = symbols()
    with pytest.raises(UnsupportedError, match="no argument of the graph has the size"):
        term_of((a + b).node.expr, {a.node.expr: arithmetic.symbol("a")})


def test_a_function_without_a_term_is_refused() -> None:
    a, _ = symbols()
    with pytest.raises(UnsupportedError, match="symshape has no formula for the size"):
        term_of(torch.sym_float(a).node.expr, {a.node.expr: arithmetic.symbol("a")})
