"""One sentence for each kind of miss, in the caller's words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import events
from tests.symshape.frontends.calling import Scaled


def two(x: torch.Tensor, y: torch.Tensor, k: Any = 1) -> torch.Tensor:
    return x.sum() + y.sum() * (2 if k == 1 else 3)


class TestExplanations:
    """One sentence for each kind of miss, in the caller's words."""

    def explain(self, f: Any, *calls: Any) -> str:
        for call in calls:
            call(f)
        return str(f.explain_miss())

    def test_nothing_to_explain(self) -> None:
        f = symshape.compile(two)
        assert "no recompile" in f.explain_miss()
        f(torch.ones(2), torch.ones(2))
        assert "no recompile" in f.explain_miss()

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((torch.ones(5), torch.ones(2), 1), ("x.size(0)", "== 3", "x.size(0) = 5", "static")),
            ((torch.ones(3), torch.ones(9), 1), ("y.size(0)", "y.size(0) = 9")),
            (
                (torch.ones(3, dtype=torch.float64), torch.ones(2), 1),
                ("x is", "float64", "float32"),
            ),
            ((torch.ones(3), torch.ones(2, 2), 1), ("y is", "2 dim(s)", "1 dim(s)")),
            ((torch.ones(3), torch.ones(2), 2), ("k == 1", "k = 2", "static")),
            ((torch.ones(3), torch.ones(2), "a"), ("k is the str 'a'", "an int")),
            ((torch.ones(6)[::2], torch.ones(2), 1), ("x is", "strided")),
            ((torch.ones(4)[1:], torch.ones(2), 1), ("x is", "offset")),
            ((torch.ones(3, requires_grad=True), torch.ones(2), 1), ("x is", "requires_grad")),
            (
                (torch.ones(3, device="meta"), torch.ones(2, device="meta"), 1),
                ("x is", "meta", "cpu"),
            ),
            (([torch.ones(3)], torch.ones(2), 1), ("called with x[0] instead of x",)),
            ((torch.ones(3), torch.ones(2)), ("without k",)),
        ],
    )
    def test_arguments(self, arguments: tuple[Any, ...], words: tuple[str, ...]) -> None:
        f = symshape.compile(lambda x, y, k=1: two(x[0] if isinstance(x, list) else x, y, k))
        text = self.explain(
            f, lambda f: f(torch.ones(3), torch.ones(2), 1), lambda f: f(*arguments)
        )
        for word in words:
            assert word in text
        assert text.count("\n") == 0
        assert "was traced again: the nearest entry, number 0, " in text

    def test_a_guard_with_the_line_that_made_it(self) -> None:
        def fn(x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] > 10:
                return x * 2
            return x

        f = symshape.compile(fn, dynamic=True)
        text = self.explain(f, lambda f: f(torch.ones(3)), lambda f: f(torch.ones(12)))
        assert "x.size(0) = 12" in text
        assert "if x.shape[0] > 10:" in text
        assert "test_differences.py" in text

    def test_modes(self) -> None:
        f = symshape.compile(lambda x: x * 2)
        f(torch.ones(3))
        with torch.no_grad():
            f(torch.ones(3))
        assert "no_grad" in f.explain_miss()
        assert "grad mode" in f.explain_miss()

    def test_state(self) -> None:
        module = Scaled()
        f = symshape.compile(module)
        x = torch.ones(2, 3)
        f(x)
        module.eval()
        f(x)
        module.train()
        assert "training has changed" in f.explain_miss()
        module.linear.weight = nn.Parameter(torch.ones(3, 3), requires_grad=False)
        f(x)
        assert "linear.weight has changed" in f.explain_miss()

    def test_aliasing(self) -> None:
        f = symshape.compile(lambda a, b: a + b)
        x = torch.ones(3)
        f(x, torch.ones(3))
        f(x, x)
        assert "same object" in f.explain_miss()

    def test_the_nearest_entry_is_named(self) -> None:
        f = symshape.compile(lambda x, y: x.sum() + y.sum(), dynamic=False)
        f(torch.ones(3), torch.ones(3))
        f(torch.ones(5), torch.ones(5))
        f(torch.ones(5), torch.ones(6))
        assert "y.size(0) == 5" in f.explain_miss()
        assert "number 1" in f.explain_miss()

    def test_events(self) -> None:
        seen: list[events.Event] = []
        unsubscribe = events.subscribe(seen.append)
        try:
            f = symshape.compile(lambda x: x * 2)
            f(torch.ones(3))
            f(torch.ones(4))
            f(torch.ones(5))
        finally:
            unsubscribe()
        assert [
            type(each).__name__
            for each in seen
            if isinstance(each, (events.Traced, events.CacheMiss))
        ] == ["Traced", "Traced", "CacheMiss"]
        (miss,) = [each for each in seen if isinstance(each, events.CacheMiss)]
        assert miss.reason == f.explain_miss()


