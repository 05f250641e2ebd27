"""The symbolic tensors and numbers that a traced function gets in place of its arguments, by the
policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from guards.sets.sources import Source
from guards.terms import arithmetic, boolean
from meta_fns import TensorSpec
from symshape.calls.arguments import (
    INT_KEY,
    RECORD_KEY,
    STRIDED,
    Call,
    TensorKey,
    sources_of,
    values_of,
)
from symshape.calls.floats import FloatLeaf
from symshape.dims import Dim, Policy
from symshape.errors import DimError
from symshape.graph.program import Slot
from symshape.graph.steps import Input
from symshape.options import Options
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.tracing.tracer import Tracer

aten = torch.ops.aten
Policies = Mapping[Source, Dim | Policy]
"""The policy of tracing for each integer of a call; integers without a policy are static."""


class SymbolicArguments:
    """The symbolic stand-ins for the leaves of one call.

    Attributes:
        slots: the integers of the call, in order, in terms of symbols.
        inputs: the tensor arguments of the graph.
        leaves: the arguments of the traced function: symbolic tensors and numbers, and unchanged
            constants.
        floats: the floats that vary, by symbol: their positions among the leaves, and these leaves.
        integers: the integers that vary, by symbol: their positions among the leaves.
    """

    def __init__(self, tracer: Tracer, call: Call, policies: Policies, options: Options) -> None:
        self._env = tracer.env
        self._policies = policies
        self._options = options
        self.slots: list[Slot] = []
        self.inputs: list[Input] = []
        self.leaves: list[Any] = []
        self.floats: dict[str, tuple[int, torch.Tensor]] = {}
        self.integers: dict[str, int] = {}
        self._dims: dict[str, Dim] = {}
        self._reserved = {dim.name for dim in policies.values() if isinstance(dim, Dim)}
        self._env.symbols.reserve(self._reserved)
        self._number = 0
        self._duck: dict[int, IntNode] = {}
        self._sources = iter(zip(sources_of(call), values_of(call.leaves, call.keys), strict=True))
        for position in range(len(call.leaves)):
            self.leaves.append(self._leaf(tracer, call, position))

    def _leaf(self, tracer: Tracer, call: Call, position: int) -> Any:
        leaf, key = call.leaves[position], call.keys[position]
        if isinstance(key, TensorKey):
            spec = self._spec(leaf, key)
            original = call.duplicates[position]
            if original != position:
                return self.leaves[original]
            tensor = tracer.input_tensor(spec, key.requires_grad, leaf.is_leaf)
            tracer.originals[tensor._value] = position, leaf
            if leaf.is_inference():
                tracer.inference.add(tensor._value.storage)
            tensor._kind = key.kind
            self.inputs.append(Input(position, call.paths[position], tensor._value))
            return (
                tensor if key.kind is not FloatLeaf else self._float(tracer, position, tensor, leaf)
            )
        if key is INT_KEY:
            size = self._integer(*next(self._sources))
            if not isinstance(size, IntNode):
                return size
            self.integers[size.term.name] = position
            return size.symint
        # the trace makes an object of its own: see ``Call.nest``
        return None if key is RECORD_KEY else leaf

    def _float(
        self, tracer: Tracer, position: int, tensor: SymbolicTensor, leaf: torch.Tensor
    ) -> Any:
        """Return the number of a float that varies: the graph reads it when it runs."""
        number = tracer.dispatch(aten._local_scalar_dense.default, (tensor,), {})
        self.floats[number.node.term.symbol] = position, leaf
        return number

    def tensors(self) -> list[SymbolicTensor]:
        """Return the stand-ins for tensors."""
        return [leaf for leaf in self.leaves if isinstance(leaf, SymbolicTensor)]

    def _spec(self, tensor: torch.Tensor, key: TensorKey) -> TensorSpec:
        sizes = tuple(self._size(*next(self._sources)) for _ in range(key.ndim))
        if key.layout is not STRIDED:
            spec = TensorSpec.contiguous(sizes, key.dtype, key.device)
        else:
            hints = list(tensor.shape)
            strides = self._strides(sizes, hints, [next(self._sources) for _ in range(key.ndim)])
            spec = TensorSpec(sizes, strides, 0, key.dtype, key.device)
        if tensor.storage_offset() or key.layout is STRIDED:
            source, offset = next(self._sources)
            policy = self._policies.get(source, Policy.STATIC)
            if isinstance(policy, Dim) or policy is Policy.STATIC:
                self.slots.append(Slot(source, arithmetic.const(offset)))
                spec = spec.with_(storage_offset=offset)
            else:
                spec = spec.with_(storage_offset=self._symbol(source, offset, Policy.AUTO))
        return spec

    def _size(self, source: Source, hint: int) -> int | IntNode:
        dim = self._policies.get(source, Policy.STATIC)
        policy = dim.policy if isinstance(dim, Dim) else dim
        special = (
            self._options.specialize_zero_one and hint in (0, 1) and policy is not Policy.UNBACKED
        )
        if policy is Policy.STATIC or special:
            self.slots.append(Slot(source, arithmetic.const(hint)))
            return hint
        if policy is Policy.UNBACKED:
            node = self._env.new_unbacked(description=f"the size {source.text()}", source=source)
            self.slots.append(Slot(source, node.term))
            return node
        if isinstance(dim, Dim) and dim.name in self._env.symbols:
            return self._shared(dim, source, hint)
        if self._options.duck_shape and not isinstance(dim, Dim):
            known = self._duck.get(hint)
            if known is not None:
                self._env.symbols.add_source(known.term.name, source)
                self.slots.append(Slot(source, known.term))
                return known
        node = self._symbol(source, hint, dim)
        self._duck.setdefault(hint, node)
        return node

    def _shared(self, dim: Dim, source: Source, hint: int) -> IntNode:
        symbol = self._env.symbols[dim.name]
        if self._dims[dim.name] != dim:
            raise DimError(
                f"{self._dims[dim.name]!r} for {symbol.sources[0].text()} and {dim!r} for "
                f"{source.text()} have the "
                "same name but different bounds or policies; give them different names, or declare "
                "the same for both"
            )
        if symbol.hint != hint:
            raise DimError(
                f"{dim!r} is the name of both {symbol.sources[0].text()} and {source.text()}, but "
                "their sizes in "
                f"this call are {symbol.hint} and {hint}; give sizes that differ different names"
            )
        self._env.symbols.add_source(dim.name, source)
        self.slots.append(Slot(source, symbol.term))
        return self._env.nodes.int_node(symbol.term)

    def _symbol(self, source: Source, hint: int, dim: Dim | Policy) -> IntNode:
        if isinstance(dim, Dim):
            _check_fits(dim, source, hint)
            name = dim.name
            self._dims[name] = dim
        else:
            name = self._fresh()
        node = self._env.new_symbol(name, hint, source, dim)
        self.slots.append(Slot(source, node.term))
        return node

    def _fresh(self) -> str:
        while f"s{self._number}" in self._reserved:
            self._number += 1
        self._number += 1
        return f"s{self._number - 1}"

    def _integer(self, source: Source, hint: int) -> int | IntNode:
        dim = self._policies.get(source, Policy.STATIC)
        policy = dim.policy if isinstance(dim, Dim) else dim
        if policy is Policy.STATIC:
            self.slots.append(Slot(source, arithmetic.const(hint)))
            return hint
        if isinstance(dim, Dim):
            return self._size(source, hint)
        node = self._env.new_integer(
            self._fresh(), hint, source, Policy.AUTO if policy is Policy.UNBACKED else policy
        )
        self.slots.append(Slot(source, node.term))
        return node

    def _strides(
        self, sizes: Sequence[Any], hints: list[int], found: list[tuple[Source, int]]
    ) -> tuple[Any, ...]:
        """Return strides in terms of sizes where the example's strides are products of them; else
        plain or symbols.
        """
        strides: list[Any] = [None] * len(sizes)
        slots: list[Slot | None] = [None] * len(sizes)
        order = sorted(range(len(sizes)), key=lambda d: (found[d][1], hints[d]))
        expected: Any = 1
        expected_hint = 1
        base = len(self.slots)
        for d in order:
            source, stride = found[d]
            if stride == expected_hint:
                strides[d] = expected
            elif self._policies.get(source, Policy.STATIC) is Policy.STATIC or stride == 0:
                strides[d] = stride
            else:
                strides[d] = self._symbol(source, stride, Policy.AUTO)
                slots[d] = self.slots.pop()
                self._env.declare(boolean.ge(strides[d].term, 1), f"{source.text()} is a step")
            if slots[d] is None:
                term = (
                    strides[d].term
                    if isinstance(strides[d], IntNode)
                    else arithmetic.const(strides[d])
                )
                slots[d] = Slot(source, term)
            if stride >= expected_hint:
                expected = strides[d] * sizes[d]
                expected_hint = stride * hints[d]
        assert len(self.slots) == base
        self.slots += [slot for slot in slots if slot is not None]
        return tuple(strides)


def _check_fits(dim: Dim, source: Source, hint: int) -> None:
    if hint < dim.min or (dim.max is not None and hint > dim.max) or hint % dim.multiple_of:
        raise DimError(
            f"{source.text()} is {hint} in this call, which is outside the declared {dim!r}; widen "
            "the Dim, or call with a size inside it"
        )
