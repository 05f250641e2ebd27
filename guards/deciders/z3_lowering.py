"""Terms as Z3 expressions, with Python's meaning of ``//`` and ``%``; imports nothing of Z3 itself.

Z3's division agrees with Python's for a positive divisor. Where the sign of the divisor is open,
quotient and remainder are new unknowns, defined by ``dividend == divisor*quotient + rest`` and by
the range of the rest.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from guards.facts.component import Component
from guards.terms import arithmetic, fold
from guards.terms.term import Op, Term, postorder


class Lowering:
    """Terms as Z3 expressions, with what defines the quotients that Z3 has no word for.

    ``z3`` is the package itself, from the module that may import it, and ``context`` one of its
    contexts. The bounds that the ``component`` knows of a divisor make its quotients shorter to
    define.
    """

    def __init__(self, z3: Any, context: Any, component: Component | None) -> None:
        self.z3 = z3
        self.context = context
        self.component = component
        self.memo: dict[Term, Any] = {}
        self.divisions: dict[tuple[Term, Term], tuple[Any, Any, list[Any]]] = {}

    def lower(self, term: Term) -> tuple[Any, list[Any]]:
        """The expression, and the definitions of the quotients inside."""
        lowered = fold.fold(term, self._node, self.memo)
        definitions: list[Any] = []
        if self.divisions:
            for part in postorder(term):
                if part.op is Op.FLOORDIV or part.op is Op.MOD:
                    found = self.divisions.get(part.args)
                    if found is not None:
                        definitions += found[2]
        return lowered, definitions

    def _node(self, term: Term, operands: list[Any]) -> Any:
        z3, op = self.z3, term.op
        if op is Op.SYMBOL:
            return z3.Int(term.args[0], self.context)
        if op is Op.CONST:
            return z3.IntVal(term.args[0], self.context)
        if op is Op.ADD:
            constant, items = term.args
            parts = [v if c == 1 else v * c for (_, c), v in zip(items, operands, strict=True)]
            if constant:
                parts.append(z3.IntVal(constant, self.context))
            return z3.Sum(*parts) if len(parts) > 1 else parts[0]
        if op is Op.MUL:
            return z3.Product(*operands)
        if op is Op.FLOORDIV or op is Op.MOD:
            # a positive constant in canonical form: all agree on it
            if term.args[1].op is Op.CONST:
                return operands[0] / operands[1] if op is Op.FLOORDIV else operands[0] % operands[1]
            return self._divide(term.args, operands)[0 if op is Op.FLOORDIV else 1]
        if op is Op.MIN or op is Op.MAX:
            result = operands[0]
            for other in operands[1:]:
                result = z3.If(result <= other if op is Op.MIN else result >= other, result, other)
            return result
        if op is Op.ITE:
            return z3.If(*operands)
        if op is Op.LE:
            return operands[0] <= 0
        if op is Op.EQ:
            return operands[0] == 0
        if op is Op.NE:
            return operands[0] != 0
        if op is Op.AND:
            return z3.And(*operands)
        if op is Op.OR:
            return z3.Or(*operands)
        return z3.BoolVal(op is Op.TRUE, self.context)

    def _divide(self, args: tuple[Term, Term], operands: list[Any]) -> tuple[Any, Any, list[Any]]:
        z3 = self.z3
        found = self.divisions.get(args)
        if found is None:
            number = len(self.divisions)
            quotient = z3.Int(f"quotient!{number}", self.context)
            rest = z3.Int(f"rest!{number}", self.context)
            dividend, divisor = operands
            lo, hi = self.component.bounds(args[1]) if self.component is not None else (None, None)
            positive, negative = (
                z3.And(rest >= 0, rest < divisor),
                z3.And(divisor < rest, rest <= 0),
            )
            if lo is not None and lo >= 0:
                within = positive
            elif hi is not None and hi <= 0:
                within = negative
            else:
                within = z3.Or(positive, negative)
            definition = [dividend == divisor * quotient + rest, within]
            if (lo is None or lo <= 0) and (hi is None or hi >= 0):
                # By 0 the quotient is anything: a comparison beside it, in an `or`, may still speak
                # there.
                definition = [z3.Or(divisor == 0, z3.And(*definition))]
            found = quotient, rest, definition
            self.divisions[args] = found
        return found


def more_parts_than(most: int, term: Term) -> bool:
    """Return whether a term has more than ``most`` different parts."""
    return next(islice(postorder(term), most, None), None) is not None


def degree(formula: Term) -> int:
    """The degree of what Z3 is told about a formula: a quotient by a term brings the product of the
    two along.
    """
    most = 1
    for part in postorder(formula):
        if part.op is Op.MUL:
            most = max(most, len(part.args))
        elif (part.op is Op.FLOORDIV or part.op is Op.MOD) and part.args[1].op is not Op.CONST:
            most = max(
                most,
                1 + max(len(arithmetic.factors(m)) for m, _ in arithmetic.split(part.args[1])[1]),
            )
    return most


def is_linear(condition: Term) -> bool:
    """Return whether a condition multiplies and divides by numbers only."""
    return not any(
        part.op is Op.MUL or (part.op in (Op.FLOORDIV, Op.MOD) and part.args[1].op is not Op.CONST)
        for part in postorder(condition)
    )
