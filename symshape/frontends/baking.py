"""Baking: a store filled before it is needed, with programs for recorded traffic or for all
declared sizes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch

from guards.sets.sources import IntArg, Size, Source
from symshape import events
from symshape.calls.arguments import INT_KEY, Call, TensorKey, flatten_call, layout_of, sources_of
from symshape.calls.policies import Dynamic, policies
from symshape.dims import Dim, Policy
from symshape.errors import InputError, MissError, SymShapeError
from symshape.exploring.progress import progress_bar
from symshape.exploring.tables import Table, table_html, table_text
from symshape.frontends.compiled import Compiled
from symshape.frontends.stored_programs import StoredPrograms
from symshape.options import Options, options_of
from symshape.planning.traffic import Traffic
from symshape.store.certificates import NotCertifiable
from symshape.store.store_errors import NotStorable
from symshape.user_code import name_of

MODES: Mapping[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "grad": torch.enable_grad,
}
"""The torch mode in which calls are made, by name."""

_Point = Mapping[Source, int]
"""The integers of a call that differ from the example's, by source."""


@attrs.frozen
class Unserved:
    """A call that the store does not serve.

    Attributes:
        mode: the torch mode of the call.
        sizes: its sizes, by the name of their ``Dim``, or by where they are read.
        reason: the reason, a sentence.
    """

    mode: str
    sizes: Mapping[str, int]
    reason: str


@attrs.frozen
class Proof:
    """The result of a proof that the store serves all declared sizes, in one torch mode.

    Attributes:
        mode: the torch mode.
        closed: True with a proof, False with sizes that no entry serves, None where neither was
            found.
        contract: the declared sizes, in words.
        missing: sizes that no entry serves, by the name of their ``Dim`` or by where they are read.
        reason: the reason, a sentence.
    """

    mode: str
    closed: bool | None
    contract: str
    missing: Mapping[str, int]
    reason: str


@attrs.frozen
class Baked:
    """The result of :func:`bake`.

    Attributes:
        function: the name of the baked function.
        store: the store.
        asked: how many calls the traffic requests; each combination of sizes and mode counts once.
        traced: programs that were traced; the others were stored already.
        added: sizes beyond the traffic that were traced to close the store.
        unserved: calls that the store does not serve.
        proofs: for each mode, whether all declared sizes are served.
    """

    function: str
    store: str
    asked: int
    traced: int
    added: tuple[Mapping[str, int], ...]
    unserved: tuple[Unserved, ...]
    proofs: tuple[Proof, ...]

    @property
    def complete(self) -> bool:
        """Return whether every requested call is served."""
        return not self.unserved

    @property
    def closed(self) -> bool:
        """Return whether all declared sizes are served in every mode: no call with such sizes can
        miss.
        """
        return bool(self.proofs) and all(each.closed for each in self.proofs)

    def table(self) -> Table:
        """Return a table with one row for each result."""
        rows = [
            ("calls served", f"{self.asked - len(self.unserved)} of {self.asked}"),
            ("traced", str(self.traced)),
        ]
        rows += [("traced to close it", _shown(each)) for each in self.added]
        rows += [
            ("not served", f"{_shown(each.sizes)} ({each.mode}): {each.reason}")
            for each in self.unserved
        ]
        for each in self.proofs:
            rows.append(
                (
                    f"closed for {each.mode}",
                    f"{_answer(each.closed)}: {each.reason} ({each.contract})",
                )
            )
        return Table(f"{self.function} in {self.store}", ("what", "which"), tuple(rows))

    def __str__(self) -> str:
        return table_text(self.table())

    def _repr_html_(self) -> str:
        return table_html(self.table())


