"""The rules of composite operators, which torch decomposes into others before any rule is used.

The tracer never meets them; users name them (``aten.matmul``, ``aten.conv2d``).  So their rules are
separate from the registry: only ``meta_fns.infer`` looks here, after the registry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta_fns.torch_internals import OpOverload

_composites: dict[str, Callable[..., Any]] = {}


def composite(*overloads: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of specs for these overloads: it infers the operators into which they are
    decomposed.
    """

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
    """Return the composite overloads that can be inferred by name."""
    return tuple(sorted(_composites))
