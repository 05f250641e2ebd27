"""Each node answers the record of highest priority whose box holds; its rest is searched only where
it could win.
"""

from __future__ import annotations

from itertools import product

import pytest

from guards.dispatch.box import Compiler
from guards.dispatch.nodes import Gate, Leaf, Node, Record, Span, Steps, Table, Verified
from guards.terms.arithmetic import symbol
from guards.terms.term import Term
from tests.guards.dispatch.nodes_of import records_of, scan

A, B = symbol("a"), symbol("b")
SLOTS = ("a", "b")
NOTHING: Verified = frozenset()


@pytest.fixture
def compiler() -> Compiler:
    return Compiler(SLOTS)


def _leaf(compiler: Compiler, *records: Record, verified: Verified = NOTHING) -> Leaf:
    return Leaf(records, verified, compiler)


def _answers(node: Node, records: list[Record], top: int = 12) -> None:
    for values in product(range(top), repeat=2):
        assert node.find(values) is scan(records, SLOTS, values), values


class TestRecord:
    def test_certain_when_all_is_verified(self) -> None:
        (record,) = records_of("a == 1;b % 2 != 1")
        (rest,) = record.box.rest
        assert not record.certain(NOTHING)
        assert not record.certain(frozenset({A}))
        assert not record.certain(frozenset({rest}))
        assert record.certain(frozenset({A, rest}))

    def test_points(self) -> None:
        (record,) = records_of("a == 1;b % 8 == 2;b <= 9")
        assert record.points((A,)) == (1,)
        assert record.points((B % 8, A)) == (2, 1)
        assert record.points((A, B)) is None

    def test_tests_what_is_left_and_is_compiled_once(self, compiler: Compiler) -> None:
        (record,) = records_of("a == 1;b >= 3")
        test = record.test(NOTHING, compiler)
        assert test is not None
        assert [test((1, 3)), test((1, 2)), test((2, 3))] == [True, False, False]
        assert record.test(NOTHING, compiler) is test
        left = record.test(frozenset({A}), compiler)
        assert left is not None
        assert left((2, 3))
        assert record.test(frozenset({A, B}), compiler) is None


class TestLeaf:
    @pytest.mark.parametrize(
        "texts", [[], ["a >= 3"], ["a >= 3", "b >= 2"], ["a == 1", "b >= 2", "a <= 5", "a >= 0"]]
    )
    def test_first_that_holds(self, compiler: Compiler, texts: list[str]) -> None:
        records = records_of(*texts)
        _answers(_leaf(compiler, *records), records)

    def test_nothing_behind_a_certain_record(self, compiler: Compiler) -> None:
        first, certain, behind = records_of("a == 1", "a >= 0", "b == 1")
        leaf = _leaf(compiler, first, certain, behind)
        assert leaf.closed
        assert leaf.records == (first, certain)
        assert not _leaf(compiler, first, behind).closed


class TestTable:
    def test_by_one_form(self, compiler: Compiler) -> None:
        records = records_of("a == 1", "a == 4;b >= 2")
        branches: dict[int, Node] = {
            1: _leaf(compiler, records[0], verified=frozenset({A})),
            4: _leaf(compiler, records[1], verified=frozenset({A})),
        }
        _answers(Table((A,), branches, None, 0, NOTHING, compiler), records)

    def test_by_two_forms(self, compiler: Compiler) -> None:
        records = records_of("a == 1;b % 3 == 2")
        forms: tuple[Term, ...] = (A, B % 3)
        branches: dict[tuple[int, ...], Node] = {
            (1, 2): _leaf(compiler, *records, verified=frozenset(forms))
        }
        _answers(Table(forms, branches, None, 0, NOTHING, compiler), records)

    def test_the_rest_wins_where_it_comes_first(self, compiler: Compiler) -> None:
        records = records_of("b <= 2", "a == 1", "b <= 7")
        branches: dict[int, Node] = {1: _leaf(compiler, records[1], verified=frozenset({A}))}
        rest = _leaf(compiler, records[0], records[2])
        _answers(Table((A,), branches, rest, 0, NOTHING, compiler), records)

    def test_the_rest_is_not_searched_where_it_cannot_win(self, compiler: Compiler) -> None:
        first, last = records_of("a == 1", "b <= 7")
        rest = _leaf(compiler, last)
        rest.find = lambda values: pytest.fail("searched")
        table = Table(
            (A,), {1: _leaf(compiler, first, verified=frozenset({A}))}, rest, 1, NOTHING, compiler
        )
        assert table.find((1, 0)) is first


def test_gate(compiler: Compiler) -> None:
    """All records in the branch share `a >= 2`, which is tested once."""
    records = records_of("b == 1", "a >= 2;b <= 4", "a >= 2;b >= 6", "b == 5")
    (shared,) = records_of("a >= 2")
    branch = _leaf(compiler, *records[1:3], verified=frozenset({A}))
    gate = Gate(shared.box, branch, _leaf(compiler, records[0], records[3]), 0, NOTHING, compiler)
    assert gate.within == {A}
    _answers(gate, records)


@pytest.mark.parametrize("with_rest", [False, True])
def test_steps(compiler: Compiler, with_rest: bool) -> None:
    """Segment 0 is a <= 2, segment 1 is 3 <= a <= 6, segment 2 is a >= 7."""
    texts = ["b == 9", "a <= 2", "a >= 7;b >= 1", "b <= 4"]
    within = frozenset({A})
    all_records = records_of(*texts)
    branches: list[Node | None] = [
        _leaf(compiler, all_records[1], verified=within),
        None,
        _leaf(compiler, all_records[2], verified=within),
    ]
    rest = _leaf(compiler, all_records[0], all_records[3]) if with_rest else None
    _answers(
        Steps(A, [3, 7], branches, rest, 0, NOTHING, compiler),
        all_records if with_rest else all_records[1:3],
    )


def test_span(compiler: Compiler) -> None:
    """A segment lies in several nodes: the best of what they answer wins, those that cannot win are
    not searched.
    """
    records = records_of("b == 9", "a <= 6;b <= 7", "a >= 3;b >= 2", "b <= 4")
    within = frozenset({A})
    low, high = (_leaf(compiler, record, verified=within) for record in records[1:3])
    paths = ([3, 7], [((1, low.find),), ((1, low.find), (2, high.find)), ((2, high.find),)])
    rest = _leaf(compiler, records[0], records[3])
    span = Span(A, tuple(records), paths, rest, 0, 0, NOTHING, compiler)
    _answers(span, records)
    unsearched = (
        [3, 7],
        [((1, low.find), (2, lambda values: pytest.fail("searched"))) for _ in range(3)],
    )
    assert (
        Span(A, tuple(records), unsearched, None, 0, 0, NOTHING, compiler).find((0, 0))
        is records[1]
    )
