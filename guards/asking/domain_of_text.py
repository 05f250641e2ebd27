"""The values at which a text is defined, where its canonical term no longer shows a divisor that
the text writes.

``p % p`` is the term ``0``, and ``x // p - x // p`` too; as written, both divide by zero at
``p == 0``. A comparison is undefined where one of its operands is. ``and`` and ``or`` are undefined
where no defined part decides them, in whatever order the parts stand. A choice needs its condition,
and the operand that it takes.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from guards.facts.definedness import conjuncts, defined
from guards.terms import boolean
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import Term
from guards.text import operators
from guards.text.functions import FRACTIONS, FUNCTIONS
from guards.text.grammar import Reader
from guards.text.reading_places import READINGS
from guards.text.transcript import Transcript


class Meaning:
    """A condition of a text: where the condition holds, where it fails, and where it is defined."""

    __slots__ = ("defined", "fails", "holds")

    def __init__(self, holds: Term, fails: Term, defined: Term) -> None:
        self.holds = holds
        self.fails = fails
        self.defined = defined

    def negated(self) -> Meaning:
        """Return the meaning of ``not`` of the condition."""
        return Meaning(self.fails, self.holds, self.defined)


def connected(stop: bool, parts: Sequence[Meaning]) -> Meaning:
    """Return the meaning of ``or`` (``stop`` is True) or of ``and``: one part that decides is
    enough.
    """
    if len(parts) == 1:
        return parts[0]
    if stop:
        return connected(False, [part.negated() for part in parts]).negated()
    deciding = [boolean.and_(part.defined, part.fails) for part in parts]
    return kept(
        boolean.and_(*[part.holds for part in parts]),
        boolean.or_(*[part.fails for part in parts]),
        boolean.or_(boolean.and_(*[part.defined for part in parts]), *deciding),
    )


def chosen(test: Meaning, then: Meaning, otherwise: Meaning) -> Meaning:
    """Return the meaning of ``then if test else otherwise``, for conditions."""
    holds = boolean.or_(
        boolean.and_(test.holds, then.holds), boolean.and_(test.fails, otherwise.holds)
    )
    fails = boolean.or_(
        boolean.and_(test.holds, then.fails), boolean.and_(test.fails, otherwise.fails)
    )
    return kept(holds, fails, choice_defined(test, then.defined, otherwise.defined))


def kept(holds: Term, fails: Term, defined: Term) -> Meaning:
    """Return a meaning whose two sides keep the domain: a condition or its opposite is TRUE only
    where defined.
    """
    return Meaning(
        defined if holds is TRUE else holds, defined if fails is TRUE else fails, defined
    )


def choice_defined(test: Meaning, then: Term, otherwise: Term) -> Term:
    """Return where a choice is defined, given where its operands are."""
    return boolean.and_(
        test.defined, boolean.or_(test.fails, then), boolean.or_(test.holds, otherwise)
    )


def agreeing(a: Meaning, b: Meaning) -> Meaning:
    """Return the meaning of ``a == b``, for conditions."""
    return chosen(a, b, b.negated())


class DomainReader:
    """Reads the syntax tree of a text once more, for the values at which its parts are defined."""

    def __init__(self, text: str) -> None:
        self._notes = Transcript(text)
        self._reader = Reader(self._notes)
        self._terms: dict[int, Term] = {}
        self._reader.terms = self._terms

    def read(self, node: ast.expr) -> Meaning:
        """Return the meaning of a whole text, which is a condition."""
        self._reader.read(node)
        return self._meaning(node)

    def _term(self, node: ast.expr) -> Term:
        found = self._terms.get(id(node))
        return self._reader.read(node) if found is None else found

    # -- conditions

    def _meaning(self, node: ast.expr) -> Meaning:
        if isinstance(node, ast.BoolOp):
            return connected(
                isinstance(node.op, ast.Or), [self._meaning(part) for part in node.values]
            )
        if isinstance(node, ast.UnaryOp):
            return self._meaning(node.operand).negated()
        if isinstance(node, ast.IfExp):
            return chosen(
                self._meaning(node.test), self._either(node.body), self._either(node.orelse)
            )
        if isinstance(node, ast.Compare):
            return self._compared(node)
        if isinstance(node, ast.BinOp):
            return self._combined(node)
        if isinstance(node, ast.Call):
            return self._called(node)
        truth = self._term(node)
        return Meaning(truth, boolean.not_(truth), TRUE)

    def _either(self, node: ast.expr) -> Meaning:
        """Return the meaning of what may be a condition or an integer; an integer counts where it
        is not 0.
        """
        term = self._term(node)
        return self._meaning(node) if term.is_bool else self._relation(boolean.ne(term, 0), (node,))

    def _relation(self, term: Term, operands: Sequence[ast.expr]) -> Meaning:
        """Return the meaning of a comparison: of its term, and of the divisors that only its
        operands show.
        """
        domain = boolean.and_(*[self._defined(operand) for operand in operands])
        if domain is FALSE:
            return Meaning(FALSE, FALSE, FALSE)
        shown = set(conjuncts(defined(term)))
        hidden = boolean.and_(*[part for part in conjuncts(domain) if part not in shown])
        return Meaning(boolean.and_(term, hidden), boolean.and_(boolean.not_(term), hidden), domain)

    def _compared(self, node: ast.Compare) -> Meaning:
        parts = []
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            a, b = self._term(left), self._term(right)
            if a.is_bool and b.is_bool and isinstance(operator, ast.Eq | ast.NotEq):
                same = agreeing(self._meaning(left), self._meaning(right))
                parts.append(same if isinstance(operator, ast.Eq) else same.negated())
            else:
                made = operators.relation(self._notes, type(operator), a, b, node)
                parts.append(self._relation(made, (left, right)))
            left = right
        return connected(False, parts)

    def _combined(self, node: ast.BinOp) -> Meaning:
        """Return the meaning of ``& | ^ >>`` between conditions."""
        chain = []
        inner: ast.expr = node
        while isinstance(inner, ast.BinOp) and self._is_condition(inner.left):
            chain.append(inner)
            inner = inner.left
        left = self._meaning(inner)
        for step in reversed(chain):
            right = self._meaning(step.right)
            if isinstance(step.op, ast.BitXor):
                left = agreeing(left, right).negated()
            elif isinstance(step.op, ast.RShift):
                left = connected(True, [left.negated(), right])
            else:
                left = connected(isinstance(step.op, ast.BitOr), [left, right])
        return left

    def _is_condition(self, node: ast.expr) -> bool:
        """Return whether an operand is a condition; an inner step of a chain of operators has no
        term of its own.
        """
        while isinstance(node, ast.BinOp) and id(node) not in self._terms:
            node = node.right
        return self._term(node).is_bool

    def _called(self, node: ast.Call) -> Meaning:
        name, args = _name_and_operands(node)
        row = FUNCTIONS.get(name)
        if name == "Piecewise":
            return self._piecewise(args)
        if row is FUNCTIONS["And"] or row is FUNCTIONS["Or"]:
            return connected(row is FUNCTIONS["Or"], [self._meaning(part) for part in args])
        if row is FUNCTIONS["Not"]:
            return self._meaning(args[0]).negated()
        if row is FUNCTIONS["Implies"]:
            return connected(True, [self._meaning(args[0]).negated(), self._meaning(args[1])])
        if row is FUNCTIONS["ite"]:
            return chosen(self._meaning(args[0]), self._either(args[1]), self._either(args[2]))
        if row is FUNCTIONS["bool"]:
            return self._either(args[0])
        if all(self._term(part).is_bool for part in args):  # Iff, Xor, Eq, Ne
            same = agreeing(self._meaning(args[0]), self._meaning(args[1]))
            return same.negated() if row in (FUNCTIONS["Xor"], FUNCTIONS["Ne"]) else same
        return self._relation(self._term(node), args)

    def _piecewise(self, args: Sequence[ast.expr]) -> Meaning:
        pairs = [part.elts for part in args if isinstance(part, ast.Tuple)]
        result = self._either(pairs[-1][0])
        for value, test in reversed(pairs[:-1]):
            result = chosen(self._meaning(test), self._either(value), result)
        return result

    # -- integers

    def _defined(self, node: ast.expr) -> Term:
        """Return where a part of the text is defined, be it an integer or a condition."""
        if isinstance(node, ast.BinOp) and not self._is_condition(node):
            return self._arithmetic_defined(node)
        if self._term(node).is_bool:
            return self._meaning(node).defined
        if isinstance(node, ast.UnaryOp):
            return self._defined(node.operand)
        if isinstance(node, ast.IfExp):
            return choice_defined(
                self._meaning(node.test), self._defined(node.body), self._defined(node.orelse)
            )
        if isinstance(node, ast.Call) and not _reads_a_place(node):
            return self._function_defined(node)
        return TRUE

    def _arithmetic_defined(self, node: ast.BinOp) -> Term:
        parts = []
        inner: ast.expr = node
        while isinstance(inner, ast.BinOp):
            parts.append(self._defined(inner.right))
            if isinstance(inner.op, ast.FloorDiv | ast.Mod | ast.Div):
                parts.append(self._not_zero(inner.right))
            inner = inner.left
        return boolean.and_(self._defined(inner), *parts)

    def _function_defined(self, node: ast.Call) -> Term:
        name, args = _name_and_operands(node)
        row = FUNCTIONS.get(name)
        if name == "Piecewise":
            pairs = [part.elts for part in args if isinstance(part, ast.Tuple)]
            result = self._defined(pairs[-1][0])
            for value, test in reversed(pairs[:-1]):
                result = choice_defined(self._meaning(test), self._defined(value), result)
            return result
        if row is FUNCTIONS["ite"]:
            return choice_defined(
                self._meaning(args[0]), self._defined(args[1]), self._defined(args[2])
            )
        parts = [self._defined(part) for part in args]
        if row in _DIVISIONS:
            parts += [self._not_zero(part) for part in args[1:]]
        return boolean.and_(*parts)

    def _not_zero(self, node: ast.expr) -> Term:
        return boolean.ne(operators.number(self._term(node)), 0)


_DIVISIONS = [
    FUNCTIONS[name]
    for name in ("FloorDiv", "Mod", "ceildiv", "truncdiv", "truncmod", "ModularIndexing")
]
_DIVISIONS.append(FUNCTIONS[FRACTIONS[0]])


def _name_and_operands(node: ast.Call) -> tuple[str, list[ast.expr]]:
    """Return the name of a called function and its operands: ``all((a, b))`` has those of its
    list.
    """
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    args = node.args
    if len(args) == 1 and isinstance(args[0], ast.List | ast.Tuple) and name != "Piecewise":
        args = args[0].elts
    return name, args


def _reads_a_place(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr in READINGS
