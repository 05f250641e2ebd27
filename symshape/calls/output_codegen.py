"""Generated functions that nest a program's flat outputs: one expression, without a walk over the
structure at a call.

The code does at once what ``pytree.tree_unflatten`` does node by node. It is written when a program
is made. Tuples, lists and dictionaries become displays; other classes become calls of their
``unflatten_fn``. Outputs of transformers' models, whose constructor takes 15 to 20 µs, are made by
:mod:`symshape.calls.model_outputs`. An object that was flattened (``object_arguments.py``) becomes
a new object with these attributes.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from guards.terms.generated import generated_function
from symshape.calls import model_outputs, object_arguments
from symshape.calls.object_kinds import slots_of
from symshape.torch_internals import pytree

_DEEPEST = 50  # Python's parser takes a hundred brackets or two in each other


def nesting(tree: pytree.TreeSpec) -> Callable[[list[Any]], Any] | None:
    """Return the function from flat outputs to a value nested as ``tree``; None if the tree is too
    deep to write out.

    >>> _, tree = pytree.tree_flatten({"a": [1, (2,)], "b": ()})
    >>> nesting(tree)([10, 20])
    {'a': [10, (20,)], 'b': ()}
    """
    if _depth(tree, 0) > _DEEPEST:
        return None
    names: dict[str, Any] = {}
    leaves = [f"a{position}" for position in range(tree.num_leaves)]
    expression = _expression(tree, iter(leaves), names)
    source = f"def nest(flat):\n{_targets(leaves)}    return {expression}\n"
    return generated_function(source, "nest", "symshape result", names)


def finishing(tree: pytree.TreeSpec) -> Callable[[list[Any], Sequence[Any]], Any] | None:
    """Return the function that writes to a call's objects and nests its result.

    Its arguments are the flat outputs and the call's leaves. None if the structure is too deep to
    write out.
    """
    if _depth(tree, 0) > _DEEPEST:
        return None
    returned, *writes = tree.children()
    names: dict[str, Any] = {"owner_of": object_arguments.owner_of, "write": object_arguments.write}
    flat = [f"a{position}" for position in range(tree.num_leaves)]
    leaves = iter(flat)
    lines, ends = [f"    result = {_expression(returned, leaves, names)}\n"], []
    for number, each in enumerate(writes):
        position, _, attributes = each.context
        values = "".join(f"{_expression(child, leaves, names)}, " for child in each.children())
        lines.append(f"    w{number} = ({values})\n")  # all is built before anything is written
        ends.append(
            f"    write(owner_of(leaves[{position}]), {_named('names', attributes, names)}, "
            f"w{number})\n"
        )
    source = (
        f"def finish(flat, leaves):\n{_targets(flat)}{''.join(lines + ends)}    return result\n"
    )
    return generated_function(source, "finish", "symshape result", names)


def _targets(leaves: Sequence[str]) -> str:
    return f"    {', '.join(leaves)}, = flat\n" if leaves else ""


def _depth(tree: pytree.TreeSpec, so_far: int) -> int:
    if so_far > _DEEPEST:
        return so_far
    return max((_depth(child, so_far + 1) for child in tree.children()), default=so_far)


def _expression(tree: pytree.TreeSpec, leaves: Iterator[str], names: dict[str, Any]) -> str:
    if tree.is_leaf():
        return next(leaves)
    if tree.type is object_arguments.MadeReference:
        return f"made{tree.context}"
    if tree.type is object_arguments.ArgumentReference:
        return f"{_named('owner', object_arguments.owner_of, names)}(leaves[{tree.context}])"
    if tree.type is object_arguments.HeldClass:
        return _named("constant", tree.context, names)
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
        return _dictionary(context, children, names)
    if kind is object_arguments.MadeObject or kind is object_arguments.Record:
        its_class, attributes, *more = context
        own = children[kind is object_arguments.Record :]  # an argument is its first leaf itself
        if its_class is dict:
            made = _dictionary(attributes, own, names)
        else:
            made = f"{_named('make', _maker(its_class, attributes), names)}({', '.join(own)})"
        return f"(made{more[0]} := {made})" if kind is object_arguments.MadeObject else made
    node = pytree.SUPPORTED_NODES[kind].unflatten_fn
    if model_outputs.is_plain(kind):
        name = _named("output", None, names)
        put = _setter(names, name)
        names[name] = model_outputs.learning(
            kind, len(children), lambda held: node(held, context), put
        )
        return f"{name}({inside})"
    return f"{_named('node', node, names)}([{inside}], {_named('context', context, names)})"


def _dictionary(keys: Sequence[Any], values: Sequence[str], names: dict[str, Any]) -> str:
    return (
        "{"
        + "".join(
            f"{_named('key', key, names)}: {each}, " for key, each in zip(keys, values, strict=True)
        )
        + "}"
    )


def _maker(kind: Any, names: Sequence[str]) -> Callable[..., Any]:
    """Return the function that makes an object with these attributes, as
    ``object_arguments.assembled`` does.
    """
    if kind is list or kind is types.SimpleNamespace or slots_of(kind):
        return lambda *values: object_arguments.assembled(kind, names, values)
    new = object.__new__

    def make(*values: Any) -> Any:
        made = new(kind)
        made.__dict__.update(zip(names, values, strict=True))
        return made

    return make


def _named(prefix: str, value: Any, names: dict[str, Any]) -> str:
    """Add a value under a new name; return the name."""
    name = next(
        each
        for each in map(f"{prefix}{{}}".format, itertools.count(len(names)))
        if each not in names
    )
    names[name] = value
    return name


def _setter(names: dict[str, Any], name: str) -> Callable[[Any], None]:
    return lambda value: names.update({name: value})
