"""Memory does not grow: what is traced or asked again and again leaves nothing behind.

Each workload runs in a process of its own and is measured by that process's resident set.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref

import pytest
import torch

import symshape
from tests.discovery import REPOSITORY

STATM = "/proc/self/statm"

pytestmark = pytest.mark.skipif(
    not os.path.exists(STATM), reason="reads the resident set from /proc"
)

PRELUDE = f"""
import gc, os

def resident():
    gc.collect()
    with open({STATM!r}) as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
"""

TRACING = """
import torch
import symshape
from guards.terms.term import interned
from tests.models import MODELS

torch.set_num_threads(1)
(chosen,) = [model for model in MODELS if model.name == {model!r}]
built = chosen.build()
sizes, terms = [], []
with torch.no_grad():
    for number in range(200):
        symshape.trace(built, **chosen.call(2 + number % 3, 9 + number % 7))
        if number + 1 in (20, 200):
            sizes.append(resident())
            terms.append(interned())
print(*sizes, *terms)
"""

ASKING = """
from guards import prove
from guards.terms.term import interned

def ask(first, last):
    for n in range(first, last):
        known = [f"y{n} >= {n % 5}", f"x{n} % 2 == 0"]
        prove(f"x{n} // {2 + n % 7} * {2 + n % 7} <= x{n} + y{n} * y{n}", assume=known)

sizes, terms = [], []
for first, last in ((0, 4_000), (4_000, 20_000)):
    ask(first, last)
    sizes.append(resident())
    terms.append(interned())
print(*sizes, *terms)
"""

COMPILING = """
import torch
import symshape
from guards.terms.term import interned

torch.set_num_threads(1)
options = symshape.Options(max_entries=16)
compiled = symshape.compile(lambda x: x * 2 + x.size(0), dynamic=False, options=options)
sizes, terms = [], []
for number in range(8_000):
    compiled(torch.ones(1 + number))
    if number + 1 in (2_000, 8_000):
        sizes.append(resident())
        terms.append(interned())
print(*sizes, *terms)
"""

DROPPING = """
import linecache
import torch
import symshape
from guards.terms.term import interned

def make(number):
    return lambda x: x * number + torch.arange(x.shape[0])

torch.set_num_threads(1)
sizes, terms = [], []
for number in range({count}):
    compiled = symshape.compile(make(number))
    compiled(torch.ones(3)), compiled(torch.ones(4 + number % 3))
    if number + 1 in ({count} // 4, {count}):
        del compiled
        sizes.append(resident())
        terms.append(sum(bool(linecache.getlines(name)) for name in list(linecache.cache)))
print(*sizes, *terms)
"""


def growth(workload: str) -> tuple[float, int, int]:
    """How many times larger the process is at the end than at the first measurement, and what was
    counted at both.
    """
    run = subprocess.run(
        [sys.executable, "-c", PRELUDE + workload],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    before, after, terms_before, terms_after = map(int, run.stdout.split())
    return after / before, terms_before, terms_after


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["gpt2, mask", "llama", "resnet"])
def test_tracing_the_same_model_200_times(model: str) -> None:
    size, before, after = growth(TRACING.format(model=model))
    assert size <= 1.1, f"resident set: {size:.3f} times that after 20 traces"
    assert after <= 1.1 * before, f"terms: {before} after 20 traces, {after} after 200"


@pytest.mark.nightly
def test_asking_20000_different_questions() -> None:
    size, before, after = growth(ASKING)
    assert size <= 1.3, f"resident set: {size:.3f} times that after 4,000 questions"
    assert after <= 1.5 * before, f"terms: {before} after 4,000 questions, {after} after 20,000"


@pytest.mark.nightly
def test_evicting_thousands_of_entries() -> None:
    size, _, after = growth(COMPILING)
    assert size <= 1.1, f"resident set: {size:.3f} times that after 2,000 entries"
    assert after <= 30_000, f"{after} terms, more than bounded caches can hold on to"


@pytest.mark.slow
@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_compiled_functions_that_are_dropped_leave_nothing(count: int) -> None:
    size, before, after = growth(DROPPING.format(count=count))
    assert size <= 1.03, f"resident set: {size:.3f} times that after a quarter of {count} functions"
    assert after <= before + 2, f"generated sources kept: {before}, then {after}"


class Owner:
    """An object with a compiled method of its class, and an attribute that it reads."""

    def __init__(self) -> None:
        self.weight = torch.ones(3)

    @symshape.compile
    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + x.shape[0]


def test_instances_whose_methods_are_compiled_die() -> None:
    owners = [Owner() for _ in range(5)]
    for each in owners:
        for n in (1, 3):
            assert torch.equal(each.scaled(torch.ones(n, 3)), torch.ones(n, 3))
    before = len(Owner.scaled.entries)
    seen = [(weakref.ref(each), weakref.ref(each.weight)) for each in owners]
    del owners, each
    gc.collect()
    gc.collect()  # once more for the entries, which are let go when an object dies
    assert [(owner(), weight()) for owner, weight in seen] == [(None, None)] * 5
    assert before >= 4  # two for the first one, which may be the only one, and two for any
    assert not any(entry.watched for entry in Owner.scaled.entries)


def test_instances_of_compiled_bound_methods_and_arguments_die() -> None:
    owner, x, other = Owner(), torch.ones(2, 3), Owner()
    compiled = symshape.compile(owner.plain)
    chosen = symshape.compile(lambda x, owner, apply: apply(x) * owner.weight)
    apply = lambda x: x + 1  # noqa: E731
    for _ in range(2):
        compiled(x)
        chosen(x, other, apply)
        chosen(x[:1], other, apply)
    seen = [weakref.ref(each) for each in (owner, x, other, other.weight, apply)]
    del owner, other, x, compiled, apply
    gc.collect()
    gc.collect()  # once more for the entries, which are let go when an object dies
    assert [each() for each in seen] == [None] * 5
    assert chosen.entries == ()
    later = Owner()
    assert torch.equal(chosen(torch.ones(3), later, torch.neg), -torch.ones(3))
