"""Entries that many machines share: a folder of this machine in front of a remote store (fsspec or
Redis).

Reads go through: an entry that is not in the folder is fetched and stored there. Writes go to the
remote store later, in a thread. A call waits for the remote store at most as long as it was told
to, and not at all for a while after a failure, so that a dead server costs next to nothing. Remote
entries are checked by their digest; with a ``key`` they must be signed. An entry decides what a
program computes: share a store only with people whom you trust with that, or sign.
"""

from __future__ import annotations

import atexit
import importlib
import queue
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from symshape import events, forks
from symshape.errors import InputError
from symshape.store.disk import SIGNATURE, DiskStore, is_name, signed, unsigned
from symshape.store.entry_format import LARGEST, digest_of
from symshape.store.store_errors import EntryError

T = TypeVar("T")
_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
"""The seconds without the remote store after a failure, doubled with each, and their largest value.
"""
_MOST_WAITING = 256


class Remote(Protocol):
    """The remote store; any exception is a failure of it."""

    def names(self, address: str) -> list[str]:
        """Return the names of the entries for an address."""

    def get(self, address: str, digest: str) -> bytes:
        """Return the content of one entry."""

    def put(self, address: str, digest: str, content: bytes) -> None:
        """Write an entry atomically: a reader finds all of it or nothing."""


class Files:
    """Entries under a URL that fsspec knows (``s3://bucket/x``, ``file:///shared/x``, ``http://…``
    to read).

    Args:
        url: the folder.
        options: of that file system.

    Raises:
        InputError: fsspec is not installed, or what it needs for such URLs.
    """

    def __init__(self, url: str, **options: Any) -> None:
        try:
            fsspec = importlib.import_module("fsspec.core")
            self._files, self._root = fsspec.url_to_fs(url, **options)
        except ImportError as error:
            raise InputError(
                f"{url} needs what is not installed ({error}): pip install 'symshape[remote]'"
            ) from error
        except ValueError as error:
            raise InputError(f"{url} is not a URL that fsspec knows: {error}") from error

    def names(self, address: str) -> list[str]:
        """Return the names of the entries for an address."""
        self._files.invalidate_cache(f"{self._root}/{address}")  # other machines write, too
        try:
            found = self._files.ls(f"{self._root}/{address}", detail=False)
        except FileNotFoundError:
            return []
        return [
            name.rpartition("/")[2].removesuffix(".entry")
            for name in found
            if name.endswith(".entry")
        ]

    def get(self, address: str, digest: str) -> bytes:
        """Return the content of one entry."""
        content: bytes = self._files.cat_file(
            f"{self._root}/{address}/{digest}.entry", start=0, end=LARGEST
        )
        return content

    def put(self, address: str, digest: str, content: bytes) -> None:
        """Write an entry, which gets its name when it is complete."""
        path = f"{self._root}/{address}/{digest}.entry"
        unfinished = (
            f"{path}.{secrets.token_hex(8)}.unfinished"  # another process may write it, too
        )
        self._files.makedirs(f"{self._root}/{address}", exist_ok=True)
        self._files.pipe_file(unfinished, content)
        self._files.mv(unfinished, path)


class Redis:
    """Entries in a Redis (or Valkey) server: ``redis://host:port/0``.

    Args:
        url: the server.
        timeout: seconds for one answer.
        seconds: how long an entry is kept after it was written.

    Raises:
        InputError: the client is not installed.
    """

    def __init__(self, url: str, *, timeout: float = 2.0, seconds: int = 30 * 86400) -> None:
        try:
            redis = importlib.import_module("redis")
        except ImportError as error:
            raise InputError(f"{url} needs the client: pip install 'symshape[remote]'") from error
        self._client: Any = redis.Redis.from_url(
            url, socket_timeout=timeout, socket_connect_timeout=timeout
        )
        self._seconds = seconds

    def names(self, address: str) -> list[str]:
        """Return the names of the entries for an address."""
        return [each.decode() for each in self._client.smembers(f"symshape:{address}")]

    def get(self, address: str, digest: str) -> bytes:
        """Return the content of one entry."""
        found = self._client.get(f"symshape:{address}:{digest}")
        if found is None:
            self._client.srem(f"symshape:{address}", digest)  # it is older than entries are kept
            raise FileNotFoundError(digest)
        return bytes(found)

    def put(self, address: str, digest: str, content: bytes) -> None:
        """Write an entry; its name is listed afterwards."""
        self._client.set(f"symshape:{address}:{digest}", content, ex=self._seconds)
        self._client.sadd(f"symshape:{address}", digest)


