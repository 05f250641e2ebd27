"""Methods of Python's and torch's classes that read or write a user's objects, and wrappers around
a user's modules.
"""

from __future__ import annotations

import argparse
import ast
import collections
import collections.abc
import configparser
import contextlib
import functools
import html.parser
import json
import string
import textwrap
import unittest.mock
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.ao import quantization
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as checkpoints
from torch.utils import data

from tests.worlds.world import World, item, on, put, world

TRUSTED = "19 trusted methods"
ON = on(3)


def _stored(fn: Callable[[Any], Any], owner: Any, *steps: Any) -> World:
    """A function that writes into an object in each call."""
    return World(fn, [ON, ON, *steps, on(4), ON], lambda: owner)


def _read(fn: Callable[[Any], Any], *changes: Any, see: Callable[[], Any] | None = None) -> World:
    """A function that reads an object, which changes between the calls."""
    return World(fn, [ON, ON, *(step for each in changes for step in (each, ON, on(4)))], see)


# -- subclasses of Python's own classes


@world(TRUSTED)
def user_dict() -> World:
    class State(collections.UserDict[str, Any]):
        pass

    state = State(n=0)

    def step(x: Any) -> Any:
        state["n"] = state["n"] + 1
        state.setdefault("sums", []).append(x.sum())
        return x * state["n"]

    return _stored(step, state.data, item(state, "n", 7))


@world(TRUSTED)
def user_list() -> World:
    class History(collections.UserList[Any]):
        pass

    history = History()

    def step(x: Any) -> Any:
        history.append(x.sum())
        history.insert(0, x * 2)
        return x * len(history)

    return _stored(step, history.data)


@world(TRUSTED)
def user_string() -> World:
    class Text(collections.UserString):
        pass

    text = Text("1.5")
    return _read(lambda x: x * float(str(text)) + len(text), put(text, data="12.25"))


@world(TRUSTED)
def chain_map() -> World:
    class Chain(collections.ChainMap[str, Any]):
        pass

    chain = Chain({"n": 0}, {"k": 2.0})

    def step(x: Any) -> Any:
        chain["n"] += 1
        return x * chain["n"] * chain["k"]

    return _stored(step, chain.maps, item(chain.maps[1], "k", 3.0))


@world(TRUSTED)
def abstract_sequence_calls_insert() -> World:
    class Items(collections.abc.MutableSequence[Any]):
        def __init__(self) -> None:
            self.items: list[Any] = []
            self.count = 0

        def __getitem__(self, index: Any) -> Any:
            return self.items[index]

        def __setitem__(self, index: Any, value: Any) -> None:
            self.items[index] = value

        def __delitem__(self, index: Any) -> None:
            del self.items[index]

        def __len__(self) -> int:
            return len(self.items)

        def insert(self, index: int, value: Any) -> None:
            self.count += 1
            self.items.insert(index, value)

    items = Items()

    def step(x: Any) -> Any:
        items.append(x.sum())
        return x * items.count

    return World(step, [ON, ON, on(4)], lambda: (items.items, items.count))


@world(TRUSTED)
def namespace_of_arguments() -> World:
    class Options(argparse.Namespace):
        pass

    options = Options(a=1)
    other = Options(a=1)
    return _read(
        lambda x: x * (options == other) + len(repr(options)) + ("b" in options),
        put(options, a=22),
        put(options, b=2),
    )


@world(TRUSTED)
def template() -> World:
    text = string.Template("1$a")
    return _read(lambda x: x * float(text.substitute(a=1)), put(text, template="2$a"))


@world(TRUSTED)
def template_of_a_subclass() -> World:
    class Percent(string.Template):
        delimiter = "%"

    text = Percent("1%a")
    return _read(
        lambda x: x * float(text.substitute(a=1)),
        put(text, template="2%a"),
        put(text, template="%b3"),
    )


@world(TRUSTED)
def formatter_calls_back() -> World:
    class Constant(string.Formatter):
        value = 1.0

        def get_value(self, key: Any, args: Any, kwargs: Any) -> Any:
            return self.value

    made = Constant()
    return _read(lambda x: x * float(made.format("{a}")), put(made, value=2.0))


@world(TRUSTED)
def text_wrapper() -> World:
    wrapper = textwrap.TextWrapper(width=10)
    return _read(lambda x: x * len(wrapper.wrap("aaa bbb ccc ddd")), put(wrapper, width=4))


@world(TRUSTED)
def mock() -> World:
    made = unittest.mock.Mock(return_value=2.0)
    return World(
        lambda x: x * made(), [ON, ON, put(made, return_value=3.0), ON], lambda: made.call_count
    )


@world(TRUSTED)
def magic_mock() -> World:
    made = unittest.mock.MagicMock()
    length = made.__len__
    return World(
        lambda x: x + len(made),
        [ON, ON, put(length, return_value=3), ON],
        lambda: length.call_count,
    )


