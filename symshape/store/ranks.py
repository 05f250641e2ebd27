"""Ranks that compile one program together: they compare their calls, one traces, the others load
its entry.

All messages go through the key-value store of the process group (no collective, nothing on a warm
call), at the first call of a compiled function. Every rank publishes its call. The first rank
compares them and gives a verdict: sizes that differ are dynamic on all ranks; code or arguments
that differ are an error on all ranks, which names the rank. The first rank then traces and passes
its entry to the others. Nobody waits longer than the timeout. Its error says who did not come, and
how far each rank was.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, ClassVar, Protocol

from guards.sets.sources import IntArg, Source
from symshape import events
from symshape.calls.arguments import Call, sources_of
from symshape.errors import RankError, SymShapeError
from symshape.graph.program import Program
from symshape.store.call_structure import with_own_devices
from symshape.store.function_entries import FunctionEntries
from symshape.store.store_errors import Differs, EntryError, NotStorable

_SOON, _LATE = 0.001, 0.05
"""The seconds between two looks at the store, at first and later on."""
_LATE_A_RANK = 1e-4
"""The seconds between two looks for each rank, if that is later: one server answers all ranks, one
at a time.
"""

Get = Callable[[Sequence[Source], Sequence[Sequence[int]]], Program]
"""A stored program that serves these integers of other ranks too, or one traced with these sources
as symbols.
"""


class KeyValueStore(Protocol):
    """A place where ranks write for each other: a key-value store of ``torch.distributed``."""

    def set(self, key: str, value: bytes | str) -> None:
        """Write a value."""

    def get(self, key: str) -> bytes:
        """Read a value; wait until there is one."""

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys exist."""


class Ranks:
    """A store option by which all ranks of a process group compile a function together:
    ``store=Ranks()``.

    Args:
        store: where entries are kept besides: ``True``, a path, a store; None for nowhere.
        group: the process group; the default one if not given.
        timeout: seconds that ranks wait for each other, at each step.
        board: for tests: what stands for the group's store, this rank and the number of ranks.
    """

    # by the members of a group, their compiled functions: the nth of one is the nth of all
    _numbers: ClassVar[dict[tuple[int, ...], Iterator[int]]] = defaultdict(count)

    def __init__(
        self,
        store: Any = None,
        group: Any = None,
        *,
        timeout: float = 300.0,
        board: tuple[KeyValueStore, int, int] | None = None,
    ) -> None:
        self.store = store
        self.timeout = timeout
        self._group = group
        self._board = board

    def __repr__(self) -> str:
        return f"Ranks({self.store!r})"

    def board(self) -> tuple[KeyValueStore, int, int]:
        """Return the key-value store, this rank, and the number of ranks.

        Raises:
            RankError: there is no process group, or this process is not in it.
        """
        if self._board is not None:
            return self._board
        import torch.distributed as dist
        from torch.distributed import distributed_c10d

        if not dist.is_available() or not dist.is_initialized():
            raise RankError(
                "store=Ranks() needs a process group: call torch.distributed.init_process_group() "
                "first"
            )
        group: Any = self._group or dist.group.WORLD
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            raise RankError(
                "store=Ranks(group=…) is for the members of the group, and this process is not one"
            )
        # (private; checked on 2.11 to 2.13)
        found = distributed_c10d._get_process_group_store(group)
        board: Any = distributed_c10d.PrefixStore("symshape", found)
        return board, dist.get_rank(group), dist.get_world_size(group)

    def meeting(self, name: str) -> Meeting:
        """Return the meeting of the ranks for the next compiled function of this name."""
        board, rank, size = self.board()
        number = next(self._numbers[self._members()])
        return Meeting(board, rank, size, f"compiled{number}", name, self.timeout)

    def _members(self) -> tuple[int, ...]:
        """Return the ranks of the group's members among all processes."""
        if self._board is not None:
            return ()
        import torch.distributed as dist

        return tuple(dist.get_process_group_ranks(self._group or dist.group.WORLD))


