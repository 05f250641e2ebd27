"""``symshape.fits``: the formula, the largest sizes, and the sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.errors import GuardViolation, InputError


class Labelled(nn.Module):
    """A model of texts whose result has a loss, as those of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 64), nn.Linear(64, 50)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> Any:
        return nn.functional.cross_entropy(
            self.head(self.embed(ids)).flatten(0, 1), labels.flatten()
        )


def _mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))


def _texts() -> dict[str, torch.Tensor]:
    return {
        "ids": torch.zeros(2, 5, dtype=torch.long),
        "labels": torch.zeros(2, 5, dtype=torch.long),
    }


def test_the_largest_size_fits_and_the_next_does_not() -> None:
    found = symshape.fits(_mlp(), torch.ones(4, 64), memory="1 GB", batch=0)
    best = found.largest("batch")
    assert found.sizes == {"batch": best}
    model = found._model
    assert model.fits(10**9, {"batch": best})
    assert not model.fits(10**9, {"batch": best + 1})
    assert best <= found.bound("batch"), "the tensors alone exceed the budget above the bound"
    assert found.peak.at(batch=best).total < 10**9


def test_two_sizes() -> None:
    found = symshape.fits(Labelled(), _texts(), memory="4 GB", train="adamw", batch=0, length=1)
    assert found.symbols == ("batch", "length")
    assert found.example == {"batch": 2, "length": 5}
    assert found.sizes["length"] == 5
    firsts = [each["batch"] for each in found.pairs]
    assert firsts == sorted(firsts, reverse=True)
    assert [each["length"] for each in found.pairs][:3] == [5, 8, 16]
    for each in found.pairs[::4]:
        assert found.largest("batch", length=each["length"]) == each["batch"]
        assert found.reserved(**each).allocated <= 4 * 10**9
    at = symshape.fits(
        Labelled(), _texts(), memory="4 GB", train="adamw", at={"length": 512}, batch=0, length=1
    )
    assert at.sizes == {"batch": found.largest("batch", length=512), "length": 512}


def test_optimizers_keep_what_they_keep() -> None:
    parameters = sum(each.numel() * 4 for each in _mlp().parameters())
    kept = {
        name: symshape.fits(
            _mlp(), torch.ones(4, 64), memory="8 GB", train=name, loss=torch.mean, batch=0
        ).peak
        for name in ("sgd", "momentum", "adam", "adamw")
    }
    states = {name: peak.at(batch=4096).optimizer for name, peak in kept.items()}
    assert states["sgd"] == 0
    assert states["momentum"] == parameters
    assert states["adam"] == states["adamw"] == pytest.approx(2 * parameters, rel=0.01)
    own = symshape.fits(
        *(_mlp(), torch.ones(4, 64)),
        memory="8 GB",
        train=torch.optim.Adagrad,
        loss=torch.mean,
        batch=0,
    )
    assert own.train == "adagrad"


def test_the_sentence() -> None:
    found = symshape.fits(
        _mlp(), torch.ones(4, 64), memory="1 GB", train="adamw", loss=torch.mean, batch=0
    )
    text = str(found)
    assert "\n" not in text
    assert text.startswith(
        "f32 parameters 67.6 kB + inputs 256 B·batch + activations 3.08 kB·batch"
    )
    assert "optimizer 135 kB" in text
    assert text.endswith(f": fits up to batch {found.sizes['batch']} in 1.00 GB")
    assert str(found.sizes["batch"]) in found.text()
    assert "<table" in found._repr_html_()
    assert repr(found).startswith("<Fits of Sequential: fits up to batch")


def test_squares_are_shown_as_squares() -> None:
    found = symshape.fits(
        lambda x: torch.softmax(x @ x.mT, -1), torch.ones(2, 5, 8), memory="1 GB", batch=0, length=1
    )
    assert "B·batch·length²" in found.formula


def test_kernels_that_allocate_for_themselves_are_named() -> None:
    found = symshape.fits(nn.Conv2d(3, 8, 3), torch.ones(2, 3, 8, 8), memory="1 GB", batch=0)
    assert found.unknown == ("aten.convolution.default",)
    assert str(found).endswith(
        "in 1.00 GB (without the workspaces of aten.convolution.default, which are not known)"
    )


def test_nothing_fits() -> None:
    found = symshape.fits(_mlp(), torch.ones(4, 64), memory="1 kB", batch=0)
    assert (found.sizes, found.pairs, found.fits) == ({}, (), False)
    assert str(found).endswith("does not fit in 1.00 kB")
    with pytest.raises(InputError, match=r"Sequential does not fit in 1.00 kB: not even batch=1"):
        found.largest("batch")


