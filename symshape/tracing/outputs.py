"""The results of a traced function, for the graph and for display."""

from __future__ import annotations

import enum
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from guards.terms.term import Op, Term
from meta_fns import TensorSpec
from symshape.calls.argument_writes import At, Held
from symshape.calls.arguments import flat_with_paths
from symshape.calls.constant_keys import NOTHING
from symshape.calls.naming import Naming
from symshape.calls.outputs import result_of
from symshape.calls.variables import (
    CONTAINERS,
    OutputReference,
    SharedContainer,
    Write,
    containers_in,
)
from symshape.errors import Reason, UnsupportedError
from symshape.graph.dead_code import without_dead_code
from symshape.graph.reshape_copies import settle
from symshape.graph.steps import Step, Value
from symshape.torch_internals import pytree
from symshape.tracing.data.unused_numbers import see_to_unused
from symshape.tracing.intercept.python_numbers.operators import is_plain_numpys, of_numpy, plain
from symshape.tracing.state.undo.writes import Change, Changes
from symshape.tracing.symbolic.declared_dynamic import check_promises
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.keys import with_plain_keys
from symshape.tracing.symbolic.nodes.choices import tidy
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, attributes_of
from symshape.tracing.tracer import Tracer


def outputs_of(
    tracer: Tracer, result: Any, inputs: set[Value]
) -> tuple[tuple[Any, ...], Any, pytree.TreeSpec]:
    """Return the result's leaves for the graph, its specs, and its structure."""
    flat, tree = flat_with_paths(result)
    tree = with_plain_keys(tree)
    outputs: list[Any] = []
    specs: list[Any] = []
    naming = Naming()
    for path, leaf in flat:
        output = _output(tracer, leaf, naming.path("result", path), inputs)
        outputs.append(output)
        shown = leaf._spec if isinstance(leaf, SymbolicTensor) else output
        specs.append(_shown_spec(tracer.env, shown))
    return tuple(outputs), result_of(pytree.tree_unflatten(specs, tree)), tree


def written_by(
    tracer: Tracer, changes: Changes, result: Any, inputs: set[Value], start: int
) -> tuple[list[Any], list[Write]]:
    """Return the leaves of the program's writes, numbered from ``start`` on, and how to write them.

    Raises:
        UnsupportedError: a value that no call could make again.
    """
    outputs: list[Any] = []

    def leaf_of(leaf: Any, change: Change) -> Any:
        if leaf is NOTHING or isinstance(leaf, _CONSTANTS) or _is_member(leaf):
            return leaf
        if not isinstance(leaf, torch.Tensor) and changes.is_kept(leaf):
            return leaf
        try:
            outputs.append(_output(tracer, leaf, change.variable.name, inputs))
        except UnsupportedError as error:
            raise UnsupportedError(
                f"the program {change.text}; here it cannot: {error}", reason=Reason.STATE
            ) from error
        return OutputReference(start + len(outputs) - 1)

    _refuse_shared_with_the_call(changes, result)
    shared = SharedContainers(changes, leaf_of)
    return outputs, [Write(each.variable, *shared.nested(each)) for each in changes.changes]


def _refuse_shared_with_the_call(changes: Changes, result: Any) -> None:
    """Refuse containers that a program stores outside and that are also among its arguments or in
    its result.

    Raises:
        UnsupportedError: there is one.
    """
    returned = {id(each) for _, each in containers_in(result)}
    times = Counter(number for each in changes.changes for number in set(each.containers))
    for change in changes.changes:
        own, name = set(change.containers), change.variable.name
        if not own.isdisjoint(returned):
            raise UnsupportedError(
                f"the program returns a list or dictionary that it also stores in {name}; return a "
                "copy of it",
                reason=Reason.OBJECTS,
            )
        if not own.isdisjoint(changes.given):
            raise UnsupportedError(
                f"the program stores a list or dictionary that is an argument in {name}; store a "
                "copy of it",
                reason=Reason.OBJECTS,
            )
        twice = len(own) < len(change.containers) or any(times[each] > 1 for each in own)
        if change.value is None and twice:  # the present content of an argument
            raise UnsupportedError(f"the program {change.text}", reason=Reason.OBJECTS)


def steps_for(tracer: Tracer, outputs: tuple[Any, ...]) -> tuple[Step, ...]:
    """Return the steps that the outputs need, once all questions are asked."""
    settle(
        tracer.copies,
        tracer.steps,
        (outputs, tracer.flows.results()),
        tracer.looked_at | tracer.told,
        tracer.given(),
    )
    found = tracer.kept.needed(tracer.flows.settled(tracer.own.steps(outputs), outputs))
    steps = see_to_unused(tracer.env, without_dead_code(found, outputs), outputs)
    check_promises(tracer.env)
    return steps


_CONSTANTS: tuple[type, ...] = (type(None), bool, int, float, complex, str, bytes)
_CONSTANTS += (Held, At, torch.dtype, torch.device, torch.layout, torch.memory_format)


def _is_member(leaf: Any) -> bool:
    """Return whether a value is a member of an enumeration that a module holds by its name."""
    kind: Any = type(leaf)
    if not isinstance(leaf, enum.Enum):
        return False
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind


