"""Digests of code: of its instructions, names and constants; not of its file, line numbers or
docstrings.

Two functions with equal digests do the same with equal surroundings. All constants count except a
docstring, unless code asks for ``__doc__`` (see :func:`reads_documentation`).
"""

from __future__ import annotations

import hashlib
import opcode
import types
from collections.abc import Iterable, Iterator
from typing import Any

from symshape.calls.constant_keys import digits
from symshape.tracing.state.instrument.bytecode import instructions

_WITH_CONSTANT = frozenset(opcode.hasconst)
_CONTAINS = opcode.opmap["CONTAINS_OP"]
_MAKES_SETS = frozenset(
    opcode.opmap[name] for name in ("BUILD_SET", "SET_ADD", "SET_UPDATE") if name in opcode.opmap
)
_MOST_KEPT = 8192
_LOADS_OF_FIRST = tuple(bytes((each, 0)) for each in sorted(_WITH_CONSTANT) if each < 256)
_kept: dict[int, tuple[types.CodeType, str]] = {}


def code_digest(code: types.CodeType) -> str:
    """Return the digest of code and of the code nested in it.

    >>> functions = (lambda x: x + 1), (lambda x: x + 1), (lambda x: x + 2)
    >>> one, other, third = (code_digest(each.__code__) for each in functions)
    >>> one == other, one == third
    (True, False)
    """
    found = _kept.get(id(code))
    if found is None:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        text = "\x00".join(_parts(code))
        found = _kept[id(code)] = (
            code,
            hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        )
    return found[1]


def _parts(code: types.CodeType) -> Iterator[str]:
    yield (
        f"{code.co_name} {code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount} "
        f"{code.co_flags}"
    )
    yield from ("names", *code.co_names, "variables", *code.co_varnames, "cells", *code.co_cellvars)
    yield from (
        "free",
        *code.co_freevars,
        "exceptions",
        code.co_exceptiontable.hex(),
        code.co_code.hex(),
    )
    sets = [each for each in code.co_consts if type(each) is frozenset]
    unordered = _only_looked_in(code) if sets else frozenset()
    for position, each in enumerate(code.co_consts):
        if position or not (each is None or type(each) is str) or _loads_first(code.co_code):
            yield _constant(each, ordered=position not in unordered)


def _loads_first(units: bytes) -> bool:
    """Return whether an instruction may load the first constant, which is the docstring of a
    function that has one.
    """
    for pair in _LOADS_OF_FIRST:
        at = units.find(pair)
        while at & 1:  # found in the middle of two units, or -1
            if at == -1:
                break
            at = units.find(pair, at + 1)
        else:
            return True
    return False


def _only_looked_in(code: types.CodeType) -> frozenset[int]:
    """Return the constants that are loaded only as the right side of ``in``."""
    found = list(instructions(code.co_code))
    looked: set[int] = set()
    used: set[int] = set()
    for each, after in zip(found, [*found[1:], None], strict=True):
        if each.opcode in _WITH_CONSTANT:
            (looked if after is not None and after.opcode == _CONTAINS else used).add(each.arg)
    return frozenset(looked - used)


def _constant(value: Any, ordered: bool) -> str:
    if isinstance(value, types.CodeType):
        return f"code {code_digest(value)}"
    if type(value) is tuple:
        return "(" + ", ".join(_constant(each, ordered) for each in value) + ")"
    # code that loops over it sees an order, which may change with each process
    if type(value) is frozenset:
        items = [_constant(each, ordered) for each in value]
        return "{" + ", ".join(items if ordered else sorted(items)) + "}"
    text = digits(value) if type(value) is float else repr(value)
    if type(value) is complex:
        text = f"{digits(value.real)} {digits(value.imag)}"
    return f"{type(value).__name__} {len(text)} {text}"


def nested(codes: Iterable[types.CodeType]) -> Iterator[types.CodeType]:
    """Yield these code objects and those nested in them."""
    for code in codes:
        yield code
        yield from nested(each for each in code.co_consts if isinstance(each, types.CodeType))


def makes_sets(code: types.CodeType) -> bool:
    """Return whether code makes sets of computed values, whose order depends on the process."""
    return any(
        op in _MAKES_SETS for _, _, op, _ in instructions(code.co_code)
    ) or not _SETS.isdisjoint(code.co_names)


def reads_documentation(code: types.CodeType) -> bool:
    """Return whether code may ask for a docstring."""
    return "__doc__" in code.co_names or "getdoc" in code.co_names or "__doc__" in code.co_consts


_SETS = frozenset({"set", "frozenset"})