def test_guards_bound_the_answer() -> None:
    positions = nn.Embedding(128, 16)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + positions(torch.arange(x.size(1)))

    dims = {"x": {0: "batch", 1: symshape.Dim("length", max=128)}}
    with torch.no_grad():
        traced = symshape.trace(fn, torch.ones(2, 5, 16), dynamic=dims)
    from symshape.fitting.fits import fits_of

    found = fits_of(traced, 10**9, symbols=("length", "batch"))
    assert found.largest("length", batch=2) == 128
    assert found.sizes == {"length": 128, "batch": 2}
    with pytest.raises(GuardViolation):
        found.reserved(batch=2, length=129)


class _Positions(nn.Module):
    """Texts of at most so many tokens."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(100, 16), nn.Embedding(most, 16)
        self.most = most

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if ids.size(1) > self.most:
            raise ValueError("too long")
        return self.embed(ids) + self.positions.weight[: ids.size(1)]


def _bounded(most: int, memory: str = "1 GB", **more: Any) -> symshape.fitting.fits.Fits:
    ids = torch.zeros(2, 8, dtype=torch.long)
    return symshape.fits(_Positions(most), (ids,), memory=memory, batch=0, length=1, **more)


@pytest.mark.parametrize("most", [64, 200, 256])
@pytest.mark.parametrize("memory", ["3 MB", "1 GB"])
def test_pairs_end_at_the_greatest_length_that_the_guards_allow(most: int, memory: str) -> None:
    found = _bounded(most, memory)
    lengths = [each["length"] for each in found.pairs]
    assert lengths[-1] == most
    assert lengths == [8 << n for n in range(len(lengths) - 1)] + [most]
    for each in found.pairs:
        assert found.largest("batch", length=each["length"]) == each["batch"]
    last = found.pairs[-1]
    assert str(found).endswith(
        f" or {last['batch']} × {most} in {memory.replace(' ', '.00 ')} (the guards allow no more: "
        f"length <= {most})"
    )
    assert found.limits == (f"length <= {most}",)
    assert str(most) in found.text()
    with pytest.raises(GuardViolation, match=f"length <= {most}"):
        found.largest("batch", length=most + 1)


def test_given_sizes_outside_of_the_guards_are_refused() -> None:
    with pytest.raises(GuardViolation, match="length <= 64"):
        str(_bounded(64, at={"length": 65}))
    assert _bounded(64, at={"length": 64}).pairs[0]["length"] == 64


def test_pairs_of_sizes_that_guards_tie() -> None:
    def rows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a * b[:, None]).sum(1)

    example = torch.ones(4, 6), torch.ones(4)
    found = symshape.fits(rows, example, memory="100 MB", rows={"a": 0}, more={"b": 0})
    assert all(each["rows"] == each["more"] for each in found.pairs)
    assert found.pairs[-1]["rows"] > 1000
    assert [text.split() for text in found.limits] == [["more", "==", "rows"]]

    def ordered(x: torch.Tensor) -> torch.Tensor:
        if x.size(0) <= x.size(1):
            raise ValueError("more columns than rows")
        return x * 2

    found = symshape.fits(ordered, torch.ones(9, 6), memory="100 MB", rows=0, columns=1)
    assert [each["columns"] for each in found.pairs][-1] == 2048
    assert all(each["rows"] > each["columns"] for each in found.pairs)


def test_pairs_of_multiples() -> None:
    def blocks(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.size(0), -1, 48) + 1

    found = symshape.fits(blocks, torch.ones(9, 48), memory="100 MB", rows=0, columns=1)
    assert found.pairs
    assert all(each["columns"] % 48 == 0 for each in found.pairs)


def test_sizes_that_must_be_multiples() -> None:
    found = symshape.fits(lambda x: x.view(-1, 48) + 1, torch.ones(96), memory="1 GB", n=0)
    best = found.largest("n")
    assert best % 48 == 0
    assert not found._model.fits(10**9, {"n": best + 48})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "say which sizes vary"),
        ({"batch": 7}, "no tensor argument has a dimension 7"),
        ({"batch": -1}, "must be the number of a dimension"),
        ({"batch": {"input": 4}}, "input has 2 dimensions"),
        ({"batch": 0, "rows": {"input": 0}}, "named twice: batch and rows"),
        (
            {"batch": 0, "train": "lion"},
            "no optimizer 'lion'; choose from adamw, adam, sgd, momentum",
        ),
        ({"batch": 0, "memory": "much"}, "is no amount"),
        ({"dynamic": {"input": {0: "batch"}}}, "fits takes no dynamic=…: name the sizes that vary"),
        ({"batch": 0, "at": {"length": 3}}, "has no symbol 'length'"),
        ({"batch": 0, "train": "sgd"}, "is not a scalar loss"),
    ],
)
def test_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        symshape.fits(_mlp(), torch.ones(4, 64), **{"memory": "1 GB", **arguments})


def test_an_example_is_a_call() -> None:
    with pytest.raises(InputError, match="example must be a tensor, a tuple"):
        symshape.fits(_mlp(), 3, memory="1 GB", batch=0)
    with pytest.raises(InputError, match="the example is no call of the model"):
        symshape.fits(_mlp(), {"data": torch.ones(4, 64)}, memory="1 GB", batch=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device has a memory")
def test_the_budget_is_asked_for_without_a_device() -> None:
    with pytest.raises(
        InputError, match="there is no CUDA device here: say how much memory there is"
    ):
        symshape.fits(_mlp(), torch.ones(4, 64), batch=0)


class _NormedByCudnn(nn.Module):
    """Calls cuDNN's batch norm, as a convolutional network does on a CUDA device."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("var", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = (self.scale, self.shift, self.mean, self.var)
        found: torch.Tensor = torch.ops.aten.cudnn_batch_norm(x, *own, True, 0.1, 1e-5)[0]
        return found


