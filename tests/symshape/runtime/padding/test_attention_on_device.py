"""What is done around the attention kernels of devices, in forward and backward; the kernels by
their formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import torch
from torch.utils import _pytree as pytree

from guards import parse
from guards.terms import fold
from guards.terms.arithmetic import symbol
from meta_fns import TensorSpec
from symshape.graph.graph import Graph
from symshape.graph.steps import Input, Node, Value, map_argument
from symshape.runtime.padding.blueprint import Blueprints
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.transform import PaddedGraph, Refusal, pad
from tests.meta_fns.padding.poison import poison

aten = torch.ops.aten
CPU = torch.device("cpu")
HEADS, WIDTH = 2, 8
FORWARD = {
    name: getattr(aten, f"_scaled_dot_product_{name}_attention").default
    for name in ("flash", "efficient", "cudnn")
}
BACKWARD = {
    name: getattr(aten, f"_scaled_dot_product_{name}_attention_backward").default
    for name in FORWARD
}
CAPS = {"s0": 3, "s1": 37, "s2": 41}
CALLS = [(3, 37, 41), (1, 1, 1), (2, 32, 33), (3, 31, 2), (1, 36, 40), (2, 5, 41)]


def _given(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, in the words of all three kernels."""
    given = dict(zip([each.name for each in op._schema.arguments], args, strict=False)) | kwargs
    return {"attn_bias": None, "is_causal": False, "scale": None} | given


