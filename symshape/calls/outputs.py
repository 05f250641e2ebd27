"""The structure of a program's outputs: from flat outputs to nested ones, without a pytree walk
where it is simple.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import attrs
import torch

from guards.terms.generated import generated_function
from symshape.calls import object_arguments
from symshape.calls.object_kinds import slots_of
from symshape.torch_internals import pytree

# -- Quick construction of transformers' model outputs: without their constructor after the first
# one.
#
# A ``ModelOutput`` is an ordered dictionary whose items are attributes too. Its constructor
# looks at every field of the class several times (15 to 20 µs a call), although every call of a
# program fills the same fields. So the constructor makes the first output, and later ones get
# the same items and attributes with the call's own values. Only classes that construct exactly
# as ``ModelOutput`` does are handled, and only outputs that begin with a tensor and have no part
# that is None.
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


# -- Generated functions that nest a program's flat outputs: one expression, without a walk over the
# structure at a call.
#
# The code does at once what ``pytree.tree_unflatten`` does node by node. It is written when a
# program is made. Tuples, lists and dictionaries become displays; other classes become calls of
# their ``unflatten_fn``. Outputs of transformers' models, whose constructor takes 15 to 20 µs,
# are made by ``learning``. An object that was flattened
# (``object_arguments.py``) becomes a new object with these attributes.
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
    if is_plain(kind):
        name = _named("output", None, names)
        put = _setter(names, name)
        names[name] = learning(kind, len(children), lambda held: node(held, context), put)
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


Build = Callable[[list[Any]], Any]
_FIRST: Build = itemgetter(0)
Finish = Callable[[list[Any], Sequence[Any]], Any]
"""``finish(flat, leaves)``: write to the call's own objects, and nest the result."""


def builder(tree: pytree.TreeSpec) -> Build:
    """Return the function that nests flat outputs as ``tree`` says, or leaves them flat for a
    :func:`finisher`.
    """
    if tree.type is object_arguments.Outcome:
        return list if _needs_call(tree) else builder(tree.children()[0])
    if tree.is_leaf():
        return _FIRST  # a function of C's: a warm call has no frame for it
    if tree.type in (tuple, list) and all(child.is_leaf() for child in tree.children()):
        return tuple if tree.type is tuple else list
    nest = nesting(tree)
    return nest or (lambda flat: unflatten(flat, tree))


def finisher(tree: pytree.TreeSpec) -> Finish | None:
    """Return the function that ends a call of a program that writes to object arguments, or returns
    one.

    None where :func:`builder` is all.
    """
    if tree.type is not object_arguments.Outcome or not _needs_call(tree):
        return None
    return finishing(tree) or (lambda flat, leaves: _finished(tree, flat, leaves))


def _finished(tree: pytree.TreeSpec, flat: Sequence[Any], leaves: Sequence[Any]) -> Any:
    """End a call as a :func:`finisher` does, for a structure of any depth."""
    returned, *writes = tree.children()
    building = _Building(iter(flat), (), leaves)
    result = building.build(returned)
    new = [building.children(each) for each in writes]  # all is built before anything is written
    for each, values in zip(writes, new, strict=True):
        position, _, names = each.context
        object_arguments.write(object_arguments.owner_of(leaves[position]), names, values)
    return result


def writes_records(tree: pytree.TreeSpec) -> bool:
    """Return whether a program with this structure of outputs writes to objects among its
    arguments.
    """
    return tree.type is object_arguments.Outcome and len(tree.children()) > 1


def result_of(built: Any) -> Any:
    """Return the result of a function, without its writes."""
    return built.result if type(built) is object_arguments.Outcome else built


def unflatten(flat: Sequence[Any], tree: pytree.TreeSpec, shared: Sequence[int] = ()) -> Any:
    """Nest as ``pytree.tree_unflatten`` does, but return a ``torch.Size`` where torch makes a
    tuple.

    Args:
        flat: the leaves.
        tree: how they nest.
        shared: for each container, outermost first, the number of the one that it is; nothing where
            none is another.
    """
    if not shared and not _is_unusual(tree):
        return pytree.tree_unflatten(flat, tree)
    return _Building(iter(flat), shared, ()).build(tree)


def _needs_call(tree: pytree.TreeSpec) -> bool:
    """Return whether an outcome writes to objects of the call, or returns one."""
    return tree.type in (object_arguments.ObjectWrite, object_arguments.ArgumentReference) or any(
        map(_needs_call, tree.children())
    )


def _is_unusual(tree: pytree.TreeSpec) -> bool:
    return (
        tree.type is torch.Size
        or tree.type in object_arguments.STAND_INS
        or any(map(_is_unusual, tree.children()))
    )


@attrs.define(eq=False)
class _Building:
    """One value that is being nested.

    Attributes:
        flat: its leaves, in order.
        shared: see :func:`unflatten`.
        given: the leaves of the call.
        built: the containers so far.
        made: the objects that were made so far, by their numbers.
    """

    flat: Iterator[Any]
    shared: Sequence[int]
    given: Sequence[Any]
    built: list[Any] = attrs.field(factory=list)
    made: dict[int, Any] = attrs.field(factory=dict)

    def build(self, tree: pytree.TreeSpec) -> Any:
        if tree.is_leaf():
            return next(self.flat)
        number = len(self.built)
        self.built.append(None)
        children = self.children(tree)
        if self.shared and self.shared[number] != number:  # its leaves are those of the first
            self.built[number] = self.built[self.shared[number]]
        else:
            self.built[number] = self._node(tree, children)
        return self.built[number]

    def children(self, tree: pytree.TreeSpec) -> list[Any]:
        """Build the children of a container."""
        return [self.build(child) for child in tree.children()]

    def _node(self, tree: pytree.TreeSpec, children: list[Any]) -> Any:
        kind, context = tree.type, tree.context
        if kind is torch.Size:
            return torch.Size(children)
        if kind is object_arguments.Record:
            made, names, *_ = context
            return object_arguments.assembled(made, names, children[1:])
        if kind is object_arguments.MadeObject:
            made, names, number = context
            self.made[number] = object_arguments.assembled(made, names, children)
            return self.made[number]
        if kind is object_arguments.MadeReference:
            return self.made[context]
        if kind is object_arguments.ArgumentReference:
            return object_arguments.owner_of(self.given[context])
        return (
            context
            if kind is object_arguments.HeldClass
            else pytree.SUPPORTED_NODES[kind].unflatten_fn(children, context)
        )
