"""Closed stores: a proof, stored with the entries, that these serve all sizes that a caller
declared.

A certificate names the declared sizes (ranges, multiples, equal ones; all other integers as in the
example call) and the entries that serve them. It is never trusted: every reader proves it again,
from the entries that exist. It is about sizes only. A call whose state, dtypes or modes differ from
those of the entries may still miss.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from guards.domains.interval_arithmetic import Pair
from guards.errors import GuardsError
from guards.sets.coverage import Certificate, certify
from guards.sets.guard_set import GuardSet
from guards.sets.serialize import from_json as guards_from_json
from guards.sets.serialize import to_json as guards_to_json
from guards.sets.sources import Size, Source, StorageOffset, Stride
from guards.terms import arithmetic, boolean, division
from guards.terms.term import Term
from symshape.dims import Dim, Policy
from symshape.graph.program import Slot, limits_of, slot_guards, slot_names
from symshape.store.disk import CERTIFICATE, DiskStore, StoredFile
from symshape.store.entry_format import (
    EntryBody,
    digest_of,
    lines_of,
    parsed_json,
    read_header,
    two_lines,
)
from symshape.store.graph_format import guard_set, guards_text
from symshape.store.json_values import Json, fields_of, label_of, list_of, text_of
from symshape.store.store_errors import EntryError

FORMAT, VERSION = "symshape certificate", 1
_HEADER = ("format", "version", "function", "address", "structure")
_BODY = ("sources", "contract", "entries")
_MOST_ENTRIES = 4096


class NotCertifiable(Exception):
    """The declared sizes cannot be expressed by conditions on integers; the message says which."""


@attrs.frozen(eq=False)
class CertificateRecord:
    """One certificate, as it was written: a claim.

    Attributes:
        function: the name of what was traced.
        address: where its entries are.
        structure: of the calls, as entries have it.
        sources: where the integers ``v0, v1, …`` of such a call are read.
        contract: what was declared of them.
        entries: the digests of the entries that serve them.
    """

    function: str
    address: str
    structure: Json
    sources: tuple[Source, ...]
    contract: GuardSet
    entries: tuple[str, ...]

    def text(self) -> str:
        """The declared sizes, in the caller's words."""
        names = {
            name: each.text()
            for name, each in zip(slot_names(len(self.sources)), self.sources, strict=True)
        }
        return ", ".join(guard.text(names) for guard in self.contract.conditions) or "all sizes"

    def point(self, values: Mapping[str, int]) -> dict[str, int]:
        """Return values of ``v0, v1, …`` by their sources."""
        names = slot_names(len(self.sources))
        return {
            each.text(): values[name]
            for name, each in zip(names, self.sources, strict=True)
            if name in values
        }


def contract_of(
    sources: Sequence[Source], values: Sequence[int], policies: Mapping[Source, Dim | Policy]
) -> GuardSet:
    """Return the condition of policies on the integers ``v0, v1, …`` of a call.

    Static integers keep the value of the example.

    Args:
        sources: where the integers are read.
        values: in the example call.
        policies: what was declared.

    Raises:
        NotCertifiable: a tensor whose sizes vary is not contiguous in the example, so its strides
            are no sizes.

    >>> found = contract_of(
    ...     [Size("x", 0), Size("x", 1)], [4, 8], {Size("x", 0): Dim("n", min=2, multiple_of=2)}
    ... )
    >>> print(found)
    v0 >= 2     # declared range
    v1 == 8     # declared range
    v0 % 2 == 0
    """
    varying = {
        each.arg
        for each, policy in policies.items()
        if isinstance(each, Size) and not _is_static(policy)
    }
    ranges: dict[str, Pair] = {}
    conditions: list[Term] = []
    first: dict[str, str] = {}
    for name, source, value in zip(slot_names(len(values)), sources, values, strict=True):
        policy = policies.get(source, Policy.STATIC)
        if isinstance(source, (Stride, StorageOffset)) and source.arg in varying:
            raise NotCertifiable(
                f"{source.arg} is not contiguous in the example call: give one that is"
            )
        if _is_static(policy):
            ranges[name] = (value, value)
        elif isinstance(policy, Dim):
            ranges[name] = (policy.min, policy.max)
            symbol = arithmetic.symbol(name)
            if policy.multiple_of > 1:
                conditions.append(boolean.eq(division.mod(symbol, policy.multiple_of), 0))
            other = first.setdefault(policy.name, name)
            if other != name:
                conditions.append(boolean.eq(symbol, arithmetic.symbol(other)))
        else:
            ranges[name] = limits_of(source)
    return GuardSet(conditions, ranges=ranges)


def _is_static(policy: Dim | Policy) -> bool:
    return (policy.policy if isinstance(policy, Dim) else policy) is Policy.STATIC


# -- the proof