class SharedStore:
    """A store of this machine in front of a remote one.

    Args:
        remote: what stands behind, or a URL: ``redis://…`` or any that fsspec knows.
        local: the folder in front.
        wait: seconds that a look-up waits for the other side, in all.
        key: signs what is written, and what is read must be signed by it.
    """

    def __init__(
        self, remote: Remote | str, local: DiskStore, *, wait: float = 2.0, key: bytes | None = None
    ) -> None:
        self.local = local
        self._remote = remote_of(remote) if isinstance(remote, str) else remote
        self._wait, self._key = wait, key
        self._without_until, self._pause = 0.0, _PAUSE
        self._behind: queue.Queue[Callable[[], object]] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._lock = forks.lock()

    def __repr__(self) -> str:
        return f"SharedStore({type(self._remote).__name__}, {self.local!r})"

    def digests(self, address: str) -> list[str]:
        """Return the entries for an address: those of this machine first."""
        here = self.local.digests(address)
        there = self._ask(lambda: self._remote.names(address)) or []
        return [*here, *(each for each in there if each not in here and is_name(each, 64))]

    def read(self, address: str, digest: str) -> bytes:
        """Return the content of one entry, from this machine or the remote store.

        Raises:
            OSError: it is not to be had in time.
            EntryError: it is not what its name says, or not signed.
        """
        try:
            return self.local.read(address, digest)
        except FileNotFoundError:
            pass
        found = self._ask(lambda: self._remote.get(address, digest))
        if found is None:
            raise FileNotFoundError(digest)
        content = self._opened(found, address)
        if digest_of(content) != digest:
            raise EntryError(
                "the entry of the remote store is damaged: its content is not that of its name"
            )
        try:
            self.local.write(address, content)
        except OSError as error:
            events.emit(events.StoreFailed(repr(self.local), f"could not be written: {error}"))
        return content

    def write(self, address: str, content: bytes) -> str:
        """Write an entry here, and later to the remote store."""
        digest = digest_of(content)
        self._later(lambda: self._remote.put(address, digest, self._closed(content, address)))
        return self.local.write(address, content)

    def used(self, address: str, digest: str) -> None:
        """Mark an entry as used."""
        self.local.used(address, digest)

    def remove(self, address: str, digest: str) -> None:
        """Remove an entry here; the remote store keeps it."""
        self.local.remove(address, digest)

    def flush(self, seconds: float = 10.0) -> bool:
        """Wait until all entries are written to the remote store; return whether they are."""
        done = threading.Event()
        self._later(done.set)
        return done.wait(seconds)

    # -- signing
    def _closed(self, content: bytes, address: str) -> bytes:
        return content if self._key is None else signed(content, self._key, address)

    def _opened(self, found: bytes, address: str) -> bytes:
        if self._key is None:
            is_signed = found[:1] != b"{"
            return found[SIGNATURE:] if is_signed else found
        content = unsigned(found, self._key, address)
        if content is None:
            raise EntryError("the entry of the remote store is not signed with this store's key")
        return content

    # -- the other side, with a bounded wait
    def _ask(self, question: Callable[[], T]) -> T | None:
        """Return the answer of the remote store; None if it is late, or if the store failed a
        moment ago.
        """
        if time.monotonic() < self._without_until:
            return None
        answer: Future[T] = Future()

        def ask() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=ask, name="symshape remote store", daemon=True).start()
        try:
            found = answer.result(self._wait)
        except FileNotFoundError:
            return None
        except Exception as error:
            self._failed(error)
            return None
        self._pause = _PAUSE
        return found

    def _failed(self, error: Exception) -> None:
        reason = (
            "did not answer in time"
            if isinstance(error, TimeoutError)
            else f"{type(error).__name__}: {error}"
        )
        self._without_until = time.monotonic() + self._pause
        events.emit(
            events.StoreFailed(repr(self), f"{reason}; not asked again for {self._pause:g} s")
        )
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _later(self, task: Callable[[], object]) -> None:
        with self._lock:
            # it stayed behind in the process that forked
            if self._thread is None or not self._thread.is_alive():
                self._behind = queue.Queue(_MOST_WAITING)  # as does what that one is about to write
                self._thread = threading.Thread(
                    target=self._write_behind, name="symshape write-behind", daemon=True
                )
                self._thread.start()
                atexit.register(self.flush, 5.0)
        try:
            self._behind.put_nowait(task)
        except queue.Full:
            events.emit(events.StoreFailed(repr(self), "is so slow that an entry was not written"))

    def _write_behind(self) -> None:
        while True:
            task = self._behind.get()
            try:
                task()
            except Exception as error:
                self._failed(error)


def remote_of(url: str) -> Remote:
    """Return the remote store for a URL.

    Raises:
        InputError: nothing here, or something is not installed.
    """
    if url.startswith(("redis://", "rediss://", "unix://")):
        return Redis(url)
    return Files(url)
