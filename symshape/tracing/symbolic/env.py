"""The shape environment: symbols, their hints, the known facts about them, and the guards that a
trace leaves.

Asking is separate from recording.  ``known`` never records.  ``evaluate`` answers from the facts if
they settle the question; otherwise it answers from the hint, which leaves a guard.  ``check`` is
``torch._check``.  Facts only grow, so proven answers stay proven; they are kept in one dictionary
for the life of the environment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.facts.facts import Facts
from guards.regions.universal import for_all
from guards.sets.guard import Guard
from guards.sets.origin import Origin
from guards.sets.sources import IntArg, Source
from guards.terms import arithmetic, boolean, division, fold
from guards.terms.term import Op, Term, among
from symshape import events
from symshape.dims import Dim, Policy
from symshape.errors import ProgramError
from symshape.graph import assertion_messages
from symshape.graph.float_terms import FloatTerm
from symshape.graph.program import Symbol
from symshape.torch_internals import questions
from symshape.tracing.symbolic import raising_branches, undecided
from symshape.tracing.symbolic.nodes import texts
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.choices import tidy
from symshape.tracing.symbolic.nodes.environment import Data, Environment, Message
from symshape.tracing.symbolic.nodes.float_node import FloatNode
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.undecided import fulfilled, usual
from symshape.user_code import origin


# -- The maker of the nodes of one environment, with a cache of integer nodes.
class NodeMaker:
    """The maker of the nodes, sizes and conditions of one environment."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._nodes: dict[Term, IntNode] = {}
        self._combined: dict[tuple[Any, Term, Term], Term] = {}

    def int_node(self, term: Term) -> IntNode:
        """Return the one node for ``term``."""
        found = self._nodes.get(term)
        if found is None:
            found = self._nodes[term] = IntNode(self._env, term)
        return found

    def bool_node(self, term: Term) -> BoolNode:
        """Return a node for a condition."""
        return BoolNode(self._env, term)

    def float_node(self, term: FloatTerm | float) -> FloatNode:
        """Return a node for a float."""
        return FloatNode(self._env, term)

    def size(self, term: Term) -> int | IntNode:
        """Return ``term`` as a size: an int if it is constant."""
        found = self._nodes.get(term)
        if found is not None and found.term.op is not Op.CONST:
            return found
        if term.op is Op.CONST:
            return term.value
        return self.int_node(term)

    def condition(self, term: Term) -> bool | BoolNode:
        """Return ``term`` as a condition: a bool if it is constant."""
        if term is boolean.TRUE:
            return True
        return False if term is boolean.FALSE else BoolNode(self._env, term)

    def combine(self, function: Callable[[Term, Term], Term], a: Term, b: Term) -> Term:
        """Return ``function(a, b)``, cached."""
        key = (function, a, b)
        found = self._combined.get(key)
        if found is None:
            found = self._combined[key] = function(a, b)
        return found


# -- The interface of ``node.shape_env`` that torch uses: the few questions that its own code asks
# an environment.
class QuestionsOfTorch:
    """The environment as torch (2.11 to 2.15) sees it."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    def evaluate_sym_node(
        self, node: Any, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> Any:
        """Return the value of a node, guarded; or ``fallback_value`` if unbacked symbols leave it
        open.
        """
        if isinstance(node, BoolNode):
            if fallback_value is None:
                return self._env.evaluate(node.term)
            free = questions.broadcasts(sys._getframe(1))
            return self._env.guard_or(node.term, fallback_value, free=free)
        return node.guard_int() if isinstance(node, IntNode) else node.guard_float()

    def _maybe_evaluate_static(self, expression: Any, **_: Any) -> Any:
        """Return the value of a node's expression if it is certain; else None."""
        term = getattr(expression, "term", None)
        if not isinstance(term, Term):
            return None
        if not term.is_bool:
            return term.value if term.op is Op.CONST else None
        if self._env.known(term):
            return True
        return False if self._env.known(boolean.not_(term)) else None


