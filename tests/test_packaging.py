"""The distribution is what pyproject.toml says: versions, entry points, typed packages, pins."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from typing import Any

import pytest

from tests.discovery import REPOSITORY

PACKAGES = ("guards", "meta_fns", "symshape")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]


def test_version_is_said_once_and_the_same(project: dict[str, Any]) -> None:
    import symshape

    assert importlib.metadata.version("symshape") == project["version"]
    assert symshape.__version__ == project["version"]


def test_backend_is_found_by_torch() -> None:
    points = importlib.metadata.entry_points(group="torch_dynamo_backends", name="symshape")
    assert {point.value for point in points} == {"symshape.frontends.dynamo:symshape_backend"}
    for point in points:
        assert callable(point.load())

    import torch

    assert "symshape" in torch._dynamo.list_backends()


def test_console_script_loads() -> None:
    points = importlib.metadata.entry_points(group="console_scripts", name="symshape")
    assert {point.value for point in points} == {"symshape.frontends.cli:main"}
    for point in points:
        assert callable(point.load())


def test_everything_asked_for_is_pinned(project: dict[str, Any]) -> None:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {_normal(line.split("==")[0]) for line in lines if line and not line.startswith("#")}
    loose = [
        line
        for line in lines
        if line and not line.startswith("#") and not re.fullmatch(r"[\w.-]+==[\w.]+", line)
    ]
    assert not loose, f"not a plain pin: {loose}"
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    asked = {
        _normal(re.split(r"[<>=!~\[; ]", requirement)[0])
        for group in groups
        for requirement in group
    }
    assert asked <= pinned, f"asked for and not pinned: {asked - pinned}"


def test_no_upper_bound_on_torch(project: dict[str, Any]) -> None:
    """With one, ``pip install symshape`` beside a newer torch would take that away and install an
    old one.
    """
    (torch,) = [each for each in project["dependencies"] if each.startswith("torch")]
    assert torch == "torch>=2.11"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
