"""Functions of torch and Python that are replaced between calls: each call does what eager does
then.
"""

from __future__ import annotations

import builtins
import math
import operator
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._VF
from torch import nn
from torch.nn import functional as F

import symshape
from symshape import UnsupportedError
from symshape.tracing.state.compare import torch_functions

X = torch.arange(4.0) - 1.5
Case = tuple[Any, str, Any, Callable[[Any], Any]]
"""The module or class, the name, what is put there, and a function that torch or the function
itself calls it in.
"""


def _mine(x: Any, *_: Any, **__: Any) -> Any:
    return torch.Tensor.detach(x) * 0 + 7


def _seven(*_: Any) -> int:
    return 7


def _times(x: Any, *_: Any) -> Any:
    return torch.mul(x, 7)


def _set_first(x: Any) -> Any:
    x = x.clone()
    x[0] = 5
    return x


def _zeros(x: Any) -> Any:
    return x + nn.init.zeros_(torch.empty(4))


def _without_gradients(x: Any) -> Any:
    with torch.no_grad():
        found = _LAYERS["linear"](x)
    return x * 0 + found.requires_grad


def _attended(x: Any) -> Any:
    x = x[None, None, None]
    return F.scaled_dot_product_attention(x, x, x)


_LAYERS = {
    "linear": nn.Linear(4, 4),
    "norm": nn.LayerNorm(4),
    "batch": nn.BatchNorm1d(4).eval(),
    "dropout": nn.Dropout().eval(),
    "embedding": nn.Embedding(4, 4),
    "loss": nn.SmoothL1Loss(),
    "gelu": nn.GELU(),
    "attention": nn.MultiheadAttention(4, 1, batch_first=True).eval(),
    "lstm": nn.LSTM(4, 4),
}


def _self_attention(x: Any) -> Any:
    return _LAYERS["attention"](x[None, None], x[None, None], x[None, None])[0]


CASES: dict[str, Case] = {
    "a function by its name": (F, "relu", _mine, lambda x: F.relu(x)),
    "a function in one of torch's": (torch, "relu", _mine, lambda x: F.relu(x)),
    "a function of torch by its name": (torch, "relu", _mine, lambda x: torch.relu(x)),
    "a function of torch by torch's": (torch, "relu", torch.tanh, lambda x: F.relu(x)),
    "a function in a layer": (F, "gelu", _mine, _LAYERS["gelu"]),
    "a function in C": (torch._C._nn, "silu", _mine, lambda x: F.silu(x)),
    "a function in a function of a layer": (torch, "layer_norm", _mine, _LAYERS["norm"]),
    "a function in batch_norm": (torch, "batch_norm", _mine, lambda x: _LAYERS["batch"](x[None])),
    "a function of torch._VF": (torch._VF, "dropout", _mine, _LAYERS["dropout"]),
    "an LSTM's": (
        torch._VF,
        "lstm",
        lambda x, *_: (x * 7, x, x),
        lambda x: _LAYERS["lstm"](x[None])[0],
    ),
    "a private function": (
        F,
        "_in_projection_packed",
        lambda q, k, v, *_: [q * 7, k, v],
        _self_attention,
    ),
    "attention": (F, "scaled_dot_product_attention", lambda q, *_, **__: q * 7, _attended),
    "a function of torch.nn.init": (nn.init, "_no_grad_zero_", lambda t: t.fill_(7), _zeros),
    "torch.linalg": (torch.linalg, "vector_norm", _mine, lambda x: x.norm()),
    "torch.special": (torch.special, "expit", _mine, lambda x: torch.special.expit(x)),
    "torch.fft": (torch.fft, "fft", _mine, lambda x: torch.fft.fft(x).real),
    "an enumeration": (
        torch.nn._reduction,
        "get_enum",
        lambda _: 2,
        lambda x: _LAYERS["loss"](x, x * 3),
    ),
    "a method": (torch.Tensor, "add", _times, lambda x: x.add(1)),
    "a method that torch calls": (torch.Tensor, "softmax", _times, lambda x: F.softmax(x, -1)),
    "a method in Python": (
        torch.Tensor,
        "split",
        lambda x, *_, **__: (_times(x),),
        lambda x: torch.split(x, 2)[0],
    ),
    "an operator": (torch.Tensor, "__add__", _times, lambda x: x + 1),
    "an operator of the other side": (torch.Tensor, "__rsub__", _times, lambda x: 1 - x),
    "an operator in place": (torch.Tensor, "__setitem__", lambda *_: None, _set_first),
    "an item": (torch.Tensor, "__getitem__", _times, lambda x: x[0]),
    "the length": (torch.Tensor, "__len__", _seven, lambda x: x * len(x)),
    "comparison": (torch.Tensor, "__eq__", _times, lambda x: (x == 1) * 1.0),
    "all other attributes": (
        torch.Tensor,
        "__getattr__",
        _seven,
        lambda x: x * getattr(x, "of_nobody", 1),
    ),
    "a property": (torch.Tensor, "mT", property(_times), lambda x: x[None].mT),
    "the shape": (torch.Tensor, "shape", property(lambda _: (7,)), lambda x: x * x.shape[0]),
    "a method of parameters": (
        nn.Parameter,
        "add",
        _times,
        lambda x: _LAYERS["linear"].bias.add(x),
    ),  # type: ignore[operator]
    "a new attribute of parameters": (
        *(nn.Parameter, "of_nobody", 7),
        lambda x: x * (2 if hasattr(_LAYERS["linear"].bias, "of_nobody") else 1),
    ),
    "forward": (nn.Linear, "forward", lambda _, x: x * 7, _LAYERS["linear"]),
    "the call of every module": (
        nn.Module,
        "__call__",
        lambda _, x: x * 7,
        lambda x: _LAYERS["linear"](x),
    ),
    "a method of every module": (
        *(nn.Module, "parameters", lambda _: [torch.ones(4)]),
        lambda x: x * next(iter(_LAYERS["linear"].parameters())).sum(),
    ),
    "a distribution": (
        *(torch.distributions.Normal, "log_prob", lambda _, x: x * 7),
        lambda x: torch.distributions.Normal(0.0, 1.0).log_prob(x),
    ),
    "the base of a distribution": (
        *(torch.distributions.Distribution, "_extended_shape", lambda *_: torch.Size((7,))),
        lambda x: torch.distributions.Uniform(0.0, 1.0).rsample(x.shape) * 0,
    ),
    "a context": (
        torch.no_grad,
        "__enter__",
        lambda self: setattr(self, "prev", True),
        _without_gradients,
    ),
    "math": (math, "sqrt", _seven, lambda x: x * math.sqrt(x.shape[0])),
    "a built-in": (builtins, "max", _seven, lambda x: x * max(x.shape[0], 2)),
    "a class of Python": (
        builtins,
        "range",
        lambda *_: [1],
        lambda x: x * sum(1 for _ in range(3)),
    ),
    "operator": (operator, "add", lambda a, _: a * 7, lambda x: operator.add(x, 1)),
}


