"""``symshape cache`` and ``symshape show``: words and exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from symshape.frontends.cli.commands import app
from symshape.store.disk import DiskStore
from tests.symshape.store.storing import compiled, counts, entries

SCALE = 1.5


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2 * SCALE


def run(*words: Any) -> Any:
    return CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "200"})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    compiled(double, tmp_path / "store")(torch.ones(3, 4))
    return tmp_path / "store"


def test_list_and_show(store: Path) -> None:
    (path,) = entries(store)
    found = run("cache", "list", "--store", store)
    assert found.exit_code == 0
    assert path.stem[:12] in found.output
    assert "double" in found.output
    for words in (("show", path), ("cache", "show", path.stem[:5], "--store", store)):
        shown = run(*words)
        assert shown.exit_code == 0, shown.output
        for part in (
            "x.size(0) = s0",
            "SCALE = ",
            "aten.mul.Tensor(v0, 2)",
            "double.__code__ = code",
        ):
            assert part in shown.output
    assert run("cache", "show", "xyz", "--store", store).exit_code == 2
    assert run("show", store).exit_code == 2


def test_verify_finds_what_is_wrong(store: Path) -> None:
    assert run("cache", "verify", "--store", store).output == "1 entries, 0 wrong\n"
    (path,) = entries(store)
    path.write_bytes(path.read_bytes()[:-20])
    found = run("cache", "verify", "--store", store)
    assert found.exit_code == 1
    assert "damaged" in found.output
    assert run("show", path).exit_code == 2
    assert run("cache", "verify", "--store", store, "--remove").exit_code == 0
    assert not entries(store)


def test_prune(store: Path) -> None:
    assert run("cache", "prune", "--store", store).output == "0 entries of 0 B gone\n"
    assert "1 entries" in run("cache", "prune", "--most", "1 kB", "--store", store).output
    assert not entries(store)
    assert run("cache", "prune", "--most", "many", "--store", store).exit_code == 2


def test_export_and_import(store: Path, tmp_path: Path) -> None:
    assert run("cache", "export", tmp_path / "all", "--store", store).output == "1 entries\n"
    assert (
        run("cache", "import", tmp_path / "all", "--store", tmp_path / "other").output
        == "1 entries\n"
    )
    assert [each.digest for each in DiskStore(tmp_path / "other").all()] == [
        each.digest for each in DiskStore(store).all()
    ]
    second = compiled(double, tmp_path / "other")
    second(torch.ones(5, 6))
    assert counts(second) == (0, 1)
    (tmp_path / "all").write_bytes(
        (tmp_path / "all").read_bytes().replace(b"mul.Tensor", b"from_file.default")
    )
    found = run("cache", "import", tmp_path / "all", "--store", tmp_path / "third")
    assert found.exit_code == 2
    assert "unknown operator" in found.output
    assert not entries(tmp_path / "third")


@pytest.mark.parametrize("kind", ["missing", "file"])
@pytest.mark.parametrize(
    "words",
    [("list",), ("verify",), ("show", "abc"), ("prune",), ("export", "exported.store")],
)
def test_a_folder_that_is_none(
    words: tuple[str, ...], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("x")
    found = run("cache", *words, "--store", place)
    assert found.exit_code == 2
    assert f"symshape cache {words[0]}: no store" in found.output
    assert str(place) in found.output
    assert sorted(each.name for each in tmp_path.iterdir()) == ["place"] * (kind == "file")


@pytest.mark.parametrize("words", [("list",), ("verify",), ("prune",), ("import", "exported")])
def test_a_home_folder_that_nobody_has(words: tuple[str, ...]) -> None:
    found = run("cache", *words, "--store", "~nobody-has-this-name/store")
    assert found.exit_code == 2
    assert f"symshape cache {words[0]}: " in found.output
    assert "no home folder is known" in found.output


def test_the_default_folder_need_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMSHAPE_STORE", str(tmp_path / "none"))
    assert run("cache", "list").exit_code == 0
    assert run("cache", "verify").output == "0 entries, 0 wrong\n"
    assert run("cache", "export", tmp_path / "no folder" / "file").exit_code == 2
