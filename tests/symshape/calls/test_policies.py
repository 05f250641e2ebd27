"""What the caller says about sizes: `dynamic=`, Dims, torch.export's spelling, and marks on
tensors.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import symshape
from symshape import ConstraintViolation, Dim, DimError, Options, Policy, Traced
from tests.symshape.eager import agree, symbolic_sizes

R = torch.ones


def sizes(traced: Traced, path: str = "x") -> str:
    return ", ".join(symbolic_sizes(traced, path))


def add(x: torch.Tensor, y: torch.Tensor | None = None, n: int = 2) -> torch.Tensor:
    return x * n if y is None else x * n + y.sum()


# -- the whole call at once


def test_by_default_sizes_are_symbols_and_integers_are_constants() -> None:
    traced = symshape.trace(add, R(3, 4), None, 5)
    assert sizes(traced) == "s0, s1"
    assert not traced.check(R(3, 4), None, 6)
    assert "n" in traced.explain(R(3, 4), None, 6)[0]


def test_true_makes_integers_symbols_too() -> None:
    traced, seen = agree(
        add, (R(3), None, 5), (R(9), None, -4), (R(0), None, 0), (R(1), None, 1), dynamic=True
    )
    assert set(seen) == {"equal"}
    assert list(traced.symbols) == ["s0", "s1"]
    assert not traced.guards
    assert not traced.check(R(3), None, True)  # a bool is not an integer
    assert not traced.check(R(3), None, 5.0)


def test_false_makes_everything_static() -> None:
    traced, seen = agree(add, (R(3, 4),), (R(3, 4),), (R(3, 5),), dynamic=False)
    assert seen == ["equal", "equal", "refused"]
    assert not traced.symbols
    assert "static" in traced.explain(R(3, 5))[0]


def test_a_negative_integer_argument_is_any_integer() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        if n >= 0:
            return x + n
        return x - n

    traced, seen = agree(fn, (R(3), 2), (R(3), 0), (R(3), -1), (R(3), -100), dynamic=True)
    assert seen == ["equal", "equal", "refused", "refused"]
    assert [str(guard.term) for guard in traced.guards] == ["s1 >= 0"]


# -- by argument


@pytest.mark.parametrize(
    ("dynamic", "expected"),
    [
        ({"x": {0: "batch"}}, "batch, 4"),
        ({"x": {0: Dim("batch"), 1: Dim("wide", min=2, max=64)}}, "batch, wide"),
        ({"x": ["batch", None]}, "batch, 4"),
        ({"x": ("batch", 4)}, "batch, 4"),
        ({"x": {-1: "wide"}}, "3, wide"),
        ({"x": "dynamic"}, "s0, s1"),
        ({"x": Policy.AUTO}, "s0, s1"),
        ({"x": True}, "s0, s1"),
        ({"x": {0: Policy.DYNAMIC, 1: Policy.STATIC}}, "s0, 4"),
        ({"x": {0: Policy.UNBACKED}}, "u0, 4"),
        ({"x": None}, "3, 4"),
        ({}, "3, 4"),
        ([{0: "batch"}], "batch, 4"),
        (({0: Policy.AUTO, 1: True},), "s0, s1"),
        ({"x": {0: torch.export.Dim("batch", min=1, max=32)}}, "batch, 4"),
        ({"x": {0: torch.export.Dim.AUTO, 1: torch.export.Dim.STATIC}}, "s0, 4"),
        ({"x": (torch.export.Dim.DYNAMIC, torch.export.Dim.AUTO)}, "s0, s1"),
    ],
)
def test_descriptions(dynamic: Any, expected: str) -> None:
    traced = symshape.trace(add, R(3, 4), dynamic=dynamic)
    assert sizes(traced) == expected
    assert torch.equal(traced(R(3, 4)), R(3, 4) * 2)


@pytest.mark.parametrize(
    ("dynamic", "said"),
    [
        ({"x": {0: 8}}, "x.size(0) is 3 in this call, but is declared to be 8"),
        ({"x": {-2: 8}}, "x.size(-2) is 3 in this call, but is declared to be 8"),
        ({"x": ("batch", 5)}, "x.size(1) is 4 in this call, but is declared to be 5"),
        (({0: 8},), "x.size(0) is 3 in this call, but is declared to be 8"),
        ({"x": 3}, "x.size(1) is 4 in this call, but is declared to be 3"),
        ({"x": {0: 0}}, "x.size(0) is 3 in this call, but is declared to be 0"),
    ],
)
def test_a_number_is_the_size(dynamic: Any, said: str) -> None:
    """As in torch.export, which refuses another size, too."""
    with pytest.raises(DimError, match=re.escape(said)):
        symshape.trace(add, R(3, 4), dynamic=dynamic)
    compiled = symshape.compile(add, dynamic=dynamic)
    with pytest.raises(DimError, match=re.escape(said)):
        compiled(R(3, 4))
    assert compiled.stats().traces == 0


def test_a_number_is_the_size_of_every_call() -> None:
    compiled = symshape.compile(add, dynamic={"x": {0: 3, 1: "wide"}})
    for wide in (4, 5):
        assert torch.equal(compiled(R(3, wide)), R(3, wide) * 2)
    for _ in range(20):
        with pytest.raises(DimError, match="is 5 in this call, but is declared to be 3"):
            compiled(R(5, 4))
    assert compiled.stats().traces == 1
    assert sizes(symshape.trace(add, R(3, 4), dynamic={"x": {0: 3, 1: "wide"}})) == "3, wide"


def test_a_number_is_the_value_of_an_integer() -> None:
    def scaled(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    compiled = symshape.compile(scaled, dynamic={"n": 2})
    assert torch.equal(compiled(R(3), 2), R(3) * 2)
    with pytest.raises(DimError, match="n is 3 in this call, but is declared to be 2"):
        compiled(R(3), 3)


def test_descriptions_of_nested_arguments() -> None:
    def fn(batch: dict[str, Any], *rest: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        return (
            batch["ids"].sum()
            + batch["pair"][0].sum()
            + rest[0].sum()
            + rest[1].sum()
            + more["last"].sum()
        )

    args = {"ids": R(2, 3), "pair": (R(4), R(5))}, R(6), R(7)
    dynamic = {
        "batch": {"ids": {0: "b"}, "pair": [{0: "p"}, None]},
        "rest": ({0: "r"}, None),
        "kwargs": {"last": {0: "l"}},
    }
    traced = symshape.trace(fn, *args, dynamic=dynamic, last=R(8))
    found = [tuple(map(str, each.value.spec.sizes)) for each in traced.graph.inputs]
    assert found == [("b", "3"), ("p",), ("5",), ("r",), ("7",), ("l",)]
    assert [each.path for each in traced.graph.inputs] == [
        "batch['ids']",
        "batch['pair'][0]",
        "batch['pair'][1]",
        "rest[0]",
        "rest[1]",
        "last",
    ]
    assert traced.explain(*args, last=R(8)) == []
    args[0]["ids"] = R(2, 9)
    assert traced.explain(*args, last=R(8)) == [
        "batch['ids'].size(1) == 3, but batch['ids'].size(1) = 9 (it was static in the trace)"
    ]


def test_one_policy_for_all_of_an_argument() -> None:
    traced = symshape.trace(
        lambda pair: pair[0] + pair[1].sum(), (R(2), R(3, 4)), dynamic={"pair": "auto"}
    )
    assert [str(s) for each in traced.graph.inputs for s in each.value.spec.sizes] == [
        "s0",
        "s1",
        "s2",
    ]


def test_an_integer_argument_as_a_dim() -> None:
    dynamic = {"x": {0: "size"}, "n": Dim("count", min=1, max=8)}
    traced, seen = agree(
        add, (R(3), None, 5), (R(4), None, 8), (R(4), None, 9), (R(4), None, 0), dynamic=dynamic
    )
    assert seen == ["equal", "equal", "refused", "refused"]
    assert "Dim('count', min=1, max=8)" in traced.explain(R(4), None, 9)[0]


# -- bounds


def test_bounds_become_guards_and_facts() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        assert x.size(0) >= 8
        assert x.size(0) % 8 == 0
        return x.view(-1, 8) if x.size(0) // 8 * 8 == x.size(0) else x

    dim = Dim("n", min=5, max=64, multiple_of=8)
    traced, seen = agree(fn, *[(R(n),) for n in (16, 8, 64, 72, 0, 12)], dynamic={"x": {0: dim}})
    assert seen == ["equal", "equal", "equal", "refused", "refused", "refused"]
    assert "Dim('n', min=5, max=64, multiple_of=8)" in traced.explain(R(72))[0]


def test_one_name_is_one_symbol() -> None:
    traced, seen = agree(
        lambda x, y: x + y,
        (R(3), R(3)),
        (R(5), R(5)),
        (R(5), R(1)),
        (R(1), R(1)),
        dynamic={"x": {0: "n"}, "y": {0: "n"}},
    )
    assert seen == ["equal", "equal", "refused", "equal"]
    assert list(traced.symbols) == ["n"]
    assert not traced.guards


def test_names_that_symshape_uses_itself() -> None:
    """A Dim may be called s0, u0, f0 or v0: no other symbol takes its name."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[Any, ...]:
        n = y.sum().long().item()
        torch._check(n >= 0)
        return x.new_zeros(n), y * y.mean().item(), x.size(0), y.size(0), x[: x.size(0) // 2]

    for first, second in (
        ("u0", "f0"),
        ("s1", "s0"),
        ("v1", "v0"),
        ("n0", "t0"),
        ("values", "leaves"),
    ):
        dynamic = {"x": {0: first}, "y": {0: second}}
        traced, seen = agree(fn, (R(5, 2), R(3)), (R(4, 2), R(7)), (R(0, 2), R(1)), dynamic=dynamic)
        assert set(seen) == {"equal"}
        assert {first, second} < set(traced.symbols)


# -- dynamic is a promise


FIXING = [
    lambda x: x + R(3, 1),
    lambda x: x.view(3, 4),
    lambda x: [x[i] for i in range(x.size(0))],
    lambda x: x if x.size(0) == 3 else x + 1,
]


@pytest.mark.parametrize("fn", FIXING)
def test_a_dynamic_size_may_not_be_fixed(fn: Any) -> None:
    symshape.trace(fn, R(3, 4))  # by default it may
    with pytest.raises(ConstraintViolation) as raised:
        symshape.trace(fn, R(3, 4), dynamic={"x": {0: Dim("batch")}})
    error = raised.value
    assert error.symbol == "batch"
    assert error.source == "x.size(0)"
    assert "fixes it to 3" in str(error)
    assert "test_policies.py" in str(error)


def test_a_dim_that_leaves_one_value_is_no_violation() -> None:
    traced = symshape.trace(FIXING[0], R(3, 4), dynamic={"x": {0: Dim("batch", min=3, max=3)}})
    assert traced.check(R(3, 9)) is False  # the other dimension is static
    assert traced.check(R(3, 4))


def test_a_program_may_narrow_a_dynamic_size() -> None:
    traced, seen = agree(
        lambda x: x if x.size(0) > 2 else x + 1,
        (R(3),),
        (R(4),),
        (R(1),),
        dynamic={"x": {0: Dim("batch")}},
    )
    assert seen == ["equal", "equal", "refused"]
    assert [str(guard.term) for guard in traced.guards] == ["batch >= 3"]


# -- marks on tensors


def marked(how: Any, *arguments: Any, **keywords: Any) -> torch.Tensor:
    x = torch.ones(3, 4)
    how(x, *arguments, **keywords)
    return x


def test_marks() -> None:
    dynamo = torch._dynamo
    for tensor, expected in (
        (marked(dynamo.mark_dynamic, 0), "s0, 4"),
        (marked(dynamo.mark_dynamic, [0, 1]), "s0, s1"),
        (marked(dynamo.maybe_mark_dynamic, 1), "3, s0"),
        (marked(dynamo.decorators.mark_unbacked, 0), "u0, 4"),
    ):
        assert sizes(symshape.trace(add, tensor, dynamic=False)) == expected
    assert sizes(symshape.trace(add, marked(dynamo.mark_static, 0))) == "3, s0"
    assert sizes(symshape.trace(add, marked(dynamo.mark_static))) == "3, 4"


def test_mark_dynamic_is_a_promise_and_maybe_is_not() -> None:
    fixing = FIXING[0]
    with pytest.raises(ConstraintViolation, match=r"x\.size\(0\)"):
        symshape.trace(fixing, marked(torch._dynamo.mark_dynamic, 0))
    traced = symshape.trace(fixing, marked(torch._dynamo.maybe_mark_dynamic, 0))
    assert [str(guard.term) for guard in traced.guards] == ["s0 == 3"]


def test_mark_dynamic_with_bounds() -> None:
    x = marked(torch._dynamo.mark_dynamic, 0, min=2, max=8)
    traced = symshape.trace(add, x, dynamic=False)
    assert [traced.check(R(n, 4)) for n in (1, 2, 8, 9)] == [False, True, True, False]


def test_bounded_marks_of_two_arguments_are_two_symbols() -> None:
    ab, ba = (marked(torch._dynamo.mark_dynamic, 0, min=2, max=8) for _ in range(2))
    traced = symshape.trace(lambda d: d["ab"] + d["ba"].sum(), {"ab": ab, "ba": ba}, dynamic=False)
    assert len(traced.symbols) == 2
    assert traced.check({"ab": R(4, 4), "ba": R(7, 4)})


def test_an_unbacked_size_may_not_even_be_asked() -> None:
    from symshape import DataDependentError

    def asks(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.size(0) > 2 else x

    with pytest.raises(DataDependentError, match=r"x\.size\(0\)"):
        symshape.trace(asks, marked(torch._dynamo.decorators.mark_unbacked, 0))
    traced, seen = agree(
        lambda x: x * 2 + x.size(0),
        (R(3, 4),),
        (R(0, 4),),
        (R(1, 4),),
        dynamic={"x": {0: "unbacked"}},
    )
    assert seen == ["equal", "equal", "equal"]
    assert traced.symbols["u0"].hint is None


# -- 0, 1 and equal sizes


def test_zero_one_and_equal_sizes_are_not_special() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x * 2, y], 0).sum(1)

    for first in ((1, 1), (0, 1), (3, 3)):
        traced, seen = agree(
            fn,
            (R(first[0], 4), R(first[1], 4)),
            (R(2, 4), R(5, 4)),
            (R(0, 4), R(1, 4)),
            (R(1, 4), R(0, 4)),
        )
        assert set(seen) == {"equal"}
        assert [str(guard.term) for guard in traced.guards] == ["s1 == s3"]


