"""What ``symshape doctor`` finds in an installation, and that each finding has its advice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from symshape.errors import UnsupportedError
from symshape.native.extensions import EXTENSIONS
from symshape.native.loader import Found

pytest.importorskip("typer")
from typer.testing import CliRunner

from symshape.frontends.cli import doctor
from symshape.frontends.cli.commands import app


def _one(part: str) -> doctor.Finding:
    return next(each for each in doctor.findings() if each.part == part)


def test_every_part_is_looked_at_and_the_exit_code_says_whether_something_is_to_be_done(
    tmp_path: Path,
) -> None:
    ran = CliRunner().invoke(
        app, ["doctor"], env={"COLUMNS": "200", "SYMSHAPE_STORE": str(tmp_path)}
    )
    shown = doctor.findings()
    assert [each.part for each in shown] == [
        part for part in _PARTS if part in {each.part for each in shown}
    ]
    assert {each.part for each in shown} == set(_PARTS)
    assert all(part in ran.output for part in _PARTS)
    assert ran.exit_code == any(each.advice for each in shown)


_PARTS = ("torch", "Python", "guards", "C++", "C++ cache", "CUDA", "store")


def test_a_torch_that_was_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _one("torch").advice
    monkeypatch.setattr(torch, "__version__", "9.9.0")
    assert _one("torch") == doctor.Finding(
        "torch", "9.9.0", "install torch 2.11 to 2.15 if a feature is missing"
    )


def test_a_torch_that_lacks_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "refusal", lambda: UnsupportedError("torch has no part"))
    found = _one("torch")
    assert "torch has no part" in found.state
    assert "eagerly" in found.advice


@pytest.mark.parametrize(
    ("version", "advised"), [((3, 12, 1), False), ((3, 13, 0), True), ((3, 14, 0), False)]
)
def test_the_python_that_makes_looking_up_slow(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], advised: bool
) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    assert bool(_one("Python").advice) == advised


def test_interpreted_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[doctor.Term.__module__], "__file__", "term.py")
    monkeypatch.delenv("SYMSHAPE_INTERPRETED", raising=False)
    assert "compiler" in _one("guards").advice
    monkeypatch.setenv("SYMSHAPE_INTERPRETED", "1")
    assert _one("guards").advice == "unset SYMSHAPE_INTERPRETED"


def test_extensions_that_do_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    first = EXTENSIONS[0]
    monkeypatch.setattr(doctor, "found", lambda name: Found(first, why="it was left out"))
    assert "it was left out" in _one("C++").state
    assert "Python serves" in _one("C++").advice
    monkeypatch.setattr(doctor, "found", lambda name: Found(first, missing=True))
    monkeypatch.setattr(doctor, "why_missing", lambda: "no compiler: install one")
    assert _one("C++") == doctor.Finding(
        "C++", f"0 of {len(EXTENSIONS)} extensions serve", "no compiler: install one"
    )


def test_a_device_that_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert not _one("CUDA").advice
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert _one("CUDA").advice == "check nvidia-smi"


def test_a_store_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SYMSHAPE_STORE", str(tmp_path / "a" / "b"))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.entry").touch()
    assert _one("store").state.endswith("b: 0 entries")
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: path != tmp_path / "a")
    assert "SYMSHAPE_STORE" in _one("store").advice


def test_a_cache_of_compiled_files_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SYMSHAPE_NATIVE_CACHE", str(tmp_path))
    (tmp_path / "torch-1").mkdir()
    assert _one("C++ cache").state.endswith("0 builds")
    (tmp_path / "torch-1" / "report.json").touch()
    assert _one("C++ cache") == doctor.Finding("C++ cache", f"{tmp_path}: 1 builds")
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: path != tmp_path)
    assert _one("C++ cache").advice == "name a folder of yours in SYMSHAPE_NATIVE_CACHE"
