"""One graph made by Dynamo and AOTAutograd, as the torch.compile backend runs it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import attrs
import torch

from guards.sets.codegen import compile_check
from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from guards.sets.sources import IntArg, Size, Source, StorageOffset
from guards.terms.generated import generated_function
from symshape import events
from symshape.calls.modes import function_modes, past_users_modes
from symshape.calls.outputs import builder
from symshape.cost.units import amount
from symshape.errors import ProgramError, UnsupportedError
from symshape.frontends.stats import Stats, stats_of
from symshape.graph.codegen import Run
from symshape.graph.program import Program
from symshape.options import Options
from symshape.runtime.eager_calls import EagerCalls
from symshape.runtime.entry import Entry
from symshape.runtime.known_calls import Found
from symshape.runtime.policy.programs import Programs
from symshape.runtime.runners.choice import RunnerName, make_runner
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.runners.protocol import Runner
from symshape.runtime.verify import Verifier
from symshape.tracing.from_graph.aot_autograd import taken_over
from symshape.tracing.from_graph.fx_sizes import Sizes
from symshape.tracing.intercept.python_warnings import kernels_as_in_eager
from symshape.user_code import origin_of

_numbers = count()
_REMEDY = (
    "This warning comes once for each graph: symshape.backend_report() counts the calls, and "
    "torch.compile(fn, "
    'backend="symshape", options={"fullgraph": True}) raises instead.'
)
Boxed = Callable[[list[Any]], Any]
"""A function that takes the arguments as a list, which it may empty."""


Take = Callable[[torch.fx.GraphModule, str, Sequence[str]], tuple[Program, Run]]
"""A function that makes a program of a graph, its name and its arguments' names; returns it with
its runner.

