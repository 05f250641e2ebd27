"""Terms as LaTeX: an algebra of the fold, for notebooks and papers."""

from __future__ import annotations

from guards.terms.fold import fold
from guards.terms.printing import balanced, left_out
from guards.terms.term import Op, Term


def _name(name: str) -> str:
    head = name.rstrip("0123456789")
    tail = name[len(head) :]
    head = head.replace("_", r"\_")
    if not tail:
        return head if len(head) == 1 else rf"\mathrm{{{head}}}"
    return f"{head}_{{{tail}}}" if len(head) == 1 else rf"\mathrm{{{head}}}_{{{tail}}}"


def _node(term: Term, operands: list[tuple[str, int]]) -> tuple[str, int]:
    # strengths: 0 connective, 1 relation, 2 sum, 3 product, 4 atom
    op = term.op

    def wrapped(item: tuple[str, int], strength: int) -> str:
        return item[0] if item[1] >= strength else rf"\left({item[0]}\right)"

    if op is Op.SYMBOL:
        return _name(term.args[0]), 4
    if op is Op.CONST:
        return str(term.args[0]), 4 if term.args[0] >= 0 else 2
    if op is Op.ADD:
        constant, items = term.args
        return _sum(constant, [(c, v) for (_, c), v in zip(items, operands, strict=True)])
    if op is Op.MUL:
        return r" \cdot ".join(wrapped(item, 4) for item in operands), 3
    if op is Op.FLOORDIV:
        return rf"\left\lfloor \frac{{{operands[0][0]}}}{{{operands[1][0]}}} \right\rfloor", 4
    if op is Op.MOD:
        return rf"{wrapped(operands[0], 4)} \bmod {wrapped(operands[1], 4)}", 3
    if op is Op.MIN or op is Op.MAX:
        word = r"\min" if op is Op.MIN else r"\max"
        return rf"{word}\left({', '.join(item[0] for item in operands)}\right)", 4
    if op is Op.ITE:
        condition, then, otherwise = (item[0] for item in operands)
        cases = rf"{then} & \text{{if }} {condition} \\ {otherwise} & \text{{otherwise}}"
        return rf"\begin{{cases}} {cases} \end{{cases}}", 4
    if op is Op.AND or op is Op.OR:
        return (r" \land " if op is Op.AND else r" \lor ").join(
            wrapped(item, 1) for item in operands
        ), 0
    return (r"\mathrm{true}" if op is Op.TRUE else r"\mathrm{false}"), 4


def _sum(constant: int, parts: list[tuple[int, tuple[str, int]]]) -> tuple[str, int]:
    pieces: list[str] = []
    for c, (shown, strength) in [part for part in parts if part[0] > 0] + [
        part for part in parts if part[0] < 0
    ]:
        body = shown if strength > 2 else rf"\left({shown}\right)"
        body = body if abs(c) == 1 else rf"{abs(c)} {body}"
        pieces.append(
            body
            if not pieces and c > 0
            else f"-{body}"
            if not pieces
            else f"{'+' if c > 0 else '-'} {body}"
        )
    if constant or not pieces:
        pieces.append(
            str(constant) if not pieces else f"{'+' if constant > 0 else '-'} {abs(constant)}"
        )
    return " ".join(pieces), 2


def latex(term: Term) -> str:
    r"""``term`` as LaTeX; very large parts are left out, as ``\ldots``.

    >>> from guards import parse
    >>> print(latex(parse("s0 // 8 + 1 <= min(s1, 4)")))
    \left\lfloor \frac{s_{0}}{8} \right\rfloor < \min\left(4, s_{1}\right)
    """
    relations: dict[Term, list[tuple[str, int]]] = {}

    def node(part: Term, operands: list[tuple[str, int]]) -> tuple[str, int]:
        if part.op is Op.ADD:
            relations[part] = operands
        if part.op in (Op.EQ, Op.NE, Op.LE):
            parts = relations.get(part.args[0], operands)
            return _relation(part, parts), 1
        return _node(part, operands)

    return fold(term, node, dict.fromkeys(left_out(term), (r"\ldots", 4)))[0]


def _relation(term: Term, operands: list[tuple[str, int]]) -> str:
    signs = {"==": "=", "!=": r"\neq", "<=": r"\leq", ">=": r"\geq", "<": "<", ">": ">"}
    return balanced(
        term, operands, lambda c, items: _sum(c, items)[0], lambda a, s, b: f"{a} {signs[s]} {b}"
    )
