"""Errors of sizes that a program catches: other sizes, at which nothing is raised, have another
program.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from tests.meta_fns.opdb import op_infos

Op = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
OPS: dict[str, Op] = {
    "mse_loss": F.mse_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss,
    "l1_loss": F.l1_loss,
    "broadcast_tensors": lambda x, y: torch.broadcast_tensors(x, y)[0],
    "broadcast_shapes": lambda x, y: x.new_zeros(torch.broadcast_shapes(x.shape, y.shape)),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y, dim=0),
    "pairwise_distance": F.pairwise_distance,
    "add": torch.add,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "view": lambda x, y: x.view(y.shape),
    "stack": lambda x, y: torch.stack([x, y]),
}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("first", [(3, 4), (4, 4), (1, 4)])
def test_a_handler_serves_only_sizes_at_which_there_is_an_error(
    name: str, first: tuple[int, int]
) -> None:
    op = OPS[name]

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        try:
            return op(x, y)
        except RuntimeError:
            return x.sum() * 0 - 1

    compiled = symshape.compile(fn, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of losses of unequal sizes
        for sizes in (first, (4, 4), (5, 6), (1, 4), (6, 6), (4, 1), (1, 1), (4, 3)):
            x, y = (torch.rand(size) for size in sizes)
            torch.testing.assert_close(compiled(x, y), fn(x, y))
    assert compiled.stats().refusals == 0


@pytest.mark.parametrize("shard", range(8))
def test_refused_calls_are_of_the_class_that_eager_raises(shard: int) -> None:
    """The handler for one class of errors runs where eager runs it, and no other."""
    for op in op_infos()[shard::8]:
        if op.error_inputs_func is not None:
            _errors_are_eagers(op)


def _errors_are_eagers(op: Any) -> None:
    for each in op.error_inputs("cpu"):
        sample = each.sample_input

        def fn(*args: Any, sample: Any = sample) -> torch.Tensor:
            return op.op(*args, **sample.kwargs)

        args = (sample.input, *sample.args)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fn(*args)
            except Exception as error:
                eager = type(error)
            else:
                continue
            ours: Exception | None = None
            with contextlib.suppress(Exception):
                try:
                    symshape.trace(fn, *args)
                except symshape.ProgramError as error:
                    ours = error
            if ours is not None:  # else it is refused, or torch's own code raises in the trace
                assert isinstance(ours, eager), (op.name, eager, ours)
                assert isinstance(ours, RuntimeError) == issubclass(eager, RuntimeError)


@pytest.mark.parametrize(
    "op",
    [
        lambda x: x.select(0, 5),
        lambda x: x[:0].argmax(),
        lambda x: x.unbind(3),
        lambda x: x.amax(2),
        lambda x: x.roll(1, 2),
        lambda x: torch.cat([]),
        lambda x: x.view(7, 7),
        lambda x: x.diagonal(dim1=2),
        lambda x: x[:, :1].expand(-1, 3).select(1, 5),
    ],
)
def test_handlers_by_class(op: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            return op(x).float()
        except RuntimeError:
            return x + 1
        except IndexError:
            return x + 2
        except ValueError:
            return x + 3

    compiled = symshape.compile(fn, dynamic=True)
    for size in ((3, 4), (4, 4), (7, 7), (6, 2), (49, 1), (5, 3)):
        x = torch.zeros(size)
        torch.testing.assert_close(compiled(x), fn(x))
    assert compiled.stats().refusals == 0


REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "a dimension": lambda x: x.transpose(0, 5),
    "a sum over a dimension": lambda x: x.sum(4),
    "a position": lambda x: x.select(0, 2),
    "a maximum of nothing": lambda x: x.amax(0),
    "an index that is a float": lambda x: x[torch.ones(2)],
    "a mask": lambda x: x[torch.ones(4, dtype=torch.bool)],
    "a dtype": lambda x: x << 1,
    "no tensors": lambda x: torch.cat([]),
    "a product": lambda x: x @ torch.ones(4, 2),
    "a check": lambda x: torch._check(x.shape[0] > 3),
}
ROWS = (4, 5, 1, 0, 2, 3)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", REFUSED)
def test_handlers_find_the_class_that_eager_raises(name: str, dynamic: bool | None) -> None:
    op = REFUSED[name]

    def fn(x: torch.Tensor) -> object:
        try:
            op(x)
        except NotImplementedError:
            return x * 2
        except RuntimeError as error:
            return x * 3, type(error).__name__, type(error) is RuntimeError
        except IndexError as error:
            return x * 5, type(error).__name__, error.__class__ is IndexError
        except ValueError:
            return x * 7
        return x

    compiled = symshape.compile(fn, dynamic=dynamic)
    with warnings.catch_warnings(action="ignore"):
        for rows in ROWS:
            x = torch.rand(rows, 3)
            assert str(compiled(x)) == str(fn(x))
    assert compiled.stats().fallbacks == 0


def test_an_error_that_nobody_catches_is_of_both_classes() -> None:
    with pytest.raises(symshape.ProgramError) as found:
        symshape.trace(lambda x: x.sum(4), torch.rand(3, 3))
    assert isinstance(found.value, IndexError)
    assert not isinstance(found.value, RuntimeError)


TEXTS: dict[str, Callable[[RuntimeError], object]] = {
    "str": str,
    "repr": repr,
    "an f-string": lambda error: f"failed: {error}",
    "args": lambda error: error.args,
    "a branch": lambda error: 1 if "shapes cannot be multiplied" in str(error) else 2,
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_a_caught_error_is_eagers(name: str) -> None:
    def fn(x: torch.Tensor) -> object:
        try:
            return x @ torch.ones(4, 2)
        except RuntimeError as error:
            return x * 2, TEXTS[name](error)

    compiled = symshape.compile(fn)
    with warnings.catch_warnings(action="ignore"):
        for rows in ROWS:
            x = torch.rand(rows, 3)
            assert str(compiled(x)) == str(fn(x))
    assert "the text of an error" in str(compiled.explain_fallback())
