"""Quick construction of transformers' model outputs: without their constructor after the first one.

A ``ModelOutput`` is an ordered dictionary whose items are attributes too. Its constructor looks at
every field of the class several times (15 to 20 µs a call), although every call of a program fills
the same fields. So the constructor makes the first output, and later ones get the same items and
attributes with the call's own values. Only classes that construct exactly as ``ModelOutput`` does
are handled, and only outputs that begin with a tensor and have no part that is None.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from guards.terms.generated import generated_function

_INHERITED = ("__new__", "__post_init__", "__setattr__", "__setitem__", "__getattribute__")
Make = Callable[..., Any]
"""``make(*children)``: the output that holds these children."""


def is_plain(kind: Any) -> bool:
    """Return whether a class is a model output that is constructed as ``ModelOutput`` itself is."""
    base = getattr(sys.modules.get("transformers.utils.generic"), "ModelOutput", None)
    if (
        not isinstance(base, type)
        or not isinstance(kind, type)
        or kind is base
        or not issubclass(kind, base)
    ):
        return False
    init = kind.__dict__.get("__init__")
    # a dataclass wrote it
    if not (isinstance(init, types.FunctionType) and init.__code__.co_filename == "<string>"):
        return False
    if not dataclasses.is_dataclass(kind) or kind.__basicsize__ != base.__basicsize__:
        return False
    return all(getattr(kind, name, None) == getattr(base, name, None) for name in _INHERITED)


def learning(
    kind: type, number: int, construct: Callable[[list[Any]], Any], put: Callable[[Make], None]
) -> Make:
    """Return a function that constructs outputs; once it has learnt how, it passes a quicker one to
    ``put``.

    It learns from the first output.  The quicker one is made at the second, since that takes as
    long as ten outputs and a first call is waited for.

    Args:
        kind: a class that :func:`is_plain`.
        number: how many children an output has.
        construct: makes an output of a list of children.
        put: takes the quicker function.
    """
    learnt: list[Callable[[], Make]] = []

    def make(*children: Any) -> Any:
        if learnt:
            quick = learnt[0]()
            put(quick)
            return quick(*children)
        made = construct(list(children))
        learnt.append(
            _quick(kind, made, children, construct)
            or (lambda: lambda *others: construct(list(others)))
        )
        return made

    return make if number else lambda: construct([])


def _quick(
    kind: type, made: Any, children: Sequence[Any], construct: Callable[[list[Any]], Any]
) -> Callable[[], Make] | None:
    """Return the factory of a function that makes outputs as the constructor made this one.

    None if the construction cannot be inferred.
    """
    places = {id(child): f"a{position}" for position, child in enumerate(children)}
    if (
        type(made) is not kind
        or len(places) < len(children)
        or not isinstance(children[0], torch.Tensor)
    ):
        return None
    dictionary: Any = OrderedDict  # its own items, whatever the class makes of them
    items, attributes = list(dictionary.items(made)), list(made.__dict__.items())
    values = [value for _, value in items + attributes]
    if any(type(name) is not str for name, _ in items + attributes):
        return None
    if any(value is None for _, value in items) or not all(
        value is None or id(value) in places for value in values
    ):
        return None
    arguments = list(places.values())
    others = " or ".join(["type(a0) is not Tensor", *(f"{each} is None" for each in arguments[1:])])
    contents = ", ".join(f"{name!r}: {places.get(id(value))}" for name, value in attributes)
    lines = [
        f"def make({', '.join(arguments)}):",
        f"    if {others}: return construct([{', '.join(arguments)}])",
        "    made = new(kind)",
        *(f"    put(made, {name!r}, {places[id(value)]})" for name, value in items),
        f"    made.__dict__.update({{{contents}}})",
        "    return made",
    ]
    names = {"Tensor": torch.Tensor, "new": OrderedDict.__new__, "put": OrderedDict.__setitem__}
    namespace = {**names, "kind": kind, "construct": construct}
    source = "\n".join(lines) + "\n"
    return lambda: generated_function(source, "make", "symshape model output", namespace)
