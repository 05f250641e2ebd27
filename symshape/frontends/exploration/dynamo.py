"""The report of a function that ``torch.compile`` compiled with a backend that is not ours."""

from __future__ import annotations

import attrs

from guards.domains.interval_arithmetic import Pair
from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from symshape.exploring.report_records import EntryRecord, Report, SlotRecord, Space
from symshape.frontends.exploration.dynamo_guards import DynamoCache, DynamoEntry, read_dynamo
from symshape.frontends.exploration.dynamo_targets import Target
from symshape.frontends.exploration.origins import Origins
from symshape.frontends.exploration.spaces import SpaceMaker, fixed_value, linked_in_all, top_of

_NOTE = (
    "The guards are those of Dynamo's own cache, read from their text. Guards that are not about "
    "sizes, or were not understood, are listed unchanged and are assumed to hold here. "
    "Entries are numbered as in TORCH_LOGS=recompiles; Dynamo tries them in this order."
)
_SMALL = (16, 256, 4096)  # sizes to begin with are no greater, if the guards hold for such
_OTHERS = (
    "Programs of the same code that are for other objects, or for this one as it was "
    "before, are left out: {}."
)


def dynamo_report(target: Target) -> Report:
    """Return a report of Dynamo's cache for a function or a module: conditions on integers, and the
    rest as text.
    """
    cache = read_dynamo(target)
    origins = Origins()
    facts = [("entries", str(len(cache.entries)))]
    notes = [_NOTE, _OTHERS.format(cache.others)] if cache.others else [_NOTE]
    space = attrs.evolve(_space(cache, origins), structure=_unread(cache))
    return Report(
        f"Dynamo's programs of {target.name}",
        "dynamo",
        facts,
        origins.records,
        [space],
        [],
        [],
        notes,
    )


def _unread(cache: DynamoCache) -> list[str]:
    """Return the guards that are not about sizes; first those that only some entries have, with
    the entries.
    """
    having: dict[str, list[str]] = {}
    for entry in cache.entries:
        for text in dict.fromkeys(entry.texts):
            having.setdefault(text, []).append(entry.name)
    every = len(cache.entries)
    found = []
    for text, names in sorted(having.items(), key=lambda item: (len(item[1]) == every, item[0])):
        short = text if len(text) < 200 else f"{text[:200]}…"
        found.append(short if len(names) == every else f"{short}  (only {', '.join(names)})")
    return found


def _space(cache: DynamoCache, origins: Origins) -> Space:
    names = tuple(cache.sources)
    maker = SpaceMaker(names, origins)
    ranges = {
        name: (0, None) if "(" in text else (None, None) for name, text in cache.sources.items()
    }
    entries = []
    for each in cache.entries:
        own = {
            name: limits
            for name, limits in ranges.items()
            if any(name in _symbols(g) for g in each.guards)
        }
        guard_set = GuardSet(each.guards, own)  # the other symbols are unbounded
        entries.append(
            EntryRecord(f"entry {each.name}", maker.guards(guard_set, cache.sources, cache.sources))
        )
    general = min(
        cache.entries,
        key=lambda each: sum(fixed_value(guard.term) is not None for guard in each.guards),
    )
    start = _start(cache, general)
    slots = [
        SlotRecord(
            name,
            text,
            ranges[name][0],
            None,
            start[name],
            top_of(start[name], None),
            _is_fixed(cache, name),
        )
        for name, text in cache.sources.items()
    ]
    links = linked_in_all([[guard.term for guard in each.guards] for each in cache.entries], names)
    return Space("", [], slots, links, maker.record(), entries)


def _symbols(guard: Guard) -> set[str]:
    return {each.name for each in guard.term.symbols}


def _fixed(entry: DynamoEntry) -> dict[str, int]:
    return dict(found for guard in entry.guards if (found := fixed_value(guard.term)) is not None)


def _is_fixed(cache: DynamoCache, name: str) -> bool:
    values = {_fixed(entry).get(name) for entry in cache.entries}
    return len(values) == 1 and None not in values


def _start(cache: DynamoCache, general: DynamoEntry) -> dict[str, int]:
    """Return initial values: small ones that the most general entry accepts, so that maps begin
    where calls are.
    """
    limits: dict[str, Pair] = {
        name: (0 if "(" in text else None, None) for name, text in cache.sources.items()
    }
    found = GuardSet(general.guards, limits).sample(1)
    for names in (tuple(limits), *((name,) for name in limits)):
        for most in _SMALL:
            tried = {**limits, **dict.fromkeys(names, (0, most))}
            smaller = GuardSet(general.guards, tried).sample(1)
            if smaller:
                found, limits = smaller, tried
                break
        if found and max(found[0].values(), default=0) <= _SMALL[0]:
            break
    return {name: found[0].get(name, 2) if found else 2 for name in cache.sources}
