"""The contents of a traced graph's tensors after writes in place: every write makes a new version
instead.

A write to a view puts the written part back into a new version of the view's base, and so on down
to the tensor that owns the memory.  All other tensors that share the memory are recomputed when
they are read next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta_fns.core.dims import wrap_dims
from meta_fns.core.registry import lookup, resolve
from meta_fns.padding.padded import Padded
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.views import permute, put_back, transpose, transposed_matrix
from symshape.graph.steps import Node, Value
from symshape.runtime.padding.emission import Emission

__all__ = ["Unknown", "Versions"]

_RESHAPING = frozenset(
    f"aten::{name}"
    for name in (
        "view",
        "_unsafe_view",
        "unsqueeze",
        "squeeze",
        "alias",
        "detach",
        "_reshape_alias",
    )
)
_SCATTERING = {
    f"aten::{name}": f"aten.{name}_scatter.default" for name in ("slice", "select", "diagonal")
}


class Unknown(Refuse):
    """Raised when a result is read that the padding rule of its node does not return.

    Attributes:
        node: the node that makes it.
    """

    def __init__(self, node: Node, why: Refuse) -> None:
        super().__init__(why.message, *why.sizes, remedy=why.remedy)
        self.node = node


class Versions:
    """The present padded versions of the values of a traced graph.

    Args:
        emission: receives the ops that writes need.
        again: runs a node of the traced graph once more, on its arguments' present contents;
            returns its results.
        argument: converts an argument of a node to an argument of a padding rule.
        true: returns the true metadata of a value.
    """

    def __init__(
        self,
        emission: Emission,
        again: Callable[[Node], list[Any]],
        argument: Callable[[Any], Any],
        true: Callable[[Value], Any],
    ) -> None:
        self._emission = emission
        self._again = again
        self._argument = argument
        self._true = true
        self._now: dict[Value, Padded] = {}
        self._lacking: dict[Value, Unknown] = {}
        self._sharing: dict[int, list[Value]] = {}
        self._views: dict[Value, tuple[Node, Value, int]] = {}
        self._stale: set[Value] = set()

    def __contains__(self, value: Value) -> bool:
        return value in self._now

    def bind(self, value: Value, padded: Padded) -> None:
        """Record the present version of a value."""
        if value not in self._now:
            self._sharing.setdefault(id(value.storage), []).append(value)
        self._now[value] = padded
        self._stale.discard(value)

    def lack(self, value: Value, node: Node, why: Refuse | None) -> None:
        """Record a value that a node makes and that is not known to be valid."""
        reason = why or Refuse(
            f"its result number {node.outputs.index(value) + 1} is not known to be valid"
        )
        self._lacking[value] = Unknown(node, reason)

    def note_views(self, node: Node) -> None:
        """Record the results of a node that are views of one of its arguments."""
        for place, output in enumerate(node.outputs):
            if output is None or output in self._views:
                continue
            for arg in node.args:
                if type(arg) is Value and arg is not output and arg.storage is output.storage:
                    self._views[output] = (node, arg, place)
                    break

    def read(self, value: Value) -> Padded:
        """Return the present version of a value.

        Raises:
            Refuse: it shares memory that was written in an unknown way, or was never made.
        """
        if value in self._stale:
            self._refresh(value)
        found = self._now.get(value)
        if value in self._lacking:
            raise self._lacking[value]
        if found is None:
            raise Refuse("it reads a result of another op that is not known to be valid")
        return found

    def held(self, value: Value) -> Padded | None:
        """Return the last recorded version of a value, for its axes, which are the same in all
        versions; or None.
        """
        return self._now.get(value)

    def views_of(self, value: Value) -> list[Node]:
        """Return the ops that made a value a view, the last one first, down to the tensor that owns
        the memory.
        """
        found = []
        while value in self._views:
            node, value, _ = self._views[value]
            found.append(node)
        return found

    def shared(self, value: Value) -> bool:
        """Return whether another value shares a value's memory."""
        return len(self._sharing.get(id(value.storage), ())) > 1

    def _refresh(self, value: Value) -> None:
        found = self._views.get(value)
        if found is None:
            raise Refuse(
                "it reads memory that was written through another tensor, and how they share it is "
                "not known"
            )
        node, base, place = found
        self.read(base)
        self.bind(value, self._again(node)[place])

    def write(self, value: Value, padded: Padded) -> None:
        """Record a new version of a value, and of all its bases.

        Raises:
            Refuse: it is a view of a kind that cannot be put back.
        """
        self._stale.update(
            other for other in self._sharing[id(value.storage)] if other is not value
        )
        self.bind(value, padded)
        while value in self._views:
            node, base, _ = self._views[value]
            padded = self._put_back(node, base, padded)
            self.bind(base, padded)
            value = base

    def _put_back(self, node: Node, base: Value, part: Padded) -> Padded:
        """Return the base of a view with another part in the view's place."""
        whole = self._now[base]
        name = node.op._schema.name
        scatter = _SCATTERING.get(name)
        if scatter is not None and not node.kwargs:
            op = resolve(scatter)
            rule = lookup(op)
            assert rule is not None
            assert rule.padding is not None
            rest = [self._argument(arg) for arg in node.args[1:]]
            self._emission.begin(node, op, (self._true(base),))
            made: Padded = rule.padding(self._emission, whole, part, *rest)
            return made
        self._emission.begin(node, node.op, (self._true(base),))
        if name in _RESHAPING:
            return put_back(self._emission, part, whole.axes)
        if name == "aten::t":
            return transposed_matrix(self._emission, part)
        if name == "aten::transpose":
            return transpose(self._emission, part, *node.args[1:])
        if name == "aten::permute":
            order = wrap_dims(node.args[1], part.ndim)
            return permute(self._emission, part, [order.index(dim) for dim in range(part.ndim)])
        raise Refuse(f"it writes to memory through {name}, which is not known to be put back")
