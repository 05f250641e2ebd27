"""The domain of a trace's formulas: its symbols, and the guards under which the formulas hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.asking.simplification import simplify
from guards.facts.definedness import satisfied
from guards.facts.facts import Facts
from guards.sets.codegen import Check, compile_check
from guards.sets.guard_set import GuardSet
from guards.sets.sources import spelled
from guards.terms import boolean, fold, printing
from guards.terms.arithmetic import symbol
from guards.terms.generated import generated_function
from guards.terms.term import Op, Term, postorder
from symshape.errors import GuardViolation, InputError
from symshape.forks import cached_property
from symshape.graph.program import Program

MOST = 2**62
"""The largest size."""

Evaluate = Callable[[Sequence[int]], tuple[int, ...]]


class Domain:
    """The symbols of a trace, in order, and its guards.

    Attributes:
        name: the program's name.
        symbols: the names, in the order of the trace; unbacked ones come last.
        guards: under which everything said of the program holds.
        words: for each symbol where it is read, in the caller's words, or what an unbacked one
            counts.
    """

    def __init__(
        self, name: str, symbols: Sequence[str], guards: GuardSet, words: Mapping[str, str]
    ) -> None:
        self.name = name
        self.symbols = tuple(symbols)
        self.guards = guards
        self.words = dict(words)
        self._simplified: dict[Term, Term] = {}

    @classmethod
    def of(cls, program: Program) -> Domain:
        """Return the domain of a traced program."""
        found = list(program.symbols.values())
        texts = spelled(program.sources)
        words = {each.name: texts.get(each.name, each.description) for each in found}
        return cls(program.name, [each.name for each in found], program.guards, words)

    @cached_property
    def facts(self) -> Facts:
        """The guards and ranges as facts to ask with."""
        ranges = {symbol(name): self.guards.ranges.get(name, (0, None)) for name in self.symbols}
        return Facts.make(ranges, [guard.term for guard in self.guards])

    @cached_property
    def _check(self) -> Check:
        return compile_check(self.guards, self.symbols)

    def simplified(self, term: Term) -> Term:
        """Return a term that is equal wherever the guards hold."""
        found = self._simplified.get(term)
        if found is None:
            decided = {
                atom: chosen
                for atom in _choices(term)
                if (chosen := self._chosen(atom)) is not atom
            }
            found = self._simplified[term] = simplify(fold.substitute(term, decided), self.facts)
        return found

    def _chosen(self, atom: Term) -> Term:
        """Return the operand that a ``min`` or ``max`` always equals under the guards; else the
        term itself.
        """
        if atom not in self._simplified:
            same = (
                each
                for each in atom.args
                if ask(self.facts, boolean.eq(atom, each), effort=Effort.CHEAP)
            )
            self._simplified[atom] = next(same, atom)
        return self._simplified[atom]

    def compiled(self, terms: Sequence[Term]) -> Evaluate:
        """Compile terms to one function of the symbols' values, given in order."""
        names = {name: f"v{index}" for index, name in enumerate(self.symbols)}
        used = sorted({s.name for term in terms for s in term.symbols})
        lines = [f"    {names[name]} = values[{self.symbols.index(name)}]" for name in used]
        results = "".join(f"{printing.python(term, names)}, " for term in terms)
        source = "\n".join(["def formulas(values):", *lines, f"    return ({results})", ""])
        return generated_function(source, "formulas", "symshape cost", {})

    def values(
        self, given: Mapping[str, Any], needed: frozenset[str] | None = None
    ) -> tuple[int, ...]:
        """Return the checked values of all symbols in order; 0 for a symbol that is neither given
        nor ``needed``.

        Raises:
            InputError: a symbol is missing or unknown, or a value is no size.
            GuardViolation: the trace does not hold for these values.
        """
        try:
            found = tuple([given[name] for name in self.symbols])
            whole = len(found) == len(given)
        except KeyError:
            whole = False
        if not whole:
            self.check_names(given, needed)
            found = tuple([given.get(name, 0) for name in self.symbols])
        for value in found:
            if type(value) is not int or not 0 <= value < MOST:
                self.check_sizes(given)
        if not whole:
            self.check_known(given)
        elif not self._check.check(found):
            self._violated(found)
        return found

    def check_names(self, given: Mapping[str, Any], needed: frozenset[str] | None = None) -> None:
        """Raise InputError unless ``given`` names symbols of the trace, and all that are ``needed``
        (None: all).
        """
        for name in given:
            self.require(name)
        missing = [
            name
            for name in self.symbols
            if name not in given and (needed is None or name in needed)
        ]
        if missing:
            wanted = ", ".join(self._described(name) for name in missing)
            raise InputError(
                f"{self.name} needs a value for {wanted}: pass "
                f"{', '.join(f'{m}=…' for m in missing)}"
            )

    def _described(self, name: str) -> str:
        return f"{name} ({self.words[name]})" if self.words.get(name) else name

    def require(self, name: str) -> None:
        """Raise InputError if the trace has no symbol of this name."""
        if name not in self.symbols:
            there = (
                ", ".join(self._described(each) for each in self.symbols)
                or "none, all its sizes are constants"
            )
            raise InputError(
                f"the trace of {self.name} has no symbol {name!r}; it has {there} "
                "(name a dimension by dynamic={argument: {dimension: symshape.Dim(name)}} when "
                "tracing)"
            )

    def check_sizes(self, given: Mapping[str, Any]) -> None:
        """Raise InputError unless every value is a size."""
        for name, value in given.items():
            if type(value) is not int or not 0 <= value < MOST:
                raise InputError(
                    f"{name}={value!r} is no size: it must be an int, 0 or more and below 2**62"
                )

    def check_known(self, given: Mapping[str, int]) -> None:
        """Raise GuardViolation where a guard that speaks of the given sizes alone does not hold."""
        wrong = self.broken(given)
        if wrong:
            self.refuse(wrong)

    def broken(self, given: Mapping[str, int]) -> list[str]:
        """Return the guards that speak of the given sizes alone and do not hold for them."""
        return [
            guard.text()
            for guard in self.guards.conditions
            if {s.name for s in guard.term.symbols} <= given.keys()
            and not satisfied(guard.term, given)
        ]

    def _violated(self, values: Sequence[int]) -> None:
        named = dict(zip(self.symbols, values, strict=True))
        self.refuse([violation.text for violation in self.guards.violations(named)])

    def refuse(self, texts: Sequence[str]) -> NoReturn:
        """Raise GuardViolation, with the guards that do not hold."""
        lines = "\n".join(f"  {text}" for text in texts)
        raise GuardViolation(
            f"the trace of {self.name} does not hold for these sizes:\n{lines}", tuple(texts)
        )


def _choices(term: Term) -> Iterator[Term]:
    """Yield the ``min`` and ``max`` in a term, inner ones first."""
    return (part for part in postorder(term) if part.op is Op.MIN or part.op is Op.MAX)
