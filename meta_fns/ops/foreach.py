"""Ops on lists of tensors, of optimisers above all: each does to every item what an op on one
tensor does.

``_foreach_add_.List(self, other)`` is ``self[i].add_(other[i])`` for each ``i``, so its rule is
made from that of ``add.Tensor``.  The fused steps of optimisers write into lists of tensors of
equal sizes and return nothing; so does what unscales gradients for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from meta_fns.core.derived_rules import need_writable, written
from meta_fns.core.registry import Rule, deriver, lookup, rule
from meta_fns.core.sizes import check, same_shape, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.torch_internals import OpOverload

__all__: list[str] = []

_PREFIX = "aten::_foreach_"
_LISTS = ("List[Tensor]", "List[number]")
_ELEMENTS = {
    "pow.Scalar": "pow.Tensor_Scalar",
    "pow.ScalarList": "pow.Tensor_Scalar",
    "pow.List": "pow.Tensor_Tensor",
    "pow.ScalarAndTensor": "pow.Scalar",
    "lerp.List": "lerp.Tensor",
    "lerp.Scalar": "lerp.Scalar",
    "lerp.ScalarList": "lerp.Scalar",
    "clamp_min.List": "clamp_min.Tensor",
    "clamp_max.List": "clamp_max.Tensor",
    "norm.Scalar": "linalg_vector_norm.default",
}
"""The op on one tensor for each op on lists, unless it has the same name and takes a tensor (or
nothing) beside it.
"""
_VALUES = ("addcmul", "addcdiv")
_CONVERTING = ("copy", "zero")


@deriver
def derive(op: OpOverload) -> Rule | None:
    """The rule of an op on lists, made from that of the op on their items; none for ``out=``."""
    schema = op._schema
    if not schema.name.startswith(_PREFIX) or any(each.is_out for each in schema.arguments):
        return None
    name = schema.name.removeprefix(_PREFIX)
    base, in_place = name.removesuffix("_"), name.endswith("_")
    found = _element(base, op._overloadname)
    if found is None or found.data_dependent:
        return None
    return Rule(
        str(op), _of_lists(op, base, found.fn, in_place), name=f"foreach {base}".replace("_", " ")
    )


def _element(base: str, overload: str) -> Rule | None:
    base, _, chosen = _ELEMENTS.get(f"{base}.{overload}", base).partition(".")
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        return None
    with_tensors = overload not in ("", "default") and "Tensor" in packet.overloads()
    chosen = chosen or ("Tensor" if with_tensors else "default")
    return lookup(getattr(packet, chosen)) if chosen in packet.overloads() else None


def _of_lists(
    op: OpOverload, base: str, one: Callable[..., Any], in_place: bool
) -> Callable[..., Any]:
    arguments = op._schema.arguments
    names = [each.name for each in arguments]
    parted = {each.name for each in arguments if str(each.type) in _LISTS}
    defaults = {each.name: each.default_value for each in arguments if each.has_default_value()}

    def of_lists(*args: Any, **kwargs: Any) -> list[TensorSpec] | None:
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        if base in _VALUES and isinstance(given.get("scalars"), TensorSpec):
            number = 1.0 if given["scalars"].dtype.is_floating_point else 1
            given["scalars"] = number
        count = _count(op, given, parted)
        results = []
        for i in range(count):
            values = {
                name: given[name][i] if name in parted and _is_list(given[name]) else given[name]
                for name in names
            }
            results.append(_one(base, one, values))
        if not in_place:
            return results
        for mine, result in zip(given["self"], results, strict=True):
            written(mine, result, convert=base in _CONVERTING)
        return None

    return of_lists


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _count(op: OpOverload, given: dict[str, Any], parted: set[str]) -> int:
    """Return the common length of the lists.  Raises: ShapeError if the lengths differ or are 0."""
    lists = {name: len(given[name]) for name in parted if _is_list(given[name])}
    if len(set(lists.values())) != 1 or not next(iter(lists.values())):
        shown = ", ".join(f"{name}: {number}" for name, number in lists.items())
        raise ShapeError(f"{op._schema.name} needs lists of one length that is not 0, got {shown}")
    return next(iter(lists.values()))


def _one(base: str, one: Callable[..., Any], values: dict[str, Any]) -> TensorSpec:
    """The result for one item of each list."""
    given = dict(values)
    named: dict[str, Any] = {}
    if base in _VALUES:
        named["value"] = given.pop("scalars", given.pop("value", 1))
    if "alpha" in given:
        named["alpha"] = given.pop("alpha")
    if base == "norm":
        return one(given["self"], given["ord"], None, False, dtype=given["dtype"])  # type: ignore[no-any-return]
    if base == "clone":
        return one(given["self"], memory_format=given["memory_format"])  # type: ignore[no-any-return]
    if base == "zero":
        return given["self"]  # type: ignore[no-any-return]
    return one(*given.values(), **named)  # type: ignore[no-any-return]


# -- the fused steps of optimisers


def _need_alike(**lists: Sequence[TensorSpec]) -> None:
    """Raise ShapeError if the lists differ in length, or items at one place in their sizes."""
    lengths = {name: len(items) for name, items in lists.items() if items}
    first = next(iter(lists.values()))
    if any(length != len(first) for length in lengths.values()):
        shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise ShapeError(f"a fused optimiser needs lists of one length, got {shown}")
    for name, items in lists.items():
        for mine, other in zip(first, items, strict=False):
            need_writable(other)
            if not same_shape(mine.sizes, other.sizes) and tuple(mine.sizes) != tuple(other.sizes):
                raise ShapeError(
                    f"{name} has sizes {show(other.sizes)} where the parameter has "
                    f"{show(mine.sizes)}"
                )
            if mine.dtype is not other.dtype or mine.device != other.device:
                raise DtypeError(
                    f"{name} is {other.dtype} on {other.device}, its parameter {mine.dtype} on "
                    f"{mine.device}"
                )


@rule("aten._fused_adam_.default", "aten._fused_adam_.tensor_lr", name="fused adam")
@rule("aten._fused_adamw_.default", "aten._fused_adamw_.tensor_lr", name="fused adamw")
def fused_adam(
    self: Sequence[TensorSpec],
    grads: Sequence[TensorSpec],
    exp_avgs: Sequence[TensorSpec],
    exp_avg_sqs: Sequence[TensorSpec],
    max_exp_avg_sqs: Sequence[TensorSpec],
    state_steps: Sequence[TensorSpec],
    **numbers: Any,
) -> None:
    """One step of Adam or AdamW for every parameter."""
    _need_alike(
        self=self,
        grads=grads,
        exp_avgs=exp_avgs,
        exp_avg_sqs=exp_avg_sqs,
        max_exp_avg_sqs=max_exp_avg_sqs,
    )


@rule("aten._fused_sgd_.default", "aten._fused_sgd_.tensor_lr", name="fused sgd")
def fused_sgd(
    self: Sequence[TensorSpec],
    grads: Sequence[TensorSpec],
    momentum_buffer_list: Sequence[TensorSpec],
    **numbers: Any,
) -> None:
    """One step of SGD for every parameter."""
    _need_alike(self=self, grads=grads, momentum_buffer_list=momentum_buffer_list)


@rule("aten._fused_adagrad_.default", "aten._fused_adagrad_.tensor_lr", name="fused adagrad")
def fused_adagrad(
    self: Sequence[TensorSpec],
    grads: Sequence[TensorSpec],
    state_sums: Sequence[TensorSpec],
    state_steps: Sequence[TensorSpec],
    **numbers: Any,
) -> None:
    """One step of Adagrad for every parameter."""
    _need_alike(self=self, grads=grads, state_sums=state_sums)


# -- gradients that were scaled


def _need_number(name: str, spec: TensorSpec, dtype: torch.dtype) -> None:
    """Raise ShapeError if it is not of one element; DtypeError if it is of another dtype."""
    if spec.dtype is not dtype:
        raise DtypeError(f"{name} must be a tensor of {dtype}, got {spec.dtype}")
    check(spec.numel() == 1, lambda: f"{name} must be of one element, got sizes {show(spec.sizes)}")


@rule("aten._amp_foreach_non_finite_check_and_unscale_.default", name="unscale")
def unscale(self: Sequence[TensorSpec], found_inf: TensorSpec, inv_scale: TensorSpec) -> None:
    """Multiply gradients by a number, and flag in another one whether one of them is not finite."""
    _need_number("inv_scale", inv_scale, torch.float32)
    _need_number("found_inf", found_inf, torch.float32)
    for each in self:
        need_writable(each)
        if not each.dtype.is_floating_point:
            raise DtypeError(f"gradients of {each.dtype} cannot be unscaled")


@rule("aten._amp_update_scale_.default", name="update scale")
def update_scale(
    self: TensorSpec,
    growth_tracker: TensorSpec,
    found_inf: TensorSpec,
    *factors: float,
    **named: Any,
) -> TensorSpec:
    """The next scale of gradients, written where the last one was."""
    _need_number("growth_tracker", growth_tracker, torch.int32)
    _need_number("current_scale", self, torch.float32)
    _need_number("found_inf", found_inf, torch.float32)
    return self
