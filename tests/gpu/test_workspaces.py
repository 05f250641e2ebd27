"""Graphs outlive it when somebody has torch give cuBLAS' workspaces back, as reduce-overhead's
recordings do.

Each case is a process: an illegal memory access is the end of the device for the one that it
happens in.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PRELUDE = """
import gc
import torch
import symshape

device = torch.device("cuda", torch.cuda.current_device())
kinds = (torch.float32, torch.bfloat16)
layers = [
    torch.nn.Linear(8192, 64, bias).to(device, kind) for bias in (True, False) for kind in kinds
]
wide = torch.nn.Linear(512, 512, bias=False).to(device, torch.bfloat16)
give_back = torch._C._cuda_clearCublasWorkspaces


def program(x):  # long sums, whose parts cuBLAS adds up in its workspace
    return *(each(x.to(each.weight.dtype)) for each in layers), wide(x[:, :512].bfloat16())


def made():
    return symshape.compile(lambda x: program(x), dynamic=True, runner="RUNNER")


def compiled():
    found = made()
    for n in (5, 7, 9):
        found(torch.randn(n, 8192, device=device))
    return found


def equal(got, want):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, atol=2e-2, rtol=2e-2)


def replayed(found):
    for n in (5, 7, 9, 11, 30):
        x = torch.randn(n, 8192, device=device)
        equal(found(x), program(x))
    torch.cuda.synchronize()


def check(found):
    torch.cuda.empty_cache()
    # where a workspace was, perhaps
    others = [torch.full((1 << 23,), 7.0, device=device) for _ in range(40)]
    replayed(found)
    unharmed = all(bool((each == 7).all()) for each in others)
    assert unharmed, "a graph wrote to somebody else's memory"
    del others
    torch.cuda.empty_cache()
    replayed(found)  # an illegal memory access if one was there
    assert found.stats().cuda_graphs, found.report()


"""

CASES = {
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
found = made()
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
            equal(got, want)
""",
}
"""Without a workspace and a stream of our own, the first two break off; the others try the mend
itself.
"""


@pytest.mark.parametrize("runner", ["padded", "cudagraph"])
@pytest.mark.parametrize("case", list(CASES))
def test_no_graph_works_in_memory_that_is_gone(case: str, runner: str) -> None:
    text = (
        PRELUDE
        + "with torch.no_grad():\n"
        + "".join(f"    {line}\n" for line in CASES[case].strip().splitlines())
    )
    text = (text + "    check(found)\n").replace("RUNNER", runner)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
