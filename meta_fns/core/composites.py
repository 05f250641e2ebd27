"""Composite operators: those that torch decomposes into others before any rule is asked.

The tracer never meets them; people name them (``aten.matmul``, ``aten.conv2d``). So their rules stand apart from the
registry: ``meta_fns.infer`` alone looks here, after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta_fns.torch_internals import OpOverload

_composites: dict[str, Callable[..., Any]] = {}


def composite(*overloads: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of specs as what these overloads make: it infers the operators that they are made of."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for overload in overloads:
            if overload in _composites:
                raise ValueError(f"{overload} has two definitions")
            _composites[overload] = fn
        return fn

    return register


def composite_of(op: OpOverload) -> Callable[..., Any] | None:
    """Return the function that infers a composite overload; None for other overloads."""
    return _composites.get(str(op))


def composites() -> tuple[str, ...]:
    """The composite overloads that can be inferred by name."""
    return tuple(sorted(_composites))
