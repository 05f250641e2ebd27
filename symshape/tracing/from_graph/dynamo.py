"""A graph of Dynamo's without gradients as a program: torch's functions in it run once on symbolic
tensors.

Dynamo's graph calls torch as the user's program does, so the result is what
:mod:`symshape.tracing.capture` makes of that program. Functions that are one kernel in eager stay
one call, and nothing is copied to make the graph functional.

Dynamo's guards state everything that was assumed of the sizes. They are facts here and are not
checked again. A graph in which they do not decide our rules' questions is refused. So is a graph
that writes to its arguments: Dynamo's guards do not say whether these overlap. AOTAutograd
decomposes such graphs. A condition without which an op raises can be checked in each call:
attention needs as many keys as values, which Dynamo's fake tensors do not check.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from guards.sets.guard import Guard
from symshape.calls.arguments import LeafKey, refused_tensor
from symshape.errors import Problem, Reason, UnsupportedError, refusals_noted
from symshape.graph.codegen import Run
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.program import Program
from symshape.graph.steps import Input, Node, Step, values_in, written_values
from symshape.torch_internals import pytree
from symshape.torch_internals.dispatch import DisableTorchFunction
from symshape.torch_internals.dynamo import FakeTensor, guard_scalar
from symshape.tracing.capture import between_traces
from symshape.tracing.data.number_questions import COMPARE
from symshape.tracing.from_graph.aot_autograd import key_of, program_of
from symshape.tracing.from_graph.fx_sizes import Sizes
from symshape.tracing.global_state import generators_put_back
from symshape.tracing.intercept.python_warnings import nodes_as_in_eager
from symshape.tracing.outputs import outputs_of, steps_for
from symshape.tracing.restart import Restart
from symshape.tracing.run import symbols_in_use
from symshape.tracing.state.instrument.hooks import tell
from symshape.tracing.state.undo.grad_fields import Gradients
from symshape.tracing.symbolic.nodes.environment import Data
from symshape.tracing.tracer import Tracer
from symshape.user_code import at, location_in

_ITEM = torch.ops.aten._local_scalar_dense.default
_KNOWN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)


def retraced(
    module: torch.fx.GraphModule,
    name: str,
    paths: Sequence[str],
    demanded: list[Guard] | None = None,
) -> tuple[Program, Run]:
    """Return the program of a graph whose arguments Dynamo knows (``meta["example_value"]``), and
    its runner on a list.

    Args:
        module: the graph; each argument is a tensor, a size or a constant, and none needs
            gradients.
        name: the program's name, for people.
        paths: the arguments' names, for people.
        demanded: takes the conditions to check before a call is served; for other calls the graph
            raises an error. None: no conditions can be checked, and a graph that needs one is
            refused.

    Raises:
        UnsupportedError: it changes torch's modes, writes to its arguments, or asks what Dynamo's
            guards do not say.
        Exception: any other error of code that does not accept symbolic tensors.
    """
    start = time.perf_counter()
    known = [
        node.meta.get("example_value") for node in module.graph.nodes if node.op == "placeholder"
    ]
    for each, path in zip(known, paths, strict=True):
        refused = refused_tensor(each, path, _KNOWN) if isinstance(each, torch.Tensor) else ""
        if refused:
            raise UnsupportedError(refused, reason=Reason.DYNAMO_GRAPH)
    sizes = Sizes(known, paths)
    for guard in sizes.guards():
        sizes.env.facts = sizes.env.facts.assume(guard.term)
    tracer = Tracer(sizes.env)
    sizes.env.may_begin_again = lambda: False  # a Dynamo frame cannot be run again
    sizes.env.data = numbers = _Numbers(tracer)
    leaves, inputs = _arguments(tracer, sizes, known, paths)
    numbers.leaves = {
        id(leaf): each for leaf, each in zip(leaves, known, strict=True) if _is_number(each)
    }
    outputs, tree = run_graph_on_symbols(module, tracer, leaves, numbers)
    steps = numbers.without_unread(steps_for(tracer, outputs), outputs)
    tracer.own.forget()
    read = {value for step in steps if isinstance(step, Node) for value in step.reads} | set(
        values_in(outputs)
    )
    held = {leaf._value for leaf in leaves if id(leaf) in numbers.leaves}
    # floats are on the CPU
    inputs = [each for each in inputs if each.value in read or each.value not in held]
    graph = Graph(tuple(inputs), tuple(tracer.lifting.lifted.values()), steps, outputs, tree)
    asked = _demanded(tracer, sizes, demanded)
    _refuse(tracer, graph)
    tracer.lifting.let_go()
    keys: list[LeafKey] = [key_of(each) for each in known]
    return program_of(graph, name, paths, keys, sizes, start, asked, has_casts=True)


def _arguments(
    tracer: Tracer, sizes: Sizes, known: Sequence[Any], paths: Sequence[str]
) -> tuple[list[Any], list[Input]]:
    """Return the leaves that the graph gets in place of its arguments, and the tensor inputs of our
    graph.
    """
    leaves: list[Any] = []
    inputs: list[Input] = []
    for position, each in enumerate(known):
        if isinstance(each, torch.Tensor):
            tensor = tracer.input_tensor(sizes.spec(each), False)
            inputs.append(Input(position, paths[position], tensor._value))
            leaves.append(tensor)
        elif isinstance(each, torch.SymInt):
            leaves.append(sizes.env.nodes.int_node(sizes.term(each)).symint)
        else:
            leaves.append(each)
    return leaves, inputs


class _Numbers(Data):
    """The floats of Dynamo's frame, which are passed as tensors of one element, whose values Dynamo
    may guard.

    Attributes:
        leaves: Dynamo's fake tensors for them, by id of the tensors that stand for them.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.leaves: dict[int, Any] = {}
        self._read: dict[int, Any] = {}
        self._known: dict[str, Any] = {}

    def item(self, tensor: Any) -> Any:
        """Return the number that a tensor holds if Dynamo made the tensor of a float; else None."""
        if id(tensor) not in self.leaves:
            return None
        if id(tensor) not in self._read:
            number = self._read[id(tensor)] = self._tracer.dispatch(_ITEM, (tensor,), {})
            self._known[number.node.term.symbol] = self.leaves[id(tensor)]
        return self._read[id(tensor)]

    def is_argument(self, term: FloatTerm | float) -> bool:
        """Return whether a float is one of these numbers, or made of them."""
        return (
            isinstance(term, FloatTerm)
            and bool(term.unbacked())
            and term.unbacked() <= self._known.keys()
        )

    def decide(
        self, relation: str, left: FloatTerm | float, right: FloatTerm | float
    ) -> bool | None:
        """Return the answer in Dynamo's example, which Dynamo then guards; None if other numbers
        are compared.
        """
        terms = [each for each in (left, right) if isinstance(each, FloatTerm)]
        if not all(self.is_argument(each) and not each.symbols() for each in terms):
            return None
        return bool(COMPARE[relation](self._theirs(left), self._theirs(right)))

    def _theirs(self, number: FloatTerm | float) -> Any:
        """Return a number as Dynamo has it: computing with it or comparing it leaves Dynamo's
        guards.
        """
        memos = {name: _memo(each) for name, each in self._known.items()}
        return number.evaluate({}, memos) if isinstance(number, FloatTerm) else number

    def fixed(self, term: FloatTerm) -> Mapping[str, float] | None:
        """Return the values of the numbers in a term, which Dynamo then guards; None if the term
        has other numbers.
        """
        if not self.is_argument(term):
            return None
        return {name: float(guard_scalar(_memo(self._known[name]))) for name in term.unbacked()}

    def without_unread(self, steps: Sequence[Step], outputs: Sequence[Any]) -> tuple[Step, ...]:
        """Return the steps without those that read an unused number."""
        numbers = [
            *outputs,
            *(each for step in steps if isinstance(step, Node) for each in step.numbers),
        ]
        used = {name for each in numbers if isinstance(each, FloatTerm) for name in each.unbacked()}
        unread = self._known.keys() - used
        return tuple(
            step
            for step in steps
            if not (
                isinstance(step, Node) and step.op is _ITEM and step.bindings[0].symbol in unread
            )
        )


