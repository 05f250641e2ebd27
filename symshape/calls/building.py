"""The function that nests a program's flat outputs, as one generated expression: no walk over the structure at a call.

What torch's pytrees would do node by node (``pytree.tree_unflatten``) is written out once, when a program is made:
tuples, lists and dictionaries as displays, other classes as calls of their own ``unflatten_fn``, the outputs of
transformers' models, whose constructor takes 15 to 20 µs, by :mod:`symshape.calls.model_outputs`, and objects that were
taken apart (``records.py``) as a new object with these attributes.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from guards.terms.generated import generated_function
from symshape.calls import model_outputs, records
from symshape.calls.record_kinds import slots_of
from symshape.torch_internals import pytree

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
    source = f"def nest(flat):\n{_targets(leaves)}    return {expression}\n"
    return generated_function(source, "nest", "symshape result", names)


def finishing(tree: pytree.TreeSpec) -> Callable[[list[Any], Sequence[Any]], Any] | None:
    """The function from an outcome's flat outputs and a call's leaves to the result, having written to these.

    None where the structure is too deep to be written.
    """
    if _depth(tree, 0) > _DEEPEST:
        return None
    returned, *writes = tree.children()
    names: dict[str, Any] = {"owner_of": records.owner_of, "write": records.write}
    flat = [f"a{position}" for position in range(tree.num_leaves)]
    leaves = iter(flat)
    lines, ends = [f"    result = {_expression(returned, leaves, names)}\n"], []
    for number, each in enumerate(writes):
        position, _, attributes = each.context
        values = "".join(f"{_expression(child, leaves, names)}, " for child in each.children())
        lines.append(f"    w{number} = ({values})\n")  # all is built before anything is written
        ends.append(f"    write(owner_of(leaves[{position}]), {_named('names', attributes, names)}, w{number})\n")
    source = f"def finish(flat, leaves):\n{_targets(flat)}{''.join(lines + ends)}    return result\n"
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
    if tree.type is records.Again:
        return f"made{tree.context}"
    if tree.type is records.Given:
        return f"{_named('owner', records.owner_of, names)}(leaves[{tree.context}])"
    if tree.type is records.Constant:
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
    if kind is records.Made or kind is records.Record:
        its_class, attributes, *more = context
        own = children[kind is records.Record :]  # an argument is its first leaf itself
        if its_class is dict:
            made = _dictionary(attributes, own, names)
        else:
            made = f"{_named('make', _maker(its_class, attributes), names)}({', '.join(own)})"
        return f"(made{more[0]} := {made})" if kind is records.Made else made
    node = pytree.SUPPORTED_NODES[kind].unflatten_fn
    if model_outputs.is_plain(kind):
        name = _named("output", None, names)
        put = _setter(names, name)
        names[name] = model_outputs.learning(kind, len(children), lambda held: node(held, context), put)
        return f"{name}({inside})"
    return f"{_named('node', node, names)}([{inside}], {_named('context', context, names)})"


def _dictionary(keys: Sequence[Any], values: Sequence[str], names: dict[str, Any]) -> str:
    return "{" + "".join(f"{_named('key', key, names)}: {each}, " for key, each in zip(keys, values, strict=True)) + "}"


def _maker(kind: Any, names: Sequence[str]) -> Callable[..., Any]:
    """The function that makes an object with these attributes, as ``records.assembled`` does."""
    if kind is list or kind is types.SimpleNamespace or slots_of(kind):
        return lambda *values: records.assembled(kind, names, values)
    new = object.__new__

    def make(*values: Any) -> Any:
        made = new(kind)
        made.__dict__.update(zip(names, values, strict=True))
        return made

    return make


def _named(prefix: str, value: Any, names: dict[str, Any]) -> str:
    """A new name for a value."""
    name = next(each for each in map(f"{prefix}{{}}".format, itertools.count(len(names))) if each not in names)
    names[name] = value
    return name


def _setter(names: dict[str, Any], name: str) -> Callable[[Any], None]:
    return lambda value: names.update({name: value})