@pytest.fixture(autouse=True)
def _back() -> Iterator[None]:
    yield
    assert torch_functions.replaced() == ""


def _calls(fn: Callable[[Any], Any], case: Case) -> list[Any]:
    owner, name, mine, _ = case
    found = [_seen(fn), _seen(fn)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, mine, raising=False)
        there = [fn(X), fn(X)]
    return [*found, *map(_plain, there), _seen(fn), _seen(fn)]


def _seen(fn: Callable[[Any], Any]) -> Any:
    return _plain(fn(X))


def _plain(found: Any) -> Any:
    return found.tolist() if isinstance(found, torch.Tensor) else found


@pytest.mark.parametrize("name", CASES)
def test_each_call_does_what_eager_does(name: str) -> None:
    case = CASES[name]
    compiled = symshape.compile(lambda x: case[3](x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        eager, ours = _calls(case[3], case), _calls(compiled, case)
    assert ours == eager
    assert eager[2] != eager[0]
    before = compiled.stats().traces
    assert _seen(compiled) == eager[0]
    assert compiled.stats().traces == before


def test_the_original_program_serves_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = symshape.compile(lambda x: F.relu(x), fullgraph=True)
    compiled(X)
    monkeypatch.setattr(torch, "relu", _mine)
    with pytest.raises(
        UnsupportedError, match=r"torch.relu is not torch's or Python's own function any more"
    ) as error:
        compiled(X)
    assert error.value.code == "SYM239"
    with pytest.raises(UnsupportedError, match=r"torch.relu is not"):
        symshape.trace(lambda x: x * 2, X)
    monkeypatch.undo()
    assert torch.equal(compiled(X), F.relu(X))
    assert compiled.stats().traces == 1


def test_a_function_that_is_replaced_before_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = symshape.compile(lambda x: F.relu(x))
    monkeypatch.setattr(torch, "relu", _mine)
    with pytest.warns(symshape.FallbackWarning, match=r"torch\.relu is not torch's"):
        assert _seen(compiled) == [7] * 4
    monkeypatch.undo()
    assert torch.equal(compiled(X), F.relu(X))
    assert compiled.stats().traces == 1


def test_a_program_that_replaces_a_function_itself_runs_eagerly() -> None:
    before = torch.relu

    def f(x: torch.Tensor) -> torch.Tensor:
        torch.relu = lambda x: x * 7
        try:
            return F.relu(x)
        finally:
            torch.relu = before

    with pytest.raises(
        UnsupportedError, match=r"the program replaces torch\.relu, which torch's own code may call"
    ):
        symshape.compile(f, fullgraph=True)(X)
    with pytest.warns(symshape.FallbackWarning):
        assert torch.equal(symshape.compile(f)(X), X * 7)
    assert torch.relu is before


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        *(
            (torch, "of_nobody", lambda: 1),
            (torch.Tensor, "of_nobody", 1),
            (builtins, "of_nobody", len),
        ),
        *(
            (builtins, "print", lambda *_: None),
            (torch.Tensor, "__repr__", lambda _: ""),
            (torch, "compile", None),
        ),
        *((torch, "of_nobody", types.ModuleType("of_nobody")), (torch, "__version__", "9")),
    ],
)
def test_what_does_not_count(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: Any
) -> None:
    compiled = symshape.compile(lambda x: F.relu(x) + 1, fullgraph=True)
    compiled(X)
    monkeypatch.setattr(owner, name, value, raising=False)
    assert torch_functions.replaced() == ""
    assert torch.equal(compiled(X), F.relu(X) + 1)
    assert compiled.stats().traces == 1


