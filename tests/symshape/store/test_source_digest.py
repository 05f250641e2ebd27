"""The digest of symshape's own sources is made again when one of them has changed, however little
shows.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

import symshape
from symshape.store import environment
from symshape.store.disk import DiskStore
from symshape.store.environment import digest_of, sources_digest
from tests.symshape.store.storing import compiled

ZEROS = "0" * 64


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some sources, which are taken to be there for long."""
    monkeypatch.setattr(environment, "_SETTLED", -(10**18))
    inner = tmp_path / "package" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").write_text("")
    (inner / "one.py").write_text("a = 1\n")
    return inner


def _with_zeros(kept: Path) -> None:
    """Lets what is kept say something else, to see whether it is used."""
    kept.write_text(f"{kept.read_text()[:64]} {ZEROS}\n")


def test_it_is_that_of_this_process() -> None:
    folders = [
        str(Path(str(each.__file__)).parent)
        for each in (environment.guards, environment.meta_fns, symshape)
    ]
    assert digest_of(folders, None) == sources_digest()


def test_it_is_kept(sources: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    folders = [str(sources.parent)]
    made = digest_of(folders, kept)
    assert made == digest_of(folders, kept) == digest_of(folders, None)
    _with_zeros(kept)
    assert digest_of(folders, kept) == ZEROS
    assert digest_of(folders, None) == made


@pytest.mark.parametrize(
    "change", ["edit", "edit that hides", "new", "gone", "name", "another file"]
)
def test_a_change_is_seen(sources: Path, tmp_path: Path, change: str) -> None:
    kept, folders, one = tmp_path / "kept", [str(sources.parent)], sources / "one.py"
    made = digest_of(folders, kept)
    _with_zeros(kept)
    found = one.stat()
    if change.startswith("edit"):
        with one.open("r+") as file:
            file.write("a = 2\n")
        if change == "edit that hides":
            os.utime(one, ns=(found.st_atime_ns, found.st_mtime_ns))
            assert (one.stat().st_size, one.stat().st_mtime_ns) == (
                found.st_size,
                found.st_mtime_ns,
            )
    elif change == "new":
        (sources / "two.py").write_text("")
    elif change == "gone":
        one.unlink()
    elif change == "name":
        one.rename(sources / "other.py")
    else:
        (sources / "two").write_text("a = 2\n")
        os.utime(sources / "two", ns=(found.st_atime_ns, found.st_mtime_ns))
        os.replace(sources / "two", one)
    assert digest_of(folders, kept) == digest_of(folders, None) not in (made, ZEROS)
    shutil.rmtree(sources)
    assert digest_of(folders, kept) == digest_of(folders, None) not in (made, ZEROS)


def test_what_was_just_edited_is_not_kept(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another edit could follow within the same tick of the file system's clock."""
    kept = tmp_path / "kept"
    monkeypatch.setattr(environment, "_SETTLED", 10**12)
    assert digest_of([str(sources)], kept) == digest_of([str(sources)], None)
    assert not kept.exists()


@pytest.mark.parametrize(
    "wrong", ["cut", "words", "of others", "of a group", "link", "folder", "not ASCII"]
)
def test_what_is_wrong_is_made_again(sources: Path, tmp_path: Path, wrong: str) -> None:
    kept, folders = tmp_path / "kept", [str(sources)]
    made = digest_of(folders, kept)
    _with_zeros(kept)
    if wrong == "cut":
        kept.write_text(kept.read_text()[:-9])
    elif wrong == "words":
        kept.write_text(f"{kept.read_text()[:64]} {'x' * 64}\n")
    elif wrong == "of others":
        kept.chmod(0o606)
    elif wrong == "of a group":
        kept.chmod(0o660)
    elif wrong == "link":
        kept.rename(tmp_path / "elsewhere")
        kept.symlink_to(tmp_path / "elsewhere")
    elif wrong == "folder":
        kept.unlink()
        kept.mkdir()
    else:
        kept.write_bytes(b"\xff" * 130)
    assert digest_of(folders, kept) == made
    if wrong != "folder":
        assert kept.read_text().endswith(f" {made}\n")
    assert sorted(each.name for each in tmp_path.iterdir() if "kept." in each.name) == []


def test_a_store_keeps_it_once_it_has_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_SETTLED", -(10**18))
    store = tmp_path / "store"
    fn = compiled(lambda x: x + 1, store)
    assert not store.exists()  # nothing is made before there is something to keep
    fn(torch.ones(3))
    assert (store / "sources.digest").read_text().endswith(f" {sources_digest()}\n")


def test_a_folder_of_several_users_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_SETTLED", -(10**18))
    compiled(lambda x: x + 1, DiskStore(tmp_path / "store", shared=True))(torch.ones(3))  # type: ignore[arg-type]
    assert not (tmp_path / "store" / "sources.digest").exists()
