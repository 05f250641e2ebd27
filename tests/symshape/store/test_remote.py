"""Stores behind a URL: read through, written behind; a dead or lying other side costs a bounded
wait and no result.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape import events
from symshape.store.disk import DiskStore
from symshape.store.remote import Files, Redis, SharedStore, remote_of
from symshape.store.store_errors import EntryError
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


def test_two_processes_that_write_the_same_entry(tmp_path: Path) -> None:
    """Neither takes the other's unfinished file away."""
    remotes, wrong, content = [Files(f"file://{tmp_path}") for _ in range(2)], [], b"x" * 100_000

    def write(remote: Files) -> None:
        for _ in range(100):
            try:
                remote.put(ADDRESS, "b" * 64, content)
                assert remote.get(ADDRESS, "b" * 64) == content
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=write, args=(each,)) for each in remotes]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
    assert [each.name for each in (tmp_path / ADDRESS).iterdir()] == [f"{'b' * 64}.entry"]


class _Slow:
    """The entries of another store, late by a while."""

    def __init__(self, behind: Files) -> None:
        self.behind, self.late = behind, 0.0

    def names(self, address: str) -> list[str]:
        return self.behind.names(address)

    def get(self, address: str, digest: str) -> bytes:
        time.sleep(self.late)
        return self.behind.get(address, digest)

    def put(self, address: str, digest: str, content: bytes) -> None:
        self.behind.put(address, digest, content)


def test_an_entry_that_came_late_serves_a_later_call(tmp_path: Path) -> None:
    remote = _Slow(Files(f"file://{tmp_path}/remote"))
    first = SharedStore(remote, DiskStore(tmp_path / "one"))
    compiled(double, first)(torch.ones(3, 4))  # type: ignore[arg-type]
    assert first.flush()
    shared = SharedStore(remote, DiskStore(tmp_path / "two"), wait=0.2)
    second = compiled(double, shared, options={"on_miss": "error"})  # type: ignore[arg-type]
    remote.late = 1.0
    with pytest.raises(symshape.MissError):
        second(torch.ones(3, 4))
    remote.late = shared._without_until = 0.0
    assert second(torch.ones(3, 4)).tolist() == [[3.0] * 4] * 3
    assert counts(second) == (0, 1)


class _Server:
    """A server of its own, in a process."""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url, self.process = url, process


@contextlib.contextmanager
def _running(words: Callable[[int], list[str]], url: str) -> Iterator[_Server]:
    """A server at a free port, from when it answers until the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(words(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        else:
            pytest.fail(f"{words(port)[0]} does not answer")
        yield _Server(url.format(port=port), process)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[_Server]:
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        pytest.skip("no redis-server or valkey-server on PATH")
    pytest.importorskip("redis", reason="the client of Redis is not installed (the extra remote)")
    words = ["--save", "", "--appendonly", "no", "--dir", str(tmp_path)]
    with _running(
        lambda port: [found, "--port", str(port), *words], "redis://127.0.0.1:{port}/0"
    ) as running:
        yield running


def test_redis(server: _Server, tmp_path: Path) -> None:
    _two_machines(server.url, tmp_path)
    assert isinstance(remote_of(server.url), Redis)
    signing = _shared(server.url, tmp_path, "signing", key=b"secret")
    digest = signing.write(ADDRESS, b"{signed")
    assert signing.flush()
    assert (
        _shared(server.url, tmp_path, "reading", key=b"secret").read(ADDRESS, digest) == b"{signed"
    )
    with pytest.raises(EntryError, match="not signed with this store's key"):
        _shared(server.url, tmp_path, "other", key=b"other").read(ADDRESS, digest)


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["hangs", "is killed"])
def test_a_server_that_dies(server: _Server, tmp_path: Path, how: signal.Signals) -> None:
    """In the midst of a process that had used it: the next look-up waits once, the others not at
    all.
    """
    store = _shared(server.url, tmp_path, "one", wait=0.5)
    store.write(ADDRESS, b"{an entry")
    assert store.flush()
    server.process.send_signal(how)
    if how is signal.SIGKILL:
        server.process.wait()
    _bounded(store)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    """A bucket of moto's server of S3's protocol, and the address of that for s3fs."""
    for name in ("s3fs", "moto", "flask"):
        pytest.importorskip(
            name, reason=f"{name} is not installed: pip install 's3fs' 'moto[server]'"
        )
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p"]
    for name, value in (
        ("ACCESS_KEY_ID", "x"),
        ("SECRET_ACCESS_KEY", "x"),
        ("DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    with _running(lambda port: [*words, str(port)], "http://127.0.0.1:{port}") as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        Files("s3://symshape-test/x")._files.mkdir("symshape-test")
        yield running


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # botocore's
def test_s3(bucket: _Server, tmp_path: Path) -> None:
    url = "s3://symshape-test/store"
    _two_machines(url, tmp_path)
    one, two = (_shared(url, tmp_path, name, wait=10.0) for name in ("writer", "reader"))
    assert two.digests(ADDRESS) == []
    digest = one.write(ADDRESS, b"{later")
    assert one.flush()
    assert two.digests(ADDRESS) == [digest]  # no list of files is remembered
    assert two.read(ADDRESS, digest) == b"{later"
    bucket.process.kill()
    bucket.process.wait()
    _bounded(_shared(url, tmp_path, "dead", wait=0.5))


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
    assert any(
        isinstance(each, events.StoreFailed) and "not asked again for 5 s" in each.reason
        for each in seen
    )


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
    # who has no key need not check
    assert _shared(url, tmp_path, "five").read(ADDRESS, signed) == b"{signed"


def test_urls_that_mean_nothing() -> None:
    with pytest.raises(symshape.InputError, match="not a URL that fsspec knows"):
        Files("nothing-like-that://x")
    with pytest.raises(symshape.InputError, match="not installed"):
        Files("s3://bucket/x") if not _has("s3fs") else Files("abfs://x/y")


def _has(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None
