"""The entry point to the rules: an overload and its arguments in, the metadata of its results
out.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from meta_fns.core.registry import NO_CONTEXT, Context, composite_of, lookup, resolve
from meta_fns.core.sizes import Size, static
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, MetaError, UnsupportedOp
from meta_fns.torch_internals import OpOverload

__all__ = ["as_spec", "infer"]


def infer(
    overload: OpOverload | str,
    args: Any,
    kwargs: dict[str, Any] | None = None,
    *,
    ctx: Context | None = None,
) -> Any:
    """Return the specs of the results of ``overload(*args, **kwargs)``, nested like its schema's
    returns.

    Arguments as for the op itself, with a TensorSpec (or a torch.Tensor, whose metadata is read)
    for each tensor; a size may be symbolic wherever the schema allows a SymInt: a torch.SymInt, a
    ``guards.Term``, or another object with the protocol of ``meta_fns.core.sizes``. ``ctx`` makes
    the unknown sizes of data-dependent ops.

    With terms, ``guards.assuming`` says what is known of them, and keeps what the rule required:

    >>> import guards, meta_fns
    >>> n, k, m = map(guards.symbol, "nkm")
    >>> a, b = meta_fns.TensorSpec.contiguous((n, 8)), meta_fns.TensorSpec.contiguous((k, m))
    >>> with guards.assuming() as given:
    ...     print(meta_fns.infer("aten.mm.default", (a, b)).sizes, given.required)
    (<n>, <m>) [<k == 8>]

    Raises: ShapeError where eager refuses, UnsupportedOp without a rule, DataDependentOutput where
    a ``ctx`` is needed.
    """
    op = resolve(overload)
    found = lookup(op)
    made_of = composite_of(op) if found is None else None
    if found is None and made_of is None:
        raise UnsupportedOp("no rule for this operator", op=str(op))
    args = [as_spec(a) for a in args]
    kwargs = {name: as_spec(a) for name, a in kwargs.items()} if kwargs else {}
    if kwargs:
        _make_positional(op, args, kwargs)
    try:
        if found is None:
            assert made_of is not None
            return _plain(made_of(*args, **kwargs))
        if found.data_dependent:
            return _plain(found.fn(NO_CONTEXT if ctx is None else ctx, *args, **kwargs))
        return _plain(found.fn(*args, **kwargs))
    except MetaError as error:
        raise error.at(str(op)) from error.__cause__


def _make_positional(op: OpOverload, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Move arguments given by keyword to their position, as dispatch does (in place)."""
    for argument in op._schema.arguments[len(args) :]:
        if argument.kwarg_only or (
            argument.name not in kwargs and not argument.has_default_value()
        ):
            return
        if argument.name in kwargs:
            args.append(kwargs.pop(argument.name))
        elif any(
            later.name in kwargs and not later.kwarg_only
            for later in op._schema.arguments[len(args) :]
        ):
            args.append(argument.default_value)
        else:
            return


def _plain(result: Any) -> Any:
    """Return a result in which constant symbolic sizes are replaced by ints."""
    if isinstance(result, TensorSpec):
        if static(result.sizes) and static(result.strides) and type(result.storage_offset) is int:
            return result
        sizes, strides = (tuple(map(_number, each)) for each in (result.sizes, result.strides))
        offset = _number(result.storage_offset)
        if all(
            map(
                operator.is_,
                (*sizes, *strides, offset),
                (*result.sizes, *result.strides, result.storage_offset),
            )
        ):
            return result
        known = result.canonical_known
        return result.with_(
            sizes=sizes, strides=strides, storage_offset=offset, canonical_known=known
        )
    if type(result) in (list, tuple):
        return type(result)(_plain(item) for item in result)
    return result


def _number(size: Size) -> Size:
    constant = (
        None
        if type(size) is int or isinstance(size, torch.SymInt)
        else getattr(size, "maybe_as_int", None)
    )
    found = None if constant is None else constant()
    return size if found is None else found


def _typed(spec: TensorSpec) -> TensorSpec:
    """Return the spec if its dtype, device and layout are objects of torch's, and not texts.

    Raises:
        DtypeError: one is not; the message says what to write instead.
    """
    for name, kind in (("dtype", torch.dtype), ("device", torch.device), ("layout", torch.layout)):
        found = getattr(spec, name)
        if not isinstance(found, kind):
            instead = f"torch.{str(found).removeprefix('torch.')}"
            instead = f"torch.device({found!r})" if name == "device" else instead
            raise DtypeError(
                f"the {name} of a TensorSpec is {found!r}, a {type(found).__name__}; write "
                f"{instead}"
            )
    return spec


def as_spec(value: Any) -> Any:
    """Return an argument with a spec in place of each tensor; anything else unchanged."""
    if isinstance(value, torch.Tensor):
        return TensorSpec.of(value)
    if isinstance(value, TensorSpec):
        return _typed(value)
    if isinstance(value, (list, tuple)) and any(
        isinstance(item, (torch.Tensor, TensorSpec)) for item in value
    ):
        return type(value)(as_spec(item) for item in value)
    return value
