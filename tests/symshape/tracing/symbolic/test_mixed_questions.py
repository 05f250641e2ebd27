"""Questions about sizes of inputs and sizes that data tell, settled by guards on the sizes of
inputs alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import pytest
import torch

import symshape
from symshape import DataDependentError

Tensors = tuple[torch.Tensor, torch.Tensor]
Program = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def joined(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[mask], x])


def some(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = joined(x, mask)
    return y * 2 if y.shape[0] > 0 else y


def none(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = joined(x, mask)
    return y * 2 if y.shape[0] == 0 else y + 1


def truth_of_a_size(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = joined(x, mask)
    return y * 2 if len(y) else y + 1


def number_of_elements(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = joined(x, mask)[:, None].expand(-1, x.shape[0])
    return y * 2 if y.numel() > 0 else y.sum() + 1


def of_nonzero(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = torch.cat([mask.nonzero()[:, 0], torch.arange(x.shape[0])])
    return y.max() if y.numel() != 0 else y.sum() - 1


def of_repeats(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = torch.repeat_interleave(x, mask.long() + 1)
    both = torch.cat([x, y, x])
    return both * 2 if both.shape[0] >= 1 else both + 1


def unrolled_by_half(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = joined(x, mask)
    return y * 2 if (y.shape[0] + 3) // 2 >= 2 else y + 1


def chosen_from_two(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = torch.cat([x[mask], x[~mask], x])
    return y * 3 if y.shape[0] > x.shape[0] - 1 and y.shape[0] != 0 else y - 1


def calls(sizes: Sequence[int], seed: int = 0) -> list[Tensors]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(n, generator=generator), torch.rand(n, generator=generator) < 0.5)
        for n in sizes
    ]


def compared(program: Program, sizes: Sequence[int], seeds: int = 3) -> symshape.Stats:
    """Compare a compiled program with eager at each size, with several masks; the statistics
    afterwards.
    """
    compiled = symshape.compile(program, dynamic=True)
    for seed in range(seeds):
        for x, mask in calls(sizes, seed):
            assert torch.equal(compiled(x, mask), program(x, mask)), (x.shape, mask)
    return symshape.compiled_of(compiled).stats()


@pytest.mark.parametrize(
    "program",
    [
        some,
        none,
        truth_of_a_size,
        number_of_elements,
        of_nonzero,
        of_repeats,
        unrolled_by_half,
        chosen_from_two,
    ],
)
def test_two_programs_serve_all_sizes(program: Program) -> None:
    """One for the sizes at which the answer is yes whatever the data, one for those at which it is
    no.

    ``repeat_interleave`` needs another one where the repeats have one element.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", symshape.FallbackWarning)
        stats = compared(program, [5, 7, 1, 0, 2, 9, 3, 30, 0, 4])
    assert stats.traces <= (3 if program is of_repeats else 2)
    assert stats.fallbacks == 0


@pytest.mark.parametrize(("least", "sizes"), [(3, (3, 4, 5, 9, 0, 1)), (10, (10, 12, 30, 4, 2, 0))])
def test_a_number_of_rows_in_between_stays_open(least: int, sizes: tuple[int, ...]) -> None:
    """From `least` rows of x on the answer is yes, up to half of that it is no; between them the
    mask tells.
    """

    def program(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = joined(x, mask)
        return y * 2 if y.shape[0] >= least else y + 1

    stats = compared(program, sizes)
    assert (stats.traces, stats.fallbacks) == (2, 0)
    between = calls([least - 1])[0]
    with pytest.raises(DataDependentError, match="known only at run time"):
        symshape.trace(program, *between, dynamic=True)


def test_the_guard_names_the_line_that_asks() -> None:
    compiled = symshape.compile(some, dynamic=True)
    compiled(*calls([5])[0])
    guards = [str(each) for each in symshape.compiled_of(compiled).entries[0].guards]
    assert any(
        "v0 >= 1" in each and "in some" in each and "y.shape[0] > 0" in each for each in guards
    ), guards


def test_a_question_that_data_alone_tell_stays_open() -> None:
    def program(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = x[mask]
        return y * 2 if y.shape[0] > 2 else y + 1

    with pytest.raises(DataDependentError):
        symshape.trace(program, *calls([5])[0], dynamic=True)
    # two rows at most are never more than two
    graph = symshape.trace(program, *calls([2])[0], dynamic=True)
    for x, mask in calls([0, 1, 2], 4):
        assert torch.equal(graph(x, mask), program(x, mask))
    with pytest.raises(symshape.GuardViolation):
        graph(*calls([3])[0])


def test_two_numbers_that_data_tell() -> None:
    def program(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        a, b = x[mask], x[~mask]
        return torch.cat([a, b, x]) if len(a) + len(b) + len(x) <= 3 * len(x) else x

    stats = compared(program, [5, 0, 3, 8])
    assert (stats.traces, stats.fallbacks) == (1, 0)


@pytest.mark.parametrize("k", range(5))
def test_many_questions_with_eager_as_the_oracle(k: int) -> None:
    """Whatever is asked, a call that a program serves gives eager's result; most questions are
    served somewhere.
    """
    questions: list[Callable[[int, int], bool]] = [
        lambda y, n: y > k,
        lambda y, n: y <= k,
        lambda y, n: y // 2 >= k,
        lambda y, n: 2 * y - n > k,
        lambda y, n: y % 2 == k,
        lambda y, n: y * n > k,
        lambda y, n: max(y, k) > n,
        lambda y, n: min(y, n) >= k,
        lambda y, n: y - n <= k,
        lambda y, n: k < y < 3 * n or y == n,
    ]
    served = 0
    for question in questions:

        def program(
            x: torch.Tensor, mask: torch.Tensor, asked: Callable[[int, int], bool] = question
        ) -> torch.Tensor:
            y = joined(x, mask)
            return y * 2 if asked(len(y), len(x)) else y - 1

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", symshape.FallbackWarning)
            served += compared(program, [4, 0, 1, 6, 2, 3], seeds=1).traces > 0
    assert served >= 8
