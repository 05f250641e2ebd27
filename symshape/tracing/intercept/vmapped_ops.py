"""Ops under ``torch.vmap`` whose batching rules in C++ ask for plain sizes, which would fix the batch and all others.

Here the rules are written in Python on symbolic sizes: a function of the whole tensors, batch first. The gradient that
``torch.func.grad`` inside ``vmap`` asks for is that function's gradient, as examples do not mix. Only ops that make new
memory are here: a view made by an ``autograd.Function`` would not be known as a view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
import torch.nn.functional as F

from symshape.errors import Reason, UnsupportedError
from symshape.torch_internals import functorch, operators
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor

Tensors = Sequence[torch.Tensor]


@attrs.frozen(eq=False)
class Batchable:
    """One call of an op.

    Attributes:
        plain: computes the op for the tensors of one example.
        batched: computes the op for whole tensors, batch first; a flag for each tensor says whether it has a batch.
    """

    plain: Callable[[Tensors], Any]
    batched: Callable[[Sequence[bool], Tensors], Any]


Rule = Callable[..., tuple[Tensors, Batchable] | None]
"""A rule: returns the tensors of a call and its ``Batchable``, or None to leave the call to torch."""


class Batched(torch.autograd.Function):
    """The ``autograd.Function`` of a call of an op under ``vmap``."""

    @staticmethod
    def forward(op: Batchable, *tensors: torch.Tensor) -> Any:
        """Compute the op of one example."""
        return op.plain(tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save the tensors: the gradient computes the op once more."""
        ctx.op = inputs[0]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[1:])
        ctx.mark_non_differentiable(*(each for each in _listed(output) if not _has_gradients(each)))

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        """Compute the gradients.

        Raises:
            UnsupportedError: a tensor that the op read was written to since.
        """
        try:
            tensors = ctx.saved_tensors
        except RuntimeError as error:
            raise UnsupportedError(
                "the function writes into a tensor that an op under torch.vmap has read, and the gradient of that "
                "op reads the tensor again; write into a copy",
                reason=Reason.TRANSFORMS,
            ) from error
        which = tuple(number for number, each in enumerate(upstream) if each is not None)
        needed = tuple(ctx.needs_input_grad[1:])
        if not which or not any(needed):
            return None, *(None for _ in needed)
        found = iter(Gradients.apply(ctx.op, which, needed, *(upstream[number] for number in which), *tensors))
        return None, *(next(found) if wanted else None for wanted in needed)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], op: Batchable, *tensors: torch.Tensor) -> Any:
        """Compute the op of all examples."""
        made = op.batched([each is not None for each in in_dims[1:]], _batch_first(tensors, in_dims[1:]))
        return made, 0 if isinstance(made, torch.Tensor) else tuple(0 for _ in made)


