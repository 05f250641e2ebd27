"""Every error that symshape raises on purpose: one root, one class a remedy, and a code for each
page of the docs.

The last line of an error's traceback is a note (PEP 678) with its code and the address of its page.
The note is no part of ``str(error)``.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, ClassVar, Self, TypeVar

import attrs

_T = TypeVar("_T")
_noted: ContextVar[list[BaseException] | None] = ContextVar("noted", default=None)

ADDRESS = "docs/errors/"
"""The address of the pages of errors, for all messages: a folder of the repository, as the pages
have no site yet.
"""
PAGES: dict[str, str] = {}
"""By code, the page below :data:`ADDRESS`; a reason of :class:`UnsupportedError` has a section of
it (``#anchor``).
"""


def note_of(code: str) -> str:
    """Return the line that names a code, its page in the repository, and the command that prints
    the page.

    >>> note_of("SYM204")
    '[SYM204] docs/errors/unsupported-error.md#seeding-inside (or: symshape error SYM204)'
    """
    return f"[{code}] {ADDRESS}{PAGES[code]} (or: symshape error {code})"


def code_of(error: BaseException) -> str:
    """Return the code that an error's note names; empty for an error without such a note."""
    return error.code if isinstance(error, SymShapeError) and type(error).note else ""


def full_text(error: BaseException) -> str:
    """Return the message of an error with its notes, but for the note that names its code."""
    notes = getattr(error, "__notes__", ())
    code = code_of(error)
    return "\n".join(
        [str(error), *([each for each in notes if each != note_of(code)] if code else notes)]
    )


def _page_named(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower() + ".md"


class Reason(enum.Enum):
    """The reasons why a program cannot be traced, each with its code and its section of the page of
    UnsupportedError.

    Attributes:
        code: the short code.
        note: the note of the errors with this reason.
    """

    DATA_ON_HOST = "SYM201", "reading-a-tensors-data-on-the-host"
    TENSOR_TEXT = "SYM202", "the-text-of-a-tensor"
    RANDOM_NUMBERS = "SYM203", "random-numbers-of-python-or-numpy"
    SEEDING = "SYM204", "seeding-inside"
    GENERATOR = "SYM205", "a-generator-made-inside"
    UNSEEN = "SYM206", "clocks-files-and-other-calls-into-c"
    OUTPUT = "SYM207", "printing-warning-logging"
    IDENTITY = "SYM208", "identity-of-an-argument"
    ASSIGNED_DATA = "SYM209", "assigning-to-data-or-to-grad-of-an-argument"
    HOOKS = "SYM210", "hooks-on-tensors-that-the-function-makes"
    LAYOUT = "SYM211", "sparse-and-nested-tensors"
    DEFAULTS = "SYM212", "changing-torchs-defaults-inside"
    RESULT = "SYM213", "a-result-that-is-no-tensor-number-text-or-container"
    STATE = "SYM214", "state-outside-the-arguments"
    CONTROL_FLOW = "SYM215", "what-a-function-of-torchcond-while_loop-or-a-scan-may-not-do"
    LEFT_GRADIENTS = "SYM216", "gradients-that-are-left-on-an-argument"
    NO_FAKE = "SYM217", "a-custom-operator-without-a-fake-implementation"
    TENSOR_ATTRIBUTES = "SYM218", "attributes-of-tensors"
    FLAGS = "SYM219", "flags-of-torch"
    MODULES = "SYM220", "modules-that-change-when-they-are-called-and-modules-of-torchscript"
    CONJUGATED = "SYM221", "parts-of-a-lazily-conjugated-tensor"
    COROUTINE = "SYM222", "coroutines"
    FUNCTION_MODE = "SYM223", "a-torch-function-mode-around-the-call"
    AUTOGRAD_STATE = "SYM224", "what-autograd-knows-of-a-tensor"
    LOST_GRADIENTS = "SYM225", "gradients-that-a-graph-would-lose"
    TRANSFORMS = "SYM226", "transforms-of-torchfunc"
    OBJECTS = "SYM227", "an-object-in-two-places"
    MEMO = "SYM228", "what-a-first-call-makes-and-keeps"
    UNCOMPARED = "SYM229", "objects-that-no-guard-can-compare"
    OTHER_TRACE = "SYM230", "a-tensor-of-an-earlier-trace"
    NUMBERS = "SYM231", "numbers-that-a-formula-cannot-stand-for"
    MEMORY = "SYM232", "views-and-memory"
    OPERATOR = "SYM233", "operators-without-a-rule"
    OTHER_TRACER = "SYM234", "functions-that-trace-or-compile-themselves"
    DYNAMO_GRAPH = "SYM235", "graphs-of-torchcompile"
    FX_GRAPH = "SYM236", "programs-that-an-fx-graph-cannot-hold"
    INSTALLATION = "SYM237", "this-python-this-torch-this-process"
    RUNS_EAGERLY = "SYM238", "a-call-that-runs-eagerly-where-a-trace-is-asked-for"
    REPLACED = "SYM239", "functions-of-torch-and-python-that-are-replaced"

    def __init__(self, code: str, anchor: str) -> None:
        PAGES[code] = f"unsupported-error.md#{anchor}"
        self.code, self.note = code, note_of(code)


_ARGS: Any = BaseException.args
_OURS = ("symshape.", "meta_fns.", "guards.")


class SymShapeError(Exception):
    """Root of symshape's own errors.

    Attributes:
        code: the short code of the class; of an :class:`UnsupportedError`, of its reason.
        note: the note that errors of the class get where they are made; empty for none.
    """

    code: str = ""
    note: ClassVar[str] = ""

    def __init_subclass__(cls, noted: bool = True, **kwargs: Any) -> None:
        """Enter the page of a class with a code of its own; its errors get no note if ``noted`` is
        false.
        """
        super().__init_subclass__(**kwargs)
        if "code" in cls.__dict__:
            PAGES[cls.code] = _page_named(cls.__name__)
            cls.note = note_of(cls.code) if noted else ""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Add the note with the code, and note the error for :func:`refusals_noted`."""
        made = super().__new__(cls, *args, **kwargs)
        if cls.note:
            made.__notes__ = [cls.note]
        if not issubclass(cls, ProgramError):
            note_refusal(made)
        return made

    def add_note(self, note: str, /) -> None:
        """Add a note before the one with the code, which stays the last."""
        super().add_note(note)
        notes = self.__notes__
        if len(notes) > 1 and notes[-2].startswith(f"[{self.code}] "):
            notes[-2:] = reversed(notes[-2:])


def release_frames(error: BaseException) -> None:
    """Release what the frames hold that a handled error passed.

    Else the objects that the program read live until a garbage collection.  A mode of torch ends
    when its guard object in a frame goes: inference mode stays on while the error lives.
    """
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        traceback.clear_frames(each.__traceback__)
        each = each.__cause__ or each.__context__


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

    code = "SYM106"


class DimError(SymShapeError):
    """A dimension policy is malformed, or names an argument or dimension that does not exist;
    change the policy.
    """

    code = "SYM107"


class UnsupportedError(SymShapeError):
    """The program does something that symshape cannot trace; change the program or leave that part
    out.

    Attributes:
        reason: which kind of thing; the code and the note are the reason's.
    """

    code = "SYM200"
    reason: Reason | None = None

    def __init__(self, *args: object, reason: Reason | None = None) -> None:
        super().__init__(*args)
        if reason is not None:
            self.reason, self.code, self.__notes__ = reason, reason.code, [reason.note]


@attrs.define(auto_exc=True, str=False)
class MissError(SymShapeError):
    """No stored program serves a call, and tracing was ruled out (``on_miss="error"``): bake the
    store for such calls.

    Attributes:
        message: the sizes of the call, and why the nearest stored program does not serve it.
        sizes: of the call, by where they are read, such as ``x.size(0)``.
        nearest: the nearest sizes that a stored program serves, those that differ from the call's;
            empty where it is not for sizes that none serves.
    """

    code = "SYM109"

    message: str
    sizes: Mapping[str, int] = attrs.field(factory=dict)
    nearest: Mapping[str, int] = attrs.field(factory=dict)

    def __str__(self) -> str:
        return self.message


class RankError(SymShapeError):
    """Ranks do not agree on what they compile, or one of them did not come; the message names rank
    and difference.
    """

    code = "SYM110"


class _AsInEager:
    """Methods of the errors that eager raises too.

    Each is also of the class that eager raises, so that the program's handlers for that class catch
    it, and no others do.

    Args:
        args: the message.
        kind: the class of eager's error.

    >>> isinstance(ProgramError("no elements", kind=IndexError), IndexError)
    True
    >>> isinstance(ProgramError("no elements", kind=IndexError), RuntimeError)
    False
    """

    def __new__(cls, *args: Any, kind: type[Exception] = RuntimeError) -> Self:
        """Make an error of ``cls`` and of ``kind``."""
        return super().__new__(_merged(cls, kind), *args)

    def __init__(self, *args: Any, kind: type[Exception] = RuntimeError) -> None:
        Exception.__init__(self, *args)  # type: ignore[arg-type]
        self.kind = kind

    def __str__(self) -> str:
        _refuse_readers(sys._getframe(1).f_globals)
        return Exception.__str__(self)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        _refuse_readers(sys._getframe(1).f_globals)
        return Exception.__repr__(self)  # type: ignore[arg-type]

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments that the error was made with."""
        _refuse_readers(sys._getframe(1).f_globals)
        return _ARGS.__get__(self)  # type: ignore[no-any-return]

    @args.setter
    def args(self, args: Iterable[Any]) -> None:
        _ARGS.__set__(self, args)

    def __reduce__(self) -> Any:
        """Pickle by the class that has a name in this module."""
        named = next(cls for cls in type(self).__mro__ if "code" in cls.__dict__)
        state = self.__dict__
        return functools.partial(named, kind=self.kind), _ARGS.__get__(self), state


def _refuse_readers(asker: Mapping[str, Any]) -> None:
    """Have the trace refused whose program asks for an error's text, which eager words
    otherwise.
    """
    if _noted.get() is not None and not str(asker.get("__name__")).startswith(_OURS):
        UnsupportedError(  # notes itself
            "the function reads the text of an error that an operator or torch._check raised, "
            "which eager words otherwise; look at the error's class alone",
            reason=Reason.TENSOR_TEXT,
        )


_all_merged: dict[tuple[type, type[Exception]], Any] = {}


def _merged(cls: type[_T], kind: type[Exception]) -> type[_T]:
    """Return the subclass of ``cls`` and ``kind``; of ``RuntimeError`` where their memory layouts
    do not go together.
    """
    if issubclass(cls, kind):
        return cls
    found: type[_T] | None = _all_merged.get((cls, kind))
    if found is None:
        namespace = {"__module__": cls.__module__, "__doc__": cls.__doc__}
        try:
            found = type(cls.__name__, (cls, kind), namespace)
        except TypeError:
            found = _merged(cls, RuntimeError)
        _all_merged[cls, kind] = found
    return found


class ProgramError(_AsInEager, SymShapeError, noted=False):
    """The program refuses these sizes: an operator or a ``torch._check`` failed while tracing, as
    it would in eager.
    """

    code = "SYM105"


class InternalError(SymShapeError):
    """Symshape's own code failed while it traced a program: a defect of symshape; report it with
    the function.

    Without ``fullgraph=True`` the function runs eagerly, as for other calls that cannot be traced.
    """

    code = "SYM112"


@attrs.frozen
class Problem:
    """Something that a traced function does and that no graph can repeat.

    Attributes:
        text: the rest of a sentence that begins with the function's name.
        reason: which kind of thing.
    """

    text: str
    reason: Reason


class UntestedTorchWarning(UserWarning):
    """The installed torch is older or newer than those that symshape was run with; the message
    names the versions.
    """

    code = "SYM114"


class FallbackWarning(UserWarning):
    """A compiled function runs eagerly, for calls that cannot be traced; the message has the reason
    and the line.
    """

    code = "SYM113"


PAGES |= {kind.code: _page_named(kind.__name__) for kind in (UntestedTorchWarning, FallbackWarning)}


@attrs.define(auto_exc=True, str=False)
class ConstraintViolation(SymShapeError):
    """The program needs more of a dimension than the caller declared for it; widen the declaration
    or the program.

    Attributes:
        message: what was declared, what the program needs, and the line that needs it.
        symbol: the symbol of the dimension.
        source: the dimension in the caller's words, such as ``x.size(0)``.
    """

    code = "SYM102"

    message: str
    symbol: str = ""
    source: str = ""

    def __str__(self) -> str:
        return self.message


@attrs.define(auto_exc=True, str=False)
class DataDependentError(SymShapeError):
    """The program branches on a value that is only known when it runs; tell what is known with
    ``torch._check``.

    Attributes:
        message: the whole story, with the line that branched and the line where the symbol was
            born.
        symbols: the unbacked symbols in the condition.
        condition: the condition that could not be decided.
        suggestions: ``torch._check(...)`` lines; each of them was tried and settles the branch.
    """

    code = "SYM103"

    message: str
    symbols: tuple[str, ...] = ()
    condition: str = ""
    suggestions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.message


@attrs.define(auto_exc=True, str=False)
class GuardViolation(SymShapeError):
    """A traced program was called with arguments outside its guards; trace again or use
    ``symshape.compile``.

    Attributes:
        message: one line for each violated guard, with argument, dimension, values and the line
            that made the guard.
        violations: the violated guards.
    """

    code = "SYM101"

    message: str
    violations: tuple[object, ...] = ()

    def __str__(self) -> str:
        return self.message


class RuntimeAssertionError(_AsInEager, SymShapeError, noted=False):
    """A ``torch._check`` on a data-dependent value failed while the compiled program ran.

    Of a check that raises another error (``torch._check_index``: an ``IndexError``) it is of that
    class instead of ``RuntimeError``.
    """

    code = "SYM104"


class RunnerError(SymShapeError):
    """The asked-for runner cannot run this program here; choose another runner."""

    code = "SYM108"


@attrs.define(auto_exc=True, str=False)
class VerificationError(SymShapeError):
    """A compiled program computed something else than eager does (``Options.verify``): a defect of
    symshape; report it.

    Attributes:
        message: the entry, the first difference, the suspected cause.
        differences: all differences, in words.
        cause: what the difference is likely to come from.
    """

    code = "SYM111"

    message: str
    differences: tuple[str, ...] = ()
    cause: str = ""

    def __str__(self) -> str:
        return self.message