The runner takes a list, which it empties.
"""


@attrs.frozen
class Origin:
    """The origin of a graph in the user's words: the function, and the part of it.

    Attributes:
        function: the function's name.
        place: its file and line.
        number: Dynamo's number for the compilation (``0/1``: the first function, its second graph).
        part: ``forward``, ``backward`` or ``inference``.
        reason: why Dynamo compiled the function again.
    """

    function: str
    place: str = ""
    number: str = ""
    part: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        """Return the function and the part."""
        return f"{self.function} ({self.part})" if self.part else self.function

    def line(self) -> str:
        """Return the place with its source text; empty where it is not known."""
        file, _, line = self.place.rpartition(":")
        return str(origin_of((file, int(line), self.function))) if file else ""


class DynamoGraph:
    """A graph of Dynamo's with the program that serves its calls; without a program the graph
    itself runs.

    Dynamo's guards state everything that was assumed of the sizes, so there is at most one program.
    A call looks nothing up: it reads the symbols' values off its arguments. A graph that was
    refused earlier gets no program, and neither does one that is to run as Dynamo made it.

    Args:
        plain_because: why every call runs the graph as Dynamo made it; empty: a program is made of
            it.
        demanded: conditions of the program's ops that Dynamo's guards do not imply, filled by
            ``take``: a call that fails one runs the graph eagerly, to raise what eager raises.

    Attributes:
        origin: where the graph comes from.
        calls: calls so far, without those in ``plain``.
        plain: calls that ran the graph as Dynamo made it, instead of AOTAutograd's
            (``dynamo_training.py``).
        plain_because: why they do.
        number: how many were made before, in this process.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        origin: Origin,
        paths: Sequence[str],
        runner: RunnerName,
        options: Options,
        fullgraph: bool = False,
        refused: UnsupportedError | None = None,
        take: Take | None = None,
        demanded: Sequence[Guard] = (),
        plain_because: str = "",
    ) -> None:
        self.origin = origin
        self.calls = 0
        self.plain = 0
        self.plain_because = plain_because
        self.number = next(_numbers)
        self._module = module
        self._paths = tuple(paths)
        self._runner = runner
        self._options = _options_for(origin.part, options)
        self._fullgraph = fullgraph
        memory, most = options.graph_memory, options.max_cuda_graphs
        self._graphs = GraphStore(
            most, None if memory is None else amount(memory, "bytes", "graph_memory")
        )
        self._itself = _itself(module, origin.name)
        self._eager = EagerCalls(
            self._itself, Programs(self._graphs.promise), fullgraph, remedy=_REMEDY
        )
        self._refused = refused
        self._take = take or taken_over
        self._demanded = demanded
        self._check: Callable[[Sequence[int]], bool] | None = None
        draws = options.randomness == "any"
        verifier = Verifier(
            origin.name, self._itself, options.verify, self._discard, self._find, draws=draws
        )
        self._verifier = verifier if options.verify else None
        self._traces = 0
        self._trace_ms = 0.0
        self._entry: Entry | None = None
        self._read: Callable[[Sequence[Any]], tuple[int, ...]] = _nothing
        self._serve: Boxed = self._first
        if not plain_because:
            self._take_over()

    def boxed(self) -> Boxed:
        """Return the function that serves calls on a list; it keeps this object alive."""

        def serve(args: list[Any]) -> Any:
            self.calls += 1
            return past_users_modes(self._serve, args) if function_modes() else self._serve(args)

        serve._boxed_call = True  # type: ignore[attr-defined]  # what AOTAutograd looks for
        return serve

    def plainly(self) -> Callable[..., Any]:
        """Return the function that serves calls on separate arguments; it keeps this object
        alive.
        """

        def serve(*args: Any) -> Any:
            self.calls += 1
            return (
                past_users_modes(self._serve, list(args))
                if function_modes()
                else self._serve(list(args))
            )

        return serve

    def as_dynamo_made_it(self) -> Callable[..., Any]:
        """Return a function that calls the graph as Dynamo made it."""
        run = as_it_came(self._module)

        def serve(*args: Any) -> Any:
            self.plain += 1
            return run(*args)

        return serve

    def __call__(self, *args: Any) -> Any:
        """Return the graph's results."""
        return self.plainly()(*args)

    # -- ways to serve a call
    def _first(self, args: list[Any]) -> Any:
        """Serve the first call since the program was forgotten: make the program first."""
        alive.add(self)
        self._take_over()
        return self._serve(args)

    def _as_it_is(self, error: Exception, seconds: float) -> Boxed:
        place = "" if "(at " in str(error) else self.origin.line()
        refusal = self._eager.refused((), (), error, seconds, state=None, place=place)
        return lambda args: self._eager.run(refusal, self._itself, tuple(args), {})

    def _refused_by_op(self, args: list[Any]) -> Any:
        """Run the graph eagerly for a call whose sizes an op of the program refuses, to raise what
        eager raises.
        """
        assert self._entry is not None
        program, values = self._entry.program, self._read(args)
        known = dict(zip(program.positions, values, strict=True))
        broken = next(guard for guard in self._demanded if not guard.holds(known))
        text = broken.text({name: source.text() for name, source in program.sources.items()})
        error, place = ProgramError(f"{text} does not hold"), str(broken.origin)
        refusal = self._eager.refused(broken, values, error, 0.0, state=None, place=place)
        return self._eager.run(refusal, self._itself, tuple(args), {})

    def _verified(self, args: list[Any]) -> Any:
        """Serve a call with verification: a sample of the calls is compared with the eager
        graph.
        """
        assert self._verifier is not None
        leaves = tuple(args)
        entry, values, _ = self._find(leaves, {})
        if self._check is not None and not self._check(values):
            return self._refused_by_op(args)
        return self._verifier.serve(entry, entry.run, leaves, values, leaves, {})

    def _find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found:
        """Return the program (made again if it was discarded), the integers of a call, and its
        leaves.
        """
        if self._entry is None:
            self._take_over()
        assert self._entry is not None
        return self._entry, self._read(args), args

    # -- the program
    def _take_over(self) -> None:
        """Make a program of the graph, or record why none can be made.

        Raises:
            UnsupportedError: none can be made, and ``fullgraph`` was asked for.
        """
        start = time.perf_counter()
        if self._refused is not None:
            self._serve = self._as_it_is(self._refused, 0.0)
            return
        try:
            program, boxed = self._take(self._module, self.origin.name, self._paths)
        except Exception as error:  # any error: Dynamo's graph can still run
            if self._fullgraph:
                raise
            self._serve = self._as_it_is(error, time.perf_counter() - start)
            return
        name, runner = make_runner(self._runner, program, self._graphs, self._options)
        self._entry = Entry(self._traces, program, name, runner, builder(program.graph.output_tree))
        self._traces += 1
        self._trace_ms += program.milliseconds
        self._graphs.promise.spend(program.milliseconds)
        sources = [slot.source for slot in program.slots]
        run = boxed if name == "eager" else runner.run
        self._check = _check_of(program, self._demanded)
        self._read, eager = _generated(sources, self._paths, run, self._check, self._refused_by_op)
        self._serve = self._placing(eager if self._verifier is None else self._verified)
        events.emit(
            events.Traced(self.origin.name, len(program.graph.nodes), 0, program.milliseconds)
        )

    def _placing(self, serve: Boxed) -> Boxed:
        """Return a function for the program's first call: warnings of its kernels cite the user's
        lines, in later calls too if the first one warned.
        """

        def placed(args: list[Any]) -> Any:
            with kernels_as_in_eager(self._module):
                return serve(args)

        def first(args: list[Any]) -> Any:
            with kernels_as_in_eager(self._module) as kernels:
                try:
                    return serve(args)
                finally:
                    if self._serve is first:
                        self._serve = placed if kernels.told else serve

        return first

    def run_by(self, name: str, runner: Runner, serve: Boxed) -> None:
        """Let another runner serve the program from now on; ``serve`` is its quickest function."""
        if self._entry is None:
            self._serve = serve
            return
        self._entry.runner_name = name
        self._entry.use(runner)
        if self._verifier is None:
            self._serve = serve

    def _discard(self, entry: Entry) -> None:
        if self._entry is entry:
            self.reset()

    # -- looking at it
    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return the program as an entry, where there is one."""
        return () if self._entry is None else (self._entry,)

    @property
    def op_by_op(self) -> bool:
        """Return whether the program exists and runs op by op, neither recorded nor compiled."""
        return self._entry is not None and self._entry.runner_name == "eager"

    def stats(self) -> Stats:
        """Return counters and times so far."""
        return stats_of(
            self._eager,
            self._graphs,
            self._verifier,
            self._trace_ms,
            calls=self.calls + self.plain,
            traces=self._traces,
            hits=self.calls - self._eager.fallbacks,
            misses=0,
            evictions=0,
            entries=len(self.entries),
            dispatch_us=None,
            plain=self.plain,
        )

    def outline(self) -> tuple[int, tuple[str, ...]]:
        """Return how many calls a graph of Dynamo's has, and the sizes that vary in it, each with
        its place.
        """
        known = [
            node.meta.get("example_value")
            for node in self._module.graph.nodes
            if node.op == "placeholder"
        ]
        calls = sum(node.op.startswith("call_") for node in self._module.graph.nodes)
        try:
            symbols = Sizes(known, self._paths).env.symbols.values()
        except UnsupportedError:  # a size that is no integer
            return calls, ()
        return calls, tuple(
            f"{each.name} = {each.sources[0].text()}" for each in symbols if each.sources
        )

    def explain_fallback(self) -> str:
        """Return which calls ran the graph eagerly, and why."""
        return self._eager.explain(self.calls)

    def explain_plain(self) -> str:
        """Return which calls ran the graph as Dynamo made it, and why; empty if none did."""
        told = f"{self.plain} of {self.calls + self.plain} calls ran Dynamo's own graph"
        return f"{told}: {self.plain_because} (Options.plain_calls)" if self.plain else ""

    def reset(self) -> None:
        """Forget the program and its CUDA graphs; the next call makes the program again."""
        entry, self._entry, self._serve = self._entry, None, self._first
        if entry is not None:
            entry.runner.release()
        self._graphs.clear()

    def __repr__(self) -> str:
        served = (
            self._entry.runner.describe() if self._entry is not None else "run as Dynamo made it"
        )
        return f"<DynamoGraph {self.origin.name}: {self.calls} calls, {served}>"


def _options_for(part: str, options: Options) -> Options:
    """Return options without lent outputs, except for inference: saved tensors and gradients
    outlive the next call.
    """
    return options if part == "inference" else attrs.evolve(options, outputs="copy")


def as_it_came(module: torch.fx.GraphModule) -> Callable[..., Any]:
    """Return a runner of Dynamo's graph outside the user's torch function modes, which Dynamo has
    applied already.
    """
    forward = _forward(module)

    def run(*args: Any) -> Any:
        return (
            past_users_modes(lambda given: forward(*given), args)
            if function_modes()
            else forward(*args)
        )

    return run


def _itself(module: torch.fx.GraphModule, name: str) -> Callable[..., list[Any]]:
    """Return a function that runs the graph eagerly, under a name for people."""
    forward = _forward(module)

    def run(*args: Any) -> list[Any]:
        return list(forward(*args))

    run.__qualname__ = name
    return run


def _forward(module: torch.fx.GraphModule) -> Callable[..., Any]:
    """Return the function of a graph; a call of the module itself prints each error besides raising
    it.
    """
    getattr(
        module, "real_recompile", lambda: None
    )()  # else a lazy module's function calls the module
    return module.forward


def _nothing(leaves: Sequence[Any]) -> tuple[int, ...]:
    return ()


def _check_of(
    program: Program, demanded: Sequence[Guard]
) -> Callable[[Sequence[int]], bool] | None:
    """Return a function that checks the integers of a call; None where there are no conditions."""
    if not demanded:
        return None
    names = list(program.positions)
    return compile_check(GuardSet(demanded, dict.fromkeys(names, (None, None))), names).check


def _generated(
    sources: Sequence[Source],
    paths: Sequence[str],
    run: Run,
    check: Callable[[Sequence[int]], bool] | None = None,
    otherwise: Boxed | None = None,
) -> tuple[Callable[[Sequence[Any]], tuple[int, ...]], Boxed]:
    """Return a function that reads a call's integers, and one that runs the call with them:
    straight-line code.

    For integers that fail ``check``, ``otherwise`` serves the call.
    """
    values = "".join(f"{_reading(source, paths)}, " for source in sources)
    asked = "" if check is None else "    if not check(values):\n        return otherwise(args)\n"
    source = (
        # positions and numbers only: no text from the user
        f"def read(args):\n    return ({values})\n\n"
        f"def serve(args):\n    values = ({values})\n{asked}    return run(args, values)\n"
    )
    namespace: dict[str, Any] = {"run": run, "check": check, "otherwise": otherwise}
    serve = generated_function(source, "serve", "symshape call", namespace)
    return namespace["read"], serve


def _reading(source: Source, paths: Sequence[str]) -> str:
    leaf = f"args[{paths.index(source.arg)}]"
    if isinstance(source, IntArg):
        return leaf
    if isinstance(source, StorageOffset):
        return f"{leaf}.storage_offset()"
    return f"{leaf}.{'size' if isinstance(source, Size) else 'stride'}({source.dim})"


alive: weakref.WeakSet[DynamoGraph] = weakref.WeakSet()
"""The graphs that are in use."""
