"""How long a program held its tensors: noted while it is traced."""

from __future__ import annotations

import torch

import symshape
from symshape.graph.steps import Value


def values(fn: object, *args: torch.Tensor) -> list[Value]:
    graph = symshape.trace(fn, *args).graph  # type: ignore[arg-type]
    return [output for node in graph.nodes for output in node.outputs if output is not None]


def test_a_variable_holds_and_a_temporary_does_not() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        kept = x + 1
        y = kept * 2 + 3  # the product is held by nobody
        y = y * 4
        return y * 5

    kept, product, total, times4, result = values(fn, torch.ones(3))
    assert kept.held_until == result.index
    assert product.held_until == total.index
    assert total.held_until == times4.index


def test_an_argument_has_no_end() -> None:
    graph = symshape.trace(lambda x: x + 1, torch.ones(3)).graph
    assert graph.inputs[0].value.held_until is None


def test_what_autograd_saves_is_held_until_its_backward() -> None:
    weight = torch.ones(3, requires_grad=True)

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad((x * weight).exp().sum(), [weight])

    found = values(fn, torch.ones(3))
    (total,) = (
        node.outputs[0]
        for node in symshape.trace(fn, torch.ones(3)).graph.nodes
        if "sum" in str(node.op)
    )
    assert total is not None
    # the exponential, as autograd keeps it
    saved = [value for value in found if value.storage is found[1].storage]
    assert max(value.held_until or 0 for value in saved) > total.index
