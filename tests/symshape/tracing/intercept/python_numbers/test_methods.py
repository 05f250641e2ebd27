"""Symbolic numbers have the methods of the numbers that they stand for, while a function is
traced.
"""

from __future__ import annotations

import collections
import copy
import fractions
import pickle
from typing import Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import symshape
from symshape.tracing.intercept.python_numbers.methods import number_methods

METHODS: list[Any] = [
    lambda k: k.bit_length() + k.bit_count(),
    lambda k: k.to_bytes(3, "big")[2],
    lambda k: k.real + k.imag + k.numerator + k.denominator,
    lambda k: round(k, -1) + round(k, -2) + round(k) + round(k, 2),
    lambda k: (
        pickle.loads(pickle.dumps(k))
        + pickle.loads(pickle.dumps(k / 4))
        + pickle.loads(pickle.dumps(k > 3))
    ),
    lambda k: copy.copy(k) + copy.deepcopy([k])[0],
    lambda k: (
        len(f"{k:05d}")
        + len(f"{k}")
        + len(f"{k / 3:.7f}")
        + len(f"{k > 3!s:>9}")
        + len(format(k, "x"))
    ),
    lambda k: len((k / 3).hex()) + (k / 4).as_integer_ratio()[1],
    lambda k: float(fractions.Fraction(k, 3)),
]


@pytest.mark.parametrize("method", METHODS)
def test_as_the_plain_number_does(method: Any) -> None:
    def fn(x: torch.Tensor, k: int) -> torch.Tensor:
        return x * method(k)

    fast = symshape.compile(fn)
    for k in (14, 155, 7, 255, 14, 1000):
        assert torch.equal(fast(torch.ones(2).double(), k), fn(torch.ones(2).double(), k)), k


def test_floor_division_is_no_floor_of_a_quotient() -> None:
    """``1 // 0.1`` is 9.0, but the quotient is rounded to 10.0."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = x.size(0)
        return (
            x * (n // 0.1),
            x * (2.9999999999999996 // n),
            x * ((n / 2) // 0.1),
            x * (0.3 // (n / 10)),
        )

    fast = symshape.compile(fn, dynamic=True, fullgraph=True)
    for n in (1, 2, 3, 7, 10):
        assert all(map(torch.equal, fast(torch.ones(n)), fn(torch.ones(n)))), n
    halves = symshape.trace(lambda x: x * (x.size(0) // 2.0), torch.ones(5), dynamic=True)
    assert [torch.equal(halves(torch.ones(n)), torch.ones(n) * (n // 2.0)) for n in (4, 7, 9)] == [
        True
    ] * 3


def test_a_copy_fixes_nothing() -> None:
    traced = symshape.trace(
        lambda x: x * (copy.deepcopy(x.shape[0]) + x.shape[0].real), torch.ones(5)
    )
    assert not list(traced.guards)


def test_what_numbers_do_not_have() -> None:
    for name in ("nothing", "hex"):
        with pytest.raises(AttributeError, match=name):
            symshape.trace(lambda x, name=name: getattr(x.shape[0], name), torch.ones(5))


def test_other_tracers_keep_torchs_methods() -> None:
    class Foreign:
        node = object()

    theirs = torch.SymInt(Foreign.node)
    before = {kind: dict(vars(kind)) for kind in (torch.SymInt, torch.SymFloat, torch.SymBool)}
    with number_methods():
        assert round(theirs, -1) is theirs
        assert copy.copy(theirs) is theirs
        with pytest.raises(AttributeError):
            theirs.bit_count()
        with pytest.raises(TypeError):
            f"{theirs:05d}"
    assert {kind: dict(vars(kind)) for kind in before} == before
    assert ShapeEnv  # torch's own tracer, whose numbers these could be


def test_a_truth_of_data_is_unequal_without_being_asked() -> None:
    def fn(x: torch.Tensor) -> Any:
        flag = (x > 0).any().item()
        return flag != 1, flag != True, flag != 2, flag == 0  # noqa: E712

    compiled = symshape.compile(fn, fullgraph=True)
    for x in (torch.ones(3), -torch.ones(4), torch.ones(5)):
        assert compiled(x) == fn(x)
        assert {type(each) for each in compiled(x)} == {bool}


def test_an_ordered_dictionary_by_sizes() -> None:
    """It is looked through by the hashes of its keys, which guards have fixed by then; nothing
    stays of the trace.
    """
    recent: collections.OrderedDict[int, torch.Tensor] = collections.OrderedDict()

    def fn(x: torch.Tensor) -> torch.Tensor:
        key = x.shape[0] % 3
        if key in recent:
            recent.move_to_end(key)
        recent[key] = x.sum()
        return x * len(recent)

    compiled = symshape.compile(fn, dynamic=True, fullgraph=True)
    order: list[int] = []
    for n in (3, 4, 3, 5, 7, 6):
        order = [each for each in order if each != n % 3] + [n % 3]
        assert torch.equal(compiled(torch.ones(n)), torch.full((n,), float(len(order))))
        assert list(recent) == order
        assert all(type(each) is int for each in recent)
