"""Code that tells what it reads: a function's bytecode with a call of ours at each look-up of a name or an attribute.

What the code computes, its line numbers and its exceptions stay the same.  Only look-ups are replaced: a global name,
an attribute, an import; and a note is left where a function begins.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import attrs
from bytecode import Bytecode, ConcreteBytecode, ConcreteInstr, Instr, Label, SetLineno
from bytecode.instr import TryBegin, TryEnd

_VERSION = sys.version_info[:2]
_NULL_LAST = _VERSION >= (3, 13)  # where a call expects its NULL: after the function, or before it
_PRECALL = _VERSION < (3, 12)
_Item = Instr | Label | SetLineno | TryBegin | TryEnd


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
        is_same: with the operands of ``is``.
        subject: with what a class pattern of ``match`` looks at; answers what it is to look at.
    """

    enter: Callable[[types.CodeType], None]
    load_global: Callable[[str], Any]
    load_attr: Callable[[Any, str], Any]
    load_super: Callable[[Any, Any, Any, str], Any]
    loaded: Callable[[Any, str], Any]
    imported: Callable[[Any, Any, str], Any]
    store_attr: Callable[[Any, str], None]
    is_same: Callable[[Any, Any], bool]
    subject: Callable[[Any], Any]


_MOST_KEPT = 1024
_kept: dict[int, tuple[types.CodeType, types.CodeType]] = {}
"""By ``id``: the code and what was made of it (equal code may be of different files)."""


def instrumented(code: types.CodeType, hooks: Hooks) -> types.CodeType:
    """The code with calls of the hooks, for the function's own code and the functions that it defines.

    Code that is instrumented already stays as it is.
    """
    found = _kept.get(id(code))
    if found is not None:
        return found[1]
    if is_instrumented(code, hooks):
        return code
    made = _rewritten(code, hooks)
    while len(_kept) >= _MOST_KEPT:
        del _kept[next(iter(_kept))]
    _kept[id(code)] = code, made
    return made


def is_instrumented(code: types.CodeType, hooks: Hooks) -> bool:
    """Whether this code has calls of the hooks in it."""
    return any(each is hooks.enter for each in code.co_consts)


def _rewritten(code: types.CodeType, hooks: Hooks) -> types.CodeType:
    source = Bytecode.from_code(code)
    out: list[_Item] = []
    entered = False
    for item in source:
        if not isinstance(item, Instr):
            out.append(item)
            continue
        out += _replaced(item, hooks)
        if item.name == "RESUME" and not entered:
            entered = True
            out += _call(hooks.enter, [Instr("LOAD_CONST", code, location=item.location)], item)
            out.append(Instr("POP_TOP", location=item.location))
    source[:] = out
    concrete = source.to_concrete_bytecode()
    return concrete.to_code().replace(co_linetable=_line_table(concrete, code.co_firstlineno))


_LINE, _NO_LINE = 13, 15  # kinds of entries: a line without columns, no line
_LONGEST = 8  # code units of an entry


def _line_table(concrete: ConcreteBytecode, first_line: int) -> bytes:
    """The table of lines, exactly as long as the code.

    (That of ``bytecode`` 0.19.1 can be longer, and a table that is longer than its code lets CPython write past the end
    of its memory as soon as a profiler or debugger asks for lines.)  The format is that of CPython's
    ``Objects/locations.md``, for which lines suffice.
    """
    runs: list[tuple[int | None, int]] = []
    line: int | None = None
    for item in concrete:
        if not isinstance(item, ConcreteInstr):
            continue
        if item.location is not None:
            line = item.location.lineno
        units = item.size // 2
        if runs and runs[-1][0] == line:
            runs[-1] = line, runs[-1][1] + units
        else:
            runs.append((line, units))
    table = bytearray()
    before = first_line
    for line, units in runs:
        while units:
            length = min(units, _LONGEST)
            units -= length
            table.append(0x80 | (_NO_LINE if line is None else _LINE) << 3 | length - 1)
            if line is not None:
                table.extend(_signed(line - before))
                before = line
    return bytes(table)


def _signed(value: int) -> Iterator[int]:
    """A signed number, six bits a byte."""
    value = (-value << 1) | 1 if value < 0 else value << 1
    while value >= 64:
        yield 0x40 | value & 63
        value >>= 6
    yield value


