"""Matrix products for which C++ of torch before 2.13 asks for plain sizes, which would fix them.

C++'s ``matmul`` asks, and so does code that calls it. Linear layers and attention call it inside
torch's functions, which no function mode sees; under ``vmap`` the batching rules call it. Torch's
Python dispatcher has a ``matmul`` of its own, which torch's own tracers use, too. (For rows that
are not contiguous it makes ``bmm`` where C++ has ``mm``.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from meta_fns.torch_internals import OpOverload
from symshape.torch_internals import functorch, operators

aten = torch.ops.aten
SIZES_ARE_SYMBOLS = torch.torch_version.TorchVersion(torch.__version__) >= "2.13"
"""True if matmul in C++ takes symbolic sizes without fixing them."""


def of_symbols() -> contextlib.AbstractContextManager[Any]:
    """Make matrix products inside take symbolic sizes. (Private names, checked on 2.11 to 2.13.)

    Inside, dropout with a probability below 1 is another op that draws the same numbers.
    """
    if SIZES_ARE_SYMBOLS:
        return contextlib.nullcontext()
    # this import registers definitions that the dispatcher finds
    import torch._decomp.decompositions as definitions

    from symshape.torch_internals.dispatch import python_dispatcher as enable_python_dispatcher

    del definitions
    return enable_python_dispatcher()  # type: ignore[no-any-return, no-untyped-call, unused-ignore]


def of_symbols_if_transformed() -> contextlib.AbstractContextManager[Any]:
    """Make matrix products inside take symbolic sizes if a transform of ``torch.func`` is
    active.
    """
    return of_symbols() if functorch.interpreters() is not None else contextlib.nullcontext()


def in_python(op: OpOverload) -> Callable[..., Any] | None:
    """Return torch's Python definition of a product that C++ would compute with plain sizes; None
    for other ops.
    """
    if SIZES_ARE_SYMBOLS or op not in (aten.matmul.default, aten.matmul.out):
        return None
    from torch._decomp.decompositions import matmul

    return matmul  # type: ignore[no-any-return, unused-ignore]


def matmul(input: Any, other: Any) -> Any:
    """Compute ``torch.matmul``. Under ``vmap`` C++ would not look for a definition in Python."""
    found = in_python(aten.matmul.default) if functorch.interpreters() is not None else None
    with of_symbols():
        return (found or _plain_matmul)(input, other)


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """Compute ``F.linear``. Source: aten/src/ATen/native/Linear.cpp."""
    product = input.dim() > 2 and weight.dim() == 2 and (bias is None or not input.is_contiguous())
    if product and functorch.interpreters() is not None and not SIZES_ARE_SYMBOLS:
        found = matmul(input, weight.t())
        return found if bias is None else found + bias
    with of_symbols():
        return _plain_linear(input, weight, bias)


def with_symbols(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function``, which calls matrix products, with symbolic sizes under a transform."""
    return function if SIZES_ARE_SYMBOLS else _with(of_symbols_if_transformed, function)


def _with(
    wanted: Callable[[], contextlib.AbstractContextManager[Any]], function: Callable[..., Any]
) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        with wanted():
            return function(*args, **kwargs)

    return call


def _attention_layer(*args: Any, **kwargs: Any) -> Any:
    """Compute ``F.multi_head_attention_forward``."""
    probability = args[10] if len(args) > 10 else kwargs.get("dropout_p", 0.0)
    with of_symbols() if probability < 1 else contextlib.nullcontext():
        return _layer(*args, **kwargs)


def _products_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a matmul for any arguments; a call with ``out`` keeps torch's function."""
    into = _with(of_symbols, function)
    return lambda *args, **kwargs: (
        into(*args, **kwargs) if "out" in kwargs else matmul(*args, **kwargs)
    )


_plain_matmul: Callable[..., Any] = operators.variable_functions.matmul
_plain_linear: Callable[..., Any] = operators.nn.linear
_layer: Callable[..., Any] = torch.nn.functional.multi_head_attention_forward
MATMULS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)
_OTHERS = (
    *(
        getattr(owner, name)
        for name in ("mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm", "inner")
        for owner in (torch, torch.Tensor)
    ),
    *(torch.einsum, torch.tensordot, torch.nn.functional.bilinear),
)
PRODUCTS: dict[Any, Callable[..., Any]] = (
    {}
    if SIZES_ARE_SYMBOLS
    else {
        _layer: _attention_layer,
        torch.nn.functional.linear: linear,
        torch.Tensor.__rmatmul__: lambda right, left: matmul(left, right),
        **{each: _products_of(each) for each in MATMULS},
        **{each: _with(of_symbols_if_transformed, each) for each in _OTHERS},
    }
)
"""The replacements for torch's product functions, by function; ``FunctionMode`` calls these."""
