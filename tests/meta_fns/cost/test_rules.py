"""Cost rules: matrix products, convolutions and attention as torch counts them, the rest as
formulas of small calls.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry, sdpa_flop_count

import meta_fns
from guards.terms import arithmetic, fold
from meta_fns import TensorSpec
from meta_fns.core import registry
from meta_fns.cost.charging import charge_all

aten = torch.ops.aten

REGISTERED = sorted(p.__name__ for p in flop_registry if "scaled_dot" in getattr(p, "__name__", ""))

# Ops whose work depends on data (sparse, bags of embeddings) or on the network, or of which no
# formula is kept.
WITHOUT = {
    (
        "_cdist_backward _embedding_bag _embedding_bag_backward _embedding_bag_dense_backward "
        "_embedding_bag_forward_only"
    ),
    (
        "_embedding_bag_per_sample_weights_backward _pdist_backward _segment_reduce_backward "
        "_sparse_mm_reduce_impl"
    ),
    (
        "_wrap_tensor_autograd all_gather_into_tensor all_gather_into_tensor_coalesced all_reduce "
        "all_reduce_"
    ),
    (
        "all_reduce_coalesced all_to_all_single broadcast broadcast_ reduce_scatter_tensor "
        "reduce_scatter_tensor_coalesced"
    ),
    "embedding_renorm_ wait_tensor",
    (
        "_sparse_mm_reduce_impl_backward _to_sparse linalg_lstsq ormqr segment_reduce sparse_mask "
        "sparse_sampled_addmm"
    ),
}


class Ours(TorchDispatchMode):
    """The flops of every op that runs, by our rules, for the ops that torch's counter knows."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in flop_registry:
            work = meta_fns.work_of(func, args, kwargs)
            assert work is not None
            self.flops += work.flops
        return func(*args, **(kwargs or {}))


def compare(run: Callable[[], Any]) -> None:
    with FlopCounterMode(display=False) as theirs:
        run()
    with Ours() as ours:
        run()
    assert ours.flops == theirs.get_total_flops() > 0


def test_every_rule_has_a_cost_or_is_named() -> None:
    missing = {row.overload.split(".")[1] for row in registry.rules() if row.cost is None}
    assert missing == {name for names in WITHOUT for name in names.split()}


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_as_one_op(name: str) -> None:
    net = getattr(torch.nn, name)(6, 5, num_layers=2, bidirectional=True).double()
    x, state = torch.ones(4, 3, 6, dtype=torch.double), torch.ones(4, 3, 5, dtype=torch.double)
    states = [state, state] if name == "LSTM" else state
    op = {"LSTM": aten.lstm.input, "GRU": aten.gru.input, "RNN": aten.rnn_tanh.input}[name]
    with FlopCounterMode(display=False) as theirs:
        net(x, (state, state) if name == "LSTM" else state)
    work = meta_fns.work_of(
        op, (x, states, list(net.parameters()), True, 2, 0.0, False, True, False), {}
    )
    assert work is not None
    assert work.flops == theirs.get_total_flops()


