"""Errors for calls that no stored entry serves: the sizes of the call, and what the nearest entry
lacks.

They are only for calls that must not be traced: all entries of the function are read, and the
nearest sizes are searched for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

import guards
from guards.sets.sources import Source
from guards.text.escaping import printable
from symshape.calls.modes import Modes
from symshape.errors import MissError
from symshape.graph.program import Slot, slot_guards, slot_names
from symshape.store.entry_format import EntryBody, StoredEntry
from symshape.store.json_values import Json
from symshape.store.store_errors import EntryError

_MOST_SIZES, _MOST_ASKED = 8, 16
BAKE = "bake the store again (symshape bake)"
_ADVICE = 'nothing is traced here (on_miss="error"): bake the store for such calls (symshape bake)'


@attrs.frozen(eq=False)
class Asked:
    """A call that no stored entry serves.

    Attributes:
        function: its name.
        sources: where its integers are read.
        values: the integers.
        paths: its leaves in the caller's words.
        structure: as entries have it; None where it has no words.
        differs: by the digests of entries that fit its sizes what they read and is another now.
    """

    function: str
    sources: Sequence[Source]
    values: Sequence[int]
    paths: Sequence[str]
    structure: Any
    differs: Mapping[str, str]


@attrs.frozen(eq=False)
class _Reason:
    """The reason why one entry does not serve a call; the smaller the rank, the nearer the entry.

    Attributes:
        rank: what kind of reason it is, how many things would have to change, and by how much in
            all.
        text: the reason in a sentence.
        nearest: by the caller's words what sizes would be served, where they are known.
    """

    rank: tuple[int, ...]
    text: str
    nearest: Mapping[str, int] = attrs.field(factory=dict)


def miss_error(
    asked: Asked, here: Iterable[StoredEntry], elsewhere: Iterable[StoredEntry], environment: Json
) -> MissError:
    """Return the error for a call that no stored entry serves.

    Args:
        asked: the call.
        here: the entries of its function, made in surroundings like these.
        elsewhere: other entries, of which those of a function of this name say why they are not
            ``here``.
        environment: these surroundings.
    """
    sizes = {
        source.text(): value for source, value in zip(asked.sources, asked.values, strict=True)
    }
    listed = [f"{name} = {value}" for name, value in list(sizes.items())[:_MOST_SIZES]]
    more = ", …" if len(sizes) > _MOST_SIZES else ""
    call = (
        f"{asked.function} with {', '.join(listed)}{more}"
        if listed
        else f"{asked.function} with these arguments"
    )
    reasons = [found for each in here if (found := _reason(asked, each)) is not None]
    if reasons:
        best = min(reasons, key=lambda each: each.rank)
        return MissError(
            f"no stored program serves {call}: {best.text}; {_ADVICE}", sizes, best.nearest
        )
    others = [each for each in elsewhere if each.header["function"] == asked.function]
    why = _surroundings(others, environment) if others else "the store has none of this function"
    return MissError(f"no stored program serves {call}: {why}; {_ADVICE}", sizes)


def _reason(asked: Asked, stored: StoredEntry) -> _Reason | None:
    """Return the reason why an entry does not serve the call; None for a damaged entry."""
    name = f"entry {stored.digest[:12]}"
    if stored.digest in asked.differs:
        return _Reason((0, 0), f"{asked.differs[stored.digest]} has changed since {name} was made")
    if stored.header["structure"] != asked.structure:
        found = _structure_differences(stored.header["structure"], asked)
        return _Reason((2, len(found)), f"{printable(found[0])} ({name})")
    try:
        read = EntryBody(stored)
        if len(read.slots) != len(asked.sources):
            return None
        slots = [Slot(source, term) for source, term in zip(asked.sources, read.slots, strict=True)]
        conditions = slot_guards(slots, guards.GuardSet(read.guards.conditions))
    except EntryError:
        return None
    names = slot_names(len(slots))
    sources = dict(zip(names, asked.sources, strict=True))
    found_here = guards.explain(
        conditions, dict(zip(names, asked.values, strict=True)), sources, entry=name
    )
    if found_here is None:
        return _Reason(
            (1, 0), f"{name} serves such sizes, but another property of the arguments differs"
        )
    near = found_here.nearest
    if near is None:
        return _Reason((1, 100), found_here.text)
    given = dict(zip(names, asked.values, strict=True))
    away = sum(abs(near.values[each] - given[each]) for each in near.changed)
    nearest = {sources[each].text(): near.values[each] for each in near.changed}
    return _Reason((1, len(nearest), away), found_here.text, nearest)


def _structure_differences(then: Any, asked: Asked) -> list[str]:
    """Return the differences between the structures of a call and an entry, in sentences; at least
    one.
    """
    now = asked.structure
    if now is None:
        return ["an argument cannot be described for another process"]
    if then.get("tree") != now["tree"] or len(then.get("leaves", ())) != len(now["leaves"]):
        return ["its arguments have other names, or come in other containers"]
    leaves = zip(asked.paths, now["leaves"], then["leaves"], strict=True)
    found = [
        f"{path} is {_shown(one)}, but was {_shown(other)}"
        for path, one, other in leaves
        if one != other
    ]
    if then.get("modes") != now["modes"]:
        found.append(
            f"it runs under {Modes(*now['modes'])}, but was traced under {Modes(*then['modes'])}"
        )
    return found or ["other arguments of it are the same object"]


def _shown(leaf: Any) -> str:
    if isinstance(leaf, list) and leaf[:1] == ["tensor"] and len(leaf) == 7:
        _, dtype, device, grad, ndim, layout, _ = leaf
        return (
            f"a {layout} {dtype} tensor of {ndim} dim(s) on "
            f"{device}{', requires_grad' if grad else ''}"
        )
    return "an int" if leaf == ["int"] else str(leaf)[:60]


def _surroundings(others: Sequence[StoredEntry], environment: Any) -> str:
    """Return the reason why entries of the function's name are at another address."""
    fewest: list[str] | None = None
    for each in others[:_MOST_ASKED]:
        made: Any = each.header["environment"]
        keys = sorted({*made, *environment}) if isinstance(made, dict) else []
        found = [key for key in keys if made.get(key) != environment.get(key)]
        if fewest is None or len(found) < len(fewest):
            fewest = found
    if not fewest:
        return (
            "its entries were made with another dynamic=…, with other options, or for another "
            "function of this name"
        )
    return (
        f"its entries were made elsewhere: {printable(', '.join(fewest))} "
        f"differ{'s' if len(fewest) == 1 else ''}"
    )
