"""A traced program as data: values, nodes, bindings of unbacked symbols, run-time assertions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import torch
from torch._ops import OpOverload
from torch.utils._pytree import TreeSpec

from guards.sets.guard import Guard
from guards.sets.origin import Origin
from guards.terms.term import Term
from meta_fns import TensorSpec
from symshape.graph.float_terms import FloatTerm
from symshape.user_code import Location, origin_of


class Value:
    """A tensor in a graph: an input, a lifted parameter, or an output of a node.  Compared by identity.

    Attributes:
        index: its number; ``v{index}`` in text and in generated code.
        spec: sizes (int or symbolic), strides and storage offset in elements, dtype, device, layout.
        storage: the same object for values that share memory.
    """

    __slots__ = ("index", "spec", "storage")

    def __init__(self, index: int, spec: TensorSpec, storage: object) -> None:
        self.index = index
        self.spec = spec
        self.storage = storage

    @property
    def name(self) -> str:
        """The name in text and in generated code."""
        return f"v{self.index}"

    def __repr__(self) -> str:
        return self.name


@attrs.frozen(eq=False)
class Input:
    """A tensor argument: its position among the call's leaves, and its path in the caller's words."""

    position: int
    path: str
    value: Value


@attrs.frozen(eq=False)
class Lifted:
    """A tensor that the program reads but does not take as an argument: a parameter, a buffer, or a constant.

    ``constant`` marks one made inside the program (``torch.tensor([1, 2])``): each run starts from a fresh copy.
    """

    name: str
    tensor: torch.Tensor
    value: Value
    constant: bool = False


@attrs.frozen(eq=False)
class Binding:
    """Where an unbacked symbol gets its value: ``kind`` of ``size`` (of output ``output``, dimension ``dim``),
    ``item`` (an integer result), ``bool`` or ``float``.
    """

    symbol: str
    kind: str
    output: int = 0
    dim: int = 0


@attrs.frozen(eq=False)
class Node:
    """One call of an ATen op.

    Attributes:
        op: the overload.
        args, kwargs: as the op takes them, with ``Value`` for tensors, ``Term`` for sizes, ``FloatTerm`` for floats.
        outputs: the tensors it returns, in order; None where it returns none there.
        single: whether it returns one thing and not a tuple or list.
        bindings: unbacked symbols that its result fixes.
        grad: whether gradients are recorded, where that differs from the mode the program was called in.
        inference: whether it runs in inference mode, where that differs from the mode the program was called in.
        untracked: for a ``detach``: it is ``Tensor.data``, whose writes autograd does not see.
        location: the user's file, line and function.
    """

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[Value | None, ...]
    single: bool
    bindings: tuple[Binding, ...] = ()
    grad: bool | None = None
    inference: bool | None = None
    untracked: bool = False
    location: Location | None = None

    @property
    def origin(self) -> Origin:
        """The user's line that called the op."""
        return origin_of(self.location, str(self.op))


@attrs.frozen(eq=False)
class Assertion:
    """A condition on unbacked symbols that is checked when the program runs, at this point."""

    guard: Guard
    message: str


Step = Node | Assertion


