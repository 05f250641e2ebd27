"""``on_miss="error"``: nothing is traced, and the error says what of the call no stored program
serves.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape import MissError
from symshape.frontends.dynamo import symshape_backend
from symshape.store.ranks import Ranks
from tests.symshape.store.storing import compiled, counts, entries

SCALE = 1.5


def rows(x: torch.Tensor, k: int = 2) -> torch.Tensor:
    return x.view(-1, 4) * SCALE * k


def _only_loads(fn: Any, store: Any, dynamic: Any = True, **options: Any) -> Any:
    return compiled(
        fn, store, fullgraph=False, dynamic=dynamic, options={"on_miss": "error", **options}
    )


def test_calls_that_are_served(tmp_path: Path) -> None:
    compiled(rows, tmp_path)(torch.ones(8))
    fn = _only_loads(rows, tmp_path)
    for n in (8, 4, 16, 0, 12):
        assert torch.equal(fn(torch.ones(n)), rows(torch.ones(n)))
    assert counts(fn) == (0, 1)


def test_sizes_that_none_serves(tmp_path: Path) -> None:
    compiled(rows, tmp_path)(torch.ones(8))
    fn = _only_loads(rows, tmp_path)
    (path,) = entries(tmp_path)
    for _ in range(2):  # before and after an entry is in memory
        with pytest.raises(MissError) as caught:
            fn(torch.ones(13))
        message = str(caught.value)
        for part in (
            "no stored program serves rows with x.size(0) = 13",
            f"x.size(0) is 13, but entry {path.stem[:12]} needs",
            "nearest passing input: x.size(0) = 12",
            "symshape bake",
        ):
            assert part in message
        assert dict(caught.value.sizes) == {"x.size(0)": 13}
        assert dict(caught.value.nearest) == {"x.size(0)": 12}
        fn(torch.ones(8))
    assert counts(fn) == (0, 1)
    assert len(entries(tmp_path)) == 1


def at_most_32(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 32:
        raise ValueError(x.shape)
    return x + 1 if x.shape[0] > 8 else x - 1


def test_the_nearest_sizes_are_named_whichever_entry_was_used_last(tmp_path: Path) -> None:
    """One size would have to change for either entry: it is named by how much, not by the order of
    the files.
    """
    fn = compiled(at_most_32, tmp_path)
    fn(torch.ones(4)), fn(torch.ones(20))
    for last in entries(tmp_path):
        for each in entries(tmp_path):
            os.utime(each, (2e9, 2e9 + (each == last)))
        with pytest.raises(MissError, match=r"nearest passing input: x\.size\(0\) = 32") as caught:
            _only_loads(at_most_32, tmp_path)(torch.ones(33))
        assert dict(caught.value.nearest) == {"x.size(0)": 32}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            "dtype",
            (
                "x is a contiguous torch.float64 tensor of 1 dim(s) on cpu, but was a contiguous "
                "torch.float32"
            ),
        ),
        ("dimension", "x is a contiguous torch.float32 tensor of 2 dim(s)"),
        (
            "mode",
            "it runs under no_grad, default dtype torch.float32, but was traced under grad mode",
        ),
        ("name", "other names"),
        ("state", "SCALE has changed since entry"),
        ("other", "the store has none of this function"),
        ("dynamic", "another dynamic=…"),
        ("surroundings", "made elsewhere: torch's flags differs"),
    ],
)
def test_what_else_is_another(
    tmp_path: Path, change: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(rows, tmp_path)(torch.ones(8))
    x = torch.ones(8)
    words: dict[str, Any] = {}
    fn: Any = rows
    dynamic: Any = True
    if change == "dtype":
        x = x.double()
    elif change == "dimension":
        x = torch.ones(2, 4)
    elif change == "name":
        words = {"k": 2}
    elif change == "state":
        monkeypatch.setitem(globals(), "SCALE", 2.5)
    elif change == "other":
        fn = test_calls_that_are_served
    elif change == "dynamic":
        dynamic = {"x": {0: "n"}}
    elif change == "surroundings":
        monkeypatch.setattr(torch.backends.mha, "get_fastpath_enabled", lambda: "no")
    reader = _only_loads(fn, tmp_path, dynamic)
    with torch.set_grad_enabled(change != "mode"), pytest.raises(MissError) as caught:
        reader(x, **words)
    assert told in str(caught.value)
    assert counts(reader) == (0, 0)


def test_the_nearest_of_several(tmp_path: Path) -> None:
    first = compiled(rows, tmp_path, dynamic=False)
    for n in (8, 40, 100):
        first(torch.ones(n))
    fn = _only_loads(rows, tmp_path, False, free_traces=1)
    for n in (8, 100, 40):  # more programs than may be traced for nothing: they are not traced
        fn(torch.ones(n))
    assert counts(fn) == (0, 3)
    with pytest.raises(MissError, match=r"x.size\(0\) is 44, but entry"):
        fn(torch.ones(44))
    assert counts(fn) == (0, 3)


def test_state_that_changes_after_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(rows, tmp_path)(torch.ones(8))
    fn = _only_loads(rows, tmp_path)
    fn(torch.ones(8))
    monkeypatch.setitem(globals(), "SCALE", 2.5)
    with pytest.raises(MissError, match="SCALE has changed since"):
        fn(torch.ones(8))
    monkeypatch.undo()
    assert torch.equal(fn(torch.ones(8)), rows(torch.ones(8)))


def test_entries_that_come_later(tmp_path: Path) -> None:
    """What another process bakes meanwhile is found: a miss is not remembered."""
    fn = _only_loads(rows, tmp_path)
    with pytest.raises(MissError, match="none of this function"):
        fn(torch.ones(8))
    compiled(rows, tmp_path)(torch.ones(8))
    assert torch.equal(fn(torch.ones(8)), rows(torch.ones(8)))


def test_where_it_makes_no_sense(tmp_path: Path) -> None:
    with pytest.raises(symshape.InputError, match="needs a store"):
        symshape.compile(rows, options={"on_miss": "error"})
    with pytest.raises(symshape.InputError, match="not for ranks"):
        symshape.compile(rows, store=Ranks(), options={"on_miss": "error"})
    with pytest.raises(symshape.InputError, match="on_miss must be one of"):
        symshape.Options(on_miss="eager")  # type: ignore[arg-type]
    backed: Any = torch.compile(rows, backend=symshape_backend, options={"on_miss": "error"})
    with pytest.raises(Exception, match=r"on_miss needs a store, which only symshape\.compile has"):
        backed(torch.ones(8))
    torch._dynamo.reset()
