"""Names of what Dynamo compiles, in the user's words: a graph's function, why it was compiled, its
arguments.

(Private names of torch used here were checked on 2.11 to 2.13.)
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any

import attrs
import torch

from guards.text.escaping import printable
from symshape.errors import Reason, UnsupportedError
from symshape.frontends.dynamo_graph import Origin
from symshape.torch_internals.dynamo import CompileContext, wrapping
from symshape.user_code import location_in, name_of, origin_of

_WRAPPING = wrapping
"""The file of torch's wrapping function (``args``, ``kwargs``, ``fn``).

Torch wraps it around modules and functions that are not the user's: ``nn.Sequential``, functions
decorated by ``torch.no_grad()``, ``functools.partial``.
"""


@attrs.frozen
class Names:
    """The words for one function that Dynamo compiles.

    Attributes:
        origin: the function, and why it is compiled.
        wrapped: the object that torch wrapped in a function of its own; None where there is none.
    """

    origin: Origin
    wrapped: Any = None

    def argument(self, node: torch.fx.Node) -> str:
        """Return the name of an argument of Dynamo's graph, as the user would write it."""
        source = getattr(node.meta.get("grapharg"), "source", None)
        name = getattr(source, "name", node.name)
        return in_user_words(str(name() if callable(name) else name), self.wrapped)


def names() -> Names:
    """Return the words for the function that Dynamo compiles now."""
    number = CompileContext.current_compile_id()
    shown = "" if number is None else str(number)
    code, wrapped = _in_hand()
    if code is None:
        return Names(Origin("a graph", number=shown, reason=_reason(None)))
    if wrapped is not None:
        return Names(Origin(*_wrapped_name(wrapped), shown, reason=_reason(wrapped)), wrapped)
    name = code.co_qualname.rpartition("<locals>.")[2]
    resumed = re.fullmatch(r"(?:.*\.)?torch_dynamo_resume_in_(.+)_at_(\d+)", name)
    if resumed:
        name = f"{resumed[1]} from line {resumed[2]} on"
    return Names(
        Origin(
            name,
            printable(f"{code.co_filename}:{code.co_firstlineno}"),
            shown,
            reason=_reason(None),
        )
    )


def refused_by_torch(error: Exception) -> UnsupportedError:
    """Return AOTAutograd's error as a refusal: its first sentence and the user's line, without FX's
    text.
    """
    reason, _, rest = str(error).partition("\n\nWhile executing ")
    reason = re.split(r"\.\s", " ".join(reason.split()))[0]
    location = location_in(rest)
    place = "" if location is None else f" (at {origin_of(location)})"
    return UnsupportedError(
        f"torch's AOTAutograd refuses the graph with {type(error).__name__}: {reason}{place}",
        reason=Reason.DYNAMO_GRAPH,
    )


def _in_hand() -> tuple[CodeType | None, Any]:
    """Return the code that Dynamo is compiling (None if this torch differs), and the object that it
    wraps.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_locals.get("code") if frame.f_code.co_name == "_compile" else None
        if isinstance(code, CodeType):
            outside = code.co_filename == _WRAPPING
            return code, frame.f_locals.get("locals", {}).get("fn") if outside else None
        frame = frame.f_back
    return None, None


def _wrapped_name(fn: Any) -> tuple[str, str]:
    """Return the name of the object that torch wrapped, and its file and line."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    forward = getattr(fn, "forward", None) if isinstance(fn, torch.nn.Module) else None
    name = name_of(fn) if forward is None else f"{type(fn).__qualname__}.forward"
    code = getattr(inspect.unwrap(fn if forward is None else forward), "__code__", None)
    return name.rpartition("<locals>.")[2], "" if code is None else printable(
        f"{code.co_filename}:{code.co_firstlineno}"
    )


def _reason(wrapped: Any) -> str:
    """Return why Dynamo compiles a function again; empty for the first time."""
    try:
        metrics = torch._dynamo.utils.get_metrics_context()._metrics
    except AttributeError:  # this torch stores it elsewhere: the report omits it
        return ""
    reason = str(metrics.get("recompile_reason") or "").partition("  #")[0]
    reason = in_user_words(re.sub(r"^\d+/\d+: ", "", reason), wrapped)
    return f"{reason} did not hold" if re.search(r" (?:[<>]=?|[!=]=) ", reason) else reason


def in_user_words(text: str, wrapped: Any = None) -> str:
    """Return Dynamo's names of places as the user would write them: ``L['x'].size()[0]`` is
    ``x.size(0)``.

    Where torch wrapped a function, ``args[0]`` is its first argument and ``fn`` is ``self``.
    """
    text = re.sub(r"\._(?:modules|parameters|buffers)\['(\w+)'\]", r".\1", text)
    text = re.sub(r"\b[LG]\['(\w+)'\]", r"\1", text)
    text = re.sub(r"\.(size|stride)\(\)\[(\d+)\]", r".\1(\2)", text)
    if wrapped is None:
        return text
    named, others, keywords = _parameters(wrapped)

    def positional(match: re.Match[str]) -> str:
        number = int(match[1])
        return named[number] if number < len(named) else f"{others}[{number - len(named)}]"

    def keyword(match: re.Match[str]) -> str:
        return match[1] if match[1] in keywords else match[0]

    text = re.sub(r"\bargs\[(\d+)\]", positional, text)
    text = re.sub(r"\bkwargs\['(\w+)'\]", keyword, text)
    return re.sub(r"\bfn\b(?:\.__self__)?", "self", text)


def _parameters(fn: Any) -> tuple[Sequence[str], str, frozenset[str]]:
    """Return the positional arguments by name, the name of ``*args``, and the arguments that can be
    given by name.
    """
    called: Callable[..., Any] = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):  # a function of C without a signature
        return (), "args", frozenset()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [each.name for each in parameters if each.kind in positional]
    others = (each.name for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL)
    keywords = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return (
        named,
        next(others, "args"),
        frozenset(each.name for each in parameters if each.kind in keywords),
    )
