"""Compiled code beside the entries: one file for each artefact of an entry, which only this user
can have written.

An entry is data. An artefact is code (a pickle with sources in it), and loading it runs it. So each
artefact is signed with a key of this user, which no store holds. Files without a valid signature,
such as those from another machine or user, are skipped. Artefacts are not exported, and no remote
store has them: other machines compile their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from symshape import events
from symshape.environment_variables import KEY
from symshape.runtime.runners.inductor.artefacts import Saved
from symshape.runtime.runners.inductor.code import made_for
from symshape.store.disk import ARTEFACT, DiskStore, data_path, signed, unsigned, user_path
from symshape.store.entry_format import parsed_json
from symshape.store.json_values import fields_of, integer_of, list_of, text_of
from symshape.store.store_errors import EntryError

_FORMAT, _VERSION = "symshape artefact", 1
_KEY = 32  # bytes
_MOST = 1000  # conditions, integers


@attrs.frozen
class ArtefactShelf:
    """The artefacts of one entry (see :class:`symshape.runtime.runners.inductor.artefacts.Shelf`).

    Attributes:
        store: the folder.
        entry: the digest of the entry.
    """

    store: DiskStore
    entry: str

    def saved(self) -> Iterator[Saved]:
        """Yield the artefacts that this user wrote, for the present flags, the most recently used
        first.
        """
        address = self._address()
        for digest in self.store.digests(address, ARTEFACT):
            try:
                found = _opened(self.store.read(address, digest, ARTEFACT), address)
            except (EntryError, OSError) as error:
                self._tell(f"has an artefact that cannot be used ({digest[:12]}): {error}")
                continue
            self.store.used(address, digest, ARTEFACT)
            yield found

    def keep(self, saved: Saved) -> None:
        """Store an artefact."""
        address = self._address()
        try:
            self.store.write(address, _closed(saved, address), ARTEFACT)
        except (EntryError, OSError) as error:
            self._tell(f"an artefact could not be written: {error}")

    def failed(self, saved: Saved, error: Exception) -> None:
        """Report an artefact that could not be loaded."""
        self._tell(f"has an artefact that could not be loaded: {type(error).__name__}: {error}")

    def part(self, name: str) -> ArtefactShelf:
        """Return the shelf for one of several graphs of the entry."""
        return attrs.evolve(self, entry=f"{self.entry} {name}")

    def _address(self) -> str:
        return hashlib.sha256(
            f"{_FORMAT} {_VERSION} {self.entry} {made_for()}".encode()
        ).hexdigest()[:32]

    def _tell(self, what: str) -> None:
        events.emit(events.StoreFailed(repr(self.store), what))


def shelf_of(store: Any, entry: str) -> ArtefactShelf | None:
    """Return the shelf of an entry's artefacts; None unless the store has a private folder on this
    machine.
    """
    here = getattr(store, "local", store)
    return ArtefactShelf(here, entry) if isinstance(here, DiskStore) and not here.shared else None


def _closed(saved: Saved, address: str) -> bytes:
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "assumed": saved.assumed,
        "exact": saved.exact,
    }
    content = json.dumps(header).encode() + b"\n" + saved.content
    return signed(content, _key(), address)


def _opened(found: bytes, address: str) -> Saved:
    """Return the content of a file after checking its signature.

    Raises:
        EntryError: it is not signed with this user's key for this address, or is no artefact.
    """
    content = unsigned(found, _key(), address)
    if content is None:
        raise EntryError("it is not signed with this user's key")
    header, _, code = content.partition(b"\n")
    said, version, assumed, exact = fields_of(
        parsed_json(header), "format", "version", "assumed", "exact"
    )
    if (said, version) != (_FORMAT, _VERSION):
        raise EntryError("it is no artefact of this version")
    conditions = (
        None
        if assumed is None
        else tuple(text_of(each, 10_000) for each in list_of(assumed, _MOST))
    )
    return Saved(conditions, tuple(integer_of(each) for each in list_of(exact, _MOST)), code)


def _key() -> bytes:
    """Return this user's key: from the file of ``SYMSHAPE_KEY``, or from the user's own folder,
    made when needed.

    Raises:
        OSError: it cannot be read or made.
        EntryError: others may read or write the file, or it is no key.
    """
    named = KEY.value()
    path = user_path(named) if named else data_path() / "artefacts.key"
    try:
        return _read_key(path)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(8)}")
        handle = os.open(
            made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with open(handle, "wb") as file:
            file.write(secrets.token_bytes(_KEY))
        try:
            os.link(made, path)  # whoever was first made it
        except FileExistsError:
            pass
        finally:
            made.unlink()
        return _read_key(path)


def _read_key(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise EntryError(
                f"{path} must be a file that its owner alone may read and write (chmod 600)"
            )
        key = file.read(_KEY + 1)
    if len(key) != _KEY:
        raise EntryError(f"{path} must have {_KEY} bytes")
    return key
