"""Constructors behind the comparison methods of terms: relations, connectives, extremes and
substitution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from guards.errors import ArgumentError
from guards.terms import boolean, extremes, fold
from guards.terms.arithmetic import integer, symbol
from guards.terms.overloading import compared_by
from guards.terms.term import IntLike, Op, Term


def compare(operator: str, a: Any, b: Any) -> Term:
    """``a operator b``, for integers; ``==`` and ``!=`` compare two conditions too, ``& | ~``
    combine them.

    Raises:
        TypeError: an operand is neither a term nor an integer, or an integer where a condition is
            needed.
    """
    if operator in _CONNECTIVES:
        _need_conditions(operator, a, b)
        return _CONNECTIVES[operator](a, b)
    if type(b) is not Term and not isinstance(b, int):
        raise ArgumentError(
            f"compare a term with a term or an integer, not with {type(b).__name__}: {a} "
            f"{operator} {b!r}"
        )
    if operator in ("==", "!=") and _is_condition(a) and _is_condition(b):
        left, right = boolean.boolean(a), boolean.boolean(cast(Any, b))
        same = iff(left, right)
        return same if operator == "==" else boolean.not_(same)
    return _RELATIONS[operator](integer(a), integer(b))


def iff(a: Term, b: Term) -> Term:
    """Return the condition that two conditions agree.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import ge, lt
    >>> x = symbol("x")
    >>> iff(lt(x, 3), ge(2, x))
    <True>
    """
    if a is b:
        return boolean.TRUE
    return boolean.and_(boolean.or_(boolean.not_(a), b), boolean.or_(a, boolean.not_(b)))


def _is_condition(value: Any) -> bool:
    return value.op >= Op.TRUE if type(value) is Term else isinstance(value, bool)


def _need_conditions(operator: str, a: Any, b: Any) -> None:
    for each in (a, b):
        if not _is_condition(each):
            raise ArgumentError(
                f"{operator} combines conditions, and {each!r} is none: compare it first, in "
                "parentheses"
            )


def replace(term: Term, values: Mapping[Any, IntLike]) -> Term:
    """``term`` with symbols, or names of symbols, or other parts replaced, all at once.

    Raises:
        TypeError: a key is neither a name nor a term, or what replaces it is of another kind.
    """
    found: dict[Term, Term] = {}
    if not isinstance(values, Mapping):
        raise ArgumentError(
            f"subs takes a mapping of symbols to integers or terms, not {type(values).__name__}"
        )
    for key, value in values.items():
        part = symbol(key) if isinstance(key, str) else key
        if type(part) is not Term:
            raise ArgumentError(f"subs replaces symbols, names and terms, not {type(key).__name__}")
        new: Any = value
        found[part] = boolean.boolean(new) if part.op >= Op.TRUE else integer(value)
    return fold.substitute(term, found)


_CONNECTIVES: dict[str, Callable[[Any, Any], Term]] = {
    "&": boolean.and_,
    "|": boolean.or_,
    "~": lambda a, _: boolean.not_(a),
}
_RELATIONS: dict[str, Callable[[Term, Term], Term]] = {
    "<": boolean.lt,
    "<=": boolean.le,
    ">": boolean.gt,
    ">=": boolean.ge,
    "==": boolean.eq,
    "!=": boolean.ne,
    "max": extremes.maximum,
    "min": extremes.minimum,
}
compared_by(compare, replace)
