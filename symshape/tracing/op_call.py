"""One call of an op, and checks and records of its results by the op's plan."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch

from meta_fns import TensorSpec
from meta_fns.torch_internals import OpOverload
from symshape.errors import ProgramError, Reason, UnsupportedError
from symshape.graph.float_terms import FloatTerm
from symshape.graph.steps import Binding, Node, Value, values_in
from symshape.torch_internals import dispatch
from symshape.tracing.data.unbacked import Unknowns
from symshape.tracing.intercept.replay import Output
from symshape.tracing.op_plans import OpPlan, plan_of
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.float_node import FloatNode
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor

aten = torch.ops.aten
_QUANTIZED = frozenset((torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4))


@attrs.define(eq=False)  # never changed; frozen ones take twice as long to make
class OpCall:
    """One call of an op: its arguments as the program passed them, and as the graph stores them."""

    op: OpOverload
    plan: OpPlan
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    values: tuple[Any, ...]
    value_kwargs: dict[str, Any]

    def written(self) -> Iterator[Value]:
        """Yield the values that the op writes to."""
        for position in self.plan.mutated:
            if position < len(self.values):
                yield from values_in(self.values[position])
            else:
                yield from values_in(self.value_kwargs.get(self.plan.names[position]))


def refuse_inference(call: OpCall, memory: Collection[object], env: ShapeEnv) -> None:
    """Refuse a write to an inference tensor outside inference mode; ``memory`` are inference
    tensors' storages.

    Raises:
        ProgramError: the op writes there; torch refuses after the write. If the program catches the
            error the trace is refused: its graph would not have written.
    """
    if (
        memory
        and not torch.is_inference_mode_enabled()
        and any(value.storage in memory for value in call.written())
    ):
        said = (
            f"{call.op} writes to an inference tensor, outside inference mode (at {env.origin()})"
        )
        raise ProgramError(said) from UnsupportedError(
            f"{said}, an error that the program catches", reason=Reason.MEMORY
        )


def refuse_unstrided(call: OpCall, spec: TensorSpec, env: ShapeEnv) -> None:
    """Refuse a tensor that an op makes if it is not a strided, unquantized one.

    Raises:
        UnsupportedError: it is sparse, quantized or the like.
    """
    if spec.layout is not torch.strided or spec.dtype in _QUANTIZED:
        kind = (
            "quantized" if spec.layout is torch.strided else str(spec.layout).removeprefix("torch.")
        )
        raise UnsupportedError(
            f"{call.op} creates a {kind} tensor (at {env.origin()}), which cannot be traced; "
            "create it outside the compiled function",
            reason=Reason.LAYOUT,
        )


def note_laziness(
    call: OpCall, value: Value, lazy: dict[Value, tuple[bool, bool]], env: ShapeEnv
) -> None:
    """Record whether a value is lazily conjugated or negated, which views inherit.

    Raises:
        UnsupportedError: ``view_as_real`` is called on a conjugated tensor, which torch refuses,
            too.
    """
    source = call.values[0] if call.values else None
    conjugated, negated = (
        lazy.get(source, (False, False)) if type(source) is Value else (False, False)
    )
    if conjugated and call.op is aten.view_as_real.default:
        raise UnsupportedError(
            "the real and imaginary parts of a lazily conjugated tensor are read (at "
            f"{env.origin()}), which "
            "cannot be traced; call resolve_conj() on the tensor first",
            reason=Reason.CONJUGATED,
        )
    if call.plan.changes_laziness:
        lazy[value] = (
            conjugated ^ (call.op is aten._conj.default),
            negated ^ (call.op is not aten._conj.default),
        )
    elif call.plan.is_view and (conjugated or negated):
        lazy[value] = conjugated, negated


def viewed_by(plan: OpPlan, position: int) -> int | None:
    """Return the argument whose memory an output shares."""
    return plan.view_of[position if position < len(plan.view_of) else 0] if plan.is_view else None


def outputs_like(node: Node) -> tuple[Output | None, ...]:
    """Return a description of a node's outputs, for another node with outputs like these."""
    plan = plan_of(node.op)
    return tuple(
        [
            None if each is None else (each.spec, viewed_by(plan, position), plan.keeps_strides)
            for position, each in enumerate(node.outputs)
        ]
    )


def scalar_result(item: Any, position: int, made: Unknowns | None, bindings: list[Binding]) -> Any:
    """Return a result that is no tensor as the program gets it; add a binding where the op made its
    symbol.
    """
    if type(item) is IntNode:
        if made is not None and any(each.term is item.term for each in made.made):
            bindings.append(Binding(item.term.name, "item", position))
        return item.symint
    if type(item) is FloatNode:
        if made is not None and isinstance(item.term, FloatTerm) and item.term.op == "symbol":
            bindings.append(Binding(item.term.symbol, "float", position))
        return torch.SymFloat(item)
    if type(item) is BoolNode:
        bindings += [
            Binding(symbol.name, "bool", position)
            for symbol in item.term.symbols
            if made is not None
        ]
        return torch.SymBool(item)
    return item


def reading(binding: Binding, single: bool) -> str:
    """Return the code by which a program reads a symbol off the result of an op."""
    which = "" if single else f"[{binding.output}]"
    return f"{which}.size({binding.dim})" if binding.kind == "size" else which


def is_inference(tensor: torch.Tensor) -> bool:
    """Return whether a tensor was made in inference mode."""
    with dispatch.DisableTorchFunction():  # our own read, not the program's
        return tensor.is_inference()


def inward(result: Any) -> Any:
    """Return a fallback's result in the form that a rule returns."""
    if isinstance(result, SymbolicTensor):
        return result._spec
    if isinstance(result, torch.Tensor):
        return TensorSpec.of(result)
    if isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return result.node
    return result
