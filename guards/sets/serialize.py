"""Guard sets, facts, verdicts and sources to and from JSON: versioned, and validated on load.

A document says what it is: ``{"format": "guards", "version": 1, "kind": "guard_set", ...}``.  Conditions are written as
text that a person can read, and as a list of steps where the text would not give back the very same term.  What is
loaded is checked piece by piece; a :class:`~guards.errors.FormatError` names the piece that is wrong.  Guard sets can
also be written, not read, as SMT-LIB 2 and as LaTeX.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from typing import Any, TypeVar

import attrs

from guards.ask.ladder import RUNGS
from guards.ask.reading import parse
from guards.ask.verdict import Verdict
from guards.errors import FormatError, GuardsError
from guards.facts.definedness import guarded
from guards.facts.facts import Facts
from guards.regions.satisfiability import SIZE, range_conditions
from guards.sets.guard import Guard, GuardSet, Origin
from guards.sets.sources import IntArg, Size, Source, StorageOffset, Stride
from guards.terms import arithmetic, boolean, division, extremes
from guards.terms.fold import fold
from guards.terms.latex_printing import latex
from guards.terms.printing import text
from guards.terms.smtlib_printing import smtlib
from guards.terms.term import Op, Term, children, postorder

FORMAT, VERSION = "guards", 1
_LARGEST = 16_000_000  # characters of a document
_BITS = 4096  # of a number
_PRODUCTS = 4096  # summands of a product, multiplied out
_WRITTEN = 200_000  # parts of a term, written out: what is shared counts each time

Json = Any
Range = tuple[int | None, int | None]
T = TypeVar("T")
Value = GuardSet | Facts | Verdict | dict[str, Source]

# -- terms ------------------------------------------------------------------------------------------------------------


def term_to_json(term: Term) -> Json:
    """A term as text, or as a list of steps where the text would be read as another term.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq
    >>> term_to_json(eq(symbol("s0") % 8, 0))
    's0 % 8 == 0'
    """
    if _parts(term) <= _WRITTEN:
        written = text(term)
        try:
            if parse(written) is term:
                return written
        except GuardsError:
            pass
    return _steps(term)


def _parts(term: Term) -> int:
    """How many parts a term has when it is written out, where what it shares is repeated."""
    return fold(term, lambda part, operands: 1 + sum(operands))


def _steps(term: Term) -> Json:
    """Each part of the term as a step that refers to earlier steps by number; the last step is the term."""
    number: dict[Term, int] = {}
    steps: list[Json] = []
    for part in postorder(term):
        if part.op is Op.CONST or part.op is Op.SYMBOL:
            steps.append([part.op.name.lower(), part.args[0]])
        elif part.op is Op.ADD:
            constant, items = part.args
            steps.append(["add", constant, *([number[m], c] for m, c in items)])
        else:
            steps.append([part.op.name.lower(), *(number[child] for child in children(part))])
        number[part] = len(steps) - 1
    return steps


def term_from_json(data: Json) -> Term:
    """The term of :func:`term_to_json`.

    Raises:
        FormatError: it is no term.

    >>> term_from_json("s0 % 8 == 0"), term_from_json([["symbol", "s0"], ["add", -8, [0, 1]], ["le", 1]])
    (<s0 % 8 == 0>, <s0 <= 8>)
    """
    try:
        if isinstance(data, str):
            return parse(data)
        made: list[Term] = []
        for step in _list(data, "a term"):
            made.append(_bounded(_step(_list(step, "a step of a term"), made)))
        if _parts(made[-1]) > _WRITTEN:
            raise FormatError(f"it has more than {_WRITTEN} parts when written out")
        return made[-1]
    except (GuardsError, ValueError, TypeError, IndexError, ZeroDivisionError) as error:
        raise FormatError(f"not a term: {error}") from error


def _bounded(term: Term) -> Term:
    if term.op is Op.CONST and term.value.bit_length() > _BITS:
        raise FormatError(f"a number of more than {_BITS} bits")
    return term


def _product(*terms: Term) -> Term:
    """A product, unless multiplying it out makes too many summands."""
    summands = 1
    for term in terms:
        constant, items = arithmetic.split(term)
        summands *= max(1, len(items) + bool(constant))
        if summands > _PRODUCTS:
            raise FormatError(f"a product of more than {_PRODUCTS} summands")
    return arithmetic.prod(terms)


_MAKERS: dict[str, tuple[int | None, Callable[..., Term]]] = {
    "mul": (None, _product),
    "floordiv": (2, division.floordiv),
    "mod": (2, division.mod),
    "min": (None, extremes.minimum),
    "max": (None, extremes.maximum),
    "ite": (3, boolean.ite),
    "true": (0, lambda: boolean.TRUE),
    "false": (0, lambda: boolean.FALSE),
    "eq": (1, lambda term: boolean.eq(term, 0)),
    "ne": (1, lambda term: boolean.ne(term, 0)),
    "le": (1, lambda term: boolean.le(term, 0)),
    "and": (None, boolean.and_),
    "or": (None, boolean.or_),
}


def _step(step: list[Json], made: list[Term]) -> Term:
    kind = step[0] if step else None
    if kind == "const" and len(step) == 2:
        return arithmetic.const(_int(step[1], "a constant"))
    if kind == "symbol" and len(step) == 2:
        return arithmetic.symbol(_name(step[1]))
    if kind == "add" and len(step) > 1:
        pairs = [_list(pair, "a part of a sum") for pair in step[2:]]
        parts = [arithmetic.mul(_earlier(i, made), _int(c, "a coefficient")) for i, c in pairs]
        return arithmetic.add(_int(step[1], "a constant"), arithmetic.total(parts))
    if not isinstance(kind, str) or kind not in _MAKERS:
        raise FormatError(f"unknown kind of term: {kind!r}")
    count, make = _MAKERS[kind]
    if count is not None and len(step) != count + 1:
        raise FormatError(f"{kind} takes {count} operands, not {len(step) - 1}")
    return make(*(_earlier(index, made) for index in step[1:]))


def _earlier(index: Json, made: list[Term]) -> Term:
    if not 0 <= _int(index, "the number of a step") < len(made):
        raise FormatError(f"step {index} is not an earlier step")
    return made[index]


def _condition(data: Json) -> Term:
    term = term_from_json(data)
    if not term.is_bool:
        raise FormatError(f"a condition is needed, not the integer {term}")
    return term


# -- checked pieces ---------------------------------------------------------------------------------------------------


def _is(value: Json, kind: type[T], what: str) -> T:
    if type(value) is not kind:
        raise FormatError(f"{what} must be of type {kind.__name__}, not {type(value).__name__}")
    return value


def _int(value: Json, what: str) -> int:
    return _is(value, int, what)


def _str(value: Json, what: str) -> str:
    return _is(value, str, what)


def _name(value: Json) -> str:
    """The name of a symbol: one that a text may use for it."""
    name = _str(value, "the name of a symbol")
    try:
        if name.isidentifier() and parse(name) is arithmetic.symbol(name):
            return name
    except GuardsError:
        pass
    raise FormatError(f"{name!r} is not the name of a symbol")


def _list(value: Json, what: str) -> list[Json]:
    return _is(value, list, what)


def _object(value: Json, what: str, required: Set[str], optional: Set[str] = frozenset()) -> dict[str, Json]:
    found = _is(value, dict, what)
    missing, unknown = required - found.keys(), found.keys() - required - optional
    if missing or unknown:
        wrong = [f"lacks {name}" for name in sorted(missing)] + [f"has unknown {name!r}" for name in sorted(unknown)]
        raise FormatError(f"{what} {', '.join(wrong)}")
    return found


def _ranges_to_json(ranges: Mapping[str, Range]) -> Json:
    return {_name(name): list(limits) for name, limits in ranges.items()}


def _ranges(data: Json) -> dict[str, Range]:
    found: dict[str, Range] = {}
    for name, limits in _is(data, dict, "ranges").items():
        _name(name)
        if type(limits) is not list or len(limits) != 2 or any(b is not None and type(b) is not int for b in limits):
            raise FormatError(f"the range of {name} must be two integers or nulls, not {limits!r}")
        found[name] = (limits[0], limits[1])
    return found


def _values(data: Json, what: str) -> dict[str, int] | None:
    if data is None:
        return None
    return {_name(name): _int(value, f"{what} of {name}") for name, value in _is(data, dict, what).items()}


# -- guards -----------------------------------------------------------------------------------------------------------


def _guard_to_json(guard: Guard) -> Json:
    written: dict[str, Json] = {"condition": term_to_json(guard.term)}
    if guard.origin is not None:
        written["origin"] = {name: value for name, value in attrs.asdict(guard.origin).items() if value != ""}
    return written


def _guard(data: Json) -> Guard:
    found = _object(data, "a guard", {"condition"}, {"origin"})
    origin = None
    if found.get("origin") is not None:
        parts = _object(found["origin"], "an origin", {"line"}, {"file", "function", "text", "op", "rule"})
        texts = {name: _str(value, f"{name} of an origin") for name, value in parts.items() if name != "line"}
        origin = Origin(**{"file": "", **texts}, line=_int(parts["line"], "line of an origin"))
    return Guard(_condition(found["condition"]), origin)


def _guard_set_to_json(guards: GuardSet) -> dict[str, Json]:
    return {"ranges": _ranges_to_json(guards.ranges), "guards": [_guard_to_json(guard) for guard in guards]}


def _guard_set(body: Json) -> GuardSet:
    found = _object(body, "a guard set", {"ranges", "guards"})
    return GuardSet(tuple(map(_guard, _list(found["guards"], "guards"))), _ranges(found["ranges"]))


# -- facts, verdicts, sources -----------------------------------------------------------------------------------------


def _facts_to_json(facts: Facts) -> dict[str, Json]:
    declared = {s: facts.declared(s) for s in sorted(facts.symbols, key=lambda s: s.order)}
    ranges = {s.name: (pair.lo, pair.hi) for s, pair in declared.items()}
    return {"ranges": _ranges_to_json(ranges), "conditions": [term_to_json(c) for c in facts.conditions]}


def _facts(body: Json) -> Facts:
    found = _object(body, "facts", {"ranges", "conditions"})
    pairs = {arithmetic.symbol(name): limits for name, limits in _ranges(found["ranges"]).items()}
    try:
        return Facts.make(pairs, [_condition(c) for c in _list(found["conditions"], "conditions")])
    except GuardsError as error:
        raise FormatError(str(error)) from error


def _verdict_to_json(verdict: Verdict) -> dict[str, Json]:
    return attrs.asdict(verdict)


def _verdict(body: Json) -> Verdict:
    found = _object(body, "a verdict", {"value", "rung"}, {"fails", "holds", "reason"})
    if found["value"] is not None and type(found["value"]) is not bool:
        raise FormatError(f"the value of a verdict must be true, false or null, not {found['value']!r}")
    return Verdict(
        found["value"],
        _rung(found["rung"]),
        _values(found.get("fails"), "fails"),
        _values(found.get("holds"), "holds"),
        _str(found.get("reason", ""), "reason"),
    )


def _rung(data: Json) -> str:
    if _str(data, "rung") not in RUNGS:
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
    return {"sources": {name: {"kind": kinds[type(s)], **attrs.asdict(s)} for name, s in sources.items()}}


def _sources(body: Json) -> dict[str, Source]:
    read: dict[str, Source] = {}
    for name, data in _is(_object(body, "sources", {"sources"})["sources"], dict, "sources").items():
        found = _object(data, f"the source of {name}", {"kind", "arg"}, {"dim"})
        _name(name)
        if _str(found["kind"], "kind of a source") not in _SOURCES:
            raise FormatError(f"unknown kind of source: {found['kind']!r}")
        cls, has_dim = _SOURCES[found["kind"]]
        if ("dim" in found) is not has_dim:
            raise FormatError(f"the source of {name} {'lacks' if has_dim else 'has an unknown'} dim")
        arg = _str(found["arg"], f"arg of {name}")
        read[name] = cls(arg, _int(found["dim"], f"dim of {name}")) if has_dim else cls(arg)  # type: ignore[call-arg]
    return read


# -- documents --------------------------------------------------------------------------------------------------------

_READERS: dict[str, Callable[[Json], Value]] = {
    "guard_set": _guard_set,
    "facts": _facts,
    "verdict": _verdict,
    "sources": _sources,
}


def to_json(value: GuardSet | Facts | Verdict | Mapping[str, Source], *, indent: int | None = None) -> str:
    """A guard set, facts, a verdict, or a mapping from symbols to sources as a JSON document.

    Raises:
        FormatError: a symbol has a name that no text can use (``lambda``, ``min``, ``__init__``).

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
    else:
        kind, body = "sources", _sources_to_json(value)
    return json.dumps({"format": FORMAT, "version": VERSION, "kind": kind, **body}, indent=indent)


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = next(name for index, (name, _) in enumerate(pairs) if name in dict(pairs[:index]))
        raise FormatError(f"{twice!r} is said twice")
    return members


