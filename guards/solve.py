"""Simplifying under facts, bounds of terms, and solving a relation for one symbol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from guards import exprs, fold, refute
from guards.decide import Range, ask, facts_from
from guards.errors import CannotSolve
from guards.exprs import DEEP, FALSE, TRUE, Op, Term
from guards.facts import Facts
from guards.parse import parse
from guards.points import points
from guards.rules import divide, rewritten
from guards.scope import Scope, contains

_GALLOP = 24  # doublings tried to find a bound where the ranges give none
_ROOM = 2**40  # ranges wider than this are not narrowed by search


def _size(term: Term) -> int:
    return sum(1 for _ in exprs.postorder(term))


# -- simplifying ------------------------------------------------------------------------------------------------------


def simplify(term: Term | str, facts: Facts | None = None) -> Term:
    """A term that is equal wherever the facts hold, and no larger.

    >>> from guards.facts import Facts
    >>> from guards.parse import parse
    >>> facts = Facts().assume(parse("s0 % 8 == 0")).assume(parse("s0 >= 1"))
    >>> print(simplify("max(1, s0)", facts), simplify("s0 // 8 * 8", facts), simplify("s0 > 7 and s1 > 2", facts))
    s0 s0 s1 >= 3
    """
    term = parse(term) if isinstance(term, str) else term
    known = Facts() if facts is None else facts
    if term.is_bool:
        return _simplify_condition(term, known)
    return _simplify_integer(term, known)


def _simplify_integer(term: Term, facts: Facts) -> Term:
    scope = facts.scope(term)
    best = term
    visible = rewritten(scope, facts.canonical(term))
    if _size(visible) <= _size(best):
        best = visible
    if scope.rewrites and term.depth <= DEEP:
        inner = restore(scope, rewritten(scope, scope.canonical(term)))
        if inner is not None and _size(inner) < _size(best):
            best = inner
    return best


def _simplify_condition(term: Term, facts: Facts) -> Term:
    if term.op is Op.AND or term.op is Op.OR:
        return _simplify_parts(term, facts)
    found = ask(facts, term)
    if found is not None:
        return TRUE if found else FALSE
    short = _simplify_integer(term.args[0], facts)
    rebuilt = fold.rebuild(term, [short])
    scope = facts.scope(rebuilt)
    again = rewritten(scope, rebuilt)
    return again if _size(again) <= _size(rebuilt) else rebuilt


def _simplify_parts(term: Term, facts: Facts) -> Term:
    """An ``and`` or ``or`` whose parts are each simplified where the others leave them open."""
    conjunction = term.op is Op.AND
    stop, skip = (FALSE, TRUE) if conjunction else (TRUE, FALSE)
    kept: list[Term] = list(term.args)
    for index in (*range(len(kept)), *reversed(range(len(kept)))):
        within = facts
        for other, part in enumerate(kept):
            if other != index and part is not skip:
                within = within.assume(part if conjunction else exprs.not_(part))
        if within.contradictory:
            return stop
        short = _simplify_condition(kept[index], within)
        if short is stop:
            return stop
        if short is skip or _size(short) < _size(kept[index]):
            kept[index] = short
    return (exprs.and_ if conjunction else exprs.or_)(*kept)


def restore(scope: Scope, term: Term) -> Term | None:
    """``term`` without the new symbols that the scope's rewrites made; None where that fails."""
    for fresh in reversed(list(scope.fresh)):
        if fresh not in term.symbols:
            continue
        factor, atom, value = scope.fresh[fresh]
        term = _without(term, fresh, factor, exprs.sub(atom, value))
    return term if term.symbols <= scope.symbols else None


