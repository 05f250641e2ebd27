"""The backend of ``torch.compile(model, backend="symshape")``: programs of the graphs that Dynamo
finds.

A graph that needs no gradients is traced directly (:mod:`symshape.tracing.from_graph.dynamo`),
without AOTAutograd, which takes most of the time of a first call. On the CPU a graph runs as Dynamo
made it where no such program can be made and nothing would be recorded. Elsewhere AOTAutograd
serves, for the graphs and calls about which it is known to be right
(:mod:`symshape.frontends.dynamo_aot`), and for gradients while that is not slower
(:mod:`symshape.frontends.dynamo_training`).

Dynamo keeps one entry with symbolic sizes where sizes change. Each of its graphs becomes one
program of ours, for all sizes that Dynamo's guards let through. We only look at *which* sizes are
symbolic and never at their values, so no guard of ours becomes one of Dynamo's. (Private names of
torch used here were checked on 2.11 to 2.13.)
"""

from __future__ import annotations

import builtins
import dis
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import attrs
import torch

from guards.sets.guard import Guard
from symshape import events
from symshape.errors import (
    FallbackWarning,
    InputError,
    Reason,
    RunnerError,
    UnsupportedError,
    note_of,
    release_frames,
)
from symshape.frontends.dynamo_aot import (
    ProvenCalls,
    doubt,
    is_straight,
    kernels_of_torch,
    reached,
    without_second_gradients,
    without_zeros,
    written,
)
from symshape.frontends.dynamo_graph import DynamoGraph, Origin, alive, as_it_came
from symshape.frontends.dynamo_names import names, refused_by_torch
from symshape.frontends.dynamo_training import TrainingGraph
from symshape.graph.codegen import Run
from symshape.graph.program import Program
from symshape.interrupts import interrupt_in
from symshape.options import Options, options_of
from symshape.runtime.eager_or_program import may_run_eagerly
from symshape.runtime.runners.choice import RunnerName, check_name
from symshape.torch_internals.dynamo import TorchDynamoException, TracingContext, aot_autograd
from symshape.torch_internals.private import refusal, refuse_if_missing
from symshape.tracing.from_graph.dynamo import retraced
from symshape.tracing.traced_modes import nothing_left_entered

# -- Dynamo's graphs compiled by Inductor: its own decompositions, partition and code, one artefact
# for all sizes.
#
# A graph that Inductor cannot compile runs op by op. (Private names of torch used here were
# checked on 2.11 to 2.13.)
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


_MODES: Mapping[str | None, RunnerName] = {
    None: "auto",
    "default": "auto",
    "reduce-overhead": "cudagraph",
    "max-autotune": "inductor",
    "max-autotune-no-cudagraphs": "inductor",
}
_DIRECTLY = ("cpu", "cuda")  # device types on which Dynamo's graphs were compared with eager


