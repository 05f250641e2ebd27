"""What torch asks about sizes that only data tell: answered as for several elements; eager runs for
the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape import DataDependentError
from tests.symshape.eager import agree, call_seen

R = torch.randn


def _args(n: int, kept: int) -> tuple[torch.Tensor, torch.Tensor]:
    return R(n, 3), torch.arange(n) < kept


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, m: x[m.nonzero().squeeze()],
        lambda x, m: x[m].squeeze(0) * 2,
        lambda x, m: (x[m].T.contiguous(), x[m].T.reshape(-1)),
        lambda x, m: torch.outer(x[m][:, 0], x[m][:, 1]),
        lambda x, m: torch.einsum("ij,kj->ik", x[m], x[m]),
        lambda x, m: (x[m].diff(dim=0), torch.trapz(x[m], dim=0)),
        lambda x, m: torch.tensordot(x[m], x[m], dims=([0], [0])),
        lambda x, m: torch.cartesian_prod(x[m][:, 0], x[m][:, 1]),
        lambda x, m: torch.nn.functional.batch_norm(x[m], torch.zeros(3), torch.ones(3)),
        lambda x, m: x.new_zeros(m.sum(), 2).view(
            *torch.stack([m.sum(), m.sum() - m.sum() + 2]).tolist()
        ),
    ],
)
def test_several_elements_are_usual(fn: Callable[..., Any]) -> None:
    compiled = symshape.compile(fn, fullgraph=True)
    for n, kept in ((5, 3), (6, 2), (7, 7), (5, 1), (5, 0), (8, 4)):
        args = _args(n, kept)
        assert call_seen(compiled, args, {}) == call_seen(fn, args, {})
    assert compiled.stats().traces == 2


def test_a_program_that_fails_on_what_was_taken_for_granted_says_so() -> None:
    """Both clusters of ``AdaptiveLogSoftmaxWithLoss`` cannot have two of three rows."""
    net = torch.nn.AdaptiveLogSoftmaxWithLoss(4, 6, [3])
    x, labels = torch.randn(3, 4), torch.tensor([0, 1, 4])
    with pytest.raises(
        symshape.UnsupportedError,
        match=r"runs eagerly: .*\n.*took for granted .* u0 != 1 .*, and 3 more",
    ):
        symshape.compile(net, fullgraph=True)(x, labels)
    with pytest.warns(symshape.FallbackWarning, match="took for granted what only data tell"):
        assert call_seen(symshape.compile(net), (x, labels), {}) == call_seen(net, (x, labels), {})


def test_a_trace_says_what_it_took_for_granted() -> None:
    traced, seen = agree(
        lambda x, m: x[m.nonzero().squeeze()], *(_args(5, kept) for kept in (3, 5, 1, 0))
    )
    assert seen == ["equal", "equal", "asserted", "equal"]
    with pytest.raises(
        symshape.RuntimeAssertionError,
        match=r"several elements here: u0 != 1 .*\(u0 = 1\); asserted",
    ):
        traced(*_args(5, 1))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, m: x[m] if len(x[m]) > 0 else x,
        lambda x, m: [each for each in (x, x[m]) if each.shape[0]],
        lambda x, m: x if not x[m].numel() else x[m].sum(),
        lambda x, m: x * 2 if x[m].shape[0] in (1, 2) else x,
        lambda x, m: x * 2 if m.any() else x,
        lambda x, m: x * (len(x[m]) or 7),
        lambda x, m: x * (len(x[m]) and 7),
        lambda x, m: not len(x[m]),
        lambda x, m: x * 2 if m.sum() == 0 else x,
    ],
)
def test_questions_of_the_program_have_no_usual_answer(fn: Callable[..., Any]) -> None:
    with pytest.raises(DataDependentError):
        symshape.trace(fn, *_args(5, 3))


def test_nothing_is_usual_after_a_write() -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x[m.nonzero().squeeze()]

    with pytest.raises(DataDependentError):
        symshape.trace(fn, *_args(5, 3))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, s: torch.distributions.MultivariateNormal(x, s).log_prob(x + 1),
        lambda x, s: torch.distributions.MultivariateNormal(x, precision_matrix=s).rsample(),
        lambda x, s: torch.distributions.MultivariateNormal(x, s @ s.T).entropy(),
        lambda x, s: torch.distributions.Wishart(torch.tensor(5.0), s).log_prob(s),
        lambda x, s: torch.distributions.constraints.positive_definite.check(s) & (x.sum() < 9),
    ],
)
def test_arguments_of_distributions_are_usually_valid(
    fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are not, the function itself says so, in its own words."""
    # torch.compile turns that off
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    compiled, eye = symshape.compile(fn, fullgraph=True), torch.eye(3)
    for n, s in ((5, eye * 2), (6, eye + 0.1), (3, -eye), (4, R(3, 3)), (5, eye), (1, eye)):
        args = R(n, 3), s
        assert _said(compiled, args) == _said(fn, args)
    assert compiled.stats().fallbacks == 0


def _said(fn: Callable[..., Any], args: Any) -> Any:
    torch.manual_seed(0)
    try:
        return call_seen(fn, args, {})
    except ValueError as error:
        return str(error)
