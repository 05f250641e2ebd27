"""Graphs as JSON, and back: values, operators by name and schema, assertions, results.

A reader looks every name up, bounds every number, and refuses what is read before it is made.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch

import meta_fns
from guards.errors import GuardsError
from guards.sets.guard_set import GuardSet
from guards.sets.serialize import from_json as guards_from_json
from guards.sets.serialize import to_json as guards_to_json
from guards.terms.term import Term
from meta_fns.torch_internals import OpOverload
from symshape.graph.assertion_messages import Message, Place
from symshape.graph.control_flow import ControlFlow
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.program import Program
from symshape.graph.steps import COLLECTIVES, Assertion, Binding, Input, Lifted, Node, Step, Value
from symshape.store.json_values import (
    Json,
    TermsReader,
    TermsWriter,
    exactly,
    fields_of,
    from_json,
    integer_of,
    label_of,
    list_of,
    text_of,
    to_json,
    tree_from_json,
    tree_to_json,
)
from symshape.store.store_errors import Differs, EntryError, NotStorable
from symshape.tracing.state.record import process_groups
from symshape.tracing.symbolic.env import ShapeEnv

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


_OPTIONAL = {
    *("kwargs", "single", "bindings", "grad", "inference", "untracked", "location", "leaves")
}
_RESHAPE_ALIAS = torch.ops.aten._reshape_alias.default
_BINDINGS = ("size", "item", "bool", "float")


class GraphReader:
    """One graph while it is read.

    Args:
        data: what ``GraphWriter`` wrote.
        terms: the table of formulas.
        tensors: the real tensor of each number that the state gave to one.
        leaves: how many leaves a call has.

    Attributes:
        groups: the process groups of its collectives, once the graph is read.

    Raises:
        EntryError: (all methods) it is none.
    """

    def __init__(
        self, data: Json, terms: TermsReader, tensors: Callable[[int], torch.Tensor], leaves: int
    ) -> None:
        self._data = data
        self._terms = terms
        self._tensors = tensors
        self._leaves = leaves
        self._env = ShapeEnv()
        self._storages: dict[int, object] = {}
        self._values: list[Value] = []
        self._made: set[int] = set()
        self._specs: list[meta_fns.TensorSpec] = []
        self._ops: list[tuple[OpOverload, list[str]]] = []
        self._locations: list[tuple[str, int, str]] = []
        self.groups: list[list[Any]] = []

    def graph(self) -> Graph:
        """Return the graph."""
        names = (
            "inputs",
            "lifted",
            "steps",
            "outputs",
            "output_tree",
            "values",
            "specs",
            "ops",
            "locations",
        )
        inputs, lifted, steps, outputs, tree, values, specs, ops, locations = fields_of(
            self._data, *names
        )
        self._specs = [self._spec(each) for each in list_of(specs)]
        found = [operator(text_of(each, 200)) for each in list_of(ops)]
        self._ops = [
            (each, [argument.name for argument in each._schema.arguments]) for each in found
        ]
        self._locations = [_location(each) for each in list_of(locations)]
        self._values = [self._value(each) for each in list_of(values)]
        if len({each.index for each in self._values}) != len(self._values):
            raise EntryError("two values with the same number")
        made_inputs = tuple(self._input(each) for each in list_of(inputs))
        made_lifted = tuple(self._lifted(each) for each in list_of(lifted))
        made_steps = tuple(self._step(each) for each in list_of(steps))
        results = tuple(self._argument(each) for each in list_of(outputs))
        nested = tree_from_json(tree)
        if nested.num_leaves != len(results):
            raise EntryError("a result whose number of leaves differs from the graph's")
        return Graph(made_inputs, made_lifted, made_steps, results, nested)

    # -- values
    def _value(self, data: Json) -> Value:
        index, storage, held_until, spec = exactly(data, 4)
        shared = self._storages.setdefault(integer_of(storage), object())
        value = Value(integer_of(index), self._spec_of(spec), shared)
        value.held_until = None if held_until is None else integer_of(held_until)
        return value

    def _spec(self, data: Json) -> meta_fns.TensorSpec:
        sizes, strides, offset, *kind = exactly(data, 6)
        dtype, device, layout = (
            from_json({tag: each}) for tag, each in zip(_KIND, kind, strict=True)
        )
        shapes = [
            tuple(self._size(each) for each in list_of(part, 64)) for part in (sizes, strides)
        ]
        if len(shapes[0]) != len(shapes[1]) and shapes[1]:
            raise EntryError("a tensor with different numbers of sizes and strides")
        return meta_fns.TensorSpec(shapes[0], shapes[1], self._size(offset), dtype, device, layout)

    def _spec_of(self, number: Json) -> meta_fns.TensorSpec:
        return self._specs[integer_of(number, 0, len(self._specs))]

    def _size(self, data: Json) -> Any:
        if type(data) is int:
            return integer_of(data, -(1 << 62))
        found = (
            self._terms.term(data["term"])
            if type(data) is dict and data.keys() == {"term"}
            else None
        )
        if found is None or found.is_bool:
            raise EntryError(f"not a size: {str(data)[:80]}")
        return self._env.nodes.size(found)

    def _new(self, number: Json) -> Value:
        """Return a new value of the graph."""
        found = integer_of(number, 0, len(self._values))
        if found in self._made:
            raise EntryError(f"value {found} is made twice")
        self._made.add(found)
        return self._values[found]

    def _known(self, number: Json) -> Value:
        """Return a value of the graph that was made before."""
        found = integer_of(number, 0, len(self._values))
        if found not in self._made:
            raise EntryError(f"value {found} is read before it is made")
        return self._values[found]

    def _input(self, data: Json) -> Input:
        position, path, value = exactly(data, 3)
        return Input(integer_of(position, 0, self._leaves), label_of(path), self._new(value))

    def _lifted(self, data: Json) -> Lifted:
        name, number, tensor = exactly(data, 3)
        value = self._new(number)
        if type(tensor) is dict:
            return Lifted(label_of(name), _constant(from_json(tensor), value.spec), value, True)
        return Lifted(label_of(name), self._tensors(integer_of(tensor)), value)

    # -- steps
    def _argument(self, data: Json) -> Any:
        if type(data) is dict and len(data) == 1 and "value" in data:  # most of them
            return self._known(data["value"])
        return from_json(data, self._tagged)

    def _tagged(self, tag: str, inner: Json) -> Any:
        if tag == "group":
            return self._group(inner)
        return self._known(inner) if tag == "value" else self._terms.tagged(tag, inner)

    def _group(self, data: Json) -> str:
        """Return the name of a process group."""
        name, ranks, backends = exactly(data, 3)
        text_of(backends, 1000)
        self.groups.append(
            [text_of(name, 1000), [integer_of(each) for each in list_of(ranks)], backends]
        )
        return str(name)

    def compare_groups(self) -> None:
        """Check that process groups of these names have the same ranks in this process.

        Raises:
            Differs: one has not.
        """
        for words in self.groups:
            if process_groups.described(words[0]) != words:
                raise Differs(f"the process group {words[0]} of ranks {str(words[1])[:80]}")

    def _check_groups(self, op: OpOverload, data: dict[str, Json]) -> None:
        """Check that process groups are given by their ranks, and not by a name."""
        given = {**dict(enumerate(list_of(data["args"], 256))), **data.get("kwargs", {})}
        for place in with_groups(op) & given.keys():
            if type(given[place]) is not dict or given[place].keys() != {"group"}:
                raise EntryError(f"{op} without a process group")

    def _step(self, data: Json) -> Step:
        if type(data) is not dict:
            raise EntryError("a step that is not a JSON object")
        if "assert" in data:
            return self._assertion(data)
        missing, unknown = (
            {"op", "args", "outputs"} - data.keys(),
            data.keys() - _OPTIONAL - {"op", "args", "outputs"},
        )
        if missing or unknown:
            raise EntryError(
                f"a step lacks {sorted(missing)}, or has {sorted(map(str, unknown))[:4]}"
            )
        op, names = self._ops[integer_of(data["op"], 0, len(self._ops))]
        args = tuple(self._argument(each) for each in list_of(data["args"], 256))
        if op is _RESHAPE_ALIAS:  # ``view`` checks its sizes, and finds the strides itself
            op, names, args = torch.ops.aten.view.default, names[:2], args[:2]
        kwargs = data.get("kwargs", {})
        if type(kwargs) is not dict:
            raise EntryError("keyword arguments that are not a JSON object")
        if op.namespace == COLLECTIVES:
            self._check_groups(op, data)
        if len(args) > len(names) or not set(kwargs) <= set(names[len(args) :]):
            raise EntryError(f"{op} takes no such arguments")
        keywords = {key: self._argument(each) for key, each in kwargs.items()}
        outputs = tuple(
            None if each is None else self._new(each) for each in list_of(data["outputs"], 4096)
        )
        bindings = tuple(
            self._binding(each, outputs) for each in list_of(data.get("bindings", []), 4096)
        )
        leaves = data.get("leaves")
        return Node(
            op,
            args,
            keywords,
            outputs,
            _flag(data, "single", True) is True,
            bindings,
            _flag(data, "grad"),
            _flag(data, "inference"),
            _flag(data, "untracked", False) is True,
            self._location_of(data.get("location")),
            None
            if leaves is None
            else (self._known(exactly(leaves, 2)[0]), self._spec_of(leaves[1])),
            meta_fns.memory_safety(op) is meta_fns.MemorySafety.CHECKED,
        )

    def _location_of(self, number: Json) -> tuple[str, int, str] | None:
        return (
            None if number is None else self._locations[integer_of(number, 0, len(self._locations))]
        )

    def _binding(self, data: Json, outputs: Sequence[Value | None]) -> Binding:
        symbol, kind, output, dim = exactly(data, 4)
        if kind not in _BINDINGS:
            raise EntryError(f"unknown kind of binding: {str(kind)[:80]}")
        return Binding(
            _identifier(symbol),
            kind,
            integer_of(output, 0, max(1, len(outputs))),
            integer_of(dim, 0, 64),
        )

    def _assertion(self, data: Json) -> Assertion:
        condition, message, error = fields_of(data, "assert", "message", "error")
        guards = guard_set(condition)
        kind = getattr(builtins, text_of(error, 64), None)
        if len(guards.guards) != 1 or not isinstance(kind, type) or not issubclass(kind, Exception):
            raise EntryError(
                "an assertion of one condition that raises one of Python's exceptions is needed"
            )
        return Assertion(
            guards.guards[0], Message(tuple(map(self._part, list_of(message, 1000)))), kind
        )

    def _part(self, data: Json) -> str | Place:
        if type(data) is str:
            return data  # what the program raises: its text is eager's
        term, spec = exactly(data, 2)
        found = from_json(term, self._terms.tagged)
        return Place(found, text_of(spec, 64))


_KIND = ("dtype", "device", "layout")


def operator(name: str) -> OpOverload:
    """Return the operator of a name: one of torch's own, with a rule of ours."""
    space, _, rest = name.rpartition("::")
    packet, _, overload = rest.rpartition(".")
    ops = getattr(torch.ops, space or "aten") if space in ("", COLLECTIVES) else None
    found = getattr(getattr(ops, packet, None), overload, None) if packet.isidentifier() else None
    if (
        not isinstance(found, OpOverload)
        or found.namespace not in NAMESPACES
        or meta_fns.lookup(found) is None
    ):
        raise EntryError(f"unknown operator: {name[:80]}")
    if found is not _RESHAPE_ALIAS and trusts_its_arguments(found):
        raise EntryError(f"operator that may leave the memory of its arguments: {name[:80]}")
    return found