class Meeting:
    """The ranks of one compiled function.

    Args:
        board: where they write.
        rank: this one.
        size: how many there are.
        key: of what is said there.
        name: of the function.
        timeout: seconds.
    """

    def __init__(
        self, board: KeyValueStore, rank: int, size: int, key: str, name: str, timeout: float
    ) -> None:
        self._board, self._rank, self._size, self._timeout = board, rank, size, timeout
        self._key, self._name = key, name

    def program(
        self, keeper: FunctionEntries, call: Call, values: Sequence[int], get: Get
    ) -> Program:
        """Return the program for the first call of all ranks.

        Raises:
            RankError: they do not agree, or one of them did not come.
        """
        try:
            mine = keeper.identity(call)
        except NotStorable as error:
            mine = {"unstorable": str(error)}
        self._say("has", {**mine, "values": list(values)})
        if self._rank == 0:
            have = self._hear_all("has", "has come to compile")
            self._say("verdict", _verdict(have), self._rank)
        verdict = self._hear("verdict", 0, "compares what the ranks have")
        if verdict["wrong"]:
            raise RankError(f"{self._name}: {verdict['wrong']}")
        sources = [each for i, each in enumerate(sources_of(call)) if i in verdict["changing"]]
        sources = [each for each in sources if not isinstance(each, IntArg)]
        if self._rank == 0:
            others = {tuple(each["values"]) for each in have}
            program = self._lead(keeper, call, lambda: get(sources, sorted(others)))
        else:
            program = self._follow(keeper, call, values, lambda: get(sources, ()))
        if self._rank == 0:
            outcomes = self._hear_all("outcome", "has loaded or compiled")
            wrong = [f"rank {rank}: {each}" for rank, each in enumerate(outcomes) if each]
            self._say("end", {"wrong": "; ".join(wrong)})
        end = self._hear("end", 0, "waits for the others")
        if end["wrong"]:
            raise RankError(f"{self._name}: {end['wrong']}")
        return program

    def _lead(self, keeper: FunctionEntries, call: Call, get: Callable[[], Program]) -> Program:
        """Load or trace, and pass the entry to the others, or tell them why there is none."""
        try:
            program = get()
        except BaseException as error:
            self._say("entry", {"reason": f"{type(error).__name__}: {error}"})
            self._say("outcome", "")
            self._say("end", {"wrong": ""})
            raise
        try:
            self._say("entry", {"content": keeper.content_of(program, call).decode()})
        except NotStorable as error:
            self._say("entry", {"reason": str(error)})
        self._say("outcome", "")
        return program

    def _follow(
        self, keeper: FunctionEntries, call: Call, values: Sequence[int], get: Callable[[], Program]
    ) -> Program:
        """Load the entry of rank 0; if it does not fit, load a stored one, or trace."""
        entry = self._hear("entry", 0, "compiles")
        program, reason = (
            None,
            entry.get("reason", "rank 0's program is for other sizes, or for its own device"),
        )
        if "content" in entry:
            try:
                program = keeper.program_of(entry["content"].encode(), call, values)
            except Differs as error:
                reason = f"{error} differs from rank 0"
                if error.of_code:
                    self._say("outcome", f"the code of {reason}")
                    end = self._hear("end", 0, "waits for the others")
                    raise RankError(f"{self._name}: {end['wrong']}") from error
            except (EntryError, SymShapeError) as error:
                reason = str(error)
        if program is None:
            events.emit(events.NotServed(self._name, reason))
            try:
                program = get()
            except BaseException:
                self._say("outcome", "")
                raise
        self._say("outcome", "")
        return program

    # -- writing and reading
    def _say(self, what: str, data: Any, rank: int | None = None) -> None:
        self._board.set(
            f"{self._key}/{what}/{self._rank if rank is None else rank}", json.dumps(data)
        )

    def _hear_all(self, what: str, doing: str) -> list[Any]:
        return [self._hear(what, rank, doing) for rank in range(self._size)]

    def _hear(self, what: str, rank: int, doing: str) -> Any:
        """Return the message of a rank; raise once the timeout has passed since the wait began."""
        key = f"{self._key}/{what}/{rank}"
        end, pause = time.monotonic() + self._timeout, _SOON
        try:
            while not self._board.check([key]):
                if time.monotonic() > end:
                    raise RankError(
                        f"{self._name}: rank {self._rank} waited {self._timeout:g} s for rank "
                        f"{rank}, which should say that it {doing}; {self._states()}"
                    )
                time.sleep(pause)
                pause = min(2 * pause, max(_LATE, _LATE_A_RANK * self._size))
            return json.loads(self._board.get(key))
        except RankError:
            raise
        except (RuntimeError, OSError) as error:  # the process that keeps the group's store is gone
            raise RankError(
                f"{self._name}: rank {self._rank} cannot reach the group's store: {error}"
            ) from error

    def _states(self) -> str:
        """Return the progress of each rank, in words."""
        steps = {"has": "came", "entry": "has compiled", "outcome": "is ready", "end": "is done"}
        found: dict[str, list[str]] = {}
        for rank in range(self._size):
            state = "never came"
            for step, words in steps.items():
                if self._board.check([f"{self._key}/{step}/{rank}"]):
                    state = words
            found.setdefault(state, []).append(str(rank))
        return "; ".join(
            f"rank{'s' * (len(ranks) > 1)} {', '.join(ranks)} {state}"
            for state, ranks in found.items()
        )


