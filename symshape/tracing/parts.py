"""Functions that an operator is given, each traced into a part of the program that may run once, or not at all.

The steps of a part stand in the trace with all others until its end, where the node that runs the part takes their
place.  What is found out in a part holds in it alone, but for guards: they hold for the whole program, which is then
narrower than it could be and never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

import attrs
import torch

from guards.terms import arithmetic
from guards.terms.term import Term
from meta_fns import TensorSpec
from symshape.errors import SymShapeError, UnsupportedError
from symshape.graph.codegen import compile_graph
from symshape.graph.control_flow import Captures, ControlFlow
from symshape.graph.dead_code import without_dead_code
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.opaque_calls import LiveCall
from symshape.graph.steps import (
    Assertion,
    Input,
    Lifted,
    Node,
    Step,
    Value,
    draws_random_numbers,
    values_in,
    written_values,
)
from symshape.torch_internals import pytree
from symshape.tracing.lifting import Lifting
from symshape.tracing.op_arguments import OpArguments
from symshape.tracing.own_histories import OwnHistories
from symshape.tracing.state.effects import Effects
from symshape.tracing.state.hooks import tell
from symshape.tracing.symbolic.env import ShapeEnv, apart
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.tracing.unknowns import Counts


class PartTrace(Protocol):
    """What is needed of a tracer here."""

    env: ShapeEnv
    steps: list[Step]
    lifting: Lifting
    own: OwnHistories
    counts: Counts
    op_arguments: OpArguments
    lazy: dict[Value, tuple[bool, bool]]

    def modes_now(self) -> tuple[bool | None, bool | None]:
        """Whether gradients are recorded, and inference mode, where that is not as at the start."""


class EffectError(UnsupportedError):
    """A function that an operator is given did something besides computing its results."""


@attrs.define(eq=False)
class Part:
    """One function, traced.

    Attributes:
        name: of the function, for people.
        place: from which step to which it stands in the trace, and how many parts stood there before.
        own: the values of its arguments that stand for others at each run.
        own_numbers: its arguments that are numbers, by name; each is a symbol of its own.
        leaves, tree: its result.
        outputs: the leaves, for a graph.
        constants: what it writes down itself.
        tensors: what it reads that stands around it.
        numbers: so too, by name.
        seen: the tensors that it read, by value.
        modes: gradients and inference mode where it was called.
        born: the symbols that are made in it.
        draws: whether it draws random numbers.
    """

    name: str
    place: tuple[int, int, int]
    own: Sequence[Value]
    own_numbers: Sequence[str]
    leaves: list[Any]
    tree: pytree.TreeSpec
    outputs: tuple[Any, ...]
    constants: tuple[Lifted, ...]
    tensors: dict[Value, None]
    numbers: dict[str, Any]
    seen: dict[Value, SymbolicTensor]
    modes: tuple[bool | None, bool | None]
    born: frozenset[str]
    draws: bool

    def reads(self, inside: Sequence[Step]) -> tuple[dict[Value, None], dict[str, Any]]:
        """What these steps and the results read that the steps do not make."""
        nodes = [step for step in inside if isinstance(step, Node)]
        made = {value for node in nodes for value in node.outputs}
        made |= {*self.own, *(each.value for each in self.constants)}
        read = (value for values in (*(node.reads for node in nodes), values_in(self.outputs)) for value in values)
        bound = {*self.own_numbers, *(binding.symbol for node in nodes for binding in node.bindings)}
        numbers = {name: number for number in _numbers(inside, self.outputs) for name, number in _named(number)}
        return (
            {value: None for value in read if value not in made},
            {name: number for name, number in numbers.items() if name not in bound},
        )

    def compiled(self, inside: Sequence[Step], tensors: Sequence[Value], numbers: Sequence[str], grad: bool) -> Any:
        """The function that runs the part.

        Args:
            inside: its steps.
            tensors: what it gets of what stands around it, after its own.
            numbers: so too.
            grad: whether the trace began with gradients.

        Raises:
            UnsupportedError: it reads something else.
        """
        steps = [self._as_called(step, grad) for step in without_dead_code(list(inside), self.outputs)]
        given = [*self.own, *tensors]
        read, named = self.reads(steps)
        if not read.keys() <= set(tensors) or not named.keys() <= set(numbers):
            raise UnsupportedError(f"{self.name} reads what another function of the program made inside")
        inputs = tuple(
            Input(i, value.name, value) for i, value in enumerate(given) if value in read or i < len(self.own)
        )
        graph = Graph(inputs, self.constants, tuple(steps), self.outputs, self.tree)
        return compile_graph(graph, {name: i for i, name in enumerate((*self.own_numbers, *numbers))})

    def _as_called(self, step: Step, grad: bool) -> Step:
        """A step with the modes that it runs in where those are not the modes of the call."""
        if not isinstance(step, Node) or self.modes[0] is step.grad:
            return attrs.evolve(step, grad=None, inference=None) if isinstance(step, Node) else step
        return attrs.evolve(step, grad=grad if step.grad is None else step.grad, inference=None)


def _numbers(inside: Iterable[Step], outputs: Sequence[Any]) -> Iterable[Any]:
    for step in inside:
        if isinstance(step, Assertion):
            yield step.guard.term
            yield from step.message.symbols()
        else:
            yield from step.numbers
    yield from (each for each in outputs if isinstance(each, (Term, FloatTerm)))


def _named(number: Any) -> Iterable[tuple[str, Any]]:
    """The symbols that a number is made of, by name."""
    if isinstance(number, FloatTerm):
        yield from ((name, FloatTerm("symbol", symbol=name)) for name in number.unbacked())
        yield from ((symbol.name, symbol) for symbol in number.symbols())
    else:
        yield from ((symbol.name, arithmetic.symbol(symbol.name)) for symbol in number.symbols)


class Parts:
    """Traces the functions that operators of one trace are given.

    Attributes:
        grad: whether the trace began with gradients.
        inside: how many functions are being traced, one in another.
    """

    def __init__(self, trace: PartTrace) -> None:
        self._trace = trace
        self._regions: list[tuple[int, int]] = []
        self._own: set[Value | None] = set()
        self._born: frozenset[str] = frozenset()
        self.grad = torch.is_grad_enabled()
        self.inside = 0

    def steps_of(self, start: int, end: int, regions: int | None = None) -> list[Step]:
        """The steps from one to another, without those of the parts that stood in the trace by then (``regions``)."""
        covered = {i for begin, behind in self._regions[:regions] for i in range(begin, behind)}
        return [step for i, step in enumerate(self._trace.steps[start:end], start) if i not in covered]

    @property
    def any(self) -> bool:
        """Whether there are parts."""
        return bool(self._regions)

    def check_leaks(self, steps: Sequence[Step], outputs: Sequence[Any]) -> None:
        """Of the steps that are in no part.

        Raises:
            UnsupportedError: they use what was made in one.
        """
        inside = [step for begin, end in self._regions for step in self._trace.steps[begin:end]]
        made = {value for step in inside if isinstance(step, Node) for value in step.outputs} | self._own
        nodes = [step for step in steps if isinstance(step, Node)]
        made -= {value for node in nodes for value in node.outputs}
        bound = {binding.symbol for node in nodes for binding in node.bindings}
        numbers = {name for number in _numbers(steps, outputs) for name, _ in _named(number)}
        read = {value for values in (*(node.reads for node in nodes), values_in(outputs)) for value in values}
        if not made.isdisjoint(read) or not (self._born - bound).isdisjoint(numbers):
            raise UnsupportedError(
                "a tensor or a size that is made in a function which torch.cond, while_loop or a scan calls is used "
                "outside of it; return it from that function"
            )

    def set_aside(self) -> set[int]:
        """The ids of all steps that are in parts."""
        return {id(step) for begin, end in self._regions for step in self._trace.steps[begin:end]}

    def traced(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        own: Sequence[Value] = (),
        own_numbers: Sequence[str] = (),
        watched: Callable[..., Any] | None = None,
    ) -> Part:
        """One function as a part.

        Args:
            name: of the function, for people.
            function: it.
            args: its arguments.
            own: the values of those that stand for others at each run.
            own_numbers: the symbols of those that are numbers.
            watched: the program's own function in it.

        Raises:
            UnsupportedError: it does something that no part could do again.
        """
        trace = self._trace
        start, lifted, symbols = len(trace.steps), len(trace.lifting.lifted), trace.env.symbols.taken()
        with self._apart(name, watched or function) as seen:
            leaves, tree = pytree.tree_flatten(function(*args))
            outputs = trace.op_arguments.both(leaves)[1]
        constants = tuple(each for each in list(trace.lifting.lifted.values())[lifted:] if each.constant)
        self._own.update((*own, *(each.value for each in constants)))
        self._born |= {*own_numbers}
        place = (start, len(trace.steps), len(self._regions) - 1)  # the last region is its own
        inside = self.steps_of(*place)
        born = (trace.env.symbols.taken() - symbols) | {*own_numbers}
        draws = any(isinstance(each, Node) and draws_random_numbers(each) for each in inside)
        modes = trace.modes_now()
        part = Part(name, place, own, own_numbers, leaves, tree, outputs, constants, {}, {}, seen, modes, born, draws)
        part.tensors, part.numbers = part.reads(without_dead_code(inside, outputs))
        self._check(part, inside)
        return part

    def together(self, name: str, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """What a function returns that runs in each call, but may do no more than a part may.

        Raises:
            UnsupportedError: it does.
        """
        trace = self._trace
        start, lifted = len(trace.steps), len(trace.lifting.lifted)
        with self._apart(name, function):
            made = function(*args)
        self._regions.pop()  # its steps stay
        inside = [step for step in trace.steps[start:] if isinstance(step, Node)]
        own = {value for node in inside for value in node.outputs}
        own |= {each.value for each in list(trace.lifting.lifted.values())[lifted:] if each.constant}
        around = {id(value.storage) for node in inside for value in node.reads if value not in own}
        for node in inside:
            if any(id(value.storage) in around for value in written_values(node)):
                self.refuse(name, f"writes in place to a tensor that it did not make ({node.op})")
        return made

    @contextmanager
    def _apart(self, name: str, function: Callable[..., Any]) -> Iterator[dict[Value, SymbolicTensor]]:
        """Inside, a part is traced; the tensors that it reads are added to what this gives.

        Raises:
            UnsupportedError: it did more than to compute its results.
        """
        trace, env, effects = self._trace, self._trace.env, list[Effects]()
        start, symbols, modes, looks = len(trace.steps), env.symbols.taken(), _modes(), trace.own.looks()
        tell(lambda recorder: effects.append(Effects(recorder, function)))
        seen: dict[Value, SymbolicTensor] = {}
        outer, trace.op_arguments.seen = trace.op_arguments.seen, seen
        counts, trace.counts = trace.counts, trace.counts.copy()
        self.inside += 1
        failed: Exception | None = None
        try:
            with apart(env):
                yield seen
        except Exception as error:
            failed = error
        finally:
            self.inside -= 1
            trace.counts, trace.op_arguments.seen = counts, outer
            self._regions.append((start, len(trace.steps)))
            self._born |= env.symbols.taken() - symbols
        if outer is not None:
            outer.update(seen)
        changed = [what for each in effects for what in each.since()]
        changed += [] if _modes() == modes else ["leaves torch's modes changed"]
        if changed:
            said = f"{name} {changed[0]}, which only the calls would do that run it (at {env.origin()})"
            raise EffectError(said) from failed
        if failed is not None:
            if not isinstance(failed, SymShapeError):  # for being noted: the program may catch it
                UnsupportedError(f"{name} raises {type(failed).__name__}: {failed}")
            try:
                raise failed
            finally:
                failed = None  # which would hold this frame, and with it tensors
        if trace.own.looks() != looks:
            self.refuse(name, "uses gradients of its own: an autograd.Function, requires_grad_(), hooks, backward")

    def refuse(self, name: str, why: str) -> NoReturn:
        """Refuses what a function does.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(f"{name} {why} (at {self._trace.env.origin()}), which cannot be traced inside of it")

    def _check(self, part: Part, inside: Sequence[Step]) -> None:
        unknown = [name for name in part.numbers if name in part.born]
        if unknown:
            self.refuse(part.name, f"depends on how its arguments lie in memory ({unknown[0]})")
        around = {id(value.storage) for value in (*part.reads(inside)[0], *part.own)}
        for step in inside:
            if not isinstance(step, Node):
                continue
            op: Any = step.op
            if isinstance(op, LiveCall) and not isinstance(op, ControlFlow):
                self.refuse(part.name, f"keeps states, or tells autograd something ({op})")
            if any(id(value.storage) in around for value in written_values(step)):
                self.refuse(part.name, f"writes in place to a tensor that it did not make ({step.op})")
            if not torch.is_grad_enabled() and (self.grad if step.grad is None else step.grad):
                self.refuse(part.name, "turns gradients on where they are off")
            if step.inference is not part.modes[1]:
                self.refuse(part.name, f"changes inference mode ({step.op})")

    def fresh(self, part: Part, leaf: Any, known: Collection[str] = ()) -> Value:
        """The value of a result that is a tensor on memory of its own; its sizes are made of symbols around the part.

        ``known``: and of these.

        Raises:
            UnsupportedError: it is none.
        """
        if type(leaf) is not SymbolicTensor:
            self.refuse(part.name, f"returns a {type(leaf).__name__} where a tensor that it makes is needed")
        value = leaf._value
        around = {id(each.storage) for each in (*part.tensors, *part.own)}
        own = {each.value for each in part.constants}
        around |= {id(each.value.storage) for each in self._trace.lifting.lifted.values() if each.value not in own}
        inside = self.steps_of(*part.place)
        made = own | {each for step in inside if isinstance(step, Node) for each in step.outputs}
        if value not in made or id(value.storage) in around:
            self.refuse(part.name, "returns a tensor that it is given, or a view of it; return a clone")
        if value in self._trace.lazy or names_in(leaf._spec) & (part.born - {*known}):
            self.refuse(part.name, "returns a tensor whose size depends on data, or that is conjugated lazily")
        return value


def shares_memory(part: Part) -> bool:
    """Whether two results of a part lie in one memory."""
    storages = [id(value.storage) for value in values_in(part.outputs)]
    return len(set(storages)) < len(storages)


def around(parts: Sequence[Part]) -> Captures:
    """How much parts read that stands around them."""
    tensors = {value for part in parts for value in part.tensors}
    return Captures(len(tensors), len({name for part in parts for name in part.numbers}))


def names_in(spec: TensorSpec) -> set[str]:
    """The names of the symbols in a tensor's sizes, strides and offset."""
    sizes = (*spec.sizes, *spec.strides, spec.storage_offset)
    return {symbol.name for size in sizes if type(size) is not int for symbol in size.term.symbols}


def _modes() -> tuple[Any, ...]:
    autocast = [(torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in ("cpu", "cuda")]
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(), autocast
