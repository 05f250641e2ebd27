"""Comparisons of single numbers that guard a program: for each call a small graph computes both
sides of each.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import torch

from guards.terms.term import Term
from symshape.calls.floats import FloatLeaf
from symshape.calls.questions import ABSENT
from symshape.graph.codegen import Run, compile_graph
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.steps import BATCH_NORM, Input, Node, Value, written_values
from symshape.torch_internals import functorch, pytree

COMPARE: dict[str, Callable[[float, float], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
"""The relations of comparisons, by name."""
_SINGLE = frozenset(("float", "item", "bool"))  # kinds of bindings
Number = FloatTerm | Term | float


@attrs.frozen(eq=False)
class Root:
    """A tensor that existed before the program: the position of an argument, or the tensor itself.

    ``is_given_tensor``: it is an argument, and no float.
    """

    where: int | torch.Tensor
    dtype: torch.dtype
    is_given_tensor: bool = False


def memories(values: Iterable[Any]) -> Counter[int]:
    """Return how many of the values are tensors in each storage; tensors of ``torch.func`` count
    for every storage.
    """
    tensors = {
        id(each): each
        for each in values
        if isinstance(each, torch.Tensor) and each.layout is torch.strided
    }
    if any(map(functorch.is_wrapped, tensors.values())):
        return _Anywhere()
    return Counter(each.untyped_storage()._cdata for each in tensors.values())


class _Anywhere(Counter[int]):
    """A count that is 2 for every storage: the storages of these tensors are not known."""

    def __missing__(self, memory: int) -> int:
        return 2


def are_alone(tensors: Iterable[torch.Tensor], count: Callable[[int], int]) -> bool:
    """Return whether each tensor fills a storage of one element that no other counted tensor
    shares.
    """
    memory = [(each.untyped_storage(), each.element_size()) for each in tensors]
    return all(each.nbytes() == size and count(each._cdata) == 1 for each, size in memory)


def is_number(value: Value) -> bool:
    """Return whether a value is a single number on the CPU, in any number of dimensions."""
    spec = value.spec
    return (
        all(type(n) is int and n == 1 for n in spec.sizes)
        and spec.device.type == "cpu"
        and not spec.dtype.is_complex
    )


def is_plain(node: Node) -> bool:
    """Return whether a node only computes single numbers on the CPU, the same in each run."""
    op = node.op
    return (
        op.namespace == "aten"
        and torch.Tag.nondeterministic_seeded not in op.tags
        and op._schema.name not in BATCH_NORM
        and node.leaves is None
        and not op._schema.name.startswith(("aten::empty", "aten::set_", "aten::resize"))
        and all(binding.kind in _SINGLE for binding in node.bindings)
        and all(is_number(each) for each in node.reads)
        and all(each is None or is_number(each) for each in node.outputs)
        and bool(node.bindings or any(node.outputs) or op._schema.is_mutable)
    )


@attrs.frozen(eq=False)
class Asked:
    """Comparisons of numbers in tensors, evaluated on the leaves of a call.

    Two are equal if they compare the same numbers by the same relations.

    Attributes:
        sources: the tensors to read: positions among the leaves, or the tensors themselves.
        dtypes: the dtypes of the sources.
        relations: the relation of each comparison.
        written: if arguments are read, the outside tensors that the program writes: no argument may
            be one of them.
        graph: computes the left and the right side of each comparison from copies of the sources.
        run: runs the graph.
        key: equal for two of these only if they compare the same; None if that is not known.
        copied: for each source, whether the graph writes to it, so that it gets a copy.
        integers: the symbols of integer arguments, with their positions among the leaves.
    """

    sources: tuple[int | torch.Tensor, ...]
    dtypes: tuple[torch.dtype, ...]
    relations: tuple[str, ...]
    written: tuple[torch.Tensor, ...]
    graph: Graph
    run: Run
    key: Hashable
    copied: tuple[bool, ...]
    integers: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(
        cls,
        ran: Sequence[Node],
        roots: Mapping[Value, Root],
        asked: Sequence[tuple[str, Number, Number]],
        written: Sequence[torch.Tensor],
        integers: Mapping[str, int],
    ) -> Asked:
        """Return the comparisons with the steps that their numbers need, in a program that writes
        ``written``.
        """
        numbers = tuple(term for _, left, right in asked for term in (left, right))
        steps = tuple(_needed(ran, numbers))
        read = dict.fromkeys(value for node in steps for value in node.reads if value in roots)
        inputs = tuple(Input(i, "", value) for i, value in enumerate(read))
        tree = pytree.tree_structure([0] * len(numbers))
        sources = tuple(roots[value].where for value in read)
        dtypes = tuple(roots[value].dtype for value in read)
        relations = tuple(relation for relation, *_ in asked)
        outside = tuple(written) if any(roots[value].is_given_tensor for value in read) else ()
        used = {
            each.name for term in numbers if isinstance(term, FloatTerm) for each in term.symbols()
        }
        whole = tuple(
            (name, integers[name])
            for name in sorted(used & integers.keys(), key=integers.__getitem__)
        )
        return cls.in_graph(
            Graph(inputs, (), steps, numbers, tree), sources, dtypes, relations, outside, whole
        )

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
        """Return the comparisons of the numbers that a graph computes from the sources."""
        run = compile_graph(graph, {name: i for i, (name, _) in enumerate(integers)})
        key = _key(
            run,
            graph.nodes,
            (*sources, *written),
            dtypes,
            relations,
            tuple(each for _, each in integers),
        )
        changed = {id(value.storage) for node in graph.nodes for value in written_values(node)}
        copied = tuple(id(each.value.storage) in changed for each in graph.inputs)
        return cls(sources, dtypes, relations, written, graph, run, key, copied, integers)

    @property
    def last(self) -> int:
        """Return the position of the last leaf that is read; -1 if none is."""
        return max(
            (
                *(each for each in self.sources if type(each) is int),
                *(each for _, each in self.integers),
                -1,
            )
        )

    def __call__(self, leaves: Sequence[Any]) -> Hashable:
        """Return the answers; the exception's name if a number cannot be computed."""
        given: list[Any] = [leaves[each] if type(each) is int else each for each in self.sources]
        for leaf, dtype, each in zip(given, self.dtypes, self.graph.inputs, strict=True):
            if (
                not isinstance(leaf, torch.Tensor)
                or leaf.dtype is not dtype
                or leaf.device.type != "cpu"
            ):
                return ABSENT
            if leaf.shape != each.value.spec.sizes:
                return ABSENT
        numbers = [leaves[each] for _, each in self.integers]
        if any(type(each) is not int for each in numbers) or not self._are_apart(given, leaves):
            return ABSENT
        try:
            with torch.no_grad():
                pairs = zip(given, self.copied, strict=True)
                found = self.run(
                    [leaf.detach().clone() if copied else leaf for leaf, copied in pairs], numbers
                )
        except (ArithmeticError, ValueError) as error:
            return type(error).__name__
        asked = zip(self.relations, found[::2], found[1::2], strict=True)
        return tuple([COMPARE[relation](left, right) for relation, left, right in asked])

    def _are_apart(self, given: Sequence[torch.Tensor], leaves: Sequence[Any]) -> bool:
        """Return whether the sources share no memory with tensors that the program may write."""
        pairs = [
            pair for pair in zip(self.sources, given, strict=True) if type(pair[1]) is not FloatLeaf
        ]
        if not pairs:
            return True
        own, arguments = (
            memories(each for each in self.sources if type(each) is not int),
            memories(leaves),
        )
        outside = memories(self.written) if self.written else own
        return are_alone(
            (leaf for where, leaf in pairs if type(where) is int),
            lambda memory: arguments[memory] + outside[memory],
        ) and are_alone(
            (leaf for where, leaf in pairs if type(where) is not int),
            lambda memory: own[memory] + arguments[memory],
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(other) is Asked and self.key is not None and self.key == other.key
        )

    def __hash__(self) -> int:
        return hash(self.relations)


