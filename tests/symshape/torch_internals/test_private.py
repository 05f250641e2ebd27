"""Private parts of torch: where one is missing symshape imports all the same, says so, and runs
calls eagerly.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape import UnsupportedError, UntestedTorchWarning
from symshape.torch_internals import private
from tests.discovery import REPOSITORY

FOLDER = Path(private.__file__).parent
NEEDED = sorted(
    {
        path
        for file in FOLDER.glob("*.py")
        for path in re.findall(r'needed\(\s*"(torch\.[\w.]+)"', file.read_text())
    }
)


def test_a_part_that_is_there() -> None:
    assert (
        private.needed("torch._C._len_torch_function_stack") is torch._C._len_torch_function_stack
    )
    assert private.optional("torch.utils._device.DeviceContext", None).__name__ == "DeviceContext"
    assert private.refusal() is None
    private.refuse_if_missing()


def test_a_part_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "_missing", [])
    assert private.optional("torch._C.no_such", 3) == 3
    assert private.refusal() is None
    found = private.needed("torch._no_such.module")
    for raises in (found, found.part.of_it, type("Derived", (found,), {})):
        with pytest.raises(UnsupportedError, match=r"has no torch\._no_such\.module"):
            raises()
    assert not isinstance(3, found)
    refusal = private.refusal()
    assert refusal is not None
    assert "torch._no_such.module" in str(refusal)
    with pytest.raises(UnsupportedError, match=r"runs? eagerly"):
        symshape.trace(lambda x: x + 1, torch.ones(3))


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("2.10.1", False),
        ("2.11.0", True),
        ("2.13.0+cpu", True),
        ("2.14.1+cu130", True),
        ("2.15.0+cu132", True),
        ("2.16.0a0+git1", False),
        ("3.0", False),
    ],
)
def test_an_unknown_version_is_told_of(version: str, known: bool) -> None:
    said: list[tuple[Any, ...]] = []
    private.warn_of_version(version, lambda *args, **_: said.append(args))
    assert len(said) == (not known)
    for text, kind in said:
        assert version in text
        assert f"{private.OLDEST} to {private.NEWEST}" in text
        assert kind is UntestedTorchWarning


BEGIN = """
import os, pkgutil, sys, warnings
import torch

torch.__version__ = torch.torch_version.TorchVersion("2.99.0")
own = pkgutil.resolve_name
asked = []  # for the missing part


def lacks(missing):
    def found(name):
        if name == missing:
            asked.append(name)
            raise AttributeError(name)
        return own(name)

    pkgutil.resolve_name = found


def works(missing):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        import symshape
    categories = [each.category for each in said]
    assert categories == [symshape.UntestedTorchWarning], [str(each.message) for each in said]
    f, x = lambda x, by: torch.cat([x, x]) * by, torch.ones(3, requires_grad=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        compiled = symshape.compile(f)
        for n in (2, 3, 4):
            assert torch.equal(compiled(torch.ones(n), by=3), f(torch.ones(n), by=3))
        compiled(x, by=3).sum().backward()
        assert x.grad.tolist() == [6, 6, 6]
    said = [str(each.message) for each in said if each.category is symshape.FallbackWarning]
    if not asked:  # only other programs need it
        assert not said and compiled.stats().traces, said
        return
    assert len(said) == 1 and missing in said[0] and "2.99.0" in said[0], said
    assert compiled.stats().traces == 0
    for ask in (lambda: symshape.trace(f, x, 3), lambda: symshape.compile(f, fullgraph=True)(x, 3)):
        try:
            ask()
        except symshape.UnsupportedError as error:
            assert missing in str(error)
        else:
            raise AssertionError("it was traced")
"""
EACH = """
for missing in sys.argv[1:]:
    child = os.fork()
    if not child:
        lacks(missing)
        works(missing)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("FAILS", missing)
"""
FEW = ("torch._C._len_torch_function_stack", "torch._C._functorch.peek_interpreter_stack")
OLD = [
    "torch._C._len_torch_function_stack",
    "torch._C._functorch.peek_interpreter_stack",
    "torch.utils._pytree.TreeSpec",
]


def _run(program: str, *args: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", BEGIN + program, *args],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr


@pytest.mark.slow
def test_an_unknown_torch_that_lacks_nothing_is_used() -> None:
    assert not _run("works(None)")


@pytest.mark.slow
def test_calls_run_eagerly_where_a_part_is_missing() -> None:
    assert not _run(EACH, *FEW)


@pytest.mark.nightly
def test_every_part_may_be_missing() -> None:
    assert len(NEEDED) > 40
    assert not _run(EACH, *NEEDED)


@pytest.mark.slow
def test_graphs_of_dynamo_run_eagerly_where_a_part_is_missing() -> None:
    assert not _run(
        """
lacks("torch._C._len_torch_function_stack")
warnings.simplefilter("ignore")
import symshape
pkgutil.resolve_name = own
f = torch.compile(lambda x: torch.cat([x, x]) * 2, backend="symshape")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for n in (2, 3, 4):
        x = torch.ones(n, requires_grad=True)
        f(x).sum().backward()
        assert x.grad.tolist() == [4] * n
said = [str(each.message) for each in said if each.category is symshape.FallbackWarning]
assert said and all("no torch._C._len_torch_function_stack" in each for each in said), said
"""
    )
