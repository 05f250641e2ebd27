"""Each family of operators is compared with eager: by a test of its own name in ``ops/``, or here
by op_db's calls.

What a family without a test of its own does is recorded from the samples of the OpInfos below, and
judged as it was called and at other sizes, 0 and 1 among them. ``test_opdb`` judges a sample of all
OpInfos together.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import torch

import meta_fns
from tests.meta_fns.opdb import GAPS, judge, judge_apart, record, vary

NN = "nn.functional."
OPINFOS: dict[str, tuple[str, ...]] = {
    "activations": (f"{NN}glu", f"{NN}prelu", f"{NN}hardswish", f"{NN}logsigmoid"),
    "attention_backward": (f"{NN}scaled_dot_product_attention",),
    "convolution": (f"{NN}conv1d", f"{NN}conv_transpose2d"),
    "data_dependent": ("nonzero", "masked_select", "unique", "item", "isclose"),
    "distances": ("cdist", "dist", f"{NN}pdist"),
    "distributions": ("normal", "bernoulli", "multinomial", "uniform"),
    "embedding_bag": (f"{NN}embedding_bag", "histc", "histogram"),
    "fft": ("fft.fft", "fft.rfft2", "fft.irfft"),
    "folding": (f"{NN}unfold", f"{NN}fold"),
    "linalg": ("linalg.det", "linalg.inv", "linalg.pinv", "linalg.cross", "linalg.matrix_exp"),
    "linalg_decompositions": (
        "linalg.svd",
        "linalg.qr",
        "linalg.eigh",
        "linalg.lu",
        "linalg.cholesky",
    ),
    "linalg_solvers": (
        "linalg.solve",
        "linalg.solve_triangular",
        "linalg.lu_solve",
        "cholesky_solve",
    ),
    "losses": (f"{NN}mse_loss", f"{NN}nll_loss", f"{NN}huber_loss", f"{NN}multi_margin_loss"),
    "normalization_backward": (f"{NN}layer_norm", f"{NN}group_norm", f"{NN}batch_norm", "softmax"),
    "norms": ("linalg.vector_norm", "norm", "renorm"),
    "products": ("addmv", "addr", "dot", "baddbmm", "trace"),
    "random_factories": ("randint", "rand_like", "randn", "randint_like"),
    "recurrent": (f"{NN}ctc_loss",),
    "scatter": ("scatter", "scatter_reduce", "index_add", "index_put", "masked_scatter", "put"),
    "sorting": ("sort", "topk", "kthvalue", "searchsorted"),
    "sparse": ("sparse.mm", "to_sparse", "sparse.sampled_addmm"),
    "upsampling": (f"{NN}interpolate", f"{NN}grid_sample", f"{NN}upsample_bilinear"),
    "view_scatter": ("slice_scatter", "select_scatter", "diagonal_scatter"),
}
# Of families that no kernel of a CPU calls: where they are compared.
ELSEWHERE = {"attention_cuda": "tests/gpu/test_meta_fns.py"}


def families() -> dict[str, set[str]]:
    """The overloads of each module that registers some with a function of its own."""
    found = defaultdict(set)
    for rule in meta_fns.rules():
        package, _, family = rule.fn.__module__.rpartition(".")
        if package == "meta_fns.ops":
            found[family].add(rule.overload)
    return found


def test_every_family_has_a_test() -> None:
    own = {
        path.stem.removeprefix("test_")
        for path in (Path(__file__).parent / "ops").glob("test_*.py")
    }
    assert own <= families().keys(), "a test of no family"
    assert families().keys() - own <= OPINFOS.keys() | ELSEWHERE.keys() <= families().keys()
    repository = Path(__file__).parents[2]
    assert all((repository / place).is_file() for place in ELSEWHERE.values())


@pytest.mark.slow
@pytest.mark.parametrize("family", OPINFOS)
def test_family(family: str) -> None:
    torch.set_num_threads(1)
    infos = OPINFOS[family]
    overloads = families()[family]
    recorded = record(lambda name: name in infos, dtypes=(torch.float32, torch.int64), most=8)
    calls = [call for call in recorded if str(call.op) in overloads]
    verdicts = [judge(call) for call in calls]
    rng = random.Random(family)
    varied = [call for call in calls if str(call.op) not in GAPS for _ in range(2)]
    verdicts += judge_apart([other for call in varied if (other := vary(call, rng)) is not None])
    wrong = [f"{verdict.label}: {verdict.detail}" for verdict in verdicts if not verdict.fine]
    assert not wrong, "\n".join(wrong[:10])
    tally = Counter(verdict.label for verdict in verdicts)
    assert tally["right"] >= len({call.op for call in calls}) > 0, tally
