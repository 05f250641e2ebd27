"""Data that eager refuses: forward, traced once more with its backward, refuses it too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from tests.symshape.runtime.runners.gradients.test_runner import compiled, divided

Program = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

PROGRAMS: dict[str, Program] = {
    "one_hot": lambda x, y: x * F.one_hot(y, 4).sum(-1),
    "one_hot of aten": lambda x, y: x * torch.ops.aten.one_hot.default(y, 4).sum(-1),
    "embedding": lambda x, y: F.embedding(y, x[:4]),
    "cross_entropy": lambda x, y: F.cross_entropy(x, y[:, 0]),
    "gather": lambda x, y: x.gather(1, y),
    "index": lambda x, y: x[:, y[0]],
    "index_add": lambda x, y: x.index_add(1, y[0], x),
    "scatter_reduce": lambda x, y: x.scatter_reduce(1, y, x, "amax"),
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(x, y / 4.0),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("wrong", [-9, 77])
def test_what_eager_refuses(name: str, wrong: int) -> None:
    fn = PROGRAMS[name]
    mine = compiled(fn, dynamic=True)
    for rows in (5, 6, 7, 6):
        x = torch.rand(rows, 4).requires_grad_()
        mine(x, torch.randint(0, 4, (rows, 4))).sum().backward()
    divided(mine)
    y = torch.zeros(6, 4, dtype=torch.int64)
    y[0] = y[:, 0] = wrong
    raised = []
    for each in (fn, mine):
        with pytest.raises((IndexError, RuntimeError)) as error:
            each(torch.rand(6, 4).requires_grad_(), y)
        raised.append(error)
    assert raised[0].type is raised[1].type
    assert str(raised[0].value) == str(raised[1].value)
