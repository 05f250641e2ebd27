"""Numbers drawn from distributions: written over a tensor, in the likeness of one, or with
parameters from tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from meta_fns.core.broadcasting import broadcast, expand
from meta_fns.core.checks import FLOATS, need_dtype, need_positive, refuse_unless_empty
from meta_fns.core.derived_rules import need_writable
from meta_fns.core.registry import register, rule
from meta_fns.core.sizes import Size, check, known, show
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import iterate, laid_out_like
from meta_fns.core.type_promotion import is_float
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.factories import Device, fresh
from meta_fns.ops.random_factories import need_range
from meta_fns.padding import random_numbers

__all__: list[str] = []


def _fillers(
    names: str,
    accept: Callable[[torch.dtype], bool],
    need: Callable[..., None] | None = None,
    *,
    padding: Callable[..., Any] | None = None,
) -> None:
    """``op_(self, ...)`` writes random numbers to self; ``op(self, ...)`` makes a tensor laid out
    like it.
    """

    def fill(self: TensorSpec, *args: Any, **options: Any) -> TensorSpec:
        if not accept(self.dtype):
            raise DtypeError(f"not implemented for {self.dtype}")
        if need is not None:
            need(*args)
        need_writable(self)
        return self

    def functional(self: TensorSpec, *args: Any, **options: Any) -> TensorSpec:
        return laid_out_like(fill(laid_out_like(self), *args, **options))

    for name in names.split():
        packet, _, overload = name.partition(".")
        overload = overload or "default"
        register(f"aten.{packet}_.{overload}", fill, name=f"{packet} numbers".replace("_", " "))
        if hasattr(getattr(torch.ops.aten, packet, None), overload):
            spoken = f"{packet} numbers".replace("_", " ")
            register(f"aten.{packet}.{overload}", functional, name=spoken, padding=padding)


def _uniform_range(start: Any = 0.0, end: Any = 1.0, *rest: Any) -> None:
    if start > end:
        raise ShapeError(f"uniform needs from <= to, got {start} and {end}")


def _normal_std(mean: Any = 0.0, std: Any = 1.0, *rest: Any) -> None:
    if std < 0:
        raise ShapeError(f"std must not be negative, got {std}")


def _cauchy(median: Any = 0.0, sigma: Any = 1.0, *rest: Any) -> None:
    if sigma <= 0:
        raise ShapeError(f"sigma must be positive, got {sigma}")


def _exponential(lambd: Any = 1.0, *rest: Any) -> None:
    if lambd <= 0:
        raise ShapeError(f"lambd must be positive, got {lambd}")


def _probability(p: Any) -> None:
    if not 0 <= p <= 1:
        raise ShapeError(f"p must be in [0, 1], got {p}")


def _geometric(p: Any, *rest: Any) -> None:
    if not 0 < p < 1:
        raise ShapeError(f"p must be in (0, 1), got {p}")


def _log_normal(mean: Any = 1.0, std: Any = 2.0, *rest: Any) -> None:
    if std <= 0:
        raise ShapeError(f"std must be positive, got {std}")


_floating: Callable[[torch.dtype], bool] = FLOATS.__contains__


def _real(dtype: torch.dtype) -> bool:
    return not dtype.is_complex


_fillers("uniform", is_float, _uniform_range, padding=random_numbers.drawn)
_fillers("normal", is_float, _normal_std)
_fillers("cauchy", _floating, _cauchy)
_fillers("exponential", _floating, _exponential, padding=random_numbers.drawn)
_fillers("log_normal", _floating, _log_normal)
_fillers("geometric", lambda dtype: _real(dtype) and dtype is not torch.bool, _geometric)
_fillers("random random.to", _real)


@rule("aten.random_.from")
def random_from(self: TensorSpec, from_: Any, to: Any, *, generator: Any = None) -> TensorSpec:
    """Integers in ``[from, to)`` written to self."""
    if to is not None:
        need_range(from_, to)
    need_writable(self)
    return self


@rule("aten.bernoulli_.float")
def bernoulli_float_(self: TensorSpec, p: Any = 0.5, *, generator: Any = None) -> TensorSpec:
    """0 or 1 with probability ``p``, written to self."""
    _probability(p)
    if self.dtype.is_complex:
        raise DtypeError(f"not implemented for {self.dtype}")
    need_writable(self)
    return self


@rule("aten.bernoulli.p", padding=random_numbers.drawn_with)
def bernoulli_p(self: TensorSpec, p: Any, *, generator: Any = None) -> TensorSpec:
    """0 or 1 with probability ``p``, laid out like self."""
    _probability(p)
    return laid_out_like(self)


@rule("aten.bernoulli_.Tensor")
def bernoulli_tensor_(self: TensorSpec, p: TensorSpec, *, generator: Any = None) -> TensorSpec:
    """0 or 1 with the probabilities in ``p``, written to self."""
    need_dtype("p", p, FLOATS)
    expand(p.sizes, p.strides, self.sizes)
    need_writable(self)
    return self


@rule("aten.bernoulli.default", padding=random_numbers.drawn_by_self)
def bernoulli(self: TensorSpec, *, generator: Any = None) -> TensorSpec:
    """0 or 1 with the probabilities in self."""
    if self.dtype not in FLOATS:
        refuse_unless_empty(f"not implemented for {self.dtype}", self.sizes)
    return self.fresh()


def _need_std(std: TensorSpec) -> None:
    if std.dtype.is_complex:
        raise DtypeError("std must be real")


@rule("aten.normal.Tensor_float")
def normal_tensor_float(mean: TensorSpec, std: Any = 1.0, *, generator: Any = None) -> TensorSpec:
    """Normal numbers around ``mean``, contiguous."""
    _normal_std(0.0, std)
    if not is_float(mean.dtype):
        raise DtypeError(f"not implemented for {mean.dtype}")
    return mean.fresh()


@rule("aten.normal.float_Tensor")
def normal_float_tensor(mean: Any, std: TensorSpec, *, generator: Any = None) -> TensorSpec:
    """Normal numbers of these deviations, contiguous."""
    _need_std(std)
    if not is_float(std.dtype):
        raise DtypeError(f"not implemented for {std.dtype}")
    return std.fresh()


@rule("aten.normal.Tensor_Tensor")
def normal_tensor_tensor(mean: TensorSpec, std: TensorSpec, *, generator: Any = None) -> TensorSpec:
    """Normal numbers around ``mean`` of these deviations; the two broadcast."""
    _need_std(std)
    if not is_float(mean.dtype):
        raise DtypeError(f"not implemented for {mean.dtype}")
    return mean.fresh(broadcast(mean.sizes, std.sizes))


@rule("aten.normal.float_float")
def normal_float_float(
    mean: Any,
    std: Any,
    size: Sequence[Size],
    *,
    generator: Any = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new tensor of normal numbers."""
    _normal_std(mean, std)
    if dtype is not None and not is_float(dtype):
        raise DtypeError(f"not implemented for {dtype}")
    return fresh(size, dtype, device, layout)


