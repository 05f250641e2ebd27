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
from guards.terms.arithmetic import symbol
from guards.terms.boolean import gt
from tests.counting import calls
from tests.guards.making import random_set

S0, S1 = symbol("s0"), symbol("s1")


def test_guard_set() -> None:
    origin = Origin("m.py", 3, "f", "if n > 2:", "aten.add", "branch")
    guards = GuardSet(
        (Guard(gt(S0 + S1, 2), origin), Guard(gt(S0, S1))), {"s0": (0, 9), "s1": (None, None)}
    )
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
    sources = {
        "s0": Size("x", 0),
        "s1": Stride("x", 1),
        "s2": StorageOffset("x"),
        "s3": IntArg("k"),
    }
    assert from_json(to_json(sources), kind="sources") == sources


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
        (
            {"guards": [{"condition": [["symbol", "s0"], ["eq", 1]]}]},
            "step 1 is not an earlier step",
        ),
        (
            {"guards": [{"condition": [["symbol", "s0"], ["eq", -1]]}]},
            "step -1 is not an earlier step",
        ),
        (
            {"guards": [{"condition": [["symbol", "s0"], ["eq", 0, 0]]}]},
            "eq takes 1 operands, not 2",
        ),
        ({"guards": [{"condition": [["symbol", "s 0"], ["eq", 0]]}]}, "not a term"),
        (
            {"guards": [{"condition": [["const", 0], ["symbol", "s"], ["mod", 1, 0], ["eq", 2]]}]},
            "not a term",
        ),
        ({"guards": [{"condition": [["symbol", "s0"], ["le", 0], ["mul", 0, 1]]}]}, "not a term"),
        ({"guards": [{"condition": "s0 > 2", "origin": {"file": "m.py"}}]}, "an origin lacks line"),
        (
            {"guards": [{"condition": "s0 > 2", "origin": {"line": "3"}}]},
            "line of an origin must be of type int",
        ),
        ({"extra": 1}, "a guard set has unknown 'extra'"),
    ],
)
def test_wrong_documents(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError) as raised:
        from_json(json.dumps({**GOOD, **change}))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": True}, "version True is not supported"),
        ({"version": 1.0}, "version 1.0 is not supported"),
        ({"ranges": {"__init__": [0, 1]}}, "'__init__' is not the name of a symbol"),
        ({"ranges": {"lambda": [0, 1]}}, "'lambda' is not the name of a symbol"),
        ({"ranges": {"s0": [0, float("inf")]}}, "the range of s0"),
        (
            {"guards": [{"condition": [["symbol", "True"], ["le", 0]]}]},
            "'True' is not the name of a symbol",
        ),
        (
            {"guards": [{"condition": [["const", 10**1300], ["le", 0]]}]},
            "a number of more than 4096 bits",
        ),
        (
            {"guards": [{"condition": [["const", 2]] + [["mul", i, i] for i in range(60)]}]},
            "4096 bits",
        ),
        (
            {
                "guards": [
                    {
                        "condition": [["symbol", "a"], ["symbol", "b"], ["add", 0, [0, 1], [1, 1]]]
                        + [["mul", index, index] for index in range(2, 30)]
                    }
                ]
            },
            "a product of more than 4096 summands",
        ),
        ({"guards": [{"condition": "s0 ** 100000 > 1"}]}, "an exponent must be"),
        ({"guards": [{"condition": "(" * 5000 + "s0" + ")" * 5000 + " > 1"}]}, "not a term"),
    ],
)
def test_hostile_documents(change: dict[str, Any], message: str) -> None:
    def refused() -> str:
        with pytest.raises(FormatError) as raised:
            from_json(json.dumps({**GOOD, **change}))
        return str(raised.value)

    said, count = calls(refused)
    assert message in said
    assert count < 50_000, count