def test_options_ask_for_pytorchs_habits() -> None:
    special = Options(specialize_zero_one=True)
    traced = symshape.trace(lambda x: x * 2, R(1, 5, 0), options=special)
    assert sizes(traced) == "1, s0, 0"
    assert traced.check(R(1, 9, 0))
    assert not traced.check(R(2, 9, 0))
    ducks = symshape.trace(
        lambda x, y: (x * 2, y), R(3, 3), R(3, 5), options=Options(duck_shape=True)
    )
    assert (sizes(ducks), sizes(ducks, "y")) == ("s0, s0", "s0, s1")
    assert ducks.check(R(4, 4), R(4, 9))
    assert not ducks.check(R(4, 5), R(4, 9))
    assert "x.size(1)" in ducks.explain(R(4, 5), R(4, 9))[0]


# -- malformed


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [
        ({"z": {0: "n"}}, r"names the argument 'z', but the call has x"),
        ({"x": {5: "n"}}, r"x has 2 dimension\(s\), so there is no dimension 5"),
        ({"x": {-3: "n"}}, r"no dimension -3"),
        ({"x": {"0": "n"}}, r"no dimension '0'"),
        ({"x": ["n"]}, r"x has 2 dimension\(s\), but 1 were described"),
        ({"x": {0: 3.5}}, r"x\.size\(0\): expected a Dim"),
        ({"x": {0: [1]}}, r"x\.size\(0\): expected a Dim"),
        ({"x": {0: "not a name"}}, r"identifier"),
        (
            {"x": {0: Dim("n", min=4)}},
            r"x\.size\(0\) is 3 in this call, which is outside the declared Dim\('n', min=4\)",
        ),
        ({"x": {0: Dim("n", max=2)}}, r"outside the declared"),
        ({"x": {0: Dim("n", multiple_of=2)}}, r"outside the declared"),
        ({"x": {0: "n", 1: "n"}}, r"'n'.*x\.size\(0\) and x\.size\(1\).*3 and 4"),
        (
            {"x": {0: Dim("n"), 1: Dim("n", max=9)}},
            r"have the same name but different bounds or policies",
        ),
        ({"n": {0: "k"}}, r"n: expected a Dim"),
        ("x", r"dynamic must be"),
        (3, r"dynamic must be"),
        ([None, None, None, None, None], r"describes 5 arguments"),
        ({"y": {0: "k"}}, r"y is None, which has no size"),
    ],
)
def test_malformed_descriptions(dynamic: Any, message: str) -> None:
    with pytest.raises(DimError, match=message):
        symshape.trace(add, R(3, 4), None, 5, dynamic=dynamic)


def test_a_derived_dim_of_export_is_refused_clearly() -> None:
    batch = torch.export.Dim("batch")
    with pytest.raises(
        DimError, match=r"x\.size\(0\): 2\*batch is derived from batch, .* give it another name"
    ):
        symshape.trace(add, R(6, 4), dynamic={"x": {0: 2 * batch}})
    traced = symshape.trace(
        lambda x, y: x.repeat(2, 1) + y,
        R(3, 4),
        R(6, 4),
        dynamic={"x": {0: batch}, "y": {0: "double"}},
    )
    assert traced.check(R(5, 4), R(10, 4))
    assert not traced.check(R(5, 4), R(9, 4))
