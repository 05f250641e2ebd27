"""The transformation of a traced graph into one for a whole region of sizes, op by op, by padding
rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import attrs
import torch

from guards.terms.term import Term
from meta_fns import TensorSpec
from meta_fns.core.derived_rules import functional_rule
from meta_fns.core.layout import contiguous_strides
from meta_fns.core.registry import lookup, resolve
from meta_fns.core.sizes import same, same_shape
from meta_fns.errors import MetaError
from meta_fns.padding.axes import Axis, agree, capacity_of, length, normal, varies
from meta_fns.padding.padded import Padded
from meta_fns.padding.pointwise import pointwise
from meta_fns.padding.random_numbers import DRAWN_ALONE
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.views import put_back
from symshape.graph.dead_code import without_dead_code
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.random_states import RandomStates
from symshape.graph.steps import (
    BATCH_NORM,
    Input,
    Lifted,
    Node,
    Value,
    draws_random_numbers,
    moves_nothing,
    values_in,
    written_values,
)
from symshape.runtime.padding.emission import Emission
from symshape.runtime.padding.merged import Merged
from symshape.runtime.padding.padded_graph import PaddedGraph, Refusal
from symshape.runtime.padding.recipes import Recipes
from symshape.runtime.padding.region import Fraction, Region
from symshape.runtime.padding.rewrites import Rewrite, Rewrites
from symshape.runtime.padding.ties import with_stable_sorts
from symshape.runtime.padding.versions import Unknown, Versions
from symshape.torch_internals import pytree
from symshape.tracing.symbolic.nodes.choices import tidy

__all__ = ["PaddedGraph", "Refusal", "device_of", "pad"]


_CLONE, _COPY = torch.ops.aten.clone.default, torch.ops.aten.copy_.default
_READS_MEMORY = frozenset(
    f"aten::{name}"
    for name in (
        *(
            "as_strided",
            "as_strided_copy",
            "as_strided_scatter",
            "set",
            "resize",
            "resize_as",
            "view",
        ),
        *(
            "empty_strided",
            "new_empty_strided",
            "_reshape_alias",
            "_nested_view_from_buffer",
            "_sparse_resize",
        ),
    )
)
"""The ops whose result depends on strides or storage, which differ at capacities even where no size
does.
"""


def pad(
    graph: Graph,
    region: Region,
    device: torch.device,
    aliased: frozenset[int] = frozenset(),
    *,
    any_randomness: bool = False,
    apart: bool = False,
) -> PaddedGraph:
    """Return the padded program for a region of sizes.

    Args:
        graph: the traced program.
        region: the sizes to serve.
        device: the device that the program computes on.
        aliased: the ids of storages whose outputs are made from the call's own tensors, and need
            not be computed.
        any_randomness: whether the program may draw other random numbers than eager.
        apart: whether equal parts are computed separately, so that the form of the program does not
            depend on which capacities happen to be equal.

    Raises:
        Refusal: an op refuses.
    """
    emission = Emission(device, apart=apart)
    return _Transform(with_stable_sorts(graph), region, emission, aliased, any_randomness).run()


class _Transform:
    """One walk over a graph."""

    def __init__(
        self,
        graph: Graph,
        region: Region,
        emission: Emission,
        aliased: frozenset[int],
        any_randomness: bool,
    ) -> None:
        self.graph = graph
        self.region = region
        self.emission = emission
        self.aliased = aliased
        self.any_randomness = any_randomness
        self.shared = RandomStates.of(graph).shared
        self.recipes = Recipes(graph, emission)
        self.values = Versions(self.emission, self._again, self._argument, self._true)
        self.rewrites = Rewrites(graph, self.values)
        self.axes: list[tuple[Axis, ...]] = []
        self.inputs: list[Value] = []
        self.lifted: list[Lifted] = []

    def run(self) -> PaddedGraph:
        self._roots()
        for step in self.graph.steps:
            if not isinstance(step, Node):
                raise Refusal(
                    "", str(step.guard.origin), "a check of data at run time", "", self._all()
                )
            try:
                self._node(step)
            except Refuse as refuse:
                raise self._refusal(step, refuse) from refuse
            except (
                ArithmeticError,
                AssertionError,
                AttributeError,
                LookupError,
                MetaError,
                TypeError,
                ValueError,
            ) as error:
                failed = Refuse(f"its padding rule failed: {type(error).__name__}: {error}")
                raise self._refusal(step, failed) from error
        return self._finish()

    def _roots(self) -> None:
        merged = Merged(self.graph, partial(tidy, self.region.known))
        for each in self.graph.inputs:
            spec = each.value.spec
            try:
                axes = tuple(
                    normal(map(self._size, merged.parts(each.value, size) or (size,)))
                    for size in spec.sizes
                )
            except Refuse as refuse:
                raise Refusal("", each.path, refuse.message, refuse.remedy, self._all()) from refuse
            value = self.emission.value(_at_capacity(axes, spec))
            self.inputs.append(value)
            self.axes.append(axes)
            self.values.bind(each.value, Padded(value, axes))
        for lifted in self.graph.lifted:
            value = self.emission.value(TensorSpec.of(lifted.tensor))
            self.lifted.append(attrs.evolve(lifted, value=value, constant=False))
            self.values.bind(
                lifted.value, Padded(value, tuple(normal((size,)) for size in lifted.tensor.size()))
            )

    def _size(self, size: Any) -> Any:
        return size if isinstance(size, int) else self.region.size(getattr(size, "term", size))

    def _true(self, value: Value | None) -> TensorSpec | None:
        """Return the true metadata of a result, with the region's sizes; strides play no part in
        padding.
        """
        if value is None:
            return None
        sizes = tuple(map(self._size, value.spec.sizes))
        return TensorSpec(sizes, (), 0, value.spec.dtype, value.spec.device, value.spec.layout)

    def _node(self, node: Node) -> None:
        if node in self.shared:
            raise Refuse("its random state is used outside of the program, at other sizes")
        if node in self.recipes:
            self._bind(node, self._made_alike(node))
            return
        if node.bindings:
            remedy = (
                "a mask in place of what is selected (torch.where), or a constant number of results"
            )
            raise Refuse("its result has sizes or values that depend on data", remedy=remedy)
        if torch.Tag.inplace_view in node.op.tags:
            self._turn(node)
            return
        if draws_random_numbers(node):
            self._need_any_randomness(node)
        written = written_alone(node)
        if written and node.op._schema.name in BATCH_NORM:
            raise Refuse(
                "it computes statistics over a whole tensor, padding included",
                remedy="call eval() on the module",
            )
        results = self._results(node, written) if written else self._made_alike(node)
        if written:
            self.rewrites.note(node, written)
        for value, result in zip(written, results, strict=False):
            self.values.write(value, self._checked(value, self._cast(result, value)))
        if not written:
            self._bind(node, results)

    def _bind(self, node: Node, results: Sequence[Any]) -> None:
        """Record the results of a node that writes to nothing."""
        for output, result in zip(node.outputs, results, strict=True):
            if output is not None and isinstance(result, Padded):
                self.values.bind(output, result)
            elif output is not None:
                self.values.lack(output, node, result)
        self.values.note_views(node)

    def _made_alike(self, node: Node) -> list[Any]:
        """Return the results of a node that writes to nothing, by the recipe of a similar node if
        there is one.
        """
        reads = [self.values.read(value) for value in node.reads]
        key = self.recipes.key(node, reads)
        found = None if key is None else self.recipes.follow(key, node, reads)
        if found is not None:
            return found
        asked = self.emission.asked = []
        results = [
            result
            if output is None or not isinstance(result, Padded)
            else self._checked(output, result)
            for output, result in zip(node.outputs, self._results(node, ()), strict=True)
        ]
        if key is not None:
            self.recipes.learn(key, reads, asked, results)
        return results

    def _results(self, node: Node, written: Sequence[Value]) -> list[Any]:
        """Return the results of a node by its padding rule; for a node that writes, the values to
        write.
        """
        args = [self._argument(arg) for arg in node.args]
        kwargs = {name: self._argument(arg) for name, arg in node.kwargs.items()}
        if written:
            outs = {argument.name for argument in node.op._schema.arguments if argument.is_out}
            kwargs = {name: arg for name, arg in kwargs.items() if name not in outs}
        made = self._made(node, args, kwargs, written)
        return list(made) if isinstance(made, (list, tuple)) else [made]

    def _turn(self, node: Node) -> None:
        """Transpose a tensor in place, if no other tensor shares its memory.

        Raises:
            Refuse: the node changes metadata in another way, or another tensor shares the memory.
        """
        if moves_nothing(node):
            return
        value, *rest = node.args
        rule = functional_rule(node.op)
        owners = (
            *(each.value for each in self.graph.inputs),
            *(each.value for each in self.graph.lifted),
        )
        seen = (
            self.values.shared(value) or value in owners or value in values_in(self.graph.outputs)
        )
        if node.op._schema.name not in ("aten::transpose_", "aten::t_") or rule is None or seen:
            raise Refuse(
                "it changes the sizes of a tensor in place", remedy="call it without the underscore"
            )
        assert rule.padding is not None
        self.emission.begin(node, resolve(rule.functional), (None,))
        self.values.bind(value, rule.padding(self.emission, self.values.read(value), *rest))

    def _again(self, node: Node) -> list[Any]:
        return self._results(node, ())

    def _need_any_randomness(self, node: Node) -> None:
        if not self.any_randomness:
            remedy = 'Options(randomness="any"), if other numbers of the same distribution will do'
            raise Refuse(
                "it draws random numbers, as many as the tensor has elements in memory",
                remedy=remedy,
            )
        if node.op._schema.name not in DRAWN_ALONE or node.kwargs.get("generator") is not None:
            raise Refuse("what it draws for one element depends on the others, or on a generator")

    def _made(
        self, node: Node, args: list[Any], kwargs: dict[str, Any], written: Sequence[Value]
    ) -> Any:
        rule = lookup(node.op)
        if written and (rule is None or rule.padding is None):
            rule = functional_rule(node.op) or rule
        plain = not any(_has_padding(arg) for arg in (*args, *kwargs.values()))
        if rule is not None and rule.padding is not None:
            op = resolve(rule.functional)
            results = tuple(map(self._true, written or node.outputs))
            self.emission.begin(node, op, results)
            return rule.padding(self.emission, *args, **kwargs)
        if node.op._schema.name in _READS_MEMORY or node.op.namespace != "aten":
            text = "it may depend on the memory layout of a tensor, which differs from eager's"
            raise Refuse(text, remedy="a view, slice or copy that says which elements are meant")
        op = resolve(rule.functional) if written and rule is not None else node.op
        if not plain or op._schema.is_mutable:
            reason = "it has no padding rule" if rule is not None else "nothing is known of it"
            remedy = (
                "other ops in its place, or constant sizes; in symshape a padding rule "
                "beside its shape rule"
            )
            raise Refuse(reason, remedy=remedy)
        self.emission.begin(node, op, ())
        made = self.emission.call(
            op, *map(_tensor, args), **{name: _tensor(arg) for name, arg in kwargs.items()}
        )
        tensors = made if isinstance(made, list) else [made]
        return [
            # an op that only checks data has no result
            None if each is None else Padded(each, tuple(map(_whole, each.spec.sizes)))
            for each in tensors
        ]

    def _argument(self, arg: Any) -> Any:
        if type(arg) is Value:
            return self.values.read(arg)
        if type(arg) is Term:
            return self.region.amount(arg)
        if type(arg) is FloatTerm:
            names = {symbol.name for symbol in arg.symbols()}
            if arg.unbacked():
                raise Refuse("a fraction depends on numbers that only the data tell")
            return (
                arg.evaluate(self.region.exact)
                if names <= self.region.exact.keys()
                else Fraction(self.region, arg)
            )
        if isinstance(arg, (list, tuple)):
            return [self._argument(item) for item in arg]
        return arg

    def _cast(self, result: Padded, value: Value) -> Padded:
        if result.dtype is value.spec.dtype:
            return result
        made = self.emission.call(
            torch.ops.aten._to_copy.default, result.tensor, dtype=value.spec.dtype
        )
        return Padded(made, result.axes)

    def _checked(self, value: Value, result: Padded) -> Padded:
        """Return a rule's result if its axes agree with the shape rule and with its tensor in
        memory.

        Raises:
            Refuse: they disagree.
        """
        spec = self._true(value)
        assert spec is not None
        fits = len(result.axes) == len(spec.sizes) and result.dtype is spec.dtype
        fits = fits and all(
            same(length(axis), size) for axis, size in zip(result.axes, spec.sizes, strict=True)
        )
        in_memory = tuple(map(capacity_of, result.axes)) == tuple(result.tensor.spec.sizes)
        if not in_memory or not fits:
            raise Refuse(f"its padding rule and its shape rule disagree: {result.axes} for {spec}")
        return result

    def _all(self) -> frozenset[str]:
        return frozenset(self.region.caps)

    def _refusal(self, node: Node, refuse: Refuse) -> Refusal:
        node = refuse.node if isinstance(refuse, Unknown) else node
        sizes: list[Any] = list(refuse.sizes)
        if not sizes:
            for arg in (*values_in(node.args), *values_in(node.kwargs)):
                held = self.values.held(arg)
                sizes += held.sizes if held is not None else []
        names = frozenset(
            symbol.name for size in sizes if varies(size) for symbol in size.term.symbols
        )
        names &= self._all()
        return Refusal(
            str(node.op), str(node.origin), refuse.message, refuse.remedy, names or self._all()
        )

    def _finish(self) -> PaddedGraph:
        wanted = [
            value
            for value in dict.fromkeys(values_in(self.graph.outputs))
            if id(value.storage) not in self.aliased
        ]
        results = {
            value: self._final(value, "a result is not known to be valid") for value in wanted
        }
        places = {each.value: i for i, each in enumerate(self.graph.inputs)}
        constants = {each.value for each in self.graph.lifted if each.constant}
        changed = {
            value: self._changed(value, places)
            for value in self.graph.mutated
            if value not in constants
        }
        rewrites = self.rewrites.of(value for value in changed if value in places)
        again = {each.place for each in rewrites}
        returned = [value for value in changed if value in places and places[value] not in again]
        stored = {value: padded for value, padded in changed.items() if value not in places}
        redone: list[Rewrite] = []
        tensors, last = self._stores(results, stored)
        changing = [*self.inputs, *(each.args[0] for each in last)] if returned or rewrites else []
        # memory written here or by the last steps is not returned itself
        lying = self.emission.sharing(changing)
        new = [changed[value].tensor for value in returned]
        for each in rewrites:
            redone.append(each.answered_from(len(tensors) + len(new)))
            new += each.tensors()
        tensors += [self.emission.call(_CLONE, each) if each in lying else each for each in new]
        steps = without_dead_code(
            list(self.emission.nodes), (*tensors, *(each.args[1] for each in last))
        )
        steps = (*steps, *last)
        read = {each for step in steps if isinstance(step, Node) for each in step.reads} | set(
            tensors
        )
        sizes = {term: value for term, value in self.emission.sizes.items() if value in read}
        inputs = [
            Input(i, f"input{i}", value) for i, value in enumerate((*self.inputs, *sizes.values()))
        ]
        _, tree = pytree.tree_flatten([0] * len(tensors))
        lifted = tuple(each for each in self.lifted if each.value in read)
        return PaddedGraph(
            Graph(tuple(inputs), lifted, steps, tuple(tensors), tree),
            tuple(self.axes),
            tuple(sizes),
            {value: (i, results[value]) for i, value in enumerate(wanted)},
            self.region,
            tuple(self.emission.repairs),
            {made: source for made, source in self.emission.sources.items() if made in read},
            tuple((places[value], len(wanted) + i) for i, value in enumerate(returned)),
            tuple(redone),
            tuple(
                each.tensor
                for each in self.lifted
                if any(node.args[0] is each.value for node in last)
            ),
        )

    def _changed(self, value: Value, places: Mapping[Value, int]) -> Padded:
        """Return the final contents of an argument, a parameter or a buffer, with its original
        axes.
        """
        axes = self.axes[places[value]] if value in places else None
        return self._final(
            value, "what an argument, a parameter or a buffer holds afterwards is not known", axes
        )

    def _final(self, value: Value, otherwise: str, axes: tuple[Axis, ...] | None = None) -> Padded:
        try:
            found = self.values.read(value)
            if axes is None or all(map(agree, found.axes, axes)):
                return found
            return put_back(self.emission, found, axes)
        except Unknown as unknown:
            raise self._refusal(unknown.node, unknown) from unknown
        except Refuse as refuse:
            raise Refusal(
                "", "the results", f"{otherwise}: {refuse.message}", "", self._all()
            ) from refuse

    def _stores(
        self, results: Mapping[Value, Padded], stored: Mapping[Value, Padded]
    ) -> tuple[list[Any], list[Node]]:
        """Return the tensors of the results, and the writes to parameters and buffers, which come
        last.

        Tensors in memory that those writes change are copied before.
        """
        owners = {
            each.value: own.value for each, own in zip(self.graph.lifted, self.lifted, strict=True)
        }
        targets = {
            owners[value]: padded.tensor
            for value, padded in stored.items()
            if owners[value] is not padded.tensor
        }
        if not targets:
            return [padded.tensor for padded in results.values()], []
        lying = self.emission.sharing(targets)

        def apart(tensor: Any) -> Any:
            return self.emission.call(_CLONE, tensor) if tensor in lying else tensor

        tensors = [apart(padded.tensor) for padded in results.values()]
        last = [
            Node(_COPY, (target, apart(new)), {}, (target,), single=True)
            for target, new in targets.items()
        ]
        return tensors, last


def _at_capacity(axes: tuple[Axis, ...], spec: TensorSpec) -> TensorSpec:
    sizes = tuple(map(capacity_of, axes))
    return TensorSpec(sizes, contiguous_strides(sizes), 0, spec.dtype, spec.device)


def _whole(size: int) -> Axis:
    """Return the axis of a dimension without padding."""
    return normal((size,))


def _has_padding(arg: Any) -> bool:
    if isinstance(arg, Padded):
        return bool(arg.sizes)
    return any(map(_has_padding, arg)) if isinstance(arg, (list, tuple)) else varies(arg)


def _tensor(arg: Any) -> Any:
    if isinstance(arg, Padded):
        return arg.tensor
    return [_tensor(item) for item in arg] if isinstance(arg, (list, tuple)) else arg


def device_of(graph: Graph) -> torch.device:
    """Return the device of a graph's tensors: the first device that is not the CPU, or the CPU."""
    values = [*(each.value for each in graph.inputs), *(each.value for each in graph.lifted)]
    values += [output for node in graph.nodes for output in node.outputs if output is not None]
    devices = dict.fromkeys(value.spec.device for value in values)
    return next((device for device in devices if device.type != "cpu"), torch.device("cpu"))


