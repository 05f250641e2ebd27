"""Dynamo's graphs compiled by Inductor: its own decompositions, partition and code, one artefact
for all sizes.

A graph that Inductor cannot compile runs op by op. (Private names of torch used here were checked
on 2.11 to 2.13.)
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

import torch

from symshape import events
from symshape.errors import Reason, UnsupportedError
from symshape.frontends.dynamo_graph import DynamoGraph

Make = Callable[[str, torch.fx.GraphModule], DynamoGraph]
"""A function that makes the ``DynamoGraph`` of a part: ``make(part, graph)``."""


class InductorCode:
    """The runner of Inductor's code for one graph."""

    def __init__(self, code: Callable[[list[Any]], Any]) -> None:
        self._code = code

    def run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Return the flat outputs of one call."""
        return list(self._code(list(leaves)))

    def release(self) -> None:
        """Do nothing: the compiled code belongs to torch."""

    def describe(self) -> str:
        """Return the runner's name."""
        return "inductor"


def check_names(code: Any) -> None:
    """Check that Inductor's Python code for a graph reads no undefined global name, which would
    fail in a call.

    (For example, a size of a tensor that a graph does not get, where arguments overlap.)

    Raises:
        UnsupportedError: it reads one.
    """
    call = getattr(code, "current_callable", None)
    function = getattr(call, "__func__", call)
    if isinstance(function, FunctionType):
        known = function.__globals__.keys() | vars(builtins).keys()
        unknown = sorted(set(_globals_read(function.__code__)) - known)
        if unknown:
            raise UnsupportedError(
                f"the code that Inductor generated reads {unknown[0]}, which it does not define",
                reason=Reason.DYNAMO_GRAPH,
            )


def _globals_read(code: CodeType) -> Iterator[str]:
    yield from (each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL")
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _globals_read(each)


def compiled_by_inductor(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], make: Make
) -> Callable[..., Any]:
    """Return Inductor's version of a graph of Dynamo's; each part of it is a ``DynamoGraph``.

    Random numbers come from eager's kernels: Inductor's own kernels draw other numbers from the
    same seed.
    """
    from symshape.torch_internals.inductor import compile_fx, compile_fx_inner

    def inner(
        graph: torch.fx.GraphModule, inputs: Sequence[Any], **keywords: Any
    ) -> Callable[..., Any]:
        parts = {"backward": keywords.get("is_backward"), "inference": keywords.get("is_inference")}
        made = make(next((part for part, wanted in parts.items() if wanted), "forward"), graph)
        try:
            code: Any = compile_fx_inner(graph, inputs, **keywords)
            check_names(code)
        except Exception as error:  # whatever a compiler may raise: the graph still runs op by op
            if not made.entries:
                raise
            events.emit(
                events.RunnerFallback("inductor", "eager", f"{type(error).__name__}: {error}")
            )
        else:
            made.run_by("inductor", InductorCode(code), code)
        return made.boxed()

    # torch's annotation wants more of the inner compiler's results than torch does
    compiler: Any = compile_fx
    compiled: Callable[..., Any] = compiler(
        gm, example_inputs, inner_compile=inner, config_patches={"fallback_random": True}
    )
    return compiled
