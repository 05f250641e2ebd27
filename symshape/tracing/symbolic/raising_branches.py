"""Branches of a program that only raise: ``if bad.any(): raise ValueError(...)``, ``assert fine``.

If only data decide a branch, and one way does nothing but raise, the trace follows the other way.
That way is asserted when the graph runs, with an error of the program's own class.
"""

from __future__ import annotations

import builtins
import dis
import os
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType

import torch

from symshape.user_code import is_ours, is_users

JUMPS = {
    "POP_JUMP_FORWARD_IF_FALSE": False,  # Python 3.11
    "POP_JUMP_FORWARD_IF_TRUE": True,
    "POP_JUMP_BACKWARD_IF_FALSE": False,  # the same, at the end of a loop
    "POP_JUMP_BACKWARD_IF_TRUE": True,
    "POP_JUMP_IF_FALSE": False,  # later versions
    "POP_JUMP_IF_TRUE": True,
}
"""The instructions that branch on a truth, each with the truth for which it jumps."""
ON_THE_WAY = ("UNARY_NOT", "TO_BOOL", "EXTENDED_ARG")
"""The instructions that may be between a question and its branch."""
# they load a name in recorded code (state/hooks, or C++)
_RECORDED = ("_load_global", "load_global")
# Since torch 2.15 ``Distribution`` asks through this function, which returns the truth at once.
_VALIDATION = (
    os.path.join(os.path.dirname(torch.__file__), "distributions", "distribution.py"),
    "_all_true_or_runtime_assert",
)
_MANY = 400  # instructions of a message
_AS_A_BOOL = 16  # in the argument of COMPARE_OP
_LEAVES = ("RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE", "RERAISE", "SEND", "RETURN_GENERATOR")
_STORES = (
    "STORE_ATTR",
    "STORE_SUBSCR",
    "STORE_GLOBAL",
    "STORE_NAME",
    "STORE_DEREF",
    "DELETE_ATTR",
    "DELETE_SUBSCR",
)
_BEGINNINGS = ("run_on_symbols", "run_graph_on_symbols")
"""The functions of ours that call what is traced."""


def way_on() -> tuple[bool, type[Exception]] | None:
    """Return the truth for which the program continues, and the class of the error otherwise; None
    if both continue.

    Call this while the program asks for the truth of an object: its current instruction leads to a
    jump.
    """
    frame = asking()
    if frame is None:
        return None
    instructions = list(dis.get_instructions(frame.f_code))
    at = next((i for i, each in enumerate(instructions) if each.offset == frame.f_lasti), None)
    if frame.f_code.co_filename == _VALIDATION[0] and not _branches(instructions, at):
        # the branch is on the result of the function that asks for a distribution
        at = next(i for i, each in enumerate(instructions) if each.offset > frame.f_lasti)
    negated = False
    while at is not None and at < len(instructions) and leads_to_a_branch(instructions[at]):
        negated ^= instructions[at].opname == "UNARY_NOT"
        at += 1
    jumps_if = (
        JUMPS.get(instructions[at].opname) if at is not None and at < len(instructions) else None
    )
    if at is None or jumps_if is None:
        return None
    target = next(
        i for i, each in enumerate(instructions) if each.offset == instructions[at].argval
    )
    jumping, falling = (_raised(frame, instructions, start) for start in (target, at + 1))
    if (jumping is None) == (falling is None) or _is_caught(frame):
        return None
    kind = jumping or falling
    assert kind is not None
    return (jumps_if if jumping is None else not jumps_if) ^ negated, kind


def _branches(instructions: Sequence[dis.Instruction], at: int | None) -> bool:
    """Return whether the instruction at a position branches, or is on the way to a branch."""
    return at is not None and (
        instructions[at].opname in JUMPS or leads_to_a_branch(instructions[at])
    )


def leads_to_a_branch(instruction: dis.Instruction) -> bool:
    """Return whether an instruction is on the way from a question to a branch; in Python 3.13 also
    a comparison.
    """
    if instruction.opname == "COMPARE_OP":
        return sys.version_info >= (3, 13) and bool((instruction.arg or 0) & _AS_A_BOOL)
    return instruction.opname in ON_THE_WAY


def is_caught() -> bool:
    """Return whether the program might catch an exception that it raises at its current line."""
    return _is_caught(asking())


