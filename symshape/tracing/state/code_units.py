"""Code units, CPython's bytecode: read as instructions, and put together again with other ones in their places.

A unit is two bytes, an opcode and the low eight bits of its argument; ``EXTENDED_ARG`` before it gives higher bits, and
some instructions are followed by units that the interpreter uses as its cache.  Jumps, the table of exception handlers
and the table of lines count units, so all three are made anew.  The formats are those of CPython's
``Objects/locations.md`` and ``Objects/exception_handling_notes.txt``, as they are in Python 3.11 to 3.13.
"""

from __future__ import annotations

import dis
import opcode as opcodes
import re
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

CHECKED_VERSIONS = ((3, 11), (3, 12), (3, 13))
"""The versions of Python whose code this module is known to read and write."""
_EXTENDED_ARG = dis.EXTENDED_ARG


def _caches() -> list[int]:
    """By opcode: how many units of cache follow it."""
    counts: Any = getattr(opcodes, "_inline_cache_entries", {})
    if isinstance(counts, dict):  # by name, from 3.13 on
        counts = [counts.get(name, 0) for name in opcodes.opname]
    return [int(each) for each in counts[:256]] + [0] * (256 - len(counts))


_CACHES = _caches()
_JUMPS = {code: "BACKWARD" in opcodes.opname[code] for code in opcodes.hasjrel if code < 256}
"""Opcodes that jump, and whether they jump back."""


class Instruction(NamedTuple):
    """One instruction of code.

    Attributes:
        start: the unit where it begins, with ``EXTENDED_ARG``.
        end: the unit after it and its cache.
        opcode: what it does.
        arg: its whole argument.
    """

    start: int
    end: int
    opcode: int
    arg: int


_made = tuple.__new__  # half the time of Instruction(...), which is Python code


def is_checked() -> bool:
    """Whether this Python's code is one that can be read and written here."""
    return sys.version_info[:2] in CHECKED_VERSIONS and sys.implementation.name == "cpython"


def instructions(units: bytes) -> list[Instruction]:
    """The instructions of ``co_code``, in order."""
    found = []
    start = at = arg = 0
    size = len(units) >> 1
    opcodes, args = units[::2], units[1::2]
    while at < size:
        opcode = opcodes[at]
        arg = arg << 8 | args[at] if arg else args[at]
        at += 1
        if opcode != _EXTENDED_ARG:
            at += _CACHES[opcode]
            found.append(_made(Instruction, (start, at, opcode, arg)))
            start, arg = at, 0
    return found


