"""Broadcasting and expanding: eager's on ints; on symbols the fewest questions."""

from __future__ import annotations

import random

import pytest
import torch

from meta_fns import ShapeError
from meta_fns.core.broadcasting import broadcast, broadcast_size, expand
from symshape.errors import SymShapeError
from tests.meta_fns.eager import broadcastable, odd_sizes, odd_tensor
from tests.meta_fns.symbolic import guards_at, symbols


def test_shapes() -> None:
    rng = random.Random(0)
    refused = 0
    for _ in range(2000):
        full = odd_sizes(rng)
        shapes = [
            tuple(broadcastable(rng, full) if rng.random() < 0.9 else odd_sizes(rng))
            for _ in range(3)
        ]
        try:
            expected = tuple(torch.broadcast_shapes(*shapes))
        except RuntimeError:
            refused += 1
            with pytest.raises(ShapeError, match="do not broadcast"):
                broadcast(*shapes)
        else:
            assert broadcast(*shapes) == expected
    assert 100 < refused < 1500


def test_a_shape_that_is_the_result_is_returned_itself() -> None:
    full, row = (4, 3), (1, 3)
    assert broadcast(row, full) is full
    assert broadcast(full, row) is full
    assert broadcast((3,), full) is full
    assert broadcast((4, 1), row) == full


def test_expand() -> None:
    rng = random.Random(0)
    refused = 0
    for _ in range(1500):
        tensor = odd_tensor(rng, odd_sizes(rng, (1, 2, 3)))
        target = [rng.choice((size, size, -1, 3)) for size in tensor.size()]
        target = [rng.choice((0, 1, 2)) for _ in range(rng.randint(0, 2))] + target[
            rng.random() < 0.1 :
        ]
        try:
            wide = tensor.expand(target)
        except RuntimeError:
            refused += 1
            with pytest.raises(ShapeError, match="cannot expand"):
                expand(tuple(tensor.size()), tensor.stride(), target)
        else:
            found = expand(tuple(tensor.size()), tensor.stride(), target)
            assert found == (tuple(wide.size()), wide.stride()), (
                tensor.size(),
                tensor.stride(),
                target,
            )
    assert refused > 100


def test_structure_asks_nothing() -> None:
    env, (a, b) = symbols(3, 4)
    assert broadcast_size(a, a) is a
    assert broadcast_size(a, 1) is a
    assert broadcast_size(1, a) is a
    assert broadcast((a, 1), (1, b)) == (a, b)
    assert expand((1, b), (b, 1), (a, -1)) == ((a, b), (0, 1))
    assert not env.guards


@pytest.mark.parametrize(
    ("hints", "other"),
    [
        ((3, 3), {(3, 3): True, (5, 5): True, (3, 4): False, (1, 4): False}),
        ((1, 4), {(1, 4): True, (1, 7): True, (4, 4): False, (2, 4): False}),
        ((4, 1), {(4, 1): True, (7, 1): True, (4, 4): False, (1, 1): False, (4, 2): False}),
    ],
)
def test_two_symbols(hints: tuple[int, int], other: dict[tuple[int, int], bool]) -> None:
    """The result at the example, and guards that exclude every value for which it would be
    another.
    """
    env, (a, b) = symbols(*hints)
    found = broadcast_size(a, b)
    for values, fine in other.items():
        held = guards_at(env, *values)
        assert held is fine or (
            held and torch.broadcast_shapes(*((v,) for v in values)) == (values[found is b],)
        )


def test_a_symbol_that_does_not_broadcast() -> None:
    _, (a, b) = symbols(3, 4)
    with pytest.raises((ShapeError, SymShapeError), match="do not broadcast"):
        broadcast((a,), (b,))
    with pytest.raises((ShapeError, SymShapeError), match="cannot expand"):
        expand((a,), (1,), (7,))
