"""What Python's exception tables say of a place in code: whether what is raised there may be caught, and by whom.

Besides those of a program there are handlers that Python writes itself and that raise again: what ends a ``with``, and,
from Python 3.12 on, what clean up after a generator or a comprehension, which is part of the code around it there.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType

_STOP_ITERATION = 3  # INTRINSIC_STOPITERATION_ERROR


def is_handled(code: CodeType, offset: int) -> bool:
    """Whether what is raised there may be caught in the same code: by a handler that does not only clean up."""
    if not dis._parse_exception_table(code):  # type: ignore[attr-defined]
        return False
    instructions = list(dis.get_instructions(code))
    passing = _ends_of_with(instructions) | _clean_ups(instructions)
    return any(target not in passing for target in _handlers(code, offset, instructions))


def names_of_comprehensions(frame: FrameType) -> frozenset[str]:
    """The variables of comprehensions that a frame is in, which its other lines cannot read."""
    code, found = frame.f_code, set[str]()
    if not dis._parse_exception_table(code):  # type: ignore[attr-defined]
        return frozenset()
    instructions = list(dis.get_instructions(code))
    clean_ups = _clean_ups(instructions)
    for target in _handlers(code, frame.f_lasti, instructions):
        if target not in clean_ups:
            continue
        for each in instructions[next(i for i, each in enumerate(instructions) if each.offset == target) :]:
            if each.opname.startswith("STORE_FAST"):  # two names at once in Python 3.13
                found.update(each.argval if isinstance(each.argval, tuple) else (each.argval,))
            elif each.opname == "RERAISE":
                break
    return frozenset(found)


def _handlers(code: CodeType, offset: int, instructions: Sequence[dis.Instruction]) -> Iterator[int]:
    """Where the handlers begin that get what is raised there, one after the other if each raises it again."""
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
            (each.offset for each in instructions if each.opname == "RERAISE" and each.offset >= target), None
        )


def _ends_of_with(instructions: Sequence[dis.Instruction]) -> set[int]:
    """Where handlers begin that only end a ``with``, or clean up after one."""
    found: set[int] = set()
    for i, each in enumerate(instructions[:-1]):
        after = instructions[i + 1].opname
        if each.opname == "PUSH_EXC_INFO" and after == "WITH_EXCEPT_START":
            found.add(each.offset)
        if each.opname == "COPY" and after in ("POP_EXCEPT", "POP_TOP"):
            found.add(each.offset)
    return found


def _clean_ups(instructions: Sequence[dis.Instruction]) -> set[int]:
    """Where handlers begin that make a StopIteration another error, or give the names of a comprehension back."""
    found: set[int] = set()
    whole = True  # whether from here on nothing is done but that
    for each in reversed(instructions):
        if each.opname == "RERAISE":
            whole = True
        elif each.opname == "CALL_INTRINSIC_1":
            whole = whole and each.arg == _STOP_ITERATION
        else:
            whole = whole and (each.opname in ("SWAP", "POP_TOP") or each.opname.startswith("STORE_FAST"))
        if whole:
            found.add(each.offset)
    return found
