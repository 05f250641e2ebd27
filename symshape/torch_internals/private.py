"""Access to private parts of torch, and stand-ins in a torch that lacks one.

The private parts were seen to work in torch ``OLDEST`` to ``NEWEST``. Any other torch causes one
warning. Where a part is missing, symshape still imports; calls are then served without that part,
or run eagerly.
"""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from symshape.errors import Reason, UnsupportedError, UntestedTorchWarning, note_of

OLDEST, NEWEST = "2.11", "2.15"
"""The versions of torch in which the private parts of this folder were seen working."""

_missing: list[str] = []


def needed(path: str) -> Any:
    """Return a private part of torch by its dotted name.

    Where this torch lacks it, return a stand-in that raises an UnsupportedError when it is called,
    and have every call run eagerly (:func:`refusal`).
    """
    try:
        return pkgutil.resolve_name(path)
    except (AttributeError, ImportError):
        _missing.append(path)
        return _stand_in(path)


_STAND_IN = object()


def optional(path: str, otherwise: Any = _STAND_IN) -> Any:
    """Return a private part of torch by its dotted name.

    Where this torch lacks it, return ``otherwise``, or a stand-in that raises an UnsupportedError
    when it is called. Other calls are served all the same.
    """
    try:
        return pkgutil.resolve_name(path)
    except (AttributeError, ImportError):
        return _stand_in(path) if otherwise is _STAND_IN else otherwise


def refusal() -> UnsupportedError | None:
    """Return why no call can be traced or served in this torch; None where no needed part is
    missing.
    """
    return _refusal(*_missing) if _missing else None


def refuse_if_missing() -> None:
    """Raise an UnsupportedError where this torch lacks a part that every trace needs."""
    found = refusal()
    if found is not None:
        raise found


def _refusal(*paths: str) -> UnsupportedError:
    return UnsupportedError(
        f"torch {torch.__version__} has no {', '.join(paths)}, which symshape needs: its calls run "
        "eagerly; install "
        f"torch {OLDEST} to {NEWEST}, or a newer symshape",
        reason=Reason.INSTALLATION,
    )


class _Absent(type):
    """The class of stand-ins for parts that this torch lacks: each is a class, so that others can
    derive from it.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise an UnsupportedError that names the part."""
        raise _refusal(
            next(each.__doc__ or "" for each in cls.__mro__[::-1] if type(each) is _Absent)
        )

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(f"{cls.__doc__}.{name}")


def _stand_in(path: str) -> Any:
    return _Absent(path.rpartition(".")[2], (), {"__doc__": path})


def warn_of_version(
    version: str = torch.__version__, warn: Callable[..., object] = warnings.warn
) -> None:
    """Warn if symshape was never run with this version of torch."""
    if not _numbers(OLDEST) <= _numbers(version) <= _numbers(NEWEST):
        warn(
            f"symshape was seen working with torch {OLDEST} to {NEWEST}, and this is torch "
            f"{version}. If it lacks a "
            "private part that symshape uses, functions run eagerly or without a feature, and say "
            "so.\n  "
            f"{note_of(UntestedTorchWarning.code)}",
            UntestedTorchWarning,
            stacklevel=2,
        )


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(part) for part in version.split(".")[:2])


warn_of_version()
