"""Symbolic propagation: ours against FakeTensorMode with a symbolic ShapeEnv, on the models of
``tests/models.py``.

Every size of every input is symbolic in both, parameters are static in both, nothing is computed.

- *whole trace*: the model run from its Python code.  Theirs is the run alone, on inputs and
  parameters made fake before; ours is ``symshape.trace``, which also writes the graph down,
  minimises the guards and generates code.
- *ops alone*: the traced ATen ops one by one, the same list for both, on symbolic inputs made
  before; sizes among the arguments are made before, too.

Figures are CPU time.  Each round starts in a fresh environment, in turn between the two; the median
is over rounds after the first, so caches that outlive an environment (SymPy's, FakeTensor's, our
terms, compiled source) are warm. A figure per op divides by eager's ATen ops.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._python_dispatch import TorchDispatchMode

import symshape
from guards.terms import fold
from symshape.calls.arguments import flatten_call, sources_of, values_of
from symshape.dims import Policy
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Value, map_argument
from symshape.tracing.mode import TracingMode
from symshape.tracing.symbolic.env import ShapeEnv as OurEnv
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.tracing.traced_modes import compiling
from symshape.tracing.tracer import Tracer
from tests.bench.report import Report, bench_parser
from tests.models import MODELS, Arguments, Model

Round = Callable[[], float]
"""One measurement in a fresh environment: seconds of CPU time."""


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops += 1
        return func(*args, **(kwargs or {}))


def eager_ops(model: torch.nn.Module, call: Arguments) -> int:
    """The ATen ops of one eager call."""
    with _Counter() as counter, compiling():
        model(**call)
    return counter.ops


def fake_mode() -> FakeTensorMode:
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


def fake(mode: FakeTensorMode, tensor: torch.Tensor, dynamic: bool) -> torch.Tensor:
    kind = DimDynamic.DYNAMIC if dynamic else DimDynamic.STATIC
    made: torch.Tensor = mode.from_tensor(
        tensor, symbolic_context=StatelessSymbolicContext(dynamic_sizes=[kind] * tensor.dim())
    )
    return made


def their_trace(model: torch.nn.Module, call: Arguments) -> Round:
    """The model's own code on fake tensors."""

    def measure() -> float:
        mode = fake_mode()
        fakes = {name: fake(mode, tensor, True) for name, tensor in call.items()}
        state = {
            name: fake(mode, each, False)
            for name, each in (*model.named_parameters(), *model.named_buffers())
        }
        with torch.no_grad(), mode, compiling():
            start = process_time()
            torch.func.functional_call(model, state, kwargs=fakes)
            return process_time() - start

    return measure


def our_trace(model: torch.nn.Module, call: Arguments) -> Round:
    """``symshape.trace``, all of it."""

    def measure() -> float:
        with torch.no_grad():
            start = process_time()
            symshape.trace(model, **call)
            return process_time() - start

    return measure


def their_ops(graph: Graph, call: Arguments) -> Round:
    """The graph's ops on fake tensors."""
    leaves = list(call.values())

    def measure() -> float:
        mode = fake_mode()
        values: dict[Value, Any] = {}
        symbols: dict[str, Any] = {}
        for each in graph.inputs:
            made = values[each.value] = fake(mode, leaves[each.position], True)
            for size, theirs in zip(each.value.spec.sizes, made.shape, strict=True):
                if isinstance(size, IntNode):
                    symbols.setdefault(size.term.name, theirs)
        values |= {each.value: fake(mode, each.tensor, False) for each in graph.lifted}
        sizes = Sizes(symbols)
        prepared = [(node, *sizes.of(node)) for node in graph.nodes]
        with torch.no_grad(), mode, compiling():
            return seconds_of(prepared, values)

    return measure


def our_ops(graph: Graph, model: torch.nn.Module, call: Arguments) -> Round:
    """The graph's ops on our symbolic tensors, through the tracer, rules, facts and guards."""
    taken = flatten_call(model, (), call)
    sources = dict(zip(sources_of(taken), values_of(taken.leaves, taken.keys), strict=True))

    def measure() -> float:
        env = OurEnv()
        tracer = Tracer(env)
        values: dict[Value, Any] = {}
        symbols: dict[str, Any] = {}
        pairs = iter(sources.items())
        for each in graph.inputs:
            nodes = []
            for size in each.value.spec.sizes:
                source, hint = next(pairs)
                assert isinstance(size, IntNode)
                nodes.append(env.new_symbol(size.term.name, hint, source, Policy.AUTO))
                symbols[size.term.name] = nodes[-1].symint
            spec = each.value.spec.contiguous(
                tuple(nodes), each.value.spec.dtype, each.value.spec.device
            )
            values[each.value] = SymbolicTensor.make(spec, tracer.new_value(spec), tracer)
        values |= {each.value: each.tensor for each in graph.lifted}
        sizes = Sizes(symbols)
        prepared = [(node, *sizes.of(node)) for node in graph.nodes]
        with torch.no_grad(), compiling(), TracingMode(tracer):
            return seconds_of(prepared, values)

    return measure


