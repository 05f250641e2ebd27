"""Terms as SMT-LIB 2, the common language of solvers: text only, for whichever solver reads it.

SMT-LIB's ``div`` and ``mod`` agree with Python's ``//`` and ``%`` where the divisor is positive;
elsewhere the script says so in terms of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from guards.errors import GuardsError
from guards.terms.fold import fold
from guards.terms.printing import LONGEST, tree_sizes
from guards.terms.term import Op, Term, children, postorder

_PLAIN = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_RESERVED = {
    *("and", "or", "not", "ite", "let", "div", "mod", "abs", "true", "false"),
    *("assert", "forall", "exists", "par", "as"),
}


def _name(name: str) -> str:
    if "|" in name or "\\" in name:
        raise GuardsError(
            f"SMT-LIB has no symbol for the name {name!r}: it may hold neither | nor a backslash"
        )
    return name if _PLAIN.match(name) and name not in _RESERVED else f"|{name}|"


def _number(value: int) -> str:
    return str(value) if value >= 0 else f"(- {-value})"


def _node(term: Term, operands: list[str]) -> str:
    op = term.op
    if op is Op.SYMBOL:
        return _name(term.args[0])
    if op is Op.CONST:
        return _number(term.args[0])
    if op is Op.ADD:
        constant, items = term.args
        parts = [
            v if c == 1 else f"(* {_number(c)} {v})"
            for (_, c), v in zip(items, operands, strict=True)
        ]
        if constant:
            parts.append(_number(constant))
        return f"(+ {' '.join(parts)})" if len(parts) > 1 else parts[0]
    if op is Op.FLOORDIV or op is Op.MOD:
        word = "div" if op is Op.FLOORDIV else "mod"
        if term.args[1].op is Op.CONST:
            return f"({word} {operands[0]} {operands[1]})"
        return _bound(operands[0], operands[1], lambda a, b: _divided(word, a, b))
    if op is Op.MIN or op is Op.MAX:
        return _extreme("<=" if op is Op.MIN else ">=", operands)
    if op is Op.TRUE or op is Op.FALSE:
        return "true" if op is Op.TRUE else "false"
    if op is Op.NE:
        return f"(not (= {operands[0]} 0))"
    word = {Op.MUL: "*", Op.ITE: "ite", Op.EQ: "=", Op.LE: "<=", Op.AND: "and", Op.OR: "or"}[op]
    tail = " 0" if op in (Op.EQ, Op.LE) else ""
    return f"({word} {' '.join(operands)}{tail})"


_LEFT, _RIGHT = "guards!left", "guards!right"


def _bound(a: str, b: str, body: Callable[[str, str], str]) -> str:
    """Return ``body`` of two operands, which it may write several times: longer ones get names by
    ``let``.
    """
    names = [name if text.startswith("(") else text for name, text in ((_LEFT, a), (_RIGHT, b))]
    pairs = " ".join(
        f"({name} {text})" for name, text in zip(names, (a, b), strict=True) if name is not text
    )
    return f"(let ({pairs}) {body(*names)})" if pairs else body(*names)


def _divided(word: str, a: str, b: str) -> str:
    other = f"({word} (- {a}) (- {b}))"
    return f"(ite (> {b} 0) ({word} {a} {b}) {other if word == 'div' else f'(- {other})'})"


def _extreme(sign: str, operands: list[str]) -> str:
    """Return the least or greatest of the operands, halved again and again: as long as they are,
    and not deep.
    """
    if len(operands) == 1:
        return operands[0]
    middle = len(operands) // 2
    first, second = _extreme(sign, operands[:middle]), _extreme(sign, operands[middle:])
    return _bound(first, second, lambda a, b: f"(ite ({sign} {a} {b}) {a} {b})")


def smtlib(
    *formulas: Term, ranges: Mapping[str, tuple[int | None, int | None]] | None = None
) -> str:
    """An SMT-LIB 2 script that asks whether the formulas can hold together.

    Symbols absent from ``ranges`` are sizes (>= 0).  Symbolic divisors are asserted not to be 0.

    >>> from guards import parse
    >>> print(smtlib(parse("s0 % 8 == 0"), ranges={"s0": (2, None)}))
    (set-logic QF_NIA)
    (declare-const s0 Int)
    (assert (>= s0 2))
    (assert (= (mod s0 8) 0))
    (check-sat)
    <BLANKLINE>
    """
    symbols = sorted(frozenset().union(*(f.symbols for f in formulas)), key=lambda s: s.order)
    lines = ["(set-logic QF_NIA)", *(f"(declare-const {_name(s.name)} Int)" for s in symbols)]
    for symbol in symbols:
        lo, hi = (ranges or {}).get(symbol.name, (0, None))
        if lo is not None:
            lines.append(f"(assert (>= {_name(symbol.name)} {_number(lo)}))")
        if hi is not None:
            lines.append(f"(assert (<= {_name(symbol.name)} {_number(hi)}))")
    divisors: dict[Term, None] = {}
    for formula in formulas:
        for part in postorder(formula):
            if part.op in (Op.FLOORDIV, Op.MOD) and part.args[1].op is not Op.CONST:
                divisors[part.args[1]] = None
    written: dict[Term, str] = {}
    for formula in formulas:
        lines += _definitions(formula, written)
    lines += [f"(assert (not (= {fold(d, _node, written)} 0)))" for d in divisors]
    lines += [f"(assert {fold(f, _node, written)})" for f in formulas]
    return "\n".join([*lines, "(check-sat)", ""])


def _definitions(formula: Term, written: dict[Term, str]) -> list[str]:
    """Names for the parts of a formula that is too large to write out: its script is as long as its
    graph.
    """
    if formula.depth <= 3 or tree_sizes(formula, {}) <= LONGEST:
        return []
    lines = []
    for part in postorder(formula, lambda part: part in written):
        made = _node(part, [written[child] for child in children(part)])
        if part.op > Op.SYMBOL:
            name = f"symshape!{len(written)}"
            lines.append(f"(define-fun {name} () {'Bool' if part.is_bool else 'Int'} {made})")
            made = name
        written[part] = made
    return lines