def symshape_backend(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Options | Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile one graph of Dynamo's.

    Args:
        gm: the graph.
        example_inputs: its inputs, fake; sizes may be ``torch.SymInt``.
        mode: torch.compile's mode; ``reduce-overhead`` asks for CUDA graphs, ``max-autotune`` for
            Inductor.
        options: a :class:`symshape.Options`, or a dictionary of its fields, of ``runner`` (wins
            over ``mode``) and of ``fullgraph`` (as in :func:`symshape.compile`; torch.compile does
            not pass its own on).

    A graph that symshape cannot compile, or that AOTAutograd cannot decompose, runs as Dynamo made
    it.

    Raises:
        InputError: an unknown mode or option.
    """
    runner, fullgraph, chosen = _settings(mode, options)
    words = names()
    given = [words.argument(node) for node in gm.graph.nodes if node.op == "placeholder"]

    impossible = refusal()
    if impossible is not None and not fullgraph:
        return _eagerly(gm, impossible)
    refuse_if_missing()
    wanted = _Wanted(gm, words.origin, given, runner, fullgraph, chosen)
    plain = runner == "auto" and not fullgraph and may_run_eagerly(chosen)
    direct = None if runner == "inductor" else _without_gradients(wanted)
    if direct is not None:
        alive.add(direct)
        return direct.plainly()
    straight = plain and is_straight(gm)
    if straight and not _on_cuda(gm):
        return _as_dynamo_made_it(wanted, "")
    reason = doubt(gm, dead=runner != "inductor")
    if straight and reason:
        return _as_dynamo_made_it(wanted, reason)
    try:
        if reason:
            raise UnsupportedError(
                f"AOTAutograd may be wrong about the graph: {reason}", reason=Reason.DYNAMO_GRAPH
            )
        return _by_aot_autograd(wanted, example_inputs, plain)
    except Exception as error:  # whatever AOTAutograd may raise: Dynamo's graph can still run
        release_frames(error)
        if (
            fullgraph
            or isinstance(error, (TorchDynamoException, RunnerError))
            or interrupt_in(error) is not None
        ):
            raise
        refused = error if isinstance(error, UnsupportedError) else refused_by_torch(error)
    return _refused(wanted, refused)


@attrs.frozen(eq=False)
class _Wanted:
    """A graph of Dynamo's, and how it is to be served.

    Attributes:
        module: the graph.
        origin: where it comes from.
        given: its arguments' names, for people.
        runner: the runner that was asked for.
        fullgraph: whether the whole graph must be compiled.
        options: of its programs.
    """

    module: torch.fx.GraphModule
    origin: Origin
    given: Sequence[str]
    runner: RunnerName
    fullgraph: bool
    options: Options

    def graph(self, part: str, runner: RunnerName, **more: Any) -> DynamoGraph:
        """Return the graph as a part that this runner serves."""
        origin = attrs.evolve(self.origin, part=part)
        return DynamoGraph(self.module, origin, self.given, runner, self.options, **more)


def _eagerly(gm: torch.fx.GraphModule, why: UnsupportedError) -> Callable[..., Any]:
    """Return Dynamo's graph itself, with a warning that says why it is not served."""
    text = f"a graph of torch.compile runs eagerly: {why}\n  {note_of(why.code)}"
    warnings.warn(text, FallbackWarning, stacklevel=2)
    return gm.forward


def _as_dynamo_made_it(wanted: _Wanted, reason: str) -> Callable[..., Any]:
    """Return a runner of the graph as Dynamo made it, for this reason or because nothing of it
    would be recorded.
    """
    tensors = _tensors(wanted.module)
    trains = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    because = reason or ("torch's own backward is faster" if trains else "no program is made of it")
    made = wanted.graph("training" if trains else "inference", "eager", plain_because=because)
    alive.add(made)
    return made.as_dynamo_made_it()


def _refused(wanted: _Wanted, error: UnsupportedError) -> Callable[..., Any]:
    """Return a function that runs a graph eagerly and reports why; with ``fullgraph`` each call
    raises the reason.
    """
    if wanted.fullgraph:

        def fails(*args: Any) -> Any:
            raise error

        return fails
    refused = wanted.graph("", "eager", refused=error)
    alive.add(refused)
    return lambda *args: refused(*args)


def _by_aot_autograd(
    wanted: _Wanted, example_inputs: Sequence[Any], plain: bool
) -> Callable[..., Any]:
    """Return AOTAutograd's version of a graph; a call for which that may be wrong runs the graph as
    Dynamo made it.

    Args:
        wanted: the graph.
        example_inputs: its inputs.
        plain: whether the graph as Dynamo made it may serve where it is faster.
    """
    gm = wanted.module
    taken, parts = _taken_apart(wanted, example_inputs)
    positions = written(len(wanted.given))
    results = None if all(each.origin.part == "inference" for each in parts) else reached(gm)
    if results is not None:
        taken = without_zeros(taken, results)
    if any(each.origin.part != "inference" for each in parts):
        taken = without_second_gradients(taken)
    serve = TrainingGraph(gm, taken, parts).serve if plain else taken
    forward = next((each for each in parts if each.origin.part == "forward"), None)
    hooks_matter = wanted.runner in ("auto", "eager")
    plainly = None if forward is None else _under_hooks(gm, forward)
    overlapping = UnsupportedError(
        "arguments share memory, and the graph writes to one of them", reason=Reason.DYNAMO_GRAPH
    )
    if plainly is None and not positions:
        return serve
    refused = partial(_refused, wanted, overlapping)
    return ProvenCalls(serve, plainly, refused, positions, hooks_matter=hooks_matter).serve


def _taken_apart(
    wanted: _Wanted, example_inputs: Sequence[Any]
) -> tuple[Callable[..., Any], list[DynamoGraph]]:
    """Return AOTAutograd's (or Inductor's) version of a graph, and its parts; a later backward is
    added to them.
    """
    by_inductor = wanted.runner == "inductor"
    parts: list[DynamoGraph] = []

    def make(part: str, graph: torch.fx.GraphModule) -> DynamoGraph:
        own = attrs.evolve(wanted, module=graph, given=_paths(graph, wanted.given))
        # else Dynamo's graph runs, not this one
        whole = wanted.fullgraph or (not by_inductor and part != "backward")
        made = own.graph(part, "eager" if by_inductor else wanted.runner, fullgraph=whole)
        alive.add(made)
        parts.append(made)
        return made

    def compiler(part: str) -> Callable[..., Any]:
        def compiled(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            context = TracingContext.try_get()
            if part == "backward" and context is not None and context.fw_metadata is not None:
                # saved tensors are not reused: a user may hold them
                context.fw_metadata.bw_donated_idxs = []
            return make(part, graph).boxed()

        return compiled

    compilers = {
        "fw_compiler": "forward",
        "bw_compiler": "backward",
        "inference_compiler": "inference",
    }
    try:
        with nothing_left_entered():
            if by_inductor:
                return compiled_by_inductor(wanted.module, example_inputs, make), parts
            symbolic = any(
                isinstance(size, torch.SymInt)
                for each in _tensors(wanted.module)
                for size in each.size()
            )
            with kernels_of_torch(symbolic):
                taken = aot_autograd(**{name: compiler(part) for name, part in compilers.items()})(
                    wanted.module, example_inputs
                )
            return taken, parts
    except BaseException:
        for each in parts:
            alive.discard(each)
        raise


def _under_hooks(gm: torch.fx.GraphModule, forward: DynamoGraph) -> Callable[..., Any]:
    """Return a function that runs a graph as Dynamo made it, and counts that for its forward."""
    run = as_it_came(gm)

    def serve(*args: Any) -> Any:
        forward.plain += 1
        forward.plain_because = (
            forward.plain_because
            or "saved-tensor hooks (a checkpoint's) or forward-mode gradients are around the call"
        )
        return run(*args)

    return serve


def _tensors(gm: torch.fx.GraphModule) -> list[torch.Tensor]:
    """Return the arguments of a graph that are tensors, as Dynamo knows them."""
    known = (node.meta.get("example_value") for node in gm.graph.nodes if node.op == "placeholder")
    return [each for each in known if isinstance(each, torch.Tensor)]


def _on_cuda(gm: torch.fx.GraphModule) -> bool:
    """Return whether calls of a graph can be recorded: an argument is on a CUDA device."""
    return any(each.device.type == "cuda" for each in _tensors(gm))


def _without_gradients(wanted: _Wanted) -> DynamoGraph | None:
    """Return a graph without gradients as a program, traced directly; None where AOTAutograd has to
    decompose it.
    """
    tensors, runner = _tensors(wanted.module), wanted.runner
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        return None
    if any(each.device.type not in _DIRECTLY for each in tensors):
        return None
    name = attrs.evolve(wanted.origin, part="inference").name
    demanded: list[Guard] = []
    try:
        made = [retraced(wanted.module, name, wanted.given, demanded)]
    except (
        Exception
    ) as error:  # any error: AOTAutograd traces fake tensors without Python code, and may succeed
        if interrupt_in(error) is not None:
            raise
        return None
    if runner not in ("auto", "eager") and any(node.bindings for node in made[0][0].graph.nodes):
        return None  # no other runner reads numbers; AOTAutograd has Dynamo fix some of them

    def take(module: torch.fx.GraphModule, name: str, paths: Sequence[str]) -> tuple[Program, Run]:
        if made:
            return made.pop()
        demanded.clear()
        return retraced(module, name, paths, demanded)

    return wanted.graph(
        "inference", runner, fullgraph=wanted.fullgraph, take=take, demanded=demanded
    )


def reset() -> None:
    """Forget every program of every graph compiled through this backend; ``torch._dynamo.reset()``
    calls it.
    """
    for graph in list(alive):
        graph.reset()
        alive.discard(graph)  # a graph that is still called, such as a waiting backward, comes back


symshape_backend.reset = reset  # type: ignore[attr-defined]


def _settings(
    mode: str | None, options: Options | Mapping[str, Any] | None
) -> tuple[RunnerName, bool, Options]:
    if mode not in _MODES:
        raise InputError(
            f"backend symshape knows no mode {mode!r}; choose one of {', '.join(map(str, _MODES))}"
        )
    if not isinstance(options, (Options, Mapping, type(None))):
        raise InputError(
            f"options must be symshape.Options or a dictionary, not a {type(options).__name__}"
        )
    rest = {} if options is None or isinstance(options, Options) else dict(options)
    runner = check_name(rest.pop("runner", _MODES[mode]))
    fullgraph = bool(rest.pop("fullgraph", False))
    chosen = options if isinstance(options, Options) else options_of(rest, "runner", "fullgraph")
    if chosen.on_miss != "trace":
        raise InputError(
            "on_miss needs a store, which only symshape.compile has; leave it out of the backend's "
            "options"
        )
    return runner, fullgraph, chosen


def _paths(graph: torch.fx.GraphModule, given: Sequence[str]) -> list[str]:
    """Return the arguments of a graph of AOTAutograd's in the user's words, each name once."""
    paths: list[str] = []
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    backward = any(node.name.startswith("tangents") for node in placeholders)
    for node in placeholders:
        found = re.fullmatch(r"(primals|arg|tangents)_?(\d+)(?:_1)?", node.name)
        kind, number = (found[1], int(found[2]) - (found[1] != "arg")) if found else ("", 0)
        if kind == "tangents":
            path = f"the gradient of result {number}"
        else:
            kept = f"what forward kept of {node.name}" if backward else node.name
            path = given[number] if kind and number < len(given) else kept
        paths.append(path if path not in paths else f"{path} ({node.name})")
    return paths