def _output(tracer: Tracer, leaf: Any, path: str, inputs: set[Value]) -> Any:
    if isinstance(leaf, SymbolicTensor):
        if attributes_of(leaf):
            raise UnsupportedError(
                f"the function sets the attribute {attributes_of(leaf)[0]} on {path}, which a "
                "compiled graph would not repeat; return the attribute's value too",
                reason=Reason.TENSOR_ATTRIBUTES,
            )
        # under no_grad views keep the flag
        views = any(leaf._value.storage is each.storage for each in inputs)
        if leaf.requires_grad and leaf.is_leaf and (leaf._value in tracer.own.told or not views):
            if leaf.grad is not None:
                raise UnsupportedError(
                    f"{path} requires gradients by requires_grad_() and has a gradient, which a "
                    "compiled graph would not set; return the gradient instead",
                    reason=Reason.LOST_GRADIENTS,
                )
            tracer.own.need(leaf._value)
        return tracer.own.spent.output(leaf, tracer.saved.of(leaf))
    if isinstance(leaf, torch.Tensor):
        return tracer.lifting.lift(leaf).value
    if type(leaf) is torch.SymInt and of_numpy(leaf):
        leaf = plain(leaf)
    if isinstance(leaf, (torch.SymInt, torch.SymFloat)):
        term = leaf.node.term
        return term.value if isinstance(term, Term) and term.op is Op.CONST else term
    if isinstance(leaf, torch.SymBool):
        return leaf.node.term
    if isinstance(leaf, _CONSTANTS) or is_plain_numpys(leaf) or _is_member(leaf):
        return leaf
    raise UnsupportedError(
        f"{path} is a {type(leaf).__module__}.{type(leaf).__name__}; a traced function returns "
        "tensors, numbers, strings, None, or containers of them (register others with "
        "torch.utils._pytree.register_pytree_node)",
        reason=Reason.RESULT,
    )


def _shown_spec(env: ShapeEnv, output: Any) -> Any:
    """Return a spec whose sizes are terms in the names that the facts leave (``u0`` after
    ``s0 == u0`` …).
    """
    if isinstance(output, Value):
        output = output.spec
    if isinstance(output, TensorSpec):
        spec = output
        return spec.with_(
            sizes=tuple(_shown_size(env, size) for size in spec.sizes),
            strides=tuple(_shown_size(env, size) for size in spec.strides),
            storage_offset=_shown_size(env, spec.storage_offset),
        )
    return env.facts.canonical(output) if type(output) is Term and not output.is_bool else output


def _shown_size(env: ShapeEnv, size: Any) -> Any:
    return (
        env.nodes.size(env.facts.canonical(tidy(env.known, size.term)))
        if isinstance(size, IntNode)
        else size
    )


class SharedContainers:
    """The containers that a trace made and found in at least two places when it ended: each call
    makes one object for all of them.

    Args:
        changes: the program's writes.
        leaf_of: returns the form of a leaf in a write, from the leaf and its place.
    """

    def __init__(self, changes: Changes, leaf_of: Callable[[Any, Change], Any]) -> None:
        self._is_kept, self._leaf_of = changes.is_kept, leaf_of
        self._made: dict[int, SharedContainer] = {}
        seen: set[int] = set()
        self._shared: set[int] = set()
        for change in changes.changes:
            for each in self._containers(change.value, seen):
                (self._shared if id(each) in seen else seen).add(id(each))

    def _containers(self, value: Any, seen: set[int]) -> Iterator[Any]:
        """Yield each container once for each place that refers to it, but its contents only
        once.
        """
        if self._is_kept(value):
            return
        if type(value) in CONTAINERS:
            known = id(value) in seen
            yield value
            if known:
                return
        if isinstance(value, Mapping):
            items: Any = list(value.values())
        else:
            items = value if isinstance(value, (list, tuple, *CONTAINERS)) else ()
        for item in items:
            yield from self._containers(item, seen)

    def nested(self, change: Change) -> tuple[list[Any], pytree.TreeSpec]:
        """Return the leaves of a change for its write, and how they nest."""
        if self._shared.isdisjoint(change.containers):
            return [self._leaf_of(each, change) for each in change.leaves], change.tree
        return self._flat(change.value, change, id(change.value) not in change.containers)

    def _flat(self, value: Any, change: Change, inside: bool) -> tuple[list[Any], pytree.TreeSpec]:
        """Return leaves and structure; ``inside``: of a container's contents, rather than of a
        reference to it.
        """
        leaves, tree = pytree.tree_flatten(
            value,
            is_leaf=lambda each: (
                not (inside and each is value) and (id(each) in self._shared or self._is_kept(each))
            ),
        )
        return [
            self._of(each, change) if id(each) in self._shared else self._leaf_of(each, change)
            for each in leaves
        ], tree

    def _of(self, container: Any, change: Change) -> SharedContainer:
        found = self._made.get(id(container))
        if found is None:
            found = self._made[id(container)] = SharedContainer(
                *self._flat(container, change, True)
            )
        return found
