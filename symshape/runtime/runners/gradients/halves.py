"""Forward and backward of a program as two programs, each of which can be recorded.

The program is traced once more, together with its backward.  Forward makes the results, and what
backward needs of it; backward takes these and the gradients of the results.  Views are made again
in backward, so that forward hands over only tensors with memory of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any

import attrs
import torch

from guards.sets.guard import Guard
from guards.sets.sources import Size
from guards.terms import arithmetic, boolean
from guards.terms.term import Op, Term
from meta_fns import MemorySafety, memory_safety
from meta_fns.core.sizes import same_shape
from symshape.calls.arguments import (
    RECORD_KEY,
    Call,
    LeafKey,
    TensorKey,
    duplicates,
    sources_of,
    values_of,
)
from symshape.calls.floats import FloatLeaf
from symshape.calls.questions import HAS_HISTORY, TRANSFORMED
from symshape.dims import Dim, Policy
from symshape.graph.autograd_history import RecordedHistory
from symshape.graph.codegen import LateRun
from symshape.graph.detached_values import viewed_by
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.program import Program
from symshape.graph.random_states import RandomStates
from symshape.graph.steps import (
    Lifted,
    Node,
    Step,
    Value,
    draws_random_numbers,
    map_argument,
    written_values,
)
from symshape.options import Options
from symshape.runtime.pieces.partition import Piece
from symshape.runtime.pieces.piece_programs import piece_program
from symshape.runtime.pieces.subgraphs import Subgraph, fresh_constants, subgraphs
from symshape.runtime.runners.protocol import Unfit
from symshape.torch_internals import pytree
from symshape.tracing.capture import capture
from symshape.tracing.symbolic_arguments import Policies
from symshape.tracing.traced_modes import without_autocast

__all__ = ["Half", "Halves", "backward_of", "check_divisible", "halves_of", "share"]


@attrs.frozen(eq=False)
class Half:
    """Forward or backward.

    Attributes:
        program: the half as a program.
        takes: its tensor arguments, in order.
        gives: its results, in order.
        values: the places of its integers among those of a call, in order.
    """

    program: Program
    takes: tuple[Value, ...]
    gives: tuple[Value, ...]
    values: tuple[int, ...]


@attrs.frozen(eq=False)
class Halves:
    """Forward and backward of a program.

    Attributes:
        whole: both together, as they were traced; its integers are those of the program's calls.
        forward: makes the results, and what backward needs.
        backward: makes the gradients, where each result has one.
        asking: the positions among a call's leaves of the arguments that results depend on.
        parameters: the parameters with a gradient that results depend on.
        results: of the program: values and constants.
        tangents: what stands in backward for the gradient of a result, by the result's place.
        gradients: those of ``asking``, then of ``parameters``.
        steps: the numbers of backward's steps in ``whole``.
        conditions: the guards of the program and of ``whole``: they hold in each call.
    """

    whole: Program
    forward: Half
    backward: Half
    asking: tuple[int, ...]
    parameters: tuple[torch.Tensor, ...]
    results: tuple[Any, ...]
    tangents: Mapping[int, Value]
    gradients: tuple[Value, ...]
    steps: tuple[int, ...]
    conditions: tuple[Guard, ...]

    @property
    def inputs(self) -> dict[Value, int]:
        """The tensor arguments, each with its position among a call's leaves."""
        return {each.value: each.position for each in self.whole.graph.inputs}


