"""What Inductor compiled comes from the store: right values at other sizes, and nobody's code but
this user's.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from symshape import events
from symshape.errors import UnsupportedError
from symshape.runtime.runners.inductor import compile_request
from symshape.runtime.runners.inductor.artefacts import Artefacts, Saved
from symshape.runtime.runners.inductor.compile_process import CompileProcess
from symshape.store.artefacts import ArtefactShelf, shelf_of
from symshape.store.disk import ARTEFACT, DiskStore
from symshape.store.remote import SharedStore
from tests.symshape.store.storing import compiled, counts, told

SAVED = Saved(("v0 == 3", "v1 >= 2"), (3, 5), b"code\nof several\nlines")


@pytest.fixture(autouse=True)
def _own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMSHAPE_KEY", str(tmp_path / "mine" / "key"))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*/*{ARTEFACT}"))


class _Bomb:
    """Executes something when it is unpickled."""

    exploded = 0

    def __reduce__(self) -> Any:
        return _explode, ()


def _explode() -> None:
    _Bomb.exploded += 1


@pytest.fixture
def reasons() -> Iterator[list[str]]:
    """Why programs ran without Inductor."""
    found: list[str] = []
    unsubscribe = events.subscribe(
        lambda e: found.append(e.reason) if isinstance(e, events.RunnerFallback) else None
    )
    yield found
    unsubscribe()


@contextmanager
def _kept_bytes(patch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """What is compiled inside, as bytes."""
    found: list[bytes] = []
    compile_it = compile_request.compiled_to_keep

    def noting(*args: Any) -> Any:
        code, content = compile_it(*args)
        assert content is not None
        found.append(content)
        return code, content

    patch.setattr(compile_request, "compiled_to_keep", noting)
    yield found


def _copies_of(content: bytes) -> list[Path]:
    """The files with these bytes among those that AOTAutograd wrote."""
    files = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).glob("aotautograd/*/*")
    found = []
    for path in files:
        with suppress(OSError):  # of another process, which is gone meanwhile
            if path.stat().st_size == len(content) and path.read_bytes() == content:
                found.append(path)
    return found


def _compiles_no_more(patch: pytest.MonkeyPatch) -> None:
    def refuses(*args: Any) -> Any:
        raise RuntimeError("compiles after all")

    patch.setattr(compile_request, "compiled_to_keep", refuses)


def test_another_process_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reasons: list[str]
) -> None:
    weight = torch.randn(4, 3)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x * weight.sum() + torch.tensor([1.0, 2.0, 3.0])).softmax(0)

    with torch.no_grad(), _kept_bytes(monkeypatch) as made:
        compiled(fn, tmp_path / "store", runner="inductor")(torch.randn(8, 3))
        assert not _copies_of(*made), "AOTAutograd's own file stays, which nobody reads"
        (kept,) = _files(tmp_path / "store")
        _compiles_no_more(monkeypatch)
        second = compiled(fn, tmp_path / "store", runner="inductor")
        for size in (5, 8, 100, 2):
            x = torch.randn(size, 3)
            torch.testing.assert_close(second(x), fn(x))
        assert counts(second) == (0, 1)
        assert not reasons, "it was compiled"
        assert [len(each.runner.artefacts) for each in second.entries] == [1]
        # a size that torch takes for a constant: what is kept is not for it
        one = torch.randn(1, 3)
        torch.testing.assert_close(second(one), fn(one))
        assert len(reasons) == 1
        assert "compiles after all" in reasons[0]
        kept.write_bytes(kept.read_bytes()[:-1])
        third = compiled(fn, tmp_path / "store", runner="inductor")
        with told() as seen:
            torch.testing.assert_close(third(x), fn(x))
        assert any(
            isinstance(each, events.StoreFailed) and "not signed" in each.reason for each in seen
        )
        assert len(reasons) == 2


@pytest.mark.nightly
def test_gradients_of_another_process_compile_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reasons: list[str]
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5), torch.nn.Softmax(0))
    compiled(model, tmp_path / "store", runner="inductor")(torch.randn(8, 4))
    _compiles_no_more(monkeypatch)
    second = compiled(model, tmp_path / "store", runner="inductor")
    for size in (5, 8, 100, 2):
        x, found = torch.randn(size, 4), []
        for each in (second, model):
            torch.manual_seed(size)
            model.zero_grad()
            result = each(x)
            result.square().sum().backward()
            found.append([result, *(parameter.grad for parameter in model.parameters())])
        torch.testing.assert_close(*found)
    assert counts(second) == (0, 1)
    assert not reasons, "it was compiled"


def test_what_cannot_be_loaded_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    monkeypatch.setattr(
        compile_request, "compiled_to_keep", lambda module, *_: (_flat(fn), b"no pickle")
    )
    compiled(fn, tmp_path / "store", runner="inductor")(torch.ones(3))
    assert len(_files(tmp_path / "store")) == 1
    second = compiled(fn, tmp_path / "store", runner="inductor")
    with told() as seen:
        assert second(torch.ones(4)).tolist() == [2.0] * 4
    assert [type(each) for each in seen] == [events.Loaded, events.StoreFailed]
    assert "could not be loaded: UnpicklingError" in seen[1].reason


def _flat(fn: Any) -> Any:
    return lambda x: [fn(x)]


class _Rows(torch.nn.Module):
    """A program whose padding needs repairs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(x).softmax(0).mean(0)
        return result


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["inductor", "background"])
def test_padded_programs_of_another_process_compile_nothing(
    kernels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reasons: list[str]
) -> None:
    model, options = _Rows(), {"kernels": kernels}
    with torch.no_grad():
        first = compiled(model, tmp_path / "store", runner="padded", dynamic=True, options=options)
        for size in (7, 40):
            first(torch.randn(size, 3))
        assert first.settle(300)
        assert len(_files(tmp_path / "store")) == 1
        _compiles_no_more(monkeypatch)
        monkeypatch.setattr(CompileProcess, "ask", lambda *_: pytest.fail("compiles beside"))
        second = compiled(model, tmp_path / "store", runner="padded", dynamic=True, options=options)
        for size in (9, 100, 8, 33, 9):
            x = torch.randn(size, 3)
            torch.testing.assert_close(second(x), model(x))
        assert counts(second) == (0, 1)
        assert second.settle()
        (entry,) = second.entries
        assert all(
            "inductor" in {each.kernels for each in bucket.variants}
            for bucket in entry.runner.buckets
        )
        other = torch.nn.Sequential(_Rows(), torch.nn.ReLU())  # its code is its own
        monkeypatch.setattr(CompileProcess, "ask", _unheard)
        third = compiled(other, tmp_path / "store", runner="padded", dynamic=True, options=options)
        torch.testing.assert_close(third(x), other(x))
    assert len(reasons) == 1


