"""Every error that symshape raises on purpose: one root, one class a remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Self

import attrs

_noted: ContextVar[list[BaseException] | None] = ContextVar("noted", default=None)


class SymShapeError(Exception):
    """Root of symshape's own errors."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Note the error for :func:`refusals_noted`."""
        made = super().__new__(cls, *args, **kwargs)
        if not issubclass(cls, ProgramError):
            note_refusal(made)
        return made


def note_refusal(error: BaseException) -> None:
    """Note an error for :func:`refusals_noted`."""
    noted = _noted.get()
    if noted is not None:
        noted.append(error)


@contextlib.contextmanager
def refusals_noted() -> Iterator[list[BaseException]]:
    """Collect the errors made within the block, except those that eager raises too.

    A program may catch errors that it was never meant to see.
    """
    found: list[BaseException] = []
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


class InputError(SymShapeError):
    """An argument cannot be traced or does not fit what was traced; change the call."""


class DimError(SymShapeError):
    """A dimension policy is malformed, or names an argument or dimension that does not exist; change the policy."""


class UnsupportedError(SymShapeError):
    """The program does something that symshape cannot trace; change the program or leave that part out."""


@attrs.define(auto_exc=True, str=False)
class MissError(SymShapeError):
    """No stored program serves a call, and tracing was ruled out (``on_miss="error"``): bake the store for such calls.

    Attributes:
        message: the sizes of the call, and why the nearest stored program does not serve it.
        sizes: of the call, by where they are read, such as ``x.size(0)``.
        nearest: the nearest sizes that a stored program serves, those that differ from the call's; empty where it is
            not for sizes that none serves.
    """

    message: str
    sizes: Mapping[str, int] = attrs.field(factory=dict)
    nearest: Mapping[str, int] = attrs.field(factory=dict)

    def __str__(self) -> str:
        return self.message


class RankError(SymShapeError):
    """Ranks do not agree on what they compile, or one of them did not come; the message names rank and difference."""


class ProgramError(SymShapeError, RuntimeError):
    """The program refuses these sizes: an operator or a ``torch._check`` failed while tracing, as it would in eager."""


class InternalError(SymShapeError):
    """Symshape's own code failed while it traced a program: a defect of symshape; report it with the function.

    Without ``fullgraph=True`` the function runs eagerly, as for other calls that cannot be traced.
    """


class UntestedTorchWarning(UserWarning):
    """The installed torch is older or newer than those that symshape was run with; the message names the versions."""


class FallbackWarning(UserWarning):
    """A compiled function runs eagerly, for calls that cannot be traced; the message has the reason and the line."""


@attrs.define(auto_exc=True, str=False)
class ConstraintViolation(SymShapeError):
    """The program needs more of a dimension than the caller declared for it; widen the declaration or the program.

    Attributes:
        message: what was declared, what the program needs, and the line that needs it.
        symbol: the symbol of the dimension.
        source: the dimension in the caller's words, such as ``x.size(0)``.
    """

    message: str
    symbol: str = ""
    source: str = ""

    def __str__(self) -> str:
        return self.message


@attrs.define(auto_exc=True, str=False)
class DataDependentError(SymShapeError):
    """The program branches on a value that is only known when it runs; tell what is known with ``torch._check``.

    Attributes:
        message: the whole story, with the line that branched and the line where the symbol was born.
        symbols: the unbacked symbols in the condition.
        condition: the condition that could not be decided.
        suggestions: ``torch._check(...)`` lines; each of them was tried and settles the branch.
    """

    message: str
    symbols: tuple[str, ...] = ()
    condition: str = ""
    suggestions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.message


@attrs.define(auto_exc=True, str=False)
class GuardViolation(SymShapeError):
    """A traced program was called with arguments outside its guards; trace again or use ``symshape.compile``.

    Attributes:
        message: one line for each violated guard, with argument, dimension, values and the line that made the guard.
        violations: the violated guards.
    """

    message: str
    violations: tuple[object, ...] = ()

    def __str__(self) -> str:
        return self.message


class RuntimeAssertionError(SymShapeError, RuntimeError):
    """A ``torch._check`` on a data-dependent value failed while the compiled program ran.

    Of a check that raises another error (``torch._check_index``: an ``IndexError``) it is of that class too.
    """


_assertion_errors: dict[type[Exception], type[RuntimeAssertionError]] = {}


def assertion_error_of(kind: type[Exception]) -> type[RuntimeAssertionError]:
    """Return the class of a failed assertion that the program's own handlers of ``kind`` catch too.

    >>> issubclass(assertion_error_of(ValueError), ValueError)
    True
    """
    if issubclass(RuntimeAssertionError, kind):
        return RuntimeAssertionError
    found = _assertion_errors.get(kind)
    if found is None:
        try:
            found = type(f"RuntimeAssertion{kind.__name__}", (RuntimeAssertionError, kind), {"__module__": __name__})
        except TypeError:  # two layouts that do not go together
            found = RuntimeAssertionError
        _assertion_errors[kind] = found
    return found


class RunnerError(SymShapeError):
    """The asked-for runner cannot run this program here; choose another runner."""


@attrs.define(auto_exc=True, str=False)
class VerificationError(SymShapeError):
    """A compiled program computed something else than eager does (``Options.verify``): a defect of symshape; report it.

    Attributes:
        message: the entry, the first difference, the suspected cause.
        differences: all differences, in words.
        cause: what the difference is likely to come from.
    """

    message: str
    differences: tuple[str, ...] = ()
    cause: str = ""

    def __str__(self) -> str:
        return self.message
