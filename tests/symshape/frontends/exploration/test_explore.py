"""What a report says of guard sets, traces and caches, read as data."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import symshape
from guards import GuardSet, Tree
from symshape.exploring.report_records import Report, Space


def _texts(space: Space, entry: int = 0) -> list[str]:
    return [guard.text for guard in space.entries[entry].guards]


def test_guards_that_others_imply() -> None:
    report = symshape.explore(
        GuardSet.read("n % 16 == 0", "n % 8 == 0", "m > 3", "n != 3", "m >= 1")
    ).report
    (space,) = report.spaces
    guards = space.entries[0].guards
    implied = {
        guard.text: [guards[each].text for each in guard.implied_by]
        for guard in guards
        if guard.note
    }
    assert implied == {
        "n % 8 == 0": ["n % 16 == 0"],
        "n != 3": ["n % 16 == 0"],
        "m >= 1": ["m >= 4"],
    }


def test_a_contradiction() -> None:
    (space,) = symshape.explore(GuardSet.read("n > m", "m > 7", "n < 4")).report.spaces
    assert space.verdict.startswith("no sizes satisfy all of these guards")
    assert [guard.text for guard in space.entries[0].guards if guard.note] == [
        "m < n",
        "m >= 8",
        "n <= 3",
    ]


def test_a_trace_says_what_it_says_itself() -> None:
    traced = symshape.trace(
        lambda a, b: torch.cat([a, b]).view(-1, 4) + a.size(0), torch.ones(3), torch.ones(5)
    )
    report = symshape.explore(traced).report
    (space,), (program,) = report.spaces, report.programs
    assert _texts(space)[-len(traced.guards) :] == [guard.text() for guard in traced.guards]
    sizes = [
        [program.formulas[each].text for each in step.outputs[0].sizes] for step in program.steps
    ]
    assert sizes[-1] == [str(traced.output_specs.sizes[0]), "4"]
    assert program.formulas[program.costs["flops"]].text == str(traced.cost().flops)
    origin = report.origins[space.entries[0].guards[-1].origin or 0]
    assert origin.place.startswith("test_explore.py:")
    assert any("torch.cat([a, b]).view(-1, 4)" in text for _, text in origin.excerpt)


def test_equal_symbols_are_shown_as_one() -> None:
    traced = symshape.trace(lambda a, b: (a + b) * 2, torch.ones(3), torch.ones(3))
    (program,) = symshape.explore(traced).report.programs
    assert {
        program.formulas[each].text
        for step in program.steps
        for out in step.outputs
        for each in out.sizes
    } == {"s0"}


def test_slots_that_turn_together_and_those_that_follow() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    compiled = symshape.compile(f, dynamic=True)
    compiled(torch.ones(6, 4).t(), torch.ones(4, 6))
    (space,) = symshape.explore(compiled).report.spaces
    sources = [slot.source for slot in space.slots]
    linked = [{sources[each] for each in group} for group in space.links]
    assert {"x.size(0)", "y.size(0)"} in [group & {"x.size(0)", "y.size(0)"} for group in linked]
    derived = {slot.source for slot in space.slots if slot.derived is not None}
    assert derived == {"x.stride(1)"}


def test_sizes_that_only_some_programs_want_equal_turn_alone() -> None:
    """Else the map had one axis, and no call of the other programs could be tried."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y if x.shape[0] == y.shape[0] else x.sum() + y

    compiled = symshape.compile(fn)
    for n, m in ((40, 40), (1, 1), (30, 30), (1, 8), (40, 3)):
        compiled(torch.ones(n), torch.ones(m))
    space = symshape.explore(compiled).report.spaces[0]
    assert (space.links, space.axes) == ([], [0, 1])
    always = symshape.compile(lambda x, y: x + y)
    for n in (4, 7, 9):
        always(torch.ones(n, 3), torch.ones(n, 3))
    space = symshape.explore(always).report.spaces[0]
    assert [{space.slots[i].source for i in each} for each in space.links] == [
        {"x.size(0)", "y.size(0)"}
    ]


def test_a_cache_with_two_structures_and_modes() -> None:
    compiled = symshape.compile(lambda x: x * 2)
    compiled(torch.ones(3))
    compiled(torch.ones(3, 4))
    with torch.no_grad():
        compiled(torch.ones(3, 4))
    report = symshape.explore(compiled).report
    labels = sorted(space.label for space in report.spaces)
    assert len(labels) == 3
    assert all(labels)
    assert sum("no_grad" in label for label in labels) == 1
    assert "no_grad" in compiled._repr_html_()


def test_the_history_of_a_cache() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.size(0) < 10 else x

    compiled = symshape.compile(f, options=symshape.Options(max_entries=2))
    for n in (3, 4, 5, 3, 12):
        compiled(torch.ones(n))
    moments = symshape.explore(compiled).report.moments
    assert [(m.call, m.kind, m.entry) for m in moments if m.kind != "new sizes"] == [
        (1, "trace", 0),
        (2, "trace", 1),
        (5, "trace", 2),
        (5, "evicted", 1),
    ]
    assert [(m.call, m.sizes) for m in moments if m.kind == "new sizes"][1:] == [
        (2, "x.size(0)=4"),
        (3, "x.size(0)=5"),
        (5, "x.size(0)=12"),
    ]
    why = [m.text for m in moments if m.kind == "trace"]
    assert why[0] == ""
    assert "x.size(0) <= 9, but x.size(0) = 12" in why[2]
    compiled.reset()
    assert symshape.explore(compiled).report.moments == []


