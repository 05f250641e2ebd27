"""Find the instruction that loads a called function that is neither a name nor an attribute: a
variable, an item.
"""

from __future__ import annotations

import sys
from dis import HAVE_ARGUMENT, stack_effect
from opcode import opmap

from symshape.tracing.state.instrument.bytecode import JUMPS, Instruction, instructions

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
