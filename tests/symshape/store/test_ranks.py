"""Ranks agree before they compile, or the error names who differs; nobody waits longer than the
timeout.

Ranks are threads here, with the store that process groups have in one process; the slow tests run
real ones on Gloo.
"""

from __future__ import annotations

import gc
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import symshape
from symshape.store import descriptions, entry_format, function_entries
from symshape.store.ranks import Ranks, _verdict
from tests.symshape.store.rank_programs import together
from tests.symshape.store.storing import compiled, counts

SCALE = 2.0
MEETING = Ranks.meeting


def shifted(x: torch.Tensor) -> torch.Tensor:
    return x + 1


class Model(torch.nn.Module):
    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.scale = scale
        self.shift = shifted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shift(self.inner(x)) * self.scale


def _together(
    size: int, run: Callable[[int, Ranks], Any], timeout: float = 60.0, store: Path | None = None
) -> list[Any]:
    """What each rank's function answers or raises."""
    board = dist.HashStore()
    found: list[Any] = [None] * size

    def one(rank: int) -> None:
        try:
            found[rank] = run(rank, Ranks(store, timeout=timeout, board=(board, rank, size)))
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


@pytest.fixture(autouse=True)
def _numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank counts its own functions, as each process does."""

    def meeting(self: Ranks, name: str) -> Any:
        board, rank, size = self.board()
        from symshape.store.ranks import Meeting

        return Meeting(board, rank, size, "compiled0", name, self.timeout)

    monkeypatch.setattr(Ranks, "meeting", meeting)


def _run(model: Any, x: torch.Tensor, ranks: Ranks) -> Any:
    fn = compiled(model, ranks, dynamic=None)  # type: ignore[arg-type]
    torch.testing.assert_close(fn(x), model(x))
    torch.testing.assert_close(fn(x + 1), model(x + 1))
    return counts(fn), len(fn.entries[0].program.symbols)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_one_traces_and_the_others_load(size: int) -> None:
    found = _together(size, lambda rank, ranks: _run(Model(), torch.ones(3, 4), ranks))
    assert found == [((1, 0), 0), *[((0, 1), 0)] * (size - 1)]


def test_sizes_that_differ_are_dynamic_on_all() -> None:
    found = _together(3, lambda rank, ranks: _run(Model(), torch.ones(3 + rank, 4), ranks))
    assert found == [((1, 0), 1), ((0, 1), 1), ((0, 1), 1)]


def test_values_may_differ_and_who_has_another_traces() -> None:
    found = _together(
        3, lambda rank, ranks: _run(Model(5.0 if rank == 1 else 2.0), torch.ones(3, 4), ranks)
    )
    assert [each[0] for each in found] == [(1, 0), (1, 0), (0, 1)]


def test_a_late_rank_is_waited_for() -> None:
    def late(rank: int, ranks: Ranks) -> Any:
        time.sleep(0.5 * (rank == 1))
        return _run(Model(), torch.ones(3, 4), ranks)

    assert [each[0] for each in _together(2, late)] == [(1, 0), (0, 1)]


@pytest.mark.slow
def test_a_warm_call_does_no_more_than_without_ranks() -> None:
    """Counted: nothing asks the group's store, and not one function of Python or C more is
    called.
    """
    board, x = _Asked(), torch.ones(3, 4)
    plain = symshape.compile(shifted, fullgraph=True)
    agreed = symshape.compile(shifted, fullgraph=True, store=Ranks(board=(board, 0, 1)))
    made = [[_calls_of(lambda fn=fn: fn(x)) for _ in range(5)][-1] for fn in (plain, agreed)]
    assert board.asked
    board.asked.clear()
    agreed(x)
    assert not board.asked
    assert made[0] == made[1] > 0


class _Asked:
    """A group's store that notes what it is asked."""

    def __init__(self) -> None:
        self._inner, self.asked = dist.HashStore(), list[str]()

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._inner, name)


def _calls_of(run: Callable[[], Any]) -> int:
    seen = [0]

    def note(frame: Any, event: str, arg: Any) -> None:
        seen[0] += event in ("call", "c_call")

    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return seen[0]


def _errors(found: list[Any], pattern: str) -> None:
    for each in found:
        assert isinstance(each, symshape.RankError), each
        assert re.search(pattern, str(each)), str(each)


def test_a_dead_rank_is_named() -> None:
    began = time.monotonic()
    found = _together(
        3, lambda rank, ranks: rank == 2 or _run(Model(), torch.ones(3, 4), ranks), timeout=0.3
    )
    assert found[2] is True
    _errors(
        found[:1], "waited 0.3 s for rank 2, which should say that it has come.*rank 2 never came"
    )
    _errors(found[1:2], "waited 0.3 s for rank 0, .*; ranks 0, 1 came; rank 2 never came")
    assert time.monotonic() - began < 10


