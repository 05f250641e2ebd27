"""``is`` and classes as the plain function finds them, and as later calls must find them."""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import symshape
from symshape.calls.arguments import flatten_call
from symshape.errors import UnsupportedError
from symshape.tracing.intercept.python_numbers import identity
from symshape.tracing.intercept.python_numbers.identity import Identity, class_of, subject_of
from symshape.tracing.symbolic.tensors import SymbolicTensor
from tests.symshape.tracing.looked_at import Found, found_by


@dataclass(frozen=True)
class Config:
    k: int = 2


def stand_in_of(x: Any) -> SymbolicTensor:
    assert isinstance(x, SymbolicTensor)
    return x


def compiled(question: Any, others: Any = ()) -> Any:
    """A compiled function that asks ``question(is_same, x)`` of its argument; of constants
    ``others`` too.
    """

    def fn(x: torch.Tensor, *constants: Any) -> torch.Tensor:
        if isinstance(x, SymbolicTensor):
            same = Identity(stand_in_of(x)._tracer, (None, *constants)).is_same  # type: ignore[arg-type]
        else:
            same = lambda a, b: a is b  # noqa: E731
        return x * 2 if question(same, x, *constants) else x * 3

    return fn, symshape.compile(fn)


def test_an_argument_that_is_a_tensor_outside() -> None:
    weight = torch.ones(3)
    plain, fast = compiled(lambda same, x: same(x, weight))
    for x in (torch.ones(3), weight, torch.ones(3), torch.ones(4), weight, torch.ones(5)):
        assert torch.equal(fast(x), plain(x))
    assert fast.stats().traces == 3  # another tensor, the weight, another size


def test_a_tensor_that_is_gone_is_no_later_one() -> None:
    held = [torch.ones(3)]
    _, fast = compiled(lambda same, x: same(held[0], x))
    assert torch.equal(fast(held[0]), 2 * torch.ones(3))
    held[0] = torch.ones(3)
    for _ in range(20):  # one of them may get the old one's place in memory
        assert torch.equal(fast(torch.ones(3)), 3 * torch.ones(3))


def test_what_needs_no_question() -> None:
    def question(same: Any, x: Any) -> bool:
        y = x + 1
        weight = torch.ones(3)
        wrong = [
            same(x, None),
            same(y, weight),
            same(x, y),
            same(weight, y),
            same(x, 3),
            same(None, 1),
            same([], []),
        ]
        return not any(wrong) and same(x, x) and same(None, None) and same(int, int) and same(y, y)

    plain, fast = compiled(question)
    assert torch.equal(fast(torch.ones(3)), plain(torch.ones(3)))
    assert not fast.entries[0].program.questions


def test_constants_that_keys_know_by_their_parts() -> None:
    default = Config()
    plain, fast = compiled(lambda same, x, config: same(config, default))
    for config in (Config(), default, Config(), default, Config(3)):
        assert torch.equal(fast(torch.ones(2), config), plain(torch.ones(2), config))
    plain, fast = compiled(lambda same, x, one, other: same(one, other))
    a, b = decimal.Decimal(1), decimal.Decimal(1)
    for args in ((a, b), (a, a), (b, a), (b, b)):
        assert torch.equal(fast(torch.ones(2), *args), plain(torch.ones(2), *args))


@pytest.mark.parametrize(
    ("number", "expected"), [(5, (True, True, False, True, False, False, False)), (2, (False,) * 7)]
)
def test_numbers(number: int, expected: tuple[bool, ...]) -> None:
    def fn(x: torch.Tensor, k: int) -> torch.Tensor:
        same = Identity(stand_in_of(x)._tracer, ()).is_same  # type: ignore[arg-type]
        raise Found(
            (
                same(k, 5),
                same(5, k),
                same(k, 5.0),
                same(k > 3, True),
                same(k > 3, k),
                same(k, "a"),
                same(k, None),
            )
        )

    assert found_by(lambda: symshape.trace(fn, torch.ones(2), number, dynamic=True)) == expected


@pytest.mark.parametrize("number", [1000, -6])
def test_what_python_leaves_open_is_refused(number: int) -> None:
    def fn(x: torch.Tensor, k: int) -> torch.Tensor:
        same = Identity(stand_in_of(x)._tracer, ()).is_same  # type: ignore[arg-type]
        return x * 2 if same(k, number) else x * 3

    with pytest.raises(UnsupportedError, match="compares two equal numbers with `is`"):
        symshape.trace(fn, torch.ones(2), number, dynamic=True)
    symshape.trace(fn, torch.ones(2), number + 1, dynamic=True)


def test_classes_and_subjects() -> None:
    def fn(x: torch.Tensor, k: int) -> torch.Tensor:
        values = (k, k / 2, k > 2, x, "a", [1])
        found = (
            *map(class_of, values),
            *map(type, map(subject_of, values[:3])),
            subject_of(x) is x,
        )
        if look:
            raise Found(found)
        return x

    look = True

    parameter = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    classes = (int, float, bool, torch.nn.Parameter, str, list, int, float, bool, True)
    assert found_by(lambda: symshape.trace(fn, parameter, 5, dynamic=True)) == classes
    look = False
    traced = symshape.trace(fn, parameter, 5, dynamic=True)
    assert len(traced.guards) == 1  # which subject_of left
    assert {SymbolicTensor, torch.SymInt} <= identity._STAND_INS


def test_a_call_is_taken_apart_with_the_objects_themselves() -> None:
    config = Config()
    assert flatten_call(lambda c: c, (config,), {}).leaves[0] is config
