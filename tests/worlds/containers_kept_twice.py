"""Containers that a call makes and keeps in two places: one object, also where they are read or
written later.
"""

from __future__ import annotations

import collections
from typing import Any

import torch
from torch import nn

from tests.worlds.world import World, on, world

TWICE = "3 containers kept twice"
CALLS = [on(2, 3), on(4, 3), on(5, 3)]


class _Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.params: Any = None
        self.last: Any = None


def _lived(m: Any) -> World:
    def same() -> Any:
        inner = m.last[1] if isinstance(m.last, tuple) else m.last
        return m.params is inner, m.params, m.last

    return World(m, CALLS, same)


@world(TWICE)
def alone_and_in_a_tuple() -> World:
    class M(_Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            p = {"a": x * 2, "n": x.shape[0], "b": [x + 1]}
            self.params = p
            self.last = (x, p)
            return p["a"] + 1

    return _lived(M())


@world(TWICE)
def inside_of_two_others() -> World:
    class M(_Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            p = [x * 2]
            self.params = {"one": p, "two": p}
            self.last = collections.deque([p, [p]])
            return x + 1

    m = M()
    one = lambda: (  # noqa: E731
        m.params["one"] is m.params["two"],
        m.last[0] is m.last[1][0],
        m.last[0] is m.params["one"],
    )
    return World(m, CALLS, lambda: m.params and (one(), m.params))


@world(TWICE)
def one_shared_holds_another() -> World:
    class M(_Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner = [x.shape[0]]
            p = {"inner": inner}
            self.params, self.last = p, (inner, p, inner)
            return x + 1

    m = M()
    return World(
        m, CALLS, lambda: m.last and (m.last[0] is m.params["inner"], m.last[1] is m.params, m.last)
    )


@world(TWICE)
def appended_to_a_list_that_was_there() -> World:
    log: list[Any] = []

    class M(_Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            p = {"x": x * 2}
            self.params = p
            log.append(p)
            return x + 1

    m = M()
    return World(m, CALLS, lambda: log and (log[-1] is m.params, log))


@world(TWICE)
def read_and_written_by_the_next_call() -> World:
    class M(_Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 1
            if self.last is not None:
                self.params["k"] = self.params["k"] + 1
                y = x * self.last[1]["k"]
            p = {"k": x.shape[0]}
            self.params, self.last = p, (x, p)
            return y

    return _lived(M())


@world(TWICE)
def written_alone_by_the_next_call() -> World:
    class M(_Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.last is None:
                p = {"k": x.shape[0]}
                self.params, self.last = p, (x, p)
                return x
            self.params["k"] = self.params["k"] + x.shape[0]
            return x * self.last[1]["k"]

    return _lived(M())


@world(TWICE)
def inner_one_written_by_the_next_call() -> World:
    class M(_Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.last is None:
                p = [x.shape[0]]
                self.params, self.last = {"one": p}, (p, [p])
                return x
            self.params["one"].append(x.shape[0])
            return x * len(self.last[0]) + self.last[1][0][-1]

    m = M()
    return World(
        m, [*CALLS, *CALLS], lambda: m.last and (m.params["one"] is m.last[0], m.params, m.last)
    )


@world(TWICE)
def one_name_given_another_by_the_next_call() -> World:
    class M(_Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.last is None:
                self.params = self.last = {"k": x.shape[0]}
                return x
            self.params = {"k": self.params["k"] + 1}
            return x * self.last["k"]

    return _lived(M())


@world(TWICE)
def compared_by_the_next_call() -> World:
    class M(_Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1 if self.last is not None and self.last[1] is self.params else x - 1
            p = {"k": x}
            self.params, self.last = p, (x, p)
            return y

    return _lived(M())


@world(TWICE)
def torn_apart_between_calls() -> World:
    class M(_Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x
            if self.last is not None:
                self.params["k"] = self.params["k"] + 1
                y = x * self.last["k"]
            return y

    m = M()
    m.params = m.last = {"k": 1}

    def tear() -> None:
        m.last = dict(m.params)

    return World(m, [*CALLS, tear, *CALLS], lambda: (m.params, m.last))


@world(TWICE)
def returned_as_well() -> World:
    class M(_Keeping):
        def forward(self, x: torch.Tensor) -> Any:
            p = {"k": x * 2}
            self.params = p
            return p

    m = M()
    return World(m, CALLS, lambda: m.params)


@world(TWICE)
def kept_in_an_argument_too() -> World:
    class M(_Keeping):
        def forward(self, x: torch.Tensor, out: list[Any]) -> torch.Tensor:
            p = [x * 2]
            self.params = p
            out.append(p)
            return x

    m, given = M(), list[Any]()
    return World(
        lambda x: m(x, given), CALLS, lambda: given and (given[-1] is m.params, len(given))
    )
