"""``symshape.compile``: what it wraps, what it raises, and what it tells of itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import symshape
from symshape import InputError, Policy, RunnerError
from tests.symshape.frontends.calling import Scaled, same, traces


class TestModules:
    def test_attributes_pass_through(self) -> None:
        module = Scaled()
        f = symshape.compile(module)
        assert f.scale == 2.0
        assert f.linear is module.linear
        assert set(f.state_dict()) == set(module.state_dict())
        assert [*f.parameters()] == [*module.parameters()]
        f.eval()
        assert not module.training
        assert not f.training
        with pytest.raises(AttributeError):
            f.no_such_thing  # noqa: B018

    def test_functions_keep_their_name_and_doc(self) -> None:
        @symshape.compile
        def double(x: torch.Tensor) -> torch.Tensor:
            """Twice."""
            return x * 2

        assert double.__name__ == "double"
        assert double.__doc__ == "Twice."
        assert double.fn(torch.ones(1)) == 2

    def test_compiled_inside_compiled(self) -> None:
        inner = symshape.compile(lambda x: x * 2)
        outer = symshape.compile(lambda x: inner(x) + inner(x[:1]))
        for size in (3, 4):
            x = torch.randn(size)
            assert same(outer(x), x * 2 + x[:1] * 2)
        assert traces(inner) == 0

    def test_compiled_inside_a_compiled_module(self) -> None:
        class Outer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = Scaled().eval()
                self.fast = symshape.compile(self.inner)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.fast(x) + 1  # type: ignore[no-any-return]

        outer = Outer()
        f = symshape.compile(outer)
        x = torch.randn(2, 3)
        assert same(f(x), outer.inner(x) + 1)
        outer.inner.scale = 9.0
        assert same(f(x), outer.inner(x) + 1)


class TestErrors:
    def test_exceptions_of_the_function_pass_through(self) -> None:
        class Mine(Exception):
            pass

        def fn(x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] > 3:
                raise Mine("too long")
            return x * 2

        f = symshape.compile(fn, dynamic=True)
        f(torch.ones(2))
        before, branches = f.entries, f._cache.branches
        for _ in range(2):
            with pytest.raises(Mine, match="too long"):
                f(torch.ones(5))
        assert f.entries == before
        assert f._cache.branches is branches
        assert "no recompile" in f.explain_miss()
        assert same(f(torch.ones(3)), torch.ones(3) * 2)
        assert traces(f) == 1

    def test_a_failed_first_trace_leaves_nothing(self) -> None:
        fail = [True]

        def fn(x: torch.Tensor) -> torch.Tensor:
            if fail[0]:
                raise ValueError("not yet")
            return x + 1

        f = symshape.compile(fn)
        with pytest.raises(ValueError, match="not yet"):
            f(torch.ones(2))
        assert f.entries == ()
        assert traces(f) == 0
        fail[0] = False
        assert same(f(torch.ones(3)), torch.ones(3) + 1)
        assert "v0 == 3" in str(f.entries[0].guards) or "static" in repr(
            f.entries[0].guards.guards[0].origin
        )

    def test_errors_of_operators_are_errors_again(self) -> None:
        f = symshape.compile(lambda a, b: a + b)
        f(torch.ones(3), torch.ones(3))
        for _ in range(2):
            with pytest.raises(RuntimeError):
                f(torch.ones(3), torch.ones(4))
        assert traces(f) == 1

    def test_what_compile_refuses(self) -> None:
        f = symshape.compile(lambda x: x)
        with pytest.raises(InputError, match="already compiled"):
            symshape.compile(f)
        with pytest.raises(InputError, match="int"):
            symshape.compile(3)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="Options"):
            symshape.compile(lambda x: x, options="fast")  # type: ignore[arg-type]
        with pytest.raises(RunnerError, match="'fast'"):
            symshape.compile(lambda x: x, runner="fast")  # type: ignore[arg-type]

    def test_a_dynamic_size_that_the_program_fixes(self) -> None:
        f = symshape.compile(
            lambda x: x * 2 if x.shape[0] == 3 else x, dynamic={"x": {0: Policy.DYNAMIC}}
        )
        with pytest.raises(symshape.ConstraintViolation, match=r"x.size\(0\)"):
            f(torch.ones(3))
        assert f.entries == ()


class TestLooking:
    def test_stats(self) -> None:
        f = symshape.compile(lambda x: x * 2)
        for size in (3, 4, *[5] * 253):
            f(torch.ones(size))
        assert f.stats().dispatch_us is None, "sampled at every 256th call"
        for _ in range(347):
            f(torch.ones(5))
        stats = f.stats()
        assert (stats.calls, stats.traces, stats.misses, stats.hits) == (602, 2, 2, 600)
        assert (stats.entries, stats.evictions, stats.cuda_graphs) == (2, 0, 0)
        assert stats.dispatch_us is not None
        assert stats.dispatch_us > 0
        assert len(f._dispatcher.times) == 2
        assert stats.trace_ms > 0

    def test_entries_and_repr(self) -> None:
        f = symshape.compile(lambda x: x.view(-1, 2), dynamic=True)
        f(torch.ones(4))
        assert "x[s0]" in repr(f.entries[0])
        assert "% 2" in repr(f.entries[0])
        assert "1 entries" in repr(f)

    def test_reset(self) -> None:
        f = symshape.compile(lambda x: x * 2)
        f(torch.ones(3)), f(torch.ones(4))
        f.reset()
        assert f.entries == ()
        assert f.stats() == symshape.compile(lambda x: x * 2).stats()
        assert "no recompile" in f.explain_miss()
        f(torch.ones(5))
        assert not f.entries[0].program.symbols


@pytest.mark.parametrize("outer", [classmethod, property])
def test_a_decorator_that_wants_to_be_outside(outer: type) -> None:
    with pytest.raises(
        InputError, match=f"not a {outer.__name__}: put @{outer.__name__} above symshape.compile"
    ):
        symshape.compile(outer(lambda self: self))
