"""Runs a function on symbolic tensors and writes down every ATen op: the mode, the op call, lifting of real tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import attrs
import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

import meta_fns
from guards.sets.guard import Guard
from guards.terms import boolean
from guards.terms.term import Op, Term
from meta_fns import TensorSpec
from meta_fns.core import registry
from symshape.errors import ProgramError, SymShapeError, UnsupportedError
from symshape.graph.float_terms import FloatTerm
from symshape.graph.reshape_copies import Copied
from symshape.graph.steps import Assertion, Binding, Lifted, Node, Step, Value, values_in
from symshape.tracing.intercept import fallbacks
from symshape.tracing.intercept.random_state import address
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.float_node import FloatNode
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import METADATA, SymbolicTensor
from symshape.user_code import user_location

aten = torch.ops.aten
_modes_on_stack = torch._C._len_torch_dispatch_stack
_is_inference_mode = torch.is_inference_mode_enabled
_nothing = nullcontext()
_QUANTIZED = frozenset((torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4))
_PICK_AND_ORDER = frozenset(
    (
        *(aten.t.default, aten.transpose.int, aten.permute.default, aten.select.int, aten.slice.Tensor),
        *(aten.detach.default, aten.alias.default, aten.split.Tensor, aten.unbind.int, aten.diagonal.default),
    )
)
_SMALL_CONSTANT = 256  # elements of a constant whose value is kept for .item()

tracing_lock = threading.RLock()
"""Held while a function is traced: torch's ``is_compiling`` flag is global."""


@attrs.frozen(eq=False)
class _Plan:
    """What is the same for every call of one overload."""

    rule: Callable[..., Any] | None
    rule_name: str
    data_dependent: bool
    same_as: tuple[int | None, ...]
    view_of: tuple[int | None, ...]
    mutated: tuple[int, ...]
    names: tuple[str, ...]
    is_view: bool
    keeps_strides: bool


_plans: dict[OpOverload, _Plan] = {}


def _plan(op: OpOverload) -> _Plan:
    found = _plans.get(op)
    if found is None:
        rule = registry.lookup(op)
        aliasing = meta_fns.aliasing(op)
        found = _plans[op] = _Plan(
            None if rule is None else rule.fn,
            "" if rule is None else rule.name,
            rule is not None and rule.data_dependent,
            aliasing.same_as,
            aliasing.view_of,
            aliasing.mutated,
            aliasing.names,
            any(owner is not None for owner in aliasing.view_of),
            op in _PICK_AND_ORDER,
        )
    return found


class TracingMode(TorchDispatchMode):
    """Sends every ATen op, factories and ops on real parameters included, to the tracer."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # no Dynamo frame hook around each op

    supports_higher_order_operators = True  # to refuse them ourselves

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not isinstance(func, OpOverload):
            raise UnsupportedError(f"{func} (at {self.tracer.env.origin()}) takes functions, and cannot be traced")
        if func in METADATA and type(args[0]) is SymbolicTensor:
            return METADATA[func](*args)
        return self.tracer.dispatch(func, args, kwargs or {})


def is_tracing() -> bool:
    """Whether this thread is inside a trace of ours."""
    return _modes_on_stack() > 0 and any(isinstance(mode, TracingMode) for mode in _get_current_dispatch_mode_stack())


class _MadeByAutograd(torch.autograd.Function):
    """Makes the stand-in of an argument that is no leaf: the same value, with a history."""

    @staticmethod
    def forward(ctx: Any, tensor: SymbolicTensor) -> SymbolicTensor:
        return SymbolicTensor.make(tensor._spec, tensor._value, tensor._tracer)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def is_stand_in(node: Any) -> bool:
    """Whether an autograd node is only the history of an argument's stand-in."""
    return type(node).__name__ == f"{_MadeByAutograd.__name__}Backward"


