"""The interface of a compiled function to a store: find a program for a call, the sizes that
change, store a program.

Errors of a store never reach a call: the call proceeds without the store, and the reason is an
event.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import attrs
import torch

from guards.sets.coverage import Certificate
from guards.sets.sources import IntArg, Source
from guards.terms.term import Op
from symshape import events, forks
from symshape.calls.arguments import Call, sources_of, values_of
from symshape.calls.modes import modes
from symshape.calls.outputs import builder
from symshape.dims import Dim, Policy
from symshape.errors import MissError
from symshape.graph.program import Program
from symshape.options import Options
from symshape.store.artefacts import ArtefactShelf, shelf_of
from symshape.store.call_structure import moved, structure_to_json, varying_floats, with_own_devices
from symshape.store.certificates import (
    CertificateRecord,
    NotCertifiable,
    certificate_records,
    certified,
    contract_of,
    entries_for,
    prove_again,
    store_certificate,
    why_not,
)
from symshape.store.code_digests import code_digest
from symshape.store.disk import CERTIFICATE, DiskStore
from symshape.store.entry_format import BuiltEntry, EntryBody, StoredEntry, read_header, to_bytes
from symshape.store.entry_stores import EntryStore
from symshape.store.environment import cache_digest, environment, sources_digest
from symshape.store.graph_format import refuse_control_flow
from symshape.store.miss_errors import BAKE, Asked, miss_error
from symshape.store.store_errors import Differs, EntryError, NotStorable
from symshape.tracing.capture import between_traces
from symshape.user_code import name_of

_MOST_READ = 256
"""The number of entries that are held in memory, as read."""


class FunctionEntries:
    """The entries of one compiled function.

    Args:
        fn: the function.
        store: where they are.
        options: of the trace.
        dynamic: what the caller says of sizes.
    """

    def __init__(
        self, fn: Callable[..., Any], store: EntryStore, options: Options, dynamic: Any
    ) -> None:
        self._fn, self._store = fn, store
        self._name = name_of(fn)
        said = [
            options.specialize_zero_one,
            options.duck_shape,
            options.minimise_guards,
            repr(dynamic),
        ]
        self._addresses = Addresses(fn, said)
        self._read: dict[str, tuple[StoredEntry, str]] = {}
        self._wrong: set[str] = set()
        self._told: set[str] = set()
        self._differs: Mapping[str, str] = {}
        self._ahead: dict[str, tuple[EntryBody, BuiltEntry]] = {}
        self._digests_of: WeakKeyDictionary[Program, str] = WeakKeyDictionary()
        self._lock = forks.lock()
        here = self._folder()
        sources_digest(None if here is None else here.sources)
        environment()  # takes a millisecond or two once, better now than at the first call

    def prepare(self) -> None:
        """Read the most recently used entry ahead of the first call, so that the call has less to
        do.

        Only from this machine's disk.  Nothing is said of what fails: the first call finds the
        same, and tells.  What the entry read is compared now and, by the check of any later call,
        when the first call comes.
        """
        here = self._folder()
        if here is None:
            return
        address, _ = self._here()
        with contextlib.suppress(Exception):
            for digest in here.digests(address)[:1]:
                stored = read_header(here.read(address, digest), digest)
                read = EntryBody(stored)
                built = read.built(self._fn, ())
                if built.state.unchanged():  # makes what checks it, too
                    self._read[digest] = stored, text_of(stored.header["structure"])
                    # its code is made now, and found when it is made for an entry
                    builder(built.graph.output_tree)
                    self._ahead[digest] = read, built
                    read.forget()

    def find(
        self, call: Call, values: Sequence[int], also: Sequence[Sequence[int]] = ()
    ) -> Program | None:
        """Return a program for the call, if a stored one fits it and all that it read is unchanged.

        Args:
            call: the call.
            values: its integers.
            also: those of other ranks' calls, which the program must serve too.
        """
        now = modes()
        self._differs = differs = {}
        address, surroundings = self._here()
        structure = self._structure(call)
        if structure is None:
            return None
        wanted = text_of(structure)
        for digest in self._candidates(address):
            try:
                found = self._fitting(address, digest, wanted, surroundings)
                if found is None or not all(map(found.admits, (values, *also))):
                    continue
                program = found.program(self._fn, call, now, self._built(digest))
            except Differs as error:
                differs[digest] = str(error)
                continue
            except OSError as error:  # it may be readable later: removed, or a remote store is late
                self._tell(f"has an entry that cannot be read ({digest[:12]}): {error}")
                continue
            except EntryError as error:
                self._is_wrong(address, digest, error)
                continue
            except Exception as error:  # whatever a hostile file may bring about
                self._is_wrong(address, digest, EntryError(f"{type(error).__name__}: {error}"))
                continue
            self._store.used(address, digest)
            self._digests_of[program] = digest
            if events.anybody():
                events.emit(events.Loaded(self._name, digest, len(program.graph.nodes)))
            return program
        if differs:
            told = list(dict.fromkeys(differs.values()))[:8]
            events.emit(
                events.NotServed(
                    self._name, f"{'; '.join(told)} has changed since the entry was stored"
                )
            )
        return None

    def miss(self, call: Call, values: Sequence[int]) -> MissError:
        """Return the error for a call for which :meth:`find` has just returned None; it names the
        nearest entry.
        """
        address, surroundings = self._here()
        structure = self._structure(call)
        asked = Asked(self._name, sources_of(call), values, call.paths, structure, self._differs)
        return miss_error(asked, self._all(address), self._elsewhere(address), dict(surroundings))

    @contextlib.contextmanager
    def keeping_all(self) -> Iterator[None]:
        """Keep all entries that are stored inside the block, however many the function has."""
        here = self._folder()
        with contextlib.nullcontext() if here is None else here.keeping_all():
            yield

    def certificates(self) -> list[CertificateRecord]:
        """Yield the certificates of this function, each proven again from the existing entries.

        Raises:
            MissError: one cannot be; the message says which sizes, or which entry, are missing.
        """
        here = self._folder()
        found: list[CertificateRecord] = []
        for kept, record in (
            () if here is None else certificate_records(here, self._addresses.among(environment()))
        ):
            assert here is not None
            if isinstance(record, EntryError):
                raise MissError(
                    f"the certificate {kept.digest[:12]} of {here!r} cannot be used: {record}; "
                    f"{BAKE}"
                )
            proof = prove_again(here, record)
            if not proof:
                missing = {} if proof.counterexample is None else record.point(proof.counterexample)
                raise MissError(
                    f"{here!r} is no longer closed: {why_not(here, record, proof)}; {BAKE}", missing
                )
            events.emit(
                events.Certified(self._name, record.text(), len(record.entries), proof.parts)
            )
            found.append(record)
        return found

    def certify(
        self, call: Call, policies: Mapping[Source, Dim | Policy]
    ) -> tuple[CertificateRecord, Certificate]:
        """Prove that the entries of the store's folder serve all that was declared.

        A proof is stored beside the entries; certificates that no longer hold are removed.

        Args:
            call: an example, under the modes of the present.
            policies: what was declared of its integers.

        Raises:
            NotCertifiable: what was declared cannot be put into conditions on integers, or the
                store is no folder.
            NotStorable: an argument has no words.
            OSError: the certificate cannot be written.
        """
        here = self._folder()
        if here is None:
            raise NotCertifiable(
                "a certificate is stored in a folder, and this store is not a folder"
            )
        address, structure = self._addresses.among(environment()), structure_to_json(call, modes())
        sources = sources_of(call)
        contract = contract_of(sources, values_of(call.leaves, call.keys), policies)
        entries = entries_for(here, address, structure)
        if any(each.asks_for_numbers for each in entries.values()):
            raise NotCertifiable(
                "the program branches on numbers in tensors, which a proof about sizes does not "
                "cover"
            )
        proof = certified(contract, sources, entries.values())
        record = CertificateRecord(
            self._name, address, structure, tuple(sources), contract, tuple(sorted(entries))
        )
        if proof:
            store_certificate(here, record)
        for kept, other in certificate_records(here, address):
            if isinstance(other, EntryError) or not prove_again(here, other):
                here.remove(kept.address, kept.digest, CERTIFICATE)
        return record, proof

    def content_of(self, program: Program, call: Call) -> bytes:
        """Return a program as an entry; the existing entry if the program was loaded from one or
        stored as one.

        Raises:
            NotStorable: it cannot be one.
        """
        address, surroundings = self._here()
        digest = self._digests_of.get(program)
        if digest is not None:
            with contextlib.suppress(OSError):
                return self._store.read(address, digest)
        return to_bytes(program, self._fn, call, address, surroundings)

    def program_of(self, content: bytes, call: Call, values: Sequence[int]) -> Program | None:
        """Return the program of an entry from elsewhere; None if it is for other calls, or for
        another device.

        Raises:
            Differs: something that it read is another here.
            EntryError: it is no entry.
        """
        stored = read_header(content)
        theirs, mine = stored.header["structure"], structure_to_json(call, modes())
        if text_of(with_own_devices(theirs)) != text_of(with_own_devices(mine)):
            return None
        if text_of(stored.header["environment"]) != text_of(dict(environment())):
            raise Differs("the version of Python, torch or symshape, or a flag of torch's,")
        if text_of(theirs) != text_of(mine):
            EntryBody(attrs.evolve(stored, body=moved(stored.body, theirs, mine))).compare(
                self._fn, call.leaves
            )
            return None
        read = EntryBody(stored)
        return read.program(self._fn, call, modes()) if read.admits(values) else None

    @between_traces
    def identity(self, call: Call) -> dict[str, Any]:
        """Return the data that ranks compare before they compile: name and code of the function,
        and its arguments.
        """
        forward = getattr(self._fn, "forward", self._fn)
        code = getattr(getattr(forward, "__func__", forward), "__code__", None)
        structure = structure_to_json(call, modes())
        return {
            "name": self._addresses.name,
            "code": code and code_digest(code),
            "structure": structure,
            "paths": call.paths,
        }

    def changing(self, call: Call, values: Sequence[int]) -> list[Source]:
        """Return the integers of a call that other processes saw change, even if the program has
        changed since.
        """
        address, surroundings = self._here()
        sources = sources_of(call)
        found: set[int] = set()
        structure = self._structure(call)
        if structure is None:
            return []
        wanted = text_of(structure)
        for digest in self._digests(address):
            try:
                entry = self._fitting(address, digest, wanted, surroundings)
            except (EntryError, OSError):
                continue
            if entry is None or len(entry.slots) != len(values):
                continue
            for position, (term, value) in enumerate(zip(entry.slots, values, strict=True)):
                if term.op is not Op.CONST or term.value != value:
                    found.add(position)
        return [
            sources[position]
            for position in sorted(found)
            if not isinstance(sources[position], IntArg)
        ]

    def varying_floats(self, call: Call) -> list[int]:
        """Return the float leaves of a call that a stored program for calls like it reads at run
        time.
        """
        if not any(type(each) is float for each in call.leaves):
            return []
        address, _ = self._here()
        mine = self._structure(call)
        if mine is None:
            return []
        for digest in self._digests(address):
            with contextlib.suppress(EntryError, OSError, TypeError, KeyError, AttributeError):
                theirs = json.loads(self._known(address, digest)[1])
                if found := varying_floats(call, mine, theirs):
                    return found
        return []

    def keep(self, program: Program, call: Call) -> None:
        """Store a program that was just traced for the call; report why if it cannot be stored."""
        address, surroundings = self._here()
        try:
            refuse_control_flow(program)
            content = to_bytes(program, self._fn, call, address, surroundings)
            if not program.state.unchanged():
                raise NotStorable("the state that it read changed before it was stored")
        except NotStorable as error:
            events.emit(events.NotStored(self._name, str(error)))
            return
        try:
            digest = self._store.write(address, content)
        except OSError as error:
            self._tell(f"could not be written: {error}")
            return
        self._digests_of[program] = digest
        here = self._folder()
        if here is not None and here.sources is not None:
            cache_digest(here.sources)
        events.emit(events.Stored(self._name, digest, len(content)))

    def shelf(self, program: Program) -> ArtefactShelf | None:
        """Return the shelf for compiled code of a program: beside its entry, if it has one."""
        digest = self._digests_of.get(program)
        return None if digest is None else shelf_of(self._store, digest)

    # -- inside
    def _here(self) -> tuple[str, Mapping[str, Any]]:
        """Return the function's address in the present environment, and the environment."""
        surroundings = environment()
        return self._addresses.among(surroundings), surroundings

    def _structure(self, call: Call) -> Any:
        """Return the structure of a call under the present modes; None where it has no words."""
        try:
            return structure_to_json(call, modes())
        except NotStorable:
            return None

    def _folder(self) -> DiskStore | None:
        """Return the store's folder on this machine's disk."""
        here = getattr(self._store, "local", self._store)
        return here if isinstance(here, DiskStore) else None

    def _all(self, address: str) -> Iterator[StoredEntry]:
        """Yield the readable entries for an address."""
        for digest in self._digests(address):
            with contextlib.suppress(EntryError, OSError):
                yield read_header(self._store.read(address, digest), digest)

    def _elsewhere(self, address: str) -> Iterator[StoredEntry]:
        """Yield the entries on this machine's disk for all other addresses."""
        here = self._folder()
        for each in () if here is None else here.all():
            if each.address != address and here is not None:
                with contextlib.suppress(EntryError, OSError):
                    yield read_header(here.read(each.address, each.digest), each.digest)

    def _candidates(self, address: str) -> Iterator[str]:
        """Yield the entries for an address: first those that were read ahead, then those of the
        store.
        """
        ahead = [each for each in list(self._ahead) if each not in self._wrong]
        yield from ahead
        yield from (each for each in self._digests(address) if each not in ahead)

    def _digests(self, address: str) -> list[str]:
        try:
            return [each for each in self._store.digests(address) if each not in self._wrong]
        except OSError as error:
            self._tell(f"could not be read: {error}")
            return []

    def _known(self, address: str, digest: str) -> tuple[StoredEntry, str]:
        """Return an entry, and the text of the structure of its calls."""
        with self._lock:
            known = self._read.get(digest)
        if known is None:
            stored = read_header(self._store.read(address, digest), digest)
            known = stored, text_of(stored.header["structure"])
            with self._lock:
                if len(self._read) >= _MOST_READ:
                    self._read.clear()
                self._read[digest] = known
        return known

    def _fitting(
        self, address: str, digest: str, structure: str, surroundings: Mapping[str, Any]
    ) -> EntryBody | None:
        """Return an entry for calls of this structure; None if it is for others."""
        stored, for_calls = self._known(address, digest)
        if for_calls != structure or stored.header["address"] != address:
            return None
        if stored.header["environment"] != surroundings:
            return None
        ahead = self._ahead.get(digest)
        return EntryBody(stored) if ahead is None else ahead[0]

    def _built(self, digest: str) -> BuiltEntry | None:
        """Return the parts of an entry that were built before the first call, for one program, if
        they still hold.
        """
        _, built = self._ahead.pop(digest, (None, None))
        return built if built is not None and built.state.unchanged() and built.holds() else None

    def _is_wrong(self, address: str, digest: str, error: EntryError) -> None:
        self._wrong.add(digest)
        self._tell(f"has an entry that cannot be used ({digest[:12]}): {error}")
        if "damaged" in str(error):
            self._store.remove(address, digest)

    def _tell(self, what: str) -> None:
        if what not in self._told and len(self._told) < _MOST_READ:
            self._told.add(what)
            events.emit(events.StoreFailed(repr(self._store), what))