@attrs.frozen(eq=False)
class Graph:
    """A traced program.

    Attributes:
        inputs: tensor arguments, in order.
        lifted: parameters, buffers and constants.
        steps: nodes and assertions, in the order of execution.
        outputs: leaves of the result (``Value``, ``Term``, ``FloatTerm`` or a constant).
        output_tree: how the leaves nest.
    """

    inputs: tuple[Input, ...]
    lifted: tuple[Lifted, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Any, ...]
    output_tree: TreeSpec

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The op calls, in order."""
        return tuple(step for step in self.steps if isinstance(step, Node))

    @property
    def mutates_inputs(self) -> bool:
        """Whether an input or a lifted tensor is written to."""
        return bool(self.mutated)

    @property
    def mutated(self) -> tuple[Value, ...]:
        """The inputs and lifted tensors that are written to, directly or through a view."""
        roots = [*(each.value for each in self.inputs), *(each.value for each in self.lifted)]
        written = {id(value.storage) for node in self.nodes for value in written_values(node)}
        return tuple(root for root in roots if id(root.storage) in written)

    @property
    def uses_randomness(self) -> bool:
        """Whether a node draws random numbers."""
        return any(draws_random_numbers(node) for node in self.nodes)

    def __str__(self) -> str:
        return text(self)


def draws_random_numbers(node: Node) -> bool:
    """Whether a node advances the random state: by its tag, unless all it would draw for is a dropout of 0."""
    if torch.Tag.nondeterministic_seeded not in node.op.tags:
        return False
    for position, argument in enumerate(node.op._schema.arguments):
        if argument.name == "dropout_p":
            given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name, 0.0)
            return not (isinstance(given, (int, float)) and given == 0)
    return True


_BATCH_NORM = frozenset({"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"})


def written_values(node: Node) -> Iterator[Value]:
    """The values that a node writes to, by its schema (and batch norm's running statistics, which its schema hides)."""
    schema = node.op._schema
    if schema.name in _BATCH_NORM and node.args[5] is not False:  # not False: training
        yield from (value for value in node.args[3:5] if isinstance(value, Value))
    if not schema.is_mutable:
        return
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        arg = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
        yield from values_in(arg)


def values_in(arg: Any) -> Iterator[Value]:
    """The values in an argument, however nested."""
    if type(arg) is Value:
        yield arg
    elif isinstance(arg, (tuple, list)):
        for item in arg:
            yield from values_in(item)
    elif isinstance(arg, Mapping):
        for item in arg.values():
            yield from values_in(item)


def map_argument(arg: Any, leaf: Callable[[Any], Any]) -> Any:
    """``arg`` with ``leaf`` applied to every Value, Term and FloatTerm in it."""
    if type(arg) is Value or type(arg) is Term or type(arg) is FloatTerm:
        return leaf(arg)
    if isinstance(arg, (tuple, list)):
        return type(arg)(map_argument(item, leaf) for item in arg)
    return arg


_REFUSES_DATA = frozenset(
    f"aten::{name}"
    for name in (
        *("index", "index_select", "gather", "take", "take_along_dim", "embedding", "embedding_bag", "one_hot"),
        *("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill", "index_put"),
        *("nll_loss_forward", "nll_loss2d_forward", "bincount", "multinomial", "binary_cross_entropy", "searchsorted"),
        *("linalg_cholesky_ex", "linalg_inv_ex", "_linalg_solve_ex", "_linalg_det", "_linalg_eigh", "cholesky"),
        *("_assert_async", "_local_scalar_dense", "max_unpool2d", "max_unpool3d", "ctc_loss", "_ctc_loss"),
    )
)
"""Ops that may refuse the data that they get: they run even where nobody reads their result."""


def _is_pure(node: Node) -> bool:
    op = node.op
    return not (
        op._schema.is_mutable
        or node.bindings
        or torch.Tag.nondeterministic_seeded in op.tags
        or op._schema.name in _BATCH_NORM
        or op.namespace not in ("aten", "prims")
        or op._schema.name in _REFUSES_DATA
        or not node.outputs
    )


def without_dead_code(steps: list[Step], outputs: tuple[Any, ...]) -> tuple[Step, ...]:
    """The steps without pure ATen calls whose results nobody reads."""
    live = set(values_in(outputs))
    kept: list[Step] = []
    for step in reversed(steps):
        if isinstance(step, Node) and _is_pure(step) and not any(output in live for output in step.outputs):
            continue
        if isinstance(step, Node):
            live.update(values_in(step.args))
            live.update(values_in(step.kwargs))
        kept.append(step)
    kept.reverse()
    return tuple(kept)


_SHORT = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.bool: "bool"}
_SHORT |= {torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8"}


def describe(value: Value) -> str:
    """A value's dtype and sizes, such as ``f32[s0, 64]``."""
    return describe_spec(value.spec)


def describe_spec(spec: TensorSpec) -> str:
    """A tensor's dtype and sizes, such as ``f32[s0, 64]``."""
    dtype = _SHORT.get(spec.dtype, str(spec.dtype).removeprefix("torch."))
    return f"{dtype}[{', '.join(str(size) for size in spec.sizes)}]"


def _shown(arg: Any) -> str:
    if isinstance(arg, (list, tuple)):
        return "[" + ", ".join(_shown(item) for item in arg) + "]"
    return str(arg) if not isinstance(arg, str) else repr(arg)


def text(graph: Graph) -> str:
    """The graph for people: one line a step, with shapes, and the user's lines as comments where they change."""
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
        targets = ", ".join("_" if output is None else f"{output}: {describe(output)}" for output in step.outputs)
        arguments = [_shown(arg) for arg in step.args] + [f"{name}={_shown(arg)}" for name, arg in step.kwargs.items()]
        bound = "".join(f"  -> {binding.symbol}" for binding in step.bindings)
        lines.append(f"  {f'{targets} = ' if targets else ''}{step.op}({', '.join(arguments)}){bound}")
    lines.append(f"return {_shown(graph.outputs)}")
    return "\n".join(lines)
