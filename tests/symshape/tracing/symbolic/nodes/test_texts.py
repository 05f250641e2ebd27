"""The text of a size is its value to the program, which a guard then fixes, and its name to
people.
"""

from __future__ import annotations

import contextlib
import io
import logging
from typing import Any

import attrs
import pytest
import torch

import symshape
from symshape import DataDependentError, UnsupportedError
from tests.symshape.eager import agree

ROWS = [(torch.randn(4, 3),), (torch.randn(2, 3),), (torch.randn(4, 5),), (torch.randn(1, 1),)]


@attrs.frozen
class _Config:
    n: Any


def _table(x: torch.Tensor) -> torch.Tensor:
    return x * {"4": 2.0, "2": 3.0}.get(f"{x.size(0)}", 5.0)


def _caught(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    out = io.StringIO()
    print(x.size(0), file=out)
    with contextlib.redirect_stdout(out):
        print(x.size(0))
    return x * 2, out.getvalue()


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x, f"{x.size(0)}"),
        lambda x: (x, f"{x.size(0)!r} {x.size(0) + 1!s}"),
        lambda x: (x, str(x.size(0)), repr(x.size(0))),
        lambda x: (x, format(x.size(0))),
        lambda x: (x, "%s %d" % (x.size(0), x.size(0))),  # noqa: UP031
        lambda x: (x, "{}".format(x.size(0))),  # noqa: UP032
        lambda x: (x, ",".join(map(str, [x.size(0), 1]))),
        lambda x: (x, str([x.size(0)]), f"{(x.size(0),)}"),
        lambda x: (x, str({"n": x.size(0)})),
        lambda x: (x, str(x.size(0) / 2)),
        lambda x: (x, str(_Config(x.size(0)))),
        lambda x: (x, str(x.shape[:1])),
        lambda x: x + 1 if str(x.size(0)) == "4" else x - 1,
        _table,
        _caught,
    ],
)
def test_the_text_of_a_size_is_its_value_and_fixes_it(fn: Any) -> None:
    traced, seen = agree(fn, *ROWS)
    assert seen == ["equal", "refused", "equal", "refused"]
    assert [str(guard.term) for guard in traced.guards] == ["s0 == 4"]


def test_the_text_of_a_condition_fixes_the_condition_only() -> None:
    traced, seen = agree(lambda x: (x, f"{x.size(0) > 2}"), *ROWS)
    assert seen == ["equal", "refused", "equal", "refused"]
    assert [str(guard.term) for guard in traced.guards] == ["s0 >= 3"]


def _logs(x: torch.Tensor) -> torch.Tensor:
    logging.getLogger("texts").warning("rows: %s of %s, %s", x.size(0), x.shape, x)
    return x * 2


def _prints(x: torch.Tensor) -> torch.Tensor:
    print(x.size(0), x.shape, x, sep="; ")
    return x * 2


def _checks(x: torch.Tensor) -> torch.Tensor:
    torch._check(x.size(0) < 100, lambda: f"{x.size(0)} rows")
    n = (x > 0).nonzero().size(0)
    torch._check(n >= 0, lambda: "some rows")
    return x * 2


@pytest.mark.parametrize("fn", [_logs, _prints, _checks])
def test_messages_fix_nothing(fn: Any) -> None:
    traced = symshape.trace(fn, torch.randn(4, 3))
    assert not any("==" in str(guard.term) for guard in traced.guards)
    assert torch.equal(traced(torch.ones(2, 7)), 2 * torch.ones(2, 7))


def test_messages_show_names(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    symshape.trace(_prints, torch.randn(4, 3))
    assert capsys.readouterr().out.startswith(
        "s0; torch.Size([s0, s1]); SymbolicTensor(float32(s0, s1)"
    )
    symshape.trace(_logs, torch.randn(4, 3))
    (said,) = [each.getMessage() for each in caplog.records if each.name == "texts"]
    assert said.startswith("rows: s0 of torch.Size([s0, s1]), SymbolicTensor(")


@pytest.mark.parametrize(
    "fn", [lambda x: (x, str(x)), lambda x: (x, f"{x.sum():.2f}"), lambda x: x * len(f"{x}")]
)
def test_the_text_of_a_tensor_is_refused(fn: Any) -> None:
    with pytest.raises(UnsupportedError, match="text of a tensor"):
        symshape.trace(fn, torch.randn(4))


def test_the_text_of_an_unknown_number_is_refused() -> None:
    with pytest.raises(DataDependentError, match="value of u0"):
        symshape.trace(lambda x: (x, f"{x.nonzero().size(0)}"), torch.randn(4))


def test_sizes_show_their_names_after_the_trace() -> None:
    traced = symshape.trace(lambda x: x * 2, torch.randn(4))
    assert f"{traced.output_specs.sizes[0]}" == "s0"
    assert not traced.guards


def test_compiled_functions_that_format_sizes_equal_eager() -> None:
    compiled = symshape.compile(lambda x: (x * 2, f"{x.size(0)}x{x.size(1)}"))
    for n in (2, 3, 2, 5, 0):
        assert compiled(torch.ones(n, 4))[1] == f"{n}x4"
