"""Check after a trace that dimensions declared dynamic have stayed dynamic."""

from __future__ import annotations

from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.facts.facts import Facts
from guards.terms import boolean
from symshape.dims import Policy
from symshape.errors import ConstraintViolation
from symshape.tracing.symbolic.env import ShapeEnv


def check_promises(env: ShapeEnv) -> None:
    """Raise an error if the trace fixed a symbol that was declared dynamic to one value.

    Raises:
        ConstraintViolation: with the declared dimension, the value, and the guards that fix it.
    """
    for symbol in env.symbols.values():
        if symbol.policy is not Policy.DYNAMIC or symbol.hint is None:
            continue
        interval = env.facts.interval(symbol.term)
        fixed = boolean.eq(symbol.term, symbol.hint)
        if not (
            interval.lo == interval.hi is not None
            or ask(env.facts, fixed, effort=Effort.CHEAP, only=True)
        ):
            continue
        declared = [g for g in env.guards if g.origin is not None and g.origin.rule == "declared"]
        own = Facts().with_symbol(symbol.term, 0, None)
        for guard in declared:
            if guard.term.symbols == {symbol.term}:
                own = own.assume(guard.term)
        if ask(own, fixed, effort=Effort.CHEAP, only=True):
            continue  # the caller's own Dim leaves one value
        chain = [g for g in env.guards if symbol.term in g.term.symbols and g not in declared]
        lines = "\n".join(f"  {guard.term}   from {guard.origin}" for guard in chain)
        source = symbol.sources[0].text()
        raise ConstraintViolation(
            f"{source} was declared dynamic ({symbol.name}), but the program fixes it to "
            f"{symbol.hint}:\n{lines}\n"
            f"Either declare it static (dynamic={{...: None}}), allow specialisation "
            "(Policy.AUTO), or change that line.",
            symbol=symbol.name,
            source=source,
        )
