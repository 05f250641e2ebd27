"""A request for one compilation by Inductor: the graph, its arguments, and the sizes that may vary;
also as bytes.

Bytes are for the compiling process (:mod:`symshape.runtime.runners.inductor.compile_process`),
where fake tensors replace the arguments.  (Private names of torch used here were read on 2.11 and
2.13.)
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
import torch.fx

from meta_fns.torch_internals import OpOverload
from symshape.errors import Reason, UnsupportedError
from symshape.interrupts import pass_on
from symshape.runtime.runners.inductor.assumptions import assumptions
from symshape.runtime.runners.inductor.code import Code, compiled, compiled_to_keep

__all__ = ["Given", "Request"]


@attrs.frozen(eq=False)
class Given:
    """One argument of a graph.

    Attributes:
        leaf: a tensor or an integer.
        names: the names of the tensor's sizes, or of the integer; empty for a tensor whose sizes
            are constants.
        varies: for each name, whether another integer may come.
    """

    leaf: Any
    names: tuple[str, ...] = ()
    varies: tuple[bool, ...] = ()


@attrs.frozen(eq=False)
class Request:
    """A request for one compilation.

    Attributes:
        module: the graph, with tensors as outputs.
        arguments: the arguments, in order.
        options: Inductor's options that differ from its present settings.
    """

    module: torch.fx.GraphModule
    arguments: Sequence[Given]
    options: Mapping[str, Any]

    def compiled(self, *, keep: bool) -> tuple[Code, tuple[str, ...] | None, bytes | None]:
        """Return the code, its assumptions on named integers (None: exact values only), and its
        bytes if ``keep``.

        Layers that repeat are compiled once, unless gradients are recorded, Inductor cannot do
        it, or it fixes sizes.
        """
        recorded = torch.is_grad_enabled() and any(
            isinstance(each.leaf, torch.Tensor) and each.leaf.requires_grad
            for each in self.arguments
        )
        if not recorded:
            try:
                found = self._compiled(keep, once=True)
                if found is not None and (found[2] is not None or not keep):
                    return found
            except Exception as error:  # a compiler may raise anything
                pass_on(error)
        whole = self._compiled(keep, once=False)
        assert whole is not None
        return whole

    def _compiled(
        self, keep: bool, once: bool
    ) -> tuple[Code, tuple[str, ...] | None, bytes | None] | None:
        """Return what :meth:`compiled` does, with repeated layers compiled ``once``; None if there
        are none, or the code is for one value of a size then.
        """
        module, alike = self.module, tuple[str, ...]()
        if once:
            found = self._with_repeats_once()
            if found is None:
                return None
            module, alike = found
        mode = _mode()
        symbols: dict[str, str] = {}
        fixed: dict[str, int] = {}
        fakes = [_fake(mode, each, symbols, fixed) for each in self.arguments]
        if keep:
            code, content = compiled_to_keep(module, fakes, mode, self.options)
        else:
            code, content = compiled(module, fakes, mode, self.options), None
        if once and _fixes_sizes(mode.shape_env):
            return None
        assumed = assumptions(mode.shape_env, symbols, fixed)
        if assumed is not None:
            assumed = tuple(dict.fromkeys((*assumed, *alike)))
        return code, assumed, content

    def _with_repeats_once(self) -> tuple[torch.fx.GraphModule, tuple[str, ...]] | None:
        """Return the graph with its repeated layers as calls of one subgraph, and what that assumes
        on named integers; None if there are none, or they are alike for one value of a size only.
        """
        from symshape.runtime.runners.inductor.repeats import with_repeats_once

        mode = _mode()
        symbols: dict[str, str] = {}
        fixed: dict[str, int] = {}
        inputs = [_fake(mode, each, symbols, fixed) for each in self.arguments]
        module = with_repeats_once(self.module, inputs, mode)
        if module is self.module or _fixes_sizes(mode.shape_env):
            return None
        alike = assumptions(mode.shape_env, symbols, fixed)
        return None if alike is None else (module, alike)

    def packed(self) -> bytes:
        """Return the request as bytes for another process.

        Raises:
            UnsupportedError: something in the graph exists in this process only.
        """
        nodes = [
            (each.op, each.name, each.target, _plain(each.args), _plain(each.kwargs))
            for each in self.module.graph.nodes
        ]
        buffer = io.BytesIO()
        try:
            _Packer(buffer, protocol=5).dump(
                (nodes, [*map(_without_memory, self.arguments)], dict(self.options))
            )
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UnsupportedError(
                f"the program cannot be sent to the process that compiles: {error}",
                reason=Reason.INSTALLATION,
            ) from error
        return buffer.getvalue()

    def _nodes(self) -> list[tuple[Any, ...]]:
        nodes = self.module.graph.nodes
        return [
            (each.op, each.name, _spelled(each.target), _plain(each.args), _plain(each.kwargs))
            for each in nodes
        ]

    def digest(self) -> str:
        """Return a hash that is equal in all processes for equal graphs and kinds of arguments."""
        parts = [*self._nodes(), *map(_kind, self.arguments), sorted(self.options.items())]
        return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()

    @classmethod
    def unpacked(cls, content: bytes) -> Request:
        """Return the request that :meth:`packed` wrote; called in the compiling process."""
        nodes, arguments, options = _Unpacker(io.BytesIO(content)).load()
        graph = torch.fx.Graph()
        made: dict[str, torch.fx.Node] = {}
        for op, name, target, args, kwargs in nodes:
            given: Any = [
                torch.fx.node.map_aggregate(each, lambda leaf: _node(leaf, made))
                for each in (args, kwargs)
            ]
            made[name] = graph.create_node(op, target, given[0], given[1], name)
        graph.lint()
        return cls(torch.fx.GraphModule(torch.nn.Module(), graph), arguments, options)


@attrs.frozen
class _Name:
    """The name of a node, in place of the node."""

    name: str


@attrs.frozen
class _Outline:
    """A tensor's metadata, without its memory."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def stand_in(self) -> torch.Tensor:
        """Return a fake tensor with this metadata."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            return torch.empty_strided(
                self.sizes, self.strides, dtype=self.dtype, device=self.device
            )


def _plain(arguments: Any) -> Any:
    def named(leaf: Any) -> Any:
        return _Name(leaf.name) if isinstance(leaf, torch.fx.Node) else leaf

    return torch.fx.node.map_aggregate(arguments, named)


def _fixes_sizes(shape_env: Any) -> bool:
    """Return whether a compilation has assumed that a size, or a formula of sizes, has one value;
    one that is a multiple of a number has many.
    """
    equal = (each.expr for each in shape_env.guards if getattr(each.expr, "rel_op", "") == "==")
    return bool(shape_env.replacements) or any("Mod" not in str(each) for each in equal)


def _spelled(target: Any) -> Any:
    """Return a node's target without the address that the text of a Python function has."""
    name = getattr(target, "__qualname__", None)
    return target if name is None else f"{target.__module__}.{name}"


