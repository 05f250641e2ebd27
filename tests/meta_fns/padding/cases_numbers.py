"""Cases of the poison harness in which sizes, and fractions of them, are numbers; and classes that
are sizes.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from tests.meta_fns.padding.cases import Case, case
from tests.meta_fns.padding.poison import Arg, bools, floats, ints

__all__ = ["NUMBERS"]

HALF = Arg((3, 5), torch.float16)
BRAIN = Arg((3, 5), torch.bfloat16)
X = floats(3, 5)
WITH_INFINITIES = floats(3, 5)


def _infinite(x: torch.Tensor) -> torch.Tensor:
    """Infinite where the number is large, so that rows have none, one and several infinities."""
    return torch.where(x > 1.2, math.inf, x)


def _gradient_of_pairs(x: torch.Tensor) -> torch.Tensor:
    """As contrastive losses train: one class for each row."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        loss = F.cross_entropy(leaf @ leaf.T, torch.arange(x.shape[0]))
        return torch.autograd.grad(loss, leaf)[0]


def _gradient_of_a_mean(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(F.mse_loss(leaf, y), leaf)[0]


NUMBERS: tuple[Case, ...] = (
    case(
        "number, half precision",
        lambda x: (x * x.shape[1], x / x.shape[1], x + x.shape[0], x - x.shape[1]),
        HALF,
    ),
    case(
        "number, bfloat16", lambda x: (x * x.shape[1], x.shape[1] - x, x.sum() * x.shape[0]), BRAIN
    ),
    case(
        "number before",
        lambda x: (x.shape[1] - x, x.shape[1] / (x.abs() + 1), 2.0 ** torch.arange(x.shape[1])),
        X,
    ),
    case(
        "number to a power",
        lambda x: (x.abs() ** x.shape[1], torch.arange(x.shape[1]) ** x.shape[0]),
        X,
    ),
    case(
        "clamp by sizes",
        lambda x: (x.clamp(max=x.shape[1]), x.clamp(-x.shape[0], 1), x.clamp(min=x.shape[0])),
        X,
    ),
    case(
        "clamp of indices",
        lambda i: torch.arange(9).clamp(0, i.shape[1] - 1) + i.shape[0],
        ints(3, 5),
    ),
    case("remainder by a size", lambda x: torch.arange(x.shape[1]) % x.shape[0], X),
    case(
        "quotient by a size",
        lambda i: (i // max(i.shape[1], 1), torch.fmod(i, max(i.shape[0], 1))),
        ints(3, 5, low=-9),
    ),
    case(
        "number of small ints",
        lambda i: (i + i.shape[1], i * i.shape[0]),
        ints(3, 5, dtype=torch.int16),
    ),
    case("masked_fill by a size", lambda x, b: x.masked_fill(b, x.shape[1]), X, bools(3, 5)),
    case(
        "where with a size",
        lambda x: (torch.where(x > 0, x.shape[1], 0), torch.where(x > 0, x, x.shape[1])),
        X,
    ),
    case(
        "full of a size",
        lambda x: (
            torch.full((x.shape[0],), x.shape[1]),
            torch.full_like(x, x.shape[0]),
            x.new_full((3,), x.shape[1]),
        ),
        X,
    ),
    case("full of a fraction", lambda x: torch.full((x.shape[0],), 1 / x.shape[1]), X),
    case(
        "fraction",
        lambda x: (x / math.sqrt(x.shape[1]), x * (1 / x.shape[0]), x + math.log(x.shape[1] + 1)),
        X,
    ),
    case(
        "fraction, to a power",
        lambda x: (x * x.shape[1] ** -0.5, x - 0.5 * x.shape[0], x * (x.shape[1] / 3)),
        X,
    ),
    case("fraction, half precision", lambda x: x * (1 / x.shape[1]), BRAIN),
    case("fraction compared", lambda x: x > x.shape[1] / 7, X),
    case(
        "tensor of a fraction", lambda x: torch.minimum(x, torch.tensor(float(x.shape[1]) / 9)), X
    ),
    case(
        "classes as many as rows",
        lambda x: F.cross_entropy(x @ x.T, torch.arange(x.shape[0])),
        X,
        tolerance=1e-4,
    ),
    case("gradient of as many classes as rows", _gradient_of_pairs, X, tolerance=1e-4),
    case(
        "classes",
        lambda x, i: F.cross_entropy(x, i - 1, ignore_index=-1),
        floats(3, 9),
        ints(3, high=4),
    ),
    case(
        "weights of classes",
        lambda x, w, i: F.cross_entropy(x, i, w),
        floats(3, 9),
        floats(9),
        ints(3, high=4),
    ),
    case(
        "merged classes",
        lambda x, i: F.cross_entropy(x.flatten(1), i),
        floats(3, 4, 3),
        ints(3, high=4),
    ),
    case("mean beside a variance", lambda x: torch.var_mean(_infinite(x), 1), WITH_INFINITIES),
    case(
        "mean beside a deviation",
        lambda x: torch.std_mean(_infinite(x), 0, keepdim=True),
        WITH_INFINITIES,
    ),
    case(
        "variance of nothing", lambda x: (x[1:].var(0, correction=-1), x[1:].var(correction=0)), X
    ),
    case(
        "variance less a fraction, in float64",
        lambda x: (x.var(correction=0.1), x.std(1, correction=0.3), x.var(0, correction=-1.7)),
        Arg((3, 5), torch.float64),
        tolerance=1e-14,
    ),
    case(
        "mean beside a variance less a fraction, in float64",
        lambda x: (*torch.var_mean(x, 1, correction=0.7), *torch.std_mean(x, correction=1.3)),
        Arg((3, 5), torch.float64),
        tolerance=1e-14,
    ),
    case(
        "means and norms in float64",
        lambda x: (x.mean(1), torch.linalg.vector_norm(x, 3, 1), x.var(1), x.mean()),
        Arg((3, 5), torch.float64),
        tolerance=1e-14,
    ),
    case(
        "gradient of a mean loss in float64",
        lambda x, y: _gradient_of_a_mean(x, y),
        Arg((3, 5), torch.float64),
        Arg((3, 5), torch.float64),
        tolerance=1e-14,
    ),
    case("mean beside a variance of all", lambda x: torch.var_mean(_infinite(x)), WITH_INFINITIES),
    case(
        "mean beside a variance of merged",
        lambda x: torch.var_mean(_infinite(x.flatten(0, 1)), 0),
        floats(3, 4, 3),
    ),
)
