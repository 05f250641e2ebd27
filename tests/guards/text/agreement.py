"""Whether two texts say the same."""

from __future__ import annotations

from guards import prove
from guards.asking.reading import parse
from guards.terms import boolean


def say_the_same(one: str, other: str) -> bool:
    """Whether two texts are one term; a choice between conditions has no single form: those must
    agree everywhere.
    """
    a, b = parse(one), parse(other)
    if a is b:
        return True
    assert a.is_bool, (a, b)
    alike = boolean.and_(boolean.or_(a, boolean.not_(b)), boolean.or_(boolean.not_(a), b))
    return prove(alike, ranges=dict.fromkeys(("x", "y"), (-4, 9))) is True
