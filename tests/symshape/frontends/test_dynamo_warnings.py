"""Warnings of torch through the backend cite the user's lines, as in eager."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from symshape.frontends.dynamo import symshape_backend
from tests.discovery import REPOSITORY

INPUT = torch.ones(3)


def of_python(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return F.mse_loss(y, y[:1])


def of_a_kernel(x: torch.Tensor) -> torch.Tensor:
    return (x * 2)[:1].var(0)


def places(fn: Callable[..., Any], *args: Any) -> list[tuple[str, int]]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fn(*args)
    return [(each.filename, each.lineno) for each in told]


def always_warning(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Torch warns of many things once a process: here each time."""

    def call(*args: Any) -> Any:
        before = torch.is_warn_always_enabled()
        torch.set_warn_always(True)
        try:
            return fn(*args)
        finally:
            torch.set_warn_always(before)

    return call


@pytest.mark.parametrize(
    ("fn", "trains"), [(of_python, False), (of_a_kernel, False), (of_a_kernel, True)]
)
def test_they_cite_the_line_of_eager(fn: Callable[..., Any], trains: bool) -> None:
    """Beside those of Dynamo, which runs each op on fake tensors and cites its own lines."""
    torch._dynamo.reset()
    wanted = places(always_warning(fn), INPUT)
    assert [file for file, _ in wanted] == [__file__]
    options = {"runner": "eager"}
    compiled = torch.compile(fn, backend=symshape_backend, dynamic=True, options=options)
    x = INPUT.clone().requires_grad_(trains)
    found = places(always_warning(compiled), x)
    assert set(wanted) <= set(found)
    assert not [file for file, _ in found if "symshape" in file and file != __file__]


def test_kernels_of_later_calls_cite_it_too() -> None:
    torch._dynamo.reset()
    wanted = places(always_warning(of_a_kernel), INPUT)
    options = {"runner": "eager"}
    compiled = torch.compile(of_a_kernel, backend=symshape_backend, dynamic=True, options=options)
    places(compiled, INPUT)
    for n in (3, 5, 7):
        assert places(always_warning(compiled), torch.ones(n)) == wanted


def test_an_error_of_a_filter_by_module(tmp_path: Path) -> None:
    """``-W error::UserWarning:MODULE`` finds the user's module."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, warnings, symshape\n"
        "warnings.filterwarnings('error', category=UserWarning, module='__main__')\n"
        "fn = torch.compile(lambda x: (x * 2)[:1].var(0), backend='symshape', dynamic=True)\n"
        "try:\n    fn(torch.ones(3))\nexcept UserWarning as error:\n    print('raised', error)\n"
    )
    ran = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.startswith("raised var()"), ran.stderr[-2000:]
