"""Parts: functions that an operator takes, each traced into steps that may run once, never, or many
times.

The steps of a part are among the trace's steps until its end; then the node that runs the part
replaces them. Facts found in a part hold in that part alone, except guards. Guards hold for the
whole program, which is then narrower than possible and never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import attrs
import torch

from guards.terms import arithmetic
from guards.terms.term import Term
from meta_fns import TensorSpec
from symshape.errors import Reason, SymShapeError, UnsupportedError
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
from symshape.tracing.state.instrument.hooks import tell
from symshape.tracing.state.undo.effects import Effects
from symshape.tracing.symbolic.env import apart
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.tracing.trace_state import TraceState


class EffectError(UnsupportedError):
    """A function that an operator takes did something besides computing its results."""


@attrs.define(eq=False)
class Part:
    """One traced function.

    Attributes:
        name: the function's name, for people.
        place: its first step, the step after its last, and the number of parts recorded before.
        own: the values of its arguments that stand for others at each run.
        own_numbers: its arguments that are numbers, by name; each is a symbol of its own.
        leaves, tree: its result.
        outputs: the leaves, for a graph.
        constants: the constants in its code.
        tensors: the outer tensors that it reads.
        numbers: the outer numbers that it reads, by name.
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
        """Return the tensors and numbers that these steps and the results read but the steps do not
        make.
        """
        nodes = [step for step in inside if isinstance(step, Node)]
        made = {value for node in nodes for value in node.outputs}
        made |= {*self.own, *(each.value for each in self.constants)}
        read = (
            value
            for values in (*(node.reads for node in nodes), values_in(self.outputs))
            for value in values
        )
        bound = {
            *self.own_numbers,
            *(binding.symbol for node in nodes for binding in node.bindings),
        }
        numbers = {
            name: number
            for number in _numbers(inside, self.outputs)
            for name, number in _named(number)
        }
        return (
            {value: None for value in read if value not in made},
            {name: number for name, number in numbers.items() if name not in bound},
        )

    def compiled(
        self, inside: Sequence[Step], tensors: Sequence[Value], numbers: Sequence[str], grad: bool
    ) -> Any:
        """Return the function that runs the part.

        Args:
            inside: its steps.
            tensors: the outer tensors that it gets, after its own.
            numbers: the outer numbers that it gets, after its own.
            grad: whether the trace began with gradients.

        Raises:
            UnsupportedError: it reads something else.
        """
        steps = [
            self._as_called(step, grad) for step in without_dead_code(list(inside), self.outputs)
        ]
        given = [*self.own, *tensors]
        read, named = self.reads(steps)
        if not read.keys() <= set(tensors) or not named.keys() <= set(numbers):
            raise UnsupportedError(
                f"{self.name} uses a tensor or a size that is created inside another function "
                "given to torch.cond, while_loop or a scan; return it from that function",
                reason=Reason.CONTROL_FLOW,
            )
        inputs = tuple(
            Input(i, value.name, value)
            for i, value in enumerate(given)
            if value in read or i < len(self.own)
        )
        graph = Graph(inputs, self.constants, tuple(steps), self.outputs, self.tree)
        return compile_graph(
            graph, {name: i for i, name in enumerate((*self.own_numbers, *numbers))}
        )

    def _as_called(self, step: Step, grad: bool) -> Step:
        """Return a step with the modes that it runs in, where these differ from the modes of the
        part's call.
        """
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
    """Yield the symbols in a number, by name."""
    if isinstance(number, FloatTerm):
        yield from ((name, FloatTerm("symbol", symbol=name)) for name in number.unbacked())
        yield from ((symbol.name, symbol) for symbol in number.symbols())
    else:
        yield from ((symbol.name, arithmetic.symbol(symbol.name)) for symbol in number.symbols)


