"""A graph as straight-line Python: the function that runs it op by op.

Names in generated source are our own (``v3``, ``s0``, ``op7``, ``c2``); texts of the user never
enter it.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

import attrs
import torch

from guards.terms.generated import generated_function
from guards.terms.straight_line import StraightLine, once
from guards.terms.term import Op, Term
from symshape.calls.floats import number_in
from symshape.errors import RuntimeAssertionError
from symshape.forks import cached_property
from symshape.graph.fast_calls import (
    FastCall,
    fast_callable,
    fast_calls,
    indexed,
    unpacked,
    warns_of_bytes,
    within_memory,
)
from symshape.graph.float_terms import CPP, FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.loop_rolling import RolledLoop, rolled_loop
from symshape.graph.numpy_terms import NUMPY
from symshape.graph.steps import (
    Assertion,
    Binding,
    Node,
    Step,
    Value,
    map_argument,
    values_in,
    writes_nothing,
    written_values,
)
from symshape.torch_internals import autograd
from symshape.user_code import Location

Run = Callable[[Sequence[Any], Sequence[int]], list[Any]]
"""``run(leaves, values)``: the flat outputs for the call's leaves and the call's integers."""

_aten = torch.ops.aten
_STEP = "__symshape_step__"  # an attribute of errors


def compile_graph(graph: Graph, positions: Mapping[str, int], *, boxed: bool = False) -> Run:
    """Compile a graph to a function; ``positions`` gives the index of each input symbol in
    ``values``.

    A ``boxed`` one empties the list of leaves once it has read it, so that each leaf can go after
    its last use.

    Raises (when run):
        RuntimeAssertionError: an assertion on unbacked symbols failed.
    """
    writer = _Writer(graph, positions, boxed)
    source = writer.source()
    run: Run = generated_function(source, "run", "symshape graph", writer.namespace)
    run.__symshape_source__ = source  # type: ignore[attr-defined]
    places = [step.location if isinstance(step, Node) else None for step in graph.steps]
    lines = StepLines(run.__code__, writer.starts, writer.laps, places)
    run.__symshape_steps__ = lines  # type: ignore[attr-defined]
    run.__globals__["__symshape_steps__"] = lines  # for frames
    return run


@attrs.define(eq=False)
class LateLines:
    """The lines of a function that may not be compiled yet.

    Attributes:
        known: the lines; None before the function is compiled.
    """

    known: StepLines | None = None

    def failed(self, error: BaseException) -> int | None:
        """Return the number of the step that raised an error; None if no step raised it."""
        return None if self.known is None else self.known.failed(error)


class LateRun:
    """The function that runs a graph op by op, compiled when it is first needed: what graphs or
    pieces serve seldom runs op by op.

    Args:
        graph, positions: as for :func:`compile_graph`.

    Attributes:
        lines: the lines of its steps, for those who must not hold the function's tensors.
    """

    def __init__(self, graph: Graph, positions: Mapping[str, int]) -> None:
        self._graph, self._positions = graph, positions
        self.lines = LateLines()

    @cached_property
    def compiled(self) -> Run:
        """The function."""
        run = compile_graph(self._graph, self._positions)
        self.lines.known = run.__symshape_steps__  # type: ignore[attr-defined]
        return run

    def __call__(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Return the flat outputs of one call."""
        return self.compiled(leaves, values)

    @property
    def __symshape_source__(self) -> str:
        found: str = self.compiled.__symshape_source__  # type: ignore[attr-defined]
        return found

    @property
    def __symshape_steps__(self) -> StepLines:
        found: StepLines = self.compiled.__symshape_steps__  # type: ignore[attr-defined]
        return found


def compiled(run: Run) -> Run:
    """Return the function itself of one that may be compiled late."""
    return run.compiled if isinstance(run, LateRun) else run


def with_lifted(run: Run, tensors: Sequence[torch.Tensor]) -> Run:
    """Return a copy of a compiled function with other lifted tensors, in the graph's order; nothing
    is compiled.
    """
    run = compiled(run)
    assert isinstance(run, FunctionType)
    # not the old one, with its tensors
    names = {**run.__globals__, "lifted": list(tensors), run.__name__: None}
    made = FunctionType(run.__code__, names, run.__name__)
    made.__dict__.update(run.__dict__)
    return made


