"""Assumed answers to torch's own questions about sizes that depend on data: is a tensor empty, is a
dimension 1?

``mask.nonzero().squeeze()`` asks that, and so does the code that lays out a result.  The usual
answer is the one for two or more elements.  It is assumed, and asserted when the graph runs; if it
is wrong, the function runs eagerly.  A question that the program itself asks has no usual answer,
because the program expects both.

A check of a distribution's constraint on its arguments (``PositiveDefinite``: is the matrix
symmetric?) has a usual answer too: the constraint holds.
"""

from __future__ import annotations

import dis
import os
from collections.abc import Mapping
from typing import Protocol

import torch

from guards.asking.questions import ask
from guards.facts.facts import Facts
from guards.terms import boolean, fold
from guards.terms.arithmetic import const
from guards.terms.term import Term
from symshape.tracing.symbolic.raising_branches import JUMPS, asking, leads_to_a_branch
from symshape.user_code import is_optimisers, is_torchs

_SEVERAL = 2
_CONSTRAINTS = os.path.join(os.path.dirname(torch.__file__), "distributions", "constraints.py")
_TESTS = (*JUMPS, "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "CONTAINS_OP")


class Known(Protocol):
    """The part of an environment that is used here."""

    @property
    def facts(self) -> Facts:
        """The known facts."""

    @property
    def current_op(self) -> str:
        """The op whose rule is asking."""

    @property
    def hints(self) -> Mapping[str, int]:
        """The example's sizes, by the names of their symbols."""


def usual(env: Known, condition: Term) -> bool | None:
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


def _hinted(env: Known, condition: Term) -> dict[Term, Term]:
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
