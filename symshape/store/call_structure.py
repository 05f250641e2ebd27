"""The structure of a call as JSON (equal for calls that may share an entry), and questions about
arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from symshape.calls.arguments import (
    INT_KEY,
    RECORD_KEY,
    Call,
    ConstantKey,
    LeafKey,
    TensorKey,
    identity_of,
)
from symshape.calls.floats import FloatLeaf
from symshape.calls.modes import Modes
from symshape.calls.questions import DATA, Question
from symshape.store.constants import Json, exactly, integer_of, list_of, text_of
from symshape.store.descriptions import flat_key
from symshape.store.store_errors import EntryError, NotStorable
from symshape.store.trees import tree_to_json

_FLOAT = f"{FloatLeaf.__module__}.{FloatLeaf.__qualname__}"
_QUESTIONS = (
    "attribute",
    "attributes",
    "hooked",
    "number",
    "is_leaf",
    "is_inference",
    "_is_view",
    "is_conj",
    "is_neg",
)


def structure_to_json(call: Call, modes: Modes) -> Json:
    """Return the structure of a call: equal for two calls only if one entry may serve both.

    Raises:
        NotStorable: an argument has no words.
    """
    return {
        "modes": modes_to_json(modes),
        "tree": tree_to_json(call.tree),
        "leaves": [_key_to_json(each) for each in call.keys],
        "duplicates": list(call.duplicates),
        "shared": list(call.shared),
    }


def varying_floats(call: Call, mine: Json, theirs: Json) -> list[int]:
    """Return the positions of floats in a call that the program of another call reads at run time.

    Empty if the structures differ in anything else.

    Args:
        call: the call.
        mine: its structure.
        theirs: that of the program's.
    """
    leaves, others = mine["leaves"], theirs["leaves"]
    if len(leaves) != len(others):
        return []
    found = [i for i, (one, other) in enumerate(zip(leaves, others, strict=True)) if one != other]
    if not all(type(call.leaves[i]) is float and others[i][-1:] == [_FLOAT] for i in found):
        return []
    instead = [others[i] if i in found else each for i, each in enumerate(leaves)]
    return found if {**mine, "leaves": instead} == theirs else []


def modes_to_json(modes: Modes) -> Json:
    """Return torch's modes as JSON."""
    autocast = [[device, str(dtype)] for device, dtype in modes.autocast]
    return [modes.grad, modes.inference, str(modes.dtype), autocast, modes.device]


def _key_to_json(key: LeafKey) -> Json:
    if isinstance(key, TensorKey):
        kind = [str(key.dtype), str(key.device), key.requires_grad, key.ndim, key.layout]
        return ["tensor", *kind, f"{key.kind.__module__}.{key.kind.__qualname__}"]
    if key is INT_KEY:
        return ["int"]
    if key is RECORD_KEY:
        raise NotStorable(
            "a call with an object argument that the program writes to (a model's cache)"
        )
    if identity_of(key) is not None:  # what it is stands among the checks of the state
        return ["object"]
    assert isinstance(key, ConstantKey), key
    return ["constant", flat_key(key.constant_key)]


def questions_to_json(questions: Mapping[Question, Any]) -> Json:
    """Return the questions of a program about its arguments, with the answers; not those about
    numbers in tensors.

    Raises:
        NotStorable: it asked which object one is.
    """
    found = []
    for each, answer in questions.items():
        if each.what == DATA:
            continue
        if each.what == "is" or not (each.about is None or type(each.about) is str):
            raise NotStorable("a program that asks which object an argument is")
        found.append([each.position, each.what, each.about, flat_key(answer)])
    return found


def answered(data: Json, leaves: Sequence[Any]) -> dict[Question, Any] | None:
    """Return the questions with the answers of this call; None if an answer differs.

    Raises:
        EntryError: they are none.
    """
    found: dict[Question, Any] = {}
    for each in list_of(data, 10_000):
        position, what, about, answer = exactly(each, 4)
        if what not in _QUESTIONS and not (
            type(what) is str and what.startswith("is_") and what.isidentifier()
        ):
            raise EntryError(f"unknown question: {str(what)[:80]}")
        question = Question(integer_of(position), what, None if about is None else text_of(about))
        if question.position >= len(leaves) or not answers(question, answer, leaves):
            return None
        found[question] = question.among(leaves)
    return found


def answers(question: Question, answer: Json, leaves: Sequence[Any]) -> bool:
    """Return whether ``answer`` is the answer to a question for the leaves of a call."""
    try:
        return bool(flat_key(question.among(leaves)) == answer)
    except NotStorable:
        return False
