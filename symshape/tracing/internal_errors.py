"""Errors in symshape's own code, distinguished from errors of the program and of torch.

A program that cannot run on symbols fails with an error of its own or of torch's, and is traced
again with fixed sizes. An error that our own code did not mean to raise is a defect. Tracing again
would only hide the defect behind fewer dynamic sizes.
"""

from __future__ import annotations

import traceback
from pathlib import Path

import meta_fns
from symshape.user_code import is_ours

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
