"""Graphs outlive it when somebody has torch give cuBLAS' workspaces back, as reduce-overhead's recordings do.

Each case is a process: an illegal memory access is the end of the device for the one that it happens in.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PRELUDE = """
import gc
import torch
import symshape
from symshape.runtime.runners.capture_stream import capture_stream

device = torch.device("cuda", torch.cuda.current_device())
weights = [torch.nn.Linear(8192, 64, bias).to(device, dtype) for bias in (True, False) for dtype in KINDS]
give_back = torch._C._cuda_clearCublasWorkspaces


def program(x):  # long sums, whose parts cuBLAS adds up in its workspace
    return tuple(each(x.to(each.weight.dtype)) for each in weights)


def compiled():
    found = symshape.compile(lambda x: program(x), dynamic=True, runner="RUNNER")
    for n in (5, 7, 9):
        found(torch.randn(n, 8192, device=device))
    return found


def check(found):
    torch.cuda.empty_cache()
    spoilt = [torch.full((1 << 20,), torch.nan, device=device) for _ in range(40)]
    del spoilt
    for n in (5, 7, 9, 11, 30):
        x = torch.randn(n, 8192, device=device)
        for mine, expected in zip(found(x), program(x), strict=True):
            torch.testing.assert_close(mine, expected, atol=2e-2, rtol=2e-2)
    torch.cuda.synchronize()
    assert found.stats().cuda_graphs, found.report()


""".replace("KINDS", "(torch.float32, torch.bfloat16)")

CASES = {
    "given back": """
found = compiled()
give_back()
""",
    "another compiled function recorded before, and is gone": """
first, found = compiled(), compiled()
del first
gc.collect()
give_back()
""",
    "the user works on every stream that torch has": """
for _ in range(64):
    with torch.cuda.stream(torch.cuda.Stream()):
        program(torch.randn(3, 8192, device=device))
torch.cuda.synchronize()
found = compiled()
give_back()
""",
    "given back before every recording": """
found = symshape.compile(lambda x: program(x), dynamic=True, runner="RUNNER")
for n in (5, 7, 9, 11, 30):
    give_back()
    torch.cuda.empty_cache()
    found(torch.randn(n, 8192, device=device))
give_back()
""",
    "on two streams at once": """
found = compiled()
side = torch.cuda.Stream()
xs = [torch.randn(n, 8192, device=device) for n in (5, 7, 9, 30)]
give_back()
expected = [program(x) for x in xs]
for turn in range(50):
    if turn % 5 == 0:
        give_back()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        theirs = [found(x) for x in xs]
    mine = [found(x) for x in xs]
    torch.cuda.synchronize()
    for results in (mine, theirs):
        for got, want in zip(results, expected, strict=True):
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(a, b, atol=2e-2, rtol=2e-2)
""",
}


@pytest.mark.parametrize("runner", ["padded", "cudagraph"])
@pytest.mark.parametrize("case", list(CASES))
def test_no_graph_works_in_memory_that_is_gone(case: str, runner: str) -> None:
    text = PRELUDE + "with torch.no_grad():\n" + "".join(f"    {line}\n" for line in CASES[case].strip().splitlines())
    text = (text + "    check(found)\n").replace("RUNNER", runner)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
