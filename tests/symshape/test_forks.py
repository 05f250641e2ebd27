"""Forks while other threads trace, reset or hold locks: their children call, trace and end."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.discovery import REPOSITORY

if not hasattr(os, "fork"):
    pytest.skip("this system has no fork", allow_module_level=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "least"),
    [
        ("in_the_midst_of_a_trace", 1),
        ("while_threads_trace_and_reset", 24),
        ("while_a_thread_computes_a_property", 1),
        ("while_another_waits_for_the_fork", 1),
        ("with_an_interrupt", 1),
        ("with_an_interrupt_on_return", 3),
    ],
)
def test_children_of_forks(program: str, least: int) -> None:
    """In processes of their own: a fork of pytest's would have its threads, and its plugins'."""
    words = [sys.executable, "-m", "tests.symshape.forking_programs", program]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert len(found["statuses"]) >= least
    assert set(found["statuses"]) == {0}, run.stderr
    assert not found.get("problems")
