"""``torch.func``'s transforms inside compiled functions, and of them: equal to eager at other
sizes, in two traces.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)
from torch.utils.checkpoint import checkpoint

import symshape
from symshape.errors import UnsupportedError

Tensor = torch.Tensor
Transform = Callable[[Callable[..., Any], Tensor], Any]

_model = nn.Linear(4, 3)
_parameters = dict(_model.named_parameters())


def _square(x: Tensor) -> Tensor:
    return (x.sin() * x).sum()


def _wave(x: Tensor) -> Tensor:
    return x.sin() * x.shape[0]


def _loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    return functional_call(_model, parameters, (x,)).pow(2).mean()


OF_ONE_NUMBER: dict[str, Transform] = {
    "grad": lambda f, x: grad(f)(x),
    "grad and value": lambda f, x: grad_and_value(f)(x),
    "grad of each row": lambda f, x: vmap(grad(f))(x),
    "second derivatives": lambda f, x: hessian(f)(x[0]),
    "a gradient's gradient": lambda f, x: grad(lambda y: grad(f)(y).sum())(x),
}
OF_TENSORS: dict[str, Transform] = {
    "vmap": lambda f, x: vmap(f)(x),
    "vmap in vmap": lambda f, x: vmap(vmap(lambda y: y * x.shape[0] + x.shape[1] / 3 - 0.1))(
        f(x).double()
    ),
    "jvp": lambda f, x: jvp(f, (x,), (x * 2,)),
    "vjp": lambda f, x: vjp(f, x)[1](x),
    "jacrev": lambda f, x: jacrev(f)(x[0]),
    "jacfwd": lambda f, x: jacfwd(f)(x[0]),
    "checkpoint": lambda f, x: checkpoint(f, x, use_reentrant=False),
}
TRANSFORMS = {
    **{name: (each, _square) for name, each in OF_ONE_NUMBER.items()},
    **{name: (each, _wave) for name, each in OF_TENSORS.items()},
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_inside_a_compiled_function(name: str) -> None:
    transform, fn = TRANSFORMS[name]
    compiled = symshape.compile(lambda x: transform(fn, x), fullgraph=True)
    for n in (3, 5, 2):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), transform(fn, x))
    assert compiled.stats().traces <= 2


@pytest.mark.parametrize("name", TRANSFORMS)
def test_of_a_compiled_function(name: str) -> None:
    transform, fn = TRANSFORMS[name]
    compiled = symshape.compile(fn, fullgraph=True)
    for n in (3, 5, 2):
        x = torch.randn(n, 4)
        torch.testing.assert_close(transform(compiled, x), transform(fn, x))
        torch.testing.assert_close(compiled(x), fn(x))


def test_gradients_of_each_sample() -> None:
    compiled = symshape.compile(
        lambda x: vmap(grad(_loss), in_dims=(None, 0))(_parameters, x), fullgraph=True
    )
    for n in (3, 5, 2):
        x = torch.randn(n, 4)
        torch.testing.assert_close(
            compiled(x), vmap(grad(_loss), in_dims=(None, 0))(_parameters, x)
        )
    assert compiled.stats().traces == 2


def _loss_of(model: torch.nn.Module) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    return lambda parameters, x: functional_call(model, parameters, (x,)).pow(2).mean()


AROUND: dict[str, Callable[[torch.nn.Module, dict[str, Tensor], Tensor], Any]] = {
    "grad": lambda model, parameters, x: grad(_loss_of(model))(parameters, x),
    "each_sample": lambda model, parameters, x: vmap(grad(_loss_of(model)), in_dims=(None, 0))(
        parameters, x
    ),
    "jvp": lambda model, parameters, x: jvp(
        lambda p: _loss_of(model)(p, x), (parameters,), (parameters,)
    ),
    "jacrev": lambda model, parameters, x: jacrev(_loss_of(model))(parameters, x),
    "jacfwd": lambda model, parameters, x: jacfwd(_loss_of(model))(parameters, x),
    "ensemble": lambda model, parameters, x: vmap(_loss_of(model), in_dims=(0, None))(
        {name: torch.stack([each, 2 * each]) for name, each in parameters.items()}, x
    ),
}


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.parametrize("called_before", [False, True])
@pytest.mark.parametrize("name", AROUND)
def test_of_a_compiled_module_on_parameters_of_the_transforms_own(
    name: str, called_before: bool
) -> None:
    """They are read outside the arguments, and the trace is outside of transforms: gradients were
    zero.
    """
    compiled = symshape.compile(torch.nn.Linear(4, 2))
    plain = symshape.compiled_of(compiled).fn
    for n in (3, 5, 3):
        x = torch.randn(n, 4)
        if called_before:
            torch.testing.assert_close(compiled(x), plain(x))
        parameters = {name: each.detach() * n for name, each in plain.named_parameters()}
        torch.testing.assert_close(
            AROUND[name](compiled, parameters, x), AROUND[name](plain, parameters, x)
        )
        torch.testing.assert_close(compiled(x), plain(x))


def test_a_tensor_outside_that_a_transform_made_is_refused_by_name() -> None:
    held = {"weight": torch.ones(3)}
    compiled = symshape.compile(lambda x: (held["weight"] * x).pow(2).sum(), fullgraph=True)
    x = torch.tensor([1.0, 2.0, 3.0])
    compiled(x)

    def loss(weight: Tensor) -> Tensor:
        held["weight"] = weight
        result: Tensor = compiled(x)
        return result

    with pytest.raises(
        UnsupportedError,
        match=r"reads held outside its arguments, which a transform of torch\.func .* has replaced",
    ):
        grad(loss)(torch.ones(3))


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_one_in_a_default_a_partial_or_a_closure() -> None:
    x, weight = torch.tensor([1.0, 2.0, 3.0]), torch.ones(3)

    def loss(weight: Tensor, x: Tensor) -> Tensor:
        return (weight * x).pow(2).sum()

    def by_default(w: Tensor) -> Any:
        def called(x: Tensor, w: Tensor = w) -> Tensor:
            return loss(w, x)

        return symshape.compile(called)(x)

    def by_partial(w: Tensor) -> Any:
        return symshape.compile(functools.partial(loss, w))(x)

    def by_closure(w: Tensor) -> Any:
        return symshape.compile(lambda x: loss(w, x))(x)

    for each in (by_default, by_partial, by_closure):
        torch.testing.assert_close(grad(each)(weight), 2 * weight * x * x)
        torch.testing.assert_close(hessian(each)(weight), torch.diag(2 * x * x))


# -- what a compiled function reads outside its arguments, and functions with gradients of their own
_net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 4))
_weight, _plain_weight = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
READS: dict[str, Callable[[Tensor], Tensor]] = {
    "a module": lambda x: _net(x),
    "a weight": lambda x: (x @ _weight).sin() * x.shape[0],
    "a tensor without gradients": lambda x: (x @ _plain_weight).sin(),
    "a detached weight": lambda x: (x @ _weight.detach()).sin() + x,
    "gradients inside": lambda x: grad(lambda y: _net(y).sin().sum())(x),
}


def _leaves(found: Any) -> list[Tensor]:
    return [each for each in torch.utils._pytree.tree_leaves(found) if isinstance(each, Tensor)]


AROUND_READING: dict[str, Transform] = {
    "grad": lambda f, x: grad(lambda y: f(y).sum())(x),
    "a gradient's gradient": lambda f, x: grad(lambda z: grad(lambda y: f(y).sin().sum())(z).sum())(
        x
    ),
    "jvp": lambda f, x: jvp(f, (x,), (x * 2,)),
    "vjp": lambda f, x: vjp(f, x)[1](x),
    "jacrev": lambda f, x: jacrev(lambda y: f(y).sum(0))(x),
    "jacfwd": lambda f, x: jacfwd(lambda y: f(y).sum(0))(x),
    "hessian": lambda f, x: hessian(lambda y: f(y).sum())(x),
    "vmap": lambda f, x: vmap(f)(torch.stack([x, 2 * x])),
    "vmap of grad": lambda f, x: vmap(grad(lambda y: f(y).sum()))(torch.stack([x, 2 * x])),
    "grad of vmap": lambda f, x: grad(lambda y: vmap(f)(y).sum())(torch.stack([x, 2 * x])),
    "jvp of grad": lambda f, x: jvp(grad(lambda y: f(y).sum()), (x,), (x,)),
}


@pytest.mark.parametrize("leads_outside", [False, True])
@pytest.mark.parametrize("name", AROUND_READING)
@pytest.mark.parametrize("what", READS)
def test_of_what_reads_outside_its_arguments(what: str, name: str, leads_outside: bool) -> None:
    transform, fn = AROUND_READING[name], READS[what]
    compiled = symshape.compile(fn, fullgraph=True)
    for n in (3, 5, 2):
        x = torch.randn(n, 4, requires_grad=leads_outside)
        for got, wanted in zip(
            _leaves(transform(compiled, x)), _leaves(transform(fn, x)), strict=True
        ):
            torch.testing.assert_close(got, wanted)
            assert got.requires_grad == wanted.requires_grad
    assert compiled.stats().traces <= 2


class _Straight(torch.autograd.Function):
    """Derivatives of its own, in both modes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 7

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return tangent * 7


