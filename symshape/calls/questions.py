"""Questions that programs ask about an argument and that no ordinary key answers: its own
attributes, its identity.

Most programs ask no such question, and their calls pay nothing for it. When a trace had to answer
one, the answer becomes a part of the key of every later call of that function: see
``frontends/compiled.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch.autograd import forward_ad

from symshape.calls.call_key import MakeKey, Makers
from symshape.calls.constant_keys import constant_key, digits
from symshape.calls.floats import FloatLeaf, with_leaves
from symshape.calls.object_arguments import owner_of
from symshape.torch_internals import dispatch, functorch

ABSENT = "is absent"
DATA = "data"
TRANSFORMED = "is_transformed"
HAS_HISTORY = "is_made"
_OTHERS = frozenset(
    ("attribute", "attributes", "hooked", "is", "number", DATA, TRANSFORMED, HAS_HISTORY)
)
"""The questions that no method of tensors answers."""


interpreters = functorch.interpreters


def is_transformed() -> bool:
    """Return whether the call is inside a ``torch.func`` transform or forward-mode autograd."""
    return interpreters() is not None or forward_ad._current_level >= 0


@attrs.frozen
class Question:
    """One question about one leaf of a call.

    Attributes:
        position: the leaf's.
        what: ``attribute`` (of a tensor's own, by name), ``attributes`` (their names), ``is`` (a
            certain object), ``hooked`` (whether hooks see its gradient), ``number`` (which float a
            ``FloatLeaf`` holds), ``data`` (what numbers in this and other leaves say),
            ``is_transformed`` (of the call, whatever the leaf), ``is_made`` (whether autograd knows
            what made it), or the name of a method of tensors that returns a bool.
        about: the name of the attribute, the ``IdentityKey`` of the object, or what answers for all
            leaves.
    """

    position: int
    what: str
    about: Any = None

    def answer(self, leaf: Any) -> Hashable:
        """Return the answer that a program with this argument gets, as a key."""
        return self.asks()(leaf)

    def among(self, leaves: Sequence[Any]) -> Hashable:
        """Return the answer for the leaves of a call."""
        return answers((self,), leaves)[0]

    def asks(self) -> Callable[[Any], Hashable]:
        """Return the function that answers the question, for use in each call."""
        about = self.about
        if self.what == "is":
            return lambda leaf: about.value is owner_of(leaf)
        if self.what == TRANSFORMED:
            return lambda leaf: is_transformed()
        of_tensor = self._of_tensor()
        return lambda leaf: of_tensor(leaf) if isinstance(leaf, torch.Tensor) else ABSENT

    def _of_tensor(self) -> Callable[[torch.Tensor], Hashable]:
        about, what = self.about, self.what
        if what == "attribute":
            return lambda leaf: (
                constant_key(own[about]) if about in (own := leaf.__dict__) else ABSENT
            )
        if what == "hooked":
            return lambda leaf: bool(leaf._backward_hooks)
        if what == "number":
            return lambda leaf: digits(leaf.item()) if type(leaf) is FloatLeaf else ABSENT
        if what == HAS_HISTORY:
            return lambda leaf: leaf.grad_fn is not None
        if what == "attributes":
            return lambda leaf: tuple(
                name for name in leaf.__dict__ if not name.startswith("_dynamo_")
            )

        def method(leaf: torch.Tensor) -> bool:
            with dispatch.DisableTorchFunction():
                return bool(getattr(leaf, what)())

        return method

    @property
    def is_method(self) -> bool:
        """Return whether the answer is what a method of tensors returns."""
        return self.what not in _OTHERS

    def text(self, path: str) -> str:
        """Return the question in words."""
        if self.what == "attribute":
            return f"the attribute {self.about} of {path}"
        if self.what == "attributes":
            return f"the attributes of {path}"
        if self.what == "hooked":
            return f"whether {path} has hooks"
        if self.what == "number":
            return f"the value of {path}"
        if self.what == TRANSFORMED:
            return "whether a transform of torch.func is around the call"
        if self.what == HAS_HISTORY:
            return f"whether autograd knows what made {path}"
        if self.what == DATA:
            return "what the program asks of numbers in its arguments"
        return f"which object {path} is" if self.what == "is" else f"{path}.{self.what}()"


def asker(questions: Sequence[Question]) -> Callable[[Sequence[Any]], tuple[Hashable, ...]]:
    """Return the function that answers all questions for the leaves of a call; None for a missing
    leaf.
    """
    asked = [
        (place, each.position, each.about if each.what == DATA else each.asks(), each.what == DATA)
        for place, each in enumerate(questions)
        if not each.is_method
    ]
    methods = [
        (place, each.position, getattr(torch.Tensor, each.what))
        for place, each in enumerate(questions)
        if each.is_method
    ]

    def answers(leaves: Sequence[Any]) -> tuple[Hashable, ...]:
        number = len(leaves)
        found: list[Hashable] = [None] * len(questions)
        for place, position, ask, of_all in asked:
            if position < number:
                found[place] = ask(leaves) if of_all else ask(leaves[position])
        if methods:
            with dispatch.DisableTorchFunction():
                for place, position, method in methods:
                    if position < number:
                        leaf = leaves[position]
                        found[place] = method(leaf) if isinstance(leaf, torch.Tensor) else ABSENT
        return tuple(found)

    return answers


def answers(questions: Sequence[Question], leaves: Sequence[Any]) -> tuple[Hashable, ...]:
    """Return the answers for a call; None for a missing leaf."""
    return asker(questions)(leaves)


class _Asked(tuple[Any, ...]):
    """An exact key with the answers."""

    __slots__ = ()


def asked_without(key: Any) -> Hashable:
    """Return an exact key without the answers."""
    found: Hashable = key[0] if type(key) is _Asked else key
    return found


def asking(makers: Makers, questions: Sequence[Question]) -> Makers:
    """Return makers of exact keys that include the answers."""
    one = questions[0] if len(questions) == 1 and questions[0].what != DATA else None
    if one is not None:
        position, ask = one.position, one.asks()

    def also(number: int, make: MakeKey) -> MakeKey:
        asked = asker([each for each in questions if each.position < number])

        def key(leaves: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable | None:
            found = make(leaves, kwargs)
            return None if found is None else _Asked((found, asked(with_leaves(leaves))))

        def key_with_one(leaves: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable | None:
            found = make(leaves, kwargs)
            return None if found is None else _Asked((found, ask(with_leaves(leaves)[position])))

        return key_with_one if one is not None and position < number else key

    return Makers(lambda number: also(number, makers[number]))