class Parts:
    """A tracer of the functions that operators of one trace take.

    Attributes:
        grad: whether the trace began with gradients.
        inside: how many functions are being traced, nested in one another.
    """

    def __init__(self, trace: TraceState) -> None:
        self._trace = trace
        self._regions: list[tuple[int, int]] = []
        self._own: set[Value | None] = set()
        self._born: frozenset[str] = frozenset()
        self.grad = torch.is_grad_enabled()
        self.inside = 0

    def steps_of(self, start: int, end: int, regions: int | None = None) -> list[Step]:
        """Return the steps of a range, without those of the first ``regions`` parts."""
        covered = {i for begin, behind in self._regions[:regions] for i in range(begin, behind)}
        return [
            step for i, step in enumerate(self._trace.steps[start:end], start) if i not in covered
        ]

    @property
    def any(self) -> bool:
        """Return whether there are parts."""
        return bool(self._regions)

    def check_leaks(self, steps: Sequence[Step], outputs: Sequence[Any]) -> None:
        """Check that steps outside all parts use nothing that was made inside one.

        Raises:
            UnsupportedError: they use such a value.
        """
        inside = [step for begin, end in self._regions for step in self._trace.steps[begin:end]]
        made = {
            value for step in inside if isinstance(step, Node) for value in step.outputs
        } | self._own
        nodes = [step for step in steps if isinstance(step, Node)]
        made -= {value for node in nodes for value in node.outputs}
        bound = {binding.symbol for node in nodes for binding in node.bindings}
        numbers = {name for number in _numbers(steps, outputs) for name, _ in _named(number)}
        read = {
            value
            for values in (*(node.reads for node in nodes), values_in(outputs))
            for value in values
        }
        if not made.isdisjoint(read) or not (self._born - bound).isdisjoint(numbers):
            raise UnsupportedError(
                "a tensor or a size is created inside a function given to torch.cond, while_loop "
                "or a scan and used outside it; return it from that function",
                reason=Reason.CONTROL_FLOW,
            )

    def set_aside(self) -> set[int]:
        """Return the ids of all steps that are in parts."""
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
        """Trace one function as a part.

        Args:
            name: the function's name, for people.
            function: the function.
            args: its arguments.
            own: the values of arguments that stand for others at each run.
            own_numbers: the symbols of arguments that are numbers.
            watched: the program's own function inside.

        Raises:
            UnsupportedError: it does something that no part could do again.
        """
        trace = self._trace
        start, lifted, symbols = (
            len(trace.steps),
            len(trace.lifting.lifted),
            trace.env.symbols.taken(),
        )
        with self._apart(name, watched or function) as seen:
            leaves, tree = pytree.tree_flatten(function(*args))
            outputs = trace.op_arguments.both(leaves)[1]
        constants = tuple(
            each for each in list(trace.lifting.lifted.values())[lifted:] if each.constant
        )
        self._own.update((*own, *(each.value for each in constants)))
        self._born |= {*own_numbers}
        place = (start, len(trace.steps), len(self._regions) - 1)  # the last region is its own
        inside = self.steps_of(*place)
        born = (trace.env.symbols.taken() - symbols) | {*own_numbers}
        draws = any(isinstance(each, Node) and draws_random_numbers(each) for each in inside)
        modes = trace.modes_now()
        part = Part(
            name,
            place,
            own,
            own_numbers,
            leaves,
            tree,
            outputs,
            constants,
            {},
            {},
            seen,
            modes,
            born,
            draws,
        )
        part.tensors, part.numbers = part.reads(without_dead_code(inside, outputs))
        self._check(part, inside)
        return part

    def together(self, name: str, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Return the result of a function that runs in each call but may do no more than a part
        may.

        Raises:
            UnsupportedError: it does more.
        """
        trace = self._trace
        start, lifted = len(trace.steps), len(trace.lifting.lifted)
        with self._apart(name, function):
            made = function(*args)
        self._regions.pop()  # its steps stay in the trace
        inside = [step for step in trace.steps[start:] if isinstance(step, Node)]
        own = {value for node in inside for value in node.outputs}
        own |= {
            each.value for each in list(trace.lifting.lifted.values())[lifted:] if each.constant
        }
        around = {id(value.storage) for node in inside for value in node.reads if value not in own}
        for node in inside:
            if any(id(value.storage) in around for value in written_values(node)):
                self.refuse(name, f"writes in place to a tensor created outside it ({node.op})")
        return made

    @contextmanager
    def _apart(
        self, name: str, function: Callable[..., Any]
    ) -> Iterator[dict[Value, SymbolicTensor]]:
        """Trace a part inside the block; yield a dictionary that collects the tensors that it
        reads.

        Raises:
            UnsupportedError: it did more than compute its results.
        """
        trace, env, effects = self._trace, self._trace.env, list[Effects]()
        start, symbols, modes, looks = (
            len(trace.steps),
            env.symbols.taken(),
            _modes(),
            trace.own.looks(),
        )
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
            said = (
                f"{name} {changed[0]} (at {env.origin()}), which would happen only in calls that "
                "run this function; return the new value instead"
            )
            raise EffectError(said, reason=Reason.CONTROL_FLOW) from failed
        if failed is not None:
            # so that it is noted: the program may catch the error
            if not isinstance(failed, SymShapeError):
                UnsupportedError(
                    f"{name} raises {type(failed).__name__}: {failed}", reason=Reason.CONTROL_FLOW
                )
            try:
                raise failed
            finally:
                failed = None  # it would keep this frame alive, and with it tensors
        if trace.own.looks() != looks:
            self.refuse(
                name,
                "uses gradients itself: an autograd.Function, requires_grad_(), hooks or backward",
            )

    def refuse(self, name: str, why: str) -> NoReturn:
        """Refuse a side effect of a function.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            f"{name} {why} (at {self._trace.env.origin()}): this cannot be traced inside "
            "torch.cond, while_loop or a scan",
            reason=Reason.CONTROL_FLOW,
        )

    def _check(self, part: Part, inside: Sequence[Step]) -> None:
        unknown = [name for name in part.numbers if name in part.born]
        if unknown:
            self.refuse(part.name, f"depends on the memory layout of its arguments ({unknown[0]})")
        around = {id(value.storage) for value in (*part.reads(inside)[0], *part.own)}
        for step in inside:
            if not isinstance(step, Node):
                continue
            op: Any = step.op
            if isinstance(op, LiveCall) and not isinstance(op, ControlFlow):
                self.refuse(
                    part.name, f"keeps random states, or changes what autograd records ({op})"
                )
            if any(id(value.storage) in around for value in written_values(step)):
                self.refuse(
                    part.name, f"writes in place to a tensor created outside it ({step.op})"
                )
            if not torch.is_grad_enabled() and (self.grad if step.grad is None else step.grad):
                self.refuse(part.name, "turns gradients on where they are off")
            if step.inference is not part.modes[1]:
                self.refuse(part.name, f"changes inference mode ({step.op})")

    def fresh(self, part: Part, leaf: Any, known: Collection[str] = ()) -> Value:
        """Return the value of a result that is a tensor on memory of its own, with sizes known
        around the part.

        ``known``: further symbols that its sizes may have.

        Raises:
            UnsupportedError: it is not such a tensor.
        """
        if type(leaf) is not SymbolicTensor:
            self.refuse(
                part.name,
                f"returns a {type(leaf).__name__} where a tensor that it creates is needed",
            )
        value = leaf._value
        around = {id(each.storage) for each in (*part.tensors, *part.own)}
        own = {each.value for each in part.constants}
        around |= {
            id(each.value.storage)
            for each in self._trace.lifting.lifted.values()
            if each.value not in own
        }
        inside = self.steps_of(*part.place)
        made = own | {each for step in inside if isinstance(step, Node) for each in step.outputs}
        if value not in made or id(value.storage) in around:
            self.refuse(part.name, "returns one of its arguments, or a view of one; return a clone")
        if value in self._trace.lazy or names_in(leaf._spec) & (part.born - {*known}):
            self.refuse(
                part.name,
                "returns a tensor whose size depends on data, or that is lazily conjugated",
            )
        return value


def shares_memory(part: Part) -> bool:
    """Return whether two results of a part share memory."""
    storages = [id(value.storage) for value in values_in(part.outputs)]
    return len(set(storages)) < len(storages)


def around(parts: Sequence[Part]) -> Captures:
    """Return how many outer tensors and numbers the parts read."""
    tensors = {value for part in parts for value in part.tensors}
    return Captures(len(tensors), len({name for part in parts for name in part.numbers}))


def names_in(spec: TensorSpec) -> set[str]:
    """Return the names of the symbols in a tensor's sizes, strides and offset."""
    sizes = (*spec.sizes, *spec.strides, spec.storage_offset)
    return {symbol.name for size in sizes if type(size) is not int for symbol in size.term.symbols}


def _modes() -> tuple[Any, ...]:
    autocast = [
        (torch.is_autocast_enabled(each), torch.get_autocast_dtype(each))
        for each in ("cpu", "cuda")
    ]
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        autocast,
    )
