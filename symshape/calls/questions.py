"""What programs asked of an argument beside what every key says: attributes of its own, which object it is.

Most programs ask nothing of the kind, and their calls pay nothing for it.  Where a trace had to answer such a question,
the answer becomes a part of the key of every later call of that function: see ``frontends/compiled.py``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import attrs
import torch

from symshape.calls.alike import alike
from symshape.calls.call_key import MakeKey, Makers

ABSENT = "is absent"


class Object:
    """A certain object, not kept alive where that can be helped."""

    __slots__ = ("_number", "get")

    def __init__(self, value: Any) -> None:
        self._number = id(value)
        self.get: Callable[[], Any]
        try:
            self.get = weakref.ref(value)
        except TypeError:
            self.get = lambda: value

    def __eq__(self, other: object) -> bool:
        mine = self.get()
        return mine is not None and type(other) is Object and other.get() is mine

    def __hash__(self) -> int:
        return self._number


@attrs.frozen
class Question:
    """One question: of which leaf of a call, and what.

    Attributes:
        position: the leaf's.
        what: ``attribute`` (of a tensor's own, by name), ``attributes`` (their names), ``is`` (a certain object),
            ``hooked`` (whether hooks see its gradient), or the name of a method of tensors that answers a bool.
        about: the name of the attribute, or the object.
    """

    position: int
    what: str
    about: Any = None

    def answer(self, leaf: Any) -> Hashable:
        """What a program with this argument would be told, as a key."""
        if self.what == "is":
            return self.about.get() is leaf
        if not isinstance(leaf, torch.Tensor):
            return ABSENT
        if self.what == "attribute":
            own = leaf.__dict__
            return alike(own[self.about]) if self.about in own else ABSENT
        if self.what == "hooked":
            return bool(leaf._backward_hooks)
        if self.what == "attributes":
            return tuple(name for name in leaf.__dict__ if not name.startswith("_dynamo_"))
        with torch._C.DisableTorchFunction():
            return bool(getattr(leaf, self.what)())

    def text(self, path: str) -> str:
        """The question in words."""
        if self.what == "attribute":
            return f"the attribute {self.about} of {path}"
        if self.what == "attributes":
            return f"the attributes of {path}"
        if self.what == "hooked":
            return f"whether {path} has hooks"
        return f"which object {path} is" if self.what == "is" else f"{path}.{self.what}()"


def answers(questions: Sequence[Question], leaves: Sequence[Any]) -> tuple[Hashable, ...]:
    """The answers for a call; a leaf that the call does not have answers nothing."""
    number = len(leaves)
    return tuple([each.answer(leaves[each.position]) if each.position < number else None for each in questions])


def asking(makers: Makers, questions: Sequence[Question]) -> Makers:
    """Makers of exact keys that hold the answers too."""

    def also(make: MakeKey) -> MakeKey:
        def key(leaves: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable | None:
            found = make(leaves, kwargs)
            return None if found is None else (found, answers(questions, leaves))

        return key

    return Makers({number: also(make) for number, make in makers.items()})
