"""The structure that is read off an exact key is the one that reading the call answers."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Hashable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.calls.call_key import FLAT, QUICK, ExactKey, read_usual, without_integers
from symshape.runtime.cache import EntryCache
from symshape.runtime.known_calls import KnownCalls, Structure

_DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64)
_CONSTANTS = (True, False, None, "a", "b", 1.5, -0.0, 0.0, float("nan"), 2**70, -3, 0, 1, 2)


def _tensor(rng: random.Random) -> torch.Tensor:
    sizes = [rng.choice((0, 1, 2, 3, 4, 5, 6)) for _ in range(rng.randint(0, 3))]
    made = torch.zeros(sizes, dtype=rng.choice(_DTYPES))
    how = rng.randint(0, 9)
    if how == 0 and made.dim() > 1:
        return made.transpose(0, 1)
    if how == 1:
        return torch.zeros([*sizes, 2])[..., 1]
    if how == 2 and made.is_floating_point():
        return made.requires_grad_()
    if how == 3 and made.is_floating_point():
        return nn.Parameter(made)
    if how == 4 and made.is_complex():
        return made.conj()
    if how == 5:
        return torch.zeros(3, *sizes)[1]
    if how == 6:
        return torch.zeros(sizes).to_sparse() if sizes else made
    return made


def _call(rng: random.Random) -> tuple[list[Any], dict[str, Any]]:
    def one() -> Any:
        return _tensor(rng) if rng.random() < 0.6 else rng.choice(_CONSTANTS)

    args, kwargs = [one() for _ in range(rng.randint(0, 2))], {}
    for name in rng.sample("xyz", rng.randint(0, 2)):
        kwargs[name] = one()
    if args and rng.random() < 0.1:
        args.append(args[0])
    return args, kwargs


@pytest.mark.parametrize("exact", [FLAT, QUICK], ids=["in Python", "in C++"])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_read_off_a_key_is_what_reading_answers(seed: int, exact: ExactKey) -> None:
    rng = random.Random(seed)
    known: dict[Hashable, Hashable] = {}
    again = 0
    for _ in range(5000):
        args, kwargs = _call(rng)
        flat = [*args, *kwargs.values()]
        with torch.set_grad_enabled(rng.random() < 0.5):
            key = exact.makers[len(flat)](tuple(flat), kwargs)
            found = None if key is None else without_integers(key)
            if found is None:
                continue
            reading = read_usual(args, kwargs)
        assert reading is not None
        leaves, structure, values = reading
        assert [id(each) for each in leaves] == [id(each) for each in flat]
        assert values == found[1]
        again += found[0] in known
        assert known.setdefault(found[0], structure) == structure
    assert again > 300


def test_few_are_kept() -> None:
    known = KnownCalls(EntryCache(8, 8))
    for number in range(3000):
        key = FLAT.makers[2]([torch.ones(2, 3), str(number)], {})
        assert key is not None
        known.learn(key, (number,), (2, 3))
        split = without_integers(key)
        assert split is not None
        assert (known.structures[split[0]], split[1]) == ((number,), (2, 3))
    assert len(known.structures) <= 1024


def test_a_structure_is_one_object_that_hashes_once() -> None:
    class Part:
        hashed = 0

        def __hash__(self) -> int:
            Part.hashed += 1
            return 7

    known, part = KnownCalls(EntryCache(8, 8)), Part()
    mine = known.same((part, 2))
    assert mine == (part, 2)
    assert hash(mine) == hash((part, 2))
    assert known.same((part, 2)) is mine
    before = Part.hashed
    assert {mine: 1, (mine, True): 2}[mine, True] == 2
    assert Part.hashed == before
    assert copy.deepcopy(Structure((1, "a"))) == (1, "a")
    assert hash(pickle.loads(pickle.dumps(Structure((1, "a"))))) == hash((1, "a"))


def test_new_sizes_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    f = symshape.compile(lambda x, n: x * n, dynamic=True)
    assert torch.equal(f(torch.ones(3, 2), 2), torch.full((3, 2), 2.0))
    monkeypatch.setattr(f._dispatcher, "_read", None)
    for rows in range(4, 9):
        assert torch.equal(f(torch.ones(rows, 2), rows), torch.full((rows, 2), float(rows)))
    assert f.stats().traces == 1


def test_state_that_changed_is_seen_with_new_sizes() -> None:
    module = nn.Linear(4, 4)
    f = symshape.compile(lambda x: module(x) * (2 if module.training else 3), dynamic=True)
    for rows in range(3, 9):
        module.train(rows % 2 == 0)
        x = torch.ones(rows, 4)
        torch.testing.assert_close(f(x), module(x) * (2 if module.training else 3))
    assert f.stats().traces == 2
