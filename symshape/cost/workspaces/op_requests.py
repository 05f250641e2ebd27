"""The requests that one op makes of the allocator, measured by running the op alone, once for each
of its sizes.

cuDNN chooses the algorithm of a convolution or a recurrent layer, and with it a workspace, by
sizes, dtypes, layouts and the device. No formula is known. So the op runs on scratch tensors of the
same layout, and the allocator's history says what it asked for.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol, TypeVar

import attrs
import torch

from guards.terms.term import Term
from meta_fns import TensorSpec
from symshape.cost.workspaces.device_meter import device_meter
from symshape.graph.graph import Graph
from symshape.graph.steps import (
    Node,
    Value,
    draws_random_numbers,
    map_argument,
    values_in,
    writes_nothing,
)
from symshape.runtime.runners.cuda.graph_bytes import integer_at

__all__ = ["HERE", "Meter", "OpRequests", "Workspaces", "has_own_memory", "is_known"]

T = TypeVar("T")
Event = tuple[int, int]
"""The address of a block, and its bytes; 0 bytes where it is freed."""

_OWN_MEMORY = re.compile("conv(?!ert)|cudnn|rnn|lstm|gru|recurrent")
"""Parts of the names of ops whose kernels allocate much for themselves, by algorithms that cuDNN
chooses.
"""
_MOST_KNOWN = 4096  # measured calls that are remembered; each has a few dozen numbers


class Meter(Protocol):
    """Runs a call on a device and reads what it asks of the allocator."""

    def __call__(
        self, prepare: Callable[[], Callable[[], Any]], read: Callable[[Any, Sequence[Event]], T]
    ) -> T:
        """Return ``read`` of the result of a call and the requests that the call made, in order.

        Args:
            prepare: makes the arguments, and returns the call.
            read: gets the result, and the requests of a call that is not the first.
        """


@attrs.frozen
class OpRequests:
    """The requests of one call of an op.

    Attributes:
        changes: in order, the number of a request and its bytes; 0 bytes where it is freed.
        kept: the numbers of the requests that hold the op's results, in the order of the results.
    """

    changes: tuple[tuple[int, int], ...]
    kept: tuple[int, ...]

    def holding(
        self, results: Sequence[T], fresh: Callable[[], T]
    ) -> tuple[tuple[T, int], ...] | None:
        """Return the changes with keys instead of numbers; None unless each result has a request of
        its own.

        Args:
            results: the keys of the results that need memory, in order.
            fresh: makes a key for each other request.
        """
        if len(results) != len(self.kept):
            return None
        keys = dict(zip(self.kept, results, strict=True))
        for number, _ in self.changes:
            if number not in keys:
                keys[number] = fresh()
        return tuple([(keys[number], size) for number, size in self.changes])


class Workspaces:
    """The requests of ops whose kernels allocate for themselves, each op measured once for its
    sizes.

    Args:
        meter_on: returns what measures on a device; None where nothing does.
    """

    def __init__(self, meter_on: Callable[[torch.device], Meter | None]) -> None:
        self._meter_on = meter_on
        self._known: OrderedDict[str, OpRequests] = OrderedDict()

    def of(self, graph: Graph, values: Mapping[str, int]) -> dict[int, OpRequests]:
        """Return the measured requests at these values of symbols, by the position of the node.

        Nodes that could not be measured are left out.
        """
        lifted = {each.value: each.tensor for each in graph.lifted}
        found = {}
        for position, node in enumerate(graph.nodes):
            if has_own_memory(node) and (known := self.measured(node, values, lifted)) is not None:
                found[position] = known
        return found

    def measured(
        self, node: Node, values: Mapping[str, int], lifted: Mapping[Value, torch.Tensor]
    ) -> OpRequests | None:
        """Return the requests of a node at these values of symbols; None if they cannot be measured
        here.

        Args:
            node: the call of an op.
            values: the values of symbols.
            lifted: the graph's parameters, which serve as arguments where the op writes nothing.
        """
        device = next(
            (each.spec.device for each in node.outputs if each is not None), torch.device("cpu")
        )
        meter = self._meter_on(device)
        call = _Call.of(node, values, lifted) if meter is not None or self._known else None
        if call is None:
            return None
        key = call.key
        found = self._known.get(key)
        if found is None and meter is not None:
            try:
                found = meter(call.prepared, call.read)
            except RuntimeError:  # out of memory, or no kernel: another moment may answer
                return None
            if found is not None:
                self._known[key] = found
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        return found


def has_own_memory(node: Node) -> bool:
    """Return whether an op's kernels may allocate an unknown amount for themselves."""
    return _OWN_MEMORY.search(str(node.op)) is not None