def check_divisible(program: Program) -> None:
    """Raise unless forward and backward of a program can be two programs.

    Raises:
        Unfit: its calls have gradients off, it has effects, its history is more than its ops, or
            its results share memory.
    """
    graph = program.graph
    if not program.modes.grad:
        raise Unfit("the call has them off, and the program turns them on")
    if program.writes_at_its_end or program.variables:
        raise Unfit("it reads or writes what is neither an argument nor a parameter")
    if not all(map(_is_plain, program.call.keys)):
        raise Unfit("an argument is an object, or a float that varies")
    if any(isinstance(each, (Term, FloatTerm)) for each in graph.outputs):
        raise Unfit("it returns a number")
    if not RecordedHistory(graph.steps, ()).known:
        raise Unfit("it calls more than operators of torch")
    if graph.mutates_inputs:
        raise Unfit("it writes to an argument, a parameter or a buffer")
    for node in graph.nodes:
        if node.bindings:
            raise Unfit(f"{node.op} reads data on the host")
        if node.inference is not None:
            raise Unfit(f"{node.op} runs in inference mode")
    if any(each.tensor.requires_grad and not each.tensor.is_leaf for each in graph.lifted):
        raise Unfit("a tensor that it reads was computed from parameters")
    held = [*(each.value for each in graph.inputs), *(each.value for each in graph.lifted)]
    held += [each for each in graph.outputs if isinstance(each, Value)]
    memory = [id(each.storage) for each in held]
    if any(isinstance(e, Value) and memory.count(id(e.storage)) > 1 for e in graph.outputs):
        raise Unfit("a result shares memory with another tensor of the call")


def halves_of(program: Program, leaves: Sequence[Any], options: Options) -> Halves:
    """Trace forward and backward of a program, for a call with these leaves.

    Raises:
        Unfit: what was traced cannot be divided.
        SymShapeError: as :func:`symshape.tracing.capture.capture` says.
    """
    places = tuple(
        each.position for each in program.graph.inputs if _asks(program.call.keys[each.position])
    )
    parameters = tuple(each.tensor for each in program.graph.lifted if each.tensor.requires_grad)
    if any(each._backward_hooks for each in parameters):
        raise Unfit("a parameter has hooks, which the trace would run")
    whole = _traced(program, leaves, places, parameters, options)
    _check_no_more_is_asked(program, whole)
    graph = _unrecorded(whole.graph, checked=any(each.checked for each in program.graph.nodes))
    graph = _attached(_with_states_on_device(graph), len(program.graph.outputs))
    whole = attrs.evolve(whole, graph=graph, modes=attrs.evolve(whole.modes, grad=False))
    count = len(program.graph.outputs)
    results, stand_ins = graph.outputs[:count], graph.outputs[count : 2 * count]
    tangents = {place: each for place, each in enumerate(stand_ins) if each is not None}
    gradients = graph.outputs[2 * count :]
    held = (*whole.guards, *_held(program, whole))
    conditions = tuple({each.term: each for each in held}.values())
    forward, backward, steps = _divided(whole, conditions, results, tuple(tangents.values()))
    made = {None, *backward.gives, *tangents.values()}
    if any(each not in made for each in gradients):
        raise Unfit("a gradient does not depend on those of the results")
    # Backward must not go on to the history of tensors on which no result depends.
    reached = [each is not None for each in gradients]
    halves = Halves(
        whole,
        forward,
        backward,
        tuple(compress(places, reached)),
        tuple(compress(parameters, reached[len(places) :])),
        results,
        tangents,
        tuple(compress(gradients, reached)),
        steps,
        conditions,
    )
    if forward.program.graph.uses_randomness:  # nothing else could make the gradients of a call
        for place in tangents:
            backward_of(halves, (place,))
    return halves


