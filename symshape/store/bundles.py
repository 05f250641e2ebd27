"""Export and import of a whole store as one file: its entries and certificates, one after the
other.
"""

from __future__ import annotations

from pathlib import Path

from symshape.store import certificates
from symshape.store.disk import CERTIFICATE, DiskStore
from symshape.store.entry_format import LARGEST, read_header
from symshape.store.entry_text import checked
from symshape.store.store_errors import EntryError


def export_to(store: DiskStore, path: Path) -> int:
    """Write the undamaged entries and the valid certificates to a file; return the number of
    entries.
    """
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
        for _, record in certificates.certificate_records(store):
            if not isinstance(record, EntryError) and certificates.prove_again(store, record):
                file.write(certificates.to_bytes(record))
    unfinished.replace(path)
    return count


def import_from(store: DiskStore, path: Path) -> int:
    """Import all entries of a file, and the certificates that they prove; return the number of
    entries.

    Raises:
        EntryError: one of them is none, or a certificate does not hold; what comes before it is
            taken over.
    """
    count = 0
    with open(path, "rb") as file, store.keeping_all():
        while header := file.readline(LARGEST):
            content = header + file.readline(LARGEST)
            if certificates.is_certificate(header):
                _take_certificate(store, content)
                continue
            stored = read_header(content)
            checked(stored)
            store.write(str(stored.header["address"]), content)
            count += 1
    return count


def _take_certificate(store: DiskStore, content: bytes) -> None:
    record = certificates.from_bytes(content)
    proof = certificates.prove_again(store, record)
    if not proof:
        raise EntryError(
            f"a certificate does not hold: {certificates.why_not(store, record, proof)}"
        )
    store.write(record.address, content, CERTIFICATE)