class _Unknowns:
    """The context that data-dependent rules get: makes unbacked symbols and remembers them for binding."""

    def __init__(self, env: ShapeEnv, op: str) -> None:
        self.env = env
        self.op = op
        self.made: list[IntNode] = []

    def new_size(self, lower: Any, upper: Any) -> IntNode:
        return self._new(lower, upper, f"a size of the result of {self.op}")

    def new_int(self, lower: Any, upper: Any) -> IntNode:
        return self._new(lower, upper, f"the integer read by {self.op}")

    def new_float(self) -> FloatNode:
        return self.env.new_float()

    def new_bool(self) -> BoolNode:
        node = self._new(0, 1, f"the bool read by {self.op} (1 for True)")
        return BoolNode(self.env, boolean.eq(node.term, 1))

    def _new(self, lower: Any, upper: Any, description: str) -> IntNode:
        node = self.env.new_unbacked(lower, upper, description=description)
        self.made.append(node)
        return node


class Tracer:
    """One trace: its environment, its steps so far, and the real tensors that it read.

    Attributes:
        env: symbols, facts and guards.
        steps: nodes and assertions in order.
        lifted: by ``id`` of the real tensor.
        closed: whether the trace is over.
        copies: reshapes that could have been views.
        arguments: the values of tensor arguments.
        laid_out: the values whose strides are known exactly, those of dimensions of size 0 and 1 too: arguments, and
            views of them that only pick and order dimensions.
        looked_at: the values of which the program read how they lie in memory.
        generators: the addresses of the random generators that were there before the trace; None for any.
    """

    def __init__(self, env: ShapeEnv, names: dict[int, str] | None = None) -> None:
        self.env = env
        self.steps: list[Step] = []
        self.lifted: dict[int, Lifted] = {}
        self._names = names or {}
        self._count = 0
        self._storages: dict[int, object] = {}
        self.copies: list[Copied] = []
        self.arguments: set[Value] = set()
        self.laid_out: set[Value] = set()
        self.looked_at: set[Value] = set()
        self.generators: set[int] | None = None
        self._constants: dict[int, list[SymbolicTensor]] = {}
        self._recording = True
        self._inner_unknowns: list[IntNode] = []
        self._grad = torch.is_grad_enabled()
        self._inference = _is_inference_mode()
        self._default_dtype = torch.get_default_dtype()
        self.closed = False
        env.on_assertion = self._assert

    # -- values
    def new_value(self, spec: TensorSpec, storage: object | None = None) -> Value:
        """A fresh graph value; without ``storage`` it shares memory with nothing."""
        value = Value(self._count, spec, object() if storage is None else storage)
        self._count += 1
        return value

    def input_tensor(self, spec: TensorSpec, requires_grad: bool, is_leaf: bool = True) -> SymbolicTensor:
        """A symbolic tensor for an argument; one that autograd made may be written to in place."""
        value = self.new_value(spec)
        self.arguments.add(value)
        self.laid_out.add(value)
        if requires_grad and not is_leaf:
            with torch.enable_grad():
                return _MadeByAutograd.apply(SymbolicTensor.make(spec, value, self, True))  # type: ignore[no-any-return]
        return SymbolicTensor.make(spec, value, self, requires_grad)

    def lift(self, tensor: torch.Tensor, constant: bool = False) -> Lifted:
        """The graph's name for a real tensor that the program reads."""
        found = self.lifted.get(id(tensor))
        if found is None:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
                raise UnsupportedError(f"the program reads a {type(tensor).__name__}, which cannot be traced")
            if tensor.layout is not torch.strided:
                raise UnsupportedError(
                    f"the program reads a tensor of layout {tensor.layout}; only strided is supported"
                )
            try:
                key = tensor.untyped_storage()._cdata
            except (RuntimeError, NotImplementedError) as error:
                raise UnsupportedError("the program reads a tensor without storage") from error
            storage = self._storages.setdefault(key, object())
            name = self._names.get(id(tensor)) or f"constant{len(self.lifted)}"
            value = self.new_value(TensorSpec.of(tensor), storage)
            found = self.lifted[id(tensor)] = Lifted(name, tensor, value, constant)
        return found

    # -- the op call
    def dispatch(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """One ATen op: infer its outputs, write it down, answer symbolic tensors."""
        if op is aten.lift_fresh.default and type(args[0]) is not SymbolicTensor:
            return self._constant(args[0])
        plan = _plans.get(op) or _plan(op)
        if op is aten._to_copy.default and isinstance(
            args[0], (bool, int, float, complex)
        ):  # vmap's: y * 2 of a scalar
            with _outside_modes():
                number = torch.tensor(args[0])
            args = (self._constant(number), *args[1:])
        if op is aten._local_scalar_dense.default and type(args[0]) is SymbolicTensor and args[0]._known is not None:
            return args[0]._known.item()
        specs, values = self._arguments(args)
        if kwargs:
            spec_kwargs, value_kwargs = self._keywords(kwargs)
        else:
            spec_kwargs, value_kwargs = {}, {}
        if plan.rule is None:
            return self._without_rule(op, plan, args, kwargs, values, value_kwargs)
        env = self.env
        outer = env.current_op, env.current_rule
        env.current_op, env.current_rule = op._name, plan.rule_name
        unknowns: _Unknowns | None = None
        start = len(self.steps)
        try:
            if plan.data_dependent:
                unknowns = _Unknowns(env, op._name)
                result = plan.rule(unknowns, *specs, **spec_kwargs)
            else:
                result = plan.rule(*specs, **spec_kwargs)
        except meta_fns.ShapeError as error:
            raise ProgramError(f"{error} (at {env.origin()})") from error
        except (meta_fns.DataDependentOutput, meta_fns.UnsupportedOp) as error:
            raise UnsupportedError(f"{error} (at {env.origin()})") from error
        finally:
            env.current_op, env.current_rule = outer
        return self._record(op, plan, args, kwargs, values, value_kwargs, result, start, unknowns)

    def _arguments(self, args: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...]]:
        """Arguments twice: for the rule (specs and sizes) and for the graph (values and terms)."""
        specs: list[Any] = []
        values: list[Any] = []
        for arg in args:
            kind = type(arg)
            if kind is SymbolicTensor:
                if arg._tracer is not self:
                    raise UnsupportedError(
                        "the program uses a tensor that an earlier trace left behind (a side effect)"
                    )
                specs.append(arg._spec)
                values.append(arg._value)
            elif kind is int or kind is float or arg is None or kind is bool:
                specs.append(arg)
                values.append(arg)
            elif kind is list or kind is tuple or kind is torch.Size:
                inner, inner_values = self._arguments(arg)
                specs.append(inner)
                values.append(inner_values)
            elif isinstance(arg, torch.Tensor):
                value = self.lift(arg).value
                specs.append(value.spec)
                values.append(value)
            elif isinstance(arg, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                spec, value = _scalar(arg)
                specs.append(spec)
                values.append(value)
            else:
                if type(arg) is torch.Generator:
                    self._check_generator(arg)
                specs.append(arg)
                values.append(arg)
        return specs, tuple(values)

    def _check_generator(self, generator: torch.Generator) -> None:
        known = self.generators
        if known is not None and address(generator) not in known:
            raise UnsupportedError(
                f"the function makes a torch.Generator of its own (used at {self.env.origin()}), which a graph would "
                "not make again: its numbers would go on where they should start over; make it outside and pass it in"
            )

    def _keywords(self, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        specs, values = self._arguments(tuple(kwargs.values()))
        return dict(zip(kwargs, specs, strict=True)), dict(zip(kwargs, values, strict=True))

    def _record(
        self,
        op: OpOverload,
        plan: _Plan,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        values: tuple[Any, ...],
        value_kwargs: dict[str, Any],
        result: Any,
        start: int,
        unknowns: _Unknowns | None = None,
    ) -> Any:
        """Wraps the rule's result, in the shape in which the op returns it, and writes the node down at ``start``.

        Assertions that the rule made come after the node: it may be what binds their symbols.
        """
        single = not isinstance(result, (tuple, list))
        results = (result,) if single else tuple(result)
        outputs: list[Value | None] = []
        wrapped: list[Any] = []
        bindings: list[Binding] = []
        for position, item in enumerate(results):
            owner = plan.same_as[position] if position < len(plan.same_as) else None
            if type(item) is TensorSpec:
                if owner is not None:
                    tensor = args[owner] if owner < len(args) else kwargs[plan.names[owner]]
                    wrapped.append(self._written(tensor, item))
                    outputs.append(None)
                    continue
                storage, plain, exact = None, False, False
                if plan.is_view:
                    viewed = plan.view_of[position if position < len(plan.view_of) else 0]
                    if viewed is not None:
                        storage = values[viewed].storage
                        exact = plan.keeps_strides and values[viewed] in self.laid_out
                        plain = _is_inference_mode() and not args[viewed].is_inference()
                if item.layout is not torch.strided or item.dtype in _QUANTIZED:
                    kind = "quantized" if item.layout is torch.strided else str(item.layout).removeprefix("torch.")
                    where = self.env.origin()
                    raise UnsupportedError(f"{op} makes a {kind} tensor (at {where}), which cannot be traced")
                value = self.new_value(item, storage)
                if exact:
                    self.laid_out.add(value)
                outputs.append(value)
                # Autograd refuses views of plain tensors that are not plain themselves.
                with torch.inference_mode(False) if plain else _nothing:
                    wrapped.append(SymbolicTensor.make(item, value, self))
            elif isinstance(item, (list, tuple)):  # such as _foreach ops with several lists
                raise UnsupportedError(f"{op} returns nested lists, which cannot be traced")
            else:
                outputs.append(None)
                wrapped.append(self._scalar_result(item, position, bindings))
        if unknowns is not None:
            bindings += self._size_bindings(op, results, unknowns.made, {binding.symbol for binding in bindings})
        if self._recording:
            grad, inference = torch.is_grad_enabled(), _is_inference_mode()
            if torch.get_default_dtype() is not self._default_dtype:
                raise UnsupportedError(
                    f"the function changes torch's default dtype (before {self.env.origin()}), which a graph would "
                    "not do again; name the dtypes, or change the default around the function"
                )
            self.steps.insert(
                start,
                Node(
                    op,
                    values,
                    value_kwargs,
                    tuple(outputs),
                    single,
                    tuple(bindings),
                    None if grad is self._grad else grad,
                    None if inference is self._inference else inference,
                    location=user_location(),
                ),
            )
        if op._schema.is_mutable:
            self._forget_constants(plan, values, value_kwargs)
        if single:
            return wrapped[0] if op._schema.returns else None
        return wrapped if isinstance(result, list) else tuple(wrapped)

    def _written(self, tensor: Any, spec: TensorSpec) -> Any:
        """The argument that an in-place op returns, with its metadata as the op leaves it."""
        if type(tensor) is SymbolicTensor:
            tensor._spec = spec
        elif spec.sizes != tensor.shape or spec.strides != tensor.stride():
            name = self.lift(tensor).name
            raise UnsupportedError(f"the program changes the shape of {name} in place, which is no argument of it")
        return tensor

    def _size_bindings(
        self, op: OpOverload, results: Sequence[Any], made: list[IntNode], bound: set[str]
    ) -> list[Binding]:
        """Where each new unbacked symbol can be read off the outputs."""
        if not self._recording:  # inside a fake implementation: its own result has to show them
            self._inner_unknowns += made
            return []
        found: list[Binding] = []
        for node in made:
            name = node.term.name
            if name in bound:
                continue
            for position, spec in enumerate(results):
                if type(spec) is TensorSpec and any(size is node for size in spec.sizes):
                    d = next(i for i, size in enumerate(spec.sizes) if size is node)
                    found.append(Binding(name, "size", position, d))
                    break
            else:
                raise UnsupportedError(
                    f"{op} makes a size that depends on data ({name}), but none of its results has a dimension of "
                    "that very size, so a graph could not read it; let the fake implementation return it as a size"
                )
        return found

    def _scalar_result(self, item: Any, position: int, bindings: list[Binding]) -> Any:
        if type(item) is IntNode:
            if item.term.op is Op.SYMBOL and self.env.symbols[item.term.name].hint is None:
                bindings.append(Binding(item.term.name, "item", position))
            return item.symint
        if type(item) is FloatNode:
            if isinstance(item.term, FloatTerm) and item.term.op == "symbol":
                bindings.append(Binding(item.term.symbol, "float", position))
            return torch.SymFloat(item)
        if type(item) is BoolNode:
            bindings += [Binding(symbol.name, "bool", position) for symbol in item.term.symbols]
            return torch.SymBool(item)
        return item

    def _forget_constants(self, plan: _Plan, values: tuple[Any, ...], value_kwargs: dict[str, Any]) -> None:
        """Written memory holds no known constants any more, whichever tensor views it."""
        for position in plan.mutated:
            written = values[position] if position < len(values) else value_kwargs.get(plan.names[position])
            for value in values_in(written):
                for tensor in self._constants.pop(id(value.storage), ()):
                    tensor._known = None

    def _constant(self, tensor: torch.Tensor) -> SymbolicTensor:
        """A tensor that the program writes down (``torch.tensor([1, 2])``): a constant, copied afresh in each run."""
        with _outside_modes():
            kept = tensor.detach().clone()
        value = self.lift(kept, constant=True).value
        made = SymbolicTensor.make(value.spec, value, self)
        if kept.numel() <= _SMALL_CONSTANT:
            made._known = kept
            self._constants.setdefault(id(value.storage), []).append(made)
        return made

    def read_integer(self, op: OpOverload, tensor: SymbolicTensor, *args: int) -> Any:
        """An integer that only the real tensor can tell (a stride): an unbacked symbol, read when the graph runs."""
        shown = "its storage offset" if not args else f"its stride along dimension {args[0]}"
        node = self.env.new_unbacked(None, None, description=f"{shown}, which a tensor of these sizes has by accident")
        binding = Binding(node.term.name, "item")
        self.steps.append(Node(op, (tensor._value, *args), {}, (None,), True, (binding,), location=user_location()))
        return node

    # -- ops without a rule of ours
    def _without_rule(
        self,
        op: OpOverload,
        plan: _Plan,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        values: tuple[Any, ...],
        value_kwargs: dict[str, Any],
    ) -> Any:
        if fallbacks.is_composite(op):
            with TracingMode(self):
                return fallbacks.decompose(op, args, kwargs)
        unknowns = _Unknowns(self.env, op._name)
        start = len(self.steps)
        outer, self._inner_unknowns = self._inner_unknowns, unknowns.made
        try:
            inferred = fallbacks.infer(self, op, args, kwargs, unknowns)
        finally:
            self._inner_unknowns = outer
        result = torch.utils._pytree.tree_map(_inward, inferred)
        return self._record(op, plan, args, kwargs, values, value_kwargs, result, start, unknowns)

    @contextmanager
    def inferring(self) -> Iterator[None]:
        """Ops inside are inferred but not written down."""
        before, self._recording = self._recording, False
        try:
            with TracingMode(self):
                yield
        finally:
            self._recording = before

    def _assert(self, guard: Guard, message: str) -> None:
        self.steps.append(Assertion(guard, message))


def _inward(result: Any) -> Any:
    """A fallback's result as a rule would give it."""
    if isinstance(result, SymbolicTensor):
        return result._spec
    if isinstance(result, torch.Tensor):
        return TensorSpec.of(result)
    if isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return result.node
    return result


def _scalar(arg: torch.SymInt | torch.SymFloat | torch.SymBool) -> tuple[Any, Any]:
    """A symbolic scalar for the rule and for the graph; plain where it is constant."""
    node = arg.node
    if not isinstance(node, (IntNode, FloatNode, BoolNode)):
        raise SymShapeError(
            "a torch.SymInt of another tracer reached symshape; pass plain integers, or trace outside torch.compile"
        )
    term = node.term
    if isinstance(term, Term):
        if term.op is Op.CONST:
            return term.value, term.value
        if term is boolean.TRUE or term is boolean.FALSE:
            return term is boolean.TRUE, term is boolean.TRUE
    elif isinstance(term, float):
        return term, term
    return node, term


@contextmanager
def _outside_modes() -> Iterator[None]:
    with torch.utils._python_dispatch._disable_current_modes():
        yield
