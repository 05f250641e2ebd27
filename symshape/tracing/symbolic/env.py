"""The shape environment: symbols, their hints, what is known of them, and the guards that a trace leaves.

Asking is separate from recording.  ``known`` never records; ``evaluate`` answers from the facts if they settle the
question and otherwise from the hint, which leaves a guard; ``check`` is ``torch._check``.  Answers that were proven
stay proven because facts only grow, so they are kept in one dictionary for the life of the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

import attrs

from guards.ask.ladder import Effort, ask
from guards.facts.facts import Facts
from guards.sets.guard import Guard
from guards.sets.origin import Origin
from guards.sets.sources import IntArg, Source
from guards.terms import arithmetic, boolean, division, extremes, fold
from guards.terms.term import Op, Term, postorder
from symshape import events
from symshape.dims import Dim, Policy
from symshape.errors import ConstraintViolation, ProgramError
from symshape.graph.float_terms import FloatTerm
from symshape.graph.program import Symbol
from symshape.tracing.symbolic import undecided
from symshape.tracing.symbolic.numbers import BoolNode, FloatNode, IntNode, Message
from symshape.user_code import origin

_UNSEEN = object()
_LARGEST = 2**63 - 1


class ShapeEnv:
    """Symbols and facts of one trace; the only mutable part of integer reasoning.

    Attributes:
        symbols: by name, in order of creation.
        facts: what is known now.
        guards: what the trace assumed of its inputs, in order.
        on_assertion: called with each run-time assertion (a check on unbacked symbols).
        current_op: the name of the op whose rule is running, for origins.
    """

    def __init__(self) -> None:
        self.symbols: dict[str, Symbol] = {}
        self.facts = Facts()
        self.guards: list[Guard] = []
        self.on_assertion: Callable[[Guard, str], None] | None = None
        self.current_op = ""
        self.current_rule = ""
        self._reserved: set[str] = set()
        self._hints: dict[str, int] = {}
        self._hint_memo: dict[Term, int | bool | None] = {}
        self._nodes: dict[Term, IntNode] = {}
        self._combined: dict[tuple[Any, Term, Term], Term] = {}
        self._true: set[Term] = {boolean.TRUE}
        self._undecided: dict[Term, Facts] = {}
        self._float_hints: dict[str, None] = {}

    # -- symbols
    def new_symbol(self, name: str, hint: int, source: Source, dim: Dim | Policy) -> IntNode:
        """A backed symbol for an input size, bounded as its ``Dim`` says; the bounds become guards."""
        term = arithmetic.symbol(name)
        policy = dim.policy if isinstance(dim, Dim) else dim
        self.symbols[name] = Symbol(term, hint, (source,), policy)
        self._hints[name] = hint
        self.facts = self.facts.with_symbol(term, None if isinstance(source, IntArg) else 0, None)
        if isinstance(dim, Dim):
            where = Origin(file="", line=0, text=f"declared as {dim!r}", rule="declared")
            limits = [boolean.ge(term, dim.min), boolean.eq(division.mod(term, dim.multiple_of), 0)]
            if dim.max is not None:
                limits.append(boolean.le(term, dim.max))
            for limit in limits:
                if limit is not boolean.TRUE and not self.known(limit):
                    self._assume(limit, where)
        return self.int_node(term)

    def declare(self, condition: Term, reason: str) -> None:
        """A guard that no line of the program asked for: what the trace takes for granted of its inputs."""
        self._assume(condition, Origin(file="", line=0, text=reason, rule="layout"))

    def new_integer(self, name: str, hint: int, source: Source, policy: Policy) -> IntNode:
        """A backed symbol for an integer argument: any integer, not only a size."""
        term = arithmetic.symbol(name)
        self.symbols[name] = Symbol(term, hint, (source,), policy)
        self._hints[name] = hint
        self.facts = self.facts.with_symbol(term, None, None)
        return self.int_node(term)

    def add_source(self, name: str, source: Source) -> None:
        """A further place where the symbol's value is read (it must then be equal everywhere)."""
        known = self.symbols[name]
        self.symbols[name] = attrs.evolve(known, sources=(*known.sources, source))

    def new_unbacked(
        self, lower: Any = 0, upper: Any = None, *, description: str = "", source: Source | None = None
    ) -> IntNode:
        """An unbacked symbol with ``lower <= u <= upper`` (sizes, symbolic or not; None is unbounded)."""
        name = self._fresh("u", sum(1 for each in self.symbols.values() if not each.backed))
        term = arithmetic.symbol(name)
        sources = () if source is None else (source,)
        self.symbols[name] = Symbol(term, None, sources, Policy.UNBACKED, self._origin(), description)
        low = lower if isinstance(lower, int) else None
        self.facts = self.facts.with_symbol(term, low, upper if isinstance(upper, int) else None)
        for limit, relation in ((lower, boolean.ge), (upper, boolean.le)):
            if isinstance(limit, IntNode):
                self.facts = self.facts.assume(relation(term, limit.term))
        return self.int_node(term)

    def reserve(self, names: Iterable[str]) -> None:
        """Names that the caller gave to dimensions: no symbol of ours takes one."""
        self._reserved.update(names)

    def _fresh(self, letter: str, number: int) -> str:
        while (name := f"{letter}{number}") in self._reserved:
            number += 1
        self._reserved.add(name)
        return name

    def new_float(self) -> FloatNode:
        """An unbacked float (the value of a tensor element)."""
        name = self._fresh("f", len(self._float_hints))
        self._float_hints[name] = None
        return FloatNode(self, FloatTerm("symbol", symbol=name))

    # -- terms and nodes
    def int_node(self, term: Term) -> IntNode:
        """The one node for ``term``."""
        found = self._nodes.get(term)
        if found is None:
            found = self._nodes[term] = IntNode(self, term)
        return found

    def size(self, term: Term) -> int | IntNode:
        """``term`` as a size: an int where it is constant."""
        found = self._nodes.get(term)
        if found is not None and found.term.op is not Op.CONST:
            return found
        if term.op is Op.CONST:
            return term.value
        return self.int_node(term)

    def condition(self, term: Term) -> bool | BoolNode:
        """``term`` as a condition: a bool where it is constant."""
        if term is boolean.TRUE:
            return True
        return False if term is boolean.FALSE else BoolNode(self, term)

    def combine(self, function: Callable[[Term, Term], Term], a: Term, b: Term) -> Term:
        """``function(a, b)``, remembered."""
        key = (function, a, b)
        found = self._combined.get(key)
        if found is None:
            found = self._combined[key] = function(a, b)
        return found

    def maximum(self, a: Term, b: Term) -> Term:
        """The greater of two terms; one of them if the facts say which."""
        if self.known(boolean.le(b, a)):
            return a
        return b if self.known(boolean.le(a, b)) else extremes.maximum(a, b)

    def minimum(self, a: Term, b: Term) -> Term:
        """The lesser of two terms; one of them if the facts say which."""
        if self.known(boolean.le(a, b)):
            return a
        return b if self.known(boolean.le(b, a)) else extremes.minimum(a, b)

    def ite(self, condition: Term, then: Term, otherwise: Term) -> Term:
        """``then if condition else otherwise``; one of them if the facts say which."""
        if self.known(condition):
            return then
        return otherwise if self.known(boolean.not_(condition)) else boolean.ite(condition, then, otherwise)

    def hint(self, term: Any) -> Any:
        """The value in the example call; None where it depends on unbacked symbols."""
        if isinstance(term, FloatTerm):
            if term.unbacked() or any(symbol.name not in self._hints for symbol in term.symbols()):
                return None
            return term.evaluate(self._hints)
        if isinstance(term, float):
            return term
        found = self._hint_memo.get(term, _UNSEEN)
        if found is _UNSEEN:
            backed = all(symbol.name in self._hints for symbol in term.symbols)
            found = fold.evaluate(term, self._hints) if backed else None
            self._hint_memo[term] = found
        return found

    @property
    def hints(self) -> Mapping[str, int]:
        """The values of the backed symbols in the example call."""
        return self._hints

    def tidy(self, term: Term) -> Term:
        """An equal term, as far as the facts go, in which a ``min`` or ``max`` that they decide is gone."""
        if not any(part.op in (Op.MIN, Op.MAX) for part in postorder(term)):
            return term
        return fold.fold(term, self._tidied)

    def _tidied(self, term: Term, operands: list[Term]) -> Term:
        if term.op is Op.MIN:
            return reduce(self.minimum, operands)
        if term.op is Op.MAX:
            return reduce(self.maximum, operands)
        return fold.rebuild(term, operands)

    # -- questions
    def known(self, condition: Term) -> bool:
        """Whether ``condition`` holds for certain.  Never records, never asks SymPy or Z3."""
        if condition in self._true or _always_fits(condition):
            return True
        if condition is boolean.FALSE or self._undecided.get(condition) is self.facts:
            return False
        if self.hint(condition) is not False and ask(self.facts, condition, effort=Effort.CHEAP, only=True):
            self._true.add(condition)
            return True
        self._undecided[condition] = self.facts
        return False

    def evaluate(self, condition: Term) -> bool:
        """The truth of ``condition`` in this trace; a guard is left where the facts do not settle it.

        Raises:
            DataDependentError: it depends on unbacked symbols and the facts do not settle it.
        """
        if condition in self._true:
            return True
        negated = boolean.not_(condition)
        if negated in self._true:
            return False
        hint = self.hint(condition)
        if hint is None:
            answer = ask(self.facts, condition)
            if answer is None:
                raise undecided.error(self, condition)
            self._true.add(condition if answer else negated)
            return answer
        chosen = condition if hint else negated
        if ask(self.facts, chosen, only=True):
            self._true.add(chosen)
        else:
            self._assume(chosen, self._origin())
        return bool(hint)

    def guard_or(self, condition: Term, fallback: bool) -> bool:
        """PyTorch's ``guard_or_false`` / ``guard_or_true``: ``fallback`` where unbacked symbols leave it open."""
        if self.hint(condition) is not None:
            return self.evaluate(condition)
        answer = ask(self.facts, condition)
        return fallback if answer is None else answer

    def check(self, condition: Term, message: Message = "") -> None:
        """``torch._check``: where ``condition`` does not hold the program is wrong.

        Raises:
            ProgramError: it does not hold in this trace.
        """
        if not self.expect_true(condition, message):
            text = message() if callable(message) else message
            where = self._origin()
            raise ProgramError(f"{text or f'{condition} does not hold'} (at {where})")

    def expect_true(self, condition: Term, message: Message = "") -> bool:
        """Asserts ``condition``: a guard if it is about inputs, else a run-time assertion; False if it cannot hold."""
        if condition in self._true:
            return True
        hint = self.hint(condition)
        if hint is not None:
            return self.evaluate(condition)
        answer = ask(self.facts, condition)
        if answer is None:
            where = self._origin()
            self.facts = self.facts.assume(condition)
            if self.on_assertion is not None:
                text = message() if callable(message) else message
                self.on_assertion(Guard(condition, where), text)
        if answer is not False:
            self._true.add(condition)
        return answer is not False

    def specialize(self, term: Term, reason: str = "") -> int:
        """The value of ``term``, which the program turned into a plain integer; a guard fixes it.

        Raises:
            DataDependentError: it depends on unbacked symbols and the facts do not fix it.
        """
        if term.op is Op.CONST:
            return term.value
        value = self.hint(term)
        if value is None:
            value = undecided.only_value(self, term)
            if value is None:
                raise undecided.error(self, term)
            return value
        condition = boolean.eq(term, value)
        if condition not in self._true and not ask(self.facts, condition, only=True):
            where = self._origin()
            self._assume(condition, where)
            for symbol in term.symbols:
                events.emit(events.Specialized(symbol.name, self._hints[symbol.name], reason or str(where)))
        return value  # type: ignore[no-any-return]

    def specialize_float(self, term: FloatTerm | float) -> float:
        """The value of a float that the program branches on; the sizes in it are fixed by guards."""
        if isinstance(term, float):
            return term
        if term.unbacked():
            raise undecided.error(self, term)
        reason = f"the program branches on the float {term}"
        symbols = sorted(term.symbols(), key=lambda each: each.order)
        return term.evaluate({symbol.name: self.specialize(symbol, reason=reason) for symbol in symbols})

    def contiguous(self, sizes: Any, strides: Any, order: tuple[int, ...]) -> Term:
        """The condition that ``strides`` are those of a dense tensor laid out in ``order`` (outermost first)."""
        terms = [_term(size) for size in sizes]
        expected, conditions = arithmetic.ONE, []
        for d in reversed(order):
            conditions.append(boolean.or_(boolean.eq(terms[d], 1), boolean.eq(_term(strides[d]), expected)))
            expected = arithmetic.mul(expected, terms[d])
        return boolean.or_(boolean.and_(*conditions), *(boolean.eq(term, 0) for term in terms))

    # -- torch asks these on ``node.shape_env``
    def evaluate_sym_node(self, node: Any, size_oblivious: bool = False, fallback_value: bool | None = None) -> Any:
        """The value of a node, guarded; ``fallback_value`` where unbacked symbols leave it open."""
        if isinstance(node, BoolNode):
            return self.evaluate(node.term) if fallback_value is None else self.guard_or(node.term, fallback_value)
        return node.guard_int() if isinstance(node, IntNode) else node.guard_float()

    def _maybe_evaluate_static(self, term: Any, **_: Any) -> Any:
        if not isinstance(term, Term):
            return None
        if not term.is_bool:
            return term.value if term.op is Op.CONST else None
        if self.known(term):
            return True
        return False if self.known(boolean.not_(term)) else None

    # -- recording
    def _origin(self) -> Origin:
        return origin(self.current_op, self.current_rule)

    def _assume(self, condition: Term, where: Origin) -> None:
        """Records what ``condition`` says beyond the facts: one guard for each part of a conjunction that is new."""
        parts = [part for each in _parts(condition) for part in _parts(self.tidy(each))]
        for part in parts:
            if part is not condition and ask(self.facts, part, only=True):
                continue
            self.guards.append(Guard(part, where))
            self.facts = self.facts.assume(part)
            self._true.add(part)
            events.emit(events.GuardAdded(str(part), str(where)))
        self._true.add(condition)

    def check_policies(self) -> None:
        """After the trace: no symbol that was declared dynamic may have been fixed to one value.

        Raises:
            ConstraintViolation: with the declared dimension, the value, and the guards that fix it.
        """
        for symbol in self.symbols.values():
            if symbol.policy is not Policy.DYNAMIC or symbol.hint is None:
                continue
            interval = self.facts.interval(symbol.term)
            fixed = boolean.eq(symbol.term, symbol.hint)
            if not (interval.lo == interval.hi is not None or ask(self.facts, fixed, effort=Effort.CHEAP, only=True)):
                continue
            declared = [g for g in self.guards if g.origin is not None and g.origin.rule == "declared"]
            own = Facts().with_symbol(symbol.term, 0, None)
            for guard in declared:
                if guard.term.symbols == {symbol.term}:
                    own = own.assume(guard.term)
            if ask(own, fixed, effort=Effort.CHEAP, only=True):
                continue  # the caller's own Dim leaves one value
            chain = [g for g in self.guards if symbol.term in g.term.symbols and g not in declared]
            lines = "\n".join(f"  {guard.term}   from {guard.origin}" for guard in chain)
            source = symbol.sources[0].text()
            raise ConstraintViolation(
                f"{source} was declared dynamic ({symbol.name}), but the program fixes it to {symbol.hint}:\n{lines}\n"
                f"Either declare it static (dynamic={{...: None}}), allow specialisation (Policy.AUTO), "
                "or change that line.",
                symbol=symbol.name,
                source=source,
            )


