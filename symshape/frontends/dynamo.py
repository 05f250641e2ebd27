"""``torch.compile(model, backend="symshape")``: Dynamo finds the graph, AOTAutograd makes forward and backward.

Dynamo keeps one entry with symbolic sizes where sizes change; each of its graphs fans out into our own entries, by our
own guards.  We only look at *which* sizes are symbolic and never at their values, so no guard of ours becomes one of
Dynamo's.  (Private names of torch used here were checked on 2.11 to 2.13.)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func  # type: ignore[attr-defined]

from guards.sets.sources import IntArg, Size, Source
from symshape.calls.call_key import chosen_key
from symshape.dims import Dim, Policy
from symshape.errors import InputError
from symshape.frontends.compile import Compiled, compiled_with
from symshape.options import Options, options_of
from symshape.runtime.runners.choice import RunnerName, check_name
from symshape.tracing.mode import is_tracing
from symshape.user_code import at, location_in

_MODES: Mapping[str | None, RunnerName] = {
    None: "auto",
    "default": "auto",
    "reduce-overhead": "cudagraph",
    "max-autotune": "inductor",
    "max-autotune-no-cudagraphs": "inductor",
}
_alive: weakref.WeakSet[Compiled] = weakref.WeakSet()


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

    A graph that cannot be traced runs as it is.

    Raises:
        InputError: an unknown mode or option.
    """
    runner, fullgraph, chosen = _settings(mode, options)

    def boxed(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(compile_graph(graph, inputs, runner, chosen, fullgraph))

    return aot_autograd(fw_compiler=boxed, bw_compiler=boxed)(gm, example_inputs)


def reset() -> None:
    """Forgets every entry of every graph compiled through this backend; ``torch._dynamo.reset()`` calls it."""
    for compiled in list(_alive):
        compiled.reset()


symshape_backend.reset = reset  # type: ignore[attr-defined]


def _settings(mode: str | None, options: Options | Mapping[str, Any] | None) -> tuple[RunnerName, bool, Options]:
    if mode not in _MODES:
        raise InputError(f"backend symshape knows no mode {mode!r}; choose one of {', '.join(map(str, _MODES))}")
    if options is None or isinstance(options, Options):
        return _MODES[mode], False, options_of(options)
    rest = dict(options)
    runner = check_name(rest.pop("runner", _MODES[mode]))
    return runner, bool(rest.pop("fullgraph", False)), options_of(rest, "runner", "fullgraph")


class _Interpreter(torch.fx.Interpreter):
    """Runs a graph node by node, each at the user's line that Dynamo noted for it."""

    def run_node(self, n: torch.fx.Node) -> Any:
        with at(location_in(n.stack_trace)):
            return super().run_node(n)


def compile_graph(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    runner: RunnerName,
    options: Options,
    fullgraph: bool = False,
) -> Compiled:
    """One ATen graph of AOTAutograd's: dispatches on the sizes that Dynamo left symbolic, and on nothing else.

    Dynamo's and AOTAutograd's own guards hold what is static (dtypes, devices, static sizes, layouts, the graph), so
    the key of a call is its symbolic sizes and integers.
    """
    policies: dict[Source, Dim | Policy] = {}
    sizes: list[tuple[int, int]] = []
    integers: list[int] = []
    for position, each in enumerate(inputs):
        name = f"inputs[{position}]"
        if isinstance(each, torch.SymInt):
            policies[IntArg(name)] = _policy(each)
            integers.append(position)
        elif isinstance(each, torch.Tensor):
            shape: list[Any] = list(each.shape)
            for d, size in enumerate(shape):
                if isinstance(size, torch.SymInt):
                    policies[Size(name, d)] = _policy(size)
                    sizes.append((position, d))

    def dynamo_graph(*inputs: Any) -> Any:
        return _Interpreter(graph).run(*inputs) if is_tracing() else graph(*inputs)

    exact = chosen_key(len(inputs), sizes, integers)
    make = compiled_with(options)
    compiled = make(dynamo_graph, None, runner, options, fixed_policies=policies, exact=exact, fullgraph=fullgraph)
    _alive.add(compiled)
    return compiled


def _policy(size: Any) -> Dim | Policy:
    """A symbol that the program may specialise; the same one wherever Dynamo has the same symbol."""
    name = str(size)
    return Dim(name, policy=Policy.AUTO) if name.isidentifier() else Policy.AUTO
