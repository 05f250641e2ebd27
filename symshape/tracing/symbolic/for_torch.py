"""The interface of ``node.shape_env`` that torch uses: the few questions that its own code asks an
environment.
"""

from __future__ import annotations

import sys
from typing import Any

from guards.terms import boolean
from guards.terms.term import Op, Term
from symshape.torch_internals import questions
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.environment import Environment
from symshape.tracing.symbolic.nodes.int_node import IntNode


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