def _replaced(item: Instr, hooks: Hooks) -> Iterator[_Item]:
    name, at = item.name, item.location
    arg: Any = item.arg
    if name == "LOAD_GLOBAL":
        called, key = arg
        if called and not _NULL_LAST:
            yield Instr("PUSH_NULL", location=at)
        yield from _call(hooks.load_global, [Instr("LOAD_CONST", key, location=at)], item)
        if called and _NULL_LAST:
            yield Instr("PUSH_NULL", location=at)
    elif name in ("LOAD_ATTR", "LOAD_METHOD"):
        called, key = (name == "LOAD_METHOD", arg) if isinstance(arg, str) else arg
        yield from _call_on_top(hooks.load_attr, [key], item, 1)
        yield from _as_method(called, item)
    elif name == "LOAD_SUPER_ATTR":
        called, _, key = arg
        yield from _call_on_top(hooks.load_super, [key], item, 3)
        yield from _as_method(called, item)
    elif name == "IMPORT_NAME":
        yield item
        yield from _call_on_top(hooks.loaded, [arg], item, 1)
    elif name == "IMPORT_FROM":
        yield Instr("COPY", 1, location=at)
        yield item  # module, module, value
        yield from _call_on_top(hooks.imported, [arg], item, 2)
    elif name in ("STORE_ATTR", "DELETE_ATTR"):
        depth = 3  # below NULL and the function
        copies = [Instr("COPY", depth, location=item.location), Instr("LOAD_CONST", arg, location=at)]
        yield from _call(hooks.store_attr, copies, item)
        yield Instr("POP_TOP", location=at)
        yield item
    elif name == "IS_OP":
        yield from _call_on_top(hooks.is_same, [], item, 2)
        if arg:
            yield Instr("UNARY_NOT", location=at)
    elif name == "MATCH_CLASS":  # above the subject: the class, and the names of its attributes
        yield Instr("SWAP", 3, location=at)
        yield from _call_on_top(hooks.subject, [], item, 1)
        yield Instr("SWAP", 3, location=at)
        yield item
    elif name == "LOAD_CONST" and isinstance(arg, types.CodeType):
        yield Instr(name, instrumented(arg, hooks), location=at)
    else:
        yield item


def _as_method(called: bool, item: Instr) -> Iterator[Instr]:
    """Above a value: as the call that follows expects what it calls."""
    if called:
        yield Instr("PUSH_NULL", location=item.location)
        if not _NULL_LAST:
            yield Instr("SWAP", 2, location=item.location)


def _call(function: Any, arguments: list[Instr], item: Instr) -> Iterator[Instr]:
    """A call whose arguments are pushed by instructions."""
    at = item.location
    head = [Instr("LOAD_CONST", function, location=at), Instr("PUSH_NULL", location=at)]
    yield from head if _NULL_LAST else reversed(head)
    yield from arguments
    yield from _ending(len(arguments), item)


def _call_on_top(function: Any, constants: list[Any], item: Instr, taken: int) -> Iterator[Instr]:
    """A call with the ``taken`` topmost values, which it replaces, and constants."""
    at = item.location
    yield Instr("LOAD_CONST", function, location=at)
    yield Instr("PUSH_NULL", location=at)
    if not _NULL_LAST:
        yield Instr("SWAP", 2, location=at)
    yield from _turn(taken, at)
    for constant in constants:
        yield Instr("LOAD_CONST", constant, location=at)
    yield from _ending(taken + len(constants), item)


def _turn(taken: int, at: Any) -> Iterator[Instr]:
    """From ``v1 … vn, a, b`` to ``a, b, v1 … vn``."""
    order = [*range(taken), "a", "b"]
    wanted: list[Any] = ["a", "b", *range(taken)]
    for depth in range(len(order)):  # fill from the bottom: exchange what belongs there with the top, then down
        if order[depth] == wanted[depth]:
            continue
        position = order.index(wanted[depth])
        top = len(order) - 1
        if position != top:
            order[position], order[top] = order[top], order[position]
            yield Instr("SWAP", top - position + 1, location=at)
        if depth != top:
            order[depth], order[top] = order[top], order[depth]
            yield Instr("SWAP", top - depth + 1, location=at)


def _ending(count: int, item: Instr) -> Iterator[Instr]:
    if _PRECALL:
        yield Instr("PRECALL", count, location=item.location)
    yield Instr("CALL", count, location=item.location)
