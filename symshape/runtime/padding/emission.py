"""The padded program as it is collected: ops on tensors at their capacities, equal ones once, sizes as inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import attrs
import torch
from torch._ops import OpOverload

import meta_fns
from guards.terms.term import Term
from meta_fns import TensorSpec
from meta_fns.core.registry import aliasing
from meta_fns.errors import MetaError
from meta_fns.padding.refusals import Refuse
from symshape.graph.steps import Node, Value, map_argument, values_in
from symshape.user_code import Location

__all__ = ["Emission", "Repair"]

_aten = torch.ops.aten


@attrs.frozen
class Repair:
    """Something that was inserted: what, for which symbols, before which op, at which of the user's lines."""

    what: str
    symbols: frozenset[str]
    op: str
    where: str


class Emission:
    """A padded program in the making: an :class:`meta_fns.padding.padded.Emitter` for one op after the other.

    Args:
        device: where it computes.
        apart: whether an op that was emitted before with the same arguments is emitted again.

    Attributes:
        nodes: what was emitted.
        sizes: the true sizes that the program reads, each a 0-d int64 tensor.
        sources: by a tensor that was made, the node that it was made for.
        repairs: what was inserted.
        op: the overload that is being padded.
        results: the true metadata of its results.
    """

    def __init__(self, device: torch.device, *, apart: bool = False) -> None:
        self.nodes: list[Node] = []
        self.sizes: dict[Term, Value] = {}
        self.sources: dict[Value, Node] = {}
        self.repairs: dict[Repair, None] = {}
        self.op: OpOverload = _aten.alias.default
        self.results: tuple[TensorSpec | None, ...] = ()
        self._device = device
        self._apart = apart
        self._numbers = 0
        self._source: Node | None = None
        self._emitted: dict[Any, Any] = {}

    def begin(self, node: Node, op: OpOverload, results: tuple[TensorSpec | None, ...]) -> None:
        """From now on ops are emitted for this node."""
        self._source, self.op, self.results = node, op, results

    def value(self, spec: TensorSpec) -> Value:
        """A tensor of the padded program, at its capacities."""
        self._numbers += 1
        return Value(self._numbers - 1, spec, object())

    def call(self, op: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Emits an op; unless all are to stay apart, one that was emitted before with the same arguments is not again.

        Raises:
            Refuse: the op does not take tensors of these capacities.
        """
        if self._apart or torch.Tag.nondeterministic_seeded in op.tags:  # each call draws other numbers
            return self._call(op, args, kwargs)
        key = (op, _key(args), _key(kwargs))
        found = self._emitted.get(key)
        if found is None:
            found = self._emitted[key] = self._call(op, args, kwargs)
        return found

    def _call(self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        try:
            specs = meta_fns.infer(op, _specs(args), {name: _specs(arg) for name, arg in kwargs.items()})
        except MetaError as error:
            raise Refuse(f"at the capacities {error}") from error
        single = isinstance(specs, TensorSpec)
        found = [specs] if single else specs
        outputs = [self.value(spec) if isinstance(spec, TensorSpec) else None for spec in found]
        location: Location | None = None if self._source is None else self._source.location
        if self._source is not None:
            self.sources.update((each, self._source) for each in outputs if each is not None)
        self.nodes.append(Node(op, args, dict(kwargs), tuple(outputs), single, location=location))
        return outputs[0] if single else outputs

    def sharing(self, roots: Collection[Value]) -> set[Value]:
        """The tensors that may lie in the memory of these: they, and views of them."""
        found = set(roots)
        for node in self.nodes:
            if not aliasing(node.op).is_functional and any(each in found for each in values_in(node.args)):
                found.update(each for each in node.outputs if each is not None)
        return found

    def size(self, size: Any) -> Value:
        """A true size as a 0-d int64 tensor: an input of the program, or a constant."""
        if isinstance(size, int):
            made: Value = self.call(_aten.scalar_tensor.default, size, dtype=torch.int64, device=self._device)
            return made
        found = self.sizes.get(size.term)
        if found is None:
            found = self.sizes[size.term] = self.value(TensorSpec((), (), 0, torch.int64, self._device))
        return found

    def repaired(self, repair: str, *sizes: Any) -> None:
        """Notes that a repair was inserted for the op of this moment."""
        assert self._source is not None
        symbols = frozenset(symbol.name for size in sizes if hasattr(size, "term") for symbol in size.term.symbols)
        self.repairs[Repair(repair, symbols, str(self._source.op), str(self._source.origin))] = None


def _key(arg: Any) -> Any:
    """What makes two arguments the same: identity of tensors, type and sign of numbers."""
    if isinstance(arg, (list, tuple)):
        return tuple(map(_key, arg))
    if isinstance(arg, Mapping):
        return tuple(sorted((name, _key(each)) for name, each in arg.items()))
    if isinstance(arg, Value):
        return ("value", id(arg))
    return (type(arg).__name__, repr(arg))


def _specs(args: Any) -> Any:
    return map_argument(args, lambda leaf: leaf.spec)
