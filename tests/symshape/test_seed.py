"""The examples that the whole project started from."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import symshape
from symshape import DataDependentError, RuntimeAssertionError
from tests.symshape.eager import assert_same, check_or_same


def branching(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.size(0) + b.size(0) > 2:
        return torch.cat([a, b])
    return torch.zeros(3)


def test_a_concatenation_has_the_sum_of_the_sizes() -> None:
    traced = symshape.trace(lambda a, b: torch.cat([a, b]), torch.ones(3), torch.ones(5))
    assert str(traced.output_specs.sizes[0]) == "s0 + s1"
    assert not traced.guards
    assert {name: symbol.hint for name, symbol in traced.symbols.items()} == {"s0": 3, "s1": 5}


def test_a_branch_leaves_exactly_its_guard() -> None:
    traced = symshape.trace(branching, torch.ones(3), torch.ones(5))
    (guard,) = traced.guards
    assert str(guard.term) == "s0 + s1 > 2"
    assert guard.origin is not None
    assert guard.origin.text == "if a.size(0) + b.size(0) > 2:"
    assert guard.origin.file == __file__
    for m, n in ((3, 5), (0, 3), (3, 0), (100, 1)):
        assert check_or_same(branching, traced, torch.ones(m), torch.ones(n)) == "equal"
    for m, n in ((0, 0), (1, 1), (2, 0)):
        assert check_or_same(branching, traced, torch.ones(m), torch.ones(n)) == "refused"
    assert traced.explain(torch.ones(1), torch.ones(1)) == [
        f"a.size(0) + b.size(0) > 2, but a.size(0) = 1 and b.size(0) = 1; needed by {guard.origin}"
    ]


def test_violating_the_guard_retraces_the_other_branch_and_keeps_both() -> None:
    compiled = symshape.compile(branching, dynamic=True)
    for m, n in ((3, 5), (1, 1), (0, 3), (0, 2), (4, 4), (2, 0)):
        assert_same(branching, compiled, torch.ones(m), torch.ones(n))
    assert compiled.stats().traces == 2
    assert sorted(entry.program.guards.text().split("  #")[0] for entry in compiled.entries) == [
        "s0 + s1 <= 2",
        "s0 + s1 > 2",
    ]
    assert "a.size(0) + b.size(0) > 2" in compiled.explain_miss()


def test_the_number_of_nonzeros_is_unbacked() -> None:
    traced = symshape.trace(lambda x: (x > 1).nonzero().size(0), torch.ones(3, 4))
    assert str(traced.output_specs) == "u0"
    born = traced.symbols["u0"]
    assert born.hint is None
    assert born.birth is not None
    assert "nonzero" in born.birth.op
    assert traced(torch.tensor([[0.0, 2.0], [3.0, 1.0], [9.0, 9.0]])) == 4


def branch_on_nonzeros(x: torch.Tensor) -> torch.Tensor:
    found = (x > 1).nonzero()
    if found.size(0) > 3:
        return found.sum()
    return found


def test_branching_on_it_raises_with_a_suggestion_that_settles_it() -> None:
    with pytest.raises(DataDependentError) as raised:
        symshape.trace(branch_on_nonzeros, torch.ones(3, 4))
    error = raised.value
    assert error.symbols == ("u0",)
    message = str(error)
    assert "if found.size(0) > 3:" in message  # where it branched
    assert "found = (x > 1).nonzero()" in message  # where it was born
    assert error.suggestions
    x = torch.tensor([[0.0, 2.0, 5.0, 7.0], [3.0, 1.0, 0.0, 0.0]])  # 4 are above 1
    served = 0
    for suggestion in error.suggestions:
        fn = _with_line(suggestion)
        traced = symshape.trace(fn, torch.ones(3, 4))
        holds = "not" not in suggestion and eval(
            suggestion[len("torch._check(") : -1], {"found": (x > 1).nonzero()}
        )
        if holds:
            assert_same(branch_on_nonzeros, traced, x)
            served += 1
        else:
            with pytest.raises(RuntimeAssertionError, match=r"u0"):
                traced(x)
    assert served == 1


def _with_line(line: str) -> Any:
    """``branch_on_nonzeros`` with a line before its branch, as a user would write it there."""
    source = (
        "def fn(x):\n    found = (x > 1).nonzero()\n"
        f"    {line}\n    if found.size(0) > 3:\n        return found.sum()\n    return found\n"
    )
    space: dict[str, Any] = {"torch": torch}
    exec(source, space)
    return space["fn"]


def test_a_check_makes_them_one() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        wanted = y.item()
        torch._check(x.size(0) == wanted)
        return x + torch.ones(wanted)

    traced = symshape.trace(fn, torch.ones(3), torch.tensor(3))
    assert re.fullmatch(r"s0|u0", str(traced.output_specs.sizes[0]))
    assert not traced.guards  # neither a size nor the data is fixed
    for size in (3, 7, 1, 0):
        assert check_or_same(fn, traced, torch.ones(size), torch.tensor(size)) == "equal"
    with pytest.raises(RuntimeAssertionError, match=r"s0 == u0 does not hold \(s0 = 4, u0 = 5\)"):
        traced(torch.ones(4), torch.tensor(5))
