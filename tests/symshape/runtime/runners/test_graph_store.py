"""What is kept within a budget of graphs and bytes, and that nothing in use is ever driven out."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from symshape.runtime.policy.eviction import ASKED, REPLACES
from symshape.runtime.policy.ledger import HALF_LIFE
from symshape.runtime.runners.graph_store import GraphStore, Weight


def _call(store: GraphStore, key: int, weight: Weight | None = None, pool: int = 0) -> str:
    """A call that uses what is kept for a key, or puts it there if it is admitted."""
    if store.get(key) is not None:
        return "hit"
    if not store.admits(key, pool, weight):
        return "refused"
    store.put(key, f"item {key}", program=key % 3, pool=pool, weight=weight)
    return "made"


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 5),
    st.lists(st.integers(0, 12), max_size=400),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=13, max_size=13),
)
def test_any_stream_stays_within_the_budget(
    limit: int, calls: list[int], weights: list[tuple[int, int]]
) -> None:
    store = GraphStore(limit, memory=100)
    made: Counter[int] = Counter()
    asked: Counter[int] = Counter()
    for key in calls:
        before = {
            each: store._leases[each].credit.now(store.clock)
            for each in range(13)
            if store.peek(each)
        }
        asked[key] += 1
        outcome = _call(store, key, Weight(*weights[key]), pool=key % 2)
        made[key] += outcome == "made"
        lost = sum(credit for each, credit in before.items() if store.peek(each) is None)
        if lost:
            assert outcome == "made"
            assert REPLACES * lost < asked[key], "it had saved more than what came for it"
        if outcome != "refused":
            asked[key] = 0
        assert len(store) <= limit
        assert store.bytes() <= 100
    assert sum(made.values()) <= limit + len(calls) // ASKED


def test_a_cycle_of_more_than_fit_makes_each_at_most_once() -> None:
    store = GraphStore(4)
    outcomes = Counter(_call(store, n % 9) for n in range(2000))
    assert outcomes["made"] == 4
    assert store.evictions == 0


def test_a_long_cycle_of_sizes_that_come_too_rarely_makes_nothing_new() -> None:
    store = GraphStore(4)
    outcomes = Counter(_call(store, n % 100) for n in range(5000))
    assert outcomes["made"] == 4, "none of the others has more credit than those"


def test_traffic_that_moves_takes_its_graphs_along() -> None:
    store = GraphStore(3)
    for n in range(60):
        _call(store, n % 3)
    outcomes = Counter(_call(store, 10 + n % 3) for n in range(300))
    assert outcomes["made"] == 3
    assert outcomes["hit"] > 200
    assert store.evictions == 3


def test_bytes_are_shared_in_a_pool() -> None:
    store = GraphStore(10)
    for key, (own, shared, pool) in enumerate([(10, 100, 0), (10, 40, 0), (5, 7, 1)]):
        store.put(key, key, program=key, pool=pool, weight=Weight(own, shared))
    assert store.bytes() == 25 + 100 + 7
    store.remove(0)
    assert store.bytes() == 15 + 40 + 7


def test_what_is_larger_than_the_budget_is_never_admitted() -> None:
    store = GraphStore(10, memory=50)
    assert not store.admits("large", 0, Weight(30, 30))
    assert store.admits("small", 0, Weight(25, 25))


def test_who_leaves_is_told() -> None:
    store = GraphStore(2)
    gone: list[str] = []
    lease = store.put("a", 1, program=1, leave=lambda: gone.append("a"))
    store.put("b", 2, program=2, leave=lambda: gone.append("b"))
    store.drop(1)
    assert (gone, lease.gone) == (["a"], True)
    store.clear()
    assert gone == ["a", "b"]
    assert len(store) == store.bytes() == 0


def test_what_leaves_has_the_least_credit_for_its_bytes() -> None:
    store = GraphStore(10, memory=100)
    for key, size, gain in (("large", 60, 3.0), ("small", 20, 2.0), ("tiny", 10, 2.5)):
        assert store.admits(key, 0, Weight(size))
        store.put(key, key, program=1, weight=Weight(size)).credit.begin(gain, gain, store.clock)
    assert not store.admits("new", 0, Weight(50), credit=4.0), "4 is not clearly more than 3"
    assert store.admits("new", 0, Weight(50), credit=5.0)
    assert [store.peek(each) for each in ("large", "small", "tiny")] == [None, "small", "tiny"]


def test_uses_count_by_what_each_saves() -> None:
    store = GraphStore(2)
    for key, gain in (("seldom", 10.0), ("often", 1.0)):
        store.put(key, key, program=1).credit.begin(0.0, gain, store.clock)
    for number in range(6):
        store.get("often")
        if number % 3 == 0:
            store.get("seldom")
    assert store.admits("new", credit=15.0)
    assert (store.peek("seldom"), store.peek("often")) == ("seldom", None)


def test_credit_fades_so_that_what_is_not_used_leaves() -> None:
    store = GraphStore(1)
    store.put("old", "old", program=1).credit.begin(100.0, 1.0, store.clock)
    assert not store.admits("new", credit=20.0)
    store.clock += 3 * HALF_LIFE
    assert store.admits("new", credit=20.0)
