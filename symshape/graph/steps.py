"""The parts of a graph: values, nodes, bindings of unbacked symbols, run-time assertions; and walks
over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
import torch

from guards.sets.guard import Guard
from guards.sets.origin import Origin
from guards.terms.term import Term
from meta_fns import TensorSpec
from meta_fns.core.sizes import same, same_shape
from meta_fns.torch_internals import OpOverload
from symshape.graph.assertion_messages import Message
from symshape.graph.float_terms import FloatTerm
from symshape.user_code import Location, origin_of


class Value:
    """A tensor in a graph: an input, a lifted parameter, or an output of a node.  Compared by
    identity.

    Attributes:
        index: its number; ``v{index}`` in text and in generated code.
        spec: sizes (int or symbolic), strides and storage offset in elements, dtype, device,
            layout.
        storage: the same object for values that share memory.
        held_until: the index of the last value that was made while the program held this one; None
            if not known.
    """

    __slots__ = ("held_until", "index", "spec", "storage")

    def __init__(self, index: int, spec: TensorSpec, storage: object) -> None:
        self.index = index
        self.spec = spec
        self.storage = storage
        self.held_until: int | None = None

    @property
    def name(self) -> str:
        """The name in text and in generated code."""
        return f"v{self.index}"

    def __repr__(self) -> str:
        return self.name


@attrs.frozen(eq=False)
class Input:
    """A tensor argument: its position among the call's leaves, and its path in the caller's
    words.
    """

    position: int
    path: str
    value: Value


@attrs.frozen(eq=False)
class Lifted:
    """A tensor that the program reads but does not take as an argument: a parameter, a buffer, or a
    constant.

    ``constant`` marks one made inside the program (``torch.tensor([1, 2])``): each run starts from
    a fresh copy.
    """

    name: str
    tensor: torch.Tensor
    value: Value
    constant: bool = False


@attrs.frozen(eq=False)
class Binding:
    """The source of an unbacked symbol's value.

    ``kind`` is ``size`` (of output ``output``, dimension ``dim``), ``item`` (an integer result),
    ``bool`` or ``float``.
    """

    symbol: str
    kind: str
    output: int = 0
    dim: int = 0


@attrs.define(eq=False)  # nobody changes one; frozen ones take twice as long to make
class Node:
    """One call of an ATen op.

    Attributes:
        op: the overload.
        args, kwargs: as the op takes them, with ``Value`` for tensors, ``Term`` for sizes,
            ``FloatTerm`` for floats.
        outputs: the tensors it returns, in order; None where it returns none there.
        single: whether it returns one thing and not a tuple or list.
        bindings: unbacked symbols that its result fixes.
        grad: whether gradients are recorded, where that differs from the mode the program was
            called in.
        inference: whether it runs in inference mode, where that differs from the mode the program
            was called in.
        untracked: for a ``detach``: it is ``Tensor.data``, whose writes autograd does not see.
        location: the user's file, line and function.
        leaves: for an op that changes the sizes or strides of a value in place: the value, and its
            spec from then on.
        checked: whether each call is checked to stay within the memory of its arguments: for ops
            whose kernels trust their arguments, in a program that comes from a file.
        reads: the values among the arguments, in order; found once, for every walk over the graph.
        numbers: the terms and float terms among the arguments, in order.
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
    leaves: tuple[Value, TensorSpec] | None = None
    checked: bool = False
    reads: tuple[Value, ...] = attrs.field(init=False, repr=False)
    numbers: tuple[Term | FloatTerm, ...] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        reads: list[Value] = []
        numbers: list[Term | FloatTerm] = []
        _sort_out(self.args, reads, numbers)
        if self.kwargs:
            _sort_out(self.kwargs.values(), reads, numbers)
        self.reads, self.numbers = tuple(reads), tuple(numbers) if numbers else ()

    def again(
        self, args: tuple[Any, ...], reads: tuple[Value, ...], location: Location | None
    ) -> Node:
        """Return the same call on other values, as yet without outputs: ``reads`` are those in
        ``args``, in order.
        """
        made: Node = object.__new__(Node)
        made.op, made.args, made.kwargs, made.outputs, made.single = (
            self.op,
            args,
            self.kwargs,
            (),
            self.single,
        )
        made.bindings, made.grad, made.inference, made.untracked = (
            self.bindings,
            self.grad,
            self.inference,
            False,
        )
        made.location, made.leaves, made.reads, made.numbers = location, None, reads, self.numbers
        made.checked = self.checked
        return made

    @property
    def origin(self) -> Origin:
        """The user's line that called the op."""
        return origin_of(self.location, str(self.op))


@attrs.frozen(eq=False)
class Assertion:
    """A condition on unbacked symbols that is checked when the program runs, at this point; the
    text if it fails.

    ``error`` is what the program raises where it does not hold.
    """

    guard: Guard
    message: Message = attrs.field(factory=Message)
    error: type[Exception] = RuntimeError


Step = Node | Assertion


