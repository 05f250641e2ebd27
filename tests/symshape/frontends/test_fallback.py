"""``symshape.compile`` where a call cannot be traced: it runs the function itself, once, and says
so.
"""

from __future__ import annotations

import io
import random
import threading
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import symshape
from symshape import DataDependentError, FallbackWarning, Options, UnsupportedError, events
from tests.symshape.frontends.calling import nested, same


def branches(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else -x


@pytest.fixture
def told() -> Iterator[list[events.RanEagerly]]:
    seen: list[events.RanEagerly] = []
    unsubscribe = events.subscribe(
        lambda each: seen.append(each) if isinstance(each, events.RanEagerly) else None
    )
    yield seen
    unsubscribe()


def quietly(fn: Any, *args: Any, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        return fn(*args, **kwargs)


def test_it_runs_as_it_is_warns_once_and_counts(told: list[events.RanEagerly]) -> None:
    f = symshape.compile(branches)
    with pytest.warns(
        FallbackWarning, match=r"branches cannot be traced.*(?s:.)*test_fallback\.py"
    ) as caught:
        results = [f(x) for x in (torch.ones(3), -torch.ones(3), torch.ones(3), torch.ones(4))]
    assert all(
        map(
            same,
            results,
            map(branches, (torch.ones(3), -torch.ones(3), torch.ones(3), torch.ones(4))),
        )
    )
    assert len(caught) == 1
    assert caught[0].filename == __file__
    stats = f.stats()
    assert (stats.calls, stats.fallbacks, stats.hits, stats.misses, stats.traces) == (4, 4, 0, 0, 0)
    assert stats.refusals == 2, "the same call is not tried twice, another size is"
    assert len(told) == 4
    assert "if x.sum() > 0" in told[0].place
    explained = f.explain_fallback()
    assert "4 calls of 4" in explained
    assert "tried 2 times" in explained
    assert "if x.sum() > 0" in explained
    f.reset()
    assert f.stats().fallbacks == 0
    assert "none fell back" in f.explain_fallback()
    with pytest.warns(FallbackWarning):
        f(torch.ones(3))


def test_each_reason_of_one_structure_is_told_with_its_calls() -> None:
    draws = True

    def changes(x: torch.Tensor) -> torch.Tensor:
        if draws:
            return x * random.random()
        torch.manual_seed(3)
        return x + 1

    f = symshape.compile(changes)
    quietly(f, torch.ones(3))
    draws = False
    for length in range(4, 40):
        quietly(f, torch.ones(length))
    explained = f.explain_fallback()
    assert explained.count("[SYM203]") == explained.count("[SYM204]") == 1
    counted = [int(line.split()[0]) for line in explained.splitlines()[1:] if "tried" in line]
    assert (
        sum(counted) + sum(int(line.split()[0]) for line in f._eager.lines()) == f.stats().fallbacks
    )


def test_where_warnings_are_errors_each_of_these_calls_is_one() -> None:
    f = symshape.compile(branches)
    for _ in range(2):
        with pytest.raises(FallbackWarning):
            f(torch.ones(3))


def test_fullgraph_raises_instead() -> None:
    f = symshape.compile(branches, fullgraph=True)
    for _ in range(2):
        with pytest.raises(DataDependentError):
            f(torch.ones(3))
    decorated = symshape.compile(fullgraph=True)(branches)
    with pytest.raises(DataDependentError):
        decorated(torch.ones(3))
    assert decorated.stats().fallbacks == 0


def test_one_size_does_not_poison_the_others() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return branches(x) if x.size(0) == 7 else x + 1

    compiled = symshape.compile(f)
    for size in (7, 3, 7, 4, 7, 5, 6, 7, 8):
        assert same(quietly(compiled, torch.ones(size)), f(torch.ones(size)))
    stats = compiled.stats()
    assert stats.fallbacks == 4
    assert stats.traces == 2
    assert stats.refusals <= 3


def test_an_entry_made_later_serves_what_was_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return branches(x) if x.size(0) == 7 and FLAG else x + 1

    FLAG = True
    compiled = symshape.compile(f, dynamic=True)
    quietly(compiled, torch.ones(7))
    FLAG = False
    compiled(torch.ones(4))
    compiled(torch.ones(7))
    assert compiled.stats().fallbacks == 1


def test_another_state_is_tried() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return branches(x) if self.training else x + 1

    model = Model()
    f = symshape.compile(model)
    quietly(f, torch.ones(3))
    model.eval()
    for _ in range(3):
        assert same(f(torch.ones(3)), torch.ones(3) + 1)
    assert (f.stats().fallbacks, f.stats().traces) == (1, 1)


def test_a_stream_of_refused_calls_is_tried_a_few_times() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls: set[int] = set()  # which cannot be written again

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.add(len(self.calls))
            return x * len(self.calls)

    model = Counter()
    f = symshape.compile(model)
    for number in range(1, 200):
        assert same(quietly(f, torch.ones(number)), torch.ones(number) * number)
    assert len(model.calls) == 199
    assert f.stats().fallbacks == 199
    assert f.stats().refusals < 10


def test_nothing_is_done_twice() -> None:
    log: list[str] = []
    notes: dict[str, Any] = {}
    drawn: list[float] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        log.append("called")
        notes["n"] = notes.get("n", 0) + 1
        print("hello")
        drawn.append(random.random())
        drawn.append(np.random.rand())
        x.mul_(2)
        return torch.rand(2) + branches(x)

    results = []
    for run in (f, symshape.compile(f)):
        log.clear()
        notes.clear()
        drawn.clear()
        random.seed(3)
        np.random.seed(3)
        torch.manual_seed(3)
        x = torch.ones(2)
        with redirect_stdout(io.StringIO()) as printed:
            result = quietly(run, x)
        results.append(
            (result.tolist(), x.tolist(), printed.getvalue(), list(log), dict(notes), list(drawn))
        )
    assert results[0] == results[1]


def test_what_a_program_prints_is_printed_by_every_call() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        print("hello")
        return x + 1

    compiled = symshape.compile(f)
    with redirect_stdout(io.StringIO()) as printed:
        for _ in range(3):
            quietly(compiled, torch.ones(2))
    assert printed.getvalue() == "hello\n" * 3
    with redirect_stdout(io.StringIO()) as printed, pytest.raises(UnsupportedError, match="prints"):
        symshape.compile(f, fullgraph=True)(torch.ones(2))
    assert printed.getvalue() == ""
    with redirect_stdout(io.StringIO()) as printed:
        symshape.trace(f, torch.ones(2))
    assert printed.getvalue() == "hello\n"


def test_what_the_program_catches_of_ours_is_a_refusal() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * 2 if x.sum() > 0 else x
        except Exception:
            return x * 0

    with pytest.raises(DataDependentError):
        symshape.compile(f, fullgraph=True)(torch.ones(2))
    with pytest.raises(DataDependentError):
        symshape.trace(f, torch.ones(2))
    assert same(quietly(symshape.compile(f), torch.ones(2)), torch.ones(2) * 2)


class TestErrorsOfTheProgram:
    def test_its_own(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            if x.size(0) > 3:
                raise LookupError("too long")
            return x + 1

        compiled = symshape.compile(f)
        for _ in range(3):
            with pytest.raises(LookupError, match="too long") as raised:
                compiled(torch.ones(5))
            assert raised.value.__context__ is None
        assert compiled.stats().fallbacks == 3
        assert compiled.stats().refusals == 1
        assert same(compiled(torch.ones(2)), torch.ones(2) + 1)

    @pytest.mark.parametrize("fullgraph", [True, False])
    def test_what_it_did_before(self, fullgraph: bool) -> None:
        log: list[int] = []
        generator = torch.Generator()

        def f(x: torch.Tensor) -> torch.Tensor:
            log.append(x.size(0))
            x.add_(torch.rand(1, generator=generator))
            raise LookupError

        seen = []
        for run in (f, symshape.compile(f, fullgraph=fullgraph)):
            log.clear()
            generator.manual_seed(3)
            x = torch.ones(3)
            with pytest.raises(LookupError):
                run(x)
            seen.append((x.tolist(), list(log), generator.get_state().tolist()))
        assert seen[0] == seen[1]

    def test_one_that_only_tracing_meets(self) -> None:
        class Odd(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                if torch.compiler.is_compiling():
                    raise TypeError("what is this?")
                return x + 1

        for fullgraph in (False, True):  # it is traced as eager runs it
            compiled = symshape.compile(Odd(), fullgraph=fullgraph)
            assert same(compiled(torch.ones(1)), torch.ones(1) + 1)
            assert symshape.compiled_of(compiled).stats().fallbacks == 0

    def test_both_reasons_of_one_that_neither_way_traces(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            if torch.compiler.is_compiling():
                raise TypeError("what is this?")
            return x + 1 if x.sum() > 0 else x

        compiled = symshape.compile(f)
        with pytest.warns(
            FallbackWarning,
            match=r"(?s)known only at run time.*is_compiling\(\) true.*what is this",
        ):
            assert same(compiled(torch.ones(2)), torch.ones(2) + 1)

    def test_of_an_operator(self) -> None:
        f = symshape.compile(lambda x, y: x + y)
        with pytest.raises(RuntimeError, match="must match the size of tensor b") as raised:
            f(torch.ones(3), torch.ones(4))
        assert not isinstance(raised.value, symshape.SymShapeError)
        assert f(torch.ones(3), torch.ones(3)).shape == (3,)

    def test_a_call_that_does_not_fit(self) -> None:
        f = symshape.compile(lambda x, scale=1: x * scale)
        with pytest.raises(TypeError, match="unexpected keyword argument 'scal'"):
            f(torch.ones(3), scal=2)

    def test_leaving_the_program(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            print("bye")
            raise SystemExit(3)

        with redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit):
            quietly(symshape.compile(f), torch.ones(1))
        assert printed.getvalue() == "bye\n"

    def test_an_interrupt_is_nobodys(self) -> None:
        calls = []

        def f(x: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            symshape.compile(f)(torch.ones(1))

    def test_what_was_asked_of_us_is_raised(self) -> None:
        f = symshape.compile(lambda x: x.view(4), dynamic={"x": {0: symshape.Dim("n", min=2)}})
        with pytest.raises(symshape.ConstraintViolation):
            f(torch.ones(4))
        with pytest.raises(symshape.DimError):
            symshape.compile(lambda x: x, dynamic={"y": {0: "n"}})(torch.ones(4))


@pytest.mark.parametrize(
    "bad",
    [
        torch.eye(3).to_sparse(),
        nested(),
        torch.ones(3, dtype=torch.complex64).conj(),
        {1, 2},
        bytearray(b"x"),
    ],
)
def test_arguments_that_cannot_be_traced(bad: Any) -> None:
    def f(x: torch.Tensor, extra: Any) -> torch.Tensor:
        if extra is not bad and extra != 4:
            raise LookupError
        return x * 2

    compiled = symshape.compile(f)
    with pytest.warns(FallbackWarning, match="argument extra"):
        assert same(compiled(torch.ones(3), bad), torch.ones(3) * 2)
    for _ in range(20):
        compiled(torch.ones(3), bad)
    assert compiled.stats().fallbacks == 21
    assert same(compiled(torch.ones(3), 4), torch.ones(3) * 2)
    assert compiled.stats().traces == 1


def test_inside_another_trace_it_is_a_part_of_that() -> None:
    inner = symshape.compile(branches)
    outer = symshape.compile(lambda x: inner(x) + 1)
    with pytest.warns(FallbackWarning) as caught:
        assert same(outer(torch.ones(2)), torch.ones(2) * 3)
    assert len(caught) == 2, (
        "one for each: the outer one runs the inner one, which is called for itself then"
    )
    assert inner.stats().fallbacks == outer.stats().fallbacks == 1


def test_verified_functions_fall_back_too() -> None:
    f = symshape.compile(branches, options=Options(verify=1))
    for _ in range(3):
        assert same(quietly(f, torch.ones(3)), torch.ones(3) * 2)
    assert (f.stats().fallbacks, f.stats().verified, f.stats().calls) == (3, 0, 3)


def test_threads_fall_back_side_by_side() -> None:
    f = symshape.compile(branches)
    wrong: list[int] = []

    def work(number: int) -> None:
        for size in range(1, 30):
            x = torch.full((size,), float(number))
            if not same(f(x), branches(x)):
                wrong.append(size)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        threads = [threading.Thread(target=work, args=(number,)) for number in (1, -1, 2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert not wrong
    assert f.stats().calls == 87


def test_with_fullgraph_what_is_new_is_tried_at_once() -> None:
    """A refusal that no longer holds would have the program run, with its effects, and raise
    nevertheless.
    """
    weight = {"now": torch.ones(3).requires_grad_()}

    def program(x: torch.Tensor) -> torch.Tensor:
        weight["now"].add_(1)
        return x + weight["now"]

    compiled = symshape.compile(program, fullgraph=True)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="leaf Variable"):
            compiled(torch.ones(3))
    weight["now"] = torch.ones(3)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
    assert torch.equal(weight["now"], torch.full((3,), 2.0))


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.trace:DeprecationWarning",
    "ignore:.*torch.jit.trace:FutureWarning",
    "ignore::torch.jit.TracerWarning",
)
def test_under_jit_trace_the_function_runs_as_it_is() -> None:
    """Sizes are tensors there: a graph would run with the numbers of the call, in the module that
    is traced.
    """

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] * 2, -1) * x.shape[0]

    x, other = torch.randn(3, 4), torch.randn(6, 4)
    for warm in (False, True):
        compiled, strict = symshape.compile(fn), symshape.compile(fn, fullgraph=True)
        for each in (compiled, strict) if warm else ():
            each(x), each(other)
        with pytest.warns(symshape.FallbackWarning, match=r"torch\.jit\.trace is around the call"):
            traced: Any = torch.jit.trace(compiled, (x,), check_trace=False)  # type: ignore[no-untyped-call]
        assert torch.equal(traced(other), fn(other))
        with pytest.raises(
            symshape.UnsupportedError, match=r"torch\.jit\.trace is around the call"
        ):
            torch.jit.trace(strict, (x,), check_trace=False)  # type: ignore[no-untyped-call]
        assert torch.equal(compiled(other), fn(other))
