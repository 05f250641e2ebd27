"""Outputs of transformers' models made without their constructor, against the constructor."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from symshape.calls.outputs import is_plain, nesting

pytest.importorskip("transformers")
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast, Seq2SeqLMOutput
from transformers.utils.generic import ModelOutput


@dataclasses.dataclass
class Own(ModelOutput):
    """A user's own class, constructed like all others."""

    scores: torch.Tensor | None = None
    count: int | None = None


@dataclasses.dataclass
class Counting(ModelOutput):
    """One that does more when it is made."""

    made = 0
    scores: torch.Tensor | None = None

    def __post_init__(self) -> None:
        """Counts."""
        super().__post_init__()
        type(self).made += 1


def _alike(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    assert list(OrderedDict.items(one)) == list(OrderedDict.items(other))
    assert list(vars(one).items()) == list(vars(other).items())
    assert one.to_tuple() == other.to_tuple()
    assert [each.name for each in dataclasses.fields(one)] == [
        each.name for each in dataclasses.fields(other)
    ]


def _x() -> torch.Tensor:
    return torch.ones(2)


VALUES = {
    "one field": lambda: CausalLMOutputWithPast(logits=_x()),
    "not in the order of fields": lambda: CausalLMOutputWithPast(
        past_key_values=(_x(), _x()), loss=_x(), logits=_x()
    ),
    "tuples inside": lambda: BaseModelOutput(last_hidden_state=_x(), hidden_states=(_x(), _x())),
    "many": lambda: Seq2SeqLMOutput(
        logits=_x(), encoder_last_hidden_state=_x(), decoder_hidden_states=(_x(),)
    ),
    "outputs in outputs": lambda: Own(scores=_x(), count=BaseModelOutput(last_hidden_state=_x())),  # type: ignore[arg-type]
    "a number": lambda: Own(scores=_x(), count=3),
    "a number first": lambda: Own(count=3),
    "not of ours": lambda: Counting(scores=_x()),
}


@pytest.mark.parametrize("name", VALUES)
def test_every_call_makes_what_the_constructor_makes(name: str) -> None:
    value: Any = VALUES[name]()
    flat, tree = pytree.tree_flatten(value)
    nest = nesting(tree)
    assert nest is not None
    for shift in range(4):
        fresh = [each + shift for each in flat]
        made, expected = nest(fresh), pytree.tree_unflatten(fresh, tree)
        if name != "outputs in outputs":
            _alike(made, expected)
        else:
            assert made.keys() == expected.keys()
            _alike(made.count, expected.count)


def test_the_constructor_is_called_once() -> None:
    calls = []

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is ModelOutput.__post_init__.__code__:
            calls.append(frame)

    flat, tree = pytree.tree_flatten(CausalLMOutputWithPast(logits=_x()))
    nest = nesting(tree)
    assert nest is not None
    sys.setprofile(profile)
    try:
        for _ in range(3):
            nest(flat)
    finally:
        sys.setprofile(None)
    assert len(calls) == 1


def test_a_class_that_does_more_is_left_to_its_constructor() -> None:
    assert is_plain(CausalLMOutputWithPast)
    assert is_plain(Own)
    assert not any(map(is_plain, (Counting, ModelOutput, dict, OrderedDict, int)))
    flat, tree = pytree.tree_flatten(Counting(scores=_x()))
    nest = nesting(tree)
    assert nest is not None
    before = Counting.made
    for _ in range(3):
        nest(flat)
    assert Counting.made == before + 3


def test_none_in_the_place_of_a_tensor_is_left_to_the_constructor() -> None:
    flat, tree = pytree.tree_flatten(CausalLMOutputWithPast(loss=_x(), logits=_x()))
    nest = nesting(tree)
    assert nest is not None
    nest(flat)
    for other in ([None, flat[1]], [flat[0], None], [None, None]):
        _alike(nest(other), pytree.tree_unflatten(other, tree))


def test_it_can_be_changed_copied_and_pickled() -> None:
    flat, tree = pytree.tree_flatten(CausalLMOutputWithPast(logits=_x()))
    nest = nesting(tree)
    assert nest is not None
    nest(flat)
    made = nest(flat)
    made.loss = _x() * 2
    assert made["loss"] is made.loss
    assert list(made) == ["logits", "loss"]
    for again in (copy.copy(made), pickle.loads(pickle.dumps(made))):
        assert type(again) is CausalLMOutputWithPast
        assert torch.equal(again["logits"], made.logits)
    assert list(nest(flat)) == ["logits"]