_UNSEEN = object()
_EXACT = 2**52


class ShapeEnv:
    """The symbols and facts of one trace; the only mutable part of integer reasoning.

    Attributes:
        symbols: the symbols by name, in order of creation.
        hints: the values of the backed symbols in the example call.
        facts: the current facts.
        guards: the assumptions of the trace about its inputs, in order.
        demanded: the guards without which an op or a ``torch._check`` raises.
        nodes: makes the nodes that torch and the rules compute with.
        for_torch: the object that torch finds as ``node.shape_env``.
        on_assertion: called with each run-time assertion (a check on unbacked symbols).
        may_begin_again: returns whether a run whose assertion fails here may be repeated in eager.
        for_finite: returns the truth of a condition for finite data, if it is a question about
            finiteness; else None.
        unscaled: returns, and asserts, the answer to a question whether unscaled gradients
            overflowed; else None.
        data: the knowledge about floats that come from data.
        presumed: the data assumptions of the trace, in words.
        readings: by unbacked symbol: how to read it from the result of the op that made it, as in
            ``.size(0)``.
        partial: floats that other calls may be unable to compute.
        at: the user's line to blame, if it is not the running one.
        current_op: the name of the op whose rule is running, for origins.
        current_rule: the name of that rule.
        kernels_differ: whether C++ is choosing between kernels whose results differ in layout. Then
            it gets the answer of eager, also where it would go on without one; rules do not.
        left_open: conditions that hold for the example call, under which torch sums a gradient in
            its next op; without them it returns the gradient itself, with the same values.
    """

    def __init__(self) -> None:
        self.symbols = Symbols()
        self.hints: Mapping[str, int] = self.symbols.hints
        self.facts = Facts()
        self.guards: list[Guard] = []
        self.demanded: list[Guard] = []
        self.nodes = NodeMaker(self)
        self.for_torch = QuestionsOfTorch(self)
        self.on_assertion: (
            Callable[[Guard, assertion_messages.Message, type[Exception]], None] | None
        ) = None
        self.may_begin_again: Callable[[], bool] = lambda: False
        self.for_finite: Callable[[Term], bool | None] = lambda condition: None
        self.unscaled: Callable[[str, Any, Any], bool | None] = lambda relation, left, right: None
        self.presumed: list[str] = []
        self.readings: dict[str, str] = {}
        self.data = Data()
        self.partial = PartialNumbers(self)
        self.at: Origin | None = None
        self.current_op = ""
        self.current_rule = ""
        self.kernels_differ = False
        self.left_open: list[Term] = []
        self._answered_freely: dict[Term, None] = {}
        self._hint_memo: dict[Term, int | bool | None] = {}
        self._true: set[Term] = {boolean.TRUE}
        self._undecided: dict[Term, Facts] = {}
        self._numbers: set[Term] = set()  # symbols that may be any integer, unlike sizes

    # -- symbols
    def new_symbol(self, name: str, hint: int, source: Source, dim: Dim | Policy) -> IntNode:
        """Make a backed symbol for an input size, with the bounds of its ``Dim``; the bounds become
        guards.
        """
        term = arithmetic.symbol(name)
        policy = dim.policy if isinstance(dim, Dim) else dim
        self.symbols.add(Symbol(term, hint, (source,), policy))
        self.facts = self.facts.with_symbol(term, None if isinstance(source, IntArg) else 0, None)
        if isinstance(source, IntArg):
            self._numbers.add(term)
        if isinstance(dim, Dim):
            where = Origin(file="", line=0, text=f"declared as {dim!r}", rule="declared")
            limits = [boolean.ge(term, dim.min), boolean.eq(division.mod(term, dim.multiple_of), 0)]
            if dim.max is not None:
                limits.append(boolean.le(term, dim.max))
            for limit in limits:
                if limit is not boolean.TRUE and not self.known(limit):
                    self._assume(limit, where)
        return self.nodes.int_node(term)

    def declare(self, condition: Term, reason: str) -> None:
        """Record a guard that no line of the program asked for: an assumption of the trace about
        its inputs.
        """
        self._assume(condition, Origin(file="", line=0, text=reason, rule="layout"))

    def new_integer(self, name: str, hint: int, source: Source, policy: Policy) -> IntNode:
        """Make a backed symbol for an integer argument, which may be any integer, unlike a size."""
        term = arithmetic.symbol(name)
        self.symbols.add(Symbol(term, hint, (source,), policy))
        self.facts = self.facts.with_symbol(term, None, None)
        self._numbers.add(term)
        return self.nodes.int_node(term)

    def new_unbacked(
        self,
        lower: Any = 0,
        upper: Any = None,
        *,
        description: str = "",
        source: Source | None = None,
    ) -> IntNode:
        """Make an unbacked symbol with ``lower <= u <= upper`` (symbolic or not; None is
        unbounded).
        """
        name = self.symbols.unbacked_name()
        term = arithmetic.symbol(name)
        sources = () if source is None else (source,)
        limits = [
            (each, each.term if isinstance(each, IntNode) else each) for each in (lower, upper)
        ]
        bounds = tuple(
            relation(term, limit)
            for relation, (given, limit) in zip((boolean.ge, boolean.le), limits, strict=True)
            if given is not None
        )
        self.symbols.add(
            Symbol(term, None, sources, Policy.UNBACKED, self.origin(), description, bounds)
        )
        low = lower if isinstance(lower, int) else None
        if lower is None or (low is not None and low < 0):
            self._numbers.add(term)
        self.facts = self.facts.with_symbol(term, low, upper if isinstance(upper, int) else None)
        for limit, relation in ((lower, boolean.ge), (upper, boolean.le)):
            if isinstance(limit, IntNode):
                self.facts = self.facts.assume(relation(term, limit.term))
        return self.nodes.int_node(term)

    def new_float(self) -> FloatNode:
        """Make an unbacked float (the value of a tensor element)."""
        return self.nodes.float_node(FloatTerm("symbol", symbol=self.symbols.float_name()))

    # -- hints
    def hint(self, term: Any) -> Any:
        """Return the value in the example call; None if it depends on unbacked symbols."""
        if isinstance(term, FloatTerm):
            if term.unbacked() or any(symbol.name not in self.hints for symbol in term.symbols()):
                return None
            return term.evaluate(self.hints)
        if isinstance(term, float):
            return term
        found = self._hint_memo.get(term, _UNSEEN)
        if found is _UNSEEN:
            backed = all(symbol.name in self.hints for symbol in term.symbols)
            found = fold.evaluate(term, self.hints) if backed else None
            self._hint_memo[term] = found
        return found

    # -- questions
    def known(self, condition: Term) -> bool:
        """Return whether ``condition`` holds for certain.  Never record anything, never ask SymPy
        or Z3.
        """
        if condition in self._true or always_fits(condition):
            return True
        if condition is boolean.FALSE or self._undecided.get(condition) is self.facts:
            return False
        if self.hint(condition) is not False and ask(
            self.facts, condition, effort=Effort.CHEAP, only=True
        ):
            self._true.add(condition)
            return True
        self._undecided[condition] = self.facts
        return False

    def evaluate(self, condition: Term, raises: type[Exception] | None = None) -> bool:
        """Return the truth of ``condition`` in this trace; record a guard if the facts do not
        settle it.

        ``raises``: the error that Python raises if the condition holds.

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
                return self._go_on(condition, negated, raises)
            self._true.add(condition if answer else negated)
            return answer
        chosen = condition if hint else negated
        if ask(self.facts, chosen, only=True):
            self._true.add(chosen)
        else:
            self._assume(chosen, self.origin())
        return bool(hint)

    def _go_on(self, condition: Term, negated: Term, raises: type[Exception] | None) -> bool:
        """Return, and assert, a truth that depends on data, if the program only raises otherwise or
        torch asks.

        When torch itself asks, the answer is the one that usually holds.

        Raises:
            DataDependentError: the program continues either way.
        """
        way = (
            raising_branches.way_on()
            if raises is None or raising_branches.is_caught()
            else (False, raises)
        )
        if way is None:
            for chosen in (condition, negated):
                if self._guarded(chosen):
                    return chosen is condition
            answer = self.data.holds(condition)
            if answer is not None:  # each call checks this answer
                self.facts = self.facts.assume(condition if answer else negated)
                self._true.add(condition if answer else negated)
                return answer
            answer, why = self._usual(condition) if self.may_begin_again() else (None, "")
            if answer is None:
                raise undecided.error(self, condition)
            self.presumed.append(f"{why}, {condition if answer else negated} (at {self.origin()})")
            self.expect_true(condition if answer else negated, why)
            return answer
        truth, kind = way
        self.expect_true(
            condition if truth else negated, f"the program raises {kind.__name__} here", kind
        )
        return truth

    def _guarded(self, condition: Term) -> bool:
        """Record guards on sizes under which ``condition`` holds for all data; return False if none
        are found.
        """
        found = for_all(condition, self.facts, self.hints)
        if found is None:
            return False
        self._assume(found, self.origin())
        self._true.add(condition)
        return True

    def _usual(self, condition: Term) -> tuple[bool | None, str]:
        """Return the usual truth of a condition on data (None if there is none), and the assumption
        in words.
        """
        answer = usual(self, condition)
        if answer is not None:
            return answer, "what data select is taken for several elements here"
        answer = fulfilled(condition)
        if answer is not None:
            return answer, "arguments of a distribution are taken to be valid here"
        return self.for_finite(condition), "data are taken to be finite here"

    def guard_or(
        self, condition: Term, fallback: bool, *, free: bool = False, sums: bool = False
    ) -> bool:
        """Return the truth of ``condition``, or ``fallback`` if unbacked symbols leave it open
        (``guard_or_false``).

        ``free``: the same is computed either way, so leave no guard if ``fallback`` is also the
        answer for the example call. ``sums``: it is for the tracer to know (see ``left_open``).
        """
        seen: bool | None = self.hint(condition)
        if free and seen is fallback:
            if sums:
                self.left_open.append(condition)
            self._answered_freely[condition] = None
            return fallback
        chooses = self.kernels_differ and not self.current_op
        if chooses or seen is not None:
            return self.evaluate(condition)
        answer = ask(self.facts, condition)
        return fallback if answer is None else answer

    def check(self, condition: Term, message: Message = "") -> None:
        """Check ``condition`` like ``torch._check``: the program is wrong if it does not hold.

        Raises:
            ProgramError: it does not hold in this trace.
        """
        if not self.expect_true(condition, message):
            text = texts.said(message)
            where = self.origin()
            raise ProgramError(f"{text or f'{condition} does not hold'} (at {where})")

    def expect_true(
        self, condition: Term, message: Message = "", error: type[Exception] = RuntimeError
    ) -> bool:
        """Assert ``condition``, by a guard or a run-time assertion; return False if it cannot hold.

        A condition on inputs becomes a guard, any other a run-time assertion.  ``error`` is the
        error that the program raises if the condition does not hold; the error of the graph is one
        of that class too.
        """
        if condition in self._true:
            return True
        hint = self.hint(condition)
        if hint is not None:
            number = len(self.guards)
            holds = self.evaluate(condition)
            self.demanded += self.guards[number:]
            if not holds:
                guard_free_answers(self)
            return holds
        answer = ask(self.facts, condition)
        if answer is None:
            where = self.origin()
            self.facts = self.facts.assume(condition)
            if self.on_assertion is not None:
                self.on_assertion(Guard(condition, where), texts.to_be_said(message), error)
        if answer is False:
            guard_free_answers(self)
            return False
        self._true.add(condition)
        return True

    def exact_as_float(self, term: Term) -> bool:
        """Return whether a float holds ``term`` exactly, so that quotients of it compare as
        fractions do.

        A term of sizes alone is assumed to be small enough.  Other integers are guarded to be, or
        checked in each run.
        """
        if not term.symbols & self._numbers:
            return term.op is not Op.CONST or abs(term.value) < _EXACT
        small = boolean.and_(boolean.lt(term, _EXACT), boolean.lt(-_EXACT, term))
        if self.hint(term) is None:
            return self.expect_true(small, "this number is too large for a float")
        return self.evaluate(small)

    def specialize(self, term: Term, reason: str = "") -> int:
        """Return the value of ``term``, which the program turned into a plain integer; a guard
        fixes it.

        Raises:
            DataDependentError: it depends on unbacked symbols and the facts do not fix it.
        """
        if term.op is Op.CONST:
            return term.value
        value = self.hint(term)
        if value is None:
            value = undecided.only_value(self, term, self._true)
            if value is None:
                raise undecided.error(self, term)
            return value
        condition = boolean.eq(term, value)
        if condition not in self._true and not ask(self.facts, condition, only=True):
            where = self.origin()
            self._assume(condition, where)
            for symbol in term.symbols:
                events.emit(
                    events.Specialized(symbol.name, self.hints[symbol.name], reason or str(where))
                )
        return value  # type: ignore[no-any-return]

    def specialize_float(self, term: FloatTerm | float) -> float:
        """Return the value of a float that the program branches on; the sizes in it are fixed by
        guards.
        """
        if isinstance(term, float):
            return term
        found = self.data.fixed(term) if term.unbacked() else {}
        if found is None or term.unbacked() - found.keys():
            raise undecided.error(self, term)
        reason = f"the program branches on the float {term}"
        symbols = sorted(term.symbols(), key=lambda each: each.order)
        return term.evaluate(
            {symbol.name: self.specialize(symbol, reason=reason) for symbol in symbols}, found
        )

    # -- recording
    def origin(self) -> Origin:
        """Return the user's line that is asking, with the op and the rule that ask."""
        return self.at or origin(self.current_op, self.current_rule)

    def _assume(self, condition: Term, where: Origin) -> None:
        """Record the parts of ``condition`` that the facts do not imply: one guard for each part of
        the conjunction.
        """
        parts = [part for each in parts_of(condition) for part in parts_of(tidy(self.known, each))]
        for part in parts:
            if part is not condition and ask(self.facts, part, only=True):
                continue
            self.guards.append(Guard(part, where))
            self.facts = self.facts.assume(part)
            self._true.add(part)
            events.emit(events.GuardAdded(str(part), str(where)))
        self._true.add(condition)


