"""Errors of meta_fns: one root, one class a remedy."""

from __future__ import annotations

__all__ = ["DataDependentOutput", "DtypeError", "MetaError", "ShapeError", "UnsupportedOp"]


class MetaError(Exception):
    """Root of everything meta_fns raises on purpose.

    ``op`` is the overload name (``"aten.mm.default"``); rules leave it empty, the boundary
    (``infer``, the tracer) fills it once with ``at``.
    """

    def __init__(self, message: str, *, op: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.op = op

    def __str__(self) -> str:
        return self.message if self.op is None else f"{self.op}: {self.message}"

    def at(self, op: str) -> MetaError:
        """Name the overload that was being inferred (the first name given stays); returns self, to
        be raised.
        """
        if self.op is None:
            self.op = op
        return self


class ShapeError(MetaError):
    """Inputs that eager refuses too: mend the call. The message names the argument and its
    sizes.
    """


class DtypeError(ShapeError):
    """Dtypes (or devices) that eager refuses."""


class UnsupportedOp(MetaError):
    """No rule for this overload, or a case of it that the rule does not know: use a fallback."""


class DataDependentOutput(MetaError):
    """The output's sizes or value depend on data: pass a context (``ctx``) that can make unknown
    sizes.
    """
