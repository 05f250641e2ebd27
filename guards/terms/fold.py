"""One memoised bottom-up walk over terms, and the algebras that read terms as text, Python source or values.

An algebra is a function ``(term, operands) -> result``: ``operands`` are the results for ``children(term)`` in that
order (for a sum, those of its monomials). Terms of any depth are safe: the walk keeps its own stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from guards.terms import arithmetic, boolean, division, extremes
from guards.terms.term import DEEP, Monomials, Op, Term, children, postorder, spelled_by

T = TypeVar("T")
Algebra = Callable[[Term, list[T]], T]
Value = Any  # int or bool; spelled so, a compiled module would make an int of a bool


def fold(term: Term, algebra: Algebra[T], memo: dict[Term, T] | None = None) -> T:
    """Reads ``term`` bottom-up with ``algebra``; each distinct part is read once.

    A ``memo`` given by the caller keeps the results between calls.

    >>> from guards.terms.arithmetic import symbol
    >>> x = symbol("x")
    >>> fold((x + 1) // 2, lambda term, operands: 1 + sum(operands))  # how many nodes, sums counted once
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
    operands = [known[child] if child in known else _fold(child, algebra, known) for child in children(term)]
    result = known[term] = algebra(term, operands)
    return result


# -- values -----------------------------------------------------------------------------------------------------------


def evaluate(term: Term, values: Mapping[str, Value]) -> Value:
    """The value of ``term`` where each symbol has the value that ``values`` gives to its name.

    Raises:
        KeyError: a symbol has no value.
        ZeroDivisionError: a divisor is 0 at these values (and no other part of an ``and`` or ``or`` decides it).

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import lt
    >>> s = symbol("s")
    >>> evaluate((s + 7) // 8 * 8, {"s": 9}), evaluate(lt(s, 9), {"s": 9})
    (16, False)
    """
    if term.depth <= DEEP:
        return _value(term, values)
    found = fold(term, lambda part, operands: _partial(part, operands, values))
    if found is None:
        raise ZeroDivisionError("a divisor is 0")
    return found


def _partial(term: Term, operands: list[Value], values: Mapping[str, Value]) -> Value:
    """One step of evaluation from below, where an operand may be None: not defined, and perhaps not needed."""
    op = term.op
    if op is Op.ITE:
        return None if operands[0] is None else operands[1] if operands[0] else operands[2]
    if None in operands:
        stop = op is Op.OR
        return stop if (op is Op.AND or stop) and stop in [o for o in operands if o is not None] else None
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
    """``or`` (stop: True) or ``and``: a part that decides it does so in whatever order the parts stand."""
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


# -- substitution -----------------------------------------------------------------------------------------------------


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
    """``term`` with each key of ``replacements`` (a symbol, or any other term) replaced, all at once.

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


def _substitute(term: Term, step: Algebra[Term], known: dict[Term, Term], touched: frozenset[Term]) -> Term:
    found = known.get(term)
    if found is None:
        if term.symbols.isdisjoint(touched):
            return term
        found = step(term, [_substitute(child, step, known, touched) for child in children(term)])
        known[term] = found
    return found


# -- text -------------------------------------------------------------------------------------------------------------

_OR, _AND, _CONDITIONAL, _COMPARE, _SUM, _PRODUCT, _ATOM = range(7)
_Text = tuple[str, int]  # a text and how strongly it binds


def _wrap(item: _Text, strength: int) -> str:
    return item[0] if item[1] >= strength else f"({item[0]})"


def _product(coefficient: int, item: _Text) -> str:
    return _wrap(item, _PRODUCT) if coefficient == 1 else f"{coefficient}*{_factor(item)}"


def _factor(item: _Text) -> str:
    # a product of plain factors needs no parentheses after a coefficient, `8*(s//8)` does
    text, strength = item
    return text if strength == _ATOM or (strength == _PRODUCT and "/" not in text and "%" not in text) else f"({text})"


def _sum(constant: int, parts: list[tuple[int, _Text]]) -> _Text:
    """Positive parts first, then negative ones, then the constant."""
    positive = [_product(c, item) for c, item in parts if c > 0]
    negative = [_product(-c, item) for c, item in parts if c < 0]
    if not positive and not negative:
        return str(constant), _ATOM if constant >= 0 else _SUM
    if not positive and constant > 0:
        positive, constant = [str(constant)], 0
    text = " + ".join(positive)
    if negative and not text:  # a leading minus binds more strongly than `//` and `%`
        negative[0] = next(_factor(item) if c == -1 else _product(-c, item) for c, item in parts if c < 0)
        text = f"-{' - '.join(negative)}"
    elif negative:
        text = f"{text} - {' - '.join(negative)}"
    if constant:
        text += f" + {constant}" if constant > 0 else f" - {-constant}"
    if len(positive) + len(negative) == 1 and not constant and positive:
        return text, _PRODUCT if abs(parts[0][0]) != 1 else parts[0][1][1]
    return text, _SUM


def balanced(
    term: Term, operands: list[T], show: Callable[[int, list[tuple[int, T]]], str], join: Callable[[str, str, str], str]
) -> str:
    """A relation with its negative parts moved to the other side; ``show`` writes a sum, ``join`` a comparison."""
    argument = term.args[0]
    constant, items = arithmetic.split(argument)
    if argument.op is not Op.ADD:
        parts = [(1, operands[0])]
    else:
        parts = [(c, item) for (_, c), item in zip(items, operands, strict=True)]
    left = [part for part in parts if part[0] > 0]
    right = [(-c, item) for c, item in parts if c < 0]
    if term.op is Op.EQ or term.op is Op.NE:
        sign = "==" if term.op is Op.EQ else "!="
        if not left:
            left, right, constant = right, left, -constant
        if constant > 0 and right:
            return join(show(constant, left), sign, show(0, right))
        return join(show(0, left), sign, show(-constant, right))
    if not left:
        if constant > 0 and len(right) > 1:
            return join(show(0, right), ">", str(constant - 1))
        return join(show(0, right), ">=", str(constant))
    if constant >= 0 and right and _led_by_symbols(items):  # the symbol that comes first stands left
        return (
            join(show(0, right), ">", show(0, left))
            if constant == 1
            else join(show(0, right), ">=", show(constant, left))
        )
    if constant == 1 and right:
        return join(show(0, left), "<", show(0, right))
    if constant > 0 and right:
        return join(show(constant, left), "<=", show(0, right))
    return join(show(0, left), "<=", show(-constant, right))


def _led_by_symbols(items: Monomials) -> bool:
    """Whether a symbol with a negative coefficient comes first, and a symbol is first of the positive ones too."""
    return items[0][1] < 0 and next(m for m, c in items if c > 0).op is Op.SYMBOL


def _describe(names: Mapping[str, str] | None, cache: dict[Term, list[_Text]]) -> Algebra[_Text]:
    def algebra(term: Term, operands: list[_Text]) -> _Text:
        op = term.op
        if op is Op.SYMBOL:
            name = term.args[0]
            if names is None:
                return name, _ATOM
            name = names.get(name, name)
            return name, _ATOM
        if op is Op.CONST:
            return _sum(term.args[0], [])
        if op is Op.ADD:
            constant, items = term.args
            cache[term] = operands
            return _sum(constant, [(c, item) for (_, c), item in zip(items, operands, strict=True)])
        if op is Op.MUL:
            return "*".join([_factor(operands[0]), *(_factor(item) for item in operands[1:])]), _PRODUCT
        if op is Op.FLOORDIV or op is Op.MOD:
            sign = "//" if op is Op.FLOORDIV else " % "
            if len(operands[0][0]) > 12 and sign == "//":
                sign = " // "
            return f"{_wrap(operands[0], _ATOM)}{sign}{_wrap(operands[1], _ATOM)}", _PRODUCT
        if op is Op.MIN or op is Op.MAX:
            ordered = [item[0] for item, part in zip(operands, term.args, strict=True) if part.op is not Op.CONST]
            ordered += [item[0] for item, part in zip(operands, term.args, strict=True) if part.op is Op.CONST]
            return f"{'min' if op is Op.MIN else 'max'}({', '.join(ordered)})", _ATOM
        if op is Op.ITE:
            condition, then, otherwise = (_wrap(item, _COMPARE) for item in operands)
            return f"({then} if {condition} else {otherwise})", _ATOM
        if op is Op.AND or op is Op.OR:
            word, strength = (" and ", _AND) if op is Op.AND else (" or ", _OR)
            return word.join(_wrap(item, strength + 1) for item in operands), strength
        if op is Op.TRUE or op is Op.FALSE:
            return ("True" if op is Op.TRUE else "False"), _ATOM
        parts = cache.get(term.args[0], operands)
        return balanced(term, parts, lambda c, items: _sum(c, items)[0], lambda a, s, b: f"{a} {s} {b}"), _COMPARE

    return algebra


def text(term: Term, names: Mapping[str, str] | None = None) -> str:
    """``term`` as a person would write it; ``names`` renames symbols.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, gt
    >>> from guards.terms.division import mod
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> text(gt(s0 + s1, 2)), text(eq(s0, s1)), text(eq(s0 % 8, 0)), text(s0 // 8 * 8)
    ('s0 + s1 > 2', 's0 == s1', 's0 % 8 == 0', '8*(s0//8)')
    """
    return fold(term, _describe(names, {}))[0]


spelled_by(text)


def python(term: Term, names: Mapping[str, str] | None = None) -> str:
    """Python source that computes ``term`` on plain integers.

    ``names`` gives for each symbol a safe expression: an identifier, or anything that binds as strongly as one.  A
    symbol absent from ``names`` is written under its own name.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import lt
    >>> from guards.terms.extremes import maximum
    >>> python(lt(maximum(symbol("a"), 2) % 4, symbol("b")), {"a": "v[0]", "b": "v[1]"})
    'max(v[0], 2) % 4 < v[1]'
    """
    return fold(term, _describe(names, {}))[0]