def _without(term: Term, fresh: Term, factor: Term, product: Term) -> Term:
    """``term`` with ``factor * fresh`` written as ``product``, and ``fresh`` alone as a quotient."""

    def step(part: Term, operands: list[Term]) -> Term:
        if part is fresh:
            return fresh
        changed = any(child is not operand for child, operand in zip(exprs.children(part), operands, strict=True))
        made = fold.rebuild(part, operands) if changed else part
        if made.is_bool or fresh not in made.symbols:
            return made
        quotient, rest = divide(made, exprs.mul(factor, fresh)) if factor.op is not Op.CONST else (exprs.ZERO, made)
        if factor.op is Op.CONST:
            number = factor.args[0]
            constant, items = exprs.split(made)
            whole = {m: c // number for m, c in items if c % number == 0 and fresh in exprs.factors(m)}
            rest = exprs.linear(constant, {m: c for m, c in items if m not in whole})
            quotient = exprs.linear(0, {_drop(m, fresh): 0 for m in whole})
            for m, c in whole.items():
                quotient = exprs.add(quotient, exprs.scale(_drop(m, fresh), c))
        return exprs.add(exprs.mul(quotient, product), rest) if quotient is not exprs.ZERO else made

    made = fold.fold(term, step)
    return fold.substitute(made, {fresh: exprs.floordiv(product, factor)}) if fresh in made.symbols else made


def _drop(monomial: Term, atom: Term) -> Term:
    rest = list(exprs.factors(monomial))
    rest.remove(atom)
    return exprs.monomial(rest)


# -- bounds -----------------------------------------------------------------------------------------------------------


def bounds(
    term: Term | str,
    *,
    ranges: Mapping[str, Range] | None = None,
    assume: Iterable[str | Term] = (),
    facts: Facts | None = None,
) -> tuple[Term | None, Term | None]:
    """The least and the greatest value of a term that could be proven, as terms; None where there is no bound.

    A bound is a number where there is one, and otherwise a term in other symbols that an assumption gives.

    >>> bounds("s0 - s0 // 8 * 8"), bounds("u0", assume=["u0 <= s0 * s1"]), bounds("a", assume=["a >= b + 8"])
    ((<0>, <7>), (<0>, <s0*s1>), (<8>, None))
    """
    term = exprs.integer(parse(term) if isinstance(term, str) else term)
    known = facts_from(ranges, assume) if facts is None else facts
    scope = known.scope(term)
    short = rewritten(scope, scope.canonical(term))
    lo, hi = scope.bounds(short)
    values = [value for value in (_value(term, point) for point in points(scope)) if value is not None]

    def at_least(bound: int) -> bool:
        return refute.refutes(scope, exprs.lt(short, bound))

    def at_most(bound: int) -> bool:
        return refute.refutes(scope, exprs.gt(short, bound))

    if values:
        lo = _tighten(lo, min(values), at_least, -1)
        hi = _tighten(hi, max(values), at_most, 1)
    low = _symbolic(scope, term, False) if lo is None else exprs.const(lo)
    high = _symbolic(scope, term, True) if hi is None else exprs.const(hi)
    return low, high


def _value(term: Term, point: Mapping[str, int]) -> int | None:
    try:
        return int(fold.evaluate(term, point))
    except (ZeroDivisionError, KeyError):
        return None


def _tighten(bound: int | None, seen: int, holds: Callable[[int], bool], side: int) -> int | None:
    """The tightest bound that ``holds`` confirms between a known bound and a value that was seen (side 1: upper)."""
    if bound is None:
        step = 1
        for _ in range(_GALLOP):
            if holds(seen + side * (step - 1)):
                bound = seen + side * (step - 1)
                break
            step *= 2
        else:
            return None
    if abs(bound - seen) > _ROOM:
        return bound
    while bound != seen:  # `bound` is confirmed, `seen` is attained
        middle = seen + (bound - seen) // 2 if (bound - seen) // 2 != (bound - seen) else seen
        if holds(middle):
            bound = middle
        else:
            seen = middle + side
    return bound


def _symbolic(scope: Scope, term: Term, upper: bool) -> Term | None:
    """A bound in other symbols, from a row of the scope that has ``term`` as one of its parts."""
    constant, items = exprs.split(term)
    if len(items) != 1 or items[0][1] != 1:
        return None
    monomial = items[0][0]
    for form, (lo, hi) in scope.rows.items():
        for m, c in form:
            if m is not monomial or c not in (1, -1):
                continue
            rest = exprs.linear(0, {n: d for n, d in form if n is not m})
            limit = hi if (c == 1) is upper else lo
            if limit is None or contains(rest, monomial) or not rest.symbols <= scope.symbols:
                continue
            return exprs.add(exprs.scale(exprs.sub(limit, rest), c), constant)
    return None


# -- solving ----------------------------------------------------------------------------------------------------------


def solve(relation: Term | str, symbol: Term | str, facts: Facts | None = None) -> Term:
    """An equivalent condition in which ``symbol`` stands alone: its ranges, multiples and exclusions.

    Raises:
        CannotSolve: no such form is known.

    >>> print(solve("2*s + 3 <= t", "s"))
    s + 2 <= (t + 1)//2
    >>> print(solve("(3*s + 1) % 8 == 0", "s"), "|", solve("s // 4 == 2", "s"), "|", solve("s*s <= 20", "s"))
    s % 8 == 5 | s >= 8 and s <= 11 | s >= -4 and s <= 4
    """
    relation = parse(relation) if isinstance(relation, str) else relation
    symbol = exprs.symbol(symbol) if isinstance(symbol, str) else symbol
    known = Facts() if facts is None else facts
    scope = known.scope(relation) if relation.symbols else known.scope(symbol)
    return _solve(exprs.boolean(relation), symbol, scope)


def _solve(relation: Term, symbol: Term, scope: Scope) -> Term:
    op = relation.op
    if symbol not in relation.symbols:
        return relation
    if op is Op.AND or op is Op.OR:
        parts = [_solve(part, symbol, scope) for part in relation.args]
        return exprs.and_(*parts) if op is Op.AND else exprs.or_(*parts)
    if op is Op.NE:
        return exprs.not_(_solve(exprs.not_(relation), symbol, scope))
    constant, items = exprs.split(relation.args[0])
    inside = [(m, c) for m, c in items if symbol in m.symbols]
    rest = exprs.linear(constant, {m: c for m, c in items if symbol not in m.symbols})
    if not rest.symbols and _is_polynomial(inside, symbol):
        return _solve_polynomial(relation, symbol)
    if len(inside) == 1:
        monomial, c = inside[0]
        if exprs.factors(monomial).count(symbol) == 1 and monomial.op in (Op.SYMBOL, Op.MUL):
            return _solve_linear(op, monomial, c, rest, symbol, scope)
        return _solve_atom(op, monomial, c, rest, symbol, scope)
    return _solve_collected(op, inside, rest, symbol, scope)


def _is_polynomial(items: list[tuple[Term, int]], symbol: Term) -> bool:
    """Whether the items are powers of the symbol, not all of them the symbol itself."""
    return any(m is not symbol for m, _ in items) and all(set(exprs.factors(m)) == {symbol} for m, _ in items)


def _fail(symbol: Term) -> CannotSolve:
    return CannotSolve(f"no closed form for {symbol} is known")


def _solve_linear(op: Op, monomial: Term, c: int, rest: Term, symbol: Term, scope: Scope) -> Term:
    """``c*m*symbol + rest`` compared with 0, ``m`` free of the symbol."""
    others = _drop(monomial, symbol)
    if symbol in others.symbols:
        raise _fail(symbol)
    return _divide_out(op, exprs.scale(others, c), rest, symbol, scope)


def _divide_out(op: Op, factor: Term, rest: Term, symbol: Term, scope: Scope) -> Term:
    """``factor*symbol + rest`` compared with 0, for a factor whose sign is known."""
    lo, hi = scope.bounds(factor)
    if hi is not None and hi < 0:
        if op is Op.LE:  # symbol >= rest / -factor, rounded up
            return exprs.ge(symbol, exprs.scale(exprs.floordiv(exprs.scale(rest, -1), exprs.scale(factor, -1)), -1))
        factor, rest = exprs.scale(factor, -1), exprs.scale(rest, -1)
    elif lo is None or lo <= 0:
        raise _fail(symbol)
    value = exprs.scale(rest, -1)
    if op is Op.LE:
        return exprs.le(symbol, exprs.floordiv(value, factor))
    return exprs.and_(exprs.eq(symbol, exprs.floordiv(value, factor)), exprs.eq(exprs.mod(value, factor), 0))


def _solve_collected(op: Op, inside: list[tuple[Term, int]], rest: Term, symbol: Term, scope: Scope) -> Term:
    factor = exprs.ZERO
    for m, c in inside:
        atoms = exprs.factors(m)
        if atoms.count(symbol) != 1 or any(a is not symbol and symbol in a.symbols for a in atoms):
            raise _fail(symbol)
        factor = exprs.add(factor, exprs.scale(_drop(m, symbol), c))
    return _divide_out(op, factor, rest, symbol, scope)


def _solve_atom(op: Op, atom: Term, c: int, rest: Term, symbol: Term, scope: Scope) -> Term:
    """``c*atom + rest`` compared with 0, the symbol somewhere inside the atom."""
    if op is Op.EQ:
        if c not in (1, -1):
            raise _fail(symbol)
        value = exprs.scale(rest, -c)
        return _solve_equal(atom, value, symbol, scope)
    if c > 0:
        return _solve_at_most(atom, exprs.floordiv(exprs.scale(rest, -1), c), symbol, scope)
    return _solve_at_least(atom, exprs.scale(exprs.floordiv(exprs.scale(rest, -1), -c), -1), symbol, scope)


def _positive(term: Term, symbol: Term, scope: Scope) -> Term:
    lo, _ = scope.bounds(term)
    if lo is None or lo <= 0 or symbol in term.symbols:
        raise _fail(symbol)
    return term


def _solve_at_most(atom: Term, limit: Term, symbol: Term, scope: Scope) -> Term:
    args = atom.args
    if atom.op is Op.FLOORDIV:
        d = _positive(args[1], symbol, scope)
        return _solve(exprs.lt(args[0], exprs.mul(d, exprs.add(limit, 1))), symbol, scope)
    if atom.op in (Op.MIN, Op.MAX):
        parts = [_solve(exprs.le(part, limit), symbol, scope) for part in args]
        return exprs.and_(*parts) if atom.op is Op.MAX else exprs.or_(*parts)
    if atom.op is Op.ITE:
        return _solve_ite(atom, lambda value: exprs.le(value, limit), symbol, scope)
    raise _fail(symbol)


def _solve_at_least(atom: Term, limit: Term, symbol: Term, scope: Scope) -> Term:
    args = atom.args
    if atom.op is Op.FLOORDIV:
        d = _positive(args[1], symbol, scope)
        return _solve(exprs.ge(args[0], exprs.mul(d, limit)), symbol, scope)
    if atom.op in (Op.MIN, Op.MAX):
        parts = [_solve(exprs.ge(part, limit), symbol, scope) for part in args]
        return exprs.and_(*parts) if atom.op is Op.MIN else exprs.or_(*parts)
    if atom.op is Op.ITE:
        return _solve_ite(atom, lambda value: exprs.ge(value, limit), symbol, scope)
    raise _fail(symbol)


def _solve_equal(atom: Term, value: Term, symbol: Term, scope: Scope) -> Term:
    if atom.op is Op.MOD:
        return _solve_remainder(atom, value, symbol)
    if atom.op in (Op.FLOORDIV, Op.MIN, Op.MAX):
        return exprs.and_(_solve_at_most(atom, value, symbol, scope), _solve_at_least(atom, value, symbol, scope))
    if atom.op is Op.ITE:
        return _solve_ite(atom, lambda part: exprs.eq(part, value), symbol, scope)
    raise _fail(symbol)


def _solve_ite(atom: Term, test: Callable[[Term], Term], symbol: Term, scope: Scope) -> Term:
    condition, then, otherwise = atom.args
    yes = exprs.and_(_solve(condition, symbol, scope), _solve(test(then), symbol, scope))
    no = exprs.and_(_solve(exprs.not_(condition), symbol, scope), _solve(test(otherwise), symbol, scope))
    return exprs.or_(yes, no)


def _solve_remainder(atom: Term, value: Term, symbol: Term) -> Term:
    """``(c*symbol + r) % n == value`` for numbers ``c``, ``n`` without common factor and a number ``value``."""
    dividend, divisor = atom.args
    constant, items = exprs.split(dividend)
    inside = [(m, c) for m, c in items if symbol in m.symbols]
    if divisor.op is not Op.CONST or value.op is not Op.CONST or len(inside) != 1 or inside[0][0] is not symbol:
        raise _fail(symbol)
    number = divisor.args[0]
    if not 0 <= value.value < number:
        return FALSE
    try:
        inverse = pow(inside[0][1], -1, number)
    except ValueError:
        raise _fail(symbol) from None
    rest = exprs.linear(constant, {m: c for m, c in items if m is not symbol})
    return exprs.eq(exprs.mod(symbol, number), exprs.mod(exprs.scale(exprs.sub(value, rest), inverse), number))


def _solve_polynomial(relation: Term, symbol: Term) -> Term:
    """A polynomial in the symbol alone: the runs of integers at which it holds."""
    from guards.simplify import integer_breaks

    breaks = integer_breaks(relation.args[0], symbol)
    if breaks is None:
        raise _fail(symbol)
    parts = []
    for lo, hi in breaks:  # between two breaks the polynomial does not change its sign
        inside = lo if lo is not None else hi if hi is not None else 0
        if fold.evaluate(relation, {symbol.name: inside}):
            low = TRUE if lo is None else exprs.ge(symbol, lo)
            high = TRUE if hi is None else exprs.le(symbol, hi)
            parts.append((lo, hi, exprs.and_(low, high)))
    return _joined(parts, symbol)


def _joined(parts: list[tuple[int | None, int | None, Term]], symbol: Term) -> Term:
    """Adjacent runs made one."""
    runs: list[tuple[int | None, int | None]] = []
    for lo, hi, _ in parts:
        if runs and runs[-1][1] is not None and lo is not None and runs[-1][1] + 1 == lo:
            runs[-1] = runs[-1][0], hi
        else:
            runs.append((lo, hi))
    made = []
    for lo, hi in runs:
        if lo is not None and lo == hi:
            made.append(exprs.eq(symbol, lo))
            continue
        low = TRUE if lo is None else exprs.ge(symbol, lo)
        made.append(exprs.and_(low, TRUE if hi is None else exprs.le(symbol, hi)))
    return exprs.or_(*made)
