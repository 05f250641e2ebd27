"""The registry: one rule an overload, a name for people, and what schemas say of aliasing."""

from __future__ import annotations

import re

import pytest
import torch

import meta_fns
from meta_fns.core import registry
from meta_fns.core.registry import Rule, aliasing, lookup, register, resolve, rule

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers goes again."""
    monkeypatch.setattr(registry, "_rules", dict(registry._rules))
    monkeypatch.setattr(registry, "_by_op", {})
    monkeypatch.setattr(registry, "_derivers", list(registry._derivers))


def of_no_op(self: object) -> object:
    return self


def test_one_rule_an_overload() -> None:
    with pytest.raises(ValueError, match=r"two rules for aten\.mm\.default: mm and of_no_op"):
        register("aten.mm.default", of_no_op)


def test_name_of_a_rule() -> None:
    """In words, from the name of the function, unless given."""
    assert register("test.one.default", of_no_op).name == "of no op"
    assert register("test.two.default", of_no_op, name="nothing").name == "nothing"
    rule("test.three.default", "test.four.default", name="both")(of_no_op)
    assert [each.name for each in meta_fns.rules() if each.overload.startswith("test.")] == [
        "both",
        "of no op",
        "both",
        "nothing",
    ]


def test_a_rule_made_in_a_function_needs_a_name() -> None:
    def made(self: object) -> object:
        return self

    for fn in (made, lambda self: self):
        with pytest.raises(ValueError, match="needs a name"):
            register("test.one.default", fn)
        assert register(f"test.{id(fn)}.default", fn, name="made").name == "made"


def test_names_are_for_people() -> None:
    """No helper's name, underscore or `<locals>`; and one name may not be what other reasons of
    guards are called.
    """
    found = {each.name for each in meta_fns.rules()}
    assert not [name for name in found if not re.fullmatch(r"[a-z0-9]+( [a-z0-9]+)*", name)]
    assert not found & {"declared", "static"}
    assert lookup(aten.add.Tensor) is not None
    assert lookup(aten.add.Tensor).name == "broadcast and promote"  # type: ignore[union-attr]
    assert lookup(aten.view.default).name == "view"  # type: ignore[union-attr]
    assert lookup(aten.relu.default).name == "pointwise"  # type: ignore[union-attr]


def test_lookup_asks_makers_of_rules_once() -> None:
    asked = []
    made = Rule("aten.bernoulli.out", of_no_op)

    def maker(op: torch._ops.OpOverload) -> Rule | None:
        asked.append(str(op))
        return made if str(op) == made.overload else None

    registry._derivers.clear()
    registry.deriver(maker)
    for _ in range(3):
        assert lookup(aten.bernoulli.out) is made
        assert lookup(aten.add.out) is None
        assert lookup(aten.add.Tensor) is not None
    assert asked == ["aten.bernoulli.out", "aten.add.out"]
    register("aten.add.out", of_no_op)
    assert lookup(aten.add.out) is not None


def test_resolve() -> None:
    assert resolve("aten.mm.default") is aten.mm.default
    assert resolve("aten.mm") is aten.mm.default
    assert resolve("aten::add.Tensor") is aten.add.Tensor
    assert resolve(aten.mm.default) is aten.mm.default
    for wrong in ("aten.no_such_op", "aten.mm.no_such_overload", "mm"):
        with pytest.raises(meta_fns.UnsupportedOp, match="no operator"):
            resolve(wrong)


def test_every_registered_overload_is_one_of_this_torch_or_another() -> None:
    """751 overloads have a rule of their own; a few are of other versions of torch."""
    unknown = []
    for each in meta_fns.rules():
        try:
            assert lookup(resolve(each.overload)) is each
        except meta_fns.UnsupportedOp:
            unknown.append(each.overload)
    assert len(unknown) < 10, unknown
    assert len(meta_fns.rules()) >= 751


@pytest.mark.parametrize(
    ("name", "view_of", "same_as", "mutated"),
    [
        ("aten.mm.default", (None,), (None,), ()),
        ("aten.view.default", (0,), (None,), ()),
        ("aten.split.Tensor", (0,), (None,), ()),
        ("aten.unbind.int", (0,), (None,), ()),
        ("aten.add_.Tensor", (None,), (0,), (0,)),
        ("aten.add.out", (None,), (3,), (3,)),
        ("aten.aminmax.out", (None, None), (3, 4), (3, 4)),
        ("aten.transpose_.default", (None,), (0,), (0,)),
        ("aten.native_batch_norm.default", (None, None, None), (None, None, None), ()),
        ("aten._native_batch_norm_legit.default", (None, None, None), (None, None, None), (3, 4)),
    ],
)
def test_aliasing(
    name: str,
    view_of: tuple[int | None, ...],
    same_as: tuple[int | None, ...],
    mutated: tuple[int, ...],
) -> None:
    found = aliasing(name)
    assert (found.view_of, found.same_as, found.mutated) == (view_of, same_as, mutated)
    assert found.names == tuple(argument.name for argument in resolve(name)._schema.arguments)
    assert found.is_functional is (name in ("aten.mm.default", "aten.native_batch_norm.default"))
    assert aliasing(resolve(name)) is found
