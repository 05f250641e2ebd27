"""The rewrite table: one law a row, applied bottom-up under what a component knows.

Each row states its law as text (``law`` holds wherever ``where`` does); the tests prove every row from that text and
check that ``apply`` agrees with it. A row's ``apply`` answers the rewritten term, or None when the row does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import gcd

import attrs

from guards.facts.component import Component, replaced
from guards.terms import arithmetic, boolean, division, extremes, fold
from guards.terms.arithmetic import ONE, ZERO
from guards.terms.term import DEEP, NONLINEAR, SYMBOLIC_DIVISION, Monomials, Op, Term, children, postorder

Apply = Callable[[Component, Term], "Term | None"]
_MODULUS = 16  # remainders of polynomials are tried for divisors up to this one,
_RESIDUES = 256  # and up to so many combinations
_STEPS = 8  # rewrites of one node before it is left as it is


@attrs.frozen
class Rule:
    """One law: for terms with the operator ``head``, ``law`` (an equation) holds under ``where``."""

    name: str
    head: Op
    law: str
    where: str
    apply: Apply


# -- quotients and remainders -----------------------------------------------------------------------------------------


def _leading(divisor: Term) -> tuple[Term, int]:
    """The monomial of the divisor with the most factors (the last in order among these), and its coefficient."""
    return max(arithmetic.split(divisor)[1], key=lambda item: (len(arithmetic.factors(item[0])), item[0].order))


def _exact(monomial: Term, atoms: tuple[Term, ...]) -> Term | None:
    """``monomial`` divided by the product of ``atoms``, where they are among its factors."""
    rest = list(arithmetic.factors(monomial))
    for atom in atoms:
        if atom not in rest:
            return None
        rest.remove(atom)
    return arithmetic.monomial(rest)


def divide(dividend: Term, divisor: Term) -> tuple[Term, Term]:
    """``(q, r)`` with ``dividend == divisor * q + r``: polynomial division, as far as it makes ``r`` shorter.

    >>> from guards.terms.arithmetic import symbol
    >>> x, y = symbol("x"), symbol("y")
    >>> divide(x * y + x + 1, y + 1)
    (<x>, <1>)
    """
    if divisor.op is Op.CONST:
        return ZERO, dividend
    monomial, coefficient = _leading(divisor)
    atoms = arithmetic.factors(monomial)
    quotient, rest = ZERO, dividend
    best = quotient, rest
    for _ in range(_STEPS):
        for m, c in arithmetic.split(rest)[1]:
            if c % coefficient == 0:
                part = _exact(m, atoms)
                if part is not None:
                    break
        else:
            break
        step = arithmetic.scale(part, c // coefficient)
        quotient = arithmetic.add(quotient, step)
        rest = arithmetic.sub(rest, arithmetic.mul(step, divisor))
        if _size(rest) < _size(best[1]):
            best = quotient, rest
    return best


def _size(term: Term) -> int:
    return len(arithmetic.split(term)[1])


def _quotient_of_multiple(component: Component, term: Term) -> Term | None:
    quotient, rest = divide(*term.args)
    return None if quotient is ZERO else arithmetic.add(quotient, division.floordiv(rest, term.args[1]))


def _remainder_of_multiple(component: Component, term: Term) -> Term | None:
    quotient, rest = divide(*term.args)
    return None if quotient is ZERO else division.mod(rest, term.args[1])


def known_quotient(component: Component, dividend: Term, divisor: Term) -> int | None:
    """The value of ``dividend // divisor`` where the ranges leave only one."""
    if divisor.op is Op.CONST:
        number = divisor.args[0]
        lo, hi = component.bounds(dividend)
        return lo // number if lo is not None and hi is not None and lo // number == hi // number else None
    least, _ = component.bounds(divisor)
    if least is None or least <= 0:
        return None
    lo, hi = component.bounds(dividend)
    open_ended = (hi if lo is not None and lo >= 0 else lo) is None
    if open_ended and not component.rows and dividend.symbols.isdisjoint(divisor.symbols):
        return None  # nothing ties the two together
    if lo is not None and lo >= 0:
        if hi is not None and hi < least:
            return 0
        above, _ = component.bounds(arithmetic.sub(divisor, dividend))
        if above is not None and above > 0:
            return 0
        slack = component.bounds(arithmetic.sub(dividend, divisor))[0]
        if slack is not None and slack >= 0:
            above, _ = component.bounds(arithmetic.sub(arithmetic.scale(divisor, 2), dividend))
            return 1 if above is not None and above > 0 else None
    elif hi is not None and hi < 0:
        slack = component.bounds(arithmetic.add(dividend, divisor))[0]
        return -1 if slack is not None and slack >= 0 else None
    return None


