"""The function ``symshape.audit_padding``: whether padding changes a program's outputs, and where
it leaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch

from guards.terms.term import Term
from symshape.auditing.domain import (
    ANYTHING,
    FINITE,
    LOW,
    Abstract,
    Cause,
    Coordinate,
    Region,
    Slot,
    Tag,
)
from symshape.auditing.interpreter import Interpretation
from symshape.auditing.poison import (
    INFINITE,
    ORDINARY,
    Difference,
    difference,
    poisoned,
    poisons,
    positions_of_regions,
    positions_of_sizes,
    run,
)
from symshape.auditing.report import LEAKS, PROVEN, UNKNOWN, OutputAudit, PaddingAudit, Step
from symshape.auditing.request import Request, Valid, read_request
from symshape.auditing.world import World, size_of
from symshape.calls.questions import DATA
from symshape.errors import InternalError
from symshape.exploring.tables import output_leaves
from symshape.frontends.trace import trace
from symshape.graph.float_terms import FloatTerm
from symshape.graph.program import Program
from symshape.graph.steps import Node, Value


def audit_padding(
    model: Callable[..., Any],
    example: Any,
    padded: Mapping[str, Mapping[int, str]],
    valid: Valid | Mapping[str, Valid],
    *,
    fixed: Mapping[str, float] | None = None,
    padding: str = "finite",
    side: str | None = None,
) -> PaddingAudit:
    """Return for each output of a model whether padding changes it at its valid positions, and
    where padding leaks.

    Each output has one of three verdicts:

    - ``proven``: no content of the padding changes the output at its valid positions, for all sizes
      within the guards. The proof follows the mask through the traced program.  It is checked by
      running the example with other padding.
    - ``leaks``: two paddings gave different outputs.  The report has the op, your line, the path
      from the padding, the counterexample and, where a rule knows one, the repair.
    - ``unknown``: there is no proof, and no padding that was run changed the output.  The report
      names the op.

    The report is about the content of padding, at equal sizes and an equal mask.  Another amount of
    padding is another size: ``(x * mask).mean(1)`` is proven, because the content of the padding
    does not matter.

    Args:
        model: a function or an ``nn.Module``.
        example: an example call with some padding: a mapping from argument names to values, or
            positional arguments.
        padded: for each argument with padding, the padded dimensions and the name of their size.
            The mask may be among them: its own padding stays as it is.
        valid: which positions are valid: the name of a mask among the arguments (0 or minus
            infinity at padding; ``"~name"`` for one that is true at padding), of a vector of
            lengths, or a function of the arguments.  A mapping from the names of the sizes gives
            each its own.
        fixed: the numbers that arguments always hold at padding, as ``{"labels": -100}``.  They get
            no other padding.
        padding: ``finite``: padding holds finite numbers; ``anything``: infinities and NaN too.
        side: ``right``, ``left`` or ``any``: where rows have their padding.  Without it, as in the
            example.

    A proof may need assumptions, which the report lists.  ``0 * x`` is 0 only for a finite ``x``.
    A score plus -1e9 has the weight 0 only beside scores that are small.  The report lists what
    breaks a proof outside its assumptions.

    Raises:
        InputError: the request does not fit the example, or the example has no padding.
        InternalError: a proof and a run disagree: a defect of symshape.

    Other errors are those of :func:`symshape.trace`.

    >>> import torch, symshape
    >>> def mean(x, mask):
    ...     return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    >>> x = torch.arange(24.0).view(2, 4, 3)
    >>> mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    >>> request = {"padded": {"x": {1: "length"}}, "valid": "mask"}
    >>> symshape.audit_padding(mean, {"x": x, "mask": mask}, **request)["result"].verdict
    'proven'
    >>> found = symshape.audit_padding(lambda x, mask: x.mean(1), {"x": x, "mask": mask}, **request)
    >>> found["result"].verdict, found["result"].step.op, found["result"].repair
    ('leaks', 'aten.mean.dim', 'divide the sum of x * mask by the sum of the mask')
    """
    request = read_request(model, example, padded, valid, fixed, padding, side)
    args, kwargs = request.call(request.arguments)
    program = trace(model, *args, dynamic=request.dynamic(), **kwargs).program
    return _Audit(request, program).report()


@attrs.frozen(eq=False)
class _Output:
    """An output: its name, the value that the program returns there, and that value's abstract
    tensor.
    """

    name: str
    leaf: Any
    state: Abstract | None


class _Audit:
    """An audit: the proof, and the runs that check it."""

    def __init__(self, request: Request, program: Program) -> None:
        self._request = request
        self._program = program
        self._rows: Any = None
        sides = [group.side for group in request.groups]
        self._world = World(
            program, self._lengths(), sides, [group.filled for group in request.groups]
        )
        inputs = {each.value: self._input(each.path, each.value) for each in program.graph.inputs}
        self._found = Interpretation(self._world, program, inputs)
        written = {id(value) for value in program.graph.mutated}
        self._lifted = [
            each for each in program.graph.lifted if id(each.value) in written and not each.constant
        ]
        self._outputs = list(self._named_outputs())
        self._runs = 0

    # -- the arguments

    def _lengths(self) -> list[Any]:
        sizes = {each.path: each.value.spec.sizes for each in self._program.graph.inputs}
        found = []
        for group in self._request.groups:
            name, dims = next((name, dims) for name, dims in group.dims.items() if name in sizes)
            found.append(size_of(sizes[name][dims[-1]]))
            if len(dims) == 2:
                self._rows = size_of(sizes[name][dims[0]])
        return found

    def _input(self, path: str, value: Value) -> Abstract:
        """Return the abstract tensor of an argument."""
        world = self._world
        dims = world.slot_dims(value.spec.sizes)
        found = Abstract(dims, level=self._level(path, value))
        for number, group in enumerate(self._request.groups):
            if path in group.dims:
                region = Region(number, tuple(_coordinate(dims[i]) for i in group.dims[path]))
                if path in self._request.fixed:
                    found = found.with_(
                        facts={**found.facts, region: float(self._request.fixed[path])}
                    )
                else:
                    found = found.with_(dirty=found.dirty | {region})
            if path == group.source:
                found = self._mask(number, found, value)
        return self._world.settled(found)

    def _level(self, path: str, value: Value) -> int:
        """Return the level of an argument: by the request if it is padded, else by the example."""
        if not value.spec.dtype.is_floating_point:
            return FINITE
        if any(path in group.dims for group in self._request.groups):
            return ANYTHING if self._request.anything else FINITE
        given = self._request.arguments.get(path)
        if not isinstance(given, torch.Tensor):
            return FINITE
        odd = given[~torch.isfinite(given)]
        return FINITE if not odd.numel() else LOW if bool((odd == -torch.inf).all()) else ANYTHING

    def _mask(self, number: int, x: Abstract, value: Value) -> Abstract:
        group = self._request.groups[number]
        dims = x.dims
        if group.kind == "lengths":
            return x.with_(tag=Tag("count", (_coordinate(dims[0]),), number), low=0.0)
        places = [0, len(dims) - 1] if group.valid.dim() == 2 else [len(dims) - 1]
        region = Region(number, tuple(_coordinate(dims[i]) for i in places))
        rest = group.valid_number
        low = -float("inf") if rest is None else rest
        return x.with_(facts={region: group.padding_number}, rest=rest, level=FINITE, low=low)

    # -- outputs

    def _named_outputs(self) -> Iterator[_Output]:
        names = [name for name, _ in output_leaves(self._program)]
        leaves = self._program.graph.outputs[: len(names)]
        for name, leaf in zip(names, leaves, strict=True):
            yield _Output(name, leaf, self._found.states[leaf] if isinstance(leaf, Value) else None)
        for lifted in self._lifted:
            yield _Output(
                f"{lifted.name} (written)", lifted.value, self._found.states[lifted.value]
            )

    def _cause(self, output: _Output) -> Cause | None:
        """Return why an output is not proven; None if it is."""
        if any(question.what == DATA for question in self._program.questions):
            return Cause(None, "the program asks what numbers its arguments hold", known=False)
        if self._found.branches:
            return attrs.evolve(
                self._found.branches[0], reason="the program checks data that depends on padding"
            )
        if output.state is None:
            if isinstance(output.leaf, (Term, FloatTerm)):
                symbols = (
                    output.leaf.symbols if isinstance(output.leaf, Term) else output.leaf.symbols()
                )
                return next(
                    (self._found.numbers[s.name] for s in symbols if s.name in self._found.numbers),
                    None,
                )
            return None
        for region in output.state.dirty:
            plain = region.group >= 0 and all(each.through is None for each in region.coordinates)
            if not plain:
                return output.state.cause or Cause(
                    None, "it is taken from a position that may be padding"
                )
            if not self._own_position(region):
                return Cause(None, "valid positions depend on neighbours that may be padding")
        return None

    def _own_position(self, region: Region) -> bool:
        """Return whether a region lies within the padding of the output itself, where it is as long
        as the mask.
        """
        last = region.coordinates[-1]
        assert last.slot is not None
        if not self._world.same(last.slot.size, self._world.lengths[region.group]):
            return True  # a slice, whose positions the region names
        own = Region(region.group, (*region.coordinates[:-1], attrs.evolve(last, offset=0)))
        return self._world.implies(region, own)

    # -- runs

    def report(self) -> PaddingAudit:
        """Run the example with other padding, and report."""
        tensors = [each.tensor for each in self._lifted]
        before = run(self._request, self._request.arguments, tensors)
        if len(before) != len(self._outputs):
            raise InternalError(
                f"{len(before)} outputs were run, but {len(self._outputs)} were traced"
            )
        again = run(self._request, self._request.arguments, tensors)
        found: list[list[Difference]] = [[] for _ in self._outputs]
        counted = [
            self._counted(each, value) for each, value in zip(self._outputs, before, strict=True)
        ]
        notes = self._notes()
        for number, poison in enumerate(poisons()):
            arguments = poisoned(self._request, poison, number)
            if arguments is None:
                continue
            try:
                after = run(self._request, arguments, tensors)
            except (RuntimeError, IndexError, ValueError) as error:
                notes.append(
                    f"with {poison.name} in the padding the model raises {type(error).__name__}: "
                    f"{error}"
                )
                continue
            self._runs += 1
            for i, where in enumerate(counted):
                made = difference(before[i], after[i], where, poison)
                if made is not None and difference(before[i], again[i], where, poison) is None:
                    found[i].append(made)
        verdicts = tuple(
            self._verdict(each, differences)
            for each, differences in zip(self._outputs, found, strict=True)
        )
        guards = tuple(guard.text() for guard in self._program.guards)
        return PaddingAudit(
            self._program.name, verdicts, self._assumed(), tuple(notes), guards, self._runs
        )

    def _counted(self, output: _Output, value: Any) -> torch.Tensor | None:
        """Return the positions at which an output is compared; None for all."""
        if output.state is None or not isinstance(value, torch.Tensor):
            return None
        if self._cause(output) is None:
            return positions_of_regions(self._request, output.state, value.shape, self._program)
        return positions_of_sizes(
            self._request, self._world, output.leaf.spec.sizes, value.shape, self._rows
        )

    def _verdict(self, output: _Output, differences: Sequence[Difference]) -> OutputAudit:
        cause = self._cause(output)
        assumes = tuple(sorted(output.state.assumes)) if output.state is not None else ()
        asked = [each for each in differences if self._request.anything or each.kind != INFINITE]
        if cause is None:
            contradicted = [each for each in differences if not assumes or each.kind == ORDINARY]
            if contradicted:
                raise InternalError(
                    f"audit_padding proved that padding cannot change {output.name} of "
                    f"{self._program.name}, but {contradicted[0]}; this is a defect of symshape"
                )
            where = self._where(output)
            return OutputAudit(
                output.name, PROVEN, where, assumes, breaks=differences[0] if differences else None
            )
        step, path = self._step(cause), self._path(output, cause)
        seen = asked[0] if asked else None
        verdict = LEAKS if seen is not None else UNKNOWN
        reason = cause.reason or "padding spreads"
        if seen is None and cause.known:
            reason += " (but no finite padding that was run changed the output)"
        breaks = differences[0] if differences and seen is None else None
        return OutputAudit(
            output.name, verdict, "", (), step, reason, cause.repair, path, seen, breaks
        )

    # -- words

    def _where(self, output: _Output) -> str:
        if output.state is None:
            return ""
        texts = []
        for region in output.state.dirty:
            group = self._request.groups[region.group]
            parts = []
            for each in region.coordinates:
                if each.slot is None:
                    parts.append(str(each.offset))
                    continue
                place = next(i for i, dim in enumerate(output.state.dims) if each.slot in dim)
                merged = len(output.state.dims[place]) > 1
                parts.append(
                    f"i{place}{'*' if merged else ''}"
                    + (f"{each.offset:+d}" if each.offset else "")
                )
            texts.append(f"{group.source or group.name}[{', '.join(parts)}]")
        texts.sort()
        return (
            f"where {' and '.join(texts)} {'is' if len(texts) == 1 else 'are'} valid"
            if texts
            else ""
        )

    def _assumed(self) -> tuple[str, ...]:
        found = []
        for group in self._request.groups:
            if group.side != "any":
                found.append(f"padding in {group.name} is on the {group.side} of each row")
            if group.filled:
                found.append(f"each row of {group.name} has a valid position")
            if group.kind == "mask":
                held = (
                    "" if group.valid_number is None else f" and {group.valid_number:g} elsewhere"
                )
                found.append(f"{group.source} holds {group.padding_number:g} at padding{held}")
        found += [
            f"{name} holds {value:g} at padding" for name, value in self._request.fixed.items()
        ]
        return tuple(found)

    def _notes(self) -> list[str]:
        known = {name for group in self._request.groups for name in (*group.dims, group.source)}
        found = []
        for each in self._program.graph.inputs:
            if each.path in known:
                continue
            for group, length in zip(self._request.groups, self._world.lengths, strict=True):
                if any(self._world.same(size, length) for size in each.value.spec.sizes):
                    found.append(
                        f"{each.path} is as long as {group.name} but not padded: it is taken as "
                        "the same"
                    )
        mutated = {id(value) for value in self._program.graph.mutated}
        written = [each.path for each in self._program.graph.inputs if id(each.value) in mutated]
        return [
            *found,
            *(
                f"{path} is written by the call: what it holds then is not audited"
                for path in written
            ),
        ]

    def _step(self, cause: Cause) -> Step | None:
        return _step_of(cause.step) if isinstance(cause.step, Node) else None

    def _path(self, output: _Output, cause: Cause) -> tuple[Step, ...]:
        """Return the steps from the padding to an output, through the op at which the padding
        spreads.
        """
        found: list[Step] = []
        value = output.leaf if isinstance(output.leaf, Value) else None
        seen: set[int] = set()
        while value is not None and id(value) not in seen:
            seen.add(id(value))
            node = self._found.makers.get(value)
            if node is None:
                break
            found.append(_step_of(node))
            dirty = [
                each
                for each in node.reads
                if self._found.states[each].dirty and id(each) not in seen
            ]
            same = [each for each in dirty if self._found.states[each].cause is cause]
            value = next(iter(same or dirty), None)
        return tuple(reversed(found))


def _coordinate(dim: tuple[Slot, ...]) -> Coordinate:
    """Return the index along a dimension; 0 for a dimension of size 1."""
    return Coordinate(dim[0]) if dim else Coordinate(None, 0)


def _step_of(node: Node) -> Step:
    return Step(str(node.op), node.origin.place)