def backward_of(halves: Halves, used: Collection[int]) -> tuple[Half, tuple[Value | None, ...]]:
    """Return backward where only these results have a gradient, and the gradients that it makes.

    What the others would add is left out, as in eager: zeros in their place would turn what is
    infinite on their way into NaN.

    Raises:
        Unfit: backward writes in place to what is zero then.
    """
    if len(used) == len(halves.tangents):
        return halves.backward, halves.gradients
    graph = halves.whole.graph
    zero = {each for place, each in halves.tangents.items() if place not in used}
    behind, steps = set(halves.tangents.values()), list[Step]()
    filled = set[Value]()  # gradients of zeros that were made; what depends on them alone is absent
    for number in halves.steps:
        node = graph.steps[number]
        assert isinstance(node, Node)
        given = [each for each in node.reads if each in behind]
        behind.update(_outputs(node) if given else ())
        absent = [each for each in given if each in zero]
        if absent and any(True for _ in written_values(node)):
            raise Unfit("backward writes in place to a gradient that is not asked for")
        if absent and len(absent) == len(given):
            zero.update(_outputs(node))
            continue
        other = _other_summand(node, absent) if absent else None
        if other is not None:
            made = attrs.evolve(node, op=torch.ops.aten.clone.default, args=(other,), kwargs={})
            steps.append(made)
            continue
        for each in dict.fromkeys(absent):
            if each not in filled:
                filled.add(each)
                steps.append(_zeros(each))
        steps.append(node)
    gradients = tuple(None if each in zero else each for each in halves.gradients)
    needed = {each for each in gradients if each is not None}
    kept: list[Step] = []
    for step in reversed(steps):
        assert isinstance(step, Node)
        if not needed.isdisjoint(_outputs(step)) or any(True for _ in written_values(step)):
            kept.append(step)
            needed.update(step.reads)
    outputs = tuple(each for each in gradients if each is not None)
    taken = attrs.evolve(graph, steps=tuple(reversed(kept)), outputs=outputs)
    pieces = [Piece(tuple(range(len(kept))), recorded=True)]
    (part, _) = subgraphs(taken, pieces, halves.whole.positions, halves.conditions)
    return _half(halves.whole, part, "backward", frozenset()), gradients


def share(halves: Halves, one: Collection[int], other: Collection[int]) -> bool:
    """Return whether backward of these results and of those have a step in common that reads
    anything but gradients: eager frees that with the first of the two.
    """
    places = (one, other, halves.tangents)
    behind = [{halves.tangents[place] for place in each} for each in places]
    for number in halves.steps:
        node = halves.whole.graph.steps[number]
        assert isinstance(node, Node)
        own = [not each.isdisjoint(node.reads) for each in behind]
        if own[0] and own[1] and any(each not in behind[2] for each in node.reads):
            return True
        for each, is_behind in zip(behind, own, strict=True):
            each.update(_outputs(node) if is_behind else ())
    return False


def _other_summand(node: Node, absent: Sequence[Value]) -> Value | None:
    """Return what a sum is without a summand that is absent; None for any other op."""
    if node.op is not torch.ops.aten.add.Tensor or node.kwargs or len(absent) != 1:
        return None
    (other,) = [each for each in node.args if each is not absent[0]] or (None,)
    output = node.outputs[0]
    if not isinstance(other, Value) or output is None or other.spec.dtype != output.spec.dtype:
        return None
    return other if same_shape(other.spec.sizes, output.spec.sizes) else None


def _zeros(value: Value) -> Node:
    """Return the step that makes a gradient of zeros.

    Raises:
        Unfit: the gradient is not contiguous.
    """
    spec = value.spec
    if not spec.canonical():
        raise Unfit("a gradient that is not asked for is not contiguous")
    sizes = [size if isinstance(size, int) else size.term for size in spec.sizes]
    how = {"dtype": spec.dtype, "device": spec.device}
    return Node(torch.ops.aten.zeros.default, (sizes,), how, (value,), single=True)


def _check_no_more_is_asked(program: Program, whole: Program) -> None:
    """Raise if a trace with backward depends on more than the program's own calls are compared for.

    Raises:
        Unfit: it does.
    """
    if whole.writes_at_its_end or whole.variables or any(e.bindings for e in whole.graph.nodes):
        raise Unfit("its backward reads or writes what is neither an argument nor a parameter")
    asked = {each for each in whole.questions if each.what not in _OF_AUTOGRAD}
    if any(
        each not in program.questions or program.questions[each] != whole.questions[each]
        for each in asked
    ):
        raise Unfit("its backward depends on more than the sizes of its arguments")


