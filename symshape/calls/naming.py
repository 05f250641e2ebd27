"""One-line texts for dictionary keys and constants, which are safe to print.

The texts never hold the values of a tensor or an array, and never call a user's ``__repr__`` or
``__str__``: both may be long, slow or private.  A key that is a parameter is named as its module
names it.
"""

from __future__ import annotations

import enum
import functools
import inspect
import itertools
import reprlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from symshape.calls.constant_keys import (
    PLAIN,
    IdentityKey,
    constant_parts,
    field_names,
    may_have_parts,
)
from symshape.torch_internals import pytree

LONGEST = 100
"""Characters of one key or constant in a message: names of deeply nested parameters fit."""
_MOST_ITEMS = 8  # of a container, in a text
_MOST_LEVELS = 3  # of nested containers, in a text
# larger integers are given by their number of bits: Python refuses to print the largest
_LARGEST_INT = 1 << 128

_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = LONGEST


def _this(value: Any) -> str:
    return f"this {type(value).__name__}"


def brief(value: Any, other: Callable[[Any], str] = _this) -> str:
    """Return a short text of a value on one line.

    Args:
        value: any object.
        other: returns the text of a tensor, or of an object of a class that is not known to be
            plain data.

    >>> brief("mask"), brief(torch.ones(2)), brief((1, [2.5])), brief({"lr": torch.ones(1)})
    ("'mask'", 'this Tensor', '(1, [2.5])', "{'lr': this Tensor}")
    """
    return _cut(_brief(value, other, _MOST_LEVELS))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _brief(value: Any, other: Callable[[Any], str], levels: int) -> str:
    kind = type(value)
    if kind is IdentityKey:
        value = value.value
        return "an object that is gone" if value is None else _brief(value, other, levels)
    if isinstance(value, enum.Enum):
        return f"{kind.__qualname__}.{value._name_}"
    if kind is str or kind is bytes:
        return _shortened.repr(value)
    if kind is int and not -_LARGEST_INT < value < _LARGEST_INT:
        return f"an int of {value.bit_length()} bits"
    if kind in PLAIN or kind in (float, complex):
        return repr(value)
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return value.__qualname__
    if kind in _BRACKETS:
        return _container(value, other, levels)
    return _data(value, other, levels)


def _data(value: Any, other: Callable[[Any], str], levels: int) -> str:
    """Return the text of an object that may be keyed by its parts: a date, a path, a dataclass."""
    kind = type(value)
    if kind is slice:
        parts = (value.start, value.stop, value.step)
        return f"slice({', '.join(_brief(each, other, levels - 1) for each in parts)})"
    names = field_names(kind)
    if (names is None and not may_have_parts(kind)) or constant_parts(value) is None:
        return other(value)
    if names is None:
        return _shortened.repr(value)
    if not levels:
        return f"{kind.__name__}(…)"
    fields = [
        f"{name}={_brief(getattr(value, name), other, levels - 1)}" for name in names[:_MOST_ITEMS]
    ]
    return f"{kind.__name__}({', '.join([*fields, *_more(names)])})"


_BRACKETS: dict[type, str] = {
    tuple: "()",
    list: "[]",
    set: "{}",
    dict: "{}",
    frozenset: "{}",
    torch.Size: "()",
    types.MappingProxyType: "{}",
}


def _container(value: Any, other: Callable[[Any], str], levels: int) -> str:
    opening, closing = tuple(_BRACKETS[type(value)])
    if not levels:
        return f"{opening}…{closing}"
    pairs = hasattr(value, "keys")
    some: list[str] = []
    for item in itertools.islice(value, _MOST_ITEMS):
        text = _brief(item, other, levels - 1)
        some.append(f"{text}: {_brief(value[item], other, levels - 1)}" if pairs else text)
    return (
        opening
        + ", ".join([*some, *_more(value)])
        + ("," * (opening == "(" and len(value) == 1))
        + closing
    )


def _more(items: Any) -> list[str]:
    return ["…"] if len(items) > _MOST_ITEMS else []


def item_name(container: str, key: Any, tensors: Mapping[int, str] | None = None) -> str:
    """Return the name of an item of a container that has a name.

    Args:
        container: the container's name.
        key: the item's key.
        tensors: names of tensors by id, for keys that are tensors.

    >>> item_name("cache", "k"), item_name("cache", torch.ones(3))
    ("cache['k']", 'cache[this Tensor]')
    """
    if type(key) is str and len(key) < LONGEST:  # most keys are names
        return f"{container}[{key!r}]"
    return f"{container}[{brief(key) if tensors is None else Naming(lambda: tensors).key(key)}]"


def nesting_text(tree: pytree.TreeSpec) -> str:
    """Return how values nest: classes of containers and keys, ``*`` for each value.

    >>> nesting_text(pytree.tree_structure({"a": 1, "b": (2, 3)}))
    "dict('a': *, 'b': tuple(*, *))"
    """
    return _cut(_nesting(tree, Naming()))


def _nesting(tree: pytree.TreeSpec, naming: Naming) -> str:
    if tree.is_leaf():
        return "*"
    parts = [_nesting(child, naming) for child in tree.children()]
    if tree.type is dict:
        parts = [
            f"{naming.key(key)}: {part}" for key, part in zip(tree.context, parts, strict=True)
        ]
    return f"{tree.type.__name__}({', '.join(parts)})"