@world(TRUSTED)
def parser_calls_back() -> World:
    class Tags(html.parser.HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.tags: list[str] = []

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.tags.append(tag)

    parser = Tags()

    def step(x: Any) -> Any:
        parser.feed("<b><i>")
        return x * len(parser.tags)

    return World(step, [ON, ON, on(4)], lambda: parser.tags)


@world(TRUSTED)
def json_encoder_calls_back() -> World:
    class Encoder(json.JSONEncoder):
        value = 1

        def default(self, o: Any) -> Any:
            return self.value

    encoder = Encoder()
    return _read(lambda x: x * float(encoder.encode(object())), put(encoder, value=2))


@world(TRUSTED)
def visitor_calls_back() -> World:
    class Names(ast.NodeVisitor):
        count = 0

        def visit_Name(self, node: ast.Name) -> None:
            self.count += 1

    tree, names = ast.parse("a + b"), Names()

    def step(x: Any) -> Any:
        names.visit(tree)
        return x * names.count

    return World(step, [ON, ON, on(4)], lambda: names.count)


@world(TRUSTED)
def config_parser() -> World:
    class Config(configparser.ConfigParser):
        pass

    config = Config()
    config["a"] = {"k": "1.5"}

    def step(x: Any) -> Any:
        config["a"]["n"] = str(config.getint("a", "n", fallback=0) + 1)
        return x * config.getfloat("a", "k") * config.getint("a", "n")

    return World(
        step, [ON, ON, lambda: config["a"].__setitem__("k", "2.5"), ON], lambda: dict(config["a"])
    )


@world(TRUSTED)
def null_context() -> World:
    class Context(contextlib.nullcontext[float]):
        pass

    context: Any = Context(2.0)

    def step(x: Any) -> Any:
        with context as k:
            return x * k

    return _read(step, put(context, enter_result=3.0))


@world(TRUSTED)
def weak_dictionary() -> World:
    class Weak(weakref.WeakValueDictionary[str, Any]):
        pass

    class Thing:
        pass

    thing, weak = Thing(), Weak()

    def step(x: Any) -> Any:
        weak["a"] = thing
        return x * len(weak)

    return World(step, [ON, weak.clear, ON], lambda: len(weak))


# -- implicitly called methods that are objects


def _implicit(use: Callable[[Any], Any], **methods: Any) -> World:
    kind: Any = type("A", (), methods)
    owner = kind()
    made = next(iter(methods.values()))
    called = getattr(made, "func", made)
    (name,) = methods

    def exchange() -> None:
        setattr(kind, name, _Called(7))

    return _read(lambda x: x * use(owner), put(called, value=2), exchange, see=lambda: called.count)


class _Called:
    def __init__(self, value: int = 1) -> None:
        self.value, self.count = value, 0

    def __call__(self, *_: Any) -> int:
        self.count += 1
        return self.value


@world(TRUSTED)
def object_as_getitem() -> World:
    return _implicit(lambda owner: owner[0], __getitem__=_Called())


@world(TRUSTED)
def object_as_call() -> World:
    return _implicit(lambda owner: owner(), __call__=_Called())


@world(TRUSTED)
def object_as_length() -> World:
    return _implicit(len, __len__=_Called())


@world(TRUSTED)
def partial_as_getitem() -> World:
    return _implicit(lambda owner: owner[0], __getitem__=functools.partial(_Called(), 1))


@world(TRUSTED)
def partial_method_as_addition() -> World:
    return _implicit(lambda owner: owner + 1, __add__=functools.partialmethod(_Called(), 1))


# -- torch's classes


class _Squares(data.Dataset[Any]):
    def __init__(self) -> None:
        self.k, self.count = 1.0, 0

    def __getitem__(self, index: int) -> float:
        self.count += 1
        return (index + 1) * self.k

    def __len__(self) -> int:
        return 3


@world(TRUSTED)
def tensor_dataset() -> World:
    class Mine(data.TensorDataset):
        pass

    made = [data.TensorDataset(torch.ones(3)), Mine(torch.ones(3))]
    return _read(
        lambda x: x * made[0][0][0] + made[1][1][0] * len(made[0]),
        put(made[0], tensors=(torch.ones(5) * 2,)),
        put(made[1], tensors=(torch.ones(5) * 3,)),
    )


@world(TRUSTED)
def subset() -> World:
    inner = _Squares()
    made = data.Subset(inner, [2, 1])
    return _read(
        lambda x: x * made[0] * len(made),
        put(inner, k=2.0),
        lambda: made.indices.__setitem__(0, 1),  # type: ignore[attr-defined]
        see=lambda: inner.count,
    )


@world(TRUSTED)
def subset_made_in_the_call() -> World:
    inner, indices = _Squares(), [2, 1]
    return _read(
        lambda x: x * data.Subset(inner, indices)[0],
        put(inner, k=2.0),
        item(indices, 0, 1),
        see=lambda: inner.count,
    )


@world(TRUSTED)
def concatenated_datasets() -> World:
    made = _Squares() + _Squares()
    return _read(
        lambda x: x * made[4],
        put(made.datasets[1], k=2.0),
        item(made.datasets, 1, _Squares()),
        see=lambda: [each.count for each in made.datasets],
    )


@world(TRUSTED)
def stacked_datasets() -> World:
    inner = _Squares()
    made: Any = data.StackDataset(_Squares(), inner)
    return _read(lambda x: x * sum(made[1]), put(inner, k=2.0), see=lambda: inner.count)


@world(TRUSTED)
def batch_sampler() -> World:
    made = data.BatchSampler([1, 2, 3], 2, False)
    return _read(lambda x: x * len(list(made)), put(made, drop_last=True), put(made, batch_size=1))


@world(TRUSTED)
def data_loader() -> World:
    rows = [1.0, 2.0, 3.0]
    loader = data.DataLoader(rows, batch_size=2)  # type: ignore[arg-type]
    return _read(lambda x: x * sum(each.sum() for each in loader), lambda: rows.append(5.0))


class _Normal(torch.distributions.Normal):
    def __init__(self) -> None:
        super().__init__(torch.zeros(1), torch.ones(1))
        self.k, self.count = 1.0, 0

    def log_prob(self, value: Any) -> Any:
        self.count += 1
        return super().log_prob(value) * self.k

    def rsample(self, sample_shape: Any = ()) -> Any:
        self.count += 1
        return self.loc * self.k + 1


@world(TRUSTED)
def distribution() -> World:
    made = _Normal()
    return _read(
        lambda x: x + made.log_prob(x) + made.sample(),
        put(made, k=2.0),
        put(made, loc=torch.ones(1)),
        see=lambda: made.count,
    )


@world(TRUSTED)
def distribution_inside() -> World:
    inner = _Normal()
    made = torch.distributions.Independent(inner, 1)
    return _read(
        lambda x: x + made.log_prob(x[:1]),
        put(inner, k=2.0),
        put(inner, loc=torch.ones(1)),
        see=lambda: inner.count,
    )


@world(TRUSTED)
def divergence() -> World:
    made, other = _Normal(), torch.distributions.Normal(torch.zeros(1), torch.ones(1))
    return _read(
        lambda x: x + torch.distributions.kl_divergence(made, other), put(made, loc=torch.ones(1))
    )


# -- modules around modules


class _Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.k, self.count = nn.Dropout(0.9), 1.0, 0
        self.sums: list[Any] = []

    def forward(self, x: Any) -> Any:
        self.count += 1
        self.sums.append(x.sum())
        return self.drop(x) * self.k


def _triple(module: nn.Module, args: Any, result: Any) -> Any:
    return result * 3


def _around(wrap: Callable[[nn.Module], nn.Module], called: bool = True) -> World:
    inner = _Inner()
    outer = wrap(inner)
    hook: Callable[[], object] = lambda: inner.register_forward_hook(_triple) and None  # noqa: E731
    changes = (outer.eval, put(inner, k=2.0), hook, put(inner, drop=nn.Identity()))
    return _read(
        outer if called else lambda x: outer(x) + 1,
        *changes,
        see=lambda: (inner.count, inner.sums),
    )


@world(TRUSTED)
def data_parallel() -> World:
    return _around(nn.DataParallel)


@world(TRUSTED)
def data_parallel_in_a_function() -> World:
    return _around(nn.DataParallel, called=False)


@world(TRUSTED)
def data_parallel_in_a_sequence() -> World:
    return _around(lambda inner: nn.Sequential(nn.DataParallel(inner)))


@world(TRUSTED)
def checkpoint_around_a_module() -> World:
    return _around(checkpoints.checkpoint_wrapper)


@world(TRUSTED)
def offload_around_a_module() -> World:
    return _around(checkpoints.offload_wrapper)


@world(TRUSTED)
def quantization_wrapper() -> World:
    return _around(quantization.QuantWrapper)


@world(TRUSTED)
def averaged_model() -> World:
    inner = _Inner()
    made = torch.optim.swa_utils.AveragedModel(inner)
    return _read(made, made.eval, put(made.module, k=2.0))


def _buffers(module: nn.Module) -> Iterator[Any]:
    return (each.clone() for each in module.buffers())


@world(TRUSTED)
def observer() -> World:
    made = quantization.MovingAverageMinMaxObserver()
    return _read(made, put(made, averaging_constant=0.5), see=lambda: list(_buffers(made)))


@world(TRUSTED)
def recording_observer() -> World:
    made = quantization.RecordingObserver()
    return World(made, [ON, ON, on(4)], lambda: made.tensor_val)


@world(TRUSTED)
def fake_quantization() -> World:
    made = quantization.FakeQuantize()
    return _read(
        made, made.disable_fake_quant, made.disable_observer, see=lambda: list(_buffers(made))
    )


@world(TRUSTED, slow=True)
def unflattened_export() -> World:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    torch.manual_seed(0)
    made: Any = torch.export.unflatten(torch.export.export(Outer(), (torch.ones(3),)))
    first = getattr(made.inner, "0")
    hook: Callable[[], object] = lambda: made.register_forward_hook(_triple) and None  # noqa: E731
    changes = (put(first, bias=nn.Parameter(torch.ones(3))), hook)
    return World(made, [ON, *(step for each in changes for step in (each, ON))])
