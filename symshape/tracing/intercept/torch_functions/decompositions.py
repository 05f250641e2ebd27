"""Ops without a rule of our own: composites are decomposed, others inferred by what torch
registered for them.

In order: a custom op's ``register_fake``; a Python meta function; a decomposition; a library's
kernel for ``Meta``. Each runs on symbolic tensors with recording off, so the graph keeps the op
itself and computes what eager computes. (Private names of torch used here were checked on 2.11 to
2.13.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from meta_fns.torch_internals import OpOverload
from symshape import events
from symshape.errors import DataDependentError, Reason, SymShapeError, UnsupportedError
from symshape.torch_internals import dispatch, library, pytree
from symshape.torch_internals.dispatch import DispatchKey, TorchDispatchMode
from symshape.tracing.intercept.torch_functions.matmul_before_2_13 import in_python
from symshape.tracing.symbolic.tensors import METADATA, SymbolicTensor, Trace

_TORCHS = ("aten", "prims", "quantized", "mkldnn", "c10d", "symm_mem")
"""Namespaces of torch's own ops.

A bare ``Meta`` kernel in one of them is written for torch's own fake tensors and is not used.
"""


_DEVICES = {"cpu": DispatchKey.CPU, "cuda": DispatchKey.CUDA}


def taken_apart_on(op: OpOverload) -> frozenset[str]:
    """Return the device types on which C++ decomposes the op where autograd may have to see the
    parts.

    In inference mode autograd need not see them, and a mode gets the op whole. An op stays whole on
    a device that has a kernel for it.
    """
    # some ops exist in Python alone
    known = op.namespace == "aten" and dispatch.has_kernel(op.name())
    if not known or not _has_kernel(op, DispatchKey.CompositeImplicitAutograd):
        return frozenset()
    return frozenset(kind for kind, key in _DEVICES.items() if not _has_kernel(op, key))


def is_taken_apart(
    kinds: frozenset[str], args: Sequence[Any], kwargs: dict[str, Any] | None
) -> bool:
    """Return whether the op is decomposed for these arguments: ``kinds`` are the device types that
    decompose it.
    """
    if len(kinds) == len(_DEVICES):
        return True
    leaves = pytree.tree_leaves((args, kwargs))
    return (
        next((each.device.type for each in leaves if isinstance(each, torch.Tensor)), "cpu")
        in kinds
    )


def take_apart(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Decompose an op as C++ does, by its composite kernel (torch's definitions in Python draw
    other random numbers).

    Inside, views of tensors that require gradients require gradients, too, as in eager. C++ records
    the same for the op's own results if the op makes views.
    """
    product = in_python(op)
    if product is not None:
        return product(*args, **kwargs)
    key = DispatchKey.ADInplaceOrView
    excluded = dispatch.excluded_keys()
    if not dispatch.has_kernel_for(op.name(), key):
        excluded = excluded.remove(key)
    with dispatch.keys_forced(dispatch.included_keys(), excluded):
        return op._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def is_composite(op: OpOverload) -> bool:
    """Return whether the op is defined by other ops only (CompositeImplicit, and no fake or meta of
    its own).
    """
    return bool(op._can_decompose()) and DispatchKey.Meta not in op.py_kernels