class Naming:
    """The names of dictionary keys that are tensors or other objects, for the paths of one call.

    Args:
        named: returns the names of tensors, by id; asked at most once, and only where a tensor is a
            key.
    """

    def __init__(self, named: Callable[[], Mapping[int, str]] = dict) -> None:
        self._tensors = functools.cache(named)
        self._numbers: dict[str, dict[int, int]] = {}

    def key(self, key: Any) -> str:
        """Return the text of a key: a parameter by its name, another object by its class and a
        number of its own.
        """
        return brief(key, self._object)

    def _object(self, value: Any) -> str:
        name = self._tensors().get(id(value)) if isinstance(value, torch.Tensor) else None
        if name is not None:
            return name
        kind = type(value).__name__
        known = self._numbers.setdefault(kind, {})
        return f"{kind} {known.setdefault(id(value), len(known))}"

    def path(self, start: str, path: Sequence[Any]) -> str:
        """Return ``start`` with the way of pytree's keys to a value inside, as a user would write
        the way.
        """
        return start + "".join(map(self._step, path))

    def _step(self, step: Any) -> str:
        if isinstance(step, pytree.MappingKey):
            return f"[{self.key(step.key)}]"
        if isinstance(step, (pytree.SequenceKey, pytree.GetAttrKey)):
            return str(step)
        return _cut(" ".join(str(step).split()))  # a key of a class that the user registered


def distinct(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts, each repeated one with a number: shortened keys may look the same.

    >>> distinct(["x", "y", "x"])
    ('x', 'y', 'x (2)')
    """
    if len(set(texts)) == len(texts):
        return tuple(texts)
    taken, counts, found = set(texts), dict.fromkeys(texts, 0), []
    for text in texts:
        counts[text] += 1
        made = text
        while counts[text] > 1 and (made := f"{text} ({counts[text]})") in taken:
            counts[text] += 1
        taken.add(made)
        found.append(made)
    return tuple(found)


def tensor_names(fn: Callable[..., Any], args: Mapping[str, Any]) -> dict[int, str]:
    """Return the names of the parameters and buffers that a function can reach, by id.

    Args:
        fn: its closure, globals and ``self`` are looked into, and modules, optimizers and objects
            that they hold.
        args: the function's arguments, by name.

    A name is that in the tensor's module (``0.weight``), with the module's own name before
    (``model.0.weight``) where two modules use one.
    """
    modules: dict[int, tuple[str, torch.nn.Module]] = {}
    for name, value in (*_around(fn), *args.items()):
        for where, module in _modules_in(name, value, 2):
            modules.setdefault(id(module), (where, module))
    found: dict[str, dict[int, str]] = {}
    for where, module in modules.values():
        for name, tensor in _members(module):
            found.setdefault(name, {}).setdefault(id(tensor), f"{where}.{name}" if where else name)
    names: dict[int, str] = {}
    for name, owners in found.items():
        for key, full in owners.items():
            names.setdefault(key, name if len(owners) == 1 else full)
    return names


def _around(fn: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values that a function reads besides its arguments, by name."""
    while isinstance(fn, functools.partial):
        yield from fn.keywords.items()
        fn = fn.func
    if isinstance(fn, torch.nn.Module):
        yield "", fn
        return
    if isinstance(fn, types.MethodType):
        yield "self", fn.__self__
    inner = inspect.unwrap(fn) if isinstance(fn, (types.FunctionType, types.MethodType)) else None
    inner = getattr(inner, "__func__", inner)
    if isinstance(inner, types.FunctionType):
        for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=False):
            try:
                yield name, cell.cell_contents
            except ValueError:  # an empty cell
                continue
        read = (name for name in inner.__code__.co_names if name in inner.__globals__)
        yield from ((name, inner.__globals__[name]) for name in read)


def _modules_in(name: str, value: Any, levels: int) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that a value is or holds, by name; not those inside another module."""
    if isinstance(value, torch.nn.Module):
        yield name, value
    elif not levels:
        return
    elif type(value) in (list, tuple):
        for i, each in enumerate(value):
            yield from _modules_in(f"{name}[{i}]", each, levels - 1)
    elif type(value) is dict:
        for key, each in list(value.items()):
            yield from _modules_in(item_name(name, key), each, levels - 1)
    elif not isinstance(value, (type, types.ModuleType, types.FunctionType, torch.Tensor)):
        attributes = (
            object.__getattribute__(value, "__dict__") if type(value).__dictoffset__ else {}
        )
        for key, each in list(attributes.items()):
            if isinstance(each, torch.nn.Module) or type(each) in (list, tuple, dict):
                yield from _modules_in(f"{name}.{key}", each, levels - 1)


def _members(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters and buffers of a module and of its submodules, without calling the
    user's methods.
    """
    pending, seen = [("", module)], set()
    while pending:
        prefix, each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        for table in ("_parameters", "_buffers"):
            for name, tensor in each.__dict__.get(table, {}).items():
                if tensor is not None:
                    yield prefix + name, tensor
        inner = [
            (f"{prefix}{name}.", child) for name, child in each.__dict__.get("_modules", {}).items()
        ]
        pending += [(name, child) for name, child in inner if child is not None]
