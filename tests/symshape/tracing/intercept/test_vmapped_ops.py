"""Ops under ``vmap``, and ``grad`` inside of it: eager's results for all batches, in one program or
two.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, grad_and_value, hessian, vmap

import symshape

Function = Callable[[torch.Tensor], Any]
BATCHES = (3, 5, 7, 2, 1, 9)
KERNEL, LINE = torch.randn(4, 3, 3, 3), torch.randn(6, 3, 3)

OPS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "conv1d": (lambda x: F.conv1d(x, LINE, torch.ones(6), padding=1), (3, 8)),
    "conv2d": (lambda x: F.conv2d(x, KERNEL, stride=2), (3, 8, 8)),
    "conv2d of a batch of one": (lambda x: F.conv2d(x[None], KERNEL, padding="same"), (3, 8, 8)),
    "conv2d of groups": (lambda x: F.conv2d(x[None], KERNEL[:3, :1], groups=3), (3, 8, 8)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (3, 8)),
    "max_pool2d": (lambda x: F.max_pool2d(x[None], 2), (3, 8, 8)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, stride=2, count_include_pad=False), (3, 8, 8)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x[None], 2), (3, 8, 8)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (2, 3)), (3, 8, 8)),
    "gather": (lambda x: x.gather(0, torch.tensor([0, 2, 2])), (8,)),
    "gather of positions of each": (lambda x: torch.gather(x, -1, x.detach().argsort(-1)), (2, 8)),
    "index_select": (lambda x: x.index_select(-1, torch.tensor([1, 1, 0])), (4, 8)),
    "cat": (lambda x: torch.cat([x, x * 2, torch.ones(1, 2)]), (8, 2)),
    "cat along the last": (lambda x: torch.cat((x, torch.ones(8, 1)), dim=-1), (8, 2)),
    "topk": (lambda x: x.topk(3)[0], (8,)),
    "the least of topk": (lambda x: torch.topk(x, 2, 0, False).values, (8, 3)),
    "sort": (lambda x: x.sort(descending=True).values * torch.arange(8), (8,)),
    "max": (lambda x: x.max(0).values, (4, 8)),
    "min, kept": (lambda x: torch.min(x, -1, keepdim=True)[0], (4, 8)),
    "median": (lambda x: x.median(0)[0], (5, 3)),
    "prod": (lambda x: x.prod(-1), (4, 8)),
    "gelu": (lambda x: F.gelu(x, approximate="tanh"), (8,)),
    "glu": (lambda x: F.glu(x, 0), (8, 2)),
    "conv_transpose2d": (
        lambda x: F.conv_transpose2d(x[None], KERNEL, torch.ones(3), stride=2),
        (4, 5, 5),
    ),
    "layer_norm": (lambda x: F.layer_norm(x, (8,)), (5, 8)),
    "layer_norm with a weight": (
        lambda x: F.layer_norm(x, (4, 8), torch.linspace(-1, 1, 32).view(4, 8)),
        (5, 4, 8),
    ),
    "group_norm": (lambda x: F.group_norm(x[None], 2, torch.arange(4.0)), (4, 3, 3)),
    "instance_norm": (lambda x: F.instance_norm(x[None]), (3, 8)),
    "local_response_norm": (lambda x: F.local_response_norm(x[None], 2), (3, 6, 6)),
    "interpolate": (lambda x: F.interpolate(x[None], scale_factor=1.5), (3, 8)),
    "interpolate to a size": (
        lambda x: F.interpolate(x[None], size=(3, 5), mode="bilinear"),
        (3, 4, 4),
    ),
    "reflected": (lambda x: F.pad(x, (1, 2), mode="reflect"), (3, 8)),
    "around": (lambda x: F.pad(x[None], (1, 1, 2, 0), mode="circular"), (2, 4, 4)),
    "unfold": (lambda x: F.unfold(x[None], 2), (3, 4, 4)),
    "fold": (lambda x: F.fold(x, (4, 4), 2), (4, 9)),
    "grid_sample": (
        lambda x: F.grid_sample(x[None], torch.full((1, 2, 2, 2), 0.3), align_corners=False),
        (2, 4, 4),
    ),
    "lp_pool2d": (lambda x: F.lp_pool2d(x[None].abs() + 1, 2.0, 2), (3, 6, 6)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (4, 3, 3)),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.tensor([1, 0, -100])), (3, 8)),
    "cross_entropy of one": (lambda x: F.cross_entropy(x, torch.tensor(3), reduction="none"), (8,)),
    "cross_entropy of pixels": (
        lambda x: F.cross_entropy(x, torch.tensor([[1, 0, 2]]), reduction="sum"),
        (1, 4, 3),
    ),
    "nll_loss": (lambda x: F.nll_loss(x, torch.tensor([1, 3]), ignore_index=3), (2, 8)),
    "embedding": (lambda x: F.embedding(torch.tensor([[0, 2], [1, 2]]), x), (4, 3)),
    "cumprod": (lambda x: x.cumprod(0), (5,)),
    "cummax": (lambda x: x.cummax(0).values, (8, 2)),
    "kthvalue": (lambda x: x.kthvalue(2).values, (3, 8)),
    "msort": (lambda x: x.msort() * torch.arange(8), (8,)),
    "diff": (lambda x: x.diff(n=2), (8,)),
    "scatter": (lambda x: torch.zeros(8).scatter(0, torch.tensor([1, 5]), x[:2]), (8,)),
    "scatter_add": (
        lambda x: torch.ones(2, 3).scatter_add(1, torch.tensor([[0, 0, 1]]), x[:1]),
        (2, 3),
    ),
    "take_along_dim": (lambda x: x.take_along_dim(torch.tensor([1, 2, 2]), 0), (8,)),
}


def served(
    program: Callable[..., Any], calls: Sequence[tuple[torch.Tensor, ...]], most: int = 2
) -> None:
    compiled = symshape.compile(program, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", symshape.FallbackWarning)
        for call in calls:
            torch.testing.assert_close(compiled(*call), program(*call), check_stride=True)
    assert symshape.compiled_of(compiled).stats().traces <= most


def batches(*sizes: int) -> list[tuple[torch.Tensor, ...]]:
    return [(torch.randn(n, *sizes),) for n in BATCHES]


@pytest.mark.parametrize("name", OPS)
def test_gradients_of_each_example(name: str) -> None:
    op, sizes = OPS[name]
    served(vmap(grad(lambda x: (op(x) ** 2).sum())), batches(*sizes))


@pytest.mark.parametrize("name", OPS)
def test_gradients_of_a_weight_for_each_example(name: str) -> None:
    """Of a tensor without a batch: each example has its own gradient of it."""
    op, sizes = OPS[name]
    calls = [(torch.randn(sizes), torch.randn(n, 3)) for n in BATCHES]
    most = len(BATCHES) if name == "grid_sample" else 2
    served(vmap(grad(lambda w, x: (op(w).sin() * x.sum()).sum()), (None, 0)), calls, most)
    served(vmap(grad(lambda w, x: (op(w) * 2).sum()), (None, 0)), calls, len(BATCHES))


@pytest.mark.parametrize("name", ["conv2d", "gather", "cat", "topk", "sort", "max_pool2d", "glu"])
def test_results_of_each_example(name: str) -> None:
    op, sizes = OPS[name]
    served(vmap(op, in_dims=1), [(call.movedim(0, 1),) for (call,) in batches(*sizes)])
    served(grad(lambda x: (vmap(op)(x) ** 2).sum()), batches(*sizes))


def test_results_have_names() -> None:
    program = vmap(lambda x: (x.sort().indices, torch.max(x, 0).indices, x.topk(2).indices))
    served(program, batches(8))


def test_gradients_that_autograd_records() -> None:
    """Outside of the transforms: of an argument that requires gradients, or of a weight that only
    the loss has.
    """

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return vmap(grad(lambda row: (torch.cat([row, row]) ** 3 * w).sum()))(x)

    compiled = symshape.compile(program)
    for n in BATCHES:
        for wanted in (True, False):
            x, w = torch.randn(n, 4, requires_grad=wanted), torch.randn(8, requires_grad=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", symshape.FallbackWarning)
                got = torch.autograd.grad(compiled(x, w).square().sum(), [x, w] if wanted else [w])
            expected = torch.autograd.grad(program(x, w).square().sum(), [x, w] if wanted else [w])
            torch.testing.assert_close(got, expected)


def test_weights_have_gradients_of_each_example() -> None:
    """A weight has no batch, but each example has its own gradient of it."""
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.GELU(), torch.nn.Flatten(0), torch.nn.Linear(64, 2)
    )
    weights = {name: each.detach() for name, each in module.named_parameters()}

    def program(x: torch.Tensor) -> Any:
        return vmap(grad_and_value(lambda w, x: functional_call(module, w, (x,)).sum()), (None, 0))(
            weights, x
        )

    served(program, batches(3, 6, 6))


LAYERS: dict[str, tuple[torch.nn.Module, tuple[int, ...]]] = {
    "conv1d of groups": (torch.nn.Conv1d(4, 6, 3, groups=2, stride=2, padding=1), (4, 8)),
    "conv2d of a batch": (torch.nn.Conv2d(3, 4, 3, padding="same", bias=False), (2, 3, 5, 5)),
    "conv3d": (torch.nn.Conv3d(1, 2, 2, dilation=2), (1, 4, 4, 4)),
    "conv_transpose1d": (
        torch.nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2, output_padding=1),
        (4, 5),
    ),
    "conv_transpose2d of a batch": (torch.nn.ConvTranspose2d(3, 2, 3), (2, 3, 4, 4)),
    "layer_norm": (torch.nn.LayerNorm(8), (5, 8)),
    "layer_norm of two": (torch.nn.LayerNorm((4, 8), bias=False), (3, 4, 8)),
    "group_norm": (torch.nn.GroupNorm(2, 4), (2, 4, 3)),
    "embedding": (torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Tanh()), (4,)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_parameters_of_layers_have_gradients_of_each_example(name: str) -> None:
    layer, sizes = LAYERS[name]
    weights = {name: torch.randn_like(each) for name, each in layer.named_parameters()}
    calls = [(torch.randn(n, *sizes),) for n in BATCHES]
    if name == "embedding":
        calls = [(torch.randint(5, (n, *sizes)),) for n in BATCHES]

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(layer, weights, (x,)).sin().sum()

    served(lambda x: vmap(grad(loss), (None, 0))(weights, x), calls)
    some = dict(list(weights.items())[-1:])  # a bias alone, where there is one
    rest = dict(list(weights.items())[:-1])
    served(lambda x: vmap(grad(lambda w, x: loss({**rest, **w}, x)), (None, 0))(some, x), calls)
    served(lambda x: grad(lambda w: vmap(loss, (None, 0))(w, x).sum())(weights), calls)
    if name != "embedding":
        served(lambda x: vmap(grad(loss, argnums=(0, 1)), (None, 0))(weights, x), calls)


@pytest.mark.parametrize("images_have_a_batch", [True, False])
def test_weights_of_each_example(images_have_a_batch: bool) -> None:
    def loss(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, weight, bias).sin().sum()

    dims = (0 if images_have_a_batch else None, 0, 0)
    images = [torch.randn(*([n] if images_have_a_batch else []), 2, 3, 5, 5) for n in BATCHES]
    calls = [
        (x, torch.randn(n, 4, 3, 2, 2), torch.randn(n, 4))
        for n, x in zip(BATCHES, images, strict=True)
    ]
    served(vmap(grad(loss, argnums=(0, 1, 2)), dims), calls)


def test_a_step_of_training_of_each_example() -> None:
    """The program of torch's tutorial: a small network, its loss, and targets that have the batch,
    too.
    """
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten()
    )
    model.append(torch.nn.Linear(36, 10))
    weights = {name: each.detach() for name, each in model.named_parameters()}

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(model, weights, (x[None],)), y[None])

    calls = [(torch.randn(n, 1, 8, 8), torch.randint(10, (n,))) for n in BATCHES]
    served(lambda x, y: vmap(grad(loss), (None, 0, 0))(weights, x, y), calls)


def test_an_embedding_refuses_positions_of_another_example() -> None:
    table = torch.randn(5, 3)
    program = vmap(grad(lambda table, x: F.embedding(x, table).sin().sum()), (None, 0))
    compiled = symshape.compile(program, dynamic=True)
    for n in BATCHES[:3]:
        compiled(table, torch.randint(5, (n, 4)))
    for wrong in (5, -1):
        positions = torch.zeros(4, 4, dtype=torch.long)
        positions[0, 0] = wrong
        with pytest.raises((IndexError, RuntimeError)):
            program(table, positions)
        with pytest.raises((IndexError, RuntimeError)):
            compiled(table, positions)


def test_nested_transforms_are_left_to_torch() -> None:
    program = vmap(vmap(grad(lambda a, b: (torch.cat([a, b]) ** 2).sum()), (None, 0)), (0, None))
    calls = [(torch.randn(n, 4), torch.randn(n + 1, 4)) for n in BATCHES]
    served(program, calls, most=len(BATCHES))
    served(vmap(hessian(lambda x: (torch.cat([x, x]) ** 3).sum())), batches(3), most=len(BATCHES))


def test_a_tensor_is_written_to_after_it_was_read() -> None:
    """Eager does not need what ``cat`` has read; our gradient computes it once more, and must not
    read what is new.
    """

    def loss(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        made = torch.cat([y, y])
        y.mul_(3)
        return (made**2).sum() + y.sum()

    program = vmap(grad(loss))
    compiled = symshape.compile(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        for call in batches(4):
            torch.testing.assert_close(compiled(*call), program(*call))


def test_results_are_written_to() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        made = torch.cat([x, x.sort().values])
        made.mul_(2)
        made[1:3].add_(x[:2])
        return (made**2).sum()

    program = vmap(grad(loss))
    served(program, batches(4), most=len(BATCHES))


def test_errors_are_eagers() -> None:
    program = vmap(lambda x: torch.cat([x, x], 3))
    for (call,) in batches(4):
        with pytest.raises((IndexError, RuntimeError)):
            program(call)
        with pytest.raises((IndexError, RuntimeError, symshape.SymShapeError)):
            symshape.compile(program)(call)


def test_under_autocast() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return vmap(grad(lambda x: F.conv2d(x[None], KERNEL).float().sum()))(x)

    served(program, batches(3, 6, 6), most=len(BATCHES))


@pytest.mark.parametrize(
    "wrong", [lambda x: torch.cat([x, 3]), lambda x: x.sort("no dimension"), lambda x: x.topk(99)]
)  # type: ignore[list-item]
def test_arguments_that_no_rule_knows(wrong: Function) -> None:
    (call,) = batches(4)[0]
    with pytest.raises((TypeError, RuntimeError)) as eager:
        vmap(wrong)(call)
    with pytest.raises((type(eager.value), symshape.SymShapeError)):
        symshape.compile(vmap(wrong))(call)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_positions_of_an_embedding_keep_their_layout(place: int) -> None:
    def fn(table: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return vmap(lambda each: F.embedding(each, table), in_dims=place)(x)

    compiled = symshape.compile(fn, dynamic=True)
    table = torch.randn(5, 4)
    for rows in (3, 4, 1, 0, 6):
        sizes = [2, 3]
        sizes.insert(place, rows)
        x = torch.randint(5, sizes)
        found, wanted = compiled(table, x), fn(table, x)
        assert torch.equal(found, wanted)
        assert rows < 2 or found.stride() == wanted.stride()
    assert compiled.stats().traces == 1
