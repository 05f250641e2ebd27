"""The refusal of writes that read the memory they write to.

Eager refuses most of them, and on padded copies the memory would not overlap.
"""

from __future__ import annotations

from itertools import combinations

from meta_fns.core.derived_rules import functional_rule
from meta_fns.core.registry import lookup
from meta_fns.core.sizes import same, same_shape
from meta_fns.padding.pointwise import pointwise
from meta_fns.padding.refusals import Refuse
from symshape.graph.steps import Node, Value, written_values

__all__ = ["written_alone"]


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
