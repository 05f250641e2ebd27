"""Programs whose parameters were replaced by similar objects: the same program on the new objects,
without a trace.

Where a program exists for a call's sizes but not for the present state, the differences of the
state are examined.  If only objects were replaced by objects
(``tracing/state/compare/replaced_objects.py``), all programs of that state move to the new objects,
and the old objects are released.  Objects that return (averaged weights, alternating adapters) get
entries of their own, so that each later switch is a hit.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import attrs
import torch

from symshape import forks
from symshape.calls.questions import DATA
from symshape.calls.variables import InnerContainer, SharedContainer, Variable, Write
from symshape.graph.codegen import with_lifted
from symshape.graph.program import Program
from symshape.runtime.cache import Branch, EntryCache
from symshape.runtime.entry import Entry
from symshape.runtime.runners.eager import EagerRunner
from symshape.runtime.runners.protocol import Runner
from symshape.runtime.variables import Layout
from symshape.tracing.capture import between_traces
from symshape.tracing.state.compare.replaced_objects import Replacement, replaced, replacement
from symshape.tracing.state.compare.state import State
from symshape.tracing.traced_modes import as_generated, without_autocast

# branches examined for replaced objects: each takes as long as comparing its state
_MOST_BRANCHES = 4
_MOST_PAST = 64  # replaced objects remembered, to notice one that returns

Found = tuple[Branch, Entry]


class Rebinding:
    """The moving of one compiled function's programs to replaced objects.

    Args:
        cache: the function's entries.
        layout: the places that are read at each call.
        entry: makes an entry of a program, with the runner that was asked for.
    """

    def __init__(
        self, cache: EntryCache, layout: Layout, entry: Callable[[Program], Entry]
    ) -> None:
        self._cache, self._layout, self._entry = cache, layout, entry
        self._past: deque[weakref.ref[Any]] = deque(maxlen=_MOST_PAST)

    def find(self, structure: Hashable, values: tuple[int, ...]) -> Found | None:
        """Return an entry for a call that no entry served, if only objects were replaced by similar
        ones; else None.
        """
        candidates = [each for each in self._cache.branches if _serves(each, structure, values)][
            :_MOST_BRANCHES
        ]
        return self._over(candidates, structure, values) if candidates else None

    @between_traces
    def _over(
        self, candidates: Iterable[Branch], structure: Hashable, values: tuple[int, ...]
    ) -> Found | None:
        cache = self._cache
        with cache.lock:
            for branch in candidates:
                state = branch.state
                found = replacement(state) if isinstance(state, State) else None
                if found is None or not isinstance(state, State) or not branch.families:
                    continue
                over = {
                    each: _rebound(each.program, found, self._layout.variables)
                    for each in branch.entries()
                }
                programs = {
                    entry: program for entry, program in over.items() if program is not None
                }
                if len(programs) < len(over):
                    continue
                if self._comes_back(found):
                    self._beside(branch, programs)
                else:
                    _move(branch, replaced(state, found), programs, self._entry)
                self._past += [
                    weakref.ref(old) for old in list(found.changed.values())[:1] if _is_weak(old)
                ]
                return cache.find(structure, values)
        return None

    def _comes_back(self, found: Replacement) -> bool:
        past = {id(now) for each in self._past if (now := each()) is not None}
        return any(id(found.of(old)) in past for old in found.changed.values())

    def _beside(self, branch: Branch, programs: dict[Entry, Program]) -> None:
        for structure, family in list(branch.families.items()):
            for old in family.entries:
                new = self._entry(programs[old])
                compiled = _on_the_same_code(old.runner, programs[old])
                if compiled is not None:
                    new.use(compiled)
                self._cache.publish(structure, new)


def _serves(branch: Branch, structure: Hashable, values: tuple[int, ...]) -> bool:
    family = branch.families.get(structure)
    return not branch.stateless and family is not None and family.tree.lookup(values) is not None


def _is_weak(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, torch.nn.Module))


def _move(
    branch: Branch, state: State, programs: dict[Entry, Program], make: Callable[[Program], Entry]
) -> None:
    """Move the entries of a branch to another state: first their runners, then the state that is
    compared.
    """
    runners = {entry: _runner(entry, program, make) for entry, program in programs.items()}
    left = [entry.runner for entry in programs]
    for entry, program in programs.items():
        entry.program = program
        entry.use(runners[entry])
    branch.state = state
    state.unchanged()  # compiles the comparison now, not in the next call
    for each in left:
        each.release()


def _runner(entry: Entry, program: Program, make: Callable[[Program], Entry]) -> Runner:
    """Return the runner of an entry's program after its objects were replaced."""
    old, eager = entry.runner, EagerRunner(program)
    if isinstance(old, EagerRunner):
        eager.instead = old.instead
        return eager
    compiled = _on_the_same_code(old, program)
    if compiled is not None:
        return compiled
    here = weakref.ref(entry)

    def settled() -> Runner:
        made = make(program).runner
        served = here()
        if served is not None and served.program is program:
            served.use(made)
        return made

    return SettlingRunner(eager, entry.runner_name, settled)


