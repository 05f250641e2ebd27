"""``cond`` on data, ``while_loop``, ``scan`` and ``associative_scan`` as nodes: their functions are
traced once each.

A branch on sizes is the branch that they choose, under a guard.  What torch's own operators refuse
(results that are views of what a function is given, results that differ) is refused here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs
import torch

from guards.terms import boolean
from meta_fns import TensorSpec
from meta_fns.core.layout import contiguous_strides
from symshape.errors import (
    DataDependentError,
    Reason,
    SymShapeError,
    UnsupportedError,
    refusals_noted,
)
from symshape.graph.control_flow import Cond, ControlFlow, WhileLoop
from symshape.graph.steps import Binding, Node, Step, Value
from symshape.torch_internals import pytree
from symshape.torch_internals.library import generic_scan
from symshape.tracing.autograd.histories import MadeInside, MadeOfParts
from symshape.tracing.control_flow.scans import LevelsTrace, RowsTrace
from symshape.tracing.control_flow.subgraphs import (
    EffectError,
    Part,
    Parts,
    around,
    names_in,
    shares_memory,
)
from symshape.tracing.restart import loops_are_unrolled
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, spec_of
from symshape.tracing.trace_state import TraceState
from symshape.user_code import user_location


# -- One description of the results of two functions, one of which runs: sizes that differ are known
# after the run.
@attrs.frozen(eq=False)
class Merged:
    """A tensor that either of two functions returns.

    Attributes:
        spec: its spec; sizes that differ are symbols of their own.
        unknown: the dimensions of these sizes.
    """

    spec: TensorSpec
    unknown: tuple[int, ...] = ()

    def bindings(self, output: int) -> Iterator[Binding]:
        """Yield where these sizes are read, for the output of this number."""
        for dim in self.unknown:
            yield Binding(self.spec.sizes[dim].term.name, "size", output, dim)


def merged(
    env: ShapeEnv, one: TensorSpec, other: TensorSpec, hidden: frozenset[str]
) -> Merged | None:
    """Merge two fresh tensors; return None if they differ in more than sizes: in dtype, device or
    layout.

    No guard is left for sizes that differ. Sizes that are equal in this call alone get a guard.

    Args:
        env: answers questions about sizes.
        one: a dense tensor that starts at the beginning of its storage.
        other: likewise.
        hidden: symbols that are known only inside the functions.
    """
    if one.dtype is not other.dtype or one.device != other.device or one.dim != other.dim:
        return None
    if any(type(spec.storage_offset) is not int or spec.storage_offset for spec in (one, other)):
        return None
    pairs = list(zip(one.sizes, other.sizes, strict=True))
    unknown = tuple(dim for dim, pair in enumerate(pairs) if not equal(env, *pair, hidden))
    order = _order(env, one, other)
    if not unknown or order is None:
        return None
    sizes = [
        _either(env, *pair, hidden) if dim in unknown else pair[0] for dim, pair in enumerate(pairs)
    ]
    strides = _dense(sizes, order)
    return Merged(one.with_(sizes=tuple(sizes), strides=strides), unknown)


def same_layout(env: ShapeEnv, one: TensorSpec, other: TensorSpec) -> bool:
    """Return whether sizes, strides and offsets are the same; leave guards where this holds in this
    call alone.

    Strides of a dimension that has size 1 in all calls are ignored.
    """
    if one.dim != other.dim or not all(
        same_size(env, *pair) for pair in zip(one.sizes, other.sizes, strict=True)
    ):
        return False
    strides = zip(one.sizes, one.strides, other.strides, strict=True)
    kept = [(left, right) for size, left, right in strides if not _known(env, size, 1)]
    return all(
        same_size(env, *pair) for pair in (*kept, (one.storage_offset, other.storage_offset))
    )


def same_size(env: ShapeEnv, left: Any, right: Any) -> bool:
    """Return whether two sizes are the same; leave a guard where this holds in this call alone."""
    terms = [_term(each) for each in (left, right)]
    if terms[0] is terms[1] or (type(terms[0]) is type(terms[1]) is int and terms[0] == terms[1]):
        return True
    try:
        return env.evaluate(boolean.eq(*terms))
    except DataDependentError:
        return False


def equal(env: ShapeEnv, left: Any, right: Any, hidden: frozenset[str]) -> bool:
    """Return whether two sizes or integers are equal; leave a guard where this holds in this call
    alone.

    Sizes with ``hidden`` symbols never count as equal.
    """
    left, right = (each.node if isinstance(each, torch.SymInt) else each for each in (left, right))
    if type(left) is type(right) is int:
        return bool(left == right)
    if _names(left, right) & hidden:
        return False
    condition = boolean.eq(*(_term(each) for each in (left, right)))
    hint = env.hint(condition)
    return env.known(condition) if hint is None else bool(hint) and env.evaluate(condition)


def _either(env: ShapeEnv, left: Any, right: Any, hidden: frozenset[str]) -> IntNode:
    """Return a symbol for a size that is one of two."""
    if _names(left, right) & hidden:
        least, most = 0, None
    elif type(left) is type(right) is int:
        least, most = min(left, right), max(left, right)
    else:
        node, size = (left, right) if isinstance(left, IntNode) else (right, left)
        least, most = node.sym_min(size), node.sym_max(size)
    return env.new_unbacked(least, most, description="a size of what one of two functions returns")


def _order(env: ShapeEnv, one: TensorSpec, other: TensorSpec) -> tuple[int, ...] | None:
    """Return an order of dimensions in which both tensors are dense in memory; None if none is
    known.
    """
    dims = tuple(range(one.dim))
    orders = [dims, dims[::-1], *([(0, *dims[2:], 1)] if len(dims) > 2 else [])]
    return next(
        (order for order in orders if all(_lies(env, spec, order) for spec in (one, other))), None
    )


def _lies(env: ShapeEnv, spec: TensorSpec, order: Sequence[int]) -> bool:
    places = zip(spec.sizes, spec.strides, _dense(spec.sizes, order), strict=True)
    return all(_known(env, stride, dense) or _known(env, size, 1) for size, stride, dense in places)


def _dense(sizes: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    """Return the strides of a dense tensor with dimensions in this order."""
    strides = dict(zip(order, contiguous_strides([sizes[dim] for dim in order]), strict=True))
    return tuple(strides[dim] for dim in range(len(sizes)))


def _known(env: ShapeEnv, left: Any, right: Any) -> bool:
    if type(left) is type(right) is int:
        return bool(left == right)
    return env.known(boolean.eq(_term(left), _term(right)))


def _term(size: Any) -> Any:
    return size.term if isinstance(size, IntNode) else size


def _names(*sizes: Any) -> set[str]:
    return {
        symbol.name for each in sizes if isinstance(each, IntNode) for symbol in each.term.symbols
    }


_Function = Callable[..., Any]
_INTEGERS = (int, torch.SymInt)


@attrs.frozen(eq=False)
class _Placed:
    """A node that runs subgraphs, with the tensors and integers that it hands to them."""

    op: ControlFlow
    parts: Sequence[Part]
    tensors: Sequence[Value]
    numbers: Sequence[str]


class ControlFlows:
    """The control-flow operators of one trace.

    Args:
        trace: the trace.

    Attributes:
        parts: traces functions.
    """

    def __init__(self, trace: TraceState) -> None:
        self._trace = trace
        self.parts = Parts(trace)
        self._placed: list[_Placed] = []

    # -- the operators
    def cond(
        self, condition: Any, then: _Function, otherwise: _Function, operands: Sequence[Any]
    ) -> Any:
        """``torch.cond``: one of two functions."""
        if not isinstance(condition, torch.Tensor) and not self._is_open(condition):
            return (then if condition else otherwise)(*operands)
        if isinstance(condition, torch.Tensor) and condition.requires_grad:
            raise UnsupportedError(
                f"torch.cond chooses by a tensor that requires gradients {self._here()}",
                reason=Reason.CONTROL_FLOW,
            )
        names = [
            f"a function that torch.cond may call ({_name(each)})" for each in (then, otherwise)
        ]
        parts = [
            self.parts.traced(name, each, operands)
            for name, each in zip(names, (then, otherwise), strict=True)
        ]
        first, second = parts
        if first.tree != second.tree:
            self.parts.refuse(first.name, f"returns other containers than {second.name}")
        self._check_memory(parts)
        found: dict[int, Merged] = {}  # the rest is the same whichever is chosen
        for place, (one, other) in enumerate(zip(first.leaves, second.leaves, strict=True)):
            if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
                found[place] = self._either(first, one, second, other)
            elif type(one) in _INTEGERS and type(other) in _INTEGERS:
                if not equal(self._trace.env, one, other, first.born | second.born):
                    found[place] = Merged(
                        TensorSpec.contiguous((), torch.int64, torch.device("cpu"))
                    )
            elif type(one) is not type(other) or not self._same(one, other):
                self.parts.refuse(first.name, f"returns {one} where {second.name} returns {other}")
        for part in parts:
            part.outputs = tuple(part.outputs[place] for place in found)
        op = Cond("cond", around(parts), whole=True, draws=_draw(parts))
        bindings = [
            binding for i, each in enumerate(found.values()) for binding in each.bindings(i)
        ]
        specs = [each.spec for each in found.values()]
        made = dict(
            zip(
                found,
                self._results(op, (condition,), parts, specs, parts, bindings=bindings),
                strict=True,
            )
        )
        leaves = [made.get(place, each) for place, each in enumerate(first.leaves)]
        leaves = [
            each if _is_like(of, each) else each.item()
            for of, each in zip(first.leaves, leaves, strict=True)
        ]
        return pytree.tree_unflatten(leaves, first.tree)

    def both(
        self,
        condition: torch.Tensor,
        then: _Function,
        otherwise: _Function,
        operands: Sequence[Any],
    ) -> Any:
        """``torch.cond`` of examples, each of which has its own condition: both functions, and a
        choice of each.
        """
        if condition.dim() or condition.requires_grad:
            raise UnsupportedError(
                f"torch.cond chooses by more than one bool for each example {self._here()}",
                reason=Reason.CONTROL_FLOW,
            )
        names = [f"a function that torch.cond calls ({_name(each)})" for each in (then, otherwise)]
        made = [
            pytree.tree_flatten(self.parts.together(name, each, operands))
            for name, each in zip(names, (then, otherwise), strict=True)
        ]
        (left, tree), (right, other_tree) = made
        if tree != other_tree:
            self.parts.refuse(names[0], f"returns other containers than {names[1]}")
        leaves: list[Any] = []
        for one, other in zip(left, right, strict=True):
            tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
            if tensors and (
                one.dtype is not other.dtype or one.dim() != other.dim() or one.shape != other.shape
            ):
                self.parts.refuse(
                    names[0], f"returns a tensor of other sizes or another dtype than {names[1]}"
                )
            if not tensors and (type(one) is not type(other) or not self._same(one, other)):
                self.parts.refuse(names[0], f"returns {one} where {names[1]} returns {other}")
            leaves.append(torch.where(condition.bool(), one, other) if tensors else one)
        return pytree.tree_unflatten(leaves, tree)

    def _is_open(self, condition: Any) -> bool:
        """Return whether a condition depends on unbacked integers, so that the trace cannot decide
        it.
        """
        env = self._trace.env
        if type(condition) is not torch.SymBool or env.hint(condition.node.term) is not None:
            return False
        return not env.known(condition.node.term) and not env.known(
            boolean.not_(condition.node.term)
        )

    def while_loop(self, goes_on: _Function, body: _Function, carried: Sequence[Any]) -> Any:
        """``while_loop``: a function as long as another one says so."""
        if any(
            not isinstance(each, torch.Tensor) and type(each) not in _INTEGERS for each in carried
        ):
            raise UnsupportedError(
                f"while_loop carries something else than tensors and integers {self._here()}",
                reason=Reason.CONTROL_FLOW,
            )
        own, numbers, given = self._stand_ins(carried)
        names = [f"a function of while_loop's ({_name(each)})" for each in (goes_on, body)]
        parts = [
            self.parts.traced(name, each, given, own, numbers)
            for name, each in zip(names, (goes_on, body), strict=True)
        ]
        self._check_condition(parts[0])
        _, part = parts
        if part.tree != pytree.tree_structure(tuple(given)):
            self.parts.refuse(
                part.name, "returns other containers than the tuple of what is carried"
            )
        self._check_memory([part])
        specs: list[TensorSpec] = []
        for before, after in zip(given, part.leaves, strict=True):
            if isinstance(before, torch.Tensor):
                specs.append(self.carried(part, before, after))
            elif type(after) not in _INTEGERS:
                self.parts.refuse(part.name, f"returns {after} where an integer is carried")
            else:
                specs.append(TensorSpec.contiguous((), torch.int64, torch.device("cpu")))
        op = WhileLoop("while_loop", around(parts), whole=True, draws=_draw(parts))
        if numbers and self._tracked(parts, carried):
            raise UnsupportedError(
                f"while_loop carries integers where gradients are recorded {self._here()}",
                reason=Reason.CONTROL_FLOW,
            )
        made = self._results(op, carried, parts, specs, parts[1:])
        kinds = [isinstance(each, torch.Tensor) for each in carried]
        return tuple(
            each if is_tensor else each.item() for each, is_tensor in zip(made, kinds, strict=True)
        )

    def scan(
        self,
        combine: _Function,
        init: Sequence[Any],
        operands: Sequence[Any],
        more: Sequence[Any] = (),
    ) -> Any:
        """``scan``: a function of what is carried and one row after the other; or the loop, written
        out.
        """
        tracked = torch.is_grad_enabled() and any(each.requires_grad for each in (*init, *operands))
        try:
            with refusals_noted():
                return RowsTrace(self._trace, self, combine, init, operands, more).results(
                    _name(combine)
                )
        except EffectError:
            raise
        except (SymShapeError, RuntimeError, TypeError) as error:
            if tracked or isinstance(error, _TrackedError) or not _is_plain(more):
                raise UnsupportedError(
                    f"a scan where gradients are recorded: {error}", reason=Reason.CONTROL_FLOW
                ) from error
        trees: list[pytree.TreeSpec] = []

        def noted(*given: Any) -> Any:
            trees.append(pytree.tree_structure(result := combine(*given)))
            return result

        found = generic_scan(noted, init, operands, additional_inputs=tuple(more))
        # by loops autograd sees other gradients: None where torch has zeros
        if any(map(_has_history, found)):
            raise UnsupportedError(
                f"a scan where gradients are recorded, whose steps differ {self._here()}",
                reason=Reason.CONTROL_FLOW,
            )
        return pytree.tree_unflatten(list(found), trees[0])

    def associative_scan(
        self, combine: _Function, operands: Sequence[Any], dim: int, loop: _Function
    ) -> Any:
        """Return the results of ``associative_scan`` as nodes; None if the caller is to trace
        eager's loop instead.
        """
        if (
            dim != 0
            or loops_are_unrolled()
            or any(type(each) is not SymbolicTensor for each in operands)
        ):
            return None
        if operands[0].shape[0] < 2:  # nothing to combine
            return None
        try:
            with refusals_noted():
                return LevelsTrace(self._trace.env, self, combine, operands).results(loop)
        except EffectError:
            raise
        except (SymShapeError, RuntimeError, TypeError):
            return None

    # -- what they share
    def _here(self) -> str:
        return f"(at {self._trace.env.origin()})"

    def stand_in(self, spec: TensorSpec, outer: Sequence[Any]) -> Any:
        """A tensor that stands for others of this spec in a part, which are made of ``outer``."""
        value = self._trace.new_value(self._moved(spec))
        tracked = [each for each in outer if isinstance(each, torch.Tensor) and each.requires_grad]
        if (
            torch.is_grad_enabled()
            and tracked
            and (spec.dtype.is_floating_point or spec.dtype.is_complex)
        ):
            return MadeInside.apply(lambda: self._trace.stand_in(value), *tracked)
        return self._trace.stand_in(value)

    def _moved(self, spec: TensorSpec) -> TensorSpec:
        """A spec of which nobody knows where in memory it begins, but that of a memory of its
        own.
        """
        offset = spec.storage_offset
        if type(offset) is int and offset == 0:
            return spec
        return spec.with_(
            storage_offset=self._trace.env.new_unbacked(0, None, description="an offset")
        )

    def _stand_ins(self, carried: Sequence[Any]) -> tuple[list[Value], list[str], list[Any]]:
        """Return placeholders for the carried values: tensors' values, integers' names, and both in
        their order.
        """
        own: list[Value] = []
        numbers: list[str] = []
        given: list[Any] = []
        for each in carried:
            if isinstance(each, torch.Tensor):
                given.append(self.stand_in(spec_of(each), carried))
                own.append(given[-1]._value)
            else:
                node = self._trace.env.new_unbacked(
                    None, None, description="an integer that a loop carries"
                )
                numbers.append(node.term.name)
                given.append(node.symint)
        return own, numbers, given

    def _check_memory(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if shares_memory(part):
                self.parts.refuse(part.name, "returns two tensors on one memory; return clones")

    def _check_condition(self, part: Part) -> None:
        (leaf,) = part.leaves if len(part.leaves) == 1 else (None,)
        if isinstance(leaf, torch.Tensor):
            if leaf.dim() == 0 and leaf.dtype is torch.bool:
                return
        elif type(leaf) in (bool, torch.SymBool):
            return
        self.parts.refuse(part.name, "returns no bool and no tensor of a single one")

    def carried(self, part: Part, before: Any, after: Any, *, layout: bool = True) -> TensorSpec:
        """The spec of what is carried after a round: the same as before it, its strides perhaps not
        (``layout``).
        """
        self.parts.fresh(part, after)
        one, other = before._spec.with_(storage_offset=0), after._spec
        one = one if layout else one.with_(strides=other.strides)
        if (
            one.dtype is not other.dtype
            or one.device != other.device
            or not same_layout(self._trace.env, one, other)
        ):
            self.parts.refuse(part.name, f"returns {other} where {one} is carried")
        if not bool(torch.ops.aten.is_non_overlapping_and_dense.default(after)):
            self.parts.refuse(part.name, "carries a tensor with gaps")
        return one  # type: ignore[no-any-return]

    def _either(self, first: Part, one: torch.Tensor, second: Part, other: torch.Tensor) -> Merged:
        for part, each in ((first, one), (second, other)):
            self.parts.fresh(part, each, part.born)
        left, right = (each._spec for each in (one, other))  # type: ignore[attr-defined]
        hidden = first.born | second.born
        found = merged(self._trace.env, left, right, hidden)
        if found is not None:
            return found
        alike = (
            left.dtype is right.dtype
            and left.device == right.device
            and same_layout(self._trace.env, left, right)
        )
        if not alike or hidden & (names_in(left) | names_in(right)):
            self.parts.refuse(first.name, f"returns {left} where {second.name} returns {right}")
        return Merged(left)

    def _same(self, one: Any, other: Any) -> bool:
        if isinstance(one, torch.SymInt):
            return same_size(self._trace.env, one.node, other.node)
        return (
            type(one) in (int, bool, float, str, type(None))
            and one == other
            and str(one) == str(other)
        )

    def _tracked(self, parts: Sequence[Part], operands: Sequence[Any]) -> list[torch.Tensor]:
        """The tensors that require gradients, of those that a node reads."""
        if not torch.is_grad_enabled():
            return []
        lifted = self._trace.lifting.tensors
        own = {value for part in parts for value in part.own}
        read = [part.seen.get(value, lifted.get(value)) for part in parts for value in part.tensors]
        given = [each for each in operands if isinstance(each, torch.Tensor)]
        found = [each for each in (*given, *read) if each is not None and each.requires_grad]
        return [each for each in found if getattr(each, "_value", None) not in own]

    def placed(
        self,
        op: ControlFlow,
        operands: Sequence[Any],
        parts: Sequence[Part],
        specs: Sequence[TensorSpec],
    ) -> list[Any]:
        """The results of a node that autograd sees as one operation."""
        return self._results(op, operands, parts, specs, parts)

    def recorded(
        self,
        op: ControlFlow,
        operands: Sequence[Any],
        parts: Sequence[Part],
        specs: Sequence[TensorSpec],
    ) -> list[Any]:
        """The results of a node that autograd records as it runs: those that require gradients for
        its function do.
        """
        return self._results(
            op, operands, parts, specs, parts, [each.requires_grad for each in parts[0].leaves]
        )

    def _results(
        self,
        op: ControlFlow,
        operands: Sequence[Any],
        parts: Sequence[Part],
        specs: Sequence[TensorSpec],
        making: Sequence[Part],
        floating: Sequence[bool] | None = None,
        bindings: Sequence[Binding] = (),
    ) -> list[Any]:
        """Writes a node down; answers its results, with a history if what it reads has one."""
        trace = self._trace
        tensors = tuple({value: None for part in parts for value in part.tensors})
        numbers = {name: number for part in parts for name, number in part.numbers.items()}
        tracked = self._tracked(parts, operands)
        if tracked and any(part.draws for part in parts):
            raise _TrackedError(
                f"{op} draws random numbers where gradients are recorded {self._here()}",
                reason=Reason.CONTROL_FLOW,
            )
        given = trace.op_arguments.both(tuple(operands))[1]
        outputs = [trace.new_value(spec) for spec in specs]
        arguments = (*given, *tensors, *numbers.values())
        made: Any = op
        node = Node(
            made,
            arguments,
            {},
            tuple(outputs),
            False,
            tuple(bindings),
            *trace.modes_now(),
            location=user_location(),
        )
        trace.steps.append(node)
        self._placed.append(_Placed(op, parts, tensors, tuple(numbers)))
        if not tracked:
            return [trace.stand_in(value) for value in outputs]
        floating = floating or [
            each.dtype.is_floating_point or each.dtype.is_complex for each in specs
        ]
        histories = [each for part in making for each in part.leaves if _has_history(each)]
        make = partial(map, trace.stand_in, outputs)
        return list(
            MadeOfParts.apply(lambda: list(make()), floating, str(op), *tracked, *histories)
        )

    # -- at the end of the trace
    def results(self) -> tuple[Any, ...]:
        """Return the outputs of the subgraphs."""
        return tuple(part.outputs for each in self._placed for part in each.parts)

    def settled(self, steps: list[Step], outputs: Sequence[Any]) -> list[Step]:
        """The steps without those of the parts, which their nodes run from now on.

        Args:
            steps: of the trace, as its results need them.
            outputs: of the trace.

        Raises:
            UnsupportedError: a part's tensor or number is used outside of it.
        """
        if not self.parts.any:
            return steps
        for each in self._placed:
            each.op.parts = tuple(
                part.compiled(
                    self.parts.steps_of(*part.place), each.tensors, each.numbers, self.parts.grad
                )
                for part in each.parts
            )
        aside = self.parts.set_aside()
        kept = [step for step in steps if id(step) not in aside]
        self.parts.check_leaks(kept, outputs)
        return kept


class _TrackedError(UnsupportedError):
    """The program cannot be traced where gradients are recorded, neither as a node nor as an
    unrolled loop.
    """


def _is_like(one: Any, other: Any) -> bool:
    """Return whether both results are tensors, or neither is."""
    return isinstance(one, torch.Tensor) is isinstance(other, torch.Tensor)


def _draw(parts: Sequence[Part]) -> bool:
    return any(part.draws for part in parts)


def _is_plain(more: Sequence[Any]) -> bool:
    return not any(isinstance(each, torch.Tensor) and each.requires_grad for each in more)


def _has_history(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _name(function: Any) -> str:
    """Return the program's name of a function that torch has wrapped."""
    while isinstance(function, partial):
        function = function.keywords.get("combine_fn", function.func)
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        if name in ("cond_fn", "body_fn") and function.__module__.startswith("torch."):
            return _name(cell.cell_contents)
    return str(getattr(function, "__qualname__", type(function).__name__))