def _memo(known: Any) -> Any:
    """Return the number that Dynamo made a tensor of.

    From torch 2.14 on its look-up reads the tensor's version, which a trace would refuse as a read
    of the program's.
    """
    with DisableTorchFunction():
        return known.item_memo


def _is_number(known: Any) -> bool:
    """Return whether Dynamo made a tensor of a float (``item_memo``, a private name: checked on
    2.11 to 2.13).
    """
    plain = isinstance(known, FakeTensor) and known.dtype is torch.float64 and not known.dim()
    return plain and isinstance(getattr(known, "item_memo", None), torch.SymFloat)


@between_traces
def run_graph_on_symbols(
    module: torch.fx.GraphModule, tracer: Tracer, leaves: Sequence[Any], numbers: _Numbers
) -> tuple[tuple[Any, ...], Any]:
    """Return the flat results of the graph, and their structure."""
    problems: list[Problem] = []
    try:
        with (
            generators_put_back(),
            refusals_noted() as refusals,
            symbols_in_use(tracer, Gradients(tell), _attends, problems),
            nodes_as_in_eager(),
        ):
            result = _Interpreter(module, numbers).run(*leaves, enable_io_processing=False)
        if refusals:
            raise refusals[0]
        if problems:
            raise UnsupportedError(problems[0].text, reason=problems[0].reason)
        roots = tracer.arguments | {each.value for each in tracer.lifting.lifted.values()}
        outputs, _, tree = outputs_of(tracer, list(pytree.tree_leaves(result)), roots)
    except Restart as wanted:  # a graph of Dynamo's is traced once, with one setting
        raise wanted.refused("a graph of Dynamo's") from wanted.__cause__
    finally:
        tracer.close()
    return outputs, tree


