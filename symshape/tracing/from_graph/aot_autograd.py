"""A graph of AOTAutograd's as a program, without another trace, since Dynamo has determined every
size.

Each node of such a graph has its result with sizes, strides and offsets as expressions of Dynamo's
symbols. Dynamo's guards state everything that was assumed. So the program's guards are Dynamo's, as
far as they can be expressed, and are not checked again: the program serves every call that Dynamo
lets through. Symbolic sizes are terms, read once from the graph's arguments. Calls of anything but
ATen operators (``cond``, ``flex_attention`` …) become opaque calls.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
import torch

import meta_fns
from guards.sets.guard import Guard
from guards.terms import boolean
from guards.terms.term import Term
from meta_fns import TensorSpec
from meta_fns.torch_internals import OpOverload
from symshape.calls.arguments import INT_KEY, STRIDED, Call, ConstantKey, LeafKey, TensorKey
from symshape.calls.modes import modes
from symshape.errors import Reason, UnsupportedError
from symshape.graph.assertion_messages import Message
from symshape.graph.codegen import Run, compile_graph
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.opaque_calls import OpaqueCall, Path
from symshape.graph.program import Program, Symbol, symbol_positions
from symshape.graph.steps import Assertion, Binding, Input, Lifted, Node, Step, Value
from symshape.torch_internals import pytree
from symshape.tracing.from_graph.fx_sizes import Sizes, place_of
from symshape.tracing.state.compare.state import State
from symshape.tracing.traced_modes import without_autocast
from symshape.user_code import Location, location_in, origin_of

aten = torch.ops.aten
_FLOATS: Mapping[Any, str] = {
    torch.sym_float: "from_int",
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "truediv",
    operator.mod: "mod",
    operator.neg: "neg",
    operator.abs: "abs",
    operator.pow: "pow",
    torch.sym_max: "max",
    torch.sym_min: "min",
    getattr(torch, "_sym_sqrt", None): "sqrt",
}
"""The functions on floats that such a graph calls, as :mod:`symshape.graph.float_terms` names them.
"""
_ATEN: Mapping[Any, Callable[..., tuple[OpOverload, tuple[Any, ...], dict[str, Any]]]] = {
    torch.ops.prims.convert_element_type.default: lambda x, dtype: (
        aten._to_copy.default,
        (x,),
        {"dtype": dtype},
    ),
    aten._native_batch_norm_legit_no_training.default: lambda x, weight, bias, mean, var, *rest: (
        aten.native_batch_norm.default,
        (x, weight, bias, mean, var, False, *rest),  # momentum, eps
        {},
    ),
}
"""Operators of AOTAutograd's own, as equivalent calls of ATen operators that have rules."""
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBERS = (bool, int, float)


def taken_over(
    module: torch.fx.GraphModule, name: str, paths: Sequence[str]
) -> tuple[Program, Run]:
    """Return the program of a graph whose nodes have results (``meta["val"]``), and its runner,
    which empties its list.

    Args:
        module: the graph; each argument is a tensor, a size or a constant.
        name: the program's name, for people.
        paths: the arguments' names, for people.

    Raises:
        UnsupportedError: a size, an argument or a call in it cannot be expressed.
    """
    start = time.perf_counter()
    reader = _Reader(module, paths)
    for node in module.graph.nodes:
        reader.read(node)
    return reader.program(name, start)


