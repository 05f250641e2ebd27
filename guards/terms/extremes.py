"""The least and the greatest of terms, with what all operands share taken out."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from guards.terms.arithmetic import integer, linear, plus, scale, split
from guards.terms.term import IntLike, Monomials, Op, Term, by_order, intern

# The members used on hot paths, looked up once.
_CONST = Op.CONST


def minimum(*terms: IntLike) -> Term:
    """The least of the terms."""
    return _extreme(Op.MIN, terms)


def maximum(*terms: IntLike) -> Term:
    """The greatest of the terms."""
    return _extreme(Op.MAX, terms)


def _extreme(op: Op, terms: Iterable[IntLike]) -> Term:
    pick = min if op is Op.MIN else max
    parts: dict[Term, None] = {}
    known: int | None = None
    for item in terms:
        term = integer(item)
        for part in term.args if term.op is op else (term,):
            if part.op is _CONST:
                known = part.args[0] if known is None else pick(known, part.args[0])
            else:
                parts[part] = None
    best: dict[Monomials, int] = {}  # terms that differ by a constant: one of them suffices
    for part in parts:
        constant, items = split(part)
        best[items] = pick(best[items], constant) if items in best else constant
    if known is not None:
        best[()] = known
    if not best:
        raise ValueError("min and max need at least one operand")
    if len(best) == 1:
        ((items, constant),) = best.items()
        return linear(constant, dict(items))
    return _shifted(op, best)


def _shifted(op: Op, operands: dict[Monomials, int]) -> Term:
    """``min`` or ``max`` of sums (items to constant), what all of them share taken out: terms,
    factor and sign.
    """
    common = dict(next(iter(operands)))
    for items in operands:
        found = dict(items)
        common = {m: c for m, c in common.items() if found.get(m) == c}
        if not common:
            break
    reduced = {
        tuple([item for item in items if item[0] not in common]): c for items, c in operands.items()
    }
    weight = sum([c for items in reduced for _, c in items])
    sign = 1
    if weight < 0 or (weight == 0 and op is Op.MIN):  # min(-x, -y) is -max(x, y)
        sign = -1
        op = Op.MAX if op is Op.MIN else Op.MIN
    first = min(
        (items for items in reduced if items),
        key=lambda items: [(m.order, sign * c) for m, c in items],
    )
    shift = reduced[first]
    factor = sign * gcd(
        *[c for items in reduced for _, c in items], *[c - shift for c in reduced.values()]
    )
    if factor == 1 and not common and not shift:
        chosen = [linear(c, dict(items)) for items, c in reduced.items()]
    else:
        chosen = [
            linear((c - shift) // factor, {m: d // factor for m, d in items})
            for items, c in reduced.items()
        ]
    # what is left of an operand may be a min (max) itself
    if any(term.op is op for term in chosen):
        result = _extreme(op, chosen)
    else:
        chosen.sort(key=by_order)
        result = intern(op, tuple(chosen))
    if factor == 1 and not common and not shift:
        return result
    return plus(scale(result, factor), linear(shift, common), 1)
