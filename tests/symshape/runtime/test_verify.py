"""Calls that eager verifies: agreement leaves no trace, every kind of difference is caught, named
and traced back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape import events
from symshape.errors import InputError, VerificationError
from symshape.frontends.dynamo import symshape_backend
from symshape.runtime.verify import Verifier, copy_call

R = torch.randn
VERIFY = symshape.Options(verify=1)


def verified(
    compiled_fn: Callable[..., Any],
    eager_fn: Callable[..., Any],
    *args: Any,
    discarded: list[Any] | None = None,
) -> Any:
    """One verified call of what was compiled from one function, held against another."""
    compiled = symshape.compile(compiled_fn, options=VERIFY)
    if isinstance(compiled_fn, torch.nn.Module):
        compiled = symshape.compiled_of(compiled)
    gone: list[Any] = [] if discarded is None else discarded

    def discard(entry: Any) -> None:
        gone.append(entry)
        compiled._cache.discard(entry)

    return serve(
        Verifier("f", eager_fn, 1.0, discard, compiled._dispatcher.entry_of), compiled, *args
    )


def _no_entry(args: Any, kwargs: Any) -> Any:
    raise AssertionError("nothing is looked up")


def serve(verifier: Verifier, compiled: Any, *args: Any) -> Any:
    """One call that an entry of a compiled function serves, through a verifier."""
    entry, values, leaves = compiled._dispatcher.entry_of(args, {})
    return verifier.serve(entry, entry.run, leaves, values, args, {})


class Norm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(self.norm(x), 0.5)


def _adds_in_place(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x.add_(1)
    return x, x[1:]


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (lambda x: x.relu().sum(0), lambda: (R(3, 4),)),
        (_adds_in_place, lambda: (R(3, 4),)),
        (lambda x: (x, x.t(), {"sum": x.sum(), "n": x.size(0)}), lambda: (R(3, 4),)),
        (lambda x: torch.rand(x.shape) + x, lambda: (R(5),)),
        (lambda x: x / 0 * float("nan"), lambda: (torch.zeros(3),)),
        (lambda x, y: (x.add_(1), y.sum()), lambda: (lambda t: (t[:4], t[2:6]))(R(8))),
        (lambda x: (x.double() @ x.double().t()).bool(), lambda: (R(3, 2),)),
        (lambda x: x.conj() * 2j, lambda: (R(3, dtype=torch.complex64),)),
        (lambda x: x * 2, lambda: (R(3, requires_grad=True),)),
    ],
)
def test_agreement_is_what_eager_does(
    fn: Callable[..., Any], make: Callable[[], tuple[Any, ...]]
) -> None:
    args = make()
    (copies, _) = copy_call(args, {})
    torch.manual_seed(3)
    wanted = fn(*copies)
    after = torch.rand(1)
    torch.manual_seed(3)
    got = verified(fn, fn, *args)
    assert torch.equal(torch.rand(1), after), "the random generator went on as by one call"
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)
    for ours, theirs in zip(args, copies, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_buffers_change_once() -> None:
    module, twin = Norm(), Norm()
    twin.load_state_dict(module.state_dict())
    x = R(6, 4)
    torch.manual_seed(0)
    wanted = twin(x)
    torch.manual_seed(0)
    got = verified(module, module, x)
    assert torch.equal(got, wanted)
    for (name, ours), (_, theirs) in zip(
        module.state_dict().items(), twin.state_dict().items(), strict=True
    ):
        assert torch.equal(ours, theirs), name


def _raises(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("compiled", "eager", "words"),
    [
        (
            lambda x: x + 1,
            lambda x: x + 2,
            r"result: 12 of 12 elements differ, first at \(0, 0\): expected .*, got",
        ),
        (lambda x: x.relu(), lambda x: x.relu() + 1e-3, "elements differ"),
        (lambda x: x.argmax(), lambda x: x.argmax() + 1, r"1 of 1 elements differ, first at \(\)"),
        (lambda x: x.sum(0), lambda x: x.sum(1), r"expected shape \(3,\), got \(4,\)"),
        (
            lambda x: x * 2,
            lambda x: (x * 2).double(),
            "expected dtype torch.float64, got torch.float32",
        ),
        (
            lambda x: x + 0,
            lambda x: (x + 0).t().contiguous().t(),
            r"expected strides \(1, 3\), got \(4, 1\)",
        ),
        (
            lambda x: x[1:],
            lambda x: x[1:].clone(),
            "result shares no memory, but the compiled program's shares memory",
        ),
        (
            lambda x: x,
            lambda x: x.view(3, 4),
            "shares memory with argument tensor 0, but the compiled program's is arg",
        ),
        (lambda x: (x + 1, 2), lambda x: [x + 1, 2], "the result is"),
        (lambda x: (x + 1, 2), lambda x: (x + 1, 3), r"result\[1\]: expected 3, got 2"),
        (lambda x: (x + 1, 2), lambda x: (x + 1, 2.0), "expected a float, got a int"),
        (lambda x: x.add(1), lambda x: x.add_(1), "."),
        (
            lambda x: x.sum(),
            lambda x: (x.sum(), x.zero_())[0],
            "argument tensor 0 afterwards: 12 of 12 elements differ",
        ),
        (
            lambda x: x * 2,
            lambda x: (torch.rand(1), x * 2)[1],
            "torch's generator is in another state afterwards",
        ),
        (
            lambda x: x * 2,
            _raises,
            r"eager raises ValueError \(no\), the compiled program does not",
        ),
        (
            lambda x: x.detach() * 2,
            lambda x: (x * 2).requires_grad_(),
            "expected requires_grad True, got False",
        ),
    ],
)
def test_differences_are_caught(
    compiled: Callable[..., Any], eager: Callable[..., Any], words: str
) -> None:
    heard: list[events.Event] = []
    discarded: list[Any] = []
    unsubscribe = events.subscribe(heard.append)
    try:
        with pytest.raises(VerificationError) as raised:
            verified(compiled, eager, R(3, 4).abs() + 1, discarded=discarded)
    finally:
        unsubscribe()
    error = raised.value
    assert any(re.search(words, each) for each in error.differences), error.differences
    assert error.differences[0] in str(error)
    assert "suspected cause" in str(error)
    assert len(discarded) == 1
    (mismatch,) = [each for each in heard if isinstance(each, events.Mismatch)]
    assert (mismatch.difference, mismatch.cause) == (error.differences[0], error.cause)


def test_a_compiled_program_that_fails_is_a_difference() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        torch._check((x > 5).nonzero().size(0) >= 1)
        return x * 2

    with pytest.raises(
        VerificationError, match="the compiled program raises RuntimeAssertionError"
    ):
        verified(fails, lambda x: x * 2, torch.ones(3))


def test_tensors_without_data() -> None:
    fast = symshape.compile(lambda x, y: (x + y.size(0), x.mul_(2), y * 2), options=VERIFY)
    for n in (3, 5):
        made, written, other = fast(torch.empty(n, 2, device="meta"), torch.ones(n))
        assert made.is_meta
        assert made.shape == written.shape == (n, 2)
        assert torch.equal(other, torch.full((n,), 2.0))
    assert fast.stats().verified == 2
    with pytest.raises(VerificationError, match="expected shape"):
        verified(lambda x: x[1:] * 2, lambda x: x * 2, torch.empty(3, device="meta"))


def test_both_may_refuse() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        torch._check((x > 5).nonzero().size(0) >= 1)
        return x * 2

    with pytest.raises(RuntimeError) as raised:
        verified(fails, fails, torch.ones(3))
    assert not isinstance(raised.value, VerificationError)


def test_a_state_that_no_guard_looks_at_is_suspected_and_the_line_is_named() -> None:
    factor = [2.0]
    compiled = symshape.compile(lambda x: (x + 1) * 2.0, options=VERIFY)
    entry, _, _ = compiled._dispatcher.entry_of((R(3),), {})
    anew = symshape.compile(lambda x: (x + 1) * factor[0], options=VERIFY)
    factor[0] = 3.0
    before, after = compiled._dispatcher.entry_of, anew._dispatcher.entry_of
    finds = iter([before, after, after, after])  # as if the entry had been traced before
    gone: list[Any] = []
    eager, find = lambda x: (x + 1) * factor[0], lambda args, kwargs: next(finds)(args, kwargs)
    verifier = Verifier("f", eager, 1.0, gone.append, find)
    with pytest.raises(VerificationError, match="has changed since the trace") as raised:
        serve(verifier, compiled, R(3))
    assert gone == [entry]
    assert "the traces differ first at test_verify.py" in raised.value.cause
    assert "factor[0]" in raised.value.cause


def test_a_call_that_cannot_be_run_twice_is_served_and_told() -> None:
    heard: list[events.Event] = []
    unsubscribe = events.subscribe(heard.append)
    try:
        leaf = R(3, requires_grad=True)
        result = verified(lambda x: x.add_(1), lambda x: x * 100, leaf * 1)
    finally:
        unsubscribe()
    torch.testing.assert_close(result, leaf + 1)
    assert [type(each) for each in heard if isinstance(each, events.NotVerified)] == [
        events.NotVerified
    ]


@pytest.mark.parametrize("rate", [-0.1, 1.1, True, "all", None])
def test_the_rate_is_a_fraction(rate: Any) -> None:
    with pytest.raises(InputError, match="verify must be a number from 0 to 1"):
        symshape.Options(verify=rate)


def test_the_sample_has_the_size_asked_for() -> None:
    verifier = Verifier("f", lambda x: x, 0.1, lambda _: None, _no_entry)
    assert 800 < sum(verifier.due() for _ in range(10_000)) < 1200
    assert all(Verifier("f", lambda x: x, 1, lambda _: None, _no_entry).due() for _ in range(100))


# -- through symshape.compile and the backend ------------------------------------------------------


def test_compile_verifies_when_asked_to() -> None:
    compiled = symshape.compile(lambda x: x * 2, options=VERIFY)
    for n in (3, 4, 5, 3):
        assert compiled(torch.ones(n)).tolist() == [2.0] * n
    stats = compiled.stats()
    assert (stats.calls, stats.verified, stats.traces) == (4, 4, 2)
    plain = symshape.compile(lambda x: x * 2)
    plain(torch.ones(3))
    assert plain.stats().verified == 0


def test_effects_happen_once_and_are_eagers() -> None:
    ran: list[int] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    compiled = symshape.compile(fn, options=VERIFY)
    x = torch.zeros(3)
    for n in range(1, 4):
        result = compiled(x)
        ran.append(n)
        assert result is x
        assert x.tolist() == [float(n)] * 3


def test_a_wrong_entry_leaves_the_cache() -> None:
    compiled = symshape.compile(lambda x: x * 2, options=VERIFY)
    compiled(torch.ones(3))
    (entry,) = compiled.entries
    entry.run = lambda leaves, values: [leaves[0] * 3]  # a runner gone wrong
    with pytest.raises(
        VerificationError,
        match=r"entry 0 .*differs from eager's[\s\S]*the runner eager: the same graph",
    ):
        compiled(torch.ones(3))
    assert entry not in compiled.entries
    assert compiled(torch.ones(3)).tolist() == [2.0] * 3


def test_the_backend_takes_the_option() -> None:
    torch._dynamo.reset()
    fn = torch.compile(
        lambda x: x.relu() + 1, backend=symshape_backend, dynamic=True, options={"verify": 1}
    )
    for n in (3, 5, 4):
        assert fn(torch.ones(n)).tolist() == [2.0] * n
    with pytest.raises(
        torch._dynamo.exc.BackendCompilerFailed, match="verify must be a number from 0 to 1"
    ):
        torch.compile(lambda x: x * 2, backend=symshape_backend, options={"verify": 2})(
            torch.ones(3)
        )
    torch._dynamo.reset()


def test_lists_among_the_arguments_are_written_where_calls_cannot_run_twice() -> None:
    def adds(x: torch.Tensor, kept: list[torch.Tensor]) -> torch.Tensor:
        kept.append(x * 2)
        return x + 1

    compiled, kept = symshape.compile(adds, options=VERIFY), list[torch.Tensor]()
    for n in (2, 3, 4, 2):
        compiled(torch.ones(n), kept)
    assert [len(each) for each in kept] == [2, 3, 4, 2]


def test_calls_of_a_compiled_module_are_verified() -> None:
    module = symshape.compile(torch.nn.Linear(4, 4), options=VERIFY)
    compiled = symshape.compiled_of(module)
    with torch.no_grad():
        for size in (3, 5, 5):
            module(R(size, 4))
    assert compiled.stats().verified == 3
    for entry in compiled.entries:
        entry.run = lambda leaves, values: [torch.zeros(5, 4)]
    with torch.no_grad(), pytest.raises(VerificationError, match="differs from eager's"):
        module(R(5, 4))


def test_the_forward_of_a_compiled_module_is_verified() -> None:
    module = symshape.compile(torch.nn.Linear(4, 4), options=VERIFY)
    module.forward(R(3, 4))
    compiled = object.__getattribute__(module, "__symshape_forward__")
    assert compiled.stats().verified == 1


def test_a_stored_program_is_verified(tmp_path: Path) -> None:
    for loaded in (0, 1):
        compiled = symshape.compile(torch.relu, store=tmp_path, options=VERIFY)
        compiled(R(3))
        compiled(R(3))
        assert (compiled.stats().loaded, compiled.stats().verified) == (loaded, 2)


def test_no_call_under_saved_tensor_hooks_is_verified() -> None:
    """Such calls run eagerly, like those that are not in the sample."""
    compiled = symshape.compile(lambda x: (x * 2).exp(), options=VERIFY)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        compiled(R(3, requires_grad=True)).sum().backward()
    assert (compiled.stats().plain, compiled.stats().verified, compiled.entries) == (1, 0, ())


# -- copies of calls -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3, 4),
        lambda: torch.randn(3, 4).t()[1:],
        lambda: torch.randn(4).expand(3, 4),
        lambda: torch.randn(0, 4),
        lambda: torch.randn(3, dtype=torch.complex64).conj(),
        lambda: torch.randn(3, dtype=torch.complex64).conj().imag,
        lambda: torch.randn(3, requires_grad=True),
        lambda: torch.nn.Parameter(torch.randn(3), requires_grad=False),
        lambda: torch.arange(5, dtype=torch.int8)[::2],
    ],
)
def test_a_copy_is_the_same_on_other_memory(make: Any) -> None:
    original = make()
    original.mark = "kept"
    ((copy,), _) = copy_call((original,), {})
    assert torch.equal(copy, original)
    for what in (
        torch.Tensor.stride,
        torch.Tensor.storage_offset,
        torch.Tensor.is_conj,
        torch.Tensor.is_neg,
        type,
    ):
        assert what(copy) == what(original)
    assert copy.requires_grad == original.requires_grad
    assert copy.mark == "kept"
    if original.numel():
        assert copy.untyped_storage().data_ptr() != original.untyped_storage().data_ptr()


def test_sharing_is_kept() -> None:
    base = torch.arange(8.0)
    (((a, again), b), named) = copy_call(([base[:4], base[:4]], base[2:]), {"base": base})
    a.fill_(7)
    assert b[:2].tolist() == [7, 7]
    assert again.tolist() == named["base"][:4].tolist() == [7] * 4
    assert base.tolist() == list(range(8))


def test_one_tensor_twice_is_one_copy_twice() -> None:
    x = torch.ones(2)
    ((a, b), _) = copy_call((x, x), {})
    assert a is b


def test_what_is_no_tensor_passes() -> None:
    generator = torch.Generator()
    given = {"n": 3, "generator": generator, "list": [1, "two"]}
    _, copied = copy_call((), given)
    assert copied == given
    assert copied["list"] is not given["list"]
