"""An interpreter of graphs of plain ops, for the one or two runs before a CUDA graph is captured.

Compiling a function (:mod:`symshape.graph.codegen`) takes 8 ms for a Llama of six layers, for those
runs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from symshape.graph.fast_calls import fast_callable
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Value, map_argument, values_in

__all__ = ["interpreter"]

_NESTED = (tuple, list)


def interpreter(graph: Graph) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function that runs a graph node by node; tensors are freed after their last use.

    Raises:
        ValueError: it has symbolic sizes, assertions or modes inside.
    """
    steps = [step for step in graph.steps if isinstance(step, Node)]
    plain = len(steps) == len(graph.steps) and not any(
        each.numbers or each.bindings for each in steps
    )
    if not plain or any(each.grad is not None or each.inference is not None for each in steps):
        raise ValueError("only ops on tensors and constants are run node by node")
    dying = _dying(steps, set(values_in(graph.outputs)))
    fixed = {each.value: each.tensor for each in graph.lifted}
    places = [each.value for each in graph.inputs]

    def run(inputs: Sequence[Any]) -> list[Any]:
        held: dict[Any, Any] = {**fixed, **dict(zip(places, inputs, strict=True))}

        def leaf(value: Any) -> Any:
            return held[value]

        for step, dead in zip(steps, dying, strict=True):
            # the quick cases are written out: a call for each argument took as long as the ops
            args = [
                held[arg]
                if type(arg) is Value
                else arg
                if type(arg) not in _NESTED or (arg and type(arg[0]) is int)
                else map_argument(arg, leaf)
                for arg in step.args
            ]
            if step.kwargs:
                kwargs = {name: map_argument(arg, leaf) for name, arg in step.kwargs.items()}
                made = fast_callable(step.op)(*args, **kwargs)
                del kwargs
            else:
                made = fast_callable(step.op)(*args)
            del args
            if step.single:
                if step.outputs[0] is not None:
                    held[step.outputs[0]] = made
            else:
                results = zip(step.outputs, made, strict=True)
                held.update((output, result) for output, result in results if output is not None)
                del results
            del made
            for value in dead:
                del held[value]
        return [map_argument(output, leaf) for output in graph.outputs]

    return run


def _dying(steps: Sequence[Node], kept: set[Value]) -> list[list[Value]]:
    """Return for each step the values that are dead after it."""
    last: dict[Value, int] = {}
    for number, step in enumerate(steps):
        last.update(
            dict.fromkeys(
                [*step.reads, *(each for each in step.outputs if each is not None)], number
            )
        )
    dying: list[list[Value]] = [[] for _ in steps]
    for value, number in last.items():
        if value not in kept:
            dying[number].append(value)
    return dying
