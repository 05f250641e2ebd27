"""What a store of entries is, and which one a caller means."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from symshape.errors import InputError
from symshape.store.disk import DiskStore, default_path
from symshape.store.remote import SharedStore


class EntryStore(Protocol):
    """Where entries are kept: a folder, or something like one."""

    def digests(self, address: str) -> list[str]:
        """The names of the entries for an address, the most useful first."""

    def read(self, address: str, digest: str) -> bytes:
        """One of them."""

    def write(self, address: str, content: bytes) -> str:
        """Keeps one; answers its name."""

    def used(self, address: str, digest: str) -> None:
        """Notes that one was of use."""

    def remove(self, address: str, digest: str) -> None:
        """Takes one away."""


class NoStore:
    """Keeps nothing."""

    def digests(self, address: str) -> list[str]:
        """None."""
        return []

    def read(self, address: str, digest: str) -> bytes:
        """Nothing is there."""
        raise FileNotFoundError(digest)

    def write(self, address: str, content: bytes) -> str:
        """Writes nowhere."""
        return ""

    def used(self, address: str, digest: str) -> None:
        """Nothing was."""

    def remove(self, address: str, digest: str) -> None:
        """Nothing is there."""


def store_of(given: Any) -> EntryStore:
    """The store that a caller means: ``True`` for the one of this user, a path, a URL, or a store.

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