def guard_set(data: Json) -> GuardSet:
    """Read guards in the format of the package ``guards``."""
    try:
        found = guards_from_json(text_of(data, 1 << 24), "guard_set")
    except GuardsError as error:
        raise EntryError(f"guards that are wrong: {error}") from error
    assert isinstance(found, GuardSet)
    return found


def _constant(content: Any, spec: meta_fns.TensorSpec) -> torch.Tensor:
    """Return a tensor that the program writes down."""
    if type(content) is not bytes or not all(
        type(each) is int for each in (*spec.sizes, *spec.strides)
    ):
        raise EntryError("a constant without content, or of unknown sizes")
    count = 1
    for each in spec.sizes:
        count *= each
    if any(each < 0 for each in spec.sizes) or len(content) != count * spec.dtype.itemsize:
        raise EntryError("a constant whose size differs from its content's")
    flat = (
        torch.frombuffer(bytearray(content), dtype=spec.dtype)
        if content
        else torch.empty(0, dtype=spec.dtype)
    )
    dense = flat.reshape(spec.sizes)
    if spec.strides == dense.stride():
        return dense.to(spec.device)
    reach = 1 + sum(
        (size - 1) * stride for size, stride in zip(spec.sizes, spec.strides, strict=True)
    )
    if min(spec.strides) < 0 or reach > max(1, 4 * count):
        raise EntryError("a constant with invalid strides")
    made = torch.empty_strided(spec.sizes, spec.strides, dtype=spec.dtype, device=spec.device)
    return made.copy_(dense)


def _flag(data: dict[str, Json], name: str, default: bool | None = None) -> bool | None:
    found = data.get(name, default)
    if found is not None and type(found) is not bool:
        raise EntryError(f"{name} must be true or false")
    return found


def _location(data: Json) -> tuple[str, int, str]:
    file, line, function = exactly(data, 3)
    return text_of(file), integer_of(line), label_of(function)


def _identifier(data: Json) -> str:
    if not text_of(data, 64).isidentifier():
        raise EntryError(f"not a name: {data}")
    return str(data)
