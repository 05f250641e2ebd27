"""Error messages for branches on a value that is known only at run time, with the lines that would
settle them.
"""

from __future__ import annotations

import dis
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

from guards.asking.questions import ask
from guards.facts.facts import Facts
from guards.sets.origin import Origin
from guards.terms import arithmetic, boolean, fold, printing
from guards.terms.arithmetic import const
from guards.terms.term import Op, Term, among
from symshape.errors import DataDependentError
from symshape.graph.float_terms import FloatTerm
from symshape.graph.program import Symbol
from symshape.tracing.symbolic.raising_branches import (
    JUMPS,
    asking,
    leads_to_a_branch,
    names_of_comprehensions,
)
from symshape.user_code import is_optimisers, is_torchs, user_frame

_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_SEQUENCES = (list, tuple)
_MOST = 64  # items of a list that are searched for names


class Knowledge(Protocol):
    """The part of an environment that is used here."""

    @property
    def facts(self) -> Facts:
        """The known facts."""

    @property
    def symbols(self) -> Mapping[str, Symbol]:
        """The symbols by name."""

    @property
    def readings(self) -> Mapping[str, str]:
        """By unbacked symbol: how to read it from the result of the op that made it."""

    @property
    def current_op(self) -> str:
        """The op whose rule is asking."""

    @property
    def hints(self) -> Mapping[str, int]:
        """The example's sizes, by the names of their symbols."""

    def origin(self) -> Origin:
        """Return the user's line that is asking."""


def only_value(env: Knowledge, term: Term, held: Iterable[Term] = ()) -> int | None:
    """Return the only possible value of ``term`` under the facts or a condition in ``held``; None
    if there is none.
    """
    interval = env.facts.interval(term)
    if interval.lo is not None and interval.lo == interval.hi:
        return interval.lo
    canonical = env.facts.canonical(term)
    if canonical.op is Op.CONST:
        return canonical.value
    for condition in held:
        if condition.op is Op.EQ:  # to 0
            for rest in (
                arithmetic.sub(term, condition.args[0]),
                arithmetic.add(term, condition.args[0]),
            ):
                if rest.op is Op.CONST:
                    return rest.value
    return None


def error(env: Knowledge, asked: Term | FloatTerm) -> DataDependentError:
    """Return the error for a question that the facts of ``env`` do not settle."""
    if isinstance(asked, FloatTerm):
        names = tuple(sorted(asked.unbacked()))
        return DataDependentError(
            f"the program needs the value of {asked}, which is read from a tensor's data, known "
            "only at run time.\n"
            f"  needed at {env.origin()}\n"
            "  No torch._check can give a float's value: compute with it as a tensor "
            "(torch.where), or pass it to the function as a float argument.",
            symbols=names,
            condition=str(asked),
        )
    unbacked = [
        env.symbols[s.name]
        for s in sorted(asked.symbols, key=lambda s: s.order)
        if not env.symbols[s.name].backed
    ]
    said = fold.substitute(
        asked, _sizes_in_frame(asked)
    )  # what is printed: a size has a name, what it is made of may not
    words = _names_in_frame(list(asked.symbols))
    for symbol in (env.symbols[each.name] for each in asked.symbols):
        if words[symbol.name] == symbol.name and symbol.backed:
            words[symbol.name] = symbol.sources[0].text()
    nameless = [
        each
        for each in unbacked
        if words[each.name] == each.name and among(each.term, list(said.symbols))
    ]
    called = {
        symbol.name: "value" if len(nameless) == 1 else f"value{i}"
        for i, symbol in enumerate(nameless)
    }
    words.update(
        (symbol.name, called[symbol.name] + env.readings.get(symbol.name, ""))
        for symbol in nameless
    )
    conditions = [(asked, said), (boolean.not_(asked), boolean.not_(said))] if asked.is_bool else []
    suggestions = tuple(
        f"torch._check({printing.text(shown, words)})"
        for condition, shown in conditions
        if _settles(env, condition, asked)
    )
    question = f"whether {asked}" if asked.is_bool else f"the value of {asked}"
    lines = [f"the program needs to know {question}, but that is known only at run time."]
    lines.append(f"  branched at {env.origin()}")
    for symbol in unbacked:
        what = f", {symbol.description}," if symbol.description else ""
        born = (
            f"was born at {symbol.birth}" if symbol.birth is not None else "was declared unbacked"
        )
        interval = env.facts.interval(symbol.term)
        lines.append(
            f"  {symbol.name}{what} {born}; known: "
            f"{_range_text(symbol.name, interval.lo, interval.hi)}"
        )
    for symbol in nameless if suggestions or not asked.is_bool else ():
        where = f" at {symbol.birth}" if symbol.birth is not None else ""
        lines.append(
            f"  Your program has no name for {symbol.name} there. Split that line{where}: write"
        )
        read = "" if env.readings.get(symbol.name) else ".item()"
        besides = (
            " (.item() if that is a tensor)"
            if read and symbol.description.startswith("the bool")
            else ""
        )
        name = called[symbol.name]
        lines.append(
            f"    {name} = (...){read}  # {_made(symbol)}{besides}, and use {name} from there on"
        )
    lines += _advice(env, said, words, suggestions)
    return DataDependentError(
        "\n".join(lines),
        tuple(symbol.name for symbol in unbacked),
        printing.text(asked),
        suggestions,
    )


