"""The symbols of a graph of Dynamo's: where each is read, and sizes, strides and offsets in terms
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import torch

from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from guards.sets.sources import IntArg, Size, Source, StorageOffset, Stride
from guards.terms import arithmetic, boolean, division, extremes
from guards.terms.term import Op, Term
from meta_fns import TensorSpec
from symshape.dims import Policy
from symshape.errors import Reason, UnsupportedError
from symshape.graph.program import Slot, Symbol
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.user_code import location_in, origin_of


# -- Conversion of sizes in torch's own shape environment to terms.
#
# Torch holds a symbolic size as an expression of another library. Its classes are identified by
# name, so that the library need not be imported. (Names checked on torch 2.11 to 2.13.)
def _power(base: Term, exponent: Term) -> Term:
    return arithmetic.prod([base] * exponent.value)


_FUNCTIONS: Mapping[str, Callable[..., Term]] = {
    "Add": lambda *terms: arithmetic.total(terms),
    "Mul": lambda *terms: arithmetic.prod(terms),
    "FloorDiv": division.floordiv,
    "CleanDiv": division.floordiv,
    "Mod": division.mod,
    "PythonMod": division.mod,
    "ModularIndexing": lambda base, divisor, modulus: division.mod(
        division.floordiv(base, divisor), modulus
    ),
    "Max": extremes.maximum,
    "Min": extremes.minimum,
    "Identity": lambda term: term,
    "Where": boolean.ite,
    "Equality": boolean.eq,
    "Unequality": boolean.ne,
    "LessThan": boolean.le,
    "StrictLessThan": boolean.lt,
    "GreaterThan": boolean.ge,
    "StrictGreaterThan": boolean.gt,
    "And": lambda *terms: reduce(boolean.and_, terms),
    "Or": lambda *terms: reduce(boolean.or_, terms),
    "Not": boolean.not_,
}
"""The functions on terms for the classes of torch's expressions, by class name."""
_ROUNDED: Mapping[str, Callable[[Term, Term], Term]] = {
    "CeilToInt": lambda a, b: division.floordiv(
        arithmetic.add(a, arithmetic.sub(b, arithmetic.const(1))), b
    ),
    "FloorToInt": division.floordiv,
}
"""Quotients of integers that torch's Python code rounds, for divisors above 0, as exact integer
divisions.
"""
_CONSTANTS = {"BooleanTrue": boolean.TRUE, "BooleanFalse": boolean.FALSE}


def term_of(expression: Any, known: dict[Any, Term]) -> Term:
    """Return the term of an expression of torch's.

    Args:
        expression: an expression of integers, or a condition on them.
        known: terms by expression, at least those of symbols; new ones are added.

    Raises:
        UnsupportedError: a symbol is not known, or there is no term for a function.
    """
    found = known.get(expression)
    if found is None:
        found = known[expression] = _made(expression, known)
    return found


def _made(expression: Any, known: dict[Any, Term]) -> Term:
    kind = type(expression).__name__
    if expression.is_Integer:
        return arithmetic.const(int(expression))
    if kind in _CONSTANTS:
        return _CONSTANTS[kind]
    if expression.is_Symbol:
        raise UnsupportedError(
            f"no argument of the graph has the size {expression}", reason=Reason.DYNAMO_GRAPH
        )
    if kind == "Piecewise":
        return _piecewise(expression.args, known)
    if kind in _ROUNDED and type(expression.args[0]).__name__ == "IntTrueDiv":
        number, divisor = expression.args[0].args
        if divisor.is_Integer and int(divisor) > 0:
            return _ROUNDED[kind](term_of(number, known), term_of(divisor, known))
    powers = (
        kind in ("Pow", "PowByNatural")
        and expression.args[1].is_Integer
        and int(expression.args[1]) >= 0
    )
    function = _power if powers else _FUNCTIONS.get(kind)
    if function is None:
        raise UnsupportedError(
            f"symshape has no formula for the size {expression} ({kind})",
            reason=Reason.DYNAMO_GRAPH,
        )
    return function(*[term_of(part, known) for part in expression.args])


