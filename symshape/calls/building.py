"""The function that nests a program's flat outputs, as one generated expression: no walk over the structure at a call.

What torch's pytrees would do node by node (``pytree.tree_unflatten``) is written out once, when a program is made:
tuples, lists and dictionaries as displays, other classes as calls of their own ``unflatten_fn``, and the outputs of
transformers' models, whose constructor takes 15 to 20 µs, by :mod:`symshape.calls.model_outputs`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from guards.terms.generated import generated_function
from symshape.calls import model_outputs

_DEEPEST = 50  # Python's parser takes a hundred brackets or two in each other


def nesting(tree: pytree.TreeSpec) -> Callable[[list[Any]], Any] | None:
    """The function from flat outputs to what ``tree`` says; None where the structure is too deep to be written.

    >>> _, tree = pytree.tree_flatten({"a": [1, (2,)], "b": ()})
    >>> nesting(tree)([10, 20])
    {'a': [10, (20,)], 'b': ()}
    """
    if _depth(tree, 0) > _DEEPEST:
        return None
    names: dict[str, Any] = {}
    leaves = [f"a{position}" for position in range(tree.num_leaves)]
    expression = _expression(tree, iter(leaves), names)
    targets = f"    {', '.join(leaves)}, = flat\n" if leaves else ""
    source = f"def nest(flat):\n{targets}    return {expression}\n"
    return generated_function(source, "nest", "symshape result", names)


def _depth(tree: pytree.TreeSpec, so_far: int) -> int:
    if so_far > _DEEPEST:
        return so_far
    return max((_depth(child, so_far + 1) for child in tree.children()), default=so_far)


def _expression(tree: pytree.TreeSpec, leaves: Iterator[str], names: dict[str, Any]) -> str:
    if tree.is_leaf():
        return next(leaves)
    children = [_expression(child, leaves, names) for child in tree.children()]
    inside = "".join(f"{child}, " for child in children)
    kind, context = tree.type, tree.context
    if kind is tuple:
        return f"({inside})"
    if kind is list:
        return f"[{inside}]"
    if kind is torch.Size:  # torch's pytrees make it a tuple
        return f"{_named('size', torch.Size, names)}(({inside}))"
    if kind is dict:
        keys = [_named("key", key, names) for key in context]
        return "{" + "".join(f"{key}: {child}, " for key, child in zip(keys, children, strict=True)) + "}"
    node = pytree.SUPPORTED_NODES[kind].unflatten_fn
    if model_outputs.is_plain(kind):
        name = _named("output", None, names)
        put = _setter(names, name)
        names[name] = model_outputs.learning(kind, len(children), lambda held: node(held, context), put)
        return f"{name}({inside})"
    return f"{_named('node', node, names)}([{inside}], {_named('context', context, names)})"


def _named(prefix: str, value: Any, names: dict[str, Any]) -> str:
    """A new name for a value."""
    name = next(each for each in map(f"{prefix}{{}}".format, itertools.count(len(names))) if each not in names)
    names[name] = value
    return name


def _setter(names: dict[str, Any], name: str) -> Callable[[Any], None]:
    return lambda value: names.update({name: value})
