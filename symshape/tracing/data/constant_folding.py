"""The contents of tensors that a program makes from sizes alone, known during the trace, if
possible as formulas.

``torch.tensor(x.size(1)).item()`` is ``x.size(1)``. Other ops than those below give the value of
the example call, under guards that fix the sizes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from guards.terms import fold
from guards.terms.term import Term
from meta_fns.core.sizes import product, static
from meta_fns.torch_internals import OpOverload
from symshape.graph.float_terms import FloatTerm
from symshape.graph.step_cursor import StepCursor
from symshape.graph.steps import Node, Step, Value, map_argument, values_in, written_values
from symshape.torch_internals import dispatch
from symshape.tracing.symbolic import raising_branches
from symshape.tracing.symbolic.env import ShapeEnv

aten = torch.ops.aten
_MOST = 4096  # elements of a tensor that is computed during the trace
_DEEPEST = 64  # ops
_UNINITIALISED = ("empty", "new_empty", "resize")
_SAME = frozenset(
    (
        *(
            aten.clone.default,
            aten.detach.default,
            aten.alias.default,
            aten.lift_fresh.default,
            aten.view.default,
        ),
        *(
            aten._unsafe_view.default,
            aten.unsqueeze.default,
            aten.squeeze.default,
            aten.squeeze.dim,
        ),
        *(aten._to_copy.default, aten._reshape_alias.default),
    )
)
_PAIRS: dict[OpOverload, Callable[[Any, Any], Any]] = {
    aten.add.Tensor: operator.add,
    aten.sub.Tensor: operator.sub,
    aten.mul.Tensor: operator.mul,
    aten.floor_divide.default: operator.floordiv,
    aten.remainder.Scalar: operator.mod,
    aten.remainder.Tensor: operator.mod,
}
_TOTALS: dict[OpOverload, Callable[[Sequence[Any]], Any]] = {
    aten.sum.default: lambda items: sum(items[1:], items[0]) if items else 0,
    aten.prod.default: product,
}


class Unknown(Exception):
    """The contents of a tensor do not follow from sizes alone."""


class Contents:
    """A backward reader of a trace's graph, from a tensor to the sizes that it was made of.

    Args:
        env: the environment of the trace.
        steps: its steps, which grow.
        constants: the constant tensors of the program, which grow.
    """

    def __init__(
        self, env: ShapeEnv, steps: Sequence[Step], constants: Mapping[Value, torch.Tensor]
    ) -> None:
        self._env = env
        self._new = StepCursor(steps)
        self._makers: dict[Value, Node] = {}
        self._written: set[object] = set()
        self._constants = constants

    def item(self, value: Value) -> Any:
        """Return the one number that a tensor holds, as a size, an int or a float.

        Raises:
            Unknown: it depends on data.
        """
        for node in self._new.nodes():
            self._makers.update((output, node) for output in node.outputs if output is not None)
            self._written.update(written.storage for written in written_values(node))
        if value.storage in self._written:
            raise Unknown
        if value.spec.dtype is torch.bool and raising_branches.way_on() is not None:
            raise Unknown  # it is asserted then, which fixes no size
        if value.spec.dtype is torch.int64:
            try:
                (found,) = self._integers(value, _DEEPEST).values()
                return found
            except (Unknown, ValueError, ZeroDivisionError):
                pass
        terms: set[Term] = set()
        with dispatch.modes_disabled():
            number = self._computed(value, terms, {}, _DEEPEST).item()
        for symbol in sorted(terms, key=lambda each: each.order):
            self._env.specialize(
                symbol, reason="the program reads a number that it made from this size"
            )
        return number

    # -- as formulas
    def _integers(self, value: Value, depth: int) -> dict[int, Any]:
        """Return the known elements of an int64 tensor by position: all, except for a packed
        sequence's batch sizes.
        """
        constant = self._constants.get(value)
        if value.storage in self._written or depth == 0 or value.spec.dtype is not torch.int64:
            raise Unknown
        if constant is not None and constant.numel() <= _MOST:
            with dispatch.modes_disabled():
                return dict(enumerate(constant.reshape(-1).tolist()))
        node = self._makers.get(value)
        if node is None:
            raise Unknown
        op, args = node.op, node.args
        if op is aten._pack_padded_sequence.default and node.outputs[1] is value:
            return {0: args[0].spec.sizes[0 if args[2] else 1]}
        if op is aten.scalar_tensor.default:
            return {0: self._size(args[0])}
        if op in _SAME and not (
            op is aten._to_copy.default and node.kwargs.get("device") not in (None, "cpu")
        ):
            return self._integers(args[0], depth - 1)
        picked = (
            args[2]
            if op is aten.select.int and args[1] == 0 and len(args[0].spec.sizes) == 1
            else None
        )
        if type(picked) is int and picked == 0:
            return {0: self._element(args[0], depth)}
        if op in (aten.stack.default, aten.cat.default) and args[1:] in ((), (0,)):
            parts = [self._all(each, depth) for each in args[0]]
            return dict(enumerate(item for part in parts for item in part))
        if type(picked) is int:
            return {0: self._all(args[0], depth)[picked]}
        if op in _TOTALS and not node.kwargs:
            return {0: _TOTALS[op](self._all(args[0], depth))}
        floors = op is aten.div.Tensor_mode and node.kwargs == {"rounding_mode": "floor"}
        if floors or (op in _PAIRS and not node.kwargs and len(args) == 2):
            return dict(
                enumerate(self._pairs(_PAIRS.get(op, operator.floordiv), args[0], args[1], depth))
            )
        raise Unknown

    def _element(self, value: Value, depth: int) -> Any:
        found = self._integers(value, depth - 1)
        if 0 not in found:
            raise Unknown
        return found[0]

    def _all(self, value: Value, depth: int) -> list[Any]:
        """Return every element of a tensor whose sizes are plain numbers."""
        found = self._integers(value, depth - 1)
        if not static(value.spec.sizes) or len(found) != math.prod(value.spec.sizes):
            raise Unknown
        return [found[i] for i in range(len(found))]

    def _pairs(self, function: Callable[[Any, Any], Any], a: Any, b: Any, depth: int) -> list[Any]:
        left = self._all(a, depth) if type(a) is Value else [self._size(a)]
        right = self._all(b, depth) if type(b) is Value else [self._size(b)]
        if function in (operator.floordiv, operator.mod) and not all(
            type(each) is int and each > 0 for each in right
        ):
            raise Unknown
        if len(left) == len(right) == 1:
            return [function(left[0], right[0])]
        if len(left) != len(right) and 1 not in (len(left), len(right)):
            raise Unknown
        if any(type(each) is Value and len(each.spec.sizes) > 1 for each in (a, b)):
            raise Unknown
        count = max(len(left), len(right))
        left, right = (items * count if len(items) == 1 else items for items in (left, right))
        return [function(x, y) for x, y in zip(left, right, strict=True)]

    def _size(self, number: Any) -> Any:
        if type(number) is Term and not number.is_bool:
            return self._env.nodes.size(number)
        if type(number) is not int:
            raise Unknown
        return number

    # -- at the sizes of the example
    def _computed(self, value: Value, terms: set[Term], made: dict[Value, Any], depth: int) -> Any:
        """Return the tensor that eager would have at the example's sizes; add the symbols in use to
        ``terms``.
        """
        if value in made:
            return made[value]
        constant = self._constants.get(value)
        node = self._makers.get(value)
        if value.storage in self._written or depth == 0:
            raise Unknown
        if constant is not None:
            return constant
        if node is None or not self._is_pure(node):
            raise Unknown

        def real(leaf: Any) -> Any:
            if type(leaf) is Value:
                return self._computed(leaf, terms, made, depth - 1)
            symbols = leaf.symbols() if type(leaf) is FloatTerm else leaf.symbols
            if self._env.hint(leaf) is None or (type(leaf) is FloatTerm and leaf.unbacked()):
                raise Unknown
            terms.update(symbols)
            return (
                leaf.evaluate(self._env.hints)
                if type(leaf) is FloatTerm
                else fold.evaluate(leaf, self._env.hints)
            )

        args = map_argument(node.args, real)
        kwargs = {name: map_argument(arg, real) for name, arg in node.kwargs.items()}
        result = node.op(*args, **kwargs)
        results = [result] if node.single else list(result)
        made.update(
            (output, each)
            for output, each in zip(node.outputs, results, strict=True)
            if output is not None
        )
        return made[value]

    def _is_pure(self, node: Node) -> bool:
        """Return whether a node gives the same result in each run, is on the CPU, and is small."""
        op = node.op
        name = op._schema.name.removeprefix("aten::")
        values = [
            *values_in(node.args),
            *values_in(tuple(node.kwargs.values())),
            *filter(None, node.outputs),
        ]
        return (
            op.namespace == "aten"
            and not op._schema.is_mutable
            and not node.bindings
            and torch.Tag.nondeterministic_seeded not in op.tags
            and not name.startswith(_UNINITIALISED)
            and all(each.spec.device.type == "cpu" and self._is_small(each) for each in values)
        )

    def _is_small(self, value: Value) -> bool:
        total = value.spec.numel()
        count = total if type(total) is int else self._env.hint(total.term)
        return count is not None and count <= _MOST
