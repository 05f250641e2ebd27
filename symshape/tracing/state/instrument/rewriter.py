"""Instrumentation of bytecode: calls of hooks at each look-up of a global name or an attribute.

The results of the code, its line numbers and its exceptions stay the same.  Only look-ups are
replaced (global names, attributes, imports), and a call is added at the beginning of a function.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dis import HAVE_ARGUMENT, stack_effect
from opcode import opmap
from typing import Any

import attrs

from symshape.errors import Reason, UnsupportedError
from symshape.tracing.state.instrument.bytecode import (
    CACHES,
    CHECKED_VERSIONS,
    JUMPS,
    Instruction,
    encoded,
    instructions,
    is_checked,
    pattern,
    reassembled,
)

# -- Find the instruction that loads a called function that is neither a name nor an attribute: a
# variable, an item.
NULL_LAST = sys.version_info >= (3, 13)
"""A flag: a call expects its NULL after the function (Python 3.13), not before the function."""
CALLABLE = {
    opmap[name]
    for name in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "BINARY_SUBSCR")
    if name in opmap
}
"""The opcodes that may load a called function that is neither a name nor an attribute."""
_PUSH_NULL, _BINARY_SUBSCR = opmap["PUSH_NULL"], opmap["BINARY_SUBSCR"]
_LOAD_GLOBAL = opmap["LOAD_GLOBAL"]
_CALLS_NULL = {opmap["CALL"], opmap.get("PRECALL", opmap["CALL"])}
_ENDS = {
    opmap[name]
    for name in ("RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "YIELD_VALUE", "CALL_FUNCTION_EX")
}


def with_called(units: bytes, found: list[Instruction]) -> list[Instruction]:
    """Return ``found`` and the instructions that load a called function from a variable or from an
    item of a list.

    Before Python 3.13, a NULL is pushed first, also by the load of a global name.  The called
    function is then left by the last instruction that leaves one value above that NULL.  Since
    Python 3.13, the NULL follows the function.
    """
    if NULL_LAST:
        return found
    nulls = {each.start: 0 for each in found if each.opcode == _PUSH_NULL}
    if _BINARY_SUBSCR in units[::2]:
        nulls |= {each.start: 1 for each in found if each.opcode == _LOAD_GLOBAL and each.arg & 1}
    if not nulls:
        return found
    every = instructions(units)
    places = {each.start: number for number, each in enumerate(every)}
    callees = {_callee(every, places[start] + 1, above) for start, above in nulls.items()}
    rest = [each for each in found if each.opcode != _PUSH_NULL and each not in callees]
    return sorted([*rest, *(each for each in callees if each is not None)])


def _callee(every: list[Instruction], first: int, depth: int) -> Instruction | None:
    """Return the instruction that loads the function of the call that takes a NULL pushed earlier.

    The answer is None if another kind of instruction loads the function, or if the load is not
    found.

    Args:
        every: all instructions of the code.
        first: the number of the first instruction to look at.
        depth: how many values are above the NULL before that instruction.
    """
    last = None
    for number in range(first, len(every)):
        each = every[number]
        if each.opcode in _CALLS_NULL and depth - each.arg == 1:
            return last if last is not None and last.opcode in CALLABLE else None
        if each.opcode in JUMPS or each.opcode in _ENDS:
            return None
        depth += stack_effect(each.opcode, each.arg if each.opcode >= HAVE_ARGUMENT else None)
        if depth < 1:
            return None
        if depth == 1:
            last = each
    return None


_VERSION = sys.version_info[:2]
_PRECALL = _VERSION < (3, 12)
_MORE_STACK = 5
"""Extra stack slots.  Before an instruction the stack is at most as deep as the code declares, and
no inserted block has more than five values above that: NULL, a hook and at most three arguments.
"""


@attrs.frozen
class Hooks:
    """The functions that instrumented code calls.

    Attributes:
        enter: called with the original code when a function begins.
        load_global: called with the name; returns the value.
        load_attr: called with the object and the name; returns the attribute.
        load_super: called with ``super``, the class, the object and the name; returns the
            attribute.
        importing: called with the level and the name of an import that is about to be done.
        importing_from: called with the module and the name of a ``from`` import that is about to be
            done.
        loaded: called with a module and the name that it was imported by; returns the module.
        imported: called with the module, the value and the name of a ``from`` import; returns the
            value to use.
        store_attr: called with an object and the name of an attribute that is about to be set.
        store_global: called with the name of a global that is about to be set.
        delete_attr: called with an object and the name of an attribute that is about to be deleted,
            if it exists.
        delete_global: called with the name of a global that is about to be deleted, if it exists.
        is_same: called with the operands of ``is``.
        contains: called with the operands of ``in``.
        table: called with an object before ``.__dict__.get`` or ``in`` its ``__dict__``; returns
            the dictionary or a stand-in for it.
        table_item: called with an object and the key before ``.__dict__[key]``; returns the
            dictionary.
        table_of: called with an object before ``.__getattribute__("__dict__").get``; returns the
            function to call.
        super_table_of: called with ``super``, the class and the object in the same case; returns
            the function to call.
        get_of: called with the result of one of these, or any other object; returns its ``get``.
        subject: called with the subject of a class pattern of ``match``; returns the subject to
            match.
        matched: called with the subject of a pattern of ``match``, and the class that it is checked
            against.
        called: called with a function that is about to be called and was not loaded by a global
            name, or with ``int`` and the like; returns the function to call.
    """

    enter: Callable[[types.CodeType], None]
    load_global: Callable[[str], Any]
    load_attr: Callable[[Any, str], Any]
    load_super: Callable[[Any, Any, Any, str], Any]
    importing: Callable[[int, str], None]
    importing_from: Callable[[Any, str], None]
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
    matched: Callable[[Any, Any], None]
    called: Callable[[Any], Any]


CALLED_BY_NAME = frozenset(("bool", "int", "float", "map", "range"))
"""The names of classes that are replaced by substitutes where they are called, and only there."""
_CLASS_OF_FUNCTIONS = frozenset(("FunctionType", "LambdaType"))
"""The names of the class of functions, which is replaced where it is called, also as an attribute
of a module.
"""

_MOST_KEPT = 1024  # codes
_kept: dict[int, tuple[types.CodeType, types.CodeType]] = {}
"""By ``id`` of a code: the code and its instrumented form (equal codes may be from different
files).
"""


def instrumented(code: types.CodeType, hooks: Hooks) -> types.CodeType:
    """Return the code with calls of the hooks, also in the functions that it defines.

    Code that is instrumented already is returned unchanged.

    Raises:
        UnsupportedError: on a version of Python whose bytecode is not supported here.
    """
    found = _kept.get(id(code))
    if found is not None:
        return found[1]
    if is_instrumented(code, hooks):
        return code
    if not is_checked():
        versions = ", ".join(f"{major}.{minor}" for major, minor in CHECKED_VERSIONS)
        raise UnsupportedError(
            "symshape records what a function reads from its bytecode, which it supports for "
            f"CPython {versions}; "
            f"this is {sys.implementation.name} {sys.version.split()[0]}: run the program on a "
            "supported version",
            reason=Reason.INSTALLATION,
        )
    made = _rewritten(code, hooks)
    while len(_kept) >= _MOST_KEPT:
        del _kept[next(iter(_kept))]
    _kept[id(code)] = code, made
    return made


def is_instrumented(code: types.CodeType, hooks: Hooks) -> bool:
    """Return whether this code contains calls of the hooks."""
    return any(each is hooks.enter for each in code.co_consts)


def original_of(code: types.CodeType, hooks: Hooks) -> types.CodeType:
    """Return the code of the program that this code was instrumented from; code without hooks is
    returned unchanged.
    """
    constants = code.co_consts
    for number, each in enumerate(constants):
        if each is hooks.enter:
            # the argument of that hook: see ``_rewritten``
            found: types.CodeType = constants[number - 1]
            return found
    return code


_LOAD_CONST = opmap["LOAD_CONST"]
_RESUME = opmap["RESUME"]
_CONTAINS_OP = opmap["CONTAINS_OP"]


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


# -- the inserted instructions
def _op(name: str, arg: int = 0) -> bytes:
    return encoded(opmap[name], arg)


def _turn(taken: int) -> bytes:
    """Return the instructions that turn ``v1 … vn, function, NULL`` into a call's order: both, and
    then ``v1 … vn``.
    """
    order = [*range(taken), "function", "NULL"]
    wanted = [*(("function", "NULL") if NULL_LAST else ("NULL", "function")), *range(taken)]
    top = len(order) - 1
    made = b""
    # from the bottom up: swap the wanted value with the top, then the top into its place
    for depth in range(top):
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
"""The instructions that put a NULL where the following call expects it, beside the function on top
of the stack.
"""


class _Writer:
    """The writer of the instructions to insert into one code, with the constants that they need."""

    def __init__(self, code: types.CodeType, hooks: Hooks) -> None:
        self.names, self.hooks = code.co_names, hooks
        self.constants: list[Any] = [
            instrumented(each, hooks) if isinstance(each, types.CodeType) else each
            for each in code.co_consts
        ]
        self._loads: dict[Any, bytes] = {}
        self._code, self._gets = code, set[int]()
        self.start = self.end = 0

    def before_get(self, at: int) -> bool:
        """Return whether the unit loads ``.get`` of the top value for a call; if so, a hook will
        load that ``.get``.
        """
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
        """Return whether the attribute loaded here is called with ``"__dict__"``, followed by a
        load of ``.get``.
        """
        units, at = self._code.co_code, self.end
        if units[2 * at] != _LOAD_CONST or self._code.co_consts[units[2 * at + 1]] != "__dict__":
            return False
        for call in [("PRECALL", 1), ("CALL", 1)] if _PRECALL else [("CALL", 1)]:
            at += 1 + CACHES[units[2 * at]]
            if units[2 * at : 2 * at + 2] != bytes((opmap[call[0]], call[1])):
                return False
        return self.before_get(at + 1 + CACHES[units[2 * at]])

    def before_contains(self) -> bool:
        """Return whether the next instruction is ``in`` with the loaded value as its container."""
        return self._code.co_code[2 * self.end] == _CONTAINS_OP

    def before_item(self) -> str | None:
        """Return the string key with which the loaded value is subscripted next; None if it is
        not.
        """
        units, at = self._code.co_code, self.end
        if units[2 * at] != _LOAD_CONST:
            return None
        key = self._code.co_consts[units[2 * at + 1]]
        return key if type(key) is str and units[2 * at + 2] == _BINARY_SUBSCR else None

    def is_get(self) -> bool:
        """Return whether this instruction loads ``get`` of a value that a hook returned."""
        return self.start in self._gets

    def load_new(self, constant: Any) -> bytes:
        """Return an instruction that loads a constant which is added to the code."""
        number = len(self.constants)
        self.constants.append(constant)
        return _LOADS[number] if number < 256 else encoded(_LOAD_CONST, number)

    def load(self, constant: Any) -> bytes:
        """Return an instruction that loads a name or a hook; each is added to the constants
        once.
        """
        found = self._loads.get(constant)
        if found is None:
            found = self._loads[constant] = self.load_new(constant)
        return found

    def call(self, hook: Any, arguments: list[bytes]) -> bytes:
        """Return a call of a hook whose arguments are pushed by instructions."""
        head = self.load(hook) + _NULL if NULL_LAST else _NULL + self.load(hook)
        return head + b"".join(arguments) + _CALLS[len(arguments)]

    def call_on_top(self, hook: Any, taken: int, name: str | None = None) -> bytes:
        """Return a call of a hook with the ``taken`` topmost values, which it replaces, and perhaps
        a name.
        """
        if name is None:
            return self.load(hook) + _TURNS[taken] + _CALLS[taken]
        return self.load(hook) + _TURNS[taken] + self.load(name) + _CALLS[taken + 1]


_Write = Callable[[_Writer, int, bytes], bytes]
"""The type of functions that write the replacement of an instruction from its argument and its own
units.
"""


def _load_global(to: _Writer, arg: int, own: bytes) -> bytes:
    name = to.names[arg >> 1]
    call = to.call(to.hooks.load_global, [to.load(name)])
    if not arg & 1:
        return call
    if name in CALLED_BY_NAME or name in _CLASS_OF_FUNCTIONS:
        call += to.call_on_top(to.hooks.called, 1)
    return call + _NULL if NULL_LAST else _NULL + call


def _load_attr(to: _Writer, arg: int, own: bytes) -> bytes:
    if _VERSION < (3, 12):
        return _attribute(to, to.names[arg])
    call = _attribute(to, to.names[arg >> 1])
    return _as_method(to, to.names[arg >> 1], call) if arg & 1 else call


def _load_method(to: _Writer, arg: int, own: bytes) -> bytes:
    return _as_method(to, to.names[arg], _attribute(to, to.names[arg]))


def _as_method(to: _Writer, name: str, call: bytes) -> bytes:
    """Return the instructions that load an attribute for a call of it."""
    if name in _CLASS_OF_FUNCTIONS:
        call += to.call_on_top(to.hooks.called, 1)
    return call + _AS_METHOD


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
    level = _op("COPY", 4)  # below the names, the NULL and the function
    before = to.call(to.hooks.importing, [level, to.load(to.names[arg])]) + _POP
    return before + own + to.call_on_top(to.hooks.loaded, 1, to.names[arg])


def _import_from(
    to: _Writer, arg: int, own: bytes
) -> bytes:  # the stack in between: module, module, value
    module = _op("COPY", 3)  # below the NULL and the function
    before = to.call(to.hooks.importing_from, [module, to.load(to.names[arg])]) + _POP
    return before + _op("COPY", 1) + own + to.call_on_top(to.hooks.imported, 2, to.names[arg])


def _before_attr(hook: str) -> _Write:
    """Return a writer that calls a hook with the owner and the name before the instruction."""

    def write(to: _Writer, arg: int, own: bytes) -> bytes:
        owner = _op("COPY", 3)  # below the NULL and the function
        return to.call(getattr(to.hooks, hook), [owner, to.load(to.names[arg])]) + _POP + own

    return write


def _before_global(hook: str) -> _Write:
    """Return a writer that calls a hook with the name before the instruction."""
    return lambda to, arg, own: (
        to.call(getattr(to.hooks, hook), [to.load(to.names[arg])]) + _POP + own
    )


def _answered(hook: str) -> _Write:
    """Return a writer of a hook's answer for two operands, which the argument may negate."""

    def write(to: _Writer, arg: int, own: bytes) -> bytes:
        call = to.call_on_top(getattr(to.hooks, hook), 2)
        return call + _NOT if arg else call

    return write