def test_what_torch_and_symshape_replace_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch.manual_seed is not torch.random.manual_seed  # by Dynamo, when it is imported
    torch.compile(lambda x: x + 1, backend="eager")(X)
    torch.fx.symbolic_trace(nn.Linear(4, 4))
    torch.func.grad(lambda x: x.sum())(X)
    torch.set_default_dtype(torch.float64)  # binds torch.Storage anew
    meanwhile = torch_functions.replaced()
    torch.set_default_dtype(torch.float32)
    assert meanwhile == ""
    assert torch_functions.replaced() == ""
    found = []

    def asks(x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=lambda: found.append(torch_functions.replaced()))
        thread.start()
        thread.join()
        return _attended(x)

    symshape.compile(asks)(X)
    with monkeypatch.context() as patch:
        patch.setattr(F, "relu", _mine)
        asks(X)
    assert found[-1] == "torch.nn.functional.relu"
    assert set(found[:-1]) <= {""}


def test_what_is_replaced_stays_replaced_while_symshape_has_its_own_function_there() -> None:
    watched = next(each for each in torch_functions._watched if each.owner is F)
    with pytest.MonkeyPatch.context() as patch:
        ours = types.FunctionType(_mine.__code__, {}, "ours")
        ours.__module__ = "symshape.tracing"
        patch.setattr(F, "relu", ours)
        assert watched.replaced(frozenset()) == frozenset()
        assert watched.replaced(frozenset({"relu"})) == {"relu"}


def test_programs_are_neither_stored_nor_read_while_a_function_is_replaced(tmp_path: Path) -> None:
    def compiled() -> Any:
        return symshape.compile(_program, options=symshape.Options(store=tmp_path))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "relu", _mine)
            assert _seen(compiled()) == [7] * 4
        assert not list(tmp_path.glob("*/*"))
        compiled()(X)
        assert list(tmp_path.glob("*/*"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "relu", _mine)
            again = compiled()
            assert _seen(again) == [7] * 4
            assert again.stats().loaded == 0
        assert torch.equal(again(X), F.relu(X))
        assert again.stats().loaded == 1


def _program(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x)


@pytest.mark.parametrize("way", ["own", "torch", "none"])
def test_every_way_to_watch_sees_writes(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way != "own":
        monkeypatch.setattr(torch_functions.compiled, "WATCHES", None)
        monkeypatch.setattr(torch_functions.compiled, "VERSIONS", None)
    if way == "none":
        monkeypatch.setitem(sys.modules, "torch._C._dynamo.guards", None)
    for name in ("_unchanged", "_written", "quiet"):
        monkeypatch.setattr(torch_functions, name, getattr(torch_functions, name))
    torch_functions._unchanged, torch_functions._written = torch_functions._watch()
    torch_functions.quiet = torch_functions._unchanged
    assert torch_functions.replaced() == ""
    for _, (owner, name, mine, _) in list(CASES.items()):
        if owner is nn.Linear or name == "of_nobody" or (owner is nn.Module and name == "__call__"):
            continue
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, mine, raising=False)
            assert torch_functions.replaced().endswith(f".{name}")
        assert torch_functions.replaced() == ""


LIBRARY = """
import torch, warnings
import symshape

def library(name):
    original = getattr(torch, name)
    source = f"def {name}(*args, **kwargs):\\n    return original(*args, **kwargs)\\n"
    namespace = {"original": original}
    exec(compile(source, f"/nowhere/site-packages/library/{name}.py", "exec"), namespace)
    setattr(torch, name, namespace[name])

compiled = symshape.compile(lambda x: torch.relu(x) + torch.select(x, 0, 0))
library("select")
for n in (3, 4, 5):
    assert torch.equal(compiled(torch.ones(n)), torch.full((n,), 2.0))
assert (compiled.stats().traces, compiled.stats().fallbacks) == (2, 0)
library("relu")  # after the first program
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    assert torch.equal(compiled(torch.ones(6)), torch.full((6,), 2.0))
assert "torch.relu is not torch's" in str(said[0].message), said
"""


EXPORT = """
import torch
import symshape

compiled = symshape.compile(lambda x: x * 2)

class Model(torch.nn.Module):
    def forward(self, x):
        return compiled(x)

torch.export.export(Model(), (torch.ones(3),), strict=False)  # replaces math.pow meanwhile
for n in (3, 4, 5):
    assert torch.equal(compiled(torch.ones(n)), torch.full((n,), 2.0))
assert (compiled.stats().traces, compiled.stats().fallbacks) == (2, 0)
"""


@pytest.mark.parametrize("script", [LIBRARY, EXPORT], ids=["a library", "torch, for a while"])
def test_what_is_replaced_before_the_first_trace(script: str) -> None:
    """What a library has put there is original; what torch puts there for a while is not."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
