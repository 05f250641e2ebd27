"""Modules, losses and tools of ``torch.nn`` and around it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import distributions, nn
from torch.nn.utils import parametrizations, prune

from tests.symshape.everyday.program import Arguments, Made, everyday, flat, images, rows

Tensor = torch.Tensor
KIND = "modules"


def _two(b: int, n: int) -> Arguments:
    return torch.randn(b, n), torch.randn(b, n)


def _channels(b: int, n: int) -> Arguments:
    return (torch.randn(b, 4, n),)


def _eval(net: nn.Module) -> Callable[..., Any]:
    return torch.no_grad()(net.eval().forward)


@everyday(KIND)
def profiled() -> Made:
    def run(x: Tensor) -> Tensor:
        with torch.profiler.record_function("double"):
            return x * 2

    return run, flat


@everyday(KIND)
def normal_log_prob() -> Made:
    return lambda x: distributions.Normal(x.mean(), 1.0, validate_args=True).log_prob(x), flat


@everyday(KIND)
def normal_sample() -> Made:
    return (
        lambda x: distributions.Normal(x, torch.ones_like(x), validate_args=True).rsample() + 1,
        flat,
    )


@everyday(KIND)
def categorical_log_prob() -> Made:
    def run(x: Tensor, labels: Tensor) -> Any:
        found = distributions.Categorical(logits=x, validate_args=True)
        return found.log_prob(labels), found.entropy()

    return run, lambda b, n: (torch.randn(b, 8), torch.randint(8, (b,)))


@everyday(KIND)
def categorical_sample() -> Made:
    return lambda x: distributions.Categorical(
        logits=x, validate_args=True
    ).sample(), lambda b, n: (torch.randn(b, n),)


@everyday(KIND)
def divergence_of_normals() -> Made:
    def run(x: Tensor, y: Tensor) -> Tensor:
        one, other = (distributions.Normal(each, 2.0, validate_args=True) for each in (x, y))
        return distributions.kl_divergence(one, other).sum(-1)

    return run, _two


@everyday(KIND)
def bernoulli_independent() -> Made:
    def run(x: Tensor, y: Tensor) -> Tensor:
        found = distributions.Independent(distributions.Bernoulli(logits=x, validate_args=True), 1)
        return found.log_prob((y > 0).float())

    return run, _two


@everyday(KIND)
def multivariate_normal() -> Made:
    def run(x: Tensor) -> Tensor:
        return distributions.MultivariateNormal(
            torch.zeros(8), torch.eye(8), validate_args=True
        ).log_prob(x)

    return run, rows


@everyday(KIND)
def old_weight_norm() -> Made:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _eval(nn.utils.weight_norm(nn.Linear(8, 8))), rows


@everyday(KIND)
def weight_norm() -> Made:
    return _eval(parametrizations.weight_norm(nn.Conv1d(4, 4, 3, padding=1))), _channels


@everyday(KIND)
def old_spectral_norm() -> Made:
    return _eval(nn.utils.spectral_norm(nn.Linear(8, 8))), rows


@everyday(KIND)
def spectral_norm() -> Made:
    return _eval(parametrizations.spectral_norm(nn.Linear(8, 8))), rows


@everyday(KIND)
def orthogonal() -> Made:
    return _eval(parametrizations.orthogonal(nn.Linear(8, 8))), rows


@everyday(KIND)
def pruned() -> Made:
    net = nn.Linear(8, 8)
    prune.l1_unstructured(net, "weight", 0.5)  # type: ignore[no-untyped-call]
    return _eval(net), rows


@everyday(KIND)
def batch_norm_without_momentum() -> Made:
    return _eval(nn.BatchNorm1d(4, momentum=None)), _channels


@everyday(KIND)
def batch_norm_without_momentum_training() -> Made:
    return nn.BatchNorm1d(4, momentum=None).train(), _channels


@everyday(KIND)
def batch_norm_training() -> Made:
    return nn.BatchNorm2d(3).train(), images


@everyday(KIND)
def batch_norm_without_statistics() -> Made:
    return _eval(nn.BatchNorm1d(4, track_running_stats=False)), _channels


@everyday(KIND)
def instance_norm() -> Made:
    return _eval(nn.InstanceNorm2d(3, affine=True, track_running_stats=True)), images


@everyday(KIND)
def gaussian_loss() -> Made:
    loss = nn.GaussianNLLLoss()
    return lambda x, y: loss(x, y, torch.ones_like(x)), _two


@everyday(KIND)
def gaussian_loss_checked() -> Made:
    loss = nn.GaussianNLLLoss()
    return lambda x, y: loss(x, y, y.square() + 1), _two


@everyday(KIND)
def adaptive_softmax() -> Made:
    net = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10])
    labels = torch.arange(20).repeat(6)  # some of each cluster
    return torch.no_grad()(lambda x, y: tuple(net(x, y))), lambda b, n: (
        torch.randn(b * 20, 8),
        labels[: b * 20],
    )


@everyday(KIND)
def adaptive_softmax_predicts() -> Made:
    net = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10])
    return torch.no_grad()(net.log_prob), lambda b, n: (torch.randn(b, 8),)


@everyday(KIND)
def fake_quantised() -> Made:
    return lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255), flat


@everyday(KIND)
def fake_quantised_by_channel() -> Made:
    scale, zero = torch.full((4,), 0.1), torch.zeros(4, dtype=torch.int32)
    return lambda x: torch.fake_quantize_per_channel_affine(x, scale, zero, 1, 0, 255), _channels


@everyday(KIND)
def gradient_of_a_function() -> Made:
    return lambda x: torch.func.grad(lambda t: (t.sin() * t).sum())(x), flat


@everyday(KIND)
def jvp_of_a_function() -> Made:
    return lambda x, y: torch.func.jvp(torch.sin, (x,), (y,)), _two


@everyday(KIND)
def vmapped() -> Made:
    return lambda x: torch.func.vmap(lambda t: t.softmax(0) * 2)(x), flat


@everyday(KIND)
def losses_of_many_kinds() -> Made:
    def run(x: Tensor, y: Tensor) -> Any:
        binary = F.binary_cross_entropy_with_logits(x, (y > 0).float())
        return (
            F.l1_loss(x, y),
            F.smooth_l1_loss(x, y),
            F.huber_loss(x, y),
            F.soft_margin_loss(x, y.sign()),
            binary,
        )

    return run, _two


@everyday(KIND)
def losses_of_vectors() -> Made:
    def run(x: Tensor, y: Tensor) -> Any:
        near = F.triplet_margin_loss(x, y, y.flip(0))
        return (
            F.cosine_embedding_loss(x, y, torch.ones(x.size(0))),
            near,
            F.kl_div(x.log_softmax(1), y.softmax(1)),
        )

    return run, _two


@everyday(KIND)
def poisson_loss() -> Made:
    return lambda x, y: F.poisson_nll_loss(x, y.abs(), full=True), _two


@everyday(KIND)
def multi_margin_losses() -> Made:
    def run(x: Tensor, labels: Tensor) -> Any:
        return F.multi_margin_loss(x, labels), F.multilabel_soft_margin_loss(
            x, F.one_hot(labels, 8).float()
        )

    return run, lambda b, n: (torch.randn(b, 8), torch.randint(8, (b,)))


@everyday(KIND)
def connectionist_loss() -> Made:
    def run(x: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        return F.ctc_loss(x.log_softmax(-1), labels, lengths, torch.full_like(lengths, 2))

    def make(b: int, n: int) -> Arguments:
        return torch.randn(n + 4, b, 8), torch.randint(1, 8, (b, 2)), torch.full((b,), n + 4)

    return run, make


@everyday(KIND)
def convolutions() -> Made:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.ConvTranspose2d(4, 2, 2, 2)
    )
    return _eval(net), images


@everyday(KIND)
def adaptive_pool() -> Made:
    return _eval(nn.Sequential(nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten())), images


@everyday(KIND)
def pooled_to_four() -> Made:
    return _eval(nn.AdaptiveAvgPool2d(4)), images


@everyday(KIND)
def pooled_to_maxima() -> Made:
    return _eval(nn.AdaptiveMaxPool2d((3, 2))), images


@everyday(KIND)
def pixels_shuffled() -> Made:
    return _eval(
        nn.Sequential(nn.Conv2d(3, 12, 1), nn.PixelShuffle(2), nn.PixelUnshuffle(2))
    ), images


@everyday(KIND)
def padded_and_shrunk() -> Made:
    return _eval(
        nn.Sequential(
            nn.ReflectionPad2d(2), nn.ReplicationPad2d(1), nn.ZeroPad2d(-2), nn.LPPool2d(2, 2)
        )
    ), images


@everyday(KIND)
def grid_sampled() -> Made:
    def run(x: Tensor) -> Tensor:
        theta = torch.eye(2, 3).expand(x.size(0), 2, 3)
        return F.grid_sample(
            x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False
        )

    return run, images


@everyday(KIND)
def unfolded_and_folded() -> Made:
    def run(x: Tensor) -> Tensor:
        return F.fold(F.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1)

    return run, images


@everyday(KIND)
def bag_of_embeddings() -> Made:
    net = nn.EmbeddingBag(20, 8, mode="mean")
    return _eval(net), lambda b, n: (torch.randint(20, (b, n)),)


@everyday(KIND)
def bilinear() -> Made:
    return _eval(nn.Bilinear(8, 4, 5)), lambda b, n: (torch.randn(b, n, 8), torch.randn(b, n, 4))


@everyday(KIND)
def activations() -> Made:
    kinds = (
        nn.GELU(),
        nn.ELU(),
        nn.PReLU(),
        nn.Softplus(),
        nn.Hardswish(),
        nn.GLU(),
        nn.Mish(),
        nn.RReLU(),
    )
    return _eval(nn.Sequential(*kinds)), rows


@everyday(KIND)
def norms() -> Made:
    return _eval(
        nn.Sequential(nn.LayerNorm(8), nn.RMSNorm(8), nn.Softmax(-1), nn.Dropout(0.5))
    ), rows


@everyday(KIND)
def groups() -> Made:
    return _eval(nn.Sequential(nn.GroupNorm(2, 4), nn.LocalResponseNorm(2))), _channels


@everyday(KIND)
def distances() -> Made:
    def run(x: Tensor, y: Tensor) -> Any:
        return torch.cdist(x, y), F.pairwise_distance(x, y), F.cosine_similarity(x, y)

    return run, _two


@everyday(KIND)
def spectrum() -> Made:
    def run(x: Tensor) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(x), n=x.size(-1))

    return run, flat


@everyday(KIND)
def short_time_spectrum() -> Made:
    window = torch.hann_window(8)
    return lambda x: torch.stft(x, 8, 4, window=window, return_complex=True).abs(), lambda b, n: (
        torch.randn(b, n + 16),
    )


@everyday(KIND)
def einsums() -> Made:
    return lambda x: torch.einsum("bnd,bmd->bnm", x, x).softmax(-1), rows


@everyday(KIND)
def checkpointed() -> Made:
    from torch.utils.checkpoint import checkpoint

    net = nn.Linear(8, 8)
    return torch.no_grad()(lambda x: checkpoint(net, x, use_reentrant=False)), rows


@everyday(KIND)
def checked_for_strange_numbers() -> Made:
    def run(x: Tensor) -> Tensor:
        if torch.isnan(x).any() or torch.isinf(x).any():
            raise ValueError(f"strange numbers in {x.shape}")
        assert (x < 1e9).all(), "too large"
        return x.log_softmax(-1)

    return run, flat
