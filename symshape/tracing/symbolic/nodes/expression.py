"""The expression of a number, which torch's helpers for sizes search for symbols."""

from __future__ import annotations

from typing import Any

from guards.terms.term import Term
from symshape.tracing.symbolic.nodes.environment import Environment


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
