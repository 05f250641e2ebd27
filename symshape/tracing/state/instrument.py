"""Code that tells what it reads: a function's bytecode with a call of ours at each look-up of a name or an attribute.

What the code computes, its line numbers and its exceptions stay the same.  Only look-ups are replaced: a global name,
an attribute, an import; and a note is left where a function begins.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from opcode import opmap
from typing import Any

import attrs

from symshape.errors import UnsupportedError
from symshape.tracing.state.callees import CALLABLE, NULL_LAST, with_called
from symshape.tracing.state.code_units import (
    CACHES,
    CHECKED_VERSIONS,
    JUMPS,
    encoded,
    instructions,
    is_checked,
    pattern,
    reassembled,
)

_VERSION = sys.version_info[:2]
_PRECALL = _VERSION < (3, 12)
_MORE_STACK = 5
"""Before an instruction the stack holds at most what the code says that it needs, and no block of ours ever holds more
than five values above that: NULL, a hook and at most three arguments."""


@attrs.frozen
class Hooks:
    """What instrumented code calls.

    Attributes:
        enter: with the original code, when a function begins.
        load_global: with the name; answers the value.
        load_attr: with the object and the name; answers the attribute.
        load_super: with ``super``, the class, the object and the name; answers the attribute.
        loaded: with a module and the name that it was imported by; answers the module.
        imported: with the module, the value and the name of a ``from`` import; answers the value to use.
        store_attr: with an object and the name of an attribute that is about to be set.
        store_global: with the name of a global that is about to be set.
        delete_attr: with an object and the name of an attribute that is about to be deleted, if it is there.
        delete_global: with the name of a global that is about to be deleted, if it is there.
        is_same: with the operands of ``is``.
        contains: with the operands of ``in``.
        table: with an object whose ``__dict__`` is asked for a ``get``, or whether a name is in it; answers the
            dictionary, or what stands for it.
        table_item: with an object, and the name of which an item of its ``__dict__`` is taken; answers the dictionary.
        table_of: so too with an object whose ``__getattribute__`` is asked for it; answers what to call.
        super_table_of: so too with ``super``, the class and the object.
        get_of: with what one of these led to, or anything else; answers its ``get``.
        subject: with what a class pattern of ``match`` looks at; answers what it is to look at.
        called: with a function that stands in no global name and is called next, or with ``int`` or its like;
            answers what to call.
    """

    enter: Callable[[types.CodeType], None]
    load_global: Callable[[str], Any]
    load_attr: Callable[[Any, str], Any]
    load_super: Callable[[Any, Any, Any, str], Any]
    loaded: Callable[[Any, str], Any]
    imported: Callable[[Any, Any, str], Any]
    store_attr: Callable[[Any, str], None]
    store_global: Callable[[str], None]
    delete_attr: Callable[[Any, str], None]
    delete_global: Callable[[str], None]
    is_same: Callable[[Any, Any], bool]
    contains: Callable[[Any, Any], bool]
    table: Callable[[Any], Any]
    table_item: Callable[[Any, str], Any]
    table_of: Callable[[Any], Any]
    super_table_of: Callable[[Any, Any, Any], Any]
    get_of: Callable[[Any], Any]
    subject: Callable[[Any], Any]
    called: Callable[[Any], Any]


CALLED_BY_NAME = frozenset(("bool", "int", "float", "map", "range"))
"""Names of classes that mean something of ours where they are called, and themselves elsewhere."""

_MOST_KEPT = 1024
_kept: dict[int, tuple[types.CodeType, types.CodeType]] = {}
"""By ``id``: the code and what was made of it (equal code may be of different files)."""


def instrumented(code: types.CodeType, hooks: Hooks) -> types.CodeType:
    """The code with calls of the hooks, for the function's own code and the functions that it defines.

    Code that is instrumented already stays as it is.

    Raises:
        UnsupportedError: on a version of Python whose code is not known here.
    """
    found = _kept.get(id(code))
    if found is not None:
        return found[1]
    if is_instrumented(code, hooks):
        return code
    if not is_checked():
        versions = ", ".join(f"{major}.{minor}" for major, minor in CHECKED_VERSIONS)
        raise UnsupportedError(
            f"symshape sees what a function reads in its bytecode, which it knows of CPython {versions}; "
            f"this is {sys.implementation.name} {sys.version.split()[0]}: run the program on one of those"
        )
    made = _rewritten(code, hooks)
    while len(_kept) >= _MOST_KEPT:
        del _kept[next(iter(_kept))]
    _kept[id(code)] = code, made
    return made


def is_instrumented(code: types.CodeType, hooks: Hooks) -> bool:
    """Whether this code has calls of the hooks in it."""
    return any(each is hooks.enter for each in code.co_consts)


_LOAD_CONST, _PUSH_NULL = opmap["LOAD_CONST"], opmap["PUSH_NULL"]
_RESUME = opmap["RESUME"]
_CONTAINS_OP, _BINARY_SUBSCR = opmap["CONTAINS_OP"], opmap["BINARY_SUBSCR"]


def _rewritten(code: types.CodeType, hooks: Hooks) -> types.CodeType:
    units = code.co_code
    old = with_called(units, instructions(units, _CHANGED))
    writer = _Writer(code, hooks)
    blocks = []
    entry = (0, 0)
    for start, end, opcode, arg in old:
        own = units[2 * start : 2 * end]
        writer.start, writer.end = start, end
        write = _REPLACED.get(opcode)
        if write is not None:
            own = write(writer, arg, own)
        elif opcode == _RESUME and not entry[0]:
            call = writer.call(hooks.enter, [writer.load_new(code)]) + _POP
            entry = end, len(call) >> 1  # debuggers do not stop at the line of RESUME
            own += call
        blocks.append(own)
    return reassembled(code, old, blocks, tuple(writer.constants), _MORE_STACK, entry)


# -- what is inserted
def _op(name: str, arg: int = 0) -> bytes:
    return encoded(opmap[name], arg)


def _turn(taken: int) -> bytes:
    """From ``v1 … vn, function, NULL`` to what a call expects: both, in its order, and ``v1 … vn``."""
    order = [*range(taken), "function", "NULL"]
    wanted = [*(("function", "NULL") if NULL_LAST else ("NULL", "function")), *range(taken)]
    top = len(order) - 1
    made = b""
    for depth in range(top):  # fill from the bottom: exchange what belongs there with the top, then down
        for position in (order.index(wanted[depth]), depth):
            if order[depth] != wanted[depth] and position != top:
                order[position], order[top] = order[top], order[position]
                made += _op("SWAP", top - position + 1)
    return made


_NULL, _POP, _NOT = _op("PUSH_NULL"), _op("POP_TOP"), _op("UNARY_NOT")
_TURNS = [_NULL + _turn(taken) for taken in range(4)]
_CALLS = [(_op("PRECALL", count) if _PRECALL else b"") + _op("CALL", count) for count in range(5)]
_LOADS = [encoded(_LOAD_CONST, number) for number in range(256)]
_AS_METHOD = _NULL if NULL_LAST else _NULL + _op("SWAP", 2)
"""Above a value: as the call that follows expects what it calls."""


class _Writer:
    """What is inserted into one code, and the constants for it."""

    def __init__(self, code: types.CodeType, hooks: Hooks) -> None:
        self.names, self.hooks = code.co_names, hooks
        self.constants: list[Any] = [
            instrumented(each, hooks) if isinstance(each, types.CodeType) else each for each in code.co_consts
        ]
        self._loads: dict[Any, bytes] = {}
        self._code, self._gets = code, set[int]()
        self.start = self.end = 0

    def before_get(self, at: int) -> bool:
        """Whether ``.get`` of the topmost value is loaded at a unit, to be called; it is loaded by a hook then."""
        units = self._code.co_code
        opcode, arg = units[2 * at], units[2 * at + 1]
        names = self._code.co_names
        if _VERSION < (3, 12):
            found = opcode == opmap["LOAD_METHOD"] and names[arg] == "get"
        else:
            found = opcode == opmap["LOAD_ATTR"] and bool(arg & 1) and names[arg >> 1] == "get"
        if found:
            self._gets.add(at)
        return found

    def before_table(self) -> bool:
        """Whether what this instruction loads is called with ``"__dict__"``, of which ``.get`` is loaded then."""
        units, at = self._code.co_code, self.end
        if units[2 * at] != _LOAD_CONST or self._code.co_consts[units[2 * at + 1]] != "__dict__":
            return False
        for call in [("PRECALL", 1), ("CALL", 1)] if _PRECALL else [("CALL", 1)]:
            at += 1 + CACHES[units[2 * at]]
            if units[2 * at : 2 * at + 2] != bytes((opmap[call[0]], call[1])):
                return False
        return self.before_get(at + 1 + CACHES[units[2 * at]])

    def before_contains(self) -> bool:
        """Whether the next instruction asks what is in what this one loads."""
        return self._code.co_code[2 * self.end] == _CONTAINS_OP

    def before_item(self) -> str | None:
        """The name of the item that is taken next of what this instruction loads; None where another thing is done."""
        units, at = self._code.co_code, self.end
        if units[2 * at] != _LOAD_CONST:
            return None
        key = self._code.co_consts[units[2 * at + 1]]
        return key if type(key) is str and units[2 * at + 2] == _BINARY_SUBSCR else None

    def is_get(self) -> bool:
        """Whether this instruction loads ``get`` of what a hook answered."""
        return self.start in self._gets

    def load_new(self, constant: Any) -> bytes:
        """Loads a constant that was not there."""
        number = len(self.constants)
        self.constants.append(constant)
        return _LOADS[number] if number < 256 else encoded(_LOAD_CONST, number)

    def load(self, constant: Any) -> bytes:
        """Loads a name or a hook."""
        found = self._loads.get(constant)
        if found is None:
            found = self._loads[constant] = self.load_new(constant)
        return found

    def call(self, hook: Any, arguments: list[bytes]) -> bytes:
        """A call whose arguments are pushed by instructions."""
        head = self.load(hook) + _NULL if NULL_LAST else _NULL + self.load(hook)
        return head + b"".join(arguments) + _CALLS[len(arguments)]

    def call_on_top(self, hook: Any, taken: int, name: str | None = None) -> bytes:
        """A call with the ``taken`` topmost values, which it replaces, and a name."""
        if name is None:
            return self.load(hook) + _TURNS[taken] + _CALLS[taken]
        return self.load(hook) + _TURNS[taken] + self.load(name) + _CALLS[taken + 1]


def _load_global(to: _Writer, arg: int, own: bytes) -> bytes:
    name = to.names[arg >> 1]
    call = to.call(to.hooks.load_global, [to.load(name)])
    if not arg & 1:
        return call
    if name in CALLED_BY_NAME:
        call += to.call_on_top(to.hooks.called, 1)
    return call + _NULL if NULL_LAST else _NULL + call


def _load_attr(to: _Writer, arg: int, own: bytes) -> bytes:
    if _VERSION < (3, 12):
        return _attribute(to, to.names[arg])
    call = _attribute(to, to.names[arg >> 1])
    return call + _AS_METHOD if arg & 1 else call


def _load_method(to: _Writer, arg: int, own: bytes) -> bytes:
    return _attribute(to, to.names[arg]) + _AS_METHOD


def _attribute(to: _Writer, name: str) -> bytes:
    hooks = to.hooks
    if name == "get" and to.is_get():
        return to.call_on_top(hooks.get_of, 1)
    if name == "__dict__" and (to.before_get(to.end) or to.before_contains()):
        return to.call_on_top(hooks.table, 1)
    if name == "__dict__" and (key := to.before_item()) is not None:
        return to.call_on_top(hooks.table_item, 1, key)
    if name == "__getattribute__" and to.before_table():
        return to.call_on_top(hooks.table_of, 1)
    return to.call_on_top(hooks.load_attr, 1, name)


def _load_super_attr(to: _Writer, arg: int, own: bytes) -> bytes:
    name = to.names[arg >> 2]
    if name == "__getattribute__" and to.before_table():
        call = to.call_on_top(to.hooks.super_table_of, 3)
    else:
        call = to.call_on_top(to.hooks.load_super, 3, name)
    return call + _AS_METHOD if arg & 1 else call


def _import_name(to: _Writer, arg: int, own: bytes) -> bytes:
    return own + to.call_on_top(to.hooks.loaded, 1, to.names[arg])


def _import_from(to: _Writer, arg: int, own: bytes) -> bytes:  # in between: module, module, value
    return _op("COPY", 1) + own + to.call_on_top(to.hooks.imported, 2, to.names[arg])


def _store_attr(to: _Writer, arg: int, own: bytes) -> bytes:
    owner = _op("COPY", 3)  # below NULL and the function
    return to.call(to.hooks.store_attr, [owner, to.load(to.names[arg])]) + _POP + own


def _store_global(to: _Writer, arg: int, own: bytes) -> bytes:
    return to.call(to.hooks.store_global, [to.load(to.names[arg])]) + _POP + own


def _delete_attr(to: _Writer, arg: int, own: bytes) -> bytes:
    owner = _op("COPY", 3)
    return to.call(to.hooks.delete_attr, [owner, to.load(to.names[arg])]) + _POP + own


def _delete_global(to: _Writer, arg: int, own: bytes) -> bytes:
    return to.call(to.hooks.delete_global, [to.load(to.names[arg])]) + _POP + own


def _is_op(to: _Writer, arg: int, own: bytes) -> bytes:
    call = to.call_on_top(to.hooks.is_same, 2)
    return call + _NOT if arg else call


def _contains_op(to: _Writer, arg: int, own: bytes) -> bytes:
    call = to.call_on_top(to.hooks.contains, 2)
    return call + _NOT if arg else call


def _match_class(to: _Writer, arg: int, own: bytes) -> bytes:  # the subject is below the class and the names
    return _op("SWAP", 3) + to.call_on_top(to.hooks.subject, 1) + _op("SWAP", 3) + own


def _called(to: _Writer, arg: int, own: bytes) -> bytes:  # the function is on top, before its NULL or after it
    call = to.call_on_top(to.hooks.called, 1)
    return call + own if NULL_LAST else own + call


_WRITERS: dict[str, Callable[[_Writer, int, bytes], bytes]] = {
    "LOAD_GLOBAL": _load_global,
    "LOAD_ATTR": _load_attr,
    "LOAD_METHOD": _load_method,
    "LOAD_SUPER_ATTR": _load_super_attr,
    "IMPORT_NAME": _import_name,
    "IMPORT_FROM": _import_from,
    "STORE_ATTR": _store_attr,
    "DELETE_ATTR": _delete_attr,
    "STORE_GLOBAL": _store_global,
    "DELETE_GLOBAL": _delete_global,
    "IS_OP": _is_op,
    "CONTAINS_OP": _contains_op,
    "MATCH_CLASS": _match_class,
}
_REPLACED = {opmap[name]: write for name, write in _WRITERS.items() if opmap.get(name, 256) < 256}
"""By opcode: what writes the block for it, from its argument and its own units."""
_CHANGED = pattern({*_REPLACED, *JUMPS, _RESUME, _PUSH_NULL})
_REPLACED |= dict.fromkeys((_PUSH_NULL,) if NULL_LAST else CALLABLE, _called)
