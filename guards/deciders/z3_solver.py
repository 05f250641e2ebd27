"""The last resort: Z3, with Python's meaning of ``//`` and ``%`` and a deterministic limit on its work.

Each thread has one solver in a context of its own, made when first needed. The facts of the component in use stay
asserted in it; a question is pushed and popped. What that leaves open is tried once more from scratch with Z3's
solver for nonlinear integers. Limits are counts of Z3's own steps, so the answer is the same on every machine; a clock
stands behind them for the few questions on which Z3 works without counting.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from guards.facts.component import Component
from guards.terms import arithmetic, fold
from guards.terms.term import Op, Term, postorder

if TYPE_CHECKING:
    import z3

LIMIT = 400_000  # of Z3's steps for a question in the incremental solver
LIMIT_ALONE = 1_000_000  # and for the second try
LIMIT_TOGETHER = 2_000_000  # and where many are asked of one solver
EMERGENCY = 1_000  # ms: parts of Z3 5 (its Diophantine cuts) do not count their steps; all others end long before
_STEEPEST = (
    3  # the degree up to which the incremental solver is asked; beyond, such cuts are what it spends its time on
)
_LARGEST = 3_000  # nodes of a formula; larger ones are not sent


@attrs.frozen
class Proved:
    """The formula has no solution (its negation holds everywhere)."""


@attrs.frozen
class Refuted:
    """The formula has a solution: ``model`` gives each symbol's value by name."""

    model: dict[str, int]


@attrs.frozen
class Unknown:
    """Z3 did not find out, and why."""

    reason: str


Outcome = Proved | Refuted | Unknown
PROVED = Proved()


class _Lowering:
    """Terms as Z3 expressions, with what defines the quotients that Z3 has no word for."""

    def __init__(self, context: z3.Context, component: Component | None) -> None:
        import z3

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
            if term.args[1].op is Op.CONST:  # a positive constant in canonical form: all agree on it
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
            positive, negative = z3.And(rest >= 0, rest < divisor), z3.And(divisor < rest, rest <= 0)
            if lo is not None and lo >= 0:
                within = positive
            elif hi is not None and hi <= 0:
                within = negative
            else:
                within = z3.Or(positive, negative)
            definition = [dividend == divisor * quotient + rest, within]
            if (lo is None or lo <= 0) and (hi is None or hi >= 0):
                # By 0 the quotient is anything: a comparison beside it, in an `or`, may still speak there.
                definition = [z3.Or(divisor == 0, z3.And(*definition))]
            found = quotient, rest, definition
            self.divisions[args] = found
        return found


class _Solver(threading.local):
    """The solver of this thread and the component whose facts it holds."""

    def __init__(self) -> None:
        self.context: z3.Context | None = None
        self.solver: z3.Solver | None = None
        self.component: Component | None = None
        self.lowering: _Lowering | None = None
        self.facts: list[Any] = []
        self.degree = 1

    def use(self, component: Component) -> None:
        import z3

        if self.solver is None:
            self.context = z3.Context()
            self.solver = z3.SimpleSolver(ctx=self.context)
            self.solver.set("rlimit", LIMIT)
            self.solver.set("timeout", EMERGENCY)
            self.solver.push()
        elif self.component is component:
            return
        self.solver.pop()
        self.solver.push()
        assert self.context is not None
        self.component = component
        self.lowering = _Lowering(self.context, component)
        self.facts = []
        self.degree = 1
        for fact in component.stated():
            self.degree = max(self.degree, _degree(fact))
            self.facts += self.constraints(fact)
        self.solver.add(*self.facts)

    def constraints(self, formula: Term) -> list[Any]:
        assert self.lowering is not None
        lowered, definitions = self.lowering.lower(formula)
        return [*definitions, lowered]

    def alone(self, constraints: list[Any]) -> tuple[str, Any]:
        import z3

        solver = z3.SolverFor("QF_NIA", ctx=self.context)
        solver.set("rlimit", LIMIT_ALONE)
        solver.set("timeout", EMERGENCY)
        solver.add(*self.facts, *constraints)
        return _run(solver)


_here = _Solver()


def _run(solver: z3.Solver) -> tuple[str, Any]:
    import z3

    try:
        status = solver.check()
    except z3.Z3Exception as error:
        return "unknown", str(error)
    if status == z3.unsat:
        return "unsat", None
    if status == z3.sat:
        return "sat", solver.model()
    reason = solver.reason_unknown()
    return "unknown", "the limit on Z3's work was reached" if "canceled" in reason else reason


def _size(term: Term) -> int:
    count = 0
    for _ in postorder(term):
        count += 1
        if count > _LARGEST:
            break
    return count


def _degree(formula: Term) -> int:
    """The degree of what Z3 is told about a formula: a quotient by a term brings the product of the two along."""
    most = 1
    for part in postorder(formula):
        if part.op is Op.MUL:
            most = max(most, len(part.args))
        elif (part.op is Op.FLOORDIV or part.op is Op.MOD) and part.args[1].op is not Op.CONST:
            most = max(most, 1 + max(len(arithmetic.factors(m)) for m, _ in arithmetic.split(part.args[1])[1]))
    return most


