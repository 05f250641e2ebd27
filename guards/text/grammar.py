"""The grammar: which nodes of Python's syntax tree are accepted, and what each of them makes."""

from __future__ import annotations

import ast
from collections.abc import Callable

from guards.terms import arithmetic, boolean, division, truncation
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import Op, Term
from guards.text import operators
from guards.text.functions import AMBIGUOUS, CONDITION, FRACTIONS, FUNCTIONS, INTEGER
from guards.text.operators import MAX_EXPONENT, ceildiv, number
from guards.text.reading_places import MODULES, READINGS, place
from guards.text.transcript import Transcript, described

_NESTING = 150  # of parentheses, calls, conditions and signs; chains of operators do not count
_SYMBOLS_LIMIT = 4096
_symbols: dict[str, Term] = {}


class Reader:
    """Turns one syntax tree into a term and keeps notes.

    Attributes:
        terms: a dictionary that receives the term of each inner node by the node's ``id``; None for
            no record.
    """

    __slots__ = ("depth", "notes", "terms")

    def __init__(self, notes: Transcript) -> None:
        self.notes = notes
        self.depth = 0
        self.terms: dict[int, Term] | None = None

    def read(self, node: ast.expr) -> Term:
        """The term of a node: an integer or a condition."""
        kind = type(node)
        if kind is ast.Name:
            return self._name(node)  # type: ignore[arg-type]
        if kind is ast.Constant:
            return self._constant(node)  # type: ignore[arg-type]
        reader = _READERS.get(kind)
        if reader is None:
            self.notes.fail(f"{described(node)} is not allowed", node)
        self.depth += 1
        if self.depth > _NESTING:
            self.notes.fail("nested too deeply", node)
        term = reader(self, node)
        self.depth -= 1
        if self.terms is not None:
            self.terms[id(node)] = term
        return term

    def integer(self, node: ast.expr) -> Term:
        """An integer; a condition counts as 1 or 0, as in Python."""
        return number(self.read(node))

    def condition(self, node: ast.expr) -> Term:
        """A condition, and nothing else."""
        self.notes.choosing = True
        term = self.read(node)
        if term.op < Op.TRUE:
            self.notes.fail(f"a condition is needed here, not the integer {_shown(term)}", node)
        return term

    def _name(self, node: ast.Name) -> Term:
        return self._symbol(node.id, node)

    def place(self, node: ast.expr) -> Term:
        """Read a place that a guard prints, ``x.size(0)`` or ``kwargs['mask'].stride(1)``, as a
        symbol of that name.
        """
        return self._symbol(place(self.notes, node), node)

    def _symbol(self, name: str, node: ast.expr) -> Term:
        found = _symbols.get(name)
        if found is None:
            if name.startswith("__"):
                self.notes.fail(f"the name {name[:40]!r} is not allowed", node)
            if len(_symbols) >= _SYMBOLS_LIMIT:
                _symbols.clear()
            found = _symbols[name] = arithmetic.symbol(name)
        return found

    def _constant(self, node: ast.Constant) -> Term:
        value = node.value
        if value is True:
            return TRUE
        if value is False:
            return FALSE
        if type(value) is not int:
            self.notes.fail(f"the constant {str(value)[:40]!r} is not an integer", node)
        term = arithmetic.const(value)
        return term if value < 65536 else operators.checked(self.notes, term, node)

    # -- operators ---------------------------------------------------------------------------------

    def binary(self, node: ast.BinOp) -> Term:
        """An operator between two operands, or a long chain of them."""
        chain = []  # a long chain of operators leans to the left: walked without recursion
        inner: ast.expr = node
        while isinstance(inner, ast.BinOp):
            chain.append(inner)
            inner = inner.left
        left = self.read(inner)
        while chain:
            step = chain.pop()
            operator = type(step.op)
            if operator is ast.Add and chain and type(chain[-1].op) is ast.Add:
                parts = [left, self.read(step.right)]
                while chain and type(chain[-1].op) is ast.Add:  # a long sum is collected once
                    step = chain.pop()
                    parts.append(self.read(step.right))
                left = operators.checked(
                    self.notes, arithmetic.total([number(part) for part in parts]), step
                )
            elif operator is ast.Pow:
                base = number(left)
                most = MAX_EXPONENT
                exponent = operators.constant(
                    self.notes, self.integer(step.right), "an exponent", most, step.right
                )
                left = operators.power(self.notes, base, exponent, step)
            else:
                left = operators.combined(self.notes, operator, left, self.read(step.right), step)
        return left

    def unary(self, node: ast.UnaryOp) -> Term:
        """``not``, ``~`` or a sign."""
        operator = type(node.op)
        if operator is ast.Not:
            return boolean.not_(self.condition(node.operand))
        operand = self.read(node.operand)
        if operator is ast.Invert:
            return boolean.not_(operand) if operand.op >= Op.TRUE else arithmetic.sub(-1, operand)
        operand = number(operand)
        return arithmetic.scale(operand, -1) if operator is ast.USub else operand

    def logical(self, node: ast.BoolOp) -> Term:
        """``and`` or ``or``"""
        join = boolean.and_ if isinstance(node.op, ast.And) else boolean.or_
        return join(*[self.condition(part) for part in node.values])

    def compare(self, node: ast.Compare) -> Term:
        """A comparison, or a chain of them."""
        left = self.read(node.left)
        if len(node.ops) == 1:
            return operators.relation(
                self.notes, type(node.ops[0]), left, self.read(node.comparators[0]), node
            )
        parts = []
        for operator, item in zip(node.ops, node.comparators, strict=True):
            right = self.read(item)
            parts.append(operators.relation(self.notes, type(operator), left, right, node))
            left = right
        return boolean.and_(*parts)

    def conditional(self, node: ast.IfExp) -> Term:
        """``then if condition else otherwise``"""
        return operators.chosen(
            self.condition(node.test), self.read(node.body), self.read(node.orelse)
        )

    # -- calls -------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Term:
        """A known function of its operands."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in READINGS:
            return self.place(node)
        name = self._called(node)
        function = FUNCTIONS.get(name)
        form = FORMS.get(name) if function is None else None
        if function is not None:
            least, most = function.least, function.most
        elif form is not None:
            least, most, _ = form
        else:
            self.notes.fail(AMBIGUOUS.get(name) or f"the function {name[:40]!r} is not known", node)
        args = node.args
        if most is None and len(args) == 1 and isinstance(args[0], ast.List | ast.Tuple):
            args = args[0].elts  # min([a, b]), all((a, b))
        if node.keywords or any(isinstance(part, ast.Starred) for part in args):
            self.notes.fail(f"{name} takes plain operands only", node)
        if len(args) < least or (most is not None and len(args) > most):
            wanted = (
                str(least)
                if least == most
                else f"at least {least}"
                if most is None
                else f"{least} to {most}"
            )
            self.notes.fail(f"{name} takes {wanted} operands, not {len(args)}", node)
        if form is not None:
            return form[2](self, args, node)
        assert function is not None
        kinds = function.operands
        last = len(kinds) - 1
        terms = [self._operand(kinds[min(index, last)], part) for index, part in enumerate(args)]
        return function.make(self.notes, terms, node)

    def _called(self, node: ast.Call) -> str:
        """The name of the function that is called."""
        function = node.func
        if isinstance(function, ast.Name):
            name = function.id
        elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            name = function.attr
            if name not in MODULES.get(function.value.id, ()):
                self.notes.fail(f"{described(function)} cannot be called", node)
        else:
            self.notes.fail(f"{described(function)} cannot be called", node)
        if name.startswith("__"):
            self.notes.fail(f"the name {name[:40]!r} is not allowed", node)
        return name

    def _operand(self, kind: int, node: ast.expr) -> Term:
        if kind == INTEGER:
            return self.integer(node)
        return self.condition(node) if kind == CONDITION else self.read(node)


def _shown(term: Term) -> str:
    shown = str(term)
    return shown if len(shown) <= 40 else shown[:37] + "..."


_READERS: dict[type[ast.expr], Callable[[Reader, ast.expr], Term]] = {
    ast.BinOp: Reader.binary,  # type: ignore[dict-item]
    ast.UnaryOp: Reader.unary,  # type: ignore[dict-item]
    ast.BoolOp: Reader.logical,  # type: ignore[dict-item]
    ast.Compare: Reader.compare,  # type: ignore[dict-item]
    ast.IfExp: Reader.conditional,  # type: ignore[dict-item]
    ast.Call: Reader.call,  # type: ignore[dict-item]
    ast.Subscript: Reader.place,
}
# -- calls whose operands are looked at as they are written ----------------------------------------

Form = Callable[[Reader, list[ast.expr], ast.Call], Term]


def _piecewise(reader: Reader, args: list[ast.expr], node: ast.Call) -> Term:
    pairs: list[tuple[Term, Term]] = []
    for part in args:
        if not isinstance(part, ast.Tuple) or len(part.elts) != 2:
            reader.notes.fail("each part of Piecewise must be (value, condition)", part)
        pairs.append((reader.read(part.elts[0]), reader.condition(part.elts[1])))
    result, condition = pairs.pop()
    if condition is not TRUE:
        covered = boolean.or_(condition, *[other for _, other in pairs])
        reader.notes.require(
            covered,
            "the conditions of Piecewise must cover everything: the last must be True",
            node,
        )
    for value, condition in reversed(pairs):
        result = operators.chosen(condition, value, result)
    return result


def _fraction(reader: Reader, part: ast.expr) -> tuple[Term, Term] | None:
    """Numerator and denominator, where a fraction is written."""
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div):
        return reader.integer(part.left), reader.integer(part.right)
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in FRACTIONS:
        if (
            len(part.args) != 2
            or part.keywords
            or any(isinstance(inner, ast.Starred) for inner in part.args)
        ):
            reader.notes.fail(f"{part.func.id} takes 2 operands", part)
        return reader.integer(part.args[0]), reader.integer(part.args[1])
    return None


def _rounded(divide: Callable[[Term, Term], Term]) -> Form:
    def make(reader: Reader, args: list[ast.expr], node: ast.Call) -> Term:
        found = _fraction(reader, args[0])
        return (
            reader.integer(args[0])
            if found is None
            else operators.divided(reader.notes, divide, *found)
        )

    return make


def _cut(reader: Reader, args: list[ast.expr], node: ast.Call) -> Term:
    found = _fraction(reader, args[0])
    return (
        reader.integer(args[0])
        if found is None
        else operators.truncated(reader.notes, truncation.quotient, *found)
    )


_same: dict[tuple[str, ...], tuple[int, int | None, Form]] = {
    ("floor", "FloorToInt"): (1, 1, _rounded(division.floordiv)),
    ("ceil", "ceiling", "CeilToInt"): (1, 1, _rounded(ceildiv)),
    ("trunc", "TruncToInt", "int", "sym_int"): (1, 1, _cut),
    ("Piecewise",): (1, None, _piecewise),
}

FORMS: dict[str, tuple[int, int | None, Form]] = {
    name: row for names, row in _same.items() for name in names
}
"""The least and the greatest number of operands, and the maker of the term, by name."""