def from_json(document: str, kind: str | None = None) -> Value:
    """What :func:`to_json` wrote; of the given kind, where one is given.

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
    found = _is(data, dict, "a document")
    if found.get("format") != FORMAT:
        raise FormatError(f"not a document of format {FORMAT!r}: {found.get('format')!r}")
    if type(found.get("version")) is not int or found["version"] != VERSION:
        raise FormatError(f"version {found.get('version')!r} is not supported; this is version {VERSION}")
    if not isinstance(found.get("kind"), str) or found["kind"] not in _READERS:
        raise FormatError(f"unknown kind of document: {found.get('kind')!r}")
    if kind is not None and found["kind"] != kind:
        raise FormatError(f"a document of kind {kind!r} is needed, not {found['kind']!r}")
    return _READERS[found["kind"]]({k: v for k, v in found.items() if k not in ("format", "version", "kind")})


# -- other languages --------------------------------------------------------------------------------------------------


def to_smtlib(guards: GuardSet) -> str:
    """The set as an SMT-LIB 2 script that asks whether it can hold.

    >>> print(to_smtlib(GuardSet.read("s0 % 8 == 0", ranges={"s0": (2, None)})))
    (set-logic QF_NIA)
    (declare-const s0 Int)
    (assert (>= s0 2))
    (assert (= (mod s0 8) 0))
    (check-sat)
    <BLANKLINE>
    """
    return smtlib(*(guarded(guard.term) for guard in guards), ranges=guards.ranges)


def to_latex(guards: GuardSet) -> str:
    r"""The conditions of the set as LaTeX lines; trivial ranges of sizes are left out.

    >>> print(to_latex(GuardSet.read("s0 % 8 == 0", ranges={"s0": (2, None)})))
    \begin{aligned}
    & s_{0} \geq 2 \\
    & s_{0} \bmod 8 = 0
    \end{aligned}
    """
    trivial = {condition for name in guards.ranges for condition in range_conditions(name, SIZE)}
    lines = [f"& {latex(guard.term)}" for guard in guards.conditions if guard.term not in trivial]
    return "\n".join([r"\begin{aligned}", " \\\\\n".join(lines) or "& true", r"\end{aligned}"])
