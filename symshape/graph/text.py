"""A graph as text for people: dtypes, sizes, ops and the user's lines."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from meta_fns import TensorSpec
from symshape.calls.naming import brief
from symshape.graph.steps import Assertion, Input, Lifted, Step, Value

_SHORT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.bool: "bool",
}
_SHORT |= {
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
}


class Shown(Protocol):
    """The parts of a graph that are shown."""

    @property
    def inputs(self) -> Sequence[Input]:
        """Tensor arguments."""

    @property
    def lifted(self) -> Sequence[Lifted]:
        """Parameters, buffers and constants."""

    @property
    def steps(self) -> Sequence[Step]:
        """Nodes and assertions."""

    @property
    def outputs(self) -> Sequence[Any]:
        """Leaves of the result."""


def describe(value: Value) -> str:
    """Return a value's dtype and sizes, such as ``f32[s0, 64]``."""
    return describe_spec(value.spec)


def describe_spec(spec: TensorSpec, show: Callable[[Any], str] = str) -> str:
    """Return a tensor's dtype and sizes, such as ``f32[s0, 64]``; ``show`` writes a size."""
    dtype = _SHORT.get(spec.dtype, str(spec.dtype).removeprefix("torch."))
    return f"{dtype}[{', '.join(map(show, spec.sizes))}]"


def shown_argument(arg: Any) -> str:
    """Return the text of an op's argument: values by their names, sizes as formulas."""
    if isinstance(arg, (list, tuple)):
        return "[" + ", ".join(shown_argument(item) for item in arg) + "]"
    if isinstance(arg, torch.nn.Module):  # a graph that a higher-order operator takes
        return f"<{type(arg).__name__}>"
    return brief(arg) if isinstance(arg, (str, bytes, enum.Enum)) else str(arg)


def text(graph: Shown) -> str:
    """Return a graph as text: one line a step, with shapes, and the user's lines as comments where
    they change.
    """
    lines = ["inputs:"]
    lines += [f"  {each.value}: {describe(each.value)} = {each.path}" for each in graph.inputs]
    if graph.lifted:
        lines.append("lifted:")
        lines += [f"  {each.value}: {describe(each.value)} = {each.name}" for each in graph.lifted]
    lines.append("steps:")
    where: tuple[str, int, str] | None = None
    for step in graph.steps:
        if isinstance(step, Assertion):
            lines.append(f"  assert {step.guard.term}")
            continue
        if step.location is not None and step.location != where:
            where = step.location
            lines.append(f"  # {step.origin}")
        targets = ", ".join(
            "_" if output is None else f"{output}: {describe(output)}" for output in step.outputs
        )
        arguments = [shown_argument(arg) for arg in step.args] + [
            f"{name}={shown_argument(arg)}" for name, arg in step.kwargs.items()
        ]
        bound = "".join(f"  -> {binding.symbol}" for binding in step.bindings)
        lines.append(
            f"  {f'{targets} = ' if targets else ''}{step.op}({', '.join(arguments)}){bound}"
        )
    lines.append(f"return {shown_argument(graph.outputs)}")
    return "\n".join(lines)
