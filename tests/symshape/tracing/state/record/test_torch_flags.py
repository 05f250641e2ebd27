"""Flags of torch's: what is read of them is asked at each call, by whatever name a program comes to
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import symshape
from symshape.tracing.state.record import torch_flags

attend = torch.nn.functional.scaled_dot_product_attention


@pytest.fixture
def _as_it_was() -> Iterator[None]:
    autocast, threads, swaps = (
        torch.get_autocast_dtype("cpu"),
        torch.get_num_threads(),
        torch.__future__,
    )
    yield
    torch.set_autocast_dtype("cpu", autocast)
    torch.set_num_threads(threads)
    torch.backends.mha.set_fastpath_enabled(True)
    torch.backends.cuda.enable_math_sdp(True)
    swaps.set_swap_module_params_on_conversion(False)
    torch.distributions.Distribution.set_default_validate_args(True)
    torch.backends.mkldnn.matmul.fp32_precision = "none"


def _said(ask: Callable[[], Any]) -> Callable[[torch.Tensor], Any]:
    return lambda x: (x + 1, str(ask()))


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "in a variable of a closure": (
        torch.get_num_threads,
        lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    ),
    "with an argument": (
        lambda: torch.get_autocast_dtype("cpu"),
        lambda: torch.set_autocast_dtype("cpu", torch.float16),
    ),
    "of torch.backends": (
        torch.backends.mha.get_fastpath_enabled,
        lambda: torch.backends.mha.set_fastpath_enabled(False),
    ),
    "of C": (
        lambda: torch._C._get_math_sdp_enabled(),
        lambda: torch.backends.cuda.enable_math_sdp(False),
    ),
    "of the future": (
        lambda: torch.__future__.get_swap_module_params_on_conversion(),
        lambda: torch.__future__.set_swap_module_params_on_conversion(True),
    ),
    "behind an object": (
        lambda: torch.backends.mkldnn.matmul.fp32_precision,
        lambda: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
    ),
}


@pytest.mark.usefixtures("_as_it_was")
@pytest.mark.parametrize("name", CHANGES)
def test_a_flag_that_is_read_is_asked_again(name: str) -> None:
    ask, change = CHANGES[name]
    plain, compiled = _said(ask), symshape.compile(_said(ask), fullgraph=True)
    x = torch.ones(3)
    before = compiled(x)[1]
    change()
    assert compiled(x)[1] == plain(x)[1] != before
    assert compiled.stats().traces == 2


@pytest.mark.parametrize(
    "fn",
    [lambda x: attend(x, x, x), lambda x: torch.ops.aten.scaled_dot_product_attention(x, x, x)],
)
def test_kernels_of_attention_that_are_switched_off_around_a_call(
    fn: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    compiled = symshape.compile(fn, fullgraph=True, dynamic=True)
    x = torch.randn(1, 2, 5, 4)
    compiled(x)
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.equal(compiled(x), fn(x))
        ops = [str(each.op) for each in compiled.entries[-1].program.graph.nodes]
    assert not any("flash" in each for each in ops)
    assert compiled.stats().traces == 2
    compiled(x)
    assert compiled.stats().traces == 2  # the first program serves again


@pytest.mark.usefixtures("_as_it_was")
def test_distributions_that_look_at_their_arguments_or_not() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.distributions.Normal(x, 1.0).log_prob(x)

    compiled, strange = symshape.compile(fn, fullgraph=True), torch.tensor([float("nan")])
    with pytest.raises(ValueError, match="loc"):
        compiled(strange)
    torch.distributions.Distribution.set_default_validate_args(False)
    assert compiled(strange).isnan().all()


@pytest.mark.usefixtures("_as_it_was")
@pytest.mark.parametrize(
    "set_flag",
    [
        lambda: torch.set_autocast_cache_enabled(False),
        lambda: torch.backends.mha.set_fastpath_enabled(False),
        torch.backends.cuda.enable_math_sdp,
    ],
)
def test_what_sets_a_flag_is_refused_and_not_done(set_flag: Callable[..., Any]) -> None:
    before = torch_flags.now(), torch.is_autocast_cache_enabled()
    with pytest.raises(symshape.UnsupportedError, match="do that outside the function"):
        symshape.compile(lambda x: (set_flag(), x + 1), fullgraph=True)(torch.ones(2))
    assert (torch_flags.now(), torch.is_autocast_cache_enabled()) == before


@pytest.mark.usefixtures("_as_it_was")
def test_a_flag_that_cannot_be_asked_keeps_nothing_from_being_traced() -> None:
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    with pytest.raises(RuntimeError):
        torch.get_float32_matmul_precision()
    assert torch.equal(
        symshape.compile(lambda x: x @ x, fullgraph=True)(torch.ones(2, 2)), torch.full((2, 2), 2.0)
    )


def test_every_flag_is_quiet(recwarn: pytest.WarningsRecorder) -> None:
    assert torch_flags.now().keys() == torch_flags.FLAGS.keys()
    assert not recwarn.list
