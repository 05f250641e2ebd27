"""Guards and errors that are born inside ``torch.nn`` name the layer, its class and the
operator.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import symshape


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.first = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(self.first(x))


def _origins(fn: Any, *args: Any) -> list[str]:
    return [
        str(guard.origin)
        for guard in symshape.trace(fn, *args, dynamic=True).guards
        if guard.origin
    ]


def test_a_module_of_torchs_own() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(4, 8)), nn.Linear(8, 2))
    (origin,) = [each for each in _origins(model, torch.ones(3, 4)) if "addmm" in each]
    assert "in layer 1.0 (Linear) (`return F.linear(" in origin
    assert "[aten::addmm: addmm]" in origin
    assert "symshape.trace(" not in origin
    assert __file__.rpartition("/")[2] not in origin


def test_a_module_that_is_a_layer_itself() -> None:
    (origin,) = _origins(nn.Linear(4, 8), torch.ones(3, 4))
    assert "in layer Linear (" in origin


def test_the_users_line_stays_beside_the_layer() -> None:
    model = Encoder()
    (origin,) = [each for each in _origins(model, torch.ones(3, 5, 8)) if "addmm" in each]
    assert (
        "in Encoder.forward, layer first (Linear) (`return self.encoder(self.first(x))`)" in origin
    )

    def apply(x: torch.Tensor) -> torch.Tensor:
        return model.first(x)

    (origin,) = _origins(apply, torch.ones(3, 8))
    assert "apply, layer Linear (`return model.first(x)`)" in origin


def test_layers_inside_layers_are_named_from_the_outermost() -> None:
    model = Encoder()
    origins = " ".join(_origins(model, torch.ones(3, 5, 8)))
    assert "layer encoder.layers.0" in origins


@pytest.mark.parametrize(
    ("model", "x", "words"),
    [
        (
            nn.Sequential(nn.Conv2d(3, 4, 5)),
            torch.ones(2, 3, 3, 3),
            ("layer 0 (Conv2d)", "aten::convolution"),
        ),
        (
            nn.ModuleDict({"e": nn.Embedding(5, 3)})["e"],
            torch.ones(2),
            ("layer Embedding", "aten::embedding"),
        ),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(4, 2)),
            torch.ones(3, 5),
            ("layer 1 (Linear)", "aten::addmm"),
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_errors_name_the_layer(model: nn.Module, x: torch.Tensor, words: tuple[str, ...]) -> None:
    with pytest.raises(symshape.SymShapeError) as error:
        symshape.trace(model, x, dynamic=True)
    for word in words:
        assert word in str(error.value)
    assert "symshape.trace(" not in str(error.value)


def test_lines_of_the_user_below_a_layer_are_the_users() -> None:
    class Own(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(-1, 4)

    origins = " ".join(_origins(nn.Sequential(nn.ReLU(), Own()), torch.ones(8)))
    assert "Own.forward (`return x.view(-1, 4)`)" in origins
    assert ", layer " not in origins
    assert " in layer " not in origins