def seconds_of(
    prepared: Sequence[tuple[Node, tuple[Any, ...], dict[str, Any]]], values: dict[Value, Any]
) -> float:
    """Runs nodes one after the other: the seconds spent in their ops."""
    seconds = 0.0
    for node, args, kwargs in prepared:
        args, kwargs = filled(args, kwargs, values)
        start = process_time()
        result = node.op(*args, **kwargs)
        seconds += process_time() - start
        bind(node, result, values)
    return seconds


class Sizes:
    """Sizes among the arguments of nodes, in a tracer's own symbolic numbers."""

    def __init__(self, symbols: dict[str, Any]) -> None:
        self._symbols = symbols
        self._made: dict[Any, Any] = {}

    def of(self, node: Any) -> tuple[Any, dict[str, Any]]:
        """A node's arguments with sizes made; tensors are still values."""
        args = tuple(map_argument(arg, self._size) for arg in node.args)
        return args, {name: map_argument(arg, self._size) for name, arg in node.kwargs.items()}

    def _size(self, leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return leaf
        if isinstance(leaf, FloatTerm):
            raise NotImplementedError("a float of sizes")
        if leaf not in self._made:
            self._made[leaf] = fold.evaluate(leaf, self._symbols)
        return self._made[leaf]


def filled(
    args: Any, kwargs: dict[str, Any], values: dict[Value, Any]
) -> tuple[Any, dict[str, Any]]:
    def tensor(leaf: Any) -> Any:
        return values[leaf] if isinstance(leaf, Value) else leaf

    return tuple(map_argument(arg, tensor) for arg in args), {
        k: map_argument(v, tensor) for k, v in kwargs.items()
    }


def bind(node: Any, result: Any, values: dict[Value, Any]) -> None:
    for output, made in zip(node.outputs, (result,) if node.single else result, strict=False):
        if output is not None:
            values[output] = made  # noqa: PERF403


def in_turn(ours: Round, theirs: Round, rounds: int) -> tuple[float, float]:
    """Median seconds of both, after one round that warms caches."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for measure, found in zip((ours, theirs), taken, strict=True):
            gc.collect()
            gc.disable()
            try:
                seconds = measure()
            finally:
                gc.enable()
            if number or rounds == 0:
                found.append(seconds)
    return statistics.median(taken[0]), statistics.median(taken[1])


def main(argv: Sequence[str] | None = None) -> Report:
    """Measures every model."""
    parser = bench_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds after the first (default: 5)")
    args = parser.parse_args(argv)
    rounds = 1 if args.smoke else args.rounds
    torch.set_num_threads(1)
    report = Report("propagation")
    columns = ("model", "eager ops", "ours µs an op", "FakeTensor µs an op", "ratio")
    whole = report.table("whole trace", *columns)
    alone = report.table("ops alone", *columns)
    ratios: tuple[list[float], list[float]] = ([], [])
    chosen: list[Model] = [each for each in MODELS if "mask" not in each.name][
        : 2 if args.smoke else None
    ]
    for each in chosen:
        model = each.build()
        call = each.call(3, 17)
        with torch.no_grad():
            count = eager_ops(model, call)
            graph = symshape.trace(model, **call).graph
        pairs = (
            (our_trace(model, call), their_trace(model, call)),
            (our_ops(graph, model, call), their_ops(graph, call)),
        )
        for table, found, (ours, theirs), ops in zip(
            (whole, alone), ratios, pairs, (count, len(graph.nodes)), strict=True
        ):
            try:
                mine, other = in_turn(ours, theirs, rounds)
            except Exception as error:  # a peer that cannot run a model is a row that says so
                table.row(
                    f"{each.name}: {type(error).__name__}: {str(error)[:80]}", ops, None, None, None
                )
                continue
            table.row(each.name, ops, mine / ops * 1e6, other / ops * 1e6, other / mine)
            found.append(other / mine)
    for name, found in zip(("whole trace", "ops alone"), ratios, strict=True):
        report.goal(
            f"{name}: FakeTensor / ours, median model", statistics.median(found), at_least=10.0
        )
        report.goal(f"{name}: FakeTensor / ours, worst model", min(found), at_least=10.0)
    report.note(
        "our whole trace includes graph, minimised guards and generated code; theirs is the run "
        "alone"
    )
    return report
