"""Terms as text for people and as Python source: one algebra of the fold, since both are written
alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from guards.terms import arithmetic
from guards.terms.fold import Algebra, fold
from guards.terms.term import Monomials, Op, Term, children, postorder, spelled_by

T = TypeVar("T")

_OR, _AND, _CONDITIONAL, COMPARE, _SUM, _PRODUCT, ATOM = range(7)
Text = tuple[str, int]  # a text and how strongly it binds


def _wrap(item: Text, strength: int) -> str:
    return item[0] if item[1] >= strength else f"({item[0]})"


def _product(coefficient: int, item: Text) -> str:
    return _wrap(item, _PRODUCT) if coefficient == 1 else f"{coefficient}*{_factor(item)}"


def _factor(item: Text) -> str:
    # a product of plain factors needs no parentheses after a coefficient, `8*(s//8)` does
    text, strength = item
    return (
        text
        if strength == ATOM or (strength == _PRODUCT and "/" not in text and "%" not in text)
        else f"({text})"
    )


def _sum(constant: int, parts: list[tuple[int, Text]]) -> Text:
    """Positive parts first, then negative ones, then the constant."""
    positive = [_product(c, item) for c, item in parts if c > 0]
    negative = [_product(-c, item) for c, item in parts if c < 0]
    if not positive and not negative:
        return str(constant), ATOM if constant >= 0 else _SUM
    if not positive and constant > 0:
        positive, constant = [str(constant)], 0
    text = " + ".join(positive)
    if negative and not text:  # a leading minus binds more strongly than `//` and `%`
        negative[0] = next(
            _factor(item) if c == -1 else _product(-c, item) for c, item in parts if c < 0
        )
        text = f"-{' - '.join(negative)}"
    elif negative:
        text = f"{text} - {' - '.join(negative)}"
    if constant:
        text += f" + {constant}" if constant > 0 else f" - {-constant}"
    if len(positive) + len(negative) == 1 and not constant and positive:
        return text, _PRODUCT if abs(parts[0][0]) != 1 else parts[0][1][1]
    return text, _SUM


def balanced(
    term: Term,
    operands: list[T],
    show: Callable[[int, list[tuple[int, T]]], str],
    join: Callable[[str, str, str], str],
) -> str:
    """A relation with its negative parts moved to the other side; ``show`` writes a sum, ``join`` a
    comparison.
    """
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
    # the symbol that comes first stands left
    if constant >= 0 and right and _led_by_symbols(items):
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
    """Return whether a symbol with a negative coefficient comes first, and the first positive item
    is a symbol too.
    """
    return items[0][1] < 0 and next(m for m, c in items if c > 0).op is Op.SYMBOL


def writing(names: Mapping[str, str] | None, cache: dict[Term, list[Text]]) -> Algebra[Text]:
    """The algebra that writes a term of the texts of its parts; ``cache`` keeps those of sums, for
    their relations.
    """

    def algebra(term: Term, operands: list[Text]) -> Text:
        op = term.op
        if op is Op.SYMBOL:
            name = term.args[0]
            return (name if names is None else names.get(name, name)), ATOM
        if op is Op.CONST:
            return _sum(term.args[0], [])
        if op is Op.ADD:
            constant, items = term.args
            cache[term] = operands
            return _sum(constant, [(c, item) for (_, c), item in zip(items, operands, strict=True)])
        if op is Op.MUL:
            return "*".join(
                [_factor(operands[0]), *(_factor(item) for item in operands[1:])]
            ), _PRODUCT
        if op is Op.FLOORDIV or op is Op.MOD:
            sign = "//" if op is Op.FLOORDIV else " % "
            if len(operands[0][0]) > 12 and sign == "//":
                sign = " // "
            return f"{_wrap(operands[0], ATOM)}{sign}{_wrap(operands[1], ATOM)}", _PRODUCT
        if op is Op.MIN or op is Op.MAX:
            ordered = [
                item[0]
                for item, part in zip(operands, term.args, strict=True)
                if part.op is not Op.CONST
            ]
            ordered += [
                item[0]
                for item, part in zip(operands, term.args, strict=True)
                if part.op is Op.CONST
            ]
            return f"{'min' if op is Op.MIN else 'max'}({', '.join(ordered)})", ATOM
        if op is Op.ITE:
            condition, then, otherwise = (_wrap(item, COMPARE) for item in operands)
            return f"({then} if {condition} else {otherwise})", ATOM
        if op is Op.AND or op is Op.OR:
            word, strength = (" and ", _AND) if op is Op.AND else (" or ", _OR)
            return word.join(_wrap(item, strength + 1) for item in operands), strength
        if op is Op.TRUE or op is Op.FALSE:
            return ("True" if op is Op.TRUE else "False"), ATOM
        parts = cache.get(term.args[0], operands)
        return balanced(
            term, parts, lambda c, items: _sum(c, items)[0], lambda a, s, b: f"{a} {s} {b}"
        ), COMPARE

    return algebra


LONGEST = 1000
"""A term of more nodes (written out, as a tree) than this is shortened for people."""
_KEPT = 100  # and parts of more nodes than this are what is left out


def tree_sizes(term: Term, known: dict[Term, int]) -> int:
    """Return the number of nodes of a term when it is written out; ``known`` gets the counts of its
    parts.

    A part that is shared counts each time.
    """
    if term not in known:
        for part in postorder(term, lambda part: part in known):
            known[part] = 1 + sum([known[child] for child in children(part)])
    return known[term]


def left_out(term: Term) -> tuple[Term, ...]:
    """The parts that are too large to be shown to people; none unless the term is very large."""
    sizes: dict[Term, int] = {}
    if term.depth <= 6 or tree_sizes(term, sizes) <= LONGEST:
        return ()
    kept = {term, *(children(term) if term.op in _RELATIONS else ())}
    return tuple([part for part, size in sizes.items() if size > _KEPT and part not in kept])


_RELATIONS = (Op.EQ, Op.NE, Op.LE)


def text(term: Term, names: Mapping[str, str] | None = None) -> str:
    """``term`` as a person would write it; ``names`` renames symbols.

    Very large terms are shortened: ``…`` stands for what is left out, and a note says how large the
    whole is.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, gt
    >>> from guards.terms.division import mod
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> text(gt(s0 + s1, 2)), text(eq(s0, s1)), text(eq(s0 % 8, 0)), text(s0 // 8 * 8)
    ('s0 + s1 > 2', 's0 == s1', 's0 % 8 == 0', '8*(s0//8)')
    """
    out = left_out(term)
    written = fold(term, writing(names, {}), dict.fromkeys(out, ("…", ATOM)))[0]
    return f"{written} (shortened: {tree_sizes(term, {}):,} parts)" if out else written


spelled_by(text)


def python(term: Term, names: Mapping[str, str] | None = None) -> str:
    """Python source that computes ``term`` on plain integers.

    ``names`` gives for each symbol a safe expression: an identifier, or anything that binds as
    strongly as one. A symbol absent from ``names`` is written under its own name.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import lt
    >>> from guards.terms.extremes import maximum
    >>> python(lt(maximum(symbol("a"), 2) % 4, symbol("b")), {"a": "v[0]", "b": "v[1]"})
    'max(v[0], 2) % 4 < v[1]'
    """
    return fold(term, writing(names, {}))[0]
