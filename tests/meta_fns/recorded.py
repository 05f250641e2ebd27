"""Calls of ATen overloads as op_db's samples make them, recorded below autograd, and compared with the rules."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import meta_fns
from meta_fns import TensorSpec
from tests.meta_fns.eager import describe


class Answers:
    """The context of a rule whose data is known: it gives out the number of elements that masks select."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def new_size(self, lower: Any, upper: Any) -> int:
        size = self.sizes.pop(0)
        assert size >= lower
        assert upper is None or size <= upper
        return size

    def new_int(self, lower: Any, upper: Any) -> Any:
        return int

    def new_float(self) -> Any:
        return float

    def new_bool(self) -> Any:
        return bool


class Comparing(TorchDispatchMode):
    """Runs every op and compares what it returns with what its rule says; differences are collected in ``wrong``."""

    def __init__(self, only: frozenset[str] | None = None) -> None:
        super().__init__()
        self.only = only
        self.compared: dict[str, int] = {}
        self.missing: dict[str, int] = {}
        self.wrong: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func)
        if (self.only is not None and name not in self.only) or not meta_fns.has_rule(func) or opaque((args, kwargs)):
            if not meta_fns.has_rule(func):
                self.missing[name] = self.missing.get(name, 0) + 1
            return func(*args, **kwargs)
        specs = tree_map_only(torch.Tensor, TensorSpec.of, (args, kwargs))
        answers = Answers(mask_counts(func, args))
        expected, error = None, None
        try:
            expected = func(*args, **kwargs)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as raised:
            error = raised
        self.compare(name, func, specs, answers, expected, error)
        if error is not None:
            raise error
        return expected

    def compare(self, name: str, func: Any, specs: Any, answers: Any, expected: Any, error: Any) -> None:
        text = f"{name}({describe_all(specs[0])}, {describe_all(specs[1])})"
        try:
            got = meta_fns.infer(func, specs[0], specs[1], ctx=answers)
        except meta_fns.UnsupportedOp:
            return
        except meta_fns.ShapeError as refusal:
            if error is None:
                self.wrong.append(f"{text}: refused: {refusal}")
            return
        except Exception as crash:
            self.wrong.append(f"{text}: crashed: {crash!r}")
            return
        self.compared[name] = self.compared.get(name, 0) + 1
        if error is not None:
            self.wrong.append(f"{text}: eager refuses: {str(error)[:150]}; infer {describe(got)}")
        elif isinstance(expected, (int, float, complex, bool)):
            if got is not type(expected) and got != expected:
                self.wrong.append(f"{text}: {got!r} is not the kind of {expected!r}")
        elif describe(got) != describe(expected):
            self.wrong.append(f"{text}:\n   infer {describe(got)}\n   eager {describe(expected)}")


def opaque(values: Any) -> bool:
    """True if a tensor among the arguments is sparse or otherwise without strides."""
    found = []
    tree_map_only(torch.Tensor, lambda t: found.append(t.layout is not torch.strided or t.is_nested), values)
    return any(found)


def describe_all(values: Any) -> str:
    return str(tree_map_only(TensorSpec, lambda spec: str(spec), values))


def mask_counts(func: Any, args: Any) -> list[int]:
    """How many elements each mask among the indices of ``index`` selects."""
    if str(func).split(".")[1] not in ("index", "_unsafe_index", "index_put", "index_put_", "_unsafe_index_put"):
        return []
    masks = [t for t in args[1] if isinstance(t, torch.Tensor) and t.dtype in (torch.bool, torch.uint8)]
    with torch.utils._python_dispatch._disable_current_modes():
        return [int(torch.count_nonzero(mask)) for mask in masks]


def samples(names: str | None = None, dtypes: tuple[torch.dtype, ...] = (torch.float32,)) -> Iterator[tuple[Any, Any]]:
    """op_db's ops with one sample input each time."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if names is not None and info.name not in names:
            continue
        for dtype in dtypes:
            if dtype not in info.supported_dtypes("cpu"):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found = list(info.sample_inputs("cpu", dtype, requires_grad=False))
                except Exception:
                    continue
            for sample in found:
                yield info, sample
