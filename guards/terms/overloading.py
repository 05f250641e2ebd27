# mypy: disable-error-code="no-any-return"
"""The operators of terms: what each builds is made by modules above, which say here how
(``computed_by`` ...).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self


class Operators:
    """Arithmetic, comparisons and connectives; the one class derived from this is ``Term``."""

    __slots__ = ()

    def __add__(self, other: Self | int) -> Self:
        return _add(self, other)

    def __radd__(self, other: Self | int) -> Self:
        return _add(other, self)

    def __sub__(self, other: Self | int) -> Self:
        return _sub(self, other)

    def __rsub__(self, other: Self | int) -> Self:
        return _sub(other, self)

    def __mul__(self, other: Self | int) -> Self:
        return _mul(self, other)

    def __rmul__(self, other: Self | int) -> Self:
        return _mul(other, self)

    def __floordiv__(self, other: Self | int) -> Self:
        return _floordiv(self, other)

    def __rfloordiv__(self, other: Self | int) -> Self:
        return _floordiv(other, self)

    def __mod__(self, other: Self | int) -> Self:
        return _mod(self, other)

    def __rmod__(self, other: Self | int) -> Self:
        return _mod(other, self)

    def __neg__(self) -> Self:
        return _mul(-1, self)

    # -- conditions

    def __lt__(self, other: object) -> Self:
        return _compared("<", self, other)

    def __le__(self, other: object) -> Self:
        return _compared("<=", self, other)

    def __gt__(self, other: object) -> Self:
        return _compared(">", self, other)

    def __ge__(self, other: object) -> Self:
        return _compared(">=", self, other)

    def __eq__(self, other: object) -> Any:
        return False if other is None else _compared("==", self, other)

    def __ne__(self, other: object) -> Any:
        return True if other is None else _compared("!=", self, other)

    def __hash__(self) -> int:  # Term takes that of object itself: faster, and the same
        return object.__hash__(self)

    def eq(self, other: object) -> Self:
        """The relation ``self == other``; of two conditions, that they agree. What ``==`` builds
        too.

        >>> from guards import symbol
        >>> symbol("s").eq(8)
        <s == 8>
        """
        return _compared("==", self, other)

    def ne(self, other: object) -> Self:
        """The relation ``self != other``."""
        return _compared("!=", self, other)

    def __and__(self, other: object) -> Self:
        return _compared("&", self, other)

    def __or__(self, other: object) -> Self:
        return _compared("|", self, other)

    def __rand__(self, other: object) -> Self:
        return _compared("&", self, other)

    def __ror__(self, other: object) -> Self:
        return _compared("|", self, other)

    def __invert__(self) -> Self:
        return _compared("~", self, self)

    def subs(self, values: Mapping[Any, Self | int]) -> Self:
        """The term with symbols (or their names, or any other parts) replaced, all at once.

        What does not occur in the term is left out of account.

        >>> from guards import symbol
        >>> s, b = symbol("s"), symbol("b")
        >>> (
        ...     (s * b + s // 8).subs({"s": 8 * b}),
        ...     (s <= b).subs({s: b, b: s}),
        ...     (s % 8).subs({"s": 13}).value,
        ... )
        (<b + 8*b*b>, <b <= s>, 5)
        """
        return _replaced(self, values)

    def sym_max(self, other: Self | int) -> Self:
        """The larger of two integers."""
        return _compared("max", self, other)

    def sym_min(self, other: Self | int) -> Self:
        """The smaller of two integers."""
        return _compared("min", self, other)


def _not_there(*operands: Any) -> Any:
    raise NotImplementedError(
        "guards.terms.division and guards.terms.comparison bring the operators"
    )


Binary = Callable[[Any, Any], Any]
_add: Binary = _not_there
_sub: Binary = _not_there
_mul: Binary = _not_there
_floordiv: Binary = _not_there
_mod: Binary = _not_there
_compared: Callable[[str, Any, Any], Any] = _not_there
_replaced: Callable[[Any, Mapping[Any, Any]], Any] = _not_there


def computed_by(add: Binary, sub: Binary, mul: Binary, floordiv: Binary, mod: Binary) -> None:
    """Set the arithmetic of terms."""
    global _add, _sub, _mul, _floordiv, _mod
    _add, _sub, _mul, _floordiv, _mod = add, sub, mul, floordiv, mod


def compared_by(
    compare: Callable[[str, Any, Any], Any], replace: Callable[[Any, Mapping[Any, Any]], Any]
) -> None:
    """Set the functions behind the comparisons, connectives and ``subs`` of terms."""
    global _compared, _replaced
    _compared, _replaced = compare, replace
