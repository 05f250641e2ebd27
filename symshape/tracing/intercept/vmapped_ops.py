"""Ops under ``torch.vmap`` whose batching rules in C++ ask for plain sizes, which would fix the
batch and all others.

Here the rules are written in Python on symbolic sizes: a function of the whole tensors, batch
first. The gradient that ``torch.func.grad`` inside ``vmap`` asks for is that function's gradient,
as examples do not mix. Only ops that make new memory are here: a view made by an
``autograd.Function`` would not be known as a view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import torch
import torch.nn.functional as F

from symshape.errors import Reason, UnsupportedError
from symshape.torch_internals import functorch, operators
from symshape.tracing.intercept.torch_functions.nn_functional import interpolate
from symshape.tracing.restart import Restart, with_fewer_symbols
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor

Tensors = Sequence[torch.Tensor]


@attrs.frozen(eq=False)
class Batchable:
    """One call of an op.

    Attributes:
        plain: computes the op for the tensors of one example.
        batched: computes the op for whole tensors, batch first; a flag for each tensor says whether
            it has a batch.
        takes_any: ``batched`` takes any of the tensors with a batch, so each example may have its
            own gradient of each.
        elementwise: where the first tensor alone has a batch, the op computes each of its elements
            by itself; the batch stays where it is, and so does the layout.
    """

    plain: Callable[[Tensors], Any]
    batched: Callable[[Sequence[bool], Tensors], Any]
    takes_any: bool = False
    elementwise: bool = False


Rule = Callable[..., tuple[Tensors, Batchable] | None]
"""A rule: returns the tensors of a call and its ``Batchable``, or None to leave the call to torch.
"""


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
            Restart: a tensor that the op read was written to since.
        """
        try:
            tensors = ctx.saved_tensors
        except (
            RuntimeError,
            UnsupportedError,
        ) as error:  # the latter where autograd makes a written view again
            raise Restart(
                "the function writes into a tensor that an op under torch.vmap has read, and the "
                "gradient of that op reads the tensor again; write into a copy",
                with_fewer_symbols,
                Reason.TRANSFORMS,
            ) from error
        which = tuple(number for number, each in enumerate(upstream) if each is not None)
        needed = tuple(ctx.needs_input_grad[1:])
        if not which or not any(needed):
            return None, *(None for _ in needed)
        found = iter(
            Gradients.apply(
                ctx.op, which, needed, *(upstream[number] for number in which), *tensors
            )
        )
        return None, *(next(found) if wanted else None for wanted in needed)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], op: Batchable, *tensors: torch.Tensor) -> Any:
        """Compute the op of all examples."""
        first, *others = in_dims[1:]
        if op.elementwise and first is not None and all(each is None for each in others):
            return op.plain(tensors), first
        made = op.batched(
            [each is not None for each in in_dims[1:]], _batch_first(tensors, in_dims[1:])
        )
        return made, 0 if isinstance(made, torch.Tensor) else tuple(0 for _ in made)


class Gradients(torch.autograd.Function):
    """The ``autograd.Function`` of the gradients of an op under ``vmap``."""

    @staticmethod
    def forward(
        op: Batchable, which: Sequence[int], needed: Sequence[bool], *tensors: torch.Tensor
    ) -> Any:
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
        have = [each is not None for each in in_dims[3:]]
        whole = _batch_first(tensors, in_dims[3:])
        batch = next(each.shape[0] for each, flag in zip(whole, have, strict=True) if flag)
        upstream = [
            each if flag else each.expand(batch, *each.shape)
            for each, flag in zip(whole[: len(which)], have[: len(which)], strict=True)
        ]
        inputs, flags = whole[len(which) :], have[len(which) :]
        made: dict[int, torch.Tensor] = {}
        # apart, as torch's own rules compute them: the results lie in memory as theirs
        for shared in (False, True):
            wanted = [want and flag is not shared for want, flag in zip(needed, flags, strict=True)]
            if not any(wanted):
                continue
            given = [
                each.expand(batch, *each.shape) if shared and want else each
                for each, want in zip(inputs, wanted, strict=True)
            ]
            batched = [flag or (shared and want) for flag, want in zip(flags, wanted, strict=True)]
            found = _gradients(partial(op.batched, batched), which, wanted, [*upstream, *given])
            made |= zip((place for place, want in enumerate(wanted) if want), found, strict=True)
        return tuple(made[place] for place in sorted(made)), tuple(0 for _ in made)


