"""Hypothetical calls: sizes in place of tensors, meta tensors, and which entry would serve.

``sizes`` maps arguments, in the words that guards use (``x``, ``batch['ids']``), to their sizes,
integer arguments to their value, and symbols, by name, to theirs. Sizes that are not named follow:
a size that shares a symbol with a named one takes its value, and all others are those of the traced
call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

import guards
from guards.sets.sources import IntArg, Size, Source
from guards.terms import fold
from guards.terms.term import Op
from symshape.calls.arguments import Call, TensorKey, values_of
from symshape.errors import InputError
from symshape.frontends.differences import structure_differences
from symshape.graph.program import Program, slot_names
from symshape.runtime.cache import EntryCache
from symshape.runtime.entry import Entry
from symshape.runtime.families import Family
from symshape.spelling import nearest

Sizes = Mapping[str, int | Sequence[int | None]]


@attrs.frozen
class Which:
    """The entry that would serve a call, or the reasons why none would.

    Attributes:
        entry: its number; None where the call would be traced.
        reasons: for a miss, one sentence for each entry, in their order: why it would not serve.
        nearest: for a miss of sizes, the nearest sizes that an entry would serve, by where they are
            read.
    """

    entry: int | None
    reasons: tuple[str, ...] = ()
    nearest: Mapping[str, int] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return self.entry is not None

    def __str__(self) -> str:
        if self.entry is not None:
            return f"entry {self.entry} would serve it"
        return "\n".join(("no entry would serve it:", *(f"  {each}" for each in self.reasons)))


def wanted_sizes(args: Sequence[Any], kwargs: dict[str, Any]) -> Sizes | None:
    """Remove and return the keyword argument ``sizes`` of a question; None where the question is
    about arguments.

    With other arguments beside it, ``sizes`` is the function's own argument and stays.
    """
    found = kwargs.get("sizes")
    if args or len(kwargs) != 1 or not isinstance(found, Mapping):
        return None
    del kwargs["sizes"]
    return found


def integers_at(program: Program, sizes: Sizes) -> tuple[int, ...] | list[str]:
    """Return the integers of a call of the program with these sizes; sentences if its number of
    dimensions differs.

    Raises:
        InputError: ``sizes`` names what the program does not have, or holds what is no size.
    """
    symbols = {
        name: _integer(name, size) for name, size in sizes.items() if name in program.symbols
    }
    arguments = {name: size for name, size in sizes.items() if name not in symbols}
    given: dict[Source, int] = {}
    problems: list[str] = []
    for path, size in arguments.items():
        problems += _given(program, path, size, given)
    if problems:
        return problems
    hints: dict[str, int] = {
        each.name: each.hint for each in program.symbols.values() if each.hint is not None
    }
    said: dict[str, int] = {}
    for slot in program.slots:
        if slot.term.op is Op.SYMBOL and slot.source in given:
            said.setdefault(slot.term.name, given[slot.source])
    values = {**hints, **said, **symbols}
    integers = []
    for slot in program.slots:
        missing = [each.name for each in slot.term.symbols if each.name not in values]
        if slot.source not in given and missing:
            raise InputError(
                f"sizes: {slot.source.text()} has no value in the traced call: say what "
                f"{missing[0]} is"
            )
        integers.append(
            given[slot.source] if slot.source in given else int(fold.evaluate(slot.term, values))
        )
    return tuple(integers)


def _given(program: Program, path: str, size: Any, given: dict[Source, int]) -> list[str]:
    """Record the sizes of one argument; return a sentence if it has another number of
    dimensions.
    """
    call = program.call
    if path not in call.paths:
        known = [*call.paths, *program.symbols]
        raise InputError(
            f"sizes: {program.name} has no argument and no symbol {path!r}{nearest(path, known)}: "
            f"{', '.join(known)}"
        )
    key = call.keys[call.paths.index(path)]
    if not isinstance(key, TensorKey):
        given[IntArg(path)] = _integer(path, size)
        return []
    if isinstance(size, int) or not isinstance(size, Sequence) or isinstance(size, str):
        raise InputError(f"sizes[{path!r}] should be a sequence of {key.ndim} sizes, not {size!r}")
    if len(size) != key.ndim:
        return [f"{path} has {len(size)} dimension(s), but was traced with {key.ndim}"]
    for dim, each in enumerate(size):
        if each is not None:
            given[Size(path, dim)] = _integer(f"{path}.size({dim})", each)
            if given[Size(path, dim)] < 0:
                raise InputError(f"sizes: {path}.size({dim}) is a size, so it cannot be {each}")
    return []


def _integer(what: str, value: Any) -> int:
    if type(value) is not int:
        raise InputError(f"sizes: {what} should be an integer, not {value!r}")
    return value


def on_any_device(call: Call, example: Call) -> Call:
    """Return the call with its meta tensors moved to the devices of the example; only metadata is
    compared.
    """
    if len(call.keys) != len(example.keys):
        return call
    keys = tuple(
        attrs.evolve(now, device=then.device)
        if isinstance(now, TensorKey) and isinstance(then, TensorKey) and now.device.type == "meta"
        else now
        for now, then in zip(call.keys, example.keys, strict=True)
    )
    return attrs.evolve(call, keys=keys)


def which_of_sizes(cache: EntryCache, sizes: Sizes) -> Which:
    """Return the entry that would serve a call with these sizes in torch's modes of now, otherwise
    like the call that each was traced for.
    """
    found = _Search()
    for family, changes in _families(cache):
        program = family.entries[0].program
        integers = integers_at(program, sizes)
        differences = structure_differences(program, program.call, changes=(), answered={})
        if isinstance(integers, list):
            found.refuse(family, [*integers, *differences])
        elif differences:
            found.refuse(family, differences)
        elif found.ask(family, integers, changes):
            break
    return found.answer()


def which_of_call(cache: EntryCache, call: Call) -> Which:
    """Return the entry that would serve a call, whose meta tensors may be on any device."""
    found = _Search()
    for family, changes in _families(cache):
        program = family.entries[0].program
        adjusted = on_any_device(call, program.call)
        differences = structure_differences(program, adjusted, changes=())
        if differences:
            found.refuse(family, differences)
        elif found.ask(family, values_of(adjusted.leaves, adjusted.keys), changes):
            break
    return found.answer()


def _families(cache: EntryCache) -> list[tuple[Family[Entry], list[str]]]:
    """Return the families of entries, each with the changes in the state that it was traced in."""
    if not cache.entries:
        raise InputError(
            "nothing has been traced yet: call the function once, then ask which entry would serve"
        )
    return [
        (family, branch.state.changes())
        for branch in cache.branches
        for family in branch.families.values()
    ]


class _Search:
    """The families asked so far: the entry that serves, or why none did."""

    def __init__(self) -> None:
        self.entry: int | None = None
        self.reasons: dict[int, str] = {}
        self.near: tuple[int, dict[str, int]] | None = None

    def refuse(self, family: Family[Entry], sentences: Sequence[str]) -> None:
        """Record that no entry of the family serves, for these reasons."""
        for entry in family.entries:
            self.reasons[entry.number] = "; ".join(sentences)

    def ask(self, family: Family[Entry], values: tuple[int, ...], changes: Sequence[str]) -> bool:
        """Return whether an entry of the family serves these integers; record which one, or why
        none does.
        """
        if changes:
            self.refuse(family, [f"{name} has changed since the trace" for name in changes])
            return False
        entry = family.tree.lookup(values)
        if entry is not None:
            self.entry = entry.number
            return True
        for each in family.entries:
            self._explain(each, values)
        return False

    def _explain(self, entry: Entry, values: tuple[int, ...]) -> None:
        program = entry.program
        names = slot_names(len(values))
        sources = {name: slot.source for name, slot in zip(names, program.slots, strict=True)}
        found = guards.explain(
            entry.guards, dict(zip(names, values, strict=True)), sources, entry="it"
        )
        assert found is not None
        self.reasons[entry.number] = found.text
        if found.nearest is not None:
            changed = {
                sources[name].text(): found.nearest.values[name] for name in found.nearest.changed
            }
            if self.near is None or len(changed) < self.near[0]:
                self.near = len(changed), changed

    def answer(self) -> Which:
        """Return the result."""
        if self.entry is not None:
            return Which(self.entry)
        reasons = tuple(
            f"entry {number}: {self.reasons[number]}" for number in sorted(self.reasons)
        )
        return Which(None, reasons, {} if self.near is None else self.near[1])
