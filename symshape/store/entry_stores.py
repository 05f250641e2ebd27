"""The interface of a store of entries, and the choice of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from symshape.errors import InputError
from symshape.store.disk import DiskStore, default_path
from symshape.store.remote import SharedStore


class EntryStore(Protocol):
    """A store of entries: a folder, or something like one."""

    def digests(self, address: str) -> list[str]:
        """Return the names of the entries for an address, the most useful first."""

    def read(self, address: str, digest: str) -> bytes:
        """Return the content of one entry."""

    def write(self, address: str, content: bytes) -> str:
        """Write an entry; return its name."""

    def used(self, address: str, digest: str) -> None:
        """Mark an entry as used."""

    def remove(self, address: str, digest: str) -> None:
        """Remove an entry."""


class NoStore:
    """The store that keeps nothing."""

    def digests(self, address: str) -> list[str]:
        """Return []."""
        return []

    def read(self, address: str, digest: str) -> bytes:
        """Raise: there are no entries."""
        raise FileNotFoundError(digest)

    def write(self, address: str, content: bytes) -> str:
        """Write nothing."""
        return ""

    def used(self, address: str, digest: str) -> None:
        """Do nothing."""

    def remove(self, address: str, digest: str) -> None:
        """Do nothing."""


def store_of(given: Any) -> EntryStore:
    """Return the store that a caller means: ``True`` for this user's, a path, a URL, or a store.

    Raises:
        InputError: it is none of these.
    """
    if given is True:
        return DiskStore(default_path())
    if isinstance(given, str) and "://" in given:
        return SharedStore(given, DiskStore(default_path()))
    if isinstance(given, (str, Path)):
        return DiskStore(given)
    if all(hasattr(given, name) for name in ("digests", "read", "write", "used", "remove")):
        return given  # type: ignore[no-any-return]
    raise InputError(f"store must be True, a path or a store, not {given!r}")
