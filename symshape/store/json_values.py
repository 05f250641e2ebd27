"""Plain values, formulas and nestings as JSON, exactly: reading returns the very same value, or
fails.
"""

from __future__ import annotations

import base64
import binascii
import math
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from guards.errors import GuardsError
from guards.sets.json_terms import term_from_json, term_to_json
from guards.terms.term import Term
from guards.text.escaping import printable
from symshape.calls import object_arguments
from symshape.calls.constant_keys import digits
from symshape.graph.float_terms import FUNCTIONS, FloatTerm
from symshape.store.store_errors import EntryError, NotImported, NotStorable
from symshape.torch_internals import pytree

Json = Any

LARGEST_INTEGER = 1 << 4096
_DEEPEST = 32
_DTYPES = {str(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
_LAYOUTS = {str(each): each for each in vars(torch).values() if isinstance(each, torch.layout)}
_FORMATS = {
    str(each): each for each in vars(torch).values() if isinstance(each, torch.memory_format)
}

_TAGGED: dict[type, Callable[[Any], dict[str, Json]]] = {
    float: lambda v: {"float": v.hex() if math.isfinite(v) else digits(v)},
    complex: lambda v: {"complex": [to_json(v.real), to_json(v.imag)]},
    bytes: lambda v: {"bytes": base64.b64encode(v).decode()},
    torch.dtype: lambda v: {"dtype": str(v)},
    torch.device: lambda v: {"device": str(v)},
    torch.layout: lambda v: {"layout": str(v)},
    torch.memory_format: lambda v: {"memory_format": str(v)},
    types.EllipsisType: lambda v: {"ellipsis": 0},
}


def to_json(value: Any, other: Callable[[Any], Json] | None = None, depth: int = 0) -> Json:
    """Return a plain value, or a tuple, list or slice of such values, as JSON.

    Args:
        value: the value.
        other: what is done with a value of another class.
        depth: how deep it is nested.

    Raises:
        NotStorable: it is of another class, and there is no ``other``.

    >>> to_json((1, 0.5, None, "x"))
    {'tuple': [1, {'float': '0x1.0000000000000p-1'}, None, 'x']}
    """
    kind = type(value)
    if _is_itself(value, NotStorable):
        return value
    tagged = _TAGGED.get(kind)
    if tagged is not None:
        return tagged(value)
    if depth > _DEEPEST:
        raise NotStorable("a value that is nested too deeply")
    if kind is list:
        return [to_json(each, other, depth + 1) for each in value]
    if kind is tuple:
        return {"tuple": [to_json(each, other, depth + 1) for each in value]}
    if kind is torch.Size:
        return {"size": [to_json(each, other, depth + 1) for each in value]}
    if kind is slice:
        return {
            "slice": [
                to_json(each, other, depth + 1) for each in (value.start, value.stop, value.step)
            ]
        }
    if other is not None:
        return other(value)
    raise NotStorable(f"a value of class {kind.__module__}.{kind.__qualname__}")


def from_json(data: Json, other: Callable[[str, Json], Any] | None = None, depth: int = 0) -> Any:
    """Return the value that :func:`to_json` wrote.

    Args:
        data: what was written.
        other: returns the value of another tag.
        depth: how deep it is nested.

    Raises:
        EntryError: it is no such thing.

    >>> from_json(to_json((1, float("-inf"), slice(None, 3), torch.int64)))
    (1, -inf, slice(None, 3, None), torch.int64)
    """
    kind = type(data)
    if _is_itself(data, EntryError):
        return data
    if depth > _DEEPEST:
        raise EntryError("a value that is nested too deeply")
    if kind is list:
        return [from_json(each, other, depth + 1) for each in data]
    if kind is not dict or len(data) != 1:
        raise EntryError(f"not a value: {str(data)[:80]}")
    ((tag, inner),) = data.items()
    try:
        if tag in ("tuple", "size", "slice"):
            items = [from_json(each, other, depth + 1) for each in list_of(inner)]
            if tag == "slice" and len(items) != 3:
                raise EntryError("a slice has three parts")
            return (
                tuple(items)
                if tag == "tuple"
                else torch.Size(items)
                if tag == "size"
                else slice(*items)
            )
        read = _READERS.get(tag)
        if read is not None:
            return read(inner)
    except (ValueError, TypeError, KeyError, RuntimeError, OverflowError, binascii.Error) as error:
        raise EntryError(f"not a {tag}: {str(inner)[:80]}") from error
    if other is not None:
        return other(tag, inner)
    raise EntryError(f"unknown kind of value: {str(tag)[:80]}")


def _is_itself(value: Any, error: type[Exception]) -> bool:
    """Return whether a value is its own JSON; raise ``error`` for an integer that is too large to
    be written.
    """
    kind = type(value)
    if kind is int and abs(value) >= LARGEST_INTEGER:
        raise error("an integer of more than 4096 bits")
    return kind is str or kind is int or kind is bool or value is None


def list_of(data: Json, most: int = 1_000_000) -> list[Json]:
    """Check that data are a list of at most so many items; return it."""
    if type(data) is not list or len(data) > most:
        raise EntryError(f"a list of at most {most} items is needed, not {str(data)[:80]}")
    return data


def exactly(data: Json, count: int) -> list[Json]:
    """Check that data are a list of exactly so many items; return it."""
    if type(data) is not list or len(data) != count:
        raise EntryError(f"a list of {count} items is needed, not {str(data)[:80]}")
    return data


def label_of(data: Json) -> str:
    """Check that data are a text; return it in one line without control characters, for display
    only.
    """
    return printable(text_of(data))


def text_of(data: Json, most: int = 100_000) -> str:
    """Check that data are a text; return it."""
    if type(data) is not str or len(data) > most:
        raise EntryError(f"a text is needed, not {str(data)[:80]}")
    return data


def integer_of(data: Json, low: int = 0, high: int = 1 << 62) -> int:
    """Check that data are an integer from ``low`` up to, not including, ``high``; return it."""
    if type(data) is not int or not low <= data < high:
        raise EntryError(f"an integer from {low} up to {high} is needed, not {str(data)[:80]}")
    return data


def fields_of(data: Json, *names: str) -> list[Json]:
    """Return the values of an object with exactly these members."""
    if type(data) is not dict or data.keys() != set(names):
        found = sorted(map(str, data))[:12] if type(data) is dict else type(data).__name__
        raise EntryError(f"an object with {', '.join(names)} is needed, not {found}")
    return [data[name] for name in names]


def _float(data: Json) -> float:
    if data in ("nan", "-nan"):
        return math.copysign(math.nan, -1.0 if data == "-nan" else 1.0)
    return float.fromhex(text_of(data, 64))


_READERS: dict[str, Callable[[Json], Any]] = {
    "float": _float,
    "complex": lambda data: complex(*(_float(each["float"]) for each in list_of(data, 2))),
    "bytes": lambda data: base64.b64decode(text_of(data, 1 << 24), validate=True),
    "dtype": lambda data: _DTYPES[data],
    "device": lambda data: torch.device(text_of(data, 64)),
    "layout": lambda data: _LAYOUTS[data],
    "memory_format": lambda data: _FORMATS[data],
    "ellipsis": lambda data: ...,
}


# -- Formulas as JSON: each integer term once, in a table that everything else refers to.
_DEEPEST_FLOAT = 64


class TermsWriter:
    """The table while it is written.

    Attributes:
        written: the terms as JSON.
    """

    def __init__(self) -> None:
        self.written: list[Json] = []
        self._numbers: dict[Term, int] = {}

    def term(self, term: Term) -> int:
        """Return the number of a term."""
        found = self._numbers.get(term)
        if found is None:
            found = self._numbers[term] = len(self.written)
            self.written.append(term_to_json(term))
        return found

    def float_term(self, value: FloatTerm) -> Json:
        """Return a float term as JSON."""
        if value.op == "symbol":
            return ["symbol", value.symbol]
        return [value.op, *map(self._operand, value.args)]

    def _operand(self, value: Any) -> Json:
        if isinstance(value, FloatTerm):
            return {"float_term": self.float_term(value)}
        return {"term": self.term(value)} if isinstance(value, Term) else to_json(value)

    def number(self, value: Any) -> Json:
        """Return a size, or another number of a program, as JSON: plain, a term, or a float
        term.
        """
        if isinstance(value, Term):
            return {"term": self.term(value)}
        if isinstance(value, FloatTerm):
            return {"float_term": self.float_term(value)}
        term = getattr(value, "term", None)
        return {"term": self.term(term)} if isinstance(term, Term) else to_json(value)


class TermsReader:
    """The table while it is read.

    Raises:
        EntryError: (all methods) it is none, or there is no such term.
    """

    def __init__(self, data: Json) -> None:
        try:
            self._terms = [term_from_json(each) for each in list_of(data)]
        except GuardsError as error:
            raise EntryError(f"a formula is wrong: {error}") from error

    def term(self, number: Json) -> Term:
        """Return the term of a number."""
        return self._terms[integer_of(number, 0, len(self._terms))]

    def float_term(self, data: Json, depth: int = 0) -> FloatTerm:
        """Return a float term."""
        op, *args = list_of(data, 8)
        if depth > _DEEPEST_FLOAT or not args:
            raise EntryError("a float term that is nested too deeply, or empty")
        if op == "symbol":
            return FloatTerm("symbol", (), text_of(args[0], 64))
        if type(op) is not str or op not in FUNCTIONS:
            raise EntryError(f"unknown function of floats: {str(op)[:80]}")
        found = tuple(self._operand(each, depth + 1) for each in args)
        if len(found) != FUNCTIONS[op][1].count("{"):
            raise EntryError(f"{op} of {len(found)} numbers")
        return FloatTerm(op, found)

    def _operand(self, data: Json, depth: int) -> Any:
        if type(data) is dict and data.keys() == {"float_term"}:
            return self.float_term(data["float_term"], depth)
        if type(data) is dict and data.keys() == {"term"}:
            return self.term(data["term"])
        value = from_json(data)
        if type(value) is not float and type(value) is not int:
            raise EntryError(f"not a number: {str(data)[:80]}")
        return value

    def tagged(self, tag: str, inner: Json) -> Any:
        """Return the value under the tags ``term`` and ``float_term``, for
        ``constants.from_json``.
        """
        if tag == "term":
            return self.term(inner)
        if tag == "float_term":
            return self.float_term(inner)
        raise EntryError(f"unknown kind of value: {str(tag)[:80]}")


# -- Nestings of arguments and results (torch's pytrees) as JSON.
_PLAIN: dict[str, type] = {
    "tuple": tuple,
    "list": list,
    "dict": dict,
    "ordered": OrderedDict,
    "size": torch.Size,
}
_NAMES = {kind: name for name, kind in _PLAIN.items()}
_DEEPEST_TREE = 64


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
    if depth > _DEEPEST_TREE:
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
