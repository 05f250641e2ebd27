"""The memo: it lives beside a component's data, belongs to one component, and may be emptied at any
time.
"""

from __future__ import annotations

from guards import parse
from guards.asking.ladder import Effort
from guards.asking.questions import ask_component
from guards.deciders.witnesses import points
from guards.facts.component import Component
from guards.facts.facts import Facts
from guards.facts.memo import Memo
from guards.facts.propagate import assume, with_condition
from guards.terms.arithmetic import symbol
from guards.terms.boolean import ge

x = symbol("x")
QUESTIONS = [
    parse(text)
    for text in ("(x + 7) // 8 * 8 >= x", "x % 5 < 4", "x // y <= x", "x*x % 4 <= 1", "x == y")
]


def _component() -> Component:
    return Facts.make({x: (1, None), symbol("y"): (1, None)}, [parse("x <= 2*y")]).component(x)


def _answers(component: Component) -> list[bool | None]:
    return [ask_component(component, question, Effort.FULL, None) for question in QUESTIONS]


def test_emptying_it_changes_no_answer() -> None:
    component = _component()
    first = _answers(component)
    shown = points(component)
    for name in ("answers", "assumed", "freedom", "points", "simplified"):
        setattr(component.memo, name, getattr(Memo(), name))
        assert _answers(component) == first
        component.memo.answers.clear()
        assert _answers(component) == first
    assert points(component) == shown


def test_a_component_with_more_conditions_has_its_own() -> None:
    component = _component()
    _answers(component)
    made = assume(component, (ge(x, 9),))
    assert made.memo is not component.memo
    assert made.memo.answers == {}
    # points that satisfy more are looked for among these
    assert made.memo.points is component.memo.points


def test_assumed_components_are_found_again() -> None:
    component = _component()
    assert with_condition(component, ge(x, 9)) is with_condition(component, ge(x, 9))
    assert list(component.memo.assumed) == [ge(x, 9)]
    for number in range(200):
        with_condition(component, ge(x, number + 10))
    assert len(component.memo.assumed) <= 64