def _quotient_in_range(component: Component, term: Term) -> Term | None:
    value = known_quotient(component, *term.args)
    return None if value is None else arithmetic.const(value)


def _remainder_in_range(component: Component, term: Term) -> Term | None:
    value = known_quotient(component, *term.args)
    return None if value is None else arithmetic.sub(term.args[0], arithmetic.scale(term.args[1], value))


def _nested_quotient(component: Component, term: Term) -> Term | None:
    inner, outer = term.args
    if inner.op is not Op.FLOORDIV:
        return None
    lo, _ = component.bounds(outer)
    return division.floordiv(inner.args[0], arithmetic.mul(inner.args[1], outer)) if lo is not None and lo > 0 else None


def _shared(divisor: Term, by: Term) -> Term | None:
    """``divisor / by`` where that is exact and plain to see."""
    constant, items = arithmetic.split(divisor)
    if by.op is Op.CONST:
        number = by.args[0]
        return division.floordiv(divisor, by) if arithmetic.content(divisor) % number == 0 else None
    atoms = arithmetic.factors(by)
    if by.op is Op.ADD or constant:
        return None
    parts = [(_exact(m, atoms), c) for m, c in items]
    if any(m is None for m, _ in parts):
        return None
    return arithmetic.total(arithmetic.scale(m, c) for m, c in parts if m is not None)


def _quotient_of_remainder(component: Component, term: Term) -> Term | None:
    inner, by = term.args
    if inner.op is not Op.MOD:
        return None
    rest = _shared(inner.args[1], by)
    if rest is None:
        return None
    lo, _ = component.bounds(rest)
    return division.mod(division.floordiv(inner.args[0], by), rest) if lo is not None and lo > 0 else None


def _remainder_of_remainder(component: Component, term: Term) -> Term | None:
    inner, by = term.args
    if inner.op is not Op.MOD or _shared(inner.args[1], by) is None:
        return None
    return division.mod(inner.args[0], by)


def _inner_remainder(component: Component, term: Term) -> Term | None:
    dividend, by = term.args
    constant, items = arithmetic.split(dividend)
    for monomial, c in items:
        atoms = arithmetic.factors(monomial)
        for atom in atoms:
            if atom.op is Op.MOD and (atom.args[1] is by or _shared(atom.args[1], by) is not None):
                others = arithmetic.scale(_exact(monomial, (atom,)) or ONE, c)
                rest = arithmetic.linear(constant, {m: d for m, d in items if m is not monomial})
                return division.mod(arithmetic.add(rest, arithmetic.mul(others, atom.args[0])), by)
    return None


