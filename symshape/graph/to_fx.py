"""A traced program as ``torch.fx``: ATen calls, with sizes read from the inputs and computed by
Python operators.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from guards.sets.sources import IntArg, Size, StorageOffset, Stride
from guards.terms import arithmetic, fold
from guards.terms.term import Op, Term
from symshape.errors import Reason, UnsupportedError
from symshape.graph.control_flow import ControlFlow
from symshape.graph.float_terms import CPP, FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.opaque_calls import LiveCall
from symshape.graph.program import Program, Slot
from symshape.graph.steps import Node, Value, map_argument
from symshape.torch_internals import operators

_aten = torch.ops.aten

_FLOATS: Mapping[str, Callable[..., Any]] = {
    "from_int": torch.sym_float,
    "as_float": torch.sym_float,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "mod": operator.mod,
    "neg": operator.neg,
    "abs": operator.abs,
    "pow": operator.pow,
    "sqrt": operators.sym_sqrt,
    "max": torch.sym_max,
    "min": torch.sym_min,
    **operators.sym_functions,
    **CPP,
}
"""The functions of float terms in an FX graph."""


def to_fx(program: Program, *, lifted_as_inputs: bool = False) -> torch.fx.GraphModule:
    """Return the program as a GraphModule.

    Its placeholders are the call's tensor and integer arguments, in order; lifted tensors are
    attributes, or further placeholders if asked.  Its output is the flat list of the program's
    outputs.

    Raises:
        UnsupportedError: the program turns gradients on or off inside, or tells autograd something,
            which FX has no node for.
    """
    return graph_to_fx(
        program.graph, program.call.paths, program.slots, lifted_as_inputs=lifted_as_inputs
    )


def graph_to_fx(
    graph: Graph, paths: Sequence[str], slots: Sequence[Slot], *, lifted_as_inputs: bool = False
) -> torch.fx.GraphModule:
    """Return a graph as a GraphModule, for calls with leaves of these paths and with these integers
    (see ``to_fx``).
    """
    return _Writer(graph, paths, slots, lifted_as_inputs).module()


class _Writer:
    def __init__(
        self, source: Graph, paths: Sequence[str], slots: Sequence[Slot], lifted_as_inputs: bool
    ) -> None:
        self.source = source
        self.paths = paths
        self.slots = slots
        self.graph = torch.fx.Graph()
        self.root = torch.nn.Module()
        self.values: dict[Value, torch.fx.Node] = {}
        self.terms: dict[Term, Any] = {}
        self.floats: dict[str, torch.fx.Node] = {}
        self.lifted_as_inputs = lifted_as_inputs

    def module(self) -> torch.fx.GraphModule:
        self._inputs()
        for step in self.source.steps:
            if isinstance(step, Node):
                self._node(step)
            else:
                message = (
                    str(step.message) or f"{step.guard.term} (asserted at {step.guard.origin})"
                )
                self.graph.call_function(
                    _aten._assert_scalar.default, (self._term(step.guard.term), message)
                )
        self.graph.output([self._argument(output) for output in self.source.outputs])
        self.graph.lint()
        return torch.fx.GraphModule(self.root, self.graph)

    def _inputs(self) -> None:
        tensors = {each.position: each for each in self.source.inputs}
        readers: dict[str, torch.fx.Node] = {}
        for position, path in enumerate(self.paths):
            name = "".join(c if c.isalnum() else "_" for c in path).strip("_") or "input"
            if position in tensors:
                node = self.graph.placeholder(name)
                self.values[tensors[position].value] = node
                readers[path] = node
            elif any(
                isinstance(slot.source, IntArg) and slot.source.arg == path for slot in self.slots
            ):
                readers[path] = self.graph.placeholder(name)
        given = [
            self._lifted(f"lifted_{position}", each.tensor)
            for position, each in enumerate(self.source.lifted)
        ]
        for lifted, node in zip(self.source.lifted, given, strict=True):
            self.values[lifted.value] = (
                self.graph.call_function(_aten.clone.default, (node,)) if lifted.constant else node
            )
        self._symbols(readers)

    def _lifted(self, name: str, tensor: torch.Tensor) -> torch.fx.Node:
        """Return the node of a lifted tensor: an attribute or a placeholder."""
        if self.lifted_as_inputs:
            return self.graph.placeholder(name)
        if isinstance(tensor, torch.nn.Parameter):
            self.root.register_parameter(name, tensor)
        else:
            self.root.register_buffer(name, tensor)
        return self.graph.get_attr(name)

    def _symbols(self, readers: Mapping[str, torch.fx.Node]) -> None:
        for slot in self.slots:
            if (
                slot.term.op is not Op.SYMBOL
                or slot.term in self.terms
                or slot.source.arg not in readers
            ):
                continue
            node, source = readers[slot.source.arg], slot.source
            if isinstance(source, Size):
                node = self.graph.call_function(_aten.sym_size.int, (node, source.dim))
            elif isinstance(source, Stride):
                node = self.graph.call_function(_aten.sym_stride.int, (node, source.dim))
            elif isinstance(source, StorageOffset):
                node = self.graph.call_function(_aten.sym_storage_offset.default, (node,))
            self.terms[slot.term] = node

    def _node(self, step: Node) -> None:
        if step.grad is not None or step.inference is not None:
            raise UnsupportedError(
                "the program switches gradients or inference mode on or off inside, which an FX "
                "graph cannot express",
                reason=Reason.FX_GRAPH,
            )
        op: Any = step.op
        if isinstance(op, ControlFlow):
            raise UnsupportedError(
                f"the program calls {op}, which takes functions; an FX graph made by symshape "
                "holds none",
                reason=Reason.FX_GRAPH,
            )
        if isinstance(op, LiveCall):
            raise UnsupportedError(
                f"the program calls {op}, which changes what autograd records; an FX graph cannot "
                "express that",
                reason=Reason.FX_GRAPH,
            )
        args = tuple(self._argument(arg) for arg in step.args)
        kwargs = {name: self._argument(arg) for name, arg in step.kwargs.items()}
        made = self.graph.call_function(step.op, args, kwargs)
        made.meta["stack_trace"] = str(step.origin)
        for binding in step.bindings:
            if binding.kind == "float":
                self.floats[binding.symbol] = made
            elif binding.kind != "size":
                node = (
                    made
                    if binding.kind == "item"
                    else self.graph.call_function(torch.sym_ite, (made, 1, 0))
                )
                self.terms[arithmetic.symbol(binding.symbol)] = node
        for position, output in enumerate(step.outputs):
            if output is not None:
                node = (
                    made
                    if step.single
                    else self.graph.call_function(operator.getitem, (made, position))
                )
                self.values[output] = node
        for binding in step.bindings:
            if binding.kind == "size":
                output = step.outputs[binding.output]
                assert output is not None
                size = self.graph.call_function(
                    _aten.sym_size.int, (self.values[output], binding.dim)
                )
                self.terms[arithmetic.symbol(binding.symbol)] = size

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, (tuple, list)):
            return [self._argument(item) for item in arg]
        return map_argument(arg, self._leaf)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return self.values[leaf]
        return self._float(leaf) if isinstance(leaf, FloatTerm) else self._term(leaf)

    def _float(self, term: FloatTerm) -> Any:
        if term.op == "symbol":
            return self.floats[term.symbol]
        if term.op not in _FLOATS:
            raise UnsupportedError(
                f"an FX graph cannot express the float {term}", reason=Reason.FX_GRAPH
            )
        operands = [self._leaf(a) if isinstance(a, (Term, FloatTerm)) else a for a in term.args]
        return self.graph.call_function(_FLOATS[term.op], tuple(operands))

    def _term(self, term: Term) -> Any:
        return fold.fold(term, self._combine, self.terms)

    def _chain(self, function: Callable[..., Any], operands: list[Any]) -> Any:
        result = operands[0]
        for operand in operands[1:]:
            result = self.graph.call_function(function, (result, operand))
        return result

    def _combine(self, term: Term, operands: list[Any]) -> Any:
        """Return the node for a term whose operands are nodes or integers."""
        op = term.op
        if op is Op.CONST:
            return term.value
        if op is Op.TRUE or op is Op.FALSE:
            return op is Op.TRUE
        if op is Op.SYMBOL:
            raise UnsupportedError(
                f"the symbol {term} is not read from an argument of this graph",
                reason=Reason.FX_GRAPH,
            )
        if op is Op.ADD:
            constant, items = term.args
            parts = [
                operand if c == 1 else self.graph.call_function(operator.mul, (operand, c))
                for (_, c), operand in zip(items, operands, strict=True)
            ]
            return self._chain(operator.add, [*parts, constant] if constant else parts)
        if op in _RELATIONS:
            return self.graph.call_function(_RELATIONS[op], (operands[0], 0))
        if op is Op.ITE:
            return self.graph.call_function(torch.sym_ite, tuple(operands))
        return self._chain(_OPERATORS[op], operands)


_RELATIONS = {Op.EQ: operator.eq, Op.NE: operator.ne, Op.LE: operator.le}
_OPERATORS: Mapping[Op, Callable[..., Any]] = {
    Op.MUL: operator.mul,
    Op.FLOORDIV: operator.floordiv,
    Op.MOD: operator.mod,
    Op.MIN: torch.sym_min,
    Op.MAX: torch.sym_max,
    Op.AND: operator.and_,
    Op.OR: operator.or_,
}