def program_of(
    graph: Graph,
    name: str,
    paths: Sequence[str],
    keys: Sequence[LeafKey],
    sizes: Sizes,
    start: float,
    demanded: Sequence[Guard] = (),
    *,
    has_casts: bool = False,
) -> tuple[Program, Run]:
    """Return the program of a graph for the calls that Dynamo lets through, and its runner, which
    empties its list.

    Args:
        graph: its inputs are among the leaves of a call.
        name: the program's name, for people.
        paths: the leaves' names, for people.
        keys: the leaves' keys.
        sizes: the sizes of the leaves.
        start: when making it began, by ``time.perf_counter``.
        demanded: the further conditions that each call is checked for.
        has_casts: whether autocast's casts are in the graph, and autocast may be on when it runs.
    """
    number = len(keys)
    tree = pytree.tree_flatten((tuple(range(number)), {}))[1]
    call = Call((None,) * number, tree, tuple(paths), tuple(keys), tuple(range(number)), ())
    boxed, now = compile_graph(graph, symbol_positions(sizes.slots), boxed=True), modes()
    if has_casts:
        boxed = without_autocast(boxed, now)

    def run(leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        return boxed(list(leaves), values)

    specs = [output.spec if isinstance(output, Value) else output for output in graph.outputs]
    symbols: dict[str, Symbol] = dict(sizes.env.symbols)
    milliseconds = (time.perf_counter() - start) * 1e3
    parts = (
        call,
        tuple(sizes.slots),
        symbols,
        sizes.guards(demanded),
        graph,
        specs,
        State(),
        now,
        run,
        milliseconds,
    )
    return Program(name, *parts), boxed


def key_of(val: Any) -> LeafKey:
    """Return the key of an argument of a graph; ``val`` is its fake tensor, symbolic size or
    constant.
    """
    if isinstance(val, torch.Tensor):
        return TensorKey(val.dtype, val.device, False, val.dim(), STRIDED)
    return INT_KEY if isinstance(val, torch.SymInt) else ConstantKey(type(val), val, None)


class _Reader:
    """A reader of one graph, node by node."""

    def __init__(self, module: torch.fx.GraphModule, paths: Sequence[str]) -> None:
        self._module = module
        self._paths = tuple(paths)
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._sizes = Sizes([node.meta.get("val") for node in placeholders], self._paths)
        self._values: dict[torch.fx.Node, Any] = {}
        self._keys: list[LeafKey] = []
        self._inputs: list[Input] = []
        self._lifted: dict[str, Lifted] = {}
        self._steps: list[Step] = []
        self._outputs: tuple[Any, ...] = ()
        self._count = 0

    def program(self, name: str, start: float) -> tuple[Program, Run]:
        """Return the program of the graph that was read, and its runner, which empties the list of
        leaves.
        """
        outputs, output_tree = pytree.tree_flatten(list(self._outputs))
        graph = Graph(
            tuple(self._inputs),
            tuple(self._lifted.values()),
            tuple(self._steps),
            tuple(outputs),
            output_tree,
        )
        return program_of(graph, name, self._paths, self._keys, self._sizes, start)

    # -- nodes
    def read(self, node: torch.fx.Node) -> None:
        """Read one node; nodes must come in order.

        Raises:
            UnsupportedError: the node cannot be expressed.
        """
        if node.op == "placeholder":
            self._values[node] = self._argument(len(self._keys), node.meta.get("val"))
        elif node.op == "get_attr":
            self._values[node] = self._attribute(str(node.target))
        elif node.op == "output":
            self._outputs = tuple(self._given(each) for each in _sequence(node.args[0]))
        elif node.op == "call_function":
            self._values[node] = self._call(node)
        else:
            raise UnsupportedError(
                f"the graph has a {node.op} of {node.target}", reason=Reason.DYNAMO_GRAPH
            )

    def _argument(self, position: int, val: Any) -> Any:
        self._keys.append(key_of(val))
        if isinstance(val, torch.Tensor):
            value = self._value(self._sizes.spec(val))
            self._inputs.append(Input(position, self._paths[position], value))
            return value
        if isinstance(val, torch.SymInt):
            return self._sizes.term(val)
        # torch 2.11 saves conditions on sizes for backward, beside the sizes
        if isinstance(val, torch.SymBool):
            with suppress(UnsupportedError):
                return self._sizes.term(val)
        return (
            val
            if isinstance(val, (*_NUMBERS, type(None)))
            else _Unknown(self._paths[position], type(val))
        )

    def _attribute(self, target: str) -> Any:
        found: Any = self._module
        for part in target.split("."):
            found = getattr(found, part)
        if not isinstance(found, torch.Tensor):
            return found
        if target not in self._lifted:
            self._lifted[target] = Lifted(target, found, self._value(TensorSpec.of(found)))
        return self._lifted[target].value

    def _call(self, node: torch.fx.Node) -> Any:
        target, val = node.target, node.meta.get("val")
        if target is operator.getitem:
            container, index = self._given(node.args)
            if not isinstance(container, (tuple, list, dict)):
                raise UnsupportedError(
                    f"the graph takes an item of {node.args[0]}", reason=Reason.DYNAMO_GRAPH
                )
            return container[index]
        if target is aten._assert_scalar.default:
            return self._assert(node)
        bound = node.meta.get("unbacked_bindings")
        if not bound and (
            isinstance(val, _SYMBOLIC) or (isinstance(val, _NUMBERS) and not node.is_impure())
        ):
            return self._number(node, val)
        location = location_in(node.stack_trace)
        if isinstance(target, OpOverload) and not any(
            isinstance(each, (tuple, list)) for each in _sequence(val)
        ):
            return self._op(target, node, val, location)
        if val is None:
            items = (user for user in node.users if user.target is operator.getitem)
            val = {user.args[1]: user.meta.get("val") for user in items}
        return self._opaque(node, val, location)

    def _op(self, op: OpOverload, node: torch.fx.Node, val: Any, location: Location | None) -> Any:
        args, kwargs = (
            self._given(node.args),
            {name: self._given(arg) for name, arg in node.kwargs.items()},
        )
        if op in _ATEN:
            op, args, kwargs = _ATEN[op](*args, **kwargs)
        bindings = tuple(self._bindings(node, val))
        single = not isinstance(val, (tuple, list))
        aliasing = meta_fns.aliasing(op)
        results: list[Any] = []
        outputs: list[Value | None] = []
        for position, each in enumerate([val] if single else val):
            same = aliasing.same_as[position] if position < len(aliasing.same_as) else None
            # written to in place: the argument is the result
            if same is not None and same < len(args):
                results.append(args[same])
                outputs.append(None)
                continue
            viewed = (
                aliasing.view_of[min(position, len(aliasing.view_of) - 1)]
                if aliasing.view_of
                else None
            )
            owner = args[viewed] if viewed is not None and viewed < len(args) else None
            results.append(self._result(each, owner.storage if isinstance(owner, Value) else None))
            outputs.append(results[-1] if isinstance(results[-1], Value) else None)
        self._steps.append(
            Node(op, args, kwargs, tuple(outputs), single, bindings, location=location)
        )
        return results[0] if single else results

    def _opaque(self, node: torch.fx.Node, val: Any, location: Location | None) -> Any:
        """Record a call of a function that is no operator.

        Its inputs are the leaves of its arguments, its outputs the tensors of its result.
        """
        told = list(self._bindings(node, val))
        if any(each.kind != "size" for each in told):
            raise UnsupportedError(
                f"{node.target} returns a number that depends on data", reason=Reason.DYNAMO_GRAPH
            )
        given, tree = pytree.tree_flatten(self._given((node.args, dict(node.kwargs))))
        tensors: dict[Path, Value] = {}
        result = self._parts(val, (), tensors)
        op: Any = OpaqueCall(node.target, tree, list(tensors))  # type: ignore[arg-type]
        places = {path[0] if path else 0: number for number, path in enumerate(tensors)}
        bindings = tuple(attrs.evolve(each, output=places[each.output]) for each in told)
        self._steps.append(
            Node(op, tuple(given), {}, tuple(tensors.values()), False, bindings, location=location)
        )
        return result

    def _parts(self, val: Any, path: Path, tensors: dict[Path, Value]) -> Any:
        """Return a result as it nests; add its tensors by their paths."""
        if isinstance(val, (tuple, list)):
            return [self._parts(each, (*path, index), tensors) for index, each in enumerate(val)]
        if isinstance(val, dict):
            return {key: self._parts(each, (*path, key), tensors) for key, each in val.items()}
        result = self._result(val, None)
        if isinstance(result, Value):
            tensors[path] = result
        return result

    def _result(self, val: Any, storage: object | None) -> Any:
        if isinstance(val, torch.Tensor):
            return self._value(self._sizes.spec(val), storage)
        if isinstance(val, torch.SymFloat):
            return FloatTerm("symbol", symbol=str(val.node.expr))
        return self._sizes.term(val) if isinstance(val, _SYMBOLIC) else val

    def _bindings(self, node: torch.fx.Node, val: Any) -> Iterator[Binding]:
        """Yield where the sizes and numbers that only this call determines are read off its
        results.
        """
        for path in (node.meta.get("unbacked_bindings") or {}).values():
            kind, output, dim, number = place_of(path, val)
            if kind == "float":
                yield Binding(str(number.node.expr), kind)
            else:
                yield Binding(self._sizes.bind(number, node), kind, output, dim)

    def _number(self, node: torch.fx.Node, val: Any) -> Any:
        """Return a number that follows from sizes: there is nothing to run."""
        if not isinstance(val, torch.SymFloat):
            return self._sizes.term(val) if isinstance(val, _SYMBOLIC) else val
        name = _FLOATS.get(node.target)
        if name is None or node.kwargs:
            raise UnsupportedError(
                f"symshape has no formula for the float that {node.target} computes",
                reason=Reason.DYNAMO_GRAPH,
            )
        return FloatTerm(name, self._given(node.args))

    def _assert(self, node: torch.fx.Node) -> None:
        condition, message = self._given(node.args)
        term = condition if isinstance(condition, Term) else boolean.boolean(bool(condition))
        if term is not boolean.TRUE:
            guard = Guard(term, origin_of(location_in(node.stack_trace), str(node.target)))
            self._steps.append(Assertion(guard, Message((str(message),))))

    # -- arguments and values
    def _given(self, arg: Any) -> Any:
        """Return an argument of a node, with values in place of nodes."""
        if isinstance(arg, torch.fx.Node):
            found = self._values[arg]
            if isinstance(found, _Unknown):
                raise UnsupportedError(
                    f"the argument {found.path} of the graph is a {found.kind.__name__}",
                    reason=Reason.DYNAMO_GRAPH,
                )
            return found
        if isinstance(arg, (tuple, list)):
            return (
                tuple(map(self._given, arg))
                if isinstance(arg, tuple)
                else list(map(self._given, arg))
            )
        if isinstance(arg, Mapping):
            return {name: self._given(each) for name, each in arg.items()}
        if isinstance(arg, slice):
            return slice(*map(self._given, (arg.start, arg.stop, arg.step)))
        return arg

    def _value(self, spec: TensorSpec, storage: object | None = None) -> Value:
        value = Value(self._count, spec, object() if storage is None else storage)
        self._count += 1
        return value


class _Unknown:
    """An argument that no program of ours takes; an error only where it is used."""

    def __init__(self, path: str, kind: type) -> None:
        self.path = path
        self.kind = kind


def _sequence(val: Any) -> Sequence[Any]:
    return val if isinstance(val, (tuple, list)) else (val,)