def _on_the_same_code(old: Runner, program: Program) -> Runner | None:
    from symshape.runtime.runners.inductor.runner import InductorRunner

    return old.rebound(program, EagerRunner(program)) if isinstance(old, InductorRunner) else None


# -- a program
def _rebound(program: Program, found: Replacement, variables: Sequence[Variable]) -> Program | None:
    """Return the program on the new objects; None if it uses an old object where no other can be
    substituted.
    """
    state = program.state
    if not isinstance(state, State) or _holds(program, found, variables):
        return None
    lifted = [attrs.evolve(each, tensor=found.of(each.tensor)) for each in program.graph.lifted]
    tensors = [each.tensor for each in lifted]
    if _memories(tensors) != _memories(program.lifted_tensors):
        return None
    graph = attrs.evolve(program.graph, lifted=tuple(lifted))
    run = without_autocast(with_lifted(as_generated(program.run), tensors), program.modes)
    return attrs.evolve(program, graph=graph, run=run, state=replaced(state, found))


def _holds(program: Program, found: Replacement, variables: Sequence[Variable]) -> bool:
    """Return whether a program writes to a replaced object, returns it, or depends on its
    identity.
    """
    writes = [*program.writes, *(() if program.given is None else program.given.writes)]
    written = [*(each.variable for each in writes), *program.variables, *variables]
    if any(_owner(each) in found.changed for each in written):
        return True
    apart = program.apart if program.given is None else program.apart.union(program.given.outside)
    if not found.changed.keys().isdisjoint(apart):
        return True
    if any(each.what == DATA for each in program.questions):  # these questions read the old tensors
        return True
    constants = [*program.graph.outputs, *_constants(writes)]
    constants += [each.about.value for each in program.questions if each.what == "is"]
    return found.touches(constants)


def _constants(writes: Iterable[Write | SharedContainer]) -> Iterator[Any]:
    """Yield the leaves of writes that are constant."""
    for each in writes:
        yield from _constants(leaf for leaf in each.leaves if type(leaf) is SharedContainer)
        yield from (leaf for leaf in each.leaves if type(leaf) is not SharedContainer)


def _owner(variable: Any) -> Any:
    while isinstance(variable, InnerContainer):
        variable = variable.variable
    return variable.where[0]


def _memories(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return for each tensor the index of the first tensor that shares its storage."""
    first: dict[int, int] = {}
    return [first.setdefault(each.untyped_storage()._cdata, i) for i, each in enumerate(tensors)]


# -- until the parameters stay ---------------------------------------------------------------------
#
# A captured or padded program holds the addresses of its parameters.  A function whose parameters
# are replaced at each call would capture at each call; one whose parameters were replaced once
# captures once more, some calls later.


SETTLED = 16
"""The number of calls with the same parameters after which the parameters are taken to stay."""


class SettlingRunner:
    """A runner that executes some calls op by op, and then has another runner made, which serves
    from then on.

    Args:
        eager: runs the program op by op.
        name: the name of the runner that will be made.
        settled: makes that runner and puts it in this one's place; called once.
    """

    def __init__(self, eager: Runner, name: str, settled: Callable[[], Runner]) -> None:
        self._eager, self._name = eager, name
        self._settled: Callable[[], Runner] | None = settled
        self._left = SETTLED
        self._lock = forks.lock()

    def run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Return the flat outputs of one call."""
        self._left -= 1
        if self._left <= 0:
            with self._lock:
                settled, self._settled = self._settled, None
            if settled is not None:
                return settled().run(leaves, values)
        return self._eager.run(leaves, values)

    def release(self) -> None:
        """Cancel the making of the other runner."""
        with self._lock:
            self._settled = None

    def describe(self) -> str:
        """Return which runner will serve, and when."""
        return f"eager, {self._name} again once its parameters stay"