@contextmanager
def apart(env: ShapeEnv) -> Iterator[None]:
    """Return a context for a part of a program that may not run: afterwards only guards remain of
    its facts.
    """
    facts, true, number = env.facts, env._true.copy(), len(env.guards)
    try:
        yield
    finally:
        env.facts, env._true = facts, true
        for guard in env.guards[number:]:
            env.facts = env.facts.assume(guard.term)
            env._true.add(guard.term)


# -- Analysis of conditions: split them into conjunctions, and recognise one that always holds.
_LARGEST = 2**63 - 1


def always_fits(condition: Term) -> bool:
    """Return whether a condition says ``x <= 2**63 - 1``: torch asks that of each full slice, and
    sizes are int64.
    """
    if condition.op is not Op.LE:
        return False
    constant, items = arithmetic.split(condition.args[0])
    return constant <= -_LARGEST and len(items) == 1 and items[0][1] == 1


def parts_of(condition: Term) -> list[Term]:
    """Return the conjuncts of a condition.

    ``a and b`` gives both, ``x*y != 0`` gives ``x != 0`` and ``y != 0``, ``x == min(x, c)`` gives
    ``x <= c``.
    """
    if condition.op is Op.AND:
        return [part for each in condition.args for part in parts_of(each)]
    if condition.op is Op.EQ:
        term = condition.args[0]
        for monomial, coefficient in arithmetic.split(term)[1]:
            if monomial.op in (Op.MIN, Op.MAX) and abs(coefficient) == 1:
                # what the monomial equals
                rest = arithmetic.sub(monomial, arithmetic.scale(term, coefficient))
                if among(rest, monomial.args):
                    relation = boolean.le if monomial.op is Op.MIN else boolean.ge
                    return [relation(rest, other) for other in monomial.args if other is not rest]
    if condition.op is Op.NE:
        constant, items = arithmetic.split(condition.args[0])
        if constant == 0 and len(items) == 1 and items[0][0].op is Op.MUL:
            return [boolean.ne(atom, 0) for atom in dict.fromkeys(items[0][0].args)]
    return [condition]


