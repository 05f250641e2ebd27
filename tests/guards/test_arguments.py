"""The public functions take texts, terms, guards and guard sets alike; what they do not take is an
error of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import guards
import meta_fns
import symshape
from guards import (
    ArgumentError,
    Facts,
    Guard,
    GuardsError,
    GuardSet,
    Missing,
    Tree,
    bounds,
    decide,
    holds,
    implies,
    latex,
    parse,
    prove,
    simplify,
    smtlib,
    symbol,
)

SET = GuardSet("s0 > 1", ranges={"s0": (0, 9)})
TERM = parse("s0 > 1")


@pytest.mark.parametrize(
    "given", ["s0 > 1", TERM, Guard(TERM), SET], ids=["text", "term", "guard", "set"]
)
def test_a_condition_is_a_text_a_term_a_guard_or_a_set(given: Any) -> None:
    assert prove(given, assume=["s0 > 4", "s0 < 8"]) is True
    assert prove(given, ranges={"s0": (0, 1)}) is False
    assert decide(given).value is None
    assert holds(given, {"s0": 8})
    assert not holds(given, {"s0": 0})
    assert holds(given, {"s0": 8}, ranges={"s0": (0, 8)}, assume=[SET, "s0 % 2 == 0"])
    assert not holds(given, {"s0": 8}, ranges={"s0": (0, 7)})
    assert not holds(given, {"s0": 8}, assume="s0 % 3 == 0")
    assert not holds("s0 > 5", {"s0": 12}, assume=SET)
    assert implies(given, "s0 > 0") is True
    assert implies("s0 == 5", given) is True
    assert implies(given, "s0 > 5", assume=SET) is False
    assert implies(given, "s0 < 5", ranges={"s0": (0, 4)}) is True
    assert "(assert (<= (+ (* (- 1) s0) 2) 0))" in smtlib(given)
    assert smtlib(given, assume="s0 < 7").count("assert") >= 3
    assert "(assert (<= s0 4))" in smtlib(given, ranges={"s0": (0, 4)})
    assert r"s_{0} \geq 2" in latex(given)
    assert r"s_{0} \leq 4" in latex(given, ranges={"s0": (0, 4)})
    assert str(simplify(given, assume="s0 >= 3", ranges={"s0": (0, 8)})) in (
        "True",
        "s0 <= 9  # declared range",
    )
    assert bounds("s0", assume=given)[0] is symbol("s0").subs({"s0": 2})
    assert SET.implies(given) is True
    assert SET.equivalent(given) is True
    assert SET.disjoint(given) is False
    assert SET.intersect(given).holds({"s0": 2})
    assert SET.difference(given).is_satisfiable() is False
    assert guards.certify({"s0": (2, 9)}, [given]).covered is True
    assert guards.compile_check(given, ["s0"]).check((3,))


def test_a_set_speaks_about_the_values_that_its_ranges_allow() -> None:
    wide = GuardSet("x > -3", ranges={"x": (None, None)})
    assert prove(wide) is None
    assert prove("x > -5", assume=wide) is True
    assert bounds(wide)["x"][0] is symbol("x").subs({"x": -2})
    assert simplify(GuardSet("x % y >= 0", "max(x, 2) > y", ranges={"x": (3, None)})) == GuardSet(
        "y != 0", "x > y", ranges={"x": (3, None)}
    )


WRONG: dict[str, tuple[Callable[[], object], type[GuardsError], str]] = {
    "no values": (
        lambda: SET.holds({"s1": 3}),
        Missing,
        "no value is given for s0; there are values for s1",
    ),
    "values of text": (
        lambda: SET.holds({"s0": "x"}),
        ArgumentError,
        r"the value of s0 is an integer, not str \('x'\)",
    ),
    "values of floats": (
        lambda: SET.holds({"s0": 2.5}),
        ArgumentError,
        "the value of s0 is an integer, not float",
    ),
    "no mapping": (
        lambda: SET.violations(3),
        ArgumentError,
        "values map names of symbols to integers, not int",
    ),
    "a guard's values": (lambda: Guard(TERM).holds({}), Missing, "no value is given for s0"),
    "simplify": (
        lambda: simplify(None),
        ArgumentError,
        "simplify takes a text, a term, a guard or a guard set, not None",
    ),
    "latex": (lambda: latex([TERM]), ArgumentError, "latex takes a text, a term"),
    "bounds of a condition": (
        lambda: bounds(TERM),
        ArgumentError,
        "bounds are those of an integer, not of the condition",
    ),
    "bounds": (lambda: bounds([1]), ArgumentError, "bounds takes a text, a term"),
    "smtlib": (lambda: smtlib(3), GuardsError, "a condition is needed, not the integer 3"),
    "assume": (
        lambda: prove(TERM, assume=3),
        ArgumentError,
        "assume is one condition or several .*, not int",
    ),
    "assumed": (
        lambda: prove(TERM, assume=[None]),
        GuardsError,
        "a condition is a text, a term, a guard or a guard set",
    ),
    "ranges": (
        lambda: prove(TERM, ranges=3),
        ArgumentError,
        r"ranges map names of symbols to \(low, high\), not int",
    ),
    "names": (lambda: prove(TERM, ranges={3: (0, 1)}), ArgumentError, "a name is a text, not int"),
    "set of ranges": (
        lambda: GuardSet("s0 > 1", ranges=[1]),
        ArgumentError,
        "ranges map names of symbols",
    ),
    "range": (
        lambda: smtlib(TERM, ranges={"s0": 3}),
        GuardsError,
        "the range of s0 must be a pair",
    ),
    "a number with ranges": (
        lambda: simplify(3.5, ranges={"s0": (1, None)}),
        ArgumentError,
        "simplify takes a text, a term, a guard or a guard set, not float",
    ),
    "facts and ranges": (
        lambda: simplify("s0", Facts(), ranges={"s0": (0, 1)}),
        ArgumentError,
        "not both",
    ),
    "facts": (
        lambda: bounds("s0", facts=3),
        ArgumentError,
        "facts are of the class Facts, not int",
    ),
    "another set": (
        lambda: SET.implies(3),
        ArgumentError,
        "GuardSet.implies takes a guard set, a text, a term",
    ),
    "a symbol": (lambda: symbol(3), ArgumentError, "a symbol's name is a text, not int"),
    "no symbol": (
        lambda: guards.solve("s0 > 1", 3),
        ArgumentError,
        "solved for a symbol, not for 3",
    ),
    "slots": (lambda: Tree(3), ArgumentError, "slots are the names of symbols"),
    "an entry": (lambda: Tree(["s0"]).remove("x"), Missing, "no guard set leads to the entry 'x'"),
    "insert": (lambda: Tree(["s0"]).insert(3, 1), ArgumentError, "Tree.insert takes a guard set"),
    "json": (lambda: guards.to_json(3), ArgumentError, "to_json takes a guard set, facts"),
    "sympy": (lambda: guards.to_sympy("s0 > 1"), ArgumentError, "read a text by guards.parse"),
    "z3": (lambda: guards.to_z3("s0 > 1"), ArgumentError, "read a text by guards.parse"),
    "ask": (
        lambda: guards.ask(Facts(), "s0 > 1"),
        ArgumentError,
        "ask takes a condition as a term, not str",
    ),
    "ask of nothing": (
        lambda: guards.ask(3, TERM),
        ArgumentError,
        "ask takes facts of the class Facts, not int",
    ),
    "text": (lambda: parse([1]), GuardsError, "a text is needed, not list"),
    "explain": (lambda: guards.explain(3, {}), ArgumentError, "explain takes a guard set"),
    "sets": (
        lambda: guards.certify({"s0": (0, 1)}, 3),
        ArgumentError,
        "certify takes several guard sets, not int",
    ),
    "sample": (
        lambda: SET.sample("x"),
        ArgumentError,
        "sample takes the number of points, not str",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_errors_of_this_package(name: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message) as raised:
        call()
    assert isinstance(raised.value, GuardsError)


@pytest.mark.parametrize(
    "package", [guards, symshape, meta_fns], ids=lambda package: package.__name__
)
def test_dir_lists_public_names_only(package: Any) -> None:
    listed = {name for name in dir(package) if not name.startswith("__")}
    assert listed == set(package.__all__)


def test_a_sum_with_a_text_is_a_type_error() -> None:
    """Interpreted operators raise an ArgumentError; compiled ones leave Python to raise its own
    TypeError.
    """
    with pytest.raises(TypeError):
        symbol("s0") + "x"
