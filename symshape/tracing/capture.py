"""One trace from beginning to end: a call and its policies become a :class:`Program`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import attrs
import torch
from torch.utils import _pytree as pytree

from guards.sets.guard_set import GuardSet
from guards.sets.sources import Source
from guards.terms import arithmetic, boolean
from guards.terms.term import Op, Term
from meta_fns import TensorSpec
from symshape import events
from symshape.calls.arguments import INT_KEY, STRIDED, Call, TensorKey, sources_of, values_of
from symshape.calls.modes import Modes, modes
from symshape.dims import Dim, Policy
from symshape.errors import DimError, UnsupportedError
from symshape.graph.codegen import Run, compile_graph
from symshape.graph.dead_code import without_dead_code
from symshape.graph.graph import Graph
from symshape.graph.program import Program, Slot, limits_of, symbol_positions
from symshape.graph.reshape_copies import settle
from symshape.graph.steps import Input, Value
from symshape.options import Options
from symshape.tracing.intercept.builtins import plain_numbers
from symshape.tracing.intercept.function_mode import FunctionMode
from symshape.tracing.intercept.random_state import address, repeatable
from symshape.tracing.state import snapshot as states
from symshape.tracing.state.side_effects import SideEffects, refuse, undo_gradients
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes import texts
from symshape.tracing.symbolic.nodes.choices import tidy
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.promises import check_promises
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.tracing.tracer import Tracer, TracingMode, is_stand_in, tracing_lock
from symshape.user_code import name_of, raised_at

Policies = Mapping[Source, Dim | Policy]
"""What tracing may do with each integer of a call; static where nothing is said."""


_names = count()


def capture(fn: Callable[..., Any], call: Call, policies: Policies, options: Options) -> Program:
    """Traces ``fn`` on symbolic tensors for this call.

    Raises:
        SymShapeError: a class for each remedy; see ``symshape.errors``.  The function's own exceptions pass through.
    """
    start = time.perf_counter()
    with tracing_lock:
        state = states.State(fn, call.leaves)
        tracer = Tracer(ShapeEnv(), state.tensor_names())
        arguments = _Arguments(tracer, call, policies, options)
        args, kwargs = pytree.tree_unflatten(arguments.leaves, call.tree)
        effects = SideEffects(state)
        generators = state.generators(call.leaves)
        tracer.generators = {address(each) for each in (torch.default_generator, *generators)}
        problems: list[str] = []
        try:
            with (
                repeatable(name_of(fn), generators, state.named),
                _compiling(),
                _without_autocast_cache(),
                plain_numbers(state.asking),
                TracingMode(tracer),
                FunctionMode(),
                texts.values(),
            ):
                result = fn(*args, **kwargs)
                histories = _histories(tracer, result)
        except (TypeError, RuntimeError) as error:
            _explain(error)
            raise
        finally:
            tracer.closed = True
            problems += effects.undo()
            problems += undo_gradients((*arguments.tensors(), *(each.tensor for each in tracer.lifted.values())))
        refuse(problems, name_of(fn))
        _refuse_gradients_of_its_own(tracer, histories)
        outputs, specs, tree = _outputs(tracer, result, _roots(tracer, arguments))
        settle(tracer.copies, tracer.steps, outputs, tracer.looked_at)
        check_promises(tracer.env)
    env = tracer.env
    steps = without_dead_code(tracer.steps, outputs)
    graph = Graph(tuple(arguments.inputs), tuple(tracer.lifted.values()), steps, outputs, tree)
    ranges = {symbol.name: limits_of(symbol.sources[0]) for symbol in env.symbols.values() if symbol.backed}
    guards = GuardSet(tuple(env.guards), ranges)
    if options.minimise_guards:
        guards = guards.minimise()
    slots = tuple(arguments.slots)
    now = modes()
    run = _without_autocast(compile_graph(graph, symbol_positions(slots)), now)
    milliseconds = (time.perf_counter() - start) * 1e3
    events.emit(events.Traced(name_of(fn), len(graph.nodes), len(guards), milliseconds))
    # the example tensors are not kept: a program may outlive them
    skeleton = attrs.evolve(call, leaves=tuple(None if isinstance(x, torch.Tensor) else x for x in call.leaves))
    return Program(
        name_of(fn),
        skeleton,
        slots,
        dict(env.symbols),
        guards,
        graph,
        specs,
        state,
        now,
        run,
        milliseconds,
    )


def _without_autocast(run: Run, modes: Modes) -> Run:
    """The casts that autocast inserted are in the graph, so autocast itself is off while it runs."""
    if not modes.autocast:
        return run

    def without_autocast(leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        with ExitStack() as stack:
            for device, _ in modes.autocast:
                stack.enter_context(torch.autocast(device, enabled=False))
            return run(leaves, values)

    without_autocast.__symshape_source__ = run.__symshape_source__  # type: ignore[attr-defined]
    return without_autocast


class _Arguments:
    """Symbolic stand-ins for the leaves of one call."""

    def __init__(self, tracer: Tracer, call: Call, policies: Policies, options: Options) -> None:
        self.env = tracer.env
        self.policies = policies
        self.options = options
        self.slots: list[Slot] = []
        self.inputs: list[Input] = []
        self.leaves: list[Any] = []
        self._dims: dict[str, Dim] = {}
        self._reserved = {dim.name for dim in policies.values() if isinstance(dim, Dim)}
        self.env.symbols.reserve(self._reserved)
        self._number = 0
        self._duck: dict[int, IntNode] = {}
        sources = iter(zip(sources_of(call), values_of(call.leaves, call.keys), strict=True))
        for position, (leaf, key, path) in enumerate(zip(call.leaves, call.keys, call.paths, strict=True)):
            if isinstance(key, TensorKey):
                spec = self._spec(leaf, key, sources)
                original = call.duplicates[position]
                if original != position:
                    self.leaves.append(self.leaves[original])
                    continue
                tensor = tracer.input_tensor(spec, key.requires_grad, leaf.is_leaf)
                self.inputs.append(Input(position, path, tensor._value))
                self.leaves.append(tensor)
            elif key is INT_KEY:
                source, value = next(sources)
                size = self._integer(source, value)
                self.leaves.append(size.symint if isinstance(size, IntNode) else size)
            else:
                self.leaves.append(leaf)

    def tensors(self) -> list[SymbolicTensor]:
        """The stand-ins for tensors."""
        return [leaf for leaf in self.leaves if isinstance(leaf, SymbolicTensor)]

    def _spec(self, tensor: torch.Tensor, key: TensorKey, sources: Iterator[tuple[Source, int]]) -> TensorSpec:
        sizes = tuple(self._size(*next(sources)) for _ in range(key.ndim))
        if key.layout is not STRIDED:
            spec = TensorSpec.contiguous(sizes, key.dtype, key.device)
        else:
            hints = list(tensor.shape)
            strides = self._strides(sizes, hints, [next(sources) for _ in range(key.ndim)])
            spec = TensorSpec(sizes, strides, 0, key.dtype, key.device)
        if tensor.storage_offset() or key.layout is STRIDED:
            source, offset = next(sources)
            self.slots.append(Slot(source, arithmetic.const(offset)))
            spec = spec.with_(storage_offset=offset)
            if not isinstance(self.policies.get(source, Policy.STATIC), Dim) and (
                self.policies.get(source, Policy.STATIC) is not Policy.STATIC
            ):
                self.slots.pop()
                spec = spec.with_(storage_offset=self._symbol(source, offset, Policy.AUTO))
        return spec

    def _size(self, source: Source, hint: int) -> int | IntNode:
        dim = self.policies.get(source, Policy.STATIC)
        policy = dim.policy if isinstance(dim, Dim) else dim
        special = self.options.specialize_zero_one and hint in (0, 1) and policy is not Policy.UNBACKED
        if policy is Policy.STATIC or special:
            self.slots.append(Slot(source, arithmetic.const(hint)))
            return hint
        if policy is Policy.UNBACKED:
            node = self.env.new_unbacked(description=f"the size {source.text()}", source=source)
            self.slots.append(Slot(source, node.term))
            return node
        if isinstance(dim, Dim) and dim.name in self.env.symbols:
            return self._shared(dim, source, hint)
        if self.options.duck_shape and not isinstance(dim, Dim):
            known = self._duck.get(hint)
            if known is not None:
                self.env.symbols.add_source(known.term.name, source)
                self.slots.append(Slot(source, known.term))
                return known
        node = self._symbol(source, hint, dim)
        self._duck.setdefault(hint, node)
        return node

    def _shared(self, dim: Dim, source: Source, hint: int) -> IntNode:
        symbol = self.env.symbols[dim.name]
        if self._dims[dim.name] != dim:
            raise DimError(
                f"{self._dims[dim.name]!r} for {symbol.sources[0].text()} and {dim!r} for {source.text()} "
                "have one name but say different things"
            )
        if symbol.hint != hint:
            raise DimError(
                f"{dim!r} names {symbol.sources[0].text()} and {source.text()}, "
                f"but their sizes are {symbol.hint} and {hint}"
            )
        self.env.symbols.add_source(dim.name, source)
        self.slots.append(Slot(source, symbol.term))
        return self.env.nodes.int_node(symbol.term)

    def _symbol(self, source: Source, hint: int, dim: Dim | Policy) -> IntNode:
        if isinstance(dim, Dim):
            _check_fits(dim, source, hint)
            name = dim.name
            self._dims[name] = dim
        else:
            name = self._fresh()
        node = self.env.new_symbol(name, hint, source, dim)
        self.slots.append(Slot(source, node.term))
        return node

    def _fresh(self) -> str:
        while f"s{self._number}" in self._reserved:
            self._number += 1
        self._number += 1
        return f"s{self._number - 1}"

    def _integer(self, source: Source, hint: int) -> int | IntNode:
        dim = self.policies.get(source, Policy.STATIC)
        policy = dim.policy if isinstance(dim, Dim) else dim
        if policy is Policy.STATIC:
            self.slots.append(Slot(source, arithmetic.const(hint)))
            return hint
        if isinstance(dim, Dim):
            return self._size(source, hint)
        node = self.env.new_integer(self._fresh(), hint, source, Policy.AUTO if policy is Policy.UNBACKED else policy)
        self.slots.append(Slot(source, node.term))
        return node

    def _strides(self, sizes: Sequence[Any], hints: list[int], found: list[tuple[Source, int]]) -> tuple[Any, ...]:
        """Strides in terms of sizes where the example's strides are products of them; constants or symbols else."""
        strides: list[Any] = [None] * len(sizes)
        slots: list[Slot | None] = [None] * len(sizes)
        order = sorted(range(len(sizes)), key=lambda d: (found[d][1], hints[d]))
        expected: Any = 1
        expected_hint = 1
        base = len(self.slots)
        for d in order:
            source, stride = found[d]
            if stride == expected_hint:
                strides[d] = expected
            elif self.policies.get(source, Policy.STATIC) is Policy.STATIC or stride == 0:
                strides[d] = stride
            else:
                strides[d] = self._symbol(source, stride, Policy.AUTO)
                slots[d] = self.slots.pop()
                self.env.declare(boolean.ge(strides[d].term, 1), f"{source.text()} is a step")
            if slots[d] is None:
                term = strides[d].term if isinstance(strides[d], IntNode) else arithmetic.const(strides[d])
                slots[d] = Slot(source, term)
            if stride >= expected_hint:
                expected = strides[d] * sizes[d]
                expected_hint = stride * hints[d]
        assert len(self.slots) == base
        self.slots += [slot for slot in slots if slot is not None]
        return tuple(strides)


