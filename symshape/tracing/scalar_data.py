"""Numbers that a program reads from tensors of one element: their values in the example call, and questions about them.

A float argument that varies, a counter of an optimiser's steps, a rate kept in a tensor: the program computes with
their values when it runs.  Where it branches on one, the branch of the example call is taken, and the answer
becomes a question that each later call is asked (:class:`symshape.calls.questions.Question`): its few ops on single
numbers are repeated before the call.  Numbers that come of more than that (a loss) are known only when it runs.

Floats that are made of integer arguments (a counter of epochs over their number) are asked for in the same way, where
they are no exact ratios and a guard could not speak of them.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import torch
from torch.utils import _pytree as pytree

from guards.terms.term import Term
from symshape.calls.floats import FloatLeaf
from symshape.calls.questions import ABSENT, DATA, Question
from symshape.errors import UnsupportedError
from symshape.graph.codegen import Run, compile_graph
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.new_steps import NewSteps
from symshape.graph.steps import BATCH_NORM, Input, Node, Step, Value, map_argument, written_values
from symshape.tracing.lifting import Lifting, outside_modes
from symshape.tracing.symbolic.env import ShapeEnv

COMPARE: dict[str, Callable[[float, float], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
"""The relations that are asked for."""
_MOST = 4096
"""Comparisons of one trace that calls are asked for."""
Number = FloatTerm | float


class _Unknown(Exception):
    """A number that only a run can tell."""


class DataTrace(Protocol):
    """What is needed of a tracer here."""

    env: ShapeEnv
    steps: list[Step]
    lifting: Lifting
    originals: dict[Value, tuple[int, torch.Tensor]]

    def note(self, question: Question, leaf: Any) -> Hashable:
        """The answer to a question about an argument."""


@attrs.frozen(eq=False)
class _Root:
    """A tensor that was there before the program: the position of an argument, or the tensor itself.

    ``is_given_tensor``: it is an argument, and no float.
    """

    where: int | torch.Tensor
    dtype: torch.dtype
    is_given_tensor: bool = False


class ScalarData:
    """The numbers of one trace, computed beside it on copies of the tensors that they come from.

    Args:
        trace: what is traced.
        arguments: by symbol, float arguments: their positions among the leaves of the call, and these leaves.
        integers: by symbol, integer arguments: their positions among the leaves of the call.
    """

    def __init__(
        self, trace: DataTrace, arguments: Mapping[str, tuple[int, torch.Tensor]], integers: Mapping[str, int]
    ) -> None:
        self._trace = trace
        self._arguments = arguments
        self._integers = integers
        self._floats: dict[str, float] = {}
        self._roots: dict[Value, _Root] = {}
        self._known: dict[int, dict[Value, torch.Tensor]] = {}  # by ids of storages
        self._lost: set[int] = set()  # ids of storages
        self._written: set[int] = set()  # so too
        self._ran: list[Node] = []
        self._asked: dict[str, tuple[str, Number, Number, bool]] = {}
        self._new = NewSteps(trace.steps)
        self._given = _memories(each for _, each in trace.originals.values())

    def is_argument(self, term: Number) -> bool:
        """Whether a number depends on data, and on that of float arguments alone; or on integer arguments alone."""
        if not isinstance(term, FloatTerm):
            return False
        names = term.unbacked()
        return all(name in self._arguments for name in names) if names else self._is_of_integers(term)

    def _is_of_integers(self, term: FloatTerm) -> bool:
        return all(symbol.name in self._integers for symbol in term.symbols())

    def decide(self, relation: str, left: Number, right: Number) -> bool | None:
        """The answer to a comparison in the example call, which later calls are asked for; None: only a run can tell.

        Raises:
            ArithmeticError, ValueError: what the program raises that computes these numbers.
        """
        terms = [each for each in (left, right) if isinstance(each, FloatTerm)]
        if not terms or not all(map(self._is_of_integers, terms)) or len(self._asked) >= _MOST:
            return None
        whole = [each.args[0] for each in terms if each.op == "from_int" and isinstance(each.args[0], Term)]
        if not all(map(self._trace.env.exact_as_float, whole)):
            return None  # Python compares an integer with a float exactly
        key = f"{relation} {left} {right}"  # which tells 0.0 from -0.0
        if key not in self._asked:
            self._catch_up()
            if any(name not in self._floats for each in terms for name in each.unbacked()):
                return None
            answer = COMPARE[relation](self._value(left), self._value(right))
            self._asked[key] = relation, left, right, answer
        return self._asked[key][-1]

    def fixed(self, term: FloatTerm) -> Mapping[str, float] | None:
        """The values of the float arguments in a term, which are constants of the program from now on; None: others."""
        if not self.is_argument(term):
            return None
        found = [(name, *self._arguments[name]) for name in sorted(term.unbacked())]
        with outside_modes(), torch._C.DisableTorchFunction():
            for _, position, leaf in found:
                self._trace.note(Question(position, "number"), leaf)
            return {name: leaf.item() for name, _, leaf in found}

    def questions(self, leaves: Sequence[Any]) -> dict[Question, Hashable]:
        """What every call is asked of comparisons, if there were any, and what this one answers."""
        if not self._asked:
            return {}
        values = self._trace.lifting.tensors.items()
        written = [tensor for value, tensor in values if id(value.storage) in self._written]
        about = Asked.of(self._ran, self._roots, [each[:3] for each in self._asked.values()], written, self._integers)
        question = Question(about.last, DATA, about)
        answer = question.among(leaves)
        if answer != tuple(found for *_, found in self._asked.values()):
            raise UnsupportedError("the program branches on numbers in tensors that change while it is traced")
        return {question: answer}

    # -- computing beside the trace
    def _value(self, term: Number) -> float:
        return term.evaluate(self._trace.env.hints, self._floats) if isinstance(term, FloatTerm) else term

    def _catch_up(self) -> None:
        """Repeats the steps since the last time that compute single numbers, on copies."""
        with outside_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            for node in self._new.nodes():
                ran = self._runs(node)
                for value in written_values(node):
                    self._written.add(id(value.storage))
                    if not ran:
                        self._lose(value.storage)

    def _runs(self, node: Node) -> bool:
        if not is_plain(node):
            return False
        try:
            args = map_argument(node.args, self._real)
            kwargs = {name: map_argument(arg, self._real) for name, arg in node.kwargs.items()}
        except _Unknown:
            return False
        result = node.op(*args, **kwargs)
        for binding in node.bindings:
            self._floats[binding.symbol] = result
        results = (result,) if node.single else tuple(result or ())
        for output, made in zip(node.outputs, results, strict=False):
            if output is not None:
                self._know(output, made)
        self._ran.append(node)
        return True

    def _real(self, leaf: Any) -> Any:
        """What stands for an argument of a node.  Raises ``_Unknown``."""
        if type(leaf) is FloatTerm:
            if leaf.symbols() or any(name not in self._floats for name in leaf.unbacked()):
                raise _Unknown
            try:
                return leaf.evaluate({}, self._floats)
            except (ArithmeticError, ValueError):
                raise _Unknown from None
        if type(leaf) is not Value:
            raise _Unknown
        found = self._known.get(id(leaf.storage), {}).get(leaf)
        return self._root(leaf) if found is None else found

    def _root(self, value: Value) -> torch.Tensor:
        where: Any = None
        tensor = self._trace.lifting.tensors.get(value)
        if tensor is not None:
            where = tensor
        elif value in self._trace.originals:
            where, tensor = self._trace.originals[value]
        if tensor is None or not _is_number(value) or id(value.storage) in self._lost:
            raise _Unknown
        if not _are_alone([tensor], self._in_memory):  # a write to another one would be one to it
            raise _Unknown
        self._roots[value] = _Root(where, tensor.dtype, type(where) is int and type(tensor) is not FloatLeaf)
        return self._know(value, tensor.detach().clone())

    def _in_memory(self, memory: int) -> int:
        """How many of the tensors that there are lie in a memory: a write to one is one to all of them."""
        return self._given[memory] + self._trace.lifting.in_memory[memory]

    def _know(self, value: Value, tensor: torch.Tensor) -> torch.Tensor:
        self._known.setdefault(id(value.storage), {})[value] = tensor
        return tensor

    def _lose(self, storage: object) -> None:
        self._lost.add(id(storage))
        self._known.pop(id(storage), None)


def _memories(values: Iterable[Any]) -> Counter[int]:
    """How many of the tensors among certain values lie in each memory; those of ``torch.func`` may lie in any."""
    tensors = {id(each): each for each in values if isinstance(each, torch.Tensor) and each.layout is torch.strided}
    if any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors.values())):
        return _Anywhere()
    return Counter(each.untyped_storage()._cdata for each in tensors.values())


class _Anywhere(Counter[int]):
    """Others lie in each memory."""

    def __missing__(self, memory: int) -> int:
        return 2


def _are_alone(tensors: Iterable[torch.Tensor], count: Callable[[int], int]) -> bool:
    """Whether tensors of one number lie in memory of their own, in which no other one of those counted does."""
    memory = [(each.untyped_storage(), each.element_size()) for each in tensors]
    return all(each.nbytes() == size and count(each._cdata) == 1 for each, size in memory)


def _is_number(value: Value) -> bool:
    spec = value.spec
    return not spec.sizes and spec.device.type == "cpu" and not spec.dtype.is_complex


def is_plain(node: Node) -> bool:
    """Whether a node computes single numbers on the CPU, the same in each run, and nothing else."""
    op = node.op
    return (
        op.namespace == "aten"
        and torch.Tag.nondeterministic_seeded not in op.tags
        and op._schema.name not in BATCH_NORM
        and node.leaves is None
        and not op._schema.name.startswith(("aten::empty", "aten::set_", "aten::resize"))
        and all(binding.kind == "float" for binding in node.bindings)
        and all(_is_number(each) for each in node.reads)
        and all(each is None or _is_number(each) for each in node.outputs)
        and bool(node.bindings or any(node.outputs) or op._schema.is_mutable)
    )


@attrs.frozen(eq=False)
class Asked:
    """Comparisons of numbers in tensors, for the leaves of a call.

    Two are equal if they ask the same of the same.

    Attributes:
        sources: what numbers are read from: positions among the leaves, or tensors.
        dtypes: of these.
        relations: of the comparisons.
        written: where arguments are read, the tensors outside that the program writes: no argument may be one of them.
        graph: computes the left and the right of each comparison from copies of what is read.
        run: what runs it.
        key: what two of these share only if they ask the same; None if that is not known.
        integers: of integer arguments, the symbols and their positions among the leaves.
    """

    sources: tuple[int | torch.Tensor, ...]
    dtypes: tuple[torch.dtype, ...]
    relations: tuple[str, ...]
    written: tuple[torch.Tensor, ...]
    graph: Graph
    run: Run
    key: Hashable
    integers: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(
        cls,
        ran: Sequence[Node],
        roots: Mapping[Value, _Root],
        asked: Sequence[tuple[str, Number, Number]],
        written: Sequence[torch.Tensor],
        integers: Mapping[str, int],
    ) -> Asked:
        """The comparisons, with the steps that their numbers need, in a program that writes certain tensors."""
        numbers = tuple(term for _, left, right in asked for term in (left, right))
        steps = tuple(_needed(ran, numbers))
        read = dict.fromkeys(value for node in steps for value in node.reads if value in roots)
        inputs = tuple(Input(i, "", value) for i, value in enumerate(read))
        tree = pytree.tree_structure([0] * len(numbers))
        sources = tuple(roots[value].where for value in read)
        dtypes = tuple(roots[value].dtype for value in read)
        relations = tuple(relation for relation, *_ in asked)
        outside = tuple(written) if any(roots[value].is_given_tensor for value in read) else ()
        used = {each.name for term in numbers if isinstance(term, FloatTerm) for each in term.symbols()}
        whole = tuple((name, integers[name]) for name in sorted(used, key=integers.__getitem__))
        return cls.in_graph(Graph(inputs, (), steps, numbers, tree), sources, dtypes, relations, outside, whole)

    @classmethod
    def in_graph(
        cls,
        graph: Graph,
        sources: tuple[int | torch.Tensor, ...],
        dtypes: tuple[torch.dtype, ...],
        relations: tuple[str, ...],
        written: tuple[torch.Tensor, ...],
        integers: tuple[tuple[str, int], ...] = (),
    ) -> Asked:
        """The comparisons of what a graph computes, whose inputs are the sources."""
        run = compile_graph(graph, {name: i for i, (name, _) in enumerate(integers)})
        key = _key(run, graph.nodes, (*sources, *written), dtypes, relations, tuple(each for _, each in integers))
        return cls(sources, dtypes, relations, written, graph, run, key, integers)

    @property
    def last(self) -> int:
        """The last leaf that is read; -1 if none is."""
        return max((*(each for each in self.sources if type(each) is int), *(each for _, each in self.integers), -1))

    def __call__(self, leaves: Sequence[Any]) -> Hashable:
        """The answers; the name of what is raised where a number cannot be computed."""
        given: list[Any] = [leaves[each] if type(each) is int else each for each in self.sources]
        for leaf, dtype in zip(given, self.dtypes, strict=True):
            if not isinstance(leaf, torch.Tensor) or leaf.dtype is not dtype or leaf.dim() or leaf.device.type != "cpu":
                return ABSENT
        numbers = [leaves[each] for _, each in self.integers]
        if any(type(each) is not int for each in numbers) or not self._are_apart(given, leaves):
            return ABSENT
        try:
            with torch.no_grad():
                found = self.run([leaf.detach().clone() for leaf in given], numbers)
        except (ArithmeticError, ValueError) as error:
            return type(error).__name__
        pairs = zip(self.relations, found[::2], found[1::2], strict=True)
        return tuple([COMPARE[relation](left, right) for relation, left, right in pairs])

    def _are_apart(self, given: Sequence[torch.Tensor], leaves: Sequence[Any]) -> bool:
        """Whether what is read lies where nothing else does that the program may write."""
        pairs = [pair for pair in zip(self.sources, given, strict=True) if type(pair[1]) is not FloatLeaf]
        if not pairs:
            return True
        own, arguments = _memories(each for each in self.sources if type(each) is not int), _memories(leaves)
        outside = _memories(self.written) if self.written else own
        return _are_alone(
            (leaf for where, leaf in pairs if type(where) is int), lambda memory: arguments[memory] + outside[memory]
        ) and _are_alone(
            (leaf for where, leaf in pairs if type(where) is not int), lambda memory: own[memory] + arguments[memory]
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Asked and self.key is not None and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.relations)


def _needed(ran: Sequence[Node], numbers: Sequence[Number]) -> list[Node]:
    """The steps that numbers are computed by, in whichever memory, without the modes that they ran in."""
    names = {name for each in numbers if isinstance(each, FloatTerm) for name in each.unbacked()}
    storages: set[int] = set()
    found: list[Node] = []
    for node in reversed(ran):
        made = (each for each in (*node.outputs, *written_values(node)) if each is not None)
        if names.isdisjoint(each.symbol for each in node.bindings) and storages.isdisjoint(
            id(each.storage) for each in made
        ):
            continue
        storages.update(id(each.storage) for each in node.reads)
        names.update(name for each in node.numbers if isinstance(each, FloatTerm) for name in each.unbacked())
        found.append(attrs.evolve(node, grad=None, inference=None))
    return found[::-1]


def _key(run: Run, steps: Sequence[Node], sources: Sequence[Any], *more: Hashable) -> Hashable:
    """The generated code with names in the order in which they come, and all that it refers to."""
    if any(_objects_in((*node.args, *node.kwargs.values())) for node in steps):
        return None
    names: dict[str, str] = {}
    source = re.sub(r"\bv\d+\b", lambda m: names.setdefault(m[0], f"v{len(names)}"), run.__symshape_source__)  # type: ignore[attr-defined]
    read = tuple(each if type(each) is int else ("tensor", id(each)) for each in sources)
    return source, tuple(str(node.op) for node in steps), read, *more


def _objects_in(args: Any) -> bool:
    """Whether there is anything in arguments that generated code does not spell."""
    for each in args:
        if isinstance(each, (list, tuple)):
            if _objects_in(each):
                return True
        elif each is not None and type(each) not in (bool, int, float, str, Value, FloatTerm):
            return True
    return False
