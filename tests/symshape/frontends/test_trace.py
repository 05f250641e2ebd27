"""`symshape.trace` and what it answers: data to look at, a check, explanations, and a callable."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import guards
import symshape
from symshape import GuardViolation, InputError, Traced, events
from tests.symshape.eager import agree, assert_same

R = torch.ones


def joined(x: torch.Tensor, y: torch.Tensor, flag: bool = True) -> dict[str, Any]:
    both = torch.cat([x, y])
    if both.size(0) % 2 == 0 and flag:
        both = both + 1
    return {
        "both": both,
        "sizes": (x.size(0), y.size(0) * 2),
        "shape": both.shape,
        "name": "joined",
    }


def test_what_a_trace_shows() -> None:
    traced = symshape.trace(joined, R(3, 2), R(5, 2))
    assert {
        name: (symbol.hint, symbol.sources[0].text()) for name, symbol in traced.symbols.items()
    } == {
        "s0": (3, "x.size(0)"),
        "s1": (2, "x.size(1)"),
        "s2": (5, "y.size(0)"),
        "s3": (2, "y.size(1)"),
    }
    assert {guard.term for guard in traced.guards} == {
        guards.parse("s1 == s3"),
        guards.parse("(s0 + s2) % 2 == 0"),
    }
    specs = traced.output_specs
    assert [str(size) for size in specs["both"].sizes] == ["s0 + s2", "s1"]
    assert [str(size) for size in specs["sizes"]] == ["s0", "2*s2"]
    assert specs["name"] == "joined"
    assert (
        repr(traced)
        == f"<Traced joined: {len(traced.graph.nodes)} ops, symbols s0, s1, s2, s3, 2 guards>"
    )


def test_results_keep_their_structure_and_kinds() -> None:
    traced, seen = agree(
        joined, (R(3, 2), R(5, 2)), (R(1, 4), R(1, 4)), (R(0, 2), R(2, 2)), (R(3, 2), R(4, 2))
    )
    assert seen == ["equal", "equal", "equal", "refused"]
    result = traced(R(3, 2), R(5, 2))
    assert type(result["shape"]) is torch.Size
    assert type(result["sizes"][0]) is int


def test_explain_and_call_agree_with_check() -> None:
    traced = symshape.trace(joined, R(3, 2), R(5, 2))
    assert traced.explain(R(3, 2), R(5, 2)) == []
    for args, parts in (
        ((R(3, 2), R(4, 2)), ["x.size(0)", "y.size(0)", "% 2"]),
        ((R(3, 2), R(5, 3)), ["x.size(1)", "y.size(1)", "2", "3"]),
        ((R(3, 2), R(5, 2), False), ["flag"]),
        ((R(3), R(5, 2)), ["x is", "1 dim"]),
    ):
        assert not traced.check(*args)
        reasons = traced.explain(*args)
        for part in parts:
            assert any(part in reason for reason in reasons), reasons
        with pytest.raises(GuardViolation) as raised:
            traced(*args)
        assert list(raised.value.violations) == reasons
    assert len(traced.explain(R(3, 2), R(4, 5))) == 2


def test_keywords_and_positions_are_different_calls() -> None:
    traced = symshape.trace(joined, R(3, 2), y=R(5, 2))
    assert traced.check(R(3, 2), y=R(5, 2))
    assert not traced.check(R(3, 2), R(5, 2))


@pytest.mark.slow
def test_the_example_is_not_kept() -> None:
    import gc
    import weakref

    x = R(3)
    ref = weakref.ref(x)
    traced = symshape.trace(lambda x: x + 1, x)
    del x
    gc.collect()
    assert ref() is None
    assert traced.check(R(3))


def test_print_readable_prints(capsys: pytest.CaptureFixture[str]) -> None:
    traced = symshape.trace(lambda x: x + 1, R(3))
    text = traced.print_readable()
    assert capsys.readouterr().out == text + "\n"
    assert traced.print_readable(print_output=False) == text
    assert capsys.readouterr().out == ""


def test_nothing_is_computed_while_tracing() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.zero_()
        x.resize_as_(x)
        return x / 0

    x = R(3)
    symshape.trace(fn, x)
    assert torch.equal(x, R(3))
    assert x._version == 0


def test_huge_sizes_cost_nothing() -> None:
    x = torch.empty(10**9, 10**6, device="meta")
    traced = symshape.trace(lambda x: (x @ x.mT).softmax(-1).sum(0), x)
    assert not traced.guards


def test_a_trace_inside_a_trace_is_refused() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return symshape.trace(lambda y: y + 1, x)(x)

    with pytest.raises(symshape.SymShapeError):
        symshape.trace(fn, R(3))


def test_recursion_and_comprehensions() -> None:
    def power(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else x @ power(x, n - 1)

    _, seen = agree(lambda x: sum(power(x, n) for n in range(4)), (R(3, 3),), (R(5, 5),))
    assert seen == ["equal", "equal"]


def test_wrong_things_to_trace() -> None:
    with pytest.raises(InputError, match="needs a function or a module"):
        symshape.trace(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"options must be"):
        symshape.trace(lambda x: x, R(3), options={"duck_shape": True})  # type: ignore[arg-type]


def test_decorated_and_built_in_functions() -> None:
    import functools

    def doubled(fn: Any) -> Any:
        @functools.wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs) * 2

        return inner

    @doubled
    def fn(x: torch.Tensor, *, shift: int = 1) -> torch.Tensor:
        return x + shift

    agree(fn, (R(3),), (R(5),), shift=4)
    for builtin in (
        torch.relu,
        torch.Tensor.relu,
        torch.nn.functional.softplus,
        torch.nn.ReLU(),
        torch.sum,
    ):
        agree(builtin, (R(3),), (R(5),))


def test_threads_trace_and_call_at_once() -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            y = (x @ w).relu() * number
            return y[: y.size(0) // 2] if y.size(0) % 2 == 0 else y

        try:
            for n in range(1, 7):
                traced = symshape.trace(fn, R(n, 3), R(3, number + 1))
                assert isinstance(traced, Traced)
                assert_same(fn, traced, R(n, 3), R(3, number + 1))
                assert len(traced.symbols) == 4
        except BaseException as error:  # a thread's errors are looked at below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_other_threads_run_eagerly_while_one_traces() -> None:
    inside, outside = threading.Event(), threading.Event()
    seen: list[torch.Tensor] = []

    def wait(
        event: events.Event,
    ) -> None:  # while fn is traced; the recording would refuse events of threads
        if isinstance(event, events.GuardAdded):
            inside.set()
            assert outside.wait(30)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 2 else x

    def other() -> None:
        assert inside.wait(30)
        seen.append(R(3).reshape(-1, 1) @ R(1, 2))
        outside.set()

    thread = threading.Thread(target=other)
    thread.start()
    unsubscribe = events.subscribe(wait)
    try:
        symshape.trace(fn, R(3), dynamic=True)
    finally:
        unsubscribe()
    thread.join()
    assert type(seen[0]) is torch.Tensor
    assert torch.equal(seen[0], R(3, 2))
