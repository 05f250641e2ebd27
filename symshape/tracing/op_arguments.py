"""The arguments of an op call in two forms: for the rule (specs and sizes) and for the graph
(values and terms).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from guards.terms import boolean
from guards.terms.term import Op, Term
from symshape.errors import Reason, SymShapeError, UnsupportedError
from symshape.graph.steps import Value
from symshape.tracing.intercept.saved_results import SavedResults
from symshape.tracing.intercept.torch_functions.random_state import address
from symshape.tracing.lifting import Lifting
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.float_node import FloatNode
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, Trace


class OpArguments:
    """A converter of op arguments in a trace; refuses arguments that a graph cannot hold.

    Args:
        trace: the trace that they belong to.
        lifting: gives real tensors their values.
        saved: results that autograd saved.
        generators: the addresses of the random generators that existed before the trace; None for
            any.

    Attributes:
        seen: if not None, collects the tensors that were passed, by their values.
    """

    def __init__(
        self,
        trace: Trace,
        lifting: Lifting,
        saved: SavedResults,
        generators: Collection[int] | None,
    ) -> None:
        self._trace = trace
        self._lifting = lifting
        self._saved = saved
        self._generators = generators
        self.seen: dict[Value, SymbolicTensor] | None = None

    def both(self, args: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...]]:
        """Return positional arguments for the rule, and for the graph."""
        trace = self._trace
        specs: list[Any] = []
        values: list[Any] = []
        for arg in args:
            kind = type(arg)
            if kind is SymbolicTensor:
                if arg._tracer is not trace:
                    raise UnsupportedError(
                        "the program uses a tensor that belongs to an earlier trace, whose "
                        "function stored it outside itself; return that tensor from the function "
                        "and pass it as an argument",
                        reason=Reason.OTHER_TRACE,
                    )
                specs.append(arg._spec)
                values.append(self._saved.of(arg) if torch.is_grad_enabled() else arg._value)
                if self.seen is not None:
                    self.seen[values[-1]] = arg
            elif kind is int or kind is float or arg is None or kind is bool:
                specs.append(arg)
                values.append(arg)
            elif kind is list or kind is tuple or kind is torch.Size:
                inner, inner_values = self.both(arg)
                specs.append(inner)
                values.append(inner_values)
            elif isinstance(arg, torch.Tensor):
                value = self._lifting.lift(arg).value
                specs.append(value.spec)
                values.append(value)
            elif isinstance(arg, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                spec, value = _scalar(arg)
                specs.append(spec)
                values.append(value)
            else:
                if type(arg) is torch.Generator:
                    self._check_generator(arg)
                specs.append(arg)
                values.append(arg)
        return specs, tuple(values)

    def keywords(self, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return keyword arguments for the rule, and for the graph."""
        specs, values = self.both(tuple(kwargs.values()))
        return dict(zip(kwargs, specs, strict=True)), dict(zip(kwargs, values, strict=True))

    def _check_generator(self, generator: torch.Generator) -> None:
        known = self._generators
        if known is not None and address(generator) not in known:
            where = self._trace.env.origin()
            raise UnsupportedError(
                f"the function creates a torch.Generator (used at {where}), which a compiled graph "
                "would not create again: its numbers would continue where they should start over; "
                "create it outside and pass it as an argument",
                reason=Reason.GENERATOR,
            )


def _scalar(arg: torch.SymInt | torch.SymFloat | torch.SymBool) -> tuple[Any, Any]:
    """Return a symbolic scalar for the rule and for the graph; a plain number where it is
    constant.
    """
    node = arg.node
    if not isinstance(node, (IntNode, FloatNode, BoolNode)):
        raise SymShapeError(
            "an argument of an op is a torch.SymInt of another tracer (torch.compile, "
            "torch.export); pass plain integers, or trace outside that tracer"
        )
    term = node.term
    if isinstance(term, Term):
        if term.op is Op.CONST:
            return term.value, term.value
        if term is boolean.TRUE or term is boolean.FALSE:
            return term is boolean.TRUE, term is boolean.TRUE
    elif isinstance(term, float):
        return term, term
    return node, term