def test_another_function_is_named() -> None:
    class Other(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) - 1

    Other.__qualname__ = Model.__qualname__
    found = _together(
        3, lambda rank, ranks: _run(Other() if rank == 1 else Model(), torch.ones(3, 4), ranks)
    )
    _errors(found, "rank 1 has different code for the function")


def test_another_helper_is_named() -> None:
    def different(rank: int, ranks: Ranks) -> Any:
        model = Model()
        if rank == 2:
            model.shift = lambda x: x + 2
        return _run(model, torch.ones(3, 4), ranks)

    _errors(_together(3, different), "rank 2: the code of shift differs from rank 0")


@pytest.mark.parametrize("what", ["method", "value"])
def test_another_method_is_code_and_another_value_is_none(what: str) -> None:
    """Ranks may differ in the values of a class: each traces its own program then."""

    def of_class(rank: int) -> Any:
        class Scaled(Model):
            def shift(self, x: torch.Tensor) -> torch.Tensor:
                return x - 1

            by = 2.0

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.shift(self.inner(x)) * self.by

        if rank and what == "method":
            Scaled.shift = lambda self, x: x - 2  # type: ignore[method-assign]
        elif rank:
            Scaled.by = 3.0
        found = Scaled()
        del found.shift
        return found

    found = _together(2, lambda rank, ranks: _run(of_class(rank), torch.ones(3, 4), ranks))
    if what == "value":
        assert [each[0][0] for each in found] == [1, 1]
        return
    assert all("rank 1: the code of" in str(each) for each in found), found


def test_another_argument_is_named() -> None:
    def different(rank: int, ranks: Ranks) -> Any:
        return (
            _run(Model().double(), torch.ones(3, 4, dtype=torch.float64), ranks)
            if rank
            else _run(Model().double(), torch.ones(4, dtype=torch.float64), ranks)
        )

    found = _together(3, different)
    _errors(found, 'rank 0 is given x as .*1, "contiguous".*, where rank 1 has .*2, "contiguous"')


def test_a_second_group_traces_nothing(tmp_path: Path) -> None:
    """Ranks with a store on disk, whose sizes differ: the first group traces one program, the
    second none.
    """

    def run(rank: int, ranks: Ranks) -> Any:
        return _run(Model(), torch.ones(3 + rank, 4), ranks)

    assert _together(2, run, store=tmp_path) == [((1, 0), 1), ((0, 1), 1)]
    assert _together(2, run, store=tmp_path) == [((0, 1), 1), ((0, 1), 1)]


def test_a_stored_program_must_serve_all_ranks(tmp_path: Path) -> None:
    """One rank's size is stored as a number; with another rank that has another size, it becomes
    dynamic.
    """
    _together(1, lambda rank, ranks: _run(Model(), torch.ones(3, 4), ranks), store=tmp_path)
    found = _together(
        2, lambda rank, ranks: _run(Model(), torch.ones(3 + rank, 4), ranks), store=tmp_path
    )
    assert found == [((1, 0), 1), ((0, 1), 1)]


def test_ranks_have_devices_of_their_own() -> None:
    """Accelerators with other numbers are no difference; what is on one device and on two is."""

    def has(*devices: str) -> dict[str, Any]:
        leaves = [
            ["tensor", "torch.float32", each, False, 2, "contiguous", "torch.Tensor"]
            for each in devices
        ]
        structure = {"modes": [True, False, "torch.float32", [], devices[0]], "leaves": leaves}
        return {
            "name": "f",
            "code": "c",
            "structure": structure,
            "paths": ["x", "y"],
            "values": [3, 4],
        }

    assert _verdict([has("cuda:0", "cuda:0"), has("cuda:1", "cuda:1")]) == {
        "wrong": "",
        "changing": [],
    }
    two = _verdict([has("cuda:0", "cuda:0"), has("cuda:1", "cuda:0"), has("cuda:2", "cuda:2")])
    assert "rank 1 is given y as" in two["wrong"]
    other = _verdict([has("cuda:0", "cuda:0"), has("cuda:1", "cuda:1"), has("cpu", "cpu")])
    assert "rank 2 is given x as" in other["wrong"]


@pytest.mark.parametrize("wordless", [(1,), (1, 2), (0, 1, 2)])
def test_ranks_whose_arguments_have_no_words(wordless: tuple[int, ...]) -> None:
    """They are named, also if they are the most; where all have the same, each traces its own."""
    call = {"modes": [True, "float32"], "tree": "*", "leaves": [["int"]]}
    told = {"name": ["m", "f"], "code": "c", "structure": call, "paths": ["x"]}
    silent = {"unstorable": "x is a generator"}
    have = [{**(silent if rank in wordless else told), "values": []} for rank in range(3)]
    odd = wordless if len(wordless) < 3 else ()
    wrong = [
        f"rank {rank} has an argument that cannot be compared: x is a generator" for rank in odd
    ]
    assert _verdict(have) == {"wrong": "; ".join(wrong), "changing": []}