def _match_class(
    to: _Writer, arg: int, own: bytes
) -> bytes:  # the subject is below the class and the names
    checked = to.call(to.hooks.matched, [_op("COPY", 5), _op("COPY", 5)]) + _POP
    return checked + _op("SWAP", 3) + to.call_on_top(to.hooks.subject, 1) + _op("SWAP", 3) + own


def _match_kind(kind: type) -> _Write:
    """Return a writer that calls a hook with the subject of a pattern and the class of its kind."""
    return lambda to, arg, own: (
        to.call(to.hooks.matched, [_op("COPY", 3), to.load(kind)]) + _POP + own
    )


def _called(
    to: _Writer, arg: int, own: bytes
) -> bytes:  # the function is on top, before its NULL or after it
    call = to.call_on_top(to.hooks.called, 1)
    return call + own if NULL_LAST else own + call


_WRITERS: dict[str, _Write] = {
    "LOAD_GLOBAL": _load_global,
    "LOAD_ATTR": _load_attr,
    "LOAD_METHOD": _load_method,
    "LOAD_SUPER_ATTR": _load_super_attr,
    "IMPORT_NAME": _import_name,
    "IMPORT_FROM": _import_from,
    "STORE_ATTR": _before_attr("store_attr"),
    "DELETE_ATTR": _before_attr("delete_attr"),
    "STORE_GLOBAL": _before_global("store_global"),
    "DELETE_GLOBAL": _before_global("delete_global"),
    "IS_OP": _answered("is_same"),
    "CONTAINS_OP": _answered("contains"),
    "MATCH_CLASS": _match_class,
    "MATCH_MAPPING": _match_kind(Mapping),
    "MATCH_SEQUENCE": _match_kind(Sequence),
}
_REPLACED = {opmap[name]: write for name, write in _WRITERS.items() if opmap.get(name, 256) < 256}
"""By opcode, the function that writes the replacement of an instruction from its argument and its
own units.
"""
_CHANGED = pattern({*_REPLACED, *JUMPS, _RESUME, _PUSH_NULL})
_REPLACED |= dict.fromkeys((_PUSH_NULL,) if NULL_LAST else CALLABLE, _called)