def decompose(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run a composite op as the ops that define it."""
    events.emit(events.Fallback(str(op), "composite"))
    result = op.decompose(*args, **kwargs)
    if result is NotImplemented:
        raise UnsupportedError(
            f"{op} has no rule in symshape, and torch has no decomposition of it; take it out of "
            "the compiled function",
            reason=Reason.OPERATOR,
        )
    return result


def infer(
    tracer: Trace, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], unknowns: Any
) -> Any:
    """Return the op's outputs as symbolic tensors, by its registered fake, meta function or
    decomposition.

    Raises:
        UnsupportedError: no such function is registered, or it does not run on symbolic sizes.
    """
    where = tracer.env.origin()
    # torch's registered function makes a plain tensor
    if op._schema.name.startswith("aten::quantize_per"):
        raise UnsupportedError(
            f"{op} (at {where}) creates a quantized tensor, which cannot be traced; create it "
            "outside the compiled function and keep the inside floating-point",
            reason=Reason.LAYOUT,
        )
    if op.namespace == "c10d":
        raise UnsupportedError(
            f"{op} (at {where}) is a collective on a process group, which a graph cannot hold; "
            "call the functional one "
            "of torch.distributed._functional_collectives instead, which returns its result",
            reason=Reason.OPERATOR,
        )
    found = None if _lacks_fake(op) else _implementation(op, unknowns)
    if found is None:
        name = op._schema.name
        if op.namespace in _TORCHS:
            raise UnsupportedError(
                f"{name} (at {where}) has no rule in symshape, and torch has no decomposition "
                "of it; take it out of the compiled function, or add a rule "
                "(symshape.register_rule)",
                reason=Reason.OPERATOR,
            )
        raise UnsupportedError(
            f"{name} (at {where}) has no fake implementation, so the sizes of its result are not "
            "known. Register a "
            "function of the same arguments that returns an empty tensor of the result's sizes: "
            f'@torch.library.register_fake("{name}")',
            reason=Reason.NO_FAKE,
        )
    how, function = found
    events.emit(events.Fallback(str(op), how))
    outer = tracer.env.current_op, tracer.env.current_rule
    tracer.env.current_op, tracer.env.current_rule = op._name, how
    try:
        with tracer.inferring():
            return function(*args, **kwargs)
    except (SymShapeError, DataDependentError):
        raise
    except Exception as error:
        raise UnsupportedError(
            f"{op} (at {where}): its {how} does not run on symbolic sizes: {type(error).__name__}: "
            f"{error}",
            reason=Reason.OPERATOR,
        ) from error
    finally:
        tracer.env.current_op, tracer.env.current_rule = outer


def _implementation(op: OpOverload, unknowns: Any) -> tuple[str, Callable[..., Any]] | None:
    fake = _registered_fake(op)
    if fake is not None:
        return "register_fake", _with_context(fake, unknowns)
    kernel = op.py_kernels.get(DispatchKey.Meta)
    if kernel is not None:
        return "meta function", kernel
    import torch._decomp as decompositions
    import torch._meta_registrations as metas  # this import registers Meta kernels

    del metas
    kernel = op.py_kernels.get(DispatchKey.Meta)
    if kernel is not None:
        return "meta function", kernel
    for table in ("meta", "post_autograd"):
        decomposition = decompositions.global_decomposition_table[table].get(op)
        if decomposition is not None:
            return "decomposition", decomposition
    key = DispatchKey.CompositeExplicitAutograd
    kernel = op.py_kernels.get(key)
    # in C++: one op per tensor
    if kernel is None and op._schema.name.startswith("aten::_foreach_"):
        kernel = functools.partial(op._op_dk, key) if _has_kernel(op, key) else None
        if op._schema.arguments[-1].name == "scalars" and op._overloadname == "Tensor":
            kernel = functools.partial(_with_a_number, op)
    if kernel is None and op.namespace not in _TORCHS and _has_kernel(op, DispatchKey.Meta):
        return "meta kernel", functools.partial(_on_meta, op)
    return None if kernel is None else ("composite kernel", kernel)


def _has_kernel(op: OpOverload, key: DispatchKey) -> bool:
    return bool(dispatch.has_kernel_for(op.name(), key))


def _on_meta(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run a library's ``Meta`` kernel; results on the meta device get the device of the
    arguments.
    """
    result = op._op_dk(DispatchKey.Meta, *args, **kwargs)
    devices = {
        each.device for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)
    }
    for leaf in pytree.tree_leaves(result):
        if (
            type(leaf) is SymbolicTensor
            and leaf.device.type == "meta"
            and devices
            and leaf.device not in devices
        ):
            if len(devices) > 1:
                raise UnsupportedError(
                    "its meta function returns a tensor on the meta device; its arguments are "
                    "on several devices, so the device of the result is not known",
                    reason=Reason.OPERATOR,
                )
            leaf._spec = leaf._spec.with_(device=next(iter(devices)))
    return result


