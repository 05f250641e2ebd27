"""The base class of all nodes of symbolic numbers."""

from __future__ import annotations

import builtins
from typing import Any

from guards.terms import arithmetic, boolean
from guards.terms.term import Term
from symshape.tracing.symbolic.nodes.environment import Environment
from symshape.tracing.symbolic.nodes.texts import named, open_places, wants_value


class Node:
    """The base class of nodes: defaults for their kind and constant value, and no nested or dynamic
    ints.
    """

    __slots__ = ("env", "term")
    env: Environment
    term: Any

    constant = None

    def is_int(self) -> bool:
        return False

    def is_float(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def maybe_as_int(self) -> int | None:
        return None

    def maybe_as_float(self) -> float | None:
        return None

    def maybe_as_bool(self) -> bool | None:
        return None

    def wrap_int(self, value: int) -> Any:
        return self.env.nodes.int_node(arithmetic.const(value))

    def wrap_bool(self, value: bool) -> Any:
        return self.env.nodes.bool_node(boolean.boolean(value))

    def wrap_float(self, value: float) -> Any:
        return self.env.nodes.float_node(float(value))

    def clone(self) -> Any:
        return self

    def _text(self) -> builtins.str:
        return builtins.str(self.term)

    str = __str__ = __repr__ = _text

    def _graph_repr(self) -> builtins.str:
        """Return the text that ``torch.SymInt`` and the like show for themselves."""
        if not wants_value(depth=2):
            return named(self._text(), self)
        places = open_places()
        return repr(self._value()) if places is None else places.mark(self.term)

    def _value(self) -> Any:
        """Return the plain number that the program sees; guarded."""
        raise NotImplementedError

    @property
    def expr(self) -> Any:
        """The number in the form that torch's helpers for sizes read."""
        return Expression(self.env, self.term)

    @property
    def shape_env(self) -> Any:
        return self.env.for_torch

    @property
    def _hint(self) -> Any:
        return None

    @property
    def hint(self) -> Any:
        return self.env.hint(self.term)

    def has_hint(self) -> bool:
        return self.env.hint(self.term) is not None

    def require_hint(self, fallback: Any = None) -> Any:
        hint = self.env.hint(self.term)
        return fallback if hint is None else hint

    maybe_get_hint = hint


def is_int_node(value: Any) -> bool:
    """Return whether ``value`` is a node for an integer."""
    return isinstance(value, Node) and value.is_int()


class Expression:
    """The term of a number, with the attributes of a SymPy expression that torch's helpers ask
    for.
    """

    __slots__ = ("_env", "term")

    is_Symbol = False
    """False for a lone symbol, too: its kind is in ``args``."""

    def __init__(self, env: Environment, term: Any) -> None:
        self._env, self.term = env, term

    @property
    def args(self) -> tuple[Any, ...]:
        """The symbols in the number as torch's own; their kinds distinguish sizes from numbers
        computed from data.
        """
        from symshape.torch_internals.sizes import SymT, make_symbol

        term = self.term
        if isinstance(term, (bool, int, float)):
            return ()
        symbols = term.symbols if isinstance(term, Term) else term.symbols()
        floats = () if isinstance(term, Term) else sorted(term.unbacked())
        return (
            *(
                make_symbol(
                    SymT.UNBACKED_INT if self._env.hint(each) is None else SymT.SIZE, f"_{each}"
                )
                for each in sorted(symbols, key=str)
            ),
            *(make_symbol(SymT.UNBACKED_FLOAT, f"_{name}") for name in floats),
        )

    @property
    def free_symbols(self) -> frozenset[Any]:
        """The symbols in the number."""
        return frozenset(self.args)

    @property
    def is_number(self) -> bool:
        """Return whether the number is a constant."""
        return not self.args

    is_Boolean = is_number

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Expression):
            return False
        one, two = self.term, other.term
        return one is two or (
            not isinstance(one, Term) and not isinstance(two, Term) and bool(one == two)
        )

    def __hash__(self) -> int:
        return hash(self.term)

    def __str__(self) -> str:
        return str(self.term)

    __repr__ = __str__
