"""Inductor's artefacts of one graph: compiled when needed, each for as many sizes as Inductor's own guards allow.

Inductor compiles for symbolic sizes of torch's ShapeEnv and may assume more of them than we do.  What it assumed is
read back as terms and checked on every new tuple of sizes; sizes outside get an artefact of their own.  A shelf keeps
artefacts for other processes, with what was assumed.  (Private names of torch used here were checked on 2.11 to 2.13.)
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
from symshape.runtime.runners.compile_request import Given, Request
from symshape.runtime.runners.inductor_code import Code, loaded

__all__ = ["Artefact", "Artefacts", "Saved", "Shelf"]

_MAX_ARTEFACTS = 16
_REMEMBERED = 4096  # tuples of sizes


@attrs.frozen(eq=False)
class Artefact:
    """One compilation.

    Attributes:
        call: Inductor's callable, on tensors and integers in order.
        check: what Inductor assumed, over the call's integers; None for these exact integers only.
        exact: the integers it was compiled for.
    """

    call: Code
    check: Check | None
    exact: tuple[int, ...]

    def serves(self, values: tuple[int, ...]) -> bool:
        """Whether the artefact is valid for these integers."""
        return values == self.exact if self.check is None else bool(self.check.check(values))


@attrs.frozen
class Saved:
    """One compilation for other processes.

    Attributes:
        assumed: the conditions on the slots ``v0, v1, …`` that it is valid under, as texts; None for ``exact`` only.
        exact: the integers it was compiled for.
        content: the code (see :mod:`symshape.runtime.runners.inductor_code`).
    """

    assumed: tuple[str, ...] | None
    exact: tuple[int, ...]
    content: bytes


class Shelf(Protocol):
    """Where the artefacts of one graph are kept between processes."""

    def saved(self) -> Iterable[Saved]:
        """Those that are there, the one that was of use last first; nothing where they cannot be read."""

    def keep(self, saved: Saved) -> None:
        """Keeps one, if that can be done."""

    def failed(self, saved: Saved, error: Exception) -> None:
        """Is told that one could not be loaded."""

    def part(self, name: str) -> Shelf:
        """A shelf of its own for one of several graphs."""


class Artefacts:
    """The artefacts of one graph.

    Args:
        graph: what is compiled.
        paths: of the leaves of a call, arguments' paths.
        slots: the integers of a call, in order, in terms of the graph's symbols.
        failed: told when the compiler fails; nothing is compiled after that.
        limit: how often the graph is compiled at most.
        options: Inductor's, other than it is set to.

    Attributes:
        shelf: where artefacts are looked for before one is compiled, and kept; None for nowhere.
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
        """The same code for a graph that differs from this one in nothing but the tensors that it reads."""
        made = copy.copy(self)
        made._graph = graph
        made._lifted = [each.tensor for each in graph.lifted]
        made._lock = forks.lock()
        return made

    def __len__(self) -> int:
        return len(self._made)

    def get(self, leaves: Sequence[Any], values: Sequence[int]) -> Artefact | None:
        """The artefact for a call, compiled if there is none yet; None where there is none to be had."""
        key = tuple(values)
        return self._memo.get(key) or self._find(leaves, key)

    def known(self, values: Sequence[int]) -> Artefact | None:
        """The artefact for these integers, if it was compiled already."""
        key = tuple(values)
        return self._memo.get(key) or next((each for each in self._made if each.serves(key)), None)

    def kept(self, values: Sequence[int]) -> Artefact | None:
        """The artefact for these integers, if another process left it on the shelf."""
        key = tuple(values)
        with self._lock:
            found = None if self.shelf is None or self.full else self._load(key)
            if found is not None:
                self._keep(found)
            return found

    def take(self, saved: Saved) -> None:
        """Takes in what was compiled elsewhere.  Raises whatever loading it may raise."""
        check, assumed = self._read(saved.assumed)
        self._keep(Artefact(loaded(saved.content), check, saved.exact))
        if self.shelf is not None:
            self.shelf.keep(attrs.evolve(saved, assumed=assumed))

    @property
    def full(self) -> bool:
        """Whether nothing more is compiled."""
        return self._closed or len(self._made) >= self._limit

    def run(self, artefact: Artefact, leaves: Sequence[Any]) -> list[Any]:
        """The flat outputs of a call."""
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
        """Forgets what was compiled and compiles no more; it does not wait for a compilation of this moment."""
        self._closed = True
        self._made, self._memo = (), {}

    def _keep(self, made: Artefact) -> None:
        """Unless everything was released meanwhile: then this call is the last one."""
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
                except Exception as error:  # whatever a compiler may raise: the graph still runs op by op
                    pass_on(error)
                    self._closed = True
                    self._failed(error)
                    return None
                self._keep(found)
            self._remember(key, found)
            return found

    def _load(self, key: tuple[int, ...]) -> Artefact | None:
        """What the shelf has for these integers."""
        for each in () if self.shelf is None else self.shelf.saved():
            try:
                check = None if each.assumed is None else self._check(each.assumed)
                if key == each.exact if check is None else check.check(key):
                    return Artefact(loaded(each.content), check, each.exact)
            except Exception as error:  # whatever a file, or torch, may bring about: it is compiled, then
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
        """What the compiler is asked for a call with these leaves."""
        module = graph_to_fx(self._graph, self._paths, self._slots, lifted_as_inputs=True)
        _only_tensors(module)
        arguments = [self._given(leaves[i], self._paths[i]) for i in self._positions]
        return Request(module, [*arguments, *map(Given, self._lifted)], self._options)

    def _given(self, leaf: Any, path: str) -> Given:
        names = slot_names(len(self._slots))
        slots = [(name, slot) for name, slot in zip(names, self._slots, strict=True) if slot.source.arg == path]
        slots = slots[: leaf.dim()] if isinstance(leaf, torch.Tensor) else slots
        return Given(leaf, tuple(name for name, _ in slots), tuple(slot.term.op is not Op.CONST for _, slot in slots))

    def _read(self, assumed: tuple[str, ...] | None) -> tuple[Check | None, tuple[str, ...] | None]:
        """What was assumed as a check, and as it was told; nothing where it cannot be read."""
        try:
            return (None if assumed is None else self._check(assumed)), assumed
        except GuardsError:
            return None, None

    def _check(self, assumed: Sequence[str]) -> Check:
        """Conditions on the slots as a check.

        Raises:
            GuardsError: one cannot be read.
        """
        names = slot_names(len(self._slots))
        ranges = dict.fromkeys(names, (None, None))
        return compile_check(GuardSet([Guard(parse(each)) for each in assumed], ranges=ranges), names)


def _only_tensors(module: torch.fx.GraphModule) -> None:
    """Leaves only tensors among the outputs: the rest is known without running."""
    output = next(node for node in module.graph.nodes if node.op == "output")
    output.args = ([each for each in output.args[0] if isinstance(each, torch.fx.Node)],)
    module.recompile()
