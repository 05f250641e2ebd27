"""Questions of sizes have the answers that tensors of those sizes get; which entry, the one that
then serves.
"""

from __future__ import annotations

import random

import pytest
import torch

import symshape
from symshape import Dim, InputError


def fn(ids: torch.Tensor, mask: torch.Tensor, k: int = 2) -> torch.Tensor:
    if ids.size(0) > 3:
        return (ids * mask).view(-1, 4) * k
    return (ids + mask[:, :1]).sum(1, keepdim=True) * ids.size(1)


@pytest.fixture(scope="module")
def traced() -> symshape.Traced:
    return symshape.trace(fn, torch.ones(4, 8), torch.ones(4, 8), dynamic=True)


def test_sizes_answer_as_tensors_do(traced: symshape.Traced) -> None:
    rng = random.Random(3)
    answers = set()
    for _ in range(150):
        a, b = rng.choice([0, 1, 3, 4, 5]), rng.choice([0, 1, 4, 6, 8])
        c, d = rng.choice([(a, b), (a, b), (1, b), (4, 8)])
        ids, mask = torch.ones(a, b), torch.ones(c, d)
        found = traced.check(sizes={"ids": (a, b), "mask": (c, d)})
        assert found is traced.check(ids, mask) is traced.check(ids.to("meta"), mask.to("meta"))
        assert traced.explain(sizes={"ids": (a, b), "mask": (c, d)}) == traced.explain(ids, mask)
        answers.add(found)
    assert answers == {True, False}


def test_what_is_not_named_follows() -> None:
    n = Dim("n")
    dims = {"x": [n], "y": [n]}
    traced = symshape.trace(
        lambda x, y: (x + y).view(-1, 4), torch.ones(8), torch.ones(8), dynamic=dims
    )
    assert traced.check(sizes={"x": (12,)})
    assert traced.check(sizes={"n": 16})
    assert not traced.check(sizes={"n": 13})
    assert not traced.check(sizes={"x": (12,), "y": (16,)})
    assert traced.check(sizes={"x": (None,)})
    assert traced.explain(sizes={"n": 13}) == traced.explain(sizes={"x": (13,), "y": (13,)}) != []


def test_another_number_of_dimensions_and_integers(traced: symshape.Traced) -> None:
    assert traced.explain(sizes={"ids": (4, 8, 1)}) == [
        "ids has 3 dimension(s), but was traced with 2"
    ]
    static = symshape.trace(fn, torch.ones(4, 8), torch.ones(4, 8), 3)
    assert static.check(sizes={"k": 3})
    assert static.explain(sizes={"k": 5}) == ["k == 3, but k = 5 (it was static in the trace)"]
    assert traced.check(torch.ones(4, 8), torch.ones(4, 8).to("meta")) is True
    assert (
        traced.check(torch.ones(4, 8), torch.ones(4, 8, dtype=torch.float64, device="meta"))
        is False
    )


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"idz": (3, 4)}, r"no argument and no symbol 'idz' \(did you mean 'ids'\?\)"),
        ({"ids": 3}, "should be a sequence of 2 sizes"),
        ({"ids": (3, 1.5)}, "should be an integer, not 1.5"),
        ({"ids": (3, -1)}, "cannot be -1"),
        ({"ids": (3, True)}, "should be an integer"),
    ],
)
def test_slips_are_errors(traced: symshape.Traced, sizes: dict[str, object], said: str) -> None:
    for ask in (traced.check, traced.explain):
        with pytest.raises(InputError, match=said):
            ask(sizes=sizes)


def test_a_symbol_without_a_value_must_be_named() -> None:
    traced = symshape.trace(
        lambda x: x * 2, torch.ones(3, 4), dynamic={"x": {0: symshape.Policy.UNBACKED}}
    )
    with pytest.raises(InputError, match=r"x\.size\(0\) has no value in the traced call"):
        traced.check(sizes={"x": (None, 4)})
    assert traced.check(sizes={"x": (7, 4)})


