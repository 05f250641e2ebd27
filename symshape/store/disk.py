"""Entries as files: written whole or not at all, by any number of processes at once; the least
recently used go first.

There is a folder for each address (the program's name and its environment). The files in it are
named by the digest of their content, so no file is ever overwritten. A file gets its name only when
all of it is on the disk. A process that dies leaves at most an unfinished file that nobody reads;
the next clearing removes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from symshape.environment_variables import STORE
from symshape.errors import InputError
from symshape.store.entry_format import LARGEST, digest_of
from symshape.store.store_errors import EntryError

ENTRY, CERTIFICATE, ARTEFACT, _UNFINISHED = ".entry", ".certificate", ".artefact", ".unfinished"
"""The file name extensions of entries, certificates, artefacts and unfinished files."""
_PRUNED = ENTRY, ARTEFACT
_FORSAKEN_AFTER = 3600.0
"""The age in seconds after which an unfinished file is abandoned."""
_HEX = frozenset("0123456789abcdef")
SIGNATURE = 65
"""The bytes of a signature: 64 hexadecimal digits and the end of a line."""


@attrs.frozen
class StoredFile:
    """One stored file.

    Attributes:
        address: its folder.
        digest: its name.
        bytes: how large it is.
        used: when it was last of use, in seconds since 1970.
        kind: what its name ends in.
    """

    address: str
    digest: str
    bytes: int
    used: float
    kind: str


class DiskStore:
    """Entries in a folder.

    Args:
        path: the folder; made, for its owner alone, when something is first written.  A relative
            path is of the folder that is the current one now.
        most_bytes: the least recently used files leave when there are more.
        most_of_one: files for one address.
        shared: whether files are read that other users may write, too (a group that may write
            counts).  An entry decides what a program computes: only folders in which nobody writes
            whom you do not trust with that.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        most_bytes: int = 1 << 30,
        most_of_one: int = 64,
        shared: bool = False,
    ) -> None:
        self.path = user_path(path).absolute()
        self.most_bytes = most_bytes
        self.most_of_one = most_of_one
        self.shared = shared

    def __repr__(self) -> str:
        return f"DiskStore({str(self.path)!r})"

    def digests(self, address: str, kind: str = ENTRY) -> list[str]:
        """Return the files for an address, the most recently used first; [] if the folder cannot be
        read.
        """
        return [
            each.digest for each in sorted(self._in(address, kind), key=lambda each: -each.used)
        ]

    def read(self, address: str, digest: str, kind: str = ENTRY) -> bytes:
        """Return the content of a file.

        Raises:
            OSError: there is no such file, or it cannot be read.
            EntryError: another user may have written it, or it is no file for an entry.
        """
        path = self._file(address, digest, kind)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
                raise EntryError(f"{path} is not a file of at most {LARGEST:,} bytes")
            if not self.shared:
                self._check_private(path, found)
            return file.read(LARGEST + 1)

    def write(self, address: str, content: bytes, kind: str = ENTRY) -> str:
        """Write a file; return its name.

        Raises:
            OSError: the disk is full, or may not be written; nothing has changed then.
        """
        digest = digest_of(content)
        path = self._file(address, digest, kind)
        if path.exists():
            if kind in _PRUNED:
                self.used(address, digest, kind)
            return digest
        for folder in (*reversed(path.parent.parents), path.parent):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        unfinished = path.with_name(
            f".{digest[:16]}-{os.getpid()}-{secrets.token_hex(8)}{_UNFINISHED}"
        )
        try:
            handle = os.open(
                unfinished,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
            )
            with open(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(handle)
            os.replace(unfinished, path)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
        _settle(path.parent)
        self._make_room(address, digest, kind)
        return digest

    def used(self, address: str, digest: str, kind: str = ENTRY) -> None:
        """Mark a file as used just now; do nothing if the folder is read-only."""
        with contextlib.suppress(OSError):
            os.utime(self._file(address, digest, kind))

    def remove(self, address: str, digest: str, kind: str = ENTRY) -> None:
        """Remove a file, if it exists and may be removed."""
        with contextlib.suppress(OSError):
            self._file(address, digest, kind).unlink()

    def all(self, kind: str = ENTRY) -> Iterator[StoredFile]:
        """Yield every file of a kind."""
        for folder in _entries_of(self.path):
            if is_name(folder.name, 32):
                yield from self._in(folder.name, kind)

    def prune(
        self, most_bytes: int | None = None, *, unfinished_after: float = _FORSAKEN_AFTER
    ) -> list[StoredFile]:
        """Remove the least recently used files until at most so many bytes are left; return the
        removed files.

        Abandoned unfinished files are removed too.
        """
        most = self.most_bytes if most_bytes is None else most_bytes
        for folder in _entries_of(self.path):
            for left in _entries_of(Path(folder.path)):
                if left.name.endswith(_UNFINISHED):
                    with contextlib.suppress(OSError):
                        if (
                            time.time() - left.stat(follow_symlinks=False).st_mtime
                            > unfinished_after
                        ):
                            os.unlink(left.path)
        files = sorted(
            (each for kind in _PRUNED for each in self.all(kind)), key=lambda each: each.used
        )
        total, gone = sum(each.bytes for each in files), []
        for each in files:
            if total <= most:
                break
            self.remove(each.address, each.digest, each.kind)
            total -= each.bytes
            gone.append(each)
        return gone

    @contextlib.contextmanager
    def keeping_all(self) -> Iterator[None]:
        """Let an address have any number of files inside the block."""
        most, self.most_of_one = self.most_of_one, sys.maxsize
        try:
            yield
        finally:
            self.most_of_one = most

    @property
    def sources(self) -> Path | None:
        """The file that caches the digest of symshape's sources; None in a folder of several
        users.
        """
        return None if self.shared else self.path / "sources.digest"

    # -- inside
    def _file(self, address: str, digest: str, kind: str = ENTRY) -> Path:
        if not is_name(address, 32) or not is_name(digest, 64):
            raise EntryError(f"{address[:80]}/{digest[:80]} is not the name of an entry")
        return self.path / address / f"{digest}{kind}"

    def _check_private(self, path: Path, found: os.stat_result) -> None:
        """Raise where another user may write a file, or put another one in its place.

        Raises:
            EntryError: the file, the folder of its address or the store's folder is another user's,
                or its group or all users may write there.
        """
        folders = [(each, each.stat()) for each in (path.parent, self.path)]
        for place, status in ((path, found), *folders):
            if status.st_uid not in (os.geteuid(), 0):
                why = "belongs to another user"
            elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                why = (
                    "can be written by other users: run chmod go-w on it if nobody else has "
                    "changed it"
                )
            else:
                continue
            raise EntryError(f"{place} {why} (DiskStore(..., shared=True) reads it)")

    def _in(self, address: str, kind: str = ENTRY) -> Iterator[StoredFile]:
        for each in _entries_of(self.path / address) if is_name(address, 32) else ():
            digest = each.name.removesuffix(kind)
            if each.name.endswith(kind) and is_name(digest, 64):
                with contextlib.suppress(OSError):
                    found = each.stat(follow_symlinks=False)
                    yield StoredFile(address, digest, found.st_size, found.st_mtime, kind)

    def _make_room(self, address: str, newest: str, kind: str) -> None:
        here = sorted(self._in(address, kind), key=lambda each: each.used)
        for each in here[: max(0, len(here) - self.most_of_one)]:
            if each.digest != newest:
                self.remove(address, each.digest, kind)
        if sum(each.bytes for kind in _PRUNED for each in self.all(kind)) > self.most_bytes:
            self.prune(self.most_bytes * 9 // 10)


def user_path(given: str | Path) -> Path:
    """Return a path that a user wrote, with ``~`` replaced.

    Raises:
        InputError: it is empty, it begins with ``~`` and a user without a home folder, or no file
            system has such a name.
    """
    if not str(given):
        raise InputError("'' is not a path: it is empty; write '.' for the current folder")
    try:
        path = Path(given).expanduser()
    except RuntimeError as error:
        home = str(given).partition("/")[0]
        raise InputError(
            f"{given}: no home folder is known for {home}; write the whole path"
        ) from error
    if "\0" in str(path):
        raise InputError(f"{str(given)!r} is not a path: it contains a NUL character")
    return path


def default_path() -> Path:
    """Return the folder of ``store=True``: ``SYMSHAPE_STORE``, or the platform's folder for
    caches.
    """
    named = STORE.value()
    if named:
        return user_path(named)
    import platformdirs

    return platformdirs.user_cache_path("symshape", appauthor=False) / "entries"


def data_path() -> Path:
    """Return this user's folder for data that are no cache."""
    import platformdirs

    return platformdirs.user_data_path("symshape", appauthor=False)


def _entries_of(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; [] if it does not exist or cannot be read."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def is_name(text: str, length: int) -> bool:
    """Return whether a text is a digest of so many hexadecimal digits."""
    return len(text) == length and _HEX.issuperset(text)


def signed(content: bytes, key: bytes, address: str) -> bytes:
    """Return the content of a file behind a line that signs it for its address."""
    return _signature(content, key, address) + content


def unsigned(found: bytes, key: bytes, address: str) -> bytes | None:
    """Return the content of a signed file; None if another key, or nobody, signed it."""
    content = found[SIGNATURE:]
    right = hmac.compare_digest(found[:SIGNATURE], _signature(content, key, address))
    return content if right else None


def _signature(content: bytes, key: bytes, address: str) -> bytes:
    return hmac.new(key, address.encode() + content, hashlib.sha256).hexdigest().encode() + b"\n"


def _settle(folder: Path) -> None:
    """Flush the folder's list of names to the disk, if the platform can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
