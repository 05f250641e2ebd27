"""The contents of a report, as plain data: records that become JSON, written by
``symshape.frontends.exploration``.

Numbers that refer to other records are positions: of an origin in ``Report.origins``, a program in
``Report.programs``, a slot in ``Space.slots``, a formula in ``ProgramRecord.formulas``, a register
of the tape beside it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs

from guards.text.escaping import encodable


# -- The part of a report on what serves calls, as plain data: padded programs for ranges of sizes,
# with their figures.
@attrs.frozen
class BucketRecord:
    """One padded program for a range of sizes.

    Attributes:
        sizes: its capacities (``<=``) and exact sizes (``=``), in symbols.
        calls: how many calls go to it; None where these are not counted.
        waste: what goes into padding, as a part of what the calls cost unpadded; None where that is
            not known.
        captures: how often it was captured.
        milliseconds: how long that took, the last time.
        memory: what it takes, beside what it shares, with a unit.
        replays: whose kernels a replay was timed with, and its milliseconds; the fastest first.
        achieved: what of the device the fastest achieves, in words; empty where nobody asked.
    """

    sizes: str
    calls: int | None
    waste: float | None
    captures: int
    milliseconds: float
    memory: str
    replays: list[tuple[str, float]] = attrs.field(factory=list)
    achieved: str = ""


@attrs.frozen
class ServingRecord:
    """The server of a program, or of one piece of it.

    Attributes:
        part: which piece; empty for the whole program.
        runner: what runs it.
        accounts: estimates of what calls take, then each offer, made or not, with its credit; empty
            where each call has a bucket.
        buckets: one for each range of sizes.
        notes: what else came of its calls.
        padding: what came of each symbol: padded, with what repairs, or refused, with the line and
            what would help.
        reasons: why it runs unpadded, with the user's lines; nothing where it is padded.
    """

    part: str
    runner: str
    accounts: list[str] = attrs.field(factory=list)
    buckets: list[BucketRecord] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)
    padding: list[str] = attrs.field(factory=list)
    reasons: list[str] = attrs.field(factory=list)


VERSION = 1
"""The version of the format, which readers of a report check."""


@attrs.frozen
class TapeRecord:
    """Steps that the page runs (see :class:`guards.terms.tape.Tape`).

    Attributes:
        steps: as the tape has them.
        exact: doubles are exact where no value is greater.
    """

    steps: list[list[Any]]
    exact: int


@attrs.frozen
class OriginRecord:
    """A line of the user's program, or another origin of a question.

    Attributes:
        place: the file's name and the line, in short; empty if there is none.
        text: the source text of the line.
        asked: the op and the rule that asked.
        excerpt: lines around it, each with its number.
        line: its number.
    """

    place: str
    text: str
    asked: str
    excerpt: list[tuple[int, str]]
    line: int


@attrs.frozen
class SlotRecord:
    """An integer of a call that readers can vary.

    Attributes:
        name: a short name (``s0``), for formulas.
        source: where it is read, in the caller's words.
        given: the name that the user gave this size (``batch``); empty if there is none.
        low, high: what it can be at all; None for no bound.
        start: its value to begin with.
        top: the greatest value of its slider.
        fixed: whether every program has it as the same constant.
        derived: the register that computes it from the others, for a stride or an offset; None for
            a free one.
    """

    name: str
    source: str
    low: int | None
    high: int | None
    start: int
    top: int
    fixed: bool = False
    derived: int | None = None
    given: str = ""

    @property
    def label(self) -> str:
        """The name for people: the user's own, or else where the integer is read."""
        return self.given or self.source


@attrs.frozen
class GuardRecord:
    """One condition.

    Attributes:
        text: in symbols.
        words: in the caller's words.
        register: of the tape: whether it holds.
        kind: ``guard``, ``declared`` (a range that the user gave), ``range`` (what an integer of
            its kind can be), ``static`` (traced as a constant) or ``layout`` (a stride or offset as
            it was).
        origin: who needed it.
        slots: the slots that it speaks about.
        note: what else is known of it: that others imply it, or that it contradicts others.
        implied_by: the positions of guards that imply it together, if some do.
    """

    text: str
    words: str
    register: int
    kind: str = "guard"
    origin: int | None = None
    slots: list[int] = attrs.field(factory=list)
    note: str = ""
    implied_by: list[int] = attrs.field(factory=list)


