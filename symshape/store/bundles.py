"""All entries of a store in one file, for another machine: the files of entries, one after the other."""

from __future__ import annotations

from pathlib import Path

from symshape.store.disk import DiskStore
from symshape.store.entry_format import LARGEST, read_header
from symshape.store.refusals import EntryError
from symshape.store.showing import checked


def export_to(store: DiskStore, path: Path) -> int:
    """Writes the entries that are whole to a file; answers how many."""
    count = 0
    unfinished = path.with_name(f"{path.name}.unfinished")
    with open(unfinished, "wb") as file:
        for each in store.all():
            try:
                content = store.read(each.address, each.digest)
                read_header(content, each.digest)
            except (EntryError, OSError):
                continue
            file.write(content)
            count += 1
    unfinished.replace(path)
    return count


def import_from(store: DiskStore, path: Path) -> int:
    """Takes over the entries in a file; answers how many.

    Raises:
        EntryError: one of them is none; those before it are taken over.
    """
    count = 0
    with open(path, "rb") as file:
        while header := file.readline(LARGEST):
            content = header + file.readline(LARGEST)
            stored = read_header(content)
            checked(stored)
            store.write(str(stored.header["address"]), content)
            count += 1
    return count