def encoded(opcode: int, arg: int = 0, least: int = 0) -> bytes:
    """The units of an instruction, its cache empty; ``least`` is how many ``EXTENDED_ARG`` it has at least."""
    if arg < 256 and not least:
        return bytes((opcode, arg)) + bytes(2 * _CACHES[opcode])
    extended = max(least, (arg.bit_length() - 1) // 8)
    head = b"".join(bytes((_EXTENDED_ARG, arg >> 8 * i & 255)) for i in range(extended, 0, -1))
    return head + bytes((opcode, arg & 255)) + bytes(2 * _CACHES[opcode])


def reassembled(
    code: types.CodeType,
    old: list[Instruction],
    blocks: list[bytes],
    constants: tuple[Any, ...],
    more_stack: int,
    of_next: tuple[int, int] = (0, 0),
) -> types.CodeType:
    """The code with a block of units in the place of each of its instructions.

    Args:
        code: where the instructions are from.
        old: all its instructions.
        blocks: for each, what stands there instead; that of a jump is the jump itself, which is made to lead where it
            led.  What led to an instruction leads to the beginning of its block, and the handlers and the line of an
            instruction are those of its whole block.  Changed in place.
        constants: the new ``co_consts``.
        more_stack: how many more values than before there may be on the stack.
        of_next: the unit after an old instruction, and how many of the last units of its block are of the line of the
            next one.
    """
    moved = _with_jumps(old, blocks)
    lines = moved.copy()
    lines[of_next[0]] -= of_next[1]
    return code.replace(
        co_code=b"".join(blocks),
        co_consts=constants,
        co_stacksize=code.co_stacksize + more_stack,
        co_exceptiontable=_exception_table(code.co_exceptiontable, moved),
        co_linetable=_line_table(code, lines),
    )


def _moved(old: list[Instruction], blocks: list[bytes]) -> list[int]:
    """By old unit (and the one after the last): the new one; inside an instruction, that of the next one."""
    moved = []
    at = 0
    for (start, end, _, _), length in zip(old, map(len, blocks), strict=True):
        moved.append(at)
        at += length >> 1
        inside = end - start - 1
        if inside:
            moved += [at] * inside
    moved.append(at)
    return moved


def _with_jumps(old: list[Instruction], blocks: list[bytes]) -> list[int]:
    """Sets the arguments of the jumps; a jump that grows moves what others jump to, so until none does."""
    jumps = []
    for i, each in enumerate(old):
        opcode = each[2]
        if opcode in _JUMPS:
            jumps.append((i, each, each.end - each.arg if _JUMPS[opcode] else each.end + each.arg))
    while True:
        moved = _moved(old, blocks)
        grown = False
        for i, each, target in jumps:
            before = len(blocks[i]) >> 1
            distance = abs(moved[target] - moved[each.end])
            blocks[i] = encoded(each.opcode, distance, before - 1 - _CACHES[each.opcode])
            grown = grown or len(blocks[i]) >> 1 != before
        if not grown:
            return moved


# -- the table of handlers: start, length, target and depth, each in sixes of bits, the highest first
_FIRST, _MORE, _SIX = 0x80, 0x40, 0x3F


def _exception_table(table: bytes, moved: list[int]) -> bytes:
    made = bytearray()
    numbers = _numbers(table)
    for start in numbers:
        length, target, depth = next(numbers), next(numbers), next(numbers)
        new_start = moved[start]
        first = len(made)
        for number in (new_start, moved[start + length] - new_start, moved[target], depth):
            for shift in range(max(number.bit_length() - 1, 0) // 6 * 6, -1, -6):
                made.append(number >> shift & _SIX | (_MORE if shift else 0))
        made[first] |= _FIRST
    return bytes(made)


def _numbers(table: bytes) -> Iterator[int]:
    number = 0
    for byte in table:
        number = number << 6 | byte & _SIX
        if not byte & _MORE:
            yield number
            number = 0


# -- the table of lines: entries of up to eight units, each begun by a byte with its highest bit set
_SHORT_FORMS = 10  # forms 0 to 9: the line of the entry before, and columns
_ONE_LINE = 10  # forms 10, 11 and 12: that many lines further, and columns
_NO_COLUMNS, _LONG, _NO_LINE = 13, 14, 15
_LONGEST = 8


_ENTRY = re.compile(rb"[\x80-\xff][\x00-\x7f]*")


def _line_table(code: types.CodeType, moved: list[int]) -> bytes:
    """The table of lines and columns, exactly as long as the code: CPython 3.11 reads on past a longer one."""
    made = bytearray()
    last = len(moved) - 1
    at = done = 0
    line = before = now = code.co_firstlineno
    for entry in _ENTRY.findall(code.co_linetable):
        first = entry[0]
        form, old_units = first >> 3 & 15, (first & 7) + 1
        begin = 1
        if form >= _ONE_LINE:
            if form < _NO_COLUMNS:
                now += form - _ONE_LINE
                form = _ONE_LINE
            elif form != _NO_LINE:
                step, begin = _line_step(entry)
                now += step
        at = min(at + old_units, last)
        units = moved[at] - done
        done = moved[at]
        as_it_was = units == old_units and line == before
        before = now
        if as_it_was:
            made += entry
            line = now
            continue
        columns = entry[begin:]
        while units > 0:
            length = min(units, _LONGEST)
            units -= length
            _append_location(made, form, columns, now - line, length)
            if form != _NO_LINE:
                line = now
    while done < moved[last]:  # the table was too short
        length = min(moved[last] - done, _LONGEST)
        done += length
        _append_location(made, _NO_LINE, b"", 0, length)
    return bytes(made)


def _line_step(entry: bytes) -> tuple[int, int]:
    """How many lines further an entry is that says so in sixes of bits, the lowest first; where its columns begin."""
    delta = shift = 0
    at, more = 1, _MORE
    while more:
        more = entry[at] & _MORE
        delta |= (entry[at] & _SIX) << shift
        shift += 6
        at += 1
    return -(delta >> 1) if delta & 1 else delta >> 1, at


def _append_location(made: bytearray, form: int, columns: bytes, delta: int, units: int) -> None:
    """One entry, ``delta`` lines after the entry before; columns go where a form has no room for such a step."""
    if form < _SHORT_FORMS:
        if delta:
            form, columns = _NO_COLUMNS, b""
    elif form == _ONE_LINE:
        if 0 <= delta < _NO_COLUMNS - _ONE_LINE:
            form += delta
        else:
            form, columns = _NO_COLUMNS, b""
    made.append(_FIRST | form << 3 | units - 1)
    if form in (_NO_COLUMNS, _LONG):
        value = -delta << 1 | 1 if delta < 0 else delta << 1
        while value > _SIX:
            made.append(_MORE | value & _SIX)
            value >>= 6
        made.append(value)
    made += columns
