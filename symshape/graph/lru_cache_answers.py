"""Answers of a ``functools.lru_cache`` that a program computes itself, from the sizes of each call.

The program runs the wrapped function symbolically, so that one program serves all sizes. Each call
first compares the answer that the memo may hold with the answer that the program computes. At its
end the call fills the memo, as eager would have filled it.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import attrs
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from guards.terms import fold
from guards.terms.term import Term
from symshape.calls.constant_keys import NOTHING
from symshape.calls.variables import Where
from symshape.errors import InternalError
from symshape.graph.float_terms import FloatTerm

NUMBERS = (bool, int, float, complex, str, bytes, type(None))
"""Classes of values that are compared by value."""
CONTAINERS = (tuple, list, torch.Size)
"""Classes of sequences whose items are compared, beside ``dict``."""
_MOST_SIZES = 1024  # combinations of sizes that are remembered for one answer


def answers_of(memo: Any) -> dict[Any, Any] | None:
    """Return the dictionary in which a cached function keeps its answers, by its own keys; None if
    it is not found.
    """
    # in CPython, the dictionary comes before the function; answers may be dictionaries
    found = gc.get_referents(memo)
    inner = getattr(memo, "__wrapped__", None)
    kept = [
        one
        for one, other in pairwise(found)
        if type(one) is dict and other is inner and one is not memo.__dict__
    ]
    return kept[0] if len(kept) == 1 else None


@attrs.frozen
class TensorAnswer:
    """A placeholder for a tensor in an answer."""


class SizeAnswer(tuple[Any, ...]):
    """A placeholder for a ``torch.Size``, which holds no terms."""

    __slots__ = ()


@attrs.frozen
class SizeLeaf:
    """The leaf of a call, and its dimension, that a symbol is read from; ``dim`` is None for an
    integer leaf.
    """

    position: int
    dim: int | None

    def read(self, leaves: Sequence[Any]) -> int | None:
        """Return the integer; None for leaves of another kind."""
        leaf = leaves[self.position] if self.position < len(leaves) else None
        if self.dim is None:
            return leaf if type(leaf) is int else None
        if not isinstance(leaf, torch.Tensor) or leaf.dim() <= self.dim:
            return None
        return leaf.shape[self.dim]


@attrs.frozen
class _Concrete:
    """One call of a memo with plain numbers: its key, its arguments, and the answer that the
    program computes.
    """

    key: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: Any


class MemoAnswer:
    """One answer of a memo, as a formula of the sizes of a call: a question about its leaves, and a
    place to fill.

    Args:
        memo: the function with the memo.
        args: its arguments, with terms for sizes.
        kwargs: its keyword arguments, so too.
        answer: the answer, so too, with a ``TensorAnswer`` for each tensor.
        symbols: by name, where the symbols of these terms are read.
        has_tensor: whether a tensor is in the answer.
    """

    def __init__(
        self,
        memo: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        answer: Any,
        symbols: Mapping[str, SizeLeaf],
        has_tensor: bool,
    ) -> None:
        self.memo, self.has_tensor = memo, has_tensor
        self.name = f"the memo of {memo.__name__}"
        _hits.setdefault(memo, 0)
        self.symbols = dict(sorted(symbols.items()))
        self.last = max(each.position for each in symbols.values())
        self._args, self._kwargs, self._answer = args, dict(kwargs), answer
        self._answers, self._typed = answers_of(memo), memo.cache_parameters()["typed"]
        self._leaves = tuple(self.symbols.values())
        self._known: dict[tuple[int | None, ...], _Concrete | None] = {}
        self._own: dict[Any, tuple[Any, int, int]] = {}

    # -- the question of each call
    def __call__(self, leaves: Sequence[Any]) -> Hashable:
        """Return whether eager would get the answer of the program; None for leaves without these
        sizes.
        """
        values = tuple([each.read(leaves) for each in self._leaves])
        found = self._known.get(values) or (None if None in values else self._concrete(values))
        if found is None or self._answers is None:
            return None
        if found.key not in self._answers:
            return True  # eager would compute it now, in the state that the program was traced in
        if self.has_tensor:
            return self._is_own(found)
        return agrees(_answered(self.memo, found), found.answer)

    def _is_own(self, found: _Concrete) -> bool:
        """Return whether a call of this program made the tensors that the memo keeps, and nobody
        got them since.

        Comparing their data would take too long, and whoever gets them may write to them.
        """
        own = self._own.get(found.key)
        if (
            own is None
            or own[1:] != _given_to_others(self.memo)
            or any(each in _given for each in tensors_in(own[0]))
        ):
            return False
        return _answered(self.memo, found) is own[0]

    def _concrete(self, values: tuple[int | None, ...]) -> _Concrete | None:
        if values in self._known:
            return self._known[values]
        numbers: Any = dict(zip(self.symbols, values, strict=True))
        found: _Concrete | None
        try:
            args = _concrete(self._args, numbers)
            kwargs = {name: _concrete(each, numbers) for name, each in self._kwargs.items()}
            found = _Concrete(
                key_of(args, kwargs, self._typed), args, kwargs, _concrete(self._answer, numbers)
            )
        except (
            ArithmeticError,
            ValueError,
        ):  # sizes of another program: this one's guards exclude them
            found = None
        if len(self._known) >= _MOST_SIZES:
            self._known = {}
        self._known[values] = found
        return found

    def _parts(self) -> tuple[Any, ...]:
        return self._args, tuple(self._kwargs.items()), self._answer, tuple(self.symbols.items())

    def __eq__(self, other: object) -> bool:
        """Return whether two programs ask the same; of tensors nobody knows whether two programs
        compute the same.
        """
        if not isinstance(other, MemoAnswer) or self.has_tensor or other.has_tensor:
            return self is other
        return self.memo is other.memo and _same_parts(self._parts(), other._parts())

    def __hash__(self) -> int:
        return hash((id(self.memo), self.last))

    # -- the place that each call fills
    @property
    def where(self) -> Where:
        """The answer itself: no other variable is at this place."""
        return id(self), "a memo"

    def read(self) -> Any:
        """Return ``NOTHING``: the answer is not read as a variable."""
        return NOTHING

    def write(self, value: Any) -> None:
        """Fill the cache as eager would have, for these values of the symbols.

        Raises:
            InternalError: the function answers something else than the program computed.
        """
        values = tuple(value)
        found = self._known.get(values) or self._concrete(values)
        if found is None or self._answers is None or found.key in self._answers:
            return
        hits = [(each, each.cache_info().hits) for each in list(_hits)]
        made = self.memo(*found.args, **found.kwargs)
        # the function may call other memos, whose answers nobody else gets thereby
        for each, before in hits:
            _hits[each] = _hits.get(each, 0) + each.cache_info().hits - before
        if not agrees(made, found.answer):
            raise InternalError(
                f"{self.memo.__name__}{found.args} answers {made!r}, where the traced program "
                "computed "
                f"{found.answer!r}; this is a defect of symshape, please report it with the "
                "function; call the function once before, or compile without it"
            )
        if self.has_tensor:
            self._own = {key: each for key, each in self._own.items() if key in self._answers}
            self._own[found.key] = made, *_given_to_others(self.memo)


def key_of(args: tuple[Any, ...], kwargs: Mapping[str, Any], typed: bool = False) -> Any:
    """Return the key under which a cached function keeps the answer for these arguments.

    A ``typed`` function's key ends with the types of the arguments.
    """
    types = map(type, (*args, *kwargs.values())) if typed else ()
    if kwargs:
        return (*args, _mark(), *(each for pair in kwargs.items() for each in pair), *types)
    return (
        args[0] if not typed and len(args) == 1 and type(args[0]) in (int, str) else (*args, *types)
    )


@functools.cache
def _mark() -> Any:
    """Return the object between positional and keyword arguments in the keys of all ``lru_cache``
    functions.
    """
    probe = functools.lru_cache(None)(lambda **names: None)
    probe(a=1)
    (key,) = answers_of(probe) or {}
    return key[0]


def _concrete(value: Any, numbers: Mapping[str, int]) -> Any:
    """Replace the terms in a value by plain numbers."""
    kind = type(value)
    if kind is Term:
        found = fold.evaluate(value, numbers)
        return bool(found) if value.is_bool else int(found)
    if kind is FloatTerm:
        return value.evaluate(numbers)
    if kind is SizeAnswer:
        return torch.Size([_concrete(each, numbers) for each in value])
    if kind in CONTAINERS:
        return kind([_concrete(each, numbers) for each in value])
    if kind is dict:
        return {key: _concrete(each, numbers) for key, each in value.items()}
    return value


def agrees(found: Any, expected: Any) -> bool:
    """Return whether an answer is the expected one: of the same classes, equal numbers and texts,
    the same objects.
    """
    kind = type(expected)
    if kind is TensorAnswer:
        return isinstance(found, torch.Tensor)
    if kind in NUMBERS:
        return type(found) is kind and (
            found == expected if kind is int else repr(found) == repr(expected)
        )
    if kind in CONTAINERS:
        return (
            type(found) is kind
            and len(found) == len(expected)
            and all(map(agrees, found, expected))
        )
    if kind is dict:
        return type(found) is dict and agrees(
            [*found, *found.values()], [*expected, *expected.values()]
        )
    return found is expected


def _same_parts(one: Any, other: Any) -> bool:
    """Compare as ``agrees`` does values that hold terms, which compare by identity."""
    if type(one) is FloatTerm:
        return type(other) is FloatTerm and one == other
    if type(one) is SizeLeaf:
        return type(other) is SizeLeaf and one == other
    if type(one) in (tuple, list, SizeAnswer):
        return (
            type(one) is type(other)
            and len(one) == len(other)
            and all(map(_same_parts, one, other))
        )
    if type(one) is dict:
        return type(other) is dict and _same_parts([*one.items()], [*other.items()])
    return agrees(one, other)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in an answer."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if type(value) is dict else value if type(value) in CONTAINERS else ()
    return [each for item in items for each in tensors_in(item)]


def note_given_answer(memo: Any, answer: Any) -> None:
    """Note that a traced program got a real answer from a memo: its tensors may be written to,
    others not.
    """
    _hits[memo] = _hits.get(memo, 0) + 1
    for each in tensors_in(answer):
        _given[each] = True


_given = WeakTensorKeyDictionary()
"""The tensors in answers that traced programs got."""
_hits: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""For each cached function, the number of hits that returned no tensor but those of ``_given``."""


def _answered(memo: Any, found: _Concrete) -> Any:
    """Return the stored answer to a question: it counts as a hit of ours, and as the most recently
    used.
    """
    before = memo.cache_info().hits
    answer = memo(*found.args, **found.kwargs)
    _hits[memo] = _hits.get(memo, 0) + memo.cache_info().hits - before
    return answer


def _given_to_others(memo: Any) -> tuple[int, int]:
    """Return the number of cached answers that others got since the cache was cleared, and the
    number of clearings.

    The second number tells one start from another.
    """
    hits = memo.cache_info().hits
    if hits < _hits.get(memo, 0):  # it was cleared
        _starts[memo] = _starts.get(memo, 0) + 1
        _hits[memo] = hits
    return hits - _hits.get(memo, 0), _starts.get(memo, 0)


_starts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