def bake(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: Dynamic = None,
    traffic: Traffic | None = None,
    store: Any = True,
    modes: Sequence[str] = ("no_grad",),
    certify: bool = False,
    most: int = 64,
    options: Options | Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Baked:
    """Trace and store every program that later calls need, so that a serving process traces
    nothing.

    Nothing runs: calls are an example's with other sizes.  The programs are then looked up as
    another process would. Where ``dynamic`` declares sizes (:class:`symshape.Dim`), a proof says
    whether a call of such sizes can miss; it is stored, too, and proven again by ``compile(fn,
    store=..., options={"on_miss": "error"})``.

    Args:
        fn: a function or a module, as it will be compiled.
        args: the arguments of an example call; tensors whose sizes vary are contiguous.
        kwargs: the keyword arguments of the example call.
        dynamic: the ``dynamic`` of the later ``symshape.compile``: programs are found only with the
            same one.
        traffic: the sizes of calls, by the names that ``dynamic`` gives them; the example's alone
            if not given.
        store: a folder, ``True`` for this user's, or a store.
        modes: the torch modes of later calls: ``no_grad``, ``inference``, ``grad``.
        certify: also trace declared sizes that are not served, until the proof succeeds.
        most: the greatest number of entries that may be traced.
        options: the options of the later ``symshape.compile``.
        progress: show a progress bar (needs the extra ``cli``).

    Raises:
        InputError: the traffic has a size that ``dynamic`` does not name, a mode is unknown, or the
            example is unfit, or the store is none.
        DimError, ConstraintViolation: ``dynamic`` does not fit the example or the program.

    >>> import tempfile, torch, symshape
    >>> def halves(x):
    ...     return x.view(2, -1) if x.shape[0] % 2 == 0 else x[1:].view(2, -1)
    >>> traffic = symshape.Traffic.of([4, 6], ("n",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     words = {"dynamic": {"x": {0: symshape.Dim("n", min=2, max=64)}}, "store": folder}
    ...     baked = symshape.bake(halves, (torch.ones(4),), traffic=traffic, **words)
    ...     closed = symshape.bake(halves, (torch.ones(4),), traffic=traffic, certify=True, **words)
    >>> baked.complete, baked.closed, baked.traced, baked.proofs[0].missing["n"] % 2
    (True, False, 1, 1)
    >>> closed.closed, closed.traced
    (True, 1)
    """
    unknown = [each for each in modes if each not in MODES]
    if unknown or not modes:
        raise InputError(
            f"modes are some of {', '.join(MODES)}, not {unknown[0] if unknown else 'none'!r}"
        )
    if not isinstance(args, (tuple, list)):
        raise InputError(
            "args must be a tuple of the example's arguments, such as (x,), not a "
            f"{type(args).__name__}"
        )
    if traffic is not None and not isinstance(traffic, Traffic):
        raise InputError(
            "traffic must be a symshape.Traffic, such as Traffic.of([3, 5], ('n',)), not "
            f"{traffic!r}"
        )
    chosen = attrs.evolve(options_of(options), store=store)
    example = flatten_call(fn, tuple(args), dict(kwargs or {}))
    baking = _Baking(fn, chosen, dynamic, example, most)
    points = baking.points(traffic)
    work = [(mode, point) for mode in modes for point in points]
    with baking.all_stored(), progress_bar("baking", len(work), shown=progress) as step:
        for mode, point in work:
            step(_shown(baking.named(point)))
            baking.trace(mode, point)
        proofs = [baking.prove(mode, certify) for mode in modes]
    unserved = baking.unserved(work)
    return Baked(
        name_of(fn),
        str(store),
        len(work),
        baking.traced,
        tuple(baking.added),
        unserved,
        tuple(proofs),
    )


class _Baking:
    """The programs of one store while it is baked."""

    def __init__(
        self, fn: Any, options: Options, dynamic: Dynamic, example: Call, most: int
    ) -> None:
        if example.has_records:
            raise InputError(
                "a call with an object argument that is flattened into its attributes (a model's "
                "cache) cannot be stored; call it without that object"
            )
        self._fn, self._options, self._dynamic = fn, attrs.evolve(options, on_miss="trace"), dynamic
        self._example, self._most = example, most
        self._policies = policies(fn, example, dynamic, Policy.STATIC)
        self._failed: dict[tuple[str, frozenset[tuple[Source, int]]], str] = {}
        self._not_stored = ""
        self._compiled = self._fresh(self._options)
        source = self._compiled._source
        if not isinstance(source, StoredPrograms):
            raise InputError(f"bake fills a folder or another store, not {options.store!r}")
        self._entries = source.entries
        self.added: list[Mapping[str, int]] = []

    def _fresh(self, options: Options) -> Compiled:
        return Compiled(self._fn, self._dynamic, "eager", options, fullgraph=True)

    @property
    def traced(self) -> int:
        """Return how many programs were traced."""
        return self._compiled.stats().traces

    @contextlib.contextmanager
    def all_stored(self) -> Iterator[None]:
        """Store all programs inside the block, and record why some cannot be stored."""

        def hear(event: events.Event) -> None:
            if isinstance(event, events.NotStored) and event.function == name_of(self._fn):
                self._not_stored = event.reason

        unsubscribe = events.subscribe(hear)
        try:
            with self._entries.keeping_all():
                yield
        finally:
            unsubscribe()

    # -- sizes
    def points(self, traffic: Traffic | None) -> list[_Point]:
        """Return the calls that traffic requests, the most frequent first.

        Raises:
            InputError: the traffic has sizes that ``dynamic`` does not name.
        """
        if traffic is None:
            return [{}]
        places = self._places()
        unknown = [name for name in traffic.symbols if name not in places]
        if unknown:
            raise InputError(
                f"the traffic has sizes of {unknown[0]!r}, but dynamic names "
                f"{', '.join(places) or 'none'}: "
                f"name one so (a Dim; on the command line --dynamic ARG.DIM={unknown[0]})"
            )
        counts = sorted(traffic.counts.items(), key=lambda item: -item[1])
        return [
            {
                source: size
                for name, size in zip(traffic.symbols, point, strict=True)
                for source in places[name]
            }
            for point, _ in counts
        ]

    def _places(self) -> dict[str, list[Source]]:
        found: dict[str, list[Source]] = {}
        for source, policy in self._policies.items():
            if isinstance(policy, Dim):
                found.setdefault(policy.name, []).append(source)
        return found

    def named(self, point: _Point) -> dict[str, int]:
        """Return the sizes of a call by the names that their user gave them."""
        found = {}
        for source in sources_of(self._example):
            policy = self._policies.get(source, Policy.STATIC)
            if source in point:
                found[policy.name if isinstance(policy, Dim) else source.text()] = point[source]
        return found

    def _call(self, point: _Point) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the example with other sizes.

        Raises:
            InputError: a tensor is not contiguous, or there is no memory for one.
        """
        call = self._example
        leaves: list[Any] = []
        for position, (leaf, key, path) in enumerate(
            zip(call.leaves, call.keys, call.paths, strict=True)
        ):
            if call.duplicates[position] != position:
                leaves.append(leaves[call.duplicates[position]])
            elif isinstance(key, TensorKey):
                shape = tuple(
                    point.get(Size(path, dim), size) for dim, size in enumerate(leaf.shape)
                )
                leaves.append(_resized(leaf, key, shape, path))
            else:
                leaves.append(point.get(IntArg(path), leaf) if key is INT_KEY else leaf)
        args, kwargs, _ = call.nest(leaves)
        return tuple(args), dict(kwargs)

    # -- programs
    def trace(self, mode: str, point: _Point) -> bool:
        """Trace and store a program for a call; return whether there is one."""
        try:
            args, kwargs = self._call(point)
            with MODES[mode]():
                self._compiled._dispatcher.entry_of(args, kwargs)  # loaded, or traced and stored
        except SymShapeError as error:
            self._failed[mode, frozenset(point.items())] = str(error).partition("\n")[0]
            return False
        return True

    def _why(self, mode: str, point: _Point, otherwise: str) -> str:
        """Return why there is no entry for a call."""
        found = self._failed.get((mode, frozenset(point.items())))
        return found or (
            f"a program cannot be stored: {self._not_stored}" if self._not_stored else otherwise
        )

    def prove(self, mode: str, close: bool) -> Proof:
        """Return whether all declared sizes are served; with ``close``, trace sizes that are not
        served first.
        """
        tried: set[frozenset[tuple[Source, int]]] = set()
        while True:
            try:
                args, kwargs = self._call({})
                with MODES[mode]():
                    record, proof = self._entries.certify(
                        flatten_call(self._fn, args, kwargs), self._policies
                    )
            except (NotCertifiable, NotStorable, OSError) as error:
                return Proof(mode, None, "", {}, f"not known: {error}")
            missing = {} if proof.counterexample is None else record.point(proof.counterexample)
            point = {
                each: missing[each.text()] for each in self._varying() if each.text() in missing
            }
            named, reason = self.named(point), proof.reason
            if proof.covered is False:
                reason = f"no entry serves {_shown(named)}"
                if close and self.traced >= self._most:
                    reason += f"; {self.traced} programs were traced, and most={self._most}"
                elif close and frozenset(point.items()) not in tried and self.trace(mode, point):
                    tried.add(frozenset(point.items()))
                    self.added.append(named)
                    continue
                elif close:
                    why = self._why(
                        mode, point, "the program traced for these sizes does not serve them"
                    )
                    reason += f": {why}; if no such call comes, declare a narrower Dim"
            return Proof(mode, proof.covered, record.text(), named, reason)

    def _varying(self) -> Iterable[Source]:
        return (
            each
            for each in sources_of(self._example)
            if self._policies.get(each, Policy.STATIC) is not Policy.STATIC
        )

    def unserved(self, work: Sequence[tuple[str, _Point]]) -> tuple[Unserved, ...]:
        """Return the calls that another process would miss, looked up as that process would."""
        reader = self._fresh(attrs.evolve(self._options, on_miss="error"))
        found = []
        for mode, point in work:
            try:
                args, kwargs = self._call(point)
                with MODES[mode]():
                    reader._dispatcher.entry_of(args, kwargs)
            except MissError as error:
                found.append(Unserved(mode, self.named(point), self._why(mode, point, str(error))))
            except SymShapeError as error:
                found.append(Unserved(mode, self.named(point), str(error).partition("\n")[0]))
        return tuple(found)


def _resized(
    tensor: torch.Tensor, key: TensorKey, shape: tuple[int, ...], path: str
) -> torch.Tensor:
    """Return a tensor like one of the example's with another shape; its values are never read."""
    if shape == tuple(tensor.shape):
        return tensor
    if layout_of(tensor) != "contiguous":
        raise InputError(
            f"{path} is not contiguous in the example call, so its strides at {shape} are not "
            "known; pass a contiguous tensor"
        )
    try:
        made = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    except RuntimeError as error:
        raise InputError(
            f"{path} of sizes {shape} cannot be made here: {str(error).partition(chr(10))[0]}"
        ) from error
    if key.kind is torch.nn.Parameter:
        return torch.nn.Parameter(made, requires_grad=key.requires_grad)
    return made.requires_grad_(key.requires_grad)


def _shown(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items()) or "the example's sizes"


def _answer(closed: bool | None) -> str:
    return "not known" if closed is None else "yes" if closed else "no"
