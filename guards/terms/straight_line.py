"""Terms as straight-line Python: parts that occur more than once are computed once, in a statement
before.

A term is a graph, and its text a tree: written out, ``x + x // 2`` of itself thirty times over has
2**30 leaves. Here the source is as long as the graph. Small terms are written out as
:func:`guards.terms.printing.python` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from guards.terms.printing import ATOM, COMPARE, Text, python, tree_sizes, writing
from guards.terms.term import Op, Term, children, postorder

DEEPEST = 24
"""A term nested deeper than this is computed in steps: Python's parser has an end."""
LARGEST = 120
"""A term of more nodes (as a tree) than this is computed in steps."""
_DEEP_ENOUGH = 8  # what nests so deep in one text gets a name
_RELATIONS = {Op.EQ: "==", Op.NE: "!=", Op.LE: "<="}


def once(compute: Callable[[], Any]) -> Callable[[], Any]:
    """A function that computes when it is first asked, and remembers: generated source calls it
    ``_once``.
    """
    found: list[Any] = []

    def value() -> Any:
        if not found:
            found.append(compute())
        return found[0]

    return value


class StraightLine:
    """Writes terms into one stretch of straight-line code, which must know :func:`once` as
    ``_once``.

    Args:
        names: the Python name of each symbol; read when a term is written.
        steps: the list that takes the statements; a new one by default.

    Attributes:
        steps: the statements so far, to run before what :meth:`expression` answered is evaluated.
    """

    def __init__(self, names: Mapping[str, str], steps: list[str] | None = None) -> None:
        self._names = names
        self.steps: list[str] = [] if steps is None else steps
        self._write = writing(names, {})
        self._named: dict[Term, str] = {}
        self._sizes: dict[Term, int] = {}

    def small(self, term: Term) -> bool:
        """Return whether a term is written out in place."""
        return term.depth <= 2 or (
            term.depth <= DEEPEST and tree_sizes(term, self._sizes) <= LARGEST
        )

    def expression(self, term: Term, *, reached: bool = True) -> str:
        """An expression for a term; what it needs is appended to ``steps``.

        ``reached`` says that the expression is evaluated whenever the steps are. Otherwise a part
        that may divide by 0 is computed when it is needed, not before.
        """
        found = self._named.get(term)
        if found is not None:
            return found
        if self.small(term):
            return python(term, self._names)
        texts: dict[Term, Text] = {}
        deep: dict[Term, int] = {}
        parts = list(postorder(term, lambda part: part in self._named))
        uses: dict[Term, int] = {}
        for part in parts:
            for child in children(part):
                uses[child] = uses.get(child, 0) + 1
        sure = _sure(term) if reached else set()
        unsafe: set[Term] = set()
        for part in parts:
            texts[part] = self._text(part, texts)
            deep[part] = 1 + max((deep.get(child, 0) for child in children(part)), default=0)
            if _divides(part) or any(child in unsafe for child in children(part)):
                unsafe.add(part)
            if (
                part is not term
                and part.op > Op.SYMBOL
                and (uses[part] > 1 or deep[part] >= _DEEP_ENOUGH)
            ):
                self._name(part, texts[part][0], lazy=part in unsafe and part not in sure)
                deep[part] = 0
        return texts[term][0]

    def name(self, term: Term) -> str:
        """The name of a step that computes a term, which is evaluated whenever the steps are."""
        found = self._named.get(term)
        if found is None:
            self._name(term, self.expression(term), lazy=False)
            found = self._named[term]
        return found

    def _text(self, part: Term, texts: Mapping[Term, Text]) -> Text:
        operands: list[Text] = []
        for child in children(part):
            name = self._named.get(child)
            if name is not None and part.op in _RELATIONS:
                return f"{name} {_RELATIONS[part.op]} 0", COMPARE
            operands.append(texts[child] if name is None else (name, ATOM))
        return self._write(part, operands)

    def _name(self, part: Term, text: str, *, lazy: bool) -> None:
        local = f"t{len(self._named)}"
        self.steps.append(f"{local} = _once(lambda: {text})" if lazy else f"{local} = {text}")
        self._named[part] = f"{local}()" if lazy else local


def _sure(term: Term) -> set[Term]:
    """The parts that are evaluated whenever the term is: not those behind a condition."""
    found: set[Term] = set()
    stack = [term]
    while stack:
        part = stack.pop()
        if part in found:
            continue
        found.add(part)
        first = part.op in (Op.ITE, Op.AND, Op.OR)
        stack += list(children(part))[: 1 if first else None]
    return found


def _divides(term: Term) -> bool:
    return term.op in (Op.FLOORDIV, Op.MOD) and term.args[1].op is not Op.CONST
