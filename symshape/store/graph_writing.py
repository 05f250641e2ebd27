"""A graph as JSON: values, operators by name and schema, assertions, results."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from typing import Any

import torch

import meta_fns
from guards.sets.guard_set import GuardSet
from guards.sets.serialize import to_json as guards_to_json
from guards.terms.term import Term
from meta_fns.torch_internals import OpOverload
from symshape.graph.assertion_messages import Message
from symshape.graph.control_flow import ControlFlow
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.program import Program
from symshape.graph.steps import COLLECTIVES, Assertion, Lifted, Node, Value
from symshape.store.constants import Json, to_json
from symshape.store.store_errors import NotStorable
from symshape.store.terms import TermsWriter
from symshape.store.trees import tree_to_json
from symshape.tracing.state.record import process_groups

LARGEST_CONSTANTS = 1 << 20
"""The largest size, in bytes, of all tensors together that a program itself writes down."""


class GraphWriter:
    """One graph while it is written.

    Args:
        graph: what is written.
        terms: the table of formulas.
        number_of: of a real tensor outside the arguments: its number among the objects that the
            state names.
    """

    def __init__(
        self, graph: Graph, terms: TermsWriter, number_of: Callable[[torch.Tensor, str], int]
    ) -> None:
        self._graph = graph
        self._terms = terms
        self._number_of = number_of
        self._values: dict[Value, int] = {}
        self._written: list[Json] = []
        self._storages: dict[int, int] = {}
        self._tables: dict[str, dict[str, int]] = {"specs": {}, "ops": {}, "locations": {}}
        self._rows: dict[str, list[Json]] = {name: [] for name in self._tables}
        self._bytes = 0

    def json(self) -> Json:
        """Return the graph as JSON.

        Raises:
            NotStorable: it has an operator without a rule, a generator of random numbers, a tensor
                without a name …
        """
        graph = self._graph
        inputs = [[each.position, each.path, self._value(each.value)] for each in graph.inputs]
        lifted = [self._lifted(each) for each in graph.lifted]
        steps = [
            self._node(each) if isinstance(each, Node) else self._assertion(each)
            for each in graph.steps
        ]
        return {
            "inputs": inputs,
            "lifted": lifted,
            "steps": steps,
            "outputs": [self._argument(each) for each in graph.outputs],
            "output_tree": tree_to_json(graph.output_tree),
            "values": self._written,
            **self._rows,
        }

    def _row(self, table: str, row: Json) -> int:
        """Return the number of a row that is written once, however often it occurs."""
        known, rows = self._tables[table], self._rows[table]
        key = json.dumps(row)
        if key not in known:
            known[key] = len(rows)
            rows.append(row)
        return known[key]

    def _value(self, value: Value) -> int:
        found = self._values.get(value)
        if found is None:
            found = self._values[value] = len(self._written)
            storage = self._storages.setdefault(id(value.storage), len(self._storages))
            self._written.append([value.index, storage, value.held_until, self._spec(value.spec)])
        return found

    def _spec(self, spec: meta_fns.TensorSpec) -> int:
        number = self._terms.number
        sizes, strides = (
            [number(each) for each in spec.sizes],
            [number(each) for each in spec.strides],
        )
        kind = [str(spec.dtype), str(spec.device), str(spec.layout)]
        return self._row("specs", [sizes, strides, number(spec.storage_offset), *kind])

    def _lifted(self, lifted: Lifted) -> Json:
        value = self._value(lifted.value)
        if not lifted.constant:
            return [lifted.name, value, self._number_of(lifted.tensor, lifted.name)]
        tensor = lifted.tensor
        self._bytes += tensor.numel() * tensor.element_size()
        if self._bytes > LARGEST_CONSTANTS:
            raise NotStorable("tensors that it writes down itself, of more than a MiB")
        if (tensor.is_complex() and tensor.is_conj()) or tensor.is_quantized:
            raise NotStorable(f"the constant {lifted.name}, which is not a plain tensor")
        flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return [lifted.name, value, {"bytes": to_json(bytes(flat.tolist()))["bytes"]}]

    def _argument(self, arg: Any) -> Json:
        return to_json(arg, self._other)

    def _other(self, arg: Any) -> Json:
        if isinstance(arg, Value):
            return {"value": self._value(arg)}
        if isinstance(arg, (Term, FloatTerm)):
            return self._terms.number(arg)
        if isinstance(arg, torch.Generator):
            raise NotStorable("an operator that draws from a random generator of its own")
        raise NotStorable(
            f"an operator that is given a {type(arg).__module__}.{type(arg).__qualname__}"
        )

    def _node(self, node: Node) -> Json:
        name = self._row("ops", op_name(node.op))
        among = with_groups(node.op)

        def argument(place: int | str, value: Any) -> Json:
            return group_to_json(value) if place in among else self._argument(value)

        found: dict[str, Json] = {
            "op": name,
            "args": [argument(*each) for each in enumerate(node.args)],
        }
        if node.kwargs:
            found["kwargs"] = {key: argument(key, each) for key, each in node.kwargs.items()}
        found["outputs"] = [None if each is None else self._value(each) for each in node.outputs]
        if not node.single:
            found["single"] = False
        if node.bindings:
            found["bindings"] = [
                [each.symbol, each.kind, each.output, each.dim] for each in node.bindings
            ]
        for flag in ("grad", "inference"):
            if getattr(node, flag) is not None:
                found[flag] = getattr(node, flag)
        if node.untracked:
            found["untracked"] = True
        if node.location is not None:
            found["location"] = self._row("locations", list(node.location))
        if node.leaves is not None:
            found["leaves"] = [self._value(node.leaves[0]), self._spec(node.leaves[1])]
        return found

    def _assertion(self, step: Assertion) -> Json:
        if getattr(builtins, step.error.__name__, None) is not step.error:
            raise NotStorable(f"an assertion that raises {step.error.__qualname__}")
        return {
            "assert": guards_text(GuardSet((step.guard,), {})),
            "message": self._message(step.message),
            "error": step.error.__name__,
        }

    def _message(self, message: Message) -> Json:
        return [
            part if isinstance(part, str) else [self._terms.number(part.term), part.spec]
            for part in message.parts
        ]


NAMESPACES = ("aten", COLLECTIVES)
"""The namespaces of the operators that entries may have."""


def refuse_control_flow(program: Program) -> None:
    """Check that a program consists of operators only.

    Raises:
        NotStorable: it runs functions of its own, as ``torch.cond`` does.
    """
    for node in program.graph.nodes:
        op: Any = node.op
        if isinstance(op, ControlFlow):
            raise NotStorable(f"it calls {op}, which runs functions of the program")


def op_name(op: Any) -> str:
    """Return the name of an operator that an entry may have: one of torch's own, with a rule of
    ours.

    Raises:
        NotStorable: it is another.
    """
    if (
        not isinstance(op, OpOverload)
        or op.namespace not in NAMESPACES
        or meta_fns.lookup(op) is None
    ):
        raise NotStorable(
            f"the operator {op}, which is not one of torch's own operators with a rule in symshape"
        )
    # that one is read as ``view``
    if op is not torch.ops.aten._reshape_alias.default and trusts_its_arguments(op):
        raise NotStorable(f"the operator {op}, whose kernel does not check its arguments")
    name = f"{op._schema.name.partition('::')[2]}.{op._overloadname}"
    return name if op.namespace == "aten" else f"{op.namespace}::{name}"


def trusts_its_arguments(op: OpOverload) -> bool:
    """Return whether a call of an operator may read or write beyond its arguments, and nothing can
    tell which calls.
    """
    return op.namespace == "aten" and meta_fns.memory_safety(op) is meta_fns.MemorySafety.UNSAFE


def with_groups(op: OpOverload) -> set[int | str]:
    """Return the arguments of an operator, by position and by name, that are names of process
    groups.
    """
    if op.namespace != COLLECTIVES:
        return set()
    names = [each.name for each in op._schema.arguments]
    return {
        each
        for position, name in enumerate(names)
        if name == "group_name"
        for each in (position, name)
    }


def group_to_json(group: Any) -> Json:
    """Return a process group with its ranks as JSON; its name only counts the groups of a process.

    Raises:
        NotStorable: this process is in no such group.
    """
    words = process_groups.described(group)
    if words is None or type(group) is not str:
        raise NotStorable(
            f"a collective of the process group {group}, of which this process is not a member"
        )
    return {"group": words}


def guards_text(guards: GuardSet) -> str:
    """Return guards in the format of the package ``guards``."""
    return guards_to_json(guards, indent=None)