@attrs.frozen
class EntryRecord:
    """One guard set in a space, and the program behind it.

    Attributes:
        label: how it is called.
        guards: all that must hold.
        program: the program, if there is one.
        calls: how many calls it served.
        runner: what runs it.
        born: the number of the call that it was traced for; 0 where that is not known.
        serving: the padded parts of what runs it, and those between them.
    """

    label: str
    guards: list[GuardRecord]
    program: int | None = None
    calls: int = 0
    runner: str = ""
    born: int = 0
    serving: list[ServingRecord] = attrs.field(factory=list)


@attrs.frozen
class BranchRecord:
    """A node of a dispatch tree.

    Attributes:
        label: what leads here from the node above: a value, a range, ``else``.
        asks: what is looked at here; empty for a leaf.
        entries: what a leaf tries, in order: positions of entries.
        calls: how many of the recorded calls pass.
        branches: the nodes below.
    """

    label: str
    asks: str
    entries: list[int]
    calls: int
    branches: list[BranchRecord]


@attrs.frozen
class PointRecord:
    """Calls with the same integers: their values by slot, the number of calls, and the position of
    who served them.
    """

    values: list[int | str]
    calls: int
    entry: int | None


@attrs.frozen
class Space:
    """The calls of one structure: their integers, and the entries that may serve them, in order.

    Attributes:
        label: what tells this structure from the others; empty if there are no others.
        structure: the arguments and modes, in words.
        slots: the integers of a call.
        links: groups of slots that are equal in every call that is served: they turn together.
        tape: computes the guards and derived slots.
        entries: the first whose guards hold serves.
        points: recorded calls.
        tree: how an entry is found.
        comparisons: for two entries what tells them apart, in a sentence.
        verdict: what is known of the set as a whole, such as that it holds nowhere.
        axes: the slots that a map shows at first, across and up; fewer where fewer sizes vary by
            themselves.
    """

    label: str
    structure: list[str]
    slots: list[SlotRecord]
    links: list[list[int]]
    tape: TapeRecord
    entries: list[EntryRecord]
    points: list[PointRecord] = attrs.field(factory=list)
    tree: BranchRecord | None = None
    comparisons: list[tuple[int, int, str]] = attrs.field(factory=list)
    verdict: str = ""
    axes: list[int] = attrs.field(init=False)

    @axes.default
    def _best_axes(self) -> list[int]:
        return default_axes(self.slots, self.links, self.points)


def default_axes(
    slots: Sequence[SlotRecord], links: Sequence[Sequence[int]], points: Sequence[PointRecord]
) -> list[int]:
    """Return the two slots that a map shows at first: sizes that vary by themselves, those that the
    user named first.

    Two sizes that must be equal, or were equal in every recorded call, make no map: the second is
    passed over while another is left.

    >>> ids, length = (
    ...     SlotRecord("v0", "ids.size(0)", 0, None, 2, 8),
    ...     SlotRecord("v1", "ids.size(1)", 0, None, 9, 16),
    ... )
    >>> mask = SlotRecord("v2", "mask.size(0)", 0, None, 2, 8)
    >>> default_axes(
    ...     [ids, mask, length], [], [PointRecord([2, 2, 9], 1, 0), PointRecord([3, 3, 5], 1, 0)]
    ... )
    [0, 2]
    """
    linked = {slot: min(group) for group in links for slot in group}
    free = [
        i
        for i, s in enumerate(slots)
        if not s.fixed and s.derived is None and linked.get(i, i) == i
    ]
    values = {slot: [point.values[slot] for point in points] for slot in free}
    order = sorted(free, key=lambda slot: (not slots[slot].given, -len(set(values[slot])), slot))
    if len(order) < 2:
        return order
    differing = [slot for slot in order[1:] if not points or values[slot] != values[order[0]]]
    return sorted([order[0], (differing or order[1:])[0]])


@attrs.frozen
class SymbolRecord:
    """A symbol of a program: where it is read or was born; the slot that holds it, if it is not
    known only later.
    """

    name: str
    whence: str
    hint: int | None
    policy: str
    slot: int | None