def _check_fits(dim: Dim, source: Source, hint: int) -> None:
    if hint < dim.min or (dim.max is not None and hint > dim.max) or hint % dim.multiple_of:
        raise DimError(f"{source.text()} is {hint} in this call, which {dim!r} excludes")


@contextmanager
def _compiling() -> Iterator[None]:
    """``torch.compiler.is_compiling()`` is true inside: libraries then avoid data-dependent shortcuts."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


@contextmanager
def _without_autocast_cache() -> Iterator[None]:
    """Autocast, which knows casts by the weight's identity, neither hands the trace an old one nor keeps one of it."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def _explain(error: Exception) -> None:
    """Raises an error of ours where Python or torch refused a symbolic size or tensor for being one."""
    text = str(error)
    if isinstance(error, TypeError) and any(name in text for name in ("SymInt", "SymFloat", "SymBool")):
        raise UnsupportedError(
            f"the program uses a size that varies where only a plain number will do: {error} "
            f"(at {raised_at(error)}); make it a constant with int(size), or declare that size static"
        ) from error
    if type(error).__module__.startswith("torch._dynamo"):
        raise UnsupportedError(
            f"the program calls something that compiles itself with torch.compile (at {raised_at(error)}), "
            "such as torch.cond; take that part out of the traced function"
        ) from error
    if "data is not allocated yet" in text or "doesn't have storage" in text:
        raise UnsupportedError(
            f"the program calls something that reads a tensor's memory while it is traced (at {raised_at(error)}); "
            "wrap it as a custom op with torch.library.custom_op"
        ) from error


