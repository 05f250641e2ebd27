"""Messages of functions that only check are not said while a trace makes them: nothing is fixed or
refused for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape import UnsupportedError

transformers = pytest.importorskip("transformers")
from transformers.utils import import_utils  # noqa: E402
from transformers.utils.import_utils import torch_compilable_check  # noqa: E402


def _by_name(x: torch.Tensor) -> torch.Tensor:
    found = (x > 0).sum()
    n = x.shape[0]
    torch_compilable_check(found <= n, f"found {found} of {n}")
    return x * 2


def _by_module(x: torch.Tensor) -> torch.Tensor:
    found = (x > 0).sum()
    import_utils.torch_compilable_check(
        found <= x.shape[0], f"found {found} of {x.shape[0]}, which is {found} too many"
    )
    return x * 2


def _by_keyword(x: torch.Tensor) -> torch.Tensor:
    torch_compilable_check(x.sum() < 1e6, msg=f"a sum of {x.sum()}")
    return x * 2


def _asserted(x: torch.Tensor) -> torch.Tensor:
    torch._assert(x.shape[0] != 4, f"a sum of {x.sum()} in {x.shape[0]}")
    return x * 2


@pytest.mark.parametrize("fn", [_by_name, _by_module, _by_keyword, _asserted])
def test_nobody_reads_it(fn: Callable[..., Any]) -> None:
    fast = symshape.compile(fn, fullgraph=True, dynamic=True)
    for n in (3, 5, 8):
        x = torch.rand(n)
        assert torch.equal(fast(x), fn(x))
    assert fast.stats().traces == 1
    bad = torch.full((4,), float("inf"))
    if fn in (_by_keyword, _asserted):  # where the check fails, eager's own error is raised
        with pytest.raises((ValueError, AssertionError)) as expected:
            fn(bad)
        with pytest.raises(type(expected.value)) as got:
            symshape.compile(fn)(bad)
        assert str(got.value) == str(expected.value)


def _condition(x: torch.Tensor) -> torch.Tensor:
    torch_compilable_check("3" in f"{x.shape[0]}", f"not three: {x.shape[0]}")
    return x * 2


def _kept(x: torch.Tensor) -> Any:
    said = f"{x.shape[0]}"
    torch_compilable_check(x.shape[0] > 0, said)
    return x * len(said)


def _inner(x: torch.Tensor) -> Any:
    torch_compilable_check(x.shape[0] > 0, f"{len(f'{x.shape[0]}')}")
    return x * 2


def test_other_texts_are_values() -> None:
    fast = symshape.compile(_kept, fullgraph=True)
    for n in (3, 5, 10, 100, 7):
        assert torch.equal(fast(torch.ones(n)), _kept(torch.ones(n)))
    for fn in (_condition, _inner):
        fast = symshape.compile(fn)
        assert torch.equal(fast(torch.ones(3)), fn(torch.ones(3)))
    with pytest.raises(ValueError, match="not three: 5"):
        symshape.compile(_condition, dynamic=True)(torch.ones(5))


def _own_check(x: torch.Tensor) -> Any:
    def torch_compilable_check(_: Any, text: str) -> int:
        return len(text)

    return x * torch_compilable_check(True, f"{x.sum()}")


def _and_another(x: torch.Tensor) -> Any:
    torch_compilable_check(True, f"{x.sum()}"); return x * len(f"{x.sum()}")  # fmt: skip  # noqa: E702


def _formatted(x: torch.Tensor) -> Any:
    return (torch_compilable_check(True, f"{x.sum()}"), x * len("{}".format(x.sum())))  # noqa: UP032


@pytest.mark.parametrize("fn", [_own_check, _and_another, _formatted])
def test_what_may_be_read_is_refused(fn: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedError, match="text of a tensor"):
        symshape.compile(fn, fullgraph=True)(torch.ones(3))
