"""Stores behind a URL: read through, written behind; a dead or lying other side costs a bounded wait and no result."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape import events
from symshape.store.disk import DiskStore
from symshape.store.refusals import EntryError
from symshape.store.remote import Files, Redis, SharedStore, remote_of
from tests.symshape.store.storing import compiled, counts, told

ADDRESS = "a" * 32
SCALE = 1.5


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2 * SCALE


def _shared(url: str, folder: Path, name: str, **options: Any) -> SharedStore:
    return SharedStore(url, DiskStore(folder / name), **options)


def _two_machines(url: str, folder: Path) -> None:
    first = _shared(url, folder, "one")
    fn = compiled(double, first)  # type: ignore[arg-type]
    fn(torch.ones(3, 4))
    assert first.flush()
    second = compiled(double, _shared(url, folder, "two"))  # type: ignore[arg-type]
    assert second(torch.ones(5, 4)).tolist() == [[3.0] * 4] * 5
    assert counts(second) == (0, 1)
    assert len(list(DiskStore(folder / "two").all())) == 1  # kept here from now on
    third = compiled(double, folder / "two")
    third(torch.ones(5, 4))
    assert counts(third) == (0, 1)


def test_files(tmp_path: Path) -> None:
    _two_machines(f"file://{tmp_path}/remote", tmp_path)
    assert not list((tmp_path / "remote").glob("*/*.unfinished"))
    _two_machines("memory://symshape-test", tmp_path / "more")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        pytest.skip("no redis-server here")
    pytest.importorskip("redis")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [found, "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(tmp_path)]
    running = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        running.kill()
        running.wait()


def test_redis(server: str, tmp_path: Path) -> None:
    _two_machines(server, tmp_path)
    assert isinstance(remote_of(server), Redis)


def test_a_server_that_dies(server: str, tmp_path: Path) -> None:
    port = server.rpartition(":")[2]
    dead = _shared(server.replace(port, "1/0"), tmp_path, "dead", wait=0.5)
    _bounded(dead)


class _Silent:
    """Never answers."""

    def names(self, address: str) -> list[str]:
        time.sleep(60)
        return []

    def get(self, address: str, digest: str) -> bytes:
        time.sleep(60)
        return b""

    def put(self, address: str, digest: str, content: bytes) -> None:
        time.sleep(60)


class _Broken(_Silent):
    def names(self, address: str) -> list[str]:
        raise ConnectionError("refused")


def _bounded(store: SharedStore) -> None:
    fn = compiled(double, store)  # type: ignore[arg-type]
    with told() as seen:
        began = time.monotonic()
        store.digests(ADDRESS)
        assert time.monotonic() - began < 2
        began = time.monotonic()
        for _ in range(100):
            store.digests(ADDRESS)  # not asked again for a while
        assert time.monotonic() - began < 1
        assert fn(torch.ones(3, 4)).tolist() == [[3.0] * 4] * 3
    assert counts(fn) == (1, 0)
    assert any(isinstance(each, events.StoreFailed) and "not asked again for 5 s" in each.reason for each in seen)


@pytest.mark.parametrize("remote", [_Silent(), _Broken()], ids=["silent", "broken"])
def test_a_dead_server_costs_a_bounded_wait(tmp_path: Path, remote: Any) -> None:
    _bounded(SharedStore(remote, DiskStore(tmp_path), wait=0.2))


def test_what_lies_there_is_checked(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/remote"
    first = _shared(url, tmp_path, "one")
    digest = first.write(ADDRESS, b"{content")
    assert first.flush()
    path = tmp_path / "remote" / ADDRESS / f"{digest}.entry"
    path.write_bytes(b"{other")
    (path.parent / "x.entry").write_bytes(b"no name of an entry")
    second = _shared(url, tmp_path, "two")
    assert second.digests(ADDRESS) == [digest]
    with pytest.raises(EntryError, match="not that of its name"):
        second.read(ADDRESS, digest)
    with pytest.raises(FileNotFoundError):
        second.read(ADDRESS, "b" * 64)


def test_signed_and_unsigned(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/remote"
    signing, plain = _shared(url, tmp_path, "one", key=b"secret"), _shared(url, tmp_path, "two")
    signed, unsigned = signing.write(ADDRESS, b"{signed"), plain.write(ADDRESS, b"{unsigned")
    assert signing.flush()
    assert plain.flush()
    reader = _shared(url, tmp_path, "three", key=b"secret")
    assert reader.read(ADDRESS, signed) == b"{signed"
    for other, name in ((reader, unsigned), (_shared(url, tmp_path, "four", key=b"other"), signed)):
        with pytest.raises(EntryError, match="not signed with this store's key"):
            other.read(ADDRESS, name)
    assert _shared(url, tmp_path, "five").read(ADDRESS, signed) == b"{signed"  # who has no key need not check


def test_urls_that_mean_nothing() -> None:
    with pytest.raises(symshape.InputError, match="no URL that fsspec knows"):
        Files("nothing-like-that://x")
    with pytest.raises(symshape.InputError, match="not installed"):
        Files("s3://bucket/x") if not _has("s3fs") else Files("abfs://x/y")


def _has(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None