@rule("aten.multinomial.default")
def multinomial(
    self: TensorSpec, num_samples: Size, replacement: bool = False, *, generator: Any = None
) -> TensorSpec:
    """Draws from the distributions in the rows: ``(n, c) -> (n, num_samples)``,
    ``(c,) -> (num_samples,)``.
    """
    need_dtype("self", self, FLOATS)
    if len(self.sizes) not in (1, 2):
        raise ShapeError(f"self must have 1 or 2 dimensions, got {show(self.sizes)}")
    need_positive("num_samples", (num_samples,))
    if not known(self.sizes[-1] >= 1):
        some = self.sizes[-1] >= 1
        some = some if len(self.sizes) == 1 else (self.sizes[0] == 0) | some
        check(some, lambda: f"there is nothing to draw from in {show(self.sizes)}")
    if not replacement:
        fits = num_samples <= self.sizes[-1]
        if not known(fits):
            check(fits, lambda: f"{num_samples} draws without replacement from {show(self.sizes)}")
    return TensorSpec.contiguous((*self.sizes[:-1], num_samples), torch.int64, self.device)


@rule(
    "aten.poisson.default",
    "aten._sample_dirichlet.default",
    "aten._standard_gamma.default",
    name="draws",
)
def poisson(self: TensorSpec, generator: Any = None) -> TensorSpec:
    """Draws with the parameters in self, contiguous."""
    need_dtype("self", self, FLOATS)
    return self.fresh()


@rule("aten.binomial.default")
def binomial(count: TensorSpec, prob: TensorSpec, generator: Any = None) -> TensorSpec:
    """Draws of how many of ``count`` happen with probability ``prob``; the two broadcast."""
    need_dtype("count", count, FLOATS)
    return iterate((count, prob), count.dtype)
