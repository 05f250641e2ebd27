"""Padding by symbols."""

from __future__ import annotations

import torch

import meta_fns
from guards.sets import sources
from guards.terms import fold
from symshape.dims import Policy
from symshape.tracing.symbolic.env import ShapeEnv
from tests.meta_fns.symbolic import at


def test_padding_by_symbols() -> None:
    """Eager clones where nothing is added, which keeps the layout; so that is asked, if the layout
    is another.
    """
    for order in ((0, 1), (1, 0)):
        for amount in (0, 2):
            env = ShapeEnv()
            extra = env.new_symbol("s0", amount, sources.Size("x", 0), Policy.DYNAMIC)
            tensor = torch.ones(4, 6).permute(order)
            result = meta_fns.infer("aten.constant_pad_nd.default", (tensor, [0, extra]))
            assert bool(
                [
                    guard
                    for guard in env.guards
                    if "!= 0" in str(guard.term) or "== 0" in str(guard.term)
                ]
            ) is (order == (1, 0)), env.guards
            for other in (0, 1, 2, 5):
                if all(fold.evaluate(guard.term, {"s0": other}) for guard in env.guards):
                    eager = torch.constant_pad_nd(tensor, [0, other])
                    found = at(result, {"s0": other})
                    assert (found.sizes, found.strides) == (eager.size(), eager.stride())


def test_padding_by_what_only_data_tell() -> None:
    """Whether it cuts need not be known, where the layout is the same either way."""
    env = ShapeEnv()
    before, after = (env.new_unbacked(None, None) for _ in range(2))
    tensor = torch.ones(4, 6)
    result = meta_fns.infer("aten.constant_pad_nd.default", (tensor, [before, after, 1, -1]))
    for values in ((0, 0), (2, 3), (-2, 3), (-5, -1), (7, -6)):
        eager = torch.constant_pad_nd(tensor, [*values, 1, -1])
        given = {before.term.name: values[0], after.term.name: values[1]}
        assert [
            fold.evaluate(each.term, given) if not isinstance(each, int) else each
            for each in result.sizes
        ] == [*eager.size()]
    assert not env.guards
