"""Importing: the modules that a fresh process loads for an import of ours, and for its first
calls.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import symshape
from tests.discovery import REPOSITORY

SLOW = (
    "sympy",
    "mpmath",
    "z3",
    "torch.fx.experimental.symbolic_shapes",
    "torch._dynamo",
    "torch._inductor.compile_fx",
)
"""What takes long to import, and no import or plain call of ours needs."""
PROGRAM = """
import sys
import torch
before = set(sys.modules)
import symshape
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8))
def f(x):
    y = net(x)
    return (y + 1 if x.shape[0] % 2 == 0 else y).reshape(-1)
traced = symshape.trace(f, torch.ones(6, 4))
compiled = symshape.compile(f)
for n in (6, 7, 8, 9):
    assert torch.allclose(compiled(torch.ones(n, 4)), f(torch.ones(n, 4)))
warm = set(sys.modules)
for n in (6, 7, 8, 9, 6, 10, 11):
    compiled(torch.ones(n, 4))
"""


def _run(code: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["symshape", "guards", "meta_fns"])
def test_an_import_loads_nothing_slow(name: str) -> None:
    assert (
        _run(f"import sys, {name}\nprint([each for each in {SLOW} if each in sys.modules])") == "[]"
    )


@pytest.mark.slow
def test_first_calls_load_nothing_slow_and_warm_calls_nothing_at_all() -> None:
    found = _run(
        f"{PROGRAM}\nprint([each for each in {SLOW} if each in set(sys.modules) - before])"
    )
    assert found == "[]"
    assert _run(f"{PROGRAM}\nprint(sorted(set(sys.modules) - warm))") == "[]"


@pytest.mark.slow
def test_a_first_trace_imports_no_module_of_ours() -> None:
    """Time that the import saves is not paid by the first trace or the first compiled call."""
    ours = (
        "[each for each in set(sys.modules) - at_first if each.split('.')[0] in ('symshape', "
        "'guards', 'meta_fns')]"
    )
    code = PROGRAM.replace("net =", "at_first = set(sys.modules)\nnet =")
    assert _run(f"{code}\nprint({ours})") == "[]"


def test_solvers_are_still_found_when_needed() -> None:
    code = (
        "import guards, sys\nprint(guards.to_sympy(guards.symbol('a') + 1), 'sympy' in sys.modules)"
    )
    assert _run(code) == "a + 1 True"


@pytest.mark.parametrize("name", [each for each in symshape.__all__ if not each.startswith("_")])
def test_each_public_name_is_there(name: str) -> None:
    assert name in dir(symshape)
    found = getattr(symshape, name)
    assert getattr(symshape, name) is found, "the second look-up finds the same object"


@pytest.mark.slow
def test_public_names_are_found_in_a_fresh_process() -> None:
    code = (
        "import symshape\nprint([each for each in symshape.__all__ if not hasattr(symshape, each)])"
    )
    assert _run(code) == "[]"
    assert (
        _run(
            "from symshape import *\nfrom symshape import explore, plan\nprint(plan.__name__, "
            "Dim.__name__)"
        )
        == "plan Dim"
    )


def test_there_is_no_other_name() -> None:
    with pytest.raises(AttributeError, match="module 'symshape' has no attribute 'exploer'"):
        symshape.exploer  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.slow
@pytest.mark.parametrize("how", ["enable", "disable"])
def test_the_garbage_collector_is_left_as_it_was(how: str) -> None:
    assert _run(f"import gc\ngc.{how}()\nimport symshape\nprint(gc.isenabled())") == str(
        how == "enable"
    )


@pytest.mark.slow
def test_the_garbage_collector_runs_after_an_import_that_failed() -> None:
    failing = (
        "sys.modules['symshape.dims'] = None\ntry:\n    import symshape\nexcept "
        "ImportError:\n    pass"
    )
    assert _run(f"import gc, sys\n{failing}\nprint(gc.isenabled())") == "True"


@pytest.mark.slow
def test_conditions_of_torch_are_asked_for() -> None:
    """Torch's functions for its own conditions are imported at the first question."""
    code = """
import sys, torch
from meta_fns.core import sizes
assert "sympy" not in sys.modules
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch._subclasses.fake_tensor import FakeTensorMode
env = ShapeEnv()
fake = FakeTensorMode(shape_env=env).from_tensor(
    torch.ones(6), symbolic_context=StatelessSymbolicContext([DimDynamic.DYNAMIC])
)
n = fake.shape[0]
assert isinstance(n, torch.SymInt)
known = sizes.known(n + 1 > n), sizes.known(n > 5), len(env.guards)
print(*known, sizes.decide(n > 5), len(env.guards))
"""
    assert _run(code) == "True False 0 True 1"