def test_buckets_and_captures_are_part_of_the_history() -> None:
    """On the CPU, where a padded program runs on buffers that stay: which bucket serves which
    sizes, and who leaves.
    """
    compiled = symshape.compile(
        lambda x: x.softmax(0),
        dynamic=True,
        runner="padded",
        options=symshape.Options(max_cuda_graphs=1),
    )
    for n in (5, 6, 3, 0, 5, 100, 100, *(101,) * 40):
        compiled(torch.ones(n))
    moments = [
        m for m in symshape.explore(compiled).report.moments if m.entry == 0 and m.kind != "trace"
    ]
    assert [(m.call, m.kind, m.sizes, m.text) for m in moments if m.call < 10] == [
        (1, "new sizes", "x.size(0)=5", "their own bucket: x.size(0) up to 6"),
        (1, "bucket made", "x.size(0) up to 6", ""),
        (1, "captured", "x.size(0) up to 6", "op by op on its buffers"),
        (2, "new sizes", "x.size(0)=6", "their own bucket: x.size(0) up to 6"),
        (3, "new sizes", "x.size(0)=3", "a larger bucket: x.size(0) up to 6"),
        (4, "new sizes", "x.size(0)=0", ""),
        (6, "new sizes", "x.size(0)=100", "no bucket, they run op by op"),
        (8, "new sizes", "x.size(0)=101", "no bucket, they run op by op"),
    ]
    assert [(m.kind, m.sizes) for m in moments if m.call > 9] == [
        ("dropped", "x.size(0) up to 6"),
        ("bucket made", "x.size(0) up to 128"),
        ("bucket chosen", "x.size(0)=101"),
        ("captured", "x.size(0) up to 128"),
    ]


def test_buckets_have_the_names_of_the_user() -> None:
    compiled = symshape.compile(
        lambda x: x.softmax(1),
        dynamic={"x": {0: symshape.Dim("batch"), 1: symshape.Dim("length")}},
        runner="padded",
    )
    compiled(torch.ones(3, 5))
    told = {m.kind: m for m in symshape.explore(compiled).report.moments}
    assert told["bucket made"].sizes == "batch up to 3, length up to 6"
    assert told["new sizes"].text == "their own bucket: batch up to 3, length up to 6"


def test_what_padding_refuses_is_part_of_the_history() -> None:
    compiled = symshape.compile(
        lambda x, y: (torch.fft.fft(x), y * 2), dynamic=True, runner="padded"
    )
    compiled(torch.ones(5), torch.ones(3))
    told = {m.kind: m for m in symshape.explore(compiled).report.moments}
    assert told["padding refused"].sizes == "x.size(0)", told


def test_refusals_are_part_of_the_history() -> None:
    compiled = symshape.compile(lambda x: x if x.sum() > 0 else -x)
    with pytest.warns(symshape.FallbackWarning):
        compiled(torch.ones(3))
    (moment,) = symshape.explore(compiled).report.moments
    assert moment.kind == "fallback"
    assert "known only at run time" in moment.text
    assert moment.sizes == "its integers, in order: 3"


def test_the_tree_counts_the_calls() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for limit in range(10, 100, 10):
            if x.size(0) < limit:
                return x + limit
        return x

    compiled = symshape.compile(f, dynamic=True)
    for n in range(100):
        compiled(torch.ones(n))
    (space,) = symshape.explore(compiled).report.spaces
    assert space.tree is not None
    leaves: list[Any] = []
    stack = [space.tree]
    while stack:
        node = stack.pop()
        stack += node.branches
        leaves += [] if node.branches else [node]
        assert not node.branches or node.calls == sum(each.calls for each in node.branches)
    assert space.tree.calls == 100
    assert sorted(leaf.calls for leaf in leaves) == [10] * 10


def test_compared_in_words() -> None:
    compiled = symshape.compile(lambda x: x * 2)
    compiled(torch.ones(3))
    compiled(torch.ones(4))
    ((first, second, text),) = symshape.explore(compiled).report.spaces[0].comparisons
    assert (first, second) == (0, 1)
    assert "x.size(0) == 3" in text


def test_a_tree() -> None:
    tree: Tree[str] = Tree(["b", "s"])
    tree.insert(GuardSet.read("s <= 64", "b * s <= 1024"), "short")
    tree.insert(GuardSet.read("s >= 65", "b <= 4"), "long")
    report = symshape.explore(tree).report
    (space,) = report.spaces
    assert [entry.label for entry in space.entries] == ["short", "long"]
    assert [slot.top for slot in space.slots] == [16, 128]
    assert space.tree is not None
    assert symshape.explore(Tree(["n"])).report.spaces == []


def test_as_data() -> None:
    compiled = symshape.compile(lambda x, k: x * k, dynamic=True)
    compiled(torch.ones(3), 2**60)
    compiled(torch.ones(4), -5)
    report = symshape.explore(compiled).report
    assert isinstance(report, Report)
    data = json.loads(report.to_json())
    assert data["version"] == 1
    values = [point["values"] for point in data["spaces"][0]["points"]]
    assert [3, str(2**60)] in values


def test_a_module() -> None:
    module = symshape.compile(torch.nn.Linear(3, 4))
    module(torch.ones(2, 3))
    assert "1 entries, 1 calls" in repr(symshape.explore(module))


def test_what_cannot_be_explored() -> None:
    with pytest.raises(symshape.InputError, match="not a int"):
        symshape.explore(3)  # type: ignore[arg-type]