@pytest.mark.parametrize("kernels", ["inductor", "background"])
def test_padded_programs_that_no_compiler_is_asked_for_run_eagers_kernels(
    kernels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reasons: list[str]
) -> None:
    monkeypatch.setattr(Artefacts, "request", lambda *_: 1 // 0)
    model = _Rows()
    with torch.no_grad():
        fast = compiled(
            model, tmp_path / "store", runner="padded", dynamic=True, options={"kernels": kernels}
        )
        for size in (7, 40, 7):
            x = torch.randn(size, 3)
            torch.testing.assert_close(fast(x), model(x))
    assert len(reasons) == 1
    assert "ZeroDivisionError" in reasons[0]


def _unheard(*_: Any) -> None:
    raise UnsupportedError("nobody listens")


def test_only_what_this_user_wrote_for_this_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskStore(tmp_path / "store")
    shelf = ArtefactShelf(store, "a" * 64)
    bomb = Saved(None, (3,), pickle.dumps(_Bomb()))
    shelf.keep(SAVED)
    shelf.keep(bomb)
    assert set(shelf.saved()) == {SAVED, bomb}
    assert list(ArtefactShelf(store, "b" * 64).saved()) == []
    files = _files(store.path)
    assert {each.stat().st_mode & 0o777 for each in files} == {0o600}
    with monkeypatch.context() as patch, told() as seen:
        patch.setenv("SYMSHAPE_KEY", str(tmp_path / "other" / "key"))
        assert list(shelf.saved()) == []
    assert len(seen) == 2
    assert all("not signed with this user's key" in each.reason for each in seen)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)  # the code says how many
        assert list(shelf.saved()) == []
    finally:
        torch.set_num_threads(threads)
    whole = [each.read_bytes() for each in files]
    elsewhere = store.path / ("c" * 32)
    elsewhere.mkdir()
    for path, content in zip(files, whole, strict=True):
        for wrong in (
            b"",
            content[:30],
            content[:-1],
            content + b"x",
            content[:70] + b"~" + content[71:],
        ):
            path.write_bytes(wrong)
            assert content not in [each.content for each in shelf.saved()]
        path.unlink()
        (elsewhere / path.name).write_bytes(content)  # signed, for another place
    with monkeypatch.context() as patch:
        patch.setattr(ArtefactShelf, "_address", lambda self: elsewhere.name)
        assert list(shelf.saved()) == []
    assert _Bomb.exploded == 0


def test_a_key_that_others_may_read_is_none(tmp_path: Path) -> None:
    shelf = ArtefactShelf(DiskStore(tmp_path / "store"), "a" * 64)
    shelf.keep(SAVED)
    key = tmp_path / "mine" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    for spoil in (lambda: key.chmod(0o644), lambda: key.write_bytes(b"short")):
        spoil()
        with told() as seen:
            assert list(shelf.saved()) == []
            shelf.keep(Saved(None, (1,), b""))
        assert len(_files(tmp_path / "store")) == 1
        assert len(seen) == 2
        assert "artefact" in seen[1].reason
        key.chmod(0o600)


def test_only_folders_of_this_user_have_a_shelf(tmp_path: Path) -> None:
    class Nowhere:
        names = get = put = lambda self, *args: []

    here = DiskStore(tmp_path)
    assert shelf_of(here, "a" * 64) == ArtefactShelf(here, "a" * 64)
    assert shelf_of(SharedStore(Nowhere(), here), "a" * 64) == ArtefactShelf(here, "a" * 64)
    assert shelf_of(DiskStore(tmp_path, shared=True), "a" * 64) is None
    assert shelf_of(object(), "a" * 64) is None


def test_artefacts_are_pruned_and_not_exported(tmp_path: Path) -> None:
    from symshape.store.bundles import export_to

    store = DiskStore(tmp_path / "store", most_bytes=3000, most_of_one=3)
    shelf = ArtefactShelf(store, "a" * 64)
    for n in range(5):
        shelf.keep(Saved(None, (n,), bytes(100)))
    assert len(list(shelf.saved())) == 3
    shelf.keep(Saved(None, (9,), bytes(2500)))
    assert sum(each.bytes for each in store.all(ARTEFACT)) <= 3000
    assert export_to(store, tmp_path / "bundle") == 0
    assert (tmp_path / "bundle").read_bytes() == b""
    left = len(_files(tmp_path / "store"))
    assert [each.kind for each in store.prune(0)] == [ARTEFACT] * left
    assert _files(tmp_path / "store") == []