_OF_AUTOGRAD = frozenset((HAS_HISTORY, "hooked", TRANSFORMED))
"""The questions about a tensor that is differentiated.  In a call, autograd goes on with its
history and hooks after backward, and calls under transforms run op by op.
"""


def _traced(
    program: Program,
    leaves: Sequence[Any],
    places: Sequence[int],
    parameters: Sequence[torch.Tensor],
    options: Options,
) -> Program:
    """Return forward and backward of a program as one program.

    Its outputs are the results, for each result what stands for its gradient (None if it has none),
    and the gradients.
    """
    keys, run = program.call.keys, program.run
    if any(each.checked for each in program.graph.nodes):  # checks need plain numbers
        steps = (
            attrs.evolve(e, checked=False) if isinstance(e, Node) else e
            for e in program.graph.steps
        )
        plain = attrs.evolve(program.graph, steps=tuple(steps))
        run = without_autocast(LateRun(plain, program.positions), program.modes)

    def joint(*leaves: Any) -> tuple[Any, ...]:
        with torch.enable_grad():
            results = run(leaves, values_of(leaves, keys))
        detached = [each.detach() if isinstance(each, torch.Tensor) else each for each in results]
        tangents = [
            torch.empty_like(each, memory_format=torch.contiguous_format)
            if isinstance(each, torch.Tensor) and each.requires_grad
            else None
            for each in results
        ]
        pairs = [pair for pair in zip(results, tangents, strict=True) if pair[1] is not None]
        gradients = torch.autograd.grad(
            [result for result, _ in pairs],
            [*(leaves[place] for place in places), *parameters],
            [tangent for _, tangent in pairs],
            allow_unused=True,
        )
        return (*detached, *tangents, *gradients)

    joint.__name__ = joint.__qualname__ = program.name
    given = tuple(
        each.detach().requires_grad_() if place in places else each
        for place, each in enumerate(leaves)
    )
    tree = pytree.tree_structure(((0,) * len(given), {}))
    call = Call(given, tree, program.call.paths, keys, duplicates(leaves), ())
    return capture(joint, call, _policies(program, call), attrs.evolve(options, store=False))


def _policies(program: Program, call: Call) -> Policies:
    """Return the policies of a trace whose sizes are those of the program, by the same names."""
    found: dict[Any, Dim | Policy] = {}
    for source, slot in zip(sources_of(call), program.slots, strict=True):
        named = slot.term.op is Op.SYMBOL and isinstance(source, Size)
        if slot.term.op is not Op.CONST:
            found[source] = Dim(slot.term.name, policy=Policy.AUTO) if named else Policy.AUTO
    return found


def _held(program: Program, whole: Program) -> Iterator[Guard]:
    """Yield the guards and ranges of a program that speak of sizes by the names that they have in
    its trace with backward.

    That trace runs the program's ops and not its code, whose conditions it has none of.
    """
    names = {
        name
        for name, symbol in program.symbols.items()
        if name in whole.symbols
        and any(isinstance(each, Size) for each in symbol.sources)
        and set(symbol.sources) & set(whole.symbols[name].sources)
    }
    for guard in program.guards:
        if {each.name for each in guard.term.symbols} <= names:
            yield guard
    for name, (low, high) in program.guards.ranges.items():
        symbol = arithmetic.symbol(name)
        if name in names and low is not None and low > 0:
            yield Guard(boolean.ge(symbol, low))
        if name in names and high is not None:
            yield Guard(boolean.le(symbol, high))


def _is_plain(key: LeafKey) -> bool:
    """Return whether an argument of this key is a tensor, an integer or a constant."""
    return key is not RECORD_KEY and not (isinstance(key, TensorKey) and key.kind is FloatLeaf)