def _piecewise(pairs: Sequence[Any], known: dict[Any, Term]) -> Term:
    """Return the term of a piecewise expression: the first piece whose condition holds; the last
    one's must be true.
    """
    *others, last = pairs
    if type(last.args[1]).__name__ != "BooleanTrue":
        raise UnsupportedError(
            "symshape has no formula for a size that is not defined for all values",
            reason=Reason.DYNAMO_GRAPH,
        )
    term = term_of(last.args[0], known)
    for expression, condition in (pair.args for pair in reversed(others)):
        term = boolean.ite(term_of(condition, known), term_of(expression, known), term)
    return term


class Sizes:
    """The sizes of one graph's arguments as terms.

    Args:
        arguments: the graph's arguments: fake tensors, symbolic sizes, constants.
        paths: their names.

    Attributes:
        env: makes symbolic sizes, for specs.
        slots: the integers to read from a call: one for each symbol, whichever arguments it occurs
            in.
        ranges: by symbol, the range that Dynamo's guards give.
    """

    def __init__(self, arguments: Sequence[Any], paths: Sequence[str]) -> None:
        self.env = ShapeEnv()
        self.slots: list[Slot] = []
        self.ranges: dict[str, tuple[int | None, int | None]] = {}
        self._terms: dict[Any, Term] = {}
        readable = list(_readable(arguments, paths))
        self._dimensions: dict[Any, Size] = {}
        for number, source in readable:
            if isinstance(source, Size):
                self._dimensions.setdefault(number.node.expr, source)
        self._assumed = [*getattr(readable[0][0].node.shape_env, "guards", ())] if readable else []
        for number, source in readable:
            if number.node.expr.is_Symbol:
                self._read(number, source)
        # an expression: known if its parts are, else read as a whole
        for number, source in readable:
            try:
                self.term(number)
            except UnsupportedError:
                self._read(number, source)
        for number, source in readable:  # padding asks whether a symbol is the size of a tensor
            read = self._terms[number.node.expr]
            if (
                isinstance(source, Size)
                and read.op is Op.SYMBOL
                and source not in self.env.symbols[read.name].sources
            ):
                self.env.symbols.add_source(read.name, source)

    def _read(self, number: torch.SymInt, source: Source) -> None:
        """Record that a size is read from here, unless it is read from elsewhere already.

        Raises:
            UnsupportedError: it is no integer.
        """
        node = number.node
        if node.expr in self._terms:
            return
        name = str(node.expr) if node.expr.is_Symbol else f"size{len(self.slots)}"
        hint = node.hint if node.has_hint() else None
        # the lengths of all rows: nothing can be computed with it
        if isinstance(hint, torch.SymInt):
            raise UnsupportedError(
                f"{source.text()} is the ragged size of a nested tensor, which is no integer",
                reason=Reason.DYNAMO_GRAPH,
            )
        low, high = _range_of(node)
        hint = 2 if hint is None else int(hint)
        dimension = self._dimensions.get(node.expr)
        if dimension is None:
            symbol = self.env.new_integer(name, hint, source, Policy.AUTO)
        else:
            symbol = self.env.new_symbol(name, hint, dimension, Policy.AUTO)
            if source != dimension:
                self.env.symbols.add_source(name, source)
        self.env.facts = self.env.facts.with_symbol(symbol.term, low, high)
        self._terms[node.expr] = symbol.term
        self.ranges[name] = low, high
        self.slots.append(Slot(source, symbol.term))

    def term(self, number: Any) -> Term:
        """Return the term of a symbolic number or condition.

        Raises:
            UnsupportedError: there is none.
        """
        return term_of(number.node.expr, self._terms)

    def guards(self, demanded: Sequence[Guard] = ()) -> GuardSet:
        """Return Dynamo's guards on the symbols that are read from a call; none need be checked
        again.

        ``demanded`` are further conditions to check in each call. Torch's assumptions on sizes that
        depend on data are left out, and so are guards without a term.
        """
        found: list[Guard] = []
        for each in self._assumed:
            if not getattr(each, "size_oblivious", False):
                try:
                    term = term_of(each.expr, self._terms)
                except UnsupportedError:
                    continue
                if term is not boolean.TRUE:
                    found.append(Guard(term))
        return GuardSet((*found, *demanded), self.ranges)

    def bind(self, number: Any, node: torch.fx.Node) -> str:
        """Return the name of a number that only a node of the graph determines, and record its
        symbol.
        """
        expression = number.node.expr
        if not expression.is_Symbol:
            raise UnsupportedError(
                f"{node.target} returns {expression}, which is not a plain size",
                reason=Reason.DYNAMO_GRAPH,
            )
        name = str(expression)
        self._terms[expression] = term = arithmetic.symbol(name)
        low, high = _range_of(number.node)
        self.env.facts = self.env.facts.with_symbol(term, low, high)
        limits = ((boolean.ge, low), (boolean.le, high))
        bounds = tuple(relation(term, limit) for relation, limit in limits if limit is not None)
        birth, words = (
            origin_of(location_in(node.stack_trace), str(node.target)),
            f"a number that {node.target} tells",
        )
        self.env.symbols.add(Symbol(term, None, (), Policy.UNBACKED, birth, words, bounds))
        return name

    def spec(self, fake: torch.Tensor) -> TensorSpec:
        """Return the spec of a tensor with our sizes; a size that no argument determines is a new
        symbol.
        """
        of = TensorSpec.of(fake)
        sizes, strides = tuple(map(self._size, of.sizes)), tuple(map(self._size, of.strides))
        return of.with_(sizes=sizes, strides=strides, storage_offset=self._size(of.storage_offset))

    def _size(self, size: Any) -> Any:
        if not isinstance(size, torch.SymInt):
            return size
        try:
            return self.env.nodes.size(self.term(size))
        except UnsupportedError:
            return self._untold(size.node.expr)

    def _untold(self, expression: Any) -> Any:
        """Return a symbol for a size that is only shown, in the description of a tensor."""
        name = str(expression) if expression.is_Symbol else f"untold{len(self.env.symbols)}"
        if name not in self.env.symbols:
            description = f"{expression}, which no argument of the graph tells"
            self.env.symbols.add(
                Symbol(arithmetic.symbol(name), None, (), Policy.UNBACKED, None, description)
            )
        return self.env.nodes.int_node(arithmetic.symbol(name))


