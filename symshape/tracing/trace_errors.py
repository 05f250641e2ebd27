"""Errors that end a trace: those of Python and torch that come of symbolic sizes, in our words, and
defects of our own.

A program that cannot run on symbols fails with an error of its own or of torch's, and is traced
again with fixed sizes. An error that our own code did not mean to raise is a defect. Tracing again
would only hide the defect behind fewer dynamic sizes.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

import meta_fns
from symshape.errors import Reason, SymShapeError, UnsupportedError
from symshape.tracing.restart import Restart, with_fewer_symbols
from symshape.user_code import is_ours, raised_at

_ROOT = f"{Path(__file__).parents[2]}/"
_ACTING = (
    "symshape/graph/float_terms.py",
    "symshape/tracing/intercept/",
    "symshape/tracing/mode.py",
    "symshape/tracing/state/undo/grad_fields.py",
    "symshape/tracing/state/instrument/hooks.py",
    "symshape/tracing/state/instrument/substitutes.py",
    "symshape/tracing/symbolic/nodes/",
    "symshape/tracing/symbolic/tensors.py",
)
"""Code that acts for the program: an error raised there is the program's or torch's."""
_UNMEANT = (
    AttributeError,
    NameError,
    KeyError,
    IndexError,
    TypeError,
    AssertionError,
    RecursionError,
    ZeroDivisionError,
    OverflowError,
)


def defect(error: Exception) -> str | None:
    """Return the file and line where our own code failed by a defect; None for any other error."""
    if not isinstance(error, _UNMEANT) or isinstance(error, meta_fns.MetaError):
        return None
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return None
    frame, line = frames[-1]
    file = frame.f_code.co_filename
    # compiled modules' names
    if not (is_ours(file) or file.startswith(("guards/", "meta_fns/", "symshape/"))):
        return None
    short = file.removeprefix(_ROOT)
    if short.startswith(_ACTING):
        return None
    return f"{short}:{line}"


def explain(error: Exception, presumed: Sequence[str] = ()) -> None:
    """Raise an error of ours where Python or torch refused a symbolic size or tensor for being
    one.

    Else add a note to the error: what the trace took for granted of data by then (``presumed``). It
    may come of that alone.
    """
    if isinstance(error, SymShapeError):
        return
    text = str(error)
    if isinstance(error, TypeError) and any(
        name in text for name in ("SymInt", "SymFloat", "SymBool")
    ):
        raise Restart(
            f"the program uses a size that varies where only a plain number will do: {error} "
            f"(at {raised_at(error)}); make it a constant with int(size), or declare that size "
            "static",
            with_fewer_symbols,
            Reason.NUMBERS,
        ) from error
    if type(error).__module__.startswith("torch._dynamo"):
        raise UnsupportedError(
            "the program calls something that compiles itself with torch.compile (at "
            f"{raised_at(error)}), "
            "such as torch.cond; take that part out of the traced function",
            reason=Reason.OTHER_TRACER,
        ) from error
    if "data is not allocated yet" in text or "doesn't have storage" in text:
        raise UnsupportedError(
            "the program calls something that reads a tensor's memory while it is traced (at "
            f"{raised_at(error)}); "
            "wrap it as a custom op with torch.library.custom_op",
            reason=Reason.OTHER_TRACER,
        ) from error
    if presumed:
        more = f", and {len(presumed) - 1} more" if len(presumed) > 1 else ""
        error.add_note(
            f"The trace took for granted what only data tell: {presumed[0]}{more}. "
            "A program that fails for that reason alone is not traced for such a call. It may "
            "still run eagerly."
        )
