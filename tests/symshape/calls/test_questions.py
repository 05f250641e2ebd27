"""Questions about an argument that keys do not answer, and keys that hold the answers."""

from __future__ import annotations

import gc
from typing import Any

import torch

import symshape
from symshape.calls.call_key import FLAT, QUICK
from symshape.calls.constant_keys import IdentityKey
from symshape.calls.questions import ABSENT, Question, answers, asking


def tagged(k: Any) -> torch.Tensor:
    x = torch.ones(3)
    x.k = k  # type: ignore[attr-defined]
    return x


def test_answers() -> None:
    weight = torch.ones(3)
    attribute, names = Question(0, "attribute", "k"), Question(0, "attributes")
    assert attribute.answer(torch.ones(3)) == attribute.answer(7) == ABSENT
    assert attribute.answer(tagged(1)) == attribute.answer(tagged(1))
    different = [
        attribute.answer(each)
        for each in (torch.ones(3), tagged(1), tagged(True), tagged(1.0), tagged("1"))
    ]
    assert len(set(different)) == 5
    assert names.answer(tagged(1)) == ("k",)
    assert names.answer(torch.ones(2)) == ()
    assert Question(0, "is", IdentityKey(weight)).answer(weight) is True
    assert Question(0, "is", IdentityKey(weight)).answer(torch.ones(3)) is False
    assert Question(0, "is_inference").answer(weight) is False
    with torch.inference_mode():
        assert Question(0, "is_inference").answer(torch.ones(3)) is True
    hooked = torch.ones(3, requires_grad=True)
    assert Question(0, "hooked").answer(hooked) is False
    handle = hooked.register_hook(lambda g: g)
    assert Question(0, "hooked").answer(hooked) is True
    handle.remove()
    assert Question(0, "hooked").answer(hooked) is False
    assert Question(0, "hooked").text("x") == "whether x has hooks"
    assert answers((attribute, Question(5, "attributes")), (tagged(1),)) == (
        attribute.answer(tagged(1)),
        None,
    )
    texts = [
        Question(0, *what).text("x")
        for what in (("attribute", "k"), ("attributes",), ("is", IdentityKey(weight)))
    ]
    assert texts == ["the attribute k of x", "the attributes of x", "which object x is"]
    assert Question(0, "is_inference").text("x") == "x.is_inference()"


def test_an_object_is_not_kept_alive_and_equals_no_later_one() -> None:
    class Thing:
        pass

    thing = Thing()
    one, other = IdentityKey(thing), IdentityKey(thing)
    assert one == other
    assert hash(one) == hash(other)
    assert one != IdentityKey(Thing())
    del thing
    gc.collect()
    assert one.value is None
    assert one != other
    assert IdentityKey(3).value == 3  # cannot be referred to weakly


def test_exact_keys_with_answers() -> None:
    makers = asking(FLAT.makers, (Question(0, "attribute", "k"),))
    keys = [makers[1]((each,), {}) for each in (torch.ones(3), tagged(1), tagged(1), tagged(2))]
    assert len(set(keys)) == 3
    assert keys[1] == keys[2]
    assert makers[1](([1],), {}) is None
    assert makers[99](((),) * 99, {}) is None


def test_a_function_that_asks() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * getattr(x, "k", 2)

    fast = symshape.compile(fn)
    for x in (torch.ones(3), tagged(3), tagged(4), torch.ones(3), tagged(3), tagged(3.0)):
        assert torch.equal(fast(x), fn(x))
    assert fast.stats().traces == 4
    assert "the attribute k of x is not what it was in the trace" in fast.explain_miss()
    again = [fast(tagged(3)) for _ in range(3)]
    assert torch.equal(again[2], fn(tagged(3)))
    assert fast.stats().traces == 4


def test_a_traced_function_checks_the_answers() -> None:
    traced = symshape.trace(lambda x: x * getattr(x, "k", 2), tagged(3))
    assert traced.check(tagged(3))
    assert not traced.check(tagged(4))
    assert traced.explain(torch.ones(3)) == ["the attribute k of x is not what it was in the trace"]


def test_a_function_that_does_not_ask_pays_nothing() -> None:
    fast = symshape.compile(lambda x: x * 2)
    fast(tagged(3))
    assert fast._cache.makers is QUICK.makers
    assert not fast.entries[0].program.questions
