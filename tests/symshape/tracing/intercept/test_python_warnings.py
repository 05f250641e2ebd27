"""Warnings of a traced program have eager's text, category, file and line."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.errors import FallbackWarning, UnsupportedError
from symshape.frontends import compiled as compiled_module
from symshape.tracing.intercept.python_warnings import told_as_in_eager

Records = list[tuple[str, str, str, int]]
_LOSS = torch.nn.MSELoss()
_SOFTMAX = torch.nn.Softmax()


@pytest.fixture(autouse=True)
def _each_time() -> Iterator[None]:
    """C++ warns of many things once in a process: here each time."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def _records(call: Callable[[], Any], action: Any = "always") -> Records:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter(action)
        call()
    return [
        (each.category.__name__, str(each.message), each.filename, each.lineno)
        for each in told
        if each.category is not FallbackWarning
    ]


def _in_eager(call: Callable[[], Any], action: str = "always") -> Records:
    """The warnings of eager; skips the test where this torch no longer has the function."""
    try:
        return _records(call, action)
    except RuntimeError as error:
        if "is now removed" in str(error):
            pytest.skip(str(error))
        raise


def _resized(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty(3)
    torch.add(x, y, out=out)
    return out * 1


def _concatenated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty(3)
    torch.cat([x, y], out=out)
    return out * 1


def _copied(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(x.shape)
    y.copy_(x)
    return y


def _not_a_leaf(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return y if y.grad is None else y.grad


def _inside(x: torch.Tensor) -> torch.Tensor:
    @torch.no_grad()
    def inner(y: torch.Tensor) -> torch.Tensor:
        return F.softmax(y)

    return inner(x) + inner(x * 2)


def _loop(x: torch.Tensor) -> torch.Tensor:
    total = x
    for i in range(3):
        total = total + F.softmax(x * i)
    return total


def _of_the_caller(x: torch.Tensor) -> torch.Tensor:
    def warn() -> None:
        warnings.warn(f"rows: {x.shape[0] + 1}", DeprecationWarning, stacklevel=2)

    warn()
    return x * 2


def _an_object(x: torch.Tensor) -> torch.Tensor:
    warnings.warn(FutureWarning(f"shape {tuple(x.shape)}"))  # noqa: B028 - eager's default
    return x * 2


ROWS, ROW = torch.randn(5, 3), torch.randn(5)
COMPLEX = torch.randn(5, dtype=torch.complex64)
BYTES = torch.ones(5, 3, dtype=torch.uint8)
WEIGHT = torch.ones(3, requires_grad=True)
IN_TRACES: list[tuple[Any, tuple[Any, ...]]] = [
    (lambda x: x * float((x * WEIGHT).sum()), (ROWS,)),
    (lambda x, y: F.mse_loss(x, y), (ROWS, torch.randn(5, 1))),
    (lambda x, y: _LOSS(x, y), (ROWS, torch.randn(5, 1))),
    (lambda x, y: F.l1_loss(x * 2, y[1:2]), (ROWS, torch.randn(5, 3))),
    (lambda x, y: F.huber_loss(torch.cat([x, x]), y[:1]), (ROWS, torch.randn(5, 3))),
    (lambda x: F.mse_loss(x, x, size_average=False), (ROWS,)),
    (lambda x: F.softmax(x), (ROWS,)),
    (lambda x: _SOFTMAX(x), (ROWS,)),
    (lambda x: torch.vmap(lambda y: F.softmax(y))(x), (ROWS,)),
    (_inside, (ROWS,)),
    (_loop, (ROWS,)),
    (lambda x: sum(torch.meshgrid(x, x)), (ROW,)),
    (lambda x: x.T, (torch.randn(5, 3, 2),)),
    (_not_a_leaf, (torch.randn(5, requires_grad=True),)),
    (lambda x: F.upsample(x, scale_factor=2.0), (torch.randn(2, 3, 5, 5),)),
    (lambda x: F.dropout2d(x, 0.0), (ROWS,)),
    (lambda x, y: F.kl_div(x, y), (ROWS, torch.rand(5, 3))),
    (lambda x: torch.tensor(x) * 2, (ROWS,)),
    (lambda x: torch.qr(x)[1], (ROWS,)),
    (lambda x: torch.stft(x, 4, return_complex=True).abs(), (torch.randn(4, 8),)),
    (lambda x: F.conv1d(x, torch.ones(3, 3, 4), padding="same"), (torch.randn(2, 3, 6),)),
]
OF_KERNELS: list[tuple[Any, tuple[Any, ...]]] = [
    (lambda x: x.to(torch.float32), (COMPLEX,)),
    (_copied, (COMPLEX,)),
    (_resized, (ROW, ROW)),
    (_concatenated, (ROW, ROW)),
    (lambda x: x.std(1), (torch.randn(5, 1),)),
    (lambda x, m: x[m], (ROWS, BYTES)),
    (lambda x, m: torch.where(m, x, -x), (ROWS, BYTES)),
    (lambda x: torch.cholesky(x @ x.mT + 5 * torch.eye(5)), (torch.randn(5, 5),)),
    (lambda x, v: torch.searchsorted(x, v), (torch.arange(8.0), torch.rand(6, 4).T)),
]


@pytest.mark.parametrize(("fn", "args"), IN_TRACES + OF_KERNELS)
@pytest.mark.parametrize("action", ["always", "default", "error"])
def test_the_first_call_warns_like_eager(fn: Any, args: tuple[Any, ...], action: str) -> None:
    errors: list[str] = []

    def told(call: Callable[[], Any]) -> None:
        try:
            call()
        except Warning as error:
            errors.append(f"{type(error).__name__}: {error}")

    eager = _in_eager(lambda: told(lambda: fn(*args)), action)
    fn.__globals__.get("__warningregistry__", {}).clear()
    compiled = _records(lambda: told(lambda: symshape.compile(fn)(*args)), action)
    fn.__globals__.get("__warningregistry__", {}).clear()
    dynamic = symshape.compile(fn, dynamic=True)
    varying = _records(lambda: told(lambda: dynamic(*args)), action)
    assert eager or errors
    assert compiled == varying == eager
    assert len(errors) in (0, 3)
    assert len(set(errors)) <= 1


@pytest.mark.parametrize(("fn", "args"), [*IN_TRACES, (_of_the_caller, (ROWS,))])
def test_a_trace_warns_like_eager(fn: Any, args: tuple[Any, ...]) -> None:
    eager = _in_eager(lambda: fn(*args))
    assert eager
    assert _records(lambda: symshape.trace(fn, *args)) == eager


@pytest.mark.parametrize(("fn", "args"), OF_KERNELS)
def test_a_traced_program_warns_like_eager_where_it_runs(fn: Any, args: tuple[Any, ...]) -> None:
    eager = _in_eager(lambda: fn(*args))
    traced: list[Any] = []
    assert not _records(lambda: traced.append(symshape.trace(fn, *args)))
    assert _records(lambda: traced[0](*args)) == eager


def test_sizes_in_warnings_of_torch_get_no_guard() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = symshape.trace(F.mse_loss, torch.randn(5, 3), torch.randn(1, 3))
    assert "== 5" not in str(traced.guards)
    assert torch.equal(traced(torch.ones(7, 3), torch.zeros(1, 3)), torch.tensor(1.0))


def test_warnings_that_are_objects_stay_them() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        symshape.trace(_an_object, ROWS)
    (one,) = told
    assert type(one.message) is FutureWarning
    assert str(one.message) == "shape (5, 3)"
    assert one.filename == __file__


def test_a_stack_level_counts_the_frames_of_eager_up_to_the_caller_of_the_trace() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        warnings.warn("seen", stacklevel=2)
        return x * 2

    def call() -> Any:
        return symshape.trace(fn, ROWS)

    ((_, _, file, line),) = _records(call)
    assert (file, line) == (__file__, call.__code__.co_firstlineno + 1)


def test_the_default_filter_shows_one_warning_of_a_line_in_eager_and_in_traces() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x)

    def twice() -> None:
        fn(ROWS)
        symshape.trace(fn, ROWS)
        symshape.compile(fn)(ROWS)

    assert len(_records(twice, "default")) == 1


def test_a_failed_trace_leaves_the_warnings_to_eager() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = F.softmax(x)
        print("seen")
        return y

    assert len(_records(lambda: symshape.compile(fn)(ROWS))) == 1
    with pytest.raises(UnsupportedError):
        _records(lambda: symshape.compile(fn, fullgraph=True)(ROWS))


def test_a_failed_trace_shows_what_cpp_may_not_say_again() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.T
        print("seen")
        return y

    torch.set_warn_always(False)  # said before, or now
    eager = _records(lambda: symshape.compile(fn)(ROW), "default")
    torch.set_warn_always(True)
    assert len(eager) <= 1
    fn.__globals__.get("__warningregistry__", {}).clear()
    assert len(_records(lambda: symshape.compile(fn)(ROW), "default")) == 1


def test_an_error_of_the_program_leaves_its_warnings_shown() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = F.softmax(x)
        if y.dim():
            raise ValueError("no")
        return y

    def call() -> None:
        with pytest.raises(ValueError, match="no"):
            symshape.trace(fn, ROWS)

    assert len(_records(call)) == 1


def test_a_program_catches_its_own_warnings() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, Any]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            loss = F.mse_loss(x, y) + x[0].T.sum()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            F.softmax(x)
        return loss * len(told), tuple(f"{each.message} {each.lineno}" for each in told)

    args = (ROWS, torch.randn(5, 1))
    _, want = fn(*args)
    traced: list[Any] = []
    assert not _records(lambda: traced.append(symshape.trace(fn, *args)))
    assert len(want) == 2
    assert traced[0](*args)[1] == want


def test_a_program_catches_a_warning_that_is_an_error() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            return F.softmax(x)
        except UserWarning:
            return x * 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        traced = symshape.trace(fn, ROWS)
        assert torch.equal(traced(ROWS), ROWS * 2)


def test_calls_later_on_cite_the_program_too() -> None:
    compiled = symshape.compile(lambda x: x.std(1))
    x = torch.randn(5, 1)
    first = _records(lambda: compiled(x))
    assert len(first) == 1
    for _ in range(3):
        assert _records(lambda: compiled(x)) == first
    assert compiled.stats().traces == 1


def test_other_threads_warn_as_ever() -> None:
    def elsewhere() -> None:
        warnings.warn("elsewhere", stacklevel=1)

    def call() -> None:
        with told_as_in_eager(serves=True):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            warnings.warn("here", stacklevel=1)

    told = _records(call)
    line = elsewhere.__code__.co_firstlineno
    assert [(message, at - line) for _, message, _, at in told] == [("elsewhere", 1), ("here", 8)]


def test_filters_and_functions_are_put_back() -> None:
    before, filters = (warnings.warn, warnings.warn_explicit), warnings.filters
    items = list(filters)
    symshape.trace(lambda x: x * 2, ROWS)
    with pytest.raises(UnsupportedError):
        symshape.trace(lambda x: str(x), ROWS)
    symshape.compile(lambda x: x * 2)(ROWS)
    assert (warnings.warn, warnings.warn_explicit) == before
    assert warnings.filters is filters
    assert list(filters) == items


def test_filters_that_a_program_sets_stay() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        warnings.simplefilter("ignore", FutureWarning)
        return F.softmax(x)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        before = warnings.filters
        symshape.trace(fn, ROWS)
        assert warnings.filters is before
        assert ("ignore", None, FutureWarning, None, 0) in warnings.filters
    assert len(told) == 1


def test_texts_of_the_program_that_look_like_names_stay() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.mse_loss(x, y)
        warnings.warn("s0 and s1", stacklevel=1)
        return loss

    told = _records(lambda: symshape.trace(fn, ROWS, torch.randn(5, 1)))
    assert [message[:14] for _, message, _, _ in told] == ["Using a target", "s0 and s1"]


def test_new_sizes_of_a_program_that_has_not_warned_look_for_no_warnings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a GPT-2's step this took 1.4 of 19 ms, since each op tells Python's warnings there."""
    looked: list[Any] = []
    plain = compiled_module.kernels_as_in_eager

    def looking(fn: Any) -> Any:
        looked.append(fn)
        return plain(fn)

    monkeypatch.setattr(compiled_module, "kernels_as_in_eager", looking)
    double: Any = symshape.compile(lambda x: x * 2, dynamic=True)
    for size in (3, 4, 5, 6, 7):
        double(torch.ones(size))
    assert len(looked) == double.stats().traces == 1
