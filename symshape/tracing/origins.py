"""Where in the user's program something happened: the first stack frame outside torch and symshape."""

from __future__ import annotations

import linecache
import sys
from functools import lru_cache
from pathlib import Path
from types import FrameType

import torch

import guards
import meta_fns
import symshape
from guards.guard import Origin

_OURS = tuple(str(Path(package.__file__ or "").parent) + "/" for package in (guards, meta_fns, symshape, torch))
_MACHINERY = ("<string>", "<frozen", str(Path(linecache.__file__).parent / "contextlib.py"))


@lru_cache(maxsize=4096)
def _is_users(filename: str) -> bool:
    return not filename.startswith(_OURS) and not filename.startswith(_MACHINERY)


def user_frame() -> FrameType | None:
    """The innermost frame of the user's program, or None when symshape was called from nowhere else."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def origin(op: str = "", rule: str = "") -> Origin:
    """The user's file, line and source text, with the op and the rule that were asking."""
    frame = user_frame()
    if frame is None:
        return Origin(file="", line=0, op=op, rule=rule)
    code = frame.f_code
    text = linecache.getline(code.co_filename, frame.f_lineno).strip()
    return Origin(file=code.co_filename, line=frame.f_lineno, function=code.co_qualname, text=text, op=op, rule=rule)