@attrs.frozen
class FormulaRecord:
    """An integer of a program: its text, its register, the symbols in it."""

    text: str
    register: int
    symbols: list[str]


@attrs.frozen
class TensorRecord:
    """A tensor: its name in the program, what the caller calls it, its dtype, and its sizes as
    formulas.
    """

    name: str
    path: str
    dtype: str
    sizes: list[int]


@attrs.frozen
class StepRecord:
    """One op: its name, arguments as text, what it returns, the user's line; ``kind`` is ``op`` or
    ``assert``.
    """

    op: str
    args: str
    outputs: list[TensorRecord]
    origin: int | None
    kind: str = "op"


@attrs.frozen
class TransformedStepRecord:
    """A step of a program as it runs.

    Attributes:
        op, args: as text; its tensors are called ``p0``, ``p1`` ….
        outputs: its results with their sizes, as text.
        source: the step of the traced program that it is for; None where there is none.
        inserted: whether it is there because of a repair.
        why: which repairs that were.
    """

    op: str
    args: str
    outputs: list[str]
    source: int | None
    inserted: bool = False
    why: str = ""


@attrs.frozen
class TransformedRecord:
    """A program as it runs, if that differs from the program as traced.

    Attributes:
        sizes: which sizes it serves, in words; empty for all that the guards let through.
        reads: what it reads, in words.
        steps: in order; empty where it could not be made.
        refused: why sizes keep their exact value.
    """

    sizes: str
    reads: list[str]
    steps: list[TransformedStepRecord]
    refused: list[str]


@attrs.frozen
class ProgramRecord:
    """A traced program.

    Attributes:
        name: of the function.
        symbols: its symbols; the tape's slots are they, in order.
        tape: computes the formulas.
        formulas: each integer once.
        inputs, outputs: its tensors, and other outputs as text in ``path``.
        lifted: how many parameters, buffers and constants it reads.
        steps: its ops, in order.
        costs: what it costs, by name, as formulas: ``flops``, ``read``, ``written``, ``memory``.
        notes: what the costs leave out, and the like.
        milliseconds: how long tracing took.
        after: the program as it runs, where that is another one.
    """

    name: str
    symbols: list[SymbolRecord]
    tape: TapeRecord
    formulas: list[FormulaRecord]
    inputs: list[TensorRecord]
    outputs: list[TensorRecord]
    lifted: int
    steps: list[StepRecord]
    costs: dict[str, int]
    notes: list[str]
    milliseconds: float
    after: TransformedRecord | None = None


@attrs.frozen
class MomentRecord:
    """Something that happened to a cache.

    Attributes:
        call: the number of the call in which it happened.
        seconds: after the first thing that is remembered.
        kind: what happened, as :class:`symshape.runtime.history.Moment` names it; pages show any
            word.
        entry: the number of the entry, if it is about one.
        sizes: the call's integers, in words, or those that a bucket is for.
        text: why.
        milliseconds: how long it took, where that is known.
    """

    call: int
    seconds: float
    kind: str
    entry: int | None
    sizes: str
    text: str
    milliseconds: float | None = None


@attrs.frozen
class Report:
    """The contents of a page.

    Attributes:
        title: what is shown.
        kind: ``guards``, ``tree``, ``trace``, ``cache`` or ``dynamo``.
        facts: what stands below the title: pairs of a name and a value.
        origins: lines that guards and ops refer to.
        spaces: one for each structure of arguments.
        programs: what entries run.
        moments: the history of a cache, bounded.
        notes: what could not be shown, and why.
        version: of this format.
    """

    title: str
    kind: str
    facts: list[tuple[str, str]]
    origins: list[OriginRecord]
    spaces: list[Space]
    programs: list[ProgramRecord]
    moments: list[MomentRecord] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)
    version: int = VERSION

    def to_data(self) -> dict[str, Any]:
        """Return the report as dictionaries, lists, texts and numbers; defaults are left out."""
        found: dict[str, Any] = _plain(self)
        return found

    def to_json(self) -> str:
        """Return the report as JSON on one line."""
        return json.dumps(self.to_data(), separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if attrs.has(type(value)):
        return {
            f.name: _plain(item)
            for f in attrs.fields(type(value))
            if (item := getattr(value, f.name)) is not None
        }
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