def solve_formula(component: Component, formula: Term) -> Outcome:
    """Whether a formula has a solution in the component: :class:`Proved` (none), :class:`Refuted` or :class:`Unknown`.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import lt
    >>> from guards.facts.facts import Facts
    >>> x = symbol("x")
    >>> solve_formula(Facts().component(x), lt(x % 3, 0)), solve_formula(Facts().component(x), lt(x % 3, 1)).model
    (Proved(), {'x': 0})
    """
    import z3

    if _size(formula) > _LARGEST:
        return Unknown(f"a formula of more than {_LARGEST} parts")
    try:
        _here.use(component)
        solver = _here.solver
        assert solver is not None
        constraints = _here.constraints(formula)
        if max(_degree(formula), _here.degree) <= _STEEPEST:
            solver.push()
            try:
                solver.add(*constraints)
                status, found = _run(solver)
                model = None if status != "sat" else _values(component, formula, found)
            finally:
                solver.pop()
            if status == "unsat":
                return PROVED
            if model is not None:
                return Refuted(model)
        status, found = _here.alone(constraints)
        if status == "unsat":
            return PROVED
        if status == "sat":
            model = _values(component, formula, found)
            return Unknown("the solution found does not satisfy all assumptions") if model is None else Refuted(model)
        return Unknown(str(found))
    except z3.Z3Exception as error:
        _here.__init__()  # type: ignore[misc]
        return Unknown(f"Z3 failed: {error}")


def _values(component: Component, formula: Term, model: Any) -> dict[str, int] | None:
    """The model in the component's own symbols, if it satisfies all that was assumed."""
    free: dict[str, int] = {}
    for declaration in model.decls():
        value = model[declaration]
        if hasattr(value, "as_long"):
            free[declaration.name()] = value.as_long()
    return complete_model(component, formula, free)


def complete_model(component: Component, formula: Term, free: Mapping[str, int]) -> dict[str, int] | None:
    """Values for all symbols of the component from values of those left after its rewrites; None if they do not fit."""
    values = dict(free)
    for symbol, (lo, hi) in component.ranges.items():
        if symbol.op is Op.SYMBOL and symbol.name not in values:
            values[symbol.name] = lo if lo is not None else min(hi, 0) if hi is not None else 0
    try:
        for atom, replacement in component.rewrites.items():
            if atom.op is Op.SYMBOL:
                values[atom.name] = int(fold.evaluate(replacement, values))
        for symbol, (lo, hi) in component.declared.items():
            value = values[symbol.name]
            if (lo is not None and value < lo) or (hi is not None and value > hi):
                return None
        if not all(fold.evaluate(condition, values) for condition in component.conditions):
            return None
        if not fold.evaluate(formula, values):
            return None
    except (ZeroDivisionError, KeyError):
        return None
    return {symbol.name: values[symbol.name] for symbol in sorted(component.symbols, key=lambda s: s.order)}


# -- many questions about the same conditions -------------------------------------------------------------------------


class Together:
    """One solver for many questions about the same conditions; it keeps what it learns.

    ``always`` holds throughout, of ``switched`` what each question chooses.  The context is its own, so that no answer
    depends on what was asked elsewhere.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import ge
    >>> a, b = symbol("a"), symbol("b")
    >>> asked = Together([ge(b, 3)], [ge(a, b)])
    >>> asked.implies([0], ge(a, 2)), asked.implies([], ge(a, 2))
    (True, False)
    """

    def __init__(self, always: Sequence[Term], switched: Sequence[Term] = ()) -> None:
        import z3

        self._context = z3.Context()
        linear = all(map(_is_linear, (*always, *switched)))
        self._solver = z3.SolverFor("QF_LIA", ctx=self._context) if linear else z3.SimpleSolver(ctx=self._context)
        self._solver.set("rlimit", LIMIT_TOGETHER)
        self._solver.set("timeout", EMERGENCY)
        self._lowering = _Lowering(self._context, None)
        self._on = [z3.Bool(f"on!{index}", self._context) for index in range(len(switched))]
        self._off = {c: z3.Bool(f"off!{index}", self._context) for index, c in enumerate(switched)}
        for condition in always:
            self._solver.add(*self._lowered(condition))
        for condition, on in zip(switched, self._on, strict=True):
            lowered, *definitions = self._lowered(condition)
            self._solver.add(*definitions, z3.Implies(on, lowered))
            self._solver.add(z3.Implies(self._off[condition], z3.Not(lowered)))

    def _lowered(self, condition: Term) -> list[Any]:
        lowered, definitions = self._lowering.lower(condition)
        return [lowered, *definitions]

    def implies(self, chosen: Iterable[int], condition: Term) -> bool | None:
        """Whether the conditions ``chosen``, by number, imply another one; None where that was not found out."""
        import z3

        on = [self._on[index] for index in chosen]
        off = self._off.get(condition)
        try:
            if off is not None:
                found = self._solver.check(*on, off)
            else:
                lowered, *definitions = self._lowered(condition)
                self._solver.push()
                self._solver.add(*definitions, z3.Not(lowered))
                found = self._solver.check(*on)
                self._solver.pop()
        except z3.Z3Exception:
            return None
        return True if found == z3.unsat else False if found == z3.sat else None


def _is_linear(condition: Term) -> bool:
    """Whether nothing in a condition is multiplied, or divided by, but numbers."""
    return not any(
        part.op is Op.MUL or (part.op in (Op.FLOORDIV, Op.MOD) and part.args[1].op is not Op.CONST)
        for part in postorder(condition)
    )
