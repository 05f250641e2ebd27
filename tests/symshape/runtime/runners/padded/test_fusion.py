"""What is changed in a padded program before its capture: appends, and no other kernel."""

from __future__ import annotations

import torch

import symshape
from symshape.runtime.padding.planning import plan
from symshape.runtime.runners.padded.fusion import captured_graph

aten = torch.ops.aten


def test_relu_stays_apart_from_the_product_before_it() -> None:
    """Merged into cuBLASLt's epilogue (``_addmm_activation``) it answers 0 for NaN, in some
    kernels.
    """
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    with torch.no_grad():
        program = symshape.trace(model, torch.randn(3, 8), dynamic=True).program
    hints = {name: symbol.hint for name, symbol in program.symbols.items()}
    made = plan(program, {name: hint for name, hint in hints.items() if hint is not None}).padded
    assert made is not None
    ops = [node.op for node in captured_graph(made, ()).graph.nodes]
    assert ops.count(aten.addmm.default) == 2
    assert ops.count(aten.relu.default) == 1
