"""The cost of each node of a graph, by the cost rule of its op, in terms of the trace's symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import torch

from guards.terms import arithmetic
from guards.terms.term import Term
from meta_fns import OpCall, TensorSpec, Work, lookup
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Value, map_argument, values_in, written_values

Number = Term | int


@attrs.frozen(eq=False)
class OpCost:
    """The cost of one node.

    Attributes:
        node: the call.
        family: what kind of work it is (``contraction``, ``pointwise``, …); empty where no rule
            says.
        flops: arithmetic operations.
        read, written: memory traffic in bytes.
        kernels: kernels launched in eager.
        module: the path of the module whose parameter the op reads; else the user's function.
        known: whether a rule knows the cost; else all of it is 0 and the op is named as unpriced.
    """

    node: Node
    family: str
    flops: Term
    read: Term
    written: Term
    kernels: int
    module: str
    known: bool

    @property
    def op(self) -> str:
        """The overload."""
        return str(self.node.op)

    @property
    def place(self) -> str:
        """The user's line, in short."""
        return attrs.evolve(self.node.origin, text="", op="").place

    @property
    def dtype(self) -> str:
        """The dtype of the first result, or of the first tensor that the op writes to or reads."""
        values = [*(v for v in self.node.outputs if v is not None), *values_in(self.node.args)]
        return str(values[0].spec.dtype).removeprefix("torch.") if values else ""


def op_costs(graph: Graph) -> tuple[OpCost, ...]:
    """Return the cost of each node of a graph, in order."""
    specs: dict[Value, TensorSpec] = {}
    modules = _modules(graph)
    return tuple(_op_cost(node, specs, modules) for node in graph.nodes)


def _op_cost(node: Node, specs: dict[Value, TensorSpec], modules: Mapping[object, str]) -> OpCost:
    work = _work(node, specs)
    if node.leaves is not None:
        value, spec = node.leaves
        specs[value] = as_terms(spec)
    paths = [
        modules[id(value.storage)] for value in values_in(node.args) if id(value.storage) in modules
    ]
    module = paths[-1] if paths else "" if node.location is None else node.location[2]
    if work is None:
        zero = arithmetic.ZERO
        return OpCost(node, "", zero, zero, zero, 0, module, False)
    flops, read, written = (
        arithmetic.integer(number) for number in (work.flops, work.read, work.written)
    )
    return OpCost(node, work.family, flops, read, written, work.kernels, module, True)


def _work(node: Node, specs: dict[Value, TensorSpec]) -> Work | None:
    row = lookup(node.op)
    if row is None or row.cost is None:
        return None

    def leaf(item: Any) -> Any:
        return _spec(item, specs) if type(item) is Value else item

    args = [map_argument(arg, leaf) for arg in node.args]
    kwargs = {name: map_argument(arg, leaf) for name, arg in node.kwargs.items()}
    written = (
        [_spec(value, specs) for value in written_values(node)]
        if node.op._schema.is_mutable
        else []
    )
    results = [_spec(value, specs) for value in node.outputs if value is not None] or written
    return row.cost.work(OpCall(args, kwargs, results, written))


def _spec(value: Value, specs: dict[Value, TensorSpec]) -> TensorSpec:
    found = specs.get(value)
    if found is None:
        found = specs[value] = as_terms(value.spec)
    return found


def as_terms(spec: TensorSpec) -> TensorSpec:
    """Return a traced tensor's spec with terms for its symbolic sizes and strides, which record no
    guards.
    """
    return TensorSpec(
        tuple(_number(size) for size in spec.sizes),
        tuple(_number(stride) for stride in spec.strides),
        0,
        spec.dtype,
        spec.device,
        spec.layout,
    )


def _number(size: Any) -> Number:
    if type(size) is int:
        return size
    term: Term = size.term
    return term


def _modules(graph: Graph) -> dict[object, str]:
    """Return for each storage of a parameter or buffer the path of its module."""
    found: dict[object, str] = {}
    for lifted in graph.lifted:
        if isinstance(lifted.tensor, torch.nn.Parameter) and "." in lifted.name:
            found.setdefault(id(lifted.value.storage), lifted.name.rpartition(".")[0])
    return found


def unpriced(costs: tuple[OpCost, ...]) -> Iterator[str]:
    """Return the ops whose cost no rule knows, once for each call."""
    return (each.op for each in costs if not each.known)