@pytest.mark.parametrize("seed", range(5))
def test_products(seed: int) -> None:
    rng = random.Random(seed)
    b, n, k, m = (rng.randint(1, 9) for _ in range(4))
    left, right, bias = torch.ones(b, n, k), torch.ones(b, k, m), torch.ones(m)
    compare(lambda: (left[0] @ right[0], left @ right, torch.addmm(bias, left[0], right[0])))
    compare(lambda: torch.baddbmm(torch.ones(b, n, m), left, right))
    compare(lambda: torch.einsum("bnk,bkm->nm", left, right))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_and_their_backward(dims: int, transposed: bool) -> None:
    rng = random.Random(dims + 10 * transposed)
    op = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
    for groups in (1, 2):
        sizes = [rng.randint(6, 9) for _ in range(dims)]
        x = torch.randn(rng.randint(1, 3), 4, *sizes, requires_grad=True)
        filters = [rng.randint(1, 3) for _ in range(dims)]
        weight = torch.randn(
            4, 6 // groups if transposed else 2 // groups * 2, *filters, requires_grad=True
        )
        if not transposed:
            weight = torch.randn(6, 4 // groups, *filters, requires_grad=True)
        compare(
            lambda x=x, w=weight, g=groups: op(x, w, stride=2, padding=1, groups=g).sum().backward()
        )


def test_convolution_of_one_sample() -> None:
    compare(lambda: F.conv2d(torch.ones(3, 8, 8), torch.ones(5, 3, 3, 3)))


@pytest.mark.parametrize("name", REGISTERED)
def test_attention(name: str) -> None:
    """The formulas themselves: the kernels run on CUDA alone."""
    rng = random.Random(name)
    packet = getattr(aten, name)
    for _ in range(5):
        b, h, queries, keys, width, out = (rng.randint(1, 9) for _ in range(6))
        query = TensorSpec.contiguous((b, 2 * h, queries, width))
        key, value = (
            TensorSpec.contiguous((b, h, keys, width)),
            TensorSpec.contiguous((b, h, keys, out)),
        )
        shapes = [spec.sizes for spec in (query, key, value)]
        args: tuple[Any, ...] = (query, key, value)
        if "backward" in name:
            args = (TensorSpec.contiguous((b, 2 * h, queries, out)), *args)
            shapes.insert(0, args[0].sizes)
        cost = registry.lookup(packet.default).cost
        assert cost.flops(meta_fns.OpCall(args, {}, [query])) == flop_registry[packet](
            *shapes, out_val=query.sizes
        )


def test_attention_on_cpu() -> None:
    def count(
        query: Any, key: Any, value: Any, *args: Any, out_shape: Any = None, **kwargs: Any
    ) -> int:
        return int(sdpa_flop_count(query, key, value))

    mapping = {aten._scaled_dot_product_flash_attention_for_cpu: count}
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)
    with FlopCounterMode(display=False, custom_mapping=mapping) as theirs:
        F.scaled_dot_product_attention(q, k, v)
    work = meta_fns.work_of("aten._scaled_dot_product_flash_attention_for_cpu.default", (q, k, v))
    assert work is not None
    assert work.flops == theirs.get_total_flops() > 0


def test_raw_attention_has_its_heads_inside() -> None:
    q = TensorSpec.contiguous((2, 5, 4, 8), torch.float16)
    cost = registry.lookup(aten._flash_attention_forward.default).cost
    assert (
        cost.flops(meta_fns.OpCall((q, q, q, None, None, 5, 5), {}, [q])) == 2 * 4 * 5 * 5 * 8 * 4
    )
    packed, starts = TensorSpec.contiguous((12, 4, 8)), TensorSpec.contiguous((4,), torch.int32)
    call = meta_fns.OpCall((packed, packed, packed, starts, starts, 6, 7), {}, [packed])
    assert cost.flops(call) == 3 * 4 * 6 * 7 * 8 * 4


