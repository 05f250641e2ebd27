"""Recorded calls inferred on symbols, and the formulas compared with eager at other values of the
symbols.

Each dimension of each tensor is a symbol of its own; ints in SymInt slots that equal a dimension
are that symbol. What the rule asked are the guards; at other values, where the guards hold, the
formulas must say what eager says.
"""

from __future__ import annotations

import random
from typing import Any

import attrs
import torch
from torch.utils._pytree import tree_map_only

import meta_fns
from guards.sets import sources
from guards.terms import fold
from meta_fns import TensorSpec
from meta_fns.core import dense, layout
from symshape.dims import Policy
from symshape.errors import SymShapeError
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.int_node import IntNode
from tests.meta_fns.opdb import Call, Verdict, compare, eager, text, values_matter

__all__ = ["Symbolic", "at", "guards_at", "infer_symbolic", "judge_at", "symbols"]


@attrs.frozen(eq=False)
class Symbolic:
    """A call on symbols: what was inferred, and under which guards."""

    call: Call
    env: ShapeEnv
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    def holds(self, values: dict[str, int]) -> bool:
        """Whether all guards hold at these values."""
        return all(fold.evaluate(guard.term, values) for guard in self.env.guards)


def symbols(*hints: int) -> tuple[ShapeEnv, list[Any]]:
    """A new environment and a size ``s0``, ``s1``, ... for each hint."""
    env = ShapeEnv()
    return env, [
        env.new_symbol(f"s{d}", hint, sources.Size("x", d), Policy.DYNAMIC)
        for d, hint in enumerate(hints)
    ]


def guards_at(env: ShapeEnv, *values: int) -> bool:
    """Whether all that was asked holds for these values of ``s0``, ``s1``, ..."""
    named = {f"s{d}": value for d, value in enumerate(values)}
    return all(fold.evaluate(guard.term, named) for guard in env.guards)


def symbolic_spec(env: ShapeEnv, tensor: torch.Tensor) -> TensorSpec:
    """The spec of a tensor with a symbol for each size; the strides are formulas where the layout
    is dense.
    """
    spec = TensorSpec.of(tensor)
    sizes = tuple(
        env.new_symbol(f"s{len(env.symbols)}", size, sources.Size("x", d), Policy.DYNAMIC)
        for d, size in enumerate(spec.sizes)
    )
    if spec.canonical():
        return TensorSpec(
            sizes,
            layout.contiguous_strides(sizes),
            spec.storage_offset,
            spec.dtype,
            spec.device,
            canonical_known=True,
        )
    order = dense.dense_order(spec.sizes, spec.strides)
    if order is None or any(size < 2 for size in spec.sizes):
        return spec
    strides: list[Any] = [0] * len(sizes)
    stride: Any = 1
    for d in order:
        strides[d] = stride
        stride = stride * sizes[d].at_least_one()
    return TensorSpec(sizes, tuple(strides), spec.storage_offset, spec.dtype, spec.device)


def infer_symbolic(call: Call, rng: random.Random) -> Symbolic | Verdict | None:
    """The call inferred on symbols; a Verdict if the rule fails; None where there is nothing to
    do.
    """
    env = ShapeEnv()
    args, kwargs = tree_map_only(
        torch.Tensor, lambda t: symbolic_spec(env, t), (call.args, call.kwargs)
    )
    if not env.symbols:
        return None
    if rng.random() < 0.7:
        args, kwargs = _linked(call, env, args, kwargs)
    try:
        result = meta_fns.infer(call.op, args, kwargs)
    except (meta_fns.DataDependentOutput, meta_fns.UnsupportedOp):
        return None
    except (meta_fns.MetaError, SymShapeError) as error:
        return Verdict("symbolic: over-refused", f"{call}: {error}")
    return Symbolic(call, env, args, kwargs, result)