def _verdict(have: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what is wrong, and which integers differ; the majority of ranks is taken to be
    right.
    """
    wrong = []
    for part, words in (
        ("name", "compiles another function"),
        ("code", "has different code for the function"),
    ):
        wrong += _odd(have, part, words)
    if not wrong:
        wrong = _odd_arguments(have)
    lengths = {len(each["values"]) for each in have}
    changing = []
    if not wrong and len(lengths) == 1:
        columns = zip(*(each["values"] for each in have), strict=True)
        changing = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    return {"wrong": "; ".join(wrong), "changing": changing}


def _odd(have: Sequence[dict[str, Any]], part: str, words: str) -> list[str]:
    # a call that has no words says neither name nor code
    texts = {rank: json.dumps(each[part]) for rank, each in enumerate(have) if part in each}
    found = list(texts.values())
    usual = max(found, key=found.count, default="")
    first = next((rank for rank, text in texts.items() if text == usual), 0)
    return [
        f"rank {rank} {words} ({_short(text)}, where rank {first} has {_short(usual)})"
        for rank, text in texts.items()
        if text != usual
    ]


def _odd_arguments(have: Sequence[dict[str, Any]]) -> list[str]:
    have = [
        {**each, "structure": with_own_devices(each["structure"])} if "structure" in each else each
        for each in have
    ]
    wordless = {rank: each["unstorable"] for rank, each in enumerate(have) if "unstorable" in each}
    if len(wordless) not in (0, len(have)):
        return [
            f"rank {rank} has an argument that cannot be compared: {why}"
            for rank, why in wordless.items()
        ]
    texts = [json.dumps([each.get("structure"), each.get("unstorable")]) for each in have]
    usual = max(texts, key=texts.count)
    model = have[texts.index(usual)]
    found = []
    for rank, (text, each) in enumerate(zip(texts, have, strict=True)):
        if text != usual:
            found.append(f"rank {rank} {_difference(each, model, texts.index(usual))}")
    return found


def _difference(mine: dict[str, Any], other: dict[str, Any], rank: int) -> str:
    """Return the first argument in which two calls differ, in words."""
    if mine.get("structure") is None or other.get("structure") is None:
        return (
            "has an argument that cannot be compared: "
            f"{mine.get('unstorable') or other.get('unstorable')}"
        )
    leaves, others = mine["structure"]["leaves"], other["structure"]["leaves"]
    for path, one, two in zip(mine["paths"], leaves, others, strict=False):
        if one != two:
            return (
                f"is given {path} as {_short(json.dumps(one))}, where rank {rank} has "
                f"{_short(json.dumps(two))}"
            )
    if len(leaves) != len(others):
        return f"is given {len(leaves)} arguments, where rank {rank} has {len(others)}"
    return (
        f"is in other modes (gradients, inference, autocast) than rank {rank}, or has its "
        "arguments in other containers"
    )


def _short(text: str) -> str:
    return text if len(text) < 100 else f"{text[:24]}…"
