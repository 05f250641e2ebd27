"""The recorder of ATen ops: infers the outputs of each op, by a rule or without one, and adds a
node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import attrs
import torch
from torch.autograd import forward_ad

import meta_fns
from guards.sets.guard import Guard
from guards.terms.term import Term
from meta_fns import TensorSpec
from meta_fns.torch_internals import OpOverload
from symshape.calls.variables import Gradient, GradientsRead
from symshape.errors import ProgramError, Reason, UnsupportedError
from symshape.graph.assertion_messages import Message
from symshape.graph.float_terms import FloatTerm
from symshape.graph.reshape_copies import ReshapeCopy, copied_by_reshape
from symshape.graph.steps import Assertion, Binding, Node, Value, values_in
from symshape.torch_internals import dispatch, functorch, pytree
from symshape.tracing.autograd.checkpoint_rng import KeptStates
from symshape.tracing.autograd.histories import MadeByAutograd
from symshape.tracing.autograd.own_gradients import OwnHistories
from symshape.tracing.control_flow.nodes import ControlFlows
from symshape.tracing.data.assumptions import Abandonable, Unscaled, holds_for_finite
from symshape.tracing.data.unbacked import Bounds, Unknowns
from symshape.tracing.data.unused_numbers import computed_alone
from symshape.tracing.eager_errors import program_error
from symshape.tracing.intercept.repeats import Output
from symshape.tracing.intercept.torch_functions import decompositions
from symshape.tracing.mode import TracingMode
from symshape.tracing.op_plans import UNANSWERED, OpPlan, plan_of, special
from symshape.tracing.symbolic.env import ShapeEnv, guard_free_answers
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.float_node import FloatNode
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.tracing.trace_state import TraceState
from symshape.user_code import user_location

# -- One call of an op, and checks and records of its results by the op's plan.

_QUANTIZED = frozenset((torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4))


@attrs.define(eq=False)  # never changed; frozen ones take twice as long to make
class OpCall:
    """One call of an op: its arguments as the program passed them, and as the graph stores them."""

    op: OpOverload
    plan: OpPlan
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    values: tuple[Any, ...]
    value_kwargs: dict[str, Any]

    def written(self) -> Iterator[Value]:
        """Yield the values that the op writes to."""
        for position in self.plan.mutated:
            if position < len(self.values):
                yield from values_in(self.values[position])
            else:
                yield from values_in(self.value_kwargs.get(self.plan.names[position]))


def refuse_inference(call: OpCall, memory: Collection[object], env: ShapeEnv) -> None:
    """Refuse a write to an inference tensor outside inference mode; ``memory`` are inference
    tensors' storages.

    Raises:
        ProgramError: the op writes there; torch refuses after the write. If the program catches the
            error the trace is refused: its graph would not have written.
    """
    if (
        memory
        and not torch.is_inference_mode_enabled()
        and any(value.storage in memory for value in call.written())
    ):
        said = (
            f"{call.op} writes to an inference tensor, outside inference mode (at {env.origin()})"
        )
        raise ProgramError(said) from UnsupportedError(
            f"{said}, an error that the program catches", reason=Reason.MEMORY
        )


def refuse_unstrided(call: OpCall, spec: TensorSpec, env: ShapeEnv) -> None:
    """Refuse a tensor that an op makes if it is not a strided, unquantized one.

    Raises:
        UnsupportedError: it is sparse, quantized or the like.
    """
    if spec.layout is not torch.strided or spec.dtype in _QUANTIZED:
        kind = (
            "quantized" if spec.layout is torch.strided else str(spec.layout).removeprefix("torch.")
        )
        raise UnsupportedError(
            f"{call.op} creates a {kind} tensor (at {env.origin()}), which cannot be traced; "
            "create it outside the compiled function",
            reason=Reason.LAYOUT,
        )


def note_laziness(
    call: OpCall, value: Value, lazy: dict[Value, tuple[bool, bool]], env: ShapeEnv
) -> None:
    """Record whether a value is lazily conjugated or negated, which views inherit.

    Raises:
        UnsupportedError: ``view_as_real`` is called on a conjugated tensor, which torch refuses,
            too.
    """
    source = call.values[0] if call.values else None
    conjugated, negated = (
        lazy.get(source, (False, False)) if type(source) is Value else (False, False)
    )
    if conjugated and call.op is aten.view_as_real.default:
        raise UnsupportedError(
            "the real and imaginary parts of a lazily conjugated tensor are read (at "
            f"{env.origin()}), which "
            "cannot be traced; call resolve_conj() on the tensor first",
            reason=Reason.CONJUGATED,
        )
    if call.plan.changes_laziness:
        lazy[value] = (
            conjugated ^ (call.op is aten._conj.default),
            negated ^ (call.op is not aten._conj.default),
        )
    elif call.plan.is_view and (conjugated or negated):
        lazy[value] = conjugated, negated


def viewed_by(plan: OpPlan, position: int) -> int | None:
    """Return the argument whose memory an output shares."""
    return plan.view_of[position if position < len(plan.view_of) else 0] if plan.is_view else None


def outputs_like(node: Node) -> tuple[Output | None, ...]:
    """Return a description of a node's outputs, for another node with outputs like these."""
    plan = plan_of(node.op)
    return tuple(
        [
            None if each is None else (each.spec, viewed_by(plan, position), plan.keeps_strides)
            for position, each in enumerate(node.outputs)
        ]
    )