def _in_float32(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    def widened(leaf: Any) -> Any:
        return leaf.float() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return pytree.tree_map(widened, (tuple(args), kwargs))  # type: ignore[no-any-return]


def _scores(query: torch.Tensor, key: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
    scores = query @ key.mT * (given["scale"] or 1 / math.sqrt(WIDTH))
    if given["attn_bias"] is not None:
        scores = scores + given["attn_bias"]
    if given["is_causal"]:
        never = torch.ones(scores.shape[-2:]).triu(1).bool()
        scores = scores.masked_fill(never, -math.inf)
    return scores


def _attention(name: str, op: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """The first two results, the second in the sizes that the kernel gives it."""
    given = _given(op, *_in_float32(args, kwargs))
    dtype, (query, key, value) = args[0].dtype, (each.float() for each in args[:3])
    scores = _scores(query, key, given)
    rows = scores.logsumexp(3)
    if name == "cudnn":
        rows = rows[..., None]
    elif name == "efficient":
        rows = rows if given["compute_log_sumexp"] else rows[:, :, :0]
        rows = torch.nn.functional.pad(rows, [0, -rows.shape[2] % 32], value=math.inf)
    return [(scores.softmax(3) @ value).to(dtype), rows]


def _gradients(name: str, op: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """As the kernels do it: from the results of the forward, and from what it kept."""
    if name == "efficient":
        assert _given(op, args, kwargs)["out"].transpose(1, 2).is_contiguous(), (
            "where the kernel looks for it"
        )
    given = _given(op, *_in_float32(args, kwargs))
    dtype, (gradient, query, key, value) = args[0].dtype, (each.float() for each in args[:4])
    rows = given["logsumexp"]
    if name == "efficient":
        assert rows.shape[2] == -(-query.shape[2] // 32) * 32
        rows = rows[:, :, : query.shape[2]]
    elif name == "cudnn":
        rows = rows[..., 0]
    assert rows.shape == query.shape[:3]
    weights = (_scores(query, key, given) - rows[..., None]).exp()
    change = (gradient * given["out"]).sum(3, keepdim=True)
    scores = weights * (gradient @ value.mT - change)
    scale = given["scale"] or 1 / math.sqrt(WIDTH)
    found = [scores @ key * scale, scores.mT @ query * scale, weights.mT @ gradient]
    return [each.to(dtype) for each in ([*found, scores] if name == "efficient" else found)]


def _by_formula(name: str, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return (_attention if op is FORWARD[name] else _gradients)(name, op, *args, **kwargs)


def run(
    graph: Graph,
    inputs: Sequence[torch.Tensor],
    kernel: Callable[[str, Any, Sequence[Any], dict[str, Any]], Any] = _by_formula,
) -> list[torch.Tensor]:
    """Run a graph on the CPU; ``kernel`` stands in for the kernels of devices, given name, op and
    arguments.
    """
    known: dict[Any, Any] = dict(zip((each.value for each in graph.inputs), inputs, strict=True))
    for node in graph.nodes:
        args, kwargs = (map_argument(each, known.__getitem__) for each in (node.args, node.kwargs))
        name = next((each for each in FORWARD if node.op in (FORWARD[each], BACKWARD[each])), None)
        if name is None:
            made: Any = node.op(*args, **kwargs)
        else:
            made = kernel(name, node.op, args, kwargs)
        for output, each in zip(node.outputs, (made,) if node.single else made, strict=False):
            known |= {} if output is None else {output: each}
    return [known[each] for each in graph.outputs]


@attrs.frozen
class Case:
    """Attention of some kernel, in forward or backward: the graph, and what eager's call is."""

    graph: Graph
    call: Callable[[Sequence[torch.Tensor]], list[Any]]


def _value(number: int, *sizes: Any, dtype: torch.dtype = torch.float32) -> Value:
    strides = tuple(1 for _ in sizes)  # padding asks for none
    return Value(number, TensorSpec(sizes, strides, 0, dtype, CPU), object())


def _case(name: str, *, causal: bool, bias: bool, backward: bool) -> Case:
    batch, length = symbol("s0"), symbol("s1")
    keys = length if causal else symbol("s2")
    dtype = torch.float32 if name == "efficient" else torch.bfloat16
    query, key, value = (
        _value(i, batch, HEADS, n, WIDTH, dtype=dtype) for i, n in enumerate((length, keys, keys))
    )
    added = _value(3, batch, HEADS, length, keys, dtype=dtype) if bias else None
    out = _value(4, batch, HEADS, length, WIDTH, dtype=dtype)
    number: Any = parse("(s1 + 31) // 32 * 32") if name == "efficient" else length
    rows = _value(5, batch, HEADS, number, *([1] if name == "cudnn" else []))
    seed = _value(6, dtype=torch.int64)
    inputs = [query, key, value, *([added] if bias else [])]
    if not backward:
        op = FORWARD[name]
        args: tuple[Any, ...] = (query, key, value)
        args += (0.0, causal, False) if name == "flash" else (added, True, 0.0, causal)
        results: tuple[Value | None, ...] = (out, rows, *[None] * (len(op._schema.returns) - 2))
    else:
        op, gradient = BACKWARD[name], _value(7, batch, HEADS, length, WIDTH, dtype=dtype)
        inputs += [out, rows, gradient]
        results = tuple(
            _value(8 + i, batch, HEADS, n, WIDTH, dtype=dtype)
            for i, n in enumerate((length, keys, keys))
        )
        if name == "efficient":
            args = (
                gradient,
                query,
                key,
                value,
                added,
                out,
                rows,
                seed,
                seed,
                0.0,
                [True, True, True, bias],
                causal,
            )
            results += (_value(11, batch, HEADS, length, keys) if bias else None,)
            inputs.append(seed)
        else:
            between = (added,) if name == "cudnn" else ()
            seeds = (seed, seed)
            args = (
                gradient,
                query,
                key,
                value,
                out,
                rows,
                *(seeds if name == "cudnn" else ()),
                *between,
            )
            args += (None, None, length, keys, 0.0, causal, *(seeds if name == "flash" else ()))
            inputs.append(seed)
    answered = [each for each in results if each is not None]
    _, tree = pytree.tree_flatten([0] * len(answered))
    given = tuple(Input(i, f"input{i}", each) for i, each in enumerate(inputs))
    graph = Graph(given, (), (Node(op, args, {}, results, False),), tuple(answered), tree)
    formula = _gradients if backward else _attention

    def call(tensors: Sequence[torch.Tensor]) -> list[Any]:
        known = dict(zip(inputs, tensors, strict=True))
        return formula(name, op, *map_argument(args, lambda leaf: known.get(leaf, leaf)))

    return Case(graph, call)


def _padded(case: Case, caps: dict[str, int]) -> PaddedGraph:
    conditions = [parse(f"{name} >= 1") for name in caps]
    return pad(case.graph, Region(conditions, {}, caps), CPU)


def _inputs(case: Case, sizes: dict[str, int], bias: bool) -> list[torch.Tensor]:
    """Tensors as eager would have them: results and what is kept are those of a forward."""
    found = []
    for each in case.graph.inputs:
        shape = [
            fold.evaluate(size, sizes) if not isinstance(size, int) else size
            for size in each.value.spec.sizes
        ]
        dtype = each.value.spec.dtype
        found.append(
            torch.randn(shape).to(dtype)
            if dtype.is_floating_point
            else torch.zeros(shape, dtype=dtype)
        )
    if bias:
        found[3][torch.rand(found[3].shape) < 0.3] = -math.inf
        found[3][..., 0] = 0.0
    return found


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("way", ["causal", "bias", "plain"])
@pytest.mark.parametrize("name", FORWARD)
def test_valid_results_are_those_of_the_kernel(name: str, way: str, backward: bool) -> None:
    if name == "flash" and way == "bias":
        pytest.skip("takes no mask")
    bias, causal = way == "bias", way == "causal"
    case = _case(name, causal=causal, bias=bias, backward=backward)
    caps = {each: cap for each, cap in CAPS.items() if each != "s2" or not causal}
    padded = _padded(case, caps)
    torch.manual_seed(0)
    for number, sizes in enumerate(CALLS):
        known = dict(zip(("s0", "s1", "s2"), sizes, strict=True))
        tensors = _inputs(case, known, bias)
        if backward:
            forward = _case(name, causal=causal, bias=bias, backward=False)
            at = 4 if bias else 3
            tensors[at : at + 2] = forward.call(tensors[:at])[:2]
            tensors[at] = tensors[at].transpose(1, 2).contiguous().transpose(1, 2)
        buffers = []
        for each, tensor in zip(padded.graph.inputs, tensors, strict=False):
            buffer = torch.empty(each.value.spec.sizes, dtype=each.value.spec.dtype)
            poison(buffer, number)
            buffer[tuple(slice(0, size) for size in tensor.shape)] = tensor
            buffers.append(buffer)
        true = [torch.tensor(fold.evaluate(term, known)) for term in padded.sizes]
        made = run(padded.graph, [*buffers, *true])
        for mine, theirs in zip(made, case.call(tensors), strict=False):
            part = mine[tuple(slice(0, size) for size in theirs.shape)]
            tolerance = 2e-4 if name == "efficient" else 5e-2
            torch.testing.assert_close(part, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)


def _only(case: Case, caps: dict[str, int]) -> Any:
    """The attention of a padded program."""
    (node,) = (each for each in _padded(case, caps).graph.nodes if "attention" in str(each.op))
    return node


@pytest.mark.parametrize("name", FORWARD)
def test_padded_keys_are_hidden_by_the_kernel_that_takes_a_mask(name: str) -> None:
    for backward, ops in ((False, FORWARD), (True, BACKWARD)):
        case = _case(name, causal=False, bias=False, backward=backward)
        assert _only(case, CAPS).op is ops["efficient"]


@pytest.mark.parametrize(
    ("name", "kernel"), [("flash", "flash"), ("efficient", "efficient"), ("cudnn", "flash")]
)
def test_under_a_causal_mask_forward_and_backward_have_one_kernel(name: str, kernel: str) -> None:
    for backward, ops in ((False, FORWARD), (True, BACKWARD)):
        case = _case(name, causal=True, bias=False, backward=backward)
        assert _only(case, {"s0": 3, "s1": 37}).op is ops[kernel]


@pytest.mark.parametrize("name", FORWARD)
def test_what_another_program_dropped_is_not_padded(name: str) -> None:
    case = _case(name, causal=True, bias=False, backward=True)
    (node,) = case.graph.nodes
    at = [each.name for each in node.op._schema.arguments].index("dropout_p")
    args = (*node.args[:at], 0.1, *node.args[at + 1 :])
    dropping = attrs.evolve(case.graph, steps=(Node(node.op, args, {}, node.outputs, False),))
    with pytest.raises(Refusal, match=r"dropout|random"):
        _padded(Case(dropping, case.call), {"s0": 3, "s1": 37})


def test_many_keys_keep_cudnns_kernel_in_forward_alone() -> None:
    """How its backward takes infinite logarithms was not tried; what it keeps is what the other
    kernels keep.
    """
    caps, known = {"s0": 2, "s1": 1500}, {"s0": 1, "s1": 70}
    forward, backward = (
        _case("cudnn", causal=True, bias=False, backward=each) for each in (False, True)
    )
    assert _only(forward, caps).op is FORWARD["cudnn"]
    assert _only(backward, caps).op is BACKWARD["efficient"]
    padded = _padded(backward, caps)
    torch.manual_seed(0)
    tensors = _inputs(backward, known, bias=False)
    tensors[3:5] = forward.call(tensors[:3])[:2]
    buffers = []
    for each, tensor in zip(padded.graph.inputs, tensors, strict=False):
        buffers.append(torch.empty(each.value.spec.sizes, dtype=each.value.spec.dtype))
        poison(buffers[-1], 1)
        buffers[-1][tuple(slice(0, size) for size in tensor.shape)] = tensor
    true = [torch.tensor(fold.evaluate(term, known)) for term in padded.sizes]
    for mine, theirs in zip(
        run(padded.graph, [*buffers, *true]), backward.call(tensors), strict=True
    ):
        part = mine[tuple(slice(0, size) for size in theirs.shape)]
        torch.testing.assert_close(part, theirs, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("way", ["causal", "bias", "plain"])
@pytest.mark.parametrize("name", FORWARD)
def test_one_derivation_serves_buckets_of_any_length(name: str, way: str, backward: bool) -> None:
    """Deriving GPT-2's step took 90 ms for each length of a bucket, since a rule counted rows."""
    if name == "flash" and way == "bias":
        pytest.skip("takes no mask")
    case = _case(name, causal=way == "causal", bias=way == "bias", backward=backward)
    names = ("s0", "s1") if way == "causal" else ("s0", "s1", "s2")
    conditions = [parse(f"{each} >= 1") for each in names]

    def derive(region: Region) -> PaddedGraph:
        return pad(case.graph, region, CPU)

    known = Blueprints(derive, compiled=False)
    for batch, length in ((4, 128), (4, 256), (8, 512), (2, 64), (3, 96)):
        caps = dict(zip(names, (batch, length, length), strict=False))
        known.padded(Region(conditions, {}, caps))
    assert known.derived == 1
