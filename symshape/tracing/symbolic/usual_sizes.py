"""Questions of torch's own about sizes that only data tell: whether something is empty, or has a single element.

``mask.nonzero().squeeze()`` asks that, and what lays out a result does.  The usual answer is that of two elements and
more.  It is presumed, and asserted when the graph runs; where it does not hold, the function runs in eager.  A question
that the program itself asks has no usual answer: it was put there because both happen.

What a distribution's constraint asks of its arguments on its way (``PositiveDefinite``: are they symmetric at all?) has
one, too: that they fulfil it.
"""

from __future__ import annotations

import dis
import os
from typing import Protocol

import torch

from guards.asking.questions import ask
from guards.facts.facts import Facts
from guards.terms import boolean, fold
from guards.terms.term import Term
from symshape.tracing.symbolic.raising_branches import JUMPS, asking, leads_to_a_branch
from symshape.user_code import is_optimisers, is_torchs

_SEVERAL = 2
_CONSTRAINTS = os.path.join(os.path.dirname(torch.__file__), "distributions", "constraints.py")
_TESTS = (*JUMPS, "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "CONTAINS_OP")


class Known(Protocol):
    """What is needed of an environment here."""

    @property
    def facts(self) -> Facts:
        """What is known."""

    @property
    def current_op(self) -> str:
        """The op whose rule is asking."""


def usual(env: Known, condition: Term) -> bool | None:
    """What holds where each size that only data tell is 2 or more, if torch's code is asking and it follows."""
    if not env.current_op and not _torch_asks():
        return None
    facts = env.facts
    for symbol in sorted(condition.symbols, key=lambda each: each.order):
        several = facts.assume(boolean.ge(symbol, _SEVERAL))
        if not several.contradictory:
            facts = several
    return ask(facts, condition)


def fulfilled(condition: Term) -> bool | None:
    """What holds where arguments are as they must be, if a constraint of ``torch.distributions`` asks for truths."""
    frame = asking()
    if frame is None or frame.f_code.co_filename != _CONSTRAINTS:
        return None
    return bool(fold.evaluate(condition, {symbol.name: 1 for symbol in condition.symbols}))


def _torch_asks() -> bool:
    """Whether a truth is asked for by torch, in Python or in an op's C++, and not by a branch of the program."""
    frame = asking()
    if frame is None:
        return False
    code = frame.f_code
    if is_torchs(code.co_filename):
        return not is_optimisers(code.co_filename)
    asks = (each for each in dis.get_instructions(code) if each.offset == frame.f_lasti)
    return not any(each.opname in _TESTS or leads_to_a_branch(each) for each in asks)
