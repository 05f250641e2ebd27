"""What functions that operators are given may do, and what is refused: right, or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import symshape
from symshape import UnsupportedError, events
from tests.symshape.tracing.flows import Real, assert_same_run, compiled

cond = torch.cond
FACTOR = 2
SEEN: list[int] = []
COUNT = 0


def _up(n: int = 3) -> Tensor:
    return torch.rand(n, 2) + 0.1


# -- state
def test_a_global_that_one_branch_reads() -> None:
    global FACTOR
    fast = compiled(lambda x: cond(x.sum() > 0, lambda: x * FACTOR, lambda: x + 1))
    x = _up()
    assert torch.equal(fast(x), x * 2)
    try:
        FACTOR = 5
        assert torch.equal(fast(x), x * 5)
    finally:
        FACTOR = 2
    assert fast.stats().traces == 2


class _Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return cond(
            x.sum() > 0, lambda a: self.linear(a) * self.scale, lambda a: a - self.scale, (x,)
        )  # type: ignore[no-any-return]


def test_attributes_and_parameters() -> None:
    module = _Scaled()
    fast = compiled(module)
    x = _up()

    def check() -> None:
        for each in (x, -x):
            assert torch.equal(
                fast(each),
                module.linear(each) * module.scale if each.sum() > 0 else each - module.scale,
            )

    check()
    module.scale = 3
    check()
    with torch.no_grad():
        module.linear.weight.mul_(2)
    check()
    module.linear.weight = torch.nn.Parameter(torch.randn(2, 2))
    check()


# -- effects
class _Object:
    count = 0


def _appends(x: Tensor) -> Tensor:
    def one() -> Tensor:
        SEEN.append(1)
        return x + 1

    return cond(x.sum() > 0, one, lambda: x * 2)  # type: ignore[no-any-return]


def _counts(x: Tensor) -> Tensor:
    number = 0

    def one() -> Tensor:
        nonlocal number
        number += 1
        return x + 1

    return cond(x.sum() > 0, one, lambda: x * 2) + number  # type: ignore[no-any-return]


def _counts_in_a_list(x: Tensor) -> Tensor:
    number = [0]

    def one() -> Tensor:
        number[0] += 1
        return x + 1

    return cond(x.sum() > 0, one, lambda: x * 2) + number[0]  # type: ignore[no-any-return]


def _counts_in_an_object(x: Tensor) -> Tensor:
    made = _Object()

    def one() -> Tensor:
        made.count += 1
        return x + 1

    return cond(x.sum() > 0, one, lambda: x * 2) + made.count  # type: ignore[no-any-return]


def _counts_in_a_global(x: Tensor) -> Tensor:
    def one() -> Tensor:
        global COUNT
        COUNT += 1
        return x + 1

    return cond(x.sum() > 0, one, lambda: x * 2)  # type: ignore[no-any-return]


def _counts_rows(x: Tensor) -> Any:
    number: list[int] = []
    made = Real.scan(lambda c, v: (number.append(1), (c + v, c * v))[1], torch.zeros(2), x)
    return made, len(number)


def _counts_pairs(x: Tensor) -> Any:
    number: list[int] = []
    made = Real.associative_scan(
        lambda a, b: (number.append(1), a + b)[1], x, 0, combine_mode="generic"
    )
    return made, len(number)


def _hands_out(x: Tensor) -> Tensor:
    found: dict[str, Tensor] = {}

    def one() -> Tensor:
        found["x"] = x + 1
        return x * 2

    return cond(x.sum() > 0, one, lambda: x * 1) + found["x"]  # type: ignore[no-any-return]


def _turns_gradients_off(x: Tensor) -> Tensor:
    def one() -> Tensor:
        torch.set_grad_enabled(False)
        return x * 2

    try:
        return cond(x.sum() > 0, one, lambda: x * 1)  # type: ignore[no-any-return]
    finally:
        torch.set_grad_enabled(True)


@pytest.mark.parametrize(
    "fn",
    [
        *(_appends, _counts, _counts_in_a_list, _counts_in_an_object, _counts_in_a_global),
        *(_counts_rows, _counts_pairs, _hands_out, _turns_gradients_off),
    ],
)
def test_effects_are_refused(fn: Callable[..., Any]) -> None:
    SEEN.clear()
    with pytest.raises(
        UnsupportedError, match="which would happen only in calls that run this function"
    ):
        compiled(fn)(_up(4))
    assert not SEEN
    assert COUNT == 0
    assert torch.is_grad_enabled()


def _written(x: Tensor) -> Tensor:
    y = x * 2
    return cond(x.sum() > 0, lambda: y.add_(1) * 1, lambda: x * 1) + y  # type: ignore[no-any-return]


NORM = torch.nn.BatchNorm1d(2)
NORM_IN_USE = torch.nn.BatchNorm1d(2).eval()


def _of_an_own_function(x: Tensor) -> Tensor:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, each: Tensor) -> Tensor:
            return each * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0] * 7

    return cond(x.sum() > 0, lambda: Doubled.apply(x), lambda: x * 1)  # type: ignore[no-any-return]


def _with_a_hook(x: Tensor) -> Tensor:
    def one() -> Tensor:
        y = x * 2
        y.register_hook(lambda gradient: gradient * 3)
        return y * 1

    return cond(x.sum() > 0, one, lambda: x * 1)  # type: ignore[no-any-return]


def _with_gradients_of_its_own(x: Tensor) -> Tensor:
    def one() -> Tensor:
        y = x.detach().requires_grad_()
        return torch.autograd.grad((y**2).sum(), y)[0]

    return cond(x.sum() > 0, one, lambda: x * 1)  # type: ignore[no-any-return]


def _with_gradients_on(x: Tensor) -> Tensor:
    def one() -> Tensor:
        with torch.enable_grad():
            return x * 2

    with torch.no_grad():
        return cond(x.sum() > 0, one, lambda: x * 1)  # type: ignore[no-any-return]


def _in_inference_mode(x: Tensor) -> Tensor:
    def one() -> Tensor:
        with torch.inference_mode():
            return x * 2

    return cond(x.sum() > 0, one, lambda: x * 1)  # type: ignore[no-any-return]


def _raises(x: Tensor) -> Tensor:
    def one() -> Tensor:
        raise ValueError("not here")

    try:
        return cond(x.sum() > 0, one, lambda: x * 1)  # type: ignore[no-any-return]
    except ValueError:
        return x + 1


def _loop(body: Callable[..., Any], start: Any = 0) -> Callable[[Tensor], Any]:
    return lambda x: Real.while_loop(lambda i, a: i < 3, body, (start, x))


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "a view": (lambda x: cond(x.sum() > 0, lambda: x.t(), lambda: x.t() * 1), "or a view of one"),
    "an operand": (
        lambda x: cond(x.sum() > 0, lambda a: a, lambda a: a * 1, (x,)),
        "one of its arguments",
    ),
    "one memory": (
        lambda x: cond(x.sum() > 0, lambda: (x + 1, x + 2), lambda: (lambda y: (y, y))(x + 1)),
        "two tensors on one memory",
    ),
    "a loop of a size of data": (
        _loop(lambda i, a: (i + 1, a[a[:, 0] > 0])),
        "size depends on data",
    ),
    "other dtypes": (
        lambda x: cond(x.sum() > 0, lambda: x.double(), lambda: x * 1),
        "returns float64",
    ),
    "other strides": (
        lambda x: cond(x.sum() > 0, lambda: x.t() * 1, lambda: x.t().contiguous()),
        "strides",
    ),
    "other containers": (
        lambda x: cond(x.sum() > 0, lambda: (x * 1,), lambda: [x * 1]),
        "other containers",
    ),
    "other numbers": (
        lambda x: cond(x.sum() > 0, lambda: (x * 1, 2.0), lambda: (x * 1, 3.0)),
        "returns 2.0",
    ),
    "written": (_written, "writes in place to a tensor created outside it"),
    "an operand written": (
        lambda x: cond(x.sum() > 0, lambda a: a.add_(1) * 1, lambda a: a * 1, (x,)),
        "writes in place",
    ),
    "statistics": (lambda x: cond(x.sum() > 0, lambda: NORM(x), lambda: x * 1), "writes in place"),
    "gradients": (_with_gradients_of_its_own, "uses gradients itself"),
    "gradients turned on": (_with_gradients_on, "turns gradients on"),
    "inference mode": (_in_inference_mode, "inference mode"),
    "an error": (_raises, "raises ValueError"),
    "a transform": (
        lambda x: torch.func.grad(lambda v: cond(v.sum() > 0, lambda: v * 2, lambda: v * 1).sum())(
            x
        ),
        "under a transform",
    ),
    "the operator itself": (
        lambda x: torch.ops.higher_order.cond(x.sum() > 0, lambda a: a * 2, lambda a: a * 1, (x,)),
        "chooses by a tensor's data",
    ),
    "a loop that grows": (_loop(lambda i, a: (i + 1, torch.cat([a, a]))), "is carried"),
    "a loop of operands": (_loop(lambda i, a: (i + 1, a)), "return a clone"),
    "a loop of a bool": (_loop(lambda i, a: (i, a * 1), True), "tensors and integers"),
    "a loop with other results": (_loop(lambda i, a: [i + 1, a * 1]), "other containers"),
    "a loop on no bool": (
        lambda x: Real.while_loop(lambda a: a.sum(), lambda a: (a * 1,), (x,)),
        "no bool",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    fn, why = REFUSED[name]
    for x in (_up(), _up().requires_grad_()):
        if x.requires_grad and name in (
            "an operand written",
            "inference mode",
            "the operator itself",
        ):
            continue  # torch itself is asked first
        with pytest.raises(UnsupportedError, match=why):
            compiled(fn)(x)


def test_refused_where_gradients_are_recorded() -> None:
    drop = torch.nn.Dropout()
    draws: Callable[[Tensor], Tensor] = lambda x: cond(  # noqa: E731
        x.sum() > 0, lambda: drop(x), lambda: torch.rand_like(x)
    )
    for fn, why in (
        (_of_an_own_function, "uses gradients itself"),
        (_with_a_hook, "uses gradients itself"),
        (draws, "draws random numbers"),
    ):
        with pytest.raises(UnsupportedError, match=why):
            compiled(fn)(_up().requires_grad_())
    x = _up()
    assert torch.equal(compiled(_of_an_own_function)(x), x * 2)
    fast = compiled(draws)
    for each in (x, -x, torch.rand(5, 2)):
        torch.manual_seed(1)
        expected = drop(each) if each.sum() > 0 else torch.rand_like(each)
        torch.manual_seed(1)
        assert torch.equal(fast(each), expected)


def test_what_is_refused_runs_as_it_is() -> None:
    fast = symshape.compile(lambda x: cond(x.sum() > 0, torch.nn.Dropout(), lambda a: a * 1, (x,)))
    x = (-_up()).requires_grad_()
    with pytest.warns(symshape.FallbackWarning):
        assert torch.equal(fast(x), x)


# -- what a part may do
@torch.library.custom_op("symshape_tests::squared", mutates_args=())
def squared(x: Tensor) -> Tensor:
    return x * x


@squared.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_custom_operators() -> None:
    """Torch notes in an operator where its kernels are when it is first called: no effect of the
    program's.
    """
    local = squared  # reached through the closure
    fast = compiled(lambda x: cond(x.sum() > 0, lambda: local(x) + 1, lambda: x - 1))
    for x in (_up(), -_up(5)):
        assert torch.equal(fast(x), x * x + 1 if x.sum() > 0 else x - 1)
    assert fast.stats().traces == 1


def test_sizes_of_what_it_makes_it_may_change_in_place() -> None:
    def one(a: Tensor) -> Tensor:
        made = a * 2
        made.unsqueeze_(0).transpose_(1, 2)
        return made

    def branches(m: Any, x: Tensor) -> Any:
        return m.cond(x.sum() > 0, one, lambda a: (a + 1).t().unsqueeze_(0), (x,))

    def rounds(m: Any, x: Tensor) -> Any:
        return m.while_loop(lambda a: a.sum().abs() < 9, lambda a: ((a.t() * 2).t_() + 0,), (x,))

    for fn in (branches, rounds):
        fast = compiled(fn)
        for n in (3, 5, 1):
            for x in (_up(n), -_up(n)):
                assert_same_run(fn, fast, (x.requires_grad_(),))


def test_what_it_makes_it_may_write_to() -> None:
    def fn(x: Tensor) -> Tensor:
        def one() -> Tensor:
            total = torch.tensor([0.0, 0.0])
            total += x.sum(0)
            return (x * 2).add_(total)

        return cond(x.sum() > 0, one, lambda: NORM_IN_USE(x))  # type: ignore[no-any-return]

    fast = compiled(fn)
    for _ in range(2):
        for n in (3, 2, 5):
            x = _up(n)
            assert torch.equal(fast(x), x * 2 + x.sum(0))
            assert torch.equal(fast(-x), NORM_IN_USE(-x))


def test_data_in_a_branch() -> None:
    def fn(x: Tensor, y: Tensor) -> Any:
        u = y.nonzero().size(0)

        def one() -> Tensor:
            torch._check(u < 3, lambda: "too many")
            return x[x > 0].sum() * u

        return cond(x.sum() > 0, one, lambda: x.sum() * x.max().item()), (y > 0).nonzero()

    fast = compiled(fn)
    x, y = _up(), torch.ones(2)
    assert torch.equal(fast(x, y)[0], x.sum() * 2)
    many = torch.ones(7)
    found = fast(-x, many)
    assert torch.equal(found[0], -x.sum() * (-x).max().item())
    assert len(found[1]) == 7
    with pytest.raises(RuntimeError):
        fast(x, many)


def test_what_is_known_in_a_branch_alone() -> None:
    def fn(x: Tensor) -> Any:
        u = (x > 0).nonzero().size(0)

        def one() -> Tensor:
            torch._check(u < 3)
            return x * 2

        made = cond(x.sum() > 100, one, lambda: x * 1)
        return made + (1 if u < 3 else 2)

    with pytest.raises(symshape.DataDependentError):
        compiled(fn)(_up())


def test_a_mask_counted_in_a_branch_is_counted_again() -> None:
    def fn(x: Tensor) -> Any:
        mask = x > 0.5
        return cond(x.sum() > 0, lambda: mask.nonzero().sum(), lambda: x.argmax()), mask.nonzero()

    fast = compiled(fn)
    for x in (_up(), -_up(), _up(5)):
        expected = (x > 0.5).nonzero()
        assert torch.equal(fast(x)[1], expected)
        assert torch.equal(fast(x)[0], expected.sum() if x.sum() > 0 else x.argmax())


def test_modes() -> None:
    linear = torch.nn.Linear(2, 2)

    def off(x: Tensor) -> Tensor:
        def one() -> Tensor:
            with torch.no_grad():
                y = x * 2
            return y * x

        return cond(x.sum() > 0, one, lambda: x * 1)  # type: ignore[no-any-return]

    x = _up().requires_grad_()
    compiled(off)(x).sum().backward()
    assert torch.equal(x.grad, x.detach() * 2)  # type: ignore[arg-type]

    def on(x: Tensor) -> Tensor:
        with torch.enable_grad():
            return off(x)

    x.grad = None
    with torch.no_grad():
        found = compiled(on)(x)
    found.sum().backward()
    assert torch.equal(x.grad, x.detach() * 2)  # type: ignore[arg-type]

    def cast(x: Tensor) -> Tensor:
        return cond(x.sum() > 0, lambda: linear(x), lambda: linear(x * 2))  # type: ignore[no-any-return]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        x.grad = None
        found, expected = compiled(cast)(x), linear(x)
    assert found.dtype is torch.bfloat16
    assert torch.equal(found, expected)
    (gradient,) = torch.autograd.grad(expected.float().sum(), x)
    assert torch.equal(torch.autograd.grad(found.float().sum(), x)[0], gradient)
    with torch.inference_mode():
        found = compiled(cast)(x.detach())
        assert found.is_inference()
        assert torch.equal(found, linear(x.detach()))


def test_results_are_tensors_like_others() -> None:
    def fn(x: Tensor) -> Any:
        made = cond(x.sum() > 0, lambda: x * 2, lambda: x * 3)
        made.add_(1)
        return made, made.detach() * x, made.view(-1), made.is_leaf

    fast = compiled(fn)
    for x in (_up().requires_grad_(), -_up().requires_grad_()):
        one, two, three, is_leaf = fast(x)
        expected = x * (2 if x.sum() > 0 else 3) + 1
        assert torch.equal(one, expected)
        assert torch.equal(two, expected.detach() * x)
        assert three.data_ptr() == one.data_ptr()
        assert is_leaf is False


# -- passes
def test_passes_leave_it_alone_or_refuse_it() -> None:
    fn: Callable[[Tensor], Tensor] = lambda x: cond(x.sum() > 0, lambda: x * 2, lambda: x * 3)  # noqa: E731
    traced = symshape.trace(fn, _up())
    with pytest.raises(UnsupportedError, match="which takes functions"):
        traced.to_fx()
    assert "cond (1)" in str(traced.cost())
    assert "cond(" in str(traced.graph)
    seen: list[Any] = []
    stop = events.subscribe(seen.append)
    try:
        for runner in ("inductor", "padded"):
            fast = compiled(fn, runner=runner)
            x = _up()
            assert torch.equal(fast(x), x * 2)
        with tempfile.TemporaryDirectory() as folder:
            symshape.compile(fn, store=folder)(_up())
    finally:
        stop()
    reasons = [
        each.reason for each in seen if isinstance(each, (events.RunnerFallback, events.NotStored))
    ]
    assert len(reasons) == 3
    assert all("cond" in each for each in reasons)


def test_peak_memory_says_that_it_is_not_known() -> None:
    peak = symshape.trace(
        lambda x: cond(x.sum() > 0, lambda: (x * 2).sin(), lambda: x * 3), _up()
    ).peak_memory()
    assert peak.left_out == ("cond",)
    assert "without what cond holds" in str(peak)
    for budget in (
        lambda: peak.at(s0=3, s1=2),
        lambda: peak.within("1 MB"),
        lambda: peak.largest("s0", bytes=1, s1=2),
    ):
        with pytest.raises(symshape.InputError, match="is not known: it calls cond"):
            budget()