def _asks(key: LeafKey) -> bool:
    """Return whether an argument of this key asks for a gradient."""
    return isinstance(key, TensorKey) and key.requires_grad


def _unrecorded(graph: Graph, *, checked: bool) -> Graph:
    """Return a graph that is run where gradients are not recorded.

    ``checked`` is for a program that comes from a file: its ops are to stay within the memory of
    their arguments, and so those of its backward.
    """
    steps = [
        attrs.evolve(
            each,
            grad=None,
            checked=checked and memory_safety(each.op) is MemorySafety.CHECKED,
        )
        if isinstance(each, Node)
        else each
        for each in graph.steps
    ]
    return attrs.evolve(graph, steps=tuple(steps))


def _with_states_on_device(graph: Graph) -> Graph:
    """Return a graph whose backward reads the random states of attention on the device.

    Eager keeps some of them on the CPU, and a captured graph on the device.  Without dropout
    nothing uses a state, and backward reads a constant.  With dropout forward hands it over.

    Raises:
        Unfit: attention drops elements by a state from elsewhere.
    """
    states = RandomStates.of(graph)
    if states.shared:
        raise Unfit("its attention drops elements by a random state from elsewhere")
    constants: dict[Value, Lifted] = {}
    moved: dict[Value, Value] = {}

    def replaced(value: Any, device: torch.device) -> Any:
        if value not in states.inside:
            return value
        if value not in moved:
            spec, dropping = value.spec.with_(device=device), value in states.dropping
            moved[value] = Value(value.index, spec, value.storage if dropping else object())
            if not dropping:
                tensor = torch.zeros(spec.sizes, dtype=spec.dtype, device=device)
                constants[value] = Lifted("an unused random state", tensor, moved[value])
        return moved[value]

    steps: list[Step] = []
    for step in graph.steps:
        made = step.outputs if isinstance(step, Node) else ()
        if isinstance(step, Node) and not states.inside.isdisjoint((*step.reads, *made)):
            leaf = partial(replaced, device=step.reads[0].spec.device)
            step = attrs.evolve(
                step,
                args=map_argument(step.args, leaf),
                kwargs={name: map_argument(each, leaf) for name, each in step.kwargs.items()},
                outputs=tuple([leaf(e) if e in states.dropping else e for e in made]),
            )
        steps.append(step)
    lifted = (*graph.lifted, *constants.values())
    return attrs.evolve(graph, steps=tuple(steps), lifted=lifted) if moved else graph


def _attached(graph: Graph, count: int) -> Graph:
    """Return a graph whose first ``count`` results are those that the trace detached."""
    made = {value: node for node in graph.nodes for value in node.outputs if value is not None}
    outputs = list(graph.outputs)
    for place in range(count):
        node = made.get(outputs[place])
        if node is not None and node.op is _DETACH:
            outputs[place] = node.reads[0]
    return attrs.evolve(graph, outputs=tuple(outputs))


_DETACH = torch.ops.aten.detach.default


