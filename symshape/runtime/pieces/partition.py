"""The partition of a graph into pieces: steps that a runner may record, and between them steps that
run eagerly.

Independent steps may change places, so that there are few pieces with few sizes each.  Steps that
select rows by data, and steps that scatter them back, run eagerly.  Independent parts whose sizes
depend on different data become separate pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import attrs

from meta_fns.core.registry import aliasing
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Step, Value, moves_nothing, writes_nothing, written_values
from symshape.graph.symbol_names import names_of_spec
from symshape.runtime.pieces.faults import Fault
from symshape.runtime.pieces.step_order import StepOrder

__all__ = ["Piece", "partition"]

_OF_MANY = frozenset(
    (
        *(
            "lstm",
            "gru",
            "rnn_tanh",
            "rnn_relu",
            "_cudnn_rnn",
            "_thnn_fused_lstm_cell",
            "_thnn_fused_gru_cell",
        ),
        *("_transformer_encoder_layer_fwd", "_native_multi_head_attention"),
    )
)
"""The ops that launch at least ``_MANY`` kernels."""
_MANY = 10

FaultOf = Callable[[Step], Fault | None]
"""Returns why a step cannot be recorded; None if it can."""


@attrs.frozen(eq=False)
class Piece:
    """Some steps of a graph that run one after the other.

    Attributes:
        numbers: the numbers of the steps, in the order in which they run.
        recorded: whether the piece is to be recorded.
        faults: why steps cannot be recorded, by number; steps that are merely not worth it have no
            fault.
    """

    numbers: tuple[int, ...]
    recorded: bool
    faults: tuple[tuple[int, Fault], ...] = ()


def partition(
    graph: Graph, fault: FaultOf, least: int, sizes: Collection[str] | None = None
) -> list[Piece]:
    """Return the pieces of a graph in the order in which they run; none if nothing can be recorded.

    Args:
        graph: the graph.
        fault: returns why a step cannot be recorded.
        least: the fewest ops of a recorded piece (views do not count).
        sizes: the symbols of which a recorded piece must have at least one; None if any piece is
            worth recording.
    """
    if any(node.leaves is not None and not moves_nothing(node) for node in graph.nodes):
        return []  # the same value would be different tensors in two pieces
    found = [fault(step) for step in graph.steps]
    order = StepOrder(graph)
    fit = [not each for each in found]
    parts: list[tuple[list[int], bool]] = []
    for numbers in _in_turns(order.needs, fit):
        parts += (
            [(numbers, False)]
            if found[numbers[0]]
            else _Narrowed(graph, order, numbers).parts(least, sizes)
        )
    pieces: list[Piece] = []
    for numbers, recorded in _with_their_users(graph, order, parts, fit):
        faults = tuple((each, why) for each in numbers if (why := found[each]) is not None)
        before = pieces[-1] if pieces else None
        if before is not None and not recorded and not before.recorded:
            pieces[-1] = Piece((*before.numbers, *numbers), False, (*before.faults, *faults))
        else:
            pieces.append(Piece(tuple(numbers), recorded, faults))
    return pieces if any(each.recorded for each in pieces) else []


def _with_their_users(
    graph: Graph, order: StepOrder, parts: Sequence[tuple[list[int], bool]], fit: Sequence[bool]
) -> Iterator[tuple[list[int], bool]]:
    """Yield the parts, with steps on parameters alone (a transposed weight) moved into the first
    part that needs them.

    A step whose result no step needs is not moved.
    """
    before = {number: at for at, (numbers, _) in enumerate(parts) for number in numbers}
    users: dict[int, list[int]] = {}
    for number, needs in enumerate(order.needs):
        for each in needs:
            users.setdefault(each, []).append(number)
    alone = _of_parameters(graph, order, fit)
    place = dict(before)
    for number in reversed(alone):
        if number in users:
            place[number] = min(place[each] for each in users[number])
    coming: dict[int, list[int]] = {}
    for number in alone:
        if place[number] != before[number]:
            coming.setdefault(place[number], []).append(number)
    for at, (numbers, recorded) in enumerate(parts):
        come = coming.get(at, [])
        stay = [number for number in numbers if place[number] == at]
        if come or stay:
            yield [*come, *stay], recorded


def _of_parameters(graph: Graph, order: StepOrder, fit: Sequence[bool]) -> list[int]:
    """Return the steps without effects that read only parameters, buffers, constants and each
    other's results.
    """
    known = {each.value for each in graph.lifted}
    found: dict[int, None] = {}
    for number, step in enumerate(graph.steps):
        if not isinstance(step, Node) or not fit[number] or number in order.effects or step.numbers:
            continue
        if (
            order.needs[number] <= found.keys()
            and known.issuperset(step.reads)
            and writes_nothing(step)
        ):
            found[number] = None
            known.update(value for value in step.outputs if value is not None)
    return list(found)


def _in_turns(needs: Sequence[Iterable[int]], fit: Sequence[bool]) -> list[list[int]]:
    """Return the steps in alternating groups of fit and unfit steps, each in the first group that
    its needs allow.

    Fit steps have the even groups.  The steps that a step needs have smaller numbers, and run
    before it in the same group.
    """
    turns: list[int] = []
    groups: dict[int, list[int]] = {}
    for number, fits in enumerate(fit):
        turn = max((turns[each] for each in needs[number]), default=0)
        turn += (turn % 2 == 0) is not fits
        turns.append(turn)
        groups.setdefault(turn, []).append(number)
    return [groups[turn] for turn in sorted(groups)]


def _work(step: Step) -> int:
    """Return about how many kernels a step launches; 0 for a view."""
    if not isinstance(step, Node):
        return 0
    if step.op._schema.name.partition("::")[2] in _OF_MANY:
        return _MANY
    return int(aliasing(step.op).is_functional or not writes_nothing(step))


class _Narrowed:
    """Steps that can be recorded together, split into parts with fewer sizes each."""

    def __init__(self, graph: Graph, order: StepOrder, numbers: Sequence[int]) -> None:
        self._graph = graph
        self._order = order
        self._bound = order.bound.keys()
        self._numbers = numbers
        inside = set(numbers)
        self._needs = {number: order.needs[number] & inside for number in numbers}
        self._needed: dict[int, set[int]] = {number: set() for number in numbers}
        for number, needs in self._needs.items():
            for each in needs:
                self._needed[each].add(number)

    def parts(
        self, least: int, sizes: Collection[str] | None = None
    ) -> list[tuple[list[int], bool]]:
        """Return the parts in the order in which they run, and whether each is worth recording."""
        names = self._names(self._numbers)
        first: list[int] = []
        last: list[int] = []
        rest = list(self._numbers)
        if not names.isdisjoint(self._bound):
            before, behind = (
                self._at_the_edge(self._picks, self._needs),
                self._at_the_edge(self._puts, self._needed),
            )
            behind -= before
            rest = [
                number for number in self._numbers if number not in before and number not in behind
            ]
            if self._names(rest) < names:
                first = [number for number in self._numbers if number in before]
                last = [number for number in self._numbers if number in behind]
            else:
                rest = list(self._numbers)
        recorded: list[list[int]] = []
        for part in self._apart(rest):
            varies = sizes is None or not self._names(part).isdisjoint(sizes)
            if varies and sum(_work(self._graph.steps[each]) for each in part) >= least:
                recorded.append(part)
            else:
                first += part  # parts are independent, so this part may run first
        found = [(sorted(first), False), *((part, True) for part in recorded), (last, False)]
        return [(part, worth) for part, worth in found if part]

    def _names(self, numbers: Iterable[int]) -> set[str]:
        """Return the symbols that occur in the steps."""
        return set().union(*(self._order.names(number) for number in numbers))

    def _picks(self, node: Node) -> bool:
        """Return whether a node selects rows by data from a tensor of other sizes."""
        made = _names_of(node.outputs)
        return not made.isdisjoint(self._bound) and not _names_of(node.reads) <= made | self._rows(
            node
        )

    def _puts(self, node: Node) -> bool:
        """Return whether a node scatters rows selected by data into a tensor of other sizes."""
        made = _names_of(node.outputs) | _names_of(written_values(node))
        rows = self._rows(node)
        return bool(rows) and made.isdisjoint(self._bound) and not made <= rows

    def _rows(self, node: Node) -> set[str]:
        """Return the symbols of the tensors that a node reads and whose sizes depend on data."""
        return _names_of(
            value for value in node.reads if not _names_of((value,)).isdisjoint(self._bound)
        )

    def _at_the_edge(
        self, wanted: Callable[[Node], bool], towards: dict[int, set[int]]
    ) -> set[int]:
        """Return the wanted steps that are separated from the edge by nothing but other wanted
        steps and views.
        """
        found: set[int] = set()
        for number in self._numbers if towards is self._needs else reversed(self._numbers):
            node = self._graph.steps[number]
            if isinstance(node, Node) and wanted(node):
                between, left = set[int](), [number]
                while left:
                    between.add(at := left.pop())
                    left += [
                        each for each in towards[at] if each not in between and each not in found
                    ]
                if all(each == number or not _work(self._graph.steps[each]) for each in between):
                    found |= between
        return found

    def _apart(self, numbers: Sequence[int]) -> list[list[int]]:
        """Split the steps into independent parts, and merge parts with the same symbols.

        There is one part if all sizes depend on the same data.
        """
        if len(self._names(numbers) & self._bound) < 2:
            return [list(numbers)] if numbers else []
        inside, group = set(numbers), dict[int, set[int]]()
        for number in numbers:
            joined = {number}.union(*(group[each] for each in self._needs[number] & inside))
            group.update(dict.fromkeys(joined, joined))
        parts = list({id(each): each for each in group.values()}.values())
        by_names: dict[frozenset[str], set[int]] = {}
        for part in parts:
            by_names.setdefault(frozenset(self._names(part)), set()).update(part)
        return sorted(sorted(part) for part in by_names.values())


def _names_of(values: Iterable[Value | None]) -> set[str]:
    return set().union(*(names_of_spec(value.spec) for value in values if value is not None))
