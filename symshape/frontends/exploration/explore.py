"""``symshape.explore``: an interactive view of a guard set, a tree, a trace, a compiled function or
Dynamo's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from guards.dispatch.tree import Tree
from guards.sets.guard_set import GuardSet
from symshape.errors import InputError
from symshape.exploring.exploration import Exploration
from symshape.exploring.report_records import Report
from symshape.frontends.compiled import Compiled
from symshape.frontends.compiled_module import compiled_of
from symshape.frontends.exploration.caches import cache_report
from symshape.frontends.exploration.dynamo import dynamo_report, target_of
from symshape.frontends.exploration.programs import of_program, program_record
from symshape.frontends.exploration.spaces import (
    Origins,
    space_of_guards,
    space_of_program,
    space_of_tree,
)
from symshape.frontends.trace import Traced
from symshape.user_code import name_of

# ops of a trace that is also shown padded: about a quarter of a millisecond each
_MOST_PADDED = 1000


def explore(x: Traced | Compiled | GuardSet | Tree[Any] | Callable[..., Any]) -> Exploration:
    """Return a view of a trace, a compiled function, a guard set, or a function of
    ``torch.compile``.

    In a notebook the view shows itself, interactively if anywidget is installed (the extra
    ``notebook``); elsewhere ``.save("report.html")`` writes one self-contained file.

    Args:
        x: a :class:`symshape.Traced`, a result of :func:`symshape.compile` or ``torch.compile``, or
            a :class:`guards.GuardSet` or :class:`guards.Tree`.

    Raises:
        InputError: it is something else, or Dynamo has no entries for it.
        UnsupportedError: this version of torch does not show Dynamo's entries.

    >>> import torch, symshape
    >>> double = symshape.compile(lambda x: x * 2)
    >>> for n in (8, 5, 8):
    ...     assert double(torch.ones(n)).shape == (n,)
    >>> symshape.explore(double)
    <Exploration of the compiled function <lambda>: 2 entries, 3 calls>
    """
    if isinstance(x, GuardSet):
        return Exploration(_of_guards(x))
    if isinstance(x, Tree):
        return Exploration(_of_tree(x))
    if isinstance(x, Traced):
        return Exploration(_of_trace(x))
    compiled = x if isinstance(x, Compiled) else _compiled_module(x)
    if compiled is not None:
        return Exploration(cache_report(compiled._cache, compiled.stats(), name_of(compiled.fn)))
    target = target_of(x)
    if target is not None:
        return Exploration(dynamo_report(target))
    raise InputError(
        "symshape.explore takes a symshape.Traced, a function that symshape.compile or "
        "torch.compile returned, a "
        f"guards.GuardSet or a guards.Tree, not a {type(x).__name__}"
    )


def _compiled_module(x: object) -> Compiled | None:
    if not isinstance(x, torch.nn.Module):
        return None
    try:
        return compiled_of(x)
    except InputError:
        return None


def _of_guards(guard_set: GuardSet) -> Report:
    origins = Origins()
    space = space_of_guards(guard_set, {}, origins)
    facts = [("guards", str(len(guard_set))), ("symbols", ", ".join(guard_set.symbols) or "none")]
    return Report("A guard set", "guards", facts, origins.records, [space], [])


def _of_tree(tree: Tree[Any]) -> Report:
    origins = Origins()
    space = space_of_tree(tree, origins)
    facts = [("entries", str(len(tree))), ("symbols", ", ".join(tree.slots) or "none")]
    return Report(
        "A dispatch tree", "tree", facts, origins.records, [space] if len(tree) else [], []
    )


def _of_trace(traced: Traced) -> Report:
    program, origins = traced.program, Origins()
    space = space_of_program(program, origins, 0)
    after = of_program(program) if len(program.graph.nodes) <= _MOST_PADDED else None
    record = program_record(
        program, origins, {slot.name: at for at, slot in enumerate(space.slots)}, after
    )
    facts = [
        ("ops", str(len(program.graph.nodes))),
        ("guards", str(len(program.guards))),
        ("symbols", ", ".join(program.symbols) or "none"),
        ("traced in", f"{program.milliseconds:.0f} ms"),
    ]
    return Report(
        f"The trace of {program.name}", "trace", facts, origins.records, [space], [record]
    )
