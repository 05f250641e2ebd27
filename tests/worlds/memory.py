"""What is a view, what is a copy, and who is written through an alias (class 4 of issue 8)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.worlds.world import Call, World, item, on, values, world

MEMORY = "4 memory"


def _call(make: Any) -> Call:
    return Call(lambda: made if isinstance(made := make(), tuple) else (made,))


def _written(view: Any, *makes: Any) -> World:
    """A program that writes into what ``view`` makes of its argument, and answers both."""

    def fn(x: Any) -> Any:
        y = view(x)
        y.add_(1)
        return y * 2, x * 3

    return World(fn, [_call(make) for make in makes])


@world(MEMORY)
def reshape_copies_then_views() -> World:
    return _written(
        lambda x: x.reshape(-1),
        lambda: values(3, 2).t(),
        lambda: values(4, 2).t(),
        lambda: values(1, 5).t(),
        lambda: values(5, 1).t(),
    )


@world(MEMORY)
def reshape_views_then_copies() -> World:
    return _written(
        lambda x: x.reshape(-1),
        lambda: values(5, 1).t(),
        lambda: values(1, 5).t(),
        lambda: values(3, 2).t(),
    )


@world(MEMORY)
def reshape_of_a_column_slice() -> World:
    return _written(
        lambda x: x[:, : x.shape[1] // 2].reshape(-1),
        lambda: values(3, 4),
        lambda: values(4, 6),
        lambda: values(1, 6),
        lambda: values(5, 2),
        lambda: values(5, 3),
    )


@world(MEMORY)
def reshape_of_a_transposed_block() -> World:
    return _written(
        lambda x: x.transpose(0, 1).reshape(x.shape[1], -1),
        lambda: values(2, 3, 4),
        lambda: values(3, 3, 4),
        lambda: values(1, 3, 4),
        lambda: values(2, 1, 4),
    )


@world(MEMORY)
def reshape_while_the_argument_is_written() -> World:
    def fn(x: Any) -> Any:
        y = x.t().reshape(-1)
        x.add_(1)
        return y * 2

    return World(fn, [on(3, 2), on(4, 2), on(1, 2), on(4, 1), on(1, 1)])


@world(MEMORY)
def reshape_result_returned_and_written_later() -> World:
    def fn(x: Any) -> Any:
        return x.t().reshape(-1)

    return World(
        fn, [on(3, 2), on(4, 2), on(1, 2), on(4, 1)], view=lambda results: results[-1].add_(1)
    )


@world(MEMORY)
def reshape_of_an_expanded_argument() -> World:
    return _written(
        lambda x: x.reshape(-1),
        lambda: values(2, 3)[:, ::2],
        lambda: values(4, 5)[:, ::2],
        lambda: values(1, 5)[:, ::2],
        lambda: values(3, 2)[:, ::2],
    )


@world(MEMORY)
def flatten_of_a_permuted_argument() -> World:
    return _written(
        lambda x: x.permute(0, 2, 1).flatten(1),
        lambda: values(2, 3, 4),
        lambda: values(2, 5, 4),
        lambda: values(2, 1, 4),
        lambda: values(2, 4, 1),
    )


@world(MEMORY)
def contiguous_copies_or_not() -> World:
    return _written(
        lambda x: x.t().contiguous(),
        lambda: values(3, 2),
        lambda: values(4, 2),
        lambda: values(1, 4),
        lambda: values(4, 1),
    )


@world(MEMORY)
def channels_last_copies_or_not() -> World:
    return _written(
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda: values(2, 3, 2, 2),
        lambda: values(2, 4, 2, 2),
        lambda: values(2, 1, 2, 2),
        lambda: values(2, 3, 1, 1),
    )


@world(MEMORY)
def to_dtype_copies_or_not() -> World:
    return _written(
        lambda x: x.to(torch.float64), lambda: values(3), lambda: values(3, dtype=torch.float64)
    )


@world(MEMORY)
def expand_to_the_same_size() -> World:
    def fn(x: Any) -> Any:
        return x.expand(x.shape[0], 3)

    return World(fn, [on(2, 3), on(4, 3), on(1, 3)])


@world(MEMORY)
def sum_to_size_that_sums_nothing() -> World:
    return _written(
        lambda x: x.sum_to_size(1, 3),
        lambda: values(2, 3),
        lambda: values(4, 3),
        lambda: values(1, 3),
    )


@world(MEMORY)
def cat_of_one() -> World:
    return _written(lambda x: torch.cat([x]), lambda: values(3), lambda: values(4))


@world(MEMORY)
def dropout_in_eval_is_its_argument() -> World:
    m = nn.Dropout(0.5).eval()

    def fn(x: Any) -> Any:
        return m(x)

    return World(fn, [on(3), on(4), lambda: m.train(), on(4), lambda: m.eval(), on(4)])


@world(MEMORY)
def slice_that_is_everything() -> World:
    return _written(
        lambda x: x[: max(2, x.shape[0] - 1)],
        lambda: values(4),
        lambda: values(5),
        lambda: values(2),
    )


@world(MEMORY)
def pad_of_nothing() -> World:
    return _written(
        lambda x: torch.nn.functional.pad(x, (0, 4 - x.shape[0])),
        lambda: values(2),
        lambda: values(3),
        lambda: values(4),
    )


@world(MEMORY)
def unfold_whose_strides_tie_sometimes() -> World:
    def fn(x: Any) -> Any:
        y = x.unfold(0, 2, x.shape[0] // 4)
        return y.contiguous(), y + 1, y.reshape(-1)

    return World(fn, [on(8), on(12), on(4), on(5)])


@world(MEMORY)
def unfold_of_two_dimensions_then_arithmetic() -> World:
    def fn(x: Any) -> Any:
        return x.unfold(1, x.shape[1] - 1, 1) * 2

    return World(fn, [on(2, 4), on(2, 5), on(2, 3), on(2, 2), on(1, 2)])


@world(MEMORY)
def unfold_written_into_a_like() -> World:
    def fn(x: Any) -> Any:
        return torch.empty_like(x.unfold(0, 2, x.shape[0] - 3)).zero_()

    return World(fn, [on(6), on(7), on(5), on(4)])


@world(MEMORY)
def as_strided_windows() -> World:
    def fn(x: Any) -> Any:
        n = x.shape[0]
        return x.as_strided((n - 1, 2), (1, 1)) * 2, x.as_strided((2, 2), (n // 2, 1)) + 1

    return World(fn, [on(6), on(8), on(4), on(3)])


@world(MEMORY)
def arithmetic_on_tied_strides() -> World:
    def fn(x: Any, y: Any) -> Any:
        return x + y

    makes = [
        lambda: (values(2, 3).t(), values(3, 2)),
        lambda: (values(2, 4).t(), values(4, 2)),
        lambda: (values(1, 4).t(), values(4, 1)),
        lambda: (values(2, 1).t(), values(1, 2)),
    ]
    return World(fn, [_call(make) for make in makes])


@world(MEMORY)
def arguments_that_overlap_later() -> World:
    def fn(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    def overlapping() -> Any:
        base = values(5)
        return base[:3], base[2:]

    def the_same() -> Any:
        base = values(3)
        return base, base

    def views() -> Any:
        base = values(3)
        return base, base.view(3)

    apart = lambda: (values(3), values(3))  # noqa: E731
    return World(fn, [_call(each) for each in (apart, overlapping, the_same, views, apart)])


@world(MEMORY)
def arguments_that_overlap_first() -> World:
    def fn(a: Any, b: Any) -> Any:
        c = b * 2
        a.add_(1)
        return b + c

    def overlapping() -> Any:
        base = values(5)
        return base[:3], base[2:]

    return World(
        fn, [_call(overlapping), _call(lambda: (values(3), values(3))), _call(overlapping)]
    )


@world(MEMORY)
def buffer_that_an_argument_views() -> World:
    m = nn.BatchNorm1d(4, affine=False)

    def fn(x: Any) -> Any:
        y = x * 2
        m.running_mean.add_(1)  # type: ignore[union-attr]
        return x + y

    apart = on(3)
    alias = Call(lambda: (m.running_mean[1:],))  # type: ignore[index]
    return World(fn, [apart, alias, apart, alias], lambda: m.running_mean)


@world(MEMORY)
def buffer_written_through_an_argument() -> World:
    m = nn.BatchNorm1d(3, affine=False)

    def fn(x: Any) -> Any:
        x.add_(1)
        return m.running_mean * 2  # type: ignore[operator]

    return World(fn, [on(3), Call(lambda: (m.running_mean,)), on(3)], lambda: m.running_mean)


@world(MEMORY)
def global_tensor_viewed_by_an_argument() -> World:
    w = values(3)

    def fn(x: Any) -> Any:
        y = w + 1
        x.mul_(2)
        return y * w

    return World(fn, [on(3), Call(lambda: (w,)), Call(lambda: (w.view(3),))], lambda: w)


@world(MEMORY)
def weights_tied_later() -> World:
    m = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    def fn(x: Any) -> Any:
        with torch.no_grad():
            m[0].weight.add_(1)
            return x @ m[1].weight

    return World(
        fn, [on(3), lambda: setattr(m[1], "weight", m[0].weight), on(3)], lambda: m[1].weight
    )


@world(MEMORY)
def memory_of_parameters_tied_later() -> World:
    a, b = nn.Parameter(values(3)), nn.Parameter(values(3) + 1)

    def fn(x: Any) -> Any:
        with torch.no_grad():
            y = b * 1
            a.add_(x)
            return y + b

    return World(fn, [on(3), lambda: setattr(b, "data", a.data), on(3)], lambda: (a, b))


@world(MEMORY)
def tensors_in_a_list_become_one() -> World:
    ws = [values(3), values(3) + 1]

    def fn(x: Any) -> Any:
        ws[0].add_(x)
        return ws[1] * 2

    return World(fn, [on(3), lambda: item(ws, 1, ws[0])(), on(3)], lambda: ws)


@world(MEMORY)
def output_kept_and_written_by_the_caller() -> World:
    w = values(3)
    return World(
        lambda x: w * 1, [on(3), on(3)], lambda: w, view=lambda results: results[-1].add_(1)
    )


@world(MEMORY)
def constant_made_inside_and_written_by_the_caller() -> World:
    return World(
        lambda x: torch.tensor([1.0, 2.0]),
        [on(3), on(3)],
        view=lambda results: results[-1].add_(1).clone(),
    )


@world(MEMORY)
def tensor_outside_is_the_result() -> World:
    w = values(3)
    return World(
        lambda x: w,
        [on(3), on(3)],
        lambda: w,
        view=lambda results: (results[-1] is w, results[-1].add_(1)),
    )


@world(MEMORY)
def expanded_memory_refuses_a_write() -> World:
    def fn(x: Any) -> Any:
        y = x.expand(2, x.shape[0])
        return y.add_(1)

    return World(fn, [on(3), on(4), on(1)])


@world(MEMORY)
def offset_of_an_argument_read() -> World:
    def at(k: int) -> Call:
        return Call(lambda: (values(8)[k : k + 3],))

    return World(lambda x: x * x.storage_offset(), [at(1), at(2), at(0)])


@world(MEMORY)
def stride_of_an_argument_read() -> World:
    def at(k: int) -> Call:
        return Call(lambda: (values(12)[::k][:3],))

    return World(lambda x: x * x.stride(0), [at(1), at(2), at(3)])


@world(MEMORY)
def contiguity_of_an_argument_asked() -> World:
    def fn(x: Any) -> Any:
        return x * (2 if x.is_contiguous() else 3)

    return World(fn, [on(3, 2), _call(lambda: values(2, 3).t()), _call(lambda: values(3, 1).t())])


@world(MEMORY)
def view_of_an_argument_asked() -> World:
    def fn(x: Any) -> Any:
        return x * (2 if x._is_view() else 3)

    return World(fn, [on(3), _call(lambda: values(4)[1:])])


@world(MEMORY)
def base_of_an_argument_written() -> World:
    def fn(x: Any) -> Any:
        if x._base is not None:
            x._base.add_(1)
        return x * 2

    return World(fn, [on(3), _call(lambda: values(4)[1:])])


@world(MEMORY)
def version_of_an_argument_read() -> World:
    def changed() -> Any:
        return values(3).add_(1).add_(1)

    return World(lambda x: x * x._version, [on(3), _call(changed)])


@world(MEMORY)
def address_of_an_argument_read() -> World:
    base = values(64)

    def at(k: int) -> Call:
        return Call(lambda: (base[k : k + 3],))

    def fn(x: Any) -> Any:
        return x * ((x.data_ptr() - base.data_ptr()) // 4)

    return World(fn, [at(1), at(2)])


@world(MEMORY)
def storage_of_an_argument_shared_by_set() -> World:
    def fn(x: Any, y: Any) -> Any:
        x.set_(y)
        x.add_(1)
        return y * 2

    return World(fn, [_call(lambda: (values(3), values(3)))] * 2)


@world(MEMORY)
def in_place_under_a_view_of_a_leaf() -> World:
    def fn(x: Any) -> Any:
        y = x.clone()
        z = y[: x.shape[0] // 2]
        z.mul_(2)
        return y, z, y.view(-1)

    return World(fn, [on(4), on(6), on(1)])


@world(MEMORY, slow=True)
def inductor_with_arguments_that_overlap_later() -> World:
    def fn(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    def overlapping() -> Any:
        base = values(5)
        return base[:3], base[2:]

    return World(fn, [_call(lambda: (values(3), values(3))), _call(overlapping)], runner="inductor")


@world(MEMORY, slow=True)
def inductor_with_a_buffer_that_an_argument_views() -> World:
    w = values(4)

    def fn(x: Any) -> Any:
        y = x * 2
        w.add_(1)
        return x + y

    return World(fn, [on(3), Call(lambda: (w[1:],))], lambda: w, runner="inductor")
