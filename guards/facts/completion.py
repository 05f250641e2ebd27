"""Completing a model: from values of the symbols that a component's rewrites leave to values of all
its symbols.
"""

from __future__ import annotations

from guards.domains.interval_arithmetic import some_value
from guards.facts.component import Component
from guards.terms import fold
from guards.terms.term import Op

Values = dict[str, int]


def with_defaults(component: Component, values: Values) -> Values:
    """The values, and one for each symbol that is left after the rewrites and has none."""
    made = dict(values)
    for symbol, pair in component.ranges.items():
        if symbol.op is Op.SYMBOL and symbol.name not in made:
            made[symbol.name] = some_value(pair)
    return made


def completed(component: Component, values: Values) -> Values | None:
    """Values for the symbols that were rewritten away too; None when they violate what the
    component knows.

    None also where a symbol that is needed has no value.

    >>> from guards.facts.facts import Facts
    >>> from guards import parse
    >>> component = Facts().assume(parse("y == 2*x + 1")).component(parse("x + y"))
    >>> completed(component, {"x": 4}), completed(component, {"x": -1})
    ({'x': 4, 'y': 9}, None)
    """
    values = dict(values)
    try:
        for atom, replacement in component.rewrites.items():
            if atom.op is Op.SYMBOL:
                values[atom.name] = int(fold.evaluate(replacement, values))
        for symbol, (lo, hi) in component.declared.items():
            value = values[symbol.name]
            if (lo is not None and value < lo) or (hi is not None and value > hi):
                return None
        for condition in component.conditions:
            if not fold.evaluate(condition, values):
                return None
        return {symbol.name: values[symbol.name] for symbol in component.declared}
    except (ZeroDivisionError, KeyError):
        return None
