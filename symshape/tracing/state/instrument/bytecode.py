"""Disassembler and assembler of CPython bytecode: read code units as instructions, and replace some
instructions.

A code unit is two bytes: an opcode and the low eight bits of its argument.  ``EXTENDED_ARG`` before
an instruction gives the higher bits.  Some instructions are followed by units that the interpreter
uses as its cache.  Jumps, the exception table and the line table count units, so all three are
rebuilt.  The formats are those of CPython's ``Objects/locations.md`` and
``Objects/exception_handling_notes.txt``, as they are in Python 3.11 to 3.13.
"""

from __future__ import annotations

import dis
import opcode as opcodes
import re
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

CHECKED_VERSIONS = ((3, 11), (3, 12), (3, 13))
"""The versions of Python whose bytecode this module is known to read and write."""
_EXTENDED_ARG = dis.EXTENDED_ARG


def _caches() -> list[int]:
    """Return, by opcode, the number of cache units that follow an instruction."""
    counts: Any = getattr(opcodes, "_inline_cache_entries", {})
    if isinstance(counts, dict):  # by name, from 3.13 on
        counts = [counts.get(name, 0) for name in opcodes.opname]
    return [int(each) for each in counts[:256]] + [0] * (256 - len(counts))


CACHES = _caches()
"""By opcode, the number of cache units that follow an instruction."""
JUMPS = {code: "BACKWARD" in opcodes.opname[code] for code in opcodes.hasjrel if code < 256}
"""By opcode of a relative jump: whether it jumps backwards."""


class Instruction(NamedTuple):
    """One bytecode instruction.

    Attributes:
        start: the unit where the instruction begins, with its ``EXTENDED_ARG``.
        end: the unit after the instruction and its cache.
        opcode: the opcode.
        arg: the whole argument.
    """

    start: int
    end: int
    opcode: int
    arg: int


_made = tuple.__new__  # half the time of Instruction(...), which is Python code


def pattern(opcodes: Iterable[int], negated: bool = False) -> re.Pattern[bytes]:
    """Return a pattern that finds instructions with these opcodes (``negated``: with any other) in
    a row of opcodes.
    """
    extended = re.escape(bytes((_EXTENDED_ARG,)))
    chosen = b"".join(re.escape(bytes((each,))) for each in sorted(opcodes))
    return re.compile(b"%b*[%b%b]" % (extended, b"^" if negated else b"", chosen), re.DOTALL)


_ANY = pattern((opcodes.opmap["CACHE"], _EXTENDED_ARG), negated=True)


def is_checked() -> bool:
    """Return whether this module is known to read and write the bytecode of the running Python."""
    return sys.version_info[:2] in CHECKED_VERSIONS and sys.implementation.name == "cpython"


def instructions(units: bytes, chosen: re.Pattern[bytes] = _ANY) -> list[Instruction]:
    """Return the instructions of ``co_code``, in order; only those that ``chosen``, a ``pattern``,
    finds.

    Cache units are zeros in ``co_code``, and no other unit has that opcode.
    """
    found = []
    opcodes, args = units[::2], units[1::2]
    for match in chosen.finditer(opcodes):
        start, end = match.span()
        at = end - 1
        opcode = opcodes[at]
        arg = args[at] if start == at else int.from_bytes(args[start:end], "big")
        found.append(_made(Instruction, (start, end + CACHES[opcode], opcode, arg)))
    return found


