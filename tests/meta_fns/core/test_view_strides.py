"""Views without copying: eager's on ints; on symbols by structure, and right wherever the guards
hold.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from meta_fns import ShapeError
from meta_fns.core import view_strides
from meta_fns.core.layout import contiguous_strides
from symshape.errors import SymShapeError
from tests.meta_fns.eager import odd_sizes, odd_tensor
from tests.meta_fns.symbolic import at, guards_at, symbols


def regrouped(rng: random.Random, sizes: list[int]) -> list[int]:
    """Other sizes of as many elements."""
    sizes = list(sizes)
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(("merge", "split", "one"))
        if kind == "merge" and len(sizes) > 1:
            at = rng.randrange(len(sizes) - 1)
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        elif kind == "split" and sizes:
            at = rng.randrange(len(sizes))
            by = rng.choice([d for d in range(1, sizes[at] + 1) if sizes[at] % d == 0] or [1])
            sizes[at : at + 1] = [by, sizes[at] // by]
        elif kind == "one":
            sizes.insert(rng.randint(0, len(sizes)), 1)
    return sizes


def test_on_ints() -> None:
    rng = random.Random(0)
    views = 0
    for _ in range(3000):
        tensor = odd_tensor(rng, odd_sizes(rng))
        new = regrouped(rng, list(tensor.size()))
        found = view_strides.view_strides(tuple(tensor.size()), tensor.stride(), tuple(new))
        assert (
            view_strides.view_strides_asking(tuple(tensor.size()), tensor.stride(), tuple(new))
            == found
        )
        try:
            expected = tensor.view(new)
        except RuntimeError:
            assert found is None, (tensor.size(), tensor.stride(), new)
        else:
            assert found == expected.stride(), (tensor.size(), tensor.stride(), new)
            views += 1
    assert 1000 < views < 2950


def test_sizes_with_a_hole() -> None:
    rng = random.Random(1)
    refused = 0
    for _ in range(2000):
        tensor = torch.ones(odd_sizes(rng))
        new = [rng.choice((0, 1, 2, 3, 4, -1, -2)) for _ in range(rng.randint(0, 3))]
        if rng.random() < 0.6:
            new = regrouped(rng, list(tensor.size()))
            if new and rng.random() < 0.7:
                new[rng.randrange(len(new))] = -1
        try:
            expected = tuple(tensor.reshape(new).size())
        except RuntimeError:
            refused += 1
            with pytest.raises(ShapeError, match=r"^view "):
                view_strides.infer_sizes(tuple(tensor.size()), new)
        else:
            assert view_strides.infer_sizes(tuple(tensor.size()), new) == expected
    assert 300 < refused < 1700


def test_the_hole_is_solved_without_the_sizes_that_both_share() -> None:
    env, (b, s, h) = symbols(2, 5, 12)
    found = view_strides.infer_sizes((b + 1, s + 1, h), (b + 1, s + 1, -1, 4))
    assert found[:2] == (b + 1, s + 1) or all(
        x is y for x, y in zip(found, (b + 1, s + 1), strict=False)
    )
    assert str(found[2]) == "s2 // 4" or at(found[2], {"s2": 12}) == 3
    for values in itertools.product((0, 3), (0, 5), (0, 4, 6, 8)):
        assert guards_at(env, *values) is (values[2] % 4 == 0)


def test_numbers_of_elements_must_agree() -> None:
    _, (n,) = symbols(5)
    with pytest.raises((ShapeError, SymShapeError), match="elements differ"):
        view_strides.infer_sizes((n,), (2, 3))
    with pytest.raises((ShapeError, SymShapeError), match="no multiple of 2"):
        view_strides.infer_sizes((n,), (2, -1))
    env, (n,) = symbols(6)
    assert view_strides.infer_sizes((n,), (2, 3)) == (2, 3)
    assert [guards_at(env, value) for value in (5, 6, 7)] == [False, True, False]


def test_views_of_contiguous_symbols_ask_nothing() -> None:
    env, (b, s, h) = symbols(2, 5, 12)
    sizes = (b, s, h * 4)
    found = view_strides.view_strides(sizes, contiguous_strides(sizes), (b * s, h, 4))
    assert found is not None
    assert at(found, {"s0": 2, "s1": 5, "s2": 12}) == (48, 4, 1)
    # The middle of a transposed tensor keeps apart: (b, heads, s, d) of memory (b, s, heads, d).
    strides = (s * 4 * h, h, 4 * h, 1)
    assert view_strides.view_strides((b, 4, s, h), strides, (b, 4, s, h)) is not None
    env_of_one, (n,) = symbols(6)
    assert view_strides.view_strides((n,), (1,), (2, 3)) == (3, 1)  # to numbers, too
    assert not env_of_one.guards
    assert not env.guards


def test_symbols_against_eager() -> None:
    """Wherever the guards hold, a view exists exactly if eager has one, with strides that address
    the same elements.
    """
    cases = [
        ((2, 3, 4), (0, 2, 1), lambda a, b, c: (a, b * c)),
        ((2, 3, 4), (1, 0, 2), lambda a, b, c: (a * b, c)),
        ((2, 3, 4), (0, 1, 2), lambda a, b, c: (a * b * c,)),
        ((2, 3, 4), (1, 2, 0), lambda a, b, c: (a, b * c)),
        ((1, 3, 4), (1, 0, 2), lambda a, b, c: (a * b, c)),
    ]
    seen = set()
    for hints, order, shape in cases:
        env, made = symbols(*hints)
        stored = contiguous_strides([made[i] for i in order])
        strides = tuple(stored[order.index(d)] for d in range(3))
        found = view_strides.view_strides(tuple(made), strides, shape(*made))
        for values in itertools.product((1, 2, 3), repeat=3):
            if values != hints and not guards_at(env, *values):
                continue
            inverse = [order.index(d) for d in range(3)]
            tensor = torch.ones([values[i] for i in order]).permute(inverse)
            named = dict(zip(("s0", "s1", "s2"), values, strict=True))
            assert at(strides, named) == tensor.stride()
            new = shape(*values)
            if found is None:
                # by symbols a copy is allowed where sizes of 1 would let a view exist
                seen.add("copy")
                continue
            seen.add("view")
            expected = tensor.view(new)
            mine = tensor.as_strided(new, at(found, named))
            assert mine.size() == expected.size()
            pairs = zip(expected.size(), expected.stride(), mine.stride(), strict=True)
            assert all(theirs == ours for size, theirs, ours in pairs if size != 1)
    assert seen == {"copy", "view"}
