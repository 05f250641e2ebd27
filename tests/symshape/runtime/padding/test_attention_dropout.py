"""Attention with dropout, forward and backward in one padded program; the kernels of devices by
their formulas.

The stand-ins drop by a mask of their own sizes, which they draw from the random state that forward
keeps.  So backward is right only if it runs the same kernel at the same capacities, and if the
state reaches it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import torch
from torch.utils import _pytree as pytree

from guards import parse
from guards.terms import fold
from guards.terms.arithmetic import symbol
from meta_fns import TensorSpec
from meta_fns.core.layout import contiguous_strides
from meta_fns.padding import attention_gradients
from symshape.graph.graph import Graph
from symshape.graph.random_states import RandomStates
from symshape.graph.steps import Input, Node, Value
from symshape.runtime.padding.alignment import aligned
from symshape.runtime.padding.blueprint import Blueprints
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.transform import PaddedGraph, Refusal, pad
from symshape.runtime.pieces.faults import Faults
from symshape.runtime.runners.padded.tied_buckets import attention_agrees
from tests.meta_fns.padding.poison import poison
from tests.symshape.runtime.padding.test_attention_on_device import BACKWARD, CPU, FORWARD, run

aten = torch.ops.aten
HEADS, WIDTH, SHARE = 2, 8, 0.4
CAPS = {"s0": 3, "s1": 37}
CALLS = [(3, 37), (1, 1), (2, 32), (3, 31), (1, 36), (2, 5)]
WAYS = {"plain": {}, "causal": {"is_causal": True}, "bias": {"attn_bias": True}}


class Made:
    """A graph of one call of attention with dropout, and its backward."""

    def __init__(
        self, name: str, *, is_causal: bool = False, attn_bias: bool = False, share: float = SHARE
    ) -> None:
        self.number, dtype = 0, torch.float32 if name == "efficient" else torch.bfloat16
        batch, length = symbol("s0"), symbol("s1")
        whole = (batch, HEADS, length, WIDTH)
        query, key, value, gradient = (self.value(*whole, dtype=dtype) for _ in range(4))
        mask = self.value(batch, HEADS, length, length, dtype=dtype) if attn_bias else None
        self.inputs = [query, key, value, gradient, *([mask] if mask is not None else [])]
        op, back = FORWARD[name], BACKWARD[name]
        rows = parse("(s1 + 31) // 32 * 32") if name == "efficient" else length
        last = (1,) if name == "cudnn" else ()
        kinds = {"logsumexp": (batch, HEADS, rows, *last), "rng_state": (2,)}
        kept = {}
        for each in op._schema.returns[1:]:
            if each.name in ("logsumexp", "log_sumexp"):
                kept[each.name] = self.value(*kinds["logsumexp"])
            elif each.name in ("philox_seed", "philox_offset", "rng_state", "unused"):
                state = torch.int64 if each.name.startswith("philox") else torch.uint64
                kept[each.name] = self.value(*kinds.get(each.name, ()), dtype=state)
        self.out, (logarithms, *self.states) = self.value(*whole, dtype=dtype), kept.values()
        given = {
            "query": query,
            "key": key,
            "value": value,
            "dropout_p": share,
            "is_causal": is_causal,
        }
        given |= {"attn_bias": mask, "compute_log_sumexp": True, "return_debug_mask": False}
        outputs = (self.out, *(kept.get(each.name) for each in op._schema.returns[1:]))
        self.forward = Node(op, self.arguments(op, given), {}, outputs, False)
        given |= {
            "grad_out": gradient,
            "grad_out_": gradient,
            "out": self.out,
            "logsumexp": logarithms,
        }
        given |= {
            "philox_seed": self.states[0],
            "philox_offset": self.states[1],
            "max_q": length,
            "max_k": length,
        }
        given |= {
            "cum_seq_q": None,
            "cum_seq_k": None,
            "grad_input_mask": [True, True, True, False],
        }
        self.gradients = [self.value(*whole, dtype=dtype) for _ in range(3)]
        made = (*self.gradients, *[None] * (len(back._schema.returns) - 3))
        self.backward = Node(back, self.arguments(back, given), {}, made, False)

    def value(self, *sizes: Any, dtype: torch.dtype = torch.float32) -> Value:
        self.number += 1
        return Value(
            self.number, TensorSpec(sizes, contiguous_strides(sizes), 0, dtype, CPU), object()
        )

    def arguments(self, op: Any, given: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(given[each.name] for each in op._schema.arguments if not each.kwarg_only)

    def graph(self, *outputs: Value, steps: Sequence[Node] = ()) -> Graph:
        inputs = tuple(Input(place, f"x{place}", value) for place, value in enumerate(self.inputs))
        outputs = outputs or (self.out, *self.gradients)
        steps = tuple(steps) or (self.forward, self.backward)
        return Graph(inputs, (), steps, outputs, pytree.tree_flatten([0] * len(outputs))[1])

    def apart(self) -> tuple[Graph, Graph]:
        """Return forward, and backward which is given what forward keeps, as two graphs."""
        kept = [each for each in self.forward.outputs if each is not None]
        inputs = tuple(
            Input(place, f"x{place}", value) for place, value in enumerate([*self.inputs, *kept])
        )
        alone = self.graph(*self.gradients, steps=[self.backward])
        return self.graph(*kept, steps=[self.forward]), attrs.evolve(alone, inputs=inputs)


class Kernels:
    """Stand-ins for the kernels, and what they dropped."""

    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []
        self.used: list[Any] = []

    def mask(self, seed: int, scores: torch.Tensor) -> torch.Tensor:
        """Return the factors of weights, 0 for those that are dropped."""
        drawn = torch.rand(scores.shape, generator=torch.Generator().manual_seed(seed))
        return (drawn >= SHARE).float() / (1 - SHARE)

    def forward(self, name: str, given: dict[str, Any]) -> list[Any]:
        assert given["dropout_p"] == SHARE
        scores = _scores(given)
        rows, seed = scores.logsumexp(3), 17 + len(self.kept)
        weights = (scores - rows[..., None]).exp().nan_to_num(0.0)
        self.kept.append(self.mask(seed, scores))
        out = (weights * self.kept[-1] @ given["value"].float()).to(given["query"].dtype)
        if name == "flash":
            state = torch.tensor([seed, 5], dtype=torch.int64).view(torch.uint64)
            return [
                out,
                rows,
                None,
                None,
                None,
                None,
                state,
                torch.zeros((), dtype=torch.uint64),
                None,
            ]
        assert name == "efficient", "cuDNN's kernel is never asked to drop"
        rows = torch.nn.functional.pad(rows, [0, -rows.shape[2] % 32], value=math.inf)
        return [out, rows, torch.tensor(seed), torch.tensor(5)]

    def backward(self, name: str, given: dict[str, Any]) -> list[Any]:
        assert given["dropout_p"] == SHARE
        state = given["philox_seed"]
        seed, offset = (
            state.view(torch.int64).tolist() if name == "flash" else (state, given["philox_offset"])
        )
        assert offset == 5
        gradient, key, query = (
            given[each].float() for each in (_gradient_of(given), "key", "query")
        )
        scores = _scores(given)
        weights = (scores - given["logsumexp"][:, :, : query.shape[2], None]).exp()
        mask = self.mask(int(seed), scores)
        change = (gradient * given["out"].float()).sum(3, keepdim=True)
        of_scores = (
            weights * (gradient @ given["value"].float().mT * mask - change) / math.sqrt(WIDTH)
        )
        found = [of_scores @ key, of_scores.mT @ query, (weights * mask).mT @ gradient]
        return [each.to(given["query"].dtype) for each in found] + (
            [None] if name == "efficient" else []
        )

    def __call__(
        self, name: str, op: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> list[Any]:
        given = dict(zip([each.name for each in op._schema.arguments], args, strict=False)) | kwargs
        self.used.append(op)
        return (self.forward if op is FORWARD[name] else self.backward)(name, given)


def _gradient_of(given: dict[str, Any]) -> str:
    return "grad_out_" if "grad_out_" in given else "grad_out"


def _scores(given: dict[str, Any]) -> torch.Tensor:
    scores = given["query"].float() @ given["key"].float().mT / math.sqrt(WIDTH)
    if given.get("attn_bias") is not None:
        scores = scores + given["attn_bias"].float()
    if given.get("is_causal"):
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    return scores


def _expected(
    tensors: Sequence[torch.Tensor], mask: torch.Tensor, causal: bool
) -> list[torch.Tensor]:
    """Results and gradients by autograd, with the weights dropped that the kernel dropped."""
    query, key, value = (each.float().requires_grad_() for each in tensors[:3])
    scores = _scores(
        {"query": query, "key": key, "attn_bias": (*tensors, None)[4], "is_causal": causal}
    )
    out = scores.softmax(3) * mask[tuple(slice(0, size) for size in scores.shape)] @ value
    return [out.detach(), *torch.autograd.grad(out, (query, key, value), tensors[3].float())]


def _padded(graph: Graph, **how: Any) -> PaddedGraph:
    return pad(graph, Region([parse("s0 >= 1"), parse("s1 >= 1")], {}, CAPS), CPU, **how)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FORWARD)
def test_backward_drops_what_forward_dropped(name: str, way: str) -> None:
    if name == "flash" and way == "bias":
        pytest.skip("takes no mask")
    made = Made(name, **WAYS[way])
    padded = _padded(made.graph(), any_randomness=True)
    torch.manual_seed(0)
    for number, (batch, length) in enumerate(CALLS):
        dtype = made.out.spec.dtype
        tensors = [torch.randn(batch, HEADS, length, WIDTH).to(dtype) for _ in range(4)]
        if way == "bias":
            bias = torch.randn(batch, HEADS, length, length).to(dtype)
            tensors.append(bias.masked_fill(torch.rand(bias.shape) < 0.3, -math.inf))
            tensors[4][..., 0] = 0.0
        buffers = []
        for each, tensor in zip(padded.graph.inputs, tensors, strict=False):
            buffers.append(torch.empty(each.value.spec.sizes, dtype=dtype))
            poison(buffers[-1], number)
            buffers[-1][tuple(slice(0, size) for size in tensor.shape)] = tensor
        true = [
            torch.tensor(fold.evaluate(term, {"s0": batch, "s1": length})) for term in padded.sizes
        ]
        kernels = Kernels()
        found = run(padded.graph, [*buffers, *true], kernels)
        assert (
            kernels.used[1]
            is BACKWARD[next(each for each in FORWARD if FORWARD[each] is kernels.used[0])]
        )
        tolerance = 2e-4 if name == "efficient" else 6e-2
        for mine, its in zip(
            found, _expected(tensors, kernels.kept[0], way == "causal"), strict=True
        ):
            part = mine[tuple(slice(0, size) for size in its.shape)].float()
            torch.testing.assert_close(part, its, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", FORWARD)
def test_eagers_random_numbers_are_not_to_be_had(name: str) -> None:
    with pytest.raises(Refusal, match="random"):
        _padded(Made(name).graph())


@pytest.mark.parametrize("name", FORWARD)
def test_a_state_that_is_used_outside_is_refused(name: str) -> None:
    """A backward in another program would drop by other sizes; so would this one by the state of
    another forward.
    """
    for each in Made(name).apart():
        with pytest.raises(Refusal, match="outside"):
            _padded(each, any_randomness=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FORWARD)
def test_tied_programs_drop_the_same_elements_at_the_same_capacities(name: str, way: str) -> None:
    if name == "flash" and way == "bias":
        pytest.skip("takes no mask")
    tied = [attrs.evolve(each, tied=True) for each in Made(name, **WAYS[way]).apart()]
    many = [CAPS, {**CAPS, "s1": 38}, {"s0": 8, "s1": 64}]
    made = [[_at(caps, blueprints) for caps in many] for blueprints in map(_blueprints, tied)]
    for one, first in enumerate(made[0]):
        for other, second in enumerate(made[1]):
            assert attention_agrees((tied[0], first), (tied[1], second)) == (one == other)


def test_tied_programs_run_the_same_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """What backward is given may lie in memory otherwise, so that it would choose another one."""
    forward, backward = (
        attrs.evolve(each, tied=True) for each in Made("cudnn", **WAYS["causal"]).apart()
    )
    first, second = (_at(CAPS, _blueprints(each)) for each in (forward, backward))
    assert attention_agrees((forward, first), (backward, second))
    monkeypatch.setattr(attention_gradients, "needs_no_plan", lambda *given: False)
    other = _at(CAPS, _blueprints(backward))
    assert not attention_agrees((forward, first), (backward, other))


def _blueprints(graph: Graph) -> Blueprints:
    return Blueprints(
        lambda region: aligned(pad(graph, region, CPU, any_randomness=True)), compiled=False
    )


def _at(caps: dict[str, int], blueprints: Blueprints) -> PaddedGraph:
    return blueprints.padded(Region([parse("s0 >= 1"), parse("s1 >= 1")], {}, caps))


@pytest.mark.parametrize("name", FORWARD)
def test_random_states(name: str) -> None:
    made = Made(name)
    both, alone = (
        RandomStates.of(made.graph()),
        RandomStates.of(made.graph(made.out, steps=[made.forward])),
    )
    assert both.inside == alone.inside == frozenset(made.states)
    assert both.shared == alone.shared == frozenset()
    assert both.pairs == ((made.forward, made.backward),)
    assert alone.pairs == ()
    given = RandomStates.of(made.graph(made.out, *made.states, steps=[made.forward]))
    assert given.shared == {made.forward}
    assert given.inside == frozenset()
    assert RandomStates.of(made.graph(*made.gradients, steps=[made.backward])).shared == {
        made.backward
    }


@pytest.mark.parametrize("name", FORWARD)
def test_nobody_draws_from_the_state_of_a_kernel_that_drops_nothing(name: str) -> None:
    made = Made(name, share=0.0)
    for graph in (made.graph(), made.graph(made.out, *made.states, steps=[made.forward])):
        found = RandomStates.of(graph)
        assert found.inside == frozenset(made.states)
        assert found.shared == frozenset()
        assert found.pairs == ()
    assert RandomStates.of(made.graph(*made.gradients, steps=[made.backward])).shared == frozenset()


@pytest.mark.parametrize("name", FORWARD)
def test_a_state_that_another_op_reads_is_used_outside(name: str) -> None:
    made = Made(name)
    copied = made.value(dtype=made.states[0].spec.dtype)
    copy = Node(aten.clone.default, (made.states[0],), {}, (copied,), True)
    found = RandomStates.of(made.graph(made.out, steps=[made.forward, copy, made.backward]))
    assert found.shared == {made.forward, made.backward}


def test_a_recorded_piece_may_hold_forward_and_backward() -> None:
    made = Made("efficient")
    together = made.graph()
    assert all(Faults(together, CPU, draws=True).of(node) is None for node in together.nodes)
    assert all(Faults(together, CPU).of(made.forward) for node in together.nodes)
    assert all(
        Faults(together, CPU, draws=True, parted=frozenset(together.nodes)).of(node)
        for node in together.nodes
    )
    given = made.graph(made.out, made.states[0], steps=[made.forward])
    assert Faults(given, CPU, draws=True).of(made.forward) is not None