def _with_a_number(op: OpOverload, *args: Any) -> Any:
    """Infer ``_foreach_addcdiv(..., scalars=tensor)`` as with a number: no shape depends on the
    tensor's values.
    """
    *lists, scalars = args
    with_number = getattr(torch.ops.aten, op._schema.name.removeprefix("aten::")).Scalar
    number = 1.0 if scalars.dtype.is_floating_point else 1
    return with_number._op_dk(DispatchKey.CompositeExplicitAutograd, *lists, number)


def _lacks_fake(op: OpOverload) -> bool:
    """Return whether an op of ``torch.library.custom_op`` has results but no registered fake."""
    definition = torch._library.custom_ops.OPDEFS.get(op.name())
    return definition is not None and definition._abstract_fn is None and bool(op._schema.returns)


def _registered_fake(op: OpOverload) -> Callable[..., Any] | None:
    kernel = library.registry.find(op.name()).fake_impl.kernel
    if kernel is not None:
        return kernel.func  # type: ignore[no-any-return]
    definition = torch._library.custom_ops.OPDEFS.get(op.name())
    return None if definition is None else definition._abstract_fn


class _FakeContext:
    """The context object that ``torch.library.get_ctx()`` returns inside a fake implementation."""

    def __init__(self, unknowns: Any) -> None:
        self._unknowns = unknowns

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> torch.SymInt:  # noqa: A002
        """Return a new size that depends on the data."""
        return self._unknowns.new_size(min, max).symint  # type: ignore[no-any-return]

    create_unbacked_symint = new_dynamic_size


def _with_context(fake: Callable[..., Any], unknowns: Any) -> Callable[..., Any]:
    from torch._library.fake_impl import set_ctx_getter

    def run(*args: Any, **kwargs: Any) -> Any:
        with set_ctx_getter(lambda: _FakeContext(unknowns)):
            return fake(*args, **kwargs)

    return run


# -- Functions of singular values or eigenvalues without vectors, for which LAPACK runs another
# algorithm than with them.
#
# C++ also computes the vectors where a tensor may need gradients, and assumes that of any tensor
# subclass such as ours. Source: ``isTensorSubclassLike`` in
# aten/src/ATen/native/BatchLinearAlgebra.cpp.
aten = torch.ops.aten
_FUNCTIONS: tuple[Any, ...] = (
    *(torch.linalg.svdvals, torch.linalg.eigvals, torch.linalg.eigvalsh),
    *(torch.linalg.matrix_norm, torch.linalg.norm, torch.linalg.cond, torch.linalg.matrix_rank),
    *(torch.norm, torch.Tensor.norm, torch.nuclear_norm),
)


class _ValuesAlone(TorchDispatchMode):
    """A dispatch mode in which decompositions compute no vectors; the placeholders for them are
    never read.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # no Dynamo frame hook around each op

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten._linalg_svd.default:
            return func(args[0], False, False, **kwargs or {})
        if func is aten._linalg_eigh.default:
            return func(*args[:2], compute_v=False)
        if func is aten.linalg_eig.default:
            return aten._linalg_eigvals.default(args[0]), args[0]
        kinds = taken_apart_on(func)
        # in inference mode
        if kinds and func not in METADATA and is_taken_apart(kinds, args, kwargs):
            with self:
                return take_apart(func, args, kwargs or {})
        return func(*args, **kwargs or {})


def _alone(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(tensor: SymbolicTensor, *args: Any, **kwargs: Any) -> Any:
        tracked = tensor.requires_grad and torch.is_grad_enabled()
        if tracked or forward_ad._current_level >= 0:
            return function(tensor, *args, **kwargs)
        with _ValuesAlone():
            return function(tensor, *args, **kwargs)

    return compute


WITHOUT_VECTORS: dict[Any, Callable[..., Any]] = {each: _alone(each) for each in _FUNCTIONS}
"""The replacements for these functions, by function; ``FunctionMode`` calls these."""
