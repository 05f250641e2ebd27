"""Branches of a program that only raise: ``if bad.any(): raise ValueError(...)``, ``assert fine``.

Where only data tell which way a program goes, and one way does nothing but raise, the other way is the program; that it
is taken is asserted when the graph runs, with an error of the program's own class.
"""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Sequence
from types import FrameType

import torch

from symshape.tracing.symbolic.exception_tables import is_handled
from symshape.user_code import is_ours, is_users

JUMPS = {
    "POP_JUMP_FORWARD_IF_FALSE": False,  # Python 3.11
    "POP_JUMP_FORWARD_IF_TRUE": True,
    "POP_JUMP_BACKWARD_IF_FALSE": False,  # so too, at the end of a loop
    "POP_JUMP_BACKWARD_IF_TRUE": True,
    "POP_JUMP_IF_FALSE": False,  # later ones
    "POP_JUMP_IF_TRUE": True,
}
"""Instructions that branch by a truth, and the truth that jumps."""
ON_THE_WAY = ("UNARY_NOT", "TO_BOOL", "EXTENDED_ARG")
"""Those between a question and its branch."""
_RECORDED = ("_load_global", "load_global")  # what loads a name in code that is recorded (state/hooks, or in C++)
_MANY = 400  # instructions of a message
_AS_A_BOOL = 16  # in the argument of COMPARE_OP
_LEAVES = ("RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE", "RERAISE", "SEND", "RETURN_GENERATOR")
_STORES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF", "DELETE_ATTR", "DELETE_SUBSCR")


def way_on() -> tuple[bool, type[Exception]] | None:
    """Which truth lets the program go on, and the class of what it raises else; None where both ways go on.

    To be called while the program asks for the truth of something: it stands at a jump.
    """
    frame = asking()
    if frame is None:
        return None
    instructions = list(dis.get_instructions(frame.f_code))
    at = next((i for i, each in enumerate(instructions) if each.offset == frame.f_lasti), None)
    negated = False
    while at is not None and at < len(instructions) and leads_to_a_branch(instructions[at]):
        negated ^= instructions[at].opname == "UNARY_NOT"
        at += 1
    jumps_if = JUMPS.get(instructions[at].opname) if at is not None and at < len(instructions) else None
    if at is None or jumps_if is None:
        return None
    target = next(i for i, each in enumerate(instructions) if each.offset == instructions[at].argval)
    jumping, falling = (_raised(frame, instructions, start) for start in (target, at + 1))
    if (jumping is None) == (falling is None) or _is_caught(frame):
        return None
    kind = jumping or falling
    assert kind is not None
    return (jumps_if if jumping is None else not jumps_if) ^ negated, kind


def leads_to_a_branch(instruction: dis.Instruction) -> bool:
    """Whether an instruction asks for a truth on the way to a branch: a comparison does so itself in Python 3.13."""
    if instruction.opname == "COMPARE_OP":
        return sys.version_info >= (3, 13) and bool((instruction.arg or 0) & _AS_A_BOOL)
    return instruction.opname in ON_THE_WAY


def is_caught() -> bool:
    """Whether the program might catch what it raises where it stands."""
    return _is_caught(asking())


def asking() -> FrameType | None:
    """The frame that asks for a truth: the first that is not ours, nor that of torch's symbolic numbers."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (is_ours(frame.f_code.co_filename) or frame.f_code.co_filename == torch.__file__):
        frame = frame.f_back
    return frame


def _raised(frame: FrameType, instructions: Sequence[dis.Instruction], start: int) -> type[Exception] | None:
    """The class of error that the code from here raises, whatever happens; None if it may do anything else."""
    found: type[Exception] | None = None
    before = None
    for each in instructions[start : start + _MANY]:
        if each.opname == "RAISE_VARARGS":
            return found if each.arg in (1, 2) else None
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs or each.opname in (*_LEAVES, *_STORES):
            return None
        if each.opname == "LOAD_ASSERTION_ERROR":
            found = AssertionError
        elif each.opname in ("LOAD_GLOBAL", "LOAD_NAME") or getattr(before, "__name__", "") in _RECORDED:
            value = frame.f_globals.get(each.argval, getattr(builtins, str(each.argval), None))
            if isinstance(value, type) and issubclass(value, Exception):
                found = value
        if each.opname != "PUSH_NULL":  # from Python 3.13 on between a function and its arguments
            before = each.argval
    return None


def _is_caught(frame: FrameType | None) -> bool:
    """Whether the program might catch what it raises here: then it may go on."""
    while frame is not None and not (frame.f_code.co_name == "_run" and is_ours(frame.f_code.co_filename)):
        if is_users(frame.f_code.co_filename) and is_handled(frame.f_code, frame.f_lasti):
            return True
        frame = frame.f_back
    return False