def _divided(
    whole: Program,
    conditions: Sequence[Guard],
    results: Sequence[Any],
    stand_ins: Sequence[Value],
) -> tuple[Half, Half, tuple[int, ...]]:
    """Return forward and backward of a program that was traced with both, and backward's steps.

    ``conditions`` hold in each call.

    Raises:
        Unfit: backward writes to what forward made, or draws random numbers.
    """
    graph = whole.graph
    if fresh_constants(graph):
        raise Unfit("it returns a constant of its own")
    if not stand_ins:
        raise Unfit("no result has a gradient")
    made = {value: n for n, step in enumerate(graph.steps) for value in _outputs(step)}
    apart = {made[each] for each in stand_ins}
    forward = range(min(apart))  # forward was traced first, then the stand-ins, then backward
    backward = set(range(len(graph.steps))) - {*forward} - apart
    outside = {id(each.value.storage) for each in graph.inputs}
    outside |= {id(each.value.storage) for each in graph.lifted}
    outside |= {id(each.storage) for step in graph.steps[: len(forward)] for each in _outputs(step)}
    for step in (graph.steps[number] for number in backward):
        if not isinstance(step, Node) or draws_random_numbers(step):
            raise Unfit("its backward checks sizes, or draws random numbers")
        writes = [id(each.storage) for each in written_values(step)]
        if not outside.isdisjoint(writes):
            raise Unfit("its backward writes in place")
    backward |= _Repeated(graph, made, len(forward), results, stand_ins).steps(backward)
    pieces = [
        Piece(tuple(forward), recorded=True),
        Piece(tuple(sorted(apart)), recorded=False),
        Piece(tuple(sorted(backward)), recorded=True),
    ]
    found = subgraphs(graph, pieces, whole.positions, conditions)
    halves = (
        _half(whole, found[0], "forward", frozenset(results)),
        _half(whole, found[2], "backward", frozenset()),
    )
    memory = {id(each.storage) for each in results if isinstance(each, Value)}
    if any(id(e.storage) in memory and e not in results for e in halves[1].takes):
        raise Unfit("backward needs a tensor that shares memory with a result")
    return (*halves, pieces[2].numbers)


def _half(whole: Program, part: Subgraph, name: str, results: Collection[Any]) -> Half:
    """Return a part of a program as a half; what is none of the ``results`` is handed over."""
    gives = tuple(each for each in part.gives if isinstance(each, Value))
    handed = frozenset(gives).difference(results) if results else frozenset()
    made = piece_program(whole, part, 0)
    graph = attrs.evolve(made.graph, tied=_is_tied(made.graph))
    program = attrs.evolve(made, graph=graph, name=f"{whole.name}, {name}", handed_over=handed)
    return Half(program, part.takes, gives, tuple(whole.positions[each] for each in part.names))


def _is_tied(half: Graph) -> bool:
    """Return whether attention in forward or backward drops elements by a state that both have."""
    return bool(RandomStates.of(half).shared)


def _outputs(step: Step) -> Iterator[Value]:
    if isinstance(step, Node):
        yield from (each for each in step.outputs if each is not None)