def entries_for(store: DiskStore, address: str, structure: Json) -> dict[str, EntryBody]:
    """Return the undamaged entries for calls of a structure, by digest."""
    found = {}
    for digest in store.digests(address):
        try:
            stored = read_header(store.read(address, digest), digest)
            if stored.header["address"] == address and stored.header["structure"] == structure:
                found[digest] = EntryBody(stored)
        except (EntryError, OSError):  # who looks an entry up is told
            continue
    return found


def certified(
    contract: GuardSet, sources: Sequence[Source], entries: Iterable[EntryBody]
) -> Certificate:
    """Prove that entries serve all that the contract admits, from the entries themselves.

    Entries that ask for numbers in tensors are excluded: no proof about sizes predicts the answers.
    """
    sets = []
    for entry in entries:
        if len(entry.slots) == len(sources) and not entry.asks_for_numbers:
            slots = [Slot(source, term) for source, term in zip(sources, entry.slots, strict=True)]
            sets.append(slot_guards(slots, GuardSet(entry.guards.conditions)))
    return certify(contract, sets)


def prove_again(store: DiskStore, record: CertificateRecord) -> Certificate:
    """Prove a certificate again from the entries that exist now."""
    entries = entries_for(store, record.address, record.structure)
    return certified(record.contract, record.sources, entries.values())


def why_not(store: DiskStore, record: CertificateRecord, proof: Certificate) -> str:
    """Return the reason why a certificate does not hold, without a full stop: the sizes, and the
    missing entries.
    """
    gone = [each[:12] for each in record.entries if each not in store.digests(record.address)]
    missing = {} if proof.counterexample is None else record.point(proof.counterexample)
    sizes = ", ".join(f"{name} = {value}" for name, value in missing.items())
    why = f"no entry serves {sizes}, of {record.text()}" if sizes else proof.reason
    return f"{why} (gone: entry {', '.join(gone)})" if gone else why


# -- as a file


def to_bytes(record: CertificateRecord) -> bytes:
    """Return a certificate as a file: two lines, as of an entry."""
    names = slot_names(len(record.sources))
    header = dict(
        zip(
            _HEADER,
            (FORMAT, VERSION, record.function, record.address, record.structure),
            strict=True,
        )
    )
    body = {
        "sources": guards_to_json(dict(zip(names, record.sources, strict=True)), indent=None),
        "contract": guards_text(record.contract),
        "entries": list(record.entries),
    }
    return two_lines(header, body)


def is_certificate(header: bytes) -> bool:
    """Return whether a file that begins with this line claims to be a certificate."""
    return header.startswith(json.dumps({"format": FORMAT}, separators=(",", ":"))[:-1].encode())


def from_bytes(content: bytes) -> CertificateRecord:
    """Read the certificate in a file.

    Raises:
        EntryError: it is none.
    """
    header, body = lines_of(content, "a certificate")
    form, version, function, address, structure = fields_of(parsed_json(header), *_HEADER)
    if form != FORMAT or version != VERSION:
        raise EntryError(f"no certificate of version {VERSION}")
    sources, contract, entries = fields_of(parsed_json(body), *_BODY)
    read = _sources(sources)
    found = guard_set(contract)
    names = set(slot_names(len(read)))
    used = {symbol.name for condition in found.conditions for symbol in condition.term.symbols}
    if not found.ranges.keys() | used <= names:
        raise EntryError("a certificate of integers that a call does not have")
    digests = tuple(text_of(each, 64) for each in list_of(entries, _MOST_ENTRIES))
    return CertificateRecord(
        label_of(function), text_of(address, 32), structure, read, found, digests
    )


def _sources(data: Json) -> tuple[Source, ...]:
    try:
        read = guards_from_json(text_of(data, 1 << 24), "sources")
    except GuardsError as error:
        raise EntryError(f"sources that are wrong: {error}") from error
    assert isinstance(read, dict)
    if list(read) != list(slot_names(len(read))):
        raise EntryError("a certificate has sources of v0, v1, …")
    return tuple(read.values())


def store_certificate(store: DiskStore, record: CertificateRecord) -> str:
    """Write a certificate; return its name.

    Raises:
        OSError: it cannot be written.
    """
    return store.write(record.address, to_bytes(record), CERTIFICATE)


def certificate_records(
    store: DiskStore, address: str | None = None
) -> Iterator[tuple[StoredFile, CertificateRecord | EntryError]]:
    """Yield the certificates of a store, or of one of its addresses; an error in place of a damaged
    one.
    """
    for kept in store.all(CERTIFICATE):
        if address is not None and kept.address != address:
            continue
        try:
            content = store.read(kept.address, kept.digest, CERTIFICATE)
            record = from_bytes(content)
            wrong = record.address != kept.address or digest_of(content) != kept.digest
            yield (
                kept,
                EntryError("the file is damaged, or of another address") if wrong else record,
            )
        except (EntryError, OSError) as error:
            yield kept, error if isinstance(error, EntryError) else EntryError(str(error))
