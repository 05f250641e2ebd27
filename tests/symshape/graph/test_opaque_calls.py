"""Calls of what is no operator."""

from __future__ import annotations

from typing import Any

from torch.utils import _pytree as pytree

from symshape.graph.opaque_calls import OpaqueCall


def test_arguments_nest_again_and_parts_are_picked() -> None:
    def target(a: int, *, pair: tuple[int, Any]) -> dict[str, Any]:
        assert type(pair) is tuple
        return {"sum": a + pair[0], "more": (pair[1], [a])}

    leaves, tree = pytree.tree_flatten(((1,), {"pair": (2, None)}))
    call = OpaqueCall(target, tree, [("more", 1, 0), ("sum",)])
    assert call(*leaves) == [1, 3]
    assert (str(call), call._schema.name) == ("target", "opaque::target")


def test_a_result_as_a_whole() -> None:
    call = OpaqueCall(abs, pytree.tree_flatten(((1,), {}))[1], [()])
    assert call(-3) == [3]
