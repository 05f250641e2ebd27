"""Functions with an ``lru_cache`` (here: a memo): the results that they store, and the removal of a
trace's results.

A trace may fill a cache with symbolic tensors, which must not be found there afterwards.  The
results from the trace are removed, and the earlier ones stay.  Tensors and plain values are
computed again outside of a trace (see ``tracing/memos.py``).  A trace that makes an
object is refused: the program may find that the object has changed, or compare its identity.  Reads
of objects that were in the cache before are compared like reads of any object.
"""

from __future__ import annotations

import functools
import gc
import operator
import sys
import types
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import attrs
import torch

from symshape.graph.lru_cache_answers import answers_of
from symshape.tracing.state.instrument import trusted_code as trusted
from symshape.tracing.state.record.places import PLAIN, Answer
from symshape.user_code import is_library

_LASTING = (
    *PLAIN,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
    torch.Tensor,
    type,
    types.FunctionType,
    types.ModuleType,
)
"""The types of results that are the same when computed again; each call of a graph makes the
tensors again.
"""


SAME = (*PLAIN, torch.dtype, torch.device, torch.layout, torch.memory_format)
"""The types of values that are the same in every call."""


@attrs.frozen(eq=False)
class Missing:
    """One result that an ``lru_cache`` function computed in a trace.

    Attributes:
        memo: the function with the cache.
        name: the function's name, for people.
        key: the key of the result in the cache.
        result: the result, in the trace.
        of_library: whether the function is a library's.
    """

    memo: Any
    name: str
    key: Any
    result: Any
    of_library: bool

    @property
    def sizes(self) -> list[torch.SymInt]:
        """Return the symbolic sizes among the arguments."""
        return [each for each in _flat(self.key) if type(each) is torch.SymInt]

    @property
    def has_tensor(self) -> bool:
        """Return whether a tensor is in the result."""
        return any(isinstance(each, torch.Tensor) for each in _flat(self.result))

    @property
    def must_be_made(self) -> bool:
        """Return whether no new trace may compute the result: it has a tensor, or its key a
        symbolic float or bool.
        """
        return self.has_tensor or any(
            type(each) in (torch.SymFloat, torch.SymBool) for each in _flat(self.key)
        )

    @property
    def kind(self) -> str:
        """Return a noun for the result, for people."""
        return "a tensor" if self.has_tensor else "an answer"

    def arguments(
        self, is_kept: Callable[[Any], bool]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Return the function's arguments, read from the cache key; None if no other call can have
        the same ones.
        """
        given, named = self._given()
        if not all(isinstance(each, SAME) or is_kept(each) for each in _flat((*given, *named))):
            return None
        return given, dict(zip(named[::2], named[1::2], strict=True))

    def _given(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the positional arguments, and the names and values of the others, without the
        types of a typed key.
        """
        key = self._plain_key()
        mark = next((i for i, each in enumerate(key) if type(each) is object), None)
        typed = self.memo.cache_parameters()["typed"]
        if mark is None:
            return (key[: len(key) // 2] if typed else key), ()
        # mark types, and one a name
        end = mark + 1 + (len(key) - 2 * mark - 1) // 3 * 2 if typed else len(key)
        return key[:mark], key[mark + 1 : end]

    @property
    def is_there(self) -> bool:
        """Return whether the cache has a result for the symbolic sizes' current values, which are
        another key.
        """
        key, answers = self._plain_key(), answers_of(self.memo) or {}
        if self.memo.cache_parameters()["typed"]:  # the types in the key are of symbolic sizes
            given, named = self._given()
            types = map(type, (*given, *named[1::2]))
            key = *key[: len(key) - len(given) - len(named) // 2], *types
        one = key[0] if len(key) == 1 else None
        return bool(self.sizes) and (one if type(one) is int else key) in answers

    def _plain_key(self) -> tuple[Any, ...]:
        parts = self.key if type(self.key) is tuple else (self.key,)
        return _plain(parts)  # type: ignore[no-any-return]

    def as_expected(self, made: Any) -> bool:
        """Return whether a new result is of the same kinds as the trace's: types, and dtypes and
        devices of tensors.
        """
        then, now = _flat(self.result), _flat(made)
        return len(then) == len(now) and all(map(_alike, then, now))


def missing_in(memo: Any, name: str, before: tuple[Any, ...]) -> list[Missing]:
    """Return the results in a cache that were not there before."""
    answers, known = answers_of(memo) or {}, set(map(id, before))
    pairs = zip(answers, results_of(memo, answers), strict=True)
    of_library = _is_of_library(memo)
    return [
        Missing(memo, name, key, result, of_library)
        for key, result in pairs
        if id(key) not in known
    ]


def is_watched(memo: Any) -> bool:
    """Return whether a cache's results can be read, and are computed by code that is recorded."""
    code = getattr(memo.__wrapped__, "__code__", None)
    trusted_code = _is_of_library(memo) and (code is None or trusted.is_trusted(code.co_filename))
    return answers_of(memo) is not None and not trusted_code


def filled(memo: Any, grows: bool) -> Answer:
    """Return a place that changes when a cache is cleared, loses a result, or gains one (unless it
    ``grows``).

    The statistics alone would not do: after it was cleared, the cache may have computed as many
    other results.
    """
    answers = answers_of(memo)
    if answers is None:
        question: Any = lambda: repr(memo.cache_info()._replace(hits=0))  # noqa: E731
    else:  # a bounded cache has a new object for each new result
        question = functools.partial(_keeps, answers, tuple(answers.values()), grows)
    return Answer(question, question(), f"the memo of {memo.__name__}")


def _keeps(answers: dict[Any, Any], before: tuple[Any, ...], grows: bool) -> bool:
    more = len(answers) - len(before)
    return (more == 0 or (grows and more > 0)) and all(
        map(operator.is_, list(answers.values()), before)
    )


def objects_of(memo: Any) -> list[Any]:
    """Return the results of a user's cached function that may change; a library's are assumed never
    to change.
    """
    answers = None if _is_of_library(memo) else answers_of(memo)
    return (
        []
        if answers is None
        else [each for each in results_of(memo, answers) if not isinstance(each, PLAIN)]
    )


def _is_of_library(memo: Any) -> bool:
    """Return whether a cached function is a library's, by its file, or by its module's if it has
    none.
    """
    inner = memo.__wrapped__
    if isinstance(inner, types.BuiltinFunctionType):  # to which any code may have added a cache
        return False
    code = getattr(inner, "__code__", None)
    file = (
        code.co_filename
        if code is not None
        else getattr(sys.modules.get(getattr(inner, "__module__", "")), "__file__", None)
    )
    return file is not None and is_library(file)


def take_back(memo: Any, before: tuple[Any, ...]) -> str:
    """Remove the results that a trace added to a cache.  Return a result that cannot be made again,
    in words, or "".

    ``before`` are the keys of the cache when the trace began.  A key may be symbolic, and is not
    compared.
    """
    answers = answers_of(memo)
    if answers is None:
        memo.cache_clear()
        return ""
    known = set(map(id, before))
    results = results_of(memo, answers)
    made = [
        each
        for key, each in zip(answers, results, strict=True)
        if id(key) not in known and not _lasts(each)
    ]
    if not any(id(key) in known for key in answers):
        memo.cache_clear()
    else:  # the earlier results must stay
        stays = [(key, each) for key, each in answers.items() if id(key) in known]
        answers.clear()
        answers.update(stays)
    return f"a {type(made[0]).__name__}" if made and not _is_of_library(memo) else ""


def results_of(memo: Any, answers: dict[Any, Any]) -> list[Any]:
    """Return the results in a cache, in the order of its dictionary."""
    link = next((type(each) for each in answers.values()), None)
    if link is None or link.__name__ != "_lru_list_elem":
        return list(answers.values())
    # a bounded cache lists for each result: its key, the result, the type of the link
    found = gc.get_referents(memo)
    keys = {id(key) for key in answers}
    by_key = {
        id(a): b for (a, b), (_, c) in pairwise(pairwise(found)) if id(a) in keys and c is link
    }
    return [by_key.get(id(key), memo) for key in answers]


def _lasts(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_lasts, value))
    return isinstance(value, _LASTING)


def _flat(value: Any) -> list[Any]:
    return (
        [leaf for each in value for leaf in _flat(each)]
        if isinstance(value, (tuple, frozenset))
        else [value]
    )


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, frozenset)) and type(value) in (tuple, torch.Size, frozenset):
        return type(value)(map(_plain, value))
    return int(value) if type(value) is torch.SymInt else value


def _alike(then: Any, now: Any) -> bool:
    if isinstance(then, torch.Tensor):
        return isinstance(now, torch.Tensor) and _what(then) == _what(now)
    return isinstance(then, (torch.SymInt, torch.SymFloat, torch.SymBool)) or type(then) is type(
        now
    )


def _what(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.device, tensor.dim(), tensor.requires_grad