@attrs.frozen
class _Tensor:
    """A tensor argument of a measured call: its layout, and the parameter itself where it is
    one.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    spec: TensorSpec
    real: torch.Tensor | None

    def made(self) -> torch.Tensor:
        """Return the parameter, or a new tensor of this layout, whose elements are arbitrary."""
        if self.real is not None:
            return self.real
        last = sum(
            (size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True)
        )
        extent = 0 if 0 in self.sizes else last + 1
        memory = torch.empty(self.offset + extent, dtype=self.spec.dtype, device=self.spec.device)
        return memory.as_strided(self.sizes, self.strides, self.offset)


@attrs.frozen
class _Call:
    """A call of an op with plain numbers, and the layouts of its tensors."""

    node: Node
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tensors: Mapping[Value, _Tensor]

    @classmethod
    def of(
        cls, node: Node, values: Mapping[str, int], lifted: Mapping[Value, torch.Tensor]
    ) -> _Call | None:
        """Return the call of a node; None if made-up elements of its arguments would change what it
        does.

        Random states, sizes without a value and ops that are not torch's own are refused, too.
        """
        if node.op.namespace != "aten" or node.leaves is not None or draws_random_numbers(node):
            return None
        reads_only = writes_nothing(node)
        tensors = {}
        for value in values_in((node.args, tuple(node.kwargs.values()))):
            real = lifted.get(value) if reads_only else None
            spec = value.spec
            if spec.layout is not torch.strided:
                return None
            parts = (spec.sizes, spec.strides, (spec.storage_offset,))
            if not all(is_known(each, values) for part in parts for each in part):
                return None
            sizes, strides, (offset,) = (
                tuple([integer_at(each, values) for each in part]) for part in parts
            )
            numbers = spec.dtype.is_floating_point or spec.dtype.is_complex
            if real is None and not numbers and 0 not in sizes:
                return None  # its elements say what is computed
            tensors[value] = _Tensor(sizes, strides, offset, spec, real)

        def number(leaf: Any) -> Any:
            return leaf if isinstance(leaf, Value) else integer_at(leaf, values)

        if any(not isinstance(each, Term) or not is_known(each, values) for each in node.numbers):
            return None
        args = tuple([map_argument(arg, number) for arg in node.args])
        return cls(
            node,
            args,
            {name: map_argument(arg, number) for name, arg in node.kwargs.items()},
            tensors,
        )

    @property
    def key(self) -> str:
        """The words that say all on which the choice of an algorithm depends."""
        places = {value: f"tensor {place}" for place, value in enumerate(self.tensors)}
        storages: dict[int, int] = {}
        layouts = []
        for each in self.tensors.values():
            shared = None
            if each.real is not None:
                pointer = each.real.untyped_storage().data_ptr()
                shared = storages.setdefault(pointer, len(storages)), each.real.storage_offset()
            layouts.append(
                (each.sizes, each.strides, each.offset, each.spec.dtype, each.spec.device, shared)
            )

        def word(leaf: Any) -> Any:
            return places.get(leaf, leaf) if isinstance(leaf, Value) else leaf

        args = [map_argument(arg, word) for arg in (*self.args, *self.kwargs.items())]
        return repr((str(self.node.op), args, layouts, _flags()))

    def prepared(self) -> Callable[[], Any]:
        """Make the tensors; return the call."""
        made = {value: each.made() for value, each in self.tensors.items()}

        def tensor(leaf: Any) -> Any:
            return made[leaf] if isinstance(leaf, Value) else leaf

        args = [map_argument(arg, tensor) for arg in self.args]
        kwargs = {name: map_argument(arg, tensor) for name, arg in self.kwargs.items()}
        return lambda: self.node.op(*args, **kwargs)

    def read(self, result: Any, events: Sequence[Event]) -> OpRequests | None:
        """Return the requests of a call; None if the history lacks the memory of a result."""
        live: dict[int, int] = {}
        changes: list[tuple[int, int]] = []
        numbers = count()
        for address, size in events:
            if size:
                live[address] = next(numbers)
                changes.append((live[address], size))
            elif address in live:
                changes.append((live.pop(address), 0))
        kept: list[int] = []
        for value, each in zip(
            self.node.outputs, (result,) if self.node.single else result, strict=True
        ):
            if (
                value is None
                or not isinstance(each, torch.Tensor)
                or not each.untyped_storage().nbytes()
            ):
                continue
            number = live.get(each.untyped_storage().data_ptr())
            if number is None:
                return None
            if number not in kept:
                kept.append(number)
        changes += [(number, 0) for number in live.values() if number not in kept]
        return OpRequests(tuple(changes), tuple(kept))


def is_known(size: Any, values: Mapping[str, int]) -> bool:
    """Return whether the values are those of all symbols of a size."""
    term = size if isinstance(size, Term) else getattr(size, "term", None)
    return term is None or all(each.name in values for each in term.symbols)


def _flags() -> Iterable[Any]:
    """Return the settings by which cuDNN's algorithms are chosen."""
    cudnn: Any = torch.backends.cudnn
    return (
        *(cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit, cudnn.deterministic),
        *(cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision),
        torch.are_deterministic_algorithms_enabled(),
    )


HERE = Workspaces(device_meter)
"""The requests measured in this process, on its devices."""
