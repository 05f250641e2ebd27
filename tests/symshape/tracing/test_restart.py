"""A trace that needs other settings is started again: one loop, one exception, one limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from symshape.errors import Reason, UnsupportedError
from symshape.tracing.restart import (
    MOST_ATTEMPTS,
    Attempt,
    Change,
    Restart,
    after,
    loops_are_unrolled,
    needs_loops,
    traced_with_restarts,
    with_fewer_symbols,
)


def _run(trace: Callable[[Attempt], object]) -> object:
    return traced_with_restarts("fn", Attempt.first({}), trace, _change_after)


def _change_after(error: Exception | Restart, attempt: Attempt) -> Change:
    return error.change if isinstance(error, Restart) else with_fewer_symbols


@pytest.mark.parametrize(("needed", "attempts"), [(1, [False]), (2, [False, True])])
def test_loops_are_unrolled_once(needed: int, attempts: list[bool]) -> None:
    seen: list[bool] = []

    def trace(_: Attempt) -> int:
        seen.append(loops_are_unrolled())
        if needed > len(seen):
            raise needs_loops(f"needs more than {len(seen)}")
        return needed

    assert _run(trace) == needed
    assert seen == attempts
    assert not loops_are_unrolled()


def test_the_first_loop_is_named_where_unrolling_does_not_help() -> None:
    seen: list[bool] = []

    def trace(_: Attempt) -> int:
        seen.append(loops_are_unrolled())
        raise needs_loops(f"needs more than {len(seen)}")

    with pytest.raises(UnsupportedError, match="more than 1"):
        _run(trace)
    assert seen == [False, True]


def test_the_error_has_the_cause_and_the_lines_of_the_restart() -> None:
    def trace(_: Attempt) -> int:
        try:
            raise TypeError("no SymInt here")
        except TypeError as error:
            raise Restart("needs a plain number", with_fewer_symbols, Reason.NUMBERS) from error

    with pytest.raises(UnsupportedError, match="needs a plain number") as raised:
        _run(trace)
    assert isinstance(raised.value.__cause__, TypeError)
    assert "trace" in [each.name for each in raised.traceback]


def test_what_cannot_be_prepared_names_the_function_and_the_reason() -> None:
    def fail() -> None:
        raise OSError

    def trace(_: Attempt) -> int:
        raise Restart("needs a thing; make it before", after(fail), Reason.MEMO, prepares=True)

    with pytest.raises(UnsupportedError, match="fn needs a thing; make it before") as raised:
        _run(trace)
    assert not isinstance(raised.value, Restart)


def test_attempts_end() -> None:
    seen: list[Attempt] = []

    def trace(attempt: Attempt) -> int:
        seen.append(attempt)
        raise Restart("needs a thing", after(lambda: None), Reason.MEMO, prepares=True)

    with pytest.raises(UnsupportedError, match="fn needs a thing"):
        _run(trace)
    assert len(seen) == MOST_ATTEMPTS


def test_a_program_that_fails_is_told_no_compiler_traces_it() -> None:
    def trace(attempt: Attempt) -> bool:
        if attempt.raised_compiling is None:
            attempt.compiling_asked = True
            raise ValueError("not for compilers")
        return True

    assert _run(trace)

    def refused(attempt: Attempt) -> bool:
        if attempt.raised_compiling is not None:
            raise UnsupportedError("prints")
        return trace(attempt)

    def change_after(error: Exception | Restart, attempt: Attempt) -> Change:
        if isinstance(error, UnsupportedError):
            raise error
        return with_fewer_symbols

    with pytest.raises(UnsupportedError, match="prints") as raised:
        traced_with_restarts("fn", Attempt.first({}), refused, change_after)
    assert "ValueError: not for compilers" in raised.value.__notes__[0]