def _gradients(
    compute: Callable[[Tensors], Any],
    which: Sequence[int],
    needed: Sequence[bool],
    tensors: Tensors,
) -> tuple[torch.Tensor, ...]:
    """Return the gradients of the needed inputs; the tensors are those of the outputs ``which``,
    then the inputs.

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
    return [
        each if dim is None else each.movedim(dim, 0)
        for each, dim in zip(tensors, dims, strict=True)
    ]


def _listed(output: Any) -> list[torch.Tensor]:
    return [output] if isinstance(output, torch.Tensor) else list(output)


def _has_gradients(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


# -- when ------------------------------------------------------------------------------------------


def can_be_batched(tensors: Tensors, takes_any: bool = False) -> bool:
    """Return whether one ``vmap`` and at most one ``grad`` surround a call, and sizes are symbolic.

    Either some tensor has a batch and symbolic sizes, or none has a batch and each example of a
    symbolic number has its own gradient. A tensor without a batch must not have gradients, except
    where the rule ``takes_any``. Autograd outside the transforms must not record the call either,
    as the gradient of ``grad`` is computed without a history.
    """
    stack: Sequence[Any] = functorch.interpreter_stack() or ()
    kinds = [each.key() for each in stack]
    if (
        kinds.count(functorch.TransformType.Vmap) != 1
        or kinds.count(functorch.TransformType.Grad) != len(kinds) - 1
        or len(kinds) > 2
    ):
        return False
    if any(torch.is_autocast_enabled(kind) for kind in {each.device.type for each in tensors}):
        return False
    looked = [_look(each) for each in tensors]
    own = takes_any and any(each.has_gradients for each in looked)
    if not any(each.has_symbolic_batch for each in looked) and not (own and _many(stack[0])):
        return False
    return all(
        (takes_any or each.has_batch or not each.has_gradients)
        and (len(kinds) == 1 or not each.is_recorded)
        for each in looked
    )


def _many(outermost: Any) -> bool:
    """Return whether the outermost transform maps over a symbolic number of examples."""
    if outermost.key() != functorch.TransformType.Vmap:
        return False
    return type(functorch.vmapped(outermost).batchSize()) is torch.SymInt


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
    symbolic = type(tensor) is SymbolicTensor and any(
        type(size) is IntNode for size in tensor._spec.sizes
    )
    return _Look(has_batch, has_gradients, has_batch and symbolic, tensor.requires_grad)


def call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Any:
    """Return the result of an op that has a rule here, or ``NotImplemented`` if, say, no transform
    is active.
    """
    if functorch.interpreters() is None:
        return NotImplemented
    made, kind = call_by(RULES[function], args, kwargs), _NAMED.get(function)
    return made if kind is None or made is NotImplemented else kind(made)


def call_by(rule: Rule, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Any:
    """Return the result of a call by its rule, or ``NotImplemented`` to leave the call to torch."""
    try:
        found = rule(*args, **kwargs or {})
    except (TypeError, AttributeError):  # arguments that the rule does not know
        return NotImplemented
    if found is None or not can_be_batched(found[0], found[1].takes_any):
        return NotImplemented
    return Batched.apply(found[1], *found[0])


# -- rules -----------------------------------------------------------------------------------------


def _expanded(flags: Sequence[bool], tensors: Tensors) -> list[torch.Tensor]:
    """Return the tensors, each expanded to have a batch."""
    batch = next(each.shape[0] for each, flag in zip(tensors, flags, strict=True) if flag)
    return [
        each if flag else each.expand(batch, *each.shape)
        for each, flag in zip(tensors, flags, strict=True)
    ]


def _joined(tensors: Any, dim: Any = 0) -> tuple[Tensors, Batchable] | None:
    dims = {each.dim() for each in tensors}
    if len(dims) != 1 or type(dim) is not int or not -(rank := dims.pop()) <= dim < rank:
        return None
    along = dim % rank
    return list(tensors), Batchable(
        lambda given: torch.cat(list(given), along),
        lambda flags, given: torch.cat(_expanded(flags, given), along + 1),
        takes_any=True,
    )


def _along(function: Callable[..., Any]) -> Callable[..., tuple[Tensors, Batchable] | None]:
    """Return the rule of a function of tensors, a dimension, and options."""

    def rule(
        tensors: Tensors, dim: Any, *rest: Any, **options: Any
    ) -> tuple[Tensors, Batchable] | None:
        rank = tensors[0].dim()
        if type(dim) is not int or not -rank <= dim < rank:
            return None
        along = dim % rank
        return tensors, Batchable(
            lambda given: function(given, along, *rest, **options),
            lambda flags, given: function(_expanded(flags, given), along + 1, *rest, **options),
            takes_any=True,
        )

    return rule


def _plainly(pair: Any) -> tuple[torch.Tensor, ...]:
    return tuple(pair)


_sorted = _along(lambda x, dim, **options: _plainly(torch.sort(x[0], dim=dim, **options)))
_topk = _along(lambda x, dim, k, *options: _plainly(torch.topk(x[0], k, dim, *options)))
_gathered = _along(lambda x, dim: torch.gather(x[0], dim, x[1]))
_glu = _along(lambda x, dim: F.glu(x[0], dim))
_prod = _along(lambda x, dim, keepdim: torch.prod(x[0], dim, keepdim))
_cumprod = _along(lambda x, dim: torch.cumprod(x[0], dim))
_cummax = _along(lambda x, dim: _plainly(torch.cummax(x[0], dim)))
_cummin = _along(lambda x, dim: _plainly(torch.cummin(x[0], dim)))
_kthvalue = _along(lambda x, dim, k, keepdim: _plainly(torch.kthvalue(x[0], k, dim, keepdim)))
_msort = _along(lambda x, dim: torch.sort(x[0], dim=dim).values)
_diff = _along(lambda x, dim, n: torch.diff(x[0], n, dim))
_scattered = _along(lambda x, dim: torch.scatter(x[0], dim, x[1], x[2]))
_scatter_added = _along(lambda x, dim: torch.scatter_add(x[0], dim, x[1], x[2]))


def _scattering(along: Callable[..., tuple[Tensors, Batchable] | None]) -> Rule:
    """Return the rule of a function that writes parts of a tensor into a copy of another one."""

    def rule(
        input: torch.Tensor, dim: Any, index: torch.Tensor, src: Any
    ) -> tuple[Tensors, Batchable] | None:
        if not _is_tensor(src) or not input.dim() == index.dim() == src.dim():
            return None
        return along([input, index, src], dim)

    return rule


def _extreme(function: Callable[..., Any]) -> Rule:
    found = _along(lambda x, dim, keepdim: _plainly(function(x[0], dim, keepdim)))
    return lambda x, dim, keepdim=False: found([x], dim, keepdim)


def _selected(
    input: torch.Tensor, dim: Any, index: torch.Tensor
) -> tuple[Tensors, Batchable] | None:
    if (
        type(dim) is not int
        or index.dim() != 1
        or _look(index).has_batch
        or not -input.dim() <= dim < input.dim()
    ):
        return None
    along = dim % input.dim()
    return [input], Batchable(
        lambda given: torch.index_select(given[0], along, index),
        lambda flags, given: torch.index_select(given[0], along + 1, index),
        takes_any=True,
    )


def _of_each(function: Callable[..., Any]) -> Rule:
    """Return the rule of an elementwise function."""

    def rule(input: torch.Tensor, *rest: Any, **options: Any) -> tuple[Tensors, Batchable]:
        return [input], Batchable(
            lambda given: function(given[0], *rest, **options),
            lambda flags, given: function(given[0], *rest, **options),
            takes_any=True,
        )

    return rule


def _of_images(function: Callable[..., Any], spatial: int) -> Rule:
    """Return the rule of a function of images: the images of all examples form one batch."""

    def rule(images: torch.Tensor, *rest: Any, **options: Any) -> tuple[Tensors, Batchable] | None:
        rank = images.dim() - spatial
        if (
            rank not in (1, 2)
            or options.get("return_indices")
            or any(map(_is_tensor, (*rest, *options.values())))
        ):
            return None
        compute = lambda given: function(given[0], *rest, **options)  # noqa: E731
        return [images], Batchable(compute, _folded(compute, rank), takes_any=True)

    return rule


def _convolution(function: Callable[..., Any], spatial: int, names: Sequence[str]) -> Rule:
    """Return the rule of a convolution; examples with weights of their own become groups of
    channels.

    ``names``: the names of its arguments after the bias, in order.
    """

    def rule(
        images: torch.Tensor, weight: Any, bias: Any = None, *rest: Any, **options: Any
    ) -> tuple[Tensors, Batchable] | None:
        if len(rest) > len(names) or not options.keys() <= {*names[len(rest) :]}:
            return None  # torch raises its own error
        given = dict(zip(names, rest, strict=False)) | options
        groups = given.pop("groups", 1)

        def convolve(images: torch.Tensor, weights: Tensors, groups: Any) -> torch.Tensor:
            return function(images, *(*weights, None)[:2], groups=groups, **given)  # type: ignore[no-any-return]

        return _by_groups(convolve, spatial, images, weight, bias, groups, [*given.values()])

    return rule


def _folded(
    compute: Callable[[Tensors], torch.Tensor], rank: int
) -> Callable[[Sequence[bool], Tensors], torch.Tensor]:
    """Return ``compute`` of whole images; where each example is a batch itself, the two batches are
    merged.
    """

    def batched(flags: Sequence[bool], given: Tensors) -> torch.Tensor:
        if rank == 1:
            return compute(given)
        images = given[0]
        sizes = images.shape[:2]
        made = compute([images.reshape(sizes[0] * sizes[1], *images.shape[2:]), *given[1:]])
        return made.reshape(*sizes, *made.shape[1:])

    return batched


def _by_groups(
    convolve: Callable[[torch.Tensor, Tensors, Any], torch.Tensor],
    spatial: int,
    images: torch.Tensor,
    weight: Any,
    bias: Any,
    groups: Any,
    options: Sequence[Any],
) -> tuple[Tensors, Batchable] | None:
    """Return the call of a convolution: ``convolve`` computes it for images, weights and a number
    of groups.
    """
    rank, weights = images.dim() - spatial, [weight] if bias is None else [weight, bias]
    if rank not in (1, 2) or not all(map(_is_tensor, weights)) or type(groups) is not int:
        return None
    if any(map(_is_tensor, options)):
        return None

    def compute(given: Tensors) -> torch.Tensor:
        return convolve(given[0], given[1:], groups)

    def batched(flags: Sequence[bool], given: Tensors) -> torch.Tensor:
        if not any(flags[1:]):
            return _folded(compute, rank)(flags, given)
        images, *own = _expanded(flags, given)
        batch = images.shape[0]
        whole = images[None] if rank == 1 else images.movedim(0, 1)
        merged = [each.reshape(batch * each.shape[1], *each.shape[2:]) for each in own]
        side_by_side = whole.reshape(whole.shape[0], batch * whole.shape[2], *whole.shape[3:])
        made = convolve(side_by_side, merged, batch * groups)
        of_each = made.reshape(made.shape[0], batch, made.shape[1] // batch, *made.shape[2:])
        return of_each[0] if rank == 1 else of_each.movedim(1, 0)

    return [images, *weights], Batchable(compute, batched, takes_any=True)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _of_many(function: Callable[..., Any]) -> Rule:
    """Return the rule of a function of a batch of images, and no other tensor."""

    def rule(images: torch.Tensor, *rest: Any, **options: Any) -> tuple[Tensors, Batchable] | None:
        if images.dim() < 3 or any(map(_is_tensor, (*rest, *options.values()))):
            return None
        compute = lambda given: function(given[0], *rest, **options)  # noqa: E731
        return [images], Batchable(compute, _folded(compute, rank=2), takes_any=True)

    return rule


def _padded(images: torch.Tensor, pad: Any, mode: Any = "constant", value: Any = None) -> Any:
    if mode == "constant":
        return None
    return _of_images(F.pad, len(pad) // 2)(images, pad, mode, value)


def _sampled(
    images: torch.Tensor, grid: torch.Tensor, *rest: Any, **options: Any
) -> tuple[Tensors, Batchable] | None:
    if not _look(images).has_batch:
        return None

    def batched(flags: Sequence[bool], given: Tensors) -> torch.Tensor:
        images, grid = given
        if flags[1]:
            made = F.grid_sample(images.flatten(0, 1), grid.flatten(0, 1), *rest, **options)
            return made.reshape(*images.shape[:2], *made.shape[1:])
        beside = images.movedim(0, 1)  # examples become channels, as torch's own rule does it
        made = F.grid_sample(beside.flatten(1, 2), grid, *rest, **options)
        return made.reshape(*beside.shape[:3], *made.shape[2:]).movedim(1, 0)

    compute = lambda given: F.grid_sample(given[0], given[1], *rest, **options)  # noqa: E731
    return [images, grid], Batchable(compute, batched, takes_any=True)


def _normalized(
    input: torch.Tensor,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> tuple[Tensors, Batchable] | None:
    """Give the call of ``layer_norm``."""
    own = len(normalized_shape)

    def of_each(parameter: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        return parameter.reshape(
            parameter.shape[0], *(1,) * (made.dim() - own - 1), *parameter.shape[1:]
        )

    def compute(x: torch.Tensor, weight: Any = None, bias: Any = None) -> torch.Tensor:
        return F.layer_norm(x, normalized_shape, weight, bias, eps)

    return _scaled(compute, compute, of_each, input, weight, bias)


def _normalized_in_groups(
    input: torch.Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> tuple[Tensors, Batchable] | None:
    """Give the call of ``group_norm``."""

    def of_each(parameter: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        return parameter.reshape(
            parameter.shape[0], 1, parameter.shape[1], *(1,) * (made.dim() - 3)
        )

    def compute(x: torch.Tensor, weight: Any = None, bias: Any = None) -> torch.Tensor:
        return F.group_norm(x, num_groups, weight, bias, eps)

    def of_all(x: torch.Tensor, weight: Any = None, bias: Any = None) -> torch.Tensor:
        return compute(x.flatten(0, 1), weight, bias).reshape(x.shape)

    return _scaled(compute, of_all, of_each, input, weight, bias)


def _scaled(
    compute: Callable[..., torch.Tensor],
    of_all: Callable[..., torch.Tensor],
    of_each: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> tuple[Tensors, Batchable]:
    """Return the call of a normalisation whose result a weight and a bias scale and shift.

    Args:
        compute: computes the op for one example.
        of_all: computes the op for all examples, with a weight and a bias that they share.
        of_each: gives the weights or biases of all examples dimensions that fit the result.
        x: the tensor.
        weight: scales the result; None does not.
        bias: shifts the result; None does not.
    """
    which = [number for number, each in enumerate((weight, bias)) if each is not None]

    def named(given: Sequence[Any]) -> list[Any]:
        places: list[Any] = [None, None]
        for number, each in zip(which, given, strict=True):
            places[number] = each
        return places

    def batched(flags: Sequence[bool], given: Tensors) -> torch.Tensor:
        if not any(flags[1:]):
            return of_all(given[0], *named(given[1:]))
        whole, *own = _expanded(flags, given)
        made = of_all(whole)
        scale, shift = (None if each is None else of_each(each, made) for each in named(own))
        made = made if scale is None else made * scale
        return made if shift is None else made + shift

    parameters = [each for each in (weight, bias) if each is not None]
    return [x, *parameters], Batchable(
        lambda given: compute(given[0], *named(given[1:])), batched, takes_any=True
    )


def _embedded(
    input: torch.Tensor,
    weight: torch.Tensor,
    padding_idx: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> tuple[Tensors, Batchable] | None:
    if (
        padding_idx is not None
        or max_norm is not None
        or scale_grad_by_freq
        or sparse
        or weight.dim() != 2
    ):
        return None

    def batched(flags: Sequence[bool], given: Tensors) -> torch.Tensor:
        if not flags[1]:
            return F.embedding(given[0], given[1])
        if not flags[0]:  # rows of all examples side by side, as torch's own rule does it
            positions, tables = given
            rows = tables.movedim(0, 1)
            beside = F.embedding(positions, rows.flatten(1, 2))
            return beside.reshape(*positions.shape, *rows.shape[1:]).movedim(-2, 0)
        positions, tables = given  # gather refuses positions out of range, as the embedding does
        rows = positions.reshape(positions.shape[0], -1, 1).long()
        found = tables.gather(1, rows.expand(-1, -1, tables.shape[2]))
        return found.reshape(*positions.shape, tables.shape[2])

    return [input, weight], Batchable(
        lambda given: F.embedding(given[0], given[1]), batched, takes_any=True, elementwise=True
    )


def _loss(function: Callable[..., torch.Tensor]) -> Rule:
    """Return the rule of ``cross_entropy`` or ``nll_loss`` of class numbers, without weights of
    classes.
    """

    def rule(
        input: torch.Tensor,
        target: torch.Tensor,
        weight: Any = None,
        size_average: Any = None,
        ignore_index: int = -100,
        reduce: Any = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> tuple[Tensors, Batchable] | None:
        rank = input.dim()
        if weight is not None or size_average is not None or reduce is not None or label_smoothing:
            return None
        if (
            reduction not in ("mean", "sum", "none")
            or target.dim() != max(rank - 1, 0)
            or target.is_floating_point()
        ):
            return None

        def batched(flags: Sequence[bool], given: Tensors) -> torch.Tensor:
            scores, classes = _expanded(flags, given)
            shape = classes.shape
            if rank > 1:
                scores, classes = scores.flatten(0, 1), classes.flatten(0, 1)
            losses = function(scores, classes, ignore_index=ignore_index, reduction="none").reshape(
                shape
            )
            if reduction == "none":
                return losses
            rest = tuple(range(1, losses.dim()))
            total = losses.sum(rest) if rest else losses
            if reduction == "sum":
                return total
            counted = (classes != ignore_index).to(total.dtype).reshape(shape)
            return total / (counted.sum(rest) if rest else counted)

        compute = lambda given: function(*given, ignore_index=ignore_index, reduction=reduction)  # noqa: E731
        return [input, target], Batchable(compute, batched, takes_any=True)

    return rule


RULES: dict[Any, Rule] = {
    torch.cat: _joined,
    **dict.fromkeys((operators.nn.gelu, F.gelu), _of_each(F.gelu)),
    **dict.fromkeys((operators.nn.glu, F.glu), lambda x, dim=-1: _glu([x], dim)),
    F.layer_norm: _normalized,
    **dict.fromkeys((torch.pixel_shuffle, F.pixel_shuffle), _of_each(F.pixel_shuffle)),
    **dict.fromkeys((torch.pixel_unshuffle, F.pixel_unshuffle), _of_each(F.pixel_unshuffle)),
    F.embedding: _embedded,
    F.interpolate: _of_many(interpolate),
    F.instance_norm: _of_many(F.instance_norm),
    F.group_norm: _normalized_in_groups,
    F.local_response_norm: _of_many(F.local_response_norm),
    F.pad: _padded,
    F.unfold: _of_images(F.unfold, 2),
    F.fold: _of_images(F.fold, 1),
    F.grid_sample: _sampled,
    F.cross_entropy: _loss(F.cross_entropy),
    F.nll_loss: _loss(F.nll_loss),
}
"""The rules, by the function that a program calls."""
_METHODS: dict[str, Rule] = {
    "index_select": _selected,
    "gather": lambda x, dim, index: _gathered([x, index], dim) if index.dim() == x.dim() else None,
    "prod": lambda x, dim, keepdim=False: _prod([x], dim, keepdim),
    "cumprod": lambda x, dim: _cumprod([x], dim),
    "msort": lambda x: _msort([x], 0),
    "diff": lambda x, n=1, dim=-1: _diff([x], dim, n),
    "scatter": _scattering(_scattered),
    "scatter_add": _scattering(_scatter_added),
    "take_along_dim": lambda x, indices, dim: (
        _gathered([x, indices], dim) if indices.dim() == x.dim() == 1 else None
    ),
    "sort": lambda x, dim=-1, descending=False: _sorted([x], dim, descending=descending),
    "topk": lambda x, k, dim=-1, *flags: _topk([x], dim, k, *flags) if type(k) is int else None,
    "cummax": lambda x, dim: _cummax([x], dim),
    "cummin": lambda x, dim: _cummin([x], dim),
    "kthvalue": lambda x, k, dim=-1, keepdim=False: _kthvalue([x], dim, k, keepdim),
    **{
        name: _extreme(getattr(torch, name))
        for name in ("max", "min", "median", "nanmedian", "mode")
    },
}
"""The rules of functions that are also methods of tensors, by their names."""
_NAMED: dict[Any, Any] = {}
"""The class of the named tuple that a function returns, if it returns one."""
for _name, _rule in _METHODS.items():
    for _function in (getattr(torch, _name), getattr(torch.Tensor, _name)):
        RULES[_function] = _rule
        if hasattr(torch.return_types, _name):
            _NAMED[_function] = getattr(torch.return_types, _name)
for _spatial in (1, 2, 3):
    _convolve = getattr(torch, f"conv{_spatial}d")
    RULES[_convolve] = _convolution(
        _convolve, _spatial, ("stride", "padding", "dilation", "groups")
    )
    _transpose = getattr(torch, f"conv_transpose{_spatial}d")
    RULES[_transpose] = _convolution(
        _transpose, _spatial, ("stride", "padding", "output_padding", "groups", "dilation")
    )
    for _name in ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "lp_pool"):
        _pool = getattr(F, f"{_name}{_spatial}d")
        RULES[_pool] = _of_images(_pool, _spatial)
