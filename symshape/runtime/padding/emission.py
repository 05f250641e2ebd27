"""The collection of a padded program: ops on tensors at their capacities, equal ops once, true
sizes as inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
import torch

import meta_fns
from guards.terms import boolean
from guards.terms.term import Term
from meta_fns import TensorSpec
from meta_fns.core.registry import aliasing
from meta_fns.errors import MetaError
from meta_fns.padding.axes import varies
from meta_fns.padding.padded import Emitter
from meta_fns.padding.refusals import Refuse
from meta_fns.torch_internals import OpOverload
from symshape.graph.float_terms import FloatTerm, Operand
from symshape.graph.steps import Node, Value, map_argument, values_in
from symshape.runtime.padding.capacities import Capacity
from symshape.runtime.padding.region import Fraction

__all__ = ["Called", "Emission", "Noted", "Repair"]

_aten = torch.ops.aten


@attrs.frozen
class Repair:
    """A repair that was inserted: its text, the symbols, the op that it precedes, and the user's
    line.
    """

    what: str
    symbols: frozenset[str]
    op: str
    where: str


@attrs.frozen(eq=False)
class Called:
    """One call of an op that a rule asked for.

    Attributes:
        form: a number for everything that defines the call except its tensors; None if the call is
            never shared.
        node: the call in the program.
    """

    form: int | None
    node: Node


@attrs.frozen(eq=False)
class Noted:
    """A true size that a rule read, with its tensor; or a repair that it recorded, with the
    repair's sizes.
    """

    size: Any = None
    outputs: tuple[Value, ...] = ()
    repair: str = ""
    sizes: tuple[Any, ...] = ()


class Emission:
    """A padded program under construction: an :class:`meta_fns.padding.padded.Emitter` for one op
    after the other.

    Args:
        device: the device that the program computes on.
        apart: whether an op with the same arguments as an earlier one is emitted again instead of
            shared.

    Attributes:
        nodes: the emitted ops.
        sizes: the true sizes that the program reads, each a 0-d int64 tensor.
        sources: for each tensor that was made, the traced node that it was made for.
        repairs: the inserted repairs.
        op: the overload that is being padded.
        results: the true metadata of its results.
        asked: the requests of rules since the list was last emptied.
    """

    def __init__(self, device: torch.device, *, apart: bool = False) -> None:
        self.nodes: list[Node] = []
        self.sizes: dict[Term, Value] = {}
        self.sources: dict[Value, Node] = {}
        self.repairs: dict[Repair, None] = {}
        self.op: OpOverload = _aten.alias.default
        self.results: tuple[TensorSpec | None, ...] = ()
        self._device = device
        self._apart = apart
        self._numbers = 0
        self._source: Node | None = None
        self._forms: dict[Any, int] = {}
        self._emitted: dict[Any, Called] = {}
        self.asked: list[Called | Noted] = []

    def begin(self, node: Node, op: OpOverload, results: tuple[TensorSpec | None, ...]) -> None:
        """Begin to emit ops for this node."""
        self._source, self.op, self.results = node, op, results

    def value(self, spec: TensorSpec) -> Value:
        """Return a new tensor of the padded program, at its capacities."""
        self._numbers += 1
        return Value(self._numbers - 1, spec, object())

    def call(self, op: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Emit an op and return its results; an earlier call with equal arguments is shared, unless
        ``apart``.

        Raises:
            Refuse: the op does not take tensors of these capacities.
        """
        reads: list[Value] = []
        form = op, _form(args, reads), _form(kwargs, reads)
        number = None
        found = None
        # each draw gives other numbers
        if not self._apart and torch.Tag.nondeterministic_seeded not in op.tags:
            number = self._forms.setdefault(form, len(self._forms))
            found = self._emitted.get((number, *map(id, reads)))
        if found is None:
            specs, single = self._inferred(op, args, kwargs)
            made = self._emit(Node(op, args, dict(kwargs), (), single), specs)
            found = Called(number, made)
            if number is not None:
                self._emitted[number, *map(id, reads)] = found
        self.asked.append(found)
        outputs = found.node.outputs
        return outputs[0] if found.node.single else list(outputs)

    def repeat(
        self,
        called: Called,
        reads: tuple[Value, ...],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
    ) -> tuple[Value | None, ...]:
        """Emit a call like an earlier one, on other tensors of the same metadata; return its
        results.

        ``kwargs`` are None if they contain no tensor: the earlier ones are used.
        """
        key = None if called.form is None else (called.form, *map(id, reads))
        found = None if key is None else self._emitted.get(key)
        if found is not None:
            return found.node.outputs
        one = called.node
        node = (
            one.again(args, reads, None)
            if kwargs is None
            else Node(one.op, args, kwargs, (), one.single, checked=one.checked)
        )
        made = self._emit(node, [None if each is None else each.spec for each in one.outputs])
        if key is not None:
            self._emitted[key] = Called(called.form, made)
        return made.outputs

    def note(self, noted: Noted) -> tuple[Value, ...]:
        """Repeat the reading of a size and return its tensor, or record a repair again for the
        present op.
        """
        if noted.repair:
            self.repaired(noted.repair, *noted.sizes)
            return ()
        return (self.size(noted.size),)

    def _inferred(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[list[TensorSpec | None], bool]:
        if not op._schema.returns:  # an op that only checks data
            return [None], True
        try:
            specs = meta_fns.infer(
                op, _specs(args), {name: _specs(arg) for name, arg in kwargs.items()}
            )
        except MetaError as error:
            raise Refuse(f"at the capacities {error}") from error
        single = isinstance(specs, TensorSpec)
        found = [specs] if single else specs
        return [spec if isinstance(spec, TensorSpec) else None for spec in found], single

    def _emit(self, node: Node, specs: Sequence[TensorSpec | None]) -> Node:
        """Append a call to the program, with new results of these specs."""
        node.outputs = outputs = tuple(
            [None if spec is None else self.value(spec) for spec in specs]
        )
        source = self._source
        if source is not None:
            node.location = source.location
            for each in outputs:
                if each is not None:
                    self.sources[each] = source
        self.nodes.append(node)
        return node

    def sharing(self, roots: Collection[Value]) -> set[Value]:
        """Return the tensors that may share memory with these: themselves, and views of them."""
        found = set(roots)
        for node in self.nodes:
            if not aliasing(node.op).is_functional and any(
                each in found for each in values_in(node.args)
            ):
                found.update(each for each in node.outputs if each is not None)
        return found

    def size(self, size: Any) -> Value:
        """Return a true size as a 0-d int64 tensor: an input of the program, or a constant."""
        if isinstance(size, int):
            made: Value = self.call(
                _aten.scalar_tensor.default, size, dtype=torch.int64, device=self._device
            )
            return made
        found = self.sizes.get(size.term)
        if found is None:
            found = self.sizes[size.term] = self.value(
                TensorSpec((), (), 0, torch.int64, self._device)
            )
        self.asked.append(Noted(size, (found,)))
        return found

    def fraction(self, number: Fraction) -> Value:
        """Return a float of the sizes as a 0-d float64 tensor, computed in the program as Python
        does.
        """
        return fraction(self, number, self._device)

    def repaired(self, repair: str, *sizes: Any) -> None:
        """Record that a repair was inserted for the present op."""
        assert self._source is not None
        self.asked.append(Noted(repair=repair, sizes=sizes))
        symbols = frozenset(
            symbol.name for size in sizes if hasattr(size, "term") for symbol in size.term.symbols
        )
        self.repairs[Repair(repair, symbols, str(self._source.op), str(self._source.origin))] = None


def _form(arg: Any, reads: list[Value]) -> Any:
    """Return a key that is equal for arguments equal except for their tensors, which are appended
    to ``reads``.

    The key includes the type and the sign of numbers.

    Raises:
        Refuse: a rule has left a true size among the arguments.
    """
    if isinstance(arg, Value):
        reads.append(arg)
        return Value
    if isinstance(arg, (list, tuple)):
        return tuple([_form(each, reads) for each in arg])
    if isinstance(arg, Mapping):
        return tuple([(name, _form(arg[name], reads)) for name in arg])
    if type(arg) is Capacity:
        return Capacity, id(arg)  # one object for each formula
    if varies(arg):
        raise Refuse(f"an argument depends on the size {arg}", arg)
    return type(arg), repr(arg)


def _specs(args: Any) -> Any:
    return map_argument(args, lambda leaf: leaf.spec)


# -- Floating-point numbers of sizes, computed in a padded program in float64, as Python computes
# them.

_OPS = {
    **{
        name: getattr(_aten, name).default
        for name in ("neg", "abs", "sqrt", "cos", "sin", "exp", "tanh", "atan")
    },
    **{name: getattr(_aten, name).default for name in ("log", "log2", "log10")},
    **{name: getattr(_aten, name).Tensor for name in ("add", "sub", "mul")},
    "truediv": _aten.div.Tensor,
    "pow": _aten.pow.Tensor_Tensor,
    "cpp_truediv": _aten.div.Tensor,
    "cpp_pow": _aten.pow.Tensor_Tensor,
    "max": _aten.maximum.default,
    "min": _aten.minimum.default,
}
_OF_POSITIVE = frozenset(("log", "log2", "log10"))
_KEEPING = frozenset(("from_int", "as_float"))


def fraction(emit: Emitter, number: Fraction, device: torch.device) -> Value:
    """Return the number as a 0-d float64 tensor.

    Raises:
        Refuse: Python raises for some sizes (a division by zero, the logarithm of zero), or the
            number has an unsupported function.
    """
    made: Value = _Computed(emit, number, device).of(number.formula)
    return made


class _Computed:
    """One number under construction."""

    def __init__(self, emit: Emitter, number: Fraction, device: torch.device) -> None:
        self._emit = emit
        self._number = number
        self._device = device

    def of(self, operand: Operand) -> Any:
        """Return a part of the number as a tensor."""
        if isinstance(operand, Term):
            size = self._emit.size(self._number.region.amount(operand))
            return self._emit.call(_aten._to_copy.default, size, dtype=torch.float64)
        if not isinstance(operand, FloatTerm):
            return self._emit.call(
                _aten.scalar_tensor.default, operand, dtype=torch.float64, device=self._device
            )
        if operand.op in _KEEPING:
            return self.of(operand.args[0])
        if operand.op not in _OPS:
            raise Refuse(f"a fraction of sizes by {operand.op}", self._number)
        self._check(operand)
        return self._emit.call(_OPS[operand.op], *map(self.of, operand.args))

    def _check(self, term: FloatTerm) -> None:
        """Check that Python does not raise for this term, and returns the same number as torch.

        Raises:
            Refuse: it may not hold for some sizes.
        """
        name, args = term.op, term.args
        fine = True
        if name == "truediv":
            fine = self._least(args[1]) > 0
        elif name in _OF_POSITIVE or name == "pow":
            fine = self._least(args[0]) > 0
        elif name == "sqrt":
            fine = self._least(args[0]) >= 0
        if not fine:
            remedy = "torch._check that the sizes are at least 1, or max(size, 1)"
            raise Refuse(f"{term} has no value for some sizes", self._number, remedy=remedy)

    def _least(self, operand: Operand) -> float:
        """Return a rough lower bound of a part of the number: 1 for positive, 0 for non-negative,
        -1 for unknown.
        """
        if isinstance(operand, Term):
            known = self._number.region.known_of_calls
            return (
                1 if known(boolean.ge(operand, 1)) else 0 if known(boolean.ge(operand, 0)) else -1
            )
        if not isinstance(operand, FloatTerm):
            return 1 if operand > 0 else 0 if operand == 0 else -1
        least = [self._least(each) for each in operand.args]
        if operand.op in ("add", "max"):
            above = max(least)
            return above if operand.op == "max" or min(least) >= 0 else -1
        if operand.op in ("mul", "truediv", "min", "sqrt", "as_float", "from_int"):
            return min(least)
        return 1 if operand.op == "pow" and least[0] > 0 else -1