# -- The refusal of writes that read the memory they write to.
#
# Eager refuses most of them, and on padded copies the memory would not overlap.
def written_alone(node: Node) -> list[Value]:
    """Return the values that a node writes to.

    Raises:
        Refuse: the node also reads their memory, unless element by element from the same places, or
            writes twice to one memory.  Eager then raises, or its result depends on the order of
            its writes.
    """
    written = list(written_values(node))
    if not written:
        return written
    targets, sources = list(written), list[Value]()
    for value in node.reads:
        if value in targets:
            targets.remove(value)  # this argument is the target itself
        else:
            sources.append(value)
    if any(one.storage is other.storage for one, other in combinations(written, 2)):
        raise Refuse(
            "it writes to the same memory twice",
            remedy="clone() of one of the tensors that it writes to",
        )
    for target in written:
        for source in sources:
            together = source.storage is target.storage
            if together and not (_by_elements(node) and _same_places(source, target)):
                raise Refuse(
                    "it may read elements that it writes",
                    remedy="clone() of the tensor that it reads",
                )
    return written


def _by_elements(node: Node) -> bool:
    """Return whether each element of the result depends only on the elements at the same place."""
    rule = lookup(node.op)
    if rule is None or rule.padding is None:
        rule = functional_rule(node.op)
    return rule is not None and rule.padding is pointwise


def _same_places(one: Value, other: Value) -> bool:
    """Return whether two values of one storage are provably the same elements in the same order."""
    a, b = one.spec, other.spec
    return one is other or (
        a.dtype is b.dtype
        and same_shape(a.sizes, b.sizes)
        and same_shape(a.strides, b.strides)
        and same(a.storage_offset, b.storage_offset)
    )
