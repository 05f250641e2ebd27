"""``torch.compile(model, backend="symshape")``: Dynamo finds the graph, AOTAutograd makes forward and backward.

Dynamo keeps one entry with symbolic sizes where sizes change; each of its graphs becomes one program of ours, for all
sizes that Dynamo's guards let through.  We only look at *which* sizes are symbolic and never at their values, so no
guard of ours becomes one of Dynamo's.  (Private names of torch used here were checked on 2.11 to 2.13.)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

import attrs
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._guards import CompileContext, TracingContext

from symshape.errors import InputError
from symshape.frontends.dynamo_graph import DynamoGraph, Origin, alive
from symshape.frontends.dynamo_inductor import compiled_by_inductor
from symshape.options import Options, options_of
from symshape.runtime.runners.choice import RunnerName, check_name

_MODES: Mapping[str | None, RunnerName] = {
    None: "auto",
    "default": "auto",
    "reduce-overhead": "cudagraph",
    "max-autotune": "inductor",
    "max-autotune-no-cudagraphs": "inductor",
}


def symshape_backend(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Options | Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles one graph of Dynamo's.

    Args:
        gm: the graph.
        example_inputs: its inputs, fake; sizes may be ``torch.SymInt``.
        mode: torch.compile's; ``reduce-overhead`` asks for CUDA graphs, ``max-autotune`` for Inductor.
        options: a :class:`symshape.Options`, or a dictionary of its fields, of ``runner`` (wins over ``mode``) and of
            ``fullgraph`` (as in :func:`symshape.compile`; torch.compile keeps its own to itself).

    A graph that cannot be taken over runs as it is.

    Raises:
        InputError: an unknown mode or option.
    """
    runner, fullgraph, chosen = _settings(mode, options)
    origin = _origin()
    names = [_user_name(node) for node in gm.graph.nodes if node.op == "placeholder"]

    def make(part: str, graph: torch.fx.GraphModule) -> DynamoGraph:
        own = "eager" if runner == "inductor" else runner
        made = DynamoGraph(graph, attrs.evolve(origin, part=part), _paths(graph, names), own, chosen, fullgraph)
        alive.add(made)
        return made

    if runner == "inductor":
        return compiled_by_inductor(gm, example_inputs, make)

    def compiler(part: str) -> Callable[..., Any]:
        def compiled(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            context = TracingContext.try_get()
            if part == "backward" and context is not None and context.fw_metadata is not None:
                context.fw_metadata.bw_donated_idxs = []  # nothing that forward kept is written to: it may be kept on
            return make(part, graph).boxed()

        return compiled

    parts = {"fw_compiler": "forward", "bw_compiler": "backward", "inference_compiler": "inference"}
    return aot_autograd(**{name: compiler(part) for name, part in parts.items()})(gm, example_inputs)


def reset() -> None:
    """Forgets every program of every graph compiled through this backend; ``torch._dynamo.reset()`` calls it."""
    for graph in list(alive):
        graph.reset()


symshape_backend.reset = reset  # type: ignore[attr-defined]


def _settings(mode: str | None, options: Options | Mapping[str, Any] | None) -> tuple[RunnerName, bool, Options]:
    if mode not in _MODES:
        raise InputError(f"backend symshape knows no mode {mode!r}; choose one of {', '.join(map(str, _MODES))}")
    rest = {} if options is None or isinstance(options, Options) else dict(options)
    runner = check_name(rest.pop("runner", _MODES[mode]))
    fullgraph = bool(rest.pop("fullgraph", False))
    chosen = options if isinstance(options, Options) else options_of(rest, "runner", "fullgraph")
    if chosen.on_miss != "trace":
        raise InputError(
            "on_miss is for symshape.compile, which has a store; Dynamo traces before the backend is asked"
        )
    return runner, fullgraph, chosen


# -- the user's words


def _origin() -> Origin:
    """Of which function the graph is that Dynamo hands over now, and why Dynamo made it."""
    number = CompileContext.current_compile_id()
    shown = "" if number is None else str(number)
    code = _code_in_hand()
    if code is None:
        return Origin("a graph", number=shown, reason=_reason())
    name = code.co_qualname.rpartition("<locals>.")[2]
    resumed = re.fullmatch(r"(?:.*\.)?torch_dynamo_resume_in_(.+)_at_(\d+)", name)
    if resumed:
        name = f"{resumed[1]} from line {resumed[2]} on"
    return Origin(name, f"{code.co_filename}:{code.co_firstlineno}", shown, reason=_reason())


def _code_in_hand() -> CodeType | None:
    """The code that Dynamo is compiling; None where this torch does it otherwise, or nobody does."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_locals.get("code") if frame.f_code.co_name == "_compile" else None
        if isinstance(code, CodeType):
            return code
        frame = frame.f_back
    return None


def _reason() -> str:
    """Why Dynamo compiles a function once more; empty for the first time."""
    try:
        metrics = torch._dynamo.utils.get_metrics_context()._metrics
    except AttributeError:  # this torch keeps it elsewhere: the report goes without
        return ""
    reason = str(metrics.get("recompile_reason") or "").partition("  #")[0]
    return _in_user_words(re.sub(r"^\d+/\d+: ", "", reason))


def _user_name(node: torch.fx.Node) -> str:
    """An argument of a graph of Dynamo's, as the user would write it."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", node.name)
    return _in_user_words(str(name() if callable(name) else name))


def _in_user_words(text: str) -> str:
    """Dynamo's names of places as the user would write them: ``L['x'].size()[0]`` is ``x.size(0)``."""
    text = re.sub(r"\._(?:modules|parameters|buffers)\['(\w+)'\]", r".\1", text)
    text = re.sub(r"\b[LG]\['(\w+)'\]", r"\1", text)
    return re.sub(r"\.(size|stride)\(\)\[(\d+)\]", r".\1(\2)", text)


def _paths(graph: torch.fx.GraphModule, names: Sequence[str]) -> list[str]:
    """The arguments of a graph of AOTAutograd's in the user's words, each different from the others."""
    paths: list[str] = []
    for node in graph.graph.nodes:
        if node.op != "placeholder":
            continue
        found = re.fullmatch(r"(primals|arg|tangents)_?(\d+)(?:_1)?", node.name)
        kind, number = (found[1], int(found[2]) - (found[1] != "arg")) if found else ("", 0)
        if kind == "tangents":
            path = f"the gradient of result {number}"
        else:
            path = names[number] if kind and number < len(names) else node.name
        paths.append(path if path not in paths else f"{path} ({node.name})")
    return paths