def scalar_result(item: Any, position: int, made: Unknowns | None, bindings: list[Binding]) -> Any:
    """Return a result that is no tensor as the program gets it; add a binding where the op made its
    symbol.
    """
    if type(item) is IntNode:
        if made is not None and any(each.term is item.term for each in made.made):
            bindings.append(Binding(item.term.name, "item", position))
        return item.symint
    if type(item) is FloatNode:
        if made is not None and isinstance(item.term, FloatTerm) and item.term.op == "symbol":
            bindings.append(Binding(item.term.symbol, "float", position))
        return torch.SymFloat(item)
    if type(item) is BoolNode:
        bindings += [
            Binding(symbol.name, "bool", position)
            for symbol in item.term.symbols
            if made is not None
        ]
        return torch.SymBool(item)
    return item


def reading(binding: Binding, single: bool) -> str:
    """Return the code by which a program reads a symbol off the result of an op."""
    which = "" if single else f"[{binding.output}]"
    return f"{which}.size({binding.dim})" if binding.kind == "size" else which


def is_inference(tensor: torch.Tensor) -> bool:
    """Return whether a tensor was made in inference mode."""
    with dispatch.DisableTorchFunction():  # our own read, not the program's
        return tensor.is_inference()


def inward(result: Any) -> Any:
    """Return a fallback's result in the form that a rule returns."""
    if isinstance(result, SymbolicTensor):
        return result._spec
    if isinstance(result, torch.Tensor):
        return TensorSpec.of(result)
    if isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return result.node
    return result


aten = torch.ops.aten
_SUM = aten.sum.dim_IntList
_is_inference_mode = torch.is_inference_mode_enabled
_nothing = nullcontext()
# frames of an op's call that are certainly ours: ``_node``, ``_record`` and its caller
_OWN_FRAMES = 3