@attrs.frozen(eq=False)
class StepLines:
    """The line of each step of a graph in the generated code.

    Attributes:
        code: of the function that :func:`compile_graph` made, which has this as its
            ``__symshape_steps__``.
        lines: on which each step begins, from 1; those of a loop are there once.
        laps: the loop.
        places: the user's file, line and function of each step; None if they are not known.
    """

    code: CodeType
    lines: Sequence[int]
    laps: RolledLoop | None = None
    places: Sequence[Location | None] = ()

    def failed(self, error: BaseException) -> int | None:
        """Return the number of the step that raised an error; None if no step raised it."""
        code, told = error.__dict__.get(_STEP, (None, 0))
        if code is self.code:
            return int(told)
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not self.code:
            trace = trace.tb_next
        if trace is None:
            return None
        return self._step(trace.tb_lineno, trace.tb_frame.f_locals.get("lap", 0))

    def _step(self, line: int, lap: int) -> int | None:
        """Return the number of the step on a line of the generated code; None before the first."""
        begun = bisect_right(self.lines, line)
        if not begun:
            return None
        return begun - 1 if self.laps is None else self.laps.step(begun - 1, lap)

    def location(self, line: int, lap: int) -> Location | None:
        """Return the user's place of the step on a line, in an iteration of the loop."""
        number = self._step(line, lap)
        known = number is not None and number < len(self.places)
        return self.places[number] if known and number is not None else None

    def tell(self, error: BaseException, number: int) -> None:
        """Record a step as the origin of an error that other code raised."""
        error.__dict__[_STEP] = self.code, number


def _failed(assertion: Assertion, values: Mapping[str, int]) -> None:
    shown = ", ".join(
        f"{s.name} = {values[s.name]}"
        for s in sorted(assertion.guard.term.symbols, key=lambda s: s.order)
    )
    message = f"{assertion.message.text(values)}: " if assertion.message else ""
    raise RuntimeAssertionError(
        f"{message}{assertion.guard.term} does not hold ({shown}); asserted at "
        f"{assertion.guard.origin}",
        kind=assertion.error,
    )


