"""JSON: what is written is read back, and what is wrong is named."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from guards import (
    Facts,
    FormatError,
    Guard,
    GuardSet,
    IntArg,
    Origin,
    Size,
    StorageOffset,
    Stride,
    Verdict,
    decide,
    from_json,
    to_json,
)
from guards.exchange import term_from_json, term_to_json, to_latex, to_smtlib
from guards.exprs import Term, floordiv, gt, maximum, symbol
from guards.fold import text
from tests.guards.making import random_set

S0, S1 = symbol("s0"), symbol("s1")


def test_guard_set() -> None:
    origin = Origin("m.py", 3, "f", "if n > 2:", "aten.add", "branch")
    guards = GuardSet((Guard(gt(S0 + S1, 2), origin), Guard(gt(S0, S1))), {"s0": (0, 9), "s1": (None, None)})
    assert from_json(to_json(guards), kind="guard_set") == guards
    assert json.loads(to_json(guards, indent=1))["guards"][0]["condition"] == "s0 + s1 > 2"


def test_random_sets() -> None:
    rng = random.Random(5)
    for _ in range(200):
        guards = random_set(rng)
        assert from_json(to_json(guards)) == guards


def test_facts() -> None:
    facts = Facts().with_symbol(S0, 2, None).with_symbol(S1, None, 7).assume(gt(S0, S1))
    again = from_json(to_json(facts), kind="facts")
    assert again == facts


@pytest.mark.parametrize("query", ["s0 + s1 > 2", "s0 >= 0", "s0 < 0"])
def test_verdict(query: str) -> None:
    verdict = decide(query)
    assert from_json(to_json(verdict)) == verdict
    assert isinstance(verdict, Verdict)


def test_sources() -> None:
    sources = {"s0": Size("x", 0), "s1": Stride("x", 1), "s2": StorageOffset("x"), "s3": IntArg("k")}
    assert from_json(to_json(sources), kind="sources") == sources


def test_text_that_would_be_read_otherwise_is_written_as_steps() -> None:
    """The parser takes no text nested so deeply; the steps refer to each other by number."""
    term: Term = S0
    for level in range(150):
        term = maximum(floordiv(term + 3, 2) + level % 3, S1)
    written = term_to_json(gt(term, 7))
    assert isinstance(written, list)
    assert term_from_json(json.loads(json.dumps(written))) is gt(term, 7)


def test_steps_of_every_kind() -> None:
    from guards.exchange import _steps
    from guards.parse import parse

    for source in (
        "s0*s0*s1 - 3*s1 + 4 <= 0",
        "s0 // s1 + s0 % 3 != 2 and s0 < 4 or max(s0, s1, 3) == min(s1, 7)",
        "(s0 if s1 > 2 else 5) == s1",
        "True",
        "False",
    ):
        term = parse(source)
        assert term_from_json(_steps(term)) is term, text(term)


GOOD: dict[str, Any] = json.loads(to_json(GuardSet.read("s0 > 2")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a document of format 'guards'"),
        ({"version": 2}, "version 2 is not supported"),
        ({"version": "1"}, "version '1' is not supported"),
        ({"kind": "program"}, "unknown kind of document"),
        ({"kind": ["guard_set"]}, "unknown kind of document"),
        ({"ranges": {"s0": [0]}}, "the range of s0"),
        ({"ranges": {"s0": [0, "9"]}}, "the range of s0"),
        ({"ranges": {"s0": [True, None]}}, "the range of s0"),
        ({"ranges": {"not a name": [0, 1]}}, "not the name of a symbol"),
        ({"ranges": []}, "ranges must be of type dict"),
        ({"guards": {}}, "guards must be of type list"),
        ({"guards": [{}]}, "a guard lacks condition"),
        ({"guards": [{"condition": "s0 > 2", "why": 1}]}, "a guard has unknown 'why'"),
        ({"guards": [{"condition": "s0 + 2"}]}, "a condition is needed"),
        ({"guards": [{"condition": "s0 >"}]}, "not a term"),
        ({"guards": [{"condition": "__import__('os').system('true') == 0"}]}, "not a term"),
        ({"guards": [{"condition": 3}]}, "a term must be of type list"),
        ({"guards": [{"condition": []}]}, "not a term"),
        ({"guards": [{"condition": [["jump", 1]]}]}, "unknown kind of term: 'jump'"),
        ({"guards": [{"condition": [[["eq"], 1]]}]}, "unknown kind of term"),
        ({"guards": [{"condition": [["symbol", "s0"], ["eq", 1]]}]}, "step 1 is not an earlier step"),
        ({"guards": [{"condition": [["symbol", "s0"], ["eq", -1]]}]}, "step -1 is not an earlier step"),
        ({"guards": [{"condition": [["symbol", "s0"], ["eq", 0, 0]]}]}, "eq takes 1 operands, not 2"),
        ({"guards": [{"condition": [["symbol", "s 0"], ["eq", 0]]}]}, "not a term"),
        ({"guards": [{"condition": [["const", 0], ["symbol", "s"], ["mod", 1, 0], ["eq", 2]]}]}, "not a term"),
        ({"guards": [{"condition": [["symbol", "s0"], ["le", 0], ["mul", 0, 1]]}]}, "not a term"),
        ({"guards": [{"condition": "s0 > 2", "origin": {"file": "m.py"}}]}, "an origin lacks line"),
        ({"guards": [{"condition": "s0 > 2", "origin": {"line": "3"}}]}, "line of an origin must be of type int"),
        ({"extra": 1}, "a guard set has unknown 'extra'"),
    ],
)
def test_wrong_documents(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError) as raised:
        from_json(json.dumps({**GOOD, **change}))
    assert message in str(raised.value)


@pytest.mark.parametrize("document", ["", "[", "[]", "3", "null", '"guards"', "[" * 100_000, "NaN"])
def test_not_even_documents(document: str) -> None:
    with pytest.raises(FormatError):
        from_json(document)


def test_wrong_kind() -> None:
    with pytest.raises(FormatError, match="of kind 'facts' is needed, not 'guard_set'"):
        from_json(json.dumps(GOOD), kind="facts")


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "verdict", "value": 1, "rung": "z3"},
        {"kind": "verdict", "value": None, "rung": "z3", "fails": {"s0": "x"}},
        {"kind": "facts", "ranges": {"s0": [5, 2]}, "conditions": []},
        {"kind": "sources", "sources": {"s0": {"kind": "size", "arg": "x"}}},
        {"kind": "sources", "sources": {"s0": {"kind": "int", "arg": "x", "dim": 1}}},
        {"kind": "sources", "sources": {"s0": {"kind": "weight", "arg": "x"}}},
    ],
)
def test_wrong_bodies(body: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        from_json(json.dumps({"format": "guards", "version": 1, **body}))


def test_smtlib_means_the_same() -> None:
    """Z3 reads the script and finds a point exactly where the box has one; the point satisfies the set."""
    import z3

    rng = random.Random(9)
    seen = {True: 0, False: 0}
    for _ in range(60):
        names = ("s0", "s1")
        guards = random_set(rng, names, 3).intersect(GuardSet((), dict.fromkeys(names, (0, 6))))
        points = [{"s0": a, "s1": b} for a in range(7) for b in range(7) if guards.holds({"s0": a, "s1": b})]
        solver = z3.Solver()
        solver.from_string(to_smtlib(guards))
        answer = solver.check()
        assert (answer == z3.sat) == bool(points), to_smtlib(guards)
        seen[bool(points)] += 1
        if points:
            model = solver.model()
            found = {str(d): model[d].as_long() for d in model.decls() if str(d) in names}
            assert guards.holds({name: found.get(name, guards.ranges[name][0] or 0) for name in names})
    assert min(seen.values()) > 5


def test_latex() -> None:
    assert to_latex(GuardSet()) == "\\begin{aligned}\n& true\n\\end{aligned}"
    assert to_latex(GuardSet.read("s0 > s1 // 2")).count("\n") == 2