def asking() -> FrameType | None:
    """Return the frame that asks for a truth: the first one outside symshape, torch's symbolic
    numbers, and torch's function that asks for a distribution.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        is_ours(frame.f_code.co_filename)
        or frame.f_code.co_filename == torch.__file__
        or (frame.f_code.co_filename, frame.f_code.co_name) == _VALIDATION
    ):
        frame = frame.f_back
    return frame


def _raised(
    frame: FrameType, instructions: Sequence[dis.Instruction], start: int
) -> type[Exception] | None:
    """Return the class of the error that the code from ``start`` always raises; None if it may do
    anything else.
    """
    found: type[Exception] | None = None
    before = None
    for each in instructions[start : start + _MANY]:
        if each.opname == "RAISE_VARARGS":
            return found if each.arg in (1, 2) else None
        if (
            each.opcode in dis.hasjrel
            or each.opcode in dis.hasjabs
            or each.opname in (*_LEAVES, *_STORES)
        ):
            return None
        if each.opname == "LOAD_ASSERTION_ERROR":
            found = AssertionError
        elif (
            each.opname in ("LOAD_GLOBAL", "LOAD_NAME")
            or getattr(before, "__name__", "") in _RECORDED
        ):
            value = frame.f_globals.get(each.argval, getattr(builtins, str(each.argval), None))
            if isinstance(value, type) and issubclass(value, Exception):
                found = value
        if each.opname != "PUSH_NULL":  # from Python 3.13 on between a function and its arguments
            before = each.argval
    return None


def _is_caught(frame: FrameType | None) -> bool:
    """Return whether the program might catch an exception raised here, and then continue."""
    while frame is not None and not (
        frame.f_code.co_name in _BEGINNINGS and is_ours(frame.f_code.co_filename)
    ):
        if is_users(frame.f_code.co_filename) and is_handled(frame.f_code, frame.f_lasti):
            return True
        frame = frame.f_back
    return False


# -- Reads of CPython's exception tables: whether an exception raised at a place in code may be
# caught, and where.
#
# Besides a program's own handlers there are handlers that Python adds and that raise again. They
# end a ``with``. From Python 3.12 on they also clean up after a generator or a comprehension,
# which is part of the code around it there.
_STOP_ITERATION = 3  # INTRINSIC_STOPITERATION_ERROR


def is_handled(code: CodeType, offset: int) -> bool:
    """Return whether an exception raised at ``offset`` may be caught in the same code, except by
    clean-up handlers.
    """
    if not dis._parse_exception_table(code):  # type: ignore[attr-defined]
        return False
    instructions = list(dis.get_instructions(code))
    passing = _ends_of_with(instructions) | _clean_ups(instructions)
    return any(target not in passing for target in _handlers(code, offset, instructions))


def names_of_comprehensions(frame: FrameType) -> frozenset[str]:
    """Return the variables of the comprehensions that a frame is in, which its other lines cannot
    read.
    """
    code, found = frame.f_code, set[str]()
    if not dis._parse_exception_table(code):  # type: ignore[attr-defined]
        return frozenset()
    instructions = list(dis.get_instructions(code))
    clean_ups = _clean_ups(instructions)
    for target in _handlers(code, frame.f_lasti, instructions):
        if target not in clean_ups:
            continue
        for each in instructions[
            next(i for i, each in enumerate(instructions) if each.offset == target) :
        ]:
            if each.opname.startswith("STORE_FAST"):  # two names at once in Python 3.13
                found.update(each.argval if isinstance(each.argval, tuple) else (each.argval,))
            elif each.opname == "RERAISE":
                break
    return frozenset(found)


def _handlers(
    code: CodeType, offset: int, instructions: Sequence[dis.Instruction]
) -> Iterator[int]:
    """Yield the offsets of the handlers of an exception at ``offset``, outwards, while each one
    raises it again.
    """
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    raised: int | None = offset
    seen = set[int]()
    while raised is not None:
        target = next((each.target for each in entries if each.start <= raised < each.end), None)
        if target is None or target in seen:
            return
        seen.add(target)
        yield target
        raised = next(
            (
                each.offset
                for each in instructions
                if each.opname == "RERAISE" and each.offset >= target
            ),
            None,
        )


def _ends_of_with(instructions: Sequence[dis.Instruction]) -> set[int]:
    """Return the offsets of handlers that only end a ``with``, or clean up after one."""
    found: set[int] = set()
    for i, each in enumerate(instructions[:-1]):
        after = instructions[i + 1].opname
        if each.opname == "PUSH_EXC_INFO" and after == "WITH_EXCEPT_START":
            found.add(each.offset)
        if each.opname == "COPY" and after in ("POP_EXCEPT", "POP_TOP"):
            found.add(each.offset)
    return found


def _clean_ups(instructions: Sequence[dis.Instruction]) -> set[int]:
    """Return the offsets of handlers that only convert a StopIteration, or restore the variables of
    a comprehension.
    """
    found: set[int] = set()
    whole = True  # whether only such instructions follow
    for each in reversed(instructions):
        if each.opname == "RERAISE":
            whole = True
        elif each.opname == "CALL_INTRINSIC_1":
            whole = whole and each.arg == _STOP_ITERATION
        else:
            whole = whole and (
                each.opname in ("SWAP", "POP_TOP") or each.opname.startswith("STORE_FAST")
            )
        if whole:
            found.add(each.offset)
    return found
