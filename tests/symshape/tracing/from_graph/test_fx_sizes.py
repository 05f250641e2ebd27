"""Where the symbols of a graph of Dynamo's are read."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    CallMethodKey,
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.utils._pytree import SequenceKey

from guards.sets.sources import IntArg, Size
from symshape.errors import UnsupportedError
from symshape.tracing.from_graph.fx_sizes import Sizes, place_of


def fake(*sizes: int) -> torch.Tensor:
    """A tensor whose sizes are symbols."""
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * len(sizes))
    mode = FakeTensorMode(shape_env=ShapeEnv(duck_shape=False))
    return mode.from_tensor(torch.ones(sizes), symbolic_context=context)


def test_an_integer_is_read_before_a_size() -> None:
    x = fake(5, 7)
    sizes = Sizes([x, x.shape[1]], ["x", "n"])
    assert [slot.source for slot in sizes.slots] == [IntArg("n"), Size("x", 0)]
    assert [size.term for size in sizes.spec(x).sizes] == [sizes.slots[1].term, sizes.slots[0].term]


def test_what_has_no_symbol_of_its_own_is_read_as_a_whole() -> None:
    x = fake(5, 7)
    half = x.new_empty(x.shape[0] // 2)
    sizes = Sizes([half], ["half"])
    assert [slot.source for slot in sizes.slots] == [Size("half", 0)]
    assert sizes.term(half.shape[0]) is sizes.slots[0].term


def test_ranges_are_dynamos() -> None:
    x = fake(5)
    torch._check(x.shape[0] <= 64)
    (found,) = Sizes([x], ["x"]).ranges.values()
    assert found == (2, 64)


def test_a_size_that_nothing_tells_is_shown_but_not_used() -> None:
    x = fake(5)
    sizes = Sizes([], [])
    (size,) = sizes.spec(x).sizes
    assert size.term.symbols
    with pytest.raises(UnsupportedError, match="no argument of the graph has the size"):
        sizes.term(x.shape[0])


def test_places() -> None:
    x = fake(5, 7)
    path = (SequenceKey(1), CallMethodKey("size"), SequenceKey(0))
    assert place_of(path, (None, x)) == ("size", 1, 0, x.shape[0])
    with pytest.raises(UnsupportedError, match="cannot be read off a result"):
        place_of((CallMethodKey("stride"), SequenceKey(0)), x)
