"""Functions with a memo (``functools.lru_cache``, ``functools.cache``): what they keep, and how it is taken back.

A trace may fill a memo with symbolic tensors, which nobody may find there afterwards. What is plain (numbers, texts) is
computed again by whoever asks next, and is the same; an object is not: the program may find it changed, or look
whether it is the one that it knows. So a trace that makes such an object is refused, and leaves alone those that were
there before; what is read of these is compared as what is read of any object.
"""

from __future__ import annotations

import gc
import sys
import types
from itertools import pairwise
from typing import Any

import torch

from symshape.tracing.state.places import PLAIN
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
"""What is the same when it is computed again: tensors are made again by each call of a graph."""


def answers_of(memo: Any) -> dict[Any, Any] | None:
    """The dictionary in which a memo keeps its answers, by its own keys; None where it is not found."""
    kept = [each for each in gc.get_referents(memo) if type(each) is dict and each is not memo.__dict__]
    return kept[0] if len(kept) == 1 else None  # so it is in CPython


def objects_of(memo: Any) -> list[Any]:
    """What a memo of the user's own code answers that may change; a library's is taken to hold what nobody changes."""
    answers = None if _is_of_library(memo) else answers_of(memo)
    return [] if answers is None else [each for each in _results(memo, answers) if not isinstance(each, PLAIN)]


def _is_of_library(memo: Any) -> bool:
    """By the file of the function; of what has none (a class, a partial function) by that of its module."""
    inner = memo.__wrapped__
    code = getattr(inner, "__code__", None)
    file = (
        code.co_filename
        if code is not None
        else getattr(sys.modules.get(getattr(inner, "__module__", "")), "__file__", None)
    )
    return file is not None and is_library(file)


def take_back(memo: Any, before: tuple[Any, ...]) -> str:
    """Takes back what a trace made a memo keep; what could be made but once, in words, or "".

    ``before`` are the keys of what it kept when the trace began. A key may be symbolic, and is not compared.
    """
    answers = answers_of(memo)
    if answers is None or _is_of_library(memo):
        memo.cache_clear()
        return ""
    known = set(map(id, before))
    results = _results(memo, answers)
    made = [each for key, each in zip(answers, results, strict=True) if id(key) not in known and not _lasts(each)]
    if all(isinstance(each, PLAIN) for key, each in zip(answers, results, strict=True) if id(key) in known):
        memo.cache_clear()
    else:  # what is there already must be found again
        stays = [(key, each) for key, each in answers.items() if id(key) in known]
        answers.clear()
        answers.update(stays)
    return f"a {type(made[0]).__name__}" if made else ""


def _results(memo: Any, answers: dict[Any, Any]) -> list[Any]:
    """What a memo answers, in the order of its dictionary."""
    link = next((type(each) for each in answers.values()), None)
    if link is None or link.__name__ != "_lru_list_elem":
        return list(answers.values())
    found = gc.get_referents(memo)  # of a bounded one: for each answer its key, the answer, the type of the link
    keys = {id(key) for key in answers}
    by_key = {id(a): b for (a, b), (_, c) in pairwise(pairwise(found)) if id(a) in keys and c is link}
    return [by_key.get(id(key), memo) for key in answers]


def _lasts(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_lasts, value))
    return isinstance(value, _LASTING)