class Tracer(TraceState):
    """The recorder of one trace.

    Args:
        env, names, generators: see ``TraceState``.

    Attributes:
        own: the autograd calls of the program itself.
        flows: the functions of control flow, which run once, never, or many times.
        kept: the states of random generators that checkpoints save.
        asks: whether the first op after gradients of earlier calls were read raises
            ``GradientsRead``.
        read_first: these gradients.
        on_answer: called with a question about a real tensor, the tensor, the answer, and a name.
    """

    own: OwnHistories
    on_answer: Callable[[Callable[[Any], Any], torch.Tensor, Any, str], object]

    def __init__(
        self,
        env: ShapeEnv,
        names: Mapping[int, str] | None = None,
        generators: Collection[int] | None = None,
    ) -> None:
        super().__init__(env, {} if names is None else names, generators)
        self._bounds = Bounds(env, self.steps)
        self.asks = False
        self.on_answer = lambda *_: None
        self.read_first: list[Gradient] = []
        self.own = OwnHistories(self, self.op_arguments, self.told)
        self.kept, self.flows = KeptStates(self), ControlFlows(self)
        self._answered = 0
        self._recording = True
        self._inner_unknowns: list[IntNode] = []
        self._default_dtype = torch.get_default_dtype()
        env.on_assertion, env.may_begin_again = self._assert, Abandonable(self)
        env.for_finite = lambda condition: holds_for_finite(self.steps, condition)
        env.unscaled = Unscaled(self, lambda: self.lifting.tensors.values())
        env.partial.on_data = lambda term: self.steps.append(computed_alone(term))

    # -- values
    def input_tensor(
        self, spec: TensorSpec, requires_grad: bool, is_leaf: bool = True
    ) -> SymbolicTensor:
        """Return a symbolic tensor for an argument; one with a history may be written to in
        place.
        """
        value = self.new_value(spec)
        self.arguments.add(value)
        self.laid_out.add(value)
        if requires_grad and not is_leaf:
            with torch.enable_grad():
                return MadeByAutograd.apply(SymbolicTensor.make(spec, value, self, True))  # type: ignore[no-any-return]
        return SymbolicTensor.make(spec, value, self, requires_grad)

    def given(self) -> list[Value]:
        """Return the values of arguments, parameters and buffers, any two of which may share memory
        in a later call.
        """
        return [
            *self.arguments,
            *(each for each in self.lifting.tensors if each not in self.lifting.constants),
        ]

    def close(self) -> None:
        """End the trace: no more nodes are recorded."""
        self.closed = True
        self.originals = {}
        self.on_answer = lambda *_: None  # the recording would live on with the tracer

    def raise_if_gradients_were_read(self) -> None:
        """Raise ``GradientsRead`` if ``asks`` is set and gradients of earlier calls were read."""
        if self.asks and self.read_first:
            raise GradientsRead(self.read_first)

    # -- the op call
    def dispatch(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run one ATen op: infer its outputs, record its node, return symbolic tensors."""
        if self.read_first:
            self.raise_if_gradients_were_read()
        if self.env.left_open and (op is not _SUM or not self._recording):
            self._guard(self._left_open())
        plan = plan_of(op)
        if plan.special:
            answer, args = special(self, op, args, kwargs)
            if answer is not UNANSWERED:
                self._answered += 1
                return answer
        specs, values = self.op_arguments.both(args)
        spec_kwargs, value_kwargs = self.op_arguments.keywords(kwargs) if kwargs else ({}, {})
        call = OpCall(op, plan, args, kwargs, values, value_kwargs)
        outer_writes = () if self._recording else self.writes
        self.writes = (*outer_writes, *call.written()) if plan.is_mutable else outer_writes
        if plan.rule is None:
            return self._without_rule(call)
        env = self.env
        outer = env.current_op, env.current_rule
        env.current_op, env.current_rule = op._name, plan.rule_name
        unknowns: Unknowns | None = None
        start = len(self.steps)
        try:
            if plan.data_dependent:
                unknowns = Unknowns(env, op._name, self.counts, specs, values)
                result = plan.rule(unknowns, *specs, **spec_kwargs)
                self._bounds.tell(op, values, unknowns.made)
            else:
                result = plan.rule(*specs, **spec_kwargs)
        except meta_fns.ShapeError as error:
            guard_free_answers(env)
            said = f"{error} (at {env.origin()})"
            raise program_error(said, env, op, specs, spec_kwargs) from error
        except ProgramError as error:  # a condition that the rule checked
            raise program_error(str(error), env, op, specs, spec_kwargs) from error.__cause__
        except (meta_fns.DataDependentOutput, meta_fns.UnsupportedOp) as error:
            raise UnsupportedError(
                f"{error} (at {env.origin()})", reason=Reason.OPERATOR
            ) from error
        finally:
            env.current_op, env.current_rule = outer
        made = self._record(call, result, start, unknowns)
        if plan.ends_reshape and self._recording:
            self.copies += copied_by_reshape(self.steps, made._value, user_location())
        if env.left_open:
            self._summed(call, made)
        return made

    def _summed(self, call: OpCall, made: Any) -> None:
        """Note that the last op sums a gradient, which a size of 1 would leave unchanged.

        The question is asked only where the difference can be seen.
        """
        source, ask = call.args[0]._value, partial(self._guard, self._left_open())
        self.copies.append(
            ReshapeCopy(len(self.steps), source, made._value, ask, user_location(), "sum")
        )

    def _left_open(self) -> list[Term]:
        """Return the conditions that were left open, which are no longer."""
        found, self.env.left_open = self.env.left_open, []
        return found

    def _guard(self, conditions: Iterable[Term]) -> None:
        """Record guards for conditions that hold for the example call."""
        for each in conditions:
            self.env.evaluate(each)

    def _record(
        self, call: OpCall, result: Any, start: int, unknowns: Unknowns | None = None
    ) -> Any:
        """Wrap the rule's result in the structure that the op returns, and insert the node at
        ``start``.

        Assertions that the rule made come after the node, which may bind their symbols.
        """
        single = not isinstance(result, (tuple, list))
        results = (result,) if single else tuple(result)
        outputs: list[Value | None] = []
        wrapped: list[Any] = []
        bindings: list[Binding] = []
        for position, item in enumerate(results):
            output: Value | None = None
            if type(item) is TensorSpec:
                output, shown = self._tensor_result(call, item, position)
            elif isinstance(item, (list, tuple)):  # such as _foreach ops with several lists
                raise UnsupportedError(
                    f"{call.op} returns nested lists, which cannot be traced",
                    reason=Reason.OPERATOR,
                )
            else:
                shown = scalar_result(item, position, unknowns, bindings)
            outputs.append(output)
            wrapped.append(shown)
        if unknowns is not None:
            bindings += self._size_bindings(
                call.op, results, unknowns.made, {binding.symbol for binding in bindings}
            )
        for binding in bindings:
            self.env.readings[binding.symbol] = reading(binding, single)
        if self._recording:
            self.steps.insert(start, self._node(call, tuple(outputs), single, tuple(bindings)))
        if call.plan.is_mutable:
            refuse_inference(call, self.inference, self.env)
            self.untracked_views.check(call.op, call.written())
            self.lifting.forget(call.written())
            self.counts.forget(call.written(), self.given)
            self.saved.written(call.written())
        if single:
            return wrapped[0] if call.plan.returns else None
        return wrapped if isinstance(result, list) else tuple(wrapped)

    def _tensor_result(
        self, call: OpCall, spec: TensorSpec, position: int
    ) -> tuple[Value | None, Any]:
        """Return the value and the symbolic tensor of an output; an argument that was written to is
        its own output.
        """
        plan = call.plan
        owner = plan.same_as[position] if position < len(plan.same_as) else None
        if owner is not None:
            tensor = call.args[owner] if owner < len(call.args) else call.kwargs[plan.names[owner]]
            return None, self._written(tensor, spec)
        viewed = viewed_by(plan, position)
        plain = viewed is not None and _is_inference_mode() and not is_inference(call.args[viewed])
        refuse_unstrided(call, spec, self.env)
        source: Value | None = None if viewed is None else call.values[viewed]
        value = self.new_value(spec, None if source is None else source.storage)
        if plan.keeps_strides and source in self.laid_out:
            self.laid_out.add(value)
        if call.op is aten.detach.default:
            self.saved.detached(value, call.args[0], call.values[0])
        if self.lazy or plan.changes_laziness:
            note_laziness(call, value, self.lazy, self.env)
        # Autograd refuses views of normal tensors that are inference tensors.
        with torch.inference_mode(False) if plain else _nothing:
            return value, self.stand_in(value)

    def _node(
        self,
        call: OpCall,
        outputs: tuple[Value | None, ...],
        single: bool,
        bindings: tuple[Binding, ...],
    ) -> Node:
        self.untracked_views.gradients |= torch.is_grad_enabled()
        if torch.get_default_dtype() is not self._default_dtype:
            raise UnsupportedError(
                f"the function changes torch's default dtype (before {self.env.origin()}), which a "
                "compiled graph would not repeat; pass dtype= explicitly, or change the default "
                "outside the function",
                reason=Reason.DEFAULTS,
            )
        changed = call.args[0] if call.plan.changes_shape else None
        return Node(
            call.op,
            call.values,
            call.value_kwargs,
            outputs,
            single,
            bindings,
            *self.modes_now(),
            location=user_location(_OWN_FRAMES),
            leaves=(changed._value, changed._spec) if type(changed) is SymbolicTensor else None,
        )

    def is_plain(self) -> bool:
        """Return whether ops behave as at the start of the trace, without gradients, and no other
        mode sees them.
        """
        return (
            not self._grad
            and not self._inference
            and self._recording
            and not self.flows.parts.inside
            and not self.lazy
            and not torch.is_grad_enabled()
            and not _is_inference_mode()
            and not dispatch.any_autocast()
            and dispatch.dispatch_mode_count() == 1
            and functorch.interpreters() is None
            and forward_ad._current_level < 0
            and torch.get_default_dtype() is self._default_dtype
        )

    def looks(self) -> tuple[int, ...]:
        """Return a count of everything that a call may do besides recording nodes."""
        noted = (self.questions, self.looked_at, self.own.told, self.lazy, self.env.symbols.hints)
        return (self._answered, len(self.env.symbols), *map(len, noted))

    outputs_of = staticmethod(outputs_like)

    def written_again(self, node: Node, like: Sequence[Output | None]) -> None:
        """Add a node without outputs to the trace; its outputs are made like those described."""
        outputs: list[Value | None] = []
        for each in like:
            if each is None:
                outputs.append(None)
                continue
            spec, viewed, keeps_strides = each
            source: Value | None = None if viewed is None else node.args[viewed]
            value = self.new_value(spec, None if source is None else source.storage)
            if source is not None:
                if keeps_strides and source in self.laid_out:
                    self.laid_out.add(value)
                self.untracked_views.add(source)
            self._holding.made(value)
            outputs.append(value)
        node.outputs = tuple(outputs)
        self.steps.append(node)

    def _written(self, tensor: Any, spec: TensorSpec) -> Any:
        """Return the argument that an in-place op returns, with its metadata as the op leaves
        it.
        """
        if type(tensor) is SymbolicTensor:
            tensor._spec = spec
        elif spec.sizes != tensor.shape or spec.strides != tensor.stride():
            name = self.lifting.lift(tensor).name
            raise UnsupportedError(
                f"the program changes the shape of {name} in place, which is not one of its "
                "arguments; pass it as an argument, or change its shape outside the function",
                reason=Reason.STATE,
            )
        return tensor

    def _size_bindings(
        self, op: OpOverload, results: Sequence[Any], made: list[IntNode], bound: set[str]
    ) -> list[Binding]:
        """Return where each new unbacked symbol can be read off the outputs."""
        # inside a fake implementation, whose own result has to show the symbols
        if not self._recording:
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
                    f"{op} creates a size that depends on data ({name}), but none of its results "
                    "has a dimension of exactly that size; a compiled graph could not read it; "
                    "return a tensor with such a dimension from the fake implementation",
                    reason=Reason.NO_FAKE,
                )
        return found

    def read_integer(self, op: OpOverload, tensor: SymbolicTensor, *args: int) -> Any:
        """Return a stride or offset that only the real tensor has: an unbacked symbol, read when
        the graph runs.
        """
        shown = "its storage offset" if not args else f"its stride along dimension {args[0]}"
        node = self.env.new_unbacked(
            None, None, description=f"{shown}, which a tensor of these sizes has by accident"
        )
        binding = Binding(node.term.name, "item")
        self.steps.append(
            Node(
                op, (tensor._value, *args), {}, (None,), True, (binding,), location=user_location()
            )
        )
        return node

    # -- ops without a rule of ours
    def _without_rule(self, call: OpCall) -> Any:
        op, args, kwargs = call.op, call.args, dict(call.kwargs)
        if decompositions.is_composite(op):
            with TracingMode(self):
                return decompositions.decompose(op, args, kwargs)
        unknowns = Unknowns(self.env, op._name)
        start = len(self.steps)
        outer, self._inner_unknowns = self._inner_unknowns, unknowns.made
        try:
            inferred = decompositions.infer(self, op, args, kwargs, unknowns)
        finally:
            self._inner_unknowns = outer
        result = pytree.tree_map(inward, inferred)
        return self._record(call, result, start, unknowns)

    @contextmanager
    def inferring(self) -> Iterator[None]:
        """Infer the ops that run inside, without recording them."""
        before, self._recording = self._recording, False
        try:
            with TracingMode(self):
                yield
        finally:
            self._recording = before

    def _assert(self, guard: Guard, message: Message, error: type[Exception]) -> None:
        self.steps.append(Assertion(guard, message, error))