def _histories(tracer: Tracer, result: Any) -> list[Any]:
    """Autograd's nodes of the results; while the trace lasts, since autograd makes a view anew to have that of one."""
    with torch._C.DisableTorchFunction(), tracer.inferring():
        return [leaf.grad_fn for leaf in pytree.tree_leaves(result) if isinstance(leaf, SymbolicTensor)]


def _refuse_gradients_of_its_own(tracer: Tracer, histories: list[Any]) -> None:
    """Replaying ATen ops would lose the backward of an ``autograd.Function``, and a ``requires_grad_()`` inside."""
    waiting = list(histories)
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction) and not is_stand_in(node):
            raise UnsupportedError(
                f"the function uses the autograd.Function {type(node).__name__.removesuffix('Backward')} "
                "on tensors that require gradients, whose backward a traced graph would lose; "
                "call it under torch.no_grad(), or train through torch.compile(backend='symshape')"
            )
        leaf = getattr(node, "variable", None)
        if type(leaf) is SymbolicTensor and leaf._value not in tracer.arguments:
            raise UnsupportedError(
                "the function returns what depends on a tensor that it made to require gradients by requires_grad_(), "
                "which a traced graph does not repeat; return detached results, or pass that tensor as an argument"
            )
        waiting += [parent for parent, _ in node.next_functions]