def _node(leaf: Any, made: Mapping[str, torch.fx.Node]) -> Any:
    return made[leaf.name] if isinstance(leaf, _Name) else leaf


def _without_memory(given: Given) -> Given:
    tensor = given.leaf
    if not isinstance(tensor, torch.Tensor):
        return given
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        raise UnsupportedError(
            f"a {type(tensor).__name__} cannot be sent to the process that compiles",
            reason=Reason.INSTALLATION,
        )
    if tensor.is_conj() or tensor.is_neg():
        raise UnsupportedError(
            "a lazily conjugated tensor cannot be sent to the process that compiles",
            reason=Reason.INSTALLATION,
        )
    outline = _Outline(tuple(tensor.size()), tuple(tensor.stride()), tensor.dtype, tensor.device)
    return attrs.evolve(given, leaf=outline)


def _kind(given: Given) -> tuple[Any, ...]:
    """Return the properties of an argument that its code depends on."""
    leaf, varies = given.leaf, given.varies
    if not isinstance(leaf, torch.Tensor):
        return given.names, varies, None if any(varies) else leaf
    constant = zip(leaf.size(), varies or [False] * leaf.dim(), strict=True)
    sizes = tuple(None if other else size for size, other in constant)
    strides = leaf.is_contiguous() if any(varies) else tuple(leaf.stride())
    return given.names, varies, sizes, strides, leaf.dtype, leaf.device


class _Packer(pickle.Pickler):
    """A pickler that writes operators by name, and refuses tensors and modules of a graph."""

    def persistent_id(self, thing: Any) -> Any:
        if isinstance(thing, OpOverload):
            return "operator", thing._schema.name, thing._overloadname
        if isinstance(
            thing, (torch.Tensor, torch.nn.Module, torch.fx.Node, torch.SymInt, torch.SymFloat)
        ):
            raise pickle.PicklingError(f"a {type(thing).__name__} in its graph")
        return None


class _Unpacker(pickle.Unpickler):
    def persistent_load(self, named: Any) -> Any:
        _, name, overload = named
        space, _, packet = name.partition("::")
        return getattr(getattr(getattr(torch.ops, space), packet), overload)


def _mode() -> Any:
    """Return a mode in which fake tensors have symbols of torch's as sizes."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    # Sizes of 0 and 1 are constants to torch: Inductor's code for others does not serve them, and
    # no guard says so.
    return FakeTensorMode(shape_env=ShapeEnv(duck_shape=False), allow_non_fake_inputs=True)


def _fake(mode: Any, given: Given, symbols: dict[str, str], fixed: dict[str, int]) -> Any:
    """Return a fake argument; each named integer becomes a symbol of torch's or is fixed, as
    recorded by name.
    """
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    leaf = given.leaf.stand_in() if isinstance(given.leaf, _Outline) else given.leaf
    if isinstance(leaf, torch.Tensor):
        if not given.names:
            return mode.from_tensor(leaf, static_shapes=True)
        dynamic = [
            DimDynamic.DYNAMIC if each else DimDynamic.STATIC for each in given.varies[: leaf.dim()]
        ]
        context: Any = StatelessSymbolicContext(dynamic_sizes=dynamic)
        source = ConstantSource(f"symshape_{given.names[0]}")
        fake = mode.from_tensor(leaf, symbolic_context=context, source=source)
        shape: list[Any] = list(fake.shape)
        for size, name in zip(shape, given.names[: len(shape)], strict=True):
            if isinstance(size, torch.SymInt):
                symbols[str(size.node.expr)] = name
            else:
                fixed[name] = size
        return fake
    (name,), (varies,) = given.names, given.varies
    if not varies:
        return leaf
    if leaf in (0, 1):
        fixed[name] = leaf
        return leaf
    integer = ConstantSource(f"symshape_{name}")
    symbol = mode.shape_env.create_symbol(leaf, integer, DimDynamic.DYNAMIC, positive=None)
    symbols[str(symbol)] = name
    return mode.shape_env.create_symintnode(symbol, hint=leaf, source=integer)