def encoded(opcode: int, arg: int = 0, least: int = 0) -> bytes:
    """Return the units of an instruction with an empty cache and at least ``least`` units of
    ``EXTENDED_ARG``.
    """
    if arg < 256 and not least:
        return bytes((opcode, arg)) + bytes(2 * CACHES[opcode])
    extended = max(least, (arg.bit_length() - 1) // 8)
    head = b"".join(bytes((_EXTENDED_ARG, arg >> 8 * i & 255)) for i in range(extended, 0, -1))
    return head + bytes((opcode, arg & 255)) + bytes(2 * CACHES[opcode])


def reassembled(
    code: types.CodeType,
    old: list[Instruction],
    blocks: list[bytes],
    constants: tuple[Any, ...],
    more_stack: int,
    of_next: tuple[int, int] = (0, 0),
) -> types.CodeType:
    """Return the code with some of its instructions replaced by blocks of units.

    Args:
        code: the code with the old instructions.
        old: the instructions to replace, in order; all jumps of the code must be among them.
        blocks: the replacement of each old instruction; changed in place.  The block of a jump is
            the jump itself, whose argument is adjusted to its old target.  A jump to an old
            instruction leads to the beginning of its block.  The exception handlers and the line of
            an old instruction hold for its whole block.
        constants: the new ``co_consts``.
        more_stack: how many more values than before there may be on the stack.
        of_next: the unit after an old instruction, and how many of the last units of its block
            belong to the line of the next instruction.
    """
    units = code.co_code
    moved = _with_jumps(old, blocks, len(units) >> 1)
    exceptions = _exception_table(code.co_exceptiontable, moved)
    parts: list[bytes] = []
    done = 0
    for (start, end, _, _), block in zip(old, blocks, strict=True):
        parts.append(units[2 * done : 2 * start])
        parts.append(block)
        done = end
    parts.append(units[2 * done :])
    moved[of_next[0]] -= of_next[1]
    return code.replace(
        co_code=b"".join(parts),
        co_consts=constants,
        co_stacksize=code.co_stacksize + more_stack,
        co_exceptiontable=exceptions,
        co_linetable=_line_table(code.co_linetable, moved),
    )


def _moved(old: list[Instruction], blocks: list[bytes], size: int) -> list[int]:
    """Return the new unit of each old unit, and of the end; inside a replaced instruction, that of
    the next one.
    """
    moved: list[int] = []
    at = done = 0
    for (start, end, _, _), length in zip(old, map(len, blocks), strict=True):
        if start > done:
            moved += range(at, at + start - done)
            at += start - done
        moved.append(at)
        at += length >> 1
        inside = end - start - 1
        if inside:
            moved += [at] * inside
        done = end
    moved += range(at, at + size - done + 1)
    return moved


def _with_jumps(old: list[Instruction], blocks: list[bytes], size: int) -> list[int]:
    """Set the arguments of the jumps and return the new units; repeat while a jump grows, which
    moves the targets.
    """
    jumps = []
    for i, each in enumerate(old):
        back = JUMPS.get(each[2])
        if back is not None:
            jumps.append((i, each, each.end - each.arg if back else each.end + each.arg))
    while True:
        moved = _moved(old, blocks, size)
        grown = False
        for i, each, target in jumps:
            before = len(blocks[i]) >> 1
            distance = abs(moved[target] - moved[each.end])
            blocks[i] = encoded(each.opcode, distance, before - 1 - CACHES[each.opcode])
            grown = grown or len(blocks[i]) >> 1 != before
        if not grown:
            return moved


# -- the exception table: start, length, target and depth, each in groups of six bits, the highest g
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


# -- the line table: entries of up to eight units, each begun by a byte with its highest bit set
_SHORT_FORMS = 10  # forms 0 to 9: the line of the previous entry, and columns
_ONE_LINE = 10  # forms 10, 11 and 12: 0, 1 or 2 lines further, and columns
_NO_COLUMNS, _LONG, _NO_LINE = 13, 14, 15
_LONGEST = 8  # units of one entry


_ENTRY = re.compile(rb"[\x80-\xff][\x00-\x7f]*")


def _line_table(table: bytes, moved: list[int]) -> bytes:
    """Return the new line table, exactly as long as the code: CPython 3.11 reads past the end of a
    longer one.
    """
    made: list[bytes] = []
    last = len(moved) - 1
    at = done = owed = 0  # owed: line steps of dropped entries that cover no unit
    for entry in _ENTRY.findall(table):
        old_units = (entry[0] & 7) + 1
        at += old_units
        if at > last:
            at = last
        units = moved[at] - done
        done = moved[at]
        if units == old_units and not owed:
            made.append(entry)
        elif units:
            made.append(_stretched(entry, units, owed))
            owed = 0 if entry[0] >> 3 & 15 != _NO_LINE else owed
        else:
            owed += _line_step(entry)[0]
    while done < moved[last]:  # the table was too short
        length = min(moved[last] - done, _LONGEST)
        done += length
        made.append(bytes((_FIRST | _NO_LINE << 3 | length - 1,)))
    return b"".join(made)


def _stretched(entry: bytes, units: int, owed: int) -> bytes:
    """Return an entry stretched to ``units`` units and ``owed`` lines further; the line step is
    applied once.
    """
    form = entry[0] >> 3 & 15
    if form < _NO_COLUMNS and not owed:  # most of them
        first, more = divmod(units - 1, _LONGEST)
        columns = entry[1:]
        head = entry[0] & ~7
        if not first:
            return bytes((head | more,)) + columns
        again = head if form < _SHORT_FORMS else _FIRST | _ONE_LINE << 3  # the same line
        full = bytes((again | _LONGEST - 1,)) + columns
        return (
            bytes((head | _LONGEST - 1,))
            + columns
            + full * (first - 1)
            + bytes((again | more,))
            + columns
        )
    step, begin = _line_step(entry)
    columns = entry[begin:]
    length = min(units, _LONGEST)
    if owed:
        made = bytearray()
        _append_location(made, form, columns, owed + step, length)
    else:
        made = bytearray(entry)
        made[0] = entry[0] & ~7 | length - 1
    units -= length
    if units:
        rest = bytearray()
        _append_location(rest, form, columns, 0, _LONGEST)
        made += rest * (units // _LONGEST)
        if units % _LONGEST:
            rest[0] = rest[0] & ~7 | units % _LONGEST - 1
            made += rest
    return bytes(made)


def _line_step(entry: bytes) -> tuple[int, int]:
    """Return the line step of an entry, and the index at which its columns begin."""
    form = entry[0] >> 3 & 15
    if form < _NO_COLUMNS or form == _NO_LINE:
        return (form - _ONE_LINE if _ONE_LINE < form < _NO_COLUMNS else 0), 1
    delta = shift = 0  # in groups of six bits, the lowest first
    at, more = 1, _MORE
    while more:
        more = entry[at] & _MORE
        delta |= (entry[at] & _SIX) << shift
        shift += 6
        at += 1
    return -(delta >> 1) if delta & 1 else delta >> 1, at


def _append_location(made: bytearray, form: int, columns: bytes, delta: int, units: int) -> None:
    """Append one entry, ``delta`` lines after the previous one; drop the columns if the form cannot
    hold the step.
    """
    if form < _SHORT_FORMS:
        if delta:
            form, columns = _NO_COLUMNS, b""
    elif form < _NO_COLUMNS:
        form = _ONE_LINE + delta
        if not 0 <= delta < _NO_COLUMNS - _ONE_LINE:
            form, columns = _NO_COLUMNS, b""
    made.append(_FIRST | form << 3 | units - 1)
    if form in (_NO_COLUMNS, _LONG):
        value = -delta << 1 | 1 if delta < 0 else delta << 1
        while value > _SIX:
            made.append(_MORE | value & _SIX)
            value >>= 6
        made.append(value)
    made += columns
