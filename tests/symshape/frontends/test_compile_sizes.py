"""Which sizes become symbols, and how many traces a stream of calls costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from symshape import Dim, DimError, Options
from symshape.frontends.dynamo import symshape_backend
from symshape.frontends.dynamo_graph import alive
from tests.symshape.frontends.calling import same, traces


class TestPolicy:
    def test_first_static_then_dynamic(self) -> None:
        f = symshape.compile(lambda x: x * 2)
        f(torch.ones(8))
        assert "static" in str(f.entries[0].guards.guards[0].origin)
        for size in (1, 2, 0, 5, 1000):
            assert same(f(torch.ones(size)), torch.ones(size) * 2)
        assert traces(f) == 2

    @pytest.mark.parametrize(
        "fn",
        [
            lambda x: x + 1,
            lambda x: x.sum(),
            lambda x: x.reshape(-1, 1).expand(-1, 3) @ torch.ones(3, 2),
            lambda x: torch.cat([x, x]),
            lambda x: x.softmax(0),
            lambda x: x[None].transpose(0, 1).contiguous(),
        ],
    )
    def test_sizes_8_1_2_0_compile_at_most_twice(self, fn: Any) -> None:
        f = symshape.compile(fn)
        for size in (8, 1, 2, 0):
            x = torch.randn(size)
            torch.testing.assert_close(f(x), fn(x))
        assert traces(f) <= 2

    def test_only_what_changes_becomes_dynamic(self) -> None:
        f = symshape.compile(lambda x, y: x @ y)
        f(torch.ones(2, 3), torch.ones(3, 4))
        f(torch.ones(5, 3), torch.ones(3, 4))
        first, second = f.entries
        assert [str(each.value.spec.sizes) for each in first.program.graph.inputs] == [
            "(2, 3)",
            "(3, 4)",
        ]
        assert [
            [str(s) for s in each.value.spec.sizes] for each in second.program.graph.inputs
        ] == [["s0", "3"], ["3", "4"]]
        f(torch.ones(7, 3), torch.ones(3, 9))
        assert traces(f) == 3
        f(torch.ones(1, 3), torch.ones(3, 1))
        assert traces(f) == 3

    def test_an_entry_that_fits_is_kept_for_its_sizes(self) -> None:
        f = symshape.compile(lambda x: x + 1)
        f(torch.ones(8)), f(torch.ones(3)), f(torch.ones(8))
        assert traces(f) == 2
        assert f.stats().hits == 1

    def test_dynamic_true_is_one_trace_for_sizes_and_integers(self) -> None:
        f = symshape.compile(lambda x, n: x * n, dynamic=True)
        for size, n in ((8, 3), (1, 1), (0, 0), (2, -5)):
            assert same(f(torch.ones(size), n), torch.ones(size) * n)
        assert traces(f) == 1

    def test_dynamic_false_is_one_trace_for_each_size(self) -> None:
        f = symshape.compile(lambda x: x + 1, dynamic=False)
        for size in (8, 1, 2, 8, 1, 2):
            f(torch.ones(size))
        assert traces(f) == 3
        assert not any(each.program.symbols for each in f.entries)

    def test_a_description_makes_what_it_names_dynamic(self) -> None:
        f = symshape.compile(lambda x: x + 1, dynamic={"x": {0: Dim("batch", max=64)}})
        f(torch.ones(8, 3)), f(torch.ones(2, 3))
        assert traces(f) == 1
        assert list(f.entries[0].program.symbols) == ["batch"]
        f(torch.ones(2, 4))
        assert traces(f) == 2
        with pytest.raises(DimError, match=r"x.size\(0\) is 65"):
            f(torch.ones(65, 3))

    def test_a_description_of_what_is_not_there_is_refused(self) -> None:
        f = symshape.compile(lambda x: x + 1, dynamic={"y": {0: "batch"}})
        with pytest.raises(DimError, match="'y'"):
            f(torch.ones(3))

    def test_marks_on_tensors_count(self) -> None:
        f = symshape.compile(lambda x: x + 1)
        x = torch.ones(8, 3)
        torch._dynamo.mark_dynamic(x, 0)
        f(x), f(torch.ones(5, 3))
        assert traces(f) == 1

    def test_integers_become_symbols_when_they_change(self) -> None:
        f = symshape.compile(lambda x, n: x.view(n, -1))
        for n in (2, 3, 4, 6, 12, 1):
            assert f(torch.ones(12), n).shape == (n, 12 // n)
        assert traces(f) == 2

    def test_branches_keep_an_entry_each(self) -> None:
        def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a * 2 if a.size(0) + b.size(0) > 2 else b

        f = symshape.compile(fn, dynamic=True)
        for _ in range(2):
            for m, n in ((3, 4), (1, 1), (2, 0), (0, 3), (9, 9)):
                a, b = torch.randn(m), torch.randn(n)
                assert same(f(a, b), fn(a, b))
        assert traces(f) == 2
        above, below = f.entries
        assert [[guard.text() for guard in each.program.guards] for each in (above, below)] == [
            ["s0 + s1 > 2"],
            ["s0 + s1 <= 2"],
        ]
        assert above.guards.disjoint(below.guards)

    def test_specialize_zero_one_and_duck_shape_on_request(self) -> None:
        f = symshape.compile(
            lambda x, y: x.sum() + y.sum(), dynamic=True, options=Options(specialize_zero_one=True)
        )
        for size in (0, 1, 5, 1, 0, 7):
            f(torch.ones(size), torch.ones(5))
        assert traces(f) == 3
        assert [str(each.program.graph.inputs[0].value.spec.sizes[0]) for each in f.entries] == [
            "0",
            "1",
            "s0",
        ]
        g = symshape.compile(
            lambda x, y: x.sum() + y.sum(), dynamic=True, options=Options(duck_shape=True)
        )
        g(torch.ones(5), torch.ones(5)), g(torch.ones(4), torch.ones(4))
        assert traces(g) == 1
        g(torch.ones(4), torch.ones(5))
        assert traces(g) == 2


def test_slices_of_a_larger_tensor_are_one_entry() -> None:
    big, weight = torch.randn(64, 8), torch.randn(8, 8)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ weight).sum(0) + x.mean()

    compiled = symshape.compile(fn, fullgraph=True)
    for start, number in ((0, 5), (3, 7), (10, 7), (1, 1), (20, 9), (63, 1)):
        assert torch.equal(compiled(big[start : start + number]), fn(big[start : start + number]))
    # the first one, which begins where the memory does, and one for all others
    assert compiled.stats().traces == 2


def test_slices_of_a_larger_tensor_are_one_graph_of_the_backend() -> None:
    big = torch.randn(64, 8)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).sum(0) + x.mean()

    backed = torch.compile(fn, backend=symshape_backend, dynamic=True)
    before = {id(each) for each in alive}
    for start, number in ((0, 5), (3, 5), (10, 7), (20, 9), (0, 64)):
        assert torch.equal(backed(big[start : start + number]), fn(big[start : start + number]))
    assert sum(each.stats().traces for each in alive if id(each) not in before) == 1
