"""What tests of padding share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from symshape.runtime.padding import planning, recipes
from symshape.runtime.padding.blueprint import Blueprint, Blueprints
from symshape.runtime.padding.capacities import Capacities
from symshape.runtime.padding.padded_graph import PaddedGraph, Refusal
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.template import _flat
from symshape.runtime.padding.transform import pad


def in_full(made: PaddedGraph) -> Any:
    """All that a padded program says."""
    outputs = [
        (place, attrs.asdict(padded.fill), str(padded.axes))
        for place, padded in made.outputs.values()
    ]
    lines = [node.location for node in made.graph.nodes]
    sources = [
        id(made.sources.get(each))
        for node in made.graph.nodes
        for each in node.outputs
        if each is not None
    ]
    specs = [
        str(each.spec) for node in made.graph.nodes for each in node.outputs if each is not None
    ]
    return (
        list(_flat(made)),
        outputs,
        made.repairs,
        list(map(str, made.sizes)),
        made.written,
        lines,
        sources,
        specs,
    )


def _or_refusal(*args: Any, **kwargs: Any) -> PaddedGraph | Refusal:
    try:
        return pad(*args, **kwargs)
    except Refusal as refusal:
        return refusal


@pytest.fixture
def planned_both_ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[PaddedGraph]]:
    """Whatever is planned is planned once more, each op for itself, and must be the same; answers
    what was compared.

    A program for a bucket must also be what the rules make of formulas at the capacities of this
    bucket.
    """
    compared: list[PaddedGraph] = []

    def both(*args: Any, **kwargs: Any) -> PaddedGraph:
        made = _or_refusal(*args, **kwargs)
        with monkeypatch.context() as patch:
            patch.setattr(recipes, "_forms_of", lambda graph: {})
            alone = _or_refusal(*args, **kwargs)
        if isinstance(made, Refusal):
            assert str(made) == str(alone)
            raise made
        assert isinstance(alone, PaddedGraph)
        assert in_full(made) == in_full(alone)
        compared.append(made)
        return made

    instance = Blueprints.padded

    def derived_anew(blueprints: Blueprints, region: Region) -> PaddedGraph:
        made = instance(blueprints, region)
        if made.late is not None:
            capacities = Capacities(region.caps)
            anew = blueprints._derive(Region(region.given, region.exact, region.caps, capacities))
            assert in_full(made) == in_full(Blueprint(anew, capacities, compiled=False).at(region))
            compared.append(made)
        return made

    monkeypatch.setattr(planning, "pad", both)
    monkeypatch.setattr(Blueprints, "padded", derived_anew)
    yield compared
    assert compared