def _needed(ran: Sequence[Node], numbers: Sequence[Number]) -> list[Node]:
    """Return the steps that compute the numbers, including in-place writes, without the modes that
    they ran in.
    """
    names = {name for each in numbers for name in _unbacked(each)}
    storages: set[int] = set()
    found: list[Node] = []
    for node in reversed(ran):
        made = (each for each in (*node.outputs, *written_values(node)) if each is not None)
        if names.isdisjoint(each.symbol for each in node.bindings) and storages.isdisjoint(
            id(each.storage) for each in made
        ):
            continue
        storages.update(id(each.storage) for each in node.reads)
        names.update(name for each in node.numbers for name in _unbacked(each))
        found.append(attrs.evolve(node, grad=None, inference=None))
    return found[::-1]


def _unbacked(number: Number) -> frozenset[str]:
    """Return the names of the symbols in a number (also of integer arguments, which no step
    computes).
    """
    if isinstance(number, Term):
        return frozenset(each.name for each in number.symbols)
    if isinstance(number, FloatTerm):
        return number.unbacked().union(each.name for each in number.symbols())
    return frozenset()


def _key(run: Run, steps: Sequence[Node], sources: Sequence[Any], *more: Hashable) -> Hashable:
    """Return the generated code with its names numbered in order of appearance, and all objects
    that it refers to.
    """
    if any(_objects_in((*node.args, *node.kwargs.values())) for node in steps):
        return None
    names: dict[str, str] = {}
    text: str = run.__symshape_source__  # type: ignore[attr-defined]
    source = re.sub(r"\bv\d+\b", lambda m: names.setdefault(m[0], f"v{len(names)}"), text)
    read = tuple(each if type(each) is int else ("tensor", id(each)) for each in sources)
    return source, tuple(str(node.op) for node in steps), read, *more


def _objects_in(args: Any) -> bool:
    """Return whether arguments hold objects that generated code does not spell out."""
    for each in args:
        if isinstance(each, (list, tuple)):
            if _objects_in(each):
                return True
        elif each is not None and type(each) not in (bool, int, float, str, Value, FloatTerm, Term):
            return True
    return False