class _Interpreter(torch.fx.Interpreter):
    """An interpreter that runs a graph node by node, at the user's line that Dynamo recorded."""

    def __init__(self, module: torch.fx.GraphModule, numbers: _Numbers) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._numbers = numbers

    def run_node(self, n: torch.fx.Node) -> Any:
        with at(location_in(n.stack_trace)):
            if n.op == "call_method" and n.target == "item":
                number = self._numbers.item(self.env[n.args[0]])  # type: ignore[index]
                if number is not None:
                    return number
            return super().run_node(n)


def _attends(device: torch.device) -> None:
    """Do nothing: this graph chooses the kernel of fused attention when it runs."""


def _demanded(tracer: Tracer, sizes: Sizes, demanded: list[Guard] | None) -> Sequence[Guard]:
    """Collect the conditions that Dynamo's guards leave open, to check them in each call.

    Raises:
        UnsupportedError: a condition cannot be checked, or a call that fails it would not raise.
    """
    told = {slot.term for slot in sizes.slots}
    for guard in tracer.env.guards:
        if demanded is None or guard not in tracer.env.demanded or not guard.term.symbols <= told:
            raise UnsupportedError(
                f"Dynamo's guards leave open whether {guard}", reason=Reason.DYNAMO_GRAPH
            )
        demanded.append(guard)
    return tracer.env.guards


def _refuse(tracer: Tracer, graph: Graph) -> None:
    """Raise an error if the graph does not serve every call that Dynamo lets through."""
    if tracer.questions:
        raise UnsupportedError(
            "the graph depends on a property of its arguments that Dynamo's guards do not fix",
            reason=Reason.DYNAMO_GRAPH,
        )
    if any(each.tensor.requires_grad for each in graph.lifted) and torch.is_grad_enabled():
        raise UnsupportedError(
            "a tensor that the graph reads requires gradients", reason=Reason.DYNAMO_GRAPH
        )
    outside = {id(each.value.storage) for each in graph.inputs} | {
        id(each.value.storage) for each in graph.lifted
    }
    for node in graph.nodes:
        if any(id(each.storage) in outside for each in written_values(node)):
            raise UnsupportedError("the graph writes to its arguments", reason=Reason.DYNAMO_GRAPH)
        if node.grad is not None or node.inference is not None:
            raise UnsupportedError(
                "the graph changes torch's modes on its way", reason=Reason.DYNAMO_GRAPH
            )
