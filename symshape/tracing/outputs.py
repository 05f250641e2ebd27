"""The parts of a program that a trace leaves: its results, its writes, the state that later calls
compare, its variables and its guards.
"""

from __future__ import annotations

import enum
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch

from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.facts.facts import Facts
from guards.sets.guard_set import GuardSet
from guards.terms import boolean
from guards.terms.term import Op, Term
from meta_fns import TensorSpec
from symshape.calls.arguments import Call, flat_with_paths
from symshape.calls.constant_keys import NOTHING
from symshape.calls.container_arguments import (
    ArgumentContents,
    ArgumentWrites,
    At,
    Held,
    forbidden_containers,
)
from symshape.calls.naming import Naming
from symshape.calls.outputs import result_of, writes_records
from symshape.calls.questions import Question
from symshape.calls.variables import (
    CONTAINERS,
    OutputReference,
    SharedContainer,
    Variable,
    Write,
    all_written,
    containers_in,
    note_written,
)
from symshape.dims import Policy
from symshape.errors import (
    ConstraintViolation,
    Reason,
    UnsupportedError,
)
from symshape.graph.autograd_history import without_unseen_history
from symshape.graph.dead_code import without_dead_code
from symshape.graph.graph import Graph
from symshape.graph.program import limits_of
from symshape.graph.reshape_copies import settle
from symshape.graph.steps import Node, Step, Value, written_values
from symshape.options import Options
from symshape.torch_internals import pytree
from symshape.torch_internals.pytree import TreeSpec
from symshape.tracing.data.unused_numbers import see_to_unused
from symshape.tracing.intercept.python_numbers.operators import is_plain_numpys, of_numpy, plain
from symshape.tracing.state.compare.state import State
from symshape.tracing.state.record.recorder import Recorder
from symshape.tracing.state.undo.writes import (
    Change,
    Changes,
    items_but,
    may_grow,
    variables_read,
    where_of,
)
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.keys import with_plain_keys
from symshape.tracing.symbolic.nodes.choices import tidy
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, attributes_of
from symshape.tracing.symbolic_arguments import SymbolicArguments
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
        leaves, tree = pytree.flatten_until(
            value,
            lambda each: (
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


# -- Check after a trace that dimensions declared dynamic have stayed dynamic.
def check_promises(env: ShapeEnv) -> None:
    """Raise an error if the trace fixed a symbol that was declared dynamic to one value.

    Raises:
        ConstraintViolation: with the declared dimension, the value, and the guards that fix it.
    """
    for symbol in env.symbols.values():
        if symbol.policy is not Policy.DYNAMIC or symbol.hint is None:
            continue
        interval = env.facts.interval(symbol.term)
        fixed = boolean.eq(symbol.term, symbol.hint)
        if not (
            interval.lo == interval.hi is not None
            or ask(env.facts, fixed, effort=Effort.CHEAP, only=True)
        ):
            continue
        declared = [g for g in env.guards if g.origin is not None and g.origin.rule == "declared"]
        own = Facts().with_symbol(symbol.term, 0, None)
        for guard in declared:
            if guard.term.symbols == {symbol.term}:
                own = own.assume(guard.term)
        if ask(own, fixed, effort=Effort.CHEAP, only=True):
            continue  # the caller's own Dim leaves one value
        chain = [g for g in env.guards if symbol.term in g.term.symbols and g not in declared]
        lines = "\n".join(f"  {guard.term}   from {guard.origin}" for guard in chain)
        source = symbol.sources[0].text()
        raise ConstraintViolation(
            f"{source} was declared dynamic ({symbol.name}), but the program fixes it to "
            f"{symbol.hint}:\n{lines}\n"
            f"Either declare it static (dynamic={{...: None}}), allow specialisation "
            "(Policy.AUTO), or change that line.",
            symbol=symbol.name,
            source=source,
        )


# -- The other parts of a program: its state, its variables, its guards
def without_unseen(
    tracer: Tracer,
    call: Call,
    arguments: SymbolicArguments,
    steps: tuple[Step, ...],
    outputs: tuple[Any, ...],
) -> tuple[Step, ...]:
    """Return the steps; those whose autograd history no output shows do not record gradients."""
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    if not grad and not any(isinstance(each, Node) and each.grad for each in steps):
        return steps
    lifted = tracer.lifting.lifted.values()
    roots = [each.value for each in arguments.inputs] + [each.value for each in lifted]
    asking = [
        each.value
        for each in arguments.inputs
        if getattr(call.keys[each.position], "requires_grad", False)
    ]
    asking += [each.value for each in lifted if each.tensor.requires_grad]
    return without_unseen_history(steps, roots, asking, outputs, grad=grad, inference=inference)


def whether_inference(
    graph: Graph, leaves: Sequence[Any], outside: object
) -> dict[Question, Hashable]:
    """Return the question whether each argument that is written in place is an inference tensor,
    with its answer.

    Only a program that also writes ``outside`` of its arguments needs these questions.  Outside of
    inference mode torch raises an error when an inference tensor is written.  By then the program
    may have written elsewhere, and the function could not run eagerly instead.  The answers keep
    such calls from the program before it runs.
    """
    if not outside:
        return {}
    written = {
        id(value.storage)
        for node in graph.nodes
        if not node.inference
        for value in written_values(node)
    }
    asked = (
        Question(each.position, "is_inference")
        for each in graph.inputs
        if id(each.value.storage) in written
    )
    return {each: each.answer(leaves[each.position]) for each in asked}


def writes_of(
    changes: Changes, every: Sequence[Write], recorder: Recorder
) -> tuple[list[Write], ArgumentWrites | None]:
    """Return the writes outside of the arguments, and the writes to lists and dictionaries among
    the arguments.
    """
    outside = [each for each in every if not isinstance(each.variable, ArgumentContents)]
    own = [each for each in every if isinstance(each.variable, ArgumentContents)]
    if not own and not changes.returned_arguments:
        return outside, None
    read = {id(each.owner) for each in recorder.containers} | recorder.namespaces.keys()
    return outside, ArgumentWrites(own, changes.returned_arguments, frozenset(read))


def containers_apart(
    call: Call,
    tree: TreeSpec,
    writes: Sequence[Write],
    given: ArgumentWrites | None,
    recorder: Recorder,
) -> frozenset[int]:
    """Return the ids of lists and dictionaries that the program reads or writes and that may not be
    arguments too.
    """
    outside = [each.owner for each in recorder.containers]
    return forbidden_containers(call, outside, writes, writes_records(tree), given is not None)


def state_of_trace(recorder: Recorder, variables: Sequence[Variable]) -> State:
    """Return the state that later calls compare: the places that the trace read, except the
    variables.
    """
    known = {each.where for each in variables}
    pinned = None if recorder.from_memos else frozenset(recorder.pinned)
    if not known:
        return State(recorder.places, recorder.containers, recorder.begun, pinned)
    places = [each for each in recorder.places if where_of(each) not in known]
    containers = [each for each in recorder.containers if (id(each.owner), "") not in known]
    containers = [each for each in containers if id(each.owner) not in recorder.stand_ins]
    with_variables = {owner for owner, key in known if key != ""}
    for each in containers:
        if id(each.owner) in with_variables:
            places += items_but(each, known)
    containers = [each for each in containers if id(each.owner) not in with_variables]
    return State(places, containers, recorder.begun, pinned)


def new_variables_of(
    recorder: Recorder, writes: Sequence[Write], variables: Sequence[Variable]
) -> list[Variable]:
    """Return new variables: places that the program read, that a program writes, and that are no
    variables yet.
    """
    note_written(writes)
    known = {each.where for each in variables}
    found = [each for each in variables_read(recorder, all_written()) if each.where not in known]
    if found or known:  # what is kept along with a variable will be read by another program
        known |= {each.where for each in found}
        found += [
            each.variable
            for each in writes
            if each.variable.where not in known and may_grow(each.variable)
        ]
    return found


def guards_of(env: ShapeEnv, options: Options) -> GuardSet:
    """Return the guards of a trace, minimised if the options say so."""
    ranges = {
        symbol.name: limits_of(symbol.sources[0])
        for symbol in env.symbols.values()
        if symbol.backed
    }
    guards = GuardSet(env.guards, ranges=ranges)
    return guards.minimise() if options.minimise_guards else guards
