"""What every test run shares: Hypothesis profiles, threads, and which tests a machine can run."""

from __future__ import annotations

import gc
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import hypothesis
import pytest

# Before anything imports torch: with several test processes on few cores, one thread each is the
# fastest.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A test run of a checkout that was not compiled starts no compiler, and leaves the user's cache
# alone.
os.environ.setdefault("SYMSHAPE_NATIVE", "built")

HERE = Path(__file__).resolve().parent

# Benchmarks and fuzzers are programs, not test modules (their peers may not be installed);
# test_smoke.py runs them.
collect_ignore_glob = ["bench/*", "fuzz/*"]

hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile(
    "ci", parent=hypothesis.settings.get_profile("default"), derandomize=True
)
hypothesis.settings.register_profile(
    "deep", parent=hypothesis.settings.get_profile("default"), max_examples=5000
)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default")
)


class _OfSourcesAlone:
    """Doctests are read from sources: those of compiled modules run interpreted, in
    tests/guards/test_compiled.py.
    """

    @pytest.hookimpl
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return (
            True
            if HERE.parent / "guards" in collection_path.parents and is_compiled(collection_path)
            else None
        )


def is_compiled(module: Path) -> bool:
    """Whether this process imports a compiled twin of a source file."""
    interpreted = os.environ.get("SYMSHAPE_INTERPRETED", "") not in ("", "0")
    return not interpreted and any(
        module.with_suffix(ending).exists() for ending in EXTENSION_SUFFIXES
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registered here, as a conftest's own hook would see the files below tests only."""
    config.pluginmanager.register(_OfSourcesAlone())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all of tests/gpu as `gpu`, and skip what needs a device that is not there."""
    for item in items:
        if HERE / "gpu" in item.path.parents:
            item.add_marker(pytest.mark.gpu)
    needing = [item for item in items if item.get_closest_marker("gpu") is not None]
    if needing and not _cuda():
        skip = pytest.mark.skip(reason="needs CUDA")
        for item in needing:
            item.add_marker(skip)


def pytest_collection_finish() -> None:
    """What was collected and imported lives until the end: no collection of garbage looks through
    it again.
    """
    gc.collect()
    gc.freeze()


def _cuda() -> bool:
    import torch

    return torch.cuda.is_available()