def arguments_by_name(node: Node) -> dict[str, Any]:
    """Return the arguments of an op, by the names in its schema."""
    names = [argument.name for argument in node.op._schema.arguments]
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def drops(node: Node) -> bool | None:
    """Return whether a node's dropout may drop something; None if its op has no such argument."""
    names = {argument.name for argument in node.op._schema.arguments} & {"dropout_p", "dropout"}
    if not names:
        return None
    share = arguments_by_name(node).get(min(names), 0.0)
    return not (isinstance(share, (int, float)) and share == 0)


def draws_random_numbers(node: Node) -> bool:
    """Return whether a node advances the random state.

    Its tag says so, unless its dropout is 0, or is for training only, or it is given the state from
    which it draws (backward of attention, which drops what forward dropped).
    """
    if not (_facts.get(id(node.op)) or _facts_of(node.op)).seeded:
        return False
    if arguments_by_name(node).get("train", True) is False:
        return False
    return drops(node) is not False


COLLECTIVES = "_c10d_functional"
"""The namespace of the operators that exchange tensors with other processes."""
BATCH_NORM = frozenset(
    {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"}
)
"""Ops that write to running statistics, which their schemas hide."""


@attrs.frozen(eq=False)
class _OpFacts:
    """The arguments that an op writes to, by position and name; whether it writes running
    statistics, and whether its tag says that it draws random numbers.
    """

    op: Any  # kept alive: it is known by its id (hashing an overload runs Python code)
    arguments: tuple[tuple[int, str], ...]
    of_batch_norm: bool
    seeded: bool


_facts: dict[int, _OpFacts] = {}


def _facts_of(op: Any) -> _OpFacts:
    schema = op._schema
    arguments = enumerate(schema.arguments) if schema.is_mutable else ()
    written = tuple(
        (i, each.name) for i, each in arguments if each.alias_info and each.alias_info.is_write
    )
    given = any(each.name == "philox_seed" for each in schema.arguments)
    seeded = torch.Tag.nondeterministic_seeded in op.tags and not given
    found = _OpFacts(op, written, schema.name in BATCH_NORM, seeded)
    if type(op) is OpOverload:  # others die with their programs
        _facts[id(op)] = found
    return found


def writes_nothing(node: Node) -> bool:
    """Return whether a node writes to no value, for any arguments."""
    found = _facts.get(id(node.op)) or _facts_of(node.op)
    return not found.arguments and not found.of_batch_norm


def written_values(node: Node) -> Iterator[Value]:
    """Return the values that a node writes to, by its schema (and batch norm's running
    statistics).
    """
    writes = _facts.get(id(node.op)) or _facts_of(node.op)
    if writes.of_batch_norm and node.args[5] is not False:  # not False: training
        yield from (value for value in node.args[3:5] if isinstance(value, Value))
    for position, name in writes.arguments:
        yield from values_in(
            node.args[position] if position < len(node.args) else node.kwargs.get(name)
        )


def _sort_out(args: Iterable[Any], values: list[Value], numbers: list[Term | FloatTerm]) -> None:
    """Append the values, and the terms and float terms, in nested arguments."""
    for arg in args:
        kind = type(arg)
        if kind is Value:
            values.append(arg)
        elif kind is Term or kind is FloatTerm:
            numbers.append(arg)
        elif kind is int or kind is float or kind is bool or arg is None:
            continue
        elif kind is tuple or kind is list or isinstance(arg, (tuple, list)):
            _sort_out(arg, values, numbers)


def values_in(arg: Any) -> Iterator[Value]:
    """Return the values in a nested argument."""
    if type(arg) is Value:
        yield arg
    elif isinstance(arg, (tuple, list)):
        for item in arg:
            yield from values_in(item)
    elif isinstance(arg, Mapping):
        for item in arg.values():
            yield from values_in(item)


def map_argument(arg: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return ``arg`` with ``leaf`` applied to every Value, Term and FloatTerm in it."""
    if type(arg) is Value or type(arg) is Term or type(arg) is FloatTerm:
        return leaf(arg)
    if isinstance(arg, (tuple, list)):
        return type(arg)(map_argument(item, leaf) for item in arg)
    return arg


def moves_nothing(node: Node) -> bool:
    """Return whether a node that changes metadata in place changes strides of dimensions of size 1
    at most.

    Poolings of images in ``channels_last`` to one element end with such a node.
    """
    if node.leaves is None:
        return False
    before, after = node.leaves[0].spec, node.leaves[1]
    if not (
        same_shape(before.sizes, after.sizes) and same(before.storage_offset, after.storage_offset)
    ):
        return False
    strides = zip(before.sizes, before.strides, after.strides, strict=True)
    return all(same(size, 1) or same(old, new) for size, old, new in strides)


def drawn_from(node: Step) -> torch.Generator | None:
    """Return the CPU generator that a node draws from; None for generators of other devices."""
    assert isinstance(node, Node)
    given = [
        each for each in (*node.args, *node.kwargs.values()) if isinstance(each, torch.Generator)
    ]
    # what is written has no output
    tensors = [each for each in (*node.outputs, *node.reads) if each is not None]
    found = given[0] if given else torch.default_generator
    on_cpu = bool(tensors) and all(each.spec.device.type == "cpu" for each in tensors)
    return found if on_cpu and found.device.type == "cpu" else None