# -- Addresses of a function's entries: from its name, the options of its traces, and the
# environment.
class Addresses:
    """The addresses of one compiled function.

    Args:
        fn: the function.
        said: what the caller said of its traces.

    Attributes:
        name: module and qualified name.
    """

    def __init__(self, fn: Callable[..., Any], said: Sequence[Any]) -> None:
        self.name = _named(fn)
        self._is = [self.name, list(said)]
        self._last: tuple[Mapping[str, Any], str] | None = None

    def among(self, surroundings: Mapping[str, Any]) -> str:
        """Return the address in an environment (``environment.environment``)."""
        known = self._last
        if known is None or known[0] != surroundings:
            address = hashlib.sha256(text_of([self._is, surroundings]).encode()).hexdigest()[:32]
            known = self._last = surroundings, address
        return known[1]


def text_of(data: Any) -> str:
    """Return data as JSON in one canonical form."""
    return json.dumps(data, sort_keys=True)


def _named(fn: Callable[..., Any]) -> list[str]:
    """Return the names of a function, for a look-up; its code and all that it reads are compared
    later.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    kind: Any = (
        type(fn) if isinstance(fn, torch.nn.Module) or not hasattr(fn, "__qualname__") else fn
    )
    return [str(getattr(kind, "__module__", "")), str(kind.__qualname__)]