def _always_fits(condition: Term) -> bool:
    """Whether it says that one quantity is at most 2**63 - 1: torch asks so of each full slice, and sizes are int64."""
    if condition.op is not Op.LE:
        return False
    constant, items = arithmetic.split(condition.args[0])
    return constant <= -_LARGEST and len(items) == 1 and items[0][1] == 1


def _parts(condition: Term) -> list[Term]:
    """A condition as a conjunction: ``a and b`` gives both, ``x*y != 0`` gives ``x != 0`` and ``y != 0``,

    ``x == min(x, c)`` gives ``x <= c``.
    """
    if condition.op is Op.AND:
        return [part for each in condition.args for part in _parts(each)]
    if condition.op is Op.EQ:
        term = condition.args[0]
        for monomial, coefficient in arithmetic.split(term)[1]:
            if monomial.op in (Op.MIN, Op.MAX) and abs(coefficient) == 1:
                rest = arithmetic.sub(
                    monomial, arithmetic.scale(term, coefficient)
                )  # the condition says: monomial == rest
                if rest in monomial.args:
                    relation = boolean.le if monomial.op is Op.MIN else boolean.ge
                    return [relation(rest, other) for other in monomial.args if other is not rest]
    if condition.op is Op.NE:
        constant, items = arithmetic.split(condition.args[0])
        if constant == 0 and len(items) == 1 and items[0][0].op is Op.MUL:
            return [boolean.ne(atom, 0) for atom in dict.fromkeys(items[0][0].args)]
    return [condition]


def _term(size: Any) -> Term:
    if isinstance(size, IntNode):
        return size.term
    node = getattr(size, "node", None)
    return node.term if isinstance(node, IntNode) else arithmetic.const(int(size))