def _coarse(component: Component, dividend: Term, divisor: Term) -> tuple[Term, Term, Term, Term] | None:
    """``(g, a, m, r)`` with ``dividend == g*a + r``, ``divisor == g*m`` and ``0 <= r < g``, not all of them trivial."""
    constant, items = arithmetic.split(dividend)
    if divisor.op is Op.CONST:
        number = divisor.args[0]
        for g in sorted({gcd(number, c) for _, c in items}, reverse=True):
            if g <= 1:
                continue
            fine = arithmetic.linear(constant % g, {m: c for m, c in items if c % g})
            lo, hi = component.bounds(fine)
            if lo is not None and hi is not None and lo >= 0 and hi < g and fine.op is not Op.CONST:
                coarse = arithmetic.linear(constant // g, {m: c // g for m, c in items if c % g == 0})
                return arithmetic.const(g), coarse, arithmetic.const(number // g), fine
        return None
    parts = arithmetic.split(divisor)[1]
    if divisor.op is Op.ADD and (len(parts) != 1 or arithmetic.split(divisor)[0]):
        return None
    least, _ = component.bounds(divisor)
    if least is None or least <= 0:
        return None
    for atom in dict.fromkeys(arithmetic.factors(parts[0][0])):
        lo, _ = component.bounds(atom)
        if lo is None or lo <= 0:
            continue
        split = [(_exact(m, (atom,)), m, c) for m, c in items]
        if all(m is None for m, _, _ in split):
            continue
        fine = arithmetic.linear(constant, {m: c for inner, m, c in split if inner is None})
        low, _ = component.bounds(fine)
        above, _ = component.bounds(arithmetic.sub(atom, fine))
        if low is not None and low >= 0 and above is not None and above > 0:
            coarse = arithmetic.total(arithmetic.scale(inner, c) for inner, _, c in split if inner is not None)
            rest = division.floordiv(divisor, atom)
            return None if fine is ZERO else (atom, coarse, rest, fine)
    return None


def _coarse_quotient(component: Component, term: Term) -> Term | None:
    found = _coarse(component, *term.args)
    return None if found is None else division.floordiv(found[1], found[2])


def _coarse_remainder(component: Component, term: Term) -> Term | None:
    found = _coarse(component, *term.args)
    return (
        None if found is None else arithmetic.add(arithmetic.mul(found[0], division.mod(found[1], found[2])), found[3])
    )


def _constant_remainder(component: Component, term: Term) -> Term | None:
    """The remainder of a polynomial that is the same whatever its symbols leave."""
    dividend, divisor = term.args
    if divisor.op is not Op.CONST or divisor.args[0] > _MODULUS:
        return None
    constant, items = arithmetic.split(dividend)
    symbols = dividend.symbols
    number: int = divisor.args[0]
    if len(symbols) > 3 or number ** len(symbols) > _RESIDUES or all(m.op is not Op.MUL for m, _ in items):
        return None
    place = {symbol: position for position, symbol in enumerate(symbols)}
    parts: list[tuple[list[int], int]] = []
    for m, c in items:
        atoms = arithmetic.factors(m)
        if any(atom.op is not Op.SYMBOL for atom in atoms):
            return None
        parts.append(([place[atom] for atom in atoms], c))
    rest = constant % number
    for values in product(range(number), repeat=len(symbols)):
        total = constant
        for places, c in parts:
            for position in places:
                c *= values[position]
            total += c
        if total % number != rest:
            return None
    return arithmetic.const(rest)


def _fold_remainder(component: Component, term: Term) -> Term | None:
    _, items = term.args
    for monomial, c in items:
        if not monomial.kinds:
            continue
        for quotient in arithmetic.factors(monomial):
            if quotient.op is not Op.FLOORDIV:
                continue
            dividend, divisor = quotient.args
            if divisor.op is Op.CONST:
                number = divisor.args[0]
                rest = None if c % number else arithmetic.scale(_exact(monomial, (quotient,)) or ONE, -c // number)
            else:
                rest = None if divisor.op is Op.ADD else _exact(monomial, (quotient, *arithmetic.factors(divisor)))
                rest = None if rest is None else arithmetic.scale(rest, -c)
            if rest is None:
                continue
            made = arithmetic.sub(term, arithmetic.add(arithmetic.scale(monomial, c), arithmetic.mul(rest, dividend)))
            if _size(made) + 1 < len(items):
                return arithmetic.add(made, arithmetic.mul(rest, division.mod(dividend, divisor)))
    return None


def _unfold_remainder(component: Component, term: Term) -> Term | None:
    _, items = term.args
    for monomial, c in items:
        if not monomial.kinds:
            continue
        for remainder in arithmetic.factors(monomial):
            if remainder.op is not Op.MOD:
                continue
            dividend, divisor = remainder.args
            others = arithmetic.scale(_exact(monomial, (remainder,)) or ONE, c)
            whole = arithmetic.sub(dividend, arithmetic.mul(divisor, division.floordiv(dividend, divisor)))
            made = arithmetic.sub(term, arithmetic.mul(others, arithmetic.sub(remainder, whole)))
            if _size(made) < len(items):
                return made
    return None


def _shifted_quotients(component: Component, term: Term) -> Term | None:
    """``(a + r) // n`` added up over ``n`` values ``r`` that leave all remainders."""
    constant, items = term.args
    groups: dict[tuple[int, Monomials, bool], list[tuple[Term, int, int]]] = {}
    for monomial, c in items:
        if monomial.op is Op.FLOORDIV and monomial.args[1].op is Op.CONST:
            shift, inner = arithmetic.split(monomial.args[0])
            key = monomial.args[1].args[0], inner, c > 0
            groups.setdefault(key, []).append((monomial, c, shift))
    for (number, inner, positive), members in groups.items():
        if len(members) != number or {shift % number for _, _, shift in members} != set(range(number)):
            continue
        c = min(abs(c) for _, c, _ in members) * (1 if positive else -1)
        # sum of (a + r) // n over r = 0 ... n - 1 is a; shifts beyond n - 1 add whole numbers
        extra = sum(shift // number for _, _, shift in members)
        rest = dict(items)
        for monomial, _, _ in members:
            rest[monomial] -= c
        return arithmetic.add(
            arithmetic.linear(constant + c * extra, rest), arithmetic.scale(arithmetic.linear(0, dict(inner)), c)
        )
    return None


# -- min, max, ite ----------------------------------------------------------------------------------------------------


def _dominated(component: Component, term: Term) -> Term | None:
    least = term.op is Op.MIN
    parts = list(term.args)
    for one in parts:
        for other in parts:
            if one is other:
                continue
            gap = component.bounds(arithmetic.sub(one, other) if least else arithmetic.sub(other, one))[0]
            if gap is not None and gap >= 0:  # `one` never beats `other`
                rest = [part for part in parts if part is not one]
                return (extremes.minimum if least else extremes.maximum)(*rest)
    return None


def _absorbed(component: Component, term: Term) -> Term | None:
    opposite = Op.MAX if term.op is Op.MIN else Op.MIN
    kept = [p for p in term.args if p.op is not opposite or all(inner not in term.args for inner in p.args)]
    if len(kept) == len(term.args) or not kept:
        return None
    return (extremes.minimum if term.op is Op.MIN else extremes.maximum)(*kept)


def _decided(component: Component, term: Term) -> Term | None:
    condition, then, otherwise = term.args
    found = component.look(condition)
    return None if found is None else then if found else otherwise


def _selection(component: Component, term: Term) -> Term | None:
    condition, then, otherwise = term.args
    if condition.op is not Op.LE:
        return None
    gap = arithmetic.sub(then, otherwise)
    test = condition.args[0]
    if test is gap or test is arithmetic.add(gap, ONE):
        return extremes.minimum(then, otherwise)
    opposite = arithmetic.scale(gap, -1)
    return extremes.maximum(then, otherwise) if test is opposite or test is arithmetic.add(opposite, ONE) else None


def _at_border(component: Component, term: Term) -> Term | None:
    condition, then, otherwise = term.args
    if condition.op is not Op.LE:
        return None
    constant, items = arithmetic.split(condition.args[0])
    if len(items) != 1 or items[0][0].op is not Op.SYMBOL or abs(items[0][1]) != 1:
        return None
    lo, hi = component.bounds(condition.args[0])
    if lo != 0 and hi != 1:
        return None
    # the condition holds where its term is 0 only, or fails where it is 1 only
    symbol, sign = items[0]
    value = {symbol: arithmetic.const(((0 if lo == 0 else 1) - constant) * sign)}
    one = replaced(then, value)
    return (otherwise if lo == 0 else then) if one is not None and one is replaced(otherwise, value) else None


def _one_choice(component: Component, term: Term) -> Term | None:
    constant, items = term.args
    chosen = [(m, c, atom) for m, c in items if m.kinds for atom in arithmetic.factors(m) if atom.op is Op.ITE]
    for _, _, first in chosen:
        condition = first.args[0]
        same = {m: (c, atom) for m, c, atom in chosen if atom.args[0] is condition}
        if len(same) < 2:
            continue
        rest = arithmetic.linear(constant, {m: c for m, c in items if m not in same})
        branches = [
            arithmetic.total(
                arithmetic.mul(arithmetic.scale(_exact(m, (a,)) or ONE, c), a.args[side]) for m, (c, a) in same.items()
            )
            for side in (1, 2)
        ]
        then, otherwise = [rewritten(component, arithmetic.add(branch, rest)) for branch in branches]
        if then is otherwise:
            return then
        return arithmetic.add(boolean.ite(condition, *branches), rest)
    return None


# -- relations --------------------------------------------------------------------------------------------------------


def _cross_multiplied(component: Component, term: Term) -> Term | None:
    argument = term.args[0]
    constant, items = arithmetic.split(argument)
    quotients = [(m, c) for m, c in items if m.op is Op.FLOORDIV and c in (1, -1)]
    for quotient, c in quotients:
        dividend, divisor = quotient.args
        if divisor.op is Op.CONST:
            continue  # linear already
        lo, _ = component.bounds(divisor)
        if lo is None or lo <= 0:
            continue
        value = arithmetic.linear(-c * constant, {m: -c * d for m, d in items if m is not quotient})
        # quotient - value <= 0 (c == 1), value - quotient <= 0 (c == -1), or quotient == value
        slack = arithmetic.sub(dividend, arithmetic.mul(divisor, value))
        if term.op is Op.LE:
            return boolean.lt(slack, divisor) if c == 1 else boolean.ge(slack, 0)
        both = boolean.and_(boolean.ge(slack, 0), boolean.lt(slack, divisor))
        return both if term.op is Op.EQ else boolean.not_(both)
    return None


def _common_factor(component: Component, term: Term) -> Term | None:
    argument = term.args[0]
    if argument.op is Op.ADD and argument.args[0] == 0 and len(argument.args[1]) > 1:
        common = arithmetic.common_atoms(argument)
    else:
        return None
    atoms = []
    for atom in common:
        lo, hi = component.bounds(atom)
        if (lo is not None and lo > 0) or (term.op is not Op.LE and hi is not None and hi < 0):
            atoms.append(atom)
    if not atoms:
        return None
    rest = arithmetic.without(argument, atoms, 1)
    if term.op is Op.LE:
        return boolean.not_positive(rest)
    return boolean.is_zero(rest) if term.op is Op.EQ else boolean.not_(boolean.is_zero(rest))


def two_remainders(argument: Term) -> Term | None:
    """A term that a divisor must leave no remainder of for ``argument``, two remainders and a constant, to be 0.

    >>> from guards import parse
    >>> two_remainders(parse("x % 8 - 2*(y % 4) + 1"))
    >>> two_remainders(parse("2*(y % 4) - x % 8 + 1"))
    <(2*y - x + 1) % 8>
    """
    constant, items = arithmetic.split(argument)
    if len(items) != 2 or items[0][0].op is not Op.MOD or items[1][0].op is not Op.MOD:
        return None
    (one, c), (other, d) = items
    if c < 0:
        one, c, other, d = other, d, one, c
    if c < 0 or d > 0:
        return None
    d = -d
    (a, p), (b, q) = one.args, other.args  # c*(a % p) - d*(b % q) + constant == 0
    if p is q and c == d and not constant:
        return division.mod(arithmetic.sub(a, b), p)
    if p.op is not Op.CONST or q.op is not Op.CONST or c * p.args[0] != d * q.args[0] or not -d < constant < c:
        return None
    return division.mod(
        arithmetic.add(arithmetic.sub(arithmetic.scale(a, c), arithmetic.scale(b, d)), constant), c * p.args[0]
    )


def _two_remainders(component: Component, term: Term) -> Term | None:
    made = two_remainders(term.args[0])
    if made is None:
        return None
    return boolean.is_zero(made) if term.op is Op.EQ else boolean.not_(boolean.is_zero(made))


def _without_remainders(component: Component, term: Term) -> Term | None:
    """The relation decided, where writing ``a % b`` as ``a - b*(a // b)`` leaves no more than a number."""
    argument = term.args[0]
    if not argument.kinds & SYMBOLIC_DIVISION:
        return None
    constant, items = arithmetic.split(argument)
    parts: list[Term] = [arithmetic.const(constant)]
    changed = False
    for monomial, c in items:
        part = arithmetic.const(c)
        for atom in arithmetic.factors(monomial):
            if atom.op is Op.MOD and atom.args[1].op is not Op.CONST:
                a, b = atom.args
                atom = arithmetic.sub(a, arithmetic.mul(b, rewritten(component, division.floordiv(a, b))))
                changed = True
            part = arithmetic.mul(part, atom)
        parts.append(part)
    made = arithmetic.total(parts) if changed else argument
    if made.op is not Op.CONST:
        return None
    number = made.args[0]
    holds = number <= 0 if term.op is Op.LE else (number == 0) is (term.op is Op.EQ)
    return boolean.TRUE if holds else boolean.FALSE


# -- the table --------------------------------------------------------------------------------------------------------

RULES: tuple[Rule, ...] = (
    Rule(
        "quotient of a value in one period",
        Op.FLOORDIV,
        "a // b == k",
        "b > 0 and k*b <= a < (k + 1)*b",
        _quotient_in_range,
    ),
    Rule(
        "remainder of a value in one period",
        Op.MOD,
        "a % b == a - k*b",
        "b > 0 and k*b <= a < (k + 1)*b",
        _remainder_in_range,
    ),
    Rule(
        "multiples of the divisor come out",
        Op.FLOORDIV,
        "(b*q + r) // b == q + r // b",
        "b != 0",
        _quotient_of_multiple,
    ),
    Rule("multiples of the divisor vanish", Op.MOD, "(b*q + r) % b == r % b", "b != 0", _remainder_of_multiple),
    Rule("quotient of a quotient", Op.FLOORDIV, "(a // b) // c == a // (b*c)", "b != 0 and c > 0", _nested_quotient),
    Rule(
        "quotient of a remainder",
        Op.FLOORDIV,
        "(a % (b*c)) // b == (a // b) % c",
        "b != 0 and c > 0",
        _quotient_of_remainder,
    ),
    Rule("remainder of a remainder", Op.MOD, "(a % (b*c)) % b == a % b", "b != 0 and c != 0", _remainder_of_remainder),
    Rule(
        "a remainder in a remainder",
        Op.MOD,
        "(m*(a % (b*c)) + r) % b == (m*a + r) % b",
        "b != 0 and c != 0",
        _inner_remainder,
    ),
    Rule(
        "fine part of a quotient",
        Op.FLOORDIV,
        "(g*a + r) // (g*m) == a // m",
        "0 <= r < g and m > 0",
        _coarse_quotient,
    ),
    Rule(
        "fine part of a remainder",
        Op.MOD,
        "(g*a + r) % (g*m) == g*(a % m) + r",
        "0 <= r < g and m > 0",
        _coarse_remainder,
    ),
    Rule("a constant remainder", Op.MOD, "(a*a*a + 5*a) % 6 == 0", "True", _constant_remainder),
    Rule("a remainder in disguise", Op.ADD, "a - b*(a // b) == a % b", "b != 0", _fold_remainder),
    Rule("a remainder and its quotient", Op.ADD, "b*(a // b) + a % b == a", "b != 0", _unfold_remainder),
    Rule("shifted quotients", Op.ADD, "a // 3 + (a + 1) // 3 + (a + 2) // 3 == a", "True", _shifted_quotients),
    Rule(
        "choices by one condition",
        Op.ADD,
        "m*(a if c > 0 else b) + n*(d if c > 0 else e) == (m*a + n*d if c > 0 else m*b + n*e)",
        "True",
        _one_choice,
    ),
    Rule("an operand of min that never wins", Op.MIN, "min(a, b) == b", "a >= b", _dominated),
    Rule("an operand of max that never wins", Op.MAX, "max(a, b) == b", "a <= b", _dominated),
    Rule("min absorbs max", Op.MIN, "min(a, max(a, b)) == a", "True", _absorbed),
    Rule("max absorbs min", Op.MAX, "max(a, min(a, b)) == a", "True", _absorbed),
    Rule("a choice that is known", Op.ITE, "(a if c > 0 else b) == a", "c > 0", _decided),
    Rule("a choice that is min", Op.ITE, "(a if a <= b else b) == min(a, b)", "True", _selection),
    Rule("a choice at the border", Op.ITE, "(a if c <= 0 else b) == b", "c > 0 or (c == 0 and a == b)", _at_border),
    Rule("a quotient at most", Op.LE, "(a // b <= c) == (a - b*c < b)", "b > 0", _cross_multiplied),
    Rule("a quotient equal", Op.EQ, "(a // b == c) == (0 <= a - b*c < b)", "b > 0", _cross_multiplied),
    Rule("a quotient unequal", Op.NE, "(a // b != c) == (not 0 <= a - b*c < b)", "b > 0", _cross_multiplied),
    Rule("a common factor of an order", Op.LE, "(c*a <= c*b) == (a <= b)", "c > 0", _common_factor),
    Rule("a common factor of an equation", Op.EQ, "(c*a == c*b) == (a == b)", "c != 0", _common_factor),
    Rule("a common factor of a difference", Op.NE, "(c*a != c*b) == (a != b)", "c != 0", _common_factor),
    Rule(
        "two remainders equal",
        Op.EQ,
        "(g*(a % m) + k == h*(b % n)) == ((g*a + k - h*b) % (g*m) == 0)",
        "g > 0 and h > 0 and -h < k < g and g*m == h*n and (m > 0 or m < 0 and k == 0 and g == h)",
        _two_remainders,
    ),
    Rule(
        "two remainders unequal",
        Op.NE,
        "(a % m != b % m) == ((a - b) % m != 0)",
        "m != 0",
        _two_remainders,
    ),
    Rule("remainders that cancel", Op.EQ, "(a % b == a - b*(a // b)) == True", "b != 0", _without_remainders),
    Rule("remainders that do not cancel", Op.NE, "(a % b != a - b*(a // b)) == False", "b != 0", _without_remainders),
    Rule("an order of remainders", Op.LE, "(a % b <= a - b*(a // b)) == True", "b != 0", _without_remainders),
)

_BY_HEAD: dict[Op, tuple[Rule, ...]] = {op: tuple(rule for rule in RULES if rule.head is op) for op in Op}


def rewritten(component: Component, term: Term) -> Term:
    """``term`` in a form that is equal wherever the component holds, and simpler where a rule fits."""
    if not term.kinds & NONLINEAR:
        return term
    known = component.simplified
    found = known.get(term)
    if found is None:
        if term.depth > DEEP:
            for part in postorder(term, lambda part: part in known):
                if part not in known:
                    known[part] = _node(component, part, [known[child] for child in children(part)])
            return known[term]
        if not term.kinds & NONLINEAR:
            return term
        found = known[term] = _node(component, term, [rewritten(component, child) for child in children(term)])
    return found


def _node(component: Component, term: Term, operands: list[Term]) -> Term:
    for child, operand in zip(children(term), operands, strict=True):
        if child is not operand:
            try:
                term = fold.rebuild(term, operands)
            except ZeroDivisionError:  # it says nothing under these facts
                return term
            break
    for _ in range(_STEPS):
        for rule in _BY_HEAD[term.op]:
            try:
                made = rule.apply(component, term)
            except ZeroDivisionError:
                made = None
            if made is not None and made is not term:
                break
        else:
            return term
        term = _again(component, made)
    return term


def _again(component: Component, term: Term) -> Term:
    """Rewrites the new operands that a rule has made."""
    if term.op <= Op.SYMBOL or term.depth > DEEP:
        return term
    operands = [rewritten(component, child) for child in children(term)]
    for child, operand in zip(children(term), operands, strict=True):
        if child is not operand:
            try:
                return fold.rebuild(term, operands)
            except ZeroDivisionError:
                return term
    return term
