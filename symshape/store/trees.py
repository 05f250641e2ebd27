"""Nestings of arguments and results (torch's pytrees) as JSON."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any

import torch

from symshape.calls import object_arguments
from symshape.store.constants import Json, exactly, from_json, list_of, text_of, to_json
from symshape.store.store_errors import EntryError, NotImported, NotStorable
from symshape.torch_internals import pytree

_PLAIN: dict[str, type] = {
    "tuple": tuple,
    "list": list,
    "dict": dict,
    "ordered": OrderedDict,
    "size": torch.Size,
}
_NAMES = {kind: name for name, kind in _PLAIN.items()}
_DEEPEST = 64


def tree_to_json(tree: pytree.TreeSpec) -> Json:
    """Return a nesting as JSON: null for a leaf; else the class, its context, and its children.

    Raises:
        NotStorable: it has a class that cannot be found by its name, or that holds more than plain
            values.

    >>> tree_to_json(pytree.tree_structure((1, {"a": 2})))
    ['tuple', None, [None, ['dict', ['a'], [None]]]]
    """
    if tree.is_leaf():
        return None
    name = _NAMES.get(tree.type) or _class_name(tree.type)
    return [name, to_json(tree.context), [tree_to_json(child) for child in tree.children()]]


def tree_from_json(data: Json, depth: int = 0) -> pytree.TreeSpec:
    """Return the nesting that :func:`tree_to_json` wrote.

    Raises:
        EntryError: it is none, or has a class that this process does not know as one of torch's
            pytrees.
    """
    if data is None:
        return pytree.treespec_leaf()
    if depth > _DEEPEST:
        raise EntryError("a nesting that is too deep")
    name, context, children = exactly(data, 3)
    kind = _PLAIN.get(text_of(name)) or _class_named(name)
    inner = [tree_from_json(child, depth + 1) for child in list_of(children)]
    found = from_json(context)
    if kind in (dict, OrderedDict) and (type(found) is not list or len(found) != len(inner)):
        raise EntryError("a dictionary without a key for each item")
    return pytree.TreeSpec(kind, found, inner)


def _class_name(kind: Any) -> str:
    if kind in object_arguments.STAND_INS:
        raise NotStorable(
            "a call with an object argument that the program writes to (a model's cache)"
        )
    name = f"{kind.__module__}:{kind.__qualname__}"
    if _found(name) is not kind:
        raise NotStorable(
            f"the class {kind.__module__}.{kind.__qualname__} of a container, which no name leads "
            "to"
        )
    return name


def _class_named(name: str) -> Any:
    kind = _found(name)
    if (
        not isinstance(kind, type)
        or kind not in pytree.SUPPORTED_NODES
        or kind in object_arguments.STAND_INS
    ):
        raise NotImported(
            f"{name} is not a container that torch.utils._pytree knows in this process"
        )
    return kind


def _found(name: str) -> Any:
    """Return the attribute of an imported module that a name gives; None if there is none."""
    module, _, attribute = name.partition(":")
    return getattr(sys.modules.get(module), "__dict__", {}).get(attribute)