def test_recurrent_layer_is_its_matrix_products() -> None:
    """An LSTM of oneDNN does what the same LSTM does as matrix products (which torch's counter
    sees).
    """
    lstm = torch.nn.LSTM(6, 5, num_layers=2)
    x = torch.randn(7, 3, 6)
    seen: list[int] = []

    class Layers(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is aten.mkldnn_rnn_layer.default:
                cost = registry.lookup(func).cost
                specs = [TensorSpec.of(a) if isinstance(a, torch.Tensor) else a for a in args]
                seen.append(cost.flops(meta_fns.OpCall(specs, {}, [])))
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Layers():
        lstm(x)
    with torch.no_grad(), FlopCounterMode(display=False) as theirs:
        lstm.double()(x.double())  # oneDNN has none for doubles
    if not seen:
        pytest.skip("this torch runs LSTMs without oneDNN")
    assert sum(seen) == theirs.get_total_flops() > 0


def work(op: str, *args: Any, **kwargs: Any) -> tuple[int, int, int, int]:
    found = meta_fns.work_of(op, args, kwargs)
    assert found is not None
    return found.flops, found.read, found.written, found.kernels


def test_traffic() -> None:
    x, y = torch.ones(4, 6), torch.ones(6)
    assert work("aten.add.Tensor", x, y) == (24, 96 + 24, 96, 1)
    assert work("aten.add_.Tensor", x, y) == (24, 96 + 24, 96, 1)
    assert work("aten.add.out", x, y, out=torch.ones(4, 6)) == (24, 96 + 24, 96, 1)
    # an expanded dimension is read once
    assert work("aten.add.Tensor", x, y.expand(4, 6)) == (24, 96 + 24, 96, 1)
    assert work("aten.sigmoid.default", x) == (96, 96, 96, 1)
    assert work("aten.view.default", x, [24]) == (0, 0, 0, 0)
    assert work("aten.zeros.default", [5]) == (0, 0, 20, 1)
    assert work("aten.copy_.default", x, y) == (0, 24, 96, 1)
    assert work("aten.sum.dim_IntList", x, [1]) == (24, 96, 16, 1)
    assert work("aten.max.other", x, y) == (24, 120, 96, 1)
    assert work("aten.max.dim", x, 0) == (24, 96, 24 + 48, 1)
    assert work("aten._softmax.default", x, 1, False) == (5 * 24, 96, 96, 1)


def test_gathers_read_what_they_give() -> None:
    weight, rows = torch.ones(1000, 8), torch.zeros(3, dtype=torch.long)
    assert work("aten.embedding.default", weight, rows) == (0, 96 + 24, 96, 1)
    assert work("aten.index.Tensor", weight, [rows]) == (0, 96 + 24, 96, 1)
    assert work("aten.index_select.default", weight, 0, rows) == (0, 96 + 24, 96, 1)
    # in place only the rows move; a copy of all there is comes with the functional form
    source = torch.ones(3, 8)
    assert work("aten.index_add_.default", weight, 0, rows, source) == (24, 24 + 96, 96, 1)
    assert work("aten.index_add.default", weight, 0, rows, source) == (
        24,
        24 + 96 + 32_000,
        96 + 32_000,
        1,
    )


def test_sorting_takes_a_pass_a_byte() -> None:
    keys = torch.ones(10, dtype=torch.int16)
    assert work("aten.sort.default", keys) == (20, 40, 2 * (20 + 80), 1)


def test_linear_algebra() -> None:
    assert work("aten.linalg_inv_ex.default", torch.ones(2, 3, 3))[0] == 2 * 54
    assert work("aten._linalg_solve_ex.default", torch.ones(2, 3, 3), torch.ones(2, 3, 4))[
        0
    ] == 2 * (18 + 72)
    triangular = work(
        "aten.linalg_solve_triangular.default", torch.ones(3, 3), torch.ones(3, 4), upper=True
    )
    assert triangular[0] == 36


def test_a_transform_of_unknown_length_has_no_formula() -> None:
    s = arithmetic.symbol("s0")
    known, unknown = (TensorSpec((s, n), (n, 1), 0, torch.complex64) for n in (8, s))
    cost = registry.lookup(aten._fft_c2c.default).cost
    made = cost.work(meta_fns.OpCall((known, [1], 0, True), {}, [known]))
    assert fold.evaluate(made.flops, {"s0": 3}) == 3 * 8 * 3 * 5
    assert cost.work(meta_fns.OpCall((unknown, [1], 0, True), {}, [unknown])) is None


def test_symbolic_sizes() -> None:
    s = arithmetic.symbol("s0")
    a, b = TensorSpec((s, 4), (4, 1)), TensorSpec((4, s), (s, 1))
    out = TensorSpec((s, s), (s, 1))
    made = registry.lookup(aten.mm.default).cost.work(meta_fns.OpCall((a, b), {}, [out]))
    assert [str(each) for each in (made.flops, made.read, made.written)] == [
        "8*s0*s0",
        "32*s0",
        "4*s0*s0",
    ]


def test_no_cost_without_a_rule() -> None:
    assert meta_fns.work_of("aten.segment_reduce.default", (torch.ones(3), "sum"), {}) is None


def test_charging_twice_or_nothing_is_refused() -> None:
    cost = registry.lookup(aten.mm.default).cost
    with pytest.raises(ValueError, match="two cost rules"):
        charge_all(cost, "mm")
    with pytest.raises(KeyError, match="no rule of"):
        charge_all(cost, "nonsense")