def _advice(
    env: Knowledge, asked: Term, words: Mapping[str, str], suggestions: Sequence[str]
) -> list[str]:
    """Return the lines of advice: the checks that would settle the question, or how to state a
    value.
    """
    if not suggestions:
        named = printing.text(asked, words)
        always = (
            f"  If it is always the same, say so before that line: torch._check({named} == "
            "<its value>)"
        )
        return [] if asked.is_bool else [always]
    lines = [
        "  If you know the answer, say so before that line, one of:",
        *(f"    {each}" for each in suggestions),
    ]
    if not env.origin().op:  # the program asks, not an op
        either = (
            "compute both and choose: torch.where(condition, this, that), the condition a tensor."
        )
        lines.append(f"  If it may be either, {either}")
    return lines


def _made(symbol: Symbol) -> str:
    """Return a description of the value that a symbol is read from."""
    return symbol.description.removeprefix("a size of ") or "the value"


def _settles(env: Knowledge, condition: Term, asked: Term) -> bool:
    """Return whether ``condition`` can be assumed and decides ``asked``; only then is it
    suggested.
    """
    if ask(env.facts, condition) is False:
        return False
    facts = env.facts.assume(condition)
    return not facts.contradictory and ask(facts, asked) is not None


def _range_text(name: str, low: int | None, high: int | None) -> str:
    if low is None and high is None:
        return "nothing"
    return f"{'' if low is None else f'{low} <= '}{name}{'' if high is None else f' <= {high}'}"


def _names_in_frame(symbols: list[Term]) -> dict[str, str]:
    """Return the user's names of symbols: a local variable that holds one, or the size of a local
    tensor.
    """
    found: dict[str, str] = {}
    variables = [each for each in _locals().items() if each[0].isidentifier()]
    # items of lists come last
    for name, value in sorted(variables, key=lambda each: type(each[1]) in _SEQUENCES):
        for text, term in _readings(name, value):
            if among(term, symbols):
                found.setdefault(term.name, text)
    return {symbol.name: found.get(symbol.name, symbol.name) for symbol in symbols}


def _sizes_in_frame(asked: Term) -> dict[Term, Term]:
    """Return the sizes of local tensors that share symbols with a question, with symbols named like
    ``x.size(0)``.
    """
    symbols = list(asked.symbols)
    found: dict[Term, Term] = {}
    for name, value in _locals().items():
        if not name.isidentifier() or not isinstance(value, torch.Tensor):
            continue
        for text, term in _readings(name, value):
            if term.op is not Op.SYMBOL and any(among(each, symbols) for each in term.symbols):
                found.setdefault(term, arithmetic.symbol(text))
    return found