def _roots(tracer: Tracer, arguments: _Arguments) -> set[Value]:
    return {each.value for each in arguments.inputs} | {each.value for each in tracer.lifted.values()}


def _outputs(tracer: Tracer, result: Any, inputs: set[Value]) -> tuple[tuple[Any, ...], Any, pytree.TreeSpec]:
    """The result's leaves for the graph, its specs, and its structure."""
    flat, tree = pytree.tree_flatten_with_path(result)
    outputs: list[Any] = []
    specs: list[Any] = []
    for path, leaf in flat:
        output = _output(tracer, leaf, f"result{pytree.keystr(path)}", inputs)
        outputs.append(output)
        shown = leaf._spec if isinstance(leaf, SymbolicTensor) else output
        specs.append(_shown_spec(tracer.env, shown))
    return tuple(outputs), pytree.tree_unflatten(specs, tree), tree


_CONSTANTS: tuple[type, ...] = (type(None), bool, int, float, complex, str, bytes)
_CONSTANTS += (torch.dtype, torch.device, torch.layout, torch.memory_format)


def _output(tracer: Tracer, leaf: Any, path: str, inputs: set[Value]) -> Any:
    if isinstance(leaf, SymbolicTensor):
        views = any(leaf._value.storage is each.storage for each in inputs)  # under no_grad these keep the flag
        if leaf.requires_grad and leaf.is_leaf and not views:
            raise UnsupportedError(
                f"{path} was made to require gradients by requires_grad_(), which a traced graph does not repeat; "
                "call requires_grad_() on the result instead"
            )
        return leaf._value
    if isinstance(leaf, torch.Tensor):
        return tracer.lift(leaf).value
    if isinstance(leaf, (torch.SymInt, torch.SymFloat)):
        term = leaf.node.term
        return term.value if isinstance(term, Term) and term.op is Op.CONST else term
    if isinstance(leaf, torch.SymBool):
        return leaf.node.term
    if isinstance(leaf, _CONSTANTS):
        return leaf
    raise UnsupportedError(
        f"{path} is a {type(leaf).__module__}.{type(leaf).__name__}; a traced function returns tensors, numbers, "
        "strings, None, or containers of them (register others with torch.utils._pytree.register_pytree_node)"
    )


def _shown_spec(env: ShapeEnv, output: Any) -> Any:
    """A spec whose sizes are terms in the names that the facts leave (``u0`` where ``s0 == u0`` was asserted …)."""
    if isinstance(output, Value):
        output = output.spec
    if isinstance(output, TensorSpec):
        spec = output
        return spec.with_(
            sizes=tuple(_shown_size(env, size) for size in spec.sizes),
            strides=tuple(_shown_size(env, size) for size in spec.strides),
            storage_offset=_shown_size(env, spec.storage_offset),
        )
    return env.facts.canonical(output) if type(output) is Term and not output.is_bool else output


def _shown_size(env: ShapeEnv, size: Any) -> Any:
    return env.nodes.size(env.facts.canonical(tidy(env.known, size.term))) if isinstance(size, IntNode) else size