class PartialNumbers:
    """The floats of one trace that other calls may be unable to compute: ``math.log(n - 2)``.

    Attributes:
        of_sizes: the floats of sizes alone, which guards can check, and where the program computes
            them.
        on_data: called with each other float.
    """

    def __init__(self, env: ShapeEnv) -> None:
        self._env = env
        self.of_sizes: list[tuple[FloatTerm, Origin]] = []
        self.on_data: Callable[[FloatTerm], None] | None = None

    def add(self, term: FloatTerm) -> None:
        """Note that the program computes a float here, even if it never uses the float."""
        if not term.unbacked() and all(self._env.hint(each) is not None for each in term.symbols()):
            self.of_sizes.append((term, self._env.origin()))
        elif self.on_data is not None:
            self.on_data(term)


class Symbols(Mapping[str, Symbol]):
    """The symbols of one trace by name, in order of creation, with the inputs they are read from.

    Attributes:
        hints: the values of the backed symbols in the example call.
    """

    def __init__(self) -> None:
        self.hints: dict[str, int] = {}
        self._symbols: dict[str, Symbol] = {}
        self._reserved: set[str] = set()
        self._floats = 0

    def __getitem__(self, name: str) -> Symbol:
        return self._symbols[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._symbols)

    def __len__(self) -> int:
        return len(self._symbols)

    def add(self, symbol: Symbol) -> None:
        """Add a symbol."""
        self._symbols[symbol.name] = symbol
        if symbol.hint is not None:
            self.hints[symbol.name] = symbol.hint

    def add_source(self, name: str, source: Source) -> None:
        """Add a further place from which the symbol's value is read; the value must be equal in all
        places.
        """
        known = self._symbols[name]
        self._symbols[name] = attrs.evolve(known, sources=(*known.sources, source))

    def reserve(self, names: Iterable[str]) -> None:
        """Reserve the names that the caller gave to dimensions; no other symbol gets one of
        them.
        """
        self._reserved.update(names)

    def taken(self) -> frozenset[str]:
        """Return all names in use: those of symbols, of floats, and reserved ones."""
        return frozenset(self._reserved) | self._symbols.keys()

    def unbacked_name(self) -> str:
        """Return an unused name for an unbacked integer."""
        return self._fresh("u", sum(1 for each in self._symbols.values() if not each.backed))

    def float_name(self) -> str:
        """Return an unused name for an unbacked float."""
        self._floats += 1
        return self._fresh("f", self._floats - 1)

    def _fresh(self, letter: str, number: int) -> str:
        while (name := f"{letter}{number}") in self._reserved:
            number += 1
        self._reserved.add(name)
        return name


def guard_free_answers(env: ShapeEnv) -> None:
    """Record guards for the questions that were answered without one (see
    :meth:`ShapeEnv.guard_or`).

    Call this before an error of the program: if it is caught, it matters what led to it.
    """
    conditions, env._answered_freely = env._answered_freely, {}
    for condition in conditions:
        env.evaluate(condition)
