"""One memoised bottom-up walk over terms, and its two commonest algebras: values and substitution.

An algebra is a function ``(term, operands) -> result``: ``operands`` are the results for
``children(term)`` in that order (for a sum, those of its monomials). Terms of any depth are safe:
the walk keeps its own stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from guards.terms import arithmetic, boolean, division, extremes
from guards.terms.term import DEEP, Op, Term, children, postorder

T = TypeVar("T")
Algebra = Callable[[Term, list[T]], T]
# deeper terms may share so much of themselves that reading a part again costs more than remembering
# it
_SHALLOW = 12
Value = Any  # int or bool; spelled so, a compiled module would make an int of a bool


def fold(term: Term, algebra: Algebra[T], memo: dict[Term, T] | None = None) -> T:
    """Read ``term`` bottom-up with ``algebra``; each distinct part is read once.

    A ``memo`` given by the caller keeps the results between calls.

    >>> from guards.terms.arithmetic import symbol
    >>> x = symbol("x")
    >>> fold(
    ...     (x + 1) // 2, lambda term, operands: 1 + sum(operands)
    ... )  # how many nodes, sums counted once
    4
    """
    known: dict[Term, T] = {} if memo is None else memo
    if term in known:
        return known[term]
    if term.depth <= DEEP:
        return _fold(term, algebra, known)
    for part in postorder(term, lambda part: part in known):
        if part not in known:
            known[part] = algebra(part, [known[child] for child in children(part)])
    return known[term]


def _fold(term: Term, algebra: Algebra[T], known: dict[Term, T]) -> T:
    operands = [
        known[child] if child in known else _fold(child, algebra, known) for child in children(term)
    ]
    result = known[term] = algebra(term, operands)
    return result


# -- values ----------------------------------------------------------------------------------------


def evaluate(term: Term, values: Mapping[str, Value]) -> Value:
    """The value of ``term`` where each symbol has the value that ``values`` gives to its name.

    Raises:
        KeyError: a symbol has no value.
        ZeroDivisionError: a divisor is 0 at these values (and no other part of an ``and`` or ``or``
            decides it).

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import lt
    >>> s = symbol("s")
    >>> evaluate((s + 7) // 8 * 8, {"s": 9}), evaluate(lt(s, 9), {"s": 9})
    (16, False)
    """
    if term.depth <= _SHALLOW:
        return _value(term, values)
    found = fold(term, lambda part, operands: _partial(part, operands, values))
    if found is None:
        raise ZeroDivisionError("a divisor is 0")
    return found


def _partial(term: Term, operands: list[Value], values: Mapping[str, Value]) -> Value:
    """One step of evaluation from below, where an operand may be None: not defined, and perhaps not
    needed.
    """
    op = term.op
    if op is Op.ITE:
        return None if operands[0] is None else operands[1] if operands[0] else operands[2]
    if None in operands:
        stop = op is Op.OR
        return (
            stop
            if (op is Op.AND or stop) and stop in [o for o in operands if o is not None]
            else None
        )
    try:
        return _combine(term, [o for o in operands if o is not None], values)
    except ZeroDivisionError:
        return None


def _value(term: Term, values: Mapping[str, Value]) -> Value:
    op = term.op
    args = term.args
    if op is Op.SYMBOL:
        return values[args[0]]
    if op is Op.CONST:
        return args[0]
    if op is Op.ADD:
        total = args[0]
        for monomial, coefficient in args[1]:
            total += coefficient * _value(monomial, values)
        return total
    if op is Op.AND or op is Op.OR:
        return _connective(op is Op.OR, args, values)
    if op is Op.ITE:
        return _value(args[1] if _value(args[0], values) else args[2], values)
    return _combine(term, [_value(part, values) for part in args], values)


def _connective(stop: bool, parts: tuple[Term, ...], values: Mapping[str, Value]) -> bool:
    """``or`` (stop: True) or ``and``: a part that decides it does so in whatever order the parts
    stand.
    """
    undefined: ZeroDivisionError | None = None
    for part in parts:
        try:
            decided: bool = _value(part, values) is stop
            if decided:
                return stop
        except ZeroDivisionError as error:
            undefined = error
    if undefined is not None:
        raise undefined
    return not stop


def _combine(term: Term, operands: list[Value], values: Mapping[str, Value]) -> Value:
    op = term.op
    if op is Op.SYMBOL:
        return values[term.args[0]]
    if op is Op.CONST:
        return term.args[0]
    if op is Op.ADD:
        constant, items = term.args
        return constant + sum(c * v for (_, c), v in zip(items, operands, strict=True))
    if op is Op.MUL:
        product: Value = 1
        for operand in operands:
            product *= operand
        return product
    if op is Op.FLOORDIV:
        return operands[0] // operands[1]
    if op is Op.MOD:
        return operands[0] % operands[1]
    if op is Op.LE:
        return operands[0] <= 0
    if op is Op.EQ:
        return operands[0] == 0
    if op is Op.NE:
        return operands[0] != 0
    if op is Op.MIN:
        return min(operands)
    if op is Op.MAX:
        return max(operands)
    if op is Op.ITE:
        return operands[1] if operands[0] else operands[2]
    if op is Op.AND:
        return all(operands)
    if op is Op.OR:
        return any(operands)
    return op is Op.TRUE


# -- substitution ----------------------------------------------------------------------------------


def rebuild(term: Term, operands: list[Term]) -> Term:
    """A term of the same kind as ``term`` with other operands, in canonical form."""
    op = term.op
    if op is Op.ADD:
        constant, items = term.args
        merged: dict[Term, int] = {}
        for (_, coefficient), operand in zip(items, operands, strict=True):
            inner, parts = arithmetic.split(operand)
            constant += coefficient * inner
            for monomial, factor in parts:
                merged[monomial] = merged.get(monomial, 0) + coefficient * factor
        return arithmetic.linear(constant, merged)
    if op <= Op.SYMBOL or op is Op.TRUE or op is Op.FALSE:
        return term
    return _MAKERS[op](*operands)


_MAKERS: dict[Op, Callable[..., Term]] = {
    Op.MUL: lambda *parts: arithmetic.prod(parts),
    Op.FLOORDIV: division.floordiv,
    Op.MOD: division.mod,
    Op.MIN: extremes.minimum,
    Op.MAX: extremes.maximum,
    Op.ITE: boolean.ite,
    Op.EQ: boolean.is_zero,
    Op.NE: lambda part: boolean.not_(boolean.is_zero(part)),
    Op.LE: boolean.not_positive,
    Op.AND: boolean.and_,
    Op.OR: boolean.or_,
}


def substitute(term: Term, replacements: Mapping[Term, Term]) -> Term:
    """``term`` with each key of ``replacements`` (a symbol, or any other term) replaced, all at
    once.

    >>> from guards.terms.arithmetic import symbol
    >>> x, y = symbol("x"), symbol("y")
    >>> str(substitute((x + 1) // 8, {x: 8 * y}))
    'y'
    """
    keys = {key for key in replacements if key.symbols <= term.symbols}
    if not keys:
        return term
    touched = frozenset().union(*(key.symbols for key in keys))

    def step(part: Term, operands: list[Term]) -> Term:
        found = replacements.get(part)
        if found is not None:
            return found
        for child, operand in zip(children(part), operands, strict=True):
            if child is not operand:
                return rebuild(part, operands)
        return part

    known: dict[Term, Term] = dict(replacements)
    if term.depth > DEEP:
        return fold(term, step, known)
    return _substitute(term, step, known, touched)


def _substitute(
    term: Term, step: Algebra[Term], known: dict[Term, Term], touched: frozenset[Term]
) -> Term:
    found = known.get(term)
    if found is None:
        if term.symbols.isdisjoint(touched):
            return term
        found = step(term, [_substitute(child, step, known, touched) for child in children(term)])
        known[term] = found
    return found
