"""Guard sets, facts, verdicts and sources to and from JSON: versioned, and validated on load.

A document says what it is: ``{"format": "guards", "version": 1, "kind": "guard_set", ...}``.
Conditions are written as text that a person can read, and as a list of steps where the text would
not give back the very same term.  What is loaded is checked piece by piece; a
:class:`~guards.errors.FormatError` names the piece that is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import attrs

from guards.asking.arguments import described
from guards.asking.ladder import RUNGS
from guards.asking.verdict import Verdict
from guards.domains.interval_arithmetic import Pair
from guards.errors import ArgumentError, FormatError, GuardsError
from guards.facts.facts import Facts
from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from guards.sets.json_checks import Json, array, checked, integer, record, string, symbol_name
from guards.sets.json_terms import condition_from_json, term_to_json
from guards.sets.origin import Origin
from guards.sets.sources import IntArg, Size, Source, StorageOffset, Stride
from guards.terms import arithmetic

FORMAT, VERSION = "guards", 1
_LARGEST = 16_000_000  # characters of a document

Value = GuardSet | Facts | Verdict | dict[str, Source]

# -- ranges and values -----------------------------------------------------------------------------


def _ranges_to_json(ranges: Mapping[str, Pair]) -> Json:
    return {symbol_name(name): list(limits) for name, limits in ranges.items()}


def _ranges(data: Json) -> dict[str, Pair]:
    found: dict[str, Pair] = {}
    for name, limits in checked(data, dict, "ranges").items():
        symbol_name(name)
        if (
            type(limits) is not list
            or len(limits) != 2
            or any(b is not None and type(b) is not int for b in limits)
        ):
            raise FormatError(f"the range of {name} must be two integers or nulls, not {limits!r}")
        found[name] = (limits[0], limits[1])
    return found


def _values(data: Json, what: str) -> dict[str, int] | None:
    if data is None:
        return None
    return {
        symbol_name(name): integer(value, f"{what} of {name}")
        for name, value in checked(data, dict, what).items()
    }


# -- guards ----------------------------------------------------------------------------------------


def _guard_to_json(guard: Guard) -> Json:
    written: dict[str, Json] = {"condition": term_to_json(guard.term)}
    if guard.origin is not None:
        written["origin"] = {
            name: value for name, value in attrs.asdict(guard.origin).items() if value != ""
        }
    return written


def _guard(data: Json) -> Guard:
    found = record(data, "a guard", {"condition"}, {"origin"})
    origin = None
    if found.get("origin") is not None:
        parts = record(
            found["origin"], "an origin", {"line"}, {"file", "function", "text", "op", "rule"}
        )
        texts = {
            name: string(value, f"{name} of an origin")
            for name, value in parts.items()
            if name != "line"
        }
        origin = Origin(**{"file": "", **texts}, line=integer(parts["line"], "line of an origin"))
    return Guard(condition_from_json(found["condition"]), origin)


def _guard_set_to_json(guards: GuardSet) -> dict[str, Json]:
    return {
        "ranges": _ranges_to_json(guards.ranges),
        "guards": [_guard_to_json(guard) for guard in guards],
    }


def _guard_set(body: Json) -> GuardSet:
    found = record(body, "a guard set", {"ranges", "guards"})
    return GuardSet(
        tuple(map(_guard, array(found["guards"], "guards"))), ranges=_ranges(found["ranges"])
    )


# -- facts, verdicts, sources ----------------------------------------------------------------------


def _facts_to_json(facts: Facts) -> dict[str, Json]:
    declared = {s: facts.declared(s) for s in sorted(facts.symbols, key=lambda s: s.order)}
    ranges = {s.name: (pair.lo, pair.hi) for s, pair in declared.items()}
    return {
        "ranges": _ranges_to_json(ranges),
        "conditions": [term_to_json(c) for c in facts.conditions],
    }


def _facts(body: Json) -> Facts:
    found = record(body, "facts", {"ranges", "conditions"})
    pairs = {arithmetic.symbol(name): limits for name, limits in _ranges(found["ranges"]).items()}
    try:
        return Facts.make(
            pairs, [condition_from_json(c) for c in array(found["conditions"], "conditions")]
        )
    except GuardsError as error:
        raise FormatError(str(error)) from error


def _verdict_to_json(verdict: Verdict) -> dict[str, Json]:
    return attrs.asdict(verdict)


def _verdict(body: Json) -> Verdict:
    found = record(body, "a verdict", {"value", "rung"}, {"fails", "holds", "reason"})
    if found["value"] is not None and type(found["value"]) is not bool:
        raise FormatError(
            f"the value of a verdict must be true, false or null, not {found['value']!r}"
        )
    return Verdict(
        found["value"],
        _rung(found["rung"]),
        _values(found.get("fails"), "fails"),
        _values(found.get("holds"), "holds"),
        string(found.get("reason", ""), "reason"),
    )


def _rung(data: Json) -> str:
    if string(data, "rung") not in RUNGS:
        raise FormatError(f"unknown rung: {data!r}")
    return data  # type: ignore[no-any-return]


_SOURCES: dict[str, tuple[type[Size | Stride | StorageOffset | IntArg], bool]] = {
    "size": (Size, True),
    "stride": (Stride, True),
    "storage_offset": (StorageOffset, False),
    "int": (IntArg, False),
}


def _sources_to_json(sources: Mapping[str, Source]) -> dict[str, Json]:
    kinds = {cls: kind for kind, (cls, _) in _SOURCES.items()}
    return {
        "sources": {
            name: {"kind": kinds[type(s)], **attrs.asdict(s)} for name, s in sources.items()
        }
    }


def _sources(body: Json) -> dict[str, Source]:
    read: dict[str, Source] = {}
    for name, data in checked(
        record(body, "sources", {"sources"})["sources"], dict, "sources"
    ).items():
        found = record(data, f"the source of {name}", {"kind", "arg"}, {"dim"})
        symbol_name(name)
        if string(found["kind"], "kind of a source") not in _SOURCES:
            raise FormatError(f"unknown kind of source: {found['kind']!r}")
        cls, has_dim = _SOURCES[found["kind"]]
        if ("dim" in found) is not has_dim:
            raise FormatError(
                f"the source of {name} {'lacks' if has_dim else 'has an unknown'} dim"
            )
        arg = string(found["arg"], f"arg of {name}")
        read[name] = cls(arg, integer(found["dim"], f"dim of {name}")) if has_dim else cls(arg)  # type: ignore[call-arg]
    return read


# -- documents -------------------------------------------------------------------------------------

_READERS: dict[str, Callable[[Json], Value]] = {
    "guard_set": _guard_set,
    "facts": _facts,
    "verdict": _verdict,
    "sources": _sources,
}


def to_json(
    value: GuardSet | Facts | Verdict | Mapping[str, Source], *, indent: int | None = None
) -> str:
    """A guard set, facts, a verdict, or a mapping from symbols to sources as a JSON document.

    Raises:
        FormatError: a symbol has a name that no text can use (``lambda``, ``True``, ``__init__``).

    >>> print(to_json(GuardSet.read("s0 % 8 == 0", ranges={"s0": (2, None)}), indent=None))
    {"format": "guards", "version": 1, "kind": "guard_set", "ranges": {"s0": [2, null]},
     "guards": [{"condition": "s0 % 8 == 0"}]}
    """
    if isinstance(value, GuardSet):
        kind, body = "guard_set", _guard_set_to_json(value)
    elif isinstance(value, Facts):
        kind, body = "facts", _facts_to_json(value)
    elif isinstance(value, Verdict):
        kind, body = "verdict", _verdict_to_json(value)
    elif isinstance(value, Mapping):
        kind, body = "sources", _sources_to_json(value)
    else:
        raise ArgumentError(
            "to_json takes a guard set, facts, a verdict or a mapping of sources, not "
            f"{described(value)}"
        )
    return json.dumps({"format": FORMAT, "version": VERSION, "kind": kind, **body}, indent=indent)


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = next(name for index, (name, _) in enumerate(pairs) if name in dict(pairs[:index]))
        raise FormatError(f"{twice!r} is said twice")
    return members


def from_json(document: str, kind: str | None = None) -> Value:
    """Read a value that :func:`to_json` wrote; ``kind`` demands one kind of value.

    Raises:
        FormatError: the document is not of this format, version or kind, or a piece of it is wrong.

    >>> print(from_json(to_json(GuardSet.read("s0 % 8 == 0"))))
    s0 % 8 == 0
    """
    if type(document) is not str:
        raise FormatError(f"a document is text, not {type(document).__name__}")
    if len(document) > _LARGEST:
        raise FormatError(f"a document of more than {_LARGEST} characters")
    try:
        data = json.loads(document, object_pairs_hook=_members)
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from error
    found = checked(data, dict, "a document")
    if found.get("format") != FORMAT:
        raise FormatError(f"not a document of format {FORMAT!r}: {found.get('format')!r}")
    if type(found.get("version")) is not int or found["version"] != VERSION:
        raise FormatError(
            f"version {found.get('version')!r} is not supported; this is version {VERSION}"
        )
    if not isinstance(found.get("kind"), str) or found["kind"] not in _READERS:
        raise FormatError(f"unknown kind of document: {found.get('kind')!r}")
    if kind is not None and found["kind"] != kind:
        raise FormatError(f"a document of kind {kind!r} is needed, not {found['kind']!r}")
    return _READERS[found["kind"]](
        {k: v for k, v in found.items() if k not in ("format", "version", "kind")}
    )