class _Writer:
    """Writes one graph's source; lives for one call of ``source``."""

    def __init__(self, graph: Graph, positions: Mapping[str, int], boxed: bool = False) -> None:
        self.graph = graph
        self._nodes = graph.nodes
        self.boxed = boxed
        self.positions = positions
        self.namespace: dict[str, Any] = {
            "math": math,
            "numpy": NUMPY,
            **CPP,
            "failed": _failed,
            "_once": once,
        }
        self.namespace["clone"] = _aten.clone.default
        self.namespace["lifted"] = [each.tensor for each in graph.lifted]
        self.lines: list[str] = []
        # the line of each step, from 1; of a loop's steps, those of one lap
        self.starts = array("L")
        self._objects: dict[Any, str] = {}
        self._names: dict[str, str] = {}
        self._computed = StraightLine(self._names, self.lines)
        self._other_names: dict[
            int, str
        ] = {}  # of values that a loop has under another one's name, by index
        last_use = self._last_uses()
        self._dying: dict[int, list[Value]] = {}
        for value, position in last_use.items():
            self._dying.setdefault(position, []).append(value)
        lifted = {each.value for each in graph.lifted if not each.constant}
        self.laps = rolled_loop(graph.steps, self._dying, last_use, lifted)
        self._spellings = fast_calls(graph.steps, last_use, self.laps)
        self._modes_now: tuple[Any, bool | None] = (None, None)
        self._given = {each.value for each in graph.inputs}

    def source(self) -> str:
        """Return the source of ``run``."""
        self._prologue()
        laps = self.laps
        if laps is None:
            self._steps(0, len(self.graph.steps))
        else:
            self._steps(0, laps.start)
            self._loop(laps)
            self._steps(laps.end, len(self.graph.steps))
        result = ", ".join(self._argument(output) for output in self.graph.outputs)
        self.lines.append(f"return [{result}]")
        if not any(node.grad is not None or node.inference is not None for node in self._nodes):
            return self._under("def run(leaves, values):\n", "    ") + "\n"
        self.namespace.update(set_grad=autograd.set_grad, is_grad=torch.is_grad_enabled)
        self.namespace.update(inference=autograd.InferenceMode)
        head = "def run(leaves, values):\n    grad = is_grad()\n    mode = None\n    try:\n"
        return (
            f"{self._under(head, '        ')}\n    finally:\n        if mode is not None:\n"
            "            mode.__exit__(None, None, None)\n        set_grad(grad)\n"
        )

    def _under(self, head: str, margin: str) -> str:
        """Return the lines below the head; lines of steps are counted from the first of them."""
        above = head.count("\n") + 1
        self.starts = array("L", [start + above for start in self.starts])
        return head + "\n".join(margin + line for line in self.lines)

    def _steps(self, begin: int, end: int) -> None:
        position = begin
        while position < end:
            step, spelling = self.graph.steps[position], self._spellings.get(position)
            if spelling is not None:
                position = self._spelled(spelling, position)
                continue
            self.starts.append(len(self.lines))
            if isinstance(step, Node):
                self._node(step)
            else:
                self._assertion(step)
            dead = self._dying.get(position)
            if dead:
                self.lines.append("del " + ", ".join(map(self._name, dead)))
            position += 1

    def _spelled(self, spelling: FastCall, position: int) -> int:
        """Write one call for several steps from ``position`` on; return the number of the step
        after them.
        """
        steps = range(position, position + spelling.length)
        self.starts.extend([len(self.lines)] * spelling.length)
        self._modes_of(self.graph.steps[position])
        name, output = self._name(spelling.output), spelling.output
        given = ", ".join(map(self._argument, spelling.given))
        self.lines.append(f"{name} = {self._object(spelling.function, 'op')}({given})")
        dead = [
            each
            for step in steps
            for each in self._dying.get(step, ())
            if each not in spelling.inner
        ]
        # in a loop
        names = [self._name(each) for each in dead if each is output or self._name(each) != name]
        if names:
            self.lines.append("del " + ", ".join(names))
        return steps.stop

    def _loop(self, laps: RolledLoop) -> None:
        """Write one loop body for all iterations.

        A value has the name of its counterpart in the iteration before the loop, which is written
        out.
        """
        own = [f"w{i}" for i in range(len(laps.lifted[0]))]
        rows = [_tuple([each.name for each in row]) for row in laps.lifted]
        self.lines.append(f"for lap, {_tuple(own)} in enumerate({_tuple(rows)}):")
        begin = len(self.lines)
        self._other_names = {value.index: like.name for value, like in laps.before.items()}
        self._other_names.update(zip([each.index for each in laps.lifted[0]], own, strict=True))
        for position in range(laps.start, laps.start + laps.length):
            dead = self._dying.get(position)
            step = self.graph.steps[position]
            # what has the name of a new value is gone with that
            if dead and isinstance(step, Node):
                named = {self._name(each) for each in step.outputs if each is not None}
                self._dying[position] = [
                    v for v in dead if v in step.outputs or self._name(v) not in named
                ]
        self._steps(laps.start, laps.start + laps.length)
        self.lines[begin:] = ["    " + line for line in self.lines[begin:]]
        self._other_names = {value.index: like.name for value, like in laps.behind.items()}

    def _name(self, value: Value) -> str:
        return self._other_names.get(value.index) or f"v{value.index}"

    def _last_uses(self) -> dict[Value, int]:
        """Return the last step that reads each value, except for results and lifted tensors, which
        outlive it.
        """
        kept = {
            *values_in(self.graph.outputs),
            *(each.value for each in self.graph.lifted if not each.constant),
        }
        last: dict[Value, int] = {}
        for position, step in enumerate(self.graph.steps):
            if isinstance(step, Node):
                for value in step.reads:
                    last[value] = position
                for output in step.outputs:
                    if output is not None:
                        last[output] = position
        return {value: position for value, position in last.items() if value not in kept}

    def _prologue(self) -> None:
        for each in self.graph.inputs:
            self.lines.append(f"{each.value.name} = leaves[{each.position}]")
        if self.boxed:
            self.lines.append("leaves.clear()")
        writing = [node for node in self._nodes if not writes_nothing(node)]
        written = {id(value.storage) for node in writing for value in written_values(node)}
        returned = {id(value.storage) for value in values_in(self.graph.outputs)}
        if self.graph.lifted:  # one statement: Python's compiler takes its time over each
            self.lines.append(
                f"{', '.join(each.value.name for each in self.graph.lifted)}, = lifted"
            )
        for lifted in self.graph.lifted:
            storage = id(lifted.value.storage)
            if lifted.constant and (storage in written or storage in returned):
                self.lines.append(f"{lifted.value.name} = clone({lifted.value.name})")
        numbers: set[Term | FloatTerm] = set()
        used: set[Term] = set()
        floats: set[str] = set()
        for step in self.graph.steps:
            if isinstance(step, Node):
                if step.numbers:
                    numbers.update(step.numbers)
            else:
                numbers.add(step.guard.term)
                used.update(step.message.symbols())
                floats |= step.message.names()
        map_argument(self.graph.outputs, numbers.add)
        for number in numbers:
            used.update(_symbols(number))
            floats |= number.unbacked() if type(number) is FloatTerm else frozenset()
        names = dict.fromkeys(symbol.name for symbol in sorted(used, key=lambda each: each.order))
        # floats that are given: of a part of a program
        for name in (*names, *sorted(floats - names.keys())):
            place = self.positions.get(name)
            if place is not None:
                self.lines.append(f"{self._symbol(name)} = values[{place}]")

    def _symbol(self, name: str) -> str:
        found = self._names.get(name)
        if found is None:
            found = self._names[name] = f"n{len(self._names)}"
        return found

    def _object(self, value: Any, prefix: str) -> str:
        key = (prefix, id(value))
        found = self._objects.get(key)
        if found is None:
            found = self._objects[key] = f"{prefix}{len(self._objects)}"
            self.namespace[found] = value
        return found

    def _term(self, term: Term) -> str:
        if term.op is Op.CONST:
            return repr(term.value)
        if term.op is Op.SYMBOL:
            return self._symbol(term.name)
        for symbol in term.symbols:
            self._symbol(symbol.name)
        return self._computed.name(term)

    def _argument(self, arg: Any) -> str:
        kind = type(arg)
        if kind is Value:
            return self._name(arg)
        if kind is Term:
            return self._term(arg)
        if kind is int or arg is None:
            return repr(arg)
        if type(arg) is FloatTerm:
            names = {symbol.name: self._symbol(symbol.name) for symbol in arg.symbols()}
            names |= {name: self._symbol(name) for name in arg.unbacked()}
            return arg.source(names)
        # others say something else of themselves: enumerations
        if arg is None or type(arg) in (bool, int, str):
            return repr(arg)
        if type(arg) is float and math.isfinite(arg):
            return repr(arg)
        if isinstance(arg, (list, tuple)):
            return "[" + ", ".join(self._argument(item) for item in arg) + "]"
        return self._object(arg, "c")

    def _node(self, node: Node) -> None:
        self._modes_of(node)
        names = self._other_names
        arguments = [
            (names.get(arg.index) or f"v{arg.index}") if type(arg) is Value else self._argument(arg)
            for arg in unpacked(node)
        ]
        if node.kwargs:
            arguments += [f"{name}={self._argument(arg)}" for name, arg in node.kwargs.items()]
        call = f"{self._object(self._binding(node), 'op')}({', '.join(arguments)})"
        if (
            node.single
            and not node.bindings
            and not node.untracked
            and node.outputs
            and node.outputs[0] is not None
        ):
            self.lines.append(f"{self._name(node.outputs[0])} = {call}")
            return
        if node.untracked:
            call = f"{arguments[0]}.data"
        scalars = [binding for binding in node.bindings if binding.kind != "size"]
        if scalars:
            self._scalar(call, scalars[0])
        elif node.single and node.outputs and node.outputs[0] is not None:
            self.lines.append(f"{self._name(node.outputs[0])} = {call}")
        elif any(output is not None for output in node.outputs):
            targets = ", ".join(
                "_" if output is None else self._name(output) for output in node.outputs
            )
            self.lines.append(f"{targets}{',' if len(node.outputs) == 1 else ''} = {call}")
        else:
            self.lines.append(call)
        for binding in node.bindings:
            output = node.outputs[binding.output] if binding.kind == "size" else None
            if output is not None:
                self.lines.append(
                    f"{self._symbol(binding.symbol)} = {self._name(output)}.size({binding.dim})"
                )

    def _binding(self, node: Node) -> Callable[..., Any]:
        """Return a callable with the effect of the op; a number argument may be given as a
        float.
        """
        if node.op is _aten._local_scalar_dense.default and node.args[0] in self._given:
            return number_in
        if warns_of_bytes(node):
            return indexed
        return within_memory(node.op) if node.checked else fast_callable(node.op)

    def _modes_of(self, node: Step) -> None:
        """Write the switches to the modes in which the node ran, where they differ from those of
        the node before.
        """
        grad, inference = self._modes_now
        if not isinstance(node, Node) or (node.grad, node.inference) == self._modes_now:
            return
        if node.inference is not inference:
            if inference is not None:
                self.lines += ["mode.__exit__(None, None, None)", "mode = None"]
            if node.inference is not None:
                self.lines += [f"mode = inference({node.inference})", "mode.__enter__()"]
            grad = "unknown"  # entering turns gradients off, leaving turns them back
        if node.grad is not grad:
            self.lines.append("set_grad(grad)" if node.grad is None else f"set_grad({node.grad})")
        self._modes_now = node.grad, node.inference

    def _scalar(self, call: str, binding: Binding) -> None:
        text = f"int({call})" if binding.kind == "bool" else call
        self.lines.append(f"{self._symbol(binding.symbol)} = {text}")

    def _assertion(self, step: Assertion) -> None:
        condition = self._computed.expression(step.guard.term)
        names = step.message.names() | {symbol.name for symbol in step.guard.term.symbols}
        shown = ", ".join(f"{name!r}: {self._symbol(name)}" for name in sorted(names))
        self.lines.append(f"if not ({condition}): failed({self._object(step, 'a')}, {{{shown}}})")


def _tuple(names: Sequence[str]) -> str:
    return f"({''.join(f'{name}, ' for name in names)})"


def _symbols(leaf: Any) -> frozenset[Term]:
    if type(leaf) is Term:
        return leaf.symbols
    return leaf.symbols() if type(leaf) is FloatTerm else frozenset()