def _locals() -> Mapping[str, Any]:
    """Return the variables of the asking function, without those of comprehensions, which other
    lines cannot read.
    """
    frame = user_frame()
    while frame is not None and frame.f_code.co_name in _COMPREHENSIONS:
        around, code = frame.f_back, frame.f_code
        outer = code.co_qualname.removesuffix(f".<locals>.{code.co_name}")
        while around is not None and (around.f_code.co_qualname, around.f_code.co_filename) != (
            outer,
            code.co_filename,
        ):
            around = around.f_back
        frame = around
    if frame is None:
        return {}
    hidden = names_of_comprehensions(frame)
    return (
        {name: value for name, value in frame.f_locals.items() if name not in hidden}
        if hidden
        else frame.f_locals
    )


def _readings(name: str, value: Any) -> Iterator[tuple[str, Term]]:
    if isinstance(value, torch.SymInt):
        term = getattr(value.node, "term", None)
        if isinstance(term, Term):
            yield name, term
    elif isinstance(value, torch.SymBool):  # an integer read from a bool is 1 if it is true
        term = getattr(value.node, "term", None)
        symbols = term.symbols if isinstance(term, Term) else ()
        yield from ((name, symbol) for symbol in symbols if term is boolean.eq(symbol, 1))
    elif isinstance(value, torch.Tensor):
        spec = getattr(value, "_spec", None)
        for d, size in enumerate(spec.sizes if spec is not None else ()):
            term = getattr(size, "term", None)
            if isinstance(term, Term):
                yield f"{name}.size({d})", term
    elif type(value) in _SEQUENCES:
        for i, each in enumerate(value[:_MOST]):
            yield from _readings(f"{name}[{i}]", each)


# -- Assumed answers to torch's own questions about sizes that depend on data: is a tensor empty, is
# a dimension 1?
#
# ``mask.nonzero().squeeze()`` asks that, and so does the code that lays out a result. The usual
# answer is the one for two or more elements. It is assumed, and asserted when the graph runs; if
# it is wrong, the function runs eagerly. A question that the program itself asks has no usual
# answer, because the program expects both.
#
# A check of a distribution's constraint on its arguments (``PositiveDefinite``: is the matrix
# symmetric?) has a usual answer too: the constraint holds.
_SEVERAL = 2
_CONSTRAINTS = os.path.join(os.path.dirname(torch.__file__), "distributions", "constraints.py")
_TESTS = (*JUMPS, "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "CONTAINS_OP")


def usual(env: Knowledge, condition: Term) -> bool | None:
    """Return the truth of ``condition`` if all data-dependent sizes are 2 or more and torch asks;
    None if open.

    Where other sizes leave it open, they are taken to be the example's.
    """
    if not env.current_op and not _torch_asks():
        return None
    facts = env.facts
    for symbol in sorted(condition.symbols, key=lambda each: each.order):
        several = facts.assume(boolean.ge(symbol, _SEVERAL))
        if not several.contradictory:
            facts = several
    answer = ask(facts, condition)
    if answer is None and (known := _hinted(env, condition)):
        answer = ask(facts, fold.substitute(condition, known))
    return answer


def _hinted(env: Knowledge, condition: Term) -> dict[Term, Term]:
    """Return the example's size of each symbol of a condition that has one."""
    return {
        symbol: const(env.hints[symbol.name])
        for symbol in condition.symbols
        if symbol.name in env.hints
    }


def fulfilled(condition: Term) -> bool | None:
    """Return the truth of ``condition`` for valid arguments, if a constraint of
    ``torch.distributions`` asks.
    """
    frame = asking()
    if frame is None or frame.f_code.co_filename != _CONSTRAINTS:
        return None
    return bool(fold.evaluate(condition, {symbol.name: 1 for symbol in condition.symbols}))


def _torch_asks() -> bool:
    """Return whether torch asks for a truth, in Python or in an op's C++, and not a branch of the
    program.
    """
    frame = asking()
    if frame is None:
        return False
    code = frame.f_code
    if is_torchs(code.co_filename):
        return not is_optimisers(code.co_filename)
    asks = (each for each in dis.get_instructions(code) if each.offset == frame.f_lasti)
    return not any(each.opname in _TESTS or leads_to_a_branch(each) for each in asks)
