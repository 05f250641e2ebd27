"""Weak references in what a program reads: recurrent nets and others are stored with them."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from symshape import events
from tests.symshape.store.storing import compiled, counts, told


class _Rate:
    """An object that a model refers to weakly."""

    def __init__(self, factor: float) -> None:
        self.factor = factor


class _Model(nn.Module):
    """A model with a weak reference to its own rate, or to another one."""

    def __init__(self, factor: float = 2.0, refers_to: str = "own") -> None:
        super().__init__()
        self.own, self.other = _Rate(factor), _Rate(factor)
        self.reference: Any = weakref.ref(_Rate(1.0) if refers_to == "gone" else self.own)
        if refers_to == "other":
            self.reference = weakref.ref(self.other)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.reference()
        return x if found is None else x * found.factor + (found is self.own)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
@pytest.mark.parametrize("recorded", [False, True])
def test_recurrent_nets_are_stored(
    tmp_path: Path, kind: Callable[..., nn.Module], recorded: bool
) -> None:
    x = torch.randn(5, 2, 4)
    with told() as seen, torch.set_grad_enabled(recorded):
        for number in range(2):
            net = kind(4, 3, bidirectional=True)
            fast = compiled(net, tmp_path)
            for rows in (5, 3):
                torch.testing.assert_close(fast(x[:rows]), net(x[:rows]))
            assert counts(fast) == ((1, 0), (0, 1))[number]
    assert [type(each) for each in seen] == [events.Stored, events.Loaded]


@pytest.mark.parametrize("refers_to", ["own", "other", "gone"])
@pytest.mark.parametrize("before", ["own", "other", "gone"])
def test_a_reference_to_another_object_is_seen(tmp_path: Path, before: str, refers_to: str) -> None:
    x = torch.randn(5)
    first, second = _Model(refers_to=before), _Model(refers_to=refers_to)
    torch.testing.assert_close(compiled(first, tmp_path)(x), first(x))
    loaded = compiled(second, tmp_path)
    torch.testing.assert_close(loaded(x), second(x))
    assert counts(loaded) == ((0, 1) if before == refers_to else (1, 0))


def test_another_content_is_seen_before_and_after_loading(tmp_path: Path) -> None:
    x = torch.randn(5)
    compiled(_Model(), tmp_path)(x)
    other = _Model(factor=3.0)
    torch.testing.assert_close(compiled(other, tmp_path)(x), other(x))
    model = _Model()
    loaded = compiled(model, tmp_path)
    torch.testing.assert_close(loaded(x), model(x))
    assert counts(loaded) == (0, 1)
    model.reference = weakref.ref(model.other)
    torch.testing.assert_close(loaded(x), model(x))
    model.reference = weakref.ref(model.own)
    model.own.factor = 5.0
    torch.testing.assert_close(loaded(x), model(x))


def test_an_object_that_is_gone_is_seen_after_loading(tmp_path: Path) -> None:
    for number in range(2):
        rate = _Rate(3.0)
        holder = types.SimpleNamespace(reference=weakref.ref(rate))

        def scaled(x: torch.Tensor, holder: Any = holder) -> torch.Tensor:
            found = holder.reference()
            return x if found is None else x * found.factor

        fast = compiled(scaled, tmp_path)
        assert fast(torch.ones(2)).tolist() == [3.0, 3.0]
        assert counts(fast) == ((1, 0), (0, 1))[number]
        del rate
        assert fast(torch.ones(2)).tolist() == [1.0, 1.0]
