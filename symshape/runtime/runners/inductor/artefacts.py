"""Inductor's compilations of one graph, made when needed, each for as many sizes as Inductor's own
guards allow.

Inductor compiles for symbolic sizes of torch's ShapeEnv and may assume more of them than symshape
does.  Its assumptions are read back as terms and checked on every new tuple of sizes; other sizes
get another artefact.  A shelf stores artefacts for other processes, with their assumptions.
(Private names of torch used here were checked on 2.11 to 2.13.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import torch

from guards.asking.reading import parse
from guards.errors import GuardsError
from guards.sets.codegen import Check, compile_check
from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from guards.sets.sources import IntArg
from guards.terms.term import Op
from symshape import forks
from symshape.graph.graph import Graph
from symshape.graph.program import Slot, slot_names
from symshape.graph.steps import Value
from symshape.graph.to_fx import graph_to_fx
from symshape.interrupts import pass_on
from symshape.runtime.runners.inductor.code import Code, loaded
from symshape.runtime.runners.inductor.compile_request import Given, Request

__all__ = ["Artefact", "Artefacts", "Saved", "Shelf"]

_MAX_ARTEFACTS = 16  # compilations of one graph
_REMEMBERED = 4096  # tuples of sizes in the memo


@attrs.frozen(eq=False)
class Artefact:
    """One compilation by Inductor.

    Attributes:
        call: Inductor's callable, on tensors and integers in order.
        check: Inductor's assumptions on the call's integers; None if the code is valid for
            ``exact`` only.
        exact: the integers for which the code was compiled.
    """

    call: Code
    check: Check | None
    exact: tuple[int, ...]

    def serves(self, values: tuple[int, ...]) -> bool:
        """Return whether the artefact is valid for these integers."""
        return values == self.exact if self.check is None else bool(self.check.check(values))


@attrs.frozen
class Saved:
    """A serialized compilation, for other processes.

    Attributes:
        assumed: the conditions on the slots ``v0, v1, …`` under which the code is valid, as texts;
            None for ``exact`` only.
        exact: the integers for which the code was compiled.
        content: the code (see :mod:`symshape.runtime.runners.inductor.code`).
    """

    assumed: tuple[str, ...] | None
    exact: tuple[int, ...]
    content: bytes


class Shelf(Protocol):
    """The persistent store of one graph's artefacts."""

    def saved(self) -> Iterable[Saved]:
        """Return the stored artefacts, the one used last first; none if the store cannot be
        read.
        """

    def keep(self, saved: Saved) -> None:
        """Store an artefact if possible."""

    def failed(self, saved: Saved, error: Exception) -> None:
        """Handle the error of a stored artefact that could not be loaded."""

    def part(self, name: str) -> Shelf:
        """Return the store of one of several graphs, by name."""