def test_said_twice() -> None:
    with pytest.raises(FormatError, match="'s0' is said twice"):
        from_json(
            '{"format": "guards", "version": 1, "kind": "guard_set", "ranges": {"s0": [0, 1], '
            '"s0": [2, 3]}}'
        )
    with pytest.raises(FormatError, match="'version' is said twice"):
        from_json('{"format": "guards", "version": 1, "version": 2}')


def test_a_name_that_no_text_can_use_is_not_written() -> None:
    with pytest.raises(FormatError, match="'lambda' is not the name"):
        to_json(GuardSet((), {"lambda": (0, 4)}))


_PIECES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    3,
    10**30,
    1.5,
    "",
    "s0",
    "s0 > 1",
    "__class__",
    "s0 %",
    [],
    ["le", 0],
    [["symbol", "s0"], ["le", 0]],
    {},
    {"s0": [0, 1]},
    {"condition": "s0 > 2"},
    {"line": 1},
    "\x00",
    "guard_set",
    "facts",
    "z3",
)


def _mutated(rng: random.Random, data: Any) -> Any:
    """The document with one piece of it replaced, removed or added."""
    if rng.random() < 0.25 or not isinstance(data, (dict, list)) or not data:
        return rng.choice(_PIECES)
    if isinstance(data, list):
        index = rng.randrange(len(data))
        return [
            *data[:index],
            *([_mutated(rng, data[index])] if rng.random() < 0.9 else []),
            *data[index + 1 :],
        ]
    name = rng.choice(list(data))
    changed = {key: value for key, value in data.items() if key != name}
    if rng.random() < 0.85:
        changed[name if rng.random() < 0.9 else rng.choice(["kind", "x", "__init__"])] = _mutated(
            rng, data[name]
        )
    return changed


def test_mutated_documents_are_read_or_refused() -> None:
    """Nothing but FormatError is raised, and what is read can be written again."""
    rng = random.Random(99)
    written = [
        to_json(GuardSet.read("s0 + s1 > 2", "s0 % s1 == 0", ranges={"s0": (0, 9)})),
        to_json(GuardSet((Guard(gt(S0, 1), Origin("m.py", 3, "f", "x")),))),
        to_json(Facts().with_symbol(S0, 2, None).assume(gt(S0, S1))),
        to_json(decide("s0 + s1 > 2")),
        to_json({"s0": Size("x", 0), "s3": IntArg("k")}),
    ]
    steps = {
        **GOOD,
        "guards": [{"condition": [["symbol", "s0"], ["const", 3], ["mod", 0, 1], ["eq", 2]]}],
    }
    refused = 0
    for _ in range(3000):
        data = json.loads(rng.choice([*written, json.dumps(steps)]))
        for _ in range(rng.randint(1, 2)):
            data = _mutated(rng, data)
        try:
            again = from_json(json.dumps(data))
        except FormatError:
            refused += 1
            continue
        assert from_json(to_json(again)) == again
    assert 1500 < refused < 3000


@pytest.mark.parametrize(
    "document", ["", "[", "[]", "3", "null", '"guards"', "[" * 100_000, "NaN", None, b"{}", 3]
)
def test_not_even_documents(document: Any) -> None:
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
        {"kind": "verdict", "value": True, "rung": "nonsense"},
        {"kind": "verdict", "value": True, "rung": ["z3"]},
        {"kind": "sources", "sources": {"s0": {"kind": ["size"], "arg": "x"}}},
        {"kind": "sources", "sources": {"no name": {"kind": "int", "arg": "x"}}},
        {"kind": "facts", "ranges": {"s0": [5, 2]}, "conditions": []},
        {"kind": "sources", "sources": {"s0": {"kind": "size", "arg": "x"}}},
        {"kind": "sources", "sources": {"s0": {"kind": "int", "arg": "x", "dim": 1}}},
        {"kind": "sources", "sources": {"s0": {"kind": "weight", "arg": "x"}}},
    ],
)
def test_wrong_bodies(body: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        from_json(json.dumps({"format": "guards", "version": 1, **body}))
