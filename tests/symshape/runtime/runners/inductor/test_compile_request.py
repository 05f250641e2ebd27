"""A compilation as bytes: what comes back is the same graph with the same arguments, as far as a
compiler looks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx

from symshape.errors import UnsupportedError
from symshape.runtime.runners.inductor.compile_request import Given, Request

_aten = torch.ops.aten


def _module(build: Any) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    graph.output(build(graph))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def _build(graph: torch.fx.Graph) -> Any:
    x, n = graph.placeholder("x"), graph.placeholder("n")
    rows = graph.call_function(_aten.sym_size.int, (x, 0))
    more = graph.call_function(torch.sym_max, (rows, n))
    ones = graph.call_function(
        _aten.full.default,
        ([more, 3], 1.5),
        {"dtype": torch.float32, "device": torch.device("cpu")},
    )
    return [
        graph.call_function(_aten.mul.Tensor, (graph.call_function(_aten.sum.default, (ones,)), x))
    ]


def test_there_and_back() -> None:
    module = _module(_build)
    given = [Given(torch.randn(4, 3), ("v0", "v1"), (True, False)), Given(7, ("v2",), (True,))]
    back = Request.unpacked(Request(module, given, {"shape_padding": False}).packed())
    assert str(back.module.graph) == str(module.graph)
    assert [node.target for node in back.module.graph.nodes] == [
        node.target for node in module.graph.nodes
    ]
    assert back.options == {"shape_padding": False}
    x = torch.randn(4, 3)
    torch.testing.assert_close(back.module(x, 9), module(x, 9))
    assert [(each.names, each.varies) for each in back.arguments] == [
        (each.names, each.varies) for each in given
    ]
    stand_in = back.arguments[0].leaf.stand_in()
    assert (stand_in.shape, stand_in.stride(), stand_in.dtype) == ((4, 3), (3, 1), torch.float32)


@pytest.mark.slow
def test_the_other_process_assumes_the_same() -> None:
    given = [Given(torch.randn(4, 3), ("v0", "v1"), (True, False)), Given(7, ("v2",), (True,))]
    here = Request(_module(_build), given, {})
    there = Request.unpacked(here.packed())
    made = [each.compiled(keep=False) for each in (here, there)]
    assert made[0][1] == made[1][1]
    assert made[0][1] is not None
    assert "v1 == 3" in made[0][1]
    x = torch.randn(9, 3)
    for code, _, _ in made:
        torch.testing.assert_close(code(x, 12)[0], x * 12 * 3 * 1.5)


def test_a_digest_is_of_what_code_depends_on() -> None:
    def digest(x: torch.Tensor, n: int = 7, build: Any = _build, **options: Any) -> str:
        given = [Given(x, ("v0", "v1"), (True, False)), Given(n, ("v2",), (True,))]
        return Request(_module(build), given, options).digest()

    first = digest(torch.randn(4, 3))
    assert digest(torch.randn(9, 3), 11) == first, "sizes that vary"
    others = [
        digest(torch.randn(4, 5)),
        digest(torch.randn(4, 3, dtype=torch.float64)),
        digest(torch.randn(3, 4).t()),
        digest(torch.randn(4, 3), shape_padding=False),
        digest(
            torch.randn(4, 3),
            build=lambda graph: [graph.placeholder("x"), graph.placeholder("n")][:1],
        ),
    ]
    assert len({first, *others}) == 6


@pytest.mark.filterwarnings(
    "ignore:Sparse invariant checks are implicitly disabled"
)  # torch 2.11 says so even if told
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: torch.ones(4).to_sparse(), "a Tensor"),
        (lambda: torch.ones(3, dtype=torch.complex64).conj(), "conjugate"),
    ],
)
def test_what_cannot_be_told(make: Callable[[], torch.Tensor], said: str) -> None:
    module = _module(
        lambda graph: [graph.call_function(_aten.neg.default, (graph.placeholder("x"),))]
    )
    with pytest.raises(UnsupportedError, match=said):
        Request(module, [Given(make())], {}).packed()


def test_a_tensor_in_the_graph_cannot_be_told() -> None:
    module = _module(
        lambda graph: [
            graph.call_function(_aten.add.Tensor, (graph.placeholder("x"), torch.ones(3)))
        ]
    )
    with pytest.raises(UnsupportedError, match="a Tensor in its graph"):
        Request(module, [Given(torch.ones(3))], {}).packed()