def test_a_function_s_own_sizes_are_its_own() -> None:
    def resize(x: torch.Tensor, sizes: dict[str, int]) -> torch.Tensor:
        return x * sizes["n"]

    traced = symshape.trace(resize, torch.ones(3), sizes={"n": 2})
    assert traced.check(torch.ones(5), sizes={"n": 2})
    assert not traced.check(torch.ones(5), sizes={"n": 3})


def test_which_is_the_entry_that_then_serves() -> None:
    compiled = symshape.compile(fn)
    with pytest.raises(InputError, match="nothing has been traced yet"):
        compiled.which(sizes={"ids": (3, 4)})
    for a, b in ((4, 8), (5, 12), (3, 4), (2, 6), (4, 16)):
        compiled(torch.ones(a, b), torch.ones(a, b))
    rng = random.Random(4)
    seen: set[int | None] = set()
    for _ in range(120):
        a, b = rng.randint(0, 7), rng.choice([0, 1, 2, 4, 7, 8, 12])
        ids, mask = torch.ones(a, b), torch.ones(a, b)
        sizes = {"ids": (a, b), "mask": (a, b)}
        found = compiled.which(sizes=sizes)
        assert (
            found.entry
            == compiled.which(ids, mask).entry
            == compiled.which(ids.to("meta"), mask.to("meta")).entry
        )
        assert bool(found) is (found.entry is not None)
        traces = compiled.stats().traces
        assert compiled.stats().calls == 5  # asking is not calling
        entry = _serving(compiled, ids, mask)
        assert entry == found.entry, (sizes, str(found))
        assert compiled.stats().traces == traces
        seen.add(found.entry)
    assert None in seen
    assert len(seen) >= 3


def _serving(compiled: symshape.Compiled, ids: torch.Tensor, mask: torch.Tensor) -> int | None:
    """By the dispatcher itself: the entry of the call, if there is one."""
    from symshape.calls.call_key import read

    _, structure, values = read(compiled.fn, (ids, mask), {})
    found = compiled._cache.find(structure, values)
    return None if found is None else found[1].number


def test_a_miss_says_why_and_what_would_pass() -> None:
    compiled = symshape.compile(lambda x: x.view(-1, 4), dynamic=True)
    compiled(torch.ones(8))
    miss = compiled.which(sizes={"x": (13,)})
    assert not miss
    assert miss.nearest == {"x.size(0)": 12}
    assert str(miss).startswith(
        "no entry would serve it:\n  entry 0: x.size(0) is 13, but it needs x.size(0) % 4 == 0"
    )
    assert compiled.which(sizes={"x": tuple(miss.nearest.values())})
    other = compiled.which(torch.ones(8, dtype=torch.float64))
    assert "float64" in other.reasons[0]
    assert compiled.stats().traces == 1


def test_sizes_are_asked_in_the_modes_of_now() -> None:
    model = torch.nn.Linear(4, 2)
    compiled = symshape.compile(model, dynamic=True)
    with torch.no_grad():
        compiled(torch.ones(3, 4))
        assert compiled.which(sizes={"input": (5, 4)})
    meta = torch.ones(5, 4, device="meta")
    found = compiled.which(sizes={"input": (5, 4)})
    assert not found
    assert str(found) == str(compiled.which(meta))
    assert "grad mode" in found.reasons[0]
    assert "traced under no_grad" in found.reasons[0]
    assert compiled.stats().traces == 1
    compiled(torch.ones(5, 4))
    assert compiled.stats().traces == 2
    assert compiled.which(sizes={"input": (5, 4)}).entry == 1
    with torch.no_grad():
        assert compiled.which(sizes={"input": (5, 4)}).entry == 0


def test_state_that_has_changed_is_a_reason() -> None:
    module = torch.nn.Linear(4, 3)
    module.scale = 2  # type: ignore[assignment]
    compiled = symshape.compile(lambda x: module(x) * module.scale, dynamic=True)
    compiled(torch.ones(2, 4))
    assert compiled.which(sizes={"x": (7, 4)})
    module.scale = 3  # type: ignore[assignment]
    miss = compiled.which(sizes={"x": (7, 4)})
    assert not miss
    assert "scale" in miss.reasons[0]
    assert "has changed since the trace" in miss.reasons[0]
