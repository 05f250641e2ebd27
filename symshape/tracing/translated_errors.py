"""Errors of Python's and torch's that come of symbolic sizes and tensors, in our words."""

from __future__ import annotations

from collections.abc import Sequence

from symshape.errors import Reason, SymShapeError, UnsupportedError
from symshape.tracing.restart import Restart, with_fewer_symbols
from symshape.user_code import raised_at


def explain(error: Exception, presumed: Sequence[str] = ()) -> None:
    """Raises an error of ours where Python or torch refused a symbolic size or tensor for being
    one.

    Else the error is told what the trace took for granted of data (``presumed``) by then: it may
    come of that alone.
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
