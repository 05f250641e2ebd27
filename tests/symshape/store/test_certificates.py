"""Certificates are claims: read as hostile input, proven from entries by sizes enumerated here."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import torch

from guards.sets.guard_set import GuardSet
from guards.sets.sources import IntArg, Size, Stride
from symshape.dims import Dim, Policy
from symshape.store import certificates
from symshape.store.certificates import CertificateRecord, NotCertifiable, contract_of
from symshape.store.disk import CERTIFICATE, DiskStore
from symshape.store.entry_format import read_header
from symshape.store.store_errors import EntryError
from tests.symshape.store.storing import compiled, entries

A, B, K = Size("x", 0), Size("y", 0), IntArg("k")


def test_what_a_contract_admits() -> None:
    n = Dim("n", min=3, max=9, multiple_of=3)
    found = contract_of([A, B, K], [3, 3, 5], {A: n, B: n})
    admitted = {
        (a, b, k)
        for a in range(12)
        for b in range(12)
        for k in (4, 5)
        if found.holds({"v0": a, "v1": b, "v2": k})
    }
    assert admitted == {(a, a, 5) for a in (3, 6, 9)}
    found = contract_of([A, K], [3, 5], {A: Policy.AUTO, K: Policy.AUTO})
    assert found.holds({"v0": 0, "v1": -3})
    assert not found.holds({"v0": -1, "v1": 0})
    found = contract_of([A, B], [3, 4], {A: Dim("a", policy=Policy.STATIC)})
    assert [found.holds({"v0": a, "v1": 4}) for a in (2, 3)] == [False, True]
    with pytest.raises(NotCertifiable, match="x is not contiguous"):
        contract_of([A, Stride("x", 0)], [3, 2], {A: n})


def rows(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1, 4) * 2


def _record(folder: Path) -> tuple[DiskStore, CertificateRecord]:
    compiled(rows, folder)(torch.ones(8))
    (path,) = entries(folder)
    header = read_header(path.read_bytes()).header
    contract = contract_of([A], [8], {A: Dim("n", max=100, multiple_of=4)})
    return DiskStore(folder), CertificateRecord(
        "rows", path.parent.name, header["structure"], (A,), contract, (path.stem,)
    )


def test_proof_from_entries(tmp_path: Path) -> None:
    store, record = _record(tmp_path)
    assert certificates.prove_again(store, record)
    wider = attrs.evolve(record, contract=GuardSet(ranges={"v0": (0, 100)}))
    proof = certificates.prove_again(store, wider)
    assert proof.covered is False
    assert proof.counterexample is not None
    assert proof.counterexample["v0"] % 4
    assert "x.size(0) = " in certificates.why_not(store, wider, proof)
    for other in (attrs.evolve(record, address="f" * 32), attrs.evolve(record, structure={})):
        # these entries are for other calls
        assert certificates.prove_again(store, other).covered is False


def test_a_file_and_back(tmp_path: Path) -> None:
    store, record = _record(tmp_path)
    digest = certificates.store_certificate(store, record)
    assert certificates.store_certificate(store, record) == digest
    ((kept, found),) = certificates.certificate_records(store)
    assert (kept.digest, kept.address) == (digest, record.address)
    assert isinstance(found, CertificateRecord)
    assert attrs.astuple(found, recurse=False) == attrs.astuple(record, recurse=False)
    assert found.text() == record.text() == "x.size(0) >= 0, x.size(0) <= 100, x.size(0) % 4 == 0"
    assert [each.digest for each in store.all()] == [record.entries[0]]  # it is no entry
    assert not list(certificates.certificate_records(store, "0" * 32))
    assert store.digests(record.address) == [record.entries[0]]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b'"version":1', b'"version":9', "no certificate of version 1"),
        (b"symshape certificate", b"symshape certificates", "no certificate"),
        (b"\n", b"\n\n", "two lines"),
        (b'"v0', b'"v1', "v0"),
        (b'"entries":[', b'"entries":[7,', "text"),
        (b'"entries"', b'"entrees"', "entries"),
        (b"{", b"[", "damaged"),
    ],
)
def test_hostile_files(tmp_path: Path, old: bytes, new: bytes, told: str) -> None:
    _, record = _record(tmp_path)
    content = certificates.to_bytes(record)
    assert certificates.is_certificate(content.partition(b"\n")[0])
    forged = content.replace(old, new)
    assert forged != content
    with pytest.raises(EntryError, match=told):
        certificates.from_bytes(forged)


def test_one_that_lies_about_its_place(tmp_path: Path) -> None:
    store, record = _record(tmp_path)
    content = certificates.to_bytes(record)
    store.write("e" * 32, content, CERTIFICATE)
    ((_, found),) = certificates.certificate_records(store)
    assert isinstance(found, EntryError)
