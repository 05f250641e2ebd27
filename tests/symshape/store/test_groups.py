"""Programs among process groups and along meshes, between processes: real ranks on Gloo."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from tests.discovery import REPOSITORY

if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("this torch has no Gloo", allow_module_level=True)

OF_MESHES = {"along_a_mesh", "along_a_named_dimension"}


def _ranks(folder: Path, layout: str, size: int = 2) -> list[dict[str, Any]]:
    words = [
        sys.executable,
        "-m",
        "tests.symshape.store.group_programs",
        str(size),
        str(folder),
        layout,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that ranks filled in their first run."""
    folder = tmp_path_factory.mktemp("store")
    for rank in _ranks(folder, "same"):
        assert len(rank) > 8
        assert all(each == [1, 0, ""] for each in rank.values()), rank
    return folder


@pytest.fixture
def store(traced: Path, tmp_path: Path) -> Path:
    """A copy of that store."""
    return shutil.copytree(traced, tmp_path / "store")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_second_run_of_the_same_ranks_traces_nothing(store: Path) -> None:
    for rank in _ranks(store, "same"):
        assert len(rank) > 8
        assert all(each == [0, 1, ""] for each in rank.values()), rank


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["more", "order", "mesh"])
def test_ranks_with_other_groups_trace_their_own(store: Path, layout: str) -> None:
    """Results are right in any case; a mesh of another shape concerns only programs that read
    it.
    """
    for rank in _ranks(store, layout):
        assert len(rank) > 7
        for name, each in rank.items():
            same = layout == "mesh" and name not in OF_MESHES
            assert each == ([0, 1, ""] if same else [1, 0, ""]), (name, rank)
