"""The arguments that each result of a graph of Dynamo's depends on, to drop gradients that eager
does not make.

AOTAutograd's backward takes zeros for the gradient of a result that the user's loss does not use.
Arguments on which only such results depend get gradients of zeros, where eager leaves ``None``,
which optimizers skip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.frontends.dynamo_aot import written_by
from symshape.torch_internals import pytree

__all__ = ["reached", "without_zeros"]

Reached = Sequence[frozenset[int]]


def reached(module: torch.fx.GraphModule) -> Reached | None:
    """Return for each result the tensors among the arguments, by number, that its gradient may
    reach.

    None: the same arguments for all results that require gradients, so that no gradient need be
    dropped.
    """
    known: dict[torch.fx.Node, frozenset[int]] = {}
    stored: dict[int, frozenset[int]] = {}  # by storage: the arguments that were written into it
    number = 0
    for node in module.graph.nodes:
        value = node.meta.get("example_value")
        if node.op == "placeholder":
            known[node] = frozenset(
                [number] if isinstance(value, torch.Tensor) and value.requires_grad else []
            )
            number += isinstance(value, torch.Tensor)
            continue
        given = frozenset[int]().union(
            *(known[each] | _stored(each, stored) for each in node.all_input_nodes)
        )
        if node.op == "output":
            results = pytree.tree_leaves(node.args[0])
            found = [
                known[each] | _stored(each, stored)
                if isinstance(each, torch.fx.Node)
                else frozenset[int]()
                for each in results
            ]
            return found if len({each for each in found if each}) > 1 else None
        for target in written_by(node):
            for place in _storages(target):
                stored[place] = stored.get(place, frozenset()) | given
        wants = [
            each.requires_grad
            for each in pytree.tree_leaves(value)
            if isinstance(each, torch.Tensor)
        ]
        known[node] = given if not wants or any(wants) else frozenset()
    return None


def _storages(node: torch.fx.Node) -> list[int]:
    """Return the storages of a node's results."""
    found = []
    for each in pytree.tree_leaves(node.meta.get("example_value")):
        if isinstance(each, torch.Tensor):
            try:
                found.append(each.untyped_storage()._cdata)
            except (RuntimeError, NotImplementedError):  # no storage of its own: it may share any
                found.append(-1)
    return found


def _stored(node: torch.fx.Node, stored: dict[int, frozenset[int]]) -> frozenset[int]:
    """Return the arguments that were written into the storages of a node's results."""
    return frozenset[int]().union(*(stored.get(each, frozenset()) for each in _storages(node)))


def without_zeros(compiled: Callable[..., Any], results: Reached) -> Callable[..., Any]:
    """Return a function that calls AOTAutograd's forward, whose backward then makes only the
    gradients of eager.
    """

    def serve(*args: Any) -> Any:
        made = compiled(*args)
        by_output: dict[int, frozenset[int]] = {}
        backward: Any = None
        for each, numbers in zip(made, results, strict=True):
            if isinstance(each, torch.Tensor) and each.requires_grad:
                found = _output_of(each)
                if found is None or (backward is not None and found[0] is not backward):
                    return made
                backward, output = found
                by_output[output] = by_output.get(output, frozenset()) | numbers
        tensors = sum(isinstance(each, torch.Tensor) for each in args)
        if backward is not None and len(backward.next_functions) == tensors:
            backward.register_hook(_dropping(by_output, frozenset(range(tensors))))
        return made

    return serve


def _output_of(tensor: torch.Tensor) -> tuple[Any, int] | None:
    """Return AOTAutograd's autograd node, and which of its outputs a result is, or is a view of."""
    node, output = tensor.grad_fn, tensor.output_nr
    while node is not None and "CompiledFunction" not in node.name():
        if not node.next_functions:
            return None
        node, output = node.next_functions[0]
    return None if node is None else (node, output)


def _dropping(
    by_output: dict[int, frozenset[int]], every: frozenset[int]
) -> Callable[[Any, Any], Any]:
    """Return a hook of AOTAutograd's node: it keeps the gradients that come from the outputs that
    have one.
    """

    def hook(inputs: Sequence[Any], outputs: Sequence[Any]) -> Sequence[Any]:
        used = (
            by_output.get(number, every) for number, each in enumerate(outputs) if each is not None
        )
        kept = frozenset[int]().union(*used)
        return tuple(each if number in kept else None for number, each in enumerate(inputs))

    return hook