class TestEveryMissIsExplained:
    """Each trace after the first has a sentence of its own, whatever became of the entries before
    it.
    """

    def told(self, f: Any, calls: list[Any]) -> list[str]:
        found: list[str] = []
        for call in calls:
            before = f.stats().traces
            call()
            if before and f.stats().traces > before:
                found.append(f.explain_miss())
        return found

    def test_a_rate_that_a_scheduler_changes(self) -> None:
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        f = symshape.compile(step)
        texts = self.told(f, [lambda: (f(torch.ones(3, 4)), scheduler.step())] * 4)
        assert len(texts) == f.stats().traces - 1 > 0
        assert "optimizer.param_groups[0]['lr'] changed since the trace" in texts[0]
        assert "no recompile" not in " ".join(texts)

    def test_entries_that_left_because_the_cache_was_full(self) -> None:
        f = symshape.compile(
            lambda x, k: x * 2 if k == "a" else x, options={"max_entries": 1}, dynamic=False
        )
        texts = self.told(f, [lambda k=k: f(torch.ones(3), k) for k in "abab"])
        assert len(texts) == 3
        assert all("k is the str" in text for text in texts)

    def test_an_entry_whose_object_is_gone(self) -> None:
        f = symshape.compile(lambda x, m: m(x))
        f(torch.ones(2, 3), nn.Linear(3, 3))
        texts = self.told(f, [lambda: f(torch.ones(2, 3), nn.Linear(3, 3))])
        assert texts == [
            f"{symshape.user_code.name_of(f.fn)} was traced again because no program was left: an "
            "object that it was traced for no longer exists."
        ]

    def test_the_sentence_outlives_the_entries(self) -> None:
        f = symshape.compile(lambda x, k=1: x * k)
        f(torch.ones(3))
        f(torch.ones(3, dtype=torch.float64))
        text = f.explain_miss()
        assert "x is a contiguous float64" in text
        f.reset()
        assert "no recompile" in f.explain_miss()

    def test_calls_that_ran_eagerly_are_mentioned(self) -> None:
        f = symshape.compile(lambda x: x.sum().item() > 0 and x.tolist())
        with pytest.warns(symshape.FallbackWarning):
            f(torch.ones(3))
        assert "1 calls ran eagerly: see explain_fallback()" in f.explain_miss()


class TestTheNearestEntry:
    """An entry of the call's own structure is nearer than any of another structure."""

    def test_two_failed_guards_are_nearer_than_another_dtype(self) -> None:
        f = symshape.compile(lambda x, y: x + y.sum(), dynamic=False)
        f(torch.ones(3), torch.ones(4))
        f(torch.ones(5, dtype=torch.float64), torch.ones(6))
        f(torch.ones(5), torch.ones(6))
        text = f.explain_miss()
        assert "x.size(0) == 3" in text
        assert "again: the nearest entry, number 0, needs" in text
        assert text.endswith("(and 1 more).")

    def test_changed_state_is_nearer_than_another_nesting(self) -> None:
        model = nn.Linear(3, 3)
        f = symshape.compile(lambda x: model(x[0] if isinstance(x, list) else x))
        f([torch.ones(2, 3)])
        f(torch.ones(2, 3))
        model.weight = nn.Parameter(torch.ones(3, 3, dtype=torch.float32), requires_grad=False)
        f(torch.ones(2, 3))
        assert "number 1" in f.explain_miss()
        assert "called with" not in f.explain_miss()

    def test_of_arguments_the_fewest_differences(self) -> None:
        f = symshape.compile(lambda x, y: x.sum() + y.sum(), dynamic=True)
        f(torch.ones(3, dtype=torch.float64), torch.ones(4, dtype=torch.float64))
        f(torch.ones(3, dtype=torch.float64), torch.ones(4))
        f(torch.ones(3), torch.ones(4))
        assert "number 1" in f.explain_miss()


def test_of_many_arguments_the_first_are_named() -> None:
    f = symshape.compile(lambda held: torch.stack(held).sum(0))
    for count in (2, 30):
        f([torch.ones(3)] * count)
    assert "is called with held[2], held[3], held[4] and 25 more." in f.explain_miss()
    f([torch.ones(3)] * 26)
    assert "is called without held[26], held[27], held[28], held[29]." in f.explain_miss()
