"""Sizes and numbers that depend on data: their facts, run-time assertions, and what branching on
them says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from guards.asking.questions import ask
from guards.facts.facts import Facts
from guards.terms import arithmetic, boolean
from symshape import DataDependentError, ProgramError, RuntimeAssertionError, UnsupportedError
from symshape.graph.steps import Assertion
from tests.symshape.eager import agree, check_or_same
from tests.symshape.tracing.looked_at import Found, found_by

R = torch.randn


def facts_of(fn: Callable[..., Any], *args: Any) -> tuple[Facts, Any]:
    """What is known at the end of a trace, and its terms by name (asked inside, where the
    environment is).
    """

    def asking(*inner: Any) -> Any:
        fn(*inner)
        env = inner[0]._tracer.env
        raise Found((env.facts, {name: symbol.term for name, symbol in env.symbols.items()}))

    return found_by(lambda: symshape.trace(asking, *args))  # type: ignore[no-any-return]


SIZES = [
    (lambda x: (x > 0).nonzero(), "u0 <= s0*s1"),
    (lambda x: x[x > 0], "u0 <= s0*s1"),
    (lambda x: x.masked_select(x > 0), "u0 <= s0*s1"),
    (lambda x: x.unique(), "u0 <= s0*s1"),
    (lambda x: x[x[:, 0] > 0], "u0 <= s0"),
    (lambda x: torch.unique_consecutive(x), "u0 <= s0*s1"),
    (lambda x: torch.argwhere(x), "u0 <= s0*s1"),
    (lambda x: torch.where(x > 0)[0], "u0 <= s0*s1"),
]


@pytest.mark.parametrize(("fn", "bound"), SIZES)
def test_sizes_have_the_bounds_of_their_op(fn: Any, bound: str) -> None:
    from guards import parse

    facts, terms = facts_of(fn, R(3, 4))
    assert "u0" in terms
    assert ask(facts, boolean.ge(terms["u0"], 0)) is True
    assert ask(facts, parse.condition(bound)) is True if hasattr(parse, "condition") else True
    upper = boolean.le(
        terms["u0"],
        terms["s0"] if bound == "u0 <= s0" else arithmetic.mul(terms["s0"], terms["s1"]),
    )
    assert ask(facts, upper) is True
    assert ask(facts, boolean.eq(terms["u0"], 1)) is None  # and no more than that


@pytest.mark.parametrize("fn", [case[0] for case in SIZES])
def test_results_at_other_sizes(fn: Any) -> None:
    _, seen = agree(
        fn, (R(3, 4),), (R(5, 2),), (R(1, 1),), (R(0, 3),), (-R(4, 4).abs(),), (R(4, 4).abs(),)
    )
    assert seen.count("equal") >= 5


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[x > 0] * 2 + 1,
        lambda x: torch.cat([x[x > 0], x[x <= 0]]),
        lambda x: x[x > 0].sum(),
        lambda x: x[(x > 0).nonzero()[:, 0]],
        lambda x: x.new_zeros((x > 0).sum().item()),
        lambda x: (x > 0).nonzero().size(0) * 2 + x.size(0),
        lambda x: x[x > 0].unsqueeze(0).expand(3, -1),
        lambda x: x[x > 0].reshape(-1, 1).flatten(),
        lambda x: x.repeat_interleave((x[:, 0] > 0).long(), dim=0),
        lambda x: torch.repeat_interleave((x[:, 0] > 0).long()),
        lambda x: x[x > 0].softmax(0),
        lambda x: torch.arange((x > 0).sum().item()),
        lambda x: x.unique(return_inverse=True, return_counts=True),
        lambda x: x[x > 0].sort()[0],
        lambda x: x.masked_fill(x > 0, x.sum().item()),
        lambda x: x * (x > 0).any().item(),
        lambda x: x.clamp(max=x.mean().item()),
        lambda x: [x.argmax().item(), x.max().item(), (x[0] > 0).all().item()],
        lambda x: torch.bincount((x[:, 0].abs() * 3).long()),
    ],
)
def test_programs_on_data_dependent_sizes(fn: Any) -> None:
    _, seen = agree(fn, (R(3, 4),), (R(5, 2),), (R(1, 1),), (-R(4, 4).abs(),), (R(4, 4).abs(),))
    assert seen.count("equal") >= 4


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + 1 if len(torch.bincount(x)) else x,
        lambda x: torch.bincount(x, minlength=x.size(0) // 3) * 2,
        lambda x: torch.bincount(x, weights=x.float()),
        lambda x: torch.bincount(x[x > 2]) * 2,
        lambda x: torch.unique(x, return_counts=True)[1] * 2,
        lambda x: torch.unique_consecutive(x).size(0) + x,
    ],
)
@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_counts_of_nothing(fn: Any) -> None:
    calls = [(torch.arange(n),) for n in (4, 0, 1, 7)]
    agree(fn, *calls, dynamic=True)
    compiled = symshape.compile(fn, dynamic=True)
    for first in (calls, calls[::-1]):
        for (x,) in first:
            expected, got = fn(x), compiled(x)
            assert (got is x) == (expected is x)
            assert got.dtype == expected.dtype
            assert torch.equal(got, expected)


def test_items_and_lists() -> None:
    def fn(lengths: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        first, second = lengths.tolist()
        torch._check(first + second == x.size(0))
        torch._check(first >= 0)
        torch._check(second >= 0)
        return list(x.split([first, second]))

    example = torch.tensor([2, 3]), R(5)
    traced, seen = agree(fn, example, (torch.tensor([0, 4]), R(4)), (torch.tensor([7, 0]), R(7)))
    assert seen[0] == "equal"
    assert [name for name, symbol in traced.symbols.items() if not symbol.backed] == ["u0", "u1"]
    with pytest.raises(RuntimeAssertionError, match="u0"):
        traced(torch.tensor([2, 2]), R(5))


# -- run-time assertions


def test_a_check_on_data_is_asserted_when_the_graph_runs() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        found = x[x > 0]
        torch._check(found.size(0) >= 2, lambda: "two are needed")
        if found.size(0) > 0:
            return found.sum()
        return x

    traced, _ = agree(fn, (torch.ones(3),), (torch.ones(7),))
    assert [str(step.guard.term) for step in traced.graph.steps if isinstance(step, Assertion)] == [
        "u0 >= 2"
    ]
    with pytest.raises(
        RuntimeAssertionError, match=r"two are needed: u0 >= 2 does not hold \(u0 = 1\)"
    ) as raised:
        traced(torch.tensor([1.0, -1.0]))
    assert "test_undecided.py" in str(raised.value)
    with pytest.raises(RuntimeError):
        fn(torch.tensor([1.0, -1.0]))


def test_an_assertion_stops_before_what_comes_after_it() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        count = (x > 0).sum().item()
        torch._check(count < 3)
        x.zero_()
        return x

    traced = symshape.trace(fn, torch.ones(2))
    x = torch.ones(4)
    with pytest.raises(RuntimeAssertionError):
        traced(x)
    assert x.all()


def test_a_check_on_sizes_is_a_guard() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.size(0) % 2 == 0, lambda: "even, please")
        return x.view(2, -1)

    traced, seen = agree(fn, (torch.ones(4),), (torch.ones(6),), (torch.ones(5),), (torch.ones(0),))
    assert [str(guard.term) for guard in traced.guards] == ["s0 % 2 == 0"]
    assert seen == ["equal", "equal", "refused", "equal"]
    with pytest.raises(ProgramError, match="even, please"):
        symshape.trace(fn, torch.ones(5))


def test_torch_check_and_its_friends() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        n = x.sum().long().item()
        torch._check(n >= 0)
        torch._check(n <= x.size(0))
        torch._check(n < 100)
        torch._check_index(x.size(0) > 0)
        torch._check_value(x.size(0) < 50)
        return x[:n], x.new_zeros(n)

    _, seen = agree(fn, (torch.ones(4),), (torch.ones(9),), (torch.zeros(3),))
    assert seen == ["equal", "equal", "equal"]


def test_a_check_that_contradicts_what_is_known() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        found = x[x > 0]
        torch._check(found.size(0) > x.size(0))
        return found

    with pytest.raises((ProgramError, RuntimeError), match=r"does not hold|Expected"):
        symshape.trace(fn, torch.ones(3))


# -- branching


def branch(x: torch.Tensor) -> torch.Tensor:
    count = (x > 0).sum().item()
    if count > 2:
        return x + 1
    return x


def test_the_error_tells_everything() -> None:
    with pytest.raises(DataDependentError) as raised:
        symshape.trace(branch, torch.ones(3))
    error = raised.value
    assert error.symbols == ("u0",)
    assert error.condition == "u0 >= 3"
    assert error.suggestions == ("torch._check(count >= 3)", "torch._check(count <= 2)")
    for part in (
        "u0",
        "if count > 2:",
        "count = (x > 0).sum().item()",
        "read by aten::_local_scalar_dense",
    ):
        assert part in str(error), part


def use_as_a_number(x: torch.Tensor) -> torch.Tensor:
    return x * hash(x.sum().long().item())


def loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(int(x[0].item())):
        x = x + 1
    return x


def branch_on_a_float(x: torch.Tensor) -> torch.Tensor:
    return x if x.max().item() > 1 else -x


def branch_on_a_tensor(x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > 1 else -x


def branch_on_all(x: torch.Tensor) -> torch.Tensor:
    return x if (x > 0).all() else -x


@pytest.mark.parametrize(
    ("fn", "parts"),
    [
        (use_as_a_number, ["the value of u0", "x.sum().long().item()"]),
        (loop, ["range(int(x[0].item()))"]),
        (branch_on_a_float, ["f0", "torch.where"]),
        (branch_on_a_tensor, ["u0 == 1", "bool read by"]),
        (branch_on_all, ["u0 == 1"]),
        (lambda x: torch.allclose(x, x + 1) or x, ["u0"]),
        (lambda x: x if torch.equal(x, x + 1) else -x, ["u0"]),
    ],
)
def test_other_questions_about_data(fn: Any, parts: list[str]) -> None:
    with pytest.raises(DataDependentError) as raised:
        symshape.trace(fn, torch.ones(3))
    for part in parts:
        assert part in str(raised.value), str(raised.value)


def test_every_suggestion_settles_its_branch() -> None:
    """Followed literally, each suggestion makes the trace succeed."""

    def made(line: str, question: str) -> Any:
        space: dict[str, Any] = {"torch": torch}
        exec(compile(template.format(line=line, question=question), "program.py", "exec"), space)
        return space["fn"]

    template = (
        "def fn(x, y):\n    found = (x > 0).nonzero()\n    n = y.item()\n{line}"
        "    if {question}:\n        return x + 1\n    return x - 1\n"
    )
    questions = [
        "found.size(0) == 0",
        "n > 5",
        "n % 2 == 0",
        "found.size(0) > x.size(0) // 2",
        "n == x.size(0)",
        "n != 3",
    ]
    for question in questions:
        with pytest.raises(DataDependentError) as raised:
            symshape.trace(made("", question), torch.ones(4), torch.tensor(3))
        assert len(raised.value.suggestions) == 2, question
        for suggestion in raised.value.suggestions:
            fn = made(f"    {suggestion}\n", question)
            traced = symshape.trace(fn, torch.ones(4), torch.tensor(3))
            assert any(isinstance(step, Assertion) for step in traced.graph.steps)
            kinds = set()
            for x in (torch.ones(4), torch.zeros(4), torch.tensor([1.0, 0.0])):
                for number in (0, 3, 4, 6, 7):
                    kinds.add(check_or_same(fn, traced, x, torch.tensor(number)))
            assert kinds == {"equal", "equal error"}, (question, suggestion)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ("l = y.tolist()", "return x if sum(l) > 3 else -x"),
            "torch._check(l[0] + l[1] + l[2] > 3)",
        ),
        (("l = y.tolist()", "return [x[:k] for k in l if k > 1]"), "torch._check(l[0] >= 2)"),
        (("l = y.tolist()", "return list(x[:k] for k in l if k > 1)"), "torch._check(l[0] >= 2)"),
        (
            ("l = y.tolist()", "for k in l:", "    if k > 1:", "        x = x + k", "return x"),
            "torch._check(k >= 2)",
        ),
        (
            ("k = y[2].item()", "z = x[:k]", "return z.split(2)"),
            "torch._check((z.size(0) + 1) // 2 == 2)",
        ),
        (("k = y[2].item()", "z = x[:k]", "return list(z)"), "torch._check(z.size(0) == 4)"),
        (
            ("z = y, x[x > 0]", "return x if z[1].size(0) > 1 else -x"),
            "torch._check(z[1].size(0) >= 2)",
        ),
        (("k = (x > 2).any().item()", "return x if k else -x"), "torch._check(k != 1)"),
    ],
)
def test_what_is_suggested_can_be_written_there(lines: tuple[str, ...], said: str) -> None:
    """In words that the line before has; values are filled in."""

    def made(written: tuple[str, ...]) -> Any:
        space: dict[str, Any] = {"torch": torch}
        exec(compile("\n    ".join(("def fn(x, y):", *written)), "program.py", "exec"), space)
        return space["fn"]

    x, y = torch.ones(4), torch.tensor([2, 3, 4])
    for _ in range(4):  # of several numbers, one after the other
        try:
            traced = symshape.trace(made(lines), x, y)
            break
        except DataDependentError as error:
            values = [
                str(error).partition("before that line: ")[2].replace("<its value>", n)
                for n in "24"
            ]
            choices = [each for each in (*error.suggestions, *values) if each]
            assert said in choices or said in lines, choices
            at = next(
                i
                for i, line in enumerate(lines)
                if any(each in line for each in (" if ", "split", "list(z)"))
            )
            chosen = said if said in choices else error.suggestions[0]
            space = " " * (len(lines[at]) - len(lines[at].lstrip()))
            lines = (*lines[:at], space + chosen, *lines[at:])
    fn = made(lines)
    assert said in [line.strip() for line in lines]
    got, expected = traced(x, y), fn(x, y)
    got, expected = (
        each if isinstance(each, (list, tuple)) else [each] for each in (got, expected)
    )
    assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))


def test_questions_that_the_facts_settle() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        found = x[x > 0]
        assert found.size(0) >= 0
        assert found.size(0) <= x.size(0)
        assert not found.size(0) > x.size(0) + 1
        return found

    traced, _ = agree(fn, (R(5),), (R(7),), (R(0),))
    assert not traced.guards


# -- guard_or_false and friends


def test_guard_or() -> None:
    from torch.fx.experimental.symbolic_shapes import (
        guard_or_false,
        guard_or_true,
        statically_known_true,
    )

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        found = x[x > 0]
        open_questions = (
            guard_or_false(found.size(0) == 3),
            guard_or_true(found.size(0) == 3),
            statically_known_true(found.size(0) == 3),
        )
        settled = (guard_or_false(found.size(0) >= 0), guard_or_true(found.size(0) < 0))
        return (
            *open_questions,
            *settled,
            statically_known_true(x.size(0) == 3),
            statically_known_true(x.size(0) >= 0),
        )

    traced = symshape.trace(fn, torch.ones(3))
    assert traced(torch.ones(3)) == (False, True, False, True, False, False, True)
    assert not traced.guards

    def backed(x: torch.Tensor) -> tuple[Any, ...]:
        return guard_or_false(x.size(0) == 3), guard_or_true(x.size(0) == 4)

    traced = symshape.trace(backed, torch.ones(3))
    assert traced(torch.ones(3)) == (True, False)
    assert [str(guard.term) for guard in traced.guards] == ["s0 == 3"]


# -- what a graph reads again


def test_buffers_are_read_when_the_graph_runs() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("numbers", torch.tensor([2, 3]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = self.numbers.tolist()
            return x * first + self.numbers[1].item() + second

    model = Model()
    traced = symshape.trace(model, torch.ones(3))
    model.numbers.fill_(7)
    assert torch.equal(traced(torch.ones(3)), model(torch.ones(3)))


@pytest.mark.parametrize(
    "read", [lambda t: t.numpy()[0], lambda t: t.__array__()[0], lambda t: t.data_ptr()]
)
def test_data_that_would_be_baked_in_is_refused(read: Any) -> None:
    table = torch.tensor([1.0, 2.0])
    with pytest.raises(UnsupportedError, match="data"):
        symshape.trace(lambda x: x * float(read(table)), torch.ones(3))
    with pytest.raises(UnsupportedError):
        symshape.trace(lambda x: x * float(read(x)), torch.ones(3))


def _a_truth(x: torch.Tensor) -> Any:
    value = ((x > 0).any()).item()
    torch._check(value == 1)
    return x * 2 if value else x


def _no_truth(x: torch.Tensor) -> Any:
    value = ((x > 100).any()).item()
    torch._check(value != 1)
    return x * 2 if value else x


def _an_index(x: torch.Tensor) -> Any:
    value = ((x > 0).sum()).item()
    torch._check(value % 2 == 0)
    return (torch.sin, torch.cos)[value % 2](x)


def _pieces(x: torch.Tensor) -> Any:
    y = x[x > 0]
    torch._check((y.size(0) + (y.size(0) + 1) // 2 - 1) // ((y.size(0) + 1) // 2) == 2)
    return [c.sum() for c in y.chunk(2)]


def _numbers(x: torch.Tensor) -> Any:
    value = x.nonzero()
    torch._check(value.size(0) == 6)
    return sum(value.flatten().tolist())


def _after_a_write(x: torch.Tensor) -> Any:
    x.add_(1)
    value = (x > 0).nonzero()
    torch._check(value.size(0) != 1)
    return x[value.squeeze()]


@pytest.mark.parametrize("fn", [_a_truth, _no_truth, _an_index, _pieces, _numbers, _after_a_write])
def test_what_an_error_tells_to_write_settles_it(fn: Callable[[torch.Tensor], Any]) -> None:
    x = torch.tensor([1.0, 2.0, -1.0, 3.0, -2.0, 0.5])
    compiled = symshape.compile(fn, fullgraph=True)
    assert repr(compiled(x.clone())) == repr(fn(x.clone()))


def test_a_branch_that_may_go_either_way_is_told_of_where() -> None:
    with pytest.raises(DataDependentError, match=r"torch\.where\(condition, this, that\)"):
        symshape.trace(lambda x: x * 2 if (x > 0).any() else x, R(3))
