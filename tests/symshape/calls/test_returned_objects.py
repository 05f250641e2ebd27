"""Objects of the user's that a program makes and returns: made anew by each call, where they hold
nothing but data.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import symshape
from symshape.errors import UnsupportedError
from tests.worlds.world import look

Tensor = torch.Tensor


def _plain() -> Callable[[Tensor], Any]:
    class Out:
        def __init__(self, x: Tensor) -> None:
            self.x, self.n, self.names = x, x.shape[0], ["a", {"b": x + 1}]

    return lambda x: Out(x * 2)


def _slots() -> Callable[[Tensor], Any]:
    class Out:
        __slots__ = ("n", "x")

        def __init__(self, x: Tensor) -> None:
            self.x, self.n = x, x.shape

    return lambda x: {"out": Out(x * 2)}


def _nested() -> Callable[[Tensor], Any]:
    class Inner:
        def __init__(self, x: Tensor) -> None:
            self.x = x

    class Out:
        def __init__(self, x: Tensor) -> None:
            self.one, self.kind = Inner(x), torch.float32
            self.same = self.one

    return lambda x: Out(x * 2)


@pytest.mark.parametrize("make", [_plain, _slots, _nested])
def test_each_call_makes_another(make: Callable[[], Callable[[Tensor], Any]]) -> None:
    fn = make()
    compiled: Any = symshape.compile(fn, fullgraph=True)
    seen = []
    for n in (3, 4, 5, 3):
        x = torch.randn(n)
        seen.append(compiled(x))
        assert look(seen[-1]) == look(fn(x))
    assert len({id(each) for each in seen}) == len(seen)
    assert compiled.stats().traces <= 2


def test_one_object_in_two_places() -> None:
    fn = _nested()
    found: Any = symshape.compile(lambda x: [made := fn(x), made], fullgraph=True)(torch.ones(3))
    assert found[0] is found[1]
    assert found[0].one is found[0].same


def test_gradients_flow_through_it() -> None:
    fn, weight = _plain(), torch.nn.Parameter(torch.ones(3))
    compiled: Any = symshape.compile(lambda x: fn(x * weight), fullgraph=True)
    (found,) = torch.autograd.grad(compiled(torch.arange(3.0)).x.sum(), weight)
    assert found.tolist() == [0.0, 2.0, 4.0]


class Kept:
    """An object that is there before."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def itself(self, x: Tensor) -> Any:
        return self, self.x + x


def test_one_that_was_there_before_is_returned_itself() -> None:
    kept = Kept(torch.ones(3))
    held = {"kept": kept}
    programs: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (lambda x: (kept, x), ()),
        (lambda x: (held["kept"], x), ()),
        (kept.itself, ()),
        (lambda x, given: (given, x), (kept,)),
        (lambda x, given: (given[0], x), ([kept],)),
    ]
    for fn, more in programs:
        compiled: Any = symshape.compile(fn)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", symshape.FallbackWarning)
            for _ in range(3):
                assert compiled(torch.ones(3), *more)[0] is kept


def test_a_new_one_beside_an_argument_of_its_class() -> None:
    class Vector:
        def __init__(self, x: Tensor) -> None:
            self.x = x

        def __add__(self, other: float) -> Vector:
            return Vector(self.x + other)

    compiled: Any = symshape.compile(lambda vector: (vector + 1, vector), fullgraph=True)
    for n in (3, 4, 5):
        vector = Vector(torch.ones(n))
        added, same = compiled(vector)
        assert same is vector
        assert added is not vector
        assert added.x.tolist() == [2.0] * n


def test_one_that_is_kept_too_is_refused() -> None:
    class Out:
        def __init__(self, x: Tensor) -> None:
            self.x = x

    owner = Kept(torch.ones(1))

    def fn(x: Tensor) -> Any:
        owner.x = Out(x)  # type: ignore[assignment]
        return owner.x

    with pytest.raises(UnsupportedError):
        symshape.compile(fn, fullgraph=True)(torch.ones(3))


def test_what_holds_more_than_data_is_refused() -> None:
    class Out:
        def __init__(self, x: Tensor) -> None:
            self.x, self.net = x, torch.nn.Linear(2, 2)

    with pytest.raises(UnsupportedError, match=r"result is a .*Out"):
        symshape.compile(Out, fullgraph=True)(torch.ones(3))


def test_a_class_that_torch_knows_without_names() -> None:
    """``register_pytree_node``, as refusals advise, without ``flatten_with_keys_fn``."""

    class Pair:
        def __init__(self, one: Tensor, other: Tensor) -> None:
            self.one, self.other = one, other

    pytree.register_pytree_node(
        Pair, lambda pair: ([pair.one, pair.other], None), lambda parts, _: Pair(*parts)
    )
    options = symshape.Options(verify=1.0)
    compiled: Any = symshape.compile(
        lambda pair: Pair(pair.one * 2, pair.other), fullgraph=True, options=options
    )
    for n in (3, 4, 5):
        found = compiled(Pair(torch.ones(n), torch.zeros(n)))
        assert found.one.tolist() == [2.0] * n


@dataclasses.dataclass
class Pair:
    """Two things that belong together."""

    x: Tensor
    held: Any


@pytest.mark.parametrize("grows", [False, True])
def test_a_list_that_was_given_is_that_list_in_a_new_object(grows: bool) -> None:
    def fn(x: Tensor, held: list[Any]) -> Any:
        if grows:
            held.append(x + 1)
        return Pair(x * 2, held)

    compiled: Any = symshape.compile(fn, fullgraph=True)
    for n in (3, 4, 5):
        held: list[Any] = [2]
        found = compiled(torch.ones(n), held)
        assert found.held is held
        assert len(held) == 1 + grows


def test_a_list_that_is_written_to_another_argument_is_that_list() -> None:
    def fn(pair: Pair, held: list[Any], x: Tensor) -> Tensor:
        pair.held = held
        return pair.x + x

    compiled: Any = symshape.compile(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        for n in (3, 4, 5):
            pair, held = Pair(torch.ones(n), None), [1]
            compiled(pair, held, torch.ones(n))
            assert pair.held is held
    assert "that is an argument" in compiled.explain_fallback()