class Gradients(torch.autograd.Function):
    """The ``autograd.Function`` of the gradients of an op under ``vmap``."""

    @staticmethod
    def forward(op: Batchable, which: Sequence[int], needed: Sequence[bool], *tensors: torch.Tensor) -> Any:
        """Compute the gradients of one example."""
        return _gradients(op.plain, which, needed, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        """Refuse gradients of gradients, which ``can_be_batched`` leaves to torch.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "gradients of gradients of an op under torch.vmap cannot be traced; compute them "
            "outside the compiled function",
            reason=Reason.TRANSFORMS,
        )

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        op: Batchable,
        which: Sequence[int],
        needed: Sequence[bool],
        *tensors: torch.Tensor,
    ) -> Any:
        """Compute the gradients of all examples."""
        dims, whole = in_dims[3:], _batch_first(tensors, in_dims[3:])
        flags = [each is not None for each in dims][len(which) :]
        batch = next(each.shape[0] for each, dim in zip(whole, dims, strict=True) if dim is not None)
        upstream = [
            each if dim is not None else each.expand(batch, *each.shape)
            for each, dim in zip(whole[: len(which)], dims[: len(which)], strict=True)
        ]
        made = _gradients(lambda given: op.batched(flags, given), which, needed, [*upstream, *whole[len(which) :]])
        return made, tuple(0 for _ in made)


def _gradients(
    compute: Callable[[Tensors], Any], which: Sequence[int], needed: Sequence[bool], tensors: Tensors
) -> tuple[torch.Tensor, ...]:
    """Return the gradients of the needed inputs; the tensors are those of the outputs ``which``, then the inputs.

    Raises:
        UnsupportedError: autograd would record how they are computed.
    """
    if any(each.requires_grad for each in tensors):
        raise UnsupportedError(
            "gradients of gradients of an op under torch.vmap, which autograd would record "
            "here, cannot be traced; compute them outside the compiled function",
            reason=Reason.TRANSFORMS,
        )
    upstream, inputs = tensors[: len(which)], tensors[len(which) :]
    with torch.enable_grad():
        copies = [
            each.detach().requires_grad_() if wanted else each.detach()
            for each, wanted in zip(inputs, needed, strict=True)
        ]
        outputs = _listed(compute(copies))
    wanted_copies = [copy for copy, wanted in zip(copies, needed, strict=True) if wanted]
    return torch.autograd.grad([outputs[number] for number in which], wanted_copies, upstream)


def _batch_first(tensors: Tensors, dims: Sequence[int | None]) -> list[torch.Tensor]:
    return [each if dim is None else each.movedim(dim, 0) for each, dim in zip(tensors, dims, strict=True)]


def _listed(output: Any) -> list[torch.Tensor]:
    return [output] if isinstance(output, torch.Tensor) else list(output)


def _has_gradients(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


# -- when -------------------------------------------------------------------------------------------------------------


def can_be_batched(tensors: Tensors) -> bool:
    """Return whether one ``vmap`` and at most one ``grad`` surround a call, some tensor of which has a symbolic size.

    A tensor without a batch must not have gradients: each example would have its own. Autograd outside the transforms
    must not record the call either, as the gradient of ``grad`` is computed without a history.
    """
    kinds = [each.key() for each in functorch.interpreter_stack() or ()]
    if (
        kinds.count(functorch.TransformType.Vmap) != 1
        or kinds.count(functorch.TransformType.Grad) != len(kinds) - 1
        or len(kinds) > 2
    ):
        return False
    if any(torch.is_autocast_enabled(kind) for kind in {each.device.type for each in tensors}):
        return False
    looked = [_look(each) for each in tensors]
    return any(each.has_symbolic_batch for each in looked) and all(
        (each.has_batch or not each.has_gradients) and (len(kinds) == 1 or not each.is_recorded) for each in looked
    )


@attrs.frozen
class _Look:
    """The transforms around a tensor.

    Attributes:
        has_batch: ``vmap`` maps over the tensor.
        has_gradients: ``grad`` records what is computed with it.
        has_symbolic_batch: it has a batch, and the tensor inside has symbolic sizes.
        is_recorded: autograd outside the transforms records what is computed with it.
    """

    has_batch: bool
    has_gradients: bool
    has_symbolic_batch: bool
    is_recorded: bool


def _look(tensor: torch.Tensor) -> _Look:
    has_batch = has_gradients = False
    while functorch.is_wrapped(tensor):
        has_batch |= functorch.is_batched(tensor)
        has_gradients |= functorch.is_gradient_wrapper(tensor) and tensor.requires_grad
        tensor = functorch.unwrapped(tensor)
    symbolic = type(tensor) is SymbolicTensor and any(type(size) is IntNode for size in tensor._spec.sizes)
    return _Look(has_batch, has_gradients, has_batch and symbolic, tensor.requires_grad)


def call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Any:
    """Return the result of an op that has a rule here, or ``NotImplemented`` if, say, no transform is active."""
    if functorch.interpreters() is None:
        return NotImplemented
    try:
        found = RULES[function](*args, **kwargs or {})
    except (TypeError, AttributeError):  # arguments that the rule does not know
        return NotImplemented
    if found is None or not can_be_batched(found[0]):
        return NotImplemented
    made = Batched.apply(found[1], *found[0])
    kind = _NAMED.get(function)
    return made if kind is None else kind(made)


# -- rules ------------------------------------------------------------------------------------------------------------


def _expanded(flags: Sequence[bool], tensors: Tensors) -> list[torch.Tensor]:
    """Return the tensors, each expanded to have a batch."""
    batch = next(each.shape[0] for each, flag in zip(tensors, flags, strict=True) if flag)
    return [each if flag else each.expand(batch, *each.shape) for each, flag in zip(tensors, flags, strict=True)]


def _joined(tensors: Any, dim: Any = 0) -> tuple[Tensors, Batchable] | None:
    dims = {each.dim() for each in tensors}
    if len(dims) != 1 or type(dim) is not int or not -(rank := dims.pop()) <= dim < rank:
        return None
    along = dim % rank
    return list(tensors), Batchable(
        lambda given: torch.cat(list(given), along), lambda flags, given: torch.cat(_expanded(flags, given), along + 1)
    )


def _along(function: Callable[..., Any]) -> Callable[..., tuple[Tensors, Batchable] | None]:
    """Return the rule of a function of tensors, a dimension, and options."""

    def rule(tensors: Tensors, dim: Any, *rest: Any, **options: Any) -> tuple[Tensors, Batchable] | None:
        rank = tensors[0].dim()
        if type(dim) is not int or not -rank <= dim < rank:
            return None
        along = dim % rank
        return tensors, Batchable(
            lambda given: function(given, along, *rest, **options),
            lambda flags, given: function(_expanded(flags, given), along + 1, *rest, **options),
        )

    return rule


def _plainly(pair: Any) -> tuple[torch.Tensor, ...]:
    return tuple(pair)


_sorted = _along(lambda x, dim, **options: _plainly(torch.sort(x[0], dim=dim, **options)))
_topk = _along(lambda x, dim, k, *options: _plainly(torch.topk(x[0], k, dim, *options)))
_gathered = _along(lambda x, dim: torch.gather(x[0], dim, x[1]))
_glu = _along(lambda x, dim: F.glu(x[0], dim))
_prod = _along(lambda x, dim, keepdim: torch.prod(x[0], dim, keepdim))


def _extreme(function: Callable[..., Any]) -> Rule:
    found = _along(lambda x, dim, keepdim: _plainly(function(x[0], dim, keepdim)))
    return lambda x, dim, keepdim=False: found([x], dim, keepdim)


def _selected(input: torch.Tensor, dim: Any, index: torch.Tensor) -> tuple[Tensors, Batchable] | None:  # noqa: A002
    if type(dim) is not int or index.dim() != 1 or _look(index).has_batch or not -input.dim() <= dim < input.dim():
        return None
    along = dim % input.dim()
    return [input], Batchable(
        lambda given: torch.index_select(given[0], along, index),
        lambda flags, given: torch.index_select(given[0], along + 1, index),
    )


def _of_each(function: Callable[..., Any]) -> Rule:
    """Return the rule of an elementwise function."""

    def rule(input: torch.Tensor, *rest: Any, **options: Any) -> tuple[Tensors, Batchable]:  # noqa: A002
        return [input], Batchable(
            lambda given: function(given[0], *rest, **options),
            lambda flags, given: function(given[0], *rest, **options),
        )

    return rule


def _of_images(function: Callable[..., Any], spatial: int) -> Rule:
    """Return the rule of a function of images: the images of all examples form one batch."""

    def rule(images: torch.Tensor, *rest: Any, **options: Any) -> tuple[Tensors, Batchable] | None:
        rank = images.dim() - spatial
        if rank not in (1, 2) or options.get("return_indices") or any(map(_is_tensor, (*rest, *options.values()))):
            return None
        compute = lambda given: function(given[0], *rest, **options)  # noqa: E731
        return [images], Batchable(compute, _folded(compute, rank))

    return rule


def _convolution(function: Callable[..., Any], spatial: int) -> Rule:
    """Return the rule of a convolution with weights that all examples share."""

    def rule(images: torch.Tensor, weight: Any, bias: Any = None, *rest: Any, **options: Any) -> Any:
        rank, weights = images.dim() - spatial, [weight] if bias is None else [weight, bias]
        if rank not in (1, 2) or not all(map(_is_tensor, weights)) or any(_look(each).has_batch for each in weights):
            return None
        if any(map(_is_tensor, (*rest, *options.values()))):
            return None

        def compute(given: Tensors) -> torch.Tensor:
            shared = given[1:] if bias is not None else (given[1], None)
            return function(given[0], *shared, *rest, **options)  # type: ignore[no-any-return]

        return [images, *weights], Batchable(compute, _folded(compute, rank))

    return rule


def _folded(compute: Callable[[Tensors], torch.Tensor], rank: int) -> Callable[[Sequence[bool], Tensors], Any]:
    """Return ``compute`` of whole images; where each example is a batch itself, the two batches are merged."""

    def batched(flags: Sequence[bool], given: Tensors) -> torch.Tensor:
        if rank == 1:
            return compute(given)
        images = given[0]
        sizes = images.shape[:2]
        made = compute([images.reshape(sizes[0] * sizes[1], *images.shape[2:]), *given[1:]])
        return made.reshape(*sizes, *made.shape[1:])

    return batched


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


_NAMED: dict[Any, Any] = {}
RULES: dict[Any, Rule] = {
    torch.cat: _joined,
    **dict.fromkeys((operators.nn.gelu, F.gelu), _of_each(F.gelu)),
    **dict.fromkeys((operators.nn.glu, F.glu), lambda x, dim=-1: _glu([x], dim)),
    **dict.fromkeys((torch.index_select, torch.Tensor.index_select), _selected),
    **dict.fromkeys(
        (torch.gather, torch.Tensor.gather),
        lambda x, dim, index: _gathered([x, index], dim) if index.dim() == x.dim() else None,
    ),
    **dict.fromkeys((torch.prod, torch.Tensor.prod), lambda x, dim, keepdim=False: _prod([x], dim, keepdim)),
}
"""The rules, by the function that a program calls."""


def _with_names(name: str, rule: Rule) -> None:
    kind = getattr(torch.return_types, name)
    for function in (getattr(torch, name), getattr(torch.Tensor, name)):
        RULES[function], _NAMED[function] = rule, kind


_with_names("sort", lambda x, dim=-1, descending=False: _sorted([x], dim, descending=descending))
_with_names("topk", lambda x, k, dim=-1, *flags: _topk([x], dim, k, *flags) if type(k) is int else None)
for _name in ("max", "min", "median", "nanmedian", "mode"):
    _with_names(_name, _extreme(getattr(torch, _name)))
for _spatial in (1, 2, 3):
    _convolve = getattr(torch, f"conv{_spatial}d")
    RULES[_convolve] = _convolution(_convolve, _spatial)
    for _name in ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"):
        _pool = getattr(F, f"{_name}{_spatial}d")
        RULES[_pool] = _of_images(_pool, _spatial)
