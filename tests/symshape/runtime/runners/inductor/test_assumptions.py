"""What torch assumed, read as conditions on slots: they imply it, and hold nearly wherever it
does.
"""

from __future__ import annotations

import operator
import random
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import sympy
from torch.utils._sympy.functions import IntTrueDiv, Mod
from torch.utils._sympy.value_ranges import ValueRanges

from guards.asking.reading import parse
from guards.sets.codegen import Check, compile_check
from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from symshape.runtime.runners.inductor.assumptions import assumptions

S0, S1 = sympy.symbols("s0 s1", integer=True, positive=True)
RELATIONS: dict[Any, Any] = {
    sympy.Gt: operator.gt,
    sympy.Ge: operator.ge,
    sympy.Lt: operator.lt,
    sympy.Le: operator.le,
}
SLOTS = {"s0": "v0", "s1": "v1"}


def of(*conditions: Any, **more: Any) -> tuple[str, ...] | None:
    guards = [SimpleNamespace(expr=each) for each in conditions]
    ranges = {S0: ValueRanges(2, 100), S1: ValueRanges(2, sympy.oo)}
    return assumptions(
        SimpleNamespace(guards=guards, var_to_range=ranges, replacements={}, **more),
        SLOTS,
        {"v2": 7},
    )


@cache
def check(texts: tuple[str, ...]) -> Check:
    names = ("v0", "v1", "v2")
    return compile_check(
        GuardSet([Guard(parse(t)) for t in texts], ranges=dict.fromkeys(names, (None, None))), names
    )


def holds(texts: tuple[str, ...], *values: int) -> bool:
    return bool(check(texts).check(values))


def test_guards_ranges_and_constants() -> None:
    found = of(sympy.Eq(Mod(S0, 8), 0), S0 * S1 < 512)
    assert found is not None
    assert holds(found, 8, 63, 7)
    assert not holds(found, 8, 64, 7)
    assert not holds(found, 9, 3, 7)
    assert not holds(found, 8, 3, 6)
    assert not holds(found, 104, 2, 7)


@pytest.mark.parametrize("bound", [0.0555911384075455, 1 / 3, 0.5, 17.25])
@pytest.mark.parametrize("relation", RELATIONS)
def test_quotients_against_floats(relation: Any, bound: float) -> None:
    above, below = 698880 * S0 * S1, 1877 * S0 * S1 + 698880
    rng = random.Random(0)
    for condition in (
        relation(IntTrueDiv(above, below), bound),
        relation(IntTrueDiv(S0, S1), bound),
    ):
        texts = of(condition)
        assert texts is not None
        agreed = 0
        cases = [(rng.randint(2, 100), rng.randint(2, 300)) for _ in range(200)] + [
            (2, 6),
            (3, 9),
            (30, 60),
            (69, 4),
        ]
        for values in cases:
            s0, s1 = values
            quotient = (
                s0 / s1
                if condition.lhs.args[0] is S0
                else 698880 * s0 * s1 / (1877 * s0 * s1 + 698880)
            )
            theirs = RELATIONS[relation](quotient, bound)
            ours = holds(texts, *values, 7)
            assert theirs or not ours, (condition, values)
            agreed += ours == theirs
        assert agreed >= len(cases) - 4  # a third may be left out


def test_a_bound_between_a_quotient_and_its_rounding_is_left_out() -> None:
    third = 1 / 3  # below the third itself
    texts = of(IntTrueDiv(S0, S1) > third)
    assert texts is not None
    assert not holds(texts, 2, 6, 7)


def test_symbols_that_are_no_slots_are_unreadable() -> None:
    assert of(sympy.Symbol("s9", integer=True) > 3) is None
