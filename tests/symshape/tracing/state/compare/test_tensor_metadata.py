"""Whether tensors still have their metadata: each way to change them, by each of the checks there
are.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from symshape.tracing.state import compiled
from symshape.tracing.state.compare import state
from symshape.tracing.state.compare.state import Metadata, of_tensor

CHECKS = ["compiled", "torch's", "none"]


@pytest.fixture(params=CHECKS)
def check(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "compiled" and compiled.METADATA is None:
        pytest.skip("not compiled for this torch")
    if request.param != "compiled":
        monkeypatch.setattr(compiled, "METADATA", None)
    if request.param == "none":
        monkeypatch.setattr(state, "_of_torch", lambda tensors: lambda *_: False)
    return str(request.param)


def _swap(each: Any) -> None:
    torch.utils.swap_tensors(each, nn.Parameter(torch.zeros(7, 2)))


def _through_module(each: Any) -> None:
    module = nn.Module()
    module.register_parameter("p", each)
    module.double()


CHANGES: dict[str, Callable[[Any], Any]] = {
    "shape": lambda p: setattr(p, "data", torch.zeros(4, 3)),
    "a dimension more": lambda p: setattr(p, "data", torch.zeros(3, 4, 1)),
    "no dimension": lambda p: setattr(p, "data", torch.zeros(())),
    "strides": lambda p: setattr(p, "data", torch.zeros(4, 3).t()),
    "dtype": lambda p: setattr(p, "data", p.data.double()),
    "requires_grad": lambda p: p.requires_grad_(not p.requires_grad),
    "in place: t_": lambda p: p.t_(),
    "in place: unsqueeze_": lambda p: p.unsqueeze_(0),
    "in place: as_strided_": lambda p: p.as_strided_((2, 2), (1, 1)),
    "memory of another": lambda p: p.set_(torch.zeros(9)),
    "nothing": lambda p: None,
    "data of another, resized": lambda p: setattr(p, "data", p.data.clone().resize_(5, 4)),
    "swapped": _swap,
    "a module is converted": _through_module,
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("grad", [True, False])
def test_each_change_is_seen(check: str, name: str, grad: bool) -> None:
    before = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    changed = nn.Parameter(torch.zeros(3, 4), requires_grad=grad)
    with torch.set_grad_enabled(False):
        tensors = [*before, changed, torch.ones(2, 2)]
        then = [of_tensor(each) for each in tensors]
        watched = Metadata(tensors)
        assert watched.holds()
        assert watched.holds()
        assert watched.quick() is (check != "none")
        CHANGES[name](changed)
        same = [of_tensor(each) for each in tensors] == then
        assert watched.holds() is same
        assert same or not watched.quick()
        assert (
            watched.changed() == []
            if same
            else [id(each) for each in watched.changed()] == [id(changed)]
        )


def test_what_is_changed_back_is_the_same_again(check: str) -> None:
    tensor = nn.Parameter(torch.zeros(3, 4))
    watched = Metadata([tensor])
    for _ in range(3):
        assert watched.holds()
        tensor.requires_grad_(False)
        assert not watched.holds()
        tensor.requires_grad_(True)
        assert watched.holds()
        tensor.data = torch.ones(3, 4)
        assert watched.holds()


def test_values_gradients_and_versions_do_not_count(check: str) -> None:
    tensor = nn.Parameter(torch.zeros(3, 4))
    watched = Metadata([tensor])
    assert watched.holds()
    tensor.sum().backward()
    with torch.no_grad():
        tensor += 1
    assert watched.holds()
    assert watched.quick() is (check != "none")


@pytest.mark.parametrize(
    "mode",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", torch.bfloat16),
        torch.enable_grad,
    ],
)
def test_in_each_mode(check: str, mode: Any) -> None:
    tensor = nn.Parameter(torch.zeros(3, 4))
    watched = Metadata([tensor])
    assert watched.holds()
    with mode():
        assert watched.holds()
        assert watched.holds()
        tensor.requires_grad_(False)
        assert not watched.holds()
    assert not watched.holds()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.zeros(3, dtype=torch.complex64).conj(),
        lambda: torch._neg_view(torch.zeros(3)),
        lambda: torch.empty(3, device="meta"),
    ],
)
def test_other_tensors_are_compared_too(check: str, make: Callable[[], torch.Tensor]) -> None:
    other, plain = make(), nn.Parameter(torch.zeros(2))
    watched = Metadata([other, plain])
    assert watched.holds()
    assert watched.holds()
    plain.requires_grad_(False)
    assert not watched.holds()
    assert [id(each) for each in watched.changed()] == [id(plain)]


def test_conjugation_is_seen_at_least_by_the_second_look(check: str) -> None:
    tensor = torch.zeros(3, dtype=torch.complex64)
    watched = Metadata([tensor])
    assert watched.holds()
    tensor.data = tensor.data.conj()
    assert tensor.is_conj()
    assert check != "compiled" or not watched.quick()


def test_no_tensors_at_all() -> None:
    assert Metadata([]).quick()
    assert Metadata([]).holds()


@pytest.mark.skipif(compiled.METADATA is None, reason="not compiled for this torch")
def test_what_is_compiled_takes_tensors_only_and_lets_them_go() -> None:
    for wrong in ((1,), (object(),), ("text",), (torch.float32,)):
        with pytest.raises(TypeError, match="tensors"):
            compiled.METADATA(wrong)
    with pytest.raises(TypeError):
        compiled.METADATA([torch.zeros(1)])
    tensor: Any = torch.zeros(2)
    tensor.owner = compiled.METADATA((tensor,))  # a cycle
    gone = weakref.ref(tensor)
    assert tensor.owner.same()
    del tensor
    gc.collect()
    assert gone() is None