def _linked(call: Call, env: ShapeEnv, args: Any, kwargs: Any) -> Any:
    """Ints in SymInt slots that equal a size (of 2 or more) are the symbol of that size."""
    nodes = {symbol.hint: env.nodes.int_node(symbol.term) for symbol in env.symbols.values()}
    slots = {argument.name: str(argument.real_type) for argument in call.op._schema.arguments}
    names = [argument.name for argument in call.op._schema.arguments]

    def link(value: Any, slot: str) -> Any:
        if "SymInt" not in slot:
            return value
        if isinstance(value, (list, tuple)):
            return type(value)(link(item, slot) for item in value)
        return nodes.get(value, value) if type(value) is int and value > 1 else value

    linked = tuple(link(value, slots[name]) for value, name in zip(args, names, strict=False))
    return linked, {name: link(value, slots[name]) for name, value in kwargs.items()}


def at(value: Any, values: dict[str, int]) -> Any:
    """A size, spec or list of them at values of the symbols."""
    if isinstance(value, IntNode):
        return fold.evaluate(value.term, values)
    if isinstance(value, TensorSpec):
        return value.with_(
            sizes=tuple(at(size, values) for size in value.sizes),
            strides=tuple(at(stride, values) for stride in value.strides),
            storage_offset=at(value.storage_offset, values),
        )
    if isinstance(value, (list, tuple)):
        return type(value)(at(item, values) for item in value)
    return value


def _tensor_at(spec: TensorSpec, tensor: torch.Tensor, fill: int | None) -> torch.Tensor:
    """A tensor of a spec with numbers from ``tensor`` repeated."""
    if spec.sizes == tuple(tensor.size()):
        return tensor
    count = spec.storage_offset + 1
    for size, stride in zip(spec.sizes, spec.strides, strict=True):
        count += max(size - 1, 0) * stride
    source = tensor.detach().reshape(-1)
    if fill is not None or not source.numel():
        storage = torch.full((count,), fill or 0, dtype=tensor.dtype)
    else:
        storage = source.repeat(-(-count // source.numel()))[:count].contiguous()
    return storage.as_strided(spec.sizes, spec.strides, spec.storage_offset)


def call_at(symbolic: Symbolic, values: dict[str, int], fill: int | None = None) -> Call:
    """The call at values of the symbols."""
    originals = iter(
        x
        for x in torch.utils._pytree.tree_leaves((symbolic.call.args, symbolic.call.kwargs))
        if torch.is_tensor(x)
    )

    def concrete(value: Any) -> Any:
        if isinstance(value, TensorSpec):
            original = next(originals)
            return (
                original
                if original.layout is not torch.strided
                else _tensor_at(at(value, values), original, fill)
            )
        if isinstance(value, (list, tuple)):
            return type(value)(concrete(item) for item in value)
        return at(value, values)

    args = tuple(concrete(value) for value in symbolic.args)
    return Call(
        symbolic.call.op,
        args,
        {name: concrete(v) for name, v in symbolic.kwargs.items()},
        symbolic.call.source,
    )


def judge_at(symbolic: Symbolic, values: dict[str, int]) -> Verdict:
    """The formulas at these values against eager."""
    call = call_at(symbolic, values)
    expected, error = eager(call)
    held = symbolic.holds(values)
    if error is not None:
        if not held:
            return Verdict("refused")
        if values_matter(call):
            return Verdict("skipped", "eager refuses the values")
        shown = (
            f"{call}\n  eager refuses: {str(error)[:200]}\n  guards "
            f"{[str(g.term) for g in symbolic.env.guards]}"
        )
        return Verdict("accepted", shown)
    if not held:
        broken = [
            str(guard.term)
            for guard in symbolic.env.guards
            if not fold.evaluate(guard.term, values)
        ]
        return Verdict("guarded", f"{text(list(symbolic.args))} at {values}: {broken}")
    return compare(call, at(symbolic.result, values), expected)


def other_values(symbolic: Symbolic, rng: random.Random) -> dict[str, int]:
    """Values of the symbols near the hints: one value of a size changed wherever it occurs, or in
    one symbol alone.
    """
    hints = dict(symbolic.env.hints)
    name = rng.choice(list(hints))
    old = hints[name]
    new = rng.choice((0, 1, 2, 3, old + 1, old + 2, old * 2, max(old - 1, 0)))
    if rng.random() < 0.2:
        return {**hints, name: new}
    return {each: new if value == old else value for each, value in hints.items()}