def _readable(
    arguments: Sequence[Any], paths: Sequence[str]
) -> Iterator[tuple[torch.SymInt, Source]]:
    """Yield each symbolic size of the arguments with its place, the cheapest to read first."""
    for number, path in zip(arguments, paths, strict=True):
        if isinstance(number, torch.SymInt):
            yield number, IntArg(path)
    tensors = [
        (each, path)
        for each, path in zip(arguments, paths, strict=True)
        if isinstance(each, torch.Tensor)
    ]
    for tensor, path in tensors:
        shape: Any = tensor.shape
        yield from (
            (size, Size(path, d)) for d, size in enumerate(shape) if isinstance(size, torch.SymInt)
        )
    for tensor, path in tensors:
        if tensor.layout is torch.strided:
            strides: Any = tensor.stride()
            yield from (
                (step, Stride(path, d))
                for d, step in enumerate(strides)
                if isinstance(step, torch.SymInt)
            )
            offset: Any = tensor.storage_offset()
            if isinstance(offset, torch.SymInt):
                yield offset, StorageOffset(path)


def _range_of(node: Any) -> tuple[int | None, int | None]:
    """Return the range that Dynamo has for a symbol; each call that its guards let through
    satisfies it.
    """
    known = getattr(node.shape_env, "var_to_range", {}).get(node.expr)
    if known is None:
        return None, None
    return _bound(known.lower), _bound(known.upper)


def _bound(bound: Any) -> int | None:
    return int(bound) if bound.is_Integer and abs(int(bound)) < 2**62 else None


def place_of(path: Sequence[Any], val: Any) -> tuple[str, int, int, Any]:
    """Return what torch's key path locates: the kind of number, its output, its dimension, and the
    number.

    Source: torch/fx/experimental/symbolic_shapes.py, ``compute_unbacked_bindings`` (checked on 2.11
    to 2.13).

    Raises:
        UnsupportedError: it is no size of an output, and not the result itself.
    """
    kinds = [type(key).__name__ for key in path]
    if not kinds:
        return ("float" if isinstance(val, torch.SymFloat) else "item"), 0, 0, val
    output = 0
    if kinds[0] == "SequenceKey" and isinstance(val, (tuple, list)):
        output, val, path, kinds = path[0].idx, val[path[0].idx], path[1:], kinds[1:]
    if kinds != ["CallMethodKey", "SequenceKey"] or path[0].name != "size":
        raise UnsupportedError(
            "a number in the graph depends on data in a way that cannot be read off a result",
            reason=Reason.DYNAMO_GRAPH,
        )
    return "size", output, path[1].idx, val.shape[path[1].idx]