class Artefacts:
    """The artefacts of one graph.

    Args:
        graph: the graph to compile.
        paths: the argument path of each leaf of a call.
        slots: the integers of a call, in order, in terms of the graph's symbols.
        failed: called with the error when the compiler fails; nothing is compiled after that.
        limit: the most compilations of the graph.
        options: Inductor's options that differ from its present settings.

    Attributes:
        shelf: the store that is searched before a compilation, and receives its result; None for no
            store.
    """

    def __init__(
        self,
        graph: Graph,
        paths: Sequence[str],
        slots: Sequence[Slot],
        failed: Callable[[Exception], None],
        limit: int = _MAX_ARTEFACTS,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = options or {}
        self._graph = graph
        self._paths = paths
        self._slots = slots
        self._failed = failed
        self._limit = limit
        self.shelf: Shelf | None = None
        self._made: tuple[Artefact, ...] = ()
        self._memo: dict[tuple[int, ...], Artefact] = {}
        self._lock = forks.lock()
        self._closed = False  # released, or the compiler failed
        inputs = {each.position for each in graph.inputs}
        integers = {slot.source.arg for slot in slots if isinstance(slot.source, IntArg)}
        self._positions = [i for i, path in enumerate(paths) if i in inputs or path in integers]
        self._lifted = [each.tensor for each in graph.lifted]
        self._direct = {each.value: each.position for each in graph.inputs}

    def rebound(self, graph: Graph) -> Artefacts:
        """Return the same code for a graph that differs from this one only in the tensors that it
        reads.
        """
        made = copy.copy(self)
        made._graph = graph
        made._lifted = [each.tensor for each in graph.lifted]
        made._lock = forks.lock()
        return made

    def __len__(self) -> int:
        return len(self._made)

    def get(self, leaves: Sequence[Any], values: Sequence[int]) -> Artefact | None:
        """Return the artefact for a call, compiled if need be; None if the graph cannot be compiled
        for it.
        """
        key = tuple(values)
        return self._memo.get(key) or self._find(leaves, key)

    def known(self, values: Sequence[int]) -> Artefact | None:
        """Return the artefact for these integers if one is compiled or loaded already, else
        None.
        """
        key = tuple(values)
        return self._memo.get(key) or next((each for each in self._made if each.serves(key)), None)

    def kept(self, values: Sequence[int]) -> Artefact | None:
        """Return the artefact for these integers that another process stored, loaded now, or
        None.
        """
        key = tuple(values)
        with self._lock:
            found = None if self.shelf is None or self.full else self._load(key)
            if found is not None:
                self._keep(found)
            return found

    def take(self, saved: Saved) -> None:
        """Load and add an artefact that was compiled elsewhere.  Raise any error of loading it."""
        check, assumed = self._read(saved.assumed)
        self._keep(Artefact(loaded(saved.content), check, saved.exact))
        if self.shelf is not None:
            self.shelf.keep(attrs.evolve(saved, assumed=assumed))

    @property
    def full(self) -> bool:
        """Return whether nothing more is compiled."""
        return self._closed or len(self._made) >= self._limit

    def run(self, artefact: Artefact, leaves: Sequence[Any]) -> list[Any]:
        """Run an artefact on the leaves of a call; return the flat outputs."""
        results = iter(artefact.call(*[leaves[i] for i in self._positions], *self._lifted))
        flat = []
        for output in self._graph.outputs:
            if isinstance(output, Value):
                result = next(results)
                direct = self._direct.get(output)
                flat.append(result if direct is None else leaves[direct])
            else:
                flat.append(output)
        return flat

    def release(self) -> None:
        """Drop all artefacts and compile no more; do not wait for a compilation in progress."""
        self._closed = True
        self._made, self._memo = (), {}

    def _keep(self, made: Artefact) -> None:
        """Add an artefact, unless everything was released meanwhile: then only the present call
        uses it.
        """
        if not self._closed:
            self._made = (*self._made, made)

    def _remember(self, key: tuple[int, ...], made: Artefact) -> None:
        if not self._closed:
            self._memo = {**self._memo, key: made} if len(self._memo) < _REMEMBERED else {key: made}

    def _find(self, leaves: Sequence[Any], key: tuple[int, ...]) -> Artefact | None:
        with self._lock:
            if self._closed:
                return None
            found = next((each for each in self._made if each.serves(key)), None)
            if found is None:
                if len(self._made) >= self._limit:
                    return None
                try:
                    found = self._load(key) or self._compile(leaves, key)
                except (
                    Exception
                ) as error:  # a compiler may raise anything: the graph still runs op by op
                    pass_on(error)
                    self._closed = True
                    self._failed(error)
                    return None
                self._keep(found)
            self._remember(key, found)
            return found

    def _load(self, key: tuple[int, ...]) -> Artefact | None:
        """Return the stored artefact for these integers, loaded, or None."""
        for each in () if self.shelf is None else self.shelf.saved():
            try:
                check = None if each.assumed is None else self._check(each.assumed)
                if key == each.exact if check is None else check.check(key):
                    return Artefact(loaded(each.content), check, each.exact)
            except Exception as error:  # loading may raise anything: the graph is compiled instead
                assert self.shelf is not None
                self.shelf.failed(each, error)
        return None

    def _compile(self, leaves: Sequence[Any], key: tuple[int, ...]) -> Artefact:
        code, assumed, content = self.request(leaves).compiled(keep=self.shelf is not None)
        check, assumed = self._read(assumed)
        if self.shelf is not None and content is not None:
            self.shelf.keep(Saved(assumed, key, content))
        return Artefact(code, check, key)

    def request(self, leaves: Sequence[Any]) -> Request:
        """Return the compiler request for a call with these leaves."""
        module = graph_to_fx(self._graph, self._paths, self._slots, lifted_as_inputs=True)
        _only_tensors(module)
        arguments = [self._given(leaves[i], self._paths[i]) for i in self._positions]
        return Request(module, [*arguments, *map(Given, self._lifted)], self._options)

    def _given(self, leaf: Any, path: str) -> Given:
        names = slot_names(len(self._slots))
        slots = [
            (name, slot)
            for name, slot in zip(names, self._slots, strict=True)
            if slot.source.arg == path
        ]
        slots = slots[: leaf.dim()] if isinstance(leaf, torch.Tensor) else slots
        return Given(
            leaf,
            tuple(name for name, _ in slots),
            tuple(slot.term.op is not Op.CONST for _, slot in slots),
        )

    def _read(self, assumed: tuple[str, ...] | None) -> tuple[Check | None, tuple[str, ...] | None]:
        """Return the assumptions as a check, and as given; both None if they cannot be parsed."""
        try:
            return (None if assumed is None else self._check(assumed)), assumed
        except GuardsError:
            return None, None

    def _check(self, assumed: Sequence[str]) -> Check:
        """Compile conditions on the slots into a check.

        Raises:
            GuardsError: a condition cannot be parsed.
        """
        names = slot_names(len(self._slots))
        ranges = dict.fromkeys(names, (None, None))
        return compile_check(
            GuardSet([Guard(parse(each)) for each in assumed], ranges=ranges), names
        )


def _only_tensors(module: torch.fx.GraphModule) -> None:
    """Remove outputs that are no tensors: their values are known without running."""
    output = next(node for node in module.graph.nodes if node.op == "output")
    output.args = ([each for each in output.args[0] if isinstance(each, torch.fx.Node)],)
    module.recompile()
