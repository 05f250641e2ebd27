"""The look-up of an entry is the same for calls, for verification and for its own timing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import symshape
from symshape.errors import FallbackWarning, UnsupportedError
from symshape.runtime.eager_calls import EagerCall


class Passing(TorchFunctionMode):
    """A mode of the user's that changes nothing."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


def _arguments(n: int) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    x = torch.ones(n, 3)
    yield (x,), {}
    yield (x, 2), {}
    yield (x,), {"by": 2.5}
    yield ({"x": x, "by": n},), {}
    yield ([x, x + 1],), {}
    yield (x.to(torch.complex64),), {}  # its exact key is not remembered


def _double(x: Any, by: Any = 2) -> Any:
    if isinstance(x, dict):
        return x["x"] * x["by"]
    return x[0] * by + x[1] if isinstance(x, list) else x * by


def test_the_entry_that_is_found_is_the_entry_that_serves() -> None:
    compiled: Any = symshape.compile(_double, dynamic=True)
    for n in (4, 5, 4, 6):
        for args, kwargs in _arguments(n):
            wanted, clock = _double(*args, **kwargs), compiled.stats().calls
            assert torch.equal(compiled(*args, **kwargs), wanted)
            served = [each for each in compiled.entries if each.last_used == clock + 1]
            traces = compiled.stats().traces
            entry, values, leaves = compiled._dispatcher.entry_of(args, kwargs)
            assert [entry] == served
            assert torch.equal(entry.made(entry.run(leaves, values), leaves), wanted)
            assert compiled.stats().traces == traces


def test_a_call_is_traced_where_it_is_looked_up_first() -> None:
    compiled: Any = symshape.compile(lambda x: x + 1)
    entry, values, _ = compiled._dispatcher.entry_of((torch.ones(3),), {})
    assert (compiled.entries, values, compiled.stats().traces) == ((entry,), (3,), 1)
    assert compiled._dispatcher.look_up((torch.ones(3),), {})[2][0] is entry
    assert compiled._dispatcher.look_up((torch.ones(4),), {})[2] is None


def test_a_call_that_runs_eagerly_has_no_entry() -> None:
    compiled: Any = symshape.compile(lambda x: x * 2 if float(x.sum()) > 0 else x)
    with pytest.warns(FallbackWarning):
        compiled(torch.ones(3))
    assert isinstance(compiled._dispatcher.find((torch.ones(3),), {}), EagerCall)
    with pytest.raises(UnsupportedError, match="sum"):
        compiled._dispatcher.entry_of((torch.ones(3),), {})


def _timed(compiled: Any) -> None:
    compiled._cache.clock = 255  # the next call times its look-up


def _verified(compiled: Any) -> None:
    assert compiled.stats().verified == 0


@pytest.mark.parametrize(
    ("options", "before"), [({"plain_calls": False}, _timed), ({"verify": 1.0}, _verified)]
)
def test_a_mode_that_no_key_names_has_each_call_run_eagerly(
    options: Any, before: Callable[[Any], None]
) -> None:
    """Also the call that is timed, and the one that is verified: neither may raise what the others
    do not.
    """
    compiled: Any = symshape.compile(lambda x: x * 2, options=options)
    before(compiled)
    with Passing(), pytest.warns(FallbackWarning, match="torch function mode Passing"):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert compiled.stats().fallbacks == 1