class _Repeated:
    """The steps of forward that backward repeats, so that it needs less of forward.

    Views are repeated always.  Ops that take about as long as a copy are repeated where backward
    has what they read: a tensor that is kept is copied out of forward and into backward, and lives
    in between.

    Args:
        graph: forward, and then backward.
        made: the number of the step that made each value.
        forward: the number of forward's steps.
        results: forward's results, which the caller may write to before backward, as to arguments.
        tangents: what stands for the gradient of each result.
    """

    def __init__(
        self,
        graph: Graph,
        made: Mapping[Value, int],
        forward: int,
        results: Sequence[Any],
        tangents: Sequence[Value],
    ) -> None:
        self._graph, self._made, self._forward, self._tangents = graph, made, forward, tangents
        self._found: set[int] = set()
        self._results = {id(each.storage) for each in results if isinstance(each, Value)}
        # what eager has saved for backward of each result
        self._common: set[Value] = set()
        # what forward has not made, and cannot have been written to before backward
        self._arguments = {
            each.value for each in graph.lifted if each.constant or not each.tensor.numel()
        }
        self._written = {
            id(each.storage)
            for step in graph.steps[:forward]
            if isinstance(step, Node)
            for each in written_values(step)
        }

    def steps(self, backward: Iterable[int]) -> set[int]:
        """Return the numbers of the repeated steps."""
        own = sorted(backward)
        every = self._behind(own, self._tangents)
        reads = (self._read(own, every, [each]) for each in self._tangents)
        self._common = set.intersection(*reads)
        self._arguments |= self._common - self._made.keys()
        kept = self._kept_beside_views(own)
        for value in sorted(kept, key=self._made.__getitem__, reverse=True):
            steps = self._from_others(value, kept - {value})
            if steps is not None:
                kept.remove(value)
                self._found |= steps
        return self._found

    def _behind(self, backward: Sequence[int], tangents: Sequence[Value]) -> set[int]:
        """Return the steps of backward that compute with gradients of these results."""
        values, found = set(tangents), set[int]()
        for number in backward:
            step = self._graph.steps[number]
            if isinstance(step, Node) and not values.isdisjoint(step.reads):
                values.update(_outputs(step))
                found.add(number)
        return found

    def _read(
        self, backward: Sequence[int], every: set[int], tangents: Sequence[Value]
    ) -> set[Value]:
        """Return what backward of these results reads of arguments and of forward, so that eager
        has saved it.

        ``every``: the steps that compute with gradients of any result.
        """
        seen = self._behind(backward, tangents)
        left, found, others = list(seen), set[Value](), set(backward) - every
        while left:
            step = self._graph.steps[left.pop()]
            for value in step.reads if isinstance(step, Node) else ():
                number = self._made.get(value, -1)
                if number < self._forward:
                    found.add(value)
                elif number in others and number not in seen:
                    seen.add(number)
                    left.append(number)
        return found

    def _kept_beside_views(self, backward: Iterable[int]) -> set[Value]:
        """Return what backward reads of forward's values, once it makes views by itself."""
        kept, left = set[Value](), list(backward)
        while left:
            step = self._graph.steps[left.pop()]
            for value in step.reads if isinstance(step, Node) else ():
                number = self._made.get(value, self._forward)
                if number >= self._forward or number in self._found:
                    continue
                if self._is_view(number):
                    self._found.add(number)
                    left.append(number)
                else:
                    kept.add(value)
        return kept

    def _from_others(self, value: Value, kept: set[Value]) -> set[int] | None:
        """Return the steps that make a value of others that backward has; None if too many would,
        or none can.
        """
        steps, left = set[int](), [self._made[value]]
        while left:
            number = left.pop()
            if number in steps or number in self._found:
                continue
            if not (self._is_view(number) or self._is_cheap(number)):
                return None
            steps.add(number)
            if sum(not self._is_view(each) for each in steps) > _MOST_REPEATED:
                return None
            step = self._graph.steps[number]
            assert isinstance(step, Node)
            for each in step.reads:
                if each in self._made:
                    left += [] if each in kept and self._is_safe(each) else [self._made[each]]
                elif each not in self._arguments:
                    return None  # eager lets the caller write to it before backward
        return steps

    def _is_safe(self, value: Value) -> bool:
        """Return whether what forward made cannot be written to before a backward that runs."""
        return id(value.storage) not in self._results or value in self._common

    def _is_view(self, number: int) -> bool:
        step = self._graph.steps[number]
        return isinstance(step, Node) and all(
            each is None or viewed_by(step, each) is not None for each in step.outputs
        )

    def _is_cheap(self, number: int) -> bool:
        """Return whether a step makes the same elements again in about the time of a copy."""
        step = self._graph.steps[number]
        if not isinstance(step, Node) or draws_random_numbers(step) or step.bindings:
            return False
        memory = {id(each.storage) for each in (*step.reads, *_outputs(step))}
        tags = getattr(step.op, "tags", ())
        cheap = step.op in _CHEAP or torch.Tag.pointwise in tags
        return cheap and self._written.isdisjoint(memory)


_CHEAP = frozenset(
    (
        torch.ops.aten.cat.default,
        torch.ops.aten.clone.default,
        torch.ops.aten._to_copy.default,
        torch.ops.aten.mean.dim,
        torch.ops.aten.native_layer_norm.default,
    )
)
"""The ops that are repeated beside those of single elements: each reads its arguments once."""
_MOST_REPEATED = 5
"""The most ops, without views, that are repeated in place of keeping a tensor: those of a GELU by
``tanh``.
"""