def test_the_reserve_of_cudnn_is_an_amount_that_is_not_known() -> None:
    """Its size is known to cuDNN alone: no size has to be given for it, and the answer says that it
    is left out.
    """
    model, x = _NormedByCudnn(), torch.ones(4, 8, 6, 6)
    found = symshape.fits(model, x, memory="1 GB", train="sgd", loss=torch.mean, batch=0)
    assert len(found.peak.domain.symbols) == 2, "the batch and the reserve"
    assert found.reserved(batch=64).reserved > 0
    best = found.largest("batch")
    assert found.sizes["batch"] == best
    assert 0 < best <= found.bound("batch")
    assert "aten.cudnn_batch_norm.default" in found.unknown
    assert f"fits up to batch {best} in 1.00 GB" in str(found)
    assert "cudnn_batch_norm" in str(found)
    assert found.text()


def test_unknown_workspaces_are_named_outside_of_the_guards() -> None:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.places = (
                nn.Conv1d(4, 4, 3, padding=1),
                nn.Parameter(torch.zeros(16, 4, 1)),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.conv(x) + self.places[torch.arange(x.shape[0])]
            return found.narrow(0, 0, 2) if x.shape[2] > 20 else found

    model = Placed()
    found = symshape.fits(
        model, torch.ones(4, 4, 6), memory="1 GB", batch=0, length=2, at={"length": 30}
    )
    with pytest.raises(GuardViolation):
        found.reserved(batch=4, length=30)
    assert found.unknown == ("aten.convolution.default",)


class _Pooled(nn.Module):
    """A model with a layer that a call does not use, and a buffer that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.pooler = nn.Linear(64, 64), nn.Linear(64, 1000, bias=False)
        self.register_buffer("positions", torch.zeros(500))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x).square().mean()


@pytest.mark.parametrize("train", [None, "sgd"])
def test_parameters_that_no_op_reads_take_memory(train: str | None) -> None:
    model, words = _Pooled(), {"memory": "1 MB", "train": train, "batch": 0}
    found = symshape.fits(model, torch.ones(4, 64), **words)
    every = sum(each.nbytes for each in (*model.parameters(), *model.buffers()))
    at = found.peak.at(batch=4)
    assert at.parameters == every == 4 * (64 * 64 + 64 + 64 * 1000 + 500)
    del model.pooler, model.positions
    less = symshape.fits(model, torch.ones(4, 64), **words)
    assert less.peak.at(batch=4).parameters == 4 * (64 * 64 + 64)
    there = 512 * -(-4 * 64 * 1000 // 512) + 2048
    assert found.reserved(batch=4).allocated == less.reserved(batch=4).allocated + there
    assert found.bound("batch") < less.bound("batch")


def test_a_size_that_depends_on_data_is_said() -> None:
    def positive(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0] * 2

    x = torch.ones(5)
    found = symshape.fits(positive, x, memory="1 GB", n=0)
    (unknown,) = set(found.example) - {"n"}
    assert f"(for {unknown} = 1, which depends on data: give the most that may come" in str(found)
    given = symshape.fits(positive, x, memory="1 GB", n=0, at={unknown: 10**8})
    assert "depends on data" not in str(given)
    assert given.sizes["n"] < found.sizes["n"] / 3