def _dual(f: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    with torch.autograd.forward_ad.dual_level():
        found = f(torch.autograd.forward_ad.make_dual(x, x * 2))
        return tuple(torch.autograd.forward_ad.unpack_dual(found))


def _backward_through_vmap(f: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(vmap(f)(leaf).sum(), leaf)


AROUND_OWN = {
    **AROUND_READING,
    "no transform": lambda f, x: f(x),
    "forward-mode": _dual,
    "backward through vmap": _backward_through_vmap,
    "vmap of jvp": lambda f, x: vmap(lambda y: jvp(f, (y,), (y,)))(x),
    "inference": lambda f, x: torch.inference_mode()(lambda: grad(lambda y: f(y).sum())(x))(),
}
OWN: dict[str, Callable[[Tensor], Tensor]] = {
    "of an argument": lambda x: _Straight.apply(x * 3),  # type: ignore[no-untyped-call]
    "of weights": lambda x: _Straight.apply(_net(x)) * x,  # type: ignore[no-untyped-call]
    "one in another": lambda x: _Outer.apply(x @ _plain_weight),  # type: ignore[no-untyped-call]
    "without gradients": lambda x: torch.no_grad()(_Straight.apply)(x) * x,
    "none, but told to require gradients": lambda x: (
        torch.ones_like(x, requires_grad=True) * x.sin()
    ),
}


class _Outer(_Straight):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return _Straight.apply(x).sin()  # type: ignore[no-any-return, no-untyped-call]


@pytest.mark.parametrize("leads_outside", [False, True])
@pytest.mark.parametrize("what", OWN)
def test_a_function_with_gradients_of_its_own_keeps_them(what: str, leads_outside: bool) -> None:
    """A tensor of vmap's or of jvp's does not say that it has gradients: the graph had the ops
    without a history.
    """
    fn = OWN[what]
    compiled = symshape.compile(fn, fullgraph=True)
    for n in (3, 5, 3):
        x = torch.randn(n, 4, requires_grad=leads_outside)
        for transform in AROUND_OWN.values():
            for got, wanted in zip(
                _leaves(transform(compiled, x)), _leaves(transform(fn, x)), strict=True
            ):
                torch.testing.assert_close(got, wanted)
    assert compiled.explain_fallback().startswith("Every call")


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_one_that_a_graph_cannot_call_again_is_refused_under_a_transform() -> None:
    def counted(x: Tensor) -> Tensor:
        y: Tensor = _Straight.apply(x)  # type: ignore[no-untyped-call]
        seen.append(1)
        return y

    seen: list[int] = []
    x = torch.randn(3, 4)
    strict, lenient = symshape.compile(counted, fullgraph=True), symshape.compile(counted)
    torch.testing.assert_close(strict(x), x.round())
    with pytest.raises(
        UnsupportedError, match=r"autograd\.Function _Straight besides writing to what is outside"
    ):
        jvp(strict, (x,), (x,))
    seen.clear()
    torch.testing.assert_close(jvp(lenient, (x,), (x,)), (x.round(), 7 * x))
    assert seen == [1]


def _detached_in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y.detach_()
    return y * x


ASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "requires_grad": lambda x: (y := x @ _weight) * (2 if y.requires_grad else 3),
    "grad_fn": lambda x: (y := x @ _weight) * (2 if y.grad_fn is None else 3),
    "is_leaf": lambda x: (y := x @ _weight) * (2 if y.is_leaf else 3),
    "detach_": _detached_in_place,
}


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.parametrize("what", ASKS)
def test_what_a_program_asks_of_its_own_tensors_is_not_what_the_trace_knows(what: str) -> None:
    """``(x @ weight).requires_grad`` is false under vmap and jvp, true under grad: there the
    function runs as it is.
    """
    fn = ASKS[what]
    compiled = symshape.compile(fn)
    for n in (3, 5, 3):
        x = torch.randn(n, 4)
        for name, transform in AROUND_OWN.items():
            if what == "detach_" and "vmap" in name:
                continue  # eager refuses
            for got, wanted in zip(
                _leaves(transform(compiled, x)), _leaves(transform(fn, x)), strict=True
            ):
                torch.testing.assert_close(got, wanted)
    strict = symshape.compile(fn, fullgraph=True)
    strict(x)
    with pytest.raises(
        UnsupportedError,
        match=rf"{what}.* of a tensor that it creates, inside a transform of torch\.func",
    ):
        jvp(strict, (x,), (x,))
