"""Reads of CPython's exception tables: whether an exception raised at a place in code may be
caught, and where.

Besides a program's own handlers there are handlers that Python adds and that raise again.  They end
a ``with``.  From Python 3.12 on they also clean up after a generator or a comprehension, which is
part of the code around it there.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType

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
