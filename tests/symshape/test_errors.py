"""Bad input: symshape's own classes, the argument and dimension by name, and nothing lost."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch import nn

import symshape
from symshape import (
    ConstraintViolation,
    Dim,
    DimError,
    GuardViolation,
    InputError,
    Options,
    ProgramError,
    RunnerError,
    SymShapeError,
    UnsupportedError,
)
from tests.symshape.eager import assert_same

R = torch.ones


def double(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    return x * scale


class Wrapped(torch.Tensor):
    """A tensor subclass."""


def trace(fn: Any, *args: Any, **kwargs: Any) -> Any:
    return symshape.trace(fn, *args, **kwargs)


def compile_and_call(fn: Any, *args: Any, **kwargs: Any) -> Any:
    return symshape.compile(fn, fullgraph=True)(*args, **kwargs)


BOTH = pytest.mark.parametrize("run", [trace, compile_and_call])

ARGUMENTS: list[tuple[Any, str]] = [
    (R(3).to_sparse(), r"argument x has layout torch\.sparse_coo"),
    (R(3).as_subclass(Wrapped), r"argument x is a Wrapped"),
    (
        torch.nested.nested_tensor([R(2), R(3)], layout=torch.jagged),
        r"argument x is a NestedTensor",
    ),
    (bytearray(b"no"), r"argument x is an unhashable bytearray"),
    ([1, {"k": bytearray(b"no")}], r"argument x\[1\]\['k'\] is an unhashable bytearray"),
    ({"t": R(3).to_sparse()}, r"argument x\['t'\] has layout"),
]


@BOTH
@pytest.mark.parametrize(("argument", "message"), ARGUMENTS)
def test_arguments_that_cannot_be_traced(run: Any, argument: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(lambda x: x, argument)


@BOTH
def test_wrong_keywords(run: Any) -> None:
    with pytest.raises(
        InputError, match=r"unexpected keyword argument 'scala' \(did you mean 'scale'\?\)"
    ):
        run(double, R(3), scala=3.0)
    with pytest.raises(InputError, match=r"missing a required argument: 'x'"):
        run(double)
    with pytest.raises(InputError, match=r"too many positional arguments"):
        run(double, R(3), 2.0, 3.0)
    with pytest.raises(
        InputError, match=r"double\(\) cannot be called like this.*it takes x, scale"
    ):
        run(double, y=R(3))


def test_what_is_no_function() -> None:
    for wrong in (3, "x", [double], R(3)):
        with pytest.raises(InputError, match="function or a module"):
            symshape.trace(wrong, R(3))  # type: ignore[arg-type]
        with pytest.raises(InputError, match="function or a module"):
            symshape.compile(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="already compiled"):
        symshape.compile(symshape.compile(double))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dim("not a name"), "identifier"),
        (lambda: Dim(""), "identifier"),
        (lambda: Dim("_hidden"), "identifier"),
        (lambda: Dim("if"), "something else"),
        (lambda: Dim("min"), "something else"),
        (lambda: Dim(3), "identifier"),  # type: ignore[arg-type]
        (lambda: Dim("n", min=-1), r"never negative, but min=-1"),
        (lambda: Dim("n", min=5, max=4), r"no size fits"),
        (
            lambda: Dim("n", min=5, max=7, multiple_of=8),
            r"no size fits \(the first multiple of 8 is 8\)",
        ),
        (lambda: Dim("n", multiple_of=0), "multiple_of"),
        (lambda: Dim("n", min=1.5), "min must be an int"),  # type: ignore[arg-type]
        (lambda: Dim("n", max=True), "max must be an int"),
    ],
)
def test_wrong_dims(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(DimError, match=message):
        make()


def test_wrong_options() -> None:
    for wrong in (0, -1, 2.0, True):
        with pytest.raises(InputError, match="max_entries must be a positive int"):
            Options(max_entries=wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="options must be"):
        symshape.compile(double, options=3)  # type: ignore[arg-type]
    said = r"Options has no argument 'max_entires' \(did you mean 'max_entries'\?\); it takes spec"
    with pytest.raises(InputError, match=said):
        Options(max_entires=3)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="Options has no argument 'colour'; it takes"):
        Options(colour=3)  # type: ignore[call-arg]
    said = r"Dim has no argument 'mininum' \(did you mean 'min'\?\); it takes name, min, max"
    with pytest.raises(DimError, match=said):
        Dim("b", mininum=5)  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"no option 'max_entires' \(did you mean 'max_entries'"):
        symshape.compile(double, options={"max_entires": 3})
    with pytest.raises(InputError, match="no option 'max_entry'"):
        symshape.compile(double, options={"max_entry": 3})
    with pytest.raises(InputError, match="max_entries must be a positive int"):
        symshape.compile(double, options={"max_entries": 0})
    with pytest.raises(
        InputError, match="free_traces must be a positive int, or None for no limit, not -1"
    ):
        Options(free_traces=-1)
    with pytest.raises(
        InputError, match="graph_memory must be a positive int, an amount such as '2 GB', or None"
    ):
        Options(graph_memory=0)
    with pytest.raises(InputError, match="duck_shape must be True or False, not 'no'"):
        symshape.compile(double, options={"duck_shape": "no"})
    with pytest.raises(RunnerError, match="no runner 'fast'; choose one of auto, eager"):
        symshape.compile(double, runner="fast")  # type: ignore[arg-type]


def test_what_cannot_be_called_does_not_subscribe() -> None:
    with pytest.raises(
        InputError,
        match="a subscriber is called with each event, such as print; 3 cannot be called",
    ):
        symshape.events.subscribe(3)  # type: ignore[arg-type]
    assert symshape.trace(double, torch.ones(2))(torch.ones(2)).sum() == 4  # no event goes to it


# -- programs


RESULTS: list[tuple[Any, str]] = [
    (lambda x: object(), r"result is a builtins\.object"),
    (lambda x: [x, {"deep": {1, 2}}], r"result\[1\]\['deep'\] is a builtins\.set"),
    (lambda x: (x, iter([x])), r"result\[1\] is a builtins\.list_iterator"),
    (lambda x: (yield x), r"generator"),
    (lambda x: torch.nn.Linear(2, 2), r"Linear"),
    (lambda x: type(x), r"result is a"),
]


@BOTH
@pytest.mark.parametrize(("fn", "message"), RESULTS)
def test_results_that_are_no_tensors(run: Any, fn: Any, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message) as raised:
        run(fn, R(3))
    assert "a traced function returns" in str(raised.value)


@BOTH
def test_a_program_that_refuses_its_sizes(run: Any) -> None:
    for fn, message in (
        (lambda x, y: x + y, r"test_errors\.py"),
        (lambda x, y: torch.cat([x[None], y]), r"test_errors\.py"),
        (lambda x, y: x.view(2, 2), r"test_errors\.py"),
        (lambda x, y: x.expand(7), r"test_errors\.py"),
        (lambda x, y: x @ y, r"test_errors\.py"),
    ):
        with pytest.raises((RuntimeError, IndexError)):
            fn(R(3), R(4))
        with pytest.raises(ProgramError, match=message):
            run(fn, R(3), R(4))


@BOTH
def test_errors_of_the_program_itself_pass_through(run: Any) -> None:
    class Mine(Exception):
        pass

    def fn(x: torch.Tensor) -> torch.Tensor:
        raise Mine(f"{x.dim()} dimensions")

    with pytest.raises(Mine, match="1 dimensions"):
        run(fn, R(3))


def test_a_program_may_catch_what_eager_raises() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        try:
            return x + y
        except RuntimeError:
            return x

    traced = symshape.trace(fn, R(3), R(4))
    assert_same(fn, traced, R(3), R(4))
    for m, n in ((3, 3), (5, 7), (1, 4), (4, 1)):
        if traced.check(R(m), R(n)):
            assert_same(fn, traced, R(m), R(n))


def test_a_constraint_that_contradicts_the_program() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + R(3, 1)

    with pytest.raises(ConstraintViolation) as raised:
        symshape.trace(fn, R(3, 4), dynamic={"x": {0: Dim("batch", min=1, max=64)}})
    assert raised.value.symbol == "batch"
    assert raised.value.source == "x.size(0)"
    for part in ("x.size(0)", "fixes it to 3", "return x + R(3, 1)", "declare it static"):
        assert part in str(raised.value)


def test_a_violated_guard_names_argument_dimension_values_and_line() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y

    traced = symshape.trace(fn, R(2, 3), R(3, 4))
    with pytest.raises(GuardViolation) as raised:
        traced(R(2, 5), R(3, 4))
    message = str(raised.value)
    for part in ("x.size(1)", "y.size(0)", "5", "3", "return x @ y", "test_errors.py"):
        assert part in message
    assert len(raised.value.violations) == 1


def test_wrong_calls_of_a_traced_program() -> None:
    traced = symshape.trace(double, R(3, 4), 2.0)
    for args, parts in (
        ((R(3), 2.0), ["x is", "1 dim", "2 dim"]),
        ((R(3, 4).double(), 2.0), ["x is", "float64", "float32"]),
        ((R(3, 4).requires_grad_(), 2.0), ["x is", "requires_grad"]),
        ((R(3, 4), 3.0), ["scale is the float"]),
        ((R(3, 4), 2), ["scale is an int"]),
        ((R(3, 4),), ["without scale"]),
        (([R(3, 4)], 2.0), ["x[0]"]),
    ):
        with pytest.raises(GuardViolation) as raised:
            traced(*args)
        assert not traced.check(*args)
        for part in parts:
            assert part in str(raised.value), str(raised.value)
    assert not traced.check(R(3, 4).to_sparse(), 2.0)
    with pytest.raises(InputError, match="layout"):
        traced(R(3, 4).to_sparse(), 2.0)


# -- nothing lost


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(()))
        self.fail = True

    def forward(self, x: torch.Tensor) -> Any:
        self.seen += 1
        y = self.fc(x)
        return (y, object()) if self.fail else y


def test_after_a_refusal_everything_is_as_before() -> None:
    module = Counting()
    state = copy.deepcopy(module.state_dict())
    x = torch.randn(2, 3)
    kept = x.clone()
    compiled = symshape.compile(module, fullgraph=True)
    for _ in range(2):
        with pytest.raises(UnsupportedError):
            compiled(x)
    assert torch.equal(x, kept)
    assert all(torch.equal(state[key], value) for key, value in module.state_dict().items())
    assert compiled.stats().entries == 0
    assert torch.is_grad_enabled()
    assert not torch.compiler.is_compiling()
    assert torch._C._len_torch_dispatch_stack() == 0
    assert torch._C._len_torch_function_stack() == 0
    module.fail = False
    assert_same(module, compiled, x)


def test_entries_survive_a_later_refusal() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x + 1 if x.size(0) < 5 else object()

    compiled = symshape.compile(fn, dynamic=True, fullgraph=True)
    assert_same(fn, compiled, R(3))
    with pytest.raises(UnsupportedError):
        compiled(R(9))
    assert_same(fn, compiled, R(4))
    assert compiled.stats().traces == 1


def test_every_error_is_of_one_family() -> None:
    import symshape.errors as errors

    found = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert len(found) > 8
    for each in found:
        assert issubclass(each, SymShapeError) or each in (
            symshape.FallbackWarning,
            symshape.UntestedTorchWarning,
        )
        assert each.__name__ in symshape.__all__ or each.__name__ == "SymShapeError"
        if attrs.has(each):
            made = each("the message")  # type: ignore[call-arg]
            assert str(made) == "the message"
            assert str(copy.copy(made)) == "the message"


@pytest.mark.parametrize(
    "kind", [RuntimeError, IndexError, ValueError, TypeError, NotImplementedError]
)
def test_a_failed_check_is_of_the_class_that_eager_raises(kind: type[Exception]) -> None:
    for cls in (symshape.RuntimeAssertionError, ProgramError):
        error = cls("text", kind=kind)
        assert isinstance(error, kind)
        assert isinstance(error, cls)
        assert isinstance(error, RuntimeError) == issubclass(kind, RuntimeError)
        assert type(error) is type(cls("another", kind=kind))
        assert str(error) == "text"
        for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert type(again) is type(error)
            assert str(again) == "text"
