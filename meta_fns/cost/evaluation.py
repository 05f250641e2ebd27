"""The door to the cost rules: a call in, its work out."""

from __future__ import annotations

from typing import Any

from meta_fns.core.cost_rule import OpCall, Work, specs_in
from meta_fns.core.inference import as_spec, infer
from meta_fns.core.registry import aliasing, lookup, resolve
from meta_fns.torch_internals import OpOverload

__all__ = ["work_of"]


def work_of(
    overload: OpOverload | str, args: Any, kwargs: dict[str, Any] | None = None
) -> Work | None:
    """Return the cost of ``overload(*args, **kwargs)``, for tensors or specs of any sizes; None if
    no rule gives one.

    Raises: as ``infer`` does, which gives the results.

    >>> import meta_fns
    >>> a, b = meta_fns.TensorSpec.contiguous((2, 3)), meta_fns.TensorSpec.contiguous((3, 5))
    >>> work = meta_fns.work_of("aten.mm.default", (a, b))
    >>> work.flops, work.read, work.written, work.kernels
    (60, 84, 40, 1)
    """
    op = resolve(overload)
    row = lookup(op)
    args = [as_spec(a) for a in args]
    kwargs = {name: as_spec(a) for name, a in (kwargs or {}).items()}
    if row is None or row.cost is None:
        return None
    results = list(specs_in(infer(op, args, kwargs)))
    return row.cost.work(OpCall(args, kwargs, results, written_arguments(op, args, kwargs)))


def written_arguments(op: OpOverload, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """The tensors that a call writes into, by the op's schema."""
    found: list[Any] = []
    known = aliasing(op)
    for position in known.mutated:
        value = args[position] if position < len(args) else kwargs.get(known.names[position])
        found += specs_in(value)
    return found