def test_a_helper_on_another_device_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1's tensors are on ``meta``, which stands for another accelerator: it traces for itself,
    or is told.
    """
    names = {"cpu": "cuda:0", "meta": "cuda:1"}
    real = function_entries.structure_to_json

    def numbered(call: Any, now: Any) -> Any:
        found = real(call, now)
        return {
            **found,
            "leaves": [[*each[:2], names[each[2]], *each[3:]] for each in found["leaves"]],
        }

    monkeypatch.setattr(function_entries, "structure_to_json", numbered)
    monkeypatch.setattr(entry_format, "structure_to_json", numbered)
    described = descriptions.Describer.of
    here = {"cuda:0": "cpu", "cuda:1": "meta"}

    def of(self: Any, value: Any) -> Any:
        found = described(self, value)
        return [names.get(each, each) if type(each) is str else each for each in found]

    monkeypatch.setattr(descriptions.Describer, "of", of)

    def run(rank: int, ranks: Ranks, other: bool) -> Any:
        with torch.device(here[f"cuda:{rank}"]):
            model, x = Model(), torch.ones(3, 4)
        if other and rank:
            model.shift = lambda x: x + 2
        fn = compiled(model, ranks, dynamic=None)  # type: ignore[arg-type]
        assert fn(x).shape == (3, 4)
        return counts(fn)

    assert _together(2, lambda rank, ranks: run(rank, ranks, False)) == [(1, 0), (1, 0)]
    _errors(
        _together(2, lambda rank, ranks: run(rank, ranks, True)),
        "rank 1: the code of shift differs",
    )


def test_an_error_of_the_program_reaches_all() -> None:
    class Failing(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no")

    found = _together(2, lambda rank, ranks: _run(Failing(), torch.ones(3, 4), ranks), timeout=5.0)
    assert [str(each) for each in found] == ["no", "no"]


def test_without_a_process_group() -> None:
    with pytest.raises(symshape.RankError, match="init_process_group"):
        compiled(lambda x: x, Ranks())(torch.ones(2))  # type: ignore[arg-type]


@pytest.mark.parametrize("outside", ["other functions", "no member"])
def test_groups_count_the_functions_that_they_compile(
    monkeypatch: pytest.MonkeyPatch, outside: str
) -> None:
    """A rank that has compiled with some of the others meets all of them at the same place."""
    if outside == "no member":
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        with pytest.raises(symshape.RankError, match="this process is not one"):
            Ranks(group=dist.GroupMember.NON_GROUP_MEMBER).board()
        return
    monkeypatch.setattr(Ranks, "_numbers", defaultdict(count))
    monkeypatch.setattr(Ranks, "board", lambda self: (dist.HashStore(), 0, 2))
    monkeypatch.setattr(Ranks, "_members", lambda self: self._group)
    groups = ((0, 1), (0, 2), (0, 1), (0, 1, 2))
    found = [MEETING(Ranks(group=each), "f")._key for each in groups]
    assert found == ["compiled0", "compiled0", "compiled1", "compiled0"]


@pytest.mark.nightly
def test_ranks_of_several_groups() -> None:
    found = together("groups", 3)
    assert [each["traces"] for each in found] == [[1, 1], [0, 1, 0], [0, 0]]


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("scenario", "error"),
    [
        ("same", ""),
        ("uneven", ""),
        ("late", ""),
        ("other value", ""),
        ("dead", ("rank {last} never came")),
        ("dead in the trace", "for rank 0, which should say that it compiles"),
        ("other code", "rank {last} has different code"),
        ("other helper", ("rank {last}: the code of")),
        ("other argument", "rank {last} is given x"),
    ],
)
def test_processes_on_gloo(scenario: str, error: str, size: int) -> None:
    found = together(scenario, size)
    if not error:
        assert [each["traces"] for each in found] == [
            1,
            *[0] * (size - 2),
            int(scenario == "other value"),
        ]
        assert {each["symbols"] for each in found} == {int(scenario == "uneven")}
        return
    gone = {"dead": size - 1, "dead in the trace": 0}.get(scenario)
    for rank, each in enumerate(found):
        if rank == gone:
            assert each == {}
        elif size == 2 and scenario.startswith("other"):  # of two, neither is the odd one
            assert re.search(r"rank [01]", each["error"])
        else:
            assert error.format(last=size - 1) in each["error"]
        assert rank == gone or each["seconds"] < 90
